"""Selection under invariants: the same problem, for the workload restricted to the null space of what is exact.

With C the exact tables and Pi_N the projector onto null(C), a table's answers are ``W x = W Pi_N x + W C^+ c`` with
``c = C x`` known. Only the first part needs noise, so the best mechanism that keeps the invariants is the best one for
``W Pi_N`` (Gao, Gong, Yu, Corollary 3.10), and every method of selection serves as it is.

Where the exact tables nest attribute by attribute, ``W Pi_N`` is a sum of a few products over the same domain. Else the
problem is written over merged cells, as one attribute, and the strategy is carried back.

Relative error divides each query by the norm of its row w, of all that it counts: what is exact is part of the answer
too. ``diag(1/|w|) (W Pi_N)`` is the restriction of ``diag(1/|w|) W``, so whole numbers are restricted, and scaled then.
Norms are irrational, and floats: they are about what is chosen, not about what is measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import reduce

import numpy as np

from ..domain import Domain, Invariants, Table, Workload
from ..errors import InvalidArgument, Unsupported
from ..linalg import Dense, Kron, LinearOperator, MatrixProduct, Partition
from .block import Block
from .information.explicit import joint_merges, over_merged
from .information.routes import LeftOpen, error_under, information
from .objective import Objective, Targets, query_norms, relative_workload, rows_divided
from .strategy import Strategy, unit_rmse, unit_variances

_GRID = 20  # bits of the largest entry of a matrix that is rounded

CELL = "cell"
"""The attribute of a problem that is written over merged cells."""


@dataclass(frozen=True)
class Restriction:
    """A workload restricted to null(C), over its own domain, and the way back.

    ``workload`` holds ``divisor * W_t Pi_N`` with weight ``weight / divisor`` for every table that is not wholly exact;
    ``invariants`` are the exact tables over the workload's domain; ``merges`` (None: the domain is the original one)
    are the partitions that made its cells. For ``relative`` error ``norms`` holds the L2 norms of each table's queries,
    (m,) with 1 for queries of no cell, by which these have been divided, where the problem is over merged cells.
    """

    original: Workload
    exact: tuple[Table, ...]
    workload: Workload
    divisors: dict[str, int]
    invariants: tuple[Table, ...]
    merges: tuple[Partition, ...] | None = None
    norms: dict[str, np.ndarray] = field(default_factory=dict)
    relative: bool = False

    @property
    def whole(self) -> Workload:
        """The workload before it was restricted, scaled as it was."""
        return self.original if not self.relative else relative_workload(self.original)

    def objective(self, objective: Objective) -> Objective:
        """The same objective for the restricted tables."""
        if not isinstance(objective, Targets):
            return objective
        objective.check(self.original)
        return Targets(
            rmse={n: v * self.divisors[n] for n, v in objective.rmse.items() if n in self.divisors},
            margin={n: v * self.divisors[n] for n, v in objective.margin.items() if n in self.divisors},
            confidence=objective.confidence,
        )

    def unit_rmse(self, strategy: Strategy, neighbours: str) -> float:
        """Root mean squared error of what is left of the workload, from a strategy over the original domain.

        At unit noise, as :func:`tabulae.strategy.strategy.unit_rmse`.
        """
        if self.merges is None:
            return unit_rmse(strategy, self.workload, neighbours)
        return math.sqrt(self._total(strategy, neighbours) / self.workload.queries)

    def _total(self, strategy: Strategy, neighbours: str) -> float:
        """Total squared error at unit noise of the workload before it was restricted, scaled as it was."""
        variances = unit_variances(strategy, neighbours)
        if not self.relative:
            return error_under(strategy, self.original, variances).tse
        info, total = information(strategy, variances), 0.0
        for table in self.original.tables:
            variance = LeftOpen.of(strategy, table).variance(info)
            total += float(table.weight) ** 2 * float((variance / self.norms[table.name] ** 2).sum())
        return total

    def value(self, strategy: Strategy, objective: Objective, neighbours: str) -> float:
        """What a strategy over the original domain reaches of an objective, at unit noise; less is better.

        The total squared error, the largest weighted variance, or the largest ratio of squared error to what a
        target allows.
        """
        variances = unit_variances(strategy, neighbours)
        if objective == "total":
            if self.merges is None:
                return information(strategy, variances).total(self.workload)
            return self._total(strategy, neighbours)
        info = information(strategy, variances)
        found = {t: LeftOpen.of(strategy, t).variance(info) for t in self.original.tables}
        if not isinstance(objective, Targets):
            return max(float(t.weight) ** 2 * float(v.max(initial=0.0)) for t, v in found.items())
        ratios = [0.0]
        for table, variance in found.items():
            allowed = objective.squared(table.name)
            if allowed is not None:
                worst = variance.max(initial=0.0) if table.name in objective.margin else variance.mean()
                ratios.append(float(worst) / allowed)
        return max(ratios)

    def groups(self, groups: tuple[tuple[str, ...], ...] | None) -> tuple[tuple[str, ...], ...] | None:
        """The same groups of tables, without those that are exact."""
        if groups is None:
            return None
        left = [tuple(name for name in group if name in self.divisors) for group in groups]
        return tuple(group for group in left if group)

    def lift(self, strategy: Strategy) -> Strategy:
        """A strategy for the restricted workload as one over the original domain, under its invariants."""
        if self.merges is None:
            return replace(strategy, invariants=self.exact)
        carry = Kron(self.merges)
        blocks = tuple(replace(b, query=_over_cells(b.query, carry)) for b in strategy.blocks)
        return replace(strategy, domain=self.original.domain, blocks=blocks, invariants=self.exact)


def restrict(workload: Workload, tables: Sequence[Table], *, relative: bool = False) -> Restriction:
    """The workload restricted to the null space of exact tables; for ``relative`` error its queries have norm 1 before.

    Raises :class:`~tabulae.errors.InvalidArgument` where the exact tables determine every table of the workload.
    """
    invariants = Invariants(workload.domain, tables)
    exact = invariants.tables
    if invariants.structure == "product":
        left, divisors = [], {}
        for table in workload.tables:
            restricted = invariants.restricted_table(table)
            assert restricted is not None
            rest, divisor = restricted
            if rest is not None and not invariants.determined(table).all():
                rest = _weighted(rest, table.weight / divisor)
                left.append(rows_divided(rest, query_norms(table, workload.domain)) if relative else rest)
                divisors[table.name] = divisor
        _check_left(left, workload)
        restricted = Workload(workload.domain, left)
        return Restriction(workload, exact, restricted, divisors, exact, relative=relative)
    return _flattened(workload, invariants, relative=relative)


def restricted_strategy(strategy: Strategy, tables: Sequence[Table]) -> Strategy:
    """The queries ``A_i Pi_N`` of a strategy in place of ``A_i``: what least squares under exact tables really asks.

    Least squares of ``y = A x + e`` under ``C x = c`` is least squares of ``y - A C^+ c = A Pi_N x + e``: unless the
    weights are such that the exact counts drop out, its estimates in null(C) depend on the records by ``A Pi_N``, and
    that is what it costs: ``max_d (Pi_N d)' P (Pi_N d) / 2`` in place of ``max_d d' P d / 2``, which may be several
    times as much. This strategy is measured and charged as such, and estimates from it are the same.

    Raises :class:`~tabulae.errors.Unsupported` for blocks that are no products over the attributes, and for tables of
    general shape over more than 4,096 merged cells.

    Privacy:
        Measured queries and their sensitivity are one: integer matrices ``divisor * A_i Pi_N`` with noise ``divisor``
        times as large, or where the tables do not nest ``A_i Pi_N`` on a fine grid, charged as it is there (Gao, Gong,
        Yu, Theorem 3.3 and Corollary 3.6, with a basis that is redundant).

    >>> import tabulae as tb
    >>> plain = tb.select(tb.Workload.of(tb.Identity(4)), method="identity")
    >>> restricted_strategy(plain, [tb.Table("total", {})]).sensitivity().power  # 1 - 1/n
    Fraction(3, 4)
    """
    invariants = Invariants(strategy.domain, tables)
    merges = None if invariants.structure == "product" else joint_merges(strategy, invariants)
    blocks = []
    for block in strategy.blocks:
        if not isinstance(block.query, Kron):
            raise Unsupported(
                f"block {block.name!r} is not a single product over the attributes, and cannot be restricted as it "
                "stands: select with invariants= in the first place"
            )
        table = Table(block.name, dict(zip(strategy.domain.names, block.query.ops, strict=True)))
        if not invariants.determined(table).all():
            if merges is None:
                blocks.append(_exactly_restricted(block, table, invariants, strategy.norm))
            else:
                blocks.append(_nearly_restricted(block, table, invariants, merges))
    if not blocks:
        raise InvalidArgument(
            "the exact tables determine all that this strategy asks: nothing is left to measure"
        )
    return replace(
        strategy,
        blocks=tuple(blocks),
        invariants=invariants.tables,
        certificate=None,
        lower=None,
        candidates=(),
    )


def _exactly_restricted(block: Block, table: Table, invariants: Invariants, power: int) -> Block:
    """``divisor * A Pi_N`` in whole numbers, its noise ``divisor`` times as large."""
    restricted, divisor = invariants.restricted_table(table) or (None, 1)
    assert restricted is not None  # some row is not determined
    return replace(block, query=restricted.operator(invariants.domain), scale=block.scale * divisor**power)


def _nearly_restricted(
    block: Block, table: Table, invariants: Invariants, merges: Sequence[Partition]
) -> Block:
    """``A Pi_N`` over merged cells, rounded to a grid of 2^-20 of its largest entry."""
    matrix = invariants.restricted_over(table, merges)
    finer = max(0, _GRID - math.frexp(float(np.abs(matrix).max()))[1])
    whole = np.rint(np.ldexp(matrix, finer)).astype(np.int64)
    return replace(block, query=MatrixProduct(Dense(whole), Kron(merges)), exponent=block.exponent + finer)


def _flattened(workload: Workload, invariants: Invariants, *, relative: bool) -> Restriction:
    """The restricted workload over merged cells as one attribute."""
    _, merges = Workload(workload.domain, [*invariants.tables, *_renamed(workload.tables)]).merge()
    cells = Kron(merges)
    domain = Domain({CELL: cells.shape[0]})
    left, norms = [], {}
    for table in workload.tables:
        matrix = invariants.restricted_over(table, merges)
        if relative:
            norms[table.name] = _norms(over_merged(table.operator(workload.domain), merges), merges)
            matrix = matrix / norms[table.name][:, None]
        if np.any(matrix):
            left.append(Table(table.name, {CELL: Dense(matrix)}, table.weight))
    _check_left(left, workload)
    exact = tuple(
        Table(t.name, {CELL: Dense(over_merged(t.operator(workload.domain), merges))})
        for t in invariants.tables
    )
    divisors = {table.name: 1 for table in left}
    restricted = Workload(domain, left)
    return Restriction(workload, invariants.tables, restricted, divisors, exact, merges, norms, relative)


def _norms(matrix: np.ndarray, merges: Sequence[Partition]) -> np.ndarray:
    """L2 norms of queries over merged cells (m x n) as queries over all cells, 1 for those of no cell."""
    sizes = reduce(np.kron, [merge.sizes for merge in merges])
    norms = np.sqrt(np.square(matrix.astype(float)) @ sizes)
    return np.where(norms > 0, norms, 1.0)


def _over_cells(query: LinearOperator, carry: Kron) -> LinearOperator:
    """A query over the merged cells as one over the domain."""
    if isinstance(query, Kron) and len(query.ops) == 1:
        query = query.ops[0]
    return MatrixProduct(Dense(query.dense()), carry)


def _weighted(table: Table, weight: Fraction) -> Table:
    return Table.of_terms(table.name, table.terms, weight, table.labels)


def _renamed(tables: Sequence[Table]) -> list[Table]:
    """The same tables under names that no exact table has."""
    return [Table.of_terms(f"{t.name} of the workload {i}", t.terms, t.weight) for i, t in enumerate(tables)]


def _check_left(left: Sequence[Table], workload: Workload) -> None:
    if not left:
        names = ", ".join(repr(t.name) for t in workload.tables[:6])
        raise InvalidArgument(
            f"the invariants determine every count asked for ({names}): nothing is left to protect by noise, and "
            "nothing to release under a guarantee. Ask for more detailed tables, or make fewer of them exact"
        )
