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

For p = 1 it is not convex. Least squares (the best T for given weights: costs ``c_i = u_i^2 g_i``) and Program 1 (the
best weights for given T) take turns; the loss never rises, and ends where neither step gains. Where that is depends on
the start, so several are tried; no bound is known.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import scipy.linalg

from ...errors import InvalidArgument, Unsupported
from ..gram import checked_gram
from .interior_point import interior_point
from .query_weighting import QueryWeights, check_options, checked_design, norm_weighting, query_weighting

MOST_DEPENDENT = 6144
"""Design queries that are weighed together where they depend on each other: Newton's system has their order."""

_RANK = 1e-13  # share of the largest eigenvalue, times the order, below which a direction is rounding
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
    basis = row_space(Q)
    missed = outside(V, basis)
    if missed is not None:
        raise InvalidArgument(
            f"the design set does not span the workload: what it asks of cell {missed} cannot be answered from the "
            'design queries. Add the identity (one query a cell), or use the design set "eigen-queries"'
        )
    if len(basis) == len(Q):
        return query_weighting(Q, _costs(Q, V), p=p, tolerance=tolerance, time_limit=time_limit)
    if len(Q) > MOST_DEPENDENT:
        raise Unsupported(
            f"{len(Q):,} design queries depend on each other, and up to {MOST_DEPENDENT:,} are weighed together: "
            'choose a basis, such as "wavelet" or "eigen-queries"'
        )
    size = np.abs(Q).max(axis=1)  # weights undo lengths: numbers of one size are safer
    unit = Q / size[:, None]
    inside, V = (unit, V) if len(basis) == Q.shape[1] else (unit @ basis.T, basis @ V @ basis.T)
    if p == 2:
        found = interior_point(np.square(unit), _Convex(inside, V), 1, tolerance, time_limit)
        weights = np.sqrt(found.w) / size
        return QueryWeights(weights, found.loss, found.lower, found.multipliers, found.steps)
    search = _Alternation(np.abs(unit), inside, V, tolerance, time_limit)
    search.run(size, seed)
    return QueryWeights(search.w / size, search.loss, 0.0, np.zeros(Q.shape[1]), search.evaluations)


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

    >>> row_space(np.array([[1.0, 1.0], [2.0, 2.0]])).round(3).tolist()
    [[0.707, 0.707]]
    """
    unit = design / np.linalg.norm(design, axis=1, keepdims=True)
    k, n = unit.shape
    values, vectors = scipy.linalg.eigh(unit.T @ unit if n <= k else unit @ unit.T, check_finite=False)
    kept = values > values[-1] * _RANK * max(10, values.size)
    if n <= k:
        return vectors[:, kept].T
    return (vectors[:, kept] / np.sqrt(values[kept])).T @ unit


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


def _costs(design: np.ndarray, gram: np.ndarray) -> np.ndarray:
    """``c_i = ||W Q^+ e_i||^2`` for independent rows."""
    size = np.linalg.norm(design, axis=1)
    unit = design / size[:, None]
    inverse = scipy.linalg.cho_solve(scipy.linalg.cho_factor(unit @ unit.T), unit)  # (Q^+)'
    return np.maximum(np.einsum("ij,ij->i", inverse @ gram, inverse), 0.0) / size**2


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
        ends = [self._rounds(w, _SCREENING) for w in (given, *self._starts(seed))]
        self._rounds(min(ends, key=lambda end: end[0])[1], _ROUNDS)

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
            if gain < self._tolerance or time.monotonic() > self._deadline:
                break
            left = None if np.isinf(self._deadline) else self._deadline - time.monotonic()
            costs, inner = w**4 * g, min(1e-6, self._tolerance)
            found = norm_weighting(self._norms, costs, p=1, tolerance=inner, time_limit=left)
            self.evaluations += found.evaluations
            w = found.weights
        return last, w
