"""Gaussian mechanisms: the formulas of the paper, by simulation; what they cost; which is better."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import assume, given
from scipy import stats
from tests.each import each
from tests.research.instances import (
    GAUSSIAN,
    NEIGHBOURS,
    differences,
    matrices,
    measured_cost,
    random_problem,
    rho_of,
)

import tabulae as tb
from tabulae.errors import InvalidArgument, Unsupported
from tabulae.privacy.loss.conversions import enclose_delta
from tabulae.research import (
    SubspaceMechanism,
    base_decomposition,
    classical_multiplier,
    correlated_gaussian,
    extended_gaussian,
    optimal_gaussian,
    projected_gaussian,
)

RHO = tb.ZCDP("1/2")
FALSE_ALARM = 1e-6
FREEDOM = 20_000  # degrees of freedom at which an error of 10 % is told from none with the same certainty


def variance_fits(squares: np.ndarray, stated: float, freedom: int) -> bool:
    """Whether sums of squared errors, ``chi^2_freedom * stated / freedom`` in law each, fit; false alarm 1e-6."""
    ratio = squares.sum() / stated * freedom
    low, high = stats.chi2.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], freedom * len(squares))
    return bool(low <= ratio <= high)


def spherical(seed: int, make, neighbours: str) -> SubspaceMechanism:
    A, C = random_problem(seed, neighbours=neighbours)
    return make(A, C, tb.ZCDP("1/100"), neighbours=neighbours)


@each("neighbours", NEIGHBOURS)
@each("make", [projected_gaussian, extended_gaussian])
@each("seed", range(4))
def test_total_variance_is_n_minus_n_c_sigma_squared(seed: int, make, neighbours: str) -> None:
    """Corollaries 3.5 and 3.6 on random C; the same test rejects errors of 0.9 and 1.1 times the variance."""
    mechanism = spherical(seed, make, neighbours)
    target = mechanism.target
    measured = target.matrix if make is projected_gaussian else target.inner
    sigma2 = np.square(differences(measured, neighbours)).sum(axis=0).max() * 50  # 1 / (2 rho) = 50
    freedom = mechanism.n - mechanism.n_c
    assert freedom == mechanism.n - np.linalg.matrix_rank(target.invariants)
    assert mechanism.squared_error == pytest.approx(freedom * sigma2, rel=1e-9)
    errors = mechanism.research_errors(FREEDOM // freedom, np.random.default_rng(seed))
    squares = np.square(errors).sum(axis=1)
    assert variance_fits(squares, mechanism.squared_error, freedom)
    for factor in (0.9, 1.1):
        assert not variance_fits(squares * factor, mechanism.squared_error, freedom)


@pytest.mark.parametrize(
    "make", [projected_gaussian, pytest.param(extended_gaussian, marks=pytest.mark.long)]
)
def test_the_released_noise_has_that_variance_too(make) -> None:
    """Measured with exact integer noise and projected in fractions; false alarm 1e-6, rejects 0.9 and 1.1."""
    A, C = random_problem(11, n=16)  # of many dimensions: few releases are enough
    mechanism = make(A, C, tb.ZCDP("1/100"))
    x = np.arange(A.shape[1])
    freedom = mechanism.n - mechanism.n_c
    squares = []
    for seed in range(FREEDOM // freedom):
        m = tb.measure(x, mechanism.strategy, mechanism.budget, source=tb.noise.Insecure(seed))
        squares.append(np.square(mechanism.answers(m).values - A @ x).sum())
    assert variance_fits(np.array(squares), mechanism.squared_error, freedom)
    for factor in (0.9, 1.1):
        assert not variance_fits(np.array(squares) * factor, mechanism.squared_error, freedom)


@given(matrices)
def test_extended_is_never_worse_than_projected(problem: tuple[np.ndarray, np.ndarray]) -> None:
    A, C = problem
    for neighbours in NEIGHBOURS:
        try:
            extended = extended_gaussian(A, C, RHO, neighbours=neighbours)
        except (Unsupported, InvalidArgument):
            assume(False)
        projected = projected_gaussian(A, C, RHO, neighbours=neighbours)
        assert extended.squared_error <= projected.squared_error * (1 + 1e-12)


FEW = [(seed, neighbours) for seed in range(2) for neighbours in NEIGHBOURS]


@each("seed, neighbours", FEW, long=itertools.product(range(8), NEIGHBOURS))
def test_every_mechanism_costs_its_budget_and_no_more(seed: int, neighbours: str) -> None:
    """From the covariance of the error, in floats; and from the integers measured, in fractions."""
    A, C = random_problem(100 + seed, neighbours=neighbours)
    for make in GAUSSIAN.values():
        mechanism = make(A, C, RHO, neighbours=neighbours)
        cost = rho_of(mechanism)
        assert cost <= 0.5 * (1 + 1e-6)
        if make is not projected_gaussian:  # which pays for the row space of C as well
            assert cost == pytest.approx(0.5, rel=1e-6)
        assert measured_cost(mechanism) == Fraction(1, 2)


@each("seed, neighbours", FEW, long=itertools.product(range(8), NEIGHBOURS))
def test_the_covariance_is_that_of_the_error_and_stays_in_the_null_space(seed: int, neighbours: str) -> None:
    A, C = random_problem(200 + seed, neighbours=neighbours)
    for make in GAUSSIAN.values():
        mechanism = make(A, C, RHO, neighbours=neighbours)
        assert np.trace(mechanism.covariance) == pytest.approx(mechanism.squared_error, rel=1e-12)
        assert np.abs(C @ mechanism.covariance).max() < 1e-9 * mechanism.squared_error


@each("seed, neighbours", FEW, long=itertools.product(range(8), NEIGHBOURS))
def test_the_order_of_the_mechanisms(seed: int, neighbours: str) -> None:
    """optimum <= correlated <= 2 (1 + gap) k^2 optimum, correlated <= the paper's formula, optimum <= extended."""
    A, C = random_problem(300 + seed, neighbours=neighbours)
    found = {name: make(A, C, RHO, neighbours=neighbours) for name, make in GAUSSIAN.items()}
    best = found["optimal"]
    assert best.certificate is not None
    assert best.certificate < 2e-4
    lower = best.squared_error / (1 + best.certificate)
    for other in found.values():
        assert lower <= other.squared_error * (1 + 1e-9)
        assert best.squared_error <= other.squared_error * (1 + 2e-4)
    base = base_decomposition(best.target.spanning_steps())
    k = len(base.groups)
    r = best.target.span.shape[1]
    assert k <= 1 + 2 * math.floor(math.log2(r))
    assert found["correlated"].squared_error <= base.unit_error * (1 + 1e-6)  # the noise multiplier is 1 here
    assert base.unit_error <= 2 * (1 + base.gap) * k**2 * lower * (1 + 2e-4)


@each("neighbours", NEIGHBOURS)
@each("seed", range(5))
def test_the_optimum_against_a_convex_solver(seed: int, neighbours: str) -> None:
    """min tr X^-1 subject to v'X v <= 1 for all steps v of Q_N'A."""
    A, C = random_problem(400 + seed, n=4, neighbours=neighbours)
    best = optimal_gaussian(A, C, RHO, neighbours=neighbours, tolerance=1e-6)
    steps = best.target.spanning_steps()
    X = cp.Variable((len(steps), len(steps)), PSD=True)
    problem = cp.Problem(cp.Minimize(cp.tr_inv(X)), [cp.quad_form(v, X) <= 1 for v in steps.T])
    assert best.squared_error == pytest.approx(float(problem.solve(solver="CLARABEL")), rel=1e-4)


def test_a_public_total_costs_nothing_under_replace() -> None:
    """Cells and no invariants: under "replace" the total is public, and the optimum does not pay for it."""
    best = optimal_gaussian(np.eye(3), np.zeros((0, 3)), RHO, neighbours="replace")
    total = optimal_gaussian(np.eye(3), np.ones((1, 3)), RHO, neighbours="replace")
    assert best.squared_error == pytest.approx(4.0, rel=1e-4)
    assert total.squared_error == pytest.approx(4.0, rel=1e-4)
    with pytest.raises(Unsupported, match="add it to the invariants"):
        correlated_gaussian(np.eye(3), np.zeros((0, 3)), RHO, neighbours="replace")


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("transposed", [False, True])
def test_a_query_of_lower_rank_is_hidden_in_full(seed: int, transposed: bool) -> None:
    """Twice the same answers: noise in fewer dimensions than null(C) has, and still the whole of Pi_N A."""
    rng = np.random.default_rng(seed)
    A = rng.integers(0, 3, (3, 5))
    A = np.vstack([A, A[::-1] if transposed else A])
    C = rng.integers(0, 2, (1, 6))
    C[0, 0] = 1
    for make in GAUSSIAN.values():
        mechanism = make(A, C, RHO)
        assert rho_of(mechanism) <= 0.5 * (1 + 1e-6)
        assert mechanism.releasable
        x = rng.integers(0, 9, 5)
        m = tb.measure(x, mechanism.strategy, tb.ZCDP(10**12))
        assert np.abs(mechanism.answers(m).values - A @ x).max() < 1e-3


def test_the_papers_constant_is_for_reproduction() -> None:
    A, C = random_problem(1)
    budget = tb.ApproxDP(1, "1e-6")
    classical = projected_gaussian(A, C, budget, calibration="classical")
    exact = projected_gaussian(A, C, budget)
    assert not classical.releasable
    c2 = classical_multiplier(1, 1e-6) ** 2
    largest = np.square(A).sum(axis=0).max()
    assert classical.squared_error == pytest.approx((classical.n - classical.n_c) * c2 * largest)
    assert exact.squared_error < classical.squared_error
    with pytest.raises(InvalidArgument, match="ApproxDP"):
        projected_gaussian(A, C, RHO, calibration="classical")
    m = tb.measure(np.zeros(A.shape[1], int), exact.strategy, budget)
    with pytest.raises(Unsupported, match="classical constant"):
        classical.answers(m)


@pytest.mark.parametrize(
    ("epsilon", "delta", "times"), [("1", "1e-12", 4.1), ("3", "1e-9", 2.8), ("10", "1e-6", 22)]
)
def test_the_papers_constant_does_not_always_keep_its_promise(epsilon: str, delta: str, times: float) -> None:
    """Lemma 3.4 claims c for all epsilon and delta; by Balle and Wang's theorem the true delta is larger there."""
    e, d = Fraction(epsilon), Fraction(delta)
    low, _ = enclose_delta(e, Fraction(classical_multiplier(float(e), float(d))) ** 2)
    assert low > times * d
