"""Rhode Island 2010 by three estimators: errors by type of area, bias by size of block, and how long they take.

python -m benchmarks.topdown          writes benchmarks/results/topdown.csv and docs/methods/topdown-rhode-island.svg;
                                      two minutes
python -m benchmarks.topdown --draw   the figure alone, from the CSV

Real blocks (``../shared/data/ri_2010_blocks.csv``: 25,181 of them, a third without people), 16 cells of 8 groups by
race and Hispanic origin and 2 by voting age. Noise is drawn 30 times, and the three estimators see the same noise.
Budget and shares are those of the 2020 census: rho 2.5562, the nation's share joined to the state's, and the shares of
query groups that these cells cannot tell apart joined. All blocks are in the universe: housing is not in the data.
On the conventional spine, and on the optimised one, whose block groups are drawn anew by minor civil division and
tribal area; areas called "block_group" are the conventional ones in both.

error     mean absolute error of totals and of cells over areas, and the mean over seeds with its standard error
paired    bluedown minus topdown, seed by seed
bias      mean error of blocks' totals by their true population, with the standard error over seeds
seconds   of one run of an estimator, reading simulated measurements included: wall clock and processor time
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Iterator
from fractions import Fraction
from functools import cached_property
from pathlib import Path

import numpy as np
from benchmarks.recorded import add_force, record

import tabulae as tb
from tabulae.privacy.noise import Insecure
from tabulae.products.areas.estimate import Method, estimate_spine
from tabulae.products.areas.layout import CellLayout, Supports
from tabulae.products.areas.spine_plan import SpinePieceValues, SpinePlan

ROOT = Path(__file__).parents[1]
DATA = ROOT.parent / "shared/data/ri_2010_blocks.csv"
RESULTS = Path(__file__).parent / "results/topdown.csv"
FIGURE = ROOT / "docs/methods/topdown-rhode-island.svg"
FIELDS = ("spine", "part", "area", "areas", "measure", "method", "mean", "standard_error", "runs")
METHODS: tuple[Method, ...] = ("gls", "topdown", "bluedown")
RACES = ("white", "black", "hisp", "aian", "asian", "nhpi", "other", "two")
DIGITS = {"state": 2, "county": 5, "tract": 11, "block_group": 12, "block": 15}
ENTITIES = {"MCD": ("COUSUBFP", "00000"), "place": ("PLACEFP", "99999"), "AIAN": ("AIANNHCE", "9999")}
SPINES = ("conventional", "optimised")
RHO = Fraction(542, 339) ** 2
SHARES = dict(zip(DIGITS, (f"{n}/4099" for n in (104 + 1440, 447, 687, 1256, 165)), strict=True))
QUERIES = ((), ("race",), ("votingage",), ("race", "votingage"))
QUERY_SHARES = {  # total; cenrace, hispanic and both; votingage alone and by hispanic; the rest
    "state": (3773, 24, 12, 288),
    "county": (3126, 48, 20, 903),
    "tract": (1567, 1946, 10, 579),
    "block_group": (1705, 1061, 6, 1327),
    "block": (5, 35, 10, 4047),
}
SIZES = (0, 1, 5, 20, 50, 100, 200, 500)  # the least population of each class of blocks
RUNS = 30


class Blocks:
    """The real blocks: codes of their units by level, of their entities, and true counts."""

    def __init__(self, path: Path = DATA) -> None:
        with path.open(newline="") as file:
            self._rows = list(csv.DictReader(file))

    @cached_property
    def truth(self) -> np.ndarray:
        """Shape (blocks, 1, 16): by race and voting age, minors first."""
        people, adults = (
            np.array([[int(row[f"{kind}_{race}"]) for race in RACES] for row in self._rows])
            for kind in ("pop", "vap")
        )
        return np.stack([people - adults, adults], axis=2).reshape(len(self._rows), 1, 16)

    def _entity(self, name: str) -> list[str | None]:
        column, none = ENTITIES[name]
        return [None if row[column] == none else row[column] for row in self._rows]

    @cached_property
    def spine(self) -> tb.Spine:
        """The conventional spine, without shares."""
        names = [row["GEOID10"] for row in self._rows]
        codes = {level: [name[:digits] for name in names] for level, digits in DIGITS.items()}
        return tb.Spine.from_codes(codes, levels=list(DIGITS))

    def plan(self, spine: str) -> SpinePlan:
        """Levels, queries and shares on one of the spines."""
        keys = [self._entity("MCD"), self._entity("AIAN")]
        chosen = self.spine if spine == "conventional" else self.spine.optimise(keys)
        layout = CellLayout.of(tb.Domain({"race": len(RACES), "votingage": 2}))
        shares = {
            level: tuple(Fraction(part, sum(parts)) for part in parts)
            for level, parts in QUERY_SHARES.items()
        }
        queries = tuple(layout.margin(names) for names in QUERIES)
        every = Supports.of(np.ones((len(self._rows), 1), bool))
        return SpinePlan(chosen.bypass(SHARES), layout, queries, shares, tb.ZCDP(RHO), every)

    @cached_property
    def areas(self) -> dict[str, tuple[np.ndarray, int]]:
        """For each type of area, shape (blocks,): which one each block lies in, -1 for none; and how many there are."""
        found = {}
        for level in list(DIGITS)[1:]:
            unit = self.spine.units[level]
            found[level] = (unit, int(unit.max()) + 1)
        for name in ("MCD", "place"):
            codes = self._entity(name)
            number = {code: i for i, code in enumerate(sorted({code for code in codes if code is not None}))}
            found[name] = (np.array([-1 if code is None else number[code] for code in codes]), len(number))
        return found


class Measured:
    """Measurements of known counts: what ``estimate_spine`` reads."""

    def __init__(self, plan: SpinePlan, truth: np.ndarray) -> None:
        self._plan = plan
        self._counts = np.zeros((plan.tree.size, *truth.shape[1:]), np.int64)
        np.add.at(self._counts, plan.tree.leaf, truth)
        for nodes in reversed(plan.depths[1:]):
            np.add.at(self._counts, plan.tree.parent[nodes], self._counts[nodes])

    def draw(self, seed: int) -> list[SpinePieceValues]:
        """All pieces, with noise from a seed."""
        source = Insecure(seed)
        return list(self._pieces(source))

    def _pieces(self, source: Insecure) -> Iterator[SpinePieceValues]:
        plan = self._plan
        for piece in plan.pieces:
            support = plan.dense_cells[piece.pattern]
            x = self._counts[piece.nodes][:, support]
            answers = []
            for query, law in zip(plan.queries, plan.laws(int(plan.classes[1][piece.nodes[0]])), strict=True):
                if law is None:
                    answers.append(None)
                    continue
                exact = query.add_up(x, support).reshape(piece.nodes.size, -1)
                answers.append(exact + law.sample(exact.shape, source))
            yield SpinePieceValues(piece, tuple(answers))


class Study:
    """What every seed gave on one spine."""

    def __init__(self, blocks: Blocks, spine: str) -> None:
        self._spine, self.plan = spine, blocks.plan(spine)
        self._areas = blocks.areas
        self._margin = self.plan.layout.margin(["race", "votingage"])
        self._true = {name: self._table(blocks.truth, *of) for name, of in self._areas.items()}
        self._size = np.searchsorted(SIZES, blocks.truth.sum(axis=(1, 2)), side="right") - 1
        self.errors: dict[tuple[str, str, str], list[float]] = {}
        self.bias: dict[tuple[int, str], list[float]] = {}
        self.seconds: dict[tuple[str, str], list[float]] = {}

    @staticmethod
    def _table(truth: np.ndarray, area: np.ndarray, areas: int) -> np.ndarray:
        found = np.zeros((areas, 16), np.int64)
        np.add.at(found, area[area >= 0], truth[area >= 0, 0])
        return found

    def run(self, method: Method, values: list[SpinePieceValues]) -> None:
        """Estimate, time and compare."""
        wall, processor = time.perf_counter(), time.process_time()
        done = estimate_spine(self.plan, iter(values), method)
        self.seconds.setdefault(("wall", method), []).append(time.perf_counter() - wall)
        self.seconds.setdefault(("processor", method), []).append(time.process_time() - processor)
        for name, (area, areas) in self._areas.items():
            error = done.margin(self._margin, area, areas).reshape(areas, 16) - self._true[name]
            total = error.sum(axis=1)
            self.errors.setdefault((name, "total", method), []).append(float(np.abs(total).mean()))
            self.errors.setdefault((name, "cell", method), []).append(float(np.abs(error).mean()))
            if name == "block":
                for size in range(len(SIZES)):
                    self.bias.setdefault((size, method), []).append(float(total[self._size == size].mean()))

    def rows(self) -> Iterator[tuple]:
        """For the CSV."""
        for measure in ("total", "cell"):
            for name, (_, number) in self._areas.items():
                found = {method: np.array(self.errors[name, measure, method]) for method in METHODS}
                for method in METHODS:
                    yield self._spine, "error", name, number, measure, method, *_mean(found[method])
                less = found["bluedown"] - found["topdown"]
                yield self._spine, "paired", name, number, measure, "bluedown - topdown", *_mean(less)
        for (size, method), found in self.bias.items():
            number = int((self._size == size).sum())
            yield self._spine, "bias", _told(size), number, "total", method, *_mean(found)
        for (clock, method), found in self.seconds.items():
            yield self._spine, "seconds", "all nodes", self.plan.tree.size, clock, method, *_mean(found)


def _told(size: int) -> str:
    """A class of sizes."""
    if size == len(SIZES) - 1:
        return f"{SIZES[size]} or more"
    low, high = SIZES[size], SIZES[size + 1] - 1
    return str(low) if low == high else f"{low} to {high}"


def _mean(values: list[float] | np.ndarray) -> tuple[str, str, int]:
    """Mean, its standard error, and of how many."""
    array = np.asarray(values)
    error = array.std(ddof=1) / array.size**0.5 if array.size > 1 else np.nan
    return f"{array.mean():.5f}", f"{error:.5f}", array.size


def draw(rows: list[dict[str, str]], path: Path) -> None:
    """Errors of totals and of cells by type of area, and bias of blocks' totals by population; conventional spine."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "tabulae"
    from matplotlib import pyplot as plt

    rows = [row for row in rows if row["spine"] == "conventional"]
    figure, axes = plt.subplots(1, 3, figsize=(10, 3.6), layout="constrained")
    looks = dict(zip(METHODS, (("#6b7280", "s"), ("#b4552d", "o"), ("#1f5673", "D")), strict=True))
    for axis, measure in zip(axes, ("total", "cell"), strict=False):
        for i, (method, (colour, marker)) in enumerate(looks.items()):
            shown = [r for r in rows if (r["part"], r["measure"], r["method"]) == ("error", measure, method)]
            at = np.arange(len(shown)) + (i - 1) * 0.2
            axis.plot(at, [float(r["mean"]) for r in shown], marker, color=colour, ms=4, label=method)
        axis.set_xticks(range(len(shown)), [r["area"].replace("_", "\n") for r in shown], fontsize=8)
        axis.set_yscale("log")
        ticks = (1, 2, 5, 10, 20, 40) if measure == "total" else (0.5, 1, 2, 5, 10)
        axis.set_yticks(ticks, [str(tick) for tick in ticks])
        axis.minorticks_off()
        axis.grid(axis="y", color="#e5e2da", lw=0.6)
        axis.set_ylabel("mean absolute error")
        axis.set_title("Totals" if measure == "total" else "Cells", fontsize=9)
    axes[1].legend(frameon=False, fontsize=8)
    for method, (colour, marker) in looks.items():
        shown = [r for r in rows if r["part"] == "bias" and r["method"] == method]
        mean, error = (np.array([float(r[name]) for r in shown]) for name in ("mean", "standard_error"))
        line = ":" if method == "bluedown" else "-"
        axes[2].errorbar(range(len(shown)), mean, 2 * error, fmt=marker + line, color=colour, ms=4, lw=1)
    axes[2].set_xticks(range(len(shown)), [r["area"] for r in shown], rotation=45, ha="right", fontsize=8)
    axes[2].axhline(0, color="#d9d6cf", lw=0.8)
    axes[2].set_xlabel("people in the block")
    axes[2].set_ylabel("mean error (bars: 2 standard errors)")
    axes[2].set_title("Bias of blocks' totals", fontsize=9)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def study(blocks: Blocks, spine: str, runs: int) -> Iterator[tuple]:
    """All seeds on one spine."""
    found = Study(blocks, spine)
    measured = Measured(found.plan, blocks.truth)
    for seed in range(runs):
        values = measured.draw(seed)
        for method in METHODS:
            found.run(method, values)
        told = ", ".join(f"{method} {found.seconds['wall', method][-1]:.2f} s" for method in METHODS)
        print(f"{spine}, seed {seed}: {told}", file=sys.stderr)
    return found.rows()


def main() -> int:
    """Measure, print, write and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--draw", action="store_true", help="the figure alone")
    add_force(parser)
    options = parser.parse_args()
    if not options.draw:
        rows = [row for spine in SPINES for row in study(Blocks(), spine, options.runs)]
        record(RESULTS, FIELDS, rows, size="runs", force=options.force)
    with RESULTS.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        print(*row.values(), sep="\t")
    draw(rows, FIGURE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
