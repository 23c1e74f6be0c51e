"""Principal vectors: dense oracles for the reduced problem, full and deficient rank, the limits, the strategy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.each import each
from tests.strategy.eigen.design_cases import (
    all_range,
    column_norms,
    error,
    prefix,
    program_1,
    random_workload,
)
from tests.strategy.instances import WORKLOADS

from tabulae.errors import InvalidArgument
from tabulae.strategy.bounds.dual import svd_bound
from tabulae.strategy.eigen.design import eigen_design, eigen_queries, principal_vectors
from tabulae.strategy.eigen.strategies import principal_vectors_strategy
from tabulae.strategy.methods import Settings
from tabulae.strategy.strategy import unit_rmse

NORMS = pytest.mark.parametrize("p", [1, 2])
LOW_RANK = (lambda W: W.T @ W)(random_workload(0, 12, 30))
GRAMS = {"ranges": all_range(24), "prefixes": prefix(24), "rank 12 of 30": LOW_RANK}


def reduced(gram, k, p):
    """Norms and costs of the reduced problem from all eigenvectors, as the paper has it."""
    values, vectors = np.linalg.eigh(gram)
    kept = values > 1e-10 * values[-1]
    values, rows = values[kept][::-1], vectors[:, kept].T[::-1]
    norms = np.abs(rows) ** p
    return np.vstack([norms[:k], norms[k:].sum(axis=0)]), np.append(values[:k], values[k:].sum())


@NORMS
@pytest.mark.parametrize("name", GRAMS)
@pytest.mark.parametrize("k", [1, 5, 11])
def test_the_optimum_is_a_conic_solvers(name, k, p):
    gram = GRAMS[name]
    norms, costs = reduced(gram, k, p)
    optimum = program_1(norms ** (1 / p), costs, p)
    found = principal_vectors(gram, vectors=k, p=p)
    assert found.weights.loss == pytest.approx(optimum, rel=3e-6)
    assert found.weights.lower <= optimum * (1 + 1e-7)
    assert found.weights.gap <= 1e-6


@NORMS
@given(seed=st.integers(0, 2**32 - 1), k=st.integers(1, 14))
def test_losses_are_true_and_never_below_the_full_methods(p, seed, k):
    rng = np.random.default_rng(seed)
    W = random_workload(seed, int(rng.integers(1, 15)), int(rng.integers(1, 12)))
    gram = W.T @ W
    found = principal_vectors(gram, vectors=k, p=p)
    weighted = found.weights.weights[:, None] * found.queries
    assert column_norms(weighted, p).max() == pytest.approx(1, abs=1e-9)
    assert error(weighted, gram, p) == pytest.approx(found.weights.loss, rel=1e-5)
    assert found.weights.loss >= eigen_design(gram, p=p).weights.lower * (1 - 1e-9)
    assert column_norms(found.strategy, p).max() == pytest.approx(1, abs=1e-9)
    assert error(found.strategy, gram, p) <= found.weights.loss * (1 + 1e-6)


@NORMS
@pytest.mark.parametrize("name", GRAMS)
def test_all_vectors_are_the_full_method(name, p):
    found = principal_vectors(GRAMS[name], vectors=30, p=p)
    assert found.weights.loss == pytest.approx(eigen_design(GRAMS[name], p=p).weights.loss, rel=1e-5)


def test_more_vectors_never_cost():
    losses = [principal_vectors(prefix(64), vectors=k).weights.loss for k in (1, 4, 16, 63, 64)]
    assert all(after <= before * (1 + 1e-6) for before, after in itertools.pairwise(losses))


def test_only_the_principal_vectors_of_a_full_rank_are_computed(monkeypatch):
    """The others are the rows of a projection, whichever basis of their space an eigensolver would return."""
    monkeypatch.setattr("tabulae.strategy.eigen.design.eigen_queries", None)
    found = principal_vectors(all_range(40), vectors=6)
    queries, _ = eigen_queries(all_range(40))
    np.testing.assert_allclose(found.queries[6:], np.eye(40) - queries[:6].T @ queries[:6], atol=1e-9)
    weights = found.weights.weights
    basis = np.vstack([weights[:6, None] * queries[:6], weights[-1] * queries[6:]])
    np.testing.assert_allclose(column_norms(basis, 2).max(), 1, atol=1e-9)
    assert error(basis, all_range(40)) == pytest.approx(found.weights.loss, rel=1e-6)


def test_the_default_is_six_per_cent():
    found = principal_vectors(all_range(256))
    assert np.unique(found.weights.weights[15:]).size == 1
    assert np.unique(found.weights.weights[:15]).size == 15
    ratio = np.sqrt(error(found.strategy, all_range(256)) / svd_bound(all_range(256)))
    assert 1.1 < ratio < 1.2
    few = principal_vectors(all_range(64)).weights.weights
    assert np.unique(few[8:]).size == 1
    assert few[7] != few[8]


@NORMS
def test_without_time_the_weights_are_feasible(p):
    found = principal_vectors(prefix(64), p=p, deadline=0.0)
    best = principal_vectors(prefix(64), p=p)
    assert found.weights.lower <= best.weights.loss <= found.weights.loss * (1 + 1e-9)
    assert column_norms(found.strategy, p).max() == pytest.approx(1, abs=1e-9)


@each("noise", ["gaussian", "laplace"])
@each("name", WORKLOADS)
def test_the_strategy_serves_every_workload(name, noise):
    workload, s = WORKLOADS[name], Settings(noise, vectors=4)
    strategy = principal_vectors_strategy(workload, s)
    assert strategy.method == "principal-vectors"
    assert strategy.lower is None
    assert strategy.certificate is None
    reached = unit_rmse(strategy, workload, "add-remove")
    full = unit_rmse(
        principal_vectors_strategy(workload, Settings(noise, vectors=10**6)), workload, "add-remove"
    )
    assert 0.7 * full < reached < 4 * full


@pytest.mark.parametrize("vectors", [0, -1])
def test_bad_counts_are_refused(vectors):
    with pytest.raises(InvalidArgument, match=f"vectors is {vectors}: at least one eigenvector"):
        principal_vectors(prefix(4), vectors=vectors)


def test_bad_numbers_are_refused():
    for gram, says in ((np.diag([1.0, np.nan]), "infinite or missing"), (np.zeros((2, 2)), "counts no cell")):
        with pytest.raises(InvalidArgument, match=says):
            principal_vectors(gram)
