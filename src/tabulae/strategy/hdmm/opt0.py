"""OPT_0, the best strategy without structure: the convex optimum for Gaussian noise, p-Identity for Laplace noise.

Gaussian noise: ``min tr[X^-1 V]`` subject to ``diag X <= 1``, V = W'W, X = A'A, is convex, with the dual

    max_{mu >= 0}  t(mu)^2 / sum mu,        t(mu) = tr (D^1/2 V D^1/2)^1/2,        D = diag(mu).

One eigendecomposition gives its value, its gradient and ``X(mu) = D^-1/2 (D^1/2 V D^1/2)^1/2 D^-1/2``. The gradient of
its logarithm, halved, is ``X_jj / t - 1 / sum mu``; the optimum is the X(mu) whose diagonal is 1 wherever mu > 0.
Hence the method: a few multiplicative steps ``mu <- mu * X_jj^2`` (one is enough for diagonal V), then L-BFGS on
sqrt(mu), which unlike log mu lets multipliers vanish and come back. The weighting of given queries
(:mod:`..eigen.weighting`) has a dual ``t^(1+a) / (sum mu)^a``, a = 1 for Gaussian and a = 2 for Laplace noise.

Two ways lead from X(mu) to a strategy that may be used:

* V non-singular: scale rows and columns to unit diagonal. The error is of second order in mu.
* V singular: scaling columns would move the row space off the workload's. Divide by the largest diagonal
  entry instead and fill the diagonal up to 1, which only adds queries; a share of at least ``_FILL`` is
  filled in everywhere, so that X stays non-singular and every workload row is supported. Here
  ``X(mu) = F' (F D F')^-1/2 F`` with V = F'F and F of full row rank, and mu may touch zero.

The factor returned is the upper triangular Cholesky factor A. Rounding any root of X to a grid costs the same to first
order, but the triangular one keeps its zeros exact, and cannot become singular: its pivots are at least sqrt(_FILL),
far above any step in use.

Laplace noise: Theta (p x n, non-negative) adds p queries to the n single cells; each column is divided by its sum, so
that every column has L1 norm 1:

    A(Theta) = [I; Theta] D,    D = diag(1/s),    s = 1 + column sums of Theta.

With ``C = diag(s) V diag(s)`` and ``R = (I_p + Theta Theta')^-1`` (p x p) the identity
``(I + Theta'Theta)^-1 = I - Theta' R Theta =: M`` gives

    loss      = tr[(A'A)^-1 V] = tr[M C] = tr C - tr[Theta Z'],              Z = R Theta C   (p x n)
    d / ds_j  = 2 (M C)_jj / s_j,              (M C)_jj = s_j^2 V_jj - sum_k Theta_kj Z_kj
    d / dTheta = -2 Theta M C M = -2 (Z - Z Theta' R Theta)        at fixed s, as Theta M = R Theta

with no n x n inverse; the one costly product is Theta (diag(s) V). The problem is not convex: rows as overlapping
triangles along an order of the cells, fine ones over coarse ones, lead to strategies that random starts seldom find;
after that single rows die and are born at random as long as it helps. No certificate is known beyond
:func:`~tabulae.strategy.bounds.dual.dual_bound`, which is for L2 sensitivity.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg as sl
from scipy.optimize import Bounds, minimize

from ...errors import InvalidArgument
from ..bounds.dual import DualSearch, GaussianOptimum, dual_bound, identity_and_ones, lowered_roots
from ..deadline import now
from ..gram import DistinctCells, asked_gram, check_tolerance, gram_root, singular_share

_FILL = 1e-5  # share of the identity mixed into a singular X
_RATIO = 1e-9  # of a minor to the product of its diagonal, below which it is lost in rounding
_WRONG = 1e-5  # largest share by which a tridiagonal inverse may be wrong
_PANEL = 512  # columns at a time
_UNITS = 32  # of rounding, of the largest row sum, by which an eigenvalue found by bisection may be wrong
_SMALL, _FINE = 512, 1e-5  # up to this many cells the search goes on to this gap: it takes a second at most


def opt0_gaussian(gram: np.ndarray, *, tolerance: float = 1e-3, deadline: float = np.inf) -> GaussianOptimum:
    """The strategy of least total squared error under Gaussian noise, within a proven ``tolerance``.

    Minimises ``tr[(A'A)^+ V]`` over all A whose columns have L2 norm at most 1 (add/remove neighbours), for V =
    ``gram`` (n x n, any rank). The search stops at a gap of ``tolerance`` (up to 512 cells: of 1e-5, if that is less),
    when it cannot improve, or the ``deadline`` has passed; the gap reported is true in each case.

    Raises :class:`~tabulae.errors.InvalidArgument` if ``gram`` is no Gram matrix or is zero.

    Reference: HDMM, Definition 12 and section 4.2.

    >>> W = np.tril(np.ones((3, 3)))  # prefix sums of three cells
    >>> best = opt0_gaussian(W.T @ W, tolerance=1e-6)
    >>> round(best.loss, 4), best.gap <= 1e-6
    (4.6079, True)
    >>> opt0_gaussian(np.ones((4, 4))).strategy.tolist()  # the total: one query
    [[1.0, 1.0, 1.0, 1.0]]
    """
    V = asked_gram(gram)
    check_tolerance(tolerance)
    cells = DistinctCells.of([V])
    merged = cells.merge(V)
    aim = min(tolerance, _FINE) if cells.count <= _SMALL else tolerance
    search = _searched(merged, aim, deadline, np.ones(cells.count))
    A, loss = search.best()
    lower = search.proven(merged)
    return GaussianOptimum(loss, lower, search.evaluations, cells.lift(A), cells.share(search.multipliers))


def nonsingular_optimum(
    gram: np.ndarray, *, tolerance: float, deadline: float = np.inf, start: np.ndarray | None = None
) -> GaussianOptimum:
    """As :func:`opt0_gaussian`, but A is always square and non-singular, and ``lower`` is not rounded down.

    For callers that hold several workloads over the same cells and may lose the row space of none; ``start`` are
    multipliers.
    """
    search = _searched(gram, tolerance, deadline, np.ones(gram.shape[0]) if start is None else start)
    A, loss = search.best()
    lower = search.lower * search.scale
    return GaussianOptimum(loss, lower, search.evaluations, A, search.multipliers)


def _searched(gram: np.ndarray, tolerance: float, deadline: float, start: np.ndarray) -> _Search:
    search = _Search(gram, tolerance, deadline)
    search.run(start)
    return search


@dataclass(frozen=True)
class TridiagonalInverse:
    """V = T^-1 (I + R) for a tridiagonal T, as of ranges and of prefixes: spectra in O(n^2), not O(n^3).

    ``T^1/2 V T^1/2 = I + S`` has the eigenvalues of I + R, so that eigenvalues of ``D^1/2 V D^1/2`` are within a share
    ``wrong``, at least the norm of R, of those of ``D^1/2 T^-1 D^1/2`` (Ostrowski).
    """

    diagonal: np.ndarray
    beside: np.ndarray
    wrong: float

    @classmethod
    def of(cls, gram: np.ndarray, scale: float) -> TridiagonalInverse | None:
        """T of ``gram / scale``, as of the covariance of a Markov chain; None where the inverse is another."""
        own, next_ = gram.diagonal().copy(), gram.diagonal(1).copy()
        minors = own[:-1] * own[1:] - next_**2
        if not (own.min() > 0 and (minors > _RATIO * own[:-1] * own[1:]).all()):
            return None
        beside, diagonal = -next_ / minors, 1 / own
        diagonal[:-1] += next_**2 / (own[:-1] * minors)
        diagonal[1:] += next_**2 / (own[1:] * minors)
        sums, sizes = np.zeros(len(own)), np.zeros(len(own))
        for start in range(0, len(own), _PANEL):
            part = gram[:, start : start + _PANEL]
            rest, size = diagonal[:, None] * part, np.abs(diagonal)[:, None] * np.abs(part)
            for low, high in ((slice(None, -1), slice(1, None)), (slice(1, None), slice(None, -1))):
                rest[low] += beside[:, None] * part[high]
                size[low] += np.abs(beside)[:, None] * np.abs(part[high])
            rest[np.arange(start, start + part.shape[1]), np.arange(part.shape[1])] -= 1.0
            sums, sizes = sums + np.abs(rest).sum(axis=1), sizes + size.sum(axis=1)
            if sums.max() > _WRONG:
                return None
        wrong = float((sums + 8 * np.finfo(float).eps * sizes).max())
        return cls(diagonal * scale, beside * scale, wrong) if wrong <= _WRONG else None

    def _scaled(self, h: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.diagonal / h**2, self.beside / (h[:-1] * h[1:])

    def eigh(self, h: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Eigenvalues and vectors of ``D^1/2 V D^1/2``, D^1/2 = diag(h)."""
        values, vectors = sl.eigh_tridiagonal(*self._scaled(h), check_finite=False)
        return 1 / np.maximum(values, np.finfo(float).eps * values[-1]), vectors

    def lowered_trace(self, h: np.ndarray) -> float:
        """The sum of the roots of those eigenvalues, rounded down.

        Bisection finds each eigenvalue of a tridiagonal matrix within a few units of rounding of its norm (Kahan).
        """
        diagonal, beside = self._scaled(h)
        values = sl.eigvalsh_tridiagonal(diagonal, beside, check_finite=False, lapack_driver="stebz")
        around = np.abs(np.append(beside, 0.0)) + np.abs(np.append(0.0, beside))
        error = _UNITS * np.finfo(float).eps * float((diagonal + around).max())
        return float(np.sqrt((1 - self.wrong) / (np.maximum(values, 0.0) + error)).sum())

    def solve(self, columns: np.ndarray) -> np.ndarray:
        """``T^-1`` times columns."""
        return sl.solveh_banded(
            np.stack([np.append(0.0, self.beside), self.diagonal]), columns, check_finite=False
        )


class _Search(DualSearch):
    """The dual of an explicit Gram matrix; remembers where the best strategy was met."""

    def __init__(self, gram: np.ndarray, tolerance: float, deadline: float) -> None:
        super().__init__(0.9 * tolerance, deadline)  # the rest is for what _factor may add
        self.scale = float(np.trace(gram)) / gram.shape[0]
        self._gram = gram / self.scale
        self._inverse = TridiagonalInverse.of(gram, self.scale) if len(gram) > _SMALL else None
        self._root: np.ndarray | None = None  # F with V = F'F, once V is known to be singular
        self._fill = min(_FILL, max(tolerance / 10, 1e-9))
        self._loss = np.inf
        self._best: Any = None  # where V is not singular: what X(mu) is made of
        self._strategy = np.eye(gram.shape[0])

    def best(self) -> tuple[np.ndarray, float]:
        """The best strategy met, and its loss."""
        if self._best is not None:
            vectors, values, h, diagonal = self._best
            scale = 1 / (h * np.sqrt(diagonal))
            half = (vectors * values**0.25).T * scale
            X = half.T @ half
            np.fill_diagonal(X, 1.0)
            self._keep(X)
        return self._strategy, self._loss * self.scale

    def proven(self, gram: np.ndarray) -> float:
        """The lower bound, rounded down: from the eigenvalues that it came from where they are those of V itself."""
        n = gram.shape[0]
        if self._inverse is not None:
            trace = self._inverse.lowered_trace(np.sqrt(self.multipliers))
        elif self.best_spectrum is not None:
            trace = lowered_roots(self.best_spectrum)
        else:
            return dual_bound(gram, self.multipliers)
        slack = (4 * n + 16) * float(np.finfo(np.float64).eps)
        return trace**2 / float(self.multipliers.sum()) * self.scale * (1 - slack)

    def evaluate(self, mu: np.ndarray) -> tuple[float, np.ndarray]:
        if self._root is None:
            h = np.sqrt(mu)
            if self._inverse is not None:
                return self._scaled(*self._inverse.eigh(h), h)
            values, vectors = sl.eigh(self._gram * h * h[:, None], check_finite=False, overwrite_a=True)
            if values[0] > values[-1] * singular_share(h.size):
                self.spectrum = values
                return self._scaled(values, vectors, h)
            self._root = gram_root(self._gram)
        return self._filled(mu)

    def _scaled(self, values: np.ndarray, vectors: np.ndarray, h: np.ndarray) -> tuple[float, np.ndarray]:
        """V non-singular: X(mu) with rows and columns scaled to unit diagonal, its loss without forming it."""
        roots = np.sqrt(values)
        diagonal = (vectors * vectors) @ roots / (h * h)
        scaled = vectors * (h * np.sqrt(diagonal))[:, None]
        product = self._gram @ scaled if self._inverse is None else self._inverse.solve(scaled)
        loss = float((np.sum(scaled * product, axis=0) / roots).sum())
        if loss < self.upper:
            self.upper, self._best = loss, (vectors, values, h, diagonal)
        return float(roots.sum()), diagonal

    def _filled(self, mu: np.ndarray) -> tuple[float, np.ndarray]:
        """V singular: X(mu) over its largest diagonal entry, filled up to unit diagonal."""
        assert self._root is not None
        values, vectors = sl.eigh((self._root * mu) @ self._root.T, check_finite=False, overwrite_a=True)
        values = np.maximum(values, values[-1] * 1e-15)
        half = (vectors / values**0.25).T @ self._root
        diagonal = np.square(half).sum(axis=0)
        X = half.T @ half
        X *= (1 - self._fill) / diagonal.max()
        np.fill_diagonal(X, 1.0)
        loss = self._keep(X)
        if loss < self.upper:
            self.upper, self._best = loss, None
        self.spectrum = None
        return float(np.sqrt(values).sum()), diagonal

    def _keep(self, X: np.ndarray) -> float:
        """The loss of X's factor, which is kept if it is the best so far."""
        A = _factor(X, self._fill)
        loss = float(np.trace(sl.cho_solve((A, False), self._gram, check_finite=False)))
        if loss < self._loss:
            self._loss, self._strategy = loss, A
        return loss


def _factor(X: np.ndarray, fill: float) -> np.ndarray:
    """Upper triangular A, A'A = X up to a mixture with the identity that keeps pivots above sqrt(fill)."""
    for share in (0.0, fill, 1e-3, 1.0):
        try:
            A = sl.cholesky((1 - share) * X + share * np.eye(X.shape[0]), check_finite=False)
        except sl.LinAlgError:
            continue
        if share or A.diagonal().min() ** 2 >= fill:
            break
    return A / np.sqrt(np.square(A).sum(axis=0).max())


_PILOT, _REFINE, _POLISH = 80, 150, 1500  # L-BFGS iterations: from a start, after a change, of the best
_LARGE, _FEW = 512, 6  # above this many cells only the first few starts are tried
_HUGE = 2048  # above this many only the first, and no row is replaced: each step takes a second
_DECISIVE = 0.3  # a total row that leaves less than this share of the cells' loss goes into every start
_LARGEST = 1e4  # of an entry: beyond it the cells are hardly measured and the Woodbury identity cancels
_DEAD = 1e-4  # a row with no larger entry is dropped, an entry this much below its row's largest is zero


@dataclass(frozen=True)
class LaplaceOptimum:
    """A p-Identity strategy A ((c + p) x n): the c distinct cells, then the p rows of ``theta`` (p x c).

    Every column has L1 norm 1 (0 for a cell that the workload never counts); ``loss = tr[(A'A)^+ V]``.
    """

    theta: np.ndarray
    strategy: np.ndarray
    loss: float
    evaluations: int


def opt0_laplace(
    gram: np.ndarray, *, rows: int | None = None, restarts: int = 3, seed: int = 0, deadline: float = np.inf
) -> LaplaceOptimum:
    """The best p-Identity strategy found for Laplace noise.

    Minimises ``tr[(A'A)^-1 V]`` over Theta >= 0 from structured and ``restarts`` random starts, then replaces
    rows ``4 * restarts`` times (fewer above 512 cells, never above 2,048). Never worse than measuring the distinct
    cells one by one. ``rows`` bounds p (default: as many as help). The result depends on ``seed`` alone unless
    a ``deadline`` is set.

    Raises :class:`~tabulae.errors.InvalidArgument` for a gram that is zero or no Gram matrix, and for
    ``rows`` or ``restarts`` below 0.

    Reference: HDMM, Definitions 13 and 14.

    >>> best = opt0_laplace(np.eye(4) + 100 * np.ones((4, 4)))  # four cells, and their total at weight 10
    >>> best.theta.shape, np.abs(best.strategy).sum(axis=0).round(9).tolist()
    ((1, 4), [1.0, 1.0, 1.0, 1.0])
    """
    V = asked_gram(gram)
    if restarts < 0 or (rows is not None and rows < 0):
        raise InvalidArgument(f"rows={rows}, restarts={restarts}: both count something, so they start at 0.")
    cells = DistinctCells.of([V])
    found = full_optimum(
        cells.merge(V), rows=rows, restarts=restarts, seed=seed,
        deadline=deadline,
    )  # fmt: skip
    return LaplaceOptimum(found.theta, cells.lift(found.strategy), found.loss, found.evaluations)


def full_optimum(
    gram: np.ndarray,
    *,
    rows: int | None = None,
    restarts: int = 3,
    seed: int = 0,
    deadline: float = np.inf,
    start: np.ndarray | None = None,
    free: float = 0.0,
) -> LaplaceOptimum:
    """As :func:`opt0_laplace` over cells that are all kept apart; A always has full column rank.

    ``start`` (p x n) is a Theta to continue from: then nothing else is tried. ``free`` is the precision (inverse
    variance) of a total that is measured elsewhere, at no cost here.
    """
    search = _FactorSearch(gram, deadline, free)
    n = gram.shape[0]
    if start is not None:
        search.descend(start, _REFINE)
        return search.result()
    if n == 1 or rows == 0:
        return search.result()
    total = _total_row(gram)
    search.descend(total, _PILOT)
    decisive = search.loss < _DECISIVE  # strategies without a total are far off
    if identity_and_ones(gram) is None:
        rng = np.random.default_rng(seed)
        order = _order(gram)
        for theta in _starts(n, rows, restarts, order, rng):
            with_total = np.vstack([total, theta])[:rows]
            search.descend(with_total if decisive else theta, _PILOT)
        search.descend(search.theta, _REFINE)
        for _ in range(restarts * (4 if n <= _LARGE else 1 if n <= _HUGE else 0)):
            search.descend(_replace_rows(search.theta, rows, order, rng), _REFINE)
    search.descend(search.theta, _POLISH if restarts and n <= _HUGE else _REFINE, precision=1e-12)
    return search.result()


def overlapping_rows(gram: np.ndarray) -> np.ndarray:
    """A Theta to start from where a rough strategy will do: the best total row over n/8 overlapping triangles."""
    n = gram.shape[0]
    theta = np.empty((max(1, round(n / 8)), n))
    theta[:, _order(gram)] = _even(n, len(theta), 0.5)
    return np.vstack([_total_row(gram), theta])


def p_identity(theta: np.ndarray) -> np.ndarray:
    """A(Theta) = [I; Theta] D as a dense ((n + p) x n) array; every column has L1 norm 1.

    >>> p_identity(np.array([[1.0, 3.0]])).tolist()
    [[0.5, 0.0], [0.0, 0.25], [0.5, 0.75]]
    """
    return np.vstack([np.eye(theta.shape[1]), theta]) / (1.0 + theta.sum(axis=0))


def p_identity_loss(theta: np.ndarray, gram: np.ndarray, free: float = 0.0) -> tuple[float, np.ndarray]:
    """``tr[(A'A + t 1 1')^-1 V]`` of A = A(Theta), t = ``free``, and its gradient in Theta (p x n), in O(p n^2).

    A total of precision t that costs nothing is a row ``sqrt(t) s'`` under Theta, of which the columns' norms know
    nothing.

    >>> p_identity_loss(np.zeros((0, 2)), np.diag([1.0, 2.0]))[0]  # no extra row: the cells themselves
    3.0
    """
    s = 1.0 + theta.sum(axis=0)
    rows = np.vstack([theta, np.sqrt(free) * s]) if free else theta
    C = ((rows * s) @ gram) * s
    inner = sl.cho_factor(np.eye(rows.shape[0]) + rows @ rows.T, check_finite=False)
    Z, R_rows = sl.cho_solve(inner, C, check_finite=False), sl.cho_solve(inner, rows, check_finite=False)
    diagonal = s * s * gram.diagonal() - np.einsum("kj,kj->j", rows, Z)
    by_row, by_s = -2.0 * (Z - (Z @ rows.T) @ R_rows), 2.0 * diagonal / s
    if free:
        by_row, by_s = by_row[:-1], by_s + np.sqrt(free) * by_row[-1]
    return float(diagonal.sum()), by_row + by_s


class _FactorSearch:
    """L-BFGS descents over one Gram matrix, of which the best result is kept."""

    def __init__(self, gram: np.ndarray, deadline: float, free: float = 0.0) -> None:
        self.scale = float(np.trace(gram))
        self.gram = gram / self.scale
        self.deadline, self.free = deadline, free
        self.theta = np.zeros((0, gram.shape[0]))
        self.loss, _ = p_identity_loss(self.theta, self.gram, free)  # of the cells themselves
        self.evaluations = 0

    def descend(self, start: np.ndarray, iterations: int, precision: float = 1e-9) -> None:
        if self.out_of_time() or start.shape[0] == 0:
            return

        def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
            self.evaluations += 1
            loss, gradient = p_identity_loss(x.reshape(start.shape), self.gram, self.free)
            return loss, gradient.ravel()

        def stop(xk: np.ndarray) -> None:
            if self.out_of_time():
                raise StopIteration

        found = minimize(
            objective, start.ravel(), jac=True, method="L-BFGS-B", callback=stop,
            bounds=Bounds(0.0, _LARGEST),
            options={"maxiter": iterations, "maxfun": 2 * iterations, "ftol": precision, "gtol": 1e-10},
        )  # fmt: skip
        theta = _without_dust(found.x.reshape(start.shape))
        loss, _ = p_identity_loss(theta, self.gram, self.free)
        if loss < self.loss:
            self.theta, self.loss = theta, loss

    def out_of_time(self) -> bool:
        return now() > self.deadline

    def result(self) -> LaplaceOptimum:
        A = p_identity(self.theta)
        inverse = sl.cho_factor(A.T @ A + self.free, check_finite=False)
        loss = float(np.trace(sl.cho_solve(inverse, self.gram, check_finite=False))) * self.scale
        return LaplaceOptimum(self.theta, A, loss, self.evaluations)


def _without_dust(theta: np.ndarray) -> np.ndarray:
    """Theta without rows that died and without entries that are only rounding."""
    theta = theta[theta.max(axis=1, initial=0.0) > _DEAD]
    return np.where(theta > _DEAD**2 * theta.max(axis=1, keepdims=True, initial=0.0), theta, 0.0)


def _order(gram: np.ndarray) -> np.ndarray:
    """An order of the cells that puts similar ones side by side: their own if it does that as well.

    The second eigenvector of the Laplacian of the cells' correlations finds permuted ranges' order again.
    """
    n = gram.shape[0]
    own = np.arange(n)
    norm = np.sqrt(np.maximum(gram.diagonal(), np.finfo(float).tiny))
    similar = np.maximum(gram / norm / norm[:, None], 0.0)
    if n < 4:
        return own
    laplacian = np.diag(similar.sum(axis=1)) - similar
    _, vectors = sl.eigh(laplacian, subset_by_index=[1, 1], check_finite=False)
    found = np.argsort(vectors[:, 0], kind="stable")
    steps = [similar[order[:-1], order[1:]].sum() for order in (own, found)]
    return found if steps[1] > 1.001 * steps[0] else own


def _total_row(gram: np.ndarray) -> np.ndarray:
    """The best constant row c 1' (1 x n): its loss is ``(1 + c)^2 (tr V - c^2 / (1 + n c^2) sum V)``."""
    n, c = gram.shape[0], np.geomspace(1e-3, 1e3, 400)
    loss = (1 + c) ** 2 * (np.trace(gram) - c * c / (1 + n * c * c) * gram.sum())
    return np.full((1, n), c[np.argmin(loss)])


def _triangles(n: int, centres: np.ndarray, widths: np.ndarray, height: float) -> np.ndarray:
    """Rows that rise to ``height`` at each centre and vanish half a width away, (k, n)."""
    distance = np.abs(np.arange(n) + 0.5 - centres[:, None])
    return height * np.maximum(0.0, 1.0 - 2.0 * distance / widths[:, None])


def _even(n: int, k: int, height: float) -> np.ndarray:
    """k overlapping triangles, evenly spaced, each twice as wide as its share."""
    step = n / k
    return _triangles(n, (np.arange(k) + 0.5) * step, np.full(k, 2.0 * step), height)


def _starts(
    n: int, rows: int | None, restarts: int, order: np.ndarray, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    """Thetas to descend from, the most promising first."""
    coarse = max(2, round(n / 256))
    shapes = [(n / 16, coarse), (n / 12, 2), (n / 20, coarse), (n / 16, 0), (n / 24, 2 * coarse), (n / 21, 0)]
    shapes += [(n / 12, 0), (n / 8, 2), (4, 0), (3, 0), (2, 0), (n / 32, 2), (n / 8, 0)]
    seen: set[tuple[int, int]] = set()
    for fine, wide in shapes[: len(shapes) if n <= _LARGE else _FEW if n <= _HUGE else 1]:
        limit = n if rows is None else min(n, rows)
        many = max(1, min(round(fine), limit))
        few = min(wide, limit - many, many // 2)
        if (many, few) not in seen:
            seen.add((many, few))
            theta = np.empty((many + few, n))
            theta[:, order] = np.vstack(
                [_even(n, many, 0.5), _even(n, few, 0.3)] if few else [_even(n, many, 0.5)]
            )
            yield theta
    for _ in range(restarts if n <= _HUGE else 0):
        yield rng.random((rows if rows is not None else max(1, n // 16), n))


def _replace_rows(
    theta: np.ndarray, rows: int | None, order: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Theta shaken a little, with up to two rows taken out and up to a fifth put in at random."""
    p, n = theta.shape
    kept = theta[rng.permutation(p)[: max(0, p - int(rng.integers(0, 3)))]]
    born = int(rng.integers(1, max(2, p // 5 + 1)))
    if rows is not None:
        born = min(born, rows - len(kept))
    new = np.empty((born, n))
    widths = np.exp(rng.uniform(np.log(min(4, n)), np.log(n), born))
    new[:, order] = _triangles(n, rng.random(born) * n, widths, 0.3)
    shaken = np.maximum(kept * (1.0 + 0.1 * rng.standard_normal(kept.shape)), 0.0)
    return np.vstack([shaken, new]) + 0.005 * rng.random((len(kept) + born, n))
