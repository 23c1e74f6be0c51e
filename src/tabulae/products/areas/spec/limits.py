"""The file of a ``[[bound]]``: the least and the most that each leaf can have, read with every mistake's line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import combinations
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from sqlglot import errors, exp, parse_one

from ....domain import Domain
from ....domain.codes import Numbered
from ....domain.predicate import Predicate, over, tests
from ....domain.sql import DIALECT, Where
from ....errors import InvalidArgument
from ....spec.areas import BoundEntry
from ....spec.problems import KeyPath, Problems, listed, shown, written
from ....spec.promise import SPARSE
from ....spec.public_file import TextColumns, encoded, read_text_columns
from ....spec.schema import Schema
from ....spec.sections import Document
from ..constraints import NO_LIMIT, AreaConstraints, EarlierMargin, ExactMargin
from ..layout import MOST_DENSE, CellLayout, Margin, Supports
from ..sparse.cells import MOST_DENSE as MOST_SPARSE
from ..spine.shares import distinct_rows
from ..spine.spine import Spine
from .files import Leaves

LEAST, MOST = "at_least", "at_most"

LARGEST = 10**12
"""The largest limit that a file may give."""


@dataclass(frozen=True, eq=False)
class Occurring:
    """Where a file of limits says that nothing can occur.

    Attributes:
        occurs: shape (leaves of the spine, classes of ``margin``), boolean: whether something can.
    """

    file: str
    margin: Margin
    occurs: np.ndarray


@dataclass(frozen=True, eq=False)
class Bound:
    """The limits of one file.

    Attributes:
        at: position of the entry in the document.
        lower, upper: shape (leaves of the file, classes), int64; ``NO_LIMIT`` where there is none.
        content: the columns of the file that are read, written anew.
    """

    at: int
    file: str
    margin: Margin
    lower: np.ndarray
    upper: np.ndarray
    content: bytes

    def occurring(self, kept: np.ndarray) -> Occurring:
        """What it says of the leaves of the spine, those ``kept`` of the file."""
        return Occurring(self.file, self.margin, self.upper[kept] > 0)

    @property
    def is_limiting(self) -> bool:
        """Whether it says more than what cannot occur."""
        return bool((self.lower > 0).any() or ((self.upper > 0) & (self.upper < NO_LIMIT)).any())


def read_bound(
    entry: BoundEntry | None, at: int, leaves: Leaves, layout: CellLayout, base: Path, problems: Problems
) -> Bound | None:
    """The limits of an entry's file; None, with the mistakes recorded, where it has some."""
    if entry is None or entry.file is None or entry.attributes is None:
        return None
    path, leaf = ("bound", at, "file"), leaves.levels[-1]
    needed = {leaf: path} | dict.fromkeys(entry.attributes, ("bound", at, "attributes"))
    found = read_text_columns(base, entry.file, path, problems, needed, (LEAST, MOST))
    if found is None:
        return None
    if not {LEAST, MOST} & found.numbered.keys():
        found.mistakes.tell(
            1, f"has neither a column {LEAST} nor {MOST}: limits are in one of them, or in both"
        )
        return None
    margin = layout.margin(entry.attributes)
    row, group = _leaf_of(found, leaves), _class_of(found, margin, layout.domain)
    least, most = _limits(found, LEAST, 0), _limits(found, MOST, NO_LIMIT)
    for i in np.flatnonzero((least > most) & (most >= 0)).tolist():
        found.mistakes.tell(
            int(found.line[i]), f"{LEAST} is {least[i]} and {MOST} is {most[i]}: no count is both"
        )
    if found.mistakes.told:
        return None
    _check_once(row * margin.classes + group, found)
    shape = (leaves.row.size, margin.classes)
    lower = np.zeros(shape, np.int64)
    upper = np.full(shape, 0 if entry.unlisted == "zero" else NO_LIMIT, np.int64)
    lower[row, group], upper[row, group] = least, most
    if found.mistakes.told:
        return None
    return Bound(at, entry.file, margin, lower, upper, encoded(found.numbered))


def _leaf_of(found: TextColumns, leaves: Leaves) -> np.ndarray:
    """Shape (rows,): the leaf of each row; -1, with the mistake told, where there is none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    name = leaves.levels[-1]
    cells = found.numbered[name]
    known = pc.SetLookupOptions(pa.array(leaves.codes.codes, pa.string()))
    place = pc.call_function("index_in", [pa.array(cells.codes, pa.string())], known).fill_null(-1)
    leaf = np.full(leaves.row.size + 1, -1)
    leaf[leaves.codes.index] = np.arange(leaves.row.size)
    row = leaf[np.append(np.from_dlpack(place), -1)[cells.index]]
    for i in np.flatnonzero(row < 0).tolist():
        code = cells.text(i)
        told = f"{name} is empty" if code is None else f"no leaf of the geography has {name} {shown(code)}"
        found.mistakes.tell(int(found.line[i]), told)
    return row


def _class_of(found: TextColumns, margin: Margin, domain: Domain) -> np.ndarray:
    """Shape (rows,): the class of the margin that each row is about."""
    ordered = sorted(margin.names, key=lambda name: domain.axis(domain.resolve(name).attribute.name))
    total = np.zeros(found.line.size, np.int64)
    for name in ordered:
        cells = found.numbered[name]
        each = cells.each(partial(_position, domain, name), -1)
        for i in np.flatnonzero(each < 0).tolist():
            code = cells.text(i)
            told = f"{name} is empty" if code is None else f"there is no {name} {shown(code)}"
            found.mistakes.tell(int(found.line[i]), f"{told}; {_known(domain, name)}")
        total = total * len(domain.resolve(name).labels) + each
    return total


def _position(domain: Domain, name: str, text: str) -> int:
    if domain.recode(name) is not None:
        labels = domain.resolve(name).labels
        return labels.index(text) if text in labels else -1
    attribute = domain[name]
    whole = attribute.numeric and text.lstrip("+-").isdecimal()
    position = attribute.position(int(text) if whole else text)
    return -1 if position is None else position


def _known(domain: Domain, name: str) -> str:
    labels = domain.resolve(name).labels
    return f"there are {', '.join(map(shown, labels[:8]))}{', ...' if len(labels) > 8 else ''}"


def _limits(found: TextColumns, column: str, otherwise: int) -> np.ndarray:
    if column not in found.numbered:
        return np.full(found.line.size, otherwise, np.int64)
    cells = found.numbered[column]
    limits = cells.each(_whole, otherwise)
    for i in np.flatnonzero(limits < 0).tolist():
        said = shown(str(cells.text(i)))
        told = f"{column} is {said}: write a whole number from 0 to {LARGEST:,}, without separators"
        found.mistakes.tell(int(found.line[i]), told)
    return limits


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > 15 or int(text) > LARGEST:
        return -1
    return int(text)


def _check_once(key: np.ndarray, found: TextColumns) -> None:
    order = np.argsort(key, kind="stable")
    again = np.flatnonzero(np.diff(key[order]) == 0) + 1
    for i in sorted(again.tolist(), key=lambda i: order[i]):
        before = int(found.line[order[i - 1]])
        told = f"is about the same leaf and values as {found.mistakes.unit} {before}"
        found.mistakes.tell(int(found.line[order[i]]), told)


Placed = tuple[KeyPath, ExactMargin]
"""A margin whose counts are fixed, and the entry of the document that says so."""


def read_exact(
    document: Document,
    entities: Sequence[str],
    leaves: Leaves,
    kept: np.ndarray,
    spine: Spine,
    layout: CellLayout,
    support: Supports,
    problems: Problems,
) -> tuple[list[Placed], dict[str, tuple[KeyPath, Numbered]]] | None:
    """What each invariant makes exact, with its position, and the areas; None, with the mistakes recorded, if wrong.

    Args:
        entities: the columns of the file with areas that cut across the levels.
        kept: shape (leaves,): which of them are on the spine.
        support: of the leaves of the spine.

    Returns:
        The exact margins; and for each level or entity type that they are about the first invariant, and the code of
        each leaf of the spine. The areas are those of the file, whatever became of their levels on the spine.
    """
    before = len(problems.found)
    found: list[Placed] = []
    areas: dict[str, tuple[KeyPath, Numbered]] = {}
    first: dict[tuple[str, bytes], int] = {}
    for at, entry in enumerate(document.invariants):
        if entry is None or entry.attributes is None:
            continue
        codes = codes_of(entry.level, ("invariant", at), entities, leaves, kept, spine, problems)
        if codes is None or entry.level is None:
            continue
        level = entry.level
        several = codes.codes.size + (codes.index < 0).any() > 1
        if several and level in layout.domain.names:
            told = f"{shown(level)} is the name of an attribute, too: rename the level or the attribute"
            problems.add(("invariant", at, "level"), told)
            continue
        areas.setdefault(level, (("invariant", at), codes))
        margin = layout.margin(entry.attributes)
        partition = np.unique(margin.label, return_inverse=True)[1].tobytes()
        earlier = first.setdefault((level, partition), at)
        if earlier != at:
            told = f"makes the same counts exact as {written(('invariant', earlier))}: keep one"
            problems.add(("invariant", at), told)
        found.append((("invariant", at), ExactMargin(level, margin, entry.reason or "")))
    at_leaves = [(path, exact) for path, exact in found if _are_leaves(areas[exact.level][1])]
    if _leaves_nothing([exact.margin for _, exact in at_leaves], layout, support):
        also = " with the others" if len(at_leaves) > 1 else ""
        told = (
            f"makes every count of every {spine.levels[-1]} exact{also}: nothing is left to be released under a "
            "guarantee"
        )
        problems.add(at_leaves[-1][0], told)
    return (found, areas) if len(problems.found) == before else None


def _are_leaves(codes: Numbered) -> bool:
    """Whether each leaf is an area of its own."""
    return codes.codes.size == codes.index.size


def _leaves_nothing(margins: Sequence[Margin], layout: CellLayout, support: Supports) -> bool:
    """Whether exact margins of a leaf determine every count that it can have.

    They do when their rows span those of all cells, in every leaf: cells that differ in a symmetric attribute are in
    one class of each margin.
    """
    if not margins or layout.algebra.cells > 1:
        return False
    labels = np.stack([margin.label for margin in margins])
    for pattern in support.patterns:
        here = labels[:, pattern]
        if np.unique(here, axis=1).shape[1] < here.shape[1]:
            return False
        rows = np.concatenate([label == np.unique(label)[:, None] for label in here])
        if np.linalg.matrix_rank(rows.astype(float)) < here.shape[1]:
            return False
    return True


def codes_of(
    level: str | None,
    section: KeyPath,
    entities: Sequence[str],
    leaves: Leaves,
    kept: np.ndarray,
    spine: Spine,
    problems: Problems,
) -> Numbered | None:
    """The code of the area that each leaf of the spine lies in; None, with the mistake recorded, where there is none.

    Args:
        section: the entry of the document that names the level: an invariant, or counts published before.
    """
    path = (*section, "level")
    if level is None:
        problems.add(path, f'is missing: say where the counts are exact, such as level = "{spine.levels[0]}"')
        return None
    known = (*spine.levels, *entities)
    if level not in known:
        problems.add_unknown(path, "level or entity", level, known)
        return None
    if level not in leaves.columns:  # the root that is added
        return Numbered(np.zeros(spine.leaves, np.int64), spine.hierarchy.codes[0][:1])
    codes = leaves.columns[level].at(kept)
    if not codes.codes.size:
        problems.add(
            path, f"no leaf where anything can be counted lies in any {level}: remove this [[{section[0]}]]"
        )
        return None
    return codes


MOST_COMBINATIONS = 1_000_000
"""The most combinations of dense attributes, those that cannot occur included."""


@dataclass(frozen=True, eq=False)
class Cells:
    """The layout of the domain's cells, and what is asked of every unit."""

    layout: CellLayout
    queries: tuple[Margin, ...]


def read_cells(document: Document, schema: Schema, domain: Domain, problems: Problems) -> Cells | None:
    """Queries and structural zeros over the domain; None, with the mistakes recorded, where they do not fit it."""
    before = len(problems.found)
    known = Names(domain, schema, problems)
    zeros = [
        (at, zero)
        for at, entry in enumerate(document.zeros)
        if entry and entry.where and (zero := _zero(entry.where, at, schema, domain, problems)) is not None
    ]
    dense = {name for _, zero in zeros for name in tests(zero)}
    sparse = document.method is not None and document.method.estimate == SPARSE
    about = ("bound", document.bounds), ("invariant", document.invariants), ("earlier", document.earlier)
    for section, entries in about:
        for at, entry in enumerate(entries):
            if entry and entry.attributes is not None:
                bases = known.bases(entry.attributes, (section, at, "attributes"))
                joined = sparse and section == "earlier" and len(problems.found) == before
                dense |= _joined(entry.attributes, domain) if joined else bases
    asked = (
        _queries(document, known, problems)
        if document.queries
        else _queries_of_tables(document, domain, dense)
    )
    dense |= {of for query in asked for of in _joined(query, domain)}
    if len(problems.found) > before:
        return None
    impossible = _impossible(zeros, domain, sorted(dense, key=domain.names.index), problems)
    if len(problems.found) > before:
        return None

    def arranged() -> Cells:
        layout = CellLayout.of(domain, dense, impossible, MOST_SPARSE if sparse else MOST_DENSE)
        return Cells(layout, tuple(layout.margin(query) for query in asked))

    cells = problems.attempt(("geography", "query"), arranged)
    names = [query.name for query in cells.queries] if cells else []
    for at, name in enumerate(names):
        if name in names[:at]:
            like = written(("geography", "query", names.index(name)))
            told = f"its answers would be called {shown(name)}, like those of {like}: rename an attribute or recode"
            problems.add(("geography", "query", at, "attributes"), told)
    return cells


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
                    self.problems.add_unknown((*path, i), "attribute or recode", name, known)
                continue
            base = self.domain.resolve(name).attribute.name
            if base in found:
                both = f"and {shown(found[base])} are views of one attribute"
                told = "is there twice" if found[base] == name else both
                self.problems.add((*path, i), f"{shown(name)} {told}: keep one")
            found[base] = name
        return set(found)


def _queries(document: Document, names: Names, problems: Problems) -> list[list[str]]:
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


_MOST_QUERIES = 24
_MOST_JOINED = 64
"""The most dense cells for which recodes of tables are measured as they are, where nobody wrote queries."""


def _queries_of_tables(document: Document, domain: Domain, dense: set[str]) -> list[list[str]]:
    """What is asked of areas where nobody wrote it: the margins of all tables, theirs in turn, and all cells.

    Margins of margins are left out, but for the total, where they would be more than ``_MOST_QUERIES`` in all.
    A recode that joins categories makes its attribute dense. Where that would be too many cells, a table's margin is
    that of the attribute itself.

    Args:
        dense: the attributes that are dense whatever is asked.
    """
    dense, found = set(dense), [[]]
    for entry in document.tables:
        names = entry.attributes if entry and entry.attributes else []
        if not all(name in domain.names or domain.recode(name) for name in names):
            continue  # unknown, or twice below: recorded with the table
        bases = [domain.resolve(name).attribute.name for name in names]
        if len(set(bases)) < len(bases):
            continue
        joined = dense | _joined(names, domain)
        if prod(domain[name].size for name in joined) <= _MOST_JOINED:
            dense = joined
        else:
            names = bases
        found.append(names)
    below = [list(names) for own in found for size in range(len(own)) for names in combinations(own, size)]
    for more in (below, []):
        every = {frozenset(names): names for names in [*more, *found, list(domain.names)]}
        if len(every) <= _MOST_QUERIES:
            break
    return sorted(every.values(), key=len)


def _joined(query: Iterable[str], domain: Domain) -> set[str]:
    """The attributes of which a query joins categories."""
    recodes = [domain.recode(name) for name in query]
    return {
        recode.of for recode in recodes if recode and np.unique(recode.classes).size < domain[recode.of].size
    }


def _zero(text: str, at: int, schema: Schema, domain: Domain, problems: Problems) -> Predicate | None:
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
        found |= over(zero, dense, shape)
        if found.all():
            told = "removes all that the others leave, so that nothing could be counted"
            problems.add(("structural_zero", at, "where"), told)
            break
    return found


@dataclass(frozen=True, eq=False)
class Universe:
    """The leaves where something can occur, and what limits them.

    Attributes:
        bounds: those of all files.
        support: what can occur in each leaf of the file.
    """

    bounds: tuple[Bound, ...]
    support: Supports

    @cached_property
    def kept(self) -> np.ndarray:
        """Shape (leaves of the file,), boolean: where something can occur."""
        return np.any(self.support.patterns, axis=1)[self.support.pattern]


def read_universe(
    document: Document, leaves: Leaves, cells: Cells, base: Path, problems: Problems
) -> Universe | None:
    """The bounds of a document and what they leave possible; None, with the mistakes recorded, where one is wrong."""
    found = [
        read_bound(entry, at, leaves, cells.layout, base, problems)
        for at, entry in enumerate(document.bounds)
    ]
    bounds = tuple(bound for bound in found if bound)
    if len(bounds) < len(found):
        return None
    return Universe(bounds, support_of(bounds, cells.layout, leaves, problems))


def support_of(bounds: Sequence[Bound], layout: CellLayout, leaves: Leaves, problems: Problems) -> Supports:
    """What can occur in each leaf of the file; what must and cannot is a mistake."""
    can = [bound.upper > 0 for bound in bounds]
    kinds, which = distinct_rows(np.concatenate([np.ones((leaves.row.size, 1), bool), *can], axis=1))
    rows, first = np.ones((len(kinds), layout.size), bool), 1
    for bound in bounds:
        rows &= kinds[:, first : first + bound.margin.classes][:, bound.margin.label]
        first += bound.margin.classes
    support = Supports.of(rows, which)
    for bound in bounds:
        occurs = support.classes(bound.margin.label, bound.margin.classes)[support.pattern]
        for leaf, group in np.argwhere((bound.lower > 0) & ~occurs)[:3].tolist():
            told = (
                f"{leaves.levels[-1]} {shown(str(leaves.codes.text(leaf)))} must have {bound.lower[leaf, group]} "
                f"{class_name(bound.margin, group)} or more, and no cell of it can occur there: another bound, or a "
                "structural zero, removes them all"
            )
            problems.add(("bound", bound.at), told)
    return support


def class_name(margin: Margin, group: int) -> str:
    """What a class of a margin over dense attributes is called in messages.

    >>> from tabulae.domain import Domain
    >>> layout = CellLayout.of(Domain({"type": ["home", "jail"], "age": 3}), ["type"])
    >>> class_name(layout.margin(["type"]), 1)
    'type jail'
    """
    domain = margin.layout.domain
    ordered = sorted(margin.names, key=lambda name: domain.axis(domain.resolve(name).attribute.name))
    views = [domain.resolve(name).labels for name in ordered]
    position = np.unravel_index(group, [len(labels) for labels in views] or [1])
    words = [f"{n} {labels[int(i)]}" for n, labels, i in zip(ordered, views, position, strict=False)]
    return ", ".join(words) or "people"


def join_constraints(
    bounds: Sequence[Bound],
    fixed: Sequence[Placed],
    leaves: Leaves,
    kept: np.ndarray,
    layout: CellLayout,
    problems: Problems,
) -> AreaConstraints | None:
    """The limits and fixed counts together; None where there are none, or do not fit each other.

    Limits are kept on one partition of the dense cells, the *parts*: that of the bounds that limit, or else the finest
    of the exact counts.

    Args:
        fixed: the margins that are exact, and those of an earlier release.
        kept: shape (leaves,): which of them are on the spine.
    """
    limiting = [bound for bound in bounds if bound.is_limiting]
    if not limiting and not fixed:
        return None
    margins = tuple(margin for _, margin in fixed)
    earlier = tuple(margin for margin in margins if isinstance(margin, EarlierMargin))
    exact = tuple(margin for margin in margins if not isinstance(margin, EarlierMargin))
    if not limiting:
        stacked = np.stack([margin.margin.label for margin in margins])
        groups, part = np.unique(stacked, axis=1, return_inverse=True)
        names = [
            ", ".join(class_name(m.margin, int(g)) for m, g in zip(margins, group, strict=True))
            for group in groups.T
        ]
        lower = np.zeros((int(kept.sum()), len(names)), np.int64)
        upper = np.full_like(lower, NO_LIMIT)
        return AreaConstraints(layout, part.reshape(-1), tuple(names), lower, upper, exact, earlier)
    first = limiting[0]
    lower, upper = first.lower, first.upper
    for other in limiting[1:]:
        if not np.array_equal(other.margin.label, first.margin.label):
            told = (
                f"limits other counts than {written(('bound', first.at))}: limits other than at_most = 0 are kept on "
                "one margin, so write them by the same attributes"
            )
            problems.add(("bound", other.at, "attributes"), told)
            return None
        lower, upper = np.maximum(lower, other.lower), np.minimum(upper, other.upper)
    for leaf, group in np.argwhere(lower > upper)[:3].tolist():
        told = (
            f"together with the others it leaves no count of {class_name(first.margin, group)} to "
            f"{shown(str(leaves.codes.text(leaf)))}: {lower[leaf, group]} or more, and {upper[leaf, group]} or fewer"
        )
        problems.add(("bound", limiting[-1].at), told)
    present, part = np.unique(first.margin.label, return_inverse=True)
    if not _nested(fixed, part, first, problems):
        return None
    names = tuple(class_name(first.margin, group) for group in present.tolist())
    return AreaConstraints(
        layout, part.reshape(-1), names, lower[kept][:, present], upper[kept][:, present], exact, earlier
    )


def _nested(fixed: Sequence[Placed], part: np.ndarray, bound: Bound, problems: Problems) -> bool:
    """Whether each fixed count adds up whole parts."""
    for path, margin in fixed:
        pairs = np.unique(np.stack([part.reshape(-1), margin.margin.label]), axis=1)
        if pairs.shape[1] > part.max() + 1:
            told = (
                f"these counts do not add up whole counts that {written(('bound', bound.at))} limits: limits are kept "
                "on counts at least as fine as those that are exact, so bound finer counts, or make coarser ones exact"
            )
            problems.add((*path, "attributes"), told)
            return False
    return True
