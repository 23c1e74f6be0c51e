"""Records in strict delimited text: which columns there are, in which order, and what each may hold.

One record a line, UTF-8, one line of column names, fields divided by one sign. Nothing is quoted or escaped: a quote
is a letter like others. A layout says everything that a valid file may hold, so that all else is a fault.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from ..domain.groups import Family
from ..errors import InvalidArgument


@dataclass(frozen=True)
class Unused:
    """A column that may hold anything, and is not read."""


@dataclass(frozen=True)
class Key:
    """A part of the key of the leaf that the record lies in; all parts together, in order, name a known leaf."""


@dataclass(frozen=True)
class Listed:
    """An attribute whose values are listed: the i-th value has code i."""

    attribute: str
    values: tuple[str, ...]

    @property
    def size(self) -> int:
        """The number of values."""
        return len(self.values)

    def fault(self, value: str) -> str | None:
        """What is wrong with a value, or None."""
        return None if value in self.values else f"must be one of {', '.join(map(repr, self.values))}"


@dataclass(frozen=True)
class WholeNumber:
    """An attribute in digits, from ``low`` to ``high``, with zeros before them or not; ``low`` has code 0."""

    attribute: str
    low: int
    high: int

    @property
    def size(self) -> int:
        """The number of values."""
        return self.high - self.low + 1

    def fault(self, value: str) -> str | None:
        """What is wrong with a value, or None."""
        digits = re.fullmatch("0*([0-9]+)", value)
        known = digits and len(digits[1]) <= len(str(self.high)) and self.low <= int(digits[1]) <= self.high
        return None if known else f"must be a whole number from {self.low} to {self.high}, in digits"


@dataclass(frozen=True)
class Code:
    """One code of a family.

    Args:
        family: the codes there are.
        none: the text that stands for no code; None where the column must hold one. After a column that holds none,
            the next columns of the family hold none, too.
        pattern: what codes look like, as a regular expression.
        looks: the same in words, for messages.
        read: False for a column that is checked and then left out.
    """

    family: Family
    none: str | None = None
    pattern: str = ".+"
    looks: str = "a code"
    read: bool = True

    def fault(self, value: str, *, known: bool = True) -> str | None:
        """What is wrong with a value, or None; only how it looks where the codes are not ``known``."""
        if value == self.none:
            return None
        if not re.fullmatch(self.pattern, value):
            return f"must be {self.looks}" + (f", or {self.none!r}" if self.none else "")
        if not known or value in self.family.position:
            return None
        return f"is not a known code of {self.family.name!r}"


Rule = Unused | Key | Listed | WholeNumber | Code


@dataclass(frozen=True)
class LineColumn:
    """One column: its name in the header, and the rule of its values."""

    name: str
    rule: Rule


@dataclass(frozen=True, eq=False)
class LineLayout:
    """The columns of a file of records, in order, and the leaves that records may lie in.

    Args:
        columns: all of them.
        leaves: the key of each leaf: as many parts as there are `Key` columns; the i-th is leaf i.
        delimiter: the sign between fields.

    Raises:
        InvalidArgument: a layout that no file could follow, or that could be read in two ways.

    >>> race = Family("race", ("10", "20"), most=2)
    >>> LineLayout(
    ...     (
    ...         LineColumn("BLOCK", Key()),
    ...         LineColumn("SEX", Listed("sex", ("1", "2"))),
    ...         LineColumn("RACE1", Code(race)),
    ...         LineColumn("RACE2", Code(race, none="Null")),
    ...     ),
    ...     leaves=[("0001",), ("0002",)],
    ... ).sizes
    {'sex': 2}
    """

    columns: tuple[LineColumn, ...]
    leaves: Sequence[tuple[str, ...]] = field(repr=False)
    delimiter: str = "|"

    def __post_init__(self) -> None:
        if len(self.delimiter) != 1 or self.delimiter.isalnum() or not self.delimiter.isascii():
            raise InvalidArgument(f"fields are divided by one ASCII sign, not by {self.delimiter!r}")
        if self.delimiter in "\r\n":
            raise InvalidArgument("fields are not divided by line ends")
        if not self.keys:
            raise InvalidArgument("a layout needs a Key column, which tells the leaf of a record")
        for name in self.names:
            if not name or re.search(f"[\r\n{re.escape(self.delimiter)}]", name):
                raise InvalidArgument(f"{name!r} cannot be the name of a column")
        attributes = [rule.attribute for _, rule in self.cells]
        for what, listed in (("column", self.names), ("attribute", attributes)):
            if len(set(listed)) != len(listed):
                raise InvalidArgument(f"a layout has one {what} of a name")
        for _, rule in self.cells:
            if rule.size < 1 or (isinstance(rule, Listed) and len(set(rule.values)) != rule.size):
                raise InvalidArgument(f"attribute {rule.attribute!r} needs values, each listed once")
        for family in self.families:
            self._check_codes(family)

    def _check_codes(self, family: Family) -> None:
        rules = [rule for _, rule in self.codes if rule.family.name == family.name]
        if any(rule.family != family for rule in rules):
            raise InvalidArgument(f"the columns of {family.name!r} are given different codes")
        if sum(rule.read for rule in rules) > family.most:
            raise InvalidArgument(
                f"a record carries up to {family.most} of {family.name!r}, but more columns are read"
            )
        if len({rule.none for rule in rules} - {None}) > 1:
            raise InvalidArgument(f"one text stands for no code of {family.name!r}")
        if any(rule.none in family.position for rule in rules):
            raise InvalidArgument(f"the text for no code of {family.name!r} is a code, too")
        if any(late.read and not early.read for early, late in pairwise(rules)):
            raise InvalidArgument(f"of the columns of {family.name!r}, the first ones are read")

    @property
    def names(self) -> tuple[str, ...]:
        """The header."""
        return tuple(column.name for column in self.columns)

    @cached_property
    def keys(self) -> tuple[int, ...]:
        """Positions of the parts of the leaf's key."""
        return tuple(i for i, column in enumerate(self.columns) if isinstance(column.rule, Key))

    @cached_property
    def cells(self) -> tuple[tuple[int, Listed | WholeNumber], ...]:
        """Positions and rules of the attributes."""
        return tuple(
            (i, column.rule)
            for i, column in enumerate(self.columns)
            if isinstance(column.rule, Listed | WholeNumber)
        )

    @cached_property
    def codes(self) -> tuple[tuple[int, Code], ...]:
        """Positions and rules of the codes."""
        return tuple(
            (i, column.rule) for i, column in enumerate(self.columns) if isinstance(column.rule, Code)
        )

    @cached_property
    def families(self) -> tuple[Family, ...]:
        """The families of codes, in the order in which columns name them."""
        return tuple({rule.family.name: rule.family for _, rule in self.codes}.values())

    @property
    def sizes(self) -> dict[str, int]:
        """Attribute -> number of its values."""
        return {rule.attribute: rule.size for _, rule in self.cells}

    @cached_property
    def neighbours(self) -> tuple[tuple[int, int], ...]:
        """Pairs of columns (one, the next) of one family: where the first holds no code, nor does the second."""
        return tuple(
            pair
            for family in self.families
            for pair in pairwise(i for i, rule in self.codes if rule.family.name == family.name)
        )
