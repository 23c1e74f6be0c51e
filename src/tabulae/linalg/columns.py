"""The largest column of weighted blocks, and the two columns farthest apart: over the classes of identical columns.

Integers stay integers: ``int64`` where the largest possible sum fits, Python integers beyond. Blocks of fractions are
summed in floating point with a bound on the error; where the few columns that could be the largest can be read entry by
entry, they are then compared exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import reduce

import numpy as np

from .arrays import INT64_LIMIT, integer_matmul, joint_classes, representatives, widened
from .operator import Dense, LinearOperator, Permuted, Sparse

Blocks = Sequence[tuple[LinearOperator, Fraction]]
Bound = tuple[Fraction, bool]
"""An upper bound, and whether it is attained."""

PAIR_CELLS = 8192  # classes of columns up to which all pairs are compared
_L1_WORK = 2**31  # row differences that an enumeration of pairs may take
_EXACT_ENTRIES = 2**18  # entries that may be summed as Python integers
_CHUNK = 2**22  # numbers held at once


def whole_weights(blocks: Blocks) -> tuple[list[int], Fraction]:
    """Weights as integers without a common divisor, and the unit that they count."""
    denominator = reduce(math.lcm, (weight.denominator for _, weight in blocks), 1)
    whole = [int(weight * denominator) for _, weight in blocks]
    divisor = reduce(math.gcd, whole, 0) or 1
    return [weight // divisor for weight in whole], Fraction(divisor, denominator)


# any columns ---------------------------------------------------------------------------------------
def largest_column(blocks: Blocks, p: int) -> Bound:
    """``max_j sum_i w_i ||A_i e_j||_p^p``."""
    weights, unit = whole_weights(blocks)
    if all(op.integer for op, _ in blocks):
        norms = _weighted_norms(blocks, weights, p)
        return int(norms.max()) * unit, True
    norms = sum(float(weight) * op.column_norms(p).astype(np.float64) for op, weight in blocks)
    largest, slack = float(np.max(norms)), _relative_error(blocks)
    candidates = np.flatnonzero(norms >= largest * (1 - 2 * slack))
    if _readable(blocks, len(candidates)):
        return max(_exact_power(blocks, p, int(j)) for j in candidates), True
    return Fraction(largest * (1 + 2 * slack)), False


def largest_pair(blocks: Blocks, p: int) -> Bound:
    """``max_{j,k} sum_i w_i ||A_i (e_j - e_k)||_p^p``."""
    if len(blocks) == 1:
        known = blocks[0][0].pair_distance_max(p)
        if known is not None:
            return known * blocks[0][1], True
    labels = [op.column_classes() for op, _ in blocks]
    # Else columns are equal
    telling = [block for block, label in zip(blocks, labels, strict=True) if label.any()]
    if not telling:
        return Fraction(0), True
    if len(telling) < len(blocks):
        return largest_pair(telling, p)
    first = representatives(joint_classes(labels))
    # For 0/1 columns the L1 distance is the squared L2 distance
    if p == 2 or all(op.binary for op, _ in blocks):
        if not all(op.integer for op, _ in blocks):
            return _largest_float_pair(blocks, first)
        return _largest_whole_pair(blocks, first) if len(first) <= PAIR_CELLS else _far_pair(blocks, first)
    rows = sum(op.shape[0] for op, _ in blocks)
    if rows * len(first) ** 2 // 2 <= _L1_WORK and rows * len(first) <= 2**26:
        return _largest_l1_pair(blocks, first)
    return _two_largest(blocks, p), False


def _weighted_norms(blocks: Blocks, weights: Sequence[int], p: int) -> np.ndarray:
    """``sum_i w_i ||A_i e_j||_p^p`` for integer blocks and weights; Python integers past int64."""
    norms = [op.column_norms(p) for op, _ in blocks]
    bound = sum(weight * max(1, int(part.max())) for weight, part in zip(weights, norms, strict=True))
    return reduce(
        np.add, [widened(part, bound) * weight for weight, part in zip(weights, norms, strict=True)]
    )


def _gram_rows(
    blocks: Blocks, weights: Sequence[int | float], first: np.ndarray
) -> Iterator[tuple[slice, np.ndarray]]:
    """Rows of the weighted Gram matrix of the columns ``first``, some at a time."""
    step = max(1, _CHUNK // blocks[0][0].shape[1])
    kind = np.int64 if isinstance(weights[0], int) else np.float64
    product = integer_matmul if kind is np.int64 else np.matmul
    written = [op.array[:, first].astype(kind) if isinstance(op, Dense) else None for op, _ in blocks]
    grams = [None if isinstance(op, Dense) else op.gram() for op, _ in blocks]
    for start in range(0, len(first), step):
        part = slice(start, start + step)
        total = np.zeros((len(first), len(first[part])), kind)
        for columns, gram, weight in zip(written, grams, weights, strict=True):
            if columns is not None:
                total += product(columns.T, columns[:, part]) * weight
            elif gram is not None:
                total += _gram_columns(gram, first[part], kind)[first] * weight
        yield part, total.T


def _gram_columns(gram: LinearOperator, cells: np.ndarray, kind: type) -> np.ndarray:
    """Columns of a Gram matrix. In integers they fit where the norms do, whatever the operator knows of its entries."""
    if gram.abs_entry_max() < INT64_LIMIT:
        return gram.columns(cells)
    units = np.zeros((gram.shape[1], len(cells)), kind)
    units[cells, np.arange(len(cells))] = 1
    return gram.matmat(units)


def _largest_whole_pair(blocks: Blocks, first: np.ndarray) -> Bound:
    weights, unit = whole_weights(blocks)
    norms = _weighted_norms(blocks, weights, 2)[first]
    if norms.dtype == object or 4 * int(norms.max()) >= INT64_LIMIT:
        return _largest_huge_pair(blocks, weights, unit, first)
    largest = max(
        int((norms[rows, None] + norms - 2 * part).max()) for rows, part in _gram_rows(blocks, weights, first)
    )
    return largest * unit, True


def _largest_huge_pair(blocks: Blocks, weights: Sequence[int], unit: Fraction, first: np.ndarray) -> Bound:
    """All pairs in Python integers, where there are few enough."""
    if sum(op.shape[0] for op, _ in blocks) * len(first) ** 2 > 16 * _EXACT_ENTRIES:
        return _largest_float_pair(blocks, first)
    gram = np.zeros((len(first), len(first)), dtype=object)
    for (op, _), weight in zip(blocks, weights, strict=True):
        columns = op.columns(first).astype(object)
        gram = gram + weight * (columns.T @ columns)
    norms = np.diag(gram)
    return int(np.max(norms[:, None] + norms - 2 * gram)) * unit, True


def _largest_float_pair(blocks: Blocks, first: np.ndarray) -> Bound:
    """Floating-point distances first; the pairs that could be the largest are then compared exactly."""
    if len(first) > PAIR_CELLS:
        return _two_largest(blocks, 2), False
    weights = [float(weight) for _, weight in blocks]
    norms = np.sum([float(w) * op.column_norms(2)[first].astype(np.float64) for op, w in blocks], axis=0)
    slack = 8 * _relative_error(blocks) * float(norms.max())
    rows: list[np.ndarray] = [
        norms[part, None] + norms - 2 * gram for part, gram in _gram_rows(blocks, weights, first)
    ]
    distances = np.concatenate(rows)
    largest = float(distances.max())
    one, other = np.nonzero(np.triu(distances >= largest - 2 * slack, 1))
    exact = _exact_pair(blocks, 2, first[one], first[other])
    return (Fraction(largest + slack), False) if exact is None else (exact, True)


def _far_pair(blocks: Blocks, first: np.ndarray) -> Bound:
    """Too many columns for all pairs: walk to a far pair, and compare it with a bound on all of them."""
    weights, unit = whole_weights(blocks)
    norms = _weighted_norms(blocks, weights, 2)
    norms = widened(norms, 4 * int(norms.max()))
    bound = _two_largest(blocks, 2)
    if any(op.gram().abs_entry_max() >= INT64_LIMIT for op, _ in blocks):  # inner products may not fit
        return bound, False
    here, best = int(first[np.argmax(norms[first])]), Fraction(0)
    for _ in range(8):
        distances = norms[here] + norms
        for (op, _), weight in zip(blocks, weights, strict=True):
            shared = op.gram().columns(np.array([here]))[:, 0]
            distances = distances - 2 * weight * shared.astype(norms.dtype)
        here = int(np.argmax(distances))
        found = int(distances[here]) * unit
        if found <= best:
            break
        best = found
    return (best, True) if best == bound else (bound, False)


def _two_largest(blocks: Blocks, p: int) -> Fraction:
    """An upper bound of the distance of two columns, from their sizes and the blocks' own largest distances.

    ``||a - b||_1 <= ||a||_1 + ||b||_1``, and ``||a - b||^2 <= ||a||^2 + ||b||^2`` for entries of one sign,
    twice that in general.
    """
    known = [op.pair_distance_max(p) for op, _ in blocks]
    apart = [
        distance * weight for distance, (_, weight) in zip(known, blocks, strict=True) if distance is not None
    ]
    bound = _two_columns(blocks, p)
    return min(bound, sum(apart, Fraction(0))) if len(apart) == len(blocks) else bound


def _two_columns(blocks: Blocks, p: int) -> Fraction:
    factor = 1 if p == 1 or all(op.binary for op, _ in blocks) else 2
    if all(op.integer for op, _ in blocks):
        weights, unit = whole_weights(blocks)
        norms = np.sort(_weighted_norms(blocks, weights, p))[-2:]
        return factor * sum(int(norm) for norm in norms) * unit
    total = sum(float(weight) * op.column_norms(p).astype(np.float64) for op, weight in blocks)
    return Fraction(2 * factor * float(np.max(total)) * (1 + 2 * _relative_error(blocks)))


def _largest_l1_pair(blocks: Blocks, first: np.ndarray) -> Bound:
    weights, unit = whole_weights(blocks)
    exact = all(op.integer for op, _ in blocks)
    total = np.zeros((len(first), len(first)), dtype=object if exact else np.float64)
    for (op, weight), whole in zip(blocks, weights, strict=True):
        columns = op.columns(first)
        if exact:
            columns = widened(columns, int(np.abs(columns).max()) * 2 * len(columns))
        for j in range(len(first) - 1):
            distances = np.abs(columns[:, j + 1 :] - columns[:, j : j + 1]).sum(axis=0)
            total[j, j + 1 :] += distances.astype(object) * whole if exact else distances * float(weight)
    if exact:
        return int(total.max()) * unit, True
    slack = 8 * _relative_error(blocks)
    one, other = np.nonzero(total >= float(total.max()) * (1 - slack))
    largest = _exact_pair(blocks, 1, first[one], first[other])
    return (Fraction(float(total.max()) * (1 + slack)), False) if largest is None else (largest, True)


def _relative_error(blocks: Blocks) -> float:
    """A bound on the relative rounding error of a weighted sum of column norms."""
    terms = max(op.shape[0] for op, _ in blocks) + len(blocks) + 16
    return terms * 2.0**-52


def _readable(blocks: Blocks, columns: int) -> bool:
    """Whether so many columns can be read exactly and summed as Python numbers."""
    written = all(op.integer or _is_written(op) for op, _ in blocks)
    return written and columns * sum(op.shape[0] for op, _ in blocks) <= _EXACT_ENTRIES


def _is_written(op: LinearOperator) -> bool:
    return isinstance(op, (Dense, Sparse)) or (isinstance(op, Permuted) and _is_written(op.op))


def _exact_power(blocks: Blocks, p: int, *cells: int) -> Fraction:
    """``sum_i w_i ||.||_p^p`` of the column of a cell, or of the difference of those of two, in fractions."""
    total = Fraction(0)
    for op, weight in blocks:
        columns = op.columns(np.array(cells)).T.tolist()
        values = (
            columns[0]
            if len(cells) == 1
            else (Fraction(a) - Fraction(b) for a, b in zip(*columns, strict=True))
        )
        total += weight * sum((abs(Fraction(value)) ** p for value in values if value), Fraction(0))
    return total


def _exact_pair(blocks: Blocks, p: int, one: np.ndarray, other: np.ndarray) -> Fraction | None:
    """The largest difference among some pairs of cells, in fractions; None where that would take too long."""
    if not len(one) or not _readable(blocks, 2 * len(one)):
        return None
    return max(_exact_power(blocks, p, j, k) for j, k in zip(one.tolist(), other.tolist(), strict=True))
