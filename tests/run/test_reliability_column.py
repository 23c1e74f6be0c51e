"""The class of each count in the published files, and counts of the last class left out."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pysdmx.io import get_datasets, read_sdmx
from tests.each import each
from tests.spec.states import write_state
from tests.village import SPEC, write_village

import tabulae as tb
from tabulae.errors import SpecError
from tabulae.estimation.intervals import Interval
from tabulae.export import convert_release
from tabulae.products.tables.publish import false_numbers
from tabulae.release.folder import write_sums
from tabulae.release.write import PublishedTable, plain_csv
from tabulae.spec import ReliabilitySection, Spec

CLASSES = '[reliability]\nthresholds = [0.2, 0.6]\nlabels = ["good", "fair", "poor"]\ncolumn = true\n'
EXACT = '[[invariant]]\nname = "sexes"\nattributes = ["sex"]\nreason = "register"\n'
TEXT = SPEC.replace('budget = "1/2"', 'budget = "1/40"') + '[method]\nselect = "identity"\n' + EXACT
TOLD = ("estimate", "ci_low", "ci_high")


def run(folder: Path, text: str) -> tb.Release:
    write_village(folder)
    (folder / "spec.toml").write_text(text)
    return tb.run(folder / "spec.toml", out=folder / "release")


@pytest.fixture(scope="module", params=["mask = false", "mask = true"])
def release(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tb.Release:
    return run(tmp_path_factory.mktemp("village"), TEXT + CLASSES + request.param + "\n")


def expected(row: dict) -> str:
    """The class by its definition, of a row whose count is there."""
    if row["obs_status"] == "E":
        return "exact"
    share = row["std_error"] / row["estimate"] if row["estimate"] > 0 else np.inf
    return "good" if share < 0.2 else "fair" if share < 0.6 else "poor"


def test_every_row_has_its_class_and_the_last_one_is_left_out(release: tb.Release) -> None:
    masked = release.spec.reliability.mask
    seen = set()
    for name in ("sex_by_age", "race_by_young", "ages", "some", "sexes"):
        table = release.tables[name]
        assert table.column_names[-2:] == ["obs_status", "reliability"]
        for row in table.to_pylist():
            seen.add(row["reliability"])
            assert row["std_error"] is not None
            if masked and row["reliability"] == "poor":
                assert [row[column] for column in TOLD] == [None] * 3
                assert row["obs_status"] == "A"
            else:
                assert row["reliability"] == expected(row)
    assert seen == {"good", "fair", "poor", "exact"}


def test_what_is_published_follows_from_the_measurements(release: tb.Release) -> None:
    assert release.verify() == []


def test_questions_are_answered_whatever_is_masked(release: tb.Release) -> None:
    asked = release.query("SELECT sex, age, COUNT(*) FROM people GROUP BY sex, age").to_pylist()
    for answer, row in zip(asked, release.tables["sex_by_age"].to_pylist(), strict=True):
        assert answer["estimate"] is not None
        if row["estimate"] is not None:
            assert answer["estimate"] == pytest.approx(row["estimate"], abs=1e-6)


def test_the_files_describe_the_column(release: tb.Release) -> None:
    folder = Path(release.path)
    descriptor = json.loads((folder / "datapackage.json").read_text())
    fields = {each["path"]: each["schema"]["fields"][-1] for each in descriptor["resources"]}
    field = fields["tables/sex_by_age.csv"]
    assert field["name"] == "reliability"
    assert field["constraints"] == {"enum": ["good", "fair", "poor", "exact"]}
    assert ("left out" in field["description"]) == release.spec.reliability.mask
    with (folder / "tables/sex_by_age.csv").open(newline="") as file:
        assert {row["reliability"] for row in csv.DictReader(file)} <= {"good", "fair", "poor", "exact"}
    page = " ".join((folder / "report.html").read_text().split())
    assert ("Numbers of the last class are left out" in page) == release.spec.reliability.mask
    assert "nan" not in page.lower().replace("nano", "").replace("financ", "")


def test_sdmx_says_low_reliability_or_suppressed(release: tb.Release, tmp_path: Path) -> None:
    out = convert_release(release, "sdmx-csv", tmp_path / "sdmx")
    read_sdmx(out / "structure.json", validate=True)
    (dataset,) = get_datasets(out / "tables/sex_by_age.csv", out / "structure.json")
    status = {"good": "A", "fair": "A", "poor": "Q" if release.spec.reliability.mask else "U", "exact": "A"}
    for name, own in release.tables.items():
        with (out / f"tables/{name}.csv").open(newline="") as file:
            for row, stored in zip(csv.DictReader(file), own.to_pylist(), strict=True):
                assert row["RELIABILITY"] == stored["reliability"]
                assert row["OBS_STATUS"] == status[stored["reliability"]]
                assert row["RELEASE_STATUS"] == stored["obs_status"]
                assert row["CONF_STATUS"] == "F"
                assert (row["OBS_VALUE"] == "") == (stored["estimate"] is None)
    codes = {c.id: c.local_codes for c in dataset.structure.components if c.local_codes is not None}
    assert {code.id for code in codes["OBS_STATUS"].items} == {"A", "O", "U", "Q"}
    assert {code.id for code in codes["CONF_STATUS"].items} == {"F"}


def test_every_other_format_has_it(release: tb.Release, tmp_path: Path) -> None:
    own = release.tables["sex_by_age"]["reliability"].to_pylist()
    out = convert_release(release, "csv", tmp_path / "csv")
    with (out / "tables/sex_by_age.csv").open(newline="") as file:
        assert [row["reliability"] for row in csv.DictReader(file)] == own
    out = convert_release(release, "json-stat", tmp_path / "json")
    dataset = json.loads((out / "tables/sex_by_age.json").read_text())
    assert list(dataset["extension"]["reliability"].values()) == own
    missing = dataset["value"][:: len(dataset["dimension"]["measure"]["category"]["index"])].count(None)
    assert missing == (own.count("poor") if release.spec.reliability.mask else 0)
    assert convert_release(release, "xlsx", tmp_path / "xlsx").is_dir()


def altered(release: tb.Release, folder: Path, change: Callable[[pa.Table], pa.Table]) -> list[str]:
    """What a check finds of a copy whose table is changed."""
    copy = folder / "copy"
    shutil.copytree(release.path, copy)
    rows = change(pq.read_table(copy / "tables/sex_by_age.parquet"))
    pq.write_table(rows, copy / "tables/sex_by_age.parquet")
    (copy / "tables/sex_by_age.csv").write_bytes(plain_csv(rows))
    write_sums(copy)
    return tb.Release.read(copy).verify()


def _with(table: pa.Table, column: str, values: list) -> pa.Table:
    at = table.column_names.index(column)
    return table.set_column(at, column, pa.array(values, table.schema.field(column).type))


def test_a_class_that_is_not_the_count_s_is_found(release: tb.Release, tmp_path: Path) -> None:
    def worse(table: pa.Table) -> pa.Table:
        words = table["reliability"].to_pylist()
        at = next(i for i, word in enumerate(words) if word != "poor")
        return _with(table, "reliability", [*words[:at], "poor", *words[at + 1 :]])

    assert any("reliability does not follow" in fault for fault in altered(release, tmp_path, worse))


def test_a_count_that_is_missing_for_no_reason_is_found(release: tb.Release, tmp_path: Path) -> None:
    def missing(table: pa.Table) -> pa.Table:
        at = next(i for i, word in enumerate(table["reliability"].to_pylist()) if word != "poor")
        counts = table["estimate"].to_pylist()
        return _with(table, "estimate", [*counts[:at], None, *counts[at + 1 :]])

    assert any("estimate does not follow" in fault for fault in altered(release, tmp_path, missing))


def test_two_machines_may_put_a_count_at_a_threshold_in_either_class() -> None:
    """A coefficient of variation of 1/2: a rounding of the estimate decides, and both are taken."""
    section = ReliabilitySection(column=True, mask=True)

    def table(count: float) -> PublishedTable:
        status = np.array(["A", "A"])
        counts, errors = np.array([count, 90.0]), np.array([10.0, 10.0])
        interval = Interval(counts - 20, counts + 20)
        return PublishedTable("t", {"x": ("a", "b")}, counts, errors, interval, status, 0)

    here, there = table(20.0), table(20.0 + 1e-9)
    assert (here.classed(section).masked == [True, False]).all()
    assert not there.classed(section).masked.any()
    for one, other in ((here, there), (there, here)):
        assert list(false_numbers(one, other.classed(section).arrow(), 0.0, section)) == []
    assert list(false_numbers(here, table(21.0).classed(section).arrow(), 0.0, section))


def test_changes_leave_out_what_a_release_masks(release: tb.Release, tmp_path: Path) -> None:
    folder = Path(release.path).parent
    later = tb.run(folder / "spec.toml", out=tmp_path / "later")
    names = ("race", "young")
    known = [
        {
            tuple(row[name] for name in names)
            for row in each.tables["race_by_young"].to_pylist()
            if row["estimate"] is not None
        }
        for each in (release, later)
    ]
    found = later.changes_since(release, "race_by_young")
    rows = found.rows.to_pylist()
    assert {tuple(row[name] for name in names) for row in rows} == known[0] & known[1]
    assert any("a release masks" in note for note in found.notes) == (len(rows) < 9)
    assert all(np.isfinite(row["change"]) for row in rows)


def test_without_the_key_nothing_changes() -> None:
    plain = Spec.from_text(SPEC)
    said = Spec.from_text(SPEC + "[reliability]\ncolumn = false\nmask = false\n")
    assert said.digest() == plain.digest()
    assert "column" not in plain.published_text().split("[reliability]")[1]


def test_the_published_copy_keeps_it() -> None:
    spec = Spec.from_text(SPEC + CLASSES + "mask = true\n")
    copy = Spec.from_text(spec.published_text())
    assert (copy.reliability.column, copy.reliability.mask) == (True, True)
    assert copy.digest() == spec.digest() != Spec.from_text(SPEC + CLASSES).digest()


@each(
    ("section", "path", "said"),
    [
        ("mask = true", "reliability", "write column = true, too"),
        ('column = "yes"', "reliability.column", "must be true or false"),
        ("column = true\nmask = 1", "reliability.mask", "must be true or false"),
        ('column = true\nlabels = ["a", "b", "exact"]', "reliability", "in no class"),
    ],
)
def test_mistakes_are_told(section: str, path: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        Spec.from_text(f"{SPEC}[reliability]\n{section}\n")
    [problem] = caught.value.problems
    assert problem.path == path
    assert said in problem.message


def test_an_attribute_of_that_name_is_refused() -> None:
    with pytest.raises(SpecError) as caught:
        Spec.from_text(SPEC.replace("race", "reliability") + CLASSES)
    assert [problem.path for problem in caught.value.problems] == ["attributes.reliability"]


def test_a_recode_of_that_name_is_refused() -> None:
    with pytest.raises(SpecError, match=r"recodes\.reliability"):
        Spec.from_text(SPEC.replace("young", "reliability") + CLASSES)


def test_areas_have_none(tmp_path: Path) -> None:
    title = 'title = "Small state"'
    [problem] = write_state(tmp_path).problems((title, f"{title}\nreliability = {{ column = true }}"))
    assert problem.path == "reliability.column"
    assert "is of tables without areas and groups" in problem.message
