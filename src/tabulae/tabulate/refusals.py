"""What is refused of coded records: the faults by column, and the error that names them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tabulae.errors import DataError
from tabulae.tables import Attribute

from .failures import redacted
from .rules import NULL_CODE, UNKNOWN_CODE, ColumnRule
from .source import Source
from .units import ID, UnitRule

_EXAMPLES = 5
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
                examples = "" if code == NULL_CODE else f", such as {_examples(source, table, i)}"
                faults.append((where, f"{where}: in {int(number)} records{examples}"))
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


def _examples(source: Source, table: Any, i: int) -> str:
    """The commonest values that are refused, for the holder of the records."""
    import ibis

    raw = f"c{i}"
    commonest = (
        table.filter(table[f"k{i}"] == UNKNOWN_CODE)
        .group_by(raw)
        .aggregate(people=table.people.sum().cast("int64"))
        .order_by([ibis.desc("people"), raw])
        .limit(_EXAMPLES)
    )
    rows = redacted(source.name, lambda: commonest.to_pyarrow().to_pylist())
    return ", ".join(f"{row[raw]!r} ({row['people']})" for row in rows)
