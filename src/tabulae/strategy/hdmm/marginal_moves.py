"""Weighing marginals: the loss of weights, descent between them, and moves that open one set and close others.

Under L1 the gradient never opens a set that is left out. What decides is which tables are read off a common larger
marginal: a move opens a set c with weight h and closes those within it (all, or those of one attribute less), and
descent settles the weights again. Only the eigenvalues of subsets of c change: ``2^|c|`` numbers give the loss after a
move. A bound by sums over subsets alone tells most moves that cannot help; the others are weighed together.

The loss, its weights and their units are those of :mod:`.marginals`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.optimize
import scipy.sparse

from ..information.marginal_algebra import characteristic, subset_sum, superset_sum

_NEGLIGIBLE = 1e-9  # relative rise of the loss that dropping sets may cost
_LISTED = 2**22  # entries of the incidence of needed sets and pool up to which it is listed


class MarginalProblem:
    """Loss and gradient over a pool of sets: ``kappa = K v`` for the sets that the workload has a component in."""

    def __init__(self, sizes: Sequence[int], components: np.ndarray) -> None:
        self.share = characteristic(sizes) / np.prod(np.asarray(sizes, dtype=float))  # c_a / N
        self.f = components / components.max()
        self.needed = np.flatnonzero(self.f > 0)
        self.scale = float(components.max()) / float(np.prod(np.asarray(sizes, dtype=float)))

    def kappa(self, v: np.ndarray) -> np.ndarray:
        """Eigenvalues over N, of the needed sets."""
        return superset_sum(v * self.share)[self.needed]

    def error(self, v: np.ndarray) -> float:
        """sum f / kappa, infinite where the workload is not determined."""
        with np.errstate(divide="ignore"):
            return float((self.f[self.needed] / self.kappa(v)).sum())

    def slopes(self, v: np.ndarray) -> np.ndarray:
        """``-d error / d v_a`` for every set, (2^d,)."""
        y = np.zeros(self.f.size)
        y[self.needed] = self.f[self.needed] / self.kappa(v) ** 2
        return subset_sum(y) * self.share

    def incidence(self, pool: np.ndarray) -> scipy.sparse.csr_array | None:
        """K (needed sets x pool); None where it is better not listed."""
        if self.needed.size * pool.size > _LISTED:
            return None
        within = (self.needed[:, None] & ~pool[None, :]) == 0
        return scipy.sparse.csr_array(np.where(within, self.share[pool], 0.0))

    def descend(
        self, weights: np.ndarray, p: int, iterations: int = 500, precision: float = 1e-10
    ) -> np.ndarray:
        """L-BFGS-B from positive weights (2^d,), which alone may change; v = weights^(2/p)."""
        pool = np.flatnonzero(weights > 0)
        K = self.incidence(pool)
        transposed = None if K is None else K.T.tocsr()
        power, start = 2 / p, weights[pool]
        whole = np.zeros(self.f.size)
        f = self.f[self.needed]

        def log_loss(x: np.ndarray) -> tuple[float, np.ndarray]:
            scaled = np.maximum(x, 0.0) * start
            v = scaled**power
            if K is None:
                whole[pool] = v
                kappa = self.kappa(whole)
            else:
                kappa = K @ v
            total = scaled.sum()
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                q = f / kappa
                error = q.sum()
                if not np.isfinite(error) or total <= 0:
                    return 1e300, np.zeros_like(x)
                slopes = self.slopes(whole)[pool] if transposed is None else transposed @ (q / kappa)
            if not np.isfinite(
                slopes
            ).all():  # a set is all but unanswered, as where the error itself is infinite
                return 1e300, np.zeros_like(x)
            gradient = power / total - power * scaled ** (power - 1) * slopes / error
            return float(power * np.log(total) + np.log(error)), gradient * start

        options = {
            "maxiter": iterations,
            "maxfun": 2 * iterations,
            "maxcor": 10,
            "ftol": precision,
            "gtol": 1e-9,
        }
        bounds = [(0.0, None)] * pool.size
        found = scipy.optimize.minimize(
            log_loss, np.ones(pool.size), jac=True, method="L-BFGS-B", bounds=bounds, options=options
        )
        out = np.zeros(self.f.size)
        out[pool] = np.maximum(found.x, 0.0) * start
        return out

    def loss(self, weights: np.ndarray, p: int) -> float:
        """The loss of weights, in units of ``scale``."""
        return float(weights.sum() ** (2 / p)) * self.error(weights ** (2 / p))

    def pruned(self, weights: np.ndarray, p: int) -> np.ndarray:
        """Without the weights that the loss is no better for."""
        loss = self.loss(weights, p)
        for share in (1e-3, 1e-4, 1e-5, 1e-6, 1e-8, 1e-10, 1e-13, 1e-16):
            fewer = np.where(weights >= share * weights.max(), weights, 0.0)
            if self.loss(fewer, p) <= loss * (1 + _NEGLIGIBLE):
                return fewer
        return weights


_WORK = 2**18  # subsets of all sets that may be opened
_FACTORS = (0.5, 0.7, 0.85, 1.0, 1.2, 1.5)  # of the cube root of the sum of the closed weights' cubes
_RELATIVE = 1e-9  # rounding of an eigenvalue that a move empties


@dataclass(frozen=True)
class Move:
    """Open the set ``opened`` with weight ``weight``, close ``closed``; ``loss`` before the others adapt."""

    loss: float
    opened: int
    weight: float
    closed: np.ndarray

    def applied(self, weights: np.ndarray) -> np.ndarray:
        """The weights after the move."""
        out = weights.copy()
        out[self.closed] = 0.0
        out[self.opened] = self.weight
        return out


@dataclass(frozen=True)
class _Opened:
    """Moves, a column each: all other weights together, the error beside the opened set and f within it, the
    eigenvalues that are left there (subsets, moves), the set's c / N, and the weight that is usual for it.
    """

    total: np.ndarray
    beside: np.ndarray
    f: np.ndarray
    left: np.ndarray
    share: np.ndarray
    usual: np.ndarray

    def loss(self, factor: float) -> np.ndarray:
        """The loss at so many times the usual weight."""
        weight = factor * self.usual
        error = self.beside + (self.f / (self.left + weight**2 * self.share)).sum(axis=0)
        return (self.total + weight) ** 2 * error

    def least(self) -> tuple[np.ndarray, np.ndarray]:
        """The least loss over some weights, and that weight."""
        losses = np.array([self.loss(factor) for factor in _FACTORS])
        return losses.min(axis=0), np.array(_FACTORS)[losses.argmin(axis=0)] * self.usual


class Moves:
    """All moves of a problem."""

    def __init__(self, problem: MarginalProblem) -> None:
        self._problem = problem
        self._sets: list[np.ndarray] = []
        """By their number of attributes, from one on."""
        every = np.arange(problem.f.size)
        counts = np.bitwise_count(every)
        work = 0
        for k in range(1, int(counts[-1]) + 1):
            sets = every[counts == k]
            work += sets.size << k
            if work > _WORK:
                break
            self._sets.append(sets)

    def improving(self, theta: np.ndarray, most: int) -> list[Move]:
        """Moves that lower the loss as they stand, best first; of equal ones few attributes and many closed first."""
        kappa, terms = self._told(theta)
        below = theta.sum() ** 2 * terms.sum() * (1 - 1e-9)
        found: list[tuple[float, int, bool, int, float, np.ndarray]] = []
        for fewer, summed in ((False, subset_sum), (True, _largest_sum)):
            possible = self._least(theta, kappa, terms, summed) * (1 - 1e-9) < below
            for k, every in enumerate(self._sets, 1):
                if not (sets := every[possible[every]]).size:
                    continue
                subsets = _subsets(sets, k)
                closing = _largest(k) if fewer else np.arange(1 << k)
                losses, weights = self._opened(theta, kappa, terms, subsets, closing).least()
                for i in np.flatnonzero(losses < below).tolist():
                    order = float(losses[i]), k, fewer, int(sets[i])
                    found.append((*order, float(weights[i]), subsets[closing, i]))
        found.sort(key=lambda move: move[:4])
        return [Move(loss, opened, weight, closed) for loss, _, _, opened, weight, closed in found[:most]]

    def _told(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Eigenvalues over N and parts of the error, of every set: 0 for those that nobody asks for."""
        needed = self._problem.needed
        kappa, terms = np.zeros(theta.size), np.zeros(theta.size)
        kappa[needed] = self._problem.kappa(theta**2)
        terms[needed] = self._problem.f[needed] / kappa[needed]
        return kappa, terms

    def _least(
        self,
        theta: np.ndarray,
        kappa: np.ndarray,
        terms: np.ndarray,
        summed: Callable[[np.ndarray], np.ndarray],
    ) -> np.ndarray:
        """A lower bound on the loss after each set is opened and those that ``summed`` runs over are closed, (2^d,).

        At the least weight's cost and the largest's gain g. What is left of an eigenvalue is at most x: kappa, less
        what a closed set gave to its own. So the error within is at least ``sum f / (x + g)``, which by Jensen's
        inequality is no less than ``F / (1 + g Q / F)`` with ``F = sum f / x`` and ``Q = sum f / x^2``, and ``f / g``
        where x = 0.
        """
        f, share = self._problem.f, self._problem.share
        left = kappa - theta**2 * share
        left[left < _RELATIVE * kappa] = 0.0
        emptied = (f > 0) & (left == 0)
        within = np.stack([terms, np.divide(terms, kappa, out=np.zeros(theta.size), where=kappa > 0)])
        closed = np.zeros((2, theta.size))
        np.divide(f, left, out=closed[0], where=left > 0)
        np.divide(closed[0], left, out=closed[1], where=left > 0)
        change = np.where(emptied, -within, closed - within)
        once, twice = subset_sum(within) + summed(change)
        cost, cubes, alone = summed(np.stack([theta, theta**3, np.where(emptied, f, 0.0)]))
        usual = _usual(theta, cubes)
        gain = (_FACTORS[-1] * usual) ** 2 * share
        error = terms.sum() - subset_sum(terms) + alone / gain
        error += np.divide(once**2, once + gain * twice, out=np.zeros(theta.size), where=once > 0)
        return (theta.sum() - cost + _FACTORS[0] * usual) ** 2 * error

    def _opened(
        self,
        theta: np.ndarray,
        kappa: np.ndarray,
        terms: np.ndarray,
        subsets: np.ndarray,
        closing: np.ndarray,
    ) -> _Opened:
        """Sets opened whose subsets are given, (2^k, sets), and those at some positions closed."""
        closed, before = theta[subsets[closing]], kappa[subsets]
        gone = np.zeros(before.shape)
        gone[closing] = closed**2 * self._problem.share[subsets[closing]]
        left = before - superset_sum(gone.ravel(), together=subsets.shape[1]).reshape(before.shape)
        left[left < _RELATIVE * before] = 0.0
        return _Opened(
            theta.sum() - closed.sum(axis=0),
            terms.sum() - terms[subsets].sum(axis=0),
            self._problem.f[subsets],
            left,
            self._problem.share[subsets[-1]],
            _usual(theta, (closed**3).sum(axis=0)),
        )


def _usual(theta: np.ndarray, cubes: np.ndarray) -> np.ndarray:
    """The weight of a set in the place of others whose weights' cubes have this sum."""
    return np.maximum(np.cbrt(cubes), 1e-3 * theta.sum() / theta.size)


def _subsets(sets: np.ndarray, k: int) -> np.ndarray:
    """The subsets of sets of k attributes, (2^k, sets), the sets themselves last."""
    subsets, rest = np.zeros((1, sets.size), dtype=np.int64), sets.copy()
    for _ in range(k):
        lowest = rest & -rest
        rest ^= lowest
        subsets = np.concatenate([subsets, subsets | lowest])
    return subsets


def _largest(k: int) -> np.ndarray:
    """Positions of the subsets of k - 1 attributes among those of k, and of the set itself."""
    return np.flatnonzero(np.bitwise_count(np.arange(1 << k)) >= k - 1)


def _largest_sum(values: np.ndarray) -> np.ndarray:
    """Of each set the sum over itself and its subsets of one attribute less, in the last axis, (..., 2^d)."""
    every, out = np.arange(values.shape[-1]), values.copy()
    for bit in (1 << i for i in range(values.shape[-1].bit_length() - 1)):
        out += np.where(every & bit, values[..., every & ~bit], 0.0)
    return out


def apart(moves: Sequence[Move], most: int) -> Iterator[Move]:
    """The first moves whose opened sets are not within one another and that close different sets."""
    touched: set[int] = set()
    taken = 0
    for move in moves:
        sets = {move.opened, *move.closed.tolist()}
        sets.discard(0)
        if taken < most and not sets & touched:
            touched |= sets
            taken += 1
            yield move
