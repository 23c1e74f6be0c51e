"""What a bound on the rows of each unit leaves out: sensitivities, the division of the budget, and the noise."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import product

import ibis
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tabulae as tb
from tabulae.audit.checks import gaussian_delta
from tabulae.errors import InvalidArgument
from tabulae.measurement import Measurement
from tabulae.privacy import LeftOut, NoiseLaw, PrivacyLoss
from tabulae.products.tables.count import Counts
from tabulae.sources.source import ID
from tabulae.sources.units import UnitRule, left_out

KEY = bytes(range(32))
MOST = 5  # records of a unit, of which none is a unit that is not there
BUDGETS = {
    "pure": (tb.PureDP("7/3"), "laplace"),
    "zcdp": (tb.ZCDP("1/2"), "gaussian"),
    "approx gaussian": (tb.ApproxDP("7/3", "1e-6"), "gaussian"),
    "approx laplace": (tb.ApproxDP("7/3", "1e-6"), "laplace"),
}
budgets = pytest.mark.parametrize("name", BUDGETS)


def _counted(sizes: tuple[int, ...], k: int, c: int) -> tuple[int, int]:
    """What the engine counts, of units with so many records each, in two cells."""
    parts = [(f"u{i}", half) for i, n in enumerate(sizes) for half in (n // 2, n - n // 2) if half]
    columns = {ID: [unit for unit, _ in parts], "people": [n for _, n in parts]}
    table = ibis.memtable(columns, schema={ID: "string", "people": "int64"})
    found = left_out(table, UnitRule("id", k, KEY, c)).to_pyarrow().to_pylist()
    assert len(found) == 1
    return found[0]["units"], found[0]["rows"]


@pytest.mark.parametrize(
    ("k", "c"), [(1, 3), (2, 2), *(pytest.param(*case, marks=pytest.mark.long) for case in ((1, 1), (3, 9)))]
)
def test_every_pair_of_neighbours(k: int, c: int) -> None:
    """Two units of up to 5 records each: the engine counts as by hand, and no neighbour is further than declared."""
    counts = {sizes: _counted(sizes, k, c) for sizes in product(range(MOST + 1), repeat=2)}
    for sizes, found in counts.items():
        assert found == (sum(n > k for n in sizes), sum(min(max(n - k, 0), c) for n in sizes))
    for absent in (True, False):  # one unit less or more, or one in place of another
        moved = [
            [abs(a - b) for a, b in zip(counts[one], counts[other], strict=True)]
            for one, other in product(counts, counts)
            if one[0] == other[0] and (min(one[1], other[1]) == 0) == absent
        ]
        most = [max(column) for column in zip(*moved, strict=True)]
        declared = LeftOut(Fraction(1, 2), c).sensitivities
        assert most == [1, min(c, MOST - k)]
        assert all(a <= b for a, b in zip(most, declared, strict=True))
        assert most[1] == declared[1] or c > MOST - k


@budgets
@given(share=st.fractions(Fraction(1, 10**6), 1 - Fraction(1, 10**6)), c=st.integers(1, 10**6))
def test_tables_and_both_counts_cost_the_budget(name: str, share: Fraction, c: int) -> None:
    budget, noise = BUDGETS[name]
    rule = LeftOut(share, c)
    tables, half = rule.of_tables(budget), budget.scaled(share / 2)
    sums = {key: tables.parameters[key] + 2 * half.parameters[key] for key in budget.parameters}
    assert sums == budget.parameters
    assert rule.whole(tables) == budget
    assert [_cost(law.parameter, most, noise, half) for law, most in _pairs(rule, budget, noise)] == [
        True,
        True,
    ]


def _pairs(rule: LeftOut, budget: PrivacyLoss, noise: str) -> Iterator[tuple[NoiseLaw, int]]:
    yield from zip(rule.laws(budget, noise), (1, rule.at_most), strict=True)


def _cost(parameter: Fraction, most: int, noise: str, half: PrivacyLoss) -> bool:
    """Whether a change of ``most`` costs ``half`` under noise of this parameter: exactly, where it has a formula."""
    if noise == "laplace":
        return most / parameter == half.amount
    if isinstance(half, tb.ZCDP):
        return most**2 / (2 * parameter) == half.amount
    close = 1 - Fraction(1, 10**9)
    kept = gaussian_delta(half.amount, parameter / most**2) <= half.parameters["delta"]
    return kept and gaussian_delta(half.amount, close * parameter / most**2) > half.parameters["delta"]


def test_divergence_of_neighbours_is_within_the_share() -> None:
    """Renyi divergence of both counts, summed over the integers: of order a at most a times the share of rho."""
    budget, rule = tb.ZCDP(2), LeftOut(Fraction(1, 3), 3)
    for order in (1.5, 2.0, 8.0):
        total = 0.0
        for law, moved in zip(rule.laws(budget, "gaussian"), rule.sensitivities, strict=True):
            k = np.arange(-200, 201)
            log_p = -(k**2) / (2 * float(law.parameter))
            log_p -= np.log(np.exp(log_p).sum())
            log_q = np.interp(k - moved, k, log_p, left=-np.inf)
            total += np.log(np.exp(order * log_p[moved:] + (1 - order) * log_q[moved:]).sum()) / (order - 1)
        allowed = order * float(budget.amount * rule.share)
        assert 0.9 * allowed < total <= allowed * (1 + 1e-12)


def test_ratio_of_outcomes_is_within_the_share() -> None:
    """Pure: of all outcomes of both counts the largest log ratio between neighbours is the share of epsilon."""
    budget, rule = tb.PureDP(1), LeftOut(Fraction(1, 4), 5)
    k, total = np.arange(-400, 401), 0.0
    for law, moved in zip(rule.laws(budget, "laplace"), rule.sensitivities, strict=True):
        log_p = -np.abs(k) / float(law.parameter)
        total += np.abs(log_p[moved:] - log_p[:-moved]).max()
    assert total == pytest.approx(float(budget.amount * rule.share), rel=1e-12)


STRATEGY = tb.select(tb.Workload.of(tb.Identity(2)), method="identity")
TRUTH = np.array([40, 300])


def _measured(source: tb.noise.RandomBits, rule: LeftOut) -> Measurement:
    counts = Counts.from_cells(STRATEGY.domain, [[0], [1]], [5, 7], TRUTH)
    return tb.measure(counts, STRATEGY, tb.ZCDP("1/2"), source=source, left_out=rule)


def _refuted(draws: np.ndarray, scales: np.ndarray, truth: np.ndarray) -> bool:
    """Whether means, variances or the covariance of n draws are off; by chance each is so less than once in 10^6."""
    scaled = (draws - truth) / scales
    n, far = len(scaled), 5.1
    means = np.abs(scaled.mean(axis=0)) * n**0.5
    variances = np.abs((scaled**2).mean(axis=0) - 1) * (n / 2) ** 0.5
    together = abs((scaled[:, 0] * scaled[:, 1]).mean()) * n**0.5
    return bool(max(means.max(), variances.max(), together) > far)


def test_the_noise_is_of_the_laws() -> None:
    """2,500 rehearsals with a fixed seed. The rate of false alarms is below 3e-6; scales of 0.9 and 1.1 are refuted."""
    rule, source = LeftOut(Fraction(1, 5), 7), tb.noise.Insecure(5)
    told = [_measured(source, rule).left_out for _ in range(2500)]
    draws = np.array([each.values for each in told if each is not None])
    assert told[0] is not None
    scales = np.sqrt([law.variance_of_law for law in told[0].laws])
    assert scales.tolist() == pytest.approx([10**0.5, 490**0.5], rel=1e-9)
    assert not _refuted(draws, scales, TRUTH)
    for wrong in (0.9, 1.1):
        assert _refuted(draws, wrong * scales, TRUTH)
    assert _refuted(draws, scales, TRUTH + np.array([1, 0]))
    assert _refuted(draws[:, :1].repeat(2, axis=1), scales[[0, 0]], TRUTH[[0, 0]]), "one draw for both"


def test_the_tables_have_the_rest_of_the_budget() -> None:
    made = _measured(tb.noise.Insecure(1), LeftOut(Fraction(1, 5), 7))
    assert made.budget == tb.ZCDP("1/2")
    assert made.laws == STRATEGY.laws(tb.ZCDP("2/5"), "add-remove", 1)


def test_counts_that_do_not_know_it_are_refused_before_a_charge(tmp_path) -> None:
    ledger = tb.Ledger.create(tmp_path / "ledger.db", 1, "zcdp")
    with pytest.raises(InvalidArgument, match="do not know how many rows were left out"):
        tb.measure(
            np.array([1, 2]), STRATEGY, tb.ZCDP("1/2"), ledger=ledger, left_out=LeftOut(Fraction(1, 2), 3)
        )
    assert ledger.spent == 0


@pytest.mark.parametrize(("share", "c"), [("0", 1), ("1", 1), ("3/2", 1), ("-1/2", 1), ("1/2", 0)])
def test_rules_out_of_range(share: str, c: int) -> None:
    with pytest.raises(InvalidArgument, match="must"):
        LeftOut(Fraction(share), c)
