"""Characters that no reader sees, or that turn what others read around."""

from __future__ import annotations

import re

_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_BREAKS = (0x0A, 0x0D, 0x85, 0x2028, 0x2029)


def unseen(text: str) -> str | None:
    """The first such character of a text, in words; None where it has none.

    >>> unseen("with caution"), unseen("with\\ncaution"), unseen("\u202eelbailer")
    (None, 'a line break', 'the direction character U+202E')
    """
    found = _UNSEEN.search(text)
    if found is None:
        return None
    point = ord(found.group())
    if point in _BREAKS:
        return "a line break"
    return f"{'the control' if point < 0xA0 else 'the direction'} character U+{point:04X}"
