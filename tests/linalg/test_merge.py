"""Merging identical columns."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tabulae.linalg import (
    AllRange,
    Dense,
    Identity,
    Kron,
    Partition,
    Prefix,
    Stack,
    Total,
    WidthRange,
    merge_columns,
)


@given(st.integers(1, 8), st.integers(0, 10**6))
def test_the_coarsest_partition_on_which_all_are_constant(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    ops = [Dense(rng.integers(0, 2, (2, n))), Partition(rng.integers(-1, 2, n), 2)]
    merged = merge_columns(ops)
    stacked = np.concatenate([op.dense() for op in ops])
    for j in range(n):
        for k in range(n):
            same = bool(np.array_equal(stacked[:, j], stacked[:, k]))
            assert (merged.classes[j] == merged.classes[k]) == same
    # W = W_merged P: a query is answered from the merged counts
    first = [int(np.flatnonzero(merged.classes == c)[0]) for c in range(merged.shape[0])]
    x = rng.integers(0, 100, n)
    for op in ops:
        np.testing.assert_array_equal(op.dense()[:, first] @ (merged @ x), op @ x)


def test_classes_are_numbered_by_first_appearance() -> None:
    assert merge_columns([Partition([2, 0, 2, 1, 0])]).classes.tolist() == [0, 1, 0, 2, 1]
    assert merge_columns([Total(4)]).shape == (1, 4)
    assert merge_columns([Total(4), Prefix(4)]) == Partition(np.arange(4))
    assert merge_columns([WidthRange(6, 5), Total(6)]).classes.tolist() == [0, 1, 1, 1, 1, 2]


def test_merging_many_cells() -> None:
    n = 200_000
    ops = [Partition(np.arange(n) // 1000), Partition(np.arange(n) % 3), Total(n)]
    assert merge_columns(ops).shape == (600, n)
    assert merge_columns([Identity(n), *ops]).shape == (n, n)
    assert merge_columns([AllRange(5000)]).shape == (5000, 5000)


def test_products_merge_factor_by_factor() -> None:
    op = Kron([Partition([0, 0, 1]), Stack([Total(2), Total(2)])])
    assert op.column_classes().tolist() == [0, 0, 0, 0, 1, 1]
    assert Dense([[0.0, -0.0], [0.5, 0.5]]).column_classes().tolist() == [0, 0]
    opposite = Kron([Dense([[1, -1]]), Dense([[1, -1]])])
    assert opposite.column_classes().tolist() == [0, 1, 1, 0]
    zero = Kron([Dense([[0, 1, 2]]), Dense([[1, 2]])])
    assert zero.column_classes().tolist() == [0, 0, 1, 2, 2, 3]  # 0 = 0, and 1 x 2 = 2 x 1
