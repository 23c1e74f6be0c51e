"""Every workload of the tables of HDMM's, ResidualPlanner(+)'s and QuerySmasher's papers, and what is reached on it.

python -m benchmarks.peers                          every workload that is not in the CSV yet
python -m benchmarks.peers --only "[10]^40, mixed"  these workloads (see --list), again
python -m benchmarks.peers --bounds WORKLOAD ...    the bounds of these workloads, again; the rest of their rows stays
python -m benchmarks.peers --page                   the tables of docs/methods/frontier.md from the CSV

Each workload is measured in a process of its own, on one core. ``rmse`` is in the paper's convention: of one query at
privacy cost 1 (rho = 1/2, Gaussian noise) for ResidualPlanner and QuerySmasher; at epsilon = 1 (Laplace) or (1, 1e-6)
(Gaussian) for HDMM, whose Table 3 has total squared errors at unit noise. ``hdmm``, ``planner`` and ``smasher`` are the
peers' (``benchmarks.peers_paper``, ``benchmarks.hdmm_paper``); ``level`` is the exact optimum of residual spaces at
right angles to the total (QuerySmasher's, before any rounding), ``shared`` one basis an attribute for all sets. ``gap``
is squared error over the proven bound, less 1; ``cpu_s`` CPU seconds of selecting, ``proof_s`` of the bound;
``memory_mb`` the largest memory of the process up to the score. Workloads of HDMM's are selected by the method that
``benchmarks.hdmm`` found best; what took longer than ``AGAIN`` there is copied, without its memory.
"""

from __future__ import annotations

import argparse
import csv
import math
import multiprocessing
import resource
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.hdmm_paper import CORRECTED, PAPER
from benchmarks.peers_paper import PRINTED, SMASHER, STOPPED
from benchmarks.recorded import add_force, record
from threadpoolctl import threadpool_limits

import tabulae as tb
from benchmarks import hdmm, workloads
from tabulae.errors import Unsupported
from tabulae.strategy.bounds.lower import unit_bound
from tabulae.strategy.methods import SINGLE, Settings
from tabulae.strategy.residual.planner import shared_strategy
from tabulae.strategy.residual.spaces import Spaces
from tabulae.strategy.strategy import unit_rmse

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks/results/peers.csv"
PAGE = ROOT / "docs/methods/frontier.md"
COLUMNS = (
    "source", "workload", "noise", "hdmm", "planner", "smasher", "rmse", "bound", "gap", "method", "level", "shared",
    "tables", "queries", "cpu_s", "proof_s", "memory_mb", "note",
)  # fmt: skip
AGAIN = 20.0  # CPU seconds
_SECONDS = 3600  # of one workload, by the clock
_SVD_ROWS = 1024  # up to which joint tables have the SVD bound beside the product bound

Row = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A workload, and where it is printed."""

    source: str
    make: Callable[[], tb.Workload]


WAYS = {"1-way": (1,), "2-way": (2,), "3-way": (3,), "up to 3-way": (0, 1, 2, 3)}
PAIRS = {"a + b <= c": workloads.sums_up_to, "|a - b| <= c": workloads.at_most_apart}
OWN: dict[str, Callable[[int], tb.LinearOperator]] = {
    "marginals": tb.Identity, "prefixes": tb.Prefix, "ranges": tb.AllRange, "circular ranges": workloads.circular,
}  # fmt: skip
SIZES, MANY = (10, 20, 30, 40, 50), 40


CASES: dict[str, Case] = {
    **{
        f"{data} {kind}, {ways}": Case(
            f"ResidualPlanner+, RMSE of {kind}" + ("; QuerySmasher, Table 1" if kind == "prefixes" else ""),
            lambda data=data, kind=kind, ways=ways: workloads.ways(data, WAYS[ways], prefixed=kind == "prefixes"),
        )
        for kind, data, ways in product(("marginals", "prefixes"), workloads.NUMERIC, WAYS)
    },
    **{
        f"[10]^{d}, marginals up to 3-way": Case(
            "ResidualPlanner+, Synth-10^d",
            lambda d=d: tb.Workload.marginals(tb.Domain({f"a{i}": 10 for i in range(d)}), ways=range(1, min(d, 3) + 1)),
        )
        for d in (2, 5, 10, 15, 20, 50, 100)
    },
    **{
        f"{data}, {kind}": Case(
            "QuerySmasher, Table 2",
            lambda data=data, kind=kind: workloads.real_pairs(data, PAIRS[kind], 5000),
        )
        for data, kind in product(workloads.NUMERIC, PAIRS)
    },
    **{
        f"[{n}]^{MANY}, {kind}": Case(
            "QuerySmasher, Table 3" + ("; Table 5" if kind == "prefixes" else ""),
            lambda n=n, kind=kind: workloads.up_to_pairs([OWN[kind](n)] * MANY),
        )
        for n, kind in product(SIZES, OWN)
    },
    **{
        f"[{n}]^{MANY}, {kind}": Case(
            "QuerySmasher, Table 3",
            lambda n=n, kind=kind: workloads.up_to_pairs([tb.Prefix(n)] * MANY, PAIRS[kind]),
        )
        for n, kind in product(SIZES, PAIRS)
    },
    **{
        f"[{n}]^{MANY}, random rows": Case("QuerySmasher, Table 3", lambda n=n: workloads.random_pairs(n, MANY))
        for n in SIZES
    },
    **{
        f"[{n}]^{d}, mixed": Case("QuerySmasher, Tables 4 and 6", lambda n=n, d=d: workloads.mixed(n, d))
        for n, d in ((10, 10), (10, 20), (10, 40), (20, 10))
    },
    "adult.toml": Case("here", workloads.adult_example),
    "prefixes by cells, pairs of 8^4": Case("here", lambda: workloads.prefixes_by_cells(8, 4)),
    "prefixes by cells, pairs of 20^6": Case("here", lambda: workloads.prefixes_by_cells(20, 6)),
    "ten tables of six attributes": Case("here", workloads.ten_tables),
}  # fmt: skip

OF_HDMM = {f"{name}, {noise}": (name, noise) for name, noise in PAPER}


# measuring -------------------------------------------------------------------------------------------------
def measured(name: str) -> Row:
    """One row of the CSV."""
    with threadpool_limits(1):
        return _of_hdmm(*OF_HDMM[name]) if name in OF_HDMM else _at_unit_cost(name)


def _at_unit_cost(name: str) -> Row:
    case, settings = CASES[name], Settings("gaussian")
    workload = case.make()
    row: Row = {
        "source": case.source, "workload": name, "noise": "gaussian",
        "hdmm": PRINTED.get((name, "hdmm")), "planner": PRINTED.get((name, "planner")),
        "smasher": SMASHER.get(name, STOPPED.get(name)),
        "tables": len(workload.tables), "queries": workload.queries,
    }  # fmt: skip
    started = time.process_time()
    try:
        strategy = SINGLE["residual"](workload, settings)
    except Unsupported as refusal:
        return row | {"note": str(refusal).splitlines()[0]}
    planned = time.process_time()
    rmse = unit_rmse(strategy, workload, "add-remove")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    scored = time.process_time()
    lower = _lower(workload)
    proof = time.process_time() - scored
    level, shared = _special_cases(workload, settings)
    return row | {
        "rmse": _short(rmse), "method": "residual", "level": _short(level), "shared": _short(shared),
        "bound": _short(math.sqrt(lower / workload.queries) if lower else None),
        "gap": f"{rmse**2 * workload.queries / lower - 1:.2g}" if lower else None,
        "cpu_s": f"{planned - started:.1f}", "proof_s": f"{proof:.1f}", "memory_mb": memory,
    }  # fmt: skip


def _special_cases(workload: tb.Workload, settings: Settings) -> tuple[float | None, float | None]:
    """RMSE of spaces at right angles to the total, and of one basis for all sets where that is something else."""
    level, shared = None, None
    try:
        spaces = Spaces(workload.merge()[0], settings)
        level = spaces.value(spaces.uniform())[0] / math.sqrt(workload.queries)
        if spaces.differ and max(len(table.terms) for table in workload.tables) == 1:
            shared = unit_rmse(shared_strategy(workload, settings), workload, "add-remove")
    except Unsupported:
        pass
    return level, shared


def bounded(name: str, row: Row) -> Row:
    """A row with its bound worked out again, where that proves more."""
    workload, started = CASES[name].make(), time.process_time()
    with threadpool_limits(1):
        lower = _lower(workload)
    if lower is None or math.sqrt(lower / workload.queries) < float(row["bound"] or 0):
        return row
    return row | {
        "bound": _short(math.sqrt(lower / workload.queries)),
        "gap": f"{float(row['rmse']) ** 2 * workload.queries / lower - 1:.2g}",
        "proof_s": f"{time.process_time() - started:.1f}",
    }


def _lower(workload: tb.Workload) -> float | None:
    """The best bound on total squared error at unit cost that is found in a minute or so."""
    few = any(len(table.terms) > 1 for table in workload.tables) and workload.queries <= _SVD_ROWS
    bounds = (unit_bound(workload, kind) for kind in (("svd", "product") if few else ("product",)))
    return max((bound for bound in bounds if bound is not None), default=None)


def _of_hdmm(name: str, noise: str) -> Row:
    cells = {cell.method: cell for key, cell in hdmm.read().items() if key[:2] == (name, noise)}
    best = hdmm.best(cells.values())
    if best is None:
        raise SystemExit(f"python -m benchmarks.hdmm --only {name} comes first")
    memory = None
    if best.cpu_s <= AGAIN:
        best = hdmm.measure(name, noise, best.method)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    rmse, bound = best.rmse or math.inf, proven(name, noise)
    gap = (rmse / bound) ** (1 if name == "example-15" else 2) - 1
    printed = min(value for method, value in PAPER[name, noise].items() if method in (*hdmm.HDMM, "hdmm"))
    printed = CORRECTED.get((name, noise, "hdmm"), printed)
    workload = hdmm.WORKLOADS[name]()
    table = 3 if name == "example-15" else (4 if name in hdmm.ONE else 6) + (noise == "gaussian")
    return {
        "source": f"HDMM, Table {table}", "workload": name, "noise": noise, "hdmm": printed,
        "rmse": _short(rmse), "bound": _short(bound), "gap": f"{max(gap, 0.0):.2g}", "method": best.method,
        "tables": len(workload.tables), "queries": workload.queries, "cpu_s": f"{best.cpu_s:.1f}", "memory_mb": memory,
    }  # fmt: skip


def proven(name: str, noise: str) -> float:
    """The largest bound that ``benchmarks.hdmm`` has; what holds for L2 sensitivity holds for L1 (Laplace noise)."""
    scale = {
        n: 1.0 if name == "example-15" else hdmm.DEVIATION[noise] / hdmm.DEVIATION[n]
        for n in ("gaussian", noise)
    }
    return max(
        c.bound * scale[n] for (w, n, _), c in hdmm.read().items() if w == name and n in scale and c.bound
    )


def _short(value: float | None) -> str | None:
    return None if value is None else f"{value:.8g}"


# the CSV ---------------------------------------------------------------------------------------------------
def read() -> dict[str, dict[str, str]]:
    """All rows, by the name that :func:`measured` takes."""
    if not RESULTS.exists():
        return {}
    with RESULTS.open(newline="", encoding="utf-8") as file:
        return {_name(row): row for row in csv.DictReader(file)}


def _name(row: dict[str, str]) -> str:
    return row["workload"] if row["workload"] in CASES else f"{row['workload']}, {row['noise']}"


def _in_its_own_process(name: str) -> Row:
    with multiprocessing.get_context("fork").Pool(1) as pool:
        try:
            return pool.apply_async(measured, (name,)).get(_SECONDS)
        except multiprocessing.TimeoutError:
            case = CASES[name]
            return {
                "source": case.source,
                "workload": name,
                "noise": "gaussian",
                "note": f"more than {_SECONDS} s",
            }


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=[*CASES, *OF_HDMM], metavar="WORKLOAD")
    parser.add_argument("--bounds", nargs="+", choices=[*CASES], metavar="WORKLOAD")
    parser.add_argument("--list", action="store_true", help="names of the workloads")
    parser.add_argument("--page", action="store_true", help="the tables of the page; measures nothing")
    add_force(parser)
    given = parser.parse_args()
    rows = read()
    if given.list:
        print("\n".join([*CASES, *OF_HDMM]))
    elif given.page:
        write_page(list(rows.values()))
    else:
        for name in given.bounds or given.only or [n for n in (*CASES, *OF_HDMM) if n not in rows]:
            rows[name] = bounded(name, rows[name]) if given.bounds else _in_its_own_process(name)
            print(*(f"{key}={value}" for key, value in rows[name].items() if value is not None), flush=True)
            record(RESULTS, COLUMNS, [rows[n] for n in (*CASES, *OF_HDMM) if n in rows], force=given.force)


# the page --------------------------------------------------------------------------------------------------
HEADS = {
    "workload": "workload", "noise": "noise", "hdmm": "HDMM", "planner": "RP+", "smasher": "QuerySmasher",
    "level": "its optimum", "rmse": "here", "ahead": "less than the best peer",
    "bound": "bound", "gap": "gap, squared", "method": "method", "cpu_s": "CPU s", "memory_mb": "MB",
}  # fmt: skip
PLACES = {
    "real data": ("ResidualPlanner+, RMSE", ("hdmm", "planner", "smasher", "level")),
    "many attributes": ("ResidualPlanner+, Synth", ("level",)),
    "pairs of real data": ("QuerySmasher, Table 2", ("level",)),
    "forty attributes": ("QuerySmasher, Table 3", ("smasher", "level")),
    "mixed": ("QuerySmasher, Tables 4", ("smasher", "level")),
    "HDMM": ("HDMM", ("noise", "hdmm")),
}
"""By the name of a table on the page: how its sources begin, and the columns between the workload and ours."""


def ahead(row: dict[str, str]) -> str:
    """How much less our RMSE is than the peers' least, to the digits of theirs."""
    peers = [v for c in ("hdmm", "planner", "smasher", "level") if (v := row[c]).replace(".", "").isdigit()]
    if not peers or not row["rmse"]:
        return ""
    least = min(peers, key=float)
    ours, theirs = float(row["rmse"]), float(least)
    if round(ours, len(least.partition(".")[2])) == theirs:
        return "the same"
    return (
        f"{100 * (1 - ours / theirs):.2g} %"
        if ours < theirs
        else f"**{100 * (ours / theirs - 1):.2g} % more**"
    )


def page_tables(rows: Iterable[dict[str, str]]) -> dict[str, str]:
    """Markdown tables by the name of their place on the page."""
    tables = {}
    for place, (source, between) in PLACES.items():
        mine = [row | {"ahead": ahead(row)} for row in rows if row["source"].startswith(source)]
        last = (
            "rmse",
            "ahead",
            "bound",
            "gap",
            *(("method",) if place == "HDMM" else ()),
            "cpu_s",
            "memory_mb",
        )
        shown = [c for c in ("workload", *between, *last) if c == "workload" or any(row[c] for row in mine)]
        lines = [
            [HEADS[c] for c in shown],
            ["---" if c in ("workload", "noise", "method") else "--:" for c in shown],
        ]
        lines += [[_cell(c, row) for c in shown] for row in mine]
        tables[place] = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return tables


def _cell(column: str, row: dict[str, str]) -> str:
    value = row[column]
    if column == "rmse" and not value:
        return row["note"].split(",")[0] if row["note"].startswith("more than") else "refused"
    if column == "gap" and value:
        share = 100 * float(value)
        if not 1e-3 < share <= 1000:
            return "0" if share < 1 else "> 1,000 %"
        return f"{share:.0f} %" if share > 99 else f"{share:.2g} %"
    if column in ("smasher", "level", "rmse", "bound") and value.replace(".", "").isdigit():
        return f"{float(value):,.0f}" if float(value) > 1e4 else f"{float(value):,.3f}"
    return value.replace("|", "\\|").replace("[", "\\[") if column == "workload" else value


def write_page(rows: Iterable[dict[str, str]]) -> None:
    """Put the tables between their marks."""
    text = PAGE.read_text(encoding="utf-8")
    for place, table in page_tables(rows).items():
        before, rest = text.split(f"<!-- {place} -->\n")
        after = rest.split(f"<!-- end of {place} -->")[1]
        text = f"{before}<!-- {place} -->\n\n{table}\n\n<!-- end of {place} -->{after}"
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
