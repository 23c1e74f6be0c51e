"""Query groups as few independent rows: sums of Kronecker products, without listing their cells.

A tall factor A_i (more rows than columns) is split as ``A_i = U_i R_i`` with U_i orthonormal and R_i of full
row rank, so that a group ``c (x)_i A_i`` keeps its Gram with at most ``prod_i min(m_i, n_i)`` rows. A sum of
products shares its rows among the terms and is kept as it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ..linalg import (
    Dense,
    Identity,
    Kron,
    LinearOperator,
)

Terms = list[tuple[int, tuple[LinearOperator, ...]]]


@dataclass(frozen=True)
class ReducedRows:
    """``weight * sum_s c_s (x)_i A_si = carry @ rows`` with ``carry`` having orthonormal columns."""

    rows: tuple[tuple[int, tuple[LinearOperator, ...]], ...]
    carry: LinearOperator
    weight: float

    @property
    def count(self) -> int:
        """Number of reduced rows."""
        return self.carry.shape[1]


def row_count(terms: Terms) -> int:
    """How many rows :func:`reduce_rows` leaves."""
    if len(terms) == 1:
        return math.prod(min(f.shape) for f in terms[0][1])
    return math.prod(f.shape[0] for f in terms[0][1])


def reduce_rows(terms: Terms, weight: float) -> ReducedRows:
    """Reduce one group of queries; ``weight`` multiplies its rows."""
    if len(terms) > 1:
        return ReducedRows(tuple(terms), Identity(row_count(terms)), weight)
    coefficient, factors = terms[0]
    split = [_orthonormal(f) for f in factors]
    carry = Kron([u for u, _ in split])
    return ReducedRows(((coefficient, tuple(r for _, r in split)),), carry, weight)


def outer(groups: Sequence[ReducedRows]) -> np.ndarray:
    """R R' for the stack R of all groups' rows, weights included; (r, r), symmetric."""
    whole = np.block([[rows_against(a, b) for b in groups] for a in groups])
    return (whole + whole.T) / 2


def rows_against(a: ReducedRows, b: ReducedRows) -> np.ndarray:
    """R_a R_b' with both weights, (a.count, b.count)."""
    total = np.zeros((a.count, b.count))
    for c, left in a.rows:
        for d, right in b.rows:
            product = np.ones((1, 1)) * (c * d * a.weight * b.weight)
            for p, q in zip(left, right, strict=True):
                product = np.kron(product, _pair(p, q))
            total += product
    return total


@lru_cache(maxsize=4096)
def _pair(left: LinearOperator, right: LinearOperator) -> np.ndarray:
    """left right', the smaller side made dense."""
    if right.shape[0] <= left.shape[0]:
        return np.asarray(left @ right.T.dense(), dtype=float)
    return np.asarray(right @ left.T.dense(), dtype=float).T


@lru_cache(maxsize=256)
def _orthonormal(factor: LinearOperator) -> tuple[LinearOperator, LinearOperator]:
    """factor = U R, U with orthonormal columns, R of full row rank; factor itself when it is not tall."""
    rows, columns = factor.shape
    if rows <= columns:
        return Identity(rows), factor
    values, vectors, _ = spectrum(np.asarray(factor.gram().dense(), dtype=float))
    root = np.sqrt(values)
    return Dense(factor @ (vectors / root)), Dense((vectors * root).T)


_RELATIVE = 1e-12  # eigenvalues below this share of the largest count as zero


def spectrum(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Non-zero eigenvalues of a positive semi-definite matrix, their vectors, and a basis of the kernel."""
    values, vectors = np.linalg.eigh(matrix)
    keep = values > _RELATIVE * max(float(values[-1]), 0.0)
    return values[keep], vectors[:, keep], vectors[:, ~keep]
