"""Strategies made attribute by attribute: one integer matrix each, and their Kronecker product.

The classic strategies were published for one attribute. For several, the product of one matrix an attribute is measured
as a single block, so that sensitivity, least squares and error all factor over the attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ...domain import Workload
from ...errors import Unsupported
from ...linalg import (
    Kron,
    LinearOperator,
    Partition,
    Total,
)
from ..explicit_strategy import lifted
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
