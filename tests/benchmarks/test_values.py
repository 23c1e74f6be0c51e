"""Means beside other systems' formulas: what the page says, computed again where that is quick, and read."""

from __future__ import annotations

import csv
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from benchmarks import values

PAGE = (Path(__file__).parents[2] / "docs/methods/values.md").read_text(encoding="utf-8")


@pytest.mark.long
def test_the_hierarchy_again() -> None:
    case, wanted = values.CASES[0], {"gaussian": (3.048, 1.572), "laplace": (6.1, 3.146)}
    for noise, ratios in wanted.items():
        found = {what.partition(" ")[0]: value for *_, what, value, _ in values.means(case, noise)}
        assert [found["OpenDP"], found["Tumult"]] == pytest.approx(ratios, rel=0.01)
        assert found.get("certificate", 0) < 0.01


def test_peers_variances_are_those_of_one_group_where_there_is_one() -> None:
    """At rho = 1/2 and a half of it each, as both systems print their scales for the range [0, 100]."""
    one = values.Case("one", {}, {"v": (0, 100, 50)})
    assert math.sqrt(one.peers("gaussian")["OpenDP"]["v"]) == pytest.approx(158.1, abs=0.05)
    assert math.sqrt(one.peers("gaussian")["Tumult"]["v"]) == pytest.approx(70.7, abs=0.05)


def test_turnover_gains_by_its_margins_alone_and_no_strategy_gains_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of one mean the least is searched for, over how count and deviations divide the budget; counts hardly matter."""
    t, w = 0.88, np.linspace(0.001, 0.999, 999)
    least = float(np.min(t**2 / w + 1 / (1 - w)))
    (alone,) = (value for *_, value, _ in values.one_group(values.CASES[2]))
    assert alone == pytest.approx(math.sqrt(2 * (1 + t**2) / least), abs=1e-3)
    assert alone < 1.003
    for weight in (Fraction(1, 10), Fraction(1, 10**6)):
        monkeypatch.setattr(values, "_COUNT", weight)
        found = {what: value for *_, what, value, _ in values.means(values.CASES[2], "gaussian")}
        assert found["certificate"] < 1e-6
        assert found["Tumult / ours, turnover, all 65 means"] == pytest.approx(1.464, rel=1e-3)


def test_the_targets_again() -> None:
    shares = [value for *_, value, _ in values.targets(values.CASES[0])]
    assert shares == pytest.approx([0.501, 0.809], abs=0.005)


def test_intervals_of_means_hold_in_small_groups() -> None:
    """Of 400 groups of five: fewer than 90 % holding would be 4.6 standard deviations below 95 %."""
    holds, told = (value for *_, value, _ in values.coverage(5, "2", groups=400, runs=1))
    assert holds >= 0.9
    assert told == 1


def test_what_is_recorded_stands_on_the_page() -> None:
    with values.RESULTS.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    shown = [row for row in rows if "/ " in row["what"] or "share" in row["what"] or "hold" in row["what"]]
    assert len(shown) == 25
    for row in shown:
        assert f"{float(row['value']):.3g}" in PAGE or f"{100 * float(row['value']):.1f} %" in PAGE, row
