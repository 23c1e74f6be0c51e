"""Optimal query weighting (Program 1): how strongly to ask each of a given set of design queries.

The strategy is ``A = diag(lambda) Q`` for design queries Q (k, n) with independent rows. Answering W from it costs
``sum_i c_i / lambda_i^2`` at unit noise, ``c_i = ||W Q^+ e_i||^2``. With ``w_i = lambda_i^p`` and ``a = 2/p``,

    minimise  sum_i c_i w_i^-a    subject to    B'w <= 1,    B = |Q|^p entry by entry,

p = 2 for Gaussian noise (L2 sensitivity at most 1), p = 1 for Laplace noise. Minimising the Lagrangian over w at
multipliers mu >= 0, one for each cell, gives ``w_i = (a c_i / b_i)^(1/(1+a))`` with ``b = B mu``, and the dual

    max_{mu >= 0}  S(mu)^(1+a) / (sum mu)^a,        S(mu) = sum_i c_i^(1/(1+a)) b_i^(a/(1+a)).

So every mu gives a lower bound on what any weights reach, and weights: those above, divided by the largest column norm
M of theirs. Their ratio is ``(M sum mu / S)^a``. A point costs two products with B, whatever the noise; neither the
semi-definite program of the paper nor a second-order cone is formed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ...errors import InvalidArgument
from ..dual_search import DualSearch

_LEAST = 1e-290  # smallest cost of a query that is asked, relative to the largest: its root is a number still


@dataclass(frozen=True)
class QueryWeights:
    """Weights of design queries, and the proof of how good they are.

    ``weights`` is lambda (k,), 0 for queries that are not asked; the largest column norm of ``diag(lambda) Q`` is 1.
    ``loss`` is ``sum_i c_i / lambda_i^2``; no weights of these queries have less than ``lower``, proven by
    ``multipliers`` (n,). ``gap = loss / lower - 1``.
    """

    weights: np.ndarray
    loss: float
    lower: float
    multipliers: np.ndarray
    evaluations: int

    @property
    def gap(self) -> float:
        return self.loss / self.lower - 1.0 if self.lower else np.inf

    def rescaled(self, size: np.ndarray) -> QueryWeights:
        """The same weighting where the queries (k,) are ``size`` times as long; InvalidArgument beyond float64."""
        with np.errstate(over="ignore"):
            weights = self.weights / size
        if not (np.isfinite(weights).all() and np.isfinite(self.loss)):
            raise InvalidArgument(
                "weights or loss leave the range of numbers (1e308): scale the design queries, and the costs or the "
                "workload, towards 1"
            )
        return replace(self, weights=weights)


def query_weighting(
    design: np.ndarray,
    costs: np.ndarray,
    *,
    p: int = 2,
    tolerance: float = 1e-6,
    time_limit: float | None = None,
) -> QueryWeights:
    """The best weights of design queries for one workload, within a proven ``tolerance``.

    Minimises ``sum_i c_i / lambda_i^2`` over lambda such that no column of ``diag(lambda) Q`` has an Lp norm above 1.

    Arguments:
        design: Q (k, n), real, one row a query; for rows that depend on each other the costs belong to one of many
            ways to answer the workload: see :mod:`.dependent_queries`.
        costs: c (k,), squared queries: what a unit of noise in query i adds to the workload's squared error.
        p: 2 for Gaussian noise, 1 for Laplace noise.
        tolerance: relative gap at which the search stops; ``time_limit`` in seconds stops it earlier. The gap that is
            reported is true in each case.

    Raises :class:`~tabulae.errors.InvalidArgument` for missing or negative numbers, costs that are all zero, or a query
    of zeros that has a cost.

    Reference: Li and Miklau, "An Adaptive Mechanism for Accurate Query Answering under Differential Privacy",
    Program 1, Theorem 1 and section 3.5.

    >>> best = query_weighting(np.array([[1.0, 1.0], [1.0, -1.0]]), np.array([4.0, 1.0]))
    >>> np.round(best.weights**2, 4).tolist(), round(best.loss, 4)
    ([0.6667, 0.3333], 9.0)
    """
    check_options(p, tolerance)
    design, costs = _checked(design, costs)
    unit, size = scaled_rows(design)
    with np.errstate(over="ignore"):
        costs = np.where(costs > 0, np.maximum(costs * size * size, np.finfo(float).tiny), 0.0)
    if not np.isfinite(costs).all():
        number = _first(~np.isfinite(costs))[0]
        raise InvalidArgument(
            f"design query {number} at length 1 costs more than numbers hold (1e308): divide the query, or its cost"
        )
    norms = np.square(unit) if p == 2 else np.abs(unit)
    found = norm_weighting(norms, costs, p=p, tolerance=tolerance, time_limit=time_limit)
    return found.rescaled(size)


def scaled_rows(design: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows of Q (k, n) whose largest entries are 1 to 2, so that squares are numbers, and what was divided out (k,).

    The divisors are powers of two: nothing is rounded.

    >>> scaled_rows(np.array([[3.0, 6.0], [0.0, 0.0]]))[1].tolist()
    [4.0, 1.0]
    """
    largest = np.abs(design).max(axis=1)
    size = np.where(largest > 0, np.ldexp(1.0, np.frexp(largest)[1] - 1), 1.0)
    return design / size[:, None], size


def weighting_bound(norms: np.ndarray, costs: np.ndarray, mu: np.ndarray, p: int) -> float:
    """The dual of Program 1 at mu (n,), ``S(mu)^(1+a) / (sum mu)^a``: no weights have a smaller loss.

    >>> weighting_bound(np.eye(2), np.array([4.0, 4.0]), np.ones(2), 2)
    8.0
    """
    a = 2 // p
    total = float((costs ** (1 / (1 + a)) * (norms @ mu) ** (a / (1 + a))).sum())
    return total * (total / float(mu.sum())) ** a


def check_options(p: int, tolerance: float) -> None:
    """Refuse a norm that no noise pays for, and a gap that cannot be reached."""
    if p not in (1, 2):
        raise InvalidArgument(f"p is {p!r}: 2 for Gaussian noise or 1 for Laplace noise")
    if not tolerance > 0:
        raise InvalidArgument(f"tolerance is {tolerance}: the gap cannot be asked to reach zero; try 1e-6")


def norm_weighting(
    norms: np.ndarray, costs: np.ndarray, *, p: int, tolerance: float, time_limit: float | None = None
) -> QueryWeights:
    """:func:`query_weighting` of queries, or groups of queries, known by ``B = |Q|^p`` (k, n) alone.

    ``norms`` is B; row i of a group of queries holds what the group, at weight 1, adds to every column. All is taken
    to be in order: no query without a norm has a cost.
    """
    asked = costs > 0
    B = norms if asked.all() else norms[asked]
    search = Weighting(lambda mu: B @ mu, lambda w: w @ B, costs[asked], 2 // p, tolerance, time_limit)
    search.run(np.ones(norms.shape[1]))
    weights = np.zeros(len(costs))
    weights[asked] = search.best ** (1 / p)
    scale = float(costs.max())
    return QueryWeights(
        weights,
        search.upper * scale,
        min(search.lower, search.upper) * scale,  # equal but for rounding at the optimum
        search.multipliers,
        search.evaluations,
    )


def checked_design(design: np.ndarray) -> np.ndarray:
    """Design queries as a finite float64 matrix, or InvalidArgument."""
    array = np.asarray(design, dtype=float)
    if array.ndim != 2 or 0 in array.shape:
        raise InvalidArgument(f"the design set has shape {array.shape}: give a matrix, one row a query")
    _check_finite("design set", array)
    return array


def _checked(design: np.ndarray, costs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Q and the costs as float64, or InvalidArgument."""
    design, costs = checked_design(design), np.asarray(costs, dtype=float)
    if costs.shape != design.shape[:1]:
        raise InvalidArgument(
            f"{design.shape[0]} design queries need as many costs, not an array of shape {costs.shape}"
        )
    _check_finite("costs", costs)
    if (costs < 0).any():
        raise InvalidArgument(f"costs are squared errors, at least 0; number {_first(costs < 0)[0]} is not")
    if not costs.any():
        raise InvalidArgument("all costs are zero: the workload asks nothing of these design queries")
    empty = (costs > 0) & ~design.any(axis=1)
    if empty.any():
        raise InvalidArgument(f"design query {_first(empty)[0]} is zero in every cell: leave it out")
    return design, costs


def _check_finite(what: str, array: np.ndarray) -> None:
    bad = ~np.isfinite(array)
    if bad.any():
        raise InvalidArgument(f"the {what} hold missing or infinite numbers (first at {_first(bad)})")


def _first(where: np.ndarray) -> list[int]:
    """The first place where a condition holds, counted from 0."""
    return [int(i) for i in np.argwhere(where)[0]]


class Weighting(DualSearch):
    """The dual over cells; remembers the best weights ``w = lambda^p`` that were met, in units of the largest cost.

    ``price(mu) = B mu`` (k,) and ``columns(w) = B'w`` (n,) are all that is known of the queries; every cost is above 0.
    """

    def __init__(
        self,
        price: Callable[[np.ndarray], np.ndarray],
        columns: Callable[[np.ndarray], np.ndarray],
        costs: np.ndarray,
        power: int,
        tolerance: float,
        time_limit: float | None,
    ) -> None:
        super().__init__(tolerance, time_limit, power=power)
        self._price, self._columns = price, columns
        self._costs = np.maximum(costs / costs.max(), _LEAST)
        self.best = np.ones(len(costs))

    def evaluate(self, mu: np.ndarray) -> tuple[float, np.ndarray]:
        a = self._power
        w = (self._costs / self._price(mu)) ** (1 / (1 + a))
        columns = self._columns(w)
        largest = float(columns.max())
        loss = float((self._costs / w**a).sum())
        if loss * largest**a < self.upper:
            self.upper, self.best = loss * largest**a, w / largest
        return loss, columns
