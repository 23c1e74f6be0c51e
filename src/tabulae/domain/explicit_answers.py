"""Answers in whole numbers that add up as exact tables of any shape make them."""

from __future__ import annotations

import numpy as np
import scipy.sparse
from scipy.sparse.linalg import lsmr

from ..linalg import IntegerSystem, QueryRelations, SparseRows, integer_matvec, narrow, whole_answers

_ITERATIONS = 2000


def settled_answers(
    relations: QueryRelations,
    exact: SparseRows,
    queries: SparseRows,
    scaled: np.ndarray,
    fixed: np.ndarray,
) -> np.ndarray:
    """Whole t' near t such that all relations hold, (m,) int64; t itself where no sum of its rows is exact.

    Where the relations have large coefficients, or divide, t' is the answer of whole cells z with ``C z = v``.

    Arguments:
        relations: between the rows of W (m x n, ``queries``) and of C (r x n, ``exact``, independent).
        scaled: t, (m,) whole numbers.
        fixed: v, (r,) whole numbers.

    Raises:
        InvalidArgument: no whole numbers have these exact sums.
    """
    if not len(relations.matrix):
        return scaled.astype(np.int64)
    if relations.are_small:
        return relations.settle(scaled.astype(np.int64), narrow(fixed))
    return whole_answers(integer_matvec(queries, _cells(exact, queries, scaled, fixed)))


def _cells(exact: SparseRows, queries: SparseRows, scaled: np.ndarray, fixed: np.ndarray) -> np.ndarray:
    """Whole cells z with ``C z = v`` and ``W z`` near t."""
    both: SparseRows = scipy.sparse.csr_array(scipy.sparse.vstack([queries, exact]))
    wanted = np.concatenate([scaled.astype(object), fixed.astype(object)])
    floats = both.astype(np.float64)
    cells = np.zeros(both.shape[1], dtype=np.int64)
    for _ in range(3):  # floats hold 53 bits: each time the rest of what is wanted
        gap = wanted - integer_matvec(both, cells)
        step = np.rint(lsmr(floats, gap.astype(np.float64), atol=1e-13, btol=1e-13, maxiter=_ITERATIONS)[0])
        if not step.any():
            break
        cells = narrow(cells + np.array([int(s) for s in step], dtype=object))
    return IntegerSystem(exact).settle(cells, narrow(fixed))
