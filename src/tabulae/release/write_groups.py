"""Write the release of an adaptive tabulation from its stored measurements, piece by piece."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from .._version import VERSION
from ..adaptive import AdaptivePlan
from ..spec import Detailed, Spec
from . import folder as f
from .group_measurements import read_group_measurements
from .group_tables import TOTALS, group_tables
from .table_files import TableWriter
from .write import (
    code_lists,
    named_apart,
    slug,
    status_field,
)


def table_schemas(detailed: Detailed) -> dict[str, pa.Schema]:
    """Columns of each published table of groups."""
    words, number = pa.dictionary(pa.int32(), pa.string()), pa.float64()

    def schema(*names: str) -> pa.Schema:
        fields = [(name, words) for name in ("region_type", "region", "group", *names)]
        fields += [(name, number) for name in ("estimate", "std_error", "ci_low", "ci_high")]
        return pa.schema([*fields, ("obs_status", words)])

    tables = {rung.name: schema(*rung.columns) for rung in detailed.ladder.rungs}
    return {TOTALS: schema("label", "table"), **tables}


def write_groups(
    folder: Path,
    spec: Spec,
    plan: AdaptivePlan,
    ledger: list[dict[str, Any]],
    release_id: str,
    level: float,
) -> None:
    """Write everything but the measurement and the report: tables, codes, spec, ledger entries, descriptor."""
    assert spec.detailed is not None
    f.write_bytes(folder / f.SPEC, spec.published_text().encode())
    f.write_json(folder / f.LEDGER, ledger)
    for name, content in {**code_lists(spec.domain), **spec.files}.items():
        f.write_bytes(folder / name, content)
    chosen: list[Counter[str]] = [Counter() for _ in plan.levels]
    suppressed: Counter[int] = Counter()
    with TableWriter(folder / "tables", table_schemas(spec.detailed)) as tables:
        for piece in read_group_measurements(folder, plan):
            made = group_tables(plan.levels[piece.level], piece, spec.detailed.suppress, level)
            chosen[piece.level].update(made.chosen)
            suppressed[piece.level] += made.suppressed
            for name, rows in made.rows.items():
                tables.write(name, rows)
    f.sync_folder(folder / "tables")
    told = [
        {"level": at.name, "groups_by_table": dict(chosen[i]), "suppressed": suppressed[i]}
        for i, at in enumerate(plan.levels)
    ]
    about = {
        "version": VERSION,
        "release_id": release_id,
        "interval_level": level,
        "obs_status": "A estimated",
        "levels": told,
        "rows": dict(tables.rows),
    }
    f.write_json(folder / f.DESCRIPTOR, _descriptor(spec, tables.schemas, about))


def _descriptor(spec: Spec, schemas: dict[str, pa.Schema], about: dict[str, Any]) -> dict[str, Any]:
    """A Frictionless Data Package that names each table's columns, and what tabulae needs besides."""
    return {
        "profile": "tabular-data-package",
        "name": slug(spec.title),
        "title": spec.title,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "resources": named_apart([_resource(name, schema) for name, schema in schemas.items()]),
        "tabulae": about,
    }


def _resource(name: str, schema: pa.Schema) -> dict[str, Any]:
    words = [field.name for field in schema if pa.types.is_dictionary(field.type)]
    fields = [{"name": field.name, "type": "string" if field.name in words else "number"} for field in schema]
    fields[-1] = status_field("A estimated", ["A"])
    key = [word for word in words if word not in ("label", "table", "obs_status")]
    return {
        "name": slug(name),
        "title": name,
        "path": f"tables/{name}.csv",
        "profile": "tabular-data-resource",
        "format": "csv",
        "mediatype": "text/csv",
        "encoding": "utf-8",
        "schema": {"fields": fields, "primaryKey": key},
    }
