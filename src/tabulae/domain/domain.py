"""The domain: every combination of categories that a record could have, known before any data is read.

Also the labels of the rows of an attribute's matrix: what each row counts, in words fit for a published table.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidArgument
from ..linalg import (
    AllRange,
    Dense,
    Identity,
    LinearOperator,
    MatrixProduct,
    Partition,
    Prefix,
    Scaled,
    Stack,
    Total,
    WidthRange,
)
from .attribute import MOST_STEPS, TOTAL_LABEL, Attribute, Categories, Recode, Runs

_SHOWN = 20  # attributes in a repr


class AttributeView(NamedTuple):
    """What a name stands for: the base attribute, the 0/1 matrix (rows x its size), and the row labels."""

    attribute: Attribute
    operator: LinearOperator
    labels: tuple[str, ...]


@dataclass(frozen=True, init=False, repr=False)
class Domain:
    """The public domain: attributes in order, and the recodes that give coarser views of them.

    Cells are the combinations of categories in C order (the last attribute changes fastest); there are
    ``size`` of them, a Python int that may be far beyond memory. Two domains are equal when they have the
    same cells: recodes are names for views, and do not count.

    Arguments:
        attributes: name -> labels, a range, the number of categories (codes 0..n-1), or an `Attribute`.
        recodes: `Recode` objects of these attributes.

    Raises:
        InvalidArgument: no attributes, bad names or categories, a recode that does not fit.

    >>> domain = Domain({"sex": ["F", "M"], "age": range(115), "race": 64})
    >>> domain.shape, domain.size, domain.axis("age"), domain["sex"].labels
    ((2, 115, 64), 14720, 1, ('F', 'M'))
    """

    attributes: tuple[Attribute, ...]
    recodes: tuple[Recode, ...] = field(compare=False)

    def __init__(
        self, attributes: Mapping[str, Categories | Attribute], recodes: Iterable[Recode] = ()
    ) -> None:
        if not isinstance(attributes, Mapping) or not attributes:
            raise InvalidArgument(
                "a domain needs at least one attribute: Domain({'sex': ['F', 'M'], 'age': range(115)})"
            )
        built = tuple(Attribute.of(name, categories) for name, categories in attributes.items())
        object.__setattr__(self, "attributes", built)
        object.__setattr__(self, "recodes", tuple(recodes))
        self._check_recodes()
        if self.parts > MOST_STEPS:
            parts = " x ".join(f"{attribute.parts:,}" for attribute in self.measured)
            raise InvalidArgument(
                f"{', '.join(attribute.name for attribute in self.measured)} make a record {parts} parts, and at most "
                f"{MOST_STEPS:,} are counted: choose larger steps"
            )

    def _check_recodes(self) -> None:
        taken = set(self.names)
        for recode in self.recodes:
            if not isinstance(recode, Recode):
                raise InvalidArgument(
                    f"{recode!r} is not a recode: build it with Recode.from_edges or Recode.from_map"
                )
            if recode.name in taken:
                raise InvalidArgument(f"recode {recode.name!r} takes a name that is in use: give it another")
            if recode.of not in self.names:
                raise InvalidArgument(
                    f"recode {recode.name!r} is of {recode.of!r}: {self._unknown(recode.of)}"
                )
            if len(recode.classes) != self[recode.of].size:
                raise InvalidArgument(
                    f"recode {recode.name!r} has {len(recode.classes)} classes for the "
                    f"{self[recode.of].size} categories of {recode.of!r}: give one a category"
                )
            taken.add(recode.name)

    @property
    def names(self) -> tuple[str, ...]:
        """The attributes' names, in order."""
        return tuple(attribute.name for attribute in self.attributes)

    @property
    def shape(self) -> tuple[int, ...]:
        """The attributes' sizes, in order."""
        return tuple(attribute.size for attribute in self.attributes)

    @property
    def size(self) -> int:
        """The number of cells."""
        return math.prod(self.shape)

    @cached_property
    def parts(self) -> int:
        """D: a record is exactly so many parts, each in one cell; 1 without measured values.

        With values of D_1, ..., D_k parts it is their product. The parts of a record in a corner of the box of its
        values are the product of its parts of each.

        >>> Domain({"sex": 2, "income": Attribute.measured("income", 0, 200_000, step=1000)}).parts
        200
        """
        return math.prod(attribute.parts for attribute in self.attributes)

    @property
    def measured(self) -> tuple[Attribute, ...]:
        """The measured values among the attributes."""
        return tuple(attribute for attribute in self.attributes if attribute.steps)

    @property
    def seats(self) -> Attribute | None:
        """The number of records of each unit, where units are counted with their records; None elsewhere."""
        return next((attribute for attribute in self.attributes if attribute.is_seat), None)

    def of_records(self, names: Iterable[str]) -> str | None:
        """The first of some attributes that the records of one unit need not share; None where all are the unit's."""
        return next((name for name in names if not (self[name].of_unit or self[name].is_seat)), None)

    def seat_factor(self, names: Iterable[str], *, of_units: bool) -> dict[str, LinearOperator]:
        """What a product over some attributes lacks to count records, or units; nothing where each record is a unit.

        Raises :class:`~tabulae.errors.InvalidArgument` for units by an attribute of their records, and for records by
        how many of them a unit has.

        >>> domain = Domain({"age": 3, "persons": Attribute.seats("persons", 4)})
        >>> domain.seat_factor(["age"], of_units=False)["persons"].dense().tolist()
        [[0, 4]]
        """
        named, seats = tuple(names), self.seats
        if seats is None:
            return {}
        if of_units and (wrong := self.of_records(named)):
            made = f'any = "{wrong} = ..."' if not self[wrong].steps else "range = [...]"
            raise InvalidArgument(
                f"units are counted, and {wrong!r} is of their records, which may differ: count records, or declare "
                f'what it says of a unit, as in {{ of = "unit", {made} }}'
            )
        if of_units:
            return {}
        if seats.name in named:
            raise InvalidArgument(
                f"records are counted, and {seats.name!r} is how many of them a unit has: ask it of units, with "
                'counts = "units" or FROM units'
            )
        return {seats.name: Dense([[0, seats.steps]])}

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __getitem__(self, name: str) -> Attribute:
        return self.attributes[self.axis(name)]

    @cached_property
    def _axes(self) -> dict[str, int]:
        return {attribute.name: i for i, attribute in enumerate(self.attributes)}

    def axis(self, name: str) -> int:
        """The position of an attribute (not of a recode)."""
        if name not in self._axes:
            raise InvalidArgument(self._unknown(name))
        return self._axes[name]

    def recode(self, name: str) -> Recode | None:
        """The recode of that name, or None."""
        return next((recode for recode in self.recodes if recode.name == name), None)

    def with_recodes(self, *recodes: Recode) -> Domain:
        """The same cells with more recodes.

        >>> domain = Domain({"age": range(115)})
        >>> domain = domain.with_recodes(Recode.from_edges("adult", domain["age"], [18]))
        >>> domain.resolve("adult").labels
        ('0-17', '18-114')
        """
        return Domain({attribute.name: attribute for attribute in self.attributes}, (*self.recodes, *recodes))

    def resolve(self, name: str) -> AttributeView:
        """What an attribute's or a recode's name stands for: base attribute, matrix and row labels.

        >>> Domain({"sex": ["F", "M"]}).resolve("sex").operator.shape
        (2, 2)
        """
        recode = self.recode(name)
        if recode is not None:
            return AttributeView(self[recode.of], recode.operator, recode.labels)
        attribute = self[name]
        return AttributeView(attribute, Identity(attribute.size), attribute.labels)

    def match(self, name: str) -> str:
        """The attribute or recode that a name in SQL means: exactly, or else but for case where one fits."""
        known = (*self.names, *(recode.name for recode in self.recodes))
        if name in known:
            return name
        alike = [other for other in known if other.casefold() == name.casefold()]
        if len(alike) == 1:
            return alike[0]
        if alike:
            raise InvalidArgument(f"{name!r} could be {' or '.join(map(repr, alike))}: write it exactly")
        raise InvalidArgument(self._unknown(name))

    def _unknown(self, name: object) -> str:
        known = [*self.names, *(recode.name for recode in self.recodes)]
        recode = self.recode(name) if isinstance(name, str) else None
        if recode is not None:
            return (
                f"{name!r} is a recode of {recode.of!r}, not an attribute: "
                f"domain.resolve({name!r}) gives its matrix over {recode.of!r}"
            )
        near = difflib.get_close_matches(str(name), known, n=1)
        quoted = (
            ""
            if not near or re.fullmatch(r"\w+", near[0])
            else f' In SQL it stands in double quotes: "{near[0]}"'
        )
        hint = f"did you mean {near[0]!r}?{quoted}" if near else f"it has {', '.join(map(repr, known[:20]))}"
        return f"the domain has no attribute {name!r}; {hint}"

    def __repr__(self) -> str:
        parts = [f"{attribute.name}: {attribute.size}" for attribute in self.attributes[:_SHOWN]]
        if len(self.attributes) > _SHOWN:
            parts.append(f"... {len(self.attributes) - _SHOWN} more")
        recodes = ", ".join(f"{r.name} of {r.of}" for r in self.recodes[:_SHOWN])
        return f"Domain({', '.join(parts)}{'; ' if recodes else ''}{recodes})"

    def _repr_html_(self) -> str:
        from ..notebook import CardRows, card, listed

        attributes = ((a.name, a.size, listed(a.labels), a.ordered) for a in self.attributes)
        tables = [
            CardRows(("attribute", "categories", "labels", "ordered"), attributes, len(self.attributes))
        ]
        if self.recodes:
            recodes = ((r.name, r.of, len(r.labels), listed(r.labels)) for r in self.recodes)
            tables.append(CardRows(("recode", "of", "classes", "labels"), recodes, len(self.recodes)))
        return card("Domain", [("cells", self.size)], *tables)


_MOST_PARTS = 4
_MOST_ENTRIES = 10_000_000


@dataclass(frozen=True)
class _Cells:
    """What a matrix's columns are called: singly, in runs, whether runs mean something, known groupings."""

    labels: tuple[str, ...]
    ordered: bool
    run: Callable[[int, int], str]
    recodes: tuple[Recode, ...] = ()


def heading_and_labels(domain: Domain, name: str, operator: LinearOperator) -> tuple[str, tuple[str, ...]]:
    """The heading of an attribute's column and the label of each row of its matrix, all different.

    A single cell has its label, a run ``"0-17"``, everything ``"_T"``, up to four cells (of an ordered
    attribute, runs) ``"a|b|c"``; a recode of the domain has its own name and labels; the rest is ``"row k"``,
    counted from 1.

    >>> from tabulae.linalg import Prefix
    >>> heading_and_labels(Domain({"age": range(3)}), "age", Prefix(3))
    ('age', ('0', '0-1', '0-2'))
    """
    attribute = domain[name]
    recodes = tuple(recode for recode in domain.recodes if recode.of == name)
    view = operator.right if isinstance(operator, MatrixProduct) else operator
    heading = next((recode.name for recode in recodes if recode.operator == view), name)
    cells = _Cells(attribute.labels, attribute.ordered, Runs(attribute.labels), recodes)
    return heading, _distinct(_labels(operator, cells))


def _labels(operator: LinearOperator, cells: _Cells) -> Sequence[str | None]:
    rows, n = operator.shape
    if isinstance(operator, Identity):
        return cells.labels
    if isinstance(operator, Total):
        return [TOTAL_LABEL]
    if isinstance(operator, Prefix):
        return [cells.run(0, last) for last in range(n)]
    if isinstance(operator, AllRange):
        return [cells.run(first, last) for first in range(n) for last in range(first, n)]
    if isinstance(operator, WidthRange):
        return [cells.run(first, first + n - rows) for first in range(rows)]
    if isinstance(operator, Scaled):
        return _labels(operator.op, cells)
    if isinstance(operator, Stack):
        return [label for part in operator.ops for label in _labels(part, cells)]
    if isinstance(operator, Partition):
        known = (recode.labels for recode in cells.recodes if recode.operator == operator)
        return next(known, None) or [_set_label(members, cells) for members in _members(operator)]
    if isinstance(operator, MatrixProduct) and isinstance(operator.right, Partition):
        return _labels(operator.left, _classes(operator.right, cells))
    return _inspected(operator, cells)


def _members(partition: Partition) -> list[NDArray[np.intp]]:
    order = np.argsort(partition.classes, kind="stable")
    bounds = np.searchsorted(partition.classes[order], np.arange(partition.shape[0] + 1))
    return [order[a:b] for a, b in pairwise(bounds)]


def _classes(partition: Partition, cells: _Cells) -> _Cells:
    """The classes of a partition as the columns of the matrix to its left."""
    labels = _distinct(_labels(partition, cells))
    members = _members(partition)
    joined = np.concatenate(members)
    if not (cells.ordered and joined.size and (np.diff(joined) == 1).all() and all(map(len, members))):
        return _Cells(labels, ordered=False, run=Runs(labels))

    def run(first: int, last: int) -> str:
        # Neighbouring classes of an ordered attribute are a run of its cells: "0-17", not "0-4 to 15-17".
        return labels[first] if first == last else cells.run(int(members[first][0]), int(members[last][-1]))

    return _Cells(labels, ordered=True, run=run)


def _set_label(members: NDArray[np.intp], cells: _Cells) -> str | None:
    if members.size == 0:
        return None
    if members.size == 1:
        return cells.labels[int(members[0])]
    if members.size == len(cells.labels):
        return TOTAL_LABEL
    if cells.ordered:
        runs = np.split(members, np.flatnonzero(np.diff(members) > 1) + 1)
        parts = [cells.run(int(run[0]), int(run[-1])) for run in runs[: _MOST_PARTS + 1]]
    else:
        parts = [cells.labels[int(member)] for member in members[: _MOST_PARTS + 1]]
    return "|".join(parts) if len(parts) <= _MOST_PARTS else None


def _inspected(operator: LinearOperator, cells: _Cells) -> list[str | None]:
    rows, n = operator.shape
    if rows * n > _MOST_ENTRIES:
        return [None] * rows
    return [
        _set_label(np.flatnonzero(row), cells) if np.isin(row, (0, 1)).all() else None
        for row in operator.dense()
    ]


def _distinct(labels: Iterable[str | None]) -> tuple[str, ...]:
    given = [f"row {k}" if label is None else label for k, label in enumerate(labels, start=1)]
    taken = set(given)
    if len(taken) == len(given):
        return tuple(given)
    seen: dict[str, int] = {}
    distinct: list[str] = []
    for label in given:
        number = seen.get(label, 0) + 1
        unique = label
        while number > 1 and unique in taken:
            unique = f"{label} ({number})"
            number += unique in taken
        seen[label] = max(number, 1)
        taken.add(unique)
        distinct.append(unique)
    return tuple(distinct)
