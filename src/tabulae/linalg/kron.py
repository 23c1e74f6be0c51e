"""Kronecker products, kept as their factors; and what is built on them: contrasts within classes, weighted rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np
import scipy.sparse

from ..errors import InvalidArgument, Unsupported
from .arrays import (
    EXACT_FLOAT_LIMIT,
    INT64_LIMIT,
    bound_product,
    classes_of_rows,
    joint_classes,
    renumber,
    representatives,
    widened,
)
from .kron_matvec import Trip, cores, has_large_matrix, multiply, plan
from .operator import (
    AxisOperator,
    Centring,
    Dense,
    Identity,
    LinearOperator,
    MatrixProduct,
    Partition,
    Permuted,
    Sparse,
    Stack,
    Total,
    check_operators,
)

Rows = Callable[[int, int], np.ndarray]
"""``rows(start, stop)``: rows of X, ``(stop - start, columns of T)``, int64 or float64."""

_LABEL_LIMIT = 2**28  # columns that a label each can be given to
_ENTRY_LIMIT = 2**26  # entries of a factor that may be written out to find common multiples
_LARGE = 2**27  # numbers in a vector, of either side, from which it is worked through in slices: 1 GiB
_LARGE_INTEGERS = 2**24  # the same where they are integers that have to be made floats
_LARGE_PAST_FLOATS = 2**20  # the same where integers need more than the 53 bits of floats
_SLICE = 2**24  # numbers that the tail is applied to at once
_BLOCK = 2**17  # numbers that the head is applied to at once, on each thread
_BLAS_BLOCK = 2**22  # the same where BLAS has threads of its own
_LEAST_BITS = 8  # of a limb that is worth a product in floating point


@dataclass(frozen=True, eq=False, repr=False)
class Kron(AxisOperator):
    """``A_1 (x) A_2 (x) ... (x) A_d``: rows and columns in C order, the last factor fastest.

    Its transpose, Gram matrix and pseudo-inverse are the products of the factors'.

    Reference: HDMM (McKenna, Miklau, Hay, Machanavajjhala), Section 5 and Algorithm 1.

    >>> from tabulae.linalg import Identity, Total
    >>> (Kron([Total(2), Identity(2)]) @ [1, 2, 3, 4]).tolist()
    [4, 6]
    """

    ops: Sequence[LinearOperator]
    _combines = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "ops", check_operators(self.ops, "Kron"))

    @property
    def shape(self) -> tuple[int, int]:
        return math.prod(op.shape[0] for op in self.ops), math.prod(op.shape[1] for op in self.ops)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of columns of each factor."""
        return tuple(op.shape[1] for op in self.ops)

    @property
    def integer(self) -> bool:
        return all(op.integer for op in self.ops)

    @property
    def binary(self) -> bool:
        return all(op.binary for op in self.ops)

    @cached_property
    def T(self) -> LinearOperator:
        return Kron(tuple(op.T for op in self.ops))

    # Solvers multiply by one product thousands of times: how to is planned once.
    @cached_property
    def _in_floats(self) -> list[Trip]:
        return plan(list(self.flat()), merge=True)

    @cached_property
    def _in_integers(self) -> list[Trip]:
        return plan(list(self.flat()), merge=False)

    def flat(self) -> Iterator[LinearOperator]:
        """The factors, with those that are themselves products opened up."""
        for op in self.ops:
            if isinstance(op, Kron):
                yield from op.flat()
            else:
                yield op

    def along(self, x: np.ndarray) -> np.ndarray:
        exact = self.integer and x.dtype == np.int64
        bound = self.bound(np.moveaxis(x, 1, 0)) if exact else None
        native = bound is not None and bound >= EXACT_FLOAT_LIMIT
        # Past what floats hold, only the head's part of a product in slices pays for it.
        least = _LARGE_PAST_FLOATS if native else _LARGE
        if x.shape[0] == x.shape[2] == 1 and max(self.shape) >= least:
            done = in_slices(self, x.reshape(-1), x.dtype)
            if done is not None:
                return done[None, :, None]
        return multiply(self._in_integers if native else self._in_floats, x, bound=bound)

    def as_floats(self, x: np.ndarray) -> np.ndarray:
        """``A x`` in float64 for a vector of integers, which are made floats a slice at a time."""
        if max(self.shape) >= _LARGE_INTEGERS:
            done = in_slices(self, x, np.dtype(np.float64))
            if done is not None:
                return done
        return self @ x.astype(np.float64)

    def gram(self) -> LinearOperator:
        return Kron(tuple(op.gram() for op in self.ops))

    def pinv(self) -> LinearOperator:
        return Kron(tuple(op.pinv() for op in self.ops))

    def abs_row_sum_max(self) -> int | float:
        return reduce(bound_product, (op.abs_row_sum_max() for op in self.ops))

    def abs_entry_max(self) -> int | float:
        return reduce(bound_product, (op.abs_entry_max() for op in self.ops))

    def axis_classes(self) -> tuple[np.ndarray, ...]:
        return tuple(op.column_classes() for op in self.flat())

    def columns(self, index: np.ndarray) -> np.ndarray:
        """Products of the factors' columns: no vector of all cells is made."""
        self._check_entries()
        dtype = np.int64 if self.integer else np.float64
        out = np.ones((1, len(index)), dtype)
        for op, place in zip(self.ops, np.unravel_index(index, self.sizes), strict=True):
            seen, at = np.unique(place, return_inverse=True)
            part = op.columns(seen).astype(dtype, copy=False)[:, at]
            out = (out[:, None] * part).reshape(-1, len(index))
        return out

    def column_norms(self, p: int) -> np.ndarray:
        factors = [op.column_norms(p) for op in self.ops]
        if self.integer:
            bound = math.prod(int(norms.max()) for norms in factors)
            factors = [widened(norms, bound) for norms in factors]
        else:  # two factors of integers could pass 64 bits before a fraction makes the product float
            factors = [norms.astype(np.float64) for norms in factors]
        return reduce(lambda a, b: np.multiply.outer(a, b).reshape(-1), factors)

    def column_norms_after(self, left: LinearOperator, p: int) -> np.ndarray | None:
        view = weighted_rows(MatrixProduct(left, self))
        return None if view is None else view.column_norms(p)

    def column_classes(self) -> np.ndarray:
        """Labels of the columns; for factors that hold fractions, those of the factors' classes."""
        return kron_classes(self.ops)

    def __repr__(self) -> str:
        return f"Kron([{', '.join(repr(op) for op in self.ops)}])"


def kron_classes(ops: Sequence[LinearOperator]) -> np.ndarray:
    """Class labels of the columns of the Kronecker product of ``ops``, numbered by first appearance.

    A column of a product is the product of the factors' columns. Write each factor's column as a number times
    a primitive vector (greatest common divisor 1, first entry that is not 0 positive). Products of primitive
    vectors are primitive and determine their factors, so two columns coincide exactly when their primitive
    vectors agree factor by factor and the products of their numbers agree; columns of zeros coincide always.
    """
    size = math.prod(op.shape[1] for op in ops)
    if size > _LABEL_LIMIT:
        raise Unsupported(f"{size} columns are too many to label one by one: merge columns factor by factor")
    labels, zero = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=bool)
    scales = np.ones(1, dtype=np.int64)
    for op in ops:
        label, scale = _directions(op)
        nothing = op.column_norms(1) == 0
        labels = renumber((labels[:, None] * (int(label.max()) + 1) + label).reshape(-1))
        zero = (zero[:, None] | nothing).reshape(-1)
        scales = widened(scales, int(np.abs(scales).max()) * int(np.abs(scale).max()))
        scales = np.multiply.outer(scales, scale).reshape(-1)
    labels = joint_classes([labels, np.unique(scales, return_inverse=True)[1]])
    labels[zero] = labels.max() + 1
    return renumber(labels)


def _directions(op: LinearOperator) -> tuple[np.ndarray, np.ndarray]:
    """A label for the direction of each column, and its length along that direction."""
    labels = op.column_classes()
    ones = np.ones(len(labels), dtype=np.int64)
    first = representatives(labels)
    if op.binary or not op.integer or op.shape[0] * len(first) > _ENTRY_LIMIT:
        return labels, ones
    columns = op.columns(first)
    lengths = np.gcd.reduce(columns, axis=0)
    leading = columns[(columns != 0).argmax(axis=0), np.arange(len(first))]
    lengths = np.where(leading < 0, -lengths, lengths)
    lengths[lengths == 0] = 1
    return classes_of_rows((columns // lengths).T)[labels], lengths[labels]


def split_kron(product: Kron) -> tuple[Kron, Kron] | None:
    """Head and tail, whose product is the product: the least head that leaves a tail that fits a slice.

    None where no tail is small enough.
    """
    factors = list(product.flat())
    for count in range(1, len(factors)):
        tail = Kron(factors[count:])
        if max(tail.shape) <= _SLICE:
            return Kron(factors[:count]), tail
    return None


def in_slices(product: Kron, x: np.ndarray, kind: np.dtype) -> np.ndarray | None:
    """``A x`` for a vector whose numbers are taken as ``kind``; None where there is no way to divide the product."""
    parts = split_kron(product)
    if parts is None:
        return None
    vector = x.reshape(parts[0].shape[1], -1)
    return multiply_slices(*parts, lambda start, stop: vector[start:stop].astype(kind, copy=False))


def multiply_slices(head: Kron, tail: Kron, rows: Rows) -> np.ndarray:
    """``(head (x) tail) x``, flat: int64 where both and the rows are integers, otherwise float64.

    Divide the factors into a head H and a tail T, so that ``A = H (x) T``, and see the vector as a matrix X with one
    row for each column of H. Then ``A x`` is ``H (X T')``:

    * rows of X are read some at a time, and T is applied to them: what that needs beside the rows is small;
    * H is applied in place, some columns at a time, because no column of the result depends on another's.

    Beyond the vector that is read and the result nothing of their size exists; where the rows are made as they are
    asked for (from the list of cells that are not empty), only the result. A head that shrinks what the tail has
    not shrunk is applied to some rows at a time, and its results are added up.

    Reference: HDMM (McKenna, Miklau, Hay, Machanavajjhala), Algorithm 1, which keeps the whole vector twice.

    Who calls has made sure that integers stay below 2^63.
    """
    (m, n), width = head.shape, tail.shape[0]
    whole = head.integer and tail.integer and rows(0, 1).dtype == np.int64
    kind = np.dtype(np.int64 if whole else np.float64)
    if 4 * n <= 5 * m or n * width <= 4 * _SLICE:
        out = np.empty((max(m, n), width), dtype=kind)
        _fill(out[:n], tail, rows, 0)
        if not all(isinstance(op, Identity) for op in head.ops):
            _across(head, out[:n], out[:m], add=False)
        return (out[:m] if 4 * n <= 5 * m else out[:m].copy()).reshape(-1)
    out = np.zeros((m, width), dtype=kind)
    step = max(1, max(m * width // 2, 2 * _SLICE) // width)  # rows that take half of the result, or little
    part = np.empty((min(step, n), width), dtype=kind)
    for start in range(0, n, step):
        stop = min(start + step, n)
        _fill(part[: stop - start], tail, rows, start)
        _across(Dense(head.columns(np.arange(start, stop))), part[: stop - start], out, add=True)
    return out.reshape(-1)


def _fill(out: np.ndarray, tail: LinearOperator, rows: Rows, first: int) -> None:
    """The tail on each row."""
    step = max(1, _SLICE // max(tail.shape))
    for start in range(0, len(out), step):
        stop = min(start + step, len(out))
        source = rows(first + start, first + stop)
        if out.dtype != np.int64:
            source = source.astype(np.float64, copy=False)
        out[start:stop] = tail.along(source[:, :, None])[:, :, 0]


def _across(head: LinearOperator, source: np.ndarray, target: np.ndarray, *, add: bool) -> None:
    """``target = head source``, or added to it; ``target`` may lie where ``source`` lies."""
    on_blas = has_large_matrix(head)
    width = max(8, (_BLAS_BLOCK if on_blas else _BLOCK) // max(head.shape))

    def work(start: int) -> None:
        columns = slice(start, start + width)
        done = head.matmat(np.ascontiguousarray(source[:, columns]))
        if add:
            target[:, columns] += done
        else:
            target[:, columns] = done

    starts = range(0, source.shape[1], width)
    threads = 1 if on_blas else cores()
    if threads == 1 or len(starts) == 1:
        for start in starts:
            work(start)
        return
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(_each, _shares(starts, 4 * threads), [work] * (4 * threads)):
            pass


def _each(starts: range, work: Callable[[int], None]) -> None:
    for start in starts:
        work(start)


def _shares(starts: range, count: int) -> Iterator[range]:
    """Neighbouring starts together, in so many shares."""
    share = -(-len(starts) // count)
    return (starts[i : i + share] for i in range(0, len(starts), share))


@dataclass(frozen=True, eq=False, repr=False)
class Contrasts(AxisOperator):
    """``(B (x) (x)_{i in S} (s_i I - J)) (x)_i K_i`` for attributes whose categories fall into classes.

    The categories of attribute i are first merged into cells (``merges[i]``, k_i x n_i), and those divided into
    C_i classes (``classes[i]``, C_i x k_i). An attribute with ``within[i] = None`` is summed over each class
    (K_i = classes[i] merges[i]); one with ``within[i] = c`` belongs to S: K_i picks the s_i cells of class c, and
    the centring matrix compares them with each other. ``matrix`` is B, with a column for every combination of
    classes of the attributes outside S. Rows: those of B, then the picked cells of S in order.

    Whatever B is, permuting the cells within a class leaves the Gram matrix as it is.

    Args:
        matrix: B, r x prod_{i not in S} C_i.
        merges, classes: one partition each an attribute; every category belongs to a cell, every cell to a class.
        within: for every attribute None or a class.

    Raises:
        InvalidArgument: where these do not fit together.

    >>> from tabulae.linalg import Dense
    >>> halves, cells = Partition([0, 0, 1, 1]), Partition([0, 1, 2, 3])
    >>> (Contrasts(Dense([[1, 1]]), [cells], [halves], [None]) @ [1, 2, 3, 4]).tolist()
    [10]
    >>> (Contrasts(Dense([[1]]), [cells], [halves], [1]) @ [1, 2, 3, 4]).tolist()
    [-1, 1]
    """

    matrix: LinearOperator
    merges: Sequence[Partition]
    classes: Sequence[Partition]
    within: Sequence[int | None]
    _combines = True

    def __post_init__(self) -> None:
        check_operators([self.matrix], "Contrasts")
        merges, classes, within = tuple(self.merges), tuple(self.classes), tuple(self.within)
        if not len(merges) == len(classes) == len(within) > 0:
            raise InvalidArgument(
                "Contrasts needs one partition into cells, one into classes and one choice an attribute"
            )
        for merge, part, c in zip(merges, classes, within, strict=True):
            if merge.shape[0] != part.shape[1] or min(merge.classes.min(), part.classes.min()) < 0:
                raise InvalidArgument("Contrasts: every category needs a cell, and every cell a class")
            if c is not None and not 0 <= c < part.shape[0]:
                raise InvalidArgument(f"Contrasts: there is no class {c} among {part.shape[0]}")
        for name, value in (("merges", merges), ("classes", classes), ("within", within)):
            object.__setattr__(self, name, value)
        if self.matrix.shape[1] != math.prod(self.widths):
            raise InvalidArgument(
                f"Contrasts: the matrix has {self.matrix.shape[1]} columns for classes {self.widths}"
            )

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """The number of classes of each attribute outside S."""
        return tuple(p.shape[0] for p, c in zip(self.classes, self.within, strict=True) if c is None)

    @cached_property
    def picked(self) -> tuple[int, ...]:
        """The number of cells that each attribute of S compares."""
        return tuple(int(p.sizes[c]) for p, c in zip(self.classes, self.within, strict=True) if c is not None)

    @property
    def shape(self) -> tuple[int, int]:
        return self.matrix.shape[0] * math.prod(self.picked), math.prod(m.shape[1] for m in self.merges)

    @property
    def integer(self) -> bool:
        return self.matrix.integer

    @cached_property
    def cells(self) -> Kron:
        """The matrices K_i: each column holds at most a single 1."""
        factors = []
        for merge, part, c in zip(self.merges, self.classes, self.within, strict=True):
            label = part.classes
            if c is not None:
                label = np.where(label == c, np.cumsum(label == c) - 1, -1)
            factors.append(
                Partition(label[merge.classes], part.shape[0] if c is None else int(part.sizes[c]))
            )
        return Kron(factors)

    @cached_property
    def composed(self) -> MatrixProduct:
        """The same matrix as ``left @ cells``, left over the classes and cells that K tells apart."""
        if not self.picked:
            return MatrixProduct(self.matrix, self.cells)
        shape = [factor.shape[0] for factor in self.cells.ops]
        outside = [i for i, c in enumerate(self.within) if c is None]
        inside = [i for i, c in enumerate(self.within) if c is not None]
        order = np.arange(math.prod(shape)).reshape(shape).transpose(outside + inside).reshape(-1)
        left = Kron([self.matrix, *(Centring(s) for s in self.picked)])
        return MatrixProduct(Permuted(left, order), self.cells)

    def along(self, x: np.ndarray) -> np.ndarray:
        return self.composed.along(x)

    def along_T(self, y: np.ndarray) -> np.ndarray:
        return self.composed.along_T(y)

    def abs_row_sum_max(self) -> int | float:
        return self.composed.abs_row_sum_max()

    def abs_entry_max(self) -> int | float:
        return bound_product(self.matrix.abs_entry_max(), math.prod(self.picked))

    def columns(self, index: np.ndarray) -> np.ndarray:
        place, known, step = 0, True, 1
        for factor in reversed(self.cells.ops):
            assert isinstance(factor, Partition)
            index, cell = np.divmod(index, factor.shape[1])
            label = factor.classes[cell]
            place, known, step = place + label * step, known & (label >= 0), step * factor.shape[0]
        return np.where(known, self.composed.left.columns(np.where(known, place, 0)), 0)

    def column_norms(self, p: int) -> np.ndarray:
        norms, place = self.composed.left.column_norms(p), self._places()
        return np.where(place >= 0, norms[place], 0)

    def column_classes(self) -> np.ndarray:
        left, place = self.composed.left, self._places()
        seen = (place >= 0) & (left.column_norms(1)[place] > 0)
        return renumber(np.where(seen, left.column_classes()[place] + 1, 0))

    def _places(self) -> np.ndarray:
        """For every column of the whole the combination of classes and picked cells it stands for, or -1.

        Raises:
            Unsupported: columns are more than can be labelled.
        """
        if self.shape[1] > _LABEL_LIMIT:
            raise Unsupported(
                f"{self.shape[1]} columns are too many to label one by one: merge columns factor by factor"
            )
        place, known = np.zeros(1, dtype=np.int64), np.ones(1, dtype=bool)
        for factor in self.cells.ops:
            assert isinstance(factor, Partition)
            place = np.add.outer(place * factor.shape[0], factor.classes).reshape(-1)
            known = np.logical_and.outer(known, factor.classes >= 0).reshape(-1)
        return np.where(known, place, -1)


@dataclass(frozen=True)
class WeightedRows:
    """``weights`` (m_1, ..., m_d), 0 for rows that are left out, of the rows of ``(x)_i factors[i]``.

    The columns of such a matrix are products no longer, but their power sums and inner products are still linear in the
    powers of the weights:

        ||D A e_j||_p^p     = sum_r |w_r|^p prod_i |A_i[r_i, j_i]|^p
        <D A e_j, D A e_k>  = sum_r w_r^2 prod_i A_i[r_i, j_i] A_i[r_i, k_i]

    so that those of all columns, or of all pairs, are one product of a Kronecker matrix of integers with the vector of
    ``|w|^p``. Integers of any length are kept exact: the weights' powers are cut into limbs short enough for 64 bits.
    """

    weights: np.ndarray
    factors: tuple[LinearOperator, ...]

    def treats_alike(self, axis: int) -> bool:
        """Whether every permutation of one attribute's (merged) cells only permutes the rows.

        Its factor is ``[1'; n I - J]``, and the n rows beside the total have equal weights.
        """
        rows = unlifted(self.factors[axis])[0]
        if total_and_rest(rows) is None:
            return False
        beside = np.moveaxis(self.weights, axis, 0)[1:]
        return bool((beside == beside[0]).all())

    def distinct_cells(self, axis: int) -> np.ndarray:
        """One cell of each class of equal columns; of an attribute whose cells are treated alike two."""
        factor = self.factors[axis]
        rows, merge = unlifted(factor)
        classes = np.arange(rows.shape[1]) if merge is None else merge.column_classes()
        if self.treats_alike(axis):
            return representatives(classes)[:2]
        return representatives(factor.column_classes())

    def powers(self, p: int) -> np.ndarray:
        """``|w|^p`` as one vector: int64 where that fits."""
        size = np.abs(self.weights.ravel())
        return widened(size, int(size.max()) ** p) ** p

    def column_norms(self, p: int) -> np.ndarray:
        """``||D A e_j||_p^p`` for every column, in integers."""
        powers = [np.abs(factor.dense().T).astype(np.int64) ** p for factor in self.factors]
        sums = exact_product(powers, self.powers(p))
        return sums.astype(np.int64) if int(sums.max()) < INT64_LIMIT else sums

    def largest_norm(self, p: int) -> int:
        """``max_j ||D A e_j||_p^p``, over cells that stand for all."""
        matrices = []
        for axis, factor in enumerate(self.factors):
            powers = np.abs(factor.columns(self.distinct_cells(axis)).T).astype(np.int64) ** p
            matrices.append(np.unique(powers, axis=0))
        return int(exact_product(matrices, self.powers(p)).max())

    def without_constants(self) -> WeightedRows:
        """The same without the rows that count all cells alike, which no two cells differ by."""
        alike = np.ones((), dtype=bool)
        for factor in self.factors:
            rows = unlifted(factor)[0]
            if total_and_rest(rows) is None:
                constant = np.ptp(factor.columns(representatives(factor.column_classes())), axis=1) == 0
            else:
                constant = np.arange(rows.shape[0]) == 0
            alike = np.logical_and.outer(alike, constant)
        return WeightedRows(np.where(alike, 0, self.weights), self.factors)


def weigh_rows(weights: np.ndarray, factors: Sequence[LinearOperator]) -> MatrixProduct:
    """The operator of the rows that have a weight: weights (m_1, ..., m_d), integers; factors m_i x n_i.

    >>> from tabulae.linalg import Identity
    >>> weigh_rows(np.array([[1, 2], [0, 3]]), [Identity(2), Total(1)]).shape
    Traceback (most recent call last):
        ...
    tabulae.errors.InvalidArgument: weights of shape (2, 2) do not fit factors of (2, 1) rows
    >>> weigh_rows(np.array([[2], [0]]), [Identity(2), Total(1)]).dense().tolist()
    [[2, 0]]
    """
    rows = tuple(factor.shape[0] for factor in factors)
    if weights.shape != rows:
        raise InvalidArgument(f"weights of shape {weights.shape} do not fit factors of {rows} rows")
    flat = weights.ravel()
    kept = np.flatnonzero(flat)
    chosen = scipy.sparse.csr_array((flat[kept], (np.arange(len(kept)), kept)), shape=(len(kept), flat.size))
    return MatrixProduct(Sparse(chosen), Kron(tuple(factors)))


def weighted_rows(op: LinearOperator) -> WeightedRows | None:
    """The weights and factors of an operator of :func:`weigh_rows`; None for any other."""
    if not (isinstance(op, MatrixProduct) and isinstance(op.left, Sparse) and isinstance(op.right, Kron)):
        return None
    matrix = op.left.matrix
    if not (op.integer and matrix.nnz == matrix.shape[0] and (np.diff(matrix.indptr) == 1).all()):
        return None
    if len(np.unique(matrix.indices)) < matrix.nnz:
        return None
    factors = tuple(op.right.ops)
    if any(factor.abs_entry_max() >= 2**31 for factor in factors):  # whose squares would not fit
        return None
    weights = np.zeros(matrix.shape[1], dtype=np.int64)
    weights[matrix.indices] = matrix.data
    return WeightedRows(weights.reshape([f.shape[0] for f in factors]), factors)


def total_and_rest(factor: LinearOperator) -> int | None:
    """n for the total of n cells above what each has beyond the mean, ``[1'; n I - J]``; None for any other matrix.

    >>> total_and_rest(Stack([Total(4), Centring(4)])), total_and_rest(Total(4))
    (4, None)
    """
    if not (isinstance(factor, Stack) and len(factor.ops) == 2):
        return None
    total, rest = factor.ops
    return rest.n if isinstance(total, Total) and isinstance(rest, Centring) and rest.n == total.n else None


def unlifted(factor: LinearOperator) -> tuple[LinearOperator, Partition | None]:
    """A factor over merged cells and the partition that merges them, None where every cell is by itself."""
    if isinstance(factor, MatrixProduct) and isinstance(factor.right, Partition):
        partition = factor.right
        if partition.classes.min() >= 0 and partition.sizes.all():
            return factor.left, partition
    return factor, None


def exact_product(matrices: Sequence[np.ndarray], vector: np.ndarray) -> np.ndarray:
    """``((x)_i M_i) v`` as Python integers: int64 matrices (k_i, m_i), a vector of m_1 ... m_d integers of any length.

    >>> exact_product([np.array([[1, -1]]), np.array([[2], [3]])], np.array([2**70, 1], dtype=object)).tolist()
    [2361183241434822606846, 3541774862152233910269]
    """
    gain = math.prod(int(np.abs(m).sum(axis=1, dtype=object).max()) for m in matrices)
    bits = (EXACT_FLOAT_LIMIT // max(gain, 1)).bit_length() - 1
    if bits < _LEAST_BITS:
        bits = (INT64_LIMIT // (2 * max(gain, 1))).bit_length() - 1
    if bits < 1:
        return _in_python(matrices, vector)
    product, rest, shift = Kron([Dense(m) for m in matrices]), vector, 0
    total: np.ndarray = np.zeros(product.shape[0], dtype=object)
    while rest.any():
        limb = (rest & ((1 << bits) - 1)).astype(np.int64)
        total = total + (product @ limb).astype(object) * (1 << shift)
        rest, shift = rest >> bits, shift + bits
    return total


def _in_python(matrices: Sequence[np.ndarray], vector: np.ndarray) -> np.ndarray:
    """The product in Python integers throughout: slow, and of any size."""
    whole = vector.astype(object).reshape([m.shape[1] for m in matrices])
    for axis, matrix in enumerate(matrices):
        whole = np.moveaxis(np.tensordot(matrix.astype(object), whole, axes=(1, axis)), 0, axis)
    return whole.ravel()
