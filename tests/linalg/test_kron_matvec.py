"""Kronecker products: every route through memory gives the same answer, with at most two vectors."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.each import each

from tabulae.linalg import (
    AllRange,
    Centring,
    Dense,
    Identity,
    Kron,
    LinearOperator,
    Partition,
    Permuted,
    Prefix,
    Scaled,
    Stack,
    Total,
    WidthRange,
    kron_matvec,
)
from tabulae.linalg import arrays as blas
from tabulae.linalg import kron_matvec as kron_plan

RNG = np.random.default_rng(11)


def dense(m: int, n: int) -> Dense:
    return Dense(RNG.normal(size=(m, n)))


def whole(m: int, n: int) -> Dense:
    return Dense(RNG.integers(-3, 4, (m, n)))


def one_after_the_other(ops: list[LinearOperator], x: np.ndarray) -> np.ndarray:
    """The oracle: each dense factor along its own axis, by numpy."""
    sizes = [op.shape[1] for op in ops]
    y = x.reshape(*sizes, -1)
    for axis, op in enumerate(ops):
        y = np.moveaxis(np.tensordot(op.dense(), y, axes=(1, axis)), 0, axis)
    return y.reshape(math.prod(op.shape[0] for op in ops), *x.shape[1:])


PRODUCTS: dict[str, list[LinearOperator]] = {
    "small matrices": [dense(2, 2)] * 14,
    "matrices of ten": [dense(10, 10)] * 5,
    "matrices of 32": [dense(32, 32), dense(32, 32), dense(32, 32), dense(2, 2)],
    "matrices that shrink and grow": [dense(3, 9), dense(20, 5), dense(7, 30), dense(33, 2), dense(4, 4)],
    "large matrices": [dense(70, 60), dense(40, 50), dense(6, 4)],
    "a large matrix before few cells": [dense(4, 4), dense(50, 40), dense(3, 3), Identity(3)],
    "a very large matrix": [dense(3, 3), dense(150, 140), dense(5, 6)],
    "a large matrix at the end": [dense(3, 3), dense(110, 110)],
    "large matrices with few cells after": [dense(140, 140), Identity(20)],
    "prefixes": [Prefix(40), Prefix(70), Prefix(10)],
    "long prefixes": [Identity(3), Prefix(1500), Prefix(9)],
    "a lone axis": [Prefix(2500)],
    "identities between": [Identity(7), Prefix(11), Identity(5), dense(3, 4), Identity(6)],
    "identities only": [Identity(4), Identity(5)],
    "totals": [Total(10), Identity(9), Total(8), Identity(7)],
    "centrings": [Total(4), Centring(30), Centring(9), Total(3), Centring(2)],
    "ranges": [AllRange(9), WidthRange(20, 6), Total(3), AllRange(5)],
    "strategies": [Stack([Scaled(Identity(60), 0.5), dense(4, 60)]), Stack([Identity(50), dense(3, 50)])],
    "partitions": [
        Partition(np.arange(64) % 7),
        Partition(np.arange(30) // 7),
        Permuted(Prefix(20), np.arange(20)[::-1]),
    ],
    "transposes": [Prefix(30).T, AllRange(6).T, Total(5).T, Partition([0, 1, 1, 0]).T],
    "inverses": [Prefix(30).pinv(), AllRange(6).pinv(), WidthRange(12, 5).pinv(), Total(4).pinv()],
}


@pytest.fixture(
    params=["as it is", "small blocks and two threads", pytest.param("one thread", marks=pytest.mark.long)]
)
def blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param != "as it is":
        monkeypatch.setattr(kron_matvec, "_BLOCK", 2**9)
        monkeypatch.setattr(kron_matvec, "_THREADED", 2**8)
        monkeypatch.setattr(kron_matvec, "cores", lambda: 2 if "two" in request.param else 1)
        monkeypatch.setattr(kron_plan, "_GROUP", 2**8)
        monkeypatch.setattr(blas, "_SINGLE_THREAD", 2**9)


@pytest.mark.usefixtures("blocks")
@each("name", list(PRODUCTS))
def test_agrees_with_one_factor_after_the_other(name: str) -> None:
    ops = PRODUCTS[name]
    op = Kron(ops)
    for shape in ((op.shape[1],), (op.shape[1], 3)):
        x = RNG.normal(size=shape)
        expected = one_after_the_other(ops, x)
        answer = op @ x
        assert answer.shape == expected.shape
        assert answer.flags.writeable
        np.testing.assert_allclose(answer, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())
    x, y = RNG.normal(size=op.shape[1]), RNG.normal(size=op.shape[0])
    assert (op @ x) @ y == pytest.approx(x @ (op.T @ y), rel=1e-8, abs=1e-6)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("bits", [5, 38], ids=["in floats", "in integers"])
def test_integers_are_exact_on_every_route(bits: int) -> None:
    for ops in (
        [whole(5, 5), Prefix(7), whole(6, 4), Total(3), whole(2, 9)],
        [whole(40, 40), Identity(3), whole(5, 5)],
        [Partition(np.arange(40) % 9), AllRange(5), WidthRange(9, 4), Identity(2)],
    ):
        op = Kron(ops)
        x = RNG.integers(-(2**bits), 2**bits, op.shape[1])
        answer = op @ x
        assert answer.dtype == np.int64
        np.testing.assert_array_equal(answer, one_after_the_other(ops, x.astype(object)).astype(np.int64))


@st.composite
def random_products(draw: st.DrawFn) -> list[LinearOperator]:
    ops: list[LinearOperator] = []
    for _ in range(draw(st.integers(1, 5))):
        n = draw(st.sampled_from([1, 2, 3, 5, 9, 17]))
        choice = draw(st.integers(0, 6))
        if choice == 0:
            ops.append(Dense(np.random.default_rng(n).normal(size=(draw(st.integers(1, 12)), n))))
        else:
            known = [Identity(n), Prefix(n), Total(n), AllRange(n), Prefix(n).T, WidthRange(n, (n + 1) // 2)]
            ops.append(known[choice - 1])
        if math.prod(max(op.shape) for op in ops) > 50_000:
            ops.pop()
    return ops or [Identity(1)]


@given(ops=random_products(), columns=st.sampled_from([None, 1, 2, 20]), seed=st.integers(0, 9))
def test_random_products(ops: list[LinearOperator], columns: int | None, seed: int) -> None:
    op, rng = Kron(ops), np.random.default_rng(seed)
    x = rng.normal(size=op.shape[1] if columns is None else (op.shape[1], columns))
    expected = one_after_the_other(ops, x)
    np.testing.assert_allclose(op @ x, expected, rtol=1e-9, atol=1e-9 * max(1, np.abs(expected).max()))


@given(ops=random_products())
def test_mixed_product_rule(ops: list[LinearOperator]) -> None:
    """``(A (x) B)(C (x) D) = AC (x) BD``: with the inverse, a projection factor by factor."""
    op = Kron(ops)
    x = np.random.default_rng(0).normal(size=op.shape[1])
    projected = op.pinv() @ (op @ x)
    expected = Kron([Dense(member.pinv().dense() @ member.dense()) for member in ops]) @ x
    np.testing.assert_allclose(projected, expected, atol=1e-7)


@pytest.mark.parametrize(
    "ops",
    [
        [dense(20, 20)] * 5,
        [dense(160, 160)] * 3,
        [Prefix(160)] * 3,
        [Prefix(160).T, WidthRange(160, 30), dense(150, 150)],
        [Stack([Scaled(Identity(150), 0.5), dense(8, 150)])] * 3,
        [Prefix(4 * 10**6)],
        [Total(4), Identity(10000), Prefix(100)],
        [Identity(4000), WidthRange(1000, 10)],
        [AllRange(12), dense(100, 100), AllRange(12), dense(30, 30)],
    ],
    ids=repr,
)
def test_two_vectors_at_most(ops: list[LinearOperator]) -> None:
    op = Kron(ops)
    x = np.ones(op.shape[1])
    _ = op @ x  # whatever the factors keep for later
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    answer = op @ x
    peak = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    vector = max(x.nbytes, answer.nbytes)
    assert peak <= 2 * vector + 24 * 2**20  # blocks of every thread, and 16 MiB that are never touched


@pytest.mark.parametrize(
    "ops",
    [[Prefix(432)], [Total(6)] * 4, [Prefix(18), AllRange(12)], [Identity(3), Total(432)]],
    ids=str,
)
@pytest.mark.parametrize("columns", [None, 3])
def test_sums_beyond_exact_floats_of_entries_below_are_exact(
    ops: list[LinearOperator], columns: int | None
) -> None:
    """Each entry fits a float and their sums do not: what counts is the sum along the matrix."""
    op = Kron(ops)
    n = op.shape[1]
    x = np.random.default_rng(7).integers(2**52, 2**53, size=(n,) if columns is None else (n, columns))
    x = x // 36**2 * 600 + 1  # 36^2 of them stay below 2^63
    dense = op.dense().astype(object)
    assert (op @ x).tolist() == (dense @ x.astype(object)).tolist()
