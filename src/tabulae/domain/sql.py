"""Tables from SQL: SELECT ... COUNT(*) ... WHERE ... GROUP BY, exactly or not at all.

One statement is read against a domain: what it groups by, and as a predicate which records it counts. Conditions on
attributes, or on two or three of them together, are joined by AND, OR and NOT. sqlglot takes long to import, so others
import this module where they need it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, NoReturn

import numpy as np
from sqlglot import errors, exp, parse

from ..errors import InvalidArgument, Unsupported
from ..linalg import Dense, LinearOperator, Partition
from .arithmetic import DECIMAL, AttributeRelation, View, needs_numbers, relates
from .attribute import Attribute
from .domain import AttributeView, Domain
from .joint import MOST_ENTRIES, JointMatrix
from .predicate import (
    All,
    Expansion,
    Mask,
    Predicate,
    conjunction,
    disjunction,
    expand,
    negation,
    over,
    possible,
    test,
    tests,
)
from .table import Table, TableColumn, Term

DIALECT = "duckdb"
Node = Any  # of sqlglot's syntax tree, whose base class is not called the same in all versions
ALLOWED = (
    "a condition compares one attribute with literals (=, <>, <, <=, >, >=, IN, BETWEEN), or two or three attributes "
    "with one another, as in a + b <= 5 or ABS(a - b) <= 2; join conditions by AND, OR, NOT and parentheses"
)
_NO_NULLS = "the domain has no NULLs, the policy for missing values refused them or made a category of them"
_FLIPPED: dict[type[Node], type[Node]] = {
    exp.EQ: exp.EQ, exp.NEQ: exp.NEQ, exp.LT: exp.GT, exp.GT: exp.LT, exp.LTE: exp.GTE, exp.GTE: exp.LTE,
}  # fmt: skip


class Where:
    """Reads conditions over one domain; ``name_of`` finds the attribute or recode that a column names.

    ``whose`` says in messages what the condition belongs to. ``within`` is what holds beside it: attribute -> the
    categories that are left.
    """

    def __init__(
        self,
        domain: Domain,
        name_of: Callable[[exp.Column], str],
        whose: str,
        within: Mapping[str, Mask] | None = None,
    ) -> None:
        self.domain = domain
        self.name_of = name_of
        self.whose = whose
        self.within = within or {}

    def predicate(self, node: Node) -> Predicate:
        """The predicate that a boolean expression means; with no NULLs, NOT is the complement."""
        node = node.unnest()
        if isinstance(node, exp.And):
            return self._and(list(node.flatten()))
        if isinstance(node, exp.Or):
            return disjunction([self.predicate(part) for part in node.flatten()])
        if isinstance(node, exp.Not):
            return negation(self.predicate(node.this))
        if isinstance(node, exp.Boolean):
            return bool(node.this)
        if isinstance(node, exp.In):
            return self._in(node)
        if isinstance(node, exp.Between):
            return self._between(node)
        if type(node) in _FLIPPED:
            return self._comparison(node)
        if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
            self.refuse(node, _NO_NULLS)
        return self.refuse(node, "it is not a comparison of an attribute with literals")

    def refuse(self, node: Node, why: str) -> NoReturn:
        raise InvalidArgument(f"{self.whose} cannot use `{text(node)}`: {why}; {ALLOWED}")

    def _and(self, parts: Sequence[Node]) -> Predicate:
        """What relates attributes is read last: categories that the other parts leave out need have no number."""
        read = {k: self.predicate(part) for k, part in enumerate(parts) if not needs_numbers(part)}
        if len(read) < len(parts):
            left = dict(self.within)
            for name, cells in possible(conjunction(list(read.values()))).items():
                left[name] = cells & left.get(name, True)
            within = Where(self.domain, self.name_of, self.whose, left)
            read |= {k: within.predicate(part) for k, part in enumerate(parts) if k not in read}
        return conjunction([read[k] for k in range(len(parts))])

    def _relation(self, node: Node, sides: Sequence[Node]) -> AttributeRelation:
        return AttributeRelation(sides, self._view, lambda why: self.refuse(node, why), self.within)

    def _view(self, column: Node) -> View:
        name = self.name_of(column)
        recode = self.domain.recode(name)
        if recode is not None:
            return View(name, recode.of, recode.labels, recode.labels, recode.classes)
        attribute = self._attribute(name, column)
        return View(name, name, attribute.labels, attribute.values, np.arange(attribute.size))

    def _comparison(self, node: Node) -> Predicate:
        left, right, kind = node.this.unnest(), node.expression.unnest(), type(node)
        if relates([left, right]):
            return self._relation(node, [left, right]).compare(kind, left, right)
        if isinstance(right, exp.Column) and not isinstance(left, exp.Column):
            left, right, kind = right, left, _FLIPPED[kind]
        subject = self._subject(left, node)
        value = self._literal(right, node)
        if kind in (exp.EQ, exp.NEQ):
            cells = self._one(subject, value, node)
        elif kind in (exp.LT, exp.GTE):
            cells = self._below(subject, value, node, inclusive=False)
        else:
            cells = self._below(subject, value, node, inclusive=True)
        if kind in (exp.NEQ, exp.GT, exp.GTE):
            cells = ~cells
        return self._test(left, cells)

    def _in(self, node: exp.In) -> Predicate:
        extra = [key for key, value in node.args.items() if value and key not in ("this", "expressions")]
        if extra or not node.expressions:
            self.refuse(node, "IN takes a list of literals")
        column = node.this.unnest()
        if relates([column, *node.expressions]):
            relation = self._relation(node, [column, *node.expressions])
            return disjunction([relation.compare(exp.EQ, column, item) for item in node.expressions])
        subject = self._subject(column, node)
        cells = np.zeros(subject.size, dtype=bool)
        for item in node.expressions:
            cells |= self._one(subject, self._literal(item.unnest(), node), node)
        return self._test(column, cells)

    def _between(self, node: exp.Between) -> Predicate:
        if any(value for key, value in node.args.items() if key not in ("this", "low", "high")):
            self.refuse(node, "BETWEEN takes two bounds, the lower one first")
        column = node.this.unnest()
        bounds = [node.args[key].unnest() for key in ("low", "high")]
        if relates([column, *bounds]) or any(isinstance(bound, exp.Column) for bound in bounds):
            relation = self._relation(node, [column, *bounds])
            above = relation.compare(exp.GTE, column, bounds[0])
            return conjunction([above, relation.compare(exp.LTE, column, bounds[1])])
        subject = self._subject(column, node)
        low, high = (self._literal(bound, node) for bound in bounds)
        above = ~self._below(subject, low, node, inclusive=False)
        return self._test(column, above & self._below(subject, high, node, inclusive=True))

    def _subject(self, column: Node, node: Node) -> Attribute:
        """What is compared: the attribute, or the classes of a recode as an attribute of their own."""
        if not isinstance(column, exp.Column):
            self.refuse(node, "one side must be the plain name of an attribute")
        name = self.name_of(column)
        recode = self.domain.recode(name)
        return self._attribute(name, node) if recode is None else Attribute(name, recode.labels)

    def _attribute(self, name: str, node: Node) -> Attribute:
        if self.domain[name].steps:
            self.refuse(node, value_words(name))
        return self.domain[name]

    def _test(self, column: Node, cells: Mask) -> Predicate:
        assert isinstance(column, exp.Column)
        name = self.name_of(column)
        recode = self.domain.recode(name)
        return test(name, cells) if recode is None else test(recode.of, cells[recode.classes])

    def _literal(self, node: Node, clause: Node) -> Fraction | str:
        if isinstance(node, exp.Literal):
            return str(node.this) if node.is_string else self._number(node.this, clause)
        inner = node.this.unnest() if isinstance(node, exp.Neg) else None
        if isinstance(inner, exp.Literal) and not inner.is_string:
            return -self._number(inner.this, clause)
        if isinstance(node, exp.Null):
            self.refuse(clause, _NO_NULLS)
        if isinstance(node, exp.Boolean):
            value = "'true'" if node.this else "'false'"
            self.refuse(clause, f"truth values are categories, which take single quotes: write {value}")
        if isinstance(node, exp.Column):
            hint = " (strings take single quotes)" if node.this.quoted else ""
            self.refuse(
                clause, f"an attribute can be compared with literals only, not with another column{hint}"
            )
        return self.refuse(clause, f"`{text(node)}` is not a literal")

    def _number(self, written: str, clause: Node) -> Fraction:
        if not DECIMAL.fullmatch(written):
            self.refuse(clause, f"{written!r} is not a decimal number of reasonable length")
        return Fraction(written)

    def _one(self, subject: Attribute, value: Fraction | str, node: Node) -> Mask:
        position = subject.position(value)
        if position is None:
            shown = repr(value) if isinstance(value, str) else f"{float(value):.15g}"
            quotes = ""
            if not isinstance(value, str) and not subject.numeric:
                quotes = " (its categories are strings, which take single quotes)"
            raise InvalidArgument(
                f"{self.whose}, `{text(node)}`: {shown} is not a category of {subject.name!r}"
                f"{subject.suggestion(value)}{quotes}"
            )
        cells = np.zeros(subject.size, dtype=bool)
        cells[position] = True
        return cells

    def _below(self, subject: Attribute, value: Fraction | str, node: Node, *, inclusive: bool) -> Mask:
        recode = self.domain.recode(subject.name)
        if recode is not None:
            self.refuse(
                node,
                f"the classes of the recode {subject.name!r} have no order; compare {recode.of!r} instead",
            )
        try:
            count = subject.below(value)
        except InvalidArgument as error:
            self.refuse(node, str(error))
        cells = np.zeros(subject.size, dtype=bool)
        cells[: count + (inclusive and subject.position(value) is not None)] = True
        return cells


def value_words(name: str) -> str:
    """What is said where a measured value stands for an attribute."""
    return f"{name!r} is a value, which is summed only: declare bins of its column, and use these"


def text(node: Node) -> str:
    """A clause as SQL, for messages; the middle of a long one is left out."""
    written = node.sql(dialect=DIALECT, comments=False)
    return written if len(written) <= 300 else f"{written[:200]} ... {written[-80:]}"


UNITS = "units"
"""The table that is named where units are counted, and not their records."""

TABLE_SHAPE = (
    "a table is SELECT [columns,] COUNT(*) FROM name [WHERE condition] [GROUP BY the same columns], or SUM(value), "
    "SUM(value * value), or "
    "several COUNT(*) FILTER (WHERE condition)"
)
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
        raise InvalidArgument(f"the SQL does not parse, {place}: {fault}; {TABLE_SHAPE}") from None
    except errors.SqlglotError as error:
        raise InvalidArgument(
            f"the SQL does not parse: {str(error).splitlines()[0]}; {TABLE_SHAPE}"
        ) from None
    except RecursionError:
        raise Unsupported("the SQL is nested too deeply: split the statement") from None


class Statement:
    """``groups``: heading -> view, in domain order; ``predicate``: which cells count; ``condition``: its SQL.

    Every part of the statement is either read or refused: a part that is not known is not ignored.
    """

    kind = "table"
    shape = TABLE_SHAPE
    asks = "times COUNT(*)"

    def __init__(self, domain: Domain, table: str, statement: Node) -> None:
        self.domain = domain
        self.table = table
        if not isinstance(statement, exp.Select):
            self.refuse(statement, "it is not a single SELECT")
        for key, value in statement.args.items():
            if value and key not in _READ:
                self.refuse(value, f"{key.strip('_').upper()} is not part of a count")
        source = self._from(statement)
        self._qualifiers = {source.name.casefold(), source.alias_or_name.casefold()}
        self.of_units = source.name.casefold() == UNITS
        grouped = self._group_by(statement)
        self._select(statement, grouped)
        self.groups = self._views(grouped)
        where = statement.args.get("where")
        self.condition = "TRUE" if where is None else text(where.this)
        self.predicate = self._predicate(where)

    @property
    def whose(self) -> str:
        return f"{self.kind} {self.table!r}"

    def refuse(self, node: Node, why: str) -> NoReturn:
        nodes = node if isinstance(node, list) else [node]
        shown = ", ".join(text(part) if hasattr(part, "sql") else str(part) for part in nodes)
        raise InvalidArgument(f"{self.whose} cannot use `{shown}`: {why}; {self.shape}")

    def name_of(self, column: exp.Column) -> str:
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

    def _from(self, statement: exp.Select) -> exp.Table:
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
        return source

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
                self.refuse(
                    group,
                    f"GROUP BY takes names of columns, and `{text(item)}` is not one; a name with other signs than "
                    'letters, digits and _ stands in double quotes: GROUP BY "marital-status"',
                )
            names.append(self.name_of(item))
        if len(set(names)) != len(names):
            self.refuse(group, "a column is named twice")
        return names

    def _check_asked(self, item: Node, asked: Node) -> None:
        """Refuse what is selected beside the grouped columns, where it is not what this kind of statement asks for."""
        if isinstance(asked, exp.Filter) and isinstance(asked.expression, exp.Where):
            asked = asked.this
        if isinstance(asked, exp.Avg) and self._summed(asked.this):
            self.refuse(
                item,
                'a mean is a ratio: ask for COUNT(*), and write measures = ["count", { mean = "..." }] beside sql',
            )
        if isinstance(asked, exp.Sum) and self._summed(asked.this):
            return
        if not isinstance(asked, exp.Count):
            self.refuse(item, "a table selects grouped columns and COUNT(*), nothing else")
        if not counts_rows(asked):
            self.refuse(item, "the only aggregate is COUNT(*)")

    def _summed(self, product: Node) -> list[Attribute]:
        """The values that a column, or a product of columns, names; none where it has anything else."""
        names: list[str] = []
        for column in factors_of(product):
            if not isinstance(column, exp.Column):
                return []
            names.append(self.name_of(column))
            if self.domain.recode(names[-1]) is not None or not self.domain[names[-1]].steps:
                return []
        return [self.domain[name] for name in names]

    @property
    def sums(self) -> dict[str, LinearOperator]:
        """What a table sums, as a function of each value's categories; empty where it counts."""
        asked = self._asked.this if isinstance(self._asked, exp.Filter) else self._asked
        values = self._summed(asked.this) if isinstance(asked, exp.Sum) else []
        return {value.name: value.moment(values.count(value)) for value in values}

    def _several(self, asked: Sequence[Node]) -> bool:
        """Whether a statement may ask for all of these together."""
        return all(isinstance(node, exp.Filter) and isinstance(node.this, exp.Count) for node in asked)

    def filters(self) -> dict[str, Predicate]:
        """The name of each COUNT(*) FILTER (WHERE condition) -> the condition; without one, nothing."""
        found: dict[str, Predicate] = {}
        for item in self.items:
            asked = item.this if isinstance(item, exp.Alias) else item
            if isinstance(asked, exp.Filter):
                where = asked.expression.this
                label = item.alias if isinstance(item, exp.Alias) else text(where)
                if label in found:
                    self.refuse(item, f"two counts are called {label!r}: name them apart, with AS")
                reader = Where(self.domain, self.name_of, self.whose, possible(self.predicate))
                found[label] = reader.predicate(where)
        return found

    def _select(self, statement: exp.Select, grouped: Sequence[str]) -> None:
        names: list[str] = []
        asked: list[Node] = []
        self.items: list[Node] = []
        for item in statement.expressions:
            inner = item.this if isinstance(item, exp.Alias) else item
            if isinstance(item, exp.Column):
                names.append(self.name_of(item))
            elif isinstance(inner, exp.Column):
                self.refuse(item, "grouped columns keep their names; leave out AS")
            else:
                self._check_asked(item, inner)
                asked.append(inner)
                self.items.append(item)
        if not asked or (len(asked) > 1 and not self._several(asked)):
            self.refuse(statement.expressions, f"it has {len(asked)} {self.asks}, and one is needed")
        self._asked = asked[0]
        if sorted(names) != sorted(grouped):
            wrong = f"SELECT names {names or 'no columns'}, but GROUP BY {list(grouped) or 'none'}"
            self.refuse(statement, f"{wrong}: they must name the same columns")

    def _views(self, grouped: Sequence[str]) -> dict[str, AttributeView]:
        views = {name: self.domain.resolve(name) for name in grouped}
        for name, view in views.items():
            if view.attribute.steps:
                raise InvalidArgument(f"{self.whose} groups by {name!r}: {value_words(name)}")
        owners: dict[str, str] = {}
        for name, view in views.items():
            other = owners.setdefault(view.attribute.name, name)
            if other != name:
                raise InvalidArgument(
                    f"{self.whose} groups by {other!r} and {name!r}, two views of "
                    f"{view.attribute.name!r}: group by the finer one, or make two tables"
                )
        return dict(sorted(views.items(), key=lambda item: self.domain.axis(item[1].attribute.name)))


class _Condition(Statement):
    """A statement of which only the condition was written."""

    kind = "condition"
    shape = ALLOWED


def condition_from_sql(domain: Domain, whose: str, text: str) -> Predicate:
    """The predicate that a condition says over one domain, such as ``age < 18 AND sex = 'F'``.

    >>> condition_from_sql(Domain({"age": range(3)}), "minor", "age < 2").cells.tolist()
    [True, True, False]
    """
    read = parsed("SELECT COUNT(*) FROM records WHERE " + text)  # noqa: S608  it is read, and no engine runs it
    if len(read) != 1:
        raise InvalidArgument(f"{whose} is one condition, such as age < 18")
    return _Condition(domain, whose, read[0]).predicate


def factors_of(product: Node) -> list[Node]:
    """The factors of a product, or what is none."""
    product = product.unnest() if product is not None else product
    return list(product.flatten()) if isinstance(product, exp.Mul) else [product]


def counts_rows(count: exp.Count) -> bool:
    """Whether an aggregate is COUNT(*)."""
    star = count.this
    return isinstance(star, exp.Star) and not any(star.args.values()) and not count.expressions


def table_from_sql(domain: Domain, name: str, sql: str, weight: object = 1) -> Table:
    """The table that one SELECT ... COUNT(*) statement asks for, exactly, or a refusal that shows the clause.

    ``SELECT [columns,] COUNT(*) [AS alias] FROM name [WHERE condition] [GROUP BY columns]``. Columns are
    attributes or recodes, found by their exact name, else regardless of case. Conditions compare an attribute
    or a recode with literals by =, <>, IN, and, for ordered attributes, <, <=, >, >=, BETWEEN; or two or three
    attributes with one another, as in ``a + b <= 5`` (:mod:`.arithmetic`); AND, OR, NOT and parentheses join them.
    A literal must be in the domain for = and IN; as a bound it may be any number. The domain has no NULLs, so NOT is
    the plain complement. Several ``COUNT(*) FILTER (WHERE condition) [AS alias]`` over one to three attributes are the
    rows of a joint table.

    The rows are all combinations of the grouped categories that the condition leaves possible one column at a
    time, zeros included, in domain order whatever the order of the columns in the statement. A disjunction
    over several attributes becomes a signed sum of products (HDMM, Appendix A).

    >>> domain = Domain({"sex": ["F", "M"], "age": range(115)})
    >>> sql = "SELECT sex, COUNT(*) FROM people WHERE age < 5 GROUP BY sex"
    >>> table = table_from_sql(domain, "young", sql)
    >>> table.columns(domain), table.operator(domain).shape
    ({'sex': ('F', 'M')}, (2, 230))
    """

    statements = parsed(sql)
    if len(statements) != 1:
        raise InvalidArgument(f"table {name!r} takes one statement, not {len(statements)}: {TABLE_SHAPE}")
    return _table(domain, Statement(domain, name, statements[0]), weight)


def tables_from_sql(domain: Domain, sql: str) -> list[Table]:
    """Tables q1, q2, ... from statements separated by semicolons."""

    statements = parsed(sql)
    if not statements:
        raise InvalidArgument(f"there is no statement in {sql!r}: {TABLE_SHAPE}")
    return [_table(domain, Statement(domain, f"q{k}", part), 1) for k, part in enumerate(statements, start=1)]


def _table(domain: Domain, statement: Statement, weight: object) -> Table:
    filters = statement.filters()
    if len(filters) > 1:
        return _filtered(domain, statement, filters, weight).counting(domain, of_units=statement.of_units)
    try:
        expansion = expand(conjunction([statement.predicate, *filters.values()]))
    except Unsupported as error:
        raise Unsupported(f"table {statement.table!r}, `{statement.condition}`: {error}") from None
    if not expansion.products:
        raise InvalidArgument(
            f"table {statement.table!r}: no cell of the domain satisfies `{statement.condition}`, "
            "so the count is always 0: correct the condition or drop the table"
        )
    table = _assemble(domain, statement.table, statement.groups, expansion, weight)
    if statement.sums:
        table = table.sums(domain, table.name, statement.sums, weight)
    return table.counting(domain, of_units=statement.of_units)


def _assemble(
    domain: Domain, name: str, groups: Mapping[str, AttributeView], expansion: Expansion, weight: object
) -> Table:
    """Terms with a row for each possible combination of groups; attributes only tested have one row."""
    grouped = {
        view.attribute.name: GroupedColumn(heading, view, expansion.reachable)
        for heading, view in groups.items()
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


def _filtered(
    domain: Domain, statement: Statement, filters: Mapping[str, Predicate], weight: object
) -> Table:
    """A row for each filter, over the combinations of the attributes that they are about."""
    where, beside = statement.predicate, possible(statement.predicate)
    names = {name for predicate in filters.values() for name in tests(predicate)}
    names |= {name for name in tests(where) if name not in beside}
    names = [name for name in domain.names if name in names]
    sizes = tuple(domain[name].size for name in names)
    if grouped := [heading for heading, view in statement.groups.items() if view.attribute.name in names]:
        statement.refuse(
            statement.items, f"they are grouped by {grouped[0]!r}, which they test: group by others"
        )
    if not 1 <= len(names) <= 3 or len(filters) * math.prod(sizes) > MOST_ENTRIES:
        statement.refuse(
            statement.items,
            f"together they are about {math.prod(sizes):,} combinations of {len(names)} attributes, and the counts of "
            f"one table may be about three, with {MOST_ENTRIES:,} entries: make several tables",
        )
    left = {name: cells for name, cells in beside.items() if name not in names}
    inside = [
        p for p in (where.parts if isinstance(where, All) else (where,)) if not set(tests(p)) <= set(left)
    ]
    rows = [over(conjunction([*inside, p]), names, sizes).ravel() for p in filters.values()]
    for label, row in zip(filters, rows, strict=True):
        if not row.any():
            raise InvalidArgument(f"{statement.whose}: {label!r} counts no cell of the domain: leave it out")
    matrix = Dense(np.array(rows, dtype=np.int64))
    carrier, products = (
        (0, ({0: matrix},)) if len(names) == 1 else JointMatrix(tuple(names), matrix).products(sizes)
    )
    groups = {v.attribute.name: GroupedColumn(h, v, left) for h, v in statement.groups.items()}
    others: dict[str, LinearOperator] = {
        name: Partition(np.where(cells, 0, -1), 1) for name, cells in left.items() if name not in groups
    }
    others |= {name: group.factor(left.get(name)) for name, group in groups.items()}
    terms = [Term(1, {names[k]: factor for k, factor in product.items()} | others) for product in products]
    columns = {name: group.column for name, group in groups.items()}
    return Table.of_terms(
        statement.table,
        terms,
        weight,
        columns | {names[carrier]: TableColumn("condition", tuple(filters))},
    )


class GroupedColumn:
    """One grouped column: the categories that the condition leaves possible, as rows."""

    def __init__(self, heading: str, view: AttributeView, reachable: Mapping[str, Mask]) -> None:
        size = view.attribute.size
        own = view.operator.classes if isinstance(view.operator, Partition) else np.arange(size)
        kept = np.zeros(len(view.labels), dtype=bool)
        kept[own[reachable.get(view.attribute.name, np.ones(size, dtype=bool))]] = True
        self.view = view
        self.rows = np.where(kept, np.cumsum(kept) - 1, -1)[own]
        self.column = TableColumn(heading, tuple(np.array(view.labels, dtype=object)[kept]))

    def factor(self, cells: Mask | None) -> LinearOperator:
        rows = self.rows if cells is None else np.where(cells, self.rows, -1)
        if (rows >= 0).all():
            return self.view.operator
        return Partition(rows, len(self.column.labels))
