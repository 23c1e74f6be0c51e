"""Whether a release of areas is as it was published: every number follows from the measurements, and all sums agree."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from ..errors import ReleaseError
from ..geography.spine_plan import SpinePlan
from ..spec import Spec, geography_of
from ..topdown.division import FREE, NO_LIMIT
from ..topdown.estimate import SpineEstimate
from . import folder as f
from .area_figures import area_figure_faults
from .microdata import microdata_faults
from .spine_document import plan_document
from .spine_estimates import (
    SpineRelease,
    areas_of,
    exact_of,
)
from .spine_tables import UNBIASED, table_schemas
from .table_files import PublishedRows, plain
from .write_spine import made_with

_CELLS = 1 << 22  # about how many counts of leaves are held at a time


def spine_faults(folder: Path, spec: Spec, level: float) -> Iterator[str]:
    """What is wrong with a release of areas, one sentence a fault.

    Checks that noise, shares and queries are those of the spec; estimates anew from the measurements, and compares
    whole numbers exactly, others within rounding; and sees that published counts are 0 or more, keep every limit and
    exact count, and add up.
    """
    geography = geography_of(spec)
    stored = f.read_json(folder, f.MEASUREMENT)
    if {key: value for key, value in stored.items() if key != "release_id"} != plan_document(
        geography.plan(), exact_of(geography)
    ):
        yield f"{f.MEASUREMENT}: levels, queries or noise are not those of {f.SPEC}"
        return
    try:
        with tempfile.TemporaryDirectory(prefix="tabulae-") as work:
            made = SpineRelease.of(folder, spec, level, Path(work))
            yield from _table_faults(folder, made)
            yield from area_figure_faults(folder, made)
            if made.published.method != UNBIASED:
                yield from constraint_faults(made.plan, made.published, made.exact)
            if geography.microdata:
                yield from microdata_faults(folder, made.microdata)
    except ReleaseError as error:
        yield str(error)


def _table_faults(folder: Path, made: SpineRelease) -> Iterator[str]:
    """Tables against estimates made anew."""
    tables, method = made.geography.tables, made.published.method
    files = {
        name: PublishedRows(folder / "tables", name, plain(schema))
        for name, schema in table_schemas(tables, method).items()
    }
    sums: dict[str, dict[str, np.ndarray]] = {table.name: {} for table in tables}
    cells = {table.name: table.margin.size for table in tables}
    for name, rows in made.publisher.rows(tables, areas_of(made.geography)):
        files[name].compare(rows)
        kind, counts = rows["area_type"][0].as_py(), _counts(rows, cells[name])
        sums[name][kind] = sums[name].get(kind, 0) + counts
    elsewhere = _made_elsewhere(folder)
    for file in files.values():
        file.end()
        yield from (fault + elsewhere for fault in file.faults)
    for name, by_kind in sums.items():
        whole = {kind: by_kind[kind] for kind in made.geography.levels if kind in by_kind}
        yield from _sum_faults(name, whole, made)


def _made_elsewhere(folder: Path) -> str:
    """A remark where the release was made with other arithmetic than here, by which whole numbers may differ."""
    told = f.read_json(folder, f.DESCRIPTOR)["tabulae"].get("made_with", {})
    if told == made_with():
        return ""
    words = ", ".join(f"{name} {value}" for name, value in told.items())
    return f"; it was made with {words}, which may have rounded differently: check it there"


def _counts(rows: pa.Table, cells: int) -> np.ndarray:
    """The sum of some areas' counts, cell by cell."""
    return rows["estimate"].to_numpy().reshape(-1, cells).sum(axis=0)


def _sum_faults(name: str, sums: dict[str, np.ndarray], made: SpineRelease) -> Iterator[str]:
    """Whether the areas of every level hold the same people, as far as every leaf lies in a unit of each."""
    every = [kind for kind in sums if (made.geography.areas(kind)[1] >= 0).all()]
    for kind in every[1:]:
        apart = np.abs(sums[kind] - sums[every[0]])
        slack = 0 if made.published.method != UNBIASED else 1e-6 * (1 + np.abs(sums[kind]))
        if (apart > slack).any():
            yield f"tables/{name}: the areas of {kind} do not add up to those of {every[0]}"


def constraint_faults(
    plan: SpinePlan, estimate: SpineEstimate, exact_values: tuple[np.ndarray, ...]
) -> Iterator[str]:
    """Whether the counts of leaves are 0 or more, nowhere where nobody can be, within every limit, and exact in sum.

    Args:
        plan: of the release.
        estimate: whole counts.
        exact_values: one array a margin, as measured.
    """
    limits = estimate.constraints
    step = max(1, _CELLS // plan.layout.cell.size)
    exact = () if limits is None else limits.exact
    sums = [np.zeros(values.shape, np.int64) for values in exact_values]
    below = stray = outside = False
    for first in range(0, plan.spine.leaves, step):
        last = min(first + step, plan.spine.leaves)
        counts = estimate.leaf_counts(first, last)
        dense = counts.sum(axis=2)
        below |= bool((counts < 0).any())
        stray |= bool(dense[~plan.support[first:last]].any())
        if limits is not None:
            part = _added(dense, limits.part, len(limits.part_names))
            lower, upper = limits.lower[first:last], limits.upper[first:last]
            outside |= bool(((part < lower) | ((part > upper) & (upper < NO_LIMIT))).any())
        for margin, total in zip(exact, sums, strict=True):
            unit = plan.spine.units[margin.level][first:last]
            np.add.at(total, unit, _added(dense, margin.margin.label, margin.margin.classes))
    if below:
        yield "some published count is below 0"
    if stray:
        yield "somebody is counted where nobody can be"
    if outside:
        yield "a count of a leaf is outside its limits"
    for margin, total, values in zip(exact, sums, exact_values, strict=True):
        if ((total != values) & (values != FREE)).any():
            yield f"counts of {margin.margin.name} by {margin.level} are not the exact ones"


def _added(dense: np.ndarray, label: np.ndarray, size: int) -> np.ndarray:
    """Shape (leaves, size): dense cells added up by their labels."""
    return dense @ (label[:, None] == np.arange(size)).astype(np.int64)
