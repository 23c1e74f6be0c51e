"""The reader shows the published numbers, each with its interval, and nothing else."""

from __future__ import annotations

import pytest
from tests.village import SPEC

import tabulae as tb
from tabulae.report.numbers import fixed
from tabulae.studio.reader import read
from tabulae.studio.server import _templates


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> tb.Release:
    folder = tmp_path_factory.mktemp("read")
    people = "".join(f"{'FM'[i % 2]},{i % 20},{'abc'[i % 3]}\n" for i in range(3000))
    (folder / "people.csv").write_text(f"SEX,AGE,RACE\n{people}")
    text = SPEC.replace('attributes = ["race", "young"]', 'attributes = ["race", "young"]\ntotals = true')
    (folder / "spec.toml").write_text(text + '\n[method]\nselect = "residual"\n')
    tb.Ledger.create(folder / "ledger.db", 1, "zcdp")
    return tb.run(folder / "spec.toml", folder / "release")


def test_rows_are_those_of_the_table(release: tb.Release) -> None:
    shown = read(release, {"table": ["race_by_young"]}).shown
    assert shown is not None
    published = release.tables["race_by_young"].to_pylist()
    (panel,) = shown.panels
    assert len(panel.rows) == shown.rows == len(published) == 16
    for row, whole in zip(panel.rows, published, strict=True):
        assert row.labels == tuple(str(whole[n]).replace("_T", "all") for n in ("young", "race"))
        assert row.interval == "{} to {}".format(*(fixed(whole[end]) for end in ("ci_low", "ci_high")))
        assert row.picture.startswith("<svg")


def test_rows_are_found_by_words_and_split_by_a_column(release: tb.Release) -> None:
    found = read(release, {"table": ["sex_by_age"], "find": ["f 1"]}).shown
    assert found is not None
    assert found.rows == 11
    split = read(release, {"table": ["sex_by_age"], "split": ["sex"]}).shown
    assert split is not None
    assert [(panel.name, len(panel.rows)) for panel in split.panels] == [("F", 20), ("M", 20)]
    assert split.columns == ("age",)
    other = read(release, {"table": ["none"], "split": ["none"]}).shown
    assert other is not None
    assert other.name == "sex_by_age"


def test_sql_is_answered_or_refused_in_words(release: tb.Release) -> None:
    sql = "SELECT sex, COUNT(*) FROM people WHERE age < 5 GROUP BY sex"
    answer = read(release, {"sql": [sql]}).shown
    assert answer is not None
    assert [row.labels for row in answer.panels[0].rows] == [("F",), ("M",)]
    told = read(release, {"sql": ["SELECT <b>"]})
    assert told.trouble
    page = _templates().get_template("read.html").render(reading=told, release="<i>")
    assert "<b>" not in page
    assert "<i>" not in page
