"""``[[earlier]]`` without a geography: counts of tables that equal those which an earlier release published."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ...domain import Constraint, Domain, Table
from ...spec.areas import EarlierEntry
from ...spec.problems import KeyPath, Problems, nearest, shown
from ...spec.promise import Method
from ...spec.public_file import encoded
from ...spec.published import EARLIER_OF_TABLES
from ...spec.schema import Schema
from ...spec.sections import Document
from ...spec.series import Mark, read_mark
from ..earlier import COUNT, Columns, EarlierTable

_ESTIMATE = "non-negative"


@dataclass(frozen=True, eq=False)
class EarlierCounts:
    """Counts that estimates equal: public, with the error that they had when they were published.

    Args:
        held: the table of this release's domain, and its counts.
        table: of the earlier release.
        mark: which release that is.
    """

    held: Constraint
    table: str
    mark: Mark

    @property
    def document(self) -> dict[str, str]:
        """What descriptors and plans say of it."""
        return {"counts": self.held.table.name, "table": self.table, **vars(self.mark)}

    @property
    def words(self) -> str:
        """The same, for people."""
        return f"{self.held.table.name}: as in table {self.table} of release {self.mark.release_id}"


@dataclass(frozen=True, eq=False)
class EarlierRead:
    """What the ``[[earlier]]`` of a document hold, and the counts as they are published with the release."""

    counts: list[EarlierCounts] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)

    @property
    def marks(self) -> tuple[Mark, ...]:
        """Of the releases that they are from."""
        return tuple(each.mark for each in self.counts)


def read_earlier(
    document: Document, schema: Schema, method: object, base: Path, problems: Problems
) -> EarlierRead:
    """The counts of earlier releases that a document without a geography names; mistakes are recorded.

    Args:
        method: that of the document; None where it could not be read.

    Privacy:
        None is spent: reads what is published.
    """
    found = EarlierRead()
    if document.earlier and isinstance(method, Method):
        _check_goes(document, schema, method, problems)
    for at, entry in enumerate(document.earlier):
        path: KeyPath = ("earlier", at)
        if entry is None or entry.attributes is None or entry.table is None or entry.release is None:
            continue
        table = _table(entry, schema, path, problems)
        marked = read_mark(entry.release, (*path, "release"), base, problems, 'release = "release-2025"')
        if table is None or marked is None:
            continue
        keys = {name: entry.columns.get(name, name) for name in entry.attributes}
        source = EarlierTable(entry, keys, path, problems)
        columns = source.read(marked[1], base)
        values = None if columns is None else _values(source, table, schema.domain, columns)
        if columns is None or values is None:
            continue
        if any(each.held.table.terms == table.terms for each in found.counts):
            problems.add(path, "is about the same counts as an entry before it: keep one")
            continue
        found.counts.append(EarlierCounts(Constraint.equal(table, values), entry.table, marked[0]))
        found.files[EARLIER_OF_TABLES.format(at=at)] = encoded(columns)
    return found


def _check_goes(document: Document, schema: Schema, method: Method, problems: Problems) -> None:
    """Refuse what published counts do not go with."""
    if method.estimate != _ESTIMATE:
        told = (
            f'goes with estimate = "{_ESTIMATE}" under [method]: estimates by "{method.estimate}" do not keep to '
            "published counts, which have errors of their own"
        )
        problems.add(("earlier",), told)
    if document.invariants:
        told = (
            "stands beside [[invariant]]: whether both can hold is known only once records are counted, and a refusal "
            "would tell of them. Publish the exact counts in a release of their own, and hold them here, too"
        )
        problems.add(("earlier",), told)
    if schema.domain is not None and schema.domain.parts > 1:
        told = "goes with tables of records, without [values] and without units counted with their records: remove it"
        problems.add(("earlier",), told)


def _table(entry: EarlierEntry, schema: Schema, path: KeyPath, problems: Problems) -> Table | None:
    """The margin that an entry is about; silent where it is a declaration that is wrong."""
    domain = schema.domain
    if domain is None:
        return None
    known = [*domain.names, *(recode.name for recode in domain.recodes)]
    factors, names = {}, entry.attributes or []
    for position, name in enumerate(names):
        at = (*path, "attributes", position)
        if name not in known:
            if name not in schema.broken:
                problems.add(at, f"there is no attribute or recode {shown(name)}; {nearest(name, known)}")
            return None
        view = domain.resolve(name)
        if view.attribute.name in factors:
            problems.add(at, f"{shown(name)} is of an attribute that is there already: keep one")
            return None
        factors[view.attribute.name] = view.operator
    return Table(" by ".join(names) or "total", factors)


def _values(source: EarlierTable, table: Table, domain: Domain | None, columns: Columns) -> np.ndarray | None:
    """Shape (rows of the table,), int64: a count for each row."""
    assert domain is not None
    row, count = source.classes(domain, columns), source.counts(columns[COUNT])
    if row is None or count is None:
        return None
    found = np.full(table.rows(domain), -1)
    if np.unique(row).size < row.size:
        source.refuse("file", "has two counts of the same labels")
        return None
    found[row] = count
    if (missing := np.flatnonzero(found < 0)).size:
        labels = [domain.resolve(name).labels for name in _in_order(source.entry.attributes or (), domain)]
        place = np.unravel_index(int(missing[0]), [len(each) for each in labels]) if labels else ()
        named = " and ".join(each[int(i)] for each, i in zip(labels, place, strict=True)) or "all records"
        told = f"table {shown(source.entry.table)} has no count of {named}: use a recode without such a class"
        source.refuse("attributes", told)
        return None
    return found


def _in_order(names: Sequence[str], domain: Domain) -> list[str]:
    return sorted(names, key=lambda name: domain.axis(domain.resolve(name).attribute.name))
