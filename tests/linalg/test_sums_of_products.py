"""The largest sum of products over one choice per attribute, against trying all choices."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabulae.linalg import sums_of_products
from tabulae.linalg.sums_of_products import Choices, extreme, maximise, undominated


def choices(values: np.ndarray) -> Choices:
    cells = np.arange(len(values))
    return Choices(values, np.ones(len(values), dtype=bool), np.stack([cells, cells], axis=1))


def brute_force(tables: list[np.ndarray], gains: np.ndarray) -> int:
    return max(
        sum(int(g) * math.prod(int(row[k]) for row in rows) for k, g in enumerate(gains))
        for rows in itertools.product(*tables)
    )


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[np.ndarray], np.ndarray]:
    columns = draw(st.integers(1, 4))
    lowest = draw(st.sampled_from([0, -3]))
    numbers = st.integers(lowest, 4)
    tables = []
    for _ in range(draw(st.integers(1, 3))):
        rows = draw(st.integers(1, 6))
        flat = draw(st.lists(numbers, min_size=rows * columns, max_size=rows * columns))
        tables.append(np.array(flat, dtype=np.int64).reshape(rows, columns))
    gains = draw(st.lists(st.integers(-3, 3), min_size=columns, max_size=columns))
    return tables, np.array(gains, dtype=np.int64)


@given(problems(), st.sampled_from([np.int64, object]))
def test_largest_sum(problem: tuple[list[np.ndarray], np.ndarray], kind: type) -> None:
    tables, gains = problem
    found = maximise([choices(table.astype(kind)) for table in tables], gains.astype(kind))
    assert found is not None
    truth = brute_force(tables, gains)
    assert found.is_exact
    assert found.value == truth


@given(problems())
def test_in_floating_point_it_is_a_bound(problem: tuple[list[np.ndarray], np.ndarray]) -> None:
    tables, gains = problem
    found = maximise([choices(table / 3) for table in tables], gains.astype(np.float64))
    assert found is not None
    assert not found.is_exact
    truth = brute_force(tables, gains) / 3 ** len(tables)
    assert truth <= found.value <= truth + 1e-9


@given(problems())
def test_pruning_keeps_a_best_choice(problem: tuple[list[np.ndarray], np.ndarray]) -> None:
    tables, gains = problem
    first, rest = choices(tables[0]), [choices(table) for table in tables[1:]]
    truth = brute_force(tables, gains)
    for kept in (undominated(first, gains, rest), extreme(first)):
        assert brute_force([tables[0][kept], *tables[1:]], gains) == truth


def test_rows_on_a_line_are_reduced_to_its_ends() -> None:
    line = np.stack([np.arange(20), 3 * np.arange(20), np.full(20, 7)], axis=1)
    assert sorted(line[extreme(choices(line))][:, 0].tolist()) == [0, 19]
    square = np.stack([np.arange(20), np.arange(20) ** 2], axis=1)
    assert len(extreme(choices(square))) == 20


def test_dominated_rows_go() -> None:
    values = np.array([[3, 1], [2, 1], [1, 5], [3, 1], [0, 6]])
    gains = np.array([1, 1])
    assert sorted(undominated(choices(values), gains, []).tolist()) == [0, 2, 4]
    assert sorted(undominated(choices(values), np.array([1, -1]), []).tolist()) == [0]


def test_grouped_choices_bound_the_sum_and_do_not_claim_to_be_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    tables = [rng.integers(0, 1000, (40, 3)) for _ in range(3)]
    gains = np.array([1, 1, -1])
    truth = brute_force(tables, gains)
    monkeypatch.setattr(sums_of_products, "_NUMBERS", 60)
    found = maximise([choices(table) for table in tables], gains)
    assert found is not None
    assert truth <= found.value <= 3 * truth
    assert found.is_exact == (found.value == truth)
