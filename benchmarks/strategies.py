"""HDMM's Tables 4 to 7 and the Eigen-Design paper's tables and figures recomputed with every strategy.

python -m benchmarks.strategies                                  every cell that is not in the CSV yet
python -m benchmarks.strategies --only prefix-2048 predicates    these workloads (see --list), again
python -m benchmarks.strategies --methods eigen wavelet --noise gaussian --most 256

A cell is a workload, a noise and a method: RMSE, and the CPU seconds of selecting the strategy on one core. HDMM's
workloads are taken at epsilon = 1 (Laplace) or (1, 1e-6) (Gaussian), and what ``benchmarks.hdmm`` has measured is
copied from its CSV; the Eigen-Design paper's at (0.5, 1e-4), with the deviation of its Proposition 2. In the CSV
``rmse`` is the error (for "svd" and "dual" the bound itself), ``paper`` what is printed, ``ours`` the same figure
recomputed: an error, or in the Eigen-Design paper's Table 2 how many times its own; ``ratio`` is the error over the
largest bound proven. Methods beside those of ``select``:

* ``workload-alone`` and ``union-each`` as in ``benchmarks.hdmm``;
* ``hb-l1``: HB with the branching of Laplace noise; ``datacube-cover``: one cover, as HDMM's DataCube column shows;
* ``program-2``: the Eigen-Design over all cells, where "eigen" merges cells or works attribute by attribute;
* ``program-1``: its weights, ``eigen-separation-g`` and ``principal-vectors-p`` with groups of g and p % of the
  vectors; their seconds leave out the eigendecomposition;
* ``design-...``: Program 1 over that basis.
"""

from __future__ import annotations

import argparse
import csv
import fcntl
import math
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.strategies_paper import PRINTED, Key
from benchmarks.strategies_score import cpu_and_loss
from benchmarks.strategies_workloads import CASES, Case
from threadpoolctl import threadpool_limits

from benchmarks import hdmm
from tabulae.errors import NotEstimable, Unsupported
from tabulae.strategy.bounds.lower import unit_bound

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks/results/strategies.csv"
COLUMNS = ("workload", "noise", "method", "rmse", "bound", "paper", "ours", "ratio", "cpu_s", "note")
BOUNDS = ("svd", "dual")
TREES = ("hierarchical", "wavelet", "hb", "greedy-h")
GROUPS = (4, 16, 64, 256)
SHARES = (1, 3, 6, 12, 25)
REDUCED = (
    "program-1",
    *(f"eigen-separation-{g}" for g in GROUPS),
    *(f"principal-vectors-{p}" for p in SHARES),
)
DESIGNS = ("design-wavelet", "design-fourier")
METHODS = (
    "identity", "workload-alone", *TREES, "hb-l1", "fourier", "datacube", "datacube-cover", "low-rank", "coa",
    "eigen", "program-2", *REDUCED, *DESIGNS, "kron", "union-each", "marginals", "opt0", *BOUNDS,
)  # fmt: skip
_LAPLACE = {
    "ranges-2048": ("wavelet", "design-wavelet"),
    "random-ranges-2048": ("wavelet", "design-wavelet"),
    "marginals-2-8x16x16": ("fourier", "design-fourier"),
    "marginals-2-2^11": ("fourier", "design-fourier"),
}
"""Section 3.5 of the Eigen-Design paper: bases that Program 1 improves."""
RELATIVE = ("permuted-2048", "range-marginals-1", "range-marginals-2", "prefix-2048", "predicates")
"""Workloads of which the paper prints multiples of the error of "eigen"."""

_DELTA, _EPSILON = 1e-4, 0.5
DEVIATION = math.sqrt(2 * math.log(2 / _DELTA)) / _EPSILON
_EXAMPLE_4 = math.sqrt(math.log2(2 / _DELTA)) / _EPSILON

WORKLOADS: dict[str, Case] = {
    **{name: Case(make) for name, make in (hdmm.ONE | hdmm.SEVERAL).items()},
    **CASES,
}


@dataclass(frozen=True)
class Result:
    """One cell. ``bound`` is a lower bound that was proven on the way; ``note`` why there is no number."""

    workload: str
    noise: str
    method: str
    rmse: float | None
    bound: float | None
    cpu_s: float
    note: str = ""

    @property
    def key(self) -> Key:
        """What the CSV holds once."""
        return self.workload, self.noise, self.method


Cells = dict[Key, Result]


def wanted(name: str, noise: str) -> tuple[str, ...]:
    """The methods that the papers compare on a workload, with the Eigen-Design wherever noise is Gaussian."""
    proven_by_opt0 = name.endswith("-4096") or name.startswith("sf1")
    bounds = ("svd",) if proven_by_opt0 else BOUNDS
    if name in hdmm.ONE:
        adaptive = ("low-rank",) if noise == "laplace" else ("hb-l1", "coa", "eigen")
        return ("identity", *TREES, *adaptive, "opt0", *bounds)
    if name in hdmm.SEVERAL:
        cube = ("datacube", "datacube-cover") if name in ("cps-marginals", "adult-3d", "loans-small") else ()
        whole = ("opt0",) if name.startswith("sf1") and noise == "gaussian" else ()
        return ("identity", "workload-alone", *cube, "kron", "union-each", "marginals", *whole, *bounds)
    if noise == "laplace":
        return _LAPLACE.get(name, ())
    if name.endswith("-8192"):
        return (*_competitors(name), "svd")
    return (*_competitors(name), "eigen", *BOUNDS)


def _competitors(name: str) -> tuple[str, ...]:
    """What the Eigen-Design paper compares with: its section 5 names them figure by figure."""
    designs = DESIGNS if name in ("ranges-2048", "permuted-2048", "marginals-2-8x16x16") else ()
    if name == "example-4":
        return ("workload-alone", "identity", "wavelet", "program-2")
    if name == "permuted-marginals-2":
        return DESIGNS
    if name == "ranges-8192":
        return ("hierarchical", "wavelet", *REDUCED)
    if name == "marginals-2-8192":
        return ("fourier", "datacube", *REDUCED)
    if "marginals" in name and "range" not in name:
        return ("fourier", "datacube", *designs)
    if "range-marginals" in name:
        return ("hierarchical", "wavelet", "fourier", "datacube", "program-2")
    if name == "predicates":
        return ("hierarchical", "wavelet", "fourier")
    return ("hierarchical", "wavelet", *designs, *(("opt0",) if name == "prefix-2048" else ()))


def measure(name: str, noise: str, method: str) -> Result:
    """Run one cell, or copy it where benchmarks.hdmm has it."""
    copied = _copied(name, noise, method)
    if copied is not None:
        return copied
    case = WORKLOADS[name]
    seconds, loss, bound, note = 0.0, None, None, ""
    try:
        if method in BOUNDS:
            started = time.process_time()
            bound = unit_bound(case.asked(), method)
            seconds = time.process_time() - started
        else:
            seconds, loss = cpu_and_loss(case, noise, method)
    except (Unsupported, NotEstimable) as refusal:
        note = str(refusal).splitlines()[0]
    value, proven = (None if x is None else factor(name, noise) * math.sqrt(x) for x in (loss, bound))
    return Result(name, noise, method, value, proven, seconds, note)


def _copied(name: str, noise: str, method: str) -> Result | None:
    """The cell of ``benchmarks.hdmm``, where it has one."""
    cell, scale = hdmm.read().get((name, noise, method)), 1.0
    if cell is None and method in BOUNDS:  # what holds for L2 sensitivity holds for L1
        cell = hdmm.read().get((name, "gaussian", method))
        scale = hdmm.DEVIATION[noise] / hdmm.DEVIATION["gaussian"]
    if cell is None:
        return None
    bound = None if cell.bound is None else scale * cell.bound
    return Result(name, noise, method, cell.rmse, bound, cell.cpu_s, cell.note)


def factor(name: str, noise: str) -> float:
    """What makes an RMSE of the square root of a loss at unit noise."""
    if name == "example-4":
        return _EXAMPLE_4  # as printed: base 2, and not divided by the number of queries
    case = WORKLOADS[name]
    queries = case.queries or case.asked().queries
    deviation = hdmm.DEVIATION[noise] if name in hdmm.WORKLOADS or noise == "laplace" else DEVIATION
    return deviation / math.sqrt(queries)


# the CSV ---------------------------------------------------------------------------------------------------
def read() -> Cells:
    """All cells measured so far."""
    if not RESULTS.exists():
        return {}
    with RESULTS.open(newline="") as file:
        rows = [
            Result(
                row["workload"], row["noise"], row["method"],
                float(row["rmse"]) if row["rmse"] and row["method"] not in BOUNDS else None,
                float(row["bound"]) if row["bound"] else None, float(row["cpu_s"]), row["note"],
            )
            for row in csv.DictReader(file)
        ]  # fmt: skip
    return {row.key: row for row in rows}


def write(*results: Result) -> None:
    """Put cells into the CSV, in place of what it held for them; several runs write in turn."""
    folder = os.open(RESULTS.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        _write(*results)
    finally:
        os.close(folder)


def _write(*results: Result) -> None:
    cells = read() | {r.key: r for r in results}
    names, noises = list(WORKLOADS), ["gaussian", "laplace"]
    ordered = sorted(
        cells, key=lambda key: (names.index(key[0]), noises.index(key[1]), METHODS.index(key[2]))
    )
    partial = RESULTS.with_suffix(".part")
    with partial.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for key in ordered:
            r = cells[key]
            figures = (value_of(r), r.bound, PRINTED.get(key), ours(cells, key), ratio(cells, r))
            writer.writerow(
                [*key, *(f"{x:.8g}" if x is not None else "" for x in figures), f"{r.cpu_s:.2f}", r.note]
            )
    partial.replace(RESULTS)


def value_of(result: Result) -> float | None:
    """The error, or the bound of a bound."""
    return result.bound if result.method in BOUNDS else result.rmse


def ours(cells: Cells, key: Key) -> float | None:
    """What stands beside the printed figure: an error, or a multiple of the Eigen-Design's; None beside none."""
    result = cells.get(key)
    value = None if result is None or key not in PRINTED else value_of(result)
    if value is None or key[0] not in RELATIVE:
        return value
    eigen = published(cells, key[0])
    return None if eigen is None or eigen.rmse is None else value / eigen.rmse


def published(cells: Cells, name: str) -> Result | None:
    """The Eigen-Design as published, over all cells: "program-2" where "eigen" works attribute by attribute."""
    return cells.get((name, "gaussian", "program-2"), cells.get((name, "gaussian", "eigen")))


def proven(cells: Cells, name: str, noise: str) -> float | None:
    """The largest bound on a workload's error. What holds for L2 sensitivity holds for L1 (Laplace noise)."""
    found = [r.bound for r in cells.values() if r.bound and r.key[:2] == (name, noise)]
    if noise == "laplace":
        found += [
            r.bound * hdmm.DEVIATION["laplace"] / hdmm.DEVIATION["gaussian"]
            for r in cells.values()
            if r.bound and r.key[:2] == (name, "gaussian")
        ]
    return max(found, default=None)


def ratio(cells: Cells, result: Result) -> float | None:
    """An error over the largest bound."""
    bound = proven(cells, result.workload, result.noise)
    return None if result.rmse is None or bound is None else result.rmse / bound


def _plan(arguments: argparse.Namespace) -> Iterator[Key]:
    """The cells asked for, those of few cells first."""
    done = {} if arguments.only or arguments.methods else read()
    for name in arguments.only or WORKLOADS:
        if arguments.most and name in hdmm.ONE and int(name.rpartition("-")[2]) > arguments.most:
            continue
        for noise in arguments.noise:
            for method in wanted(name, noise):
                key = (name, noise, method)
                if key not in done and (not arguments.methods or method in arguments.methods):
                    yield key


def main() -> int:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=list(WORKLOADS), metavar="WORKLOAD")
    parser.add_argument("--methods", nargs="+", choices=METHODS, metavar="METHOD")
    parser.add_argument(
        "--noise", nargs="+", choices=("gaussian", "laplace"), default=("gaussian", "laplace")
    )
    parser.add_argument("--most", type=int, help="largest one-attribute workload of HDMM, in cells")
    parser.add_argument("--list", action="store_true", help="names of the workloads")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(WORKLOADS))
        return 0
    for key in _plan(arguments):
        with threadpool_limits(1):
            result = measure(*key)
        write(result)
        value = value_of(result)
        print(f"{key[0]:24} {key[1]:9} {key[2]:22} {'' if value is None else f'{value:.6g}':>12} "
              f"{result.cpu_s:8.2f} s  {result.note[:60]}", flush=True)  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
