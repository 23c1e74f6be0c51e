"""Laplace mechanisms and the K-norm mechanism: formulas, costs, and the law of what is released."""

from __future__ import annotations

import time
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from scipy import fft, linalg, optimize, stats
from scipy.spatial import ConvexHull
from tests.each import each
from tests.research.instances import LAPLACE, NEIGHBOURS, PAIRS, differences, measured_cost, random_problem

import tabulae as tb
from tabulae.errors import Unsupported
from tabulae.research import KNormNoise, compare, extended_laplace, generic_basis, k_norm, projected_laplace

EPSILON = tb.PureDP("1/2")
FALSE_ALARM = 1e-6


@each("neighbours", NEIGHBOURS)
@each("seed", range(6))
def test_errors_by_formula(seed: int, neighbours: str) -> None:
    """(n - n_c) 2 b^2 with b = Delta_1 / eps, for A and for Q'A in a basis of one's own; the best frame by hand."""
    A, C = random_problem(600 + seed, neighbours=neighbours)
    projected = projected_laplace(A, C, EPSILON, neighbours=neighbours)
    freedom = projected.n - projected.n_c

    def scale(measured: np.ndarray) -> float:
        return float(np.abs(differences(measured, neighbours)).sum(axis=0).max() / 0.5)

    assert projected.squared_error == pytest.approx(freedom * 2 * scale(A) ** 2)
    Q = generic_basis(projected.target.kept.astype(float))
    given = extended_laplace(A, C, EPSILON, neighbours=neighbours, basis=Q)
    assert given.squared_error == pytest.approx(freedom * 2 * scale(Q.T @ A) ** 2)
    assert ("better here" in given.note) == (given.squared_error > projected.squared_error)
    Pi = projected.target.projector
    by_hand = []
    for F, T in ((Pi, A), (Pi, Pi @ A), (Pi @ A, np.eye(A.shape[1]))):
        first, S = merged(F)
        there = S @ T
        assert np.allclose(F[:, first] @ there, Pi @ A)
        by_hand.append(2 * scale(there) ** 2 * np.square(F[:, first]).sum())
    best = extended_laplace(A, C, EPSILON, neighbours=neighbours)
    assert best.squared_error == pytest.approx(min(by_hand))
    assert best.squared_error <= projected.squared_error * (1 + 1e-12)


def merged(F: np.ndarray) -> tuple[list[int], np.ndarray]:
    """Columns that stand for all that are equal or opposite, and S with F = F[:, first] S; zeros are in none."""
    first: list[int] = []
    S = np.zeros(F.shape)[:0]
    for j, column in enumerate(F.T):
        if np.allclose(column, 0, atol=1e-9):
            continue
        for row, i in enumerate(first):
            for sign in (1, -1):
                if np.allclose(column, sign * F[:, i], atol=1e-9):
                    S[row, j] = sign
        if not S[:, j].any():
            first.append(j)
            S = np.vstack([S, np.eye(F.shape[1])[j]])
    return first, S


@each("neighbours", NEIGHBOURS)
@each("seed", range(6))
def test_what_is_measured_costs_the_budget_and_no_more(seed: int, neighbours: str) -> None:
    A, C = random_problem(700 + seed, neighbours=neighbours)
    for make in LAPLACE.values():
        mechanism = make(A, C, EPSILON, neighbours=neighbours)
        assert np.trace(mechanism.covariance) == pytest.approx(mechanism.squared_error, rel=1e-9)
        if mechanism.releasable:
            assert measured_cost(mechanism) == Fraction(1, 2)


BASES = {
    "cosines": (fft.dct(np.eye(50), axis=0, norm="ortho")[1:].T, {"add-remove": 39.26, "replace": 18.00}),
    "helmert": (linalg.helmert(50).T, {"add-remove": 15.45, "replace": 6.05}),
}


@each("neighbours", NEIGHBOURS)
@each("name", BASES)
def test_a_basis_matters_and_a_frame_does_better(name: str, neighbours: str) -> None:
    """One total over 50 cells in two known bases: many times the projected variance; in the frame, that variance."""
    A, C = np.eye(50), np.ones((1, 50))
    basis, times = BASES[name]
    projected = projected_laplace(A, C, EPSILON, neighbours=neighbours).squared_error
    found = extended_laplace(A, C, EPSILON, neighbours=neighbours, basis=basis)
    assert found.squared_error / projected == pytest.approx(times[neighbours], abs=0.005)
    assert "better here" in found.note
    frame = extended_laplace(A, C, EPSILON, neighbours=neighbours)
    assert frame.squared_error == pytest.approx(projected)
    assert "better here" not in frame.note


@pytest.mark.parametrize("seed", range(6))
def test_the_basis_is_an_orthonormal_basis_of_the_null_space(seed: int) -> None:
    rng = np.random.default_rng(seed)
    C = rng.integers(-1, 2, (3, 11)).astype(float)
    C[2] = C[0] - C[1]
    Q = generic_basis(C)
    assert Q.shape == (11, 11 - np.linalg.matrix_rank(C))
    assert np.allclose(Q.T @ Q, np.eye(Q.shape[1]))
    assert np.abs(C @ Q).max() < 1e-12
    assert generic_basis(np.zeros((2, 4))).shape == (4, 4)


def test_county_populations_of_illinois() -> None:
    """102 counties under the state total, eps = 0.192, replace-one: every error has the standard deviation 14.66."""
    mechanism = projected_laplace(np.eye(102), np.ones((1, 102)), tb.PureDP("0.192"), neighbours="replace")
    assert np.allclose(np.sqrt(mechanism.covariance.diagonal()), 14.66, atol=0.005)


# the K-norm mechanism -----------------------------------------------------------------------------------------
EXACT: dict[str, tuple[np.ndarray, np.ndarray, float]] = {
    "pairs": (np.eye(6), PAIRS, 3.0),
    "odd of four": (np.eye(4), np.array([[1, 0, 1, 0]]), 5.0),
    "invertible": (np.array([[1, 1, 0], [0, 1, 1], [0, 0, 2]]), np.zeros((0, 3), int), 2.0 * 8),
    "inside": (np.array([[2, 0, 1], [0, 2, 1]]), np.zeros((0, 2), int), 16.0),
    "thirds": (np.array([[3, 0, 1], [0, 3, 1], [0, 0, 0]]), np.zeros((0, 3), int), 36.0),
}


@pytest.mark.parametrize("name", EXACT)
def test_images_of_the_cross_polytope_are_released(name: str) -> None:
    """E = 2 / eps^2 times the squared lengths of the axes; other columns lie within."""
    A, C, expected = EXACT[name]
    mechanism = k_norm(A, C, tb.PureDP(1))
    assert mechanism.releasable
    assert mechanism.squared_error == pytest.approx(expected)
    noise = KNormNoise(mechanism.target.steps, 1.0)
    assert np.trace(noise.noise_covariance()) == pytest.approx(expected)
    projected = projected_laplace(A, C, tb.PureDP(1))
    assert mechanism.squared_error <= projected.squared_error * (1 + 1e-12)
    assert measured_cost(mechanism) == 1
    x = np.arange(A.shape[1])
    quiet = k_norm(A, C, tb.PureDP(10**7))
    assert np.allclose(quiet.answers(tb.measure(x, quiet.strategy, quiet.budget)).values, A @ x, atol=1e-5)


def test_under_replace_the_hull_is_of_differences() -> None:
    """Three cells and their total: differences of a triangle, no cross-polytope; two cells: one axis."""
    assert not k_norm(np.eye(3), np.ones((1, 3)), EPSILON, neighbours="replace").releasable
    two = k_norm(np.eye(2), np.ones((1, 2)), tb.PureDP(1), neighbours="replace")
    assert two.releasable
    assert two.squared_error == pytest.approx(2 * 2)  # the axis (1, -1)
    assert measured_cost(two) == 1


def chi_square(draws: np.ndarray, law: tb.privacy.DiscreteLaplace, reach: int) -> float:
    """The p-value of integers against a law, in cells -reach..reach and the rest."""
    tails = np.array([law.tail(k) for k in range(reach + 1)])
    positive = -np.diff(tails) / 2
    mass = np.concatenate([positive[::-1], [1 - tails[0]], positive, [tails[reach]]])
    clipped = np.where(np.abs(draws) > reach, reach + 1, draws) + reach
    return float(stats.chisquare(np.bincount(clipped, minlength=2 * reach + 2), mass * len(draws)).pvalue)


@pytest.mark.long
def test_the_noise_released_is_laplace_along_the_axes() -> None:
    """The coordinates of the error along the axes, read off the answers: the discrete Laplace law; false alarm 1e-6.

    The same test rejects laws of 0.9 and 1.1 times the scale, and coordinates are uncorrelated.
    """
    mechanism = k_norm(np.eye(6), PAIRS, tb.PureDP("1/2"))
    x = np.array([5, 0, 2, 9, 1, 1])
    rows = []
    for seed in range(8000):
        m = tb.measure(x, mechanism.strategy, mechanism.budget, source=tb.noise.Insecure(seed))
        error = mechanism.answers(m).values - x
        rows.append(error[::2] - error[1::2])  # along (1, -1) / 2: twice the first entry
    draws = np.rint(np.array(rows)).astype(int)
    assert np.allclose(draws, np.array(rows))
    assert chi_square(draws.ravel(), tb.privacy.DiscreteLaplace(2), 8) > FALSE_ALARM
    for factor in ("9/10", "11/10"):
        assert chi_square(draws.ravel(), tb.privacy.DiscreteLaplace(2 * Fraction(factor)), 8) < FALSE_ALARM
    correlations = np.corrcoef(draws.T)[np.triu_indices(3, 1)]
    assert np.abs(correlations).max() < 5 / np.sqrt(len(draws))


def test_other_hulls_are_research() -> None:
    mechanism = k_norm(np.eye(4), np.ones((1, 4)), EPSILON)
    assert not mechanism.releasable
    other = projected_laplace(np.eye(4), np.ones((1, 4)), EPSILON)
    m = tb.measure(np.zeros(4, int), other.strategy, EPSILON)
    with pytest.raises(Unsupported, match="drawn in floats proves no privacy"):
        mechanism.answers(m)
    with pytest.raises(Unsupported, match="has 11 dimensions"):
        k_norm(np.eye(12), np.ones((1, 12)), EPSILON)
    found = compare(np.eye(12), np.ones((1, 12)), EPSILON)
    assert found.best.name == "projected Laplace"
    assert found.refused[0][0] == "K-norm"
    assert "11 dimensions" in str(found)


# the hull -----------------------------------------------------------------------------------------------------
HULL = np.array([[2.0, 0.3, -1.0, 0.1], [0.0, 1.0, 1.5, 0.2]])
HULL3 = np.random.default_rng(3).normal(size=(3, 6))


def inside(points: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Membership in conv{+-points} from its facets."""
    equations = ConvexHull(np.hstack([points, -points]).T).equations
    return lambda u: (u @ equations[:, :-1].T + equations[:, -1]).max(axis=1) <= 1e-9


@pytest.mark.parametrize("points", [HULL, HULL3, np.array([[2.0, -3.0, 0.5]])])
def test_the_gauge_is_the_least_sum_of_weights(points: np.ndarray) -> None:
    """``min sum |lambda|`` with ``V lambda = z``, by a linear programme."""
    both = np.hstack([points, -points])
    z = np.random.default_rng(0).normal(size=(20, len(points)))
    found = [optimize.linprog(np.ones(both.shape[1]), A_eq=both, b_eq=row).fun for row in z]
    np.testing.assert_allclose(KNormNoise(points, 1.0).gauge(z), found, rtol=1e-7)


@pytest.mark.parametrize("points", [HULL, HULL3])
def test_second_moments_against_rejection(points: np.ndarray) -> None:
    """Points uniform in a box, those within kept; each entry within 5 standard errors (false alarm below 1e-5)."""
    box = np.abs(points).max(axis=1)
    u = np.random.default_rng(1).uniform(-box, box, (400_000, len(points)))
    u = u[inside(points)(u)]
    exact = KNormNoise(points, 1.0).second_moment()
    products = np.einsum("ij,ik->ijk", u, u)
    error = products.std(axis=0) / np.sqrt(len(u))
    assert (np.abs(products.mean(axis=0) - exact) < 5 * error).all()
    assert not (np.abs(products.mean(axis=0) - 1.1 * exact) < 5 * error).all()


CUBE = np.array([[1.0, 1, 1, 1], [1, 1, -1, -1], [1, -1, 1, -1]])  # squares, which qhull cuts into triangles


@pytest.mark.parametrize(
    "points", [HULL, pytest.param(HULL3, marks=pytest.mark.long), CUBE], ids=["plane", "three", "cube"]
)
def test_points_are_those_of_rejection_sampling(points: np.ndarray) -> None:
    """Kolmogorov and Smirnov's test of 20,000 draws against a box's points within K, in 12 directions and the gauge.

    False alarm 1e-6 in all. Points from facets of equal share, and points 5 % further in, fail it.
    """
    d, count = len(points), 20_000
    noise, rng = KNormNoise(points, 2.0), np.random.default_rng(5)
    box = np.abs(points).max(axis=1)
    there = rng.uniform(-box, box, (20 * count, d))
    there = there[inside(points)(there)][:count]
    directions = rng.normal(size=(d, 12))

    def least(u: np.ndarray) -> float:
        pairs = [(u @ w, there @ w) for w in directions.T] + [(noise.gauge(u), noise.gauge(there))]
        return min(stats.ks_2samp(a, b).pvalue for a, b in pairs)

    u = noise.uniform(count, rng)
    assert noise.gauge(u).max() <= 1 + 1e-12
    assert least(u) > FALSE_ALARM / 13
    assert least(0.95 * u) < FALSE_ALARM / 13
    if points is not CUBE:  # whose triangles are equal
        facets = noise._hull[0][rng.integers(len(noise._hull[0]), size=count)]
        weights = rng.dirichlet(np.ones(d + 1), size=count)[:, 1:]
        assert least(np.einsum("kv,kvd->kd", weights, facets)) < FALSE_ALARM / 13


def test_the_gauge_of_the_noise_is_a_gamma_variable() -> None:
    """Of shape d and scale 1/eps; Kolmogorov's test at 1e-6, which rejects shape d + 1 and 0.9 times the scale."""
    for points in (HULL, HULL3, np.array([[2.0, -3.0]])):
        noise, d = KNormNoise(points, 2.0), len(points)
        gauges = noise.gauge(noise.noise(20_000, np.random.default_rng(7)))
        assert stats.kstest(gauges, stats.gamma(d, scale=0.5).cdf).pvalue > FALSE_ALARM
        for other in (stats.gamma(d + 1, scale=0.5), stats.gamma(d, scale=0.45)):
            assert stats.kstest(gauges, other.cdf).pvalue < FALSE_ALARM


def test_a_draw_takes_a_hundredth_of_a_second_at_most() -> None:
    """CPU time of the least of ten; a walk of linear programmes took 0.2 s."""
    noise, rng, taken = KNormNoise(HULL3, 1.0), np.random.default_rng(0), []
    for _ in range(10):
        started = time.process_time()
        noise.noise(1, rng)
        taken.append(time.process_time() - started)
    assert min(taken) < 0.01


def test_research_draws_have_the_covariance_that_is_stated() -> None:
    """Continuous draws, each entry of the covariance within 6 standard errors (false alarm below 1e-7)."""
    A, C = random_problem(8, n=5)
    for mechanism in (projected_laplace(A, C, EPSILON), extended_laplace(A, C, EPSILON)):
        errors = mechanism.research_errors(40_000, np.random.default_rng(2))
        assert np.abs(C @ errors.T).max() < 1e-9 * np.abs(errors).max()
        products = np.einsum("ij,ik->ijk", errors, errors)
        spread = products.std(axis=0) / np.sqrt(len(errors))
        assert (np.abs(products.mean(axis=0) - mechanism.covariance) <= 6 * spread + 1e-9).all()
        assert not (np.abs(products.mean(axis=0) - 1.1 * mechanism.covariance) <= 6 * spread + 1e-9).all()
    continuous = k_norm(np.eye(3), np.ones((1, 3)), EPSILON)
    assert continuous.research_errors(3, np.random.default_rng(0)).shape == (3, 3)
    assert np.abs(continuous.research_errors(2, np.random.default_rng(0)).sum(axis=1)).max() < 1e-9
