"""Categories that are made from values where they are counted: bins of numbers; years, quarters, months of dates."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

from ..errors import InvalidArgument
from .values import ISO, DateFormat, Staged, dates_of, decimals, exact_number, numbers_of

Open = Literal["below", "above", "both"]

MOST_EDGES = 1000
_PLACES = 9


@dataclass(frozen=True)
class Bins:
    """Classes of numbers, each from its edge on to under the next: a value that equals an edge is above it.

    Args:
        edges: where classes begin, increasing: whole numbers, or decimals as text. The last is where the last class
            ends, unless that is open.
        open: whether there is a class below the first edge, one from the last edge on, or both.

    Raises:
        InvalidArgument: edges that are no numbers, do not increase, or leave no class.

    >>> Bins((0, 18, 65), "above").labels
    ('0-17', '18-64', '65+')
    >>> Bins(("0", "0.5", "1"), "both").labels
    ('under 0', '0 to under 0.5', '0.5 to under 1', '1+')
    """

    edges: tuple[int | str, ...]
    open: Open | None = None

    def __post_init__(self) -> None:
        if len(self.edges) > MOST_EDGES:
            raise InvalidArgument(
                f"has {len(self.edges):,} edges, and at most {MOST_EDGES:,} are taken: use fewer"
            )
        if any(after <= before for before, after in pairwise(self.exact)):
            raise InvalidArgument("must increase: each class is from its edge on to under the next")
        if decimals(self.exact) > _PLACES:
            raise InvalidArgument(f"has edges of more than {_PLACES} decimals: use fewer")
        if not self.labels:
            raise InvalidArgument(
                'leaves no class: write two edges or more, as in [0, 18, 65], or open = "above"; with open = "both" one'
            )

    @cached_property
    def exact(self) -> tuple[Fraction, ...]:
        return tuple(exact_number(edge) for edge in self.edges)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """What the classes are called: by their whole numbers where all edges are whole, and else by their edges."""
        written = [str(edge).strip() for edge in self.edges]
        between = [f"{low} to under {high}" for low, high in pairwise(written)]
        if all(isinstance(edge, int) for edge in self.edges):
            ends = [(int(low), int(high) - 1) for low, high in pairwise(self.edges)]
            dash = " to " if any("-" in edge for edge in written) else "-"
            between = [f"{low}" if low == high else f"{low}{dash}{high}" for low, high in ends]
        below = [f"under {written[0]}"] if self._below and written else []
        above = [f"{written[-1]}+"] if self.open in ("above", "both") and written else []
        return (*below, *between, *above)

    @property
    def ends(self) -> tuple[tuple[int, int], ...] | None:
        """Where each class begins and ends; None where one is open, or edges are no whole numbers."""
        whole = [edge for edge in self.edges if isinstance(edge, int)]
        return None if self.open or len(whole) < len(self.edges) else tuple(pairwise(whole))

    @property
    def _below(self) -> bool:
        return self.open in ("below", "both")

    @property
    def examples(self) -> tuple[str, ...]:
        """A number of each class, as text."""
        written = [str(edge).strip() for edge in self.edges]
        before = [f"{Decimal(written[0]) - Decimal(1).scaleb(-_PLACES):f}"] if self._below else []
        return (*before, *written[: len(self.labels) - len(before)])

    def keys(self, codes: Sequence[int]) -> dict[int, int]:
        """How many edges a value has reached -> the code of its class."""
        return dict(enumerate(codes, start=0 if self._below else 1))

    def keyed(self, table: Any, column: str, key: str, what: str, decimal: str) -> Any:
        """The table with how many edges the column's value has reached: -1 for what is no number, NULL for NULL.

        Args:
            table: with the column.
            column, key: its name, and that of the column that is added.
            what: what messages call it.
            decimal: the sign before decimals of numbers that are text.
        """
        import ibis

        staged = Staged(table, key)
        numbers = numbers_of(table[column], what, decimal, decimals(self.exact), staged.once)
        starts = [numbers.start(edge) for edge in self.exact]
        value = numbers.value

        def reached(low: int, high: int) -> Any:
            if low == high:
                return ibis.literal(low, "int64")
            middle = (low + high) // 2
            return ibis.ifelse(value >= starts[middle], reached(middle + 1, high), reached(low, middle))

        number = ibis.ifelse(value.isnull(), ibis.null("int64"), reached(0, len(starts)))
        found = ibis.ifelse(numbers.bad, ibis.literal(-1, "int64"), number)
        return staged.table.mutate(**{key: found}).drop(*staged.added)


@dataclass(frozen=True)
class Grid:
    """The grid of a measured value: whole steps from its lowest number to its highest, to which numbers are rounded.

    A number half-way between two points goes to the upper one. Each is rounded by itself, before anything is added up.

    Args:
        low, high: the ends.
        step: a number that divides what is between them, with at most 8 decimals.
        null: the number that NULL stands for; None: it stands for none.

    Raises:
        InvalidArgument: ends or a step of so many digits that engines would not compare them exactly.

    >>> Grid(0, 10, Fraction(2)).steps
    5
    """

    low: int
    high: int
    step: Fraction
    null: int | None = None

    def __post_init__(self) -> None:
        if self.null is not None and not self.low <= self.null <= self.high:
            raise InvalidArgument(f"takes NULL for {self.null}, which is outside {self.low} to {self.high}")
        if self.null is not None and (Fraction(self.null - self.low) / self.step).denominator > 1:
            near = self.low + (self.null - self.low) // self.step * self.step
            raise InvalidArgument(
                f"takes NULL for {self.null}, which is none of its numbers: {float(near):.12g} and "
                f"{float(near + self.step):.12g} are"
            )
        if 10**self._places % (self.step / 2).denominator:
            raise InvalidArgument(f"has a step of more than {_PLACES - 1} decimals: use a coarser one")
        if max(abs(self.low), abs(self.high)) * 10**self._places > 10**15:
            raise InvalidArgument(
                "has a range and a step of more than 15 digits together: use a coarser step"
            )

    @cached_property
    def _places(self) -> int:
        half = (self.step / 2).denominator
        return next((k for k in range(_PLACES + 1) if 10**k % half == 0), 0)

    @property
    def steps(self) -> int:
        return int((self.high - self.low) / self.step)

    @property
    def examples(self) -> tuple[tuple[str, int], ...]:
        """Numbers as text with their places on the grid: its ends, and some between."""
        places = sorted({0, 1, self.steps // 2, self.steps - 1, self.steps})
        return tuple((f"{Decimal(str(float(self.low + k * self.step))):f}", k) for k in places)

    @property
    def _null(self) -> int:
        assert self.null is not None
        return int((self.null - self.low) / self.step) + 1

    def keys(self, codes: Sequence[int]) -> range:
        """The keys of the grid's points, in order."""
        return range(1, self.steps + 2)

    def keyed(self, table: Any, column: str, key: str, what: str, decimal: str) -> Any:
        """The table with the key of each number: 0 below the grid, one after the last above it; see `Bins.keyed`."""
        import ibis

        staged = Staged(table, key)
        numbers = numbers_of(table[column], what, decimal, self._places, staged.once)
        low, high = numbers.start(Fraction(self.low)), numbers.start(Fraction(self.high))
        below, beyond = numbers.value < low, numbers.value >= numbers.after(Fraction(self.high))
        inside = staged.once(ibis.cases((below, low), (beyond, high), else_=numbers.value))
        unit = int(self.step * 10**self._places)
        place = (staged.once(numbers.above(inside, self.low)) + unit // 2) // unit
        found = ibis.cases(
            (numbers.bad, ibis.literal(-1, "int64")),
            (
                numbers.value.isnull(),
                ibis.null("int64") if self.null is None else ibis.literal(self._null, "int64"),
            ),
            (below, ibis.literal(0, "int64")),
            (beyond, ibis.literal(self.steps + 2, "int64")),
            else_=place.cast("int64") + 1,
        )
        return staged.table.mutate(**{key: found}).drop(*staged.added)


Part = Literal["years", "quarters", "months"]
_WRITTEN = {
    "quarters": (r"([0-9]{4})-Q([1-4])", 4, '["2019-Q1", "2024-Q4"]'),
    "months": (r"([0-9]{4})-(0[1-9]|1[0-2])", 12, '["2019-01", "2024-12"]'),
}
_MOST = 12 * 9999


@dataclass(frozen=True)
class Periods:
    """The years, quarters or months of dates, from a first one to a last one, both included.

    Args:
        part: of what length they are.
        first, last: years as numbers, quarters as "2019-Q1", months as "2019-01".
        format: how dates that are text are written.

    Raises:
        InvalidArgument: a period that is not written so, or a last one before the first.

    >>> Periods("quarters", "2019-Q3", "2020-Q1").values
    ('2019-Q3', '2019-Q4', '2020-Q1')
    """

    part: Part
    first: int | str
    last: int | str
    format: DateFormat = ISO

    def __post_init__(self) -> None:
        if self._number(self.last) < self._number(self.first):
            raise InvalidArgument("must be [first, last], both included")
        if self.part != "years" and "MM" not in self.format.at:
            raise InvalidArgument(
                f"has {self.part}, and dates written as {self.format.text!r} do not tell the month"
            )

    def _number(self, period: int | str) -> int:
        """How many periods there were before it, since the year 0."""
        if self.part == "years":
            if isinstance(period, bool) or not isinstance(period, int) or not 1 <= period <= 9999:
                raise InvalidArgument(f"must be years from 1 to 9999, as in [1900, 2024], not {period!r}")
            return period
        pattern, count, example = _WRITTEN[self.part]
        found = re.fullmatch(pattern, period, re.ASCII) if isinstance(period, str) else None
        if found is None or not int(found[1]):
            raise InvalidArgument(f"must be {self.part}, as in {example}, not {period!r}")
        return int(found[1]) * count + int(found[2]) - 1

    @property
    def values(self) -> tuple[int, ...] | tuple[str, ...]:
        """The periods: numbers of years, and else text."""
        every = range(self._number(self.first), self._number(self.last) + 1)
        if self.part == "years":
            return tuple(every)
        if self.part == "quarters":
            return tuple(f"{number // 4:04}-Q{number % 4 + 1}" for number in every)
        return tuple(f"{number // 12:04}-{number % 12 + 1:02}" for number in every)

    @property
    def examples(self) -> tuple[str, ...]:
        """A date of each period, as text."""
        dates = []
        for value in map(str, self.values):
            year, _, rest = value.partition("-")
            month = f"{3 * int(rest[1:]):02}" if self.part == "quarters" else rest or "01"
            dates.append(self.format.written(f"{int(year):04}", month, "28"))
        return tuple(dates)

    def keys(self, codes: Sequence[int]) -> dict[int, int]:
        """Number of the period -> its code."""
        return dict(enumerate(codes, start=self._number(self.first)))

    def keyed(self, table: Any, column: str, key: str, what: str, decimal: str) -> Any:
        """The table with the number of each date's period: -1 for what is no date, NULL for NULL; see `Bins.keyed`."""
        import ibis

        staged = Staged(table, key)
        dates = dates_of(table[column], what, self.format, staged.once)
        number, month = dates.year, dates.month
        if self.part == "quarters":
            number = number * 4 + ibis.cases((month <= 3, 0), (month <= 6, 1), (month <= 9, 2), else_=3)
        elif self.part == "months":
            number = number * 12 + month - 1
        found = ibis.ifelse(dates.bad, ibis.literal(-1, "int64"), number)
        return staged.table.mutate(**{key: found}).drop(*staged.added)
