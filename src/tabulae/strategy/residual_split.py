"""How much noise each residual group takes: the best split of a budget, in closed form or by a few cuts.

Group S costs a record ``x_S`` (``c_S / s_S^2``, or ``c_S / b_S`` for Laplace noise, with c_S the norm of its largest
column) and brings the tables the error ``u_S / x_S^t``, with ``u_S = v_S c_S^t`` and t = 1 (Gaussian) or 2 (Laplace).

add-remove   every record meets every group: ``sum_S x_S <= 1``, and x_S is proportional to ``u_S^(1/(t+1))``.
replace      two records that differ in the attributes D are ``2 sum_S x_S (1 - prod_{i in S and D} r_i)`` apart, with
             r_i the least inner product of two columns of B_i as a share of the largest norm (``-1/(n-1)`` for the
             centring matrix); for the L1 distance, what two columns have in common. The problem is convex with one
             constraint for each D; those that matter are found one by one. The group of the total is free: its noise
             is made small, and never zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from ..errors import Unsupported
from .residual_sets import Set

_FREE = 1e-6  # share of the error that the group of the total may bring where it costs nothing
_CUTS, _STEPS = 60, 500
_LISTED, _STARTS = 16, 3  # attributes whose subsets are all compared; constraints from which a search starts
_CLOSE = 1e-5  # by which a cost may exceed the budget before the answer is scaled to it
_BITS = 20  # of the reciprocals of the scales: far finer than the optimum is sharp


def split(
    sets: Sequence[Set],
    error: np.ndarray,
    columns: np.ndarray,
    norm: int,
    overlaps: np.ndarray | None,
) -> list[Fraction]:
    """The relative variance (norm 2) or Laplace scale (norm 1) of each group, on the grid of its integer matrix.

    ``error`` is v_S, ``columns`` the power sum c_S of the largest column; ``overlaps`` (attributes,) are the r_i under
    replace-one neighbours, None under add-remove. The reciprocals have few bits, which keeps exact sums of them short.

    >>> [round(float(s), 5) for s in split([(), (0,)], np.array([1.0, 4.0]), np.ones(2), 2, None)]
    [3.0, 1.5]
    """
    t = 3 - norm
    shares = error * columns**t
    if overlaps is None:
        cost = shares ** (1 / (t + 1))
        cost = cost / cost.sum()
    else:
        cost = _under_replace(sets, shares, t, overlaps)
    return [_reciprocal(x / c) for x, c in zip(cost, columns, strict=True)]


def _reciprocal(precision: float) -> Fraction:
    """1 / precision, the latter rounded to ``_BITS`` bits."""
    mantissa, exponent = np.frexp(precision)
    return 1 / (Fraction(round(float(mantissa) * 2**_BITS), 2**_BITS) * Fraction(2) ** int(exponent))


def _under_replace(sets: Sequence[Set], shares: np.ndarray, t: int, overlaps: np.ndarray) -> np.ndarray:
    """Least ``sum u_S / x_S^t`` such that no two records are further apart than 1."""
    charged = np.array([bool(s) for s in sets])
    if not charged.any():
        raise Unsupported('no table changes when one record is replaced by another: choose "identity"')
    members = np.zeros((len(sets), len(overlaps)), dtype=bool)
    for row, s in zip(members, sets, strict=True):
        row[list(s)] = True
    members, some = members[charged], shares[charged]
    apart = np.ones((1, len(overlaps)), dtype=bool)
    prices = np.ones(1)
    for _ in range(_CUTS):
        distances = _distances(members, apart, overlaps)
        cost, prices = _priced(some, t, distances, prices)
        furthest = _furthest(members, cost, overlaps, apart)
        if (_distances(members, furthest[None], overlaps) @ cost)[0] <= 1 + _CLOSE:
            break
        apart, prices = np.vstack([apart, furthest]), np.append(prices, prices.mean())
    out = np.empty(len(sets))
    out[charged] = cost
    rest = float((some / cost**t).sum())
    out[~charged] = np.maximum((shares[~charged] / (_FREE * rest)) ** (1 / t), cost.max())
    return out


def _distances(members: np.ndarray, apart: np.ndarray, overlaps: np.ndarray) -> np.ndarray:
    """``2 (1 - prod_{i in S and D} r_i)`` for each D (rows) and S (columns)."""
    return np.array([2 - 2 * np.where(members & d, overlaps, 1.0).prod(axis=1) for d in apart])


def _priced(
    shares: np.ndarray, t: int, distances: np.ndarray, prices: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The optimum under the constraints so far, by multiplicative steps on their prices."""
    for _ in range(_STEPS):
        price = prices @ distances
        cost = (shares / np.maximum(price, 1e-12 * price.max())) ** (1 / (t + 1))
        reached = distances @ cost
        cost = cost / reached.max()
        prices = prices * reached / reached.max()
        prices = np.maximum(prices / prices.max(), 1e-12)
        # at the optimum all that is paid for is reached
        if (prices @ reached) / (prices.sum() * reached.max()) > 1 - _CLOSE:
            break
    return cost, prices


def _furthest(members: np.ndarray, cost: np.ndarray, overlaps: np.ndarray, known: np.ndarray) -> np.ndarray:
    """The D of the largest distance; beyond ``_LISTED`` attributes the largest that flipping one at a time finds."""
    named = np.flatnonzero(members.any(axis=0))
    if len(named) <= _LISTED:
        code = int(_all_distances(members[:, named], cost, overlaps[named]).argmax())
        apart = np.zeros(len(overlaps), dtype=bool)
        apart[named] = [code >> (len(named) - 1 - k) & 1 for k in range(len(named))]
        return apart
    ends = [_climbed(members, cost, overlaps, start) for start in known[-_STARTS:]]
    return max(ends, key=lambda end: end[0])[1]


def _all_distances(members: np.ndarray, cost: np.ndarray, overlaps: np.ndarray) -> np.ndarray:
    """Half the distances for all D, (2^d,): one attribute at a time, in O(d 2^d)."""
    d = len(overlaps)
    total = np.bincount(members @ (1 << np.arange(d)[::-1]), weights=cost, minlength=2**d).reshape([2] * d)
    for axis, r in enumerate(overlaps):
        out, inside = np.take(total, 0, axis=axis), np.take(total, 1, axis=axis)
        total = np.stack([out + inside, out + r * inside], axis=axis)
    return cost.sum() - total.ravel()


def _climbed(
    members: np.ndarray, cost: np.ndarray, overlaps: np.ndarray, start: np.ndarray
) -> tuple[float, np.ndarray]:
    """A distance that no flip of one attribute enlarges, and its D."""
    here, value = start, float((_distances(members, start[None], overlaps) @ cost)[0])
    while True:
        flipped = here ^ np.eye(len(here), dtype=bool)
        values = _distances(members, flipped, overlaps) @ cost
        if values.max() <= value * (1 + 1e-12):
            return value, here
        here, value = flipped[values.argmax()], float(values.max())
