"""The columns of a source: which there are, and where those that the spec names stand among them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..errors import DataError
from .dialect import RFC4180, Dialect, check_delimiter

ID = "unit"
"""What every engine calls the column that names the unit of each record."""

LEAF = "leaf"
"""What every engine calls the column that names the area of each record."""


def positions(
    where: str, names: tuple[str, ...], wanted: Iterable[tuple[str, str]], dialect: Dialect = RFC4180
) -> dict[str, int]:
    """The position of each wanted column among ``names``.

    Args:
        where: what to call the source.
        names: the columns of the source, in order.
        wanted: pairs (column, what it is for).
        dialect: of the source, if it is a CSV file.

    Returns:
        column -> position.

    Raises:
        DataError: if columns are missing or ambiguous, or the file has another delimiter. The names that
            the source does have are confidential, because the first line of a file without a header is a
            record.
    """
    wanted = list(wanted)
    check_delimiter(where, names, {column for column, _ in wanted}, dialect)
    faults = []
    for column, what in wanted:
        found = names.count(column)
        if found == 0:
            faults.append(f"no column {column!r} ({what}){_near(column, names)}")
        elif found > 1:
            faults.append(f"several columns named {column!r} ({what}): rename all but one")
    if faults:
        raise DataError(
            "\n".join(
                [f"{where} does not have the columns that the spec names:", *(f"  {f}" for f in faults)]
            ),
            confidential=f"the columns of the source are {', '.join(map(repr, names))}",
        )
    return {column: names.index(column) for column, _ in wanted}


def _near(column: str, names: tuple[str, ...]) -> str:
    # Names that are equal but for case and blanks tell nothing that the spec does not say already.
    for name in names:
        if name.strip().casefold() == column.strip().casefold():
            return f", but one that is written {name!r}: names must match exactly"
    return ""


@dataclass(frozen=True)
class WantedColumn:
    """One column of the records that is read: its name there, what it is for in messages, and what it becomes."""

    name: str
    purpose: str
    alias: str
