"""JSON with its numbers as they are written, keys that are written twice, and the line where each key stands."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from ...errors import InvalidArgument
from ...privacy import exact
from .faults import Faults

_SHOWN = 40
_PARTS = 5


class Number(str):
    """A JSON number as it is written, told from a JSON string by its type."""

    __slots__ = ()


class Object(dict[str, Any]):
    """A JSON object that knows which of its keys were written twice."""

    repeated: frozenset[str] = frozenset()

    @classmethod
    def of(cls, pairs: Sequence[tuple[str, Any]]) -> Object:
        """The object of these pairs."""
        made, seen = cls(pairs), set[str]()
        made.repeated = frozenset(k for k, _ in pairs if k in seen or seen.add(k))
        return made


class Unfit(Exception):
    """A value is not what it must be; ``words`` say what that is."""

    def __init__(self, words: str) -> None:
        super().__init__(words)
        self.words = words


def parse(text: str, file: str, faults: Faults) -> Object | None:
    """The object that a text holds; None, and the mistake, where it holds none."""
    try:
        document = json.loads(
            text, parse_float=Number, parse_int=Number, parse_constant=Number, object_pairs_hook=Object.of
        )
    except json.JSONDecodeError as error:
        faults.add(file, f"this is not JSON: {error.msg} (character {error.colno})", error.lineno)
        return None
    except RecursionError:
        faults.add(file, "this is not a config: brackets are nested too deeply")
        return None
    if not isinstance(document, Object):
        faults.add(file, "this is not a config: it must be one JSON object, { ... }", 1)
        return None
    return document


def line_of(text: str, key: str, within: str | None = None) -> int | None:
    """The line where a key stands, ``within`` the value of another one; None where it is nowhere."""
    start = 0
    for name in (within, key) if within is not None else (key,):
        found = re.compile(rf"{re.escape(json.dumps(name))}\s*:").search(text, start)
        if found is None:
            return None
        start = found.start()
    return text.count("\n", 0, start) + 1


def fraction(value: Any, words: str) -> Fraction:
    """A JSON number as an exact fraction.

    Raises:
        Unfit: it is something else, in which case it must be what ``words`` say.

    >>> fraction(Number("0.1"), "a share")
    Fraction(1, 10)
    """
    if not isinstance(value, Number):
        raise Unfit(words)
    try:
        return exact(str(value))
    except InvalidArgument:
        finite = value.lstrip("-").isascii() and value.lstrip("-")[0].isdigit()
        raise Unfit("a number of fewer digits" if finite else "a finite number") from None


def whole(value: Any) -> int | None:
    """A JSON number that is whole, and written so, with at most 18 digits; None for all else.

    >>> whole(Number("-7")), whole(Number("7.0")), whole("7"), whole(True)
    (-7, None, None, None)
    """
    if isinstance(value, Number) and re.fullmatch(r"-?\d{1,18}", value, re.ASCII):
        return int(value)
    return None


def shown(value: Any) -> str:
    """A JSON value for a message, at most 40 letters of it.

    >>> print(shown(None), shown(True), shown("a"), shown(Number("1e5")), shown([Number("1"), None, [], Object()]))
    null true "a" 1e5 [1, null, [...], {...}]
    """
    if isinstance(value, list):
        text = f"[{', '.join(map(_part, value[:_PARTS]))}{', ...' if len(value) > _PARTS else ''}]"
    else:
        text = "an object" if isinstance(value, Object) else _part(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def _part(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return str(value) if isinstance(value, Number) else f'"{value}"'
    return "[...]" if isinstance(value, list) else "{...}"
