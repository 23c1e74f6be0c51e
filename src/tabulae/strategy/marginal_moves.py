"""Moves between sets of marginals: open one, close those within it.

Under L1 sensitivity the gradient never opens a set, and tables are best read off a common larger marginal now and
then. A move opens a set c with weight h and closes sets within it: all of them, or those of one attribute less.
Only the eigenvalues of subsets of c change, so that the loss after a move is known from ``2^|c|`` numbers, and all
moves are scanned together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from .marginal_algebra import superset_sum
from .marginal_problem import MarginalProblem

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
class _Group:
    """The sets of k attributes and their subsets, (sets, 2^k), the last one the set itself."""

    sets: np.ndarray
    subsets: np.ndarray
    smaller: np.ndarray  # (2^k,), the subsets of k - 1 attributes


class Moves:
    """All moves of a problem, by the number of attributes of the set that is opened."""

    def __init__(self, problem: MarginalProblem) -> None:
        self._problem = problem
        self._groups: list[_Group] = []
        every = np.arange(problem.f.size)
        counts = np.bitwise_count(every)
        work = 0
        for k in range(1, int(counts[-1]) + 1):
            sets = every[counts == k]
            work += sets.size << k
            if work > _WORK:
                break
            self._groups.append(_group(sets, k))

    def improving(self, theta: np.ndarray, most: int) -> list[Move]:
        """Moves that lower the loss as they stand, best first."""
        problem = self._problem
        kappa = np.zeros(theta.size)
        kappa[problem.needed] = problem.kappa(theta**2)
        terms = np.zeros(theta.size)
        terms[problem.needed] = problem.f[problem.needed] / kappa[problem.needed]
        loss = theta.sum() ** 2 * terms.sum()
        found: list[tuple[float, _Group, int, float, np.ndarray]] = []
        for group in self._groups:
            for closing in (np.ones(group.smaller.size, dtype=bool), group.smaller):
                losses, weights = self._losses(group, theta, kappa, terms, closing)
                rows = np.flatnonzero(losses < loss * (1 - 1e-9)).tolist()
                found += [(float(losses[row]), group, row, float(weights[row]), closing) for row in rows]
        found.sort(key=lambda move: move[0])
        return [
            Move(value, int(group.sets[row]), weight, group.subsets[row][closing])
            for value, group, row, weight, closing in found[:most]
        ]

    def _losses(
        self, group: _Group, theta: np.ndarray, kappa: np.ndarray, terms: np.ndarray, closing: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Least loss over some weights of each opened set, and that weight, (sets,) each."""
        problem, subsets = self._problem, group.subsets
        closed = np.where(closing, theta[subsets], 0.0)
        closed[:, -1] = theta[group.sets]  # opened anew
        before = kappa[subsets]
        left = before - superset_sum(closed**2 * problem.share[subsets])
        left[left < _RELATIVE * before] = 0.0
        total = theta.sum() - closed.sum(axis=1)
        rest = terms.sum() - terms[subsets].sum(axis=1)
        f, share = problem.f[subsets], problem.share[group.sets]
        usual = np.maximum(np.cbrt((closed**3).sum(axis=1)), 1e-3 * theta.sum() / len(theta))
        best, weights = np.full(len(usual), np.inf), usual.copy()
        for factor in _FACTORS:
            h = factor * usual
            after = (total + h) ** 2 * (rest + (f / (left + (h**2 * share)[:, None])).sum(axis=1))
            weights = np.where(after < best, h, weights)
            best = np.minimum(best, after)
        return best, weights


def _group(sets: np.ndarray, k: int) -> _Group:
    subsets, rest = np.zeros((sets.size, 1), dtype=np.int64), sets.copy()
    for _ in range(k):
        lowest = rest & -rest
        rest ^= lowest
        subsets = np.concatenate([subsets, subsets | lowest[:, None]], axis=1)
    return _Group(sets, subsets, np.bitwise_count(np.arange(1 << k)) == k - 1)


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
