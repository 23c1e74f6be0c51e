"""Kronecker products against the two things that bound them, in one run: moving memory, and BLAS.

python -m benchmarks.kron_matvec --cells 1e8        writes benchmarks/results/kron_matvec.csv

Structured factors and matrices up to 32 x 32 are compared with one read and one write of the vector per
factor (``np.copyto`` into memory already touched); larger matrices with one product ``(n x n)(n x N/n)`` by
BLAS for each. ``peak_vectors`` is the most memory held beyond the input, in vectors. Times are the best of
interleaved repetitions. On a machine that others use too (``load``, the processes that wanted a core in the
last minute) ``cpu_ratio``, of processor times, is the steadier number: divided by the number of cores it
estimates the ratio on idle ones.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
from benchmarks.recorded import record

from tabulae.linalg import (
    AllRange,
    Dense,
    Identity,
    Kron,
    LinearOperator,
    Partition,
    Prefix,
    RowScaled,
    Stack,
    Total,
    WidthRange,
)

RESULTS = Path(__file__).parent / "results"
REPEATS = 4
MEMORY_LIMIT, BLAS_LIMIT = 3.0, 1.5
COLUMNS = (
    "case",
    "cells",
    "outputs",
    "factors",
    "baseline",
    "seconds",
    "baseline_seconds",
    "ratio",
    "limit",
    "cpu_ratio",
    "peak_vectors",
    "cores",
    "load",
)

Ops = list[LinearOperator]


def repeated(make: Callable[[], LinearOperator], size: int, cells: int) -> Ops:
    """As many factors of one size as fit, and an identity in front for the rest."""
    count = int(math.log(cells) / math.log(size) + 1e-9)
    rest = cells // size**count
    return [Identity(rest)] * (rest > 1) + [make() for _ in range(count)]


def cases(cells: int) -> dict[str, Ops]:
    """What is measured; the name says on which factors."""
    rng = np.random.default_rng(0)

    def dense(n: int, m: int | None = None) -> Dense:
        return Dense(rng.normal(size=(m or n, n)))

    rest = max(1, cells // (64 * 115 * 50))
    return {
        "dense 2": repeated(lambda: dense(2), 2, cells),
        "dense 10": repeated(lambda: dense(10), 10, cells),
        "dense 20": repeated(lambda: dense(20), 20, cells),
        "dense 32": repeated(lambda: dense(32), 32, cells),
        "prefix 10": repeated(lambda: Prefix(10), 10, cells),
        "prefix 100": repeated(lambda: Prefix(100), 100, cells),
        "prefix 1000": [*[Prefix(1000)] * 2, Prefix(max(2, cells // 10**6))],
        "transposed prefix 100": repeated(lambda: Prefix(100).T, 100, cells),
        "windows 100": repeated(lambda: WidthRange(100, 10), 100, cells),
        "ranges 10": repeated(lambda: AllRange(10), 10, int(cells ** (math.log(10) / math.log(55)) + 0.5)),
        "totals and identities": [
            Total(10) if i % 2 else Identity(10) for i in range(round(math.log10(cells)))
        ],
        "weighted identities": repeated(
            lambda: Stack([RowScaled(Identity(100), rng.random(100) + 0.1), dense(100, 6)]),
            100,
            max(10**4, cells // 2),
        ),
        "census tables": [Partition(np.arange(64) % 7), Prefix(115), Identity(50), Identity(rest)],
        "dense 100": repeated(lambda: dense(100), 100, cells),
        "dense 250": repeated(lambda: dense(250), 250, cells),
    }


def best(run: Callable[[], object], times: list[tuple[float, float]]) -> None:
    """Add one repetition: seconds on the clock, seconds of processor time."""
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    times.append((time.perf_counter() - wall, time.process_time() - cpu))


def baseline(ops: Ops, x: np.ndarray, size: int) -> tuple[str, Callable[[], None], float]:
    """What the factors are held against: its name, one run of it, and the ratio allowed."""
    large = [op for op in ops if isinstance(op, Dense) and op.shape[1] > 32]
    if not large:
        source, target = np.ones(size), np.ones(size)

        def copies() -> None:
            for _ in ops:
                np.copyto(target, source)

        return "copy", copies, MEMORY_LIMIT
    out = np.ones(len(x))

    def products() -> None:
        for op in large:
            n = op.shape[1]
            np.matmul(op.floats, x.reshape(n, -1), out=out.reshape(n, -1))

    return "gemm", products, BLAS_LIMIT


def measure(name: str, ops: Ops) -> dict[str, object]:
    """One row of the table."""
    op = Kron(ops)
    x = np.random.default_rng(1).random(op.shape[1])
    tracemalloc.start()
    outputs = len(op @ x)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    load = os.getloadavg()[0]
    kind, held_against, limit = baseline(ops, x, max(len(x), outputs))
    ours: list[tuple[float, float]] = []
    theirs: list[tuple[float, float]] = []
    for _ in range(REPEATS):
        best(held_against, theirs)
        best(lambda: op @ x, ours)
    (seconds, cpu), (base, base_cpu) = (tuple(map(min, zip(*times, strict=True))) for times in (ours, theirs))
    return {
        "case": name,
        "cells": len(x),
        "outputs": outputs,
        "factors": len(ops),
        "baseline": kind,
        "seconds": f"{seconds:.4f}",
        "baseline_seconds": f"{base:.4f}",
        "ratio": f"{seconds / base:.2f}",
        "limit": limit,
        "cpu_ratio": f"{cpu / base_cpu:.2f}",
        "peak_vectors": f"{peak / (8 * max(len(x), outputs)):.2f}",
        "cores": len(os.sched_getaffinity(0)),
        "load": f"{load:.1f}",
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cells", type=float, default=1e7, help="cells of the domain (default 1e7)")
    parser.add_argument(
        "--only", default="", help="run the cases whose name contains this, and write nothing"
    )
    parser.add_argument("--out", type=Path, default=RESULTS / "kron_matvec.csv")
    options = parser.parse_args()
    rows = []
    for name, ops in cases(int(options.cells)).items():
        if options.only in name:
            rows.append(measure(name, ops))
            print(*(f"{key}={value}" for key, value in rows[-1].items()), flush=True)
    if not options.only:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        record(options.out, COLUMNS, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
