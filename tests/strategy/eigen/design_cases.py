"""Workloads, design sets and oracles that the tests of weighted designs share."""

from __future__ import annotations

import cvxpy as cp
import numpy as np


def all_range(n):
    """Gram matrix of all ranges."""
    i = np.arange(n)
    low, high = np.minimum.outer(i, i), np.maximum.outer(i, i)
    return (low + 1.0) * (n - high)


def ranges(n):
    """All ranges themselves, one row each."""
    return np.array([[float(i <= c <= j) for c in range(n)] for i in range(n) for j in range(i, n)])


def prefix(n):
    """Gram matrix of all prefixes (the CDF)."""
    return n - np.maximum.outer(np.arange(n), np.arange(n)).astype(float)


def identity_and_total(n):
    return np.vstack([np.ones(n), np.eye(n)])


def binary_tree(n):
    """Every node of the binary tree over n = 2^k cells."""
    widths = [n >> level for level in range(n.bit_length())]
    return np.vstack([np.kron(np.eye(n // w), np.ones(w)) for w in widths])


def haar(n):
    """The total, and the left less the right half of every node of the binary tree over n = 2^k cells."""
    nodes = [
        np.kron(np.eye(n // w), np.repeat([1.0, -1.0], w // 2))
        for w in (n >> k for k in range(n.bit_length() - 1))
    ]
    return np.vstack([np.ones(n), *nodes])


def random_workload(seed, queries, cells):
    return np.random.default_rng(seed).normal(size=(queries, cells))


def column_norms(matrix, p):
    """Lp norm of each column, to the power p."""
    return (np.abs(matrix) ** p).sum(axis=0)


def error(strategy, gram, p=2):
    """``||A||_p^2 tr(V (A'A)^+)`` by a pseudo-inverse of A, for a strategy that spans the workload."""
    pinv = np.linalg.pinv(strategy, rcond=1e-11)
    np.testing.assert_allclose(gram @ pinv @ strategy, gram, atol=1e-6 * np.abs(gram).max())
    return column_norms(strategy, p).max() ** (2 / p) * float(np.vdot(pinv @ pinv.T, gram))


def program_1(design, costs, p):
    """Program 1's optimum by a conic solver."""
    w = cp.Variable(len(costs))
    loss = cp.sum(cp.multiply(costs / costs.max(), cp.power(w, -2 // p)))
    problem = cp.Problem(cp.Minimize(loss), [(np.abs(design) ** p).T @ w <= 1])
    problem.solve(solver="CLARABEL", tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)
    return problem.value * costs.max()


def joint_problem(design, workload):
    """``min tr(W X^+ W')`` over ``X = Q' diag(u) Q``, ``diag X <= 1`` as a semidefinite program in the rows' space."""
    _, values, rows = np.linalg.svd(design, full_matrices=False)
    basis = rows[values > 1e-9 * values[0]]
    inside, wanted = design @ basis.T, workload @ basis.T
    u = cp.Variable(len(design), nonneg=True)
    m, r = wanted.shape
    block = cp.Variable((m + r, m + r), PSD=True)
    X = sum(u[i] * np.outer(q, q) for i, q in enumerate(inside))
    constraints = [block[m:, m:] == X, block[:m, m:] == wanted, np.square(design).T @ u <= 1]
    problem = cp.Problem(cp.Minimize(cp.trace(block[:m, :m])), constraints)
    problem.solve(solver="CLARABEL", tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)
    return problem.value
