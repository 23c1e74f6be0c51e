"""Draws the map of the rooms: ``python docs/rooms.py`` writes docs/assets/rooms.svg.

The rooms and what stands above what are read from the import contract in pyproject.toml, so that the picture shows what
is enforced. The picture is 358 units wide, a phone's column; text of 11 units can be read there.
"""

from __future__ import annotations

import tomllib
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
OUT = ROOT / "docs/assets/rooms.svg"
INK, MUTED, RULE, ACCENT, WARM = "#23282f", "#5b626d", "#b9b5ab", "#1f5673", "#b4552d"
WIDE, LEFT, GAP, LINE = 358.0, 24.0, 6.0, 13.5
SCALE = 1.5  # of the picture where there is room
WORDS = {
    "cli": ["one verb a command, and what it prints"],
    "audit": ["a run replayed", "on neighbouring records"],
    "interop": ["the Census Bureau's files", "in, T1 and T2 out"],
    "studio": ["a spec on a", "local page"],
    "_run": ["the life of a release: lock, charge, resume, seal"],
    "report": ["pages to read"],
    "demo": ["invented people"],
    "export": ["other formats"],
    "spec": ["the document that says what is released"],
    "release": ["the folder that is published: its format"],
    "research": ["mechanisms that no release uses"],
    "sources": ["the records, and the", "engines that count them"],
    "estimation": ["estimates, intervals"],
    "measurement": ["noisy answers: public"],
    "strategy": ["which questions are asked, with how much noise"],
    "domain": ["what is counted:", "cells, tables, exact sums"],
    "privacy": ["losses, noise laws, ledger"],
    "linalg": ["matrices without data; exact sensitivities"],
    "errors": ["the exceptions"],
    "notebook": ["cards"],
    "_version": ["the number"],
}
"""What each room holds; ``products`` is drawn from inside."""
CONFIDENTIAL = {"sources"}


def layers() -> list[list[str]]:
    """The rooms of the import contract, from the top."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    rows = next(contract["layers"] for contract in contracts["contracts"] if contract["id"] == "layers")
    return [[room.strip() for room in row.replace(":", "|").split("|")] for row in rows]


class Sheet:
    """Shapes of a picture that grows downwards."""

    def __init__(self) -> None:
        self.shapes: list[str] = []
        self.top = GAP

    def box(self, x: float, y: float, wide: float, high: float, colour: str) -> None:
        """A rectangle."""
        self.shapes.append(
            f'<rect x="{x:g}" y="{y:g}" width="{wide:g}" height="{high:g}" rx="3" fill="#ffffff" '
            f'stroke="{colour}"/>'
        )

    def text(self, x: float, y: float, words: str, look: str = f'fill="{INK}"') -> None:
        """Words from a place on their base line."""
        self.shapes.append(f'<text x="{x:g}" y="{y:g}" {look}>{escape(words)}</text>')

    def line(self, x: float, y: float, to_x: float, to_y: float, colour: str, wide: float = 1) -> None:
        """A straight line."""
        self.shapes.append(
            f'<path d="M{x:g} {y:g}L{to_x:g} {to_y:g}" stroke="{colour}" stroke-width="{wide:g}"/>'
        )

    def room(self, name: str, x: float, wide: float, high: float) -> None:
        """A box with the name of a room and what it holds."""
        self.box(x, self.top, wide, high, WARM if name in CONFIDENTIAL else ACCENT)
        self.text(x + 6, self.top + 14, name, f'fill="{INK}" font-weight="700"')
        for i, words in enumerate(WORDS[name]):
            self.text(x + 6, self.top + 28 + LINE * i, words, f'fill="{MUTED}"')

    def row(self, names: list[str]) -> None:
        """Rooms of one layer side by side."""
        wide = (WIDE - 2 - LEFT - GAP * (len(names) - 1)) / len(names)
        high = 20 + LINE * max(len(WORDS[name]) for name in names)
        for i, name in enumerate(names):
            self.room(name, LEFT + i * (wide + GAP), wide, high)
        self.top += high + GAP


def products(sheet: Sheet) -> None:
    """The layer of products: the kinds of release, and the steps that all have."""
    top, left, right = sheet.top, LEFT, WIDE - 2
    place = len(sheet.shapes)
    sheet.text(left + 6, top + 14, "products", f'fill="{INK}" font-weight="700"')
    sheet.text(left + 66, top + 14, "one folder a kind of release", f'fill="{MUTED}"')
    sheet.top += 22
    for name, words in (
        ("tables", "counts of the cells of a domain"),
        ("groups", "very many small groups"),
        ("areas", "from the nation to the block"),
    ):
        sheet.box(left + 6, sheet.top, right - left - 12, 19, RULE)
        sheet.text(left + 12, sheet.top + 13.5, name, f'fill="{INK}" font-weight="700"')
        sheet.text(left + 62, sheet.top + 13.5, words, f'fill="{MUTED}"')
        sheet.top += 23
    base = sheet.top + 16
    for x, words, look in (
        (6, "each:", f'fill="{MUTED}"'),
        (42, "plan", f'fill="{ACCENT}"'),
        (76, "count", f'fill="{WARM}" font-weight="700"'),
        (122, "measure", f'fill="{INK}" font-weight="700"'),
        (200, "estimate", f'fill="{ACCENT}"'),
        (260, "publish", f'fill="{ACCENT}"'),
    ):
        sheet.text(left + x, base, words, look)
    sheet.line(left + 188, base - 12, left + 188, base + 22, WARM, 3)
    sheet.text(left + 76, base + 17, "confidential", f'fill="{WARM}"')
    sheet.text(left + 200, base + 17, "public from here on", f'fill="{ACCENT}"')
    sheet.top = base + 26
    frame = Sheet()
    frame.box(left, top, right - left, sheet.top - top, ACCENT)
    sheet.shapes[place:place] = frame.shapes
    sheet.top += GAP


def picture() -> str:
    """The picture as text."""
    sheet = Sheet()
    for names in layers():
        if names == ["products"]:
            products(sheet)
        else:
            sheet.row(names)
    foot = sheet.top
    sheet.line(5, GAP + 8, 5, foot - 12, MUTED)
    sheet.shapes.append(
        f'<path d="M2 {foot - 18:g}L5 {foot - 10:g}L8 {foot - 18:g}" fill="none" stroke="{MUTED}"/>'
    )
    turned = f'transform="translate(18 {foot / 2 + 75:g}) rotate(-90)" fill="{MUTED}"'
    sheet.shapes.append(f"<text {turned}>a room imports what is below it</text>")
    sheet.text(LEFT, foot + 10, "Orange: holds confidential records or counts.", f'fill="{WARM}"')
    high = foot + 10 + GAP
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE:g} {high:g}" width="{SCALE * WIDE:g}" '
        f'height="{SCALE * high:g}" font-family="DejaVu Sans, Verdana, sans-serif" font-size="11" role="img">\n'
        f'<rect width="{WIDE:g}" height="{high:g}" fill="#ffffff"/>\n'
        + "\n".join(sheet.shapes)
        + "\n</svg>\n"
    )


def main(out: Path = OUT) -> None:
    """Write the picture."""
    out.write_text(picture(), encoding="utf-8")


if __name__ == "__main__":
    main()
