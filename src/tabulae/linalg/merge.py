"""Identical columns: cells that no query can tell apart are one cell to everything that follows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..errors import InvalidArgument
from .operator import LinearOperator, check_operators
from .simple import Partition


def merge_columns(ops: Sequence[LinearOperator]) -> Partition:
    """The coarsest partition of the cells such that every operator is constant on its classes.

    Args:
        ops: operators with the same number of columns ``n``.

    Returns:
        ``Partition`` of shape ``(classes, n)``, classes numbered by first appearance.

    Raises:
        InvalidArgument: when the numbers of columns differ.

    >>> from tabulae.linalg import Dense, Total
    >>> merge_columns([Total(3), Dense([[1, 1, 0]])]).classes.tolist()
    [0, 0, 1]
    """
    members = check_operators(ops, "merge_columns")
    widths = {op.shape[1] for op in members}
    if len(widths) != 1:
        raise InvalidArgument(
            f"merge_columns needs operators over the same cells, not over {sorted(widths)} cells"
        )
    return Partition(joint_classes([op.column_classes() for op in dict.fromkeys(members)]))


def joint_classes(labels: Sequence[np.ndarray]) -> np.ndarray:
    """Labels of the tuples formed by several label vectors, numbered by first appearance."""
    joint = labels[0]
    for other in labels[1:]:
        low, high = int(other.min()), int(other.max())
        if low < high:
            joint = renumber(joint * (high - low + 1) + (other - low))
    return renumber(joint)


def renumber(labels: np.ndarray) -> np.ndarray:
    """The same classes, numbered 0, 1, 2, ... by first appearance."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first, kind="stable")] = np.arange(len(first))
    return rank[inverse.reshape(-1)]


def classes_of_rows(rows: np.ndarray) -> np.ndarray:
    """A label for every row of an array, equal exactly where the rows are equal."""
    plain = np.ascontiguousarray(rows + 0 if rows.dtype.kind != "f" else rows + 0.0)  # -0.0 equals 0.0
    seen: dict[bytes, int] = {}
    return np.fromiter(
        (seen.setdefault(row.tobytes(), len(seen)) for row in plain), np.int64, count=len(plain)
    )


def representatives(labels: np.ndarray) -> np.ndarray:
    """The first cell of each class, in the order of the labels."""
    return np.unique(labels, return_index=True)[1]
