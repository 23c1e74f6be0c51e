"""Records of any source to counts of groups: values are coded by the rules of their columns, as for other tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from tabulae.adaptive import AdaptivePlan
from tabulae.counts.group_counts import GroupCounts
from tabulae.errors import DataError, InvalidArgument
from tabulae.tables import Attribute
from tabulae.tables.groups import NONE, Family

from .engine import SCRATCH, open_records
from .failures import redacted
from .group_areas import Areas, areas_of
from .group_codes import PackedCodes
from .group_counts import EngineCounts
from .group_engine import CODED, CodedRecords
from .group_kinds import Kinds, kinds_of
from .mapping import coded
from .refusals import misfits, nameless, refusal
from .rules import OTHER, ColumnRule
from .source import Source
from .units import ID, UnitRule, bounded, identified, most_counted

if TYPE_CHECKING:
    import ibis.expr.types as ir


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
        of_codes = (name for names in self.codes.values() for name in names)
        return tuple(dict.fromkeys((*self.regions, *of_codes, *self.cells)))


@contextmanager
def open_group_records(
    source: Source,
    domain_attributes: Sequence[Attribute],
    rules: Mapping[str, ColumnRule],
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
            `tabulae.tabulate.tabulate`.
        InvalidArgument: attributes, rules, shape and plan do not fit each other.

    Privacy:
        Each record is counted in one leaf, one cell of the ladder, and in the groups that its codes make it a member
        of: at most ``Family.most`` codes of a family. With ``unit``, one unit more or less changes the records that
        are counted by at most ``unit.rows`` (see `tabulae.tabulate.units`).
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
    wanted = [(name, rules[name].column) for name in attributes]
    with open_records(source, wanted, unit and unit.column, memory=memory, scratch=True) as records:
        people = _code(source, records, attributes, rules, unit)
        connection = records.get_backend().con  # type: ignore[attr-defined]
        given = _Given(connection, source.name, attributes, shape, areas, kinds)
        redacted(source.name, lambda: given.make(positions, packed))
        counts = EngineCounts(
            CodedRecords(connection, source.name, plan, areas, packed, "sum(people)"), kinds
        )
        _check_same(source, people, counts.records)
        yield counts


def _attributes(
    domain: Sequence[Attribute], rules: Mapping[str, ColumnRule], shape: RecordShape
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
    areas: Areas,
    kinds: Kinds,
    families: Mapping[str, Family],
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


def _positions(attribute: Attribute, rule: ColumnRule, family: Family) -> np.ndarray:
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
            position = NONE
        if position is None:
            raise InvalidArgument(
                f"{label!r} of attribute {attribute.name!r} is not a code of {family.name!r}"
            )
        out.append(position)
    return np.array(out, np.int64)


def _code(
    source: Source,
    records: Any,
    attributes: Mapping[str, Attribute],
    rules: Mapping[str, ColumnRule],
    unit: UnitRule | None,
) -> int:
    """Make the table ``alike``: the codes k0, k1, ... of records, and people, all of whom are returned.

    What the rules refuse is refused here.
    """
    backend, listed = records.get_backend(), list(attributes.values())
    keys = [f"k{i}" for i in range(len(listed))]
    if unit is not None:
        records = identified(records, unit)
    table: Any = coded(records, listed, rules)
    rows, counted = records.count(), table.select(*keys, "people")
    if unit is not None:
        _check(source, listed, rules, table, nameless(source, records, unit))
        of_units: Any = coded(records, listed, rules, beside=[ID])
        rows, counted = most_counted(of_units, unit), bounded(of_units, keys, unit)
    expected, people, least = redacted(source.name, lambda: _made(backend, counted, keys, rows))
    if least < 0:
        _check(source, listed, rules, table, [])
    _check_same(source, expected, people)
    return people


def _check(
    source: Source,
    attributes: Sequence[Attribute],
    rules: Mapping[str, ColumnRule],
    table: ir.Table,
    faults: list[tuple[str, str]],
) -> None:
    """Raise what is refused of coded records, and further faults."""
    if faults := misfits(source, attributes, rules, table) + faults:
        raise refusal(source, faults)


def _made(backend: Any, counted: ir.Table, keys: Sequence[str], rows: Any) -> tuple[int, int, int]:
    """Make the table; how many records there are, how many it stands for, and the least code in it."""
    import ibis

    made = backend.create_table("alike", counted, database=(SCRATCH, "main"))
    found = made.aggregate(people=made.people.sum(), least=ibis.least(*[made[key].min() for key in keys]))
    (row,) = found.to_pyarrow().to_pylist()
    return int(rows.to_pyarrow().as_py() or 0), int(row["people"] or 0), int(row["least"] or 0)


def _check_same(source: Source, expected: int, people: int) -> None:
    if expected != people:
        raise DataError(
            f"{source.name} changed while it was read, or records were lost or doubled in counting: make a copy that "
            "nothing writes to, and run again",
            confidential=f"{expected} rows, {people} counted",
        )


@dataclass(frozen=True, eq=False)
class _Given:
    """The step from ``alike`` to `CODED`: categories to areas, kinds and packed codes."""

    connection: Any
    where: str
    attributes: Mapping[str, Attribute]
    shape: RecordShape
    areas: Areas
    kinds: Kinds

    def make(self, positions: Mapping[str, np.ndarray], packed: PackedCodes) -> None:
        import pyarrow as pa

        column = {name: f"k{i}" for i, name in enumerate(self.attributes)}
        tables = {
            "areas": pa.table({"leaf": np.arange(self.areas.of_leaf.size), "area": self.areas.of_leaf}),
            "kinds": pa.table({"cell": np.arange(self.kinds.of_cell.size), "kind": self.kinds.of_cell}),
        }
        for name, position in positions.items():
            tables[f"code_{column[name]}"] = pa.table(
                {column[name]: np.arange(position.size, dtype=np.int32), f"v_{column[name]}": position + 1}
            )
        for name, table in tables.items():
            self.connection.register(name, table)
        read = [name for names in self.shape.codes.values() for name in names]
        words = packed.sql([f"v_{column[name]}" for name in read])
        joins = " ".join(f"JOIN code_{column[name]} USING ({column[name]})" for name in dict.fromkeys(read))
        self.connection.execute(
            f"CREATE TABLE {CODED} AS SELECT area, kind, people, "  # noqa: S608
            + ", ".join(f"{word} AS w{i}" for i, word in enumerate(words))
            + f" FROM {SCRATCH}.main.alike {joins} JOIN areas ON leaf = {self._number(self.shape.regions, column)} "
            f"JOIN kinds ON cell = {self._number(self.shape.cells, column)}"
        )
        for name in tables:
            self.connection.unregister(name)
        self.connection.execute(f"DROP TABLE {SCRATCH}.main.alike")

    def _number(self, names: Sequence[str], column: Mapping[str, str]) -> str:
        number = "0::BIGINT"
        for name in names:
            number = f"({number}) * {self.attributes[name].size} + {column[name]}"
        return number
