"""From a margin of error to the budget of a level."""

from __future__ import annotations

import math
from fractions import Fraction
from statistics import NormalDist
from typing import Literal

from ..errors import InvalidArgument
from ..privacy import (
    ZCDP,
    Exact,
    PureDP,
    budget_for_margin,
)
from ..privacy.conversions import round_digits
from ..privacy.definitions import check_neighbours, probability

_DIGITS = 8
_PAPER_LEVEL, _PAPER_HALF_SQUARE = Fraction(95, 100), Fraction(192, 100)


def level_budget(
    margin: int,
    confidence: Exact,
    stage_one: Exact,
    stability: int,
    definition: Literal["pure", "zcdp"],
    formula: Literal["exact", "paper"] = "exact",
    *,
    neighbours: str = "add-remove",
    rows_per_unit: int = 1,
) -> PureDP | ZCDP:
    """The least budget of a level at which one count of the second stage has this margin of error.

    With s the stability, m = 1 - ``stage_one``, k the rows of a unit, and b the loss of a single count whose noise
    misses the margin with probability at most 1 - ``confidence``, the budget is

        pure DP   s k b / m            zCDP   s k^2 b / m

    and twice as much under "replace". "exact" takes the least b, found with a proven bound on the tail; "paper" takes
    b = ln(1/(1 - confidence)) / (margin + 1), or z^2 / (2 margin^2) with z the normal quantile (1.92 / margin^2 at
    0.95, as printed), which are not exact: at 0.95 the first misses more often than it says, the second less.

    Args:
        margin: an integer, 0 or more; 1 or more for the paper's formula under zCDP.
        confidence: of draws of the noise, at least this share lies within the margin.
        stage_one: share of the budget that chooses tables.
        stability: the most groups of the level that one record can belong to.
        definition, formula: see above.
        neighbours, rows_per_unit: as in :class:`~tabulae.adaptive.PopulationLevel`.

    Returns:
        The budget, rounded up to 8 significant digits, so that it can be written down as it is.

    Raises:
        InvalidArgument: an argument outside its range.

    Reference: Haney et al., equations 37 and 38 and appendix F.1, whose factor 1/gamma must be 1/(1 - gamma).

    Privacy:
        None is spent. A level of this budget has the noise that the margin was computed for, or a little less.

    >>> [float(level_budget(6, "0.95", "1/10", 9, "zcdp", formula).amount) for formula in ("paper", "exact")]
    [0.53333334, 0.4511941]
    """
    if definition not in ("pure", "zcdp") or formula not in ("exact", "paper"):
        raise InvalidArgument('definition is "pure" or "zcdp", and formula is "exact" or "paper"')
    if check_neighbours(neighbours) not in ("add-remove", "replace"):
        raise InvalidArgument('groups are tabulated under "add-remove" or "replace"')
    if stability < 1 or rows_per_unit < 1:
        raise InvalidArgument(
            f"stability is {stability} and rows_per_unit {rows_per_unit}; both must be 1 or more"
        )
    share = 1 - probability(stage_one, "stage_one")
    if formula == "exact":
        one = budget_for_margin(margin, "laplace" if definition == "pure" else "gaussian", confidence).amount
    else:
        one = _printed(margin, probability(confidence, "confidence"), definition)
    units = 2 if neighbours == "replace" else 1
    rows = rows_per_unit if definition == "pure" else rows_per_unit**2
    amount = round_digits(units * stability * rows * one / share, _DIGITS, up=True)
    return PureDP(amount) if definition == "pure" else ZCDP(amount)


def _printed(margin: int, confidence: Fraction, definition: str) -> Fraction:
    """Equations 37 and 38."""
    least = 0 if definition == "pure" else 1
    if isinstance(margin, bool) or not isinstance(margin, int) or margin < least:
        raise InvalidArgument(f"margin is {margin!r}; this formula needs an integer, {least} or more")
    if definition == "pure":
        return Fraction(-math.log(1 - confidence)) / (margin + 1)
    if confidence == _PAPER_LEVEL:
        return _PAPER_HALF_SQUARE / margin**2
    return Fraction(NormalDist().inv_cdf(float((1 + confidence) / 2)) ** 2 / 2) / margin**2
