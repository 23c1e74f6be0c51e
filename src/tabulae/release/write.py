"""Write a release folder, file by file; nothing here has seen a record."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from .._version import VERSION
from ..domain import Attribute, Domain
from ..errors import ReleaseError
from ..measurement import Measurement
from ..spec import NO_VALUE, Spec
from ..strategy import (
    Block,
    describe_strategy,
    law_variances,
)
from . import folder as f
from .tables import PublishedTable

_ROWS = 2**20  # measured rows that are written together

_STATUS = "A estimated, E exact, Q not estimable"
_NUMBERS = {
    "estimate": "count; may be fractional or negative",
    "std_error": "standard error of the estimate, from the noise alone",
    "ci_low": "lower end of the interval",
    "ci_high": "upper end of the interval",
}


def write_measurement(folder: Path, measurement: Measurement) -> None:
    """Write strategy, measurements and exact counts; ``measurement.json`` comes last, its presence says "complete".

    Raises :class:`~tabulae.errors.ReleaseError` for a rehearsal: values that no ledger paid for, or that an
    insecure source drew, are not for publication.
    """
    if measurement.rehearsal or measurement.release_id is None:
        raise ReleaseError(
            "this measurement is a rehearsal, not for publication: measure with a ledger and secure noise"
        )
    document, arrays = describe_strategy(measurement.strategy)
    for name, array in arrays.items():
        f.write_bytes(folder / "strategy" / f"{name}.parquet", parquet_bytes(_entries(array)))
    document["arrays"] = {name: list(array.shape) for name, array in arrays.items()}
    for block, law in zip(document["blocks"], measurement.laws, strict=True):
        block["law"] = {
            "name": law.name,
            "parameter": str(law.parameter),
            "step": f"2^-{block['scale_exponent']}",
        }
    f.write_json(folder / f.STRATEGY, document)
    files = []
    for i, rows in enumerate(measured_rows(measurement)):
        files.append(f"measurements/{i + 1:03d}.parquet")
        rows.write(folder / files[-1])
    exact = []
    for table, values in zip(measurement.strategy.invariants, measurement.exact, strict=True):
        exact.append({"table": table.name, "file": f"{f.INVARIANTS}/{table.name}.parquet"})
        f.write_bytes(folder / exact[-1]["file"], parquet_bytes(_stated(values)))
    f.write_json(
        folder / f.MEASUREMENT,
        {
            "release_id": measurement.release_id,
            "neighbours": measurement.neighbours,
            "budget": promise_document(measurement),
            "files": files,
            **({"exact": exact} if exact else {}),
        },
    )
    for written in ("measurements", *((f.INVARIANTS,) if exact else ())):
        f.sync_folder(folder / written)


def promise_document(measurement: Measurement) -> dict[str, str]:
    """The loss as exact strings."""
    loss = measurement.budget
    return {"definition": loss.definition, **{name: str(value) for name, value in loss.parameters.items()}}


@dataclass(frozen=True, eq=False)
class MeasuredRows:
    """The noisy answers of one block as they are published: integers (rows,), their variance in squared counts."""

    block: Block
    values: np.ndarray
    variance: float

    def part(self, start: int, stop: int) -> pa.Table:
        """Rows ``start`` to ``stop``."""
        part = self.values[start:stop]
        rows = len(part)
        return pa.table(
            {
                "query_name": pa.DictionaryArray.from_arrays(
                    np.zeros(rows, np.int32), pa.array([self.block.name])
                ),
                "cell": np.arange(start, start + rows, dtype=np.int64),
                "value": part,
                "scale_exponent": np.full(rows, self.block.exponent, dtype=np.int32),
                "variance": np.full(rows, self.variance),
            }
        )

    def write(self, path: Path) -> None:
        """Write them as a Parquet file, some rows at a time."""
        with f.drafted(path) as file:
            writer = pq.ParquetWriter(file, self.part(0, 0).schema, compression="zstd")
            for start in range(0, len(self.values), _ROWS):
                writer.write_table(self.part(start, start + _ROWS))
            writer.close()


def measured_rows(measurement: Measurement) -> list[MeasuredRows]:
    """The noisy answers of each block as they are published."""
    variances = law_variances(measurement.strategy, measurement.laws)
    blocks = zip(measurement.strategy.blocks, measurement.block_values(), variances, strict=True)
    return [MeasuredRows(block, values, float(variance)) for block, values, variance in blocks]


def _stated(values: np.ndarray) -> pa.Table:
    """Exact counts, one a row of their table."""
    return pa.table({"cell": np.arange(len(values), dtype=np.int64), "value": values})


def _entries(array: np.ndarray) -> pa.Table:
    """Non-zero entries of an integer matrix (or vector, as one column)."""
    matrix = array if array.ndim == 2 else array[:, None]
    row, column = np.nonzero(matrix)
    return pa.table({"row": row, "column": column, "value": matrix[row, column].astype(np.int64)})


def parquet_bytes(table: pa.Table) -> bytes:
    """A table as a Parquet file."""
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue()


def plain_csv(table: pa.Table) -> bytes:
    """A table as a CSV file."""
    sink = io.BytesIO()
    pyarrow.csv.write_csv(table, sink)
    return sink.getvalue()


def write_contents(
    folder: Path,
    spec: Spec,
    tables: list[PublishedTable],
    expected: Mapping[str, Mapping[str, Any]],
    ledger: list[dict[str, Any]],
    release_id: str,
    level: float,
    exact: Mapping[str, Any] | None = None,
) -> None:
    """Write everything but the measurement and the report: tables, codes, spec, ledger entries, descriptor.

    ``tables`` are those of the workload and of the invariants; ``exact`` says what the invariants give away.
    """
    f.write_bytes(folder / f.SPEC, spec.published_text().encode())
    f.write_json(folder / f.LEDGER, ledger)
    for name, content in {**code_lists(spec.domain), **spec.files}.items():
        f.write_bytes(folder / name, content)
    for table in tables:
        rows = table.arrow()
        f.write_bytes(folder / "tables" / f"{table.name}.parquet", parquet_bytes(rows))
        f.write_bytes(folder / "tables" / f"{table.name}.csv", plain_csv(rows))
    f.write_json(folder / f.DESCRIPTOR, _descriptor(spec, tables, expected, release_id, level, exact))


def code_lists(domain: Domain) -> dict[str, bytes]:
    """The code list of each attribute and recode, by the name of its file."""
    lists = {f"codes/{a.name}.csv": _code_list(a) for a in domain.attributes}
    for recode in domain.recodes:
        rows = [(label, label, "") for label in recode.labels]
        lists[f"codes/{recode.name}.csv"] = _csv_text(rows)
    return lists


def _code_list(attribute: Attribute) -> bytes:
    parents = attribute.parents or ("",) * attribute.size
    codes = ("" if value == NO_VALUE else str(value) for value in attribute.values)
    return _csv_text(list(zip(codes, attribute.labels, (p or "" for p in parents), strict=True)))


def _csv_text(rows: list[tuple[str, ...]]) -> bytes:
    names = ("code", "label", "parent")
    return plain_csv(pa.table({n: [row[i] for row in rows] for i, n in enumerate(names)}))


def _descriptor(
    spec: Spec,
    tables: list[PublishedTable],
    expected: Mapping[str, Mapping[str, Any]],
    release_id: str,
    level: float,
    exact: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """A Frictionless Data Package that names each table's columns, and what tabulae needs besides."""
    return {
        "profile": "tabular-data-package",
        "name": slug(spec.title),
        "title": spec.title,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "resources": table_resources(spec, tables),
        "tabulae": {
            "version": VERSION,
            "release_id": release_id,
            "interval_level": level,
            "obs_status": _STATUS,
            "expected": {t.name: dict(expected[t.name]) for t in tables if t.name in expected},
            "conservative_intervals": {t.name: t.conservative for t in tables},
            **({} if exact is None else {"exact": dict(exact)}),
        },
    }


def table_resources(spec: Spec, tables: Sequence[PublishedTable]) -> list[dict[str, Any]]:
    """The entries of a release's tables in the descriptor; an exact one says why it is."""
    reasons = {given.table.name: given.reason for given in spec.invariants}
    return named_apart([_resource(table, reasons.get(table.name)) for table in tables])


def _resource(table: PublishedTable, reason: str | None) -> dict[str, Any]:
    told = None if reason is None else f"Published exactly, without noise: {reason}"
    return resource_of("tables", table.name, list(table.columns), told)


def resource_of(folder: str, name: str, headings: list[str], description: str | None) -> dict[str, Any]:
    """The entry of one published CSV file in the descriptor."""
    fields: list[dict[str, Any]] = [{"name": heading, "type": "string"} for heading in headings]
    fields += [{"name": each, "type": "number", "description": told} for each, told in _NUMBERS.items()]
    fields += [status_field(_STATUS, ["A", "E", "Q"])]
    return {
        "name": slug(name),
        "title": name,
        **({} if description is None else {"description": description}),
        "path": f"{folder}/{name}.csv",
        "profile": "tabular-data-resource",
        "format": "csv",
        "mediatype": "text/csv",
        "encoding": "utf-8",
        "schema": {"fields": fields, "primaryKey": headings},
    }


def status_field(meaning: str, letters: list[str]) -> dict[str, Any]:
    """The column ``obs_status`` as descriptors have it."""
    return {
        "name": "obs_status",
        "type": "string",
        "description": meaning,
        "constraints": {"enum": letters},
    }


def named_apart(resources: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same resources, those of one name told apart by numbers: data packages ask for distinct names."""
    names: set[str] = set()
    apart = []
    for resource in resources:
        name, number = resource["name"], 2
        while name in names:
            name, number = f"{resource['name']}-{number}", number + 1
        names.add(name)
        apart.append(resource | {"name": name})
    return apart


def slug(text: str) -> str:
    """A name as data packages have it: small letters, digits, points and hyphens."""
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "-" for c in text.lower())
    return "-".join(filter(None, kept.split("-"))) or "release"


def seal(folder: Path) -> None:
    """Write the checksums over everything in the folder: the last step before it is put in place."""
    f.write_sums(folder)
    f.sync_folder(folder)
