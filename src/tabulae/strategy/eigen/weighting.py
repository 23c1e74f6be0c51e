"""Optimal weights of design queries (Program 1): by their dual, or by Newton's method.

The strategy is ``A = diag(lambda) Q`` for design queries Q (k, n) with independent rows. Answering W from it costs
``sum_i c_i / lambda_i^2`` at unit noise, ``c_i = ||W Q^+ e_i||^2``. With ``w_i = lambda_i^p`` and ``a = 2/p``,

    minimise  sum_i c_i w_i^-a    subject to    B'w <= 1,    B = |Q|^p entry by entry,

p = 2 for Gaussian noise (L2 sensitivity at most 1), p = 1 for Laplace noise. Minimising the Lagrangian over w at
multipliers mu >= 0, one for each cell, gives ``w_i = (a c_i / b_i)^(1/(1+a))`` with ``b = B mu``, and the dual

    max_{mu >= 0}  S(mu)^(1+a) / (sum mu)^a,        S(mu) = sum_i c_i^(1/(1+a)) b_i^(a/(1+a)).

So every mu gives a lower bound on what any weights reach, and weights: those above, divided by the largest column norm
M of theirs. Their ratio is ``(M sum mu / S)^a``. A point costs two products with B, whatever the noise. Where Q is the
product ``(x)_i R_i``, ``B = (x)_i |R_i|^p`` is applied factor by factor; rows of an attribute whose cells are all asked
alike share a weight, and such an attribute has one cell in the dual.

Newton's method serves few queries, and queries whose costs depend on the weights of the others:

    minimise  f(w)    subject to    B'w <= 1,   w >= 0,

for a convex f that is homogeneous of degree -a. With g = -f', slacks ``s = 1 - B'w``, multipliers mu of the cells and z
of ``w >= 0``, a step solves ``g = B mu - z``, ``mu s = t``, ``z w = t`` to first order: one (k, k) system, of matrix
``H + diag(z / w) + B diag(mu / s) B'`` with H the Hessian of f. The target t is a tenth of the present mean of mu s and
z w, and is kept above the violation of the first equation; a step is halved until the residual falls. Ten to thirty
steps reach a gap of 1e-6 where first-order methods crawl; the price is k^2 n multiplications a step. The proof of the
gap uses no property of the path: ``h = f^(-1/a)`` is concave and homogeneous of degree 1, hence ``h(v) <= h'(w) v`` for
all v >= 0; with any mu >= 0 such that ``B mu >= g``, a feasible v has ``g'v <= mu'B'v <= sum mu``, that is

    f(v) >= f(w) (a f(w) / sum mu)^a.

Queries that depend on each other (a tree with its leaves, the workload itself) answer a workload in many ways:

    minimise  tr(V X^+),   X = Q' diag(u) Q,   V = W'W,    subject to   B'w <= 1,   w >= 0,    u = w^a.

For p = 2 (u = w) it is convex, as the least over T with ``T Q = W`` of ``sum_i |T_i|^2 / u_i``: with
``Z = X^+ V X^+`` and ``g_i = q_i' Z q_i``, g is the negative gradient and ``2 (Q Z Q') o (Q X^+ Q')`` the Hessian. Any
``mu >= 0`` with ``B mu >= g`` proves that no feasible v has a loss below ``tr(V X^+)^2 / sum mu``, singular X
included: with ``Y = Q' diag(v) Q``

    tr(V X^+)^2 = tr(W Y^+^1/2 Y^1/2 X^+ W')^2 <= tr(V Y^+) tr(Y Z)    (Cauchy and Schwarz; Y spans W),
    tr(Y Z) = v'g <= v'B mu <= sum mu                                  (feasibility of v).

The proof holds for any symmetric matrix in place of X^+, with ``tr(V X^+)^2`` taken from it: so rounding in X^+ costs
tightness alone, and what remains, in g and in the trace, is estimated and taken off the bound. Where rows are nearly
dependent, X is formed in coordinates in which all rows together have the identity for Gram matrix.

For p = 1 it is not convex. Least squares (the best T for given weights: costs ``c_i = u_i^2 g_i``) and Program 1 (the
best weights for given T) take turns from several starts; the loss never rises; no bound is known.

Reference: Li and Miklau, "An Adaptive Mechanism for Accurate Query Answering under Differential Privacy", Programs 1
and 2, Theorem 1 and section 3.5; Boyd and Vandenberghe, "Convex Optimization", section 11.7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg

from ...errors import InvalidArgument, Unsupported
from ..bounds.dual import DualSearch
from ..deadline import now
from ..gram import asked_gram, check_tolerance

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
    design: np.ndarray, costs: np.ndarray, *, p: int = 2, tolerance: float = 1e-6, deadline: float = np.inf
) -> QueryWeights:
    """The best weights of design queries Q (k, n) for one workload, within a proven relative gap of ``tolerance``.

    Minimises ``sum_i c_i / lambda_i^2`` over lambda such that no column of ``diag(lambda) Q`` has an Lp norm above 1,
    for ``costs`` c (k,): what a unit of noise in query i adds to the workload's squared error. The gap reported is true
    also where the ``deadline`` ends the search.

    Raises :class:`~tabulae.errors.InvalidArgument` for missing or negative numbers, costs that are all zero, or a query
    of zeros that has a cost.

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
    found = norm_weighting(norms, costs, p=p, tolerance=tolerance, deadline=deadline)
    return found.rescaled(size)


def scaled_rows(design: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows of Q (k, n), their largest entries 1 to 2 so that squares are numbers, and the powers of two divided out."""
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
    check_tolerance(tolerance)


def norm_weighting(
    norms: np.ndarray, costs: np.ndarray, *, p: int, tolerance: float, deadline: float = np.inf
) -> QueryWeights:
    """:func:`query_weighting` of queries, or groups of queries, known by ``B = |Q|^p`` (k, n) alone.

    ``norms`` is B; row i of a group of queries holds what the group, at weight 1, adds to every column. All is taken
    to be in order: no query without a norm has a cost.
    """
    asked = costs > 0
    B = norms if asked.all() else norms[asked]
    return _weighed(lambda mu: B @ mu, lambda w: w @ B, costs, norms.shape[1], p, tolerance, deadline)


def _weighed(
    price: Callable[[np.ndarray], np.ndarray],
    columns: Callable[[np.ndarray], np.ndarray],
    costs: np.ndarray,
    cells: int,
    p: int,
    tolerance: float,
    deadline: float,
) -> QueryWeights:
    """Program 1; ``price(mu) = B mu`` and ``columns(w) = B'w`` are about the queries that have a cost."""
    asked, scale = costs > 0, float(costs.max())
    search = Weighting(price, columns, costs[asked], 2 // p, tolerance, deadline)
    search.run(np.ones(cells))
    weights = np.zeros(costs.shape)
    weights[asked] = search.best ** (1 / p)
    lower = min(search.lower, search.upper)  # equal but for rounding at the optimum
    return QueryWeights(weights, search.upper * scale, lower * scale, search.multipliers, search.evaluations)


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
        deadline: float,
    ) -> None:
        super().__init__(tolerance, deadline, power=power)
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


def kron_weighting(
    norms: Sequence[np.ndarray],
    costs: np.ndarray,
    *,
    p: int = 2,
    tolerance: float = 1e-6,
    deadline: float = np.inf,
) -> QueryWeights:
    """As :func:`query_weighting` for products of design rows, one weight for each class of rows: (c_1, ..., c_d).

    ``norms`` are each attribute's ``|R_i|^p`` (c_i, n_i): of each class of rows the sum, in every cell that differs in
    it; ``costs`` (c_1, ..., c_d) are 0 for rows that are not needed.

    >>> haar = np.array([[1.0, 1.0], [1.0, 1.0]])  # [1 1; 1 -1], squared
    >>> best = kron_weighting([haar, haar], np.array([[16.0, 1.0], [1.0, 1.0]]))
    >>> round(best.loss, 4)  # (4 + 1 + 1 + 1)^2
    49.0
    """
    costs = np.asarray(costs, dtype=float)
    if not np.isfinite(costs).all() or (costs < 0).any() or not costs.any():
        raise InvalidArgument("costs are squared errors: finite, at least 0, and some of them above")
    if costs.shape != tuple(len(n) for n in norms):
        raise InvalidArgument(
            f"costs of shape {costs.shape} do not fit {[len(n) for n in norms]} classes of rows"
        )
    forward = [np.asarray(n, dtype=float) for n in norms]
    backward = [np.ascontiguousarray(n.T) for n in forward]
    asked, cells = costs > 0, tuple(n.shape[1] for n in norms)
    weights = np.zeros(costs.shape)

    def columns(w: np.ndarray) -> np.ndarray:
        weights[asked] = w
        return apply_factors(backward, weights).ravel()

    def price(mu: np.ndarray) -> np.ndarray:
        return apply_factors(forward, mu.reshape(cells))[asked]

    return _weighed(price, columns, costs, int(np.prod(cells)), p, tolerance, deadline)


def apply_factors(factors: Sequence[np.ndarray], x: np.ndarray) -> np.ndarray:
    """``((x)_i F_i) x`` for dense factors (k_i, n_i) and x of shape (n_1, ..., n_d)."""
    for i, factor in enumerate(factors):
        x = np.moveaxis(np.tensordot(factor, x, axes=(1, i)), 0, i)
    return x


Objective = Callable[[np.ndarray], tuple[float, np.ndarray, np.ndarray]]
"""w (k,) to f(w), -f'(w) (k,) and f''(w) (k, k); the matrix is the caller's to overwrite."""

_STEPS, _HALVINGS = 100, 20
_BACK = 0.99  # share of the way to the boundary
_CENTRE = 0.1  # target of a step, relative to the present mean of mu s and z w
_ENOUGH = 0.01  # decrease of the residual that is asked for, relative to the step


@dataclass(frozen=True)
class InteriorPoint:
    """The best w (k,) met, with ``max B'w = 1``, its loss, and the best bound with its multipliers (n,).

    ``proven_at`` is the w whose gradient the multipliers exceed.
    """

    w: np.ndarray
    loss: float
    lower: float
    multipliers: np.ndarray
    proven_at: np.ndarray
    steps: int


def interior_point(
    norms: np.ndarray, objective: Objective, power: int, tolerance: float, deadline: float = np.inf
) -> InteriorPoint:
    """Minimise f over ``w >= 0`` with ``B'w <= 1`` to a proven relative gap; equal weights are among the points tried.

    ``norms`` is B (k, n), non-negative, no zero row; ``power`` is a.

    >>> B, c = np.array([[1.0, 0.5], [0.5, 1.0]]), np.array([3.0, 3.0])
    >>> best = interior_point(B, lambda w: (float((c / w).sum()), c / w**2, np.diag(2 * c / w**3)), 1, 1e-8)
    >>> best.w.round(6).tolist(), round(best.loss, 6)
    ([0.666667, 0.666667], 9.0)
    """
    path = _Path(norms, objective, power)
    steps = 0
    while path.upper > path.lower * (1 + tolerance) and steps < _STEPS and now() < deadline:
        if not path.step():
            break
        steps += 1
    lower = min(path.lower, path.upper)  # equal but for rounding at the optimum
    return InteriorPoint(path.best, path.upper, lower, path.proof, path.proven_at, steps)


def weigh_few(
    norms: np.ndarray, costs: np.ndarray, *, p: int, tolerance: float, deadline: float = np.inf
) -> QueryWeights:
    """As :func:`norm_weighting`, which is better for many queries: few, over many cells, all with a cost."""
    a, scale = 2 // p, float(costs.max())
    c = costs / scale

    def objective(w: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        each = c * w**-a
        return float(each.sum()), a * each / w, np.diag(a * (a + 1) * each / w**2)

    found = interior_point(norms, objective, a, tolerance, deadline)
    weights = found.w ** (1 / p)
    return QueryWeights(weights, found.loss * scale, found.lower * scale, found.multipliers, found.steps)


class _Path:
    """The point, its multipliers, and the best bounds met."""

    def __init__(self, norms: np.ndarray, objective: Objective, power: int) -> None:
        self._norms, self._objective, self._power = norms, objective, power
        k, n = norms.shape
        self._w = np.full(k, 0.5 / norms.sum(axis=0).max())
        self._value, self._g, self._hessian = objective(self._w)
        self._slack = 1.0 - self._w @ norms
        self._mu = np.full(n, 2 * power * self._value / n)
        offered = norms @ self._mu
        self._z = np.maximum(offered - self._g, 0.1 * offered.mean())
        self.upper, self.lower = np.inf, 0.0
        self.best, self.proof, self.proven_at = self._w, self._mu, self._w
        self._keep()

    def _keep(self) -> None:
        """Note what the point reaches and its multipliers prove."""
        largest, a = 1.0 - float(self._slack.min()), self._power
        if self._value * largest**a < self.upper:
            self.upper, self.best = self._value * largest**a, self._w / largest
        mu = self._mu * float((self._g / (self._norms @ self._mu)).max())
        lower = self._value * (a * self._value / float(mu.sum())) ** a
        if lower > self.lower:
            self.lower, self.proof, self.proven_at = lower, mu, self._w

    def step(self) -> bool:
        """One step; False where the numbers allow none."""
        w, z, mu, s = self._w, self._z, self._mu, self._slack
        system = self._hessian
        system += (self._norms * (mu / s)) @ self._norms.T
        system[np.diag_indices_from(system)] += z / w
        violation = float(np.abs(w * (self._g - self._norms @ mu + z)).sum())
        t = _CENTRE * max(float(mu @ s + z @ w), violation) / (w.size + s.size)
        try:
            factor = scipy.linalg.cho_factor(system, overwrite_a=True)
        except (scipy.linalg.LinAlgError, ValueError):
            return False
        dw = scipy.linalg.cho_solve(factor, self._g - self._norms @ (t / s) + t / w)
        ds = -(dw @ self._norms)
        dmu, dz = (t - mu * ds) / s - mu, (t - z * dw) / w - z
        length = min(_length(x, dx) for x, dx in ((w, dw), (s, ds), (mu, dmu), (z, dz)))
        before = self._residual(w, t)
        for _ in range(_HALVINGS):
            self._w, self._mu, self._z = w + length * dw, mu + length * dmu, z + length * dz
            self._slack = 1.0 - self._w @ self._norms
            try:
                self._value, self._g, self._hessian = self._objective(self._w)
            except scipy.linalg.LinAlgError:
                return False
            if self._slack.min() <= 0 or not self._value > 0:
                return False
            self._keep()
            if self._residual(w, t) <= (1 - _ENOUGH * length) * before:
                return True
            length /= 2
        return False

    def _residual(self, unit: np.ndarray, t: float) -> float:
        """How far the three equations are from holding; the first in units of the second and third."""
        first = unit * (self._g - self._norms @ self._mu + self._z)
        both = np.concatenate([first, self._mu * self._slack - t, self._z * self._w - t])
        return float(np.linalg.norm(both))


def _length(x: np.ndarray, dx: np.ndarray) -> float:
    """How far to go along dx, at most 1, to keep x positive."""
    shrink = float((-dx / x).max())
    return 1.0 if shrink <= _BACK else _BACK / shrink


MOST_DEPENDENT = 6144
"""Design queries that are weighed together where they depend on each other: Newton's system has their order."""

_RANK = 1e-13  # share of the largest singular value of rows of length 1, below which a direction is rounding
_NEARLY = 1e3  # condition of rows of length 1 from which on they are nearly dependent
_ORTHOGONAL = 10.0  # condition up to which they are nearly orthogonal
_ROUNDED = 8 * float(np.finfo(float).eps)  # relative error of a sum of n products: so much times root n
_SPARE = 0.99  # share of the tolerance asked of a search, before rounding is taken off its bound
_OUTSIDE = 1e-9  # share of the workload's squares that rounding may leave outside the design set
_VANISHING = 1e-6  # smallest weight that is carried on, relative to the largest
_RANDOM, _SCREENING, _ROUNDS = 5, 10, 300  # starts at random, rounds from each start, rounds from the best


def design_weighting(
    design: np.ndarray,
    gram: np.ndarray,
    *,
    p: int = 2,
    tolerance: float = 1e-6,
    deadline: float = np.inf,
    seed: int = 0,
) -> QueryWeights:
    """The best weights of a design set for one workload, whether its queries depend on each other or not.

    Minimises ``||A||_p^2 tr(V (A'A)^+)`` over ``A = diag(lambda) Q``; the set itself, weights all 1, never errs less.
    For Laplace noise weights of dependent queries come without a bound (``lower`` 0, ``gap`` infinite); ``tolerance``
    is then the gain of a round, and ``seed`` that of starts at random.

    Raises:
        InvalidArgument: ``design`` has missing numbers or does not span the workload, or ``gram`` is no Gram matrix.
        Unsupported: more than 6,144 queries that depend on each other.

    >>> tree = np.array([[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]])  # a total and its parts
    >>> best = design_weighting(tree, np.ones((2, 2)) + np.eye(2))  # for themselves
    >>> np.round(best.weights**2, 3).tolist(), round(best.loss, 3), best.gap < 1e-6
    ([0.268, 0.732, 0.732], 3.732, True)
    """
    check_options(p, tolerance)
    Q, V = _checked_start(design, gram)
    unit, lengths = _unit_rows(Q)
    left, values, basis = _decomposed(unit)
    _check_span(V, basis, min(Q.shape))
    if len(basis) == len(Q):
        found = _independent(unit, V, float(values[0] / values[-1]), p, tolerance, deadline)
        return found.rescaled(lengths)
    if len(Q) > MOST_DEPENDENT:
        raise Unsupported(
            f"{len(Q):,} design queries depend on each other, and up to {MOST_DEPENDENT:,} are weighed together: "
            'choose a basis, such as "wavelet" or "eigen-queries"'
        )
    size = np.abs(Q).max(axis=1)  # weights undo lengths: numbers of one size are safer
    rows = Q / size[:, None]
    problem = _Dependent(rows, V, left, values, basis)
    if p == 2:
        return problem.gaussian(tolerance, deadline).rescaled(size)
    search = _Alternation(np.abs(rows), problem.queries, problem.gram, tolerance, deadline)
    search.run(size / size.max(), seed)
    found = QueryWeights(search.w, search.loss, 0.0, np.zeros(Q.shape[1]), search.evaluations)
    return found.rescaled(size)


def _checked_start(design: np.ndarray, gram: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Q and V as float64 of the same cells, or InvalidArgument."""
    Q, V = checked_design(design), asked_gram(gram)
    if Q.shape[1] != len(V):
        raise InvalidArgument(
            f"the design set has {Q.shape[1]} columns, but the workload tells {len(V)} cells apart"
        )
    empty = np.flatnonzero(~Q.any(axis=1))
    if empty.size:
        raise InvalidArgument(f"design query {empty[0]} is zero in every cell: leave it out")
    return Q, V


def row_space(design: np.ndarray) -> np.ndarray:
    """An orthonormal basis (r, n) of the rows of Q (k, n), each taken at length 1."""
    return _decomposed(_unit_rows(design)[0])[2]


def _unit_rows(design: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows of length 1, and their lengths (k,)."""
    near, size = scaled_rows(design)
    length = np.linalg.norm(near, axis=1)
    with np.errstate(over="ignore"):
        return near / length[:, None], size * length


def _decomposed(unit: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The singular value decomposition ``U diag(s) F`` of rows of length 1: U (k, r), s (r,), F (r, n)."""
    left, values, right = scipy.linalg.svd(unit, full_matrices=False, check_finite=False)
    kept = values > _RANK * values[0]
    return left[:, kept], values[kept], right[kept]


def _check_span(gram: np.ndarray, basis: np.ndarray, most: int) -> None:
    """InvalidArgument where rows with this basis, of rank at most ``most``, leave out something that V asks."""
    missed = outside(gram, basis)
    if missed is None:
        return
    rounding = ", some of which depend on each other to rounding" if len(basis) < most else ""
    raise InvalidArgument(
        f"the design set does not span the workload: what it asks of cell {missed} cannot be answered from the "
        f"design queries{rounding}. Add the identity (one query a cell), or use the design set "
        '"eigen-queries"'
    )


def outside(gram: np.ndarray, basis: np.ndarray) -> int | None:
    """The cell that V (n, n) asks most about beyond the span of an orthonormal basis (r, n), or None."""
    if len(basis) == len(gram):
        return None
    half = gram - (gram @ basis.T) @ basis
    left = (half - basis.T @ (basis @ half)).diagonal()
    return int(left.argmax()) if left.max() > _OUTSIDE * gram.diagonal().max() else None


def _independent(
    unit: np.ndarray, gram: np.ndarray, condition: float, p: int, tolerance: float, deadline: float
) -> QueryWeights:
    """Program 1 for independent rows of length 1; the bound is that of the smallest costs within rounding."""
    costs, errors = _costs(unit, gram, condition)
    found = query_weighting(unit, costs, p=p, tolerance=_SPARE * tolerance, deadline=deadline)
    norms = np.square(unit) if p == 2 else np.abs(unit)
    lower = weighting_bound(norms, np.maximum(costs - errors, 0.0), found.multipliers, p)
    return replace(found, lower=min(lower, found.lower))


def _costs(unit: np.ndarray, gram: np.ndarray, condition: float) -> tuple[np.ndarray, np.ndarray]:
    """``c_i = ||W Q^+ e_i||^2`` for independent rows of length 1, and how far rounding may have moved each.

    Through ``Q' = U R``: solving moves ``Q^+ e_i`` by its length times the condition times rounding. For nearly
    orthogonal rows through ``Q Q'``, whose condition is the square, but which keeps costs of zero exact.
    """
    if condition <= _ORTHOGONAL:
        condition **= 2
        inverse = scipy.linalg.cho_solve(scipy.linalg.cho_factor(unit @ unit.T), unit)  # (Q^+)'
    else:
        orthogonal, root = np.linalg.qr(unit.T)
        inverse = scipy.linalg.solve_triangular(root, orthogonal.T, check_finite=False)
    costs = np.maximum(np.einsum("ij,ij->i", inverse @ gram, inverse), 0.0)
    rounded = _ROUNDED * np.sqrt(unit.shape[1])
    squares, size = np.square(inverse).sum(axis=1), float(np.linalg.norm(gram))
    moved = np.square(rounded * condition) * squares
    return costs, 2 * np.sqrt(costs * size * moved) + size * (moved + rounded * squares)


class _Dependent:
    """Rows Q (k, n) that depend on each other, in coordinates fit for ``X = R' diag(u) R``.

    ``queries`` R (k, r) and ``gram`` (r, r) are the rows and V in them: the cells themselves where rows of full rank
    are well conditioned, a basis F (r, n) of the row space for others, and for nearly dependent rows U of the
    decomposition ``U diag(s) F`` of the rows at length 1, times their lengths.
    """

    def __init__(
        self, rows: np.ndarray, gram: np.ndarray, left: np.ndarray, values: np.ndarray, basis: np.ndarray
    ) -> None:
        nearly = bool(values[0] > _NEARLY * values[-1])
        cells = len(basis) == rows.shape[1] and not nearly
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        self._norms = np.square(rows)
        self._inside, self._within = (rows, gram) if cells else (rows @ basis.T, basis @ gram @ basis.T)
        self._sizes = np.abs(rows) if cells else np.broadcast_to(lengths, self._inside.shape)
        stretch = values if nearly else np.ones(len(basis))
        self._stretch = np.multiply.outer(stretch, stretch)
        self.queries = lengths * left if nearly else self._inside
        self.gram = self._within / self._stretch

    def gaussian(self, tolerance: float, deadline: float) -> QueryWeights:
        """The best weights for Gaussian noise, with a bound that rounding has been taken off."""
        convex = _Convex(self.queries, self.gram)
        found = interior_point(self._norms, convex, 1, _SPARE * tolerance, deadline)
        lower, multipliers = self._proven(found)
        return QueryWeights(np.sqrt(found.w), found.loss, min(lower, found.lower), multipliers, found.steps)

    def _proven(self, found: InteriorPoint) -> tuple[float, np.ndarray]:
        """The bound of the multipliers for P, X^-1 but for rounding, from the rows as they are."""
        factor = scipy.linalg.cho_factor(self.queries.T @ (found.proven_at[:, None] * self.queries))
        P = scipy.linalg.cho_solve(factor, np.eye(len(self.gram)))
        P = (P + P.T) / (2 * self._stretch)
        answers = self._inside @ P
        g = np.maximum(np.einsum("ij,ij->i", answers @ self._within, answers), 0.0)
        rounded = _ROUNDED * np.sqrt(len(P))
        size = np.abs(self._within)
        moved = rounded * (self._sizes @ np.abs(P))  # of the answers
        moved = np.einsum("ij,ij->i", moved @ size, moved)
        answers = np.abs(answers)
        g += 2 * np.sqrt(g * moved) + moved + rounded * np.einsum("ij,ij->i", answers @ size, answers)
        trace = float(np.vdot(self._within, P)) - rounded * float(np.vdot(size, np.abs(P)))
        mu = found.multipliers * float((g / (self._norms @ found.multipliers)).max())
        return float(max(trace, 0.0) ** 2 / mu.sum()), mu


class _Convex:
    """``tr(V X^-1)`` with its gradient and Hessian in u, for queries R (k, r) that span their r dimensions."""

    def __init__(self, queries: np.ndarray, gram: np.ndarray) -> None:
        self._queries, self._gram = queries, gram

    def __call__(self, u: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        solved = _solved(self._queries, u)
        spread = (self._gram @ solved).T @ solved
        g = np.maximum(spread.diagonal(), 0.0)
        loss = float(u @ g)
        spread *= self._queries @ solved
        spread *= 2
        return loss, g, spread


def _solved(queries: np.ndarray, u: np.ndarray) -> np.ndarray:
    """``X^-1 R'`` for ``X = R' diag(u) R``."""
    factor = scipy.linalg.cho_factor(queries.T @ (u[:, None] * queries), check_finite=False)
    return scipy.linalg.cho_solve(factor, queries.T, check_finite=False)


class _Alternation:
    """Least squares and Program 1 in turns, for Laplace noise; remembers the best weights w (k,) of all starts.

    ``norms`` is B = |Q| (k, n), ``queries`` R (k, r) as above.
    """

    def __init__(
        self, norms: np.ndarray, queries: np.ndarray, gram: np.ndarray, tolerance: float, deadline: float
    ) -> None:
        self._norms, self._queries, self._gram, self._tolerance = norms, queries, gram, tolerance
        self._deadline = deadline
        self.w, self.loss, self.evaluations = np.zeros(len(norms)), np.inf, 0

    def run(self, given: np.ndarray, seed: int) -> None:
        """Ten rounds from the weights given and several other starts, and to the end from the best of them."""
        ends = [self._rounds(given, _SCREENING)]
        starts = self._starts(seed)
        while not self._late() and (start := next(starts, None)) is not None:
            if not self._late():
                ends.append(self._rounds(start, _SCREENING))
        if not self._late():
            self._rounds(min(ends, key=lambda end: end[0])[1], _ROUNDS)

    def _late(self) -> bool:
        return now() > self._deadline

    def _starts(self, seed: int) -> Iterator[np.ndarray]:
        """Equal weights; those for Gaussian noise; small queries first; at random."""
        size = self._norms.sum(axis=1)
        yield np.ones(len(size))
        convex = _Convex(self._queries, self._gram)
        yield np.sqrt(interior_point(np.square(self._norms), convex, 1, 1e-3, self._deadline).w)
        yield 1 / size
        rng = np.random.default_rng(seed)
        for _ in range(_RANDOM):
            yield rng.exponential(size=len(size)) / size.mean()

    def _rounds(self, w: np.ndarray, most: int) -> tuple[float, np.ndarray]:
        """Up to so many rounds from w; the last loss and weights."""
        last = np.inf
        for _ in range(most):
            w = np.maximum(w, _VANISHING * w.max())
            w /= (w @ self._norms).max()
            try:
                solved = _solved(self._queries, w**2)
            except scipy.linalg.LinAlgError:
                break
            g = np.maximum(np.einsum("ij,ij->j", self._gram @ solved, solved), 0.0)
            reached = float(w**2 @ g)
            if reached < self.loss:
                self.w, self.loss = w, reached
            gain, last = 1 - reached / last, min(last, reached)
            if gain < self._tolerance or self._late():
                break
            costs, inner = w**4 * g, min(1e-6, self._tolerance)
            found = norm_weighting(self._norms, costs, p=1, tolerance=inner, deadline=self._deadline)
            self.evaluations += found.evaluations
            w = found.weights
        return last, w
