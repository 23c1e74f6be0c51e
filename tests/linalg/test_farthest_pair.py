"""The two columns of weighted rows that are farthest apart: every pair is compared in fractions."""

from __future__ import annotations

from fractions import Fraction
from functools import reduce
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tabulae as tb
from tabulae.linalg.farthest_pair import CLOSE, all_pairs, farthest


def _case(seed: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Two or three factors, columns as rows, and weights, some of them 0."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 5, (int(rng.integers(2, 4)), 2))
    least = int(rng.choice([-3, 0]))
    columns = [rng.integers(least, 4, (cells, rows)) for cells, rows in sizes.tolist()]
    return columns, rng.integers(0, 6, [rows for _, rows in sizes.tolist()]) ** int(rng.choice([1, 9]))


def _largest(columns: list[np.ndarray], squares: np.ndarray) -> Fraction:
    """The largest distance, pair by pair."""
    vectors = [()] if not columns else [[Fraction(1)]]
    for factor in columns:
        vectors = [[a * int(b) for a in left for b in row] for left in vectors for row in factor]
    weights = [int(s) for s in squares.ravel()]
    pairs = combinations(vectors, 2)
    return max(
        (
            sum((s * (a - b) ** 2 for s, a, b in zip(weights, *pair, strict=True)), Fraction(0))
            for pair in pairs
        ),
        default=Fraction(0),
    )


@given(st.integers(0, 10**6))
def test_it_is_the_largest_of_all_pairs(seed: int) -> None:
    columns, squares = _case(seed)
    found = farthest(columns, squares)
    assert found is not None
    assert isinstance(found, Fraction)
    exact = _largest(columns, squares)
    assert exact <= found <= exact + Fraction(1, 10**6) * (int(squares.max()) * 16 * 81 ** len(columns) + 1)


@given(st.integers(0, 10**6), st.sampled_from([(np.float64, 1e-8), (np.float32, 2e-4)]), st.integers(0, 4))
def test_all_pairs_in_either_precision_are_a_bound_and_near(
    seed: int, kind: tuple[type, float], far: int
) -> None:
    """Also of numbers that single precision rounds: longer than its 24 bits, and far from each other in size."""
    columns, squares = _case(seed)
    columns = [c * (7**far) + (c != 0) for c in columns]
    vectors = reduce(np.multiply.outer, [c.astype(object) for c in columns]).transpose(
        [*range(0, 2 * len(columns), 2), *range(1, 2 * len(columns), 2)]
    )
    norms = (vectors**2 * squares.astype(object)).reshape([*map(len, columns), -1]).sum(axis=-1)
    found, exact = all_pairs(columns, squares, norms, kind[0]), _largest(columns, squares)
    if found is None:
        assert kind[0] is np.float32
        return
    assert exact <= found <= exact + Fraction(kind[1]) * int(norms.max())


@given(st.integers(0, 10**6), st.sampled_from([(0.0, 1e12), (0.0, 1e6)]))
def test_a_search_that_ends_early_is_still_a_bound(seed: int, limits: tuple[float, float]) -> None:
    columns, squares = _case(seed)
    found = farthest(columns, squares, *limits)
    exact = _largest(columns, squares)
    assert found is None or found >= exact
    if limits[1] > 1e9:
        assert found is not None
        assert found <= exact * Fraction(CLOSE) + Fraction(1, 1000) * (
            int(squares.max()) * 81 ** len(columns) + 1
        )


def test_the_bound_is_refused_where_it_would_take_too_long_or_numbers_are_too_large() -> None:
    columns, squares = _case(1)
    assert farthest(columns, squares, more=1) is None
    assert farthest(columns[:1], squares.reshape(squares.shape[0], -1).sum(axis=1)) is None
    assert farthest(columns, squares.astype(object) << 900) is None


def test_a_million_pairs_are_searched_and_not_listed() -> None:
    rng = np.random.default_rng(4)
    columns = [np.cumsum(rng.integers(-2, 3, (n, 6)), axis=0) for n in (11, 10, 9)]
    squares = rng.integers(1, 40, (6, 6, 6)) ** 2
    found = farthest(columns, squares)
    rows = np.einsum("ai,bj,ck->abcijk", *columns).reshape(990, -1)
    gram = (rows * squares.ravel()) @ rows.T
    size = np.diag(gram)
    best = int((size[:, None] + size - 2 * gram).max())
    assert found is not None
    assert best <= found <= best * (1 + Fraction(1, 10**6))


@pytest.mark.long
@pytest.mark.parametrize(
    "names",
    [
        ({"a": "ranges", "b": "ranges"}, {"a": "ranges", "c": "prefixes"}, {"c": "cells"}),
        ({"a": "prefixes", "b": "prefixes"}, {"a": "prefixes", "c": "prefixes"}, {"b": "prefixes", "c": "prefixes"}),
        ({"a": "ranges", "b": "cells"}, {"a": "prefixes", "c": "cells"}, {"c": "ranges"}),
    ],
)  # fmt: skip
def test_three_attributes_of_64_are_within_a_thousandth(names: tuple[dict[str, str], ...]) -> None:
    """2^36 pairs: the bound against a pair that is there, whose columns are written out."""
    asked = {"ranges": tb.AllRange(64), "prefixes": tb.Prefix(64), "cells": tb.Identity(64)}
    domain = tb.Domain(dict.fromkeys("abc", 64))
    tables = [tb.Table(f"{i}", {a: asked[n] for a, n in by.items()}) for i, by in enumerate(names)]
    tables.append(tb.Table("all", dict.fromkeys("abc", tb.Identity(64))))
    query = tb.select(tb.Workload(domain, tables), method="eigen", noise="gaussian").blocks[0].query
    norms, far = query.column_norms(2).astype(float), 0.0
    here = int(norms.argmax())
    for _ in range(4):
        apart = norms[here] + norms - 2 * (query.T @ (query @ (np.arange(norms.size) == here).astype(float)))
        here, far = int(apart.argmax()), max(far, float(apart.max()))
    assert far <= query.sensitivity(2, "replace").power <= (1 + 5e-4) * far
