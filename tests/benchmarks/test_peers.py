"""Every workload of the peers' papers is written, its proven bound holds, and none of their numbers is missed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from benchmarks.hdmm_paper import PAPER
from benchmarks.peers_paper import PRINTED, SMASHER, STOPPED
from tests.each import each

import tabulae as tb
from benchmarks import hdmm, peers, workloads
from tabulae.strategy.bounds.lower import unit_bound

ALIKE = [name for name in peers.CASES if name.startswith("[")]
FAST = [
    name
    for name in ALIKE
    if name.startswith("[10]") and not name.startswith(("[10]^50", "[10]^100", "[10]^40, mixed"))
]


def _queries(name: str) -> int:
    """How many there are, by counting."""
    size, _, kind = name.partition(", ")
    n, d = (int(part.strip("[]")) for part in size.split("^"))
    two, three = math.comb(d, 2), math.comb(d, 3)
    both = {
        "marginals": (n, n**2),
        "prefixes": (n, n**2),
        "ranges": (n * (n + 1) // 2, (n * (n + 1) // 2) ** 2),
        "circular ranges": (n**2, n**4),
        "a + b <= c": (n, 2 * n - 1),
        "|a - b| <= c": (n, n),
        "random rows": (3 * n, 3 * n**2),
    }
    if kind == "mixed":
        return d * n * (n + 1) // 2 + two * (2 * n - 1) + three * n**3
    if kind == "marginals up to 3-way":
        return d * n + two * n**2 + three * n**3
    return d * both[kind][0] + two * both[kind][1]


@each("name", FAST)
def test_workloads_of_attributes_alike_are_written(name: str) -> None:
    assert peers.CASES[name].make().queries == _queries(name)


@pytest.mark.long
@each("name", [name for name in ALIKE if name not in FAST])
def test_more_workloads_are_written(name: str) -> None:
    assert peers.CASES[name].make().queries == _queries(name)


@each(
    ("name", "tables", "queries"),
    [
        ("CPS prefixes, 3-way", 10, 72_556),
        ("Adult prefixes, up to 3-way", 470, 21_043_262),
        ("Loans prefixes, 2-way", 66, 118_974),
        ("CPS, a + b <= c", 15, 805),
        ("CPS, |a - b| <= c", 15, 731),
        ("Adult, a + b <= c", 105, 99_830),
    ],
)
def test_workloads_of_real_data_are_written(name: str, tables: int, queries: int) -> None:
    workload = peers.CASES[name].make()
    assert (len(workload.tables), workload.queries) == (tables, queries)


def test_circular_ranges_are_all_of_them_once() -> None:
    """A range of every length from every cell: each cell is in as many as it has places in them."""
    matrix = np.asarray(workloads.circular(4).dense())
    assert sorted(matrix.sum(axis=1)) == sorted([1, 2, 3, 4] * 4)
    assert (matrix.sum(axis=0) == 1 + 2 + 3 + 4).all()
    assert len({tuple(row) for row in matrix}) == 4 * 3 + 1  # the whole circle is one set, four times
    assert all((abs(np.diff([*row, row[0]])) == 1).sum() in (0, 2) for row in matrix)


def test_recorded_marginals_are_the_printed_optimum() -> None:
    rows, printed = peers.read(), {name: value for (name, _), value in PRINTED.items() if "marginals" in name}
    assert {name: round(float(rows[name]["rmse"]), 3) for name in printed} == printed
    assert all(float(rows[name]["gap"]) < 1e-8 for name in printed)


SMALL = (
    "CPS marginals, up to 3-way", "CPS prefixes, 1-way", "[10]^5, marginals up to 3-way", "example-15, laplace",
    "prefix-64, gaussian",
)  # fmt: skip


@each("name", SMALL)
def test_a_recorded_row_is_measured_again(name: str) -> None:
    again, recorded = peers.measured(name), peers.read()[name]
    assert {again[c] or "" for c in ("source", "workload")} == {recorded[c] for c in ("source", "workload")}
    for column in ("rmse", "bound", "level"):
        if recorded[column]:
            assert float(again[column]) == pytest.approx(float(recorded[column]), rel=1e-3)


def test_no_recorded_error_is_below_its_bound_or_above_a_peer() -> None:
    rows = peers.read()
    assert [*rows] == [*peers.CASES, *peers.OF_HDMM]
    for name, row in rows.items():
        if row["rmse"]:
            assert not row["bound"] or float(row["rmse"]) >= float(row["bound"]) * (1 - 1e-9), name
            assert "more" not in peers.ahead(row) or name in BEHIND, name
    assert float(rows["permuted-4096, gaussian"]["hdmm"]) < float(
        rows["permuted-4096, gaussian"]["bound"]
    )  # a misprint


BEHIND = (
    "permuted-4096, gaussian",
    *(name for name in peers.CASES if "circular ranges" in name or "random rows" in name),
)
"""Of circular ranges and random rows the optimum is reached but for rounding; the page says the rest."""


def test_printed_numbers_belong_to_known_workloads() -> None:
    assert {name for name, _ in PRINTED} | {*SMASHER, *STOPPED} <= {*peers.CASES}
    assert {name for name, _ in PAPER} <= {*hdmm.WORKLOADS}


@each("pairs", (workloads.sums_up_to, workloads.at_most_apart))
def test_the_bound_of_attributes_alike_is_close_to_the_certified_optimum(pairs: workloads.Pairs) -> None:
    workload = workloads.up_to_pairs([tb.Prefix(3)] * 4, pairs)
    optimum, bound = unit_bound(workload, "dual"), unit_bound(workload, "product")
    assert optimum is not None
    assert bound is not None
    assert bound <= optimum * (1 + 1e-6)
    assert optimum < 1.018 * bound


def test_the_page_has_a_line_for_each_workload() -> None:
    rows = peers.read()
    tables = peers.page_tables(rows.values())
    assert sum(table.count("\n") - 1 for table in tables.values()) == sum(
        r["source"] != "here" for r in rows.values()
    )
    page = peers.PAGE.read_text(encoding="utf-8")
    assert all(table in page for table in tables.values())
