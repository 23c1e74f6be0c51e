"""The Bureau's subject matter in the engine's terms: families, groups, tables of sex by age, person records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import overload

import numpy as np

from ...domain import CodeFamily, Group, GroupKind, GroupMap, GroupSelection, Ladder
from .config import MOST_CODES, PUERTO_RICO, US, WIDE
from .geography import BLOCK, BlockGeography
from .lines import Code, Key, LineColumn, LineLayout, Listed, Unused, WholeNumber
from .maps import Maps

PERSONS = "person-records.txt"
SEXES = ("1", "2")
OLDEST = 115
AGES = {
    "sex*age4": (18, 45, 65),
    "sex*age9": (5, 18, 25, 35, 45, 55, 65, 75),
    "sex*age23": (5, 10, 15, 18, 20, 21, 22, 25, 30, 35, 40, 45, 50, 55, 60, 62, 65, 67, 70, 75, 80, 85),
}
"""Table -> lower edges of its age ranges but the first, which begins at 0; the last one ends at 115."""

_PATTERN, _LOOKS = r"[1-9]\d{3}", "a code of four digits, the first not 0, such as 1010"
_NONE = "Null"


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


def person_layout(codes: tuple[str, ...], most: int, geography: BlockGeography | None) -> LineLayout:
    """What person-records.txt holds; without a geography, it names no blocks."""
    race, ethnicity = families(codes, most)
    races = [
        LineColumn(f"QRACE{i}", Code(race, None if i == 1 else _NONE, _PATTERN, _LOOKS, read=i <= most))
        for i in range(1, MOST_CODES + 1)
    ]
    columns = (
        LineColumn("QAGE", WholeNumber("age", 0, OLDEST)),
        LineColumn("QSEX", Listed("sex", SEXES)),
        LineColumn("HOUSEHOLDER", Unused()),
        *(LineColumn(name, Key()) for name in BLOCK),
        LineColumn("CENRACE", Unused()),
        *races,
        LineColumn("QSPAN", Code(ethnicity, None, _PATTERN, _LOOKS)),
    )
    return LineLayout(columns, () if geography is None else _Blocks(geography))


class _Blocks(Sequence[tuple[str, ...]]):
    """The keys of millions of blocks, made as they are asked for: blocks alike in a part share its text."""

    def __init__(self, geography: BlockGeography) -> None:
        self._block = geography.block

    def __len__(self) -> int:
        return self._block.size

    @overload
    def __getitem__(self, index: int) -> tuple[str, ...]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[tuple[str, ...]]: ...
    def __getitem__(self, index: int | slice) -> tuple[str, ...] | Sequence[tuple[str, ...]]:
        if isinstance(index, slice):
            return self._keys(self._block[index])
        return self._keys(self._block[[index]])[0]

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        for start in range(0, len(self), 1 << 20):
            yield from self[start : start + (1 << 20)]

    @staticmethod
    def _keys(block: np.ndarray) -> list[tuple[str, ...]]:
        columns = []
        for digits in reversed(BLOCK.values()):
            block, value = np.divmod(block, 10**digits)
            distinct, of_row = np.unique(value, return_inverse=True)
            texts = np.array([f"{number:0{digits}d}" for number in distinct.tolist()], object)
            columns.append(texts[of_row].tolist())
        return list(zip(*reversed(columns), strict=True))


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
