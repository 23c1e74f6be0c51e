"""A generated nation through `tabulae detailed check` and `run`, out of core, under 8 GB of memory.

python -m benchmarks.detailed_nation SCRATCH                         330 million persons; about 60 GB below SCRATCH
python -m benchmarks.detailed_nation SCRATCH --people 3300000        a hundredth, with a hundredth of the areas

Writes a row of benchmarks/results/detailed_nation.csv for each size (a row of the same size is replaced): seconds and
memory of generating, checking and running, each in a process of its own, the most disk that the run held beside its
input, and how many rows it wrote. The resident set is measured; more than ``--memory`` gigabytes is a failure. All
that was written below SCRATCH is removed at the end.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import tempfile
import threading
from pathlib import Path

from benchmarks.detailed import Cost, lines, run_of, tabulae
from benchmarks.detailed_population import NATION
from benchmarks.recorded import record

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks/results/detailed_nation.csv"
COLUMNS = (
    "people", "blocks", "input_gb", "generate_s", "check_wall_s", "check_cpu_s", "check_peak_gb",
    "run_wall_s", "run_cpu_s", "run_peak_gb", "disk_gb", "t1_rows", "t2_rows", "output_gb", "cpus", "command",
)  # fmt: skip
POLL = 1.0


def size(folder: Path) -> int:
    """Bytes of all files below a folder that are there while it looks."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue
    return total


class Disk:
    """The most bytes that a folder held while a block of code ran."""

    def __init__(self, folder: Path):
        self.folder, self.peak = folder, 0
        self._stop = threading.Event()
        self._watch = threading.Thread(target=self._look)

    def _look(self) -> None:
        while not self._stop.wait(POLL):
            self.peak = max(self.peak, size(self.folder))

    def __enter__(self) -> Disk:
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._watch.join()
        self.peak = max(self.peak, size(self.folder))


def measured(folder: Path, people: int) -> dict[str, object]:
    """Generate, check and run."""
    command = [sys.executable, "-m", "benchmarks.detailed_population", str(folder), "--geography", "nation"]
    generated = Cost.of([*command, "--people", str(people)])
    with (folder / "data/GRF-C.txt").open("rb") as file:
        blocks = sum(1 for _ in file) - 1
    read = size(folder / "data")
    checked = Cost.of(tabulae("detailed", "check", f"{folder}/params", f"{folder}/data"), folder)
    arguments = run_of(folder)
    with Disk(folder) as disk:
        run = Cost.of(tabulae(*arguments), folder)
    return {
        "people": people,
        "blocks": blocks,
        "input_gb": f"{read / 1e9:.2f}",
        "generate_s": f"{generated.wall:.0f}",
        "check_wall_s": f"{checked.wall:.1f}",
        "check_cpu_s": f"{checked.cpu:.1f}",
        "check_peak_gb": f"{checked.peak / 1024:.2f}",
        "run_wall_s": f"{run.wall:.1f}",
        "run_cpu_s": f"{run.cpu:.1f}",
        "run_peak_gb": f"{run.peak / 1024:.2f}",
        "disk_gb": f"{(disk.peak - read) / 1e9:.2f}",
        "t1_rows": lines(folder / "out/t1"),
        "t2_rows": lines(folder / "out/t2"),
        "output_gb": f"{size(folder / 'out') / 1e9:.2f}",
        "cpus": os.cpu_count(),
        "command": f"python -m benchmarks.detailed_nation SCRATCH --people {people}",
    }


def record_run(row: dict[str, object], path: Path) -> None:
    """Put a row in its place, by size."""
    rows: list[dict[str, object]] = []
    if path.exists():
        with path.open(newline="") as file:
            rows = [dict(old) for old in csv.DictReader(file) if int(old["people"]) != row["people"]]
    rows = sorted([*rows, row], key=lambda each: int(str(each["people"])))
    record(path, COLUMNS, rows)


def main() -> int:
    """Measure, write, and fail where the run took too much memory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scratch", type=Path)
    parser.add_argument("--people", type=int, default=NATION)
    parser.add_argument("--memory", type=float, default=8.0)
    given = parser.parse_args()
    given.scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=given.scratch) as name:
        row = measured(Path(name), given.people)
    record_run(row, RESULTS)
    print(row)
    peak = float(str(row["run_peak_gb"]))
    if peak > given.memory:
        print(f"the run's resident set was {peak} GB, more than {given.memory}")
    return int(peak > given.memory)


if __name__ == "__main__":
    sys.exit(main())
