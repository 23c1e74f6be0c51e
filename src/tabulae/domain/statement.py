"""One SELECT statement, read against a domain: what it groups by, and which records it counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from sqlglot import errors, exp, parse

from ..errors import InvalidArgument, Unsupported
from .domain import Domain, View
from .predicate import Predicate
from .where import (
    DIALECT,
    Node,
    Where,
    text,
)

SHAPE = "a table is SELECT [columns,] COUNT(*) FROM name [WHERE condition] [GROUP BY the same columns]"
_READ = frozenset({"expressions", "from", "from_", "where", "group"})


def parsed(sql: str) -> list[Node]:
    """The statements of a text, separated by semicolons; empty ones are dropped."""
    if not isinstance(sql, str):
        raise InvalidArgument(f"SQL is given as a string, not as {sql!r}")
    try:
        return [statement for statement in parse(sql, dialect=DIALECT) if statement is not None]
    except errors.ParseError as error:
        first = error.errors[0] if error.errors else {}
        place = f"line {first.get('line')}, column {first.get('col')}, near {first.get('highlight')!r}"
        fault = str(first.get("description"))
        fault = "something is missing" if "<class" in fault else fault
        raise InvalidArgument(f"the SQL does not parse, {place}: {fault}; {SHAPE}") from None
    except errors.SqlglotError as error:
        raise InvalidArgument(f"the SQL does not parse: {str(error).splitlines()[0]}; {SHAPE}") from None
    except RecursionError:
        raise Unsupported("the SQL is nested too deeply: split the statement") from None


class Statement:
    """``groups``: heading -> view, in domain order; ``predicate``: which cells count; ``condition``: its SQL.

    Every part of the statement is either read or refused: a part that is not known is not ignored.
    """

    kind = "table"
    shape = SHAPE

    def __init__(self, domain: Domain, table: str, statement: Node) -> None:
        self.domain = domain
        self.table = table
        if not isinstance(statement, exp.Select):
            self.refuse(statement, "it is not a single SELECT")
        for key, value in statement.args.items():
            if value and key not in _READ:
                self.refuse(value, f"{key.strip('_').upper()} is not part of a count")
        self._qualifiers = self._from(statement)
        grouped = self._group_by(statement)
        self._select(statement, grouped)
        self.groups = self._views(grouped)
        where = statement.args.get("where")
        self.condition = "TRUE" if where is None else text(where.this)
        self.predicate = self._predicate(where)

    @property
    def whose(self) -> str:
        """What the statement belongs to, for messages."""
        return f"{self.kind} {self.table!r}"

    def refuse(self, node: Node, why: str) -> NoReturn:
        """Say which part cannot be used, and what can."""
        nodes = node if isinstance(node, list) else [node]
        shown = ", ".join(text(part) if hasattr(part, "sql") else str(part) for part in nodes)
        raise InvalidArgument(f"{self.whose} cannot use `{shown}`: {why}; {self.shape}")

    def name_of(self, column: exp.Column) -> str:
        """The attribute or recode that a column names."""
        if not isinstance(column.this, exp.Identifier):
            self.refuse(column, "name one column")
        if column.args.get("db") or (column.table and column.table.casefold() not in self._qualifiers):
            self.refuse(column, "it is qualified by another name than the table's")
        try:
            return self.domain.match(column.name)
        except InvalidArgument as error:
            hint = " (strings take single quotes)" if column.this.quoted else ""
            raise InvalidArgument(f"{self.whose}, `{text(column)}`: {error}{hint}") from None

    def _predicate(self, where: exp.Where | None) -> Predicate:
        if where is None:
            return True
        try:
            return Where(self.domain, self.name_of, self.whose).predicate(where.this)
        except RecursionError:
            raise Unsupported(f"{self.whose}: the condition is nested too deeply: split it") from None

    def _from(self, statement: exp.Select) -> set[str]:
        clause = statement.args.get("from_") or statement.args.get("from")
        if clause is None:
            self.refuse(statement, "FROM is missing")
        source = clause.this
        extra = [
            value
            for key, value in source.args.items()
            if value and key not in ("this", "db", "catalog", "alias")
        ]
        if not isinstance(source, exp.Table) or not isinstance(source.this, exp.Identifier) or extra:
            self.refuse(clause, "FROM takes the name of one table")
        alias = source.args.get("alias")
        if alias is not None and alias.args.get("columns"):
            self.refuse(clause, "columns cannot be renamed")
        return {source.name.casefold(), source.alias_or_name.casefold()}

    def _group_by(self, statement: exp.Select) -> list[str]:
        group = statement.args.get("group")
        if group is None:
            return []
        extra = [key for key, value in group.args.items() if value and key != "expressions"]
        if extra or not group.expressions:
            self.refuse(group, "GROUP BY takes names of columns")
        names: list[str] = []
        for item in group.expressions:
            if not isinstance(item, exp.Column):
                self.refuse(group, f"GROUP BY takes names of columns, and `{text(item)}` is none")
            names.append(self.name_of(item))
        if len(set(names)) != len(names):
            self.refuse(group, "a column is named twice")
        return names

    def _select(self, statement: exp.Select, grouped: Sequence[str]) -> None:
        names: list[str] = []
        counts = 0
        for item in statement.expressions:
            inner = item.this if isinstance(item, exp.Alias) else item
            if isinstance(inner, exp.Count):
                if not counts_rows(inner):
                    self.refuse(item, "the only aggregate is COUNT(*)")
                counts += 1
            elif isinstance(item, exp.Column):
                names.append(self.name_of(item))
            elif isinstance(inner, exp.Column):
                self.refuse(item, "grouped columns keep their names; leave out AS")
            else:
                self.refuse(item, "a table selects grouped columns and COUNT(*), nothing else")
        if counts != 1:
            self.refuse(statement.expressions, f"it has {counts} times COUNT(*), and one is needed")
        if sorted(names) != sorted(grouped):
            wrong = f"SELECT names {names or 'no columns'}, but GROUP BY {list(grouped) or 'none'}"
            self.refuse(statement, f"{wrong}: they must name the same columns")

    def _views(self, grouped: Sequence[str]) -> dict[str, View]:
        views = {name: self.domain.resolve(name) for name in grouped}
        owners: dict[str, str] = {}
        for name, view in views.items():
            other = owners.setdefault(view.attribute.name, name)
            if other != name:
                raise InvalidArgument(
                    f"{self.whose} groups by {other!r} and {name!r}, two views of "
                    f"{view.attribute.name!r}: group by the finer one, or make two tables"
                )
        return dict(sorted(views.items(), key=lambda item: self.domain.axis(item[1].attribute.name)))


def counts_rows(count: exp.Count) -> bool:
    """Whether an aggregate is COUNT(*)."""
    star = count.this
    return isinstance(star, exp.Star) and not any(star.args.values()) and not count.expressions
