"""What a mechanism adds depends on the query and the invariants, not on a basis and not on the order of anything."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import assume, given
from scipy.optimize import linprog
from scipy.stats import ortho_group
from tests.each import each
from tests.research.instances import NEIGHBOURS, PAIRS, differences, matrices, measured_cost, random_problem

import tabulae as tb
from tabulae.errors import Unsupported
from tabulae.research import (
    SubspaceMechanism,
    base_decomposition,
    correlated_gaussian,
    extended_laplace,
    least_ellipsoid,
    optimal_gaussian,
    projected_laplace,
)
from tabulae.research import target as target_module

MARGINS = np.vstack(
    [np.kron(np.eye(3, dtype=int), np.ones((1, 4), int)), np.kron(np.ones((1, 3), int), np.eye(4))]
)
SYMMETRIC = {  # the query, its invariants, and n - n_c
    "pairs": (np.eye(12, dtype=int), np.kron(np.eye(6, dtype=int), [[1, 1]]), 6),
    "total": (np.eye(9, dtype=int), np.ones((1, 9), int), 8),
    "margins": (np.eye(12, dtype=int), MARGINS.astype(int), 6),
}
WIDE = np.random.default_rng(0).integers(0, 3, (4, 40))  # few answers, many columns


def mechanisms(A: np.ndarray, C: np.ndarray, neighbours: str) -> tuple[SubspaceMechanism, SubspaceMechanism]:
    return (
        correlated_gaussian(A, C, tb.ZCDP("1/2"), neighbours=neighbours),
        extended_laplace(A, C, tb.PureDP(1), neighbours=neighbours),
    )


def same(one: np.ndarray, other: np.ndarray) -> bool:
    return bool(np.abs(one - other).max() <= 1e-9 * np.abs(other).max())


PROBLEMS = list(itertools.product([*SYMMETRIC, *range(4)], NEIGHBOURS))
ORDERS = [(*problem, seed) for problem in PROBLEMS for seed in range(3)]


@each("name, neighbours, seed", ORDERS[::5], long=ORDERS)
def test_orders_of_answers_cells_and_invariants_change_nothing(
    name: str | int, neighbours: str, seed: int
) -> None:
    """The same expected error, and the covariance in the new order; invariants are mixed and repeated as well."""
    A, C = random_problem(900 + name, neighbours=neighbours) if isinstance(name, int) else SYMMETRIC[name][:2]
    rng = np.random.default_rng(seed)
    answers, cells = rng.permutation(A.shape[0]), rng.permutation(A.shape[1])
    mixed = np.vstack([C[rng.permutation(len(C))] * 3, C.sum(axis=0, keepdims=True)])
    for first, again in zip(
        mechanisms(A, C, neighbours),
        mechanisms(A[answers][:, cells], mixed[:, answers], neighbours),
        strict=True,
    ):
        assert again.squared_error == pytest.approx(first.squared_error, rel=1e-9)
        assert same(again.covariance, first.covariance[np.ix_(answers, answers)])
        assert again.note == first.note


@each("neighbours", NEIGHBOURS)
@each("name", [*SYMMETRIC, 0, 1])
def test_the_basis_that_a_library_finds_changes_nothing(
    name: str | int, neighbours: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    A, C = random_problem(950 + name, neighbours=neighbours) if isinstance(name, int) else SYMMETRIC[name][:2]
    first, found = mechanisms(A, C, neighbours), target_module.generic_basis

    def turned(C: np.ndarray) -> np.ndarray:
        basis = found(C)
        size = basis.shape[1]
        return basis @ ortho_group.rvs(size, random_state=3) if size > 1 else -basis

    monkeypatch.setattr(target_module, "generic_basis", turned)
    for one, again in zip(first, mechanisms(A, C, neighbours), strict=True):
        assert not np.allclose(one.target.basis, again.target.basis)
        assert again.squared_error == pytest.approx(one.squared_error, rel=1e-9)
        assert same(again.covariance, one.covariance)


@each("name", SYMMETRIC)
def test_cells_under_symmetric_invariants_in_closed_form(name: str) -> None:
    """All cells are alike: correlated noise is the optimum (n - n_c)^2 / n, and Laplace noise has a scale of 1."""
    A, C, freedom = SYMMETRIC[name]
    correlated, laplace = mechanisms(A, C, "add-remove")
    best = optimal_gaussian(A, C, tb.ZCDP("1/2"))
    assert correlated.squared_error == pytest.approx(freedom**2 / len(A), rel=1e-9)
    assert correlated.squared_error == pytest.approx(best.squared_error, rel=1e-4)
    halved = 2 if name == "pairs" else 1  # the two of a pair share one noise
    assert laplace.squared_error == pytest.approx(2 * freedom / halved, rel=1e-9)


@each("turn", range(3))
@each("d", [2, 3, 5, 8])
def test_groups_turn_with_the_points(d: int, turn: int) -> None:
    """``sum_i r_i^2 U_i U_i'`` of points, and of the same points shuffled, turned and some of them reflected."""
    rng = np.random.default_rng(10 * d + turn)
    points = np.hstack([np.diag([2.0, 2.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0][:d]), rng.normal(size=(d, turn))])
    frame = ortho_group.rvs(d, random_state=turn)
    shuffled = points[:, rng.permutation(points.shape[1])] * rng.choice([-1, 1], points.shape[1])
    noise = [
        sum(r * r * U @ U.T for U, r in zip(found.groups, found.radii, strict=True))
        for found in (base_decomposition(points), base_decomposition(frame @ shuffled))
    ]
    assert same(noise[1], frame @ noise[0] @ frame.T)


def test_equal_axes_stay_together() -> None:
    """Three axes of 2 and two of 1: the middle one is an equal of the first, and none of the short ones."""
    found = base_decomposition(np.diag([2.0, 1.0, 2.0, 1.0, 2.0]))
    assert [group.shape[1] for group in found.groups] == [2, 3]
    assert found.radii == pytest.approx((1.0, 2.0))


@each("seed", range(6))
@each("tolerance", [1e-1, 1e-2])
def test_the_average_of_multiplicative_steps_is_near_enough(seed: int, tolerance: float) -> None:
    """Rounding decides nothing on the way: the weights of shuffled points are the shuffled weights."""
    rng = np.random.default_rng(seed)
    points = rng.integers(-1, 2, (5, 60)) * np.array([1, 1, 1, 3, 9])[:, None]
    order = rng.permutation(60)
    found, again = (least_ellipsoid(p.astype(float), tolerance=tolerance) for p in (points, points[:, order]))
    assert found.gap <= tolerance
    assert again.weights == pytest.approx(found.weights[order], rel=1e-9)


def least_cost(mechanism: SubspaceMechanism) -> float:
    """``max_d min {||a||_1 : F a = Pi_N A d}`` by linear programmes: what Laplace noise F w, of scale 1, costs.

    Shifting w by a gives the output of a neighbour, and the density of w changes by at most ``exp(||a||_1)``.
    """
    F, target = mechanism.factor, mechanism.target
    costs = []
    for step in differences(target.projector @ target.matrix, mechanism.neighbours).T:
        found = linprog(np.ones(2 * F.shape[1]), A_eq=np.hstack([F, -F]), b_eq=step)
        assert found.status == 0, "the noise reaches all that must be hidden"
        costs.append(found.fun)
    return float(max(costs))


@each("name, neighbours", PROBLEMS[::3], long=PROBLEMS)
def test_laplace_noise_costs_no_more_than_is_charged(name: str | int, neighbours: str) -> None:
    """By an oracle that knows the noise alone, and by the integers that are measured."""
    A, C = random_problem(970 + name, neighbours=neighbours) if isinstance(name, int) else SYMMETRIC[name][:2]
    mechanism = extended_laplace(A, C, tb.PureDP("1/2"), neighbours=neighbours)
    assert least_cost(mechanism) <= 0.5 * (1 + 1e-7)
    assert measured_cost(mechanism) == tb.PureDP("1/2").amount


@each("neighbours", NEIGHBOURS)
@given(problem=matrices)
def test_laplace_noise_is_never_more_than_projected(
    neighbours: str, problem: tuple[np.ndarray, np.ndarray]
) -> None:
    A, C = problem
    try:
        projected = projected_laplace(A, C, tb.PureDP(1), neighbours=neighbours)
    except Unsupported:
        assume(False)
        return
    mechanism = extended_laplace(A, C, tb.PureDP(1), neighbours=neighbours)
    assert mechanism.squared_error <= projected.squared_error * (1 + 1e-9)
    assert measured_cost(mechanism) == 1
    assert np.trace(mechanism.covariance) == pytest.approx(mechanism.squared_error)


@each("neighbours", NEIGHBOURS)
@each("kind", ["answer", "projected answer", "cell"])
def test_each_frame_is_released_without_bias(kind: str, neighbours: str) -> None:
    """A case for each; without noise to speak of the answers are A x."""
    A, C = {
        "answer": (np.eye(6, dtype=int), PAIRS),
        "projected answer": (WIDE, np.ones((1, 4), int)),
        "cell": (np.tril(np.ones((8, 8), int)), np.eye(8, dtype=int)[-1:]),
    }[kind]
    mechanism = extended_laplace(A, C, tb.PureDP(10**9), neighbours=neighbours)
    assert mechanism.note.startswith(f"one noise for each {kind}:")
    x = np.random.default_rng(1).integers(0, 10**4, A.shape[1])
    found = mechanism.answers(tb.measure(x, mechanism.strategy, mechanism.budget, neighbours=neighbours))
    assert np.abs(found.values - A @ x).max() < 1e-4
    assert np.array_equal(C @ np.array(found.fractions), C @ A @ x)
