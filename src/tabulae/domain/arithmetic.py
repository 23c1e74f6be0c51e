"""Comparisons of attributes with one another, in SQL: evaluated exactly for every combination of their categories.

``a + b <= 5``, ``ABS(a - b) <= 2``, ``a < b`` and ``a = b`` are tests of the combinations of two or three attributes.
A category stands for the number that its label reads as, an exact fraction, so that no comparison is rounded.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NoReturn

import numpy as np
from sqlglot import exp

from .predicate import Mask, Predicate, test

Node = Any  # of sqlglot's syntax tree, whose base class is not called the same in all versions

MOST_COMBINATIONS = 2**20
_MOST_ATTRIBUTES = 3
DECIMAL = re.compile(r"(\d{1,40}(\.\d{0,40})?|\.\d{1,40})([eE][+-]?\d{1,2})?")
_READS_AS = re.compile(r"[+-]?[0-9]{1,40}(\.[0-9]{1,40})?")
_COMPARE: dict[type[Node], Callable[[Any, Any], Any]] = {
    exp.EQ: operator.eq, exp.NEQ: operator.ne, exp.LT: operator.lt,
    exp.GT: operator.gt, exp.LTE: operator.le, exp.GTE: operator.ge,
}  # fmt: skip
_EXACT = "+, -, *, ABS, and / and % where they give whole numbers in every combination"
_OPERATIONS = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Abs)


@dataclass(frozen=True)
class View:
    """What a column names: the categories of an attribute (``of``), or classes of them.

    ``classes`` (one a category of the attribute) says which label and value each has.
    """

    name: str
    of: str
    labels: tuple[str, ...]
    values: tuple[int | str, ...]
    classes: np.ndarray


@dataclass(frozen=True)
class _Numbers:
    """``whole / below`` for every combination of categories: Python integers, with an axis for each attribute."""

    whole: np.ndarray
    below: int = 1

    def scaled(self, below: int) -> np.ndarray:
        return self.whole * (below // self.below)


def _computes(node: Node) -> bool:
    """Whether a side of a comparison is arithmetic, and more than a number with its sign."""
    node = node.unnest()
    if isinstance(node, exp.Neg):
        return not isinstance(node.this.unnest(), exp.Literal)
    return isinstance(node, _OPERATIONS)


def relates(sides: Sequence[Node]) -> bool:
    """Whether a comparison of these sides is more than one of an attribute with literals."""
    columns = sum(isinstance(side.unnest(), exp.Column) for side in sides)
    return columns > 1 or any(_computes(side) for side in sides)


def needs_numbers(condition: Node) -> bool:
    """Whether a condition computes with attributes, or compares several: of what it is about others may say more."""
    columns = {column.name for column in condition.find_all(exp.Column)}
    return len(columns) > 1 or any(_computes(node) for node in condition.walk())


class AttributeRelation:
    """The comparisons of one clause, over the attributes that its sides name.

    ``view`` finds what a column names; ``refuse`` raises, with the clause shown. Categories that ``within`` leaves out
    need have no number: what the clause says of them does not matter.
    """

    def __init__(
        self,
        sides: Sequence[Node],
        view: Callable[[Node], View],
        refuse: Callable[[str], NoReturn],
        within: Mapping[str, Mask],
    ) -> None:
        self.refuse = refuse
        self.within = within
        self._views = {column.sql(): view(column) for side in sides for column in side.find_all(exp.Column)}
        self.attributes = tuple(dict.fromkeys(v.of for v in self._views.values()))
        sizes = {v.of: len(v.classes) for v in self._views.values()}
        self._shape = tuple(sizes[name] for name in self.attributes)
        if not self.attributes:
            refuse("it compares no attribute")
        if len(self.attributes) > _MOST_ATTRIBUTES:
            refuse(f"it relates {len(self.attributes)} attributes to one another, and at most three can be")
        if math.prod(self._shape) > MOST_COMBINATIONS:
            refuse(
                f"{' x '.join(f'{n:,}' for n in self._shape)} combinations of {', '.join(self.attributes)} are "
                f"more than the {MOST_COMBINATIONS:,} that are looked at: compare recodes of fewer classes"
            )

    def compare(self, kind: type[Node], left: Node, right: Node) -> Predicate:
        """The predicate that a comparison of two sides means."""
        cells = self._same(left, right) if kind in (exp.EQ, exp.NEQ) else None
        if cells is None:
            a, b = self._value(left), self._value(right)
            below = math.lcm(a.below, b.below)
            cells = np.asarray(_COMPARE[kind](a.scaled(below), b.scaled(below)), dtype=bool)
        elif kind is exp.NEQ:
            cells = ~cells
        return test(self.attributes, np.broadcast_to(cells, self._shape))

    def _same(self, left: Node, right: Node) -> Mask | None:
        """Where two plain columns have the same label; None where they are compared as numbers."""
        sides = left.unnest(), right.unnest()
        if not all(isinstance(side, exp.Column) for side in sides):
            return None
        a, b = (self._views[side.sql()] for side in sides)
        if all(_READS_AS.fullmatch(label) for view in (a, b) for label in view.labels):
            return None
        labels, values = (
            np.equal.outer(np.array(x, dtype=object), np.array(y, dtype=object)).astype(bool)
            for x, y in ((a.labels, b.labels), (a.values, b.values))
        )
        if type(a.values[0]) is type(b.values[0]) and (labels != values).any():
            i, j = np.argwhere(labels != values)[0]
            self.refuse(
                f"{a.values[i]!r} of {a.name!r} is called {a.labels[i]!r}, and {b.values[j]!r} of {b.name!r} "
                f"{b.labels[j]!r}: equal names must stand for equal values"
            )
        along = [self._along(view, np.arange(len(view.labels))) for view in (a, b)]
        return labels[tuple(np.broadcast_arrays(*along))]

    def _along(self, view: View, values: np.ndarray) -> np.ndarray:
        """One value for each class of a view, as an array over the combinations."""
        axis = self.attributes.index(view.of)
        return values[view.classes].reshape([-1 if i == axis else 1 for i in range(len(self._shape))])

    def _value(self, node: Node) -> _Numbers:
        node = node.unnest()
        if isinstance(node, exp.Column):
            return self._column(self._views[node.sql()])
        if isinstance(node, exp.Literal) and not node.is_string:
            if not DECIMAL.fullmatch(node.this):
                self.refuse(f"{node.this!r} is not a decimal number of reasonable length")
            number = Fraction(node.this)
            return _Numbers(np.array(number.numerator, dtype=object), number.denominator)
        if isinstance(node, exp.Neg | exp.Abs):
            inner = self._value(node.this)
            return _Numbers(-inner.whole if isinstance(node, exp.Neg) else abs(inner.whole), inner.below)
        if isinstance(node, exp.Div | exp.IntDiv | exp.Mod):
            return self._divided(node)
        if isinstance(node, exp.Mul):
            a, b = self._value(node.this), self._value(node.expression)
            return _Numbers(a.whole * b.whole, a.below * b.below)
        if isinstance(node, exp.Add | exp.Sub):
            a, b = self._value(node.this), self._value(node.expression)
            below = math.lcm(a.below, b.below)
            one, other = a.scaled(below), b.scaled(below)
            return _Numbers(one + other if isinstance(node, exp.Add) else one - other, below)
        if isinstance(node, exp.Literal):
            self.refuse(
                f"{node.this!r} is text, and nothing is computed with it: numbers take no quotes, and labels are "
                "compared with a plain attribute"
            )
        return self.refuse(f"`{node.sql()}` is not computed: arithmetic is {_EXACT}")

    def _column(self, view: View) -> _Numbers:
        counted = np.unique(view.classes[self.within.get(view.of, np.ones(len(view.classes), dtype=bool))])
        numbers = [Fraction(0)] * len(view.labels)
        for k in counted:
            numbers[k] = self._number(view, int(k))
        below = math.lcm(*(number.denominator for number in numbers))
        return _Numbers(self._along(view, np.array([int(n * below) for n in numbers], dtype=object)), below)

    def _number(self, view: View, k: int) -> Fraction:
        label, value = view.labels[k], view.values[k]
        if not _READS_AS.fullmatch(label):
            self.refuse(
                f"the category {label!r} of {view.name!r} is no number: leave it out, with AND {view.name} <> "
                f"{label!r}, or compare plain attributes by = and <> only"
            )
        if _READS_AS.fullmatch(str(value)) and Fraction(str(value)) != Fraction(label):
            self.refuse(
                f"the category {label!r} of {view.name!r} is {value!r} in the records: it is not one number"
            )
        return Fraction(label)

    def _divided(self, node: Node) -> _Numbers:
        """A quotient or rest of whole numbers; engines differ in how they round others, and in the sign of a rest."""
        a, b = self._value(node.this), self._value(node.expression)
        one, other = np.broadcast_arrays(a.whole * b.below, b.whole * a.below)
        used = np.broadcast_to(self._used(), np.broadcast_shapes(one.shape, self._shape))
        one, other = (np.where(used, side, 1) for side in np.broadcast_arrays(one, other, used)[:2])
        if (other == 0).any():
            self.refuse(f"`{node.sql()}` divides by 0 in some combination: leave it out, with AND")
        if isinstance(node, exp.Mod):
            if a.below * b.below != 1 or (one < 0).any() or (other < 0).any():
                self.refuse(f"`{node.sql()}`: a rest is taken of whole numbers that are not negative")
            return _Numbers(one % other)
        if (one % other != 0).any():
            self.refuse(
                f"`{node.sql()}` is no whole number in every combination, and engines differ in how they round: "
                "multiply the other side instead"
            )
        return _Numbers(one // other)

    def _used(self) -> Mask:
        """Which combinations the rest of the condition leaves."""
        used = np.ones(self._shape, dtype=bool)
        for axis, name in enumerate(self.attributes):
            mask = self.within.get(name)
            if mask is not None:
                used &= mask.reshape([-1 if i == axis else 1 for i in range(len(self._shape))])
        return used
