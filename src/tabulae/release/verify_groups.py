"""Whether a release of groups is as it was published: every number follows from the measurements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from ..adaptive import AdaptivePlan
from ..errors import ReleaseError
from ..spec import Detailed
from . import folder as f
from .group_measurements import plan_document, read_group_measurements
from .group_tables import GroupTables, group_tables
from .table_files import PublishedRows, plain
from .write_groups import table_schemas


def group_faults(folder: Path, detailed: Detailed, plan: AdaptivePlan, confidence: float) -> Iterator[str]:
    """What is wrong with a release of groups, one sentence a fault; it stops at the first of each table.

    Checks that noise, stability and budgets are those of the spec, that each table is the one that the noisy count of
    stage one chose, and every published number against the measurements.
    """
    stored = f.read_json(folder, f.MEASUREMENT)
    if {key: value for key, value in stored.items() if key != "release_id"} != plan_document(plan):
        yield f"{f.MEASUREMENT}: levels, noise or stability are not those of {f.SPEC}"
        return
    files = {
        name: PublishedRows(folder / "tables", name, plain(schema))
        for name, schema in table_schemas(detailed).items()
    }
    chosen: list[Counter[str]] = [Counter() for _ in plan.levels]
    try:
        for piece in read_group_measurements(folder, plan):
            made = group_tables(plan.levels[piece.level], piece, detailed.suppress, confidence)
            chosen[piece.level].update(made.chosen)
            _compare(files, made)
        for file in files.values():
            file.end()
    except ReleaseError as error:
        yield str(error)
        return
    yield from (fault for file in files.values() for fault in file.faults)
    told = [entry["groups_by_table"] for entry in f.read_json(folder, f.DESCRIPTOR)["tabulae"]["levels"]]
    if told != [dict(count) for count in chosen]:
        yield f"{f.DESCRIPTOR}: how many groups got which table is not what the measurements say"


def _compare(files: dict[str, PublishedRows], made: GroupTables) -> None:
    for name, rows in made.rows.items():
        files[name].compare(rows)
