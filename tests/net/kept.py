"""The digests as they are kept in ``digests.json``, and the words for what differs from them."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.net.cases import Found
from tests.net.normal import digest

FILE = Path(__file__).parent / "digests.json"
_LIBRARIES = ("duckdb", "ibis-framework", "numpy", "pyarrow", "scipy", "sqlglot")
_MOST_PARTS = 8
Digests = dict[str, str]


def libraries() -> dict[str, str]:
    """The versions of what has a say in published files."""
    return {"python": platform.python_version(), **{name: version(name) for name in _LIBRARIES}}


def digests_of(found: Found) -> Digests:
    """File -> the digests of its parts, each after its name."""
    return {
        name: "; ".join(f"{part} {digest(text)}".strip() for part, text in parts.items())
        for name, parts in found.items()
    }


def recorded() -> dict[str, Any]:
    """What ``digests.json`` holds."""
    return json.loads(FILE.read_text())


def record(cases: dict[str, Digests]) -> None:
    """Keep the digests of these cases, and of others as they are."""
    before = recorded()["cases"] if FILE.exists() else {}
    document = {"libraries": libraries(), "cases": dict(sorted({**before, **cases}.items()))}
    FILE.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def changes(was: Digests, now: Digests) -> list[str]:
    """Which files differ, one a line, with the parts of them that do; none where all are as they were."""
    told = [f"{name}: is new" for name in now if name not in was]
    told += [f"{name}: is gone" for name in was if name not in now]
    for name in was:
        if now.get(name, was[name]) != was[name]:
            told.append(f"{name}: differs in {_parts(was[name].split('; '), now[name].split('; '))}")
    return told


def _parts(was: list[str], now: list[str]) -> str:
    if sorted(was) == sorted(now):
        return "the order of its parts"
    names = dict.fromkeys(_name(part) for part in (*was, *now) if (part in was) != (part in now))
    return _listed(name or "its content" for name in names)


def _name(part: str) -> str:
    return part.rpartition(" ")[0]


def _listed(names: Iterable[str]) -> str:
    all_names = list(names)
    more = f" and {len(all_names) - _MOST_PARTS} more" if len(all_names) > _MOST_PARTS else ""
    return ", ".join(all_names[:_MOST_PARTS]) + more
