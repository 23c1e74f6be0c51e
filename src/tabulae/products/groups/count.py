"""Confidential counts of groups: region by region, whole regions at a time. Only measuring reads them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from ...domain import NO_CODE, Attribute, CodeFamily
from ...errors import DataError, InvalidArgument, Unsupported
from ...sources.coding import OTHER, ColumnCoding, coded, misfits, nameless, refusal
from ...sources.engines.duckdb import SCRATCH, connected, lock, restrict
from ...sources.failures import redacted
from ...sources.source import ID, RecordSource, batches, engine_of, open_records
from ...sources.units import UnitRule, bounded, identified, most_counted
from .engine import CODED, AreaSets, CodedRecords, Kinds, PackedCodes, areas_of, kinds_of
from .levels import AdaptivePlan

if TYPE_CHECKING:
    import ibis.expr.types as ir
if TYPE_CHECKING:
    import duckdb
    import ibis.expr.types as ir


@dataclass(frozen=True, eq=False, repr=False)
class GroupChunk:
    """The counts of all groups in some consecutive regions of one type.

    A *place* is a pair (region, group), numbered ``region * groups + group`` from this chunk's first region on. The
    counts that are not zero stand by place and class of the ladder; each pair at most once, places not falling.

    Args:
        first: position of the first region.
        regions: how many regions.
        groups: how many groups.
        classes: how many classes the ladder has.
        place, of_class, people: shape (entries,) each.
    """

    first: int
    regions: int
    groups: int
    classes: int
    place: np.ndarray = field(repr=False)
    of_class: np.ndarray = field(repr=False)
    people: np.ndarray = field(repr=False)

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise Unsupported("counts are confidential and are not pickled: make them from the records again")

    def totals(self) -> np.ndarray:
        """Shape (regions * groups,): people by place."""
        total = np.zeros(self.regions * self.groups, np.int64)
        np.add.at(total, self.place, self.people)
        return total

    def cells(self, places: np.ndarray, of_class: np.ndarray, cells: int) -> np.ndarray:
        """Shape (len(places), cells): people by cell of one table, in some places (rising).

        ``of_class`` is the cell of the table that each class of the ladder falls in.
        """
        counts = np.zeros(len(places) * cells, np.int64)
        if len(places):
            low, high = (
                np.searchsorted(self.place, places, "left"),
                np.searchsorted(self.place, places, "right"),
            )
            length = high - low
            entry = np.repeat(low - np.cumsum(length) + length, length) + np.arange(length.sum())
            row = np.repeat(np.arange(len(places)), length)
            np.add.at(counts, row * cells + of_class[self.of_class[entry]], self.people[entry])
        return counts.reshape(len(places), cells)


class GroupCounts(ABC):
    """Confidential counts for the levels of one adaptive plan, in the plan's order.

    ``records`` is how many records were counted: confidential, too.
    """

    records: int

    def __repr__(self) -> str:
        return f"{type(self).__name__}(confidential)"

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise Unsupported("counts are confidential and are not pickled: make them from the records again")

    @abstractmethod
    def chunks(self, level: int) -> Iterator[GroupChunk]:
        """Chunks that follow each other and cover every region of the level once, inhabited or not."""

    @abstractmethod
    def fingerprint(self) -> bytes:
        """What tells these counts from others: for a keyed hash in the ledger, nothing else."""


_PLACES = 1 << 20


class EngineCounts(GroupCounts):
    """Counts for a plan, from coded records; each chunk is counted when it is asked for.

    Args:
        coded: the records, as `CodedRecords` describes them; counted here for the first time.
        kinds: what their kinds mean.

    Raises:
        DataError: there are no records.
    """

    def __init__(self, coded: CodedRecords, kinds: Kinds) -> None:
        self._coded, self._kinds = coded, kinds
        self.records = coded.count()

    def chunks(self, level: int) -> Iterator[GroupChunk]:
        """Whole regions at a time, about a million places.

        Raises:
            DataError: the engine fails, or the counts do not add up.
        """
        of = self._coded.plan.levels[level]
        step = max(1, _PLACES // max(1, len(of.groups)))
        counted = 0
        for first in range(0, of.regions.size, step):
            chunk = self._chunk(level, first, min(step, of.regions.size - first))
            counted += int(chunk.people.sum())
            yield chunk
        if counted != self._coded.expected(level):
            raise DataError(
                f"{self._coded.where}, {of.name}: the counts of groups do not add up, which is a fault of the program: "
                "report it"
            )

    def _chunk(self, level: int, first: int, regions: int) -> GroupChunk:
        of, region, classes = (
            self._coded.plan.levels[level],
            self._coded.areas.regions[level],
            self._kinds.classes[level],
        )
        groups, count = len(of.groups), of.ladder.classes
        inside = (region >= first) & (region < first + regions)
        base = np.where(inside, (region.astype(np.int64) - first) * groups * count, -1)
        entry, people = self._coded.entries(level, base, classes, count)
        place, of_class = np.divmod(entry, count)
        return GroupChunk(first, regions, groups, count, place, of_class, people)

    def fingerprint(self) -> bytes:
        return self._coded.fingerprint()


NOWHERE = -1
"""The area of records that the rules refuse."""


@dataclass(frozen=True)
class RecordShape:
    """What the attributes of records are to a plan.

    Args:
        regions: the attributes whose combinations, in C order, are the leaves.
        codes: family -> the attributes that hold its codes, by label.
        cells: the attributes of the ladders, in their order.
    """

    regions: tuple[str, ...]
    codes: Mapping[str, tuple[str, ...]]
    cells: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """All attributes, each once."""
        return tuple(dict.fromkeys((*self.regions, *self.read, *self.cells)))

    @property
    def read(self) -> tuple[str, ...]:
        """The attributes of codes, one for each column of `PackedCodes`."""
        return tuple(name for names in self.codes.values() for name in names)


@dataclass(frozen=True, eq=False)
class Places:
    """The step from coded records to the columns of `tabulae.products.groups.engine.CODED`.

    Args:
        attributes: by name, in the order of the columns k0, k1, ... of coded records.
        shape: what they are for.
        areas, kinds: of leaves and cells.
        positions: attribute of codes -> shape (categories,): the code of each, or -1.
        packed: how codes become words.
    """

    attributes: Mapping[str, Attribute]
    shape: RecordShape
    areas: AreaSets
    kinds: Kinds
    positions: Mapping[str, np.ndarray]
    packed: PackedCodes

    @property
    def keys(self) -> list[str]:
        """The columns of coded records that are read."""
        return list(self._column.values())

    @property
    def columns(self) -> list[str]:
        """The columns that come of them, but for ``people``."""
        return ["area", "kind", *(f"w{i}" for i in range(self.packed.words))]

    @property
    def _column(self) -> dict[str, str]:
        return {name: f"k{i}" for i, name in enumerate(self.attributes)}

    def of(self, table: ir.Table) -> ir.Table:
        """Each row with its area, kind and words in place of k0, k1, ...; ``people`` stays.

        A row with a code below 0, which the rules refuse, has the area `NOWHERE`.
        """
        import ibis

        placed: Any = table.mutate(
            leaf=self._number(table, self.shape.regions), cell=self._number(table, self.shape.cells)
        )
        if not np.array_equal(self.areas.of_leaf, np.arange(self.areas.of_leaf.size)):
            placed = _looked_up(placed, "leaf", "area", self.areas.of_leaf)
        else:
            placed = placed.mutate(area=placed.leaf)
        placed = _looked_up(placed, "cell", "kind", self.kinds.of_cell)
        for name, position in self.positions.items():
            key = self._column[name]
            placed = _looked_up(placed, key, f"v_{key}", position + 1)
        words: Sequence[Any] = self.packed.sums(
            [placed[f"v_{self._column[name]}"] for name in self.shape.read]
        )
        least: Any = ibis.least(*[placed[key] for key in self.keys])
        return placed.select(
            "kind",
            "people",
            area=ibis.ifelse(least < 0, NOWHERE, placed.area).cast("int64"),
            **{f"w{i}": ibis.literal(0, "int64") + word for i, word in enumerate(words)},
        )

    def counted(self, table: ir.Table) -> ir.Table:
        """How many people there are of each area, kind and words."""
        placed: Any = self.of(table)
        return placed.group_by(self.columns).aggregate(people=placed.people.sum().cast("int64"))

    def _number(self, table: Any, names: Sequence[str]) -> Any:
        """The position of a combination of codes in C order."""
        import ibis

        number: Any = ibis.literal(0, "int64")
        for name in names:
            size = ibis.literal(self.attributes[name].size, "int64")
            number = number * size + table[self._column[name]].cast("int64")
        return number


def _looked_up(table: Any, key: str, value: str, values: np.ndarray) -> Any:
    """The table with a column ``value``: the number at the position that ``key`` says, NULL beyond the last."""
    import pyarrow as pa

    at = f"at_{value}"
    rows = pa.table({at: np.arange(values.size, dtype=np.int64), value: values.astype(np.int64)})
    lookup: Any = engine_of(table).copied(table, rows)
    return table.left_join(lookup, table[key] == lookup[at]).drop(at)


_ALIKE = "alike"


@dataclass(frozen=True, eq=False, repr=False)
class CodedSource:
    """Records, and how they are coded.

    Args:
        source: where the records are, one row a record.
        rules: attribute name -> the rule of its column.
        unit: which records belong to one unit; None counts every record.
        places: what is made of the codes.
        memory: the most that an engine of ours takes.
    """

    source: RecordSource
    rules: Mapping[str, ColumnCoding]
    unit: UnitRule | None
    places: Places
    memory: str | None

    @contextmanager
    def opened(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A DuckDB of our own, with `CODED` in its scratch database.

        Raises:
            DataError: the records cannot be read, or are refused.
        """
        if self.source.engine == "duckdb":
            with self._records() as records:
                self._code(records)
                yield records.get_backend().con  # type: ignore[attr-defined]
            return
        with connected(memory=self.memory, scratch=True) as connection:
            restrict(connection)
            lock(connection)
            with self._records() as records:
                self._fetch(records, connection)
            yield connection

    def _records(self) -> AbstractContextManager[ir.Table]:
        wanted = [(name, self.rules[name].column) for name in self.places.attributes]
        unit = None if self.unit is None else self.unit.column
        return open_records(self.source, wanted, unit, memory=self.memory, scratch=True)

    def _code(self, records: Any) -> None:
        """Make `CODED` from a table of codes, which is looked at before it is used."""
        import ibis

        counted, expected = self._counted(records)
        backend, keys = records.get_backend(), self.places.keys

        def coded_table() -> tuple[ir.Table, dict[str, Any]]:
            made = backend.create_table(_ALIKE, counted, database=(SCRATCH, "main"))
            least = ibis.least(*[made[key].min() for key in keys])
            return made, _row(made.aggregate(people=made.people.sum(), least=least))

        made, found = redacted(self.source.name, coded_table)
        self._check(records, expected, found)
        name = CODED.removeprefix(f"{SCRATCH}.")
        redacted(
            self.source.name,
            lambda: backend.create_table(name, self.places.of(made), database=(SCRATCH, "main")),
        )
        backend.con.execute(f"DROP TABLE {SCRATCH}.{_ALIKE}")

    def _fetch(self, records: Any, connection: duckdb.DuckDBPyConnection) -> None:
        """Make `CODED` from what another engine counts; then look at it."""
        import pyarrow as pa

        counted, expected = self._counted(records)
        columns = ", ".join(f"{name} BIGINT" for name in [*self.places.columns, "people"])

        def fetch() -> None:
            connection.execute(f"CREATE TABLE {CODED} ({columns})")
            for batch in batches(self.places.counted(counted)):
                connection.register("batch", pa.Table.from_batches([batch]))
                connection.execute(f"INSERT INTO {CODED} BY NAME SELECT * FROM batch")  # noqa: S608
                connection.unregister("batch")

        redacted(self.source.name, fetch)
        people, least = connection.execute(f"SELECT sum(people), min(area) FROM {CODED}").fetchall()[0]  # noqa: S608
        self._check(records, expected, {"people": people, "least": least})

    def _counted(self, records: Any) -> tuple[ir.Table, Any]:
        """The codes k0, k1, ... of records that are counted, and people; and how many people there must be.

        Where units are bounded, all records are first looked at.
        """
        if self.unit is None:
            return self._coded(records).select(*self.places.keys, "people"), records.count()
        records = identified(records, self.unit)
        self._refuse(records, nameless(self.source, records, self.unit))
        of_units: Any = self._coded(records, ID)
        return bounded(of_units, self.places.keys, self.unit), most_counted(of_units, self.unit)

    def _coded(self, records: Any, *beside: str) -> Any:
        return coded(records, self._attributes, self.rules, beside=beside)

    @property
    def _attributes(self) -> list[Attribute]:
        return list(self.places.attributes.values())

    def _refuse(self, records: Any, faults: list[tuple[str, str]]) -> None:
        """Raise what the rules refuse of records, and further faults."""
        if faults := misfits(self.source, self._attributes, self.rules, self._coded(records)) + faults:
            raise refusal(self.source, faults)

    def _check(self, records: Any, expected: Any, found: Mapping[str, Any]) -> None:
        """Raise what is refused where a code or area is below 0, or where records are missing."""
        if int(found["least"] or 0) < 0:
            self._refuse(records, [])
        rows = redacted(self.source.name, lambda: int(expected.to_pyarrow().as_py() or 0))
        people = int(found["people"] or 0)
        if rows != people:
            raise DataError(
                f"{self.source.name} changed while it was read, or records were lost or doubled in counting: make a "
                "copy that nothing writes to, and run again",
                confidential=f"{rows} rows, {people} counted",
            )


def _row(table: Any) -> dict[str, Any]:
    (row,) = table.to_pyarrow().to_pylist()
    return row


@contextmanager
def open_group_records(
    source: RecordSource,
    domain_attributes: Sequence[Attribute],
    rules: Mapping[str, ColumnCoding],
    shape: RecordShape,
    plan: AdaptivePlan,
    *,
    unit: UnitRule | None = None,
    memory: str | None = None,
) -> Iterator[GroupCounts]:
    """The counts of a plan's groups, from the records of a source; they can be read until the context ends.

    An attribute of codes whose rule says ``null = "other"`` holds no code where its value is missing.

    Args:
        source: where the records are, one row a record.
        domain_attributes: the public domain; those that the shape names are read.
        rules: attribute name -> the rule of its column.
        shape: what the attributes are for.
        plan: what is to be counted.
        unit: which records belong to one unit, and how many of them are counted; None counts every record.
        memory: the most that the engine takes, such as "4GB"; None is 4 GB. More goes, encrypted, to disk.

    Raises:
        DataError: the source cannot be read, is empty, or holds values that are refused: see
            `tabulae.products.tables.count.tabulate`.
        InvalidArgument: attributes, rules, shape and plan do not fit each other.

    Privacy:
        Each record is counted in one leaf, one cell of the ladder, and in the groups that its codes make it a member
        of: at most ``Family.most`` codes of a family. With ``unit``, one unit more or less changes the records that
        are counted by at most ``unit.rows`` (see `tabulae.sources.units`).
    """
    attributes = _attributes(domain_attributes, rules, shape)
    areas, kinds = areas_of(plan), kinds_of(plan)
    families = {family.name: family for family in plan.levels[0].groups.families}
    _check_fit(attributes, shape, areas, kinds, families)
    positions = {
        name: _positions(attributes[name], rules[name], families[family])
        for family, names in shape.codes.items()
        for name in names
    }
    packed = PackedCodes(tuple(families[family] for family, names in shape.codes.items() for _ in names))
    coded = CodedSource(
        source, rules, unit, Places(attributes, shape, areas, kinds, positions, packed), memory
    )
    with coded.opened() as connection:
        records = CodedRecords(connection, source.name, plan, areas, packed, "sum(people)")
        counts = EngineCounts(records, kinds)
        yield counts


def _attributes(
    domain: Sequence[Attribute], rules: Mapping[str, ColumnCoding], shape: RecordShape
) -> dict[str, Attribute]:
    known = {attribute.name: attribute for attribute in domain}
    for name in shape.names:
        if name not in known or name not in rules:
            raise InvalidArgument(
                f"attribute {name!r} is named by the shape, and has no categories or no rule"
            )
    return {name: known[name] for name in shape.names}


def _check_fit(
    attributes: Mapping[str, Attribute],
    shape: RecordShape,
    areas: AreaSets,
    kinds: Kinds,
    families: Mapping[str, CodeFamily],
) -> None:
    leaves = prod(attributes[name].size for name in shape.regions)
    if leaves != areas.of_leaf.size:
        raise InvalidArgument(
            f"the regions' attributes have {leaves} combinations, and the plan has {areas.of_leaf.size} leaves"
        )
    sizes = [(name, attributes[name].size) for name in shape.cells]
    if sizes != list(kinds.sizes.items()):
        raise InvalidArgument(
            f"the cells have attributes {sizes}, and the ladders are over {list(kinds.sizes.items())}"
        )
    if unknown := sorted(set(shape.codes) - set(families)):
        raise InvalidArgument(f"there is no family of codes {', '.join(map(repr, unknown))}")


def _positions(attribute: Attribute, rule: ColumnCoding, family: CodeFamily) -> np.ndarray:
    """Category -> position of the code, or -1 for the category of missing values."""
    out = []
    for label in attribute.labels:
        position = family.position.get(label)
        if position is None and label == OTHER and rule.null == OTHER:
            if rule.unknown == OTHER:
                raise InvalidArgument(
                    f'attribute {attribute.name!r}: unknown = "other" would take unknown codes for no code: refuse '
                    f'them, or make "other" a code of {family.name!r}'
                )
            position = NO_CODE
        if position is None:
            raise InvalidArgument(
                f"{label!r} of attribute {attribute.name!r} is not a code of {family.name!r}"
            )
        out.append(position)
    return np.array(out, np.int64)
