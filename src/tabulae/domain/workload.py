"""Workloads: all tables to publish, as one matrix that is never formed."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..errors import InvalidArgument, Unsupported
from ..linalg import (
    Dense,
    Identity,
    LinearOperator,
    MatrixProduct,
    Partition,
    Scaled,
    Sparse,
    Stack,
    Total,
    merge_columns,
)
from .attribute import Attribute
from .domain import Domain, heading_and_labels
from .table import Table, Term

_MOST_ENTRIES = 10_000_000


def merged_factor(operator: LinearOperator, partition: Partition) -> LinearOperator:
    """The m x k matrix M with ``operator = M partition``, one column a class: column j is that of any member.

    The partition (k x n) must not join columns of the operator that differ; every column is in a class.

    >>> merged_factor(Total(4), Partition([0, 0, 1, 1]))
    Total(2)
    """
    k, n = partition.shape
    if np.array_equal(partition.classes, np.arange(n)):
        return operator
    if isinstance(operator, Total):
        return Total(k)
    first_members = np.unique(partition.classes, return_index=True)[1]
    return _select(operator, first_members)


def _select(operator: LinearOperator, cells: NDArray[np.intp]) -> LinearOperator:
    if isinstance(operator, Partition):
        return Partition(operator.classes[cells], operator.shape[0])
    if isinstance(operator, Stack):
        return Stack(tuple(_select(part, cells) for part in operator.ops))
    if isinstance(operator, Scaled):
        return Scaled(_select(operator.op, cells), operator.factor)
    if isinstance(operator, MatrixProduct):
        return MatrixProduct(operator.left, _select(operator.right, cells))
    m, n = operator.shape
    k = len(cells)
    if m * k <= _MOST_ENTRIES:
        return Dense(operator.columns(cells))
    ones = np.ones(k, dtype=np.int64)
    return MatrixProduct(operator, Sparse(sparse.csr_array((ones, (cells, np.arange(k))), shape=(n, k))))


def _asked_of(attribute: Attribute, terms: Iterable[Term]) -> dict[LinearOperator, None]:
    """The different matrices that products ask of an attribute; Total where one does not mention it."""
    asked: dict[LinearOperator, None] = {}
    for term in terms:
        factor = term.factors.get(attribute.name)
        if factor is not None:
            asked[factor] = None
        elif not any(isinstance(known, Total) for known in asked):
            asked[Total(attribute.size)] = None
    return asked


_MOST_TABLES = 1_000_000
_MOST_PAIRS = 2**18  # of terms of one table

GramTerm = tuple[float, tuple[LinearOperator, ...]]


@dataclass(frozen=True, init=False, repr=False)
class Workload:
    """The tables to publish over one domain: W stacks the tables' matrices, each times its weight.

    W has ``queries`` rows and ``domain.size`` columns. A weight multiplies the table's matrix, so it enters
    the squared error squared.

    Arguments:
        domain: the public domain.
        tables: at least one; names must differ.

    Raises:
        InvalidArgument: no tables, repeated names, or a table that does not fit the domain.

    Reference: HDMM, section 5 (unions of Kronecker products).

    >>> from tabulae.linalg import Identity
    >>> domain = Domain({"sex": ["F", "M"], "age": range(115)})
    >>> Workload(domain, [Table("sex", {"sex": Identity(2)}), Table("all", {})]).queries
    3
    """

    domain: Domain
    tables: tuple[Table, ...]

    def __init__(self, domain: Domain, tables: Iterable[Table]) -> None:
        if not isinstance(domain, Domain):
            raise InvalidArgument(f"a workload is over a Domain, not {domain!r}")
        tables = (tables,) if isinstance(tables, Table) else tuple(tables)
        if not tables:
            raise InvalidArgument("a workload needs at least one table")
        names: set[str] = set()
        for table in tables:
            if not isinstance(table, Table):
                raise InvalidArgument(f"{table!r} is not a table: write Table(name, {{attribute: matrix}})")
            if table.name in names:
                raise InvalidArgument(f"two tables are named {table.name!r}: give each its own name")
            names.add(table.name)
        object.__setattr__(self, "domain", domain)
        object.__setattr__(self, "tables", tuple(table.over(domain) for table in tables))

    @classmethod
    def marginals(cls, domain: Domain, ways: Iterable[int]) -> Workload:
        """Every k-way marginal for each k in ``ways``: all combinations of categories of k attributes.

        Ordered by k, then by the attributes in domain order; named ``"sex*age"``, the 0-way one ``"total"``.

        >>> domain = Domain({"sex": 2, "age": 5, "race": 3})
        >>> [table.name for table in Workload.marginals(domain, ways=[0, 2]).tables]
        ['total', 'sex*age', 'sex*race', 'age*race']
        """
        wanted = sorted(set(ways)) if not isinstance(ways, int) else [ways]
        dimension = len(domain.attributes)
        if not wanted or any(not isinstance(k, int) or not 0 <= k <= dimension for k in wanted):
            raise InvalidArgument(f"ways={ways!r}: list whole numbers from 0 to {dimension} (all attributes)")
        count = sum(math.comb(dimension, k) for k in wanted)
        if count > _MOST_TABLES:
            raise Unsupported(
                f"{count} marginals are more than can be listed ({_MOST_TABLES}): ask for fewer ways"
            )
        whole = {attribute.name: Identity(attribute.size) for attribute in domain.attributes}
        return cls(
            domain,
            [
                Table("*".join(names) or "total", {name: whole[name] for name in names})
                for k in wanted
                for names in combinations(domain.names, k)
            ],
        )

    @classmethod
    def of(cls, operator: LinearOperator) -> Workload:
        """One matrix (m x n) over one attribute; the table and the attribute are named ``"x"``.

        >>> from tabulae.linalg import AllRange
        >>> Workload.of(AllRange(4)).queries
        10
        """
        if not isinstance(operator, LinearOperator):
            raise InvalidArgument(f"{operator!r} is not a matrix of tabulae: wrap an array as Dense(array)")
        return cls(Domain({"x": operator.shape[1]}), [Table("x", {"x": operator})])

    @classmethod
    def from_sql(cls, domain: Domain, sql: str) -> Workload:
        """Tables q1, q2, ... from SELECT ... COUNT(*) statements separated by semicolons.

        What a statement may hold, and what is refused: `table_from_sql`.

        >>> domain = Domain({"sex": ["F", "M"], "age": range(115), "race": 64})
        >>> sql = "SELECT sex, COUNT(*) FROM t WHERE age < 5 OR race = 3 GROUP BY sex; SELECT COUNT(*) FROM t"
        >>> [len(table.terms) for table in Workload.from_sql(domain, sql).tables]
        [2, 1]
        """
        from .sql import tables_from_sql

        return cls(domain, tables_from_sql(domain, sql))

    @cached_property
    def queries(self) -> int:
        """The number of rows of W, a Python int."""
        return sum(table.rows(self.domain) for table in self.tables)

    def __getitem__(self, name: str) -> Table:
        for table in self.tables:
            if table.name == name:
                return table
        names = [table.name for table in self.tables]
        near = difflib.get_close_matches(str(name), names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(map(repr, names[:20]))}"
        raise InvalidArgument(f"the workload has no table {name!r}; {hint}")

    def gram_terms(self) -> list[GramTerm]:
        """W'W as ``sum_l c_l kron_i G_li``: coefficients, weights squared included, and n_i x n_i factors.

        Products that several tables ask for appear once, their coefficients added. The terms of a table that
        is a sum meet in pairs ``A_si' A_ti``, which need not be symmetric; the pair (t, s) is listed too.

        Reference: HDMM, sections 6.1 and Appendix A.

        >>> from tabulae.linalg import Prefix
        >>> [(c, [factor.shape for factor in factors]) for c, factors in Workload.of(Prefix(4)).gram_terms()]
        [(1.0, [(4, 4)])]
        """
        return list(self._gram_terms)

    @cached_property
    def _gram_terms(self) -> tuple[GramTerm, ...]:
        pairs = sum(len(table.terms) ** 2 for table in self.tables)
        if pairs > _MOST_PAIRS:
            raise Unsupported(
                f"the tables are sums of products that meet in {pairs:,} pairs, more than the {_MOST_PAIRS:,} that are "
                "looked at one by one: ask for fewer tables over several attributes together, or of fewer categories"
            )
        totals: dict[tuple[tuple[int, LinearOperator, LinearOperator], ...], Fraction] = {}
        for table in self.tables:
            axes = table.crossed(self.domain)
            sides = [(term.coefficient, self._along(axes, term)) for term in table.terms]
            for left_coefficient, left in sides:
                for right_coefficient, right in sides:
                    weight = table.weight**2 * left_coefficient * right_coefficient
                    # Totals of an attribute on both sides are left out: most tables mention few attributes.
                    key = tuple(
                        (i, a, b)
                        for i, a, b in zip(axes, left, right, strict=True)
                        if not (isinstance(a, Total) and isinstance(b, Total))
                    )
                    totals[key] = totals.get(key, Fraction(0)) + weight
        crossed: dict[tuple[LinearOperator, LinearOperator], LinearOperator] = {}
        of_size = {n: Total(n).gram() for n in self.domain.shape}  # one object a size: compared by identity
        flat = tuple(of_size[n] for n in self.domain.shape)
        terms = []
        for key, total in totals.items():
            if total:
                factors = list(flat)
                for i, a, b in key:
                    factors[i] = _cross(a, b, crossed)
                terms.append((float(total), tuple(factors)))
        return tuple(terms)

    def _along(self, axes: Sequence[int], term: Term) -> list[LinearOperator]:
        """What a product asks of some attributes; a table of few of very many is not written over all."""
        sides = (self.domain.attributes[i] for i in axes)
        return [term.factors[a.name] if a.name in term.factors else Total(a.size) for a in sides]

    def merge(self) -> tuple[Workload, tuple[Partition, ...]]:
        """The same queries over merged cells: categories that no table tells apart become one.

        Returns the merged workload and one Partition (merged x original categories) an attribute:
        ``W = W_merged kron_i Partition_i`` exactly.

        >>> from tabulae.linalg import Dense
        >>> merged, (partition,) = Workload.of(Dense([[1, 1, 0, 0], [0, 0, 0, 1]])).merge()
        >>> merged.domain.shape, partition.classes
        ((3,), array([0, 0, 1, 2]))
        """
        return self._merged

    @cached_property
    def _merged(self) -> tuple[Workload, tuple[Partition, ...]]:
        terms = [term for table in self.tables for term in table.terms]
        asked = [list(_asked_of(attribute, terms)) for attribute in self.domain.attributes]
        partitions = tuple(merge_columns(operators) for operators in asked)
        merged = tuple(
            {operator: merged_factor(operator, partition) for operator in operators}
            for operators, partition in zip(asked, partitions, strict=True)
        )
        sides = zip(self.domain.attributes, partitions, strict=True)
        domain = Domain({attribute.name: _merged_attribute(attribute, part) for attribute, part in sides})
        tables = [
            Table.of_terms(
                table.name,
                [
                    Term(
                        term.coefficient,
                        {name: merged[self.domain.axis(name)][op] for name, op in term.factors.items()},
                    )
                    for term in table.terms
                ],
                table.weight,
                table.labels,
            )
            for table in self.tables
        ]
        return Workload(domain, tables), partitions

    def __repr__(self) -> str:
        return f"Workload({len(self.tables)} tables, {self.queries} queries over {self.domain.size} cells)"

    def _repr_html_(self) -> str:
        from ..notebook import CardRows, card, listed

        tables = (
            (t.name, t.rows(self.domain), listed(t.attributes, 6) or "all records", str(t.weight))
            for t in self.tables
        )
        facts = [("tables", len(self.tables)), ("queries", self.queries), ("cells", self.domain.size)]
        headings = ("table", "queries", "of", "weight")
        return card("Workload", facts, CardRows(headings, tables, len(self.tables)))


def _cross(
    left: LinearOperator,
    right: LinearOperator,
    known: dict[tuple[LinearOperator, LinearOperator], LinearOperator],
) -> LinearOperator:
    if (left, right) not in known:
        known[left, right] = left.gram() if left == right else MatrixProduct(left.T, right)
    return known[left, right]


def _merged_attribute(attribute: Attribute, partition: Partition) -> Attribute:
    if partition.shape[0] == attribute.size:
        return attribute
    _, labels = heading_and_labels(Domain({attribute.name: attribute}), attribute.name, partition)
    # The label of the whole attribute is reserved for totals.
    return Attribute(attribute.name, ("all",) if len(labels) == 1 else labels)
