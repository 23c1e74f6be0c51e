"""Compiled moves of the sampler of :mod:`tabulae.estimation.posterior`: one Markov chain over whole tables of leaves.

A move takes two places (leaf, cell), or one, and draws how many people go from the first to the second from the exact
conditional law, within a window about what is there now. The window's place is random, so that a move and its reverse
are equally likely, whatever its size.
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import numpy as np

from ..errors import require

njit = require("numba", "areas", "the estimator posterior").njit
moving = partial(njit, nogil=True, _nrt=False)
"""Compiled without counts of references: two threads that share arrays spend nine tenths of their time on these.

What is compiled so makes no array of its own.
"""
inlined = moving(forceinline=True)

_STEEP, _LARGE, _NOTHING = 200.0, 1e100, 1e-13
"""The steepest log weight of a step, how large weights become before all are made smaller, and what is left out."""

_ROUNDS, _TRIED, _OF_TOTAL = 8, 3, 3
"""Rounds of exchanges at most, partners in a round, and how much a total counts beside another column."""

SHAPE = 6.0
SPREADS = np.array([0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 1000.0])
KINSHIPS = np.array([1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0])


class Fixed(NamedTuple):
    """What is known: the tree, what was measured where, the limits.

    Attributes:
        parent: shape (nodes,), -1 for the root; parents come first.
        leaf: shape (leaves,): the node of each leaf.
        group: shape (leaves,): its class of the prior, a row of ``above``.
        members, start: leaves sorted by group, and where each group begins.
        path: shape (cells, splits + 1): columns of ``counts`` that a person of a cell is counted in, the total first.
        answer: shape (cells, queries): the column of ``residual`` of each query.
        noise: shape (cells, queries): the column of ``precision`` of each query.
        allowed: shape (leaves, cells).
        held, is_held: shapes (cells, margins) and (nodes, margins): classes of margins that are exact, and where.
        part, least, most: shapes (cells,), (leaves, parts) twice: bounds on sums of cells.
        above: shape (internal,): the parent of each internal node, among the internal nodes.
        depth: shape (columns,): by which split a column of ``counts`` is made, rising; 0 for the total.
        prefix: shape (columns,): the column that it is a part of.
        visits: shape (leaves,): partners of each leaf in a sweep. It must not depend on where the chain is.
        kind: shape (leaves,): leaves of a kind have spreads of one law.
    """

    parent: np.ndarray
    leaf: np.ndarray
    group: np.ndarray
    members: np.ndarray
    start: np.ndarray
    path: np.ndarray
    answer: np.ndarray
    noise: np.ndarray
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
    kind: np.ndarray


class State(NamedTuple):
    """Where the chain is.

    Attributes:
        counts: shape (leaves, columns).
        residual: shape (nodes, answers).
        parts: shape (leaves, parts).
        precision: of normal noise: shape (nodes, queries), or (nodes, answers) where it is drawn by :func:`mix`.
    """

    counts: np.ndarray
    residual: np.ndarray
    parts: np.ndarray
    precision: np.ndarray


class Prior(NamedTuple):
    """Parameters of the prior.

    Attributes:
        share: shape (internal, columns).
        spread: shape (leaves, splits).
        likely: shape (internal, cells): cumulated shares of cells.
        growth: of each internal node, for n = 0, 1 ...: F(n + 1) (n + 1) / F(n), with F the law of the size of a leaf.
        begin: shape (internal + 1,): where those of each internal node begin; beyond the last one F is flat.
        most: shape (internal,): the most people that a leaf of each can have.
    """

    share: np.ndarray
    spread: np.ndarray
    likely: np.ndarray
    growth: np.ndarray
    begin: np.ndarray
    most: np.ndarray


@inlined
def _odds(fixed, state, prior, b, c, first, odds):
    """Factors of P(one more in cell c of leaf b) / P(as it is), but that of the size: above the line, and below it.

    Each rises by 1 with each person. Columns before ``first`` stay. Returns how many there are.
    """
    last, g = fixed.path.shape[1] - 1, fixed.group[b]
    for j in range(first, last + 1):
        column = fixed.path[c, j]
        n = state.counts[b, column]
        if j > 0:
            odds[0, j - first] = n + prior.spread[b, j - 1] * prior.share[g, column]
        odds[1, j - first] = n + (prior.spread[b, j] if j < last else 1.0)
    return last + 1 - first


@inlined
def _towards(fixed, state, u, c_less, c_more):
    """What :func:`_lean` says, of one node, where one cell has fewer and another more (-1: none)."""
    linear, quadratic = 0.0, 0.0
    for e in range(fixed.is_held.shape[1]):
        if fixed.is_held[u, e]:
            less = -1 if c_less < 0 else fixed.held[c_less, e]
            more = -1 if c_more < 0 else fixed.held[c_more, e]
            if less != more:
                return 0.0, 0.0, False
    for q in range(fixed.answer.shape[1]):
        less = -1 if c_less < 0 else fixed.answer[c_less, q]
        more = -1 if c_more < 0 else fixed.answer[c_more, q]
        if less == more:
            continue
        if less >= 0:
            p = state.precision[u, fixed.noise[c_less, q]]
            linear -= p * state.residual[u, less]
            quadratic += p
        if more >= 0:
            p = state.precision[u, fixed.noise[c_more, q]]
            linear += p * state.residual[u, more]
            quadratic += p
    return linear, quadratic, True


@inlined
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


@inlined
def _put(fixed, state, b, c, t):
    for j in range(fixed.path.shape[1]):
        state.counts[b, fixed.path[c, j]] += t
    state.parts[b, fixed.part[c]] += t
    u = fixed.leaf[b]
    while u >= 0:
        for q in range(fixed.answer.shape[1]):
            state.residual[u, fixed.answer[c, q]] -= t
        u = fixed.parent[u]


@inlined
def _room(fixed, state, prior, b1, c1, b2, c2, low, high):
    """How few and how many can go from (b1, c1) to (b2, c2), within counts, bounds and sizes."""
    last = fixed.path.shape[1] - 1
    low = max(low, -state.counts[b2, fixed.path[c2, last]])
    p2 = fixed.part[c2]
    p1 = p2
    if b1 >= 0:
        high = min(high, state.counts[b1, fixed.path[c1, last]])
        p1 = fixed.part[c1]
    if b1 != b2:
        high = min(high, prior.most[fixed.group[b2]] - state.counts[b2, 0])
        if b1 >= 0:
            low = max(low, state.counts[b1, 0] - prior.most[fixed.group[b1]])
    elif p1 == p2:
        return low, high
    low = max(low, fixed.least[b2, p2] - state.parts[b2, p2])
    high = min(high, fixed.most[b2, p2] - state.parts[b2, p2])
    if b1 >= 0:
        low = max(low, state.parts[b1, p1] - fixed.most[b1, p1])
        high = min(high, state.parts[b1, p1] - fixed.least[b1, p1])
    return low, high


@inlined
def _grown(prior, g, n):
    """F(n + 1) (n + 1) / F(n) of an internal node."""
    at = prior.begin[g] + n
    return prior.growth[at] if at < prior.begin[g + 1] else n + 1.0


@inlined
def _weigh(prior, less, g1, n1, k1, more, g2, n2, k2, sized, factor, shrink, weight, here, sign, steps):
    """Weights of 1, 2 ... ``steps`` people who go one way, written from ``here``: how far it is worth to look.

    They leave ``k1`` factors ``less`` and come to ``k2`` factors ``more`` (0: nowhere); where the law of sizes has a
    say, n1 and n2 are the sizes now, of leaves of g1 and g2. ``factor`` is the likelihood of the first step against
    none, and ``shrink`` makes it that of the next.
    """
    w = largest = weight[here]
    for i in range(steps):
        top, bottom = factor, 1.0
        if sized and k2 > 0:
            top *= _grown(prior, g2, n2 + i)
        if sized and k1 > 0:
            bottom *= _grown(prior, g1, n1 - i - 1)
        for j in range(k2):
            bottom *= more[1, j] + i
            if j > 0 or not sized:
                top *= more[0, j] + i
        for j in range(k1):
            top *= less[1, j] - i - 1
            if j > 0 or not sized:
                bottom *= less[0, j] - i - 1
        ratio = top / bottom
        factor *= shrink
        w *= ratio
        weight[here + sign * (i + 1)] = w
        largest = max(largest, w)
        if w > _LARGE:
            for k in range(weight.size):
                weight[k] /= _LARGE
            w, largest = w / _LARGE, largest / _LARGE
        if w < _NOTHING * largest and ratio < 0.5:
            return i + 1
    return steps


@inlined
def _move(fixed, state, prior, b1, c1, b2, c2, odds, weight, random):
    """Draw how many go from (b1, c1) to (b2, c2); from nowhere, where b1 is -1. Returns how many."""
    here = int(random.random() * weight.size)
    low, high = _room(fixed, state, prior, b1, c1, b2, c2, -here, weight.size - 1 - here)
    if low >= high:
        return 0
    linear, quadratic, free = _lean(fixed, state, b1, c1, b2, c2)
    if not free:
        return 0
    first = 0  # the first column that is not the same
    if b1 == b2:
        while fixed.path[c1, first] == fixed.path[c2, first]:
            first += 1
    one, two = odds[0], odds[1]
    g1 = n1 = k1 = 0
    if b1 >= 0:
        k1 = _odds(fixed, state, prior, b1, c1, first, one)
        g1, n1 = fixed.group[b1], state.counts[b1, 0]
    k2 = _odds(fixed, state, prior, b2, c2, first, two)
    g2, n2 = fixed.group[b2], state.counts[b2, 0]
    sized, shrink = first == 0, math.exp(-quadratic)
    weight[here] = 1.0
    up = math.exp(min(linear - 0.5 * quadratic, _STEEP))
    down = math.exp(min(-linear - 0.5 * quadratic, _STEEP))
    top = _weigh(prior, one, g1, n1, k1, two, g2, n2, k2, sized, up, shrink, weight, here, 1, high)
    bottom = -_weigh(prior, two, g2, n2, k2, one, g1, n1, k1, sized, down, shrink, weight, here, -1, -low)
    total = 0.0
    for t in range(bottom, top + 1):
        total += weight[here + t]
    at = random.random() * total
    t = bottom
    while t < top:
        at -= weight[here + t]
        if at < 0:
            break
        t += 1
    if t != 0:
        _put(fixed, state, b2, c2, t)
        if b1 >= 0:
            _put(fixed, state, b1, c1, -t)
    return t


@inlined
def _cell(fixed, prior, b, random):
    """A cell: half of the time any, else by the shares of the leaf's group. Its chance does not depend on counts."""
    at, last = 2 * random.random(), fixed.path.shape[0] - 1
    if at < 1:
        return int(at * (last + 1))
    return min(np.searchsorted(prior.likely[fixed.group[b]], at - 1), last)


@inlined
def _anybody(fixed, state, b, c, o, d):
    """Whether both cells can be, and somebody is in one of them."""
    last = fixed.path.shape[1] - 1
    found = state.counts[b, fixed.path[c, last]] + state.counts[o, fixed.path[d, last]] > 0
    return found and fixed.allowed[b, c] and fixed.allowed[o, d]


@moving(cache=True)
def sweep(fixed, state, prior, singles, within, across, odds, weight, random):
    """One sweep: each leaf and its ``visits`` partners in the group, cell by cell; so many moves of each other sort.

    ``odds`` (2, 2, splits + 1) and ``weight`` are room to write in; the latter's length is how far a move reaches.
    """
    cells = fixed.path.shape[0]
    leaves = fixed.leaf.size
    for g in range(fixed.start.size - 1):
        low, n = fixed.start[g], fixed.start[g + 1] - fixed.start[g]
        for i in range(n):
            b = fixed.members[low + i]
            for _ in range(fixed.visits[b] if n > 1 else 0):
                other = int(random.random() * (n - 1))
                o = fixed.members[low + other + (other >= i)]
                for c in range(cells):
                    if _anybody(fixed, state, b, c, o, c):
                        _move(fixed, state, prior, b, c, o, c, odds, weight, random)
            for _ in range(singles):
                c = _cell(fixed, prior, b, random)
                if fixed.allowed[b, c]:
                    _move(fixed, state, prior, -1, -1, b, c, odds, weight, random)
            for _ in range(within):
                c, d = _cell(fixed, prior, b, random), _cell(fixed, prior, b, random)
                if c != d and _anybody(fixed, state, b, c, b, d):
                    _move(fixed, state, prior, b, c, b, d, odds, weight, random)
            for _ in range(across):
                o = int(random.random() * leaves)
                c = _cell(fixed, prior, b, random)
                d = int(random.random() * cells) if random.random() < 0.2 else c
                if o != b and _anybody(fixed, state, b, c, o, d):
                    _move(fixed, state, prior, b, c, o, d, odds, weight, random)


@njit(cache=True, nogil=True)
def mix(precision, residual, rate, query, random):
    """Draw the precision of each answer with Laplace noise, given its residual e; written to (nodes, answers).

    exp(-rate |e|) is a mixture of exp(-p e**2 / 2): given e, p is inverse Gaussian, of mean rate / |e| and shape
    rate**2. It holds for each number e, so for whole ones. ``rate`` has shape (nodes, queries).

    Reference: Park and Casella, "The Bayesian Lasso" (2008), section 2.
    """
    for u in range(precision.shape[0]):
        for a in range(precision.shape[1]):
            r, e = rate[u, query[a]], abs(residual[u, a])
            if r == 0.0:
                continue
            if e > 0:
                precision[u, a] = random.wald(r / e, r * r)
            else:
                precision[u, a] = (r / random.normal()) ** 2


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
    """Draw the spread of each leaf at each split, given its counts; ``log_weight`` (kinds, splits, SPREADS).

    Returns how many leaves of each kind have each spread, of the same shape.
    """
    splits = prior.spread.shape[1]
    found = np.zeros(log_weight.shape)
    log = np.empty(SPREADS.size)
    first = np.searchsorted(fixed.depth, np.arange(splits + 2))
    for b in range(fixed.leaf.size):
        g = fixed.group[b]
        for j in range(splits):
            log[:] = log_weight[fixed.kind[b], j]
            for c in range(first[j], first[j + 1]):
                n = state.counts[b, c]
                if n > 1:
                    for i in range(SPREADS.size):
                        log[i] -= _log_rising(SPREADS[i], n)
            for c in range(first[j + 1], first[j + 2]):
                n = state.counts[b, c]
                if n > 0 and state.counts[b, fixed.prefix[c]] > 1:
                    for i in range(SPREADS.size):
                        log[i] += _log_rising(SPREADS[i] * prior.share[g, c], n)
            k = _pick(log, random)
            prior.spread[b, j] = SPREADS[k]
            found[fixed.kind[b], j, k] += 1
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
    first, last = np.searchsorted(fixed.depth, np.array([split, split + 1]))
    for b in range(fixed.leaf.size):
        g = fixed.group[b]
        for c in range(first, last):
            if state.counts[b, c]:
                seen[g, c] += _tables(
                    state.counts[b, c], prior.spread[b, split - 1] * prior.share[g, c], random
                )
    return seen


@njit(cache=True, nogil=True)
def size_classes(fixed, state, weight, chance, random):
    """Shape (internal, classes): how many leaves of each group are in each class of sizes, drawn given their sizes."""
    found, last = np.zeros(weight.shape, np.int64), chance.shape[1] - 1
    log = np.empty(weight.shape[1])
    for b in range(fixed.leaf.size):
        g, n = fixed.group[b], min(state.counts[b, 0], last)
        for z in range(log.size):
            log[z] = math.log(weight[g, z]) + chance[z, n]
        found[g, _pick(log, random)] += 1
    return found


@njit(cache=True, nogil=True)
def grow(weight, density, begin, growth):
    """Write ``growth`` of :class:`Prior`: weights (internal, classes) of the laws (classes, sizes) of each node."""
    for g in range(weight.shape[0]):
        last, n = 0.0, begin[g + 1] - begin[g]
        for x in range(n + 1):
            now = 0.0
            for z in range(weight.shape[1]):
                now += weight[g, z] * density[z, x]
            now = max(now, 1e-280)
            if x > 0:
                growth[begin[g] + x - 1] = now / last * x
            last = now


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
