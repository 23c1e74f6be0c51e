"""The form beside the text: what it shows of a document.

Keys are those of the models that read a spec, so that the form has every key that a spec may have. A few sections have
controls of their own besides: what values an attribute has, how a table asks it, edges and groups of a recode.
"""

from __future__ import annotations

import csv
import tomllib
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from ..spec.areas import (
    AreaTargetEntry,
    BoundEntry,
    ColumnEntry,
    EarlierEntry,
    GeographySection,
    QueryEntry,
    ZeroEntry,
)
from ..spec.groups import DetailedSection, LevelEntry
from ..spec.problems import KeyPath, written
from ..spec.series import SeriesSection
from ..spec.shape import (
    AttributeEntry,
    DerivedEntry,
    InvariantEntry,
    MethodSection,
    PrivacySection,
    RecodeEntry,
    ReleaseSection,
    ReliabilitySection,
    SourceSection,
    TableEntry,
    ValueEntry,
)
from .document import toml

DOMAINS = {
    "categories": ("the values listed here", "lines"),
    "range": ("whole numbers from … to …", "numbers"),
    "codes": ("codes of a list, a CSV file", "text"),
    "bins": ("classes of numbers", "numbers"),
    "years": ("years of a date", "numbers"),
    "quarters": ("quarters of a date", "names"),
    "months": ("months of a date", "names"),
    "any": ("whether some record of the unit …", "text"),
    "count": ("how many records of the unit …", "text"),
    "first": ("the first record of the unit that …", "text"),
}
"""What the values of an attribute are: its key, words, and the control of the key."""

_QUERIES = {"identity": "each value", "ranges": "all ranges", "prefix": "up to each value", "total": "total"}
_HINTS = {
    "unit": "whom the promise is made to",
    "categories": "One value a line, from public sources: rows are published for these, whoever is in the records.",
    "range": "Lowest and highest, as in 0, 114. Public: not the ends that the records have.",
    "codes": "A CSV file with the columns code and label. It is published.",
    "bins": "Where each class begins, as in 0, 18, 65.",
    "edges": "Where each class after the first begins, as in 5, 10, 15.",
    "budget": 'rho or epsilon, exact: 1/2. "targets" asks the plan for the smallest.',
    "margin": "No interval is wider than ± this, in counts.",
    "rmse": "Or: the root mean squared error, in counts.",
    "ledger": "The account of what is spent.",
    "reason": "Why these counts may be exact; the report prints it.",
    "rows_per_unit": "The most records of one unit that are counted; noise grows with it.",
    "weight": "How much the table matters beside the others.",
    "counts": "Records (rows), or the units that they are of.",
    "measures": 'As in ["count", { sum = "income" }]: counts where it is not set.',
    "survey_weight": "The value that says for how many each record stands.",
    "estimate": 'Of tables "least-squares", of areas "topdown", of groups "two-stage"; of all "posterior", say.',
    "select": '"auto" looks at all methods.',
    "url": "postgresql://user@host/database, without a password.",
    "detailed.codes": 'The attributes that hold the codes of groups: ["origin1", "origin2"].',
    "detailed.counts": "A public file of earlier counts, which choose the tables and cost nothing.",
    "detailed.tables": 'From coarse to fine: [["total"], ["sex"], ["sex", "age4"]].',
    "detailed.budget": "What this level spends, exact, as in 1/2.",
    "detailed.nowhere": 'Labels that are no region: { county = ["abroad"] }.',
    "geography.shares": 'What each level has of the budget, { nation = "1/2", block = "1/2" }, or "auto".',
    "series.reason": "Why it follows that release; the report prints it.",
    "earlier.release": "The folder of the earlier release.",
    "earlier.columns": 'Where its columns have other names: { tenure = "TEN" }.',
    "earlier.rows": 'Which of its rows alone: { tenure = ["own"] }.',
    "follows": "The folder of the release that this one follows.",
}
"""What is said below a control: by its key, or by its section and key."""

_AS_TOML = "It has no control of its own: written as in the text, with words in quotes, lists in [ ] and pairs in { }."


class Mistake(ValueError):
    """What was put into a control, and cannot be taken."""


@dataclass(frozen=True)
class Control:
    """One control: the key that it changes, and what it shows.

    ``kind`` is ``text``, ``long``, ``number``, ``choice``, ``flag``, ``names``, ``numbers``, ``lines``, ``members``,
    ``toml`` or ``group``; a group has ``parts``. ``op`` is what a change of it does.
    """

    path: KeyPath
    label: str
    kind: str
    value: Any = ""
    choices: tuple[tuple[str, str], ...] = ()
    parts: tuple[Control, ...] = ()
    op: str = "set"

    @property
    def at(self) -> str:
        return written(self.path)

    @property
    def hint(self) -> str:
        key = str(self.path[-1])
        found = _HINTS.get(f"{self.path[0]}.{key}") or _HINTS.get(key)
        return found or (_AS_TOML if self.kind == "toml" else "")


@dataclass(frozen=True)
class Strip:
    """The classes that edges cut a range into: first and last number of each."""

    path: KeyPath
    low: int
    high: int
    classes: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Entry:
    """One section, or one of a list: controls that are looked at first, and the others."""

    path: KeyPath
    heading: str
    summary: str = ""
    main: tuple[Control, ...] = ()
    more: tuple[Control, ...] = ()
    open: bool = False
    single: bool = False
    name: str = ""
    strip: Strip | None = None
    groups: tuple[tuple[str, str, str], ...] = ()

    @property
    def at(self) -> str:
        return written(self.path)


@dataclass(frozen=True)
class Adder:
    """What adds an entry: a name where it has one, and what it is a view of where there is a choice."""

    path: KeyPath
    words: str
    named: bool = False
    of: tuple[str, ...] = ()


@dataclass(frozen=True)
class Chapter:
    """A part of the form."""

    title: str
    words: str
    entries: tuple[Entry, ...]
    adders: tuple[Adder, ...] = ()


_MAIN: Mapping[str, tuple[str, ...]] = {
    "source": ("path", "url", "table", "unit", "unit_id", "rows_per_unit", "where"),
    "recodes": ("of", "edges", "level"),
    "values": ("column", "range", "step"),
    "privacy": ("definition", "budget", "delta", "neighbours", "ledger"),
    "table": ("name", "counts", "totals", "areas", "weight", "target"),
    "invariant": ("attributes", "level", "reason"),
    "derived": ("name", "sql"),
    "geography": ("column", "file", "levels", "entities", "shares"),
    "columns": ("join", "where", "then", "otherwise"),
    "query": ("attributes", "shares"),
    "bound": ("attributes", "file", "unlisted"),
    "earlier": ("release", "table", "attributes", "level"),
    "structural_zero": ("where",),
    "detailed": ("groups", "codes", "regions", "tables", "stage_one"),
    "level": ("region", "group_level", "budget", "target", "thresholds"),
    "method": ("select", "noise", "estimate"),
    "release": ("max_rows", "microdata"),
    "reliability": ("thresholds",),
    "series": ("follows", "kind", "reason"),
}
"""The keys that are looked at first, by kind of section."""

_ELSEWHERE: Mapping[str, tuple[str, ...]] = {
    "table": ("attributes", "queries"),
    "invariant": ("queries",),
    "geography": ("columns", "query"),
    "detailed": ("level",),
}
"""Keys with controls of their own."""


@dataclass(frozen=True)
class _Known:
    """Names that controls offer, of a document as parsed."""

    raw: Mapping[str, Any]
    opened: frozenset[str]
    folder: Path
    attributes: tuple[str, ...] = field(init=False)
    recodes: tuple[str, ...] = field(init=False)
    areas: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        geography = _dict(self.raw, "geography")
        named = [
            each for key in ("levels", "entities") for each in _list(geography, key) if isinstance(each, str)
        ]
        attributes = tuple(key for key in _dict(self.raw, "attributes") if key not in _POLICIES)
        for name, value in (
            ("attributes", attributes),
            ("recodes", tuple(_dict(self.raw, "recodes"))),
            ("areas", tuple(named)),
        ):
            object.__setattr__(self, name, value)

    def choices(self, path: KeyPath) -> tuple[str, ...]:
        """What the key at a path may name."""
        key, kind = path[-1], path[0]
        if key == "attributes":
            return (*self.attributes, *self.recodes)
        if key == "areas" or (key == "level" and kind in ("invariant", "earlier")):
            return self.areas
        return self.attributes if key == "of" and kind == "recodes" else ()


NAMED: Mapping[KeyPath, type[BaseModel]] = {
    ("attributes",): AttributeEntry,
    ("recodes",): RecodeEntry,
    ("values",): ValueEntry,
    ("geography", "columns"): ColumnEntry,
}
"""Sections of entries that have names."""

_LISTS: Mapping[KeyPath, type[BaseModel]] = {
    ("table",): TableEntry,
    ("invariant",): InvariantEntry,
    ("derived",): DerivedEntry,
    ("geography", "query"): QueryEntry,
    ("bound",): BoundEntry,
    ("structural_zero",): ZeroEntry,
    ("earlier",): EarlierEntry,
    ("detailed", "level"): LevelEntry,
}
_SINGLE: Mapping[KeyPath, type[BaseModel]] = {
    ("source",): SourceSection,
    ("privacy",): PrivacySection,
    ("geography",): GeographySection,
    ("detailed",): DetailedSection,
    ("method",): MethodSection,
    ("release",): ReleaseSection,
    ("reliability",): ReliabilitySection,
    ("series",): SeriesSection,
}


@dataclass(frozen=True)
class _Part:
    """A chapter of any document: its sections, in their order, and what can be added.

    ``beside`` is a section without which nothing can be added; beside ``never`` the chapter is left out.
    """

    title: str
    words: str
    sections: tuple[KeyPath, ...]
    adders: tuple[Adder, ...] = ()
    beside: str = ""
    never: str = ""


_CHAPTERS = (
    _Part("Records", "Where they are, and whom the promise is about.", (("title",), ("source",))),
    _Part(
        "Attributes",
        "What is counted, and every value that it may have. Values must be public: a table has a row for each of "
        "them, whoever is in the records, so that its rows tell nothing of anybody.",
        (("attributes",),),
        (Adder(("attributes",), "attribute", named=True),),
    ),
    _Part(
        "Recodes",
        "Coarser views of an attribute, by edges or by groups of labels.",
        (("recodes",),),
        (Adder(("recodes",), "recode", named=True),),
    ),
    _Part("Promise", "What is promised to each unit, and what it may cost.", (("privacy",),)),
    _Part(
        "Tables",
        "What is published. Attributes that are not picked are counted together.",
        (("table",),),
        (Adder(("table",), "table", named=True),),
        never="detailed",
    ),
    _Part(
        "Exact counts",
        "Published as they are, without noise: the promise does not cover what they tell. Each needs a reason.",
        (("invariant",),),
        (Adder(("invariant",), "exact count"),),
        never="detailed",
    ),
    _Part(
        "Sums and figures",
        "Numbers of a record of which sums and means are published; shares, medians and differences of counts.",
        (("values",), ("derived",)),
        (Adder(("values",), "value", named=True), Adder(("derived",), "figure", named=True)),
    ),
    _Part(
        "Earlier releases",
        "Counts that an earlier release published, and that these are to equal.",
        (("earlier",),),
        (Adder(("earlier",), "earlier release"),),
        never="detailed",
    ),
    _Part(
        "Areas",
        "Levels from the whole down to blocks, and areas across them.",
        (("geography",), ("geography", "columns"), ("geography", "query"), ("bound",), ("structural_zero",)),
        (
            Adder(("geography", "columns"), "made column", named=True),
            Adder(("geography", "query"), "query"),
            Adder(("bound",), "bound"),
            Adder(("structural_zero",), "structural zero"),
        ),
        beside="geography",
    ),
    _Part(
        "Detailed groups",
        "Very many small groups, each in as much detail as it can afford, in place of tables.",
        (("detailed",), ("detailed", "level")),
        (Adder(("detailed", "level"), "level"),),
        beside="detailed",
    ),
    _Part("Method and limits", "", (("method",), ("release",), ("reliability",), ("series",))),
)


def chapters(text: str, opened: Iterable[str], folder: Path) -> tuple[Chapter, ...]:
    """What the form shows of a document.

    Args:
        text: a valid TOML document; what it means may be mistaken.
        opened: entries, by their paths as written, that show their controls.
        folder: what paths in the document are relative to; public code lists and maps are read from it.
    """
    known = _Known(tomllib.loads(text), frozenset(opened), folder)
    return tuple(
        Chapter(
            plan.title,
            plan.words,
            tuple(entry for path in plan.sections for entry in _section(known, path)),
            tuple(
                replace(each, of=known.attributes) if each.path == ("recodes",) else each
                for each in plan.adders
                if not plan.beside or _dict(known.raw, plan.beside)
            ),
        )
        for plan in _CHAPTERS
        if not _dict(known.raw, plan.never)
    )


def _section(known: _Known, path: KeyPath) -> Iterator[Entry]:
    """The entries of a section."""
    held = value_at(known.raw, path)
    if path == ("title",):
        title = Control(path, "title", "text", _shown(held, "text"))
        yield Entry(path, "Title", single=True, open=True, main=(title,))
    elif path in _SINGLE:
        yield _single(known, path, _SINGLE[path])
    elif path in _LISTS:
        for i in range(len(held) if isinstance(held, list) else 0):
            yield _entry(known, (*path, i), _LISTS[path], "")
    else:
        if path == ("attributes",):
            yield _policies(known, path)
        for name in held if isinstance(held, dict) else ():
            if path != ("attributes",) or name not in _POLICIES:
                yield _entry(known, (*path, name), NAMED[path], name)


def _dict(raw: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = raw.get(key)
    return found if isinstance(found, dict) else {}


def _list(raw: Mapping[str, Any], key: str) -> Sequence[Any]:
    found = raw.get(key)
    return found if isinstance(found, list) else ()


def value_at(raw: Any, path: KeyPath) -> Any:
    """What stands at a path, None where nothing does."""
    for part in path:
        try:
            raw = raw[part]
        except (KeyError, IndexError, TypeError):
            return None
    return raw


def _single(known: _Known, path: KeyPath, model: type[BaseModel]) -> Entry:
    """A section of its own."""
    main, more = _controls(known, path, model)
    summary = "" if value_at(known.raw, path) is not None else "not in the spec"
    opened = written(path) in known.opened
    return Entry(path, str(path[-1]).capitalize(), summary, main, more, open=opened, single=True)


_POLICIES = {"unknown": "a value that is not listed", "null": "a missing value"}


def _policies(known: _Known, path: KeyPath) -> Entry:
    """What becomes of values that no attribute lists."""
    offered = (("refuse", "refuse"), ("other", "other"))
    made = tuple(
        Control((*path, key), said, "choice", _shown(value_at(known.raw, (*path, key)), "choice"), offered)
        for key, said in _POLICIES.items()
    )
    opened = written(path) in known.opened
    return Entry(path, "Unlisted and missing values", main=made, open=opened, single=True)


def _entry(known: _Known, path: KeyPath, model: type[BaseModel], name: str) -> Entry:
    held = value_at(known.raw, path)
    held = held if isinstance(held, dict) else {}
    heading = name or str(held.get("name") or f"{str(path[-2]).replace('_', ' ')} {int(path[-1]) + 1}")
    summary = _summary(path, held)
    if written(path) not in known.opened:
        return Entry(path, heading, summary)
    main, more = _controls(known, path, model)
    if path[0] == "attributes":
        main = (_domain(path, held), *main)
    elif path[0] == "table":
        main = (main[0], *_asked(known, path, held), *main[1:])
    strip, groups = (_strip(known, path, held), _groups(known, held)) if path[0] == "recodes" else (None, ())
    return Entry(path, heading, summary, main, more, open=True, name=name, strip=strip, groups=groups)


def _summary(path: KeyPath, held: Mapping[str, Any]) -> str:
    """An entry in a few words."""
    if path[0] == "attributes":
        found = next((key for key in DOMAINS if key in held), "")
        value = held.get(found)
        told = f"{len(value)} values" if found == "categories" and isinstance(value, list) else _line(value)
        return f"{found.replace('categories', '')} {told}".strip() if found else "to be finished"
    if path[0] == "recodes":
        return f"of {held.get('of')}"
    names = [
        *map(str, _list(held, "attributes")),
        *(f"{k} {_line(v)}" for k, v in _dict(held, "queries").items()),
    ]
    if "sql" in held:
        return "in SQL"
    return " × ".join(names) or ("the total" if "attributes" in held else "")


def _line(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value[:3])) + (" …" if len(value) > 3 else "")
    return "" if value is None else toml(value) if isinstance(value, dict) else str(value)


def _sort(path: KeyPath) -> str:
    """Which kind of section stands at a path: the name of the list or section that it is of."""
    of_many = isinstance(path[-1], int) or path[:-1] in NAMED
    return str(path[-2] if of_many else path[-1])


def _controls(
    known: _Known, path: KeyPath, model: type[BaseModel]
) -> tuple[tuple[Control, ...], tuple[Control, ...]]:
    """The controls of a section: those that are looked at first, with what is written, and the others."""
    held, sort = value_at(known.raw, path), _sort(path)
    held = held if isinstance(held, dict) else {}
    skipped = set(_ELSEWHERE.get(sort, ())) - (held.keys() if sort == "invariant" else set())
    if sort == "attributes":
        skipped = set(DOMAINS) - held.keys()
    elif sort in ("table", "invariant", "earlier") and not known.areas:
        skipped |= {"areas", "level"} - held.keys()
    first = ("column", *DOMAINS) if sort == "attributes" else _MAIN.get(sort, ())
    main, more = [], []
    for key in dict.fromkeys((*first, *model.model_fields)):
        if key in model.model_fields and key not in skipped:
            annotation = model.model_fields[key].annotation
            if (sort, key) == ("table", "target") and known.areas:
                annotation = AreaTargetEntry
            control = _control(known, (*path, key), annotation, held.get(key))
            (main if key in first or key in held else more).append(control)
    unknown = [key for key in held if key not in model.model_fields and key not in skipped]
    kinds = {"todo": "todo"}
    main += [Control((*path, key), key, kinds.get(key, "toml"), toml(held[key])) for key in unknown]
    return tuple(main), tuple(more)


_FOLDERS = ("release", "follows")
"""Keys that name a folder; in a published copy they hold what tells a release from others."""


def _control(known: _Known, path: KeyPath, annotation: Any, value: Any) -> Control:
    """The control that fits the type of a key; where what is written does not fit, the value as TOML."""
    label = str(path[-1]).replace("_", " ")
    if path[0] == "attributes" and path[-1] in DOMAINS:
        kind, model, listed = DOMAINS[str(path[-1])][1], None, ()
    elif path[-1] in _FOLDERS and not isinstance(value, dict):
        kind, model, listed = "text", None, ()
    else:
        kind, model, listed = _kind(annotation)
    names = known.choices(path)
    if path[-1] == "sql":
        kind = "long"
    if names and kind in ("names", "text"):
        kind = {"names": "members", "text": "choice"}[kind]
    if path[-1] == "totals" and (value is None or value is True):
        kind = "flag"
    if model is not None and (value is None or isinstance(value, dict)):
        parts = tuple(
            _control(known, (*path, key), each.annotation, (value or {}).get(key))
            for key, each in model.model_fields.items()
        )
        return Control(path, label, "group", parts=parts)
    if value is not None and not _fits(kind, value):
        kind = "toml"
    if kind == "members":
        picked = tuple(value) if isinstance(value, list) else ()
        every = dict.fromkeys((*names, *picked))
        return Control(path, label, kind, picked, tuple((name, name) for name in every), op="member")
    if kind == "choice":
        listed = tuple(dict.fromkeys((*(names or listed), *((value,) if value is not None else ()))))
    return Control(path, label, kind, _shown(value, kind), tuple((str(name), str(name)) for name in listed))


def _kind(annotation: Any) -> tuple[str, type[BaseModel] | None, tuple[Any, ...]]:
    """The control for a type; the model of a section within; the words of a choice."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in (Union, types.UnionType):
        inner = [each for each in get_args(annotation) if each is not type(None)]
        if len(inner) != 1:
            return "toml", None, ()
        return _kind(inner[0])
    if get_origin(annotation) is Literal:
        return "choice", None, get_args(annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "toml", annotation, ()
    if get_origin(annotation) is list:
        inner_kind = _kind(get_args(annotation)[0])[0]
        return {"text": "names", "number": "numbers"}.get(inner_kind, "toml"), None, ()
    simple = {bool: "flag", str: "text", int: "number", float: "number"}
    return simple.get(annotation, "toml"), None, ()


def _fits(kind: str, value: Any) -> bool:
    if kind in ("text", "long", "choice"):
        return isinstance(value, str)
    if kind == "flag":
        return isinstance(value, bool)
    if kind == "number":
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind in ("names", "members"):
        return isinstance(value, list) and all(
            isinstance(v, str) and v == v.strip() and "," not in v for v in value
        )
    if kind == "numbers":
        return isinstance(value, list) and all(
            isinstance(v, int | str) and not isinstance(v, bool) for v in value
        )
    if kind == "lines":
        return isinstance(value, list) and all(isinstance(v, int | str) and "\n" not in str(v) for v in value)
    return True


def _shown(value: Any, kind: str) -> str:
    """A value as its control shows it."""
    if value is None:
        return ""
    if kind == "flag":
        return "on" if value is True else ""
    if kind in ("names", "numbers"):
        return ", ".join(map(str, value))
    if kind == "lines":
        return "\n".join(map(str, value))
    return toml(value) if kind == "toml" else str(value)


def _domain(path: KeyPath, held: Mapping[str, Any]) -> Control:
    """What kind of values an attribute has."""
    now = next((key for key in DOMAINS if key in held), "")
    choices = tuple((key, words) for key, (words, _) in DOMAINS.items())
    return Control(path, "its values are", "choice", now, choices, op="domain")


def _asked(known: _Known, path: KeyPath, held: Mapping[str, Any]) -> tuple[Control, ...]:
    """How a table asks each attribute and recode."""
    if "sql" in held:
        return ()
    attributes, queries = _list(held, "attributes"), _dict(held, "queries")
    parts = []
    for name in (*known.attributes, *known.recodes):
        query = "identity" if name in attributes else queries.get(name, "")
        offered = dict(_QUERIES)
        if value_at(known.raw, ("attributes", name, "hierarchy")):
            offered["hierarchy"] = "each code of the classification"
        if known.areas:
            offered = {"identity": offered["identity"]}
        value = query if isinstance(query, str) else toml(query)
        if value and value not in offered:
            offered[value] = value
        parts.append(
            Control((*path, "queries", name), name, "choice", value, tuple(offered.items()), op="ask")
        )
    return (Control((*path, "attributes"), "attributes", "group", parts=tuple(parts)),)


def _strip(known: _Known, path: KeyPath, held: Mapping[str, Any]) -> Strip | None:
    """The classes of a recode by edges."""
    ends = value_at(known.raw, ("attributes", str(held.get("of")), "range"))
    edges = held.get("edges")
    if not (
        isinstance(ends, list)
        and len(ends) == 2
        and all(isinstance(e, int) for e in ends)
        and ends[0] < ends[1]
    ):
        return None
    if not isinstance(edges, list) or not all(isinstance(e, int) and ends[0] < e <= ends[1] for e in edges):
        return None
    begins = [ends[0], *sorted(set(edges))]
    classes = zip(begins, [*(each - 1 for each in begins[1:]), ends[1]], strict=True)
    return Strip((*path, "edges"), ends[0], ends[1], tuple(classes))


_MOST_GROUPED = 500


def _groups(known: _Known, held: Mapping[str, Any]) -> tuple[tuple[str, str, str], ...]:
    """Values of the attribute of a recode, their labels, and the class that its map gives each."""
    attribute = value_at(known.raw, ("attributes", str(held.get("of"))))
    if not isinstance(attribute, dict):
        return ()
    if isinstance(attribute.get("codes"), str):
        pairs = [
            (row.get("code", ""), row.get("label", "")) for row in _rows(known.folder / attribute["codes"])
        ]
    else:
        pairs = [(str(value), str(value)) for value in _list(attribute, "categories")]
    classes = {}
    if isinstance(held.get("map"), str):
        classes = {
            row.get("code", ""): row.get("label") or row.get("class", "")
            for row in _rows(known.folder / held["map"])
        }
    return tuple((code, label, classes.get(code) or "") for code, label in pairs[:_MOST_GROUPED] if code)


def _rows(path: Path) -> list[dict[str, str]]:
    """The rows of a public CSV file; nothing where there is none to read."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error):
        return []


def map_of(groups: Mapping[str, str]) -> str:
    """A map as a file: the class that each value is in; a value without one is in a class of its own.

    >>> print(map_of({"a": "north", "b": "north", "c": ""}), end="")
    code,class,label
    a,north,north
    b,north,north
    c,c,c
    """
    out = StringIO()
    rows = [(code, name.strip() or code) for code, name in groups.items()]
    csv.writer(out, lineterminator="\n").writerows(
        [("code", "class", "label"), *((c, n, n) for c, n in rows)]
    )
    return out.getvalue()
