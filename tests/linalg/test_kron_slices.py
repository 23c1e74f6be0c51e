"""Products worked through in slices: the same numbers as those of the whole vector, in little memory."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from tests.each import each

from tabulae.linalg import AllRange, Dense, Identity, Kron, Prefix, RowScaled, Stack, Total, kron
from tabulae.linalg import kron as kron_slices
from tabulae.linalg.kron import in_slices, multiply_slices, split_kron

RNG = np.random.default_rng(10)


def whole(m: int, n: int) -> Dense:
    return Dense(RNG.integers(-9, 10, size=(m, n)))


def real(m: int, n: int) -> Dense:
    return Dense(RNG.normal(size=(m, n)))


PRODUCTS = {
    "integers": [whole(6, 5), whole(8, 8), whole(7, 9)],
    "square": [real(6, 6), real(9, 9), real(12, 12)],
    "growing": [real(9, 6), real(11, 9), real(13, 12)],
    "shrinking a little": [real(19, 20), real(8, 9), real(11, 12)],
    "head shrinks, tail does not": [real(2, 60), real(9, 9), whole(10, 10)],
    "head shrinks integers": [Total(60), Identity(30), Prefix(20)],
    "identities first": [Identity(60), Prefix(30)],
    "two factors in the head": [Prefix(5), Prefix(50), Prefix(40)],
    "p-Identity": [Stack([RowScaled(Identity(8), RNG.random(8) + 0.1), real(2, 8)])] * 3,
    "ranges": [AllRange(5), Total(6), AllRange(9)],
}


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kron_slices, "_SLICE", 2**9)
    monkeypatch.setattr(kron_slices, "_BLOCK", 2**8)
    monkeypatch.setattr(kron_slices, "_BLAS_BLOCK", 2**8)


@each("name", list(PRODUCTS))
@each("kind", [np.int64, np.float64])
def test_slices_give_what_the_whole_vector_gives(name: str, kind: type) -> None:
    op = Kron(PRODUCTS[name])
    x = RNG.integers(0, 1000, size=op.shape[1]).astype(kind)
    assert split_kron(op) is not None, "the product is meant to be split_kron"
    made, expected = in_slices(op, x, np.dtype(kind)), op @ x
    assert made is not None
    assert made.dtype == expected.dtype
    if made.dtype == np.int64:
        assert np.array_equal(made, expected)
    else:
        assert made == pytest.approx(expected, rel=1e-10, abs=1e-10 * np.abs(expected).max())


def test_integers_past_what_floats_hold_are_exact() -> None:
    """The answers need 60 bits; the head's part of them is done in limbs."""
    factors = [Dense(RNG.integers(0, 2**17, size=(8, 8))) for _ in range(3)]
    op = Kron(factors)
    x = RNG.integers(0, 2, size=op.shape[1])
    exact = x.astype(object).reshape(8, 8, 8)
    for axis, factor in enumerate(factors):
        exact = np.moveaxis(np.tensordot(factor.dense().astype(object), exact, (1, axis)), 0, axis)
    made = in_slices(op, x, x.dtype)
    assert made is not None
    assert max(exact.reshape(-1)) > 2**54
    assert made.tolist() == exact.reshape(-1).tolist()


def test_a_product_without_a_small_tail_is_not_divided() -> None:
    assert split_kron(Kron([Prefix(10), Prefix(1000)])) is None
    assert in_slices(Kron([Prefix(10), Prefix(1000)]), np.ones(10_000), np.dtype(float)) is None


@pytest.mark.parametrize("name", ["square", "integers", "growing", "head shrinks, tail does not"])
def test_large_vectors_take_the_slices_by_themselves(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    op, calls = Kron(PRODUCTS[name]), []
    x = RNG.integers(0, 50, size=op.shape[1])
    expected = op @ x.astype(np.float64)
    monkeypatch.setattr(kron, "_LARGE", 2)
    monkeypatch.setattr(kron, "_LARGE_INTEGERS", 2)
    real_one = multiply_slices
    monkeypatch.setattr(kron_slices, "multiply_slices", lambda *a: calls.append(1) or real_one(*a))
    for made in (op @ x.astype(np.float64), op.as_floats(x)):
        assert made.dtype == np.float64
        assert made == pytest.approx(expected, rel=1e-10, abs=1e-9)
    assert len(calls) >= 2


@pytest.mark.parametrize("factor", ["square", "p-Identity", "its inverse"])
def test_beside_the_vector_there_is_only_the_result(factor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kron_slices, "_SLICE", 2**14)
    matrix = {"square": real(20, 20), "p-Identity": real(21, 20), "its inverse": real(20, 21)}[factor]
    op = Kron([matrix] * 5)
    x = np.ones(op.shape[1], dtype=np.int64)
    tracemalloc.start()
    made = in_slices(op, x, np.dtype(np.float64))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert made is not None
    assert peak < 1.2 * max(made.nbytes, 8 * op.shape[0]), "a second vector was held"
