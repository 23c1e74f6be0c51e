"""Illinois under its exact total: small runs of the benchmark, and what its recorded run says."""

import csv

import numpy as np
import pytest

from benchmarks import illinois

RUNS = 300
PAPER_SD = 14.66
needs_counts = pytest.mark.skipif(
    not illinois.DATA.exists(), reason="needs ../shared/data/il_2010_county.csv, the real counts"
)


@pytest.fixture(scope="module")
def errors():
    return illinois.releases(RUNS)


@pytest.mark.long
@needs_counts
def test_the_projected_release_has_the_error_of_theory(errors):
    """Variance over 300 x 102 errors within 5 standard errors: a false alarm once in 10^6 seeds; this one is fixed.

    A Laplace variable's square has variance 5 of its variance squared. Scales 0.9 and 1.1 are told apart.
    """
    ratio = (errors["projected"] ** 2).mean() / illinois.theory("projected") ** 2
    tolerance = 5 * (5 / errors["projected"].size) ** 0.5
    assert abs(ratio - 1) < tolerance
    assert not any(abs(ratio * factor**2 - 1) < tolerance for factor in (0.9, 1.1))
    assert abs(illinois.theory("projected") / PAPER_SD - 1) < 0.001


@pytest.mark.long
@needs_counts
def test_errors_leave_the_total_alone(errors):
    assert not errors["projected"].sum(axis=1).any(), "exactly: the answers are multiples of a power of 2"
    assert not errors["cells"].sum(axis=1).any()
    assert np.abs(errors["non-negative"].sum(axis=1)).max() < 1e-5


@pytest.mark.long
@needs_counts
def test_the_estimator_finds_the_same_non_negative_counts(errors):
    """It aims for 1 % of a standard error, 58.6 persons, from the optimum."""
    assert illinois.estimator_gap(errors["non-negative"][:3]) < 0.6


@pytest.mark.long
@needs_counts
def test_only_non_negativity_brings_a_trend(errors):
    """Five standard errors of a mean of 300 slopes: a false alarm once in 10^6 seeds."""
    population, _ = illinois.read()
    for release, trend in (("projected", False), ("cells", False), ("non-negative", True)):
        slope, _ = illinois.slopes(errors[release], population)
        assert (slope.mean() < -5 * slope.std() / RUNS**0.5) is np.bool_(trend)


def test_slopes_are_those_of_least_squares():
    from scipy import stats

    draw = np.random.default_rng(3)
    population, errors = draw.integers(100, 10**6, 30), draw.normal(size=(4, 30))
    slope, p_value = illinois.slopes(errors, population)
    expected = [stats.linregress(np.log(population), e) for e in errors]
    assert np.allclose(slope, [fit.slope for fit in expected])
    assert np.allclose(p_value, [fit.pvalue for fit in expected])


def test_the_nearest_non_negative_point_meets_the_optimality_conditions():
    """A constant residual on the positive entries, a larger one on the others (Karush, Kuhn, Tucker)."""
    points = np.random.default_rng(4).normal(size=(50, 12)) * 10 + 1
    nearest = illinois.on_simplex(points, 25)
    assert np.allclose(nearest.sum(axis=1), 25)
    assert nearest.min() >= 0
    assert (nearest == 0).any()
    residual = points - nearest
    for r, positive in zip(residual, nearest > 0, strict=True):
        assert np.ptp(r[positive]) < 1e-9
        assert (r[~positive] <= r[positive].max() + 1e-9).all()


def test_the_recorded_run_says_what_the_page_says():
    with illinois.RESULTS.open(newline="") as file:
        rows = {row["release"]: row for row in csv.DictReader(file)}
    first = rows["projected"]
    assert int(first["runs"]) == illinois.RUNS
    assert abs(float(first["error_sd"]) / PAPER_SD - 1) < 0.02
    assert abs(float(first["mean_slope"])) < float(first["standard_error"])
    assert float(rows["non-negative"]["mean_slope"]) < -9
