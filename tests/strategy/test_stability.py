"""Units of several rows: the sensitivity, the laws and the planned error, against every change there is."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.each import each

import tabulae as tb
from tabulae.errors import InvalidArgument, Unsupported
from tabulae.strategy import Block, Strategy

BUDGETS = {"gaussian": tb.ZCDP("3/14"), "laplace": tb.PureDP("2/9")}
NEIGHBOURS = ("add-remove", "replace")

matrices = st.integers(1, 3).flatmap(
    lambda m: st.lists(st.lists(st.integers(-2, 3), min_size=3, max_size=3), min_size=m, max_size=m)
)


def _strategy(noise: Literal["gaussian", "laplace"], *rows: list[list[int]]) -> Strategy:
    blocks = tuple(Block(f"b{i}", tb.Dense(np.array(r)), i, Fraction(i + 2, 3)) for i, r in enumerate(rows))
    return Strategy(tb.Domain({"x": 3}), blocks, noise, "test")


def _power(strategy: Strategy, change: np.ndarray) -> Fraction:
    """``sum_i w_i ||A_i d||_p^p`` by hand, in counts, exactly."""
    p = strategy.norm
    return sum(
        (
            Fraction(int((abs(block.query.dense() @ change) ** p).sum()), 2 ** (p * block.exponent))
            / block.scale
            for block in strategy.blocks
        ),
        Fraction(0),
    )


def _units(k: int, *, least: int) -> list[np.ndarray]:
    """The counts of every unit of ``least`` to k rows over three cells."""
    return [np.array(u) for u in itertools.product(range(k + 1), repeat=3) if least <= sum(u) <= k]


def _worst(strategy: Strategy, neighbours: str, k: int, *, least: int = 0) -> Fraction:
    if neighbours == "add-remove":
        return max(_power(strategy, u) for u in _units(k, least=1))
    units = _units(k, least=least)
    return max(_power(strategy, u - v) for u in units for v in units)


@given(
    first=matrices,
    second=matrices,
    noise=st.sampled_from(["gaussian", "laplace"]),
    neighbours=st.sampled_from(NEIGHBOURS),
    k=st.integers(1, 3),
    fewest=st.sampled_from([0, 1]),
)
def test_no_change_of_a_unit_moves_the_answers_further(
    first: list[list[int]],
    second: list[list[int]],
    noise: Literal["gaussian", "laplace"],
    neighbours: str,
    k: int,
    fewest: int,
) -> None:
    """Over every unit of up to k rows, and under replace every pair of them, rowless ones where units may have none."""
    strategy = _strategy(noise, first, second)
    worst = _worst(strategy, neighbours, k, least=fewest if k == 1 else 0)
    said = strategy.sensitivity(neighbours, k, fewest)
    assert worst <= said.power
    assert said.is_exact or (neighbours == "replace" and fewest == 1)
    if said.is_exact:
        assert worst == said.power


@each("noise", BUDGETS)
@each("neighbours", NEIGHBOURS)
@each("k", [1, 2, 3, 1000])
def test_laws_are_multiplied_by_exactly_k_to_the_p(noise, neighbours: str, k: int) -> None:
    """Variance times k^2, scale times k; identity queries, where a pair is never below a column."""
    strategy = tb.select(
        tb.Workload.of(tb.Identity(5)), noise=noise, method="identity", neighbours=neighbours
    )
    one = strategy.laws(BUDGETS[noise], neighbours)
    several = strategy.laws(BUDGETS[noise], neighbours, k)
    power = 2 if noise == "gaussian" else 1
    assert [law.parameter for law in several] == [law.parameter * Fraction(k) ** power for law in one]
    workload = tb.Workload.of(tb.Prefix(5))
    ratio = (
        strategy.error(workload, BUDGETS[noise], neighbours, k).rmse
        / strategy.error(workload, BUDGETS[noise], neighbours).rmse
    )
    assert ratio == pytest.approx(k, rel=1e-12)


def test_approximate_privacy_too() -> None:
    strategy = tb.select(tb.Workload.of(tb.Identity(5)), method="identity")
    budget = tb.ApproxDP(1, "1e-6")
    assert strategy.laws(budget, stability=7)[0].parameter == 49 * strategy.laws(budget)[0].parameter


def test_under_replace_the_number_of_rows_is_protected_as_well() -> None:
    """The total does not change when one record replaces another, but does when a unit of 3 replaces one of 1."""
    total = _strategy("gaussian", [[1, 1, 1]])
    with pytest.raises(Unsupported, match="number of records is public"):
        total.laws(tb.ZCDP(1), "replace")
    assert total.sensitivity("replace", 3).power == 9 * total.sensitivity("add-remove").power
    assert total.laws(tb.ZCDP(1), "replace", 3) == total.laws(tb.ZCDP(1), "add-remove", 3)
    # k times the pair is no bound: here a pair moves nothing and a unit of 3 for one of 1 moves the answer by 2.
    assert _worst(total, "replace", 3, least=1) > 9 * total.sensitivity("replace").power


def test_where_some_records_are_counted_a_replaced_one_may_come_or_go() -> None:
    """Columns that are nearly alike: a pair of them moves little, and a record that is counted no longer moves much."""
    close = _strategy("gaussian", [[3, 3, 3], [1, 0, 0]])
    pair, column = close.sensitivity("replace").power, close.sensitivity("add-remove").power
    assert pair < column / 6
    assert close.sensitivity("replace", fewest=0).power == column == _worst(close, "replace", 1)
    apart = _strategy("gaussian", [[1, 0, 0], [0, 2, 0]])
    assert apart.sensitivity("replace", fewest=0) == apart.sensitivity("replace")
    total = _strategy("laplace", [[1, 1, 1]])
    assert total.laws(tb.PureDP(1), "replace", fewest=0) == total.laws(tb.PureDP(1))
    assert close.laws(tb.ZCDP(1), "replace", 1, 0) == close.laws(tb.ZCDP(1))
    with pytest.raises(InvalidArgument, match="fewest is 4"):
        close.sensitivity("replace", 3, 4)


@given(
    first=matrices,
    second=matrices,
    noise=st.sampled_from(["gaussian", "laplace"]),
    neighbours=st.sampled_from(NEIGHBOURS),
    k=st.integers(1, 3),
)
def test_units_of_exactly_k_rows_pay_for_pairs_alone(
    first: list[list[int]],
    second: list[list[int]],
    noise: Literal["gaussian", "laplace"],
    neighbours: str,
    k: int,
) -> None:
    """Exact, over every unit of k rows and every pair of them; where columns are larger than pairs it is less noise."""
    strategy = _strategy(noise, first, second)
    said, units = strategy.sensitivity(neighbours, k, fewest=k), _units(k, least=k)
    others = units if neighbours == "replace" else [np.zeros(3, dtype=np.int64)]
    assert said.is_exact
    assert said.power == max(_power(strategy, u - v) for u in units for v in others)
    assert said.power <= strategy.sensitivity(neighbours, k).power


def test_signs_that_cancel_within_a_unit_do_not_matter_to_the_bound() -> None:
    strategy = _strategy("laplace", [[1, -1, 0]])
    assert strategy.sensitivity("add-remove", 2).power == 2 * strategy.sensitivity("add-remove").power
    assert strategy.sensitivity("replace", 2).power == 2 * strategy.sensitivity("replace").power


@pytest.mark.parametrize("bad", [0, -1, 2.0, "2", True, None])
def test_a_stability_is_a_whole_number_of_rows(bad: object) -> None:
    with pytest.raises(InvalidArgument, match="1 or more"):
        _strategy("gaussian", [[1, 0, 0]]).laws(tb.ZCDP(1), stability=bad)  # type: ignore[arg-type]
