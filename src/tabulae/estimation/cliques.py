"""Cliques: sets of attributes whose joint counts are all that is needed of a table over many attributes.

What queries ask of attributes that no query joins follows from the counts of each set. The sets are enlarged until they
hang together as a tree, in which two neighbours have all that they share with the rest beyond: then whole,
non-negative counts that agree where sets overlap are those of some records.

Reference: Lauritzen, "Graphical Models" (1996), chapter 2.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Attributes = frozenset[int]


@dataclass(frozen=True)
class Clique:
    """Some attributes, by their places in the domain, and those of them that a clique before it has, too."""

    attributes: tuple[int, ...]
    shared: tuple[int, ...]

    @property
    def own(self) -> tuple[int, ...]:
        """The attributes that no clique before it has."""
        return tuple(sorted({*self.attributes} - {*self.shared}))


def cliques_of(sets: Iterable[Iterable[int]], sizes: Sequence[int]) -> tuple[Clique, ...]:
    """The cliques of a tree in which each set lies within one, in an order in which neighbours come before.

    Attributes are taken out one after another, those first whose neighbours lack the fewest pairs.

    Args:
        sets: attributes that are asked for together.
        sizes: categories of each attribute.

    >>> [clique.attributes for clique in cliques_of([[0, 2], [1, 2, 4], [3]], [85, 16, 2, 99, 2])]
    [(0, 2), (1, 2, 4), (3,)]
    >>> [clique.attributes for clique in cliques_of([[0, 1], [1, 2], [2, 3], [3, 0]], [2, 2, 2, 2])]
    [(0, 1, 3), (1, 2, 3)]
    >>> cliques_of([[]], [2])
    (Clique(attributes=(), shared=()),)
    """
    asked = {frozenset(each) for each in sets}
    maximal = _maximal(_filled(asked, sizes)) or [frozenset[int]()]
    maximal.sort(key=lambda each: (-math.prod(sizes[k] for k in each), sorted(each)))
    found, left = [Clique(tuple(sorted(maximal[0])), ())], maximal[1:]
    while left:  # a tree of largest overlaps is a tree of cliques
        shared = [
            max(({*each} & {*f.attributes} for f in found), key=lambda s: (len(s), sorted(s)))
            for each in left
        ]
        place = max(range(len(left)), key=lambda i: len(shared[i]))
        found.append(Clique(tuple(sorted(left[place])), tuple(sorted(shared[place]))))
        del left[place]
    return tuple(found)


def hang_together(sets: Iterable[Iterable[int]], sizes: Sequence[int]) -> bool:
    """Whether sets are a tree as they are, so that none must be enlarged.

    >>> hang_together([[0, 1], [1, 2]], [2, 2, 2]), hang_together([[0, 1], [1, 2], [0, 2]], [2, 2, 2])
    (True, False)
    """
    asked = {frozenset(each) for each in sets}
    return all(any(each <= given for given in asked) for each in _filled(asked, sizes))


def _filled(sets: set[Attributes], sizes: Sequence[int]) -> list[Attributes]:
    beside: dict[int, set[int]] = {k: set() for each in sets for k in each}
    for each in sets:
        for k in each:
            beside[k] |= each - {k}
    found = []
    while beside:

        def cost(k: int) -> tuple[int, int, int]:
            near = beside[k]
            missing = sum(len(near - beside[other]) - 1 for other in near) // 2
            return missing, math.prod(sizes[other] for other in (k, *near)), k

        taken = min(beside, key=cost)
        near = beside.pop(taken)
        found.append(frozenset({taken, *near}))
        for other in near:
            beside[other] = (beside[other] | near) - {other, taken}
    return found


def _maximal(sets: Sequence[Attributes]) -> list[Attributes]:
    return [each for each in dict.fromkeys(sets) if not any(each < other for other in sets)]
