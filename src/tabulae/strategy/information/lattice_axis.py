"""One attribute of the lattice route: the matrix that blocks measure there, and what queries make of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ...domain import merged_factor
from ...linalg import Identity, LinearOperator, Partition, merge_columns
from ..rounding import gram_inverse
from .explicit import row_dots
from .protocol import check_constant

_WIDEST = 8192  # cells of an attribute whose matrix is inverted

Queries = tuple[LinearOperator, ...]


@dataclass(frozen=True)
class Axis:
    """One attribute: the matrix A (r x n) that blocks crossing it measure there.

    Everything is over the k cells that A tells apart: X = A'A there (k x k), ``u = X^-1 1`` and ``g = 1'u``. The axis
    is ``plain`` where A is the identity over those cells: then X = I, u = 1 and g = k.
    """

    matrix: LinearOperator
    known: dict[object, np.ndarray] = field(default_factory=dict, compare=False)
    _types: dict[object, RowTypes] = field(default_factory=dict, compare=False)
    _merged: dict[LinearOperator, LinearOperator] = field(default_factory=dict, compare=False)

    @cached_property
    def plain(self) -> bool:
        """Whether A counts each of its cells by itself."""
        if isinstance(self.matrix, Partition):
            return bool((self.matrix.classes >= 0).all() and (self.matrix.sizes > 0).all())
        return isinstance(self.matrix, Identity)

    @cached_property
    def merge(self) -> Partition:
        """k x n: the cells that A tells apart."""
        return (
            self.matrix if self.plain and isinstance(self.matrix, Partition) else merge_columns([self.matrix])
        )

    @property
    def cells(self) -> int:
        """k."""
        return self.merge.shape[0]

    @cached_property
    def measured(self) -> np.ndarray:
        """A over its cells, r x k, dense."""
        return np.asarray(self.over(self.matrix).dense(), dtype=float)

    @cached_property
    def inverse(self) -> np.ndarray | None:
        """X^-1, None where A does not determine its cells."""
        return gram_inverse(self.measured) if self.cells <= min(self.matrix.shape[0], _WIDEST) else None

    @property
    def determined(self) -> bool:
        """Whether A determines its cells."""
        return self.plain or self.inverse is not None

    @cached_property
    def mean(self) -> np.ndarray:
        """u, (k,)."""
        return np.ones(self.cells) if self.plain or self.inverse is None else self.inverse.sum(axis=1)

    @cached_property
    def size(self) -> float:
        """g: the variance of the total when A alone is measured with unit noise."""
        return float(self.mean.sum())

    @cached_property
    def on_mean(self) -> np.ndarray:
        """``u'A' / g``, (r,): what brings answers to A to the best estimate of the total, over g."""
        return np.full(self.cells, 1 / self.size) if self.plain else self.measured @ self.mean / self.size

    @cached_property
    def beside(self) -> np.ndarray:
        """``(X^-1 - u u'/g) A'``, k x r: what brings answers to A to the cells less their mean part."""
        assert self.inverse is not None
        return (self.inverse - np.outer(self.mean, self.mean) / self.size) @ self.measured.T

    def take_mean(self, array: np.ndarray, position: int) -> np.ndarray:
        """Answers to A along one axis of an array (r long), replaced by ``u'A'/g`` of them: the axis goes."""
        if self.plain:
            return array.mean(axis=position)
        return np.tensordot(array, self.on_mean, axes=(position, 0))

    def take_beside(self, array: np.ndarray, position: int) -> np.ndarray:
        """Answers to A along one axis (r long), replaced by what they say of the cells (k) beside the mean part."""
        if self.plain:
            return array - array.mean(axis=position, keepdims=True)
        return np.moveaxis(np.tensordot(self.beside, array, axes=(1, position)), 0, position)

    def spread(self, array: np.ndarray, position: int) -> np.ndarray:
        """An array times u along a new axis, to be broadcast."""
        array = np.expand_dims(array, position)
        return array if self.plain else array * self.mean.reshape([-1] + [1] * (array.ndim - 1 - position))

    def over(self, query: LinearOperator) -> LinearOperator:
        """The query over A's cells, m x k; NotEstimable where it tells cells apart that A does not."""
        # A permutation tells all cells apart too
        if np.array_equal(self.merge.classes, np.arange(query.shape[1])):
            return query
        if query not in self._merged:
            check_constant(query, self.merge.classes)
            self._merged[query] = merged_factor(query, self.merge)
        return self._merged[query]

    def through_mean(self, query: LinearOperator) -> np.ndarray:
        """W u, (m,)."""
        key = ("mean", query)
        if key not in self.known:
            self.known[key] = np.asarray(self.over(query) @ self.mean, dtype=float)
        return self.known[key]

    def parts(self, left: LinearOperator, right: LinearOperator) -> np.ndarray:
        """(2, m): the mean part ``(P u)(Q u) / g`` of each row's covariance, and ``diag(P X^-1 Q')`` less that."""
        key = ("parts", left, right)
        if key not in self.known:
            mean = self.through_mean(left) * self.through_mean(right) / self.size
            self.known[key] = np.stack([mean, self._dots(left, right) - mean])
        return self.known[key]

    def distinct_parts(self, left: LinearOperator, right: LinearOperator) -> tuple[np.ndarray, np.ndarray]:
        """:meth:`parts` of the rows that differ in them, (2, t), and which of them each row has, (m,)."""
        pair = ("which parts", left, right)
        if pair not in self.known:
            distinct, which = np.unique(self.parts(left, right), axis=1, return_inverse=True)
            self.known["distinct parts", left, right], self.known[pair] = distinct, which.reshape(-1)
        return self.known["distinct parts", left, right], self.known[pair]

    def sums(self, left: LinearOperator, right: LinearOperator) -> np.ndarray:
        """(2,): :meth:`parts` summed over rows."""
        key = ("sums", left, right)
        if key not in self.known:
            self.known[key] = self._sums(left, right)
        return self.known[key]

    def _sums(self, left: LinearOperator, right: LinearOperator) -> np.ndarray:
        mean = float(self.through_mean(left) @ self.through_mean(right)) / self.size
        if self.plain and left == right:
            whole = float(np.asarray(self.over(left).column_norms(2), dtype=float).sum())
        else:
            whole = float(self._dots(left, right).sum())
        return np.array([mean, whole - mean])

    def _dots(self, left: LinearOperator, right: LinearOperator) -> np.ndarray:
        if self.plain or self.inverse is None:
            return row_dots(self.over(left), self.over(right))
        one = np.asarray(self.over(left).dense(), dtype=float) @ self.inverse
        return np.einsum("ij,ij->i", one, np.asarray(self.over(right).dense(), dtype=float))

    def coefficients(self, query: LinearOperator, rows: slice) -> np.ndarray:
        """(2, rows, r): the coefficients of answers to A in the rows' mean part and in what is beside it."""
        on_mean = self.through_mean(query)[rows, None] * self.on_mean
        whole = np.asarray(
            self.over(query).T.columns(np.arange(self.over(query).shape[0])[rows]).T, dtype=float
        )
        return np.stack([on_mean, whole - on_mean if self.plain else whole @ self.beside])

    def row_types(self, queries: Queries) -> RowTypes:
        """The rows of several queries with equally many rows, by the coefficients that they have."""
        if queries not in self._types:
            self._types[queries] = self._row_types(queries)
        return self._types[queries]

    def _row_types(self, queries: Queries) -> RowTypes:
        if self.plain and len(set(queries)) == 1 and queries[0].binary:
            return self._binary(queries[0], len(queries))
        return RowTypes.of(
            [lambda part, q=q: self.coefficients(q, part) for q in queries], queries[0].shape[0]
        )

    def summed_types(self, queries: Queries) -> RowTypes:
        """The rows of several queries of an attribute that no block crosses, by what they make of the mean."""
        key = ("summed", queries)
        if key not in self._types:
            means = np.stack([self.through_mean(q) for q in queries], axis=1)  # m, L
            kinds, inverse = np.unique(means, axis=0, return_inverse=True)
            values = np.stack([kinds, np.zeros_like(kinds)], axis=2)[:, None]
            self._types[key] = RowTypes(values, np.ones((len(kinds), 1)), inverse.reshape(-1))
        return self._types[key]

    def _binary(self, query: LinearOperator, times: int) -> RowTypes:
        """0/1 rows over plain cells differ in how many cells they count only."""
        counted, inverse = np.unique(self.through_mean(query), return_inverse=True)
        share = counted / self.cells
        # classes: cells that are not counted, and cells that are
        mean = np.stack([share, share], axis=1)
        beside = np.stack([-share, 1 - share], axis=1)
        values = np.repeat(np.stack([mean, beside], axis=2)[:, :, None], times, axis=2)
        return RowTypes(values, np.stack([self.cells - counted, counted], axis=1), inverse.reshape(-1))


@dataclass(frozen=True)
class RowTypes:
    """Rows alike up to the order of their coefficients.

    ``values`` (types, classes, L, 2): for each of L queries the coefficient in the mean part and beside it;
    ``times`` (types, classes): how many answers have them; ``inverse`` (m,): the type of each row.
    """

    values: np.ndarray
    times: np.ndarray
    inverse: np.ndarray

    @cached_property
    def first(self) -> np.ndarray:
        """The first row of each type."""
        return np.unique(self.inverse, return_index=True)[1]

    @classmethod
    def of(cls, coefficients: Sequence, rows: int) -> RowTypes:
        """By listing them: ``coefficients`` are functions from a slice of rows to (2, rows, r), one a query."""
        seen: dict[bytes, int] = {}
        kept: list[tuple[np.ndarray, np.ndarray]] = []
        inverse = np.empty(rows, dtype=np.int64)
        step = 256
        for start in range(0, rows, step):
            part = slice(start, min(rows, start + step))
            entries = np.stack([np.moveaxis(of(part), 0, 2) for of in coefficients], axis=2)  # rows, r, L, 2
            for row, entry in enumerate(entries, start):
                flat = entry.reshape(entry.shape[0], -1) + 0.0
                values, times = np.unique(flat, axis=0, return_counts=True)
                key = values.tobytes() + times.tobytes()
                if key not in seen:
                    seen[key] = len(kept)
                    kept.append((values.reshape(-1, *entry.shape[1:]), times))
                inverse[row] = seen[key]
        classes = max(len(times) for _, times in kept)
        values = np.zeros((len(kept), classes, len(coefficients), 2))
        counts = np.zeros((len(kept), classes))
        for t, (value, times) in enumerate(kept):
            values[t, : len(times)], counts[t, : len(times)] = value, times
        return cls(values, counts, inverse)
