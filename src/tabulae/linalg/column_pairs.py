"""The largest column, and the largest difference of two columns, of weighted blocks.

Sums run over the classes of identical columns. Integers stay integers: ``int64`` where the largest possible
sum fits, Python integers beyond. Blocks of fractions are summed in floating point with a bound on its error;
where the few columns that could be the largest can be read entry by entry, they are then compared exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import reduce
from math import gcd, lcm

import numpy as np

from ..errors import Unsupported
from .explicit import Dense, Sparse
from .merge import joint_classes, representatives
from .numbers import INT64_LIMIT
from .operator import LinearOperator
from .permuted import Permuted

Blocks = Sequence[tuple[LinearOperator, Fraction]]
Found = tuple[Fraction, bool]

PAIR_CELLS = 8192  # classes of columns up to which all pairs are compared
_L1_WORK = 2**31  # row differences that an enumeration of pairs may take
_EXACT_ENTRIES = 2**18  # entries that may be summed as Python integers
_CHUNK = 2**22  # numbers held at once


def whole_weights(blocks: Blocks) -> tuple[list[int], Fraction]:
    """Weights as integers without a common divisor, and the unit that they count."""
    denominator = reduce(lcm, (weight.denominator for _, weight in blocks), 1)
    whole = [int(weight * denominator) for _, weight in blocks]
    divisor = reduce(gcd, whole, 0) or 1
    return [weight // divisor for weight in whole], Fraction(divisor, denominator)


def largest_column(blocks: Blocks, p: int) -> Found:
    """``max_j sum_i w_i ||A_i e_j||_p^p``."""
    weights, unit = whole_weights(blocks)
    if all(op.integer for op, _ in blocks):
        norms = weighted_norms(blocks, weights, p)
        return int(norms.max()) * unit, True
    norms = sum(float(weight) * op.column_norms(p).astype(np.float64) for op, weight in blocks)
    largest, slack = float(np.max(norms)), _relative_error(blocks)
    candidates = np.flatnonzero(norms >= largest * (1 - 2 * slack))
    if _readable(blocks, len(candidates)):
        return max(_exact_column(blocks, int(j), p) for j in candidates), True
    return Fraction(largest * (1 + 2 * slack)), False


def largest_pair(blocks: Blocks, p: int) -> Found:
    """``max_{j,k} sum_i w_i ||A_i (e_j - e_k)||_p^p``."""
    if len(blocks) == 1:
        known = blocks[0][0].pair_distance_max(p)
        if known is not None:
            return known * blocks[0][1], True
    labels = [op.column_classes() for op, _ in blocks]
    telling = [
        block for block, label in zip(blocks, labels, strict=True) if label.any()
    ]  # else columns are equal
    if not telling:
        return Fraction(0), True
    if len(telling) < len(blocks):
        return largest_pair(telling, p)
    first = representatives(joint_classes(labels))
    if p == 2 or all(
        op.binary for op, _ in blocks
    ):  # for 0/1 columns the L1 distance is the squared L2 distance
        if not all(op.integer for op, _ in blocks):
            return _largest_float_pair(blocks, first)
        return _largest_whole_pair(blocks, first) if len(first) <= PAIR_CELLS else _far_pair(blocks, first)
    rows = sum(op.shape[0] for op, _ in blocks)
    if rows * len(first) ** 2 // 2 <= _L1_WORK and rows * len(first) <= 2**26:
        return _largest_l1_pair(blocks, first)
    return _two_largest(blocks, p), False


def weighted_norms(blocks: Blocks, weights: Sequence[int], p: int) -> np.ndarray:
    """``sum_i w_i ||A_i e_j||_p^p`` for integer blocks and weights; Python integers past int64."""
    norms = [op.column_norms(p) for op, _ in blocks]
    bound = sum(weight * max(1, int(part.max())) for weight, part in zip(weights, norms, strict=True))
    if bound >= INT64_LIMIT:
        norms = [part.astype(object) for part in norms]
    return sum((part * weight for weight, part in zip(weights, norms, strict=True)), start=norms[0] * 0)


def _gram_rows(
    blocks: Blocks, weights: Sequence[int | float], first: np.ndarray
) -> Iterator[tuple[slice, np.ndarray]]:
    """Rows of the weighted Gram matrix of the columns ``first``, some at a time."""
    n, step = blocks[0][0].shape[1], max(1, _CHUNK // blocks[0][0].shape[1])
    grams = [op.gram() for op, _ in blocks]
    for start in range(0, len(first), step):
        part = first[start : start + step]
        total = np.zeros(
            (len(first), len(part)), dtype=np.int64 if isinstance(weights[0], int) else np.float64
        )
        for gram, weight in zip(grams, weights, strict=True):
            whole = gram.integer and isinstance(weight, int)
            units = np.zeros((n, len(part)), dtype=np.int64 if whole else np.float64)
            units[part, np.arange(len(part))] = 1
            total += gram.matmat(units)[first] * weight
        yield slice(start, start + len(part)), total.T


def _largest_whole_pair(blocks: Blocks, first: np.ndarray) -> Found:
    weights, unit = whole_weights(blocks)
    norms = weighted_norms(blocks, weights, 2)[first]
    if norms.dtype == object or 4 * int(norms.max()) >= INT64_LIMIT:
        return _largest_huge_pair(blocks, weights, unit, first)
    largest = max(
        int((norms[rows, None] + norms - 2 * part).max()) for rows, part in _gram_rows(blocks, weights, first)
    )
    return largest * unit, True


def _largest_huge_pair(blocks: Blocks, weights: Sequence[int], unit: Fraction, first: np.ndarray) -> Found:
    """All pairs in Python integers, where there are few enough."""
    if sum(op.shape[0] for op, _ in blocks) * len(first) ** 2 > 16 * _EXACT_ENTRIES:
        return _largest_float_pair(blocks, first)
    gram = np.zeros((len(first), len(first)), dtype=object)
    for (op, _), weight in zip(blocks, weights, strict=True):
        columns = op.columns(first).astype(object)
        gram = gram + weight * (columns.T @ columns)
    norms = np.diag(gram)
    return int(np.max(norms[:, None] + norms - 2 * gram)) * unit, True


def _largest_float_pair(blocks: Blocks, first: np.ndarray) -> Found:
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
    if len(one) and _readable(blocks, 2 * len(one)):
        pairs = zip(first[one].tolist(), first[other].tolist(), strict=True)
        return max(_exact_difference(blocks, j, k) for j, k in pairs), True
    return Fraction(largest + slack), False


def _far_pair(blocks: Blocks, first: np.ndarray) -> Found:
    """Too many columns for all pairs: walk to a far pair, and compare it with a bound on all of them."""
    weights, unit = whole_weights(blocks)
    norms = weighted_norms(blocks, weights, 2)
    if 4 * int(norms.max()) >= INT64_LIMIT:
        norms = norms.astype(object)
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
        norms = np.sort(weighted_norms(blocks, weights, p))[-2:]
        return factor * sum(int(norm) for norm in norms) * unit
    total = sum(float(weight) * op.column_norms(p).astype(np.float64) for op, weight in blocks)
    return Fraction(2 * factor * float(np.max(total)) * (1 + 2 * _relative_error(blocks)))


def _largest_l1_pair(blocks: Blocks, first: np.ndarray) -> Found:
    weights, unit = whole_weights(blocks)
    exact = all(op.integer for op, _ in blocks)
    total = np.zeros((len(first), len(first)), dtype=object if exact else np.float64)
    for (op, weight), whole in zip(blocks, weights, strict=True):
        columns = op.columns(first)
        if exact and int(np.abs(columns).max()) * 2 * len(columns) >= INT64_LIMIT:
            columns = columns.astype(object)
        for j in range(len(first) - 1):
            distances = np.abs(columns[:, j + 1 :] - columns[:, j : j + 1]).sum(axis=0)
            total[j, j + 1 :] += distances.astype(object) * whole if exact else distances * float(weight)
    if exact:
        return int(total.max()) * unit, True
    slack = 8 * _relative_error(blocks)
    one, other = np.nonzero(total >= float(total.max()) * (1 - slack))
    if _readable(blocks, 2 * len(one)):
        pairs = zip(first[one].tolist(), first[other].tolist(), strict=True)
        return max(_exact_difference(blocks, j, k, 1) for j, k in pairs), True
    return Fraction(float(total.max()) * (1 + slack)), False


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


def _exact_column(blocks: Blocks, j: int, p: int) -> Fraction:
    total = Fraction(0)
    for op, weight in blocks:
        total += weight * _exact_sum(op.columns(np.array([j]))[:, 0].tolist(), p)
    return total


def _exact_difference(blocks: Blocks, j: int, k: int, p: int = 2) -> Fraction:
    total = Fraction(0)
    for op, weight in blocks:
        one, other = op.columns(np.array([j, k])).T.tolist()
        total += weight * _exact_sum([Fraction(a) - Fraction(b) for a, b in zip(one, other, strict=True)], p)
    return total


def _exact_sum(values: Sequence[int | float | Fraction], p: int) -> Fraction:
    return sum((abs(Fraction(value)) ** p for value in values if value), Fraction(0))


def too_many_columns(count: int) -> Unsupported:
    """The refusal for column sums that would need a number per cell of a domain too large for it."""
    return Unsupported(
        f"the sensitivity of blocks of different structure over {count} cells needs a number per cell: write "
        "every block as a Kron over the same attributes"
    )
