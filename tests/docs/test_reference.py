"""Every public name stands in the reference, and every name in the reference exists."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

import tabulae as tb

PAGES = Path(__file__).parents[2] / "docs/reference"
NAMED = re.compile(
    r"^::: (tabulae\.[\w.]+)\n(?:    options:\n(?:      .*\n)*?      members: \[([^\]]*)\])?", re.MULTILINE
)
ROOMS = """
    audit demo domain estimation export interop.safetab linalg privacy products.areas products.groups products.tables
    release report research spec strategy
"""


def documented() -> dict[str, object]:
    """Each name of the reference with what it names; a module without a list stands for all that is in it."""
    found: dict[str, object] = {}
    for page in PAGES.glob("*.md"):
        for name, members in NAMED.findall(page.read_text(encoding="utf-8") + "\n"):
            value = found[name] = _named(name)
            inside = re.split(r",\s*", members) if members else vars(value) if inspect.ismodule(value) else []
            found.update({f"{name}.{member}": getattr(value, member) for member in inside})
    return found


def _named(name: str) -> object:
    room, _, last = name.rpartition(".")
    module = importlib.import_module(room)
    return getattr(module, last) if hasattr(module, last) else importlib.import_module(name)


def test_every_public_name_is_in_the_reference() -> None:
    shown = list(documented().values())
    for name in tb.__all__:
        if name != "__version__":
            assert any(getattr(tb, name) is value for value in shown), name


def test_every_room_that_users_call_is_in_the_reference() -> None:
    shown = [f"{name}." for name in documented()]
    for room in ROOMS.split():
        assert any(name.startswith(f"tabulae.{room}.") for name in shown), room
