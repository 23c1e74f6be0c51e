"""Time limits: a decomposition that would last beyond the limit is not begun, wherever one is made."""

from __future__ import annotations

import itertools
import math
import time

import numpy as np
import pytest
import scipy.linalg

import tabulae as tb
from tabulae.errors import Unsupported
from tabulae.strategy import deadline
from tabulae.strategy.bounds.dual import DualSearch
from tabulae.strategy.hdmm import kron
from tabulae.strategy.methods import SINGLE, Settings

SQUARE = tb.Domain({"a": 21, "b": 22})  # 462 cells: a matrix of all is too large
RNG = np.random.default_rng(5)


def _products(rows: int) -> tb.Workload:
    """Three products of random queries, rows^2 each."""
    shape = {"a": 21, "b": 22}
    factors = [{name: tb.Dense(RNG.integers(0, 2, (rows, n))) for name, n in shape.items()} for _ in range(3)]
    return tb.Workload(SQUARE, [tb.Table(f"t{k}", each) for k, each in enumerate(factors)])


WORKLOADS = {"ranges": tb.Workload.of(tb.AllRange(600)), "products": _products(10), "few rows": _products(6)}
DECOMPOSITIONS = [
    (scipy.linalg, "eigh"),
    (scipy.linalg, "eigvalsh"),
    (scipy.linalg, "svd"),
    (scipy.linalg, "cholesky"),
]
DECOMPOSITIONS += [(np.linalg, name) for name in ("eigh", "eigvalsh", "svd", "pinv", "inv", "qr")]


@pytest.fixture
def orders(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The smaller sides of all matrices that are decomposed."""
    seen: list[int] = []

    def recorded(original):
        def decompose(matrix, *args, **kwargs):
            seen.append(min(np.shape(matrix)[-2:]))
            return original(matrix, *args, **kwargs)

        return decompose

    for module, name in DECOMPOSITIONS:
        monkeypatch.setattr(module, name, recorded(getattr(module, name)))
    return seen


@pytest.mark.parametrize(
    ("workload", "noise"),
    [
        ("ranges", "laplace"),
        ("products", "gaussian"),
        *(
            pytest.param(*case, marks=pytest.mark.long)
            for case in (("ranges", "gaussian"), ("products", "laplace"))
        ),
    ],
)
def test_nothing_large_is_decomposed_where_that_would_take_too_long(
    workload: str, noise: str, orders: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadline, "SECONDS_A_CUBE", 1.0)
    chosen = tb.select(WORKLOADS[workload], noise=noise, time_limit=1, restarts=0)  # type: ignore[arg-type]
    assert max(orders, default=0) <= deadline._SMALL
    refused = {c.method: c.note for c in chosen.candidates if c.rmse is None}
    assert "left of the time limit" in refused["opt0"]


def test_few_rows_are_decomposed_where_all_cells_would_take_too_long(
    orders: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadline, "SECONDS_A_CUBE", 1.0)
    found = tb.select(WORKLOADS["few rows"], method="opt0", time_limit=1)
    assert found.blocks[0].query.shape[0] <= 108
    assert max(orders) <= deadline._SMALL


def test_the_same_are_decomposed_where_there_is_time(orders: list[int]) -> None:
    """Else the test above would see nothing."""
    tb.select(WORKLOADS["products"], method="opt0", time_limit=600, tolerance=0.1)
    assert max(orders) > deadline._SMALL


def test_a_method_named_alone_says_what_it_would_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadline, "SECONDS_A_CUBE", 1.0)
    with pytest.raises(
        Unsupported, match=r"order 600 and less takes about .* left of the time limit: raise it"
    ):
        tb.select(WORKLOADS["ranges"], method="opt0", time_limit=3)


def test_what_a_table_s_own_queries_take_to_invert_is_no_surprise(orders: list[int], monkeypatch) -> None:
    """Prefixes of 600 cells measured as they are would be one more matrix to decompose, for their error alone."""
    monkeypatch.setattr(deadline, "SECONDS_A_CUBE", 1.0)
    chosen = tb.select(tb.Workload.of(tb.Prefix(600)), time_limit=3)
    assert max(orders, default=0) <= deadline._SMALL
    notes = {c.method: c.note for c in chosen.candidates}
    assert "left of the time limit" in notes["workload"]


def test_without_a_limit_everything_fits() -> None:
    deadline.check_time(math.inf, 10**6)
    with pytest.raises(Unsupported):
        deadline.check_time(deadline.now() + 60, 10**6)
    deadline.check_time(deadline.now() + 60, 500, 500)


@pytest.mark.parametrize("after", [1.0, 6.0])
def test_a_search_ends_while_there_is_time_for_what_follows_it(
    after: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each evaluation takes a second of the twenty."""
    clock, draw = [0.0], np.random.default_rng(0)
    monkeypatch.setattr(time, "thread_time", lambda: clock[0])

    class Slow(DualSearch):
        def evaluate(self, mu: np.ndarray) -> tuple[float, np.ndarray]:
            clock[0] += 1
            return 1.0, draw.uniform(0.5, 1.5, len(mu))

    search = Slow(1e-9, deadline.now() + 20, after=after)
    search.run(np.ones(3))
    assert search.evaluations == 20 - after + 1


@pytest.mark.long
def test_joint_tables_of_many_pairs_leave_the_residual_planner_its_turn() -> None:
    """Its own search is short, while every other method looks at each of the many terms of W'W."""
    names = [f"a{k}" for k in range(14)]
    near = np.abs(np.subtract.outer(np.arange(8), np.arange(8))).reshape(1, -1) <= 1
    tables = [tb.Table.joint(f"{a}{b}", (a, b), near) for a, b in itertools.combinations(names, 2)]
    workload = tb.Workload(tb.Domain(dict.fromkeys(names, 8)), tables)
    chosen = tb.select(workload, time_limit=1)
    assert chosen.method == "residual"
    notes = {c.method: c.note for c in chosen.candidates}
    assert "identity" not in notes  # 8^14 cells are beyond any measurement
    for method in ("kron", "union", "workload"):
        assert "time limit" in notes[method] or "residual needs none of them" in notes[method]
    for method in ("union", "workload"):
        with pytest.raises(Unsupported, match=r"takes about .* left of the time limit"):
            tb.select(workload, method=method, time_limit=0.3)


def test_time_in_which_the_machine_does_something_else_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The clock of the wall runs a thousand times as fast, as under a load of a thousand: nothing changes."""
    tables = [
        tb.Table(f"t{k}", {"a": tb.Dense(RNG.integers(0, 2, (4, 6))), "b": tb.AllRange(7)}) for k in range(2)
    ]
    workload = tb.Workload(tb.Domain({"a": 6, "b": 7}), tables)
    alone = tb.select(workload, time_limit=60)
    wall = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: 1e3 * wall())
    monkeypatch.setattr(time, "perf_counter", lambda: 1e3 * wall())
    again = tb.select(workload, time_limit=60)
    assert again.blocks == alone.blocks
    assert [(c.method, c.note) for c in again.candidates] == [(c.method, c.note) for c in alone.candidates]


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_the_search_of_one_matrix_leaves_time_to_round_and_to_judge_it(
    noise: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six decompositions' worth, of which one takes a second here."""
    searched = f"opt0_{noise}"
    real, until = getattr(kron, searched), []
    monkeypatch.setattr(kron, "SECONDS_A_CUBE", 1 / 6**3)
    monkeypatch.setattr(kron, searched, lambda *a, deadline, **k: until.append(deadline) or real(*a, **k))
    given = Settings(noise, "add-remove", deadline=deadline.now() + 600)  # type: ignore[arg-type]
    SINGLE["opt0"](tb.Workload.of(tb.Dense(RNG.integers(0, 3, (9, 6)))), given)
    assert until == [given.deadline - 6]
