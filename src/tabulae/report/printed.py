"""Which rows stand on the page: every table as far as the page's size allows, short tables as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from ..spec import ReliabilitySection
from .page import environment
from .rows import printed_rows, shortened
from .view import ROWS_SHOWN, TableView

PAGE_BYTES = 1_900_000
"""What a page aims at; it is under two million bytes however long its tables are."""

_LEAST_ROW = 300  # bytes that hardly any row is shorter than
_ROUND = 50  # tables that are cut have a multiple of so many rows, where they have more


@dataclass(frozen=True)
class PrintedTable:
    """One table as the page shows it: its first rows as markup; ``anchor`` is where it stands."""

    anchor: str
    table: TableView
    headings: tuple[str, ...]
    rows: tuple[Markup, ...]

    @property
    def whole(self) -> bool:
        """Whether all rows are shown."""
        return len(self.rows) == self.table.rows

    @cached_property
    def body(self) -> Markup:
        """The rows, one a line."""
        return Markup("\n").join(self.rows)


def printed_tables(
    tables: Sequence[TableView], room: int, section: ReliabilitySection
) -> tuple[PrintedTable, ...]:
    """Print the first rows of each table, as many as fit.

    All tables that are cut have the same number of rows, and those that have fewer are whole: the most rows for which
    everything fits, ``ROWS_SHOWN`` at most.

    Args:
        tables: the tables, in order.
        room: bytes that all rows may take.
        section: the classes of reliability.
    """
    sizes = np.array([len(table.estimate) for table in tables], np.int64)
    level = _level([np.arange(1 + size) * _LEAST_ROW for size in np.minimum(sizes, ROWS_SHOWN)], room)
    row = environment().get_template("counts.html").module.row  # type: ignore[attr-defined]
    rows = [tuple(row(each) for each in printed_rows(table, level, section)) for table in tables]
    level = _level([np.cumsum([0, *(len(text.encode()) + 1 for text in lines)]) for lines in rows], room)
    if _ROUND < level < max((len(lines) for lines in rows), default=0):
        level -= level % _ROUND
    return tuple(
        PrintedTable(f"table-{i}", table, _headings(table), lines[:level])
        for i, (table, lines) in enumerate(zip(tables, rows, strict=True), start=1)
    )


def unprinted(tables: Sequence[TableView]) -> tuple[PrintedTable, ...]:
    """The same tables without their rows: what the rest of the page takes is measured with them."""
    return tuple(
        PrintedTable(f"table-{i}", table, _headings(table), ()) for i, table in enumerate(tables, start=1)
    )


def _headings(table: TableView) -> tuple[str, ...]:
    return tuple(shortened(column) for column in table.columns)


def _level(taken: Sequence[NDArray[np.int64]], room: int) -> int:
    """The largest k for which the first k rows of every table fit; ``taken[t][k]`` is what those of one table take."""
    low, high = 0, max((len(each) - 1 for each in taken), default=0)
    while low < high:
        middle = (low + high + 1) // 2
        fits = sum(int(each[min(middle, len(each) - 1)]) for each in taken) <= room
        low, high = (middle, high) if fits else (low, middle - 1)
    return low
