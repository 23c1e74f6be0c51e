"""Attributes, the columns of the public domain: categories fixed before any data is read; and recodes of them."""

from __future__ import annotations

import difflib
import operator
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidArgument
from ..linalg import Dense, LinearOperator, Partition

TOTAL_LABEL = "_T"
RESULT_COLUMNS = ("estimate", "std_error", "ci_low", "ci_high", "obs_status")
MOST_CATEGORIES = 10_000_000
MOST_STEPS = 2**40
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

    A measured value (:meth:`measured`) has two categories, its lowest and its highest number, and ``steps`` of its
    grid between them: a record with the number v counts as ``(high - v) / (high - low)`` of the one and ``(v - low) /
    (high - low)`` of the other, a whole number of ``1 / steps`` each. Attributes have 0 steps: a record is in one
    category. With ``squares`` it has four categories, of which sums of squares are linear functions, too: see
    :meth:`shares`.

    Where units are counted with their records, ``of_unit`` says that every record of a unit has one category,
    ``from_records`` that it is made of the records of the unit, and ``is_seat`` marks the number of records of each:
    see :meth:`seats`.

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
    steps: int = 0
    squares: bool = False
    of_unit: bool = False
    from_records: bool = False
    is_seat: bool = False

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
        if TOTAL_LABEL in values:
            raise InvalidArgument(
                f"{where}: the code {TOTAL_LABEL!r} stands for the total in published tables; give the category another"
            )
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

    @classmethod
    def measured(
        cls, name: str, low: int, high: int, step: int | str | Fraction = 1, *, squares: bool = False
    ) -> Attribute:
        """A measured value between two whole numbers, on the grid of multiples of a step from the lower one.

        With ``squares`` its square is a linear function of the counts, too, so that it has variances.

        Raises :class:`~tabulae.errors.InvalidArgument` for ends that are not whole, not rising or beyond 2^53, and for
        a step that does not divide the range into at most 2^40 steps.

        >>> income = Attribute.measured("income", 0, 200_000, step=1000)
        >>> income.labels, income.steps, income.codes
        (('0', '200000'), 200, 201)
        """
        where = f"value {name!r}"
        for end in (low, high):
            if isinstance(end, bool) or not isinstance(end, int) or abs(end) > 2**53:
                raise InvalidArgument(f"{where}: its range is two whole numbers up to 2^53, not {end!r}")
        if low >= high:
            raise InvalidArgument(f"{where}: its range must rise, from a lowest number to a higher one")
        try:
            exact = Fraction(step) if not isinstance(step, bool | float) else Fraction(0)
        except (TypeError, ValueError, ZeroDivisionError):
            exact = Fraction(0)
        steps = (high - low) / exact if exact > 0 else Fraction(0)
        if steps.denominator != 1 or not 1 <= steps <= MOST_STEPS:
            raise InvalidArgument(
                f"{where}: the step must be a positive whole number, or a decimal as text, that divides {high - low:,} "
                f"into at most {MOST_STEPS:,} steps, not {step if isinstance(step, Fraction) else repr(step)}"
            )
        if not squares:
            return cls(name, (str(low), str(high)), values=(low, high), steps=int(steps))
        labels = (str(low), f"{low} and middle", f"middle and {high}", str(high))
        return cls(name, labels, steps=int(steps), squares=True)

    @classmethod
    def seats(cls, name: str, most: int) -> Attribute:
        """How many of its records each unit has, 0 to ``most``: a measured value, of which each part is a *seat*.

        A unit is ``most`` seats. Those of its records are parts at the highest number, and have the record's other
        attributes; the rest are empty, parts at the lowest. So a sum of this value counts records, by whatever they
        have, and a count counts units.

        >>> Attribute.seats("persons", 10).labels
        ('0', '10')
        """
        return replace(cls.measured(name, 0, most), is_seat=True)

    @property
    def size(self) -> int:
        """The number of categories."""
        return len(self.labels)

    @property
    def codes(self) -> int:
        """How many codes a record may have: one a category, and of a measured value one a point of its grid."""
        return self.steps + 1 if self.steps else self.size

    @property
    def ends(self) -> tuple[int, int]:
        """The lowest and the highest number of a measured value."""
        return int(self.labels[0]), int(self.labels[-1])

    @property
    def parts(self) -> int:
        """D: how many whole parts a record is, of which each is in one category; 1 of an attribute."""
        if not self.squares:
            return max(1, self.steps)
        return self.steps**2 // 2 if self.steps % 2 == 0 else 2 * self.steps**2

    def shares(self, code: Any, choose: Callable[[Any, Any, Any], Any]) -> tuple[Any, ...]:
        """Of a measured value, how many of a record's parts are in each category, by its place on the grid.

        At place k of D steps that is D - k and k; with squares, what the quadratic B-splines over [0, D] with one knot
        in the middle are at k, in units of ``1 / parts``. They are non-negative and have the sum 1, and every quadratic
        function of k is a linear function of the four.

        Arguments:
            code: places, an array or an expression of an engine.
            choose: ``(condition, one, other)``, such as ``np.where``.

        Privacy:
            The shares of a record are whole, not negative, and have the sum ``parts``, whatever its number is: it is a
            mixture of the categories, so that no answer moves by more than ``parts`` times what one of them moves it
            (the theorem of mixtures, docs/methods/values.md). With squares the two inner categories are no numbers that
            occur, and this is a bound.

        Reference: de Boor, "A Practical Guide to Splines" (1978), on B-splines and the blossom's control points.

        >>> [share.tolist() for share in Attribute.measured("v", 0, 2, squares=True).shares(np.arange(3), np.where)]
        [[2, 0, 0], [0, 1, 0], [0, 1, 0], [0, 0, 2]]
        """
        steps, left = self.steps, self.steps - code
        if not self.squares:
            return left, code
        off, four = (left - code, 4) if steps % 2 else (steps // 2 - code, 1)
        first = code * 2 < steps
        low, high = (choose(given, off * off * 2, 0) for given in (first, code * 2 > steps))
        near_low = choose(first, code * (left * 2 - code) * four, left * left * four)
        near_high = choose(first, code * code * four, left * (code * 2 - left) * four)
        return low, near_low, near_high, high

    def moment(self, power: int = 1, near: int = 0) -> LinearOperator:
        """``(v - near)^power`` of a measured value v as a function of its categories, shape (1, size).

        Raises :class:`~tabulae.errors.InvalidArgument` for a ``near`` that is not a whole number of the range, and for
        a second power of a value without ``squares``.

        >>> Attribute.measured("v", 0, 4, squares=True).moment(2, near=1).dense().tolist()
        [[1, -1, 3, 9]]
        """
        low, high = self.ends
        if isinstance(near, bool) or not isinstance(near, int) or (near and not low <= near <= high):
            raise InvalidArgument(
                f"near is a whole number from {low} to {high}, about what the means are, not {near!r}"
            )
        if power > 1 + self.squares:
            raise InvalidArgument(
                f"{self.name!r} is multiplied by itself: write squares = true where it is declared, which measures its "
                "squares, too"
                if power == 2
                else f"{self.name!r} to the power {power} is not measured"
            )
        a, b = Fraction(low - near), Fraction(high - near)
        pairs = [(a, a), (a, (a + b) / 2), ((a + b) / 2, b), (b, b)] if self.squares else [(a, a), (b, b)]
        row = [(s + t) / 2 if power == 1 else s * t for s, t in pairs]
        whole = all(number.denominator == 1 and abs(number) < 2**53 for number in row)
        return Dense(np.array([[int(number) if whole else float(number) for number in row]]))

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


@dataclass(frozen=True, eq=False)
class Recode:
    """A named grouping of the categories of one attribute; every category falls in exactly one class.

    ``classes`` (int64, one a category of the attribute ``of``) holds positions in ``labels``. As a matrix it
    is the 0/1 ``operator`` of shape (classes, categories) with one 1 a column. ``codes`` stand beside the labels in
    published code lists; they are the labels unless given.

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
    codes: tuple[str, ...] = ()

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
        codes = tuple(self.codes) or labels
        if len(set(codes)) != len(labels):
            raise InvalidArgument(f"{where} needs one code a label, all different: it has {len(set(codes))}")
        classes.setflags(write=False)
        object.__setattr__(self, "codes", codes)
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
                    f"{where} maps {value!r}, which is not a category of {attribute.name!r}"
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
        return self.name, self.of, self.labels, self.codes, self.classes.tobytes()


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
