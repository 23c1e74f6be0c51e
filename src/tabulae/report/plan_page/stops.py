"""The budgets that the slider stops at: round numbers around the plan's own, and those that matter."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction

from .view import OWN, SMALLEST

_MANTISSAS = (*range(10, 20), *range(20, 50, 2), *range(50, 100, 5))
REACH = 30
"""How many times the plan's own budget the slider goes, and how small a part of it."""


def round_amounts(low: Fraction, high: Fraction) -> list[Fraction]:
    """Numbers of two digits from ``low`` to ``high``, 35 a factor of ten, each at most 10 % above the one before.

    >>> [str(float(amount)) for amount in round_amounts(Fraction(9, 10), Fraction(13, 10))]
    ['0.9', '0.95', '1.0', '1.1', '1.2', '1.3']
    """
    first, last = (math.floor(math.log10(float(end))) for end in (low, high))
    amounts = (Fraction(m, 10) * Fraction(10) ** e for e in range(first - 1, last + 2) for m in _MANTISSAS)
    return [amount for amount in amounts if low <= amount <= high]


def amounts_around(own: Fraction, smallest: Fraction | None, *, of_factors: bool = False) -> list[Fraction]:
    """Where the slider stops, rising: the plan's budget, the one found from its targets, and round numbers around them.

    Arguments:
        own: the plan's budget.
        smallest: the budget found from the targets, where there is one.
        of_factors: whether multiples of ``own`` are round rather than the budgets themselves.
    """
    ends = [own, own if smallest is None else smallest]
    low, high = min(ends) / REACH, max(ends) * REACH
    around = (
        [factor * own for factor in round_amounts(low / own, high / own)]
        if of_factors
        else round_amounts(low, high)
    )
    return sorted({*around, *ends})


def kind_of(amount: Fraction, own: Fraction, smallest: Fraction | None) -> str:
    """What is special about a stop, in the words of :class:`tabulae.report.plan_page.view.Stop`.

    >>> kind_of(Fraction(1), Fraction(1), Fraction(1))
    'own smallest'
    """
    return " ".join(_kinds(amount, own, smallest))


def _kinds(amount: Fraction, own: Fraction, smallest: Fraction | None) -> Iterator[str]:
    if amount == own:
        yield OWN
    if amount == smallest:
        yield SMALLEST


def knots(count: int, special: Iterable[int], step: int) -> list[int]:
    """Every ``step``-th of so many positions, the last, and the special ones.

    >>> knots(10, [4], 8)
    [0, 4, 8, 9]
    """
    return sorted({*range(0, count, step), count - 1, *special})


def kept(aimed: Sequence[bool], limit: int) -> list[int]:
    """The first rows, at most so many, rows with a target before all others; in their order.

    >>> kept([False, False, True], 2)
    [0, 2]
    """
    return sorted(sorted(range(len(aimed)), key=lambda i: (not aimed[i], i))[:limit])
