"""What values stand in the columns of a source: for a draft by its holder, who asked for it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..domain.declared import DeclaredColumn
from .engine import open_records
from .failures import redacted
from .rules import WHOLE_NUMBER
from .source import Source

MOST_VALUES = 100
"""A column with more different values is not listed."""

_FEW = 10  # different whole numbers: more are written as a range
_PADDED = r"^[+-]?0[0-9]"  # a code such as 007, which is not the number 7


def peek(source: Source, columns: Sequence[DeclaredColumn]) -> list[DeclaredColumn]:
    """The same columns, those without a declared domain with one that was found in the records.

    Whole numbers get the lowest and the highest; anything else its list of values, where there are at most
    ``MOST_VALUES`` of them. Values are read as a count would read them: without blanks around, empty ones left out.

    Arguments:
        source: the file; every record of it is read.
        columns: as :func:`~tabulae.tabulate.declared_columns` found them.

    Raises:
        DataError: it cannot be read.

    Privacy:
        What comes back is confidential: a value that one person has alone is in it. It is for the holder of the
        records; a domain of a release must come from elsewhere.
    """
    wanted = [column for column in columns if column.can_be_counted and not column.has_domain]
    if not wanted:
        return list(columns)
    with open_records(source, [(column.name, column.name) for column in wanted]) as records:
        found = {
            column.name: redacted(source.name, lambda i=i, column=column: _looked(records, i, column))
            for i, column in enumerate(wanted)
        }
    return [found.get(column.name, column) for column in columns]


def _looked(records: Any, position: int, column: DeclaredColumn) -> DeclaredColumn:
    """What one column holds, as far as a draft can use it."""
    text = records[f"c{position}"].cast("string").strip()
    told = records.select(text=text.nullif("")).filter(lambda rows: rows.text.notnull())
    listed = told.distinct().order_by("text").limit(MOST_VALUES + 1).to_pyarrow()["text"].to_pylist()
    by = f"the values of all records in this column, {len(listed)} of them different"
    if len(listed) <= MOST_VALUES:
        return replace(column, **_domain(listed), by=by, found=bool(listed))
    by = f"the values of all records in this column, more than {MOST_VALUES} of them different"
    whole = told.text.re_search(WHOLE_NUMBER)
    padded = told.text.re_search(_PADDED)
    ends = told.aggregate(plain=(whole & ~padded).all()).to_pyarrow().to_pylist()[0]
    if not ends["plain"]:
        return replace(column, by=by)
    number = told.text.re_extract(r"^([+-]?[0-9]+)", 1).try_cast("int64")
    low, high = told.aggregate(low=number.min(), high=number.max()).to_pyarrow().to_pylist()[0].values()
    return replace(column, bounds=(low, high), by=by, found=True)


def _domain(values: list[str]) -> dict[str, tuple[int, int] | tuple[int, ...] | tuple[str, ...]]:
    """Values as bounds, as whole numbers, or as text."""
    if not values:
        return {}
    if not all(re.search(WHOLE_NUMBER, value) and not re.search(_PADDED, value) for value in values):
        return {"categories": tuple(values)}
    numbers = sorted({int(value.partition(".")[0]) for value in values})
    if len(numbers) > _FEW:
        return {"bounds": (numbers[0], numbers[-1])}
    return {"categories": tuple(numbers)}
