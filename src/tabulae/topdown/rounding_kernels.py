"""The inner loops of controlled rounding, in whole numbers: people times 2^30.

Each kernel stands alone, so that ``kernel.py_func``, the same source without compilation, gives the same bits.
"""

from __future__ import annotations

import numpy as np
from numba import njit

BITS = 30
ONE = 1 << BITS
"""One person."""

MASK = ONE - 1

MOST = 1 << 31
"""More people than are divided at a time: sums of that many stay below 2^63."""


@njit(cache=True, nogil=True)
def to_fixed_point(x, allowed, total, rooted, inner, q):  # noqa: C901
    """Write x (n, cells) into q, which is 0, times ONE, and make columns add up to their totals.

    A column that holds twice its total takes no more, so that no sum leaves 64 bits, whatever x is.
    What is missing or over goes to the largest counts of the column, first of all to those that are not whole.
    Returns 0, or 1 where a column cannot be divided, or 2 where x is not finite or there are too many people.
    """
    n, cells = x.shape
    left, people = np.zeros(cells, np.int64), 0.0
    if not rooted:
        for c in range(cells):
            left[c] = total[c] * ONE
    for v in range(n):
        for d in range(cells // inner):
            if not allowed[v, d]:
                continue
            for c in range(d * inner, (d + 1) * inner):
                here = x[v, c]
                if not abs(here) < MOST:
                    return 2
                if here > 0:
                    people += here
                    q[v, c] = np.int64(np.rint(here * ONE))
                    if not rooted:
                        q[v, c] = min(q[v, c], left[c] + total[c] * ONE)
                    left[c] -= q[v, c]
    if rooted:
        return 0 if people < MOST else 2
    for c in range(cells):
        while left[c] != 0:
            best, whole = -1, True
            for v in range(n):
                if allowed[v, c // inner]:
                    is_whole = (q[v, c] & MASK) == 0
                    if best < 0 or (whole and not is_whole) or (whole == is_whole and q[v, c] > q[best, c]):
                        best, whole = v, is_whole
            if best < 0:
                return 1
            given = max(left[c], -q[best, c])
            q[best, c] += given
            left[c] -= given
    return 0


@njit(cache=True, nogil=True)
def fractional_arcs(q, allowed, sizes, part, group, groups, use_part, use_group, rooted):  # noqa: C901
    """The sums that are not whole, as arcs of a network in which flow is conserved up to whole numbers.

    The arc of a cell runs from its column to the sum that it is part of, the arc of a sum to the next sum, and the
    arc of all of a child's people to one last vertex, which takes the place of the columns where there are none
    (rooted). A sum with a single part that is not whole shares that part's arc, which then counts several times.

    Args:
        q: shape (n, cells); 0 where not allowed, shape (n, dense cells).
        sizes: of the symmetric attributes: dividing a cell by the last gives the prefix without it, and so on.
        part: shape (dense cells,).
        group: shape (n, parts), below groups.

    Returns:
        tail, head: the vertices of each arc.
        flow: above its floor.
        times: how many sums it stands for.
        cell: position in q; -1 for the arc of a sum.
        count: the number of vertices.
    """
    n, cells = q.shape
    inner = cells // allowed.shape[1]
    fractional = 0
    for v in range(n):
        for d in range(cells // inner):
            if allowed[v, d]:
                for c in range(d * inner, (d + 1) * inner):
                    fractional += (q[v, c] & MASK) != 0
    steps = sizes.size + 3
    most = fractional * (steps + 1)
    tail, head = np.empty(most, np.int64), np.empty(most, np.int64)
    flow, times, cell = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    span = max(cells, group.shape[1], groups)
    running, key, joined = np.empty(span, np.int64), np.empty(span, np.int64), np.empty(span, np.int64)
    members, sums, vertex = np.zeros(span, np.int64), np.zeros(span, np.int64), np.empty(span, np.int64)
    last, count, arcs = cells, cells + 1, 0
    for v in range(n):
        opened = 0
        for d in range(allowed.shape[1]):
            if not allowed[v, d]:
                continue
            for c in range(d * inner, (d + 1) * inner):
                if q[v, c] & MASK:
                    tail[arcs] = last if rooted else c
                    flow[arcs], times[arcs], cell[arcs] = q[v, c] & MASK, 1, v * cells + c
                    running[opened], key[opened] = arcs, c
                    opened += 1
                    arcs += 1
        for step in range(steps):
            counted = True
            made = 0
            for i in range(opened):
                j = key[i]
                if step < sizes.size:
                    j = j // sizes[sizes.size - 1 - step]
                elif step == sizes.size:
                    j, counted = part[j], use_part
                elif step == sizes.size + 1:
                    j, counted = group[v, j], use_group
                else:
                    j = 0
                key[i] = j
                if members[j] == 0:
                    joined[made] = j
                    made += 1
                members[j] += 1
                sums[j] += flow[running[i]]
            if not counted:
                for i in range(made):
                    members[joined[i]], sums[joined[i]] = 0, 0
                continue
            kept = 0
            for i in range(made):
                vertex[joined[i]] = -1
            for i in range(opened):
                j, arc = key[i], running[i]
                if members[j] == 1:
                    times[arc] += 1
                    running[kept], key[kept] = arc, j
                    kept += 1
                    continue
                fresh = vertex[j] < 0
                if fresh:
                    vertex[j] = count
                    count += 1
                head[arc] = vertex[j]
                if fresh and sums[j] & MASK:
                    tail[arcs] = vertex[j]
                    flow[arcs], times[arcs], cell[arcs] = sums[j] & MASK, 1, -1
                    running[kept], key[kept] = arcs, j
                    kept += 1
                    arcs += 1
            for i in range(made):
                members[joined[i]], sums[joined[i]] = 0, 0
            opened = kept
        for i in range(opened):
            head[running[i]] = last
    return tail[:arcs], head[:arcs], flow[:arcs], times[:arcs], cell[:arcs], count


@njit(cache=True, nogil=True)
def cancel_cycles(tail, head, flow, times, count):  # noqa: C901
    """Move flow around cycles of arcs that are not whole until every arc is at 0 or ONE. Changes flow in place.

    An arc's cost is its distance from where it began, which rises by ``1 - 2 flow`` from floor to ceiling. Each cycle
    is turned the way that costs less, until one of its arcs is whole: an arc's first flow decides its cost for good.
    """
    arcs = tail.size
    cost = np.empty(arcs, np.int64)
    start = np.zeros(count + 1, np.int64)
    for e in range(arcs):
        cost[e] = times[e] * (ONE - 2 * flow[e])
        start[tail[e] + 1] += 1
        start[head[e] + 1] += 1
    for u in range(count):
        start[u + 1] += start[u]
    at, ends = np.empty(2 * arcs, np.int64), start[:count].copy()
    for e in range(arcs):
        at[ends[tail[e]]] = e
        ends[tail[e]] += 1
        at[ends[head[e]]] = e
        ends[head[e]] += 1
    first, place = start[:count].copy(), np.full(count, -1, np.int64)
    path, way = np.empty(count + 1, np.int64), np.empty(count + 1, np.int64)
    for origin in range(arcs):
        if flow[origin] == 0 or flow[origin] == ONE:
            continue
        path[0], top, last = tail[origin], 0, -1
        place[path[0]] = 0
        while True:
            u = path[top]
            i = first[u]
            while i < ends[u] and (flow[at[i]] == 0 or flow[at[i]] == ONE):
                i += 1
            first[u] = i
            if i < ends[u] and at[i] == last:
                i += 1
                while i < ends[u] and (flow[at[i]] == 0 or flow[at[i]] == ONE):
                    i += 1
            if i == ends[u]:
                place[u] = -1
                if top > 0:
                    return False
                break
            e = at[i]
            w = head[e] if tail[e] == u else tail[e]
            way[top] = e
            if place[w] < 0:
                top += 1
                path[top], place[w], last = w, top, e
                continue
            low, along, back, forth = place[w], np.int64(0), np.int64(ONE), np.int64(ONE)
            for p in range(low, top + 1):
                e = way[p]
                if tail[e] == path[p]:
                    along += cost[e]
                    forth, back = min(forth, ONE - flow[e]), min(back, flow[e])
                else:
                    along -= cost[e]
                    forth, back = min(forth, flow[e]), min(back, ONE - flow[e])
            step = forth if along < 0 else -back
            for p in range(low, top + 1):
                flow[way[p]] += step if tail[way[p]] == path[p] else -step
                if p > low:
                    place[path[p]] = -1
            top = low
            last = way[top - 1] if top > 0 else -1
    return True


@njit(cache=True, nogil=True)
def first_violation(z, total, rooted, allowed, inner, part, lower, upper, group, exact):  # noqa: C901
    """0 where z (n, cells) meets everything; else 1 for a column, 2 for a cell, 3 for a part, 4 for an exact sum."""
    n, cells = z.shape
    left = np.zeros(cells, np.int64)
    for v in range(n):
        for c in range(cells):
            if z[v, c] != 0:
                if z[v, c] < 0 or not allowed[v, c // inner]:
                    return 2
                left[c] += z[v, c]
    for c in range(cells):
        if not rooted and left[c] != total[c]:
            return 1
    parts, groups = np.zeros(lower.shape[1], np.int64), np.zeros(exact.shape[1], np.int64)
    for v in range(n):
        parts[:] = 0
        groups[:] = 0
        for d in range(part.size):
            if allowed[v, d]:
                for c in range(d * inner, (d + 1) * inner):
                    parts[part[d]] += z[v, c]
        for j in range(parts.size):
            groups[group[v, j]] += parts[j]
            if parts[j] < lower[v, j] or parts[j] > upper[v, j]:
                return 3
        for g in range(groups.size):
            if exact[v, g] >= 0 and groups[g] != exact[v, g]:
                return 4
    return 0
