"""The neighbours that move a strategy's answers most, found by looking at every column or pair of columns.

Categories that no column tells apart are looked at once. Where there are still too many cells, a random search
climbs from good cells to better ones; what it finds is a lower bound, and ``exhaustive`` says so.

Columns of a strategy are written out: a second way to its answers and sensitivity, short enough to trust. Nothing
here uses the closed forms of :mod:`tabulae.linalg`. A column of a Kronecker product is the outer product of its
factors' columns, and those are read off by multiplying with unit vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import lcm, prod

import numpy as np

from ..domain import Workload
from ..linalg import Contrasts, Kron, LinearOperator, MatrixProduct, Stack, Sum
from ..linalg.arrays import widened
from ..strategy import Block, Strategy

_ENTRIES = 2**22  # written out at once


def columns(query: LinearOperator, cells: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """The columns of a query at some cells, exact: (rows, k) for cells (k, attributes) of a domain of ``shape``.

    >>> from tabulae.linalg import Identity, Total
    >>> columns(Kron([Identity(2), Total(3)]), np.array([[1, 2], [0, 0]]), (2, 3)).tolist()
    [[0, 1], [1, 0]]
    """
    if isinstance(query, Sum):
        parts = [int(c) * columns(term, cells, shape) for c, term in query.terms]
        return np.sum(parts, axis=0)
    if isinstance(query, Stack):
        return np.concatenate([columns(op, cells, shape) for op in query.ops])
    if isinstance(query, Contrasts):
        query = query.composed
    if isinstance(query, MatrixProduct) and isinstance(query.right, Kron):
        return query.left @ columns(query.right, cells, shape)
    if isinstance(query, Kron) and len(query.ops) == len(shape):
        out = np.ones((1, len(cells)), dtype=np.int64)
        for factor, codes in zip(query.ops, cells.T, strict=True):
            out = (out[:, None, :] * factor_columns(factor, codes)[None]).reshape(-1, len(cells))
        return out
    return query.columns(np.asarray(np.ravel_multi_index(tuple(cells.T), tuple(shape))))


def factor_columns(factor: LinearOperator, codes: np.ndarray) -> np.ndarray:
    """The columns of one attribute's matrix at some categories: (rows, k)."""
    distinct, inverse = np.unique(codes, return_inverse=True)
    return factor.columns(distinct)[:, inverse.reshape(-1)]


def slices(rows: int, count: int) -> Iterator[slice]:
    """Runs of columns that are small enough to be written out together."""
    step = max(1, _ENTRIES // rows)
    return (slice(start, start + step) for start in range(0, count, step))


def counted(query: LinearOperator, cells: np.ndarray, shape: Sequence[int], parts: np.ndarray) -> np.ndarray:
    """A query's exact answers for so many parts of records in each of ``cells``, repeats included: (rows,)."""
    distinct, inverse = np.unique(cells, axis=0, return_inverse=True)
    times = np.zeros(len(distinct), dtype=np.int64)
    np.add.at(times, inverse.reshape(-1), parts)
    total = np.zeros(query.shape[0], dtype=np.int64)
    for part in slices(query.shape[0], len(distinct)):
        total += (columns(query, distinct[part], shape) * times[part]).sum(axis=1)
    return total


def told_apart(strategy: Strategy, cells: np.ndarray) -> np.ndarray:
    """A label for each cell, equal where a record may be replaced within the invariants: equal columns of C."""
    shape = strategy.domain.shape
    written = [columns(t.operator(strategy.domain), cells, shape) for t in strategy.invariants]
    return np.unique(np.concatenate(written), axis=1, return_inverse=True)[1].reshape(-1)


def power_sums(matrix: np.ndarray, p: int) -> np.ndarray:
    """``sum_i |a_ij|^p`` for each column of an integer matrix, as Python integers (dtype object)."""
    size = np.abs(matrix)
    size = widened(size, int(size.max(initial=0)) ** p * len(size))
    return (size if p == 1 else size * size).sum(axis=0).astype(object)


def block_weight(block: Block, p: int) -> Fraction:
    """What a power sum on the block's grid counts for, in units of its relative scale."""
    return 1 / (block.scale * Fraction(2) ** (p * block.exponent))


def whole_weights(weights: Sequence[Fraction]) -> tuple[list[int], int]:
    """Weights as whole numbers of one part, and how many such parts are 1."""
    common = lcm(*(weight.denominator for weight in weights))
    return [int(weight * common) for weight in weights], common


def norm_of(strategy: Strategy) -> int:
    """2 where noise is Gaussian, 1 where it is Laplace."""
    return 2 if strategy.noise == "gaussian" else 1


def weighted_power(strategy: Strategy, changes: Sequence[np.ndarray]) -> Fraction:
    """``sum_b ||delta_b||_p^p / scale_b`` of changes of the blocks' answers, on their grids."""
    p = norm_of(strategy)
    return sum(
        (
            int(power_sums(change[:, None], p)[0]) * block_weight(block, p)
            for block, change in zip(strategy.blocks, changes, strict=True)
        ),
        Fraction(0),
    )


def cells_of(flat: np.ndarray, representatives: Sequence[np.ndarray]) -> np.ndarray:
    """Cells (k, attributes), by their flat positions among the combinations of some categories."""
    sizes = tuple(len(codes) for codes in representatives)
    index = np.unravel_index(flat, sizes)
    return np.stack([codes[i] for codes, i in zip(representatives, index, strict=True)], axis=1)


def combinations(representatives: Sequence[np.ndarray]) -> int:
    """How many cells there are."""
    return prod(len(codes) for codes in representatives)


_MOST_CELLS = 2**20  # combinations of categories that are all looked at
_MOST_PAIR_CELLS = 1024  # the same where all pairs are
_MOST_WORK = 2**31  # numbers that comparing all pairs may pass through
_EXACT_FLOAT = 2**53
_MOST_CLOSE = 4096  # pairs that are compared in integers
_CLOSE = 1e-9  # floats this close to the largest are compared exactly
_POOL, _ROUNDS, _POOL_ENTRIES = 64, 12, 2**25


@dataclass(frozen=True)
class Largest:
    """The largest weighted power sum of one record's change, and the cells that give it.

    ``cells`` holds one cell (a record more or less) or two (one in place of the other); ``seen`` is the number
    of columns or pairs that were compared, and ``exhaustive`` says that they stand for all.
    """

    power: Fraction
    cells: tuple[tuple[int, ...], ...]
    seen: int
    exhaustive: bool


def largest_change(strategy: Strategy, neighbours: str, rng: np.random.Generator, fewest: int = 1) -> Largest:
    """``max sum_b ||A_b d||_p^p / scale_b`` over d = e_j, or e_j - e_k for "replace", such that C d = 0 within.

    Where only some records are counted (``fewest`` is 0), a record that is replaced may come or go: then over both.
    """
    if neighbours == "replace" and fewest == 0:
        both = [largest_change(strategy, each, rng) for each in ("add-remove", "replace")]
        found = max(both, key=lambda one: one.power)
        return replace(found, exhaustive=all(one.exhaustive for one in both))
    if neighbours == "add-remove":
        return _all_columns(strategy) or _search(strategy, rng, replace=False)
    if neighbours == "replace":
        return _all_pairs(strategy, within=False) or _search(strategy, rng, replace=True)
    return _all_pairs(strategy, within=True) or _search_within(strategy, rng)


# every column --------------------------------------------------------------------------------------


def _all_columns(strategy: Strategy) -> Largest | None:
    shape, p = strategy.domain.shape, norm_of(strategy)
    products = [b for b in strategy.blocks if _is_product(b, shape)]
    others = [b for b in strategy.blocks if not _is_product(b, shape)]
    norms = [[_factor_norms(b, axis, p) for b in products] for axis in range(len(shape))]
    labels = [[_classes(b, axis) for b in others] for axis in range(len(shape))]
    chosen = [_first_of(size, n, c) for size, n, c in zip(shape, norms, labels, strict=True)]
    if combinations(chosen) > _MOST_CELLS:
        return None
    parts: list[tuple[Fraction, Callable[[np.ndarray], np.ndarray]]] = []
    for i, block in enumerate(products):
        tables = [norms[axis][i] for axis in range(len(shape))]
        parts.append((block_weight(block, p), lambda cells, tables=tables: _product_of(tables, cells)))
    for i, block in enumerate(others):
        table = _explicit_norms(block, [labels[axis][i] for axis in range(len(shape))], shape, p)
        if table is None:
            return None
        parts.append((block_weight(block, p), table))
    return _best_column(parts, chosen)


def _best_column(
    parts: list[tuple[Fraction, Callable[[np.ndarray], np.ndarray]]], chosen: list[np.ndarray]
) -> Largest:
    """The best cell by exact integers, a slice of cells at a time."""
    whole, common = whole_weights([weight for weight, _ in parts])
    best, at, count = -1, (), combinations(chosen)
    for part in slices(64, count):
        cells = cells_of(np.arange(part.start, min(part.stop, count)), chosen)
        total = np.zeros(len(cells), dtype=object)
        for (_, norm), weight in zip(parts, whole, strict=True):
            total += norm(cells) * weight
        position = int(np.argmax(total))
        if total[position] > best:
            best, at = int(total[position]), tuple(int(code) for code in cells[position])
    return Largest(Fraction(best, common), (at,), count, exhaustive=True)


def _is_product(block: Block, shape: tuple[int, ...]) -> bool:
    return isinstance(block.query, Kron) and len(block.query.ops) == len(shape)


def _factor_norms(block: Block, axis: int, p: int) -> np.ndarray:
    """Power sums of a factor's columns, one a category (dtype object)."""
    assert isinstance(block.query, Kron)
    factor = block.query.ops[axis]
    codes = np.arange(factor.shape[1])
    return np.concatenate(
        [power_sums(factor_columns(factor, codes[part]), p) for part in slices(factor.shape[0], len(codes))]
    )


def _classes(block: Block, axis: int) -> np.ndarray:
    """A label for each category, equal where no matrix of the block tells two apart."""
    seen: dict[bytes, int] = {}
    factors = [term[axis] for _, term in block.terms]
    size = factors[0].shape[1]
    labels = np.zeros(size, dtype=np.int64)
    for part in slices(sum(f.shape[0] for f in factors), size):
        codes = np.arange(size)[part]
        rows = np.ascontiguousarray(np.concatenate([factor_columns(f, codes) for f in factors]).T)
        for code, row in zip(codes, rows, strict=True):
            labels[code] = seen.setdefault(row.tobytes(), len(seen))
    return labels


def _first_of(size: int, norms: list[np.ndarray], labels: list[np.ndarray]) -> np.ndarray:
    """One category for each different tuple of norms and labels."""
    seen: dict[tuple[int, ...], int] = {}
    for code in range(size):
        seen.setdefault(tuple(int(v[code]) for v in (*norms, *labels)), code)
    return np.array(list(seen.values()), dtype=np.int64)


def _product_of(tables: list[np.ndarray], cells: np.ndarray) -> np.ndarray:
    out = np.ones(len(cells), dtype=object)
    for table, codes in zip(tables, cells.T, strict=True):
        out = out * table[codes]
    return out


def _explicit_norms(
    block: Block, labels: list[np.ndarray], shape: tuple[int, ...], p: int
) -> Callable[[np.ndarray], np.ndarray] | None:
    """Power sums of columns that are written out, one for each combination of classes."""
    first = [np.unique(label, return_index=True)[1] for label in labels]
    if combinations(first) * block.rows > _MOST_WORK // 8:
        return None
    cells = cells_of(np.arange(combinations(first)), first)
    norms = np.concatenate(
        [power_sums(columns(block.query, cells[part], shape), p) for part in slices(block.rows, len(cells))]
    )
    sizes = tuple(len(codes) for codes in first)

    def lookup(wanted: np.ndarray) -> np.ndarray:
        index = [label[codes] for label, codes in zip(labels, wanted.T, strict=True)]
        return norms[np.ravel_multi_index(tuple(index), sizes)]

    return lookup


# every pair ------------------------------------------------------------------------------------------


def _all_pairs(strategy: Strategy, *, within: bool) -> Largest | None:
    """Every pair of cells that some matrix tells apart; within the invariants those with equal columns of C."""
    shape, asked = strategy.domain.shape, [*strategy.blocks]
    if within:
        asked += [Block(t.name, t.operator(strategy.domain)) for t in strategy.invariants]
    labels = [[_classes(b, axis) for b in asked] for axis in range(len(shape))]
    chosen = [_first_of(size, [], label) for size, label in zip(shape, labels, strict=True)]
    count = combinations(chosen)
    if count > _MOST_PAIR_CELLS or strategy.rows * count**2 > _MOST_WORK:
        return None
    cells = cells_of(np.arange(count), chosen)
    return _best_pair(strategy, cells, exhaustive=True, within=within)


def _best_pair(strategy: Strategy, cells: np.ndarray, *, exhaustive: bool, within: bool = False) -> Largest:
    """The pair of these cells whose columns differ most: floats tell which come near, integers decide."""
    p, shape = norm_of(strategy), strategy.domain.shape
    written = [columns(block.query, cells, shape) for block in strategy.blocks]
    weights = [block_weight(block, p) for block in strategy.blocks]
    apart = [_distances(matrix, p) for matrix in written]
    total = np.zeros((len(cells), len(cells)))
    for weight, (distance, _) in zip(weights, apart, strict=True):
        total += float(weight) * distance
    if within:
        classes = told_apart(strategy, cells)
        total = np.where(classes[:, None] == classes, total, -1.0)
    slack = sum(float(weight) * error for weight, (_, error) in zip(weights, apart, strict=True))
    one, other = np.nonzero(np.triu(total >= total.max() * (1 - _CLOSE) - slack))
    if all(error == 0 for _, error in apart):  # the distances are whole numbers: alike ones need one look
        tuples = np.stack([d[one, other] for d, _ in apart])
        first = np.unique(tuples, axis=1, return_index=True)[1]
        one, other = one[first], other[first]
    exhaustive = exhaustive and len(one) <= _MOST_CLOSE
    best, at = Fraction(-1), (0, 0)
    for j, k in zip(one[:_MOST_CLOSE], other[:_MOST_CLOSE], strict=True):
        power = weighted_power(strategy, [matrix[:, j] - matrix[:, k] for matrix in written])
        if power > best:
            best, at = power, (int(j), int(k))
    pair = tuple(tuple(int(code) for code in cells[i]) for i in at)
    return Largest(best, pair, len(cells) * (len(cells) - 1) // 2, exhaustive)


def _distances(matrix: np.ndarray, p: int) -> tuple[np.ndarray, float]:
    """``||a_j - a_k||_p^p`` for all pairs, and a bound on its error: 0 where floats hold every number."""
    plain = matrix.astype(np.float64)
    largest = float(np.abs(plain).max(initial=0.0)) ** p * len(plain)
    error = 0.0 if 4 * largest < _EXACT_FLOAT else 4 * largest * (len(plain) + 8) * 2.0**-52
    if p == 2:
        gram = plain.T @ plain
        return np.maximum(gram.diagonal()[:, None] + gram.diagonal() - 2 * gram, 0.0), error
    pairs = [np.abs(plain - plain[:, j : j + 1]).sum(axis=0) for j in range(plain.shape[1])]
    return np.stack(pairs), error


# a search where there are too many ---------------------------------------------------------------------


def _search(strategy: Strategy, rng: np.random.Generator, *, replace: bool) -> Largest:
    """From random cells to better ones, a change of one attribute at a time."""
    shape = strategy.domain.shape
    size = max(4, min(_POOL, _POOL_ENTRIES // strategy.rows))
    pool = _random_cells(shape, size, rng)
    best: Largest | None = None
    seen = 0
    for _ in range(_ROUNDS):
        found = _best_pair(strategy, pool, exhaustive=False) if replace else _best_of(strategy, pool)
        seen += found.seen
        if best is None or found.power > best.power:
            best = found
        start = [best.cells[i % len(best.cells)] for i in range(size)]
        pool = np.array(start, dtype=np.int64)
        axis = rng.integers(len(shape), size=size)
        drawn = _random_cells(shape, size, rng)
        moved = np.arange(len(best.cells), size)
        pool[moved, axis[moved]] = drawn[moved, axis[moved]]
    assert best is not None
    return Largest(best.power, best.cells, seen, exhaustive=False)


def _search_within(strategy: Strategy, rng: np.random.Generator) -> Largest:
    """From random cells to better ones that the invariants do not tell from them: attribute by attribute."""
    shape = strategy.domain.shape
    size = max(4, min(_POOL, _POOL_ENTRIES // strategy.rows))
    merges = Workload(strategy.domain, strategy.invariants).merge()[1]
    best: Largest | None = None
    seen = 0
    for attempt in range(_ROUNDS):
        start = _random_cells(shape, 1, rng) if best is None or attempt % 2 else np.array(best.cells)
        pool = start[np.arange(size) % len(start)]
        for axis, merge in enumerate(merges):
            moved = np.flatnonzero(rng.random(size) < 0.5)
            for i in moved[moved >= len(start)]:
                alike = np.flatnonzero(merge.classes == merge.classes[pool[i, axis]])
                pool[i, axis] = rng.choice(alike)
        found = _best_pair(strategy, pool, exhaustive=False, within=True)
        seen += found.seen
        if best is None or found.power > best.power:
            best = found
    assert best is not None
    return Largest(best.power, best.cells, seen, exhaustive=False)


def _random_cells(shape: tuple[int, ...], count: int, rng: np.random.Generator) -> np.ndarray:
    return np.stack([rng.integers(size, size=count) for size in shape], axis=1)


def _best_of(strategy: Strategy, cells: np.ndarray) -> Largest:
    p = norm_of(strategy)
    total = np.zeros(len(cells), dtype=object)
    for block in strategy.blocks:
        sums = power_sums(columns(block.query, cells, strategy.domain.shape), p)
        total = total + sums * block_weight(block, p)
    at = int(np.argmax(total))
    return Largest(Fraction(total[at]), (tuple(int(c) for c in cells[at]),), len(cells), exhaustive=False)
