"""A part of the nation on a cluster of three workers that are killed, beside one machine with the same noise.

python -m benchmarks.cluster SCRATCH [--share 0.1]      writes benchmarks/results/cluster.csv

The cluster is Spark's own, on this machine: a master, three workers of 2 GB and one core, each with one executor. A
worker is killed with its executors as each stage begins, and a new one takes its place. Both runs draw from one seed,
so every file of measurements, tables and microdata must be the same, byte for byte.

Seconds of CPU are of all processes, looked at each half second; a peak is of one process; ``spill_gb`` is the most that
Spark kept on disks, its shuffles among it, and ``work_gb`` the most that lay beside the input.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
from benchmarks.detailed import Cost
from benchmarks.detailed_nation import Disk
from benchmarks.nation import FOLDER, populate
from benchmarks.recorded import add_force, record
from tests.engines.standalone import STAGES, Standalone, published, standalone

RESULTS = Path(__file__).parent / "results/cluster.csv"
COLUMNS = (
    *("share", "people", "blocks", "on", "killed", "wall_s", "cpu_s", "load", "driver_mb", "executor_mb"),
    *("spill_gb", "work_gb", "files", "files_that_differ"),
)
WORKERS, MEMORY, POLL = 3, 2048, 0.5
RECORDS = f'path = "{FOLDER}/people.parquet"'
DRIVER, EXECUTOR = ("driver", "Java of the driver"), ("executor", "Python of an executor", "worker")


@contextlib.contextmanager
def watched(cluster: Standalone) -> Iterator[None]:
    """Look at all processes of a cluster again and again."""
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(POLL):
            cluster.look()

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def alone(folder: Path) -> dict[str, object]:
    """The release on one machine, counted by DuckDB."""
    spec, out = folder / "nation.toml", folder / "out/release"
    with Disk(out.parent) as disk:
        cost = Cost.of([sys.executable, "-m", "tests.engines.standalone", str(spec), str(out), ""], folder)
    spent = {"wall_s": f"{cost.wall:.0f}", "cpu_s": f"{cost.cpu:.0f}", "driver_mb": f"{cost.peak:.0f}"}
    return {"on": "one machine", "killed": 0, **spent, "work_gb": f"{disk.peak / 1e9:.2f}"}


def struck(folder: Path) -> dict[str, object]:
    """The release on a cluster, a worker killed as each stage begins."""
    kept = folder / "cluster"
    (kept / "local").mkdir(parents=True)
    begun = time.perf_counter()
    with standalone(kept, WORKERS, MEMORY) as cluster, Disk(kept / "local") as spill:
        with Disk(folder / "out") as disk, watched(cluster):
            code, lines = cluster.drive(folder / "nation.toml", folder / "out/release", struck=True)
        if code:
            raise SystemExit(
                "\n".join([*lines[-5:], f"the release on the cluster fails with exit code {code}"])
            )
        peaks, spent = cluster.peaks, sum(cluster.spent.values())
    driver, executor = (max(peaks.get(name, 0) for name in names) for names in (DRIVER, EXECUTOR))
    return {
        "on": f"{WORKERS} workers of {MEMORY} MB",
        "killed": sum(any(line.startswith(stage) for line in lines) for stage in STAGES),
        "wall_s": f"{time.perf_counter() - begun:.0f}",
        "cpu_s": f"{spent:.0f}",
        "driver_mb": driver,
        "executor_mb": executor,
        "spill_gb": f"{spill.peak / 1e9:.2f}",
        "work_gb": f"{disk.peak / 1e9:.2f}",
    }


def main() -> int:
    """Make both releases, compare, write; 1 where a file differs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scratch", type=Path)
    parser.add_argument("--share", type=float, default=0.1)
    add_force(parser)
    given = parser.parse_args()
    here, there = (given.scratch / name for name in ("alone", "struck"))
    for folder in (here, there):
        shutil.rmtree(folder, ignore_errors=True)
    spec = populate(here, given.share)
    shutil.copytree(here, there)
    other = there / spec.name
    other.write_text(other.read_text().replace(RECORDS, f'{RECORDS}\nengine = "spark"'))
    for folder in (here, there):
        (folder / "out").mkdir()
    rows = [alone(here), struck(there)]
    one, two = (published(folder / "out/release") for folder in (here, there))
    people, blocks = (
        pq.read_metadata(here / FOLDER / f"{name}.parquet").num_rows for name in ("people", "spine")
    )
    size = {"share": given.share, "people": people, "blocks": blocks, "load": f"{os.getloadavg()[2]:.1f}"}
    differ = sum(one.get(name) != two.get(name) for name in one | two)
    rows = [{**size, **row, "files": len(one), "files_that_differ": differ} for row in rows]
    record(RESULTS, COLUMNS, rows, size="people", force=given.force)
    print(RESULTS.read_text(), end="")
    shutil.rmtree(given.scratch)
    return int(differ > 0)


if __name__ == "__main__":
    sys.exit(main())
