"""Least squares from a Kronecker product whose rows are weighed one by one: the ``weighted-kron`` route.

The block is ``A = D R`` over merged cells with ``R = (x)_i R_i``, where R_i is square and invertible, or the total of n
cells above what each has beyond the mean, ``[1'; n I - J]``, with one weight for the n rows below. The projector
``R R^+`` commutes with D either way, so that ``A^+ = R^+ D^-1`` and a query ``q = (x)_i q_i`` has the coefficients

    z_r = prod_i (q_i R_i^+)_r_i / w_r,

whose powers sum up as Kronecker products with ``w^-2``, ``w^-4`` and so on. Rows of weight 0 are not measured:
a query that needs one of them is not determined.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from ...domain import Workload
from ...errors import Unsupported
from ...linalg import (
    Dense,
    Identity,
    Kron,
    LinearOperator,
    Total,
    WeightedRows,
    representatives,
    total_and_rest,
    unlifted,
    weighted_rows,
)
from ..block import kron_sum, products
from .protocol import (
    MeasuredStrategy,
    Profile,
    check_constant,
    coefficient_statistics,
    pairs,
    profile_of,
    refuse_not_estimable,
    scaled,
    sum_bounds,
)

WIDEST = 8192
"""Most merged cells of one attribute: what is inverted is a dense matrix."""

_RECIPROCAL = 1e-13  # condition below which a square factor counts as singular
_MISSING = 1e-18  # share of a query's squared coefficients that may lie on rows without a weight, by rounding
_NOTHING = 1e-12  # share of the largest coefficient below which one counts as zero
_EXPAND = 2**24  # coefficients that a sum of products may have to be written out


class AxisRows:
    """One attribute's rows R_i over merged cells, their inverse, and the classes of rows that share a weight.

    ``labels`` (m_i,) numbers the classes: every row by itself, or the total and all the rest of ``[1'; n I - J]``.
    """

    def __init__(self, factor: LinearOperator) -> None:
        self.rows, merge = unlifted(factor)
        if isinstance(self.rows, Total):
            self.cells = np.zeros(self.rows.shape[1], dtype=np.int64)
            self.rows = Identity(1)
        else:
            n = self.rows.shape[1]
            self.cells = np.arange(n) if merge is None else merge.classes
        self.first = representatives(self.cells)
        self.n = total_and_rest(self.rows)
        m = self.rows.shape[0]
        self.labels = np.arange(m) if self.n is None else np.minimum(np.arange(m), 1)

    @property
    def classes(self) -> int:
        """How many classes of rows there are."""
        return int(self.labels[-1]) + 1

    @property
    def invertible(self) -> bool:
        """Whether the rows are of a form that this route knows how to invert."""
        if self.n is not None or isinstance(self.rows, Identity):
            return True
        m, n = self.rows.shape
        return m == n <= WIDEST and self._reciprocal > _RECIPROCAL

    @cached_property
    def _dense(self) -> np.ndarray:
        return np.asarray(self.rows.dense(), dtype=float)

    @cached_property
    def _reciprocal(self) -> float:
        condition = float(np.linalg.cond(self._dense, 1))
        return 1 / condition if np.isfinite(condition) else 0.0

    @cached_property
    def inverse(self) -> np.ndarray:
        """R_i^+ of a square factor, (n, n)."""
        return np.linalg.inv(self._dense)

    def coefficients(self, query: np.ndarray) -> np.ndarray:
        """``q R_i^+`` for queries over merged cells, (k, n) -> (k, m_i)."""
        if self.n is not None:
            total = query.sum(axis=1, keepdims=True)
            return np.hstack([total / self.n, (query - total / self.n) / self.n])
        if isinstance(self.rows, Identity):
            return query
        z = query @ self.inverse
        constant = np.ptp(query, axis=1) == 0
        if constant.any() and not np.ptp(self._dense[0]):  # exactly, so that no rounding asks for other rows
            z[constant] = 0.0
            z[constant, 0] = query[constant, 0] / self._dense[0, 0]
        return z

    def over_cells(self, query: LinearOperator) -> np.ndarray:
        """A query (k, n_i) with one column for each merged cell; NotEstimable where merged cells differ in it."""
        check_constant(query, self.cells)
        return np.asarray(query.columns(self.first), dtype=float)

    def grouped(self, z: np.ndarray) -> np.ndarray:
        """Sums over the classes of rows: (k, m_i) -> (k, classes)."""
        return z if self.n is None else np.stack([z[:, 0], z[:, 1:].sum(axis=1)], axis=1)

    def costs(self, gram: np.ndarray) -> np.ndarray:
        """What unit noise on each row brings to a workload of Gram matrix V over merged cells, by class of rows.

        ``(R_i^+' V R_i^+)_rr``, exactly 0 beside a first row that counts all cells alike where V does the same.
        """
        if not np.ptp(gram):
            z = self.coefficients(np.ones((1, len(gram))))
            return gram[0, 0] * self.grouped(z * z)[0]
        if self.n is not None:
            mean = float(gram.sum()) / self.n**2
            return np.array([mean, (float(np.trace(gram)) / self.n - mean) / self.n])
        if isinstance(self.rows, Identity):
            return np.diag(gram).astype(float)
        return np.einsum("ij,ij->j", self.inverse, gram @ self.inverse)


def weighted_kron(query: LinearOperator) -> tuple[WeightedRows, tuple[AxisRows, ...]] | None:
    """The weights and attributes of a block that this route serves; None for any other."""
    view = weighted_rows(query)
    if view is None:
        return None
    axes = tuple(AxisRows(factor) for factor in view.factors)
    alike = all(axis.n is None or view.treats_alike(i) for i, axis in enumerate(axes))
    return (view, axes) if alike and all(axis.invertible for axis in axes) else None


def by_class(axes: Sequence[AxisRows], weights: np.ndarray) -> np.ndarray:
    """The weights with one entry for each class of rows, (c_1, ..., c_d)."""
    for i, axis in enumerate(axes):
        weights = np.take(weights, representatives(axis.labels), axis=i)
    return weights


def by_row(axes: Sequence[AxisRows], weights: np.ndarray) -> np.ndarray:
    """The weights with one entry for each row, (m_1, ..., m_d)."""
    for i, axis in enumerate(axes):
        weights = np.take(weights, axis.labels, axis=i)
    return weights


def kron_costs(axes: Sequence[AxisRows], terms: Sequence[tuple[float, Sequence[np.ndarray]]]) -> np.ndarray:
    """What unit noise on each row brings to ``W'W = sum_l c_l (x)_i V_li`` (over merged cells), by class of rows.

    ``sum_l c_l (x)_i costs_i(V_li)``, (c_1, ..., c_d).
    """
    known: dict[tuple[int, int], np.ndarray] = {}
    total = np.zeros([axis.classes for axis in axes])
    for coefficient, grams in terms:
        product: np.ndarray = np.array(coefficient)
        for i, (axis, gram) in enumerate(zip(axes, grams, strict=True)):
            if (i, id(gram)) not in known:
                known[i, id(gram)] = axis.costs(gram)
            product = np.multiply.outer(product, known[i, id(gram)])
        total += product
    return total


_Terms = list[tuple[int, list[np.ndarray]]]


class WeightedKronInformation:
    """P of one block of weighted rows: its inverse is a Kronecker product beside a diagonal."""

    route = "weighted-kron"

    def __init__(self, strategy: MeasuredStrategy, variances: Sequence[float]) -> None:
        (block,), (variance,) = strategy.blocks, variances
        found = weighted_kron(block.query)
        assert found is not None
        view, self._axes = found
        self._weights = view.weights * 2.0**-block.exponent
        weights = by_class(self._axes, self._weights)
        self._asked = weights != 0
        self._inverse = np.divide(1.0, np.abs(weights), out=np.zeros(weights.shape), where=self._asked)
        self._variance = variance
        self._known: dict[LinearOperator, _Terms] = {}

    def answer(self, operator: LinearOperator, answers: Sequence[np.ndarray]) -> np.ndarray:
        kept = self._weights != 0
        rows = np.zeros(self._weights.shape)
        rows[kept] = np.asarray(answers[0], dtype=float) / self._weights[kept]
        out = np.zeros(operator.shape[0])
        for c, parts in self._terms(operator):
            out += c * (Kron([Dense(z) for z in parts]) @ rows.ravel())
        return out

    def variance(self, operator: LinearOperator) -> np.ndarray:
        return self._squares(self._terms(operator), self._inverse**2) * self._variance

    def total(self, workload: Workload) -> float:
        """Total weighted variance ``sum_r w_r^-2 sum_l c_l prod_i (R_i^+' V_li R_i^+)_rr``: nothing per query."""
        total = 0.0
        for table in workload.tables:
            if len(table.terms) > 1:  # a sum, in whose Gram matrix products of unlike factors leave rounding
                self._terms(table.operator(workload.domain))
            costs = kron_costs(self._axes, self._gram_terms(Workload(workload.domain, [table])))
            if len(table.terms) == 1 and costs[~self._asked].sum() > _MISSING * costs.sum():
                raise refuse_not_estimable()
            total += float((costs * self._inverse**2).sum())
        return max(total, 0.0) * self._variance

    def profile(self, operator: LinearOperator) -> Profile:
        terms = self._terms(operator)
        if len(terms) > 1 and operator.shape[0] * self._weights.size <= _EXPAND:
            z = kron_sum(terms) * by_row(self._axes, self._inverse).ravel()
            return profile_of(coefficient_statistics(z))
        stats = [scaled(self._statistics(parts), abs(c)) for c, parts in terms]
        if len(terms) == 1:
            return profile_of(stats[0])
        squares = self._squares(terms, self._inverse**2)
        return profile_of(sum_bounds(stats, squares, int(np.count_nonzero(self._weights))), exact=False)

    def _terms(self, operator: LinearOperator) -> _Terms:
        """The coefficients ``q_i R_i^+`` of each product, or NotEstimable."""
        if operator not in self._known:
            terms: _Terms = []
            for c, queries in products(operator):
                if len(queries) != len(self._axes):
                    raise Unsupported(
                        "a table that is one explicit matrix over several attributes is not answered from weighted "
                        'rows of a product: ask for a table of products, or choose "residual" or "kron"'
                    )
                both = zip(self._axes, queries, strict=True)
                terms.append((c, [axis.coefficients(axis.over_cells(q)) for axis, q in both]))
            if not self._asked.all():
                beside = self._squares(terms, (~self._asked).astype(float))
                if (beside > _MISSING * self._squares(terms, np.ones(self._asked.shape))).any():
                    raise refuse_not_estimable()
            self._known[operator] = terms
        return self._known[operator]

    def _squares(self, terms: _Terms, weights: np.ndarray) -> np.ndarray:
        """``sum_r weights_r (sum_t c_t z_tr)^2`` for each query."""
        total: np.ndarray | float = 0.0
        for times, (c, left), (d, right) in pairs(terms):
            both = zip(self._axes, left, right, strict=True)
            whole = Kron([Dense(axis.grouped(p * q)) for axis, p, q in both])
            total = total + times * c * d * (whole @ weights.ravel())
        return np.maximum(total, 0.0)  # terms that cancel leave rounding of either sign

    def _statistics(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        """:func:`coefficient_statistics` of one product's coefficients, (5, queries)."""
        sizes = [np.abs(z) for z in parts]
        out = []
        for power in (2, 4, 6):
            whole = Kron([Dense(a.grouped(z**power)) for a, z in zip(self._axes, sizes, strict=True)])
            out.append(whole @ (self._inverse**power).ravel())
        peaks = [_grouped_max(a, z) for a, z in zip(self._axes, sizes, strict=True)]
        out.append(largest_products(peaks, self._inverse))
        nonzero = [z > _NOTHING * z.max(axis=1, initial=0.0, keepdims=True) for z in sizes]
        counts = Kron([Dense(a.grouped(z.astype(float))) for a, z in zip(self._axes, nonzero, strict=True)])
        out.append(np.rint(counts @ self._asked.astype(float).ravel()))
        return np.stack(out)

    def _gram_terms(self, workload: Workload) -> list[tuple[float, list[np.ndarray]]]:
        """W'W over the strategy's merged cells; NotEstimable where the workload tells more cells apart."""
        shared: dict[tuple[int, LinearOperator], np.ndarray] = {}
        for table in workload.tables:
            for term in table.terms:
                for axis, factor in zip(self._axes, term.over(workload.domain), strict=True):
                    check_constant(factor, axis.cells)
        terms = []
        for c, grams in workload.gram_terms():
            for i, gram in enumerate(grams):
                if (i, gram) not in shared:
                    first = self._axes[i].first
                    shared[i, gram] = np.asarray(gram.columns(first), dtype=float)[first]
            terms.append((float(c), [shared[i, gram] for i, gram in enumerate(grams)]))
        return terms


def largest_products(factors: Sequence[np.ndarray], weights: np.ndarray) -> np.ndarray:
    """``max_r weights_r prod_i factors_i[q_i, r_i]`` for all q, of numbers that are not negative; (q_1 ... q_d,).

    A Kronecker product in which sums are replaced by maxima.

    >>> largest_products([np.array([[1.0, 2.0]]), np.array([[1.0, 0.0], [0.0, 3.0]])], np.ones((2, 2))).tolist()
    [2.0, 6.0]
    """
    whole = weights
    for i, factor in enumerate(factors):
        moved = np.moveaxis(whole, i, 0)
        out = np.zeros((len(factor), *moved.shape[1:]))
        for column, part in zip(factor.T, moved, strict=True):
            np.maximum(out, np.multiply.outer(column, part), out=out)
        whole = np.moveaxis(out, 0, i)
    return whole.ravel()


def _grouped_max(axis: AxisRows, z: np.ndarray) -> np.ndarray:
    """The largest coefficient of each class of rows, (k, classes)."""
    return z if axis.n is None else np.stack([z[:, 0], z[:, 1:].max(axis=1)], axis=1)
