"""The least budget that meets targets, where a larger budget may miss what a smaller one meets."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

from ..privacy import round_digits

_DIGITS = 4
_PARTS = 48  # steps of the grid from a power of ten to the next: 4.9 % each
_GALLOP = 29  # steps: about a factor of 4


def least_met(
    possible: Callable[[Fraction], bool],
    met: Callable[[Fraction], bool],
    *,
    fewest: int = -12,
    most: int = 8,
) -> Fraction | None:
    """The least budget of 4 digits that meets targets, as a grid of budgets tells; None where none of them does.

    Noise of whole numbers does not grow smaller evenly: once it is about one count, half-widths may rise where the
    budget does. So nothing follows from one budget for another, and budgets are tried in order: the grid is
    ``10^(k / 48)``, rounded up at 4 digits, the same for all targets. The interval between the first of its budgets
    that meets them and the one before is halved, down to two neighbours of 4 digits: the larger meets the targets,
    the smaller does not. A larger budget may miss them again.

    Arguments:
        possible: of an amount: False where it cannot be enough, and then for every smaller one. For speed.
        met: whether an amount is enough. Whatever is returned was asked.
        fewest, most: powers of ten at which the grid begins and ends.

    >>> least_met(lambda amount: True, lambda amount: 2 <= amount < 3 or amount >= 5)
    Fraction(2, 1)
    >>> least_met(lambda amount: True, lambda amount: False) is None
    True
    """
    first, last = fewest * _PARTS, most * _PARTS
    start = _first_possible(possible, first, last)
    for k in range(start, last + 1):
        if met(grid_budget(k)):
            return grid_budget(k) if k == first else _between(grid_budget(k - 1), grid_budget(k), met)
    return None


@lru_cache(maxsize=1024)
def grid_budget(k: int) -> Fraction:
    """``10^(k / 48)``, rounded up at 4 digits.

    >>> [float(grid_budget(k)) for k in (-48, 0, 1, 2, 48)]
    [0.1, 1.0, 1.05, 1.101, 10.0]
    """
    power, part = divmod(k, _PARTS)
    return Fraction(10) ** power * round_digits(Fraction(10.0 ** (part / _PARTS)), _DIGITS, up=True)


def next_up(amount: Fraction) -> Fraction:
    """The least number of 4 digits that is not below an amount."""
    return round_digits(amount, _DIGITS, up=True)


def _first_possible(possible: Callable[[Fraction], bool], first: int, last: int) -> int:
    """The first k whose budget is possible, ``last + 1`` where none is: from 1 by large steps, and then by halving."""
    low = high = 0
    if possible(grid_budget(0)):
        while low >= first and possible(grid_budget(low)):
            low, high = low - _GALLOP, low
    else:
        while high <= last and not possible(grid_budget(high)):
            low, high = high, high + _GALLOP
    low, high = max(low, first - 1), min(high, last + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if possible(grid_budget(middle)) else (middle, high)
    return high


def _between(low: Fraction, high: Fraction, met: Callable[[Fraction], bool]) -> Fraction:
    """By halving the ratio of a budget that is not enough and one that is."""
    while (below := _next_down(high)) > low:
        middle = min(next_up(Fraction(float(low * high) ** 0.5)), below)
        low, high = (low, middle) if met(middle) else (middle, high)
    return high


def _next_down(amount: Fraction) -> Fraction:
    """The next number of 4 digits below one of 4 digits."""
    return round_digits(amount * (1 - Fraction(1, 10**6)), _DIGITS)
