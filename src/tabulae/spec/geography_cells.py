"""What areas are asked, and how cells are arranged for it: queries, structural zeros, and the dense attributes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from sqlglot import errors, exp, parse_one

from ..domain import Domain
from ..domain.predicate import (
    All,
    Predicate,
    Some,
    Test,
    tests,
)
from ..domain.where import DIALECT, Where
from ..errors import InvalidArgument
from ..geography.layout import Layout, Margin
from .lines import KeyPath
from .problems import (
    Problems,
    listed,
    nearest,
    shown,
    written,
)
from .schema import Schema
from .sections import Document

MOST_COMBINATIONS = 1_000_000
"""The most combinations of dense attributes, those that cannot occur included."""


@dataclass(frozen=True, eq=False)
class Cells:
    """The layout of the domain's cells, and what is asked of every unit.

    Attributes:
        layout: of the cells that can occur.
        queries: what is asked.
    """

    layout: Layout
    queries: tuple[Margin, ...]


def read_cells(document: Document, schema: Schema, domain: Domain, problems: Problems) -> Cells | None:
    """Queries and structural zeros over the domain; None, with the mistakes recorded, where they do not fit it.

    Args:
        document: the sections as read.
        schema: the domain, and the names that could not be read.
        domain: of the schema.
        problems: where mistakes are recorded.
    """
    before = len(problems.found)
    known = Names(domain, schema, problems)
    asked = _queries(document, known, problems)
    zeros = [
        (at, zero)
        for at, entry in enumerate(document.zeros)
        if entry and entry.where and (zero := _zero(entry.where, at, schema, domain, problems)) is not None
    ]
    dense = {name for _, zero in zeros for name in tests(zero)}
    for section, entries in (("bound", document.bounds), ("invariant", document.invariants)):
        for at, entry in enumerate(entries):
            if entry and entry.attributes is not None:
                dense |= known.bases(entry.attributes, (section, at, "attributes"))
    dense |= {of for query in asked for of in _joined(query, domain)}
    if len(problems.found) > before:
        return None
    impossible = _impossible(zeros, domain, sorted(dense, key=domain.names.index), problems)
    if len(problems.found) > before:
        return None
    try:
        layout = Layout.of(domain, dense, impossible)
        queries = tuple(layout.margin(query) for query in asked)
    except InvalidArgument as error:
        problems.add(("geography", "query"), str(error))
        return None
    names = [query.name for query in queries]
    for at, name in enumerate(names):
        if name in names[:at]:
            like = written(("geography", "query", names.index(name)))
            told = f"its answers would be called {shown(name)}, like those of {like}: rename an attribute or recode"
            problems.add(("geography", "query", at, "attributes"), told)
    return Cells(layout, queries)


@dataclass(frozen=True, eq=False)
class Names:
    """Looks names of attributes and recodes up, recording those that do not exist."""

    domain: Domain
    schema: Schema
    problems: Problems

    def bases(self, names: Sequence[str], path: KeyPath) -> set[str]:
        """The attributes that names are views of, each of another one."""
        found: dict[str, str] = {}
        known = (*self.domain.names, *(recode.name for recode in self.domain.recodes))
        for i, name in enumerate(names):
            if name not in known:
                if name not in self.schema.broken:
                    told = f"there is no attribute or recode {shown(name)}; {nearest(name, known)}"
                    self.problems.add((*path, i), told)
                continue
            base = self.domain.resolve(name).attribute.name
            if base in found:
                both = f"and {shown(found[base])} are views of one attribute"
                told = "is there twice" if found[base] == name else both
                self.problems.add((*path, i), f"{shown(name)} {told}: keep one")
            found[base] = name
        return set(found)


def _queries(document: Document, names: Names, problems: Problems) -> list[list[str]]:
    """The attributes of each query; one that asks the same as another is a mistake."""
    asked: list[list[str]] = []
    first: dict[frozenset[str], KeyPath] = {}
    for at, entry in enumerate(document.queries):
        if entry is None or entry.attributes is None:
            continue
        path: KeyPath = ("geography", "query", at)
        names.bases(entry.attributes, (*path, "attributes"))
        before = first.setdefault(frozenset(entry.attributes), path)
        if before != path:
            problems.add(path, f"asks the same as {written(before)}: keep one, with the sum of their shares")
        asked.append(entry.attributes)
    return asked


def _joined(query: Iterable[str], domain: Domain) -> set[str]:
    """The attributes of which a query joins categories."""
    recodes = [domain.recode(name) for name in query]
    return {
        recode.of for recode in recodes if recode and np.unique(recode.classes).size < domain[recode.of].size
    }


def _zero(text: str, at: int, schema: Schema, domain: Domain, problems: Problems) -> Predicate | None:
    """The cells that a condition says cannot occur."""
    path: KeyPath = ("structural_zero", at, "where")

    def name_of(column: Any) -> str:
        if not isinstance(column.this, exp.Identifier) or column.table:
            raise InvalidArgument(f"{column.sql(dialect=DIALECT)} is not the plain name of an attribute")
        return domain.match(column.name)

    try:
        node = parse_one(text, dialect=DIALECT)
        if any(column.name in schema.broken for column in node.find_all(exp.Column)):
            return None
        zero = Where(domain, name_of, "this").predicate(node)
    except errors.SqlglotError as error:
        told = str(error).splitlines()[0] if str(error) else "it is empty"
        problems.add(path, f"does not parse: {told}; write a condition such as hhgq = 'nursing' AND age < 18")
        return None
    except RecursionError:
        problems.add(path, "is nested too deeply: write several [[structural_zero]]")
        return None
    except InvalidArgument as error:
        problems.add(path, str(error))
        return None
    if isinstance(zero, bool):
        told = "everything, so that nothing could be counted" if zero else "nothing: remove it"
        problems.add(path, f"removes {told}")
        return None
    return zero


def _impossible(
    zeros: list[tuple[int, Predicate]], domain: Domain, dense: Sequence[str], problems: Problems
) -> np.ndarray:
    """Which combinations of the dense attributes cannot occur, in C order."""
    shape = tuple(domain[name].size for name in dense)
    if prod(shape) > MOST_COMBINATIONS:
        told = (
            f"recodes, structural zeros, bounds and exact counts are about {listed(dense)}, with {prod(shape):,} "
            f"combinations, and at most {MOST_COMBINATIONS:,} are looked at: use fewer or coarser attributes"
        )
        problems.add(("geography",), told)
        return np.zeros((0,))
    found = np.zeros(shape, bool)
    for at, zero in zeros:
        found |= _cells(zero, dense, shape)
        if found.all():
            told = "removes all that the others leave, so that nothing could be counted"
            problems.add(("structural_zero", at, "where"), told)
            break
    return found


def _cells(zero: Predicate, dense: Sequence[str], shape: tuple[int, ...]) -> np.ndarray:
    """A predicate as an array over the attributes that it is about, and others."""
    if isinstance(zero, bool):
        return np.full(shape, zero)
    if isinstance(zero, Test):
        axis = dense.index(zero.attribute)
        along = zero.cells.reshape([-1 if i == axis else 1 for i in range(len(shape))])
        return np.broadcast_to(along, shape)
    parts = [_cells(part, dense, shape) for part in zero.parts]
    assert isinstance(zero, All | Some)
    return np.logical_and.reduce(parts) if isinstance(zero, All) else np.logical_or.reduce(parts)
