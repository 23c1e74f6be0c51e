"""Least squares of many areas' counts at once, each parent's divided among its children: alternating directions.

A problem has one unknown for each child and each of its parent's cells that the child can have. Inner loops are
compiled.
"""

from __future__ import annotations

import numpy as np

from ..compiled import njit

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


@njit(cache=True, nogil=True)
def _peel(x, low, high, slot, nested, alpha, peeled, sums, block, c, queries, base):
    """Apply the inverse of stiffness and nested queries to one child's x in place: one rank-one step a row."""
    for q in range(nested):
        first, last = block[c * queries + q], block[c * queries + q + 1]
        if first == last:
            continue
        sums[first - base : last - base] = 0
        for j in range(low, high):
            sums[slot[q, j] - base] += x[j - low]
        for i in range(first - base, last - base):
            sums[i] *= alpha[i]
        for j in range(low, high):
            x[j - low] -= sums[slot[q, j] - base] * peeled[q, j - low]


@njit(cache=True, nogil=True)
def _across(low, high, slot, nested, alpha, peeled, sums, block, c, weight, base, tau):
    """Of one child, with U of the queries that cut across and D the rest: (W^-1 + U'D^-1 U)^-1, as one row."""
    queries, width = weight.size, high - low
    across, end = block[c * queries + nested], block[(c + 1) * queries]
    gram, column = np.zeros((end - across, end - across)), np.zeros(width)
    for q in range(nested, queries):
        for i in range(block[c * queries + q], block[c * queries + q + 1]):
            for j in range(width):
                column[j] = 1 / tau if slot[q, low + j] == i else 0.0
            _peel(column, low, high, slot, nested, alpha, peeled, sums, block, c, queries, base)
            for p in range(nested, queries):
                if block[c * queries + p] < block[c * queries + p + 1]:
                    for j in range(width):
                        gram[slot[p, low + j] - across, i - across] += column[j]
            gram[i - across, i - across] += 1 / weight[q]
    return np.linalg.inv(gram).ravel()


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def _drift(z, child, run, slot, block, base, queries, told):
    """How far what some answer counts has moved since the last look: small steps of many cells may go one way."""
    now, largest = np.zeros(told.size), 0.0
    for c in range(child.size - 1):
        for q in range(queries):
            if block[c * queries + q] < block[c * queries + q + 1]:
                for j in range(run[child[c]], run[child[c + 1]]):
                    now[slot[q, j] - base] += z[j]
    for i in range(told.size):
        largest = max(largest, abs(now[i] - told[i]))
        told[i] = now[i]
    return largest


@njit(cache=True, nogil=True)
def least_squares(  # noqa: C901
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
    children, queries = weight.shape
    n, base = run[child[children]], block[0]
    rho = 0.0
    for c in range(children):
        for q in range(queries):
            if weight[c, q] > 0:
                rho += STIFF * weight[c, q] / children
                break
    if rho == 0.0:
        rho = 1.0
    tau = rho if rooted else 2 * rho
    answers = block[children * queries] - base
    alpha, sums = np.zeros(answers), np.zeros(answers)
    linear = np.zeros(n)
    z, s = np.zeros(n), np.zeros(n)
    u, t = np.zeros(n), np.zeros(n)
    x, share = np.zeros(n), np.zeros(cells)
    widest, inverse_size, many = 0, np.zeros(children + 1, np.int64), np.zeros(cells)
    for c in range(children):
        low, high = run[child[c]], run[child[c + 1]]
        widest = max(widest, high - low)
        size = block[(c + 1) * queries] - block[c * queries + nested]
        inverse_size[c + 1] = inverse_size[c] + size * size
        for q in range(queries):
            if block[c * queries + q] < block[c * queries + q + 1]:
                for j in range(low, high):
                    linear[j] += weight[c, q] * y[slot[q, j] - base]
        for r in range(child[c], child[c + 1]):
            for k in range(run[r + 1] - run[r]):
                many[begin[r] + k] += 1
    peeled_all = np.zeros((nested, n))
    inverse = np.zeros(inverse_size[children])
    for c in range(children):
        low, high = run[child[c]], run[child[c + 1]]
        width = high - low
        v = np.full(width, 1 / tau)
        for q in range(nested):
            first, last = block[c * queries + q], block[c * queries + q + 1]
            if first == last:
                continue
            for j in range(width):
                peeled_all[q, low + j] = v[j]
                sums[slot[q, low + j] - base] += v[j]
            for i in range(first - base, last - base):
                alpha[i] = weight[c, q] / (1 + weight[c, q] * sums[i])
            for j in range(width):
                i = slot[q, low + j] - base
                v[j] *= 1 - alpha[i] * sums[i]
        inverse[inverse_size[c] : inverse_size[c + 1]] = _across(
            low, high, slot, nested, alpha, peeled_all[:, low:high], sums, block, c, weight[c], base, tau
        )
        everyone = 0.0
        for r in range(child[c], child[c + 1]):
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
                s[j] = z[j]
    level, told = np.zeros(run.size - 1), np.zeros(answers)
    rhs, right = np.zeros(widest), np.zeros(widest)
    made = 0
    while made < PATIENCE:
        made += 1
        look = made % CHECKED == 0
        for c in range(children):
            low, high = run[child[c]], run[child[c + 1]]
            width = high - low
            for j in range(low, high):
                rhs[j - low] = linear[j] + rho * (z[j] - u[j])
                if not rooted:
                    rhs[j - low] += rho * (s[j] - t[j])
            across, end = block[c * queries + nested], block[(c + 1) * queries]
            size = end - across
            if size:
                for j in range(width):
                    right[j] = rhs[j] / tau
                _peel(
                    right,
                    low,
                    high,
                    slot,
                    nested,
                    alpha,
                    peeled_all[:, low:high],
                    sums,
                    block,
                    c,
                    queries,
                    base,
                )
                seen = np.zeros(size)
                for q in range(nested, queries):
                    if block[c * queries + q] < block[c * queries + q + 1]:
                        for j in range(width):
                            seen[slot[q, low + j] - across] += right[j]
                seen = inverse[inverse_size[c] : inverse_size[c + 1]].reshape(size, size) @ seen
                for q in range(nested, queries):
                    if block[c * queries + q] < block[c * queries + q + 1]:
                        for j in range(width):
                            rhs[j] -= seen[slot[q, low + j] - across]
            for j in range(width):
                rhs[j] /= tau
            _peel(rhs, low, high, slot, nested, alpha, peeled_all[:, low:high], sums, block, c, queries, base)
            for j in range(width):
                x[low + j] = rhs[j]
        missing, moved = 0.0, 0.0
        for r in range(run.size - 1):
            low, high = run[r], run[r + 1]
            theta = 0.0
            if total[r] >= 0:
                theta = level[r] = _threshold(x, z, u, low, high, float(total[r]), level[r])
            for j in range(low, high):
                here = RELAXED * x[j] + (1 - RELAXED) * z[j] + u[j]
                after = max(here - theta, 0.0)
                u[j] = here - after
                if look:
                    missing = max(missing, abs(x[j] - after))
                    moved = max(moved, abs(after - z[j]))
                z[j] = after
        if not rooted:
            share[:] = 0
            for r in range(run.size - 1):
                for k in range(run[r + 1] - run[r]):
                    j = run[r] + k
                    share[begin[r] + k] += RELAXED * x[j] + (1 - RELAXED) * s[j] + t[j]
            for i in range(cells):
                share[i] = (people[i] - share[i]) / max(many[i], 1.0)
            for r in range(run.size - 1):
                for k in range(run[r + 1] - run[r]):
                    j = run[r] + k
                    here = RELAXED * x[j] + (1 - RELAXED) * s[j] + t[j]
                    after = here + share[begin[r] + k]
                    t[j] = -share[begin[r] + k]
                    s[j] = after
            if look:
                for j in range(n):
                    missing = max(missing, abs(x[j] - s[j]))
        if look:
            drift = _drift(z, child, run, slot, block, base, queries, told)
            if missing <= tolerance and moved <= tolerance and drift <= SUMMED * tolerance:
                break
    for j in range(n):
        found[j] = z[j]
    return made if made < PATIENCE else -made
