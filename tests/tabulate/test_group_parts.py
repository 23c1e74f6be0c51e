"""The parts of counting groups: areas, kinds, packed codes and profiles, each by its definition."""

from __future__ import annotations

import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabulae.domain.groups import CodeFamily, Group, GroupMap, Ladder, Regions, assign_groups
from tabulae.errors import InvalidArgument, Unsupported
from tabulae.privacy import ZCDP
from tabulae.products.groups import engine as group_areas
from tabulae.products.groups.count import GroupChunk
from tabulae.products.groups.engine import PackedCodes, Profiles, areas_of, kinds_of
from tabulae.products.groups.levels import AdaptivePlan, PopulationLevel

from .group_oracle import ladder, plans

LEAVES = 7
NO_GROUPS = GroupMap((CodeFamily("race", ("10",)),), (), [])


def plan_of(regions: list[Regions], ladders: list[Ladder]) -> AdaptivePlan:
    return AdaptivePlan(
        tuple(
            PopulationLevel(
                r, str(i), NO_GROUPS.at("1", r.name), of, tuple(range(len(of.rungs))), ZCDP(1), Fraction(1, 2)
            )
            for i, (r, of) in enumerate(zip(regions, ladders, strict=True))
        )
    )


@pytest.mark.parametrize("most_keys", [2**62, 2])
@given(plan=plans(LEAVES))
def test_leaves_are_in_one_area_if_no_level_tells_them_apart(plan: AdaptivePlan, most_keys: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group_areas, "_MOST_KEYS", most_keys)
        areas = areas_of(plan)
    regions = np.stack([of.regions.of_leaf for of in plan.levels])
    for i in range(LEAVES):
        for j in range(LEAVES):
            assert (areas.of_leaf[i] == areas.of_leaf[j]) == (regions[:, i] == regions[:, j]).all()
    assert (np.stack(areas.regions)[:, areas.of_leaf] == regions).all()
    first = [int(np.flatnonzero(areas.of_leaf == area)[0]) for area in range(areas.size)]
    assert first == sorted(first)


def test_cells_are_of_one_kind_if_no_ladder_tells_them_apart() -> None:
    ladders = [ladder(cut=1), ladder(cut=3), Ladder.of({"sex": 2, "age": 4}, []), ladder(cut=1)]
    kinds = kinds_of(plan_of([Regions(f"r{i}", ("a",), np.zeros(2, int)) for i in range(4)], ladders))
    assert kinds.of_cell.max() == 7
    for of, classes in zip(ladders, kinds.classes, strict=True):
        assert (classes[kinds.of_cell] == of.of_cell).all()


def test_with_one_ladder_kinds_are_its_classes() -> None:
    of = ladder(ages=9, cut=4)
    kinds = kinds_of(plan_of([Regions(f"r{i}", ("a",), np.zeros(2, int)) for i in range(2)], [of, of]))
    assert (kinds.of_cell == of.of_cell).all()


def test_ladders_are_over_the_same_attributes() -> None:
    regions = [Regions(f"r{i}", ("a",), np.zeros(2, int)) for i in range(2)]
    with pytest.raises(InvalidArgument, match="over the same attributes"):
        kinds_of(plan_of(regions, [ladder(), ladder(ages=5)]))


@given(
    sizes=st.lists(st.integers(1, 5000), min_size=1, max_size=4),
    columns=st.lists(st.integers(0, 3), max_size=14),
    seed=st.integers(0, 2**32 - 1),
)
def test_packed_codes_come_back(sizes: list[int], columns: list[int], seed: int) -> None:
    families = [CodeFamily(f"f{i}", tuple(map(str, range(size))), most=20) for i, size in enumerate(sizes)]
    packed = PackedCodes(tuple(families[i % len(families)] for i in columns))
    rng = np.random.default_rng(seed)
    carried = {
        family.name: rng.integers(-1, len(family.codes), (5, packed.columns.count(family)))
        for family in families
        if family in packed.columns
    }
    words = packed.packed(carried)
    assert len(words) == packed.words
    assert all((word >= 0).all() and (word < 2**62).all() for word in words)
    back = packed.unpacked(words)
    assert back.keys() == carried.keys()
    assert all((back[name] == carried[name]).all() for name in carried)


@given(data=st.data())
def test_a_profile_belongs_to_the_same_groups(data: st.DataObject) -> None:
    family = CodeFamily("f", ("a", "b", "c", "d", "e"), most=4)
    groups = tuple(Group(f"g{i}", "12"[i % 2], "f", ("alone", "any")[i // 2]) for i in range(4))
    members = data.draw(
        st.sets(st.tuples(st.sampled_from([g.code for g in groups]), st.sampled_from(family.codes)))
    )
    of = GroupMap((family,), groups, sorted(members))
    selections = [of.at("1", "x"), of.at("2", "x")]
    rows = data.draw(st.lists(st.lists(st.integers(-1, 4), min_size=4, max_size=4), min_size=1, max_size=9))
    carried = {"f": np.array(rows)}
    profile = Profiles.of(selections).profile(carried)
    assert (np.diff(profile["f"], axis=1) <= 0).all()
    for selection in selections:
        for one, other in zip(
            assign_groups(selection, carried), assign_groups(selection, profile), strict=True
        ):
            assert (one == other).all()


def test_counts_do_not_travel() -> None:
    people = 1234567890123456789  # longer than an address that a repr may hold
    chunk = GroupChunk(0, 1, 1, 1, *(np.array([i]) for i in (0, 0, people)))
    assert str(people) not in repr(chunk)
    with pytest.raises(Unsupported, match="not pickled"):
        pickle.dumps(chunk)
