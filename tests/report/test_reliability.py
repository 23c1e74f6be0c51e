"""Classes of reliability on the page: counted directly, from memory and from files, and stated for every row."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import tabulae as tb
from tabulae.report import TableView, render_report
from tabulae.report.areas import geography_view
from tabulae.report.groups import groups_view
from tabulae.report.rows import named_classes, printed_rows, reliability_of, stored_reliability
from tabulae.spec import ReliabilitySection

ABS = ReliabilitySection()


@pytest.fixture
def table(made_up) -> TableView:
    """Twelve rows: nine estimated, one of them at zero and one below, two exact, one not estimable."""
    estimate = np.array([1000, 100, 99, 30, 20, 19.9, -5, 500, 7, 8, np.nan, 0.0])
    error = np.array([10, 10, 24.8, 7.5, 10, 10, 1, 20, 0, 0, np.nan, 10.0])
    return dataclasses.replace(
        made_up().tables[1],
        estimate=estimate,
        std_error=error,
        ci_low=estimate - error,
        ci_high=estimate + error,
        obs_status=["A"] * 8 + ["E", "E", "Q", "A"],
    )


def test_counts_of_each_class(table: TableView) -> None:
    # std_error / estimate: .01 .1 .2505 | .25 | .5 .503 | below zero | .04 | exact exact | none | zero.
    found = reliability_of(table, ABS)
    assert found.counts == (3, 2, 4)
    assert (found.exact, found.missing) == (2, 1)
    assert found.total == 9
    assert sum(found.shares) == pytest.approx(1)


def test_every_row_has_its_class_and_exact_ones_have_none(table: TableView) -> None:
    rows = printed_rows(table, 12, ABS)
    assert [row.trust for row in rows] == [
        "reliable", "reliable", "with caution", "with caution", "unreliable", "unreliable", "unreliable", "reliable",
        "exact", "exact", "not estimable", "unreliable",
    ]  # fmt: skip
    assert [row.sign for row in rows if row.rank in (0, 4)] == ["", "", ""]
    ranks = {row.trust: row.rank for row in rows}
    assert sorted(ranks, key=ranks.__getitem__) == [
        "exact",
        "reliable",
        "with caution",
        "unreliable",
        "not estimable",
    ]


def test_the_page_says_what_the_classes_are(made_up, table: TableView) -> None:
    text = " ".join(render_report(made_up(tables=(table,))).split())
    assert "Australian Bureau of Statistics" in text
    assert (
        "A count of <strong>zero or less</strong> has no meaningful share, and is in the last class" in text
    )
    assert "Counts that are exact have no error, and are in none" in text
    own = ReliabilitySection(thresholds=[0.1, 0.3, 1.0], labels=["a1", "b2", "c3", "d<4"])
    text = " ".join(render_report(made_up(tables=(table,), reliability=own)).split())
    assert "Australian Bureau" not in text
    assert "These limits were set for this release" in text
    assert "d&lt;4" in text
    assert "<dd>10 to 30 % of the count</dd>" in text
    printed = Counter(re.findall(r"</i> (a1|b2|c3|d&lt;4)</td>", text))
    assert printed == {"a1": 2, "b2": 3, "c3": 2, "d&lt;4": 2}


def test_signs_differ_without_colour() -> None:
    for size in range(1, 6):
        section = ReliabilitySection(thresholds=[0.1 * (i + 1) for i in range(size)])
        named = named_classes(section)
        assert len({each.sign for each in named}) == len({each.tone for each in named}) == size + 1
        assert [each.sign.count("●") for each in named] == list(range(size, -1, -1))


def test_files_are_classed_in_any_step(duchy_release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = duchy_release / "tables" / "faith.parquet"
    rows = tb.Release.read(duchy_release).tables["faith"].to_pylist()
    whole = stored_reliability(path, "area_type", len(rows), ABS)
    assert list(whole.kinds) == ["shire", "plot", "forest"]
    for kind, found in whole.kinds.items():
        here = [row for row in rows if row["area_type"] == kind]
        noisy = [row for row in here if row["obs_status"] == "A"]
        counts = [0, 0, 0]
        for row in noisy:
            about, error = row["gls_estimate"], row["std_error"]
            counts[2 if about <= 0 else (error >= about / 4) + (error >= about / 2)] += 1
        assert found.counts == tuple(counts)
        assert (found.exact, found.missing) == (len(here) - len(noisy), 0)
    noisy = [row for row in rows if row["obs_status"] == "A"]
    about = [row["gls_estimate"] for row in noisy]
    reach = [max(row["ci_high"] - a, a - row["ci_low"]) for row, a in zip(noisy, about, strict=True)]
    drawn = list(zip((row["estimate"] for row in noisy), reach, strict=True))
    assert np.allclose(np.stack([whole.estimate, whole.margin], axis=1), drawn)
    monkeypatch.setattr("tabulae.report.rows._ROWS", 7)
    steps = stored_reliability(path, "area_type", len(rows), ABS)
    assert steps.kinds == whole.kinds
    assert np.array_equal(steps.margin, whole.margin)
    monkeypatch.setattr("tabulae.report.rows._POINTS", len(rows) // 3)
    fewer = stored_reliability(path, "area_type", len(rows), ABS)
    assert 0 < fewer.estimate.size <= len(rows) // 3


def test_areas_and_groups_have_classes_too(duchy_release: Path, guild: Path) -> None:
    guild.write_text(guild.read_text() + '\n[reliability]\nthresholds = [0.2]\nlabels = ["fine", "rough"]\n')
    groups = tb.run(guild, guild.parent / "release")
    for folder, view in (
        (duchy_release, geography_view(tb.Release.read(duchy_release))),
        (groups.path, groups_view(groups)),
    ):
        text = (folder / "report.html").read_text()
        assert "Counts by reliability" in text
        assert "Margin of" in text
        for table, stored in zip(view.samples, view.stored, strict=True):
            counted = sum(one.total + one.exact + one.missing for one in stored.kinds.values())
            assert counted == table.rows
    assert "</i> rough</td>" in text
    assert "Australian" not in text
