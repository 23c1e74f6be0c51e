"""The eigen-design of products: against the matrix over all cells, cvxpy, and a rehearsal of a release."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

import cvxpy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.each import each, pairwise

import tabulae as tb
from tabulae.errors import InvalidArgument, Unsupported
from tabulae.linalg import Dense, Identity, LinearOperator, Partition
from tabulae.strategy.bounds.dual import svd_bound
from tabulae.strategy.eigen.design import eigen_design, eigen_queries
from tabulae.strategy.eigen.strategies import halving, product_design, product_factors
from tabulae.strategy.eigen.weighting import kron_weighting, query_weighting
from tabulae.strategy.gram import dense_grams, explicit_gram
from tabulae.strategy.information.routes import information
from tabulae.strategy.information.weighted_kron import weighted_kron
from tabulae.strategy.methods import Settings
from tabulae.strategy.strategy import unit_rmse

DOMAIN = tb.Domain({"age": 6, "sex": 2, "race": 3})
EYES = {"sex": tb.Identity(2), "race": tb.Identity(3)}
RANGES = tb.AllRange(6)
CHAIN = Dense(
    [[1, 2, 0], [0, 1, 1], [0, 0, 3]]
)  # no product of its eigenvalues with those of RANGES occurs twice
CYCLE = Dense(np.eye(6, dtype=int) + np.roll(np.eye(6, dtype=int), 1, axis=1))


def _workload(*tables: Mapping[str, LinearOperator], domain: tb.Domain = DOMAIN) -> tb.Workload:
    return tb.Workload(domain, [tb.Table(f"t{k}", t, weight=k + 1) for k, t in enumerate(tables)])


def _squared(operator: LinearOperator) -> Dense:
    """A matrix whose Gram matrix has the same eigenvectors."""
    return Dense(operator.gram().dense())


COMMUTING = {
    "ranges by one of two": _workload({"age": RANGES, "sex": EYES["sex"]}, {"age": RANGES, "race": EYES["race"]}),
    "circulants": _workload(
        {"age": CYCLE, "sex": EYES["sex"]}, {"age": Identity(6), "race": EYES["race"]}, {"race": tb.Identity(3)}
    ),
    "two real attributes": _workload(
        {"age": RANGES, "race": CHAIN}, {"age": _squared(RANGES), "race": _squared(CHAIN), "sex": EYES["sex"]},
    ),
}  # fmt: skip
OTHERS = {
    "ranges and prefixes": _workload(
        {"age": RANGES, "sex": EYES["sex"]},
        {"age": tb.Prefix(6), "race": EYES["race"]},
        {"age": tb.Identity(6)},
    ),
    "ranges beside marginals": _workload({"age": RANGES, "sex": EYES["sex"]}, EYES, {"age": tb.Identity(6)}),
    "few queries": _workload(
        {"age": Dense([[1, 1, 0, 0, 0, 0], [0, 1, 1, 1, 0, 0]]), "race": EYES["race"]}, EYES
    ),
    "merged": _workload(
        {"age": Partition([0, 0, 1, 2, 2, 3]), "sex": EYES["sex"]}, {"age": Dense([[0, 0, 1, 1, 1, 1]])}
    ),
}
ALL = COMMUTING | OTHERS


def _design(workload: tb.Workload, noise: str = "gaussian") -> tb.Strategy:
    found = product_design(workload, Settings(noise))  # type: ignore[arg-type]
    assert found is not None
    return found


def _loss(strategy: tb.Strategy, workload: tb.Workload) -> float:
    return unit_rmse(strategy, workload, "add-remove") ** 2 * workload.queries


@pytest.mark.parametrize("name", COMMUTING)
def test_common_eigenvectors_give_the_eigen_design(name: str) -> None:
    workload = COMMUTING[name]
    queries, values = eigen_queries(explicit_gram(workload.merge()[0]))
    best = query_weighting(queries, values, tolerance=1e-8)
    strategy = _design(workload)
    assert information(strategy, (1.0,)).route == "weighted-kron"
    # near the eigenvectors on a grid; those themselves are compared below
    assert _loss(strategy, workload) == pytest.approx(best.loss, rel=3e-4)


@pytest.mark.parametrize("name", COMMUTING)
def test_weights_of_real_eigenvectors_are_the_optimum(name: str) -> None:
    """Program 1 by Kronecker products is Program 1 over the matrix."""
    terms = dense_grams(COMMUTING[name].merge()[0])
    vectors = []
    for i, V in enumerate(terms[0][1]):
        share = np.zeros(V.shape)
        for k, (_, grams) in enumerate(terms):
            share += math.sqrt(k + 2) * grams[i] / np.linalg.norm(grams[i])
        vectors.append(np.linalg.eigh(share)[1])
    costs = np.zeros([len(q) for q in vectors])
    for c, grams in terms:
        product = np.array(c)
        for q, V in zip(vectors, grams, strict=True):
            product = np.multiply.outer(product, np.diag(q.T @ V @ q))
        costs += product
    costs = np.where(costs > 1e-11 * costs.max(), costs, 0.0)
    queries, values = eigen_queries(explicit_gram(COMMUTING[name].merge()[0]))
    found = kron_weighting([q.T**2 for q in vectors], costs, tolerance=1e-8)
    best = query_weighting(queries, values, tolerance=1e-8)
    # an eigenvalue may belong to several eigenvectors, of which the sets may choose different ones
    assert found.loss == pytest.approx(best.loss, rel=1e-6) or name == "circulants"
    assert svd_bound(explicit_gram(COMMUTING[name].merge()[0])) <= found.loss * (1 + 1e-9)


@each("p", [1, 2])
@each("name", ALL)
def test_weights_are_those_of_a_conic_solver(name: str, p: int) -> None:
    """Program 1 over the integer rows, with B written out: what is measured loses no more than its grid."""
    workload, noise = ALL[name], "gaussian" if p == 2 else "laplace"
    strategy = _design(workload, noise)
    found = weighted_kron(strategy.blocks[0].query)
    assert found is not None
    view, axes = found
    real = np.ones((1, 1))
    for axis in axes:
        real = np.kron(real, np.asarray(axis.rows.dense(), float))
    pseudo = np.linalg.pinv(real)
    costs = np.einsum("ij,ij->j", pseudo, explicit_gram(workload.merge()[0]) @ pseudo)
    lengths = np.linalg.norm(real, axis=1)
    norms, costs = np.abs(real / lengths[:, None]) ** p, costs * lengths**2
    asked = costs > 1e-12 * costs.max()
    w = cvxpy.Variable(int(asked.sum()), pos=True)
    power = 1 if p == 2 else 2
    loss = cvxpy.sum(cvxpy.multiply(costs[asked] / costs.max(), cvxpy.power(w, -power)))
    problem = cvxpy.Problem(cvxpy.Minimize(loss), [norms[asked].T @ w <= 1])
    problem.solve(solver=cvxpy.CLARABEL)
    assert _loss(strategy, workload) == pytest.approx(problem.value * costs.max(), rel=1e-3)
    assert (view.weights.ravel()[asked] != 0).all()


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([1, 2]))
def test_the_gap_is_certified(seed: int, p: int) -> None:
    rng = np.random.default_rng(seed)
    norms = [np.abs(rng.normal(size=(3, 4))), np.abs(rng.normal(size=(2, 3)))]
    costs = rng.exponential(size=(3, 2)) * (rng.random((3, 2)) < 0.8)
    costs[0, 0] = 1.0
    found = kron_weighting(norms, costs, p=p, tolerance=1e-7)
    assert found.gap <= 1e-6
    columns = np.einsum("ab,ai,bj->ij", found.weights**p, *norms)
    assert columns.max() == pytest.approx(1.0)
    asked = costs > 0
    assert (costs[asked] / found.weights[asked] ** 2).sum() == pytest.approx(found.loss)
    other = np.where(
        asked, rng.exponential(size=costs.shape), 0.0
    )  # no other weights have less than the bound
    other = other / np.einsum("ab,ai,bj->ij", other**p, *norms).max() ** (1 / p)
    assert (costs[asked] / other[asked] ** 2).sum() >= found.lower


def test_one_product_is_designed_attribute_by_attribute() -> None:
    workload = _workload({"age": RANGES, "race": tb.Prefix(3), "sex": EYES["sex"]})
    strategy = _design(workload)
    assert information(strategy, (1.0,)).route == "kron"
    expected = 1.0
    for V in (RANGES.gram().dense(), tb.Prefix(3).gram().dense(), np.eye(2)):
        A = eigen_design(np.asarray(V, float)).strategy
        expected *= float(np.trace(np.linalg.inv(A.T @ A) @ V))
    loss = _loss(strategy, workload)
    assert (
        0.95 * expected <= loss <= (1 + 1e-5) * expected
    )  # a small matrix near the design may be better than it


@pytest.mark.parametrize("ways", [[1], [1, 2], [2], [0, 3]])
def test_marginals_attain_the_singular_value_bound(ways: list[int]) -> None:
    workload = tb.Workload.marginals(DOMAIN, ways=ways)
    gram = explicit_gram(workload.merge()[0])
    assert _loss(_design(workload), workload) == pytest.approx(svd_bound(gram), rel=1e-6)
    queries, values = eigen_queries(gram)
    assert _loss(_design(workload), workload) == pytest.approx(
        query_weighting(queries, values).loss, rel=2e-6
    )


def test_laplace_weights_of_halves_beat_arbitrary_eigenvectors() -> None:
    workload = tb.Workload.marginals(DOMAIN, ways=[1, 2])
    queries, values = eigen_queries(explicit_gram(workload.merge()[0]))
    assert _loss(_design(workload, "laplace"), workload) < query_weighting(queries, values, p=1).loss


@each("n", range(1, 12))
def test_halves_are_orthogonal(n: int) -> None:
    rows = halving(n)
    gram = rows @ rows.T
    assert rows.shape == (n, n)
    assert np.array_equal(gram, np.diag(np.diag(gram)))
    assert np.diag(gram).all()


def test_product_factors_multiply_to_the_gram_matrix() -> None:
    for workload in [
        *ALL.values(),
        tb.Workload.marginals(DOMAIN, ways=[0, 1, 2, 3]),
        _workload({"age": RANGES}),
    ]:
        terms = dense_grams(workload)
        factors = product_factors(terms)
        whole = np.ones((1, 1))
        for V in factors or []:
            whole = np.kron(whole, V)
        rank_one = _rank_of_terms(workload) == 1
        assert (factors is None) != rank_one
        assert factors is None or np.allclose(whole, explicit_gram(workload))


def _rank_of_terms(workload: tb.Workload) -> int:
    """The largest rank, over the attributes, of W'W rearranged with an attribute's entries as rows."""
    gram = explicit_gram(workload)
    shape, ranks = workload.domain.shape, []
    whole = gram.reshape(*shape, *shape)
    for i in range(len(shape)):
        moved = np.moveaxis(whole, [i, i + len(shape)], [0, 1])
        ranks.append(int(np.linalg.matrix_rank(moved.reshape(shape[i] ** 2, -1), rtol=1e-9)))
    return max(ranks)


@each(
    *pairwise(name=ALL, noise=["gaussian", "laplace"], neighbours=["add-remove", "replace"]),
    long=itertools.product(ALL, ["gaussian", "laplace"], ["add-remove", "replace"]),
)
def test_every_design_has_exact_sensitivity_and_the_error_of_dense_least_squares(
    name: str, noise: str, neighbours: str
) -> None:
    workload = ALL[name]
    strategy = _design(workload, noise)
    (block,) = strategy.blocks
    A = np.asarray(block.query.dense()).astype(object)
    p = strategy.norm
    differ = [A[:, j] for j in range(A.shape[1])]
    if neighbours == "replace":
        differ = [a - b for a in differ for b in differ]
    found = strategy.sensitivity(neighbours)
    assert found.is_exact
    assert found.power * 2 ** (p * block.exponent) == max((abs(d) ** p).sum() for d in differ)
    real = A.astype(float) * 2.0**-block.exponent
    total = 0.0
    for table in workload.tables:
        W = np.asarray(table.operator(DOMAIN).dense(), float)
        total += float(table.weight) ** 2 * float(np.square(W @ np.linalg.pinv(real, rcond=1e-13)).sum())
    assert information(strategy, (1.0,)).total(workload) == pytest.approx(total, rel=1e-6)


@pytest.mark.parametrize(("noise", "neighbours"), [("gaussian", "replace"), ("laplace", "add-remove")])
def test_a_rehearsal_answers_the_tables(noise: str, neighbours: str) -> None:
    workload = OTHERS["ranges beside marginals"]
    counts = np.random.default_rng(3).poisson(30.0, DOMAIN.size)
    strategy = _design(workload, noise)
    budget = tb.ZCDP("1/2") if noise == "gaussian" else tb.PureDP(1)
    source, inside = tb.noise.Insecure(11), []
    widths = tb.estimate(
        tb.measure(counts, strategy, budget, neighbours=neighbours, source=source)
    ).half_widths(workload, 0.9)
    for _ in range(100):
        measured = tb.measure(counts, strategy, budget, neighbours=neighbours, source=source)
        answers = tb.estimate(measured).answer(workload)
        for table in workload.tables:
            error = answers[table.name] - table.operator(DOMAIN) @ counts
            inside.append(np.abs(error) <= widths[table.name].values)
    assert 0.87 <= np.concatenate(inside).mean() <= 0.93
    nearly = tb.measure(
        counts, strategy, tb.PureDP(10**7) if noise == "laplace" else tb.ZCDP(10**12), source=source
    )
    for method in ("least-squares", "non-negative"):
        answers = tb.estimate(nearly, method=method).answer(workload)
        for table in workload.tables:
            assert np.allclose(answers[table.name], table.operator(DOMAIN) @ counts, atol=0.01), (
                method,
                table.name,
            )


@pytest.mark.long
def test_a_million_cells_take_no_matrix_over_them() -> None:
    domain = tb.Domain({"age": 100, "sex": 2, "race": 7, "household": 20, "work": 36})
    eyes = {name: tb.Identity(n) for name, n in zip(domain.names, domain.shape, strict=True)}
    asked = [("age", "sex"), ("age", "race"), ("household", "race"), ("age", "work")]
    workload = tb.Workload(
        domain,
        [tb.Table("*".join(s), {i: tb.AllRange(100) if i == "age" else eyes[i] for i in s}) for s in asked],
    )
    strategy = _design(workload)
    assert domain.size == 1_008_000
    assert strategy.sensitivity().is_exact
    assert strategy.sensitivity("replace").is_exact
    assert unit_rmse(strategy, workload, "add-remove") < unit_rmse(
        tb.select(workload, noise="gaussian", method="identity"), workload, "add-remove"
    )


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_products_of_a_sum_that_share_no_cell(noise: str) -> None:
    """Their cross product is zero: no direction to take eigenvectors of."""
    sql = (
        "SELECT a, COUNT(*) FROM t WHERE (a = 0 AND b = 1) OR (a = 1 AND c = 1) GROUP BY a; "
        "SELECT b, COUNT(*) FROM t WHERE c < 2 GROUP BY b"
    )
    workload = tb.Workload.from_sql(tb.Domain({"a": 3, "b": 4, "c": 4}), sql)
    strategy = product_design(workload, Settings(noise))  # type: ignore[arg-type]
    assert strategy is not None
    dense = np.vstack([b.query.dense() * 2.0**-b.exponent for b in strategy.blocks])
    W = np.vstack([np.asarray(t.operator(workload.domain).dense(), dtype=float) for t in workload.tables])
    left = W - W @ np.linalg.pinv(dense) @ dense
    assert np.abs(left).max() < 1e-8


def test_what_is_too_large_is_left_to_others() -> None:
    wide = tb.Domain({"a": 8193, "b": 2})
    assert (
        product_design(tb.Workload(wide, [tb.Table("t", {"a": tb.Prefix(8193)})]), Settings("gaussian"))
        is None
    )
    many = tb.Domain({f"x{i}": 9 for i in range(10)})
    every = [
        tb.Table(f"t{i}", {f"x{i}": tb.Prefix(9), f"x{(i + 1) % 10}": tb.AllRange(9)}) for i in range(10)
    ]
    assert product_design(tb.Workload(many, every), Settings("gaussian")) is None
    several = tb.Domain({f"x{i}": 3 for i in range(8)})
    every = [tb.Table(f"t{i}", {f"x{i}": tb.Prefix(3), f"x{(i + 1) % 8}": tb.AllRange(3)}) for i in range(8)]
    with pytest.raises(Unsupported, match="residual"):
        product_design(tb.Workload(several, every), Settings("gaussian"))


@pytest.mark.parametrize(
    "costs", [np.zeros((1, 1)), -np.ones((1, 1)), np.full((1, 1), np.nan), np.ones((2, 1))]
)
def test_costs_that_are_none_are_refused(costs: np.ndarray) -> None:
    with pytest.raises(InvalidArgument, match="costs"):
        kron_weighting([np.ones((1, 1))] * 2, costs)
