"""What a stored value means as a number, a date or text: expressions that every engine evaluates alike.

Numbers are compared exactly, and never as floats that only look equal:

* Text is a number where it is ``[+-]digits[.digits]``. Of its decimals as many are compared as the public number has;
  whether more follow is remembered.
* A float means the shortest decimal that reads back as it: 0.3 is three tenths, whatever its bits are nearest to.
* NaN is NULL. An infinite number, and text of any other form, are no numbers.

Dates are those of the calendar that all of today's dates are of, reckoned back: year 1 to 9999.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import ceil, floor
from typing import Any

import numpy as np

from ..errors import DataError, InvalidArgument

BLANKS = " \t\n\r\v\f"
_NUMBER = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
_MOST_DIGITS = 15
_DIGITS = 18  # of a whole number that 64 bits hold twice


def exact_number(text: str | int) -> Fraction:
    """A number of a public document, exactly.

    Raises:
        InvalidArgument: it is none, or has so many digits that engines would not compare it exactly.

    >>> exact_number("2.50")
    Fraction(5, 2)
    """
    written = str(text).strip()
    if isinstance(text, bool) or not re.fullmatch(_NUMBER, written, re.ASCII):
        raise InvalidArgument(f'{text!r} is no number: write it with digits, such as 18 or "2.5"')
    if len(re.sub(r"[^0-9]", "", written)) > _MOST_DIGITS:
        raise InvalidArgument(
            f"{written} has more than {_MOST_DIGITS} digits: numbers are compared with fewer"
        )
    return Fraction(written)


def plain_text(raw: Any) -> Any:
    """Text without blanks around it, NULL where nothing else is in it."""
    import ibis

    text = raw.cast("string")
    # Most texts have none, and to see that takes a third of the time of stripping them.
    around = text.left(1).isin(list(BLANKS)) | text.right(1).isin(list(BLANKS))
    bare: Any = ibis.ifelse(around, text.strip(), text)
    return bare.nullif("")


def whole_number(decimal: str = ".") -> str:
    """The pattern of a whole number as text, its digits without leading zeros in the first group.

    >>> re.search(whole_number(","), "+034,0")[1]
    '34'
    """
    return rf"^[+-]?0*([0-9]+)({re.escape(decimal)}0+)?$"


def plain_number(text: Any, decimal: str = ".") -> Any:
    """Whole numbers in plain digits ("+007" and "7.0" become "7"), "?" for other text, NULL for NULL."""
    import ibis

    written = whole_number(decimal)
    digits = text.re_extract(written, 1)
    negative = text.startswith("-") & (digits != "0")
    return ibis.cases(
        (text.isnull(), ibis.null("string")),
        (~_is_all(text, written), "?"),
        (negative, ibis.literal("-") + digits),
        else_=digits,
    )


def _is_all(text: Any, pattern: str) -> Any:
    """Whether a pattern is the whole of text that is not empty.

    In some engines "$" also stands before a line's end, of which there are many kinds: that would be left over.
    """
    return text.re_replace(pattern, "") == ""


class Staged:
    """A table to which intermediate results are added as columns, so that engines compute each of them once.

    Attributes:
        table: the table with what was added so far.
        added: the names of these columns.
    """

    def __init__(self, table: Any, prefix: str) -> None:
        self.table = table
        self.prefix = prefix
        self.added: list[str] = []

    def once(self, value: Any) -> Any:
        """The value, as a column of the table."""
        self.added.append(f"{self.prefix}_{len(self.added)}")
        self.table = self.table.mutate(**{self.added[-1]: value})
        return self.table[self.added[-1]]


def _each_time(value: Any) -> Any:
    return value


Once = Callable[[Any], Any]


@dataclass(frozen=True, eq=False)
class NumberColumn:
    """A column's numbers on a line of whole or floating numbers that keeps their order.

    A number x of the column is at least a public number e exactly where ``value >= start(e)``, and above it where
    ``value >= after(e)``.

    Attributes:
        value: NULL where there is none, or no number.
        bad: whether there is something, and no number.
        whole: whether it is a whole number, where it is a number.
        start, after: public number -> place on the line, as an expression.
        above: place that is at least a whole number's, that number -> what is between them in units of the last
            decimal that is compared, rounded down: a whole number.
    """

    value: Any
    bad: Any
    whole: Any
    start: Callable[[Fraction], Any]
    after: Callable[[Fraction], Any]
    above: Callable[[Any, int], Any]


def numbers_of(
    raw: Any, what: str, decimal: str = ".", places: int = 0, once: Once = _each_time
) -> NumberColumn:
    """The numbers of a column of any type.

    Args:
        raw: the column.
        what: what messages call it.
        decimal: the sign before decimals, where it is text.
        places: how many decimals the public numbers have, with which it is compared.
        once: makes a column of what is used several times; see `Staged`.

    Raises:
        DataError: a type whose values are no numbers.
    """
    kind = raw.type()
    if kind.is_integer():
        return _integers(raw, places, once)
    if kind.is_floating():
        return _floats(raw, places, once)
    if kind.is_decimal():
        return _written(raw.cast("string"), ".", places, once)
    if kind.is_string() or kind.is_null():
        return _written(plain_text(raw), decimal, places, once)
    raise wrong_type(raw, what, "numbers are stored as numbers or as text")


def wrong_type(raw: Any, what: str, remedy: str) -> DataError:
    """The error for a column whose type does not fit what is asked of it."""
    kind = raw.type()
    named = "a type that is not read" if kind.is_unknown() else f"type {kind}"
    return DataError(f"{what} has {named}: {remedy}")


def _integers(raw: Any, places: int, once: Once) -> NumberColumn:
    import ibis

    def at(place: int) -> Any:
        return ibis.literal(place, "int64")

    return NumberColumn(
        once(raw),
        once(raw.isnull() & raw.notnull()),
        ibis.literal(value=True),
        lambda edge: at(ceil(edge)),
        lambda edge: at(floor(edge) + 1),
        lambda place, low: (place.cast("int64") - at(low)) * 10**places,
    )


def _floats(raw: Any, places: int, once: Once) -> NumberColumn:
    import ibis

    def above(place: Any, low: int) -> Any:
        """A float times a power of ten is rounded: a unit is reached where the float nearest to it is."""
        units, ten = once((place * float(10**places)).floor()), float(10**places)
        least = ibis.cases(
            ((units + 1) / ten <= place, units + 1), (units / ten > place, units - 1), else_=units
        )
        return least.cast("int64") - low * 10**places

    single = raw.type().is_float32()
    number = raw.cast("float64")
    finite = number.abs() <= _double(np.finfo(np.float64).max)
    value = once(ibis.ifelse(~number.isnan() & finite, number, ibis.null("float64")))
    small: Any = ibis.ifelse(value.abs() < 2.0**53, value, 0.0)  # beyond, all are whole, and 64 bits end
    kind = np.float32 if single else np.float64
    return NumberColumn(
        value,
        once(raw.notnull() & ~number.isnan() & ~finite),
        small.floor() == small,
        lambda edge: _double(least_float(edge, kind, above=False)),
        lambda edge: _double(least_float(edge, kind, above=True)),
        above,
    )


def _double(number: Any) -> Any:
    """A float as text in a statement: engines read the digits of text exactly, and others as decimals."""
    import ibis

    return ibis.literal(repr(float(number))).cast("float64")


def least_float(edge: Fraction, kind: type[np.floating[Any]], *, above: bool) -> float:
    """The least float whose shortest decimal is at least a number, or ``above`` it.

    >>> least_float(Fraction(3, 10), np.float64, above=False), least_float(Fraction(3, 10), np.float64, above=True)
    (0.3, 0.30000000000000004)
    """

    def fits(number: Any) -> bool:
        meant = Fraction(str(number))
        return meant > edge if above else meant >= edge

    number = kind(float(edge))
    while fits(before := np.nextafter(number, kind(-np.inf))):
        number = before
    while not fits(number):
        number = np.nextafter(number, kind(np.inf))
    return float(number)


def _written(text: Any, decimal: str, places: int, once: Once) -> NumberColumn:
    """Numbers that are text. With n the greatest multiple of 10^-places up to one, its place on the line is 2 n
    10^places, and one more where it is above n; those of very many digits stand together beyond all public numbers."""
    import ibis

    sign = re.escape(decimal)
    is_number = once(_is_all(text, rf"^[+-]?[0-9]+({sign}[0-9]+)?$"))
    number = once(
        ibis.ifelse(is_number, text, "0")
    )  # what is none is read, too: engines may compute what they do not use
    kept = _DIGITS - places
    digits = once(number.re_extract(r"^[+-]?0*([0-9]+)", 1))
    magnitude = digits.left(kept).cast("int64") * 10**places
    if places:
        after: Any = ibis.coalesce(number.re_extract(rf"{sign}([0-9]{{1,{places}}})", 1), "")
        magnitude = magnitude + (after + "0" * places).left(places).cast("int64")
    most = ibis.literal(10**_DIGITS, "int64")
    shown: Any = ibis.ifelse(digits.length() > kept, most, magnitude)
    doubled = once(2 * shown)
    more = number.re_search(rf"{sign}[0-9]{{{places}}}[0-9]*[1-9]")
    above = once(ibis.ifelse(more, 1, 0).cast("int64"))
    value = ibis.ifelse(number.startswith("-"), -doubled - above, doubled + above)
    scale = 10**places

    def at(edge: Fraction, beyond: int) -> Any:
        assert (edge * scale).denominator == 1
        return ibis.literal(2 * int(edge * scale) + beyond, "int64")

    return NumberColumn(
        once(ibis.ifelse(is_number, value, ibis.null("int64"))),
        once(text.notnull() & ~is_number),
        ~number.re_search(rf"{sign}0*[1-9]"),
        lambda edge: at(edge, 0),
        lambda edge: at(edge, 1),
        lambda place, low: (place - at(Fraction(low), 0)) // 2,
    )


def decimals(numbers: Sequence[Fraction]) -> int:
    """How many decimals the longest of some numbers has.

    >>> decimals([Fraction(5, 2), Fraction(1, 8)])
    3
    """
    places = 0
    while any((number * 10**places).denominator > 1 for number in numbers):
        places += 1
    return places


_TOKENS = {"YYYY": 4, "MM": 2, "DD": 2}
_TIME = r"([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.,][0-9]+)?)?( ?(Z|[+-][0-9]{2}(:?[0-9]{2})?))?)?"
_YEAR = "([0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"
_LEAP_YEAR = "([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)"
_MONTH = "(0[1-9]|1[0-2])"
_DAYS = (
    (_YEAR, "(0[13578]|1[02])", "(0[1-9]|[12][0-9]|3[01])"),
    (_YEAR, "(0[469]|11)", "(0[1-9]|[12][0-9]|30)"),
    (_YEAR, "02", "(0[1-9]|1[0-9]|2[0-8])"),
    (_LEAP_YEAR, "02", "29"),
)
"""The days of the calendar: year, month and day by their digits."""


@dataclass(frozen=True)
class DateFormat:
    """How dates are written as text: YYYY, MM and DD once at most, with signs between; a time may follow the day.

    >>> DateFormat("DD.MM.YYYY").at
    {'DD': 0, 'MM': 3, 'YYYY': 6}
    """

    text: str = "YYYY-MM-DD"

    def __post_init__(self) -> None:
        left = self.text
        for token in _TOKENS:
            left = left.replace(token, "", 1)
        if "YYYY" not in self.text or ("DD" in self.text and "MM" not in self.text):
            raise InvalidArgument(
                f'{self.text!r} does not say where the year stands: write "DD.MM.YYYY", say'
            )
        if re.search(r"[^-./ ]", left) or len(left) > 2:
            raise InvalidArgument(
                f"{self.text!r} is no way to write dates: use YYYY, MM and DD, each once, with - . / or a blank between"
            )

    @cached_property
    def at(self) -> dict[str, int]:
        """Where each part stands."""
        found = {token: self.text.find(token) for token in _TOKENS}
        return {
            token: place for token, place in sorted(found.items(), key=lambda pair: pair[1]) if place >= 0
        }

    @cached_property
    def pattern(self) -> str:
        """What is a date of the calendar, written so."""
        days = _DAYS if "DD" in self.at else ((_YEAR, _MONTH, ""),)
        every = "|".join(self.written(*day).replace(".", r"\.") for day in days)
        return f"^({every}){_TIME if 'DD' in self.at else ''}$"

    def written(self, year: str, month: str, day: str) -> str:
        """A date with these parts.

        >>> DateFormat("DD.MM.YYYY").written("2024", "02", "29")
        '29.02.2024'
        """
        parts = {"YYYY": year, "MM": month, "DD": day}
        return re.sub("YYYY|MM|DD", lambda token: parts[token[0]], self.text)


ISO = DateFormat()


@dataclass(frozen=True, eq=False)
class DateColumn:
    """The dates of a column, NULL where there is none, or no date of the calendar.

    Attributes:
        year, month: whole numbers.
        since: a date -> whether a date of the column is it or later.
        bad: whether there is something, and no date.
    """

    year: Any
    month: Any
    since: Callable[[datetime.date], Any]
    bad: Any


def dates_of(raw: Any, what: str, written: DateFormat = ISO, once: Once = _each_time) -> DateColumn:
    """The dates of a column of dates, of times without a zone, or of text.

    Args:
        raw: the column.
        what: what messages call it.
        written: how dates that are text are written.
        once: makes a column of what is used several times; see `Staged`.

    Raises:
        DataError: another type, or times whose date depends on a time zone.
    """
    kind = raw.type()
    if kind.is_timestamp() and kind.timezone is not None:
        raise wrong_type(
            raw, what, "on which day such a time falls depends on a time zone; convert it to a date"
        )
    if kind.is_date() or kind.is_timestamp():
        return _stored_dates(raw, once)
    if kind.is_string() or kind.is_null():
        return _written_dates(plain_text(raw), written, once)
    if kind.is_integer():
        return _written_dates(raw.cast("string"), written, once)
    raise wrong_type(raw, what, "dates are stored as dates, as times without a zone, or as text")


def _stored_dates(raw: Any, once: Once) -> DateColumn:
    import ibis

    def at(day: datetime.date) -> Any:
        return (
            ibis.literal(day)
            if raw.type().is_date()
            else ibis.literal(datetime.datetime(*day.timetuple()[:3]))
        )

    last = datetime.date(9999, 12, 31)
    # Beyond it are years of five digits, and what some engines call infinity; before it, years before the first.
    inside = (raw >= at(datetime.date.min)) & ((raw < at(last)) | (raw.cast("date") == ibis.literal(last)))
    day = once(ibis.ifelse(inside, raw, ibis.null(raw.type())))
    bad = once(raw.notnull() & ~inside)
    return DateColumn(day.year().cast("int64"), day.month().cast("int64"), lambda date: day >= at(date), bad)


def _written_dates(text: Any, written: DateFormat, once: Once) -> DateColumn:
    import ibis

    is_date = once(_is_all(text, written.pattern))
    # What is none is read, too: engines may compute what they do not use.
    date = once(ibis.ifelse(is_date, text, written.written("0001", "01", "01")))

    def part(token: str) -> Any:
        if token not in written.at:
            return ibis.literal("01")
        return date.re_extract(rf"^.{{{written.at[token]}}}([0-9]{{{_TOKENS[token]}}})", 1)

    digits = once(
        ibis.ifelse(is_date, part("YYYY") + part("MM") + part("DD"), ibis.null("string")).cast("int64")
    )
    return DateColumn(
        digits // 10_000,
        digits // 100 % 100,
        lambda day: digits >= day.year * 10_000 + day.month * 100 + day.day,
        once(text.notnull() & ~is_date),
    )


def _folded() -> dict[str, str]:
    """Letter -> the letter that it is folded to: simple case folding, one letter for one."""
    pairs = {}
    for point in (*range(0x41, 0x250), *range(0x370, 0x530), *range(0x531, 0x557), *range(0x1E00, 0x2000)):
        letter = chr(point)
        found = next((one for one in (letter.casefold(), letter.lower()) if len(one) == 1), letter)
        if found != letter:
            pairs[letter] = found
    return pairs


_FOLDED = _folded()


def fold(text: str) -> str:
    """Text without its case, as :func:`folded` has it.

    >>> fold("ÖSTERREICH"), fold("Straße"), fold("ΣΊΣΥΦΟΣ") == fold("σίσυφος")
    ('österreich', 'straße', True)
    """
    return "".join(_FOLDED.get(letter, letter) for letter in text)


def folded(text: Any) -> Any:
    """Text without its case: each letter by Unicode's simple case folding, one for one.

    It is a table of the letters of the Latin, Greek, Cyrillic and Armenian scripts, the same for all engines, whose own
    functions differ by language and version.
    """
    return text.translate("".join(_FOLDED), "".join(_FOLDED.values()))
