"""Collecting every mistake of a document, each with its path, its line and the remedy."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from ..errors import Problem, SpecError
from .lines import KeyLines, KeyPath

Section = TypeVar("Section", bound=BaseModel)

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
        """Record a mistake at ``path``."""
        self._found.append(Problem(written(path), message, self._lines.of(path)))
        self._paths.add(tuple(path))

    def told(self, path: KeyPath) -> bool:
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
        """Raise what was found as one error.

        Raises:
            SpecError: there is at least one problem.
        """
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
    """One pydantic error in the words of this document."""
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
