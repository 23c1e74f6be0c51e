"""The matrix of a factor over merged columns."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..linalg import (
    Dense,
    LinearOperator,
    Partition,
    Product,
    Scaled,
    Sparse,
    Stack,
    Total,
)

_MOST_ENTRIES = 10_000_000


def merged_factor(operator: LinearOperator, partition: Partition) -> LinearOperator:
    """The m x k matrix M with ``operator = M partition``, one column a class: column j is that of any member.

    The partition (k x n) must not join columns of the operator that differ; every column is in a class.

    >>> merged_factor(Total(4), Partition([0, 0, 1, 1]))
    Total(2)
    """
    k, n = partition.shape
    if np.array_equal(partition.classes, np.arange(n)):
        return operator
    if isinstance(operator, Total):
        return Total(k)
    first_members = np.unique(partition.classes, return_index=True)[1]
    return _select(operator, first_members)


def _select(operator: LinearOperator, cells: NDArray[np.intp]) -> LinearOperator:
    if isinstance(operator, Partition):
        return Partition(operator.classes[cells], operator.shape[0])
    if isinstance(operator, Stack):
        return Stack(tuple(_select(part, cells) for part in operator.ops))
    if isinstance(operator, Scaled):
        return Scaled(_select(operator.op, cells), operator.factor)
    if isinstance(operator, Product):
        return Product(operator.left, _select(operator.right, cells))
    m, n = operator.shape
    k = len(cells)
    if m * k <= _MOST_ENTRIES:
        return Dense(operator.columns(cells))
    ones = np.ones(k, dtype=np.int64)
    return Product(operator, Sparse(sparse.csr_array((ones, (cells, np.arange(k))), shape=(n, k))))
