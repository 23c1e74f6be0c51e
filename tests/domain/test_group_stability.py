"""Stability: against every record there is, on the published maps, and on maps built to be hard."""

import random
import time
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.domain.toy_maps import REAL, TOY, needs_maps, read_map
from tests.membership import groups_of

from tabulae.domain.groups import CodeFamily, Group, GroupMap
from tabulae.domain.stability import group_stability, most_covered


@st.composite
def selections(draw):
    families, groups, members = [], [], []
    for name in ("f", "g")[: draw(st.integers(1, 2))]:
        codes = tuple(f"{name}{i}" for i in range(draw(st.integers(1, 6))))
        families.append(CodeFamily(name, codes, draw(st.integers(1, 4))))
        for i in range(draw(st.integers(0, 7))):
            group = Group(f"{name}-{i}", "1", name, draw(st.sampled_from(["alone", "any"])))
            groups.append(group)
            members += [(group.code, code) for code in draw(st.sets(st.sampled_from(codes)))]
    return GroupMap(tuple(families), tuple(groups), members).at("1", "state")


def brute_force(selection):
    value = 0
    for family in selection.families:
        sets = [c for k in range(1, family.most + 1) for c in combinations(family.codes, k)]
        value += max(len(groups_of(selection, {family.name: codes})) for codes in sets)
    return value


@given(selections())
def test_it_is_the_most_over_all_records(selection):
    found = group_stability(selection)
    assert found.is_exact
    assert found.value == brute_force(selection) == len(groups_of(selection, found.witness))
    for family in selection.families:
        assert len(found.witness.get(family.name, ())) <= family.most


@given(selections(), st.integers(0, 30), st.integers(0, 40))
def test_a_search_cut_short_still_proves_a_bound(selection, steps, closed_sets):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tabulae.domain.stability._STEPS", steps)
        patch.setattr("tabulae.domain.stability._CLOSED_SETS", closed_sets)
        patch.setattr("tabulae.domain.stability._PAIRS", steps)
        found = group_stability(selection)
    truth = brute_force(selection)
    assert found.value >= truth
    assert not found.is_exact or (found.value == truth == len(groups_of(selection, found.witness)))


@given(st.lists(st.integers(0, 255), max_size=9), st.integers(0, 5), st.integers(0, 9), st.integers(0, 60))
def test_coverage_is_the_largest_union(sets, most, floor, limit):
    def union(chosen):
        bits = 0
        for i in chosen:
            bits |= sets[i]
        return bits.bit_count()

    truth = max(union(c) for k in range(min(most, len(sets)) + 1) for c in combinations(range(len(sets)), k))
    found = most_covered(sets, most, floor)
    assert found.bound == found.value == max(truth, floor)
    assert union(found.chosen) == (truth if truth > floor else 0)
    assert len(found.chosen) <= most
    cut = most_covered(sets, most, floor, limit)
    assert cut.bound >= max(truth, floor) >= cut.value


@needs_maps
@pytest.mark.parametrize("region", ["nation", "county"])
@pytest.mark.parametrize("level", ["1", "2"])
def test_the_published_maps(level, region):
    for folder, most, value in ((REAL, 8, 9), (TOY, 3, 4)):
        selection = read_map(folder, most).at(level, region)
        assert len(selection) > 0
        found = group_stability(selection)
        assert (found.value, found.is_exact) == (value, True)
        assert len(groups_of(selection, found.witness)) == value


@needs_maps
def test_the_toy_code_that_is_alone_without_being_any():
    """Code 1340 is a member of 2001, European alone, but not of 1130, European alone or in any combination."""
    selection = read_map(TOY, 3).at("1", "nation")
    assert groups_of(selection, {"race": ["1340"]}) == {"2001"}
    assert groups_of(selection, {"race": ["1340", "1010"]}) == {"2001", "1130"}


def test_two_codes_that_share_an_alone_group_but_no_other():
    """One record belongs to three groups where production's formula says two."""
    race = CodeFamily("race", ("1", "2"), most=2)
    groups = (
        Group("a", "1", "race", "alone"),
        Group("b", "1", "race", "any"),
        Group("c", "1", "race", "any"),
    )
    selection = GroupMap((race,), groups, [("a", "1"), ("a", "2"), ("b", "1"), ("c", "2")]).at("1", "state")
    assert group_stability(selection).value == 3


@pytest.mark.parametrize("codes", [(), ("1",)])
def test_a_map_without_groups_or_members(codes):
    race = CodeFamily("race", codes, most=2)
    for groups in ((), (Group("a", "1", "race", "any"),)):
        found = group_stability(GroupMap((race,), groups, []).at("1", "state"))
        assert (found.value, found.is_exact) == (0, True)


@pytest.mark.parametrize(
    ("codes", "alone", "anyhow", "most", "share"),
    [(1755, 1500, 1500, 8, 0.002), (1000, 300, 300, 8, 0.1), (300, 40, 40, 300, 0.3), (60, 60, 0, 5, 0.9)],
)
def test_hard_maps_end_in_time_with_a_bound(codes, alone, anyhow, most, share):
    rng = random.Random(1)
    family = CodeFamily("f", tuple(map(str, range(codes))), most)
    groups = [Group(f"a{i}", "1", "f", "alone") for i in range(alone)]
    groups += [Group(f"b{i}", "1", "f", "any") for i in range(anyhow)]
    members = [(group.code, code) for group in groups for code in family.codes if rng.random() < share]
    selection = GroupMap((family,), tuple(groups), members).at("1", "state")
    start = time.process_time()
    found = group_stability(selection)
    assert time.process_time() - start < 5
    records = [rng.sample(family.codes, rng.randint(1, most)) for _ in range(20)]
    assert all(found.value >= len(groups_of(selection, {"f": record})) for record in records)
    assert not found.is_exact or len(groups_of(selection, found.witness)) == found.value
