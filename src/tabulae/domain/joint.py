"""Queries over the combinations of two or three attributes, as a sum of Kronecker products.

A matrix W (m, n_1 n_2 n_3) whose rows are no products still is a sum of products, exactly: fix a combination j of all
attributes but one, the *carrier*, and let ``W_j`` (m, n) be its columns. Then ``W = sum_j W_j (x) e_j'`` with unit rows
``e_j``. Combinations with equal ``W_j`` share a term, one attribute after the other, and those whose ``W_j`` is zero
need none. The carrier and the order of the others are those that give the fewest terms.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from ..errors import InvalidArgument, Unsupported
from ..linalg import Dense, LinearOperator, Partition, Total

MOST_ENTRIES = 2**25
"""The largest matrix over several attributes together that is written out."""

_FEWEST, _MOST = 2, 3  # attributes

Factors = Mapping[int, LinearOperator]

# Many tables ask the same of other attributes: they hold one matrix, as long as one of them is there.
_SHARED: WeakValueDictionary[tuple[Any, ...], Dense] = WeakValueDictionary()


@dataclass(frozen=True)
class JointMatrix:
    """Queries (m, cells) over the combinations of two or three attributes, in C order: the last one fastest.

    Raises:
        InvalidArgument: another number of attributes, one of them twice, or entries that are not whole numbers.

    >>> pairs = JointMatrix.of("pairs", ("a", "b"), [[1, 1, 1, 0]])
    >>> carrier, products = pairs.products((2, 2))
    >>> carrier, [[factor.dense().tolist() for factor in product.values()] for product in products]
    (0, [[[[1, 1]], [[1, 0]]], [[[1, 0]], [[0, 1]]]])
    """

    attributes: tuple[str, ...]
    matrix: Dense

    @classmethod
    def of(cls, name: str, attributes: Sequence[str], matrix: Any) -> JointMatrix:
        """The queries of a table, or what is wrong with them; ``name`` is the table's, for messages."""
        whose = f"table {name!r}"
        if isinstance(attributes, str) or not all(isinstance(a, str) for a in attributes):
            raise InvalidArgument(
                f'{whose}: name its attributes in a list such as ["a", "b"], not {attributes!r}'
            )
        attributes = tuple(attributes)
        if not _FEWEST <= len(attributes) <= _MOST or len(set(attributes)) < len(attributes):
            raise InvalidArgument(
                f"{whose} is over {', '.join(map(repr, attributes)) or 'no attributes'}: a joint table is over two or "
                "three different attributes; write Table(name, {attribute: matrix}) for one"
            )
        found = _dense(whose, matrix)
        return cls(attributes, _SHARED.setdefault(found.key(), found))

    def check(self, name: str, sizes: Sequence[int]) -> None:
        """Refuse a domain whose combinations are not the columns."""
        if self.matrix.shape[1] != math.prod(sizes):
            product = " x ".join(map(str, sizes))
            raise InvalidArgument(
                f"table {name!r}: its matrix has {self.matrix.shape[1]} columns, but the domain has {product} = "
                f"{math.prod(sizes)} combinations of {', '.join(map(repr, self.attributes))}: give it one column for "
                "each, the last attribute fastest"
            )

    def products(self, sizes: Sequence[int]) -> tuple[int, tuple[Factors, ...]]:
        """The place of the attribute that carries the rows, and for each product a factor by place."""
        return _products(self.matrix, tuple(sizes))


def _dense(whose: str, matrix: Any) -> Dense:
    """The matrix written out in whole numbers."""
    if isinstance(matrix, LinearOperator):
        if math.prod(matrix.shape) > MOST_ENTRIES:
            raise Unsupported(
                f"{whose}: {matrix!r} has more than {MOST_ENTRIES:,} entries, and a joint matrix is written out: "
                "divide its rows among several tables, or merge categories"
            )
        found = matrix if isinstance(matrix, Dense) else Dense(matrix.dense())
    else:
        try:
            found = Dense(np.asarray(matrix))
        except (InvalidArgument, TypeError, ValueError) as error:
            raise InvalidArgument(
                f"{whose}: give its queries as a matrix, a row for each query and a column for each combination of "
                f"categories: {error}"
            ) from None
        if found.array.size > MOST_ENTRIES:
            raise Unsupported(
                f"{whose}: its matrix has more than {MOST_ENTRIES:,} entries: divide its rows among several tables, "
                "or merge categories"
            )
    if not found.integer:
        row, column = np.argwhere(found.array != np.rint(found.array))[0]
        raise InvalidArgument(
            f"{whose}: entry {found.array[row, column]!r} in row {row} and column {column} is no whole number: counts "
            "are weighted by whole numbers, so multiply the rows by a common denominator"
        )
    return found


@lru_cache(maxsize=16)
def _products(matrix: Dense, sizes: tuple[int, ...]) -> tuple[int, tuple[Factors, ...]]:
    """Kept, so that tables with equal matrices share their factors, and all that is computed of these."""
    array = matrix.array.reshape(-1, *sizes)
    orders = list(permutations(range(len(sizes))))
    best = min(orders, key=lambda order: sum(1 for _ in _split(_turned(array, order))))
    carrier, *others = best
    terms = []
    for masks, part in _split(_turned(array, best)):
        factors: dict[int, LinearOperator] = {carrier: Dense(part)}
        for axis, mask in zip(others, masks, strict=True):
            factors[axis] = Total(len(mask)) if mask.all() else Partition(np.where(mask, 0, -1), 1)
        terms.append(dict(sorted(factors.items())))
    return carrier, tuple(terms)


def _turned(array: np.ndarray, order: Sequence[int]) -> np.ndarray:
    """The queries with an axis for each attribute but the carrier, then the rows, then the carrier."""
    carrier, *others = order
    return array.transpose([*(axis + 1 for axis in others), 0, carrier + 1])


def _split(array: np.ndarray) -> Iterator[tuple[list[np.ndarray], np.ndarray]]:
    """Masks of all axes but the last two, and the matrix that their cells have in common; zeros are left out."""
    if array.ndim == 2:
        if array.any():
            yield [], np.ascontiguousarray(array)
        return
    alike: dict[bytes, list[int]] = {}
    for category, part in enumerate(array):
        alike.setdefault(part.tobytes(), []).append(category)
    for members in alike.values():
        mask = np.zeros(len(array), dtype=bool)
        mask[members] = True
        for masks, part in _split(array[members[0]]):
            yield [mask, *masks], part
