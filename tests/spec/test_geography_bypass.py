"""Shares under Laplace noise: the blocks of the query groups say what the whole matrices say."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tabulae as tb
from tabulae.errors import InvalidArgument
from tabulae.products.areas.layout import CellLayout
from tabulae.products.areas.spec.limits import Cells
from tabulae.products.areas.spec.section import LevelShares, query_informations, with_shares

DOMAIN = tb.Domain({"kind": 2, "age": 3, "race": 2})
LAYOUT = CellLayout.of(DOMAIN, ["kind"])
QUERIES = tuple(LAYOUT.margin(names) for names in ([], ["kind", "race"], ["age"], ["kind", "age", "race"]))
CELLS = Cells(LAYOUT, QUERIES)
LEVELS = ("root", "tract", "block")


def shared(parts: list[list[int]], levels: list[int]) -> LevelShares:
    queries = {
        level: tuple(Fraction(part, sum(given)) for part in given)
        for level, given in zip(LEVELS, parts, strict=True)
    }
    shares = {level: Fraction(part, sum(levels)) for level, part in zip(LEVELS, levels, strict=True)}
    return LevelShares(shares, queries)


def whole(shares: LevelShares) -> dict[str, np.ndarray]:
    """sum alpha^2 Q'Q over all cells."""
    size, every = LAYOUT.cell.size, np.arange(LAYOUT.size)
    eye = np.eye(size).reshape(size, LAYOUT.size, -1)
    found = {}
    for level, asked in shares.queries.items():
        answers = [
            float(share) * query.add_up(eye, every).reshape(size, -1).T
            for share, query in zip(asked, QUERIES, strict=True)
        ]
        found[level] = sum(q.T @ q for q in answers)
    return found


parts = st.lists(st.integers(0, 5), min_size=3, max_size=3)


@given(
    st.lists(st.tuples(parts, st.integers(1, 9)).map(lambda p: [*p[0], p[1]]), min_size=3, max_size=3),
    st.lists(st.integers(1, 9), min_size=3, max_size=3),
    st.lists(st.integers(1, 3), min_size=2, max_size=4),
)
def test_blocks_hold_every_eigenvalue(given: list[list[int]], levels: list[int], sizes: list[int]) -> None:
    shares = shared(given, levels)
    tract = np.repeat(np.arange(len(sizes)), sizes)
    codes = {"tract": [f"t{i}" for i in tract], "block": [f"b{i}" for i in range(tract.size)]}
    spine = tb.Spine.from_codes(codes, levels=["tract", "block"])
    blocks, matrices = query_informations(spine, shares, CELLS), whole(shares)
    for level in LEVELS:
        ours = np.unique(np.round(np.linalg.eigvalsh(blocks[level]), 9))
        theirs = np.unique(np.round(np.linalg.eigvalsh(matrices[level]), 9))
        np.testing.assert_allclose(ours[[0, -1]], theirs[[0, -1]], atol=1e-8)
    made = with_shares(spine, shares, CELLS, "exact", pure=True)
    expected = spine.bypass(shares.levels, "laplace", "exact", matrices)
    assert made.shares is not None
    assert expected.shares is not None
    for level in LEVELS:
        assert made.shares[level] == expected.shares[level]


def test_a_level_that_is_not_measured_takes_no_part() -> None:
    shares = shared([[1, 1, 1, 1]] * 3, [1, 0, 3])
    codes = {"tract": list("AAB"), "block": list("abc")}
    spine = tb.Spine.from_codes(codes, levels=["tract", "block"])
    made = with_shares(spine, shares, CELLS, "exact", pure=True)
    assert made.shares is not None
    assert made.shares["tract"] == [0, 0]


def test_queries_that_leave_cells_open() -> None:
    shares = shared([[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 0]], [1, 1, 1])
    spine = tb.Spine.from_codes({"tract": list("AAB"), "block": list("abc")}, levels=["tract", "block"])
    with pytest.raises(InvalidArgument, match="do not determine every cell"):
        with_shares(spine, shares, CELLS, "exact", pure=True)
