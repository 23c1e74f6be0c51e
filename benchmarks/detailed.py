"""Speed of detailed groups: CPU seconds and memory of `tabulae detailed run`, from ten thousand to ten million persons.

python -m benchmarks.detailed SCRATCH             writes detailed.csv in benchmarks/results, and the figure
python -m benchmarks.detailed SCRATCH --draw      docs/methods/detailed-growth.svg from the CSV

Populations come from ``benchmarks.detailed_population``: the 48 blocks of production's benchmark (74,640 groups with
the 2020 maps), and a nation scaled with its people (51 states and Puerto Rico at every size). Each run is a process of
its own, with its files on disk and a ledger:

``start_cpu_s``    of a process that imports every module that the run imports, and ends
``cpu_s``          of the whole command, start included; ``after_start_cpu_s`` is the difference
``wall_s``, ``peak_mb``  of the same command; peak is the largest resident set

Every figure is the least of ``RUNS`` runs, of one at ten million. The row of production is no measurement of this
script: it says what the Bureau's program took on a like machine. The figure has larger nations, too, where
``benchmarks.detailed_nation`` has run them.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from benchmarks.detailed_population import MAPS
from benchmarks.recorded import add_force, record

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks/results/detailed.csv"
NATIONS = ROOT / "benchmarks/results/detailed_nation.csv"
FIGURE = ROOT / "docs/methods/detailed-growth.svg"
COLUMNS = (
    "program", "geography", "people", "blocks", "t1_rows", "t2_rows",
    "start_cpu_s", "cpu_s", "after_start_cpu_s", "wall_s", "peak_mb", "command",
)  # fmt: skip
PEOPLE = (10_000, 100_000, 1_000_000, 10_000_000)
# Not measured by this script, and on another machine: the production program of 2020, Spark local on two cores, over
# 100,000 generated people with the maps of the 2020 release.
PRODUCTION = {
    "program": "production (Spark), measured elsewhere",
    "geography": "48 blocks",
    "people": 100_000,
    "blocks": 48,
    "cpu_s": 217,
    "wall_s": 610,
    "peak_mb": 4500,
}
RUNS, BUDGET = 2, 20
IMPORTED = (
    "import sys\nfrom tabulae.cli import app\napp({}, standalone_mode=False)\n"
    "with open({!r}, 'w') as file: print(*sys.modules, file=file)"
)
START = (
    "import importlib\nfor name in open({!r}).read().split():\n"
    " try: importlib.import_module(name)\n except ImportError: pass"
)
TABULAE = "from tabulae.cli import app; app()"
WATCH = """import json, os, subprocess, sys
child = subprocess.Popen(sys.argv[1:], stdout=sys.stderr)
_, status, used = os.wait4(child.pid, 0)
print(json.dumps([os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, used.ru_maxrss / 1024]))
"""


@dataclass(frozen=True)
class Cost:
    """What a process took: seconds of the clock and of the CPU, and megabytes at its peak."""

    wall: float
    cpu: float
    peak: float

    @classmethod
    def of(cls, command: list[str], scratch: Path | None = None) -> Cost:
        """Run a command and wait for it; its output goes to stderr.

        A child's peak is never below that of the process that starts it: a small one does.

        Args:
            command: the program and its arguments.
            scratch: where it may write what does not fit in memory.

        Raises:
            RuntimeError: it fails.
        """
        begin = time.perf_counter()
        settings = {"OPENBLAS_NUM_THREADS": "1"} | ({} if scratch is None else {"TMPDIR": str(scratch)})
        watched = python(WATCH, *command)
        told = subprocess.run(watched, check=True, stdout=subprocess.PIPE, env={**os.environ, **settings})
        status, cpu, peak = json.loads(told.stdout)
        if status:
            raise RuntimeError(f"{' '.join(command)} ended with status {status}")
        return cls(time.perf_counter() - begin, cpu, peak)


def python(code: str, *arguments: str) -> list[str]:
    """A command that runs some lines."""
    return [sys.executable, "-c", code, *arguments]


def tabulae(*arguments: str) -> list[str]:
    """A command of the project's own, of this checkout."""
    return python(TABULAE, *arguments)


def populate(folder: Path, people: int, geography: str) -> None:
    """Write a population in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.detailed_population", str(folder), "--people", str(people)]
    subprocess.run([*command, "--geography", geography], check=True, stdout=sys.stderr, cwd=ROOT)


def ledger(path: Path) -> Path:
    """A new ledger that pays for one run."""
    path.unlink(missing_ok=True)
    arguments = (
        "--budget",
        str(BUDGET),
        "--definition",
        "zcdp",
        "--neighbours",
        "add-remove",
        "--unit",
        "person",
    )
    subprocess.run(tabulae("ledger", "init", str(path), *arguments), check=True, stdout=sys.stderr)
    return path


def run_of(folder: Path) -> list[str]:
    """The arguments that tabulate a population; what an earlier run wrote is removed."""
    shutil.rmtree(folder / "out", ignore_errors=True)
    paid = ledger(folder / "ledger.db")
    return [
        "detailed",
        "run",
        f"{folder}/params",
        f"{folder}/data",
        "--out",
        f"{folder}/out",
        "--ledger",
        str(paid),
    ]


def lines(folder: Path) -> int:
    """How many rows a table's files have, without their headings."""
    count = 0
    for path in folder.glob("*.csv"):
        with path.open("rb") as file:
            count += sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 24), b"")) - 1
    return count


def start(folder: Path) -> float:
    """CPU seconds of a process that only imports what the run of a population imports."""
    modules = str(folder / "modules.txt")
    Cost.of(python(IMPORTED.format(run_of(folder), modules)))
    return min(Cost.of(python(START.format(modules))).cpu for _ in range(RUNS))


def timed(folder: Path, people: int, geography: str, started: float, runs: int = RUNS) -> dict[str, object]:
    """One row."""
    costs = []
    for _ in range(runs):
        arguments = run_of(folder)
        costs.append(Cost.of(tabulae(*arguments)))
    cpu = min(cost.cpu for cost in costs)
    with (folder / "data/GRF-C.txt").open("rb") as file:
        blocks = sum(1 for _ in file) - 1
    return {
        "program": "tabulae",
        "geography": geography,
        "people": people,
        "blocks": blocks,
        "t1_rows": lines(folder / "out/t1"),
        "t2_rows": lines(folder / "out/t2"),
        "start_cpu_s": f"{started:.2f}",
        "cpu_s": f"{cpu:.2f}",
        "after_start_cpu_s": f"{cpu - started:.2f}",
        "wall_s": f"{min(cost.wall for cost in costs):.2f}",
        "peak_mb": f"{max(cost.peak for cost in costs):.0f}",
        "command": "tabulae detailed run",
    }


def exponent(people: np.ndarray, seconds: np.ndarray) -> float:
    """The slope of log seconds on log persons between the two largest sizes."""
    return float(np.diff(np.log(seconds[-2:]))[0] / np.diff(np.log(people[-2:]))[0])


def larger(path: Path, people: float, started: float) -> list[tuple[float, float]]:
    """Persons and CPU seconds after start of the larger nations that ``benchmarks.detailed_nation`` has run."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        found = [(float(row["people"]), float(row["run_cpu_s"]) - started) for row in csv.DictReader(file)]
    return [point for point in found if point[0] > people]


def draw(rows: list[dict[str, str]], path: Path) -> None:
    """CPU seconds after start by persons, larger nations included, with the exponent; and production's one point."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "tabulae"
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6.5, 3.8), layout="constrained")
    for geography, colour, marker in (("48 blocks", "#1f5673", "o"), ("nation", "#b4552d", "s")):
        chosen = [row for row in rows if row["program"] == "tabulae" and row["geography"] == geography]
        if len(chosen) < 3:
            continue
        points = [(float(row["people"]), float(row["after_start_cpu_s"])) for row in chosen]
        if geography == "nation":
            points += larger(NATIONS, points[-1][0], float(chosen[-1]["start_cpu_s"]))
        people, seconds = np.array(points).T
        label = f"{geography}: CPU grows as people^{exponent(people, seconds):.2f} at the end"
        axes.loglog(people, seconds, color=colour, marker=marker, label=label)
    other = next(row for row in rows if row["program"] != "tabulae")
    axes.loglog(
        float(other["people"]),
        float(other["cpu_s"]),
        "k^",
        label="production, 48 blocks (measured elsewhere)",
    )
    for people, limit in ((10**5, 2.0), (10**7, 60.0)):
        axes.plot([people / 1.6, people * 1.6], [limit, limit], color="#6b7280", lw=1.2)
    axes.plot([], [], color="#6b7280", lw=1.2, label="targets")
    axes.set_xlabel("persons")
    axes.set_ylabel("CPU seconds after start")
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def write(rows: list[dict[str, object]], *, force: bool) -> None:
    """The CSV, and the figure from it."""
    record(RESULTS, COLUMNS, rows, size="people", force=force)


def measured(scratch: Path, most: int) -> list[dict[str, object]]:
    """All rows: sizes by geography, then production's."""
    rows: list[dict[str, object]] = []
    for geography in ("48 blocks", "nation"):
        started = None
        for people in PEOPLE:
            if people > most:
                continue
            with tempfile.TemporaryDirectory(dir=scratch) as name:
                populate(Path(name), people, geography)
                started = start(Path(name)) if started is None else started
                runs = RUNS if people < 10**7 else 1
                rows.append(timed(Path(name), people, geography, started, runs))
            print(rows[-1], flush=True)
    return [*rows, dict(PRODUCTION)]


def main() -> int:
    """Measure, write, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scratch", type=Path)
    parser.add_argument("--draw", action="store_true")
    parser.add_argument("--most", type=int, default=PEOPLE[-1])
    add_force(parser)
    given = parser.parse_args()
    if not given.draw:
        if not MAPS.exists():
            parser.error(f"the maps of the 2020 release are not in {MAPS}")
        given.scratch.mkdir(parents=True, exist_ok=True)
        write(measured(given.scratch, given.most), force=given.force)
    with RESULTS.open(newline="") as file:
        draw(list(csv.DictReader(file)), FIGURE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
