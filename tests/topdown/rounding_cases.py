"""Random divisions with a known real solution, the sums that rounding keeps, and HiGHS as an oracle."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array, hstack, identity, vstack

from tabulae.linalg import BlockAlgebra
from tabulae.products.areas.descent.limits import FREE, NO_LIMIT, Division


def random_division(rng, *, n=None, symmetric=None, k=None, people=3.0, tight=0.5, exact=0.5, rooted=False):
    """A division and a real x that meets its limits: a mean of tables of whole numbers with the same exact sums."""
    n = 1 if rooted else n or int(rng.integers(1, 6))
    symmetric = tuple(rng.integers(1, 4, rng.integers(0, 4)).tolist()) if symmetric is None else symmetric
    algebra, k = BlockAlgebra(symmetric), k or int(rng.integers(1, 5))
    parts = int(rng.integers(1, k + 1))
    part = np.concatenate([np.arange(parts), rng.integers(0, parts, k - parts)])
    groups = int(rng.integers(1, parts + 1))
    group = np.tile(rng.integers(0, groups, parts), (n, 1))
    if rng.random() < 0.3:
        group = rng.integers(0, groups, (n, parts))
    has_part = rng.random((n, parts)) < 0.8
    allowed = has_part[:, part]
    first = rng.poisson(people, (n, k, algebra.cells)) * allowed[..., None]
    others = [moved(rng, first, allowed, group[:, part], rooted) for _ in range(3)]
    tables = np.stack([first, *others])
    x = np.einsum("t...,t->...", tables, rng.dirichlet(np.ones(len(tables))))
    inside = np.arange(groups)[:, None, None] == group
    held = part_sums(tables, part, parts)
    sums = np.einsum("vj,gvj->vg", held[0], inside)
    is_exact = (rng.random((n, groups)) < exact) & (np.einsum("tvj,gvj->tvg", held, inside) == sums).all(
        axis=0
    )
    x_held = part_sums(x, part, parts)
    lower = np.where(rng.random((n, parts)) < tight, np.floor(x_held + 1e-9), 0).astype(np.int64)
    upper = np.where(rng.random((n, parts)) < tight, np.ceil(x_held - 1e-9), NO_LIMIT).astype(np.int64)
    total = None if rooted else first.sum(axis=0)
    division = Division(
        algebra,
        total,
        np.ones((1, algebra.kinds, k, k)),
        np.zeros(n, np.int64),
        np.zeros(first.shape),
        allowed,
        part,
        lower,
        upper,
        group,
        np.where(is_exact, sums, FREE),
    )
    return division, x


def moved(rng, table, allowed, group, rooted):
    """Another table with the same columns and group sums: swaps of two people between cells and children."""
    table = table.reshape(len(table), -1).copy()
    inner = table.shape[1] // allowed.shape[1]
    for _ in range(2 * table.size):
        held = np.argwhere(table)
        if not len(held):
            break
        (v, c), (w, e) = held[rng.integers(len(held), size=2)]
        d, f = c // inner, e // inner
        if rooted:
            e = rng.integers(table.shape[1])
            if allowed[v, e // inner] and group[v, d] == group[v, e // inner]:
                table[v, c] -= 1
                table[v, e] += 1
            continue
        alike = group[v, d] == group[v, f] and group[w, d] == group[w, f]
        if v != w and c != e and alike and allowed[v, f] and allowed[w, d]:
            for row, cell, step in ((v, c, -1), (w, c, 1), (v, e, 1), (w, e, -1)):
                table[row, cell] += step
    return table.reshape(len(table), allowed.shape[1], inner)


def part_sums(x, part, parts):
    """Shape (..., parts)."""
    return np.stack([x[..., part == j, :].sum(axis=(-2, -1)) for j in range(parts)], axis=-1)


def nests(division, shape):
    """For each kind of nested sum that differs from the next, shape (cells,): the sum that each cell is part of."""
    _, k, inner = shape
    child, dense, cell = (i.ravel() for i in np.indices(shape))
    found, within = [np.arange(child.size)], 1
    for size in [s for s in division.algebra.symmetric[::-1] if s > 1]:
        within *= size
        found.append((child * k + dense) * (inner // within) + cell // within)
    parts, groups = division.lower.shape[1], division.exact.shape[1]
    if 1 < np.unique(division.part).size < k:
        found.append(child * parts + division.part[dense])
    if groups > 1:
        found.append(child * groups + division.group[child, division.part[dense]])
    return [*found, child]


def nested_sums(division, x):
    """The values of all nested sums, an array for each kind."""
    return [np.bincount(label, x.ravel()) for label in nests(division, x.shape)]


def distance(division, z, x):
    """Sum of |difference| over all nested sums."""
    pairs = zip(nested_sums(division, z), nested_sums(division, x), strict=True)
    return sum(float(np.abs(a - b).sum()) for a, b in pairs)


def meets(division, z):
    """Whether a table meets every limit."""
    held = part_sums(z, division.part, division.lower.shape[1])
    groups = range(division.exact.shape[1])
    sums = np.stack([(held * (division.group == g)).sum(axis=1) for g in groups], axis=1)
    return bool(
        (z >= 0).all()
        and (z[~division.allowed] == 0).all()
        and (division.total is None or (z.sum(axis=0) == division.total).all())
        and ((held >= division.lower) & (held <= division.upper)).all()
        and ((division.exact == FREE) | (sums == division.exact)).all()
    )


def nearest(division, x):
    """The distance of the nearest whole table, by HiGHS, and its table: a linear programme with integer breakpoints."""
    rows = nested_rows(division, x.shape)
    target = rows @ x.reshape(-1)
    low = np.floor(target + 1e-9)
    slope = 1 - 2 * np.clip(target - low, 0, 1)
    m, cells = rows.shape
    # rows z = low + over + middle - under, with 0 <= middle <= 1
    eye = identity(m)
    left = hstack([rows, eye, -eye, -eye])
    cost = np.concatenate([np.zeros(cells), np.ones(m), np.ones(m), slope])
    bounds = [(0, None if free else 0) for free in np.repeat(division.allowed.ravel(), x.shape[2])]
    bounds += [(0, None)] * (2 * m) + [(0, 1)] * m
    equal, right = [left], [low]
    n = len(x)
    if division.total is not None:
        columns = hstack([identity(cells // n)] * n + [csr_array((cells // n, 3 * m))])
        equal.append(columns)
        right.append(division.total.ravel())
    held, lower, upper = limit_rows(division, x.shape)
    pad = csr_array((held.shape[0], 3 * m))
    found = linprog(
        cost,
        A_eq=vstack(equal),
        b_eq=np.concatenate(right),
        A_ub=vstack([hstack([held, pad]), hstack([-held, pad])]),
        b_ub=np.concatenate([upper, -lower]),
        bounds=bounds,
        method="highs-ds",
    )
    assert found.status == 0, found.message
    z = found.x[:cells]
    assert np.abs(z - np.rint(z)).max(initial=0) < 1e-6, "the vertex is not whole"
    z = np.rint(z).astype(np.int64).reshape(x.shape)
    return distance(division, z, x), z


def nested_rows(division, shape):
    """Every nested sum as a row over the cells of all children."""
    cells = int(np.prod(shape))
    here = np.arange(cells)
    return vstack(
        [
            csr_array((np.ones(cells), (label, here)), shape=(label.max() + 1, cells))
            for label in nests(division, shape)
        ]
    )


def limit_rows(division, shape):
    """Part and exact sums as rows over cells, with their limits."""
    n, k, inner = shape
    rows, lower, upper = [], [], []
    for v in range(n):
        for j in range(division.lower.shape[1]):
            row = np.zeros(shape)
            row[v, division.part == j] = 1
            rows.append(row.ravel())
            lower.append(division.lower[v, j])
            upper.append(min(division.upper[v, j], 10**9))
        for g in range(division.exact.shape[1]):
            if division.exact[v, g] != FREE:
                row = np.zeros(shape)
                row[v, division.group[v][division.part] == g] = 1
                rows.append(row.ravel())
                lower.append(division.exact[v, g])
                upper.append(division.exact[v, g])
    return csr_array(np.array(rows).reshape(-1, n * k * inner)), np.array(lower), np.array(upper)
