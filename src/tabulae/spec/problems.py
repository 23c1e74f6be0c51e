"""Where each key of a TOML document stands.

``tomllib`` gives values and forgets where they were written. This scanner reads the same text a second
time, skips the values, and keeps the line of every key, so that a mistake found later, by whatever check,
can be shown where its author will look for it. It trusts ``tomllib`` to have accepted the text before.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import re
import tomllib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from ..errors import InvalidArgument, Problem, SpecError, Unsupported

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


@dataclass(frozen=True)
class Place:
    """Where a key with a value, or an element of an array, stands in a text, as offsets.

    ``start`` to ``end`` is all of it; ``key`` is where the last part of its key is (nothing of an element), and
    ``value`` where its value begins. ``section`` is the header that it stands under; None inside of another value.
    """

    start: int
    key: tuple[int, int]
    value: int
    end: int
    section: KeyPath | None


@dataclass(frozen=True)
class Header:
    """A line ``[a.b]`` or ``[[a.b]]``, or what is above the first, of path ``()``; ``end`` is that of its last pair."""

    path: KeyPath
    start: int
    end: int


@dataclass(frozen=True)
class Layout:
    """Where everything of a valid document stands, so that a text can be changed at one place and kept elsewhere.

    >>> layout = Layout.of('[a]\\nb = { c = 1 } # why\\n')
    >>> place = layout.places["a", "b", "c"]
    >>> (place.start, place.end), layout.headers[1].path
    ((10, 15), ('a',))
    """

    places: Mapping[KeyPath, Place]
    headers: tuple[Header, ...]

    @classmethod
    def of(cls, text: str) -> Layout:
        scanner = _Scanner(text)
        scanner.scan()
        return cls(scanner.places, tuple(scanner.headers))


class _Scanner:
    """One pass over a valid document: positions of keys, headers and array elements."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self.lines: dict[KeyPath, int] = {}
        self.given: set[KeyPath] = set()  # keys with a value, and headers of single sections
        self.twice: tuple[KeyPath, int] | None = None  # the first of them that is written again, and where
        self.last: dict[KeyPath, int] = {}  # array of tables -> index of its latest element
        self.places: dict[KeyPath, Place] = {}
        self.headers = [Header((), 0, 0)]
        self.key = 0, 0  # where the last part of the latest key stands

    def scan(self) -> dict[KeyPath, int]:
        section: KeyPath = ()
        while (start := self.skip(_BLANK)) < len(self.text):
            if self.text[self.at] == "[":
                section = self.header()
                self.headers.append(Header(section, start, self.at))
            else:
                self.pair(section, section)
                self.headers[-1] = replace(self.headers[-1], end=self.at)
        return self.lines

    def skip(self, pattern: re.Pattern[str]) -> int:
        found = pattern.match(self.text, self.at)
        if found:
            self.at = found.end()
        return self.at

    def mark(self, path: KeyPath, at: int) -> None:
        """Remember the line of ``path``, first written at the offset ``at``."""
        self.lines.setdefault(path, bisect_right(self.starts, at))

    def give(self, path: KeyPath, at: int) -> None:
        """Remember that ``path`` is given at the offset ``at``, which a document may do once."""
        if path in self.given and self.twice is None:
            self.twice = path, bisect_right(self.starts, at)
        self.given.add(path)

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
        if brackets == 1:
            self.give(path, start)
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
            self.key = start, self.at
            self.skip(_SPACE)
            if self.text[self.at] != ".":
                return keys
            self.at += 1

    def pair(self, above: KeyPath, section: KeyPath | None) -> None:
        start = self.at
        path = above
        for key in self.keys():
            path += (key,)
            self.mark(path, start)
        self.give(path, start)
        key, self.at = self.key, self.at + 1  # the equals sign
        value = self.skip(_SPACE)
        self.value(path)
        self.places[path] = Place(start, key, value, self.at, section)

    def value(self, path: KeyPath) -> None:
        """Skip a value, entering arrays and inline tables."""
        opening = self.text[self.at]
        if opening in "\"'":
            self.skip(_STRING)
        elif opening in "[{":
            self.inside(path, "]" if opening == "[" else "}")
        else:
            start = self.at
            self.at = start + len(self.text[start : self.skip(_SCALAR)].rstrip())

    def inside(self, path: KeyPath, closing: str) -> None:
        """The elements of an array, or the pairs of an inline table."""
        self.at += 1
        position = 0
        while self.text[self.skip(_BLANK)] != closing:
            if self.text[self.at] == ",":
                self.at += 1
                continue
            if closing == "]":
                start = self.at
                self.mark((*path, position), start)
                self.value((*path, position))
                self.places[*path, position] = Place(start, (start, start), start, self.at, None)
                position += 1
            else:
                self.pair(path, None)
        self.at += 1


def written_twice(text: str) -> Problem | None:
    """The first key or section that a document gives twice, which TOML forbids; None where there is none.

    Arguments:
        text: the document up to where a reader of TOML refused it. What comes after may be anything.

    >>> print(written_twice('title = "a"\\n[source]\\npath = "b"\\npath = "c"\\n'))
    source.path (line 4): is written twice, first in line 3: remove one
    """
    scanner = _Scanner(f"{text}\n")
    with contextlib.suppress(IndexError, tomllib.TOMLDecodeError):  # it ends in the middle of something
        scanner.scan()
    if scanner.twice is None:
        return None
    path, line = scanner.twice
    message = f"is written twice, first in line {scanner.lines[path]}: remove one"
    return Problem(written(path), message, line)


Section = TypeVar("Section", bound=BaseModel)
Result = TypeVar("Result")

_TYPES = {
    "string": "a string",
    "int": "an integer",
    "float": "a number",
    "list": "an array",
    "dict": "a table of keys and values",
    "model": "a table of keys and values",
    "bool": "true or false",
}


class Problems:
    """The mistakes found so far, in the order of the document.

    >>> problems = Problems(KeyLines("[privacy]\\nbudget = '-1'\\n"))
    >>> problems.add(("privacy", "budget"), "must be greater than 0")
    >>> print(problems.found[0])
    privacy.budget (line 2): must be greater than 0
    """

    def __init__(self, lines: KeyLines) -> None:
        self._lines = lines
        self._found: list[Problem] = []
        self._paths: set[KeyPath] = set()

    @property
    def found(self) -> list[Problem]:
        """Every problem, by line; those that belong to no line come first."""
        return sorted(self._found, key=lambda problem: problem.line or 0)

    def add(self, path: KeyPath, message: str) -> None:
        self._found.append(Problem(written(path), message, self._lines.of(path)))
        self._paths.add(tuple(path))

    def add_unknown(self, path: KeyPath, what: str, name: object, known: Iterable[str]) -> None:
        """Record that there is no such thing, with the nearest that there is."""
        self.add(path, f"there is no {what} {shown(name)}; {nearest(str(name), known)}")

    def attempt(self, path: KeyPath, action: Callable[[], Result]) -> Result | None:
        """What ``action`` returns; None, with its reason recorded at ``path``, where it refuses."""
        try:
            return action()
        except (InvalidArgument, Unsupported) as error:
            self.add(path, str(error))
            return None

    def has(self, path: KeyPath) -> bool:
        """Whether a mistake at ``path``, or at something within it, is recorded."""
        return any(found[: len(path)] == tuple(path) for found in self._paths)

    def check(self, model: type[Section], raw: object, path: KeyPath) -> Section | None:
        """``raw`` as ``model``, with every reason why it is not one recorded.

        Keys that are wrong do not hide mistakes elsewhere: the section is read without them, a required one
        being None, and is returned for the checks that join sections. None where that leaves nothing to read.
        """
        section, details = _validated(model, raw)
        self._record(details, model, path)
        lost = False
        for whole in (False, True):  # without the wrong keys; and else without what they are inside
            if section is not None or not isinstance(raw, dict) or not all(d["loc"] for d in details):
                break
            raw, more = _without(raw, details, model, whole=whole)
            lost = lost or more
            section, details = _validated(model, raw)
            if not lost:  # or what is missed now may be what was left out
                self._record(details, model, path)
        return section

    def _record(self, details: list[ErrorDetails], model: type[BaseModel], path: KeyPath) -> None:
        for detail in details:
            self.add((*path, *detail["loc"]), _sentence(detail, model))

    def raise_any(self, source: str) -> None:
        """Raise what was found as one error."""
        if self._found:
            raise SpecError(self.found, source)


def written(path: KeyPath) -> str:
    """A path as a reader writes it; positions count from 0.

    >>> written(("table", 2, "attributes", 1))
    'table[2].attributes[1]'
    >>> written(("attributes", "a b", "range"))
    'attributes."a b".range'
    """
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            key = part if re.fullmatch(r"[\w-]+", part) else json.dumps(part, ensure_ascii=False)
            text += f".{key}" if text else key
    return text or "document"


def shown(value: object) -> str:
    """A value of the document in a message, cut at 60 characters.

    >>> shown("zcdp")
    '"zcdp"'
    """
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


class Taken:
    """Names of files and the entries that have them; some file systems do not tell "A" from "a".

    >>> taken = Taken()
    >>> taken.by("Ages", ("table", 0)), taken.by("ages", ("table", 1))
    (None, 'table[0] is named "Ages", and names must differ in more than capitals: rename one')
    """

    def __init__(self) -> None:
        self._first: dict[str, tuple[KeyPath, str]] = {}

    def by(self, name: str, path: KeyPath) -> str | None:
        """Give a name to the entry at ``path``, or say why another has it already."""
        before, earlier = self._first.setdefault(name.casefold(), (path, name))
        if before == path:
            return None
        if earlier == name:
            return f"{written(before)} is named {shown(name)} too: rename one"
        return f"{written(before)} is named {shown(earlier)}, and names must differ in more than capitals: rename one"


def listed(names: Iterable[object]) -> str:
    """Names in a message.

    >>> listed(["a", "b"])
    '"a", "b"'
    """
    return ", ".join(shown(name) for name in names)


def nearest(name: str, known: Iterable[str]) -> str:
    """What to say after an unknown name: the nearest known one, or all of them.

    >>> nearest("budgte", ["budget", "delta"])
    'did you mean "budget"?'
    >>> nearest("x", ["budget", "delta"])
    'known here: "budget", "delta"'
    """
    names = list(known)
    if close := difflib.get_close_matches(name.lower(), names, n=1):
        return f"did you mean {shown(close[0])}?"
    return f"known here: {listed(names)}" if names else "nothing is declared here"


def _validated(model: type[Section], raw: object) -> tuple[Section | None, list[ErrorDetails]]:
    try:
        return model.model_validate(raw), []
    except ValidationError as error:
        return None, error.errors(include_url=False)


def _section_at(model: type[BaseModel], path: Sequence[int | str]) -> type[BaseModel] | None:
    """The section that a section of kind ``model`` has at ``path``, None where it has something else there."""
    inner: type[BaseModel] | None = model
    for part in path:
        field = inner and inner.model_fields.get(str(part))
        kinds = (field.annotation, *get_args(field.annotation)) if field else ()
        inner = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)
    return inner


def _without(
    raw: dict[str, Any], details: list[ErrorDetails], model: type[BaseModel], *, whole: bool
) -> tuple[dict[str, Any], bool]:
    """A section without the keys that are wrong, a required one being None; and whether an optional one is lost.

    Of a section within it the wrong keys are left out, or ``whole`` sections.
    """
    rest, lost = deepcopy(raw), False
    for loc in (detail["loc"] for detail in details):
        sections = [_section_at(model, loc[:depth]) for depth in range(1 if whole else len(loc))]
        depth, fields = max((i, s.model_fields) for i, s in enumerate(sections) if s)
        inside, key = rest, str(loc[depth])
        for part in loc[:depth]:
            inside = inside[str(part)]
        if key in fields and fields[key].is_required():
            inside[key] = None
        else:
            inside.pop(key, None)
            lost |= key in fields
    return rest, lost


def _sentence(detail: ErrorDetails, model: type[BaseModel]) -> str:
    kind, value = detail["type"], detail["input"]
    key = str(detail["loc"][-1]) if detail["loc"] else ""
    context: dict[str, Any] = detail.get("ctx", {})
    around = _section_at(model, detail["loc"][:-1])
    if kind == "missing":
        about = around and around.model_fields[key].description
        return f"is missing: {about}" if about else "is missing"
    if kind == "extra_forbidden":
        return f"unknown key; {nearest(key, around.model_fields if around else ())}"
    if kind == "literal_error":
        return f"must be {context['expected'].replace(chr(39), chr(34))}, not {shown(value)}"
    base = kind.removesuffix("_type")
    if base in _TYPES and base != kind:
        return f"must be {_TYPES[base]}, not {shown(value)}"
    if kind == "finite_number":
        return f"must be a finite number, not {shown(value)}"
    if kind in ("greater_than", "greater_than_equal"):
        bound = f"greater than {context['gt']}" if "gt" in context else f"{context['ge']} or more"
        return f"must be {bound}, not {shown(value)}"
    if kind == "too_short" and context.get("actual_length") == 0:
        return "is empty: name at least one, or leave the key out"
    if kind == "less_than":
        return f"must be less than {context['lt']}, not {shown(value)}"
    return detail["msg"]


_TOLD = 5  # of one file: the rest are likely the same mistake


@dataclass
class FileMistakes:
    """Records mistakes of one file at the key that names it.

    Attributes:
        name: of the file, as the document writes it.
        unit: what its numbers count: "line" of text, or "row".
        path: the key that names it.
        problems: where mistakes are recorded.
        told: how many there are.
    """

    name: str
    unit: str
    path: KeyPath
    problems: Problems
    told: int = 0

    def tell(self, line: int | None, message: str) -> None:
        self.told += 1
        place = self.name if line is None else f"{self.name}, {self.unit} {line}"
        if self.told <= _TOLD:
            self.problems.add(self.path, f"{place}: {message}")
        elif self.told == _TOLD + 1:
            self.problems.add(self.path, f"{self.name}: further mistakes are not listed")
