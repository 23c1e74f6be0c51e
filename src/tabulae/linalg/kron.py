"""Kronecker products, kept as their factors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from .kron_matvec import multiply
from .numbers import (
    EXACT_FLOAT_LIMIT,
    INT64_LIMIT,
    bound_product,
)
from .operator import (
    AxisOperator,
    LinearOperator,
    check_operators,
    refuse_large_entries,
)

_LARGE = 2**27  # numbers in a vector, of either side, from which it is worked through in slices: 1 GiB
_LARGE_INTEGERS = 2**24  # the same where they are integers that have to be made floats
_LARGE_PAST_FLOATS = 2**20  # the same where integers need more than the 53 bits of floats


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

    @property
    def T(self) -> LinearOperator:
        return Kron(tuple(op.T for op in self.ops))

    def key(self) -> tuple[Any, ...]:
        return ("Kron", tuple(op.key() for op in self.ops))

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
        # Past what floats hold, only the head's part of a product in slices pays for it.
        least = _LARGE if bound is None or bound < EXACT_FLOAT_LIMIT else _LARGE_PAST_FLOATS
        if x.shape[0] == x.shape[2] == 1 and max(self.shape) >= least:
            from .kron_slices import in_slices

            done = in_slices(self, x.reshape(-1), x.dtype)
            if done is not None:
                return done[None, :, None]
        return multiply(list(self.flat()), x, bound=bound)

    def as_floats(self, x: np.ndarray) -> np.ndarray:
        """``A x`` in float64 for a vector of integers, which are made floats a slice at a time."""
        if max(self.shape) >= _LARGE_INTEGERS:
            from .kron_slices import in_slices

            done = in_slices(self, x, np.dtype(np.float64))
            if done is not None:
                return done
        return self @ x.astype(np.float64)

    def along_T(self, y: np.ndarray) -> np.ndarray:
        return self.T.along(y)

    def gram(self) -> LinearOperator:
        return Kron(tuple(op.gram() for op in self.ops))

    def pinv(self) -> LinearOperator:
        return Kron(tuple(op.pinv() for op in self.ops))

    def abs_row_sum_max(self) -> int | float:
        return reduce(bound_product, (op.abs_row_sum_max() for op in self.ops))

    def abs_entry_max(self) -> int | float:
        return reduce(bound_product, (op.abs_entry_max() for op in self.ops))

    def column_norms(self, p: int) -> np.ndarray:
        factors = [op.column_norms(p) for op in self.ops]
        if self.integer and math.prod(int(norms.max()) for norms in factors) >= INT64_LIMIT:
            factors = [norms.astype(object) for norms in factors]
        return reduce(lambda a, b: np.multiply.outer(a, b).reshape(-1), factors)

    def column_classes(self) -> np.ndarray:
        """Labels of the columns; for factors that hold fractions, those of the factors' classes."""
        from .directions import kron_classes

        return kron_classes(self.ops)

    def _check_entries(self) -> None:
        refuse_large_entries(self)

    def __repr__(self) -> str:
        return f"Kron([{', '.join(repr(op) for op in self.ops)}])"
