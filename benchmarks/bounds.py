"""What the hottest stage of each capability takes, and what it cannot do without, in one run.

python -m benchmarks.bounds SCRATCH              writes benchmarks/results/bounds.csv, and the table of its docs page
python -m benchmarks.bounds SCRATCH --only topdown   this capability alone, and writes nothing
python -m benchmarks.bounds --page               the table from the CSV

Each case is a stage of the public path, and a bound that the same machine reaches in the same minute on the same
sizes: moving memory (``np.copyto``), products of matrices (BLAS), random bits (the AES keystream that noise is made of)
or the engine's own reading (DuckDB). Processor seconds of the best of three runs, in turns, BLAS on one thread;
``ratio`` is the stage's over the bound's. ``hottest`` is the function of this library in which most of the stage is
spent, with what it calls outside of it, and ``share`` its part of the stage under the profiler.
"""

from __future__ import annotations

import argparse
import contextlib
import cProfile
import csv
import os
import pstats
import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.detailed import run_of
from benchmarks.detailed_population import MAPS, write_population
from benchmarks.hdmm_scale import everything
from benchmarks.reconstruct import factors, measured
from benchmarks.recorded import record
from benchmarks.spines import made_up
from benchmarks.topdown import METHODS, Blocks, Measured
from threadpoolctl import threadpool_limits

import tabulae as tb
from tabulae.privacy import SystemSource
from tabulae.products.areas.estimate import estimate_spine
from tabulae.research import optimal_gaussian
from tabulae.strategy import baseline

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks/results/bounds.csv"
PAGE = ROOT / "docs/methods/profile.md"
LIBRARY = str(ROOT / "src/tabulae")
RUNS = 3
COLUMNS: tuple[str, ...] = (
    "capability", "stage", "size", "seconds", "cpu_s", "bound", "bound_s", "ratio", "hottest", "share", "load",
)  # fmt: skip

Work = Callable[[], Any]


@dataclass(frozen=True)
class Case:
    """A stage, and what bounds it."""

    capability: str
    stage: str
    size: str
    run: Work
    bound: str
    floor: Work


# what bounds -------------------------------------------------------------------------------------------------
def products(n: int, columns: int, count: int) -> Work:
    """So many products (n x n)(n x columns)."""
    matrix, x = np.random.default_rng(0).random((n, n)), np.ones((n, columns))
    out = np.ones((n, columns))

    def run() -> None:
        for _ in range(count):
            np.matmul(matrix, x, out=out)

    return run


def copies(numbers: int, count: int) -> Work:
    """A vector of so many numbers read and written, so many times."""
    source, target = np.ones(numbers), np.ones(numbers)

    def run() -> None:
        for _ in range(count):
            np.copyto(target, source)

    return run


def keystream(draws: int) -> Work:
    """64 random bits a draw, a chunk at a time."""
    source, chunk = SystemSource(), 2**17

    def run() -> None:
        for _ in range(-(-draws // chunk)):
            source.u64(chunk)

    return run


# the cases ---------------------------------------------------------------------------------------------------
def tables(_: Path) -> Iterator[Case]:
    """HDMM: selecting for one large attribute, reconstructing many cells."""
    n = 1024
    workload = tb.Workload.of(tb.AllRange(n))
    yield Case(
        "tables, HDMM", "select", f"all ranges over {n} cells, Gaussian",
        lambda: baseline(workload, "opt0", "gaussian", "add-remove"),
        "one product of n x n matrices", products(n, n, 1),
    )  # fmt: skip
    domain = tb.Domain({f"a{i}": 56 for i in range(4)})
    strategy, asked = factors(domain), everything(domain)
    done = measured(strategy)
    tb.estimate(done).answer(asked)
    yield Case(
        "tables, HDMM", "reconstruct", f"{domain.size:,} cells, 4 attributes",
        lambda: tb.estimate(done).answer(asked),
        "4 products of 56 x 56 matrices", products(56, domain.size // 56, 4),
    )  # fmt: skip


def marginals(_: Path) -> Iterator[Case]:
    """The residual planner: all three-way marginals."""
    domain = tb.Domain({f"a{i}": 40 for i in range(8)})
    workload = tb.Workload.marginals(domain, ways=[3])
    strategy = tb.select(workload, method="residual")
    people = np.random.default_rng(0).integers(0, 40, (10**5, 8))
    counts = tb.Counts.from_records(domain, people)
    done = tb.measure(counts, strategy, tb.ZCDP(1))
    size = f"{len(workload.tables)} tables of {40**3:,} cells"
    yield Case(
        "marginals, ResidualPlanner", "measure", size, lambda: tb.measure(counts, strategy, tb.ZCDP(1)),
        "64 random bits a draw", keystream(strategy.rows),
    )  # fmt: skip
    yield Case(
        "marginals, ResidualPlanner", "estimate", size, lambda: tb.estimate(done).answer(workload),
        "each answer copied once an attribute", copies(workload.queries, 3),
    )  # fmt: skip


def subspace(_: Path) -> Iterator[Case]:
    """The optimal Gaussian mechanism beside exact counts."""
    n = 128
    query, total = np.tril(np.ones((n, n))), np.ones((1, n))
    yield Case(
        "subspace", "optimal Gaussian", f"{n} prefixes, the total exact",
        lambda: optimal_gaussian(query, total @ np.linalg.inv(query), tb.ZCDP("1/2")),
        "one product of n x n matrices", products(n, n, 1),
    )  # fmt: skip


def spines(_: Path) -> Iterator[Case]:
    """Building and optimising a spine of made-up blocks."""
    blocks = 200_000
    codes = made_up(blocks)
    levels = list(codes)
    spine = tb.Spine.from_codes(codes, levels=levels)
    places = [f"{i // 1117}" for i in range(blocks)]
    size = f"{blocks:,} blocks, {len(levels)} levels"
    yield Case(
        "spines", "from codes", size, lambda: tb.Spine.from_codes(codes, levels=levels),
        "the codes of each level sorted", lambda: [np.unique(column) for column in codes.values()],
    )  # fmt: skip
    yield Case(
        "spines, OSED", "optimise", f"{size}, {len(set(places))} places",
        lambda: spine.optimise([places], levels=("tract_group", "block_group")),
        "the places sorted once a level", lambda: [np.unique(np.array(places)) for _ in levels],
    )  # fmt: skip


def measuring(_: Path) -> Iterator[Case]:
    """Exact noise on every cell."""
    n = 10**7
    workload = tb.Workload.of(tb.Identity(n))
    strategy = tb.select(workload, method="identity")
    counts = tb.Counts.from_array(workload.domain, np.ones(n, np.int64))
    for kind, budget in (("table route", tb.ZCDP("1/200")), ("filtered route", tb.ZCDP("1/20000000"))):
        yield Case(
            "measuring", kind, f"{n:,} cells", lambda budget=budget: tb.measure(counts, strategy, budget),
            "64 random bits a draw", keystream(n),
        )  # fmt: skip


def topdown(_: Path) -> Iterator[Case]:
    """The three estimators on real blocks."""
    blocks = Blocks()
    plan = blocks.plan("optimised")
    values = Measured(plan, blocks.truth).draw(1)
    nodes = plan.tree.size
    cells, twice = np.random.default_rng(0).normal(size=(nodes, 16)), products(16, nodes, 2)

    def ordered() -> None:
        twice()
        np.sort(cells, axis=1)

    for method in METHODS:
        linear = method == "gls"
        yield Case(
            "topdown", method, f"{nodes:,} nodes, 16 cells",
            lambda method=method: estimate_spine(plan, iter(values), method),
            "two products of 16 x 16 matrices a node" + ("" if linear else ", its cells sorted"),
            twice if linear else ordered,
        )  # fmt: skip


def detailed(scratch: Path) -> Iterator[Case]:
    """The whole run of detailed groups, in this process."""
    import duckdb

    from tabulae.cli import app

    people = 300_000
    folder = scratch / "detailed"
    write_population(folder, people, maps=MAPS if MAPS.exists() else None)
    files = str(folder / "data" / "**" / "*.txt")

    def read() -> None:
        with duckdb.connect() as connection:
            connection.sql("SET threads TO 1")
            connection.sql(
                f"SELECT count(line) FROM read_csv('{files}', columns = {{'line': 'VARCHAR'}}, delim = '\\x01', "
                "header = false, quote = '', auto_detect = false)"
            ).fetchall()

    def run() -> None:
        with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
            app(run_of(folder), standalone_mode=False)

    yield Case(
        "detailed groups", "run", f"{people:,} persons, 48 blocks", run, "DuckDB reading the lines", read,
    )  # fmt: skip


def records(scratch: Path) -> Iterator[Case]:
    """Counting a Parquet file by cell."""
    import duckdb
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tabulae.products.tables.count import tabulate
    from tabulae.sources.coding import ColumnCoding
    from tabulae.sources.source import RecordSource

    people = 5_000_000
    domain = tb.Domain(
        {"sex": ["F", "M"], "age": [str(i) for i in range(100)], "place": [f"p{i}" for i in range(200)]}
    )
    rng, path = np.random.default_rng(0), scratch / "people.parquet"
    columns = {
        a.name: pa.DictionaryArray.from_arrays(
            rng.integers(0, a.size, people).astype(np.int32), pa.array(list(a.values))
        )
        for a in domain.attributes
    }
    pq.write_table(pa.table(columns), path)
    rules = {name: ColumnCoding(name) for name in domain.names}

    def group() -> None:
        with duckdb.connect() as connection:
            connection.sql(
                f"SELECT sex, age, place, count(*) FROM read_parquet('{path}') GROUP BY ALL"
            ).fetchnumpy()

    yield Case(
        "tabulate", "DuckDB, Parquet", f"{people:,} records of 3 attributes",
        lambda: tabulate(RecordSource(str(path)), domain, rules), "DuckDB grouping the raw values", group,
    )  # fmt: skip


CASES: dict[str, Callable[[Path], Iterator[Case]]] = {
    "tables": tables,
    "marginals": marginals,
    "subspace": subspace,
    "spines": spines,
    "measuring": measuring,
    "topdown": topdown,
    "detailed": detailed,
    "tabulate": records,
}


# measuring them ----------------------------------------------------------------------------------------------
def row(case: Case) -> dict[str, Any]:
    """One row of the table."""
    load = os.getloadavg()[0]
    hottest, share = profiled(case.run)
    best, floor, wall = float("inf"), float("inf"), float("inf")
    for _ in range(RUNS):
        begin, start = time.perf_counter(), time.process_time()
        case.run()
        best, wall = min(best, time.process_time() - start), min(wall, time.perf_counter() - begin)
        repeats = 0
        start = time.process_time()
        while repeats < 1 or time.process_time() - start < 0.02:
            case.floor()
            repeats += 1
        floor = min(floor, (time.process_time() - start) / repeats)
    return {
        "capability": case.capability,
        "stage": case.stage,
        "size": case.size,
        "seconds": f"{wall:.4g}",
        "cpu_s": f"{best:.4g}",
        "bound": case.bound,
        "bound_s": f"{floor:.3g}",
        "ratio": f"{best / floor:.3g}",
        "hottest": hottest,
        "share": f"{share:.2f}",
        "load": f"{load:.1f}",
    }


def profiled(run: Work) -> tuple[str, float]:
    """The library's function with the most time of its own and of what it calls outside the library; and its share."""
    profile = cProfile.Profile()
    profile.runcall(run)
    entries: dict[Any, Any] = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    own: dict[tuple[str, int, str], float] = defaultdict(float)
    for function, (_, _, spent, cumulative, callers) in entries.items():
        if function[0].startswith(LIBRARY):
            own[function] += spent
            continue
        for caller, (_, _, _, called) in callers.items():
            if caller[0].startswith(LIBRARY):
                own[caller] += min(called, cumulative)
    whole = max(cumulative for _, _, _, cumulative, _ in entries.values())
    found = max(own, key=lambda function: own[function])
    module = str(Path(found[0]).relative_to(LIBRARY).with_suffix("")).replace("/", ".")
    return f"{module}.{found[2]}", own[found] / whole


def table() -> str:
    """The page's table."""
    with RESULTS.open(newline="") as file:
        rows = list(csv.DictReader(file))
    lines = [
        "| capability | stage | size | CPU s | bound | CPU s | ratio | hottest function (share) |",
        "|---|---|---|--:|---|--:|--:|---|",
    ]
    for r in rows:
        hottest = f"`{r['hottest']}` ({100 * float(r['share']):.0f} %)"
        lines.append(
            f"| {r['capability']} | {r['stage']} | {r['size']} | {r['cpu_s']} | {r['bound']} | {r['bound_s']} "
            f"| **{r['ratio']}** | {hottest} |"
        )
    return "\n".join(lines)


def write_page() -> None:
    """Put the table between its marks on the page."""
    before, rest = PAGE.read_text().split("<!-- bounds -->\n")
    _, after = rest.split("<!-- end of bounds -->")
    PAGE.write_text(f"{before}<!-- bounds -->\n\n{table()}\n\n<!-- end of bounds -->{after}")


def main() -> int:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scratch", type=Path, nargs="?", help="a folder for made-up records")
    parser.add_argument("--only", choices=list(CASES), help="this capability alone; writes nothing")
    parser.add_argument("--page", action="store_true", help="the table from the CSV; measures nothing")
    options = parser.parse_args()
    if options.page:
        write_page()
        return 0
    if options.scratch is None:
        parser.error("say where made-up records may be written")
    options.scratch.mkdir(parents=True, exist_ok=True)
    rows = []
    with threadpool_limits(1):
        for name, make in CASES.items():
            for case in make(options.scratch) if options.only in (None, name) else ():
                rows.append(row(case))
                print(*(f"{key}={value}" for key, value in rows[-1].items()), flush=True)
    shutil.rmtree(options.scratch / "detailed", ignore_errors=True)
    if not options.only:
        record(RESULTS, COLUMNS, rows)
        write_page()
    return 0


if __name__ == "__main__":
    sys.exit(main())
