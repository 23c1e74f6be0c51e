"""Releases designed in the studio from nothing, by its controls alone, are the specs that were written by hand."""

from __future__ import annotations

import json
import shutil
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect
from tests.browser.conftest import shown

from tabulae.spec import Spec
from tabulae.spec.problems import written
from tabulae.studio.document import toml

EXAMPLES = Path(__file__).parents[2] / "examples"
HOUSEHOLDS = """title = "Households"

[source]
path = "persons.parquet"
unit = "household"
unit_id = "HH"
rows_per_unit = 10

[attributes]
age = { range = [0, 114] }
relation = { categories = ["head", "spouse", "child", "other"] }
tenure = { of = "unit", column = "TEN", categories = ["own", "rent"] }
child = { of = "unit", any = "age < 18", labels = ["without children", "with children"] }
elderly = { of = "unit", count = "age >= 65", most = 3 }

[recodes]
grown = { of = "age", edges = [18, 65] }

[privacy]
definition = "zcdp"
budget = "1/2"
delta = "1e-10"
ledger = "ledger.db"

[[table]]
name = "households"
counts = "units"
attributes = ["tenure", "child"]

[[table]]
name = "persons"
attributes = ["tenure", "grown"]
target = { margin = 25 }
"""
_NAMED = {("attributes",), ("recodes",), ("values",), ("geography", "columns")}
_DOMAINS = ("categories", "range", "codes", "bins", "any", "count", "first")
_PLANNED = 120_000


@dataclass
class Designer:
    """Somebody who has a document in mind, and the form before them."""

    page: Page

    @property
    def form(self) -> Locator:
        return self.page.locator("#form")

    def settle(self) -> None:
        expect(self.form).to_have_attribute("aria-busy", "false")

    def design(self, document: dict[str, Any]) -> None:
        for key, value in document.items():
            if key == "geography":
                queries, columns = value.get("query", []), value.get("columns", {})
                self.section((key,), {k: v for k, v in value.items() if k not in ("query", "columns")})
                self.entries(("geography", "columns"), columns)
                self.listed(("geography", "query"), queries)
            elif (key,) in _NAMED:
                self.entries((key,), value)
            elif isinstance(value, list):
                self.listed((key,), value)
            elif isinstance(value, dict):
                self.section((key,), value)
            else:
                self.set((key,), value)

    def section(self, path: tuple[Any, ...], held: dict[str, Any]) -> None:
        self.open(path)
        for key, value in held.items():
            self.set((*path, key), value)
        self.close(path)

    def entries(self, path: tuple[Any, ...], held: dict[str, Any]) -> None:
        for name, entry in held.items():
            adder = self.form.locator(f"form[data-op=add][data-path='{json.dumps(path)}']")
            adder.get_by_label("Name").fill(name)
            if path == ("recodes",):
                adder.locator("select").select_option(entry["of"])
            adder.locator("button").click()
            self.settle()
            self.open((*path, name))
            if path == ("attributes",):
                domain = next(key for key in entry if key in _DOMAINS)
                self.form.locator(f"[data-op=domain][data-at='{written((*path, name))}']").select_option(
                    domain
                )
                self.settle()
            for key, value in entry.items():
                if not (path == ("recodes",) and key == "of"):
                    self.set((*path, name, key), value)
            self.close((*path, name))

    def listed(self, path: tuple[Any, ...], held: list[dict[str, Any]]) -> None:
        for at, entry in enumerate(held):
            adder = self.form.locator(f"form[data-op=add][data-path='{json.dumps(path)}']")
            if "name" in entry:
                adder.get_by_label("Name").fill(entry["name"])
            adder.locator("button").click()
            self.settle()
            self.open((*path, at))
            for key, value in entry.items():
                if path == ("table",) and key in ("attributes", "queries"):
                    asked = dict.fromkeys(value, "identity") if key == "attributes" else value
                    for name, query in asked.items():
                        self.set((*path, at, "queries", name), query)
                elif key != "name":
                    self.set((*path, at, key), value)
            self.close((*path, at))

    def details(self, name: str) -> Locator:
        return self.form.locator(f"details[data-open='{name}']")

    def open(self, path: tuple[Any, ...], more: str = "") -> None:
        details = self.details(written(path) + more)
        if details.get_attribute("open") is None:
            details.locator("summary").first.click()
            self.settle()

    def close(self, path: tuple[Any, ...]) -> None:
        self.details(written(path)).locator("summary").first.click()
        self.settle()

    def set(self, path: tuple[Any, ...], value: Any) -> None:
        place = self.form.locator(f"[data-at='{written(path)}']")
        if not place.count() or not place.first.is_visible():
            above = (
                path[:1] if path[0] in ("source", "geography", "method", "release", "privacy") else path[:2]
            )
            if path[:2] in (("geography", "query"), ("geography", "columns")):
                above = path[:3]
            self.open(above, "#more")
        name = place.first.evaluate("each => each.tagName")
        kind = place.first.get_attribute("data-kind")
        if name == "FIELDSET" and isinstance(value, dict):
            for key, each in value.items():
                self.set((*path, key), each)
        elif name == "FIELDSET":
            for each in value:
                place.locator(f"[data-name='{each}']").click()
                self.settle()
        elif name == "SELECT":
            place.select_option(value)
        elif kind == "flag":
            place.set_checked(value)
        else:
            texts = {"names": ", ", "numbers": ", ", "lines": "\n"}
            words = (
                texts[kind].join(map(str, value))
                if kind in texts
                else toml(value)
                if kind == "toml"
                else str(value)
            )
            place.fill(words)
            place.press("Tab")
        self.settle()


def designed(page: Page, folder: Path, by_hand: str) -> None:
    """Design the document of a text, and compare what it promises and publishes."""
    with shown(page, folder / "designed.toml"):
        expect(page.locator("#form h2").first).to_be_visible(timeout=_PLANNED)
        Designer(page).design(tomllib.loads(by_hand))
        page.get_by_role("button", name="Save", exact=True).click()
        expect(page.locator("#saved")).to_have_text("Saved.")
    made = (folder / "designed.toml").read_text()
    ours, theirs = Spec.from_text(made, folder), Spec.from_text(by_hand, folder)
    assert ours.published_text() == theirs.published_text()
    assert ours.digest() == theirs.digest()


@pytest.mark.long
def test_a_household_release_is_designed_from_nothing(page: Page, tmp_path: Path) -> None:
    designed(page, tmp_path, HOUSEHOLDS)


@pytest.mark.long
def test_the_adult_release_is_designed_from_nothing(page: Page, tmp_path: Path) -> None:
    designed(page, tmp_path, (EXAMPLES / "adult.toml").read_text())


@pytest.mark.long
def test_the_redistricting_release_is_designed_from_nothing(page: Page, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES / "redistricting", tmp_path / "redistricting")
    designed(page, tmp_path, (EXAMPLES / "redistricting.toml").read_text())
