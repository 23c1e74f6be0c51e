"""Dividing a parent's counts under all limits: alternating directions between the algebra and the limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ....linalg import BlockAlgebra
from .algebra import (
    bundles_of,
    ceilings_of,
    gather,
    has_limits,
    invert,
    kernel,
    least_curvature,
    multiply,
    reflect,
    runs_of,
    shifts_of,
    solver,
)
from .limits import Division

RELAXATION = 1.6
"""How far each step goes: 1 is no further than the step itself."""

STEPS = 4000
"""The most iterations."""

TOLERANCE = 1e-4
"""Persons: the two halves agree in every cell, and the last step moved no cell further. This is not the distance from
the nearest point, which is larger where H is steep: under the shares of the 2020 census, in areas above blocks, a cell
was 0.001 from it in the median division and 0.03 at most, a child's total 0.01 and 0.03."""

PENALTY = 2.0
"""The first penalty, as a multiple of the least eigenvalue of H, the mean over children."""

RETUNE = 10
"""Iterations between changes of the penalty."""

RETUNED = 400
"""The iterations after which intervals between changes grow, in proportion to the iterations so far: it settles."""


def alternating_directions(
    division: Division, allowed: np.ndarray, totals: np.ndarray | None
) -> tuple[np.ndarray, int, float, bool]:
    """Solve a division: the counts, iterations, residual, and whether it is small enough.

    Compiled, and without the interpreter's lock.

    The first half x minimises the objective plus rho/2 |x - z + u|^2 where the children add up to the parent's counts;
    the second half z is the nearest point within each child's own limits; u adds up their differences. With
    R_v = (H_v + rho I)^-1 and w_v = b_v + rho (z_v - u_v), in rotated coordinates,

        x_v = R_v (w_v + r),    r = (sum_v R_v)^-1 (total - sum_v R_v w_v)

    The answer is z: the children's own limits are met exactly, and the parent's counts within the tolerance.

    Args:
        allowed: shape (n, k): where a child's dense cell can be more than 0.
        totals: shape (n,): held totals of the children, or None.

    Reference: Boyd, Parikh, Chu, Peleato and Eckstein, "Distributed Optimization and Statistical Learning via the
    Alternating Direction Method of Multipliers", sections 3.4 and 5.
    """
    division, back = largest_last(division)
    found = np.zeros(division.linear.shape)
    total = division.total
    counts = np.zeros(found.shape[1:]) if total is None else total
    step, residual = divide(
        np.array(division.algebra.symmetric, np.int64),
        np.ascontiguousarray(counts, float),
        total is not None,
        np.ascontiguousarray(division.precision, float),
        np.ascontiguousarray(division.which, np.int64),
        np.ascontiguousarray(division.linear, float),
        np.ascontiguousarray(allowed),
        np.ascontiguousarray(division.part, np.int64),
        np.argsort(division.part, kind="stable"),
        np.ascontiguousarray(division.lower, float),
        np.ascontiguousarray(division.upper, np.int64),
        np.ascontiguousarray(division.group, np.int64),
        np.ascontiguousarray(division.exact, np.int64),
        np.empty(0) if totals is None else np.ascontiguousarray(totals, float),
        PENALTY,
        RELAXATION,
        TOLERANCE,
        STEPS,
        RETUNE,
        RETUNED,
        found,
    )
    return back(found), step, residual, residual < TOLERANCE


def largest_last(division: Division) -> tuple[Division, Callable[[np.ndarray], np.ndarray]]:
    """The same division with its largest symmetric attribute last, and how to put its answer back.

    Coordinates of one kind then lie in long runs.
    """
    sizes = division.algebra.symmetric
    if not sizes or sizes[-1] == max(sizes):
        return division, lambda x: x
    order = np.argsort(sizes, kind="stable")
    turned = tuple(sizes[a] for a in order)

    def arranged(x: np.ndarray, shape: tuple[int, ...], places: np.ndarray) -> np.ndarray:
        lead = x.ndim - 1
        y = x.reshape(*x.shape[:-1], *shape).transpose(*range(lead), *(lead + places))
        return np.ascontiguousarray(y).reshape(x.shape)

    kinds = np.arange(division.algebra.kinds)
    was = sum(((kinds >> place) & 1) << a for place, a in enumerate(order))
    found = replace(
        division,
        algebra=BlockAlgebra(turned),
        total=None if division.total is None else arranged(division.total, sizes, order),
        precision=division.precision[:, was],
        linear=arranged(division.linear, sizes, order),
    )
    return found, lambda x: arranged(x, turned, np.argsort(order))


@kernel
def rows_of(allowed, order):
    """The dense cells of each child, part by part: where each child's begin, and which cells they are."""
    n, k = allowed.shape
    starts, cells = np.zeros(n + 1, np.int64), np.empty(n * k, np.int64)
    count = 0
    for v in range(n):
        for d in order:
            if allowed[v, d]:
                cells[count] = d
                count += 1
        starts[v + 1] = count
    return starts, cells[:count].copy()


@kernel
def alike(v, w, which, starts, cells):
    """Whether two children have the same matrices on the same cells."""
    size = starts[v + 1] - starts[v]
    same = which[v] == which[w] and starts[w + 1] - starts[w] == size
    i = 0
    while same and i < size:
        same = cells[starts[v] + i] == cells[starts[w] + i]
        i += 1
    return same


@kernel
def classes_of(which, starts, cells):
    """Children alike are one class: for each child its class, and for each class its first child."""
    n = which.size
    of, first = np.empty(n, np.int64), np.empty(n, np.int64)
    count = 0
    for v in range(n):
        c = 0
        while c < count and not alike(v, first[c], which, starts, cells):
            c += 1
        of[v] = c
        if c == count:
            first[count] = v
            count += 1
    return of, first[:count].copy()


@kernel
def factor(precision, which, starts, cells, of, first, penalty, resolvents, coupling):
    """R = (H + penalty I)^-1 of each class, and the inverse of their sum over children."""
    k = precision.shape[2]
    counts, unused = np.zeros(first.size), np.ones(k)
    for c in of:
        counts[c] += 1.0
    for d in cells:
        unused[d] = 0.0
    for kind in range(precision.shape[1]):
        sums = coupling[kind]
        for i in range(k):
            for j in range(k):
                sums[i, j] = unused[i] if i == j else 0.0
        for c in range(first.size):
            mine = cells[starts[first[c]] : starts[first[c] + 1]]
            resolve(precision[which[first[c]], kind], mine, penalty, counts[c], resolvents[c, kind], sums)
        invert(sums, k)


@kernel
def resolve(H, mine, penalty, count, r, sums):
    """(H + penalty I)^-1 on some cells, and ``count`` times it added to the sums."""
    for i in range(mine.size):
        for j in range(mine.size):
            r[i, j] = H[mine[i], mine[j]]
        r[i, i] += penalty
    invert(r, mine.size)
    for i in range(mine.size):
        for j in range(mine.size):
            sums[mine[i], mine[j]] += count * r[i, j]


@kernel
def open_cells_of(total, coupled):
    """1 where a cell can be more than 0, the places of such cells in each row, and how many there are."""
    k, N = total.shape
    opened, places, count = np.zeros((k, N)), np.empty((k, N), np.int64), np.zeros(k, np.int64)
    for d in range(k):
        for c in range(N):
            if total[d, c] > 0 or not coupled:
                opened[d, c] = 1.0
                places[d, count[d]] = c
                count[d] += 1
    return opened, places, count


@kernel
def pull_of(rotated, starts, cells, of, resolvents, b, z, u, penalty, sizes, kind, runs, w, room, y, pull):
    """y = R (b + penalty (z - u)) of every child, rotated, and ``pull``, what its sum lacks of the parent's counts."""
    N = b.shape[1]
    for d in range(pull.shape[0]):
        for c in range(N):
            pull[d, c] = rotated[d, c]
    for v in range(of.size):
        s, m = starts[v], starts[v + 1] - starts[v]
        for i in range(m):
            for c in range(N):
                w[i, c] = b[s + i, c] + penalty * (z[s + i, c] - u[s + i, c])
        reflect(w[:m], sizes, room)
        multiply(resolvents[of[v]], w[:m], y[s : s + m], kind, runs)
        for i in range(m):
            d = cells[s + i]
            for c in range(N):
                pull[d, c] -= y[s + i, c]


@kernel
def forces_of(pull, starts, cells, first, resolvents, coupling, kind, runs, force, w, forces):
    """R r of each class, with r = coupling pull."""
    multiply(coupling, pull, force, kind, runs)
    for f in range(first.size):
        s, m = starts[first[f]], starts[first[f] + 1] - starts[first[f]]
        for i in range(m):
            d = cells[s + i]
            for c in range(force.shape[1]):
                w[i, c] = force[d, c]
        if m > 0:
            multiply(resolvents[f], w[:m], forces[f, :m], kind, runs)


@kernel
def take_half(x, z, u, y, forces, relaxation, sizes, room):
    """x = y + R r of one child, turned back, and u + relaxed x in the place of u."""
    m, N = x.shape
    for i in range(m):
        for c in range(N):
            x[i, c] = y[i, c] + forces[i, c]
    reflect(x, sizes, room)
    for i in range(m):
        for c in range(N):
            u[i, c] += relaxation * x[i, c] + (1.0 - relaxation) * z[i, c]


@kernel
def put_half(x, z, u, move, opened, apart, moved):
    """z, the shifted and clipped u of one row; u keeps what was taken. How far x is from z, and z from its last."""
    for c in range(x.size):
        new = u[c] + move
        new = (new if new > 0.0 else 0.0) * opened[c]
        gap, way = abs(x[c] - new), abs(z[c] - new)
        apart[c] = gap if gap > apart[c] else apart[c]
        moved[c] = way if way > moved[c] else moved[c]
        u[c] -= new
        z[c] = new


@kernel
def first_point(linear, total, opened, starts, cells, coupled, b, z):
    """b by rows, and equal shares of the parent's counts."""
    k, N = total.shape
    holders = np.zeros(k)
    for d in cells:
        holders[d] += 1.0
    for v in range(starts.size - 1):
        for r in range(starts[v], starts[v + 1]):
            d = cells[r]
            for c in range(N):
                b[r, c] = linear[v, d, c]
                if coupled:
                    z[r, c] = opened[d, c] * total[d, c] / holders[d]


@kernel
def give_back(z, starts, cells, out):
    """Rows to their places."""
    for v in range(starts.size - 1):
        for r in range(starts[v], starts[v + 1]):
            for c in range(z.shape[1]):
                out[v, cells[r], c] = z[r, c]


@kernel
def mean_of(values, which, starts):
    """The mean over children with cells."""
    total, some = 0.0, 0
    for v in range(which.size):
        if starts[v + 1] > starts[v]:
            total += values[which[v]]
            some += 1
    return total / max(some, 1)


@solver
def divide(
    sizes, total, coupled, precision, which, linear, allowed, part, order, lower, upper, group, exact, totals,
    penalty, relaxation, tolerance, most, retune, retuned, out,
):  # fmt: skip
    """Alternating directions for one division, into ``out``: iterations and residual."""
    n, k, N = linear.shape
    kind, runs = runs_of(sizes)
    starts, cells = rows_of(allowed, order)
    of, first = classes_of(which, starts, cells)
    bundle, target = bundles_of(group, exact, totals)
    ceiling = ceilings_of(upper)
    opened, places, count = open_cells_of(total, coupled)
    resolvents = np.zeros((first.size, precision.shape[1], k, k))
    coupling = np.zeros((precision.shape[1], k, k))
    penalty *= mean_of(least_curvature(precision), which, starts)
    factor(precision, which, starts, cells, of, first, penalty, resolvents, coupling)

    shape = (cells.size, N)
    b, z, u, y = np.empty(shape), np.zeros(shape), np.zeros(shape), np.empty(shape)
    first_point(linear, total, opened, starts, cells, coupled, b, z)
    room = np.empty(N)
    rotated = total.copy()
    reflect(rotated, sizes, room)
    pull, force, forces = np.zeros((k, N)), np.zeros((k, N)), np.zeros((first.size, k, N))
    w, flat, edges = np.empty((k, N)), np.empty(k * N), np.empty(lower.shape[1] + 1, np.int64)
    common, own, shift = np.zeros(target.shape), np.zeros(lower.shape), np.zeros(lower.shape[1])
    apart, moved = np.empty(N), np.empty(N)
    step, residual, wait, last = 0, np.inf, retune, 0
    while step < most and not residual < tolerance:
        step += 1
        pull_of(rotated, starts, cells, of, resolvents, b, z, u, penalty, sizes, kind, runs, w, room, y, pull)
        if coupled:
            forces_of(pull, starts, cells, first, resolvents, coupling, kind, runs, force, w, forces)
        for c in range(N):
            apart[c], moved[c] = 0.0, 0.0
        for v in range(n):
            s, e = starts[v], starts[v + 1]
            take_half(w[: e - s], z[s:e], u[s:e], y[s:e], forces[of[v], : e - s], relaxation, sizes, room)
            limited = has_limits(lower[v], ceiling[v], bundle[v], target[v])
            if limited:
                gather(u[s:e], cells[s:e], part, places, count, flat, edges)
                shifts_of(flat, edges, lower[v], ceiling[v], bundle[v], target[v], common[v], own[v], shift)
            for r in range(s, e):
                d = cells[r]
                put_half(w[r - s], z[r], u[r], shift[part[d]] if limited else 0.0, opened[d], apart, moved)
        primal, dual = apart.max(), moved.max()
        residual = max(primal, dual)
        if step < last + wait:
            continue
        last, wait = step, retune * max(1, step // retuned)
        if residual > 4.0 * min(primal, dual):
            change = 2.0 if primal > dual else 0.5
            penalty *= change
            for r in range(cells.size):
                for c in range(N):
                    u[r, c] /= change
            factor(precision, which, starts, cells, of, first, penalty, resolvents, coupling)
    give_back(z, starts, cells, out)
    return step, residual
