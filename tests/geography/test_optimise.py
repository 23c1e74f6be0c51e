"""Algorithm 2 against a literal copy of the printed loops, and the split of a spine in two branches."""

from __future__ import annotations

import itertools
from math import isqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.each import each
from tests.geography.trees import algorithm_1, columns, nested, random_shares, random_spine, spines

from tabulae.errors import InvalidArgument
from tabulae.products.areas.spine.spine import Spine


def greedy(counties: list[list], entities: list[set[int]], cutoff: int) -> list[list[list]]:
    """Groups of tracts by the double loop of the print: every test computes every distance from the root."""

    def sorted_distances(groups):
        return sorted((algorithm_1(groups, inside) for inside in entities), reverse=True)

    groups = [[[tract] for tract in county] for county in counties]
    current = sorted_distances(groups)
    changed = True
    while changed:
        changed = False
        for county, tracts in zip(groups, counties, strict=True):
            first = 0
            while first < len(county):
                second = first + 1
                while second < len(county):
                    size = len(county[first]) + len(county[second])
                    before = list(county)
                    if size <= isqrt(len(tracts)) + cutoff:
                        county[first] = before[first] + before[second]
                        del county[second]
                        test = sorted_distances(groups)
                        if test <= current:
                            current, changed = test, True
                            continue
                        county[:] = before
                    second += 1
                first += 1
    return groups


@each("seed", range(40))
def test_tract_groups_are_those_of_the_printed_loops(seed):
    rng = np.random.default_rng(seed)
    leaves = int(rng.integers(6, 45))
    county = rng.integers(0, 2, leaves)
    tract = county * 20 + rng.integers(0, 6 if seed % 2 else 16, leaves)
    codes = {
        "state": ["s"] * leaves,
        "county": [f"{c}" for c in county],
        "group": [f"{t:02}" for t in tract],
        "tract": [f"{t:02}" for t in tract],
        "block": [f"{i:02}" for i in range(leaves)],
    }
    spine = Spine.from_codes(codes, levels=list(codes))
    kinds = [
        rng.integers(0, 3, leaves),
        rng.random(leaves) < 0.3,
        rng.integers(0, 2, leaves) + 2 * (tract % 3),
    ]
    entities = [[str(int(k)) for k in kind] for kind in kinds]
    cutoff = int(rng.integers(0, 3))
    found = spine.optimise(entities, fanout_cutoff=cutoff, levels=["group"])
    sets = [{i for i, k in enumerate(kind) if k == name} for kind in entities for name in sorted(set(kind))]
    counties = [[tracts[0] for tracts in groups] for groups in nested(spine)]
    assert nested(found) == greedy(counties, sets, cutoff)


def test_groups_are_joined_where_no_entity_cuts_them():
    codes = {
        "county": ["c"] * 9,
        "group": list("123456789"),
        "tract": list("123456789"),
        "block": list("abcdefghi"),
    }
    spine = Spine.from_codes(codes, levels=list(codes)).optimise([], fanout_cutoff=1, levels=["group"])
    assert [len(group) for group in nested(spine)] == [4, 4, 1]
    assert spine.codes["group"].tolist() == ["c.1", "c.2", "c.3"]


@given(spine=spines(leaves=(3, 60), depth=(3, 4)), data=st.data(), cutoff=st.integers(0, 3))
def test_groups_of_leaves_are_of_one_kind_and_no_larger_than_allowed(spine, data, cutoff):
    place = data.draw(
        st.lists(st.sampled_from(["a", "b", None]), min_size=spine.leaves, max_size=spine.leaves)
    )
    town = np.array(data.draw(st.lists(st.booleans(), min_size=spine.leaves, max_size=spine.leaves)))
    found = spine.optimise([place, town], fanout_cutoff=cutoff)
    level = found.levels[-2]
    parent = spine.units[spine.levels[-3]]
    assert np.array_equal(found.units[found.levels[-3]], parent)
    kinds: dict[tuple, list[int]] = {}
    for leaf in range(spine.leaves):
        kinds.setdefault((parent[leaf], place[leaf], town[leaf]), []).append(leaf)
    groups: dict[int, list[int]] = {}
    for leaf, group in enumerate(found.units[level].tolist()):
        groups.setdefault(group, []).append(leaf)
    assert len(groups) == len(found.codes[level]) == len(set(found.codes[level]))
    for kind, leaves in kinds.items():
        most = isqrt(int((parent == kind[0]).sum())) + cutoff
        parts = sorted(part for part in groups.values() if part[0] in leaves)
        assert sorted(itertools.chain(*parts)) == leaves
        assert len(parts) == -(-len(leaves) // most)
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


@given(codes=columns(leaves=(3, 30), depth=(3, 4)), data=st.data())
def test_the_order_of_rows_does_not_matter(codes, data):
    count = len(next(iter(codes.values())))
    order = data.draw(st.permutations(range(count)))
    place = data.draw(st.lists(st.sampled_from("ab"), min_size=count, max_size=count))
    moved = {level: [column[i] for i in order] for level, column in codes.items()}
    one = Spine.from_codes(codes, levels=list(codes)).optimise([place], fanout_cutoff=1)
    other = Spine.from_codes(moved, levels=list(codes)).optimise([[place[i] for i in order]], fanout_cutoff=1)
    level = one.levels[-2]
    assert _same(one.units[level][list(order)], other.units[level])


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two partitions are one."""
    return (
        len(set(zip(one.tolist(), other.tolist(), strict=True)))
        == len(set(one.tolist()))
        == len(set(other.tolist()))
    )


@given(spine=spines(leaves=(3, 20), depth=(3, 5)), data=st.data())
def test_a_split_puts_its_area_on_the_spine(spine, data):
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=spine.leaves, max_size=spine.leaves)))
    found = spine.split(mask)
    assert found.levels == spine.levels
    top = found.levels[1]
    for level in spine.levels[1:-1]:
        parts = set(zip(spine.units[level].tolist(), mask.tolist(), strict=True))
        assert len(found.codes[level]) == len(parts) == len(set(found.codes[level]))
        for unit in range(len(found.codes[level])):
            inside = mask[found.units[level] == unit]
            assert inside.all() or not inside.any()
    if len(spine.codes[top]) == 1 and mask.any():
        assert found.osed(mask).tolist() == [1]


@given(spine=spines(leaves=(3, 20), depth=(3, 5)), data=st.data())
def test_levels_above_a_split_stay_whole(spine, data):
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=spine.leaves, max_size=spine.leaves)))
    below = data.draw(st.sampled_from(spine.levels[:-2]))
    found, whole = spine.split(mask, below), spine.levels.index(below) + 1
    for level in spine.levels[:whole]:
        assert found.codes[level].tolist() == spine.codes[level].tolist()
        assert found.units[level].tolist() == spine.units[level].tolist()
    for level in spine.levels[whole:-1]:
        parts = set(zip(spine.units[level].tolist(), mask.tolist(), strict=True))
        assert len(found.codes[level]) == len(parts)


def test_split_and_optimise_teach():
    codes = {"tract": list("AAB"), "group": list("123"), "block": list("abc")}
    spine = Spine.from_codes(codes, levels=["tract", "group", "block"])
    flat = Spine.from_codes(codes, levels=["block"])
    mask = np.array([True, False, False])
    shared = spine.with_shares(dict.fromkeys(spine.levels, "1/4"))
    for call, told in [
        (lambda: spine.split(mask[:2]), r"3 leaves, not bool of shape \(2,\)"),
        (lambda: spine.split(np.ones(3)), "not float64"),
        (lambda: flat.split(mask), "no unit to split"),
        (lambda: spine.split(mask, "group"), "between level 'group' and the leaves"),
        (lambda: spine.split(mask, "grop"), "'grop' is not a level"),
        (lambda: shared.split(mask), "split before shares"),
        (lambda: flat.optimise([mask]), "no level of groups"),
        (lambda: shared.optimise([mask]), "optimise before shares"),
        (lambda: spine.optimise(["A", None, "B"]), r"write optimise\(\[places\]\)"),
        (lambda: spine.optimise({"A": ["a"]}), r"write optimise\(\[places\]\)"),
        (lambda: spine.optimise([mask], fanout_cutoff=-1), "fanout_cutoff is a whole number"),
        (lambda: spine.optimise([mask], levels="group"), "levels is a list"),
        (
            lambda: spine.optimise([mask], levels=["block"]),
            "those between the root and the leaves are tract, group",
        ),
        (lambda: spine.optimise([["A", "B"]]), "spine of 3 leaves"),
    ]:
        with pytest.raises(InvalidArgument, match=told):
            call()


def test_optimising_keeps_leaves_and_parents():
    rng = np.random.default_rng(3)
    spine = random_spine(rng, 60, 5)
    place = rng.integers(0, 5, 60).astype(str)
    found = spine.optimise([place], levels=[spine.levels[2], spine.levels[-2]])
    assert found.bypass(random_shares(rng, found)).shares is not None
    for level in (spine.levels[1], spine.levels[3], spine.levels[-1]):
        assert np.array_equal(found.units[level], spine.units[level])
    for above, below in itertools.pairwise(found.levels):
        assert len(set(zip(found.units[above].tolist(), found.units[below].tolist(), strict=True))) == len(
            found.codes[below]
        )


def production(parents: list, keys: list, codes: list, cutoff: int) -> set[frozenset]:
    """The 2020 code's way, literally: a group is closed when it holds more than the floor of sqrt(n) + cutoff."""
    found = []
    for parent in sorted(set(parents)):
        inside = [i for i in range(len(codes)) if parents[i] == parent]
        most = int(len(inside) ** 0.5 + cutoff)
        for key in sorted({keys[i] for i in inside}):
            current: list = []
            for i in sorted((i for i in inside if keys[i] == key), key=lambda i: codes[i]):
                current.append(i)
                if len(current) > most:
                    found.append(frozenset(current))
                    current = []
            found += [frozenset(current)] if current else []
    return set(found)


@given(spine=spines(leaves=(3, 60), depth=(3, 4)), data=st.data(), cutoff=st.integers(0, 3))
def test_groups_by_the_rule_of_production(spine, data, cutoff):
    keys = [data.draw(st.sampled_from("abc")) for _ in range(spine.leaves)]
    above, drawn = spine.levels[-3], spine.optimise([keys], cutoff, rule="production")
    wanted = production(spine.units[above].tolist(), keys, spine.codes[spine.levels[-1]].tolist(), cutoff)
    unit = drawn.units[drawn.levels[-2]]
    assert {frozenset(np.flatnonzero(unit == u).tolist()) for u in range(unit.max() + 1)} == wanted
    assert nested(drawn)


@given(spine=spines(leaves=(3, 60), depth=(4, 5)), data=st.data(), cutoff=st.integers(0, 2))
def test_other_levels_are_cut_by_the_rule_of_production(spine, data, cutoff):
    """In the order of the units' codes, whatever entities there are."""
    at = data.draw(st.integers(1, len(spine.levels) - 3))
    level, below = spine.levels[at], spine.levels[at + 1]
    places = [str(leaf % 2) for leaf in range(spine.leaves)]
    drawn = spine.optimise([places], cutoff, levels=[level], rule="production")
    units, codes = spine.units[below], spine.codes[below]
    first = [int(np.flatnonzero(units == u)[0]) for u in range(codes.size)]
    parents = spine.units[spine.levels[at - 1]][first].tolist()
    wanted = production(parents, ["same"] * codes.size, codes.astype(str).tolist(), cutoff)
    found = drawn.units[level][first]
    assert {frozenset(np.flatnonzero(found == u).tolist()) for u in range(found.max() + 1)} == wanted
