"""Totals of groups that were selected by their first count: what each way of combining both counts leaves.

    python -m benchmarks.two_stage

Groups whose noisy first count reaches a threshold; bias and standard deviation given that, by summation over all
outcomes (no simulation), at a grid of true totals. Writes benchmarks/results/two_stage.csv and
docs/methods/two-stage.svg, and prints the table of docs/methods/detailed-estimates.md. The budget is that of
production's detailed county groups (rho 0.159, a record in 9 groups, a tenth for the first count); for Laplace noise
epsilon 2.43 of its example.
"""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
from benchmarks.recorded import record

from tabulae.privacy import DiscreteGaussian, DiscreteLaplace
from tabulae.products.groups.estimate import combined
from tabulae.products.groups.two_stage_laws import TwoStages, plain_margin, sum_law, total_interval

RESULTS = Path(__file__).parent / "results"
FIGURE = Path(__file__).parents[1] / "docs" / "methods" / "two-stage.svg"
CELLS = (1, 8, 18, 46)
STEPS = np.arange(-4, 6.01, 0.25)
CUT = 2  # standard deviations of stage one above the threshold
WAYS = ("plain", "naive", "cut off", "unbiased")
COLUMNS = ("noise", "cells", "steps", "way", "bias", "sd", "length", "coverage")
CONFIDENCE = 0.95


def settings() -> dict[str, TwoStages]:
    """Noise and cells."""
    share, groups = Fraction(1, 10), 9
    rho, epsilon = Fraction("0.159"), Fraction("2.43")
    gaussian = [DiscreteGaussian(groups / (2 * part * rho)) for part in (share, 1 - share)]
    laplace = [DiscreteLaplace(groups / (part * epsilon)) for part in (share, 1 - share)]
    return {
        f"{name} {cells}": TwoStages(first, second, cells)
        for name, (first, second) in {"gaussian": gaussian, "laplace": laplace}.items()
        for cells in CELLS
    }


def outcomes(stages: TwoStages, total: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """y at or above 0, S, and their chance given that y is; flat arrays."""
    far = stages.first.margin(1 - Fraction(1, 10**12))
    y = np.arange(max(0, total - far), max(0, total) + far + 1)
    weight = stages.log_weight((y - total).astype(float))
    weight = np.exp(weight - weight.max())
    law = sum_law(stages.second, stages.cells)
    reach = min(len(law) // 2, math.ceil(9 * math.sqrt(stages.plain_variance)))
    middle = len(law) // 2
    law = law[middle - reach : middle + reach + 1]
    s = total + np.arange(-reach, reach + 1)
    chance = np.multiply.outer(weight / weight.sum(), law / law.sum())
    shape = chance.shape
    return np.broadcast_to(y[:, None], shape).ravel(), np.broadcast_to(s, shape).ravel(), chance.ravel()


def rows_of(name: str, stages: TwoStages) -> list[dict[str, object]]:
    """One row for each total and way; in units of the plain count's standard deviation."""
    deviation, unit = math.sqrt(stages.first.variance_of_law), math.sqrt(stages.plain_variance)
    noise, cells = name.split()
    rows = []
    for step in STEPS:
        total = round(step * deviation)
        y, s, chance = outcomes(stages, total)
        z = s + stages.share * (y - s)
        estimates = {
            "plain": s.astype(float),
            "naive": z,
            "cut off": np.where(y >= CUT * deviation, z, s),
            "unbiased": combined(stages, 0, None, y, s)[0],
        }
        margin = plain_margin(stages.second, stages.cells, CONFIDENCE)
        low, high = total_interval(stages, 0, None, y, s, CONFIDENCE)
        for way in WAYS:
            bias = chance @ (estimates[way] - total)
            spread = math.sqrt(chance @ (estimates[way] - total - bias) ** 2)
            row = {"noise": noise, "cells": cells, "steps": step, "way": way}
            row |= {"bias": f"{bias / unit:.7f}", "sd": f"{spread / unit:.5f}"}
            if way == "unbiased":
                row["length"] = f"{chance @ (high - low) / (2 * margin):.4f}"
                row["coverage"] = f"{chance @ ((low <= total) & (total <= high)):.5f}"
            rows.append(row)
    return rows


def draw_figure(rows: list[dict[str, object]], path: Path) -> None:
    """Bias above, standard deviation below, Gaussian noise, a column for each table."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    mpl.rcParams.update({"svg.hashsalt": "tabulae", "svg.fonttype": "none", "font.size": 9})
    figure, axes = plt.subplots(2, 3, figsize=(9, 5), sharex=True, sharey="row", layout="constrained")
    for column, cells in enumerate(CELLS[1:]):
        for way, style in zip(WAYS, ("k:", "C3-", "C1--", "C0-"), strict=True):
            of = [r for r in rows if (r["noise"], r["cells"], r["way"]) == ("gaussian", str(cells), way)]
            for axis, value in zip(axes[:, column], ("bias", "sd"), strict=True):
                axis.plot([r["steps"] for r in of], [float(str(r[value])) for r in of], style, label=way)
        axes[0, column].set_title(f"{cells} cells")
        axes[1, column].set_xlabel("(N − threshold) / sd of stage one")
    axes[0, 0].set_ylabel("bias given the table, in sd of S")
    axes[0, 0].set_ylim(-0.25, 3)
    axes[1, 0].set_ylabel("standard deviation, in sd of S")
    axes[1, 0].set_ylim(0, 1.25)
    axes[0, 2].legend(frameon=False)
    figure.savefig(path, metadata={"Date": None})


def table(rows: list[dict[str, object]]) -> str:
    """Bias and deviation of each way at some distances from the threshold, and the interval's length, as Markdown."""
    lines = [
        "| noise | cells | way | bias at -2 | 0 | 2 | 4 | largest | sd at -2 | 0 | 2 | 4 | length at 0 | 4 |",
        "|---|--:|---|" + "--:|" * 11,
    ]
    for noise in ("gaussian", "laplace"):
        for cells in CELLS:
            for way in WAYS[1:]:
                of = [r for r in rows if (r["noise"], r["cells"], r["way"]) == (noise, str(cells), way)]
                at = {float(str(r["steps"])): r for r in of}
                bias = [float(str(r["bias"])) for r in of]
                entries = [f"{float(str(at[step]['bias'])):.3f}" for step in (-2.0, 0.0, 2.0, 4.0)]
                entries.append(f"{max(map(abs, bias)):.3f}")
                entries += [f"{float(str(at[step]['sd'])):.2f}" for step in (-2.0, 0.0, 2.0, 4.0)]
                entries += [str(at[step].get("length", ""))[:4] for step in (0.0, 4.0)]
                lines.append(
                    f"| {noise} | {cells} | {way} | {' | '.join(entries)} |".replace("-0.000", "0.000")
                )
    return "\n".join(lines)


def main() -> None:
    """Compute, write, and show the table of the documentation."""
    rows = [row for name, stages in settings().items() for row in rows_of(name, stages)]
    record(RESULTS / "two_stage.csv", COLUMNS, rows)
    draw_figure(rows, FIGURE)
    print(table(rows))


if __name__ == "__main__":
    main()
