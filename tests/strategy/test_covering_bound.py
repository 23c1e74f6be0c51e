"""The covering bound for Laplace noise: below every strategy, and nearer the optimum than any other bound."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import tabulae as tb
from tabulae.strategy.bounds import cover, lower
from tabulae.strategy.bounds.cover import covering_bound
from tabulae.strategy.bounds.lower import hull_volume_bound
from tabulae.strategy.hdmm.opt0 import opt0_gaussian


def cells_of_predicates(k: int) -> np.ndarray:
    """k predicates over all their combinations but none."""
    return np.array(list(itertools.product((0.0, 1.0), repeat=k)))[1:].T


def _loss(A: np.ndarray, W: np.ndarray) -> float:
    return float(np.abs(A).sum(axis=0).max() ** 2 * np.square(W @ np.linalg.pinv(A)).sum())


@pytest.mark.parametrize(
    ("seed", "queries"),
    [(0, 2), *(pytest.param(*case, marks=pytest.mark.long) for case in ((1, 2), (0, 3), (1, 3), (2, 3)))],
)
def test_no_matrix_of_unit_l1_columns_beats_it(seed: int, queries: int) -> None:
    """Neither identities, nor the queries, nor their optimum of Gaussian noise, nor mixtures of these."""
    rng = np.random.default_rng(seed)
    W = rng.integers(0, 3, (queries, 8)).astype(float)
    bound = covering_bound(W.T @ W)
    assert bound is not None
    best = opt0_gaussian(W.T @ W, tolerance=1e-5)
    mixtures = (np.vstack([W, share * np.eye(8)]) for share in (0.1, 0.5, 2.0))
    for A in (np.eye(8), W, best.strategy, *mixtures, rng.normal(size=(8, 8))):
        assert bound <= _loss(A, W) * (1 + 1e-9)
    assert bound >= best.lower * 0.8  # the best weights of all directions would prove no less


@pytest.mark.parametrize(
    ("W", "least", "best"),
    [
        (cells_of_predicates(2), 3.8, 4.0),
        pytest.param(np.tril(np.ones((3, 3))), 5.5, 6.0, marks=pytest.mark.long),
        pytest.param(cells_of_predicates(3), 8.3, 9.8676, marks=pytest.mark.long),
        pytest.param(tb.AllRange(3).dense(), 9.5, 10.0, marks=pytest.mark.long),
    ],
    ids=["two predicates", "prefixes", "three predicates", "ranges"],
)
def test_the_figures_of_the_page(W: np.ndarray, least: float, best: float) -> None:
    """``best`` is what ``auto`` reaches; the other bounds lie far below."""
    W = np.asarray(W, dtype=float)
    bound = covering_bound(W.T @ W)
    assert bound is not None
    hull = hull_volume_bound(W.T @ W)
    assert hull is not None
    assert max(hull, opt0_gaussian(W.T @ W, tolerance=1e-5).lower) < least < bound < best


@pytest.mark.long
def test_two_functions_of_one_cell_each_are_the_cells() -> None:
    """A cross-polytope is covered by its own corners: 2 and, with weights, (1 + 3)^2 / 2 ... of squares 1 and 9."""
    for weights in ((1.0, 1.0), (1.0, 3.0)):
        W = np.diag(weights)
        bound = covering_bound(W.T @ W)
        assert bound is not None
        assert 0.95 * sum(w**2 for w in weights) < bound <= sum(w**2 for w in weights)


def test_pairs_of_cells_under_replace() -> None:
    """The total is public: of two cells one function is left, of three two. Losses are of differences."""
    assert covering_bound(np.eye(2), "replace") is None
    bound = covering_bound(np.eye(3), "replace")
    assert bound is not None
    apart = np.array([[1.0, 1, 0], [-1, 0, 1], [0, -1, -1]])
    for A in (
        np.eye(3),
        np.array([[1.0, 0, 0], [0, 1, 0]]),
        np.array([[1.0, -1, 0], [0, 1, -1], [1, 0, -1]]),
    ):
        pairs = np.abs(A @ apart).sum(axis=0).max()
        centred = apart - apart.mean(axis=0)
        assert bound <= pairs**2 * np.square(centred @ np.linalg.pinv(A @ apart)).sum() * (1 + 1e-9)


def test_cells_of_directions_hold_what_they_are_said_to_hold() -> None:
    """Random directions lie in some cell, up to sign, within its width of its middle; divided ones, too."""
    rng = np.random.default_rng(0)
    for k in (2, 3, 4):
        cells = cover._Cells.first(k)
        divided = cells.divided(np.ones(len(cells.face), dtype=bool))
        for some in (cells, divided):
            middle, widths = some.centres()
            b = rng.normal(size=(40, k))
            b /= np.linalg.norm(b, axis=1)[:, None]
            angles = np.arccos(np.minimum(np.abs(b @ middle.T), 1.0))
            assert (angles <= widths).any(axis=1).all()


def test_the_search_for_what_covers_most_is_no_lower_than_any_vector() -> None:
    W = cells_of_predicates(3)
    points = W.T
    directions = cover._Directions.of(points, by_pairs=False)
    cells = cover._Cells.first(3)
    rng = np.random.default_rng(1)
    weights = rng.random(len(directions.extent))
    most = cover._most_covered(directions, cells, weights)
    b = rng.normal(size=(2000, 3)) * rng.uniform(0.5, 3, 2000)[:, None]
    covered = (np.abs(b @ directions.u.T) >= directions.extent) @ weights
    assert (covered <= most * np.square(b).sum(axis=1) * (1 + 1e-9)).all()


def test_more_and_fewer_dimensions_have_none() -> None:
    assert covering_bound(np.eye(5)) is None
    assert covering_bound(np.ones((3, 3))) is None


def test_lower_bound_knows_it() -> None:
    workload = tb.Workload.of(tb.Dense(cells_of_predicates(2)))
    dual, svd = (
        tb.lower_bound(workload, "laplace", budget=tb.PureDP(1), kind=kind) for kind in ("dual", "svd")
    )
    assert dual > math.sqrt(2 * 3.8 / 2) > svd * 1.15


def test_no_cover_is_looked_for_where_cells_are_proven_best(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lower, "covering_bound", lambda *given: pytest.fail("looked for"))
    bound = tb.lower_bound(tb.Workload.of(tb.Identity(3)), "laplace", budget=tb.PureDP(1), kind="dual")
    assert bound == pytest.approx(math.sqrt(2))
