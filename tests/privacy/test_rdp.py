"""Renyi curves against sums of the series they bound, and the printed lemma that they correct."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.each import each

from tabulae.errors import InvalidArgument
from tabulae.privacy import ZCDP, ApproxDP, PureDP
from tabulae.privacy.loss.composition import RDP, GroupCurve, LargestCurve
from tabulae.privacy.loss.conversions import zcdp_epsilon

ORDERS = ["1.01", "1.1", "1.5", "2", "3.7", "10", "64"]
EPSILONS = ["0.05", "0.4569", "1", "3"]


def renyi_by_series(mass, order, last, mp, shift=1):
    """ln(sum P(k)^a Q(k)^(1-a)) / (a - 1), Q being P moved by ``shift``."""
    total = mp.fsum(mass(k) ** order * mass(k - shift) ** (1 - order) for k in range(-last, last + 1))
    return mp.ln(total) / (order - 1)


def geometric(epsilon, mp):
    norm = mp.tanh(epsilon / 2)
    return lambda k: norm * mp.exp(-epsilon * abs(k))


def printed_lemma_8(order, epsilon, mp):
    """SafeTab, equations 17 and 29, as printed."""
    inside = (2 * order * mp.exp((order - 1) * epsilon) + 2 * (order - 1) * mp.exp(-order * epsilon)) / (
        epsilon * (2 * order - 1)
    )
    return mp.ln(mp.tanh(epsilon / 2) * inside) / (order - 1)


@each(
    "order, epsilon",
    [("1.01", "3"), ("1.1", "0.4569"), ("2", "1"), ("64", "0.4569")],
    long=itertools.product(ORDERS, EPSILONS),
)
def test_the_geometric_curve_is_the_sum_of_its_series(order, epsilon, oracle):
    """The right-hand side of lemma 8, as printed, lies below the divergence that it claims to bound."""
    mp = oracle.mp
    a, e = oracle.real(order), oracle.real(epsilon)
    true = renyi_by_series(geometric(e, mp), a, int(80 / float(e)) + 60, mp)
    ours = RDP.of(PureDP(epsilon)).at(order)
    assert true <= ours <= true * (1 + mp.mpf(10) ** -12)
    printed = printed_lemma_8(a, e, mp)
    assert printed < true
    if order in ("1.01", "1.1"):
        assert printed < 0, "no divergence is negative"


@pytest.mark.parametrize("order", ["1.1", "2", "10"])
def test_the_discrete_gaussian_stays_below_its_line(order, oracle):
    mp = oracle.mp
    for variance in ("0.5", "4"):
        masses, norm = oracle.gaussian_masses(variance, 200)
        mass = lambda k: masses[abs(k)] / norm  # noqa: B023, E731
        true = renyi_by_series(mass, oracle.real(order), 150, mp)
        assert true <= RDP.of(ZCDP(1 / (2 * Fraction(variance)))).at(order)


@given(st.fractions("1/1000", 50), st.integers(1, 20))
def test_a_linear_curve_converts_as_zcdp_does(rho, exponent):
    delta = Fraction(1, 10**exponent)
    ours = RDP.of(ZCDP(rho))
    assert ours.epsilon(delta) == pytest.approx(zcdp_epsilon(rho, delta), rel=1e-9, abs=1e-12)
    if (delta := ours.delta(rho + 1)) > 1e-300:
        assert zcdp_epsilon(rho, delta) == pytest.approx(float(rho + 1), rel=1e-6)


@given(st.fractions("1/100", 20), st.integers(1, 12))
def test_a_pure_loss_never_converts_to_more_than_itself(epsilon, exponent):
    assert RDP.of(PureDP(epsilon)).epsilon(Fraction(1, 10**exponent)) <= float(epsilon) * (1 + 1e-9)


def test_agrees_with_dp_accounting():
    from dp_accounting.rdp import compute_epsilon

    loss = RDP.of(PureDP("0.3")).scaled(40) + RDP.of(ZCDP("0.2"))
    orders = np.concatenate([1 + np.geomspace(1e-3, 1, 500), np.linspace(2, 200, 20000)])
    theirs, _ = compute_epsilon(orders, loss.floats(orders - 1), 1e-10)
    assert loss.epsilon("1e-10") == pytest.approx(theirs, rel=1e-5)
    assert loss.epsilon("1e-10") <= theirs * (1 + 1e-12)


def test_small_budgets_need_orders_beyond_a_grid():
    """rho 0.008 at 1e-10: 0.770 over all orders, 2.277 over the paper's grid 1.01 .. 10."""
    loss = RDP.of(ZCDP("0.008"))
    grid = np.arange(1.01, 10.005, 0.01)
    on_grid = 0.008 * grid + np.log1p(-1 / grid) - np.log(grid * 1e-10) / (grid - 1)
    assert min(on_grid) == pytest.approx(2.277, abs=5e-4)
    assert loss.epsilon("1e-10") == pytest.approx(0.770, abs=5e-4)


def test_curves_add_scale_and_take_maxima():
    one, two = RDP.of(PureDP(1)), RDP.of(ZCDP("1/5"))
    both = RDP(((Fraction(1), LargestCurve((one, two))),))
    for order in ORDERS:
        assert (one + two).at(order) == pytest.approx(one.at(order) + two.at(order))
        assert one.scaled("7/2").at(order) == pytest.approx(3.5 * one.at(order))
        assert both.at(order) == pytest.approx(max(one.at(order), two.at(order)))
    assert (one + two) == (RDP.of(PureDP(1)) + RDP.of(ZCDP("1/5")))


@pytest.mark.parametrize("size", [2, 3, 4, 9])
def test_group_bounds_hold_where_the_truth_is_known(size):
    """Pure loss of a group is size times epsilon, concentrated loss size squared times rho."""
    for loss, grown in (
        (PureDP("1/3"), PureDP(Fraction(size, 3))),
        (ZCDP("1/9"), ZCDP(Fraction(size**2, 9))),
    ):
        curve = RDP(((Fraction(1), GroupCurve(RDP.of(loss), size)),))
        for order in ORDERS:
            assert curve.at(order) >= RDP.of(grown).at(order)


def test_refusals():
    with pytest.raises(InvalidArgument):
        RDP.of(ApproxDP(1, "1e-6"))
    for order in (1, "0.5", 0, -1, float("nan"), float("inf")):
        with pytest.raises(InvalidArgument):
            RDP.of(ZCDP(1)).at(order)
    for bad in (0, 1, float("nan")):
        with pytest.raises(InvalidArgument):
            RDP.of(ZCDP(1)).epsilon(bad)
