"""Unions of products in their row space: pieces, dual, integers, least squares; small cases by dense algebra."""

from __future__ import annotations

import math

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from tests.strategy.instances import WORKLOADS, dense, dense_strategy

import tabulae as tb
from benchmarks import workloads
from tabulae.domain import Term
from tabulae.errors import NotEstimable, Unsupported
from tabulae.strategy import describe_strategy, read_strategy, strategy_digest
from tabulae.strategy.bounds.dual import svd_bound
from tabulae.strategy.gram import explicit_gram
from tabulae.strategy.hdmm import rows as row_strategy
from tabulae.strategy.hdmm.opt0 import opt0_gaussian
from tabulae.strategy.hdmm.rows import PieceRows, SparseRows, independent_rows, row_optimum, row_svd_bound
from tabulae.strategy.information.routes import information
from tabulae.strategy.methods import Settings
from tabulae.strategy.strategy import unit_rmse
from tabulae.strategy.symmetry import exchangeable, symmetry

BINS = tb.Dense([[int(low <= age < high) for age in range(12)] for low, high in [(0, 3), (3, 8), (8, 12)]])
CENSUS = tb.Domain({"sex": 2, "hispanic": 2, "race": 5, "age": 12})


def _small_census() -> tb.Workload:
    """SF1 in small: single years and age groups, by sex, for some races, and repeated totals."""
    each, white, other = tb.Identity(2), tb.Dense([[1, 0, 0, 0, 0]]), tb.Dense([[0, 1]])
    race = tb.Dense([[1, 0, 0, 0, 0], [0, 1, 0, 0, 0], [0, 0, 1, 1, 1]])
    return tb.Workload(
        CENSUS,
        [
            tb.Table("P1", {}),
            tb.Table("P2", {}),
            tb.Table("P3", {"race": race}, weight="1/2"),
            tb.Table("P12", {"sex": each, "age": BINS}),
            tb.Table("P12 total", {"sex": tb.Stack([each, tb.Total(2)])}),
            tb.Table("PCT12", {"sex": each, "age": tb.Identity(12), "race": race}),
            tb.Table("PCT12H", {"sex": each, "hispanic": other, "race": white, "age": BINS}, weight=2),
        ],
    )


UNIONS = {
    **{name: WORKLOADS[name] for name in ("union", "recodes", "disjunction", "marginals", "rank deficient")},
    "census": _small_census(),
}
# Products, a disjunction of them, and rows of few queries stand for all, which `make test-long` takes.
FEW = [
    pytest.param(name, marks=() if name in ("union", "disjunction", "census") else pytest.mark.long)
    for name in UNIONS
]


def _strategy(name: str, *, by_rows: bool, monkeypatch: pytest.MonkeyPatch) -> tb.Strategy:
    if by_rows:
        monkeypatch.setattr(row_strategy, "symmetry", _no_symmetry)
    return row_strategy.row_strategy(UNIONS[name], Settings("gaussian", tolerance=1e-4))


def _no_symmetry(*_: object) -> None:
    raise Unsupported("no symmetry for this test")


# symmetry ---------------------------------------------------------------------------------------------------
@given(st.integers(0, 2**32 - 1))
def test_exchangeable_categories_are_exactly_those_whose_swap_changes_nothing(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 9))
    labels = rng.integers(0, 3, n)
    grams = []
    for _ in range(2):
        means, own = rng.integers(0, 3, (3, 3)), rng.integers(0, 3, 3)
        grams.append((means + means.T)[np.ix_(labels, labels)] + np.diag(own[labels]))
    found = exchangeable(grams)
    for j in range(n):
        for k in range(j):
            order = np.arange(n)
            order[[j, k]] = k, j
            assert (found[j] == found[k]) == all(np.array_equal(g[np.ix_(order, order)], g) for g in grams)


@pytest.mark.parametrize("name", FEW)
def test_pieces_have_the_spectrum_of_the_whole(name):
    merged, _ = UNIONS[name].merge()
    split = symmetry(merged)
    mu = np.random.default_rng(1).uniform(0.1, 1, len(split.sizes))
    shape = [p.shape[0] for p in split.classes]
    cells = (
        np.arange(math.prod(shape)).reshape(shape)[np.ix_(*(p.classes for p in split.classes))].reshape(-1)
    )
    scale = np.sqrt(mu[cells])
    whole = np.linalg.eigvalsh(explicit_gram(merged) * scale * scale[:, None])
    values = [np.repeat(np.linalg.eigvalsh(PieceRows(p).outer(mu[p.places])), p.copies) for p in split.pieces]
    parts = np.sort(np.concatenate(values))
    np.testing.assert_allclose(whole[-len(parts) :], parts, atol=1e-9 * whole[-1])
    np.testing.assert_allclose(whole[: -len(parts)], 0, atol=1e-9 * whole[-1])


# independent rows -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", FEW)
def test_distinct_rows_carry_the_gram_of_every_piece(name):
    merged, _ = UNIONS[name].merge()
    found, split = independent_rows(merged), {p.within: p for p in symmetry(merged).pieces}
    if name == "disjunction":  # a sum of products is not taken apart
        (piece,) = found.pieces
        rows = piece.rows.toarray()
        np.testing.assert_allclose(rows.T @ piece.gram @ rows, explicit_gram(merged), rtol=1e-12, atol=1e-12)
        return
    assert [p.within for p in found.pieces] == list(split)
    for piece in found.pieces:
        rows = piece.rows.toarray()
        assert len(np.unique(rows, axis=0)) == len(rows)
        other = split[piece.within]
        assert piece.copies == other.copies
        inside = [p.sizes[c] for p, c in zip(found.classes, piece.within, strict=True) if c is not None]
        sizes = np.array([1.0])
        for part, c in zip(found.classes, piece.within, strict=True):
            sizes = np.multiply.outer(sizes, part.sizes if c is None else part.sizes[c]).reshape(-1)
        weights = np.sqrt(sizes / np.prod(inside))
        gram = (rows * weights).T @ piece.gram @ (rows * weights)
        np.testing.assert_allclose(
            gram[np.ix_(other.columns, other.columns)], other.gram, rtol=1e-11, atol=1e-11 * other.gram.max()
        )


def test_cells_are_joined_across_attributes():
    """No attribute has two categories alike, yet no query tells the two cells off the diagonal apart."""
    domain = tb.Domain({"a": 2, "b": 2})
    same = "(a = 0 AND b = 0) OR (a = 1 AND b = 1)"
    sql = f"SELECT COUNT(*) FROM t WHERE a = 0 AND b = 0; SELECT COUNT(*) FROM t WHERE {same}"
    merged, _ = tb.Workload.from_sql(domain, sql).merge()
    assert merged.domain.size == 4
    (piece,) = independent_rows(merged).pieces
    assert piece.rows.shape == (2, 4)
    assert piece.distinct_columns().shape == (2, 3)


@pytest.mark.long
def test_sf1_has_the_published_structure(monkeypatch):
    """4,039 distinct rows, 26,368 distinct columns, rank 3,112."""
    merged, _ = workloads.sf1().merge()
    assert sum(p.copies * len(p.rows) for p in symmetry(merged).pieces) == 3112
    assert (
        sum(p.copies * SparseRows.of(p.rows, p.gram).count for p in independent_rows(merged).pieces) == 3112
    )
    monkeypatch.setattr("tabulae.strategy.hdmm.rows._MOST_PIECES", 0)
    (piece,) = independent_rows(merged).pieces
    assert piece.rows.shape[0] == 4039
    assert piece.distinct_columns().shape[1] == 26_368


# the dual ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", FEW)
def test_pieces_rows_and_cells_have_one_optimum(name, monkeypatch):
    monkeypatch.setattr(row_strategy, "symmetry", _no_symmetry)
    merged, _ = UNIONS[name].merge()
    split = symmetry(merged)
    by_cells = opt0_gaussian(explicit_gram(merged), tolerance=1e-6)
    by_class = row_optimum([PieceRows(p) for p in split.pieces], split.sizes, tolerance=1e-5)
    rows, sizes, _ = row_strategy.workload_rows(merged)
    assert isinstance(rows[0], SparseRows)
    by_rows = row_optimum(rows, sizes, tolerance=1e-5)
    for found in (by_class, by_rows):
        assert 0 <= found.gap <= 1e-5
        assert found.lower <= by_cells.loss * (1 + 1e-9)
        assert found.lower == pytest.approx(by_cells.lower, rel=2e-5)
        assert found.loss == pytest.approx(by_cells.loss, rel=2e-5)
    svd = svd_bound(explicit_gram(merged))
    assert row_svd_bound([PieceRows(p) for p in split.pieces], split.sizes) == pytest.approx(svd, rel=1e-6)
    assert row_strategy.rows_svd_bound(independent_rows(merged)) == pytest.approx(svd, rel=1e-6)
    assert svd <= by_class.lower * (1 + 1e-9)


@pytest.mark.parametrize("most", [0, 2**20])
@given(seed=st.integers(0, 2**32 - 1))
def test_short_columns_and_long_ones_give_the_dense_outer_product_and_squares(seed, most):
    """Products of entries of one column are kept where they are few; 0 keeps none."""
    rng = np.random.default_rng(seed)
    m, n = rng.integers(16, 25), rng.integers(30, 60)
    J = np.where(rng.random((m, n)) < 3 / m, rng.integers(-3, 4, (m, n)), 0) + np.eye(m, n, dtype=int)
    half = rng.normal(size=(m, m))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_strategy, "_MOST_PRODUCTS", most)
        rows = SparseRows.of(sp.csr_array(J), half @ half.T)
        assert rows.count == np.linalg.matrix_rank(J)
        if most == 0:
            assert rows.work == rows.count**3 + 2 * rows.rows.nnz * rows.count
        else:
            assert rows.work < rows.count**3 + rows.rows.nnz * rows.count
        whole, mu = rows.mix.T @ J, rng.random(n)
        outer, root = (whole * mu) @ whole.T, rng.normal(size=(rows.count, rows.count))
        squares = np.square(root.T @ whole).sum(axis=0)
        assert rows.outer(mu) == pytest.approx(outer, abs=1e-12 * np.abs(outer).max())
        assert rows.column_squares(root) == pytest.approx(squares, abs=1e-12 * squares.max())


@pytest.mark.parametrize("seed", range(4))
def test_semidefinite_oracle_agrees(seed):
    """min tr(W X^-1 W') over diag X <= 1 as a semidefinite program, for rows with repeats and dependent rows."""
    rng = np.random.default_rng(seed)
    W = (rng.random((4 + seed, 12)) < 0.5).astype(float)
    W = np.vstack([W, W[0] + W[1], W[:1]])
    values, vectors = np.linalg.eigh(W @ W.T)
    independent = (vectors[:, values > 1e-9].T @ W)[:, W.any(axis=0)]
    m, n = independent.shape
    block = cp.Variable((m + n, m + n), PSD=True)
    problem = cp.Problem(
        cp.Minimize(cp.trace(block[:m, :m])), [block[:m, m:] == independent, cp.diag(block[m:, m:]) <= 1]
    )
    problem.solve(solver="CLARABEL", tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)
    best = row_optimum([SparseRows.of(sp.csr_array(W))], np.ones(12), tolerance=1e-6)
    assert best.lower <= problem.value * (1 + 1e-6)
    assert best.loss == pytest.approx(problem.value, rel=3e-6)


# strategies -------------------------------------------------------------------------------------------------
CASES = [(name, by_rows) for name in UNIONS for by_rows in (False, True)]


@pytest.mark.parametrize(("name", "by_rows"), CASES)
def test_what_is_measured_is_optimal_as_measured(name, by_rows, monkeypatch):
    """Integers, exact sensitivity under both neighbours, and the dense formula's error: all on the rounded matrix."""
    wl = UNIONS[name]
    strategy = _strategy(name, by_rows=by_rows, monkeypatch=monkeypatch)
    a = dense_strategy(strategy)
    norms = np.square(a).sum(axis=0)
    distances = norms[:, None] + norms - 2 * a.T @ a
    assert float(strategy.sensitivity().power) == pytest.approx(norms.max(), rel=1e-12)
    assert float(strategy.sensitivity("replace").power) == pytest.approx(distances.max(), rel=1e-9)
    p = np.linalg.pinv(a.T @ a, rcond=1e-10) * norms.max()
    total = sum(
        float(t.weight) ** 2 * np.einsum("ij,jk,ik->", w, p, w)
        for t, w in zip(wl.tables, dense(wl).values(), strict=True)
    )
    assert unit_rmse(strategy, wl, "add-remove") ** 2 * wl.queries == pytest.approx(total, rel=1e-7)
    assert strategy.lower is not None
    assert strategy.lower * (1 - 1e-9) <= total <= strategy.lower * (1 + 2e-4)


@pytest.mark.parametrize(("name", "by_rows"), CASES)
def test_least_squares_equals_dense_algebra(name, by_rows, monkeypatch):
    wl = UNIONS[name]
    strategy = _strategy(name, by_rows=by_rows, monkeypatch=monkeypatch)
    info = information(strategy, (2.0,))
    assert info.route == "classes"
    a = dense_strategy(strategy)
    pinv = np.linalg.pinv(a, rcond=1e-8)
    answers = np.random.default_rng(2).normal(size=len(a))
    for table, matrix in zip(wl.tables, dense(wl).values(), strict=True):
        operator = table.operator(wl.domain)
        z = matrix @ pinv
        size = np.sqrt(np.square(z).sum(axis=1).max())
        assert info.answer(operator, [answers]) == pytest.approx(z @ answers, abs=1e-6 * size * len(a))
        assert info.variance(operator) == pytest.approx(2 * np.square(z).sum(axis=1), rel=1e-6)
        profile = info.profile(operator)
        every = slice(None) if profile.inverse is None else profile.inverse
        assert profile.power2[0][every] == pytest.approx(np.square(z).sum(axis=1), rel=1e-6)
        for got, true in ((profile.power4, (z**4).sum(axis=1)), (profile.largest, np.abs(z).max(axis=1))):
            assert (got[0][every] >= true * (1 - 1e-5)).all()
            if profile.exact:
                assert got[0][every] == pytest.approx(true, rel=1e-4)


@pytest.mark.parametrize(("name", "by_rows"), CASES)
def test_a_strategy_survives_its_document(name, by_rows, monkeypatch):
    strategy = _strategy(name, by_rows=by_rows, monkeypatch=monkeypatch)
    document, arrays = describe_strategy(strategy)
    again = read_strategy(document, arrays, strategy.domain)
    assert again.blocks == strategy.blocks
    assert strategy_digest(again) == strategy_digest(strategy)
    assert again.sensitivity("replace") == strategy.sensitivity("replace")


@pytest.mark.parametrize("by_rows", [False, True])
def test_what_was_not_asked_cannot_be_answered(by_rows, monkeypatch):
    info = information(_strategy("census", by_rows=by_rows, monkeypatch=monkeypatch), (1.0,))
    for factors in (
        {"hispanic": tb.Identity(2)},
        {"race": tb.Identity(5)},
        {"age": tb.Identity(12), "hispanic": tb.Identity(2)},
        {"sex": tb.Dense([[1, 0]]), "race": tb.Dense([[0, 0, 0, 1, 0]])},
    ):
        with pytest.raises(NotEstimable):
            info.variance(tb.Table("more", factors).operator(CENSUS))
    coarser = tb.Table("coarser", {"age": tb.Dense([[1] * 8 + [0] * 4]), "race": tb.Dense([[0, 0, 1, 1, 1]])})
    assert info.variance(coarser.operator(CENSUS)) > 0


def test_rounding_loses_less_than_a_hundred_thousandth():
    merged, _ = UNIONS["census"].merge()
    split = symmetry(merged)
    real = row_optimum([PieceRows(p) for p in split.pieces], split.sizes, tolerance=1e-5)
    strategy = row_strategy.row_strategy(UNIONS["census"], Settings("gaussian"))
    measured = unit_rmse(strategy, UNIONS["census"], "add-remove") ** 2 * UNIONS["census"].queries
    assert measured <= real.loss * (1 + 1e-5)


def test_estimates_are_unbiased_with_the_variance_stated():
    wl = UNIONS["census"]
    strategy = row_strategy.row_strategy(wl, Settings("gaussian"))
    x = np.random.default_rng(3).integers(0, 50, CENSUS.size)
    counts = tb.Counts.from_array(CENSUS, x)
    truth = np.concatenate([w @ x for w in dense(wl).values()])
    errors = []
    for seed in range(20):
        measured = tb.measure(counts, strategy, tb.ZCDP("1/2"), source=tb.noise.Insecure(seed))
        errors.append(np.concatenate(list(tb.estimate(measured).answer(wl).values())) - truth)
    variance = np.concatenate(list(tb.estimate(measured).variance(wl).values()))
    score = np.mean(errors, axis=0) / np.sqrt(variance / len(errors))
    assert np.abs(score).max() < 5
    assert np.mean(np.square(errors) / variance) == pytest.approx(1, abs=0.12)


# select -----------------------------------------------------------------------------------------------------
SIGMA = 4.224678889326836  # analytic Gaussian mechanism at (1, 1e-6), sensitivity 1


@pytest.mark.long
def test_sf1_whole_is_certified():
    """HDMM, Table 7: 9.80 for SF1; the optimum is 8.0445."""
    wl = workloads.sf1()
    strategy = tb.select(wl, method="opt0")
    assert strategy.certificate is not None
    assert strategy.certificate <= 2e-5
    budget = tb.ApproxDP(1, "1e-6")
    rmse = strategy.error(wl, budget).rmse
    dual = tb.lower_bound(wl, budget=budget, kind="dual")
    assert rmse == pytest.approx(8.0445, abs=1e-4)
    assert tb.lower_bound(wl, budget=budget, kind="svd") < dual <= rmse <= dual * (1 + 2e-5)


def test_the_search_stops_at_the_tolerance_that_is_named():
    """Where none is named and a step is cheap, it goes on to 1e-5."""
    named = [Settings("gaussian", tolerance=t, enough=t) for t in (0.1, 1e-3)]
    workload, gaps = _small_census(), []
    for settings in (*named, Settings("gaussian")):
        strategy = row_strategy.row_strategy(workload, settings)
        gaps.append(unit_rmse(strategy, workload, "add-remove") ** 2 * workload.queries / strategy.lower - 1)
    assert 0.1 >= gaps[0] > 1e-3 >= gaps[1] > 2e-5 >= gaps[2]


def test_marginals_of_any_size_are_optimal():
    """Theorem 12: every piece is 1 x 1, and the SVD bound is attained."""
    wl = workloads.example15()
    strategy = tb.select(wl, method="opt0")
    budget = tb.ApproxDP(1, "1e-6")
    assert strategy.error(wl, budget).tse / SIGMA**2 == pytest.approx(16_410.524, abs=0.01)


RNG = np.random.default_rng(7)
FEW_QUERIES = {
    "joint": tb.Table.joint("few", ["a", "b"], tb.Dense(RNG.integers(0, 2, (12, 300)))),
    "sum": tb.Table.of_terms(
        "few",
        [
            Term(c, {"a": tb.Dense(RNG.integers(0, 2, (4, 20))), "b": tb.Dense(RNG.integers(0, 2, (3, 15)))})
            for c in (3, -1)
        ],
    ),
    "real": tb.Table("halves", {"a": tb.Dense(RNG.integers(0, 2, (12, 20)) / 2), "b": tb.Total(15)}),
}


@pytest.mark.parametrize(
    "name",
    [
        "sum",
        *(pytest.param(n, marks=pytest.mark.long) for n in FEW_QUERIES if n != "sum"),
    ],
)
def test_few_queries_about_many_cells_are_optimised_as_rows(name):
    """As good as over all cells; integer queries are measured by as many answers, real ones by one for each cell."""
    domain = tb.Domain({"a": 20, "b": 15})
    tables = [FEW_QUERIES[name], tb.Table("all", {})]
    if name == "real":  # beside a sum of products, which tells all cells apart
        tables.append(FEW_QUERIES["joint"])
    workload = tb.Workload(domain, tables)
    best = tb.select(workload, method="opt0", tolerance=1e-5)
    queries = np.concatenate([table.operator(domain).dense() for table in tables])
    assert best.blocks[0].query.shape == (workload.merge()[0].domain.size if name == "real" else 13, 300)
    loss = unit_rmse(best, workload, "add-remove") ** 2 * workload.queries
    dense = opt0_gaussian(queries.T @ queries, tolerance=1e-3)
    assert dense.lower <= loss <= dense.loss * (1 + 3e-5)
    assert best.certificate <= 3e-5


@pytest.mark.long
def test_a_workload_with_neither_few_classes_nor_few_rows_is_refused():
    domain = tb.Domain({"a": 80, "b": 90})
    wl = tb.Workload(domain, [tb.Table("all", {"a": tb.AllRange(80), "b": tb.Prefix(90)})])
    with pytest.raises(Unsupported, match="7,200"):
        row_strategy.row_strategy(wl, Settings("gaussian"))


def test_records_over_a_domain_that_cannot_be_listed():
    """2.6e10 cells: sensitivity, answers, estimates without a number per cell; noise is negligible at this budget."""
    domain = tb.Domain({f"a{i}": 20 for i in range(8)})
    wl = tb.Workload.marginals(domain, ways=[1, 2])
    strategy = tb.select(wl, method="opt0")
    assert strategy.certificate is not None
    assert strategy.certificate <= 2e-5
    assert strategy.sensitivity("replace").is_exact
    codes = np.random.default_rng(4).integers(0, 20, (1000, 8))
    counts = tb.Counts.from_records(domain, codes)
    measured = tb.measure(counts, strategy, tb.ZCDP(10**12), source=tb.noise.Insecure(5))
    answers = tb.estimate(measured).answer(wl)
    for i, j in [(0, 1), (2, 7)]:
        true = np.zeros((20, 20))
        np.add.at(true, (codes[:, i], codes[:, j]), 1)
        assert answers[f"a{i}*a{j}"] == pytest.approx(true.reshape(-1), abs=1e-3)
