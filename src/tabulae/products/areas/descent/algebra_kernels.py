"""Compiled code for rotated coordinates and matrices by kind: import it where it is used, for it loads a compiler.

Coordinates stay in C order here, so that those of one kind lie in runs; the last attribute should be the largest.
"""

from __future__ import annotations

import numpy as np
from numba import njit

kernel = njit(cache=True, nogil=True, error_model="numpy")
"""Compiled once and kept on disk; leaves other threads free to run; one fixed order of evaluation."""

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
