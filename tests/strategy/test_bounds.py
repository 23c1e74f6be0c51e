"""Lower bounds against dense singular values, against strategies that must not beat them, and in print."""

from __future__ import annotations

import itertools
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tests.strategy.gram_terms import dense, marginals

from tabulae.errors import InvalidArgument, Unsupported
from tabulae.strategy.bounds.dual import dual_bound, svd_bound, svd_bound_kron
from tabulae.strategy.gram import DistinctCells

workloads = st.integers(1, 6).flatmap(
    lambda n: st.integers(1, 7).flatmap(lambda m: arrays(np.float64, (m, n), elements=st.integers(-3, 3)))
)


def loss(W, A, p):
    sensitivity = (np.abs(A) ** p).sum(axis=0).max() ** (1 / p)
    return sensitivity**2 * np.square(W @ np.linalg.pinv(A)).sum()


@given(workloads)
def test_svd_bound_is_the_sum_of_singular_values_rounded_down(W):
    expected = np.linalg.svd(W, compute_uv=False).sum() ** 2 / W.shape[1]
    bound = svd_bound(W.T @ W)
    assert bound <= expected * (1 + 1e-13)
    assert bound == pytest.approx(expected, rel=1e-6, abs=1e-9)


@given(workloads, st.data())
def test_no_strategy_beats_a_dual_bound(W, data):
    n = W.shape[1]
    mu = data.draw(arrays(np.float64, n, elements=st.floats(0, 10)).filter(lambda mu: mu.max() > 1e-3))
    bound = dual_bound(W.T @ W, mu)
    noise = data.draw(arrays(np.float64, (n, n), elements=st.floats(-1, 1)))
    for A in (np.eye(n), np.vstack([np.eye(n), W]), np.eye(n) + 0.1 * noise / n):
        assert bound <= loss(W, A, 2) * (1 + 1e-9)
        assert bound <= loss(W, A, 1) * (1 + 1e-9)


@pytest.mark.parametrize("n", [2, 7, 40])
def test_bound_holds_in_exact_arithmetic(n):
    """Against 60 digits: never above the true bound, and below it by next to nothing."""
    V = [[Fraction(min((i + 1) * (n - j), (j + 1) * (n - i))) for j in range(n)] for i in range(n)]
    with mpmath.workdps(60):
        # all ranges: V = (n + 1) times the inverse of the second difference, whose spectrum is known
        values = [(n + 1) / (4 * mpmath.sin(k * mpmath.pi / (2 * (n + 1))) ** 2) for k in range(1, n + 1)]
        exact = sum(map(mpmath.sqrt, values)) ** 2 / n
        bound = svd_bound(np.array(V, dtype=float))
        assert bound <= exact
        assert bound >= exact * (1 - mpmath.mpf("1e-9"))


def test_singular_workloads_leave_no_dust():
    """Null eigenvalues come out as plus or minus 1e-16 and must not be summed: their roots are 1e-8 each."""
    W = np.kron(np.eye(3), np.ones((1, 40)))
    exact = 3.0**2 * 40 / 120
    assert exact * (1 - 1e-9) <= svd_bound(W.T @ W) <= exact


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data())
def test_lattice_bound_equals_the_dense_one(sizes, data):
    subsets = [s for k in range(len(sizes) + 1) for s in itertools.combinations(range(len(sizes)), k)]
    chosen = data.draw(st.lists(st.sampled_from(subsets), min_size=1, unique=True))
    weights = {s: data.draw(st.floats(0.1, 5)) for s in chosen}
    terms = marginals(sizes, weights)
    assert svd_bound_kron(terms) == pytest.approx(svd_bound(dense(terms)), rel=1e-6)


def test_lattice_takes_any_mixture_of_identity_and_ones_and_negative_coefficients():
    rng = np.random.default_rng(0)
    sizes, (a, b) = (3, 1, 4), rng.random((2, 3))
    mixed = [
        [a[i] * c * np.eye(n) + b[i] * np.ones((n, n)) for i, n in enumerate(sizes)] for c in (1, 2, 0.5)
    ]
    terms = [*zip((1.0, 2.0, 0.5), mixed, strict=True), (-0.1, [V.copy() for V in mixed[0]])]
    assert svd_bound_kron(terms) == pytest.approx(svd_bound(dense(terms)), rel=1e-9)


def test_lattice_drops_eigenvalues_that_are_only_rounding():
    """Centred cells: nothing on the ones vector, though 1 - 7/7 does not come out as zero in every order."""
    centred = np.eye(7) - 1 / 7
    bound = svd_bound_kron([(1.0, [centred, np.eye(2)]), (1.0, [centred, np.ones((2, 2))])])
    exact = (6 * (1 + np.sqrt(3))) ** 2 / 14
    assert exact * (1 - 1e-12) <= bound <= exact


def test_one_product_is_the_product_of_its_factors():
    rng = np.random.default_rng(1)
    factors = [W.T @ W for W in (rng.random((3, 4)), rng.random((5, 2)), np.ones((1, 3)))]
    expected = svd_bound(2.5 * dense([(1.0, factors)]))
    assert svd_bound_kron([(2.5, factors)]) == pytest.approx(expected, rel=1e-9)


def test_example_15():
    """All two-way marginals over (2, 5, 50, 100): the planner attains 16,410.524."""
    pairs = dict.fromkeys(itertools.combinations(range(4), 2), 1.0)
    assert svd_bound_kron(marginals((2, 5, 50, 100), pairs)) == pytest.approx(16410.524, abs=5e-4)


def test_adult_three_way_marginals():
    """HDMM Table 7: 45.06 for 470 marginals over 14 attributes and 6e17 cells."""
    sizes = (100, 100, 100, 99, 85, 42, 16, 15, 9, 7, 6, 5, 2, 2)
    subsets = {s: 1.0 for k in range(4) for s in itertools.combinations(range(14), k)}
    bound = svd_bound_kron(marginals(sizes, subsets))
    assert 4.224678889326836 * np.sqrt(bound / 21_043_262) == pytest.approx(45.0562, abs=5e-5)


def test_all_marginals_of_twelve_attributes_have_a_closed_form():
    """All 4,096 marginals together are one product of I + J."""
    subsets = {s: 1.0 for k in range(13) for s in itertools.combinations(range(12), k)}
    expected = ((9 + np.sqrt(11)) ** 2 / 10) ** 12
    assert svd_bound_kron(marginals((10,) * 12, subsets)) == pytest.approx(expected, rel=1e-9)


def test_other_unions_are_refused_with_the_remedy():
    eye, ones, prefix = np.eye(3), np.ones((3, 3)), np.tril(np.ones((3, 3)))
    with pytest.raises(Unsupported, match="svd_bound"):
        svd_bound_kron([(1.0, [eye, ones]), (1.0, [ones, prefix.T @ prefix])])


def test_too_many_attributes_are_refused():
    eye, ones = np.eye(2), np.ones((2, 2))
    with pytest.raises(Unsupported, match="21 attributes"):
        svd_bound_kron([(1.0, [eye] * 21), (1.0, [ones] * 21)])


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ([], "empty"),
        ([(1.0, [])], "one Gram matrix per attribute"),
        ([(1.0, [np.eye(2)]), (1.0, [np.eye(3)])], r"terms\[1\]"),
        ([(float("inf"), [np.eye(2)])], "finite coefficient"),
        ([(1.0, [np.full((2, 2), np.nan)])], "attribute 0"),
        ([(1.0, [np.ones((2, 3))])], "square"),
        ([(-1.0, [np.eye(2)])], "positive"),
    ],
)
def test_terms_that_do_not_fit_are_refused(terms, message):
    with pytest.raises(InvalidArgument, match=message):
        svd_bound_kron(terms)


@pytest.mark.parametrize("mu", [[1.0], [0.0, 0.0], [-1.0, 2.0], [np.nan, 1.0], [np.inf, 1.0]])
def test_multipliers_that_prove_nothing_are_refused(mu):
    with pytest.raises(InvalidArgument, match="multipliers"):
        dual_bound(np.eye(2), np.array(mu))


@given(workloads, st.data())
def test_distinct_cells_are_exactly_the_distinct_columns(W, data):
    columns = data.draw(st.lists(st.integers(0, W.shape[1] - 1), min_size=1, max_size=8))
    W = W[:, columns]
    cells = DistinctCells.of([W.T @ W])
    different = {tuple(column) for column in W.T if column.any()}
    assert cells.count == len(different)
    for a, b in itertools.combinations(range(W.shape[1]), 2):
        same = bool((W[:, a] == W[:, b]).all())
        assert (cells.classes[a] == cells.classes[b]) == same
    assert [bool(c == -1) for c in cells.classes] == [not column.any() for column in W.T]
    np.testing.assert_array_equal(cells.lift(W[:, cells.first]), W)
    assert cells.share(np.ones(cells.count)).sum() == pytest.approx(cells.count)
    seen = cells.classes[cells.classes >= 0]
    assert list(dict.fromkeys(seen.tolist())) == list(range(cells.count))


def test_cells_are_kept_apart_if_any_workload_tells_them_apart():
    total, halves = np.ones((4, 4)), np.kron(np.eye(2), np.ones((2, 2)))
    assert DistinctCells.of([total]).count == 1
    assert DistinctCells.of([total, halves]).classes.tolist() == [0, 0, 1, 1]
    assert DistinctCells.of([1e20 * total, 1e-20 * np.eye(4)]).count == 4
