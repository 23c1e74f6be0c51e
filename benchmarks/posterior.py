"""The posterior of whole tables: errors, intervals, coverage by size, bias, effective draws and time.

python -m benchmarks.posterior [--runs N]     writes benchmarks/results/posterior.csv and
                                              docs/methods/posterior-rhode-island.svg; five minutes a run
python -m benchmarks.posterior --draw         the figure alone, from the CSV

Rhode Island 2010 as in ``benchmarks.topdown``, the conventional spine, noise drawn anew for each seed; the draws, the
table and the intervals that a release with estimate = "posterior" publishes. gls and bluedown see the same noise.

error       mean absolute error of the published counts
bias        mean error of the published counts
length, covered     of 90 % credible intervals
effective   how many independent draws the draws are worth
seconds     wall clock and processor time of prior and draws
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
from benchmarks.recorded import add_force, record
from benchmarks.topdown import Blocks, Measured
from scipy import sparse

from tabulae.products.areas.estimate import estimate_spine
from tabulae.products.areas.posterior import AreaPosterior

RESULTS = Path(__file__).parent / "results/posterior.csv"
FIGURE = Path(__file__).parents[1] / "docs/methods/posterior-rhode-island.svg"
FIELDS = (
    "area", "counts", "size", "number", "error", "bluedown_error", "gls_error", "bias", "bluedown_bias", "length",
    "covered", "effective", "wall_s", "processor_s", "runs",
)  # fmt: skip
SIZES = (0, 1, 10, 50, 100, 500)
RUNS = 1


def study(blocks: Blocks, runs: int) -> list[tuple]:
    """Rows for the CSV."""
    plan, found = blocks.plan("conventional"), defaultdict(list)
    measured, leaves = Measured(plan, blocks.truth), plan.spine.leaves
    truth = blocks.truth.reshape(leaves, -1)
    for seed in range(runs):
        values = measured.draw(seed)
        gls, whole = (estimate_spine(plan, iter(values), method) for method in ("gls", "bluedown"))
        wall, processor = time.perf_counter(), time.process_time()
        areas = {kind: area for kind, (area, _) in blocks.areas.items()}
        made = AreaPosterior.of(whole, iter(values), areas, ("block", np.arange(leaves)), seed)
        table = made.draws.table()[plan.tree.leaf]
        spent = time.perf_counter() - wall, time.process_time() - processor
        others = [each.leaf_counts(0, leaves).reshape(leaves, -1) for each in (whole, gls)]
        for kind, (area, number) in blocks.areas.items():
            inside = np.flatnonzero(area >= 0)
            rows = sparse.csr_array(
                (np.ones(inside.size, np.int64), (area[inside], inside)), shape=(number, leaves)
            )
            for counts, cells in (
                ("total", np.ones((16, 1), np.int64)),
                ("cell", np.eye(16, dtype=np.int64)),
            ):
                true, own, blue, unbiased = (rows @ each @ cells for each in (truth, table, *others))
                ends = made.draws.credible(made.draws.sums(rows, sparse.csr_array(cells)), 0.9)
                worth = made.effective[kind][f"{counts}s"]
                size = np.searchsorted(SIZES, true, side="right") - 1
                classes = [("all", np.ones(true.shape, bool))]
                if (kind, counts) == ("block", "total"):
                    classes += [(SIZES[i], size == i) for i in range(len(SIZES))]
                for name, some in classes:
                    errors = [(each - true)[some] for each in (own, blue, unbiased)]
                    covered = ((ends.low <= true) & (true <= ends.high))[some].mean()
                    found[kind, counts, name].append(
                        (
                            int(some.sum()),
                            *(np.abs(each).mean() for each in errors),
                            *(each.mean() for each in errors[:2]),
                            (ends.high - ends.low)[some].mean(),
                            100 * covered,
                            worth,
                            *spent,
                        )
                    )
        print(f"seed {seed}: {spent[0]:.0f} s, processor {spent[1]:.0f} s", file=sys.stderr)
    return [(*key, *np.mean(scores, axis=0).round(3).tolist(), runs) for key, scores in found.items()]


def draw(rows: list[dict[str, str]], path: Path) -> None:
    """Errors of totals by type of area, and bias and coverage of blocks' totals by their people."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "tabulae"
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(10, 3.4), layout="constrained")
    looks = {
        "gls": ("gls_error", None, "#6b7280", "s"),
        "bluedown": ("bluedown_error", "bluedown_bias", "#1f5673", "D"),
        "posterior": ("error", "bias", "#b4552d", "o"),
    }
    types = [row for row in rows if (row["counts"], row["size"]) == ("total", "all")]
    sizes = [row for row in rows if row["size"] != "all"]
    for name, (error, bias, colour, marker) in looks.items():
        axes[0].plot(
            range(len(types)), [float(row[error]) for row in types], marker, color=colour, ms=5, label=name
        )
        if bias:
            axes[1].plot(
                range(len(sizes)), [float(row[bias]) for row in sizes], f"{marker}-", color=colour, ms=4, lw=1
            )
    axes[2].plot(
        range(len(sizes)), [float(row["covered"]) for row in sizes], "o-", color="#b4552d", ms=4, lw=1
    )
    axes[0].set_xticks(range(len(types)), [row["area"].replace("_", "\n") for row in types], fontsize=8)
    axes[0].set_yscale("log")
    axes[0].set_yticks((1, 2, 5, 10, 20, 40), ("1", "2", "5", "10", "20", "40"))
    axes[0].minorticks_off()
    axes[0].legend(frameon=False, fontsize=8)
    axes[0].set_title("Mean absolute error of totals", fontsize=9)
    for axis, title, line in (
        (axes[1], "Bias of blocks' totals", 0),
        (axes[2], "Covered by 90 % intervals", 90),
    ):
        axis.set_xticks(range(len(sizes)), [row["size"] for row in sizes], fontsize=8)
        axis.axhline(line, color="#d9d6cf", lw=0.8)
        axis.set_xlabel("people in the block, from")
        axis.set_title(title, fontsize=9)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def main() -> int:
    """Measure, print, write and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--draw", action="store_true", help="the figure alone")
    add_force(parser)
    options = parser.parse_args()
    if not options.draw:
        record(RESULTS, FIELDS, study(Blocks(), options.runs), size="runs", force=options.force)
    with RESULTS.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        print(*row.values(), sep="\t")
    draw(rows, FIGURE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
