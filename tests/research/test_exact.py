"""Exact inverses and null spaces; answers that meet their invariants exactly, and what they depend on."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tests.each import each
from tests.research.instances import GAUSSIAN, LAPLACE, matrices, random_problem

import tabulae as tb
from tabulae.errors import InvalidArgument, Unsupported
from tabulae.research import (
    ConstrainedQuery,
    compare,
    extended_gaussian,
    extended_laplace,
    k_norm,
    projected_gaussian,
    projected_laplace,
)
from tabulae.research.target import exact_inverse, null_basis

BUDGETS = [tb.ZCDP("1/2"), tb.PureDP(1), tb.ApproxDP(1, "1e-6")]
integer_matrices = st.tuples(st.integers(0, 5), st.integers(1, 6)).flatmap(
    lambda shape: arrays(np.int64, shape, elements=st.integers(-4, 4))
)


@given(integer_matrices)
def test_the_null_space_is_exact(matrix: np.ndarray) -> None:
    basis = null_basis(matrix)
    rank = np.linalg.matrix_rank(matrix) if matrix.size else 0
    assert not (matrix.astype(object) @ basis.T).any()
    assert basis.shape == (matrix.shape[1] - rank, matrix.shape[1])
    assert not len(basis) or np.linalg.matrix_rank(basis.astype(float)) == len(basis)


@given(st.integers(1, 5).flatmap(lambda n: arrays(np.int64, (n, n), elements=st.integers(-3, 3))))
def test_the_inverse_is_exact(matrix: np.ndarray) -> None:
    gram = matrix @ matrix.T + np.eye(len(matrix), dtype=int)
    H, D = exact_inverse(gram)
    assert (gram.astype(object) @ H == D * np.eye(len(gram), dtype=object)).all()


def test_numbers_beyond_64_bits_stay_exact() -> None:
    n = 12
    matrix = np.random.default_rng(0).integers(-1000, 1000, (n, n))
    H, D = exact_inverse(matrix)
    assert abs(D) > 2**64
    assert (matrix.astype(object) @ H == D * np.eye(n, dtype=object)).all()


def exactly(C: np.ndarray, answers: tuple[Fraction, ...]) -> list[Fraction]:
    return [sum((int(c) * a for c, a in zip(row, answers, strict=True)), Fraction(0)) for row in C]


@given(matrices, st.integers(0, 2**32 - 1))
def test_every_release_meets_its_invariants_exactly(
    problem: tuple[np.ndarray, np.ndarray], seed: int
) -> None:
    """In fractions, for rank-deficient invariants too, whatever the mechanism."""
    A, C = problem
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 10 ** rng.integers(1, 8), A.shape[1])
    budget = BUDGETS[seed % 3]
    neighbours = ("add-remove", "replace")[seed // 3 % 2]
    try:
        found = compare(A, C, budget, neighbours=neighbours)
    except Unsupported:
        assume(False)
    released = [m for m in found.mechanisms if m.releasable]
    assert released
    for mechanism in released:
        m = tb.measure(x, mechanism.strategy, budget, neighbours=neighbours, source=tb.noise.Insecure(seed))
        answers = mechanism.answers(m)
        assert exactly(C, answers.fractions) == (C @ (A @ x)).tolist()
        assert np.allclose(answers.values, [float(f) for f in answers.fractions])


@each("neighbours", ["add-remove", "replace"])
@each("seed", range(2))
def test_without_noise_the_answers_are_the_truth(seed: int, neighbours: str) -> None:
    A, C = random_problem(500 + seed, neighbours=neighbours)
    x = np.random.default_rng(seed).integers(0, 1000, A.shape[1])
    budgets = {tb.ZCDP(10**13): GAUSSIAN, tb.PureDP(10**7): LAPLACE}
    for budget, family in budgets.items():
        for make in family.values():
            mechanism = make(A, C, budget, neighbours=neighbours)
            if mechanism.releasable:
                m = tb.measure(x, mechanism.strategy, budget, neighbours=neighbours)
                assert np.abs(mechanism.answers(m).values - A @ x).max() < 1e-3


def test_what_is_hidden_is_a_function_of_the_noisy_answers_alone() -> None:
    """Definition 2.6 to the last digit: other exact values, the same noisy answers, the same part in null(C)."""
    A, C = random_problem(7, n=6)
    target = ConstrainedQuery.of(A, C, "add-remove")
    scaled = np.random.default_rng(0).integers(-(10**6), 10**6, len(A))
    one = target.meet(scaled, 20, np.zeros(target.rank, int))
    other = target.meet(scaled, 20, np.arange(1, target.rank + 1))
    K = null_basis(target.kept)
    moved = np.array(one.fractions, dtype=object) - np.array(other.fractions, dtype=object)
    assert any(moved)
    assert not any(K @ moved)


@pytest.mark.parametrize("make", [projected_gaussian, extended_gaussian])
def test_a_query_on_a_grid_is_released_and_one_off_it_is_not(make) -> None:
    C, x = np.ones((1, 3), int), np.array([3, 1, 4])
    A = np.array([[0.25, 0.0, 1.0], [0.0, 0.5, 0.0], [0.125, 0.0, 0.0]])
    mechanism = make(A, C, tb.ZCDP("1/2"))
    m = tb.measure(x, mechanism.strategy, mechanism.budget)
    assert sum(mechanism.answers(m).fractions) == Fraction(45, 8)
    rough = make(A / 3, C, tb.ZCDP("1/2"))
    assert not rough.releasable
    with pytest.raises(Unsupported, match="on no grid"):
        rough.answers(m)
    assert rough.squared_error == pytest.approx(mechanism.squared_error / 9)


def test_dependent_invariants_are_named() -> None:
    C = np.array([[1, 1, 0, 0], [0, 0, 1, 1], [2, 2, 1, 1]])
    mechanism = projected_laplace(np.eye(4), C, tb.PureDP(1))
    (relation,) = mechanism.target.dependent
    assert (mechanism.n, mechanism.n_c, relation.row, relation.rows.tolist()) == (4, 2, 2, [0, 1])
    assert relation.coefficients.tolist() == [2 * relation.multiplier, relation.multiplier]


def test_the_ledger_is_told_what_is_read_exactly(tmp_path) -> None:
    mechanism = extended_gaussian(np.eye(3), np.ones((1, 3)), tb.ZCDP("1/2"))
    ledger = tb.Ledger.create(tmp_path / "ledger.db", 1, "zcdp")
    m = tb.measure(np.array([1, 2, 3]), mechanism.strategy, mechanism.budget, ledger=ledger)
    assert m.exact[0].tolist() == [6]
    assert not m.rehearsal


def test_bad_input_says_what_is_wrong() -> None:
    A, C, rho = np.eye(3), np.ones((1, 3)), tb.ZCDP(1)
    with pytest.raises(InvalidArgument, match="4 columns for a query of 3"):
        projected_gaussian(A, np.ones((1, 4)), rho)
    with pytest.raises(InvalidArgument, match="common denominator"):
        projected_gaussian(A, C / 3, rho)
    with pytest.raises(InvalidArgument, match="nan or inf"):
        projected_gaussian(A * np.nan, C, rho)
    with pytest.raises(InvalidArgument, match="matrix of numbers"):
        projected_gaussian(np.ones(3), C, rho)
    with pytest.raises(InvalidArgument, match="replace"):
        projected_gaussian(A, C, rho, neighbours="within")
    with pytest.raises(InvalidArgument, match="pure"):
        projected_gaussian(A, C, tb.PureDP(1))
    with pytest.raises(InvalidArgument, match="gaussian"):
        projected_laplace(A, C, rho)
    with pytest.raises(InvalidArgument, match="PureDP"):
        k_norm(A, C, rho)
    with pytest.raises(Unsupported, match="fix all 3 answers"):
        projected_gaussian(A, np.eye(3), rho)
    with pytest.raises(Unsupported, match="nothing is left"):
        projected_gaussian(np.array([[1, 2], [0, 0]]), np.array([[1, 0]]), rho)
    with pytest.raises(Unsupported, match="no neighbour changes"):
        projected_gaussian(np.ones((2, 3)), np.array([[1, 0]]), rho, neighbours="replace")
    with pytest.raises(Unsupported, match="4,096"):
        projected_gaussian(np.ones((2, 5000)), np.ones((1, 2)), rho)
    with pytest.raises(InvalidArgument, match="orthonormal"):
        extended_laplace(A, C, tb.PureDP(1), basis=np.eye(3)[:, :2])
    mechanism = projected_gaussian(A, C, rho)
    other = extended_gaussian(A, C, rho)
    m = tb.measure(np.zeros(3, int), other.strategy, rho)
    with pytest.raises(InvalidArgument, match="not one of projected Gaussian"):
        mechanism.answers(m)
