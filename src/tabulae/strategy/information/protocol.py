"""What every route of least squares offers, from what it starts, and what the noise of its answers is made of.

All routes share one engine of moments. A table is a sum of terms, integers c_t times Kronecker products, and so are its
coefficients ``z = sum_t c_t (x)_i z_ti`` on a block. Of one product every moment is the product over attributes of
theirs; of a sum the second moment adds cross terms over pairs, and the others follow where the coefficients may be
written out, or are bounded by Minkowski's inequality.

Moments are arrays (5, ...): sum z^2, sum z^4, sum z^6, max |z| and the count of non-zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, TypeVar

import numpy as np

from ...domain import Domain, Invariants, Workload
from ...errors import NotEstimable
from ...linalg import Kron, LinearOperator, Total, representatives
from ..block import Block

T = TypeVar("T")

_DEGREES = np.array([2.0, 4.0, 6.0, 1.0, 0.0])  # of each moment in z


@dataclass(frozen=True)
class Profile:
    """How an answer's noise is made up: statistics of the coefficients z of its noise variables.

    Arrays of shape (blocks, queries), z in units of the block's answers: ``power2 = sum z^2``,
    ``power4 = sum z^4``, ``power6 = sum z^6``, ``largest = max |z|``, ``count`` = how many are non-zero.
    ``exact`` is False where all but ``power2`` are upper bounds.

    What would repeat may be left out: ``blocks`` names the strategy's blocks that the rows stand for (None: all,
    in order; a block left out has no part in the answer), and ``inverse`` (m,) the column that each query has
    (None: its own).
    """

    power2: np.ndarray
    power4: np.ndarray
    power6: np.ndarray
    largest: np.ndarray
    count: np.ndarray
    exact: bool = True
    blocks: tuple[int, ...] | None = None
    inverse: np.ndarray | None = None


@dataclass(frozen=True)
class VarianceBound:
    """All that is known of an answer's noise is that its variance is at most this, (m,), in squared counts."""

    variance: np.ndarray


def kron_vectors(vectors: Sequence[np.ndarray]) -> np.ndarray:
    """Kronecker product of vectors, in C order."""
    out = np.ones(1)
    for vector in vectors:
        out = np.multiply.outer(out, vector).ravel()
    return out


def coefficient_statistics(z: np.ndarray) -> np.ndarray:
    """sum z^2, sum z^4, sum z^6, max |z| and the count of non-zeros of each row; (5, rows)."""
    size = np.abs(z)
    square = size * size
    largest = size.max(axis=1, initial=0.0)
    count = (size > 1e-12 * np.maximum(largest, 1e-300)[:, None]).sum(axis=1)
    return np.stack([square.sum(axis=1), (square**2).sum(axis=1), (square**3).sum(axis=1), largest, count])


def merge_statistics(total: np.ndarray, part: np.ndarray) -> None:
    """Add the statistics of further columns of z to those of the columns before, in place."""
    total[[0, 1, 2, 4]] += part[[0, 1, 2, 4]]
    np.maximum(total[3], part[3], out=total[3])


def scaled(moments: np.ndarray, factor: float | np.ndarray) -> np.ndarray:
    """Moments of coefficients multiplied by positive factors, one for all or one a block; (5, blocks, queries)."""
    powers = np.atleast_1d(factor)[None, :] ** _DEGREES[:, None]
    return moments * powers.reshape(5, -1, *[1] * (moments.ndim - 2))


def kron_moments(factors: Sequence[np.ndarray]) -> np.ndarray:
    """Moments of a Kronecker product from those of its factors, (5, rows_i) each; (5, rows)."""
    return np.stack([kron_vectors([moments[k] for moments in factors]) for k in range(5)])


def sum_bounds(terms: Sequence[np.ndarray], squares: np.ndarray, count: float | np.ndarray) -> np.ndarray:
    """Upper bounds of a sum's moments: norms of a sum are at most the sums of the norms (Minkowski).

    Of the terms their moments are given, coefficients included, of the sum itself its squares and how many non-zeros
    it may have.
    """
    out = np.empty_like(terms[0])
    out[0], out[4] = squares, count
    for k, degree in ((1, 4), (2, 6), (3, 1)):
        out[k] = sum(moments[k] ** (1 / degree) for moments in terms) ** degree
    return out


def pairs(terms: Sequence[T]) -> Iterator[tuple[int, T, T]]:
    """All pairs of terms once, with how often each counts in the square of their sum: 1 or 2."""
    for k, left in enumerate(terms):
        for right in terms[:k]:
            yield 2, left, right
        yield 1, left, left


def profile_of(moments: np.ndarray, *, exact: bool = True, inverse: np.ndarray | None = None) -> Profile:
    """The profile of a strategy of one block, from moments (5, queries)."""
    return Profile(*moments[:, None], exact=exact, inverse=inverse)


EXPLICIT = 4096
"""Largest order of a matrix that is decomposed as a whole (about a minute on one core)."""


class MeasuredStrategy(Protocol):
    """What least squares needs of a strategy: what is asked with noise, what is exact beside it, a name."""

    @property
    def domain(self) -> Domain: ...

    @property
    def blocks(self) -> tuple[Block, ...]: ...

    @property
    def exact(self) -> Invariants | None: ...

    @property
    def method(self) -> str: ...


@dataclass(frozen=True)
class Blocks:
    """Some blocks of a strategy, taken for themselves."""

    domain: Domain
    blocks: tuple[Block, ...]
    exact: Invariants | None
    method: str


class Information(Protocol):
    """P of a strategy under given block variances, and least squares through it."""

    route: str

    def answer(self, operator: LinearOperator, answers: Sequence[np.ndarray]) -> np.ndarray:
        """Least-squares answers of ``operator`` (m, N) from the blocks' noisy answers."""
        ...

    def variance(self, operator: LinearOperator) -> np.ndarray:
        """diag(W P^+ W'), shape (m,), in squared counts; an upper bound on the route ``iterative``."""
        ...

    def total(self, workload: Workload) -> float:
        """Total variance ``sum_t weight_t^2 sum_q Var(q)``, in squared weighted counts."""
        ...

    def profile(self, operator: LinearOperator) -> Profile | VarianceBound:
        """Statistics of the coefficients Z of the noise variables, or a bound on their variance."""
        ...


def refuse_not_estimable() -> NotEstimable:
    """The error for a query outside the row space of the strategy."""
    return NotEstimable(
        "the measurements do not determine this table: it asks for detail, or a combination of attributes, "
        "that no measured query distinguishes"
    )


@lru_cache(maxsize=4096)
def is_flat(query: LinearOperator) -> bool:
    """Whether each row of the query is a multiple of the total."""
    return isinstance(query, Total) or query.shape[1] == 1 or int(query.column_classes().max()) == 0


def check_constant(query: LinearOperator, classes: np.ndarray) -> None:
    """Refuse a query that tells cells of one class apart; NotEstimable then."""
    labels = query.column_classes()
    if not np.array_equal(labels[representatives(classes)][classes], labels):
        raise refuse_not_estimable()


def summed_variance(variance: Callable[[LinearOperator], np.ndarray], workload: Workload) -> float:
    """Total weighted variance, the tables' variances summed."""
    tables = ((t.weight, t.operator(workload.domain)) for t in workload.tables)
    return sum(float(weight) ** 2 * float(variance(operator).sum()) for weight, operator in tables)


def one_matrix_each(
    strategy: MeasuredStrategy,
) -> tuple[dict[int, LinearOperator], list[tuple[int, ...]]] | None:
    """The one matrix of each attribute, and the attributes that each block measures by it, others summed over.

    None where blocks differ in more than what they sum over.
    """
    matrices: dict[int, LinearOperator] = {}
    sets = []
    for block in strategy.blocks:
        if not isinstance(block.query, Kron) or len(block.query.ops) != len(strategy.domain.shape):
            return None
        crossed = [(i, f) for i, f in enumerate(block.query.ops) if not isinstance(f, Total)]
        if any(matrices.setdefault(i, f) != f for i, f in crossed):
            return None
        sets.append(tuple(i for i, _ in crossed))
    return matrices, sets
