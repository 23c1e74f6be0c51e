"""The algebra of marginals, theorem by theorem, against dense matrices."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabulae.strategy.information.marginal_algebra import (
    closed_form,
    eigenvalues,
    multiplicities,
    squared_error,
    subset_sum,
    superset_difference,
    superset_sum,
)

SIZES = st.lists(st.integers(1, 4), min_size=1, max_size=3)


def numbers(low: float, high: float):
    return st.floats(low, high, allow_subnormal=False).map(lambda x: round(x, 3))


@st.composite
def grams(draw: st.DrawFn, count: int, low: float = -2, high: float = 2):
    """Sizes, and ``count`` vectors of 2^d weights."""
    sizes = draw(SIZES)
    vector = st.lists(numbers(low, high), min_size=2 ** len(sizes), max_size=2 ** len(sizes)).map(np.array)
    return sizes, *[draw(vector) for _ in range(count)]


def members(a: int, d: int) -> list[bool]:
    """Which attributes are in the set a, the first one the highest bit."""
    return [bool(a >> (d - 1 - i) & 1) for i in range(d)]


def kron(factors: list[np.ndarray]) -> np.ndarray:
    return functools.reduce(np.kron, factors, np.ones((1, 1)))


def H(sizes: list[int], a: int) -> np.ndarray:
    inside = zip(sizes, members(a, len(sizes)), strict=True)
    return kron([np.eye(n) if i else np.ones((n, n)) for n, i in inside])


def G(sizes: list[int], v: np.ndarray) -> np.ndarray:
    return sum((x * H(sizes, a) for a, x in enumerate(v)), np.zeros((int(np.prod(sizes)),) * 2))


def E(sizes: list[int], S: int) -> np.ndarray:
    inside = zip(sizes, members(S, len(sizes)), strict=True)
    return kron([np.eye(n) - 1 / n if i else np.full((n, n), 1 / n) for n, i in inside])


@given(grams(1))
def test_transforms_are_sums_over_supersets_and_subsets(case) -> None:
    _, v = case
    sets = range(len(v))
    assert superset_sum(v) == pytest.approx([sum(v[a] for a in sets if a & s == s) for s in sets], abs=1e-9)
    assert subset_sum(v) == pytest.approx([sum(v[s] for s in sets if a & s == s) for a in sets], abs=1e-9)
    assert superset_difference(superset_sum(v)) == pytest.approx(v, abs=1e-9)
    three = np.stack([v, 2 * v, -v], axis=1)
    assert superset_sum(three.ravel(), together=3).reshape(three.shape)[:, 1] == pytest.approx(
        superset_sum(2 * v)
    )


@given(grams(1))
def test_theorem_9_eigenvalues(case) -> None:
    """kappa with multiplicities prod (n_i - 1), and its eigenmatrices."""
    sizes, v = case
    kappa, times = eigenvalues(sizes, v), multiplicities(sizes).astype(int)
    dense = G(sizes, v)
    assert np.sort(np.repeat(kappa, times)) == pytest.approx(np.linalg.eigvalsh(dense), abs=1e-8)
    for a in range(len(v)):
        inside = zip(sizes, members(a, len(sizes)), strict=True)
        V = kron([np.ones((n, n)) - n * np.eye(n) if i else np.ones((n, 1)) for n, i in inside])
        assert np.allclose(dense @ V, kappa[a] * V, atol=1e-6)


@st.composite
def unions(draw: st.DrawFn):
    """Sizes, a random union of products W, and its components tr[E(S) W'W]."""
    sizes = draw(st.lists(st.integers(2, 4), min_size=1, max_size=3))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    W = np.vstack(
        [kron([rng.integers(-1, 2, (rng.integers(1, 4), n)).astype(float) for n in sizes]) for _ in range(3)]
    )
    components = np.array([np.trace(E(sizes, S) @ W.T @ W) for S in range(2 ** len(sizes))])
    return sizes, W, components


@given(unions(), st.integers(0, 10**6))
def test_theorem_11_squared_error(case, seed: int) -> None:
    sizes, W, components = case
    V = W.T @ W
    u = np.random.default_rng(seed).random(len(components))
    inverse = np.linalg.inv(G(sizes, u))
    assert squared_error(sizes, u, np.maximum(components, 0)) == pytest.approx(
        np.trace(inverse @ V), rel=1e-6
    )


def test_a_workload_that_is_not_determined_costs_infinitely_much() -> None:
    components = multiplicities([2, 3])
    assert squared_error([2, 3], np.array([1.0, 1, 1, 0]), components) == np.inf


def svd_bound(sizes: list[int], components: np.ndarray) -> float:
    """Theorem 12."""
    return np.sqrt(np.maximum(components, 0) * multiplicities(sizes)).sum() ** 2 / np.prod(
        np.array(sizes, float)
    )


@given(grams(1, 0, 2))
def test_theorem_13_closed_form(case) -> None:
    """G(v)^2 = G(w) always; where v is not negative its loss is the bound."""
    sizes, w = case
    components = multiplicities(sizes) * eigenvalues(sizes, w)
    v = closed_form(sizes, components)
    if 1 not in sizes:
        assert np.allclose(np.linalg.matrix_power(G(sizes, v), 2), G(sizes, w), atol=1e-6)
    if (v >= 0).all() and w.any() and 1 not in sizes:
        loss = v.sum() * squared_error(sizes, v, components)
        assert loss == pytest.approx(svd_bound(sizes, components), rel=1e-7)


def test_the_closed_form_is_imaginary_for_example_15() -> None:
    """All pairs of (2, 5, 50, 100): the bound 16,410.5 is out of reach of marginals."""
    sizes = [2, 5, 50, 100]
    w = np.array([float(a.bit_count() == 2) for a in range(16)])
    components = multiplicities(sizes) * eigenvalues(sizes, w)
    assert closed_form(sizes, components).min() < 0
    assert svd_bound(sizes, components) == pytest.approx(16410.524, abs=1e-3)
