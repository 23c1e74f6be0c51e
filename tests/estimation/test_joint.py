"""Joint tables measured and estimated: every method against dense least squares, and exact counts without noise."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from tests.each import each
from tests.strategy.instances import dense, dense_strategy

import tabulae as tb
from tabulae.errors import NotEstimable
from tabulae.estimation.cone import GAP

DOMAIN = tb.Domain({"a": range(4), "b": range(3), "c": 2})
SUMS = np.array([[a + b <= c for a in range(4) for b in range(3)] for c in range(6)], dtype=int)
GAPS = np.array([[abs(a - b) <= c for b in range(3) for a in range(4)] for c in range(3)], dtype=int)
WORKLOAD = tb.Workload(
    DOMAIN,
    [
        tb.Table.joint("sums", ["a", "b"], SUMS, weight=2),
        tb.Table.joint("gaps", ["b", "a"], GAPS),
        tb.Table.joint("signed", ["a", "b", "c"], np.random.default_rng(0).integers(-1, 2, (2, 24))),
        tb.Workload.from_sql(DOMAIN, "SELECT c, COUNT(*) FROM t WHERE a < b OR a = 3 GROUP BY c")["q1"],
        tb.Table("cells", {"a": tb.Identity(4), "c": tb.Identity(2)}),
    ],
)
COUNTS = np.random.default_rng(1).integers(0, 20, DOMAIN.size)
METHODS = {
    "gaussian": [
        *(
            "identity",
            "workload",
            "hierarchical",
            "hb",
            "wavelet",
            "greedy-h",
            "fourier",
            "opt0",
            "kron",
            "union",
        ),
        *("marginals", "hdmm", "eigen", "eigen-separation", "principal-vectors", "residual", "auto"),
    ],
    "laplace": ["wavelet", "opt0", "kron", "marginals", "residual"],
}
LOSS: dict[str, Any] = {"gaussian": tb.ZCDP, "laplace": tb.PureDP}


# Others are made of these, or are searched for long.
SHORT = {
    "gaussian": ["identity", "hierarchical", "fourier", "kron", "union", "marginals", "eigen", "residual"],
    "laplace": ["wavelet", "kron"],
}


@each(
    "noise, method",
    [(noise, method) for noise, methods in SHORT.items() for method in methods],
    long=[(noise, method) for noise, methods in METHODS.items() for method in methods],
)
def test_every_method_has_the_errors_of_dense_least_squares(noise: Any, method: str) -> None:
    neighbours = "replace" if len(method) % 2 else "add-remove"
    strategy = tb.select(WORKLOAD, noise=noise, method=method, neighbours=neighbours)
    m = tb.measure(COUNTS, strategy, LOSS[noise](1), neighbours=neighbours, source=tb.noise.Insecure(3))
    estimate = tb.estimate(m)
    answers, variances = estimate.answer(WORKLOAD), estimate.variance(WORKLOAD)
    a = dense_strategy(strategy) / np.sqrt(np.asarray(m.variance, dtype=float))[:, None]
    for name, matrix in dense(WORKLOAD).items():
        expected = np.square(matrix @ np.linalg.pinv(a, rcond=1e-11)).sum(axis=1)
        assert variances[name] == pytest.approx(expected, rel=1e-6)
        # Answers this far off are less likely than 1e-12, even under Laplace noise.
        assert (np.abs(answers[name] - matrix @ COUNTS) <= 30 * np.sqrt(expected)).all()
    low, high = estimate.interval(tb.Workload(DOMAIN, [WORKLOAD["gaps"]]))["gaps"]
    assert ((low < answers["gaps"]) & (answers["gaps"] < high)).all()


@each("constrained", [tb.Table.joint("sums", ["a", "b"], SUMS[:3]), tb.Table("a", {"a": tb.Identity(4)})])
def test_exact_counts_of_several_attributes_together_hold(constrained: tb.Table) -> None:
    exact = (constrained,)
    strategy = tb.select(WORKLOAD, method="opt0", invariants=exact)
    m = tb.measure(COUNTS, strategy, tb.ZCDP(1), source=tb.noise.Insecure(3))
    estimate = tb.estimate(m)
    truth = constrained.operator(DOMAIN).dense() @ COUNTS
    found = estimate.answer(tb.Workload(DOMAIN, [constrained]))[constrained.name]
    assert found == pytest.approx(truth, abs=1e-6)
    assert estimate.variance(tb.Workload(DOMAIN, exact))[constrained.name] == pytest.approx(0, abs=1e-9)


def test_constraints_on_several_attributes_together_hold() -> None:
    table = tb.Table.joint("sums", ["a", "b"], SUMS)
    truth = table.operator(DOMAIN).dense() @ COUNTS
    m = tb.measure(COUNTS, tb.select(WORKLOAD, method="residual"), tb.ZCDP(1), source=tb.noise.Insecure(3))
    least = tb.estimate(m, constraints=[tb.Constraint.equal(table, truth)])
    assert least.answer(WORKLOAD)["sums"] == pytest.approx(truth, abs=1e-6)


@each("method, rows", [("residual", 3), ("residual", 6), ("kron", 3), ("kron", 6), ("opt0", 6)])
def test_bounds_on_several_attributes_together_hold(method: str, rows: int) -> None:
    """Where no sign binds, too, the steps lead to the optimum."""
    table = tb.Table.joint("some", ["a", "b"], SUMS[:rows])
    most = table.operator(DOMAIN).dense() @ COUNTS - 1
    m = tb.measure(COUNTS, tb.select(WORKLOAD, method=method), tb.ZCDP(1), source=tb.noise.Insecure(3))
    bounds = tb.Constraint.bounds(table, at_most=most)
    whole = tb.estimate(m, constraints=[bounds], method="non-negative")
    assert whole.solution.gap <= GAP  # type: ignore[attr-defined]
    assert (whole.answer(WORKLOAD)["sums"][:rows] <= most + 1e-6).all()


def test_combinations_that_are_not_measured_together_are_not_estimated() -> None:
    alone = tb.Workload(DOMAIN, [tb.Table("a", {"a": tb.Identity(4)}), tb.Table("b", {"b": tb.Identity(3)})])
    for method, sides in itertools.product(["residual", "marginals"], [SUMS, SUMS[1:2]]):
        m = tb.measure(COUNTS, tb.select(alone, method=method), tb.ZCDP(1), source=tb.noise.Insecure(3))
        with pytest.raises(NotEstimable):
            tb.estimate(m).answer(tb.Workload(DOMAIN, [tb.Table.joint("sums", ["a", "b"], sides)]))


def test_a_joint_table_that_is_a_sum_over_single_attributes_is_estimated_from_these() -> None:
    """Rows a + b as numbers need no pairs: their terms cancel on all that is not measured."""
    alone = tb.Workload(DOMAIN, [tb.Table("a", {"a": tb.Identity(4)}), tb.Table("b", {"b": tb.Identity(3)})])
    total = tb.Workload(
        DOMAIN, [tb.Table.joint("sum", ["a", "b"], [[a + b for a in range(4) for b in range(3)]])]
    )
    strategy = tb.select(alone, method="residual")
    m = tb.measure(COUNTS, strategy, tb.ZCDP(10**9), source=tb.noise.Insecure(3))
    truth = total["sum"].operator(DOMAIN).dense() @ COUNTS
    assert tb.estimate(m).answer(total)["sum"] == pytest.approx(truth, abs=0.1)
