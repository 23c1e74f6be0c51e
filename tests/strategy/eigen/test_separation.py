"""Eigen-query separation: the two limits that are Program 1 itself, what lies between, its bound, its strategy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.each import each
from tests.strategy.eigen.design_cases import (
    all_range,
    column_norms,
    error,
    haar,
    prefix,
    program_1,
    random_workload,
)
from tests.strategy.instances import WORKLOADS

import tabulae as tb
from tabulae.errors import InvalidArgument
from tabulae.strategy.bounds.dual import svd_bound
from tabulae.strategy.deadline import now
from tabulae.strategy.eigen import design
from tabulae.strategy.eigen.design import eigen_design, eigen_queries, eigen_separation, separated_weights
from tabulae.strategy.eigen.strategies import eigen_separation_strategy
from tabulae.strategy.methods import Settings
from tabulae.strategy.strategy import unit_rmse

NORMS = pytest.mark.parametrize("p", [1, 2])
GRAMS = {
    "ranges": all_range(48),
    "prefixes": prefix(48),
    "low rank": (lambda W: W.T @ W)(random_workload(0, 9, 30)),
}


@NORMS
@pytest.mark.parametrize("name", GRAMS)
def test_groups_of_one_are_the_full_method(name, p):
    full = eigen_design(GRAMS[name], p=p)
    separated = eigen_separation(GRAMS[name], group_size=1, p=p)
    assert separated.weights.loss == pytest.approx(full.weights.loss, rel=1e-5)


@NORMS
@pytest.mark.parametrize("name", GRAMS)
def test_one_group_is_the_full_method_to_a_per_cent(name, p):
    full = eigen_design(GRAMS[name], p=p)
    separated = eigen_separation(GRAMS[name], group_size=1000, p=p)
    assert full.weights.loss * (1 - 1e-5) <= separated.weights.loss <= full.weights.loss * 1.01


@NORMS
@given(seed=st.integers(0, 2**32 - 1), size=st.integers(1, 6))
def test_losses_are_true_and_bounds_hold_for_all_weights(p, seed, size):
    rng = np.random.default_rng(seed)
    W = random_workload(seed, int(rng.integers(1, 12)), int(rng.integers(1, 12)))
    queries, values = eigen_queries(W.T @ W)
    found = separated_weights(queries, values, group_size=size, p=p)
    weighted = found.weights[:, None] * queries
    assert column_norms(weighted, p).max() == pytest.approx(1, abs=1e-9)
    assert (values / found.weights**2).sum() == pytest.approx(found.loss, rel=1e-9)
    assert error(weighted, W.T @ W, p) == pytest.approx(found.loss, rel=1e-6)
    best = eigen_design(W.T @ W, p=p).weights
    assert found.lower <= best.loss * (1 + 1e-9)
    assert best.lower <= found.loss * (1 + 1e-9)


@NORMS
def test_no_other_factors_of_the_groups_are_better(p):
    queries, values = eigen_queries(prefix(24))
    found = separated_weights(queries, values, group_size=4, p=p)
    rows = [found.weights[i : i + 4, None] * queries[i : i + 4] for i in range(0, 24, 4)]
    grouped = np.array([column_norms(r, p) for r in rows])
    losses = np.array([(values[i : i + 4] / found.weights[i : i + 4] ** 2).sum() for i in range(0, 24, 4)])
    assert found.loss == pytest.approx(program_1(grouped ** (1 / p), losses, p), rel=1e-5)


def test_eight_groups_are_nearly_as_good():
    for gram, most, near in ((all_range(512), 1.003, 1.03), (prefix(512), 1.03, 1.35)):
        full = eigen_design(gram)
        separated = eigen_separation(gram)
        assert len(separated.weights.weights) == 512
        ratio = np.sqrt(separated.weights.loss / full.weights.loss)
        assert 1 - 1e-6 <= ratio < most
        reached = np.sqrt(error(separated.strategy, gram) / svd_bound(gram))
        assert reached < near


@NORMS
def test_without_time_the_weights_are_feasible(p):
    queries, values = eigen_queries(prefix(64))
    hurried = separated_weights(queries, values, p=p, deadline=0.0)
    assert column_norms(hurried.weights[:, None] * queries, p).max() == pytest.approx(1, abs=1e-9)
    assert hurried.lower <= eigen_design(prefix(64), p=p).weights.loss


def test_the_cell_order_does_not_matter():
    order = np.random.default_rng(1).permutation(40)
    gram = prefix(40)
    here, there = eigen_separation(gram), eigen_separation(gram[np.ix_(order, order)])
    assert there.weights.loss == pytest.approx(
        here.weights.loss, rel=1e-2
    )  # groups are settled to a per cent


@each("noise", ["gaussian", "laplace"])
@each("name", WORKLOADS)
def test_the_strategy_measures_what_was_planned(name, noise):
    workload, s = WORKLOADS[name], Settings(noise, group_size=3)
    strategy = eigen_separation_strategy(workload, s)
    assert strategy.method == "eigen-separation"
    assert strategy.lower is None
    assert strategy.certificate is None
    reached = unit_rmse(strategy, workload, "add-remove")
    other = unit_rmse(
        eigen_separation_strategy(workload, Settings(noise, group_size=1)), workload, "add-remove"
    )
    assert 0.7 * other < reached < 1.6 * other


def test_wavelets_lose_to_it_on_ranges():
    workload = tb.Workload.of(tb.AllRange(128))
    reached = unit_rmse(eigen_separation_strategy(workload, Settings("gaussian")), workload, "add-remove")
    assert reached < 0.9 * np.sqrt(error(haar(128), all_range(128)) / workload.queries)


@pytest.mark.parametrize("size", [0, -3])
def test_bad_sizes_are_refused(size):
    with pytest.raises(InvalidArgument, match=f"group_size is {size}: a group has at least one query"):
        eigen_separation(prefix(4), group_size=size)


def test_bad_numbers_are_refused():
    with pytest.raises(InvalidArgument, match="infinite or missing"):
        eigen_separation(np.diag([1.0, np.nan]))
    with pytest.raises(InvalidArgument, match="p is 4"):
        eigen_separation(prefix(4), p=4)


@NORMS
def test_one_group_is_weighed_to_the_tolerance_asked(p):
    W = (np.random.default_rng(1).random((8, 8)) < 0.3).astype(float)
    found = eigen_separation(W.T @ W, group_size=8, p=p).weights
    assert found.gap <= 1e-6
    assert found.loss == pytest.approx(eigen_design(W.T @ W, p=p).weights.loss, rel=1e-5)


@pytest.mark.parametrize("size", [2, 3, 4, 5, 6])
def test_the_gap_of_large_groups_says_how_far_the_weights_are(size):
    W = (np.random.default_rng(1).random((8, 8)) < 0.3).astype(float)
    found = eigen_separation(W.T @ W, group_size=size).weights
    excess = found.loss / eigen_design(W.T @ W).weights.loss - 1
    assert excess - 1e-6 <= found.gap <= excess + 0.08


def test_groups_leave_half_of_the_time_for_their_comparison(monkeypatch):
    limits = []
    weigh, compare = design.norm_weighting, design.weigh_few

    def inside(*arguments, deadline, **options):
        limits.append(deadline)
        return weigh(*arguments, deadline=deadline, **options)

    def between(*arguments, deadline, **options):
        limits.append(deadline)
        return compare(*arguments, deadline=deadline, **options)

    monkeypatch.setattr(design, "norm_weighting", inside)
    monkeypatch.setattr(design, "weigh_few", between)
    queries, values = eigen_queries(prefix(12))
    started = now()
    separated_weights(queries, values, group_size=4, deadline=started + 60.0)
    assert started + 30 <= max(limits[:3]) < started + 45 < limits[3] <= started + 60
