"""Blocks of counting queries that share a noise law: what a strategy consists of."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ..errors import InvalidArgument
from ..linalg import Contrasts, Kron, LinearOperator, MatrixProduct, Stack, Sum, Total


@dataclass(frozen=True)
class Block:
    """One group of counting queries that share a noise law.

    The true answers are ``2^-exponent * query @ x`` for a vector x of N counts; ``query`` is an integer
    matrix (m, N), so an answer is an integer on the grid of step ``2^-exponent`` and takes exact noise.
    ``scale`` is the block's noise parameter relative to the other blocks, in counts: a variance for
    Gaussian noise, a Laplace scale for Laplace noise. The budget fixes the common factor.
    """

    name: str
    query: LinearOperator
    exponent: int = 0
    scale: Fraction = Fraction(1)

    def __post_init__(self) -> None:
        if not self.query.integer:
            raise InvalidArgument(
                f"block {self.name!r}: the query matrix has non-integer entries; round it to a grid first"
            )
        if self.exponent < 0 or self.scale <= 0:
            raise InvalidArgument(f"block {self.name!r}: exponent must be >= 0 and scale > 0")

    @property
    def rows(self) -> int:
        """Number of noisy answers."""
        return self.query.shape[0]

    @property
    def terms(self) -> list[tuple[int, tuple[LinearOperator, ...]]]:
        """The query as a sum of Kronecker products over the attributes.

        For an explicit strategy (a matrix over merged cells, ``Product(matrix, Kron(partitions))``, or contrasts)
        these are the merging partitions that its columns depend on.
        """
        members = self.query.ops if isinstance(self.query, Stack) else [self.query]
        return [term for member in members for term in products(_cells(member))]


def _cells(operator: LinearOperator) -> LinearOperator:
    """What an operator's columns depend on: for explicit ones the matrix that merges cells."""
    if isinstance(operator, Contrasts):
        return operator.cells
    return operator.right if isinstance(operator, MatrixProduct) else operator


def crossing(
    names: Sequence[str],
    members: Collection[int],
    factors: Sequence[LinearOperator],
    exponent: int = 0,
    scale: Fraction = Fraction(1),
) -> Block:
    """The block that crosses some attributes' own queries, one factor an attribute, and sums over all others."""
    query = Kron([f if i in members else Total(f.shape[1]) for i, f in enumerate(factors)])
    return Block("*".join(names[i] for i in sorted(members)) or "total", query, exponent, scale)


_BITS = 20  # of a precision: far finer than the optimum is sharp


def short_scale(precision: float) -> Fraction:
    """A relative scale within 1e-6 of 1 / precision: the inverse of a binary fraction.

    Sensitivities are sums of inverse scales; binary ones stay short however many blocks there are.
    """
    mantissa, exponent = math.frexp(precision)
    return 1 / (Fraction(round(mantissa * 2**_BITS), 2**_BITS) * Fraction(2) ** exponent)


def products(operator: LinearOperator) -> list[tuple[int, tuple[LinearOperator, ...]]]:
    """A matrix over the domain as a sum of Kronecker products: (integer coefficient, factors) for each."""
    if isinstance(operator, Kron):
        return [(1, tuple(operator.ops))]
    if isinstance(operator, Sum):
        return [(int(c) * d, factors) for c, term in operator.terms for d, factors in products(term)]
    return [(1, (operator,))]


def kron_sum(terms: Iterable[tuple[float, Sequence[np.ndarray]]]) -> np.ndarray:
    """``sum_t c_t (x)_i M_ti`` written out; whole numbers stay whole."""
    whole: np.ndarray | int = 0
    for coefficient, parts in terms:
        product = np.full((1, 1), coefficient)
        for part in parts:
            product = np.kron(product, np.ascontiguousarray(part))
        whole = whole + product
    return np.asarray(whole)
