"""Invented people, one row each, whose counts are exactly the published ones: written and compared piece by piece."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..geography.layout import Layout
from ..spec import NO_VALUE
from .rows import Rows
from .table_files import sync_file

FILE = "microdata.parquet"
_CELLS = 1 << 22  # about how many counts are held at a time


class LeafCounts(Protocol):
    """Whole counts of every cell of every leaf."""

    def leaf_counts(self, first: int, last: int) -> np.ndarray:
        """Shape (last - first, D, N): those of some leaves, 0 for cells that cannot occur in them."""
        ...


@dataclass(frozen=True, eq=False)
class Microdata:
    """Rows of people from counts of cells: by leaf, then by cell in the order of the domain.

    Args:
        layout: of the cells.
        codes: name of a level -> the code of each leaf's unit there; the leaves' own last.
        counts: of the cells.
    """

    layout: Layout
    codes: Mapping[str, np.ndarray]
    counts: LeafCounts

    @property
    def schema(self) -> pa.Schema:
        """A column for each level and for each attribute."""
        names = [*self.codes, *self.layout.domain.names]
        return pa.schema([(name, pa.dictionary(pa.int32(), pa.string())) for name in names])

    def rows(self) -> Iterator[pa.Table]:
        """All rows, those of some leaves at a time."""
        leaves = len(next(iter(self.codes.values())))
        step = max(1, _CELLS // self.layout.cell.size)
        for first in range(0, leaves, step):
            yield self._rows(first, min(first + step, leaves))

    def _rows(self, first: int, last: int) -> pa.Table:
        counts = self.counts.leaf_counts(first, last).reshape(last - first, -1)
        counts = counts[:, np.argsort(self.layout.cell.ravel())]
        leaf, cell = np.nonzero(counts)
        people = counts[leaf, cell]
        leaf, cell = np.repeat(leaf, people), np.repeat(np.sort(self.layout.cell.ravel())[cell], people)
        columns = {}
        for name, codes in self.codes.items():
            words, index = np.unique(codes[first:last].astype(str), return_inverse=True)
            columns[name] = _words(index[leaf], words.tolist())
        domain = self.layout.domain
        for attribute, index in zip(
            domain.attributes, np.unravel_index(cell, domain.shape), strict=True
        ):  # as the code lists have them
            values = ["" if value == NO_VALUE else str(value) for value in attribute.values]
            columns[attribute.name] = _words(index, values)
        return pa.table(columns, schema=self.schema)


def _words(index: np.ndarray, words: list[str]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(index.astype(np.int32), pa.array(words, pa.string()))


def write_microdata(folder: Path, people: Microdata) -> int:
    """Write one row a person; returns how many there are."""
    count = 0
    with pq.ParquetWriter(folder / FILE, people.schema, compression="zstd") as writer:
        for rows in people.rows():
            writer.write_table(rows)
            count += rows.num_rows
    sync_file(folder / FILE)
    return count


def microdata_faults(folder: Path, people: Microdata) -> Iterator[str]:
    """Whether the stored rows are those of the counts; it stops at the first that is not.

    Raises:
        ReleaseError: the file cannot be read.
    """
    stored = Rows.of_parquet(folder / FILE)
    plain = pa.schema([(name, pa.string()) for name in people.schema.names])
    if stored.schema != plain:
        yield f"{FILE}: its columns are not the levels and attributes of this release"
        return
    for rows in people.rows():
        if not stored.take(rows.num_rows).equals(rows.cast(plain).combine_chunks()):
            yield f"{FILE}: its people are not those of the published counts"
            return
    if stored.take(1).num_rows:
        yield f"{FILE}: has more people than the published counts"
