"""Sixty random workloads that nothing was tuned on, under both noises: what ``auto`` reaches, proves and takes.

python -m benchmarks.fresh                 those that are not in the CSV yet; writes benchmarks/results/fresh.csv
python -m benchmarks.fresh --only 3 17     these seeds, again

Two to five tables over one to seven attributes: cells, prefixes, ranges, windows, totals and random predicates,
products of them, and joint tables (``a + b <= c``, ``|a - b| <= c``, random rows), at weights within a factor 10.
``limit_s`` is the time limit given and ``cpu_s`` what selecting took, both in seconds of a core. ``rmse`` is at unit
noise and sensitivity. ``proven`` is the bound behind the certificate (Gaussian noise) or the best one known (Laplace
noise); ``dual`` the optimum under Gaussian noise, over all cells, where they are at most ``DENSE``: no ``proven`` of
Gaussian noise may lie above it.
"""

from __future__ import annotations

import argparse
import csv
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.recorded import add_force, record
from threadpoolctl import threadpool_limits

import tabulae as tb
from tabulae.errors import Unsupported
from tabulae.strategy.bounds.lower import lower_bound
from tabulae.strategy.gram import explicit_gram
from tabulae.strategy.hdmm.opt0 import opt0_gaussian

RESULTS = Path(__file__).parent / "results/fresh.csv"
COLUMNS = (
    "seed", "noise", "domain", "cells", "tables", "joint", "queries", "method", "rmse", "proven", "gap", "dual",
    "limit_s", "cpu_s", "note",
)  # fmt: skip
SHAPES = [
    (5, 7), (30, 20), (12, 8, 6), (6, 5, 4, 3), (50,), (100, 4), (8, 8, 8, 8), (3,) * 7, (20, 15, 10), (9, 9, 2),
    (200, 3), (10,) * 6,
]  # fmt: skip
SEEDS = range(1000, 1060)
LIMIT = 20.0
DENSE = 700  # cells
_UNIT = {"gaussian": tb.ZCDP("1/2"), "laplace": tb.PureDP(1)}


def random_workload(seed: int, shape: tuple[int, ...]) -> tb.Workload:
    """Two to five tables, a third of them joint where there are two attributes; weights within a factor 10."""
    draw = np.random.default_rng(seed)
    domain = tb.Domain({f"a{i}": n for i, n in enumerate(shape)})
    tables = []
    for t in range(2 + draw.integers(4)):
        weight = str(round(10 ** draw.uniform(-0.5, 0.5), 2))
        names = [name for name in domain.names if draw.random() < 0.6] or [domain.names[0]]
        if len(names) >= 2 and draw.random() < 1 / 3:
            two = names[:2]
            tables.append(_joint(draw, f"t{t}", two, [domain[name].size for name in two], weight))
        else:
            tables.append(
                tb.Table(f"t{t}", {name: _matrix(draw, domain[name].size) for name in names}, weight)
            )
    return tb.Workload(domain, tables)


def _matrix(draw: np.random.Generator, n: int) -> tb.LinearOperator:
    kinds = [tb.Identity(n), tb.Prefix(n), tb.AllRange(n), tb.Total(n), tb.WidthRange(n, 1 + n // 2)]
    kind = draw.integers(len(kinds) + 1)
    if kind < len(kinds):
        return kinds[kind]
    rows = draw.integers(0, 2, (1 + draw.integers(4), n))
    rows[~rows.any(axis=1), 0] = 1
    return tb.Dense(rows)


def _joint(draw: np.random.Generator, name: str, two: list[str], sizes: list[int], weight: str) -> tb.Table:
    a, b = np.indices(sizes)
    most = sum(sizes) - 1
    matrices = {
        "affine": [(a + b <= c).ravel() for c in range(most)],
        "apart": [(abs(a - b) <= c).ravel() for c in range(max(sizes))],
        "random": draw.integers(0, 2, (3, a.size)) | np.eye(3, a.size, dtype=int),
    }
    chosen = matrices[["affine", "apart", "random"][draw.integers(3)]]
    return tb.Table.joint(name, two, np.array(chosen, dtype=int), weight)


def fresh_workload(seed: int) -> tb.Workload:
    """The random workload of a seed of this study."""
    return random_workload(seed, SHAPES[seed % len(SHAPES)])


def measured(seed: int, noise: Any) -> dict[str, Any]:
    """One row of the CSV."""
    workload = fresh_workload(seed)
    merged, _ = workload.merge()
    row: dict[str, Any] = {
        "seed": seed, "noise": noise, "domain": " x ".join(map(str, workload.domain.shape)),
        "cells": merged.domain.size, "tables": len(workload.tables),
        "joint": sum(len(t.terms) > 1 for t in workload.tables),
        "queries": workload.queries, "limit_s": LIMIT,
    }  # fmt: skip
    started = time.process_time()
    try:
        chosen = tb.select(workload, noise=noise, time_limit=LIMIT)
    except Unsupported as refusal:
        return row | {"note": str(refusal).splitlines()[0]}
    seconds = time.process_time() - started
    rmse = next(c.rmse for c in chosen.candidates if c.method == chosen.method)
    assert rmse is not None
    small = merged.domain.size <= DENSE
    lower = chosen.lower if noise == "gaussian" else _laplace_bound(workload, "dual" if small else "product")
    dual = None
    if small:
        dual = math.sqrt(opt0_gaussian(explicit_gram(merged), tolerance=1e-6).loss / workload.queries)
    proven = math.sqrt(lower / workload.queries) if lower else None
    return row | {
        "method": chosen.method, "rmse": f"{rmse:.6g}", "proven": proven and f"{proven:.6g}",
        "gap": proven and f"{(rmse / proven) ** 2 - 1:.2g}", "dual": dual and f"{dual:.6g}", "cpu_s": f"{seconds:.1f}",
    }  # fmt: skip


def _laplace_bound(workload: tb.Workload, kind: Any) -> float | None:
    """The total squared error at unit noise that is proven."""
    try:
        rmse = lower_bound(workload, "laplace", budget=_UNIT["laplace"], kind=kind)
    except Unsupported:
        return None
    return rmse**2 / 2 * workload.queries  # Laplace noise of scale 1 has a variance of 2


def read() -> dict[tuple[int, str], dict[str, Any]]:
    """All rows, by seed and noise."""
    if not RESULTS.exists():
        return {}
    with RESULTS.open(newline="", encoding="utf-8") as file:
        return {(int(row["seed"]), row["noise"]): row for row in csv.DictReader(file)}


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", type=int, choices=SEEDS, metavar="SEED")
    add_force(parser)
    given = parser.parse_args()
    rows = read()
    cases = [(seed, noise) for seed in SEEDS for noise in _UNIT]
    for case in cases:
        if case[0] in given.only if given.only else case not in rows:
            with threadpool_limits(1):
                rows[case] = measured(*case)
            print(*(f"{key}={value}" for key, value in rows[case].items() if value is not None), flush=True)
            record(RESULTS, COLUMNS, [rows[c] for c in cases if c in rows], force=given.force)


if __name__ == "__main__":
    main()
