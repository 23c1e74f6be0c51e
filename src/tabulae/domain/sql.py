"""Tables from SQL: SELECT ... COUNT(*) ... WHERE ... GROUP BY, exactly or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from ..errors import InvalidArgument, Unsupported
from ..linalg import LinearOperator, Partition
from .diagram import Expansion, expand
from .domain import Domain, View
from .predicate import Mask
from .table import (
    Column,
    Table,
    Term,
)

if TYPE_CHECKING:
    from .statement import Statement


def table_from_sql(domain: Domain, name: str, sql: str, weight: object = 1) -> Table:
    """The table that one SELECT ... COUNT(*) statement asks for, exactly, or a refusal that shows the clause.

    ``SELECT [columns,] COUNT(*) [AS alias] FROM name [WHERE condition] [GROUP BY columns]``. Columns are
    attributes or recodes, found by their exact name, else regardless of case. Conditions compare an attribute
    or a recode with literals by =, <>, IN, and, for ordered attributes, <, <=, >, >=, BETWEEN; AND, OR, NOT
    and parentheses join them. A literal must be in the domain for = and IN; as a bound it may be any number.
    The domain has no NULLs, so NOT is the plain complement.

    The rows are all combinations of the grouped categories that the condition leaves possible one column at a
    time, zeros included, in domain order whatever the order of the columns in the statement. A disjunction
    over several attributes becomes a signed sum of products (HDMM, Appendix A).

    Raises:
        InvalidArgument: not such a statement, or a name or value outside the domain.
        Unsupported: a condition that takes more than 64 products.

    >>> domain = Domain({"sex": ["F", "M"], "age": range(115)})
    >>> sql = "SELECT sex, COUNT(*) FROM people WHERE age < 5 GROUP BY sex"
    >>> table = table_from_sql(domain, "young", sql)
    >>> table.columns(domain), table.operator(domain).shape
    ({'sex': ('F', 'M')}, (2, 230))
    """
    from .statement import (
        SHAPE,
        Statement,
        parsed,
    )

    statements = parsed(sql)
    if len(statements) != 1:
        raise InvalidArgument(f"table {name!r} takes one statement, not {len(statements)}: {SHAPE}")
    return _table(domain, Statement(domain, name, statements[0]), weight)


def tables_from_sql(domain: Domain, sql: str) -> list[Table]:
    """Tables q1, q2, ... from statements separated by semicolons."""
    from .statement import (
        SHAPE,
        Statement,
        parsed,
    )

    statements = parsed(sql)
    if not statements:
        raise InvalidArgument(f"there is no statement in {sql!r}: {SHAPE}")
    return [_table(domain, Statement(domain, f"q{k}", part), 1) for k, part in enumerate(statements, start=1)]


def _table(domain: Domain, statement: Statement, weight: object) -> Table:
    try:
        expansion = expand(statement.predicate)
    except Unsupported as error:
        raise Unsupported(f"table {statement.table!r}, `{statement.condition}`: {error}") from None
    if not expansion.products:
        raise InvalidArgument(
            f"table {statement.table!r}: no cell of the domain satisfies `{statement.condition}`, "
            "so the count is always 0: correct the condition or drop the table"
        )
    return _assemble(domain, statement.table, statement.groups, expansion, weight)


def _assemble(
    domain: Domain, name: str, groups: Mapping[str, View], expansion: Expansion, weight: object
) -> Table:
    """Terms with a row for each possible combination of groups; attributes only tested have one row."""
    grouped = {
        view.attribute.name: Group(heading, view, expansion.reachable) for heading, view in groups.items()
    }
    terms = []
    for coefficient, cells in expansion.products:
        factors: dict[str, LinearOperator] = {}
        for attribute in domain.names:
            if attribute in grouped:
                factors[attribute] = grouped[attribute].factor(cells.get(attribute))
            elif attribute in cells:
                factors[attribute] = Partition(np.where(cells[attribute], 0, -1), 1)
        terms.append(Term(coefficient, factors))
    return Table.of_terms(name, terms, weight, {name: group.column for name, group in grouped.items()})


class Group:
    """One grouped column: the categories that the condition leaves possible, as rows."""

    def __init__(self, heading: str, view: View, reachable: Mapping[str, Mask]) -> None:
        size = view.attribute.size
        own = view.operator.classes if isinstance(view.operator, Partition) else np.arange(size)
        kept = np.zeros(len(view.labels), dtype=bool)
        kept[own[reachable.get(view.attribute.name, np.ones(size, dtype=bool))]] = True
        self.view = view
        self.rows = np.where(kept, np.cumsum(kept) - 1, -1)[own]
        self.column = Column(heading, tuple(np.array(view.labels, dtype=object)[kept]))

    def factor(self, cells: Mask | None) -> LinearOperator:
        rows = self.rows if cells is None else np.where(cells, self.rows, -1)
        if (rows >= 0).all():
            return self.view.operator
        return Partition(rows, len(self.column.labels))
