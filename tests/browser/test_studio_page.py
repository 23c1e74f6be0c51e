"""The studio in a browser: what is typed is planned, mistakes are pointed at, and Save writes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect
from tests.browser.conftest import WIDTHS, shown, violations
from tests.studio.conftest import SPEC, village

from tabulae.studio import Studio

_PLANNED = 60_000  # milliseconds, on a machine that is busy


@pytest.fixture
def studio(page: Page, tmp_path: Path) -> Iterator[Studio]:
    with shown(page, village(tmp_path)) as made:
        yield made


@pytest.fixture
def opened(page: Page, studio: Studio) -> Page:
    expect(page.locator("#form h2").first).to_be_visible(timeout=_PLANNED)
    return page


def test_a_spec_is_edited_planned_and_saved(opened: Page, studio: Studio) -> None:
    assert "token" not in opened.url
    text, plan = opened.get_by_label("The spec, in TOML"), opened.frame_locator("#plan")
    expect(text).to_have_value(SPEC)
    expect(plan.get_by_role("heading", level=1)).to_have_text("Village", timeout=_PLANNED)
    text.fill(SPEC.replace('["sex", "age"]', '["sex", "ages"]'))
    mistake = opened.locator("#problems button")
    expect(mistake).to_contain_text("ages", timeout=_PLANNED)
    mistake.click()
    chosen = text.evaluate("box => box.value.slice(box.selectionStart, box.selectionEnd)")
    assert chosen == 'attributes = ["sex", "ages"]'
    assert violations(opened) == []
    better = SPEC.replace("Village", "Town")
    text.fill(better)
    expect(plan.get_by_role("heading", level=1)).to_have_text("Town", timeout=_PLANNED)
    expect(mistake).to_have_count(0, timeout=_PLANNED)
    expect(opened.locator("#saved")).to_have_text("Not saved yet.")
    text.press("Control+s")
    expect(opened.locator("#saved")).to_have_text("Saved.")
    assert studio.document.path.read_text() == better


def test_a_file_changed_elsewhere_is_not_written_over_unasked(opened: Page, studio: Studio) -> None:
    studio.document.path.write_text("# elsewhere\n")
    opened.get_by_label("The spec, in TOML").fill(f"# mine\n{SPEC}")
    opened.get_by_role("button", name="Save", exact=True).click()
    over = opened.get_by_role("button", name="Write over it")
    expect(over).to_be_visible()
    assert studio.document.path.read_text() == "# elsewhere\n"
    over.click()
    expect(over).to_be_hidden()
    assert studio.document.path.read_text() == f"# mine\n{SPEC}"


@pytest.mark.parametrize("width", [min(WIDTHS), pytest.param(max(WIDTHS), marks=pytest.mark.long)])
def test_the_page_is_accessible_and_fits(opened: Page, width: int) -> None:
    opened.set_viewport_size({"width": width, "height": 900})
    assert violations(opened) == []
    assert opened.evaluate("document.documentElement.scrollWidth") <= width
    opened.keyboard.press("Tab")
    expect(opened.get_by_role("link", name="Skip to the form")).to_be_focused()


def test_the_form_and_the_text_are_one_document(opened: Page, studio: Studio) -> None:
    text, form = opened.get_by_label("The spec, in TOML"), opened.locator("#form")
    form.locator("summary", has_text="race_by_young").click()
    form.get_by_label("race", exact=True).focus()
    form.get_by_label("race", exact=True).select_option("")
    expect(text).to_have_value(SPEC.replace('["race", "young"]', '["young"]'))
    expect(form.get_by_label("race", exact=True)).to_be_focused()
    opened.keyboard.press("Control+z")
    expect(text).to_have_value(SPEC)
    expect(form.get_by_label("race", exact=True)).to_have_value("identity")
    opened.get_by_role("button", name="Redo").click()
    expect(form.get_by_label("race", exact=True)).to_have_value("")
    text.fill(SPEC.replace('name = "race_by_young"', 'name = "typed"'))
    expect(form.locator("summary", has_text="typed")).to_be_visible()
    margin = form.get_by_label("margin", exact=True)
    margin.fill("-3")
    margin.press("Tab")
    expect(form.locator(".mistake")).to_contain_text("greater than 0", timeout=_PLANNED)
    expect(margin).to_have_attribute("aria-invalid", "true")
    assert violations(opened) == []
    text.fill("title = ")
    expect(form).to_contain_text("no TOML")
    assert studio.document.path.read_text() == SPEC


@pytest.mark.long
def test_what_is_opened_while_the_form_is_drawn_stays_open(opened: Page) -> None:
    form, asked = opened.locator("#form"), list[Route]()
    opened.route("**/form?*", lambda route: asked.append(route))

    def click(entry: str) -> str:
        """Open an entry; say whether the form is being drawn from then on."""
        summary = form.locator(f"details[data-open={entry}] > summary")
        return summary.evaluate("each => { each.click(); return each.closest('#form').ariaBusy; }")

    def withheld(at: int) -> Route:
        """The form that the page waits for."""
        for _ in range(1000):
            if len(asked) > at:
                return asked[at]
            opened.wait_for_timeout(10)
        raise AssertionError("the form is not asked for")

    assert click("method") == "true"
    click("release")
    withheld(0).continue_()
    again = withheld(1)
    assert form.locator("details[data-open=release]").get_attribute("open") is not None
    again.continue_()
    withheld(2).continue_()
    expect(form.locator("[data-at='release.microdata']")).to_be_visible()
    expect(form.locator("[data-at='method.select']")).to_be_visible()


def test_a_click_that_leaves_a_changed_field_is_not_lost(opened: Page) -> None:
    """The form is drawn anew for the field, but not between press and release."""
    form = opened.locator("#form")
    form.get_by_label("budget", exact=True).fill("1/3")
    entry = form.locator("details[data-open=release]")
    entry.locator("summary").hover()
    with opened.expect_response("**/form?*"):
        opened.mouse.down()
    opened.wait_for_timeout(100)
    opened.mouse.up()
    expect(entry.locator("[data-at='release.microdata']")).to_be_visible()
    expect(opened.get_by_label("The spec, in TOML")).to_have_value(re.compile('budget = "1/3"'))


def test_edges_are_drawn(opened: Page) -> None:
    text, form = opened.get_by_label("The spec, in TOML"), opened.locator("#form")
    form.locator("summary", has_text="young").first.click()
    strip = form.locator("svg.strip")
    box = strip.bounding_box()
    assert box is not None
    strip.click(position={"x": box["width"] / 2, "y": 5})
    expect(text).to_have_value(SPEC.replace("[5, 15]", "[5, 10, 15]"))
    form.get_by_label("a class begins at").fill("5")
    form.get_by_role("button", name="Draw or erase the edge").click()
    expect(text).to_have_value(SPEC.replace("[5, 15]", "[10, 15]"))


@pytest.mark.long
def test_a_table_is_added_and_saved_by_keys_alone(opened: Page, studio: Studio) -> None:
    """Whatever has the focus shows it."""

    def tab_to(wanted: str, key: str) -> None:
        for _ in range(100):
            opened.keyboard.press(key)
            held, outline = opened.evaluate(
                "[document.activeElement.id, getComputedStyle(document.activeElement).outlineStyle]"
            )
            assert outline != "none" or held == "", held
            if held == wanted:
                return
        raise AssertionError(f"{wanted} is not reached")

    form = opened.locator("#form")
    opened.keyboard.press("Tab")
    opened.keyboard.press("Enter")
    tab_to("add-table", "Tab")
    opened.keyboard.type("by_keys")
    opened.keyboard.press("Enter")
    expect(form.locator("summary", has_text="by_keys")).to_be_visible()
    expect(form).to_have_attribute("aria-busy", "false")
    tab_to("f-table[4].queries.sex", "Shift+Tab")
    opened.keyboard.press("e")
    expect(form).to_have_attribute("aria-busy", "false")
    opened.keyboard.press("Control+s")
    expect(opened.locator("#saved")).to_have_text("Saved.")
    text = studio.document.path.read_text()
    assert text == SPEC + '\n[[table]]\nname = "by_keys"\nattributes = ["sex"]\n'
