"""Which rows stand on the page: short tables whole, long ones cut alike, never more than there is room for."""

from __future__ import annotations

import dataclasses

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tabulae.report import ExpectedErrorView, TableView
from tabulae.report.page import printed_tables
from tabulae.report.rows import ROWS_SHOWN
from tabulae.spec import ReliabilitySection

ABS = ReliabilitySection()


def plain(name: str, size: int, label: str = "x") -> TableView:
    numbers = np.arange(size, dtype=float) + 10
    return TableView(
        name,
        "",
        {"a": [f"{label}{i}" for i in range(min(size, ROWS_SHOWN))]},
        numbers,
        np.ones(size),
        numbers - 2,
        numbers + 2,
        ["A"] * size,
        ExpectedErrorView(1.0, 2.0),
        f"tables/{name}.parquet",
    )


@settings(max_examples=25)
@given(
    sizes=st.lists(st.integers(0, 60) | st.integers(0, 700), min_size=1, max_size=4),
    room=st.integers(0, 100_000),
    label=st.sampled_from(["x", "a rather long label ", "<&>'\"" * 20, "ß" * 90]),
)
def test_rows_fit_and_short_tables_are_whole(sizes: list[int], room: int, label: str) -> None:
    tables = [plain(f"t{i}", size, label) for i, size in enumerate(sizes)]
    printed = printed_tables(tables, room, ABS)
    assert [each.anchor for each in printed] == [f"table-{i + 1}" for i in range(len(sizes))]
    assert sum(len(each.body.encode()) for each in printed) <= room
    cut = {len(each.rows) for each in printed if not each.whole}
    assert len(cut) <= 1
    for each in printed:
        assert each.whole == (len(each.rows) == each.table.rows)
        assert len(each.rows) <= ROWS_SHOWN
        assert not cut or each.whole <= (len(each.rows) <= max(cut))


def test_as_many_rows_as_there_is_room_for() -> None:
    """Two more rows of every cut table would not fit, where no multiple of 50 is in play."""
    tables = [plain("a", 5), plain("b", 90), plain("c", 300)]
    printed = printed_tables(tables, 30_000, ABS)
    level = len(printed[2].rows)
    assert [len(each.rows) for each in printed] == [5, level, level]
    assert 5 < level < 50
    everything = printed_tables(tables, 10**7, ABS)
    more = sum(len("\n".join(each.rows[: level + 2]).encode()) for each in everything)
    assert more > 30_000
    assert all(each.whole for each in everything)


def test_a_table_of_which_only_the_first_rows_are_read_is_not_whole() -> None:
    table = dataclasses.replace(plain("big", ROWS_SHOWN), count=10_000)
    printed = printed_tables([table], 10**7, ABS)[0]
    assert len(printed.rows) == ROWS_SHOWN
    assert not printed.whole
    assert table.rows == 10_000
