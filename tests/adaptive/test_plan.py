"""Plans: the loss is that of the dearest leaf; refusals."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.adaptive.plans import level, plan

from tabulae.errors import InvalidArgument
from tabulae.privacy import ZCDP, PureDP


@st.composite
def covered(draw):
    """Levels as (whether each of four leaves is covered, budget), the first leaf by the first level."""
    levels = draw(
        st.lists(st.tuples(st.lists(st.booleans(), min_size=4, max_size=4), st.integers(1, 9)), min_size=1)
    )
    levels[0][0][0] = True
    return levels


@given(covered(), st.sampled_from([PureDP, ZCDP]))
def test_the_loss_is_the_largest_sum_over_leaves(levels, definition):
    found = plan(
        *(
            level(f"type {i}", [0 if c else -1 for c in cover], budget=definition(Fraction(b, 7)))
            for i, (cover, b) in enumerate(levels)
            if any(cover)
        )
    )
    sums = [sum(b for cover, b in levels if cover[leaf]) for leaf in range(4)]
    assert found.loss == definition(Fraction(max(sums), 7))
    kept = [cover for cover, _ in levels if any(cover)]
    expected = {tuple(i for i, cover in enumerate(kept) if cover[leaf]) for leaf in range(4)}
    assert set(found.patterns) == expected


def test_two_countries_compose_in_parallel():
    """Levels of one country cover no leaf of the other."""
    found = plan(level("a", (0, -1), budget=ZCDP(2)), level("b", (-1, 0), budget=ZCDP(3)))
    assert found.loss == ZCDP(3)
    assert plan(level("a", (0, 0), budget=ZCDP(2)), level("b", (-1, 0), budget=ZCDP(3))).loss == ZCDP(5)


@pytest.mark.parametrize(
    ("levels", "word"),
    [
        ((), "at least one level"),
        (({"budget": ZCDP(1)}, {"budget": PureDP(1)}), "kind of budget"),
        (({}, {"neighbours": "replace"}), "neighbours"),
        (({}, {"rows_per_unit": 2}), "rows per unit"),
        (({}, {"of_leaf": (0, 0)}), "geography"),
    ],
)
def test_levels_that_do_not_belong_together_are_refused(levels, word):
    with pytest.raises(InvalidArgument, match=word):
        plan(*(level(str(i), **changes) for i, changes in enumerate(levels)))


def test_a_level_named_twice_is_refused():
    with pytest.raises(InvalidArgument, match="twice"):
        plan(level(), level())


def test_a_plan_that_counts_nobody_is_refused():
    empty = level("none", (0,))
    nobody = plan(
        level("none", (-1,), regions=type(empty.regions)("none", ("0",), empty.regions.of_leaf - 1))
    )
    with pytest.raises(InvalidArgument, match="nothing would be counted"):
        _ = nobody.loss


def test_neighbours_are_those_of_the_levels():
    assert plan(level(neighbours="replace")).neighbours == "replace"
