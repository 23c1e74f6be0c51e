"""The information operator of a strategy and what follows from it: variances and least squares.

With blocks ``(A_i, v_i)`` the information operator is ``P = sum_i A_i' A_i / v_i``, N x N. Generalised
least squares answers a table W by ``Z y`` with ``Z = W P^+ A' S^-1``; its covariance is ``W P^+ W'``.
:func:`information` picks by structure, and ``.route`` says which it took:

=================  ===========================================  ======================================
route              structure                                    cost
=================  ===========================================  ======================================
``kron``           one block that is a Kronecker product        one pseudo-inverse per attribute
``weighted-kron``  one block, a product with weighted rows      one inverse per attribute
``lattice``        every block is a marginal                    closed form by set of attributes
``classes``        contrasts over common classes                one inverse for each piece
``residual``       groups beside the totals, one for each set   closed form by set of attributes
``oblique``        the same with other queries for each set     one inverse for each set
``dense``          at most ``EXPLICIT`` merged cells            one eigendecomposition of P
``rows``           at most ``EXPLICIT`` independent query rows  one eigendecomposition of A A'
``iterative``      several blocks that are products             conjugate gradients; variances bounded
=================  ===========================================  ======================================

Expected errors, margins and published standard errors all come from here. Under invariants a table is estimated as
``(W Pi_N) P^+ A' S^-1 y + W C^+ c`` with exact values c, so that its errors are those of the restricted table
``W Pi_N``: zero for the rows that the invariants determine.

Everything here is planning and post-processing: public numbers only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

import numpy as np

from ...domain import Table, Workload
from ...errors import Unsupported
from ...linalg import Identity, Kron, LinearOperator, MatrixProduct, Total
from ..deadline import check_time
from .classes import ClassInformation, contrasts_of
from .explicit import DenseInformation, RowsInformation, merged_cells, reduced_count
from .iterative import IterativeInformation
from .kron import KronInformation
from .lattice import LatticeInformation, is_lattice
from .oblique import ObliqueInformation
from .oblique_spaces import structure_of as spaces_of
from .protocol import EXPLICIT, Information, MeasuredStrategy, Profile, VarianceBound
from .residual import ResidualInformation, structure_of
from .weighted_kron import WeightedKronInformation, weighted_kron

_FEW = 1024  # cells beyond which an explicit matrix is worked out by rows, if these are
_FEWER = 8  # times fewer
_STEPS = 3.0  # eigendecompositions' worth of least squares by one decomposition


@dataclass(frozen=True)
class Route:
    """One way of least squares: its name, which strategies it serves, and how it solves them."""

    name: str
    serves: Callable[[MeasuredStrategy], bool]
    solve: Callable[[MeasuredStrategy, tuple[float, ...]], Information]


def _exact_without_structure(strategy: MeasuredStrategy) -> bool:
    return strategy.exact is not None and strategy.exact.structure != "product"


def _one_product(strategy: MeasuredStrategy) -> bool:
    return len(strategy.blocks) == 1 and isinstance(strategy.blocks[0].query, Kron)


def _one_weighted_product(strategy: MeasuredStrategy) -> bool:
    return len(strategy.blocks) == 1 and weighted_kron(strategy.blocks[0].query) is not None


def _explicit(strategy: MeasuredStrategy) -> bool:
    return any(isinstance(block.query, MatrixProduct) for block in strategy.blocks)


def _few_cells(strategy: MeasuredStrategy) -> bool:
    """At most ``EXPLICIT`` cells, and no more than rows unless these are too many (an explicit matrix: 8 times)."""
    cells, rows = merged_cells(strategy), reduced_count(strategy)
    if _explicit(strategy):
        return cells <= EXPLICIT and not (cells > _FEW and rows * _FEWER <= cells)
    return cells <= EXPLICIT and (cells <= rows or rows > EXPLICIT)


ROUTES = (
    Route("dense", _exact_without_structure, DenseInformation),
    Route("kron", _one_product, KronInformation),
    Route("weighted-kron", _one_weighted_product, WeightedKronInformation),
    Route("classes", lambda s: contrasts_of(s) is not None, ClassInformation),
    Route("lattice", is_lattice, LatticeInformation),
    Route("residual", lambda s: structure_of(s) is not None, ResidualInformation),
    Route("oblique", lambda s: spaces_of(s) is not None, ObliqueInformation),
    Route("dense", _few_cells, DenseInformation),
    Route("rows", lambda s: reduced_count(s) <= EXPLICIT, RowsInformation),
    Route(
        "iterative",
        lambda s: len(s.blocks) > 1 and not _explicit(s),
        lambda s, variances: IterativeInformation(s, variances, solve),
    ),
)
"""All routes; the first that serves a strategy is taken."""


def route(strategy: MeasuredStrategy) -> Route:
    """The first of :data:`ROUTES` that serves a strategy.

    Raises :class:`~tabulae.errors.Unsupported` where neither structure nor size allows any.
    """
    if _exact_without_structure(strategy) and merged_cells(strategy) > EXPLICIT:
        raise Unsupported(
            f"exact tables that do not nest attribute by attribute, and {merged_cells(strategy):,} cells that they and "
            f"the measurements tell apart: at most {EXPLICIT:,} are worked out. Make margins or nested groups exact"
        )
    for candidate in ROUTES:
        if candidate.serves(strategy):
            return candidate
    raise Unsupported(
        f"strategy {strategy.method!r} measures {len(strategy.blocks)} overlapping groups of queries with "
        f"{reduced_count(strategy):,} independent rows over {merged_cells(strategy):,} merged cells; exact least "
        f"squares is available up to {EXPLICIT:,} of either. Choose a method whose strategy is one Kronecker product "
        '("kron", "identity"), or ask for fewer or coarser tables'
    )


def check_least_squares(strategy: MeasuredStrategy, deadline: float) -> None:
    """Refuse least squares that decompose a matrix of all cells, all rows or one attribute beyond a deadline."""
    orders = {"dense": (merged_cells, _STEPS), "rows": (reduced_count, _STEPS), "kron": (_widest, 1.0)}
    if deadline < math.inf and (found := orders.get(route(strategy).name)) is not None:
        order, steps = found
        check_time(deadline, order(strategy), steps=steps)


def _widest(strategy: MeasuredStrategy) -> int:
    """The order of the largest matrix of one attribute that is inverted."""
    ((_, factors),) = strategy.blocks[0].terms
    return max((min(f.shape) for f in factors if not isinstance(f, (Identity, Total))), default=1)


def solve(strategy: MeasuredStrategy, variances: tuple[float, ...]) -> Information:
    """P of ``strategy`` when block i has noise variance ``variances[i]`` (squared counts), by :func:`route`."""
    return route(strategy).solve(strategy, variances)


@lru_cache(maxsize=4)
def information(strategy: MeasuredStrategy, variances: tuple[float, ...]) -> Information:
    """As :func:`solve`, and kept: what is computed for one table serves the next."""
    return solve(strategy, variances)


@dataclass(frozen=True, eq=False)
class LeftOpen:
    """The part of a table that is measured with noise.

    ``operator = divisor * W Pi_N`` (m x N), None where every row is exact; without invariants it is W. ``exact`` (m,)
    marks the rows that the invariants determine.
    """

    operator: LinearOperator | None
    divisor: int
    exact: np.ndarray

    @classmethod
    def of(cls, strategy: MeasuredStrategy, table: Table) -> LeftOpen:
        """What a strategy's invariants leave open of a table."""
        invariants = strategy.exact
        if invariants is None:
            none = np.zeros(table.rows(strategy.domain), dtype=bool)
            return cls(table.operator(strategy.domain), 1, none)
        restricted = invariants.restricted(table)
        return cls(restricted.operator, restricted.divisor, invariants.determined(table))

    def variance(self, information: Information) -> np.ndarray:
        """Variances of the least-squares answers, ``diag(W Pi_N P^+ Pi_N W')``, in squared counts, (m,)."""
        if self.operator is None:
            return np.zeros(len(self.exact))
        variance = np.maximum(information.variance(self.operator), 0.0)
        if self.divisor == 1 and not self.exact.any():
            return variance
        variance /= self.divisor**2
        return np.where(self.exact, 0.0, variance)

    def profile(self, information: Information) -> Profile | VarianceBound | None:
        """The coefficients of the noise variables, times ``divisor``; None where every row is exact."""
        return None if self.operator is None else information.profile(self.operator)

    def profiles(self, under: Sequence[Information]) -> Sequence[Profile | VarianceBound | None]:
        """As :meth:`profile`, under each of several noises of one strategy: together where marginals allow it."""
        if self.operator is not None and isinstance(under[0], LatticeInformation):
            return LatticeInformation.profiles(cast("Sequence[LatticeInformation]", under), self.operator)
        return [self.profile(information) for information in under]


@dataclass(frozen=True)
class ExpectedError:
    """Expected squared error of a workload's m queries under least squares.

    ``tse`` is the total squared error ``sum_t weight_t^2 sum_q Var(q)`` and ``rmse = sqrt(tse / m)``, as in
    HDMM; ``tables`` maps each table to its own unweighted root mean squared error, in counts;
    ``max_variance`` is the largest variance of a single unweighted query. Queries that the strategy's invariants
    determine are counted, with variance 0. All are upper bounds where least squares takes the route ``iterative``.
    """

    tse: float
    rmse: float
    max_variance: float
    tables: dict[str, float]


def error_under(
    strategy: MeasuredStrategy, workload: Workload, variances: tuple[float, ...]
) -> ExpectedError:
    """Expected error when block i has noise variance ``variances[i]``, in squared counts."""
    info = information(strategy, variances)
    total, largest, tables = 0.0, 0.0, {}
    for table in workload.tables:
        variance = LeftOpen.of(strategy, table).variance(info)
        total += float(table.weight) ** 2 * float(variance.sum())
        largest = max(largest, float(variance.max(initial=0.0)))
        tables[table.name] = math.sqrt(float(variance.mean()))
    return ExpectedError(total, math.sqrt(total / workload.queries), largest, tables)
