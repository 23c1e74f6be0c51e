"""Faults of disks, files, servers and clusters while a release is made: it recovers, or refuses cleanly.

Clean means: exit code 1 and words, no traceback; nothing charged, or a charge whose noise is lost and that stays spent;
no release and no temporary files; and noise that was stored is never drawn again.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.csv
import pytest
from psycopg import sql
from pyarrow import parquet
from tests.cli.test_cli import _call, _fails
from tests.engines.conftest import on_server
from tests.engines.server import Server
from tests.engines.test_groups import counted, crowd, table_of
from tests.guild import people
from tests.passages import changed

import tabulae as tb
from tabulae.errors import MissingDependency
from tabulae.products.groups import count as group_coding
from tabulae.sources.engines.spark import java_home
from tabulae.sources.source import RecordSource, batches

ROOT = Path(__file__).parents[2]
COUNTING, NOISE, STORED = "nothing was charged", "noise is lost", "noise is stored"
STAGES = {
    "guild": {
        "counting": ("tabulae.products.groups.product.open_group_records", COUNTING),
        "coding": ("tabulae.products.groups.count.CodedSource._code", COUNTING),
        "charging": ("tabulae.privacy.ledger.Ledger.charge", COUNTING),
        "drawing": ("tabulae.products.groups.measure._measured", NOISE),
        "storing": ("tabulae.products.groups.store.GroupMeasurementWriter.finish", NOISE),
        "estimating": ("tabulae.products.groups.product.write_groups", STORED),
        "sealing": ("tabulae._run.seal_with_report", STORED),
        "settling": ("tabulae.privacy.ledger.Ledger.settle", STORED),
    },
    "duchy": {
        "counting": ("tabulae.products.areas.product.open_spine_records", COUNTING),
        "charging": ("tabulae.privacy.ledger.Ledger.charge", COUNTING),
        "storing": ("tabulae.products.areas.store.SpineMeasurementWriter.__call__", NOISE),
        "estimating": ("tabulae.products.areas.tables.estimate_spine", STORED),
        "dividing": ("tabulae.products.areas.descent.descent.Descent.divide", STORED),
        "writing": ("tabulae.products.areas.product.write_spine", STORED),
        "settling": ("tabulae.privacy.ledger.Ledger.settle", STORED),
    },
    "village": {
        "charging": ("tabulae.privacy.ledger.Ledger.charge", COUNTING),
        "storing": ("tabulae.products.tables.store.MeasurementWriter.finish", NOISE),
        "writing": ("tabulae.products.tables.product.write_contents", STORED),
        "sealing": ("tabulae._run.seal_with_report", STORED),
        "settling": ("tabulae.privacy.ledger.Ledger.settle", STORED),
    },
}
FULL_DISK = (
    *("unshare", "--mount", *(["--user", "--map-root-user"] if os.geteuid() else []), "sh", "-c"),
    'mount -t tmpfs -o size=24m tmpfs "$0" && exec "$@"',
)


def _program(*command: str, **surroundings: str) -> Any:
    """What a program of these tests prints; it prints nothing else."""
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
        "OPENBLAS_NUM_THREADS": "1",
    }
    done = subprocess.run(
        command, cwd=ROOT, env=environment | surroundings, capture_output=True, text=True, timeout=900
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return json.loads(done.stdout)


# disks ---------------------------------------------------------------------------------------------------
@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "full", "some"),
    [
        pytest.param("duchy", "limit", ("charging", "storing", "dividing"), marks=pytest.mark.long),
        ("guild", "disk", ("storing", "sealing")),
        pytest.param("guild", "limit", None, marks=pytest.mark.long),
        pytest.param("duchy", "limit", None, marks=pytest.mark.long),
        pytest.param("village", "limit", None, marks=pytest.mark.long),
        pytest.param("guild", "disk", None, marks=pytest.mark.long),
        pytest.param("duchy", "disk", None, marks=pytest.mark.long),
    ],
)
def test_a_disk_that_is_full_from_some_stage_on(
    tmp_path: Path, kind: str, full: str, some: tuple[str, ...] | None
) -> None:
    """Once by a limit on the size of files, which every system has, and once on a disk that is full."""
    stages = {stage: target for stage, (target, _) in STAGES[kind].items() if stage in (some or STAGES[kind])}
    command = (sys.executable, "-m", "tests.engines.disk", str(tmp_path), kind, json.dumps(stages))
    if full == "disk":
        _require_disk(tmp_path)
        command = (*FULL_DISK, str(tmp_path), *command)
    rows = _program(*command, FULL=full)
    assert [row["stage"] for row in rows] == list(stages)
    for row in rows:
        _check_full(row, STAGES[kind][row["stage"]][1])


def _require_disk(folder: Path) -> None:
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare")
    if subprocess.run((*FULL_DISK, str(folder), "true"), capture_output=True).returncode:
        pytest.skip("may not mount a disk of its own")


def _check_full(row: dict[str, Any], fate: str) -> None:
    first, then = row["first"], row["then"]
    assert row["reached"], row
    for seen in (first, then):
        assert seen["raised"] in (None, "SystemExit"), row
        assert "Traceback" not in seen["output"]
        assert (seen["faults"], seen["temporary"]) == ([], []), row
    assert first["code"] == 1, row
    if fate == COUNTING:
        assert (first["charges"], first["published"]) == ([], False), row
        assert "measurement.json" not in first["measured"], row
        # A ledger that cannot be read after it was asked leaves the run to be resumed, which sees what was charged.
        left = [".release.partial"] if row["stage"] == "charging" else []
        assert first["left"] in ([], left), row
        assert (then["code"], then["charges"]) == ((0, ["published"]) if first["left"] else (1, [])), row
    elif fate == NOISE:
        assert first["charges"] in (["charged"], ["void"]), row
        assert (first["published"], first["left"], first["measured"]) == (False, [], {}), row
        assert "Nothing was published" in first["output"], row
        assert "stays spent" in first["output"], row
        assert (then["code"], then["published"], len(then["charges"])) == (1, False, 1), row
    else:
        assert first["charges"] == ["charged"], row
        assert first["measured"], row
        assert "--resume" in first["output"], row
        assert (then["code"], then["charges"], then["published"]) == (0, ["published"], True), row
        assert then["measured"] == first["measured"], row


# files ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "engine", ["duckdb", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.long])]
)
def test_a_truncated_parquet_file(village: Path, engine: str, request: pytest.FixtureRequest) -> None:
    if engine == "spark":
        request.getfixturevalue("spark")
    folder = village.parent
    whole = folder / "whole.parquet"
    parquet.write_table(pyarrow.csv.read_csv(folder / "people.csv"), whole, row_group_size=50)
    changed(village, ('"people.csv"', f'"people.parquet"\nengine = "{engine}"'))
    written = whole.read_bytes()
    footer = int.from_bytes(written[-8:-4], "little") + 8
    kept = {
        "its end": written[: len(written) // 2],
        "its footer": written[:-1],
        "its middle": written[:400] + written[-footer:],
    }
    for lost, rest in kept.items():
        (folder / "people.parquet").write_bytes(rest)
        result = _call("run", village, "--out", folder / "release")
        _fails(result, 1, "people.parquet")
        assert tb.Ledger.open(folder / "ledger.db").charges() == [], lost
        assert sorted(path.name for path in folder.glob("*release*")) == [], lost
    (folder / "people.parquet").write_bytes(written)
    assert _call("run", village, "--out", folder / "release").exit_code == 0
    assert [charge.state for charge in tb.Ledger.open(folder / "ledger.db").charges()] == ["published"]


# servers -------------------------------------------------------------------------------------------------
def _guild_on(server: Server, guild: Path, name: str) -> None:
    """The guild's people as a table of a server, and its spec with them as the source."""
    rows = zip(*people(400), strict=True)
    columns = dict(zip(("TOWN", "SEX", "AGE", "ONE", "TWO"), map(list, rows), strict=True))
    source = on_server(server, name, pa.table(columns))
    text = guild.read_text().replace('path = "people.csv"', f'url = "{source.url}"\ntable = "{name}"')
    guild.write_text(text)


def _is_refused_and_then_made(guild: Path, refused: Any, server: Server) -> None:
    """What was refused cost nothing, and the same command makes the release when the server is back."""
    _fails(refused, 1, "the server ended the connection: run again when it is up")
    assert tb.Ledger.open(guild.parent / "ledger.db").charges() == []
    assert list(guild.parent.glob("*release*")) == []
    server.start()
    assert _call("run", guild, "--out", guild.parent / "release").exit_code == 0
    assert tb.Release.read(guild.parent / "release").verify() == []
    assert [charge.state for charge in tb.Ledger.open(guild.parent / "ledger.db").charges()] == ["published"]


@pytest.mark.long
@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_server_that_is_stopped_while_it_counts(guild: Path, postgresql: Server, mode: str) -> None:
    """Its statement waits for a lock of another session when the server stops: restarted, or as if it crashed."""
    _guild_on(postgresql, guild, f"seen_{mode}")
    seen, kept = sql.Identifier(f"seen_{mode}"), sql.Identifier(f"kept_{mode}")
    held = "(SELECT count(*) FROM (SELECT pg_advisory_xact_lock_shared(4711)) AS held) = 1"
    waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    with (
        psycopg.connect(postgresql.url(), autocommit=True) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        other.execute(sql.SQL("ALTER TABLE {} RENAME TO {}").format(seen, kept))
        other.execute(sql.SQL("CREATE VIEW {} AS SELECT * FROM {} WHERE " + held).format(seen, kept))
        other.execute("SELECT pg_advisory_lock(4711)")
        run = pool.submit(_call, "run", guild, "--out", guild.parent / "release")
        while other.execute(waiting).fetchone() == (0,):
            assert not run.done(), run.result().output
        postgresql.stop(mode)
        _is_refused_and_then_made(guild, run.result(), postgresql)


def test_a_server_that_is_stopped_while_counts_are_fetched(
    guild: Path, postgresql: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    _guild_on(postgresql, guild, "fetched")

    def stopped(table: Any) -> Iterator[pa.RecordBatch]:
        for i, batch in enumerate(batches(table)):
            if i == 1:
                postgresql.stop("immediate")
            yield batch

    with monkeypatch.context() as patched:
        patched.setattr("tabulae.sources.engines.postgresql._BYTES_AT_ONCE", 100)
        patched.setattr(group_coding, "batches", stopped)
        refused = _call("run", guild, "--out", guild.parent / "release")
    _is_refused_and_then_made(guild, refused, postgresql)


# clusters ------------------------------------------------------------------------------------------------
CLUSTER = """
spark.master local-cluster[2,1,512]
spark.executor.memory 512m
spark.sql.shuffle.partitions 4
spark.sql.adaptive.coalescePartitions.enabled false
spark.sql.execution.arrow.maxRecordsPerBatch 20
"""


@pytest.mark.long
@pytest.mark.spark
def test_a_cluster_of_which_parts_are_killed(tmp_path: Path) -> None:
    """What a lost executor had counted is counted again, to the same number; without its driver nothing is."""
    pytest.importorskip("pyspark")
    try:
        with java_home():
            pass
    except MissingDependency as error:
        pytest.skip(str(error))
    (tmp_path / "spark-defaults.conf").write_text(CLUSTER)
    parquet.write_table(table_of(crowd()), tmp_path / "people.parquet")
    whole = counted(RecordSource(tmp_path / "people.parquet"))
    found = _program(
        *(sys.executable, "-m", "tests.engines.cluster", str(tmp_path / "people.parquet")),
        SPARK_CONF_DIR=str(tmp_path),
    )
    assert [len(one["killed"]) for one in found.values()] == [1, 1, 1]
    for part in ("worker", "executor"):
        assert (found[part]["people"], found[part]["fingerprint"]) == (whole[0], whole[2].decode())
    assert found["driver"]["code"] == 1
    assert "ended before it was done: run again" in found["driver"]["error"]
