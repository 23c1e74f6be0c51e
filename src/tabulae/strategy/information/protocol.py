"""What every route of least squares offers, and from what it starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np

from ...domain import Domain, Invariants, Workload
from ...errors import NotEstimable
from ...linalg import Kron, LinearOperator, Total, representatives
from ..block import Block
from .moments import Profile, VarianceBound

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
