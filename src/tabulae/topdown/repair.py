"""Make sums meet their limits exactly, moving as little as the shortest ways allow, in whole numbers."""

from __future__ import annotations

import numpy as np
from numba import njit

from .rounding_kernels import MASK


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
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
