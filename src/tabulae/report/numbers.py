"""Numbers as the page prints them: a true minus sign, and no more digits than the noise leaves."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime
from fractions import Fraction

NOTHING = "–"


def fixed(value: float | None, decimals: int = 0) -> str:
    """Print a number with fixed decimals.

    >>> fixed(-1234.5, 1)
    '−1,234.5'
    >>> fixed(float("nan"))
    '–'
    """
    if value is None or not math.isfinite(value):
        return NOTHING
    text = f"{value:,.{decimals}f}"
    if not text.strip("-0.,"):
        text = text.lstrip("-")
    return text.replace("-", "−")


def significant(value: float | None, digits: int = 3) -> str:
    """Print a magnitude with so many significant digits, and never in exponents between 0.001 and a billion.

    >>> significant(12.2576), significant(0.04), significant(123456.0)
    ('12.3', '0.04', '123,456')
    """
    if value is None or not math.isfinite(value):
        return NOTHING
    if value == 0:
        return "0"
    if not 1e-3 <= abs(value) < 1e9:
        return power_of_ten(value)
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = fixed(value, decimals)
    return text.rstrip("0").rstrip(".") if "." in text else text


def power_of_ten(value: float) -> str:
    """Print a number in powers of ten.

    >>> power_of_ten(1e-10), power_of_ten(2.5e12)
    ('10⁻¹⁰', '2.5·10¹²')
    """
    mantissa, _, exponent = f"{value:.2e}".partition("e")
    mantissa = mantissa.rstrip("0").rstrip(".").replace("-", "−")
    raised = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"10{raised}" if mantissa == "1" else f"{mantissa}·10{raised}"


def share(value: float) -> str:
    r"""Print a share as a percentage, rounded up: it stands after "at most".

    >>> share(0.13591), share(0.99999)
    ('13.6\xa0%', '99.9\xa0% or more')
    """
    if value >= 1:
        return "100\u00a0%"
    if value > 0.999:
        return "99.9\u00a0% or more"
    return f"{math.ceil(value * 1000 - 1e-9) / 10:.1f}\u00a0%"


def fraction(value: Fraction) -> str:
    """Print an exact budget: as it is where short, with its decimal value where that is easier to read.

    >>> fraction(Fraction(1, 2)), fraction(Fraction(3)), fraction(Fraction(542, 339))
    ('1/2', '3', '542/339 (≈ 1.599)')
    """
    if value.denominator == 1:
        return fixed(value.numerator)
    shortest = Fraction(str(float(value)))
    if value.denominator <= 10:
        return f"{value.numerator}/{value.denominator}"
    if shortest == value:
        return str(float(value))
    return f"{value.numerator}/{value.denominator} (≈ {float(value):.4g})"


def moment(text: str) -> str:
    """Print a time of the ISO form to the minute, in its own zone; any other text as it is.

    >>> moment("2026-11-20T11:12:05+00:00"), moment("2026-11-20")
    ('2026-11-20 11:12 UTC', '2026-11-20')
    """
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return text
    return text if time.tzinfo is None else time.strftime("%Y-%m-%d %H:%M %Z")


def decimals_for(std_errors: Iterable[float]) -> int:
    """How many decimals to print: two significant digits of the smallest standard error, three at most.

    >>> decimals_for([31.0, 4.2]), decimals_for([250.0]), decimals_for([])
    (1, 0, 0)
    """
    smallest = min((error for error in std_errors if math.isfinite(error) and error > 0), default=math.inf)
    if smallest == math.inf:
        return 0
    return min(3, max(0, 1 - math.floor(math.log10(smallest))))


def shortened(label: str, length: int = 80) -> str:
    """A label that is cut where it is long, with a sign that it is.

    >>> shortened("a long label", 7)
    'a long…'
    """
    return label if len(label) <= length else label[: length - 1] + "…"
