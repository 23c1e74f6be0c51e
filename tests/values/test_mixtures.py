"""Measured values: a record is a mixture of corners, in whole parts; what that costs and what it gives."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from tests.each import each

import tabulae as tb
from tabulae.domain import Figure
from tabulae.errors import InvalidArgument, Unsupported
from tabulae.linalg import Dense, Identity, Total
from tabulae.products.tables.figures import publish_figure
from tabulae.strategy import Block, Strategy

Noise = Literal["gaussian", "laplace"]
DOMAIN = tb.Domain({"g": 2, "v": tb.Attribute.measured("v", -2, 4, 2), "u": tb.Attribute.measured("u", 0, 2)})
RECORDS = [np.array(code) for code in itertools.product(range(2), range(4), range(3))]

rows = st.lists(st.lists(st.integers(-3, 3), min_size=8, max_size=8), min_size=1, max_size=3)


def _strategy(noise: Noise, *matrices: list[list[int]]) -> Strategy:
    blocks = tuple(Block(f"b{i}", Dense(np.array(m)), i, Fraction(i + 2, 3)) for i, m in enumerate(matrices))
    return Strategy(DOMAIN, blocks, noise, "test")


def test_squares_are_linear_in_the_parts_of_a_record() -> None:
    """Of every number of grids of odd and even length, about any number: what B-splines reproduce, in whole parts."""
    for low, high, step in ((0, 1, 1), (-2, 4, 2), (0, 10, 1), (3, 10, 1), (-5, 5, "0.5"), (0, 7, "0.125")):
        value = tb.Attribute.measured("v", low, high, step, squares=True)
        shares = np.array(value.shares(np.arange(value.codes), np.where)).T
        assert shares.min() >= 0
        assert (shares.sum(axis=1) == value.parts).all()
        numbers = low + np.arange(value.codes) * float(Fraction(step))
        for near, power in ((0, 1), (low, 1), (high, 2), (0, 2), ((low + high) // 2, 2)):
            near = near if low <= near <= high else low
            made = shares @ value.moment(power, near).dense()[0] / value.parts
            np.testing.assert_allclose(made, (numbers - near) ** power, rtol=1e-12, atol=1e-12)
        counts = tb.Counts.from_records(tb.Domain({"v": value}), np.arange(value.codes)[:, None])
        assert counts.answer(Identity(4)).tolist() == shares.sum(axis=0).tolist()


SQUARED = tb.Domain({"g": 2, "v": tb.Attribute.measured("v", -2, 4, 2, squares=True)})


@given(first=rows, second=rows, noise=st.sampled_from(["gaussian", "laplace"]))
def test_no_record_with_squares_moves_answers_further_than_a_corner(
    first: list[list[int]], second: list[list[int]], noise: Noise
) -> None:
    """The two inner corners are no numbers of the grid, so that the sensitivity over corners is a bound."""
    blocks = tuple(Block(f"b{i}", Dense(np.array(m)), i, Fraction(1)) for i, m in enumerate((first, second)))
    strategy, value = Strategy(SQUARED, blocks, noise, "test"), SQUARED["v"]
    mixtures = []
    for group, code in itertools.product(range(2), range(4)):
        inside = [Fraction(int(share), value.parts) for share in value.shares(np.array(code), np.where)]
        mixtures.append([Fraction(0)] * 4 * group + inside + [Fraction(0)] * 4 * (1 - group))
    assert max(_power(strategy, m) for m in mixtures) <= strategy.sensitivity().power
    pairs = itertools.combinations(mixtures, 2)
    worst = max(_power(strategy, [a - b for a, b in zip(*pair, strict=True)]) for pair in pairs)
    assert worst <= strategy.sensitivity("replace").power


def test_a_variance_about_the_middle_costs_what_its_largest_square_does() -> None:
    """Least variance of the sum of (v - m)^2 - c: max over numbers, and no more over the inner corners."""
    value = tb.Attribute.measured("v", 0, 40, squares=True)
    squares = value.moment(2, 20).dense() - 100
    table = tb.Table("q", {"v": Dense(squares)})
    workload = tb.Workload(tb.Domain({"v": value}), [table])
    assert tb.select(workload).error(workload, tb.ZCDP("1/2")).tse == pytest.approx(300**2, rel=1e-6)


@each("rho,size", [("1/2", 400), ("20", 5)])
def test_intervals_of_variances_hold(rho: str, size: int) -> None:
    """300 groups, intervals at 90 %: more misses than a binomial count of that chance has with probability 1e-6."""
    value = tb.Attribute.measured("v", 0, 40, squares=True)
    domain, cells = tb.Domain({"g": 300, "v": value}), {"g": Identity(300)}
    tables = [
        tb.Table("n", cells),
        tb.Table.sum("s", cells, value, near=20),
        tb.Table.sum("q", cells, value, Fraction(1, 20), near=20, times=value),
    ]
    numbers = np.random.default_rng(size).integers(0, 30, (300, size))
    codes = np.stack([np.repeat(np.arange(300), size), numbers.ravel()], axis=1)
    strategy = tb.select(tb.Workload(domain, tables), time_limit=5)
    measured = tb.measure(
        tb.Counts.from_records(domain, codes), strategy, tb.ZCDP(rho), source=tb.noise.Insecure(size)
    )
    figure = Figure.variance("f", domain, tables[0], value, 20)
    found, truth = publish_figure(tb.estimate(measured), figure, 0.9), numbers.var(axis=1)
    told = found.status != "Q"
    assert told.mean() > 0.9
    misses = ((truth < found.ci_low - 1e-9) | (truth > found.ci_high + 1e-9))[told].sum()
    assert stats.binom.sf(misses - 1, told.sum(), 0.1) > 1e-6
    sure = np.abs(found.estimate - truth)[told] / found.std_error[told]
    assert size < 400 or 0.5 < np.sqrt((sure**2).mean()) < 1.5


def _mixture(record: np.ndarray) -> list[Fraction]:
    """The record's share of each corner, by the definition: (high - v) / (high - low), and the rest."""
    group, v, u = (int(code) for code in record)
    of_v, of_u = (Fraction(3 - v, 3), Fraction(v, 3)), (Fraction(2 - u, 2), Fraction(u, 2))
    corners = [a * b for a in of_v for b in of_u]
    return [corner if g == group else Fraction(0) for g in range(2) for corner in corners]


def _power(strategy: Strategy, change: list[Fraction]) -> Fraction:
    p, total = strategy.norm, Fraction(0)
    for block in strategy.blocks:
        moved = [sum(int(a) * c for a, c in zip(row, change, strict=True)) for row in block.query.dense()]
        total += sum(abs(m) ** p for m in moved) / (2 ** (p * block.exponent) * block.scale)
    return total


@settings(max_examples=settings().max_examples // 2)
@given(first=rows, second=rows, noise=st.sampled_from(["gaussian", "laplace"]))
def test_no_record_moves_answers_further_than_a_corner(
    first: list[list[int]], second: list[list[int]], noise: Noise
) -> None:
    """Over every point of two grids and every pair of them: the largest change is the sensitivity over the corners."""
    strategy, mixtures = _strategy(noise, first, second), [_mixture(record) for record in RECORDS]
    assert max(_power(strategy, m) for m in mixtures) == strategy.sensitivity().power
    pairs = itertools.combinations(mixtures, 2)
    worst = max(_power(strategy, [a - b for a, b in zip(*pair, strict=True)]) for pair in pairs)
    assert worst == strategy.sensitivity("replace").power


@each("record", RECORDS)
def test_a_record_is_whole_parts(record: np.ndarray) -> None:
    counts = tb.Counts.from_records(DOMAIN, record[None])
    assert counts.answer(Identity(8)).tolist() == [6 * share for share in _mixture(record)]
    assert counts.total == 1
    # With other records beside it, too: the parts are added up as they are, and nothing is rounded after.
    many = tb.Counts.from_records(DOMAIN, np.concatenate([RECORDS, record[None]]))
    alone = tb.Counts.from_records(DOMAIN, np.array(RECORDS))
    assert (many.answer(Identity(8)) - alone.answer(Identity(8))).tolist() == [
        6 * s for s in _mixture(record)
    ]


@each("noise", ["gaussian", "laplace"])
@each("neighbours", ["add-remove", "replace"])
def test_noise_is_for_all_parts_of_a_record(noise: Noise, neighbours: str) -> None:
    """In parts D^p times the law of a record's answers; in counts the same."""
    value = tb.Attribute.measured("v", 0, 10, 2)
    pair = [tb.Domain({"g": 3, "v": end}) for end in (value, tb.Attribute.of("v", [0, 10]))]
    budget = tb.ZCDP("1/3") if noise == "gaussian" else tb.PureDP("1/3")
    tables = [tb.Table("n", {"g": Identity(3)}), tb.Table.sum("s", {"g": Identity(3)}, value)]
    found = [tb.select(tb.Workload(d, tables), noise=noise, neighbours=neighbours) for d in pair]
    assert found[0].blocks == found[1].blocks
    laws = [strategy.laws(budget, neighbours) for strategy in found]
    power = 2 if noise == "gaussian" else 1
    assert [law.parameter for law in laws[0]] == [5**power * law.parameter for law in laws[1]]


def test_parts_that_are_no_whole_records_are_refused() -> None:
    domain = tb.Domain({"v": tb.Attribute.measured("v", 0, 10, 2)})
    assert tb.Counts.from_array(domain, [7, 3]).total == 2
    with pytest.raises(InvalidArgument, match="a record is 5 parts"):
        tb.Counts.from_array(domain, [7, 4])
    with pytest.raises(InvalidArgument, match="k-th number of its grid"):
        tb.Counts.from_records(domain, [[6]])
    values = {name: tb.Attribute.measured(name, 0, 512, squares=name == "v") for name in "vw"}
    domain = tb.Domain(values)
    strategy = tb.select(tb.Workload(domain, [tb.Table.sum("s", {}, values["v"], times=values["v"])]))
    with pytest.raises(Unsupported, match=r"67,108,864 parts \(v 131,072, w 512\).* choose larger steps"):
        strategy.laws(tb.ZCDP("1/100000000000000000"))
    large = tb.Domain({"v": tb.Attribute.measured("v", 0, 2**40)})
    with pytest.raises(Unsupported, match="choose a larger step"):
        tb.Counts.from_cells(large, [[1]], [2**22])


@each(
    "wrong",
    [(0, 0, 1), (5, 1, 1), (0, 10, 3), (0, 10, 0), (0, 10, -2), (0, 1.5, 1), (0, 10, True), (0, 10, 0.5)],
)
def test_ranges_and_steps_that_do_not_fit(wrong: tuple) -> None:
    with pytest.raises(InvalidArgument, match="value 'v'"):
        tb.Attribute.measured("v", *wrong)


def test_the_records_of_neighbours_within_exact_counts_have_no_bound() -> None:
    value = tb.Attribute.measured("v", 0, 10)
    domain, total = tb.Domain({"g": 2, "v": value}), tb.Table("all", {})
    workload = tb.Workload(domain, [tb.Table("n", {"g": Identity(2)})])
    strategy = tb.select(workload, invariants=[total], neighbours="replace")
    with pytest.raises(Unsupported, match="'v' is a measured value"):
        strategy.sensitivity("replace-within-invariants")


# what it costs, in closed form -----------------------------------------------------------------------------------


def _one_group(low: int, high: int, weight: object) -> tb.Workload:
    """How many records there are, and the sum of a value."""
    value = tb.Attribute.measured("v", low, high)
    domain = tb.Domain({"v": value})
    return tb.Workload(domain, [tb.Table("n", {}, weight=weight), tb.Table.sum("s", {}, value)])


@each("low,high,weight", [(0, 20, 1), (0, 200, 100), (-50, 50, 30), (10, 30, "1/2")])
def test_count_and_sum_of_one_group_cost_what_the_best_mechanism_does(
    low: int, high: int, weight: object
) -> None:
    """min alpha Var(n) + Var(S) is (sqrt(alpha + m^2) + h)^2 / (2 rho), m the middle and h half the range."""
    workload = _one_group(low, high, weight)
    strategy = tb.select(workload, method="opt0")
    m, h, alpha = (low + high) / 2, (high - low) / 2, float(Fraction(str(weight))) ** 2
    assert strategy.error(workload, tb.ZCDP("1/2")).tse == pytest.approx(
        (math.sqrt(alpha + m * m) + h) ** 2, rel=1e-4
    )


def test_all_values_as_categories_cost_what_two_ends_do() -> None:
    every = tb.Workload(
        tb.Domain({"v": range(21)}), [tb.Table("n", {}), tb.Table("s", {"v": Dense([list(range(21))])})]
    )
    found = tb.select(every, method="opt0").error(every, tb.ZCDP("1/2")).tse
    ends = _one_group(0, 20, 1)
    assert found == pytest.approx(tb.select(ends, method="opt0").error(ends, tb.ZCDP("1/2")).tse, rel=1e-3)
    assert found == pytest.approx((math.sqrt(101) + 10) ** 2, rel=1e-3)


def test_a_sum_alone_costs_what_the_sum_of_clamped_numbers_does() -> None:
    value = tb.Attribute.measured("v", -10, 40)
    workload = tb.Workload(tb.Domain({"v": value}), [tb.Table.sum("s", {}, value)])
    for noise, budget, variance in (
        ("gaussian", tb.ZCDP("1/2"), 40**2),
        ("laplace", tb.PureDP(1), 2 * 40**2),
    ):
        assert tb.select(workload, noise=noise).error(workload, budget).tse == pytest.approx(
            variance, rel=1e-6
        )


def test_both_ends_take_laplace_noise_at_the_price_of_one() -> None:
    """Var(n) and Var(T), T = (S - m n) / h, are 4 / epsilon^2 each; measured apart each would be 8 / epsilon^2."""
    workload = _one_group(-1, 1, 1)
    strategy = tb.select(workload, noise="laplace", method="identity")
    assert strategy.error(workload, tb.PureDP(1)).tables == {"n": pytest.approx(2), "s": pytest.approx(2)}


@each("w", [Fraction(1, 4), Fraction(1, 2), Fraction(9, 10)])
def test_counts_and_sums_divide_the_budget(w: Fraction) -> None:
    """Measured apart, 1 / Var(n) + 1 / Var(T) = 2 rho; the sum has m^2 Var(n) + h^2 Var(T)."""
    workload = _one_group(0, 200, 1)
    blocks = (Block("n", Total(2), 0, 1 / w), Block("t", Dense([[-1, 1]]), 0, 1 / (1 - w)))
    found = Strategy(workload.domain, blocks, "gaussian", "test").error(workload, tb.ZCDP("1/8"))
    of_count, of_sum = (found.tables[name] ** 2 for name in "ns")
    assert of_count == pytest.approx(float(4 / w))
    assert of_sum == pytest.approx(float(100**2 * (4 / w + 4 / (1 - w))))


# what it gives ---------------------------------------------------------------------------------------------------


@each("noise", ["gaussian", "laplace"])
@each("method", ["least-squares", "non-negative"])
def test_sums_and_counts_come_back(noise: Noise, method: str) -> None:
    """With hardly any noise the estimates are the sums of the records on the grid."""
    value = tb.Attribute.measured("v", 10, 50, 4)
    domain = tb.Domain({"g": 3, "v": value})
    codes = np.random.default_rng(1).integers([0, 0], [3, 11], size=(400, 2))
    by_group = {"g": Identity(3)}
    workload = tb.Workload(domain, [tb.Table("n", by_group), tb.Table.sum("s", by_group, value)])
    budget = tb.ZCDP(10**4) if noise == "gaussian" else tb.PureDP(100)
    measured = tb.measure(tb.Counts.from_records(domain, codes), tb.select(workload, noise=noise), budget)
    found = tb.estimate(measured, method=method)
    sizes = np.bincount(codes[:, 0], minlength=3)
    sums = np.bincount(codes[:, 0], weights=10 + 4.0 * codes[:, 1], minlength=3)
    assert np.allclose(found.answer(workload)["n"], sizes, atol=0.1)
    assert np.allclose(found.answer(workload)["s"], sums, atol=5)


@given(seed=st.integers(0, 10**6), size=st.integers(0, 30), squares=st.booleans())
def test_means_of_non_negative_estimates_lie_within_the_range(seed: int, size: int, squares: bool) -> None:
    """So do their intervals, however small the groups and large the noise; and no variance is above what it can be."""
    value, groups = tb.Attribute.measured("v", -3, 7, squares=squares), {"g": Identity(4)}
    domain, count = tb.Domain({"g": 4, "v": value}), tb.Table("n", groups)
    strategy = tb.select(tb.Workload(domain, [count]), method="identity")
    codes = np.random.default_rng(seed).integers([0, 0], [4, 11], (size, 2))
    measured = tb.measure(
        tb.Counts.from_records(domain, codes), strategy, tb.ZCDP("1/50"), source=tb.noise.Insecure(seed)
    )
    found = tb.estimate(measured, method="non-negative")
    for name in ("estimate", "ci_low", "ci_high"):
        told = tb.means(found, count, value)[name].to_numpy(zero_copy_only=False).astype(float)
        told = told[np.isfinite(told)]
        assert ((told >= -3 - 1e-9) & (told <= 7 + 1e-9)).all()
    if squares:
        spread = publish_figure(found, Figure.variance("f", domain, count, value, 2), 0.95)
        known = spread.status != "Q"
        assert (spread.ci_low[known] >= 0).all()
        assert (spread.ci_high[known] <= 25 + 1e-9).all()


def test_counts_beside_values_may_be_exact() -> None:
    value = tb.Attribute.measured("v", 0, 50, 5)
    domain, by_group = tb.Domain({"g": 2, "v": value}), {"g": Identity(2)}
    workload = tb.Workload(domain, [tb.Table("n", by_group), tb.Table.sum("s", by_group, value)])
    counts = tb.Counts.from_records(domain, [[0, 3], [1, 4], [1, 10]])
    strategy = tb.select(workload, invariants=[tb.Table("n", by_group)], neighbours="replace")
    measured = tb.measure(counts, strategy, tb.ZCDP(10**6), neighbours="replace")
    assert [values.tolist() for values in measured.exact] == [[1, 2]]
    found = tb.estimate(measured)
    assert found.answer(workload)["n"].tolist() == [1, 2]
    assert np.allclose(found.answer(workload)["s"], [15, 70], atol=1)
    halves = tb.Attribute.measured("v", 0, 1, "0.5")
    sums = tb.Table.sum("s", {}, halves).operator(tb.Domain({"v": halves}))
    with pytest.raises(Unsupported, match="sums of values"):
        tb.Counts.from_records(tb.Domain({"v": halves}), [[1]]).records(sums)


def test_halves_of_squares_are_not_measured_as_they_stand() -> None:
    """Of an odd number of steps; those of an even number are whole, and measured."""
    for top in (7, 8):
        value = tb.Attribute.measured("v", 0, top, 1, squares=True)
        domain = tb.Domain({"group": 2, "v": value})
        workload = tb.Workload(domain, [tb.Table.sum("s", {"group": Identity(2)}, value, times=value)])
        if top % 2:
            with pytest.raises(
                Unsupported, match=r'squares .* odd number of steps.*select = "workload" .*"residual"'
            ):
                tb.select(workload, method="workload")
        else:
            assert tb.select(workload, method="workload").certificate is not None
