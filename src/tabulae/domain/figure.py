"""Derived figures: sums, ratios and quantiles of counts, as tables whose answers they are made from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from ..errors import InvalidArgument
from ..linalg import Dense, LinearOperator
from .attribute import Attribute
from .domain import Domain
from .table import Table, TableColumn, Term

FactorProduct = tuple[tuple[str, LinearOperator], ...]
"""Attribute and matrix, always in the same order of attributes."""


@dataclass(frozen=True)
class Form:
    """A linear function of the counts, row by row: ``sum_t c_t kron_i A_ti x + constant`` with exact numbers.

    >>> (Form(constant=Fraction(2)) - Form(constant=Fraction(1, 2))).constant
    Fraction(3, 2)
    """

    products: Mapping[FactorProduct, Fraction] = field(default_factory=dict)
    constant: Fraction = Fraction(0)

    @property
    def fixed(self) -> bool:
        """Whether no count is in it."""
        return not self.products

    def __add__(self, other: Form) -> Form:
        sums = dict(self.products)
        for product, coefficient in other.products.items():
            sums[product] = sums.get(product, Fraction(0)) + coefficient
        kept = {product: total for product, total in sums.items() if total}
        return Form(kept, self.constant + other.constant)

    def __mul__(self, factor: Fraction) -> Form:
        if not factor:
            return Form()
        products = {product: factor * coefficient for product, coefficient in self.products.items()}
        return Form(products, factor * self.constant)

    def __sub__(self, other: Form) -> Form:
        return self + other * Fraction(-1)

    def linear(self, name: str, columns: Mapping[str, TableColumn]) -> Linear:
        """As a table of whole numbers, what to multiply its answers by, and what to add."""
        if self.fixed:
            return Linear(None, Fraction(1), self.constant)
        below = math.lcm(*(c.denominator for c in self.products.values()))
        above = math.gcd(*((c * below).numerator for c in self.products.values()))
        unit = Fraction(above, below)
        terms = [Term((c / unit).numerator, dict(product)) for product, c in self.products.items()]
        return Linear(Table.of_terms(name, terms, 1, columns), unit, self.constant)


def table_difference(table: Table, other: Table) -> Table | None:
    """The differences of two tables' answers, row by row; None where they are the same.

    >>> from tabulae.linalg import Identity
    >>> sexes = Table("sexes", {"sex": Identity(2)})
    >>> table_difference(sexes, sexes) is None
    True
    """
    sums = Form()
    for sign, terms in ((1, table.terms), (-1, other.terms)):
        for term in terms:
            product = tuple(sorted(term.factors.items(), key=lambda factor: factor[0]))
            sums = sums + Form({product: Fraction(sign * term.coefficient)})
    terms = [Term(c.numerator, dict(product)) for product, c in sums.products.items()]
    return Table.of_terms(table.name, terms, 1, {}) if terms else None


@dataclass(frozen=True)
class Linear:
    """``scale`` times the answers of ``table``, plus ``constant``; no table: the constant alone."""

    table: Table | None
    scale: Fraction
    constant: Fraction


@dataclass(frozen=True)
class Ratio:
    """``numerator / denominator``, row by row; ``within`` are the ends of what it can be, where these are known."""

    numerator: Linear
    denominator: Linear
    within: tuple[Fraction, Fraction] | None = None

    @property
    def tables(self) -> tuple[Table, ...]:
        return tuple(linear.table for linear in (self.numerator, self.denominator) if linear.table)


@dataclass(frozen=True)
class Variance:
    """``coefficient`` times the mean of squares less the square of the mean, both about one number, row by row."""

    coefficient: Fraction
    square: Ratio
    mean: Ratio

    @property
    def linears(self) -> tuple[Linear, Linear, Linear]:
        """The sums of squares and of numbers, and the count."""
        return self.square.numerator, self.mean.numerator, self.mean.denominator

    @property
    def tables(self) -> tuple[Table, ...]:
        return tuple(linear.table for linear in self.linears if linear.table)


@dataclass(frozen=True)
class Bracket:
    """What lies between two linear functions of the counts, row by row."""

    least: Linear
    most: Linear
    never_negative: bool = False

    @property
    def tables(self) -> tuple[Table, ...]:
        return tuple(linear.table for linear in (self.least, self.most) if linear.table)


@dataclass(frozen=True)
class Quantile:
    """``coefficient`` times the smallest value v of an attribute with ``N(<= v) >= share * N``, in each group.

    ``table`` counts ``d N(<= v) - n N`` with ``share = n / d`` for each group and each of the rising ``values``, which
    are the rows of ``attribute``. Where values are the ends of classes, ``starts`` are where these begin.

    With ``between`` it is interpolated, as PERCENTILE_CONT is: with h = share (N - 1) + 1 the mean of ``Q(r)`` over r
    from h - 1 to h, Q(r) being the smallest value with ``N(<= v) >= r``.
    """

    coefficient: Fraction
    share: Fraction
    table: Table
    attribute: str
    values: tuple[int, ...]
    starts: tuple[int, ...] | None = None
    between: bool = False

    @property
    def tables(self) -> tuple[Table, ...]:
        return (self.table,)


FigurePart = Linear | Ratio | Quantile


@dataclass(frozen=True)
class Figure:
    """A derived figure: one number for each combination of its columns' labels, in C order.

    It is the sum of ``linear``, ratios, quantiles and variances. ``sql`` is the statement that asked for it.
    """

    name: str
    sql: str
    columns: Mapping[str, TableColumn]
    linear: Linear
    ratios: tuple[Ratio, ...]
    quantiles: tuple[Quantile, ...]
    variances: tuple[Variance, ...] = ()
    brackets: tuple[Bracket, ...] = ()

    @classmethod
    def mean(cls, name: str, domain: Domain, counts: Table, value: Attribute) -> Figure:
        """The mean of a measured value over the records that each row of a table counts."""
        columns = _columns(counts, domain)
        words = f"mean of {value.name}" + (f" by {', '.join(columns)}" if columns else "")
        ratio = _mean(name, domain, counts, value, 1, 0)
        return cls(name, words, columns, Linear(None, Fraction(1), Fraction(0)), (ratio,), ())

    @classmethod
    def variance(cls, name: str, domain: Domain, counts: Table, value: Attribute, near: int) -> Figure:
        """The variance of a measured value with squares over the records that each row of a table counts.

        Its interval is narrow where means are near the public number.
        """
        columns = _columns(counts, domain)
        words = f"variance of {value.name}" + (f" by {', '.join(columns)}" if columns else "")
        square, mean = (_mean(name, domain, counts, value, power, near) for power in (2, 1))
        found = Variance(Fraction(1), square, mean)
        return cls(name, words, columns, Linear(None, Fraction(1), Fraction(0)), (), (), (found,))

    @classmethod
    def clamping(
        cls, name: str, domain: Domain, counts: Table, value: Attribute, of: str, excess: np.ndarray
    ) -> tuple[Figure, Table]:
        """What clamping a value to its range takes from its sum over each row of a table, and the table to measure.

        Arguments:
            of: an attribute of classes of the same numbers, which the table does not have.
            excess: shape (2, classes), whole: what a record of each class is beyond the range, at least and at most;
                less than 0 below the range.
        """
        columns = _columns(counts, domain)
        plain, ends = counts.over(domain), []
        for row in excess:
            terms = [Term(t.coefficient, {**t.factors, of: Dense(row[None])}) for t in plain.terms]
            ends.append(Linear(Table.of_terms(name, terms, 1, plain.labels or {}), Fraction(1), Fraction(0)))
        words = f"what clamping takes from the sum of {value.name}" + (
            f" by {', '.join(columns)}" if columns else ""
        )
        both = [Term(t.coefficient, {**t.factors, of: Dense(excess)}) for t in plain.terms]
        measured = Table.of_terms(name, both, 1, {**(plain.labels or {}), of: ("at least", "at most")})
        figure = cls(
            name,
            words,
            columns,
            Linear(None, Fraction(1), Fraction(0)),
            (),
            (),
            (),
            (Bracket(ends[0], ends[1], bool(excess.min() >= 0)),),
        )
        return figure, measured

    @classmethod
    def quantile(
        cls,
        name: str,
        domain: Domain,
        counts: Table,
        of: str,
        share: Fraction,
        ends: Sequence[tuple[int, int]] | None = None,
    ) -> Figure:
        """A quantile of an attribute of numbers, or of classes of numbers with these ends, in each row of a table.

        Of classes the estimate is where one ends, and the interval begins where another begins.
        """
        attribute = domain[of]
        if of in counts.attributes:
            raise InvalidArgument(f"{of!r} is counted by itself: take the quantiles of other attributes")
        if ends is None and attribute.numeric and attribute.ordered and not attribute.steps:
            ends = [(int(value), int(value)) for value in attribute.values]
        if ends is None or len(ends) != attribute.size:
            raise InvalidArgument(
                f"{of!r} has categories that are no numbers in order, so that it has no quantiles: declare it with a "
                "range, or with bins of whole numbers that are not open, and refuse what is in none"
            )
        places = np.arange(attribute.size)
        below = share.denominator * (places[None] <= places[:, None]) - share.numerator
        terms = [Term(t.coefficient, {**t.factors, of: Dense(below)}) for t in counts.over(domain).terms]
        columns = _columns(counts, domain)
        table = Table.of_terms(
            name, terms, 1, {**(counts.over(domain).labels or {}), of: [str(k) for k in places]}
        )
        low, high = zip(*ends, strict=True)
        found = Quantile(Fraction(1), share, table, of, high, low if low != high else None)
        words = f"{share} quantile of {of}" + (f" by {', '.join(columns)}" if columns else "")
        return cls(name, words, columns, Linear(None, Fraction(1), Fraction(0)), (), (found,))

    @property
    def count(self) -> Table | None:
        """The table of plain counts that the figure is; None where it is anything else."""
        parts = self.ratios or self.quantiles or self.variances or self.brackets
        plain = not parts and self.linear.constant == 0 and self.linear.scale == 1
        return self.linear.table if plain else None

    @property
    def headings(self) -> dict[str, tuple[str, ...]]:
        """Heading -> labels, in the order of the rows' axes."""
        return {column.name: column.labels for column in self.columns.values()}

    @property
    def rows(self) -> int:
        return math.prod(len(column.labels) for column in self.columns.values())

    @property
    def tables(self) -> tuple[Table, ...]:
        """Every table that it is made from."""
        parts = (*self.ratios, *self.quantiles, *self.variances, *self.brackets)
        own = (self.linear.table,) if self.linear.table else ()
        return (*own, *(table for part in parts for table in part.tables))

    @property
    def attributes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for table in self.tables for name in table.attributes))


def _columns(table: Table, domain: Domain) -> dict[str, TableColumn]:
    return {heading: TableColumn(heading, labels) for heading, labels in table.columns(domain).items()}


def _mean(name: str, domain: Domain, counts: Table, value: Attribute, power: int, near: int) -> Ratio:
    """The mean of ``(v - near)^power``, and what it can be."""
    one, none = Fraction(1), Fraction(0)
    sums = counts.sums(domain, name, {value.name: value.moment(power, near)})
    ends = [Fraction(end - near) ** power for end in value.ends]
    within = (min(ends) if power == 1 else none, max(ends))
    return Ratio(Linear(sums, one, none), Linear(counts, one, none), within)


@dataclass(frozen=True)
class Expression:
    """What arithmetic makes of counts: a form, plus multiples of ratios of forms, plus quantiles and variances.

    Ratios of the same denominator are one ratio. What is no such sum is refused by :class:`InvalidArgument`.
    """

    form: Form = field(default_factory=Form)
    ratios: tuple[tuple[Form, Form], ...] = ()
    quantiles: tuple[tuple[Fraction, Quantile], ...] = ()
    variances: tuple[tuple[Fraction, tuple[Form, Form, Form]], ...] = ()

    @property
    def shaped(self) -> bool:
        """Whether it is more than a sum of counts."""
        return bool(self.ratios or self.quantiles or self.variances)

    @property
    def fixed(self) -> bool:
        """Whether it is a number."""
        return self.form.fixed and not self.shaped

    @property
    def parts(self) -> int:
        """How many numbers with intervals of their own it is the sum of."""
        return (not self.form.fixed) + len(self.ratios) + len(self.quantiles) + len(self.variances)

    def __add__(self, other: Expression) -> Expression:
        ratios: list[tuple[Form, Form]] = []
        for above, below in (*self.ratios, *other.ratios):
            same = next((i for i, (_, known) in enumerate(ratios) if known == below), None)
            if same is None:
                ratios.append((above, below))
            else:
                ratios[same] = (ratios[same][0] + above, below)
        kept = tuple((above, below) for above, below in ratios if above != Form())
        quantiles, variances = (*self.quantiles, *other.quantiles), (*self.variances, *other.variances)
        return Expression(self.form + other.form, kept, quantiles, variances)

    def __mul__(self, other: Expression) -> Expression:
        number, rest = (self, other) if self.fixed else (other, self)
        if not number.fixed:
            raise InvalidArgument("a product of two figures: one side of * must be a number")
        factor = number.form.constant
        if not factor:
            return Expression()
        return Expression(
            rest.form * factor,
            tuple((above * factor, below) for above, below in rest.ratios),
            tuple((factor * coefficient, quantile) for coefficient, quantile in rest.quantiles),
            tuple((factor * coefficient, variance) for coefficient, variance in rest.variances),
        )

    def __truediv__(self, other: Expression) -> Expression:
        if other.shaped:
            raise InvalidArgument(
                "it divides by a ratio, a mean or a quantile: divide by counts or by a number"
            )
        if other.fixed:
            if not other.form.constant:
                raise InvalidArgument("it divides by 0: divide by counts or by another number")
            return self * Expression(Form(constant=1 / other.form.constant))
        if self.shaped:
            raise InvalidArgument(
                "it divides a ratio, a mean or a quantile by counts: only sums and differences of counts can be divided"
            )
        if self.form == other.form:
            raise InvalidArgument("it divides a count by itself, which is 1 whatever the counts are")
        return Expression(ratios=((self.form, other.form),))
