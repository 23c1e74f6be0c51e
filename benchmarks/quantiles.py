"""Nine quantiles beside SliceQuantiles of Imola et al. (arXiv 2505.13662): benchmarks/results/quantiles.csv.

python -m benchmarks.quantiles            about ten minutes on one core; with ../shared/data/adult.csv

SliceQuantiles moves the ranks that are asked for by the noise of continual counting, cuts a slice of records about
each, and takes the middle of each by the exponential mechanism. It is written down here from the paper, for neighbours
that add or remove a record, half of epsilon for the ranks, as its authors run it; it is given the number of records
for nothing. Where records share a number it needs them apart, so that each is moved by less than one, and what comes
back is rounded down. Ours is what `{ quantiles = [...] }` measures: Laplace noise by the strategy `opt0` for the
cumulative counts, and the place where the estimate crosses.

A quantile's error is how many records its rank is off: the distance of q n from the ranks that records with that number
have. The CSV has the mean, over draws, of the largest of the nine.
"""

from __future__ import annotations

import argparse
import csv
import math
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from benchmarks.recorded import add_force, record

import tabulae as tb
from tabulae.estimation.statistics import crossing

ROOT = Path(__file__).parents[1]
ADULT = ROOT.parent / "shared/data/adult.csv"
RESULTS = Path(__file__).parent / "results/quantiles.csv"
FIGURE = ROOT / "docs/methods/values.svg"
COLUMNS = ("case", "epsilon", "what", "error", "draws", "seconds")
SHARES = [k / 10 for k in range(1, 10)]
EPSILONS = ("1/2", "1", "5")
OURS, PEER = "tabulae", "SliceQuantiles"
_FAILURE = 0.05  # the chance that the exponential mechanism of some slice fails, as its authors set it


def cases() -> Iterator[tuple[str, int, np.ndarray]]:
    """Names, how many numbers there are from 0 on, and the records."""
    if ADULT.exists():
        with ADULT.open(newline="") as file:
            rows = list(csv.DictReader(file))
        yield "Adult, age", 85, np.array([int(row["age"]) for row in rows])
        yield "Adult, hours", 99, np.array([int(row["hours-per-week"]) for row in rows])
    draw = np.random.default_rng(1)
    yield "turnover", 1024, np.clip(draw.lognormal(4.5, 0.9, 50_000), 0, 1023).astype(np.int64)


def rank_errors(places: np.ndarray, numbers: np.ndarray, size: int) -> np.ndarray:
    """How far each rank that is asked for is from those of the records with a number, (quantiles,)."""
    upto = np.cumsum(np.bincount(numbers, minlength=size))
    wanted = np.floor(np.array(SHARES) * len(numbers))
    last, first = upto[places], upto[places] - np.bincount(numbers, minlength=size)[places]
    return np.maximum(0, np.maximum(wanted - last, first - wanted))


# SliceQuantiles ----------------------------------------------------------------------------------


def rank_noise(m: int, epsilon: float, rng: np.random.Generator) -> np.ndarray:
    """The noise of m moved ranks: of all prefixes of a tree of discrete Laplace variables.

    When a record comes, every rank above it moves by at most one: the two trees differ in (levels + 1) / 2 nodes. The
    number of children is the one of least variance.
    """

    def levels(children: int) -> int:
        return math.ceil(math.log(m, children) - 1e-9)

    def variance(children: int) -> float:
        return (levels(children) * (children - 1) + 2) * (levels(children) + 1) ** 2

    children = min(range(2, m + 1), key=variance)
    height = levels(children)
    ratio = math.exp(-2 * epsilon / (height + 1))
    noise = np.zeros(m)
    for level in range(height + 1):
        block = children ** (height - level)
        drawn = rng.geometric(1 - ratio, (2, m // block + 2)) - 1
        nodes = drawn[0] - drawn[1]
        for t in range(1, m + 1):
            end, start = t // block, (t // (block * children)) * children
            noise[t - 1] += nodes[start:end].sum() if level else nodes[:end].sum()
    return noise


def middle(inside: np.ndarray, low: float, high: float, epsilon: float, rng: np.random.Generator) -> float:
    """The median of rising numbers between two ends, by the exponential mechanism."""
    edges = np.concatenate([[low], np.clip(inside, low, high), [high]])
    score = -epsilon / 2 * np.abs(np.arange(len(edges) - 1) - len(inside) / 2)
    with np.errstate(divide="ignore"):
        score = score + np.log(np.diff(edges))
    score += rng.gumbel(size=score.size)
    at = int(np.argmax(score))
    return float(rng.uniform(edges[at], edges[at + 1]))


def slice_quantiles(numbers: np.ndarray, size: int, epsilon: float, rng: np.random.Generator) -> np.ndarray:
    """Nine quantiles of whole numbers from 0 to ``size - 1``."""
    apart, n, m = np.sort(numbers + rng.uniform(size=len(numbers))), len(numbers), len(SHARES)
    of_ranks, of_slices = epsilon / 2, epsilon / 4
    half = math.ceil(2 / of_slices * math.log(4 * m * size * n / _FAILURE) - 1)
    ranks = np.floor(np.array(SHARES) * n) + rank_noise(m, of_ranks, rng)
    slices = [apart[max(0, int(r) - half) : max(0, min(int(r) + half + 1, n))] for r in ranks]
    found = np.zeros(m)

    def between(first: int, last: int, low: float, high: float) -> None:
        if first < last:
            at = (first + last) // 2
            found[at] = middle(slices[at], low, high, of_slices, rng)
            between(first, at, low, found[at])
            between(at + 1, last, found[at], high)

    between(0, m, 0.0, float(size))
    return np.clip(np.floor(found), 0, size - 1).astype(np.int64)


# ours --------------------------------------------------------------------------------------------


def rows(name: str, size: int, numbers: np.ndarray, draws: int) -> Iterator[tuple]:
    domain = tb.Domain({"v": range(size)})
    upto = tb.Table("upto", {"v": tb.Prefix(size)})
    strategy = tb.select(tb.Workload(domain, [upto]), noise="laplace", method="opt0", time_limit=60)
    counts = tb.Counts.from_records(domain, numbers[:, None])
    for epsilon in EPSILONS:
        start, errors = time.process_time(), []
        for seed in range(draws):
            measured = tb.measure(counts, strategy, tb.PureDP(epsilon), source=tb.noise.Insecure(seed))
            below = tb.estimate(measured).answer_of(upto)
            t = below[None] - np.array(SHARES)[:, None] * below[-1]
            errors.append(rank_errors(crossing(t), numbers, size).max())
        yield name, epsilon, OURS, *_told(errors, start)
        start, rng = time.process_time(), np.random.default_rng(7)
        peers = [slice_quantiles(numbers, size, float(tb.PureDP(epsilon).amount), rng) for _ in range(draws)]
        yield name, epsilon, PEER, *_told([rank_errors(p, numbers, size).max() for p in peers], start)


def _told(errors: list[float], start: float) -> tuple[float, int, float]:
    return round(float(np.mean(errors)), 2), len(errors), round(time.process_time() - start, 1)


def draw() -> None:
    """Both comparisons of the page: means by the values.csv, quantiles by this benchmark's."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import NullFormatter

    mpl.rcParams.update({"svg.hashsalt": "tabulae", "svg.fonttype": "none", "font.size": 9})
    figure, (means, quantiles) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    ratios = [row for row in _read(RESULTS.with_name("values.csv")) if " / ours, " in row["what"]]
    names = list(dict.fromkeys((row["what"].split(", ")[1], row["noise"]) for row in ratios))
    for peer, marker in (("OpenDP", "s"), ("Tumult", "D")):
        of = {
            (r["what"].split(", ")[1], r["noise"]): float(r["value"])
            for r in ratios
            if r["what"].startswith(peer)
        }
        means.plot([of[name] for name in names], range(len(names)), marker, label=peer)
    means.axvline(1, color="black", linewidth=0.8)
    means.set_yticks(range(len(names)), [f"{value}, {noise}" for value, noise in names])
    means.set_xscale("log")
    means.set_xticks([1, 2, 5, 10], ["1", "2", "5", "10"])
    means.invert_yaxis()
    means.set_xlabel("standard error of means, ours = 1")
    means.legend(frameon=False)
    rows = _read(RESULTS)
    for name, colour in zip(dict.fromkeys(row["case"] for row in rows), ("C0", "C1", "C2"), strict=True):
        for what, style in ((OURS, "-o"), (PEER, "--x")):
            of = [row for row in rows if (row["case"], row["what"]) == (name, what)]
            x, y = [float(tb.PureDP(r["epsilon"]).amount) for r in of], [float(r["error"]) for r in of]
            quantiles.plot(x, y, style, color=colour, label=f"{name}, {what}")
    quantiles.set_xscale("log")
    quantiles.set_yscale("symlog", linthresh=1)
    quantiles.set_xticks([0.5, 1, 5], ["0.5", "1", "5"])
    quantiles.set_ylim(-0.15, 40)
    quantiles.set_yticks([0, 1, 10], ["0", "1", "10"])
    for axis in (means.xaxis, quantiles.xaxis):
        axis.set_minor_formatter(NullFormatter())
    quantiles.set_xlabel("epsilon")
    quantiles.set_ylabel("largest rank error of nine deciles")
    quantiles.legend(frameon=False, fontsize=7)
    figure.savefig(FIGURE, metadata={"Date": None})


def _read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--draw", action="store_true", help="only draw the figure of the page, from what is recorded"
    )
    parser.add_argument("--draws", type=int, default=200)
    add_force(parser)
    given = parser.parse_args()
    if given.draw:
        draw()
        raise SystemExit
    made = []
    for case in cases():
        for row in rows(*case, given.draws):
            print(*row, sep=" | ", flush=True)
            made.append(row)
    record(RESULTS, COLUMNS, made, size="draws", force=given.force)
