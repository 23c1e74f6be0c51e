"""Data cubes: the published figures, the guarantee of the greedy covers, and what they refuse."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from benchmarks.strategies_score import covering_strategy
from hypothesis import given
from hypothesis import strategies as st
from tests.strategy.instances import BUDGETS, DOMAIN, WORKLOADS, dense, dense_strategy

import tabulae as tb
from benchmarks import workloads as published
from tabulae.errors import Unsupported
from tabulae.linalg import Partition
from tabulae.strategy.classic.cubes import bound_max_variance, data_cube_strategy, largest_sum, summed_cells
from tabulae.strategy.methods import Settings
from tabulae.strategy.strategy import unit_rmse

UNIT = {"gaussian": 4.224678889326836, "laplace": math.sqrt(2)}  # (1, 1e-6), analytic Gaussian; epsilon = 1

# HDMM, Tables 6 and 7, column DataCube.
PRINTED = [
    ("cps_marginals", "laplace", 18.49, 8),
    ("cps_marginals", "gaussian", 19.53, 8),
    pytest.param("adult_3d", "laplace", 494.06, 364, marks=pytest.mark.long),
    pytest.param("adult_3d", "gaussian", 77.36, 364, marks=pytest.mark.long),
    ("loans_small", "laplace", 113.98, 83),
    ("loans_small", "gaussian", 37.37, 83),
]

# The marginals of least largest noise, and their RMSE: computed here, from the same definition of error.
BOUNDED = [
    ("cps_marginals", "laplace", 15.2292, 8),
    ("cps_marginals", "gaussian", 16.0846, 16),
    pytest.param("adult_3d", "laplace", 636.612, 470, marks=pytest.mark.long),
    pytest.param("adult_3d", "gaussian", 87.7212, 470, marks=pytest.mark.long),
    ("loans_small", "laplace", 211.3345, 188),
    ("loans_small", "gaussian", 46.0437, 188),
]


@pytest.mark.parametrize(("name", "noise", "printed", "measured"), PRINTED)
def test_covers_reproduce_the_published_column(name: str, noise: str, printed: float, measured: int) -> None:
    workload = getattr(published, name)()
    strategy = covering_strategy(workload, Settings(noise))  # type: ignore[arg-type]
    assert len(strategy.blocks) == measured
    assert round(UNIT[noise] * unit_rmse(strategy, workload, "add-remove"), 2) == printed


@pytest.mark.parametrize(("name", "noise", "rmse", "measured"), BOUNDED)
def test_figures_of_the_least_largest_noise(name: str, noise: str, rmse: float, measured: int) -> None:
    workload = getattr(published, name)()
    strategy = data_cube_strategy(workload, Settings(noise))  # type: ignore[arg-type]
    assert len(strategy.blocks) == measured
    assert UNIT[noise] * unit_rmse(strategy, workload, "add-remove") == pytest.approx(rmse, rel=1e-5)


def _noise_by_hand(
    sets: list[tuple[int, ...]], sizes: list[int], chosen: tuple[int, ...], power: int
) -> float:
    """The largest variance when each marginal is summed from the measured one that is best for it."""
    cells = [math.prod(sizes[i] for i in s) for s in sets]
    best = [
        min((cells[c] / cells[m] for c in chosen if set(sets[m]) <= set(sets[c])), default=math.inf)
        for m in range(len(sets))
    ]
    return len(chosen) ** power * max(best)


@st.composite
def _cubes(draw: st.DrawFn) -> tuple[list[tuple[int, ...]], list[int]]:
    sizes = draw(st.lists(st.integers(2, 9), min_size=2, max_size=4))
    every = [s for k in range(len(sizes) + 1) for s in itertools.combinations(range(len(sizes)), k)]
    sets = draw(st.lists(st.sampled_from(every), min_size=1, max_size=8, unique=True))
    return sorted(sets, key=lambda s: (math.prod(sizes[i] for i in s), s)), sizes


@given(cube=_cubes(), p=st.sampled_from([1, 2]))
def test_the_largest_noise_is_within_the_guarantee_of_the_least(cube: tuple, p: int) -> None:
    sets, sizes = cube
    power = 2 if p == 1 else 1
    chosen = tuple(bound_max_variance(sets, sizes, p))
    found = _noise_by_hand(sets, sizes, chosen, power)
    assert found == len(chosen) ** power * largest_sum(summed_cells(sets, sizes), chosen)
    least = min(
        _noise_by_hand(sets, sizes, some, power)
        for k in range(1, len(sets) + 1)
        for some in itertools.combinations(range(len(sets)), k)
    )
    assert least <= found <= (math.log(len(sets)) + 1) ** power * least
    assert found <= len(sets) ** power  # no worse than measuring all of them


@given(cube=_cubes(), p=st.sampled_from([1, 2]))
def test_least_squares_is_never_worse_than_summing(cube: tuple, p: int) -> None:
    sets, sizes = cube
    domain = tb.Domain({f"a{i}": n for i, n in enumerate(sizes)})
    tables = [
        tb.Table("*".join(f"a{i}" for i in s) or "total", {f"a{i}": tb.Identity(sizes[i]) for i in s})
        for s in sets
    ]
    workload = tb.Workload(domain, tables)
    strategy = data_cube_strategy(workload, Settings("laplace" if p == 1 else "gaussian"))
    used = sorted({i for s in sets for i in s})  # the others are merged away
    merged = [tuple(used.index(i) for i in s) for s in sets]
    noise = _noise_by_hand(
        merged,
        [sizes[i] for i in used],
        tuple(bound_max_variance(merged, [sizes[i] for i in used], p)),
        2 if p == 1 else 1,
    )
    budget = tb.PureDP(1) if p == 1 else tb.ZCDP("1/2")
    unit = 2.0 if p == 1 else 1.0
    assert strategy.error(workload, budget).max_variance <= unit * noise * (1 + 1e-9)


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
@pytest.mark.parametrize("noise", BUDGETS)
def test_estimates_are_dense_least_squares_of_what_was_measured(noise: str, neighbours: str) -> None:
    workload = WORKLOADS["marginals"]
    strategy = data_cube_strategy(workload, Settings(noise, neighbours))  # type: ignore[arg-type]
    counts = np.random.default_rng(3).integers(0, 60, workload.domain.size)
    source = tb.noise.Insecure(4)
    measured = tb.measure(counts, strategy, BUDGETS[noise], neighbours=neighbours, source=source)
    assert measured.rehearsal
    matrix, answers = dense_strategy(strategy), np.concatenate(measured.answers())
    assert set(np.unique(matrix)) == {0.0, 1.0}
    moves = (
        matrix.T
        if neighbours == "add-remove"
        else (matrix.T[:, None] - matrix.T[None]).reshape(-1, len(matrix))
    )
    p = 2 if noise == "gaussian" else 1
    assert strategy.sensitivity(neighbours).power == (np.abs(moves) ** p).sum(axis=1).max()
    cells = np.linalg.lstsq(matrix, answers, rcond=1e-9)[0]  # all noise is equal: no weights needed
    inverse = np.linalg.pinv(matrix, rcond=1e-9)
    estimate = tb.estimate(measured)
    for table, values in estimate.answer(workload).items():
        assert values == pytest.approx(dense(workload)[table] @ cells, rel=1e-6, abs=1e-5)
        variance = np.square(dense(workload)[table] @ inverse) @ measured.variance
        assert estimate.variance(workload)[table] == pytest.approx(variance, rel=1e-6)


def test_one_product_means_all_its_marginals() -> None:
    both = tb.Stack([tb.Identity(3), tb.Total(3)])
    product = tb.Workload(tb.Domain({"a": 3, "b": 5}), [tb.Table("all", {"a": both, "b": tb.Identity(5)})])
    tables = [
        tb.Table("b", {"b": tb.Identity(5)}),
        tb.Table("a*b", {"a": tb.Identity(3), "b": tb.Identity(5)}),
    ]
    spread = tb.Workload(product.domain, tables)
    assert data_cube_strategy(product, Settings("laplace")) == data_cube_strategy(spread, Settings("laplace"))


def test_groups_that_every_table_has_are_categories() -> None:
    groups = Partition([0, 0, 1, 1, 2])
    domain = tb.Domain({"a": 5, "b": 2, "c": 4})
    workload = tb.Workload(
        domain, [tb.Table("a", {"a": groups}), tb.Table("a*b", {"a": groups, "b": tb.Identity(2)})]
    )
    strategy = data_cube_strategy(workload, Settings("gaussian"))
    assert {b.name: b.rows for b in strategy.blocks} == {"a*b": 6}


REFUSED = [
    (tb.Workload.of(tb.Prefix(4)), "asks something else of 'x'"),
    (tb.Workload.of(tb.Dense([[2, 0], [0, 2]])), "asks something else of 'x'"),
    (tb.Workload.of(tb.Dense([[1, 0], [0, 1], [1, 0], [0, 1]])), "asks something else of 'x'"),
    (tb.Workload(DOMAIN, [WORKLOADS["disjunction"].tables[0]]), "is a sum of products"),
    (WORKLOADS["recodes"], "asks something else of 'age'"),
    (
        tb.Workload(DOMAIN, [tb.Table("sex", {"sex": tb.Identity(2)}), tb.Table("total", {}, weight=2)]),
        "these tables have weights",
    ),
    (
        tb.Workload.marginals(tb.Domain({f"a{i}": 2 for i in range(12)}), ways=range(13)),
        "brings them to 2,049",
    ),
]


@pytest.mark.parametrize(("workload", "why"), REFUSED)
def test_what_is_no_marginal_is_refused_with_what_to_use_instead(workload: tb.Workload, why: str) -> None:
    with pytest.raises(Unsupported, match=why) as refused:
        data_cube_strategy(workload, Settings("gaussian"))
    assert 'choose "marginals" or "residual"' in str(refused.value)
