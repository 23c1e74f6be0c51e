"""Least squares of many areas' counts at once, each parent's divided among its children: alternating directions.

A problem has one unknown for each child and each of its parent's cells that the child can have. Inner loops are
compiled.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..compiled import njit

step = njit(cache=True, nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True, forceinline=True)
"""A part of what is compiled here. Inlined, its loops are over arrays that share nothing, and are faster for it."""

FREE = -1
"""In place of a run's total: nothing is held of it."""

RELAXED = 1.6
STIFF = 10.0  # times the weight of the finest query: what a step off the feasible counts costs
CHECKED = 10  # iterations between looks at what is missing
PATIENCE = 600  # iterations
SUMMED = 10.0  # times the tolerance of a count: how far what an answer counts may move between looks
NEWTON, NEAR = 50, 1e-9  # steps to a threshold, and how close its sum comes, relative


@njit(cache=True, nogil=True)
def runs_of(first, cell, outer, parent, held_first, held_key, held_people, free):
    """The unknowns of some children, in runs of which the sum is held.

    Args:
        first, cell: the cells that each parent has, rising.
        outer: shape (all cells,): what is held of each; it does not fall.
        parent: shape (children,): position of each child's parent in ``first``.
        held_first, held_key, held_people: of each child, rising; not read where ``free``.
        free: nothing is held: a child's unknowns are one run.

    Returns:
        child: shape (children + 1,): where each child's runs begin.
        begin: shape (runs,): the position in ``cell`` of each run's first cell.
        run: shape (runs + 1,): where each run's unknowns begin.
        total: shape (runs,): their sum, or FREE.
        lost: the first child with held people where its parent has none, or -1.
    """
    children = parent.size
    child = np.zeros(children + 1, np.int64)
    for c in range(children):
        child[c + 1] = child[c] + (1 if free else held_first[c + 1] - held_first[c])
    begin, run = np.zeros(child[children], np.int64), np.zeros(child[children] + 1, np.int64)
    total = np.full(child[children], FREE, np.int64)
    for c in range(children):
        i, high = first[parent[c]], first[parent[c] + 1]
        for r in range(child[c], child[c + 1]):
            begin[r] = i
            if free:
                i = high
            else:
                k = held_first[c] + r - child[c]
                total[r] = held_people[k]
                while i < high and outer[cell[i]] < held_key[k]:
                    i += 1
                begin[r] = i
                while i < high and outer[cell[i]] == held_key[k]:
                    i += 1
                if i == begin[r]:
                    return child, begin, run, total, c
            run[r + 1] = run[r] + i - begin[r]
    return child, begin, run, total, -1


@njit(cache=True, nogil=True)
def answers_of(cell, child, begin, run, rows, asked, sizes):
    """Which rows of each query count some unknown of each child.

    Args:
        rows: shape (queries, all cells).
        asked: shape (children, queries), boolean.
        sizes: rows that each query has.

    Returns:
        block: shape (children * queries + 1,): where the answers of each child to each query begin.
        row: shape (answers,): the row of its query that each answer is of.
        slot: shape (queries, unknowns), int32: the answer that counts each unknown; -1 where it is not asked.
    """
    children, queries = asked.shape
    unknowns = run[child[children]]
    block = np.zeros(children * queries + 1, np.int64)
    slot = np.full((queries, unknowns), -1, np.int32)
    most = 0
    for q in range(queries):
        most = max(most, sizes[q])
    seen, place = np.full((queries, most), -1, np.int32), np.zeros((queries, most), np.int32)
    row = np.empty(max(16, unknowns), np.int32)
    count = 0
    for c in range(children):
        for q in range(queries):
            if asked[c, q]:
                for r in range(child[c], child[c + 1]):
                    for k in range(run[r + 1] - run[r]):
                        here = rows[q, cell[begin[r] + k]]
                        if seen[q, here] != c:
                            seen[q, here], place[q, here] = c, count
                            if count == row.size:
                                longer = np.empty(2 * count, np.int32)
                                longer[:count] = row
                                row = longer
                            row[count] = here
                            count += 1
                        slot[q, run[r] + k] = place[q, here]
            block[c * queries + q + 1] = count
    return block, row[:count].copy(), slot


class _Runs(NamedTuple):
    """The unknowns of one parent's children, as :func:`runs_of` has them; ``begin`` is a position in its cells."""

    child: np.ndarray
    begin: np.ndarray
    run: np.ndarray
    total: np.ndarray


class _Answers(NamedTuple):
    """Their answers, as :func:`answers_of` has them, numbered from ``base``; the first ``nested`` queries nest."""

    slot: np.ndarray
    block: np.ndarray
    base: int
    nested: int


class _Inverse(NamedTuple):
    """The matrix of a step in x, child by child, ready to be divided by.

    Attributes:
        tau: what stiffness adds to its diagonal.
        alpha: shape (answers,): of each row of a query that nests, the weight of its rank-one step.
        peeled: shape (nested, unknowns): what the row of an unknown takes from it.
        first: shape (children + 1,): where the matrix of each child begins in ``across``.
        across: those of the queries that cut across, a row each.
        sums: shape (answers,): scratch.
    """

    tau: float
    alpha: np.ndarray
    peeled: np.ndarray
    first: np.ndarray
    across: np.ndarray
    sums: np.ndarray


@njit(cache=True, nogil=True)
def least_squares(
    child, begin, run, total, cells, people, rooted, slot, block, y, weight, nested, tolerance, found
):
    """Divide one parent's counts among its children: real numbers that are nearly feasible.

        minimise    sum_v sum_q weight[v, q] |Q_q x_v - y_vq|^2 / 2
        subject to  x >= 0,  sums of runs are held,  sum_v x_v = people (not where ``rooted``)

    By alternating directions on two copies of x: z is 0 or more and keeps held sums, s keeps the parent's counts. With
    H = sum weight Q'Q the step in x has the matrix H + 2 rho: of queries that nest it is inverted row by row, those
    that cut across them are joined by Woodbury's identity.

    Args:
        child, begin, run, total: the runs of these children, numbered from 0, as :func:`runs_of` has them; ``begin`` is
            a position in ``people``.
        slot, block, y: the answers, numbered from ``block[0]`` on; ``slot`` begins with these unknowns.
        weight: shape (children, queries).
        nested: how many of the first queries nest, the finest first.
        found: shape (unknowns,): receives z.

    Returns:
        How many iterations were made; below 0 where they were too few.
    """
    runs, answers = _Runs(child, begin, run, total), _Answers(slot, block, block[0], nested)
    rho = _stiffness(weight)
    inverse = _inverted(runs, answers, weight, rho if rooted else 2 * rho)
    linear = _linear(runs, answers, weight, y)
    many = _children_of(runs, cells)
    z = _start(runs, people, many, rooted)
    s, x, share = z.copy(), np.zeros(z.size), np.zeros(cells)
    u, t = np.zeros(z.size), np.zeros(z.size)
    level, told = np.zeros(run.size - 1), np.zeros(inverse.sums.size)
    made = 0
    while made < PATIENCE:
        made += 1
        look = made % CHECKED == 0
        _least(x, runs, answers, inverse, linear, rho, z, u, s, t, rooted)
        missing, moved = _held(x, z, u, runs, level, look)
        if not rooted:
            missing = max(missing, _shared(x, s, t, runs, people, many, share, look))
        if look:
            drift = _drift(z, runs, answers, told)
            if missing <= tolerance and moved <= tolerance and drift <= SUMMED * tolerance:
                break
    for j in range(z.size):
        found[j] = z[j]
    return made if made < PATIENCE else -made


@step
def _stiffness(weight):
    """What a step off the feasible counts costs: so many times the weight of the finest query that a child is asked."""
    children, queries = weight.shape
    rho = 0.0
    for c in range(children):
        for q in range(queries):
            if weight[c, q] > 0:
                rho += STIFF * weight[c, q] / children
                break
    return rho if rho > 0.0 else 1.0


@step
def _linear(runs, answers, weight, y):
    """The linear part of what is minimised: sum_q weight[v, q] Q_q' y_vq, shape (unknowns,)."""
    children, queries = weight.shape
    linear = np.zeros(runs.run[runs.child[children]])
    for c in range(children):
        for q in range(queries):
            if answers.block[c * queries + q] < answers.block[c * queries + q + 1]:
                for j in range(runs.run[runs.child[c]], runs.run[runs.child[c + 1]]):
                    linear[j] += weight[c, q] * y[answers.slot[q, j] - answers.base]
    return linear


@step
def _children_of(runs, cells):
    """How many children can have each cell of their parent."""
    many = np.zeros(cells)
    for r in range(runs.begin.size):
        for k in range(runs.run[r + 1] - runs.run[r]):
            many[runs.begin[r] + k] += 1
    return many


@step
def _start(runs, people, many, rooted):
    """Where z begins: held sums in the parent's proportions, what is free in equal parts."""
    begin, run, total = runs.begin, runs.run, runs.total
    z = np.zeros(run[begin.size])
    for r in range(begin.size):
        everyone = 0.0
        for k in range(run[r + 1] - run[r]):
            everyone += people[begin[r] + k]
        for k in range(run[r + 1] - run[r]):
            j = run[r] + k
            if total[r] >= 0 and not rooted:
                z[j] = people[begin[r] + k] * (total[r] / everyone)
            elif total[r] >= 0:
                z[j] = total[r] / (run[r + 1] - run[r])
            elif not rooted:
                z[j] = people[begin[r] + k] / many[begin[r] + k]
    return z


@step
def _inverted(runs, answers, weight, tau):
    """The inverse of H + tau, as :class:`_Inverse` has it."""
    child, run, slot, block, base = runs.child, runs.run, answers.slot, answers.block, answers.base
    children, queries = weight.shape
    rows = block[children * queries] - base
    first = np.zeros(children + 1, np.int64)
    for c in range(children):
        size = block[(c + 1) * queries] - block[c * queries + answers.nested]
        first[c + 1] = first[c] + size * size
    alpha, sums, peeled = np.zeros(rows), np.zeros(rows), np.zeros((answers.nested, run[child[children]]))
    inverse = _Inverse(tau, alpha, peeled, first, np.zeros(first[children]), sums)
    for c in range(children):
        low, high = run[child[c]], run[child[c + 1]]
        v = np.full(high - low, 1 / tau)
        for q in range(answers.nested):
            start, end = block[c * queries + q], block[c * queries + q + 1]
            if start == end:
                continue
            for j in range(high - low):
                peeled[q, low + j] = v[j]
                sums[slot[q, low + j] - base] += v[j]
            for i in range(start - base, end - base):
                alpha[i] = weight[c, q] / (1 + weight[c, q] * sums[i])
            for j in range(high - low):
                i = slot[q, low + j] - base
                v[j] *= 1 - alpha[i] * sums[i]
        _across(low, high, answers, inverse, c, weight[c])
    return inverse


@step
def _peel(x, low, high, answers, inverse, c, queries):
    """Apply the inverse of stiffness and nested queries to one child's x in place: one rank-one step a row."""
    slot, block, base, sums = answers.slot, answers.block, answers.base, inverse.sums
    for q in range(answers.nested):
        first, last = block[c * queries + q], block[c * queries + q + 1]
        if first == last:
            continue
        sums[first - base : last - base] = 0
        for j in range(low, high):
            sums[slot[q, j] - base] += x[j - low]
        for i in range(first - base, last - base):
            sums[i] *= inverse.alpha[i]
        for j in range(low, high):
            x[j - low] -= sums[slot[q, j] - base] * inverse.peeled[q, j]


@step
def _across(low, high, answers, inverse, c, weight):
    """Put in its place, of one child, (W^-1 + U'D^-1 U)^-1: U are the queries that cut across, and D the rest."""
    slot, block, nested = answers.slot, answers.block, answers.nested
    queries, width = weight.size, high - low
    across, end = block[c * queries + nested], block[(c + 1) * queries]
    gram, column = np.zeros((end - across, end - across)), np.zeros(width)
    for q in range(nested, queries):
        for i in range(block[c * queries + q], block[c * queries + q + 1]):
            for j in range(width):
                column[j] = 1 / inverse.tau if slot[q, low + j] == i else 0.0
            _peel(column, low, high, answers, inverse, c, queries)
            for p in range(nested, queries):
                if block[c * queries + p] < block[c * queries + p + 1]:
                    for j in range(width):
                        gram[slot[p, low + j] - across, i - across] += column[j]
            gram[i - across, i - across] += 1 / weight[q]
    place = inverse.first[c]
    for row in np.linalg.inv(gram):
        for each in row:
            inverse.across[place] = each
            place += 1


@step
def _least(x, runs, answers, inverse, linear, rho, z, u, s, t, rooted):
    """The step in x: the least squares near z and s, child by child."""
    child, run = runs.child, runs.run
    children = child.size - 1
    queries = (answers.block.size - 1) // children
    for c in range(children):
        low, high = run[child[c]], run[child[c + 1]]
        right = x[low:high]
        for j in range(low, high):
            right[j - low] = linear[j] + rho * (z[j] - u[j])
            if not rooted:
                right[j - low] += rho * (s[j] - t[j])
        if answers.block[c * queries + answers.nested] < answers.block[(c + 1) * queries]:
            _join(right, low, high, answers, inverse, c, queries)
        for j in range(high - low):
            right[j] /= inverse.tau
        _peel(right, low, high, answers, inverse, c, queries)


@step
def _join(right, low, high, answers, inverse, c, queries):
    """Take from one child's right-hand side what the queries that cut across ask of it: Woodbury's identity."""
    slot, block, nested = answers.slot, answers.block, answers.nested
    across, end = block[c * queries + nested], block[(c + 1) * queries]
    size, alone = end - across, np.empty(high - low)
    for j in range(high - low):
        alone[j] = right[j] / inverse.tau
    _peel(alone, low, high, answers, inverse, c, queries)
    seen = np.zeros(size)
    for q in range(nested, queries):
        if block[c * queries + q] < block[c * queries + q + 1]:
            for j in range(high - low):
                seen[slot[q, low + j] - across] += alone[j]
    seen = inverse.across[inverse.first[c] : inverse.first[c + 1]].reshape(size, size) @ seen
    for q in range(nested, queries):
        if block[c * queries + q] < block[c * queries + q + 1]:
            for j in range(high - low):
                right[j] -= seen[slot[q, low + j] - across]


@step
def _held(x, z, u, runs, level, look):
    """The step in z: 0 or more, with held sums; how far x is from it, and how far it moved, where one looks."""
    missing, moved = 0.0, 0.0
    for r in range(runs.begin.size):
        low, high = runs.run[r], runs.run[r + 1]
        theta = 0.0
        if runs.total[r] >= 0:
            theta = level[r] = _threshold(x, z, u, low, high, float(runs.total[r]), level[r])
        for j in range(low, high):
            here = RELAXED * x[j] + (1 - RELAXED) * z[j] + u[j]
            after = max(here - theta, 0.0)
            u[j] = here - after
            if look:
                missing = max(missing, abs(x[j] - after))
                moved = max(moved, abs(after - z[j]))
            z[j] = after
    return missing, moved


@step
def _threshold(x, z, u, low, high, total, theta):
    """Where to cut a run so that what stays above adds up to its total: Newton on a convex sum, from a first guess."""
    for _ in range(NEWTON):
        over, active, largest = -total, 0, -np.inf
        for j in range(low, high):
            here = RELAXED * x[j] + (1 - RELAXED) * z[j] + u[j]
            largest = max(largest, here)
            if here > theta:
                over += here - theta
                active += 1
        if active == 0:
            theta = largest - total
        elif abs(over) < NEAR * (1 + total):
            break
        else:
            theta += over / active
    return theta


@step
def _shared(x, s, t, runs, people, many, share, look):
    """The step in s: the children's counts add up to their parent's; how far x is from it, where one looks."""
    begin, run = runs.begin, runs.run
    share[:] = 0
    for r in range(begin.size):
        for k in range(run[r + 1] - run[r]):
            j = run[r] + k
            share[begin[r] + k] += RELAXED * x[j] + (1 - RELAXED) * s[j] + t[j]
    for i in range(share.size):
        share[i] = (people[i] - share[i]) / max(many[i], 1.0)
    for r in range(begin.size):
        for k in range(run[r + 1] - run[r]):
            j = run[r] + k
            s[j] = RELAXED * x[j] + (1 - RELAXED) * s[j] + t[j] + share[begin[r] + k]
            t[j] = -share[begin[r] + k]
    missing = 0.0
    if look:
        for j in range(s.size):
            missing = max(missing, abs(x[j] - s[j]))
    return missing


@step
def _drift(z, runs, answers, told):
    """How far what some answer counts has moved since the last look: small steps of many cells may go one way."""
    child, block = runs.child, answers.block
    queries = (block.size - 1) // (child.size - 1)
    now, largest = np.zeros(told.size), 0.0
    for c in range(child.size - 1):
        for q in range(queries):
            if block[c * queries + q] < block[c * queries + q + 1]:
                for j in range(runs.run[child[c]], runs.run[child[c + 1]]):
                    now[answers.slot[q, j] - answers.base] += z[j]
    for i in range(told.size):
        largest = max(largest, abs(now[i] - told[i]))
        told[i] = now[i]
    return largest
