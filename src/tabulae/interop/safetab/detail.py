"""detail/: of every published group, estimates from both stages with their errors, and the table that it got."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa

from ...products.groups.estimate import GroupEstimates, cell_estimates, total_estimates
from ...products.groups.levels import TOTAL, TOTAL_ONLY
from .layout import SEXES, age_ranges
from .tables import TABLE_OF_TOTAL, Published, Spill

CONFIDENCE = 0.95
_PLACE = ("region_type", "region_id", "iteration_code", "level", "table")
_ERRORS = ("estimate", "variance", "std_error", "ci_low", "ci_high")
_ORDER = ("region_type", "region_id", "iteration_code")
_FORMATS = {"csv": "FORMAT csv, HEADER true", "parquet": "FORMAT parquet, COMPRESSION zstd"}
_AT_ONCE = 1 << 20


class Detail:
    """The writer of the second set of files: ``totals`` and ``cells``, as CSV and Parquet.

    Args:
        folder: the folder of the run; files stand there when ``finish`` has returned.
        confidence: the coverage of the intervals.
    """

    def __init__(self, folder: Path, confidence: float = CONFIDENCE) -> None:
        self._folder, self._confidence = folder, confidence
        text, number, whole = pa.string(), pa.float64(), pa.int64()
        place, errors = dict.fromkeys(_PLACE, text), dict.fromkeys(_ERRORS, number)
        self.totals = Spill(folder, "totals", {**place, **errors, "stage_one": whole, "stage_two": whole})
        ages = {"age_start": whole, "age_end": whole, "sex": text, "measured": whole}
        self.cells = Spill(folder, "cells", {**place, **ages, **errors})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for spill in (self.totals, self.cells):
            spill.__exit__(kind, error, trace)

    def add(self, published: Published) -> None:
        """The rows of one piece of the measurements."""
        measured = published.measurement
        for rung in (TOTAL_ONLY, TOTAL):
            places = published.totals(rung)
            self._add_totals(published, rung, places)
        for rung, (places, cells) in measured.cells.items():
            self._add_totals(published, rung, places)
            step = max(1, _AT_ONCE // cells.shape[1])
            for start in range(0, len(places), step):
                self._add_cells(published, rung, places[start : start + step], cells[start : start + step])

    def finish(self) -> None:
        """Sort both tables and put them in place."""
        (self._folder / "detail").mkdir()
        for spill, name in ((self.totals, "totals"), (self.cells, "cells")):
            targets = {self._folder / "detail" / f"{name}.{end}": told for end, told in _FORMATS.items()}
            spill.write(targets, (*_ORDER, *(("age_start", "sex") if spill is self.cells else ())))

    def _add_totals(self, published: Published, rung: int, places: np.ndarray) -> None:
        if not len(places):
            return
        measured = published.measurement
        first, second = measured.stage_one[places], measured.totals[places]
        made = total_estimates(published.level, rung, first, second, self._confidence)
        none = np.full(len(places), rung == TOTAL_ONLY)
        self.totals.add(
            {
                **_named(published, rung, places),
                **_errors(made),
                "stage_one": pa.array(first, pa.int64(), mask=none),
                "stage_two": pa.array(second, pa.int64()),
            }
        )

    def _add_cells(self, published: Published, rung: int, places: np.ndarray, cells: np.ndarray) -> None:
        ranges = age_ranges(published.level.ladder.rungs[rung - 1].name)
        first = published.measurement.stage_one[places]
        made = cell_estimates(published.level, rung, first, cells, self._confidence)
        low, high = np.repeat(np.array(ranges, np.int64), len(SEXES), axis=0).T
        sex = np.tile(np.arange(len(SEXES), dtype=np.int32), len(ranges) * len(places))
        self.cells.add(
            {
                **_named(published, rung, np.repeat(places, cells.shape[1])),
                "age_start": pa.array(np.tile(low, len(places))),
                "age_end": pa.array(np.tile(high, len(places))),
                "sex": pa.DictionaryArray.from_arrays(pa.array(sex), pa.array(SEXES)),
                "measured": pa.array(cells.ravel(), pa.int64()),
                **_errors(made),
            }
        )


def _named(published: Published, rung: int, places: np.ndarray) -> dict[str, pa.Array]:
    """Where a row belongs, in lower case."""
    level = published.level
    table = TABLE_OF_TOTAL.get(rung) or level.ladder.rungs[rung - 1].name
    zero = pa.array(np.zeros(len(places), np.int32))
    return {
        **{name.lower(): column for name, column in published.named(places).items()},
        "level": pa.DictionaryArray.from_arrays(zero, pa.array([level.group_level])),
        "table": pa.DictionaryArray.from_arrays(zero, pa.array([table])),
    }


def _errors(made: GroupEstimates) -> dict[str, pa.Array]:
    """Estimates, variances and intervals, row by row."""
    variance = np.broadcast_to(made.variance, made.estimate.shape)
    columns = (made.estimate, variance, np.sqrt(variance), made.ci_low, made.ci_high)
    return {n: pa.array(np.ravel(c), pa.float64()) for n, c in zip(_ERRORS, columns, strict=True)}
