"""Controlled rounding in whole numbers, people times 2^30, whose inner loops are compiled.

The ``py_func`` of each, the same source without compilation, gives the same bits.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from ..compiled import njit
from .limits import Division

solver = partial(njit, cache=True, nogil=True, no_cfunc_wrapper=True)
kernel = partial(solver, no_cpython_wrapper=True)
"""For what solvers alone call, as in :mod:`.algebra`."""

BITS = 30
ONE = 1 << BITS
"""One person."""

MASK = ONE - 1

MOST = 1 << 31
"""More people than are divided at a time: sums of that many stay below 2^63."""


@solver
def to_fixed_point(x, allowed, total, rooted, inner, q):  # noqa: C901
    """Write x (n, cells) into q, which is 0, times ONE, and make columns add up to their totals.

    A column that holds twice its total takes no more, so that no sum leaves 64 bits, whatever x is.
    What is missing or over goes to the largest counts of the column, first of all to those that are not whole.
    Returns 0, or 1 where a column cannot be divided, or 2 where x is not finite or there are too many people.
    """
    n, cells = x.shape
    people, left = 0.0, np.empty(cells, np.int64)
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


@solver
def fractional_arcs(q, sizes, part, group, groups, use_part, use_group, rooted):  # noqa: C901
    """The sums that are not whole, as arcs of a network in which flow is conserved up to whole numbers.

    The arc of a cell runs from its column to the sum that it is part of, the arc of a sum to the next sum, and the
    arc of all of a child's people to one last vertex, which takes the place of the columns where there are none
    (rooted). A sum with a single part that is not whole shares that part's arc, which then counts several times.

    Args:
        q: shape (n, cells); 0 where not allowed.
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
    steps, span = sizes.size + 3, max(cells, group.shape[1], groups)
    most = many_open(q) * (steps + 1)
    tail, head = np.empty(most, np.int64), np.empty(most, np.int64)
    flow, times, cell = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    running, key, joined = np.empty(span, np.int64), np.empty(span, np.int64), np.empty(span, np.int64)
    members, sums, vertex = np.empty(span, np.int64), np.empty(span, np.int64), np.empty(span, np.int64)
    for j in range(span):
        members[j], sums[j] = 0, 0
    last, count, arcs = cells, cells + 1, 0
    for v in range(n):
        opened = np.int64(0)
        for c in range(cells):
            if q[v, c] & MASK:
                tail[arcs] = last if rooted else c
                flow[arcs], times[arcs], cell[arcs] = q[v, c] & MASK, 1, v * cells + c
                running[opened], key[opened] = arcs, c
                opened += 1
                arcs += 1
        for step in range(steps):
            raise_keys(key, opened, step, sizes, part, group[v])
            if (step == sizes.size and not use_part) or (step == sizes.size + 1 and not use_group):
                continue
            made = add_up(running, key, opened, flow, members, sums, joined, vertex)
            kept = np.int64(0)
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


@kernel
def many_open(q):
    """How many cells are not whole."""
    found = 0
    for v in range(q.shape[0]):
        for c in range(q.shape[1]):
            found += (q[v, c] & MASK) != 0
    return found


@kernel
def raise_keys(key, opened, step, sizes, part, group):
    """From the sum that each open arc ends in to the next sum: a prefix, a dense cell's part, its group, all."""
    for i in range(opened):
        if step < sizes.size:
            key[i] //= sizes[sizes.size - 1 - step]
        elif step == sizes.size:
            key[i] = part[key[i]]
        else:
            key[i] = group[key[i]] if step == sizes.size + 1 else 0


@kernel
def add_up(running, key, opened, flow, members, sums, joined, vertex):
    """Add open arcs up to their sums: which sums, into ``joined``, and how many; none has a vertex yet."""
    made = 0
    for i in range(opened):
        j = key[i]
        if members[j] == 0:
            joined[made], vertex[j] = j, -1
            made += 1
        members[j] += 1
        sums[j] += flow[running[i]]
    return made


@solver
def cancel_cycles(tail, head, flow, times, count):
    """Move flow around cycles of arcs that are not whole until every arc is at 0 or ONE. Changes flow in place.

    An arc's cost is its distance from where it began, which rises by ``1 - 2 flow`` from floor to ceiling. Each cycle
    is turned the way that costs less, until one of its arcs is whole: an arc's first flow decides its cost for good.
    """
    cost = np.empty(tail.size, np.int64)
    for e in range(tail.size):
        cost[e] = times[e] * (ONE - 2 * flow[e])
    first, ends = np.empty(count + 1, np.int64), np.empty(count + 1, np.int64)
    at, place = np.empty(2 * tail.size, np.int64), np.empty(count, np.int64)
    incidence(tail, head, first, ends, at)
    for u in range(count):
        place[u] = -1
    path, way = np.empty(count + 1, np.int64), np.empty(count + 1, np.int64)
    for origin in range(tail.size):
        if flow[origin] == 0 or flow[origin] == ONE:
            continue
        path[0], top, last = tail[origin], np.int64(0), np.int64(-1)
        place[path[0]] = 0
        while True:
            u = path[top]
            i = next_open(first[u], ends[u], at, flow)
            first[u] = i
            if i < ends[u] and at[i] == last:
                i = next_open(i + 1, ends[u], at, flow)
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
            low = place[w]
            turn_cycle(low, top, path, way, tail, cost, flow)
            for p in range(low + 1, top + 1):
                place[path[p]] = -1
            top = low
            last = way[top - 1] if top > 0 else np.int64(-1)
    return True


@kernel
def incidence(tail, head, first, ends, at):
    """The arcs at each vertex, in their order, into ``at``, and where those of each begin and end."""
    for u in range(first.size):
        first[u] = 0
    for e in range(tail.size):
        first[tail[e] + 1] += 1
        first[head[e] + 1] += 1
    ends[0] = 0
    for u in range(first.size - 1):
        first[u + 1] += first[u]
        ends[u + 1] = first[u + 1]
    for e in range(tail.size):
        at[ends[tail[e]]] = e
        ends[tail[e]] += 1
        at[ends[head[e]]] = e
        ends[head[e]] += 1


@kernel
def next_open(i, end, at, flow):
    """The place of the next arc that is not whole, or the end."""
    while i < end and (flow[at[i]] == 0 or flow[at[i]] == ONE):
        i += 1
    return i


@kernel
def turn_cycle(low, top, path, way, tail, cost, flow):
    """Move flow along a cycle, the way that costs less, until one of its arcs is whole."""
    along, back, forth = np.int64(0), np.int64(ONE), np.int64(ONE)
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


@solver
def settle(z, flow, cell, total, rooted, allowed, inner, part, lower, upper, group, exact):  # noqa: C901
    """Make counts z (n, cells), in people times ONE, whole people, and see that they meet everything.

    Returns 0 where they do; else 1 for a column, 2 for a cell, 3 for a part, 4 for an exact sum.
    """
    n, cells = z.shape
    for v in range(n):
        for c in range(cells):
            z[v, c] >>= BITS
    for arc in range(cell.size):
        if cell[arc] >= 0:
            z[cell[arc] // cells, cell[arc] % cells] += flow[arc] >> BITS
    left = np.empty(cells, np.int64)
    for c in range(cells):
        left[c] = 0
    for v in range(n):
        for c in range(cells):
            if z[v, c] != 0:
                if z[v, c] < 0 or not allowed[v, c // inner]:
                    return 2
                left[c] += z[v, c]
    for c in range(cells):
        if not rooted and left[c] != total[c]:
            return 1
    parts, groups = np.empty(lower.shape[1], np.int64), np.empty(exact.shape[1], np.int64)
    for v in range(n):
        for j in range(parts.size):
            parts[j] = 0
        for g in range(groups.size):
            groups[g] = 0
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


@solver
def meet_limits(sums, allowed, part, group, low_part, high_part, low_group, high_group, rooted):  # noqa: C901
    """Change sums (n, k) of dense cells in place until every part and group is within its limits; False if none can.

    A circulation: from each dense cell's column to the parts of the children, on to their groups, and back through one
    last vertex. What flows from a part to its group, and from there to the last vertex, has limits; where there is no
    parent (rooted) the columns may change too. For each limit that is broken, flow goes along a shortest way around
    that breaks no other (Ford and Fulkerson; Edmonds and Karp). If there is no way, no sums meet the limits.

    Args:
        sums: shape (n, k), int64.
        allowed: shape (n, k).
        part: shape (k,).
        group: shape (n, J).
        low_part, high_part: shape (n, J).
        low_group, high_group: shape (n, G).
        rooted: whether the columns are free.
    """
    n, k = sums.shape
    parts, groups = low_part.shape[1], low_group.shape[1]
    in_part, in_group = np.zeros((n, parts), np.int64), np.zeros((n, groups), np.int64)
    for v in range(n):
        for d in range(k):
            in_part[v, part[d]] += sums[v, d]
        for j in range(parts):
            in_group[v, group[v, j]] += in_part[v, j]
    first_group = k + n * parts
    last = first_group + n * groups
    came, found = np.empty(last + 1, np.int64), np.full(last + 1, -1, np.int64)
    room, queue = np.empty(last + 1, np.int64), np.empty(last + 1, np.int64)
    limit, search = 0, 0
    while limit < last - k:
        if limit < n * parts:
            v, j = limit // parts, limit % parts
            below = low_part[v, j] - in_part[v, j]
            over = in_part[v, j] - high_part[v, j]
            source, target = first_group + v * groups + group[v, j], k + limit
        else:
            v, g = (limit - n * parts) // groups, (limit - n * parts) % groups
            below = low_group[v, g] - in_group[v, g]
            over = in_group[v, g] - high_group[v, g]
            source, target = last, k + limit
        if below <= 0 and over <= 0:
            limit += 1
            continue
        if over > 0:
            source, target = target, source
        queue[0], found[source], room[source] = source, search, max(below, over)
        head, tail = 0, 1
        while head < tail and found[target] != search:
            u = queue[head]
            head += 1
            if u < k:
                ways = n + 1
            elif u < first_group:
                ways = k + 1
            elif u < last:
                ways = parts + 1
            else:
                ways = n * groups + k
            for i in range(ways):
                w, free = last, np.int64(0)
                if u < k:
                    if i < n:
                        w = k + i * parts + part[u]
                        free = room[u] if allowed[i, u] else np.int64(0)
                    elif rooted:
                        free = sums[0, u]
                elif u < first_group:
                    v, j = (u - k) // parts, (u - k) % parts
                    if i < k:
                        w, free = i, sums[v, i] if part[i] == j else np.int64(0)
                    else:
                        w, free = first_group + v * groups + group[v, j], high_part[v, j] - in_part[v, j]
                elif u < last:
                    v, g = (u - first_group) // groups, (u - first_group) % groups
                    if i < parts:
                        w = k + v * parts + i
                        free = in_part[v, i] - low_part[v, i] if group[v, i] == g else np.int64(0)
                    else:
                        free = high_group[v, g] - in_group[v, g]
                elif i < n * groups:
                    w = first_group + i
                    free = in_group[i // groups, i % groups] - low_group[i // groups, i % groups]
                elif rooted:
                    w = i - n * groups
                    free = room[u] if allowed[0, w] else np.int64(0)
                if free > 0 and found[w] != search:
                    found[w], came[w], room[w] = search, u, min(free, room[u])
                    queue[tail] = w
                    tail += 1
        if found[target] != search:
            return False
        moved, w = room[target], target
        while w != source:
            u = came[w]
            a, b, sign = (u, w, moved) if u < w else (w, u, -moved)
            if a < k:
                if b < last:
                    sums[(b - k) // parts, a] += sign
            elif a < first_group:
                in_part[(a - k) // parts, (a - k) % parts] += sign
            else:
                in_group[(a - first_group) // groups, (a - first_group) % groups] += sign
            w = u
        sign = moved if below > 0 else -moved
        if limit < n * parts:
            in_part[limit // parts, limit % parts] += sign
        else:
            in_group[(limit - n * parts) // groups, (limit - n * parts) % groups] += sign
        search += 1
    return True


@solver
def move_cells(q, change, inner, rooted):  # noqa: C901
    """Change cells q (n, k * inner) in place so that dense cells change by change (n, k), and columns do not.

    What goes from one child to another goes first between cells that are not whole in either. Without a parent
    (rooted) one cell takes all that comes to a dense cell. Ends with change at 0.
    """
    n, k = change.shape
    for d in range(k):
        cells = range(d * inner, (d + 1) * inner)
        if rooted and change[0, d] > 0:
            best = d * inner
            for c in cells:
                whole, best_whole = (q[0, c] & MASK) == 0, (q[0, best] & MASK) == 0
                if (best_whole and not whole) or (best_whole == whole and q[0, c] > q[0, best]):
                    best = c
            q[0, best] += change[0, d]
            change[0, d] = 0
        giver, taker = 0, 0
        while True:
            while giver < n and change[giver, d] >= 0:
                giver += 1
            while taker < n and change[taker, d] <= 0 and not rooted:
                taker += 1
            if giver == n or taker == n:
                break
            amount = -change[giver, d]
            if not rooted:
                amount = min(amount, change[taker, d])
                change[taker, d] -= amount
            change[giver, d] += amount
            for anywhere in range(2):
                for c in cells:
                    both = (q[giver, c] & MASK) != 0 and (rooted or (q[taker, c] & MASK) != 0)
                    if anywhere == 1 or both:
                        moved = min(q[giver, c], amount)
                        q[giver, c] -= moved
                        if not rooted:
                            q[taker, c] += moved
                        amount -= moved


_FAILED = ("", "a parent counts people where none of its children can", "counts are not finite, or too large")
_BROKEN = ("", "a column", "a cell", "the limits of a part", "an exact sum")


def round_division(division: Division, x: np.ndarray) -> np.ndarray:
    """Whole numbers near a real solution of a division, which meet all of its limits exactly.

    The sums of each child nest: a cell, cells that differ in the last symmetric attribute only, in the last two, ...,
    a dense cell, a part, a group, all. Each of them, after x is made to meet the limits exactly, goes to its floor or
    ceiling. As limits are whole numbers they still hold; every column stays the parent's count.

    A cell's count is an arc from its column to its first sum, a sum is an arc to the next sum. Flow is conserved, so
    arcs that are not whole form cycles; flow moves around a cycle, to the side that lies nearer to x, until one of its
    arcs is whole. Arithmetic is in int64, people times 2^30: the same x gives the same answer on every machine.

    Args:
        division: the problem; its ``precision`` and ``linear`` are not used.
        x: shape (n, k, N), near its solution. Limits that it misses are repaired; a whole row within them stays.

    Returns:
        Shape (n, k, N), int64.

    References: Cox, "A constructive procedure for unbiased controlled rounding" (1987); Abowd et al., "The 2020 Census
    Disclosure Avoidance System TopDown Algorithm" (2022), where an integer programme does this.

    >>> from tabulae.linalg import BlockAlgebra
    >>> two = np.ones((2, 1), int)
    >>> thirds = Division(
    ...     BlockAlgebra((3,)), np.ones((1, 3), int), np.ones((1, 2, 1, 1)), np.zeros(2, int), np.zeros((2, 1, 3)),
    ...     two > 0, np.zeros(1, int), 0 * two, 9 * two, 0 * two, -two,
    ... )
    >>> round_division(thirds, np.full((2, 1, 3), 0.5)).sum(axis=(1, 2)).tolist()
    [1, 2]
    """
    n, k, inner = x.shape
    rooted = division.total is None
    total = np.zeros(k * inner, np.int64) if division.total is None else division.total.reshape(-1)
    if total.sum() >= MOST:
        raise AssertionError(_FAILED[2])
    allowed, part, lower, upper, group, exact = map(np.ascontiguousarray, _limits(division))
    q = np.zeros((n, k * inner), np.int64)
    failed = to_fixed_point(x.reshape(n, -1), allowed, total, rooted, inner, q)
    if failed:
        raise AssertionError(_FAILED[failed])
    if not division.is_plain:
        _repair(q.reshape(n, k, inner), allowed, part, lower, upper, group, exact, rooted=rooted)
    sizes = np.array([size for size in division.algebra.symmetric if size > 1], np.int64)
    use_part, use_group = 1 < len(set(part.tolist())) < k, exact.shape[1] > 1
    tail, head, flow, times, cell, count = fractional_arcs(
        q, sizes, part, group, exact.shape[1], use_part, use_group, rooted
    )
    if not cancel_cycles(tail, head, flow, times, count):
        raise AssertionError("flow is not conserved")
    broken = settle(q, flow, cell, total, rooted, allowed, inner, part, lower, upper, group, exact)
    if broken:
        raise AssertionError(f"rounding did not keep {_BROKEN[broken]}")
    return q.reshape(n, k, inner)


def _limits(division: Division) -> tuple[np.ndarray, ...]:
    d = division
    return d.allowed, d.part, d.lower, d.upper, d.group, d.exact


def _repair(
    q: np.ndarray,
    allowed: np.ndarray,
    part: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    group: np.ndarray,
    exact: np.ndarray,
    *,
    rooted: bool,
) -> None:
    """Change q (n, k, N) in place until parts and exact sums meet their limits."""
    low_group, high_group = (np.where(exact < 0, none, np.minimum(exact, MOST)) * ONE for none in (0, MOST))
    low_part, high_part = (np.minimum(limit, MOST) * ONE for limit in (lower, upper))
    sums = q.sum(axis=2)
    wanted = sums.copy()
    meet = meet_limits if len(q) > 1 else meet_limits.py_func  # not worth compiling for the root alone
    if not meet(wanted, allowed, part, group, low_part, high_part, low_group, high_group, rooted):
        raise AssertionError("a parent's counts cannot be divided within the limits of its children")
    if (wanted != sums).any():
        move = move_cells if len(q) > 1 else move_cells.py_func
        move(q.reshape(len(q), -1), wanted - sums, q.shape[2], rooted)
