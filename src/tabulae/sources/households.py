"""Units that are counted with their records: households and their persons, firms and their branches.

Each unit is as many seats as records of it are counted at most. A seat has a record of the unit or is empty, and all
have the unit's own attributes: those of its own row, or that every record of it states alike, and those that are made
of its records. These are made before any record is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from ..domain import Attribute
from ..domain.predicate import All, Predicate, Test
from ..errors import DataError
from .failures import redacted
from .source import ID, RecordSource
from .units import UnitRule, bounded

ROWS, WRONG = "rows", "wrong"


@dataclass(frozen=True, eq=False)
class FromRecords:
    """What an attribute of a unit is made of, from the unit's records for which a condition holds.

    ``any``: whether there is one, category 1, or none, 0. ``count``: how many there are, ``most`` at most. ``first``:
    of what ``of`` says of them the category that comes first in its order, and ``most`` where there are none.

    Args:
        holds: a predicate over attributes of records, in the codes of their categories.
    """

    kind: Literal["any", "count", "first"]
    holds: Predicate
    most: int = 1
    of: str | None = None

    @property
    def none(self) -> int:
        """The category of a unit without records."""
        return self.most if self.kind == "first" else 0

    def code(self, records: Any, keys: Mapping[str, str]) -> Any:
        """The category, as an aggregate over the records of one unit.

        Args:
            records: alike ones counted in ``people``.
            keys: attribute -> the column of its codes.
        """
        import ibis

        holds = _holds(self.holds, records, keys)
        if self.kind == "first":
            code: Any = ibis.ifelse(holds, records[keys[str(self.of)]], self.most)
            return code.min()
        each: Any = ibis.ifelse(holds, records.people, 0)
        number = each.sum()
        return ibis.least(number, self.most)


def _holds(predicate: Predicate, records: Any, keys: Mapping[str, str]) -> Any:
    """A predicate on codes, as an expression."""
    import ibis

    if isinstance(predicate, bool):
        return ibis.literal(predicate)
    if isinstance(predicate, Test):
        return _among(predicate, records, keys)
    parts = [_holds(part, records, keys) for part in predicate.parts]
    return ibis.and_(*parts) if isinstance(predicate, All) else ibis.or_(*parts)


def _among(test: Test, records: Any, keys: Mapping[str, str]) -> Any:
    """Whether the codes of some attributes are among those of a test."""
    import ibis

    first, *others = test.attributes
    column = records[keys[first]]
    if not others:
        return column.isin([int(code) for code in test.cells.nonzero()[0]])
    rest = [Test(tuple(others), cells) for cells in test.cells]
    found = [
        (column == code) & _among(each, records, keys) for code, each in enumerate(rest) if each.cells.any()
    ]
    return ibis.or_(*found) if found else ibis.literal(value=False)


@dataclass(frozen=True)
class Seating:
    """Units and their records in one engine, with codes in place of values; see `tabulae.sources.coding.coded`.

    Args:
        attributes: all of them, in the order of the domain.
        made: those of units that are made of their records.
        records: alike ones counted, with codes of the attributes ``read`` from them.
        listed: the units' own rows, with codes of the attributes ``read_of_units``; None where they have none.
        rule: how many records of a unit are counted: as many as it has seats.
    """

    attributes: Sequence[Attribute]
    made: Mapping[str, FromRecords]
    records: Any
    read: Sequence[str]
    listed: Any
    read_of_units: Sequence[str]
    rule: UnitRule

    @cached_property
    def units(self) -> Any:
        """One row a unit: `ID`, u0, u1, ... for its attributes, `ROWS`, and `WRONG`.

        `WRONG` says that its records differ in an attribute that is the unit's, or that it is listed twice.

        Privacy:
            Each row is a function of the records of its unit alone, and of its own row.
        """
        import ibis

        records, keys = self.records, {name: f"k{i}" for i, name in enumerate(self.read)}
        told = {name: rule.code(records, keys).cast("int32") for name, rule in self.made.items()}
        apart: list[Any] = [ibis.literal(value=False)]
        for name in self._of_units:
            if name in keys:
                told[name] = records[keys[name]].min()
                apart.append(records[keys[name]].min() != records[keys[name]].max())
        rows, wrong = records.people.sum().cast("int64"), ibis.or_(*apart)
        known = {f"u{i}": told[name] for i, name in enumerate(self._of_units) if name in told}
        found: Any = records.group_by(ID).aggregate(**known, **{ROWS: rows, WRONG: wrong})
        return found if self.listed is None else self._with_listed(found)

    @property
    def _of_units(self) -> list[str]:
        return [attribute.name for attribute in self.attributes if attribute.of_unit]

    def _with_listed(self, found: Any) -> Any:
        """Every unit that is listed, whether it has records or not."""
        import ibis

        listed, keys = self.listed, {name: f"k{i}" for i, name in enumerate(self.read_of_units)}
        own = {f"u{i}": listed[keys[name]].min() for i, name in enumerate(self._of_units) if name in keys}
        units = listed.group_by(ID).aggregate(**own, times=listed.people.sum())
        both = units.left_join(found.rename(other=ID), units[ID] == found[ID])
        none = {
            f"u{i}": ibis.coalesce(both[f"u{i}"], self.made[name].none).cast("int32")
            for i, name in enumerate(self._of_units)
            if name in self.made
        }
        return both.select(
            ID, *own, **none, **{ROWS: both[ROWS].coalesce(0).cast("int64"), WRONG: both.times > 1}
        )

    def check(self, source: RecordSource) -> int:
        """How many units there are.

        Raises:
            DataError: some are listed twice, or have records that differ in an attribute of theirs, or records are of
                none that is listed.
        """
        units = self.units
        asked: Any = units.aggregate(units=units.count(), wrong=units.count(where=units[WRONG]))
        row = redacted(source.name, lambda: asked.to_pyarrow().to_pylist()[0])
        where, faults = f"column {self.rule.column!r} (unit_id)", []
        if row["wrong"] and self.listed is not None:
            faults.append((f"{where}: units that are listed twice: give each one row", row["wrong"]))
        elif row["wrong"]:
            names = ", ".join(name for name in self._of_units if name in self.read)
            told = f"{where}: records of one unit differ in an attribute that is the unit's ({names}): correct them, or"
            faults.append((f'{told} leave out of = "unit" where it is of the records', row["wrong"]))
        if self.listed is not None:
            strange: Any = self.records.anti_join(self.listed, ID).people.sum().coalesce(0)
            number = redacted(source.name, lambda: int(strange.to_pyarrow().as_py() or 0))
            if number:
                faults.append((f"{where}: records of units that are not listed: add a row for each", number))
        if faults:
            raise DataError(
                "\n".join([f"{source.name} does not fit its units:", *(f"  {told}" for told, _ in faults)]),
                confidential="\n".join(f"{told}: {int(number)}" for told, number in faults),
            )
        return int(row["units"])

    def seats(self) -> tuple[Any, Any]:
        """How many seats have a record, by the codes of all attributes, and how many are empty, by those of units.

        Columns ``a0, a1, ...`` in the order of the attributes, without those of records where seats are empty;
        ``people``.

        Privacy:
            A unit more or less changes both tables together by exactly as many seats as the rule counts records. At
            most so many of a unit are counted, whichever the key chooses, and the rest of its seats are empty. One
            record of a unit more or less changes one seat, and what is said of the unit: which records are counted does
            not depend on that.
        """
        keys, units = {name: f"k{i}" for i, name in enumerate(self.read)}, self.units
        columns = {
            f"a{i}": f"u{self._of_units.index(each.name)}" if each.of_unit else keys[each.name]
            for i, each in enumerate(self.attributes)
        }
        ours: Any = self.records.select(ID, "people", *keys.values()).join(units.drop(ROWS, WRONG), ID)
        ours = ours.select(ID, "people", **{name: ours[column] for name, column in columns.items()})
        of_records = [f"a{i}" for i, each in enumerate(self.attributes) if not each.of_unit]
        filled = bounded(ours, list(columns), self.rule, of_records)
        own = {f"a{i}": units[columns[f"a{i}"]] for i, each in enumerate(self.attributes) if each.of_unit}
        left: Any = units.select(people=self.rule.rows - units[ROWS], **own)
        left = left.filter(left.people > 0)  # a unit of more records has no empty seat
        if own:
            return filled, left.group_by(list(own)).aggregate(people=left.people.sum().cast("int64"))
        return filled, left.aggregate(people=left.people.sum().coalesce(0).cast("int64"))
