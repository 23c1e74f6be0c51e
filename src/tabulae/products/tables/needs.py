"""What a release of tables takes of a machine, known before any data: disk, memory, and seconds of a core."""

from __future__ import annotations

from ...spec import Spec
from ...spec.promise import POSTERIOR
from ...strategy import Strategy
from ..product import ResourceEstimate

VECTOR_LIMIT = 50_000_000
"""Vectors longer than this are not made: 50 million cells, 0.4 GB."""

_VECTORS = 6  # of 8 bytes a cell or row: how many are held at once
_PROGRAM = 340_000_000  # bytes of libraries
_PLANNED, _DRAWN_CELL = 400_000, 32_000  # bytes in memory: of a table or a block, of an answer in all draws
_BLOCK_FILE, _TABLE_FILES, _ROW_FILES = 2_000, 11_000, 80  # bytes; a table's with its part of the report
_PAGES, _ROW_PAGE, _ON_PAGES = 300_000, 40, 10_000  # bytes of the report, and of so many rows in it
_BASE, _BLOCK, _ROW, _ANSWER, _DRAWN = 1.7, 0.02, 4e-5, 4e-6, 0.012  # seconds: benchmarks/costs.py
_COLUMN = 0.2  # seconds of a million records and an attribute


def needs_of(spec: Spec, strategy: Strategy) -> ResourceEstimate:
    """What a run takes: answers by block, rows by table, cells where they are held or drawn, records by column."""
    tables, blocks = spec.published.tables, len(strategy.blocks)
    rows, cells = sum(table.rows(spec.domain) for table in tables), spec.domain.size
    held = max(cells if cells <= VECTOR_LIMIT else 0, rows, strategy.rows)
    drawn = strategy.rows if spec.method.estimate == POSTERIOR else 0
    return ResourceEstimate(
        measurements=_BLOCK_FILE * blocks + 8 * strategy.rows,
        tables=_PAGES + _TABLE_FILES * len(tables) + _ROW_FILES * rows + _ROW_PAGE * min(rows, _ON_PAGES),
        memory=_PROGRAM + _PLANNED * (len(tables) + blocks) + 8 * _VECTORS * held + _DRAWN_CELL * drawn,
        seconds=_BASE + _BLOCK * blocks + _ROW * rows + _ANSWER * strategy.rows + _DRAWN * drawn,
        seconds_of_million=_COLUMN * len(spec.domain.attributes),
    )
