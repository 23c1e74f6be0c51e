"""The volume bound for Laplace noise: volumes by Qhull, densities, and strategies that must not beat it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial import ConvexHull
from tests.each import each

import tabulae as tb
from tabulae.errors import Unsupported
from tabulae.strategy.bounds.lower import hull_volume_bound, unit_bound, volume_bound
from tabulae.strategy.gram import dense_grams
from tabulae.strategy.hdmm.opt0 import opt0_gaussian
from tabulae.strategy.methods import SINGLE

NEIGHBOURS = ("add-remove", "replace")


def tables_of(
    sizes: tuple[int, ...], matrices: dict[int, np.ndarray] | None = None
) -> tuple[list, np.ndarray]:
    """Terms of one table for each attribute (its cells, or a matrix), and all rows written out."""
    terms, rows = [], []
    for i, n in enumerate(sizes):
        A = np.eye(n) if matrices is None else matrices[i]
        factors = [A if i == j else np.ones((1, m)) for j, m in enumerate(sizes)]
        terms.append((1.0, [F.T @ F for F in factors]))
        whole = np.ones((1, 1))
        for F in factors:
            whole = np.kron(whole, F)
        rows.append(whole)
    return terms, np.vstack(rows)


def by_qhull(W: np.ndarray, neighbours: str) -> float:
    """The pure volume bound in an orthonormal basis of W's row space, its hull measured by Qhull."""
    if neighbours == "replace":
        W = W - W.mean(axis=1, keepdims=True)
    _, values, basis = np.linalg.svd(W, full_matrices=False)
    points = (values[:, None] * basis)[values > 1e-9 * values[0]].T
    if neighbours == "replace":
        points = (points[:, None] - points[None]).reshape(-1, points.shape[1])
    k = points.shape[1]
    volume = ConvexHull(np.vstack([points, -points])).volume
    ball = math.pi ** (k / 2) / math.gamma(k / 2 + 1)
    return k * (k + 1) / 2 * (volume / ball) ** (2 / k)


RNG = np.random.default_rng(2)


@each("neighbours", NEIGHBOURS)
@each(
    ("sizes", "matrices"),
    [
        ((2, 2, 2), None),
        ((2, 2, 2, 2), None),
        ((3, 3), None),
        ((3, 2, 2), None),
        ((3, 3), {0: np.tril(np.ones((3, 3))), 1: RNG.normal(size=(4, 3))}),
    ],
    ids=str,
)
def test_volume_is_that_of_the_hull(sizes, matrices, neighbours):
    """Never below the pure volume bound by more than the lower sum costs; above it only by the split."""
    terms, W = tables_of(sizes, matrices)
    bound = volume_bound(terms, neighbours)
    assert bound is not None
    pure = by_qhull(W, neighbours)
    assert bound >= pure * (1 - 2e-3)
    centred = W - W.mean(axis=1, keepdims=True) if neighbours == "replace" else W
    share = 2 / (W.shape[1] - 1) if neighbours == "replace" else 1 / W.shape[1]
    svd = share * np.linalg.svd(centred, compute_uv=False).sum() ** 2
    assert max(pure * (1 - 2e-3), svd * (1 - 1e-2)) <= bound <= pure + svd


@given(st.sampled_from([(2, 2), (2, 2, 2), (3, 2), (2, 3, 2)]), st.integers(0, 10**6), st.integers(0, 3))
def test_no_matrix_of_unit_l1_columns_beats_it(sizes, seed, kind):
    rng = np.random.default_rng(seed)
    terms, W = tables_of(sizes, {i: rng.normal(size=(n + 1, n)) for i, n in enumerate(sizes)})
    n = W.shape[1]
    tables = tables_of(sizes)[1]
    A = [
        np.vstack([np.eye(n), rng.random((2, n))]),
        np.vstack([tables, 1e-3 * np.eye(n)]),
        np.vstack([tables * rng.random((len(tables), 1)), 0.1 * np.eye(n)]),
        rng.normal(size=(n + 3, n)),
    ][kind]
    error = np.square(W @ np.linalg.pinv(A)).sum()
    for neighbours in NEIGHBOURS:
        moved = A[:, :, None] - A[:, None, :] if neighbours == "replace" else A
        loss = np.abs(moved).sum(axis=0).max() ** 2 * error
        assert volume_bound(terms, neighbours) <= loss * (1 + 1e-9)


def _people(crossed: bool) -> tb.Workload:
    domain = tb.Domain({"sex": 2, "age": 4, "race": 3, "region": 4, "tenure": 3})
    tables = [
        tb.Table("age", {"age": tb.Identity(4), **({"sex": tb.Identity(2)} if crossed else {})}),
        tb.Table("race", {"race": tb.Identity(3)}, weight=2),
        tb.Table("region", {"region": tb.Identity(4)}),
        tb.Table("tenure", {"tenure": tb.Prefix(3)}),
    ]
    return tb.Workload(domain, tables)


@pytest.mark.long
@pytest.mark.parametrize(
    ("crossed", "neighbours"),
    [
        (True, "replace"),
        pytest.param(False, "add-remove", marks=pytest.mark.long),
        pytest.param(True, "add-remove", marks=pytest.mark.long),
        pytest.param(False, "replace", marks=pytest.mark.long),
    ],
)
def test_every_method_stays_above_it_and_it_is_far_above_the_convex_bound(crossed, neighbours):
    wl = _people(crossed)
    bound = tb.lower_bound(wl, "laplace", budget=tb.PureDP(1), kind="dual", neighbours=neighbours)
    convex = tb.lower_bound(wl, "gaussian", budget=tb.ZCDP("1/2"), kind="dual", neighbours=neighbours)
    assert bound > 1.1 * convex * 2**0.5
    served = 0
    for method in SINGLE:
        try:
            strategy = tb.select(wl, noise="laplace", method=method, neighbours=neighbours, restarts=1)
        except Unsupported:
            continue
        served += 1
        assert strategy.error(wl, tb.PureDP(1), neighbours=neighbours).rmse >= bound
    assert served >= 4


def test_one_attribute_gains_nothing():
    """Its hull is a cross-polytope: the best split leaves everything to the SVD bound, or nearly so."""
    terms = dense_grams(tb.Workload.of(tb.AllRange(12)))
    bound, svd = volume_bound(terms), unit_bound(tb.Workload.of(tb.AllRange(12)), "svd")
    assert bound is not None
    assert svd is not None
    assert svd * (1 - 1e-3) <= bound <= svd * 1.02


def test_a_known_case():
    """Cells of one attribute: the identity is optimal, and the bound is below it by the known constant."""
    k = 5
    pure = (
        k * (k + 1) / 2 * (2**k / math.factorial(k) / (math.pi ** (k / 2) / math.gamma(k / 2 + 1))) ** (2 / k)
    )
    bound = volume_bound([(1.0, [np.eye(k)])])
    assert bound is not None
    assert pure * (1 - 1e-3) <= bound <= k


def test_undetermined_cells_give_no_bound():
    """Both tables of a pair of attributes that a third table crosses: the group's cells are not determined."""
    terms = [
        (1.0, [np.eye(3), np.eye(3), np.ones((3, 3))]),
        (1.0, [np.ones((3, 3)), np.eye(3), np.eye(3)]),
    ]
    assert volume_bound(terms) == 0.0


def test_what_is_too_large_is_left_out():
    assert volume_bound([(1.0, [np.eye(80), np.eye(80)])]) is None
    assert volume_bound([(1.0, [np.ones((1, 1))])]) is None


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
def test_the_hull_by_qhull_agrees_with_the_closed_form(neighbours):
    terms, W = tables_of((3, 2, 2))
    closed, found = volume_bound(terms, neighbours), hull_volume_bound(W.T @ W, neighbours)
    assert closed is not None
    assert found is not None
    assert closed * (1 - 1e-6) <= found <= closed * (1 + 1e-3)


@pytest.mark.parametrize(("queries", "gain"), [(3, 1.05), (5, 1.15), (6, 1.25)])
def test_a_few_predicates_over_many_cells(queries, gain):
    """The figures of docs/methods/bounds.md; no matrix of unit L1 columns comes below."""
    rng = np.random.default_rng(0)
    W = np.unique(rng.integers(0, 2, (queries, 48)), axis=1).astype(float)
    bound = hull_volume_bound(W.T @ W)
    assert bound is not None
    assert bound > gain * opt0_gaussian(W.T @ W, tolerance=1e-5).lower
    n = W.shape[1]
    for A in (np.eye(n), W, np.vstack([W, 0.2 * np.eye(n)]), rng.normal(size=(n, n))):
        assert bound <= np.abs(A).sum(axis=0).max() ** 2 * np.square(W @ np.linalg.pinv(A)).sum()


def test_no_hull_is_looked_for_in_many_dimensions():
    assert hull_volume_bound(np.eye(9)) is None
    assert hull_volume_bound(np.ones((4, 4))) is None
