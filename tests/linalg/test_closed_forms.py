"""Closed forms of the range queries, and that they stay small and fast where the matrix is neither."""

from __future__ import annotations

import time
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
from tests.each import each

from tabulae.linalg import AllRange, Kron, LinearOperator, Permuted, Prefix, Scaled, Stack, Total, WidthRange

RNG = np.random.default_rng(7)


def brute_pair_distance(matrix: np.ndarray, p: int) -> int:
    return max(int((np.abs(one - other) ** p).sum()) for one in matrix.T for other in matrix.T)


def test_rows_of_ranges_come_in_lexicographic_order() -> None:
    n = 5
    rows = [[int(i <= k <= j) for k in range(n)] for i in range(n) for j in range(i, n)]
    assert AllRange(n).dense().tolist() == rows
    assert WidthRange(n, 3).dense().tolist() == [[int(i <= k < i + 3) for k in range(n)] for i in range(3)]
    assert Prefix(n).dense().tolist() == np.tril(np.ones((n, n), dtype=int)).tolist()


@each("n", range(1, 14))
def test_sensitivities_of_ranges(n: int) -> None:
    ops: list[LinearOperator] = [
        Prefix(n),
        AllRange(n),
        Total(n),
        *(WidthRange(n, w) for w in range(1, n + 1)),
    ]
    for op in ops:
        matrix = op.dense()
        for p in (1, 2):
            assert op.pair_distance_max(p) == brute_pair_distance(matrix, p), (op, p)
            assert op.sensitivity(p).power == (matrix**p).sum(axis=0).max()
            assert op.sensitivity(p, neighbours="replace").power == brute_pair_distance(matrix, p)


def test_all_ranges_of_4096_never_become_a_matrix() -> None:
    n = 4096
    op = AllRange(n)
    x = RNG.integers(0, 1000, n)
    tracemalloc.start()
    began = time.perf_counter()
    assert op.shape == (n * (n + 1) // 2, n)
    assert op.sensitivity(2).power == op.sensitivity(1).power == (n // 2) * (n // 2 + 1)
    assert op.sensitivity(1, neighbours="replace").power == (n // 2) * (n + 1 - n // 2)
    y = op @ x
    back = op.pinv() @ y.astype(np.float64)
    taken, peak = time.perf_counter() - began, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert y.dtype == np.int64
    sums = np.concatenate([[0], np.cumsum(x)])
    first, last = np.triu_indices(n)
    np.testing.assert_array_equal(y, sums[last + 1] - sums[first])
    np.testing.assert_allclose(back, x, atol=1e-5)
    assert (
        peak < 3.5 * y.nbytes
    )  # the answers, their float copy, and what one product needs; the matrix: 4096 times
    assert taken < 20  # seconds; about one on an idle core


def test_gram_of_all_ranges_in_linear_time() -> None:
    n = 4096
    gram = AllRange(n).gram()
    i, j = RNG.integers(0, n, (2, 50))
    picked = gram.columns(j)[i, np.arange(50)]
    np.testing.assert_array_equal(picked, np.minimum((i + 1) * (n - j), (j + 1) * (n - i)))
    large = AllRange(10**6).gram()
    x = np.zeros(10**6)
    x[[0, 999_999]] = 1
    np.testing.assert_allclose((large @ x)[[0, 499_999]], [1e6 + 1, 1e6 + 1], rtol=1e-12)


def test_the_inverse_gram_of_all_ranges_is_tridiagonal() -> None:
    inverse = AllRange(9).gram().pinv()
    expected = (2 * np.eye(9) - np.eye(9, k=1) - np.eye(9, k=-1)) / 10
    np.testing.assert_allclose(inverse.dense(), expected, atol=1e-15)
    np.testing.assert_allclose(inverse.dense() @ AllRange(9).gram().dense(), np.eye(9), atol=1e-12)


def test_the_inverse_of_prefix_takes_differences() -> None:
    inverse = Prefix(5).pinv()
    assert inverse.integer
    np.testing.assert_array_equal(inverse @ np.array([1, 3, 6, 10, 15]), [1, 2, 3, 4, 5])


@pytest.mark.parametrize(("n", "width"), [(1024, 32), (1000, 37), (4096, 5), (2000, 1500)])
def test_inverse_of_windows_at_sizes_where_the_normal_equations_lose_digits(n: int, width: int) -> None:
    op = WidthRange(n, width)
    inverse = op.pinv()
    y = RNG.normal(size=op.shape[0])
    x = inverse @ y
    scale = np.abs(x).max()
    np.testing.assert_allclose(op @ x, y, atol=1e-11 * scale * width)  # a solution, for A has full row rank
    periodic = RNG.normal(size=width)
    null = np.resize(periodic - periodic.mean(), n)  # A null = 0
    np.testing.assert_allclose(op @ null, 0, atol=1e-12 * n)
    assert abs(x @ null) < 1e-9 * np.linalg.norm(x) * np.linalg.norm(null)  # and the shortest one
    z = RNG.normal(size=n)
    assert inverse.T @ z @ y == pytest.approx(z @ x, rel=1e-9, abs=1e-7 * scale)


def test_structure_survives_composition() -> None:
    order = RNG.permutation(4096)
    op = Permuted(AllRange(4096), order)
    assert op.sensitivity(1, neighbours="replace").is_exact
    assert op.sensitivity(2).power == AllRange(4096).sensitivity(2).power
    scaled = Scaled(AllRange(4096), Fraction(1, 3)).sensitivity(2, neighbours="replace")
    assert scaled.power == AllRange(4096).sensitivity(2, neighbours="replace").power / 9
    product = Kron([Total(10**6), AllRange(4096), Total(10**6)])
    assert product.sensitivity(1).power == AllRange(4096).sensitivity(1).power
    assert product.sensitivity(1, neighbours="replace").is_exact
    stacked = Stack([AllRange(64), Prefix(64)])
    assert stacked.sensitivity(1).power == max((j + 1) * (64 - j) + 64 - j for j in range(64))


def test_long_prefixes_and_their_transposes() -> None:
    for n in (63, 64, 65, 97, 1000):
        for right in (1, 20, 700):
            x = RNG.integers(-(2**40), 2**40, (2, n, right))
            np.testing.assert_array_equal(Prefix(n).along(x), np.cumsum(x, axis=1))
            np.testing.assert_array_equal(Prefix(n).along_T(x), np.cumsum(x[:, ::-1], axis=1)[:, ::-1])
