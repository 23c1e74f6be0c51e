"""Normalised and row-scaled operators against their dense matrices, and their Gram matrices in closed form."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import ClassVar

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from tests.each import each
from tests.linalg import test_contract

from tabulae.errors import InvalidArgument, Unsupported
from tabulae.linalg import (
    AllRange,
    Dense,
    Identity,
    Kron,
    LinearOperator,
    MatrixProduct,
    Partition,
    Permuted,
    Prefix,
    Scaled,
    Sparse,
    Stack,
    Total,
    WidthRange,
    merge_columns,
)
from tabulae.linalg.row_scaling import RowScaled, common_value, normalised, row_norms, weighted_gram

RNG = np.random.default_rng(20261121)
FRACTIONS = RNG.normal(size=(7, 5))
INTEGERS = RNG.integers(-3, 4, (4, 6))
ORDER = np.array([3, 1, 0, 2, 4, 5])

INSTANCES: dict[str, Callable[[], LinearOperator]] = {
    "all ranges": lambda: AllRange(6),
    "one range": lambda: AllRange(1),
    "prefix": lambda: Prefix(7),
    "windows": lambda: WidthRange(9, 4),
    "wide windows": lambda: WidthRange(8, 6),
    "identity": lambda: Identity(5),
    "total": lambda: Total(6),
    "partition": lambda: Partition([0, 2, 1, 0, 1, 0], 3),
    "partition with nobody": lambda: Partition([0, 3, -1, 0, 1, -1], 5),
    "permuted ranges": lambda: Permuted(AllRange(6), ORDER),
    "stack": lambda: Stack([Total(6), Identity(6), AllRange(6), Partition([0, 0, 0, 1, 1, 2])]),
    "kron": lambda: Kron([AllRange(3), Total(2), Stack([Total(2), Identity(2)])]),
    "dense": lambda: Dense(FRACTIONS),
    "dense integers": lambda: Dense(INTEGERS),
    "row of zeros": lambda: Dense([[0.0, 0.0], [0.5, 2.0]]),
    "sparse": lambda: Sparse(scipy.sparse.csr_array(np.where(np.abs(FRACTIONS) > 0.6, FRACTIONS, 0.0))),
    "product": lambda: MatrixProduct(Dense(FRACTIONS[:, :4]), Dense(INTEGERS)),
    "multiple": lambda: Scaled(Prefix(4), 3),
    "negative multiple": lambda: Scaled(AllRange(4), -0.5),
    "zero": lambda: Scaled(Prefix(3), 0),
    "scaled twice": lambda: RowScaled(Prefix(3), [3.0, 0.5, 1.0]),
}


every_instance = each("instance", [build() for build in INSTANCES.values()], ids=list(INSTANCES))
SOME = ("all ranges", "prefix", "partition", "permuted ranges", "stack", "dense", "negative multiple", "kron")


def row_scaled(name: str) -> LinearOperator:
    inner = INSTANCES[name]()
    return RowScaled(inner, np.random.default_rng(4).uniform(0.1, 3.0, inner.shape[0]))


class TestNormalisedOperators(test_contract.TestEveryOperator):
    """What holds for every operator holds for normalised ones and their transposes."""

    OPERATORS: ClassVar = {
        **{name: lambda name=name: normalised(INSTANCES[name]()) for name in SOME},
        **{f"{name}.T": lambda name=name: normalised(INSTANCES[name]()).T for name in SOME},
    }


class TestRowScaled(test_contract.TestEveryOperator):
    """And for a matrix whose rows are multiplied by any numbers."""

    OPERATORS: ClassVar = {
        name: lambda name=name: row_scaled(name)
        for name in ("all ranges", "windows", "dense integers", "sparse")
    }


def by_hand(matrix: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(matrix.astype(float), axis=1)
    return matrix / np.where(norms > 0, norms, 1.0)[:, None]


@every_instance
def test_rows_have_norm_one(instance: LinearOperator) -> None:
    np.testing.assert_allclose(row_norms(instance), np.linalg.norm(instance.dense().astype(float), axis=1))
    np.testing.assert_allclose(normalised(instance).dense(), by_hand(instance.dense()), atol=1e-14)


@every_instance
def test_gram_of_the_normalised_matrix(instance: LinearOperator) -> None:
    rows = by_hand(instance.dense())
    np.testing.assert_allclose(normalised(instance).gram().dense(), rows.T @ rows, atol=1e-12)


@every_instance
def test_cells_are_told_apart_as_before(instance: LinearOperator) -> None:
    found = normalised(instance)
    np.testing.assert_array_equal(found.column_classes(), instance.column_classes())
    assert merge_columns([found]) == merge_columns([instance])


@every_instance
def test_normalising_again_changes_nothing(instance: LinearOperator) -> None:
    once = normalised(instance)
    np.testing.assert_allclose(normalised(once).dense(), once.dense(), atol=1e-14)


@given(st.data())
def test_weighted_gram_is_that_of_the_dense_matrix(data: st.DataObject) -> None:
    op = INSTANCES[data.draw(st.sampled_from(sorted(INSTANCES)))]()
    seed = data.draw(st.integers(0, 2**16))
    weights = np.random.default_rng(seed).exponential(size=op.shape[0])
    matrix = op.dense().astype(float)
    np.testing.assert_allclose(weighted_gram(op, weights), matrix.T @ (weights[:, None] * matrix), atol=1e-11)


def test_structure_stays() -> None:
    assert normalised(Identity(4)) == Identity(4)
    assert normalised(Total(4)) == Scaled(Total(4), 0.5)
    assert normalised(WidthRange(9, 4)) == Scaled(WidthRange(9, 4), 0.5)
    assert isinstance(normalised(INSTANCES["kron"]()), Kron)
    assert isinstance(normalised(INSTANCES["stack"]()), Stack)


def test_all_ranges_of_2048_cells_are_never_written_out() -> None:
    """G[i, j] for i <= j is the sum of 1 / (b - a + 1) over a <= i, b >= j: compared where it can be summed by hand."""
    n, start = 2048, time.process_time()
    gram = normalised(AllRange(n)).gram().dense()
    assert time.process_time() - start < 10
    for i, j in ((0, 0), (0, n - 1), (5, 9), (1000, 1400), (2047, 2040)):
        low, high = min(i, j), max(i, j)
        lengths = np.arange(high, n)[:, None] - np.arange(low + 1)[None] + 1
        assert gram[i, j] == pytest.approx((1 / lengths).sum(), rel=1e-12)


def test_common_value() -> None:
    assert common_value(np.array([0.1 + 0.2, 0.3])) == pytest.approx(0.3)
    assert common_value(np.array([1.0, 1.0 + 1e-9])) is None
    assert common_value(np.zeros(2)) == 0.0


@pytest.mark.parametrize(
    "scale", [[1.0], [1.0, 0.0, 1.0], [1.0, -1.0, 1.0], [1.0, np.nan, 1.0], ["a", "b", "c"]]
)
def test_bad_scales_are_refused(scale: list[object]) -> None:
    with pytest.raises(InvalidArgument, match="RowScaled"):
        RowScaled(Prefix(3), scale)


def test_what_is_too_large_is_refused_with_what_to_use() -> None:
    with pytest.raises(Unsupported, match="Kron"):
        row_norms(AllRange(40_000))
    wide = MatrixProduct(Dense(np.full((70_000, 1), 0.5)), Total(70_000))
    with pytest.raises(Unsupported, match="stacks and Kronecker products"):
        normalised(wide)
    with pytest.raises(Unsupported, match="merge cells"):
        weighted_gram(Identity(40_000), np.ones(40_000))
    with pytest.raises(Unsupported, match="no closed form"):
        weighted_gram(MatrixProduct(Dense(np.full((5_000, 1), 0.5)), Total(5_000)), np.ones(5_000))
    with pytest.raises(InvalidArgument, match="3 rows"):
        weighted_gram(Prefix(3), np.ones(2))
