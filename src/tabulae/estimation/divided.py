"""Compiled division of a parent's counts among its children, near to draws of whole tables."""

from __future__ import annotations

import numpy as np

from ..errors import require

njit = require("numba", "areas", "the estimator posterior").njit

_ROUNDS, _TRIED, _OF_TOTAL = 8, 3, 3
"""Rounds of exchanges at most, partners in a round, and how much a total counts beside another column."""


@njit(cache=True, nogil=True)
def fill(found, rows, indptr, indices, data):
    """Write rows of a sparse table to ``found`` (rows, cells); what stands at -1 stays as it is."""
    for i in range(rows.size):
        if rows[i] >= 0:
            for k in range(indptr[rows[i]], indptr[rows[i] + 1]):
                found[i, indices[k]] = data[k]


@njit(cache=True, nogil=True)
def divide(parent, cube, path, columns, random):
    """Cells of a parent (cells,) among children, near to their draws: cube has shape (children, draws, cells).

    See :meth:`tabulae.estimation.posterior.Draws.table`.
    """
    children, _, cells = cube.shape
    ordered = _ordered(cube, path, columns)
    found = np.zeros((children, cells), np.int64)
    sums = np.zeros((children, columns), np.int64)
    last = path.shape[1] - 1
    for c in range(cells):
        _quantile(parent[c], ordered[:, path[c, last]], found[:, c])
        for u in range(children):
            for j in range(last + 1):
                sums[u, path[c, j]] += found[u, c]
    for _ in range(_ROUNDS if children > 1 else 0):
        moved = 0
        for c in range(cells):
            for u in range(children if parent[c] else 0):
                for _ in range(_TRIED):
                    v = int(random.random() * (children - 1))
                    v += v >= u
                    moved += _exchange(ordered, sums, path[c], u, v)
                    moved += _trade(ordered, sums, path[c], path[int(random.random() * cells)], u, v)
        if moved == 0:
            break
    for c in range(cells):
        found[:, c] = sums[:, path[c, last]]
    return found


@njit(cache=True, nogil=True)
def _ordered(cube, path, columns):
    """Shape (children, columns, draws): sums of cells in each draw, sorted."""
    children, draws, cells = cube.shape
    found = np.zeros((children, columns, draws), np.int64)
    somebody = np.zeros((children, columns), np.bool_)
    for u in range(children):
        for m in range(draws):
            for c in range(cells):
                if cube[u, m, c]:
                    for j in range(path.shape[1]):
                        found[u, path[c, j], m] += cube[u, m, c]
                        somebody[u, path[c, j]] = True
        for v in range(columns):
            if somebody[u, v]:
                found[u, v].sort()
    return found


@njit(cache=True, nogil=True)
def _exchange(ordered, sums, columns, u, v):
    """One person of a cell from child u to child v, where that brings counts nearer to the draws: 1, or 0.

    No count leaves the range of its draws: what can be nowhere stays at 0.
    """
    cell = columns[-1]
    if sums[u, cell] <= ordered[u, cell, 0] or sums[v, cell] >= ordered[v, cell, -1]:
        return 0
    change = 0
    for j in range(columns.size):
        k = columns[j]
        change += (_OF_TOTAL if j == 0 else 1) * (
            _slope(ordered[u, k], sums[u, k], -1) + _slope(ordered[v, k], sums[v, k], 1)
        )
    if change >= 0:
        return 0
    for k in columns:
        sums[u, k] -= 1
        sums[v, k] += 1
    return 1


@njit(cache=True, nogil=True)
def _trade(ordered, sums, given, taken, u, v):
    """One person of child u for one of another cell of child v, where that brings counts nearer to the draws: 1, or 0.

    Columns that both cells are in stay as they are: what one exchange alone would spoil.
    """
    one, other = given[-1], taken[-1]
    if one == other or sums[u, one] <= ordered[u, one, 0] or sums[v, one] >= ordered[v, one, -1]:
        return 0
    if sums[v, other] <= ordered[v, other, 0] or sums[u, other] >= ordered[u, other, -1]:
        return 0
    change = 0
    for columns, giver, taker in ((given, u, v), (taken, v, u)):
        for j in range(columns.size):
            if given[j] != taken[j]:
                k = columns[j]
                change += _slope(ordered[giver, k], sums[giver, k], -1)
                change += _slope(ordered[taker, k], sums[taker, k], 1)
    if change >= 0:
        return 0
    for columns, giver, taker in ((given, u, v), (taken, v, u)):
        for k in columns:
            sums[giver, k] -= 1
            sums[taker, k] += 1
    return 1


@njit(cache=True, nogil=True)
def _quantile(total, ordered, found):
    """Parts of a total at the same quantile of their sorted draws, shape (children, draws), written to ``found``."""
    children, draws = ordered.shape
    low, high = 0, draws  # the first draw whose sum is above the total
    while low < high:
        m = (low + high) // 2
        if ordered[:, m].sum() <= total:
            low = m + 1
        else:
            high = m
    at = max(low - 1, 0)
    rest = total
    for u in range(children):
        found[u] = ordered[u, at]
        rest -= found[u]
    if low < draws:
        for u in range(children):
            more = min(max(rest, 0), ordered[u, low] - ordered[u, at])
            found[u] += more
            rest -= more
    while rest != 0:  # beyond all draws: to and from those that have most
        u = int(np.argmax(found))
        step = 1 if rest > 0 else -1
        found[u] += step
        rest -= step


@njit(cache=True, nogil=True)
def _slope(ordered, now, step):
    """Draws times the change of E|count - T| by one more, or one less."""
    at = now if step > 0 else now - 1
    low, high = 0, ordered.size
    while low < high:
        m = (low + high) // 2
        if ordered[m] <= at:
            low = m + 1
        else:
            high = m
    return step * (2 * low - ordered.size)
