"""Sensitivity of contrasts over common classes, class by class.

Blocks ``A_b`` that are :class:`Contrasts` over the same classes have Gram matrices that no permutation of the
cells within a class changes. Hence every column has the norm of any other of its combination of classes, and any
two columns are as far apart as two of the following: the first cell of each attribute's class, and the first or
the second cell of each attribute's class. With M_b the Gram matrix of the block's own matrix over classes, the
inner product of cells x and y is

    sum_b w_b M_b[x, y] prod_{i in S_b} (s_i^2 [x_i = y_i] - s_i)      over b whose classes in S_b hold x_i and y_i.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .column_pairs import (
    Blocks,
    Found,
    whole_weights,
)
from .contrasts import Contrasts
from .exact import integer_matmul
from .numbers import INT64_LIMIT

_PAIRS = 2**26  # inner products that may be held


def largest_in_contrasts(blocks: Blocks, *, replace: bool) -> Found | None:
    """The largest ``sum_i w_i ||A_i d||_2^2``, exactly; None for other blocks, or too many combinations of classes.

    Privacy:
        Exact: integers throughout, over pairs that stand for all pairs (see above).
    """
    members = [op for op, _ in blocks if isinstance(op, Contrasts)]
    if len(members) < len(blocks) or not all(op.integer for op in members):
        return None
    if any((op.merges, op.classes) != (members[0].merges, members[0].classes) for op in members):
        return None
    weights, unit = whole_weights(blocks)
    diagonal = _diagonal(members, weights)
    if not replace:
        return int(diagonal.max()) * unit, True
    second = [np.flatnonzero(part.sizes > 1) for part in members[0].classes]
    others = math.prod(part.shape[0] + len(s) for part, s in zip(members[0].classes, second, strict=True))
    if diagonal.size * others > _PAIRS:
        return None
    return int(_farthest(members, weights, diagonal, second)) * unit, True


def _diagonal(members: Sequence[Contrasts], weights: Sequence[int]) -> np.ndarray:
    """Squared norms of the columns, one for each combination of classes: (C_1, ..., C_d)."""
    norms = [op.matrix.column_norms(2).astype(object) * _share(op) for op in members]
    bound = sum(w * int(n.max()) for w, n in zip(weights, norms, strict=True))
    dtype = np.int64 if 4 * bound < INT64_LIMIT else object
    total = np.zeros([part.shape[0] for part in members[0].classes], dtype=dtype)
    for op, weight, norm in zip(members, weights, norms, strict=True):
        place = tuple(slice(None) if c is None else c for c in op.within)
        total[place] += (norm * weight).astype(dtype).reshape(op.widths)
    return total


def _share(op: Contrasts) -> int:
    """Squared norm of a column of the centring matrices."""
    return math.prod(s * (s - 1) for s in op.picked)


def _farthest(
    members: Sequence[Contrasts], weights: Sequence[int], diagonal: np.ndarray, second: Sequence[np.ndarray]
) -> int:
    """The largest squared distance of a first cell x and a first or second cell y, ``|x|^2 + |y|^2 - 2 <x, y>``."""
    labels = [np.concatenate([np.arange(n), s]) for n, s in zip(diagonal.shape, second, strict=True)]
    inner = np.zeros((*diagonal.shape, *(len(label) for label in labels)), dtype=diagonal.dtype)
    for op, weight in zip(members, weights, strict=True):
        inner[_places(op, labels)] += weight * _inner_products(op, labels, diagonal.dtype)
    sizes = diagonal.reshape(-1)
    others = diagonal[np.ix_(*labels)].reshape(-1)
    return (sizes[:, None] + others - 2 * inner.reshape(sizes.size, others.size)).max()


def _places(op: Contrasts, labels: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """Where the block's inner products belong: classes of x, then cells y, one index array an axis."""
    x = [
        np.arange(part.shape[0]) if c is None else np.array([c])
        for part, c in zip(op.classes, op.within, strict=True)
    ]
    y = [
        np.arange(len(lab)) if c is None else np.flatnonzero(lab == c)
        for lab, c in zip(labels, op.within, strict=True)
    ]
    return np.ix_(*x, *y)


def _inner_products(op: Contrasts, labels: Sequence[np.ndarray], dtype: np.dtype) -> np.ndarray:
    """M_b, repeated for second cells, times the centring matrices' inner products with first and second cells."""
    outside = [lab for lab, c in zip(labels, op.within, strict=True) if c is None]
    gram = _gram(op, dtype).reshape(op.widths + op.widths)
    if outside:
        gram = gram[np.ix_(*(np.arange(n) for n in op.widths), *outside)]
    ends = [np.array([s * s - s] + [-s] * (s > 1), dtype=dtype) for s in op.picked]
    shape_x, shape_y, place = [], [], 0
    for c, lab in zip(op.within, labels, strict=True):
        shape_x.append(1 if c is not None else op.classes[len(shape_x)].shape[0])
        shape_y.append(1 if c is not None else len(lab))
    out = gram.reshape(shape_x + shape_y)
    for axis, c in enumerate(op.within):
        if c is not None:
            shape = [1] * (2 * len(labels))
            shape[len(labels) + axis] = len(ends[place])
            out = out * ends[place].reshape(shape)
            place += 1
    return out


def _gram(op: Contrasts, dtype: np.dtype) -> np.ndarray:
    """The Gram matrix of the block's own matrix, exactly."""
    matrix = np.asarray(op.matrix.dense())
    if dtype.kind == "O":
        whole = matrix.astype(object)
        return whole.T @ whole
    return integer_matmul(np.ascontiguousarray(matrix.T), matrix)
