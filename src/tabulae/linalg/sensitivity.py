"""How far the answers to a set of queries move when one record changes.

Adding or removing a record of cell ``j`` moves the answers ``A x`` by the column ``a_j``; replacing one by
another moves them by ``a_j - a_k``. For blocks with weights (``1 / s_i^2`` for Gaussian noise of variance
``s_i^2``, ``1 / b_i`` for Laplace noise of scale ``b_i``) the privacy cost is decided by

    add-remove   max_j      sum_i w_i ||A_i e_j||_p^p
    replace      max_{j,k}  sum_i w_i ||A_i (e_j - e_k)||_p^p

computed here in exact rational arithmetic: by closed form, over the classes of identical columns, or per
attribute for Kronecker products. Where that would take too long the result is an upper bound, and says so.

Sums run over the classes of identical columns. Integers stay integers: ``int64`` where the largest possible
sum fits, Python integers beyond. Blocks of fractions are summed in floating point with a bound on its error;
where the few columns that could be the largest can be read entry by entry, they are then compared exactly.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, reduce
from itertools import combinations
from typing import Any

import numpy as np

from ..errors import InvalidArgument, Unsupported
from .arrays import INT64_LIMIT, check_power, integer_matmul, joint_classes, representatives, widened
from .farthest_pair import all_pairs, farthest
from .kron import Contrasts, Kron, WeightedRows, exact_product, unlifted, weighted_rows
from .operator import (
    Centring,
    Dense,
    Identity,
    LinearOperator,
    MatrixProduct,
    Partition,
    Permuted,
    Scaled,
    Sensitivity,
    Sparse,
    Stack,
    Sum,
    Total,
    check_operators,
    worst_change,
)
from .sums_of_products import (
    CORNERS,
    Choices,
    Maximum,
    corners,
    count_corners,
    extreme,
    largest_corner,
    maximise,
    undominated,
)

Blocks = Sequence[tuple[LinearOperator, Fraction]]
Bound = tuple[Fraction, bool]
"""An upper bound, and whether it is attained."""

Margin = tuple[LinearOperator | None, tuple[LinearOperator, ...]]
"""An explicit matrix, or None for a product, and one factor an attribute."""

NEIGHBOURS = ("add-remove", "replace")
PAIR_CELLS = 8192  # classes of columns up to which all pairs are compared
_L1_WORK = 2**31  # row differences that an enumeration of pairs may take
_EXACT_ENTRIES = 2**18  # entries that may be summed as Python integers
_CHUNK = 2**22  # numbers held at once
_CONTRAST_PAIRS = 2**26  # inner products that may be held
_LISTED_CELLS = 2**12  # sums over so few cells are written out and need no bound
_COMPARED_ENTRIES = 2**22  # entries of a factor that are compared one by one
_WHOLE_PAIRS = 2**22  # pairs of cells that are compared as Python integers
_FLOAT_PAIRS = 2**28  # pairs that are compared in floating point, some at a time
_FLOAT_WORK = 2**36  # multiplications up to which more pairs are compared, about four seconds
_SINGLE_WORK = 2**40  # the same of single precision: half a minute
_WRITTEN_ENTRIES = 2**26  # entries up to which pairs are left to the comparison of written-out columns (L1)
_WRITTEN_WORK = 2**31
_VECTOR_CELLS = 2**20  # combinations of cells whose columns are all measured, beside explicit matrices
_VECTOR_LIMIT = 2**26  # cells for which a number each may be held
_PAIR_CLASSES = 512  # classes of an attribute up to which all its pairs are listed
_LISTED = 64  # classes whose pairs are listed beyond that, beside a bound on the others
_SMALL_PRODUCT = 1024  # classes up to which a whole product is written out for L1 distances
_BOXED_CLASSES = 4096  # classes whose inner products are all held at once
_COMBINED = 2**10  # cells of several attributes whose pairs are compared in combination where signs differ
_OVERLAP_ENTRIES = 2**24  # entries of a factor's columns that may be compared pair by pair
_VALUE_PAIRS = 2**16  # distinct pairs of values that an exact L1 distance may sum over


def weighted_sensitivity(
    blocks: Sequence[tuple[LinearOperator, Fraction | int]], p: int, neighbours: str = "add-remove"
) -> Sensitivity:
    """The largest weighted distance, over neighbours, between the answers of several blocks.

    Args:
        blocks: pairs ``(A_i, w_i)`` over the same ``n`` cells, ``w_i >= 0``. Stacks are taken apart, and
            Kronecker products over the same attributes are never multiplied out.
        p: 1 or 2.
        neighbours: "add-remove" or "replace".

    Returns:
        A ``Sensitivity`` whose ``power`` is ``max sum_i w_i ||.||_p^p``, and whose value is its p-th root.

    Raises:
        InvalidArgument: for another norm or name of neighbours, a negative weight, or blocks over different
            cells.

    >>> from tabulae.linalg import Identity, Total
    >>> weighted_sensitivity([(Identity(3), Fraction(1, 2)), (Total(3), Fraction(1, 3))], 2).power
    Fraction(5, 6)
    """
    check_power(p)
    if neighbours not in NEIGHBOURS:
        raise InvalidArgument(f"neighbours must be 'add-remove' or 'replace', not {neighbours!r}")
    check_operators([op for op, _ in blocks], "weighted_sensitivity")
    widths = {op.shape[1] for op, _ in blocks}
    if len(widths) != 1:
        raise InvalidArgument(
            f"weighted_sensitivity needs blocks over the same cells, not over {sorted(widths)} cells"
        )
    replace = neighbours == "replace"
    plain, attained = _without_sums([(op, _weight(weight)) for op, weight in blocks], p, replace=replace)
    parts = [part for op, weight in plain for part in _take_apart(op, weight, p)]
    if not parts:
        return Sensitivity(0, p, is_exact=True)
    if (merged := _over_classes(parts)) is not None:
        found = weighted_sensitivity(merged, p, neighbours)
        return Sensitivity(found.power, p, is_exact=found.is_exact and attained)
    found = _largest_in_contrasts(parts, replace=replace) if p == 2 else None
    if found is None:
        found = _largest_in_weighted_rows(parts, p, replace=replace)
    if found is None:
        found = _largest_in_margins(parts, p, replace=replace)
    if found is None:
        found = _largest_in_products(parts, p, replace=replace)
    if found is None:
        found = _largest_pair(parts, p) if replace else _largest_column(parts, p)
    power, is_exact = found
    return Sensitivity(power, p, is_exact=is_exact and attained)


@worst_change.register(LinearOperator)
def _worst_change(op: LinearOperator, p: int, neighbours: str) -> Sensitivity:
    return weighted_sensitivity([(op, 1)], p, neighbours)


def _over_classes(blocks: Blocks) -> Blocks | None:
    """The blocks over classes of cells, where each of them adds up the same classes first; None elsewhere.

    Cells of one class have equal columns, and no class is empty: the blocks have the same columns, each once.
    """
    first = blocks[0][0]
    if not isinstance(first, MatrixProduct) or not _adds_up_classes(first.right):
        return None
    over = []
    for op, weight in blocks:
        if not isinstance(op, MatrixProduct) or op.right != first.right:
            return None
        over.append((op.left, weight))
    return over


def _adds_up_classes(op: LinearOperator) -> bool:
    """Whether every column of an operator is one of the identity's, and each of these occurs."""
    if isinstance(op, Kron):
        return all(map(_adds_up_classes, op.ops))
    if isinstance(op, Partition):
        return bool(op.classes.min() >= 0 and op.sizes.min() > 0)
    return isinstance(op, (Identity, Total))


def _take_apart(op: LinearOperator, weight: Fraction, p: int) -> list[tuple[LinearOperator, Fraction]]:
    """The blocks that a block is made of, with multiples moved into the weights and equal blocks joined."""
    joined: dict[LinearOperator, Fraction] = {}
    for part, share in _parts(op, weight, p):
        if share:
            joined[part] = joined.get(part, Fraction(0)) + share
    return list(joined.items())


def _parts(op: LinearOperator, weight: Fraction, p: int) -> list[tuple[LinearOperator, Fraction]]:
    if isinstance(op, Dense):
        whole, exponent = op.on_grid()
        return [(whole, weight / 2 ** (exponent * p))]
    if isinstance(op, Scaled):
        return _parts(op.op, weight * abs(Fraction(op.factor)) ** p, p)
    if isinstance(op, Stack):
        return [part for member in op.ops for part in _parts(member, weight, p)]
    if isinstance(op, Permuted):
        return [(Permuted(part, op.order), share) for part, share in _parts(op.op, weight, p)]
    if isinstance(op, Kron):
        if len(op.ops) == 1:
            return _parts(op.ops[0], weight, p)
        factors = []
        for factor in op.ops:
            parts = _parts(factor, Fraction(1), p)
            if len(parts) == 1:  # a stack stays together, for it would multiply the number of products
                factor, share = parts[0]
                weight *= share
            factors.append(factor)
        return [(Kron(tuple(factors)), weight)]
    return [(op, weight)]


def _weight(weight: Any) -> Fraction:
    if (
        isinstance(weight, bool)
        or not isinstance(weight, (int, Fraction, float))
        or not 0 <= weight < math.inf
    ):
        raise InvalidArgument(f"a weight must be a Fraction of at least 0, not {weight!r}")
    return Fraction(weight)


def _whole_weights(blocks: Blocks) -> tuple[list[int], Fraction]:
    """Weights as integers without a common divisor, and the unit that they count."""
    denominator = reduce(math.lcm, (weight.denominator for _, weight in blocks), 1)
    whole = [int(weight * denominator) for _, weight in blocks]
    divisor = reduce(math.gcd, whole, 0) or 1
    return [weight // divisor for weight in whole], Fraction(divisor, denominator)


# sums of products ----------------------------------------------------------------------------------
def _without_sums(
    blocks: Sequence[tuple[LinearOperator, Fraction]], p: int, *, replace: bool
) -> tuple[list[tuple[LinearOperator, Fraction]], bool]:
    """The blocks with every large sum of products replaced, and whether the largest column is still exact.

    A disjunction is counted by a sum of products, ``A or B = A + (B and not A)`` or ``1 - (not A and not B)``, whose
    cells are too many to list. For the size of its columns a sum of products without negative entries may be
    replaced, over unsigned products K_s with coefficients c_s, by

    * the stack of its terms, if no cell is counted by two of them: the columns' norms are the same, and
      distances of columns no smaller;
    * the stack without a negative term that some positive term covers entry by entry (``0 <= K' <= K`` gives
      ``0 <= K - K' <= K``); as that may bring columns closer, distances are then bounded by the sum of the two
      columns' norms, which is what distinct columns of an identity are apart;
    * otherwise the stack of ``|c_s| K_s``, times ``sum |c_s|`` for squared norms (Cauchy and Schwarz).
    """
    out: list[tuple[LinearOperator, Fraction]] = []
    exact = True
    for op, weight in blocks:
        terms = _unsigned_terms(op) if isinstance(op, Sum) and op.shape[1] > _LISTED_CELLS else None
        if terms is None:
            out.append((op, weight))
            continue
        parts, same = _as_stack(terms, p)
        if replace and any(c < 0 for c, _ in terms):
            parts = [_apart(kron, share, p) for kron, share in parts]
        out.extend((kron, weight * share) for kron, share in parts)
        exact = exact and same and not replace
    return out, exact


def _unsigned_terms(op: Sum) -> list[tuple[Fraction, Kron]] | None:
    """The terms, where all are unsigned Kronecker products of integers over the same attributes."""
    terms = [(Fraction(c), kron) for c, kron in op.terms if isinstance(kron, Kron) and kron.integer]
    if len(terms) < len(op.terms) or len({kron.sizes for _, kron in terms}) > 1:
        return None
    return terms if all(_counts_up(f) for _, kron in terms for f in kron.ops) else None


def _as_stack(terms: list[tuple[Fraction, Kron]], p: int) -> tuple[list[tuple[Kron, Fraction]], bool]:
    positive = [(c, k) for c, k in terms if c > 0]
    uncovered: list[tuple[Fraction, Kron]] = []
    free = list(positive)
    for c, kron in terms:
        if c > 0:
            continue
        cover = next((i for i, (d, other) in enumerate(free) if d >= -c and _covers(other, kron)), None)
        if cover is None:
            uncovered.append((-c, kron))
        else:
            del free[cover]  # a positive term pays for one negative term only
    kept = positive + uncovered
    if not uncovered and all(_disjoint(a, b) for (_, a), (_, b) in combinations(positive, 2)):
        return [(k, c**p) for c, k in positive], len(positive) == len(terms)
    whole = sum((c for c, _ in kept), Fraction(0))
    return [(k, c if p == 1 else c * whole) for c, k in kept], False


def _apart(kron: Kron, share: Fraction, p: int) -> tuple[Kron, Fraction]:
    """Columns as long as the product's longest, any two of them as far apart as unsigned columns can be."""
    longest = Fraction(1)
    for factor in kron.ops:
        longest *= int(max(factor.column_norms(p)))
    return Kron([Identity(n) for n in kron.sizes]), share * longest


def _disjoint(a: Kron, b: Kron) -> bool:
    """Whether some attribute has no cell that both products count."""
    pairs = zip(a.ops, b.ops, strict=True)
    return any(not np.any((f.column_norms(1) != 0) & (g.column_norms(1) != 0)) for f, g in pairs)


def _covers(large: Kron, small: Kron) -> bool:
    """Whether each factor of the one is, entry by entry, at least that of the other."""
    for f, g in zip(large.ops, small.ops, strict=True):
        if f.shape != g.shape or (f != g and f.shape[0] * f.shape[1] > _COMPARED_ENTRIES):
            return False
        if f != g and not bool(np.all(f.dense() >= g.dense())):
            return False
    return True


def _counts_up(factor: LinearOperator) -> bool:
    small = factor.shape[0] * factor.shape[1] <= _COMPARED_ENTRIES
    return factor.binary or (small and bool(np.all(factor.dense() >= 0)))


# contrasts over common classes ---------------------------------------------------------------------
def _largest_in_contrasts(blocks: Blocks, *, replace: bool) -> Bound | None:
    """The largest ``sum_i w_i ||A_i d||_2^2``; None for other blocks, and for pairs to be listed cell by cell.

    Blocks ``A_b`` that are :class:`Contrasts` over the same classes have Gram matrices that no permutation of the
    cells within a class changes. Hence every column has the norm of any other of its combination of classes, and any
    two columns are as far apart as two of the following: the first cell of each attribute's class, and the first or
    the second cell of each attribute's class. With M_b the Gram matrix of the block's own matrix over classes, the
    inner product of cells x and y is

        sum_b w_b M_b[x, y] prod_{i in S_b} (s_i^2 [x_i = y_i] - s_i)      over b whose classes in S_b hold x_i and y_i.

    Privacy:
        Exact: integers throughout, over pairs that stand for all pairs (see above). Where these are too many, and cells
        too many to be listed, an upper bound: ``|x - y|^2 <= 2 |x|^2 + 2 |y|^2``.
    """
    members = [op for op, _ in blocks if isinstance(op, Contrasts)]
    if len(members) < len(blocks) or not all(op.integer for op in members):
        return None
    if any((op.merges, op.classes) != (members[0].merges, members[0].classes) for op in members):
        return None
    weights, unit = _whole_weights(blocks)
    diagonal = _contrast_norms(members, weights)
    if not replace:
        return int(diagonal.max()) * unit, True
    second = [np.flatnonzero(part.sizes > 1) for part in members[0].classes]
    others = math.prod(part.shape[0] + len(s) for part, s in zip(members[0].classes, second, strict=True))
    if diagonal.size * others <= _CONTRAST_PAIRS:
        return int(_farthest_contrasts(members, weights, diagonal, second)) * unit, True
    found = _farthest_columns(members, weights, diagonal)
    if found is not None:
        return found * unit, True
    return None if members[0].shape[1] <= _VECTOR_LIMIT else (4 * int(diagonal.max()) * unit, False)


def _farthest_columns(
    members: Sequence[Contrasts], weights: Sequence[int], diagonal: np.ndarray
) -> int | None:
    """The largest squared distance where no cells are compared within a class, so that all of a class are alike.

    Those of each combination of classes have the column that B has for it, and few of these may differ. None for other
    blocks, and where more than ``PAIR_CELLS`` differ, or have too many entries.
    """
    if any(op.picked for op in members) or diagonal.dtype == object:
        return None
    first = representatives(joint_classes([op.matrix.column_classes() for op in members]))
    if len(first) > PAIR_CELLS or len(first) * sum(op.shape[0] for op in members) > _WRITTEN_ENTRIES:
        return None
    columns, norms = [op.matrix.columns(first) for op in members], diagonal.reshape(-1)[first]
    largest, step = 0, max(1, _CHUNK // len(first))
    for start in range(0, len(first), step):
        part = slice(start, start + step)
        inner = sum(
            w * integer_matmul(np.ascontiguousarray(c[:, part].T), c)
            for c, w in zip(columns, weights, strict=True)
        )
        largest = max(largest, int((norms[part, None] + norms - 2 * inner).max()))
    return largest


def _contrast_norms(members: Sequence[Contrasts], weights: Sequence[int]) -> np.ndarray:
    """Squared norms of the columns, one for each combination of classes: (C_1, ..., C_d)."""
    # Of the centring matrices' columns
    centred = [math.prod(s * (s - 1) for s in op.picked) for op in members]
    norms = [op.matrix.column_norms(2).astype(object) * c for op, c in zip(members, centred, strict=True)]
    bound = sum(w * int(n.max()) for w, n in zip(weights, norms, strict=True))
    dtype = np.int64 if 4 * bound < INT64_LIMIT else object
    total = np.zeros([part.shape[0] for part in members[0].classes], dtype=dtype)
    for op, weight, norm in zip(members, weights, norms, strict=True):
        place = tuple(slice(None) if c is None else c for c in op.within)
        total[place] += (norm * weight).astype(dtype).reshape(op.widths)
    return total


def _farthest_contrasts(
    members: Sequence[Contrasts], weights: Sequence[int], diagonal: np.ndarray, second: Sequence[np.ndarray]
) -> int:
    """The largest squared distance of a first cell x and a first or second cell y, ``|x|^2 + |y|^2 - 2 <x, y>``."""
    labels = [np.concatenate([np.arange(n), s]) for n, s in zip(diagonal.shape, second, strict=True)]
    inner = np.zeros((*diagonal.shape, *(len(label) for label in labels)), dtype=diagonal.dtype)
    for op, weight in zip(members, weights, strict=True):
        inner[_contrast_places(op, labels)] += weight * _contrast_products(op, labels, diagonal.dtype)
    sizes = diagonal.reshape(-1)
    others = diagonal[np.ix_(*labels)].reshape(-1)
    return (sizes[:, None] + others - 2 * inner.reshape(sizes.size, others.size)).max()


def _contrast_places(op: Contrasts, labels: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """Where the block's inner products belong: classes of x, then cells y, one index array an axis."""
    x = [
        np.arange(part.shape[0]) if c is None else np.array([c])
        for part, c in zip(op.classes, op.within, strict=True)
    ]
    y = [
        np.arange(len(lab)) if c is None else np.flatnonzero(lab == c)
        for lab, c in zip(labels, op.within, strict=True)
    ]
    return np.ix_(*x, *y)


def _contrast_products(op: Contrasts, labels: Sequence[np.ndarray], dtype: np.dtype) -> np.ndarray:
    """M_b, repeated for second cells, times the centring matrices' inner products with first and second cells."""
    outside = [lab for lab, c in zip(labels, op.within, strict=True) if c is None]
    gram = _inner_products(op.matrix, np.arange(op.matrix.shape[1]))
    kind = gram.dtype if gram.dtype == object else dtype  # of a class of one cell, whose products are all 0
    gram = gram.astype(kind)
    gram = gram.reshape(op.widths + op.widths)
    if outside:
        gram = gram[np.ix_(*(np.arange(n) for n in op.widths), *outside)]
    ends = [np.array([s * s - s] + [-s] * (s > 1), dtype=kind) for s in op.picked]
    shape_x, shape_y, place = [], [], 0
    for c, lab in zip(op.within, labels, strict=True):
        shape_x.append(1 if c is not None else op.classes[len(shape_x)].shape[0])
        shape_y.append(1 if c is not None else len(lab))
    out = gram.reshape(shape_x + shape_y)
    for axis, c in enumerate(op.within):
        if c is not None:
            shape = [1] * (2 * len(labels))
            shape[len(labels) + axis] = len(ends[place])
            out = out * ends[place].reshape(shape)
            place += 1
    return out.astype(dtype)


# rows that are weighed one by one ------------------------------------------------------------------
def _largest_in_weighted_rows(blocks: Blocks, p: int, *, replace: bool) -> Bound | None:
    """The largest column or pair of one block of weighted rows; None for other blocks, and for L1 pairs to be listed.

    Privacy:
        Add-remove: exact, in integers. Replace: exact where there are at most 4 million pairs; else an upper bound,
        for L2 by 1e-9 of the norm up to 2^28 pairs, or to more that take 2^36 multiplications, by 1e-4 up to 2^40
        (three attributes of 64, two of 300), and beyond by branch and bound. Where that is too large, and for L1,
        ``||a - b||^p <= 2^p max ||a||^p`` over the rows that do not count all cells alike.
    """
    view = weighted_rows(blocks[0][0]) if len(blocks) == 1 else None
    if view is None:
        return None
    unit = blocks[0][1]
    if not replace:
        return view.largest_norm(p) * unit, True
    cells = [view.distinct_cells(axis) for axis in range(len(view.factors))]
    pairs = math.prod(len(c) ** 2 for c in cells)
    if p == 1:
        rows, count = int(np.count_nonzero(view.weights)), math.prod(f.shape[1] for f in view.factors)
        if rows * count <= _WRITTEN_ENTRIES and rows * count**2 // 2 <= _WRITTEN_WORK:
            return None
    else:
        work = _pair_work(view.weights.shape, [len(c) for c in cells])
        if pairs <= _FLOAT_PAIRS or work <= _FLOAT_WORK:
            whole, is_exact = _largest_distance(view, cells)
            return whole * unit, is_exact
    view = view.without_constants()
    bound = Fraction(2**p * view.largest_norm(p))
    if p == 2 and bound:
        columns = [f.columns(c).T.astype(np.int64) for f, c in zip(view.factors, cells, strict=True)]
        squares, found = view.powers(2).reshape(view.weights.shape), None
        if work <= _SINGLE_WORK:
            norms = exact_product([c**2 for c in columns], view.powers(2)).reshape([len(c) for c in columns])
            found = all_pairs(columns, squares, norms, np.float32)
        found = farthest(columns, squares) if found is None else found
        bound = bound if found is None else min(bound, found)
    return bound * unit, False


def _largest_distance(view: WeightedRows, cells: Sequence[np.ndarray]) -> Bound:
    """``max_{j,k} ||D A (e_j - e_k)||_2^2`` over pairs of cells that stand for all."""
    view = view.without_constants()
    if not view.weights.any():
        return Fraction(0), True
    columns = [f.columns(c).T.astype(np.int64) for f, c in zip(view.factors, cells, strict=True)]
    squares = view.powers(2)
    norms = exact_product([c**2 for c in columns], squares)
    shape = [len(c) for c in columns]
    if math.prod(shape) ** 2 <= _WHOLE_PAIRS:
        products = [(c[:, None, :] * c).reshape(-1, c.shape[1]) for c in columns]
        inner = exact_product(products, squares).reshape([n for size in shape for n in (size, size)])
        d = len(shape)
        inner = inner.transpose([*range(0, 2 * d, 2), *range(1, 2 * d, 2)]).reshape(len(norms), len(norms))
        return Fraction(int(np.max(norms[:, None] + norms - 2 * inner))), True
    found = all_pairs(columns, squares.reshape(view.weights.shape), norms.reshape(shape))
    assert found is not None
    return found, False


def _pair_work(rows: Sequence[int], cells: Sequence[int]) -> int:
    """Multiplications and additions of all pairs, for factors of so many rows and distinct cells."""
    sides = sorted(zip(rows, cells, strict=True), reverse=True)
    pairs, left, work = 1, math.prod(rows), 2 * math.prod(n * n for n in cells)
    for m, n in sides:  # the first factor's pairs stand before its rows are summed up, the others' after
        pairs *= n * (n + 1) // 2
        work += pairs * left
        left //= m
    return work


# explicit matrices over margins, beside products --------------------------------------------------
def _largest_in_margins(blocks: Blocks, p: int, *, replace: bool) -> Bound | None:
    """The largest column or pair where some blocks are explicit matrices over margins ``M (x)_i F_i``, others products.

    The F_i add up classes of cells, so that the column of a cell is the column of M of its combination of classes.
    None for other blocks, and where none is explicit.

    Privacy:
        Exact over the combinations of cells that the blocks tell apart, where these are few: in integers, every column
        or pair is compared. Otherwise the sum of the largest of the products together and of the largest of each
        explicit block, an upper bound: the maximum of a sum is at most the sum of the maxima.
    """
    sides = [_margin(op) for op, _ in blocks]
    if any(side is None for side in sides) or all(isinstance(op, Kron) for op, _ in blocks):
        return None
    margins = [side for side in sides if side is not None]
    if len({tuple(f.shape[1] for f in factors) for _, factors in margins}) > 1:
        return None
    columns = zip(*(factors for _, factors in margins), strict=True)
    axes = [_AxisFactors(tuple(column)) for column in columns]
    cells = math.prod(len(axis.first) for axis in axes)
    if all(op.integer for op, _ in blocks) and cells <= (_LISTED_CELLS if replace else _VECTOR_CELLS):
        if not replace:
            return _largest_margin_column(blocks, margins, axes, p)
        rows = sum(op.shape[0] for op, _ in blocks)
        listed = _listed_margins(blocks, margins, axes) if rows * cells <= _WRITTEN_ENTRIES else None
        if listed is not None:
            return _largest_pair(listed, p)
    explicit: dict[LinearOperator, Fraction] = {}
    for (_, weight), (left, _) in zip(blocks, margins, strict=True):
        if left is not None:
            explicit[left] = explicit.get(left, Fraction(0)) + weight
    products = [block for block in blocks if isinstance(block[0], Kron)]
    found = _largest_in_products(products, p, replace=replace) if products else (Fraction(0), True)
    if found is None:
        return None
    largest = _largest_pair if replace else _largest_column
    return found[0] + sum((largest([(left, w)], p)[0] for left, w in explicit.items()), Fraction(0)), False


def _margin(op: LinearOperator) -> Margin | None:
    """The explicit matrix, None for a product, and the factors; None for an operator of another form."""
    if isinstance(op, Kron):
        return None, tuple(op.ops)
    if isinstance(op, MatrixProduct) and isinstance(op.right, Kron) and _adds_up_classes(op.right):
        return op.left, tuple(op.right.ops)
    return None


def _largest_margin_column(
    blocks: Blocks, margins: Sequence[Margin], axes: Sequence[_AxisFactors], p: int
) -> Bound:
    """``max_j sum_b w_b ||A_b e_j||_p^p`` over all combinations of cells, in integers."""
    weights, unit = _whole_weights(blocks)
    norms = []
    for left, factors in margins:
        sides = [
            np.zeros(1, dtype=np.int64) if isinstance(f, Total) else axis.first
            for f, axis in zip(factors, axes, strict=True)
        ]
        if left is None:
            parts = [f.column_norms(p)[side] for f, side in zip(factors, sides, strict=True)]
            bound = math.prod(max(1, int(part.max())) for part in parts)
            norms.append(reduce(np.multiply.outer, [widened(part, bound) for part in parts]))
        else:
            norms.append(left.column_norms(p)[_classes_of(factors, sides)])
    bound = sum(w * max(1, int(n.max())) for w, n in zip(weights, norms, strict=True))
    total = np.zeros([len(axis.first) for axis in axes], dtype=np.int64 if bound < INT64_LIMIT else object)
    for norm, weight in zip(norms, weights, strict=True):
        total += widened(norm, bound) * weight
    return int(total.max()) * unit, True


def _classes_of(factors: Sequence[LinearOperator], sides: Sequence[np.ndarray]) -> np.ndarray:
    """The position of each combination of cells among the columns of an explicit matrix."""
    places = np.arange(math.prod(f.shape[0] for f in factors)).reshape([f.shape[0] for f in factors])
    return places[np.ix_(*(f.columns(side).argmax(axis=0) for f, side in zip(factors, sides, strict=True)))]


def _listed_margins(blocks: Blocks, margins: Sequence[Margin], axes: Sequence[_AxisFactors]) -> Blocks | None:
    """The blocks over all combinations of cells, written out; None where entries are too large."""
    if any(op.abs_entry_max() >= 2**62 for op, _ in blocks):
        return None
    sides = [axis.first for axis in axes]
    listed = []
    for (_, weight), (left, factors) in zip(blocks, margins, strict=True):
        if left is None:
            matrix = reduce(np.kron, [f.columns(side) for f, side in zip(factors, sides, strict=True)])
        else:
            matrix = left.columns(_classes_of(factors, sides).reshape(-1))
        listed.append((Dense(matrix), weight))
    return listed


# products, attribute by attribute ------------------------------------------------------------------
def _largest_in_products(blocks: Blocks, p: int, *, replace: bool) -> Bound | None:
    """The largest column or pair of weighted products over the same attributes; ``None`` for other blocks.

    A column of a product is a product of columns, so its power sum is the product of the factors' power sums:

        add-remove   sum_b w_b  prod_i  ||f_bi e_j||_p^p
        replace      sum_b w_b (prod_i a_bi + prod_i b_bi - 2 prod_i c_bi)

    with ``a = ||f e_j||^2``, ``b = ||f e_k||^2`` and ``c = <f e_j, f e_k>`` for a pair of cells ``(j, k)`` of
    attribute ``i``. Both are sums of products, maximised over one choice per attribute (``sums_of_products.py``).
    The same holds for the L1 distance of 0/1 columns, which is their squared L2 distance.

    For the L1 distance of other columns ``c = sum_r min(|u_r|, |v_r|)`` over entries of one sign gives an upper
    bound, because a product of minima is at most the minimum of products; choices that reach it are evaluated
    exactly.
    """
    sizes = {op.sizes if isinstance(op, Kron) else None for op, _ in blocks}
    if len(sizes) > 1 or sizes == {None}:
        if len(blocks) > 1 and blocks[0][0].shape[1] > _VECTOR_LIMIT:
            raise Unsupported(
                f"the sensitivity of blocks of different structure over {blocks[0][0].shape[1]} cells needs a number "
                "per cell: write every block as a Kron over the same attributes"
            )
        return None
    if replace:  # two records meet a total alike: its weight would only loosen bounds
        blocks = [(op, weight) for op, weight in blocks if not _is_total(op)]
        if not blocks:
            return Fraction(0), True
    products = [tuple(op.ops) for op, _ in blocks if isinstance(op, Kron)]
    attributes = [
        _AxisFactors(tuple(product[axis] for product in products)) for axis in range(len(products[0]))
    ]
    if not replace:
        return _largest(blocks, attributes, p)
    telling = [axis for axis, attribute in enumerate(attributes) if len(attribute.first) > 1]
    if not telling:
        return Fraction(0), True
    if len(telling) == 1:  # the other factors multiply every distance by a constant
        others = attributes[: telling[0]] + attributes[telling[0] + 1 :]
        power, is_exact = _largest_pair(_one_attribute(blocks, attributes, telling[0], p), p)
        return power * _rounding(others, len(blocks)), is_exact and all(other.integer for other in others)
    binary = all(factor.binary for attribute in attributes for factor in attribute.distinct)
    if p == 1 and not binary and _is_small(blocks, attributes):
        return _largest_pair(blocks, p)
    return _largest_difference(blocks, attributes, p, overlap=p == 1 and not binary)


@dataclass(frozen=True)
class _AxisFactors:
    """The factors that the products have on one attribute."""

    factors: tuple[LinearOperator, ...]

    @cached_property
    def distinct(self) -> list[LinearOperator]:
        """Each different factor once."""
        return list(dict.fromkeys(self.factors))

    @cached_property
    def column_of(self) -> np.ndarray:
        """For each product, the position of its factor in ``distinct``."""
        position = {factor: index for index, factor in enumerate(self.distinct)}
        return np.array([position[factor] for factor in self.factors])

    @cached_property
    def first(self) -> np.ndarray:
        """One cell for each class of cells that no factor tells apart."""
        return representatives(joint_classes([factor.column_classes() for factor in self.distinct]))

    @cached_property
    def integer(self) -> bool:
        return all(factor.integer for factor in self.distinct)

    def norms(self, p: int) -> np.ndarray:
        """Power sums ``(cells, factors)`` of the columns ``first``."""
        return _table([factor.column_norms(p)[self.first] for factor in self.distinct], integer=self.integer)

    def columns(self, p: int) -> Choices:
        """One choice per different row of power sums."""
        norms = self.norms(p)
        cells = np.repeat(self.first[:, None], 2, axis=1)
        choices = Choices(norms, np.ones(len(norms), dtype=bool), cells)
        return choices[undominated(choices, np.ones(norms.shape[1], dtype=np.int64), [])]

    def pairs(self, p: int, *, overlap: bool) -> Choices:
        """Choices ``[a, b, c]`` for pairs of cells; all pairs, or some and a bound on the others."""
        norms = self.norms(p)
        listed = np.arange(len(norms))
        if len(listed) > _PAIR_CLASSES:
            largest = np.argsort(-norms.astype(np.float64).sum(axis=1), kind="stable")[: _LISTED // 2]
            spread = np.linspace(0, len(listed) - 1, _LISTED // 2).astype(np.int64)
            listed = np.unique(np.concatenate([largest, spread]))
        cells = self.first[listed]
        shared = [_overlaps(f, cells) if overlap else _inner_products(f, cells) for f in self.distinct]
        one, other = np.repeat(np.arange(len(cells)), len(cells)), np.tile(np.arange(len(cells)), len(cells))
        attained = (one == other) if overlap else np.ones(len(one), dtype=bool)
        choices = _pair_choices(norms[listed], shared, cells, (one, other), attained, integer=self.integer)
        return choices if len(listed) == len(norms) else _with_bound(choices, norms, self)

    def corners(self) -> Choices | None:
        """The pairs of cells, where few differ; otherwise the corners of a box that holds them all.

        None where both are too many: the corners double with every different factor.
        """
        if self._alike:  # one cell against itself, and against any other
            cells = self.first[:2]
            one, other = np.array([0, 0]), np.array([0, len(cells) - 1])
        else:
            cells = self.first
            one, other = np.indices((len(cells), len(cells)), dtype=np.int32).reshape(2, -1)
        norms = self.norms(2)[: len(cells)]
        shared = [_inner_products(factor, cells) for factor in self.distinct]
        if len(cells) > _PAIR_CLASSES:
            return corners(norms, shared) if count_corners(shared) <= CORNERS else None
        pairs = _pair_choices(norms, shared, cells, (one, other), np.ones(len(one), dtype=bool), integer=True)
        pairs = pairs[_distinct(pairs)]
        return pairs if len(pairs) <= count_corners(shared) else corners(norms, shared)

    @property
    def boxed(self) -> bool:
        """Whether the inner products of all its columns can be held."""
        return self.integer and (self._alike or len(self.first) <= _BOXED_CLASSES)

    @cached_property
    def _alike(self) -> bool:
        """Whether every factor treats all classes of cells alike, so that one pair stands for all."""
        return all(_treats_alike(factor, len(self.first)) for factor in self.distinct)

    @property
    def is_unsigned(self) -> bool:
        """Whether no factor has a negative entry."""
        return all(_is_unsigned(factor) for factor in self.distinct)


def _largest(blocks: Blocks, attributes: Sequence[_AxisFactors], p: int) -> Bound:
    weights, unit = _whole_weights(blocks)
    choices = [attribute.columns(p) for attribute in attributes]
    expanded = [_expand(c, a.column_of) for c, a in zip(choices, attributes, strict=True)]
    expanded, gains = _common_dtype(expanded, weights)
    found = maximise(expanded, gains)
    assert found is not None  # power sums are never negative
    return Fraction(found.value) * unit * _rounding(attributes, len(blocks)), found.is_exact


def _largest_difference(
    blocks: Blocks, attributes: Sequence[_AxisFactors], p: int, *, overlap: bool
) -> Bound:
    weights, unit = _whole_weights(blocks)
    unsigned = overlap or all(attribute.is_unsigned for attribute in attributes)
    column, _ = _largest(blocks, attributes, p)
    bound = column * (2 if p == 1 or unsigned else 4)
    if not unsigned:
        signed = _largest_signed(attributes, weights)
        if signed is not None and (
            signed.is_exact or math.prod(len(a.first) for a in attributes) > _COMBINED
        ):
            power = int(signed.value) * unit
            return (power, signed.is_exact) if power <= bound else (bound, False)
        if any(len(attribute.first) > _PAIR_CLASSES for attribute in attributes):
            return bound, False
    choices = []
    for attribute in attributes:
        pairs = attribute.pairs(p, overlap=overlap)
        if unsigned:  # before expanding: few columns to compare
            directions = np.repeat(np.array([1, 1, -1]), len(attribute.distinct))
            pairs = pairs[undominated(pairs, directions, [])]
        pairs = pairs[_distinct(pairs)]
        pairs = pairs[extreme(pairs)]
        shift = attribute.column_of[:, None] + len(attribute.distinct) * np.arange(3)
        choices.append(_expand(pairs, shift.T.reshape(-1)))
    gains = [*weights, *weights, *(-2 * weight for weight in weights)]
    choices, coefficients = _common_dtype(choices, gains)
    exact = all(attribute.integer for attribute in attributes)
    evaluate = (lambda cells: _l1_distance(attributes, weights, cells)) if overlap and exact else None
    found = maximise(choices, coefficients, evaluate)
    if found is None:
        return bound, False
    # Of inner products, relative to the columns
    error = 4 * column * (_rounding(attributes, len(blocks)) - 1)
    power = Fraction(found.value) * unit + error
    return (power, found.is_exact) if power <= bound else (bound, False)


def _largest_signed(attributes: Sequence[_AxisFactors], weights: Sequence[int]) -> Maximum | None:
    """The largest distance over the corners of each attribute, exact where they are pairs.

    None for fractions, and where there are too many corners.
    """
    if not all(attribute.boxed for attribute in attributes):
        return None
    choices = [choice for attribute in attributes if (choice := attribute.corners()) is not None]
    if len(choices) < len(attributes):
        return None
    return largest_corner(choices, [attribute.column_of for attribute in attributes], weights)


def _rounding(attributes: Sequence[_AxisFactors], products: int) -> Fraction:
    """How much a sum of products of power sums may gain by rounding: 1 for integers."""
    if all(attribute.integer for attribute in attributes):
        return Fraction(1)
    rows = sum(max(factor.shape[0] for factor in attribute.distinct) + 8 for attribute in attributes)
    return 1 + Fraction(rows + products + 64, 2**50)


def _pair_choices(
    norms: np.ndarray,
    shared: Sequence[np.ndarray],
    cells: np.ndarray,
    pairs: tuple[np.ndarray, np.ndarray],
    attained: np.ndarray,
    *,
    integer: bool,
) -> Choices:
    """Choices ``[a, b, c]`` for pairs of the cells: norms (cells, factors), shared (cells, cells) by factor."""
    one, other = pairs
    values = [norms[one], norms[other], _table([c[one, other] for c in shared], integer=integer)]
    return Choices(np.concatenate(values, axis=1), attained, np.stack([cells[one], cells[other]], axis=1))


def _table(columns: list[np.ndarray], *, integer: bool) -> np.ndarray:
    """Columns side by side: int64, Python integers, or floats."""
    if not integer:
        return np.stack([column.astype(np.float64) for column in columns], axis=1)
    whole = object if any(column.dtype == object for column in columns) else np.int64
    return np.stack([column.astype(whole) for column in columns], axis=1)


def _expand(choices: Choices, columns: np.ndarray) -> Choices:
    return Choices(choices.values[:, columns], choices.attained, choices.cells)


def _common_dtype(choices: list[Choices], gains: Sequence[int]) -> tuple[list[Choices], np.ndarray]:
    """int64 where every sum fits, Python integers beyond, floats where a factor holds fractions."""
    if any(member.values.dtype == np.float64 for member in choices):
        kind: type = np.float64
    else:
        bound = [abs(gain) for gain in gains]
        for member in choices:
            bound = [
                b * max(1, int(v)) for b, v in zip(bound, np.abs(member.values).max(axis=0), strict=True)
            ]
        kind = np.int64 if 2 * sum(bound) < INT64_LIMIT else object
    members = [Choices(m.values.astype(kind), m.attained, m.cells) for m in choices]
    return members, np.array(gains, dtype=object).astype(kind)


def _one_attribute(blocks: Blocks, attributes: Sequence[_AxisFactors], axis: int, p: int) -> Blocks:
    joined: dict[LinearOperator, Fraction] = {}
    for position, (_, weight) in enumerate(blocks):
        share = weight
        for other, attribute in enumerate(attributes):
            if other != axis:
                norm = attribute.norms(p)[0, attribute.column_of[position]]
                share *= Fraction(norm if isinstance(norm, (int, float)) else norm.item())
        factor = attributes[axis].factors[position]
        joined[factor] = joined.get(factor, Fraction(0)) + share
    return list(joined.items())


def _is_small(blocks: Blocks, attributes: Sequence[_AxisFactors]) -> bool:
    classes = math.prod(len(attribute.first) for attribute in attributes)
    rows = sum(op.shape[0] for op, _ in blocks)
    cells = blocks[0][0].shape[1]
    fits = all(op.abs_entry_max() * rows < 2**62 for op, _ in blocks)  # else in Python integers, slowly
    work = rows * classes**2
    return classes <= _SMALL_PRODUCT and cells <= 64 * _SMALL_PRODUCT and work <= 2**32 and fits


def _is_total(op: LinearOperator) -> bool:
    return isinstance(op, Kron) and all(isinstance(factor, Total) for factor in op.ops)


def _treats_alike(factor: LinearOperator, classes: int) -> bool:
    """Whether the matrix, over so many classes of cells, is Total, Identity or Centring."""
    rows, merge = unlifted(factor)
    if merge is not None:
        return isinstance(rows, Centring) and rows.n == classes
    if isinstance(factor, Partition):
        return factor.shape[0] == classes and factor.classes.min() >= 0 and bool(factor.sizes.all())
    return isinstance(factor, (Total, Identity, Centring))


def _distinct(choices: Choices) -> np.ndarray:
    """Indices of the choices of different numbers."""
    columns = [np.unique(column, return_inverse=True)[1].reshape(-1) for column in choices.values.T]
    return representatives(joint_classes([choices.attained.astype(np.int64), *columns]))


def _is_unsigned(op: LinearOperator) -> bool:
    if isinstance(op, Dense):
        return bool(op.array.min() >= 0)
    if isinstance(op, Sparse):
        return op.matrix.nnz == 0 or bool(op.matrix.data.min() >= 0)
    return op.binary


def _inner_products(factor: LinearOperator, cells: np.ndarray) -> np.ndarray:
    """``<f e_j, f e_k>`` for all pairs of the cells."""
    if not factor.integer:
        columns = factor.columns(cells)
        return columns.T @ columns
    norms = factor.column_norms(2)[cells]
    if norms.dtype == object:
        columns = factor.columns(cells).astype(object)
        return columns.T @ columns
    if factor.shape[0] * len(cells) <= _OVERLAP_ENTRIES:
        columns = factor.columns(cells)
        return integer_matmul(np.ascontiguousarray(columns.T), columns)
    gram = factor.gram()
    return np.concatenate([gram.columns(cells[j : j + 1])[cells] for j in range(len(cells))], axis=1)


def _overlaps(factor: LinearOperator, cells: np.ndarray) -> np.ndarray:
    """``sum_r min(|u_r|, |v_r|)`` over the rows where two columns have one sign; 0 if that takes too long."""
    if factor.binary:
        return _inner_products(factor, cells)
    shared = np.zeros((len(cells), len(cells)), dtype=np.int64 if factor.integer else np.float64)
    if factor.shape[0] * len(cells) ** 2 <= 2**30:
        columns = factor.columns(cells)
        positive, negative = np.maximum(columns, 0), np.maximum(-columns, 0)
        for j in range(len(cells)):
            for part in (positive, negative):
                shared[j] += np.minimum(part[:, j : j + 1], part).sum(axis=0)
    norms = factor.column_norms(1)[cells]
    if norms.dtype == object:
        return np.zeros(shared.shape, dtype=object) + np.diag(norms)
    np.fill_diagonal(shared, norms)
    return shared


def _with_bound(choices: Choices, norms: np.ndarray, attribute: _AxisFactors) -> Choices:
    """Pairs left out are bounded by the largest columns sharing nothing; equal cells are all listed.

    Under a factor whose columns are all equal, such as a total, two cells share the whole column.
    """
    largest = norms.max(axis=0)
    alike = np.array([not factor.column_classes().any() for factor in attribute.distinct])
    bound = np.concatenate([largest, largest, np.where(alike, largest, largest * 0)])[None]
    some = representatives(joint_classes([np.unique(column, return_inverse=True)[1] for column in norms.T]))
    norms, first = norms[some], attribute.first[some]
    same = np.concatenate([norms, norms, norms], axis=1)
    values = np.concatenate([choices.values, same, bound])
    attained = np.concatenate([choices.attained, np.ones(len(norms), dtype=bool), [False]])
    cells = np.concatenate([choices.cells, np.repeat(first[:, None], 2, axis=1), [[-1, -1]]])
    return Choices(values, attained, cells)


def _l1_distance(attributes: Sequence[_AxisFactors], weights: Sequence[int], cells: np.ndarray) -> int | None:
    """``sum_b w_b ||(x)_i u_bi - (x)_i v_bi||_1`` exactly, from the pairs of values that occur together."""
    total = 0
    for block, weight in enumerate(weights):
        pairs: Counter[tuple[int, int]] = Counter({(1, 1): 1})
        for attribute, chosen in zip(attributes, cells, strict=True):
            values, counts = np.unique(attribute.factors[block].columns(chosen), axis=0, return_counts=True)
            if len(pairs) * len(values) > _VALUE_PAIRS:
                return None
            combined: Counter[tuple[int, int]] = Counter()
            for (x, y), times in pairs.items():
                for (u, v), count in zip(values.tolist(), counts.tolist(), strict=True):
                    combined[x * u, y * v] += times * count
            pairs = combined
        total += weight * sum(abs(x - y) * times for (x, y), times in pairs.items())
    return total


# any columns ---------------------------------------------------------------------------------------
def _largest_column(blocks: Blocks, p: int) -> Bound:
    """``max_j sum_i w_i ||A_i e_j||_p^p``."""
    weights, unit = _whole_weights(blocks)
    if all(op.integer for op, _ in blocks):
        norms = _weighted_norms(blocks, weights, p)
        return int(norms.max()) * unit, True
    norms = sum(float(weight) * op.column_norms(p).astype(np.float64) for op, weight in blocks)
    largest, slack = float(np.max(norms)), _relative_error(blocks)
    candidates = np.flatnonzero(norms >= largest * (1 - 2 * slack))
    if _readable(blocks, len(candidates)):
        return max(_exact_power(blocks, p, int(j)) for j in candidates), True
    return Fraction(largest * (1 + 2 * slack)), False


def _largest_pair(blocks: Blocks, p: int) -> Bound:
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
        return _largest_pair(telling, p)
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


def _largest_whole_pair(blocks: Blocks, first: np.ndarray) -> Bound:
    weights, unit = _whole_weights(blocks)
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
    weights, unit = _whole_weights(blocks)
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
        weights, unit = _whole_weights(blocks)
        norms = np.sort(_weighted_norms(blocks, weights, p))[-2:]
        return factor * sum(int(norm) for norm in norms) * unit
    total = sum(float(weight) * op.column_norms(p).astype(np.float64) for op, weight in blocks)
    return Fraction(2 * factor * float(np.max(total)) * (1 + 2 * _relative_error(blocks)))


def _largest_l1_pair(blocks: Blocks, first: np.ndarray) -> Bound:
    weights, unit = _whole_weights(blocks)
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
