"""From a file of records to a published release in the studio, without a line of TOML typed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from tests.browser.conftest import shown, violations

import tabulae as tb
from tabulae.studio import Studio

_LONG = 120_000  # milliseconds, on a machine that is busy


@pytest.fixture
def fresh(page: Page, tmp_path: Path) -> Iterator[Studio]:
    """A studio of a file of records."""
    rows = "".join(f"{'FM'[i % 2]},{i % 20},TOWN{i % 3}\n" for i in range(600))
    (tmp_path / "people.csv").write_text(f"SEX,AGE,TOWN\n{rows}")
    with shown(page, tmp_path / "people.csv") as made:
        yield made


@pytest.mark.parametrize("width", [390, pytest.param(1280, marks=pytest.mark.long)])
def test_from_records_to_a_release_without_typing_toml(page: Page, fresh: Studio, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    folder = fresh.document.path.parent
    form, runs = page.locator("#form"), page.locator("#runs")

    def open_entry(name: str) -> None:
        form.locator("summary", has_text=name).first.click()

    open_entry("SEX")
    form.get_by_label("its values are").select_option("categories")
    values = form.get_by_label("categories")
    values.fill("F\nM")
    values.press("Tab")
    open_entry("SEX")
    open_entry("AGE")
    form.get_by_label("its values are").select_option("range")
    form.get_by_label("range", exact=True).fill("0, 19")
    form.get_by_label("range", exact=True).press("Tab")
    open_entry("AGE")
    open_entry("TOWN")
    form.get_by_role("button", name="Remove TOWN").click()
    expect(page.locator("#problems button")).to_have_count(0, timeout=_LONG)
    expect(form.locator("[data-margin=first_table]")).to_contain_text("±", timeout=_LONG)
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_role("button", name="Run and releases").click()
    runs.get_by_label("At most").fill("2")
    runs.get_by_role("button", name="Create the ledger").click()
    expect(runs.locator(".facts")).to_contain_text("Left")
    expect(runs.locator(".facts + .hint")).to_contain_text("would spend 1/2, and leave 3/2")
    assert violations(page) == []
    run = runs.get_by_role("button", name="Run, and spend 1/2")
    expect(run).to_be_enabled(timeout=_LONG)
    run.click()
    expect(runs.locator("#step")).to_have_text("Done.", timeout=_LONG)
    expect(runs.get_by_role("row", name="published")).to_contain_text("1/2")
    assert violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    release = tb.Release.read(folder / "release")
    assert release.verify() == []
    assert release.tables["first_table"].num_rows == 40
    with page.expect_popup() as opened:
        runs.get_by_role("link", name="Report of release").click()
    expect(opened.value.get_by_role("heading", level=1)).to_have_text("people")
    with page.expect_popup() as opened:
        runs.get_by_role("link", name="Read release").click()
    _read(opened.value, width)


def _read(reader: Page, width: int) -> None:
    """Rows are found, split into pictures, and asked for in SQL."""
    reader.set_viewport_size({"width": width, "height": 900})
    reader.get_by_label("Rows with the words").fill("F 17")
    reader.get_by_role("button", name="Show").click()
    expect(reader.locator("tbody tr")).to_have_count(1)
    reader.get_by_label("Rows with the words").fill("")
    reader.get_by_label("a picture for each").select_option("SEX")
    reader.get_by_role("button", name="Show").click()
    expect(reader.locator(".panels table")).to_have_count(2)
    assert violations(reader) == []
    reader.get_by_label("drawn as").select_option("tiles")
    reader.get_by_role("button", name="Show").click()
    expect(reader.locator("ol.tiles")).to_have_count(2)
    expect(reader.locator("ol.tiles li").first).to_contain_text("to")
    assert violations(reader) == []
    assert reader.evaluate("document.documentElement.scrollWidth") <= width
    reader.get_by_label("Ask in SQL").fill("SELECT SEX, COUNT(*) FROM people WHERE AGE < 5 GROUP BY SEX")
    reader.get_by_role("button", name="Ask").click()
    expect(reader.locator("tbody tr")).to_have_count(2)
    expect(reader.locator("tbody tr").first).to_contain_text("to")
    reader.get_by_label("Ask in SQL").fill("SELECT TOWN, COUNT(*) FROM people GROUP BY TOWN")
    reader.get_by_role("button", name="Ask").click()
    expect(reader.get_by_role("alert")).to_contain_text("TOWN")
