"""Three estimators behind one function: the truth without noise, every constraint met, tables of any areas."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.each import each
from tests.topdown.descent_cases import Case, random_case
from tests.topdown.two_pass_cases import gls, numbers

from tabulae.errors import InvalidArgument, ReleaseError
from tabulae.products.areas import estimate
from tabulae.products.areas.constraints import AreaConstraints, ExactMargin
from tabulae.products.areas.descent import admm
from tabulae.products.areas.descent.limits import NO_LIMIT
from tabulae.products.areas.estimate import SpineEstimate, estimate_spine
from tabulae.products.areas.passes.covariances import Covariances
from tabulae.products.areas.passes.vectors import NodeVectors
from tabulae.release.progress import Progress

METHODS = ("gls", "topdown", "bluedown")
seeds = st.integers(0, 2**32 - 1)


def all_cells(done: SpineEstimate) -> np.ndarray:
    """Shape (nodes, D, N)."""
    plan = done.plan
    return done.vectors.take_on(np.arange(plan.tree.size), np.arange(plan.layout.size))


def limits(
    rng: np.random.Generator, case: Case, exact: tuple[ExactMargin, ...] = (), *, bounded: bool = True
) -> AreaConstraints:
    """Bounds on each type in each leaf that the truth meets, some of them tight."""
    sums = case.truth.sum(axis=2)
    lower = np.where(rng.random(sums.shape) < 0.4, np.maximum(0, sums - rng.integers(0, 3, sums.shape)), 0)
    upper = np.where(rng.random(sums.shape) < 0.4, sums + rng.integers(0, 3, sums.shape), NO_LIMIT)
    layout = case.plan.layout
    if not bounded:
        lower, upper = np.zeros_like(lower), np.full_like(upper, NO_LIMIT)
    return AreaConstraints(layout, np.arange(layout.size), ("0", "1", "2"), lower, upper, exact)


def exact_counts(case: Case, margins: tuple[ExactMargin, ...]) -> list[np.ndarray]:
    """The truth of exact margins: shape (units of the level, classes)."""
    spine, found = case.plan.spine, []
    for one in margins:
        areas = spine.areas(one.level)
        unit = areas.unit
        sums = np.zeros((areas.codes.size + 1, one.margin.classes), np.int64)
        by_class = np.zeros((len(unit), one.margin.classes), np.int64)
        np.add.at(by_class.T, one.margin.label, case.truth.sum(axis=2).T)
        np.add.at(sums, unit, by_class)
        found.append(sums[:-1])
    return found


def check_whole(case: Case, done: SpineEstimate) -> np.ndarray:
    """Whole, 0 or more, supported and additive; gives the leaves' cells."""
    plan, cells = case.plan, all_cells(done)
    assert done.vectors.dtype == np.int64
    assert cells.min() >= 0
    for node in range(plan.tree.size):
        if plan.children[node] < plan.children[node + 1]:
            below = cells[plan.children[node] : plan.children[node + 1]]
            assert (below.sum(axis=0) == cells[node]).all()
    leaves = done.leaf_counts(0, plan.spine.leaves)
    where, place, held = done.leaf_cells(1, plan.spine.leaves)
    row, dense, combination = np.nonzero(leaves[1:])
    assert np.array_equal(where, row + 1)
    assert np.array_equal(place, dense * plan.layout.algebra.cells + combination)
    assert np.array_equal(held, leaves[1:][row, dense, combination])
    assert (leaves[~plan.support.rows] == 0).all()
    assert (leaves == cells[plan.tree.leaf]).all()
    return leaves


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=settings().max_examples // 2)
@given(seeds, st.integers(2, 12), st.integers(2, 4), st.sampled_from(["gaussian", "laplace", None]))
def test_without_noise_the_truth_comes_back(method, seed, leaves, depth, bypass):
    """At a budget where the tolerance of solvers, 0.001 of a log-likelihood, is far below half a person."""
    case = random_case(np.random.default_rng(seed), leaves, depth, rho="20", bypass=bypass)
    done = estimate_spine(case.plan, case.values(None), method)
    found = done.leaf_counts(0, leaves)
    if method == "gls":
        assert np.abs(found - case.truth).max() < 1e-7
    else:
        assert (found == case.truth).all()


@pytest.mark.parametrize("method", METHODS[1:])
@settings(max_examples=settings().max_examples // 2)
@given(seeds, st.integers(2, 12), st.integers(2, 4), st.sampled_from(["gaussian", "laplace", None]))
def test_counts_are_whole_and_add_up(method, seed, leaves, depth, bypass):
    case = random_case(np.random.default_rng(seed), leaves, depth, bypass=bypass)
    check_whole(case, estimate_spine(case.plan, case.values(seed % 97), method))


@pytest.mark.parametrize("method", METHODS[1:])
@settings(max_examples=settings().max_examples // 2)
@given(seeds, st.integers(2, 12), st.integers(2, 4))
def test_bounds_are_met(method, seed, leaves, depth):
    rng = np.random.default_rng(seed)
    case = random_case(rng, leaves, depth, rho="1/10")
    given_limits = limits(rng, case)
    done = estimate_spine(case.plan, case.values(seed % 97), method, constraints=given_limits)
    parts = check_whole(case, done).sum(axis=2)
    assert (parts >= given_limits.lower).all()
    assert (parts <= given_limits.upper).all()


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=settings().max_examples // 2)
@given(seeds, st.integers(2, 12), st.integers(2, 4), st.integers(0, 3), st.sampled_from([(), ("type",)]))
def test_exact_margins_are_met_at_any_level(method, seed, leaves, depth, level, names):
    rng = np.random.default_rng(seed)
    case = random_case(rng, leaves, depth, rho="1/10")
    plan = case.plan
    name = plan.spine.levels[level % len(plan.spine.levels)]
    exact = (ExactMargin(name, plan.layout.margin(names)),)
    values = exact_counts(case, exact)
    constraints = limits(rng, case, exact, bounded=False)
    done = estimate_spine(plan, case.values(seed % 97), method, constraints=constraints, exact_values=values)
    found = exact_counts(Case(plan, done.leaf_counts(0, leaves)), exact) if method != "gls" else [
        done.margin(exact[0].margin, plan.spine.units[name], len(values[0]))[:, :, 0]
    ]  # fmt: skip
    if method == "gls":
        assert np.abs(found[0] - values[0]).max() < 1e-6
    else:
        check_whole(case, done)
        assert (found[0] == values[0]).all()


@pytest.mark.parametrize("method", METHODS[1:])
@settings(max_examples=settings().max_examples // 2)
@given(seeds, st.integers(2, 12), st.integers(2, 4), st.data())
def test_bounds_and_exact_margins_are_met_together(method, seed, leaves, depth, data):
    """Total and types exact at levels drawn at random, with bounds: what a plan does not refuse is met."""
    rng = np.random.default_rng(seed)
    case = random_case(rng, leaves, depth, rho="1/10")
    plan = case.plan
    exact = tuple(
        ExactMargin(data.draw(st.sampled_from(plan.spine.levels)), plan.layout.margin(names))
        for names in ((), ("type",))
    )
    constraints, values = limits(rng, case, exact), exact_counts(case, exact)
    try:
        constraints.check(plan, method)
    except InvalidArgument:
        assume(False)
    done = estimate_spine(plan, case.values(7), method, constraints=constraints, exact_values=values)
    found = check_whole(case, done)
    parts = found.sum(axis=2)
    assert (parts >= constraints.lower).all()
    assert (parts <= constraints.upper).all()
    for one, true in zip(exact_counts(Case(plan, found), exact), values, strict=True):
        assert (one == true).all()


@settings(max_examples=settings().max_examples // 3)
@given(seeds, st.integers(2, 12), st.integers(2, 4))
def test_gls_is_the_two_passes(seed, leaves, depth):
    case = random_case(np.random.default_rng(seed), leaves, depth)
    information = NodeVectors.zeros(case.plan)
    for given_values in case.values(5):
        information.put(given_values.piece.nodes, case.plan.information(given_values))
    expected = numbers(gls(case.plan, information, Covariances.of(case.plan)))
    done = estimate_spine(case.plan, case.values(5), "gls")
    assert (numbers(done.vectors) == expected).all()
    assert done.covariances.variance(0).shape[-1] == case.plan.dense_cells[case.plan.pattern[0]].size


@pytest.mark.parametrize("method", METHODS)
def test_the_number_of_threads_and_the_folder_do_not_matter(method, tmp_path, monkeypatch):
    monkeypatch.setattr("tabulae.products.areas.descent.descent._CHUNK", 200)
    case = random_case(np.random.default_rng(4), 60, 4)
    one = estimate_spine(case.plan, case.values(4), method, workers=1)
    three = estimate_spine(case.plan, case.values(4), method, workers=3, work=tmp_path / "work")
    assert (numbers(one.vectors) == numbers(three.vectors)).all()


@pytest.mark.parametrize("method", METHODS)
@given(seeds, st.sampled_from([(), ("type",), ("race", "age"), ("type", "age", "race")]))
@settings(max_examples=settings().max_examples // 3)
def test_margins_of_any_areas_are_sums_of_leaves(method, seed, names):
    rng = np.random.default_rng(seed)
    case = random_case(rng, 12, 3)
    done = estimate_spine(case.plan, case.values(1), method)
    area, margin = rng.integers(-1, 4, 12), case.plan.layout.margin(names)
    found = done.margin(margin, area, 5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(estimate, "_CELLS", int(rng.integers(1, 200)))  # some nodes at a time
        assert np.allclose(done.margin(margin, area, 5), found, rtol=0, atol=1e-9)
    leaves, every = done.leaf_counts(0, 12), np.arange(case.plan.layout.size)
    for one in range(5):
        cells = leaves[area == one].sum(axis=0)
        expected = np.zeros(found.shape[1:])
        expected[margin.present(every)] = margin.add_up(cells, every)
        assert np.allclose(found[one], expected, rtol=0, atol=1e-9)
    assert found.dtype == leaves.dtype


@pytest.mark.parametrize("cells", [20, 1 << 21])
def test_what_a_table_reads_was_asked_for_before(cells, monkeypatch):
    """One part or several: nothing is left to page faults, which read far around a node."""
    case = random_case(np.random.default_rng(5), 12, 3)
    done = estimate_spine(case.plan, case.values(1), "bluedown")
    fetched, taken, kind = [], [], type(done.vectors)
    fetch, take = kind.fetch, kind.take
    monkeypatch.setattr(estimate, "_CELLS", cells)
    monkeypatch.setattr(
        kind, "fetch", lambda self, nodes: (fetched.extend(nodes.tolist()), fetch(self, nodes))[1]
    )

    def told(self, nodes):
        assert set(nodes.tolist()) <= set(fetched)
        taken.extend(nodes.tolist())
        return take(self, nodes)

    monkeypatch.setattr(kind, "take", told)
    done.margin(case.plan.layout.margin([]), np.arange(12) % 5, 5)
    assert taken
    assert sorted(taken) == sorted(fetched)


@each("method", ["bluedown"], long=METHODS)
def test_an_interrupted_estimate_goes_on(tmp_path, method):
    """Stopped before each stage in turn, the estimate is what it would have been; finished stages are not redone."""
    case = random_case(np.random.default_rng(4), 30, 4)
    lines: list[Progress] = []
    whole = estimate_spine(case.plan, case.values(4), method, say=lines.append)
    for stop in range(len(lines)):
        work, count = tmp_path / f"{method}{stop}", 0

        def say(progress: Progress, last: int = stop) -> None:
            nonlocal count
            if count == last:
                raise KeyboardInterrupt
            count += 1

        with pytest.raises(KeyboardInterrupt):
            estimate_spine(case.plan, case.values(4), method, work=work, say=say)
        again: list[Progress] = []
        done = estimate_spine(case.plan, case.values(4), method, work=work, say=again.append)
        assert (numbers(done.vectors) == numbers(whole.vectors)).all()
        assert again[1:] == lines[max(stop, 1) :]
    finished: list[Progress] = []
    done = estimate_spine(case.plan, case.values(4), method, work=work, say=finished.append)
    assert finished == lines[:1]
    assert (numbers(done.vectors) == numbers(whole.vectors)).all()


def test_divisions_that_stopped_early_are_counted(tmp_path, monkeypatch):
    """An interrupted estimate counts those of the stages that it found, too."""
    monkeypatch.setattr(admm, "STEPS", 1)
    case = random_case(np.random.default_rng(4), 30, 4)
    lines: list[Progress] = []
    whole = estimate_spine(case.plan, case.values(4), "topdown", say=lines.append)
    told = [int(line.step.split()[0]) for line in lines if "stopped early" in line.step]
    assert whole.unconverged == sum(told) > 1

    def say(progress: Progress) -> None:
        if "depth 3" in progress.step:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        estimate_spine(case.plan, case.values(4), "topdown", work=tmp_path, say=say)
    for _ in range(2):
        done = estimate_spine(case.plan, case.values(4), "topdown", work=tmp_path)
        assert done.unconverged == whole.unconverged


def test_a_folder_of_other_measurements_is_refused(tmp_path):
    case = random_case(np.random.default_rng(4), 10, 3)
    estimate_spine(case.plan, case.values(4), "topdown", work=tmp_path)
    with pytest.raises(ReleaseError, match="other measurements"):
        estimate_spine(case.plan, case.values(5), "topdown", work=tmp_path)
    with pytest.raises(ReleaseError, match="another estimate"):
        estimate_spine(case.plan, case.values(4), "bluedown", work=tmp_path)


def test_an_array_that_was_cut_short_is_refused(tmp_path):
    case = random_case(np.random.default_rng(4), 10, 3)
    estimate_spine(case.plan, case.values(4), "topdown", work=tmp_path)
    (tmp_path / "counts.npy").write_bytes((tmp_path / "counts.npy").read_bytes()[:-8])
    with pytest.raises(ReleaseError, match=r"counts\.npy cannot be read"):
        estimate_spine(case.plan, case.values(4), "topdown", work=tmp_path)


def test_measurements_of_another_plan_are_refused():
    case, other = (random_case(np.random.default_rng(seed), 10, 3) for seed in (1, 2))
    with pytest.raises(InvalidArgument, match="another plan"):
        estimate_spine(case.plan, other.values(1), "topdown")
    with pytest.raises(InvalidArgument, match="end after 0 of"):
        estimate_spine(case.plan, iter(()), "topdown")
    twice = [*case.values(1), *case.values(1)]
    with pytest.raises(InvalidArgument, match="another plan"):
        estimate_spine(case.plan, twice, "topdown")


def test_unknown_methods_are_refused_and_others_have_no_variances():
    case = random_case(np.random.default_rng(1), 10, 3)
    with pytest.raises(InvalidArgument, match="gls, topdown, bluedown"):
        estimate_spine(case.plan, case.values(1), "middleout")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="no known law"):
        _ = estimate_spine(case.plan, case.values(1), "topdown").covariances
