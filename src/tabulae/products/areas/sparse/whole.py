"""Controlled rounding of divisions by runs, in whole numbers, people times 2^30."""

from __future__ import annotations

import numpy as np

from ..compiled import njit
from ..descent.rounding import MASK, ONE, cancel_cycles

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
