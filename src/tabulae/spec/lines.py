"""Where each key of a TOML document stands.

``tomllib`` gives values and forgets where they were written. This scanner reads the same text a second
time, skips the values, and keeps the line of every key, so that a mistake found later, by whatever check,
can be shown where its author will look for it. It trusts ``tomllib`` to have accepted the text before.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right
from collections.abc import Mapping

KeyPath = tuple[str | int, ...]

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_SCALAR = re.compile(r"[^,\]}\n#]*")
# The three-quote forms come first: '""' is an empty string only where a third quote does not follow.
# A multi-line string may end in one or two quotes of its own, hence the look-ahead after the delimiter.
_STRING = re.compile(
    r"""
    \"{3} (?: \\. | [^\\] )*? \"{3} (?!\")
    | '{3} .*? '{3} (?!')
    | \" (?: \\. | [^\"\\\n] )* \"
    | ' [^'\n]* '
    """,
    re.DOTALL | re.VERBOSE,
)


class KeyLines:
    """The line, counted from 1, on which each key of a TOML document stands.

    A path is a tuple of keys and positions in arrays: ``("table", 1, "name")``.

    >>> lines = KeyLines('title = "t"\\n\\n[[table]]\\nname = "a"\\n[[table]]\\nname = "b"\\n')
    >>> lines.of(("table", 1, "name"))
    6
    >>> lines.of(("table", 0, "weight"))        # not written: where its section stands
    3
    """

    def __init__(self, text: str) -> None:
        self._lines: Mapping[KeyPath, int] = _Scanner(text).scan()

    def of(self, path: KeyPath) -> int | None:
        """The line of ``path``, or of the nearest thing around it that is written; None for the document."""
        while path:
            if path in self._lines:
                return self._lines[path]
            path = path[:-1]
        return None


class _Scanner:
    """One pass over a valid document: positions of keys, headers and array elements."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self.lines: dict[KeyPath, int] = {}
        self.last: dict[KeyPath, int] = {}  # array of tables -> index of its latest element

    def scan(self) -> dict[KeyPath, int]:
        """Read the whole document."""
        section: KeyPath = ()
        while self.skip(_BLANK) < len(self.text):
            if self.text[self.at] == "[":
                section = self.header()
            else:
                self.pair(section)
        return self.lines

    def skip(self, pattern: re.Pattern[str]) -> int:
        """Move past what ``pattern`` matches here."""
        found = pattern.match(self.text, self.at)
        if found:
            self.at = found.end()
        return self.at

    def mark(self, path: KeyPath, at: int) -> None:
        """Remember the line of ``path``, first written at the offset ``at``."""
        self.lines.setdefault(path, bisect_right(self.starts, at))

    def header(self) -> KeyPath:
        """``[a.b]`` or ``[[a.b]]``: the path that the lines below it extend."""
        brackets = 2 if self.text.startswith("[[", self.at) else 1
        start = self.at
        self.at += brackets
        keys = self.keys()
        self.skip(_SPACE)
        self.at += brackets
        path: KeyPath = ()
        for position, key in enumerate(keys, start=1):
            path += (key,)
            self.mark(path, start)
            if brackets == 2 and position == len(keys):
                self.last[path] = self.last.get(path, -1) + 1
            if path in self.last:
                path += (self.last[path],)
                self.mark(path, start)
        return path

    def keys(self) -> list[str]:
        """A dotted key, decoded."""
        keys = []
        while True:
            self.skip(_SPACE)
            start = self.at
            if self.text[start] in "\"'":
                self.skip(_STRING)
                keys.append(tomllib.loads("key = " + self.text[start : self.at])["key"])
            else:
                self.skip(_BARE_KEY)
                keys.append(self.text[start : self.at])
            self.skip(_SPACE)
            if self.text[self.at] != ".":
                return keys
            self.at += 1

    def pair(self, section: KeyPath) -> None:
        """``key = value``, each part of a dotted key on its own."""
        start = self.at
        path = section
        for key in self.keys():
            path += (key,)
            self.mark(path, start)
        self.at += 1  # the equals sign
        self.skip(_SPACE)
        self.value(path)

    def value(self, path: KeyPath) -> None:
        """Skip a value, entering arrays and inline tables."""
        opening = self.text[self.at]
        if opening in "\"'":
            self.skip(_STRING)
        elif opening in "[{":
            self.inside(path, "]" if opening == "[" else "}")
        else:
            self.skip(_SCALAR)

    def inside(self, path: KeyPath, closing: str) -> None:
        """The elements of an array, or the pairs of an inline table."""
        self.at += 1
        position = 0
        while self.text[self.skip(_BLANK)] != closing:
            if self.text[self.at] == ",":
                self.at += 1
                continue
            if closing == "]":
                self.mark((*path, position), self.at)
                self.value((*path, position))
                position += 1
            else:
                self.pair(path)
        self.at += 1
