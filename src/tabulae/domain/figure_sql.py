"""Derived figures from SQL: arithmetic on counts, means and quantiles within groups, exactly or not at all.

Counts, weighted counts and cumulative counts within the groups of one statement are linear forms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial

import numpy as np
from sqlglot import exp

from ..errors import InvalidArgument, Unsupported
from ..linalg import Dense, LinearOperator, Partition
from .attribute import Attribute
from .domain import AttributeView, Domain
from .figure import Expression, Figure, Form, Quantile, Ratio, Variance
from .predicate import Mask, Predicate, conjunction, expand, possible
from .sql import (
    DECIMAL,
    GroupedColumn,
    Node,
    Statement,
    Where,
    counts_rows,
    factors_of,
    parsed,
    text,
    value_words,
)
from .table import TableColumn

_ENTRIES = 2**24  # of a matrix that is written out
_LARGEST = 2**53  # what stands for a value that is none is larger

Written = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class FigureGroups:
    """The rows of a figure: all combinations of grouped categories that the condition leaves possible.

    ``predicate`` is the statement's condition, on which every count of it stands. ``summed`` are attributes whose
    groups are summed over, so that each row has the sum. ``of_units`` says that units are counted, and not records.
    """

    domain: Domain
    predicate: Predicate
    groups: Mapping[str, GroupedColumn]
    summed: frozenset[str] = field(default=frozenset())
    of_units: bool = False

    @classmethod
    def of(
        cls,
        domain: Domain,
        views: Mapping[str, AttributeView],
        predicate: Predicate,
        *,
        of_units: bool = False,
    ) -> FigureGroups:
        reachable = expand(predicate).reachable
        groups = {view.attribute.name: GroupedColumn(name, view, reachable) for name, view in views.items()}
        return cls(domain, predicate, groups, of_units=of_units)

    @property
    def columns(self) -> dict[str, TableColumn]:
        return {name: group.column for name, group in self.groups.items()}

    def count(self, predicate: Predicate) -> Form:
        """How many records of each group satisfy a predicate."""
        return self._form(predicate, {})

    def total(self, factors: Sequence[Attribute], predicate: Predicate, near: int = 0) -> Form:
        """The sum of the product of some attributes' values, each less ``near``, over the records of each group that
        satisfy a predicate."""
        written: dict[str, Written] = {}
        for attribute in dict.fromkeys(factors):
            values = self._powers(attribute, predicate, factors.count(attribute), near)
            if not values.any():
                return Form()
            written[attribute.name] = partial(self._spread, attribute, values)
        return self._form(predicate, written)

    def _powers(self, attribute: Attribute, predicate: Predicate, power: int, near: int) -> np.ndarray:
        """What each category adds to such a sum, (size,)."""
        if attribute.steps:
            return attribute.moment(power, near).dense()[0]
        numbers = self.numbers(attribute, predicate)
        if max(abs(number - near) for number in numbers) ** power >= _LARGEST:
            raise InvalidArgument(f"sums of {attribute.name!r} to the power {power} have too many digits")
        kept = set(numbers)
        values = [(int(v) - near) ** power if v in kept else 0 for v in attribute.values]
        return np.array(values, dtype=np.int64)

    def _spread(self, attribute: Attribute, values: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """What each category adds, in the row of its group."""
        matrix = np.zeros((self._rows(attribute.name), attribute.size), dtype=values.dtype)
        counted = np.flatnonzero(rows >= 0)
        matrix[rows[counted], counted] = values[counted]
        return matrix

    def variance(self, attribute: Attribute, predicate: Predicate) -> tuple[Form, Form, Form]:
        """Sums of squares and of numbers, about the middle of what can be, and the count."""
        ends = attribute.ends if attribute.steps else self.numbers(attribute, predicate)
        middle = (ends[0] + ends[-1]) // 2
        sums = (self.total([attribute] * power, predicate, middle) for power in (2, 1))
        square, first = sums
        return square, first, self.count(predicate)

    def below(
        self, attribute: Attribute, predicate: Predicate, share: Fraction
    ) -> tuple[Form, tuple[int, ...]]:
        """``d N(<= v) - n N`` with ``share = n / d`` for each value v that is counted, and these values."""
        numbers = self.numbers(attribute, predicate)
        values = np.array([v if self._is_number(v) else 0 for v in attribute.values], dtype=np.int64)
        self._written_out(len(numbers), attribute)

        def cumulated(rows: np.ndarray) -> np.ndarray:
            below = share.denominator * (values[None] <= np.array(numbers)[:, None]) - share.numerator
            return np.where(rows >= 0, below, 0)

        return self._form(predicate, {attribute.name: cumulated}), numbers

    def numbers(self, attribute: Attribute, predicate: Predicate) -> tuple[int, ...]:
        """The values of an attribute that a predicate leaves possible, rising."""
        reachable = expand(predicate).reachable.get(attribute.name, np.ones(attribute.size, dtype=bool))
        counted = [attribute.values[i] for i in np.flatnonzero(reachable)]
        labels = [attribute.labels[i] for i in np.flatnonzero(reachable)]
        if not attribute.numeric or all(str(v) != label for v, label in zip(counted, labels, strict=True)):
            raise InvalidArgument(
                f"the categories of {attribute.name!r} are not numbers: count them, as in COUNT(*) FILTER (WHERE "
                f"{attribute.name} = '{attribute.labels[0]}')"
            )
        named = zip(counted, labels, strict=True)
        if odd := [label for v, label in named if not self._is_number(v) or str(v) != label]:
            raise InvalidArgument(
                f"the category {odd[0]!r} of {attribute.name!r} has no value: leave it out, with WHERE "
                f"{attribute.name} <> '{odd[0]}'"
            )
        return tuple(sorted(int(v) for v in counted))

    @staticmethod
    def _is_number(value: object) -> bool:
        return isinstance(value, int) and abs(value) < _LARGEST

    def _rows(self, name: str) -> int:
        return len(self.groups[name].column.labels) if name in self.groups else 1

    def _form(self, predicate: Predicate, written: Mapping[str, Written]) -> Form:
        """The counts of a predicate, the matrices of some attributes being written out from the group of each cell."""
        form = Form()
        for coefficient, cells in expand(predicate).products:
            factors: dict[str, LinearOperator] = {}
            for attribute in self.domain.attributes:
                name, mask = attribute.name, cells.get(attribute.name)
                if name in written or name in self.summed:
                    factors[name] = self._written(attribute, mask, written.get(name))
                elif name in self.groups:
                    factors[name] = self.groups[name].factor(mask)
                elif mask is not None:
                    factors[name] = Partition(np.where(mask, 0, -1), 1)
            factors |= self.domain.seat_factor(factors, of_units=self.of_units)
            form = form + Form({tuple(factors.items()): Fraction(coefficient)})
        return form

    def _written(self, attribute: Attribute, mask: Mask | None, write: Written | None) -> LinearOperator:
        """One attribute's matrix entry by entry, each group having the sum of all where it is summed over."""
        name = attribute.name
        self._written_out(self._rows(name), attribute)
        rows = self.groups[name].rows if name in self.groups else np.zeros(attribute.size, dtype=np.int64)
        rows = rows if mask is None else np.where(mask, rows, -1)
        if write is None:
            matrix = np.broadcast_to(rows >= 0, (self._rows(name), attribute.size)).astype(np.int64)
        else:
            matrix = write(rows)
            if name in self.summed:
                matrix = np.broadcast_to(matrix.sum(axis=0), matrix.shape)
        return Dense(np.ascontiguousarray(matrix))

    def _written_out(self, rows: int, attribute: Attribute) -> None:
        if rows * attribute.size > _ENTRIES:
            raise Unsupported(
                f"it takes a matrix of {rows:,} x {attribute.size:,} for {attribute.name!r}, too large to be written "
                "out: group by a coarser recode, or ask for fewer values with WHERE"
            )


FIGURE_SHAPE = (
    "a figure is SELECT [columns,] arithmetic on COUNT(*), SUM(attribute), AVG(attribute), VAR_POP(attribute), "
    "MEDIAN(attribute), QUANTILE(attribute, share) and PERCENTILE_CONT(share) WITHIN GROUP (ORDER BY attribute), each "
    "with FILTER (WHERE condition) if need be, FROM name [WHERE condition] [GROUP BY the same columns]"
)
MOST_PARTS = 8
"""The most ratios and quantiles that one figure may add up."""

_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div)


def figure_from_sql(domain: Domain, name: str, sql: str, whose: str = "figure") -> Figure:
    """The figure that one SELECT statement asks for, or a refusal that shows the clause.

    ``SELECT [columns,] expression [AS alias] FROM name [WHERE condition] [GROUP BY columns]``, conditions as
    :func:`~tabulae.domain.sql.table_from_sql` takes them. An expression joins by ``+ - * /`` numbers and

    ============================================  =========================================================
    ``COUNT(*)``                                  records
    ``SUM(a)``, ``AVG(a)``, ``VAR_POP(a)``        sum, mean and variance of a numeric attribute
    ``SUM(a * b)``, ``AVG(a * b)``                sum and mean of products
    ``MEDIAN(a)``, ``QUANTILE(a, p)``,            the smallest value v with ``N(a <= v) >= p N``, p = 1/2 for
    ``PERCENTILE_DISC(p) WITHIN GROUP (ORDER      the median
    BY a)``
    ``PERCENTILE_CONT(p) WITHIN GROUP (ORDER BY   the same, interpolated between two values at ``p (N - 1) + 1``
    a)``
    ``... FILTER (WHERE condition)``              any of them, over some records
    ``SUM(COUNT(*)) OVER ([PARTITION BY b])``     the sum over the groups, or over those with the same b
    ============================================  =========================================================

    Only counts divide and are divided; a figure is a sum of at most 8 counts, ratios and quantiles.

    >>> domain = Domain({"sex": ["F", "M"], "age": range(115)})
    >>> sql = "SELECT sex, 100 * COUNT(*) FILTER (WHERE age < 18) / COUNT(*) FROM people GROUP BY sex"
    >>> figure = figure_from_sql(domain, "minors", sql)
    >>> figure.headings, len(figure.ratios), figure.ratios[0].numerator.scale
    ({'sex': ('F', 'M')}, 1, Fraction(100, 1))
    """
    statements = parsed(sql)
    if len(statements) != 1:
        raise InvalidArgument(f"{whose} {name!r} takes one statement, not {len(statements)}: {FIGURE_SHAPE}")
    statement = _FigureStatement(domain, name, statements[0], whose)
    try:
        return statement.figure(sql)
    except RecursionError:
        raise Unsupported(f"{whose} {name!r}: the expression is nested too deeply: split it") from None


class _FigureStatement(Statement):
    """A statement whose one column beside the grouped ones is arithmetic."""

    shape = FIGURE_SHAPE
    asks = "figures"

    def __init__(self, domain: Domain, name: str, statement: Node, kind: str) -> None:
        self.kind = kind
        super().__init__(domain, name, statement)

    def figure(self, sql: str) -> Figure:
        try:
            self._over = FigureGroups.of(self.domain, self.groups, self.predicate, of_units=self.of_units)
        except Unsupported as error:
            raise Unsupported(f"{self.whose}, `{self.condition}`: {error}") from None
        value = self._value(self._asked)
        if value.fixed:
            self.refuse(self._asked, "it is the same whatever is counted")
        if value.parts > MOST_PARTS:
            self.refuse(
                self._asked,
                f"it adds up {value.parts} ratios and quantiles, more than {MOST_PARTS}: split it",
            )
        columns = self._over.columns

        def ratio(above: Form, below: Form) -> Ratio:
            return Ratio(above.linear(self.table, columns), below.linear(self.table, columns))

        return Figure(
            self.table,
            sql,
            columns,
            value.form.linear(self.table, columns),
            tuple(ratio(above, below) for above, below in value.ratios),
            tuple(replace(quantile, coefficient=factor) for factor, quantile in value.quantiles),
            tuple(
                Variance(factor, ratio(square, count), ratio(first, count))
                for factor, (square, first, count) in value.variances
            ),
        )

    def _several(self, asked: Sequence[Node]) -> bool:
        return False

    def _check_asked(self, item: Node, asked: Node) -> None:
        """What stands there is read as arithmetic, or refused, once the groups are known."""

    def _value(self, node: Node) -> Expression:
        node = node.unnest()
        try:
            if isinstance(node, _ARITHMETIC):
                return self._arithmetic(node)
            if isinstance(node, exp.Neg):
                return self._value(node.this) * Expression(Form(constant=Fraction(-1)))
            if isinstance(node, exp.Literal) and not node.is_string:
                return self._number(node)
            if isinstance(node, exp.Window):
                return self._window(node)
            if isinstance(node, exp.Filter):
                return self._aggregate(node.this, self._condition(node))
            return self._aggregate(node, self.predicate)
        except (InvalidArgument, Unsupported) as error:
            if str(error).startswith(self.whose):
                raise
            shown = f"{self.whose}, `{text(node)}`: {error}"
            raise type(error)(shown) from None

    def _arithmetic(self, node: Node) -> Expression:
        left, right = self._value(node.this), self._value(node.expression)
        if isinstance(node, exp.Add):
            return left + right
        if isinstance(node, exp.Sub):
            return left + right * Expression(Form(constant=Fraction(-1)))
        return left * right if isinstance(node, exp.Mul) else left / right

    def _number(self, node: Node) -> Expression:
        if not DECIMAL.fullmatch(node.this):
            self.refuse(node, "it is not a decimal number of reasonable length")
        return Expression(Form(constant=Fraction(node.this)))

    def _condition(self, node: exp.Filter) -> Predicate:
        where = node.expression
        if not isinstance(where, exp.Where):
            self.refuse(node, "FILTER takes (WHERE condition)")
        reader = Where(self.domain, self.name_of, self.whose, possible(self.predicate))
        return conjunction([self.predicate, reader.predicate(where.this)])

    def _aggregate(self, node: Node, predicate: Predicate) -> Expression:
        node = node.unnest()
        if isinstance(node, exp.Count):
            if not counts_rows(node):
                self.refuse(node, "records are counted by COUNT(*), some of them by FILTER (WHERE condition)")
            return Expression(self._some(node, self._over.count(predicate)))
        if isinstance(node, exp.Sum | exp.Avg):
            factors = [self._attribute(node, factor) for factor in factors_of(node.this)]
            if isinstance(node, exp.Sum):
                return Expression(self._some(node, self._over.total(factors, predicate)))
            count = self._some(node, self._over.count(predicate))
            return Expression(self._over.total(factors, predicate)) / Expression(count)
        if isinstance(node, exp.VariancePop):
            attribute = self._attribute(node, node.this)
            self._some(node, self._over.count(predicate))
            return Expression(variances=((Fraction(1), self._over.variance(attribute, predicate)),))
        if isinstance(node, exp.Variance | exp.Stddev | exp.StddevSamp | exp.StddevPop):
            self.refuse(node, "of spread there is VAR_POP(attribute), the variance of those who are counted")
        if (asked := self._quantile(node)) is not None:
            return self._quantiles(node, *asked[:2], predicate, between=asked[2])
        if isinstance(node, exp.Filter | exp.Window):
            self.refuse(node, "FILTER and OVER follow an aggregate, once, and OVER follows SUM(COUNT(*))")
        if isinstance(node, exp.Column):
            self.refuse(node, "a column is selected only where it is grouped by, or within an aggregate")
        return self.refuse(node, "it is none of the parts of a figure")

    def _some(self, node: Node, form: Form) -> Form:
        if form.fixed:
            self.refuse(
                node, "no cell of the domain is counted, so it is always 0: correct the condition, or drop it"
            )
        return form

    def _attribute(self, node: Node, column: Node) -> Attribute:
        column = column.unnest() if column is not None else column
        if not isinstance(column, exp.Column):
            self.refuse(
                node, "an aggregate takes one attribute by its plain name, and aggregates do not nest"
            )
        name = self.name_of(column)
        if (recode := self.domain.recode(name)) is not None:
            self.refuse(node, f"the classes of the recode {name!r} are not numbers: use {recode.of!r}")
        return self.domain[name]

    def _quantile(self, node: Node) -> tuple[Node, Fraction, bool] | None:
        """The column and the share of a quantile, and how it is meant; None for something else."""
        if isinstance(node, exp.Median):
            return node.this, Fraction(1, 2), False
        if isinstance(node, exp.WithinGroup):
            inner = node.this
            if not isinstance(inner, exp.PercentileDisc | exp.PercentileCont):
                self.refuse(node, "WITHIN GROUP goes with PERCENTILE_DISC(share) and PERCENTILE_CONT(share)")
            ordered = node.expression.expressions
            if len(ordered) != 1 or ordered[0].args.get("desc"):
                self.refuse(node, "WITHIN GROUP takes (ORDER BY attribute), rising")
            return ordered[0].this, self._share(node, inner.this), isinstance(inner, exp.PercentileCont)
        if isinstance(node, exp.Quantile):
            return node.this, self._share(node, node.args.get("quantile")), False
        if isinstance(node, exp.PercentileDisc | exp.PercentileCont):
            return (
                node.this,
                self._share(node, node.args.get("expression")),
                isinstance(node, exp.PercentileCont),
            )
        return None

    def _share(self, node: Node, share: Node) -> Fraction:
        if isinstance(share, exp.Literal) and not share.is_string and DECIMAL.fullmatch(share.this):
            value = Fraction(share.this)
            if 0 < value < 1 and value.denominator <= 10**6:
                return value
        return self.refuse(
            node, "the share is a number between 0 and 1 with at most 6 decimals, such as 0.25"
        )

    def _quantiles(
        self, node: Node, column: Node, share: Fraction, predicate: Predicate, *, between: bool
    ) -> Expression:
        attribute = self._attribute(node, column)
        if attribute.name in self._over.groups:
            self.refuse(node, f"{attribute.name!r} is what the groups are made of: group by something else")
        if attribute.steps:
            self.refuse(node, value_words(attribute.name))
        self._some(node, self._over.count(predicate))
        form, values = self._over.below(attribute, predicate, share)
        terms = form.linear(self.table, {}).table
        assert terms is not None
        found = Quantile(Fraction(1), share, terms, attribute.name, values, between=between)
        return Expression(quantiles=((Fraction(1), found),))

    def _window(self, node: exp.Window) -> Expression:
        extra = [k for k, v in node.args.items() if v and k not in ("this", "partition_by", "over")]
        inner = node.this.this.unnest() if isinstance(node.this, exp.Sum) else None
        aggregate = inner.this if isinstance(inner, exp.Filter) else inner
        if extra or not isinstance(aggregate, exp.Count) or not counts_rows(aggregate):
            self.refuse(
                node, "OVER sums counts over groups: SUM(COUNT(*)) OVER () or OVER (PARTITION BY columns)"
            )
        kept = {self.name_of(column) for column in node.args.get("partition_by") or ()}
        if wrong := sorted(kept - set(self.groups)):
            self.refuse(
                node, f"PARTITION BY takes columns that are grouped by, and {wrong[0]!r} is not one of them"
            )
        bases = {self.groups[name].attribute.name for name in kept}
        predicate = self._condition(inner) if isinstance(inner, exp.Filter) else self.predicate
        over = replace(self._over, summed=frozenset(self._over.groups) - bases)
        return Expression(self._some(node, over.count(predicate)))
