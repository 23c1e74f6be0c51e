"""Compiled, near to draws of whole tables: a parent's counts divided among its children, then moved to keep limits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import require

njit = require("numba", "areas", "the estimator posterior").njit

_ROUNDS, _TRIED, _OF_TOTAL = 8, 3, 3
"""Rounds of exchanges at most, partners in a round, and how much a total counts beside another column."""


@njit(cache=True, nogil=True)
def fill(found, rows, indptr, indices, data):
    """Write rows of a sparse table to ``found`` (rows, cells); what stands at -1 stays as it is."""
    for i in range(rows.size):
        if rows[i] >= 0:
            for k in range(indptr[rows[i]], indptr[rows[i] + 1]):
                found[i, indices[k]] = data[k]


@njit(cache=True, nogil=True)
def divide(parent, cube, path, columns, random):
    """Cells of a parent (cells,) among children, near to their draws: cube has shape (children, draws, cells).

    See :meth:`tabulae.estimation.posterior.Draws.table`.
    """
    children, _, cells = cube.shape
    ordered = _ordered(cube, path, columns)
    found = np.zeros((children, cells), np.int64)
    sums = np.zeros((children, columns), np.int64)
    last = path.shape[1] - 1
    for c in range(cells):
        _quantile(parent[c], ordered[:, path[c, last]], found[:, c])
        for u in range(children):
            for j in range(last + 1):
                sums[u, path[c, j]] += found[u, c]
    for _ in range(_ROUNDS if children > 1 else 0):
        moved = 0
        for c in range(cells):
            for u in range(children if parent[c] else 0):
                for _ in range(_TRIED):
                    v = int(random.random() * (children - 1))
                    v += v >= u
                    moved += _exchange(ordered, sums, path[c], u, v)
                    moved += _trade(ordered, sums, path[c], path[int(random.random() * cells)], u, v)
        if moved == 0:
            break
    for c in range(cells):
        found[:, c] = sums[:, path[c, last]]
    return found


@njit(cache=True, nogil=True)
def _ordered(cube, path, columns):
    """Shape (children, columns, draws): sums of cells in each draw, sorted."""
    children, draws, cells = cube.shape
    found = np.zeros((children, columns, draws), np.int64)
    somebody = np.zeros((children, columns), np.bool_)
    for u in range(children):
        for m in range(draws):
            for c in range(cells):
                if cube[u, m, c]:
                    for j in range(path.shape[1]):
                        found[u, path[c, j], m] += cube[u, m, c]
                        somebody[u, path[c, j]] = True
        for v in range(columns):
            if somebody[u, v]:
                found[u, v].sort()
    return found


@njit(cache=True, nogil=True)
def _exchange(ordered, sums, columns, u, v):
    """One person of a cell from child u to child v, where that brings counts nearer to the draws: 1, or 0.

    No count leaves the range of its draws: what can be nowhere stays at 0.
    """
    cell = columns[-1]
    if sums[u, cell] <= ordered[u, cell, 0] or sums[v, cell] >= ordered[v, cell, -1]:
        return 0
    change = 0
    for j in range(columns.size):
        k = columns[j]
        change += (_OF_TOTAL if j == 0 else 1) * (
            _slope(ordered[u, k], sums[u, k], -1) + _slope(ordered[v, k], sums[v, k], 1)
        )
    if change >= 0:
        return 0
    for k in columns:
        sums[u, k] -= 1
        sums[v, k] += 1
    return 1


@njit(cache=True, nogil=True)
def _trade(ordered, sums, given, taken, u, v):
    """One person of child u for one of another cell of child v, where that brings counts nearer to the draws: 1, or 0.

    Columns that both cells are in stay as they are: what one exchange alone would spoil.
    """
    one, other = given[-1], taken[-1]
    if one == other or sums[u, one] <= ordered[u, one, 0] or sums[v, one] >= ordered[v, one, -1]:
        return 0
    if sums[v, other] <= ordered[v, other, 0] or sums[u, other] >= ordered[u, other, -1]:
        return 0
    change = 0
    for columns, giver, taker in ((given, u, v), (taken, v, u)):
        for j in range(columns.size):
            if given[j] != taken[j]:
                k = columns[j]
                change += _slope(ordered[giver, k], sums[giver, k], -1)
                change += _slope(ordered[taker, k], sums[taker, k], 1)
    if change >= 0:
        return 0
    for columns, giver, taker in ((given, u, v), (taken, v, u)):
        for k in columns:
            sums[giver, k] -= 1
            sums[taker, k] += 1
    return 1


@njit(cache=True, nogil=True)
def _quantile(total, ordered, found):
    """Parts of a total at the same quantile of their sorted draws, shape (children, draws), written to ``found``."""
    children, draws = ordered.shape
    low, high = 0, draws  # the first draw whose sum is above the total
    while low < high:
        m = (low + high) // 2
        if ordered[:, m].sum() <= total:
            low = m + 1
        else:
            high = m
    at = max(low - 1, 0)
    rest = total
    for u in range(children):
        found[u] = ordered[u, at]
        rest -= found[u]
    if low < draws:
        for u in range(children):
            more = min(max(rest, 0), ordered[u, low] - ordered[u, at])
            found[u] += more
            rest -= more
    while rest != 0:  # beyond all draws: to and from those that have most
        u = int(np.argmax(found))
        step = 1 if rest > 0 else -1
        found[u] += step
        rest -= step


@njit(cache=True, nogil=True)
def _slope(ordered, now, step):
    """Draws times the change of E|count - T| by one more, or one less."""
    at = now if step > 0 else now - 1
    low, high = 0, ordered.size
    while low < high:
        m = (low + high) // 2
        if ordered[m] <= at:
            low = m + 1
        else:
            high = m
    return step * (2 * low - ordered.size)


@dataclass(frozen=True, eq=False)
class TreeLimits:
    """What each node keeps to: shapes (nodes, cells), and for each margin (cells,) and twice (nodes, classes).

    Attributes:
        allowed: where somebody can be.
        label: the class of each cell in a margin.
        low, high: of the sums of each class; the same where these are exact.
    """

    allowed: np.ndarray
    label: tuple[np.ndarray, ...]
    low: tuple[np.ndarray, ...]
    high: tuple[np.ndarray, ...]

    def are_met(self, found: np.ndarray) -> bool:
        """Whether counts of all nodes, shape (nodes, cells), are within all limits."""
        return not found[~self.allowed].any() and not any(
            self._broken(np.arange(len(found)), self._summed(found))
        )

    def within(self, nodes: np.ndarray, counts: np.ndarray, mean: np.ndarray) -> np.ndarray:
        """Counts (nodes, cells) of children, exchanged between these until limits are met or nothing helps.

        One person of a cell goes from one child to another, or two of two cells trade places, so that the sum of broken
        limits falls; of such moves the one that ends nearest to the ``mean`` of draws.
        """
        found, moved = counts.copy(), True
        sums = self._summed(found)
        while moved:
            moved, steps = False, self._steps(nodes, sums)
            for broken in self._broken(nodes, sums):
                if move := self._exchange(nodes, found, mean, steps, broken):
                    giver, taker, cell, back = move
                    for g, t, c in ((giver, taker, cell), (taker, giver, back))[: 1 + (back >= 0)]:
                        found[[g, t], c] += -1, 1
                        for each, label in zip(sums, self.label, strict=True):
                            each[[g, t], label[c]] += -1, 1
                    moved = True
                    break
        return found

    def within_root(self, counts: np.ndarray, mean: np.ndarray) -> np.ndarray:
        """Counts (cells,) of the root, people going from one cell to another until limits are met or nothing helps."""
        found, node, every = counts.copy(), np.zeros(1, np.int64), np.arange(counts.size)
        while any(self._broken(node, sums := self._summed(found[None]))):
            change = self._trade([(less[0], more[0]) for less, more in self._steps(node, sums)], every)
            distance = found - mean
            can = (found > 0)[:, None] & self.allowed[0][None, :]
            move = _best(change, distance[:, None] - distance, can)
            if move is None:
                break
            found[list(move)] += -1, 1
        return found

    def _exchange(
        self,
        nodes: np.ndarray,
        found: np.ndarray,
        mean: np.ndarray,
        steps: Sequence[tuple[np.ndarray, np.ndarray]],
        broken: tuple[int, np.ndarray, bool],
    ) -> tuple[int, int, int, int] | None:
        """Giver, taker, the cell, and the cell of who comes back (-1: nobody), where a node breaks a limit."""
        one, cells, over = broken
        others = np.delete(np.arange(nodes.size), one)
        if not others.size:
            return None
        mine = np.full(others.size, one)
        giver, taker = (mine, others) if over else (others, mine)
        allowed, distance = self.allowed[nodes], found - mean
        can = (found[giver][:, cells] > 0) & allowed[taker][:, cells]
        gain = distance[giver] - distance[taker]
        change = np.zeros(can.shape, np.int64)
        for (less, more), label in zip(steps, self.label, strict=True):
            change += less[giver][:, label[cells]] + more[taker][:, label[cells]]
        if move := _best(change, gain[:, cells], can):
            return int(giver[move[0]]), int(taker[move[0]]), int(cells[move[1]]), -1
        for at, (g, t) in enumerate(zip(giver.tolist(), taker.tolist(), strict=True)):
            trade = self._trade([(less[g] + more[t], less[t] + more[g]) for less, more in steps], cells)
            back = (found[t] > 0) & allowed[g]
            if move := _best(trade, gain[at, cells, None] - gain[at], can[at, :, None] & back):
                return g, t, int(cells[move[0]]), move[1]
        return None

    def _trade(self, steps: Sequence[tuple[np.ndarray, np.ndarray]], cells: np.ndarray) -> np.ndarray:
        """How far limits are broken more, shape (some cells, all cells), where one step is taken by the class of each.

        Two cells of one class change nothing in its margin.
        """
        found = np.zeros((cells.size, self.allowed.shape[1]), np.int64)
        for (one, other), label in zip(steps, self.label, strict=True):
            differ = label[cells][:, None] != label
            found += differ * (one[label[cells]][:, None] + other[label])
        return found

    def _summed(self, found: np.ndarray) -> list[np.ndarray]:
        sums = [np.zeros((len(found), low.shape[1]), np.int64) for low in self.low]
        for each, label in zip(sums, self.label, strict=True):
            np.add.at(each.T, label, found.T)
        return sums

    def _broken(
        self, nodes: np.ndarray, sums: Sequence[np.ndarray]
    ) -> Iterator[tuple[int, np.ndarray, bool]]:
        """Which of the nodes break a limit, on the sum of which cells, and whether that is too large."""
        for each, label, low, high in zip(sums, self.label, self.low, self.high, strict=True):
            for one, which in zip(*np.nonzero((each < low[nodes]) | (each > high[nodes])), strict=True):
                yield (
                    int(one),
                    np.flatnonzero(label == which),
                    bool(each[one, which] > high[nodes[one], which]),
                )

    def _steps(self, nodes: np.ndarray, sums: Sequence[np.ndarray]) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each margin how far limits are broken more by one person less and by one more, shape (nodes, classes)."""
        found = []
        for each, low, high in zip(sums, self.low, self.high, strict=True):
            less = (each <= low[nodes]).astype(np.int64) - (each > high[nodes])
            more = (each >= high[nodes]).astype(np.int64) - (each < low[nodes])
            found.append((less, more))
        return found


def _best(change: np.ndarray, gain: np.ndarray, can: np.ndarray) -> tuple[int, int] | None:
    """Where limits are broken least after a move that can be made, and of these where most is gained; None: nowhere."""
    change = np.where(can, change, 0)
    if change.size == 0 or change.min() >= 0:
        return None
    place = np.argmax(np.where(change == change.min(), gain, -np.inf))
    row, column = np.unravel_index(place, change.shape)
    return int(row), int(column)
