"""Recodes: coarser views of an attribute, usable wherever an attribute is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidArgument
from ..linalg import Partition
from .attribute import (
    Attribute,
    Value,
    check_labels,
    check_name,
)


@dataclass(frozen=True, eq=False)
class Recode:
    """A named grouping of the categories of one attribute; every category falls in exactly one class.

    ``classes`` (int64, one a category of the attribute ``of``) holds positions in ``labels``. As a matrix it
    is the 0/1 ``operator`` of shape (classes, categories) with one 1 a column.

    Raises:
        InvalidArgument: a category without a class, a class without a category, or bad names.

    >>> age = Attribute.of("age", range(115))
    >>> Recode.from_edges("age5", age, [5, 10, 15, 18]).labels
    ('0-4', '5-9', '10-14', '15-17', '18-114')
    """

    name: str
    of: str
    classes: NDArray[np.int64]
    labels: tuple[str, ...]

    def __post_init__(self) -> None:
        check_name(self.name, "a recode", columns=True)
        where = f"recode {self.name!r}"
        labels = check_labels(self.labels, where)
        given = np.asarray(self.classes)
        if given.ndim != 1 or not np.issubdtype(given.dtype, np.integer):
            raise InvalidArgument(
                f"{where}: classes must be a list of whole numbers, one a category of {self.of!r}"
            )
        classes = given.astype(np.int64)  # always a copy: nobody else holds it
        used = np.zeros(len(labels), dtype=bool)
        if classes.size and (classes.min() < 0 or classes.max() >= len(labels)):
            raise InvalidArgument(
                f"{where}: classes must lie in 0..{len(labels) - 1}, the positions of its labels"
            )
        used[classes] = True
        if not used.all():
            raise InvalidArgument(
                f"{where}: no category falls in {labels[int(np.argmin(used))]!r}; drop that class"
            )
        classes.setflags(write=False)
        object.__setattr__(self, "classes", classes)
        object.__setattr__(self, "labels", labels)

    @classmethod
    def from_edges(cls, name: str, attribute: Attribute, edges: Iterable[Value]) -> Recode:
        """Classes that begin at the first category and at each edge: edges 5, 18 give 0-4, 5-17, 18-114."""
        where = f"recode {name!r}"
        edges = tuple(edges)
        if not edges:
            raise InvalidArgument(f"{where} has no edges: give the first value of each class after the first")
        if not attribute.ordered:
            raise InvalidArgument(
                f"{where}: {attribute.name!r} has no order, so it has no edges; use a map of classes"
            )
        starts = [0, *(attribute.below(edge) for edge in edges), attribute.size]
        if any(b <= a for a, b in pairwise(starts)):
            raise InvalidArgument(
                f"{where}: edges {list(edges)} must increase, above {attribute.values[0]!r} and up to "
                f"{attribute.values[-1]!r}, with at least one category of {attribute.name!r} in each class"
            )
        classes = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        run = Runs(attribute.labels)
        return cls(name, attribute.name, classes, tuple(run(a, b - 1) for a, b in pairwise(starts)))

    @classmethod
    def from_map(cls, name: str, attribute: Attribute, mapping: Mapping[Value, str]) -> Recode:
        """Classes given category by category (raw value or label -> class), numbered as they first appear.

        >>> race = Attribute.of("race", ["W", "B", "A"])
        >>> Recode.from_map("white", race, {"W": "white", "B": "other", "A": "other"}).classes
        array([0, 1, 1])
        """
        where = f"recode {name!r}"
        labels: dict[str, int] = {}
        classes = np.full(attribute.size, -1, dtype=np.int64)
        for value, label in mapping.items():
            position = attribute.position(value)
            if position is None:
                raise InvalidArgument(
                    f"{where} maps {value!r}, which is no category of {attribute.name!r}"
                    f"{attribute.suggestion(value)}"
                )
            if classes[position] >= 0:
                raise InvalidArgument(f"{where} maps the category {attribute.labels[position]!r} twice")
            classes[position] = labels.setdefault(label, len(labels))
        missing = np.flatnonzero(classes < 0)
        if missing.size:
            names = ", ".join(repr(attribute.values[i]) for i in missing[:5]) + (
                ", ..." if missing.size > 5 else ""
            )
            raise InvalidArgument(
                f"{where} leaves {missing.size} categories of {attribute.name!r} without a class: {names}"
            )
        return cls(name, attribute.name, classes, tuple(labels))

    @cached_property
    def operator(self) -> Partition:
        """The recode as a matrix: row c sums the categories in class c."""
        return Partition(self.classes, len(self.labels))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Recode):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[object, ...]:
        return self.name, self.of, self.labels, self.classes.tobytes()


class Runs:
    """Names for runs of neighbouring categories: ``"0-17"``, or ``"a-b to c-d"`` where labels hold dashes.

    >>> Runs(["0", "1", "2"])(0, 2), Runs(["-1", "0", "1"])(0, 1), Runs(["x", "y"])(1, 1)
    ('0-2', '-1 to 0', 'y')
    """

    def __init__(self, labels: Iterable[str]) -> None:
        self.labels = tuple(labels)
        self.dash = " to " if any("-" in label for label in self.labels) else "-"

    def __call__(self, first: int, last: int) -> str:
        """The name of the run from one position to another, both included."""
        if first == last:
            return self.labels[first]
        return f"{self.labels[first]}{self.dash}{self.labels[last]}"
