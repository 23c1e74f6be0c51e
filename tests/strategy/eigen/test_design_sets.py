"""Design sets by name and as given: their rows, what they reach as strategies, section 3.5's gains, refusals."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from tests.each import each
from tests.strategy.eigen.design_cases import all_range, binary_tree, error, haar, prefix
from tests.strategy.instances import DOMAIN, TABLES, WORKLOADS

import tabulae as tb
from tabulae.errors import InvalidArgument, Unsupported
from tabulae.linalg import Dense, Identity
from tabulae.strategy.bounds.dual import svd_bound
from tabulae.strategy.eigen.design import design_rows, eigen_design
from tabulae.strategy.eigen.strategies import eigen_strategy
from tabulae.strategy.eigen.weighting import design_weighting
from tabulae.strategy.gram import explicit_gram
from tabulae.strategy.methods import Settings
from tabulae.strategy.strategy import unit_rmse

NAMES = ["eigen-queries", "wavelet", "fourier", "hierarchical", "workload"]
NOISES = pytest.mark.parametrize("noise", ["gaussian", "laplace"])
PREFIXES = tb.Workload.of(tb.Prefix(8))
PRODUCT = tb.Workload(tb.Domain({"a": 4, "b": 3}), [tb.Table("t", {"a": tb.Prefix(4), "b": tb.Identity(3)})])


def rows_of(name, workload):
    return design_rows(name, workload, explicit_gram(workload))


def test_rows_of_one_attribute():
    assert np.array_equal(rows_of("wavelet", PREFIXES), haar(8))
    assert np.array_equal(rows_of("hierarchical", PREFIXES), binary_tree(8))
    assert np.array_equal(rows_of("workload", PREFIXES), np.tril(np.ones((8, 8))))
    for name in ("eigen-queries", "fourier"):
        rows = rows_of(name, PREFIXES)
        np.testing.assert_allclose(rows @ rows.T, (8 if name == "fourier" else 1) * np.eye(8), atol=1e-9)


def test_rows_of_several_attributes_are_products():
    one = {n: rows_of("wavelet", tb.Workload.of(tb.Identity(n))) for n in (3, 4)}
    assert np.array_equal(rows_of("wavelet", PRODUCT), np.kron(one[4], one[3]))
    assert rows_of("hierarchical", PRODUCT).shape == (7 * 5, 12)
    assert rows_of("fourier", PRODUCT).shape == rows_of("eigen-queries", PRODUCT).shape == (12, 12)


def test_the_workloads_rows_are_listed_once():
    twice = tb.Workload(DOMAIN, [TABLES["total"], tb.Table("again", {}), TABLES["prefix"]])
    merged, _ = twice.merge()
    rows = rows_of("workload", merged)
    prefixes = np.kron(np.tril(np.ones((8, 8))), np.eye(3))
    assert rows.shape == (25, 24)
    assert np.array_equal(rows[0], np.ones(24))
    assert {tuple(r) for r in rows[1:]} == {tuple(r) for r in prefixes}


TOO_MANY = {("one attribute", "workload"), ("marginals", "hierarchical"), ("disjunction", "hierarchical")}


SETS = itertools.product(["one attribute", "rank deficient", "recodes", "marginals", "disjunction"], NAMES)
EVERY = [(*case, noise) for case in SETS for noise in ("gaussian", "laplace")]


@each("workload, name, noise", EVERY[::3], long=EVERY)
def test_every_set_is_a_strategy_that_errs_as_planned(workload, name, noise):
    wl = WORKLOADS[workload]
    merged, _ = wl.merge()
    gram = explicit_gram(merged)
    s = Settings(noise, design=name)
    if (workload, name) in TOO_MANY:
        with pytest.raises(Unsupported, match=r"rows over \d+ cells, .* choose a basis"):
            eigen_strategy(wl, s)
        return
    rows = design_rows(name, merged, gram)
    planned = design_weighting(rows, gram, p=s.norm).loss
    reached = unit_rmse(eigen_strategy(wl, s), wl, "add-remove") ** 2 * wl.queries
    assert svd_bound(gram) * (1 - 1e-6) <= reached <= planned * (1 + 1e-3)


@NOISES
def test_a_matrix_may_be_an_array_or_an_operator(noise):
    matrix = np.vstack([np.ones(8, dtype=int), np.eye(8, dtype=int)])
    found = [
        unit_rmse(eigen_strategy(PREFIXES, Settings(noise, design=design)), PREFIXES, "add-remove")
        for design in (matrix, Dense(matrix), 7.5 * matrix)
    ]
    assert found[1] == found[0]
    assert found[2] == pytest.approx(found[0], rel=1e-4)
    plain = unit_rmse(eigen_strategy(PREFIXES, Settings(noise, design=Identity(8))), PREFIXES, "add-remove")
    assert plain == pytest.approx(np.sqrt(36 / 8), rel=1e-6)
    assert found[0] <= plain * (1 + 1e-6)


def test_the_eigen_queries_by_name_are_the_default_set():
    named = eigen_strategy(PREFIXES, Settings("gaussian", design="eigen-queries"))
    plain = eigen_strategy(PREFIXES, Settings("gaussian"))
    assert unit_rmse(named, PREFIXES, "add-remove") == unit_rmse(plain, PREFIXES, "add-remove")


def random_ranges(shape, count, seed):
    """Gram matrix of ranges with ends drawn at random in each attribute."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        row = np.ones(1)
        for n in shape:
            low, high = np.sort(rng.integers(0, n, size=2))
            row = np.kron(row, (np.arange(n) >= low) & (np.arange(n) <= high))
        rows.append(row)
    return np.array(rows).T @ np.array(rows)


def low_marginals(bits, ways):
    gram = np.zeros((2**bits, 2**bits))
    for kept in itertools.combinations(range(bits), ways):
        term = np.ones((1, 1))
        for i in range(bits):
            term = np.kron(term, np.eye(2) if i in kept else np.ones((2, 2)))
        gram += term
    return gram


def gain(design, gram):
    """How much less the root mean squared error is at the best weights than at equal ones, under Laplace noise."""
    best = design_weighting(design, gram, p=1)
    assert best.gap < 1e-5
    asked = best.weights > 0  # equal weights for what the workload needs at all
    return np.sqrt(error(design[asked], gram, 1) / best.loss)


SECTION_3_5 = {  # printed: 1.1, 1.5 and 1.6; which domains, how many ranges and which marginals it does not say
    "all ranges of 8 x 8 x 4": (
        np.kron(np.kron(haar(8), haar(8)), haar(4)),
        np.kron(np.kron(all_range(8), all_range(8)), all_range(4)),
        (1.12, 1.22),
    ),
    "all ranges of 256": (haar(256), all_range(256), (1.02, 1.04)),
    "random ranges of 4 x 4 x 4 x 4": (
        np.kron(np.kron(haar(4), haar(4)), np.kron(haar(4), haar(4))),
        random_ranges((4, 4, 4, 4), 64, 0),
        (1.2, 1.5),
    ),
}


@pytest.mark.parametrize("name", SECTION_3_5)
def test_section_3_5_weights_improve_the_wavelet_under_laplace_noise(name):
    design, gram, (least, most) = SECTION_3_5[name]
    assert least < gain(design, gram) < most


def test_section_3_5_weights_improve_the_fourier_basis_under_laplace_noise():
    workload = tb.Workload.of(Identity(256))
    fourier = rows_of("fourier", workload)
    assert 1.15 < gain(fourier, low_marginals(8, 2)) < 1.35
    assert 1.2 < gain(fourier, low_marginals(8, 1) + low_marginals(8, 2)) < 1.5


def test_under_laplace_noise_no_set_is_best():
    """Section 3.5: the eigenvectors are one basis among many; a wavelet suits ranges better."""
    gram = all_range(64)
    wavelet = design_weighting(haar(64), gram, p=1).loss
    assert wavelet < 0.5 * eigen_design(gram, p=1).weights.loss
    assert design_weighting(binary_tree(64), prefix(64), p=1).loss < wavelet


@pytest.mark.parametrize(
    ("design", "says"),
    [
        ("daisies", "unknown design set 'daisies': eigen-queries, wavelet"),
        (np.ones((3, 4)), "has 4 columns, but the tables tell 8 cells apart"),
        (np.ones(8), "give a matrix, one row a query"),
        (np.ones((1, 8)), "does not span the workload: its 1 rows have rank 1, and table 'x' cannot"),
        (np.vstack([np.eye(8), np.zeros((1, 8))]), "design query 8 is zero in every cell"),
        (np.full((8, 8), np.nan), r"missing or infinite numbers \(first at \[0, 0\]\)"),
        (np.diag([1.0] * 7 + [np.inf]), r"missing or infinite numbers \(first at \[7, 7\]\)"),
    ],
)
def test_bad_sets_are_refused(design, says):
    with pytest.raises(InvalidArgument, match=says):
        eigen_strategy(PREFIXES, Settings("gaussian", design=design))


def test_the_table_that_is_not_spanned_is_named():
    domain = tb.Domain({"a": 4, "b": 3})
    workload = tb.Workload(
        domain, [tb.Table("by a", {"a": Identity(4)}), tb.Table("by b", {"b": Identity(3)})]
    )
    only_a = np.kron(np.eye(4), np.ones((1, 3)))
    with pytest.raises(
        InvalidArgument, match=r"table 'by b' cannot be answered.*Add the identity.*\"eigen-queries\""
    ):
        eigen_strategy(workload, Settings("gaussian", design=only_a))


def test_sets_of_too_many_rows_are_refused():
    ranges = tb.Workload.of(tb.AllRange(64))
    for workload in (ranges, tb.Workload.of(tb.AllRange(12))):
        with pytest.raises(
            Unsupported, match=r'design set "workload" has [0-9,]+ rows over \d+ cells, and up to 4'
        ):
            rows_of("workload", workload)
    with pytest.raises(Unsupported, match="the design set has 41 rows over 8 cells"):
        rows_of(np.ones((41, 8)), PREFIXES)
    cube = tb.Workload(
        tb.Domain({"a": 4, "b": 4, "c": 4}), [tb.Table("t", {x: tb.Identity(4) for x in "abc"})]
    )
    with pytest.raises(Unsupported, match='"hierarchical" has 343 rows over 64 cells'):
        rows_of("hierarchical", cube)
