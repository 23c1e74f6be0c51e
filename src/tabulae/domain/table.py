"""Tables: a named set of counting queries, as one Kronecker product over the domain or a sum of a few.

A constraint is what is known of a table's counts besides the noisy measurements.
"""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache, reduce
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np

from ..errors import InvalidArgument, Unsupported
from ..linalg import Kron, LinearOperator, Sum, Total
from .attribute import Attribute, check_name
from .domain import Domain, heading_and_labels
from .joint import MOST_ENTRIES, JointMatrix

_SMALLEST = Fraction(1, 10**100)
_NUMBER = re.compile(r"[0-9]{1,120}(\.[0-9]{0,120})?([eE][+-]?[0-9]{1,3})?|[0-9]{1,120}/0*[1-9][0-9]{0,120}")


class TableColumn(NamedTuple):
    """One column of a published table: its heading, and the label of each row of the attribute's factor."""

    name: str
    labels: tuple[str, ...]


@dataclass(frozen=True, init=False)
class Term:
    """A whole number times one Kronecker product: a matrix for each attribute named, Total for the others.

    >>> from tabulae.linalg import Identity
    >>> Term(-1, {"sex": Identity(2)}).rows
    2
    """

    coefficient: int
    factors: Mapping[str, LinearOperator]

    def __init__(self, coefficient: int, factors: Mapping[str, LinearOperator]) -> None:
        if isinstance(coefficient, bool) or not isinstance(coefficient, int) or coefficient == 0:
            raise InvalidArgument(
                f"the coefficient of a term must be a whole number other than 0, not {coefficient!r}"
            )
        object.__setattr__(self, "coefficient", coefficient)
        object.__setattr__(self, "factors", dict(factors))

    def __hash__(self) -> int:
        return hash((self.coefficient, frozenset(self.factors.items())))

    @property
    def rows(self) -> int:
        """The number of rows of the product."""
        return math.prod(factor.shape[0] for factor in self.factors.values())

    def over(self, domain: Domain) -> tuple[LinearOperator, ...]:
        """One matrix for every attribute of the domain, in its order."""
        return tuple(
            self.factors[attribute.name] if attribute.name in self.factors else _total(attribute.size)
            for attribute in domain.attributes
        )


@lru_cache(maxsize=1024)
def _total(size: int) -> Total:
    """One object a size: tables of few attributes out of many have thousands of totals, compared by identity."""
    return Total(size)


@dataclass(frozen=True, init=False)
class Table:
    """A table to publish: counts for every combination of one row from each attribute's matrix.

    As a matrix over the domain's N cells it is ``sum_t c_t kron_i A_ti`` with one term, c = 1, unless it was
    made from a disjunction; rows stand in C order, attributes in domain order. The weight says how much the
    table matters: it multiplies the matrix where methods are selected, never the published answers.

    Arguments:
        name: heads the published files.
        factors: attribute -> matrix with one column a category; attributes left out are summed over.
        weight: positive; kept as a Fraction (a float means its shortest decimal).
        labels: attribute -> row labels or a `TableColumn`; by default derived from the matrix. Where given, an
            attribute with a single row has a column only if it is named here ({}: none has).

    Raises:
        InvalidArgument: a bad name, weight or label, or something that is not a matrix.

    Reference: HDMM, sections 5 and Appendix A (products, and differences of products).

    >>> from tabulae.linalg import AllRange, Identity
    >>> table = Table("P12", {"sex": Identity(2), "age": AllRange(3)}, weight=0.5)
    >>> domain = Domain({"sex": ["F", "M"], "age": range(3), "race": 64})
    >>> table.rows(domain), table.weight, table.columns(domain)["age"]
    (12, Fraction(1, 2), ('0', '0-1', '0-2', '1', '1-2', '2'))
    """

    name: str
    terms: tuple[Term, ...]
    weight: Fraction
    labels: Mapping[str, TableColumn] | None

    def __init__(
        self,
        name: str,
        factors: Mapping[str, LinearOperator],
        weight: object = 1,
        labels: Mapping[str, Sequence[str] | TableColumn] | None = None,
    ) -> None:
        if not isinstance(factors, Mapping):
            raise InvalidArgument(
                f"table {name!r}: factors must map attribute names to matrices, not {factors!r}"
            )
        self._set(name, (Term(1, factors),), weight, labels)

    @classmethod
    def of_terms(
        cls,
        name: str,
        terms: Iterable[Term],
        weight: object = 1,
        labels: Mapping[str, Sequence[str] | TableColumn] | None = None,
    ) -> Table:
        """A table that is a signed sum of products; terms agree on the number of rows of each attribute.

        Terms with the same product become one.

        >>> len(Table.of_terms("all but", [Term(2, {}), Term(-1, {"sex": Total(2)})]).terms)
        1
        """
        terms = tuple(terms)
        table = cls.__new__(cls)
        table._set(name, terms if len(terms) == 1 else _collected(terms), weight, labels)
        return table

    @classmethod
    def sum(
        cls,
        name: str,
        factors: Mapping[str, LinearOperator],
        value: Attribute,
        weight: object = 1,
        labels: Mapping[str, Sequence[str] | TableColumn] | None = None,
        *,
        near: int = 0,
        times: Attribute | None = None,
    ) -> Table:
        """Sums of a measured value over the records that a table of counts with these factors counts.

        Row by row ``sum_r A_r (v_r - near)``: as a matrix ``[low - near, high - near]`` over the value's two ends, and
        so it differs from a table of counts in one factor alone. What decides how precise a mean is, for groups whose
        means are near a public guess, is the sum with that guess as ``near``. With another value as ``times`` it is the
        sum of products ``(v_r - near) u_r``, with the value itself, which then has squares, of ``(v_r - near)^2``.

        Raises :class:`~tabulae.errors.InvalidArgument` for an attribute that is no measured value, one that is among
        the factors, or a guess that is not a whole number of its range.

        >>> from tabulae.linalg import Identity
        >>> income = Attribute.measured("income", 0, 200_000, 1000)
        >>> domain = Domain({"region": ["N", "S"], "income": income})
        >>> pay = Table.sum("pay", {"region": Identity(2)}, income, near=60_000)
        >>> pay.matrix(domain).tolist(), pay.columns(domain)
        ([[-60000, 140000, 0, 0], [0, 0, -60000, 140000]], {'region': ('N', 'S')})
        """
        for each in (value,) if times is None else (value, times):
            if not isinstance(each, Attribute) or not each.steps:
                raise InvalidArgument(
                    f"table {name!r} sums {each!r}: give a value made by Attribute.measured"
                )
            if each.name in factors:
                raise InvalidArgument(
                    f"table {name!r} sums {each.name!r} and has it among its factors: leave it out"
                )
        summed = {value.name: value.moment(2 if times == value else 1, near)}
        if times is not None and times != value:
            summed[times.name] = times.moment()
        return cls(name, {**factors, **summed}, weight, labels)

    def sums(
        self, domain: Domain, name: str, summed: Mapping[str, LinearOperator], weight: object = 1
    ) -> Table:
        """The table of another name that sums a function of some values over the records that this one counts.

        Arguments:
            domain: in which the values are.
            summed: value -> a function of its categories, as :meth:`Attribute.moment` has them, (1, size).
        """
        table = self.over(domain)
        terms = [Term(t.coefficient, {**t.factors, **summed}) for t in table.terms]
        return Table.of_terms(name, terms, weight, table.labels)

    def counting(self, domain: Domain, *, of_units: bool) -> Table:
        """The same counts, of records or of units, where a domain counts both: see :meth:`Domain.seat_factor`."""
        if domain.seats is None:
            return self
        table = self.over(domain)
        terms = [
            Term(t.coefficient, {**t.factors, **domain.seat_factor(t.factors, of_units=of_units)})
            for t in table.terms
        ]
        return Table.of_terms(self.name, terms, self.weight, table.labels)

    def weighted(self, name: str, weight: object) -> Table:
        """The same table with another name and weight."""
        table = copy(self)
        object.__setattr__(table, "name", check_name(name, "a table"))
        object.__setattr__(table, "weight", positive_fraction(weight, f"the weight of table {name!r}"))
        return table

    @classmethod
    def joint(
        cls,
        name: str,
        attributes: Sequence[str],
        matrix: Any,
        weight: object = 1,
        labels: Sequence[str] | None = None,
        heading: str | None = None,
    ) -> Table:
        """Queries over the combinations of two or three attributes, which need be no products.

        Arguments:
            attributes: two or three; the other attributes are summed over.
            matrix: whole numbers, (m, n_1 n_2) or (m, n_1 n_2 n_3), an array or a LinearOperator; columns in C order,
                the last of ``attributes`` fastest.
            labels: one a row; by default ``"row 1"``, ``"row 2"``, ...
            heading: of the published column; by default the attributes' names.

        Raises :class:`~tabulae.errors.InvalidArgument` for another number of attributes, entries that are not whole
        numbers, or labels that do not fit; :class:`~tabulae.errors.Unsupported` beyond 2^25 entries. Whether the
        columns fit a domain is seen where the table meets one.

        >>> near = Table.joint("near", ("a", "b"), [[1, 1, 0, 1, 1, 1, 0, 1, 1]], labels=["at most 1 apart"])
        >>> near.columns(Domain({"a": 3, "b": 3})), near.operator(Domain({"a": 3, "b": 3})) @ range(9)
        ({'a and b': ('at most 1 apart',)}, array([28]))
        """
        return _JointTable(name, JointMatrix.of(name, attributes, matrix), weight, labels, heading)

    def _set(self, name: str, terms: tuple[Term, ...], weight: object, labels: object) -> None:
        check_name(name, "a table")
        if not terms:
            raise InvalidArgument(f"table {name!r} has no terms, or terms that cancel: it counts nothing")
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "terms", terms)
        object.__setattr__(self, "weight", positive_fraction(weight, f"the weight of table {name!r}"))
        object.__setattr__(self, "labels", _checked_columns(name, self._rows, labels))

    def __hash__(self) -> int:
        return hash((self.name, self.terms, self.weight, frozenset((self.labels or {}).items())))

    @cached_property
    def _rows(self) -> dict[str, int]:
        return _rows_by_attribute(self.name, self.terms)

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes that the table mentions, in the order in which it mentions them."""
        return tuple(dict.fromkeys(name for term in self.terms for name in term.factors))

    def over(self, domain: Domain) -> Table:
        """The table with its terms over this domain: itself, but for a joint table, which knows no sizes without one.

        Raises :class:`~tabulae.errors.InvalidArgument` for a domain that lacks one of the table's attributes or has it
        at another size.
        """
        self.check(domain)
        return self

    def check(self, domain: Domain) -> None:
        """Refuse a domain that lacks one of the table's attributes or has it at another size."""
        for term in self.terms:
            for name, factor in term.factors.items():
                try:
                    size = domain[name].size
                except InvalidArgument as error:
                    raise InvalidArgument(f"table {self.name!r}: {error}") from None
                if factor.shape[1] != size:
                    raise InvalidArgument(
                        f"table {self.name!r}: the matrix of {name!r} has {factor.shape[1]} columns, but the "
                        f"domain has {size} categories of {name!r}: give it one column a category"
                    )

    def rows(self, domain: Domain) -> int:
        """The number of queries."""
        return math.prod(self.over(domain)._rows.values())

    def row_counts(self, domain: Domain) -> dict[str, int]:
        """The number of rows of each attribute that the table mentions, in domain order: the shape of its answers."""
        rows = self.over(domain)._rows
        return {a.name: rows[a.name] for a in domain.attributes if a.name in rows}

    def crossed(self, domain: Domain) -> tuple[int, ...]:
        """The places in the domain of the attributes that the table mentions, other than by their total."""
        named = {
            name for t in self.over(domain).terms for name, f in t.factors.items() if not isinstance(f, Total)
        }
        return tuple(place for place, name in enumerate(domain.names) if name in named)

    def matrix(self, domain: Domain) -> np.ndarray:
        """The queries over the attributes that are crossed, written out: int64 (rows, product of their sizes).

        Columns in C order, attributes in domain order. Equal tables share it: it is read-only. Raises
        :class:`~tabulae.errors.Unsupported` beyond 2^25 entries.

        >>> from tabulae.linalg import Identity, Prefix
        >>> table = Table("t", {"a": Prefix(2), "b": Identity(2)})
        >>> table.matrix(Domain({"a": 2, "z": 9, "b": 2})).tolist()
        [[1, 0, 0, 0], [0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1]]
        """
        return self._written(domain, gram=False)

    def gram(self, domain: Domain) -> np.ndarray:
        """``W'W`` of :meth:`matrix`, float64 and without the weight; shared by equal tables, and read-only."""
        return self._written(domain, gram=True)

    def _written(self, domain: Domain, *, gram: bool) -> np.ndarray:
        """Kept as long as a table that asks for it."""
        axes = self.crossed(domain)
        table = self.over(domain)
        products = tuple((t.coefficient, tuple(t.over(domain)[i] for i in axes)) for t in table.terms)
        known = table.__dict__.setdefault("_kept", {})
        key = products, gram
        if key not in known:
            found = _WRITTEN.get(key)
            if found is None:
                found = (_gram if gram else _matrix)(self.name, products)
                found.setflags(write=False)
                _WRITTEN[key] = found
            known[key] = found
        return known[key]

    def operator(self, domain: Domain) -> LinearOperator:
        """The table's matrix (rows x cells) without its weight: a Kron, or a Sum of Krons."""
        terms = self.over(domain).terms
        if len(terms) == 1 and terms[0].coefficient == 1:
            return Kron(terms[0].over(domain))
        return Sum([(term.coefficient, Kron(term.over(domain))) for term in terms])

    def counts_nothing(self, domain: Domain) -> bool:
        """Whether the matrix is zero: no cell is asked for, or the terms cancel.

        Terms are compared on a product of random vectors, which no other matrix maps to zero (but with probability 0).

        >>> from tabulae.linalg import Dense, Identity
        >>> both = [Term(1, {"a": Identity(2)}), Term(-1, {"a": Dense([[1, 0], [0, 1]])})]
        >>> Table.of_terms("nobody", both).counts_nothing(Domain({"a": 2}))
        True
        """
        terms = self.over(domain).terms
        if len(terms) == 1:  # what an attribute is not asked adds up all of its cells
            return not all(np.any(factor.column_norms(2)) for factor in terms[0].factors.values())
        draw = np.random.default_rng(0)
        vectors = {name: draw.uniform(1, 2, domain[name].size) for name in self.attributes}
        total, size = np.zeros(1), 0.0
        for term in terms:
            part = np.full(1, float(term.coefficient))
            for name, vector in vectors.items():
                factor = term.factors.get(name)
                part = np.multiply.outer(part, vector.sum() if factor is None else factor @ vector).ravel()
            total, size = total + part, max(size, float(np.abs(part).max()))
        return bool(np.abs(total).max() <= 1e-12 * size)

    def columns(self, domain: Domain) -> dict[str, tuple[str, ...]]:
        """Heading -> row labels, for each attribute with several rows or mentioned, in domain order.

        The table's rows are the combinations of these labels in C order. A matrix that is a recode of the
        domain takes the recode's name as heading.
        """
        table = self.over(domain)
        rows, labels = table._rows, table.labels
        hidden = labels is not None or len(table.terms) > 1
        columns: dict[str, tuple[str, ...]] = {}
        for attribute in domain.attributes:
            column = (labels or {}).get(attribute.name)
            alone = (hidden or attribute.steps) and rows.get(attribute.name) == 1
            if attribute.name not in rows or (column is None and alone):
                continue
            if column is None:
                column = table._derived_column(domain, attribute.name)
            if column.name in columns:
                raise InvalidArgument(
                    f"table {self.name!r} has two columns named {column.name!r}: rename one"
                )
            columns[column.name] = column.labels
        return columns

    def _derived_column(self, domain: Domain, name: str) -> TableColumn:
        factors = {term.over(domain)[domain.axis(name)] for term in self.terms}
        if len(factors) == 1:
            return TableColumn(*heading_and_labels(domain, name, factors.pop()))
        # The terms of a sum ask different things of the attribute: no label would be true of its rows.
        return TableColumn(name, tuple(f"row {k + 1}" for k in range(self._rows[name])))


class _JointTable(Table):
    """A table whose terms are known once a domain says how many categories its attributes have."""

    _joint: JointMatrix
    _column: TableColumn | None

    def __init__(
        self,
        name: str,
        joint: JointMatrix,
        weight: object,
        labels: Sequence[str] | None,
        heading: str | None,
    ) -> None:
        rows, column = joint.matrix.shape[0], None
        if rows > 1 or labels is not None or heading is not None:
            heading = " and ".join(joint.attributes) if heading is None else heading
            given = [f"row {k + 1}" for k in range(rows)] if labels is None else labels
            column = _checked_column(name, "the rows", heading, given, rows)
        object.__setattr__(self, "name", check_name(name, "a table"))
        object.__setattr__(self, "weight", positive_fraction(weight, f"the weight of table {name!r}"))
        object.__setattr__(self, "labels", None)
        object.__setattr__(self, "_joint", joint)
        object.__setattr__(self, "_column", column)
        object.__setattr__(self, "_known", {})

    def _identity(self) -> tuple[object, ...]:
        return self.name, self._joint, self.weight, self._column

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _JointTable) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def __repr__(self) -> str:
        joint = self._joint
        return f"Table.joint({self.name!r}, {list(joint.attributes)}, {joint.matrix!r}, weight={self.weight})"

    @property
    def terms(self) -> tuple[Term, ...]:
        raise InvalidArgument(
            f"table {self.name!r} is over several attributes together, and its terms depend on their sizes: "
            "use table.over(domain)"
        )

    @property
    def attributes(self) -> tuple[str, ...]:
        return self._joint.attributes

    def check(self, domain: Domain) -> None:
        self.over(domain)

    def over(self, domain: Domain) -> Table:
        sizes = self._sizes(domain)
        known: dict[tuple[int, ...], Table] = self.__dict__["_known"]
        if sizes not in known:
            self._joint.check(self.name, sizes)
            carrier, products = self._joint.products(sizes)
            names = self._joint.attributes
            terms = [Term(1, {names[place]: factor for place, factor in p.items()}) for p in products]
            labels = {} if self._column is None else {names[carrier]: self._column}
            known[sizes] = Table.of_terms(self.name, terms, self.weight, labels)
        return known[sizes]

    def _sizes(self, domain: Domain) -> tuple[int, ...]:
        try:
            return tuple(domain[name].size for name in self._joint.attributes)
        except InvalidArgument as error:
            raise InvalidArgument(f"table {self.name!r}: {error}") from None


Products = tuple[tuple[int, tuple[LinearOperator, ...]], ...]

# Shared by tables that are equal but for their names and attributes, as long as one of them is there.
_WRITTEN: WeakValueDictionary[tuple[Products, bool], np.ndarray] = WeakValueDictionary()


def _matrix(name: str, products: Products) -> np.ndarray:
    """``sum_t c_t (x)_i A_ti``, in whole numbers where all factors are."""
    factors = products[0][1]
    rows, cells = (math.prod(f.shape[k] for f in factors) for k in (0, 1))
    whole = all(f.integer for _, parts in products for f in parts)
    most = sum(abs(c) * math.prod(f.abs_entry_max() for f in parts) for c, parts in products)
    if rows * cells > MOST_ENTRIES or (whole and most >= 2**62):
        raise Unsupported(f"table {name!r}: {rows:,} x {cells:,} entries are too many to be written out")
    total = np.zeros((rows, cells), dtype=np.int64 if whole else np.float64)
    for coefficient, parts in products:
        total += reduce(np.kron, [f.dense() for f in parts], np.full((1, 1), coefficient))
    return total


def _gram(name: str, products: Products) -> np.ndarray:
    """``A'A`` of the same, factor by factor where it is one product."""
    cells = math.prod(f.shape[1] for f in products[0][1])
    if cells**2 > MOST_ENTRIES:
        raise Unsupported(f"table {name!r}: {cells:,} x {cells:,} entries are too many to be written out")
    if len(products) == 1:
        (coefficient, parts) = products[0]
        grams = [np.asarray(f.gram().dense(), dtype=float) for f in parts]
        return reduce(np.kron, grams, np.full((1, 1), float(coefficient) ** 2))
    matrix = _matrix(name, products).astype(np.float64)
    return matrix.T @ matrix


def positive_fraction(value: object, what: str) -> Fraction:
    """A positive number kept exactly; a float means its shortest decimal.

    >>> positive_fraction(0.1, "a weight")
    Fraction(1, 10)
    """
    number = Fraction(0)
    if isinstance(value, numbers.Rational) and not isinstance(value, bool):
        number = Fraction(int(value.numerator), int(value.denominator))
    elif isinstance(value, (str, numbers.Real)) and _NUMBER.fullmatch(str(value)):
        number = Fraction(str(value))
    if not _SMALLEST <= number <= 1 / _SMALLEST:
        raise InvalidArgument(f"{what} must be a positive number between 1e-100 and 1e100, not {value!r}")
    return number


def _collected(terms: Sequence[Term]) -> tuple[Term, ...]:
    totals: dict[frozenset[tuple[str, LinearOperator]], int] = {}
    first: dict[frozenset[tuple[str, LinearOperator]], Term] = {}
    for term in terms:
        product = frozenset(item for item in term.factors.items() if not isinstance(item[1], Total))
        totals[product] = totals.get(product, 0) + term.coefficient
        first.setdefault(product, term)
    return tuple(Term(total, first[product].factors) for product, total in totals.items() if total)


def _rows_by_attribute(name: str, terms: Sequence[Term]) -> dict[str, int]:
    rows: dict[str, int] = {}
    for term in terms:
        for attribute, factor in term.factors.items():
            if not isinstance(factor, LinearOperator):
                raise InvalidArgument(
                    f"table {name!r}: the factor of {attribute!r} is {factor!r}, not a matrix: "
                    "use Identity, Prefix, ... or Dense(array)"
                )
            rows.setdefault(attribute, factor.shape[0])
    for attribute, count in rows.items():
        for term in terms:
            factor = term.factors.get(attribute)
            if (1 if factor is None else factor.shape[0]) != count:
                raise InvalidArgument(
                    f"table {name!r}: its terms disagree on the number of rows of {attribute!r}"
                )
    return rows


def _checked_columns(name: str, rows: Mapping[str, int], labels: object) -> dict[str, TableColumn] | None:
    if labels is None:
        return None
    if not isinstance(labels, Mapping):
        raise InvalidArgument(
            f"table {name!r}: labels must map attribute names to row labels, not {labels!r}"
        )
    columns: dict[str, TableColumn] = {}
    for attribute, given in labels.items():
        if attribute not in rows:
            raise InvalidArgument(
                f"table {name!r}: labels for {attribute!r}, which the table does not mention"
            )
        heading, some = given if isinstance(given, TableColumn) else (attribute, given)
        columns[attribute] = _checked_column(name, repr(attribute), heading, some, rows[attribute])
    return columns


def _checked_column(name: str, of: str, heading: str, labels: Sequence[str], rows: int) -> TableColumn:
    if isinstance(labels, str):
        raise InvalidArgument(f"table {name!r}: the labels of {of} must be a list, not the string {labels!r}")
    labels = tuple(labels)
    if len(labels) != rows or len(set(labels)) != len(labels):
        raise InvalidArgument(
            f"table {name!r}: give {of} one label a row, all different: "
            f"{len(set(labels))} distinct labels for {rows} rows"
        )
    return TableColumn(check_name(heading, "a column", columns=True), labels)


_LARGEST = 2**53  # counts beyond are not exact in floating point


@dataclass(frozen=True, eq=False)
class Constraint:
    """Limits on the counts of one table: ``at_least <= W x <= at_most``, row by row; equal ones make it exact.

    Made by :meth:`equal` and :meth:`bounds`. ``at_least`` and ``at_most`` are int64 arrays of one entry a row, or None
    where there is no such limit.

    >>> import tabulae as tb
    >>> nobody_lost = tb.Constraint.bounds(tb.Table("sexes", {"sex": tb.Identity(2)}), at_least=[3, 4])
    >>> nobody_lost.at_least.tolist(), nobody_lost.at_most
    ([3, 4], None)
    """

    table: Table
    at_least: np.ndarray | None
    at_most: np.ndarray | None

    @classmethod
    def equal(cls, table: Table, values: Any) -> Constraint:
        """The table's counts are these whole numbers, one a row in the table's order (or one for a total).

        Raises :class:`~tabulae.errors.InvalidArgument` for values that are not whole numbers.

        >>> Constraint.equal(Table("total", {}), 12).is_equality
        True
        """
        whole = _whole(table, values, "values")
        return cls(table, whole, whole)

    @classmethod
    def bounds(cls, table: Table, at_least: Any = None, at_most: Any = None) -> Constraint:
        """The table's counts lie between these whole numbers, both included; None is no limit.

        Raises :class:`~tabulae.errors.InvalidArgument` for limits that are not whole numbers, cross, or are absent.

        >>> Constraint.bounds(Table("total", {}), at_least=3).at_most is None
        True
        """
        if at_least is None and at_most is None:
            raise InvalidArgument(f"the bounds on table {table.name!r} say nothing: give at_least or at_most")
        low = None if at_least is None else _whole(table, at_least, "at_least")
        high = None if at_most is None else _whole(table, at_most, "at_most")
        if low is not None and high is not None:
            if low.shape != high.shape and 1 not in (low.size, high.size):
                raise InvalidArgument(
                    f"the bounds on table {table.name!r} have {low.size} and {high.size} entries: give one a row"
                )
            crossed = np.flatnonzero(np.broadcast_arrays(low, high)[0] > np.broadcast_arrays(low, high)[1])
            if crossed.size:
                raise InvalidArgument(
                    f"the bounds on table {table.name!r} cross in row {int(crossed[0])}: at_least exceeds at_most"
                )
        return cls(table, low, high)

    @property
    def is_equality(self) -> bool:
        """Whether every row's count is fixed."""
        return (
            self.at_least is not None
            and self.at_most is not None
            and np.array_equal(self.at_least, self.at_most)
        )

    def over(self, domain: Domain) -> Constraint:
        """The same limits with one entry a row of the table over this domain.

        Raises :class:`~tabulae.errors.InvalidArgument` where the table does not fit the domain, or has another
        number of rows.
        """
        table = self.table.over(domain)
        rows = table.rows(domain)
        limits = [
            None if side is None else self._spread(side, rows) for side in (self.at_least, self.at_most)
        ]
        return Constraint(table, *limits)

    def _spread(self, values: np.ndarray, rows: int) -> np.ndarray:
        if values.size not in (1, rows):
            raise InvalidArgument(
                f"the constraint on table {self.table.name!r} has {values.size} values; the table has {rows} rows"
            )
        return np.broadcast_to(values, (rows,)).copy() if values.size != rows else values


def _whole(table: Table, values: Any, what: str) -> np.ndarray:
    """Whole numbers as int64, flat in C order."""
    try:
        array = np.asarray(values)
        numbers = array.astype(np.float64).ravel()
    except (TypeError, ValueError):
        raise InvalidArgument(f"{what} of table {table.name!r} must be whole numbers") from None
    bad = np.flatnonzero(~np.isfinite(numbers) | (numbers != np.rint(numbers)) | (np.abs(numbers) > _LARGEST))
    if bad.size or array.dtype.kind == "b":
        row = int(bad[0]) if bad.size else 0
        raise InvalidArgument(
            f"{what} of table {table.name!r} must be whole numbers below 2^53: row {row} is not one; counts of records "
            "are never fractions"
        )
    if array.dtype.kind in "iu":
        return array.astype(np.int64).ravel()
    return np.rint(numbers).astype(np.int64)
