"""Whole tables of groups: errors, intervals and time, beside the estimates from both stages.

python -m benchmarks.posterior_groups [--runs N]     writes benchmarks/results/posterior_groups.csv

The invented people of examples/detailed/people.py in the release of ``examples/detailed.toml``, noise drawn anew for
each seed, which both estimates see. A row is about the counts of one level: totals, and the cells of all tables.

error, two_stage_error    mean absolute error of the published counts
small, two_stage_small    the same where fewer than 10 people are counted
covered, length           of 95 % credible intervals, in percent and in people
ci_covered, ci_length     of the intervals of both stages, cut and rounded
effective                 how many independent draws the draws are worth
processor_s               processor time of the draws and of the counts that are published
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from benchmarks.recorded import add_force, record

import tabulae as tb
from tabulae.privacy import Insecure
from tabulae.products.groups.count import GroupChunk
from tabulae.products.groups.levels import TOTAL, PopulationLevel
from tabulae.products.groups.measure import measure_groups
from tabulae.products.groups.posterior import GroupPosterior
from tabulae.products.groups.product import GroupsProduct
from tabulae.products.groups.publish import group_tables
from tabulae.spec import read_spec

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results/posterior_groups.csv"
FIELDS = (
    "level", "counts", "number", "error", "two_stage_error", "small", "two_stage_small", "covered", "length",
    "ci_covered", "ci_length", "effective", "processor_s", "runs",
)  # fmt: skip
RUNS, LEVEL = 3, 0.95


def study(spec_path: Path, runs: int) -> list[tuple]:
    """Rows for the CSV."""
    spec = read_spec(spec_path)
    product = GroupsProduct(spec)
    product.prepare(spec_path.parent, None, lambda _: None)
    plan, found = product.adaptive, defaultdict(list)
    with product.count(None, None) as counts:
        chunks = [list(counts.chunks(i)) for i in range(len(plan.levels))]
        for seed in range(runs):
            pieces = list(measure_groups(counts, plan, source=Insecure(seed)))
            begun = time.process_time()
            drawn = GroupPosterior.of(plan, iter(pieces), seed)
            _ = drawn.counts
            spent = time.process_time() - begun
            print(f"seed {seed}: processor {spent:.0f} s", file=sys.stderr)
            for piece, chunk in zip(pieces, (each for level in chunks for each in level), strict=True):
                level = plan.levels[piece.level]
                plain = group_tables(level, piece, None, LEVEL).rows
                whole = group_tables(level, piece, None, LEVEL, drawn).rows
                worth = drawn.effective[level.regions.name]
                for name, rows in whole.items():
                    kind = "totals" if name == "totals" else "cells"
                    true = np.concatenate([*_truth(level, chunk, piece.rung, name)])
                    found[level.name, kind].append((true, rows, plain[name], worth[kind], spent))
    return [(*key, *_scored(scores), runs) for key, scores in found.items()]


def _truth(level: PopulationLevel, chunk: GroupChunk, rung: np.ndarray, name: str) -> Iterator[np.ndarray]:
    """The true counts of the rows of a table, in their order."""
    if name == "totals":
        yield chunk.totals()
    for r, table in enumerate(level.ladder.rungs, start=TOTAL + 1):
        if table.name == name:
            yield chunk.cells(np.flatnonzero(rung == r), table.of_class, table.cells).ravel()


def _scored(scores: list[tuple]) -> list[float]:
    """Means over all rows of all runs."""
    true = np.concatenate([each[0] for each in scores])

    def column(name: str, of: int = 1) -> np.ndarray:
        return np.concatenate([each[of][name].to_numpy().astype(float) for each in scores])

    errors = [np.abs(column("estimate", of) - true) for of in (1, 2)]
    few = true < 10
    told = [
        true.size,
        *(each.mean() for each in errors),
        *(each[few].mean() if few.any() else np.nan for each in errors),
    ]
    for kind, of in (("credible", 1), ("ci", 2)):
        low, high = column(f"{kind}_low", of), column(f"{kind}_high", of)
        told += [100 * ((low <= true) & (true <= high)).mean(), (high - low).mean()]
    told += [min(each[3] for each in scores), np.mean([each[4] for each in scores])]
    return np.round(told, 3).tolist()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=RUNS)
    add_force(parser)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        shutil.copytree(ROOT / "examples/detailed", folder / "detailed")
        text = (ROOT / "examples/detailed.toml").read_text()
        drawn = text.replace("\n[detailed]\n", '\n[method]\nestimate = "posterior"\n\n[detailed]\n')
        (folder / "spec.toml").write_text(drawn)
        people = [sys.executable, str(ROOT / "examples/detailed/people.py"), str(folder / "people.csv")]
        subprocess.run(people, check=True)
        tb.Ledger.create(folder / "occupations.db", tb.ZCDP(1), neighbours="add-remove", unit="person")
        record(RESULTS, FIELDS, study(folder / "spec.toml", asked.runs), size="runs", force=asked.force)
    return 0


if __name__ == "__main__":
    sys.exit(main())
