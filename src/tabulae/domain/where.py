"""The WHERE clause: SQL conditions on single attributes, joined by AND, OR and NOT, as a predicate."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NoReturn

import numpy as np
from sqlglot import exp

from ..errors import InvalidArgument
from .attribute import Attribute
from .domain import Domain
from .predicate import (
    Mask,
    Predicate,
    conjunction,
    disjunction,
    negation,
    test,
)

DIALECT = "duckdb"
Node = Any  # of sqlglot's syntax tree, whose base class is not called the same in all versions
ALLOWED = (
    "a condition compares one attribute with literals (=, <>, <, <=, >, >=, IN, BETWEEN); "
    "join conditions by AND, OR, NOT and parentheses"
)
_NO_NULLS = "the domain has no NULLs, the policy for missing values refused them or made a category of them"
_DECIMAL = re.compile(r"(\d{1,40}(\.\d{0,40})?|\.\d{1,40})([eE][+-]?\d{1,2})?")
_FLIPPED: dict[type[Node], type[Node]] = {
    exp.EQ: exp.EQ, exp.NEQ: exp.NEQ, exp.LT: exp.GT, exp.GT: exp.LT, exp.LTE: exp.GTE, exp.GTE: exp.LTE,
}  # fmt: skip


class Where:
    """Reads conditions over one domain; ``name_of`` finds the attribute or recode that a column names.

    ``whose`` says in messages what the condition belongs to.
    """

    def __init__(self, domain: Domain, name_of: Callable[[exp.Column], str], whose: str) -> None:
        self.domain = domain
        self.name_of = name_of
        self.whose = whose

    def predicate(self, node: Node) -> Predicate:
        """The predicate that a boolean expression means; with no NULLs, NOT is the complement."""
        node = node.unnest()
        if isinstance(node, exp.And):
            return conjunction([self.predicate(part) for part in node.flatten()])
        if isinstance(node, exp.Or):
            return disjunction([self.predicate(part) for part in node.flatten()])
        if isinstance(node, exp.Not):
            return negation(self.predicate(node.this))
        if isinstance(node, exp.Boolean):
            return bool(node.this)
        if isinstance(node, exp.In):
            return self._in(node)
        if isinstance(node, exp.Between):
            return self._between(node)
        if type(node) in _FLIPPED:
            return self._comparison(node)
        if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
            self.refuse(node, _NO_NULLS)
        return self.refuse(node, "it is not a comparison of an attribute with literals")

    def refuse(self, node: Node, why: str) -> NoReturn:
        """Say what cannot be used, and what can."""
        raise InvalidArgument(f"{self.whose} cannot use `{text(node)}`: {why}; {ALLOWED}")

    def _comparison(self, node: Node) -> Predicate:
        left, right, kind = node.this.unnest(), node.expression.unnest(), type(node)
        if isinstance(right, exp.Column) and not isinstance(left, exp.Column):
            left, right, kind = right, left, _FLIPPED[kind]
        subject = self._subject(left, node)
        value = self._literal(right, node)
        if kind in (exp.EQ, exp.NEQ):
            cells = self._one(subject, value, node)
        elif kind in (exp.LT, exp.GTE):
            cells = self._below(subject, value, node, inclusive=False)
        else:
            cells = self._below(subject, value, node, inclusive=True)
        if kind in (exp.NEQ, exp.GT, exp.GTE):
            cells = ~cells
        return self._test(left, cells)

    def _in(self, node: exp.In) -> Predicate:
        extra = [key for key, value in node.args.items() if value and key not in ("this", "expressions")]
        if extra or not node.expressions:
            self.refuse(node, "IN takes a list of literals")
        column = node.this.unnest()
        subject = self._subject(column, node)
        cells = np.zeros(subject.size, dtype=bool)
        for item in node.expressions:
            cells |= self._one(subject, self._literal(item.unnest(), node), node)
        return self._test(column, cells)

    def _between(self, node: exp.Between) -> Predicate:
        if any(value for key, value in node.args.items() if key not in ("this", "low", "high")):
            self.refuse(node, "BETWEEN takes two bounds, the lower one first")
        column = node.this.unnest()
        subject = self._subject(column, node)
        low, high = (self._literal(node.args[key].unnest(), node) for key in ("low", "high"))
        above = ~self._below(subject, low, node, inclusive=False)
        return self._test(column, above & self._below(subject, high, node, inclusive=True))

    def _subject(self, column: Node, node: Node) -> Attribute:
        """What is compared: the attribute, or the classes of a recode as an attribute of their own."""
        if not isinstance(column, exp.Column):
            self.refuse(node, "one side must be the plain name of an attribute")
        name = self.name_of(column)
        recode = self.domain.recode(name)
        return self.domain[name] if recode is None else Attribute(name, recode.labels)

    def _test(self, column: Node, cells: Mask) -> Predicate:
        assert isinstance(column, exp.Column)
        name = self.name_of(column)
        recode = self.domain.recode(name)
        return test(name, cells) if recode is None else test(recode.of, cells[recode.classes])

    def _literal(self, node: Node, clause: Node) -> Fraction | str:
        if isinstance(node, exp.Literal):
            return str(node.this) if node.is_string else self._number(node.this, clause)
        inner = node.this.unnest() if isinstance(node, exp.Neg) else None
        if isinstance(inner, exp.Literal) and not inner.is_string:
            return -self._number(inner.this, clause)
        if isinstance(node, exp.Null):
            self.refuse(clause, _NO_NULLS)
        if isinstance(node, exp.Boolean):
            value = "'true'" if node.this else "'false'"
            self.refuse(clause, f"truth values are categories, which take single quotes: write {value}")
        if isinstance(node, exp.Column):
            hint = " (strings take single quotes)" if node.this.quoted else ""
            self.refuse(
                clause, f"an attribute can be compared with literals only, not with another column{hint}"
            )
        return self.refuse(clause, f"`{text(node)}` is not a literal")

    def _number(self, written: str, clause: Node) -> Fraction:
        if not _DECIMAL.fullmatch(written):
            self.refuse(clause, f"{written!r} is not a decimal number of reasonable length")
        return Fraction(written)

    def _one(self, subject: Attribute, value: Fraction | str, node: Node) -> Mask:
        position = subject.position(value)
        if position is None:
            shown = repr(value) if isinstance(value, str) else f"{float(value):.15g}"
            quotes = ""
            if not isinstance(value, str) and not subject.numeric:
                quotes = " (its categories are strings, which take single quotes)"
            raise InvalidArgument(
                f"{self.whose}, `{text(node)}`: {shown} is not a category of {subject.name!r}"
                f"{subject.suggestion(value)}{quotes}"
            )
        cells = np.zeros(subject.size, dtype=bool)
        cells[position] = True
        return cells

    def _below(self, subject: Attribute, value: Fraction | str, node: Node, *, inclusive: bool) -> Mask:
        recode = self.domain.recode(subject.name)
        if recode is not None:
            self.refuse(
                node,
                f"the classes of the recode {subject.name!r} have no order; compare {recode.of!r} instead",
            )
        try:
            count = subject.below(value)
        except InvalidArgument as error:
            self.refuse(node, str(error))
        cells = np.zeros(subject.size, dtype=bool)
        cells[: count + (inclusive and subject.position(value) is not None)] = True
        return cells


def text(node: Node) -> str:
    """A clause as SQL, for messages; the middle of a long one is left out."""
    written = node.sql(dialect=DIALECT, comments=False)
    return written if len(written) <= 300 else f"{written[:200]} ... {written[-80:]}"
