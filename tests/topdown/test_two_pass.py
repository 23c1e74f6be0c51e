"""Two passes over a tree against dense weighted least squares of all leaves at once."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from tests.each import each
from tests.topdown.two_pass_cases import (
    DenseSpine,
    covariance_of,
    gls,
    kind_matrix,
    measured,
    numbers,
    random_exact,
    random_plan,
    up_pass,
)

from tabulae import ZCDP, Domain, PureDP
from tabulae.errors import InvalidArgument
from tabulae.products.areas.constraints import ExactMargin
from tabulae.products.areas.layout import CellLayout, Supports
from tabulae.products.areas.passes import covariances as node_groups
from tabulae.products.areas.passes.covariances import Covariances, EqualityStep
from tabulae.products.areas.passes.vectors import NodeVectors
from tabulae.products.areas.spine.spine import Spine
from tabulae.products.areas.spine_plan import SpinePlan

SEEDS = range(60)


def random_case(seed: int) -> tuple[np.random.Generator, DenseSpine]:
    """A spine with no, one or several exact margins at units that are nodes."""
    rng = np.random.default_rng(seed)
    plan = random_plan(rng, whole=seed % 4 == 3)
    exact = random_exact(rng, plan, seed % 4)
    try:
        Covariances.of(plan, exact)
    except InvalidArgument:  # a unit that the bypass has left out
        exact = []
    return rng, DenseSpine(plan, tuple(exact))


def close(found: np.ndarray, wanted: np.ndarray, scale: float = 1.0) -> bool:
    return bool(np.abs(found - wanted).max(initial=0) <= 1e-9 * max(scale, np.abs(wanted).max(initial=0)))


def variance_scale(cov: Covariances, dense: DenseSpine) -> float:
    """The largest variance of a cell; or of one before the descent over 10^5, where that is larger.

    S - S W S loses what S exceeds the answer by: it matters where hardly anything is measured of a unit itself.
    """
    leaves = [np.abs(own).max() for own in cov.leaf if own is not None]
    before = max([*leaves, np.abs(cov.variances.flat).max(initial=0)])
    return float(max(np.abs(dense.variance).max(), 1e-5 * before))


@each("seed", SEEDS[::3], long=SEEDS)
def test_estimates_equal_dense_least_squares(seed):
    rng, dense = random_case(seed)
    plan = dense.plan
    truth = rng.integers(0, 20, dense.possible.sum()).astype(float)
    information = measured(rng, plan, dense, truth)
    cov = Covariances.of(plan, dense.exact)
    found = gls(plan, information, cov, dense.exact_values(truth))
    wanted = dense.estimate(information, truth)
    for node in range(plan.tree.size):
        assert close(found.take(np.array([node])).ravel(), dense.node(node) @ wanted)
    for pattern in range(len(plan.dense_cells)):
        nodes = np.flatnonzero(plan.pattern == pattern)
        sums = found.sums(nodes)
        assert close(sums, found.take(nodes).sum(axis=-1, keepdims=True))
        alone = [found.sums(nodes[[i]]) for i in range(nodes.size)]
        assert not nodes.size or sums.tobytes() == np.concatenate(alone).tobytes()  # in any company


@each("seed", SEEDS[::3], long=SEEDS)
def test_variances_equal_dense_least_squares(seed):
    _, dense = random_case(seed)
    plan, variance = dense.plan, dense.variance
    cov = Covariances.of(plan, dense.exact)
    scale = variance_scale(cov, dense)
    for node in range(plan.tree.size):
        rows = dense.node(node)
        assert close(kind_matrix(plan, cov.variance(node)), rows @ variance @ rows.T, scale)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("share", ["1/100", "1/1000000000000"])
def test_an_only_child_is_as_well_known_as_its_parent(share, exact):
    """Its own measurement may be 10^12 times as noisy: what is left of its variance is not lost in a difference."""
    codes = {"county": list("AAB"), "tract": list("abc"), "block": list("abc")}
    shares = {"root": "1/4", "county": "1/4", "tract": Fraction("1/2") - Fraction(share), "block": share}
    spine = Spine.from_codes(codes, levels=list(codes)).with_shares(shares)
    layout = CellLayout.of(Domain({"type": 3, "race": 2}), ["type"])
    queries = layout.margin([]), layout.margin(["type", "race"])
    asked = dict.fromkeys(spine.levels, (Fraction(1, 2), Fraction(1, 2)))
    plan = SpinePlan(spine, layout, queries, asked, ZCDP(1), Supports.of(np.ones((3, 3), bool)))
    cov = Covariances.of(plan, [ExactMargin("county", queries[0])] if exact else [])
    for node in plan.tree.leaf.tolist():
        own, above = cov.variance(node), cov.variance(int(plan.tree.parent[node]))
        np.testing.assert_array_equal(own, above)
        np.testing.assert_array_equal(covariance_of(cov, np.flatnonzero(plan.tree.leaf == node)), own)
        assert (np.linalg.eigvalsh(own)[1:] > 0.1).all()


@each("seed", range(0, 60, 4))
def test_the_pass_up_is_least_squares_of_what_is_below(seed):
    rng, dense = random_case(seed)
    plan = dense.plan
    truth = rng.integers(0, 20, dense.possible.sum()).astype(float)
    information = measured(rng, plan, dense, truth)
    upward = up_pass(plan, information)
    within = [dense.inside(node) for node in range(plan.tree.size)]
    for node in range(plan.tree.size):
        precision, linear = np.zeros_like(dense.information), np.zeros(dense.possible.sum())
        for low in range(node, plan.tree.size):
            if (within[low] <= within[node]).all():
                rows = dense.node(low)
                own = kind_matrix(plan, plan.precision(int(plan.classes[1][low])))
                precision += rows.T @ own @ rows
                linear += rows.T @ information.take(np.array([low])).ravel()
        there = dense.area(within[node]).any(axis=0)
        rows = dense.node(node)[:, there]
        below = np.linalg.inv(precision[np.ix_(there, there)])
        wanted = np.linalg.inv(rows @ below @ rows.T)
        assert close(kind_matrix(plan, upward.precision(node)), wanted)
        assert close(upward.linear.take(np.array([node])).ravel(), wanted @ rows @ below @ linear[there])


@each("seed", range(1, 40, 3))
def test_estimates_add_up_and_meet_exact_counts(seed):
    rng, dense = random_case(seed)
    plan = dense.plan
    truth = rng.integers(0, 20, dense.possible.sum()).astype(float)
    exact = dense.exact_values(truth)
    found = gls(plan, measured(rng, plan, dense, truth), Covariances.of(plan, dense.exact), exact)
    every = np.arange(plan.layout.size)
    leaves = found.take_on(plan.tree.leaf, every)
    for node in range(plan.tree.size):
        below = np.flatnonzero(plan.tree.parent == node)
        own = found.take_on(np.array([node]), every)[0]
        assert not below.size or close(found.take_on(below, every).sum(axis=0), own)
    for one, values in zip(dense.exact, exact, strict=True):
        unit = plan.spine.areas(one.level).unit
        sums = np.zeros((len(values) + 1, plan.layout.size))
        np.add.at(sums, unit, leaves.sum(axis=-1))
        sums = sums[:-1]
        classes = np.arange(one.margin.classes)[:, None] == one.margin.label
        assert close(sums @ classes.T, values)


def test_an_exact_count_has_no_variance():
    plan = random_plan(np.random.default_rng(3), whole=True)
    level = plan.spine.levels[-2]
    cov = Covariances.of(plan, [ExactMargin(level, plan.layout.margin([]))])
    for node in np.flatnonzero(plan.tree.level <= plan.spine.levels.index(level)).tolist():
        assert np.abs(cov.variance(node)[0].sum()) < 1e-12 * np.abs(cov.variance(node)).max()


@pytest.mark.parametrize("seed", [3, 6, 11])
def test_chunks_and_files_change_nothing(seed, monkeypatch, tmp_path):
    rng, dense = random_case(seed)
    plan = dense.plan
    truth = rng.integers(0, 20, dense.possible.sum()).astype(float)
    information, exact = measured(rng, plan, dense, truth), dense.exact_values(truth)
    cov = Covariances.of(plan, dense.exact)
    wanted = numbers(gls(plan, information, cov, exact))
    upward = numbers(up_pass(plan, information).linear)
    monkeypatch.setattr(node_groups, "CHUNK_CELLS", 20)
    small = Covariances.of(plan, dense.exact)
    assert close(small.variances.flat, cov.variances.flat)
    assert close(small.weights.flat, cov.weights.flat)
    done = gls(plan, information, small, exact, tmp_path / "gls")
    assert close(numbers(done), wanted)
    done.release()
    every = np.arange(plan.tree.size)
    cells = np.arange(plan.layout.size)
    assert close(done.take_on(every[::-1], cells)[::-1], done.take_on(every, cells))
    assert (np.load(tmp_path / "gls/estimate.npy") == done.passes.estimate.flat).all()
    again = gls(plan, information, small, exact, tmp_path / "gls")
    assert (numbers(again) == numbers(done)).all()
    assert close(numbers(up_pass(plan, information, tmp_path / "up").linear), upward)


def test_exact_sums_move_a_node_alike_in_any_company():
    """To the last bit: leaves are estimated again whenever they are asked for, with whichever others."""
    rng = np.random.default_rng(1)
    sums, x, exact = rng.normal(size=(5, 13)), rng.normal(size=(40, 13)), rng.normal(size=(40, 5))
    step, _, _ = EqualityStep.of(np.eye(13), np.eye(13), sums)
    alone = [step.move(x[[node]], exact[[node]]) for node in range(40)]
    assert step.move(x, exact).tobytes() == np.concatenate(alone).tobytes()


def whole_plan(dense: tuple[str, ...]) -> SpinePlan:
    """A plan where every unit is a node, over a layout with these dense attributes."""
    plans = (random_plan(np.random.default_rng(seed), whole=True) for seed in range(100))
    return next(plan for plan in plans if plan.layout.dense == dense)


def test_refusals_say_what_to_do():
    plan = whole_plan(("type",))
    margin = plan.layout.margin(["age"])
    with pytest.raises(InvalidArgument, match="make them dense"):
        Covariances.of(plan, [ExactMargin(plan.spine.levels[0], margin)])
    with pytest.raises(InvalidArgument, match="not a level of this spine"):
        Covariances.of(plan, [ExactMargin("parish", plan.layout.margin([]))])
    exact = [ExactMargin(plan.spine.levels[0], plan.layout.margin(["type"]))]
    information, cov = NodeVectors.zeros(plan), Covariances.of(plan, exact)
    with pytest.raises(InvalidArgument, match=r"needs \(1, 3\)"):
        gls(plan, information, cov, [np.zeros((1, 2))])
    with pytest.raises(InvalidArgument, match="values are given for 0"):
        gls(plan, information, cov)


def test_a_unit_that_the_bypass_leaves_out_cannot_be_exact():
    spine = Spine.from_codes({"tract": list("AAB"), "block": list("abc")}, levels=["tract", "block"])
    spine = spine.bypass({"root": "1/4", "tract": "1/4", "block": "1/2"}, noise="laplace")
    layout = CellLayout.of(Domain({"sex": 2}))
    shares = {level: (Fraction(1),) for level in spine.levels}
    plan = SpinePlan(
        spine, layout, (layout.margin(["sex"]),), shares, PureDP(1), Supports.of(np.ones((3, 1), bool))
    )
    with pytest.raises(InvalidArgument, match="tract A is not on the spine"):
        Covariances.of(plan, [ExactMargin("tract", layout.margin([]))])
    assert Covariances.of(plan, [ExactMargin("block", layout.margin([]))]).variance(0)[0, 0, 0] < 1e-12
