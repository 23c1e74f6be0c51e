"""A release as SDMX-CSV 2.0: one file of observations a table, and the structures that describe them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

from ..domain.attribute import TOTAL_LABEL
from ..release import Release
from ..release.folder import write_bytes, write_json
from ..release.rows import close_all
from ..release.table_files import sync_file
from .categories import CodeLists
from .readme import sdmx_readme
from .sdmx_structure import (
    AGENCY,
    RELEASE_STATUS,
    SDMX_STATUS,
    VERSION,
    Structures,
    dimensions,
    measure,
    structure_message,
    structures,
)
from .statuses import STATUSES
from .stored import (
    STATUS,
    StoredTable,
    translated,
)

_INFORMATION = "I"  # the action of data that are neither appended nor replaced


def write_sdmx_csv(release: Release, tables: list[StoredTable], lists: CodeLists, folder: Path) -> None:
    """Write ``tables/NAME.csv``, ``derived/NAME.csv``, ``structure.json`` and ``README.md``."""
    names = structures(tables)
    write_json(folder / "structure.json", structure_message(release, tables, lists, names))
    for table in tables:
        codes = {key: {v: lists[key][v].identifier for v in table.values[key]} for key in table.keys}
        _write(table, codes, names, folder / f"{table.folder}/{table.name}.csv")
    write_bytes(folder / "README.md", sdmx_readme(release, tables).encode())


def _write(table: StoredTable, codes: Mapping[str, Mapping[str, str]], names: Structures, path: Path) -> None:
    flow = f"{AGENCY}:{names.flows[table.folder, table.name]}({VERSION})"
    schema = _schema(table, names)
    path.parent.mkdir(exist_ok=True)
    with path.open("wb") as file:
        writer, failed = pyarrow.csv.CSVWriter(file, schema), True
        try:
            for batch in table.batches():
                writer.write_batch(_rows(batch, table, codes, flow, schema))
            failed = False
        finally:
            close_all([writer], failed=failed)
    sync_file(path)


def _schema(table: StoredTable, names: Structures) -> pa.Schema:
    """Columns in the order of the format: what it is of, dimensions, measure, attributes."""
    word = pa.string()
    fields = [(name, word) for name in ("STRUCTURE", "STRUCTURE_ID", "ACTION")]
    fields += [(name, word) for name in dimensions(table, names)]
    fields += [(measure(name), kind) for name, kind in table.numbers.items()]
    fields += [(names.components[name], word) for name in table.remarks]
    return pa.schema([*fields, (SDMX_STATUS, word), (RELEASE_STATUS, word)])


def _rows(
    batch: pa.RecordBatch,
    table: StoredTable,
    codes: Mapping[str, Mapping[str, str]],
    flow: str,
    schema: pa.Schema,
) -> pa.RecordBatch:
    arrays = [pa.repeat(word, batch.num_rows) for word in ("dataflow", flow, _INFORMATION)]
    keys = [translated(batch.column(key), codes[key]) for key in table.keys]
    arrays += keys or [pa.repeat(TOTAL_LABEL, batch.num_rows)]
    arrays += [_finite(batch.column(name)) for name in table.numbers]
    arrays += [batch.column(name).cast(pa.string()) for name in table.remarks]
    arrays.append(translated(batch.column(STATUS), {k: status.sdmx for k, status in STATUSES.items()}))
    arrays.append(batch.column(STATUS).cast(pa.string()))
    return pa.record_batch(arrays, schema=schema)


def _finite(numbers: pa.Array) -> pa.Array:
    """Numbers as they are; what is no number is left out, as the format has it."""
    if pa.types.is_integer(numbers.type):
        return numbers
    values = numbers.to_numpy(zero_copy_only=False)
    return pa.array(values, numbers.type, mask=~np.isfinite(values))
