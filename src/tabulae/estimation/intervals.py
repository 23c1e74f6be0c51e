"""Intervals of counts: cut at what a count cannot be and rounded inwards; or read off draws of whole tables.

An interval ``[l, u]`` that covers the true count x with some probability covers it no less often once values are
left out that x cannot have: those below ``least`` or above ``most``, and, where x is a number of records, those that
are not whole. Nothing is lost for any x, so coverage stays valid for each true count, one by one.

Draws of areas and of tables are alike, implicates: an array has the draws first, of one chain after another. How many
independent draws they are worth says whether they may be published.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from ..domain import Domain, Table
from ..errors import InvalidArgument
from ..linalg import LinearOperator
from ..strategy import products

_SURE = 1e-9  # of an end: by so much it may be off, as floating point has it
_LARGEST = 1 << 24  # entries of a matrix that is looked through


@dataclass(frozen=True, eq=False)
class Interval:
    """Intervals, one a row, beside what is known of the true counts; arrays of one shape, or numbers.

    Args:
        low, high: ends of an interval that covers the true count.
        least, most: the true count is not below, and not above.
        whole: whether it is a whole number.
        point: an estimate that the published interval is widened to hold, where one is published that is another than
            the middle.

    >>> found = Interval(np.array([-3.2, 2.6, -9.0]), np.array([4.7, 2.9, -1.0]), 0.0, np.inf, True)
    >>> [end.tolist() for end in found.ends()]
    [[0.0, 3.0, 0.0], [4.0, 3.0, 0.0]]
    """

    low: np.ndarray
    high: np.ndarray
    least: np.ndarray | float = -np.inf
    most: np.ndarray | float = np.inf
    whole: np.ndarray | bool = False
    point: np.ndarray | None = None

    def known(self, rows: np.ndarray, values: np.ndarray) -> Interval:
        """The same, some ``rows`` (bool) being known to have these values."""
        low, high = (np.where(rows, values, end) for end in (self.low, self.high))
        least = np.where(rows, -np.inf, self.least)
        most = np.where(rows, np.inf, self.most)
        point = None if self.point is None else np.where(rows, values, self.point)
        return Interval(low, high, least, most, self.whole & ~rows, point)

    def ends(self, moved: np.ndarray | float = 0.0) -> tuple[np.ndarray, np.ndarray]:
        """The ends as they are published, both intervals' ends ``moved`` first.

        Where nothing is left, because the noise was larger than the interval allows for, it is the one value nearest.
        """
        slack = _SURE * (1 + np.maximum(np.abs(self.low), np.abs(self.high)))
        low = np.where(self.whole, np.ceil(self.low + moved - slack), self.low + moved)
        high = np.where(self.whole, np.floor(self.high + moved + slack), self.high + moved)
        middle = (self.low + self.high) / 2 + moved
        nearest = np.where(self.whole, np.rint(middle), middle)
        low, high = (np.where(low > high, nearest, end) for end in (low, high))
        low, high = (np.clip(end, self.least, self.most) for end in (low, high))
        if self.point is not None:
            point = self.point + moved
            low = np.minimum(low, np.where(self.whole, np.floor(point + slack), point))
            high = np.maximum(high, np.where(self.whole, np.ceil(point - slack), point))
        return low + 0.0, high + 0.0  # never -0.0


def non_negative_rows(operator: LinearOperator) -> np.ndarray:
    """Rows whose entries are all known to be at least 0: their true answers are, too."""
    rows = np.ones(1, dtype=bool)
    ((coefficient, factors), *others) = products(operator)
    if others or coefficient < 0:
        return np.zeros(operator.shape[0], dtype=bool)
    for factor in factors:
        signed = np.zeros(factor.shape[0], dtype=bool)
        if not factor.binary:
            signed = np.asarray(factor.T.column_norms(1) != factor @ np.ones(factor.shape[1]))
        rows = np.logical_and.outer(rows, ~signed).ravel()
    return rows


def whole_rows(domain: Domain, operator: LinearOperator) -> bool:
    """Whether the true answers are all whole: a matrix of whole numbers, and of each value whole numbers a step.

    A record of value ``low + k (high - low) / steps`` is worth ``f_low + k (f_high - f_low) / steps`` to a factor f. Of
    a value with squares only counts are told to be whole.

    >>> from tabulae.domain import Attribute
    >>> from tabulae.linalg import Dense, Total
    >>> domain = Domain({"income": Attribute.measured("income", 0, 100, step=10)})
    >>> [whole_rows(domain, each) for each in (Total(2), Dense([[0, 100]]), Dense([[0, 1]]))]
    [True, True, False]
    """
    if not operator.integer:
        return False
    return not any(
        np.any(np.diff(factor.dense()) % (np.inf if attribute.squares else attribute.steps))
        for _, factors in products(operator)
        for attribute, factor in zip(domain.attributes, factors, strict=True)
        if attribute.steps
    )


def no_more_than(
    domain: Domain, table: Table, exact: Sequence[Table], values: Sequence[np.ndarray]
) -> np.ndarray:
    """For each row of a table the smallest exact count that counts all of its cells too, (m,); infinite without one.

    Both are products of factors of 0 and 1: row i counts no cell that row j leaves out if that holds in each attribute.

    >>> from tabulae.linalg import Identity, Total
    >>> domain = Domain({"sex": 2, "age": 2})
    >>> cells, sexes = Table("cells", {"sex": Identity(2), "age": Identity(2)}), Table("sexes", {"sex": Identity(2)})
    >>> no_more_than(domain, cells, [sexes], [np.array([7, 5])]).tolist()
    [7.0, 7.0, 5.0, 5.0]
    """
    found = np.full(table.rows(domain), np.inf)
    own = _plain_factors(table.operator(domain))
    if own is None:
        return found
    for known, counts in zip(exact, values, strict=True):
        factors = _plain_factors(known.operator(domain))
        if factors is None:
            continue
        left = np.asarray(counts, float).reshape([factor.shape[0] for factor in factors])
        for axis, (inner, outer) in enumerate(zip(own, factors, strict=True)):
            within = _within(inner, outer)
            along = np.moveaxis(left, axis, -1)
            lowest = [np.where(row, along, np.inf).min(axis=-1) for row in within]
            left = np.moveaxis(np.stack(lowest), 0, axis)
        found = np.minimum(found, left.ravel())
    return found


def _plain_factors(operator: LinearOperator) -> Sequence[LinearOperator] | None:
    """The factors of one product of matrices of 0 and 1; None for any other operator."""
    ((coefficient, factors), *others) = products(operator)
    return None if others or coefficient != 1 or not all(each.binary for each in factors) else factors


def _within(inner: LinearOperator, outer: LinearOperator) -> np.ndarray:
    """Which rows of ``inner`` count no more than which of ``outer``, bool; none where there is too much to see."""
    if max(inner.shape[0], outer.shape[1]) * outer.shape[0] > _LARGEST:
        return np.zeros((inner.shape[0], outer.shape[0]), dtype=bool)
    beside = 1 - np.asarray(outer.T @ np.eye(outer.shape[0]))
    return np.asarray(inner @ beside) == 0


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
