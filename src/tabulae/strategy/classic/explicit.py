"""Optimisers of the literature over one explicit matrix: COA and the low-rank mechanism.

COA: the optimal strategy for Gaussian noise by a Newton method on the strategy's Gram matrix X = A'A.

    minimise  F(X) = tr[X^-1 V]    subject to    X positive definite,    diag X = 1.

With P = X^-1 and ``G = P V P`` the gradient is -G and the second derivative in direction D ``2 tr[P D G D]``, so the
Newton direction solves

    offdiag(P D G + G D P) = offdiag(G)    over symmetric D of zero diagonal.

Conjugate gradients solve it inexactly, with the Hessian's diagonal ``P_ii G_jj + P_jj G_ii`` as preconditioner; the
step is halved until X has a Cholesky factor and F falls enough. Where V is singular the optimum lies on the boundary
of the cone: V + theta I is solved instead, for theta that falls from stage to stage, as the authors' homotopy does. At
the optimum G is diagonal, and its diagonal holds the multipliers of the dual (:mod:`~tabulae.strategy.hdmm.opt0`);
before that it is still a point of the dual, whose bound says how far from the optimum the result is.

The low-rank mechanism: a factorisation W = B L whose factor L is measured and whose factor B answers.

    minimise  ||B||_F^2    subject to    W = B L,    every column of L of Lp norm at most 1,

with r of about 1.2 rank(W) rows in L, or up to 3 rank(W). An augmented Lagrangian with multipliers M and penalty beta,

    1/2 ||B||^2 + <M, W - B L> + beta/2 ||W - B L||^2,

is lowered in B, which has the closed form ``(beta W + M) L' (beta L L' + I)^-1``, and in L, by accelerated projected
gradient steps, in turn. Then ``M <- M + beta (W - B L)``, and now and then beta grows. W enters through its row space
alone: any root F'F = V takes its place, and nothing is larger than r x n. The problem is not convex. A beta that is
small at the start lets rows of L vanish that B cannot bring back; one that is large freezes L where it starts. So a
short ladder of first betas is climbed until one ends in a factorisation.

Where L ends depends on where it starts. Under Laplace noise several starts run for a few iterations, and the one that
is ahead then goes on. One of them is for few queries: with as many rows as the rank k, L = M F has one unknown matrix
M (k x k), B is its inverse, and nothing is left but

    minimise  log ||M^-1||_F^2 + 2 log max_j ||M f_j||_1,

over the columns f_j of F. Moduli and maximum are smoothed, less from stage to stage, and L-BFGS descends.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg
import scipy.optimize

from ...domain import Workload
from ...errors import InvalidArgument
from ..bounds.dual import dual_bound
from ..deadline import now
from ..eigen.design import eigen_queries
from ..gram import DistinctCells, asked_gram, check_tolerance, explicit_gram, explicit_strategy, is_definite
from ..methods import Settings, register
from ..rounding import definite_inverse
from ..strategy import Strategy

_THETAS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7)  # relative to the mean diagonal entry of V
_NEWTON, _CONJUGATE = 200, 40  # most Newton iterations of all stages, most conjugate gradient steps in each
_BETWEEN = 1e-3  # decrement, relative to F, that ends a stage before the last
_FORCING = 0.25  # largest relative residual of the Newton system
_ARMIJO, _SHORTEST = 0.1, 1e-8


@dataclass(frozen=True)
class CoaOptimum:
    """Where COA ended: A (r, n), upper triangular over distinct cells, with its ``loss`` and a bound.

    ``objectives`` are ``tr[X^-1 (V + theta I)]`` before each Newton iteration, in units of V's mean diagonal entry;
    ``products`` counts conjugate gradient steps. ``converged`` is false where a limit of iterations or time, or a step
    that rounding spoilt, ended the search.
    """

    strategy: np.ndarray
    loss: float
    lower: float
    objectives: tuple[float, ...]
    products: int
    converged: bool

    @property
    def gap(self) -> float:
        return self.loss / self.lower - 1.0


def coa(
    gram: np.ndarray, *, tolerance: float = 1e-6, iterations: int = _NEWTON, deadline: float = np.inf
) -> CoaOptimum:
    """The strategy of least total squared error under Gaussian noise, by COA.

    ``tolerance`` is of half the squared Newton decrement, relative to the objective: about the relative gap at the end.

    Raises :class:`~tabulae.errors.InvalidArgument` if ``gram`` is no Gram matrix or is zero.

    Reference: Yuan, Yang, Zhang, Hao, "Convex Optimization for Linear Query Processing under Approximate Differential
    Privacy", KDD 2016. The preconditioner and the accuracy of the Newton system are this project's.

    >>> W = np.tril(np.ones((3, 3)))  # prefix sums of three cells
    >>> best = coa(W.T @ W)
    >>> round(best.loss, 4), best.gap < 1e-5, best.converged
    (4.6079, True, True)
    """
    V = asked_gram(gram)
    check_tolerance(tolerance)
    largest = float(V.diagonal().max())
    if not (largest > 0 and is_definite(V / largest)):
        raise InvalidArgument("gram is not positive semi-definite, so it is no Gram matrix W'W")
    cells = DistinctCells.of([V])
    merged = cells.merge(V) / largest
    mean = float(merged.diagonal().mean())
    merged, scale = merged / mean, mean * largest
    newton = _Newton(merged, iterations, deadline)
    converged = all(newton.run(theta, _BETWEEN) for theta in _THETAS[:-1]) and newton.run(
        _THETAS[-1], tolerance
    )
    gradient = newton.gradient
    return CoaOptimum(
        strategy=cells.lift(scipy.linalg.cholesky(newton.X, check_finite=False)),
        loss=float(np.vdot(newton.inverse, merged)) * scale,
        lower=dual_bound(merged, gradient.diagonal()) * scale,
        objectives=tuple(newton.objectives),
        products=newton.products,
        converged=converged,
    )


@register(
    "coa",
    "COA (the convex optimum, by Newton steps)",
    noises=("gaussian",),
    otherwise="coa bounds the L2 norm of columns, which is what Gaussian noise is paid for; under "
    'Laplace noise choose "opt0" or "low-rank", which bound the L1 norm',
)
def coa_strategy(workload: Workload, settings: Settings) -> Strategy:
    """COA over the cells that the tables tell apart."""
    found: list[CoaOptimum] = []

    def matrix(gram: np.ndarray) -> np.ndarray:
        found.append(coa(gram, tolerance=settings.tolerance / 100, deadline=settings.deadline))
        return found[0].strategy

    strategy = explicit_strategy(workload, settings, "coa", matrix)
    proven = settings.neighbours == "add-remove"  # the bound is about columns, not about pairs
    return replace(strategy, lower=found[0].lower if proven else None)


class _Newton:
    """X and its inverse, from the identity on; limits are those of all stages together."""

    def __init__(self, gram: np.ndarray, iterations: int, deadline: float) -> None:
        self._gram = gram
        self._left = iterations
        self._deadline = deadline
        self.X, self.inverse = np.eye(len(gram)), np.eye(len(gram))
        self.gradient = gram
        self.objectives: list[float] = []
        self.products = 0

    def run(self, theta: float, tolerance: float) -> bool:
        """One stage: V + theta I, until the decrement is small; False where something else ended it."""
        V = self._gram + theta * np.eye(len(self._gram))
        while self._left > 0 and now() < self._deadline:
            self._left -= 1
            objective = float(np.vdot(self.inverse, V))
            self.objectives.append(objective)
            self.gradient = self.inverse @ V @ self.inverse
            direction = self._direction(self.gradient)
            slope = float(np.vdot(self.gradient, direction))  # F falls by so much per unit of step
            if slope <= 2 * tolerance * objective:
                return True
            if not self._moved(V, direction, objective, slope):
                return False
        return False

    def _direction(self, gradient: np.ndarray) -> np.ndarray:
        """D (n, n) with zero diagonal: the Newton system, by preconditioned conjugate gradients from 0."""
        diagonal = np.multiply.outer(self.inverse.diagonal(), gradient.diagonal())
        diagonal += diagonal.T
        direction, residual = np.zeros_like(gradient), _off_diagonal(gradient)
        aim = min(_FORCING, float(np.linalg.norm(residual) / np.linalg.norm(gradient)))
        search = residual / diagonal
        size = first = float(np.vdot(residual, search))
        for _ in range(_CONJUGATE):
            if size <= aim**2 * first or now() > self._deadline:
                break
            half = self.inverse @ search @ gradient
            image = _off_diagonal(half + half.T)
            self.products += 1
            length = size / float(np.vdot(search, image))
            direction += length * search
            residual -= length * image
            scaled = residual / diagonal
            before, size = size, float(np.vdot(residual, scaled))
            search = scaled + size / before * search
        return direction

    def _moved(self, V: np.ndarray, direction: np.ndarray, objective: float, slope: float) -> bool:
        """Armijo's rule from a full step on; whether there was a step that lowers F."""
        step = 1.0
        while step > _SHORTEST:
            X = self.X + step * direction
            inverse = definite_inverse(X)
            if inverse is not None and np.vdot(inverse, V) <= objective - _ARMIJO * step * slope:
                self.X, self.inverse = X, inverse
                return True
            step /= 2
        return False


def _off_diagonal(matrix: np.ndarray) -> np.ndarray:
    out = matrix.copy()
    np.fill_diagonal(out, 0.0)
    return out


_ROWS = 1.2  # of L, relative to the rank of W
_MORE_ROWS = (2.0, 3.0)  # more of them
_SMALL = 4000  # entries of L up to which several random starts, also of more rows, are tried
_FEW_QUERIES = 4  # times fewer than cells: then mixtures of the queries are a good start
_MIXTURES, _MIXING = 40, 3.0  # most descents in those, and seconds of a core that they may take
# Sharpness of the maximum and blur of moduli, stage by stage, and most L-BFGS iterations in each
_STAGES, _DESCENT = ((8, 3e-2), (40, 1e-2), (200, 2e-3), (1000, 3e-4), (5000, 5e-5)), 200
_PENALTIES = {1: (8.0, 40.0, 200.0), 2: (1.0, 10.0, 100.0)}  # at the start, by p
_GROWTH, _EVERY = 1.5, 10  # of the penalty: by how much, and after how many outer iterations
_OUTER, _INNER, _STEPS = 200, 5, 10  # most outer iterations, alternations in each, steps in each of those
_PILOT = 20  # outer iterations after which the best of several starts is mostly ahead
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


def low_rank(
    gram: np.ndarray,
    *,
    p: int = 2,
    seed: int = 0,
    restarts: int = 3,
    mixing: float = 0.0,
    deadline: float = np.inf,
) -> LowRank:
    """The low-rank mechanism's factorisation of a workload with Gram matrix V = W'W (n, n), of any rank.

    Under Laplace noise (p = 1) from the most promising of several starts: ``restarts`` of each kind, as far as these
    are small (0: of one), and of mixtures of few queries as many as take ``mixing`` seconds of a core, as predicted
    from sizes. What has been reached by the ``deadline`` is made a factorisation and returned.

    Reference: Yuan, Zhang, Winslett, Xiao, Yang, Hao, "Low-Rank Mechanism: Optimizing Batch Queries under Differential
    Privacy", PVLDB 5(11), 2012; p = 2: "Optimizing Batch Linear Queries under Exact and Approximate Differential
    Privacy", ACM TODS 40(2), 2015. Starts, ladder of penalties and the exact last step are this project's.

    >>> W = np.tril(np.ones((3, 3)))  # prefix sums of three cells, whose optimum is 4.6079
    >>> found = low_rank(W.T @ W)
    >>> found.queries.shape, round(found.loss, 3)
    ((4, 3), 4.608)
    """
    if p not in (1, 2):
        raise InvalidArgument(f"p is {p!r}: 2 for Gaussian noise or 1 for Laplace noise")
    basis, values = eigen_queries(gram)
    scale = values.sum() / len(gram)
    root = np.sqrt(values / scale)[:, None] * basis
    singular = np.diag(np.sqrt(values / scale))
    best = _finished(root, singular, basis, p, (), 0.0)
    starts = _starts(root, basis, p, seed, restarts, mixing, deadline)
    start, pilot = _best_start(root, starts, p, deadline)
    if pilot is not None and pilot.loss < best.loss:
        best = pilot
    for penalty in _PENALTIES[p]:
        if now() > deadline:
            break
        found, done = _factorised(root, start, p, penalty, deadline)
        if found.loss < best.loss * (1 - _RESIDUAL):
            best = found
        if done:
            break
    return LowRank(best.queries, float(best.loss * scale), best.residuals, best.penalty)


_RANKED = 512  # cells up to which the rank of tables with more queries than cells is worked out
_AFFORDABLE = 1e7  # of :func:`_work`: ten seconds of one core


def _work(rank: int, cells: int) -> float:
    """What the search costs in units of about a microsecond: steps on L and, once for all, matrices of all cells."""
    rows = _ROWS * rank
    return rows * cells * (rows + 64) + cells**3 / 600


def _pays(workload: Workload, settings: Settings) -> bool:
    """Whether the tables leave some combination of cells open, so that p-Identity asks more than they need."""
    if settings.noise == "gaussian":
        return False
    merged, _ = workload.merge()
    cells, rank = merged.domain.size, merged.queries
    if _work(1, cells) > _AFFORDABLE:
        return False
    if rank >= cells:
        if cells > _RANKED:
            return False
        rank = int(np.linalg.matrix_rank(explicit_gram(merged), hermitian=True))
    return rank < cells and _work(rank, cells) <= _AFFORDABLE


@register(
    "low-rank",
    "low-rank mechanism (as few queries as the tables' rank allows)",
    families=("auto",),
    turn=9,
    pays=_pays,
)
def low_rank_strategy(workload: Workload, settings: Settings) -> Strategy:
    """The low-rank mechanism over the cells that the tables tell apart, for Gaussian and Laplace noise."""

    mixing = min(_MIXING, settings.limit / 8) if settings.restarts is None else 0.0

    def queries(gram: np.ndarray) -> np.ndarray:
        return low_rank(
            gram,
            p=settings.norm,
            seed=settings.seed,
            restarts=settings.starts,
            mixing=mixing,
            deadline=settings.deadline,
        ).queries

    return explicit_strategy(workload, settings, "low-rank", queries)


def project_columns(matrix: np.ndarray, p: int) -> np.ndarray:
    """The nearest matrix whose columns have Lp norm at most 1, p = 1 or 2."""
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


def _starts(
    root: np.ndarray, basis: np.ndarray, p: int, seed: int, restarts: int, mixing: float, deadline: float
) -> list[np.ndarray]:
    """L (r, n) to begin with; under Gaussian noise one is enough."""
    rank, n = basis.shape
    random = np.random.default_rng(seed)
    starts = [_start(basis, p, random, _ROWS)]
    if p == 2 or not restarts:
        return starts
    for share in (_ROWS, *_MORE_ROWS):
        more = restarts - (share == _ROWS) if share * rank * n <= _SMALL else 0
        starts += [_start(basis, p, random, share) for _ in range(more)]
    if rank * _FEW_QUERIES <= n:
        takes = 0.04 + 5e-6 * rank * n  # seconds of a core
        many = max(restarts, min(int(mixing / takes), _MIXTURES))
        starts.append(_best_mixture(root, random, many, deadline))
    return starts


def _best_start(
    root: np.ndarray, starts: list[np.ndarray], p: int, deadline: float
) -> tuple[np.ndarray, LowRank | None]:
    """The start that is ahead after a few iterations, and where it is then; None without a choice or time."""
    best, ahead = starts[0], None
    for start in starts if len(starts) > 1 else ():
        if now() > deadline:
            break
        pilot, _ = _factorised(root, start, p, _PENALTIES[p][0], deadline, _PILOT)
        if ahead is None or pilot.loss < ahead.loss:
            best, ahead = start, pilot
    return best, ahead


def _start(basis: np.ndarray, p: int, random: np.random.Generator, share: float) -> np.ndarray:
    """Half of each cell and random rows, or random mixtures of a basis of few rows: ``share`` times the rank."""
    rank, n = basis.shape
    rows = int(np.ceil(share * rank - 1e-9))
    if rows < n:
        mixture, _ = np.linalg.qr(random.standard_normal((rows, rank)))
        return project_columns(mixture @ basis, p)
    others = random.random((rows - n, n))
    total = (others**p).sum(axis=0) ** (1 / p)
    return np.vstack([np.eye(n), others / np.where(total > 0, total, 1.0)]) * 0.5 ** (1 / p)


def _best_mixture(
    root: np.ndarray, random: np.random.Generator, restarts: int, deadline: float
) -> np.ndarray:
    """L = M F of L1 norm 1 for a root F (k, n): the best of several descents in M (k, k)."""
    best, least = root, np.inf
    for _ in range(restarts):
        M, _ = np.linalg.qr(random.standard_normal((len(root), len(root))))
        for sharpness, blur in _STAGES:
            M = _descended_mixture(M / _norm(M @ root), root, 1 / sharpness, blur / len(root), deadline)
        L = M @ root / _norm(M @ root)
        loss = float(np.linalg.norm(np.linalg.inv(M))) * _norm(M @ root)
        if loss < least:
            best, least = L, loss
        if now() > deadline:
            break
    return best


def _norm(L: np.ndarray) -> float:
    return float(np.abs(L).sum(axis=0).max())


def _descended_mixture(
    M: np.ndarray, root: np.ndarray, width: float, blur: float, deadline: float
) -> np.ndarray:
    """M lowered in ``log ||M^-1||^2 + 2 log max_j ||M f_j||_1``, moduli and maximum smoothed by blur and width."""

    def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
        mixture = x.reshape(M.shape)
        inverse = np.linalg.inv(mixture)
        answers = float(np.vdot(inverse, inverse))
        L = mixture @ root
        size = np.sqrt(L * L + blur * blur)
        norms = size.sum(axis=0)
        largest = norms.max()
        share = np.exp((norms - largest) / width)
        together = share.sum()
        norm = largest + width * np.log(together)
        by_norm = (L / size * (share / together)) @ root.T
        gradient = 2 / norm * by_norm - 2 / answers * (inverse.T @ inverse @ inverse.T)
        return float(np.log(answers) + 2 * np.log(norm)), gradient.ravel()

    def stop(_: np.ndarray) -> None:
        if now() > deadline:
            raise StopIteration

    options = {"maxiter": _DESCENT, "maxcor": 20}
    found = scipy.optimize.minimize(
        objective, M.ravel(), jac=True, method="L-BFGS-B", callback=stop, options=options
    )
    return found.x.reshape(M.shape)


def _factorised(
    root: np.ndarray, L: np.ndarray, p: int, penalty: float, deadline: float, outer: int = _OUTER
) -> tuple[LowRank, bool]:
    """The augmented Lagrangian from L at a first penalty; whether it ended in a factorisation."""
    size, beta = float(np.linalg.norm(root)), penalty
    multipliers = np.zeros_like(root)
    residuals: list[float] = []
    for iteration in range(1, outer + 1):
        B, L = _alternated(beta * root + multipliers, L, beta, p, deadline)
        residual = root - B @ L
        residuals.append(float(np.linalg.norm(residual)) / size)
        if residuals[-1] <= _RESIDUAL or now() > deadline:
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
        if change <= 10 * _STILL * float(np.linalg.norm(L)) or now() > deadline:
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
        if change <= _STILL * float(np.linalg.norm(L)) or now() > deadline:
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
