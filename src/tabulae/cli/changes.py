"""``tabulae changes``: how counts changed from one release to a later one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from ..errors import InvalidArgument, Unsupported
from ..export import write_answer
from ..release import Release
from ..release.changes import PARTS, Changes
from .output import emit, new_table, open_console, print_table, say

_ROWS_PRINTED = 40
_MOST_DECIMALS = 6
_COLUMNS = 5  # of each part


def changes(earlier: Path, later: Path, table: str | None, out: Path | None, json: bool) -> None:
    """Compare one table of two releases, or all that both publish."""
    before, now = Release.read(earlier), Release.read(later)
    names = [table] if table is not None else [name for name in now.tables if name in before.tables]
    if not names:
        raise InvalidArgument(f"{earlier} and {later} publish no table of the same name")
    if out is not None and len(names) > 1:
        raise InvalidArgument(
            f"{out} holds one table: name it with --table; both releases have {', '.join(names)}"
        )
    if out is not None and out.resolve().is_relative_to(earlier.resolve()):
        raise InvalidArgument(
            f"{out} lies in a release, which stays as it was published: name a file outside it"
        )
    made, left = _made(before, now, names)
    if out is not None:
        statement = (
            f"Changes of {names[0]} since {before.descriptor['title']}, release {before.about['release_id']}"
        )
        write_answer(now, statement, made[0].rows, out)
    if json:
        tables = [_document(each) for each in made]
        emit({"earlier": str(earlier), "later": str(later), "tables": tables, "left_out": left})
        return
    console, notes = open_console(), [*_notes(made), *(f"Left out  {why}" for why in left)]
    if out is not None:
        say(console, *notes, f"Wrote {out}: {made[0].rows.num_rows:,} rows")
        return
    for each in made:
        _print(console, each)
    say(console, *notes)


def _made(before: Release, now: Release, names: Sequence[str]) -> tuple[list[Changes], list[str]]:
    """The changes of tables, and why others cannot be compared; where none can, the first reason is raised."""
    made: list[Changes] = []
    refused: list[InvalidArgument | Unsupported] = []
    for name in names:
        try:
            made.append(now.changes_since(before, name))
        except (InvalidArgument, Unsupported) as error:
            refused.append(error)
    if not made:
        raise refused[0]
    return made, [str(error) for error in refused]


def _document(made: Changes) -> dict[str, Any]:
    rows = made.rows.to_pylist()
    return {
        "table": made.table,
        "level": made.level,
        "conservative_intervals": made.conservative,
        "notes": list(made.notes),
        "rows": rows,
    }


def _notes(made: Sequence[Changes]) -> Iterator[str]:
    """What differs between the releases, once each; that of one table with its name."""
    notes = list(dict.fromkeys(note for each in made for note in each.notes))
    for note in notes:
        of = [each.table for each in made if note in each.notes]
        yield f"Note      {note}" if len(of) == len(made) else f"Note      {', '.join(of)}: {note}"


def _print(console: Console, made: Changes) -> None:
    """The first rows: both estimates, and the change in counts and in per cent, each with its interval."""
    rows = made.rows.slice(0, _ROWS_PRINTED).to_pylist()
    labels = made.rows.column_names[: -_COLUMNS * len(PARTS)]
    interval = f"{made.level:.0%} interval"
    table = new_table(
        *labels, "before", "now", "change", interval, "in %", interval, words=labels, title=made.table
    )
    places = {part: _decimals(row[f"{part}_std_error"] for row in rows) for part in PARTS}
    for row in rows:
        cells = [_number(row[part], places[part]) for part in PARTS[:2]]
        for part in PARTS[2:]:
            cells += [_number(row[part], places[part]), _interval(row, part, places[part])]
        table.add_row(*(row[label] for label in labels), *cells)
    print_table(console, table)
    if made.rows.num_rows > _ROWS_PRINTED:
        say(console, f"... {made.rows.num_rows - _ROWS_PRINTED:,} more rows; --out FILE.csv writes all")


def _interval(row: Mapping[str, Any], part: str, places: int) -> str:
    if row[f"{part}_status"] == "E":
        return "exact"
    if row[f"{part}_status"] == "Q":
        return "not estimable"
    return " to ".join(_number(row[f"{part}_ci_{end}"], places) for end in ("low", "high"))


def _number(value: float | None, places: int) -> str:
    return "-" if value is None else f"{value:z,.{places}f}"


def _decimals(errors: Iterator[float | None]) -> int:
    """Two significant digits of the smallest standard error, at least one decimal; none where all is exact."""
    smallest = min((error for error in errors if error), default=None)
    return 0 if smallest is None else min(_MOST_DECIMALS, max(1, 1 - math.floor(math.log10(smallest))))
