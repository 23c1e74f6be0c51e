"""How often a detective can be right, against the mechanisms that the definitions were made for."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri

from tabulae.errors import InvalidArgument
from tabulae.report import PromiseView
from tabulae.report.page import detection_bound

shares = st.floats(0.001, 0.9)


def zcdp(rho: float) -> PromiseView:
    return PromiseView("zcdp", Fraction(rho), "add-remove", "person")


def pure(epsilon: float) -> PromiseView:
    return PromiseView("pure", Fraction(epsilon), "add-remove", "person")


@given(st.floats(0.001, 8), shares)
def test_zcdp_covers_the_gaussian_mechanism(rho, alarm):
    """The best test between N(0, 1) and N(mu, 1), mu^2 / 2 = rho, has power Phi(Phi^-1(a) + mu)."""
    achieved = ndtr(ndtri(alarm) + math.sqrt(2 * rho))
    assert detection_bound(zcdp(rho), alarm) >= achieved - 1e-9


@pytest.mark.parametrize(
    ("rho", "alarm", "most"), [(0.5, 0.05, 0.34), (0.1, 0.05, 0.17), (0.005, 0.05, 0.08)]
)
def test_zcdp_is_not_idle(rho, alarm, most):
    assert alarm < detection_bound(zcdp(rho), alarm) < most


@given(st.floats(0.01, 6), shares)
def test_pure_is_attained_by_randomised_response(epsilon, alarm):
    """Randomised response has the trade-off min(e^eps a, 1 - e^-eps (1 - a)) exactly."""
    truth = math.exp(epsilon) / (1 + math.exp(epsilon))
    lie = 1 - truth
    # The best test answers "yes" on a yes, mixed with chance to meet the share of false alarms.
    achieved = truth * alarm / lie if alarm <= lie else truth + lie * (alarm - lie) / truth
    assert detection_bound(pure(epsilon), alarm) == pytest.approx(achieved, rel=1e-9)


@given(st.floats(0.001, 4), st.floats(0.01, 0.5))
def test_bounds_grow_with_the_budget_and_never_fall_below_chance(budget, alarm):
    for promise in (zcdp, pure):
        smaller, larger = detection_bound(promise(budget), alarm), detection_bound(promise(2 * budget), alarm)
        assert alarm <= smaller <= larger <= 1


def test_delta_is_added():
    promise = PromiseView("approx", Fraction(1), "add-remove", "person", delta=Fraction(1, 100))
    assert detection_bound(promise, 0.05) == pytest.approx(math.e * 0.05 + 0.01)


def test_huge_budgets_hide_nothing():
    assert detection_bound(pure(1000), 0.05) == 1.0
    assert detection_bound(zcdp(500), 0.05) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("alarm", [0.0, 1.0, -0.1, np.nan])
def test_shares_outside_the_open_interval_are_refused(alarm):
    with pytest.raises(InvalidArgument, match="strictly between 0 and 1"):
        detection_bound(pure(1), alarm)
