"""What an answer's noise is made of: moments of the coefficients of its noise variables.

All routes share this engine. A table is a sum of terms, integers c_t times Kronecker products, and so are its
coefficients ``z = sum_t c_t (x)_i z_ti`` on a block. Of one product every moment is the product over attributes of
theirs; of a sum the second moment adds cross terms over pairs, and the others follow where the coefficients may be
written out, or are bounded by Minkowski's inequality.

Moments are arrays (5, ...): sum z^2, sum z^4, sum z^6, max |z| and the count of non-zeros.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

T = TypeVar("T")

_DEGREES = np.array([2.0, 4.0, 6.0, 1.0, 0.0])  # of each moment in z


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


def scaled(moments: np.ndarray, factor: float | np.ndarray) -> np.ndarray:
    """Moments of coefficients multiplied by positive factors, one for all or one a block; (5, blocks, queries)."""
    powers = np.atleast_1d(factor)[None, :] ** _DEGREES[:, None]
    return moments * powers.reshape(5, -1, *[1] * (moments.ndim - 2))


def kron_moments(factors: Sequence[np.ndarray]) -> np.ndarray:
    """Moments of a Kronecker product from those of its factors, (5, rows_i) each; (5, rows)."""
    return np.stack([kron_vectors([moments[k] for moments in factors]) for k in range(5)])


def sum_bounds(terms: Sequence[np.ndarray], squares: np.ndarray, count: float | np.ndarray) -> np.ndarray:
    """Upper bounds of a sum's moments: norms of a sum are at most the sums of the norms (Minkowski).

    Of the terms their moments are given, coefficients included, of the sum itself its squares and how many non-zeros
    it may have.
    """
    out = np.empty_like(terms[0])
    out[0], out[4] = squares, count
    for k, degree in ((1, 4), (2, 6), (3, 1)):
        out[k] = sum(moments[k] ** (1 / degree) for moments in terms) ** degree
    return out


def pairs(terms: Sequence[T]) -> Iterator[tuple[int, T, T]]:
    """All pairs of terms once, with how often each counts in the square of their sum: 1 or 2."""
    for k, left in enumerate(terms):
        for right in terms[:k]:
            yield 2, left, right
        yield 1, left, left


def profile_of(moments: np.ndarray, *, exact: bool = True, inverse: np.ndarray | None = None) -> Profile:
    """The profile of a strategy of one block, from moments (5, queries)."""
    return Profile(*moments[:, None], exact=exact, inverse=inverse)
