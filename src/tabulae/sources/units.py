"""Units of privacy: which records belong to one, and how many of them are counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import DataError, InvalidArgument
from .source import ID, engine_of
from .values import plain_text

if TYPE_CHECKING:
    import ibis.expr.types as ir

_KEY_BYTES = 32


@dataclass(frozen=True)
class UnitRule:
    """Which records belong together, and how many of them are counted.

    Ids are text, whole numbers or UUIDs, and are compared letter by letter, case included; blanks around text
    do not count, and text with nothing else in it is NULL, which is refused.

    Args:
        column: the column that names the unit of each record.
        rows: the most records of one unit that are counted.
        key: 32 secret bytes; the same key keeps the same records.
        most_left_out: the most records of one unit that are counted as left out; None: none is.

    Example:
        >>> UnitRule("person_id", 3, bytes(32))
        UnitRule(column='person_id', rows=3)
    """

    column: str
    rows: int
    key: bytes = field(repr=False)
    most_left_out: int | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.rows, bool) or not isinstance(self.rows, int) or self.rows < 1:
            raise InvalidArgument(f"a unit may have 1 or more records counted, not {self.rows!r}")
        if not isinstance(self.key, bytes) or len(self.key) != _KEY_BYTES:
            raise InvalidArgument(f"the key that chooses records must be {_KEY_BYTES} bytes")


def identified(records: ir.Table, rule: UnitRule) -> ir.Table:
    """The records with the id of their unit as plain text, NULL where there is none."""
    raw: Any = records[ID]
    kind = raw.type()
    if kind.is_string() or kind.is_null():
        return records.mutate(**{ID: plain_text(raw)})
    if kind.is_integer() or kind.is_uuid() or (kind.is_decimal() and kind.scale == 0):
        return records.mutate(**{ID: raw.cast("string")})
    named = "a type that is not read" if kind.is_unknown() else f"type {kind}"
    raise DataError(
        f"column {rule.column!r} (unit_id) has {named}: ids are text, whole numbers or UUIDs, because two of "
        "them must never be taken for one; convert it to text"
    )


def bounded(
    table: ir.Table, cell: Sequence[str], rule: UnitRule, own: Sequence[str] | None = None
) -> ir.Table:
    """How many records of each cell are counted, once each unit has at most as many as the rule allows.

    ``own`` are the columns of the cell that are of single records, where all records of a unit agree in the others.

    Returns:
        A lazy table with the columns of ``cell`` and ``people``.

    Privacy:
        With one unit more or less in ``table``, the result changes by at most ``rule.rows`` records, for every
        key: what is kept of a unit is a function of that unit's own records. With one record of a unit more or less at
        most one other is kept, or kept no longer: the place of a record among its unit's depends on it alone.
    """
    import ibis

    ours: Any = table.group_by([ID, *cell]).aggregate(people=_sum(table))
    sized: Any = ours.join(_sizes(table), ID)
    untouched = sized.filter(sized.rows <= rule.rows).select(*cell, "people")
    large: Any = sized.filter(sized.rows > rule.rows).select(ID, *cell, "people")
    # DuckDB adds up in 128 bits, of which it makes no range; 2^31 records of one unit in one cell are refused.
    each: Any = large.select(ID, *cell, which=ibis.range(0, large.people.cast("int32")).unnest())
    ticketed = _ticketed(each, cell if own is None else own, rule.key)
    place = ibis.row_number().over(ibis.window(group_by=ID, order_by="ticket"))
    ranked: Any = ticketed.mutate(place=place)
    chosen = ranked.filter(ranked.place < rule.rows).select(*cell, people=ibis.literal(1, "int64"))
    both: Any = untouched.union(chosen)
    return both.group_by(list(cell)).aggregate(people=both.people.sum().cast("int64"))


def most_counted(table: ir.Table, rule: UnitRule) -> Any:
    """How many records `bounded` must count in all: of each unit those it has, or as many as the rule allows."""
    import ibis

    sizes: Any = _sizes(table)
    least: Any = ibis.least(sizes.rows, rule.rows)
    return least.sum()


def left_out(table: ir.Table, rule: UnitRule) -> ir.Table:
    """One row: how many ``units`` have more records than are counted, and how many ``rows`` of them are left out.

    Of each unit at most ``rule.most_left_out`` rows count.

    Privacy:
        Confidential. One unit more or less, or one in place of another, changes ``units`` by at most 1 and ``rows``
        by at most ``rule.most_left_out``: both are sums over units, of a function of the unit's own number of records.
    """
    import ibis

    sizes: Any = _sizes(table)
    over = sizes.rows - rule.rows
    more: Any = sizes.filter(over > 0).select(over=ibis.least(over, rule.most_left_out))
    return more.aggregate(units=more.count(), rows=more.over.sum().coalesce(0).cast("int64"))


def _sizes(table: ir.Table) -> ir.Table:
    return table.group_by(ID).aggregate(rows=_sum(table))


def _sum(table: Any) -> Any:
    return table.people.sum().cast("int64")


def _ticketed(each: Any, own: Sequence[str], key: bytes) -> Any:
    """With a keyed hash, one to one on (own, which, unit): numbers first, and the free text last.

    The key is handed over as a table, so that no statement holds it.
    """
    import ibis
    import pyarrow as pa

    keyed: Any = each.cross_join(engine_of(each).copied(each, pa.table({"secret": [key.hex()]})))
    comma: Any = ibis.literal(",")
    numbers = comma.join([keyed[name].cast("string") for name in (*own, "which")])
    ticket = engine_of(each).sha256(keyed.secret + ":" + numbers + ":" + keyed[ID])
    return keyed.mutate(ticket=ticket).drop("secret")
