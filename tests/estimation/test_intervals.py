"""Cut intervals cover what the uncut ones cover, and are as short as that allows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tabulae as tb
from tabulae.domain import Domain, Table
from tabulae.estimation.intervals import Interval, no_more_than
from tabulae.linalg import Identity, LinearOperator, Partition

_ENDS = st.floats(-40, 40)


@given(middle=_ENDS, half=st.floats(0, 20), least=st.integers(0, 5), room=st.none() | st.integers(0, 9))
def test_a_cut_interval_has_every_count_that_the_whole_one_has(
    middle: float, half: float, least: int, room: int | None
) -> None:
    most = np.inf if room is None else least + room
    interval = Interval(np.array([middle - half]), np.array([middle + half]), least, most, True)
    (low,), (high,) = (end.tolist() for end in interval.ends())
    counts = range(least, 100 if room is None else least + room + 1)
    covered = [x for x in counts if middle - half <= x <= middle + half]
    assert least <= low <= high <= most
    assert low.is_integer()
    assert high.is_integer()
    if covered:
        assert low == covered[0]
        assert high == covered[-1]
    else:
        assert low == high


@given(middle=_ENDS, half=st.floats(0, 20), point=st.floats(0, 60))
def test_an_interval_is_widened_to_hold_the_estimate_beside_it(
    middle: float, half: float, point: float
) -> None:
    interval = Interval(np.array([middle - half]), np.array([middle + half]), 0.0, np.inf, True)
    beside = Interval(interval.low, interval.high, 0.0, np.inf, True, np.array([point]))
    (low, high), (plain_low, plain_high) = beside.ends(), interval.ends()
    assert low[0] <= point + 1e-6
    assert point - 1e-6 <= high[0]
    assert low[0] <= plain_low[0]
    assert plain_high[0] <= high[0]


def test_two_machines_may_put_an_end_on_either_side_of_a_whole_number() -> None:
    here, there = (Interval(np.array([3.0 + off]), np.array([9.0]), 0.0, np.inf, True) for off in (0.0, 1e-7))
    assert here.ends()[0] == 3
    assert there.ends()[0] == 4
    assert there.ends(-1e-6)[0] <= here.ends()[0] <= there.ends(1e-6)[0]


DOMAIN = Domain({"sex": ["F", "M"], "age": range(4)})
_FACTORS: dict[str, tuple[str, LinearOperator]] = {
    "sex": ("sex", Identity(2)),
    "age": ("age", Identity(4)),
    "old": ("age", Partition([0, 0, 1, 1])),
    "to": ("age", tb.Prefix(4)),
}
EXACT = ([], ["sex"], ["old"], ["sex", "old"], ["to"])


def _table(name: str, factors: list[str]) -> Table:
    return Table(name, dict(_FACTORS[factor] for factor in factors))


@pytest.mark.parametrize("asked", [[], ["sex"], ["age"], ["old"], ["sex", "to"]])
def test_the_smallest_exact_count_around_each_row(asked: list[str]) -> None:
    """Against rows compared cell by cell; every true count is within it."""
    rng = np.random.default_rng(len(asked))
    people = rng.integers(0, 30, DOMAIN.size)
    table = _table("asked", asked)
    for chosen in ([0], [1], [2], [3], [1, 2], [0, 3], [4, 1]):
        exact = [_table(str(i), EXACT[i]) for i in chosen]
        values = [each.operator(DOMAIN) @ people for each in exact]
        found = no_more_than(DOMAIN, table, exact, values)
        around = np.concatenate([np.asarray(each.operator(DOMAIN).dense()) for each in exact])
        counts, rows = np.concatenate(values), np.asarray(table.operator(DOMAIN).dense())
        for k, row in enumerate(rows):
            assert found[k] == min(counts[(row <= around).all(axis=1)], default=np.inf)
            assert row @ people <= found[k]


def test_intervals_of_a_measurement_stay_within_what_is_exact() -> None:
    workload = tb.Workload(DOMAIN, [_table("cells", ["sex", "age"])])
    sexes = _table("sexes", ["sex"])
    people = np.array([3, 0, 1, 0, 0, 0, 0, 2])
    strategy = tb.select(workload, method="identity", invariants=[sexes])
    estimate = tb.estimate(tb.measure(people, strategy, tb.ZCDP("1/200")))
    interval, _ = estimate.interval_of(workload.tables[0], 0.95)
    low, high = interval.ends()
    assert (low >= 0).all()
    assert (high[:4] <= 4).all()
    assert (high[4:] <= 2).all()
    wide = estimate.half_widths_of(workload.tables[0], 0.95).values
    assert (wide > 5).all()
