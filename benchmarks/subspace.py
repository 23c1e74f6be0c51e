"""Mechanisms of subspace differential privacy on 20 random queries with invariants, and on three that occur.

python -m benchmarks.subspace         ten seconds; writes benchmarks/results/subspace.csv

Each row is one query A (0/1, n x N) with invariants C on its answers (0/1, rank n_c) under one kind of neighbours.
Gaussian mechanisms: expected squared error at rho = 1/2 (variance 1 at sensitivity 1), and over the optimum's proven
lower bound. Laplace mechanisms and K-norm: expected squared error at epsilon = 1. ``knorm`` is "exact" where it can be
released, "research" where its noise is continuous, empty where its hull has too many facets.

Fails where an order that is proven does not hold: optimum <= correlated <= 2 (1 + gap) k^2 optimum, optimum <= extended
<= projected; extended Laplace <= projected Laplace.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from pathlib import Path

import numpy as np
from benchmarks.recorded import record

import tabulae as tb
from tabulae.errors import Unsupported
from tabulae.research import ConstrainedQuery, compare

RESULTS = Path(__file__).parent / "results"
COMMAND = "python -m benchmarks.subspace"
COLUMNS = (
    "query", "neighbours", "n", "cells", "n_c", "rank",
    "optimal", "certificate", "correlated", "extended", "projected",
    "correlated_ratio", "extended_ratio", "projected_ratio",
    "k_norm", "knorm", "extended_laplace", "projected_laplace", "cpu_s", "command",
)  # fmt: skip
RANDOM = 20


def margins(r: int, c: int) -> np.ndarray:
    """Row and column sums of an r x c table."""
    rows = np.kron(np.eye(r, dtype=int), np.ones((1, c), int))
    return np.vstack([rows, np.kron(np.ones((1, r), int), np.eye(c, dtype=int))])


def problems() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """20 random queries with invariants that serve every Gaussian mechanism, then three that occur."""
    found: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    seed = 0
    while len(found) < RANDOM:
        rng = np.random.default_rng(seed)
        seed += 1
        n = int(rng.integers(4, 17))
        A = rng.integers(0, 2, (n, int(rng.integers(n, 3 * n))))
        C = rng.integers(0, 2, (int(rng.integers(1, 1 + n // 3)), n))
        if all(serves(A, C, neighbours) for neighbours in ("add-remove", "replace")):
            found[f"random {seed - 1}"] = A, C
    found["16 cells, total"] = np.eye(16, dtype=int), np.ones((1, 16), int)
    found["4 x 5 cells, margins"] = np.eye(20, dtype=int), margins(4, 5)
    found["2 x 6 cells, 6 pairs"] = np.eye(12, dtype=int), np.kron(np.eye(6, dtype=int), [[1, 1]])
    return found


def serves(A: np.ndarray, C: np.ndarray, neighbours: str) -> bool:
    """Whether something is left to hide, in every direction."""
    try:
        target = ConstrainedQuery.of(A, C, neighbours)
        target.spanning_steps()
    except Unsupported:
        return False
    return target.rank > 0


def row(name: str, A: np.ndarray, C: np.ndarray, neighbours: str) -> dict[str, object]:
    """One line of the table."""
    start = time.process_time()
    gaussian = {m.name: m for m in compare(A, C, tb.ZCDP("1/2"), neighbours=neighbours).mechanisms}
    laplace = {m.name: m for m in compare(A, C, tb.PureDP(1), neighbours=neighbours).mechanisms}
    best = gaussian["optimal Gaussian"]
    assert best.certificate is not None
    lower = best.squared_error / (1 + best.certificate)
    out: dict[str, object] = {
        "query": name,
        "neighbours": neighbours,
        "n": best.n,
        "cells": best.target.cells,
        "n_c": best.n_c,
        "rank": best.target.span.shape[1],
        "optimal": f"{best.squared_error:.4f}",
        "certificate": f"{best.certificate:.1e}",
    }
    for kind in ("correlated", "extended", "projected"):
        error = gaussian[f"{kind} Gaussian"].squared_error
        out[kind], out[f"{kind}_ratio"] = f"{error:.4f}", f"{error / lower:.3f}"
    for kind in ("extended", "projected"):
        out[f"{kind}_laplace"] = f"{laplace[f'{kind} Laplace'].squared_error:.3f}"
    if "K-norm" in laplace:
        out["k_norm"] = f"{laplace['K-norm'].squared_error:.3f}"
        out["knorm"] = "exact" if laplace["K-norm"].releasable else "research"
    return {**out, "cpu_s": f"{time.process_time() - start:.2f}", "command": COMMAND}


def disordered(line: dict[str, object]) -> bool:
    """Whether a proven order fails."""
    correlated, extended, projected = (
        float(str(line[f"{kind}_ratio"])) for kind in ("correlated", "extended", "projected")
    )
    k = 1 + 2 * math.floor(math.log2(int(str(line["rank"]))))
    largest = 2 * 1.01 * k * k
    gaussian = 1 - 1e-3 <= correlated <= largest and 1 - 1e-3 <= extended <= projected * (1 + 1e-9)
    laplace = float(str(line["extended_laplace"])) <= float(str(line["projected_laplace"]))
    return not (gaussian and laplace)


def main() -> int:
    """Compute, write, and fail where a proven order does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    shown = COLUMNS[:-1]
    print("  ".join(f"{column[:12]:>12}" for column in shown))
    lines = []
    for neighbours in ("add-remove", "replace"):
        for name, (A, C) in problems().items():
            line = row(name, A, C, neighbours)
            lines.append(line)
            print("  ".join(f"{line.get(column, '')!s:>12.12}" for column in shown), flush=True)
    record(arguments.out / "subspace.csv", COLUMNS, lines)
    for neighbours in ("add-remove", "replace"):
        for kind in ("correlated", "extended", "projected"):
            ratios = [
                float(str(line[f"{kind}_ratio"]))
                for line in lines
                if line["neighbours"] == neighbours and str(line["query"]).startswith("random")
            ]
            print(
                f"{neighbours:10} {kind:10} over the optimum, 20 random: "
                f"{min(ratios):.3f} to {max(ratios):.3f}, median {statistics.median(ratios):.3f}"
            )
    wrong = sum(disordered(line) for line in lines)
    print(f"{wrong} rows out of order" if wrong else "every proven order holds")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
