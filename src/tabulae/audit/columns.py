"""Columns of a strategy, written out: a second way to its answers and sensitivity, short enough to trust.

Nothing here uses the closed forms of :mod:`tabulae.linalg`. A column of a Kronecker product is the outer product
of its factors' columns, and those are read off by multiplying with unit vectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import prod

import numpy as np

from ..linalg import Contrasts, Kron, LinearOperator, Product, Stack, Sum
from ..strategy import Block, Strategy

_ENTRIES = 2**22  # written out at once
_INT64 = 2**63


def columns(query: LinearOperator, cells: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """The columns of a query at some cells, exact: (rows, k) for cells (k, attributes) of a domain of ``shape``.

    >>> from tabulae.linalg import Identity, Total
    >>> columns(Kron([Identity(2), Total(3)]), np.array([[1, 2], [0, 0]]), (2, 3)).tolist()
    [[0, 1], [1, 0]]
    """
    if isinstance(query, Sum):
        parts = [int(c) * columns(term, cells, shape) for c, term in query.terms]
        return np.sum(parts, axis=0)
    if isinstance(query, Stack):
        return np.concatenate([columns(op, cells, shape) for op in query.ops])
    if isinstance(query, Contrasts):
        query = query.composed
    if isinstance(query, Product) and isinstance(query.right, Kron):
        return query.left @ columns(query.right, cells, shape)
    if isinstance(query, Kron) and len(query.ops) == len(shape):
        out = np.ones((1, len(cells)), dtype=np.int64)
        for factor, codes in zip(query.ops, cells.T, strict=True):
            out = (out[:, None, :] * factor_columns(factor, codes)[None]).reshape(-1, len(cells))
        return out
    return query.columns(np.asarray(np.ravel_multi_index(tuple(cells.T), tuple(shape))))


def factor_columns(factor: LinearOperator, codes: np.ndarray) -> np.ndarray:
    """The columns of one attribute's matrix at some categories: (rows, k)."""
    distinct, inverse = np.unique(codes, return_inverse=True)
    return factor.columns(distinct)[:, inverse.reshape(-1)]


def slices(rows: int, count: int) -> Iterator[slice]:
    """Runs of columns that are small enough to be written out together."""
    step = max(1, _ENTRIES // rows)
    return (slice(start, start + step) for start in range(0, count, step))


def answers(block: Block, cells: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """The exact answers to a block for one record in each of ``cells``, repeats included: (rows,)."""
    return counted(block.query, cells, shape)


def counted(query: LinearOperator, cells: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """A query's exact answers for one record in each of ``cells``, repeats included: (rows,)."""
    distinct, times = np.unique(cells, axis=0, return_counts=True)
    total = np.zeros(query.shape[0], dtype=np.int64)
    for part in slices(query.shape[0], len(distinct)):
        total += (columns(query, distinct[part], shape) * times[part]).sum(axis=1)
    return total


def told_apart(strategy: Strategy, cells: np.ndarray) -> np.ndarray:
    """A label for each cell, equal where a record may be replaced within the invariants: equal columns of C."""
    shape = strategy.domain.shape
    written = [columns(t.operator(strategy.domain), cells, shape) for t in strategy.invariants]
    return np.unique(np.concatenate(written), axis=1, return_inverse=True)[1].reshape(-1)


def power_sums(matrix: np.ndarray, p: int) -> np.ndarray:
    """``sum_i |a_ij|^p`` for each column of an integer matrix, as Python integers (dtype object)."""
    size = np.abs(matrix)
    if size.size and int(size.max()) ** p * len(size) >= _INT64:
        size = size.astype(object)
    return (size if p == 1 else size * size).sum(axis=0).astype(object)


def block_weight(block: Block, p: int) -> Fraction:
    """What a power sum on the block's grid counts for, in units of its relative scale."""
    return 1 / (block.scale * Fraction(2) ** (p * block.exponent))


def norm_of(strategy: Strategy) -> int:
    """2 where noise is Gaussian, 1 where it is Laplace."""
    return 2 if strategy.noise == "gaussian" else 1


def weighted_power(strategy: Strategy, changes: Sequence[np.ndarray]) -> Fraction:
    """``sum_b ||delta_b||_p^p / scale_b`` of changes of the blocks' answers, on their grids."""
    p = norm_of(strategy)
    return sum(
        (
            int(power_sums(change[:, None], p)[0]) * block_weight(block, p)
            for block, change in zip(strategy.blocks, changes, strict=True)
        ),
        Fraction(0),
    )


def cells_of(flat: np.ndarray, representatives: Sequence[np.ndarray]) -> np.ndarray:
    """Cells (k, attributes), by their flat positions among the combinations of some categories."""
    sizes = tuple(len(codes) for codes in representatives)
    index = np.unravel_index(flat, sizes)
    return np.stack([codes[i] for codes, i in zip(representatives, index, strict=True)], axis=1)


def combinations(representatives: Sequence[np.ndarray]) -> int:
    """How many cells there are."""
    return prod(len(codes) for codes in representatives)
