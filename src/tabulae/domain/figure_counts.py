"""Counts, weighted counts and cumulative counts within the groups of one statement, as forms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from ..errors import InvalidArgument, Unsupported
from ..linalg import (
    Dense,
    LinearOperator,
    Partition,
)
from .attribute import Attribute
from .diagram import expand
from .domain import Domain, View
from .figure import Form
from .predicate import Mask, Predicate
from .sql import Group
from .table import Column

_ENTRIES = 2**24  # of a matrix that is written out
_LARGEST = 2**53  # what stands for a value that is none is larger

Written = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Groups:
    """The rows of a figure: all combinations of grouped categories that the condition leaves possible.

    ``predicate`` is the statement's condition, on which every count of it stands. ``summed`` are attributes whose
    groups are summed over, so that each row has the sum.
    """

    domain: Domain
    predicate: Predicate
    groups: Mapping[str, Group]
    summed: frozenset[str] = field(default=frozenset())

    @classmethod
    def of(cls, domain: Domain, views: Mapping[str, View], predicate: Predicate) -> Groups:
        """The groups of a statement."""
        reachable = expand(predicate).reachable
        groups = {view.attribute.name: Group(name, view, reachable) for name, view in views.items()}
        return cls(domain, predicate, groups)

    @property
    def columns(self) -> dict[str, Column]:
        """Attribute -> its column."""
        return {name: group.column for name, group in self.groups.items()}

    def count(self, predicate: Predicate) -> Form:
        """How many records of each group satisfy a predicate."""
        return self._form(predicate, {})

    def total(self, attribute: Attribute, predicate: Predicate) -> Form:
        """The sum of an attribute's values over the records of each group that satisfy a predicate."""
        values = np.array([v if self._is_number(v) else 0 for v in attribute.values], dtype=np.int64)
        numbers = self.numbers(attribute, predicate)

        def weighted(rows: np.ndarray) -> np.ndarray:
            matrix = np.zeros((self._rows(attribute.name), attribute.size), dtype=np.int64)
            counted = np.flatnonzero(rows >= 0)
            matrix[rows[counted], counted] = values[counted]
            return matrix

        if not any(numbers):
            return Form()
        return self._form(predicate, {attribute.name: weighted})

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
        """The values of an attribute that a predicate leaves possible, rising.

        Raises:
            InvalidArgument: they are not all numbers that stand for themselves.
        """
        reachable = expand(predicate).reachable.get(attribute.name, np.ones(attribute.size, dtype=bool))
        counted = [attribute.values[i] for i in np.flatnonzero(reachable)]
        labels = [attribute.labels[i] for i in np.flatnonzero(reachable)]
        if not attribute.numeric or all(str(v) != label for v, label in zip(counted, labels, strict=True)):
            raise InvalidArgument(
                f"the categories of {attribute.name!r} are no numbers: count them, as in COUNT(*) FILTER (WHERE "
                f"{attribute.name} = '{attribute.labels[0]}')"
            )
        if odd := [label for v, label in zip(counted, labels, strict=True) if not self._is_number(v)]:
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
