"""Single Kronecker products for unions of products: dense algebra, printed results, support, bounds."""

from __future__ import annotations

import itertools
from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tabulae.errors import InvalidArgument
from tabulae.strategy.bounds.dual import svd_bound_kron
from tabulae.strategy.hdmm.kron import KnownFactors, opt_kron
from tabulae.strategy.hdmm.opt0 import nonsingular_optimum, opt0_gaussian, opt0_laplace

SIGMA = 4.224678889326836
ADULT = (100, 100, 100, 99, 85, 42, 16, 15, 9, 7, 6, 5, 2, 2)
LOANS = (101, 101, 101, 101, 3, 8, 36, 6, 51, 4, 5, 15)
NOISES = pytest.mark.parametrize("noise", ["gaussian", "laplace"])


def prefix(n):
    return n - np.maximum.outer(np.arange(n), np.arange(n)).astype(float)


def tables(sizes, subsets, own=None):
    """One table per attribute subset: ``own`` Gram matrices inside (default identities), totals outside."""
    own = [np.eye(n) for n in sizes] if own is None else own
    ones = [np.ones((n, n)) for n in sizes]
    return [(1.0, [own[i] if i in s else ones[i] for i in range(len(sizes))]) for s in subsets]


def subsets_up_to(d, k):
    return [s for j in range(k + 1) for s in itertools.combinations(range(d), j)]


def kron(matrices):
    return reduce(np.kron, matrices)


def dense_loss(terms, factors):
    A = kron(factors)
    W2 = sum(c * kron(Vs) for c, Vs in terms)
    return np.trace(np.linalg.pinv(A.T @ A, hermitian=True, rcond=1e-12) @ W2)


def sensitivity(A, noise):
    return np.abs(A).sum(axis=0).max() if noise == "laplace" else np.sqrt(np.square(A).sum(axis=0).max())


def supported(W, A):
    scale = np.abs(W).max()
    return np.abs(W @ np.linalg.pinv(A, rcond=1e-12) @ A - W).max() <= 1e-8 * scale


def rmse(loss, queries, noise):
    return (SIGMA if noise == "gaussian" else np.sqrt(2)) * np.sqrt(loss / queries)


@NOISES
def test_one_product_is_optimised_attribute_by_attribute(noise):
    grams = [prefix(6), np.eye(3) + 1, np.ones((4, 4))]
    best = opt_kron([(2.0, grams)], noise)
    alone = [opt0_gaussian(V) if noise == "gaussian" else opt0_laplace(V) for V in grams]
    assert best.loss == pytest.approx(2.0 * np.prod([a.loss for a in alone]), rel=2e-5)
    assert best.factors[2].tolist() == [[1.0] * 4]
    assert best.lower == pytest.approx(2.0 * np.prod([opt0_gaussian(V).lower for V in grams]), rel=1e-9)
    assert dense_loss([(2.0, grams)], best.factors) == pytest.approx(best.loss, rel=1e-9)


CPS = [  # HDMM Tables 6 and 7, "All Marginals" and "All Prefix-Marginals", and what has been found since
    ("gaussian", False, 7.8518, 7.8516),
    ("gaussian", True, 29.4695, 29.4693),
    ("laplace", False, 4.8535, 2.62),
    pytest.param("laplace", True, 40.541, 9.31, marks=pytest.mark.long),
]


@pytest.mark.parametrize(("noise", "prefixes", "printed", "bound"), CPS)
def test_cps(noise, prefixes, printed, bound):
    grams = [np.eye(n) + 1 for n in (50, 100, 7, 4, 2)]
    if prefixes:
        grams[:2] = prefix(50), prefix(100)
    queries = 600_000 if prefixes else 618_120
    best = opt_kron([(1.0, grams)], noise)
    assert rmse(best.loss, queries, noise) <= printed
    assert bound <= rmse(best.lower, queries, noise) <= rmse(best.loss, queries, noise)


@pytest.mark.parametrize(("noise", "printed"), [("laplace", 213_270.0), ("gaussian", 28_603.3)])
def test_example_15(noise, printed):
    best = opt_kron(tables((2, 5, 50, 100), list(itertools.combinations(range(4), 2))), noise)
    assert best.loss == pytest.approx(printed, rel=2e-6)
    assert best.lower == pytest.approx(16_410.524, abs=5e-4)


@pytest.mark.long
def test_example_13():
    """Prefix sums of either attribute: one product must support both; 33,007 is the best known so far."""
    terms = tables((100, 100), [(0,), (1,)], own=[prefix(100), prefix(100)])
    best = opt_kron(terms, "laplace", restarts=1)
    assert best.loss < 33_007
    assert all(A.shape[0] >= 100 for A in best.factors)


@pytest.mark.parametrize(
    ("noise", "printed"), [("gaussian", 80.47), pytest.param("laplace", 872.60, marks=pytest.mark.long)]
)
def test_adult_marginals(noise, printed):
    """HDMM prints 872.58 and 82.42 for the best product over 14 attributes and 470 tables."""
    best = opt_kron(tables(ADULT, subsets_up_to(14, 3)), noise)
    assert rmse(best.loss, 21_043_262, noise) <= printed
    assert rmse(best.lower, 21_043_262, "gaussian") == pytest.approx(45.0562, abs=5e-5)


def test_loans_small_marginals():
    """HDMM prints 654.35."""
    subsets = [s for s in subsets_up_to(12, 12) if np.prod([LOANS[i] for i in s], initial=1) <= 5000]
    assert len(subsets) == 188
    best = opt_kron(tables(LOANS, subsets), "laplace")
    assert rmse(best.loss, 279_751, "laplace") <= 654.36


@pytest.mark.long
def test_adult_prefix_marginals():
    """HDMM prints 126.17 for the best product."""
    own = [prefix(n) for n in ADULT[:5]] + [np.eye(n) for n in ADULT[5:]]
    best = opt_kron(tables(ADULT, list(itertools.combinations(range(14), 2)), own), "gaussian", restarts=1)
    assert rmse(best.loss, 148_137, "gaussian") <= 105.43


def products(rng, sizes, terms, rows=3):
    return [
        [(rng.random((int(rng.integers(1, rows + 1)), n)) < 0.5) * 1.0 for n in sizes] for _ in range(terms)
    ]


@NOISES
@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=pytest.mark.long if seed > 1 else ()) for seed in range(6)]
)
def test_union_agrees_with_dense_algebra_and_bounds(noise, seed):
    rng = np.random.default_rng(seed)
    sizes = tuple(rng.integers(1, 5, 3).tolist())
    workload = [[W + (not W.any()) for W in product] for product in products(rng, sizes, 4)]
    terms = [(float(10 ** rng.uniform(-2, 2)), [W.T @ W for W in product]) for product in workload]
    best = opt_kron(terms, noise)
    assert dense_loss(terms, best.factors) == pytest.approx(best.loss, rel=1e-6)
    assert sensitivity(kron(best.factors), noise) <= 1 + 1e-12
    explicit = opt0_gaussian(sum(c * kron(Vs) for c, Vs in terms))
    assert 0 < best.lower <= explicit.loss <= best.loss * (1 + 1e-5)
    assert best.lower == pytest.approx(explicit.loss, rel=2e-3)  # small enough to be bounded as a whole
    for product in workload:
        assert all(supported(W, A) for W, A in zip(product, best.factors, strict=True))


@given(st.data())
def test_no_weight_makes_a_term_lose_its_row_space(data):
    """Weights over 40 orders of magnitude, wherever they stand: what a surrogate loses is still measured."""
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    entry = st.integers(0, 1).map(float)
    workload = [
        [data.draw(arrays(np.float64, (2, n), elements=entry).filter(np.any)) for n in sizes]
        for _ in range(3)
    ]
    powers = data.draw(st.lists(st.integers(-20, 20), min_size=3, max_size=3))
    noise = data.draw(st.sampled_from(["gaussian", "laplace"]))
    terms = [(10.0**k, [W.T @ W for W in product]) for k, product in zip(powers, workload, strict=True)]
    if data.draw(st.booleans()):
        terms = [(1.0, [c * Vs[0], *Vs[1:]]) for c, Vs in terms]
    best = opt_kron(terms, noise, restarts=0)
    for product in workload:
        assert all(supported(W, A) for W, A in zip(product, best.factors, strict=True))


@NOISES
def test_cells_that_only_a_weightless_term_tells_apart_are_told_apart(noise):
    ones, eye = np.ones((4, 4)), np.eye(4)
    assert (1e20 * ones + eye == 1e20).all()
    best = opt_kron([(1.0, [1e20 * ones]), (1.0, [eye])], noise)
    assert np.linalg.matrix_rank(best.factors[0]) == 4


@NOISES
def test_disjunctions_with_negative_and_unsymmetric_terms(noise):
    """Counts of a OR b as A(x)T + T(x)B - A(x)B: nine cross terms W_s' W_t, of which four are negative."""
    rng = np.random.default_rng(5)
    A, B = (rng.random((2, 4)) < 0.5) * 1.0, (rng.random((2, 3)) < 0.5) * 1.0
    parts = [(1.0, A, np.ones((2, 3))), (1.0, np.ones((2, 4)), B), (-1.0, A, B)]
    terms = [(c * e, [P.T @ R, Q.T @ S]) for c, P, Q in parts for e, R, S in parts]
    W = sum(c * np.kron(P, Q) for c, P, Q in parts)
    np.testing.assert_allclose(sum(c * kron(Vs) for c, Vs in terms), W.T @ W)
    best = opt_kron(terms, noise)
    full = kron(best.factors)
    assert np.square(W @ np.linalg.pinv(full)).sum() == pytest.approx(best.loss, rel=1e-7)
    assert supported(W, full)
    assert best.lower == pytest.approx(opt0_gaussian(W.T @ W).loss, rel=2e-3)


def test_no_bound_is_claimed_where_none_is_known():
    """Negative coefficients over a domain too large to write down."""
    n, P = 40, prefix(40)
    eye, ones = np.eye(n), np.ones((n, n))
    terms = [(1.0, [eye, ones]), (1.0, [ones, P]), (-1e-3, [eye, eye])]
    assert opt_kron(terms, "gaussian", restarts=0).lower is None


@pytest.mark.parametrize("skew", [False, True])
def test_cross_terms_with_positive_coefficients_are_not_bounded_one_by_one(skew):
    """(A + B)'(A + B) written out: the cross terms A'B, B'A are no Gram matrices, though their sum counts."""
    n = 30
    A, B = np.eye(n), np.roll(np.eye(n), 1, axis=1)
    if not skew:
        A, B = np.diag(np.tile([3.0, -1.0], n // 2)), np.diag(np.tile([-1.0, 3.0], n // 2))
    eye = np.eye(n)
    parts = [(A, eye), (B, eye)]
    terms = [(1.0, [P.T @ R, Q.T @ S]) for P, Q in parts for R, S in parts]
    whole = opt_kron([(1.0, [(A + B).T @ (A + B), eye])], "gaussian")
    best = opt_kron(terms, "gaussian")
    assert best.loss == pytest.approx(whole.loss, rel=1e-4)
    assert best.lower is None or best.lower <= whole.loss


def test_bound_of_a_union_is_never_below_its_parts():
    P, eye, ones = prefix(30), np.eye(30), np.ones((30, 30))
    terms = [(1.0, [P, ones]), (3.0, [ones, P]), (1.0, [eye, eye])]
    best = opt_kron(terms, "gaussian")
    own = [c * opt0_gaussian(V).lower * opt0_gaussian(U).lower for c, (V, U) in terms]
    assert sum(own) * (1 - 1e-9) <= best.lower <= best.loss
    assert best.lower >= svd_bound_kron(terms[2:])


def test_every_factor_is_optimal_given_the_others():
    """A fixed point of HDMM's equation 5: solving any surrogate again gains nothing."""
    sizes, own = (12, 9, 5), [prefix(12), np.eye(9), prefix(5)]
    terms = tables(sizes, [(0, 1), (1, 2), (0,), (2,)], own)
    best = opt_kron(terms, "gaussian", tolerance=1e-6)
    traces = [
        [np.trace(np.linalg.solve(A.T @ A, Vs[i])) for i, A in enumerate(best.factors)] for _, Vs in terms
    ]
    assert sum(np.prod(t) for t in traces) == pytest.approx(best.loss, rel=1e-9)
    for i in range(3):
        surrogate = sum(np.prod(np.delete(t, i)) * Vs[i] for t, (_, Vs) in zip(traces, terms, strict=True))
        assert nonsingular_optimum(surrogate, tolerance=1e-7).loss == pytest.approx(best.loss, rel=2e-5)


@NOISES
def test_same_seed_same_strategy_and_copies_of_matrices_do_not_matter(noise):
    terms = tables((6, 5), [(0,), (1,), (0, 1)], own=[prefix(6), np.eye(5)])
    copied = [(c, [V.copy() for V in Vs]) for c, Vs in terms]
    first, second = opt_kron(terms, noise, seed=3), opt_kron(copied, noise, seed=3)
    for A, B in zip(first.factors, second.factors, strict=True):
        np.testing.assert_array_equal(A, B)
    assert (first.loss, first.lower) == (second.loss, second.lower)


def test_rows_bound_every_attribute_on_its_own():
    terms = tables((5, 4), [(0, 1), (0,), (1,)], own=[prefix(5), prefix(4)])
    losses = []
    for rows in ((0, 0), (1, 2), (2, 4), (None, None)):
        best = opt_kron(terms, "laplace", rows=rows)
        for A, limit in zip(best.factors, rows, strict=True):
            assert limit is None or A.shape[0] - A.shape[1] <= limit
        losses.append(best.loss)
    assert all(more <= fewer * 1.001 for fewer, more in itertools.pairwise(losses))
    with pytest.raises(InvalidArgument, match="2 attributes"):
        opt_kron(terms, "laplace", rows=(1,))


@NOISES
def test_known_factors_and_no_certificate_change_nothing_else(noise):
    known = KnownFactors()
    for own in ([prefix(9), np.eye(7)], [prefix(9), np.eye(7)], [np.eye(9), np.eye(7)]):
        terms = tables((9, 7), [(0, 1)], own=own)
        usual, kept = opt_kron(terms, noise), opt_kron(terms, noise, known=known, certify=False)
        assert kept.lower is None
        for A, B in zip(usual.factors, kept.factors, strict=True):
            np.testing.assert_array_equal(A, B)
    assert len(known.factors) == 3


@NOISES
def test_time_limit_returns_a_valid_strategy(noise):
    terms = tables((30, 20), [(0,), (1,)], own=[prefix(30), prefix(20)])
    best = opt_kron(terms, noise, deadline=0.0)
    assert dense_loss(terms, best.factors) == pytest.approx(best.loss, rel=1e-7)
    assert best.lower <= best.loss


def test_terms_that_cancel_or_weigh_nothing_are_left_out():
    terms = [(1.0, [np.eye(3)]), (0.0, [prefix(3)])]
    assert opt_kron(terms, "gaussian").loss == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("terms", "noise", "message"),
    [
        ([], "gaussian", "empty"),
        ([(1.0, [np.eye(2)]), (1.0, [np.eye(2), np.eye(2)])], "gaussian", r"terms\[1\]"),
        ([(1.0, [np.zeros((2, 2))])], "gaussian", "zero"),
        ([(0.0, [np.eye(2)]), (0.0, [np.ones((2, 2))])], "laplace", "zero"),
        ([(1.0, [np.eye(2)])], "cauchy", "'cauchy'"),
    ],
)
def test_mistakes_are_refused(terms, noise, message):
    with pytest.raises(InvalidArgument, match=message):
        opt_kron(terms, noise)
