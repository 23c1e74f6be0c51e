"""The posterior of totals: errors, intervals, coverage by size, bias and time.

python -m benchmarks.posterior [--runs N]     writes benchmarks/results/posterior.csv; a minute or more a run

Rhode Island 2010 as in ``benchmarks.topdown``, the conventional spine, noise drawn anew for each seed. The answers of
each area to its four queries are joined to one measurement of its total. Blocks are in eight classes by the measured
mean size of a block of their block group: classes of as many blocks each.

error       mean absolute error of the published totals
length, covered     of 90 % credible intervals, 199 draws; by size of block too
bias        mean error of the published totals of blocks, by true size
seconds     wall clock and processor time of prior and draws
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
from benchmarks.recorded import add_force, record
from benchmarks.topdown import Blocks, Measured

from tabulae.estimation.posterior import CountTree, draw, fit
from tabulae.products.areas.spine_plan import SpinePieceValues, SpinePlan, estimation_variance

RESULTS = Path(__file__).parent / "results/posterior.csv"
FIELDS = ("area", "size", "areas", "error", "bias", "length", "covered", "seconds", "processor", "runs")
SIZES = (0, 1, 10, 50, 100, 500)
CLASSES, DRAWS, RUNS = 8, 199, 1


def total_tree(plan: SpinePlan, values: list[SpinePieceValues]) -> CountTree:
    """Measurements of totals at the nodes of a plan."""
    weighted, precision = np.zeros(plan.tree.size), np.zeros(plan.tree.size)
    for piece in values:
        nodes = piece.piece.nodes
        laws = plan.laws(int(plan.classes[1][nodes[0]]))
        for law, answers in zip(laws, piece.values, strict=True):
            if law is not None and answers is not None:
                p = 1 / (estimation_variance(law) * answers.shape[1])
                weighted[nodes] += p * answers.sum(axis=1)
                precision[nodes] += p
    return CountTree(plan.tree.parent, weighted / precision, precision)


def leaf_classes(tree: CountTree) -> np.ndarray:
    """Of each leaf, the class that its parent's measured mean size of a leaf is in."""
    above = tree.parent[tree.leaves]
    mean = tree.value[above] / np.bincount(above, minlength=tree.parent.size)[above]
    return np.searchsorted(np.quantile(mean, np.arange(1, CLASSES) / CLASSES), mean, side="right")


def study(blocks: Blocks, runs: int) -> list[tuple]:
    """Rows for the CSV."""
    plan, found = blocks.plan("conventional"), defaultdict(list)
    measured, true = Measured(plan, blocks.truth), blocks.truth.sum(axis=(1, 2))
    for seed in range(runs):
        tree, leaf = total_tree(plan, measured.draw(seed)), plan.tree.leaf
        wall, processor = time.perf_counter(), time.process_time()
        classes = leaf_classes(tree)
        drawn = draw(tree, fit(tree, seed=seed, group=classes), draws=DRAWS, seed=seed, group=classes)
        spent = time.perf_counter() - wall, time.process_time() - processor
        table, counts = drawn.table()[leaf], drawn.counts[:, leaf]
        for name, (area, areas) in blocks.areas.items():
            inside = area >= 0
            within = np.zeros((DRAWS + 2, areas))
            for row, of in enumerate((true, table, *counts)):
                within[row] = np.bincount(area[inside], of[inside], areas)
            ends = drawn.credible(within[2:], 0.9)
            found[name, "all"].append(_score(within[0], within[1], *ends, spent))
            size = np.searchsorted(SIZES, within[0], side="right") - 1
            for kind in range(len(SIZES)) if name == "block" else ():
                some = size == kind
                parts = (x[some] for x in (within[0], within[1], *ends))
                found[name, SIZES[kind]].append(_score(*parts, spent))
        print(f"seed {seed}: {spent[0]:.0f} s", file=sys.stderr)
    return [(*key, *np.mean(scores, axis=0).round(3).tolist(), runs) for key, scores in found.items()]


def _score(
    true: np.ndarray, table: np.ndarray, low: np.ndarray, high: np.ndarray, spent: tuple[float, float]
) -> tuple[float, ...]:
    error, covered = table - true, 100 * np.mean((low <= true) & (true <= high))
    return true.size, np.abs(error).mean(), error.mean(), (high - low).mean(), covered, *spent


def main() -> int:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=RUNS)
    add_force(parser)
    options = parser.parse_args()
    rows = study(Blocks(), options.runs)
    for row in rows:
        print(*row, sep="\t")
    record(RESULTS, FIELDS, rows, size="runs", force=options.force)
    return 0


if __name__ == "__main__":
    sys.exit(main())
