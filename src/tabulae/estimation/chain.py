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

_LEAST_SHARE, _CLUMP, _RARE = 1e-12, 32, 1e-5
"""What a share is at least, how many people are renamed together, and the least share that is looked at."""

NOWHERE, ZERO, ONE = np.int64(-1), np.int64(0), np.int64(1)
"""As arguments: a number that is written in a call has a type of its own, for which the function is compiled anew."""


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
        level: shape (internal,): how many internal nodes are above it.
        depth: shape (columns,): by which split a column of ``counts`` is made, rising; 0 for the total.
        prefix: shape (columns,): the column that it is a part of.
        first, end: shapes (columns,): the columns that a column is split into; none of a cell's own.
        cell: shape (columns,): the cell of a column that is one cell's own, -1 of others.
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
    level: np.ndarray
    depth: np.ndarray
    prefix: np.ndarray
    first: np.ndarray
    end: np.ndarray
    cell: np.ndarray
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


class LeafMoves(NamedTuple):
    """How many moves of each sort a leaf makes in a sweep, beside those with its partners.

    Attributes:
        single: one cell.
        within: people of one cell go to another.
        across: people go to any other leaf.
        born: one person comes, or goes.
        changed: one person becomes another.
        moved: one person becomes another in any leaf.
        renamed: see :func:`rename`.
    """

    single: int = 0
    within: int = 0
    across: int = 0
    born: int = 0
    changed: int = 0
    moved: int = 0
    renamed: int = 0


class Prior(NamedTuple):
    """Parameters of the prior.

    Attributes:
        share: shape (internal, columns), where they are drawn.
        tables: shape (internal, columns): what shares were drawn from beside the parent's; 0 where none are.
        drawn: shape (internal, columns): whether the shares of the parts of a column are drawn. Those of parts that a
            node has nobody of tell nothing, and wait until somebody may come: of many cells next to all wait.
        kinship: shape (splits + 1, levels): of shares of each split to those one level above.
        spread: shape (leaves, splits).
        likely: shape (internal, cells): cumulated shares of cells.
        growth: of each internal node, for n = 0, 1 ...: F(n + 1) (n + 1) / F(n), with F the law of the size of a leaf.
        begin: shape (internal + 1,): where those of each internal node begin; beyond the last one F is flat.
        most: shape (internal,): the most people that a leaf of each can have.
    """

    share: np.ndarray
    tables: np.ndarray
    drawn: np.ndarray
    kinship: np.ndarray
    spread: np.ndarray
    likely: np.ndarray
    growth: np.ndarray
    begin: np.ndarray
    most: np.ndarray


@inlined
def draw_shares(value, tables, h, up, first, end, kinship, random):
    """Draw node h's shares of columns from ``first`` to ``end`` about those of its parent; of the root's, from all."""
    total = 0.0
    for c in range(first, end):
        alpha = tables[h, c] + (kinship * value[up, c] if up >= 0 else 1.0)
        value[h, c] = random.gamma(max(alpha, 1e-8), 1.0) + 1e-9
        total += value[h, c]
    for c in range(first, end):
        value[h, c] /= total


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
            a, p, free = _towards(fixed, state, u, c1, NOWHERE)
            u = fixed.parent[u]
        else:
            a, p, free = _towards(fixed, state, v, NOWHERE, c2)
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
    g2, n2 = fixed.group[b2], np.int64(state.counts[b2, 0])
    sized, shrink = first == 0, math.exp(-quadratic)
    weight[here] = 1.0
    up = math.exp(min(linear - 0.5 * quadratic, _STEEP))
    down = math.exp(min(-linear - 0.5 * quadratic, _STEEP))
    top = _weigh(prior, one, g1, n1, k1, two, g2, n2, k2, sized, up, shrink, weight, here, ONE, high)
    bottom = -_weigh(prior, two, g2, n2, k2, one, g1, n1, k1, sized, down, shrink, weight, here, -ONE, -low)
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


@inlined
def _together(fixed, state, prior, b, o, odds, weight, random):
    """Move people of each cell between two leaves; parts of the table where neither has anybody are left out."""
    cells, columns = fixed.path.shape[0], fixed.depth.size
    for part in range(fixed.prefix[columns - cells], fixed.prefix[columns - 1] + 1):
        if state.counts[b, part] + state.counts[o, part] > 0:
            first = fixed.first[part] if columns > 1 else 0
            for column in range(first, fixed.end[part] if columns > 1 else 1):
                c = fixed.cell[column]
                if _anybody(fixed, state, b, c, o, c):
                    _move(fixed, state, prior, b, c, o, c, odds, weight, random)


@inlined
def _somebody(fixed, state, b, column, at):
    """The cell of the person at place ``at`` among those of a leaf in a column."""
    while fixed.cell[column] < 0:
        column, end = fixed.first[column], fixed.end[column] - 1
        while column < end and at >= state.counts[b, column]:
            at -= state.counts[b, column]
            column += 1
    return fixed.cell[column]


@inlined
def _draw_waiting(fixed, prior, g, column, random):
    """Draw the shares of the parts of a column, of all nodes from g on upwards that have none yet."""
    split = fixed.depth[column] + 1
    while not prior.drawn[g, column]:
        h = g
        while not prior.drawn[fixed.above[h], column]:
            h = fixed.above[h]
        draw_shares(
            prior.share, prior.tables, h, fixed.above[h], fixed.first[column], fixed.end[column],
            prior.kinship[split, fixed.level[h]], random,
        )  # fmt: skip
        prior.drawn[h, column] = True


@inlined
def _newcomer(fixed, state, prior, b, random):
    """A cell of a leaf, by the law of one more person there: a Polya urn at each split."""
    column, g = ZERO, fixed.group[b]
    while fixed.cell[column] < 0:
        _draw_waiting(fixed, prior, g, column, random)
        n, spread = state.counts[b, column], prior.spread[b, fixed.depth[column]]
        at = random.random() * (n + spread)
        column, end = fixed.first[column], fixed.end[column] - 1
        while column < end:
            at -= state.counts[b, column] + spread * prior.share[g, column]
            if at < 0:
                break
            column += 1
    return fixed.cell[column]


@inlined
def _settle(fixed, state, prior, b, o, random):
    """Somebody of leaf b becomes a newcomer of leaf o, perhaps the same, if that is accepted.

    Anyone of b is as likely as another, and the cell is drawn by the prior's own law: of what the prior says, only the
    law of sizes is left in the ratio of Metropolis and Hastings.
    """
    n = state.counts[b, 0]
    if n == 0:
        return
    c = _somebody(fixed, state, b, 0, int(random.random() * n))
    for j in range(fixed.path.shape[1]):
        state.counts[b, fixed.path[c, j]] -= 1
    d = _newcomer(fixed, state, prior, o, random)
    for j in range(fixed.path.shape[1]):
        state.counts[b, fixed.path[c, j]] += 1
    if (
        (b == o and c == d)
        or not fixed.allowed[o, d]
        or _room(fixed, state, prior, b, c, o, d, ZERO, ONE)[1] < 1
    ):
        return
    linear, quadratic, free = _lean(fixed, state, b, c, o, d)
    odds = math.exp(min(linear - 0.5 * quadratic, _STEEP))
    if b != o:
        m = state.counts[o, 0]
        odds *= _grown(prior, fixed.group[o], m) / (m + 1) * n / _grown(prior, fixed.group[b], n - 1)
    if free and random.random() < odds:
        _put(fixed, state, o, d, ONE)
        _put(fixed, state, b, c, -ONE)


@inlined
def _come_or_go(fixed, state, prior, b, random):
    """One person more in a leaf, or one less, as :func:`_settle`."""
    comes, n, g = random.random() < 0.5, state.counts[b, 0], fixed.group[b]
    if n == 0 and not comes:
        return
    at = int(random.random() * n)
    c = _newcomer(fixed, state, prior, b, random) if comes else _somebody(fixed, state, b, 0, at)
    low, high = _room(fixed, state, prior, NOWHERE, NOWHERE, b, c, -ONE, ONE)
    linear, quadratic, free = _lean(fixed, state, NOWHERE, NOWHERE, b, c)
    if not free or not fixed.allowed[b, c] or (high < 1 if comes else low > -1):
        return
    odds = math.exp(min((linear if comes else -linear) - 0.5 * quadratic, _STEEP))
    odds *= _grown(prior, g, n) / (n + 1) if comes else n / _grown(prior, g, n - 1)
    if random.random() < odds:
        _put(fixed, state, b, c, ONE if comes else -ONE)


@inlined
def _alone(fixed, state, prior, b, moves, odds, weight, random):
    """All ``moves`` of a leaf but those with its partners."""
    cells, leaves = fixed.path.shape[0], fixed.leaf.size
    for _ in range(moves.single):
        c = _cell(fixed, prior, b, random)
        if fixed.allowed[b, c]:
            _move(fixed, state, prior, NOWHERE, NOWHERE, b, c, odds, weight, random)
    for _ in range(moves.within):
        c, d = _cell(fixed, prior, b, random), _cell(fixed, prior, b, random)
        if c != d and _anybody(fixed, state, b, c, b, d):
            _move(fixed, state, prior, b, c, b, d, odds, weight, random)
    for _ in range(moves.across):
        o = int(random.random() * leaves)
        c = _cell(fixed, prior, b, random)
        d = int(random.random() * cells) if random.random() < 0.2 else c
        if o != b and _anybody(fixed, state, b, c, o, d):
            _move(fixed, state, prior, b, c, o, d, odds, weight, random)
    for _ in range(moves.born):
        _come_or_go(fixed, state, prior, b, random)
    for _ in range(moves.changed):
        _settle(fixed, state, prior, b, b, random)
    for _ in range(moves.moved):
        o, there = (
            int(random.random() * leaves),
            random.random() < 0.5,
        )  # so a move and its reverse are equally likely
        _settle(fixed, state, prior, b if there else o, o if there else b, random)


@moving(cache=True)
def sweep(fixed, state, prior, moves, odds, weight, random):
    """One sweep: each leaf and its ``visits`` partners in the group, cell by cell, and its other ``moves``.

    ``odds`` (2, 2, splits + 1) and ``weight`` are room to write in; the latter's length is how far a move reaches.
    """
    for g in range(fixed.start.size - 1):
        low, n = fixed.start[g], fixed.start[g + 1] - fixed.start[g]
        for i in range(n):
            b = fixed.members[low + i]
            for _ in range(fixed.visits[b] if n > 1 else 0):
                other = int(random.random() * (n - 1))
                o = fixed.members[low + other + (other >= i)]
                _together(fixed, state, prior, b, o, odds, weight, random)
            _alone(fixed, state, prior, b, moves, odds, weight, random)


@inlined
def _log_gamma_drawn(shape, random):
    """The logarithm of a gamma variable, however small its shape."""
    return math.log(random.gamma(shape + 1.0, 1.0)) + math.log(1.0 - random.random()) / shape


@inlined
def _shared(prior, h, e, d, more, less, random):
    """Divide what columns e and d have of the shares of node h, with Dirichlet parameters ``less`` and ``more``."""
    both = prior.share[h, e] + prior.share[h, d]
    ratio = _log_gamma_drawn(less, random) - _log_gamma_drawn(more, random)
    part = 1.0 / (1.0 + math.exp(min(ratio, _STEEP)))
    prior.share[h, d] = max(both * part, _LEAST_SHARE)
    prior.share[h, e] = max(both - both * part, _LEAST_SHARE)


@inlined
def _shared_at(fixed, prior, h, e, d, tables, random):
    """Draw the shares of columns e and d at node h by those of its parent, with so many ``tables`` of d seen."""
    up, kinship = fixed.above[h], prior.kinship[fixed.depth[e], fixed.level[h]]
    less = kinship * prior.share[up, e] if up >= 0 else 1.0
    more = kinship * prior.share[up, d] if up >= 0 else 1.0
    _shared(prior, h, e, d, more + tables, less, random)


@inlined
def _is_above(fixed, top, h):
    """Whether ``top`` is internal node h, or above it."""
    while h > top:
        h = fixed.above[h]
    return h == top


@inlined
def _other_name(fixed, state, prior, seen, b, e, top, n, weight, random):
    """Another column for the n people of e, who are of leaf b and all that ``top`` has; e where there is none.

    Drawn by the likelihood and by the shares of the parent of ``top``, among those that ``top`` has nobody of. Where
    that share is next to nothing, a column is neither given up nor taken.
    """
    part, up, c = fixed.prefix[e], fixed.above[top], fixed.cell[e]
    first, end, total = fixed.first[part], fixed.end[part], 0.0
    if up >= 0 and prior.share[up, e] < _RARE:
        return e
    for d in range(first, end):
        w = prior.share[up, d] if up >= 0 else 1.0
        if d != e:
            c2 = fixed.cell[d]
            free = w >= _RARE and seen[top, d] == 0 and fixed.allowed[b, c2]
            if free and _room(fixed, state, prior, b, c, b, c2, ZERO, n)[1] < n:
                free = False
            if free:
                linear, quadratic, free = _lean(fixed, state, b, c, b, c2)
                w *= math.exp(min(n * (linear - 0.5 * n * quadratic), _STEEP))
            if not free:
                w = 0.0
        weight[d] = w
        total += w
    at = random.random() * total
    for d in range(first, end):
        at -= weight[d]
        if at < 0:
            return d
    return e


@inlined
def _renamed(fixed, state, prior, seen, b, e, top, n, d, old, random):
    """Give the n people of column e in leaf b another column d, with all shares from ``top`` on, if accepted."""
    g, c = fixed.group[b], fixed.cell[e]
    spread = prior.spread[b, fixed.path.shape[1] - 2]
    before = after = 1.0
    for i in range(1, n):
        before *= (spread * prior.share[g, e] + i) / n
    for h in range(top, g + 1):
        if _is_above(fixed, top, h) and _is_above(fixed, h, g):
            old[0, h], old[1, h] = prior.share[h, e], prior.share[h, d]
            _shared_at(fixed, prior, h, e, d, 1.0, random)
    for i in range(1, n):
        after *= (spread * prior.share[g, d] + i) / n
    if random.random() * before >= after:
        for h in range(top, g + 1):
            if _is_above(fixed, top, h) and _is_above(fixed, h, g):
                prior.share[h, e], prior.share[h, d] = old[0, h], old[1, h]
        return
    _put(fixed, state, b, fixed.cell[d], n)
    _put(fixed, state, b, c, -n)
    h = g
    while h >= 0:
        seen[h, e] -= n
        seen[h, d] += n
        h = fixed.above[h]
    for h in range(top, fixed.above.size):
        if prior.drawn[h, fixed.prefix[e]] and _is_above(fixed, top, h) and not _is_above(fixed, h, g):
            _shared_at(fixed, prior, h, e, d, 0.0, random)


@inlined
def _seen(fixed, state, seen):
    """Write how many people each internal node has of each cell's own column."""
    columns = fixed.depth.size
    lowest = columns - fixed.path.shape[0]
    seen[:] = 0
    for b in range(fixed.leaf.size):
        for part in range(fixed.prefix[lowest], fixed.prefix[columns - 1] + 1):
            if state.counts[b, part] > 0:
                for column in range(fixed.first[part], fixed.end[part]):
                    if state.counts[b, column] > 0:
                        seen[fixed.group[b], column] += state.counts[b, column]
    for h in range(fixed.above.size - 1, 0, -1):
        for column in range(lowest, columns):
            seen[fixed.above[h], column] += seen[h, column]


@moving(cache=True)
def rename(fixed, state, prior, seen, old, weight, tries, random):
    """All people of a cell in an area, where one leaf has them, become others by the last split, that the area has not.

    How likely a cell is in an area hangs together with whether somebody is in it: each alone moves slowly. Here both
    move. A person of each leaf and an area above it are drawn. If all people of the area in that person's cell are of
    this leaf, so are another category, by the likelihood and the shares of the area's parent, and the shares of both
    categories in the area and below it, by the law that one seen person gives them. Then what the prior says of one
    person cancels; what it says of more is a ratio of Metropolis and Hastings.

    ``seen`` (internal, columns), ``old`` (2, internal) and ``weight`` (columns,) are room to write in.
    """
    last = fixed.path.shape[1] - 1
    _seen(fixed, state, seen)
    for b in range(fixed.leaf.size):
        g, levels = fixed.group[b], 1
        while fixed.above[g] >= 0:
            g, levels = fixed.above[g], levels + 1
        for _ in range(tries if state.counts[b, 0] else 0):
            c = _somebody(fixed, state, b, 0, int(random.random() * state.counts[b, 0]))
            e, top = fixed.path[c, last], fixed.group[b]
            for _ in range(int(random.random() * levels)):
                top = fixed.above[top]
            n = np.int64(state.counts[b, e])
            if seen[top, e] != n or n > _CLUMP:
                continue
            d = _other_name(fixed, state, prior, seen, b, e, top, n, weight, random)
            if d != e:
                _renamed(fixed, state, prior, seen, b, e, top, n, d, old, random)
