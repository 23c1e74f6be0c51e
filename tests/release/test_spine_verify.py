"""The folder of a release of areas: what is wrong with it is found, and nothing is where nothing is wrong."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from tests.topdown.two_pass_cases import numbers

import tabulae as tb
from tabulae.errors import ReleaseError
from tabulae.products.areas.constraints import AreaConstraints
from tabulae.products.areas.estimate import SpineEstimate
from tabulae.products.areas.layout import Supports
from tabulae.products.areas.passes.vectors import NodeVectors
from tabulae.products.areas.publish import constraint_faults
from tabulae.products.areas.tables import SpineRelease
from tabulae.release.folder import write_sums


@pytest.fixture
def release(duchy_release: Path, tmp_path: Path) -> Path:
    """A copy that may be changed."""
    shutil.copytree(duchy_release, tmp_path / "release")
    return tmp_path / "release"


def _faults(release: Path) -> list[str]:
    """What is wrong once the checksums are right again."""
    write_sums(release)
    return tb.Release.read(release).verify()


def _shifted(column: str, by: float = 1, row: int = 3) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        values = table[column].to_pylist()
        values[row] = values[row] + by
        place = table.column_names.index(column)
        return table.set_column(place, column, pa.array(values, table[column].type))

    return change


def _renamed(column: str, word: str) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        values = [word, *table[column].to_pylist()[1:]]
        place = table.column_names.index(column)
        return table.set_column(place, column, pa.array(values).cast(table[column].type))

    return change


def _rewritten(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    pq.write_table(change(pq.read_table(path)), path)


def _both(release: Path, name: str, change: Callable[[pa.Table], pa.Table]) -> None:
    """Both files of a table."""
    _rewritten(release / f"tables/{name}.parquet", change)
    table = pq.read_table(release / f"tables/{name}.parquet")
    for i, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(i, field.name, table[field.name].cast(pa.string()))
    pyarrow.csv.write_csv(table, release / f"tables/{name}.csv")


def test_nothing_is_wrong_with_what_was_published(release: Path) -> None:
    assert _faults(release) == []


@pytest.mark.parametrize(
    ("column", "by"),
    [("estimate", 1), ("gls_estimate", 0.01), ("std_error", 1e-3), ("ci_low", -0.1), ("ci_high", 0.1)],
)
def test_every_number_is_compared(release: Path, column: str, by: float) -> None:
    _both(release, "kind_by_grown", _shifted(column, by))
    assert _faults(release) == [f"tables/kind_by_grown.parquet: {column} is not what the measurements say"]


@pytest.mark.parametrize("column", ["area_type", "area", "faith", "obs_status"])
def test_every_word_is_compared(release: Path, column: str) -> None:
    _both(release, "faith", _renamed(column, "z"))
    assert _faults(release) == [f"tables/faith.parquet: {column} is not what the measurements say"]


def test_both_files_of_a_table_say_the_same(release: Path) -> None:
    table = pyarrow.csv.read_csv(release / "tables/total.csv")
    pyarrow.csv.write_csv(_shifted("estimate")(table), release / "tables/total.csv")
    assert _faults(release) == ["tables/total.csv: does not say what tables/total.parquet says"]


def test_rows_are_neither_more_nor_fewer(release: Path) -> None:
    _both(release, "total", lambda table: pa.concat_tables([table, table.slice(0, 1)]))
    _both(release, "faith", lambda table: table.slice(0, table.num_rows - 1))
    faults = _faults(release)
    assert "tables/total: has more rows than were measured" in faults
    assert "tables/faith.parquet: does not have the rows that were measured" in faults


@pytest.mark.parametrize("level", ["duchy", "plot"])
def test_measurements_are_where_every_number_comes_from(release: Path, level: str) -> None:
    path = release / f"measurements/{level}.parquet"
    file = pq.ParquetFile(path)
    first, *others = [file.read_row_group(i) for i in range(file.num_row_groups)]
    with pq.ParquetWriter(path, file.schema_arrow) as writer:
        for rows in (_shifted("value", 40)(first), *others):
            writer.write_table(rows.cast(file.schema_arrow))
    assert any("measurements say" in fault for fault in _faults(release))


@pytest.mark.parametrize("column", ["geocode", "query_name"])
def test_measurements_are_those_of_the_spec(release: Path, column: str) -> None:
    _rewritten(release / "measurements/shire.parquet", _renamed(column, "z"))
    assert len(_faults(release)) == 1


def test_noise_is_that_of_the_spec(release: Path) -> None:
    document = json.loads((release / "measurements/measurement.json").read_text())
    document["levels"][0]["queries"][0]["share"] = "1/3"
    (release / "measurements/measurement.json").write_text(json.dumps(document))
    (fault,) = _faults(release)
    assert fault.startswith("measurements/measurement.json: levels, queries or noise are not those")


def test_exact_counts_are_those_that_sums_meet(release: Path) -> None:
    _rewritten(release / "invariants/exact.parquet", _shifted("value", 1, row=0))
    assert any("measurements say" in fault for fault in _faults(release))


def test_what_the_ledger_was_told_is_what_is_exact(release: Path) -> None:
    spec = (release / "spec.toml").read_text()
    (release / "spec.toml").write_text(spec.replace("the duke counts heads", "nobody knows why"))
    faults = _faults(release)
    assert any("what was disclosed as exact" in fault for fault in faults)


def test_people_are_those_of_the_published_counts(release: Path) -> None:
    _rewritten(release / "microdata.parquet", lambda table: table.slice(1))
    assert _faults(release) == ["microdata.parquet: its people are not those of the published counts"]


def test_a_file_that_is_missing_or_cut_short_is_said_plainly(release: Path, duchy_release: Path) -> None:
    (release / "measurements/plot.parquet").write_bytes(b"PAR1")
    (fault,) = _faults(release)
    assert "plot.parquet" in fault
    shutil.copy(duchy_release / "measurements/plot.parquet", release / "measurements/plot.parquet")
    for name in ("tables/total.csv", "tables/total.parquet", "microdata.parquet"):
        (release / name).rename(release / "aside")
        assert _faults(release) == [f"{release / name} is missing"]
        (release / "aside").rename(release / name)
    (release / "microdata.parquet").unlink()
    (release / "measurements/measurement.json").unlink()
    with pytest.raises(ReleaseError, match="is not a complete release"):
        _faults(release)


def test_other_arithmetic_is_told_beside_numbers_that_differ(
    release: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tabulae.products.areas.publish.made_with", lambda: {"numpy": "0.1"})
    assert _faults(release) == []
    _both(release, "total", _shifted("estimate"))
    (fault,) = _faults(release)
    assert "it was made with numpy" in fault


def _changed(made: SpineRelease, leaf: int, cell: int, by: int) -> SpineEstimate:
    """The published counts with one of them changed."""
    published = made.published
    node = int(made.plan.tree.leaf[leaf])
    flat = numbers(published.vectors)
    flat[made.plan.offsets[node] + cell] += by
    return replace(published, vectors=NodeVectors(made.plan, flat))


def test_limits_and_exact_counts_are_looked_at_by_themselves(duchy_release: Path) -> None:
    """An estimator that broke them would agree with itself."""
    release = tb.Release.read(duchy_release)
    made = SpineRelease.of(duchy_release, release.spec, 0.95)
    plan, exact = made.plan, made.exact
    assert list(constraint_faults(plan, made.published, exact)) == []
    more = list(constraint_faults(plan, _changed(made, 3, 0, 1), exact))
    assert more == ["counts of total by duchy are not the exact ones"]
    fewer = list(constraint_faults(plan, _changed(made, 3, 0, -(10**6)), exact))
    assert "some published count is below 0" in fewer
    limits = made.published.constraints
    assert isinstance(limits, AreaConstraints)
    tight = replace(limits, lower=limits.lower + 10**6)
    outside = replace(made.published, constraints=tight)
    assert list(constraint_faults(plan, outside, exact)) == ["a count of a leaf is outside its limits"]
    support = np.zeros_like(plan.support.rows)
    support[np.arange(len(support)), plan.support.rows.argmax(axis=1)] = True
    narrow = replace(plan, support=Supports.of(support))
    assert "somebody is counted where nobody can be" in list(constraint_faults(narrow, made.published, exact))
