"""The posterior of whole tables: errors, intervals, coverage by size, bias, effective draws and time.

python -m benchmarks.posterior [--place P] [--spine S] [--seeds A B]    puts rows into benchmarks/results/posterior.csv,
                                                    one a place, spine, seed and type of area, in place of the same
                                                    ones there, and draws docs/methods/posterior-rhode-island.svg
python -m benchmarks.posterior --draw               the figure and the means over seeds with their standard errors,
                                                    from the CSV alone

python -m benchmarks.posterior --least [...]         prints of the same places, spines and seeds what no table of these
                                                    draws can be nearer than: E|T - m| of each count, if draws are
                                                    right, with m their median, and how far m is from the truth; the
                                                    medians need not add up
python -m benchmarks.posterior --pieces [...]       prints of the same mean errors of the totals of random pieces of
                                                    block groups, three tenths of their blocks each: of medians of the
                                                    draws, of bluedown, their difference and its standard error

"rhode-island" is that of 2010 as in ``benchmarks.topdown``: three minutes of processor time a seed. "generated" is the
state of examples/redistricting/state.py with 2,500 blocks and 100,000 people in the same 16 cells, half a minute. Noise
is drawn anew for each seed; the draws, the table and the intervals are those that a release with estimate =
"posterior" publishes. gls and bluedown see the same noise.

error       mean absolute error of the published counts
bias        mean error of the published counts
length, covered, length95, covered95    of credible intervals at 90 %, and at 95 %, widened to hold the published count
ci_length, ci_covered, ...95   the same of the intervals of gls, cut at 0 and rounded inwards
effective   how many independent draws the draws are worth
draws_s, processor_s    of the draws, and of the draws and the table
before, every   sweeps of each chain before the first draw, and between two
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from benchmarks.recorded import record
from benchmarks.topdown import SPINES, Blocks, Measured
from examples.redistricting.state import State
from scipy import sparse

from tabulae.estimation.intervals import Ends
from tabulae.estimation.posterior import BURNT, KEPT_EVERY
from tabulae.products.areas.estimate import SpineEstimate, estimate_spine
from tabulae.products.areas.posterior import AreaPosterior
from tabulae.products.areas.spec.section import AreaTable
from tabulae.products.areas.tables import AreaPublisher, Areas

RESULTS = Path(__file__).parent / "results/posterior.csv"
FIGURE = Path(__file__).parents[1] / "docs/methods/posterior-rhode-island.svg"
FIELDS = (
    "place", "spine", "seed", "area", "counts", "size", "number", "error", "bluedown_error", "gls_error", "bias",
    "bluedown_bias", "length", "covered", "length95", "covered95", "ci_length", "ci_covered", "ci_length95",
    "ci_covered95", "effective", "draws_s", "processor_s", "before", "every",
)  # fmt: skip
KEY = 6  # of the fields say what a row is about
SIZES = (0, 1, 10, 50, 100, 500)
LEVELS = (0.9, 0.95)
COUNTS: dict[str, list[str]] = {"total": [], "cell": ["race", "votingage"]}
PLACES = ("rhode-island", "generated")
_PIECES = 40  # of each block group
_ALONE = ("white", "black", "aian", "asian", "nhpi", "other")


class Generated(Blocks):
    """Blocks of the invented state of examples/redistricting, in the cells of ``benchmarks.topdown``."""

    def __init__(self) -> None:
        state = State.make(100_000, 2_500)
        people = np.zeros((state.areas["block"].size, *state.counts.shape[1:]), np.int64)
        np.add.at(people, state.block, state.counts)
        self._rows = [
            {"GEOID10": block, "COUSUBFP": town, "PLACEFP": place, "AIANNHCE": tribe}
            for block, town, place, tribe in zip(
                *(state.areas[name].tolist() for name in ("block", "cousub", "place", "aiannh")), strict=True
            )
        ]
        for b, row in enumerate(self._rows):
            counts = people[b]
            races = {name: counts[:, 0, i] for i, name in enumerate(_ALONE)}
            races |= {"two": counts[:, 0, len(_ALONE) :].sum(axis=1), "hisp": counts[:, 1].sum(axis=1)}
            for race, ages in races.items():
                row |= {f"pop_{race}": int(ages.sum()), f"vap_{race}": int(ages[1])}


class Study:
    """What is estimated of some blocks from noise of a seed."""

    def __init__(self, blocks: Blocks, spine: str, seed: int) -> None:
        self.blocks, plan = blocks, blocks.plan(spine)
        self._leaf, leaves = plan.tree.leaf, plan.spine.leaves
        values = Measured(plan, blocks.truth).draw(seed)
        self.gls, self.whole = (estimate_spine(plan, iter(values), method) for method in ("gls", "bluedown"))
        begun = time.process_time()
        areas = {kind: area for kind, (area, _) in blocks.areas.items()}
        self.made = AreaPosterior.of(self.whole, iter(values), areas, ("block", np.arange(leaves)), seed)
        self._begun, self._drawn = begun, time.process_time() - begun

    def sums(self) -> Iterator[tuple[str, str, sparse.csr_array, np.ndarray, np.ndarray]]:
        """By type of area and counts: which blocks and which cells are added up, and these sums in all draws."""
        for kind, (area, number) in self.blocks.areas.items():
            inside = np.flatnonzero(area >= 0)
            ones = np.ones(inside.size, np.int64)
            rows = sparse.csr_array((ones, (area[inside], inside)), shape=(number, area.size))
            for counts, by in COUNTS.items():
                cells = np.eye(16, dtype=np.int64) if by else np.ones((16, 1), np.int64)
                yield kind, counts, rows, cells, self.made.draws.sums(rows, sparse.csr_array(cells))

    def rows(self) -> list[tuple]:
        """For the CSV, but the place, the spine and the seed."""
        table = self.made.draws.table()[self._leaf]
        spent = round(self._drawn, 1), round(time.process_time() - self._begun, 1)
        leaves = len(table)
        others = [each.leaf_counts(0, leaves).reshape(leaves, -1) for each in (self.whole, self.gls)]
        cut = {level: intervals(self.blocks, self.gls, level) for level in LEVELS}
        return [(*row, *spent, BURNT, KEPT_EVERY) for row in scores(self, [table, *others], cut)]

    def least(self) -> Iterator[tuple[str, str, float, float]]:
        """What the docstring above says of ``--least``, by type of area and counts."""
        truth = self.blocks.truth.reshape(self._leaf.size, -1)
        for kind, counts, rows, cells, sums in self.sums():
            middle = np.median(sums, axis=0)
            expected, true = np.abs(sums - middle).mean(), rows @ truth @ cells
            yield kind, counts, float(expected), float(np.abs(np.rint(middle) - true).mean())

    def pieces(self) -> Iterator[tuple[float, float]]:
        """What the docstring above says of ``--pieces``, by block group: errors of the posterior and of bluedown."""
        random, truth = np.random.default_rng(1), self.blocks.truth.reshape(self._leaf.size, -1).sum(axis=1)
        drawn = np.stack([np.asarray(each.sum(axis=1)).ravel() for each in self.made.draws.tables])
        errors = self.whole.leaf_counts(0, truth.size).reshape(truth.size, -1).sum(axis=1) - truth
        group = self.blocks.areas["block_group"][0]
        for members in (np.flatnonzero(group == g) for g in np.unique(group)):
            parts = [random.choice(members, round(0.3 * members.size), replace=False) for _ in range(_PIECES)]
            own = [abs(np.median(drawn[:, part].sum(axis=1)) - truth[part].sum()) for part in parts]
            yield float(np.mean(own)), float(np.mean([abs(errors[part].sum()) for part in parts]))


def intervals(blocks: Blocks, gls: SpineEstimate, level: float) -> dict[tuple[str, str], Ends]:
    """The intervals of gls, by type of area and counts: shape (areas, counts), as a release publishes them."""
    plan = gls.plan
    tables = [AreaTable(name, plan.layout.margin(by), tuple(blocks.areas)) for name, by in COUNTS.items()]
    areas = [Areas(kind, np.arange(n).astype(str), leaf) for kind, (leaf, n) in blocks.areas.items()]
    found: dict[tuple[str, str], list[np.ndarray]] = defaultdict(list)
    for name, rows in AreaPublisher(plan.layout, plan.support, "gls", gls, gls, None, level).rows(
        tables, areas
    ):
        ends = np.stack([rows[end].to_numpy() for end in ("ci_low", "ci_high")])
        found[rows["area_type"][0].as_py(), name].append(ends)
    made = {key: np.concatenate(parts, axis=1) for key, parts in found.items()}
    return {
        (kind, name): Ends(*ends.reshape(2, blocks.areas[kind][1], -1)) for (kind, name), ends in made.items()
    }


def scores(
    study: Study, tables: list[np.ndarray], cut: Mapping[float, Mapping[tuple[str, str], Ends]]
) -> Iterator[tuple]:
    """What draws, and the tables (blocks, cells) of the posterior, bluedown and gls, are worth, area by area.

    Args:
        cut: the intervals of gls at each level.
    """
    truth, made = study.blocks.truth.reshape(len(tables[0]), -1), study.made
    for kind, counts, rows, cells, sums in study.sums():
        true, own, blue, unbiased = (rows @ each @ cells for each in (truth, *tables))
        credible = (made.draws.credible(sums, level) for level in LEVELS)
        held = [Ends(np.minimum(low, own), np.maximum(high, own)) for low, high in credible]
        ends = [each for pair in (held, [cut[level][kind, counts] for level in LEVELS]) for each in pair]
        size = np.searchsorted(SIZES, true, side="right") - 1
        classes = [("all", np.ones(true.shape, bool))]
        if (kind, counts) == ("block", "total"):
            classes += [(SIZES[i], size == i) for i in range(len(SIZES)) if (size == i).any()]
        for name, some in classes:
            errors = [(each - true)[some] for each in (own, blue, unbiased)]
            told = (
                *(np.abs(each).mean() for each in errors),
                *(each.mean() for each in errors[:2]),
                *(
                    number
                    for low, high in ends
                    for number in (
                        (high - low)[some].mean(),
                        100 * ((low <= true) & (true <= high))[some].mean(),
                    )
                ),
                made.effective[kind][f"{counts}s"],
            )
            yield kind, counts, name, int(some.sum()), *np.round(told, 3).tolist()


def means(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """Rows of one place and spine, as means over seeds, and below "name ±" their standard errors."""
    found: dict[tuple, list] = defaultdict(list)
    for row in rows:
        found[row["area"], row["counts"], row["size"]].append([float(row[name]) for name in FIELDS[KEY:]])
    return [
        {
            **dict(zip(("area", "counts", "size"), key, strict=True)),
            **{n: f"{x:.3f}" for n, x in zip(FIELDS[KEY:], np.mean(scores, axis=0), strict=True)},
            **{f"{n} ±": f"{x:.3f}" for n, x in zip(FIELDS[KEY:], _errors_of_means(scores), strict=True)},
            "seeds": str(len(scores)),
        }
        for key, scores in found.items()
    ]


def _errors_of_means(scores: list[list[float]]) -> np.ndarray:
    several = len(scores) > 1
    return np.std(scores, axis=0, ddof=1) / len(scores) ** 0.5 if several else np.full(len(scores[0]), np.nan)


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
    parser.add_argument("--place", choices=PLACES, default=PLACES[0])
    parser.add_argument("--spine", choices=SPINES, default=SPINES[0])
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 1), help="from, and up to but not with")
    parser.add_argument(
        "--least", action="store_true", help="what tables of these draws cannot be nearer than"
    )
    parser.add_argument("--pieces", action="store_true", help="totals of random pieces of block groups")
    parser.add_argument("--draw", action="store_true", help="the figure and means alone")
    options = parser.parse_args()
    for seed in [] if options.draw else range(*options.seeds):
        blocks = Blocks() if options.place == PLACES[0] else Generated()
        about = (options.place, options.spine, seed)
        study = Study(blocks, options.spine, seed)
        if options.least:
            for kind, counts, *least in study.least():
                print(*about, kind, counts, *(f"{error:.3f}" for error in least), sep="\t")
            continue
        if options.pieces:
            errors = np.array(list(study.pieces()))
            apart = errors[:, 0] - errors[:, 1]
            told = (*errors.mean(axis=0), apart.mean(), apart.std(ddof=1) / apart.size**0.5)
            print(*about, *(f"{number:.2f}" for number in told), sep="\t")
            continue
        new = [(*about, *row) for row in study.rows()]
        print(about, f"processor {new[0][-3]:.0f} s", file=sys.stderr)
        with RESULTS.open(newline="") as file:
            old = [tuple(row.values()) for row in csv.DictReader(file)]
        kept = [row for row in old if row[:3] != tuple(map(str, about))]
        record(RESULTS, FIELDS, sorted(kept + new, key=lambda row: (row[0], row[1], int(row[2]))))
    if options.least or options.pieces:
        return 0
    with RESULTS.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for place, spine in sorted({(row["place"], row["spine"]) for row in rows}):
        print(place, spine)
        told = means([row for row in rows if (row["place"], row["spine"]) == (place, spine)])
        print("area", "counts", "size", *FIELDS[KEY:], "seeds", sep="\t")
        for row in told:
            shown = [f"{row[name]} ±{row[f'{name} ±']}" for name in FIELDS[KEY:]]
            print(row["area"], row["counts"], row["size"], *shown, row["seeds"], sep="\t")
        if (place, spine) == (PLACES[0], SPINES[0]):
            draw(told, FIGURE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
