"""Means and sums beside the formulas of OpenDP and Tumult: benchmarks/results/values.csv.

python -m benchmarks.values            about a minute on one core

A mean's error is told as that of ``S - mu n``: its error times the size of its group. OpenDP 0.16 asks a length and a
clamped sum of every group, half of a group's budget each: ``(max(|a|, |b|)^2 + mu^2) v``. Tumult core 0.20 asks a count
and a sum of deviations from the middle of the range: ``(h^2 + (mu - m)^2) v``. v is the variance of a query of
sensitivity 1 at its share of the budget, which both divide evenly between all queries; where a table has several means
the peers are given its count once. Variances are the nominal ones throughout, neighbours those of add-remove.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from pathlib import Path

import numpy as np
from benchmarks.recorded import add_force, record

import tabulae as tb

RESULTS = Path(__file__).parent / "results/values.csv"
COLUMNS = ("case", "noise", "what", "value", "seconds")
BUDGETS = {"gaussian": tb.ZCDP("1/2"), "laplace": tb.PureDP(1)}
_COUNT = Fraction(1, 10)  # weight of a count beside a mean


@dataclass(frozen=True)
class Case:
    """Means of values over all margins of some attributes; each value has its range and about what its means are."""

    name: str
    sizes: Mapping[str, int]
    values: Mapping[str, tuple[int, int, int]]

    @property
    def domain(self) -> tb.Domain:
        ranges = {
            name: tb.Attribute.measured(name, low, high) for name, (low, high, _) in self.values.items()
        }
        return tb.Domain({**self.sizes, **ranges})

    @property
    def margins(self) -> list[dict[str, tb.LinearOperator]]:
        names = list(self.sizes)
        sets = (chosen for size in range(len(names) + 1) for chosen in combinations(names, size))
        return [{name: tb.Identity(self.sizes[name]) for name in chosen} for chosen in sets]

    def workload(self) -> tb.Workload:
        domain, tables = self.domain, []
        for factors in self.margins:
            name = "*".join(factors) or "all"
            tables.append(tb.Table(f"{name}, count", factors, _COUNT))
            for value, (low, high, near) in self.values.items():
                weight = Fraction(2, high - low)
                tables.append(tb.Table.sum(f"{name}, {value}", factors, domain[value], weight, near=near))
        return tb.Workload(domain, tables)

    def peers(self, noise: str) -> dict[str, dict[str, float]]:
        """Peer -> value -> the variance of its mean times the size of the group; "" is the count's."""
        shares = len(self.margins) * (1 + len(self.values))
        unit = shares if noise == "gaussian" else 2 * shares**2  # 1 / (2 rho), and 2 / epsilon^2, of a share
        found: dict[str, dict[str, float]] = {"OpenDP": {"": unit}, "Tumult": {"": unit}}
        for value, (low, high, mu) in self.values.items():
            m, h = (low + high) / 2, (high - low) / 2
            found["OpenDP"][value] = (max(abs(low), abs(high)) ** 2 + mu**2) * unit
            found["Tumult"][value] = (h**2 + (mu - m) ** 2) * unit
        return found


CASES = (
    Case("hierarchy", {"region": 8, "age": 10}, {"income": (0, 200, 60)}),
    Case("Adult", {"sex": 2, "education": 16, "income": 2}, {"age": (17, 90, 38), "hours": (1, 99, 40)}),
    Case("turnover", {"industry": 12, "size": 4}, {"turnover": (0, 1_000_000, 60_000)}),
)

Row = tuple[str, str, str, float, float]


def means(case: Case, noise: str) -> Iterator[Row]:
    """How much larger the root mean squared error of all means of a value is, of each peer at the same budget."""
    start, workload = time.process_time(), case.workload()
    strategy = tb.select(workload, noise=noise, time_limit=60)
    found = strategy.error(workload, BUDGETS[noise]).tables
    seconds = round(time.process_time() - start, 1)
    if strategy.certificate is not None:
        yield case.name, noise, "certificate", float(f"{strategy.certificate:.2g}"), seconds
    rows = {t.name: t.rows(workload.domain) for t in workload.tables}
    for peer, variances in case.peers(noise).items():
        for value in case.values:
            own = {name: found[name] for name in rows if name.endswith(f", {value}")}
            total = sum(rows[name] for name in own)
            ours = sum(rows[name] * error**2 for name, error in own.items()) / total
            ratio = math.sqrt(variances[value] / ours)
            yield case.name, noise, f"{peer} / ours, {value}, all {total} means", round(ratio, 3), seconds


def one_group(case: Case) -> Iterator[Row]:
    """How much larger Tumult's error of one mean alone is than the least of one group, t half ranges off the middle."""
    for value, (low, high, mu) in case.values.items():
        t = abs(2 * mu - low - high) / (high - low)
        ratio = math.sqrt(2 * (1 + t**2)) / (1 + t)
        yield case.name, "gaussian", f"Tumult / best, {value}, one mean", round(ratio, 3), 0.0


def targets(case: Case) -> Iterator[Row]:
    """The share of a peer's budget at which no table is worse than its, counts included."""
    workload = case.workload()
    for peer, variances in case.peers("gaussian").items():
        start = time.process_time()
        wanted = {}
        for table in workload.tables:
            value = table.name.rpartition(", ")[2]
            wanted[table.name] = math.sqrt(variances["" if value == "count" else value])
        aims = tb.Targets(rmse=wanted)
        strategy = tb.select(workload, objective=aims, time_limit=60)
        need = tb.smallest_budget(strategy, workload, aims, definition="zcdp")
        share = float(need.amount / BUDGETS["gaussian"].amount)
        yield (
            case.name,
            "gaussian",
            f"share of the budget of {peer}",
            round(share, 3),
            round(time.process_time() - start, 1),
        )


def coverage(size: int, budget: str, groups: int = 1000, runs: int = 10) -> Iterator[Row]:
    """Of means of groups of one size, of numbers that crowd at the lower end of their range; new noise each time."""
    start, value = time.process_time(), tb.Attribute.measured("v", 0, 100)
    domain, cells = tb.Domain({"g": groups, "v": value}), {"g": tb.Identity(groups)}
    counts, sums = tb.Table("n", cells), tb.Table.sum("s", cells, value, Fraction(1, 50))
    numbers = np.rint(100 * np.random.default_rng(size).uniform(size=(groups, size)) ** 2).astype(np.int64)
    codes = np.stack([np.repeat(np.arange(groups), size), numbers.ravel()], axis=1)
    records, truth = tb.Counts.from_records(domain, codes), numbers.mean(axis=1)
    strategy, source = tb.select(tb.Workload(domain, [counts, sums])), tb.noise.Insecure(size)
    holds, told = [], []
    for _ in range(runs):
        measured = tb.measure(records, strategy, tb.ZCDP(budget), source=source)
        found = tb.means(tb.estimate(measured), counts, value)
        low, high, status = (found[name].to_numpy() for name in ("ci_low", "ci_high", "obs_status"))
        told.append(status != "Q")
        holds.append(((low <= truth) & (truth <= high))[told[-1]])
    seconds = round(time.process_time() - start, 1)
    name, share = f"groups of {size}, rho {budget}", float(np.concatenate(holds).mean())
    yield name, "gaussian", "intervals that hold, of those that are told", round(share, 4), seconds
    yield name, "gaussian", "means that are told", round(float(np.mean(told)), 4), seconds


def rows() -> Iterator[Row]:
    for case in CASES:
        for noise in BUDGETS:
            yield from means(case, noise)
        yield from one_group(case)
    yield from targets(CASES[0])
    for size, budget in ((5, "2"), (20, "1/2"), (400, "1/2")):
        yield from coverage(size, budget)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    add_force(parser)
    made = []
    for row in rows():
        print(*row, sep=" | ", flush=True)
        made.append(row)
    record(RESULTS, COLUMNS, made, force=parser.parse_args().force)
