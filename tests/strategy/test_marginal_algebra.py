"""The algebra of marginals, theorem by theorem, against dense matrices."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabulae.strategy.information.marginal_algebra import (
    characteristic,
    closed_form,
    eigenvalues,
    equivalent_marginals,
    multiplicities,
    product,
    pseudo_inverse,
    squared_error,
    subset_sum,
    superset_difference,
    superset_sum,
    svd_bound,
    trace,
    weights_of,
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


@given(grams(2))
def test_theorem_7_products(case) -> None:
    """H(a) H(b) = c(a|b) H(a&b), G(u) G(v) = G(X(u) v) and both commute."""
    sizes, u, v = case
    c = characteristic(sizes)
    X = np.zeros((len(u), len(u)))
    for a, b in itertools.product(range(len(u)), repeat=2):
        assert np.allclose(H(sizes, a) @ H(sizes, b), c[a | b] * H(sizes, a & b))
        X[a & b, b] += u[a] * c[a | b]
    assert product(sizes, u, v) == pytest.approx(X @ v, abs=1e-8)
    assert np.allclose(G(sizes, u) @ G(sizes, v), G(sizes, product(sizes, u, v)), atol=1e-8)
    assert product(sizes, u, v) == pytest.approx(product(sizes, v, u), abs=1e-9)


@given(grams(1, 0, 2))
def test_theorem_8_inverses(case) -> None:
    """G(v)^+ for weights of one sign; where the full marginal is measured it is the inverse."""
    sizes, v = case
    inverse = G(sizes, pseudo_inverse(sizes, v)) if v.any() else 0 * G(sizes, v)
    assert np.allclose(inverse, np.linalg.pinv(G(sizes, v), rcond=1e-11, hermitian=True), atol=1e-7)
    if v[-1] > 0.1:
        assert np.allclose(G(sizes, v) @ inverse, np.eye(len(inverse)), atol=1e-7)


@given(grams(1))
def test_theorem_9_eigenvalues(case) -> None:
    """kappa with multiplicities prod (n_i - 1), its eigenmatrices, the way back, and the trace."""
    sizes, v = case
    kappa, times = eigenvalues(sizes, v), multiplicities(sizes).astype(int)
    dense = G(sizes, v)
    assert np.sort(np.repeat(kappa, times)) == pytest.approx(np.linalg.eigvalsh(dense), abs=1e-8)
    for a in range(len(v)):
        inside = zip(sizes, members(a, len(sizes)), strict=True)
        V = kron([np.ones((n, n)) - n * np.eye(n) if i else np.ones((n, 1)) for n, i in inside])
        assert np.allclose(dense @ V, kappa[a] * V, atol=1e-6)
    assert weights_of(sizes, kappa) == pytest.approx(v, abs=1e-8)
    assert trace(sizes, v) == pytest.approx(np.trace(dense), abs=1e-8)


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
def test_theorems_10_and_11_what_marginals_see_of_a_workload(case, seed: int) -> None:
    sizes, W, components = case
    V = W.T @ W
    w = equivalent_marginals(sizes, components)
    u = np.random.default_rng(seed).random(len(w))
    assert np.trace(G(sizes, u) @ V) == pytest.approx(np.trace(G(sizes, u) @ G(sizes, w)), abs=1e-6)
    inverse = np.linalg.inv(G(sizes, u))
    assert squared_error(sizes, u, np.maximum(components, 0)) == pytest.approx(
        np.trace(inverse @ V), rel=1e-6
    )


def test_a_workload_that_is_not_determined_costs_infinitely_much() -> None:
    components = multiplicities([2, 3])
    assert squared_error([2, 3], np.array([1.0, 1, 1, 0]), components) == np.inf


@given(grams(1, 0, 2))
def test_theorem_12_is_the_svd_bound(case) -> None:
    sizes, w = case
    components = multiplicities(sizes) * eigenvalues(sizes, w)
    values = np.linalg.eigvalsh(G(sizes, w))
    nuclear = np.sqrt(np.where(values > 1e-9 * max(values.max(), 1e-9), values, 0.0)).sum()
    assert svd_bound(sizes, components) == pytest.approx(nuclear**2 / np.prod(sizes), rel=1e-6, abs=1e-9)


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
