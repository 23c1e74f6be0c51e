"""What least squares would be wrong by in the run of DHC persons: the column ``gls`` of its errors.

    python -m benchmarks.dhc_persons_gls SCRATCH       fills it in for every recorded size, from the spines alone

Least squares over all 1,227,744 cells of an area have no form that could be computed. What is known of one row of a
query has: its own answer, and for each finer query the sum of the answers that its row is made of, in every area of the
tree. They are unbiased and independent, so that their precisions add up in an area, and two visits to every area join
the tree's:

    P = 1 / v_q + sum over finer queries r of 1 / (n_r v_r)       n_r rows of r in the row

    leaf  S = 1 / P      up  S = 1 / (P + 1 / sum of the children's S)      down  V = S - k S + k^2 V of the parent,
                                                                            k = S / sum of the siblings' S

This is the best linear estimate from these sums. The full problem has the same answers one by one, coarser queries and
those that cut across: its variance is at most this one. For the coarsest of queries that nest, in classes of one size,
it is this one. Impossible cells are not counted; what is held, and where nobody can be, is not used, and could only
take from it.
"""

from __future__ import annotations

import argparse
import csv
import shutil
import sys
from collections.abc import Iterator
from math import pi, sqrt
from pathlib import Path

import numpy as np
from benchmarks.detailed import Cost
from benchmarks.dhc_persons import ERROR_COLUMNS, ERRORS, sizes_of
from benchmarks.dhc_persons_run import Run, nodes_of_levels
from benchmarks.recorded import record

from tabulae.products.areas.spine.shares import distinct_rows
from tabulae.products.areas.spine_plan import SpinePlan


def variances(plan: SpinePlan, precision: np.ndarray) -> np.ndarray:
    """V of numbers that add up over the tree, measured in every node with some precision: shape (nodes, numbers)."""
    above, tree = np.zeros(precision.shape), plan.tree
    s = np.zeros(precision.shape)
    with np.errstate(divide="ignore"):
        for nodes in reversed(plan.depths):
            s[nodes] = 1 / (precision[nodes] + np.where(above[nodes] > 0, 1 / above[nodes], 0.0))
            if nodes.start:
                np.add.at(above, tree.parent[nodes], s[nodes])
    found = s.copy()
    siblings = np.diff(plan.children)
    for nodes in plan.depths[1:]:
        parent = tree.parent[nodes]
        alone = siblings[parent] == 1
        k = np.where(alone[:, None], 1.0, s[nodes] / above[parent])
        own = np.where(alone[:, None], 0.0, s[nodes])
        found[nodes] = own - k * own + k**2 * found[parent]
    return found


def deviations(plan: SpinePlan, query: int) -> tuple[np.ndarray, np.ndarray]:
    """How many rows of a query are alike, shape (kinds,), and the standard error of each, shape (nodes, kinds)."""
    place = np.arange(plan.layout.cell.size)
    mine = plan.queries[query].rows(place)
    present, row = np.unique(mine, return_inverse=True)
    rows = np.zeros(
        (len(plan.queries), present.size), np.int64
    )  # of each query in each row; 0 where it is not finer
    for r, other in enumerate(plan.queries):
        names, first = np.unique(other.rows(place), return_index=True)
        inside = row[first]
        if np.array_equal(inside[np.searchsorted(names, other.rows(place))], row):
            rows[r] = np.bincount(inside, minlength=present.size)
    kinds, of = distinct_rows(rows.T)
    laws = [plan.laws(kind) for kind in range(len(plan.classes[0]))]
    weights = np.array([[0.0 if law is None else 1 / law.variance_of_law for law in each] for each in laws])
    share = np.where(kinds > 0, 1 / np.maximum(kinds, 1), 0.0)
    return np.bincount(of), np.sqrt(variances(plan, (weights @ share.T)[plan.classes[1]]))


def expected(plan: SpinePlan) -> Iterator[tuple[str, str, float]]:
    """By level and query the expected sum of |error| over the query's rows, mean over areas."""
    areas = nodes_of_levels(plan)
    for q, query in enumerate(plan.queries):
        count, error = deviations(plan, q)
        for level, name in enumerate(plan.spine.levels):
            yield name, query.name, sqrt(2 / pi) * float((error[areas[level]] @ count).mean())


def main() -> None:
    """Fill in the column."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scratch", type=Path)
    given = parser.parse_args()
    with ERRORS.open(newline="", encoding="utf-8") as file:
        rows: list[dict[str, object]] = [dict(row) for row in csv.DictReader(file)]
    for blocks in sorted({int(str(row["blocks"])) for row in rows}):
        folder = given.scratch / "state"
        shutil.rmtree(folder, ignore_errors=True)
        Cost.of([sys.executable, "-m", "benchmarks.dhc_persons_state", str(folder), *sizes_of(blocks)])
        found = {(level, query): error for level, query, error in expected(Run.of(folder, once=True).plan)}
        for row in rows:
            if row["blocks"] == str(blocks):
                row["gls"] = f"{found[str(row['level']), str(row['query'])]:.5g}"
    record(ERRORS, ERROR_COLUMNS, rows, force=True)


if __name__ == "__main__":
    main()
