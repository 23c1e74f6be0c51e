"""The report page in a browser: sorted, filtered, printed, without scripts, and read by an accessibility checker."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page
from tests import guild as guilds
from tests import village as villages
from tests.browser.conftest import WIDTHS, violations

import tabulae as tb
from tabulae.report.areas import geography_report

KINDS = ("village", "guild", "duchy")


@pytest.fixture(scope="module")
def reports(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """A report of each kind, made where it is looked at: of tables, of groups, of areas."""

    @cache
    def made(name: str) -> Path:
        if name == "duchy":
            return request.getfixturevalue("duchy_release") / "report.html"
        write = {"village": villages.write_village, "guild": guilds.write_guild}[name]
        spec = write(tmp_path_factory.mktemp(name))
        return tb.run(spec, spec.parent / "release").path / "report.html"

    return made


@pytest.fixture(params=["duchy", *(pytest.param(kind, marks=pytest.mark.long) for kind in KINDS[:2])])
def report(request: pytest.FixtureRequest, reports: Callable[[str], Path]) -> Path:
    return reports(request.param)


def number(text: str) -> float:
    """What a printed number is; infinite where there is none."""
    return float("inf") if text == "–" else float(text.replace("−", "-").replace(",", ""))


def column(table: Locator, at: int) -> list[str]:
    """The visible cells of a column, top to bottom."""
    return table.evaluate(
        "(t, at) => [...t.tBodies[0].rows].filter(r => !r.hidden).map(r => r.cells[at].textContent.trim())",
        at,
    )


def heading(table: Locator, name: str) -> tuple[Locator, int]:
    """The button of a column, and where the column is."""
    names = table.locator("thead tr").last.locator("th, td").all_inner_texts()
    at = next(i for i, text in enumerate(names) if text.strip().startswith(name))
    return table.locator("thead tr").last.locator("th, td").nth(at).get_by_role("button"), at


def test_a_click_sorts_a_second_turns_and_a_third_restores(
    page: Page, reports: Callable[[str], Path]
) -> None:
    page.goto(reports("village").as_uri())
    table = page.locator("#table-3 table")  # ranges of ages: over a hundred estimates, some below zero
    button, at = heading(table, "Estimate")
    before = column(table, at)
    labels = column(table, 0)
    ascending = sorted(range(len(before)), key=lambda i: number(before[i]))
    button.click()
    assert column(table, at) == [before[i] for i in ascending]
    assert column(table, 0) == [labels[i] for i in ascending]  # stable: equal numbers keep their order
    assert table.locator("[aria-sort]").get_attribute("aria-sort") == "ascending"
    button.focus()
    page.keyboard.press("Enter")
    descending = sorted(range(len(before)), key=lambda i: -number(before[i]))
    assert column(table, at) == [before[i] for i in descending]
    assert table.locator("[aria-sort]").get_attribute("aria-sort") == "descending"
    page.keyboard.press("Space")
    assert column(table, at) == before
    assert table.locator("[aria-sort]").count() == 0


def test_a_filter_of_some_rows_says_so(
    page: Page, duchy_release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tabulae.report.view.ROWS_SHOWN", 30)
    monkeypatch.setattr("tabulae.report.view.MOST_SHOWN", 30)
    path = tmp_path / "report.html"
    path.write_text(geography_report(tb.Release.read(duchy_release)), encoding="utf-8")
    page.goto(path.as_uri())
    article = page.locator("article", has=page.locator("table[data-rows]")).first
    table = article.locator("table")
    every = table.get_attribute("data-rows")
    assert article.locator("label").inner_text().startswith(f"Filter these 30 of {every} rows")
    article.locator("input").fill("zzz")
    told, file = article.get_by_role("status").inner_text(), table.get_attribute("data-file")
    assert told == f"0 of the 30 rows on this page have “zzz”; all {every} rows are in {file}"


def test_labels_sort_by_their_numbers_and_reliability_by_class(
    page: Page, reports: Callable[[str], Path]
) -> None:
    page.goto(reports("duchy").as_uri())
    table = page.locator("#table-3 table")
    button, at = heading(table, "Reliability")
    before = column(table, at)
    order = ["exact", "●● reliable", "●○ with caution", "○○ unreliable"]
    assert set(before) == set(order)
    button.click()
    assert column(table, at) == sorted(before, key=order.index)
    page.goto(reports("village").as_uri())
    table = page.locator("#table-3 table")
    button, at = heading(table, "age")
    button.click()
    starts = [int(text.split("-")[0]) for text in column(table, at)]
    assert starts == sorted(starts)


def test_one_column_sorts_at_a_time(page: Page, reports: Callable[[str], Path]) -> None:
    page.goto(reports("village").as_uri())
    table = page.locator("#table-1 table")
    heading(table, "sex")[0].click()
    heading(table, "±")[0].click()
    sorted_by = table.locator("[aria-sort]")
    assert sorted_by.count() == 1
    assert sorted_by.inner_text().startswith("±")


def test_a_filter_keeps_rows_and_says_how_many(page: Page, reports: Callable[[str], Path]) -> None:
    page.goto(reports("village").as_uri())
    article = page.locator("#table-1")
    table = article.locator("table")
    labels = list(zip(column(table, 0), column(table, 1), strict=True))
    field = article.get_by_label("Filter rows of sex_by_age")
    field.fill("  F  reliable ")
    trust = heading(table, "Reliability")[1]
    shown = list(zip(column(table, 0), column(table, 1), column(table, trust), strict=True))
    assert 0 < len(shown) < len(labels)
    assert all("f" in " ".join(row).lower() and "reliable" in row[2] for row in shown)
    told = article.get_by_role("status")
    assert told.inner_text().startswith(f"{len(shown)} of 40 rows have “F")
    assert told.get_attribute("aria-live") == "polite"
    heading(table, "Estimate")[0].click()  # sorting leaves out what is filtered
    assert len(column(table, 0)) == len(shown)
    field.fill("no such row")
    assert column(table, 0) == []
    assert told.inner_text().startswith("0 of 40 rows")
    field.fill("")
    assert sorted(zip(column(table, 0), column(table, 1), strict=True)) == sorted(labels)
    assert told.inner_text() == ""


def test_every_link_within_leads_somewhere(page: Page, report: Path) -> None:
    page.goto(report.as_uri())
    links = page.locator("a[href]").evaluate_all("all => all.map(a => a.getAttribute('href'))")
    assert links
    for link in dict.fromkeys(links):
        assert link.startswith("#")
        page.evaluate("link => { location.hash = link; }", link)
        assert page.locator(":target").evaluate_all("all => all.map(e => '#' + e.id)") == [link]
    headings = page.locator("main section").evaluate_all("all => all.map(s => s.id)")
    assert {f"#{name}" for name in headings} <= {*links, "#sizes"}


FEWER = """() => { for (const body of document.querySelectorAll('tbody'))
                   for (const row of [...body.rows].slice(6)) row.remove(); }"""
BARE = """() => { for (const b of document.querySelectorAll('button.sort')) b.replaceWith(...b.childNodes);
                  for (const tools of document.querySelectorAll('.tools')) tools.remove(); }"""


@pytest.mark.parametrize(
    ("kind", "width"),
    [
        ("duchy", 390),
        *(
            pytest.param(*each, marks=pytest.mark.long)
            for each in itertools.product(KINDS, WIDTHS)
            if each != ("duchy", 390)
        ),
    ],
)
def test_nothing_is_hard_to_reach(page: Page, reports: Callable[[str], Path], kind: str, width: int) -> None:
    """No violation of axe's rules; of each table's rows, which are alike, six."""
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(reports(kind).as_uri())
    page.evaluate(FEWER)
    assert violations(page) == []


def test_no_page_scrolls_sideways(page: Page, report: Path) -> None:
    page.goto(report.as_uri())
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width, width


def test_nothing_is_hard_to_reach_without_scripts(page: Page, reports: Callable[[str], Path]) -> None:
    """The same of the page without what its script adds."""
    page.goto(reports("village").as_uri())
    page.evaluate(FEWER)
    page.evaluate(BARE)
    assert violations(page) == []


def test_without_scripts_the_page_is_whole(browser: Browser, report: Path) -> None:
    context = browser.new_context(java_script_enabled=False, viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.goto(report.as_uri())
    assert page.get_by_role("button").count() == 0
    assert page.get_by_role("searchbox").count() == 0
    rows = len(re.findall(r'data-rank="', report.read_text()))
    assert page.locator("[data-rank]").count() == rows
    assert page.locator("#figures h2").inner_text() == "Published counts"
    context.close()


def test_on_paper_nothing_is_cut_off(page: Page, report: Path) -> None:
    """Long tables are not in a box that scrolls, nothing is wider than the sheet, and what was folded is open."""
    page.set_viewport_size({"width": 673, "height": 950})  # A4 less its margins
    page.goto(report.as_uri())
    page.evaluate("""document.querySelector('main').insertAdjacentHTML('beforeend',
                     '<details id="fold"><summary>more</summary><p>folded</p></details>')""")
    page.emulate_media(media="print")
    wide = page.evaluate(
        "[...document.querySelectorAll('main *')].filter(e => !e.closest('svg, .hear')"
        " && e.getBoundingClientRect().right > 674).map(e => e.tagName + ' ' + e.textContent.slice(0, 40))"
    )
    assert wide == []
    boxes = page.locator(".scroll").evaluate_all("all => all.map(e => [e.scrollHeight, e.clientHeight])")
    assert all(whole <= shown + 1 for whole, shown in boxes)
    assert page.locator("button.sort").first.evaluate("b => getComputedStyle(b, '::after').content") == "none"
    assert page.locator("#fold p").is_visible()
    assert page.pdf(format="A4").startswith(b"%PDF")
    assert not page.locator("#fold").evaluate("d => d.open")


def test_a_long_table_scrolls_within_the_page_with_its_headings(
    page: Page, reports: Callable[[str], Path]
) -> None:
    page.goto(reports("village").as_uri())
    region = page.locator("#table-3 .scroll")
    head = page.locator("#table-3 thead th").first
    assert region.evaluate("e => e.scrollHeight > e.clientHeight")
    region.evaluate("e => e.scrollTo({ top: 300, behavior: 'instant' })")
    top = region.bounding_box()
    assert top is not None
    box = head.bounding_box()
    assert box is not None
    assert abs(box["y"] - top["y"]) < 40
