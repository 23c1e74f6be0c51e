"""The folder ``derived/``: figures that are computed from the same measurements as the tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ..estimation import Estimate
from ..spec import Spec
from . import folder as f
from .agreement import csv_faults
from .figures import PublishedFigure, publish_figure
from .tables import EXACT, NOT_ESTIMABLE
from .write import (
    named_apart,
    parquet_bytes,
    plain_csv,
    resource_of,
)

FOLDER = "derived"
_ROUNDING = 1e-5  # share of a standard error by which two machines' sums may differ
_NUMBERS = ("estimate", "std_error", "ci_low", "ci_high")


def publish_derived(estimate: Estimate, spec: Spec, level: float) -> list[PublishedFigure]:
    """The derived figures of a spec, in its order.

    Raises:
        NotEstimable: the measurements do not determine a count that one of them takes.
    """
    return [publish_figure(estimate, derived.figure, level) for derived in spec.derived]


def write_derived(folder: Path, spec: Spec, figures: Sequence[PublishedFigure]) -> None:
    """Write the files of derived figures, and name them in the descriptor.

    Privacy:
        Post-processing of published estimates (Dwork, Roth 2014, Proposition 2.1): nothing of the records enters.
    """
    if not figures:
        return
    for figure in figures:
        rows = figure.arrow()
        f.write_bytes(folder / FOLDER / f"{figure.name}.parquet", parquet_bytes(rows))
        f.write_bytes(folder / FOLDER / f"{figure.name}.csv", plain_csv(rows))
    descriptor = f.read_json(folder, f.DESCRIPTOR)
    told = {derived.name: derived for derived in spec.derived}
    for figure in figures:
        resource = resource_of(FOLDER, figure.name, list(figure.columns), told[figure.name].figure.sql)
        descriptor["resources"].append(resource | {"title": told[figure.name].title})
    descriptor["resources"] = named_apart(descriptor["resources"])
    descriptor["tabulae"]["derived"] = {figure.name: figure.conservative for figure in figures}
    f.write_json(folder / f.DESCRIPTOR, descriptor)


def is_derived(resource: Mapping[str, Any]) -> bool:
    """Whether an entry of the descriptor is of a derived figure."""
    return str(resource["path"]).startswith(f"{FOLDER}/")


def derived_faults(
    folder: Path, spec: Spec, stored: Mapping[str, pa.Table], estimate: Estimate, level: float
) -> Iterator[str]:
    """What is wrong with the stored figures: one sentence a fault. They are computed afresh from the measurements."""
    if set(stored) != {derived.name for derived in spec.derived}:
        yield f"{f.DESCRIPTOR}: its derived figures are not those of {f.SPEC}"
        return
    for fresh in publish_derived(estimate, spec, level):
        yield from csv_faults(folder, fresh.name, stored[fresh.name], FOLDER)
        yield from _false_numbers(fresh, stored[fresh.name], estimate.precision)


def _false_numbers(fresh: PublishedFigure, stored: pa.Table, precision: float) -> Iterator[str]:
    """Columns of a stored figure that differ from what the measurements say."""
    made = fresh.arrow()
    if stored.schema.names != made.schema.names or stored.num_rows != made.num_rows:
        yield f"{FOLDER}/{fresh.name}: does not have the rows and columns of its statement"
        return
    for name in (*fresh.columns, "obs_status"):
        if stored[name].to_pylist() != made[name].to_pylist():
            yield f"{FOLDER}/{fresh.name}: {name} does not follow from the measurements"
    known = fresh.status != NOT_ESTIMABLE
    error = np.where(known, fresh.std_error, 0.0)
    loose = max(precision, _ROUNDING) * error + (fresh.grain if precision else 0.0)
    for name in _NUMBERS:
        values = np.where(known, getattr(fresh, name), 0.0)
        allowed = 1e-6 * np.abs(values) + np.where(fresh.status == EXACT, 0.0, loose) + 1e-9
        found = stored[name].to_numpy().astype(float)
        if (np.isfinite(found) != known).any() or (
            np.abs(np.where(known, found, 0.0) - values) > allowed
        ).any():
            yield f"{FOLDER}/{fresh.name}: {name} does not follow from the measurements"
