"""Real strategies onto an integer grid: what is measured is what was rounded, and nothing else.

A matrix A (r, n) with columns of norm at most 1 becomes ``M = round(2^k A)``. Noise lives on the same grid,
the sensitivity is recomputed exactly on M, and least squares inverts M, so that rounding costs a little
accuracy and never privacy. What it must not do is move the row space away from the workload: a matrix
without full column rank is first completed, ``A'A + t I``, with the t that costs least after rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from ..errors import Unsupported
from ..linalg import Dense, Identity, LinearOperator, Total
from .partition_stack import partition_stacks

FINEST = 20
"""Bits of the finest grid: rounding to it costs about 1e-6 of the error."""

_COARSEST = 3
_TOGETHER = 34  # bits of all factors together: k + log2(count) < 63 leaves room for 2^28 records
_NEGLIGIBLE = 1e-5  # relative loss at which finer grids no longer pay
_MULTIPLIER_BITS = 6
_RECIPROCAL = 1e-14
_COMPLETIONS = (1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)


@dataclass(frozen=True)
class Rounded:
    """``2^-exponent * matrix`` stands for the real matrix; ``loss`` is its squared error at unit noise."""

    matrix: LinearOperator
    exponent: int
    loss: float


def gram_inverse(matrix: np.ndarray) -> np.ndarray | None:
    """(A'A)^-1 for a matrix of safely full column rank; None for any other.

    Safe means that A'A has a reciprocal condition number above 1e-14 (estimated from its Cholesky factor).
    """
    gram = matrix.T @ matrix
    size = float(np.abs(gram).sum(axis=0).max())
    try:
        factor = scipy.linalg.cho_factor(gram, lower=True)[0]
    except np.linalg.LinAlgError:
        return None
    pocon, potri = scipy.linalg.get_lapack_funcs(("pocon", "potri"), (gram,))
    reciprocal, _ = pocon(factor, size, uplo="L")
    if not reciprocal > _RECIPROCAL:
        return None
    inverse, _ = potri(factor, lower=True)
    return np.tril(inverse) + np.tril(inverse, -1).T


def unit_loss(matrix: np.ndarray, gram: np.ndarray, p: int) -> float:
    """``||A||_p^2 tr((A'A)^+ V)`` for a matrix of full column rank; infinite for any other."""
    matrix = np.asarray(matrix, dtype=float)
    inverse = gram_inverse(matrix)
    if inverse is None:
        return np.inf
    sensitivity = float((np.abs(matrix) ** p).sum(axis=0).max()) ** (2 / p)
    return sensitivity * float(np.vdot(inverse, gram))


def exact_form(matrix: np.ndarray) -> LinearOperator | None:
    """Identity or Total where the real matrix is a multiple of it: those need no grid."""
    rows, columns = matrix.shape
    scale = np.abs(matrix).max()
    if rows == 1 and np.allclose(matrix, matrix[0, 0], rtol=0, atol=1e-9 * scale):
        return Total(columns)
    if rows == columns and np.allclose(matrix, np.eye(columns) * matrix[0, 0], rtol=0, atol=1e-9 * scale):
        return Identity(columns)
    return None


def to_grid(matrix: np.ndarray, gram: np.ndarray, p: int, bits: int) -> Rounded:
    """Round a real strategy for the workload Gram V to integer multiples of ``2^-bits``.

    matrix: (r, n) real, columns of L_p norm at most about 1; gram: V = W'W, (n, n); p: 1 or 2.
    The loss of the result is measured on the rounded matrix, not assumed.

    Raises :class:`~tabulae.errors.Unsupported` if no completion survives rounding at this many bits.
    """
    exact = exact_form(matrix)
    if isinstance(exact, Total):
        # V is a multiple of the all-ones matrix: its one query is measured itself
        return Rounded(exact, 0, float(gram.sum()) / gram.shape[0] ** 2)
    if isinstance(exact, Identity):
        return Rounded(exact, 0, float(np.trace(gram)))
    stacked = _best_stack(matrix, gram, p, bits)
    best: tuple[float, np.ndarray] | None = None
    for candidate in _candidates(matrix, p):
        rounded = np.rint(np.ldexp(candidate, bits))
        loss = unit_loss(rounded, gram, p)
        if loss < (np.inf if best is None else best[0]):
            best = loss, rounded
    if stacked is not None and (best is None or stacked.loss <= best[0] * (1 + _NEGLIGIBLE)):
        return stacked
    if best is None:
        raise Unsupported(
            f"a strategy of shape {matrix.shape} loses rank when rounded to a grid of 2^-{bits}; "
            "merge categories that no table tells apart, or measure fewer attributes with real-valued strategies"
        )
    integers = best[1].astype(np.int64)
    return Rounded(Dense(integers[np.any(integers != 0, axis=1)]), bits, best[0])


def _best_stack(matrix: np.ndarray, gram: np.ndarray, p: int, bits: int) -> Rounded | None:
    """The best stack of partitions near the matrix, with small multipliers; None where there is none."""
    best = None
    for operator, dense in partition_stacks(matrix, min(bits, _MULTIPLIER_BITS)):
        loss = unit_loss(dense, gram, p)
        if best is None or loss < best.loss * (1 - _NEGLIGIBLE):
            best = Rounded(operator, 0, loss)
    return best


def share_bits(matrices: Sequence[np.ndarray], grams: Sequence[np.ndarray], p: int) -> list[Rounded]:
    """Round the factors of a Kronecker product, giving bits of grid to those that gain most by them.

    The grids of the factors multiply, so that their bits add up. Every factor starts coarse; one bit at a time goes
    to the factor whose loss it lowers most, until no factor loses anything that matters or the bits are spent.

    matrices: the factors, (r_i, n_i) real; grams: the workload that each is judged by; p: 1 or 2.
    """
    real = [exact_form(matrix) is None for matrix in matrices]
    if sum(real) <= 1:
        return [to_grid(m, v, p, FINEST) for m, v in zip(matrices, grams, strict=True)]
    factors = [_Ladder(m, v, p) if r else None for m, v, r in zip(matrices, grams, real, strict=True)]
    ladders = [f for f in factors if f is not None]
    while sum(f.bits for f in ladders) < _TOGETHER:
        gains = [(f.loss(f.bits) / f.loss(f.bits + 1) if f.bits < FINEST else 1.0) for f in ladders]
        best = ladders[int(np.argmax([g if np.isfinite(g) else np.inf for g in gains]))]
        if all(f.loss(f.bits) <= f.target * (1 + _NEGLIGIBLE) for f in ladders) or best.bits >= FINEST:
            break
        best.bits += 1
    return [
        to_grid(m, v, p, FINEST if f is None else f.bits)
        for m, v, f in zip(matrices, grams, factors, strict=True)
    ]


class _Ladder:
    """One factor on finer and finer grids: its loss at each number of bits, computed when asked for."""

    def __init__(self, matrix: np.ndarray, gram: np.ndarray, p: int) -> None:
        self._matrix, self._gram, self._p = matrix, gram, p
        self._losses: dict[int, float] = {}
        self.bits = _COARSEST
        self.target = self.loss(FINEST)

    def loss(self, bits: int) -> float:
        """Squared error at unit noise on the grid of 2^-bits; infinite where the grid loses rank."""
        if bits not in self._losses:
            try:
                self._losses[bits] = to_grid(self._matrix, self._gram, self._p, bits).loss
            except Unsupported:
                self._losses[bits] = np.inf
        return self._losses[bits]


def _candidates(matrix: np.ndarray, p: int) -> list[np.ndarray]:
    """The matrix itself, and completions of it to full column rank."""
    n = matrix.shape[1]
    gram = matrix.T @ matrix
    values, vectors = np.linalg.eigh(gram)
    if values[0] > 1e-6 * values[-1]:
        return [matrix]
    candidates = [matrix]
    for t in _COMPLETIONS:
        if p == 1:  # a symmetric root would spread L1 norm: append the missing rows instead
            candidates.append(np.vstack([matrix, np.sqrt(t) * np.eye(n)]))
        else:
            root = (vectors * np.sqrt(np.maximum(values, 0.0) + t * values[-1])) @ vectors.T
            candidates.append(root)
    return candidates
