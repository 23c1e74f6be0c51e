"""Records of any source to counts of areas: leaf codes are looked up as text, other values by their columns' rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ..counts.spine_counts import SpineCounts
from ..domain import Attribute
from ..errors import DataError, InvalidArgument
from ..geography.spine_plan import SpinePlan
from ..memory import read_memory
from .engine import LEAF, open_records
from .failures import redacted
from .given import given
from .group_transfer import batches
from .mapping import coded
from .refusals import (
    check_counted,
    misfits,
    nameless,
    refusal,
)
from .rules import (
    BLANKS,
    NULL_CODE,
    UNKNOWN_CODE,
    ColumnRule,
)
from .source import Source
from .spine_refusals import (
    LeafBound,
    Placed,
    leaf_faults,
    place_faults,
    refused,
)
from .units import (
    ID,
    UnitRule,
    bounded,
    identified,
    most_counted,
)

if TYPE_CHECKING:
    import ibis.expr.types as ir
    import pyarrow as pa

AT = "at"
_ROWS = 1 << 20  # how many counts are placed together
_PART = 1 << 24  # how many records are grouped together at most
_RECORD = 128  # bytes of an engine that a record takes in grouping: measured 90 where nearly all differ


@dataclass(frozen=True)
class LeafColumn:
    """The column of the records that says in which leaf each lies.

    Codes are compared letter by letter, blanks around them left out: "0101" is not "101". Whole numbers in the
    records are read as the digits that write them.

    Args:
        column: the column.
        codes: of the plan's leaves, in the plan's order.
        dropped: of further leaves of the public file, where nothing can be counted.
        file: what messages call that file.

    Raises:
        InvalidArgument: two leaves of one code.
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
        """The codes, each with its number among them."""
        import pyarrow as pa

        known = pa.array(self.known, pa.string())
        return pa.table({"code": known, "number": pa.array(np.arange(len(known)))})


def open_spine_records(
    source: Source,
    rules: Mapping[str, ColumnRule],
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
        source: where the records are, one row a record.
        rules: attribute name -> the rule of its column; one for each attribute of the plan's domain.
        plan: the leaves, the cells, and which cells can occur in which leaf.
        leaf: the column of leaf codes.
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
        unit more or less changes the counts by at most ``unit.rows`` records (see `tabulae.tabulate.units`).
    """
    attributes = plan.layout.domain.attributes
    if absent := [a.name for a in attributes if a.name not in rules]:
        raise InvalidArgument(f"there is no rule for attribute {absent[0]!r}: give one for each attribute")
    if len(leaf.codes) != plan.spine.leaves:
        raise InvalidArgument(f"{len(leaf.codes)} leaf codes for a plan of {plan.spine.leaves} leaves")
    wanted = [(a.name, rules[a.name].column) for a in attributes]
    with open_records(source, wanted, unit and unit.column, leaf.column, memory=memory) as records:
        readable = _readable(records, leaf, unit)
        read = _Coded(source, attributes, rules, leaf, readable, given(readable, leaf.numbered))
        rows = read.rows(read.records.count())
        count = _part_count(source, rows, memory)
        ranges = (_readable(part, leaf, unit) for part in _ranges(records, leaf, count))
        every = read.counted([replace(read, records=part).table() for part in ranges], rows)
        _check(read, every, plan, nameless(source, read.records, unit) if unit else [], bounds)
        if unit is not None:
            shares = _whole_units(read.records, count)
            of_units = [replace(read, records=part).table(beside=[ID]) for part in shares]
            kept = sum(read.rows(most_counted(table, unit)) for table in of_units)
            every = read.counted([bounded(table, read.keys, unit) for table in of_units], kept, fit=True)
    placed = _placed(every, plan)
    return SpineCounts(plan, placed.leaf, placed.place, placed.people)


def _readable(records: ir.Table, leaf: LeafColumn, unit: UnitRule | None) -> Any:
    """The records with their leaf's code as text, and the name of their unit where there is a rule."""
    found: Any = records.mutate(**{LEAF: _as_text(records, leaf)})
    return found if unit is None else identified(found, unit)


def _part_count(source: Source, rows: int, memory: str | None) -> int:
    """In how many parts records are grouped, one after the other; servers and Spark see to their memory themselves.

    Grouping takes memory for each combination of a leaf and values, of which there are nearly as many as records, and
    an engine that spills them can still run out.
    """
    if source.engine in ("postgresql", "spark"):
        return 1
    room = _PART if memory is None else min(_PART, read_memory(memory) // _RECORD)
    return max(1, -(-rows // room))


def _ranges(records: ir.Table, leaf: LeafColumn, count: int) -> list[ir.Table]:
    """The records in at most so many parts, each record in one: ranges of codes as the records write them.

    In a file that is sorted by leaf, or nearly, the engine reads little more than each part's own.
    """
    codes = sorted(leaf.known)
    edges = sorted({codes[i * len(codes) // count] for i in range(1, count)})
    if not edges:
        return [records]
    raw: Any = records[LEAF] if records[LEAF].type().is_string() else records[LEAF].cast("string")
    between = [(raw >= low) & (raw < high) for low, high in pairwise(edges)]
    return [records.filter(which) for which in (raw.isnull() | (raw < edges[0]), *between, raw >= edges[-1])]


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
        return raw.cast("string").strip().nullif("")
    if not (kind.is_integer() or (kind.is_decimal() and kind.scale == 0)):
        named = "a type that is not read" if kind.is_unknown() else f"type {kind}"
        raise DataError(f"{column} has {named}: leaf codes are text or whole numbers; convert it to text")
    if any(code.startswith("0") and len(code) > 1 for code in leaf.known):
        raise DataError(
            f"{column} holds numbers, and codes of {leaf.file} begin with 0: the leading zeros are lost. Write it as "
            "text, with all digits of each code"
        )
    return raw.cast("string")


@dataclass(frozen=True, eq=False)
class _Coded:
    """Records with codes in place of values: k0, k1, ... for the attributes, ``at`` for the leaf.

    ``numbered`` has the codes of leaves and their numbers, where the records are: one table for all parts.
    """

    source: Source
    attributes: Sequence[Attribute]
    rules: Mapping[str, ColumnRule]
    leaf: LeafColumn
    records: Any
    numbered: Any

    @property
    def keys(self) -> list[str]:
        """The columns of codes, the leaf's first."""
        return [AT, *(f"k{i}" for i in range(len(self.attributes)))]

    def table(self, beside: Sequence[str] = ()) -> Any:
        """Alike records and their number; a leaf that is unknown or missing has a code below 0, as values have."""
        import ibis

        table: Any = coded(self.records, self.attributes, self.rules, beside=[*beside, LEAF])
        table = table.left_join(self.numbered, table[LEAF] == self.numbered["code"])
        number = ibis.coalesce(table["number"], UNKNOWN_CODE)
        at = ibis.ifelse(table[LEAF].isnull(), NULL_CODE, number).cast("int64")
        return table.mutate(**{AT: at}).drop("code", "number")

    def rows(self, expected: Any) -> int:
        """How many records an expression counts."""
        return redacted(self.source.name, lambda: int(expected.to_pyarrow().as_py() or 0))

    def counted(self, tables: Sequence[Any], rows: int, *, fit: bool = False) -> dict[str, np.ndarray]:
        """The columns of codes and the number of records with them, each combination once in a table.

        Args:
            tables: alike records and their number.
            rows: how many there must be in all.
            fit: whether all records were found to fit before.
        """
        grouped = [
            table.group_by(self.keys).aggregate(people=table.people.sum().cast("int64")) for table in tables
        ]
        every = redacted(self.source.name, lambda: self._columns(grouped))
        least = min(int(every[key].min(initial=0)) for key in self.keys) if fit else 0
        check_counted(self.source, rows, int(every["people"].sum()), least)
        return every

    def _columns(self, grouped: Sequence[Any]) -> dict[str, np.ndarray]:
        """The counts, batch by batch, in the few bytes that they and codes take."""
        kinds = {AT: np.dtype(np.int32)}
        kinds |= {f"k{i}": np.min_scalar_type(-a.size) for i, a in enumerate(self.attributes)}
        parts: dict[str, list[np.ndarray]] = {name: [np.zeros(0, kind)] for name, kind in kinds.items()}
        people = [np.zeros(0, np.int8)]
        for batch in chain.from_iterable(map(batches, grouped)):
            for name, kind in kinds.items():
                parts[name].append(batch.column(name).to_numpy(zero_copy_only=False).astype(kind))
            number = batch.column("people").to_numpy(zero_copy_only=False)
            people.append(number.astype(np.min_scalar_type(-number.max(initial=0))))
        return {name: np.concatenate(parts.pop(name)) for name in kinds} | {"people": np.concatenate(people)}


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
