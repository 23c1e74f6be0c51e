"""Row labels: what each row of an attribute's matrix counts, in words fit for a published table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..linalg import (
    AllRange,
    Identity,
    LinearOperator,
    Partition,
    Prefix,
    Product,
    Scaled,
    Stack,
    Total,
    WidthRange,
)
from .attribute import TOTAL_LABEL
from .domain import Domain
from .recode import Recode, Runs

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
    view = operator.right if isinstance(operator, Product) else operator
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
    if isinstance(operator, Product) and isinstance(operator.right, Partition):
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
