"""The published tables of a release by the use of their columns: what names a row, numbers, and words beside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import ReleaseError
from ..products.groups.publish import TOTALS
from ..release import Release

STATUS = "obs_status"
TABLES, DERIVED = "tables", "derived"
LABEL = "label"
_BESIDE = (LABEL, "table")
"""Columns of the totals of groups that follow from its key: what the group is called, and which table it got."""


@dataclass(frozen=True, eq=False)
class StoredTable:
    """One published table: where it is, its columns by their use, and what stands in those that name its rows.

    Args:
        folder: ``tables`` or ``derived``.
        name: of the table.
        title: what people call it.
        path: of its Parquet file.
        keys: columns that name a row together: attributes, areas, groups.
        beside: other columns of words, which follow from the keys.
        numbers: columns of numbers, with their types.
        values: key column -> the values in it, in the order in which they first appear.
        parts: the values of the first key where the table has rows of several kinds of area; else empty.
        rows: how many rows it has.
    """

    folder: str
    name: str
    title: str
    path: Path
    keys: tuple[str, ...]
    beside: tuple[str, ...]
    numbers: Mapping[str, pa.DataType]
    values: Mapping[str, tuple[str, ...]]
    parts: tuple[str, ...]
    rows: int

    @property
    def words(self) -> tuple[str, ...]:
        """All columns of words, the status last."""
        return (*self.keys, *self.beside, STATUS)

    @property
    def remarks(self) -> tuple[str, ...]:
        """Columns beside the keys that are no names of their categories."""
        return tuple(word for word in self.beside if word != LABEL)

    def batches(self, part: str | None = None) -> Iterator[pa.RecordBatch]:
        """The rows in order, row group by row group, words by dictionary; of one part alone where it is named.

        Raises:
            ReleaseError: the file cannot be read.
        """
        for batch in _batches(self.path, self.words):
            chosen = batch if part is None else batch.filter(_equal(batch.column(self.keys[0]), part))
            if chosen.num_rows:
                yield chosen

    def of_part(self, part: str) -> StoredTable:
        """The same table, of which only the rows of one kind of area are looked at."""
        values, rows = _scan(self.path, self.keys, part)
        return replace(self, values=values, parts=(), rows=rows)


def stored_tables(release: Release) -> list[StoredTable]:
    """All tables of a release, those computed from others last.

    Raises:
        ReleaseError: one of them cannot be read.
    """
    titles = {resource["path"]: resource["title"] for resource in release.descriptor["resources"]}
    placed = release.spec.geography is not None or release.spec.detailed is not None
    made = []
    for folder, names in ((TABLES, release.tables), (DERIVED, release.derived)):
        for name in names:
            beside = _BESIDE if release.spec.detailed is not None and name == TOTALS else ()
            table = _stored(release.path / folder / f"{name}.parquet", beside)
            title = titles.get(f"{folder}/{name}.csv", name)
            parts = table.values[table.keys[0]] if placed else ()
            made.append(replace(table, folder=folder, name=name, title=title, parts=parts))
    return made


def _stored(path: Path, beside: tuple[str, ...]) -> StoredTable:
    """A table as its file has it."""
    try:
        schema = pq.read_schema(path)
    except (OSError, pa.ArrowException) as error:
        raise ReleaseError(f"{path} cannot be read: {error}") from None
    numbers = {field.name: field.type for field in schema if _is_number(field.type)}
    words = [field for field in schema.names if field not in numbers and field != STATUS]
    keys = tuple(word for word in words if word not in beside)
    values, rows = _scan(path, keys, None)
    return StoredTable("", path.stem, path.stem, path, keys, beside, numbers, values, (), rows)


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_floating(kind) or pa.types.is_integer(kind)


def _scan(path: Path, keys: tuple[str, ...], part: str | None) -> tuple[dict[str, tuple[str, ...]], int]:
    """What stands in each key column, in order of first appearance, and how many rows there are."""
    found: dict[str, dict[str, None]] = {key: {} for key in keys}
    rows = 0
    for batch in _batches(path, keys, columns=keys or None):
        chosen = batch if part is None else batch.filter(_equal(batch.column(keys[0]), part))
        rows += chosen.num_rows
        for key, seen in found.items():
            seen.update(dict.fromkeys(chosen.column(key).unique().cast(pa.string()).to_pylist()))
    return {key: tuple(seen) for key, seen in found.items()}, rows


def _batches(
    path: Path, words: tuple[str, ...], columns: tuple[str, ...] | None = None
) -> Iterator[pa.RecordBatch]:
    try:
        with pq.ParquetFile(path, read_dictionary=list(words)) as file:
            yield from file.iter_batches(columns=None if columns is None else list(columns))
    except (OSError, pa.ArrowException) as error:
        raise ReleaseError(f"{path} cannot be read: {error}") from None


def _equal(column: pa.DictionaryArray, value: str) -> pa.Array:
    """Which rows have a value."""
    position = column.dictionary.index(value).as_py()
    return pa.array(column.indices.to_numpy() == position)


def translated(column: pa.DictionaryArray, meaning: Mapping[str, str]) -> pa.Array:
    """A column of words with each word replaced by what it means; its dictionary may have more words than occur."""
    words = pa.array([meaning.get(word) for word in column.dictionary.to_pylist()], pa.string())
    return pa.DictionaryArray.from_arrays(column.indices, words).cast(pa.string())
