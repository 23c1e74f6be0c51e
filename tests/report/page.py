"""A report page as a reader's browser sees it: tags that match, ids, links."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import tabulae.report

SCRIPT = (Path(tabulae.report.__file__).parent / "templates" / "tables.js").read_text()


class Page(HTMLParser):
    """Tags that are open at the end, every tag there was, ids and links."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        named = dict(attrs)
        if named.get("id"):
            self.ids.append(str(named["id"]))
        if tag == "a":
            self.links.append(str(named.get("href")))
        if tag not in ("meta", "br", "wbr", "path", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self.open:
            assert self.open.pop() == tag


def check_script(text: str) -> None:
    """The page has one script: the project's own, allowed by its hash, while a policy forbids all others."""
    assert re.findall(r"<script[^>]*>", text) == ["<script>"]
    assert f"<script>{SCRIPT}</script>" in text
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    allowed = dict(part.split(" ", 1) for part in policy[1].replace("&#39;", "'").split("; "))
    assert allowed["script-src"] == f"'sha256-{digest}'"
    assert allowed["default-src"] == "'none'"
    assert allowed["img-src"] == "data:"
