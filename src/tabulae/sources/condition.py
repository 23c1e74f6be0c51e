"""Which records are counted: a condition on the columns of a source, read from SQL and evaluated alike by all engines.

What a comparison means is said by the literal in it, and not by how the column is stored, so that a CSV file, a Parquet
file and a database that hold the same records count the same ones:

* beside a number, values are numbers, compared exactly as `tabulae.sources.values` says;
* beside text, values are text without blanks around it, compared letter by letter; of whole numbers, their digits;
* beside ``DATE '2024-01-31'``, values are dates; of times without a zone, their day.

NULL, text with nothing in it, and NaN are missing: comparing what is missing is neither true nor false, as in SQL, and
neither is its negation. A record is counted where the whole condition is true.

Privacy:
    Whether a record is counted follows from that record alone and from the public condition: a person more or less
    changes the records counted by that person's own.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal, NoReturn

from ..errors import DataError, InvalidArgument, Unsupported
from .values import (
    DateColumn,
    NumberColumn,
    Staged,
    dates_of,
    decimals,
    exact_number,
    numbers_of,
    plain_text,
    wrong_type,
)

Node = Any  # of sqlglot's syntax tree
Value = Fraction | str | datetime.date
Sign = Literal["=", "<", "<=", ">", ">="]

_ALLOWED = (
    "a condition compares a column with literals (=, <>, <, <=, >, >=, IN, BETWEEN) or says IS NULL; join conditions "
    "by AND, OR, NOT and parentheses"
)
_DEEPEST = 100


@dataclass(frozen=True)
class ColumnComparison:
    """A column beside one literal; two of them are a BETWEEN, several an IN."""

    column: str
    sign: Sign
    value: Value


@dataclass(frozen=True)
class Missing:
    """A column is NULL."""

    column: str


@dataclass(frozen=True)
class Not:
    """True where its part is false."""

    part: Part


@dataclass(frozen=True)
class Joined:
    """All of its parts, or some of them."""

    by: Literal["and", "or"]
    parts: tuple[Part, ...]


Part = ColumnComparison | Missing | Not | Joined


@dataclass(frozen=True)
class Condition:
    """A condition on the columns of a record.

    Args:
        text: as it is written: SQL.

    Raises:
        InvalidArgument: what is no such condition, with the clause that could not be read.
        Unsupported: it is nested too deeply.

    >>> Condition("AGE >= 18 AND STATUS IN ('a', 'b')").columns
    ('AGE', 'STATUS')
    """

    text: str

    def __post_init__(self) -> None:
        _ = self.part

    @cached_property
    def part(self) -> Part:
        return _parsed(self.text)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns that it is about, each once."""
        return tuple(dict.fromkeys(leaf.column for leaf in _leaves(self.part)))

    def over(self, records: Any, aliases: Mapping[str, str], decimal: str = ".") -> ConditionColumns:
        """The condition on records whose columns have other names.

        Args:
            records: an Ibis table.
            aliases: column -> what the table calls it.
            decimal: the sign before decimals of numbers that are text.

        Raises:
            DataError: a column of a type that cannot be compared so.
        """
        staged = Staged(records, "compared")
        read = ConditionColumns(self.part, staged, aliases)
        for name, alias in aliases.items():
            raw, what = records[alias], f"column {name!r} ([source] where)"
            literals = [
                x.value for x in _leaves(self.part) if isinstance(x, ColumnComparison) and x.column == name
            ]
            read.missing[name] = staged.once(_is_missing(raw))
            if any(isinstance(value, str) for value in literals):
                read.text[name] = staged.once(_text(raw, what))
            if exact := [value for value in literals if isinstance(value, Fraction)]:
                read.numbers[name] = numbers_of(raw, what, decimal, decimals(exact), staged.once)
            if any(isinstance(value, datetime.date) for value in literals):
                read.dates[name] = dates_of(raw, what, once=staged.once)
        return read


@dataclass(eq=False)
class ConditionColumns:
    """A condition over records with what it compares beside them, each read once however often it is compared."""

    part: Part
    staged: Staged
    aliases: Mapping[str, str]
    missing: dict[str, Any] = field(default_factory=dict)
    text: dict[str, Any] = field(default_factory=dict)
    numbers: dict[str, NumberColumn] = field(default_factory=dict)
    dates: dict[str, DateColumn] = field(default_factory=dict)

    @property
    def table(self) -> Any:
        return self.staged.table

    @property
    def faults(self) -> dict[tuple[str, str], Any]:
        """Column and what its values are to be -> whether a record has something else there."""
        numbers = {(name, "numbers"): found.bad for name, found in self.numbers.items()}
        return numbers | {(name, "dates"): found.bad for name, found in self.dates.items()}

    @property
    def records(self) -> Any:
        """The records for which it is true, without the columns that were compared."""
        return self.table.filter(self._holds(self.part)).drop(*self.staged.added, *self.aliases.values())

    def _holds(self, part: Part) -> Any:
        if isinstance(part, Not):
            return ~self._holds(part.part)
        if isinstance(part, Joined):
            if len(part.parts) == 1:
                return self._holds(part.parts[0])
            half = len(part.parts) // 2  # by halves: a long list makes a statement that is wide, and not deep
            one, other = (
                self._holds(Joined(part.by, some)) for some in (part.parts[:half], part.parts[half:])
            )
            return one & other if part.by == "and" else one | other
        if isinstance(part, Missing):
            return self.missing[part.column]
        if isinstance(part.value, str):
            return self.text[part.column] == part.value
        return self._on_line(part.column, part.sign, part.value)

    def _on_line(self, column: str, sign: Sign, value: Fraction | datetime.date) -> Any:
        """A comparison of numbers or dates, by whether they are the literal or beyond it, and whether beyond."""
        if isinstance(value, Fraction):
            line = self.numbers[column]
            at_least, above = line.value >= line.start(value), line.value >= line.after(value)
        else:
            dates = self.dates[column]
            at_least, above = dates.since(value), dates.since(value + datetime.timedelta(days=1))
        return {"=": at_least & ~above, "<": ~at_least, "<=": ~above, ">": above, ">=": at_least}[sign]


def _leaves(part: Part) -> Iterator[ColumnComparison | Missing]:
    if isinstance(part, ColumnComparison | Missing):
        yield part
        return
    for inner in (part.part,) if isinstance(part, Not) else part.parts:
        yield from _leaves(inner)


def _is_missing(raw: Any) -> Any:
    kind = raw.type()
    if kind.is_string() or kind.is_null():
        return plain_text(raw).isnull()
    if kind.is_floating():
        number = raw.cast("float64")
        return number.isnull() | number.isnan()
    return raw.isnull()


def _text(raw: Any, what: str) -> Any:
    kind = raw.type()
    if kind.is_string() or kind.is_null():
        return plain_text(raw)
    if kind.is_integer() or kind.is_boolean():
        return raw.cast("string")
    if kind.is_numeric():
        raise wrong_type(raw, what, "compare it with numbers, which stand without quotes: 2.5, and not '2.5'")
    if kind.is_date() or kind.is_timestamp():
        raise wrong_type(raw, what, "compare it with dates, as in DATE '2024-01-31'")
    raise wrong_type(raw, what, "only text, numbers, truth values and dates are compared")


def bad_values(where: str, found: Mapping[tuple[str, str], int]) -> DataError | None:
    """The error for records whose values are not what a condition compares; None where there are none."""
    faults = {
        f"column {column!r} ([source] where): values that are no {kind}, and it is compared with {kind}": number
        for (column, kind), number in found.items()
        if number
    }
    if not faults:
        return None
    remedy = "Correct the records, or compare the column with text in quotes."
    return DataError(
        "\n".join([f"{where} cannot be filtered:", *(f"  {told}" for told in faults), remedy]),
        confidential="\n".join(f"{told}: in {number} records" for told, number in faults.items()),
    )


def _parsed(text: str) -> Part:
    from sqlglot import errors, exp, parse

    try:
        nodes = [node for node in parse(text, dialect="duckdb") if node is not None]
    except errors.SqlglotError as error:
        told = str(error).splitlines()[0] if str(error) else "it is empty"
        raise InvalidArgument(f"does not parse: {told}; {_ALLOWED}") from None
    except RecursionError:
        raise Unsupported("is nested too deeply: write it shorter") from None
    if len(nodes) != 1 or isinstance(nodes[0], exp.Block):
        raise InvalidArgument(f"is one condition, without a semicolon; {_ALLOWED}")
    if any(node.comments for node in nodes[0].walk()):
        raise InvalidArgument(
            "holds a comment, and is published as it is: leave it out, or write it after a # of TOML"
        )
    return _Reader().read(nodes[0], 0)


class _Reader:
    """Reads a syntax tree: every node is one that is known, or is refused."""

    def __init__(self) -> None:
        from sqlglot import exp

        self.exp: Any = exp
        self.signs: dict[type, Sign] = {exp.EQ: "=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
        self.turned: dict[Sign, Sign] = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}

    def refuse(self, node: Node, why: str) -> NoReturn:
        written = node.sql(dialect="duckdb", comments=False)
        shown = written if len(written) <= 100 else f"{written[:97]}..."
        raise InvalidArgument(f"cannot use `{shown}`: {why}; {_ALLOWED}")

    def read(self, node: Node, depth: int) -> Part:
        exp = self.exp
        if depth > _DEEPEST:
            raise Unsupported("is nested too deeply: write it shorter")
        node = node.unnest()
        if isinstance(node, exp.And | exp.Or):
            parts = tuple(self.read(part, depth + 1) for part in node.flatten())
            return Joined("and" if isinstance(node, exp.And) else "or", parts)
        if isinstance(node, exp.Not):
            return Not(self.read(node.this, depth + 1))
        if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
            return Missing(self.column(node, node.this))
        if isinstance(node, exp.In):
            return self.listed(node)
        if isinstance(node, exp.Between):
            return self.between(node)
        if isinstance(node, exp.NEQ):
            return Not(self.compared(node, "="))
        if type(node) in self.signs:
            return self.compared(node, self.signs[type(node)])
        return self.refuse(node, "it is no comparison of a column with literals")

    def column(self, around: Node, node: Node) -> str:
        node = node.unnest()
        if not isinstance(node, self.exp.Column) or not isinstance(node.this, self.exp.Identifier):
            self.refuse(around, "it does not compare one column")
        if node.table:
            self.refuse(around, "a column stands by its name alone (text takes single quotes)")
        return node.name

    def compared(self, node: Node, sign: Sign) -> ColumnComparison:
        left, right = node.this.unnest(), node.expression.unnest()
        if isinstance(right, self.exp.Column) and not isinstance(left, self.exp.Column):
            left, right, sign = right, left, self.turned[sign]
        if isinstance(right, self.exp.Column):
            self.refuse(node, "columns are not compared with one another (text takes single quotes)")
        return self.comparison(node, self.column(node, left), sign, right)

    def comparison(self, around: Node, column: str, sign: Sign, node: Node) -> ColumnComparison:
        value = self.literal(around, node)
        if isinstance(value, str) and sign != "=":
            self.refuse(
                around,
                "text has no order here: compare numbers without quotes, and dates as DATE '2024-01-31'",
            )
        return ColumnComparison(column, sign, value)

    def between(self, node: Node) -> Part:
        extra = [key for key, value in node.args.items() if value and key not in ("this", "low", "high")]
        if extra:
            self.refuse(node, "BETWEEN takes two literals and nothing else")
        column = self.column(node, node.this)
        ends = (
            self.comparison(node, column, ">=", node.args["low"]),
            self.comparison(node, column, "<=", node.args["high"]),
        )
        if type(ends[0].value) is not type(ends[1].value):
            self.refuse(node, "one end is a number and the other a date")
        return Joined("and", ends)

    def listed(self, node: Node) -> Part:
        extra = [key for key, value in node.args.items() if value and key not in ("this", "expressions")]
        if extra or not node.expressions:
            self.refuse(node, "IN takes a list of literals in parentheses")
        column = self.column(node, node.this)
        parts = tuple(self.comparison(node, column, "=", each) for each in node.expressions)
        if len({type(part.value) for part in parts}) > 1:
            self.refuse(node, "it mixes numbers, text and dates: write literals of one kind")
        return parts[0] if len(parts) == 1 else Joined("or", parts)

    def literal(self, around: Node, node: Node) -> Value:
        exp = self.exp
        node = node.unnest()
        if isinstance(node, exp.Neg):
            inner = node.this.unnest()
            if isinstance(inner, exp.Literal) and not inner.is_string:
                return -self.number(around, inner.name)
        if isinstance(node, exp.Literal):
            return self.text(around, node.name) if node.is_string else self.number(around, node.name)
        if isinstance(node, exp.Cast) and node.to.this == exp.DataType.Type.DATE and node.this.is_string:
            return self.date(around, node.this.name)
        if isinstance(node, exp.Null):
            self.refuse(around, "nothing is equal to NULL: write IS NULL")
        if isinstance(node, exp.Boolean):
            self.refuse(around, "truth values are compared as text: FLAG = 'true'")
        return self.refuse(around, "it does not compare a column with literals")

    def number(self, around: Node, text: str) -> Fraction:
        try:
            return exact_number(text)
        except InvalidArgument as error:
            self.refuse(around, str(error))

    def text(self, around: Node, text: str) -> str:
        if not text.strip():
            self.refuse(around, "text with nothing in it is missing: write IS NULL")
        if text != text.strip():
            self.refuse(around, "blanks around text are left out of the records: leave them out here")
        return text

    def date(self, around: Node, text: str) -> datetime.date:
        try:
            day = datetime.date.fromisoformat(text if len(text) == 10 else "")
        except ValueError:
            self.refuse(around, "that is no date of the calendar: write it as DATE '2024-01-31'")
        if day == datetime.date.max:
            self.refuse(around, "there is no day after it to compare with: use an earlier one")
        return day
