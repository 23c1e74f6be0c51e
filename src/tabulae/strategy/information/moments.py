"""What an answer's noise is made of: moments of the coefficients of its noise variables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Profile:
    """How an answer's noise is made up: statistics of the coefficients z of its noise variables.

    Arrays of shape (blocks, queries), z in units of the block's answers: ``power2 = sum z^2``,
    ``power4 = sum z^4``, ``power6 = sum z^6``, ``largest = max |z|``, ``count`` = how many are non-zero.
    ``exact`` is False where all but ``power2`` are upper bounds.

    What would repeat may be left out: ``blocks`` names the strategy's blocks that the rows stand for (None: all,
    in order; a block left out has no part in the answer), and ``inverse`` (m,) the column that each query has
    (None: its own).
    """

    power2: np.ndarray
    power4: np.ndarray
    power6: np.ndarray
    largest: np.ndarray
    count: np.ndarray
    exact: bool = True
    blocks: tuple[int, ...] | None = None
    inverse: np.ndarray | None = None


@dataclass(frozen=True)
class VarianceBound:
    """All that is known of an answer's noise is that its variance is at most this, (m,), in squared counts."""

    variance: np.ndarray


def kron_vectors(vectors: Sequence[np.ndarray]) -> np.ndarray:
    """Kronecker product of vectors, in C order."""
    out = np.ones(1)
    for vector in vectors:
        out = np.multiply.outer(out, vector).ravel()
    return out


def coefficient_statistics(z: np.ndarray) -> np.ndarray:
    """sum z^2, sum z^4, sum z^6, max |z| and the count of non-zeros of each row; (5, rows)."""
    size = np.abs(z)
    square = size * size
    largest = size.max(axis=1, initial=0.0)
    count = (size > 1e-12 * np.maximum(largest, 1e-300)[:, None]).sum(axis=1)
    return np.stack([square.sum(axis=1), (square**2).sum(axis=1), (square**3).sum(axis=1), largest, count])


def merge_statistics(total: np.ndarray, part: np.ndarray) -> None:
    """Add the statistics of further columns of z to those of the columns before, in place."""
    total[[0, 1, 2, 4]] += part[[0, 1, 2, 4]]
    np.maximum(total[3], part[3], out=total[3])
