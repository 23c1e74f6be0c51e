"""Constraints: what is known of a table's counts besides the noisy measurements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InvalidArgument
from .domain import Domain
from .table import Table

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

        Raises :class:`~tabulae.errors.InvalidArgument` for values that are no whole numbers.

        >>> Constraint.equal(Table("total", {}), 12).is_equality
        True
        """
        whole = _whole(table, values, "values")
        return cls(table, whole, whole)

    @classmethod
    def bounds(cls, table: Table, at_least: Any = None, at_most: Any = None) -> Constraint:
        """The table's counts lie between these whole numbers, both included; None is no limit.

        Raises :class:`~tabulae.errors.InvalidArgument` for limits that are no whole numbers, cross, or are absent.

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
        rows = self.table.rows(domain)
        limits = [
            None if side is None else self._spread(side, rows) for side in (self.at_least, self.at_most)
        ]
        return Constraint(self.table, *limits)

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
