"""Exact numbers: how they are read from what people write, and rounded in a direction that is said.

A privacy budget is never a float: it is read, compared, split and added as a fraction.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from fractions import Fraction
from numbers import Integral, Rational

from ...errors import InvalidArgument

Exact = Fraction | int | str | float
"""What a caller may write where an exact number is meant."""

ABSURD = 10**30
_NUMBER = re.compile(r"[+-]?(\d+/\d+|(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?)")
_LONGEST = 1000


def exact(value: Exact, name: str = "value") -> Fraction:
    """Read a number exactly: a fraction, an integer, ``"542/339"``, ``"2.5562"`` or ``"1e-10"``.

    A float means its shortest decimal (0.1 is 1/10), because that is what its author wrote.

    Args:
        value: the number.
        name: what to call it in an error.

    Raises:
        InvalidArgument: not a number, or a boolean, NaN or infinite.

    Privacy: none is spent; exact budgets are what keeps a sum of losses from drifting past a cap.

    >>> exact("542/339"), exact(0.1), exact("1e-3")
    (Fraction(542, 339), Fraction(1, 10), Fraction(1, 1000))
    """
    if isinstance(value, Fraction):
        return value
    if isinstance(value, bool):
        raise InvalidArgument(f'{name} is {value}, a boolean; write a number such as "1/2"')
    if isinstance(value, Integral):
        return Fraction(int(value))
    if isinstance(value, Rational):
        return Fraction(int(value.numerator), int(value.denominator))
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidArgument(f"{name} is {float(value)!r}; it must be finite")
        return Fraction(float.__repr__(value))
    if isinstance(value, Decimal):
        value = str(value)
    if isinstance(value, str):
        return _read(value, name)
    raise InvalidArgument(f'{name} is a {type(value).__name__}; write a number such as "1/2" or 0.5')


def _read(text: str, name: str) -> Fraction:
    stripped = text.strip()
    if len(stripped) > _LONGEST or not _NUMBER.fullmatch(stripped):
        shown = stripped if len(stripped) <= 40 else stripped[:37] + "..."
        raise InvalidArgument(
            f"{name} is {shown!r}, which is not a finite number; write a fraction or a decimal "
            'such as "542/339" or "2.5562"'
        )
    try:
        return Fraction(stripped)
    except ZeroDivisionError as error:
        raise InvalidArgument(f"{name} is {stripped!r}, a division by zero") from error


def positive(value: Exact, name: str) -> Fraction:
    """Read a number that must be above 0 and below 10^30.

    Raises:
        InvalidArgument: not a number, not positive, or absurdly large.

    Privacy: refuses the zero, negative and infinite parameters for which no theorem holds.

    >>> positive("1/2", "rho")
    Fraction(1, 2)
    """
    number = exact(value, name)
    if number <= 0:
        raise InvalidArgument(f"{name} is {value}; it must be positive")
    if number >= ABSURD:
        raise InvalidArgument(f"{name} is 10^30 or more, which promises nothing; choose a number below")
    return number


def probability(value: Exact, name: str) -> Fraction:
    """Read a number that must lie strictly between 0 and 1.

    Raises:
        InvalidArgument: not a number, or outside (0, 1).

    Privacy: a delta of 0 is pure differential privacy and a delta of 1 is none: both are refused here.

    >>> probability("1e-10", "delta")
    Fraction(1, 10000000000)
    """
    number = exact(value, name)
    if not 0 < number < 1:
        raise InvalidArgument(f"{name} is {value}; it must lie strictly between 0 and 1")
    return number


def float_up(value: Fraction) -> float:
    """The least float that is at least ``value``.

    Privacy: statements about a loss are rounded towards more loss.

    >>> float_up(Fraction(1, 3)) >= Fraction(1, 3)
    True
    """
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def rounded_up(value: float, digits: int = 4) -> float:
    """A bound as it is told: not below what was proven.

    Privacy: none is spent; a bound stays one when it is made larger.

    >>> rounded_up(9.50343), rounded_up(24.4), rounded_up(0.0)
    (9.504, 24.4, 0.0)
    """
    if not 0 < value < math.inf:
        return value
    return float(round_digits(Fraction(repr(float(value))), digits, up=True))


def round_digits(value: Fraction, digits: int, *, up: bool = False) -> Fraction:
    """A positive number rounded down (or up) to a decimal of so many significant digits.

    Privacy: none is spent; the direction is chosen by the caller towards more noise or less budget.

    >>> round_digits(Fraction(2, 3), 3), round_digits(Fraction(2, 3), 3, up=True)
    (Fraction(333, 500), Fraction(667, 1000))
    """
    exponent = len(str(value.numerator)) - len(str(value.denominator)) - digits
    step = Fraction(10) ** exponent
    while value / step >= 10**digits:
        step *= 10
    count = value / step
    return step * (-(-count.numerator // count.denominator) if up else count.numerator // count.denominator)


_PLACES = 12


def decimal(value: Fraction) -> str:
    """Print an exact number as a decimal where it has a short one, or else as a fraction.

    Privacy: none is spent; :func:`exact` reads the same number back.

    >>> decimal(Fraction(19, 10)), decimal(Fraction(1, 3)), decimal(Fraction(2))
    ('1.9', '1/3', '2')
    """
    for places in range(_PLACES):
        scaled = value * 10**places
        if scaled.denominator == 1:
            digits = str(scaled.numerator).rjust(places + 1, "0")
            return f"{digits[:-places]}.{digits[-places:]}" if places else digits
    return str(value)
