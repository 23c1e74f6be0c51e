"""T1 and T2: the totals of all published groups, and the tables of sex by age of those that have one."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Self

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ...products.groups.levels import TOTAL, TOTAL_ONLY, GroupMeasurement, PopulationLevel
from ...sources.duckdb_engine import without_bar
from .layout import SEXES, age_ranges
from .plan import SuppressionRule, Tabulation

TABLE_OF_TOTAL = {TOTAL_ONLY: "total only", TOTAL: "total"}
"""What files call the two rungs without a table."""


class Published:
    """The places of one measurement that T1 and T2 show: all with a table, and the totals that are not suppressed.

    Args:
        tabulation: the run.
        measurement: a piece of it.
    """

    def __init__(self, tabulation: Tabulation, measurement: GroupMeasurement) -> None:
        self.measurement = measurement
        self.level: PopulationLevel = tabulation.plan.levels[measurement.level]
        self._suppression: SuppressionRule = tabulation.suppression[measurement.level]

    def totals(self, rung: int) -> np.ndarray:
        """The published places of one rung without a table, rising."""
        threshold = self._suppression.whole if rung == TOTAL_ONLY else self._suppression.total
        kept = self.measurement.rung == rung
        if threshold is not None:
            kept &= self.measurement.totals > threshold
        return np.flatnonzero(kept)

    def named(self, places: np.ndarray) -> dict[str, pa.Array]:
        """Region type, region and iteration of each place, under production's headings."""
        groups = len(self.level.groups)
        region, group = np.divmod(places, groups)
        kind = pa.DictionaryArray.from_arrays(
            pa.array(np.zeros(len(places), np.int32)), pa.array([self.level.regions.name])
        )
        first, last = self.measurement.first, self.measurement.first + self.measurement.regions
        ids = pa.array(self.level.regions.ids[first:last], pa.string())
        return {
            "REGION_ID": pa.DictionaryArray.from_arrays(pa.array(region.astype(np.int32)), ids),
            "REGION_TYPE": kind,
            "ITERATION_CODE": pa.DictionaryArray.from_arrays(pa.array(group.astype(np.int32)), self._codes),
        }

    @cached_property
    def _codes(self) -> pa.Array:
        return pa.array([group.code for group in self.level.groups.groups], pa.string())


_MEMORY = "2GB"


class Spill:
    """Rows of one table, collected in a file that only this run reads.

    Args:
        folder: where the file goes.
        name: its stem.
        schema: columns in order; text columns take dictionaries, too.
    """

    def __init__(self, folder: Path, name: str, schema: Mapping[str, pa.DataType]) -> None:
        self.path = folder / f"{name}.spill"
        self._schema = pa.schema(list(schema.items()))
        self._writer = pq.ParquetWriter(self.path, self._schema, compression="zstd")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(
            *([OSError] if kind is not None else [])
        ):  # of two errors, the first is told
            self._writer.close()

    def add(self, columns: Mapping[str, pa.Array]) -> None:
        """Rows, under the schema's headings."""
        arrays = [
            columns[field.name].dictionary_decode()
            if isinstance(columns[field.name], pa.DictionaryArray)
            else columns[field.name]
            for field in self._schema
        ]
        if len(arrays[0]):
            self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema))

    def write(self, targets: Mapping[Path, str], order: Sequence[str]) -> None:
        """Write all rows in order, to each target with its options of DuckDB's COPY, and remove the collected ones.

        Ties would make the order depend on the machine: ``order`` must tell all rows apart.
        """
        self._writer.close()
        scratch = self.path.with_suffix(".sort")
        with duckdb.connect(config={"memory_limit": _MEMORY, "temp_directory": str(scratch)}) as engine:
            without_bar(engine)
            chosen = ", ".join(f'"{name}"' for name in self._schema.names)
            engine.read_parquet(str(self.path)).project(chosen).order(", ".join(order)).create("sorted")
            for target, options in targets.items():
                engine.execute(f"COPY sorted TO '{_quoted(target)}' ({options})")
        self.path.unlink()
        shutil.rmtree(scratch, ignore_errors=True)


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")


T1, T2 = "t1/t1.csv", "t2/t2.csv"
PLACE = ("REGION_ID", "REGION_TYPE", "ITERATION_CODE")
_AGES = ("AGESTART", "AGEEND")
_ALL = "*"
_FORMAT = "FORMAT csv, DELIMITER '|', HEADER true"
BY_PLACE = ("REGION_TYPE", "REGION_ID", "ITERATION_CODE")
"""How files are sorted: as text, by the first of these that differs."""


class Tables:
    """The writer of T1 and T2, with production's columns, integers and meaning.

    T1 holds the noisy total of each published group; of a group with a table, the sum of its cells. T2 holds those
    cells, and for each sex their sum, under ``*`` for all ages. Where negative counts are not allowed, each measured
    count is raised to 0 before it is added to others.

    Args:
        folder: the folder of the run; files stand there when ``finish`` has returned.
        allow_negative: whether counts below 0 are published.
    """

    def __init__(self, folder: Path, *, allow_negative: bool) -> None:
        self._folder, self._allow_negative = folder, allow_negative
        text = dict.fromkeys(PLACE, pa.string())
        ages = dict.fromkeys((*_AGES, "SEX"), pa.string())
        self.t1 = Spill(folder, "t1", {**text, "COUNT": pa.int64()})
        self.t2 = Spill(folder, "t2", {**text, **ages, "COUNT": pa.int64()})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for spill in (self.t1, self.t2):
            spill.__exit__(kind, error, trace)

    def add(self, published: Published) -> None:
        """The rows of one piece of the measurements."""
        measured = published.measurement
        for rung in (TOTAL_ONLY, TOTAL):
            places = published.totals(rung)
            self._total(published, places, self._allowed(measured.totals[places]))
        for rung, (places, cells) in measured.cells.items():
            counts = self._allowed(cells)
            self._total(published, places, counts.sum(axis=1))
            self._table(published, rung, places, counts)

    def finish(self) -> None:
        """Sort both files and put them in place."""
        for spill, name in ((self.t1, T1), (self.t2, T2)):
            target = self._folder / name
            target.parent.mkdir()
            within = ("AGESTART = '*'", "TRY_CAST(AGESTART AS INTEGER)", "SEX") if spill is self.t2 else ()
            spill.write({target: _FORMAT}, (*BY_PLACE, *within))

    def _allowed(self, counts: np.ndarray) -> np.ndarray:
        return counts if self._allow_negative else np.maximum(counts, 0)

    def _total(self, published: Published, places: np.ndarray, counts: np.ndarray) -> None:
        self.t1.add({**published.named(places), "COUNT": pa.array(counts, pa.int64())})

    def _table(self, published: Published, rung: int, places: np.ndarray, counts: np.ndarray) -> None:
        """Cells by age, then sex, and after them both sexes at all ages."""
        ranges = age_ranges(published.level.ladder.rungs[rung - 1].name)
        by_sex = counts.reshape(len(places), len(ranges), len(SEXES)).sum(axis=1)
        rows = np.concatenate([counts, by_sex], axis=1)
        start = [str(low) for low, _ in ranges] + [_ALL]
        end = [str(high) for _, high in ranges] + [_ALL]
        age = np.tile(np.repeat(np.arange(len(start), dtype=np.int32), len(SEXES)), len(places))
        sex = np.tile(np.arange(len(SEXES), dtype=np.int32), len(start) * len(places))
        self.t2.add(
            {
                **published.named(np.repeat(places, rows.shape[1])),
                "AGESTART": pa.DictionaryArray.from_arrays(pa.array(age), pa.array(start)),
                "AGEEND": pa.DictionaryArray.from_arrays(pa.array(age), pa.array(end)),
                "SEX": pa.DictionaryArray.from_arrays(pa.array(sex), pa.array(SEXES)),
                "COUNT": pa.array(rows.ravel(), pa.int64()),
            }
        )
