import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.each import each

from tabulae.errors import InvalidArgument
from tabulae.privacy import ZCDP, ApproxDP, PureDP, check_neighbours, exact

fractions = st.fractions(min_value="1/1000000", max_value=10**6)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (1, Fraction(1)),
        ("542/339", Fraction(542, 339)),
        (" 2.5562 ", Fraction(25562, 10000)),
        ("1e-10", Fraction(1, 10**10)),
        (0.1, Fraction(1, 10)),
        (np.float64(0.3), Fraction(3, 10)),
        (np.int64(7), Fraction(7)),
        (Decimal("0.25"), Fraction(1, 4)),
        (Fraction(3, 7), Fraction(3, 7)),
    ],
)
def test_numbers_are_read_exactly(written, meant):
    assert exact(written) == meant


@given(fractions)
def test_every_fraction_survives_being_written(value):
    assert exact(str(value)) == value


WORDS = ["nan", "inf", "-inf", "1/0", "one", "", "1e9999999", "9" * 2000, "0x10", "1/2/3"]


@each("bad", [*WORDS, True, math.nan, math.inf, -math.inf, None, 1j, Decimal("NaN"), [1]])
def test_what_is_not_a_finite_number_is_refused(bad):
    with pytest.raises(InvalidArgument):
        exact(bad)


@pytest.mark.parametrize("bad", [0, -1, "-1/2", float("nan"), math.inf, "0", 10**30, "1e31", False])
def test_no_loss_is_zero_negative_or_absurd(bad):
    for make in (PureDP, ZCDP, lambda amount: ApproxDP(amount, "1e-6")):
        with pytest.raises(InvalidArgument):
            make(bad)


@pytest.mark.parametrize("bad", [0, 1, -1, 2, float("nan"), "1e-1000"])
def test_delta_lies_strictly_between_zero_and_one(bad):
    with pytest.raises(InvalidArgument):
        ApproxDP(1, bad)
    with pytest.raises(InvalidArgument):
        ZCDP(1).epsilon(bad)
    with pytest.raises(InvalidArgument):
        PureDP(1).epsilon(bad)


def test_losses_are_values():
    assert PureDP(0.1) == PureDP("1/10") != ZCDP("1/10")
    assert len({ApproxDP(1, "1e-6"), ApproxDP(1, 1e-6)}) == 1
    assert [loss.definition for loss in (PureDP(1), ApproxDP(1, 0.5), ZCDP(1))] == ["pure", "approx", "zcdp"]
    with pytest.raises(AttributeError):
        ZCDP(1).amount = Fraction(2)


@given(fractions, st.lists(st.integers(1, 50), min_size=1, max_size=8))
def test_split_parts_sum_to_the_whole(amount, weights):
    shares = [Fraction(w, sum(weights)) for w in weights]
    assert sum(part.amount for part in ZCDP(amount).split(shares)) == amount
    parts = ApproxDP(amount, "1e-6").split(shares)
    assert sum(part.delta for part in parts) == Fraction(1, 10**6)


@pytest.mark.parametrize("shares", [["1/2", "1/3"], [1, "1e-30"], [], ["3/2", "-1/2"], [0.3333, 0.6666]])
def test_shares_that_do_not_sum_to_one_are_refused(shares):
    with pytest.raises(InvalidArgument):
        PureDP(1).split(shares)


def test_ten_tenths_are_one():
    assert sum((PureDP(0.1).amount for _ in range(10)), Fraction(0)) == 1


def test_pure_epsilon_is_rounded_up():
    assert Fraction(PureDP("1/3").epsilon("1e-10")) >= Fraction(1, 3)
    assert PureDP("1/3").epsilon("1e-10") == pytest.approx(1 / 3, rel=1e-15)


def test_an_approximate_loss_promises_nothing_below_its_delta():
    assert ApproxDP(2, "1e-6").epsilon("1e-6") == 2
    with pytest.raises(InvalidArgument, match="smaller"):
        ApproxDP(2, "1e-6").epsilon("1e-7")


def test_neighbours():
    assert check_neighbours("add-remove") == "add-remove"
    for bad in ("add_remove", "", None, "substitute"):
        with pytest.raises(InvalidArgument):
            check_neighbours(bad)
