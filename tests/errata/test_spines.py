"""Formulas of Geographic Spines that do not hold as printed, on small dense trees (docs/errata.md)."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

LEVELS = (np.ones((1, 4)), np.kron(np.eye(2), np.ones((1, 2))), np.eye(4))


def loss(shares: tuple[float, ...], epsilon: float = 1.0) -> float:
    """Pure loss of replacing a record, one query a level, Laplace noise of scale 2 / (epsilon share)."""
    moved = np.array([1.0, 0.0, 0.0, -1.0])  # in every level but the root's
    return sum(
        float(np.abs(A @ moved).sum()) / (2 / (epsilon * b)) for A, b in zip(LEVELS, shares, strict=True)
    )


def test_theorem_1_needs_shares_that_add_up_to_one() -> None:
    """As printed, sum_l beta[l] has no right-hand side; with shares of 1 each the loss is twice epsilon."""
    assert loss((0.2, 0.4, 0.4)) <= 1
    assert loss((1.0, 1.0, 1.0)) == pytest.approx(2)


def test_equation_18_needs_the_transpose() -> None:
    """(S'S)^-1 S z has no shape for a tall S, and other values for a square one; with S'z it is least squares."""
    rng = np.random.default_rng(0)
    tall, z = rng.normal(size=(7, 4)), rng.normal(size=7)
    gram = np.linalg.inv(tall.T @ tall)
    with pytest.raises(ValueError, match="matmul"):
        _ = gram @ (tall @ z)
    assert np.allclose(gram @ tall.T @ z, np.linalg.lstsq(tall, z)[0])
    square, z = np.array([[1.0, 1.0], [0.0, 1.0]]), np.array([1.0, 2.0])
    printed = np.linalg.inv(square.T @ square) @ square @ z
    assert not np.allclose(printed, np.linalg.lstsq(square, z)[0])


def bypass_gain(parent: float, child: float, sizes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """The matrix D of Theorem 2's proof for children of these sizes, and the averaging T whose columns are t_i."""
    group = np.repeat(np.arange(len(sizes)), sizes)
    same = group[:, None] == group[None, :]
    D = parent * np.where(same, 2 * child, -parent)
    T = np.array([(group == i) / n for i, n in enumerate(sizes)]).T
    return D, T


def test_the_proof_of_theorem_2_reduces_to_one_row_a_child() -> None:
    """T'DT and not TDT', which has no shape; it is D' with ones of length c, the number of children."""
    parent, child, sizes = 0.3, 0.5, (1, 3, 2)
    D, T = bypass_gain(parent, child, sizes)
    with pytest.raises(ValueError, match="matmul"):
        _ = T @ D @ T.T
    c = len(sizes)
    reduced = (2 * child * parent + parent**2) * np.eye(c) - parent**2 * np.ones((c, c))
    assert np.allclose(T.T @ D @ T, reduced)
    assert np.linalg.eigvalsh(reduced)[0] == pytest.approx(2 * child * parent - (c - 1) * parent**2)


def test_remark_1_leaves_out_a_factor() -> None:
    """Laplace noise of scale 2 / (epsilon gamma) has variance 8 / (epsilon gamma)^2, not 2 / gamma^2."""
    epsilon, gamma = 0.7, 0.3
    variance = float(stats.laplace(scale=2 / (epsilon * gamma)).var())
    assert variance == pytest.approx(8 / (epsilon * gamma) ** 2)
    assert variance == pytest.approx(4 / epsilon**2 * (2 / gamma**2)), (
        "the same factor everywhere: its comparison stands"
    )


def test_theorem_3_counts_the_last_unit_of_a_level() -> None:
    """T[l] with u < U[l] leaves it out: whoever lives there would cost nothing in any level."""
    shares = (0.2, 0.4, 0.4)
    for keep_last, lowest in ((True, 1.0), (False, 0.0)):
        kept = [A if keep_last else A[:-1] for A in LEVELS]
        paths = sum(b * A.sum(axis=0) for A, b in zip(kept, shares, strict=True))
        assert float(np.min(paths)) == pytest.approx(lowest)


def test_theorem_3_adds_up_columns() -> None:
    """W'diag(alpha)1 = W'alpha are column sums of diag(alpha)W, all 1; its row sums are not."""
    W = np.vstack([np.ones((1, 3)), np.eye(3)])
    alpha = np.array([0.25, 0.75, 0.75, 0.75])
    weighted = np.diag(alpha) @ W
    assert np.allclose(weighted.sum(axis=0), 1)
    assert np.allclose(W.T @ alpha, weighted.sum(axis=0))
    assert not np.allclose(weighted.sum(axis=1), 1)
