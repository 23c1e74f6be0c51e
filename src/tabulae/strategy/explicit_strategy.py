"""Strategies that are one explicit matrix over merged cells, whatever method found it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..domain import Workload
from ..errors import Unsupported
from ..linalg import (
    Identity,
    Kron,
    LinearOperator,
    Partition,
    Product,
    Total,
)
from .rounding import (
    FINEST,
    Rounded,
    to_grid,
)
from .strategy import Block, Strategy
from .symmetry import WIDEST

if TYPE_CHECKING:
    from .settings import Settings

EXPLICIT_CELLS = 2048
"""Largest merged domain of several attributes that OPT_0 treats as one explicit matrix."""

DENSE_CELLS = 4096
"""Largest merged domain of several attributes whose strategy may be one explicit matrix: least squares solves it."""

GramTerms = list[tuple[float, list[np.ndarray]]]


def dense_grams(workload: Workload) -> GramTerms:
    """``W'W = sum_l c_l (x)_i V_li`` with dense V_li, equal matrices shared between terms."""
    shared: dict[LinearOperator, np.ndarray] = {}
    terms = []
    for coefficient, factors in workload.gram_terms():
        for factor in factors:
            if factor not in shared:
                shared[factor] = np.asarray(factor.dense(), dtype=float)
        terms.append((float(coefficient), [shared[f] for f in factors]))
    return terms


def surrogate_gram(terms: GramTerms, axis: int) -> np.ndarray:
    """What a workload asks of one attribute: ``sum_l c_l (prod_{j != i} tr V_lj) V_li``, (n_i, n_i), symmetric.

    Each product counts as much as it costs when the other attributes are counted category by category.

    Reference: HDMM, equation 5, with the identity for the other attributes.
    """
    total = np.zeros(terms[0][1][axis].shape)
    for c, grams in terms:
        total += c * math.prod(float(np.trace(V)) for j, V in enumerate(grams) if j != axis) * grams[axis]
    return (total + total.T) / 2


def explicit_gram(workload: Workload) -> np.ndarray:
    """V = W'W over all cells of a (merged) domain as one dense matrix."""
    total = np.zeros((workload.domain.size, workload.domain.size))
    for coefficient, grams in dense_grams(workload):
        product = np.ones((1, 1))
        for gram in grams:
            product = np.kron(product, gram)
        total += coefficient * product
    return total


def explicit_query(rounded: Rounded, merges: Sequence[Partition]) -> LinearOperator:
    """What is measured of the cells themselves, for a matrix on a grid over merged cells."""
    if len(merges) == 1:
        return Kron([lifted(rounded.matrix, merges[0])])
    if isinstance(rounded.matrix, Identity):
        return Kron([lifted(Identity(m.shape[0]), m) for m in merges])
    if isinstance(rounded.matrix, Total):
        return Kron([Total(m.shape[1]) for m in merges])
    return Product(rounded.matrix, Kron([lifted(Identity(m.shape[0]), m) for m in merges]))


def lifted(matrix: LinearOperator, merge: Partition) -> LinearOperator:
    """A strategy on merged cells as a matrix on the cells themselves: matrix @ merge, in its plainest form."""
    if merge.shape[0] == merge.shape[1]:
        return matrix
    if isinstance(matrix, Total):
        return Total(merge.shape[1])
    if isinstance(matrix, Identity):
        return merge
    return Product(matrix, merge)


def explicit_strategy(
    workload: Workload,
    settings: Settings,
    name: str,
    matrix_of: Callable[[np.ndarray], np.ndarray],
) -> Strategy:
    """The strategy of a method that makes a real A (r, n) from the Gram matrix V = W'W (n, n) of merged cells.

    Raises :class:`~tabulae.errors.Unsupported` beyond 4,096 merged cells (8,192 of one attribute).
    """
    merged, merges = workload.merge()
    several = sum(n > 1 for n in merged.domain.shape) > 1
    most = DENSE_CELLS if several else WIDEST
    if merged.domain.size > most:
        instead = (
            'Choose "residual", "kron" or "hdmm", which work attribute by attribute'
            if several
            else "Give the attribute fewer categories (a recode), or write it as two attributes"
        )
        raise Unsupported(
            f"{name} makes one explicit matrix over the {merged.domain.size:,} cells that the tables tell apart, and "
            f"goes up to {most:,}. {instead}"
        )
    gram = explicit_gram(merged)
    rounded = to_grid(matrix_of(gram), gram, settings.norm, FINEST)
    block = Block(name, explicit_query(rounded, merges), rounded.exponent)
    return Strategy(workload.domain, (block,), settings.noise, name)
