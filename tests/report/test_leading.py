"""Which rows of a long table are shown: some of every type of area, small types whole, and telling ranges first."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.each import each

import tabulae as tb
from tabulae.domain import Domain, Table
from tabulae.linalg import AllRange, Identity
from tabulae.report.areas import geography_report
from tabulae.report.rows import fair_order, range_order, share_words, stored_reliability
from tabulae.spec import ReliabilitySection


@given(kinds=st.lists(st.integers(0, 90), max_size=6), most=st.integers(0, 120), more=st.integers(0, 200))
def test_some_rows_of_every_kind_then_whole_kinds(kinds: list[int], most: int, more: int) -> None:
    whole = most + more
    order = fair_order(kinds, most, whole)
    assert len(order) <= whole
    assert len(set(order)) == len(order)
    shown = Counter(kind for kind, _ in order)
    for kind, count in shown.items():
        assert sorted(row for k, row in order if k == kind) == list(range(count))
        assert [row for k, row in order if k == kind] == list(range(count))
    if sum(kinds) <= whole:
        assert len(order) == sum(kinds)
    if sum(min(count, 16) for count in kinds) <= whole:
        assert all(shown[kind] >= min(count, 16) for kind, count in enumerate(kinds))
    for first in range(len(order)):  # every first part is fair: no kind is far ahead of another that has rows
        part = Counter(kind for kind, _ in order[:first])
        least = min(
            (part[kind] for kind, count in enumerate(kinds) if part[kind] < min(count, 16)), default=None
        )
        if least is not None:
            assert max(part.values(), default=0) <= least + 1


@each("n", [1, 2, 3, 5, 8, 13, 40])
def test_ranges_begin_with_the_whole_its_halves_and_its_quarters(n: int) -> None:
    table, domain = Table("t", {"a": AllRange(n)}), Domain({"a": n})
    order = range_order(table, domain, 10**6)
    assert order is not None
    assert sorted(order) == list(range(n * (n + 1) // 2))
    ends = [tuple(np.flatnonzero(row)[[0, -1]]) for row in AllRange(n).dense()[order]]
    depths: dict[tuple[int, int], int] = {}
    for depth in range((n - 1).bit_length() + 1):
        cuts = [n * j >> depth for j in range(2**depth + 1)]
        for low, end in itertools.pairwise(cuts):
            if end > low:
                depths.setdefault((low, end - 1), depth)
    assert set(ends[: len(depths)]) == set(depths)
    first = [depths[each_range] for each_range in ends[: len(depths)]]
    assert first == sorted(first)
    widths = [high - low for low, high in ends[len(depths) :]]
    assert widths == sorted(widths, reverse=True)


def test_ranges_are_crossed_with_all_rows_of_the_other_attributes() -> None:
    table, domain = Table("t", {"a": AllRange(40), "s": Identity(2)}), Domain({"a": 40, "s": ["F", "M"]})
    order = range_order(table, domain, 100)
    assert order is not None
    assert len(order) == 100
    columns = table.columns(domain)
    labels = [(columns["a"][i // 2], columns["s"][i % 2]) for i in order]
    assert labels[:6] == [(r, s) for r in ("0-39", "0-19", "20-39") for s in "FM"]
    assert range_order(Table("s", {"s": Identity(2)}), domain, 100) is None


def test_a_file_is_read_once_for_its_classes_and_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of one type need not stand together, and pieces may end anywhere."""
    kinds = ["b", "a", "b", "c", "a"] * 60
    rows = pa.table(
        {
            "area_type": kinds,
            "area": [str(i) for i in range(300)],
            "estimate": np.arange(300.0),
            "std_error": np.ones(300),
            "ci_low": np.arange(300.0) - 2,
            "ci_high": np.arange(300.0) + 2,
            "obs_status": ["A"] * 300,
        }
    )
    pq.write_table(rows, tmp_path / "t.parquet")
    for step in (1 << 19, 7):
        monkeypatch.setattr("tabulae.report.rows._ROWS", step)
        found = stored_reliability(tmp_path / "t.parquet", "area_type", 300, ReliabilitySection())
        for kind in "abc":
            places = [i for i, each_kind in enumerate(kinds) if each_kind == kind]
            assert found.heads[kind].places.tolist() == places
            assert found.heads[kind].rows["area"].to_pylist() == [str(i) for i in places]
            assert found.kinds[kind].rows == len(places)


def test_the_page_has_rows_of_every_type_in_the_order_of_the_file(
    duchy_release: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tabulae.report.view.ROWS_SHOWN", 20)
    monkeypatch.setattr("tabulae.report.view.MOST_SHOWN", 40)
    release = tb.Release.read(duchy_release)
    page = geography_report(release)
    stored = {name: table.to_pylist() for name, table in release.tables.items()}
    shown = 0
    for name, rows in stored.items():
        body = re.search(
            rf'aria-label="{name}">\n<table class="counts" data-sort(.*?)</table>', page, re.DOTALL
        )
        assert body is not None
        printed = re.findall(
            r"<tr><th scope=\"row\"[^>]*>(.*?)</th><th scope=\"row\"[^>]*>(.*?)</th>", body[1]
        )
        types = Counter(kind for kind, _ in printed)
        assert set(types) == {row["area_type"] for row in rows}
        places = [[(row["area_type"], row["area"]) for row in rows].index(each_row) for each_row in printed]
        assert places == sorted(places)
        if len(printed) < len(rows):
            shown += 1
            assert f'data-rows="{len(rows):,}"' in body[1]
            whole = Counter(row["area_type"] for row in rows)
            assert f"{len(printed):,} of {len(rows):,} rows: {share_words(types, whole)}" in body[1]
        else:
            assert f"<caption>All {len(rows):,} rows, 95" in body[1]
    assert shown
