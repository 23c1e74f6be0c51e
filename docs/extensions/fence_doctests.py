"""Documentation build: show doctests as code, and cross-reference roles as plain code names."""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:func|class|meth|mod|attr|data):`~?(?:[\w.]+\.)?(\w+)`")


class FenceDoctests(griffe.Extension):
    """Rewrites every docstring before it is parsed."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrite the docstring of one documented object."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(_ROLE.sub(r"`\1`", obj.docstring.value))


def fenced(text: str) -> str:
    """Put a fence around each run of lines that begins with ``>>>`` and ends at an empty line."""
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        indent = line[: len(line) - len(line.lstrip())]
        if not inside and line.lstrip().startswith(">>>"):
            lines += ["", f"{indent}```pycon"]
            inside = True
            margin = indent
        elif inside and not line.strip():
            lines.append(f"{margin}```")
            inside = False
        lines.append(line)
    if inside:
        lines.append(f"{margin}```")
    return "\n".join(lines)
