"""Attributes: one column of the public domain, as a list of categories fixed before any data is read."""

from __future__ import annotations

import difflib
import operator
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise

import numpy as np

from ..errors import InvalidArgument

TOTAL_LABEL = "_T"
RESULT_COLUMNS = ("estimate", "std_error", "ci_low", "ci_high", "obs_status")
MOST_CATEGORIES = 10_000_000
_LONGEST_NAME = 200  # bytes: a file name has 255, and endings and prefixes join it
_UNSAFE_IN_NAMES = '/\\*?:"<>|'

Value = int | str
Categories = int | Iterable[Value]


@dataclass(frozen=True)
class Attribute:
    """One attribute of the domain: its categories, in order, as labels and as raw values.

    ``labels`` are what is published. ``values`` are what records and SQL literals are compared with:
    whole numbers for ranges and sizes, strings otherwise (the labels themselves unless given).
    ``ordered`` says that the order of the categories means something, so that ``age < 5`` and runs such as
    ``"0-17"`` are sensible. ``parents`` names a coarser category for each category, or is None.

    Raises:
        InvalidArgument: no categories, duplicates, or a name that cannot head a published column.

    >>> Attribute.of("age", range(3)).values
    (0, 1, 2)
    >>> Attribute("race", ("White", "Black"), values=("01", "02")).position("02")
    1
    """

    name: str
    labels: tuple[str, ...]
    ordered: bool = False
    values: tuple[Value, ...] = ()
    parents: tuple[str | None, ...] | None = None

    def __post_init__(self) -> None:
        check_name(self.name, "an attribute", columns=True)
        where = f"attribute {self.name!r}"
        labels = check_labels(self.labels, where)
        values = tuple(_value(value, where) for value in self.values) or labels
        parents = None if self.parents is None else tuple(self.parents)
        for what, items in (("values", values), ("parents", parents)):
            if items is not None and len(items) != len(labels):
                raise InvalidArgument(
                    f"{where} has {len(labels)} labels but {len(items)} {what}: give one a label"
                )
        if len({type(value) for value in values}) > 1:
            raise InvalidArgument(f"{where} mixes numbers and strings: write all categories as strings")
        if len(set(values)) != len(values):
            raise InvalidArgument(
                f"{where} lists the value {_first_repeat(values)!r} twice: categories differ"
            )
        if self.ordered and isinstance(values[0], int) and not _increasing(values):
            raise InvalidArgument(f"{where} is ordered, so its values must increase")
        object.__setattr__(self, "labels", labels)
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "parents", parents)

    @classmethod
    def of(cls, name: str, categories: Categories | Attribute) -> Attribute:
        """The attribute that a plain description means: labels, a range, or a size (codes 0..n-1).

        Whole numbers make an ordered attribute where they increase; strings do not.

        >>> Attribute.of("sex", ["F", "M"]).ordered, Attribute.of("race", 64).labels[63]
        (False, '63')
        """
        where = f"attribute {name!r}"
        if isinstance(categories, Attribute):
            if categories.name != name:
                raise InvalidArgument(f"{where} is described by an attribute named {categories.name!r}")
            return categories
        values = _categories(categories, where)
        if values and all(isinstance(value, int) for value in values):
            return cls(name, tuple(map(str, values)), ordered=_increasing(values), values=values)
        return cls(name, tuple(map(str, values)), values=values)

    @property
    def size(self) -> int:
        """The number of categories."""
        return len(self.labels)

    @property
    def numeric(self) -> bool:
        """Whether the raw values are whole numbers."""
        return isinstance(self.values[0], int)

    @cached_property
    def _positions(self) -> dict[Value, int]:
        return {value: position for position, value in enumerate(self.values)}

    @cached_property
    def _label_positions(self) -> dict[str, int]:
        return {label: position for position, label in enumerate(self.labels)}

    def position(self, value: Value | Fraction) -> int | None:
        """The category that a raw value or a label names, or None; a raw value goes before a label.

        >>> Attribute.of("age", range(5, 9)).position(7)
        2
        """
        if isinstance(value, str):
            by_value, by_label = self._positions.get(value), self._label_positions.get(value)
            if by_value is not None and by_label is not None and by_value != by_label:
                raise InvalidArgument(
                    f"{value!r} is the value of one category of {self.name!r} and the label of another: "
                    "give the labels other names"
                )
            return by_label if by_value is None else by_value
        # A Fraction that is whole hashes and compares like the int.
        return self._positions.get(value) if self.numeric else None  # type: ignore[arg-type]

    def below(self, bound: Value | Fraction) -> int:
        """How many categories of an ordered attribute lie strictly below a number (or a category).

        >>> Attribute.of("age", range(115)).below(18)
        18
        """
        if not self.ordered:
            raise InvalidArgument(f"the categories of {self.name!r} have no order: list them instead")
        if self.numeric:
            if isinstance(bound, str):
                raise InvalidArgument(
                    f"{self.name!r} is numeric: compare it with a number, not with {bound!r}"
                )
            return bisect_left(self.values, bound)
        position = None if not isinstance(bound, str) else self.position(bound)
        if position is None:
            raise InvalidArgument(f"{bound!r} is not a category of {self.name!r}{self.suggestion(bound)}")
        return position

    def suggestion(self, value: Value | Fraction) -> str:
        """The tail of a message about an unknown value: categories that look like it, or the extent."""
        near = difflib.get_close_matches(str(value), _few(self.labels) + _few(self.values), n=3, cutoff=0.6)
        if near and isinstance(value, str):
            return "; did you mean " + " or ".join(repr(name) for name in dict.fromkeys(near)) + "?"
        if self.size <= 6:
            return f"; its categories are {', '.join(repr(v) for v in self.values)}"
        return f"; its {self.size} categories run from {self.values[0]!r} to {self.values[-1]!r}"


def check_name(name: object, what: str, *, columns: bool = False) -> str:
    """A name fit for a published file or column, or an error that says why it is not."""
    if not isinstance(name, str) or not name:
        raise InvalidArgument(f"the name of {what} must be a non-empty string, not {name!r}")
    unsafe = [
        c for c in name if ord(c) < 32 or ord(c) == 127 or (c in _UNSAFE_IN_NAMES and (columns or c in "/\\"))
    ]
    if unsafe or name != name.strip() or name.startswith("."):
        raise InvalidArgument(
            f"{name!r} cannot name {what}: names become files and columns, so leave out "
            f"{', '.join(repr(c) for c in unsafe) or 'leading dots and surrounding blanks'}"
        )
    if len(name.encode()) > _LONGEST_NAME:
        raise InvalidArgument(
            f"{name[:40]!r}... cannot name {what}: names become files, so keep them to {_LONGEST_NAME} bytes"
        )
    if columns and name in RESULT_COLUMNS:
        raise InvalidArgument(f"{name!r} cannot name {what}: published tables have a column of that name")
    return name


def check_labels(labels: Iterable[str], where: str) -> tuple[str, ...]:
    """Labels as a tuple of distinct strings fit for publication."""
    labels = tuple(labels)
    if not labels:
        raise InvalidArgument(f"{where} has no categories: give at least one")
    for label in labels:
        if not isinstance(label, str) or not label or any(ord(c) < 32 for c in label):
            raise InvalidArgument(
                f"{where}: {label!r} cannot be a label; labels are non-empty strings on one line"
            )
        if label == TOTAL_LABEL:
            raise InvalidArgument(
                f"{where}: {label!r} stands for the total in published tables; rename the category"
            )
    if len(set(labels)) != len(labels):
        raise InvalidArgument(f"{where} lists {_first_repeat(labels)!r} twice: categories must differ")
    return labels


def _categories(categories: object, where: str) -> tuple[Value, ...]:
    hint = "give a list of labels, a range, or the number of categories"
    if isinstance(categories, (bool, np.bool_, str, bytes, set, frozenset, dict)):
        raise InvalidArgument(f"{where} is described by {categories!r}: {hint}, in a fixed order")
    if isinstance(categories, (int, np.integer)):
        if categories < 1:
            raise InvalidArgument(f"{where} has {categories} categories: give at least one")
        categories = range(int(categories))
    if isinstance(categories, (range, Sequence)) and len(categories) > MOST_CATEGORIES:
        raise InvalidArgument(
            f"{where} has {len(categories)} categories; at most {MOST_CATEGORIES} can be listed"
        )
    if isinstance(categories, range) and categories.step < 0:
        raise InvalidArgument(f"{where} is a range that falls: write it rising")
    if not isinstance(categories, Iterable):
        raise InvalidArgument(f"{where} is described by {categories!r}: {hint}")
    return tuple(_value(value, where) for value in categories)


def _value(value: object, where: str) -> Value:
    if isinstance(value, str):
        return str(value)
    if not isinstance(value, (bool, np.bool_)):
        try:
            return operator.index(value)  # type: ignore[arg-type]
        except TypeError:
            pass
    raise InvalidArgument(f"{where}: {value!r} cannot be a category; categories are strings or whole numbers")


def _increasing(values: Sequence[Value]) -> bool:
    return all(b > a for a, b in pairwise(values))  # type: ignore[operator]


def _few(items: Sequence[object]) -> list[str]:
    # difflib compares with every candidate: on huge attributes look at the first thousand only.
    return [str(item) for item in items[:1000]]


def _first_repeat(items: Iterable[object]) -> object:
    seen: set[object] = set()
    return next(item for item in items if item in seen or seen.add(item))
