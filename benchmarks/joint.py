"""Pairs of attributes that are no products: how well and how fast their tables are measured.

python -m benchmarks.joint                         every case that is not in the CSV yet
python -m benchmarks.joint --only "[10]^40 affine"     this case, again

Every attribute's prefixes (of the first so many attributes; categories of the others), and for each pair of them

* ``affine``: the counts of ``a + b <= c`` for all c, n + k - 1 rows;
* ``gaps``: the counts of ``|a - b| <= c`` for all c, max(n, k) rows,

with categories numbered from 0. A pair with ``(n - 1) (k - 1)`` above the limit that the case names is asked for the
product of both attributes' own queries in their place. RMSE at rho = 1/2, wall seconds of ``select``, and the largest
memory of the process, which each case has for itself.

Reference: the workloads of QuerySmasher (arXiv 2604.00868).
"""

from __future__ import annotations

import argparse
import csv
import math
import resource
import subprocess
import sys
import time
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.recorded import add_force, record
from benchmarks.workloads import ADULT, CPS, LOANS

import tabulae as tb

RESULTS = Path(__file__).parent / "results" / "joint.csv"
COLUMNS = ("workload", "method", "tables", "queries", "rmse", "select_s", "score_s", "mb", "note")
ALIKE = {f"[{n}]^40": (n,) * 40 for n in (10, 20, 50)}
PREFIXES = {"CPS": (tuple(CPS.values()), 2), "Adult": (ADULT, 5), "Loans": (LOANS, 4)}
CASES = {
    **{f"{name} {kind}": (name, kind, math.inf) for name in ALIKE for kind in ("affine", "gaps")},
    **{
        f"{name} {kind}, up to {limit}": (name, kind, limit)
        for name, limit in (("CPS", 5000), ("CPS", 1000), ("Adult", 1000), ("Loans", 1000))
        for kind in ("affine", "gaps")
    },
}
METHODS = ("residual",)
_SECONDS = 600  # of one case


def pair(kind: str, n: int, k: int) -> np.ndarray:
    """The queries of one pair of attributes, (rows, n k)."""
    a, b = np.indices((n, k)).reshape(2, -1)
    values = a + b if kind == "affine" else abs(a - b)
    return (values <= np.arange(values.max() + 1)[:, None]).astype(np.int64)


def workload(name: str, kind: str, limit: float) -> tb.Workload:
    """All tables of one case."""
    sizes, prefixes = (ALIKE[name], 40) if name in ALIKE else PREFIXES[name]
    names = [f"x{i}" for i in range(len(sizes))]
    own = [tb.Prefix(n) if i < prefixes else tb.Identity(n) for i, n in enumerate(sizes)]
    tables = [tb.Table(x, {x: asked}) for x, asked in zip(names, own, strict=True)]
    for i, j in combinations(range(len(sizes)), 2):
        title = f"{names[i]}*{names[j]}"
        if (sizes[i] - 1) * (sizes[j] - 1) <= limit:
            tables.append(tb.Table.joint(title, [names[i], names[j]], pair(kind, sizes[i], sizes[j])))
        else:
            tables.append(tb.Table(title, {names[i]: own[i], names[j]: own[j]}))
    return tb.Workload(tb.Domain(dict(zip(names, sizes, strict=True))), tables)


def measured(case: str, method: str) -> dict[str, Any]:
    """One row of the CSV."""
    asked = workload(*CASES[case])
    row: dict[str, Any] = {
        "workload": case,
        "method": method,
        "tables": len(asked.tables),
        "queries": asked.queries,
    }
    start = time.perf_counter()
    try:
        strategy = tb.select(asked, method=method)
    except tb.errors.Unsupported as error:
        return row | {"note": f"refused: {str(error).split(':')[0]}"}
    chosen = time.perf_counter()
    error = strategy.error(asked, tb.ZCDP("1/2"))
    return row | {
        "rmse": round(error.rmse, 4),
        "select_s": round(chosen - start, 1),
        "score_s": round(time.perf_counter() - chosen, 1),
        "mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def _in_its_own_process(case: str, method: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.joint", "--one", case, method]
    try:
        out = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=True).stdout
    except subprocess.TimeoutExpired:
        return {"workload": case, "method": method, "note": f"more than {_SECONDS} s"}
    return dict(zip(COLUMNS, next(csv.reader([out.splitlines()[-1]])), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*", default=None, help="cases to measure again")
    parser.add_argument("--methods", nargs="*", default=METHODS)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    add_force(parser)
    given = parser.parse_args()
    if given.one:
        row = measured(*given.one)
        csv.writer(sys.stdout).writerow([row.get(column, "") for column in COLUMNS])
        return
    known: dict[tuple[str, str], dict[str, Any]] = {}
    if RESULTS.exists():
        with RESULTS.open(newline="", encoding="utf-8") as file:
            known = {(row["workload"], row["method"]): row for row in csv.DictReader(file)}
    for case in given.only or CASES:
        for method in given.methods:
            if given.only or (case, method) not in known:
                known[case, method] = _in_its_own_process(case, method)
                print(known[case, method], flush=True)
                order = [(c, m) for c in CASES for m in METHODS if (c, m) in known]
                record(RESULTS, COLUMNS, [known[key] for key in order], force=given.force)


if __name__ == "__main__":
    main()
