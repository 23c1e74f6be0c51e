"""A release of areas on a cluster of several processes: the integers of one machine, whatever is killed on the way."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv
from tests.engines.standalone import STAGES, Standalone, main, published, standalone
from tests.passages import changed

import tabulae as tb
from tabulae.errors import MissingDependency

pytestmark = [pytest.mark.spark, pytest.mark.long]
MOST_MB = 3_000


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Standalone]:
    pytest.importorskip("pyspark")
    folder = tmp_path / "cluster"
    folder.mkdir()
    try:
        with standalone(folder) as made:
            yield made
    except MissingDependency as error:
        pytest.skip(str(error))


@pytest.fixture
def specs(duchy: Path) -> tuple[Path, Path]:
    """The same release counted by DuckDB, and in another folder counted and estimated by Spark."""
    text = csv.ConvertOptions(column_types=dict.fromkeys(("PLOT", "KIND", "AGE", "FAITH"), pa.string()))
    people = csv.read_csv(duchy.with_name("people.csv"), convert_options=text)
    pq.write_table(people, duchy.with_name("people.parquet"), row_group_size=max(1, people.num_rows // 6))
    changed(duchy, ('"people.csv"', '"people.parquet"'))
    other = duchy.parent.with_name(f"{duchy.parent.name}-other")
    shutil.copytree(duchy.parent, other)
    spec = other / duchy.name
    changed(spec, ('"people.parquet"', '"people.parquet"\nengine = "spark"'))
    return duchy, spec


@pytest.fixture
def whole(specs: tuple[Path, Path]) -> dict[str, str]:
    """What one machine publishes, from the same noise."""
    out = specs[0].parent / "release"
    main(specs[0], out, "")
    return published(out)


def ends_well(cluster: Standalone, spec: Path) -> None:
    """One charge for the one release; little memory in any process, and nothing said of what tasks did."""
    assert [charge.state for charge in tb.Ledger.open(spec.parent / "ledger.db").charges()] == ["published"]
    assert {"master", "worker", "executor", "driver"} <= set(cluster.peaks)
    assert max(cluster.peaks.values()) < MOST_MB, cluster.peaks
    logs = [path.read_text(errors="replace") for path in cluster.folder.rglob("stderr")]
    assert logs
    assert not any("Running task" in log for log in logs)


def test_a_worker_is_killed_in_every_stage(
    cluster: Standalone, specs: tuple[Path, Path], whole: dict[str, str]
) -> None:
    """With its executors, as the stage begins; another is started in its place."""
    spec = specs[1]
    code, lines = cluster.drive(spec, spec.parent / "release", struck=True)
    assert code == 0
    assert [one for one in STAGES if any(line.startswith(one) for line in lines)] == list(STAGES)
    assert published(spec.parent / "release") == whole
    ends_well(cluster, spec)


def test_a_driver_is_killed_in_every_stage(
    cluster: Standalone, specs: tuple[Path, Path], whole: dict[str, str]
) -> None:
    """Each driver but the first goes on from where the one before it was killed."""
    spec, out = specs[1], specs[1].parent / "release"
    for stage in STAGES:
        code, lines = cluster.drive(spec, out, die=stage)
        assert code == -signal.SIGKILL, (stage, lines)
        assert not out.exists()
    code, lines = cluster.drive(spec, out)
    assert code == 0
    assert not any(line.startswith(STAGES[:5]) for line in lines), "finished stages were made again"
    assert published(out) == whole
    ends_well(cluster, spec)
