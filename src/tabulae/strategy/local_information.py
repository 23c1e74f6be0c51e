"""Local least squares, as OPT_+ was published: each table from the one block that answers it best.

Block g alone answers a table by ``W A_g^+ y_g``, with covariance ``v_g W (A_g'A_g)^+ W'``; of the blocks that determine
the table the one with the least total variance does. A sum of products (a disjunction) that no block
determines whole is answered product by product. The answers are unbiased, their variances exact, but tables answered
from different blocks need not agree where they overlap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from ..domain import Workload
from ..errors import NotEstimable, Unsupported
from ..linalg import (
    Kron,
    LinearOperator,
    Sum,
)
from .information import (
    Information,
    Profile,
    information,
    refuse_not_estimable,
)
from .strategy import Strategy, products

Term = tuple[int, tuple[LinearOperator, ...]]


@dataclass(frozen=True)
class _Part:
    """What one block contributes to a table: a matrix over the cells that it determines."""

    block: int
    query: LinearOperator


class LocalInformation:
    """Least squares within single blocks, the least variable that determines each table.

    Raises :class:`~tabulae.errors.NotEstimable` for a table that no single block determines.
    """

    route = "local"

    def __init__(self, strategy: Strategy, variances: Sequence[float]) -> None:
        self.strategy = strategy
        self._variances = tuple(variances)
        self._told = [_told_apart(block.terms) for block in strategy.blocks]
        self._alone: dict[int, Information] = {}
        self._parts: dict[LinearOperator, list[_Part]] = {}

    def _of(self, block: int) -> Information:
        """Least squares from one block alone."""
        if block not in self._alone:
            single = replace(self.strategy, blocks=(self.strategy.blocks[block],), candidates=())
            self._alone[block] = information.__wrapped__(single, (self._variances[block],))
        return self._alone[block]

    def _best(self, query: LinearOperator) -> int | None:
        """The block that determines a query with least total variance, or None."""
        needed = _told_apart(products(query))
        best: tuple[float, int] | None = None
        for b, told in enumerate(self._told):
            if not needed <= told:
                continue
            try:
                total = float(self._of(b).variance(query).sum())
            except (NotEstimable, Unsupported):
                continue
            if best is None or total < best[0]:
                best = total, b
        return None if best is None else best[1]

    def _split(self, operator: LinearOperator) -> list[_Part]:
        if operator not in self._parts:
            self._parts[operator] = list(self._assigned(operator))
        return self._parts[operator]

    def _assigned(self, operator: LinearOperator) -> Iterator[_Part]:
        whole = self._best(operator)
        if whole is not None:
            yield _Part(whole, operator)
            return
        by_block: dict[int, list[tuple[int, LinearOperator]]] = {}
        terms: list[Term] = products(operator)
        for coefficient, factors in terms if len(terms) > 1 else ():
            query = Kron(factors)
            block = self._best(query)
            if block is None:
                raise _refuse_local()
            by_block.setdefault(block, []).append((coefficient, query))
        if not by_block:
            raise _refuse_local()
        for block, queries in by_block.items():
            yield _Part(block, Sum(queries))

    def answer(self, operator: LinearOperator, answers: Sequence[np.ndarray]) -> np.ndarray:
        """``sum_g W_g A_g^+ y_g`` from the blocks' noisy answers, (m,)."""
        total = np.zeros(operator.shape[0])
        for part in self._split(operator):
            total += self._of(part.block).answer(part.query, [answers[part.block]])
        return total

    def variance(self, operator: LinearOperator) -> np.ndarray:
        """Variance of the local answers, (m,): the blocks' noises are independent, so parts add."""
        total = np.zeros(operator.shape[0])
        for part in self._split(operator):
            total += self._of(part.block).variance(part.query)
        return total

    def total(self, workload: Workload) -> float:
        """Total weighted variance, the tables' variances summed."""
        tables = ((t, t.operator(workload.domain)) for t in workload.tables)
        return sum(float(t.weight) ** 2 * float(self.variance(q).sum()) for t, q in tables)

    def profile(self, operator: LinearOperator) -> Profile:
        """Statistics of the coefficients, on the blocks that take part."""
        parts = self._split(operator)
        alone = [p for part in parts if isinstance(p := self._of(part.block).profile(part.query), Profile)]
        assert len(alone) == len(parts)  # one block's coefficients are always known
        every = slice(None)
        columns = [every if p.inverse is None else p.inverse for p in alone]
        fields = ("power2", "power4", "power6", "largest", "count")
        stats = (
            np.concatenate([getattr(p, name)[:, c] for p, c in zip(alone, columns, strict=True)])
            for name in fields
        )
        exact, blocks = all(p.exact for p in alone), tuple(part.block for part in parts)
        return Profile(*stats, exact=exact, blocks=blocks)


@lru_cache(maxsize=4096)
def _varies(factor: LinearOperator) -> bool:
    """Whether a matrix tells any two of its columns apart."""
    return factor.shape[1] > 1 and int(factor.column_classes().max()) > 0


def _told_apart(terms: Sequence[Term]) -> frozenset[int]:
    """The attributes whose values some product tells apart."""
    return frozenset(i for _, factors in terms for i, factor in enumerate(factors) if _varies(factor))


def _refuse_local() -> NotEstimable:
    return NotEstimable(
        f"{refuse_not_estimable()}; more exactly, no single group of measured queries determines it, and groups are "
        "not combined to answer a table here"
    )
