"""The block algebra against matrices written out."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabulae.linalg import BlockAlgebra

SIZES = st.lists(st.integers(1, 4), max_size=3).map(tuple)
SEEDS = st.integers(0, 2**32 - 1)


def written_out(algebra: BlockAlgebra, dense: np.ndarray, kept: int) -> np.ndarray:
    """G (x) E_1 (x) ... (x) E_s in natural coordinates."""
    factors = [np.eye(n) if kept >> a & 1 else np.ones((n, n)) for a, n in enumerate(algebra.symmetric)]
    return reduce(np.kron, factors, dense)


def random_sum(rng: np.random.Generator, algebra: BlockAlgebra, rows: int, columns: int):
    """A sum of three terms, as matrices of each kind and written out."""
    kinds = np.zeros((algebra.kinds, rows, columns))
    whole = np.zeros((rows * algebra.cells, columns * algebra.cells))
    for _ in range(3):
        dense, kept = rng.normal(size=(rows, columns)), int(rng.integers(algebra.kinds))
        kinds += algebra.term(dense, kept)
        whole += written_out(algebra, dense, kept)
    return kinds, whole


def natural(algebra: BlockAlgebra, kinds: np.ndarray, x: np.ndarray) -> np.ndarray:
    return algebra.unrotate(algebra.apply(kinds, algebra.rotate(x)))


@given(SIZES, SEEDS)
def test_rotation_is_orthonormal_and_sorts_by_kind(symmetric, seed):
    algebra = BlockAlgebra(symmetric)
    x = np.random.default_rng(seed).normal(size=(2, 3, algebra.cells))
    rotated = algebra.rotate(x)
    assert np.allclose((rotated**2).sum(axis=-1), (x**2).sum(axis=-1))
    assert np.allclose(algebra.unrotate(rotated), x)
    assert np.allclose(rotated[..., 0], x.sum(axis=-1) / np.sqrt(algebra.cells))
    assert algebra.starts[-1] == algebra.cells == algebra.kind_sizes.sum()
    # a table that is constant along an attribute has nothing in the kinds with that attribute
    for a, n in enumerate(symmetric):
        shaped = x.reshape(2, 3, *symmetric)
        flat = np.broadcast_to(shaped.mean(axis=2 + a, keepdims=True), shaped.shape).reshape(x.shape)
        for kind in range(algebra.kinds):
            if kind >> a & 1 and n > 1:
                assert np.allclose(
                    algebra.rotate(flat)[..., algebra.starts[kind] : algebra.starts[kind + 1]], 0
                )


@given(SIZES, SEEDS)
def test_sums_products_and_inverses_are_taken_kind_by_kind(symmetric, seed):
    algebra, rng = BlockAlgebra(symmetric), np.random.default_rng(seed)
    kinds, whole = random_sum(rng, algebra, 2, 3)
    x = rng.normal(size=(4, 3, algebra.cells))
    assert np.allclose(natural(algebra, kinds, x).reshape(4, -1), x.reshape(4, -1) @ whole.T)
    left, whole_left = random_sum(rng, algebra, 2, 2)
    product = natural(algebra, left @ kinds, x).reshape(4, -1)
    assert np.allclose(product, x.reshape(4, -1) @ (whole_left @ whole).T)
    definite = left @ left.swapaxes(-1, -2) + np.eye(2)
    inverse = natural(algebra, np.linalg.inv(definite), x[:, :2]).reshape(4, -1)
    expected = np.linalg.solve(whole_left @ whole_left.T + np.eye(len(whole_left)), x[:, :2].reshape(4, -1).T)
    assert np.allclose(inverse, expected.T)


@pytest.mark.parametrize("k", [1, 3])
def test_a_matrix_for_each_vector(k):
    algebra, rng = BlockAlgebra((2, 3)), np.random.default_rng(5)
    kinds = rng.normal(size=(4, algebra.kinds, k, k))
    x = rng.normal(size=(4, k, algebra.cells))
    found = algebra.apply(kinds, x)
    for row in range(4):
        assert np.allclose(found[row], algebra.apply(kinds[row], x[row]))


@given(SIZES, SEEDS)
def test_squares_give_the_variance_of_an_indicator(symmetric, seed):
    algebra, rng = BlockAlgebra(symmetric), np.random.default_rng(seed)
    kinds, whole = random_sum(rng, algebra, 2, 2)
    sets = [rng.random(n) < 0.6 for n in symmetric]
    weights = rng.normal(size=2)
    chosen = reduce(np.kron, [np.asarray(s, float) for s in sets], weights)
    squares = algebra.squares([int(s.sum()) for s in sets])
    assert np.isclose(squares.sum(), np.prod([s.sum() for s in sets]))
    expected = chosen @ whole @ chosen
    assert np.isclose(sum(q * weights @ m @ weights for q, m in zip(squares, kinds, strict=True)), expected)


def test_squares_of_many_indicators_at_once():
    algebra = BlockAlgebra((3, 4))
    found = algebra.squares([np.array([1, 2, 3]), np.array([4, 1, 2])])
    assert found.shape == (3, 4)
    assert np.allclose(found[1], algebra.squares([2, 1]))


@pytest.mark.parametrize("k", [1, 2, 15])
def test_a_vector_has_the_same_bits_in_any_company(k):
    """Estimates are made in chunks, here and on other machines: what is beside a vector must not show in it."""
    algebra, rng = BlockAlgebra((2, 63)), np.random.default_rng(4)
    x, matrices = rng.normal(size=(40, k, 126)), rng.normal(size=(40, 4, k, k))
    rotated = algebra.rotate(x)
    back, shared, own = (
        algebra.unrotate(rotated),
        algebra.apply(matrices[0], rotated),
        algebra.apply(matrices, rotated),
    )
    for some in (slice(3, 4), slice(7, 9), slice(5, 38)):
        for copy in (np.array(rotated[some]), rotated[some]):
            assert (algebra.unrotate(copy) == back[some]).all()
            assert (algebra.apply(matrices[0], copy) == shared[some]).all()
            assert (algebra.apply(matrices[some], copy) == own[some]).all()
        assert (algebra.rotate(x[some]) == rotated[some]).all()
