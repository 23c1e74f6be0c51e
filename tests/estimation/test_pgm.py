"""Private-PGM through mbi against non-negative least squares of the same total."""

from __future__ import annotations

import importlib.util
import sys

import numpy as np
import pytest
from scipy.optimize import nnls
from tests.estimation.overlapping import measured
from tests.strategy.instances import BUDGETS, WORKLOADS, dense, dense_strategy

import tabulae as tb
from tabulae.errors import MissingDependency, NotEstimable, Unsupported

with_mbi = pytest.mark.skipif(
    importlib.util.find_spec("mbi") is None, reason="needs the extra [pgm]: pip install 'tabulae[pgm]'"
)


@with_mbi
@pytest.mark.parametrize(
    ("workload", "method"),
    [("union", "workload"), ("one product", "kron"), ("recodes", "workload"), ("disjunction", "workload")],
)
def test_it_fits_as_well_as_any_non_negative_cells_of_its_total(workload: str, method: str) -> None:
    """On one clique every vector is a model: the oracle solves for cells, the total enforced by a heavy row."""
    wl, m = WORKLOADS[workload], measured(workload, "gaussian", method, people=2.0)
    est = tb.estimate(m, method="pgm")
    total = est._records()  # type: ignore[attr-defined]
    deviation = np.sqrt(m.variance)
    b, y = dense_strategy(m.strategy) / deviation[:, None], np.concatenate(m.answers()) / deviation
    b, y = np.vstack([b, np.full((1, b.shape[1]), 1e4)]), np.append(y, 1e4 * total)
    oracle, _ = nnls(b, y, maxiter=10_000)
    answers, variances = est.answer(wl), est.variance(wl)
    for name, w in dense(wl).items():
        share = np.abs(answers[name] - w @ oracle) / np.sqrt(variances[name])
        assert share.max() < 0.02
        assert (answers[name] >= 0).all()


@with_mbi
def test_marginals_of_a_domain_that_cannot_be_listed() -> None:
    """10^12 cells: a chain of pairs; margins agree, and intervals contain the plain ones cut at zero."""
    domain = tb.Domain({f"a{i}": 10 for i in range(12)})
    tables = [tb.Table(f"t{i}", {f"a{i}": tb.Identity(10), f"a{i + 1}": tb.Identity(10)}) for i in range(11)]
    workload = tb.Workload(domain, tables)
    people = np.random.default_rng(1).integers(0, 10, (3000, 12))
    m = tb.measure(
        tb.Counts.from_records(domain, people), tb.select(workload, method="workload"), BUDGETS["gaussian"]
    )
    est = tb.estimate(m, method="pgm")
    answers = est.answer(workload)
    for i in range(10):
        left, right = (
            answers[f"t{i}"].reshape(10, 10).sum(axis=0),
            answers[f"t{i + 1}"].reshape(10, 10).sum(axis=1),
        )
        assert left == pytest.approx(right, abs=1e-6)
    plain = tb.estimate(m).interval(workload)
    for name, (low, high) in est.interval(workload).items():
        assert (low <= np.maximum(plain[name][0], 0) + 1e-9).all()
        assert (high >= plain[name][1] - 1e-9).all()


@with_mbi
def test_what_it_cannot_take_is_refused_with_advice() -> None:
    with pytest.raises(Unsupported, match='"non-negative"'):
        tb.estimate(measured("union", "gaussian", "opt0"), method="pgm").answer(WORKLOADS["union"])
    sexes = tb.Workload(WORKLOADS["recodes"].domain, [tb.Table("sexes", {"sex": tb.Identity(2)})])
    with pytest.raises(NotEstimable):
        tb.estimate(measured("recodes", "gaussian"), method="pgm").answer(sexes)
    domain = tb.Domain({f"a{i}": 20 for i in range(12)})
    pairs = tb.Workload.marginals(domain, ways=[2])
    counts = tb.Counts.from_records(domain, np.zeros((5, 12), int))
    m = tb.measure(counts, tb.select(pairs, method="workload"), BUDGETS["gaussian"])
    with pytest.raises(Unsupported, match="cliques"):
        tb.estimate(m, method="pgm").answer(pairs)


@with_mbi
def test_the_callers_precision_is_left_as_it_was() -> None:
    jax = pytest.importorskip("jax")
    before = jax.config.jax_enable_x64
    tb.estimate(measured("union", "gaussian"), method="pgm").answer(WORKLOADS["union"])
    assert jax.config.jax_enable_x64 == before


def test_without_mbi_the_install_line_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(MissingDependency, match=r"pip install 'tabulae\[pgm\]'"):
        tb.estimate(measured("union", "gaussian"), method="pgm").answer(WORKLOADS["union"])
