"""Example 4 of the Eigen-Design paper against its own Definition 5 and Proposition 4 (docs/errata.md)."""

from __future__ import annotations

import math

import numpy as np
import pytest
from benchmarks.strategies_paper import PRINTED
from benchmarks.strategies_workloads import EXAMPLE_4

EPSILON, DELTA = 0.5, 1e-4


def test_example_4_has_neither_the_mean_nor_the_constant_of_the_text() -> None:
    """Error of the identity, sensitivity 1: sqrt(P tr(W'W)), with P and with 1/m as the text has them, and without."""
    W = EXAMPLE_4
    printed, trace = PRINTED["example-4", "gaussian", "identity"], float(np.sum(W**2))
    proposition = 2 * math.log(2 / DELTA) / EPSILON**2
    assert math.sqrt(proposition * trace) == pytest.approx(53.41, abs=5e-3)
    assert math.sqrt(proposition * trace / len(W)) == pytest.approx(18.88, abs=5e-3)
    assert math.sqrt(math.log2(2 / DELTA) / EPSILON**2 * trace) == pytest.approx(printed, abs=5e-3)


def test_definition_5_and_proposition_4_differ_by_the_number_of_queries() -> None:
    """A root of a mean over m queries is no root of a trace."""
    W, rng = EXAMPLE_4, np.random.default_rng(0)
    A = rng.normal(size=(10, 8))
    covariance = W @ np.linalg.inv(A.T @ A) @ W.T
    definition = math.sqrt(float(np.mean(np.diag(covariance))))
    proposition = math.sqrt(float(np.trace(W.T @ W @ np.linalg.inv(A.T @ A))))
    assert proposition == pytest.approx(math.sqrt(len(W)) * definition, rel=1e-9)
