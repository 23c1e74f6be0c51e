"""Lower bounds under replace-one neighbours: against dense algebra, each other, and what strategies reach."""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tests.each import each
from tests.strategy.gram_terms import dense, marginals
from tests.strategy.instances import BUDGETS, WORKLOADS, selected

import tabulae as tb
from tabulae.errors import InvalidArgument, Unsupported
from tabulae.strategy.bounds.dual import (
    dual_bound,
    lattice_pair_bound,
    opt0_pairs,
    pair_bound,
    pair_rows_bound,
    pair_svd_bound,
    product_pair_bound,
    product_pair_svd_bound,
)
from tabulae.strategy.bounds.lower import unit_bound
from tabulae.strategy.methods import SINGLE
from tabulae.strategy.strategy import unit_rmse

workloads = st.integers(2, 6).flatmap(
    lambda n: st.integers(1, 7).flatmap(lambda m: arrays(np.float64, (m, n), elements=st.integers(-3, 3)))
)


def loss(W, A, p):
    distance = (np.abs(A[:, :, None] - A[:, None, :]) ** p).sum(axis=0).max() ** (1 / p)
    return distance**2 * np.square(W @ np.linalg.pinv(A)).sum()


@given(workloads)
def test_equal_weights_give_the_singular_values_beside_the_total(W):
    n = W.shape[1]
    centred = W - W.mean(axis=1, keepdims=True)
    expected = 2 / (n - 1) * np.linalg.svd(centred, compute_uv=False).sum() ** 2
    bound = pair_svd_bound(W.T @ W)
    assert bound <= expected * (1 + 1e-13)
    assert bound == pytest.approx(expected, rel=1e-6, abs=1e-6)
    by_rows = pair_rows_bound(W @ W.T, W.sum(axis=1), n)
    assert by_rows == pytest.approx(expected, rel=1e-6, abs=1e-6)
    assert by_rows <= expected * (1 + 1e-13)


@given(workloads, st.data())
def test_no_strategy_beats_a_bound_by_weights_of_pairs(W, data):
    n = W.shape[1]
    half = data.draw(arrays(np.float64, (n, n), elements=st.floats(0, 10)))
    mu = half + half.T
    np.fill_diagonal(mu, 0.0)
    if mu.max() < 1e-3:
        return
    bound = pair_bound(W.T @ W, mu)
    noise = data.draw(arrays(np.float64, (n, n), elements=st.floats(-1, 1)))
    for A in (np.eye(n), np.vstack([np.eye(n), W]), np.eye(n) + 0.1 * noise / n + 5 / n):
        assert bound <= loss(W, A, 2) * (1 + 1e-9)
        assert bound <= loss(W, A, 1) * (1 + 1e-9)


def test_weights_must_be_weights():
    for bad in (np.zeros((3, 3)), np.eye(3), -np.ones((3, 3)), np.ones((2, 2)), np.triu(np.ones((3, 3)))):
        with pytest.raises(InvalidArgument):
            pair_bound(np.eye(3), bad)


@pytest.mark.parametrize("n", [2, 7, pytest.param(40, marks=pytest.mark.long)])
def test_bound_holds_in_exact_arithmetic(n):
    """Prefix sums with equal weights, against 40 digits: never above, and below by next to nothing."""
    V = np.array([[n - max(i, j) for j in range(n)] for i in range(n)], dtype=float)
    with mpmath.workdps(40):
        centre = mpmath.eye(n) - mpmath.ones(n) / n
        values = mpmath.eigsy(centre * mpmath.matrix(V.tolist()) * centre, eigvals_only=True)
        exact = mpmath.mpf(2) / (n - 1) * sum(mpmath.sqrt(abs(v)) for v in values) ** 2
        bound = pair_svd_bound(V)
        assert bound <= exact
        assert bound >= exact * (1 - mpmath.mpf("1e-7"))


@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.data())
@settings(deadline=None)
def test_lattice_bound_is_the_optimum_of_marginals(sizes, data):
    subsets = [s for k in range(len(sizes) + 1) for s in itertools.combinations(range(len(sizes)), k)]
    chosen = data.draw(st.lists(st.sampled_from(subsets), min_size=1, unique=True))
    terms = marginals(sizes, {s: data.draw(st.floats(0.1, 5)) for s in chosen})
    bound = lattice_pair_bound(terms)
    if not any(sizes[i] > 1 for s in chosen for i in s):
        assert bound <= 1e-9
        return
    best = opt0_pairs(dense(terms), tolerance=1e-5)
    assert bound <= best.loss
    assert bound == pytest.approx(best.loss, rel=3e-5)


def test_lattice_bound_at_many_attributes_meets_the_residual_planner():
    """The planner's closed form under replace is optimal for marginals: the certificate is rounding only."""
    domain = tb.Domain({f"a{i}": n for i, n in enumerate((2, 3, 5, 7, 4, 2, 9, 6))})
    wl = tb.Workload.marginals(domain, ways=[0, 1, 2])
    planner = tb.select(wl, method="residual", neighbours="replace")
    assert planner.certificate is not None
    assert planner.certificate < 1e-4


def test_lattice_refuses_what_is_not_marginal():
    prefix = np.tril(np.ones((4, 4)))
    with pytest.raises(Unsupported):
        lattice_pair_bound([(1.0, [prefix.T @ prefix]), (1.0, [np.eye(4)])])


@given(st.data())
def test_products_of_bounds_are_below_the_optimum_of_the_product(data):
    factors = []
    for n in data.draw(st.lists(st.integers(2, 4), min_size=1, max_size=2)):
        W = data.draw(arrays(np.float64, (n + 1, n), elements=st.integers(-2, 2)))
        factors.append(W.T @ W + 0.01 * np.eye(n))
    best = opt0_pairs(dense([(1.0, factors)]), tolerance=1e-5).loss
    pairs = [opt0_pairs(V).lower for V in factors]
    columns = [dual_bound(V, np.ones(len(V))) for V in factors]
    assert product_pair_bound(columns, pairs) <= best
    assert product_pair_svd_bound(factors) <= best


def test_a_product_of_cells_reaches_equal_weights():
    """Cells of a table: 2 (N - 1), the error of all cells but for a public total."""
    assert product_pair_svd_bound([np.eye(3), np.eye(5)]) == pytest.approx(2 * 14, rel=1e-9)
    assert product_pair_svd_bound([np.eye(1)]) == 0.0


NEIGHBOURS = ("add-remove", "replace")
SHORT = [("one product", "gaussian", "replace")]


@each("workload, noise, neighbours", SHORT, long=itertools.product(WORKLOADS, BUDGETS, NEIGHBOURS))
def test_no_method_beats_a_bound(workload, noise, neighbours):
    wl, budget = WORKLOADS[workload], BUDGETS[noise]
    bounds = [
        tb.lower_bound(wl, noise, budget=budget, kind=kind, neighbours=neighbours) for kind in ("svd", "dual")
    ]
    assert 0 < bounds[0] <= bounds[1] * (1 + 1e-3)
    served = 0
    for method in SINGLE:
        try:
            strategy = selected(workload, noise, method, neighbours)
        except Unsupported:
            continue
        served += 1
        rmse = strategy.error(wl, budget, neighbours=neighbours).rmse
        assert rmse >= max(bounds) * (1 - 1e-9), method
        if strategy.lower is not None:
            unit = unit_rmse(strategy, wl, neighbours) ** 2 * wl.queries
            assert unit >= strategy.lower * (1 - 1e-9), method
        if noise == "gaussian":
            assert strategy.certificate is not None
            assert strategy.certificate >= rmse**2 / bounds[1] ** 2 - 1 - 1e-3 or method == strategy.method
    assert served >= 4


@pytest.mark.long
def test_bounds_of_large_domains_under_replace():
    """One product, marginals and a union that fits in its rows, none of which can be listed."""
    domain = tb.Domain({"a": 100, "b": 60, "c": 20})
    product = tb.Workload(domain, [tb.Table("t", {"a": tb.Prefix(100), "b": tb.AllRange(60)})])
    tables = tb.Workload.marginals(domain, ways=[0, 1, 2])
    union = tb.Workload(
        domain,
        [tb.Table("u", {"a": tb.Prefix(100), "c": tb.Identity(20)}), tb.Table("v", {"b": tb.AllRange(60)})],
    )
    for wl in (product, tables, union):
        svd = unit_bound(wl, "svd", "replace")
        assert svd is not None
        for method in ("kron", "identity"):
            strategy = tb.select(wl, method=method, neighbours="replace")
            assert svd <= unit_rmse(strategy, wl, "replace") ** 2 * wl.queries
            assert strategy.certificate is not None
    dual = unit_bound(product, "dual", "replace")
    assert dual is not None
    assert dual >= unit_bound(product, "svd", "replace") * (1 - 1e-3)  # type: ignore[operator]


def test_only_the_total_is_free_under_replace():
    wl = tb.Workload(tb.Domain({"a": 4}), [tb.Table("n", {})])
    assert unit_bound(wl, "svd", "replace") == 0.0
    assert math.isclose(tb.lower_bound(wl, budget=tb.ZCDP(1), neighbours="replace"), 0.0)


@pytest.mark.parametrize("kind", ["svd", "dual"])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_a_weight_multiplies_a_bound_once(neighbours, kind):
    domain = tb.Domain({"a": 3, "b": 4})
    factors = {"a": tb.Prefix(3), "b": tb.AllRange(4)}
    once, twice = (tb.Workload(domain, [tb.Table("t", factors, weight=w)]) for w in (1, 2))
    one, two = (unit_bound(w, kind, neighbours) for w in (once, twice))
    assert two == pytest.approx(4 * one, rel=1e-5)
