"""Compiled code for the nearest counts within limits: see ``projections.NestedLimits``."""

from __future__ import annotations

import numpy as np

from .algebra_kernels import kernel
from .limits import FREE, NO_LIMIT

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
