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
from collections.abc import Sequence
from fractions import Fraction
from functools import reduce
from itertools import combinations
from typing import Any

import numpy as np

from ..errors import InvalidArgument
from .arrays import INT64_LIMIT, check_power, integer_matmul, joint_classes, representatives, widened
from .columns import PAIR_CELLS, Blocks, Bound, largest_column, largest_pair, whole_weights
from .farthest_pair import all_pairs, farthest
from .kron import Contrasts, Kron, WeightedRows, exact_product, weighted_rows
from .operator import (
    Dense,
    Identity,
    LinearOperator,
    MatrixProduct,
    Partition,
    Permuted,
    Scaled,
    Sensitivity,
    Stack,
    Sum,
    Total,
    check_operators,
    worst_change,
)
from .product_sensitivity import VECTOR_LIMIT, AxisFactors, inner_products, largest_in_products

Margin = tuple[LinearOperator | None, tuple[LinearOperator, ...]]
"""An explicit matrix, or None for a product, and one factor an attribute."""

NEIGHBOURS = ("add-remove", "replace")
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
        found = largest_in_products(parts, p, replace=replace)
    if found is None:
        found = largest_pair(parts, p) if replace else largest_column(parts, p)
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


_TAKEN_APART = (Dense, Scaled, Stack, Permuted, Kron)


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
            if isinstance(factor, _TAKEN_APART):
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
    weights, unit = whole_weights(blocks)
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
    return None if members[0].shape[1] <= VECTOR_LIMIT else (4 * int(diagonal.max()) * unit, False)


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
    gram = inner_products(op.matrix, np.arange(op.matrix.shape[1]))
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
    axes = [AxisFactors(tuple(column)) for column in columns]
    cells = math.prod(len(axis.first) for axis in axes)
    if all(op.integer for op, _ in blocks) and cells <= (_LISTED_CELLS if replace else _VECTOR_CELLS):
        if not replace:
            return _largest_margin_column(blocks, margins, axes, p)
        rows = sum(op.shape[0] for op, _ in blocks)
        listed = _listed_margins(blocks, margins, axes) if rows * cells <= _WRITTEN_ENTRIES else None
        if listed is not None:
            return largest_pair(listed, p)
    explicit: dict[LinearOperator, Fraction] = {}
    for (_, weight), (left, _) in zip(blocks, margins, strict=True):
        if left is not None:
            explicit[left] = explicit.get(left, Fraction(0)) + weight
    products = [block for block in blocks if isinstance(block[0], Kron)]
    found = largest_in_products(products, p, replace=replace) if products else (Fraction(0), True)
    if found is None:
        return None
    largest = largest_pair if replace else largest_column
    return found[0] + sum((largest([(left, w)], p)[0] for left, w in explicit.items()), Fraction(0)), False


def _margin(op: LinearOperator) -> Margin | None:
    """The explicit matrix, None for a product, and the factors; None for an operator of another form."""
    if isinstance(op, Kron):
        return None, tuple(op.ops)
    if isinstance(op, MatrixProduct) and isinstance(op.right, Kron) and _adds_up_classes(op.right):
        return op.left, tuple(op.right.ops)
    return None


def _largest_margin_column(
    blocks: Blocks, margins: Sequence[Margin], axes: Sequence[AxisFactors], p: int
) -> Bound:
    """``max_j sum_b w_b ||A_b e_j||_p^p`` over all combinations of cells, in integers."""
    weights, unit = whole_weights(blocks)
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


def _listed_margins(blocks: Blocks, margins: Sequence[Margin], axes: Sequence[AxisFactors]) -> Blocks | None:
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
