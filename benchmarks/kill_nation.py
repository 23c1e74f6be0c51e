"""What a kill costs a large release: a part of the nation killed at random moments, and finished.

python -m benchmarks.kill_nation SCRATCH [--share 0.01] [--kills 5]     writes benchmarks/results/kill_nation.csv

A moment is a share of the CPU seconds that a whole run takes, drawn uniformly from each of as many equal parts as there
are kills: seconds of CPU, of all threads, mean the same beside other work. A run that lost its noise, as one that is
killed while it draws does by design, is made anew, and pays again. ``again`` is what all processes of a kill took
beyond one whole run, as a share of it.
"""

from __future__ import annotations

import argparse
import csv
import os
import random
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.nation import populate
from benchmarks.recorded import add_force, record

RESULTS = Path(__file__).parent / "results/kill_nation.csv"
COLUMNS = ("share", "kill", "at", "whole_cpu_s", "step", "killed_cpu_s", "resumed_cpu_s", "anew", "again")
_TICKS = os.sysconf("SC_CLK_TCK")


def start(spec: Path, out: Path, *, resume: bool = False) -> subprocess.Popen[bytes]:
    """The command line, in a process of its own."""
    command = [
        sys.executable,
        "-m",
        "tabulae.cli",
        "run",
        str(spec),
        "--out",
        str(out),
        *["--resume"] * resume,
    ]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment)


def spent() -> float:
    """Seconds of CPU of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def finished(process: subprocess.Popen[bytes]) -> tuple[float, int]:
    """The CPU seconds of a process to its end, and its exit code."""
    before = spent()
    process.communicate()
    return spent() - before, process.returncode


def killed(process: subprocess.Popen[bytes], seconds: float) -> float:
    """Kill a process when it has taken so many seconds of CPU; what it took."""
    before = spent()
    while process.poll() is None:
        times = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        if (int(times[11]) + int(times[12])) / _TICKS >= seconds:
            process.kill()
            break
        time.sleep(0.01)
    process.communicate()
    return spent() - before


def step_of(out: Path) -> str:
    """How far a killed run came, as its folder shows."""
    partial = out.with_name(f".{out.name}.partial")
    if not partial.exists():
        return "done" if out.exists() else "before counting"
    if (partial / "datapackage.json").exists():
        return "tables written"
    if (partial / "measurements/measurement.json").exists():
        return "estimating or writing"
    return "counting or drawing" if (partial / "plan.json").exists() else "planning"


def strike(spec: Path, out: Path, whole: float, at: float) -> dict[str, object]:
    """Kill a run at a share of its time, and make the release all the same."""
    first = killed(start(spec, out), at * whole)
    step, anew = step_of(out), 0
    resumed = 0.0
    if step != "done":
        resumed, code = finished(start(spec, out, resume=True))
        if code:
            anew = 1
            more, code = finished(start(spec, out))
            resumed += more
        if code:
            raise SystemExit(f"killed at {at:.2f} ({step}): not finished, exit code {code}")
    again = (first + resumed) / whole - 1
    numbers = {"killed_cpu_s": f"{first:.1f}", "resumed_cpu_s": f"{resumed:.1f}", "again": f"{again:.3f}"}
    return {"at": f"{at:.3f}", "step": step, "anew": anew, **numbers}


def of_other_shares(share: float) -> list[dict[str, Any]]:
    """What is recorded of them."""
    with RESULTS.open(newline="") as file:
        return [row for row in csv.DictReader(file) if float(row["share"]) != share]


def _place(row: Mapping[str, Any]) -> tuple[float, int]:
    return float(row["share"]), int(row["kill"])


def main() -> int:
    """Run once whole, then kill."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scratch", type=Path)
    parser.add_argument("--share", type=float, default=0.01)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    add_force(parser)
    given = parser.parse_args()
    folder = given.scratch / "killed"
    shutil.rmtree(folder, ignore_errors=True)
    spec = populate(folder, given.share)
    for _ in range(2):  # the first compiles
        whole, code = finished(start(spec, folder / "whole"))
        if code:
            raise SystemExit(f"the whole run fails with exit code {code}")
        shutil.rmtree(folder / "whole")
    draw, rows = random.Random(given.seed), []
    for kill in range(1, given.kills + 1):
        found = strike(spec, folder / f"out{kill}", whole, (kill - draw.random()) / given.kills)
        shutil.rmtree(folder / f"out{kill}")
        rows.append({"share": given.share, "kill": kill, "whole_cpu_s": f"{whole:.1f}", **found})
        print(rows[-1], flush=True)
    record(RESULTS, COLUMNS, sorted([*of_other_shares(given.share), *rows], key=_place), force=given.force)
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
