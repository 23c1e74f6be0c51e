"""Compiled draws of the parameters that :mod:`tabulae.estimation.posterior` has, given the counts of all leaves."""

from __future__ import annotations

import math

import numpy as np

from ..errors import require

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
