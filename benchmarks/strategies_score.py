"""CPU seconds of a strategy and its squared error at unit noise, for all methods that the comparison knows.

Most are methods of ``select`` and scored by the library's closed forms. Scored here from dense matrices instead:
strategies on the grid of a workload whose queries are no products (:class:`benchmarks.strategies_workloads.Case`),
trees over 4,096 cells and more, and design sets of which Program 1 alone is wanted.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from functools import lru_cache

import numpy as np
import scipy.linalg
import scipy.sparse
from benchmarks.strategies_workloads import Case, ranges

import tabulae as tb
from tabulae.errors import NotEstimable
from tabulae.strategy import baseline
from tabulae.strategy.classic.cubes import (
    asked_marginals,
    fourier_basis,
    greedy_cover,
    measured_marginals,
    summed_cells,
)
from tabulae.strategy.classic.trees import haar
from tabulae.strategy.eigen.design import eigen_design, eigen_queries, separated_weights
from tabulae.strategy.eigen.strategies import eigen_queries_of_rows
from tabulae.strategy.eigen.weighting import (
    QueryWeights,
    design_weighting,
    norm_weighting,
    query_weighting,
    weigh_few,
)
from tabulae.strategy.gram import explicit_gram
from tabulae.strategy.methods import Settings
from tabulae.strategy.strategy import Strategy, unit_rmse

ADAPTIVE = ("eigen", "opt0", "coa", "low-rank", "greedy-h", "workload-alone", "identity")
"""Methods that follow the workload itself, whatever grid its cells have, and those that no grid matters to."""

_BASES = {
    "design-wavelet": lambda n: np.asarray(haar(n).dense(), dtype=float),
    "design-fourier": fourier_basis,
}
_FEW = 1024  # weights that Newton's method settles
_MANY = 4096  # cells of one attribute from which trees are scored by a triangular root, not a pseudo-inverse
_SAFE = 1e-3  # smallest diagonal of a triangular root, relative to the largest
_NOTHING = 1e-10  # share of the largest eigenvalue below which a direction is not measured


def cpu_and_loss(case: Case, noise: str, method: str) -> tuple[float, float]:
    """CPU seconds of selecting, and ``||A||^2 ||W A^+||_F^2``."""
    workload = case.asked()
    if method == "workload-alone":
        asked = baseline(workload, "workload", noise, "add-remove")  # type: ignore[arg-type]
        return 0.0, float(asked.sensitivity()) ** 2 * workload.queries
    if method.startswith(("program-1", "eigen-separation-", "principal-vectors-")):
        return _reduced(workload, method)
    if method == "program-2":  # over all cells, merged or not
        gram = gram_of(workload)
        started = time.process_time()
        matrix = eigen_design(gram).strategy
        return time.process_time() - started, _explicit_loss(matrix, gram)
    if method in _BASES:
        return _designed(case, method, 2 if noise == "gaussian" else 1)
    followed = _followed(case, workload, method)
    started = time.process_time()
    if method == "datacube-cover":
        strategy = covering_strategy(workload, Settings(noise))  # type: ignore[arg-type]
    elif method == "hb-l1":
        strategy = replace(baseline(followed, "hb", "laplace", "add-remove"), noise=noise)
    else:
        strategy = baseline(followed, method, noise, "add-remove")  # type: ignore[arg-type]
    seconds = time.process_time() - started
    many = len(workload.domain.shape) == 1 and workload.domain.size >= _MANY and method not in ADAPTIVE
    if followed.domain.shape != workload.domain.shape or many:
        return seconds, dense_loss(strategy, gram_of(workload))
    return seconds, unit_rmse(strategy, workload, "add-remove") ** 2 * workload.queries


def covering_strategy(workload: tb.Workload, settings: Settings) -> tb.Strategy:
    """What the DataCube column of HDMM's Tables 6 and 7 shows: one greedy cover, whatever its largest noise.

    Each of the m marginals sums at most m cells of a measured one.
    """
    sets, sizes, merges = asked_marginals(workload)
    chosen = greedy_cover(summed_cells(sets, sizes) <= len(sets))
    return measured_marginals(workload, settings, [sets[k] for k in chosen], merges)


def _followed(case: Case, workload: tb.Workload, method: str) -> tb.Workload:
    """What a strategy is chosen for: the workload, its grid, or the marginals that its ranges are over (DataCube)."""
    if case.grid is not None and method not in ADAPTIVE:
        return ranges(case.grid)
    asked = [table.terms[0].factors for table in workload.tables]
    if method == "datacube" and any(
        isinstance(f, tb.AllRange) for factors in asked for f in factors.values()
    ):
        counted = [{n: tb.Identity(f.shape[1]) for n, f in factors.items()} for factors in asked]
        return tb.Workload(
            workload.domain, [tb.Table(t.name, c) for t, c in zip(workload.tables, counted, strict=True)]
        )
    return workload


def gram_of(workload: tb.Workload) -> np.ndarray:
    """W'W over the cells (N, N)."""
    merged, merges = workload.merge()
    gram = explicit_gram(merged)
    if merged.domain.size == workload.domain.size:
        return gram
    labels = np.zeros(1, dtype=np.int64)
    for merge in merges:
        classes = np.argmax(np.asarray(merge.dense()), axis=0)
        labels = np.add.outer(labels * merge.shape[0], classes).ravel()
    return gram[np.ix_(labels, labels)]


def dense_loss(strategy: Strategy, gram: np.ndarray) -> float:
    """``||A||^2 tr(V (A'A)^+)`` from dense matrices, whatever the structure; NotEstimable where A does not span V."""
    power = 0.5 if strategy.norm == 2 else 1
    steps = [2.0**-b.exponent / float(b.scale) ** power for b in strategy.blocks]
    A = np.vstack([step * b.query.dense() for step, b in zip(steps, strategy.blocks, strict=True)])
    return _explicit_loss(A, gram, strategy.norm)


def _explicit_loss(A: np.ndarray, gram: np.ndarray, p: int = 2) -> float:
    norms = np.square(A).sum(axis=0) if p == 2 else np.abs(A).sum(axis=0) ** 2
    sparse = scipy.sparse.csr_array(A)
    X = (sparse.T @ sparse).toarray() if sparse.nnz < 0.02 * A.size else A.T @ A
    trace = _inverse_product(X, gram)
    if not math.isnan(trace):
        return float(norms.max()) * trace
    values, vectors = scipy.linalg.eigh(X, check_finite=False)
    asked = np.einsum("ij,ij->j", vectors, gram @ vectors)
    kept = values > _NOTHING * values[-1]
    if asked[~kept].sum() > 1e-8 * asked.sum():
        raise NotEstimable("the strategy does not determine the workload")
    return float(norms.max() * (asked[kept] / values[kept]).sum())


def _designed(case: Case, method: str, p: int) -> tuple[float, float]:
    """Program 1 over a product of bases: the weights alone, columns not completed."""
    workload = case.asked()
    shape = case.grid or workload.domain.shape
    Q = np.ones((1, 1))
    for n in shape:
        Q = np.kron(Q, _BASES[method](n))
    gram = gram_of(workload)
    needed = np.einsum("ij,ij->i", Q @ gram, Q) > 1e-12 * np.trace(gram)  # rows are orthogonal
    started = time.process_time()
    loss = design_weighting(Q[needed], gram, p=p, tolerance=1e-4).loss
    return time.process_time() - started, loss


def _reduced(workload: tb.Workload, method: str) -> tuple[float, float]:
    """Program 1 over all eigen-queries, or some of the work; seconds without the eigendecomposition all share."""
    queries, values = _spectrum(workload.domain.shape, workload.tables)
    kind, _, size = method.rpartition("-")
    started = time.process_time()
    if kind == "program":
        weights = query_weighting(queries, values)
    elif kind == "eigen-separation":
        weights = separated_weights(queries, values, group_size=int(size))
    else:
        weights = _principal(queries, values, math.ceil(int(size) / 100 * workload.domain.size))
    seconds = time.process_time() - started
    return seconds, _completed_loss(queries, weights, workload)


def _completed_loss(queries: np.ndarray, weights: QueryWeights, workload: tb.Workload) -> float:
    """The loss of weighted orthonormal queries once their columns are completed; of few queries, as they are."""
    if len(queries) < queries.shape[1]:
        return weights.loss
    norms = weights.weights**2 @ np.square(queries)
    X = queries.T @ (weights.weights[:, None] ** 2 * queries)
    X[np.diag_indices_from(X)] += norms.max() - norms
    return _inverse_product(X, gram_of(workload)) * float(norms.max())


def _inverse_product(X: np.ndarray, gram: np.ndarray) -> float:
    """``tr(X^-1 V)`` for X that is safely positive definite, NaN for another."""
    try:
        root = scipy.linalg.cholesky(X, check_finite=False)
    except scipy.linalg.LinAlgError:
        return math.nan
    if root.diagonal().min() < _SAFE * root.diagonal().max():
        return math.nan
    (inverse_of,) = scipy.linalg.get_lapack_funcs(("potri",), (root,))
    half, _ = inverse_of(root)  # the upper half of X^-1
    return float(2 * np.vdot(np.triu(half, 1), gram) + half.diagonal() @ gram.diagonal())


def _principal(queries: np.ndarray, values: np.ndarray, k: int) -> QueryWeights:
    """The first k eigen-queries with weights of their own and one weight for the others, if any."""
    if k >= len(values):
        return query_weighting(queries, values)
    norms = np.square(queries)
    few = np.vstack([norms[:k], norms[k:].sum(axis=0)])
    weigh = weigh_few if k < _FEW else norm_weighting
    found = weigh(few, np.append(values[:k], values[k:].sum()), p=2, tolerance=1e-6)
    spread = np.concatenate([found.weights[:k], np.full(len(values) - k, found.weights[-1])])
    return replace(found, weights=spread)


@lru_cache(maxsize=1)
def _spectrum(shape: tuple[int, ...], tables: tuple[tb.Table, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Eigen-queries and eigenvalues; from W W' where queries are few."""
    workload = tb.Workload(tb.Domain({f"a{i + 1}": n for i, n in enumerate(shape)}), tables)
    if workload.queries < workload.domain.size // 4:
        rows = np.vstack([table.operator(workload.domain).dense() for table in tables])
        return eigen_queries_of_rows(rows)[:2]
    return eigen_queries(gram_of(workload))
