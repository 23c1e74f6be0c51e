"""Counts that equal those of an earlier release: met exactly, stated, and refused where they cannot be had."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cli.schemas import fits
from tests.duchy import people, write_duchy
from tests.passages import changed
from tests.run.earlier import counts, hold, mistakes

import tabulae as tb
from tabulae.cli.areas import plan_document
from tabulae.errors import DataError
from tabulae.spec import Spec, read_spec

ENTRY = """
[[earlier]]
release = "before"
table = "total"
attributes = []
level = "plot"
"""


@pytest.fixture(scope="session")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the duchy's files and a release of it, never changed."""
    folder = tmp_path_factory.mktemp("before")
    spec = write_duchy(folder)
    text = spec.read_text().replace('areas = ["shire", "plot", "forest"]', "")
    spec.write_text(text.replace('areas = ["duchy", "shire", "parish", "market"]', ""))
    tb.run(spec, folder / "before")
    return folder


@pytest.fixture
def duchy(tmp_path: Path, before: Path) -> Path:
    """The spec of a second release, beside the first."""
    write_duchy(tmp_path)
    shutil.copytree(before / "before", tmp_path / "before")
    return tmp_path / "spec.toml"


@pytest.mark.parametrize(
    ("method", "level"),
    [
        ("bluedown", "plot"),
        pytest.param("topdown", "shire", marks=pytest.mark.long),
        pytest.param("bluedown", "shire", marks=pytest.mark.long),
        pytest.param("topdown", "plot", marks=pytest.mark.long),
    ],
)
def test_counts_are_those_of_the_release_before(duchy: Path, method: str, level: str) -> None:
    entry = ENTRY.replace('"plot"', f'"{level}"') + f'[method]\nestimate = "{method}"\n'
    folder = duchy.parent
    release = tb.run(hold(duchy, entry), folder / "after")
    assert release.verify() == []
    assert release.text_faults() == []
    for at in ("plot", "hamlet", "shire", "duchy"):
        same = counts(folder / "after", "total", at) == counts(folder / "before", "total", at)
        assert same or ("plot", "hamlet", "shire", "duchy").index(at) < ("plot", "hamlet", "shire").index(
            level
        )
    assert counts(folder / "after", "faith", "plot") != counts(folder / "before", "faith", "plot")


def test_nothing_is_charged_or_disclosed_for_them_and_the_release_says_where_they_are_from(
    duchy: Path,
) -> None:
    spec, folder = hold(duchy, ENTRY), duchy.parent
    made = tb.plan(spec)
    planned = {**plan_document(made), "needs": asdict(made.needs)}
    release = tb.run(spec, folder / "after")
    assert tb.Ledger.open(folder / "ledger.db").spent == 2
    earlier = tb.Release.read(folder / "before")
    [told] = release.about["earlier"]
    assert told == planned["earlier"][0]
    assert (told["counts"], told["level"], told["table"]) == ("total", "plot", "total")
    assert told["release_id"] == earlier.about["release_id"]
    assert [entry["kind"] for entry in release.ledger] == ["charge", "disclosure"]
    page = (folder / "after/report.html").read_text()
    assert "Counts of an earlier release" in page
    assert told["release_id"] in page.replace("<wbr>", "")
    fits("plan", {**planned, "series": None, "ledger": None, "html": None})


def test_the_published_copy_means_the_same_without_the_earlier_release(duchy: Path) -> None:
    folder = duchy.parent
    spec = read_spec(hold(duchy, ENTRY))
    release = tb.run(duchy, folder / "after")
    shutil.rmtree(folder / "before")
    assert release.spec.digest() == spec.digest()
    assert release.verify() == []
    assert tb.Release.read(folder / "after").verify() == []


def test_check_sees_a_count_that_is_not_the_one_before(duchy: Path) -> None:
    from tabulae.products.areas.publish import constraint_faults
    from tabulae.products.areas.tables import SpineRelease

    release = tb.run(hold(duchy, ENTRY), duchy.parent / "after")
    made = SpineRelease.of(release.path, release.spec, release.level)
    assert list(constraint_faults(made.plan, made.published, made.exact)) == []
    made.published.constraints.earlier[0].values[3, 0] += 1
    assert list(constraint_faults(made.plan, made.published, made.exact)) == [
        "counts of total by plot are not those published before"
    ]


def test_gls_beside_them_is_as_without_them(duchy: Path) -> None:
    """The same measurements, estimated with and without earlier counts."""
    from tabulae.products.areas.tables import SpineRelease

    with_them = tb.run(hold(duchy, ENTRY), duchy.parent / "after")
    plain = SpineRelease.of(with_them.path, with_them.spec, with_them.level)
    text = duchy.read_text().replace(ENTRY, "")
    alone = SpineRelease.of(with_them.path, Spec.from_text(text, duchy.parent), with_them.level)
    some = [one.unbiased.margins([one.plan.layout.margin([])], *_plots(one)) for one in (plain, alone)]
    assert abs(some[0][0] - some[1][0]).max() < 1e-9


def _plots(made: object) -> tuple[object, ...]:
    import numpy as np

    leaves = made.plan.spine.leaves  # pyright: ignore[reportAttributeAccessIssue]
    return np.arange(leaves), leaves, np.arange(leaves)


def test_rows_and_columns_choose_the_counts(duchy: Path) -> None:
    """By another name, with classes in another order, added up over a column that is not asked for."""
    entry = ENTRY.replace('"total"', '"kind_by_grown"').replace("[]", '["sort"]')
    entry += 'columns = { sort = "kind" }\nrows = { grown = ["young", "grown"] }\n'
    hold(duchy, entry, ("[recodes]", '[recodes]\nsort = { of = "kind", map = "sort.csv" }'),
         ('areas = ["duchy", "shire", "parish", "market"]', ""))  # fmt: skip
    (duchy.parent / "sort.csv").write_text("code,class,label\nabbey,1,abbey\nhome,2,home\ninn,3,inn\n")
    release = tb.run(duchy, duchy.parent / "after")
    found = [Counter[tuple[str, ...]]() for _ in range(2)]
    for kept, folder in zip(found, (duchy.parent / "before", release.path), strict=True):
        for (plot, kind, _), n in counts(folder, "kind_by_grown", "plot").items():
            kept[plot, kind] += n
    assert found[0] == found[1]
    assert len(set(found[0].values())) > 3


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda f: shutil.rmtree(f / "before"), "earlier[0].release (line"),
        (lambda f: (f / "before/tables/total.csv").write_text("x"), "tables/total.csv was altered"),
        (lambda f: (f / "before/SHA256SUMS").unlink(), "has no SHA256SUMS"),
        (lambda f: (f / "before/datapackage.json").write_text("{}"), "names no release"),
        (lambda f: (f / "before/more.txt").write_text("x"), "more.txt is not listed"),
    ],
)  # fmt: skip
def test_a_damaged_release_is_refused(duchy: Path, change: Callable[[Path], object], told: str) -> None:
    change(duchy.parent)
    [found] = mistakes(hold(duchy, ENTRY))
    assert told.split(" (")[0] in found


def test_a_table_that_is_no_table_of_areas_is_refused(duchy: Path) -> None:
    """With checksums made to fit: whoever can write them can write anything, and is told what is wrong."""
    before = duchy.parent / "before"
    rows = pq.read_table(before / "tables/total.parquet")
    pq.write_table(rows.drop_columns(["area"]), before / "tables/total.parquet")
    sums = (before / "SHA256SUMS").read_text().splitlines()
    own = hashlib.sha256((before / "tables/total.parquet").read_bytes()).hexdigest()
    written = [f"{own}  tables/total.parquet" if "tables/total.parquet" in line else line for line in sums]
    (before / "SHA256SUMS").write_text("\n".join(written) + "\n")
    [told] = mistakes(hold(duchy, ENTRY))
    assert 'earlier[0].table: table "total" has not the columns of a table of areas' in told


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('"total"', '"totl"', 'earlier[0].table: there is no such table in it; did you mean "total"?'),
        ('"plot"', '"plott"', "earlier[0].level: there is no level or entity"),
        ('"before"', "3", "earlier[0].release: must be the folder of a release"),
        ('"before"', '{ release_id = "x" }', "earlier[0].release.release_id"),
        ("[]", '["kind"]', 'earlier[0].attributes: table "total" has no column "kind"'),
        ("[]", '["knd"]', "earlier[0].attributes[0]: there is no attribute or recode"),
        ("[]", "3", "earlier[0].attributes: must be an array"),
        ('"plot"', '"plot"\nrows = { kind = ["home"] }', "earlier[0].rows.kind: there is no column of that table"),
        ('"plot"', '"plot"\nrows = { kind = [] }', "earlier[0].rows.kind"),
        ('"plot"', '"plot"\ncolumns = { kind = "x" }', "earlier[0].columns.kind: there is no attribute of this entry"),
        ('"plot"', '"plot"\nfile = "x.csv"', "earlier[0].file: is of published copies alone"),
        ('"plot"', '"plot"\nname = "x"', "earlier[0].name: unknown key"),
        ('"total"\nattributes = []', '"faith"\nattributes = ["faith"]\nrows = { faith = ["a"] }',
         "earlier[0].attributes: table \"faith\" has no count of faith b: use a recode without such a class, or make"),
        ('"total"\nattributes = []', '"faith"\nattributes = ["faith"]\nrows = { faith = ["x"] }',
         'earlier[0].rows: column "faith" of that table has no "x"'),
        ('"total"\nattributes = []', '"faith"\nattributes = ["kind"]\ncolumns = { kind = "faith" }',
         'earlier[0].attributes: that table counts "a", and kind has'),
        ("[[earlier]]", '[method]\nestimate = "gls"\n[[earlier]]', 'earlier[0]: goes with estimate = "bluedown"'),
        ("[[earlier]]", "[[earlier]]\n" + ENTRY.split("\n", 2)[2] + "[[earlier]]", "earlier[1]: is about the same"),
    ],
)  # fmt: skip
def test_each_mistake_is_told_with_its_key(duchy: Path, old: str, new: str, told: str) -> None:
    spec = hold(duchy, ENTRY.replace(old, new), *([("microdata = true", "")] if "gls" in new else []))
    assert any(told in found for found in mistakes(spec)), mistakes(spec)


def test_earlier_counts_need_areas(duchy: Path) -> None:
    text = '[source]\npath = "people.csv"\n[privacy]\nbudget = "1"\ndefinition = "zcdp"\n[[table]]\nattributes = []\n'
    duchy.write_text(text + ENTRY)
    assert "earlier[0].level: is of a geography, and there is no [geography]: remove it" in mistakes(duchy)


def test_bounds_that_leave_no_room_are_refused_before_any_record_is_read(duchy: Path) -> None:
    folder = duchy.parent
    (folder / "people.csv").unlink()
    file = folder / "houses.csv"
    changed(file, ("000,home,0", "000,home,100000"))
    [told] = mistakes(hold(duchy, ENTRY))
    assert "plot 000" in told or "hamlet" in told or "parish" in told
    assert "the earlier count of 'total' is outside what the bounds of its leaves add up to" in told
    assert "leave these counts as they are estimated" in told


def test_counts_where_nothing_can_be_counted_are_refused(duchy: Path) -> None:
    folder = duchy.parent
    file = folder / "houses.csv"
    counted = next(area for (area,), n in counts(folder / "before", "total", "plot").items() if n)
    kept = [line for line in file.read_text().splitlines() if not line.startswith(f"{counted},")]
    file.write_text("\n".join(kept) + "\n")
    assert any(f'plot "{counted}" has' in told and "nothing can be counted in it here" in told
               for told in mistakes(hold(duchy, ENTRY)))  # fmt: skip


def test_exact_counts_that_contradict_them_stop_the_run_before_the_charge(duchy: Path) -> None:
    entry = ENTRY + '[[invariant]]\nattributes = []\nlevel = "shire"\nreason = "fixed by law"\n'
    spec, others = hold(duchy, entry), people(seed=4)  # as many in the duchy, and others in its shires
    lines = ["PLOT,KIND,AGE,FAITH", *(",".join(row) for row in others)]
    (duchy.parent / "people.csv").write_text("\n".join(lines) + "\n")
    with pytest.raises(
        DataError, match=r"do not add up .* published by an earlier release\. Nothing was charged"
    ):
        tb.run(spec, duchy.parent / "after")
    assert tb.Ledger.open(duchy.parent / "ledger.db").spent == 0
    assert not (duchy.parent / "after").exists()


def test_counts_equal_by_sql_over_the_files_alone(duchy: Path) -> None:
    release = tb.run(hold(duchy, ENTRY), duchy.parent / "after")
    query = """select count(*) from '{}/tables/total.parquet' a full join '{}/tables/total.parquet' b
        using (area_type, area) where a.area_type = 'plot' and a.estimate is distinct from b.estimate"""
    found = duckdb.connect().execute(query.format(release.path, duchy.parent / "before")).fetchone()
    assert found == (0,)
    assert json.loads((release.path / "datapackage.json").read_text())["tabulae"]["earlier"]
    assert isinstance(release.tables["total"], pa.Table)


FLAT = """
[source]
path = "people.csv"
[attributes]
kind = { column = "KIND", categories = ["home", "inn", "abbey"] }
[privacy]
definition = "zcdp"
budget = "1"
neighbours = "replace"
ledger = "flat.db"
[method]
estimate = "non-negative"
[[table]]
name = "kinds"
attributes = ["kind"]
[[earlier]]
release = "before"
table = "total"
attributes = []
"""


@pytest.mark.long
def test_tables_without_areas_can_hold_counts_of_areas(duchy: Path) -> None:
    folder = duchy.parent
    duchy.write_text(FLAT + 'rows = { area_type = ["duchy"] }\n')
    tb.Ledger.create(folder / "flat.db", tb.ZCDP(2), neighbours="replace", unit="person")
    release = tb.run(duchy, folder / "flat")
    [total] = counts(folder / "before", "total", "duchy").values()
    assert sum(release.tables["kinds"]["estimate"].to_pylist()) == total
    assert release.verify() == []


def test_tables_without_areas_choose_one_kind_of_areas(duchy: Path) -> None:
    duchy.write_text(FLAT + 'rows = { area_type = ["duchy"] }\n')
    assert read_spec(duchy).earlier
    duchy.write_text(FLAT)
    [told] = mistakes(duchy)
    assert 'table "total" has areas of several kinds: choose one, rows = { area_type = ["..."] }' in told
