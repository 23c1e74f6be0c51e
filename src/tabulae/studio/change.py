"""What the controls of the form change in the text."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from typing import Any

from ..spec.problems import KeyPath, Layout
from .document import put, remove, rename
from .form import DOMAINS, NAMED, Mistake, value_at

_NEW: Mapping[KeyPath, dict[str, Any]] = {
    ("attributes",): {"categories": []},
    ("recodes",): {"of": "", "edges": []},
    ("values",): {"range": []},
    ("geography", "columns"): {"join": []},
    ("geography", "query"): {"attributes": []},
    ("table",): {"attributes": []},
    ("invariant",): {"attributes": [], "reason": ""},
    ("derived",): {"sql": ""},
    ("bound",): {"attributes": [], "file": ""},
    ("earlier",): {"release": "", "table": "", "attributes": [], "level": ""},
    ("structural_zero",): {"where": ""},
    ("detailed", "level"): {"region": "", "group_level": 1},
}
"""What an entry begins with; what is empty is told as a mistake until it is filled."""

_Op = Callable[[str, KeyPath, Any], str]


def change(text: str, op: str, path: KeyPath, value: Any) -> str:
    """The text after a control was used.

    Raises:
        Mistake: the control holds what cannot be taken, or there is no such control.
    """
    if op not in _OPS or not path:
        raise Mistake("there is no such control")
    tomllib.loads(text)  # what is no TOML is refused as that
    try:
        after = _OPS[op](text, path, value)
        tomllib.loads(after)
    except Mistake:
        raise
    except (KeyError, IndexError, TypeError, AttributeError, ValueError, RecursionError):
        raise Mistake("the text has no such place") from None
    return after


def _set(text: str, path: KeyPath, value: Any) -> str:
    """A key with what its control holds; nothing in it removes the key."""
    kind, given = value["kind"], value["value"]
    if kind == "flag":
        return put(text, path, value=True) if given else _cleared(text, path)
    if not given.strip():
        return _cleared(text, path)
    return _without_rivals(put(text, path, _read(kind, given, value_at(tomllib.loads(text), path))), path)


_RIVALS = (("edges", "map", "level"), ("sql", "attributes"), ("join", "where", "occurs"))
"""Keys of which an entry has one: what it began with goes, if it is still empty, when another is filled."""


def _without_rivals(text: str, path: KeyPath) -> str:
    for keys in _RIVALS:
        for other in keys if path[-1] in keys else ():
            if other != path[-1] and value_at(tomllib.loads(text), (*path[:-1], other)) == []:
                text = remove(text, (*path[:-1], other))
    return text


def _cleared(text: str, path: KeyPath) -> str:
    """Without a key, and without what it was alone in, where that means nothing when empty."""
    text = remove(text, path) if value_at(tomllib.loads(text), path) is not None else text
    above = path[:-1]
    if (
        len(above) > 1
        and above in Layout.of(text).places
        and value_at(tomllib.loads(text), above) == {}
        and above[:-1] not in NAMED
    ):
        return remove(text, above)
    return text


_WHOLE = re.compile(r"[+-]?(0|[1-9][0-9]*)")


def _read(kind: str, given: str, held: Any) -> Any:
    """What a control holds as a value."""
    given = given.replace("\r\n", "\n").strip()
    if kind == "number":
        try:
            return int(given) if _WHOLE.fullmatch(given) else float(given)
        except ValueError:
            raise Mistake(f"{given!r} is no number") from None
    if kind in ("names", "numbers"):
        parts = [part.strip() for part in given.split(",") if part.strip()]
        return [int(part) if kind == "numbers" and _WHOLE.fullmatch(part) else part for part in parts]
    if kind == "lines":
        lines = [line.strip() for line in given.split("\n") if line.strip()]
        words = isinstance(held, list) and held and isinstance(held[0], str)
        whole = not words and all(_WHOLE.fullmatch(line) for line in lines)
        return [int(line) if whole else line for line in lines]
    if kind == "toml":
        try:
            return tomllib.loads(f"value = {given}")["value"]
        except tomllib.TOMLDecodeError as error:
            raise Mistake(f'{error}: text stands in quotes, as in "text"') from None
    return given


def _add(text: str, path: KeyPath, value: Any) -> str:
    name, of = str(value.get("name", "")).strip(), str(value.get("of", ""))
    raw, new = tomllib.loads(text), dict(_NEW[path])
    held = value_at(raw, path)
    if "geography" not in raw:
        new.pop("level", None)
    if path in NAMED:
        if not name or name in (held or {}):
            raise Mistake("give it a name of its own")
        return put(text, (*path, name), new | ({"of": of} if "of" in new else {}))
    if path in (("table",), ("derived",)):
        if not name:
            raise Mistake("give it a name: it names the published file")
        new = {"name": name} | new
    return put(text, (*path, len(held or [])), new)


def _remove(text: str, path: KeyPath, _: Any) -> str:
    return remove(text, path)


def _rename(text: str, path: KeyPath, value: Any) -> str:
    """Another name of an attribute or a recode, where it is declared and in the keys that name it."""
    old, new = path[-1], str(value["value"]).strip()
    if not new or new == old:
        return text
    if new in (value_at(tomllib.loads(text), path[:-1]) or {}):
        raise Mistake(f"there is a {new!r} already")
    text = rename(text, path, new)
    layout, document = Layout.of(text), tomllib.loads(text)
    for found in reversed(
        [p for p in layout.places if p[0] in ("recodes", "table", "invariant", "geography", "bound")]
    ):
        listed = any(key in found for key in ("attributes", "totals")) and isinstance(found[-1], int)
        if (listed or (found[0] == "recodes" and found[-1] == "of")) and value_at(document, found) == old:
            text = put(text, found, new)
        elif found[-1] == old and found[-2:-1] == ("queries",):
            text = rename(text, found, new)
    return text


def _choose_domain(text: str, path: KeyPath, value: Any) -> str:
    """Another kind of values for an attribute: its key is written empty, to be filled."""
    key = value["value"]
    if key not in DOMAINS:
        return text
    held = value_at(tomllib.loads(text), path)
    for old in (*DOMAINS, "todo", "open", "labels", "hierarchy", "outside", "format"):
        if old in held and old != key:
            text = remove(text, (*path, old))
    if key not in held:
        empty: Any = "" if DOMAINS[key][1] == "text" else []
        text = put(text, (*path, key), empty)
    if key in ("any", "count", "first") and held.get("of") != "unit":
        text = put(text, (*path, "of"), "unit")
    return text


def _ask(text: str, path: KeyPath, value: Any) -> str:
    """How a table asks an attribute: not, each value, or by a query."""
    table, name, query = path[:-2], path[-1], value["value"]
    held = value_at(tomllib.loads(text), table)
    listed, queries = list(held.get("attributes", [])), held.get("queries", {})
    if name in queries and query != queries[name]:
        text = _cleared(text, path)
    if query == "identity" and name not in listed:
        text = put(text, (*table, "attributes"), [*listed, name])
    elif query != "identity":
        rest = [each for each in listed if each != name]
        if query:
            asked = _read("toml", query, None) if query.startswith("{") else query
            text = put(text, path, asked)
            if rest != listed:
                text = (
                    put(text, (*table, "attributes"), rest) if rest else remove(text, (*table, "attributes"))
                )
            elif not rest and "attributes" in held:
                text = remove(text, (*table, "attributes"))
        elif rest != listed or not value_at(tomllib.loads(text), (*table, "queries")):
            text = put(text, (*table, "attributes"), rest)
    return text


def _member(text: str, path: KeyPath, value: Any) -> str:
    """A name in or out of a list."""
    listed = list(value_at(tomllib.loads(text), path) or [])
    rest = [each for each in listed if each != value["name"]]
    now = [*rest, value["name"]] if value["value"] else rest
    return put(text, path, now) if now or path[-1] == "attributes" else _cleared(text, path)


def _percent(text: str, path: KeyPath, value: Any) -> str:
    """A margin as a share of a count: within 5 % where there are 500."""
    share, count = (_read("number", str(value[name]) or "?", None) for name in ("share", "count"))
    margin = share * count / 100
    if not margin > 0:
        raise Mistake("both must be more than 0")
    return put(text, path, int(margin) if float(margin).is_integer() else margin)


def _edge(text: str, path: KeyPath, value: Any) -> str:
    """One more edge, or one less where there was one."""
    edges, at = set(value_at(tomllib.loads(text), path) or []), int(value["at"])
    return put(text, path, sorted(edges ^ {at}))


_OPS: Mapping[str, _Op] = {
    "set": _set,
    "add": _add,
    "remove": _remove,
    "rename": _rename,
    "domain": _choose_domain,
    "ask": _ask,
    "member": _member,
    "percent": _percent,
    "edge": _edge,
}
