"""The cells of leaves that are not empty: few of those that could be."""

from __future__ import annotations

import numpy as np

from ..geography.spine_plan import SpinePlan
from .store import Vectors


def leaf_cells(
    plan: SpinePlan, vectors: Vectors, first: int, last: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cells of leaves first to last - 1 that are not 0.

    Args:
        plan: of the spine.
        vectors: of its nodes.
        first, last: a range of leaves.

    Returns:
        Shape (m,) each: the leaf, rising; the cell as ``dense cell * N + combination``, rising within a leaf; and what
        it holds.
    """
    inner, nodes = plan.layout.algebra.cells, plan.tree.leaf[first:last]
    order = np.argsort(nodes, kind="stable")
    pattern = plan.pattern[nodes[order]]
    found = [(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, vectors.dtype))]
    for one in np.unique(pattern).tolist():
        here = order[pattern == one]
        x = vectors.take(nodes[here])
        row, dense, combination = np.nonzero(x)
        place = plan.dense_cells[one][dense] * inner + combination
        found.append((first + here[row], place, x[row, dense, combination]))
    vectors.release()
    leaf, place, held = (np.concatenate(columns) for columns in zip(*found, strict=True))
    rising = np.argsort(leaf * plan.layout.cell.size + place)
    return leaf[rising], place[rising], held[rising]
