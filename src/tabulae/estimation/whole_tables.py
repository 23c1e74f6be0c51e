"""Whole tables from a measurement: the posterior of its cliques, the published counts, and credible intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from ..domain import Table, Workload
from ..errors import InvalidArgument, NotEstimable, Unsupported
from ..linalg import Contrasts, Identity, LinearOperator, MatrixProduct, Partition, Stack, merge_columns
from ..strategy import Block, products
from ..strategy.block import terms_of
from .clique_posterior import (
    LARGEST,
    Clique,
    CliqueDraws,
    ExactTable,
    MeasuredCliques,
    cliques_of,
    identity,
    sample,
)
from .intervals import are_enough, credible, effective
from .least_squares import OneSided

IMPLICATES = 200
"""Draws that are published: enough for intervals at 95 %, and for 100 effective ones."""

_ENTRIES = 2**24  # of a matrix of measured queries
_NO_NOISE = 1e-3  # a variance so small that noise is 0
_LAWS = ("discrete-gaussian", "discrete-laplace")


@dataclass(frozen=True, eq=False, repr=False)
class Posterior(OneSided):
    """Whole, non-negative counts that agree with each other, near to draws from a posterior given all measurements.

    Standard errors and intervals are those of least squares, cut at 0 and widened to hold the estimates;
    :meth:`credible_of` gives those of the draws. See :mod:`tabulae.estimation.clique_posterior` for the model.

    Arguments:
        published: the tables that draws must be worth enough for; they may ask for more than is measured together.
        seed: of the draws, public.
        stored: draws that were made before, shape (draws, cells), in place of new ones.

    Raises:
        InvalidArgument: on first use, exact counts that contradict each other.
        Unsupported: on first use, more cells than are drawn; noise that is rounded; exact counts that moves cannot
            keep; measurements that do not determine the number of records.
    """

    published: Workload
    seed: int = 0
    stored: np.ndarray | None = None

    @property
    def precision(self) -> float:
        return 0.0

    @cached_property
    def merges(self) -> tuple[Partition, ...]:
        """For each attribute, the classes of categories that nothing tells apart."""
        strategy, domain = self.measurement.strategy, self.domain
        tables = [*self.published.tables, *strategy.invariants]
        every = [factors for block in strategy.blocks for _, factors in terms_of(block.query)]
        every += [factors for table in tables for _, factors in terms_of(table.operator(domain))]
        return tuple(merge_columns(list(column)) for column in zip(*every, strict=True))

    @cached_property
    def cliques(self) -> tuple[Clique, ...]:
        strategy, domain = self.measurement.strategy, self.domain
        tables = [*self.published.tables, *strategy.invariants]
        queries = [*(b.query for b in strategy.blocks), *(table.operator(domain) for table in tables)]
        sets = [asked for query in queries for part in _members(query) for asked in _asked(part)]
        sizes = [merge.shape[0] for merge in self.merges]
        found = cliques_of(sets, sizes)
        cells = sum(map(self._cells, found))
        if cells > LARGEST:
            names = self._names(max(found, key=self._cells))
            raise Unsupported(
                f"the queries join attributes to {cells:,} cells, most of them of {names}; whole tables are drawn of "
                f'up to {LARGEST:,}. Ask for fewer attributes together, or estimate by "non-negative"'
            )
        return found

    def _names(self, clique: Clique) -> str:
        return ", ".join(self.domain.names[k] for k in clique.attributes) or "everybody"

    def over_cells(self, operator: LinearOperator) -> sparse.csr_array:
        """Shape (rows, cells): a matrix over the domain as one over the cells of the cliques."""
        return sparse.csr_array(sparse.vstack([self._over(part) for part in _members(operator)]))

    def _over(self, part: LinearOperator) -> sparse.csr_array:
        if isinstance(part, MatrixProduct | Contrasts):
            (asked,) = _asked(part)
            return self._placed(asked, lambda clique: _written(part, clique, self.merges))
        terms = [
            coefficient
            * self._placed(_told(factors), lambda clique, f=factors: _product(f, clique, self.merges))
            for coefficient, factors in products(part)
        ]
        return sparse.csr_array(sum(terms[1:], terms[0]))

    def _placed(self, asked: frozenset[int], write: Callable[[Clique], sparse.csr_array]) -> sparse.csr_array:
        """A matrix over the first clique that has some attributes, as one over all cells."""
        found = [clique for clique in self.cliques if asked <= {*clique.attributes}]
        if not found:
            names = ", ".join(self.domain.names[k] for k in sorted(asked))
            raise NotEstimable(f"no queries join {names}, so that the draws have no joint counts of them")
        before = sum(map(self._cells, self.cliques[: self.cliques.index(found[0])]))
        matrix = write(found[0])
        height, entries = len(matrix.indptr) - 1, sparse.coo_array(matrix)
        rows, columns = entries.coords
        width = sum(map(self._cells, self.cliques))
        return sparse.csr_array((entries.data, (rows, columns + before)), (height, width))

    def _cells(self, clique: Clique) -> int:
        return math.prod(self.merges[k].shape[0] for k in clique.attributes)

    @cached_property
    def model(self) -> MeasuredCliques:
        """What is measured, as the sampler reads it."""
        measured = self.measurement
        if self.domain.measured:
            raise Unsupported(
                "whole tables are drawn of counts of records, and this domain has measured values"
            )
        rounded = [law.name for law in measured.laws if law.name not in _LAWS]
        if rounded:
            raise Unsupported(f"whole tables are drawn given discrete noise, not given {rounded[0]} noise")
        matrices = [sparse.csr_array((0, sum(map(self._cells, self.cliques))), dtype=np.int64)]
        answers, precision, slope = [], [], []
        exact = [
            self._exact(*each) for each in zip(measured.strategy.invariants, measured.exact, strict=True)
        ]
        blocks = zip(measured.strategy.blocks, measured.laws, measured.block_values(), strict=True)
        for block, law, values in blocks:
            if law.variance_of_law < _NO_NOISE:
                exact.append(self._everybody(block, values))
                continue
            laplace, parameter = law.kind == "laplace", float(law.parameter)
            matrices.append(self.over_cells(block.query))
            answers.append(values)
            precision.append(np.full(len(values), 1 / (2 * parameter**2 if laplace else parameter)))
            slope.append(np.full(len(values), 1 / parameter if laplace else 0.0))
        try:
            return MeasuredCliques(
                tuple(merge.shape[0] for merge in self.merges),
                self.cliques,
                sparse.csc_array(sparse.vstack(matrices)),
                np.concatenate([np.zeros(0), *answers]),
                np.concatenate([np.zeros(0), *precision]),
                np.concatenate([np.zeros(0), *slope]),
                tuple(exact),
            )
        except InvalidArgument as error:
            raise Unsupported(f'{error}: estimate by "non-negative", which keeps them') from None

    def _exact(self, table: Table, counts: np.ndarray) -> ExactTable:
        """An exact table that counts everybody once, by classes of some attributes."""
        terms = products(table.operator(self.domain))
        classes: dict[int, np.ndarray] = {}
        for k, (factor, merge) in enumerate(zip(terms[0][1], self.merges, strict=True)):
            matrix = factor.columns(_first(merge))
            if (
                len(terms) > 1
                or terms[0][0] != 1
                or not ((matrix == 0) | (matrix == 1)).all()
                or (matrix.sum(axis=0) != 1).any()
            ):
                raise Unsupported(
                    f"exact table {table.name!r} does not count everybody once by classes of attributes, and moves "
                    'that keep its counts are not known: estimate by "non-negative", which keeps them'
                )
            if len(matrix) > 1:
                classes[k] = np.argmax(matrix, axis=0)
        return ExactTable(classes, counts)

    def _everybody(self, block: Block, values: np.ndarray) -> ExactTable:
        """The number of records, where it is public: its noise is none."""
        if len(values) > 1 or any(_asked(block.query)):
            raise Unsupported(
                f"the queries {block.name!r} are measured all but without noise, and moves that keep them are not "
                'known: take a smaller budget, or estimate by "non-negative"'
            )
        return ExactTable({}, values >> block.exponent)

    @cached_property
    def draws(self) -> CliqueDraws:
        """Whole tables drawn given all measurements."""
        if self.stored is not None:
            return CliqueDraws(self.model, self.stored, 0, 0)
        random = np.random.default_rng(self.seed)
        start = self.model.start(self.everybody, random)
        figures = [self.over_cells(table.operator(self.domain)) for table in self.published.tables]
        return sample(self.model, start, figures, draws=IMPLICATES, seed=self.seed)

    @property
    def everybody(self) -> int:
        """About how many records there are: where draws begin.

        Raises:
            Unsupported: the measurements do not determine it.
        """
        try:
            found = round(float(self.linear.answer_of(Table("total", {}))[0]))
        except NotEstimable:
            raise Unsupported(
                "the measurements do not determine how many records there are, which draws of whole tables need: ask "
                'for a table of everybody, or estimate by "non-negative"'
            ) from None
        return max(found, 0)

    @cached_property
    def cells(self) -> np.ndarray:
        """The published whole counts of the cells of all cliques."""
        return self.draws.table()

    def point_of(self, operator: LinearOperator) -> np.ndarray:
        return np.asarray(self.over_cells(operator) @ self.cells, dtype=float)

    @cached_property
    def effective(self) -> dict[str, dict[str, float]]:
        """How many independent draws these are worth, by published table: for everybody, and for its cells."""
        found = {}
        everybody = self.draws.sums(self.over_cells(Table("total", {}).operator(self.domain)))
        for table in self.published.tables:
            cells = self.draws.sums(self.over_cells(table.operator(self.domain)))
            found[table.name] = {
                "totals": round(effective(everybody), 1),
                "cells": round(effective(cells), 1),
            }
        return found

    def is_credible(self, table: Table) -> bool:
        """Whether the draws are worth enough for credible intervals of a published table."""
        return are_enough(self.effective[table.name])

    def credible_of(self, table: Table, level: float) -> tuple[np.ndarray, np.ndarray] | tuple[()] | None:
        """Ends of the draws' intervals of a published table, widened to hold its counts; None of any other table."""
        if table not in self.published.tables:
            return None
        if not self.is_credible(table):
            return ()
        ends = credible(self.draws.sums(self.over_cells(table.operator(self.domain))), level)
        point = self.answer_of(table)
        return np.minimum(ends.low, point), np.maximum(ends.high, point)


def _members(query: LinearOperator) -> Sequence[LinearOperator]:
    return query.ops if isinstance(query, Stack) else [query]


def _told(factors: Sequence[LinearOperator]) -> frozenset[int]:
    """The attributes whose categories a product tells apart."""
    return frozenset(k for k, factor in enumerate(factors) if factor.column_classes().max() > 0)


def _asked(query: LinearOperator) -> list[frozenset[int]]:
    """The attributes that are asked for together, term by term."""
    return [_told(factors) for _, factors in terms_of(query)]


def _first(merge: Partition) -> np.ndarray:
    """A category of each class."""
    return np.unique(merge.classes, return_index=True)[1]


def _written(part: LinearOperator, clique: Clique, merges: Sequence[Partition]) -> sparse.csr_array:
    """An explicit matrix over a clique that has all attributes that it asks for."""
    if isinstance(part, Contrasts):
        return _written(part.composed, clique, merges)
    if isinstance(part, MatrixProduct):
        return sparse.csr_array(_sparse(part.left) @ _written(part.right, clique, merges))
    terms = [coefficient * _product(factors, clique, merges) for coefficient, factors in products(part)]
    return sparse.csr_array(sum(terms[1:], terms[0]))


def _product(
    factors: Sequence[LinearOperator], clique: Clique, merges: Sequence[Partition]
) -> sparse.csr_array:
    """A product over a clique that has all attributes that it tells apart."""
    found = sparse.csr_array(np.ones((1, 1), np.int64))
    for k, (factor, merge) in enumerate(zip(factors, merges, strict=True)):
        if k not in clique.attributes:
            part = sparse.csr_array(factor.columns(np.zeros(1, np.int64)))
        elif isinstance(factor, Identity) and merge.shape[0] == merge.shape[1]:
            part = identity(factor.shape[0])
        else:
            part = _sparse(factor, _first(merge))
        if found.nnz * part.nnz > _ENTRIES:
            raise Unsupported(_TOO_MANY)
        found = sparse.csr_array(sparse.kron(found, part))
    return found


def _sparse(factor: LinearOperator, columns: np.ndarray | None = None) -> sparse.csr_array:
    if factor.shape[0] * (factor.shape[1] if columns is None else columns.size) > 4 * _ENTRIES:
        raise Unsupported(_TOO_MANY)
    return sparse.csr_array(factor.dense() if columns is None else factor.columns(columns))


_TOO_MANY = (
    "the measured queries have too many numbers for draws of whole tables: ask for fewer categories or attributes "
    'together, or estimate by "non-negative"'
)
