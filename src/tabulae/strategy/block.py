"""Blocks of counting queries that share a noise law: what a strategy consists of."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from ..errors import InvalidArgument
from ..linalg import Contrasts, Kron, LinearOperator, MatrixProduct, Stack, Sum


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


def products(operator: LinearOperator) -> list[tuple[int, tuple[LinearOperator, ...]]]:
    """A matrix over the domain as a sum of Kronecker products: (integer coefficient, factors) for each."""
    if isinstance(operator, Kron):
        return [(1, tuple(operator.ops))]
    if isinstance(operator, Sum):
        return [(int(c) * d, factors) for c, term in operator.terms for d, factors in products(term)]
    return [(1, (operator,))]
