"""Accuracy of detailed groups: noise, intervals, estimates from both stages, and which table a group gets.

python -m benchmarks.detailed_accuracy        writes detailed_accuracy.csv in benchmarks/results, and
                                              docs/methods/detailed-accuracy.svg

Budgets, thresholds and maps are those of the 2020 release (small maps with the same budgets where they are not at
hand). Nothing is confidential: totals are invented, and the source of noise is seeded.

``noise``      errors of ``measure_groups`` over 1,000 runs: their standard deviation by level and kind of count, beside
               sqrt(s / (2 m rho)); ``z`` compares the mean square with the law's own variance
``coverage``   share of 95 % intervals that hold the truth, by rung and by where the total is, given that the rung was
               chosen; totals and cells
``total``      root mean squared errors of production's total (sum of cells) and of the estimate from both stages
``tables``     share of groups by table and size, expected from the law and simulated
``suppressed`` below the state a total is published if it is above a threshold: share of 95 % intervals that hold the
               truth among totals that are published, and as "expected" the chance to be published

A row fails where |z| is above 6 (a false alarm in 2e-9 of normal figures), and the script with it.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
import tempfile
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path

import numpy as np
from benchmarks.detailed_maps import write_maps
from benchmarks.detailed_population import MAPS
from benchmarks.recorded import record

import tabulae as tb
from tabulae.domain.groups import Regions
from tabulae.interop.safetab.config import Config, read_draft
from tabulae.interop.safetab.maps import WIDE, group_map, read_maps
from tabulae.interop.safetab.programs import PERSONS
from tabulae.interop.safetab.text import Faults
from tabulae.privacy import ZCDP, NoiseLaw
from tabulae.products.groups.count import GroupChunk, GroupCounts
from tabulae.products.groups.estimate import cell_estimates, total_estimates
from tabulae.products.groups.levels import TOTAL, TOTAL_ONLY, AdaptivePlan, GroupMeasurement, PopulationLevel
from tabulae.products.groups.measure import measure_groups
from tabulae.products.groups.plan import expected_rungs
from tabulae.products.groups.spec import Suppression

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks/results/detailed_accuracy.csv"
FIGURE = ROOT / "docs/methods/detailed-accuracy.svg"
COLUMNS = ("part", "level", "case", "n", "found", "expected", "z", "note")
RUNS, TRIALS, CONFIDENCE, ALARM = 1000, 200_000, 0.95, 6.0
OFFSETS = (-4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0)
RATIOS = {1: 1.37, 2: 1.73, 3: 2.47}
Row = dict[str, object]


def row(
    part: str,
    level: str,
    case: str,
    n: int,
    found: float,
    expected: float,
    z: float | None = None,
    note: str = "",
) -> Row:
    """One line of the CSV."""
    shown = "" if z is None else f"{z:.2f}"
    return dict(
        zip(COLUMNS, (part, level, case, n, f"{found:.5g}", f"{expected:.5g}", shown, note), strict=True)
    )


class Invented(GroupCounts):
    """Public counts, invented: one chunk a level."""

    def __init__(self, chunks: list[GroupChunk]) -> None:
        self.listed = chunks
        self.records = int(sum(chunk.people.sum() for chunk in chunks))

    def chunks(self, level: int) -> Iterator[GroupChunk]:
        yield self.listed[level]

    def fingerprint(self) -> bytes:
        return b"invented"


def configuration(folder: Path) -> tuple[Config, list[PopulationLevel]]:
    """The levels of the 2020 release over a geography of one block."""
    if MAPS.exists():
        folder = MAPS
    else:
        write_maps(folder)
    faults = Faults()
    draft, maps = read_draft(folder / "config.json", PERSONS, faults), read_maps(folder, faults)
    faults.stop(str(folder))
    assert draft is not None
    assert draft.config is not None
    config = draft.config
    groups, tables = group_map(maps, config.max_race_codes), PERSONS.tabulations[""].ladder
    levels = [
        PopulationLevel(
            Regions.nation(1, region),
            level,
            groups.at(level, region),
            tables,
            config.thresholds["", region, level],
            ZCDP(config.budgets["", region, level]),
            config.stage_one,
        )
        for region in config.region_types
        if not region.startswith("PR")
        for level in ("1", "2")
        if config.budgets["", region, level]
    ]
    return config, levels


def invented(levels: list[PopulationLevel], seed: int) -> Invented:
    """Most groups have nobody; some of each level are large enough for each table."""
    rng = np.random.default_rng(seed)
    chunks = []
    for level in levels:
        classes, groups = level.ladder.classes, len(level.groups)
        totals = np.zeros(groups, np.int64)
        adaptive = np.flatnonzero(~level.groups.total_only)
        some = rng.choice(adaptive, min(16, adaptive.size), replace=False)
        totals[some] = np.resize([0, *level.thresholds], some.size) + 10 * level.first.margin("0.999")
        cells = rng.multinomial(totals, np.full(classes, 1 / classes))
        place, of_class = np.nonzero(cells)
        chunks.append(GroupChunk(0, 1, groups, classes, place, of_class, cells[place, of_class]))
    return Invented(chunks)


def errors(
    level: PopulationLevel, chunk: GroupChunk, measured: GroupMeasurement
) -> Iterator[tuple[str, np.ndarray]]:
    """Kind of count -> noise of one run, by subtraction of the invented truth."""
    truth, rung = chunk.totals(), measured.rung
    yield "stage one", (measured.stage_one - truth)[rung != TOTAL_ONLY]
    yield "stage two, total", (measured.totals - truth)[rung == TOTAL]
    yield "one count", (measured.totals - truth)[rung == TOTAL_ONLY]
    for r, (places, noisy) in measured.cells.items():
        table = level.ladder.rungs[r - 1]
        yield "stage two, cells", (noisy - chunk.cells(places, table.of_class, table.cells)).ravel()


def noise_rows(levels: list[PopulationLevel], runs: int) -> Iterator[Row]:
    """Standard deviations over the runs, by level and kind of count."""
    plan, counts = AdaptivePlan(tuple(levels)), invented(levels, 1)
    sums: dict[tuple[int, str], tuple[int, float]] = {}
    for run in range(runs):
        for measured in measure_groups(counts, plan, source=tb.noise.Insecure(run)):
            i = measured.level
            for kind, e in errors(levels[i], counts.listed[i], measured):
                if e.size:
                    n, squares = sums.get((i, kind), (0, 0.0))
                    sums[i, kind] = n + e.size, squares + float(np.square(e, dtype=float).sum())
    for (i, kind), (n, squares) in sorted(sums.items()):
        level = levels[i]
        law, share = laws(level)[kind]
        theory = math.sqrt(level.groups_of_a_record / (2 * share * float(level.budget.amount)))
        z = (squares / n / law.variance_of_law - 1) * math.sqrt(n / 2)
        note = f"s = {level.groups_of_a_record}, rho = {float(level.budget.amount)}"
        yield row("noise", level.name, kind, int(n), math.sqrt(squares / n), theory, z, note)


def laws(level: PopulationLevel) -> Mapping[str, tuple[NoiseLaw, float]]:
    """Kind of count -> its law, and its share of the level's budget."""
    one = float(level.stage_one)
    return {
        "stage one": (level.first, one),
        "stage two, total": (level.second, 1 - one),
        "stage two, cells": (level.second, 1 - one),
        "one count": (level.whole, 1.0),
    }


def cells_of(level: PopulationLevel, rung: int) -> int:
    """How many counts the second stage of a rung has."""
    return 1 if rung == 0 else level.ladder.rungs[rung - 1].cells


def selected(level: PopulationLevel, rung: int, total: int, source: tb.noise.Insecure) -> np.ndarray:
    """Stage-one counts of groups of one size, those that chose this rung."""
    y = total + level.first.sample(TRIALS, source)
    return y[level.choose(y) == rung]


def estimate_rows(level: PopulationLevel, rung: int) -> Iterator[Row]:
    """Coverage and errors given the rung, with the total at some distances (in stage-one sd) from its lower end.

    With the lowest rung, which has no lower end, they are distances below its upper end.
    """
    low, high = level.interval_of(rung)
    deviation, m = math.sqrt(level.first.variance_of_law), cells_of(level, rung)
    source = tb.noise.Insecure(100 * rung + m)
    for offset in OFFSETS:
        end = low if low is not None else high
        assert end is not None
        total = max(0, round(end + (offset if low is not None else -offset) * deviation))
        y = selected(level, rung, total, source)
        if y.size < TRIALS // 1000:
            continue
        truth = np.full(m, total // m)
        truth[: total % m] += 1
        cells = truth + level.second.sample((y.size, m), source)
        plain = cells.sum(axis=1)
        case = f"rung {rung}, {'above' if low is not None else 'below'} the threshold by {offset:+g} sd"
        made = total_estimates(level, rung, y, plain, CONFIDENCE)
        yield covered(level, f"totals, {case}", made.ci_low, made.ci_high, total)
        if m > 1:
            few = slice(0, 20_000)
            each = cell_estimates(level, rung, y[few], cells[few], CONFIDENCE)
            yield covered(level, f"cells, {case}", each.ci_low[:, 0], each.ci_high[:, 0], int(truth[0]))
        ours, theirs = (np.sqrt(np.mean((x - total) ** 2)) for x in (made.estimate, plain))
        bias = (made.estimate.mean() - total) / (made.estimate.std() / math.sqrt(y.size))
        best = math.sqrt(1 + m / 9)
        yield row(
            "total",
            level.name,
            case,
            y.size,
            theirs / ours,
            best,
            bias,
            "plain RMSE over ours; z is our bias",
        )


def covered(level: PopulationLevel, case: str, low: np.ndarray, high: np.ndarray, truth: int) -> Row:
    """The share of intervals that hold the truth; only too low a share is a failure."""
    inside = (low <= truth) & (truth <= high)
    z = (inside.mean() - CONFIDENCE) / math.sqrt(CONFIDENCE * (1 - CONFIDENCE) / inside.size)
    return row("coverage", level.name, case, inside.size, inside.mean(), CONFIDENCE, z, "at least")


def table_rows(level: PopulationLevel, largest: int = 7) -> Iterator[Row]:
    """Share of groups by table for sizes of each decade, log-uniform within it."""
    rng, source = np.random.default_rng(1), tb.noise.Insecure(1)
    for decade in range(largest):
        sizes = np.unique((10 ** (decade + rng.random(2000))).astype(np.int64))
        expected = expected_rungs(level, sizes).mean(axis=0)
        y = sizes + level.first.sample((100, sizes.size), source)
        found = np.bincount(level.choose(y).ravel(), minlength=expected.size) / y.size
        for rung, (share, drawn) in enumerate(zip(expected, found, strict=True)):
            z = (drawn - share) / math.sqrt(max(share * (1 - share), 1e-9) / y.size)
            case = f"10^{decade} to 10^{decade + 1}, rung {rung}"
            yield row("tables", level.name, case, y.size, drawn, share, z)


def suppressed_rows(level: PopulationLevel, chance: Fraction) -> Iterator[Row]:
    """Coverage of published totals of groups without a table, drawn given that they are published."""
    law, rng = level.second, np.random.default_rng(1)
    threshold = Suppression(chance, frozenset()).floor(law)
    assert threshold is not None
    reach = law.margin("0.99999999")
    noise = np.arange(-reach, reach + 1)
    tails = np.array([law.tail(int(k)) for k in range(reach + 1)])
    half = -np.diff(tails, prepend=1.0) / 2
    chances = np.concatenate([half[:0:-1], [2 * half[0]], half[1:]])
    for total in sorted({round(share * threshold) for share in (0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 2, 3)}):
        kept = noise + total > threshold
        given = chances[kept] / chances[kept].sum()
        second = total + rng.choice(noise[kept], TRIALS // 10, p=given)
        y = np.minimum(
            total + level.first.sample(second.size, tb.noise.Insecure(total)), level.thresholds[0] - 1
        )
        made = total_estimates(level, 0, y, second, CONFIDENCE)
        inside = ((made.ci_low <= total) & (total <= made.ci_high)).mean()
        case = f"{total} people, dropped up to {threshold}"
        yield row(
            "suppressed", level.name, case, second.size, inside, chances[kept].sum(), note="given publication"
        )


def distinct(levels: list[PopulationLevel]) -> list[PopulationLevel]:
    """One level for each law and thresholds."""
    seen: dict[object, PopulationLevel] = {}
    for level in levels:
        seen.setdefault((level.first, level.second, level.thresholds), level)
    return list(seen.values())


def failed(line: Row) -> bool:
    """Whether a row says something that chance does not explain; an interval may cover too often."""
    if line["z"] == "":
        return False
    z = float(str(line["z"]))
    return z < -ALARM or (z > ALARM and line["part"] != "coverage")


def draw(rows: list[dict[str, str]], path: Path) -> None:
    """Left: share of groups by table and size, of the nation's detailed groups. Right: what both stages gain."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "tabulae"
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    colours = ("#6b7280", "#1f5673", "#b4552d", "#23282f")
    shown = [line for line in rows if line["part"] == "tables" and line["level"] == "USA, level 2"]
    for rung, colour in enumerate(colours):
        chosen = [line for line in shown if line["case"].endswith(f"rung {rung}")]
        label = ("total", "sex by 4 ages", "sex by 9 ages", "sex by 23 ages")[rung]
        at = np.arange(len(chosen)) + 0.5
        left.plot(at, [float(line["expected"]) for line in chosen], color=colour, label=label)
        left.plot(at, [float(line["found"]) for line in chosen], "o", color=colour, ms=4)
    left.set_xticks(range(len(chosen) + 1), [f"$10^{k}$" for k in range(len(chosen) + 1)])
    left.set_xlabel("people in the group")
    left.set_ylabel("share of groups")
    left.set_title("Table of a detailed group of the nation\n(lines expected, points simulated)", fontsize=9)
    left.legend(frameon=False, fontsize=8)
    gains = [line for line in rows if line["part"] == "total" and line["level"] == "COUNTY, level 2"]
    for rung, colour in enumerate(colours[1:], start=1):
        chosen = [line for line in gains if line["case"].startswith(f"rung {rung}")]
        offsets = [float(line["case"].split()[-2]) for line in chosen]
        right.plot(offsets, [float(line["found"]) for line in chosen], "o-", color=colour, ms=4)
        right.axhline(RATIOS[rung], color=colour, lw=0.8, ls=":")
    right.axhline(1, color="#d9d6cf", lw=0.8)
    right.set_xlabel("total above the threshold, in sd of stage one")
    right.set_ylabel("RMSE of the plain total over ours")
    right.set_title(
        "Totals from both stages, detailed groups of a county\n(dotted: without selection)", fontsize=9
    )
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def rows_of(levels: list[PopulationLevel], chance: Fraction, runs: int) -> Iterator[Row]:
    """All parts."""
    yield from noise_rows(levels, runs)
    for level in distinct(levels):
        for rung in range(len(level.thresholds) + 1):
            yield from estimate_rows(level, rung)
        yield from table_rows(level)
        if level.regions.name not in WIDE:
            yield from suppressed_rows(level, chance)


def main() -> int:
    """Compute, write, draw, and fail where a figure is off."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS.parent)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        config, levels = configuration(Path(name))
        rows = list(rows_of(levels, config.suppression, RUNS))
    record(given.out / RESULTS.name, COLUMNS, rows, size="n")
    with (given.out / RESULTS.name).open(newline="") as file:
        draw(list(csv.DictReader(file)), FIGURE)
    wrong = [line for line in rows if failed(line)]
    for line in wrong:
        print(*line.values(), sep=" | ")
    print(f"{len(rows)} rows, {len(wrong)} off")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
