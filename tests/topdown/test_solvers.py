"""Divisions solved: against an interior point method, within every limit, in compiled code and in plain arrays."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.each import each
from tests.topdown.plain_solvers import in_plain_arrays
from tests.topdown.solver_cases import (
    divisions,
    nearly_totals_alone,
    oracle,
    possible,
    random_division,
    second_oracle,
    violation,
)

from tabulae.linalg import BlockAlgebra
from tabulae.products.areas.descent import admm
from tabulae.products.areas.descent.descent import Solved, solve
from tabulae.products.areas.descent.limits import FREE, NO_LIMIT, Division

KINDS = {
    "plain": {"limited": False},
    "steep": {"limited": False, "heavy": (5.0, 50.0)},
    "limited": {"limited": True},
    "crowded": {"limited": True, "people": 60.0},
    "empty": {"limited": True, "people": 0.2},
    "root": {"limited": True, "root": True},
    "large root": {"limited": True, "root": True, "people": 500.0},
}
pytest.importorskip("piqp", reason="the oracle of these tests is PIQP, of the extra [dev]")


def solved(division: Division, totals: np.ndarray | None = None, *, plain: bool) -> Solved:
    with in_plain_arrays(plain=plain):
        return solve(division, totals)


def check(
    division: Division, best: np.ndarray, totals: np.ndarray | None = None, *, plain: bool = False
) -> None:
    found = solved(division, totals, plain=plain)
    assert found.converged
    worst = violation(division, found.x, totals)
    assert worst.pop("parent") <= admm.TOLERANCE * division.children
    assert max(worst.values()) <= 1e-8 * (1 + np.abs(best).sum())
    least = division.objective(best)
    rotated = division.algebra.rotate(best)
    slope = division.algebra.unrotate(division.algebra.apply(division.precision[division.which], rotated))
    first_order = (
        admm.TOLERANCE * np.abs(slope - division.linear)[possible(division)].sum() * division.children
    )
    assert abs(division.objective(found.x) - least) <= 1e-3 * (1 + abs(least)) + first_order


@each("kind, plain", zip(KINDS, itertools.cycle([False, True])), long=itertools.product(KINDS, [False, True]))
def test_as_good_as_an_interior_point_method(kind, plain):
    @settings(max_examples=settings().max_examples // 2)
    @given(divisions(**KINDS[kind]))
    def test(case):
        division, _ = case
        check(division, oracle(division), plain=plain)

    test()


@pytest.mark.parametrize("plain", [False, True])
@given(case=divisions())
def test_with_totals_held(case, plain):
    division, hidden = case
    totals = hidden.sum(axis=(1, 2)).astype(float)
    check(division, oracle(division, totals), totals, plain=plain)


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=pytest.mark.long if seed > 1 else ()) for seed in range(8)]
)
def test_to_the_last_digit(seed, monkeypatch):
    """With a tolerance to match, alternating directions end where the interior point method does."""
    monkeypatch.setattr(admm, "TOLERANCE", 1e-8)
    division, hidden = random_division(np.random.default_rng(seed), 5, 4, (2, 3))
    for totals in (None, hidden.sum(axis=(1, 2)).astype(float)):
        for plain in (False, True):
            found = solved(division, totals, plain=plain)
            if found.solver == "admm":
                np.testing.assert_allclose(found.x, oracle(division, totals), atol=1e-4)


@pytest.mark.parametrize("seed", range(3))
def test_two_interior_point_methods_agree(seed):
    division, hidden = random_division(np.random.default_rng(seed), 3, 3, (2, 2))
    totals = hidden.sum(axis=(1, 2)).astype(float)
    first, second = oracle(division, totals), second_oracle(division, totals)
    np.testing.assert_allclose(first, second, atol=1e-3)


@given(divisions(), st.booleans())
def test_both_paths_take_the_same_steps(case, held):
    division, hidden = case
    totals = hidden.sum(axis=(1, 2)).astype(float) if held else None
    fast, slow = solve(division, totals), solved(division, totals, plain=True)
    assert (fast.solver, fast.converged) == (slow.solver, slow.converged)
    assert abs(fast.iterations - slow.iterations) <= 1
    np.testing.assert_allclose(fast.x, slow.x, atol=20 * admm.TOLERANCE)


def test_the_same_bits_on_any_thread():
    cases = [random_division(np.random.default_rng(seed), 6, 4, (2, 5))[0] for seed in range(12)]
    alone = [solve(division).x for division in cases]
    with ThreadPoolExecutor(3) as pool:
        together = list(pool.map(solve, cases * 3))
    for at, found in enumerate(together):
        assert found.x.tobytes() == alone[at % 12].tobytes()


@pytest.mark.parametrize("seed", range(5))
def test_totals_known_far_better_than_cells(seed):
    """The penalty that suits changes late: one that is kept from some step on takes thousands of steps."""
    division = nearly_totals_alone(seed)
    check(division, oracle(division))
    assert solve(division).iterations < admm.STEPS / 2


@pytest.mark.parametrize("plain", [False, True])
def test_nothing_to_choose(plain):
    division, _ = random_division(np.random.default_rng(2), 1, 3, (2, 3), limited=False)
    found = solved(division, plain=plain)
    assert found.solver == "copied"
    np.testing.assert_array_equal(found.x[0], division.total)
    nobody = replace(division, total=np.zeros_like(division.total))
    assert not solved(nobody, plain=plain).x.any()


def test_a_limit_that_is_met_needs_no_other_solver():
    """The solution without limits is the solution with them where it is within them, and only there."""
    rng = np.random.default_rng(5)
    division, _ = random_division(rng, 6, 2, (3, 4), limited=False, heavy=(0.02,), people=8.0)
    free = solve(division)
    assert free.solver == "gradient"
    sums = np.stack(
        [free.x[:, division.part == j].sum(axis=(1, 2)) for j in range(division.lower.shape[1])], axis=1
    )
    loose = replace(division, lower=np.floor(sums).astype(np.int64), upper=np.ceil(sums).astype(np.int64))
    assert solve(loose).solver == "gradient"
    np.testing.assert_array_equal(solve(loose).x, free.x)
    raised = np.zeros_like(division.lower)
    first = int(np.argmax(sums[0]))
    raised[0, first] = int(sums[0, first]) + 2
    tight = replace(division, lower=raised)
    assert solve(tight).solver == "admm"
    check(tight, oracle(tight))


@pytest.mark.parametrize("plain", [False, True])
def test_more_people_than_a_float_of_32_bits_holds(plain):
    """Hundreds of millions in a few cells, as at the root of a nation: tolerances are of persons, not of shares."""
    algebra = BlockAlgebra((2, 3))
    rng = np.random.default_rng(1)
    hidden = rng.integers(0, 10**8, (1, 2, 6))
    weights = 0.05 * algebra.term(np.eye(2), 3) + algebra.term(np.ones((2, 2)), 0)
    seen = hidden + 5 * rng.standard_normal(hidden.shape)
    linear = algebra.unrotate(algebra.apply(weights, algebra.rotate(seen)))
    whole = np.array([hidden.sum()]).reshape(1, 1)
    limits = (np.zeros((1, 1), np.int64), np.full((1, 1), NO_LIMIT), np.zeros((1, 1), np.int64), whole)
    division = Division(
        algebra, None, weights[None], np.zeros(1, np.int64), linear, np.ones((1, 2), bool), np.zeros(2, np.int64),
        *limits,
    )  # fmt: skip
    found = solved(division, plain=plain)
    assert found.converged
    assert found.x.sum() == pytest.approx(hidden.sum(), abs=0.01)
    assert np.abs(found.x - hidden).max() < 40


@pytest.mark.parametrize("plain", [False, True])
def test_the_last_point_where_steps_run_out(plain, monkeypatch):
    monkeypatch.setattr(admm, "STEPS", 2)
    division, _ = random_division(np.random.default_rng(4), 5, 3, (2, 3))
    found = solved(division, plain=plain)
    assert not found.converged
    assert found.iterations == 2
    worst = violation(division, found.x)
    assert worst["negative"] == worst["outside"] == 0
    assert max(worst["bounds"], worst["exact"]) < 1e-8


def test_alone_in_a_group_of_exact_counts():
    """Exact counts that leave nothing free: the answer is what they say."""
    division, hidden = random_division(np.random.default_rng(9), 4, 1, ())
    sums = hidden.sum(axis=(1, 2))[:, None]
    group = np.zeros((4, 1), np.int64)
    fixed = replace(
        division, lower=np.zeros_like(sums), upper=np.full_like(sums, NO_LIMIT), group=group, exact=sums
    )
    assert not (fixed.exact == FREE).any()
    np.testing.assert_allclose(solve(fixed).x, hidden, atol=1e-6)


@pytest.mark.parametrize("held", [False, True])
def test_a_large_root_is_solved_without_steps(held):
    """What zero does not limit has one least under its exact sums; where a limit does, steps are taken."""
    division, _ = random_division(np.random.default_rng(3), 1, 4, (2, 3), root=True, limited=False)
    people = np.random.default_rng(4).uniform(20, 60, division.linear.shape) * division.allowed[:, :, None]
    rotated = division.algebra.apply(division.precision[division.which], division.algebra.rotate(people))
    exact = np.full_like(division.exact, FREE)
    if held:
        exact[0, 0] = people[0, division.group[0][division.part] == 0].sum() + 9
    large = replace(division, linear=division.algebra.unrotate(rotated), exact=exact)
    found = solve(large)
    assert (found.solver, found.iterations) == ("direct", 0)
    check(large, oracle(large))
    limited = replace(large, exact=np.full_like(exact, FREE), upper=np.full_like(large.upper, 15))
    assert solve(limited).solver == "admm"


def test_the_order_of_attributes_does_not_matter():
    """A large attribute before a small one: it is solved with the large one last."""
    division, hidden = random_division(np.random.default_rng(8), 5, 3, (5, 3, 2))
    assert admm.largest_last(division)[0].algebra.symmetric == (2, 3, 5)
    totals = hidden.sum(axis=(1, 2)).astype(float)
    check(division, oracle(division, totals), totals)
    found, slow = solve(division, totals), solved(division, totals, plain=True)
    assert found.iterations == slow.iterations
    np.testing.assert_allclose(found.x, slow.x, atol=1e-6)
