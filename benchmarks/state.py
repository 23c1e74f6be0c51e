"""An invented state at the schema of the 2020 census: time and memory by stage and size, and what a release breaks.

python -m benchmarks.state SCRATCH             writes benchmarks/results/state.csv and the figure; about ten minutes
python -m benchmarks.state SCRATCH --draw      docs/methods/topdown-growth.svg from the CSV

The spec is examples/redistricting.toml with all its constraints: 2,016 cells, eleven query groups, six levels, tribal
areas split off, block groups drawn anew. States have 40 people a block and a county for each 5,000 blocks.

stage       each stage of ``benchmarks.state_run``, in one process a size: the least of ``RUNS`` runs
run         ``tabulae run`` as a command: start, tables for all areas, microdata, report, everything
broken      what ``benchmarks.state_check`` finds in these releases, by rules of its own over the published files

Compiled code is cached by a run that does not count. Seconds of CPU are of all threads.
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from benchmarks.detailed import Cost, tabulae
from benchmarks.recorded import add_force, record
from benchmarks.state_check import violations

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples/redistricting"
RESULTS = Path(__file__).parent / "results/state.csv"
FIGURE = ROOT / "docs/methods/topdown-growth.svg"
FIELDS = ("part", "blocks", "people", "name", "wall_s", "cpu_s", "peak_mb", "count", "command")
BLOCKS = (1_500, 3_000, 6_000, 12_500, 25_000, 50_000, 100_000)
WHOLE = 25_000
NATION = 8_100_000
METHODS = ("gls", "topdown", "bluedown")
COLOURS = {"measure": "#6b7280", "gls": "#1f5673", "topdown": "#b4552d", "bluedown": "#3c7a3f"}
PEOPLE_A_BLOCK, RUNS = 40, 2


def populate(folder: Path, blocks: int, method: str = "bluedown") -> Path:
    """Write a state, the spec and a ledger that pays for it; the path of the spec."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(EXAMPLE, folder / EXAMPLE.name)
    sizes = {"people": PEOPLE_A_BLOCK * blocks, "blocks": blocks, "counties": max(1, blocks // 5_000)}
    asked = [f"--{name}={value}" for name, value in sizes.items()]
    subprocess.run(
        [sys.executable, str(EXAMPLE / "state.py"), str(folder / EXAMPLE.name), *asked], check=True
    )
    document = EXAMPLE.with_suffix(".toml").read_text(encoding="utf-8")
    spec = folder / "spec.toml"
    spec.write_text(document.replace('estimate = "bluedown"', f'estimate = "{method}"'), encoding="utf-8")
    if method == "gls":
        spec.write_text(spec.read_text().replace("microdata = true", "microdata = false"), encoding="utf-8")
    promised = ("--budget", "100", "--definition", "zcdp", "--neighbours", "replace", "--unit", "person")
    ledger = tabulae("ledger", "init", str(folder / "redistricting.db"), *promised)
    subprocess.run(ledger, check=True, stdout=sys.stderr)
    return spec


def stages(scratch: Path, blocks: int) -> Iterator[dict[str, object]]:
    """One row a stage: the least wall clock and processor time, and the largest peak, of some runs."""
    spec = populate(scratch / "state", blocks)
    found: dict[str, list[dict[str, float]]] = {}
    for number in range(RUNS):
        command = [sys.executable, "-m", "benchmarks.state_run", str(spec), str(scratch / f"state/{number}")]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        for line in done.stdout.splitlines():
            row = json.loads(line)
            found.setdefault(row.pop("stage"), []).append(row)
    sizes = found.pop("sizes")[0]
    command = "python -m benchmarks.state_run SPEC WORK"
    for name, rows in found.items():
        least = {key: min(row[key] for row in rows) for key in ("wall_s", "cpu_s")}
        peak = max(row["peak_mb"] for row in rows)
        yield _row("stage", blocks, name, **least, peak_mb=peak, count=sizes["nodes"], command=command)


def whole(scratch: Path, blocks: int) -> Iterator[dict[str, object]]:
    """The command as a whole by each estimator, its check, and what its release breaks."""
    for method in METHODS:
        spec, out = populate(scratch / method, blocks, method), scratch / method / "release"
        cost = Cost.of(tabulae("run", str(spec), "--out", str(out)))
        size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
        yield _cost("run", blocks, f"tabulae run, {method}", cost, round(size / 1e6))
        checked = Cost.of(tabulae("check", str(out)))
        yield _cost("run", blocks, f"tabulae check, {method}", checked, "")
        if method != "gls":
            for rule, count in violations(out, spec).items():
                command = "python -m benchmarks.state_check RELEASE SPEC"
                yield _row("broken", blocks, f"{method}: {rule}", count=count, command=command)
        shutil.rmtree(scratch / method)


def _cost(part: str, blocks: int, name: str, cost: Cost, count: object) -> dict[str, object]:
    spent = {"wall_s": f"{cost.wall:.2f}", "cpu_s": f"{cost.cpu:.2f}", "peak_mb": f"{cost.peak:.0f}"}
    return _row(part, blocks, name, **spent, count=count, command=name.split(",")[0])


def _row(part: str, blocks: int, name: str, **told: object) -> dict[str, object]:
    return {"part": part, "blocks": blocks, "people": PEOPLE_A_BLOCK * blocks, "name": name, **told}


def measured(scratch: Path, sizes: Iterable[int], run: int) -> Iterator[dict[str, object]]:
    """All rows, after a run that compiles what is compiled."""
    for _ in stages(scratch, min(BLOCKS)):
        pass
    for blocks in sizes:
        yield from stages(scratch, blocks)
    if run:
        yield from whole(scratch, run)


def per_block(rows: list[dict[str, str]], name: str, column: str = "cpu_s") -> float:
    """Seconds (or megabytes) that one more block costs a stage, between the two largest states."""
    points = sorted((int(row["blocks"]), float(row[column])) for row in rows if row["name"] == name)
    (fewer, less), (more, most) = points[-2:]
    return (most - less) / (more - fewer)


def draw(rows: list[dict[str, str]], path: Path) -> None:
    """CPU seconds by blocks, with the line that a nation lies on."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "tabulae"
    from matplotlib import pyplot as plt

    rows = [row for row in rows if row["part"] == "stage"]
    figure, axes = plt.subplots(figsize=(6.5, 3.8), layout="constrained")
    for name, colour in COLOURS.items():
        points = [(int(row["blocks"]), float(row["cpu_s"])) for row in rows if row["name"] == name]
        blocks, seconds = np.array(points, float).T
        nation = seconds[-1] + per_block(rows, name) * (NATION - blocks[-1])
        axes.loglog(
            blocks, seconds, color=colour, marker="o", ms=4, label=f"{name}: {nation:,.0f} s for a nation"
        )
        axes.loglog(
            [blocks[-1], NATION], [seconds[-1], nation], color=colour, ls=":", marker="x", markevery=[1]
        )
    axes.set_xlabel("blocks with living quarters")
    axes.set_ylabel("CPU seconds")
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def main() -> int:
    """Measure, write, draw; fail where a release breaks a rule."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scratch", type=Path)
    parser.add_argument("--draw", action="store_true")
    parser.add_argument("--most", type=int, default=max(BLOCKS), help="blocks of the largest state")
    parser.add_argument(
        "--whole", type=int, default=WHOLE, help="blocks of the state that is released; 0 for none"
    )
    add_force(parser)
    given = parser.parse_args()
    if not given.draw:
        given.scratch.mkdir(parents=True, exist_ok=True)
        found = []
        for row in measured(given.scratch, [n for n in BLOCKS if n <= given.most], given.whole):
            found.append(row)
            print(row, flush=True)
        record(RESULTS, FIELDS, found, size="blocks", force=given.force)
    with RESULTS.open(newline="") as file:
        rows = list(csv.DictReader(file))
    draw(rows, FIGURE)
    return int(any(int(row["count"]) for row in rows if row["part"] == "broken"))


if __name__ == "__main__":
    sys.exit(main())
