"""Least squares through the pseudo-inverse of one Kronecker product: the ``kron`` route."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
import scipy.linalg

from ...domain import Workload
from ...errors import Unsupported
from ...linalg import AllRange, Dense, Identity, Kron, LinearOperator, MatrixProduct, Prefix, Sum, WidthRange
from ..block import kron_sum, products
from .protocol import (
    MeasuredStrategy,
    Profile,
    coefficient_statistics,
    kron_moments,
    kron_vectors,
    merge_statistics,
    pairs,
    profile_of,
    refuse_not_estimable,
    scaled,
    sum_bounds,
    summed_variance,
)


def range_variance(query: LinearOperator, covariance: np.ndarray) -> np.ndarray | None:
    """diag(W Q W') for range queries W over n cells with covariance Q (n, n); None for other matrices.

    With ``S[a, b] = sum_{i < a, j < b} Q_ij`` the range [i, j) has variance ``S[j, j] - S[i, j] - S[j, i] + S[i, i]``:
    O(n^2) for all n(n+1)/2 ranges together.

    >>> range_variance(AllRange(2), np.eye(2)).tolist()
    [1.0, 2.0, 1.0]
    """
    if not isinstance(query, (AllRange, Prefix, WidthRange)):
        return None
    n = query.shape[1]
    total = np.zeros((n + 1, n + 1))
    np.cumsum(np.cumsum(covariance, axis=0), axis=1, out=total[1:, 1:])
    if isinstance(query, AllRange):
        first, last = np.triu_indices(n)
        stop = last + 1
    elif isinstance(query, Prefix):
        first, stop = np.zeros(n, dtype=np.int64), np.arange(1, n + 1)
    else:
        first = np.arange(n - query.width + 1)
        stop = first + query.width
    diagonal = total.diagonal()
    return diagonal[stop] + diagonal[first] - total[first, stop] - total[stop, first]


_CHUNK = 2**24  # entries of W_i A_i^+ held at once while its rows are summed
_EXPAND = 2**24  # entries of Z that a sum of products may hold to have exact statistics
_RECIPROCAL = 1e-12  # condition below which columns count as dependent
_DENSE = 8192  # largest attribute whose pseudo-inverse is formed


class _Factor:
    """One attribute's measured matrix A_i and its pseudo-inverse."""

    def __init__(self, operator: LinearOperator) -> None:
        self.operator = operator
        self.identity = isinstance(operator, Identity)
        if not self.identity and max(operator.shape) > 4 * _DENSE:
            raise Unsupported(
                f"no pseudo-inverse is formed for a measured matrix of shape {operator.shape}: give the attribute "
                "fewer categories (a recode), or write it as two attributes"
            )

    @cached_property
    def dense(self) -> np.ndarray:
        """A_i, m_i x n_i."""
        return np.asarray(self.operator.dense(), dtype=float)

    @cached_property
    def _triangle(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Q and R of A_i = Q R where its columns are safely independent."""
        rows, columns = self.operator.shape
        if rows < columns:
            return None
        triangular = rows == columns and not np.tril(self.dense, -1).any()
        q, r = (np.eye(rows), self.dense) if triangular else np.linalg.qr(self.dense)
        (trcon,) = scipy.linalg.get_lapack_funcs(("trcon",), (r,))
        reciprocal, _ = trcon(r)
        return (q, r) if reciprocal > _RECIPROCAL else None

    @cached_property
    def pinv(self) -> np.ndarray:
        """A_i^+, n_i x m_i."""
        if self._triangle is None:
            return np.linalg.pinv(
                self.dense, max(self.dense.shape) * 2.0**-52
            )  # what counts as zero grows with the matrix
        q, r = self._triangle
        return scipy.linalg.solve_triangular(r, q.T, check_finite=False)

    @cached_property
    def full_rank(self) -> bool:
        """Whether A_i has full column rank, so that it determines every query."""
        return self.identity or self._triangle is not None

    def estimable(self, query: LinearOperator) -> bool:
        """Whether query = query A^+ A, that is rowspace(query) in rowspace(A)."""
        if self.full_rank:
            return True
        if query.shape[0] < self.operator.shape[1]:  # few queries over many cells: nothing of cells squared
            rest = query.dense() - (query @ self.pinv) @ self.dense
        else:
            rest = query @ (np.eye(self.operator.shape[1]) - self.pinv @ self.dense)
        return bool(np.abs(rest).max(initial=0.0) <= 1e-8 * query.abs_row_sum_max())

    def composed(self, query: LinearOperator) -> LinearOperator:
        """query A_i^+ as an operator, smallest form."""
        if self.identity:
            return query
        if query.shape[0] * self.pinv.shape[1] <= _CHUNK:
            return Dense(query @ self.pinv)
        return MatrixProduct(query, Dense(self.pinv))

    @cached_property
    def inverse_gram(self) -> np.ndarray:
        """(A_i'A_i)^+, n_i x n_i."""
        return self.pinv @ self.pinv.T

    def trace(self, gram: LinearOperator) -> float:
        """tr((A_i'A_i)^+ V)."""
        if self.identity and isinstance(gram, Identity):
            return float(gram.shape[0])
        dense = np.asarray(gram.dense(), dtype=float)
        return float(np.trace(dense)) if self.identity else float(np.vdot(self.inverse_gram, dense))

    def columns(self, query: LinearOperator):
        """query A_i^+ by groups of columns."""
        width = max(1, _CHUNK // max(1, query.shape[0]))
        for start in range(0, self.operator.shape[0], width):
            if self.identity:
                n = self.operator.shape[0]
                unit = np.zeros((n, min(width, n - start)))
                unit[np.arange(start, start + unit.shape[1]), np.arange(unit.shape[1])] = 1.0
                yield query @ unit
            else:
                yield query @ self.pinv[:, start : start + width]


class KronInformation:
    """P = (x)_i A_i'A_i / v: everything factors over the attributes.

    Var(W x^) = v (x)_i diag(W_i (A_i'A_i)^+ W_i'), and sums of products add their cross terms.
    """

    route = "kron"

    def __init__(self, strategy: MeasuredStrategy, variances: Sequence[float]) -> None:
        (block,), (variance,) = strategy.blocks, variances
        self._factors = tuple(_Factor(f) for f in block.terms[0][1])
        self._unit = 2.0**-block.exponent  # of one step of the block's grid, in counts
        self._variance = variance
        self._statistics: dict[tuple[int, LinearOperator], np.ndarray] = {}
        self._sums: dict[tuple[int, LinearOperator], np.ndarray] = {}

    def _terms(self, operator: LinearOperator) -> list[tuple[int, tuple[LinearOperator, ...]]]:
        terms = products(operator)
        for _, queries in terms:
            if not all(f.estimable(q) for f, q in zip(self._factors, queries, strict=True)):
                raise refuse_not_estimable()
        return terms

    def answer(self, operator: LinearOperator, answers: Sequence[np.ndarray]) -> np.ndarray:
        # The block's answers are in counts; A_i are the integer factors, so divide the grid out again.
        terms = self._inverted(operator)
        whole = terms[0][1] if len(terms) == 1 and terms[0][0] == 1 else Sum(terms)
        return (whole @ np.asarray(answers[0], dtype=float)) / self._unit

    def answer_values(self, operator: LinearOperator, values: np.ndarray) -> np.ndarray:
        """``W A^+ y`` from the block's integers on its grid, (rows,); of y there is no second copy."""
        terms = self._inverted(operator)
        if len(terms) == 1 and terms[0][0] == 1:
            return terms[0][1].as_floats(values)
        total = np.zeros(operator.shape[0])
        for c, product in terms:
            part = product.as_floats(values)
            part *= c
            total += part
        return total

    def _inverted(self, operator: LinearOperator) -> list[tuple[int, Kron]]:
        """``W A^+`` as products with their coefficients."""
        return [
            (c, Kron([f.composed(q) for f, q in zip(self._factors, queries, strict=True)]))
            for c, queries in self._terms(operator)
        ]

    def variance(self, operator: LinearOperator) -> np.ndarray:
        terms = self._terms(operator)
        total = np.zeros(operator.shape[0])
        for times, (c, left), (d, right) in pairs(terms):
            crosses = [self._cross(i, p, q) for i, (p, q) in enumerate(zip(left, right, strict=True))]
            total += times * c * d * kron_vectors(crosses)
        # terms that cancel leave rounding of either sign
        return np.maximum(total, 0.0) * (self._variance / self._unit**2)

    def _cross(self, axis: int, left: LinearOperator, right: LinearOperator) -> np.ndarray:
        """diag(P A_i^+ A_i^+' Q') for two queries of one attribute."""
        if left == right:
            return self._squares(axis, left)
        pairs = zip(self._factors[axis].columns(left), self._factors[axis].columns(right), strict=True)
        return sum((p * q).sum(axis=1) for p, q in pairs)  # type: ignore[return-value]

    def _squares(self, axis: int, query: LinearOperator) -> np.ndarray:
        """Sum of squares of each row of query A_i^+."""
        key = (axis, query)
        if key not in self._sums:
            factor = self._factors[axis]
            known = None if factor.identity else range_variance(query, factor.inverse_gram)
            self._sums[key] = self._stats(axis, query)[0] if known is None else known
        return self._sums[key]

    def _stats(self, axis: int, query: LinearOperator) -> np.ndarray:
        """:func:`coefficient_statistics` of query A_i^+, (5, rows)."""
        key = (axis, query)
        if key not in self._statistics:
            out = np.zeros((5, query.shape[0]))
            for z in self._factors[axis].columns(query):
                merge_statistics(out, coefficient_statistics(z))
            self._statistics[key] = out
        return self._statistics[key]

    def total(self, workload: Workload) -> float:
        """Total weighted variance ``tr(P^+ W'W) = v sum_l c_l prod_i tr((A_i'A_i)^+ V_li)``; nothing per query.

        Fewer queries than cells of one attribute are summed instead: their V would be much larger than they are.
        """
        if len(self._factors) == 1 and workload.queries < workload.domain.size:
            return summed_variance(self.variance, workload)
        for table in workload.tables:
            self._terms(table.operator(workload.domain))
        traces: dict[tuple[int, LinearOperator], float] = {}
        total = 0.0
        for coefficient, grams in workload.gram_terms():
            for i, (factor, gram) in enumerate(zip(self._factors, grams, strict=True)):
                if (i, gram) not in traces:
                    traces[i, gram] = factor.trace(gram)
            total += float(coefficient) * math.prod(traces[i, gram] for i, gram in enumerate(grams))
        return total * self._variance / self._unit**2

    def profile(self, operator: LinearOperator) -> Profile:
        terms = self._terms(operator)
        noise = int(np.prod([f.operator.shape[0] for f in self._factors], dtype=float))
        if len(terms) > 1 and operator.shape[0] * noise <= _EXPAND:
            factors = [[np.hstack(list(f.columns(q))) for f, q in self._sides(qs)] for _, qs in terms]
            z = kron_sum([(c, parts) for (c, _), parts in zip(terms, factors, strict=True)])
            return profile_of(scaled(coefficient_statistics(z), 1 / self._unit))
        stats = [
            scaled(kron_moments([self._stats(i, q) for i, q in enumerate(queries)]), abs(c) / self._unit)
            for c, queries in terms
        ]
        if len(terms) == 1:
            return profile_of(stats[0])
        squares = self.variance(operator) / self._variance
        return profile_of(sum_bounds(stats, squares, noise), exact=False)

    def _sides(self, queries: Sequence[LinearOperator]) -> Iterator[tuple[_Factor, LinearOperator]]:
        return zip(self._factors, queries, strict=True)
