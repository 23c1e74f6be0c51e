"""Estimation by one of several methods: least squares, non-negative least squares, or a graphical model.

Non-negative least squares is over the cells that the measurements tell apart. The graphical model (Private-PGM) is
fitted to the measured marginals through the package mbi, and is non-negative too.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any

import numpy as np

from ..domain import Constraint, Domain, Table
from ..errors import InvalidArgument, NotEstimable, Unsupported, require
from ..linalg import Dense, Kron, LinearOperator, MatrixProduct, Partition, Total
from ..measurement import Measurement
from ..strategy import Block, law_variances, merges, products
from .cone import Certificate, ConeSolution, ConstrainedCone, WholeSolution, solve
from .least_squares import (
    ConstrainedLeastSquares,
    Estimate,
    LeastSquares,
    LocalLeastSquares,
    OneSided,
    equalities,
)
from .merged_cells import Limits, MeasuredCells, over_classes
from .whole_cells import Rounding

_SURE = 1e-6
"""Of the largest variance, or of an answer's unit: what is so sure is met within thousandths of the noise of others."""

_EVEN = 1e-3  # weights of cells in a certificate may differ by this factor before another is sought


@dataclass(frozen=True, eq=False, repr=False)
class NonNegative(OneSided):
    """``min sum_i ||S_i^-1/2 (A_i x - y_i)||^2`` over ``x >= 0``, ``C x = c`` and ``l <= T x <= u``.

    Of all cells that are possible, those closest to the measurements: in the measured norm they are never farther from
    the truth than the measurements are. Solved over merged cells, to a duality gap that ``solution.gap`` states:
    each answer lies within ``sqrt(2 gap)`` of its own standard errors of the exact optimum.

    With constraints the cells are whole numbers of ``2^-k`` counts (:attr:`exact_cells`), so that the equalities and
    limits hold exactly, in whole numbers; see :mod:`.whole_cells` for why such cells exist and how they are found.

    Arguments:
        constraints: what is known of tables over the measured domain, the exact counts that were read among it.
        held: what estimates meet besides, though it need not be true: intervals take no part in it.

    Raises:
        InvalidArgument: on first use, constraints that no non-negative counts meet, with the rows that contradict.
        Unsupported: above 10^7 merged cells; constraints of a shape and size for which whole cells are not found.

    >>> import tabulae as tb
    >>> strategy = tb.select(tb.Workload.of(tb.Identity(4)), method="identity")
    >>> m = tb.measure(np.array([5, 0, 2, 9]), strategy, tb.ZCDP(2))
    >>> everybody = Constraint.equal(Table("total", {}), 16)
    >>> cells, k = NonNegative(m, (everybody,)).exact_cells
    >>> int(cells.sum()) == 16 << k, bool((cells >= 0).all())
    (True, True)
    """

    constraints: tuple[Constraint, ...] = ()
    held: tuple[Constraint, ...] = ()

    @property
    def _met(self) -> tuple[Constraint, ...]:
        return (*self.constraints, *self.held)

    @property
    def precision(self) -> float:
        return 2 * math.sqrt(2 * self.solution.gap)

    @cached_property
    def _problem(self) -> MeasuredCells:
        strategy = self.measurement.strategy
        tables = [constraint.table.operator(strategy.domain) for constraint in self._met]
        return MeasuredCells(strategy, self._noise, tables)

    @cached_property
    def _noise(self) -> tuple[float, ...]:
        """The variances that answers are weighted by: none so small beside the others that its weight is out of reach.

        Where the number of records is public its noise is next to none, a variance of e^-4000, say.
        """
        variances = law_variances(self.measurement.strategy, self.measurement.laws)
        return tuple(max(variance, _SURE * max(1.0, *variances)) for variance in variances)

    @cached_property
    def _limits(self) -> Limits:
        return Limits(self._problem, self.measurement.strategy.domain, self._met)

    @cached_property
    def solution(self) -> ConeSolution:
        """The merged cells, and the gap that proves how near the optimum they are."""
        problem = self._problem
        whitened = [y / math.sqrt(v) for y, v in zip(self.answers, self._noise, strict=True)]
        if not self._met:
            return solve(problem, whitened, self._certificate())
        limits = self._limits
        rounding = Rounding(limits, problem.shape)
        covered = limits.covering() > 0
        if (covered | ~limits.open).all():
            certificate = Certificate(np.zeros(problem.cells), 0.0)
        else:
            certificate = self._certificate()
        found = ConstrainedCone(problem, limits, whitened, certificate).solve(rounding)
        if found is None:
            raise Unsupported(
                "no whole cells were found that are not negative and meet the constraints exactly: fix fewer tables, "
                'or estimate by "least-squares", which keeps the exact tables but not the signs'
            )
        return found

    @property
    def exact_cells(self) -> tuple[np.ndarray, int]:
        """(cells, k): merged cells as int64 in units of ``2^-k`` counts, where there are constraints.

        The sums of a matrix of whole numbers over them are exact, and meet the constraints in whole numbers.
        """
        solution = self.solution
        if not isinstance(solution, WholeSolution):
            raise InvalidArgument(
                "cells are put on a grid where constraints are to be met exactly: there are none"
            )
        return solution.scaled, solution.exponent

    @cached_property
    def linear(self) -> LeastSquares:
        """Least squares from the same measurements, under the equalities where there is one for them."""
        given = self.constraints[len(self.measurement.strategy.invariants) :]
        equal = tuple(constraint for constraint in given if constraint.is_equality)
        if not equal:
            return LeastSquares(self.measurement)
        constrained = ConstrainedLeastSquares(self.measurement, equal)
        try:
            constrained.information  # noqa: B018  (built here to learn whether it can be)
        except Unsupported:
            return LeastSquares(self.measurement)  # its intervals are wider, and hold all the same
        return constrained

    def known_of(self, table: Table) -> tuple[np.ndarray, np.ndarray]:
        """The limits, too, of a table that is constrained itself."""
        least, most = super().known_of(table)
        for constraint in self.constraints:
            if constraint.table.operator(self.domain) == table.operator(self.domain):
                spread = constraint.over(self.domain)
                if spread.at_least is not None:
                    least = np.maximum(least, spread.at_least)
                if spread.at_most is not None:
                    most = np.minimum(most, spread.at_most)
        return least, most

    def _certificate(self) -> Certificate:
        """All measured queries added up, if that counts every cell with a positive weight; else the total."""
        problem = self._problem
        ones = [np.ones(block.rows) for block in self.measurement.strategy.blocks]
        direction, counted = problem.adjoint(ones), problem.counted()
        if direction[counted].min(initial=np.inf) > _EVEN * direction.max(initial=0.0):
            return Certificate(np.where(counted, direction, 0.0), float(sum(map(len, ones))))
        try:
            total = self._everyone()
            variance = float(self.information.variance(total)[0])
        except NotEstimable:
            raise Unsupported(
                "the measured queries have negative weights and do not determine how many records they count, "
                'so that no stopping rule of non-negative least squares is proven for them: estimate by "least-squares"'
            ) from None
        return Certificate(np.asarray(problem.over_cells(total).T @ np.ones(1), dtype=float), variance)

    def _everyone(self) -> LinearOperator:
        """The count over all values of each attribute that some block counts."""
        rows: list[LinearOperator] = []
        blocks = [factors for block in self.measurement.strategy.blocks for _, factors in block.terms]
        for column in zip(*blocks, strict=True):
            seen = np.any([np.asarray(f.column_norms(1)) > 0 for f in column], axis=0)
            rows.append(Total(len(seen)) if seen.all() else Partition(np.where(seen, 0, -1), 1))
        return Kron(rows)

    def point_of(self, operator: LinearOperator) -> np.ndarray:
        merged = self._problem.over_cells(operator)
        if self._met and merged.integer:
            cells, exponent = self.exact_cells
            return np.ldexp((merged @ cells).astype(float), -exponent)
        return np.asarray(merged @ self.solution.cells, dtype=float)


LARGEST = 256.0
"""Largest junction tree, in MiB of its tables."""

_STEPS, _TOLERANCE = 5000, 1e-8

Term = tuple[int, list[LinearOperator]]


@dataclass(frozen=True, eq=False, repr=False)
class GraphicalModel(OneSided):
    """The graphical model whose cliques are the measured sets of attributes and that fits the measurements best.

    ``min sum_i ||S_i^-1/2 (A_i x - y_i)||^2`` over all ``x >= 0`` whose sum is the least-squares estimate of the
    number of records (at least 1); of all such x the one of largest entropy, which is kept as a product of potentials
    and never listed. Solved by mirror descent, without a bound on what is left to gain.

    Raises:
        MissingDependency: the package mbi is not installed.
        Unsupported: the measured sets of attributes link into cliques too large for a model, or the measurements do
            not determine the number of records.

    Reference: McKenna, Sheldon, Miklau, "Graphical-model based estimation and inference for differential privacy"
    (2019).
    """

    @property
    def precision(self) -> float:
        return 0.1

    @cached_property
    def _merges(self):
        return merges(self.measurement.strategy)

    @cached_property
    def _names(self) -> list[str]:
        return [attribute.name for attribute in self.measurement.strategy.domain.attributes]

    @cached_property
    def model(self) -> Any:
        with _mbi() as mbi:
            domain = mbi.Domain(self._names, [p.shape[0] for p in self._merges])
            noise = law_variances(self.measurement.strategy, self.measurement.laws)
            blocks = zip(self.measurement.strategy.blocks, self.answers, noise, strict=True)
            measured = [self._measured(mbi, block, y, v**0.5) for block, y, v in blocks]
            self._check_size(mbi, domain, measured)
            solver = mbi.estimation.MirrorDescent()
            return solver.estimate(
                domain, measured, known_total=self._records(), iters=_STEPS, tol=_TOLERANCE
            )

    def _check_size(self, mbi: ModuleType, domain: Any, measured: list[Any]) -> None:
        size = mbi.junction_tree.hypothetical_model_size(domain, [m.clique for m in measured])
        if size > LARGEST:
            raise Unsupported(
                f"the measured sets of attributes link into cliques whose tables take {size:,.0f} MiB; a "
                f"graphical model is fitted up to {LARGEST:,.0f} MiB. Measure fewer combinations of attributes, or "
                'estimate by "least-squares"'
            )

    def _records(self) -> float:
        try:
            total = self.linear.answer_of(Table("total", {}))
        except NotEstimable:
            raise Unsupported(
                "the measurements do not determine how many records there are, which a graphical model needs: "
                'measure the total, or estimate by "least-squares"'
            ) from None
        return max(1.0, float(total[0]))

    def _terms(self, operator: LinearOperator) -> list[Term]:
        if isinstance(operator, MatrixProduct):
            raise Unsupported(
                "an explicit matrix over several attributes is measured, which is not a query on one clique of a "
                'graphical model: choose a strategy of products ("kron", "union", "workload"), or estimate by '
                '"non-negative"'
            )
        return [
            (c, [over_classes(f, p) for f, p in zip(factors, self._merges, strict=True)])
            for c, factors in products(operator)
        ]

    def _measured(self, mbi: ModuleType, block: Block, y: np.ndarray, deviation: float) -> Any:
        """One block as a linear query on the marginal of its attributes."""
        terms = self._terms(block.query)
        asked = [
            i for i in range(len(self._names)) if any(f[i].shape[0] > 1 or _told(f[i]) for _, f in terms)
        ]
        query = _Query([(c * 2.0**-block.exponent, f) for c, f in terms], asked)
        return mbi.LinearMeasurement(y, tuple(self._names[i] for i in asked), deviation, query)

    def point_of(self, operator: LinearOperator) -> np.ndarray:
        total = np.zeros(operator.shape[0])
        for coefficient, factors in self._terms(operator):
            kept = [i for i, f in enumerate(factors) if _told(f)]
            queries = [f if _told(f) else Dense(_first_column(f)) for f in factors]
            with _mbi():
                marginal = self.model.project(tuple(self._names[i] for i in kept))
                order = [marginal.domain.attributes.index(self._names[i]) for i in kept]
                values = np.asarray(marginal.datavector(flatten=False), dtype=float).transpose(order)
            total += coefficient * (Kron(queries) @ values.ravel())
        return total


def _told(factor: LinearOperator) -> bool:
    """Whether a matrix tells any two of its columns apart."""
    return factor.shape[1] > 1 and int(factor.column_classes().max()) > 0


def _first_column(factor: LinearOperator) -> np.ndarray:
    """What an attribute that is only summed up is multiplied by, (m, 1)."""
    return np.asarray(factor.columns(np.zeros(1, dtype=np.int64)), dtype=float)


class _Query:
    """A sum of products as mbi calls it: from a marginal's table to the answers, by jax."""

    def __init__(self, terms: list[tuple[float, list[LinearOperator]]], asked: list[int]) -> None:
        self._terms = []
        for weight, factors in terms:
            numbers = [_first_column(f).item() for i, f in enumerate(factors) if i not in asked]
            matrices = [np.asarray(factors[i].dense(), dtype=float) for i in asked]
            self._terms.append((float(weight * np.prod(numbers)), matrices))

    def __call__(self, factor: Any) -> Any:
        jnp = require("jax.numpy", "pgm", "estimating by a graphical model")
        total = 0.0
        for weight, matrices in self._terms:
            values = factor.datavector(flatten=False)
            for axis, matrix in enumerate(matrices):
                values = jnp.moveaxis(jnp.tensordot(matrix, values, (1, axis)), 0, axis)
            total = total + weight * values.reshape(-1)
        return total


@contextmanager
def _mbi() -> Iterator[ModuleType]:
    """mbi, in double precision while it is used; it warns on import of settings that this makes harmless."""
    jax = require("jax", "pgm", "estimating by a graphical model")
    with warnings.catch_warnings(), jax.enable_x64(new_val=True):
        warnings.simplefilter("ignore")
        yield require("mbi", "pgm", "estimating by a graphical model")


METHODS = ("least-squares", "local-least-squares", "non-negative", "pgm")
"""The names that :func:`estimate` takes."""


def estimate(
    measurement: Measurement,
    *,
    constraints: Sequence[Constraint] = (),
    held: Sequence[Constraint] = (),
    method: str = "least-squares",
) -> Estimate:
    """Estimate counts from a measurement; nothing confidential is read.

    Arguments:
        measurement: noisy answers, as :func:`tabulae.measure` returns them; its exact counts are kept by every method
            that can.
        constraints: what else is known of the counts: equalities, and for "non-negative" bounds.
        held: for "non-negative", what estimates meet though the true counts need not, as counts that were published
            before: intervals are those without it, widened to the estimates.
        method: "least-squares", the unbiased ``x^ = P^+ sum_i A_i' S_i^-1 y_i`` with
            ``P = sum_i A_i' S_i^-1 A_i``, by structure and without a vector of all cells where the strategy allows;
            "local-least-squares", each table from the one block that answers it best;
            "non-negative", ``min sum_i ||S_i^-1/2 (A_i x - y_i)||^2`` over ``x >= 0``, up to 10^7 merged cells;
            "pgm", a non-negative graphical model (Private-PGM, the package mbi).

    Raises:
        InvalidArgument: an unknown method, or constraints that contradict each other or that it cannot keep.
        Unsupported: the measurements are not of the kind, or over too many cells, for this method.
        MissingDependency: "pgm" without the package mbi.

    Privacy:
        Post-processing of public values (Dwork, Roth 2014, Proposition 2.1): costs nothing. Under the invariants that a
        strategy was selected with, least squares says nothing of their null space but what the noisy answers
        say (Gao, Gong, Yu, Theorem 3.1).

    >>> import numpy as np, tabulae as tb
    >>> workload = tb.Workload.of(tb.Prefix(4))
    >>> m = tb.measure(np.array([5, 0, 2, 9]), tb.select(workload, method="identity"), tb.ZCDP("1/2"))
    >>> tb.estimate(m).variance(workload)["x"].round(3).tolist()
    [1.0, 2.0, 3.0, 4.0]
    >>> everybody = tb.Constraint.equal(tb.Table("total", {}), 16)
    >>> tb.estimate(m, constraints=[everybody]).variance(workload)["x"].round(3).tolist()
    [0.75, 1.0, 0.75, 0.0]
    """
    if method not in METHODS:
        raise InvalidArgument(f"unknown method of estimation {method!r}; known: {', '.join(METHODS)}")
    given, published = (_over(measurement.strategy.domain, some) for some in (constraints, held))
    if published and method != "non-negative":
        raise InvalidArgument(
            f'"{method}" does not keep to counts that may not be true: estimate by "non-negative"'
        )
    if method == "non-negative":
        return NonNegative(measurement, equalities(measurement, given), published)
    if method == "least-squares":
        return ConstrainedLeastSquares(measurement, given) if given else LeastSquares(measurement)
    if given or measurement.exact:
        raise InvalidArgument(
            f'"{method}" cannot keep counts exact: estimate by "least-squares" or "non-negative"'
        )
    return LocalLeastSquares(measurement) if method == "local-least-squares" else GraphicalModel(measurement)


def _over(domain: Domain, constraints: Sequence[Constraint]) -> tuple[Constraint, ...]:
    for constraint in constraints:
        if not isinstance(constraint, Constraint):
            raise InvalidArgument(
                f"{constraint!r} is not a constraint: write Constraint.equal(table, values)"
            )
    return tuple(constraint.over(domain) for constraint in constraints)
