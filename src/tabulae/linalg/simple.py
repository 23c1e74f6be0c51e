"""The operators that every table is made of: Identity, Total, Partition, and a diagonal."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse

from ..errors import InvalidArgument
from .digest import digest, frozen
from .numbers import check_power, check_size
from .operator import AxisOperator, LinearOperator

if TYPE_CHECKING:
    from .explicit import Sparse


@dataclass(frozen=True, eq=False, repr=False)
class Identity(AxisOperator):
    """Every cell by itself: the ``n x n`` identity.

    >>> Identity(2).dense().tolist()
    [[1, 0], [0, 1]]
    """

    n: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", check_size(self.n, "Identity(n): n"))

    @property
    def shape(self) -> tuple[int, int]:
        return self.n, self.n

    @property
    def integer(self) -> bool:
        return True

    @property
    def binary(self) -> bool:
        return True

    @property
    def T(self) -> LinearOperator:
        return self

    def key(self) -> tuple[Any, ...]:
        return ("Identity", self.n)

    def along(self, x: np.ndarray) -> np.ndarray:
        return x.copy()

    def along_to(self, x: np.ndarray, out: np.ndarray) -> None:
        np.copyto(out, x)

    def along_T(self, y: np.ndarray) -> np.ndarray:
        return y.copy()

    def gram(self) -> LinearOperator:
        return self

    def pinv(self) -> LinearOperator:
        return self

    def abs_row_sum_max(self) -> int:
        return 1

    def abs_entry_max(self) -> int:
        return 1

    def column_norms(self, p: int) -> np.ndarray:
        check_power(p)
        return np.ones(self.n, dtype=np.int64)

    def column_classes(self) -> np.ndarray:
        return np.arange(self.n, dtype=np.int64)

    def pair_distance_max(self, p: int) -> int:
        return 2 if self.n > 1 else 0

    def __repr__(self) -> str:
        return f"Identity({self.n})"


@dataclass(frozen=True, eq=False, repr=False)
class Total(AxisOperator):
    """The sum of all cells: the ``1 x n`` row of ones.

    >>> int((Total(3) @ [1, 2, 3])[0])
    6
    """

    n: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", check_size(self.n, "Total(n): n"))

    @property
    def shape(self) -> tuple[int, int]:
        return 1, self.n

    @property
    def integer(self) -> bool:
        return True

    @property
    def binary(self) -> bool:
        return True

    def key(self) -> tuple[Any, ...]:
        return ("Total", self.n)

    def along(self, x: np.ndarray) -> np.ndarray:
        return x.sum(axis=1, keepdims=True)

    def along_to(self, x: np.ndarray, out: np.ndarray) -> None:
        np.sum(x, axis=1, keepdims=True, out=out)

    def along_T(self, y: np.ndarray) -> np.ndarray:
        return np.repeat(y, self.n, axis=1)

    def pinv(self) -> LinearOperator:
        from .scaled import reciprocal

        return reciprocal(self.T, self.n)

    def abs_row_sum_max(self) -> int:
        return self.n

    def abs_entry_max(self) -> int:
        return 1

    def column_norms(self, p: int) -> np.ndarray:
        check_power(p)
        return np.ones(self.n, dtype=np.int64)

    def column_classes(self) -> np.ndarray:
        return np.zeros(self.n, dtype=np.int64)

    def pair_distance_max(self, p: int) -> int:
        return 0

    def __repr__(self) -> str:
        return f"Total({self.n})"


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

    @property
    def integer(self) -> bool:
        return True

    @property
    def binary(self) -> bool:
        return True

    def key(self) -> tuple[Any, ...]:
        return ("Partition", self.count, self._digest)

    @cached_property
    def _digest(self) -> bytes:
        return digest(self.classes)

    @cached_property
    def sizes(self) -> np.ndarray:
        """The number of cells in each class."""
        return frozen(np.bincount(self.classes[self.classes >= 0], minlength=self.shape[0]).astype(np.int64))

    @cached_property
    def _rows(self) -> Sparse:
        from .explicit import Sparse

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
        from .algebra import Product

        inverse = np.divide(1.0, self.sizes, out=np.zeros(self.shape[0]), where=self.sizes > 0)
        return Product(self.T, Diagonal(inverse))

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
        from .merge import renumber

        return renumber(self.classes)

    def __repr__(self) -> str:
        return f"Partition({self.shape[1]} cells, {self.shape[0]} classes)"


@dataclass(frozen=True, eq=False, repr=False)
class Diagonal(AxisOperator):
    """A diagonal matrix of floats, or of integers.

    >>> (Diagonal([2, 3]) @ [1, 1]).tolist()
    [2, 3]
    """

    values: Any  # an array once built

    def __post_init__(self) -> None:
        values = np.asarray(self.values)
        if values.ndim != 1 or values.size == 0 or values.dtype.kind not in "iuf":
            raise InvalidArgument("Diagonal(values): values must be a non-empty 1-D array of real numbers")
        object.__setattr__(
            self, "values", frozen(values.astype(np.int64 if values.dtype.kind in "iu" else np.float64))
        )

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.values), len(self.values)

    @property
    def integer(self) -> bool:
        return self.values.dtype == np.int64

    @property
    def T(self) -> LinearOperator:
        return self

    def key(self) -> tuple[Any, ...]:
        return ("Diagonal", digest(self.values))

    def along(self, x: np.ndarray) -> np.ndarray:
        return x * self.values[:, None]

    def along_to(self, x: np.ndarray, out: np.ndarray) -> None:
        np.multiply(x, self.values[:, None], out=out)

    def along_T(self, y: np.ndarray) -> np.ndarray:
        return self.along(y)

    def pinv(self) -> LinearOperator:
        inverse = np.divide(1.0, self.values, out=np.zeros(len(self.values)), where=self.values != 0)
        return Diagonal(inverse)

    def abs_row_sum_max(self) -> int | float:
        return self.abs_entry_max()

    def abs_entry_max(self) -> int | float:
        return np.abs(self.values).max().item()

    def column_norms(self, p: int) -> np.ndarray:
        from .numbers import power_sums

        check_power(p)
        return power_sums(self.values[None], p)
