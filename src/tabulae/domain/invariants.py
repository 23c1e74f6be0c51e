"""Invariants: tables whose counts are exact, their joint row space, and what they leave to be measured."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np

from ..errors import InvalidArgument, Unsupported
from ..linalg import Partition
from .domain import Domain
from .explicit_invariants import ExplicitInvariants
from .levels import find_levels
from .product_invariants import ProductInvariants
from .restricted import Restricted
from .table import Table
from .workload import Workload

Values = Sequence[np.ndarray]


class Invariants:
    """Tables of exact counts over one domain: C stacks their matrices, R is its row space and N its null space.

    Where the tables' groups nest attribute by attribute (margins, recodes) everything is implicit and of any size
    (``structure`` is "product"); else it is explicit, over at most 4,096 merged cells.

    Arguments:
        domain: the public domain.
        tables: at least one; names must differ. Weights mean nothing here.

    Raises:
        InvalidArgument: no tables, repeated names, a table that does not fit the domain or counts nothing, or a matrix
            that is not of whole numbers.
        Unsupported: tables of general shape over too many merged cells.

    Reference: Gao, Gong, Yu, "Subspace Differential Privacy", Definition 2.2.

    >>> from tabulae.linalg import Identity
    >>> domain = Domain({"sex": 2, "age": 5})
    >>> exact = Invariants(domain, [Table("sex", {"sex": Identity(2)}), Table("age", {"age": Identity(5)})])
    >>> exact.rank, exact.structure
    (6, 'product')
    """

    def __init__(self, domain: Domain, tables: Iterable[Table]) -> None:
        self.domain = domain
        self.tables = Workload(domain, tables).tables
        for table in self.tables:
            if not table.operator(domain).integer:
                raise InvalidArgument(
                    f"exact table {table.name!r} has entries that are not whole numbers: its values would be no counts"
                )
            if table.counts_nothing(domain):
                raise InvalidArgument(
                    f"exact table {table.name!r} counts nobody, whatever the records: leave it out"
                )
        self._restricted: dict[Table, Restricted] = {}
        self._determined: dict[Table, np.ndarray] = {}

    @cached_property
    def _product(self) -> ProductInvariants | None:
        levels = find_levels(self.domain, self.tables)
        return None if levels is None else ProductInvariants(self.domain, self.tables, levels)

    @cached_property
    def _explicit(self) -> ExplicitInvariants:
        return ExplicitInvariants(self.domain, self.tables)

    @property
    def _whole(self) -> ProductInvariants | ExplicitInvariants:
        return self._product or self._explicit

    @property
    def structure(self) -> str:
        """ "product" or "explicit"."""
        return "product" if self._product is not None else "explicit"

    @property
    def rows(self) -> int:
        """How many exact counts are stated."""
        return sum(table.rows(self.domain) for table in self.tables)

    @property
    def rank(self) -> int:
        """How many of them are independent: the dimension of R."""
        return self._whole.rank

    @property
    def finest(self) -> tuple[Partition, ...] | None:
        """Per attribute the classes within which records trade places and move no invariant; None without structure."""
        return None if self._product is None else self._product.finest

    def restricted_over(self, table: Table, merges: Sequence[Partition]) -> np.ndarray:
        """``W Pi_N`` over merged cells that respect the table and the invariants, (m x n); exact rows are zero."""
        return self._explicit.restricted_over(table, merges)

    def restricted(self, table: Table) -> Restricted:
        """``W Pi_N`` of a table, with whole entries times a divisor where it is a sum of products."""
        if table not in self._restricted:
            self._restricted[table] = self._whole.restricted(table)
        return self._restricted[table]

    def restricted_table(self, table: Table) -> tuple[Table | None, int] | None:
        """The same as a table of signed products (None: all rows exact) and its divisor; None without structure."""
        return None if self._product is None else self._product.restricted_table(table)

    def determined(self, table: Table) -> np.ndarray:
        """Which rows of a table are exact because the invariants determine them, (m,) bool."""
        if table not in self._determined:
            self._determined[table] = self._whole.determined(table)
        return self._determined[table]

    def known(self, table: Table, values: Values) -> np.ndarray:
        """``W C^+ c``: the part of a table's answers that the exact values c give, (m,) floats."""
        return self._whole.known(table, self._checked(values))

    def settle(self, table: Table, scaled: np.ndarray, values: Values, exponent: int) -> np.ndarray:
        """Answers on the grid ``2^-exponent``, moved by a few steps so that all that is exact holds, (m,) int64.

        Every sum of the table's rows that the invariants fix gets its exact value. Only for a table whose groups do
        not nest with theirs, and that is too large to be worked out cell by cell (4,096 merged cells), is it those
        single rows that they fix.
        """
        values = self._checked(values)
        if self._product is None:
            return self._explicit.settle(table, scaled, values, exponent)
        if self._product.nests(table):
            return self._product.settle(table, scaled, values, exponent)
        try:
            return self._explicit.settle(table, scaled, values, exponent)
        except Unsupported:  # too many cells, or rows, to work out which sums of several rows are exact
            known = np.rint(self._product.known(table, values)).astype(np.int64) << exponent
            return np.where(self.determined(table), known, np.asarray(scaled, dtype=np.int64))

    def nearest(self, cells: np.ndarray, values: Values) -> np.ndarray:
        """The vector of all cells nearest to ``cells`` among those with the exact values, (N,)."""
        return self._whole.nearest(cells, self._checked(values))

    def settle_cells(self, scaled: np.ndarray, values: Values, exponent: int) -> np.ndarray:
        """A vector of all cells on the grid ``2^-exponent``, moved so that the exact values hold, (N,) int64."""
        return self._whole.settle_cells(scaled, self._checked(values), exponent)

    def contradictions(self, values: Values) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """Rows of C whose values no counts can have together with earlier rows, and those rows; () where some can."""
        return self._whole.contradictions(self._checked(values))

    def check_values(self, values: Values) -> None:
        """Raise :class:`~tabulae.errors.InvalidArgument` for values that contradict each other, naming the rows."""
        for row, others in self.contradictions(values):
            if not others:
                raise InvalidArgument(f"no whole counts have the exact value given for {self.row_name(row)}")
            against = ", ".join(self.row_name(other) for other in others[:4])
            raise InvalidArgument(
                f"the exact counts contradict each other: {self.row_name(row)} cannot stand beside {against}"
            )

    def row_name(self, row: int) -> str:
        """What a row of C counts, in words: its table and labels."""
        for table in self.tables:
            count = table.rows(self.domain)
            if row < count:
                labels = table.columns(self.domain)
                shape = [len(column) for column in labels.values()]
                if math.prod(shape) != count:
                    return f"row {row} of {table.name!r}"
                place = np.unravel_index(row, shape) if shape else ()
                words = [f"{n}={c[int(i)]}" for (n, c), i in zip(labels.items(), place, strict=True)]
                return f"{table.name!r}" + (f" ({', '.join(words)})" if words else "")
            row -= count
        raise InvalidArgument("no such row")

    def _checked(self, values: Values) -> list[np.ndarray]:
        if len(values) != len(self.tables):
            raise InvalidArgument(
                f"{len(values)} arrays of exact values for {len(self.tables)} tables: give one each"
            )
        arrays = [np.asarray(v) for v in values]
        for table, array in zip(self.tables, arrays, strict=True):
            if array.shape != (table.rows(self.domain),) or array.dtype.kind not in "iu":
                raise InvalidArgument(
                    f"exact values of {table.name!r} must be {table.rows(self.domain)} whole numbers, not "
                    f"{array.dtype} of shape {array.shape}"
                )
        return [array.astype(np.int64) for array in arrays]
