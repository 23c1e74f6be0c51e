"""Two hundred tables in the studio: the slider answers at once, and the form shows and changes all of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from tests.browser.conftest import shown

from tabulae.studio.change import change
from tabulae.studio.form import chapters

ATTRIBUTES = "\n".join(f"a{i} = {{ range = [0, {3 + i % 5}] }}" for i in range(30))
PAIRS = [(i, j) for i in range(30) for j in range(i + 1, 30)][:200]
TABLES = "\n".join(f'[[table]]\nname = "t{i}_{j}"\nattributes = ["a{i}", "a{j}"]\n' for i, j in PAIRS)
SPEC = f"""title = "Two hundred tables"
[source]
path = "people.csv"
[attributes]
{ATTRIBUTES}
[privacy]
definition = "zcdp"
budget = "1/2"
delta = "1e-10"
ledger = "ledger.db"
[method]
select = "residual"
{TABLES}"""


def test_the_form_lists_all_tables_and_changes_the_last(tmp_path: Path) -> None:
    tables = next(
        chapter for chapter in chapters(SPEC, ["table[199]"], tmp_path) if chapter.title == "Tables"
    )
    assert len(tables.entries) == 200
    assert sum(entry.open for entry in tables.entries) == 1
    after = change(SPEC, "set", ("table", 199, "weight"), {"kind": "number", "value": "2"})
    assert after == SPEC[:-1] + "\nweight = 2\n"


@pytest.mark.long
def test_the_slider_moves_the_errors_of_two_hundred_tables_without_a_request(
    page: Page, tmp_path: Path
) -> None:
    (tmp_path / "spec.toml").write_text(SPEC)
    with shown(page, tmp_path / "spec.toml"):
        plan = page.frame_locator("#plan")
        expect(plan.get_by_role("slider")).to_be_visible(timeout=500_000)
        expect(page.locator("[data-margin]")).to_have_count(200)
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        before = plan.locator("[data-number]").all_text_contents()
        plan.get_by_role("slider").press("PageUp")
        after = plan.locator("[data-number]").all_text_contents()
        assert len(before) == len(after) == 400
        assert all(old != new for old, new in zip(before, after, strict=True))
        assert all(url.endswith("/state") for url in asked)
