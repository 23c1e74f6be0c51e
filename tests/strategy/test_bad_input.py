"""Selection at its edges: every method answers or says what to do instead, and never by a traceback of numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tabulae as tb
from tabulae.errors import InvalidArgument, Unsupported
from tabulae.linalg import Partition
from tabulae.strategy import METHODS
from tabulae.tables import Term

BUDGETS = {"gaussian": tb.ZCDP("1/2"), "laplace": tb.PureDP(1)}
NEIGHBOURS = ("add-remove", "replace")

ONE_VALUE = tb.Domain({"country": ["only"], "age": range(5), "sex": 2})
EDGES = {
    "one query": tb.Workload.of(tb.Total(6)),
    "one cell": tb.Workload.of(tb.Dense([[0, 0, 1, 0]])),
    "one cell in all": tb.Workload.of(tb.Identity(1)),
    "an attribute of one value": tb.Workload(
        ONE_VALUE,
        [
            tb.Table("a", {"country": tb.Identity(1), "age": tb.Prefix(5)}),
            tb.Table("b", {"sex": tb.Identity(2)}),
        ],
    ),
    "the same table twice": tb.Workload(
        ONE_VALUE, [tb.Table("a", {"age": tb.AllRange(5)}), tb.Table("b", {"age": tb.AllRange(5)})]
    ),
    "weights far apart": tb.Workload(
        ONE_VALUE,
        [
            tb.Table("a", {"age": tb.Identity(5)}, weight="1e-4"),
            tb.Table("b", {"sex": tb.Identity(2)}, weight=1e4),
        ],
    ),
}


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@pytest.mark.parametrize("noise", BUDGETS)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", EDGES)
def test_a_method_answers_edge_cases_or_says_why_not(
    name: str, method: str, noise: str, neighbours: str
) -> None:
    wl, budget = EDGES[name], BUDGETS[noise]
    strategy, refusal = None, ""
    try:
        strategy = tb.select(wl, method=method, noise=noise, neighbours=neighbours)  # type: ignore[arg-type]
    except Unsupported as error:
        refusal = str(error)
    if strategy is None:
        assert len(refusal) > 40
        return
    error = strategy.error(wl, budget, neighbours)
    assert math.isfinite(error.rmse)
    if neighbours == "add-remove":
        assert error.rmse >= tb.lower_bound(wl, noise, budget=budget) * (1 - 1e-9)  # type: ignore[arg-type]


def test_families_answer_every_edge_case() -> None:
    for wl in EDGES.values():
        for noise, budget in BUDGETS.items():
            assert tb.select(wl, method="auto", noise=noise).error(wl, budget).rmse > 0  # type: ignore[arg-type]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "nothing",
    [
        tb.Table("nobody", {"age": Partition(np.full(5, -1), 1)}),
        tb.Table("nobody", {"age": tb.Dense(np.zeros((2, 5), int)), "sex": tb.Identity(2)}),
        tb.Table.of_terms(
            "nobody", [Term(1, {"age": tb.Total(5)}), Term(-1, {"age": tb.Dense(np.ones((1, 5), int))})]
        ),
    ],
)
def test_a_table_that_counts_nobody_is_refused_by_name(nothing: tb.Table, method: str) -> None:
    wl = tb.Workload(ONE_VALUE, [tb.Table("a", {"age": tb.Prefix(5)}), nothing])
    with pytest.raises(InvalidArgument, match="'nobody' counts nobody"):
        tb.select(wl, method=method)


@pytest.mark.parametrize("weight", [0, -1, "0", math.nan, math.inf])
def test_a_weight_must_be_positive(weight: object) -> None:
    with pytest.raises(InvalidArgument, match="weight"):
        tb.Table("a", {"age": tb.Identity(5)}, weight=weight)


@pytest.mark.parametrize("limit", [0, -1, math.nan])
def test_a_time_limit_must_be_positive(limit: float) -> None:
    with pytest.raises(InvalidArgument, match="time_limit"):
        tb.select(EDGES["one query"], time_limit=limit)


@pytest.mark.parametrize("noise", BUDGETS)
@pytest.mark.parametrize("method", METHODS)
def test_hardly_any_time_still_gives_a_strategy(method: str, noise: str) -> None:
    domain = tb.Domain({"a": 5, "b": 7, "c": 3})
    wl = tb.Workload.marginals(domain, ways=[1, 2])
    if (method, noise) in (("optimised-marginals", "gaussian"), ("coa", "laplace")):
        pytest.skip("for the other kind of noise only")
    strategy = tb.select(wl, method=method, noise=noise, time_limit=1e-9)  # type: ignore[arg-type]
    assert math.isfinite(strategy.error(wl, BUDGETS[noise]).rmse)


FORTY = tb.Domain({f"a{k}": 2 + k % 7 for k in range(40)})


def test_forty_attributes() -> None:
    """What lists sets of attributes refuses at once, with what to choose; the planner does not list them."""
    wl = tb.Workload.marginals(FORTY, ways=[1, 2])
    with pytest.raises(Unsupported, match="residual"):
        tb.select(wl, method="marginals")
    strategy = tb.select(wl, method="residual")
    assert math.isfinite(strategy.error(wl, BUDGETS["gaussian"]).rmse)
    assert tb.select(wl, method="auto", time_limit=30).error(wl, BUDGETS["gaussian"]).rmse <= strategy.error(
        wl, BUDGETS["gaussian"]
    ).rmse * (1 + 1e-9)


def test_a_workload_that_a_method_cannot_serve_is_refused_with_what_can() -> None:
    domain = tb.Domain({"a": 5000, "b": 5000})
    wl = tb.Workload(domain, [tb.Table("t", {"a": tb.Identity(5000), "b": tb.AllRange(5000)})])
    with pytest.raises(Unsupported, match="kron"):
        tb.select(wl, method="opt0")
