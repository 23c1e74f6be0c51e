"""The statistical bound: below the truth at its confidence, above a promise that is broken."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from tests.each import each

import tabulae as tb
from tabulae.audit._audit import log_ratio, lower_bound
from tabulae.privacy import DiscreteGaussian, DiscreteLaplace

RUNS = 20_000


def _shifted(law: object, ratio: object, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The statistic of one count, 0 or 1, under a law."""
    noise = law.sample((2, RUNS), tb.noise.Insecure(seed))  # type: ignore[attr-defined]
    return ratio(noise[0]), ratio(noise[1] + 1)  # type: ignore[operator]


@each("seed", range(10))
def test_the_bound_stays_below_a_promise_that_is_tight(seed: int) -> None:
    """The discrete Laplace mechanism at epsilon 1 is no better than epsilon 1; ten false alarms in 10^6."""
    bound = lower_bound(
        *_shifted(DiscreteLaplace(1), lambda y: np.abs(y) - np.abs(y - 1.0), seed), tb.PureDP(1), None
    )
    assert 0.8 < bound.epsilon <= 1
    assert bound.promised == 1
    assert bound.runs == 2 * RUNS


@pytest.mark.parametrize("factor", [0.9, 0.5])
def test_a_broken_pure_promise_is_refuted(factor: float) -> None:
    law = DiscreteLaplace(factor)
    bound = lower_bound(*_shifted(law, lambda y: np.abs(y) - np.abs(y - 1.0), 1), tb.PureDP("3/4"), None)
    assert 0.75 < bound.epsilon <= 1 / factor


def test_zcdp_is_compared_at_a_delta_where_it_tells() -> None:
    true = lower_bound(
        *_shifted(DiscreteGaussian(1), lambda y: y - 0.5, 3), tb.ZCDP("1/2"), Fraction(1, 10**10)
    )
    assert true.delta > 0
    assert true.promised == tb.ZCDP("1/2").epsilon(true.delta)
    assert 0 < true.epsilon < true.promised
    half = lower_bound(*_shifted(DiscreteGaussian("1/4"), lambda y: y - 0.5, 3), tb.ZCDP("1/2"), None)
    assert half.epsilon > half.promised


def test_approximate_promises_are_compared_at_their_delta() -> None:
    loss = tb.ApproxDP(1, "1e-6")
    bound = lower_bound(*_shifted(DiscreteLaplace(1), lambda y: np.abs(y) - np.abs(y - 1.0), 4), loss, None)
    assert bound.delta == Fraction(1, 10**6)
    assert bound.epsilon <= bound.promised == 1


def test_equal_inputs_prove_nothing() -> None:
    same = np.zeros(1000)
    assert lower_bound(same, same, tb.PureDP(1), None).epsilon == 0.0


def test_the_ratio_is_that_of_the_laws() -> None:
    """Against mass functions: of the discrete Laplace exactly, of the discrete Gaussian exactly."""
    x = np.array([3, 0, 5, 1])
    for noise, loss in (("laplace", tb.PureDP(1)), ("gaussian", tb.ZCDP("1/2"))):
        strategy = tb.select(tb.Workload.of(tb.Prefix(4)), noise=noise, method="workload")  # type: ignore[arg-type]
        m = tb.measure(x, strategy, loss, source=tb.noise.Insecure(5))
        change = [b.query.dense()[:, 1] for b in strategy.blocks]
        truth = [b.query @ x for b in strategy.blocks]
        found = log_ratio(m, truth, change)
        by_hand = 0.0
        for law, y, t, d in zip(m.laws, m.block_values(), truth, change, strict=True):
            for here, there in ((y - t - d, 1), (y - t, -1)):
                scale = float(law.parameter)
                size = np.abs(here) / scale if noise == "laplace" else here.astype(float) ** 2 / (2 * scale)
                by_hand -= there * float(size.sum())
        assert math.isclose(found, by_hand, rel_tol=1e-9, abs_tol=1e-9)
