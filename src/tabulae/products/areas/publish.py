"""Write the release of a geography from its stored measurements, some areas at a time."""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ...errors import ReleaseError
from ...release import folder as f
from ...release.folder import PublishedRows, TableWriter, plain
from ...release.progress import Progress, Say, quiet
from ...release.write import csv_resource, data_package, write_documents
from ...spec import Spec
from ...spec.promise import SPARSE
from ..implicates import ABOUT, FILE
from ..product import Charged
from .constraints import FREE, NO_LIMIT, EarlierMargin
from .estimate import SpineEstimate
from .figures import area_figure_faults, figure_counts, figure_resource, write_area_figures
from .microdata import microdata_faults, write_microdata
from .posterior import posterior_faults, write_posterior
from .sparse.cells import SparseCounts
from .sparse.descend import estimate_supported
from .sparse.store import COUNTS, SparseEstimate, StoredAnswers
from .spec.section import geography_of
from .spec.sparse import SparseSection
from .spine_plan import SpinePlan
from .store import plan_document
from .tables import (
    AREA_COLUMNS,
    GLS_ESTIMATE,
    POSTERIOR,
    UNBIASED,
    SpineRelease,
    areas_of,
    earlier_of,
    exact_of,
    table_schemas,
)
from .turns import ahead

README = "README.md"
_STATUS = "A estimated, E exact: nobody can be there, or exact counts determine it"
_OWN = {
    "area_type": "type of area: a level, or a kind of entity",
    "area": "code of the area",
    "obs_status": _STATUS,
}
_NUMBERS = {
    "estimate": "count by gls: unbiased, may be fractional or negative",
    "std_error": "standard error of the gls estimate, from the noise alone",
    "ci_low": "lower end of the interval of gls, whole",
    "ci_high": "upper end of the interval of gls, whole",
    "credible_low": "lower end of the credible interval of the posterior; empty where too few draws are effective",
    "credible_high": "upper end of the credible interval of the posterior; empty where too few draws are effective",
}


def write_spine(folder: Path, made: SpineRelease, charged: Charged, say: Say = quiet) -> None:
    """Write all but the measurement and the report: tables, codes, spec, ledger entries, descriptor, microdata."""
    spec, tables, areas = made.spec, made.geography.tables, areas_of(made.geography)
    write_documents(folder, spec, charged.entries)
    outside = {table.name: 0 for table in tables}
    done, every = 0, sum(sum(made.geography.rows(table).values()) for table in tables)
    schemas = table_schemas(tables, made.published.method)
    with ThreadPoolExecutor(1) as beside, TableWriter(folder / "tables", schemas) as writer:
        invented = (  # needs nothing of the tables: the second core has work
            beside.submit(write_microdata, folder, made.microdata) if made.geography.microdata else None
        )
        with ahead(made.publisher.rows(tables, areas)) as pieces:
            for name, rows in pieces:
                say(Progress("writing tables", done / every))
                writer.write(name, rows)
                outside[name] += _outside(rows)
                done += rows.num_rows
    f.sync_folder(folder / "tables")
    people = None if invented is None else invented.result()
    write_area_figures(folder, made)
    if made.posterior is not None:
        write_posterior(folder, made.posterior)
    about = {
        "release_id": charged.release_id,
        "interval_level": made.level,
        "obs_status": _STATUS,
        "method": made.published.method,
        **({} if made.published.method in (UNBIASED, SPARSE) else {_OUTSIDE: outside}),
        **_sizes(spec),
        "microdata": people,
        "unconverged": made.published.unconverged,
        "made_with": made_with(),
    }
    f.write_json(folder / f.DESCRIPTOR, _descriptor(spec, writer.schemas, about, charged.time))
    f.write_bytes(folder / README, _readme(spec, made.published.method, people).encode())


_OUTSIDE = "outside_intervals"
"""How many published whole numbers of each table lie outside of the interval beside them."""


def _outside(rows: pa.Table) -> int:
    estimate, low, high = (rows[name].to_numpy() for name in ("estimate", "ci_low", "ci_high"))
    return int(((estimate < low) | (estimate > high)).sum())  # none where intervals are empty


def _sizes(spec: Spec) -> dict[str, Any]:
    geography = geography_of(spec)
    earlier = [each.document for each in earlier_of(geography)]
    return {
        **({"earlier": earlier} if earlier else {}),
        **({"derived": figure_counts(spec)} if spec.derived else {}),
        "areas": {each.kind: len(each.codes) for each in areas_of(geography)},
        "rows": {table.name: sum(geography.rows(table).values()) for table in geography.tables},
    }


def spine_text_faults(folder: Path, spec: Spec, descriptor: Mapping[str, Any]) -> Iterator[str]:
    """Whether what describes the folder follows from the spec and the counts, one sentence a fault."""
    geography, about = geography_of(spec), descriptor["tabulae"]
    schemas = table_schemas(geography.tables, geography.estimate)
    sizes = {"method": geography.estimate, "obs_status": _STATUS, **_sizes(spec)}
    whole = _descriptor(spec, schemas, {**about, **sizes}, str(descriptor.get("created")))
    if whole != descriptor:
        yield f"{f.DESCRIPTOR}: does not describe the tables of {f.SPEC}"
    readme = _readme(spec, geography.estimate, about.get("microdata"))
    if not (folder / README).is_file():
        yield f"{README} is missing"
    elif (folder / README).read_bytes() != readme.encode():
        yield f"{README}: is not the one that was published"


def made_with() -> dict[str, str]:
    """What decides how floating-point numbers are rounded, and so, now and then, which whole number is published."""
    return {"numpy": version("numpy"), "numba": version("numba"), "machine": platform.machine()}


def _descriptor(
    spec: Spec, schemas: dict[str, pa.Schema], about: dict[str, Any], created: str
) -> dict[str, Any]:
    resources = [_resource(name, schema, about["method"]) for name, schema in schemas.items()]
    figures = (figure_resource(each) for each in spec.derived)
    return data_package(spec, [*resources, *figures], about, created)


def _resource(name: str, schema: pa.Schema, method: str) -> dict[str, Any]:
    words = [field.name for field in schema if pa.types.is_dictionary(field.type)]
    fields, key = (
        [_field(field, method) for field in schema],
        [word for word in words if word != "obs_status"],
    )
    return csv_resource(f"tables/{name}.csv", name, fields, key)


def _field(field: pa.Field, method: str) -> dict[str, Any]:
    numbers = dict(_NUMBERS)
    if method == SPARSE:
        numbers = dict.fromkeys(numbers, "empty: no error of this count is known") | {
            "estimate": "published count: whole, 0 or more, without a known error"
        }
    elif method != UNBIASED:
        numbers[GLS_ESTIMATE] = numbers["estimate"]
        numbers["estimate"] = (
            f"published count by {method}: whole, 0 or more; may lie outside of the interval"
        )
    described = {**_OWN, **numbers}.get(field.name)
    kind = "string" if pa.types.is_dictionary(field.type) else "number"
    if pa.types.is_integer(field.type):
        kind = "integer"
    limits = {"constraints": {"enum": ["A", "E"]}} if field.name == "obs_status" else {}
    return {"name": field.name, "type": kind, **({"description": described} if described else {}), **limits}


def _readme(spec: Spec, method: str, people: int | None) -> str:
    columns = ", ".join(f"`{name}`" for name in AREA_COLUMNS)
    lines = [
        f"# {spec.title or 'Release'}",
        "",
        "Counts of areas, published under differential privacy. `report.html` says what that promises.",
        "",
        "* `tables/NAME.csv` and `tables/NAME.parquet` hold the same rows: all areas of one type, then those of",
        f"  the next ({columns}). Add up areas of one type only.",
    ]
    if method == UNBIASED:
        lines += [
            "* `estimate` is unbiased, with its standard error and interval. It may be fractional or negative.",
        ]
    elif method == SPARSE:
        lines += [
            "* `estimate` is the published count, whole and 0 or more. No error of it is known: `std_error`, `ci_low`",
            "  and `ci_high` are empty. `counts.parquet` has every count of the smallest areas that is not 0, by the",
            "  number of its cell, the last attribute fastest.",
        ]
    else:
        lines += [
            f"* `estimate` is the published count, whole and 0 or more, made by {method}. `{GLS_ESTIMATE}` is the",
            "  unbiased estimate from the same measurements; `std_error`, `ci_low` and `ci_high` are of the latter.",
        ]
    if method == POSTERIOR:
        lines += [
            "* `credible_low` and `credible_high` are right on average over areas of all sizes, if the model holds.",
            f"  `{FILE}`: whole tables drawn given the measurements. Compute a figure from each `draw`, and take the",
            f"  mean; its variance over draws says how uncertain it is. `{ABOUT}`: how they were drawn.",
        ]
    lines.append(f"* `obs_status`: {_STATUS}.")
    if spec.derived:
        lines += [
            "* `derived/NAME.csv` and `derived/NAME.parquet`: ratios, means, medians and sums of the same counts, by",
            "  area. Where `obs_status` is Q a figure is not estimable, and its numbers are empty.",
        ]
    if people is not None:
        lines.append(
            "* `microdata.parquet`: one row for each person of the published counts; none of them is real."
        )
    lines += [
        "* `measurements/`: every noisy answer as it was drawn, and in `measurement.json` with which noise.",
        "* `datapackage.json`: the columns of each table. `codes/`: what codes mean. `spec.toml`: what was asked.",
        "",
        "`sha256sum --check SHA256SUMS` tells whether a file was altered, `tabulae check .` whether every number",
        "follows from the measurements.",
    ]
    return "\n".join(lines) + "\n"


_CELLS = 1 << 22  # about how many counts of leaves are held at a time


def spine_faults(folder: Path, spec: Spec, level: float) -> Iterator[str]:
    """What is wrong with a release of areas, one sentence a fault.

    Checks that noise, shares and queries are those of the spec; estimates anew from the measurements, and compares
    whole numbers exactly, others within rounding; and sees that published counts are 0 or more, keep every limit and
    exact count, and add up. Sparse counts are read, and compared with what their division gives from stored answers.
    """
    geography = geography_of(spec)
    stored, sparse = f.read_json(folder, f.MEASUREMENT), geography.sparse
    told = {key: value for key, value in stored.items() if key not in ("release_id", "unconverged")}
    if told != plan_document(geography.plan(), exact_of(geography), sparse and sparse.cells):
        yield f"{f.MEASUREMENT}: levels, queries or noise are not those of {f.SPEC}"
        return
    try:
        with tempfile.TemporaryDirectory(prefix="tabulae-") as work, ThreadPoolExecutor(1) as beside:
            made = SpineRelease.of(folder, spec, level, Path(work))
            people = beside.submit(_people_faults, folder, made)
            yield from _table_faults(folder, made)
            yield from area_figure_faults(folder, made)
            if made.published.method != UNBIASED:
                yield from constraint_faults(made.plan, made.published, made.exact)
            if isinstance(made.published, SparseEstimate) and sparse is not None:
                yield from _sparse_faults(folder, made.plan, sparse, made.published)
            yield from people.result()
            if made.posterior is not None:
                elsewhere = _made_elsewhere(folder)
                yield from (fault + elsewhere for fault in posterior_faults(folder, made.posterior))
    except ReleaseError as error:
        yield str(error)


def _people_faults(folder: Path, made: SpineRelease) -> list[str]:
    return list(microdata_faults(folder, made.microdata)) if made.geography.microdata else []


def _table_faults(folder: Path, made: SpineRelease) -> Iterator[str]:
    tables, method = made.geography.tables, made.published.method
    files = {
        name: PublishedRows(folder / "tables", name, plain(schema))
        for name, schema in table_schemas(tables, method).items()
    }
    sums: dict[str, dict[str, np.ndarray]] = {table.name: {} for table in tables}
    outside = {table.name: 0 for table in tables}
    cells = {table.name: table.margin.size for table in tables}
    with ahead(made.publisher.rows(tables, areas_of(made.geography))) as pieces:
        for name, rows in pieces:
            files[name].compare(rows)
            outside[name] += _outside(rows)
            kind = rows["area_type"][0].as_py()
            counts = rows["estimate"].to_numpy().reshape(-1, cells[name]).sum(axis=0)
            sums[name][kind] = sums[name].get(kind, 0) + counts
    told = f.read_json(folder, f.DESCRIPTOR)["tabulae"].get(_OUTSIDE)
    elsewhere = _made_elsewhere(folder)
    if method not in (UNBIASED, SPARSE) and told != outside:
        yield f"{f.DESCRIPTOR}: how many counts lie outside of their intervals is not what the tables say{elsewhere}"
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


def _sum_faults(name: str, sums: dict[str, np.ndarray], made: SpineRelease) -> Iterator[str]:
    """Whether the areas of every level hold the same people, as far as every leaf lies in a unit of each."""
    every = [kind for kind in sums if (made.geography.areas(kind)[1] >= 0).all()]
    for kind in every[1:]:
        apart = np.abs(sums[kind] - sums[every[0]])
        slack = 0 if made.published.method != UNBIASED else 1e-6 * (1 + np.abs(sums[kind]))
        if (apart > slack).any():
            yield f"tables/{name}: the areas of {kind} do not add up to those of {every[0]}"


def constraint_faults(
    plan: SpinePlan, estimate: SpineEstimate | SparseEstimate, exact_values: tuple[np.ndarray, ...]
) -> Iterator[str]:
    """Whether the counts of leaves are 0 or more, nowhere where nobody can be, within every limit, and exact in sum.

    Args:
        estimate: whole counts.
    """
    limits = estimate.constraints
    step = max(1, _CELLS // plan.layout.cell.size)
    exact = () if limits is None else limits.margins
    fixed = () if limits is None else limits.values(exact_values)
    sums = [np.zeros(values.shape, np.int64) for values in fixed]
    below = stray = outside = False
    for first in range(0, plan.spine.leaves, step):
        last = min(first + step, plan.spine.leaves)
        leaf, place, counts = estimate.leaf_cells(first, last)
        dense = place // plan.layout.algebra.cells
        below |= bool((counts < 0).any())
        stray |= not plan.support.has(leaf, dense).all()
        if limits is not None:
            part = np.zeros((last - first, len(limits.part_names)), np.int64)
            np.add.at(part, (leaf - first, limits.part[dense]), counts)
            lower, upper = limits.lower[first:last], limits.upper[first:last]
            outside |= bool(((part < lower) | ((part > upper) & (upper < NO_LIMIT))).any())
        for margin, total in zip(exact, sums, strict=True):
            unit = plan.spine.areas(margin.level).unit[leaf]
            some = unit >= 0
            np.add.at(total, (unit[some], margin.margin.label[dense[some]]), counts[some])
    if below:
        yield "some published count is below 0"
    if stray:
        yield "somebody is counted where nobody can be"
    if outside:
        yield "a count of a leaf is outside its limits"
    for margin, total, values in zip(exact, sums, fixed, strict=True):
        if ((total != values) & (values != FREE)).any():
            which = "those published before" if isinstance(margin, EarlierMargin) else "the exact ones"
            yield f"counts of {margin.margin.name} by {margin.level} are not {which}"


def _sparse_faults(
    folder: Path, plan: SpinePlan, sparse: SparseSection, published: SparseEstimate
) -> Iterator[str]:
    """Whether sparse counts keep what is held, and are what their division makes of the stored answers."""
    if sparse.held is not None:
        leaf, place, counts = published.leaf_cells(0, plan.spine.leaves)
        mine = SparseCounts.of(
            plan.spine.leaves, leaf, sparse.held.margin.rows(place).astype(np.int64), counts
        )
        if not mine.is_like(sparse.held.counts):
            yield f"counts of {sparse.held.margin.name} of leaves are not those published before"
    elsewhere = _made_elsewhere(folder)
    try:
        with StoredAnswers(folder, plan) as stored:
            found = estimate_supported(plan, sparse.cells, stored)
            stored.end()
    except ReleaseError as error:
        yield f"{error}{elsewhere}"
        return
    again = SparseEstimate.of(plan, found)
    if not again.leaves.is_like(published.leaves) or again.unconverged != published.unconverged:
        yield f"{COUNTS}: is not what the division makes of the answers in measurements/{elsewhere}"
