"""Whether a release of groups is as it was published: every number follows from the measurements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from ..adaptive import AdaptivePlan
from ..errors import ReleaseError
from ..spec import Detailed
from . import folder as f
from .group_measurements import plan_document, read_group_measurements
from .group_tables import GroupTables, group_tables
from .rows import Rows
from .write_groups import plain, table_schemas

_ROUNDING = 1e-5  # share of a standard error by which two machines' sums may differ
_NUMBERS = ("estimate", "std_error", "ci_low", "ci_high")


def group_faults(folder: Path, detailed: Detailed, plan: AdaptivePlan, confidence: float) -> Iterator[str]:
    """What is wrong with a release of groups, one sentence a fault; it stops at the first of each table.

    Checks that noise, stability and budgets are those of the spec, that each table is the one that the noisy count of
    stage one chose, and every published number against the measurements.
    """
    stored = f.read_json(folder, f.MEASUREMENT)
    if {key: value for key, value in stored.items() if key != "release_id"} != plan_document(plan):
        yield f"{f.MEASUREMENT}: levels, noise or stability are not those of {f.SPEC}"
        return
    files = {
        name: _Published(folder / "tables", name, plain(schema))
        for name, schema in table_schemas(detailed).items()
    }
    chosen: list[Counter[str]] = [Counter() for _ in plan.levels]
    try:
        for piece in read_group_measurements(folder, plan):
            made = group_tables(plan.levels[piece.level], piece, detailed.suppress, confidence)
            chosen[piece.level].update(made.chosen)
            _compare(files, made)
        for file in files.values():
            file.end()
    except ReleaseError as error:
        yield str(error)
        return
    yield from (fault for file in files.values() for fault in file.faults)
    told = [entry["groups_by_table"] for entry in f.read_json(folder, f.DESCRIPTOR)["tabulae"]["levels"]]
    if told != [dict(count) for count in chosen]:
        yield f"{f.DESCRIPTOR}: how many groups got which table is not what the measurements say"


def _compare(files: dict[str, _Published], made: GroupTables) -> None:
    for name, rows in made.rows.items():
        files[name].compare(rows)


class _Published:
    """One published table, both of its files, compared from the first row on."""

    def __init__(self, folder: Path, name: str, schema: pa.Schema) -> None:
        self.name = name
        self.faults: list[str] = []
        self._parquet = Rows.of_parquet(folder / f"{name}.parquet")
        self._csv = Rows.of_csv(folder / f"{name}.csv", schema)
        self._schema = schema

    def compare(self, fresh: pa.Table) -> None:
        """The next rows are these, in both files."""
        if self.faults:
            return
        stored, same = self._parquet.take(fresh.num_rows), self._csv.take(fresh.num_rows)
        fresh = fresh.cast(self._schema)
        if stored.schema != self._schema or stored.num_rows != fresh.num_rows:
            self.faults.append(f"tables/{self.name}.parquet: does not have the rows that were measured")
        elif not same.equals(stored):
            self.faults.append(f"tables/{self.name}.csv: does not say what tables/{self.name}.parquet says")
        elif wrong := [column for column in self._schema.names if not _agree(column, stored, fresh)]:
            told = f"{', '.join(wrong)} {'is' if len(wrong) == 1 else 'are'} not what the measurements say"
            self.faults.append(f"tables/{self.name}.parquet: {told}")

    def end(self) -> None:
        """Nothing is left in either file."""
        if not self.faults and (self._parquet.take(1).num_rows or self._csv.take(1).num_rows):
            self.faults.append(f"tables/{self.name}: has more rows than were measured")


def _agree(column: str, stored: pa.Table, fresh: pa.Table) -> bool:
    if column not in _NUMBERS:
        return stored[column].combine_chunks().equals(fresh[column].combine_chunks())
    slack = _ROUNDING * fresh["std_error"].to_numpy()
    return bool((np.abs(stored[column].to_numpy() - fresh[column].to_numpy()) <= slack).all())
