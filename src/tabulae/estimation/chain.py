"""Compiled moves of the sampler of :mod:`tabulae.estimation.posterior`: one Markov chain over whole tables of leaves.

A move takes two places (leaf, cell), or one, and draws how many people go from the first to the second from the exact
conditional law, within a window about what is there now. The window's place is random, so that a move and its reverse
are equally likely, whatever its size.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..errors import require

njit = require("numba", "areas", "the estimator posterior").njit

_STEEP, _LARGE, _NOTHING = 200.0, 1e100, 1e-18
"""The steepest log weight of a step, how large weights become before all are made smaller, and what is left out."""

_ROUNDS, _TRIED, _OF_TOTAL = 8, 3, 3
"""Rounds of exchanges at most, partners in a round, and how much a total counts beside another column."""

SHAPE = 6.0
SPREADS = np.array([0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 1000.0])
KINSHIPS = np.array([1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0])


class Fixed(NamedTuple):
    """What is known: the tree, the measurements' precisions, the limits.

    Attributes:
        parent: shape (nodes,), -1 for the root; parents come first.
        leaf: shape (leaves,): the node of each leaf.
        group: shape (leaves,): its class of the prior, a row of ``above``.
        members, start: leaves sorted by group, and where each group begins.
        path: shape (cells, splits + 1): columns of ``counts`` that a person of a cell is counted in, the total first.
        answer: shape (cells, queries): the column of ``residual`` of each query.
        precision: shape (nodes, queries).
        allowed: shape (leaves, cells).
        held, is_held: shapes (cells, margins) and (nodes, margins): classes of margins that are exact, and where.
        part, least, most: shapes (cells,), (leaves, parts) twice: bounds on sums of cells.
        above: shape (internal,): the parent of each internal node, among the internal nodes.
        depth: shape (columns,): by which split a column of ``counts`` is made; 0 for the total.
        prefix: shape (columns,): the column that it is a part of.
        visits: shape (leaves,): partners of each leaf in a sweep. It must not depend on where the chain is.
    """

    parent: np.ndarray
    leaf: np.ndarray
    group: np.ndarray
    members: np.ndarray
    start: np.ndarray
    path: np.ndarray
    answer: np.ndarray
    precision: np.ndarray
    allowed: np.ndarray
    held: np.ndarray
    is_held: np.ndarray
    part: np.ndarray
    least: np.ndarray
    most: np.ndarray
    above: np.ndarray
    depth: np.ndarray
    prefix: np.ndarray
    visits: np.ndarray


class State(NamedTuple):
    """Where the chain is: ``counts`` (leaves, columns), ``residual`` (nodes, answers), ``parts`` (leaves, parts)."""

    counts: np.ndarray
    residual: np.ndarray
    parts: np.ndarray


class Prior(NamedTuple):
    """Parameters: ``share`` (internal, columns), ``spread`` (leaves, splits), ``growth`` (internal, sizes).

    ``growth[g, n]`` is F(n + 1) (n + 1) / F(n), with F the law of the size of a leaf.
    """

    share: np.ndarray
    spread: np.ndarray
    growth: np.ndarray


@njit(cache=True, nogil=True)
def _gain(fixed, state, prior, b, c, t, first):
    """P(one more in cell c of leaf b) / P(as it is), where t more are in it already; columns before ``first`` stay."""
    counts, path, g = state.counts, fixed.path, fixed.group[b]
    last = path.shape[1] - 1
    top, bottom = 1.0, counts[b, path[c, last]] + t + 1.0
    if first == 0:
        n = counts[b, path[c, 0]] + t
        if n >= prior.growth.shape[1]:
            return 0.0
        top = prior.growth[g, n]
    for j in range(max(first, 1), last + 1):
        s = prior.spread[b, j - 1]
        top *= counts[b, path[c, j]] + t + s * prior.share[g, path[c, j]]
        if j > first:
            bottom *= counts[b, path[c, j - 1]] + t + s
    return top / bottom


@njit(cache=True, nogil=True)
def _towards(fixed, state, u, c_less, c_more):
    """The same of one node, where one cell has fewer and another more (-1: none)."""
    linear, quadratic = 0.0, 0.0
    for e in range(fixed.is_held.shape[1]):
        if fixed.is_held[u, e]:
            less = -1 if c_less < 0 else fixed.held[c_less, e]
            more = -1 if c_more < 0 else fixed.held[c_more, e]
            if less != more:
                return 0.0, 0.0, False
    for q in range(fixed.precision.shape[1]):
        p = fixed.precision[u, q]
        if p == 0.0:
            continue
        less = -1 if c_less < 0 else fixed.answer[c_less, q]
        more = -1 if c_more < 0 else fixed.answer[c_more, q]
        if less == more:
            continue
        if less >= 0:
            linear -= p * state.residual[u, less]
            quadratic += p
        if more >= 0:
            linear += p * state.residual[u, more]
            quadratic += p
    return linear, quadratic, True


@njit(cache=True, nogil=True)
def _put(fixed, state, b, c, t):
    for j in range(fixed.path.shape[1]):
        state.counts[b, fixed.path[c, j]] += t
    state.parts[b, fixed.part[c]] += t
    u = fixed.leaf[b]
    while u >= 0:
        for q in range(fixed.precision.shape[1]):
            state.residual[u, fixed.answer[c, q]] -= t
        u = fixed.parent[u]


@njit(cache=True, nogil=True)
def _room(fixed, state, b1, c1, b2, c2, low, high):
    """How few and how many can go from (b1, c1) to (b2, c2), within counts and bounds."""
    last = fixed.path.shape[1] - 1
    low = max(low, -state.counts[b2, fixed.path[c2, last]])
    p2 = fixed.part[c2]
    p1 = p2
    if b1 >= 0:
        high = min(high, state.counts[b1, fixed.path[c1, last]])
        p1 = fixed.part[c1]
    if b1 == b2 and p1 == p2:
        return low, high
    low = max(low, fixed.least[b2, p2] - state.parts[b2, p2])
    high = min(high, fixed.most[b2, p2] - state.parts[b2, p2])
    if b1 >= 0:
        low = max(low, state.parts[b1, p1] - fixed.most[b1, p1])
        high = min(high, state.parts[b1, p1] - fixed.least[b1, p1])
    return low, high


@njit(cache=True, nogil=True)
def _lean(fixed, state, b1, c1, b2, c2):
    """Log likelihood of t people going from (b1, c1) to (b2, c2), linear t - quadratic t^2 / 2; may they."""
    linear, quadratic = 0.0, 0.0
    u = fixed.leaf[b1] if b1 >= 0 else -1
    v = fixed.leaf[b2]
    while u >= 0 or v >= 0:
        if u == v:
            if c1 == c2:
                break
            a, p, free = _towards(fixed, state, u, c1, c2)
            u = v = fixed.parent[u]
        elif u > v:
            a, p, free = _towards(fixed, state, u, c1, -1)
            u = fixed.parent[u]
        else:
            a, p, free = _towards(fixed, state, v, -1, c2)
            v = fixed.parent[v]
        if not free:
            return 0.0, 0.0, False
        linear += a
        quadratic += p
    return linear, quadratic, True


@njit(cache=True, nogil=True)
def _weigh(fixed, state, prior, b1, c1, b2, c2, first, lean, weight, here, steps, sign):
    """Weights of 1, 2 ... steps more (sign 1) or fewer (-1) than at ``here``: how far it is worth to look."""
    linear, quadratic = lean
    factor = math.exp(min(sign * linear - 0.5 * quadratic, _STEEP))
    shrink, w, most = math.exp(-quadratic), weight[here], weight[here]
    for i in range(steps):
        if sign > 0:
            ratio = _gain(fixed, state, prior, b2, c2, i, first) * factor
            if b1 >= 0:
                ratio /= _gain(fixed, state, prior, b1, c1, -i - 1, first)
        else:
            ratio = factor / _gain(fixed, state, prior, b2, c2, -i - 1, first)
            if b1 >= 0:
                ratio *= _gain(fixed, state, prior, b1, c1, i, first)
        factor *= shrink
        w *= ratio
        weight[here + sign * (i + 1)] = w
        most = max(most, w)
        if w > _LARGE:
            weight[:] = weight / _LARGE
            w, most = w / _LARGE, most / _LARGE
        if w < _NOTHING * most and ratio < 0.5:
            return i + 1
    return steps


@njit(cache=True, nogil=True)
def _move(fixed, state, prior, b1, c1, b2, c2, weight, random):
    """Draw how many go from (b1, c1) to (b2, c2); from nowhere, where b1 is -1. Returns how many."""
    place = int(random.random() * weight.size)
    low, high = _room(fixed, state, b1, c1, b2, c2, -place, weight.size - 1 - place)
    if low >= high:
        return 0
    linear, quadratic, free = _lean(fixed, state, b1, c1, b2, c2)
    if not free:
        return 0
    first = 0  # the first column that is not the same
    if b1 == b2:
        while fixed.path[c1, first] == fixed.path[c2, first]:
            first += 1
    weight[:] = 0.0
    weight[place] = 1.0
    lean = linear, quadratic
    top = _weigh(fixed, state, prior, b1, c1, b2, c2, first, lean, weight, place, high, 1)
    bottom = -_weigh(fixed, state, prior, b1, c1, b2, c2, first, lean, weight, place, -low, -1)
    at = random.random() * weight[place + bottom : place + top + 1].sum()
    t = bottom
    while t < top:
        at -= weight[place + t]
        if at < 0:
            break
        t += 1
    if t != 0:
        _put(fixed, state, b2, c2, t)
        if b1 >= 0:
            _put(fixed, state, b1, c1, -t)
    return t


@njit(cache=True, nogil=True)
def _cell(fixed, prior, b, random):
    """A cell: half of the time any, else by the shares of the leaf's group. Its chance does not depend on counts."""
    cells = fixed.path.shape[0]
    if random.random() < 0.5:
        return int(random.random() * cells)
    g, last = fixed.group[b], fixed.path.shape[1] - 1
    at = random.random()
    for c in range(cells):
        p = 1.0
        for j in range(1, last + 1):
            p *= prior.share[g, fixed.path[c, j]]
        at -= p
        if at < 0:
            return c
    return int(random.random() * cells)


@njit(cache=True, nogil=True)
def sweep(fixed, state, prior, singles, within, across, window, random):
    """One sweep: each leaf and its ``visits`` partners in the group, cell by cell; so many moves of each other sort."""
    weight = np.empty(window)
    cells, last = fixed.path.shape[0], fixed.path.shape[1] - 1
    leaves = fixed.leaf.size
    moved = np.zeros(4)
    for g in range(fixed.start.size - 1):
        low, n = fixed.start[g], fixed.start[g + 1] - fixed.start[g]
        for i in range(n):
            b = fixed.members[low + i]
            for _ in range(fixed.visits[b] if n > 1 else 0):
                other = int(random.random() * (n - 1))
                o = fixed.members[low + other + (other >= i)]
                for c in range(cells):
                    column = fixed.path[c, last]
                    if (
                        state.counts[b, column] + state.counts[o, column] > 0
                        and fixed.allowed[b, c]
                        and fixed.allowed[o, c]
                    ):
                        moved[0] += abs(_move(fixed, state, prior, b, c, o, c, weight, random))
            for _ in range(singles):
                c = _cell(fixed, prior, b, random)
                if fixed.allowed[b, c]:
                    moved[1] += abs(_move(fixed, state, prior, -1, -1, b, c, weight, random))
            for _ in range(within):
                c, d = _cell(fixed, prior, b, random), _cell(fixed, prior, b, random)
                if (
                    c != d
                    and fixed.allowed[b, c]
                    and fixed.allowed[b, d]
                    and state.counts[b, fixed.path[c, last]] + state.counts[b, fixed.path[d, last]] > 0
                ):
                    moved[2] += abs(_move(fixed, state, prior, b, c, b, d, weight, random))
            for _ in range(across):
                o = int(random.random() * leaves)
                c = _cell(fixed, prior, b, random)
                d = int(random.random() * cells) if random.random() < 0.2 else c
                if (
                    o != b
                    and fixed.allowed[b, c]
                    and fixed.allowed[o, d]
                    and state.counts[b, fixed.path[c, last]] + state.counts[o, fixed.path[d, last]] > 0
                ):
                    moved[3] += abs(_move(fixed, state, prior, b, c, o, d, weight, random))
    return moved


@njit(cache=True, nogil=True)
def _tables(n, a, random):
    """How many tables n customers of a Chinese restaurant take, with concentration a."""
    found = 0
    for i in range(n):
        if i >= 2000:
            return found + random.poisson(a * math.log((n + a) / (i + a)))
        if random.random() * (a + i) < a:
            found += 1
    return found


@njit(cache=True, nogil=True)
def _pick(log, random):
    most, total = log.max(), 0.0
    for i in range(log.size):
        log[i] = math.exp(log[i] - most)
        total += log[i]
    at = random.random() * total
    for i in range(log.size):
        at -= log[i]
        if at < 0:
            return i
    return log.size - 1


@njit(cache=True, nogil=True)
def inherit(seen, value, above, prefix, kinship, own, random):
    """Shares of all internal nodes, drawn given what is ``seen`` (internal, columns) at their leaves' tables.

    Each node's shares of the columns with one ``prefix`` are Dirichlet about its parent's. To ``seen`` the tables of
    the nodes below are added. ``own`` marks the columns that are looked at. Returns the new kinship.
    """
    nodes, columns = value.shape
    for j in range(nodes - 1, 0, -1):
        for c in range(columns):
            if own[c] and seen[j, c]:
                seen[above[j], c] += _tables(seen[j, c], kinship * value[above[j], c], random)
    sums = np.empty(columns)
    for j in range(nodes):
        sums[:] = 0.0
        for c in range(columns):
            if own[c]:
                alpha = seen[j, c] + (kinship * value[above[j], c] if j else 1.0)
                value[j, c] = random.gamma(max(alpha, 1e-8), 1.0) + 1e-9
                sums[prefix[c]] += value[j, c]
        for c in range(columns):
            if own[c]:
                value[j, c] /= sums[prefix[c]]
    return _kinship(seen, value, above, prefix, own, random)


@njit(cache=True, nogil=True)
def _kinship(seen, value, above, prefix, own, random):
    """Draw how near shares are to their parents', given the tables seen at each node."""
    nodes, columns = value.shape
    log, whole = np.zeros(KINSHIPS.size), np.zeros(columns, np.int64)
    for j in range(1, nodes):
        whole[:] = 0
        for c in range(columns):
            if own[c]:
                whole[prefix[c]] += seen[j, c]
        for c in range(columns):
            for i in range(KINSHIPS.size):
                k = KINSHIPS[i]
                if own[c] and seen[j, c]:
                    a = k * value[above[j], c]
                    log[i] += math.lgamma(a + seen[j, c]) - math.lgamma(a)
                if whole[c]:
                    log[i] += math.lgamma(k) - math.lgamma(k + whole[c])
    return KINSHIPS[_pick(log, random)]


@njit(cache=True, nogil=True)
def spreads(fixed, state, prior, log_weight, random):
    """Draw the spread of each leaf at each split, given its counts: how many leaves have each, (splits, SPREADS)."""
    splits = prior.spread.shape[1]
    found = np.zeros((splits, SPREADS.size))
    log = np.empty(SPREADS.size)
    columns = fixed.depth.size
    for b in range(fixed.leaf.size):
        g = fixed.group[b]
        for j in range(splits):
            log[:] = log_weight[j]
            for c in range(columns):
                n = state.counts[b, c]
                if n == 0:
                    continue
                if fixed.depth[c] == j + 1:
                    m = state.counts[b, fixed.prefix[c]]
                    if m > 1:
                        for i in range(SPREADS.size):
                            a = SPREADS[i] * prior.share[g, c]
                            log[i] += _log_rising(a, n)
                elif fixed.depth[c] == j and n > 1:
                    for i in range(SPREADS.size):
                        log[i] -= _log_rising(SPREADS[i], n)
            k = _pick(log, random)
            prior.spread[b, j] = SPREADS[k]
            found[j, k] += 1
    return found


@njit(cache=True, nogil=True)
def _log_rising(a, n):
    """log a (a + 1) ... (a + n - 1)"""
    if n < 8:
        p = 1.0
        for i in range(n):
            p *= a + i
        return math.log(p)
    return math.lgamma(a + n) - math.lgamma(a)


@njit(cache=True, nogil=True)
def leaf_tables(fixed, state, prior, split, random):
    """Shape (internal, columns): tables of the leaves of each group at one split."""
    seen = np.zeros(prior.share.shape, np.int64)
    for b in range(fixed.leaf.size):
        g = fixed.group[b]
        for c in range(fixed.depth.size):
            if fixed.depth[c] == split and state.counts[b, c]:
                seen[g, c] += _tables(
                    state.counts[b, c], prior.spread[b, split - 1] * prior.share[g, c], random
                )
    return seen


@njit(cache=True, nogil=True)
def size_classes(fixed, state, weight, chance, random):
    """Shape (internal, classes): how many leaves of each group are in each class of sizes, drawn given their sizes."""
    found = np.zeros(weight.shape, np.int64)
    log = np.empty(weight.shape[1])
    for b in range(fixed.leaf.size):
        g, n = fixed.group[b], state.counts[b, 0]
        for z in range(log.size):
            log[z] = math.log(weight[g, z]) + chance[z, n]
        found[g, _pick(log, random)] += 1
    return found


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
    for u in range(children):
        for m in range(draws):
            for c in range(cells):
                if cube[u, m, c]:
                    for j in range(path.shape[1]):
                        found[u, path[c, j], m] += cube[u, m, c]
        for v in range(columns):
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
