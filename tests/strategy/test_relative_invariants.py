"""Relative error under invariants: queries of norm 1, restricted to what is left open, against dense matrices."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from tests.domain.exact_instances import DOMAIN, GENERAL, NESTED, margin, projectors
from tests.each import each, pairwise
from tests.strategy.instances import dense_strategy

import tabulae as tb
from tabulae.domain.table import Term
from tabulae.errors import Unsupported
from tabulae.linalg import AllRange, Identity, Prefix
from tabulae.strategy.hdmm.opt0 import opt0_gaussian
from tabulae.strategy.restriction import restrict

EXACT = {**NESTED, **GENERAL}
WORKLOADS = {
    "ranges": tb.Workload(
        DOMAIN,
        [
            tb.Table("x", {"a": Identity(3), "b": Prefix(6), "c": Identity(2)}),
            tb.Table("y", {"b": AllRange(6), "c": tb.Dense([[0, 0], [1, 1], [1, 0]])}, weight="1/2"),
        ],
    ),
    "marginals": tb.Workload(DOMAIN, [margin("ab", "a", "b"), margin("abc", "a", "b", "c"), margin("t")]),
    "sums": tb.Workload(
        DOMAIN,
        [
            margin("abc", "a", "b", "c"),
            tb.Table.of_terms(
                "sum",
                [
                    Term(3, {"a": tb.Total(3), "b": Prefix(6)}),
                    Term(-3, {"a": tb.Dense([[1, 0, 0]]), "b": Prefix(6)}),
                ],
            ),
        ],
    ),
}


def _left_open(workload: tb.Workload, exact: list[tb.Table]) -> np.ndarray:
    """``weight * diag(1/|w|) W Pi_N``, dense; tables that are wholly exact are left out."""
    _, off = projectors(exact)
    parts = []
    for table in workload.tables:
        rows = np.asarray(table.operator(DOMAIN).dense(), dtype=float)
        norms = np.linalg.norm(rows, axis=1)
        rest = rows @ off / np.where(norms > 0, norms, 1.0)[:, None]
        if np.abs(rest).max() > 1e-9:
            parts.append(float(table.weight) * rest)
    return np.vstack(parts)


def _rmse(strategy: tb.Strategy, left: np.ndarray) -> float:
    """At unit noise, by a pseudo-inverse."""
    p = strategy.norm
    scale = np.repeat([float(b.scale) for b in strategy.blocks], [b.rows for b in strategy.blocks])
    A = dense_strategy(strategy) / (np.sqrt(scale) if p == 2 else scale)[:, None]
    inverse = np.linalg.pinv(A, rcond=1e-13)
    np.testing.assert_allclose(left @ inverse @ A, left, atol=1e-6)  # or the strategy does not answer it
    norm = (np.abs(A) ** p).sum(axis=0).max() ** (1 / p)
    return float(norm * np.linalg.norm(left @ inverse) / np.sqrt(len(left)))


def _reached(strategy: tb.Strategy) -> float:
    return min(c.rmse for c in strategy.candidates if c.rmse is not None)


METHODS = ["identity", "opt0", "kron", "union", "marginals", "residual", "hdmm", "eigen"]
NAMES = ["total", "two margins", "recode", "total and a group", "crossed recodes"]
# No groups to nest, groups within groups, groups that cross: they stand for all, which `make test-long` takes.
SHORT = pairwise(
    name=["two margins", "recode", "crossed recodes"],
    workload=WORKLOADS,
    method=["identity", "opt0", "kron", "residual"],
)


@each(*SHORT, long=itertools.product(NAMES, WORKLOADS, METHODS))
def test_the_error_is_that_of_the_dense_matrix(name: str, workload: str, method: str) -> None:
    _check_error(name, workload, method, "gaussian")


@each("name, workload", [("crossed recodes", "sums")], long=[("total", "ranges")])
def test_laplace_error_is_that_of_the_dense_matrix(name: str, workload: str) -> None:
    _check_error(name, workload, "kron", "laplace")


def _check_error(name: str, workload: str, method: str, noise: str) -> None:
    wl, exact = WORKLOADS[workload], EXACT[name]
    strategy = tb.select(wl, noise=noise, method=method, objective="relative", invariants=exact)  # type: ignore[arg-type]
    assert strategy.invariants == tuple(exact)
    assert strategy.sensitivity().power > 0  # an exact number of whole rows
    assert _reached(strategy) == pytest.approx(_rmse(strategy, _left_open(wl, exact)), rel=1e-6)


@each("workload", WORKLOADS)
@each("name", ["total", "two margins", "recode", "crossed recodes"])
def test_the_optimum_is_that_of_the_dense_matrix_and_certified(name: str, workload: str) -> None:
    wl, exact = WORKLOADS[workload], EXACT[name]
    left = _left_open(wl, exact)
    best = tb.select(wl, method="opt0", objective="relative", invariants=exact)
    optimum = opt0_gaussian(left.T @ left, tolerance=1e-5)
    assert best.certificate is not None
    assert best.certificate < 1e-3
    assert _reached(best) ** 2 * len(left) == pytest.approx(optimum.loss, rel=1.5e-3)


@each("name", ["two margins", "crossed recodes"])
@each("method", ["opt0", "kron", "marginals"])
def test_never_worse_than_what_other_ways_choose(name: str, method: str) -> None:
    """Than the strategy for relative error without the invariants, and than the one for the total with them."""
    wl, exact = WORKLOADS["ranges"], EXACT[name]
    left = _left_open(wl, exact)
    found = tb.select(wl, method=method, objective="relative", invariants=exact)
    plain = replace(tb.select(wl, method=method, objective="relative"), invariants=tuple(exact))
    assert _reached(found) <= _rmse(plain, left) * (1 + 1e-4)
    if method == "opt0":
        total = tb.select(wl, method=method, invariants=exact)
        assert _reached(found) < _rmse(total, left)


def test_norms_that_are_no_product_are_served_where_nothing_nests() -> None:
    """Over merged cells every query is a row; sums of products are refused where structure is kept."""
    mixed = tb.Table.of_terms(
        "mixed", [Term(1, {"a": Prefix(3), "b": Identity(6)}), Term(1, {"a": Identity(3), "b": Prefix(6)})]
    )
    wl = tb.Workload(DOMAIN, [mixed])
    for name in ("total", "recode", "crossed recodes"):
        restriction = restrict(wl, EXACT[name])
        if restriction.merges is None:
            with pytest.raises(Unsupported, match="norms that are not a product"):
                tb.select(wl, method="opt0", objective="relative", invariants=EXACT[name])
        else:
            found = tb.select(wl, method="opt0", objective="relative", invariants=EXACT[name])
            assert _reached(found) == pytest.approx(_rmse(found, _left_open(wl, EXACT[name])), rel=1e-6)
