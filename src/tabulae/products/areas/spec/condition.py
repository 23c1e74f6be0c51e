"""Conditions on leaves of a geography, in the words of SQL, and columns of leaves that are made of others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

import numpy as np
from sqlglot import errors, exp, parse_one

from ....domain.codes import Numbered, renumbered
from ....errors import InvalidArgument
from ....spec.areas import GeographySection
from ....spec.problems import KeyPath, Problems, shown
from ..layout import CellLayout, Supports
from ..spine.shares import distinct_rows

DIALECT = "duckdb"
ALLOWED = (
    "a condition compares one column with text in single quotes (=, <>, IN, NOT IN) or tests IS NULL; join conditions "
    "by AND, OR, NOT and parentheses"
)

Node = Any  # of sqlglot's syntax tree


@dataclass(frozen=True, eq=False)
class _Truth:
    """Where something is true and where it is false: neither where a cell is empty, as in SQL."""

    yes: np.ndarray
    no: np.ndarray


@dataclass(frozen=True, eq=False)
class LeafCondition:
    """A condition on leaves that was read, and the columns that it is about.

    >>> where = LeafCondition.parse("aiannh <> '9999' AND NOT county IN ('001', '003')")
    >>> where.columns
    ('aiannh', 'county')
    >>> from tabulae.domain.codes import numbered
    >>> given = {"aiannh": ["9999", "0010", None], "county": ["001", "005", "005"]}
    >>> where.holds({name: numbered(np.array(cells, object)) for name, cells in given.items()}).tolist()
    [False, True, False]
    """

    columns: tuple[str, ...]
    _node: Node

    @classmethod
    def parse(cls, text: str) -> LeafCondition:
        """Read a condition."""
        try:
            node = parse_one(text, dialect=DIALECT)
            found: dict[str, None] = {}
            _check(node, lambda name: found.setdefault(name))
        except errors.ParseError as error:
            first = error.errors[0] if error.errors else {}
            place = f"column {first.get('col')}, near {first.get('highlight')!r}"
            raise InvalidArgument(f"does not parse, {place}; {ALLOWED}") from None
        except errors.SqlglotError as error:
            raise InvalidArgument(f"does not parse: {str(error).splitlines()[0]}; {ALLOWED}") from None
        except RecursionError:
            raise InvalidArgument("is nested too deeply: write it shorter") from None
        return cls(tuple(found), node)

    def holds(self, table: Mapping[str, Numbered]) -> np.ndarray:
        """Shape (rows,), boolean: where the condition is true; not where an empty cell leaves it open."""
        return _truth(self._node, table).yes


def _check(node: Node, use: Callable[[str], object]) -> None:
    """Refuse what is not a condition, and name every column of it."""
    node = node.unnest()
    if isinstance(node, exp.And | exp.Or):
        for part in node.flatten():
            _check(part, use)
    elif isinstance(node, exp.Not):
        _check(node.this, use)
    elif isinstance(node, exp.EQ | exp.NEQ | exp.In):
        column, _ = _compared(node)
        use(_column_name(column, node))
    elif isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
        use(_column_name(node.this.unnest(), node))
    else:
        _refuse(node, "it is not a comparison of a column with text")


def _truth(node: Node, table: Mapping[str, Numbered]) -> _Truth:
    """Kleene's three values, of a node that was checked."""
    node = node.unnest()
    if isinstance(node, exp.Not):
        inner = _truth(node.this, table)
        return _Truth(inner.no, inner.yes)
    if isinstance(node, exp.And | exp.Or):
        parts = [_truth(part, table) for part in node.flatten()]
        both = isinstance(node, exp.And)
        yes, no = (np.logical_and, np.logical_or) if both else (np.logical_or, np.logical_and)
        return _Truth(yes.reduce([part.yes for part in parts]), no.reduce([part.no for part in parts]))
    if isinstance(node, exp.Is):
        empty = table[node.this.unnest().name].index < 0
        return _Truth(empty, ~empty)
    column, values = _compared(node)
    cells = table[column.name]
    known = cells.index >= 0
    equal = np.logical_or.reduce([cells.holds(value) for value in values])
    if isinstance(node, exp.NEQ):
        return _Truth(known & ~equal, equal)
    return _Truth(equal, known & ~equal)


def _compared(node: Node) -> tuple[Node, list[str]]:
    left = node.this.unnest()
    if isinstance(node, exp.In):
        extra = [key for key, value in node.args.items() if value and key not in ("this", "expressions")]
        if extra or not node.expressions:
            _refuse(node, "IN takes a list of texts")
        return left, [_text_of_literal(item.unnest(), node) for item in node.expressions]
    right = node.expression.unnest()
    if isinstance(right, exp.Column) and not isinstance(left, exp.Column):
        left, right = right, left
    return left, [_text_of_literal(right, node)]


def _text_of_literal(item: Node, node: Node) -> str:
    if isinstance(item, exp.Literal) and item.is_string:
        if not item.this:
            _refuse(node, "an empty cell equals nothing: write IS NULL")
        return str(item.this)
    if isinstance(item, exp.Literal):
        _refuse(node, f"codes are text: write '{item.this}' in single quotes")
    if isinstance(item, exp.Column):
        hint = (
            " (text takes single quotes)"
            if isinstance(item.this, exp.Identifier) and item.this.quoted
            else ""
        )
        _refuse(node, f"a column is compared with text, not with another column{hint}")
    return _refuse(node, f"{_sql_of(item)} is not text in single quotes")


def _column_name(column: Node, node: Node) -> str:
    if not isinstance(column, exp.Column) or not isinstance(column.this, exp.Identifier) or column.table:
        _refuse(node, "one side must be the plain name of a column")
    return str(column.name)


def _refuse(node: Node, why: str) -> NoReturn:
    raise InvalidArgument(f"cannot use `{_sql_of(node)}`: {why}; {ALLOWED}")


def _sql_of(node: Node) -> str:
    written = node.sql(dialect=DIALECT, comments=False)
    return written if len(written) <= 200 else f"{written[:120]} ... {written[-60:]}"


def read_condition(text: str | None, path: KeyPath, problems: Problems) -> LeafCondition | None:
    """A condition; None where there is none, or, with the mistake recorded, where it has one."""
    return None if text is None else problems.attempt(path, partial(LeafCondition.parse, text))


def read_conditions(section: GeographySection, problems: Problems) -> dict[str, LeafCondition | None]:
    """The condition of each column that is made by one."""
    return {
        name: read_condition(entry.where, ("geography", "columns", name, "where"), problems)
        for name, entry in section.columns.items()
    }


def refuse_made(section: GeographySection, asked: Sequence[tuple[str, KeyPath]], problems: Problems) -> None:
    """Refuse columns made of bounds where only the file's own can be: they are made once the bounds are read."""
    for name, path in asked:
        entry = section.columns.get(name)
        if entry is not None and entry.occurs is not None and "optimise" not in path:
            problems.add(
                path, f"{shown(name)} is made of bounds: it goes into the entities of optimise alone"
            )


def sources_of(
    section: GeographySection, conditions: Mapping[str, LeafCondition | None], problems: Problems
) -> list[tuple[str, KeyPath]]:
    """What the columns are made of, each with the key that asks for it; refuse what is not made before."""
    found: list[tuple[str, KeyPath]] = []
    before: list[str] = []
    for name, entry in section.columns.items():
        where = conditions[name]
        path = ("geography", "columns", name)
        for source in (*entry.sources, *(where.columns if where else ())):
            if source in section.columns and (source not in before or section.columns[source].occurs):
                told = f"is made of {shown(source)}, which is not made of columns above it: write it before"
                problems.add(path, told)
            found.append((source, path))
        before.append(name)
    return found


_BETWEEN = "+"  # codes that are joined


def made_columns(
    section: GeographySection,
    given: Mapping[str, Numbered],
    conditions: Mapping[str, LeafCondition | None],
    problems: Problems,
) -> dict[str, Numbered]:
    """The columns that are made of others, each of those of the file and of those before it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found: dict[str, Numbered] = {}
    for name, entry in section.columns.items():
        table = {**given, **found}
        where = conditions[name]
        if entry.join is not None:
            parts = [table[source] for source in entry.join]
            rows, which = distinct_rows(np.stack([part.index for part in parts], axis=1) + 1)
            words = [
                pa.array(np.append("", part.codes)[at], pa.string())
                for part, at in zip(parts, rows.T, strict=True)
            ]
            joined = pc.call_function("binary_join_element_wise", [*words, _BETWEEN])
            some = rows.any(axis=1)
            found[name] = renumbered(np.where(some, np.arange(some.size), -1)[which], joined)
            if some.sum() > found[name].codes.size:
                told = f"joins different codes to the same one, as they hold {shown(_BETWEEN)}: write them otherwise"
                problems.add(("geography", "columns", name), told)
        elif where is not None and entry.then is not None:
            then, holds = table[entry.then], where.holds(table)
            none = Numbered(np.full(holds.size, -1), then.codes[:0])
            other = none if entry.otherwise is None else table[entry.otherwise]
            index = np.where(holds, then.index, np.where(other.index < 0, -1, other.index + then.codes.size))
            found[name] = renumbered(index, pa.array(np.concatenate([then.codes, other.codes]), pa.string()))
    return found


def occurring(
    section: GeographySection, support: Supports, layout: CellLayout, problems: Problems
) -> dict[str, Numbered]:
    """The columns that say which categories of an attribute can occur in each leaf, one digit for each.

    Args:
        support: of the leaves of the file.
    """
    import pyarrow as pa

    found: dict[str, Numbered] = {}
    for name, entry in section.columns.items():
        if entry.occurs is None:
            continue
        path, known = (
            ("geography", "columns", name),
            (*layout.domain.names, *(r.name for r in layout.domain.recodes)),
        )
        if entry.occurs not in known:
            problems.add_unknown((*path, "occurs"), "attribute or recode", entry.occurs, known)
            continue
        view, margin = layout.domain.resolve(entry.occurs), layout.margin([entry.occurs])
        if margin.inner > 1 or view.attribute.name not in layout.dense:
            told = f"no [[bound]] is about {shown(entry.occurs)}, so that all leaves are alike"
            problems.add((*path, "occurs"), told)
            continue
        for i, label in enumerate(entry.but):
            if label not in view.labels:
                problems.add_unknown((*path, "but", i), f"category of {entry.occurs}", label, view.labels)
        kept = [i for i, label in enumerate(view.labels) if label not in entry.but]
        rows, which = distinct_rows(support.classes(margin.label, margin.classes)[support.pattern][:, kept])
        codes = ["".join("01"[int(digit)] for digit in row) or "0" for row in rows.tolist()]
        found[name] = renumbered(which, pa.array(codes, pa.string()))
    return found
