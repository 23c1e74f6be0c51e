"""What selecting with the invariants brings, against projecting the strategy that was selected without them.

python -m benchmarks.invariants        writes benchmarks/results/invariants.csv; a few minutes

Both measure with the same budget, (epsilon, delta) = (1, 1e-6) for Gaussian and epsilon = 1 for Laplace noise, and
publish the same counts exactly. RMSE is over all queries, the exact ones counting 0. ``projected`` selects for the
whole workload and projects its estimates onto what the invariants leave open (Gao, Gong, Yu, Theorem 3.1);
``restricted`` selects for ``W Pi_N``; ``none`` publishes nothing exactly. ``saved`` is the share of squared error that
``restricted`` saves against ``projected``; ``certificate`` its proven gap to the best any mechanism can do.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.recorded import record
from threadpoolctl import threadpool_limits

import tabulae as tb
from benchmarks import workloads
from tabulae.strategy.restriction import restrict
from tabulae.strategy.strategy import unit_rmse

RESULTS = Path(__file__).parent / "results/invariants.csv"
COLUMNS: tuple[str, ...] = (
    "workload", "exact", "noise", "neighbours", "none", "projected", "restricted", "saved", "method", "certificate",
    "cpu_s",
)  # fmt: skip
SCALE = {"gaussian": 4.224678889326836, "laplace": math.sqrt(2)}


@dataclass(frozen=True)
class Case:
    """A workload, what of it is exact, and the methods that are tried."""

    workload: tb.Workload
    exact: tuple[tb.Table, ...]
    method: str = "auto"


def margin(workload: tb.Workload, *names: str) -> tb.Table:
    """A margin of the workload's domain."""
    return tb.Table(
        "exact " + (" by ".join(names) or "total"), {n: tb.Identity(workload.domain[n].size) for n in names}
    )


def groups(workload: tb.Workload, name: str, width: int) -> tb.Table:
    """Counts of consecutive categories, ``width`` at a time."""
    n = workload.domain[name].size
    recode = tb.Recode.from_edges("groups", workload.domain[name], list(range(width, n, width)))
    return tb.Table(f"exact {name} by {width}", {name: recode.operator})


def cases() -> dict[tuple[str, str], Case]:
    """The rows of the table."""
    out: dict[tuple[str, str], Case] = {}
    adult = workloads.adult_3d()
    cps, cps_prefix = workloads.cps_marginals(), workloads.cps_prefix()
    ranges, prefix = workloads.all_range(256), workloads.prefix(256)
    out["AllRange(256)", "total"] = Case(ranges, (margin(ranges),))
    out["AllRange(256)", "16 groups"] = Case(ranges, (groups(ranges, "x", 16),))
    out["Prefix(256)", "16 groups"] = Case(prefix, (groups(prefix, "x", 16),))
    out["CPS marginals", "age by sex"] = Case(cps, (margin(cps, "age", "sex"),))
    out["CPS prefix", "age"] = Case(cps_prefix, (margin(cps_prefix, "age"),))
    out["Adult <= 3D", "total, a13 by a14"] = Case(adult, (margin(adult, "a13", "a14"),))
    out["Adult <= 3D", "a5, a6, a7"] = Case(adult, tuple(margin(adult, a) for a in ("a5", "a6", "a7")))
    return out


def rows(name: str, exact: str, case: Case) -> Iterator[dict[str, object]]:
    """One row for each noise and neighbours."""
    for noise in ("gaussian", "laplace"):
        for neighbours in ("add-remove", "replace"):
            options = {"noise": noise, "method": case.method, "neighbours": neighbours}
            started = time.process_time()
            plain = tb.select(case.workload, **options)  # type: ignore[arg-type]
            middle = time.process_time()
            chosen = tb.select(case.workload, invariants=case.exact, **options)  # type: ignore[arg-type]
            seconds = time.process_time() - middle
            left = restrict(case.workload, case.exact).workload
            share = SCALE[noise] * math.sqrt(left.queries / case.workload.queries)
            projected = unit_rmse(plain, left, neighbours) * share
            restricted = unit_rmse(chosen, left, neighbours) * share
            none = unit_rmse(plain, case.workload, neighbours) * SCALE[noise]
            yield {
                "workload": name,
                "exact": exact,
                "noise": noise,
                "neighbours": neighbours,
                "none": f"{none:.5g}",
                "projected": f"{projected:.5g}",
                "restricted": f"{restricted:.5g}",
                "saved": f"{1 - (restricted / projected) ** 2:.4f}",
                "method": chosen.method,
                "certificate": "" if chosen.certificate is None else f"{chosen.certificate:.2g}",
                "cpu_s": f"{seconds:.1f} after {middle - started:.1f}",
            }


def main() -> None:
    """Write the table."""
    found = []
    with threadpool_limits(1):
        for (name, exact), case in cases().items():
            for row in rows(name, exact, case):
                found.append(row)
                print(*row.values(), sep="  ", flush=True)
    record(RESULTS, COLUMNS, found)


if __name__ == "__main__":
    main()
