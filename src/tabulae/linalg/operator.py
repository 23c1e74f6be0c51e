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
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InvalidArgument, Unsupported
from .numbers import (
    EXACT_FLOAT_LIMIT,
    INT64_LIMIT,
    check_power,
    largest_abs_sum,
    power_sums,
    upper_bound,
)

if TYPE_CHECKING:
    from .sensitivity import Sensitivity

DENSE_LIMIT = 2**29  # entries: 4 GiB
_UNIT_ENTRIES = 2**24  # of the unit vectors that pick columns, at once
_SCAN_LIMIT = 2**32  # entries that a default may visit a slice at a time


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

    @property
    def integer(self) -> bool:
        """True when every entry is known to be an integer."""
        return False

    @property
    def binary(self) -> bool:
        """True when every entry is known to be 0 or 1."""
        return False

    def key(self) -> tuple[Any, ...]:
        """What the operator is built of: equal keys, equal matrices."""
        return (type(self).__name__, id(self))

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

    def _check_entries(self) -> None:  # noqa: B027  (only products and sums of operators have something to refuse)
        """Refuse to write out integers that could exceed int64."""

    def gram(self) -> LinearOperator:
        """``A'A``, ``n x n``."""
        from .algebra import Product

        return Product(self.T, self)

    def pinv(self) -> LinearOperator:
        """The Moore-Penrose inverse ``A^+``, ``n x m``: by structure, densely, or iteratively."""
        from .pseudo_inverse import pseudo_inverse

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
        return np.concatenate([power_sums(part, p) for _, part in self._slices()])

    def column_classes(self) -> np.ndarray:
        """A label for every column, equal exactly where columns are equal, numbered by first appearance."""
        from .merge import classes_of_rows

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
        from .sensitivity import weighted_sensitivity

        return weighted_sensitivity([(self, 1)], p, neighbours)

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
        width = max(1, 2**22 // m)
        for start in range(0, n, width):
            yield start, self.columns(np.arange(start, min(n, start + width)))

    # identity ------------------------------------------------------------------------------------
    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LinearOperator):
            return NotImplemented
        return self is other or self.key() == other.key()

    def __hash__(self) -> int:
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

    @abstractmethod
    def along_T(self, y: np.ndarray) -> np.ndarray:
        """The transpose: ``(left, m, right) -> (left, n, right)``."""

    def along_to(self, x: np.ndarray, out: np.ndarray) -> None:
        """``along``, written to ``out``; overridden where that saves a copy."""
        np.copyto(out, self.along(x), casting="unsafe")

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


@dataclass(frozen=True, eq=False, repr=False)
class Transposed(AxisOperator):
    """The transpose of an operator that knows its own adjoint."""

    op: AxisOperator

    @property
    def shape(self) -> tuple[int, int]:
        return self.op.shape[1], self.op.shape[0]

    @property
    def integer(self) -> bool:
        return self.op.integer

    @property
    def binary(self) -> bool:
        return self.op.binary

    @property
    def T(self) -> LinearOperator:
        return self.op

    def key(self) -> tuple[Any, ...]:
        return ("Transposed", self.op.key())

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

    def abs_entry_max(self) -> int | float:
        return self.op.abs_entry_max()

    def __repr__(self) -> str:
        return f"{self.op!r}.T"


def refuse_large_entries(op: LinearOperator) -> None:
    """Refuse an integer operator whose entries may exceed int64."""
    if op.integer and op.abs_entry_max() >= INT64_LIMIT:
        raise Unsupported(
            f"entries of {op!r} may exceed 64-bit integers: multiply by it instead of writing it out"
        )


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


def write(op: LinearOperator, x: np.ndarray, out: np.ndarray) -> None:
    """``op`` along the middle axis of ``x``, written to ``out``."""
    if isinstance(op, AxisOperator):
        op.along_to(x, out)
    else:
        np.copyto(out, op.along(x), casting="unsafe")
