"""The eigen-design of a few queries over many cells, at the cost of their number.

The eigenvectors of ``W'W`` with an eigenvalue above zero are ``q_i = sigma_i^-1/2 u_i' W`` for those u_i of ``W W'``,
m x m for m queries: combinations of W's own rows. What is measured is ``T W`` with T the integers near
``diag(lambda_i sigma_i^-1/2) U'``, which rounding keeps in the row space of W, and least squares works over its rows,
never over cells. Columns are not completed: a query for each cell would end what the few rows save.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg

from ...domain import Workload
from ...errors import InvalidArgument, Unsupported
from ...linalg import (
    Dense,
    Partition,
    Product,
)
from ...linalg.merge import joint_classes, representatives
from ..explicit_strategy import lifted
from ..strategy import Block, Strategy
from .query_weighting import query_weighting

if TYPE_CHECKING:
    from ..settings import Settings

MOST_QUERIES = 2048
"""Most queries whose combinations are measured."""

MOST_ENTRIES = 2**28
"""Most entries of W, distinct columns only: 2 GiB."""

_NOTHING = 1e-13  # share of the largest eigenvalue, times m, below which an eigenvalue is rounding
_BITS = 24  # of the largest row of T W


def eigen_queries_of_rows(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The eigenvectors of ``W'W`` as combinations of W's rows, from ``W W'``: queries (r, n), values (r,), C (r, m).

    ``queries = C @ rows`` has orthonormal rows, the largest eigenvalue first; r is the rank of W, m x n.

    Raises :class:`~tabulae.errors.InvalidArgument` for rows that are missing, not finite or all zero.

    Reference: Li and Miklau, "An Adaptive Mechanism for Accurate Query Answering under Differential Privacy",
    Definition 6; low rank in section 4.

    >>> queries, values, _ = eigen_queries_of_rows(np.array([[1.0, 1, 0, 0], [0, 0, 1, 1], [1, 1, 1, 1]]))
    >>> values.round(9).tolist(), np.abs(queries).round(6).tolist()
    ([6.0, 2.0], [[0.5, 0.5, 0.5, 0.5], [0.5, 0.5, 0.5, 0.5]])
    """
    W = np.asarray(rows, dtype=float)
    if W.ndim != 2 or not np.isfinite(W).all():
        raise InvalidArgument("rows must be a matrix of finite numbers, one row a query")
    values, vectors = scipy.linalg.eigh(W @ W.T, check_finite=False)
    if not values[-1] > 0:
        raise InvalidArgument(
            "all rows are zero: the workload counts no cell. Leave out tables of weight zero"
        )
    kept = np.flatnonzero(values > values[-1] * _NOTHING * max(10, values.size))[::-1]
    combine = vectors[:, kept].T / np.sqrt(values[kept])[:, None]
    return combine @ W, values[kept], combine


def low_rank_design(workload: Workload, settings: Settings) -> Strategy | None:
    """The eigen-design of few queries of one attribute of many cells; None where there are as many queries as cells.

    Arguments:
        workload: tables of one attribute, of at most 2,048 queries in all.
        settings: noise and deadline are used.

    Raises :class:`~tabulae.errors.Unsupported` for queries over too many different cells, or that are not integers.

    Reference: Li and Miklau, as :func:`eigen_queries_of_rows`, Program 1.

    >>> import tabulae as tb
    >>> from tabulae.linalg import Partition
    >>> from tabulae.strategy.settings import Settings
    >>> workload = tb.Workload.of(Partition(np.arange(10_000) % 7))
    >>> low_rank_design(workload, Settings("gaussian")).rows
    7
    """
    if len(workload.domain.shape) > 1 or any(len(t.terms) > 1 for t in workload.tables):
        return None
    if workload.queries > min(MOST_QUERIES, workload.domain.size):
        return None
    operators = [table.terms[0].over(workload.domain)[0] for table in workload.tables]
    if not all(operator.integer for operator in operators):
        raise Unsupported(
            'tables of real-valued combinations are not measured as they stand; choose method "kron" or "hdmm"'
        )
    merge = Partition(joint_classes([operator.column_classes() for operator in operators]))
    if workload.queries * merge.shape[0] > MOST_ENTRIES:
        raise Unsupported(
            f"{workload.queries:,} queries that tell {merge.shape[0]:,} cells apart: eigen keeps their matrix, of at "
            f'most {MOST_ENTRIES:,} entries. Ask for fewer queries, or choose "hb" or "wavelet"'
        )
    distinct = np.vstack([operator.columns(representatives(merge.classes)) for operator in operators])
    each = [float(t.weight) * t.terms[0].coefficient for t in workload.tables]
    weights = np.repeat(each, [operator.shape[0] for operator in operators])
    queries, values, combine = eigen_queries_of_rows(weights[:, None] * distinct)
    found = query_weighting(queries, values, p=settings.norm, time_limit=settings.remaining())
    real = found.weights[:, None] * combine * weights
    mix = np.rint(np.ldexp(real, _BITS)).astype(np.int64)
    query = Product(Dense(mix), lifted(Dense(distinct), merge))
    return Strategy(workload.domain, (Block("eigen", query, _BITS),), settings.noise, "eigen")
