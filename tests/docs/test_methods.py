"""Each page of a method says where its code, its numbers and its papers are; what it names exists."""

from __future__ import annotations

import importlib
import importlib.util
import re
from pathlib import Path

from tests.each import each

import tabulae as tb

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs/methods").glob("*.md"))
OVERVIEWS = ("index.md", "objectives.md")


def where(page: Path) -> dict[str, str]:
    """The three lines at the end of a page, by their first word."""
    end = page.read_text(encoding="utf-8").partition("\n## Where to find it\n")[2]
    lines = re.findall(r"^\* (\w+): (.*?)(?=^\* |\Z)", end, re.DOTALL | re.MULTILINE)
    return {head: " ".join(text.split()) for head, text in lines}


@each("page", [p for p in PAGES if p.name not in OVERVIEWS], ids=lambda p: p.stem)
def test_code_numbers_and_papers(page: Path) -> None:
    found = where(page)
    assert list(found) == ["Code", "Numbers", "Papers"]
    names = re.findall(r"`(tabulae\.[\w.]+)`", found["Code"])
    assert names
    for name in names:
        room, _, last = name.rpartition(".")
        assert importlib.util.find_spec(name if _module(name) else room), name
        assert _module(name) or hasattr(importlib.import_module(room), last), name
    scripts = re.findall(r"(?:python -m |python )(benchmarks[./]\w+)", found["Numbers"])
    tests = re.findall(r"(tests/[\w/.]+)", found["Numbers"])
    assert scripts or tests
    for script in scripts:
        assert (
            ROOT / (script.removesuffix(".py").replace(".", "/").removesuffix("/py") + ".py")
        ).is_file(), script
    for test in tests:
        assert (ROOT / test.rstrip(".")).exists(), test
    assert len(found["Papers"]) > 40


def _module(name: str) -> bool:
    path = ROOT / "src" / name.replace(".", "/")
    return path.is_dir() or path.with_suffix(".py").is_file()


def test_every_room_of_methods_is_named_on_a_page() -> None:
    """What chooses strategies stands on a page, by its module or by its package; all methods in `select`, too."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    for package in ("classic", "eigen"):
        assert f"tabulae.strategy.{package}" in text
    importlib.import_module("tabulae.strategy._select")  # which enters every method
    named = importlib.import_module("tabulae.strategy.methods").SINGLE
    assert len(named) > 10
    for method in named:
        assert f"`{method}`" in text, method
        assert f'"{method}"' in str(tb.select.__doc__), method
