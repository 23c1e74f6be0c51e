"""Answers to ``tabulae query`` as a table on the terminal: decimals as many as the errors give a meaning to."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import typer
from rich.table import Table as RichTable

from .commands_output import open_console, print_table

_ROWS_PRINTED = 40
_MOST_DECIMALS = 6
_RESULTS = 5  # columns that follow the labels


def print_answer(rows: pa.Table, level: float) -> None:
    """Print the first rows; what is not estimable says so, and what is exact has no interval.

    Arguments:
        rows: labels, estimate, std_error, ci_low, ci_high, obs_status.
        level: of the intervals.
    """
    shown = rows.slice(0, _ROWS_PRINTED).to_pylist()
    labels = rows.column_names[:-_RESULTS]
    table = RichTable()
    for heading in (*labels, "estimate", "std. error", f"{level:.0%} interval"):
        table.add_column(heading, justify="left" if heading in labels else "right")
    places = _decimals(shown)
    for row in shown:
        table.add_row(*(row[name] for name in labels), *_cells(row, places))
    print_table(open_console(), table)
    if rows.num_rows > _ROWS_PRINTED:
        typer.echo(f"... {rows.num_rows - _ROWS_PRINTED:,} more rows; --json prints all")


def _cells(row: dict[str, Any], places: int) -> tuple[str, str, str]:
    """Estimate, standard error and interval of one row."""
    if row["obs_status"] == "Q":
        return "-", "-", "not estimable"
    estimate, error, low, high = (
        "-" if row[name] is None else f"{row[name]:,.{places}f}"
        for name in ("estimate", "std_error", "ci_low", "ci_high")
    )
    return estimate, error, "exact" if row["obs_status"] == "E" else f"{low} to {high}"


def _decimals(rows: Iterable[dict[str, Any]]) -> int:
    """Two significant digits of the smallest standard error, at least one decimal and at most six."""
    errors = [row["std_error"] for row in rows if row["std_error"]]
    smallest = min((error for error in errors if error > 0), default=1.0)
    return min(_MOST_DECIMALS, max(1, 1 - math.floor(math.log10(smallest))))
