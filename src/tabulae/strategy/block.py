"""Blocks of counting queries that share a noise law: what a strategy consists of."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, reduce

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
        return terms_of(self.query)


def terms_of(query: LinearOperator) -> list[tuple[int, tuple[LinearOperator, ...]]]:
    """As :attr:`Block.terms`, of any matrix."""
    members = query.ops if isinstance(query, Stack) else [query]
    return [term for member in members for term in products(_cells(member))]


def _cells(operator: LinearOperator) -> LinearOperator:
    """What an operator's columns depend on: for explicit ones the matrix that merges cells."""
    if isinstance(operator, Contrasts):
        return operator.cells
    return operator.right if isinstance(operator, MatrixProduct) else operator


@lru_cache(maxsize=1024)
def _total(size: int) -> Total:
    """One operator for all blocks: what compares them looks at each once."""
    return Total(size)


def crossing(
    names: Sequence[str],
    members: Collection[int],
    factors: Sequence[LinearOperator],
    exponent: int = 0,
    scale: Fraction = Fraction(1),
) -> Block:
    """The block that crosses some attributes' own queries, one factor an attribute, and sums over all others."""
    query = Kron([f if i in members else _total(f.shape[1]) for i, f in enumerate(factors)])
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


_FEW = 16  # products that are added up one by one
_NUMBERS = 2**24  # of some products together


def kron_sum(terms: Iterable[tuple[float, Sequence[np.ndarray]]]) -> np.ndarray:
    """``sum_t c_t (x)_i M_ti`` written out; whole numbers stay whole."""
    terms = list(terms)
    if len(terms) > _FEW and len(terms[0][1]) > 1:
        return _many_products(terms)
    whole: np.ndarray | int = 0
    for coefficient, parts in terms:
        product = reduce(np.kron, [np.ascontiguousarray(part) for part in parts])
        whole = whole + coefficient * product
    return np.asarray(whole)


def _many_products(terms: Sequence[tuple[float, Sequence[np.ndarray]]]) -> np.ndarray:
    """The same by one matrix product: as ``vec(M_t1)`` times the rest of each term, entries in another order."""
    (m, n), rest = terms[0][1][0].shape, [part.shape for part in terms[0][1][1:]]
    p, q = (math.prod(shape[k] for shape in rest) for k in (0, 1))
    total: np.ndarray | int = 0
    step = max(1, _NUMBERS // max(m * n, p * q))
    for start in range(0, len(terms), step):
        some = terms[start : start + step]
        first = np.stack([c * np.asarray(parts[0]).reshape(-1) for c, parts in some], axis=1)
        others = np.stack([reduce(np.kron, parts[1:]).reshape(-1) for _, parts in some])
        total = total + first @ others
    assert isinstance(total, np.ndarray)
    return total.reshape(m, n, p, q).transpose(0, 2, 1, 3).reshape(m * p, n * q)
