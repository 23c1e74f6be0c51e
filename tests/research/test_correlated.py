"""The least ellipsoid with its gap, and the base decomposition of Nikolov, Talwar and Zhang."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from tests.each import each
from tests.research.instances import NEIGHBOURS, differences, random_problem

import tabulae as tb
from tabulae.errors import InvalidArgument, Unsupported
from tabulae.research import base_decomposition, correlated_gaussian, least_ellipsoid


@each("seed", range(6))
@each("tolerance", [1e-1, 1e-3, 1e-7])
def test_it_contains_the_points_and_the_gap_is_proven(seed: int, tolerance: float) -> None:
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 8))
    points = rng.normal(size=(d, int(rng.integers(d, 6 * d)))) * rng.uniform(0.1, 10, (d, 1))
    found = least_ellipsoid(points, tolerance=tolerance)
    reach = np.einsum("ij,ij->j", points, np.linalg.solve(found.shape, points))
    assert reach.max() <= 1 + 1e-9
    assert -1e-12 <= found.gap <= tolerance
    # the proof, counted anew: for M = shape^-1 and V = sum_j u_j v_j v_j', kappa = max v'V^-1 v is at most (1 + gap) d
    assert found.weights.min() >= 0
    assert found.weights.sum() == pytest.approx(1)
    V = (points * found.weights) @ points.T
    kappa = np.einsum("ij,ij->j", points, np.linalg.solve(V, points)).max()
    assert kappa <= (1 + found.gap) * d * (1 + 1e-9)
    assert np.allclose(found.shape, kappa * V)


@pytest.mark.parametrize("seed", range(4))
def test_its_volume_against_a_convex_solver(seed: int) -> None:
    rng = np.random.default_rng(50 + seed)
    points = rng.integers(-3, 4, (3, 9)).astype(float)
    found = least_ellipsoid(points, tolerance=1e-6)
    M = cp.Variable((3, 3), PSD=True)
    problem = cp.Problem(cp.Maximize(cp.log_det(M)), [cp.quad_form(v, M) <= 1 for v in points.T])
    problem.solve(solver="CLARABEL")
    least = -float(problem.value)
    assert least - 1e-5 <= np.linalg.slogdet(found.shape)[1] <= least + 3 * np.log1p(found.gap) + 1e-5


def test_points_that_do_not_span_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="span 3 dimensions"):
        least_ellipsoid(np.ones((3, 4)))
    with pytest.raises(InvalidArgument, match="zero"):
        least_ellipsoid(np.eye(3), tolerance=0)


@pytest.mark.parametrize("d", [1, 2, 3, 5, 8, 13])
def test_the_recursion(d: int) -> None:
    """Groups of the smaller halves, together an orthonormal basis; radii are what the groups' answers can move by."""
    points = np.random.default_rng(d).normal(size=(d, 3 * d)) * np.geomspace(1, 30, d)[:, None]
    found = base_decomposition(points)
    sizes, left = [], d
    while left:
        sizes.append(left - left // 2)
        left //= 2
    assert [group.shape[1] for group in found.groups] == sizes
    U = np.hstack(found.groups)
    assert np.allclose(U.T @ U, np.eye(d))
    for group, radius in zip(found.groups, found.radii, strict=True):
        assert radius == pytest.approx(np.linalg.norm(group.T @ points, axis=0).max())
    assert found.radii[0] < found.radii[-1] or d == 1  # short axes first


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@pytest.mark.parametrize("seed", range(4))
def test_the_paper_promises_k_and_the_groups_cost_at_most_that(seed: int, neighbours: str) -> None:
    """Noise ``sum_i r_i U_i w_i``: the Mahalanobis norm of every neighbours' difference, squared, is at most k."""
    A, C = random_problem(800 + seed, neighbours=neighbours)
    mechanism = correlated_gaussian(A, C, tb.ZCDP("1/2"), neighbours=neighbours)
    target = mechanism.target
    found = base_decomposition(target.spanning_steps())
    steps = differences(target.points, neighbours)
    cost = sum(
        np.square(U.T @ steps).sum(axis=0) / r**2 for U, r in zip(found.groups, found.radii, strict=True)
    )
    assert cost.max() <= len(found.groups) * (1 + 1e-9)
    assert cost.max() >= 1 - 1e-9
    error = cost.max() * sum(r * r * U.shape[1] for U, r in zip(found.groups, found.radii, strict=True))
    assert mechanism.squared_error == pytest.approx(error)


def test_too_many_pairs_are_refused_with_what_serves_instead() -> None:
    A = np.random.default_rng(0).integers(0, 50, (4, 1200))
    with pytest.raises(Unsupported, match="pairs of them are listed up to 128"):
        correlated_gaussian(A, np.ones((1, 4)), tb.ZCDP(1), neighbours="replace")
    assert correlated_gaussian(A, np.ones((1, 4)), tb.ZCDP(1)).releasable
