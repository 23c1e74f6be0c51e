"""Measured values: the parts of records on every engine, as by hand."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from math import floor
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.engines.test_preparation import number_of

from tabulae.domain import Attribute, Domain
from tabulae.errors import DataError
from tabulae.linalg import Identity
from tabulae.products.tables.count import Counts, tabulate
from tabulae.sources.classes import Grid
from tabulae.sources.coding import ColumnCoding
from tabulae.sources.source import RecordSource
from tabulae.sources.units import UnitRule

Store = Callable[[str, pa.Table], RecordSource]
N = 70

VALUES: dict[str, tuple[list[Any], pa.DataType]] = {
    "written": (
        ["-7", "+2.50", " 2.4999999999999999999 ", "0.05", "0.049999", "007", "12.0", "9" * 25,
         "-" + "9" * 30, "3.15", "", None],
        pa.string(),
    ),
    "float": (
        [0.05, 0.15, 0.25, 0.3, 2.5, 2.4999999999999996, 11.95, 12.0, 1e15, -0.0, -3.15, None],
        pa.float64(),
    ),
    "single": ([0.3, 2.5, 7.0, 1e30, -2.75, float("nan"), None], pa.float32()),
    "whole": ([-(2**63), 2**63 - 1, -3, -2, 0, 1, 7, 11, 12, 13, None], pa.int64()),
    "decimal": (
        [*map(Decimal, ("-2.50", "0.05", "2.49", "11.95", "99999.99")), None],
        pa.decimal128(10, 2),
    ),
}  # fmt: skip
GRIDS = [Grid(-3, 12, Fraction(1, 10), null=2), Grid(-3, 12, Fraction(5), null=2)]


def column(name: str) -> pa.Array:
    values, kind = VALUES[name]
    return pa.array([*values, *random.Random(name).choices(values, k=N - len(values))], kind)


def place(value: Any, name: str, grid: Grid) -> int:
    """The grid's point nearest to a number, the upper one half-way; beyond the ends these."""
    number = number_of(value, name)
    number = Fraction(grid.null or 0) if number is None else number
    assert isinstance(number, Fraction)
    inside = min(max(number, Fraction(grid.low)), Fraction(grid.high))
    return floor((inside - grid.low) / grid.step + Fraction(1, 2))


def domain_of(*grids: Grid, squares: bool = False) -> Domain:
    values = {
        f"v{i}": Attribute.measured(f"v{i}", g.low, g.high, g.step, squares=squares)
        for i, g in enumerate(grids)
    }
    return Domain({"g": ["a", "b"], **values})


def records(engine: str) -> pa.Table:
    names = [name for name in VALUES if engine != "duckdb-csv" or name != "single"]
    groups = {"g": pa.array(["a", "b", "b"] * N)[:N], "id": pa.array([str(k // 3) for k in range(N)])}
    return pa.table(groups | {name: column(name) for name in names})


@pytest.fixture(scope="module")
def source(store: Store, engine: str) -> RecordSource:
    return store(engine, records(engine))


def vector(counts: Counts) -> list[int]:
    return counts.answer(Identity(counts.domain.size)).tolist()


def by_hand(table: pa.Table, grids: dict[str, Grid]) -> list[int]:
    parts = np.zeros((2, *(2 for _ in grids)), dtype=object)
    for row in table.to_pylist():
        places = [place(row[name], name, grid) for name, grid in grids.items()]
        for corner in itertools.product((0, 1), repeat=len(grids)):
            sides = zip(corner, places, grids.values(), strict=True)
            parts["ab".index(row["g"]), *corner] += np.prod([p if up else g.steps - p for up, p, g in sides])
    return [int(part) for part in parts.ravel()]


@pytest.mark.sweep("duckdb-parquet", "postgresql")
def test_parts_are_those_of_every_record(source: RecordSource, engine: str) -> None:
    """Each column by itself, and two of them together, whose parts are products."""
    table = records(engine)
    alone = [{name: grid} for name in table.column_names[2:] for grid in GRIDS[: 1 + (name == "whole")]]
    for grids in [*alone, {"written": GRIDS[1], "decimal": GRIDS[0]}]:
        rules = {f"v{i}": ColumnCoding(name, made=g, clamp=True) for i, (name, g) in enumerate(grids.items())}
        found = tabulate(source, domain_of(*grids.values()), {"g": ColumnCoding("g"), **rules})
        assert vector(found) == by_hand(table, grids), grids
        assert found.total == N


@pytest.mark.sweep("duckdb-parquet", "postgresql")
def test_a_units_records_are_whole(source: RecordSource, engine: str) -> None:
    """Of units with three records two are counted, each with all of its parts."""
    grid = GRIDS[0]
    rules = {"g": ColumnCoding("g"), "v0": ColumnCoding("written", made=grid, clamp=True)}
    counts = tabulate(source, domain_of(grid), rules, UnitRule("id", 2, bytes(32)))
    sizes = [min(2, len(list(rows))) for _, rows in itertools.groupby(range(N), lambda k: k // 3)]
    assert counts.total == sum(sizes)
    assert sum(vector(counts)) == sum(sizes) * grid.steps


@pytest.mark.long
@pytest.mark.sweep("duckdb-parquet", "postgresql")
def test_parts_of_values_with_squares(source: RecordSource, engine: str) -> None:
    """With an even and an odd number of steps, of one value, and of two whose parts are products."""
    table = records(engine)
    for grids in ({"decimal": GRIDS[0]}, {"whole": GRIDS[1]}, {"written": GRIDS[1], "float": GRIDS[0]}):
        domain = domain_of(*grids.values(), squares=True)
        rules = {f"v{i}": ColumnCoding(name, made=g, clamp=True) for i, (name, g) in enumerate(grids.items())}
        expected = np.zeros(domain.shape, dtype=object)
        for row in table.to_pylist():
            places = [np.array([place(row[name], name, grid)]) for name, grid in grids.items()]
            shares = [
                [int(share[0]) for share in value.shares(at, np.where)]
                for value, at in zip(domain.measured, places, strict=True)
            ]
            expected["ab".index(row["g"])] += np.array(
                list(map(math.prod, itertools.product(*shares)))
            ).reshape(domain.shape[1:])
        found = tabulate(source, domain, {"g": ColumnCoding("g"), **rules})
        assert vector(found) == expected.ravel().tolist(), grids
        assert found.total == N


@pytest.mark.sweep("duckdb-csv", "postgresql")
def test_numbers_outside_are_refused_by_name(source: RecordSource, engine: str) -> None:
    rules = {"g": ColumnCoding("g"), "v0": ColumnCoding("whole", made=Grid(-3, 12, Fraction(1)))}
    with pytest.raises(DataError, match="numbers outside its range, or no numbers") as told:
        tabulate(source, domain_of(Grid(-3, 12, Fraction(1))), rules)
    assert "(value 'v0'): NULL values" in str(told.value)
    assert "9223372036854775807" not in str(told.value)
    with pytest.raises(DataError, match="or no numbers"):
        tabulate(
            source,
            domain_of(GRIDS[0]),
            {"g": ColumnCoding("g"), "v0": ColumnCoding("g", made=GRIDS[0], clamp=True)},
        )
