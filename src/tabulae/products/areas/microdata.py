"""Invented people, one row each, whose counts are exactly the published ones: written and compared piece by piece."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ...release.folder import MICRODATA, Rows, sync_file
from ...release.write import word_column
from ...spec import NO_VALUE
from .estimate import SpineEstimate
from .layout import CellLayout
from .sparse.store import SparseEstimate

_CELLS = 1 << 24  # about how many counts are looked at together, most of them 0


@dataclass(frozen=True, eq=False)
class Microdata:
    """Rows of people from counts of cells: by leaf, then by cell in the order of the domain.

    Args:
        areas: name of a level -> codes of its units, and the position there of each leaf's unit, -1 where it lies in
            none; the leaves' own last.
    """

    layout: CellLayout
    areas: Mapping[str, tuple[np.ndarray, np.ndarray]]
    counts: SpineEstimate | SparseEstimate

    @property
    def schema(self) -> pa.Schema:
        names = [*self.areas, *self.layout.domain.names]
        return pa.schema([(name, pa.dictionary(pa.int32(), pa.string())) for name in names])

    def rows(self) -> Iterator[pa.Table]:
        leaves = len(next(iter(self.areas.values()))[1])
        step = max(1, _CELLS // self.layout.cell.size)
        for first in range(0, leaves, step):
            yield self._rows(first, min(first + step, leaves))

    def _rows(self, first: int, last: int) -> pa.Table:
        leaf, place, people = self.counts.leaf_cells(first, last)
        cell, domain = self.layout.cell.ravel()[place], self.layout.domain
        order = np.lexsort((cell, leaf))
        leaf, cell = (np.repeat(column[order], people[order]) for column in (leaf - first, cell))
        columns = {}
        for name, (codes, units) in self.areas.items():
            here, index = np.unique(units[first:last], return_inverse=True)
            columns[name] = word_column(index[leaf], ("" if i < 0 else codes[i] for i in here.tolist()))
        for attribute, index in zip(
            domain.attributes, np.unravel_index(cell, domain.shape), strict=True
        ):  # as the code lists have them
            values = ("" if value == NO_VALUE else value for value in attribute.values)
            columns[attribute.name] = word_column(index, values)
        return pa.table(columns, schema=self.schema)


def write_microdata(folder: Path, people: Microdata) -> int:
    """Write one row a person; returns how many there are."""
    count = 0
    with pq.ParquetWriter(folder / MICRODATA, people.schema, compression="zstd") as writer:
        for rows in people.rows():
            writer.write_table(rows)
            count += rows.num_rows
    sync_file(folder / MICRODATA)
    return count


def microdata_faults(folder: Path, people: Microdata) -> Iterator[str]:
    """Whether the stored rows are those of the counts; it stops at the first that is not."""
    stored = Rows.of_parquet(folder / MICRODATA)
    plain = pa.schema([(name, pa.string()) for name in people.schema.names])
    if stored.schema != plain:
        yield f"{MICRODATA}: its columns are not the levels and attributes of this release"
        return
    for rows in people.rows():
        if not stored.take(rows.num_rows).equals(rows.cast(plain).combine_chunks()):
            yield f"{MICRODATA}: its people are not those of the published counts"
            return
    if stored.take(1).num_rows:
        yield f"{MICRODATA}: has more people than the published counts"
