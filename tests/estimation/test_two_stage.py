"""Estimates from two stages: moments given the rung, by sums over all outcomes."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from tests.each import each
from tests.estimation.groups_of_one_level import Oracle, level

from tabulae.errors import InvalidArgument
from tabulae.privacy import ZCDP, Insecure, PureDP
from tabulae.products.groups.estimate import cell_estimates, total_estimates
from tabulae.products.groups.levels import TOTAL_ONLY

NATION, COUNTY = (471, 971, 6971), (971, 4971, 19971)
GAUSSIAN = [ZCDP(Fraction("2.134")), ZCDP(Fraction("0.159")), ZCDP(Fraction("0.534")), ZCDP(Fraction("4.9"))]
LAPLACE = [PureDP(Fraction("5.4")), PureDP(12), PureDP(20)]


def _moments(oracle: Oracle, total: int) -> tuple[float, float, float]:
    """Bias, variance and mean estimated variance of the estimate, given the rung."""
    y, s, chance = oracle.outcomes(total)
    got = total_estimates(oracle.level, oracle.rung, y, s, 0.95)
    bias = chance @ (got.estimate - total)
    return bias, chance @ (got.estimate - total - bias) ** 2, chance @ got.variance


def _near(oracle: Oracle, steps: tuple[float, ...]) -> list[int]:
    """True totals at these distances, in deviations of stage one, from each end of the rung's interval."""
    ends = [end for end in oracle.level.interval_of(oracle.rung) if end is not None]
    return [round(end + step * oracle.first_sd) for end in ends for step in steps]


@each("budget", GAUSSIAN, ids=str)
@each("rung", [0, 1, 2, 3])
def test_gaussian_estimates_are_unbiased_given_the_rung_wherever_the_total_is(
    budget: ZCDP, rung: int
) -> None:
    oracle = Oracle(level(budget, NATION), rung)
    for total in _near(oracle, (-5, -2, -0.7, 0, 0.4, 1.3, 3, 6)):
        bias, variance, estimated = _moments(oracle, total)
        assert abs(bias) < 1e-6 * oracle.plain_sd
        assert estimated == pytest.approx(variance, rel=1e-5)
        assert variance < oracle.plain_sd**2 * (1 + 1e-6)


@pytest.mark.parametrize("width", [0, 1, 2, 3, 10, 40, 200])
def test_a_narrow_rung_is_unbiased_too(width: int) -> None:
    oracle = Oracle(level(ZCDP(Fraction("0.534")), (100, 100 + width, 5000)), 1)
    for total in [] if width == 0 else (60, 90, 100, 100 + width // 2, 100 + width, 150 + width):
        bias, variance, estimated = _moments(oracle, total)
        assert abs(bias) < 1e-6 * oracle.plain_sd
        assert estimated == pytest.approx(variance, rel=1e-5)


@each(("budget", "stage_one"), [("2", "1/2"), ("0.2", "1/2"), ("0.3", "3/4"), ("10", "1/10")])
@each("rung", [0, 1, 3])
def test_where_integers_are_coarse_the_bias_stays_below_3_percent(
    budget: str, stage_one: str, rung: int
) -> None:
    oracle = Oracle(level(ZCDP(Fraction(budget)), NATION, stage_one), rung)
    for total in _near(oracle, (-4, -1, 0, 1, 3)):
        bias, variance, _ = _moments(oracle, total)
        assert abs(bias) < 0.03 * oracle.plain_sd
        assert variance < (1.001 * oracle.plain_sd) ** 2


@pytest.mark.long
@each("budget", LAPLACE, ids=str)
@each("rung", [0, 1, 2, 3])
def test_laplace_estimates_have_a_bias_below_half_a_percent_of_the_plain_deviation(
    budget: PureDP, rung: int
) -> None:
    oracle = Oracle(level(budget, NATION), rung)
    for total in _near(oracle, (-6, -2, -0.7, 0, 0.4, 1.3, 3, 8)):
        bias, variance, estimated = _moments(oracle, total)
        assert abs(bias) < 0.005 * oracle.plain_sd
        assert variance < (1.02 * oracle.plain_sd) ** 2
        assert estimated == pytest.approx(variance, rel=0.03)


@pytest.mark.parametrize(("rung", "gain"), [(1, 1.37), (2, 1.73), (3, 2.47)])
def test_far_from_thresholds_the_deviation_falls_by_what_combining_gives(rung: int, gain: float) -> None:
    released = level(ZCDP(Fraction("0.159")), COUNTY)
    total = {1: 2500, 2: 10_000, 3: 10**6}[rung]
    got = total_estimates(released, rung, np.array([total]), np.array([total + 7]), 0.95)
    plain = Oracle(released, rung).plain_sd
    assert plain / got.variance[0] ** 0.5 == pytest.approx(gain, abs=0.006)


@given(
    rung=st.sampled_from([1, 2, 3]),
    y=st.integers(-(10**6), 3 * 10**8),
    seed=st.integers(0, 2**32 - 1),
    budget=st.sampled_from([*GAUSSIAN, *LAPLACE]),
)
def test_cells_add_up_to_the_total_and_lie_in_their_intervals(
    rung: int, y: int, seed: int, budget: ZCDP | PureDP
) -> None:
    released = level(budget, NATION)
    cells = np.random.default_rng(seed).integers(-50, 10**6, (5, released.ladder.rungs[rung - 1].cells))
    first = np.full(5, y)
    got = cell_estimates(released, rung, first, cells, 0.9)
    total = total_estimates(released, rung, first, cells.sum(axis=1), 0.9)
    np.testing.assert_allclose(got.estimate.sum(axis=1), total.estimate, rtol=1e-12, atol=1e-9)
    assert np.all(got.variance > 0)
    assert np.all(got.variance <= released.second.variance_of_law * 1.01)
    margin = released.second.margin(0.9)
    assert np.all(got.ci_low <= np.minimum(cells - margin, got.estimate))
    assert np.all(got.ci_high >= np.maximum(cells + margin, got.estimate))


def test_the_variance_of_a_cell_is_what_outcomes_give() -> None:
    """Var(c_j + (T - S)/m): with S and T from all outcomes, and Var(c_j | S) from symmetry."""
    oracle = Oracle(level(ZCDP(Fraction("0.534")), NATION), 1)
    m, v2 = oracle.cells, oracle.level.second.variance_of_law
    for total in (460, 480, 500):
        y, s, chance = oracle.outcomes(total)
        got = total_estimates(oracle.level, 1, y, s, 0.95)
        shared = chance @ (got.estimate - total) ** 2
        cells = np.zeros((y.size, m), np.int64)
        cells[:, 0] = s
        published = chance @ cell_estimates(oracle.level, 1, y, cells, 0.95).variance[:, 0]
        assert published == pytest.approx(v2 - (m * v2 - shared) / m**2, rel=1e-5)


def test_one_count_at_the_whole_budget() -> None:
    released = level(ZCDP(Fraction("0.159")), NATION)
    got = total_estimates(released, TOTAL_ONLY, np.zeros(2, np.int64), np.array([7, -3]), 0.95)
    margin = released.whole.margin(0.95)
    assert got.estimate.tolist() == [7, -3]
    assert got.variance.tolist() == [released.whole.variance_of_law] * 2
    assert (got.ci_high - got.estimate).tolist() == [margin, margin] == (got.estimate - got.ci_low).tolist()


def test_simulated_estimates_are_unbiased() -> None:
    """400,000 groups at the threshold, with the samplers' noise; |mean| < 5 standard errors: 6e-7 false alarms."""
    released, total = level(ZCDP(Fraction("0.159")), COUNTY), 4971
    source = Insecure(11)
    y = total + released.first.sample(400_000, source)
    cells = total // 18 + released.second.sample((400_000, 18), source)
    cells[:, 0] += total - 18 * (total // 18)
    kept = released.choose(y) == 2
    got = cell_estimates(released, 2, y[kept], cells[kept], 0.95)
    error = got.estimate.sum(axis=1) - total
    assert abs(error.mean()) < 5 * error.std() / kept.sum() ** 0.5
    first = got.estimate[:, 0] - (total - 17 * (total // 18))
    assert abs(first.mean()) < 5 * first.std() / kept.sum() ** 0.5
    spread = first.var() / got.variance[:, 0].mean()
    assert abs(spread - 1) < 5 * (2 / kept.sum()) ** 0.5 * 1.05
    assert stats.kurtosis(first) < 0.1


BUDGETS = [ZCDP(Fraction(1, 10**6)), ZCDP(10**6), PureDP(Fraction(1, 10**6)), PureDP(10**6)]
THRESHOLDS = [NATION, (-3, 0, 2), (), (5, 5, 6), (0, 0, 0)]


@pytest.mark.long
@each("budget, thresholds", itertools.product(BUDGETS, THRESHOLDS))
def test_no_input_gives_anything_but_finite_numbers(
    budget: ZCDP | PureDP, thresholds: tuple[int, ...]
) -> None:
    released = level(budget, thresholds)
    counts = np.array([0, 1, -1, 5, -(10**4), 10**6, 3 * 10**8, -(3 * 10**8)])
    y, s = (part.ravel() for part in np.meshgrid(counts, counts))
    for rung in range(-1, len(thresholds) + 1):
        for confidence in (0.9, 1 - 1e-9):
            got = total_estimates(released, rung, y, s, confidence)
            for part in (got.estimate, got.variance, got.ci_low, got.ci_high):
                assert np.isfinite(part).all()
            assert (got.variance > 0).all()
            assert ((got.ci_low <= got.estimate) & (got.estimate <= got.ci_high)).all()


@pytest.mark.parametrize("budget", [ZCDP(Fraction("0.159")), PureDP(Fraction("5.4"))], ids=str)
def test_the_estimate_never_jumps(budget: ZCDP | PureDP) -> None:
    """Tables end where nothing changes: a step of y moves the estimate by a few steps at most, at any distance."""
    released = level(budget, NATION)
    y = np.arange(471, 971)
    for s in (-(10**5), -2000, 0, 400, 471, 500, 700, 1000, 1500, 5000, 10**6):
        got = total_estimates(released, 1, y, np.full_like(y, s), 0.95)
        assert np.abs(np.diff(got.estimate)).max() < 3
        assert np.abs(np.diff(got.variance) / got.variance[1:]).max() < 0.6


def test_arguments_that_do_not_fit_are_refused() -> None:
    released = level(ZCDP(1), NATION)
    counts = np.zeros(3, np.int64)
    with pytest.raises(InvalidArgument, match="no rung 4"):
        total_estimates(released, 4, counts, counts, 0.95)
    with pytest.raises(InvalidArgument, match="one count of each stage"):
        total_estimates(released, 1, counts[:2], counts, 0.95)
    with pytest.raises(InvalidArgument, match="8 cells"):
        cell_estimates(released, 1, counts, np.zeros((3, 9), np.int64), 0.95)
    with pytest.raises(InvalidArgument, match="no rung -1"):
        cell_estimates(released, TOTAL_ONLY, counts, np.zeros((3, 1), np.int64), 0.95)
    for confidence in (0.0, 1.0, float("nan")):
        with pytest.raises(InvalidArgument, match="between 0 and 1"):
            total_estimates(released, 1, counts, counts, confidence)
