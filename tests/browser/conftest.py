"""A Chromium that opens files and pages of this machine alone; tests without one are skipped, and say so."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, Route, sync_playwright
from playwright.sync_api import Error as BrowserError
from tests.studio.conftest import served

from tabulae.studio import Studio

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_LOCAL = ("file:", "data:", "blob:", "about:", "http://127.0.0.1:")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests of a worker."""
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        pytest.skip("needs Chromium: tests/browser/chromium.sh installs it where it may")
    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        try:
            opened = playwright.chromium.launch(executable_path=found, args=flags, timeout=60_000)
        except BrowserError as error:
            pytest.skip(f"Chromium does not start here: {error.message.splitlines()[0]}")
        yield opened
        opened.close()


WIDTHS = (1280, 390)
"""Of a desk and of a phone: pages are looked at with both."""


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """An empty page, 1280 px wide. Errors of its scripts, and requests to anywhere else, fail the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    wrong: list[str] = []

    def only_local(route: Route) -> None:
        if route.request.url.startswith(_LOCAL):
            route.continue_()
        else:
            wrong.append(f"asked for {route.request.url}")
            route.abort()

    def told(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            wrong.append(message.text)

    context.route("**/*", only_local)
    opened = context.new_page()
    opened.set_default_timeout(20_000)
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("console", told)
    yield opened
    context.close()
    assert not wrong


def violations(page: Page, **where: Any) -> list[str]:
    """Rules of axe that the page breaks, each with the first element that does; of a part of it, as axe is told."""
    found = Axe().run(page, context=where or None, options={"resultTypes": ["violations"]})
    return [f"{rule['id']}: {rule['nodes'][0]['html'][:200]}" for rule in found.response["violations"]]


@contextmanager
def shown(page: Page, place: Path) -> Iterator[Studio]:
    """A studio on a page, which leaves before the studio stops: one that still asks is cut off, and says so."""
    with served(place) as studio:
        page.goto(studio.url)
        try:
            yield studio
        finally:
            page.goto("about:blank")
