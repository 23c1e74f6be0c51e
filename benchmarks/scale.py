"""How a release of areas grows: time, memory and disk by stage against people, blocks, cells, queries and cores.

python -m benchmarks.scale SCRATCH                  the sweeps below; writes benchmarks/results/scale.csv and the page
python -m benchmarks.scale SCRATCH --share 0.1      a tenth of the nation, whole; writes its rows beside the others
python -m benchmarks.scale SCRATCH --share 1 --memory 20GB      the nation; 46 GB in SCRATCH
python -m benchmarks.scale SCRATCH --draw           fits, figure and page (``benchmarks.scale_page``) from the CSV

Each run is the whole of `tabulae run` on a part of the nation of ``benchmarks.nation``, in a process of its own
(``benchmarks.scale_run``): read the spec and its public files, plan, count the records, charge, draw and store the
measurements, estimate by gls and by bluedown, write tables and microdata, report. Per sweep one size varies:

nation      the share of the nation: people and blocks alike, so that what varies is how many areas there are
people      people a block, of as many blocks
cells       cells of the schema: fewer combinations of races, of as many people and blocks
queries     what each area is asked: the first of the queries and the one of all cells, with their shares scaled
cores       that the process may use

Disk is what lay beside the input. Seconds of CPU are of all threads; those of the wall clock depend on what else the
machine does.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import tomli_w
from benchmarks.nation import FOLDER, PEOPLE, populate
from benchmarks.recorded import record
from benchmarks.scale_page import NUMBERS, TOTAL, WHOLE, write_page

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks/results/scale.csv"
FIELDS = ("sweep", "share", "people", "blocks", "cells", "queries", "cores", "stage", *NUMBERS, "command")
SHARES = (0.0025, 0.005, 0.01, 0.02)
FIXED = 0.0025
PEOPLE_TIMES, RACES, QUERIES, CORES = (0.25, 1.0, 4.0), (7, 15, 31, 63), (3, 6, 11), (1, 2)


@dataclass(frozen=True)
class Case:
    """One run: a sweep and its sizes.

    Attributes:
        sweep: what varies.
        share: of the nation.
        people: how many times as many people a block.
        races: combinations of races, of 63.
        queries: what areas are asked, of 11.
        cores: that the process may use; all where None.
        memory: as of ``tabulae run``.
    """

    sweep: str
    share: float = FIXED
    people: float = 1.0
    races: int = max(RACES)
    queries: int = max(QUERIES)
    cores: int | None = None
    memory: str | None = None

    @property
    def command(self) -> str:
        """That runs it."""
        options = [f"--share {self.share:g}"] if self.share > max(SHARES) else []
        options += [f"--memory {self.memory}"] if self.memory else []
        return " ".join(["python -m benchmarks.scale SCRATCH", *options])

    @classmethod
    def sweeps(cls) -> list[Case]:
        """All but the tenth; the first compiles what is compiled, and is run again."""
        return [
            cls("nation", min(SHARES)),
            *(cls("nation", share) for share in SHARES),
            *(cls("people", people=times) for times in PEOPLE_TIMES),
            *(cls("cells", races=count) for count in RACES),
            *(cls("queries", queries=count) for count in QUERIES),
            *(
                cls("cores", share=2 * FIXED, cores=count)
                for count in CORES
                if count <= (os.cpu_count() or 1)
            ),
        ]


def rows_of(case: Case, scratch: Path) -> Iterator[dict[str, object]]:
    """Generate, run, and give one row a stage and one for all of them."""
    shutil.rmtree(scratch / "case", ignore_errors=True)
    spec = populate(scratch / "case", case.share, round(PEOPLE * case.people))
    fewer_races(spec.parent, case.races)
    fewer_queries(spec, case.queries)
    out = scratch / "case/out"
    out.mkdir()
    command = [sys.executable, "-m", "benchmarks.scale_run", str(spec), str(out / "release")]
    command += ["--memory", case.memory] if case.memory else []
    if case.cores is not None:
        command = ["taskset", "--cpu-list", f"0-{case.cores - 1}", *command]
    settings = {"OPENBLAS_NUM_THREADS": "1", "TMPDIR": str(out)}
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, **settings}
    )
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    yield from labelled(case, scratch / "case" / FOLDER, found)
    shutil.rmtree(scratch / "case")


def labelled(case: Case, records: Path, found: list[dict[str, Any]]) -> Iterator[dict[str, object]]:
    """What ``benchmarks.scale_run`` printed, with the sizes of its case, and a row for all stages."""
    sizes = {
        "sweep": case.sweep,
        "share": case.share,
        "people": pq.read_metadata(records / "people.parquet").num_rows,
        "blocks": pq.read_metadata(records / "spine.parquet").num_rows,
        "cells": 8 * 2 * 2 * case.races,
        "queries": case.queries,
        "cores": case.cores or os.cpu_count() or 1,
        "command": case.command,
    }
    total = {name: sum(row[name] for row in found) for name in ("wall_s", "cpu_s")}
    total |= {name: max(row[name] for row in found) for name in ("peak_mb", "disk_gb")}
    for row in [*found, {"stage": TOTAL, **total}]:
        yield {**sizes, "stage": row["stage"], **{name: f"{row[name]:.3f}" for name in NUMBERS}}


def fewer_races(folder: Path, count: int) -> None:
    """Keep the first combinations of races in the schema, and deal the people of the others out over them."""
    if count == max(RACES):
        return
    for name, starts in (("races.csv", 1), ("major_races.csv", 1)):
        path = folder / "redistricting" / name
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        path.write_text("".join(lines[: starts + count]), encoding="utf-8")
    path = folder / FOLDER / "people.parquet"
    table = pq.read_table(path)
    at = table.column_names.index("cenrace")
    parts = []
    for chunk in table["cenrace"].chunks:
        index = pa.array(chunk.indices.to_numpy() % count, pa.int32())
        parts.append(pa.DictionaryArray.from_arrays(index, chunk.dictionary.slice(0, count)))
    pq.write_table(table.set_column(at, "cenrace", pa.chunked_array(parts)), path)


def fewer_queries(spec: Path, count: int) -> None:
    """Keep so many queries, that of all cells among them, with shares of each level that add up to 1."""
    if count == max(QUERIES):
        return
    document = tomllib.loads(spec.read_text(encoding="utf-8"))
    kept: list[dict[str, Any]] = [
        *document["geography"]["query"][: count - 1],
        document["geography"]["query"][-1],
    ]
    for level in document["geography"]["levels"]:
        total = sum(Fraction(query["shares"].get(level, 0)) for query in kept)
        for query in kept:
            if level in query["shares"]:
                query["shares"][level] = str(Fraction(query["shares"][level]) / total)
    document["geography"]["query"] = kept
    spec.write_text(tomli_w.dumps(document), encoding="utf-8")


def recorded_with(found: list[dict[str, object]]) -> list[dict[str, str]]:
    """Put rows in the place of older ones of the same run; all rows."""
    rows: list[dict[str, Any]] = []
    key = ("sweep", "people", "blocks", "cells", "queries", "cores", "stage")
    fresh = {tuple(str(row[name]) for name in key) for row in found}
    if RESULTS.exists():
        with RESULTS.open(newline="") as file:
            rows = [row for row in csv.DictReader(file) if tuple(row[name] for name in key) not in fresh]
    rows += found
    record(RESULTS, FIELDS, rows)
    with RESULTS.open(newline="") as file:
        return list(csv.DictReader(file))


def main() -> int:
    """Run, write, draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scratch", type=Path)
    parser.add_argument("--share", type=float, default=None, help="one run of this share of the nation")
    parser.add_argument("--memory", default=None, help="of the run with --share, as of tabulae run")
    parser.add_argument("--draw", action="store_true")
    given = parser.parse_args()
    if not given.draw:
        given.scratch.mkdir(parents=True, exist_ok=True)
        one = Case(WHOLE if given.share == 1 else "nation", given.share or 1.0, memory=given.memory)
        for case in Case.sweeps() if given.share is None else [one]:
            print(case, flush=True)
            recorded_with(list(rows_of(case, given.scratch)))
    write_page(recorded_with([]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
