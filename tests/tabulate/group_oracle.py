"""Counts of groups by definition, record by record: what the engine is tested against. And small plans to test with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from hypothesis import strategies as st
from tests.membership import groups_of

from tabulae.domain.groups import CodeFamily, Group, GroupMap, Ladder, Regions
from tabulae.privacy import ZCDP
from tabulae.products.groups.count import GroupCounts
from tabulae.products.groups.levels import AdaptivePlan, PopulationLevel

Entries = dict[tuple[int, int, int], int]
"""(region, group, class) -> people, where there are any."""

FAMILIES = (CodeFamily("race", ("10", "11", "12", "13"), most=3), CodeFamily("ethnicity", ("20", "21")))


@dataclass(frozen=True)
class Person:
    """One record: where, sex and age by position, and codes by family, the first ones first."""

    leaf: int
    sex: int
    age: int
    codes: dict[str, tuple[str, ...]]


def ladder(ages: int = 4, cut: int = 2) -> Ladder:
    """Sex by young or old, and sex by age."""
    parts = (["young", "old"], [int(age >= cut) for age in range(ages)])
    each = ([str(age) for age in range(ages)], list(range(ages)))
    sex = (["F", "M"], [0, 1])
    return Ladder.of(
        {"sex": 2, "age": ages}, [("young", {"sex": sex, "age": parts}), ("ages", {"sex": sex, "age": each})]
    )


def level(regions: Regions, groups: GroupMap, group_level: str, of: Ladder) -> PopulationLevel:
    """A level whose budget and thresholds do not matter here."""
    selection = groups.at(group_level, regions.name)
    thresholds = tuple(range(5, 5 + len(of.rungs)))
    return PopulationLevel(regions, group_level, selection, of, thresholds, ZCDP(1), Fraction(1, 10))


def by_definition(people: Iterable[Person], plan: AdaptivePlan) -> list[Entries]:
    """The counts of every level."""
    out: list[Counter[tuple[int, int, int]]] = [Counter() for _ in plan.levels]
    for person in people:
        for entries, of in zip(out, plan.levels, strict=True):
            region = int(of.regions.of_leaf[person.leaf])
            member = groups_of(of.groups, {name: codes for name, codes in person.codes.items() if codes})
            cell = person.sex * of.ladder.sizes["age"] + person.age
            for g, group in enumerate(of.groups.groups):
                if region >= 0 and group.code in member:
                    entries[region, g, int(of.ladder.of_cell[cell])] += 1
    return [dict(entries) for entries in out]


def entries_of(counts: GroupCounts, plan: AdaptivePlan) -> list[Entries]:
    """The same from counts, after the check that chunks are what they promise."""
    out = []
    for i, of in enumerate(plan.levels):
        entries: Entries = {}
        expected = 0
        for chunk in counts.chunks(i):
            assert (chunk.first, chunk.groups, chunk.classes) == (expected, len(of.groups), of.ladder.classes)
            assert chunk.place.dtype == chunk.of_class.dtype == chunk.people.dtype == np.int64
            assert (np.diff(chunk.place * chunk.classes + chunk.of_class) > 0).all()
            assert (chunk.people > 0).all()
            assert ((chunk.place >= 0) & (chunk.place < chunk.regions * chunk.groups)).all()
            expected += chunk.regions
            for place, c, people in zip(chunk.place, chunk.of_class, chunk.people, strict=True):
                region, group = divmod(int(place), chunk.groups)
                entries[chunk.first + region, group, int(c)] = int(people)
        assert expected == of.regions.size
        out.append(entries)
    return out


@st.composite
def plans(draw: st.DrawFn, leaves: int) -> AdaptivePlan:
    """Some levels over some region types, groups and ladders."""
    groups, members = [], []
    for i in range(draw(st.integers(1, 5))):
        family = draw(st.sampled_from(FAMILIES))
        regions = draw(st.sampled_from([None, frozenset({"r0"}), frozenset({"r1"})]))
        kind = draw(st.sampled_from(["alone", "any"]))
        groups.append(Group(f"g{i}", draw(st.sampled_from("12")), family.name, kind, regions=regions))
        members += [(f"g{i}", code) for code in draw(st.sets(st.sampled_from(family.codes)))]
    of = GroupMap(FAMILIES, tuple(groups), members)
    ladders = (ladder(), ladder(cut=3), Ladder.of({"sex": 2, "age": 4}, []))
    levels = [level(Regions.nation(leaves), of, "1", ladders[0])]
    for name in ("r0", "r1"):
        size = draw(st.integers(1, 3))
        of_leaf = draw(st.lists(st.integers(-1, size - 1), min_size=leaves, max_size=leaves))
        regions = Regions(name, tuple(map(str, range(size))), np.array(of_leaf))
        levels += [
            level(regions, of, g, draw(st.sampled_from(ladders)))
            for g in draw(st.sets(st.sampled_from("12")))
        ]
    return AdaptivePlan(tuple(levels))


def people(leaves: int, *, least: int = 1) -> st.SearchStrategy[list[Person]]:
    """Records of the attributes and families here; race has one code or more, unless ``least`` is 0."""

    def codes(family: CodeFamily, fewest: int) -> st.SearchStrategy[tuple[str, ...]]:
        return st.lists(st.sampled_from(family.codes), min_size=fewest, max_size=family.most).map(tuple)

    one = st.builds(
        Person,
        st.integers(0, leaves - 1),
        st.integers(0, 1),
        st.integers(0, 3),
        st.fixed_dictionaries({family.name: codes(family, least) for family in FAMILIES}),
    )
    return st.lists(one, min_size=1, max_size=12)


def padded(codes: Sequence[str], most: int, none: str | None) -> list[str | None]:
    """The codes with the text of no code after them."""
    return [*codes, *[none] * (most - len(codes))]
