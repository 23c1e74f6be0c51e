"""Products of integers are exact, whatever route they take."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tabulae.linalg import Dense, Kron, Prefix, Total, integer_matmul


@st.composite
def products(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Two integer matrices whose product fits int64, with entries of any size up to that."""
    m, n, k = (draw(st.integers(1, 5)) for _ in range(3))
    left_bits = draw(st.integers(1, 61))
    right_bits = draw(st.integers(1, max(1, 62 - left_bits - 3)))
    left = draw(st.lists(st.integers(-(2**left_bits) + 1, 2**left_bits - 1), min_size=m * n, max_size=m * n))
    right = draw(
        st.lists(st.integers(-(2**right_bits) + 1, 2**right_bits - 1), min_size=n * k, max_size=n * k)
    )
    return np.array(left, dtype=np.int64).reshape(m, n), np.array(right, dtype=np.int64).reshape(n, k)


@given(products())
def test_integer_matmul_is_exact(pair: tuple[np.ndarray, np.ndarray]) -> None:
    a, x = pair
    exact = a.astype(object) @ x.astype(object)
    if max(abs(value) for value in exact.reshape(-1)) < 2**63:
        assert integer_matmul(a, x).tolist() == exact.tolist()


@given(st.integers(0, 62), st.integers(2, 40))
def test_cancellation_does_not_hide_an_overflow_of_the_parts(bits: int, n: int) -> None:
    """Partial sums pass 2^63 and come back: carries that wrap must wrap back."""
    a = np.ones((1, 2 * n), dtype=np.int64)
    x = np.concatenate([np.full(n, 2**bits), np.full(n, -(2**bits) + 1)])[:, None]
    assert integer_matmul(a, x).item() == n


def test_integers_that_a_float_would_round() -> None:
    x = np.array([2**53 + 1, -(2**53)])
    assert (Total(2) @ x).tolist() == [1]
    assert (Dense([[1, 1]]) @ x).tolist() == [1]
    assert (Kron([Dense([[1, 1]]), Dense([[3]])]) @ x).tolist() == [3]
    assert (Dense([[1.0, 1.0]]) @ x).dtype == np.int64  # entries that are integers are kept as integers


def test_kron_of_large_integers() -> None:
    rng = np.random.default_rng(3)
    factors = [Dense(rng.integers(-(2**8), 2**8, (4, 5))), Prefix(6), Dense(rng.integers(0, 2**9, (3, 4)))]
    op = Kron(factors)
    for bits in (10, 30, 38):  # within 2^53 on the way, and beyond
        x = rng.integers(-(2**bits), 2**bits, (op.shape[1], 2))
        matrix = np.kron(np.kron(factors[0].dense(), factors[1].dense()), factors[2].dense())
        exact = matrix.astype(object) @ x.astype(object)
        answer = op @ x
        assert answer.dtype == np.int64
        assert answer.tolist() == exact.tolist()


def test_norms_beyond_64_bits_are_python_integers() -> None:
    op = Dense([[2**40, 1], [2**40, 3]])
    norms = op.column_norms(2)
    assert norms.dtype == object
    assert norms.tolist() == [2**81, 10]
    product = Kron([op, op])
    assert product.column_norms(2).tolist() == [2**162, 10 * 2**81, 10 * 2**81, 100]
    assert product.sensitivity(2).power == 2**162
    assert Kron([Dense([[2**20]])] * 4).column_norms(2).tolist() == [2**160]
    columns = np.kron(op.dense().astype(object), op.dense().astype(object)).T.tolist()
    for p in (1, 2):
        farthest = max(
            sum(abs(a - b) ** p for a, b in zip(u, v, strict=True)) for u in columns for v in columns
        )
        found = product.sensitivity(p, neighbours="replace")
        assert found.power == farthest if found.is_exact else found.power >= farthest
    assert product.sensitivity(2, neighbours="replace").is_exact
