"""Combinators against exhaustive search over small mechanisms, and their refusals."""

import itertools
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabulae.errors import InvalidArgument
from tabulae.privacy import ZCDP, ApproxDP, PureDP
from tabulae.privacy.loss.composition import RDP, generalised_parallel, group, parallel, sequential

AMOUNTS = st.lists(st.fractions("1/20", 3), min_size=1, max_size=6)


@given(AMOUNTS)
def test_sequential_losses_add_exactly(amounts):
    for kind in (PureDP, ZCDP):
        composed = sequential([kind(a) for a in amounts])
        assert composed.loss == kind(sum(amounts))
        assert composed.is_exact
    pairs = sequential([ApproxDP(a, "1e-9") for a in amounts])
    assert pairs.loss == ApproxDP(sum(amounts), Fraction(len(amounts), 10**9))
    assert not pairs.is_exact
    curve = sequential([RDP.of(PureDP(a)) for a in amounts]).loss
    assert curve.at(3) == pytest.approx(sum(RDP.of(PureDP(a)).at(3) for a in amounts))


def worst_add_remove(costs, degree):
    return max(sum(chosen) for chosen in itertools.combinations(costs, min(degree, len(costs))))


def worst_replace(single, double, degree):
    """Over all sets of parts that hold the old and the new record: those holding both change by two."""
    parts, worst = range(len(single)), Fraction(0)
    subsets = [c for size in range(degree + 1) for c in itertools.combinations(parts, size)]
    for old in subsets:
        for new in subsets:
            both = set(old) & set(new)
            cost = sum(double[i] for i in both) + sum(single[i] for i in set(old) ^ set(new))
            worst = max(worst, cost)
    return worst


@given(st.lists(st.fractions("1/20", 3), min_size=1, max_size=5), st.integers(1, 3))
def test_generalised_parallel_against_every_placement_of_a_record(amounts, degree):
    for kind, square in ((PureDP, 2), (ZCDP, 4)):
        losses = [kind(a) for a in amounts]
        composed = generalised_parallel(losses, degree)
        assert composed.loss.amount == worst_add_remove(amounts, degree)
        assert composed.is_exact
        swapped = generalised_parallel(losses, degree, "replace")
        assert swapped.loss.amount >= worst_replace(amounts, [square * a for a in amounts], degree)
        assert not swapped.is_exact


@given(st.lists(st.fractions("1/20", 1), min_size=1, max_size=4), st.integers(1, 3), st.integers(2, 20))
def test_curves_compose_in_parallel_at_every_order(amounts, degree, order):
    losses = [RDP.of(PureDP(a)) for a in amounts]
    composed = generalised_parallel(losses, degree).loss.at(order)
    assert composed >= worst_add_remove([loss.at(order) for loss in losses], degree) * (1 - 1e-12)


def test_equal_parts_cost_z_times_and_one_query_z_squared():
    """A person in 9 counts: 9 separate measurements cost 9 rho, one query that moves by 9 costs 81 rho."""
    assert generalised_parallel([ZCDP("1/9")] * 50, 9).loss == ZCDP(1)
    assert group(ZCDP("1/9"), 9).loss == ZCDP(9)
    assert generalised_parallel([PureDP("1/9")] * 50, 9).loss == group(PureDP("1/9"), 9).loss == PureDP(1)


def test_parallel_is_the_worst_part():
    assert parallel([ZCDP(1), ZCDP(2), ZCDP("3/2")]).loss == ZCDP(2)
    assert parallel([ZCDP(1), ZCDP(2)], "replace").loss == ZCDP(8)
    assert parallel([ApproxDP(1, "1e-6"), ApproxDP(2, "1e-9")]).loss == ApproxDP(2, "1e-6")


def test_group_privacy_of_approximate_loss():
    """(2 eps, delta (1 + e^eps)), by hand."""
    grown = group(ApproxDP(1, "1e-6"), 2)
    assert grown.loss.amount == 2
    assert float(grown.loss.delta) == pytest.approx(1e-6 * (1 + 2.718281828459045), rel=1e-15)
    assert not grown.is_exact
    assert group(ApproxDP(1, "1e-6"), 1).loss == ApproxDP(1, "1e-6")


def test_refusals():
    for bad in ([], [PureDP(1), ZCDP(1)], [RDP.of(ZCDP(1)), ZCDP(1)], [1, 2]):
        with pytest.raises(InvalidArgument):
            sequential(bad)
        with pytest.raises(InvalidArgument):
            parallel(bad)
    with pytest.raises(InvalidArgument):
        generalised_parallel([ZCDP(1)], 0)
    with pytest.raises(InvalidArgument):
        generalised_parallel([ZCDP(1)], 1, "swap")
    for combine in (parallel, lambda losses, change: generalised_parallel(losses, 2, change)):
        with pytest.raises(InvalidArgument, match=r"record-free.*sequentially"):
            combine([ZCDP(1)], "record-free")
    with pytest.raises(InvalidArgument):
        group(ZCDP(1), 0)
