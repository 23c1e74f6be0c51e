"""Marginals of optimised queries: dense algebra, sensitivity, published workloads."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from tests.strategy.instances import WORKLOADS, dense, dense_strategy

import tabulae as tb
from benchmarks import workloads
from tabulae.errors import Unsupported
from tabulae.strategy.information.routes import information

METHOD = "optimised-marginals"


def prefix_pairs(sizes: dict[str, int]) -> tb.Workload:
    domain = tb.Domain(sizes)
    names = list(sizes)
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    return tb.Workload(
        domain, [tb.Table(f"{a}{b}", {n: tb.Prefix(sizes[n]) for n in (a, b)}) for a, b in pairs]
    )


@pytest.mark.parametrize("name", WORKLOADS)
def test_reported_loss_is_that_of_dense_algebra(name):
    workload = WORKLOADS[name]
    strategy = tb.select(workload, noise="laplace", method=METHOD)
    a = dense_strategy(strategy)
    scales = np.repeat([float(b.scale) for b in strategy.blocks], [b.rows for b in strategy.blocks])
    norm = (np.abs(a) / scales[:, None]).sum(axis=0).max()
    p = np.linalg.pinv(a.T @ (a / scales[:, None] ** 2), rcond=1e-12)
    w = np.vstack([float(t.weight) * dense(workload)[t.name] for t in workload.tables])
    loss = norm**2 * np.einsum("ij,jk,ik->", w, p, w)
    assert strategy.candidates[0].rmse == pytest.approx(math.sqrt(loss / workload.queries), rel=1e-7)


def test_sensitivity_is_the_sum_of_the_weights():
    """Columns of every matrix sum to a power of two, so that all cells cost the same, exactly."""
    strategy = tb.select(prefix_pairs({"a": 12, "b": 9, "c": 7}), noise="laplace", method=METHOD)
    weights = sum((1 / block.scale for block in strategy.blocks), Fraction(0))
    assert strategy.sensitivity().power == weights
    assert strategy.sensitivity().is_exact
    for block in strategy.blocks:
        assert set(block.query.column_norms(1).tolist()) == {2**block.exponent}


@pytest.mark.long
def test_better_than_marginals_of_cells_and_than_one_product_where_prefixes_are_asked():
    workload = prefix_pairs({"a": 64, "b": 64, "c": 64})
    rmse = {
        m: tb.select(workload, noise="laplace", method=m).error(workload, tb.PureDP(1)).rmse
        for m in (METHOD, "marginals", "kron")
    }
    assert rmse[METHOD] < 0.85 * min(rmse["marginals"], rmse["kron"])


def test_marginals_are_those_of_cells():
    """Where only cells and totals are asked for, the family is that of OPT_M, which is searched once."""
    workload = tb.Workload.marginals(tb.Domain({"a": 3, "b": 4, "c": 5}), ways=[1, 2])
    found = [tb.select(workload, noise="laplace", method=m, restarts=1) for m in (METHOD, "marginals")]
    rmse = [strategy.candidates[0].rmse for strategy in found]
    assert rmse[0] == pytest.approx(rmse[1], rel=1e-6)
    assert METHOD not in [c.method for c in tb.select(workload, noise="laplace", restarts=1).candidates]


@pytest.mark.long
@pytest.mark.parametrize(
    ("make", "printed"), [(workloads.loans_small_prefix, 276.10), (workloads.adult_2d_prefix, 484.07)]
)
def test_large_domains_are_answered_exactly(make, printed):
    """Least errors known before: weighted marginals converged on Loans, HDMM's OPT_+ on Adult."""
    workload = make()
    strategy = tb.select(workload, noise="laplace", method=METHOD)
    assert information(strategy, (1.0,) * len(strategy.blocks)).route == "lattice"
    assert strategy.error(workload, tb.PureDP(1)).rmse < 0.82 * printed


@pytest.mark.long
def test_records_over_a_domain_that_cannot_be_listed():
    """10^12 cells: prefix tables from records, with noise that is small beside one person."""
    workload = prefix_pairs({f"a{i}": 100 for i in range(6)})
    records = np.random.default_rng(5).integers(0, 100, (200, 6))
    strategy = tb.select(workload, noise="laplace", method=METHOD, restarts=0)
    counts = tb.Counts.from_records(workload.domain, records)
    noisy = tb.measure(counts, strategy, tb.PureDP(5000), source=tb.noise.Insecure(3))
    answers = tb.estimate(noisy).answer(workload)
    for table in workload.tables:
        cells = np.zeros((100, 100))
        np.add.at(cells, tuple(records[:, workload.domain.axis(n)] for n in table.attributes), 1)
        np.testing.assert_allclose(answers[table.name], cells.cumsum(0).cumsum(1).ravel(), atol=0.5)


def test_replace_neighbours_are_honoured():
    workload = WORKLOADS["union"]
    strategy = tb.select(workload, noise="laplace", method=METHOD, neighbours="replace")
    a = dense_strategy(strategy)
    scales = np.repeat([float(b.scale) for b in strategy.blocks], [b.rows for b in strategy.blocks])
    worst = (np.abs(a.T[:, None] - a.T[None]) / scales).sum(axis=-1).max()
    assert float(strategy.sensitivity("replace").power) >= worst * (1 - 1e-12)


def test_same_seed_same_strategy():
    workload = prefix_pairs({"a": 20, "b": 10})
    first, second = (tb.select(workload, noise="laplace", method=METHOD, seed=4) for _ in range(2))
    assert first.blocks == second.blocks


def test_no_time_gives_a_valid_strategy():
    workload = prefix_pairs({"a": 20, "b": 10})
    strategy = tb.select(workload, noise="laplace", method=METHOD, time_limit=1e-9)
    assert math.isfinite(strategy.error(workload, tb.PureDP(1)).rmse)


@pytest.mark.parametrize(
    ("workload", "noise", "message"),
    [
        (WORKLOADS["union"], "gaussian", "residual"),
        (tb.Workload.marginals(tb.Domain({f"a{i}": 2 for i in range(17)}), ways=[1]), "laplace", "17"),
        (tb.Workload(tb.Domain({"a": 3}), [tb.Table("total", {})]), "laplace", "totals"),
    ],
)
def test_what_it_cannot_serve_is_refused(workload, noise, message):
    with pytest.raises(Unsupported, match=message):
        tb.select(workload, noise=noise, method=METHOD)
