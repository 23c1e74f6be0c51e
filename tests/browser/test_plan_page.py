"""The plan page in a browser: the slider moves the numbers, and they are those of the library."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.browser.conftest import WIDTHS, violations
from tests.village import SPEC

import tabulae as tb
from tabulae.products.tables.plan import plan_tables
from tabulae.report.plan_page import plan_view
from tabulae.report.plan_page import view as live
from tabulae.report.plan_page.page import render_plan
from tabulae.report.plan_page.view import PlanView

_AIMS = {
    'attributes = ["sex", "age"]': 'attributes = ["sex", "age"]\ntarget = { rmse = 2 }',
    'queries = { age = "ranges" }': 'queries = { age = "ranges" }\ntarget = { margin = 5, confidence = 0.9 }',
}


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> tuple[PlanView, str]:
    """A plan with two targets, and the address of its page."""
    folder = tmp_path_factory.mktemp("plan")
    text = SPEC
    for passage, aimed in _AIMS.items():
        text = text.replace(passage, aimed)
    (folder / "spec.toml").write_text(text)
    tb.Ledger.create(folder / "ledger.db", 1, "zcdp")
    view = plan_view(plan_tables(folder / "spec.toml"))
    (folder / "plan.html").write_text(render_plan(view), encoding="utf-8")
    return view, (folder / "plan.html").as_uri()


def _shown(page: Page) -> list[str]:
    return page.locator("[data-number]").all_text_contents()


def _expected(view: PlanView, at: int) -> list[str]:
    return [number for row in view.errors.rows for number in live.numbers(row.errors[at])]


def _says(page: Page, view: PlanView, at: int) -> None:
    """Everything that moves says what the library computed for this stop."""
    assert _shown(page) == _expected(view, at)
    for name, text in live.texts(view, at).items():
        for element in page.locator(f'[data-live="{name}"]').all():
            assert element.text_content() == text
    cells = page.locator("[data-met]").all_text_contents()
    assert cells == [live.state(row, at) for row in view.errors.rows]


def test_keys_move_the_budget_and_every_number(page: Page, planned: tuple[PlanView, str]) -> None:
    view, address = planned
    page.goto(address)
    slider = page.get_by_role("slider")
    _says(page, view, view.own)
    slider.focus()
    for key, at in (
        ("ArrowLeft", view.own - 1),
        ("Home", 0),
        ("ArrowRight", 1),
        ("End", len(view.stops) - 1),
    ):
        slider.press(key)
        _says(page, view, at)
        assert live.budget_words(view.stops[at].loss.amount) in (slider.get_attribute("aria-valuetext") or "")


def test_targets_turn_red_below_the_smallest_budget_and_the_button_goes_there(
    page: Page, planned: tuple[PlanView, str]
) -> None:
    view, address = planned
    assert view.smallest is not None
    page.goto(address)
    page.get_by_role("button", name="Smallest budget that meets all targets").click()
    _says(page, view, view.smallest)
    expect(page.get_by_role("slider")).to_have_value(str(view.smallest))
    assert page.locator(".met-1").count() == 2
    page.get_by_role("slider").press("ArrowLeft")
    _says(page, view, view.smallest - 1)
    missed = page.locator(".met-0")
    assert missed.count() >= 1
    expect(missed.first).to_have_text("✗ missed")
    expect(missed.first).to_have_css("color", "rgb(163, 39, 27)")
    page.get_by_role("button", name="This plan").click()
    _says(page, view, view.own)


def test_the_slider_stays_in_sight_of_the_last_table(page: Page, planned: tuple[PlanView, str]) -> None:
    page.goto(planned[1])
    page.locator("[data-row]").last.scroll_into_view_if_needed()
    expect(page.get_by_role("slider")).to_be_in_viewport()


@pytest.mark.parametrize("width", [min(WIDTHS), pytest.param(max(WIDTHS), marks=pytest.mark.long)])
def test_the_page_fits_its_window_and_is_accessible(
    page: Page, planned: tuple[PlanView, str], width: int
) -> None:
    page.goto(planned[1])
    page.set_viewport_size({"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.get_by_role("slider").press("Home")
    assert violations(page) == []


def test_without_scripts_the_plan_stands_at_its_own_budget(
    browser: Browser, planned: tuple[PlanView, str]
) -> None:
    view, address = planned
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address)
    assert _shown(page) == _expected(view, view.own)
    expect(page.locator("#slider")).to_be_hidden()
    expect(page.locator("noscript p")).to_be_visible()
    context.close()
