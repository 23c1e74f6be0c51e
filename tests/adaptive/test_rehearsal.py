"""What a plan will do: against the laws summed out, and against draws."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.adaptive.plans import level, touching

from tabulae.domain.groups import Ladder
from tabulae.errors import InvalidArgument
from tabulae.privacy import ZCDP, DiscreteGaussian, DiscreteLaplace, Insecure, PureDP
from tabulae.products.groups.plan import expected_rungs, reach, rehearse

LAWS = st.one_of(
    st.builds(DiscreteGaussian, st.fractions("1/10", 300)),
    st.builds(DiscreteLaplace, st.fractions("1/5", 20)),
)


def summed(law, low, high):
    """The mass function from low to high, normalised over a much wider range."""
    k = np.arange(-1200, 1201)
    parameter = float(law.parameter)
    log = -k * k / (2 * parameter) if isinstance(law, DiscreteGaussian) else -np.abs(k) / parameter
    mass = np.exp(log)
    return (mass / mass.sum())[low + 1200 : high + 1200]


@settings(max_examples=25)
@given(LAWS, st.lists(st.integers(-80, 80), max_size=8))
def test_reach_is_the_sum_of_the_law(law, least):
    found = reach(law, np.array(least, np.int64))
    assert found == pytest.approx([summed(law, m, 1200).sum() for m in least], abs=1e-11)


@pytest.mark.parametrize("law", [DiscreteGaussian(10**8), DiscreteLaplace(10**6)])
def test_reach_far_out_is_nothing_or_everything(law):
    assert reach(law, np.array([-(10**9), 10**9])).tolist() == [1.0, 0.0]


@given(st.sampled_from([PureDP, ZCDP]), st.lists(st.integers(0, 200), min_size=1, max_size=5))
@settings(max_examples=20)
def test_rungs_are_the_intervals_of_the_noisy_count(definition, sizes):
    area = level(budget=definition(2), thresholds=(20, 20))
    found = expected_rungs(area, np.array(sizes))
    assert found.sum(axis=1) == pytest.approx(1)
    assert (found >= 0).all()
    for row, size in zip(found, sizes, strict=True):
        for rung, chance in enumerate(row):
            low, high = area.interval_of(rung)
            mass = summed(
                area.first, -1200 if low is None else low - size, 1200 if high is None else high - size
            )
            assert chance == pytest.approx(mass.sum(), abs=1e-11)


def test_rungs_are_those_of_draws():
    """Twenty thousand draws a size; each of six frequencies within six deviations: false alarms below 2e-8."""
    area, n = level(budget=ZCDP(1), thresholds=(20, 35)), 20_000
    for size in (18, 30):
        rungs = area.choose(size + area.first.sample(n, Insecure(7)))
        frequency = np.bincount(rungs, minlength=3) / n
        chance = expected_rungs(area, np.array([size]))[0]
        assert (np.abs(frequency - chance) <= 6 * np.sqrt(chance * (1 - chance) / n) + 1 / n).all()


def test_decades_of_given_sizes():
    area = level(budget=ZCDP(1), thresholds=(20, 35))
    sizes = np.array([0, 0, 1, 9, 10, 30, 99, 100])
    rows = rehearse(area, sizes)
    assert [(row.low, row.high, row.groups) for row in rows] == [
        (0, 0, 2),
        (1, 9, 2),
        (10, 99, 3),
        (100, 999, 1),
    ]
    assert rows[2].shares == pytest.approx(expected_rungs(area, sizes[4:7]).mean(axis=0))
    assert all(row.published is None and row.total_only_published is None for row in rows)
    assert rehearse(area, np.zeros(0, np.int64)) == []


def test_decades_without_sizes():
    rows = rehearse(level())
    assert [row.low for row in rows] == [10**d for d in range(8)]
    assert all(row.groups == 0 and sum(row.shares) == pytest.approx(1) for row in rows)
    assert rows[0].shares[0] > rows[1].shares[0] > rows[3].shares[0]


def test_published_totals_are_those_above_the_threshold():
    area = level(groups=touching(2, 1), budget=ZCDP(1), thresholds=(10**6, 10**6))
    sizes = np.array([12, 14])
    (row,) = rehearse(area, sizes, suppress=(9, 6))
    expected = np.mean([summed(area.second, 10 - int(s), 1200).sum() for s in sizes])
    assert row.published == pytest.approx(expected, abs=1e-9)
    expected = np.mean([summed(area.whole, 7 - int(s), 1200).sum() for s in sizes])
    assert row.total_only_published == pytest.approx(expected, abs=1e-9)


def test_published_is_a_share_of_those_that_stay_totals():
    area = level(budget=ZCDP(1), thresholds=(10, 10), stage_one=Fraction(1, 2))
    (row,) = rehearse(area, np.array([11, 90]), suppress=(0, 0))
    assert row.published == pytest.approx(summed(area.second, 1 - 11, 1200).sum(), abs=1e-9), (
        "none of 90 stays"
    )


def test_a_plan_without_tables_keeps_every_total():
    area = level(ladder=Ladder.of({}, []), thresholds=())
    assert expected_rungs(area, np.array([5, 500])).tolist() == [[1.0], [1.0]]


def test_negative_sizes_are_refused():
    with pytest.raises(InvalidArgument, match="0 or more"):
        rehearse(level(), np.array([-1]))
