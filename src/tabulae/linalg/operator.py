"""Implicit matrices: the one abstraction that every other room computes with.

A ``LinearOperator`` stands for an ``m x n`` matrix that is seldom written out. A subclass writes
``matmat`` and ``T``; everything else has a correct default that it may override for speed.

Integers are exact. An integer operator applied to an integer array gives ``int64`` without ever
passing through a number that could round, and refuses what could overflow; every other product is
``float64``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, is_dataclass
from fractions import Fraction
from functools import cached_property, singledispatch
from typing import Any

import numpy as np
import scipy.sparse

from ..errors import InvalidArgument, Unsupported
from .arrays import (
    EXACT_FLOAT_LIMIT,
    INT64_LIMIT,
    SMALL_MATRIX,
    Coefficient,
    add_norms,
    bound_product,
    bound_sum,
    check_power,
    check_size,
    classes_of_rows,
    digest,
    frozen,
    integer_matmul,
    joint_classes,
    largest_abs,
    largest_abs_sum,
    power_sums,
    renumber,
    representatives,
    scaled_norms,
    small_matmul,
    upper_bound,
    widened,
)

DENSE_LIMIT = 2**29  # entries: 4 GiB
_SLICE = 2**22  # entries of the columns that are written out at once
_UNIT_ENTRIES = 2**24  # of the unit vectors that pick columns, at once
_SCAN_LIMIT = 2**32  # entries that a default may visit a slice at a time
DENSE_CELLS = 4096  # columns (or rows) up to which a dense inverse is formed
_DENSE_ENTRIES = 2**25  # 256 MiB
_SAFE = 1e-8  # reciprocal condition above which a triangular factor is inverted as it is
_TOLERANCE = 1e-13
_LEAST_STEPS, _STEPS_PER_CELL = 1000, 4  # of the iteration, before it is given up


class Sensitivity(float):
    """A norm, as a float that is never below it.

    Attributes:
        power: ``norm^p`` exactly, or a proven upper bound of it.
        is_exact: whether ``power`` is exact.
    """

    power: Fraction
    is_exact: bool
    _p: int

    def __new__(cls, power: Fraction | int, p: int, *, is_exact: bool) -> Sensitivity:
        self = super().__new__(cls, _root_up(Fraction(power), p))
        self.power, self.is_exact, self._p = Fraction(power), is_exact, p
        return self

    def __getnewargs_ex__(self) -> tuple[tuple[Fraction, int], dict[str, bool]]:
        return (self.power, self._p), {"is_exact": self.is_exact}

    def __repr__(self) -> str:
        return f"Sensitivity({float(self)!r}, power={self.power}, is_exact={self.is_exact})"


def _root_up(power: Fraction, p: int) -> float:
    """The smallest float that is at least ``power^(1/p)``."""
    try:
        value = float(power) if p == 1 else math.sqrt(float(power))
    except OverflowError:
        return math.inf
    while Fraction(value) ** p < power:
        value = math.nextafter(value, math.inf)
    while value > 0 and Fraction(math.nextafter(value, 0)) ** p >= power:
        value = math.nextafter(value, 0)
    return value


@singledispatch
def worst_change(op: object, p: int, neighbours: str) -> Sensitivity:
    """What ``op.sensitivity(p, neighbours)`` is; declared here, and registered where every structure is known."""
    raise NotImplementedError(f"{type(op).__name__} is not an operator")


class LinearOperator(ABC):
    """An ``m x n`` real matrix known by what it does to vectors.

    ``op @ x`` takes a vector of length ``n`` or an array ``n x k``. Operators are immutable, and equal
    when they are built alike (``key()``).

    >>> import numpy as np
    >>> from tabulae.linalg import Prefix
    >>> Prefix(3) @ np.array([1, 2, 3])
    array([1, 3, 6])
    """

    __array_ufunc__ = None  # numpy must leave `array @ op` to us, and we refuse it

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """Rows and columns, ``(m, n)``."""

    @abstractmethod
    def matmat(self, x: np.ndarray) -> np.ndarray:
        """``A x`` for an ``int64`` or ``float64`` block ``x`` of shape ``(n, k)``."""

    @property
    @abstractmethod
    def T(self) -> LinearOperator:
        """The transpose, ``n x m``."""

    integer: bool = False
    """True when every entry is known to be an integer."""

    binary: bool = False
    """True when every entry is known to be 0 or 1."""

    _combines = False  # whether entries are made of other operators' entries, and so may exceed them

    def key(self) -> tuple[Any, ...]:
        """What the operator is built of: equal keys, equal matrices."""
        known = self.__dict__.get("_key")
        if known is not None:
            return known
        return self._key if is_dataclass(self) else (type(self).__name__, id(self))

    @cached_property
    def _key(self) -> tuple[Any, ...]:
        parts = (getattr(self, field) for field in self.__dataclass_fields__)  # type: ignore[attr-defined]
        return (type(self).__name__, *map(_key_part, parts))

    # products --------------------------------------------------------------------------------
    def __matmul__(self, x: Any) -> np.ndarray:
        block = self._checked(x)
        if block.ndim == 1:
            return self.matmat(block[:, None])[:, 0]
        return self.matmat(block)

    def __rmatmul__(self, x: Any) -> np.ndarray:
        raise InvalidArgument(
            f"{self!r} multiplies from the left only: write (op.T @ x.T).T instead of x @ op"
        )

    def along(self, x: np.ndarray) -> np.ndarray:
        """Apply the matrix to the middle axis of ``x``: ``(left, n, right) -> (left, m, right)``."""
        left, n, right = x.shape
        if left == 1:
            return self.matmat(x[0])[None]
        flat = self.matmat(np.ascontiguousarray(x.transpose(1, 0, 2)).reshape(n, left * right))
        return flat.reshape(self.shape[0], left, right).transpose(1, 0, 2)

    def along_to(self, x: np.ndarray, out: np.ndarray) -> None:
        """``along``, written to ``out``; overridden where that saves a copy."""
        np.copyto(out, self.along(x), casting="unsafe")

    def _checked(self, x: Any) -> np.ndarray:
        if isinstance(x, LinearOperator):
            raise InvalidArgument("op @ op is not defined: use Product(left, right), or op @ other.dense()")
        array = np.asarray(x)
        if array.ndim not in (1, 2) or array.shape[0] != self.shape[1]:
            raise InvalidArgument(
                f"{self!r} has {self.shape[1]} columns and cannot multiply an array of shape {array.shape}: "
                f"pass shape ({self.shape[1]},) or ({self.shape[1]}, k)"
            )
        if array.dtype.kind not in "biuf":
            raise InvalidArgument(f"{self!r} multiplies real numbers, not an array of dtype {array.dtype}")
        if not self.integer or array.dtype.kind == "f":
            return array.astype(np.float64, copy=False)
        if array.dtype == np.uint64 and array.size and int(array.max()) >= INT64_LIMIT:
            raise InvalidArgument("the array holds integers of 2^63 or more, which int64 cannot hold")
        whole = array.astype(np.int64, copy=False)
        if self.bound(whole) >= INT64_LIMIT:
            raise Unsupported(
                f"{self!r} times this array may exceed 64-bit integers: divide it into smaller parts, or "
                "pass a float64 array to compute with rounding"
            )
        return whole

    def bound(self, x: np.ndarray) -> int:
        """An upper bound of ``|A x|``, and of what any order of summation passes through, for integers.

        The first axis of ``x`` is the one that A runs along.
        """
        if x.size == 0:
            return 0
        largest = max(int(x.max()), -int(x.min()))
        by_row = largest * math.ceil(self.abs_row_sum_max())
        if by_row < EXACT_FLOAT_LIMIT:
            return by_row
        entry = max(1, math.ceil(self.abs_entry_max()))
        return min(by_row, largest_abs_sum(x, largest) * entry)

    # what the matrix is ----------------------------------------------------------------------
    def dense(self) -> np.ndarray:
        """The matrix itself, ``int64`` if ``integer`` and ``float64`` otherwise. Refused above 4 GiB."""
        m, n = self.shape
        if m * n > DENSE_LIMIT:
            raise Unsupported(
                f"{self!r} would take {8 * m * n / 2**30:.0f} GiB as a dense matrix: multiply by it instead"
            )
        self._check_entries()
        return self.matmat(np.eye(n, dtype=np.int64 if self.integer else np.float64))

    def columns(self, index: np.ndarray) -> np.ndarray:
        """The columns ``index`` of the matrix, ``m x len(index)``."""
        self._check_entries()
        step = max(1, _UNIT_ENTRIES // self.shape[1])
        parts = [self._few_columns(index[start : start + step]) for start in range(0, len(index), step)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def _few_columns(self, index: np.ndarray) -> np.ndarray:
        units = np.zeros((self.shape[1], len(index)), dtype=np.int64 if self.integer else np.float64)
        units[index, np.arange(len(index))] = 1
        return self.matmat(units)

    def _check_entries(self) -> None:
        """Refuse to write out integers that could exceed int64."""
        if self._combines and self.integer and self.abs_entry_max() >= INT64_LIMIT:
            raise Unsupported(
                f"entries of {self!r} may exceed 64-bit integers: multiply by it instead of writing it out"
            )

    def gram(self) -> LinearOperator:
        """``A'A``, ``n x n``."""
        return MatrixProduct(self.T, self)

    def pinv(self) -> LinearOperator:
        """The Moore-Penrose inverse ``A^+``, ``n x m``: by structure, densely, or iteratively."""
        return pseudo_inverse(self)

    # sizes of entries and columns ----------------------------------------------------------------
    def abs_row_sum_max(self) -> int | float:
        """An upper bound of ``max_i sum_j |a_ij|``: how far a product can grow."""
        total = sum(np.abs(part).sum(axis=1) for _, part in self._slices())
        return upper_bound(total, self.shape[1])

    def abs_entry_max(self) -> int | float:
        """An upper bound of ``max_ij |a_ij|``."""
        return max(np.abs(part).max().item() for _, part in self._slices())

    def column_norms(self, p: int) -> np.ndarray:
        """``sum_i |a_ij|^p`` for every column: exact integers for an integer operator.

        ``p`` is 1 or 2. The dtype is ``int64``, or ``object`` (Python integers) where that could overflow.
        """
        check_power(p)
        if (few := self._few_distinct()) is None:
            return np.concatenate([power_sums(part, p) for _, part in self._slices()])
        index, equal = few
        parts = np.array_split(index, math.ceil(len(index) * self.shape[0] / _SLICE))
        return np.concatenate([power_sums(self.columns(part), p) for part in parts])[equal]

    def _few_distinct(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Columns that every other equals one of, and for each column which; None where few are not known of."""
        labels = self.axis_classes()
        if labels is None:
            return None
        counts = [int(label.max(initial=-1)) + 1 for label in labels]
        if 2 * math.prod(counts) > self.shape[1]:
            return None
        first = np.ix_(*(representatives(label) for label in labels))
        index = np.ravel_multi_index(first, [len(label) for label in labels]).ravel()
        return index, np.ravel_multi_index(np.ix_(*labels), counts).ravel()

    def axis_classes(self) -> tuple[np.ndarray, ...] | None:
        """Of each factor of a product, labels of its columns: where all are equal, so are the product's columns.

        None where the columns are those of no product. Labels are numbered by first appearance.
        """
        return None

    def column_norms_after(self, left: LinearOperator, p: int) -> np.ndarray | None:
        """``column_norms`` of ``left @ self``, where the structure of this factor gives them; else ``None``."""
        return None

    def column_classes(self) -> np.ndarray:
        """A label for every column, equal exactly where columns are equal, numbered by first appearance."""
        if (few := self._few_distinct()) is not None:
            index, equal = few
            return renumber(classes_of_rows(self.columns(index).T)[equal])
        rows = np.concatenate([np.ascontiguousarray(part.T) for _, part in self._slices()])
        return classes_of_rows(rows)

    def sensitivity(self, p: int, neighbours: str = "add-remove") -> Sensitivity:
        """How far the answers ``A x`` move, in the Lp norm, when one record changes.

        Adding or removing a record moves them by a column, ``max_j ||a_j||_p``; replacing one by the
        difference of two, ``max_{j,k} ||a_j - a_k||_p``.

        Args:
            p: 1 or 2.
            neighbours: "add-remove" or "replace".

        Returns:
            A float that also carries ``.power`` (norm^p as a Fraction) and ``.is_exact``.

        Raises:
            InvalidArgument: for another ``p`` or another name of neighbours.
        """
        return worst_change(self, p, neighbours)

    def pair_distance_max(self, p: int) -> int | None:
        """``max_{j,k} ||a_j - a_k||_p^p`` where a closed form is known, else ``None``."""
        return None

    def _slices(self) -> Iterator[tuple[int, np.ndarray]]:
        """The dense matrix, some columns at a time: ``(first column, m x width)``."""
        m, n = self.shape
        if m * n > _SCAN_LIMIT:
            raise Unsupported(
                f"{self!r} is too large to scan column by column, and its structure gives no shortcut"
            )
        width = max(1, _SLICE // m)
        for start in range(0, n, width):
            yield start, self.columns(np.arange(start, min(n, start + width)))

    # identity ------------------------------------------------------------------------------------
    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LinearOperator):
            return NotImplemented
        return self is other or self.key() == other.key()

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(self.key())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.shape[0]} x {self.shape[1]})"


class AxisOperator(LinearOperator):
    """An operator written as its action along an axis, and that of its transpose.

    ``along`` and ``along_T`` take ``(left, n, right)`` arrays: the form in which a Kronecker product
    needs its factors.
    """

    @abstractmethod
    def along(self, x: np.ndarray) -> np.ndarray:
        """``(left, n, right) -> (left, m, right)``."""

    def along_T(self, y: np.ndarray) -> np.ndarray:
        """The transpose: ``(left, m, right) -> (left, n, right)``. A subclass writes this, or ``T``."""
        return self.T.along(y)

    def along_T_to(self, y: np.ndarray, out: np.ndarray) -> None:
        """``along_T``, written to ``out``."""
        np.copyto(out, self.along_T(y), casting="unsafe")

    def matmat(self, x: np.ndarray) -> np.ndarray:
        """``A x`` for a block ``x`` of shape ``(n, k)``."""
        return self.along(x[None])[0]

    @property
    def T(self) -> LinearOperator:
        """The transpose, lazily."""
        return Transposed(self)


class WrappedOperator(AxisOperator):
    """An operator of the same entries as another, ``op``, in another place."""

    op: LinearOperator

    @property
    def shape(self) -> tuple[int, int]:
        return self.op.shape

    @property
    def integer(self) -> bool:
        return self.op.integer

    @property
    def binary(self) -> bool:
        return self.op.binary

    def abs_row_sum_max(self) -> int | float:
        return self.op.abs_row_sum_max()

    def abs_entry_max(self) -> int | float:
        return self.op.abs_entry_max()


@dataclass(frozen=True, eq=False, repr=False)
class Transposed(WrappedOperator):
    """The transpose of an operator that knows its own adjoint."""

    op: AxisOperator

    @property
    def shape(self) -> tuple[int, int]:
        return self.op.shape[1], self.op.shape[0]

    @property
    def T(self) -> LinearOperator:
        return self.op

    def along(self, x: np.ndarray) -> np.ndarray:
        return self.op.along_T(x)

    def along_T(self, y: np.ndarray) -> np.ndarray:
        return self.op.along(y)

    def along_to(self, x: np.ndarray, out: np.ndarray) -> None:
        self.op.along_T_to(x, out)

    def along_T_to(self, y: np.ndarray, out: np.ndarray) -> None:
        self.op.along_to(y, out)

    def dense(self) -> np.ndarray:
        return np.ascontiguousarray(self.op.dense().T)

    def pinv(self) -> LinearOperator:
        return self.op.pinv().T

    def abs_row_sum_max(self) -> int | float:
        return upper_bound(self.op.column_norms(1), self.shape[1])

    def __repr__(self) -> str:
        return f"{self.op!r}.T"


class SymmetricOperator(AxisOperator):
    """An operator that is its own transpose."""

    @property
    def T(self) -> LinearOperator:
        """The operator itself."""
        return self

    def along_T(self, y: np.ndarray) -> np.ndarray:
        """The same as ``along``."""
        return self.along(y)


def _key_part(value: Any) -> Any:
    """A field of an operator as something that can be compared and hashed."""
    if isinstance(value, LinearOperator):
        return value.key()
    if isinstance(value, np.ndarray):
        return digest(value)
    if isinstance(value, (tuple, list)):
        return tuple(map(_key_part, value))
    if scipy.sparse.issparse(value):
        indices, starts = value.indices.astype(np.int64), value.indptr.astype(np.int64)
        return (value.shape, digest(value.data, indices, starts))
    return value


def check_operators(ops: Any, name: str) -> tuple[LinearOperator, ...]:
    """A non-empty tuple of operators."""
    if isinstance(ops, (LinearOperator, np.ndarray)):
        raise InvalidArgument(f"{name} takes a list of operators: {name}([op, ...])")
    members = tuple(ops)
    if not members:
        raise InvalidArgument(f"{name} needs at least one operator")
    for position, member in enumerate(members):
        if not isinstance(member, LinearOperator):
            raise InvalidArgument(
                f"{name}: item {position} is a {type(member).__name__}, not an operator: "
                "wrap a matrix in Dense(...)"
            )
    return members


def check_coefficient(value: Any, name: str) -> Coefficient:
    """A finite real number: an ``int`` where it is whole, else a ``Fraction`` or a ``float``."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, (int, Fraction, float)):
        raise InvalidArgument(f"{name} must be an int, a Fraction or a float, not {value!r}")
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidArgument(f"{name} must be finite, not {value}")
    return int(value) if value == int(value) else value


@dataclass(frozen=True, eq=False, repr=False)
class Dense(AxisOperator):
    """A matrix given by its entries. Entries that are all integers are kept, and used, as integers.

    >>> (Dense([[1, 2], [3, 4]]) @ [1, 1]).tolist()
    [3, 7]
    """

    array: Any  # an int64 or float64 array once built

    def __post_init__(self) -> None:
        if scipy.sparse.issparse(self.array):
            raise InvalidArgument("Dense(array) takes a dense array: use Sparse(matrix)")
        array = np.asarray(self.array)
        if array.ndim != 2 or 0 in array.shape:
            raise InvalidArgument(f"Dense(array) takes a non-empty 2-D array, not shape {array.shape}")
        object.__setattr__(self, "array", frozen(_whole(array, "Dense(array)")))

    @property
    def shape(self) -> tuple[int, int]:
        return self.array.shape[0], self.array.shape[1]

    @property
    def integer(self) -> bool:
        return self.array.dtype == np.int64

    @cached_property
    def binary(self) -> bool:
        return self.integer and bool(np.all((self.array == 0) | (self.array == 1)))

    @cached_property
    def T(self) -> LinearOperator:
        transposed = object.__new__(Dense)  # shares the entries, which nobody can change
        object.__setattr__(transposed, "array", self.array.T)
        return transposed

    @cached_property
    def floats(self) -> np.ndarray:
        """The entries as float64."""
        return self.array if self.array.dtype == np.float64 else self.array.astype(np.float64)

    def along(self, x: np.ndarray) -> np.ndarray:
        return self._multiply(x, transposed=False)

    def along_T(self, y: np.ndarray) -> np.ndarray:
        return self._multiply(y, transposed=True)

    def _multiply(self, x: np.ndarray, *, transposed: bool) -> np.ndarray:
        if x.dtype == np.int64:
            if self.integer:
                return integer_matmul(self.array.T if transposed else self.array, x)
            x = x.astype(np.float64)
        matrix = self.floats.T if transposed else self.floats
        left, n, right = x.shape
        if matrix.size <= SMALL_MATRIX and x.size <= 2**18:
            return small_matmul(matrix, x)
        if right == 1 and left > 1:  # one product of matrices instead of many of a matrix with a vector
            return (x.reshape(left, n) @ matrix.T)[:, :, None]
        return np.matmul(matrix, x)

    def dense(self) -> np.ndarray:
        return self.array.copy()

    def columns(self, index: np.ndarray) -> np.ndarray:
        return self.array[:, index]

    def on_grid(self) -> tuple[Dense, int]:
        """Integers ``B`` and ``k`` with ``A = B 2^-k`` exactly, where ``B`` is small; else ``A`` and 0."""
        if self.integer:
            return self, 0
        for exponent in (4, 8, 12, 16, 20, 24):
            scaled = np.ldexp(self.array, exponent)
            if np.abs(scaled).max() < 2.0**31 and bool(np.all(scaled == np.rint(scaled))):
                return Dense(scaled), exponent
        return self, 0

    def gram(self) -> LinearOperator:
        if self.integer:
            if largest_abs(self.array) ** 2 * self.shape[0] >= INT64_LIMIT:
                return super().gram()
            return Dense(integer_matmul(self.array.T, self.array))
        product = self.array.T @ self.array
        return Dense((product + product.T) / 2)

    def abs_row_sum_max(self) -> int | float:
        return upper_bound(power_sums(self.array.T, 1), self.shape[1])

    def abs_entry_max(self) -> int | float:
        return largest_abs(self.array) if self.integer else np.abs(self.array).max().item()

    def column_norms(self, p: int) -> np.ndarray:
        check_power(p)
        return power_sums(self.array, p)

    def column_classes(self) -> np.ndarray:
        return classes_of_rows(self.array.T)


def _whole(values: np.ndarray, name: str) -> np.ndarray:
    """``int64`` where every entry is an integer that fits, else ``float64``; refuses what is not a number."""
    if values.dtype.kind not in "biuf":
        raise InvalidArgument(f"{name} holds real numbers, not entries of dtype {values.dtype}")
    if values.dtype.kind in "biu":
        if values.dtype == np.uint64 and values.size and int(values.max()) >= INT64_LIMIT:
            raise InvalidArgument(f"{name} holds integers of 2^63 or more: pass them as float64")
        return values.astype(np.int64)
    values = values.astype(np.float64)
    if not np.all(np.isfinite(values)):
        raise InvalidArgument(f"{name} holds nan or inf: every entry must be a finite number")
    if values.size and np.abs(values).max() < 2.0**62 and bool(np.all(values == np.rint(values))):
        return values.astype(np.int64)
    return values


@dataclass(frozen=True, eq=False, repr=False)
class Sparse(AxisOperator):
    """A scipy sparse matrix. Entries that are all integers are kept, and used, as integers.

    >>> import scipy.sparse
    >>> (Sparse(scipy.sparse.eye_array(2, dtype=int)) @ [1, 2]).tolist()
    [1, 2]
    """

    matrix: Any

    def __post_init__(self) -> None:
        if not scipy.sparse.issparse(self.matrix):
            raise InvalidArgument("Sparse(matrix) takes a scipy sparse matrix: use Dense(array) for an array")
        matrix = scipy.sparse.csr_array(self.matrix)
        if matrix.ndim != 2 or 0 in tuple(matrix.shape or ()):
            raise InvalidArgument(f"Sparse(matrix) takes a non-empty matrix, not shape {matrix.shape}")
        matrix.sum_duplicates()
        data = _whole(matrix.data, "Sparse(matrix)") if matrix.nnz else np.zeros(0, dtype=np.int64)
        matrix = scipy.sparse.csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape, copy=True)
        matrix.eliminate_zeros()
        matrix.sort_indices()
        object.__setattr__(self, "matrix", matrix)

    @property
    def shape(self) -> tuple[int, int]:
        return int(self.matrix.shape[0]), int(self.matrix.shape[1])

    @property
    def integer(self) -> bool:
        return self.matrix.dtype == np.int64

    @cached_property
    def binary(self) -> bool:
        return self.integer and bool(np.all(self.matrix.data == 1))

    @cached_property
    def T(self) -> Sparse:
        return Sparse(self.matrix.T)

    @cached_property
    def _floats(self) -> Any:
        return self.matrix.astype(np.float64)

    def along(self, x: np.ndarray) -> np.ndarray:
        return _sparse_along(self.matrix if x.dtype == np.int64 else self._floats, x)

    def dense(self) -> np.ndarray:
        return self.matrix.toarray() if self.shape[0] * self.shape[1] <= DENSE_LIMIT else super().dense()

    def columns(self, index: np.ndarray) -> np.ndarray:
        return self.matrix[:, index].toarray()

    def axis_classes(self) -> tuple[np.ndarray, ...]:
        return (self.column_classes(),)

    def gram(self) -> LinearOperator:
        if (
            self.integer
            and self.matrix.nnz
            and largest_abs(self.matrix.data) ** 2 * self.shape[0] >= INT64_LIMIT
        ):
            return super().gram()
        return Sparse(self.matrix.T @ self.matrix)

    def abs_row_sum_max(self) -> int | float:
        return upper_bound(self.T.column_norms(1), self.shape[1])

    def abs_entry_max(self) -> int | float:
        if not self.matrix.nnz:
            return 0
        return largest_abs(self.matrix.data) if self.integer else np.abs(self.matrix.data).max().item()

    def column_norms(self, p: int) -> np.ndarray:
        check_power(p)
        data, columns = np.abs(self.matrix.data), self.matrix.indices
        if self.integer:
            data = widened(data, largest_abs(data) ** p * self.shape[0])
        sums = np.zeros(self.shape[1], dtype=data.dtype)
        np.add.at(sums, columns, data if p == 1 else data * data)
        return sums

    def column_classes(self) -> np.ndarray:
        transpose = self.T.matrix
        seen: dict[tuple[bytes, bytes], int] = {}
        labels = np.empty(self.shape[1], dtype=np.int64)
        for column in range(self.shape[1]):
            part = slice(transpose.indptr[column], transpose.indptr[column + 1])
            content = (transpose.indices[part].tobytes(), transpose.data[part].tobytes())
            labels[column] = seen.setdefault(content, len(seen))
        return renumber(labels)

    def __repr__(self) -> str:
        return f"Sparse({self.shape[0]} x {self.shape[1]}, {self.matrix.nnz} entries)"


def _sparse_along(matrix: Any, x: np.ndarray) -> np.ndarray:
    left, n, right = x.shape
    if left > 1 and right < 16:  # few columns: gather those of all the left axis
        flat = np.ascontiguousarray(x.transpose(1, 0, 2)).reshape(n, left * right)
        return (matrix @ flat).reshape(matrix.shape[0], left, right).transpose(1, 0, 2)
    if left == 1:
        return (matrix @ x[0])[None]
    return np.stack([matrix @ part for part in x])


@dataclass(frozen=True, eq=False, repr=False)
class SizedOperator(AxisOperator):
    """What integer operators known by their ``n`` cells alone share: columns that all differ (but for a total)."""

    n: int
    integer = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", check_size(self.n, f"{type(self).__name__}(n): n"))

    @property
    def shape(self) -> tuple[int, int]:
        return self.n, self.n

    def column_classes(self) -> np.ndarray:
        return np.arange(self.n, dtype=np.int64)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.n})"


class CountingOperator(SizedOperator):
    """One of them whose rows are 0 and 1."""

    binary = True

    def abs_row_sum_max(self) -> int:
        return self.n

    def abs_entry_max(self) -> int:
        return 1


class Identity(SymmetricOperator, CountingOperator):
    """Every cell by itself: the ``n x n`` identity.

    >>> Identity(2).dense().tolist()
    [[1, 0], [0, 1]]
    """

    def along(self, x: np.ndarray) -> np.ndarray:
        return x.copy()

    def along_to(self, x: np.ndarray, out: np.ndarray) -> None:
        np.copyto(out, x)

    def gram(self) -> LinearOperator:
        return self

    def pinv(self) -> LinearOperator:
        return self

    def abs_row_sum_max(self) -> int:
        return 1

    def column_norms(self, p: int) -> np.ndarray:
        check_power(p)
        return np.ones(self.n, dtype=np.int64)

    def pair_distance_max(self, p: int) -> int:
        return 2 if self.n > 1 else 0


class Total(CountingOperator):
    """The sum of all cells: the ``1 x n`` row of ones.

    >>> int((Total(3) @ [1, 2, 3])[0])
    6
    """

    @property
    def shape(self) -> tuple[int, int]:
        return 1, self.n

    def along(self, x: np.ndarray) -> np.ndarray:
        return x.sum(axis=1, keepdims=True)

    def along_T(self, y: np.ndarray) -> np.ndarray:
        return np.repeat(y, self.n, axis=1)

    def pinv(self) -> LinearOperator:
        return reciprocal(self.T, self.n)

    def column_classes(self) -> np.ndarray:
        return np.zeros(self.n, dtype=np.int64)

    def column_norms(self, p: int) -> np.ndarray:
        check_power(p)
        return np.ones(self.n, dtype=np.int64)

    def pair_distance_max(self, p: int) -> int:
        return 0


class Centring(SymmetricOperator, SizedOperator):
    """``n I - J``: n times each cell less the sum of all, n times the centring matrix; rank n - 1.

    >>> (Centring(3) @ [1, 2, 6]).tolist()
    [-6, -3, 9]
    """

    @property
    def binary(self) -> bool:
        return self.n == 1  # the 1 x 1 zero

    def along(self, x: np.ndarray) -> np.ndarray:
        return self.n * x - x.sum(axis=1, keepdims=True)

    def gram(self) -> LinearOperator:
        return Scaled(self, self.n)

    def pinv(self) -> LinearOperator:
        return reciprocal(self, self.n**2)

    def abs_row_sum_max(self) -> int:
        return 2 * (self.n - 1)

    def abs_entry_max(self) -> int:
        return self.n  # n - 1, and n times an entry on the way there

    def column_norms(self, p: int) -> np.ndarray:
        check_power(p)
        norm = 2 * (self.n - 1) if p == 1 else self.n * (self.n - 1)
        return np.full(self.n, norm, dtype=np.int64 if norm < INT64_LIMIT else object)

    def pair_distance_max(self, p: int) -> int:
        """Two columns differ by n in two entries."""
        return 2 * self.n**p if self.n > 1 else 0


@dataclass(frozen=True, eq=False, repr=False)
class Partition(AxisOperator):
    """Sums over classes of cells: row ``c`` adds the cells ``j`` with ``classes[j] == c``.

    Args:
        classes: a class per cell, ``0 .. count - 1``, or ``-1`` for a cell in no class.
        count: how many classes (rows); by default the largest label plus one.

    Raises:
        InvalidArgument: when a label is not an integer in ``-1 .. count - 1``.

    >>> (Partition([0, 1, 0, -1]) @ [1, 2, 3, 4]).tolist()
    [4, 2]
    """

    classes: Any  # an int64 array once built
    count: int | None = None
    integer = binary = True

    def __post_init__(self) -> None:
        classes = np.asarray(self.classes)
        if classes.ndim != 1 or classes.size == 0 or classes.dtype.kind not in "iu":
            raise InvalidArgument("Partition(classes): classes must be a non-empty 1-D array of integers")
        classes = frozen(classes.astype(np.int64))
        count = (
            max(1, int(classes.max()) + 1)
            if self.count is None
            else check_size(self.count, "Partition: count")
        )
        if classes.min() < -1 or classes.max() >= count:
            raise InvalidArgument(f"Partition: labels must lie in -1 .. {count - 1} (-1: in no class)")
        object.__setattr__(self, "classes", classes)
        object.__setattr__(self, "count", count)

    @property
    def shape(self) -> tuple[int, int]:
        assert self.count is not None
        return self.count, len(self.classes)

    @cached_property
    def sizes(self) -> np.ndarray:
        """The number of cells in each class."""
        return frozen(np.bincount(self.classes[self.classes >= 0], minlength=self.shape[0]).astype(np.int64))

    @cached_property
    def _rows(self) -> Sparse:
        cells = np.flatnonzero(self.classes >= 0)
        ones = np.ones(len(cells), dtype=np.int64)
        return Sparse(scipy.sparse.csr_array((ones, (self.classes[cells], cells)), shape=self.shape))

    def along(self, x: np.ndarray) -> np.ndarray:
        return self._rows.along(x)

    def along_T(self, y: np.ndarray) -> np.ndarray:
        out = np.take(y, self.classes, axis=1, mode="clip")
        if self.classes.min() < 0:
            out[:, self.classes < 0] = 0
        return out

    def pinv(self) -> LinearOperator:
        own = self._rows.matrix.T.tocsr()
        own.data = 1.0 / self.sizes[own.indices]
        return Sparse(own)

    def abs_row_sum_max(self) -> int:
        return int(self.sizes.max())

    def abs_entry_max(self) -> int:
        return 1

    def column_norms(self, p: int) -> np.ndarray:
        check_power(p)
        return (self.classes >= 0).astype(np.int64)

    def pair_distance_max(self, p: int) -> int:
        """Two cells of different classes differ in two rows; a cell in a class and one in none, in one."""
        present = int(np.count_nonzero(self.sizes))
        return 2 if present > 1 else int(present == 1 and bool((self.classes < 0).any()))

    def column_classes(self) -> np.ndarray:
        return renumber(self.classes)

    def __repr__(self) -> str:
        return f"Partition({self.shape[1]} cells, {self.shape[0]} classes)"


def merge_columns(ops: Sequence[LinearOperator]) -> Partition:
    """The coarsest partition of the cells such that every operator is constant on its classes.

    Args:
        ops: operators with the same number of columns ``n``.

    Returns:
        ``Partition`` of shape ``(classes, n)``, classes numbered by first appearance.

    Raises:
        InvalidArgument: when the numbers of columns differ.

    >>> from tabulae.linalg import Dense, Total
    >>> merge_columns([Total(3), Dense([[1, 1, 0]])]).classes.tolist()
    [0, 0, 1]
    """
    members = check_operators(ops, "merge_columns")
    widths = {op.shape[1] for op in members}
    if len(widths) != 1:
        raise InvalidArgument(
            f"merge_columns needs operators over the same cells, not over {sorted(widths)} cells"
        )
    return Partition(joint_classes([op.column_classes() for op in dict.fromkeys(members)]))


@dataclass(frozen=True, eq=False, repr=False)
class Scaled(WrappedOperator):
    """A multiple of an operator. A Fraction stays exact in sensitivities; an integer keeps integers.

    >>> from tabulae.linalg import Identity
    >>> (Scaled(Identity(2), 3) @ [1, 2]).tolist()
    [3, 6]
    """

    op: LinearOperator
    factor: Coefficient
    _combines = True

    def __post_init__(self) -> None:
        check_operators([self.op], "Scaled")
        object.__setattr__(self, "factor", check_coefficient(self.factor, "Scaled(op, factor): factor"))

    @property
    def integer(self) -> bool:
        return self.op.integer and isinstance(self.factor, int)

    @property
    def binary(self) -> bool:
        return self.op.binary and self.factor in (0, 1)

    @property
    def T(self) -> LinearOperator:
        return Scaled(self.op.T, self.factor)

    def _multiplier(self, dtype: np.dtype[Any]) -> int | float:
        if dtype != np.int64:
            return float(self.factor)
        if not isinstance(self.factor, int):
            raise InvalidArgument(f"{self!r} is not an integer operator: pass a float64 array")
        return self.factor

    def along(self, x: np.ndarray) -> np.ndarray:
        out = self.op.along(x)
        return out * self._multiplier(out.dtype)

    def along_to(self, x: np.ndarray, out: np.ndarray) -> None:
        self.op.along_to(x, out)
        out *= self._multiplier(out.dtype)

    def axis_classes(self) -> tuple[np.ndarray, ...] | None:
        return self.op.axis_classes()

    def columns(self, index: np.ndarray) -> np.ndarray:
        self._check_entries()
        found = self.op.columns(index).astype(np.int64 if self.integer else np.float64, copy=False)
        return found * self._multiplier(found.dtype)

    def gram(self) -> LinearOperator:
        return Scaled(self.op.gram(), self.factor * self.factor)

    def pinv(self) -> LinearOperator:
        if self.factor == 0:
            return Scaled(self.op.T, 0)
        return reciprocal(self.op.pinv(), self.factor)

    def abs_row_sum_max(self) -> int | float:
        return bound_product(abs(self.factor), self.op.abs_row_sum_max())

    def abs_entry_max(self) -> int | float:
        return bound_product(abs(self.factor), self.op.abs_entry_max())

    def column_norms(self, p: int) -> np.ndarray:
        return scaled_norms(self.op.column_norms(p), abs(self.factor) ** p, whole=self.integer)

    def column_classes(self) -> np.ndarray:
        return np.zeros(self.shape[1], dtype=np.int64) if self.factor == 0 else self.op.column_classes()

    def __repr__(self) -> str:
        return f"Scaled({self.op!r}, {self.factor})"


def reciprocal(op: LinearOperator, divisor: Coefficient) -> LinearOperator:
    """``op / divisor``."""
    return Scaled(op, 1 / Fraction(divisor)) if not isinstance(divisor, float) else Scaled(op, 1.0 / divisor)


@dataclass(frozen=True, eq=False, repr=False)
class Permuted(WrappedOperator):
    """The operator on reordered cells: ``Permuted(op, order) @ x == op @ x[order]``.

    >>> from tabulae.linalg import Prefix
    >>> (Permuted(Prefix(3), [2, 0, 1]) @ [1, 2, 3]).tolist()
    [3, 4, 6]
    """

    op: LinearOperator
    order: Any  # an int64 array once built

    def __post_init__(self) -> None:
        check_operators([self.op], "Permuted")
        order, n = np.asarray(self.order), self.op.shape[1]
        if (
            order.shape != (n,)
            or order.dtype.kind not in "iu"
            or not np.array_equal(np.sort(order), np.arange(n))
        ):
            raise InvalidArgument(f"Permuted(op, order): order must hold each of 0 .. {n - 1} once")
        object.__setattr__(self, "order", frozen(order.astype(np.int64)))

    @cached_property
    def _inverse(self) -> np.ndarray:
        return np.argsort(self.order)

    def along(self, x: np.ndarray) -> np.ndarray:
        return self.op.along(x[:, self.order])

    def along_T(self, y: np.ndarray) -> np.ndarray:
        return self.op.T.along(y)[:, self._inverse]

    def dense(self) -> np.ndarray:
        return self.op.dense()[:, self._inverse]

    def columns(self, index: np.ndarray) -> np.ndarray:
        return self.op.columns(self._inverse[index])

    def gram(self) -> LinearOperator:
        return Permuted(Permuted(self.op.gram(), self.order).T, self.order)

    def pinv(self) -> LinearOperator:
        return Permuted(self.op.pinv().T, self.order).T

    def column_norms(self, p: int) -> np.ndarray:
        return self.op.column_norms(p)[self._inverse]

    def pair_distance_max(self, p: int) -> int | None:
        return self.op.pair_distance_max(p)

    def column_classes(self) -> np.ndarray:
        return renumber(self.op.column_classes()[self._inverse])

    def __repr__(self) -> str:
        return f"Permuted({self.op!r})"


@dataclass(frozen=True, eq=False, repr=False)
class Sum(AxisOperator):
    """A linear combination of operators of one shape: ``sum_t c_t A_t``.

    >>> from tabulae.linalg import Identity
    >>> (Sum([(2, Identity(2)), (-1, Identity(2))]) @ [1, 2]).tolist()
    [1, 2]
    """

    terms: Sequence[tuple[Coefficient, LinearOperator]]
    _combines = True

    def __post_init__(self) -> None:
        terms = tuple((check_coefficient(c, "Sum: coefficient"), op) for c, op in self.terms)
        ops = check_operators([op for _, op in terms], "Sum")
        if len({op.shape for op in ops}) != 1:
            raise InvalidArgument(f"Sum needs operators of one shape, not {[op.shape for op in ops]}")
        object.__setattr__(self, "terms", terms)

    @property
    def shape(self) -> tuple[int, int]:
        return self.terms[0][1].shape

    @property
    def integer(self) -> bool:
        return all(op.integer and isinstance(c, int) for c, op in self.terms)

    @property
    def T(self) -> LinearOperator:
        return Sum([(c, op.T) for c, op in self.terms])

    def along(self, x: np.ndarray) -> np.ndarray:
        if x.dtype == np.int64 and not self.integer:
            x = x.astype(np.float64)
        total = None
        for coefficient, op in self.terms:
            part = op.along(x)
            if coefficient != 1:
                part = part * (coefficient if part.dtype == np.int64 else float(coefficient))
            total = part if total is None else total + part
        assert total is not None
        return total

    def axis_classes(self) -> tuple[np.ndarray, ...] | None:
        every = [op.axis_classes() for _, op in self.terms]
        if len({None if each is None else tuple(map(len, each)) for each in every}) > 1 or every[0] is None:
            return None
        return tuple(joint_classes(list(labels)) for labels in zip(*filter(None, every), strict=True))

    def columns(self, index: np.ndarray) -> np.ndarray:
        self._check_entries()
        out = np.zeros((self.shape[0], len(index)), np.int64 if self.integer else np.float64)
        for coefficient, op in self.terms:
            part = op.columns(index).astype(out.dtype, copy=False)
            out += part * (coefficient if isinstance(coefficient, int) else float(coefficient))
        return out

    def abs_row_sum_max(self) -> int | float:
        return bound_sum([bound_product(abs(c), op.abs_row_sum_max()) for c, op in self.terms])

    def abs_entry_max(self) -> int | float:
        return bound_sum([bound_product(abs(c), op.abs_entry_max()) for c, op in self.terms])

    def __repr__(self) -> str:
        return f"Sum({len(self.terms)} terms, {self.shape[0]} x {self.shape[1]})"


@dataclass(frozen=True, eq=False, repr=False)
class MatrixProduct(AxisOperator):
    """``left @ right``, applied one after the other and never multiplied out.

    >>> from tabulae.linalg import Prefix, Total
    >>> (MatrixProduct(Total(2), Prefix(2)) @ [1, 2]).tolist()
    [4]
    """

    left: LinearOperator
    right: LinearOperator
    _combines = True

    def __post_init__(self) -> None:
        check_operators([self.left, self.right], "Product")
        if self.left.shape[1] != self.right.shape[0]:
            raise InvalidArgument(
                f"Product: left has {self.left.shape[1]} columns, right {self.right.shape[0]} rows"
            )

    @property
    def shape(self) -> tuple[int, int]:
        return self.left.shape[0], self.right.shape[1]

    @property
    def integer(self) -> bool:
        return self.left.integer and self.right.integer

    @property
    def T(self) -> LinearOperator:
        return MatrixProduct(self.right.T, self.left.T)

    def along(self, x: np.ndarray) -> np.ndarray:
        if x.dtype == np.int64 and not self.integer:
            x = x.astype(np.float64)
        return self.left.along(self.right.along(x))

    def columns(self, index: np.ndarray) -> np.ndarray:
        if isinstance(self.right, Partition) and self.right.classes.min() >= 0:
            return self.left.columns(self.right.classes[index])
        return super().columns(index)

    def _few_columns(self, index: np.ndarray) -> np.ndarray:
        columns = self.right.columns(index)
        return self.left.matmat(columns if self.integer else columns.astype(np.float64))

    def axis_classes(self) -> tuple[np.ndarray, ...] | None:
        return self.right.axis_classes()

    def abs_row_sum_max(self) -> int | float:
        return bound_product(self.left.abs_row_sum_max(), self.right.abs_row_sum_max())

    def abs_entry_max(self) -> int | float:
        return bound_product(self.left.abs_row_sum_max(), self.right.abs_entry_max())

    def column_norms(self, p: int) -> np.ndarray:
        check_power(p)
        known = self.right.column_norms_after(self.left, p)
        return super().column_norms(p) if known is None else known

    def __repr__(self) -> str:
        return f"Product({self.left!r}, {self.right!r})"


@dataclass(frozen=True, eq=False, repr=False)
class Stack(AxisOperator):
    """Operators over the same cells, one above the other, rows in the order given.

    >>> from tabulae.linalg import Identity, Total
    >>> (Stack([Total(2), Identity(2)]) @ [3, 4]).tolist()
    [7, 3, 4]
    """

    ops: Sequence[LinearOperator]

    def __post_init__(self) -> None:
        ops = check_operators(self.ops, "Stack")
        widths = [op.shape[1] for op in ops]
        if len(set(widths)) != 1:
            raise InvalidArgument(f"Stack needs operators over the same cells; these have {widths} columns")
        object.__setattr__(self, "ops", ops)

    @property
    def shape(self) -> tuple[int, int]:
        return sum(op.shape[0] for op in self.ops), self.ops[0].shape[1]

    @property
    def integer(self) -> bool:
        return all(op.integer for op in self.ops)

    @property
    def binary(self) -> bool:
        return all(op.binary for op in self.ops)

    def along(self, x: np.ndarray) -> np.ndarray:
        if len(self.ops) == 1:
            return self.ops[0].along(x)
        dtype = np.int64 if self.integer and x.dtype == np.int64 else np.float64
        out = np.empty((x.shape[0], self.shape[0], x.shape[2]), dtype=dtype)
        self.along_to(x, out)
        return out

    def along_to(self, x: np.ndarray, out: np.ndarray) -> None:
        first = 0
        for op in self.ops:
            op.along_to(x, out[:, first : first + op.shape[0]])
            first += op.shape[0]

    def along_T(self, y: np.ndarray) -> np.ndarray:
        first, total = 0, None
        for op in self.ops:
            part = op.T.along(y[:, first : first + op.shape[0]])
            first += op.shape[0]
            total = part if total is None else total + part
        assert total is not None
        return total

    def columns(self, index: np.ndarray) -> np.ndarray:
        return np.concatenate([op.columns(index) for op in self.ops])

    def gram(self) -> LinearOperator:
        return Sum([(1, op.gram()) for op in self.ops]) if len(self.ops) > 1 else self.ops[0].gram()

    def pinv(self) -> LinearOperator:
        return super().pinv() if len(self.ops) > 1 else self.ops[0].pinv()

    def abs_row_sum_max(self) -> int | float:
        return max(op.abs_row_sum_max() for op in self.ops)

    def abs_entry_max(self) -> int | float:
        return max(op.abs_entry_max() for op in self.ops)

    def column_norms(self, p: int) -> np.ndarray:
        return add_norms([op.column_norms(p) for op in self.ops])

    def column_classes(self) -> np.ndarray:
        return joint_classes([op.column_classes() for op in dict.fromkeys(self.ops)])

    def __repr__(self) -> str:
        return f"Stack({len(self.ops)} operators, {self.shape[0]} x {self.shape[1]})"


def pseudo_inverse(op: LinearOperator) -> LinearOperator:
    """``op^+``: dense when the smaller side is at most 4096, iterative above.

    A matrix with many rows and few columns goes through its Gram matrix, ``A^+ = (A'A)^+ A'``, which never
    forms ``A``.
    """
    m, n = op.shape
    if min(m, n) > DENSE_CELLS:
        return IterativeInverse(op)
    if m * n <= _DENSE_ENTRIES:
        return Dense(dense_pinv(op.dense().astype(np.float64)))
    if m < n:
        return pseudo_inverse(op.T).T
    return MatrixProduct(Dense(_gram_pinv(op.gram().dense().astype(np.float64))), op.T)


def dense_pinv(matrix: np.ndarray) -> np.ndarray:
    """The pseudo-inverse of an array: through QR where it is safely of full rank, else through the SVD."""
    from scipy.linalg import solve_triangular

    m, n = matrix.shape
    if m < n:
        return np.ascontiguousarray(dense_pinv(matrix.T).T)
    q, r = np.linalg.qr(matrix)
    diagonal = np.abs(np.diag(r))
    if diagonal.min() > _SAFE * diagonal.max():
        inverse = solve_triangular(r, np.eye(n), check_finite=False)
        if np.linalg.norm(inverse, 1) * np.linalg.norm(r, 1) < 1 / _SAFE:
            return inverse @ q.T
    return np.linalg.pinv(r, rcond=max(m, n) * 2.0**-52) @ q.T


def _gram_pinv(gram: np.ndarray) -> np.ndarray:
    """The pseudo-inverse of a positive semidefinite matrix."""
    return np.linalg.pinv((gram + gram.T) / 2, rcond=len(gram) * 2.0**-52, hermitian=True)


@dataclass(frozen=True, eq=False, repr=False)
class IterativeInverse(LinearOperator):
    """``op^+`` applied by LSMR: each product solves a least-squares problem to rounding error.

    Raises:
        Unsupported: when the iteration does not converge; the message says what to do instead.

    Reference: Fong and Saunders, LSMR: an iterative algorithm for sparse least-squares problems (2011).
    """

    op: LinearOperator

    @property
    def shape(self) -> tuple[int, int]:
        return self.op.shape[1], self.op.shape[0]

    @property
    def T(self) -> LinearOperator:
        return IterativeInverse(self.op.T)

    def pinv(self) -> LinearOperator:
        return self.op

    def matmat(self, x: np.ndarray) -> np.ndarray:
        from scipy.sparse import linalg

        scipy_operator: Any = linalg.LinearOperator  # whose type stub does not know the form with functions
        adjoint = self.op.T
        problem = scipy_operator(
            self.op.shape, dtype=np.float64, matvec=lambda v: self.op @ v, rmatvec=lambda v: adjoint @ v
        )
        columns = [self._solve(problem, column) for column in np.asarray(x, dtype=np.float64).T]
        return np.stack(columns, axis=1) if columns else np.zeros((self.shape[0], 0))

    def _solve(self, problem: Any, target: np.ndarray) -> np.ndarray:
        from scipy.sparse.linalg import lsmr

        limit = max(_LEAST_STEPS, _STEPS_PER_CELL * min(self.shape))
        solution, stopped, *_ = lsmr(
            problem, target, atol=_TOLERANCE, btol=_TOLERANCE, conlim=0, maxiter=limit
        )
        if stopped == 7:
            raise Unsupported(
                f"the least-squares iteration for {self.op!r} did not converge in {limit} steps: use a "
                "strategy whose blocks share a Kronecker structure, or merge identical columns first"
            )
        return solution
