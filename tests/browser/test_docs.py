"""The main pages of the documentation, at the widths of a desk and of a phone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.sync_api import Browser, Page
from tests.browser.conftest import WIDTHS, violations
from tests.site_pages import of_the_site

pytestmark = of_the_site

MAIN = (
    "index.html",
    "getting-started.html",
    "concepts.html",
    "errata.html",
    "guide/index.html",
    "methods/topdown.html",
    "reference/measuring.html",
)
MORE = ("tutorials/first-release.html", "methods/relative-error.html", "privacy-promise.html", "spec.html")
"""Looked at for their width alone."""


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Nothing is said of requests."""


@pytest.fixture(scope="module")
def address(browser: Browser, request: pytest.FixtureRequest) -> Iterator[str]:
    """Where the built site can be read; built only where there is a browser."""
    site = request.getfixturevalue("site")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    "names",
    [(MAIN[1], MORE[1]), pytest.param((*MAIN, *MORE), marks=pytest.mark.long)],
    ids=["some", "all"],
)
def test_pages_fit(page: Page, address: str, names: tuple[str, ...]) -> None:
    for name in names:
        page.set_viewport_size({"width": max(WIDTHS), "height": 900})
        page.goto(f"{address}/{name}", wait_until="load")
        # The desk's width is first: where a page grows wider, drawers of the theme take a while to close.
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            wide = page.evaluate("document.documentElement.scrollWidth")
            assert wide <= width, f"{name} is {wide} px wide"


@pytest.mark.parametrize(
    "names", [MAIN[1:2], pytest.param(MAIN, marks=pytest.mark.long)], ids=["some", "all"]
)
def test_pages_are_accessible(page: Page, address: str, names: tuple[str, ...]) -> None:
    """But for the theme's buttons that copy code, which all have one name."""
    for name in names:
        page.goto(f"{address}/{name}", wait_until="load")
        told = violations(page, include=[["article"]], exclude=[[".md-code__nav"]])
        assert not told, "\n".join([name, *told])


@pytest.mark.parametrize(
    "names",
    [
        ("methods/relative-error.html",),
        pytest.param(("methods/strategies.html", "errata.html"), marks=pytest.mark.long),
    ],
    ids=["some", "others"],
)
def test_no_table_is_cut_at_a_desk(page: Page, address: str, names: tuple[str, ...]) -> None:
    for name in names:
        page.goto(f"{address}/{name}", wait_until="load")
        page.wait_for_selector(".md-typeset__scrollwrap")
        cut = "wraps => wraps.filter(w => w.scrollWidth > w.clientWidth).length"
        assert page.eval_on_selector_all(".md-typeset__scrollwrap", cut) == 0, name


def test_links_of_the_front_page_open(page: Page, address: str) -> None:
    page.goto(f"{address}/index.html")
    page.locator("article").get_by_role("link", name="Getting started").first.click()
    page.wait_for_url("**/getting-started.html")
    assert page.locator("h1").inner_text().startswith("Getting started")
