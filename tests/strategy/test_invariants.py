"""Selection under invariants: the restricted workload, its neighbours, and that it never errs more."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from tests.domain.exact_instances import DOMAIN, GENERAL, NESTED, margin, projectors, stacked
from tests.each import each, pairwise
from tests.strategy.instances import dense_strategy

import tabulae as tb
from tabulae.domain import Invariants
from tabulae.errors import InvalidArgument, Unsupported
from tabulae.linalg import AllRange, Identity, Prefix
from tabulae.strategy import restricted_strategy
from tabulae.strategy.restriction import restrict
from tabulae.strategy.strategy import unit_rmse
from tabulae.strategy.within import between_classes, within_invariants

WITHIN = "replace-within-invariants"
EXACT = {**NESTED, **GENERAL}
WORKLOADS = {
    "marginals": tb.Workload(
        DOMAIN, [margin("ab", "a", "b"), margin("bc", "b", "c"), margin("abc", "a", "b", "c"), margin("t")]
    ),
    "prefixes": tb.Workload(
        DOMAIN,
        [
            tb.Table("x", {"a": Identity(3), "b": Prefix(6), "c": Identity(2)}),
            tb.Table("y", {"b": AllRange(6), "c": Identity(2)}, weight="1/2"),
        ],
    ),
}
METHODS = ["identity", "workload", "opt0", "kron", "union", "marginals", "residual", "hdmm"]
PURE = [*METHODS, "optimised-marginals"]


@cache
def _without(workload: str, noise: str, method: str, neighbours: str = "add-remove") -> tb.Strategy:
    """What is chosen where nothing is exact: many tests compare with it."""
    return tb.select(WORKLOADS[workload], noise=noise, method=method, neighbours=neighbours)  # type: ignore[arg-type]


def _restricted(workload: tb.Workload, off: np.ndarray) -> list[tuple[float, np.ndarray]]:
    """(weight, W Pi_N) for each table, dense."""
    return [(float(t.weight), t.operator(workload.domain).dense() @ off) for t in workload.tables]


def _cost(strategy: tb.Strategy, pairs: list[tuple[int, int]] | None, p: int) -> float:
    """The largest weighted distance that one record moves the answers, to the power p, by listing all."""
    matrix = dense_strategy(strategy)
    scale = np.repeat([float(b.scale) for b in strategy.blocks], [b.rows for b in strategy.blocks])
    columns = matrix / (np.sqrt(scale) if p == 2 else scale)[:, None]
    moves = columns.T if pairs is None else np.array([columns[:, j] - columns[:, k] for j, k in pairs])
    return float((np.abs(moves) ** p).sum(axis=1).max())


def _pairs(neighbours: str, exact: list[tb.Table]) -> list[tuple[int, int]] | None:
    if neighbours == "add-remove":
        return None
    matrix = stacked(exact)
    every = itertools.combinations(range(DOMAIN.size), 2)
    return [(j, k) for j, k in every if neighbours == "replace" or np.array_equal(matrix[:, j], matrix[:, k])]


def _rmse(strategy: tb.Strategy, workload: tb.Workload, exact: list[tb.Table], neighbours: str) -> float:
    """``Delta ||W Pi_N A^+||`` over the queries that are not exact, by dense algebra: the projected mechanism."""
    _, off = projectors(exact)
    p = strategy.norm
    scale = np.repeat([float(b.scale) for b in strategy.blocks], [b.rows for b in strategy.blocks])
    noise = np.sqrt(scale) if p == 2 else scale
    inverse = np.linalg.pinv(dense_strategy(strategy) / noise[:, None], rcond=1e-13)
    delta2 = _cost(strategy, _pairs(neighbours, exact), p) ** (2 / p)
    left = [(w, m) for w, m in _restricted(workload, off) if np.abs(m).max() > 1e-9]
    total = sum(w**2 * np.square(m @ inverse).sum() for w, m in left)
    return float(np.sqrt(delta2 * total / sum(len(m) for _, m in left)))


def _chosen(strategy: tb.Strategy) -> float:
    scores = [c.rmse for c in strategy.candidates if c.rmse is not None]
    return min(scores)


NAMES = ["total", "two margins", "recode", "total and a group", "crossed recodes"]
NEIGHBOURS = ["add-remove", "replace", WITHIN]
# No groups to nest, groups within groups, groups that cross: they stand for all, which `make test-long` takes.
SHORT = pairwise(
    name=["two margins", "recode", "crossed recodes"],
    workload=WORKLOADS,
    method=["identity", "opt0", "kron", "residual"],
    neighbours=NEIGHBOURS,
)


@each(*SHORT, long=itertools.product(NAMES, WORKLOADS, METHODS, NEIGHBOURS))
def test_gaussian_error_is_that_of_the_projected_mechanism(
    name: str, workload: str, method: str, neighbours: str
) -> None:
    wl, exact = WORKLOADS[workload], EXACT[name]
    if not (neighbours == "add-remove" or _pairs(neighbours, exact)):
        with pytest.raises(InvalidArgument, match="nothing would be protected"):
            tb.select(wl, method=method, neighbours=neighbours, invariants=exact)
        return
    strategy = tb.select(wl, method=method, neighbours=neighbours, invariants=exact)
    assert strategy.invariants == tuple(exact)
    dense = _rmse(strategy, wl, exact, neighbours)
    # Sensitivities may be bounds under the third relation, never below the truth.
    assert _chosen(strategy) >= dense * (1 - 1e-6)
    if neighbours != WITHIN:
        assert _chosen(strategy) == pytest.approx(dense, rel=1e-6)


@pytest.mark.long
@each(*pairwise(name=["total", "recode"], method=PURE, neighbours=["add-remove", "replace"]))
def test_laplace_error_is_that_of_the_projected_mechanism(name: str, method: str, neighbours: str) -> None:
    wl, exact = WORKLOADS["prefixes"], EXACT[name]
    strategy = tb.select(wl, noise="laplace", method=method, neighbours=neighbours, invariants=exact)
    assert _chosen(strategy) == pytest.approx(_rmse(strategy, wl, exact, neighbours), rel=1e-6)


def _never_worse(name: str, workload: str, method: str, noise: str, neighbours: str) -> None:
    wl, exact = WORKLOADS[workload], EXACT[name]
    if (workload, name) == ("prefixes", "all two-way"):
        pytest.skip("every count is exact")
    options = {"noise": noise, "method": method, "neighbours": neighbours}
    with_them = tb.select(wl, invariants=exact, **options)  # type: ignore[arg-type]
    without = _without(workload, noise, method, neighbours)
    certified = with_them.certificate is not None and with_them.certificate <= 1e-4
    room = 1e-4 if certified else 1e-6
    assert _chosen(with_them) <= _rmse(without, wl, exact, neighbours) * (1 + room)


@pytest.mark.long
@each("method", METHODS)
@each(
    "name, noise, neighbours", [("two margins", "gaussian", "replace"), ("recode", "laplace", "add-remove")]
)
def test_never_worse_than_projecting_the_strategy_chosen_without_invariants(
    name: str, method: str, noise: str, neighbours: str
) -> None:
    _never_worse(name, "prefixes", method, noise, neighbours)


@pytest.mark.long
@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
@pytest.mark.parametrize(
    ("noise", "method"), [*(("gaussian", m) for m in METHODS), *(("laplace", m) for m in PURE)]
)
@each("workload", WORKLOADS)
@each("name", NESTED)
def test_never_worse_whatever_is_exact(
    name: str, workload: str, method: str, noise: str, neighbours: str
) -> None:
    _never_worse(name, workload, method, noise, neighbours)


@pytest.mark.parametrize("name", ["total", "two margins", "recode", "crossed recodes", "a group alone"])
def test_the_gaussian_optimum_is_certified_and_no_candidate_is_below_its_bound(name: str) -> None:
    wl, exact = WORKLOADS["prefixes"], EXACT[name]
    best = tb.select(wl, method="opt0", invariants=exact)
    assert best.certificate is not None
    assert best.certificate < 1e-3
    _, off = projectors(exact)
    left = np.vstack([w * m for w, m in _restricted(wl, off) if np.abs(m).max() > 1e-9])
    svd = np.linalg.svd(left, compute_uv=False).sum() ** 2 / DOMAIN.size
    assert _chosen(best) ** 2 * len(left) >= svd * (1 - 1e-9)


PAIRS = pairwise(name=EXACT, method=["identity", "workload", "kron", "opt0"], p=[1, 2])


@each(*PAIRS, long=itertools.product(EXACT, ["identity", "workload", "kron", "opt0"], [1, 2]))
def test_sensitivity_within_invariants_is_that_of_the_listed_pairs(name: str, method: str, p: int) -> None:
    exact = EXACT[name]
    strategy = _without("prefixes", "gaussian" if p == 2 else "laplace", method)
    strategy = tb.Strategy(DOMAIN, strategy.blocks, strategy.noise, strategy.method, invariants=tuple(exact))
    pairs = _pairs(WITHIN, exact)
    if not pairs:
        with pytest.raises(InvalidArgument, match="nothing would be protected"):
            strategy.sensitivity(WITHIN)
        return
    weighted = [(b.query, 1 / (b.scale * Fraction(2) ** (p * b.exponent))) for b in strategy.blocks]
    found = within_invariants(weighted, p, DOMAIN, strategy.exact)
    assert found.is_exact
    assert float(found.power) == pytest.approx(_cost(strategy, pairs, p), rel=1e-12)
    assert (
        found.power
        <= strategy.sensitivity(WITHIN).power
        <= strategy.sensitivity("replace").power * (1 + 1e-9)
    )


@each("p", [1, 2])
@each("name", EXACT)
def test_what_no_neighbour_moves_is_charged_by_the_means_of_classes(name: str, p: int) -> None:
    """Sums over classes of equal columns would else come out with next to no noise, and no word of it."""
    exact = EXACT[name]
    strategy = _without("prefixes", "gaussian" if p == 2 else "laplace", "workload")
    matrix = stacked(exact)
    labels = np.unique(matrix, axis=1, return_inverse=True)[1].reshape(-1)
    means = np.array([(labels == c) / (labels == c).sum() for c in range(labels.max() + 1)]).T
    scale = np.repeat([float(b.scale) for b in strategy.blocks], [b.rows for b in strategy.blocks])
    columns = (dense_strategy(strategy) / (np.sqrt(scale) if p == 2 else scale)[:, None]) @ means
    apart = np.abs(columns[:, :, None] - columns[:, None, :])
    weighted = [(b.query, 1 / (b.scale * Fraction(2) ** (p * b.exponent))) for b in strategy.blocks]
    if not _pairs(WITHIN, exact):
        return
    found = between_classes(weighted, p, DOMAIN, Invariants(DOMAIN, exact))
    assert float(found.power) == pytest.approx((apart**p).sum(axis=0).max(), rel=1e-9)


def test_a_count_that_no_neighbour_moves_is_not_published_bare() -> None:
    """a and b are exact; a by b, asked a thousand times as closely as the rest, is not, and keeps its noise."""
    domain = tb.Domain({"a": 2, "b": 3, "c": 4})
    wl = tb.Workload(
        domain,
        [
            tb.Table("ab", {"a": Identity(2), "b": Identity(3)}, weight=1000),
            tb.Table("abc", {"a": Identity(2), "b": Identity(3), "c": Identity(4)}),
        ],
    )
    exact = [tb.Table("ea", {"a": Identity(2)}), tb.Table("eb", {"b": Identity(3)})]
    for method in ("auto", "workload", "marginals"):
        strategy = tb.select(wl, method=method, neighbours=WITHIN, invariants=exact)
        error = strategy.error(wl, tb.ZCDP("1/2"), neighbours=WITHIN)
        assert error.tables["ab"] > 0.3


def test_factors_that_are_no_attributes_are_bounded_not_read_as_such() -> None:
    blocks = [(tb.Kron([Identity(2), tb.Dense(np.diag([9, 1, 1]))]), Fraction(1))]
    domain = tb.Domain({"x": 6})
    exact = Invariants(domain, [tb.Table("e", {})])
    assert within_invariants(blocks, 2, domain, exact).power >= 162


def test_entries_beyond_64_bits_are_bounded_not_wrapped() -> None:
    domain = tb.Domain({"x": 2, "y": 2})
    large = tb.Dense(np.diag([2**33, 1]))
    exact = Invariants(domain, [tb.Table("e", {})])
    assert within_invariants([(tb.Kron([large, large]), Fraction(1))], 2, domain, exact).power >= 2**132


def test_within_a_large_domain_classes_are_products() -> None:
    """10^7 cells: not listed, but one class of ages for each sex and region."""
    domain = tb.Domain({"region": 500, "sex": 2, "age": 100, "race": 100})
    exact = [tb.Table("e", {"region": Identity(500), "sex": Identity(2)})]
    wl = tb.Workload(domain, [tb.Table("t", {"region": Identity(500), "age": Prefix(100)})])
    strategy = tb.Strategy(
        domain, tb.select(wl, method="workload").blocks, "gaussian", "workload", invariants=tuple(exact)
    )
    weighted = [(b.query, 1 / b.scale) for b in strategy.blocks]
    found = within_invariants(weighted, 2, domain, strategy.exact)
    assert found.power == 99  # prefixes of one region: ages 0 and 99 differ in 99
    assert found.is_exact
    assert strategy.sensitivity("replace").power == 200


def test_within_needs_invariants() -> None:
    with pytest.raises(InvalidArgument, match="needs invariants"):
        tb.select(WORKLOADS["prefixes"], method="identity", neighbours=WITHIN)


def test_units_of_several_rows_have_no_bound_within_invariants() -> None:
    strategy = tb.select(WORKLOADS["prefixes"], method="identity", invariants=NESTED["total"])
    with pytest.raises(Unsupported, match="several rows of a unit"):
        strategy.sensitivity(WITHIN, stability=2)


@pytest.mark.parametrize(
    ("shape", "axes", "add", "pair"),
    [
        ((7,), [()], Fraction(6, 7), Fraction(2)),
        ((4, 5), [(0,), (1,)], Fraction(3, 5), Fraction(8, 5)),
        ((3, 3), [(0,), (1,)], Fraction(4, 9), Fraction(4, 3)),
        ((14, 24, 5), [(0, 2), (1, 2)], Fraction(13 * 23, 14 * 24), Fraction(2)),
    ],
)
def test_closed_forms_of_a_histogram(
    shape: tuple[int, ...], axes: list[tuple[int, ...]], add: Fraction, pair: Fraction
) -> None:
    """One total: 1 - 1/n and 2; margins of r x c: (1 - 1/r)(1 - 1/c) and 2 (1 - 1/max(r, c)), squared L2."""
    domain = tb.Domain({f"x{i}": n for i, n in enumerate(shape)})
    exact = [tb.Table(f"e{k}", {f"x{i}": Identity(shape[i]) for i in s}) for k, s in enumerate(axes)]
    plain = tb.select(tb.Workload.marginals(domain, ways=[len(shape)]), method="identity")
    strategy = restricted_strategy(plain, exact)
    assert strategy.sensitivity("add-remove").power == add
    if len(shape) < 3:
        assert strategy.sensitivity("replace").power == pair


def test_unequal_weights_cost_eight_times_as_much_in_the_null_space() -> None:
    """Under replace-one the total is free: measured closely, it carries an exact count of a group into null(C).

    ``max (Pi_N d)' P (Pi_N d)`` is what the restricted queries are charged: here eight times the plain cost.
    """
    domain = tb.Domain({"x": 9})
    wl = tb.Workload(domain, [tb.Table("cells", {"x": Identity(9)}), tb.Table("all", {}, weight=4)])
    plain = tb.select(wl, method="workload")
    exact = [tb.Table("e", {"x": tb.Dense(np.array([[1] * 3 + [0] * 6]))})]
    off = np.eye(9) - np.linalg.pinv(exact[0].operator(domain).dense()) @ exact[0].operator(domain).dense()
    inner = off @ (np.eye(9) + 16 * np.ones((9, 9))) @ off
    cost = max((inner[j, j] + inner[k, k] - 2 * inner[j, k]) for j in range(9) for k in range(9))
    restricted = restricted_strategy(plain, exact)
    assert plain.sensitivity("replace").power == 2
    assert cost / 2 > 8
    assert float(restricted.sensitivity("replace").power) == pytest.approx(cost, rel=1e-5)


@pytest.mark.parametrize("neighbours", ["replace", WITHIN])
def test_blocks_of_next_to_no_noise_do_not_hide_others(neighbours: str) -> None:
    """Under replace the total is measured almost without noise; beside it, explicit least squares keeps its rows."""
    exact, (_, off) = EXACT["crossed recodes"], projectors(EXACT["crossed recodes"])
    wl = WORKLOADS["marginals"]
    strategy = tb.select(wl, method="residual", neighbours=neighbours, invariants=exact)
    m = tb.measure(np.arange(DOMAIN.size), strategy, tb.ZCDP("1/8"), neighbours=neighbours)
    estimate = tb.estimate(m)
    widths = estimate.half_widths(wl)
    for table in wl.tables:
        deviation = np.sqrt(estimate.variance(wl)[table.name])
        assert np.isfinite(widths[table.name].values).all()
        assert (widths[table.name].values <= 4 * deviation + 1).all()
        assert (widths[table.name].values >= 1.9 * deviation - 1e-9).all()  # 95 % of a normal law is 1.96
        left = table.operator(DOMAIN).dense() @ off
        assert ((deviation > 0) == (np.abs(left).max(axis=1) > 1e-9)).all()


TARGETS = tb.Targets(rmse={"x": 3}, margin={"y": 4})


@pytest.mark.parametrize("objective", ["max", pytest.param(TARGETS, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("name", "noise"),
    [
        ("crossed recodes", "gaussian"),
        pytest.param("two margins", "gaussian", marks=pytest.mark.long),
        pytest.param("two margins", "laplace", marks=pytest.mark.long),
        pytest.param("crossed recodes", "laplace", marks=pytest.mark.long),
    ],
)
def test_never_worse_for_other_objectives_either(name: str, noise: str, objective: str | tb.Targets) -> None:
    wl, exact = WORKLOADS["prefixes"], EXACT[name]
    options = {"noise": noise, "method": "marginals", "objective": objective}
    with_them = tb.select(wl, invariants=exact, **options)  # type: ignore[arg-type]
    without = replace(tb.select(wl, **options), invariants=tuple(exact))  # type: ignore[arg-type]
    values = [restrict(wl, exact).value(s, objective, "add-remove") for s in (with_them, without)]
    assert values[0] <= values[1] * (1 + 1e-9)


def test_everything_exact_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="determine every count asked for \\('ab', 'b'\\)"):
        tb.select(
            tb.Workload(DOMAIN, [margin("ab", "a", "b"), margin("b", "b")]),
            invariants=[margin("e", "a", "b")],
        )


def test_exact_tables_are_left_out_and_groups_follow() -> None:
    wl = WORKLOADS["marginals"]
    left = restrict(wl, [margin("e", "a", "b")])
    assert [t.name for t in left.workload.tables] == ["bc", "abc"]
    assert left.groups((("ab", "bc"), ("abc",), ("t",))) == (("bc",), ("abc",))


def test_targets_are_those_of_the_whole_tables() -> None:
    wl, exact = WORKLOADS["marginals"], [margin("e")]
    targets = tb.Targets(rmse={"ab": 3, "bc": 1})
    strategy = tb.select(wl, method="residual", invariants=exact, objective=targets)
    left = restrict(wl, exact)
    by_name = {t.name: t for t in left.workload.tables}
    errors = {
        name: unit_rmse(
            strategy, tb.Workload(DOMAIN, [tb.Table.of_terms(name, by_name[name].terms)]), "add-remove"
        )
        / left.divisors[name]
        for name in ("ab", "bc")
    }
    assert errors["ab"] / 3 == pytest.approx(errors["bc"] / 1, rel=0.02)
