"""Records to groups at once, against the definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.domain.test_group_stability import selections
from tests.domain.toy_maps import REAL, TOY, needs_maps, read_map
from tests.membership import groups_of

from tabulae.domain.groups import CodeFamily, Group, GroupMap, assign_groups
from tabulae.errors import InvalidArgument


def by_definition(selection, carried):
    """Pairs of the record and the group, from ``GroupSelection.of``."""
    position = {group.code: j for j, group in enumerate(selection.groups)}
    codes = {family.name: family.codes for family in selection.families}
    pairs = []
    for i in range(max((len(rows) for rows in carried.values()), default=0)):
        record = {name: [codes[name][c] for c in rows[i] if c >= 0] for name, rows in carried.items()}
        pairs += [(i, j) for j in sorted(position[code] for code in groups_of(selection, record))]
    return pairs


@given(selections(), st.integers(0, 12), st.integers(0, 2**32 - 1), st.integers(1, 5))
def test_it_is_the_definition(selection, records, seed, chunk):
    rng = np.random.default_rng(seed)
    carried = {f.name: rng.integers(-1, len(f.codes), (records, f.most)) for f in selection.families}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tabulae.domain.groups._RECORDS", chunk)
        record, group = assign_groups(selection, carried)
    assert record.dtype == group.dtype == np.int64
    assert list(zip(record.tolist(), group.tolist(), strict=True)) == by_definition(selection, carried)


@needs_maps
@pytest.mark.parametrize(("folder", "most"), [(TOY, 3), (REAL, 8)])
def test_the_published_maps(folder, most):
    groups, rng = read_map(folder, most), np.random.default_rng(1)
    size = len(groups.families[0].codes)
    race = rng.integers(0, size, (60, most))
    race[np.arange(most) >= rng.integers(1, most + 1, (60, 1))] = -1
    carried = {"race": race, "ethnicity": rng.integers(0, size, (60, 1))}
    for level in ("1", "2"):
        for region in ("nation", "county"):
            selection = groups.at(level, region)
            found = [part.tolist() for part in assign_groups(selection, carried)]
            assert list(zip(*found, strict=True)) == by_definition(selection, carried)


def test_a_record_without_a_code_belongs_to_nothing():
    selection = simple()
    for carried in ({}, {"race": np.full((3, 2), -1)}, {"race": np.zeros((0, 2), np.int64)}):
        assert [part.tolist() for part in assign_groups(selection, carried)] == [[], []]


def simple():
    race = CodeFamily("race", ("1", "2"), most=2)
    return GroupMap((race, CodeFamily("sex", ("1",))), (Group("a", "1", "race", "any"),), [("a", "1")]).at(
        "1", "state"
    )


@pytest.mark.parametrize(
    ("carried", "word"),
    [
        ({"age": np.zeros((1, 1), np.int64)}, "not families"),
        ({"race": np.array([[2, 0]])}, "positions"),
        ({"race": np.array([[-2, 0]])}, "positions"),
        ({"race": np.array([0, 1])}, "shape"),
        ({"race": np.array([[0.0]])}, "integers"),
        ({"race": np.zeros((2, 2), np.int64), "sex": np.zeros((1, 1), np.int64)}, "every record"),
    ],
)
def test_what_does_not_fit_is_refused(carried, word):
    with pytest.raises(InvalidArgument, match=word):
        assign_groups(simple(), carried)
