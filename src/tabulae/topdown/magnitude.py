"""How far estimated totals could lie from the truth, by the noise alone: before anything is measured."""

from __future__ import annotations

from math import sqrt

import numpy as np

from ..geography.spine_plan import SpinePlan

MOST_PEOPLE = 1 << 30
"""An error of as many people is not divided: with as many real ones, sums would leave what rounding takes."""

_DEVIATIONS = 8.0  # beyond the mean of a norm of the noise: exceeded with probability e^-32


def largest_error(plan: SpinePlan) -> float:
    """A bound on how far the total of a unit that is divided lies from the truth, but for a negligible probability.

    With x the truth and x* the nearest point to an unbiased estimate x^ in the norm of H, within limits that x meets,
    ``|x* - x|_H <= |x^ - x|_H``, as projections do not expand, so that

        |1'(x* - x)| <= |x^ - x|_H sqrt(1'H^-1 1) <= (sqrt(K) + 8) sqrt(1'H^-1 1)       K cells, noise about normal

    The variance 1'H^-1 1 of a total is at most that of the unit's own measurements, and, where H holds what is below,
    that of all leaves' together; the largest of these bounds is taken.

    >>> from fractions import Fraction
    >>> from tabulae import Domain, Spine, ZCDP
    >>> from tabulae.geography.layout import Layout
    >>> spine = Spine.from_codes({"block": ["a", "b"]}, levels=["block"]).with_shares({"root": "1/2", "block": "1/2"})
    >>> layout = Layout.of(Domain({"age": 2}))
    >>> shares = dict.fromkeys(spine.levels, (Fraction(1),))
    >>> plan = SpinePlan(spine, layout, (layout.margin(["age"]),), shares, ZCDP(1), np.ones((2, 1), bool))
    >>> round(largest_error(plan), 2)
    26.63
    """
    totals = np.array([_total_variance(plan.precision(kind)) for kind in range(len(plan.classes[0]))])
    totals *= plan.layout.algebra.cells
    together = float(totals[plan.classes[1][plan.tree.leaf]].sum())
    cells = plan.dense_cells[plan.pattern[0]].size * plan.layout.algebra.cells
    return (sqrt(cells) + _DEVIATIONS) * sqrt(max(together, float(totals.max())))


def _total_variance(precision: np.ndarray) -> float:
    """1'P^-1 1 a cell of the algebra, for P of shape (kinds, k, k); 0 of a unit that is not measured."""
    return float(np.linalg.inv(precision[0]).sum()) if precision.any() else 0.0
