"""HDMM's Tables 3 to 7 recomputed, and what beats them: benchmarks/results/hdmm.csv and the tables of the docs page.

python -m benchmarks.hdmm                            every cell that is not in the CSV yet
python -m benchmarks.hdmm --only sf1 cps-prefix      these workloads (see --list), again
python -m benchmarks.hdmm --methods kron union --noise laplace
python -m benchmarks.hdmm --page                     tables of docs/methods/hdmm.md from the CSV

A cell is a workload, a noise and a method: RMSE at epsilon = 1 (Laplace) or (1, 1e-6) (Gaussian) and the CPU seconds
of selecting the strategy, on one core. Cells are written as they finish and updated one by one, so that the whole can
be run in parts. Beside the methods of ``select``: ``union-each`` is OPT_+ as published, one product for each table and
each table answered from its own; ``workload-alone`` noise on every query, no least squares; ``svd`` and
``dual`` proven bounds.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.hdmm_paper import CORRECTED, FOUND, PAPER, SIZES
from threadpoolctl import threadpool_limits

import tabulae as tb
from benchmarks import workloads
from tabulae.errors import NotEstimable, Unsupported
from tabulae.strategy import baseline
from tabulae.strategy.hdmm.union import groups_of
from tabulae.strategy.methods import Settings
from tabulae.strategy.strategy import unit_rmse

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks/results/hdmm.csv"
PAGE = ROOT / "docs/methods/hdmm.md"
DEVIATION = {"gaussian": 4.224678889326836, "laplace": math.sqrt(2)}

ONE: dict[str, Callable[[], tb.Workload]] = {
    f"{name}-{n}": lambda make=make, n=n: make(n)
    for name, make in (
        ("all-range", workloads.all_range),
        ("prefix", workloads.prefix),
        ("width-32", workloads.width_32),
        ("permuted", workloads.permuted),
    )
    for n in SIZES
}
SEVERAL: dict[str, Callable[[], tb.Workload]] = {
    "sf1": workloads.sf1,
    "sf1-plus": workloads.sf1_plus,
    "cps-marginals": workloads.cps_marginals,
    "cps-prefix": workloads.cps_prefix,
    "adult-3d": workloads.adult_3d,
    "adult-2d-prefix": workloads.adult_2d_prefix,
    "loans-small": workloads.loans_small,
    "loans-small-prefix": workloads.loans_small_prefix,
}
WORKLOADS = {"example-15": workloads.example15, **ONE, **SEVERAL}

HDMM = ("kron", "union", "marginals", "opt0")
METHODS = (
    "identity", "workload-alone", "workload", "kron", "union-each", "union", "marginals", "residual",
    "optimised-marginals", "opt0", "svd", "dual",
)  # fmt: skip
BOUNDS = ("svd", "dual")
NOT_METHODS = ("workload-alone", "union-each", *BOUNDS)


@dataclass(frozen=True)
class Result:
    """One cell. ``bound`` is a lower bound that the method proved on the way; ``note`` why there is no number."""

    workload: str
    noise: str
    method: str
    rmse: float | None
    bound: float | None
    cpu_s: float
    note: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """What the CSV holds once."""
        return self.workload, self.noise, self.method


def wanted(name: str, noise: str) -> list[str]:
    """The methods that mean something for a workload: one attribute has one operator, and Gaussian noise one more."""
    # OPT_0 proves the dual bound on the way, which takes minutes here; it holds for Laplace noise too.
    bounds = () if name.endswith("-4096") else ("svd",) if name.startswith("sf1") else BOUNDS
    if name in ONE:
        return ["identity", "workload-alone", "opt0", *bounds]
    skip = {"optimised-marginals"} if noise == "gaussian" else set()
    if name not in ("sf1", "sf1-plus", "example-15") or noise == "laplace":
        skip.add("opt0")  # too many cells and rows
    return [m for m in METHODS if m not in skip and (m not in BOUNDS or m in bounds)]


def measure(name: str, noise: str, method: str) -> Result:
    """Run one cell."""
    workload = WORKLOADS[name]()
    start = time.process_time()
    loss, bound, note = None, None, ""
    try:
        loss, bound = _loss(workload, noise, method)
    except (Unsupported, NotEstimable) as refusal:
        note = str(refusal).splitlines()[0]
    seconds = time.process_time() - start
    factor = 1.0 if name == "example-15" else DEVIATION[noise] / math.sqrt(workload.queries)
    value, proven = (
        None if x is None else (x if name == "example-15" else factor * math.sqrt(x)) for x in (loss, bound)
    )
    return Result(name, noise, method, value, proven, seconds, note)


def _loss(workload: tb.Workload, noise: str, method: str) -> tuple[float | None, float | None]:
    """Total squared error at unit noise and sensitivity, and a lower bound on anybody's."""
    if method in BOUNDS:
        budget, unit = (tb.ZCDP("1/2"), 1.0) if noise == "gaussian" else (tb.PureDP(1), math.sqrt(2))
        rmse = tb.lower_bound(workload, noise, budget=budget, kind=method)  # type: ignore[arg-type]
        return None, (rmse / unit) ** 2 * workload.queries
    if method == "workload-alone":
        asked = baseline(workload, "workload", noise, "add-remove")  # type: ignore[arg-type]
        return float(asked.sensitivity()) ** 2 * workload.queries, None
    if method == "union-each":
        groups = tuple((table.name,) for table in workload.tables)
        losses = [g.loss for g in groups_of(workload, Settings(noise, groups=groups))]  # type: ignore[arg-type]
        return split_loss(losses, noise), None
    strategy = baseline(workload, method, noise, "add-remove")  # type: ignore[arg-type]
    return unit_rmse(strategy, workload, "add-remove") ** 2 * workload.queries, strategy.lower


def split_loss(losses: Iterable[float], noise: str) -> float:
    """Total squared error of groups answered one by one, at unit noise, under the best split of the budget."""
    root = 2 if noise == "gaussian" else 3
    return math.fsum(loss ** (1 / root) for loss in losses) ** root


# the CSV ---------------------------------------------------------------------------------------------------
def read() -> dict[tuple[str, str, str], Result]:
    """All cells measured so far."""
    if not RESULTS.exists():
        return {}
    with RESULTS.open(newline="") as file:
        rows = [
            Result(
                row["workload"], row["noise"], row["method"],
                float(row["rmse"]) if row["rmse"] else None, float(row["bound"]) if row["bound"] else None,
                float(row["cpu_s"]), row["note"],
            )
            for row in csv.DictReader(file)
        ]  # fmt: skip
    return {row.key: row for row in rows}


def write(result: Result) -> None:
    """Put one cell into the CSV, in place of what it held for it; several runs may write at once."""
    results = read()
    results[result.key] = result
    names, order = list(WORKLOADS), {"gaussian": 0, "laplace": 1}
    ordered = sorted(
        results.values(), key=lambda r: (names.index(r.workload), order[r.noise], METHODS.index(r.method))
    )
    partial = RESULTS.with_suffix(".part")
    with partial.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(asdict(result)))
        writer.writeheader()
        for r in ordered:
            numbers = {"rmse": _short(r.rmse), "bound": _short(r.bound), "cpu_s": f"{r.cpu_s:.2f}"}
            writer.writerow({**asdict(r), **numbers})
    partial.replace(RESULTS)


def _short(value: float | None) -> str:
    return "" if value is None else f"{value:.8g}"


# the page --------------------------------------------------------------------------------------------------
def best(cells: Iterable[Result]) -> Result | None:
    """The least error that a strategy reaches."""
    reached = [r for r in cells if r.rmse is not None and r.method not in NOT_METHODS]
    return min(reached, key=lambda r: r.rmse or math.inf, default=None)


def page_tables() -> dict[str, str]:
    """Markdown tables by the name of their place on the page."""
    results = read()
    by_cell: dict[tuple[str, str], dict[str, Result]] = {}
    for (name, noise, method), result in results.items():
        by_cell.setdefault((name, noise), {})[method] = result
    return {
        "table 3": _operators("example-15", by_cell),
        "tables 4 and 5": _summary(list(ONE), by_cell),
        "tables 6 and 7": _summary(list(SEVERAL), by_cell),
        "operators": _by_operator(by_cell),
    }


def _summary(names: list[str], by_cell: dict[tuple[str, str], dict[str, Result]]) -> str:
    lines = [
        "| workload | noise | paper | corrected | found | ours | method | bound | CPU s |",
        "|---|---|--:|--:|--:|--:|---|--:|--:|",
    ]
    for name in names:
        for noise in ("laplace", "gaussian"):
            cells = by_cell.get((name, noise), {})
            winner = best(cells.values())
            if winner is None or winner.rmse is None or (name in ONE and "opt0" not in cells):
                continue
            paper = PAPER[name, noise]
            proven = [  # what holds for L2 sensitivity holds for L1
                r.bound * DEVIATION[noise] / DEVIATION[other]
                for other in ("gaussian", noise)
                for r in by_cell.get((name, other), {}).values()
                if r.bound
            ]
            corrected = CORRECTED.get((name, noise, "hdmm"))
            lines.append(
                f"| {name} | {noise} | {paper.get('hdmm', paper.get('opt0')):,.2f} | {_plain(corrected)} "
                f"| {_plain(FOUND.get((name, noise)))} | **{_plain(winner.rmse)}** | {winner.method} "
                f"| {_plain(max(proven, default=None))} | {winner.cpu_s:.3g} |"
            )
    return "\n".join(lines)


def _plain(value: float | None) -> str:
    return "" if value is None else f"{value:,.5g}" if abs(value) < 1e5 else f"{value:.3e}"


def _operators(name: str, by_cell: dict[tuple[str, str], dict[str, Result]]) -> str:
    lines = ["| method | paper | Laplace | Gaussian |", "|---|--:|--:|--:|"]
    for method in METHODS:
        pair = [by_cell.get((name, noise), {}).get(method) for noise in ("laplace", "gaussian")]
        values = [None if r is None else r.bound if method in BOUNDS else r.rmse for r in pair]
        if any(v is not None for v in values):
            paper = PAPER[name, "laplace"].get(method)
            lines.append(
                f"| {method} | {'' if paper is None else f'{paper:,.0f}'} | "
                + " | ".join("" if v is None else f"{v:,.1f}" for v in values)
                + " |"
            )
    return "\n".join(lines)


def _by_operator(by_cell: dict[tuple[str, str], dict[str, Result]]) -> str:
    methods = ("identity", "workload-alone", "kron", "union-each", "marginals")
    others = ("workload", "union", "residual", "optimised-marginals", "opt0")
    lines = [
        "| workload | noise | "
        + " | ".join(f"{m}: paper, ours" for m in methods)
        + " | "
        + " | ".join(others)
        + " |",
        "|---|---|" + "--:|" * (len(methods) + len(others)),
    ]
    for name in SEVERAL:
        for noise in ("laplace", "gaussian"):
            cells = by_cell.get((name, noise), {})
            if not cells:
                continue

            def ours(method: str, cells: dict[str, Result] = cells) -> str:
                return _plain(cells[method].rmse) if method in cells else ""

            pairs = [f"{_plain(PAPER[name, noise].get(m))}, {ours(m) or '-'}" for m in methods]
            lines.append(
                f"| {name} | {noise} | " + " | ".join(pairs) + " | " + " | ".join(map(ours, others)) + " |"
            )
    return "\n".join(lines)


def write_page() -> None:
    """Put the tables into the docs page, between the comments that mark their places."""
    text = PAGE.read_text()
    for place, table in page_tables().items():
        opening, closing = f"<!-- {place} -->\n", f"<!-- end of {place} -->"
        before, rest = text.split(opening)
        _, after = rest.split(closing)
        text = f"{before}{opening}\n{table}\n\n{closing}{after}"
    PAGE.write_text(text)


def missed(results: Iterable[Result]) -> list[str]:
    """Cells whose best error is above the least known: by more than 0.1 % (Gaussian) or 0.5 % (Laplace)."""
    by_cell: dict[tuple[str, str], list[Result]] = {}
    for r in results:
        by_cell.setdefault((r.workload, r.noise), []).append(r)
    slack = {"gaussian": 1.001, "laplace": 1.005}
    found = []
    for (name, noise), cells in by_cell.items():
        winner, known = best(cells), FOUND.get((name, noise))
        if known is not None and winner is not None and (winner.rmse or math.inf) > known * slack[noise]:
            found.append(f"{name}, {noise}: {winner.rmse:.4f} by {winner.method}, known {known}")
    return found


def main() -> int:
    """Measure what is asked for; fail where the least known error is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=list(WORKLOADS), metavar="WORKLOAD")
    parser.add_argument("--methods", nargs="+", choices=METHODS)
    parser.add_argument(
        "--noise", nargs="+", choices=("gaussian", "laplace"), default=("gaussian", "laplace")
    )
    parser.add_argument("--list", action="store_true", help="names of the workloads")
    parser.add_argument(
        "--page", action="store_true", help="write the tables of the docs page; measure nothing"
    )
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(WORKLOADS))
        return 0
    if arguments.page:
        write_page()
        return 0
    done = {} if arguments.only or arguments.methods else read()
    for name in arguments.only or WORKLOADS:
        for noise in arguments.noise:
            for method in wanted(name, noise):
                if (arguments.methods and method not in arguments.methods) or (name, noise, method) in done:
                    continue
                with threadpool_limits(1):
                    result = measure(name, noise, method)
                write(result)
                print(
                    f"{name:20} {noise:9} {method:20} {_short(result.rmse):>12} {_short(result.bound):>12} "
                    f"{result.cpu_s:8.2f} s  {result.note[:70]}",
                    flush=True,
                )
    failures = missed(read().values())
    print("\n".join(failures) or "nowhere above the least error known")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
