"""Selection at its edges: every method answers or says what to do instead, and never by a traceback of numpy."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from tests.each import each, pairwise

import tabulae as tb
from tabulae.domain import Term
from tabulae.errors import InvalidArgument, Unsupported
from tabulae.linalg import Partition
from tabulae.strategy import METHODS

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


SHORT = pairwise(name=EDGES, method=METHODS, noise=BUDGETS, neighbours=NEIGHBOURS)


@each(*SHORT, long=itertools.product(EDGES, METHODS, BUDGETS, NEIGHBOURS))
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


LONGEST = {("an attribute of one value", "laplace"), ("weights far apart", "laplace")}
CASES = list(itertools.product(EDGES, BUDGETS))


@each("name, noise", [case for case in CASES if case not in LONGEST], long=CASES)
def test_families_answer_every_edge_case(name: str, noise: str) -> None:
    strategy = tb.select(EDGES[name], method="auto", noise=noise)  # type: ignore[arg-type]
    assert strategy.error(EDGES[name], BUDGETS[noise]).rmse > 0


@each("method", METHODS)
@each(
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


@each("noise", BUDGETS)
@each("method", METHODS)
def test_hardly_any_time_still_gives_a_strategy(method: str, noise: str) -> None:
    domain = tb.Domain({"a": 5, "b": 7, "c": 3})
    wl = tb.Workload.marginals(domain, ways=[1, 2])
    if (method, noise) in (("optimised-marginals", "gaussian"), ("coa", "laplace")):
        pytest.skip("for the other kind of noise only")
    strategy = tb.select(wl, method=method, noise=noise, time_limit=1e-9)  # type: ignore[arg-type]
    assert math.isfinite(strategy.error(wl, BUDGETS[noise]).rmse)


MANY = tb.Domain({f"a{k}": 2 + k % 7 for k in range(24)})


def test_many_attributes() -> None:
    """What lists sets of attributes refuses at once, with what to choose; the planner does not list them."""
    names = [a.name for a in MANY.attributes]
    sets = [(name,) for name in names] + list(itertools.pairwise(names))
    identity = {a.name: tb.Identity(a.size) for a in MANY.attributes}
    wl = tb.Workload(MANY, [tb.Table("*".join(s), {name: identity[name] for name in s}) for s in sets])
    with pytest.raises(Unsupported, match="residual"):
        tb.select(wl, method="marginals")
    strategy = tb.select(wl, method="residual")
    assert math.isfinite(strategy.error(wl, BUDGETS["gaussian"]).rmse)
    assert tb.select(wl, method="auto", time_limit=2).error(wl, BUDGETS["gaussian"]).rmse <= strategy.error(
        wl, BUDGETS["gaussian"]
    ).rmse * (1 + 1e-9)


def test_a_workload_that_a_method_cannot_serve_is_refused_with_what_can() -> None:
    domain = tb.Domain({"a": 100_000, "b": 250})
    wl = tb.Workload(domain, [tb.Table("t", {"a": tb.Identity(100_000), "b": tb.AllRange(250)})])
    with pytest.raises(Unsupported, match="kron"):
        tb.select(wl, method="opt0")


RANGES = tb.Workload.of(tb.AllRange(8))
LACKING = np.vstack([np.eye(8)[:7], np.zeros((1, 8))])


@each(
    ("design", "told"),
    [
        ("haar", "unknown design set 'haar'"),
        (np.eye(8)[:5], "span"),
        (LACKING, "zero in every cell|span"),
        (np.full((8, 8), np.nan), "missing or infinite"),
        (np.diag([1.0] * 7 + [np.inf]), "missing or infinite"),
        (np.eye(7), "7|8"),
        (np.eye(8)[None], "shape"),
        (np.eye(8) * 1j, "complex128"),
        (np.full((8, 8), "1"), "real numbers"),
        ([[1, 2], [3]], "different lengths"),
        (np.ma.array(np.eye(8)), "masked"),
        (tb.Prefix(9), "9|8"),
    ],
    ids=str,
)
@each("noise", BUDGETS)
def test_a_design_set_that_does_not_serve_is_refused(design: object, told: str, noise: str) -> None:
    with pytest.raises(InvalidArgument, match=told):
        tb.select(RANGES, method="eigen", noise=noise, design=design)  # type: ignore[arg-type]


@each(
    ("method", "options", "told"),
    [
        ("kron", {"design": "wavelet"}, '"eigen"'),
        ("eigen", {"group_size": 3}, '"eigen-separation"'),
        ("auto", {"vectors": 3}, '"principal-vectors"'),
        ("eigen-separation", {"group_size": 0}, "at least 1"),
        ("principal-vectors", {"vectors": True}, "at least 1"),
        ("principal-vectors", {"vectors": 1.5}, "at least 1"),
        ("eigen", {"tolerance": "x"}, "tolerance must be a number"),
        ("eigen", {"time_limit": "x"}, "time_limit must be a number"),
        ("eigen", {"seed": -1}, "seed must be a whole number"),
        ("eigen", {"objective": np.ones(2)}, "objective must be"),
    ],
)
def test_options_that_do_not_fit_are_refused(method: str, options: dict[str, object], told: str) -> None:
    with pytest.raises(InvalidArgument, match=told):
        tb.select(RANGES, method=method, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["hierarchical", "hb", "wavelet", "greedy-h", "coa", "low-rank", "eigen"])
def test_too_many_cells_of_one_attribute_are_refused_with_what_to_do(method: str) -> None:
    with pytest.raises(Unsupported, match="fewer categories"):
        tb.select(tb.Workload.of(tb.Prefix(10**5)), method=method)


def test_a_million_cells_of_three_attributes_as_one_matrix_are_refused_with_what_to_use() -> None:
    domain = tb.Domain({"a": 100, "b": 100, "c": 100})
    workload = tb.Workload(domain, [tb.Table("t", {n: tb.Prefix(100) for n in "abc"})])
    for method in ("coa", "low-rank", "eigen-separation", "principal-vectors"):
        with pytest.raises(Unsupported, match='"residual", "kron" or "hdmm"'):
            tb.select(workload, method=method)
    assert tb.select(workload, method="eigen").rows == 10**6


def test_datacube_says_what_it_does_not_serve() -> None:
    marginals = tb.Workload.marginals(tb.Domain({"a": 3, "b": 2}), ways=[1])
    for objective in ("max", "relative"):
        with pytest.raises(Unsupported, match="marginals"):
            tb.select(marginals, method="datacube", objective=objective)  # type: ignore[arg-type]


@pytest.mark.long
def test_few_queries_over_many_cells_make_nothing_of_cells_squared() -> None:
    asked = np.random.default_rng(0).integers(0, 2, size=(12, 12_000))
    workload = tb.Workload.of(tb.Dense(asked))
    strategy = tb.select(workload, method="eigen")
    assert strategy.certificate is not None
    measured = tb.measure(np.ones(12_000, dtype=int), strategy, tb.ZCDP(1), source=tb.noise.Insecure(1))
    low, high = tb.estimate(measured).interval(workload, level=0.999999)["x"]
    assert ((low <= asked.sum(axis=1)) & (asked.sum(axis=1) <= high)).all()
