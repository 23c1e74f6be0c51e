"""Derived figures with their intervals: laws, a dense oracle, and coverage by simulation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.domain.test_figure_sql import exact_value
from tests.each import each
from tests.estimation.overlapping import large

import tabulae as tb
from tabulae.domain import Domain
from tabulae.domain.figure import table_difference
from tabulae.domain.figure_sql import figure_from_sql
from tabulae.errors import NotEstimable, Unsupported
from tabulae.estimation import Estimate
from tabulae.estimation.statistics import box_ratios, crossing, fieller, woodruff
from tabulae.products.tables.figures import PublishedFigure, publish_figure

FALSE_ALARM = 1e-6
GROUPS, AGES = 120, 12
TOWNS = Domain({"town": GROUPS, "age": range(AGES), "sex": ["F", "M"]})
RATIO = "SELECT town, 100.0 * COUNT(*) FILTER (WHERE age < 4) / COUNT(*) FROM t GROUP BY town"
MEDIAN = "SELECT town, MEDIAN(age) FROM t GROUP BY town"
SPREAD = "SELECT town, VAR_POP(age) FROM t GROUP BY town"
BETWEEN = "SELECT town, PERCENTILE_CONT({}) WITHIN GROUP (ORDER BY age) FROM t GROUP BY town"


def towns(seed: int, size: float) -> np.ndarray:
    """Counts of people in towns from tiny to large."""
    draw = np.random.default_rng(seed)
    scale = size * np.geomspace(0.02, 1.0, GROUPS)[:, None, None]
    return draw.poisson(scale * draw.uniform(0.2, 1.8, (GROUPS, AGES, 2))).ravel().astype(np.int64)


def measured(
    x: np.ndarray, domain: Domain, seed: int, budget: Any = "1/10", method: str = "identity", **options: Any
) -> Estimate:
    """Estimates from noise that is drawn for the test."""
    noise = "laplace" if isinstance(budget, tb.PureDP) else "gaussian"
    loss = budget if isinstance(budget, tb.PureDP) else tb.ZCDP(budget)
    every = tb.Workload.marginals(domain, ways=[len(domain.names)])
    strategy = tb.select(options.pop("workload", every), noise=noise, method=method)
    m = tb.measure(x, strategy, loss, source=tb.noise.Insecure(seed))
    return tb.estimate(m, **options)


def shown(found: Estimate, sql: str, level: float = 0.9) -> PublishedFigure:
    return publish_figure(found, figure_from_sql(found.domain, "f", sql), level)


# laws --------------------------------------------------------------------------------------------


def test_a_count_as_a_figure_is_the_table() -> None:
    found = measured(towns(1, 9.0), TOWNS, 1)
    table = tb.Table("f", {"town": tb.Identity(GROUPS)})
    plain = shown(found, "SELECT town, COUNT(*) FROM t GROUP BY town")
    half = found.half_widths_of(table, 0.9).values
    np.testing.assert_array_equal(plain.estimate, found.answer_of(table))
    np.testing.assert_allclose(plain.ci_high - plain.estimate, half)
    np.testing.assert_allclose(plain.std_error**2, found.variance_of(table))
    scaled = shown(found, "SELECT town, 2.5 - COUNT(*) / 4 FROM t GROUP BY town")
    np.testing.assert_allclose(scaled.estimate, 2.5 - plain.estimate / 4)
    np.testing.assert_allclose(
        (scaled.ci_low, scaled.ci_high), 2.5 - np.array((plain.ci_high, plain.ci_low)) / 4
    )


def test_figures_of_noiseless_counts_are_exact_values() -> None:
    x = towns(2, 30.0)
    found = measured(x, TOWNS, 2, budget=10**7)
    cases = (RATIO, MEDIAN, SPREAD, BETWEEN.format("0.5"), BETWEEN.format("0.9"))
    for sql in (*cases, "SELECT town, AVG(age) - 2 * COUNT(*) FROM t GROUP BY town"):
        figure = figure_from_sql(TOWNS, "f", sql)
        made, truth = publish_figure(found, figure, 0.95), exact_value(figure, TOWNS, x.astype(float))
        known = made.status != "Q"
        np.testing.assert_array_equal(known, np.isfinite(truth))
        np.testing.assert_allclose(made.estimate[known], truth[known], rtol=1e-6)


def test_percent_and_share_are_one_figure_in_other_units() -> None:
    found = measured(towns(3, 50.0), TOWNS, 3)
    percent, share = shown(found, RATIO), shown(found, RATIO.replace("100.0 *", "-1 *"))
    np.testing.assert_array_equal(percent.status, share.status)
    np.testing.assert_allclose(percent.estimate, -100 * share.estimate)
    np.testing.assert_allclose(percent.ci_low, -100 * share.ci_high)
    np.testing.assert_allclose(percent.std_error, 100 * share.std_error)


def test_what_may_be_nobody_is_not_estimable() -> None:
    x = np.zeros(TOWNS.size, dtype=np.int64)
    found = measured(x, TOWNS, 4)
    for sql in (RATIO, MEDIAN):
        made = shown(found, sql, 0.999)
        assert (made.status == "Q").mean() > 0.9
        rows = made.arrow()
        assert rows["estimate"].null_count == rows["ci_low"].null_count == (made.status == "Q").sum()


# dense oracles -----------------------------------------------------------------------------------


def dense_moments(found: Estimate, above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """Covariance (2, 2) of two answers, by the normal equations written out."""
    strategy = found.measurement.strategy
    laws = found.measurement.laws
    p = np.zeros((strategy.domain.size,) * 2)
    for block, law in zip(strategy.blocks, laws, strict=True):
        a = block.query.dense() * 2.0**-block.exponent
        p += a.T @ a / (law.variance_of_law * 4.0**-block.exponent)
    both = np.stack([above, below])
    return both @ np.linalg.pinv(p) @ both.T


@pytest.mark.parametrize("method", ["identity", "residual", "kron"])
def test_ratio_intervals_against_a_scan_of_all_ratios(method: str) -> None:
    domain = Domain({"sex": 2, "age": range(6)})
    x = np.array([40, 61, 35, 80, 20, 44, 31, 70, 26, 90, 11, 52])
    found = measured(x, domain, 5, budget="1/50", method=method)
    made = shown(found, "SELECT sex, COUNT(*) FILTER (WHERE age < 2) / COUNT(*) FROM t GROUP BY sex", 0.95)
    young, all_ages = (np.kron(np.eye(2), row) for row in ([[1, 1, 0, 0, 0, 0]], [[1] * 6]))
    answers = found.answer_of(tb.Table("x", {"sex": tb.Identity(2), "age": tb.Identity(6)}))
    scan = np.linspace(-1, 2, 300_001)
    for i in range(2):
        moments = dense_moments(found, young[i], all_ages[i])
        a, b = young[i] @ answers, all_ages[i] @ answers
        deviation = np.sqrt(moments[0, 0] - 2 * scan * moments[0, 1] + scan**2 * moments[1, 1])
        assert made.std_error[i] == pytest.approx(np.interp(a / b, scan, deviation) / b, rel=1e-6)
        kept = np.abs(a - scan * b) <= stats.norm.ppf(0.975) * deviation
        width = scan[kept][-1] - scan[kept][0]
        assert made.ci_low[i] <= scan[kept][0] + 1e-5
        assert made.ci_high[i] >= scan[kept][-1] - 1e-5
        assert made.ci_high[i] - made.ci_low[i] <= 1.08 * width


def test_fieller_sets_solve_their_inequality() -> None:
    draw = np.random.default_rng(6)
    a, b = draw.normal(0, 40, 4000), draw.normal(0, 40, 4000)
    above, below = draw.uniform(0, 90, 4000), draw.uniform(0, 90, 4000)
    covariance = draw.uniform(-1, 1, 4000) * np.sqrt(above * below)
    found = fieller(a, b, above, below, covariance, 1.7)
    assert found.bounded.any()
    assert not found.bounded.all()
    k = found.bounded
    for end in (found.low[k], found.high[k]):
        left = (a[k] - end * b[k]) ** 2
        right = 1.7**2 * (above[k] - 2 * end * covariance[k] + end**2 * below[k])
        np.testing.assert_allclose(left, right, rtol=1e-6, atol=1e-6 * right.max())
    assert (b[~k] ** 2 <= 1.7**2 * below[~k]).all()


def test_box_sets_solve_their_inequality() -> None:
    draw = np.random.default_rng(7)
    a, b, wide_a, wide_b = draw.normal(0, 40, 4000), draw.normal(0, 40, 4000), *draw.uniform(0, 60, (2, 4000))
    found = box_ratios(a, b, wide_a, wide_b)
    k = found.bounded
    np.testing.assert_array_equal(k, np.abs(b) > wide_b)
    assert (found.low[k] <= a[k] / b[k]).all()
    assert (a[k] / b[k] <= found.high[k]).all()
    for end in (found.low[k], found.high[k]):
        np.testing.assert_allclose(np.abs(a[k] - end * b[k]), wide_a[k] + np.abs(end) * wide_b[k], rtol=1e-6)


def test_the_estimated_quantile_is_where_the_isotonic_sequence_crosses() -> None:
    draw = np.random.default_rng(8)
    t = draw.integers(-9, 10, (500, 9)).astype(float) + np.linspace(-8, 8, 9)
    t[:, -1] = np.abs(t[:, -1]) + 1
    for row, place in zip(t, crossing(t), strict=True):
        level = [max(min(row[i : j + 1].mean() for j in range(m, 9)) for i in range(m + 1)) for m in range(9)]
        assert place == next(m for m, value in enumerate(level) if value >= -1e-12)
    found = woodruff(t, draw.uniform(0, 5, t.shape))
    assert (found.low <= found.estimate).all()
    assert (found.estimate <= found.high).all()


# coverage ----------------------------------------------------------------------------------------


def misses(sql: str, size: float, level: float, runs: int, **options: Any) -> tuple[int, int, int]:
    """How often intervals miss the truth, of how many rows with an interval, and how many rows have none."""
    missed = known = unknown = 0
    for seed in range(runs):
        x = towns(seed, size)
        found = measured(x, TOWNS, 1000 + seed, **options)
        figure = figure_from_sql(TOWNS, "f", sql)
        made, truth = publish_figure(found, figure, level), exact_value(figure, TOWNS, x.astype(float))
        there = (made.status != "Q") & np.isfinite(truth)
        slack = 1e-9 * (1 + np.abs(truth))
        outside = (truth < made.ci_low - slack) | (truth > made.ci_high + slack)
        missed, known = missed + int(outside[there].sum()), known + int(there.sum())
        unknown += int((made.status == "Q").sum())
    return missed, known, unknown


CASES: list[tuple[str, float, dict[str, Any]]] = [
    (RATIO, 4.0, {}),
    (RATIO, 60.0, {"budget": "1/2"}),
    (RATIO, 30.0, {"budget": tb.PureDP(1)}),
    (RATIO, 4.0, {"budget": 4}),
    (MEDIAN, 4.0, {}),
    (MEDIAN, 30.0, {"budget": "1/2"}),
    (MEDIAN, 30.0, {"budget": tb.PureDP(1)}),
    (BETWEEN.format("0.5"), 9.0, {}),
    (SPREAD, 9.0, {}),
    (SPREAD, 9.0, {"method": "non-negative"}),
    ("SELECT town, VAR_POP(age) - AVG(age) FROM t GROUP BY town", 30.0, {"budget": tb.PureDP(1)}),
    (BETWEEN.format("0.1"), 30.0, {"budget": "1/2"}),
    (BETWEEN.format("0.9"), 9.0, {"method": "non-negative"}),
    ("SELECT town, QUANTILE(age, 0.9) FROM t GROUP BY town", 9.0, {}),
    ("SELECT town, AVG(age) FROM t GROUP BY town", 9.0, {}),
    (
        "SELECT town, AVG(age) FILTER (WHERE sex = 'F') - AVG(age) FILTER (WHERE sex = 'M') FROM t GROUP BY town",
        30.0,
        {},
    ),
    ("SELECT town, 100 * COUNT(*) / SUM(COUNT(*)) OVER () FROM t GROUP BY town", 9.0, {}),
    (RATIO, 9.0, {"method": "non-negative"}),
    (MEDIAN, 9.0, {"method": "non-negative"}),
]


# each kind of figure once, with each kind of budget and of estimate
SOME = [CASES[i] for i in (0, 2, 4, 8, 10, 12, 15, 16)]


@each(("sql", "size", "options"), SOME)
def test_coverage_is_at_least_the_level(sql: str, size: float, options: dict[str, Any]) -> None:
    covered(sql, size, options, runs=6)


@pytest.mark.long
@each(("sql", "size", "options"), CASES)
def test_coverage_of_every_figure_is_at_least_the_level(
    sql: str, size: float, options: dict[str, Any]
) -> None:
    covered(sql, size, options)


def covered(sql: str, size: float, options: dict[str, Any], runs: int = 12) -> None:
    """Misses are no more than a binomial count of that chance has, but with probability FALSE_ALARM.

    Errors of different towns are independent, except of shares of the total, which hardly depend on it.
    """
    level = 0.9
    options = dict(options)
    estimator = options.pop("method", "least-squares")
    missed, known, unknown = 0, 0, 0
    if estimator == "least-squares":
        missed, known, unknown = misses(sql, size, level, runs, **options)
    else:
        for seed in range(runs // 3):
            x = towns(seed, size)
            strategy = tb.select(tb.Workload.marginals(TOWNS, ways=[3]), method="identity")
            m = tb.measure(x, strategy, tb.ZCDP("1/10"), source=tb.noise.Insecure(seed))
            figure = figure_from_sql(TOWNS, "f", sql)
            made = publish_figure(tb.estimate(m, method=estimator), figure, level)
            truth = exact_value(figure, TOWNS, x.astype(float))
            there = (made.status != "Q") & np.isfinite(truth)
            missed += int(((truth < made.ci_low - 1e-9) | (truth > made.ci_high + 1e-9))[there].sum())
            known += int(there.sum())
            assert (made.estimate[there] >= made.ci_low[there]).all()
            assert (made.estimate[there] <= made.ci_high[there]).all()
    assert known > 100
    # Rows without an interval are chances to miss that were not taken: they count as rows.
    assert missed <= stats.binom.isf(FALSE_ALARM, known + unknown, 1 - level)


def test_intervals_of_ratios_are_little_wider_than_need_be() -> None:
    missed, known, _ = misses(RATIO, 600.0, 0.9, 12, budget="1/100")
    assert missed >= stats.binom.ppf(FALSE_ALARM, known, 0.075)


# methods and structures --------------------------------------------------------------------------


def test_exact_counts_make_exact_figures() -> None:
    domain = Domain({"sex": ["F", "M"], "age": range(5)})
    x = np.array([9, 8, 7, 6, 5, 5, 6, 7, 8, 9])
    by_sex = tb.Table("sex", {"sex": tb.Identity(2)})
    workload = tb.Workload.marginals(domain, ways=[2])
    strategy = tb.select(workload, method="identity", invariants=[by_sex])
    found = tb.estimate(tb.measure(x, strategy, tb.ZCDP("1/20"), source=tb.noise.Insecure(9)))
    share = shown(found, "SELECT 100 * COUNT(*) FILTER (WHERE sex = 'F') / COUNT(*) FROM t")
    assert (share.status.tolist(), share.estimate.tolist(), share.std_error.tolist()) == (
        ["E"],
        [50.0],
        [0.0],
    )
    assert share.ci_low.tolist() == share.ci_high.tolist() == [50.0]
    young = "COUNT(*) FILTER (WHERE age < 2)"
    part = shown(found, f"SELECT sex, {young} / COUNT(*) FROM t GROUP BY sex")
    count = shown(found, f"SELECT sex, {young} FROM t GROUP BY sex")
    assert part.status.tolist() == ["A", "A"]
    np.testing.assert_allclose(part.ci_low, count.ci_low / 35)
    np.testing.assert_allclose(part.std_error, count.std_error / 35)
    median = shown(found, "SELECT sex, MEDIAN(age) FROM t GROUP BY sex", 0.9999)
    assert (median.status == "A").all()
    assert (median.ci_low <= 2).all()
    assert (median.ci_high >= 2).all()


@pytest.mark.long
def test_bounded_variances_have_wider_intervals_that_are_said_to_be() -> None:
    """432,000 cells and overlapping groups, whose variances are only bounded: every interval holds the truth."""
    workload, strategy = large()
    people = np.random.default_rng(2).integers(0, [48, 30, 25, 12], (20000, 4))
    counts = tb.Counts.from_records(workload.domain, people)
    found = tb.estimate(tb.measure(counts, strategy, tb.ZCDP("1/2"), source=tb.noise.Insecure(3)))
    assert found.information.route == "iterative"
    sql = "SELECT a3, 100 * COUNT(*) FILTER (WHERE a2 < 10) / COUNT(*) FROM t GROUP BY a3"
    made = shown(found, sql, 1 - 1e-7)
    young = people[:, 2] < 10
    truth = [100 * young[people[:, 3] == k].mean() for k in range(12)]
    known = made.status == "A"
    assert made.conservative == known.sum() > 6
    assert ((made.ci_low <= truth) & (truth <= made.ci_high))[known].all()
    assert (made.std_error * 4 < made.ci_high - made.ci_low)[known].all()


def test_what_is_not_measured_is_refused() -> None:
    domain = Domain({"sex": 2, "age": range(4)})
    found = measured(
        np.arange(8), domain, 1, workload=tb.Workload.marginals(domain, ways=[1]), method="residual"
    )
    for sql in ("SELECT sex, AVG(age) FROM t GROUP BY sex", "SELECT sex, MEDIAN(age) FROM t GROUP BY sex"):
        with pytest.raises(NotEstimable):
            shown(found, sql)
    assert shown(found, "SELECT AVG(age) FROM t").status.tolist() == ["A"]


def test_tables_that_do_not_agree_have_no_figures() -> None:
    found = measured(np.arange(8), Domain({"sex": 2, "age": range(4)}), 1)
    local = tb.estimate(found.measurement, method="local-least-squares")
    with pytest.raises(Unsupported, match="agree with each other"):
        shown(local, "SELECT AVG(age) FROM t")


@pytest.mark.long
def test_figures_of_a_domain_beyond_memory() -> None:
    """Thirty attributes, 10^18 cells: only what the statement names is formed."""
    domain = Domain({f"x{i}": range(4) for i in range(30)})
    workload = tb.Workload.marginals(domain, ways=[1, 2])
    strategy = tb.select(workload, method="residual")
    codes = np.random.default_rng(2).integers(0, 4, (500, 30))
    m = tb.measure(tb.Counts.from_records(domain, codes), strategy, tb.ZCDP(50), source=tb.noise.Insecure(1))
    made = shown(tb.estimate(m), "SELECT x3, AVG(x7) FROM t GROUP BY x3", 0.95)
    truth = [codes[codes[:, 3] == k, 7].mean() for k in range(4)]
    assert np.abs(made.estimate - truth).max() < 8 * made.std_error.max()
    assert (made.status == "A").all()


def differences() -> Iterator[tuple[tb.Table, tb.Table]]:
    one = tb.Table("x", {"sex": tb.Identity(2)})
    yield one, one
    yield one, tb.Table("y", {"sex": tb.Dense([[1, 1], [1, 1]])})


def test_differences_of_tables() -> None:
    domain = Domain({"sex": 2})
    for a, b in differences():
        rest = table_difference(a, b)
        dense = a.operator(domain).dense() - b.operator(domain).dense()
        assert np.array_equal(np.zeros_like(dense) if rest is None else rest.operator(domain).dense(), dense)
