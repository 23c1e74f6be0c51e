"""HDMM's Figures 1 to 3 recomputed: benchmarks/results/hdmm_growth.csv and pictures for the docs page.

python -m benchmarks.hdmm_figures              strategies, growth of CPU time with n, d and k, reconstruction
python -m benchmarks.hdmm_figures --only cells attributes
python -m benchmarks.hdmm_figures --draw       the pictures from the CSV

CPU seconds on one core, one run each; a line ends once a point takes more than ``LIMIT`` seconds. Where there is no
point, ``note`` says why. Workloads:

* ``cells`` (Figure 2): all ranges over one attribute of n cells, "opt0" to a certified gap of 1e-3 (Gaussian) and
  with its usual starts (Laplace). (The paper runs 100 iterations of either.)
* ``sizes`` (Figure 3a): five attributes of n cells, ten tables: all ranges of every two attributes. (The paper
  says "a union of 10 products of all ranges" and no more.)
* ``attributes`` (Figure 3b): d attributes of ten cells, all ranges of ten pairs.
* ``tables``: marginals of d = 14 attributes of ten cells, of at most 1, 2 and 3 attributes: k = 15, 106, 470.
* ``reconstruct`` (Figure 3c): the tables of ``sizes`` from noisy answers over a listed vector of N cells.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

import tabulae as tb
from tabulae.errors import NotEstimable, Unsupported
from tabulae.strategy import baseline
from tabulae.strategy.hdmm.opt0 import opt0_gaussian, opt0_laplace
from tabulae.strategy.strategy import unit_rmse

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks/results/hdmm_growth.csv"
PICTURES = ROOT / "docs/methods"
LIMIT = 60.0
COLUMNS = ("series", "noise", "method", "x", "cpu_s", "rmse", "note")
OPERATORS = ("kron", "union", "marginals")

Point = tuple[str, str, str, int, float, float, str]
NONE = float("nan")


def ranges(sizes: dict[str, int], pairs: int) -> tb.Workload:
    """All ranges of so many pairs of attributes, evenly spaced in the list of all pairs."""
    every = list(combinations(sizes, 2))
    chosen = [every[k * len(every) // pairs] for k in range(pairs)]
    tables = [tb.Table("*".join(names), {n: tb.AllRange(sizes[n]) for n in names}) for names in chosen]
    return tb.Workload(tb.Domain(sizes), tables)


def timed(workload: tb.Workload, method: str, noise: str) -> tuple[float, float, str]:
    """CPU seconds of selecting, and the unit error; none, and the reason, where the method does not serve."""
    start = time.process_time()
    try:
        strategy = baseline(workload, method, noise, "add-remove")  # type: ignore[arg-type]
        seconds = time.process_time() - start
        return seconds, unit_rmse(strategy, workload, "add-remove"), ""
    except (Unsupported, NotEstimable) as error:
        return NONE, NONE, str(error)


def grown(
    series: str, xs: list[int], make: Callable[[int], tb.Workload], methods: tuple[str, ...]
) -> Iterator[Point]:
    """A line for each method and noise, as far as ``LIMIT`` allows."""
    for noise in ("gaussian", "laplace"):
        for method in methods:
            ended = ""
            for x in xs:
                result = (NONE, NONE, ended) if ended else timed(make(x), method, noise)
                yield series, noise, method, x, *result
                if result[0] > LIMIT:
                    ended = f"{x:,} took more than {LIMIT:.0f} s"


def cells() -> Iterator[Point]:
    """Figure 2."""
    sizes = [64, 128, 256, 512, 1024, 2048, 4096, 8192]
    return grown("cells", sizes, lambda n: tb.Workload.of(tb.AllRange(n)), ("opt0",))


def sizes() -> Iterator[Point]:
    """Figure 3a."""
    return grown(
        "sizes",
        [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024],
        lambda n: ranges({f"a{i}": n for i in range(5)}, 10),
        OPERATORS,
    )


def attributes() -> Iterator[Point]:
    """Figure 3b."""
    return grown(
        "attributes", [5, 7, 9, 11, 13, 15], lambda d: ranges({f"a{i}": 10 for i in range(d)}, 10), OPERATORS
    )


def tables() -> Iterator[Point]:
    """Growth with the number of tables."""
    domain = tb.Domain({f"a{i}": 10 for i in range(14)})

    def make(k: int) -> tb.Workload:
        return tb.Workload.marginals(domain, ways=list(range({15: 2, 106: 3, 470: 4}[k])))

    return grown("tables", [15, 106, 470], make, (*OPERATORS, "residual"))


def reconstruct() -> Iterator[Point]:
    """Figure 3c: answers of all tables from a strategy of each kind over N cells."""
    for method in OPERATORS:
        for n in (4, 8, 12, 16, 20, 24):
            workload = ranges({f"a{i}": n for i in range(5)}, 10)
            try:
                strategy = baseline(workload, method, "gaussian", "add-remove")
                noisy = tb.measure(
                    np.zeros(workload.domain.size, dtype=np.int64),
                    strategy,
                    tb.ZCDP(1),
                    source=tb.noise.Insecure(1),
                )
                tb.estimate(noisy).answer(workload)  # once before: what is loaded or compiled is no growth
                start = time.process_time()
                tb.estimate(noisy).answer(workload)
                seconds = time.process_time() - start
            except (Unsupported, NotEstimable):
                break
            yield "reconstruct", "gaussian", method, workload.domain.size, seconds, NONE, ""
            if seconds > LIMIT:
                break


SERIES = {
    "cells": cells,
    "sizes": sizes,
    "attributes": attributes,
    "tables": tables,
    "reconstruct": reconstruct,
}


def write(points: list[Point], series: str) -> None:
    """Put one series into the CSV in place of what it held."""
    kept = [p for p in read() if p[0] != series] + points
    order = list(SERIES)
    with RESULTS.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for p in sorted(kept, key=lambda p: (order.index(p[0]), *p[1:4])):
            numbers = (f"{p[4]:.4f}" if p[4] >= 0 else "", f"{p[5]:.6g}" if p[5] >= 0 else "")
            writer.writerow([*p[:4], *numbers, p[6]])


def read() -> list[Point]:
    """All points measured so far."""
    if not RESULTS.exists():
        return []
    with RESULTS.open(newline="") as file:
        return [
            (
                *(r["series"], r["noise"], r["method"], int(r["x"])),
                *(float(r["cpu_s"] or NONE), float(r["rmse"] or NONE), r.get("note") or ""),
            )
            for r in csv.DictReader(file)
        ]


def draw_strategies() -> None:
    """Figure 1: what is measured for all ranges over 256 cells; cells' own rows above, wider queries below."""
    import matplotlib.pyplot as plt

    n = 256
    gram = np.asarray(tb.AllRange(n).gram().dense(), dtype=float)
    laplace = opt0_laplace(gram)
    factor = opt0_gaussian(gram).strategy
    values, vectors = np.linalg.eigh(factor.T @ factor)
    gaussian = np.minimum((vectors * np.sqrt(values)) @ vectors.T, 0.15)
    branches = np.vstack([np.eye(n), np.kron(np.eye(16), np.ones((1, 16))), np.ones((1, n))]) / np.sqrt(3)
    centre = laplace.theta @ np.arange(n) / laplace.theta.sum(axis=1)
    wide = (laplace.theta / (1 + laplace.theta.sum(axis=0)))[np.argsort(centre)]
    panels = [
        ("p-Identity, Laplace noise", np.repeat(wide, max(1, n // len(wide)), axis=0)),
        ("optimum, Gaussian noise", gaussian),
        ("tree with 16 branches", np.repeat(branches[n:], 12, axis=0)),
    ]
    figure, axes = plt.subplots(1, 3, figsize=(9, 3.2), constrained_layout=True)
    for axis, (title, matrix) in zip(axes, panels, strict=True):
        axis.imshow(matrix, aspect="auto", cmap="Blues", interpolation="nearest", vmin=0)
        axis.set_title(title, fontsize=9)
        axis.set_xlabel("cell", fontsize=8)
        axis.set_yticks([])
        axis.tick_params(labelsize=7)
    figure.savefig(PICTURES / "hdmm-strategies.png", dpi=110, metadata={"Software": None})
    plt.close(figure)


PANELS = {
    "cells": "cells n of one attribute",
    "sizes": "cells of each of 5 attributes",
    "attributes": "attributes d of 10 cells",
    "tables": "tables k",
    "reconstruct": "cells N of the domain",
}


def draw_growth() -> None:
    """Figures 2 and 3: CPU seconds against n, d, k and N."""
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D

    plt.rcParams["svg.hashsalt"] = "tabulae"
    plt.rcParams["svg.fonttype"] = "none"
    figure, axes = plt.subplots(2, 3, figsize=(9, 5.4), constrained_layout=True)
    colours = {m: f"C{i}" for i, m in enumerate(("opt0", "kron", "union", "marginals", "residual"))}
    points = read()
    for axis, (series, label) in zip(axes.flat, PANELS.items(), strict=False):
        lines: dict[tuple[str, str], list[tuple[int, float]]] = {}
        for s, noise, method, x, seconds, *_ in points:
            if s == series and seconds >= 0:
                lines.setdefault((method, noise), []).append((x, seconds))
        for (method, noise), line in lines.items():
            style = "-" if noise == "gaussian" else "--"
            xs, ys = zip(*sorted(line), strict=True)
            axis.plot(xs, ys, style, color=colours[method], marker=".")
        axis.set_xscale("log")
        if series in ("attributes", "tables"):
            shown = sorted({x for line in lines.values() for x, _ in line})
            axis.set_xticks(shown, [str(x) for x in shown])
            axis.minorticks_off()
        axis.set_yscale("log")
        axis.set_xlabel(label, fontsize=8)
        axis.set_ylabel("CPU seconds", fontsize=8)
        axis.tick_params(labelsize=7)
    legend = [Line2D([], [], color=colour, label=method) for method, colour in colours.items()]
    legend.append(Line2D([], [], color="0.3", linestyle="-", label="Gaussian noise"))
    legend.append(Line2D([], [], color="0.3", linestyle="--", label="Laplace noise"))
    axes.flat[-1].axis("off")
    axes.flat[-1].legend(handles=legend, loc="center", fontsize=8, frameon=False)
    figure.savefig(PICTURES / "hdmm-growth.svg", metadata={"Date": None})
    plt.close(figure)


def main() -> int:
    """Measure the series asked for and draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=list(SERIES), default=list(SERIES))
    parser.add_argument("--draw", action="store_true", help="draw from the CSV; measure nothing")
    arguments = parser.parse_args()
    for series in () if arguments.draw else arguments.only:
        points = []
        with threadpool_limits(1):
            for point in SERIES[series]():
                print(*point, flush=True)
                points.append(point)
                write(points, series)
    draw_strategies()
    draw_growth()
    return 0


if __name__ == "__main__":
    sys.exit(main())
