"""Moore-Penrose inverses of operators whose structure gives none: dense where small, else iterative."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse.linalg

from ..errors import Unsupported
from .operator import LinearOperator

DENSE_CELLS = 4096  # columns (or rows) up to which a dense inverse is formed
_DENSE_ENTRIES = 2**25  # 256 MiB
_SAFE = 1e-8  # reciprocal condition above which a triangular factor is inverted as it is
_TOLERANCE = 1e-13
_LEAST_STEPS, _STEPS_PER_CELL = 1000, 4  # of the iteration, before it is given up


def pseudo_inverse(op: LinearOperator) -> LinearOperator:
    """``op^+``: dense when the smaller side is at most 4096, iterative above.

    A matrix with many rows and few columns goes through its Gram matrix, ``A^+ = (A'A)^+ A'``, which never
    forms ``A``.
    """
    from .algebra import Product
    from .explicit import Dense

    m, n = op.shape
    if min(m, n) > DENSE_CELLS:
        return IterativeInverse(op)
    if m * n <= _DENSE_ENTRIES:
        return Dense(dense_pinv(op.dense().astype(np.float64)))
    if m < n:
        return pseudo_inverse(op.T).T
    return Product(Dense(_gram_pinv(op.gram().dense().astype(np.float64))), op.T)


def dense_pinv(matrix: np.ndarray) -> np.ndarray:
    """The pseudo-inverse of an array: through QR where it is safely of full rank, else through the SVD."""
    m, n = matrix.shape
    if m < n:
        return np.ascontiguousarray(dense_pinv(matrix.T).T)
    q, r = np.linalg.qr(matrix)
    diagonal = np.abs(np.diag(r))
    if diagonal.min() > _SAFE * diagonal.max():
        inverse = scipy.linalg.solve_triangular(r, np.eye(n), check_finite=False)
        if np.linalg.norm(inverse, 1) * np.linalg.norm(r, 1) < 1 / _SAFE:
            return inverse @ q.T
    return np.linalg.pinv(r, rcond=max(m, n) * 2.0**-52) @ q.T


def _gram_pinv(gram: np.ndarray) -> np.ndarray:
    """The pseudo-inverse of a positive semidefinite matrix."""
    return np.linalg.pinv((gram + gram.T) / 2, rcond=len(gram) * 2.0**-52, hermitian=True)


@dataclass(frozen=True, eq=False, repr=False)
class IterativeInverse(LinearOperator):
    """``op^+`` applied by LSMR: each product solves a least-squares problem to rounding error.

    Raises:
        Unsupported: when the iteration does not converge; the message says what to do instead.

    Reference: Fong and Saunders, LSMR: an iterative algorithm for sparse least-squares problems (2011).
    """

    op: LinearOperator

    @property
    def shape(self) -> tuple[int, int]:
        return self.op.shape[1], self.op.shape[0]

    @property
    def T(self) -> LinearOperator:
        return IterativeInverse(self.op.T)

    def key(self) -> tuple[Any, ...]:
        return ("IterativeInverse", self.op.key())

    def pinv(self) -> LinearOperator:
        return self.op

    def matmat(self, x: np.ndarray) -> np.ndarray:
        problem = _AsScipy(self.op)
        columns = [self._solve(problem, column) for column in np.asarray(x, dtype=np.float64).T]
        return np.stack(columns, axis=1) if columns else np.zeros((self.shape[0], 0))

    def _solve(self, problem: _AsScipy, target: np.ndarray) -> np.ndarray:
        limit = max(_LEAST_STEPS, _STEPS_PER_CELL * min(self.shape))
        solution, stopped, *_ = scipy.sparse.linalg.lsmr(
            problem, target, atol=_TOLERANCE, btol=_TOLERANCE, conlim=0, maxiter=limit
        )
        if stopped == 7:
            raise Unsupported(
                f"the least-squares iteration for {self.op!r} did not converge in {limit} steps: use a "
                "strategy whose blocks share a Kronecker structure, or merge identical columns first"
            )
        return solution


class _AsScipy(scipy.sparse.linalg.LinearOperator):
    """An operator as scipy's iterative solvers take it."""

    def __init__(self, op: LinearOperator) -> None:
        super().__init__(dtype=np.dtype(np.float64), shape=op.shape)
        self._op, self._adjoint_op = op, op.T

    def _matvec(self, x: np.ndarray) -> np.ndarray:
        return self._op @ np.asarray(x, dtype=np.float64).reshape(-1)

    def _rmatvec(self, x: np.ndarray) -> np.ndarray:
        return self._adjoint_op @ np.asarray(x, dtype=np.float64).reshape(-1)
