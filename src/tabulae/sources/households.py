"""Units that are counted with their records: households and their persons, firms and their branches.

Each unit is as many seats as records of it are counted at most. A seat has a record of the unit or is empty, and all
have the unit's own attributes: those that every record of it states alike, and those that are made of its records.
These are made before any record is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ..domain import Attribute
from ..domain.predicate import All, Predicate, Test
from ..errors import DataError
from .columns import ID
from .failures import redacted
from .source import RecordSource
from .units import UnitRule, bounded

if TYPE_CHECKING:
    import ibis.expr.types as ir

ROWS, EMPTY = "rows", "empty"


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


def units_of(
    records: ir.Table,
    attributes: Sequence[Attribute],
    made: Mapping[str, FromRecords],
    rule: UnitRule,
) -> ir.Table:
    """One row a unit: `ID`, u0, u1, ... for its attributes, `ROWS`, `EMPTY`, and ``apart``.

    ``apart`` says that its records differ in an attribute that is the unit's.

    Args:
        records: with codes k0, k1, ... of the attributes that are not ``made``, alike ones counted; see
            `tabulae.sources.coding.coded`.
        attributes: all of them, in the order of the domain.

    Privacy:
        Each row is a function of the records of its unit alone.
    """
    import ibis

    keys = keys_of(attributes, made)
    people: Any = records.people
    known: dict[str, Any] = {ROWS: people.sum().cast("int64")}
    apart: list[Any] = [ibis.literal(value=False)]
    for i, attribute in enumerate(a for a in attributes if a.of_unit):
        if attribute.name in made:
            known[f"u{i}"] = made[attribute.name].code(records, keys).cast("int32")
        else:
            column = records[keys[attribute.name]]
            known[f"u{i}"] = column.min()
            apart.append(column.min() != column.max())
    found: Any = records.group_by(ID).aggregate(**known, apart=ibis.or_(*apart))
    counted: Any = ibis.least(found[ROWS], rule.rows)
    return found.mutate(**{EMPTY: ibis.literal(rule.rows, "int64") - counted})


def keys_of(attributes: Sequence[Attribute], made: Mapping[str, Any]) -> dict[str, str]:
    """Attribute -> the column of its codes, of those that are read from columns."""
    return {name: f"k{i}" for i, name in enumerate(a.name for a in attributes if a.name not in made)}


def seated(
    records: ir.Table,
    units: ir.Table,
    attributes: Sequence[Attribute],
    made: Mapping[str, Any],
    rule: UnitRule,
) -> tuple[ir.Table, ir.Table]:
    """How many seats have a record, by the codes of all attributes, and how many are empty, by those of units.

    Columns ``a0, a1, ...`` in the order of ``attributes``, without those of records where seats are empty; ``people``.

    Privacy:
        A unit more or less changes both tables together by exactly ``rule.rows`` seats: the records of a unit that are
        counted are at most so many, whichever the key chooses, and the rest of its seats are empty.
    """
    keys, of_unit = keys_of(attributes, made), [a.name for a in attributes if a.of_unit]
    columns = {
        f"a{i}": f"u{of_unit.index(a.name)}" if a.of_unit else keys[a.name] for i, a in enumerate(attributes)
    }
    ours: Any = records.join(units.drop(ROWS, EMPTY, "apart"), ID)
    ours = ours.select(ID, "people", **{name: ours[column] for name, column in columns.items()})
    filled = bounded(ours, list(columns), rule)
    own = {f"a{i}": units[columns[f"a{i}"]] for i, a in enumerate(attributes) if a.of_unit}
    left: Any = units.select(people=units[EMPTY].cast("int64"), **own)
    left = left.filter(left.people > 0)
    if own:
        return filled, left.group_by(list(own)).aggregate(people=left.people.sum().cast("int64"))
    return filled, left.aggregate(people=left.people.sum().coalesce(0).cast("int64"))


def check_alike(source: RecordSource, units: ir.Table, attributes: Sequence[Attribute], column: str) -> int:
    """How many units there are.

    Raises:
        DataError: some have records that differ in an attribute of units.
    """
    found: Any = units.aggregate(units=units.count(), apart=units.count(where=units.apart))
    row = redacted(source.name, lambda: found.to_pyarrow().to_pylist()[0])
    if row["apart"]:
        names = ", ".join(a.name for a in attributes if a.of_unit)
        told = (
            f"{source.name}: records of one unit (column {column!r}) differ in an attribute that is the unit's "
            f'({names}): correct them, or leave out of = "unit" where it is of the records'
        )
        raise DataError(told, confidential=f"{told}: {int(row['apart'])} units")
    return int(row["units"])
