"""How far three estimators are from the truth, in the invented state of ``benchmarks.state``, from the same noise.

python -m benchmarks.state_accuracy SCRATCH       writes benchmarks/results/state_accuracy.csv; some minutes

The spec is examples/redistricting.toml, the state has 25,000 blocks and 1,000,000 people. In each run the noise is
drawn anew from a seed, and ``gls``, ``topdown`` and ``bluedown`` estimate from it. Blocks are those with living
quarters; "drawn group" are block groups as they are measured, drawn anew, and "block_group" those of the file.

error      mean absolute error over the areas of one type: of totals; of the 28 cells of voting age by Hispanic origin
           by major race; of those of the 252 cells of voting age by Hispanic origin by race that anybody is in
paired     bluedown minus topdown, run by run
bias       mean error of blocks' totals by their true population, and of blocks' cells (252) by theirs
coverage   share of the 95 % intervals of gls (28 cells) that hold the truth; and root mean square of error over
           standard error
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from benchmarks.recorded import add_force, record
from benchmarks.state import PEOPLE_A_BLOCK, WHOLE, populate
from examples.redistricting.state import COMBINATIONS, State

from tabulae.privacy.noise import Insecure
from tabulae.products.areas.count import SpineCounts
from tabulae.products.areas.estimate import Method, SpineEstimate, estimate_spine
from tabulae.products.areas.measure import measure_spine
from tabulae.products.areas.passes.area_variances import area_covariances, margin_variance
from tabulae.products.areas.passes.covariances import Covariances
from tabulae.products.areas.spec.section import Geography
from tabulae.products.areas.spine_plan import area_half_widths
from tabulae.spec import read_spec

RESULTS = Path(__file__).parent / "results/state_accuracy.csv"
FIELDS = ("part", "area", "areas", "measure", "method", "mean", "standard_error", "runs")
METHODS: tuple[Method, ...] = ("gls", "topdown", "bluedown")
MEASURES = {
    "total": (),
    "28 cells": ("votingage", "hispanic", "race"),
    "cells with people": ("votingage", "hispanic", "cenrace"),
}
SIZES = (0, 1, 5, 20, 50, 100, 200)  # the least number of people of each class
CELLS = (0, 1, 2, 5, 10, 50)
RUNS = 10


class Truth:
    """The invented people, as a benchmark may know them."""

    def __init__(self, geography: Geography, state: State) -> None:
        self.plan = geography.plan()
        position = {code: i for i, code in enumerate(geography.leaf_codes.tolist())}
        leaf_of = np.array([position.get(code, -1) for code in state.areas["block"].tolist()])
        row, self._age, self._hispanic, self._race = np.nonzero(state.counts)
        self._leaf, self._kind = leaf_of[state.block[row]], state.kind[row]
        self._people = state.counts[row, self._age, self._hispanic, self._race]

    def counts(self) -> SpineCounts:
        """For measuring."""
        layout = self.plan.layout
        dense = np.full((8, 2), -1)
        dense[tuple(layout.codes.T)] = np.arange(layout.size)
        inner = self._hispanic * len(COMBINATIONS) + self._race
        place = dense[self._kind, self._age] * layout.algebra.cells + inner
        return SpineCounts(self.plan, self._leaf, place, self._people)

    def table(self, measure: str, area: np.ndarray, areas: int) -> np.ndarray:
        """Shape (areas, classes, inner): people by voting age, and by Hispanic origin and race."""
        major = np.where(self._race < 6, self._race, 6)
        age, inner, shape = {
            "total": (0, 0, (1, 1)),
            "28 cells": (self._age, self._hispanic * 7 + major, (2, 14)),
            "cells with people": (self._age, self._hispanic * 63 + self._race, (2, 126)),
        }[measure]
        found = np.zeros((areas + 1, *shape), np.int64)
        np.add.at(found, (area[self._leaf], age, inner), self._people)  # -1 is the last
        return found[:-1]


class Study:
    """What every run gave."""

    def __init__(self, geography: Geography, truth: Truth) -> None:
        self.geography, self.plan = geography, truth.plan
        self.margins = {name: self.plan.layout.margin(list(of)) for name, of in MEASURES.items()}
        self.areas = {name: geography.areas(name) for name in geography.area_types}
        spine = self.plan.spine
        self.areas["drawn group"] = (spine.codes["block_group"], spine.units["block_group"])
        self.areas["block"] = (geography.leaf_codes, np.arange(spine.leaves))
        self.true = {
            (name, measure): truth.table(measure, leaf, codes.size)
            for name, (codes, leaf) in self.areas.items()
            for measure in MEASURES
        }
        exact = () if geography.constraints is None else geography.constraints.exact
        covariances = Covariances.of(self.plan, exact)
        self.deviations = {name: self._deviations(covariances, *of) for name, of in self.areas.items()}
        self.found: dict[tuple[str, str, int, str, str], list[float]] = {}

    def _deviations(self, covariances: Covariances, codes: np.ndarray, leaf: np.ndarray) -> np.ndarray:
        """Shape (areas, classes, inner): standard errors of the 28 cells."""
        margin = self.margins["28 cells"]
        each = area_covariances(covariances, leaf, codes.size)
        return np.sqrt([np.maximum(margin_variance(self.plan.layout, v, margin), 0) for v in each])

    def add(self, method: str, done: SpineEstimate) -> None:
        """Compare one estimate with the truth."""
        for (name, measure), true in self.true.items():
            codes, leaf = self.areas[name]
            error = done.margin(self.margins[measure], leaf, codes.size) - true
            some = true > 0 if measure == "cells with people" else np.ones(true.shape, bool)
            self._keep("error", name, codes.size, measure, method, np.abs(error[some]).mean())
            if name == "block" and measure != "28 cells":
                self._bias(measure, method, error, true)
            if method == "gls" and measure == "28 cells":
                self._coverage(name, error)

    def _bias(self, measure: str, method: str, error: np.ndarray, true: np.ndarray) -> None:
        sizes = SIZES if measure == "total" else CELLS
        of = np.searchsorted(sizes, true, side="right") - 1
        for i, low in enumerate(sizes):
            told = f"{low} or more" if i == len(sizes) - 1 else _between(low, sizes[i + 1] - 1)
            self._keep("bias", told, int((of == i).sum()), measure, method, error[of == i].mean())

    def _coverage(self, name: str, error: np.ndarray) -> None:
        deviation = self.deviations[name]
        some = deviation > 1e-6  # what is exact has none
        z = error[some] / deviation[some]
        inside = np.abs(error[some]) <= area_half_widths(deviation[some] ** 2, self.plan.all_laws, 0.95)
        self._keep("coverage", name, error.shape[0], "95 % interval", "gls", inside.mean())
        self._keep("coverage", name, error.shape[0], "error over standard error", "gls", (z**2).mean() ** 0.5)

    def _keep(self, part: str, area: str, areas: int, measure: str, method: str, value: float) -> None:
        self.found.setdefault((part, area, areas, measure, method), []).append(float(value))

    def rows(self) -> Iterator[tuple]:
        """For the CSV."""
        for key, values in self.found.items():
            yield *key, *_mean(np.array(values))
        for (part, name, areas, measure, method), values in self.found.items():
            if part == "error" and method == "bluedown":
                less = np.array(values) - np.array(self.found[part, name, areas, measure, "topdown"])
                yield "paired", name, areas, measure, "bluedown - topdown", *_mean(less)


def _between(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} to {high}"


def _mean(values: np.ndarray) -> tuple[str, str, int]:
    """Mean, its standard error, and of how many."""
    error = values.std(ddof=1) / values.size**0.5 if values.size > 1 else np.nan
    return f"{values.mean():.5f}", f"{error:.5f}", values.size


def study(scratch: Path, blocks: int, runs: int) -> Iterator[tuple]:
    """All runs on one state."""
    geography = read_spec(populate(scratch / "accuracy", blocks)).geography
    assert geography is not None
    state = State.make(PEOPLE_A_BLOCK * blocks, blocks, max(1, blocks // 5_000))
    truth = Truth(geography, state)
    found, counts = Study(geography, truth), truth.counts()
    exact = () if geography.constraints is None else geography.constraints.exact
    for seed in range(runs):
        measured = measure_spine(counts, truth.plan, exact, source=Insecure(seed))
        pieces = list(measured)
        for method in METHODS:
            done = estimate_spine(
                truth.plan, pieces, method, constraints=geography.constraints, exact_values=measured.exact
            )
            found.add(method, done)
        print(f"run {seed + 1} of {runs}", file=sys.stderr, flush=True)
    return found.rows()


def main() -> int:
    """Measure, write, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scratch", type=Path)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--blocks", type=int, default=WHOLE)
    add_force(parser)
    given = parser.parse_args()
    given.scratch.mkdir(parents=True, exist_ok=True)
    rows = list(study(given.scratch, given.blocks, given.runs))
    record(RESULTS, FIELDS, rows, size="runs", force=given.force)
    for row in rows:
        print(*row, sep="\t")
    return 0


if __name__ == "__main__":
    sys.exit(main())
