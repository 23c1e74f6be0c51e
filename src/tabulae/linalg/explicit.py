"""Matrices that are written out: Dense and Sparse."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse

from ..errors import InvalidArgument
from .blas import SMALL_MATRIX, small_matmul
from .digest import digest, frozen
from .exact import integer_matmul, largest_abs
from .numbers import (
    INT64_LIMIT,
    check_power,
    power_sums,
    upper_bound,
)
from .operator import (
    DENSE_LIMIT,
    AxisOperator,
    LinearOperator,
)


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

    def key(self) -> tuple[Any, ...]:
        return ("Dense", self._digest)

    @cached_property
    def _digest(self) -> bytes:
        return digest(self.array)

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
        from .merge import classes_of_rows

        return classes_of_rows(self.array.T)

    def __repr__(self) -> str:
        return f"Dense({self.shape[0]} x {self.shape[1]})"


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
    def T(self) -> LinearOperator:
        return Sparse(self.matrix.T)

    def key(self) -> tuple[Any, ...]:
        return ("Sparse", self.shape, self._digest)

    @cached_property
    def _digest(self) -> bytes:
        indices, starts = self.matrix.indices.astype(np.int64), self.matrix.indptr.astype(np.int64)
        return digest(self.matrix.data, indices, starts)

    @cached_property
    def _transpose(self) -> Any:
        return scipy.sparse.csr_array(self.matrix.T)

    @cached_property
    def _floats(self) -> Any:
        return self.matrix.astype(np.float64)

    @cached_property
    def _transposed_floats(self) -> Any:
        return self._transpose.astype(np.float64)

    def along(self, x: np.ndarray) -> np.ndarray:
        return _sparse_along(self.matrix if x.dtype == np.int64 else self._floats, x)

    def along_T(self, y: np.ndarray) -> np.ndarray:
        return _sparse_along(self._transpose if y.dtype == np.int64 else self._transposed_floats, y)

    def dense(self) -> np.ndarray:
        return self.matrix.toarray() if self.shape[0] * self.shape[1] <= DENSE_LIMIT else super().dense()

    def columns(self, index: np.ndarray) -> np.ndarray:
        return self.matrix[:, index].toarray()

    def gram(self) -> LinearOperator:
        if (
            self.integer
            and self.matrix.nnz
            and largest_abs(self.matrix.data) ** 2 * self.shape[0] >= INT64_LIMIT
        ):
            return super().gram()
        return Sparse(self._transpose @ self.matrix)

    def abs_row_sum_max(self) -> int | float:
        return upper_bound(self.T.column_norms(1), self.shape[1])

    def abs_entry_max(self) -> int | float:
        if not self.matrix.nnz:
            return 0
        return largest_abs(self.matrix.data) if self.integer else np.abs(self.matrix.data).max().item()

    def column_norms(self, p: int) -> np.ndarray:
        check_power(p)
        data, columns = np.abs(self.matrix.data), self.matrix.indices
        if self.integer and self.matrix.nnz and largest_abs(data) ** p * self.shape[0] >= INT64_LIMIT:
            data = data.astype(object)
        sums = np.zeros(self.shape[1], dtype=data.dtype)
        np.add.at(sums, columns, data if p == 1 else data * data)
        return sums

    def column_classes(self) -> np.ndarray:
        from .merge import renumber

        transpose = self._transpose
        transpose.sort_indices()
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
