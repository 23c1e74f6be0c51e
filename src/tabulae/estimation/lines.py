"""Compiled moves over counts of cliques: how many people go along a line is drawn from the exact conditional law.

A line is one combination of all attributes (people come or go), two (they go from one to the other), or four (two
combinations exchange some of their values). Which line is looked at does not depend on where the chain is.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from .chain import ONE, moving

_DEVIATIONS, _LEAST_WINDOW, _WINDOW = 12.0, 16, 2048
"""How wide a window is, in standard deviations of the noise along its line; and in people."""

_NOTHING = 45.0
"""Log weight below the largest from which on nothing is looked at."""

_FAR, _GAIN = np.int64(1 << 40), 1e-9
"""People that no line has; what going on must be worth."""

_SEATED = 2000
"""Customers who are seated one by one; of those after them the number of new tables is all but Poisson."""


class Lines(NamedTuple):
    """What is known: of the cliques, and of the measurements as a sparse matrix, column by column of the cells.

    Attributes:
        sizes: shape (attributes,): categories of each.
        first, stride: shapes (entries,), (entries, attributes): the place in ``LineState.counts`` of each entry that a
            combination is counted in: a cell of each clique, and its sum over the clique's own attributes.
        sign: shape (counts,): 1 for cells and -1 for sums.
        start, row, value: the matrix of measured rows.
        precision: shape (rows,): 1 / variance of each row's noise, about; how far a move may reach.
        slope: shape (rows,): 1 / scale of Laplace noise, 0 for Gaussian noise.
        held: shape (rows,): rows that no move may change.
    """

    sizes: np.ndarray
    first: np.ndarray
    stride: np.ndarray
    sign: np.ndarray
    start: np.ndarray
    row: np.ndarray
    value: np.ndarray
    precision: np.ndarray
    slope: np.ndarray
    held: np.ndarray


class LineState(NamedTuple):
    """Where a chain is: ``counts`` of cells and sums, and ``residual``, answers less what the counts say."""

    counts: np.ndarray
    residual: np.ndarray


class Scratch(NamedTuple):
    """Where a line is written down: changes of counts and of rows, which are touched, weights, combinations."""

    change: np.ndarray
    touched: np.ndarray
    moved: np.ndarray
    marked: np.ndarray
    rows: np.ndarray
    weight: np.ndarray
    ends: np.ndarray


def scratch(lines: Lines) -> Scratch:
    """Room for one chain."""
    counts, rows = lines.sign.size, lines.precision.size
    return Scratch(
        np.zeros(counts, np.int64),
        np.zeros(4 * lines.first.size, np.int64),
        np.zeros(rows),
        np.zeros(rows, bool),
        np.zeros(rows, np.int64),
        np.zeros(_WINDOW),
        np.zeros((4, lines.sizes.size), np.int64),
    )


@moving(cache=True)
def _category(lines, cumulated, k, random):
    """A category of an attribute: half of the time any, else by its share."""
    n = lines.sizes[k]
    if random.random() < 0.5:
        return int(random.random() * n)
    at, low, high = random.random(), 0, n - 1
    while low < high:
        middle = (low + high) // 2
        if cumulated[k, middle] > at:
            high = middle
        else:
            low = middle + 1
    return low


@moving(cache=True)
def _choose(lines, cumulated, ends, random):
    """Write a line's combinations down. Returns how many: the first half loses people to the second."""
    count = lines.sizes.size
    for k in range(count):
        ends[0, k] = _category(lines, cumulated, k, random)
    which = random.random()
    if which < 0.25 or count == 0:
        return 1
    if which < 0.7:
        for k in range(count):
            ends[1, k] = ends[0, k]
        k = int(random.random() * count)
        if random.random() < 0.5:
            ends[1, k] = (ends[0, k] + 1) % lines.sizes[k]
        else:
            ends[1, k] = _category(lines, cumulated, k, random)
        return 2
    for k in range(count):
        ends[1, k] = ends[0, k] if random.random() < 0.5 else _category(lines, cumulated, k, random)
    if which < 0.75:
        return 2
    for k in range(count):
        same = random.random() < 0.5
        ends[2, k] = ends[0, k] if same else ends[1, k]
        ends[3, k] = ends[1, k] if same else ends[0, k]
    return 4


@moving(cache=True)
def _line(lines, scratch, combinations):
    """Sum up what one person more along the line changes; the entries that change come first among the touched."""
    found = 0
    for e in range(combinations):
        gains = 1 if combinations == 1 or e >= combinations // 2 else -1
        for j in range(lines.first.size):
            at = lines.first[j]
            for k in range(lines.sizes.size):
                at += lines.stride[j, k] * scratch.ends[e, k]
            seen = False
            for i in range(found):
                seen = seen or scratch.touched[i] == at
            if not seen:
                scratch.touched[found] = at
                found += 1
            scratch.change[at] += gains
    changed = 0
    for i in range(found):
        if scratch.change[scratch.touched[i]] != 0:
            scratch.touched[changed] = scratch.touched[i]
            changed += 1
    return changed


@moving(cache=True)
def _rows(lines, scratch, changed):
    """Sum up the rows that change: how many there are, and whether they may."""
    found = 0
    for i in range(changed):
        at = scratch.touched[i]
        for j in range(lines.start[at], lines.start[at + 1]):
            row = lines.row[j]
            if not scratch.marked[row]:
                scratch.marked[row] = True
                scratch.rows[found] = row
                found += 1
            scratch.moved[row] += scratch.change[at] * lines.value[j]
    free = True
    for i in range(found):
        row = scratch.rows[i]
        free = free and not (lines.held[row] and scratch.moved[row] != 0.0)
    return found, free


@moving(cache=True)
def _clear(scratch, changed, rows):
    for i in range(changed):
        scratch.change[scratch.touched[i]] = 0
    for i in range(rows):
        scratch.moved[scratch.rows[i]] = 0.0
        scratch.marked[scratch.rows[i]] = False


@moving(cache=True)
def _put(state, scratch, changed, rows, t):
    for i in range(changed):
        at = scratch.touched[i]
        state.counts[at] += t * scratch.change[at]
    for i in range(rows):
        row = scratch.rows[i]
        state.residual[row] -= t * scratch.moved[row]


@moving(cache=True)
def _room(lines, state, scratch, changed, low, high):
    """How few and how many can go along the line: no cell has fewer than nobody."""
    for i in range(changed):
        at = scratch.touched[i]
        if scratch.change[at] > 0:
            low = max(low, -(state.counts[at] // scratch.change[at]))
        else:
            high = min(high, state.counts[at] // -scratch.change[at])
    return low, high


@moving(cache=True)
def _step(lines, state, alpha, scratch, changed, t):
    """Log prior of t + 1 less that of t. A cell of n people has Gamma(n + alpha) / n!, a sum one over that."""
    top, bottom = 1.0, 1.0
    for i in range(changed):
        at = scratch.touched[i]
        change = scratch.change[at]
        n = state.counts[at] + t * change
        for _ in range(abs(change)):
            if change > 0:
                up, down = n + alpha[at], n + 1.0
                n += 1
            else:
                up, down = float(n), n - 1.0 + alpha[at]
                n -= 1
            if lines.sign[at] > 0:
                top *= up
                bottom *= down
            else:
                top *= down
                bottom *= up
    return math.log(top / bottom)


@moving(cache=True)
def _likelihood(lines, state, scratch, rows, t):
    """Log likelihood of t + 1 less that of t."""
    found = 0.0
    for i in range(rows):
        row = scratch.rows[i]
        d, r = scratch.moved[row], state.residual[row] - t * scratch.moved[row]
        if lines.slope[row] > 0.0:
            found -= lines.slope[row] * (abs(r - d) - abs(r))
        else:
            found += lines.precision[row] * d * (r - 0.5 * d)
    return found


@moving(cache=True)
def _lean(lines, state, scratch, rows):
    """The normal law along the line: linear t - quadratic t^2 / 2; and whether that is all of the likelihood."""
    linear, quadratic, normal = 0.0, 0.0, True
    for i in range(rows):
        row = scratch.rows[i]
        pull = lines.precision[row] * scratch.moved[row]
        linear += pull * state.residual[row]
        quadratic += pull * scratch.moved[row]
        normal = normal and lines.slope[row] == 0.0
    return linear, quadratic, normal


@moving(cache=True)
def _draw(lines, state, alpha, scratch, changed, rows, random):
    """How many go along the line, from the exact law within a window whose place is random."""
    linear, quadratic, normal = _lean(lines, state, scratch, rows)
    weight = scratch.weight
    window = weight.size
    if quadratic > 0.0:
        window = max(_LEAST_WINDOW, min(window, int(_DEVIATIONS / math.sqrt(quadratic)) + 1))
    place = int(random.random() * window)
    low, high = _room(lines, state, scratch, changed, -place, window - 1 - place)
    if low >= high:
        return 0
    most, top, bottom = 0.0, high, low
    weight[-low] = 0.0
    for t in range(high):
        gain = linear - quadratic * (t + 0.5) if normal else _likelihood(lines, state, scratch, rows, t)
        gain += _step(lines, state, alpha, scratch, changed, t)
        weight[t + 1 - low] = weight[t - low] + gain
        most = max(most, weight[t + 1 - low])
        if weight[t + 1 - low] < most - _NOTHING and gain < -0.7:
            top = t + 1
            break
    for t in range(-1, low - 1, -1):
        gain = linear - quadratic * (t + 0.5) if normal else _likelihood(lines, state, scratch, rows, t)
        gain += _step(lines, state, alpha, scratch, changed, t)
        weight[t - low] = weight[t + 1 - low] - gain
        most = max(most, weight[t - low])
        if weight[t - low] < most - _NOTHING and gain > 0.7:
            bottom = t
            break
    total = 0.0
    for i in range(bottom - low, top - low + 1):
        weight[i] = math.exp(weight[i] - most)
        total += weight[i]
    at = random.random() * total
    for t in range(bottom, top):
        at -= weight[t - low]
        if at < 0.0:
            return t
    return top


@moving(cache=True)
def move_along(lines, state, alpha, cumulated, moves, scratch, random):
    """So many moves, each along another line; all leave the law as it is."""
    for _ in range(moves):
        changed = _line(lines, scratch, _choose(lines, cumulated, scratch.ends, random))
        low, high = _room(lines, state, scratch, changed, -ONE, ONE)
        rows = 0
        if changed and low < high:
            rows, free = _rows(lines, scratch, changed)
            if free:
                t = _draw(lines, state, alpha, scratch, changed, rows, random)
                if t != 0:
                    _put(state, scratch, changed, rows, t)
        _clear(scratch, changed, rows)


@moving(cache=True)
def draw_near(lines, state, cumulated, moves, scratch, random):
    """So many moves that go to the whole number nearest to the answers along their line. Returns how many went on."""
    gone = 0
    for _ in range(moves):
        changed = _line(lines, scratch, _choose(lines, cumulated, scratch.ends, random))
        rows = 0
        if changed:
            rows, free = _rows(lines, scratch, changed)
            linear, quadratic, _ = _lean(lines, state, scratch, rows)
            if free and quadratic > 0.0:
                low, high = _room(lines, state, scratch, changed, -_FAR, _FAR)
                t = min(max(int(np.rint(linear / quadratic)), low), high)
                if linear * t - 0.5 * quadratic * t * t > _GAIN:
                    _put(state, scratch, changed, rows, t)
                    gone += 1
        _clear(scratch, changed, rows)
    return gone


def tables_taken(counts: np.ndarray, alpha: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """How many tables the customers of Chinese restaurants take, cell by cell, with concentrations ``alpha``."""
    found = np.zeros(counts.size, np.int64)
    _seat(np.minimum(counts, _SEATED), alpha, found, random)
    later = np.flatnonzero(counts > _SEATED)
    n, a = counts[later], alpha[later]
    found[later] += random.poisson(a * np.log((n + a) / (_SEATED + a)))
    return found


@moving(cache=True)
def _seat(counts, alpha, found, random):
    for c in range(counts.size):
        for i in range(counts[c]):
            found[c] += random.random() * (alpha[c] + i) < alpha[c]
