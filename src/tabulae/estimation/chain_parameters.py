"""Compiled, for :mod:`tabulae.estimation.posterior`: draws of its parameters given the counts; the counts to keep."""

from __future__ import annotations

import math

import numpy as np

from ..errors import require
from .chain import draw_shares

njit = require("numba", "areas", "the estimator posterior").njit

SHAPE = 6.0
SPREADS = np.array([0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 1000.0])
KINSHIPS = np.array([1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0])


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
def inherit(tables, value, drawn, kinship, above, level, first, end, parts, every, random):
    """Draw shares of all internal nodes, and how near they are to those one level above.

    Each node's shares of the parts of a column are Dirichlet about its parent's. First ``tables`` (internal, columns)
    of the leaves are passed up: those of the nodes below are added. Then, level by level, the ``kinship`` (levels,) is
    drawn with the level's shares integrated out, and the shares given both. Where no table is, no share is drawn,
    unless ``every`` is to be: ``drawn`` says where they are. ``parts`` is the first of the columns, and the one after
    the last.

    Reference: Teh, Jordan, Beal and Blei, "Hierarchical Dirichlet Processes" (2006), section 5.3.
    """
    low, high = parts
    for j in range(value.shape[0] - 1, 0, -1):
        up, k = above[j], kinship[level[j]]
        for c in range(first[low], end[high - 1]):
            if tables[j, c]:
                tables[up, c] += _tables(tables[j, c], k * value[up, c], random)
    for at in range(kinship.size):
        if at > 0:
            kinship[at] = _kinship(tables, value, above, level, first, end, parts, at, random)
        for j in range(value.shape[0]):
            for p in range(low, high if level[j] == at else low):
                drawn[j, p] = at == 0 or every or tables[j, first[p] : end[p]].any()
                if drawn[j, p]:
                    draw_shares(value, tables, j, above[j], first[p], end[p], kinship[at], random)


@njit(cache=True, nogil=True)
def _kinship(tables, value, above, level, first, end, parts, at, random):
    """Draw how near shares of one level are to their parents', given the tables seen at each node."""
    log = np.zeros(KINSHIPS.size)
    for j in range(value.shape[0]):
        for p in range(parts[0], parts[1] if level[j] == at else parts[0]):
            whole = 0
            for c in range(first[p], end[p]):
                n = tables[j, c]
                whole += n
                for i in range(KINSHIPS.size if n else 0):
                    log[i] += _log_rising(KINSHIPS[i] * value[above[j], c], n)
            for i in range(KINSHIPS.size if whole else 0):
                log[i] -= _log_rising(KINSHIPS[i], whole)
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
            for p in range(first[j], first[j + 1]):
                n = state.counts[b, p]
                if n < 2:  # one person is in any part by its share, whatever the spread
                    continue
                for i in range(SPREADS.size):
                    log[i] -= _log_rising(SPREADS[i], n)
                for c in range(fixed.first[p], fixed.end[p]):
                    n = state.counts[b, c]
                    for i in range(SPREADS.size if n else 0):
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
def leaf_tables(fixed, state, prior, random):
    """Write ``tables`` of :class:`~.chain.Prior`: those of the leaves of each group."""
    prior.tables[:] = 0
    for b in range(fixed.leaf.size):
        g = fixed.group[b]
        for p in range(fixed.depth.size):
            for c in range(fixed.first[p], fixed.end[p] if state.counts[b, p] else 0):
                if state.counts[b, c]:
                    a = prior.spread[b, fixed.depth[p]] * prior.share[g, c]
                    prior.tables[g, c] += _tables(state.counts[b, c], a, random)


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
def kept(fixed, state):
    """The counts of cells that are not 0, leaf by leaf: the counts, their cells, and where each leaf begins and ends.

    numpy would hold up the other chain, and copy all cells first.
    """
    counts, column = state.counts, fixed.path[:, -1]
    begin = np.zeros(len(counts) + 1, np.int32)
    for b in range(len(counts)):
        begin[b + 1] = begin[b]
        for c in range(column.size if counts[b, 0] else 0):
            begin[b + 1] += counts[b, column[c]] != 0
    count, cell = np.empty(begin[-1], np.int64), np.empty(begin[-1], np.int32)
    for b in range(len(counts)):
        i = begin[b]
        for c in range(column.size if begin[b + 1] > i else 0):
            n = counts[b, column[c]]
            if n:
                count[i], cell[i] = n, c
                i += 1
    return count, cell, begin
