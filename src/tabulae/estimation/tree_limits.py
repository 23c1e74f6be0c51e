"""Whole counts of the nodes of a tree, moved until they keep to bounds and exact sums, near to draws that do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np


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
