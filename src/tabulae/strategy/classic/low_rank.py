"""The low-rank mechanism: a factorisation W = B L whose factor L is measured and whose factor B answers.

    minimise  ||B||_F^2    subject to    W = B L,    every column of L of Lp norm at most 1,

p = 1 for Laplace and p = 2 for Gaussian noise, with r of about 1.2 rank(W) rows in L: the squared error at unit noise.
An augmented Lagrangian with multipliers M and penalty beta takes the constraint in,

    1/2 ||B||^2 + <M, W - B L> + beta/2 ||W - B L||^2,

and is lowered in B, which has the closed form ``(beta W + M) L' (beta L L' + I)^-1``, and in L, by accelerated
projected gradient steps, in turn. Then ``M <- M + beta (W - B L)``, and now and then beta grows.

W enters through its row space alone: with W = Q F, Q of orthonormal columns, all iterates are B = Q (Q'B). So any root
F'F = V takes its place, and nothing is larger than r x n. The problem is not convex. A beta that is small at the
start lets rows of L vanish that B cannot bring back; one that is large freezes L where it starts. So a short ladder of
first betas is climbed until one ends in a factorisation.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg

from ...domain import Workload
from ...errors import InvalidArgument
from ..eigen.eigen_design import eigen_queries
from ..explicit_strategy import explicit_strategy
from ..strategy import Strategy

if TYPE_CHECKING:
    from ..settings import Settings

_ROWS = 1.2  # of L, relative to the rank of W
_PENALTIES = {1: (8.0, 40.0, 200.0), 2: (1.0, 10.0, 100.0)}  # at the start, by p
_GROWTH, _EVERY = 1.5, 10  # of the penalty: by how much, and after how many outer iterations
_OUTER, _INNER, _STEPS = 200, 5, 10  # most outer iterations, alternations in each, steps in each of those
_LARGE, _FEW = 512, 2  # above this many cells there are fewer alternations: each takes seconds
_RESIDUAL, _STILL = 1e-5, 1e-6  # relative: ||W - B L|| that ends the search, a change of L that ends its part
_FEASIBLE = 1e-8  # relative residual of what is returned


@dataclass(frozen=True)
class LowRank:
    """A factorisation ``W = B L``.

    ``queries`` is L (r, n), largest column norm 1; ``loss = ||W L^+||_F^2`` the squared error at unit noise.
    ``residuals`` are ``||W - B L|| / ||W||`` of the outer iterations, ``penalty`` the beta that they began with: none
    and 0 where the singular value decomposition, which the search starts by, was not improved on.
    """

    queries: np.ndarray
    loss: float
    residuals: tuple[float, ...]
    penalty: float


def low_rank(gram: np.ndarray, *, p: int = 2, seed: int = 0, time_limit: float | None = None) -> LowRank:
    """The low-rank mechanism's factorisation of a workload with Gram matrix V = W'W.

    Arguments:
        gram: V (n, n), of any rank.
        p: 2 for Gaussian noise, 1 for Laplace noise.
        seed: of the random rows that the search starts from.
        time_limit: in seconds; what has been reached by then is made a factorisation and returned.

    Raises :class:`~tabulae.errors.InvalidArgument` if ``gram`` is no Gram matrix, or for another p.

    Reference: Yuan, Zhang, Winslett, Xiao, Yang, Hao, "Low-Rank Mechanism: Optimizing Batch Queries under Differential
    Privacy", PVLDB 5(11), 2012; p = 2: "Optimizing Batch Linear Queries under Exact and Approximate Differential
    Privacy", ACM TODS 40(2), 2015. Start, ladder of penalties and the exact last step are this project's.

    >>> W = np.tril(np.ones((3, 3)))  # prefix sums of three cells, whose optimum is 4.6079
    >>> found = low_rank(W.T @ W)
    >>> found.queries.shape, round(found.loss, 3)
    ((4, 3), 4.608)
    """
    if p not in (1, 2):
        raise InvalidArgument(f"p is {p!r}: 2 for Gaussian noise or 1 for Laplace noise")
    deadline = np.inf if time_limit is None else time.monotonic() + time_limit
    basis, values = eigen_queries(gram)
    scale = values.sum() / len(gram)
    root = np.sqrt(values / scale)[:, None] * basis
    singular = np.diag(np.sqrt(values / scale))
    best = _finished(root, singular, basis, p, (), 0.0)
    for penalty in _PENALTIES[p]:
        if time.monotonic() > deadline:
            break
        found, done = _factorised(root, _start(basis, p, seed), p, penalty, deadline)
        if found.loss < best.loss * (1 - _RESIDUAL):
            best = found
        if done:
            break
    return LowRank(best.queries, float(best.loss * scale), best.residuals, best.penalty)


def low_rank_strategy(workload: Workload, settings: Settings) -> Strategy:
    """The low-rank mechanism over the cells that the tables tell apart, for Gaussian and Laplace noise."""

    def queries(gram: np.ndarray) -> np.ndarray:
        return low_rank(gram, p=settings.norm, seed=settings.seed, time_limit=settings.remaining()).queries

    return explicit_strategy(workload, settings, "low-rank", queries)


def project_columns(matrix: np.ndarray, p: int) -> np.ndarray:
    """The nearest matrix whose columns have Lp norm at most 1, p = 1 or 2.

    >>> project_columns(np.array([[3.0, 0.3], [1.0, 0.3]]), 1).tolist()
    [[1.0, 0.3], [0.0, 0.3]]
    """
    if p == 2:
        return matrix / np.maximum(np.sqrt(np.square(matrix).sum(axis=0)), 1.0)
    size = np.abs(matrix)
    outside = np.flatnonzero(size.sum(axis=0) > 1)
    if outside.size == 0:
        return matrix
    falling = -np.sort(-size[:, outside], axis=0)
    excess = falling.cumsum(axis=0) - 1
    rank = np.arange(1, len(falling) + 1)[:, None]
    kept = (falling * rank > excess).sum(axis=0)
    threshold = excess[kept - 1, np.arange(outside.size)] / kept
    projected = matrix.copy()
    projected[:, outside] = np.sign(matrix[:, outside]) * np.maximum(size[:, outside] - threshold, 0.0)
    return projected


def _start(basis: np.ndarray, p: int, seed: int) -> np.ndarray:
    """L (r, n) to begin with: half of each cell and random rows, or random mixtures of a basis of few rows."""
    rank, n = basis.shape
    rows = int(np.ceil(_ROWS * rank - 1e-9))
    random = np.random.default_rng(seed)
    if rows < n:
        mixture, _ = np.linalg.qr(random.standard_normal((rows, rank)))
        return project_columns(mixture @ basis, p)
    others = random.random((rows - n, n))
    share = (others**p).sum(axis=0) ** (1 / p)
    return np.vstack([np.eye(n), others / np.where(share > 0, share, 1.0)]) * 0.5 ** (1 / p)


def _factorised(
    root: np.ndarray, L: np.ndarray, p: int, penalty: float, deadline: float
) -> tuple[LowRank, bool]:
    """The augmented Lagrangian from L at a first penalty; whether it ended in a factorisation."""
    size, beta = float(np.linalg.norm(root)), penalty
    multipliers = np.zeros_like(root)
    residuals: list[float] = []
    for iteration in range(1, _OUTER + 1):
        B, L = _alternated(beta * root + multipliers, L, beta, p, deadline)
        residual = root - B @ L
        residuals.append(float(np.linalg.norm(residual)) / size)
        if residuals[-1] <= _RESIDUAL or time.monotonic() > deadline:
            break
        multipliers += beta * residual
        if iteration % _EVERY == 0:
            beta *= _GROWTH
    return _finished(root, B, L, p, tuple(residuals), penalty), residuals[-1] <= _RESIDUAL


def _alternated(
    target: np.ndarray, L: np.ndarray, beta: float, p: int, deadline: float
) -> tuple[np.ndarray, np.ndarray]:
    """B and L lowered in turn for ``target = beta W + M``; B is the best for the L that is returned."""
    B = _answers(target, L, beta)
    for _ in range(_INNER if L.shape[1] <= _LARGE else _FEW):
        moved = _descended(beta * B.T @ B, B.T @ target, L, p, deadline)
        change = float(np.linalg.norm(moved - L))
        L = moved
        B = _answers(target, L, beta)
        if change <= 10 * _STILL * float(np.linalg.norm(L)) or time.monotonic() > deadline:
            break
    return B, L


def _answers(target: np.ndarray, L: np.ndarray, beta: float) -> np.ndarray:
    """B (k, r) that is best for L: ``target L' (beta L L' + I)^-1``."""
    matrix = beta * L @ L.T
    matrix[np.diag_indices_from(matrix)] += 1.0
    return scipy.linalg.solve(matrix, L @ target.T, assume_a="pos", check_finite=False).T


def _descended(
    curvature: np.ndarray, linear: np.ndarray, L: np.ndarray, p: int, deadline: float
) -> np.ndarray:
    """A few accelerated projected gradient steps on ``<L, curvature L> / 2 - <linear, L>``."""
    steepest = float(np.linalg.eigvalsh(curvature)[-1])
    if not steepest > 0:
        return L
    ahead, momentum = L, 1.0
    for _ in range(_STEPS):
        moved = project_columns(ahead - (curvature @ ahead - linear) / steepest, p)
        following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead = moved + (momentum - 1) / following * (moved - L)
        change = float(np.linalg.norm(moved - L))
        L, momentum = moved, following
        if change <= _STILL * float(np.linalg.norm(L)) or time.monotonic() > deadline:
            break
    return L


def _finished(
    root: np.ndarray, B: np.ndarray, L: np.ndarray, p: int, residuals: tuple[float, ...], penalty: float
) -> LowRank:
    """L moved by ``B^+ (F - B L)``, so that B L = F exactly, and scaled; of infinite loss where B has lost rank."""
    L = L + np.linalg.pinv(B, rcond=1e-10) @ (root - B @ L)
    L /= float((np.abs(L) ** p).sum(axis=0).max()) ** (1 / p)
    answers = root @ np.linalg.pinv(L, rcond=1e-10)
    left = np.linalg.norm(root - answers @ L) / np.linalg.norm(root)
    return LowRank(L, float(np.square(answers).sum()) if left <= _FEASIBLE else np.inf, residuals, penalty)
