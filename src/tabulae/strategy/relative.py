"""Optimising for relative error: every query on the same scale before a strategy is chosen.

Multiplying a query by a number changes its share of the total squared error, not its relative error. A strategy that
is best in total therefore serves the queries of many cells, whose answers tend to be large, at the expense of those of
few. How large the answers are is not for a strategy to know; taking all cells as equally likely, the paper divides each
query by its L2 norm. Only what methods are told changes: published answers are those of the original workload.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from ..domain import (
    Domain,
    Table,
    Term,
    Workload,
)
from ..errors import Unsupported
from ..linalg import LinearOperator
from ..linalg.normalised import (
    RowScaled,
    common_value,
    normalised,
    row_norms,
)

_READ = 2**26  # entries of two matrices whose rows are multiplied
_PRODUCT = 1e-12  # relative difference at which norms are a product of norms


def relative_workload(workload: Workload) -> Workload:
    """The same tables with each query divided by its L2 norm, for a strategy of low relative error.

    Table t with matrix ``kron_i A_ti`` gets ``kron_i diag(norms of A_ti's rows)^-1 A_ti``. A norm that all rows of a
    factor have in common, such as that of a total, goes into the table's weight (a Fraction within 1e-15 of the
    inverse), so that a marginal stays a marginal. Weights that were given go on counting; queries that count no cell
    stay zero.

    Raises :class:`~tabulae.errors.Unsupported` for a table that is a sum of products whose norms are no product over
    the attributes, and for matrices without structure that are too large to read through.

    Reference: Li and Miklau, "An Adaptive Mechanism for Accurate Query Answering under Differential Privacy",
    section 3.4, "Optimizing for Relative Error".

    >>> import tabulae as tb
    >>> scaled = relative_workload(tb.Workload.of(tb.AllRange(3)))
    >>> scaled.tables[0].operator(scaled.domain).gram().dense().diagonal().round(4).tolist()
    [1.8333, 2.3333, 1.8333]
    """
    return Workload(workload.domain, [_scaled(table, workload.domain) for table in workload.tables])


def _scaled(table: Table, domain: Domain) -> Table:
    term, *others = table.terms
    if others:
        return _scaled_sum(table, domain)
    shared, factors = 1.0, {}  # the coefficient is left out, but for its sign: it scales all rows alike
    for name, factor in term.factors.items():
        common = common_value(row_norms(factor))
        factors[name] = factor if common else normalised(factor)
        shared *= common or 1.0
    sign = 1 if term.coefficient > 0 else -1
    shared *= _summed_over([name for name in domain.names if name not in factors], domain)
    return Table.of_terms(table.name, [Term(sign, factors)], _weight(table, shared), table.labels)


def _scaled_sum(table: Table, domain: Domain) -> Table:
    """A sum of products: the queries' norms are read off the products of its terms' rows, taken in pairs."""
    names = [name for name in domain.names if name in table.attributes]
    products = [term.over(domain) for term in table.terms]
    axes = [domain.axis(name) for name in names]
    squares = np.zeros(tuple(table.row_counts(domain).values()))
    for left, a in zip(table.terms, products, strict=True):
        for right, b in zip(table.terms, products, strict=True):
            part = np.array(float(left.coefficient * right.coefficient))
            for i in axes:
                part = np.multiply.outer(part, _row_products(a[i], b[i], table.name))
            squares += part
    parts = _as_product(np.sqrt(np.maximum(squares, 0.0)))
    if parts is None:
        raise Unsupported(
            f"table {table.name!r} is a sum of products whose queries have norms that are no product over its "
            "attributes, so it cannot be scaled as one table: give rows that ask for different numbers of cells as "
            "tables of their own"
        )
    shared, uneven = _summed_over([n for n in domain.names if n not in names], domain), {}
    for name, norms in zip(names, parts, strict=True):
        common = common_value(norms)
        if common is None:
            uneven[name] = 1.0 / norms
        shared *= common or 1.0
    terms = [
        Term(term.coefficient, {name: _rows(factors[domain.axis(name)], uneven.get(name)) for name in names})
        for term, factors in zip(table.terms, products, strict=True)
    ]
    return Table.of_terms(table.name, terms, _weight(table, shared), table.labels)


def _rows(factor: LinearOperator, scale: np.ndarray | None) -> LinearOperator:
    return factor if scale is None else RowScaled(factor, scale)


def _summed_over(names: Sequence[str], domain: Domain) -> float:
    """The norm that the totals over some attributes contribute."""
    return float(np.prod([np.sqrt(domain[name].size) for name in names]))


def _weight(table: Table, norm: float) -> Fraction:
    return table.weight * Fraction(repr(1.0 / norm))


def _row_products(a: LinearOperator, b: LinearOperator, name: str) -> np.ndarray:
    """``sum_j a_rj b_rj`` for every row r, (m,)."""
    if a == b:
        return row_norms(a) ** 2
    if a.shape[0] * a.shape[1] > _READ:
        raise Unsupported(
            f"table {name!r} is a sum of products with factors of {a.shape[0]:,} x {a.shape[1]:,} entries, too large "
            "to read through for the norms of its queries: give its parts as tables of their own"
        )
    return np.einsum("rj,rj->r", a.dense().astype(np.float64), b.dense().astype(np.float64))


def _as_product(norms: np.ndarray) -> list[np.ndarray] | None:
    """Vectors whose outer product is ``norms``, positive; None where there are none."""
    largest = norms.max(initial=0.0)
    if not (norms > _PRODUCT * largest).all():
        return None
    if norms.ndim == 0:
        return []
    corner = np.unravel_index(np.argmax(norms), norms.shape)
    parts = [norms[(*corner[:k], slice(None), *corner[k + 1 :])] / largest for k in range(norms.ndim)]
    product = largest
    for part in parts:
        product = np.multiply.outer(product, part)
    if np.abs(product - norms).max() > _PRODUCT * largest:
        return None
    return [largest * parts[0], *parts[1:]]
