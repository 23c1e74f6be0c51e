"""A recorded result gives way to an equal or larger run alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.recorded import record

COLUMNS = ("name", "mean", "runs")


def _rows(count: int, runs: int) -> list[tuple[str, float, int]]:
    return [(f"row {i}", 0.5, runs) for i in range(count)]


def test_a_smaller_run_replaces_nothing(tmp_path: Path) -> None:
    path = tmp_path / "found.csv"
    record(path, COLUMNS, _rows(4, 30), size="runs")
    before = path.read_bytes()
    with pytest.raises(SystemExit, match=r"at most 3 runs, and it has 30.*--force"):
        record(path, COLUMNS, _rows(4, 3), size="runs")
    with pytest.raises(SystemExit, match="3 rows, and it has 4"):
        record(path, COLUMNS, _rows(3, 99), size="runs")
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("count", "runs", "force"), [(4, 30, False), (5, 31, False), (1, 1, True)])
def test_an_equal_or_larger_run_does_and_one_that_is_forced(
    count: int, runs: int, force: bool, tmp_path: Path
) -> None:
    path = tmp_path / "found.csv"
    record(path, COLUMNS, _rows(4, 30), size="runs")
    larger = [dict(zip(COLUMNS, row, strict=True)) for row in _rows(count, runs)]
    record(path, COLUMNS, larger, size="runs", force=force)
    assert path.read_text().splitlines()[1:] == [f"row {i},0.5,{runs}" for i in range(count)]
