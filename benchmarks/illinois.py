"""Illinois 2010: county populations under the exact state total, unbiased by projection, biased by non-negativity.

python -m benchmarks.illinois         writes benchmarks/results/illinois.csv and docs/methods/illinois.svg; two minutes

Section 5.1 and Figure 1 of "Subspace Differential Privacy" (Gao, Gong, Yu 2022) for the one state whose counts are at
hand, ``../shared/data/il_2010_county.csv``: 102 counties, epsilon = 0.192, neighbours that replace a record. Errors of
three releases, each with exact discrete Laplace noise of scale 2 / epsilon and the state total exact:

projected       the counties' totals are measured; the error is Pi_N e, the projected Laplace mechanism (Cor. 3.8)
cells           8 groups of race by voting age are measured in each county, projected likewise, and summed to counties
non-negative    the same measurements, by least squares over counts that are not negative, and summed to counties

The first two are ``tb.select``, ``tb.measure`` and ``tb.estimate``. The third has a closed form where every cell is
measured alike and one total is exact, which is used here because ten thousand runs are wanted; ``estimator_gap`` is
the largest difference, in persons at a county, to ``tb.estimate(..., method="non-negative")`` over the first 20 runs. A
seeded source makes the runs repeatable: this is a rehearsal on published counts, no release.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
from benchmarks.recorded import record
from scipy import stats

import tabulae as tb
from tabulae.strategy import Strategy

ROOT = Path(__file__).parents[1]
DATA = ROOT.parent / "shared/data/il_2010_county.csv"
RESULTS = Path(__file__).parent / "results/illinois.csv"
FIGURE = ROOT / "docs/methods/illinois.svg"
EPSILON = Fraction("0.192")
COUNTIES, RUNS, BOXES, LEVEL = 102, 10_000, 10, 0.01
TOTAL = tb.Table("total", {})
CHECKED = ("error_sd", "theory_sd", "mean_slope", "standard_error")


def read() -> tuple[np.ndarray, np.ndarray]:
    """Population (102,), and disjoint cells (102, 16): of voting age or not, for each of 8 groups of race."""
    with DATA.open(newline="") as file:
        rows = list(csv.DictReader(file))
    groups = [name.removeprefix("pop_") for name in rows[0] if name.startswith("pop_")]
    population = np.array([int(row["pop"]) for row in rows])
    everybody, adults = (
        np.array([[int(row[f"{kind}_{group}"]) for group in groups] for row in rows])
        for kind in ("pop", "vap")
    )
    cells = np.concatenate([adults, everybody - adults], axis=1)
    assert np.array_equal(cells.sum(axis=1), population)
    return population, cells


def workload(parts: int) -> tb.Workload:
    """Population by county, over a domain of counties and so many groups."""
    domain = tb.Domain({"county": COUNTIES, "group": parts})
    return tb.Workload(domain, [tb.Table("county", {"county": tb.Identity(COUNTIES)})])


def strategy_for(parts: int) -> Strategy:
    """Every cell is measured, with the total exact."""
    domain = workload(parts).domain
    cells = tb.Table("cells", {name: tb.Identity(domain[name].size) for name in domain.names})
    every = tb.Workload(domain, [cells])
    return tb.select(every, noise="laplace", method="identity", neighbours="replace", invariants=[TOTAL])


def measured(cells: np.ndarray, runs: int, seed: int) -> Iterator[tb.Measurement]:
    """So many rehearsals of the measurement of (counties, parts) cells."""
    strategy, source = strategy_for(cells.shape[1]), tb.noise.Insecure(seed)
    for _ in range(runs):
        yield tb.measure(cells.ravel(), strategy, tb.PureDP(EPSILON), neighbours="replace", source=source)


def releases(runs: int) -> dict[str, np.ndarray]:
    """Errors at counties of every release, (runs, counties)."""
    population, cells = read()
    projected = [_answer(m, 1) for m in measured(population[:, None], runs, 1)]
    signed, noisy = [], []
    for measurement in measured(cells, runs, 2):
        signed.append(_answer(measurement, cells.shape[1]))
        noisy.append(measurement.values)
    kept = on_simplex(np.array(noisy), int(population.sum())).reshape(runs, *cells.shape).sum(axis=2)
    found = {"projected": np.array(projected), "cells": np.array(signed), "non-negative": kept}
    assert all((found[name].sum(axis=1) == population.sum()).all() for name in ("projected", "cells"))
    return {name: answers - population for name, answers in found.items()}


def _answer(measurement: tb.Measurement, parts: int, method: str = "least-squares") -> np.ndarray:
    return tb.estimate(measurement, method=method).answer(workload(parts))["county"]


def estimator_gap(errors: np.ndarray) -> float:
    """The largest difference at a county between these non-negative errors and those of the library's estimator."""
    population, cells = read()
    runs = measured(cells, len(errors), 2)
    theirs = np.array([_answer(m, cells.shape[1], "non-negative") for m in runs])
    return float(np.abs(theirs - population - errors).max())


def on_simplex(points: np.ndarray, total: int) -> np.ndarray:
    """The nearest points with non-negative entries and this sum, row by row (Held, Wolfe, Crowder 1974).

    The solution is max(y - t, 0), and sorting shows how many entries stay positive.
    """
    falling = -np.sort(-points, axis=1)
    excess = np.cumsum(falling, axis=1) - total
    count = (falling * np.arange(1, points.shape[1] + 1) > excess).sum(axis=1)
    shift = excess[np.arange(len(points)), count - 1] / count
    return np.maximum(points - shift[:, None], 0.0)


def slopes(errors: np.ndarray, population: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Slope of error on log population in each run, and its two-sided p-value by Student's t."""
    x = np.log(population) - np.log(population).mean()
    centred = errors - errors.mean(axis=1, keepdims=True)
    slope = centred @ x / (x @ x)
    residual = centred - np.outer(slope, x)
    freedom = len(x) - 2
    error = np.sqrt((residual**2).sum(axis=1) / freedom / (x @ x))
    return slope, 2 * stats.t.sf(np.abs(slope) / error, freedom)


def theory(release: str) -> float | None:
    """Standard deviation of one county's error, as the estimate states it; None for one that is not linear."""
    population, cells = read()
    if release == "non-negative":
        return None
    counts = population[:, None] if release == "projected" else cells
    estimate = tb.estimate(next(measured(counts, 1, 1)))
    return float(estimate.variance(workload(counts.shape[1]))["county"][0]) ** 0.5


def row(release: str, errors: np.ndarray) -> dict[str, object]:
    """What the table says of one release."""
    population, _ = read()
    slope, p_value = slopes(errors, population)
    bias, expected = errors.mean(axis=0)[np.argsort(population)], theory(release)
    return {
        "release": release,
        "runs": len(errors),
        "error_sd": f"{errors.std():.3f}",
        "theory_sd": "" if expected is None else f"{expected:.3f}",
        "mean_slope": f"{slope.mean():.4f}",
        "standard_error": f"{slope.std(ddof=1) / len(slope) ** 0.5:.4f}",
        "share_significant": f"{(p_value < LEVEL).mean():.4f}",
        "bias_10_smallest": f"{bias[:10].mean():.2f}",
        "bias_10_largest": f"{bias[-10:].mean():.2f}",
        "estimator_gap": f"{estimator_gap(errors[:20]):.1e}" if release == "non-negative" else "",
    }


def draw_figure(errors: dict[str, np.ndarray], path: Path) -> None:
    """Left: slopes over all runs. Right: ten runs by county as boxes, one non-negative run as squares."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "tabulae"
    from matplotlib import pyplot as plt

    population, _ = read()
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(9.5, 3.9), layout="constrained", width_ratios=[1, 1.9]
    )
    bins = np.linspace(-28, 14, 64)
    for release, colour in (("projected", "#1f5673"), ("non-negative", "#c0392b")):
        slope, p_value = slopes(errors[release], population)
        share = f"{release}: mean {slope.mean():.2f}\n{(p_value < LEVEL).mean():.1%} significant at {LEVEL}"
        left.hist(
            np.clip(slope, bins[0], bins[-1]), bins, color=colour, alpha=0.65, density=True, label=share
        )
    left.axvline(0, ymax=0.78, color="black", linewidth=0.8)
    left.set(xlabel="slope of error on log population", ylabel=f"density over {len(slope):,} runs")
    left.set_ylim(top=0.55)
    left.legend(fontsize=8, frameon=False, loc="upper left")
    order = np.argsort(population)
    place = np.arange(1, len(order) + 1)
    low, first, middle, third, high = np.quantile(
        errors["projected"][:BOXES, order], [0, 0.25, 0.5, 0.75, 1], axis=0
    )
    right.vlines(place, low, high, color="#1f5673", linewidth=0.7)
    right.vlines(place, first, third, color="#7fa8bf", linewidth=3.2)
    right.plot(place, middle, "_", markersize=4, color="#0d2b3a")
    right.plot(
        place,
        errors["non-negative"][0, order],
        "s",
        markersize=3.2,
        color="#c0392b",
        label="non-negative, one run",
    )
    mean = errors["non-negative"].mean(axis=0)[order]
    right.plot(place, mean, color="#c0392b", linewidth=1, label=f"non-negative, mean of {len(slope):,} runs")
    right.plot([], [], color="#7fa8bf", linewidth=3.2, label=f"projected Laplace, {BOXES} runs")
    right.axhline(0, color="black", linewidth=0.6)
    ticks = [0, 25, 50, 75, 101]
    right.set_xticks([place[i] for i in ticks], [f"{population[order[i]]:,}" for i in ticks])
    right.set(xlabel="counties of Illinois in order of population", ylabel="error, persons")
    right.legend(fontsize=8, frameon=False, loc="upper right")
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def main() -> int:
    """Measure, write, and fail where the error or the slope is not what theory says."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=RUNS, help="fewer than 10,000: writes nothing")
    runs = parser.parse_args().runs
    errors = releases(runs)
    rows = [row(release, values) for release, values in errors.items()]
    for line in rows:
        print(*(f"{key}={value}" for key, value in line.items()), flush=True)
    if runs == RUNS:
        record(RESULTS, list(rows[0]), rows)
        draw_figure(errors, FIGURE)
    first = {key: float(str(value)) for key, value in rows[0].items() if key in CHECKED}
    wrong_size = abs(first["error_sd"] / first["theory_sd"] - 1) > 0.02
    return wrong_size or abs(first["mean_slope"]) > 2 * first["standard_error"]


if __name__ == "__main__":
    sys.exit(main())
