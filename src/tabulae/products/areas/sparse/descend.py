"""From the root to the leaves, a family at a time: what is asked follows from what was found above.

Divisions are rounded by runs, in whole numbers, people times 2^30.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from ....errors import InvalidArgument
from ..compiled import njit
from ..descent.rounding import MASK, ONE, cancel_cycles
from ..spine_plan import SpinePlan, estimation_variance
from .cells import MOST_UNKNOWNS, CountedCells, PassCells, SparseCounts
from .divide import answers_of, least_squares, runs_of

TOLERANCE = 0.02  # people: what a count may be off the solution before it is rounded


@dataclass(frozen=True, eq=False)
class Asked:
    """What some nodes are asked: rows of queries, decided by what is public already.

    Attributes:
        nodes: shape (m,), rising: of one depth.
        queries: positions of the plan's queries.
        block: shape (m * queries + 1,): where the answers of each node to each query begin.
        row: shape (answers,): the row of its query that each answer is of.
    """

    nodes: np.ndarray
    queries: tuple[int, ...]
    block: np.ndarray
    row: np.ndarray

    def per_answer(self, each: np.ndarray) -> np.ndarray:
        """What is said of each node and query, shape (m, queries), for each answer."""
        return np.repeat(each.ravel(), np.diff(self.block))


Descent = Generator[Asked, np.ndarray, "SupportedCounts"]
"""Says what it asks, takes the answers, and returns counts in the end."""


@dataclass(frozen=True, eq=False)
class SupportedCounts:
    """Whole counts of every node, by cell, and how often least squares stopped early."""

    cells: CountedCells
    nodes: SparseCounts
    divisions: int
    unconverged: int
    answers: int


@dataclass(eq=False)
class SupportedMeasurements:
    """The stream of a spine that is measured while it is divided: to be read once. Public.

    Iterating gives what was asked with the answers, int64, one a row; after the last, ``counts`` has what the division
    made of them.

    Attributes:
        rehearsal: marks what no ledger paid for or an insecure source drew.
        release_id: the charge.
        counts: None before the last piece.
    """

    plan: SpinePlan
    rehearsal: bool
    release_id: str | None
    pieces: Generator[tuple[Asked, np.ndarray], None, SupportedCounts] = field(repr=False)
    counts: SupportedCounts | None = None

    def share(self, piece: tuple[Asked, np.ndarray]) -> float:
        """Of all units in each pass, about those of a piece."""
        asked, _ = piece
        return asked.nodes.size * len(asked.queries) / (self.plan.tree.size * len(self.plan.queries))

    def __iter__(self) -> Iterator[tuple[Asked, np.ndarray]]:
        self.counts = yield from self.pieces


def descend(plan: SpinePlan, cells: CountedCells, tolerance: float = TOLERANCE) -> Descent:
    """Divide counts from the root to the leaves; each division first asks for the answers that it reads.

    A cell of which the parent has nobody, or where what is held of a child leaves no room, has nobody in the child: no
    answer about such cells alone is asked, as none would be read. An only child has its parent's counts, and is not
    asked.

    Yields:
        What is asked; the answers, float or int, are sent back.

    Returns:
        The counts of every node.
    """
    held = _held_of_nodes(plan, cells)
    work = _Work(plan, cells, tolerance)
    root = SparseCounts(np.array([0, cells.size]), np.arange(cells.size), np.zeros(cells.size, np.int64))
    found = [(yield from work.divided(root, np.zeros(1, np.int64), np.zeros(1, np.int64), held, rooted=True))]
    for depth in range(1, len(plan.depths)):
        nodes = np.arange(plan.depths[depth].start, plan.depths[depth].stop)
        above = plan.depths[depth - 1].start
        parts = [SparseCounts.none()]
        for some in _families(plan, nodes, found[-1]):
            own = plan.tree.parent[some]
            parents, which = np.unique(own, return_inverse=True)
            parts.append(
                (yield from work.divided(found[-1].take(parents - above), some, which, held, rooted=False))
            )
        found.append(SparseCounts.joined(parts))
    return SupportedCounts(cells, SparseCounts.joined(found), work.divisions, work.unconverged, work.answers)


def estimate_supported(
    plan: SpinePlan, cells: CountedCells, answer: Callable[[Asked], np.ndarray]
) -> SupportedCounts:
    """The counts of every node from answers that are known: the same division again, which asks the same.

    Args:
        answer: gives the answers to what is asked, in the order in which it was asked first.
    """
    steps, answers = descend(plan, cells), None
    while True:
        try:
            asked = next(steps) if answers is None else steps.send(answers)
        except StopIteration as done:
            return done.value
        answers = answer(asked)


def _families(plan: SpinePlan, nodes: np.ndarray, above: SparseCounts) -> list[np.ndarray]:
    """The nodes of a depth in runs of whole families with about so many unknowns each."""
    parent = plan.tree.parent[nodes]
    width = np.diff(above.first)[parent - plan.depths[plan.depth[parent[0]]].start]
    ends = np.flatnonzero(np.diff(parent, append=-1)) + 1
    filled = np.cumsum(width)[ends - 1] // MOST_UNKNOWNS
    cuts = ends[np.flatnonzero(np.diff(filled, append=filled[-1] + 1))]
    return np.split(nodes, cuts[:-1])


def _held_of_nodes(plan: SpinePlan, cells: CountedCells) -> SparseCounts:
    """What is held of every node: leaves' counts, added up the tree."""
    held = cells.held
    if not held.key.size:
        return SparseCounts(np.zeros(plan.tree.size + 1, np.int64), held.key, held.people)
    depth = len(plan.depths)
    row, key, people = plan.tree.leaf[held.row], held.key, held.people
    parts: list[SparseCounts] = []
    for d in reversed(range(depth)):
        nodes = plan.depths[d]
        here = row >= nodes.start
        own = SparseCounts.of(nodes.stop - nodes.start, row[here] - nodes.start, key[here], people[here])
        parts.append(own)
        row = np.concatenate([row[~here], plan.tree.parent[own.row + nodes.start]])
        key, people = np.concatenate([key[~here], own.key]), np.concatenate([people[~here], own.people])
    return SparseCounts.joined(parts[::-1])


@dataclass(eq=False)
class _Work:
    """Divisions, with what they share, and what is told of them in the end."""

    plan: SpinePlan
    cells: CountedCells
    tolerance: float
    divisions: int = 0
    unconverged: int = 0
    answers: int = 0
    weights: dict[int, np.ndarray] = field(default_factory=dict)

    def divided(
        self, parents: SparseCounts, nodes: np.ndarray, which: np.ndarray, held: SparseCounts, *, rooted: bool
    ) -> Generator[Asked, np.ndarray, SparseCounts]:
        """The counts of children, pass by pass.

        Args:
            parents: the counts of parents by cell.
            nodes: the children, side by side family by family.
            which: shape (m,): position of each one's parent.
        """
        own, free = held.take(nodes), not held.key.size
        for step in self.cells.passes:
            coarse = parents.labelled(step.label)
            own = yield from self._pass(step, coarse, nodes, which, own, free=free, rooted=rooted)
            free = False
        return own

    def _pass(
        self,
        step: PassCells,
        parents: SparseCounts,
        nodes: np.ndarray,
        which: np.ndarray,
        held: SparseCounts,
        *,
        free: bool,
        rooted: bool,
    ) -> Generator[Asked, np.ndarray, SparseCounts]:
        child, begin, run, total, lost = runs_of(
            parents.first, parents.key, step.outer, which, held.first, held.key, held.people, free
        )
        if lost >= 0:
            raise InvalidArgument(f"node {int(nodes[lost])} has people held where its parent has none")
        weight = np.stack(
            [self._weights(int(kind))[list(step.queries)] for kind in self.plan.classes[1][nodes]]
        )
        alone = np.bincount(which)[which] == 1
        asked = (weight > 0) & (rooted | ~alone)[:, None]
        sizes = step.rows.max(axis=1) + 1 if step.rows.size else np.zeros(0, np.int64)
        block, row, slot = answers_of(
            parents.key, child, begin, run, step.rows, asked, sizes.astype(np.int64)
        )
        y = np.zeros(0)
        if row.size:
            y = np.asarray((yield Asked(nodes, step.queries, block, row)), float)
            self.answers += row.size
        found, missed, failed = _solved(
            parents.first, parents.people, which, child, begin, run, total, slot, block, y,
            np.where(asked, weight, 0.0), step.nested, self.tolerance,
            step.rounding[:, parents.key], rooted=rooted,
        )  # fmt: skip
        if failed >= 0:
            raise AssertionError(f"rounding of the children of node {int(nodes[failed])} left a sum open")
        self.unconverged += missed
        self.divisions += int(parents.rows)
        key = parents.key[np.repeat(begin - run[:-1], np.diff(run)) + np.arange(run[-1])]
        kept = np.flatnonzero(found)
        first = np.searchsorted(kept, run[child])
        return SparseCounts(first.astype(np.int64), key[kept], found[kept])

    def _weights(self, kind: int) -> np.ndarray:
        """1 / variance of each query of the plan, for nodes of a class; 0 where it is not asked."""
        if kind not in self.weights:
            laws = self.plan.laws(kind)
            self.weights[kind] = np.array(
                [0.0 if law is None else 1 / estimation_variance(law) for law in laws]
            )
        return self.weights[kind]


def _solved(
    first: np.ndarray,
    people: np.ndarray,
    which: np.ndarray,
    child: np.ndarray,
    begin: np.ndarray,
    run: np.ndarray,
    total: np.ndarray,
    slot: np.ndarray,
    block: np.ndarray,
    y: np.ndarray,
    weight: np.ndarray,
    nested: int,
    tolerance: float,
    labels: np.ndarray,
    *,
    rooted: bool,
) -> tuple[np.ndarray, int, int]:
    """Divide and round, parent by parent: counts, how often least squares stopped early, and a child that failed.

    The loop is not compiled: compiled code that is kept does not see that functions of other files have changed.
    """
    queries = weight.shape[1]
    found, missed = np.zeros(run[-1], np.int64), 0
    edges = np.flatnonzero(np.diff(which, prepend=-1, append=-1))
    for c, end in pairwise(edges.tolist()):
        low, high = first[which[c]], first[which[c] + 1]
        r0, r1 = child[c], child[end]
        j0, j1 = run[r0], run[r1]
        if end == c + 1 and not rooted:
            found[j0:j1] = people[low:high]
            continue
        runs = child[c : end + 1] - r0, begin[r0:r1] - low, run[r0 : r1 + 1] - j0, total[r0:r1]
        blocks, x = block[c * queries : end * queries + 1], np.zeros(j1 - j0)
        # Compiled code is of one layout: parts of a row and whole rows would be compiled one by one.
        counted, sums = np.ascontiguousarray(slot[:, j0:j1]), np.ascontiguousarray(labels[:, low:high])
        made = least_squares(
            *runs, high - low, people[low:high].astype(float), rooted, counted, blocks,
            y[blocks[0] : blocks[-1]], weight[c:end], nested, tolerance, x,
        )  # fmt: skip
        missed += made < 0
        if not round_runs(*runs, people[low:high], rooted, sums, x, found[j0:j1]):
            return found, missed, c
    return found, missed, -1


_ONE, _MASK = ONE, MASK


@njit(cache=True, nogil=True)
def _keep_sums(q, run, total):
    """Make the sums of runs exact: what is missing goes to the largest, what is over comes from them."""
    for r in range(run.size - 1):
        if total[r] < 0:
            continue
        left = total[r] * _ONE
        for j in range(run[r], run[r + 1]):
            left -= q[j]
        while left != 0:
            best = run[r]
            for j in range(run[r], run[r + 1]):
                if q[j] > q[best]:
                    best = j
            given = max(left, -q[best])
            q[best] += given
            left -= given


@njit(cache=True, nogil=True)
def _keep_cells(q, runs, begin, run, total, people, low, high):  # noqa: C901
    """Make the sums of cells low to high - 1, over the runs that have them, exact; sums of runs stay.

    In a run that is held, what is over in one cell goes to another where something is missing: of one stratum, a child
    can have both.
    """
    left = np.zeros(high - low, np.int64)
    for i in range(low, high):
        left[i - low] = people[i] * _ONE
    for r in runs:
        for k in range(run[r + 1] - run[r]):
            left[begin[r] + k - low] -= q[run[r] + k]
    if total[runs[0]] < 0:
        for i in range(low, high):
            while left[i - low] != 0:
                best = runs[0]
                for r in runs:
                    if q[run[r] + i - begin[r]] > q[run[best] + i - begin[best]]:
                        best = r
                given = max(left[i - low], -q[run[best] + i - begin[best]])
                q[run[best] + i - begin[best]] += given
                left[i - low] -= given
        return
    to = 0
    for i in range(high - low):
        for r in runs:
            while left[i] < 0 and q[run[r] + i] > 0:
                while left[to] <= 0:
                    to += 1
                moved = min(q[run[r] + i], -left[i], left[to])
                q[run[r] + i] -= moved
                q[run[r] + to] += moved
                left[i] += moved
                left[to] -= moved


@njit(cache=True, nogil=True)
def _arcs(q, runs, run, total, labels, cells, rooted):  # noqa: C901
    """The sums that are not whole, as arcs of a network in which flow is conserved up to whole numbers.

    An arc runs from a cell to the finest sum that it is part of, and from each sum to the next. A sum with a single
    part that is not whole shares that part's arc, which then counts several times. Sums of held runs are whole; those
    that are free end in one last vertex, which takes the place of the cells where there is no parent (rooted).

    Args:
        labels: shape (levels, cells): the sums that each cell is in, from fine to coarse, as they do not fall.
    """
    fractional = 0
    for r in runs:
        for j in range(run[r], run[r + 1]):
            fractional += (q[j] & _MASK) != 0
    most = fractional * (labels.shape[0] + 2)
    tail, head = np.empty(most, np.int64), np.empty(most, np.int64)
    flow, times, where = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    opened, key = np.empty(cells, np.int64), np.empty(cells, np.int64)
    last, count, arcs = cells, cells + 1, 0
    for r in runs:
        size = 0
        for k in range(run[r + 1] - run[r]):
            if q[run[r] + k] & _MASK:
                tail[arcs] = last if rooted else k
                flow[arcs], times[arcs], where[arcs] = q[run[r] + k] & _MASK, 1, run[r] + k
                opened[size], key[size] = arcs, k
                size += 1
                arcs += 1
        for step in range(labels.shape[0] + 1):
            top = step == labels.shape[0]
            kept, i = 0, 0
            while i < size:
                n, added = i, np.int64(0)
                while n < size and (top or labels[step, key[n]] == labels[step, key[i]]):
                    added += flow[opened[n]]
                    n += 1
                if n == i + 1 and not top:
                    times[opened[i]] += 1
                    opened[kept], key[kept] = opened[i], key[i]
                    kept += 1
                else:
                    for member in range(i, n):
                        head[opened[member]] = count
                    if added & _MASK:
                        tail[arcs], flow[arcs], times[arcs], where[arcs] = count, added & _MASK, 1, -1
                        if top:
                            head[arcs] = last
                        opened[kept], key[kept] = arcs, key[i]
                        kept += 1
                        arcs += 1
                    count += 1
                i = n
            size = kept
    return tail[:arcs], head[:arcs], flow[:arcs], times[:arcs], where[:arcs], count


@njit(cache=True, nogil=True)
def round_runs(child, begin, run, total, people, rooted, labels, x, found):
    """Round one parent's division: whole numbers that keep the parent's counts and the sums of runs.

    Each sum of cells of a run that ``labels`` tell apart, and each cell, ends at its floor or its ceiling after the
    counts are made to add up.

    Args:
        child, begin, run, total, people, rooted: as in :func:`~.divide.least_squares`.
        labels: shape (levels, cells).
        x: shape (unknowns,): 0 or more.
        found: shape (unknowns,), int64: receives the counts.

    Returns:
        Whether all of them could be rounded; if not, a sum is not kept.
    """
    q = np.empty(x.size, np.int64)
    for j in range(x.size):
        q[j] = np.int64(np.rint(x[j] * _ONE))
    _keep_sums(q, run, total)
    order = np.argsort(begin, kind="mergesort")
    i = 0
    while i < order.size:
        n = i
        while n < order.size and begin[order[n]] == begin[order[i]]:
            n += 1
        runs = order[i:n]
        low = begin[runs[0]]
        high = low + run[runs[0] + 1] - run[runs[0]]
        if not rooted:
            _keep_cells(q, runs, begin, run, total, people, low, high)
        tail, head, flow, times, where, count = _arcs(
            q, runs, run, total, labels[:, low:high], high - low, rooted
        )
        if tail.size and not cancel_cycles(tail, head, flow, times, count):
            return False
        for r in runs:
            for j in range(run[r], run[r + 1]):
                found[j] = q[j] >> 30
        for e in range(tail.size):
            if where[e] >= 0:
                found[where[e]] = (q[where[e]] >> 30) + (flow[e] == _ONE)
        i = n
    return True
