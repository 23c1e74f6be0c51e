"""The spec that the studio edits: its text, keys changed in their places, and its file, which only a save writes."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import tomli_w

from ..errors import ReleaseError
from ..release.folder import write_bytes
from ..spec.problems import Header, KeyPath, Layout, Place
from ..spec.sections import SECTIONS

_MOST_UNDONE = 1000


class SpecText:
    """The text of a spec between its file and a page.

    A page has lines that end in a newline alone. A file whose lines end in two characters keeps them.
    """

    def __init__(self, path: Path, draft: str | None = None) -> None:
        """Read the file, or begin one that is not there yet.

        Args:
            path: the file of the spec.
            draft: the text of a new document; the file is made by the first save.

        Raises:
            ReleaseError: there is no such file, or it is not text in UTF-8.
        """
        self.path = path.resolve()
        self._stored: bytes | None = None
        self._newline = "\n"
        self._written: set[str] = set()
        self._past: list[str] = []
        self._future: list[str] = []
        if draft is not None:
            self.text = _lines(draft)
            return
        if not self.path.is_file():
            raise ReleaseError(
                f"{path} is no file: name a spec; `tabulae init FILE` drafts one from a file of records"
            )
        self._stored = self.path.read_bytes()
        self._newline = "\r\n" if b"\r\n" in self._stored else "\n"
        try:
            self.text = _lines(self._stored.decode("utf-8-sig"))
        except UnicodeDecodeError:
            raise ReleaseError(f"{path} is not text in UTF-8: save it so") from None

    @property
    def unsaved(self) -> bool:
        """Whether the text is another than what was last read or saved."""
        return self._stored is None or self.text != _lines(self._stored.decode("utf-8-sig"))

    @property
    def changed(self) -> bool:
        """Whether another program wrote, removed or made the file since it was last read or saved."""
        try:
            return self.path.read_bytes() != self._stored
        except FileNotFoundError:
            return self._stored is not None
        except OSError:
            return True

    @property
    def can_undo(self) -> bool:
        return bool(self._past)

    @property
    def can_redo(self) -> bool:
        return bool(self._future)

    def edit(self, text: str) -> None:
        """Take another text, typed or made by the form; the file stays as it is."""
        text = _lines(text)
        if text == self.text:
            return
        self._past = [*self._past[-_MOST_UNDONE:], self.text]
        self._future.clear()
        self.text = text

    def undo(self) -> None:
        """Go back to the text before the last edit."""
        if self._past:
            self._future.append(self.text)
            self.text = self._past.pop()

    def redo(self) -> None:
        """Take back the last undo."""
        if self._future:
            self._past.append(self.text)
            self.text = self._future.pop()

    def save(self, *, over: bool = False) -> bool:
        """Write the file whole, or leave it: False where another program changed it, unless ``over``."""
        if self.changed and not over:
            return False
        content = self.text.replace("\n", self._newline).encode()
        try:
            write_bytes(self.path, content)
        except OSError:
            self.path.with_name(f".{self.path.name}.draft").unlink(missing_ok=True)
            raise
        self._stored = content
        return True

    def write_beside(self, name: str, content: str) -> str:
        """Write a public file that the text is to name; where another file has its name it gets a number.

        Returns:
            its path, relative to the document.
        """
        stem, number = name.removesuffix(".csv"), 1
        while name not in self._written and (self.path.parent / name).exists():
            number += 1
            name = f"{stem}_{number}.csv"
        place = self.path.parent / name
        place.parent.mkdir(exist_ok=True)
        write_bytes(place, content.encode())
        self._written.add(name)
        return name


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def toml(value: Any) -> str:
    """A value as it stands behind a key, in one line.

    >>> toml({"range": [0, 114], "open": "above"})
    '{ range = [0, 114], open = "above" }'
    """
    if isinstance(value, dict):
        pairs = ", ".join(f"{_key(name)} = {toml(each)}" for name, each in value.items())
        return f"{{ {pairs} }}" if pairs else "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    return tomli_w.dumps({"k": value}).removeprefix("k = ").removesuffix("\n")


def _key(name: str) -> str:
    return tomli_w.dumps({name: 0}).removesuffix(" = 0\n")


def put(text: str, path: KeyPath, value: Any) -> str:
    """The document with a value at a path, changed where it stands or added where it belongs; comments stay.

    Args:
        text: a valid document.
        path: keys and positions; the position after the last of an array adds to it.

    >>> print(put('[source] # here\\npath = "a.csv" # records\\n', ("source", "path"), "b.csv"), end="")
    [source] # here
    path = "b.csv" # records
    >>> print(put('title = "A"\\n', ("table", 0), {"name": "all", "attributes": []}), end="")
    title = "A"
    <BLANKLINE>
    [[table]]
    name = "all"
    attributes = []
    """
    layout = Layout.of(text)
    above, last = path[:-1], path[-1]
    if path in layout.places:
        return _replaced(text, layout.places[path], path, value)
    if above in layout.places:
        return _put_inside(text, layout, above, str(last), value)
    header = next((each for each in reversed(layout.headers) if each.path == path), None)
    if header is not None or _sections_within(layout, path):
        for key, each in value.items():
            text = put(text, (*path, key), each)
        return text
    if isinstance(last, int) and last and not _sections_within(layout, (*above, last - 1)):
        raise IndexError(f"there is no place for {path}")
    if isinstance(last, int) or (not above and _is_section(value)):
        return _with_section(text, layout, path, value)
    header = next((each for each in layout.headers if each.path == above), None)
    if header is not None:
        return _with_line(text, header.end, f"{_key(last)} = {toml(value)}")
    dotted = [
        place
        for found, place in layout.places.items()
        if found[: len(above)] == above and place.section is not None
    ]
    if dotted and all(each.section is not None and len(each.section) < len(above) for each in dotted):
        inner = (*above, last)[len(dotted[-1].section or ()) :]
        return _with_line(
            text, dotted[-1].end, f"{'.'.join(_key(str(part)) for part in inner)} = {toml(value)}"
        )
    if above and not isinstance(last, int) and _sections_within(layout, above):
        return _with_section(text, layout, above, {last: value})
    return put(text, above, {last: value})


def remove(text: str, path: KeyPath) -> str:
    """The document without what stands at a path, and without the comments on its own lines and directly above it.

    >>> remove('a = { b = 1, c = 2 }\\n', ("a", "b"))
    'a = { c = 2 }\\n'
    >>> remove('[a]\\n# first\\nb = 1\\n# second\\nc = 2\\n', ("a", "c"))
    '[a]\\n# first\\nb = 1\\n'
    """
    layout = Layout.of(text)
    if (place := layout.places.get(path)) is not None:
        if place.section is None:
            return _without_item(text, layout, path)
        return _without_lines(text, place)
    headers = layout.headers
    for i in reversed(range(len(headers))):
        if i and headers[i].path[: len(path)] == path:
            end = _lead(text, headers[i + 1].start) if i + 1 < len(headers) else len(text)
            text = text[: _lead(text, headers[i].start)] + text[end:]
    if isinstance(path[-1], int):  # the one after it has its position now
        return text
    for found, place in reversed([*Layout.of(text).places.items()]):
        if found[: len(path)] == path and place.section is not None:
            text = _without_lines(text, place)
    return text


def rename(text: str, path: KeyPath, name: str) -> str:
    """The document with another last key at a path.

    >>> rename('[recodes]\\nage5 = { of = "age", level = 1 }\\n', ("recodes", "age5"), "age 5")
    '[recodes]\\n"age 5" = { of = "age", level = 1 }\\n'
    """
    start, end = Layout.of(text).places[path].key
    return text[:start] + _key(name) + text[end:]


def _is_section(value: Any) -> bool:
    """Whether a value of the top level is written as a section."""
    return isinstance(value, dict)


def _sections_within(layout: Layout, path: KeyPath) -> bool:
    return any(each.path[: len(path)] == path for each in layout.headers if each.path)


def _replaced(text: str, place: Place, path: KeyPath, value: Any) -> str:
    old = text[place.value : place.end]
    if isinstance(value, list) and old.startswith("[") and "#" in old:
        return _relisted(text, path, value)
    return text[: place.value] + toml(value) + text[place.end :]


def _relisted(text: str, path: KeyPath, value: list[Any]) -> str:
    """An array with other elements, where those that stay keep their lines and comments."""
    held: Any = tomllib.loads(text)
    for part in path:
        held = held[part]
    before, after = [toml(each) for each in held], [toml(each) for each in value]
    for _, low, high, first, last in reversed(
        SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    ):
        if before[low:high] == after[first:last]:
            continue
        for i in reversed(range(low, high)):
            text = remove(text, (*path, i))
        for each in reversed(after[first:last]):
            text = _with_item(text, Layout.of(text), path, low, each)
    return text


def _put_inside(text: str, layout: Layout, above: KeyPath, last: str, value: Any) -> str:
    """One more element of an array, or one more pair of an inline table."""
    place = layout.places[above]
    items = _items(layout, above)
    written = toml(value) if text[place.value] == "[" else f"{_key(last)} = {toml(value)}"
    return _with_item(text, layout, above, len(items), written)


def _items(layout: Layout, above: KeyPath) -> list[Place]:
    """What stands directly inside a value, in order; pairs with dotted keys are of the value, too."""
    outer = layout.places[above]
    inside = [
        place
        for path, place in layout.places.items()
        if path[: len(above)] == above and place is not outer and outer.value < place.start < outer.end
    ]
    inside.sort(key=lambda place: (place.start, -place.end))
    found: list[Place] = []
    for place in inside:
        if not found or place.start >= found[-1].end:
            found.append(place)
    return found


def _with_item(text: str, layout: Layout, above: KeyPath, at: int, written: str) -> str:
    place, items = layout.places[above], _items(layout, above)
    if not items:
        blank, inside = " " if text[place.value] == "{" else "", place.value + 1
        return f"{text[:inside]}{blank}{written}{blank}{text[inside:].lstrip(' ')}"
    if at == 0:
        return f"{text[: items[0].start]}{written}, {text[items[0].start :]}"
    end = items[at - 1].end
    return f"{text[:end]}, {written}{text[end:]}"


_GAP = re.compile(r"(?:[ \t\n]|#[^\n]*)*")


def _without_item(text: str, layout: Layout, path: KeyPath) -> str:
    place = layout.places[path]
    above = next(path[:k] for k in range(len(path) - 1, 0, -1) if path[:k] in layout.places)
    items = _items(layout, above)
    at = items.index(place)
    start, end = place.start, place.end
    gap = _GAP.match(text, end)
    comma = gap.end() if gap else end
    if text[comma] == ",":
        end = comma + 1
        alone = not text[_line_start(text, start) : start].strip()
        rest = re.compile(r"[ \t]*(?:#[^\n]*)?\n[ \t]*" if alone else r"[ \t]*").match(text, end)
        return text[:start] + text[rest.end() if rest else end :]
    text = text[:start].rstrip(" \t") + text[end:]
    if at:
        gap = _GAP.match(text, items[at - 1].end)
        comma = gap.end() if gap else items[at - 1].end
        text = text[:comma] + text[comma + 1 :]
    return text


def _without_lines(text: str, place: Place) -> str:
    """Without a key that has lines of its own, and the comments above it; those that head several keys stay."""
    start, end = _line_start(text, place.start), _line_end(text, place.end)
    lead = _lead(text, start)
    below = text[end : end + 1].strip()
    if text[:lead].endswith("\n\n") and below not in ("", "#", "["):
        lead = start
    return text[:lead] + text[end:]


def _line_start(text: str, at: int) -> int:
    return text.rfind("\n", 0, at) + 1


def _line_end(text: str, at: int) -> int:
    """After the newline of the line that ``at`` is in."""
    found = text.find("\n", at)
    return len(text) if found < 0 else found + 1


def _with_line(text: str, end: int, line: str) -> str:
    """One more line below the line that ends at or after ``end``; at 0 above everything but leading comments."""
    if end == 0:
        start = _lead(text, next((h.start for h in Layout.of(text).headers[1:]), len(text)))
        below = text[start:]
        above = text[:start].rstrip("\n")
        return f"{above}\n\n{line}\n\n{below}" if above else f"{line}\n\n{below}" if below else f"{line}\n"
    after = _line_end(text, end)
    return f"{text[:after]}{'' if text[:after].endswith(chr(10)) else chr(10)}{line}\n{text[after:]}"


def _lead(text: str, at: int) -> int:
    """Where the comments begin that stand directly above a line; the opening of a document is no such comment."""
    start = at
    while start:
        above = _line_start(text, start - 1)
        if not text[above : start - 1].lstrip().startswith("#"):
            return start
        start = above
    return at


def _with_section(text: str, layout: Layout, path: KeyPath, value: Mapping[str, Any]) -> str:
    """One more section, after those of its kind, or where the order of a document has it."""
    names = [part for part in path if isinstance(part, str)]
    brackets = ("[[", "]]") if isinstance(path[-1], int) else ("[", "]")
    lines = [
        f"{brackets[0]}{'.'.join(map(_key, names))}{brackets[1]}",
        *(f"{_key(k)} = {toml(v)}" for k, v in value.items()),
    ]
    at = _place_of(text, layout, path)
    above, below = text[:at].rstrip("\n"), text[at:].lstrip("\n")
    block = "\n".join(lines)
    return f"{f'{above}{chr(10)}{chr(10)}' if above else ''}{block}\n{f'{chr(10)}{below}' if below else ''}"


def _place_of(text: str, layout: Layout, path: KeyPath) -> int:
    headers: tuple[Header, ...] = layout.headers
    within = [i for i, each in enumerate(headers) if each.path and each.path[: len(path)] == path]
    if within:  # a section whose parts are written already
        return _lead(text, headers[within[0]].start)
    kin = [i for i, each in enumerate(headers) if each.path[: len(path) - 1] == path[:-1] and each.path]
    if len(path) == 1 or not kin:
        kin = [i for i, each in enumerate(headers) if not each.path or _rank(each.path) <= _rank(path)]
    after = kin[-1] + 1
    return _lead(text, headers[after].start) if after < len(headers) else len(text)


def _rank(path: KeyPath) -> int:
    return SECTIONS.index(path[0]) if path[0] in SECTIONS else len(SECTIONS)
