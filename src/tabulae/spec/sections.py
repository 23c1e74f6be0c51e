"""A parsed document taken apart: each section on its own, so that a mistake in one hides none in another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .problems import Problems, nearest, shown
from .shape import (
    AttributeEntry,
    MethodSection,
    Policy,
    PrivacySection,
    RecodeEntry,
    ReleaseSection,
    SourceSection,
    TableEntry,
)

SECTIONS = ("title", "source", "attributes", "recodes", "privacy", "table", "method", "release")
"""The top level of the document."""

LATER_SECTIONS = ("geography", "invariant", "bound", "structural_zero", "detailed")
"""Sections of the document that this version cannot honour, and therefore refuses."""

NOT_YET = "is not supported by this version of tabulae"
"""Said of every key that the document has and this version cannot honour."""


@dataclass(frozen=True)
class Document:
    """The sections that could be read; None where one could not.

    ``attributes`` and ``recodes`` keep the names whose entries could not be read, so that a table which
    uses one is not blamed for it.
    """

    title: str
    source: SourceSection | None
    unknown: Policy
    null: Policy
    attributes: dict[str, AttributeEntry | None]
    recodes: dict[str, RecodeEntry | None]
    privacy: PrivacySection | None
    tables: tuple[TableEntry | None, ...]
    method: MethodSection | None
    release: ReleaseSection | None


def read_sections(raw: dict[str, Any], problems: Problems) -> Document:
    """Every section of the document as parsed by ``tomllib``.

    What is wrong within a section is recorded in ``problems``, and the section, or the entry of it that is
    wrong, is None in the result.
    """
    for key in raw:
        if key in LATER_SECTIONS:
            problems.add((key,), f"this section {NOT_YET}: remove it")
        elif key not in SECTIONS:
            problems.add((key,), f"unknown key; {nearest(key, SECTIONS)}")
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
        privacy=problems.check(PrivacySection, _table(raw, "privacy", problems), ("privacy",)),
        tables=_tables(raw, problems),
        method=problems.check(MethodSection, _table(raw, "method", problems), ("method",)),
        release=problems.check(ReleaseSection, _table(raw, "release", problems), ("release",)),
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


def _source(raw: dict[str, Any], problems: Problems) -> dict[str, Any]:
    """``[source]`` without the keys of later versions, which are refused here; no value is echoed."""
    section = dict(_table(raw, "source", problems))
    path_instead = 'name a file: path = "people.parquet" (csv, parquet or duckdb)'
    if section.pop("url", None) is not None:
        problems.add(("source", "url"), f"{NOT_YET}; {path_instead}")
        section.setdefault("kind", "csv")  # one mistake, told once: the path is not also missing
    if section.get("engine", "duckdb") != "duckdb":
        problems.add(("source", "engine"), f'{NOT_YET} other than "duckdb": remove it')
        del section["engine"]
    rows = section.get("rows_per_unit", 1)
    if isinstance(rows, int) and rows > 1 and "unit_id" not in section:
        problems.add(
            ("source", "rows_per_unit"),
            'more than 1 needs the column that says which rows are of one unit: add unit_id = "person_id"',
        )
        del section["rows_per_unit"]
    return section


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
    entries = raw.get("table", [])
    if isinstance(entries, dict):
        problems.add(("table",), "there may be many tables: write [[table]], with two brackets")
        entries = [entries]
    if not isinstance(entries, list):
        problems.add(("table",), "must be sections: write [[table]] on a line of its own, and its keys below")
        return (None,)
    if not entries:
        problems.add(("table",), "nothing is published: add a [[table]]")
    tables = []
    for position, entry in enumerate(entries):
        tables.append(problems.check(TableEntry, entry, ("table", position)))
    return tuple(tables)
