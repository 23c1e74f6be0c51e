"""Numbers of a release that were edited, and checksums with them: a check finds them, and questions go unanswered."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import tabulae as tb
from tabulae._run import check_release
from tabulae.errors import ReleaseError
from tabulae.estimation import estimate
from tabulae.products.tables.publish import publish
from tabulae.release import seal


def _json(name: str, change: Callable[[Any], None]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        document = json.loads((folder / name).read_text())
        change(document)
        (folder / name).write_text(json.dumps(document))

    return edit


def _put(folder: Path, rows: pa.Table, name: str) -> None:
    pq.write_table(rows, folder / "tables" / f"{name}.parquet")
    pyarrow.csv.write_csv(rows, folder / "tables" / f"{name}.csv")


def _column(name: str, change: Callable[[pa.ChunkedArray], Any]) -> Callable[[Path], None]:
    """A column of the first table, in both of its files."""

    def edit(folder: Path) -> None:
        table = next(iter(tb.Release.read(folder).tables))
        rows = tb.Release.read(folder).tables[table]
        at = rows.schema.names.index(name) if name else 0
        changed = rows.set_column(at, rows.schema.names[at], pa.array(change(rows.column(at))))
        _put(folder, changed, table)

    return edit


def _smaller_noise(folder: Path) -> None:
    """Another law, and all tables as they would be under it."""
    _json("strategy/strategy.json", lambda d: d["blocks"][0]["law"].update(parameter="1/100"))(folder)
    release = tb.Release.read(folder)
    estimated = estimate(release.measurements[0], method=release.spec.method.estimate)
    for table in publish(estimated, release.spec.workload, release.level):
        _put(folder, table.arrow(), table.name)


def _variance(folder: Path) -> None:
    path = folder / "measurements" / "001.parquet"
    rows = pq.read_table(path)
    at = rows.schema.names.index("variance")
    pq.write_table(
        rows.set_column(at, "variance", pa.array([4 * v for v in rows["variance"].to_pylist()])), path
    )


EDITS: dict[str, tuple[Callable[[Path], None], str]] = {
    "law": (_smaller_noise, "the noise is not of the law"),
    "budget": (
        _json("measurements/measurement.json", lambda d: d["budget"].update(rho="1/500000")),
        "the budget is not that of spec.toml",
    ),
    "neighbours": (
        _json("measurements/measurement.json", lambda d: d.update(neighbours="replace")),
        "the neighbours are not those of spec.toml",
    ),
    "release id": (
        _json("measurements/measurement.json", lambda d: d.update(release_id="0" * 32)),
        "the release id is not that of datapackage.json",
    ),
    "variance": (_variance, "measurements/001.parquet: its columns are not those of the measurement"),
    "labels": (_column("", lambda c: c.to_pylist()[::-1]), "does not follow from the measurements"),
    "lower end": (_column("ci_low", lambda c: [v + 3 for v in c.to_pylist()]), "ci_low does not follow"),
    "upper end": (_column("ci_high", lambda c: [v + 3 for v in c.to_pylist()]), "ci_high does not follow"),
    "level": (
        _json("datapackage.json", lambda d: d["tabulae"].update(interval_level=0.99)),
        "published at 95%",
    ),
    "description": (
        _json("datapackage.json", lambda d: d["resources"][0].update(description="Published exactly.")),
        "its tables are not described",
    ),
    "conservative": (
        _json("datapackage.json", lambda d: d["tabulae"].update(conservative_intervals={})),
        "the number of conservative intervals",
    ),
}


def test_edited_numbers_are_found(village: Path) -> None:
    release = tb.run(village, village.parent / "release")
    assert check_release(release) == []
    for name, (edit, words) in EDITS.items():
        copy = village.parent / f"copy of {name}"
        shutil.copytree(release.path, copy)
        edit(copy)
        seal(copy)
        faults = check_release(tb.Release.read(copy))
        assert any(words in fault for fault in faults), (name, faults)


def test_altered_measurements_answer_nothing(village: Path) -> None:
    release = tb.run(village, village.parent / "release")
    sql = "SELECT COUNT(*) FROM people"
    assert release.query(sql).num_rows == 1
    (release.path / "tables").rename(release.path / "elsewhere")
    assert tb.Release.read(release.path).query(sql).num_rows == 1  # tables are not asked
    _variance(release.path)
    with pytest.raises(ReleaseError, match=r"answers nothing:\n.*001\.parquet was altered"):
        tb.Release.read(release.path).query(sql)
