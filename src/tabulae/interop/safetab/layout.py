"""The Bureau's subject matter in the engine's terms: regions, blocks, families of codes, groups."""

from __future__ import annotations

from ...domain import CodeFamily, Group, GroupKind, GroupMap, GroupSelection
from .maps import Maps

US = ("USA", "STATE", "COUNTY", "TRACT", "PLACE", "AIANNH")
"""The run of the states and the District of Columbia."""

PUERTO_RICO = ("PR-STATE", "PR-COUNTY", "PR-TRACT", "PR-PLACE")
"""The run of Puerto Rico."""

WIDE = frozenset({"USA", "STATE", "PR-STATE"})
"""Nation and states: they take the groups that are detailed only, and none of their counts is suppressed."""

LEVELS = ("1", "2")
"""Levels of characteristic iterations: regional and detailed groups."""

BLOCK = {"TABBLKST": 2, "TABBLKCOU": 3, "TABTRACTCE": 6, "TABBLK": 4}
"""The columns that name a block, with their numbers of digits."""

MOST_CODES = 8
RACES = tuple(f"QRACE{i}" for i in range(1, MOST_CODES + 1))
"""The columns of race codes."""


def families(codes: tuple[str, ...], most: int) -> tuple[CodeFamily, CodeFamily]:
    """Race codes, of which the first ``most`` of a record count, and its one ethnicity code."""
    return CodeFamily("race", codes, most), CodeFamily("ethnicity", codes, 1)


def group_map(maps: Maps, most: int, *, total_only: bool = True) -> GroupMap:
    """The iterations of levels 1 and 2 as groups, in the order of their codes; the maps have no mistake.

    Those that are detailed only are of nation and states; with ``total_only`` they get no table there but the total.
    """
    assert maps.codes is not None
    wide, narrow = WIDE, frozenset(US + PUERTO_RICO) - WIDE
    groups = [
        Group(
            i.code,
            i.level,
            "ethnicity" if i.alone is None else "race",
            "alone" if i.alone else "any",
            i.label,
            total_only=i.detailed_only and total_only,
            regions=wide if i.detailed_only else narrow if i.coarse_only else None,
        )
        for i in sorted(maps.race + maps.ethnicity, key=lambda i: i.code)
        if i.level != "0"
    ]
    kept = {group.code for group in groups}
    members = [pair for pair in maps.members if pair[0] in kept]
    return GroupMap(families(maps.codes, most), tuple(groups), members)


def production_stability(selection: GroupSelection, most: int) -> int:
    """The Bureau's formula for the most groups of a selection that a record is in: ``h_r max(2, k) + h_e``.

    h is the most groups that one code is a member of, among the alone ones of race and among those of ethnicity; k is
    how many race codes count. Production takes h over the iterations of a level that it tabulates in a region type. The
    formula is no bound where the alone iterations and those in combination are not mirror images.
    """
    mirrored: tuple[tuple[str, GroupKind], ...] = (("race", "alone"), ("ethnicity", "any"))
    h_r, h_e = (
        int(selection.member[family][:, selection.columns(family, kind)].sum(axis=1).max(initial=0))
        for family, kind in mirrored
    )
    return h_r * max(2, most) + h_e
