"""Program 1: a conic solver as oracle, dual feasibility, both methods against each other, bad input."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategy.eigen.design_cases import (
    all_range,
    column_norms,
    haar,
    identity_and_total,
    prefix,
    program_1,
    random_workload,
)

from tabulae.errors import InvalidArgument
from tabulae.strategy.deadline import now
from tabulae.strategy.eigen.design import eigen_queries
from tabulae.strategy.eigen.weighting import query_weighting, weigh_few

NORMS = pytest.mark.parametrize("p", [1, 2])


def random_problem(seed):
    rng = np.random.default_rng(seed)
    k, n = rng.integers(1, 9), rng.integers(1, 12)
    design = rng.normal(size=(k, n)) * (rng.random((k, n)) < 0.7)
    design[~design.any(axis=1), 0] = 1.0
    return design, rng.lognormal(sigma=2.0, size=k)


CASES = {
    "random, few queries": random_problem(3),
    "random, many queries": random_problem(8),
    "eigenvectors of ranges": eigen_queries(all_range(12)),
    "eigenvectors of prefixes": eigen_queries(prefix(12)),
    "eigenvectors of rank 4": eigen_queries(random_workload(1, 4, 10).T @ random_workload(1, 4, 10)),
    "wavelet": (haar(8), np.arange(1.0, 9.0)),
    "repeated rows": (np.ones((3, 2)), np.array([1.0, 2.0, 3.0])),
    "costs far apart": (random_problem(5)[0], 10.0 ** np.arange(len(random_problem(5)[0]))),
}


@NORMS
@pytest.mark.parametrize("name", CASES)
def test_the_optimum_is_a_conic_solvers(name, p):
    design, costs = CASES[name]
    found = query_weighting(design, costs, p=p, tolerance=1e-7)
    optimum = program_1(design, costs, p)
    assert found.loss == pytest.approx(optimum, rel=2e-6)
    assert found.lower <= optimum * (1 + 1e-7)
    assert found.gap <= 1e-7


@NORMS
@settings(max_examples=settings().max_examples // 2)
@given(seed=st.integers(0, 2**32 - 1))
def test_weights_are_feasible_and_multipliers_prove_the_bound(p, seed):
    design, costs = random_problem(seed)
    found = query_weighting(design, costs, p=p)
    B, a = np.abs(design) ** p, 2 / p
    assert column_norms(found.weights[:, None] * design, p).max() == pytest.approx(1, abs=1e-12)
    assert (costs / found.weights**2).sum() == pytest.approx(found.loss, rel=1e-12)
    mu = found.multipliers
    assert mu.shape == (design.shape[1],)
    assert (mu >= 0).all()
    assert mu.any()
    # The Lagrangian sum c w^-a + mu'(B'w - 1) at its smallest w, maximised over multiples of mu by search.
    b = B @ mu
    values = []
    for t in np.geomspace(1e-3, 1e3, 1001) * found.loss / mu.sum():
        w = (a * costs / (t * b)) ** (1 / (1 + a))
        values.append((costs * w**-a).sum() + t * (b @ w - mu.sum()))
    assert found.lower == pytest.approx(max(values), rel=1e-4)
    assert found.lower <= found.loss * (1 + 1e-12)
    assert found.gap < 1e-3


@NORMS
@given(seed=st.integers(0, 2**32 - 1))
def test_no_other_weights_are_better_than_the_bound(p, seed):
    design, costs = random_problem(seed)
    found = query_weighting(design, costs, p=p)
    rng = np.random.default_rng(seed)
    for spread in (0.01, 0.1, 1.0):
        other = found.weights * rng.lognormal(sigma=spread, size=len(costs))
        other /= column_norms(other[:, None] * design, p).max() ** (1 / p)
        assert (costs / other**2).sum() >= found.lower * (1 - 1e-12)


@NORMS
@given(seed=st.integers(0, 2**32 - 1))
def test_newtons_method_finds_the_same(p, seed):
    design, costs = random_problem(seed)
    dual = query_weighting(design, costs, p=p)
    newton = weigh_few(np.abs(design) ** p, costs, p=p, tolerance=1e-6)
    assert newton.gap <= 1e-6
    assert newton.lower <= dual.loss * (1 + 1e-9)
    assert dual.lower <= newton.loss * (1 + 1e-9)
    assert column_norms(newton.weights[:, None] * design, p).max() == pytest.approx(1, abs=1e-12)
    assert (costs / newton.weights**2).sum() == pytest.approx(newton.loss, rel=1e-12)


@NORMS
@given(seed=st.integers(0, 2**32 - 1), factor=st.floats(1e-6, 1e6))
def test_units_do_not_matter(p, seed, factor):
    design, costs = random_problem(seed)
    found = query_weighting(design, costs, p=p)
    dearer = query_weighting(design, factor * costs, p=p)
    longer = query_weighting(factor * design, factor**2 * costs, p=p)
    assert dearer.loss == pytest.approx(factor * found.loss, rel=1e-3)
    assert longer.loss == pytest.approx(factor**4 * found.loss, rel=1e-3)


def test_a_query_without_cost_is_not_asked():
    found = query_weighting(identity_and_total(3), np.array([0.0, 1.0, 1.0, 1.0]))
    assert found.weights.round(9).tolist() == [0.0, 1.0, 1.0, 1.0]
    assert query_weighting(np.array([[0.0], [1.0]]), np.array([0.0, 1.0])).loss == pytest.approx(1)


def test_a_closed_form():
    # Orthogonal rows of equal entries: every column has the same norm, so w_i goes as c_i^(1/(1+a)).
    costs = np.array([8.0, 1.0])
    design = np.array([[1.0, 1.0], [1.0, -1.0]])
    assert query_weighting(design, costs, p=2).loss == pytest.approx((8**0.5 + 1) ** 2, rel=1e-9)
    assert query_weighting(design, costs, p=1).loss == pytest.approx((8 ** (1 / 3) + 1) ** 3, rel=1e-9)


def test_without_time_what_is_returned_is_still_true():
    design, costs = eigen_queries(prefix(64))
    hurried = query_weighting(design, costs, deadline=0.0)
    best = query_weighting(design, costs)
    assert hurried.evaluations == 1
    assert hurried.lower <= best.loss <= hurried.loss * (1 + 1e-9)
    assert hurried.gap > best.gap


@pytest.mark.parametrize(
    ("design", "costs", "says"),
    [
        (np.eye(2), np.array([1.0, np.nan]), r"costs hold missing or infinite numbers \(first at \[1\]\)"),
        (np.eye(2), np.array([1.0, np.inf]), "costs hold missing or infinite"),
        (
            np.array([[1.0, np.nan]]),
            np.ones(1),
            r"design set hold missing or infinite numbers \(first at \[0, 1\]\)",
        ),
        (np.eye(2), np.array([1.0, -1.0]), "at least 0; number 1 is not"),
        (np.eye(2), np.zeros(2), "all costs are zero"),
        (np.array([[1.0, 1.0], [0.0, 0.0]]), np.ones(2), "design query 1 is zero in every cell"),
        (np.eye(2), np.ones(3), r"2 design queries need as many costs, not an array of shape \(3,\)"),
        (np.ones(3), np.ones(3), r"shape \(3,\): give a matrix"),
        (np.ones((0, 3)), np.ones(0), r"shape \(0, 3\): give a matrix"),
    ],
)
def test_bad_numbers_are_refused(design, costs, says):
    with pytest.raises(InvalidArgument, match=says):
        query_weighting(design, costs)


def test_bad_options_are_refused():
    with pytest.raises(InvalidArgument, match="p is 3: 2 for Gaussian noise or 1 for Laplace noise"):
        query_weighting(np.eye(2), np.ones(2), p=3)
    with pytest.raises(InvalidArgument, match="try 1e-6"):
        query_weighting(np.eye(2), np.ones(2), tolerance=0.0)


@NORMS
def test_rows_whose_squares_are_no_numbers(p):
    lengths = np.array([1e-200, 1.0, 1e150])
    design, costs = random_workload(4, 3, 5), np.array([1.0, 2.0, 3.0])
    plain = query_weighting(design, costs, p=p)
    with np.errstate(all="raise", under="ignore"):
        tiny = query_weighting(np.array([[1e-200, 0.0], [0.0, 1.0]]), np.ones(2), p=p)
        long = query_weighting(lengths[2] * design, costs * 1e-100, p=p)
    assert tiny.loss == pytest.approx(1, rel=1e-6)
    assert np.isfinite(tiny.weights).all()
    assert long.loss == pytest.approx(plain.loss * 1e200, rel=1e-9)
    np.testing.assert_allclose(long.weights * lengths[2], plain.weights, rtol=1e-6)


def test_costs_far_beyond_each_other():
    with np.errstate(all="raise", under="ignore"):
        found = query_weighting(np.eye(3), np.array([1e-300, 1.0, 1e300]))
    assert found.loss == pytest.approx(1e300, rel=1e-6)
    assert found.gap <= 1e-6


@pytest.mark.parametrize(
    ("design", "costs", "says"),
    [
        (np.diag([1e200, 1.0]), np.ones(2), "design query 0 at length 1 costs more than numbers hold"),
        (np.eye(2), np.array([1e308, 1e308]), "leave the range of numbers"),
    ],
)
def test_what_no_number_holds_is_refused(design, costs, says):
    with pytest.raises(InvalidArgument, match=says):
        query_weighting(design, costs)


@NORMS
@given(seed=st.integers(0, 2**32 - 1))
def test_gaps_are_never_negative(p, seed):
    design, costs = random_problem(seed)
    for tolerance in (1e-6, 1e-15):
        assert query_weighting(design, costs, p=p, tolerance=tolerance, deadline=now() + 0.1).gap >= 0
        assert weigh_few(np.abs(design) ** p, costs, p=p, tolerance=tolerance).gap >= 0
