"""Fitted exponents, the extrapolation to the nation, and docs/methods/scale.md, from what benchmarks.scale measured."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from benchmarks.nation import BLOCKS, PEOPLE
from benchmarks.recorded import record

ROOT = Path(__file__).parents[1]
FITS = ROOT / "benchmarks/results/scale_fit.csv"
PAGE = ROOT / "docs/methods/scale.md"
FIGURE = ROOT / "docs/methods/scale.svg"
GROUPS = ROOT / "benchmarks/results/detailed.csv"
CHECKED = ROOT / "benchmarks/results/nation_check.csv"
KILLS = ROOT / "benchmarks/results/kill_nation.csv"
NATION = BLOCKS + BLOCKS // 25
GOAL = 20
TOTAL = "all"
WHOLE, AGAIN = (
    "whole",
    "again",
)  # the sweeps of the nation itself, and of the same with later code on slower cores
AS_BEFORE = (
    "read measurements",
    "gls",
    "bluedown, up",
)  # stages whose code changed little between the two: a clock
NUMBERS = ("wall_s", "cpu_s", "peak_mb", "disk_gb")
FITTED = ("sweep", "size", "stage", "number", "exponent", "points", "from", "to", "command")
SIZES = {"nation": "blocks", "people": "people", "cells": "cells", "queries": "queries", "cores": "cores"}
STAGES = {
    "read the spec": "#9aa5b1",
    "plan": "#6b7280",
    "count": "#3c7a3f",
    "measure": "#b4552d",
    "read measurements": "#c98a4b",
    "gls": "#1f5673",
    "bluedown, up": "#4b86a8",
    "bluedown, down": "#2e3f7f",
    "write": "#7d3c7a",
    "report": "#000000",
}

Row = Mapping[str, str]


def exponent(points: Sequence[tuple[float, float]]) -> float:
    """b of the least-squares fit log y = log c + b log x."""
    x, y = np.log(np.array(points)).T
    return float(np.polyfit(x, y, 1)[0])


def series(rows: Sequence[Row], sweep: str, stage: str, number: str) -> list[tuple[float, float]]:
    """The sizes of a sweep, rising, and a number of one stage."""
    chosen = (row for row in rows if (row["sweep"], row["stage"]) == (sweep, stage))
    return sorted((float(row[SIZES[sweep]]), float(row[number])) for row in chosen)


def largest(rows: Sequence[Row], sweep: str, stage: str, number: str) -> list[tuple[float, float]]:
    """A series; of the nation the three largest shares, for smaller ones are mostly what every run has."""
    return series(rows, sweep, stage, number)[-3 if sweep == "nation" else 0 :]


def fits(rows: Sequence[Row]) -> Iterator[dict[str, object]]:
    """b of each number of each stage over each sweep; none where a number was 0, or there is one size."""
    for sweep, size in SIZES.items():
        for stage in (*STAGES, TOTAL):
            for number in NUMBERS:
                points = largest(rows, sweep, stage, number)
                if len(points) < 2 or min(value for _, value in points) <= 0:
                    continue
                told = (sweep, size, stage, number, f"{exponent(points):.3f}", len(points))
                ends = (f"{points[0][0]:.0f}", f"{points[-1][0]:.0f}", "python -m benchmarks.scale SCRATCH")
                yield dict(zip(FITTED, (*told, *ends), strict=True))


@dataclass(frozen=True)
class Growth:
    """A number at the largest share, and what it would be for the nation.

    Attributes:
        size, value: of the largest share.
        b: of the fit over the three largest.
        nation: the value, and for each block beyond what one more block cost between the two largest shares; or as b
            has it, where b is above 1 and that is more.
    """

    size: float
    value: float
    b: float
    nation: float

    @classmethod
    def of(cls, points: Sequence[tuple[float, float]]) -> Growth:
        """From sizes and values, sizes rising."""
        (fewer, less), (size, value) = points[-2:]
        b = exponent([(x, max(y, 1e-3)) for x, y in points])
        straight = value + max(0.0, (value - less) / (size - fewer)) * (NATION - size)
        return cls(size, value, b, max(straight, value * (NATION / size) ** b if b > 1 else 0.0))


def growth_table(rows: Sequence[Row]) -> str:
    """A line a stage: seconds of CPU, exponent, the nation's; and peaks."""
    lines = [
        "| stage | CPU s | wall s | peak MB | disk GB | b | nation, CPU s | nation, peak GB |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    total = 0.0
    for stage in STAGES:
        found = Growth.of(largest(rows, "nation", stage, "cpu_s"))
        wall, peak, disk = (
            series(rows, "nation", stage, name)[-1][1] for name in ("wall_s", "peak_mb", "disk_gb")
        )
        total += found.nation
        told = f"{found.value:.1f} | {wall:.1f} | {peak:,.0f} | {disk:.2f} | {found.b:.2f}"
        most = Growth.of(largest(rows, "nation", stage, "peak_mb")).nation / 1000
        lines.append(f"| {stage} | {told} | {found.nation:,.0f} | {most:.1f} |")
    cpu, wall, peak, disk = (
        series(rows, "nation", TOTAL, name)[-1][1] for name in ("cpu_s", "wall_s", *NUMBERS[2:])
    )
    b = exponent(largest(rows, "nation", TOTAL, "cpu_s"))
    told = f"{cpu:.1f} | {wall:.1f} | {peak:,.0f} | {disk:.2f} | {b:.2f}"
    lines.append(f"| **together** | {told} | **{total:,.0f}** | **{nation_memory(rows):.1f}** |")
    return "\n".join(lines)


def whole_table(rows: Sequence[Row]) -> str:
    """A line a stage of the nation itself: what it took, and what the smaller shares had led to expect."""
    lines = [
        "| stage | wall s | CPU s | expected | resident GB | disk GB |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    whole = {row["stage"]: row for row in rows if row["sweep"] == WHOLE}
    for stage in (*STAGES, TOTAL):
        wall, cpu, peak, disk = (float(whole[stage][name]) for name in NUMBERS)
        expected = nation_seconds(rows, STAGES if stage == TOTAL else [stage])
        told = (f"{wall:,.0f}", f"{cpu:,.0f}", f"{expected:,.0f}", f"{peak / 1000:.1f}", f"{disk:.1f}")
        name = "**together**" if stage == TOTAL else stage
        lines.append(f"| {name} | " + " | ".join(told) + " |")
    return "\n".join(lines)


def again_table(rows: Sequence[Row]) -> str:
    """A line a stage of the nation run again: the clock then and now, and now on the cores of then."""
    then, now = (
        {row["stage"]: float(row["wall_s"]) for row in rows if row["sweep"] == sweep}
        for sweep in (WHOLE, AGAIN)
    )
    slower = slower_cores(rows)
    lines = ["| stage | wall s then | now, slower cores | now, on the cores of then |", "|---|--:|--:|--:|"]
    for stage in (*STAGES, TOTAL):
        name = "**together**" if stage == TOTAL else stage
        lines.append(f"| {name} | {then[stage]:,.0f} | {now[stage]:,.0f} | {now[stage] / slower:,.0f} |")
    return "\n".join(lines)


def slower_cores(rows: Sequence[Row]) -> float:
    """How many times as long stages took whose code changed little, when the nation was run again."""
    then, now = (
        sum(float(row["wall_s"]) for row in rows if row["sweep"] == sweep and row["stage"] in AS_BEFORE)
        for sweep in (WHOLE, AGAIN)
    )
    return now / then


def nation_seconds(rows: Sequence[Row], stages: Iterable[str] = STAGES) -> float:
    """Seconds of CPU that the nation would take."""
    return sum(Growth.of(largest(rows, "nation", stage, "cpu_s")).nation for stage in stages)


def nation_memory(rows: Sequence[Row]) -> float:
    """GB: the largest peak of any stage that the nation would have."""
    return max(Growth.of(largest(rows, "nation", stage, "peak_mb")).nation for stage in STAGES) / 1000


def sweep_table(rows: Sequence[Row]) -> str:
    """A line a sweep: sizes, seconds of CPU, peaks and disk of the whole run, with the exponents."""
    lines = [
        "| what varies | sizes | CPU s | b | peak MB | b | disk GB | b |",
        "|---|---|---|--:|---|--:|---|--:|",
    ]
    for sweep, size in SIZES.items():
        sizes = [f"{x:,.0f}" for x, _ in series(rows, sweep, TOTAL, "cpu_s")]
        if len(sizes) < 2:
            continue
        cells = []
        for number, digits in (("cpu_s", 1), ("peak_mb", 0), ("disk_gb", 2)):
            points = series(rows, sweep, TOTAL, number)
            cells.append(", ".join(f"{y:,.{digits}f}" for _, y in points))
            cells.append(f"{exponent(largest(rows, sweep, TOTAL, number)):.2f}")
        lines.append(f"| {size} | {', '.join(sizes)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def groups_sentence() -> str:
    """How detailed groups grow, from the rows of ``benchmarks.detailed``."""
    with GROUPS.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["geography"] == "nation" and row["t1_rows"]]
    people = [(float(row["people"]), float(row["after_start_cpu_s"])) for row in rows][-3:]
    groups = [(float(row["t1_rows"]), float(row["after_start_cpu_s"])) for row in rows][-3:]
    return (
        f"Detailed groups are counted by another path ([Detailed groups](detailed.md)): over its three largest nations "
        f"the CPU time of `tabulae detailed run` grows as people^{exponent(people):.2f}, and as published "
        f"groups^{exponent(groups):.2f} (`benchmarks/results/detailed.csv`). People grow tenfold there "
        "while the groups published hardly do, so that the second exponent is mostly of people."
    )


def kills_part() -> str:
    """What runs that were killed at random moments took together with what finished them."""
    with KILLS.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    table = "\n".join(
        f"| {float(row['share']):g} | {float(row['whole_cpu_s']):.0f} | {float(row['at']):.0%} | {row['step']} | "
        f"{row['killed_cpu_s']} | {row['resumed_cpu_s']} | {float(row['again']):.0%} |"
        for row in rows
    )
    stored = [
        float(row["again"]) for row in rows if row["step"] in ("estimating or writing", "tables written")
    ]
    return f"""## Killed and resumed

A run that is killed is resumed with the work of finished stages: of a long depth of the spine with up to seven eighths
of it, and after its last file was written with all of it. Killed while it counts or draws, it has nothing that may be
kept: counts are confidential, and noise of which a part is lost is lost whole. It counts and draws again; if it was
charged, it pays again.

`python -m benchmarks.kill_nation SCRATCH` makes a share of the nation, kills it at random moments and finishes it;
seconds are of CPU:

| share | one run, s | killed at | while | s until then | and to finish | together, beyond one run |
|--:|--:|--:|---|--:|--:|--:|
{table}

Once the measurements are stored, a kill costs at most {max(stored):.0%} here, a second start and reading the spec again
among it. Before, it costs all that was done, and less is not possible: counts may not be stored, nor may noise be drawn
twice for one charge."""


def checked_part() -> str:
    """How often the nation's release breaks a rule, and by how much it is wrong, from ``benchmarks.state_check``."""
    with CHECKED.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    rules = [int(row["number"]) for row in rows if row["what"] == "broken"]
    errors = {row["of"]: float(row["number"]) for row in rows if row["what"] != "broken"}
    file = CHECKED.relative_to(ROOT)
    return f"""`python -m benchmarks.state_check RELEASE SPEC --csv {file}` counts by SQL of its
own, over microdata, tables and public files, how often each of {len(rules)} rules is broken: **{sum(rules)} times**
in a release of the nation between the two. The people of an area were wrong by so many, mean over areas; tracts and
block groups are those of the file, which are off the spine:

| {" | ".join(errors)} |
|{"--:|" * len(errors)}
| {" | ".join(f"{error:,.2f}" for error in errors.values())} |"""


def page(rows: Sequence[Row]) -> str:
    """The page, as Markdown."""
    last = max((row for row in rows if row["sweep"] == "nation"), key=lambda row: int(row["blocks"]))
    share = float(last["share"])
    whole = next(row for row in rows if (row["sweep"], row["stage"]) == (WHOLE, TOTAL))
    minutes = float(whole["wall_s"]) / 60
    verdict = "below" if minutes < GOAL else "above"
    given = float(whole["command"].rsplit(maxsplit=1)[1].removesuffix("GB"))
    most = float(whole["peak_mb"]) / 1000
    last_run = next(row for row in rows if (row["sweep"], row["stage"]) == (AGAIN, TOTAL))
    again, slower = (
        [float(last_run["wall_s"]) / 60, float(last_run["cpu_s"]), float(last_run["peak_mb"]) / 1000],
        slower_cores(rows),
    )
    kept = (
        f"no stage had more than {most:.1f} GB"
        if most <= given
        else f"counting had {most:.1f} GB at its peak"
    )
    return f"""# Scale

How long a release of areas takes, how much memory and disk, and what grows with what. Every run below is the whole of
`tabulae run`: read the spec and its public files, plan, count, charge, draw, estimate by `gls` and `bluedown`, write
tables and microdata, make the report.

## The nation

`benchmarks/nation.py` draws people state by state, each state from a seed of its own, and never holds more than one:
{PEOPLE:,} people in {BLOCKS:,} blocks with living quarters and {BLOCKS // 25:,} without, 51 states, 3,143 counties, and
the 2020 schema of 2,016 cells with its eleven query groups, bounds, tribal areas split off and each state's total
exact: `examples/redistricting.toml`, for more than one state. So the nation and the ten states below are run; the
smaller shares and the sweeps were run before states could be both split and exact: states were whole, counties split,
and block groups keyed by town and place alike. No record is of anybody. What is published of a block is its total and
its microdata, which hold every count; the table of 28 cells goes down to block groups, for one of blocks would have 230
million rows.

`{whole["command"]}` runs it whole, {int(whole["people"]):,} people in
{int(whole["blocks"]):,} blocks, on two cores and 24 GB of memory, alone:

{whole_table(rows)}

**The nation takes {minutes:.0f} minutes**, {verdict} the goal of {GOAL}; to generate its records took 3 more. Seconds
of CPU are of all threads. *Expected* is the CPU time that smaller shares had led to expect, by the rule below. Resident
is the largest resident set during a stage, with pages of mapped files, which the system takes back when it needs them.
The disk is what lies beside the input, most of it estimates that are given back when the release is in place. Before
states could be both split and exact, when all measurements were read back, a nation took 3,119 s of CPU and 21.3 GB.
Now it is {float(whole["cpu_s"]):,.0f} s, where 2,000 are the goal: most of it is to divide, measure and write. One core
bounds the report and most of what is written, both what is before.

**Run again** with later code, alone, on cores half as fast, it took {again[0]:.0f} minutes, {again[1]:,.0f} s of CPU
and {again[2]:.1f} GB. Three stages whose code changed little ({"; ".join(AS_BEFORE)}) took {slower:.2f} times as long
there as above. By that clock the whole would take **{again[0] / slower:.0f} minutes** and {again[1] / slower:,.0f} s of
CPU on the cores of the first run:

{again_table(rows)}

With 14 GB the records are counted in 34 parts, each a range of the codes of blocks. A part takes 4 s of CPU. It would
take six times as long if DuckDB divided a grouping by row groups, as newer ones do: then it reads all of a file for
each, whatever the range lets it skip. That is switched off.

`tabulae check RELEASE` found of that second release that every number follows from its measurements and every exact
sum holds. It took **10.5 GB**, within the goal of 12, and 28 minutes alone on the slower cores, 2,396 s of CPU: by the
same clock **{28.03 / slower:.0f} minutes** on the cores of the first run, where 15 are the goal.

{checked_part()}

What is resident grows with blocks: the codes, limits and shares of areas, and what is made of them, up to 1.4 kB a
block, by which `tabulae plan` states 12.4 GB for the nation besides counting. With `--memory` counting has what that
leaves, and groups the records in parts: of the {given:.0f} GB that were given, {kept}. Without `--memory` DuckDB
would take most of what is free, beside the rest: a machine of 24 GB needs it. Less than 13.1 GB are refused for a
nation before anything is charged.

**Ten states**, smaller ones, by both estimators: 331,000 people and 8,424 blocks each with tribal branches, each
state's total exact. `python -m benchmarks.nation FOLDER --share 0.01 --states 10`, `tabulae run FOLDER/nation.toml
--out RELEASE`, and `python -m benchmarks.state_check RELEASE FOLDER/nation.toml`, which counts by SQL over microdata,
tables and public files how often each of 27 rules is broken, and how far the people of an area are from the true
number, mean over areas. Block groups are those of the file, which are off the spine.

| estimator | people | blocks | CPU s | MB | rules | broken | state | county | tract | block group | block |
|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|
| `bluedown` | 3,310,000 | 84,240 | 23 | 937 | 27 | 0 | 0.00 | 2.13 | 1.65 | 17.47 | 6.84 |
| `topdown` | 3,310,000 | 84,240 | 26 | 909 | 27 | 0 | 0.00 | 1.40 | 2.07 | 18.58 | 6.85 |

## Smaller shares

`python -m benchmarks.scale SCRATCH --share {share:g}` runs {share:g} of the nation, {int(last["people"]):,} people in
{int(last["blocks"]):,} blocks, and `python -m benchmarks.scale SCRATCH` smaller shares and the other sweeps. Each is a
process of its own. The largest share ran alone, smaller ones beside other work: wall clocks of sweeps mean little.

{growth_table(rows)}

*b* is the exponent of CPU seconds against blocks over the three largest shares: below 1 where a fixed part still
shows, 1 where time is linear. The last columns are the extrapolation to all {NATION:,} blocks: what the largest share
took, and for each further block what one more block cost between the two largest shares; where *b* is above 1 and gives
more, what *b* gives.

![CPU time by stage, peak memory and disk against blocks](scale.svg)

## Since the smaller runs

Smaller shares read all measurements back before they estimated. Now they are taken in while they are stored. A fiftieth
of the nation (6,620,000 people, 168,480 blocks), before and now, one after the other on the same two cores:

| stage | CPU s before | now | resident MB before | now |
|---|--:|--:|--:|--:|
| measure | 9.8 | 10.4 | 879 | 980 |
| read measurements | 6.9 | 0.4 | 1,475 | 797 |
| all others | 32.4 | 29.3 | 1,124 | 1,065 |
| **together** | 49.1 | 40.0 | 1,475 | 1,065 |

At a tenth of the nation the largest resident set is 2,245 MB, where it was 3,405.

{kills_part()}

## Before and now

Between the two runs of the nation above divisions were made of fewer calls, tables were written while the next were
made, columns of the spec were read as words and their numbers, measurements were encoded otherwise, and tables of
totals came to read no more than they add up. `python -m benchmarks.scale_run SPEC OUT` of a tenth of the nation, by the
code of the first run and by that of the second, one after the other on slow cores:

| stage | wall s before | now | CPU s before | now |
|---|--:|--:|--:|--:|
| read the spec | 13.0 | 7.6 | 13.2 | 7.8 |
| count | 18.1 | 17.4 | 29.8 | 29.7 |
| measure | 64.0 | 45.5 | 85.1 | 70.2 |
| gls, and bluedown up | 21.7 | 25.2 | 21.1 | 24.5 |
| bluedown, down | 82.3 | 67.1 | 123.0 | 111.8 |
| write | 53.7 | 29.8 | 65.6 | 45.9 |
| report | 16.8 | 12.2 | 17.8 | 12.9 |
| **together** | 274.1 | 208.9 | 360.1 | 307.2 |

Least squares are as they were: the cores were slower in the second run. So by these a nation takes at most 0.76 of what
it took, {0.762 * minutes:.0f} minutes on the cores of the first run.

The first nation of all took 42 minutes and 21.3 GB. Beside its code, a fiftieth each in turns on one machine, the code
between those two runs took 0.72 of the time, though areas are split and states exact now, and were neither then.

## What grows with what

{sweep_table(rows)}

The row of cores is CPU time, which should not depend on them. People cost counting and microdata alone: measuring and
estimating do not see how many there are. Cells cost measuring, the estimates and disk; queries cost measuring and the
reading of measurements. Exponents of every stage are in `benchmarks/results/scale_fit.csv`, measured numbers in
`benchmarks/results/scale.csv`.

{groups_sentence()}

## Where the time goes

* **Counting** is DuckDB's: values become codes and alike records one row with a count, with all cores, out of core.
* **Measuring** is one stream: exact noise for about 830 answers a block, written as Parquet in a thread beside it
  (values by differences, names by dictionaries, places of cells byte by byte: 1 byte an answer). Runs of one number
  are left to zstd: to look each number up, or to subtract it from the next, took half of the writing.
* **Dividing** takes five compiled calls for a block group, one for the nearest counts and four for their rounding.
  Threads take turns of 0.2 ms: with the 5 ms that are usual two of them were slower than one.
* **Measurements are not read back** where they were just written: what they say is added up beside the writing, for
  both estimates. `check` reads every row and verifies it against the plan, the next row group while this one is used.
* **Leaves of `gls` are not stored**: they follow from their parents' estimates and their own measurements, and are
  made again where a table needs them. A table that adds up all symmetric attributes needs one contrast of each leaf,
  and its variance one small matrix of several: of blocks whose total alone is published that is a third of the time.
* **Estimates in files** are asked for by the vectors that a table needs next, before it needs them. Read when it does,
  each brings the megabytes around it: a run of the nation read 176 GB so, and reads 114; its check 153, and 98.
* **Tables** of an area add up the fewest units of the spine that make it; all tables of one type of area are made from
  one look at them, while those before are written.
* **The published spec is read back** before a release has its name, so that a folder that no reader could open is never
  published. A column is read as its words, each once, and the number of the word of each row: words are sorted,
  checked and compared once, however many rows have them.

## Where to find it

* Code: `tabulae.products.areas.product`, `tabulae.products.areas.spine.hierarchy`,
  `tabulae.products.areas.count`, `tabulae.products.areas.plan`, `tabulae.products.areas.turns`,
  `tabulae.sources.memory`; [the estimators](topdown.md#memory-and-disk).
* Numbers: `python -m benchmarks.scale SCRATCH`, the same with `--share 0.1`, and with `--share 1 --memory 20GB`;
  `python -m benchmarks.kill_nation SCRATCH`;
  `pytest tests/benchmarks/test_scale.py`.
* Papers: Abowd et al., *The 2020 Census Disclosure Avoidance System TopDown Algorithm* (2022), whose run has
  this size.
"""


def _nation_disk(rows: Sequence[Row]) -> float:
    """GB beside the input that the nation would have at its peak."""
    return Growth.of(largest(rows, "nation", TOTAL, "disk_gb")).nation


def draw(rows: Sequence[Row], path: Path) -> None:
    """Seconds of CPU by stage against blocks, and the peak memory and disk of the whole."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "tabulae"
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 4.2), layout="constrained")
    for stage, colour in STAGES.items():
        points = np.array(series(rows, "nation", stage, "cpu_s"))
        left.loglog(*points.T, color=colour, marker="o", ms=3, lw=1.2, label=stage)
    left.loglog(*np.array(series(rows, "nation", TOTAL, "cpu_s")).T, color="black", ls="--", label="all")
    left.loglog(
        [NATION], [nation_seconds(rows)], color="black", marker="x", ls="", label="nation, extrapolated"
    )
    left.set_ylabel("CPU seconds")
    left.legend(frameon=False, fontsize=7, ncols=2)
    whole = next(row for row in rows if (row["sweep"], row["stage"]) == (WHOLE, TOTAL))
    left.loglog([NATION], [float(whole["cpu_s"])], color="black", marker="o", ls="", label="nation, measured")
    for number, unit, colour, name, nation in (
        ("peak_mb", 1e-3, "#1f5673", "peak memory", nation_memory(rows)),
        ("disk_gb", 1.0, "#b4552d", "disk beside the input", _nation_disk(rows)),
    ):
        blocks, values = np.array(series(rows, "nation", TOTAL, number)).T
        right.loglog(blocks, unit * values, color=colour, marker="o", ms=3, label=name)
        right.loglog([NATION], [nation], color=colour, marker="x", ls="")
        right.loglog([NATION], [unit * float(whole[number])], color=colour, marker="o", ls="")
    right.set_ylabel("GB")
    right.legend(frameon=False, fontsize=8)
    for axes in (left, right):
        axes.set_xlabel("blocks")
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def write_page(rows: Sequence[Row]) -> None:
    """Write the fits, the figure and the page."""
    record(FITS, FITTED, list(fits(rows)), force=True)
    draw(rows, FIGURE)
    PAGE.write_text(page(rows), encoding="utf-8")
    print(growth_table(rows), sweep_table(rows), sep="\n\n")
