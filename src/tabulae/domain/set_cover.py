"""Maximum coverage: the k sets of a list whose union is largest."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Coverage:
    """Sets that together cover ``value`` elements, while no choice covers more than ``bound``.

    ``chosen`` is empty where nothing above the floor was found.
    """

    value: int
    bound: int
    chosen: tuple[int, ...]
    steps: int


def most_covered(sets: Sequence[int], most: int, floor: int = 0, limit: int = 300_000) -> Coverage:
    """The largest union of at most ``most`` sets, if it is above ``floor``; best-first branch and bound.

    A node is a set of choices and the sets that may still join it. With U what is covered and r choices left, no
    completion covers more than |U| and the r largest gains |S - U| together.

    Args:
        sets: subsets of the integers, as bits of an integer.
        most: how many may be chosen.
        floor: smaller unions are of no interest.
        limit: how many sets to look at before the bound proven so far is returned.

    >>> most_covered([0b0111, 0b1100, 0b0011], 2)
    Coverage(value=4, bound=4, chosen=(0, 1), steps=...)
    """
    search = _Search(floor, (), limit)
    first = {s: i for i, s in reversed(list(enumerate(sets))) if s}
    search.enter(0, (), most, list(first.items()))
    while search.heap and -search.heap[0][0] > search.best:
        if search.left <= 0:
            return Coverage(search.best, -search.heap[0][0], search.chosen, limit - search.left)
        _, _, covered, chosen, remaining, options = heapq.heappop(search.heap)
        (_, one, i), rest = options[0], options[1:]
        search.enter(covered | one, (*chosen, i), remaining - 1, [(s, j) for _, s, j in rest])
        search.push(covered, chosen, remaining, rest)
    return Coverage(search.best, search.best, search.chosen, limit - search.left)


@dataclass
class _Search:
    best: int
    chosen: tuple[int, ...]
    left: int

    def __post_init__(self) -> None:
        self.heap: list[tuple[int, int, int, tuple[int, ...], int, list[tuple[int, int, int]]]] = []

    def enter(
        self, covered: int, chosen: tuple[int, ...], remaining: int, sets: list[tuple[int, int]]
    ) -> None:
        """Take note of a choice, and put what may follow on the heap."""
        size = covered.bit_count()
        if size > self.best:
            self.best, self.chosen = size, chosen
        self.left -= len(sets) + 1
        gains = [((s & ~covered).bit_count(), s, i) for s, i in sets]
        options = sorted((g for g in gains if g[0]), key=lambda g: (-g[0], g[2]))
        self.push(covered, chosen, remaining, options)

    def push(
        self, covered: int, chosen: tuple[int, ...], remaining: int, options: list[tuple[int, int, int]]
    ) -> None:
        """Put a node on the heap, if it can still lead to something better: gains fall along the options."""
        upper = covered.bit_count() + sum(gain for gain, _, _ in options[:remaining])
        if remaining and options and upper > self.best:
            heapq.heappush(self.heap, (-upper, -len(chosen), covered, chosen, remaining, options))
