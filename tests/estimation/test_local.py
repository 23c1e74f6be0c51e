"""Local least squares against its formula, and against full least squares."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from tests.estimation.overlapping import OVERLAPPING, measured
from tests.strategy.instances import BUDGETS, DOMAIN, WORKLOADS, dense

import tabulae as tb
from tabulae.errors import InvalidArgument, NotEstimable
from tabulae.strategy import law_variances

CASES = list(itertools.product(OVERLAPPING, BUDGETS))


def _by_hand(m: tb.Measurement, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Answers and variances of one table from the block with the least total variance, by dense algebra."""
    best = None
    variances = law_variances(m.strategy, m.laws)
    for block, y, v in zip(m.strategy.blocks, m.answers(), variances, strict=True):
        a = np.asarray(block.query.dense(), float) * 2.0**-block.exponent
        z = w @ np.linalg.pinv(a)
        if np.abs(z @ a - w).max() < 1e-8:
            variance = v * np.square(z).sum(axis=1)
            if best is None or variance.sum() < best[1].sum() * (1 - 1e-12):
                best = z @ y, variance
    assert best is not None
    return best


@pytest.mark.parametrize(("workload", "noise"), CASES)
def test_each_table_is_answered_from_its_best_block(workload: str, noise: str) -> None:
    m, wl = measured(workload, noise), WORKLOADS[workload]
    est = tb.estimate(m, method="local-least-squares")
    answers, variances = est.answer(wl), est.variance(wl)
    for name, w in dense(wl).items():
        answer, variance = _by_hand(m, w)
        assert answers[name] == pytest.approx(answer, rel=1e-9, abs=1e-8)
        assert variances[name] == pytest.approx(variance, rel=1e-9)


@pytest.mark.parametrize(("workload", "noise"), CASES)
def test_full_least_squares_is_never_less_precise(workload: str, noise: str) -> None:
    """Gauss and Markov: query by query; and somewhere strictly, for these groups overlap."""
    m, wl = measured(workload, noise), WORKLOADS[workload]
    local = tb.estimate(m, method="local-least-squares").variance(wl)
    full = tb.estimate(m).variance(wl)
    for name in local:
        assert (full[name] <= local[name] * (1 + 1e-9)).all()
    assert any((full[name] < 0.99 * local[name]).any() for name in local)


@pytest.mark.parametrize("noise", BUDGETS)
def test_intervals_of_single_measurements_are_the_laws_own(noise: str) -> None:
    """A table that is measured as it is asked: the half-width is that of one noise variable."""
    m, wl = measured("marginals", noise), WORKLOADS["marginals"]
    widths = tb.estimate(m, method="local-least-squares").half_widths(wl)
    for block, law in zip(m.strategy.blocks, m.laws, strict=True):
        assert set(widths[block.name].ways) == {"exact"}
        assert widths[block.name].values == pytest.approx(law.margin("0.95"), rel=1e-6)


def test_a_disjunction_of_two_groups_adds_their_variances() -> None:
    """age < 3 or race = 2 is no sum that one margin answers; ages and races apart never answer it."""
    pairs = tb.Workload(DOMAIN, [tb.Table("age*race", {"age": tb.Identity(8), "race": tb.Identity(3)})])
    age, race = tb.Table("age", {"age": tb.Identity(8)}), tb.Table("race", {"race": tb.Identity(3)})
    margins = tb.Workload(DOMAIN, [age, race])
    query = tb.Workload.from_sql(DOMAIN, "SELECT COUNT(*) FROM t WHERE age < 3 OR race = 2")
    both = tb.select(tb.Workload(DOMAIN, [*pairs.tables, *margins.tables]), method="workload")
    x = np.arange(DOMAIN.size)
    est = tb.estimate(tb.measure(x, both, BUDGETS["gaussian"]), method="local-least-squares")
    assert (
        abs(est.answer(query)["q1"][0] - (dense(query)["q1"] @ x)[0])
        < 10 * est.variance(query)["q1"][0] ** 0.5
    )
    apart = tb.measure(x, tb.select(margins, method="workload"), BUDGETS["gaussian"])
    with pytest.raises(NotEstimable, match="no single group"):
        tb.estimate(apart, method="local-least-squares").answer(query)


def test_an_unknown_method_lists_those_there_are() -> None:
    m = measured("union", "gaussian")
    with pytest.raises(InvalidArgument, match="least-squares, local-least-squares, non-negative, pgm"):
        tb.estimate(m, method="ols")
