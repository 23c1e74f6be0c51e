"""A small adaptive tabulation with everything in it: alone and any, total only, a place that is nowhere, two tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import ClassVar

import numpy as np
from tests.membership import groups_of

from tabulae.domain.groups import CodeFamily, Group, GroupMap, Ladder, Regions
from tabulae.privacy import ZCDP, PureDP
from tabulae.products.groups.count import GroupChunk, GroupCounts
from tabulae.products.groups.levels import AdaptivePlan, PopulationLevel

FAMILY = CodeFamily("origin", ("a", "b", "c", "d"), most=2)
GROUPS = GroupMap(
    (FAMILY,),
    (
        Group("A", "1", "origin", "alone"),
        Group("AB", "1", "origin", "any"),
        Group("C", "1", "origin", "any", total_only=True, regions=frozenset({"nation"})),
        Group("D", "2", "origin", "any"),
    ),
    [("A", "a"), ("AB", "a"), ("AB", "b"), ("C", "c"), ("D", "d")],
)
SEXES = (["F", "M"], [0, 1])
LADDER = Ladder.of(
    {"sex": 2, "age": 4},
    [
        ("sex*old", {"sex": SEXES, "age": (["young", "old"], [0, 0, 1, 1])}),
        ("sex*age", {"sex": SEXES, "age": (["0", "1", "2", "3"], [0, 1, 2, 3])}),
    ],
)
LEAVES = 3
NATION = Regions.nation(LEAVES)
TOWN = Regions.from_codes("town", ["x", None, "y"])


def plan(budget: PureDP | ZCDP, *, neighbours: str = "add-remove", rows: int = 1) -> AdaptivePlan:
    """Both levels of groups over the nation, the first over towns too; each at the same budget."""
    pairs = [(NATION, "1"), (TOWN, "1"), (NATION, "2")]
    return AdaptivePlan(
        tuple(
            PopulationLevel(
                regions,
                level,
                GROUPS.at(level, regions.name),
                LADDER,
                (5, 30),
                budget,
                Fraction(1, 10),
                neighbours=neighbours,
                rows_per_unit=rows,
            )
            for regions, level in pairs
        )
    )


class Records(GroupCounts):
    """Counts of records given one by one: (leaf, codes, cell), by the definition of membership."""

    def __init__(
        self, made_for: AdaptivePlan, records: Sequence[tuple[int, Sequence[str], int]], per_chunk: int = 1
    ):
        self.plan, self.given, self.per_chunk = made_for, list(records), per_chunk
        self.records = len(self.given)

    def chunks(self, level: int) -> Iterator[GroupChunk]:
        at = self.plan.levels[level]
        size = (at.regions.size, len(at.groups), at.ladder.classes)
        dense = np.zeros(size, np.int64)
        names = [group.code for group in at.groups.groups]
        for leaf, codes, cell in self.given:
            region = at.regions.of_leaf[leaf]
            for code in groups_of(at.groups, {"origin": codes}):
                if region >= 0:
                    dense[region, names.index(code), at.ladder.of_cell[cell]] += 1
        for first in range(0, size[0], self.per_chunk):
            part = dense[first : first + self.per_chunk].reshape(-1, size[2])
            place, of_class = np.nonzero(part)
            people = part[place, of_class]
            yield GroupChunk(
                first, min(self.per_chunk, size[0] - first), size[1], size[2], place, of_class, people
            )

    def fingerprint(self) -> bytes:
        return repr(self.given).encode()


class Quiet:
    """Randomness that gives the middle of every symmetric law: no noise at all, for laws that are kept as tables."""

    secure: ClassVar[bool] = False

    def u64(self, n: int) -> np.ndarray:
        return np.full(n, 1 << 63, np.uint64)

    def bits(self, k: int) -> int:
        return 1 << (k - 1)


def some_records(people: int, seed: int = 0) -> list[tuple[int, tuple[str, ...], int]]:
    """People with one code or two."""
    draw = np.random.default_rng(seed)
    out = []
    for _ in range(people):
        codes = tuple(draw.choice(list("aaaabbcd"), size=draw.integers(1, 3)))
        out.append((int(draw.integers(LEAVES)), codes, int(draw.integers(8))))
    return out
