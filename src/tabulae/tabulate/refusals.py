"""What is refused of coded records: the faults by column, and the error that names them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..domain import Attribute
from ..errors import DataError
from .failures import redacted
from .rules import (
    NULL_CODE,
    UNKNOWN_CODE,
    ColumnRule,
)
from .source import Source
from .units import ID, UnitRule

EXAMPLES = 5
_KINDS = {UNKNOWN_CODE: "values outside the declared categories", NULL_CODE: "NULL values"}


def misfits(
    source: Source, attributes: Sequence[Attribute], rules: Mapping[str, ColumnRule], table: Any
) -> list[tuple[str, str]]:
    """Column and kind of each fault, and the same with numbers and values, which is confidential.

    Args:
        source: what messages name.
        attributes, rules: as they were coded.
        table: the coded records, alike ones counted (see `mapping`).
    """
    people = {
        f"{i}_{code}": table.people.sum(where=table[f"k{i}"] == code)
        for i in range(len(attributes))
        for code in _KINDS
    }
    numbers = redacted(source.name, lambda: table.aggregate(**people).to_pyarrow().to_pylist()[0])
    faults = []
    for i, attribute in enumerate(attributes):
        for code, kind in _KINDS.items():
            if number := numbers[f"{i}_{code}"]:
                where = f"column {rules[attribute.name].column!r} (attribute {attribute.name!r}): {kind}"
                told = f"{where}: in {int(number)} records"
                if code == UNKNOWN_CODE:
                    told += f", such as {listed(unknown(source, table, f'c{i}', f'k{i}'))}"
                faults.append((where, told))
    return faults


def nameless(source: Source, records: Any, unit: UnitRule) -> list[tuple[str, str]]:
    """Records without a unit, likewise: nobody could say whose they are."""
    number = redacted(source.name, lambda: int(records[ID].isnull().sum().to_pyarrow().as_py() or 0))
    where = f"column {unit.column!r} (unit_id): NULL values, and every record needs the id of its unit"
    return [(where, f"{where}: in {number} records")] if number else []


def refusal(source: Source, faults: Sequence[tuple[str, str]]) -> DataError:
    """The error that names the faults."""
    remedy = (
        'Correct the records, list the values under [attributes], or count them apart with unknown = "other" '
        'or null = "other".'
    )
    return DataError(
        "\n".join(
            [f"{source.name} does not fit the public domain:", *(f"  {told}" for told, _ in faults), remedy]
        ),
        confidential="\n".join(detail for _, detail in faults),
    )


def unknown(source: Source, table: Any, raw: str, key: str) -> list[tuple[Any, int]]:
    """The commonest values that have no code, and how many records have each: for the holder of the records.

    Args:
        source: what messages name.
        table: coded records, alike ones counted.
        raw, key: the columns of the values and of their codes.
    """
    import ibis

    if table[raw].type().is_decimal():
        table = table.mutate(**{raw: table[raw].cast("string")})  # all its digits, and as many as there are
    commonest = (
        table.filter(table[key] == UNKNOWN_CODE)
        .group_by(raw)
        .aggregate(people=table.people.sum().cast("int64"))
        .order_by([ibis.desc("people"), raw])
        .limit(EXAMPLES)
    )
    rows = redacted(source.name, lambda: commonest.to_pyarrow().to_pylist())
    return [(row[raw], row["people"]) for row in rows]


def listed(examples: Iterable[tuple[Any, int]]) -> str:
    """Values, each with its number of records."""
    return ", ".join(f"{value!r} ({people})" for value, people in examples)


def check_counted(source: Source, rows: int, counted: int, least: int = 0) -> None:
    """Raise a `DataError` where there are no records, or other records were counted than there are.

    Args:
        source: what messages name.
        rows, counted: how many there must be, and are.
        least: the smallest code among records that were found to fit before.
    """
    if rows == 0:
        raise DataError(f"{source.name} has no records: there is nothing to publish")
    if counted != rows or least < 0:
        raise DataError(
            f"{source.name} changed while it was read, or records were lost or doubled in counting: make a "
            "copy that nothing writes to, and run again",
            confidential=f"{rows} rows, {counted} counted",
        )
