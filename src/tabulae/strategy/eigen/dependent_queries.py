"""Optimal weighting of any design set, also one whose queries depend on each other.

A tree with its leaves, a basis and the single cells, the workload itself: such sets answer a workload in many ways, and
which is best depends on the weights. The problem is

    minimise  tr(V X^+),   X = Q' diag(u) Q,   V = W'W,    subject to   B'w <= 1,   w >= 0,

with ``B = |Q|^p`` and ``u = w^a``, ``a = 2/p``. For p = 2 (u = w) it is convex, as the least over T with ``T Q = W`` of
``sum_i |T_i|^2 / u_i``, and Newton's method solves it (:mod:`.interior_point`): with ``g_i = q_i' Z q_i`` and
``Z = X^+ V X^+``, g is the negative gradient and ``2 (Q Z Q') o (Q X^+ Q')`` the Hessian. Any ``mu >= 0`` with
``B mu >= g`` proves that no feasible v has a loss below ``tr(V X^+)^2 / sum mu``, singular X included: with
``Y = Q' diag(v) Q``

    tr(V X^+)^2 = tr(W Y^+^1/2 Y^1/2 X^+ W')^2 <= tr(V Y^+) tr(Y Z)    (Cauchy and Schwarz; Y spans W),
    tr(Y Z) = v'g <= v'B mu <= sum mu                                  (feasibility of v).

The proof holds for any symmetric matrix in place of X^+, with ``tr(V X^+)^2`` taken from it: so rounding in X^+ costs
tightness alone, and what remains, in g and in the trace, is estimated and taken off the bound. Where rows are nearly
dependent, X is formed in coordinates in which all rows together have the identity for Gram matrix.

For p = 1 it is not convex. Least squares (the best T for given weights: costs ``c_i = u_i^2 g_i``) and Program 1 (the
best weights for given T) take turns; the loss never rises, and ends where neither step gains. Where that is depends on
the start, so several are tried; no bound is known.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import scipy.linalg

from ...errors import InvalidArgument, Unsupported
from ..gram import checked_gram
from .interior_point import InteriorPoint, interior_point
from .query_weighting import (
    QueryWeights,
    check_options,
    checked_design,
    norm_weighting,
    query_weighting,
    scaled_rows,
    weighting_bound,
)

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
    time_limit: float | None = None,
    seed: int = 0,
) -> QueryWeights:
    """The best weights of a design set for one workload, whether its queries depend on each other or not.

    Minimises ``||A||_p^2 tr(V (A'A)^+)`` over ``A = diag(lambda) Q``; the set itself, weights all 1, never errs less.

    Arguments:
        design: Q (k, n), real, one row a query; its rows span the workload's.
        gram: V = W'W (n, n).
        p: 2 for Gaussian noise; 1 for Laplace noise, where weights of dependent queries come without a bound
            (``lower`` 0, ``gap`` infinite).
        tolerance: relative gap at which to stop (p = 1: gain of a round); ``time_limit`` in seconds stops earlier.
        seed: of starts at random where the problem is not convex.

    Raises:
        InvalidArgument: ``design`` has missing numbers or does not span the workload, or ``gram`` is no Gram matrix.
        Unsupported: more than 6,144 queries that depend on each other.

    Reference: Li and Miklau, "An Adaptive Mechanism for Accurate Query Answering under Differential Privacy",
    Problem 2.

    >>> tree = np.array([[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]])  # a total and its parts
    >>> best = design_weighting(tree, np.ones((2, 2)) + np.eye(2))  # for themselves
    >>> np.round(best.weights**2, 3).tolist(), round(best.loss, 3), best.gap < 1e-6
    ([0.268, 0.732, 0.732], 3.732, True)
    """
    check_options(p, tolerance)
    Q, V = _checked(design, gram)
    unit, lengths = _unit_rows(Q)
    left, values, basis = _decomposed(unit)
    _check_span(V, basis, min(Q.shape))
    if len(basis) == len(Q):
        found = _independent(unit, V, float(values[0] / values[-1]), p, tolerance, time_limit)
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
        return problem.gaussian(tolerance, time_limit).rescaled(size)
    search = _Alternation(np.abs(rows), problem.queries, problem.gram, tolerance, time_limit)
    search.run(size / size.max(), seed)
    found = QueryWeights(search.w, search.loss, 0.0, np.zeros(Q.shape[1]), search.evaluations)
    return found.rescaled(size)


def _checked(design: np.ndarray, gram: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Q and V as float64 of the same cells, or InvalidArgument."""
    Q, V = checked_design(design), checked_gram(gram)
    if Q.shape[1] != len(V):
        raise InvalidArgument(
            f"the design set has {Q.shape[1]} columns, but the workload tells {len(V)} cells apart"
        )
    empty = np.flatnonzero(~Q.any(axis=1))
    if empty.size:
        raise InvalidArgument(f"design query {empty[0]} is zero in every cell: leave it out")
    if not V.any():
        raise InvalidArgument("gram is zero: the workload counts no cell. Leave out tables of weight zero")
    return Q, V


def row_space(design: np.ndarray) -> np.ndarray:
    """An orthonormal basis (r, n) of the rows of Q (k, n), each taken at length 1.

    >>> np.abs(row_space(np.array([[1.0, 1.0], [2.0, 2.0]]))).round(3).tolist()
    [[0.707, 0.707]]
    """
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
    """The cell that V (n, n) asks most about beyond the span of an orthonormal basis (r, n); None where there is none.

    >>> outside(np.eye(2), np.array([[1.0, 0.0]])), outside(np.diag([1.0, 0.0]), np.array([[1.0, 0.0]]))
    (1, None)
    """
    if len(basis) == len(gram):
        return None
    half = gram - (gram @ basis.T) @ basis
    left = (half - basis.T @ (basis @ half)).diagonal()
    return int(left.argmax()) if left.max() > _OUTSIDE * gram.diagonal().max() else None


def _independent(
    unit: np.ndarray, gram: np.ndarray, condition: float, p: int, tolerance: float, time_limit: float | None
) -> QueryWeights:
    """Program 1 for independent rows of length 1; the bound is that of the smallest costs within rounding."""
    costs, errors = _costs(unit, gram, condition)
    found = query_weighting(unit, costs, p=p, tolerance=_SPARE * tolerance, time_limit=time_limit)
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

    def gaussian(self, tolerance: float, time_limit: float | None) -> QueryWeights:
        """The best weights for Gaussian noise, with a bound that rounding has been taken off."""
        convex = _Convex(self.queries, self.gram)
        found = interior_point(self._norms, convex, 1, _SPARE * tolerance, time_limit)
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
        self,
        norms: np.ndarray,
        queries: np.ndarray,
        gram: np.ndarray,
        tolerance: float,
        time_limit: float | None,
    ) -> None:
        self._norms, self._queries, self._gram, self._tolerance = norms, queries, gram, tolerance
        self._deadline = np.inf if time_limit is None else time.monotonic() + time_limit
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
        return time.monotonic() > self._deadline

    def _starts(self, seed: int) -> Iterator[np.ndarray]:
        """Equal weights; those for Gaussian noise; small queries first; at random."""
        size = self._norms.sum(axis=1)
        yield np.ones(len(size))
        left = max(0.0, self._deadline - time.monotonic())
        convex = _Convex(self._queries, self._gram)
        yield np.sqrt(interior_point(np.square(self._norms), convex, 1, 1e-3, left).w)
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
            left = None if np.isinf(self._deadline) else self._deadline - time.monotonic()
            costs, inner = w**4 * g, min(1e-6, self._tolerance)
            found = norm_weighting(self._norms, costs, p=1, tolerance=inner, time_limit=left)
            self.evaluations += found.evaluations
            w = found.weights
        return last, w
