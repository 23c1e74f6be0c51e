"""Variances of sums of several tables' answers whose coefficients differ from row to row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np

from ..domain import Table, table_difference

Variance = Callable[[Table], np.ndarray]


def covariances(variance_of: Variance, tables: Sequence[Table]) -> np.ndarray:
    """Covariances of the answers of K tables of m rows each, row by row, (K, K, m), in squared counts.

    By ``Cov(a, b) = (Var a + Var b - Var(a - b)) / 2``: what it takes is variances of tables, never one of all cells.

    >>> import tabulae as tb
    >>> from tabulae.linalg import Identity
    >>> strategy = tb.select(tb.Workload.of(tb.Identity(2)), method="identity")
    >>> found = tb.estimate(tb.measure(np.array([5, 9]), strategy, tb.ZCDP("1/2")))
    >>> cells, both = Table("cells", {"x": Identity(2)}), Table("both", {"x": tb.Dense([[1, 1], [1, 1]])})
    >>> covariances(found.variance_of, [cells, both])[:, :, 0].round(6).tolist()
    [[1.0, 1.0], [1.0, 2.0]]
    """
    variances = [variance_of(table) for table in tables]
    out = np.zeros((len(tables), len(tables), len(variances[0])))
    for i, variance in enumerate(variances):
        out[i, i] = variance
    for i, j in combinations(range(len(tables)), 2):
        rest = table_difference(tables[i], tables[j])
        apart = 0.0 if rest is None else variance_of(rest)
        out[i, j] = out[j, i] = (variances[i] + variances[j] - apart) / 2
    return out
