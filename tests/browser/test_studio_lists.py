"""Categories come from labels that a file declares, or from a code list: by clicks, and a plan follows."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pyarrow as pa
import pytest
from playwright.sync_api import Page, expect
from tests.browser.conftest import shown, violations

_PLANNED = 120_000  # milliseconds, on a machine that is busy


def test_labels_of_an_spss_file_and_a_code_list_are_categories(page: Page, tmp_path: Path) -> None:
    pyreadstat = pytest.importorskip("pyreadstat")
    frame = pa.table({"SEX": [1, 2, 2, 1], "TRADE": ["b", "c", "b", "b"]}).to_pandas()
    labels = {"SEX": {1: "women", 2: "men"}}
    pyreadstat.write_sav(frame, tmp_path / "people.sav", variable_value_labels=labels)
    (tmp_path / "trades.csv").write_text("code,label\nb,bakers\nc,cooks\nt,tailors\n")
    with shown(page, tmp_path / "people.sav") as studio:
        form = page.locator("#form")
        form.locator("summary", has_text="SEX").first.click()
        expect(form.locator("[data-at='attributes.SEX.codes']")).to_have_value("codes/SEX.csv")
        form.locator("[data-at='attributes.SEX.todo']").get_by_role("button", name="Done").click()
        form.locator("summary", has_text="TRADE").first.click()
        form.locator("[data-op=domain][data-at='attributes.TRADE']").select_option("codes")
        codes = form.locator("[data-at='attributes.TRADE.codes']")
        codes.fill("trades.csv")
        codes.press("Tab")
        expect(page.locator("#problems button")).to_have_count(0, timeout=_PLANNED)
        expect(form.locator("[data-margin=first_table]")).to_contain_text("±", timeout=_PLANNED)
        page.set_viewport_size({"width": 390, "height": 844})
        assert violations(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        attributes = tomllib.loads(studio.document.text)["attributes"]
    assert attributes["TRADE"]["codes"] == "trades.csv"
    assert attributes["SEX"]["codes"] == "codes/SEX.csv"
    assert not any("todo" in each for each in attributes.values() if isinstance(each, dict))
    assert (tmp_path / "codes/SEX.csv").read_text() == "code,label\n1,women\n2,men\n"
    assert not (tmp_path / "people.toml").exists()
