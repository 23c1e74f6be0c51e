"""Least squares by one eigendecomposition: over merged cells, or over independent query rows.

Both routes write the coefficients of the noise as ``Z_b = L G K_b``: ``L`` lifts a table into r reduced
coordinates, ``G`` is an r x r pseudo-inverse and ``K_b`` carries block b's answers into the coordinates.

* cells: ``A_b = B_b M`` with M merging cells that no block tells apart; ``G = (sum_b B_b'B_b / v_b)^+``,
  ``K_b = B_b'/v_b`` and ``W = L M``.
* rows: each factor ``A_i = U_i R_i`` with U_i orthonormal and R_i of full row rank at most n_i; with
  ``R`` the stack of ``(x)_i R_i / sqrt(v_b)``, ``G = (R R')^+``, ``K_b = (x)_i U_i' / sqrt(v_b)``, ``L = W R'``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from ..linalg import Dense, Kron, LinearOperator, Partition, Product, Scaled, Sum, merge_columns
from .information import Profile, coefficient_statistics, kron_vectors, merge_statistics, refuse_not_estimable
from .reduced_rows import Terms, lifted_rows, outer, reduce_rows, row_count, spectrum
from .strategy import Block, Strategy, products

_CHUNK = 2**24  # entries held at once while rows of L are multiplied by groups of columns


def merges(strategy: Strategy) -> tuple[Partition, ...]:
    """Per attribute, the coarsest partition on whose classes every block's queries are constant."""
    every = [factors for block in strategy.blocks for _, factors in block.terms]
    return tuple(merge_columns(list(column)) for column in zip(*every, strict=True))


def merged_cells(strategy: Strategy) -> int:
    """How many cells the strategy tells apart, attribute by attribute."""
    return math.prod(p.shape[0] for p in merges(strategy))


def reduced_count(strategy: Strategy) -> int:
    """How many rows its blocks have once tall factors are reduced to their rank."""
    return sum(row_count(block.terms) for block in strategy.blocks)


class _Lifted(Protocol):
    """A table over the reduced coordinates: all that is asked of it is a product."""

    def __matmul__(self, block: np.ndarray) -> np.ndarray: ...


class _Explicit(Protocol):
    """What both routes share; a route fills the fields and says how a table is lifted."""

    _pseudo: np.ndarray  # G, r x r
    _root: np.ndarray  # covariance of the coordinates' estimate is root root'
    _carry: list[LinearOperator]  # K_b', m_b x r_b, answers of block b in counts
    _place: list[slice]  # where K_b lands among the coordinates

    def _lift(self, operator: LinearOperator) -> _Lifted: ...

    def answer(self, operator: LinearOperator, answers: Sequence[np.ndarray]) -> np.ndarray:
        coordinates = np.zeros(self._pseudo.shape[0])
        for carry, place, y in zip(self._carry, self._place, answers, strict=True):
            coordinates[place] += carry.T @ np.asarray(y, dtype=float)
        return self._lift(operator) @ (self._pseudo @ coordinates)

    def variance(self, operator: LinearOperator) -> np.ndarray:
        lifted = self._lift(operator)
        total = np.zeros(operator.shape[0])
        for columns in self._groups(self._root.shape[1], operator.shape[0]):
            total += np.square(lifted @ self._root[:, columns]).sum(axis=1)
        return total

    def profile(self, operator: LinearOperator) -> Profile:
        lifted = self._lift(operator)
        stats = np.zeros((5, len(self._carry), operator.shape[0]))
        for b, (carry, place) in enumerate(zip(self._carry, self._place, strict=True)):
            for columns in self._groups(carry.shape[0], operator.shape[0]):
                unit = np.zeros((carry.shape[0], columns.stop - columns.start))
                unit[np.arange(columns.start, columns.stop), np.arange(unit.shape[1])] = 1.0
                z = lifted @ (self._pseudo[:, place] @ (carry.T @ unit))
                merge_statistics(stats[:, b], coefficient_statistics(z))
        return Profile(*stats)

    @staticmethod
    def _groups(columns: int, rows: int) -> list[slice]:
        width = max(1, _CHUNK // max(1, rows))
        return [slice(s, min(columns, s + width)) for s in range(0, columns, width)]


class DenseInformation(_Explicit):
    """P over merged cells, decomposed as one matrix."""

    route = "dense"

    def __init__(self, strategy: Strategy, variances: Sequence[float]) -> None:
        self._merges = merges(strategy)
        self._chosen = [_representatives(p) for p in self._merges]
        cells = math.prod(p.shape[0] for p in self._merges)
        p = np.zeros((cells, cells))
        self._carry = []
        for block, variance in zip(strategy.blocks, variances, strict=True):
            matrix = self._merged(block) * 2.0**-block.exponent
            p += matrix.T @ matrix / variance
            self._carry.append(Dense(matrix / variance))
        self._place = [slice(0, cells)] * len(strategy.blocks)
        values, vectors, self._kernel = spectrum(p)
        self._root = vectors / np.sqrt(values)
        self._pseudo = self._root @ self._root.T

    def _merged(self, block: Block) -> np.ndarray:
        """The block's integer matrix over the merged cells."""
        whole = 0.0
        for coefficient, factors in block.terms:
            product = np.ones((1, 1))
            for factor, chosen in zip(factors, self._chosen, strict=True):
                product = np.kron(product, factor @ chosen.T.dense())
            whole = whole + coefficient * product
        if isinstance(block.query, Product):
            return np.asarray(block.query.left @ whole, dtype=float)
        return np.asarray(whole, dtype=float)

    def _lift(self, operator: LinearOperator) -> LinearOperator:
        terms: list[tuple[int, LinearOperator]] = []
        for c, queries in products(operator):
            if not all(_constant(q, m) for q, m in zip(queries, self._merges, strict=True)):
                raise refuse_not_estimable()
            terms.append((c, Kron([_selected(q, e) for q, e in zip(queries, self._chosen, strict=True)])))
        lifted = terms[0][1] if len(terms) == 1 and terms[0][0] == 1 else Sum(terms)
        if self._kernel.size:
            rest = lifted @ self._kernel
            if np.abs(rest).max(initial=0.0) > 1e-7 * lifted.abs_row_sum_max():
                raise refuse_not_estimable()
        return lifted


class RowsInformation(_Explicit):
    """A A' over independent rows, decomposed as one matrix; the cells are never listed."""

    route = "rows"

    def __init__(self, strategy: Strategy, variances: Sequence[float]) -> None:
        self._rows = []
        self._carry = []
        self._place = []
        start = 0
        for block, variance in zip(strategy.blocks, variances, strict=True):
            scale = 1 / math.sqrt(variance)
            group = reduce_rows(block.terms, scale * 2.0**-block.exponent)
            self._rows.append(group)
            self._carry.append(Scaled(group.carry, scale))
            self._place.append(slice(start, start := start + group.count))
        values, vectors, _ = spectrum(outer(self._rows))
        self._pseudo = (vectors / values) @ vectors.T
        self._root = self._pseudo

    def _lift(self, operator: LinearOperator) -> _Lifted:
        terms = products(operator)
        lifted = _Beside([Sum(lifted_rows(g, terms)) for g in self._rows], [g.weight for g in self._rows])
        projected = np.zeros(operator.shape[0])
        for columns in self._groups(self._pseudo.shape[1], operator.shape[0]):
            # diag(L G L') equals the squared norm of each row exactly where rowspace(W) is measured
            unit = np.eye(self._pseudo.shape[0])[:, columns]
            projected += ((lifted @ unit) * (lifted @ self._pseudo[:, columns])).sum(axis=1)
        norms = row_norms2(terms, operator.shape[0])
        if np.any(np.abs(projected - norms) > 1e-6 * np.maximum(norms, 1.0)):
            raise refuse_not_estimable()
        return lifted


class _Beside:
    """[c_1 L_1, c_2 L_2, ...]: a table's product with every block's rows, side by side."""

    def __init__(self, operators: list[LinearOperator], weights: list[float]) -> None:
        self._operators, self._weights = operators, weights
        self._splits = np.cumsum([op.shape[1] for op in operators])[:-1]

    def __matmul__(self, block: np.ndarray) -> np.ndarray:
        parts = np.split(block, self._splits, axis=0)
        return sum(w * (op @ x) for op, w, x in zip(self._operators, self._weights, parts, strict=True))  # type: ignore[return-value]


def row_norms2(terms: Terms, rows: int) -> np.ndarray:
    """Squared L2 norm of each row of a sum of Kronecker products."""
    total = np.zeros(rows)
    for c, left in terms:
        for d, right in terms:
            total += c * d * kron_vectors([row_dots(p, q) for p, q in zip(left, right, strict=True)])
    return total


def row_dots(left: LinearOperator, right: LinearOperator) -> np.ndarray:
    """Row-wise inner products of two matrices of one shape, (m,)."""
    if left == right:
        return np.asarray(left.T.column_norms(2), dtype=float)
    width = max(1, _CHUNK // left.shape[0])
    out = np.zeros(left.shape[0])
    for start in range(0, left.shape[1], width):
        unit = np.eye(left.shape[1])[:, start : start + width]
        out += ((left @ unit) * (right @ unit)).sum(axis=1)
    return out


def _representatives(partition: Partition) -> LinearOperator:
    """classes x n: one cell of each class."""
    _, first = np.unique(partition.classes, return_index=True)
    chosen = np.full(partition.shape[1], -1, dtype=np.int64)
    chosen[first] = partition.classes[first]
    return Partition(chosen, partition.shape[0])


def _constant(query: LinearOperator, partition: Partition) -> bool:
    """Whether query's columns agree within each class of the partition."""
    classes = query.column_classes()
    _, first = np.unique(partition.classes, return_index=True)
    return bool(np.array_equal(classes[first][partition.classes], classes))


def _selected(query: LinearOperator, chosen: LinearOperator) -> LinearOperator:
    """query restricted to one column per class."""
    if chosen.shape[0] == chosen.shape[1]:
        return query
    if query.shape[0] * chosen.shape[0] <= _CHUNK:
        return Dense(query @ chosen.T.dense())
    return Product(query, chosen.T)
