"""The columns of a source: which there are, and where those that the spec names stand among them."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ..errors import DataError

ID = "unit"
"""What every engine calls the column that names the unit of each record."""

LEAF = "leaf"
"""What every engine calls the column that names the area of each record."""

_LONGEST_NAME = 100_000
_OTHER_DELIMITERS = {";": "semicolons", "\t": "tabs", "|": "vertical bars"}


def csv_header(path: Path) -> tuple[str, ...]:
    """The names in the first line of a CSV file (RFC 4180: commas, double quotes, UTF-8).

    It is read here, and not by the engine, because engines guess: a file without a header, or with another
    delimiter, would get names made up from its records.
    """
    with path.open(encoding="utf-8-sig", newline="") as file:
        header = next(csv.reader(file, strict=True), [])
    # The reader has a limit of its own, which anything else in the process may have changed.
    if max(map(len, header), default=0) > _LONGEST_NAME:
        raise DataError(
            f"{path.name}: its first line is not a header: it has a field of over {_LONGEST_NAME:,} letters"
        )
    if not any(name.strip() for name in header):
        raise DataError(f"{path.name}: the first line is empty; it must name the columns")
    return tuple(header)


def positions(where: str, names: tuple[str, ...], wanted: Iterable[tuple[str, str]]) -> dict[str, int]:
    """The position of each wanted column among ``names``.

    Args:
        where: what to call the source.
        names: the columns of the source, in order.
        wanted: pairs (column, what it is for).

    Returns:
        column -> position.

    Raises:
        DataError: if columns are missing or ambiguous, or the file has another delimiter. The names that
            the source does have are confidential, because the first line of a file without a header is a
            record.
    """
    wanted = list(wanted)
    _check_delimiter(where, names, {column for column, _ in wanted})
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


def _check_delimiter(where: str, names: tuple[str, ...], wanted: set[str]) -> None:
    if len(names) != 1 or names[0] in wanted:
        return
    for sign, word in _OTHER_DELIMITERS.items():
        if sign in names[0]:
            raise DataError(
                f"{where}: the fields seem to be divided by {word}, and CSV is read with commas: save it "
                "again with commas, or as Parquet",
                confidential=f"the first line is {names[0]!r}",
            )


@dataclass(frozen=True)
class WantedColumn:
    """One column of the records that is read: its name there, what it is for in messages, and what it becomes."""

    name: str
    purpose: str
    alias: str
