"""The Bureau's subject matter in the engine's terms: families, groups, tables of sex by age."""

from __future__ import annotations

from itertools import pairwise

from ...domain import CodeFamily, Group, GroupKind, GroupMap, GroupSelection, Ladder
from .config import PUERTO_RICO, US, WIDE
from .maps import Maps

SEXES = ("1", "2")
OLDEST = 115
AGES = {
    "sex*age4": (18, 45, 65),
    "sex*age9": (5, 18, 25, 35, 45, 55, 65, 75),
    "sex*age23": (5, 10, 15, 18, 20, 21, 22, 25, 30, 35, 40, 45, 50, 55, 60, 62, 65, 67, 70, 75, 80, 85),
}
"""Table -> lower edges of its age ranges but the first, which begins at 0; the last one ends at 115."""


def families(codes: tuple[str, ...], most: int) -> tuple[CodeFamily, CodeFamily]:
    """Race codes, of which the first ``most`` of a record count, and its one ethnicity code."""
    return CodeFamily("race", codes, most), CodeFamily("ethnicity", codes, 1)


def group_map(maps: Maps, most: int) -> GroupMap:
    """The iterations of levels 1 and 2 as groups, in the order of their codes; the maps have no mistake."""
    assert maps.codes is not None
    wide, narrow = WIDE, frozenset(US + PUERTO_RICO) - WIDE
    groups = [
        Group(
            i.code,
            i.level,
            "ethnicity" if i.alone is None else "race",
            "alone" if i.alone else "any",
            i.label,
            total_only=i.detailed_only,
            regions=wide if i.detailed_only else narrow if i.coarse_only else None,
        )
        for i in sorted(maps.race + maps.ethnicity, key=lambda i: i.code)
        if i.level != "0"
    ]
    kept = {group.code for group in groups}
    members = [pair for pair in maps.members if pair[0] in kept]
    return GroupMap(families(maps.codes, most), tuple(groups), members)


def age_ranges(table: str) -> tuple[tuple[int, int], ...]:
    """First and last age of each range of a table.

    >>> age_ranges("sex*age4")
    ((0, 17), (18, 44), (45, 64), (65, 115))
    """
    edges = (0, *AGES[table], OLDEST + 1)
    return tuple((low, high - 1) for low, high in pairwise(edges))


def ladder() -> Ladder:
    """Sex by 4, 9 and 23 ages; cells by age, then sex.

    >>> [rung.cells for rung in ladder().rungs]
    [8, 18, 46]
    """
    tables = []
    for table in AGES:
        ranges = age_ranges(table)
        part = [i for i, (low, high) in enumerate(ranges) for _ in range(low, high + 1)]
        labels = [f"{low}-{high}" if low < high else str(low) for low, high in ranges]
        tables.append((table, {"age": (labels, part), "sex": (SEXES, range(len(SEXES)))}))
    return Ladder.of({"age": OLDEST + 1, "sex": len(SEXES)}, tables)


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
