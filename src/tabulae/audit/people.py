"""Invented people: units of one or more records, what a neighbour is, and files that hold them."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import require
from .layout import Layout, Raw


@dataclass(frozen=True)
class People:
    """Records, and the unit that each belongs to.

    Arguments:
        picks: one record a row, shape (records, columns of the layout).
        units: the number of the unit of each record, shape (records,).
    """

    picks: np.ndarray
    units: np.ndarray

    @classmethod
    def of(cls, groups: Sequence[np.ndarray]) -> People:
        """The people whose units have these records."""
        sizes = [len(group) for group in groups]
        return cls(np.concatenate(list(groups)), np.repeat(np.arange(len(groups)), sizes))

    @property
    def count(self) -> int:
        """Units, had or had once: the number that a new one gets."""
        return int(self.units.max()) + 1

    def group(self, unit: int) -> np.ndarray:
        """The records of a unit."""
        return self.picks[self.units == unit]

    def without(self, unit: int) -> People:
        """These people less one unit."""
        kept = self.units != unit
        return People(self.picks[kept], self.units[kept])

    def and_one(self, group: np.ndarray) -> People:
        """These people and a unit with the records given."""
        units = np.append(self.units, np.full(len(group), self.count))
        return People(np.concatenate([self.picks, group]), units)

    def shuffled(self, rng: np.random.Generator) -> People:
        """The same people, in another order."""
        order = rng.permutation(len(self.units))
        return People(self.picks[order], self.units[order])


def invent(layout: Layout, rng: np.random.Generator, units: int, most: int) -> People:
    """Uneven people: units of 1 to ``most`` records."""
    sizes = rng.integers(1, most + 1, size=units)
    return People(layout.random(rng, int(sizes.sum())), np.repeat(np.arange(units), sizes))


def write(people: People, layout: Layout, unit_id: str | None, path: Path, table: str | None) -> None:
    """Write records to a file of the kind that the ending of ``path`` says (csv, parquet or duckdb)."""
    columns: dict[str, list[Raw]] = {
        column.name: [column.values[pick] for pick in people.picks[:, position]]
        for position, column in enumerate(layout.columns)
    }
    if unit_id is not None:
        columns[unit_id] = [f"u{unit}" for unit in people.units]
    if path.suffix == ".csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(zip(*columns.values(), strict=True))
        return
    if path.suffix == ".parquet":
        from pyarrow import parquet

        parquet.write_table(_arrow(columns, layout), path)
        return
    _write_duckdb(_arrow(columns, layout), path, table or "people")


def _arrow(columns: dict[str, list[Raw]], layout: Layout):
    import pyarrow as pa

    numeric = {column.name for column in layout.columns if column.numeric}
    return pa.table(
        {
            name: pa.array(values, pa.int64() if name in numeric else pa.string())
            for name, values in columns.items()
        }
    )


def _write_duckdb(records, path: Path, table: str) -> None:
    duckdb = require("duckdb", None, "writing records")
    schema, _, name = table.rpartition(".")
    with duckdb.connect(str(path)) as connection:
        quoted = '"' + name.replace('"', '""') + '"'
        if schema:
            outer = '"' + schema.replace('"', '""') + '"'
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {outer}")
            quoted = f"{outer}.{quoted}"
        connection.register("invented", records)
        connection.execute(f"CREATE TABLE {quoted} AS SELECT * FROM invented")  # noqa: S608
