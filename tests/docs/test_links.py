"""Every link of the built documentation leads somewhere, and every picture says what it shows."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from tests.site_pages import ROOT, Page, of_the_site

EXTERNAL = re.compile(
    r"https?://[a-z0-9-]+(\.[a-z0-9-]+)+(:\d+)?(/[^\s<>\"]*)?(\?[^\s]*)?(#[^\s]*)?", re.IGNORECASE
)


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    files = (file for file in site.rglob("*.html") if file.name != "404.html")
    return {file: Page(file.read_text(encoding="utf-8")) for file in files}


def broken(pages: dict[Path, Page], file: Path, link: str) -> str:
    """What is wrong with a link, or nothing."""
    parts = urlsplit(link)
    if parts.scheme in ("mailto", "data"):
        return ""
    if parts.scheme or parts.netloc:
        return "" if EXTERNAL.fullmatch(link) else "is no address"
    target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
    if target.is_dir():
        target = target / "index.html"
    if not target.is_file():
        return "leads to no file"
    named = not parts.fragment or target not in pages or unquote(parts.fragment) in pages[target].names
    return "" if named else "leads to no such place in its page"


@of_the_site
def test_every_link_leads_somewhere(pages: dict[Path, Page]) -> None:
    assert len(pages) > 40
    wrong = {
        f"{file.name}: {link} {why}"
        for file, page in pages.items()
        for link in page.links
        if (why := broken(pages, file, link))
    }
    assert not wrong, "\n".join(sorted(wrong))


@of_the_site
def test_every_picture_says_what_it_shows(pages: dict[Path, Page]) -> None:
    for file, page in pages.items():
        for picture in page.pictures:
            assert (picture.get("alt") or "").strip(), f"{file.name}: {picture}"


@pytest.mark.parametrize(
    ("link", "why"),
    [
        ("b.html", ""),
        ("b.html#there", ""),
        ("b.html#gone", "leads to no such place in its page"),
        ("#here", ""),
        ("c.html", "leads to no file"),
        ("https://example.org/a?b#c", ""),
        ("https:/example.org", "is no address"),
        ("http://exa mple.org", "is no address"),
    ],
)
def test_broken_links_are_seen(tmp_path: Path, link: str, why: str) -> None:
    one, two = tmp_path / "a.html", tmp_path / "b.html"
    one.write_text('<h1 id="here">A</h1>', encoding="utf-8")
    two.write_text('<h1 id="there">B</h1>', encoding="utf-8")
    both = {file: Page(file.read_text(encoding="utf-8")) for file in (one, two)}
    assert broken(both, one, link) == why


def test_the_front_page_of_the_repository_links_to_what_exists() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert len(links) > 10
    for link in links:
        if not link.startswith("http"):
            assert (ROOT / link.partition("#")[0]).exists(), link
