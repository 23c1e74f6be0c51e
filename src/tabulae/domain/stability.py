"""Stability of a map from records to groups: the most groups that one record can belong to.

A record carries a non-empty set C of at most k codes of a family. With A(c) the alone groups and B(c) the other
groups that have c as a member, it belongs to

    |intersection of A(c) over C| + |union of B(c) over C|

groups of that family, and families have no group in common: their maxima add. Everything here is done in integers.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from operator import and_, or_

import numpy as np

from .groups import CodeFamily, GroupSelection


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
    search = _CoverageSearch(floor, (), limit)
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
class _CoverageSearch:
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


_CLOSED_SETS = 20_000
_STEPS = 300_000
_REMEMBERED = 64
_PAIRS = 30_000_000


@dataclass(frozen=True)
class Stability:
    """The most groups of one level that one admissible record can belong to, or a proven bound on it.

    ``is_exact`` says that ``witness`` (family -> codes) is a record that belongs to ``value`` groups.
    """

    value: int
    is_exact: bool
    witness: dict[str, tuple[str, ...]]


@lru_cache(maxsize=_REMEMBERED)
def group_stability(selection: GroupSelection) -> Stability:
    """The most groups of a selection that one admissible record can belong to: exact, or a proven bound.

    The maximum over sets of at most k codes is found family by family, by branch and bound over what the codes of a
    set have in common (closed sets of alone groups, in the order of Close-by-One) with a maximum coverage problem
    inside. Only on maps built to be hard is the limit on the search reached; then the value is the least upper bound
    proven so far.

    Returns:
        The value; whether it is exact; and where it is, a record that attains it.

    Reference: Kuznetsov 1993 (Close-by-One); Nemhauser, Wolsey and Fisher 1978 (maximum coverage).

    Privacy:
        An upper bound on the number of subsets, one a group, that a record is in: the degree of generalised parallel
        composition. It depends on the public map alone.

    >>> from tabulae.domain.groups import Group, GroupMap
    >>> race = CodeFamily("race", ("1010", "1020"), most=2)
    >>> groups = (Group("a", "1", "race", "alone"), Group("b", "1", "race", "any"), Group("c", "1", "race", "any"))
    >>> members = [("a", "1010"), ("a", "1020"), ("b", "1010"), ("c", "1020")]
    >>> group_stability(GroupMap((race,), groups, members).at("1", "state"))
    Stability(value=3, is_exact=True, witness={'race': ('1010', '1020')})
    """
    value, is_exact, witness = 0, True, {}
    for family in selection.families:
        types = _types(selection, family)
        if types:
            found = _ClosedSetSearch(types, family.most).run()
            value += found.bound
            is_exact &= found.bound == found.value
            witness[family.name] = tuple(family.codes[types[i].code] for i in sorted(found.chosen))
    return Stability(value, is_exact, witness if is_exact else {})


@dataclass(frozen=True)
class _Type:
    """One code of those with the same groups: sets of alone and any groups as bits of integers."""

    code: int
    alone: int
    anyhow: int


def _types(selection: GroupSelection, family: CodeFamily) -> list[_Type]:
    """The distinct codes of a family, but those that another one can stand in for; none if there are no groups.

    If A(c) is in A(d) and B(c) in B(d), then putting d in the place of c, or leaving c out beside d, never loses.
    """
    if not family.codes or not any(group.family == family.name for group in selection.groups):
        return []
    member = selection.member[family.name].tocsr()
    member.sort_indices()
    rows: dict[bytes, int] = {}
    for i in range(len(family.codes)):
        rows.setdefault(member.indices[member.indptr[i] : member.indptr[i + 1]].tobytes(), i)
    distinct = np.array(list(rows.values()))
    kept = distinct[_undominated(member[distinct])]
    is_alone = np.array([group.kind == "alone" for group in selection.groups])
    types = []
    for i in kept.tolist():
        columns = member.indices[member.indptr[i] : member.indptr[i + 1]]
        alone = is_alone[columns]
        types.append(_Type(i, _bits(columns[alone]), _bits(columns[~alone])))
    return types


def _undominated(member) -> np.ndarray:
    """Which of distinct rows lie in no other row; all of them where that would take long to tell."""
    size = np.diff(member.indptr)
    kept = size == size.max(initial=0)
    widths = np.bincount(member.indices, minlength=1).astype(np.int64)
    if widths @ widths > _PAIRS:
        kept[:] = True
        return kept
    counts = member.astype(np.int32)
    common = (counts @ counts.T).tocoo()
    inside = (common.row != common.col) & (common.data == size[common.row])
    kept = size > 0
    kept[common.row[inside]] = False
    if not kept.any():
        kept[:1] = True
    return kept


def _bits(columns: np.ndarray) -> int:
    return sum(1 << column for column in columns.tolist())


@dataclass(frozen=True)
class _Found:
    value: int
    bound: int
    chosen: tuple[int, ...]


@dataclass
class _ClosedSetSearch:
    """Best-first search over closed sets: what codes have in common, and all codes that have it."""

    types: Sequence[_Type]
    most: int
    best: int = 0
    chosen: tuple[int, ...] = ()
    steps: int = field(default=_STEPS)

    def run(self) -> _Found:
        for i in range(len(self.types)):
            self._offer((i,))
        everything = list(range(len(self.types)))
        common = reduce(and_, (t.alone for t in self.types))
        heap = [(-self._bound(everything), 0, common, 0, everything)]
        bound, seen = 0, 1
        while heap and -heap[0][0] > self.best:
            if seen > _CLOSED_SETS or self.steps <= 0:
                bound = max(bound, -heap[0][0])
                break
            top, _, common, last, codes = heapq.heappop(heap)
            bound = max(bound, self._cover(common, codes, -top))
            for child in self._children(common, last, codes):
                upper = self._bound(child[2])
                if upper > self.best:
                    seen += 1
                    heapq.heappush(heap, (-upper, seen, *child))
        return _Found(self.best, max(self.best, bound), self.chosen)

    def _offer(self, chosen: tuple[int, ...]) -> None:
        alone = reduce(and_, (self.types[i].alone for i in chosen))
        anyhow = reduce(or_, (self.types[i].anyhow for i in chosen))
        value = alone.bit_count() + anyhow.bit_count()
        if value > self.best or not self.chosen:
            self.best, self.chosen = value, chosen

    def _bound(self, codes: Sequence[int]) -> int:
        """Of one code the largest size; of j, at most the j-th largest |A| and the j largest |B| together."""
        alone = sorted((self.types[i].alone.bit_count() for i in codes), reverse=True)
        anyhow = sorted((self.types[i].anyhow.bit_count() for i in codes), reverse=True)
        union = reduce(or_, (self.types[i].anyhow for i in codes)).bit_count()
        upper = max(self.types[i].alone.bit_count() + self.types[i].anyhow.bit_count() for i in codes)
        reach = 0
        for j in range(min(self.most, len(codes))):
            reach += anyhow[j]
            if j:
                upper = max(upper, alone[j] + min(reach, union))
        return upper

    def _cover(self, common: int, codes: Sequence[int], upper: int) -> int:
        """The bound on sets of these codes that have no more in common, after trying to attain it."""
        floor = self.best - common.bit_count()
        found: Coverage = most_covered([self.types[i].anyhow for i in codes], self.most, floor, self.steps)
        self.steps -= found.steps
        if found.chosen:
            self._offer(tuple(codes[i] for i in found.chosen))
        return min(upper, common.bit_count() + found.bound)

    def _children(self, common: int, last: int, codes: Sequence[int]):
        """Each larger closed set once: add a group above the last, close, and keep it if nothing below comes in."""
        holders: dict[int, list[int]] = {}
        for i in codes:
            rest = (self.types[i].alone & ~common) >> last
            while rest:
                low = rest & -rest
                holders.setdefault(last + low.bit_length() - 1, []).append(i)
                rest ^= low
        for group, inside in holders.items():
            self.steps -= len(inside)
            closed = reduce(and_, (self.types[i].alone for i in inside))
            if not (closed & ~common) & ((1 << group) - 1):
                yield closed, group + 1, inside
