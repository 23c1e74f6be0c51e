"""The projected gradient's parts: coefficients, the bound on curvature, the gap, and when it is taken."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.topdown.plain_solvers import curvature_bound, in_plain_arrays, plain_gradient
from tests.topdown.solver_cases import dense_precision, divisions, possible, random_division

from tabulae.linalg import BlockAlgebra
from tabulae.products.areas.descent import projected_gradient
from tabulae.products.areas.descent.descent import solve


@given(st.integers(0, 2**32 - 1), st.sampled_from([(), (3,), (2, 3), (2, 3, 2)]))
def test_coefficients_add_up_to_the_matrices(seed, sizes):
    rng, algebra = np.random.default_rng(seed), BlockAlgebra(sizes)
    dense = [rng.standard_normal((2, 2)) for _ in range(algebra.kinds)]
    dense = [g @ g.T for g in dense]
    matrices = np.sum([algebra.term(g, kept) for kept, g in enumerate(dense)], axis=0)
    found = projected_gradient.coefficients(matrices[None], sizes)
    np.testing.assert_allclose(found[:, 0], dense, atol=1e-9 * (1 + np.abs(matrices).max()))


@given(divisions(limited=False))
def test_the_bound_on_curvature_holds(case):
    division, _ = case
    mask = possible(division)
    D = curvature_bound(division, mask)
    for v in range(division.children):
        H = dense_precision(division, v)[np.ix_(mask[v].ravel(), mask[v].ravel())]
        if len(H):
            np.testing.assert_allclose(np.abs(H).sum(axis=1), D[v][mask[v]], rtol=1e-9, atol=1e-12)
            assert np.linalg.eigvalsh(np.diag(D[v][mask[v]]) - H)[0] >= -1e-9 * D.max()


@pytest.mark.parametrize("plain", [False, True])
@given(case=divisions(limited=False, heavy=(0.02, 0.1)))
def test_it_ends_with_a_small_gap_and_exact_sums(case, plain):
    """The gap bounds the distance from the best objective, whatever the steps were."""
    pytest.importorskip("piqp")
    from tests.topdown.solver_cases import oracle

    division, _ = case
    allowed = division.allowed & division.total.any(axis=1)
    if not division.total.any():
        return
    found = (plain_gradient if plain else projected_gradient.projected_gradient)(division, allowed)
    if found is None:
        return
    x, _, gap = found
    assert gap <= projected_gradient.GAP
    assert (x >= 0).all()
    assert not x[~possible(division)].any()
    np.testing.assert_allclose(x.sum(axis=0), division.total, atol=1e-9 * (1 + division.total.max()))
    excess = division.objective(x) - division.objective(oracle(division))
    assert excess <= division.children * projected_gradient.GAP + 1e-6


@pytest.mark.parametrize("seed", range(4))
def test_it_ends_near_the_least_objective(seed):
    """A bound on the gap that is 100 times as large lets it end 100 times as far away."""
    pytest.importorskip("piqp")
    from tests.topdown.solver_cases import oracle

    rng = np.random.default_rng(seed)
    division, _ = random_division(rng, 6, 3, (2, 4), limited=False, heavy=(0.02,))
    assert division.total is not None
    found = projected_gradient.projected_gradient(division, division.allowed & division.total.any(axis=1))
    assert found is not None
    excess = division.objective(found[0]) - division.objective(oracle(division))
    assert -1e-6 <= excess <= found[2] * division.children
    assert excess <= 1e-6 * division.children


def test_children_of_different_precision():
    """Two precisions that no one matrix serves, against the plain path."""
    division, _ = random_division(
        np.random.default_rng(11), 7, 3, (2, 4), limited=False, heavy=(0.02,), classes=3, people=6.0
    )
    fast, slow = (
        projected_gradient.projected_gradient(division, division.allowed),
        plain_gradient(division, division.allowed),
    )
    assert fast is not None
    assert slow is not None
    assert fast[1] == slow[1]
    np.testing.assert_allclose(fast[0], slow[0], atol=1e-9)


def test_what_is_too_steep_is_so_of_the_plain_path_too():
    """H of few large terms beside small ones, on both sides of the largest ratio that is taken."""
    taken = []
    for seed in range(60):
        division, _ = random_division(
            np.random.default_rng(seed), 5, 2, (2, 4), limited=False, heavy=(10.0 ** (seed / 20 - 2),)
        )
        found = projected_gradient.projected_gradient(division, division.allowed)
        plain = plain_gradient(division, division.allowed)
        assert (found is None) == (plain is None)
        taken.append(found is not None)
    assert 10 <= sum(taken) <= 50


@pytest.mark.parametrize(("weight", "solver"), [(0.001, "gradient"), (100.0, "admm")])
def test_the_solver_that_suits(weight, solver):
    division, _ = random_division(
        np.random.default_rng(3), 6, 2, (3, 4), limited=False, heavy=(weight,), people=10.0
    )
    assert solve(division).solver == solver
    with in_plain_arrays():
        assert solve(division).solver == solver


def test_as_many_sums_as_cells_in_another_order():
    """Two cells that differ in the last attribute, the later one first: each sum is of one cell, not of its place."""
    rng, algebra = np.random.default_rng(0), BlockAlgebra((2, 3))
    division, _ = random_division(rng, 4, 2, (2, 3), limited=False)
    total = np.array([[0, 0, 4, 3, 0, 0], [0, 0, 0, 5, 0, 0]])
    weights = 0.2 * algebra.term(np.eye(2), 3) + 0.1 * algebra.term(np.ones((2, 2)), 2)
    linear = rng.standard_normal((4, 2, 6))
    division = replace(
        division,
        total=total,
        precision=weights[None],
        which=np.zeros(4, np.int64),
        linear=linear,
        allowed=np.ones((4, 2), bool),
    )
    fast, slow = (
        projected_gradient.projected_gradient(division, division.allowed),
        plain_gradient(division, division.allowed),
    )
    assert fast is not None
    assert slow is not None
    np.testing.assert_allclose(fast[0], slow[0], atol=1e-9)
