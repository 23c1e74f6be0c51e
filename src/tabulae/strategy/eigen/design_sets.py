"""Sets of design queries, by name or as given: one row a query, one column a cell that the tables tell apart.

Of several attributes a named set is the Kronecker product of the attributes' own. Wavelet and Fourier rows are bases,
whose costs are known at once; trees and the workload's own rows depend on each other (:mod:`.dependent_queries`).
"""

from __future__ import annotations

import math
from functools import reduce

import numpy as np

from ...domain import Workload
from ...errors import InvalidArgument, Unsupported
from ...linalg import LinearOperator
from ..classic.fourier import fourier_basis
from ..classic.hierarchical import level_counts, tree
from ..classic.wavelet import haar
from ..explicit_strategy import explicit_gram
from .dependent_queries import outside, row_space
from .eigen_design import eigen_queries
from .query_weighting import checked_design

_MOST = 4  # rows for each cell
_REPEATED = 4  # times as many, where the workload may repeat rows


def design_rows(
    design: str | np.ndarray | LinearOperator, workload: Workload, gram: np.ndarray
) -> np.ndarray:
    """The rows (k, n) of a design set for a workload of n cells, all told apart, with Gram matrix V (n, n).

    ``design`` is "eigen-queries" (eigenvectors of V), "wavelet" (Haar), "fourier" (real), "hierarchical" (every node of
    a binary tree), "workload" (the distinct rows of the tables), or a matrix. Sets other than the eigen-queries suit
    some workloads only.

    Raises:
        InvalidArgument: an unknown name; a matrix with missing numbers, a row of zeros or another number of columns
            than n; a set that does not span the workload.
        Unsupported: more than 4 n rows.

    Reference: Li and Miklau, "An Adaptive Mechanism for Accurate Query Answering under Differential Privacy",
    sections 3.2 and 5.3.

    >>> import tabulae as tb
    >>> ranges = tb.Workload.of(tb.AllRange(4))
    >>> design_rows("wavelet", ranges, tb.AllRange(4).gram().dense()).astype(int).tolist()
    [[1, 1, 1, 1], [1, 1, -1, -1], [1, -1, 0, 0], [0, 0, 1, -1]]
    """
    if isinstance(design, str):
        label, rows = f'the design set "{design}"', _named(design, workload, gram)
    else:
        label, rows = "the design set", _given(design, workload)
    check_span(rows, workload, gram, label)
    return rows


def check_span(rows: np.ndarray, workload: Workload, gram: np.ndarray, label: str) -> None:
    """Refuse design queries (k, n) that cannot answer the tables, naming one that they cannot."""
    basis = row_space(rows)
    if outside(gram, basis) is None:
        return
    missed = [t.name for t in workload.tables if _missed(Workload(workload.domain, [t]), basis)]
    table = f"table {missed[0]!r}" if missed else "the tables"
    raise InvalidArgument(
        f"{label} does not span the workload: its {len(rows):,} rows have rank {len(basis):,}, and {table} cannot be "
        'answered from them. Add the identity (one query a cell), or use "eigen-queries"'
    )


def _missed(workload: Workload, basis: np.ndarray) -> bool:
    return outside(explicit_gram(workload), basis) is not None


def _named(name: str, workload: Workload, gram: np.ndarray) -> np.ndarray:
    if name == "eigen-queries":
        return eigen_queries(gram)[0]
    if name == "workload":
        return _own_rows(workload)
    factors = [_factor(name, n) for n in workload.domain.shape]
    _check_count(f'the design set "{name}"', math.prod(len(f) for f in factors), workload.domain.size)
    return reduce(np.kron, factors)


def _factor(name: str, n: int) -> np.ndarray:
    """One attribute's rows."""
    if n == 1:
        return np.ones((1, 1))
    if name == "wavelet":
        return np.asarray(haar(n).dense(), dtype=float)
    if name == "fourier":
        return fourier_basis(n)
    if name == "hierarchical":
        return np.asarray(level_counts(tree(n, 2), n).dense(), dtype=float)
    raise InvalidArgument(
        f"unknown design set {name!r}: eigen-queries, wavelet, fourier, hierarchical, workload, or a matrix with one "
        "row a query"
    )


def _own_rows(workload: Workload) -> np.ndarray:
    """The distinct rows of all tables, in order, less those of zeros."""
    cells = workload.domain.size
    if workload.queries > _REPEATED * _MOST * cells:  # before any is written out
        _check_count('the design set "workload"', workload.queries, cells)
    rows = np.vstack([np.asarray(t.operator(workload.domain).dense(), float) for t in workload.tables])
    rows = rows[rows.any(axis=1)]
    _, first = np.unique(rows, axis=0, return_index=True)
    _check_count('the design set "workload"', len(first), cells)
    return rows[np.sort(first)]


def _given(design: np.ndarray | LinearOperator, workload: Workload) -> np.ndarray:
    """A matrix that the user gave, checked."""
    cells, shape = workload.domain.size, design.shape
    if len(shape) == 2 and shape[1] != cells:
        raise InvalidArgument(
            f"the design set has {shape[1]:,} columns, but the tables tell {cells:,} cells apart: give one column for "
            "each of those, in the domain's order"
        )
    _check_count("the design set", shape[0] if shape else 0, cells)
    rows = checked_design(design.dense() if isinstance(design, LinearOperator) else design)
    empty = np.flatnonzero(~rows.any(axis=1))
    if empty.size:
        raise InvalidArgument(f"design query {empty[0]} is zero in every cell: leave it out")
    return rows


def _check_count(label: str, rows: int, cells: int) -> None:
    if rows > _MOST * cells:
        raise Unsupported(
            f"{label} has {rows:,} rows over {cells:,} cells, and up to {_MOST} a cell are weighed: choose a basis, "
            'such as "eigen-queries" or "wavelet"'
        )
