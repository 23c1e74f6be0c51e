"""Confidential counts of areas: the cells that are not empty, leaf by leaf. Only measuring reads them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from ...domain import Attribute
from ...errors import DataError, InvalidArgument, Unsupported
from ...sources.coding import (
    EXAMPLES,
    NULL_CODE,
    UNKNOWN_CODE,
    ColumnCoding,
    check_counted,
    coded,
    listed,
    misfits,
    nameless,
    refusal,
    unknown,
)
from ...sources.failures import redacted
from ...sources.source import ID, LEAF, RecordSource, batches, engine_of, open_records
from ...sources.units import UnitRule, bounded, identified, most_counted
from ...sources.values import BLANKS, plain_text
from .constraints import ExactMargin
from .spine_plan import Piece, SpinePlan

if TYPE_CHECKING:
    import ibis.expr.types as ir
    import pyarrow as pa


@dataclass(frozen=True, eq=False, repr=False)
class _Level:
    """The leaves of a level's units, unit by unit: those of unit u are leaves[first[u] : first[u + 1]].

    ``of`` says in which unit each leaf lies, as the hierarchy has it that this was made for.
    """

    of: np.ndarray
    leaves: np.ndarray
    first: np.ndarray


_ENTRIES = 1 << 20  # how many counts are looked at together


class SpineCounts:
    """How many records there are in each leaf of a spine and each cell of its layout. Confidential.

    A unit's counts are sums over its leaves, made when a piece of the plan asks for them. Levels are best asked for
    one after the other. What is kept of a count is its cell and its number, in as few bytes as the largest takes.

    Args:
        leaf, place: shape (entries,), leaves and ``dense cell * N + combination`` of the counts that are not zero.
        people: shape (entries,), int64. Entries of one leaf and place are added.
    """

    def __init__(self, plan: SpinePlan, leaf: np.ndarray, place: np.ndarray, people: np.ndarray) -> None:
        self._leaves, self._cells = plan.spine.leaves, plan.layout.cell.size
        for first in range(0, leaf.size, _ENTRIES):
            some = slice(first, first + _ENTRIES)
            if not _inside(leaf[some], self._leaves) or not _inside(place[some], self._cells):
                raise InvalidArgument("counts lie outside the plan's leaves or cells")
            if not plan.support.has(leaf[some], place[some] // plan.layout.algebra.cells).all():
                raise InvalidArgument("counts lie in cells that the plan says cannot occur in their leaves")
        key = leaf.astype(np.int64)
        key *= self._cells
        key += place
        order = np.argsort(key)
        key = key[order]
        starts = np.flatnonzero(np.diff(key, prepend=-1))
        number = people.astype(np.int64)[order]
        sums = np.add.reduceat(number, starts) if key.size else number
        del order, number
        found = key[starts]
        self._people = sums.astype(np.min_scalar_type(sums.max(initial=0)))
        self._first = np.searchsorted(found, np.arange(self._leaves + 1) * self._cells)
        found %= self._cells
        self._place = found.astype(np.min_scalar_type(self._cells))
        self._under: _Level | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}(confidential)"

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise Unsupported("counts are confidential and are not pickled: make them from the records again")

    @property
    def records(self) -> int:
        return int(self._people.sum(dtype=np.int64))

    def check(self, plan: SpinePlan) -> None:
        """See that these counts were made for a plan like this one."""
        if (plan.spine.leaves, plan.layout.cell.size) != (self._leaves, self._cells):
            raise InvalidArgument("these counts were made for another plan: it has other leaves or cells")
        for leaf, place, _ in self._entries():
            if not plan.support.has(leaf, place // plan.layout.algebra.cells).all():
                raise InvalidArgument("these counts were made for another plan: it has other supports")

    def piece(self, piece: Piece, plan: SpinePlan) -> np.ndarray:
        """Exact counts of a piece's nodes over their support, shape (m, k, N), int64."""
        support, inner = plan.dense_cells[piece.pattern], plan.layout.algebra.cells
        leaves, row = self._leaves_of(piece.level, plan.tree.unit[piece.nodes], plan)
        entry, of = _concatenated(self._first[leaves], self._first[leaves + 1])
        dense, rest = np.divmod(self._place[entry].astype(np.int64), inner)
        cell = (row[of] * support.size + np.searchsorted(support, dense)) * inner + rest
        counts = np.zeros(piece.nodes.size * support.size * inner, np.int64)
        np.add.at(counts, cell, self._people[entry])
        return counts.reshape(piece.nodes.size, support.size, inner)

    def entries(self, level: int, units: np.ndarray, plan: SpinePlan) -> tuple[np.ndarray, ...]:
        """The counts of some units of a level that are not 0: the position of each one's unit, its place, and people.

        One place may be there several times, once for each leaf.
        """
        leaves, row = self._leaves_of(level, units, plan)
        entry, of = _concatenated(self._first[leaves], self._first[leaves + 1])
        return row[of], self._place[entry].astype(np.int64), self._people[entry].astype(np.int64)

    def exact(self, plan: SpinePlan, exact: ExactMargin) -> np.ndarray:
        """The counts of a margin over dense attributes in every one of its areas, shape (units, classes), int64."""
        if exact.margin.inner != 1:
            raise InvalidArgument(
                f"exact counts of {exact.margin.name!r} are over attributes that the layout holds symmetric: make "
                "them dense"
            )
        areas = plan.spine.areas(exact.level)
        found = np.zeros((areas.codes.size + 1, exact.margin.classes), np.int64)  # the last row is of no area
        for leaf, place, people in self._entries():
            label = exact.margin.label[place // plan.layout.algebra.cells]
            np.add.at(found, (areas.unit[leaf], label), people)
        return found[:-1]

    def fingerprint(self) -> bytes:
        """What tells these counts from others: for a keyed hash in the ledger, nothing else."""
        digest = hashlib.sha256(b"tabulae spine counts 2\n")
        for columns in self._entries():
            digest.update(np.stack(columns).astype("<i8").data)
        return digest.digest()

    def _entries(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Leaf, place and people of all counts, int64, some at a time."""
        for first in range(0, self._place.size, _ENTRIES):
            number = np.arange(first, min(first + _ENTRIES, self._place.size))
            leaf = np.searchsorted(self._first, number, side="right") - 1
            yield leaf, self._place[number].astype(np.int64), self._people[number].astype(np.int64)

    def _leaves_of(self, level: int, units: np.ndarray, plan: SpinePlan) -> tuple[np.ndarray, np.ndarray]:
        """The leaves of some units, one unit after the other, and the position of each one's unit."""
        of = plan.spine.hierarchy.units[level]
        # another plan of as many leaves may put them in other units
        if self._under is None or self._under.of is not of:
            first = np.searchsorted(np.sort(of), np.arange(plan.spine.hierarchy.codes[level].size + 1))
            self._under = _Level(of, np.argsort(of, kind="stable"), first)
        at, row = _concatenated(self._under.first[units], self._under.first[units + 1])
        return self._under.leaves[at], row


def _inside(index: np.ndarray, size: int) -> bool:
    return not index.size or bool(index.min() >= 0 and index.max() < size)


def _concatenated(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    length = high - low
    number = np.arange(length.sum()) + np.repeat(low - np.cumsum(length) + length, length)
    return number, np.repeat(np.arange(low.size), length)


AT = "at"
_ROWS = 1 << 20  # how many counts are placed together


@dataclass(frozen=True)
class LeafColumn:
    """The column of the records that says in which leaf each lies.

    Codes are compared letter by letter, blanks around them left out: "0101" is not "101". Whole numbers in the
    records are read as the digits that write them.

    Args:
        codes: of the plan's leaves, in the plan's order.
        dropped: of further leaves of the public file, where nothing can be counted.
    """

    column: str
    codes: Sequence[str] = field(repr=False)
    dropped: Sequence[str] = field(default=(), repr=False)
    file: str = "the file under [geography]"

    def __post_init__(self) -> None:
        every = [str(code).strip(BLANKS) for code in (*self.codes, *self.dropped)]
        if len(set(every)) != len(every):
            raise InvalidArgument(
                f"{self.file} has two leaves of one code, or codes that differ by blanks alone"
            )
        object.__setattr__(self, "codes", tuple(every[: len(self.codes)]))
        object.__setattr__(self, "dropped", tuple(every[len(self.codes) :]))

    @property
    def known(self) -> tuple[str, ...]:
        """All codes, those of the plan first."""
        return (*self.codes, *self.dropped)

    @property
    def numbered(self) -> pa.Table:
        import pyarrow as pa

        known = pa.array(self.known, pa.string())
        return pa.table({"code": known, "number": pa.array(np.arange(len(known)))})


def open_spine_records(
    source: RecordSource,
    rules: Mapping[str, ColumnCoding],
    plan: SpinePlan,
    leaf: LeafColumn,
    *,
    bounds: Sequence[LeafBound] = (),
    unit: UnitRule | None = None,
    memory: str | None = None,
) -> SpineCounts:
    """Count the records of a source by leaf and cell, in one grouping by the engine.

    Every record falls in one leaf of the plan and in one cell that can occur there, or nothing is counted. Limits that
    public files set on counts are not compared with the records.

    Args:
        rules: attribute name -> the rule of its column; one for each attribute of the plan's domain.
        bounds: the public files that say which cells can occur in which leaf of the plan, to be named in messages.
        unit: which records belong to one unit, and how many of them are counted; None counts every record.
        memory: the most that the engine takes, such as "4GB"; None is its default.

    Returns:
        The counts, which are confidential.

    Raises:
        DataError: the source cannot be read, is empty, or holds values, leaves or combinations that are refused. The
            message names columns, files and kinds of fault; values and numbers are in ``confidential``.
        InvalidArgument: rules or leaf codes that do not fit the plan.

    Privacy:
        What is refused depends on the records, and only their holder sees it; nothing is published by a refusal, and
        it comes before anything is charged. A record is refused for what it says itself, whatever the others say, and
        no number of records is compared with a limit. A record is counted in one leaf and one cell. With ``unit``, one
        unit more or less changes the counts by at most ``unit.rows`` records (see `tabulae.sources.units`).
    """
    attributes = plan.layout.domain.attributes
    if absent := [a.name for a in attributes if a.name not in rules]:
        raise InvalidArgument(f"there is no rule for attribute {absent[0]!r}: give one for each attribute")
    if len(leaf.codes) != plan.spine.leaves:
        raise InvalidArgument(f"{len(leaf.codes)} leaf codes for a plan of {plan.spine.leaves} leaves")
    wanted = [(a.name, rules[a.name].column) for a in attributes]
    with open_records(source, wanted, unit and unit.column, leaf.column, memory=memory) as records:
        named = _named(records, unit)
        read = _Coded(source, attributes, rules, leaf, named, engine_of(named).copied(named, leaf.numbered))
        rows = read.rows(read.records.count())
        count = engine_of(records).part_count(rows, memory)
        every = read.counted([part.table() for part in _parts(read, records, unit, count)], rows)
        _check(read, every, plan, nameless(source, read.records, unit) if unit else [], bounds)
        if unit is not None:
            shares = _whole_units(read.records, count)
            of_units = [replace(read, records=part).table(beside=[ID]) for part in shares]
            kept = sum(read.rows(most_counted(table, unit)) for table in of_units)
            every = read.counted([bounded(table, read.keys, unit) for table in of_units], kept, fit=True)
    placed = _placed(every, plan)
    return SpineCounts(plan, placed.leaf, placed.place, placed.people)


def _named(records: ir.Table, unit: UnitRule | None) -> Any:
    """The records with the name of their unit where there is a rule."""
    return records if unit is None else identified(records, unit)


def _parts(read: _Coded, records: ir.Table, unit: UnitRule | None, count: int) -> Iterator[_Coded]:
    """The records in at most so many parts, each record in one: ranges of codes as the records write them.

    In a file that is sorted by leaf, or nearly, the engine reads little more than each part's own. Each has the leaves
    of its range to look codes up in. Blanks stand before all signs but control characters: a code with blanks after it
    is in the range of the code, and one with blanks before it in the first range, which has all leaves.
    """
    codes = sorted(read.leaf.known)
    edges = sorted({codes[i * len(codes) // count] for i in range(1, count)})
    if not edges:
        yield read
        return
    raw: Any = records[LEAF] if records[LEAF].type().is_string() else records[LEAF].cast("string")
    told = read.numbered["code"]
    controls = any(min(code, default=" ") < " " for code in codes)
    yield replace(read, records=_named(records.filter(raw.isnull() | (raw < edges[0])), unit))
    for low, high in pairwise([*edges, None]):
        within, leaves = raw >= low, told >= low
        if high is not None:
            within, leaves = within & (raw < high), leaves & (told < high)
        numbered = read.numbered if controls else read.numbered.filter(leaves)
        yield replace(read, records=_named(records.filter(within), unit), numbered=numbered)


def _whole_units(records: Any, count: int) -> list[ir.Table]:
    """The records in parts, all records of a unit in one."""
    if count == 1:
        return [records]
    digest = records[ID].hash() % count  # of the sign of the hash
    return [records.filter((digest == i) | (digest == i - count)) for i in range(count)]


def _as_text(records: ir.Table, leaf: LeafColumn) -> Any:
    """The leaf's code as plain text, NULL where there is none."""
    raw: Any = records[LEAF]
    kind, column = raw.type(), f"column {leaf.column!r} ([geography] column)"
    if kind.is_string() or kind.is_null():
        return plain_text(raw)
    if not (kind.is_integer() or (kind.is_decimal() and kind.scale == 0)):
        named = "a type that is not read" if kind.is_unknown() else f"type {kind}"
        raise DataError(f"{column} has {named}: leaf codes are text or whole numbers; convert it to text")
    if any(code.startswith("0") and len(code) > 1 for code in leaf.known):
        raise DataError(
            f"{column} holds numbers, and codes of {leaf.file} begin with 0: the leading zeros are lost. Write it as "
            "text, with all digits of each code"
        )
    return raw.cast("string")


@dataclass(frozen=True, eq=False, repr=False)
class _Coded:
    """Records with codes in place of values: k0, k1, ... for the attributes, ``at`` for the leaf.

    ``numbered`` has the codes of leaves and their numbers, where the records are: one table for all parts.
    """

    source: RecordSource
    attributes: Sequence[Attribute]
    rules: Mapping[str, ColumnCoding]
    leaf: LeafColumn
    records: Any
    numbered: Any

    @property
    def keys(self) -> list[str]:
        return [AT, *(f"k{i}" for i in range(len(self.attributes)))]

    def table(self, beside: Sequence[str] = ()) -> Any:
        """Alike records and their number; a leaf that is unknown or missing has a code below 0, as values have."""
        import ibis

        table: Any = coded(self.records, self.attributes, self.rules, beside=[*beside, LEAF])
        table = table.mutate(**{LEAF: _as_text(table, self.leaf)})  # of alike records together
        table = table.left_join(self.numbered, table[LEAF] == self.numbered["code"])
        number = ibis.coalesce(table["number"], UNKNOWN_CODE)
        at = ibis.ifelse(table[LEAF].isnull(), NULL_CODE, number).cast("int64")
        return table.mutate(**{AT: at}).drop("code", "number")

    def rows(self, expected: Any) -> int:
        return redacted(self.source.name, lambda: int(expected.to_pyarrow().as_py() or 0))

    def counted(self, tables: Sequence[Any], rows: int, *, fit: bool = False) -> dict[str, np.ndarray]:
        """The columns of codes and the number of records with them, each combination once in a table."""
        grouped = [
            table.group_by(self.keys).aggregate(people=table.people.sum().cast("int64")) for table in tables
        ]
        every = redacted(self.source.name, lambda: self._columns(grouped))
        least = min(int(every[key].min(initial=0)) for key in self.keys) if fit else 0
        check_counted(self.source, rows, int(every["people"].sum()), least)
        return every

    def _columns(self, grouped: Sequence[Any]) -> dict[str, np.ndarray]:
        """The counts, batch by batch, in the few bytes that they and codes take."""
        import pyarrow as pa

        kinds = {AT: np.dtype(np.int32)}
        kinds |= {f"k{i}": np.min_scalar_type(-a.size) for i, a in enumerate(self.attributes)}
        parts: dict[str, list[np.ndarray]] = {name: [np.zeros(0, kind)] for name, kind in kinds.items()}
        people = [np.zeros(0, np.int8)]
        for batch in chain.from_iterable(map(batches, grouped)):
            for name, kind in kinds.items():
                parts[name].append(batch.column(name).to_numpy(zero_copy_only=False).astype(kind))
            # DuckDB adds whole numbers up to decimals, which would arrive as objects.
            people.append(
                _in_few_bytes(batch.column("people").cast(pa.int64()).to_numpy(zero_copy_only=False))
            )
        return {name: np.concatenate(parts.pop(name)) for name in kinds} | {"people": np.concatenate(people)}


def _in_few_bytes(number: np.ndarray) -> np.ndarray:
    """Whole numbers from 0 on in the smallest signed type that holds them: -128 fits where 128 does not."""
    return number.astype(np.min_scalar_type(-int(number.max(initial=0)) - 1))


def _check(
    found: _Coded,
    every: Mapping[str, np.ndarray],
    plan: SpinePlan,
    faults: Sequence[tuple[str, str]],
    bounds: Sequence[LeafBound],
) -> None:
    """Raise what is refused of the values, of the leaves, and of the two together."""
    source, table = found.source, found.table()
    of_leaves = leaf_faults(source, table, found.leaf, every)
    if faults or any((every[key] < 0).any() for key in found.keys[1:]):
        told = misfits(source, found.attributes, found.rules, table)
        raise refusal(source, [*told, *faults, *of_leaves])
    if not of_leaves:
        of_leaves = place_faults(_placed(every, plan), plan, found.leaf.codes, bounds)
    if of_leaves:
        raise refused(source, of_leaves)


def _placed(every: Mapping[str, np.ndarray], plan: SpinePlan) -> Placed:
    """The cells of counts, some at a time: positions take more room than the codes that they are made from."""
    shape, size = plan.layout.domain.shape, every[AT].size
    cell, place = (np.empty(size, np.min_scalar_type(-plan.layout.domain.size)) for _ in range(2))
    for first in range(0, size, _ROWS):
        some = slice(first, first + _ROWS)
        codes = tuple(every[f"k{i}"][some].astype(np.int64) for i in range(len(shape)))
        cell[some] = np.ravel_multi_index(codes, shape)
        place[some] = plan.layout.place[cell[some]]
    return Placed(every[AT], cell, place, every["people"])


Fault = tuple[str, str]
"""What is told, and the same with numbers and values, which is confidential."""


@dataclass(frozen=True, eq=False, repr=False)
class Placed:
    """Numbers of records by leaf and cell: shape (entries,) each. Confidential.

    ``cell`` is of the domain in C order, ``place`` of the layout, -1 for a cell that cannot occur.
    """

    leaf: np.ndarray = field(repr=False)
    cell: np.ndarray = field(repr=False)
    place: np.ndarray = field(repr=False)
    people: np.ndarray = field(repr=False)


@dataclass(frozen=True, eq=False)
class LeafBound:
    """What a public file lets occur in each leaf.

    Args:
        label: shape (D,): the class of each dense cell.
        possible: shape (leaves, classes), boolean.
    """

    name: str
    label: np.ndarray
    possible: np.ndarray


def leaf_faults(
    source: RecordSource, table: Any, leaf: LeafColumn, every: Mapping[str, np.ndarray]
) -> list[Fault]:
    """Faults of the leaf codes of coded records: missing, unknown, or of leaves where nothing can be counted.

    Args:
        table: the coded records, with the leaf's code and its number ``at``.
        every: numbers of records by ``at`` and other codes.
    """
    at, people = every["at"], every["people"]
    column, faults = f"column {leaf.column!r} ([geography] column)", []
    if (at == NULL_CODE).any():
        told = f"{column}: NULL values, and every record needs the code of the leaf that it lies in"
        faults.append((told, f"{told}: in {int(people[at == NULL_CODE].sum())} records"))
    if (at == UNKNOWN_CODE).any():
        examples = unknown(source, table, LEAF, "at")
        told = f"{column}: codes that are not in {leaf.file}: {_remedy([code for code, _ in examples], leaf)}"
        number = int(people[at == UNKNOWN_CODE].sum())
        faults.append((told, f"{told}: in {number} records, such as {listed(examples)}"))
    if (dropped := at >= len(leaf.codes)).any():
        told = (
            f"{column}: codes of leaves where nothing can be counted: no bound's file lets anything occur there. "
            "Correct the records or that file"
        )
        known = leaf.known
        faults.append((told, _with_examples(told, [known[i] for i in at[dropped]], people[dropped])))
    return faults


def _remedy(codes: Sequence[str], leaf: LeafColumn) -> str:
    known, lengths = set(leaf.known), {len(code) for code in leaf.known}
    if any(code.zfill(length) in known for code in codes for length in lengths if length > len(code)):
        return "leading zeros are lost in them; write the codes as text, with all their digits"
    return "correct the records, or add a row for each such leaf"


def place_faults(
    placed: Placed, plan: SpinePlan, codes: Sequence[str], bounds: Sequence[LeafBound] = ()
) -> list[Fault]:
    """Records in cells that cannot occur, anywhere or in their leaf; ``codes`` are the leaves'."""
    dense = placed.place // plan.layout.algebra.cells
    nowhere = placed.place < 0
    names = " by ".join(plan.layout.dense)
    faults = []
    inside = ~nowhere & ~plan.support.has(placed.leaf, dense)
    cells = f"combinations of {names} that"
    named = [
        (
            inside & ~bound.possible[placed.leaf, bound.label[dense]],
            f"{cells} cannot occur in their leaf, by {bound.name}",
        )
        for bound in bounds
    ]
    for wrong, told in (
        (nowhere, f"{cells} [[structural_zero]] says cannot occur"),
        *(named or [(inside, f"{cells} cannot occur in their leaf, by the file of a [[bound]]")]),
    ):
        if wrong.any():
            told = f"{told}: correct the records, or what the spec says of them"
            examples = [
                f"{codes[leaf]} {_labels(cell, plan)}"
                for leaf, cell in zip(placed.leaf[wrong], placed.cell[wrong], strict=True)
            ]
            faults.append((told, _with_examples(told, examples, placed.people[wrong])))
    return faults


def _labels(cell: int, plan: SpinePlan) -> str:
    domain = plan.layout.domain
    codes = dict(zip(domain.names, np.unravel_index(int(cell), domain.shape), strict=True))
    return ", ".join(domain[name].labels[codes[name]] for name in plan.layout.dense)


def _with_examples(told: str, values: Sequence[str], people: np.ndarray) -> str:
    total: dict[str, int] = {}
    for value, number in zip(values, people.tolist(), strict=True):
        total[value] = total.get(value, 0) + number
    commonest = sorted(total.items(), key=lambda pair: (-pair[1], pair[0]))[:EXAMPLES]
    return f"{told}: in {sum(total.values())} records, such as {listed(commonest)}"


def refused(source: RecordSource, faults: Sequence[Fault]) -> DataError:
    """The error that names faults whose words say what to do."""
    return DataError(
        "\n".join(
            [f"{source.name} does not fit the public geography:", *(f"  {told}" for told, _ in faults)]
        ),
        confidential="\n".join(detail for _, detail in faults),
    )
