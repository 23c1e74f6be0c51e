"""Whether published tables follow from the measurements, and these from what the spec promises."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..domain import Invariants
from ..errors import ReleaseError
from ..measurement import Measurement
from ..spec import Spec
from . import folder as f
from .tables import EXACT, PublishedTable
from .write import (
    MeasuredRows,
    measured_rows,
    table_resources,
)

_ROUNDING = 1e-5  # share of a standard error by which two machines' sums may differ
_WORDS = {
    "law": "the noise is not of the law that the promise of {spec} asks for",
    "budget": "the budget is not that of {spec}",
    "neighbours": "the neighbours are not those of {spec}",
    "release_id": "the release id is not that of {descriptor}",
}


def measurement_faults(folder: Path, spec: Spec, measurement: Measurement, release_id: str) -> Iterator[str]:
    """What is wrong with how the tables were measured: their noise is that which the spec's promise asks for.

    Privacy:
        Calibration: each block's law is the one of the spec's loss at the exact sensitivity of the integer strategy
        that is published (:meth:`tabulae.Strategy.laws`).
    """
    laws = measurement.strategy.laws(spec.loss, spec.neighbours, spec.rows_per_unit)
    holds = {
        "law": tuple(measurement.laws) == tuple(laws),
        "budget": measurement.budget == spec.loss,
        "neighbours": measurement.neighbours == spec.neighbours,
        "release_id": measurement.release_id == release_id,
    }
    for what, held in holds.items():
        if not held:
            told = _WORDS[what].format(spec=f.SPEC, descriptor=f.DESCRIPTOR)
            yield f"{f.STRATEGY if what == 'law' else f.MEASUREMENT}: {told}"
    if not all(holds.values()):
        return
    files = f.read_json(folder, f.MEASUREMENT)["files"]
    for made, name in zip(measured_rows(measurement), files, strict=True):
        if not _same_rows(folder, name, made):
            yield f"{name}: its columns are not those of the measurement"


def _same_rows(folder: Path, name: str, made: MeasuredRows) -> bool:
    start = 0
    try:
        with pq.ParquetFile(folder / name) as file:
            for group in range(file.num_row_groups):
                stored = file.read_row_group(group)
                if not _same_part(stored, made.part(start, start + stored.num_rows)):
                    return False
                start += stored.num_rows
    except (OSError, pa.ArrowException) as error:
        raise ReleaseError(f"{name} of {folder} cannot be read: {error}") from None
    return start == len(made.values)


def _same_part(stored: pa.Table, made: pa.Table) -> bool:
    if stored.schema.names != made.schema.names or stored.num_rows != made.num_rows:
        return False
    words = stored["query_name"].cast(pa.string()).unique().to_pylist()
    if words != made["query_name"].cast(pa.string()).unique().to_pylist():
        return False
    whole = ("cell", "value", "scale_exponent")
    if not all(np.array_equal(stored[each].to_numpy(), made[each].to_numpy()) for each in whole):
        return False
    return np.allclose(stored["variance"].to_numpy(), made["variance"].to_numpy(), rtol=1e-9, atol=0)


def descriptor_faults(
    spec: Spec, descriptor: Mapping[str, Any], tables: Sequence[PublishedTable]
) -> Iterator[str]:
    """What is wrong with how the descriptor describes the tables."""
    own = [each for each in descriptor["resources"] if str(each.get("path", "")).startswith("tables/")]
    named = [{key: value for key, value in each.items() if key != "name"} for each in own]
    made = [
        {key: value for key, value in each.items() if key != "name"} for each in table_resources(spec, tables)
    ]
    if named != made:
        yield f"{f.DESCRIPTOR}: its tables are not described as {f.SPEC} has them"
    wider = {table.name: table.conservative for table in tables}
    if descriptor["tabulae"].get("conservative_intervals") != wider:
        yield f"{f.DESCRIPTOR}: the number of conservative intervals does not follow from the measurements"


def false_numbers(fresh: PublishedTable, stored: pa.Table, precision: float) -> Iterator[str]:
    """Columns of a stored table that differ from what the measurements say; exact rows may not differ at all."""
    made = fresh.arrow()
    if stored.schema.names != made.schema.names or stored.num_rows != made.num_rows:
        yield f"tables/{fresh.name}: does not have the rows and columns that {f.SPEC} asks for"
        return
    for name in (*fresh.columns, "obs_status"):
        if stored[name].to_pylist() != made[name].to_pylist():
            yield f"tables/{fresh.name}: {name} does not follow from the measurements"
    loose = max(precision, _ROUNDING) * fresh.std_error
    for name, apart in (("estimate", loose), ("std_error", 0.0), ("ci_low", loose), ("ci_high", loose)):
        values = made[name].to_numpy()
        allowed = np.where(fresh.status == EXACT, 0.0, 1e-6 + apart + 1e-6 * np.abs(values))
        if not (np.abs(stored[name].to_numpy() - values) <= allowed).all():
            yield f"tables/{fresh.name}: {name} does not follow from the measurements"


def contradictions(exact: Invariants, values: Sequence[np.ndarray]) -> list[str]:
    """Exact counts that no records have: one sentence each."""
    return [
        f"{f.INVARIANTS}: {exact.row_name(row)} contradicts {', '.join(map(exact.row_name, others[:4]))}"
        for row, others in exact.contradictions(values)
    ]
