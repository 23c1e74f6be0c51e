"""The bound with product multipliers: below the optimum always, at it where the planner is optimal."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tabulae as tb
from benchmarks import workloads
from tabulae.domain import Term
from tabulae.errors import InvalidArgument, Unsupported
from tabulae.strategy.bounds import product
from tabulae.strategy.bounds.lower import unit_bound
from tabulae.strategy.bounds.product import product_bound
from tabulae.strategy.gram import explicit_gram
from tabulae.strategy.hdmm.opt0 import opt0_gaussian
from tabulae.strategy.residual.search import asked_for

UNIT = tb.ApproxDP(1, "1e-6")


@st.composite
def _matrices(draw: st.DrawFn, n: int) -> tb.LinearOperator:
    kind = draw(st.sampled_from(["identity", "prefix", "ranges", "width", "groups", "real"]))
    if kind in ("groups", "real"):
        rng = np.random.default_rng(draw(st.integers(0, 2**32)))
        array = rng.integers(0, 2, (3, n)) if kind == "groups" else rng.normal(size=(4, n))
        return tb.Dense(array if array.any() else np.ones((1, n), int))
    widths = {"identity": tb.Identity, "prefix": tb.Prefix, "ranges": tb.AllRange}
    return tb.WidthRange(n, max(1, n - 1)) if kind == "width" else widths[kind](n)


@st.composite
def _workloads(draw: st.DrawFn) -> tb.Workload:
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    domain = tb.Domain({f"a{i}": n for i, n in enumerate(sizes)})
    tables = []
    for t in range(draw(st.integers(1, 4))):
        asked = [a for a in domain.attributes if draw(st.booleans())]
        tables.append(
            tb.Table(f"t{t}", {a.name: draw(_matrices(a.size)) for a in asked}, draw(st.integers(1, 4)))
        )
    return tb.Workload(domain, tables)


@given(_workloads())
def test_it_never_exceeds_the_optimum(workload: tb.Workload) -> None:
    """Against the certified dual of the explicit workload, at most 125 cells."""
    merged, _ = workload.merge()
    optimum = opt0_gaussian(explicit_gram(merged), tolerance=1e-6)
    assert 0 < product_bound(asked_for(workload)) <= optimum.loss * (1 + 1e-12)


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("cps_marginals", 7.8517),
        ("cps_prefix", 29.4693),
        pytest.param("adult_3d", 45.0561, marks=pytest.mark.long),
        ("loans_small", 34.6697),
        pytest.param("adult_2d_prefix", 70.26, marks=pytest.mark.long),
        pytest.param("loans_small_prefix", 53.44, marks=pytest.mark.long),
    ],
)
def test_it_is_near_what_the_planner_reaches(name: str, least: float) -> None:
    """Of RMSE at (1, 1e-6): the optimum for marginals and for one product; 1 % and 0.5 % below the planner else."""
    workload = getattr(workloads, name)()
    bound = tb.lower_bound(workload, budget=UNIT, kind="dual")
    reached = tb.select(workload, method="residual")
    rmse = reached.error(workload, UNIT).rmse
    assert least <= bound <= rmse * (1 + 1e-9)
    assert reached.certificate is not None
    assert rmse <= bound * (1 + reached.certificate) ** 0.5 * (1 + 1e-6)


@given(_workloads(), st.integers(2, 5))
def test_all_directions_give_the_nuclear_norm_and_fewer_no_more(workload: tb.Workload, fewer: int) -> None:
    """At equal multipliers, against the singular values of the whole matrix."""
    merged, _ = workload.merge()
    asked = asked_for(workload)
    scales = [None if g is None else np.full(g.shape[1], g.shape[1] ** -0.5) for g in asked.grams]
    roots = np.sqrt(np.maximum(np.linalg.eigvalsh(explicit_gram(merged)), 0.0))
    nuclear = roots.sum() ** 2 / merged.domain.size
    reached = product._refined(asked, scales, max(2, *merged.domain.shape))
    assert nuclear * (1 - 1e-4) <= reached <= nuclear * (1 + 1e-9)
    assert product._refined(asked, scales, fewer) <= reached * (1 + 1e-6)


@given(st.integers(0, 2**32))
def test_slopes_are_differences_of_the_nuclear_norm(seed: int) -> None:
    """With all directions nothing is held but the polar factor, and that is the envelope's."""
    rng = np.random.default_rng(seed)
    domain = tb.Domain({"a": 3, "b": 4, "c": 3})
    asks = {"a": [tb.Prefix(3), tb.AllRange(3)], "b": [tb.Prefix(4), tb.AllRange(4)], "c": [tb.Prefix(3)]}
    sets = [("a",), ("b",), ("a", "b"), ("b", "c"), ("a", "b", "c")]
    tables = [
        tb.Table("".join(t), {n: asks[n][rng.integers(len(asks[n]))] for n in t}, int(rng.integers(1, 4)))
        for t in sets
    ]
    workload = tb.Workload(domain, tables)
    asked = asked_for(workload)
    scales = [s / np.linalg.norm(s) for s in (rng.uniform(0.5, 1.5, n) for n in domain.shape)]
    W = np.vstack([float(t.weight) * t.operator(domain).dense() for t in tables])

    def nuclear(at: list[np.ndarray]) -> float:
        return float(np.linalg.svd(W * np.kron(np.kron(at[0], at[1]), at[2]), compute_uv=False).sum())

    found = [product.in_directions(g, s, len(s)) for g, s in zip(asked.grams, scales, strict=True)]
    slopes = product._Slopes.at(found)
    value = sum(slopes.add(parts, inside) for inside, parts in product._stacks(asked, found))
    assert value == pytest.approx(nuclear(scales), rel=1e-6)
    for i, s in enumerate(scales):
        step = 1e-6 * rng.normal(size=len(s))
        moved = [[*scales[:i], s + sign * step, *scales[i + 1 :]] for sign in (1, -1)]
        difference = (nuclear(moved[0]) - nuclear(moved[1])) / 2
        assert slopes.by_root(i, s) @ step == pytest.approx(difference, rel=1e-4, abs=1e-10)


@pytest.mark.long
def test_the_columns_of_a_stack_are_bounded() -> None:
    """Six directions of each of 14 attributes would be too many for their triples: fewer are taken."""
    domain = tb.Domain({f"a{i}": 8 for i in range(14)})
    prefixes = {name: tb.Prefix(8) for name in domain.names}
    triples = [tb.Table("".join(t), {n: prefixes[n] for n in t}) for t in combinations(domain.names, 3)]
    asked = asked_for(tb.Workload(domain, triples))
    one, many = product_bound(asked, 1), product_bound(asked)
    assert 1.1 * one < many < 1.4 * one


@given(_workloads())
def test_more_directions_never_prove_less_and_none_proves_too_much(workload: tb.Workload) -> None:
    """Each at its own budget's RMSE, between the bound of one direction and the certified optimum."""
    optimum = opt0_gaussian(explicit_gram(workload.merge()[0]), tolerance=1e-6).loss / workload.queries
    bounds = [
        tb.lower_bound(workload, budget=tb.ZCDP("1/2"), kind="product", directions=m) ** 2
        for m in (1, 2, 3, 6)
    ]
    assert bounds[0] == pytest.approx(product_bound(asked_for(workload), 1) / workload.queries, rel=1e-9)
    for fewer, more in pairwise(bounds):
        assert fewer <= more * (1 + 1e-6)  # what is taken off for rounding
    assert bounds[-1] <= optimum * (1 + 1e-12)


def test_laplace_noise_has_the_same_bound_at_its_own_scale() -> None:
    domain = tb.Domain({"a": 6, "b": 5})
    workload = tb.Workload(domain, [tb.Table("t", {"a": tb.Prefix(6)}), tb.Table("u", {"b": tb.AllRange(5)})])
    gaussian = tb.lower_bound(workload, budget=tb.ZCDP("1/2"), kind="product")
    laplace = tb.lower_bound(workload, "laplace", budget=tb.PureDP(1), kind="product")
    assert laplace == pytest.approx(2**0.5 * gaussian, rel=1e-9)


@pytest.mark.parametrize(
    ("kind", "directions"),
    [("svd", 2), ("dual", 2), ("product", 0), ("product", 1.5), ("product", True), ("nuclear", None)],
)
def test_directions_are_whole_and_of_the_product_bound_alone(kind: str, directions: object) -> None:
    with pytest.raises(InvalidArgument):
        tb.lower_bound(tb.Workload.of(tb.Prefix(4)), budget=UNIT, kind=kind, directions=directions)  # type: ignore[arg-type]


def test_pairs_of_cells_have_no_product_bound() -> None:
    with pytest.raises(Unsupported):
        tb.lower_bound(tb.Workload.of(tb.Prefix(4)), budget=UNIT, kind="product", neighbours="replace")


def test_sums_of_products_are_left_out_of_directions_and_never_lower_the_bound() -> None:
    domain = tb.Domain({"a": 4, "b": 3})
    plain = tb.Table("plain", {"a": tb.Prefix(4), "b": tb.Identity(3)})
    either = tb.Table.of_terms(
        "either", [Term(1, {"a": tb.Total(4)}), Term(-1, {"a": tb.Dense([[1, 0, 0, 0]]), "b": tb.Total(3)})]
    )
    alone, both = tb.Workload(domain, [plain]), tb.Workload(domain, [plain, either])
    product, dual = unit_bound(both, "product"), unit_bound(both, "dual")
    few = unit_bound(both, "product", directions=6)
    assert few == pytest.approx(unit_bound(alone, "product", directions=6), rel=1e-12)
    assert few is not None
    assert product is not None
    assert dual is not None
    assert few <= product <= dual * (1 + 1e-9)
    assert unit_bound(tb.Workload(domain, [either]), "product", directions=6) is None
