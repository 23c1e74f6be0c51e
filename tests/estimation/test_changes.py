"""Changes between two releases: exact laws by convolution, a dense oracle of errors, and coverage by simulation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.each import each
from tests.estimation.test_coverage import _pmf

import tabulae as tb
from tabulae.domain import Table
from tabulae.estimation import Estimate
from tabulae.estimation.changes import ChangeNumbers, CountsOfRelease, changes
from tabulae.linalg import Identity, Prefix

FALSE_ALARM = 1e-6
OPEN = 1e9
CELLS = Table("cells", {"x": Identity(40)})


def side(
    x: np.ndarray,
    loss: Any,
    seed: int,
    table: Table = CELLS,
    method: str = "identity",
    estimate: str = "least-squares",
    invariants: tuple[Table, ...] = (),
) -> CountsOfRelease:
    """All rows of a table, estimated from noise that is drawn for the test."""
    every = tb.Workload(tb.Domain({"x": len(x)}), [table])
    noise = "laplace" if isinstance(loss, tb.PureDP) else "gaussian"
    strategy = tb.select(every, noise=noise, method=method, invariants=invariants)
    drawn = tb.measure(x, strategy, loss, source=tb.noise.Insecure(seed))
    return of(tb.estimate(drawn, method=estimate), table)


def of(estimate: Estimate, table: Table) -> CountsOfRelease:
    exact = estimate.exact_of(table)
    error = np.where(exact, 0.0, np.sqrt(estimate.variance_of(table)))
    return CountsOfRelease(estimate, table, np.arange(len(exact)), estimate.answer_of(table), error, exact)


def half(found: ChangeNumbers) -> np.ndarray:
    return (found.change.ci_high - found.change.ci_low) / 2


def _covered(laws: list[Any], width: float) -> float:
    """P(|e_1 - e_0| <= width) by convolution of the two laws, which are symmetric."""
    pmf = np.convolve(*(_pmf(law)[2**14 - 1 - 2000 : 2**14 + 2000] for law in laws))
    middle = len(pmf) // 2
    reach = int(np.floor(width + 1e-9))
    return float(pmf[middle - reach : middle + reach + 1].sum())


LOSSES = [
    (tb.ZCDP("1/2"), tb.ZCDP("1/2")),
    (tb.ZCDP("1/50"), tb.ZCDP("1/50")),
    (tb.ZCDP("1/2"), tb.ZCDP("1/8")),
    (tb.ZCDP("1/50"), tb.ZCDP("1/18")),
    (tb.PureDP("1/2"), tb.PureDP("1/2")),
    (tb.PureDP(2), tb.PureDP("1/3")),
    (tb.ZCDP("1/18"), tb.PureDP("1/3")),
]


@each("losses", LOSSES, ids=str)
@each("level", [0.8, 0.95, 0.99])
def test_a_change_is_covered_by_the_exact_law_of_both_noises(losses: tuple[Any, Any], level: float) -> None:
    x = np.arange(40) + 100
    before, now = (side(x, loss, seed) for seed, loss in enumerate(losses))
    found = changes(before, now, level)
    laws = [each.estimate.measurement.laws[0] for each in (before, now)]
    width = float(half(found)[0])
    assert _covered(laws, width) >= level
    if type(losses[0]) is type(losses[1]):  # two integers: no smaller interval covers
        assert _covered(laws, width - 1) < level
        assert found.change.conservative == 0
    variance = sum(law.variance_of_law for law in laws)
    np.testing.assert_allclose(found.change.std_error, np.sqrt(variance))


def test_errors_of_changes_agree_with_dense_algebra() -> None:
    """Of two strategies over several noise variables: ``diag(W P_1^+ W' + W P_0^+ W')``."""
    table, x = Table("prefixes", {"x": Prefix(6)}), np.arange(6) + 50
    before = side(x, tb.ZCDP("1/8"), 1, table)
    now = side(x, tb.ZCDP("1/5"), 2, table, method="workload")
    variance = np.zeros(6)
    for each_side in (before, now):
        m, dense = each_side.estimate.measurement, np.zeros((6, 6))
        for block, law in zip(m.strategy.blocks, m.laws, strict=True):
            a = block.query.dense() * 2.0**-block.exponent
            dense += a.T @ a / (law.variance_of_law * 4.0**-block.exponent)
        w = np.tril(np.ones((6, 6)))
        variance += np.diag(w @ np.linalg.inv(dense) @ w.T)
    found = changes(before, now, 0.95)
    np.testing.assert_allclose(found.change.std_error**2, variance, rtol=1e-9)
    np.testing.assert_allclose(found.change.estimate, now.published - before.published)
    assert (half(found) + 0.5 >= 1.9 * np.sqrt(variance)).all()


def simulated(losses: tuple[Any, Any], draws: int) -> tuple[np.ndarray, np.ndarray]:
    """Of all changes in counts and in per cent: intervals minus truth as (low, high), all draws together.

    What is not estimable has not missed; it counts as (-OPEN, OPEN).
    """
    x = np.array([20, 45, 100, 400] * 10)
    y = np.array([28, 40, 100, 900] * 10)
    ends: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    for seed in range(draws):
        before = side(x, losses[0], 2 * seed)
        found = changes(before, side(y, losses[1], 2 * seed + 1), 0.9)
        for kept, numbers, truth in zip(ends, found, (y - x, 100 * y / x - 100), strict=True):
            low = np.where(numbers.status == 2, -OPEN, numbers.ci_low - truth)
            kept.append(np.stack([low, np.where(numbers.status == 2, OPEN, numbers.ci_high - truth)]))
    return np.concatenate(ends[0], axis=1), np.concatenate(ends[1], axis=1)


def missed(ends: np.ndarray, shorter: float = 1.0) -> int:
    low, high = ends
    return int((np.abs(low + high) / 2 > shorter * (high - low) / 2 + 1e-9).sum())


@pytest.mark.parametrize(
    ("losses", "draws"),
    [((tb.ZCDP("1/50"), tb.ZCDP("1/32")), 60), ((tb.PureDP("1/2"), tb.PureDP("1/3")), 24)],
    ids=["gaussian", "laplace"],
)
def test_intervals_of_changes_cover(losses: tuple[Any, Any], draws: int) -> None:
    """False alarms 1e-6 for each count of misses: noise of cells and draws is independent.

    That the test rejects: intervals of changes in counts that are 20 % shorter fail it.
    """
    in_counts, in_percent = simulated(losses, draws)
    most = stats.binom.isf(FALSE_ALARM, in_counts.shape[1], 0.1)
    assert missed(in_counts) <= most
    assert missed(in_percent) <= most
    assert missed(in_counts, 0.8) > most
    assert (in_percent[1] < OPEN).mean() > 0.6


def test_intervals_of_non_negative_estimates_cover_and_hold_them() -> None:
    """False alarms 1e-6. The published change lies within its interval, whatever the bias."""
    x, y, misses, draws = np.arange(40) % 4, np.arange(40) % 7, np.zeros(2), 30
    for seed in range(draws):
        before, now = (
            side(counts, tb.ZCDP("1/18"), 2 * seed + i, estimate="non-negative")
            for i, counts in enumerate((x, y))
        )
        found = changes(before, now, 0.9)
        truth = (y - x, np.divide(100.0 * y, x, out=np.full(40, np.nan), where=x > 0) - 100)
        for k, (numbers, real) in enumerate(zip(found, truth, strict=True)):
            there = (numbers.status != 2) & np.isfinite(real)
            outside = (real < numbers.ci_low - 1e-6) | (real > numbers.ci_high + 1e-6)
            misses[k] += (outside & there).sum()
            kept = numbers.status != 2
            assert (numbers.ci_low[kept] <= numbers.estimate[kept] + 1e-9).all()
            assert (numbers.estimate[kept] <= numbers.ci_high[kept] + 1e-9).all()
            assert numbers.conservative == kept.sum()
    assert misses.max() <= stats.binom.isf(FALSE_ALARM, 40 * draws, 0.1)


def test_exact_counts_have_no_noise_of_their_own() -> None:
    """A total that is exact now: its change is as wide as the earlier release alone, and exact if both are."""
    total, x = Table("total", {"x": tb.Total(40)}), np.arange(40) + 10
    before = side(x, tb.ZCDP("1/8"), 1, total)
    cells = side(x, tb.ZCDP("1/8"), 2, CELLS, invariants=(total,))
    now = of(cells.estimate, total)
    found = changes(before, now, 0.95)
    assert half(found)[0] == pytest.approx(before.half_widths(0.95).values[0])
    both = changes(now, now, 0.95)
    assert both.change.status.tolist() == [1]
    assert (both.change.estimate.tolist(), both.percent.estimate.tolist()) == ([0.0], [0.0])
    assert both.percent.status.tolist() == [1]


def test_noise_of_both_releases_is_one_sum() -> None:
    """The change of two totals over 8 cells is a sum of 16 equal variables: no smaller interval covers."""
    total, x = Table("total", {"x": tb.Total(8)}), np.arange(8) + 10
    before, now = (
        of(side(x, tb.ZCDP("1/2"), i, Table("c", {"x": Identity(8)})).estimate, total) for i in (1, 2)
    )
    width = half(changes(before, now, 0.95))[0]
    pmf = np.ones(1)
    for _ in range(16):
        pmf = np.convolve(pmf, _pmf(now.laws[0])[2**14 - 1 - 40 : 2**14 + 40])
    reach, middle = int(np.floor(width + 1e-9)), len(pmf) // 2
    assert pmf[middle - reach : middle + reach + 1].sum() >= 0.95
    assert pmf[middle - reach + 1 : middle + reach].sum() < 0.95
