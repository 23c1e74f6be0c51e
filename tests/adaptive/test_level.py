"""One level: the noise that its budget buys, the choice of tables, refusals."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.adaptive.plans import AGES, either, level, touching
from tests.each import each

from tabulae.domain.stability import group_stability
from tabulae.errors import InvalidArgument
from tabulae.privacy import ZCDP, ApproxDP, DiscreteGaussian, DiscreteLaplace, PureDP

AMOUNTS = st.fractions("1/100", 10)


@given(
    st.sampled_from([PureDP, ZCDP]),
    AMOUNTS,
    st.fractions("1/100", "99/100"),
    st.integers(1, 5),
    st.integers(1, 3),
    st.sampled_from(["add-remove", "replace"]),
)
def test_noise_costs_what_the_budget_has(definition, amount, stage_one, stability, rows, neighbours):
    """A unit with all its rows in one group moves s counts by k: the losses of both stages sum to the budget."""
    area = level(
        groups=touching(stability),
        budget=definition(amount),
        stage_one=stage_one,
        rows_per_unit=rows,
        neighbours=neighbours,
    )
    counts = stability * (2 if neighbours == "replace" else 1)
    for laws in ((area.first, area.second), (area.whole,)):
        if definition is PureDP:
            assert all(isinstance(law, DiscreteLaplace) for law in laws)
            spent = sum(Fraction(counts * rows) / law.parameter for law in laws)
        else:
            assert all(isinstance(law, DiscreteGaussian) for law in laws)
            spent = sum(Fraction(counts * rows**2) / (2 * law.parameter) for law in laws)
        assert spent == amount
    assert area.first == area.law(stage_one)


def test_the_published_variance():
    """Nine groups at rho = 2.134: variance 9 / (2 m rho), not 81 / (2 m rho)."""
    area = level(groups=touching(9), budget=ZCDP("2.134"))
    assert area.second.parameter == Fraction(9) / (2 * Fraction("2.134") * Fraction(9, 10))


@given(
    st.lists(st.integers(-5, 60), min_size=1, max_size=20),
    st.lists(st.integers(0, 50), min_size=2, max_size=2),
)
def test_the_rung_is_the_number_of_thresholds_reached(first, thresholds):
    area = level(thresholds=tuple(sorted(thresholds)))
    rungs = area.choose(np.array(first))
    assert rungs.dtype == np.int8
    assert rungs.tolist() == [sum(t <= y for t in area.thresholds) for y in first]
    for y, rung in zip(first, rungs.tolist(), strict=True):
        low, high = area.interval_of(rung)
        assert low is None or low <= y
        assert high is None or y < high


def test_stability_is_the_proven_one_unless_more_is_asked_for():
    assert level().groups_of_a_record == level().proven.value == group_stability(touching(3)).value == 3
    assert level(stability=5).groups_of_a_record == 5
    assert level(groups=either(2)).groups_of_a_record == 2
    assert level(groups=touching(0)).groups_of_a_record == 1, (
        "noise has a scale where nobody belongs to any group"
    )


@each(
    ("changes", "word"),
    [
        ({"stability": 2}, "is not a bound, .* 3 of its groups"),
        ({"neighbours": "replace-within-invariants"}, "add-remove"),
        ({"neighbours": "both"}, "neighbours"),
        ({"budget": ApproxDP(1, "1e-6")}, "PureDP or ZCDP"),
        ({"stage_one": Fraction(0)}, "between 0 and 1"),
        ({"stage_one": Fraction(1)}, "between 0 and 1"),
        ({"thresholds": (1,)}, "1 thresholds for 2 tables"),
        ({"thresholds": (1, 2, 3)}, "3 thresholds for 2 tables"),
        ({"thresholds": (2, 1)}, "must not fall"),
        ({"rows_per_unit": 0}, "1 or more"),
    ],
)
def test_what_does_not_fit_is_refused(changes, word):
    with pytest.raises(InvalidArgument, match=word):
        level(**changes)


def test_equal_thresholds_skip_a_table():
    area = level(thresholds=(7, 7))
    assert area.choose(np.array([6, 7])).tolist() == [0, 2]
    assert len(area.ladder.rungs) == len(AGES.rungs)
