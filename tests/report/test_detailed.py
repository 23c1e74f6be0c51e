"""The report of a release of groups: one page from the folder alone, the same each time, with one script of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.passages import changed
from tests.report.page import Page, check_script

import tabulae as tb
from tabulae._run import write_report
from tabulae.privacy import decimal, rounded_up
from tabulae.report import report_of
from tabulae.report.groups import groups_view

HOSTILE = '<script>alert("x")</script>'


@pytest.fixture
def release(guild: Path) -> tb.Release:
    changed(guild, ('budget = "3"', 'budget = "3"\ndelta = "1e-10"'))
    return tb.run(guild, guild.parent / "release")


def test_the_page_is_whole_and_the_same_each_time(release: tb.Release) -> None:
    stored = (release.path / "report.html").read_text()
    sums = (release.path / "SHA256SUMS").read_bytes()
    assert report_of(tb.Release.read(release.path)) == stored
    assert write_report(release).read_text() == stored
    assert (release.path / "SHA256SUMS").read_bytes() == sums
    page = Page(stored)
    assert page.open == []
    check_script(stored)
    assert len(set(page.ids)) == len(page.ids)
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)
    assert not [link for link in page.links if not link.startswith("#")]
    assert "http://" not in stored.replace("http://www.w3.org", "")


def test_the_page_says_what_was_promised_and_what_it_cost(release: tb.Release) -> None:
    text = re.sub(r"\s+", " ", (release.path / "report.html").read_text())
    view = groups_view(release)
    assert view.epsilon is not None
    assert f"ε = {rounded_up(view.epsilon.epsilon):.4g}" in text
    assert "zero-concentrated differential privacy with ρ = 5/2" in text
    assert [level.places for level in view.levels] == [2, 8, 16]
    for level, at in zip(view.levels, release.product.adaptive.levels, strict=True):
        assert f"±{at.second.margin('0.95')}" in text
        assert level.stability == at.proven.value
    assert "Tailors" in text
    for name, rows in release.about["rows"].items():
        if rows:
            assert f"tables/{name}.parquet" in text


def test_words_of_the_release_are_text(guild: Path) -> None:
    groups = guild.parent / "groups.csv"
    quoted = HOSTILE.replace('"', '""')
    changed(groups, (",Food,", f',"{quoted}",'))
    changed(guild, ('title = "Guilds"', f"title = '{HOSTILE}'"))
    release = tb.run(guild, guild.parent / "release")
    text = (release.path / "report.html").read_text()
    check_script(text)
    assert text.count("&lt;script&gt;") >= 3
    assert release.verify() == []


@pytest.mark.long
def test_pure_promises_too(guild: Path) -> None:
    text = (
        guild.read_text().replace('"zcdp"', '"pure"\nneighbours = "replace"').replace("ledger.db", "pure.db")
    )
    guild.write_text(text)
    tb.Ledger.create(guild.parent / "pure.db", 5, "pure", neighbours="replace")
    release = tb.run(guild, guild.parent / "release")
    assert release.verify() == []
    page = (release.path / "report.html").read_text()
    assert "ε-differential privacy with ε = 5/2" in page
    level = release.product.adaptive.levels[0]
    assert f"±{level.second.margin('0.95')}" in page


@pytest.mark.parametrize(
    ("number", "words"), [("1/8", "0.125"), ("2/3", "2/3"), ("100", "100"), ("0.05", "0.05")]
)
def test_budgets_are_printed_exactly(number: str, words: str) -> None:
    from fractions import Fraction

    assert decimal(Fraction(number)) == words
