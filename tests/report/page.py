"""A report page as a reader's browser sees it: tags that match, ids, links."""

from __future__ import annotations

from html.parser import HTMLParser


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
