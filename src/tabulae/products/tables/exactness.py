"""What a release makes exact: how much, what follows from it, and what that leaves of the promise. Reads no data."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ...domain import Domain, Invariants, Table, Workload, describe_row_space, joint_row_space
from ...errors import Problem, SpecError, Unsupported
from ...linalg import Identity, IntegerSystem, Partition, Stack
from ...privacy import WITHIN, Charge, Disclosure
from ...spec import Spec
from ...strategy import has_neighbours

_MOST_CELLS = 2**22  # single cells that are looked at one by one
_MOST_ENTRIES = 2**22  # of C written out, to name the rows that follow from others
_EXPLICIT = 4096  # merged cells whose columns of C are compared
_NAMED = 4

Earlier = Sequence[tuple[Charge, Disclosure]]


@dataclass(frozen=True)
class ExactCounts:
    """One set of counts that is published exactly: in words what is counted, in how many counts, and why."""

    name: str
    what: str
    counts: int
    reason: str


@dataclass(frozen=True)
class EarlierExact:
    """What an earlier release of the same ledger stated exactly."""

    name: str
    release: str
    reason: str


@dataclass(frozen=True)
class Exactness:
    """What a release makes exact, alone and together with earlier releases of the same ledger.

    ``stated`` counts are published exactly, ``independent`` of them say all that they say together, and ``following``
    names counts that earlier ones determine (some of them, where there are many). ``published`` says of how many rows
    of each table the counts are therefore exact. ``joint`` is the number of independent counts with those of
    ``earlier`` releases (None: none were made, or too many to tell), ``joint_published`` what of each table is exact
    then, and ``unread`` names those that were counted by other categories and cannot be compared. ``unprotected`` are
    attributes that no neighbour may change under "replace-within-invariants". ``warnings`` says in sentences what a
    curator should know before publishing.
    """

    tables: tuple[ExactCounts, ...]
    stated: int
    independent: int
    following: tuple[str, ...]
    published: Mapping[str, int]
    earlier: tuple[EarlierExact, ...] = ()
    joint: int | None = None
    joint_published: Mapping[str, int] | None = None
    unread: tuple[str, ...] = ()
    unprotected: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        return asdict(self)


def exactness(spec: Spec, earlier: Earlier = ()) -> Exactness | None:
    """What the invariants of a spec give away; None where neither it nor an earlier release makes anything exact.

    Arguments:
        earlier: what the ledger says that other releases stated exactly.

    Reference: Gao, Gong, Yu, "Subspace Differential Privacy", Definition 2.2 and Proposition 2.9.

    Privacy:
        Reads no record: row spaces only, no counts.
    """
    if not spec.invariants and not earlier:
        return None
    own = [given.table for given in spec.invariants]
    alone = Invariants(spec.domain, own) if own else None
    together, unread = _together(spec, own, earlier)
    published = _exact_rows(spec.workload, alone)
    joint_published = _exact_rows(spec.workload, together) if together else None
    unprotected = _unprotected(alone) if alone and spec.neighbours == WITHIN else ()
    made = Exactness(
        tuple(
            ExactCounts(t.name, described(t, spec.domain), t.rows(spec.domain), given.reason)
            for t, given in zip(own, spec.invariants, strict=True)
        ),
        stated=alone.rows if alone else 0,
        independent=alone.rank if alone else 0,
        following=tuple(_following(alone)) if alone else (),
        published=published,
        earlier=tuple(dict.fromkeys(EarlierExact(d.table, charge.title, d.reason) for charge, d in earlier)),
        joint=_rank(together),
        joint_published=joint_published,
        unread=unread,
        unprotected=unprotected,
    )
    warnings = tuple(_warnings(spec, made, alone, together))
    return Exactness(**{**vars(made), "warnings": warnings})


def check_joint_promise(spec: Spec, earlier: Earlier) -> None:
    """Refuse a release whose invariants, with those of earlier ones, leave the ledger's promise empty.

    Raises :class:`~tabulae.errors.SpecError` where, under "replace-within-invariants", no record could be replaced by a
    different one without moving a count that some release of the ledger states exactly.
    """
    if spec.neighbours != WITHIN or not earlier:
        return
    together, _ = _together(spec, [given.table for given in spec.invariants], earlier)
    if together is not None and has_neighbours(together) is False:
        problem = Problem(
            "invariant",
            "together with what earlier releases of this ledger state exactly, no record could be replaced by a "
            "different one without moving an exact count: the promise of the ledger as a whole would be empty, earlier "
            'releases included. Make less exact, or promise "replace" on a ledger of its own',
        )
        raise SpecError([problem], str(spec.path or "spec"))


def described(table: Table, domain: Domain) -> str:
    """A table in words: what is crossed with what, and in how many categories."""
    columns = table.columns(domain)
    return " by ".join(f"{name} ({len(labels)})" for name, labels in columns.items()) or "one count"


def _together(
    spec: Spec, own: Sequence[Table], earlier: Earlier
) -> tuple[Invariants | None, tuple[str, ...]]:
    """The row space of the invariants and of all earlier disclosures, None without any that can be compared."""
    if not earlier:
        return None, ()
    stated = [(table.name, describe_row_space(table, spec.domain)) for table in own]
    tables, unread = joint_row_space(spec.domain, [*stated, *((d.table, d.rows) for _, d in earlier)])
    return (Invariants(spec.domain, tables) if tables else None), unread


def _rank(invariants: Invariants | None) -> int | None:
    try:
        return None if invariants is None else invariants.rank
    except Unsupported:
        return None


def _exact_rows(workload: Workload, invariants: Invariants | None) -> dict[str, int]:
    """How many rows of each table are exact, for the tables that have any."""
    if invariants is None:
        return {}
    try:
        found = {t.name: int(invariants.determined(t).sum()) for t in workload.tables}
    except Unsupported:
        return {}
    return {name: rows for name, rows in found.items() if rows}


def _following(invariants: Invariants) -> Iterator[str]:
    """Counts that earlier ones determine, in words, where C is small enough to be written out."""
    if invariants.rank == invariants.rows:
        return
    merged, _ = Workload(invariants.domain, invariants.tables).merge()
    if invariants.rows * merged.domain.size > _MOST_ENTRIES:
        return
    matrix = Stack([table.operator(merged.domain) for table in merged.tables]).dense()
    for relation in IntegerSystem(np.asarray(matrix)).dependent:
        yield invariants.row_name(relation.row)


# what a curator should know -----------------------------------------------------------------------------
def _warnings(
    spec: Spec, made: Exactness, alone: Invariants | None, together: Invariants | None
) -> Iterator[str]:
    if alone is not None:
        yield from _single_cells(spec, alone, "the exact counts")
        yield from _whole_tables(spec, made.published, "the exact counts")
        yield from _one_left(spec, alone)
        yield from _redundant(alone)
    if together is not None:
        with_earlier = "the exact counts, together with those of earlier releases of this ledger,"
        before = set() if alone is None else set(_single_cells(spec, alone, with_earlier))
        yield from (w for w in _single_cells(spec, together, with_earlier) if w not in before)
        more = {n: r for n, r in (made.joint_published or {}).items() if made.published.get(n) != r}
        yield from _whole_tables(spec, more, with_earlier)
        if spec.neighbours == WITHIN:
            yield from _left_by_all(together, made.unprotected)
    if made.unread:
        yield (
            f"earlier releases of this ledger stated {_listed(made.unread)} exactly, by other categories or attributes "
            "than are declared here: what follows from them together is not worked out"
        )
    if made.unprotected:
        yield (
            f'under "{WITHIN}" no promise covers {_listed(made.unprotected)}: the exact counts tell every '
            "category apart there, so that no record can change it and stay within them"
        )


def _left_by_all(together: Invariants, before: Sequence[str]) -> Iterator[str]:
    """What the promise of the ledger as a whole leaves out: neighbours agree on every count disclosed from it."""
    if has_neighbours(together) is False:
        yield (
            "with this release the ledger as a whole protects nobody: its exact counts, those of earlier releases "
            "among them, tell any two different records apart; the run will be refused"
        )
    elif more := [name for name in _unprotected(together) if name not in before]:
        yield (
            f"with this release among them, the ledger as a whole does not cover {_listed(more)}: the exact counts of "
            "all its releases tell every category apart there"
        )


def _whole_tables(spec: Spec, exact: Mapping[str, int], by: str) -> Iterator[str]:
    for table in spec.workload.tables:
        if exact.get(table.name) == table.rows(spec.domain):
            yield f"every count of table {table.name!r} is exact, for {by} determine them: nothing in it is protected"


def _single_cells(spec: Spec, invariants: Invariants, by: str) -> Iterator[str]:
    """Cells of all published attributes that are exact: what one person's count may be read from."""
    names = _published_attributes(spec, invariants)
    if not names:
        return
    _, merges = Workload(spec.domain, invariants.tables).merge()
    alone = {name: _alone(merges[spec.domain.axis(name)]) for name in names}
    cells = math.prod(len(codes) for codes in alone.values())
    if cells == 0:
        return
    label = " x ".join(names)
    if cells > _MOST_CELLS:
        yield f"{cells:,} cells of {label} are too many to look whether {by} determine any of them"
        return
    factors = {}
    for name, codes in alone.items():
        classes = np.full(spec.domain[name].size, -1, dtype=np.int64)
        classes[codes] = np.arange(len(codes))
        factors[name] = Partition(classes, len(codes))
    try:
        found = np.flatnonzero(invariants.determined(Table("cells", factors)))
    except Unsupported:
        yield f"whether {by} determine single cells of {label} is out of reach for exact tables of this form"
        return
    if len(found):
        yield _cells_told(spec, by, {n: list(codes) for n, codes in alone.items()}, found)


def _cells_told(spec: Spec, by: str, alone: Mapping[str, Sequence[int]], found: np.ndarray) -> str:
    shape = [len(codes) for codes in alone.values()]
    named = []
    for cell in found[:_NAMED]:
        places = zip(alone.items(), np.unravel_index(int(cell), shape), strict=True)
        named.append(
            " and ".join(
                f"{name} = {spec.domain[name].labels[codes[int(at)]]}" for (name, codes), at in places
            )
        )
    more = f", and {len(found) - _NAMED:,} more" if len(found) > _NAMED else ""
    cells = "1 single cell" if len(found) == 1 else f"{len(found):,} single cells"
    return (
        f"{by} determine {cells} of {' x '.join(alone)}, where a count may be that of one {spec.unit}: "
        f"{'; '.join(named)}{more}"
    )


def _published_attributes(spec: Spec, invariants: Invariants) -> list[str]:
    """Attributes of several categories that some table or exact count tells apart, in domain order."""
    asked = {n for t in (*spec.workload.tables, *invariants.tables) for n in t.attributes}
    return [name for name in spec.domain.names if name in asked and spec.domain[name].size > 1]


def _alone(merge: Partition) -> np.ndarray:
    """Categories that are a merged class of their own."""
    return np.flatnonzero((merge.classes >= 0) & (np.asarray(merge.sizes)[merge.classes] == 1))


def _one_left(spec: Spec, invariants: Invariants) -> Iterator[str]:
    """Margins of several counts of which the invariants leave a single one to be protected."""
    seen: set[tuple[str, ...]] = set()
    for table in (*spec.workload.tables, *_margins(spec.domain, invariants)):
        try:
            rank = Invariants(spec.domain, [table]).rank
            others = _unlike(table, invariants.tables)
            left = Invariants(spec.domain, [*others, table]).rank - invariants.rank
        except Unsupported:
            continue
        if left == 1 and rank > 1 and table.attributes not in seen:
            seen.add(table.attributes)
            yield (
                f"the exact counts leave {described(table, spec.domain)} a single free count: whoever learns one "
                "of its open counts knows all of them"
            )


def _margins(domain: Domain, invariants: Invariants) -> Iterator[Table]:
    """Every combination of the attributes of each exact table."""
    for table in invariants.tables:
        yield Table(f"margin of {table.name}", {n: Identity(domain[n].size) for n in table.attributes})


def _unlike(table: Table, others: Iterable[Table]) -> list[Table]:
    """The other tables under names that differ from the table's."""
    return [Table.of_terms(f"exact {i}: {table.name}"[:60], t.terms) for i, t in enumerate(others)]


def _redundant(invariants: Invariants) -> Iterator[str]:
    """Exact tables all of whose counts the others determine."""
    if len(invariants.tables) < 2:
        return
    for table in invariants.tables:
        others = [other for other in invariants.tables if other is not table]
        try:
            whole = Invariants(invariants.domain, others).determined(table).all()
        except Unsupported:
            continue
        if whole:
            yield (
                f"{table.name!r} follows from {_listed(t.name for t in others)}: it makes nothing exact that is not so "
                "already"
            )


def _classes(merged: Workload) -> np.ndarray:
    """A label for each cell, equal where the columns of C are, (cells,)."""
    matrix = Stack([table.operator(merged.domain) for table in merged.tables]).dense()
    return np.unique(np.asarray(matrix), axis=1, return_inverse=True)[1].reshape(-1)


def _unprotected(invariants: Invariants) -> tuple[str, ...]:
    """Attributes that no record can change while every exact count stays: all categories told apart."""
    merged, merges = Workload(invariants.domain, invariants.tables).merge()
    names = invariants.domain.names
    open_ones = [name for name, part in zip(names, merges, strict=True) if part.shape[0] < part.shape[1]]
    told = [name for name in names if name not in open_ones and invariants.domain[name].size > 1]
    if invariants.structure == "product" or not told or merged.domain.size > _EXPLICIT:
        return tuple(told)
    classes = _classes(merged).reshape(merged.domain.shape)
    return tuple(name for name in told if not _changes(classes, invariants.domain.axis(name)))


def _changes(classes: np.ndarray, axis: int) -> bool:
    """Whether two cells of one class differ along an axis."""
    flat = np.moveaxis(classes, axis, 0).reshape(classes.shape[axis], -1)
    return any(
        np.intersect1d(one, other).size for one, other in itertools.combinations(map(np.unique, flat), 2)
    )


def _listed(names: Iterable[str]) -> str:
    shown = [repr(name) for name in names]
    return ", ".join(shown[:_NAMED]) + (f" and {len(shown) - _NAMED} more" if len(shown) > _NAMED else "")
