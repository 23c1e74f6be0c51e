"""The ladder: tables of rising detail, of which each group gets the one that it can afford."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from ..errors import InvalidArgument


@dataclass(frozen=True, eq=False)
class Rung:
    """One table of the ladder: a partition of the cells of a record's attributes.

    Args:
        name: what the table is called, such as "sex*age4".
        columns: heading -> labels; the table's cells are their product, in C order.
        of_class: shape (classes,): the cell of this table that each class of the ladder falls in.
    """

    name: str
    columns: Mapping[str, tuple[str, ...]]
    of_class: np.ndarray

    @property
    def cells(self) -> int:
        """The number of cells."""
        return prod(len(labels) for labels in self.columns.values())


@dataclass(frozen=True, eq=False)
class Ladder:
    """Tables of rising detail, beside the total, which is rung 0 and is not listed.

    Records are told apart by a *class*: the joint partition of all rungs, so that counts by class give every table.

    Args:
        sizes: attribute -> number of its values, in the order in which cells are numbered (C order).
        of_cell: shape (cells,): the class of each combination of values.
        rungs: rung 1, 2, ...

    >>> halves = {"sex": (["F", "M"], [0, 1]), "age": (["0-1", "2-3"], [0, 0, 1, 1])}
    >>> ladder = Ladder.of({"sex": 2, "age": 4}, [("sex*old", halves)])
    >>> ladder.classes, ladder.rungs[0].cells, ladder.of_cell.tolist()
    (4, 4, [0, 0, 1, 1, 2, 2, 3, 3])
    """

    sizes: Mapping[str, int]
    of_cell: np.ndarray
    rungs: tuple[Rung, ...]

    @property
    def classes(self) -> int:
        """The number of classes: 1 where the ladder has no rung but the total."""
        return int(self.of_cell.max()) + 1

    @classmethod
    def of(
        cls,
        sizes: Mapping[str, int],
        tables: Sequence[tuple[str, Mapping[str, tuple[Sequence[str], Sequence[int]]]]],
    ) -> Ladder:
        """The ladder of tables that are products of partitions of single attributes.

        Args:
            sizes: attribute -> number of its values.
            tables: pairs (name, attribute -> (labels of its parts, part of each value)), coarsest first. Headings are
                the attributes' names.

        Raises:
            InvalidArgument: a partition that does not fit its attribute, or an attribute without a size.
        """
        cells = prod(sizes.values())
        position = np.unravel_index(np.arange(cells), tuple(sizes.values()) or (1,))
        axis = dict(zip(sizes, position, strict=False))
        found = [_cells(name, parts, sizes, axis) for name, parts in tables]
        joint = np.stack([np.zeros(cells, np.int64), *found])
        distinct, first, of_cell = np.unique(joint, axis=1, return_index=True, return_inverse=True)
        order = np.argsort(first)
        rank = np.empty_like(order)
        rank[order] = np.arange(order.size)
        rungs = tuple(
            Rung(
                name,
                {a: tuple(labels) for a, (labels, _) in parts.items()},
                distinct[i + 1][order].astype(np.int32),
            )
            for i, (name, parts) in enumerate(tables)
        )
        return cls(dict(sizes), rank[of_cell.ravel()].astype(np.int32), rungs)


def _cells(
    name: str,
    parts: Mapping[str, tuple[Sequence[str], Sequence[int]]],
    sizes: Mapping[str, int],
    axis: Mapping[str, np.ndarray],
) -> np.ndarray:
    """The cell of one table that each combination of values falls in."""
    cell: np.ndarray = np.zeros(prod(sizes.values()), np.int64)
    for attribute, (labels, part) in parts.items():
        if attribute not in sizes:
            raise InvalidArgument(f"table {name!r} is by {attribute!r}, which records do not have")
        if len(part) != sizes[attribute] or not set(part) <= set(range(len(labels))):
            raise InvalidArgument(f"table {name!r} does not give every value of {attribute!r} a part")
        cell = cell * len(labels) + np.asarray(part)[axis[attribute]]
    return cell
