"""The report's words on a series, against the exact sums of what was charged."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import pytest
from tests.report.page import Page
from tests.run.series import run, write_series

import tabulae as tb
from tabulae._run import write_report
from tabulae.privacy import ZCDP, rounded_up


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A series of three releases, and one beside it that follows none."""
    folder = write_series(tmp_path_factory.mktemp("series") / "town")
    run(folder, "alone", "1/4")
    return folder


def _page(folder: Path) -> str:
    return (folder / "report.html").read_text()


def _words(folder: Path, section: str) -> str:
    part = re.search(rf'<section id="{section}".*?</section>', _page(folder), re.DOTALL)
    assert part is not None
    return " ".join(re.sub("<[^>]+>", " ", part[0]).split())


def _epsilon(rho: Fraction) -> str:
    return f"{rounded_up(ZCDP(rho).epsilon('1e-10')):.4g}"


def test_the_series_is_told_with_its_sums(made: Path) -> None:
    words = _words(made / "2026b", "series")
    assert "This release corrects an earlier one, Town 2026 , and takes its place." in words
    assert "Why it was corrected: a &lt;file&gt; was read twice" in words
    assert "The series together 1 " in words
    assert (
        f"together the releases keep the promise with ρ = 1, which implies ε = {_epsilon(Fraction(1))}"
        in words
    )
    assert "Nothing else was charged to their ledger by then." in words
    assert "Earlier figures stay public." in words
    ids = [link.release_id[:12] for link in tb.Release.read(made / "2026b").series]
    assert [place for _, place in sorted((words.index(each), each) for each in ids)] == ids
    words = _words(made / "2026", "series")
    assert "This release follows an earlier one, Town 2025 ." in words
    assert "The series together 5/6 " in words
    assert "Figures that were corrected" not in words


def test_the_budget_says_what_was_spent_in_all(made: Path) -> None:
    words = _words(made / "alone", "budget")
    spent = Fraction(5, 4)
    assert "the ledger had spent ρ = 5/4 in all, of 3 that it may ever spend: 4 charges." in words
    assert f"implies ε = {_epsilon(spent)} at δ = 10⁻¹⁰" in words
    assert "nothing was charged to it before" in _words(made / "2025", "budget")
    for name in ("2025", "alone"):
        assert 'id="series"' not in _page(made / name)
        assert "#series" not in _page(made / name)


def test_what_else_the_ledger_paid_for_is_told(made: Path) -> None:
    run(made, "2027", "1/4", follows="2026b", kind="next")
    words = _words(made / "2027", "series")
    assert "The series together 5/4 All that the ledger had spent by then, of 3 3/2 " in words
    assert f"comes on top: ρ = 3/2 in all, ε = {_epsilon(Fraction(3, 2))}." in words
    assert "Figures that were corrected" in words


def test_the_page_is_whole_escaped_and_made_again_alike(made: Path) -> None:
    before = _page(made / "2026b")
    page = Page(before)
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))
    assert "#series" in page.links
    assert "<file>" not in before
    write_report(tb.Release.read(made / "2026b"))
    assert _page(made / "2026b") == before
