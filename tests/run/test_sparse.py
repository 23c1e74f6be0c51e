"""Releases of sparse counts: what is drawn, stored, published, checked and refused, from the spec to the folder."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.duchy import AGES, FAITHS, KINDS, SPEC, houses, sparse

import tabulae as tb
from tabulae.cli._main import app
from tabulae.errors import ReleaseError, SpecError, Unsupported
from tabulae.products.areas import measure
from tabulae.products.areas.needs import most_asked
from tabulae.release.agreement import same_version
from tabulae.sources.memory import size_words
from tabulae.spec import read_spec

EARLIER = """
[[earlier]]
release = "before"
table = "microdata"
attributes = ["kind", "faith"]
level = "plot"
"""
INVARIANT = '\n[[invariant]]\nattributes = []\nlevel = "duchy"\nreason = "r"\n'
FIGURE = '\n[[derived]]\nname = "n"\nsql = "SELECT COUNT(*) FROM people"\n'
BOUND = '[[bound]]\nattributes = ["kind"]\nfile = "houses.csv"\nunlisted = "zero"\n'
ANSWERS = ("geocode", "query_name", "cell")


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory, duchy_release: Path) -> Path:
    """A folder with a release of sparse counts that are held to another's, its spec and its ledger."""
    folder = tmp_path_factory.mktemp("held") / "here"
    shutil.copytree(duchy_release.parent, folder)
    (folder / "release").rename(folder / "before")
    (folder / "spec.toml").write_text(sparse(SPEC) + EARLIER)
    tb.run(folder / "spec.toml", folder / "after")
    return folder


def cells_of(folder: Path) -> dict[str, Counter[tuple[str, str, str]]]:
    """Of counts.parquet: for each plot its people by kind, age and faith."""
    found: dict[str, Counter[tuple[str, str, str]]] = {}
    for row in pq.read_table(folder / "counts.parquet").to_pylist():
        kind, age, faith = np.unravel_index(row["cell"], (3, 3, 4))
        assert row["count"] > 0
        found.setdefault(row["geocode"], Counter())[KINDS[kind], AGES[age], FAITHS[faith]] += row["count"]
    return found


def people_of(folder: Path) -> dict[str, Counter[tuple[str, str, str]]]:
    """The same of the microdata."""
    found: dict[str, Counter[tuple[str, str, str]]] = {}
    for row in pq.read_table(folder / "microdata.parquet").to_pylist():
        found.setdefault(row["plot"], Counter())[row["kind"], row["age"], row["faith"]] += 1
    return found


def test_a_release_is_whole_and_its_tables_and_people_are_its_counts(held: Path) -> None:
    release = tb.Release.read(held / "after")
    assert release.verify() == []
    assert release.text_faults() == []
    assert same_version(release.descriptor)
    counts = cells_of(release.path)
    assert people_of(release.path) == counts
    for row in release.tables["faith"].to_pylist():
        if row["area_type"] == "plot":
            mine = counts.get(row["area"], Counter())
            assert row["estimate"] == sum(n for (_, _, faith), n in mine.items() if faith == row["faith"])
    for row in release.tables["kind_by_grown"].to_pylist():
        exact = row["obs_status"] == "E"
        assert exact or row["kind"] != "abbey" or row["grown"] != "young"
        assert exact or row["area_type"] not in ("duchy", "shire") or row["kind"] != "home" or row["estimate"]
        assert [row[name] for name in ("std_error", "ci_low", "ci_high")] == [0.0 if exact else None] * 3
        assert not exact or row["estimate"] == 0


def test_constraints_are_met_counted_without_the_library(held: Path) -> None:
    counts, before = cells_of(held / "after"), people_of(held / "before")
    kinds = Counter({(p, k): n for p, mine in counts.items() for (k, _, _), n in _by(mine, 0).items()})
    for plot in {*counts, *before}:
        mine, theirs = (each.get(plot, Counter()) for each in (counts, before))
        assert _by(mine, 0, 2) == _by(theirs, 0, 2)
        assert not any(kind == "abbey" and age == "child" for kind, age, _ in mine)
    assert all(kinds[place] >= least for place, least in houses().items())
    assert set(kinds) <= set(houses())
    assert _by(counts["000"], 1) != _by(before["000"], 1) or counts != before


def _by(counts: Counter[tuple[str, str, str]], *axes: int) -> Counter[tuple[str, ...]]:
    found: Counter[tuple[str, ...]] = Counter()
    for cell, n in counts.items():
        found[tuple(cell[i] if i in axes else "" for i in range(3))] += n
    return found


def test_every_answer_is_stored_once_and_the_plan_says_how_it_was_made(held: Path) -> None:
    release, stored = tb.Release.read(held / "after"), Counter()
    for path in (held / "after/measurements").glob("*.parquet"):
        rows = pq.read_table(path, columns=[*ANSWERS]).to_pylist()
        stored.update((path.name, *row.values()) for row in rows)
    assert max(stored.values()) == 1
    assert sum(rows.num_rows for rows in release.measurements) == len(stored)
    document = json.loads((held / "after/measurements/measurement.json").read_text())
    assert document["passes"] == [["total", "faith"], ["detailed"]]
    assert document["budget"] == {"definition": "zcdp", "rho": "2"}
    every = (
        36 * 45
    )  # of the detailed query alone, at plots: those in cells that a hamlet has nobody in are not there
    assert 0 < sum(row[0] == "plot.parquet" and row[2] == "detailed" for row in stored) < every


def test_the_charge_is_whole_and_comes_before_the_first_answer(
    barony: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, noise, spent = tb.Ledger.open(barony.parent / "ledger.db"), measure._noise, []

    def drawn(*given: object) -> np.ndarray:
        spent.append(ledger.spent)
        return noise(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(measure, "_noise", drawn)
    tb.run(barony, barony.parent / "release")
    assert len(spent) > 8
    assert set(spent) == {Fraction(2)}
    assert ledger.spent == 2


def test_answers_that_no_ledger_pays_for_are_not_drawn(barony: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tb.run(barony, barony.parent / "one")
    tb.run(barony, barony.parent / "two")
    monkeypatch.setattr(measure, "_noise", None)  # whoever calls it fails
    with pytest.raises(tb.errors.BudgetRefused):
        tb.run(barony, barony.parent / "three")


def test_plan_says_what_answers_take_by_how_many_records_there_are(
    barony: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is held, so that the records decide how much is asked; no run asks for more."""
    needs, release = tb.plan(barony).needs, tb.run(barony, barony.parent / "release")
    geography = read_spec(barony).geography
    assert geography is not None
    assert geography.sparse is not None
    asked = sum(rows.num_rows for rows in release.measurements)
    assert asked <= most_asked(geography.plan(), geography.sparse, 500)
    every = sum(query.size for query in geography.queries) * geography.plan().tree.size
    assert (
        most_asked(geography.plan(), geography.sparse, 0)
        < every // 2
        < most_asked(geography.plan(), geography.sparse, 10**5)
    )
    files = [*(release.path / "measurements").iterdir(), release.path / "counts.parquet"]
    assert sum(path.stat().st_size for path in files) <= needs.measurements + needs.million
    app(["plan", str(barony)], standalone_mode=False)
    assert f"{size_words(needs.million)} for each million records" in capsys.readouterr().out


@pytest.mark.parametrize(("million", "refused"), [(0, True), (1, True), (2, False)])
def test_records_whose_answers_may_not_fit_are_refused_before_the_charge(
    barony: Path, monkeypatch: pytest.MonkeyPatch, million: int, refused: bool
) -> None:
    monkeypatch.setattr("tabulae.products.areas.measure.MILLION", 400)  # records of which there are 500
    needs = tb.plan(barony).needs
    free = shutil.disk_usage(barony.parent)._replace(free=needs.disk + million * needs.million)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: free)
    if not refused:
        tb.run(barony, barony.parent / "release")
        return
    with pytest.raises(ReleaseError, match=r"for each million records.*Nothing was charged") as told:
        tb.run(barony, barony.parent / "release")
    assert "500" not in str(told.value).replace(str(barony.parent), "")
    assert not tb.Ledger.open(barony.parent / "ledger.db").charges()


def _write(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    pq.write_table(change(pq.read_table(path, read_dictionary=["geocode", "query_name"])), path)


def _with(rows: pa.Table, name: str, values: np.ndarray) -> pa.Table:
    return rows.set_column(rows.column_names.index(name), rows.schema.field(name), pa.array(values))


def _more(rows: pa.Table) -> pa.Table:
    """One person more in the first row."""
    name = "value" if "value" in rows.column_names else "count"
    values = rows[name].to_numpy().copy()
    values[0] += 1_000
    return _with(rows, name, values)


@pytest.mark.parametrize(
    ("file", "change", "told"),
    [
        ("counts.parquet", _more, "tables/total.*not what the measurements say"),
        ("counts.parquet", _more, r"counts of kind \* faith of leaves are not those published before"),
        ("counts.parquet", _more, "counts.parquet: is not what the division makes of the answers"),
        ("counts.parquet", lambda rows: rows.slice(1), "is not what the division makes"),
        ("counts.parquet", lambda rows: pa.concat_tables([rows, rows.slice(3, 1)]), "by leaf and cell"),
        (
            "measurements/shire.parquet",
            _more,
            "is not what the division makes|not as the plan has it|rows, and",
        ),
        ("measurements/plot.parquet", lambda rows: rows.slice(1), "were measured|not as the plan"),
        (
            "measurements/plot.parquet",
            lambda rows: pa.concat_tables([rows, rows.slice(0, 1)]),
            "were measured|more answers than were asked",
        ),
    ],
)
def test_check_sees_counts_and_answers_that_were_altered(
    held: Path, tmp_path: Path, file: str, change: Callable[[pa.Table], pa.Table], told: str
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(held / "after", folder)
    _write(folder / file, change)
    release = tb.Release.read(folder)
    assert re.search(told, "\n".join(release.product.faults(release)))


def test_the_published_copy_means_the_same_without_the_earlier_release(held: Path) -> None:
    spec = read_spec(held / "spec.toml")
    assert tb.Release.read(held / "after").spec.digest() == spec.digest()
    told = "kind * faith, of each plot: as in the microdata of release"
    assert told in (held / "after/report.html").read_text().replace("<wbr>", "")
    rows = [*csv.DictReader(io.StringIO((held / "after/geography/earlier0.csv").read_text()))]
    assert all(int(row["estimate"]) > 0 for row in rows)


def test_counts_are_held_where_they_are_whatever_the_order_of_the_file(held: Path, tmp_path: Path) -> None:
    folder = tmp_path / "here"
    shutil.copytree(held, folder)

    def counts() -> dict[tuple[str, int], int]:
        geography = read_spec(folder / "spec.toml").geography
        assert geography is not None
        assert geography.sparse is not None
        assert geography.sparse.held is not None
        found = geography.sparse.held.counts
        places = geography.leaf_codes[found.row].tolist()
        return dict(zip(zip(places, found.key.tolist(), strict=True), found.people.tolist(), strict=True))

    before = counts()
    header, *lines = (folder / "plots.csv").read_text().splitlines()
    (folder / "plots.csv").write_text("\n".join([header, *reversed(lines)]) + "\n")
    assert counts() == before


def test_a_table_of_every_combination_is_held_too_and_one_of_fewer_is_not(held: Path, tmp_path: Path) -> None:
    folder = tmp_path / "here"
    shutil.copytree(held, folder)
    entry = EARLIER.replace('"microdata"', '"faith"').replace('["kind", "faith"]', '["faith"]')
    document = sparse(SPEC, drop=("bound", "invariant")) + entry
    (folder / "spec.toml").write_text(document)
    geography = read_spec(folder / "spec.toml").geography
    assert geography is not None
    assert geography.sparse is not None
    assert geography.sparse.held is not None
    told = {row["faith"]: 0 for row in pq.read_table(folder / "before/tables/faith.parquet").to_pylist()}
    for row in pq.read_table(folder / "before/tables/faith.parquet").to_pylist():
        told[row["faith"]] += row["estimate"] * (row["area_type"] == "plot")
    counts = geography.sparse.held.counts
    assert Counter(dict(enumerate(told.values()))) == _sums(counts.key, counts.people)
    fewer = entry.replace('table = "faith"', 'table = "kind_by_grown"')
    (folder / "spec.toml").write_text(document.replace(entry, fewer))
    assert "table 'kind_by_grown' has no plot" in str(_refused(folder / "spec.toml")).replace('"', "'")
    rows = EARLIER.replace("microdata", "faith").replace('["kind", "faith"]', '["faith"]')
    (folder / "spec.toml").write_text(
        sparse(SPEC, drop=("bound", "invariant")) + rows + 'rows = { faith = ["a", "b"] }\n'
    )
    assert 'does not count every combination of "faith"' in str(_refused(folder / "spec.toml"))


def _sums(key: np.ndarray, people: np.ndarray) -> Counter[int]:
    found: Counter[int] = Counter()
    for one, many in zip(key.tolist(), people.tolist(), strict=True):
        found[one] += many
    return found


def _refused(spec: Path) -> SpecError:
    with pytest.raises(SpecError) as caught:
        read_spec(spec)
    return caught.value


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("\n[method]", f"{INVARIANT}\n[method]"), "keeps no count exact"),
        (('name = "total"\n', 'name = "total"\ntarget = { margin = 9 }\n'), "beforehand: remove the target"),
        (("\n[method]", f"{FIGURE}\n[method]"), "whose errors have no known law"),
        (('estimate = "sparse"', 'estimate = "topdown"'), "the other methods estimate all queries together"),
        (('definition = "zcdp"', 'definition = "pure"'), 'write bypass = "paper", or "off"'),
        (("in_pass = 2", "in_pass = 0"), "in_pass"),
        (("attributes = []\nshares", "attributes = []\nin_pass = 3\nshares"), "ask them in the last one"),
        (
            ("[[structural_zero]]", f"{BOUND}\n[[structural_zero]]"),
            "no table is held from an earlier release",
        ),
        (("attributes = []\nshares", 'attributes = ["age"]\nshares'), "asks no query that tells apart all"),
    ],
)
def test_what_sparse_counts_cannot_have_is_refused(barony: Path, change: tuple[str, str], told: str) -> None:
    text = barony.read_text()
    assert change[0] in text
    barony.write_text(text.replace(*change, 1))
    assert told in str(_refused(barony)).replace("'", '"')


def test_a_level_that_begins_nothing_and_noise_beyond_counting_are_refused(barony: Path) -> None:
    text = barony.read_text()
    unmeasured = text.replace('duchy = "1/4", ', "").replace('duchy = "1/2", ', "")
    barony.write_text(unmeasured.replace('duchy = "1/5", shire = "1/5"', 'duchy = "0", shire = "2/5"'))
    assert "duchy is not measured, and a division from the top down begins there" in str(_refused(barony))
    barony.write_text(text.replace('budget = "2"', 'budget = "1/10000000000000000"'))
    with pytest.raises(Unsupported, match="which cannot be rounded, so nothing was charged"):
        tb.run(barony, barony.parent / "release")
    assert not tb.Ledger.open(barony.parent / "ledger.db").charges()


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        (EARLIER.replace('"plot"', '"shire"'), "holds counts of every plot"),
        (EARLIER + EARLIER, "holds the counts of one table"),
        (EARLIER.replace('"faith"]', '"faith", "colour"]'), "colour"),
        (EARLIER.replace('["kind", "faith"]', '["kind"]') + 'rows = { faith = ["e"] }\n', "has no"),
        (EARLIER.replace('"before"', '"none"'), "has no microdata"),
    ],
)
def test_mistakes_in_what_is_held_are_told(held: Path, tmp_path: Path, entry: str, told: str) -> None:
    folder = tmp_path / "here"
    shutil.copytree(held, folder)
    (folder / "gls.toml").write_text(
        SPEC.replace("[release]\nmicrodata = true", '[method]\nestimate = "gls"')
    )
    if '"none"' in entry:
        ledger = tb.Ledger.create(folder / "other.db", 4, "zcdp", neighbours="replace")
        assert not ledger.charges()
        text = (folder / "gls.toml").read_text().replace('"ledger.db"', '"other.db"')
        (folder / "gls.toml").write_text(text)
        tb.run(folder / "gls.toml", folder / "none")
    (folder / "spec.toml").write_text(sparse(SPEC) + entry)
    assert told in str(_refused(folder / "spec.toml"))


def test_a_query_is_refused_and_every_page_says_that_there_are_no_intervals(
    held: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    release = tb.Release.read(held / "after")
    with pytest.raises(Unsupported, match="no known error, so that no answer could have an interval"):
        release.query("SELECT COUNT(*) FROM people")
    page = (held / "after/report.html").read_text()
    assert "No errors are known" in page
    assert "% intervals" not in page
    assert "Reliability" not in page
    assert "whole, 0 or more, without a known error" in (held / "after/datapackage.json").read_text()
    planned = tb.plan(held / "spec.toml")
    assert planned.table_errors == ()
    assert planned.errors.num_rows == 0
    app(["plan", str(held / "spec.toml"), "--html", str(held / "plan.html")], standalone_mode=False)
    assert "Errors of sparse counts are not known" in capsys.readouterr().out
    assert "will be published without intervals" in (held / "plan.html").read_text()
    needs, files = planned.needs, [*(held / "after/measurements").iterdir(), held / "after/counts.parquet"]
    assert sum(path.stat().st_size for path in files) <= needs.measurements
