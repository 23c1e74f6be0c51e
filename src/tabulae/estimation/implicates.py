"""What draws of whole tables are worth: intervals, independent draws, and how figures of each draw are combined.

Implicates of areas and of tables alike: an array has the draws first, of one chain after another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from ..errors import InvalidArgument

CHAINS = 2
"""Chains, each on a thread of its own: the draws do not depend on how many cores there are."""

LEAST_EFFECTIVE = 100
"""The least effective draws that a credible interval is made of."""


def are_enough(worth: Mapping[str, float]) -> bool:
    """Whether draws that are worth so many independent ones, by kind of figure, make credible intervals."""
    return min(worth.values()) >= LEAST_EFFECTIVE


class Ends(NamedTuple):
    """Ends of intervals."""

    low: np.ndarray
    high: np.ndarray


def combine(
    estimates: np.ndarray, level: float, *, within: np.ndarray | float = 0.0, effective: float | None = None
) -> tuple[np.ndarray, np.ndarray, Ends]:
    """Rubin's rule: what a user has computed from each draw, joined to one estimate, standard error and interval.

    Args:
        estimates: shape (draws, ...): the same figure of each draw.
        level: of the interval, such as 0.95.
        within: the sampling variance of the figure in each draw, or its mean; 0 where the draw has everybody.
        effective: how many independent draws these are worth; all by default.

    Returns:
        Mean, standard error and interval; q -/+ t sqrt(U + (1 + 1/M) B), with B the variance between draws.

    Reference: Rubin, "Multiple Imputation for Nonresponse in Surveys" (1987), section 3.3.

    >>> mean, error, ends = combine(np.array([9.0, 11.0, 10.0, 10.0]), 0.9)
    >>> float(mean), round(float(error), 3), [round(float(end), 2) for end in ends]
    (10.0, 0.913, [7.85, 12.15])
    """
    draws = len(estimates)
    worth = float(draws if effective is None else min(effective, draws))
    if worth <= 1 or not 0 < level < 1:
        raise InvalidArgument(
            f"{worth:g} effective draws and level {level}: take more than one, and a level within 0 and 1"
        )
    inside = np.mean(within) if np.ndim(within) == 0 else np.mean(within, axis=0)
    mean = estimates.mean(axis=0)
    between = ((estimates - mean) ** 2).sum(axis=0) / (worth - 1) * worth / draws
    spread = (1 + 1 / worth) * between
    variance = inside + spread
    ratio = np.divide(inside, spread, out=np.zeros_like(spread + inside), where=spread > 0)
    half = stdtrit((worth - 1) * (1 + ratio) ** 2, (1 + level) / 2) * np.sqrt(variance)
    return mean, np.sqrt(variance), Ends(mean - half, mean + half)


def credible(sums: np.ndarray, level: float) -> Ends:
    """Ends of intervals of sums of shape (draws, ...), counts of people: order statistics of the draws.

    With M draws the ends are the i-th from below and from above, i at most (M + 1) (1 - level) / 2. An interval that
    begins at 0 ends at the i/2-th from above: how many have nobody and how many a few is what measurements say
    least of, so that the law of small counts is the prior's more than theirs.

    Raises:
        InvalidArgument: where ``level`` needs more draws.
    """
    draws = len(sums)
    rank = int((draws + 1) * (1 - level) / 2 + 1e-9)
    if rank < 1 or not 0 < level < 1:
        raise InvalidArgument(
            f"{draws} draws give no credible interval at {level}: draw at least 2 / (1 - level)"
        )
    far = max(rank // 2, 1)
    ordered = np.partition(sums, [rank - 1, draws - rank, draws - far], axis=0)
    low = ordered[rank - 1]
    return Ends(low, np.where(low == 0, ordered[draws - far], ordered[draws - rank]))


def effective(sums: np.ndarray) -> float:
    """How many independent draws these are worth for sums of shape (draws, figures).

    Autocovariances within the chains, about the mean of all, are averaged over figures as shares of their
    variances; their initial positive sequence is added up.

    Reference: Geyer, "Practical Markov Chain Monte Carlo" (1992).
    """
    centred = (sums - sums.mean(axis=0)).reshape(CHAINS, -1, int(np.prod(sums.shape[1:])))
    variance = (centred**2).mean(axis=(0, 1))
    moving = variance > 0
    if not moving.any():
        return float(len(sums))
    centred = centred[..., moving] / np.sqrt(variance[moving])
    length, time = centred.shape[1], 1.0
    for lag in range(1, length - 1, 2):
        pair = sum(
            float((centred[:, :-k] * centred[:, k:]).sum(axis=1).mean()) / length for k in (lag, lag + 1)
        )
        if pair <= 0:
            break
        time += 2 * pair
    return len(sums) / time
