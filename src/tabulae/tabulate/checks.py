"""Domains that a database declares by CHECK constraints: lists of values, and bounds of whole numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

_Values = tuple[str | int, ...]
Node = Any  # of sqlglot's syntax tree, whose base class is not called the same in all versions


@dataclass(frozen=True)
class Checked:
    """What constraints say of one column: a list of values, or a lower and an upper bound, of which one may be open."""

    values: _Values | None = None
    low: int | None = None
    high: int | None = None

    def also(self, other: Checked) -> Checked:
        """Both: the tighter bounds; of two lists, what is in both."""
        values = self.values if other.values is None else other.values
        if self.values is not None and other.values is not None:
            values = tuple(value for value in self.values if value in other.values)
        low = max((b for b in (self.low, other.low) if b is not None), default=None)
        high = min((b for b in (self.high, other.high) if b is not None), default=None)
        return Checked(values, low, high)


def domains_by_checks(constraints: Iterable[str]) -> dict[str, Checked]:
    """Column, in small letters -> what the constraints of its table say of it alone.

    Understood are comparisons of one column with whole numbers (``=``, ``<``, ``<=``, ``>``, ``>=``, ``BETWEEN``),
    lists (``IN``, or ``=`` joined by ``OR``), and any of these joined by ``AND``. Anything else says nothing here.

    >>> found = domains_by_checks(["(age >= 0 AND age <= 114)", "sex IN ('F', 'M')", "length(name) > 1"])
    >>> found["age"].low, found["age"].high, found["sex"].values
    (0, 114, ('F', 'M'))
    """
    found: dict[str, Checked] = {}
    for text in constraints:
        try:
            whole = sqlglot.parse_one(text, dialect="duckdb")
        except SqlglotError:
            continue
        for part in _joined(whole, exp.And):
            if (said := _said(part)) is not None:
                column, checked = said
                found[column] = found.get(column, Checked()).also(checked)
    return found


def _joined(node: Node, by: type[exp.Connector]) -> Iterator[Node]:
    """The parts of a conjunction, or of a disjunction."""
    node = node.unnest()
    if isinstance(node, by):
        yield from _joined(node.this, by)
        yield from _joined(node.expression, by)
    else:
        yield node


def _said(part: Node) -> tuple[str, Checked] | None:
    """What one condition says of one column, None where it says something else."""
    if isinstance(part, exp.Or):
        return _alternatives([_said(each) for each in _joined(part, exp.Or)])
    if isinstance(part, exp.In) and not part.args.get("query"):
        values = _values(part.expressions)
        return None if values is None else _of(part.this, Checked(values))
    if isinstance(part, exp.Between):
        low, high = _whole(part.args["low"]), _whole(part.args["high"])
        return None if low is None or high is None else _of(part.this, Checked(None, low, high))
    return _compared(part)


def _compared(part: Node) -> tuple[str, Checked] | None:
    """``column < number`` and its like, either way round."""
    mirrored = {exp.LT: exp.GT, exp.GT: exp.LT, exp.LTE: exp.GTE, exp.GTE: exp.LTE, exp.EQ: exp.EQ}
    kind = type(part)
    if kind not in mirrored or not isinstance(part, exp.Binary):
        return None
    column, literal = part.this.unnest(), part.expression.unnest()
    if isinstance(literal, exp.Column):
        column, literal, kind = literal, column, mirrored[kind]
    if kind is exp.EQ:
        values = _values([literal])
        return None if values is None else _of(column, Checked(values))
    number = _whole(literal)
    if number is None:
        return None
    bounds = {exp.LT: (None, number - 1), exp.LTE: (None, number), exp.GT: (number + 1, None)}
    return _of(column, Checked(None, *bounds.get(kind, (number, None))))


def _alternatives(parts: list[tuple[str, Checked] | None]) -> tuple[str, Checked] | None:
    """Lists of one column, joined by OR: one list."""
    values: list[str | int] = []
    columns = set()
    for part in parts:
        if part is None or part[1].values is None:
            return None
        columns.add(part[0])
        values += [value for value in part[1].values if value not in values]
    if len(columns) != 1 or len({type(value) for value in values}) != 1:
        return None
    return columns.pop(), Checked(tuple(values))


def _of(column: Node, checked: Checked) -> tuple[str, Checked] | None:
    column = column.unnest()
    return (column.name.lower(), checked) if isinstance(column, exp.Column) else None


def _values(nodes: Iterable[Node]) -> _Values | None:
    """Literals, all text or all whole numbers."""
    values: list[str | int] = []
    for node in nodes:
        node = node.unnest()
        value = node.name if isinstance(node, exp.Literal) and node.is_string else _whole(node)
        if value is None or value in values:
            return None
        values.append(value)
    return tuple(values) if len({type(value) for value in values}) == 1 else None


def _whole(node: Node) -> int | None:
    """A whole number as it is written, with its sign."""
    node = node.unnest()
    if isinstance(node, exp.Neg):
        number = _whole(node.this)
        return None if number is None else -number
    if isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit():
        return int(node.name)
    return None
