"""OPT_+: groups, the split of the budget by brute force, clusters, and what they cost by dense algebra."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.optimize
from benchmarks.hdmm import split_loss
from tests.strategy.instances import DOMAIN, TABLES, WORKLOADS, dense, dense_strategy

import tabulae as tb
from benchmarks import workloads
from tabulae.errors import InvalidArgument, Unsupported
from tabulae.linalg import Dense
from tabulae.strategy.block import short_scale
from tabulae.strategy.hdmm.opt0 import opt0_gaussian
from tabulae.strategy.hdmm.union import clusters, groups_of, union_strategy
from tabulae.strategy.methods import Settings
from tabulae.strategy.rounding import to_grid
from tabulae.strategy.strategy import unit_rmse

SIGMA = 4.224678889326836
NOISES = pytest.mark.parametrize("noise", ["gaussian", "laplace"])
UNIONS = ["union", "recodes", "disjunction", "marginals"]
LONG = [("union", "laplace"), ("disjunction", "laplace")]  # which are searched for longest
CASES = [
    pytest.param(name, noise, marks=pytest.mark.long if (name, noise) in LONG else ())
    for name in UNIONS
    for noise in ("gaussian", "laplace")
]


def alone(workload: tb.Workload) -> tuple[tuple[str, ...], ...]:
    return tuple((table.name,) for table in workload.tables)


@NOISES
@pytest.mark.parametrize("losses", [(1.0, 4.0), (3.0, 0.2, 50.0), (1.0,) * 5])
def test_the_split_is_the_best_of_all_splits(noise, losses):
    """Brute force: shares of the budget on the simplex; a share r of it multiplies errors by 1/r or 1/r^2."""
    power = 1 if noise == "gaussian" else 2
    logits = scipy.optimize.minimize(
        lambda x: sum(loss / s**power for loss, s in zip(losses, np.exp(x) / np.exp(x).sum(), strict=True)),
        np.zeros(len(losses)),
        tol=1e-12,
    )
    assert split_loss(losses, noise) == pytest.approx(logits.fun, rel=1e-7)


@NOISES
@pytest.mark.parametrize("name", UNIONS)
def test_groups_cost_what_dense_algebra_says_and_share_the_budget_best(name, noise):
    workload = WORKLOADS[name]
    settings = Settings(noise, groups=alone(workload))
    groups = groups_of(workload, settings)
    strategy = union_strategy(workload, settings)
    matrices = dense(workload)
    shares = []
    for group, block in zip(groups, strategy.blocks, strict=True):
        a = np.asarray(block.query.dense(), float)
        norm = np.linalg.norm(a, 1 if noise == "laplace" else 2, axis=0).max()
        w = np.vstack([float(t.weight) * matrices[t.name] for t in group.tables])
        loss = norm**2 * np.square(w @ np.linalg.pinv(a, rcond=1e-11)).sum()
        assert group.loss == pytest.approx(loss, rel=1e-4)
        unit = norm * 2.0**-block.exponent
        shares.append(unit**2 / float(block.scale) if noise == "gaussian" else unit / float(block.scale))
    root = 1 / 2 if noise == "gaussian" else 1 / 3
    wanted = np.array([g.loss**root for g in groups])
    np.testing.assert_allclose(np.array(shares) / sum(shares), wanted / wanted.sum(), rtol=1e-4)


@pytest.mark.parametrize(("name", "noise"), CASES)
def test_joint_least_squares_never_costs_more_than_the_groups_alone(name, noise):
    workload = WORKLOADS[name]
    strategy = tb.select(workload, noise=noise, method="union")
    losses = [g.loss for g in groups_of(workload, Settings(noise))]
    assert strategy.candidates[0].rmse is not None
    reached = strategy.candidates[0].rmse ** 2 * workload.queries
    assert reached <= split_loss(losses, noise) * (1 + 1e-4)


@pytest.mark.parametrize(("name", "noise"), CASES[:-2])  # of marginals each table is a cluster
def test_clusters_cost_no_more_than_one_table_each_or_all_together(name, noise):
    workload = WORKLOADS[name]
    together = (tuple(t.name for t in workload.tables),)
    found = tuple(tuple(t.name for t in group) for group in clusters(workload, Settings(noise)))
    cost = {
        label: split_loss([g.loss for g in groups_of(workload, Settings(noise, groups=groups))], noise)
        for label, groups in (("found", found), ("alone", alone(workload)), ("together", together))
    }
    assert cost["found"] <= min(cost["alone"], cost["together"]) * 1.01


def random_tables(seed: int) -> tb.Workload:
    """Two to four tables over two or three attributes: categories, prefixes, ranges, predicates; weights 1 to 3."""
    rng = np.random.default_rng(seed)
    sizes = {name: int(rng.integers(2, 6)) for name in "abc"[: rng.integers(2, 4)]}

    def factor(n: int) -> tb.LinearOperator:
        predicates = rng.integers(0, 2, (3, n))
        predicates[:, 0] = 1
        return (tb.Identity(n), tb.Prefix(n), tb.AllRange(n), Dense(predicates))[rng.integers(4)]

    tables = []
    for k in range(rng.integers(2, 5)):
        asked = [name for name in sizes if rng.random() < 0.6] or ["a"]
        factors = {name: factor(sizes[name]) for name in asked}
        tables.append(tb.Table(f"t{k}", factors, int(rng.integers(1, 4))))
    return tb.Workload(tb.Domain(sizes), tables)


@NOISES
@pytest.mark.parametrize("seeds", [(16,), pytest.param(range(60), marks=pytest.mark.long)], ids=["few", "60"])
def test_groups_found_never_err_more_than_one_group_or_one_for_each_table(seeds, noise):
    """By the least squares of all groups together, not by the sum of what each errs alone."""
    for seed in seeds:
        never_worse_than_given_groups(random_tables(seed), noise)


def never_worse_than_given_groups(workload, noise):
    found = unit_rmse(union_strategy(workload, Settings(noise)), workload, "add-remove")
    for groups in ((tuple(t.name for t in workload.tables),), alone(workload)):
        given = union_strategy(workload, Settings(noise, groups=groups))
        assert found <= unit_rmse(given, workload, "add-remove") * (1 + 1e-6)


def test_tables_that_ask_for_parts_of_each_other_are_joined():
    """One set of ranges in two copies is best measured once; prefixes of another attribute are apart."""
    domain = tb.Domain({"a": 16, "b": 12})
    tables = [
        tb.Table("ranges", {"a": tb.AllRange(16)}),
        tb.Table("again", {"a": tb.AllRange(16)}),
        tb.Table("other", {"b": tb.Prefix(12)}),
    ]
    for noise in ("gaussian", "laplace"):
        found = clusters(tb.Workload(domain, tables), Settings(noise))
        assert sorted(sorted(t.name for t in cluster) for cluster in found) == [
            ["again", "ranges"],
            ["other"],
        ]


def test_marginals_are_clustered_by_their_attributes_and_solved_in_closed_form():
    domain = tb.Domain({"a": 3, "b": 4, "c": 5})
    tables = [*tb.Workload.marginals(domain, ways=[1, 2]).tables, tb.Table("twice", {"a": tb.Identity(3)}, 2)]
    strategy = tb.select(tb.Workload(domain, tables), noise="gaussian", method="union")
    assert sorted(b.name for b in strategy.blocks) == ["a + twice", "a*b", "a*c", "b", "b*c", "c"]
    assert all(block.exponent == 0 for block in strategy.blocks)


def test_groups_are_measured_as_they_are_given():
    strategy = tb.select(WORKLOADS["union"], method="union", groups=[["total", "prefix"], ["ranges"]])
    assert [b.name for b in strategy.blocks] == ["total + prefix", "ranges"]


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([["ranges", "prefix"]], "total"),
        ([["ranges", "prefix", "total"], ["total"]], "twice"),
        ([["ranges", "prefix", "totals"]], "totals"),
        (["ranges", "prefix", "total"], "list of lists"),
    ],
)
def test_groups_that_do_not_hold_every_table_once_are_refused(groups, message):
    with pytest.raises(InvalidArgument, match=message):
        tb.select(WORKLOADS["union"], method="union", groups=groups)


CORRECTED = [  # HDMM, Table 7 with the right split: one product for each table, answered one by one
    (workloads.adult_3d, 52.566),
    (workloads.adult_2d_prefix, 89.189),
    (workloads.loans_small, 49.597),
    (workloads.loans_small_prefix, 81.039),
]


@pytest.mark.long
@pytest.mark.parametrize(("make", "figure"), CORRECTED)
def test_the_corrected_table_7(make, figure):
    workload = make()
    losses = [g.loss for g in groups_of(workload, Settings("gaussian", groups=alone(workload)))]
    assert SIGMA * math.sqrt(split_loss(losses, "gaussian") / workload.queries) == pytest.approx(
        figure, abs=6e-4
    )


@pytest.mark.parametrize(("n", "best"), [(40, 3_550.4), pytest.param(100, 14_141, marks=pytest.mark.long)])
def test_example_13_is_cheaper_in_two_groups(n, best):
    """HDMM prints 33,385 for one product of 100 and 14,252 for two; 14,141 is the best known for two."""
    domain = tb.Domain({"a": n, "b": n})
    workload = tb.Workload(domain, [tb.Table(name, {name: tb.Prefix(n)}) for name in ("a", "b")])
    groups = groups_of(workload, Settings("laplace"))
    assert len(groups) == 2
    assert split_loss([g.loss for g in groups], "laplace") <= best * 1.0005


@NOISES
def test_no_time_gives_a_valid_strategy(noise):
    workload = WORKLOADS["union"]
    strategy = tb.select(workload, noise=noise, method="union", time_limit=1e-9)
    assert math.isfinite(strategy.error(workload, tb.ZCDP(1) if noise == "gaussian" else tb.PureDP(1)).rmse)


@pytest.mark.parametrize("method", ["kron", "union", "optimised-marginals"])
def test_rows_limit_p_by_attribute(method):
    """Of 8 ages at most one wide query is measured beside the cells."""
    workload = WORKLOADS["union"]
    strategy = tb.select(workload, noise="laplace", method=method, rows={"age": 1})
    for block in strategy.blocks:
        factor = block.terms[0][1][1]
        assert factor.shape[0] <= factor.shape[1] + 1
    with pytest.raises(InvalidArgument, match="Laplace"):
        tb.select(workload, noise="gaussian", method="kron", rows=2)


@NOISES
def test_under_replace_the_total_is_measured_with_a_group_that_has_neighbours(noise):
    workload = tb.Workload(DOMAIN, [TABLES["ranges"], TABLES["total"], TABLES["windows"]])
    settings = Settings(noise, "replace", groups=alone(workload))
    strategy = union_strategy(workload, settings)
    assert sorted(" + " in block.name for block in strategy.blocks) == [False, True]
    a = dense_strategy(strategy)
    for group, block in zip(groups_of(workload, settings), strategy.blocks, strict=True):
        q = np.asarray(block.query.dense(), float) * 2.0**-block.exponent
        p = 2 if noise == "gaussian" else 1
        differences = (q.T[:, None] - q.T[None]).reshape(-1, q.shape[0])
        worst = (np.abs(differences) ** p).sum(axis=1).max() ** (2 / p)
        assert float(group.sensitivity2) >= worst * (1 - 1e-12)
    assert np.linalg.matrix_rank(a) == np.linalg.matrix_rank(np.vstack([a, np.ones(a.shape[1])]))


def test_nothing_but_a_public_total_is_refused_under_replace():
    workload = tb.Workload(DOMAIN, [TABLES["total"]])
    with pytest.raises(Unsupported, match="identity"):
        union_strategy(workload, Settings("gaussian", "replace"))


@pytest.mark.parametrize("scale", [1e-9, 0.3, 1.0, 7.5e11])
def test_relative_scales_are_inverse_binary_fractions(scale):
    short = short_scale(1 / scale)
    assert float(short) == pytest.approx(scale, rel=1e-6)
    assert short.numerator & (short.numerator - 1) == 0


def random_query(draw: np.random.Generator, n: int) -> np.ndarray:
    row = (draw.random(n) < 0.5).astype(int)
    return row if row.any() else np.eye(n, dtype=int)[draw.integers(n)]


TOGETHER = [[8, 9], [3, 6, 10], [11, 4, 14], [0, 1], [2, 5], [7], [12], [13]]


def test_single_queries_over_several_attributes_are_answered() -> None:
    """Groups of few queries are measured in their row space, so that least squares over all groups finds each."""
    domain = tb.Domain({"a": 6, "b": 7, "c": 8})
    draw = np.random.default_rng(1)
    rows = [[random_query(draw, n) for n in domain.shape] for _ in range(15)]
    tables = [
        tb.Table(f"t{t}", {name: Dense([row]) for name, row in zip(domain.names, own, strict=True)})
        for t, own in enumerate(rows)
    ]
    workload = tb.Workload(domain, tables)
    groups = [[f"t{t}" for t in group] for group in TOGETHER]
    chosen = tb.select(workload, method="union", groups=groups)

    blocks = [np.asarray(block.query.dense(), dtype=float) for block in chosen.blocks]
    for group, block in zip(TOGETHER, blocks, strict=True):
        ranks = [np.linalg.matrix_rank(np.array([rows[t][axis] for t in group])) for axis in range(3)]
        assert np.linalg.matrix_rank(block) == math.prod(ranks)
    A = np.vstack(
        [
            np.ldexp(matrix, -b.exponent) / math.sqrt(b.scale)
            for matrix, b in zip(blocks, chosen.blocks, strict=True)
        ]
    )
    W = np.vstack([t.operator(domain).dense() for t in tables])
    answers = np.linalg.lstsq(A.T, W.T, rcond=1e-12)[0]
    assert A.T @ answers == pytest.approx(W.T, abs=1e-9)
    dense = np.linalg.norm(A, axis=0).max() * np.linalg.norm(answers) / math.sqrt(len(W))
    assert chosen.error(workload, tb.ZCDP("1/2")).rmse == pytest.approx(dense, rel=1e-6)


@pytest.mark.parametrize("queries", [2, 3, 5])
def test_a_factor_that_keeps_to_its_row_space_loses_nothing(queries: int) -> None:
    """``A = B L``: in the rows of L, as precise as the optimum found over all cells, and no column longer."""
    draw = np.random.default_rng(queries)
    L = np.array([random_query(draw, 7) | np.eye(7, dtype=int)[k] for k in range(queries)])
    gram = (L.T @ L).astype(float)
    optimum = opt0_gaussian(gram, tolerance=1e-7)
    rounded = to_grid(optimum.strategy, gram, 2, 16, L)
    M = np.asarray(rounded.matrix.dense(), dtype=float)
    assert M.shape == L.shape
    assert np.linalg.matrix_rank(np.vstack([M, L])) == len(L)
    loss = np.square(M).sum(axis=0).max() * np.vdot(np.linalg.pinv(M.T @ M), gram)
    assert rounded.loss == pytest.approx(loss, rel=1e-9)
    assert loss <= optimum.loss * (1 + 1e-4)
