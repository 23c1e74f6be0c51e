"""Tables that ask different things of an attribute, and tables of pairs that are no products, by the residual planner.

python -m benchmarks.spaces             every workload, each in a process of its own, into results/spaces.csv
python -m benchmarks.spaces adult.toml  these workloads, printed

RMSE under Gaussian noise at privacy cost 1 (rho = 1/2), ``shared`` that of one basis an attribute for all sets,
``level`` that of the exact optimum of spaces with a = 1/n (QuerySmasher's, arXiv 2604.00868, before any rounding), the
gap to the proven bound in squared error where one is known, CPU seconds of planning on one core and of scoring, and the
largest memory of the process in MB.
"""

from __future__ import annotations

import csv
import itertools
import json
import math
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

import tabulae as tb
from tabulae.errors import Unsupported
from tabulae.linalg import Dense
from tabulae.strategy.bounds.lower import unit_bound
from tabulae.strategy.methods import SINGLE, Settings
from tabulae.strategy.residual.planner import shared_strategy
from tabulae.strategy.residual.spaces import Spaces
from tabulae.strategy.strategy import unit_rmse

RESULTS = Path(__file__).parent / "results/spaces.csv"
COLUMNS = ("workload", "tables", "rmse", "shared", "level", "gap", "cpu_s", "score_s", "memory_mb")
_FEW_TERMS = 2000  # products of all tables together for which one shared basis and a bound are worked out

Pairs = Callable[[int, int], Dense]


def sums_up_to(n: int, k: int) -> Dense:
    """Pairs with ``a + b <= c`` for every c."""
    added = np.add.outer(np.arange(n), np.arange(k)).ravel()
    return Dense((added <= np.arange(n + k - 1)[:, None]).astype(int))


def at_most_apart(n: int, k: int) -> Dense:
    """Pairs with ``|a - b| <= c`` for every c."""
    apart = abs(np.subtract.outer(np.arange(n), np.arange(k))).ravel()
    return Dense((apart <= np.arange(max(n, k))[:, None]).astype(int))


def of_pairs(n: int, d: int, pairs: Pairs) -> tb.Workload:
    """Prefixes of each of d attributes of n categories, and one joint table for each two of them."""
    domain = tb.Domain({f"a{i}": n for i in range(d)})
    matrix = pairs(n, n)
    tables = [tb.Table(name, {name: tb.Prefix(n)}) for name in domain.names]
    joint = (tb.Table.joint("-".join(p), p, matrix) for p in itertools.combinations(domain.names, 2))
    return tb.Workload(domain, [*tables, *joint])


def prefixes_by_cells(n: int, d: int) -> tb.Workload:
    """For each two attributes the prefixes of the first by the categories of the second."""
    domain = tb.Domain({f"a{i}": n for i in range(d)})
    pairs = itertools.combinations(domain.names, 2)
    return tb.Workload(domain, [tb.Table(f"{a} {b}", {a: tb.Prefix(n), b: tb.Identity(n)}) for a, b in pairs])


def adult() -> tb.Workload:
    """The tables of examples/adult.toml."""
    domain = tb.Domain({"age": 85, "education": 16, "sex": 2, "hours": 99, "income": 2})
    cells = {name: tb.Identity(domain[name].size) for name in domain.names}
    return tb.Workload(
        domain,
        [
            tb.Table("age by sex", {name: cells[name] for name in ("age", "sex")}),
            tb.Table("education", {name: cells[name] for name in ("education", "sex", "income")}),
            tb.Table("ages", {"age": tb.AllRange(85)}),
            tb.Table("hours", {"hours": tb.AllRange(99)}),
        ],
    )


def ten_tables() -> tb.Workload:
    """Ranges (R), prefixes (P) and categories (I) of six attributes."""
    sizes, ask = (40, 30, 20, 10, 5, 2), {"R": tb.AllRange, "P": tb.Prefix, "I": tb.Identity}
    asked = ("0:R", "1:R", "02:PI", "13:PP", "01:PI", "234:III", "05:II", "145:PII", "2:R", "35:RI")
    tables = []
    for name in asked:
        places, kinds = name.split(":")
        factors = {f"a{i}": ask[k](sizes[int(i)]) for i, k in zip(places, kinds, strict=True)}
        tables.append(tb.Table(name, factors))
    return tb.Workload(tb.Domain({f"a{i}": n for i, n in enumerate(sizes)}), tables)


def cps(pairs: Pairs) -> tb.Workload:
    """CPS: single attributes, and one joint table for each two of them."""
    sizes = {"income": 50, "age": 100, "status": 7, "race": 4, "sex": 2}
    single = [tb.Table(n, {n: (tb.Prefix if k > 7 else tb.Identity)(k)}) for n, k in sizes.items()]
    joint = (
        tb.Table.joint("-".join(p), p, pairs(*(sizes[name] for name in p)))
        for p in itertools.combinations(sizes, 2)
    )
    return tb.Workload(tb.Domain(sizes), [*single, *joint])


CASES: dict[str, Callable[[], tb.Workload]] = {
    "adult.toml": adult,
    "prefixes by cells, pairs of 8^4": lambda: prefixes_by_cells(8, 4),
    "prefixes by cells, pairs of 20^6": lambda: prefixes_by_cells(20, 6),
    "ten tables of six attributes": ten_tables,
    **{f"[{n}]^40, a + b <= c": lambda n=n: of_pairs(n, 40, sums_up_to) for n in (10, 20, 50)},
    **{f"[{n}]^40, |a - b| <= c": lambda n=n: of_pairs(n, 40, at_most_apart) for n in (10, 20, 50)},
    "CPS, a + b <= c": lambda: cps(sums_up_to),
    "CPS, |a - b| <= c": lambda: cps(at_most_apart),
}


def level_rmse(workload: tb.Workload) -> float:
    """The RMSE of the optimum with a = 1/n, to five digits."""
    spaces = Spaces(workload.merge()[0], Settings("gaussian"))
    return spaces.value(spaces.uniform())[0] / math.sqrt(workload.queries)


def measured(name: str) -> dict[str, object]:
    """One row of the CSV."""
    workload, settings = CASES[name](), Settings("gaussian")
    with threadpool_limits(1):
        started = time.process_time()
        strategy = SINGLE["residual"](workload, settings)
        planned = time.process_time()
        rmse = unit_rmse(strategy, workload, "add-remove")
        scored = time.process_time()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    shared, gap = math.nan, math.nan
    products = [len(table.terms) for table in workload.tables]
    if sum(products) <= _FEW_TERMS and max(products) == 1:
        try:
            shared = unit_rmse(shared_strategy(workload, settings), workload, "add-remove")
        except Unsupported:
            shared = math.nan
        lower = unit_bound(workload, "product")
        gap = math.nan if lower is None else rmse**2 * workload.queries / lower - 1
    values = (
        f"{rmse:.4f}",
        f"{shared:.4f}",
        f"{level_rmse(workload):.4f}",
        f"{gap:.4f}",
        f"{planned - started:.1f}",
        f"{scored - planned:.1f}",
    )
    row = (name, len(workload.tables), *("" if v == "nan" else v for v in values), memory)
    return dict(zip(COLUMNS, row, strict=True))


def main(names: list[str]) -> None:
    if names:
        for name in names:
            print(json.dumps(measured(name)))
        return
    rows = []
    for name in CASES:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.spaces", name], capture_output=True, text=True, check=True
        )
        rows.append(json.loads(done.stdout))
        print(done.stdout, end="", flush=True)
    with RESULTS.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main(sys.argv[1:])
