"""Moore-Penrose inverses of operators whose structure gives none: dense where small, else iterative."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse.linalg

from tabulae.errors import Unsupported
from tabulae.linalg.operator import LinearOperator

DENSE_CELLS = 4096  # columns (or rows) up to which a dense inverse is formed
_DENSE_ENTRIES = 2**25  # 256 MiB
_ITERATION_TOLERANCE = 1e-13


def pseudo_inverse(op: LinearOperator) -> LinearOperator:
    """``op^+``: dense when the smaller side is at most 4096, iterative above.

    A matrix with many rows and few columns goes through its Gram matrix, ``A^+ = (A'A)^+ A'``, which never
    forms ``A``.
    """
    from tabulae.linalg.algebra import Product
    from tabulae.linalg.explicit import Dense

    m, n = op.shape
    if min(m, n) > DENSE_CELLS:
        return IterativeInverse(op)
    if m * n <= _DENSE_ENTRIES:
        return Dense(dense_pinv(op.dense().astype(np.float64)))
    if m < n:
        return pseudo_inverse(op.T).T
    return Product(Dense(gram_pinv(op.gram().dense().astype(np.float64))), op.T)


def dense_pinv(matrix: np.ndarray) -> np.ndarray:
    """The pseudo-inverse of an array: through QR where it is safely of full rank, else through the SVD."""
    m, n = matrix.shape
    if m < n:
        return np.ascontiguousarray(dense_pinv(matrix.T).T)
    q, r = scipy.linalg.qr(matrix, mode="economic", check_finite=False)
    diagonal = np.abs(np.diag(r))
    if diagonal.min() > 0:
        reciprocal, _ = scipy.linalg.lapack.dtrcon(r, norm="1", uplo="U", diag="N")
        if reciprocal > 1e-8:
            return scipy.linalg.solve_triangular(r, q.T, check_finite=False)
    return scipy.linalg.pinv(r, check_finite=False) @ q.T


def gram_pinv(gram: np.ndarray) -> np.ndarray:
    """The pseudo-inverse of a positive semidefinite matrix."""
    return scipy.linalg.pinvh((gram + gram.T) / 2, check_finite=False)


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
        forward, adjoint = self.op, self.op.T
        matrix = scipy.sparse.linalg.LinearOperator(
            shape=forward.shape, matvec=lambda v: forward @ v.reshape(-1), rmatvec=lambda v: adjoint @ v.reshape(-1),
            dtype=np.float64,
        )  # fmt: skip
        columns = [self._solve(matrix, column) for column in np.asarray(x, dtype=np.float64).T]
        return np.stack(columns, axis=1) if columns else np.zeros((self.shape[0], 0))

    def _solve(self, matrix: Any, target: np.ndarray) -> np.ndarray:
        limit = max(1000, 4 * min(self.shape))
        solution, stopped, *_ = scipy.sparse.linalg.lsmr(
            matrix, target, atol=_ITERATION_TOLERANCE, btol=_ITERATION_TOLERANCE, conlim=0, maxiter=limit
        )
        if stopped == 7:
            raise Unsupported(
                f"the least-squares iteration for {self.op!r} did not converge in {limit} steps: use a strategy "
                "whose blocks share a Kronecker structure, or merge identical columns first"
            )
        return solution
