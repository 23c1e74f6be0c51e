"""Strategies made attribute by attribute: one integer matrix each, and their Kronecker product.

The classic strategies were published for one attribute. For several, the product of one matrix an attribute is measured
as a single block, so that sensitivity, least squares and error all factor over the attributes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...errors import Unsupported
from ...linalg import Kron, LinearOperator, Partition, Total
from ...tables import Workload
from ..explicit_strategy import dense_grams, lifted
from ..strategy import Block, Strategy
from ..symmetry import WIDEST

if TYPE_CHECKING:
    from ..settings import Settings


def per_attribute(
    workload: Workload, settings: Settings, name: str, matrix_of: Callable[[int], LinearOperator]
) -> Strategy:
    """The product of ``matrix_of(n_i)`` over attributes of n_i merged categories, n_i > 1; totals of the others.

    Raises :class:`~tabulae.errors.Unsupported` for more than 8,192 merged categories: least squares takes no more.
    """
    merged, merges = workload.merge()
    widest = max(merged.domain.shape)
    if widest > WIDEST:
        raise Unsupported(
            f"an attribute has {widest:,} categories that tables tell apart; {name} goes up to {WIDEST:,}: give it "
            "fewer categories (a recode), or write it as two attributes"
        )
    return product_strategy(workload, settings, name, merges, [matrix_of(n) for n in merged.domain.shape])


def product_strategy(
    workload: Workload,
    settings: Settings,
    name: str,
    merges: Sequence[Partition],
    matrices: Sequence[LinearOperator],
    exponent: int = 0,
) -> Strategy:
    """One block ``2^-exponent (x)_i A_i M_i`` for integer A_i over merged categories; M_i merges them."""
    factors = [
        Total(merge.shape[1]) if merge.shape[0] == 1 else lifted(matrix, merge)
        for matrix, merge in zip(matrices, merges, strict=True)
    ]
    return Strategy(workload.domain, (Block(name, Kron(factors), exponent),), settings.noise, name)


def surrogate_grams(merged: Workload) -> list[np.ndarray]:
    """One Gram matrix (n_i, n_i) for each attribute of a workload: what it asks of that attribute.

    Of ``W'W = sum_l c_l (x)_i V_li`` attribute i sees ``sum_l c_l (prod_{j != i} tr V_lj) V_li``: each product counts
    as much as it costs when the other attributes are counted category by category.

    Reference: HDMM, equation 5, with the identity for the other attributes.
    """
    terms = [(c, [(v + v.T) / 2 for v in factors]) for c, factors in dense_grams(merged)]
    grams = []
    for i, n in enumerate(merged.domain.shape):
        total = np.zeros((n, n))
        for c, factors in terms:
            total += c * math.prod(float(np.trace(v)) for j, v in enumerate(factors) if j != i) * factors[i]
        grams.append(total)
    return grams
