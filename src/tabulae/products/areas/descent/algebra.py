"""Compiled steps that solvers share: rotated coordinates, matrices by kind, the nearest counts within nested limits.

Import it, and the solvers, where they are used: they load a compiler. Coordinates stay
in C order here, so that those of one kind lie in runs; the last attribute should be the largest.
"""

from __future__ import annotations

import numpy as np

from ..compiled import njit
from .limits import FREE, NO_LIMIT

_HOW = {"cache": True, "nogil": True, "error_model": "numpy"}
solver = njit(**_HOW, no_cfunc_wrapper=True)
"""Compiled once and kept on disk; leaves other threads free to run; one fixed order of evaluation."""

kernel = njit(**_HOW, no_cpython_wrapper=True, no_cfunc_wrapper=True)
"""The same for what solvers alone call: it cannot be called from Python, which saves a sixth of compiling."""

SHORT_RUN = 8
"""Runs of fewer cells on average are not worth a loop each."""


@kernel
def runs_of(sizes):
    """The kind of each rotated coordinate in C order, and where each run of one kind begins: (N,), (runs + 1,)."""
    cells = 1
    for n in sizes:
        cells *= n
    kind = np.zeros(cells, np.int64)
    starts = np.empty(cells + 1, np.int64)
    runs = 0
    for c in range(cells):
        rest = c
        for back in range(sizes.size):
            a = sizes.size - 1 - back
            if rest % sizes[a] != 0:
                kind[c] |= 1 << a
            rest //= sizes[a]
        if c == 0 or kind[c] != kind[c - 1]:
            starts[runs] = c
            runs += 1
    starts[runs] = cells
    return kind, starts[: runs + 1]


@kernel
def reflect(x, sizes, room):
    """Rotate each row of x, or rotate it back: the same reflection. ``room`` is for N numbers."""
    before, after = x.shape[0], x.shape[1]
    for n in sizes:
        after //= n
        if n > 1 and after == 1:
            reflect_last(x.reshape(before, n))
        elif n > 1:
            reflect_middle(x.reshape(before, n, after), room)
        before *= n


@kernel
def reflect_last(x):
    """Along the last axis of (rows, n)."""
    n = x.shape[1]
    shrink = 1.0 / np.sqrt(float(n))
    scale = shrink / (1.0 - shrink)
    for p in range(x.shape[0]):
        row = x[p]
        mean = 0.0
        for i in range(n):
            mean += row[i]
        mean *= shrink
        change = (mean - row[0]) * scale
        for i in range(n):
            row[i] -= change
        row[0] = mean


@kernel
def reflect_middle(x, room):
    """Along the middle axis of (rows, n, after)."""
    n, after = x.shape[1], x.shape[2]
    shrink = 1.0 / np.sqrt(float(n))
    scale = shrink / (1.0 - shrink)
    for p in range(x.shape[0]):
        for c in range(after):
            room[c] = x[p, 0, c] + x[p, 1, c]
        for i in range(2, n):
            for c in range(after):
                room[c] += x[p, i, c]
        for c in range(after):
            mean = room[c] * shrink
            room[c] = (mean - x[p, 0, c]) * scale
            x[p, 0, c] = mean
        for i in range(1, n):
            for c in range(after):
                x[p, i, c] -= room[c]


@kernel
def multiply(matrix, x, out, kind, runs):
    """out = matrix x, one k x k matrix a kind, for rotated x of shape (k, N)."""
    k = x.shape[0]
    if x.shape[1] < SHORT_RUN * (runs.size - 1):
        multiply_cells(matrix, x, out, kind)
        return
    head = 1 + (k - 1) % 4
    for i in range(k):
        for r in range(runs.size - 1):
            first, last = runs[r], runs[r + 1]
            row, to = matrix[kind[first], i], out[i, first:last]
            m0, x0 = row[0], x[0, first:last]
            for c in range(to.size):
                to[c] = m0 * x0[c]
            for j in range(1, head):
                m0, x0 = row[j], x[j, first:last]
                for c in range(to.size):
                    to[c] += m0 * x0[c]
            for q in range((k - head) // 4):
                j = head + 4 * q
                m0, m1, m2, m3 = row[j], row[j + 1], row[j + 2], row[j + 3]
                x0, x1 = x[j, first:last], x[j + 1, first:last]
                x2, x3 = x[j + 2, first:last], x[j + 3, first:last]
                for c in range(to.size):
                    to[c] += (m0 * x0[c] + m1 * x1[c]) + (m2 * x2[c] + m3 * x3[c])


@kernel
def multiply_cells(matrix, x, out, kind):
    """The same cell by cell, where runs are short."""
    k, N = x.shape
    for i in range(k):
        to = out[i]
        for c in range(N):
            row, s = matrix[kind[c], i], 0.0
            for j in range(k):
                s += row[j] * x[j, c]
            to[c] = s


@kernel
def invert(a, k):
    """The inverse of a positive definite k x k matrix, in the corner of a, in its place."""
    for p in range(k):
        pivot = 1.0 / a[p, p]
        a[p, p] = 1.0
        for j in range(k):
            a[p, j] *= pivot
        for i in range(k):
            if i != p:
                factor = a[i, p]
                a[i, p] = 0.0
                for j in range(k):
                    a[i, j] -= factor * a[p, j]


@kernel
def least_curvature(precision):
    """About the least eigenvalue of each H, which is of the finest kind, where H is not 0: shape (m,)."""
    m, kinds, k, _ = precision.shape
    found, room, inside = np.full(m, np.inf), np.empty((k, k)), np.empty(k, np.int64)
    for c in range(m):
        size = 0
        for d in range(k):
            if precision[c, kinds - 1, d, d] > 0:
                inside[size] = d
                size += 1
        for i in range(size):
            for j in range(size):
                room[i, j] = precision[c, kinds - 1, inside[i], inside[j]]
        invert(room, size)
        for i in range(size):
            if room[i, i] * found[c] > 1.0:
                found[c] = 1.0 / room[i, i]
    return found


SHIFT_STEPS = 200
"""The most steps towards one shift; three or four are usual."""

SHIFT_EXACT = 1e-11
"""How near a sum comes to what it must be, of the sum."""


@kernel
def bundles_of(group, exact, totals):
    """For each child and part its bundle, and the bundles' sums: shapes (n, J) and (n, G + 1)."""
    n, parts = group.shape
    groups = exact.shape[1]
    bundle, target = np.empty((n, parts), np.int64), np.empty((n, groups + 1))
    for v in range(n):
        rest = 0.0
        target[v, groups] = np.nan
        for g in range(groups):
            target[v, g] = np.nan
            if exact[v, g] != FREE:
                target[v, g] = exact[v, g]
                rest += exact[v, g]
        for j in range(parts):
            bundle[v, j] = groups + 1
            if exact[v, group[v, j]] != FREE:
                bundle[v, j] = group[v, j]
            elif totals.size > 0:
                bundle[v, j] = groups
                target[v, groups] = totals[v] - rest
    return bundle, target


@kernel
def ceilings_of(upper):
    """Upper limits as floats, infinite where there is none."""
    found = np.empty(upper.shape)
    for v in range(upper.shape[0]):
        for j in range(upper.shape[1]):
            found[v, j] = np.inf if upper[v, j] >= NO_LIMIT else float(upper[v, j])
    return found


@kernel
def has_limits(lower, upper, bundle, target):
    """Whether anything but zero limits a child."""
    found = False
    for j in range(lower.size):
        found |= lower[j] > 0 or upper[j] < np.inf or bundle[j] < target.size
    return found


@kernel
def gather(y, cells, part, open_cells, open_count, flat, edges):
    """The values of one child that can be more than 0 into ``flat``, part by part, and where each part begins."""
    count, j = 0, 0
    for i in range(cells.size):
        d = cells[i]
        while j <= part[d]:
            edges[j] = count
            j += 1
        for q in range(open_count[d]):
            flat[count + q] = y[i, open_cells[d, q]]
        count += open_count[d]
    while j < edges.size:
        edges[j] = count
        j += 1


@kernel
def sum_above(y, shift):
    """The sum of max(y + shift, 0), and how many terms are above 0; in four lanes, which vectors can follow."""
    s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
    c0, c1, c2, c3 = 0.0, 0.0, 0.0, 0.0
    quarter = y.size // 4
    for i in range(quarter):
        t0, t1 = y[i] + shift, y[i + quarter] + shift
        t2, t3 = y[i + 2 * quarter] + shift, y[i + 3 * quarter] + shift
        s0 += t0 if t0 > 0 else 0.0
        s1 += t1 if t1 > 0 else 0.0
        s2 += t2 if t2 > 0 else 0.0
        s3 += t3 if t3 > 0 else 0.0
        c0 += 1.0 if t0 > 0 else 0.0
        c1 += 1.0 if t1 > 0 else 0.0
        c2 += 1.0 if t2 > 0 else 0.0
        c3 += 1.0 if t3 > 0 else 0.0
    for i in range(4 * quarter, y.size):
        t0 = y[i] + shift
        s0 += t0 if t0 > 0 else 0.0
        c0 += 1.0 if t0 > 0 else 0.0
    return (s0 + s1) + (s2 + s3), (c0 + c1) + (c2 + c3)


@kernel
def clipped_sum(y, edges, bundle, which, lower, upper, shift):
    """The sum of a bundle's parts after a shift, each clipped to its limits, and how fast it grows."""
    found, slope = 0.0, 0.0
    for j in range(bundle.size):
        if bundle[j] == which:
            s, count = sum_above(y[edges[j] : edges[j + 1]], shift)
            if s < lower[j]:
                found += lower[j]
            elif s >= upper[j]:
                found += upper[j]
            else:
                found += s
                slope += count
    return found, slope


@kernel
def reach(y, edges, bundle, which, target):
    """Shifts that leave nothing of a bundle, and that give each of its parts the target; empty: 0 and -1."""
    low, high = np.inf, -np.inf
    for j in range(bundle.size):
        if bundle[j] == which and edges[j + 1] > edges[j]:
            peak = y[edges[j]]
            for i in range(edges[j], edges[j + 1]):
                peak = max(peak, y[i])
            low, high = min(low, -peak), max(high, target - peak)
    return (low - 1.0, high + 1.0) if low <= high else (0.0, -1.0)


@kernel
def common_shift(y, edges, bundle, which, lower, upper, target, start):
    """The shift that gives a bundle its sum: Newton's steps, kept within a bracket."""
    at, low, high = start, -np.inf, np.inf
    for step in range(SHIFT_STEPS):
        found, slope = clipped_sum(y, edges, bundle, which, lower, upper, at)
        error = target - found
        if abs(error) <= SHIFT_EXACT * (1.0 + target):
            break
        if error > 0:
            low = at
        else:
            high = at
        if slope > 0 and step % 4 != 3:
            at += error / slope
            if low < at < high:
                continue
        if low == -np.inf or high == np.inf:
            first, last = reach(y, edges, bundle, which, target)
            if last < first:
                return 0.0
            low, high = max(low, first), min(high, last)
        at = (low + high) / 2
    return at


@kernel
def shifts_of(y, edges, lower, upper, bundle, target, common, own, shift):
    """The shift of each part of one child, given y on the cells that can be more than 0, part by part.

    ``common`` and ``own`` hold the last shifts of bundles and of parts at a limit: where to start from.
    """
    for g in range(target.size):
        if not np.isnan(target[g]):
            common[g] = common_shift(y, edges, bundle, g, lower, upper, target[g], common[g])
    for j in range(lower.size):
        shift[j] = common[bundle[j]] if bundle[j] < target.size else 0.0
        if lower[j] <= 0.0 and upper[j] == np.inf:
            continue
        s, _ = sum_above(y[edges[j] : edges[j + 1]], shift[j])
        if s < lower[j] or s > upper[j]:
            goal = lower[j] if s < lower[j] else upper[j]
            own[j] = exact_shift(y[edges[j] : edges[j + 1]], goal, own[j])
            shift[j] = own[j]


@kernel
def exact_shift(y, target, start):
    """The shift with sum max(y + shift, 0) = target: Newton's steps, from above after the first."""
    if y.size == 0:
        return 0.0
    peak = y[0]
    for i in range(y.size):
        peak = max(peak, y[i])
    if target <= 0.0:
        return -peak
    at = max(start, target / y.size - peak)
    for _ in range(SHIFT_STEPS):
        found, count = sum_above(y, at)
        if count == 0.0 or abs(found - target) <= SHIFT_EXACT * (1.0 + target):
            break
        at += (target - found) / count
    return at
