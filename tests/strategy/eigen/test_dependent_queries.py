"""Weights of dependent design queries: a semidefinite program as oracle, the certificate, laws, Laplace noise."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategy.eigen.design_cases import (
    all_range,
    binary_tree,
    column_norms,
    error,
    haar,
    identity_and_total,
    joint_problem,
    prefix,
    random_workload,
    ranges,
)

from tabulae.errors import InvalidArgument, Unsupported
from tabulae.strategy.eigen import weighting
from tabulae.strategy.eigen.weighting import design_weighting, outside, query_weighting, row_space

NORMS = pytest.mark.parametrize("p", [1, 2])
PREFIXES = np.tril(np.ones((8, 8)))
RANGES = ranges(5)
LOW_RANK = random_workload(7, 3, 6)

PROBLEMS = {  # design set, workload
    "tree for prefixes": (binary_tree(8), PREFIXES),
    "tree for ranges": (binary_tree(4), ranges(4)),
    "wavelet and identity": (np.vstack([haar(8), np.eye(8)]), PREFIXES),
    "the workload itself": (RANGES, RANGES),
    "the workload itself, of low rank": (np.vstack([LOW_RANK, LOW_RANK[0] + LOW_RANK[1]]), LOW_RANK),
    "more than a basis, for low rank": (np.vstack([np.eye(6), LOW_RANK]), LOW_RANK),
    "the total, though cells could be asked": (identity_and_total(6), np.ones((2, 6))),
    "random": (random_workload(2, 9, 5), random_workload(3, 7, 5)),
    "a row twice": (np.vstack([np.eye(4), np.eye(4)[:1]]), random_workload(4, 4, 4)),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_optimum_is_a_semidefinite_programs(name):
    design, workload = PROBLEMS[name]
    gram = workload.T @ workload
    found = design_weighting(design, gram)
    optimum = joint_problem(design, workload)
    assert found.loss == pytest.approx(optimum, rel=2e-6)
    assert found.lower <= optimum * (1 + 1e-7)
    assert found.gap <= 1e-6
    weighted = found.weights[:, None] * design
    assert column_norms(weighted, 2).max() == pytest.approx(1, abs=1e-12)
    assert error(weighted, gram) == pytest.approx(found.loss, rel=1e-5)


def random_problem(seed):
    """A design set with more rows than its rank, and a workload that it spans."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 7))
    r = int(rng.integers(1, n + 1))
    basis = rng.normal(size=(r, n))
    design = np.vstack([basis, rng.normal(size=(int(rng.integers(1, 6)), r)) @ basis])
    return design, rng.normal(size=(int(rng.integers(1, 7)), len(design))) @ design


@given(seed=st.integers(0, 2**32 - 1))
def test_multipliers_prove_the_bound_and_no_weights_beat_it(seed):
    design, workload = random_problem(seed)
    gram = workload.T @ workload
    found = design_weighting(design, gram)
    assert found.gap <= 1e-6
    # Weak duality, written out: mu is feasible for g at some weights, and sum mu is then all that matters.
    B, mu = np.square(design), found.multipliers
    pinv = np.linalg.pinv(found.weights[:, None] * design, rcond=1e-11)
    X = pinv @ pinv.T
    g = np.einsum("ij,jk,ik->i", design, X @ gram @ X, design)
    assert (mu >= 0).all()
    assert np.vdot(X, gram) ** 2 / (mu.sum() * (g / (B @ mu)).max()) >= found.lower * (1 - 1e-2)
    rng = np.random.default_rng(seed)
    for spread in (0.05, 0.5):
        other = found.weights * rng.lognormal(sigma=spread, size=len(design))
        assert error(other[:, None] * design, gram) >= found.lower * (1 - 1e-9)


@NORMS
@pytest.mark.parametrize("gram", [all_range(16), prefix(16)], ids=["ranges", "prefixes"])
@pytest.mark.parametrize("classic", [haar, binary_tree, identity_and_total])
def test_weighting_a_set_never_errs_more_than_the_set(classic, gram, p):
    design = classic(16)
    found = design_weighting(design, gram, p=p)
    assert found.loss <= error(design, gram, p) * (1 + 1e-9)
    weighted = found.weights[:, None] * design
    assert column_norms(weighted, p).max() == pytest.approx(1, abs=1e-12)
    assert error(weighted, gram, p) == pytest.approx(found.loss, rel=1e-5)


@NORMS
@settings(max_examples=settings().max_examples // 4)
@given(seed=st.integers(0, 2**32 - 1))
def test_more_queries_to_choose_from_never_cost(p, seed):
    design, workload = random_problem(seed)
    gram = workload.T @ workload
    if np.linalg.matrix_rank(design[:-1]) < np.linalg.matrix_rank(design):
        return
    found = design_weighting(design, gram, p=p)
    fewer = design_weighting(design[:-1], gram, p=p)
    equal = np.ones(len(design))
    assert found.loss <= error(equal[:, None] * design, gram, p) * (1 + 1e-9)
    if p == 2:
        assert found.lower <= fewer.loss * (1 + 1e-9)


@NORMS
def test_independent_rows_are_program_1(p):
    design, workload = random_workload(1, 5, 5), random_workload(2, 8, 5)
    gram = workload.T @ workload
    costs = np.square(workload @ np.linalg.pinv(design)).sum(axis=0)
    found = design_weighting(design, gram, p=p)
    assert found.loss == pytest.approx(query_weighting(design, costs, p=p).loss, rel=1e-6)
    assert found.gap <= 1e-6  # Laplace noise included


@given(seed=st.integers(0, 2**32 - 1))
def test_lengths_of_rows_do_not_matter(seed):
    design, workload = random_problem(seed)
    gram = workload.T @ workload
    lengths = np.random.default_rng(seed).lognormal(sigma=4.0, size=(len(design), 1))
    here, there = design_weighting(design, gram), design_weighting(lengths * design, gram)
    assert there.loss == pytest.approx(here.loss, rel=1e-5)
    assert column_norms(there.weights[:, None] * lengths * design, 2).max() == pytest.approx(1, abs=1e-9)


def test_rows_within_the_span_of_others_may_replace_them():
    # One query, asked as it is or as its half: the same information at the same sensitivity.
    found = design_weighting(np.array([[1.0, 1.0], [0.5, 0.5]]), np.ones((2, 2)))
    assert found.loss == pytest.approx(1, rel=1e-6)


@pytest.mark.parametrize(
    "name",
    ["tree for ranges", pytest.param("random", marks=pytest.mark.long), "the workload itself, of low rank"],
)
def test_laplace_noise_reaches_what_a_general_solver_finds(name):
    design, workload = PROBLEMS[name]
    gram = workload.T @ workload
    found = design_weighting(design, gram, p=1)
    assert found.lower == 0
    assert found.gap == np.inf

    def loss(logarithms):
        return np.log(error(np.exp(np.clip(logarithms, -8, 8))[:, None] * design, gram, 1))

    rng = np.random.default_rng(0)
    best = min(
        scipy.optimize.minimize(
            loss, rng.normal(size=len(design)), method="Powell", options={"maxiter": 30}
        ).fun
        for _ in range(3)
    )
    assert np.log(found.loss) <= best + 1e-3


@NORMS
def test_seeds_give_the_same_weights_again(p):
    design, gram = binary_tree(8), prefix(8)
    first, again = (design_weighting(design, gram, p=p, seed=5) for _ in range(2))
    assert np.array_equal(first.weights, again.weights)


@NORMS
def test_without_time_what_is_returned_is_still_true(p):
    design, gram = binary_tree(32), prefix(32)
    hurried = design_weighting(design, gram, p=p, deadline=0.0)
    best = design_weighting(design, gram, p=p)
    assert best.loss <= hurried.loss <= error(design, gram, p) * (1 + 1e-9)
    assert hurried.lower <= best.loss


def test_a_tree_for_prefixes():
    """The tree of 256 cells, 511 rows: a proven optimum in a second, that equal weights miss by a seventh."""
    tree, gram = binary_tree(256), prefix(256)
    found = design_weighting(tree, gram)
    assert found.gap <= 1e-6
    assert found.evaluations < 25
    assert error(tree, gram) / found.loss == pytest.approx(1.16, abs=0.03)


def test_row_spaces():
    for design in (random_workload(0, 3, 7), random_workload(0, 9, 4), identity_and_total(5)):
        basis = row_space(design)
        assert basis.shape == (np.linalg.matrix_rank(design), design.shape[1])
        np.testing.assert_allclose(basis @ basis.T, np.eye(len(basis)), atol=1e-10)
        np.testing.assert_allclose(design @ basis.T @ basis, design, atol=1e-9)
    lengths = np.array([1e-7, 1.0, 1e7])
    assert len(row_space(lengths[:, None] * np.eye(3))) == 3


@pytest.mark.parametrize("cell", range(4))
def test_the_cell_outside_is_named(cell):
    rows = np.delete(np.eye(4), cell, axis=0)
    assert outside(np.eye(4), row_space(rows)) == cell
    with pytest.raises(InvalidArgument, match=f"asks of cell {cell} cannot be answered"):
        design_weighting(rows, np.eye(4))


@pytest.mark.parametrize(
    ("design", "gram", "says"),
    [
        (np.ones((1, 3)), np.eye(3), "does not span the workload.*Add the identity"),
        (haar(4)[1:], prefix(4), "does not span the workload"),
        (np.eye(3), np.eye(2), "3 columns, but the workload tells 2 cells apart"),
        (np.vstack([np.eye(2), np.zeros((1, 2))]), np.eye(2), "design query 2 is zero in every cell"),
        (np.array([[1.0, np.nan], [0.0, 1.0]]), np.eye(2), "missing or infinite"),
        (np.eye(2), np.zeros((2, 2)), "gram is zero"),
        (np.eye(2), -np.eye(2), "negative diagonal"),
        (np.eye(2), np.array([[1.0, 0.5], [0.0, 1.0]]), "not symmetric"),
        (np.ones(2), np.eye(2), "give a matrix, one row a query"),
    ],
)
def test_bad_sets_are_refused(design, gram, says):
    with pytest.raises(InvalidArgument, match=says):
        design_weighting(design, gram)


def test_bad_options_are_refused():
    for options in ({"p": 0}, {"tolerance": -1.0}):
        with pytest.raises(InvalidArgument):
            design_weighting(np.eye(2), np.eye(2), **options)


def test_too_many_dependent_queries_are_refused():
    pairs = list(itertools.combinations(range(112), 2))
    design = np.zeros((len(pairs), 112))
    for row, pair in zip(design, pairs, strict=True):
        row[list(pair)] = 1.0
    with pytest.raises(
        Unsupported, match=r'6,216 design queries depend on each other.*"wavelet" or "eigen-queries"'
    ):
        design_weighting(design, np.eye(112))


def exact_costs(design):
    """Squared lengths of the columns of Q^-1 for a square Q, in rational numbers: costs for V = I."""
    n = len(design)
    rows = [
        [Fraction(float(x)) for x in row] + [Fraction(int(i == j)) for j in range(n)]
        for i, row in enumerate(design)
    ]
    for i in range(n):
        pivot = next(r for r in range(i, n) if rows[r][i])
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [x / rows[i][i] for x in rows[i]]
        for r in range(n):
            if r != i and rows[r][i]:
                rows[r] = [x - rows[r][i] * y for x, y in zip(rows[r], rows[i], strict=True)]
    inverse = [row[n:] for row in rows]
    return np.array([float(sum(inverse[i][j] ** 2 for i in range(n))) for j in range(n)])


NEAR = [
    np.array([[1.0, 1.0], [1.0, 1.0 + apart]]) for apart in (1e-3, 1e-5, 1e-7, 1e-9)
] + [  # condition numbers up to 1e9
    np.ones((5, 5)) + apart * np.random.default_rng(seed).normal(size=(5, 5))
    for apart, seed in ((1e-2, 0), (1e-4, 1), (1e-4, 2), (1e-6, 3))
]


@NORMS
@pytest.mark.parametrize("design", NEAR, ids=[f"condition {np.linalg.cond(Q):.0e}" for Q in NEAR])
def test_bounds_of_nearly_dependent_rows_are_true_in_rational_numbers(design, p):
    found = design_weighting(design, np.eye(len(design)), p=p)
    costs = exact_costs(design)
    best = query_weighting(design, costs, p=p, tolerance=1e-10)
    assert found.lower <= best.loss
    assert found.loss >= best.lower * (1 - 1e-15 * np.linalg.cond(design))
    assert (costs / found.weights**2).sum() == pytest.approx(found.loss, rel=1e-6)
    assert 0 <= found.gap <= max(1e-6, 1e-13 * np.linalg.cond(design))


@pytest.mark.parametrize("apart", [1e-3, 1e-5, 1e-7, 1e-9])
def test_bounds_of_nearly_dependent_rows_that_are_more_than_the_cells(apart):
    design = np.array([[1.0, 1.0], [1.0, 1.0 + apart], [1.0, 1.0 - apart]])
    found = design_weighting(design, np.eye(2))
    u = [Fraction(float(x)) ** 2 for x in found.weights]
    q = [[Fraction(float(x)) for x in row] for row in design]
    a, b, d = (sum(x * r[i] * r[j] for x, r in zip(u, q, strict=True)) for i, j in ((0, 0), (0, 1), (1, 1)))
    exact = float((a + d) / (a * d - b * b))  # tr X^-1
    assert exact == pytest.approx(found.loss, rel=1e-6)
    assert found.lower <= exact
    assert 0 <= found.gap <= max(1e-6, 3e-14 / apart)


def test_rows_that_differ_by_rounding_alone_are_refused_as_such():
    design = np.array([[1.0, 1.0], [1.0, 1.0 + 4e-14]])
    with pytest.raises(InvalidArgument, match="some of which depend on each other to rounding"):
        design_weighting(design, np.eye(2))


@NORMS
@pytest.mark.parametrize("extra", [0, 1], ids=["independent", "dependent"])
def test_rows_whose_squares_are_no_numbers(p, extra):
    design = np.vstack([[[1.0, 1.0], [1.0, -1.0]], np.eye(2)[:extra]])
    lengths = np.array([1e-200, 1e200, 1e160])[: len(design)]
    plain = design_weighting(design, np.eye(2), p=p)
    found = design_weighting(lengths[:, None] * design, np.eye(2), p=p)
    assert found.loss == pytest.approx(plain.loss, rel=1e-4)
    assert column_norms((found.weights * lengths)[:, None] * design, p).max() == pytest.approx(1, abs=1e-9)


def test_the_clock_is_looked_at_between_starts(monkeypatch):
    """Laplace noise, no time: the weights given are improved once, and no other start is tried."""
    calls = []
    rounds = weighting._Alternation._rounds

    def counted(self, w, most):
        calls.append(most)
        return rounds(self, w, most)

    monkeypatch.setattr(weighting._Alternation, "_rounds", counted)
    design_weighting(binary_tree(16), prefix(16), p=1, deadline=0.0)
    assert len(calls) == 1
