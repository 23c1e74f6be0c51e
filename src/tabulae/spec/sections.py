"""A parsed document taken apart: each section on its own, so that a mistake in one hides none in another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .areas import (
    AUTO,
    AreaTargetEntry,
    BoundEntry,
    EarlierEntry,
    EarlierOfAreas,
    GeographySection,
    QueryEntry,
    ZeroEntry,
    read_area_targets,
)
from .groups import DetailedSection, LevelEntry
from .problems import Problems, Section, nearest, shown
from .shape import (
    AttributeEntry,
    DerivedEntry,
    InvariantEntry,
    MethodSection,
    Policy,
    PrivacySection,
    RecodeEntry,
    ReleaseSection,
    ReliabilitySection,
    SourceSection,
    TableEntry,
    ValueEntry,
)

SECTIONS = (
    "title", "source", "attributes", "recodes", "values", "privacy", "table", "invariant", "detailed", "geography",
    "bound", "earlier", "structural_zero", "method", "release",
    "reliability", "series", "derived",
)  # fmt: skip
"""The top level of the document."""

NOT_INVARIANT = {
    "weight": "is of tables, whose errors it weighs: an exact count has none, so remove it",
    "target": "is of tables, which may be wrong by so much: an exact count is not, so remove it",
    "areas": "is of tables: write level, the level at which the counts are exact",
    "totals": "is of tables: in a [[table]] of the same attributes with totals these are exact, too",
}
"""Keys that an invariant does not have, and why."""

NOT_DETAILED = {
    "table": "goes in a spec of its own, under the same ledger: a spec with [detailed] publishes its groups only",
    "invariant": "nothing of [detailed] is published exactly: write these counts in a spec of tables",
    "values": "is of [[table]]s: groups of [detailed] have tables of counts that are chosen for each, and no sums",
    "derived": "is of [[table]]s: each group of [detailed] has the table that it could afford, and no other counts",
    "geography": "goes in a spec of its own, under the same ledger: the areas of [detailed] are its regions",
    "earlier": "is of tables, whose counts may equal those of an earlier release: those of groups are not estimated",
}
"""Sections that do not go with ``[detailed]``, and why."""

WITH_GEOGRAPHY = ("bound", "structural_zero")
"""Sections that mean something beside ``[geography]`` alone."""

NOT_OF_AREAS = {
    "queries": "with [geography] a table is a marginal: write attributes, with recodes for ranges",
    "sql": "with [geography] a table is a marginal: write attributes",
    "totals": "with [geography] a table is one marginal: write a [[table]] of the other attributes, whose counts these "
    "totals are",
    "measures": "is of tables without areas: the passes up and down the geography are of counts",
    "weight": 'is of errors that shares = "auto" makes small: here the shares decide, so remove it',
    "counts": "is of tables without areas: nothing works out units in the passes up and down a geography; remove it",
    "sampling": "is of tables without areas: the passes up and down the geography are of counts",
    "survey_weight": "is of tables without areas: the passes up and down the geography are of counts",
    "name": "is of counts without a geography: an exact count of areas goes by its attributes and level, so remove it",
}
"""Keys of tables and invariants that do not go with ``[geography]``, and why."""

OF_AREAS = (("areas", "table"), ("level", "invariant"), ("level", "earlier"))
"""Keys that go with ``[geography]`` alone, and whose they are."""


@dataclass(frozen=True)
class Document:
    """The sections that could be read; None where one could not.

    ``attributes`` and ``recodes`` keep the names whose entries could not be read, so that a table which
    uses one is not blamed for it. ``is_detailed`` says that the document has that section instead of tables;
    ``is_geography`` that its tables are of areas; ``open_shares`` that the shares of these are to be chosen.
    """

    title: str
    source: SourceSection | None
    unknown: Policy
    null: Policy
    attributes: dict[str, AttributeEntry | None]
    recodes: dict[str, RecodeEntry | None]
    values: dict[str, ValueEntry | None]
    privacy: PrivacySection | None
    tables: tuple[TableEntry | None, ...]
    invariants: tuple[InvariantEntry | None, ...]
    method: MethodSection | None
    release: ReleaseSection | None
    reliability: ReliabilitySection | None
    is_detailed: bool
    detailed: DetailedSection | None
    levels: tuple[LevelEntry | None, ...]
    is_geography: bool
    geography: GeographySection | None
    open_shares: bool
    queries: tuple[QueryEntry | None, ...]
    bounds: tuple[BoundEntry | None, ...]
    earlier: tuple[EarlierEntry | None, ...]
    zeros: tuple[ZeroEntry | None, ...]
    derived: tuple[DerivedEntry | None, ...]
    area_targets: tuple[tuple[AreaTargetEntry | None, ...], ...]

    @property
    def counts_units(self) -> bool:
        """Whether units are counted with their records: some attribute or table is of units, or they have rows."""
        of_units = any(entry and entry.of for entry in (*self.attributes.values(), *self.values.values()))
        of_units |= self.source is not None and self.source.units is not None
        return of_units or any(entry and entry.counts == "units" for entry in self.tables)


def read_sections(raw: dict[str, Any], problems: Problems) -> Document:
    """Every section of the document as parsed by ``tomllib``.

    What is wrong within a section is recorded in ``problems``, and the section, or the entry of it that is
    wrong, is None in the result.
    """
    for key in raw:
        if key not in SECTIONS:
            problems.add((key,), f"unknown key; {nearest(key, SECTIONS)}")
        elif key in NOT_DETAILED and "detailed" in raw:
            problems.add((key,), NOT_DETAILED[key])
        elif key in WITH_GEOGRAPHY and "geography" not in raw:
            problems.add((key,), "is about areas, and there is no [geography]: add it, or remove this")
    detailed, levels = _detailed(raw, problems)
    geography, queries = _geography(raw, problems)
    declared = dict(_table(raw, "attributes", problems))
    return Document(
        title=_title(raw, problems),
        source=problems.check(SourceSection, _source(raw, problems), ("source",)),
        unknown=_policy(declared, "unknown", problems),
        null=_policy(declared, "null", problems),
        attributes={
            name: problems.check(AttributeEntry, entry, ("attributes", name))
            for name, entry in declared.items()
        },
        recodes={
            name: problems.check(RecodeEntry, entry, ("recodes", name))
            for name, entry in _table(raw, "recodes", problems).items()
        },
        values=_values(raw, problems),
        privacy=problems.check(PrivacySection, _table(raw, "privacy", problems), ("privacy",)),
        tables=_tables(raw, problems),
        invariants=_invariants(raw, problems),
        method=problems.check(MethodSection, _table(raw, "method", problems), ("method",)),
        release=_release(raw, problems),
        reliability=_reliability(raw, problems),
        is_detailed="detailed" in raw,
        detailed=detailed,
        levels=levels,
        is_geography="geography" in raw and "detailed" not in raw,
        geography=geography,
        open_shares=_are_open(raw),
        queries=queries,
        bounds=_all(BoundEntry, raw, "bound", problems) if "geography" in raw else (),
        earlier=() if "detailed" in raw else _earlier(raw, problems),
        zeros=_all(ZeroEntry, raw, "structural_zero", problems) if "geography" in raw else (),
        derived=() if "detailed" in raw else _all(DerivedEntry, raw, "derived", problems),
        area_targets=read_area_targets(raw["table"], problems) if _are_of_areas(raw) else (),
    )


def _title(raw: dict[str, Any], problems: Problems) -> str:
    title = raw.get("title", "Untitled release")
    if isinstance(title, str) and title.strip():
        return title
    problems.add(("title",), f"must be a string that says what is released, not {shown(title)}")
    return ""


def _table(raw: dict[str, Any], key: str, problems: Problems) -> dict[str, Any]:
    section = raw.get(key, {})
    if isinstance(section, dict):
        return section
    problems.add((key,), f"must be a section: write [{key}] on a line of its own, and its keys below")
    return {}


def _values(raw: dict[str, Any], problems: Problems) -> dict[str, ValueEntry | None]:
    """``[values]``, each on its own; with areas there are none."""
    declared = _table(raw, "values", problems)
    if "geography" in raw and "values" in raw:
        told = "is of tables without areas: nothing works out sums in the passes up and down a geography; make a spec "
        problems.add(("values",), f"{told}of its own under the same ledger, with the areas as an attribute")
        return {}
    return {name: problems.check(ValueEntry, entry, ("values", name)) for name, entry in declared.items()}


def _source(raw: dict[str, Any], problems: Problems) -> dict[str, Any]:
    section = dict(_table(raw, "source", problems))
    rows = section.get("rows_per_unit", 1)
    if isinstance(rows, int) and rows > 1 and "unit_id" not in section:
        problems.add(
            ("source", "rows_per_unit"),
            'more than 1 needs the column that says which rows are of one unit: add unit_id = "person_id"',
        )
        del section["rows_per_unit"]
    return section


def _release(raw: dict[str, Any], problems: Problems) -> ReleaseSection | None:
    """``[release]``, without the key that areas alone have."""
    section = dict(_table(raw, "release", problems))
    if "microdata" in section and "geography" not in raw:
        problems.add(
            ("release", "microdata"), "is of estimates by area, and there is no [geography]: remove it"
        )
        del section["microdata"]
    return problems.check(ReleaseSection, section, ("release",))


def _reliability(raw: dict[str, Any], problems: Problems) -> ReliabilitySection | None:
    """``[reliability]``, without the keys that only tables of their own have."""
    section = dict(_table(raw, "reliability", problems))
    if "geography" in raw or "detailed" in raw:
        told = "is of tables without areas and groups, whose classes are in the report alone: remove it"
        for key in ("column", "mask"):
            if section.pop(key, False) is not False:
                problems.add(("reliability", key), told)
    return problems.check(ReliabilitySection, section, ("reliability",))


def _policy(declared: dict[str, Any], key: str, problems: Problems) -> Policy:
    """The section-level policy ``key``, taken out of the attributes that surround it."""
    value = declared.pop(key, "refuse")
    if value not in ("refuse", "other"):
        problems.add(
            ("attributes", key),
            f'is the policy for {key} values, no attribute: write "refuse" or "other", not {shown(value)}',
        )
        return "refuse"
    return value


def _tables(raw: dict[str, Any], problems: Problems) -> tuple[TableEntry | None, ...]:
    entries = _entries(raw, "table", problems)
    if entries == [] and "detailed" not in raw:
        problems.add(("table",), "nothing is published: add a [[table]]")
    if entries is None:
        return (None,)
    return tuple(
        problems.check(TableEntry, _fitting(entry, "table", at, raw, problems), ("table", at))
        for at, entry in enumerate(entries)
    )


def _are_of_areas(raw: dict[str, Any]) -> bool:
    """Whether the document has tables of areas."""
    return "geography" in raw and "detailed" not in raw and isinstance(raw.get("table"), list)


def _fitting(entry: Any, section: str, at: int, raw: dict[str, Any], problems: Problems) -> Any:
    """An entry without the keys that do not go with the kind of document, which are refused here."""
    if not isinstance(entry, dict):
        return entry
    if "geography" in raw:
        kept = {"name", *(("weight",) if _are_open(raw) else ())} if section == "table" else set()
        refused = {key: why for key, why in NOT_OF_AREAS.items() if key not in kept}
    else:
        told = "is of a geography, and there is no [geography]: remove it"
        refused = {key: told for key, whose in OF_AREAS if whose == section}
    for key in sorted(refused.keys() & entry.keys()):
        problems.add((section, at, key), refused[key])
    rest = {key: entry[key] for key in entry if key not in refused}
    if section == "table" and "geography" in raw:
        rest.pop(
            "target", None
        )  # it may be a list, of targets that say for which areas: see read_area_targets
    if refused.keys() & entry.keys() and "geography" in raw:
        rest.setdefault("attributes", [])  # one mistake, told once: the entry does not also count nothing
    return rest


def _earlier(raw: dict[str, Any], problems: Problems) -> tuple[EarlierEntry | None, ...]:
    """``[[earlier]]``, with a level where they are of areas."""
    if "geography" in raw:
        return _all(EarlierOfAreas, raw, "earlier", problems)
    entries = _entries(raw, "earlier", problems) or ()
    fitting = (_fitting(entry, "earlier", at, raw, problems) for at, entry in enumerate(entries))
    return tuple(problems.check(EarlierEntry, entry, ("earlier", at)) for at, entry in enumerate(fitting))


def _geography(
    raw: dict[str, Any], problems: Problems
) -> tuple[GeographySection | None, tuple[QueryEntry | None, ...]]:
    """``[geography]``, and its queries each on its own."""
    if "geography" not in raw:
        return None, ()
    section = dict(_table(raw, "geography", problems))
    if _are_open(raw):
        section["shares"] = None
        section = _without_shares(section, problems)
    elif isinstance(section.get("shares"), str):
        told = (
            f'must be "{AUTO}", which chooses them, or those of levels, {{ county = "1/3", block = "2/3" }}'
        )
        problems.add(("geography", "shares"), f"{told}, not {shown(section['shares'])}")
        section["shares"] = None
    queries = _all(QueryEntry, section, "query", problems, "geography")
    section.pop("query", None)
    if not queries and not _are_open(raw):
        problems.add(("geography", "query"), "nothing is measured: add a [[geography.query]]")
    return problems.check(GeographySection, section, ("geography",)), queries


def _are_open(raw: dict[str, Any]) -> bool:
    """Whether the shares of a geography are to be chosen."""
    section = raw.get("geography")
    return isinstance(section, dict) and section.get("shares") == AUTO


def _without_shares(section: dict[str, Any], problems: Problems) -> dict[str, Any]:
    """A geography whose queries have no shares of their own."""
    queries = section.get("query")
    if not isinstance(queries, list):
        return section
    for at, entry in enumerate(queries):
        if isinstance(entry, dict) and "shares" in entry:
            told = f'shares = "{AUTO}" under [geography] chooses these too: remove them, or write all shares'
            problems.add(("geography", "query", at, "shares"), told)
    return section | {"query": [e | {"shares": None} if isinstance(e, dict) else e for e in queries]}


def _all(
    model: type[Section], raw: dict[str, Any], key: str, problems: Problems, *above: str
) -> tuple[Section | None, ...]:
    entries = _entries(raw, key, problems, *above) or ()
    return tuple(problems.check(model, entry, (*above, key, at)) for at, entry in enumerate(entries))


def _detailed(
    raw: dict[str, Any], problems: Problems
) -> tuple[DetailedSection | None, tuple[LevelEntry | None, ...]]:
    """``[detailed]``, and its levels each on its own."""
    if "detailed" not in raw:
        return None, ()
    section = dict(_table(raw, "detailed", problems))
    entries = _entries(section, "level", problems, "detailed")
    section.pop("level", None)
    if entries == []:
        problems.add(("detailed", "level"), "nothing is tabulated: add a [[detailed.level]]")
    levels = tuple(
        problems.check(LevelEntry, entry, ("detailed", "level", at)) for at, entry in enumerate(entries or ())
    )
    for at, level in enumerate(levels):
        path = ("detailed", "level", at)
        given = level is None or level.budget is not None or level.target is not None
        if not given and not any(problems.has((*path, key)) for key in ("budget", "target")):
            told = 'has no budget: write budget = "1/2", or target = { margin = 6, confidence = 0.95 }'
            problems.add(path, told)
    found = problems.check(DetailedSection, section, ("detailed",))
    _check_ladders(section, problems)
    return found, levels


def _check_ladders(section: dict[str, Any], problems: Problems) -> None:
    """One of both ways to write the tables."""
    if "tables" in section and "ladders" in section:
        problems.add(
            ("detailed", "ladders"), "stands beside tables, which is one ladder without a name: keep one"
        )
    elif "tables" not in section and "ladders" not in section:
        told = 'is missing: write the tables, coarsest first: tables = [["total"], ["sex", "age4"]]'
        problems.add(("detailed", "tables"), told)


def _invariants(raw: dict[str, Any], problems: Problems) -> tuple[InvariantEntry | None, ...]:
    """``[[invariant]]``, without the keys that only tables have, which are refused here."""
    entries = []
    for at, entry in enumerate(_entries(raw, "invariant", problems) or ()):
        refused = NOT_INVARIANT.keys() & entry.keys() if isinstance(entry, dict) else ()
        for key in sorted(refused):
            problems.add(("invariant", at, key), NOT_INVARIANT[key])
        kept = {key: entry[key] for key in entry if key not in refused} if refused else entry
        entries.append(_fitting(kept, "invariant", at, raw, problems))
    return tuple(problems.check(InvariantEntry, entry, ("invariant", at)) for at, entry in enumerate(entries))


def _entries(raw: dict[str, Any], key: str, problems: Problems, *above: str) -> list[Any] | None:
    """The elements of an array of sections; None, with the reason recorded, where it is something else."""
    entries, name = raw.get(key, []), ".".join((*above, key))
    if isinstance(entries, dict):
        problems.add(
            (*above, key), f"is one of a list, even where it is alone: write [[{name}]], with two brackets"
        )
        return [entries]
    if isinstance(entries, list):
        return entries
    problems.add(
        (*above, key), f"must be sections: write [[{name}]] on a line of its own, and its keys below"
    )
    return None
