"""The folder of a release of groups: what is wrong with it is found, and nothing is where nothing is wrong."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from tests.passages import changed

import tabulae as tb
from tabulae._run import write_report
from tabulae.domain.groups import CodeFamily, Group, GroupMap, Ladder, Regions
from tabulae.errors import ReleaseError, Unsupported
from tabulae.privacy import ZCDP
from tabulae.products.groups.levels import (
    TOTAL_ONLY,
    AdaptivePlan,
    GroupMeasurement,
    GroupMeasurements,
    PopulationLevel,
)
from tabulae.products.groups.store import GroupMeasurementWriter, most_bytes, read_group_measurements
from tabulae.release import Release
from tabulae.release.folder import Rows, write_sums
from tabulae.spec import read_spec


@pytest.fixture
def release(guild_release: Path, tmp_path: Path) -> tb.Release:
    return tb.Release.read(shutil.copytree(guild_release, tmp_path / "release"))


def _rewritten(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    pq.write_table(change(pq.read_table(path)), path)


def _shifted(column: str) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        values = table[column].to_pylist()
        at = next(i for i, value in enumerate(values) if value is not None)
        values[at] = values[at] + 1
        return table.set_column(
            table.column_names.index(column), column, pa.array(values, table[column].type)
        )

    return change


def _csv(path: Path) -> None:
    table = pyarrow.csv.read_csv(path)
    pyarrow.csv.write_csv(_shifted("estimate")(table), path)


def _json(key: str, value: object) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        document = json.loads(path.read_text())
        document["levels"][0][key] = value
        path.write_text(json.dumps(document))

    return change


def _descriptor(path: Path) -> None:
    document = json.loads(path.read_text())
    document["tabulae"]["levels"][0]["groups_by_table"] = {"total": 2}
    path.write_text(json.dumps(document))


def _without_last(table: pa.Table) -> pa.Table:
    return table.slice(0, table.num_rows - 1)


def _doubled(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table, table])


def _swapped(table: pa.Table) -> pa.Table:
    return table.take([1, 0, *range(2, table.num_rows)])


ALTERED: dict[str, tuple[str, Callable[[Path], None], str]] = {
    "a published estimate": (
        "tables/totals.parquet",
        lambda path: _rewritten(path, _shifted("estimate")),
        "tables/totals.csv: does not say what tables/totals.parquet says",
    ),
    "a CSV file": ("tables/totals.csv", _csv, "tables/totals.csv: does not say"),
    "a row of a table less": (
        "tables/sex.parquet",
        lambda path: _rewritten(path, _without_last),
        "tables/sex.parquet: does not have the rows that were measured",
    ),
    "a noisy total": (
        "measurements/01-nation-1.parquet",
        lambda path: _rewritten(path, _shifted("total")),
        "do not add up",
    ),
    "a noisy cell": (
        "measurements/01-nation-1-cells-2.parquet",
        lambda path: _rewritten(path, _shifted("value")),
        "do not add up",
    ),
    "a table that was not chosen": (
        "measurements/01-nation-1.parquet",
        lambda path: _rewritten(path, _shifted("rung")),
        "another table than its stage-one count chooses",
    ),
    "measured rows less": (
        "measurements/02-shire-2.parquet",
        lambda path: _rewritten(path, _without_last),
        "does not have every group in every region",
    ),
    "measured rows twice": (
        "measurements/03-town-2.parquet",
        lambda path: _rewritten(path, _doubled),
        "has more rows than were measured",
    ),
    "rows that changed places": (
        "measurements/02-shire-2.parquet",
        lambda path: _rewritten(path, _swapped),
        "",
    ),
    "the noise": (
        "measurements/measurement.json",
        _json("laws", {}),
        "levels, noise or stability are not those of spec.toml",
    ),
    "the stability": ("measurements/measurement.json", _json("stability", 1), "are not those of spec.toml"),
    "a budget of the spec": (
        "spec.toml",
        lambda path: changed(path, ('budget = "1/2"', 'budget = "1/4"')),
        "ledger.json: what was charged is not the budget of spec.toml",
    ),
    "how many got which table": (
        "datapackage.json",
        _descriptor,
        "how many groups got which table is not what the measurements say",
    ),
}


@pytest.mark.parametrize("what", ALTERED)
def test_what_was_altered_is_found_with_and_without_checksums(release: tb.Release, what: str) -> None:
    """Also by somebody who makes the checksums anew."""
    name, alter, words = ALTERED[what]
    alter(release.path / name)
    assert tb.Release.read(release.path).verify() == [f"{name} was altered"]
    write_sums(release.path)
    faults = tb.Release.read(release.path).verify()
    assert faults
    assert any(words in fault for fault in faults), faults


def test_a_false_number_in_both_files_is_found(release: tb.Release) -> None:
    path = release.path / "tables/totals.parquet"
    _rewritten(path, _shifted("estimate"))
    pyarrow.csv.write_csv(pq.read_table(path), path.with_suffix(".csv"))
    write_sums(release.path)
    assert release.verify() == ["tables/totals.parquet: estimate is not what the measurements say"]


def test_cells_add_up_to_totals(release: tb.Release) -> None:
    totals = {
        (row["region_type"], row["region"], row["group"]): row for row in release.tables["totals"].to_pylist()
    }
    sums: dict[tuple[str, str, str], float] = {}
    for name in ("sex", "sex_by_age2"):
        for row in release.tables[name].to_pylist():
            key = (row["region_type"], row["region"], row["group"])
            assert totals[key]["table"] == name
            sums[key] = sums.get(key, 0.0) + row["estimate"]
    assert sums
    for key, total in sums.items():
        assert total == pytest.approx(totals[key]["estimate"], abs=1e-6)
    for row in totals.values():
        assert row["ci_low"] <= max(row["estimate"], 0) <= row["ci_high"]  # intervals are cut at 0


def test_the_measurements_read_back_as_they_were_drawn(release: tb.Release) -> None:
    pieces = list(release.measurements)
    assert [piece.level for piece in pieces] == [0, 1, 2]
    for piece, level in zip(pieces, release.product.adaptive.levels, strict=True):
        assert len(piece.rung) == level.regions.size * len(level.groups)
        for rung, (places, cells) in piece.cells.items():
            assert (piece.rung[places] == rung).all()
            np.testing.assert_array_equal(cells.sum(axis=1), piece.totals[places])
    assert (pieces[2].rung[3::4] == TOTAL_ONLY).all()


def test_what_groups_cannot_answer_is_refused_with_what_to_do(release: tb.Release) -> None:
    with pytest.raises(Unsupported, match=r"tables/totals\.csv"):
        release.query("SELECT COUNT(*) FROM people")


def test_suppression_leaves_out_small_totals_only(guild: Path) -> None:
    text = guild.read_text().replace(
        "[[detailed.level]]", 'suppress = { chance = "0.99", regions = ["town"] }\n\n[[detailed.level]]', 1
    )
    guild.write_text(text)
    release = tb.run(guild, guild.parent / "release")
    assert release.verify() == []
    suppress = read_spec(guild).detailed.suppress  # type: ignore[union-attr]
    level, piece = release.product.adaptive.levels[2], list(release.measurements)[2]
    floors = {0: suppress.floor(level.second), TOTAL_ONLY: suppress.floor(level.whole)}
    kept = [total > floors.get(rung, -(10**9)) for total, rung in zip(piece.totals, piece.rung, strict=True)]
    groups = [group.code for group in level.groups.groups]
    expected = [(level.regions.ids[i // 4], groups[i % 4]) for i in np.flatnonzero(kept)]
    rows = [row for row in release.tables["totals"].to_pylist() if row["region_type"] == "town"]
    assert [(row["region"], row["group"]) for row in rows] == expected
    assert release.about["levels"][2]["suppressed"] == 16 - len(rows)
    assert sum(row["region_type"] != "town" for row in release.tables["totals"].to_pylist()) == 2 + 2 * 4


def _plan(regions: int) -> AdaptivePlan:
    """One level of many regions, with one group of each kind of treatment."""
    groups = GroupMap(
        (CodeFamily("f", ("x", "y")),),
        (Group("a", "1", "f", "any"), Group("b", "1", "f", "any", total_only=True)),
        [("a", "x"), ("b", "y")],
    )
    ladder = Ladder.of({"sex": 3}, [("sex", {"sex": (["F", "M", "X"], [0, 1, 2])})])
    areas = Regions("area", tuple(map(str, range(regions))), np.arange(regions))
    level = PopulationLevel(areas, "1", groups.at("1", "area"), ladder, (2,), ZCDP(1), Fraction(1, 10))
    return AdaptivePlan((level,))


@pytest.mark.parametrize("pieces", [1, 7, 300])
def test_pieces_of_any_size_read_back_to_the_same_numbers(tmp_path: Path, pieces: int) -> None:
    rng = np.random.default_rng(5)
    plan, regions = _plan(300), 300
    stage_one = rng.integers(-3, 8, regions * 2)
    stage_one[1::2] = 0
    rung = np.where(np.arange(regions * 2) % 2, TOTAL_ONLY, stage_one >= 2).astype(np.int8)
    values = rng.integers(-5, 9, (regions * 2, 3))
    totals = np.where(rung == 1, values.sum(axis=1), rng.integers(-4, 4, regions * 2))
    with GroupMeasurementWriter(tmp_path, plan) as writer:
        for part in np.array_split(np.arange(regions), pieces):
            at = slice(2 * part[0], 2 * part[-1] + 2)
            places = np.flatnonzero(rung[at] == 1)
            cells = {1: (places, values[at][places])} if places.size else {}
            writer(GroupMeasurement(0, int(part[0]), len(part), stage_one[at], rung[at], totals[at], cells))
        with pytest.raises(ReleaseError, match="rehearsal"):
            writer.finish(GroupMeasurements(plan, True, None, iter(())))
        writer.finish(GroupMeasurements(plan, False, "0" * 16, iter(())))
    read = list(read_group_measurements(tmp_path, plan))
    np.testing.assert_array_equal(np.concatenate([piece.totals for piece in read]), totals)
    np.testing.assert_array_equal(np.concatenate([piece.stage_one for piece in read]), stage_one)
    np.testing.assert_array_equal(np.concatenate([piece.cells[1][1] for piece in read]), values[rung == 1])


@pytest.mark.parametrize("nothing", ["regions", "groups"])
def test_a_level_of_nothing_reads_back(tmp_path: Path, nothing: str) -> None:
    (level,) = _plan(4).levels
    none = np.full(4, -1, np.int32)
    empty = (
        replace(level, regions=Regions("nowhere", (), none))
        if nothing == "regions"
        else replace(level, group_level="2", groups=replace(level.groups, groups=()))
    )
    plan = AdaptivePlan((level, empty))
    zero, rung = np.zeros(8, np.int64), np.tile(np.array([0, TOTAL_ONLY], np.int8), 4)
    with GroupMeasurementWriter(tmp_path, plan) as writer:
        writer(GroupMeasurement(0, 0, 4, zero, rung, zero, {}))
        writer.finish(GroupMeasurements(plan, False, "0" * 16, iter(())))
    pieces = list(read_group_measurements(tmp_path, plan))
    assert sum(len(piece.totals) for piece in pieces) == 8
    assert {path.name for path in (tmp_path / "measurements").iterdir()} == {
        "measurement.json",
        "01-area-1.parquet",
        "01-area-1-cells-1.parquet",
        *(f"02-{'nowhere-1' if nothing == 'regions' else 'area-2'}{end}.parquet" for end in ("", "-cells-1")),
    }


@pytest.mark.parametrize(("regions", "deviation"), [(1, 1.0), (3000, 3.0), (20_000, 2.0**50)])
def test_a_measurement_is_never_larger_than_was_reckoned(
    tmp_path: Path, regions: int, deviation: float
) -> None:
    """The finest table everywhere, and noise of so many bits that nothing can be compressed in the last case."""
    plan, rng = _plan(regions), np.random.default_rng(8)
    stage_one = 5 + np.abs(rng.normal(0, deviation, 2 * regions)).astype(np.int64)
    rung = np.tile(np.array([1, TOTAL_ONLY], np.int8), regions)
    values = rng.normal(0, deviation, (regions, 3)).astype(np.int64)
    cells = {1: (np.arange(0, 2 * regions, 2), values)}
    with GroupMeasurementWriter(tmp_path, plan) as writer:
        writer(GroupMeasurement(0, 0, regions, stage_one, rung, stage_one, cells))
        writer.finish(GroupMeasurements(plan, False, "0" * 16, iter(())))
    written = sum(path.stat().st_size for path in (tmp_path / "measurements").iterdir())
    assert written <= most_bytes(plan)
    if regions > 10_000:
        assert written > most_bytes(plan) / 3


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("kind", ["guild", "village"])
def test_no_report_is_written_over_what_was_altered(kind: str, request: pytest.FixtureRequest) -> None:
    spec = request.getfixturevalue(kind)
    release = tb.run(spec, spec.parent / "release")
    table = next(iter(release.tables))
    (release.path / f"tables/{table}.csv").write_text("")
    (release.path / "strange").write_text("")
    before = _files(release.path)
    with pytest.raises(ReleaseError) as caught:
        write_report(Release.read(release.path))
    for words in ("is not as it was published", "strange is not listed", f"tables/{table}.csv was altered"):
        assert words in str(caught.value)
    assert _files(release.path) == before


@pytest.mark.parametrize(
    ("kind", "lost"),
    [
        *(("guild", True), ("village", False)),
        pytest.param("guild", False, marks=pytest.mark.long),
        pytest.param("village", True, marks=pytest.mark.long),
    ],
)
def test_a_new_report_changes_its_own_sum_only(
    kind: str, lost: bool, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = request.getfixturevalue(kind)
    out = tb.run(spec, spec.parent / "release").path
    sums = (out / "SHA256SUMS").read_text().splitlines()
    if lost:
        (out / "report.html").unlink()
    else:
        (out / "report.html").write_text("of another version")
    (out / ".report.html.draft").write_text("half")  # of a process that was killed
    monkeypatch.setattr("tabulae._run.report_of", lambda release: "new")
    write_report(Release.read(out))
    assert (out / "report.html").read_text() == "new"
    assert Release.read(out).verify() == []
    after = (out / "SHA256SUMS").read_text().splitlines()
    changed = set(after) - set(sums)
    assert [line.split("  ")[1] for line in changed] == ["report.html"]
    assert [line.split("  ")[1] for line in after] == [line.split("  ")[1] for line in sums]


def test_rows_are_taken_across_the_pieces_that_a_file_is_stored_in(tmp_path: Path) -> None:
    table = pa.table({"n": np.arange(10), "w": pa.array(list("abcdefghij")).dictionary_encode()})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=3)
    rows = Rows.of_parquet(tmp_path / "t.parquet")
    assert [rows.take(4)["n"].to_pylist() for _ in range(4)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9], []]
    (tmp_path / "bad.parquet").write_bytes(b"PAR1")
    with pytest.raises(ReleaseError, match="cannot be read"):
        Rows.of_parquet(tmp_path / "bad.parquet")
