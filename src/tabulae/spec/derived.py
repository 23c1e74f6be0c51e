"""``[[derived]]``: figures that are computed from published counts, at no privacy cost."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import InvalidArgument, Unsupported
from .problems import KeyPath, Problems, Taken, shown, written
from .promise import Method
from .schema import Schema
from .section import Section
from .sections import Document

if TYPE_CHECKING:
    from ..domain import Figure

if TYPE_CHECKING:
    from ..domain import Figure


@dataclass(frozen=True)
class Derived:
    """A derived figure, what the report calls it, and the levels and entities for whose areas it is published."""

    figure: Figure
    title: str
    areas: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.figure.name


def read_derived(
    document: Document,
    schema: Schema,
    method: Method | None,
    section: Section | None,
    problems: Problems,
) -> tuple[Derived, ...]:
    """The derived figures of a document, over the domain that it declares."""
    entries = document.derived
    areas = areas_of_figures(document, method, problems)
    names = _file_names(document)
    found: list[Derived] = []
    for at, entry in enumerate(entries):
        path: KeyPath = ("derived", at)
        if entry is None:
            continue
        if entry.name is not None and (told := names.by(entry.name, path)):
            problems.add((*path, "name"), told)
        if entry.sql is None or schema.domain is None or _is_broken(entry.sql, schema):
            continue
        try:
            from ..domain.figure_sql import figure_from_sql

            figure = figure_from_sql(schema.domain, entry.name or written(path), entry.sql)
            if section is not None:
                section.check_figure(figure)
            found.append(Derived(figure, entry.title or figure.name, areas[at]))
        except (InvalidArgument, Unsupported) as error:
            problems.add((*path, "sql"), str(error))
    return tuple(_within(found, document, section, problems))


def _within(
    found: list[Derived], document: Document, section: Section | None, problems: Problems
) -> list[Derived]:
    """Those that may be written: each has at most as many rows as the release may publish."""
    limit = document.release.max_rows if document.release else 0
    if document.release and (rows := sum(_rows(each, section) for each in found)) > limit:
        problems.add(
            ("release", "max_rows"),
            f"the derived figures have {rows:,} rows, and at most {limit:,} are published: group by less, or write "
            f"max_rows = {rows} under [release]",
        )
    return found


def _rows(each: Derived, section: Section | None) -> int:
    return each.figure.rows if section is None else section.figure_rows(each.figure, each.areas)


def _file_names(document: Document) -> Taken:
    """The names of tables and exact counts, which are files beside those of the figures."""
    names = Taken()
    for at, entry in enumerate(document.tables):
        if entry and entry.name is not None:
            for name in entry.published:
                names.by(name, ("table", at))
    for at, given in enumerate(document.invariants):
        if given and given.title is not None:
            names.by(given.title, ("invariant", at))
    return names


def _is_broken(sql: str, schema: Schema) -> bool:
    """Whether it uses a name that could not be read: it is judged once that can be."""
    return any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", sql, re.IGNORECASE) for name in schema.broken)


_WHOLE_NUMBERS = (
    "takes estimates that have intervals: those of {estimate} are whole numbers, whose errors have no known law, and "
    'what intervals their tables have are about gls; write estimate = "gls" under [method], or leave the figures out'
)


def areas_of_figures(
    document: Document, method: Method | None, problems: Problems
) -> tuple[tuple[str, ...], ...]:
    """The levels and entities that each figure of a document is published for; none without ``[geography]``."""
    section = document.geography
    every = (*(section.levels or ()), *section.entities) if section else ()
    told = any(problems.has(("geography", key)) for key in ("levels", "entities"))
    found = []
    for at, entry in enumerate(document.derived):
        path: KeyPath = ("derived", at, "areas")
        given = (entry.areas if entry else None) or ()
        if given and not document.is_geography:
            problems.add(path, "is about areas, and there is no [geography]: add it, or remove this")
        elif section is not None and not told:
            for i, area in enumerate(given):
                if area not in every:
                    problems.add_unknown((*path, i), "level or entity", area, every)
                elif area in given[:i]:
                    problems.add((*path, i), f"{shown(area)} is there twice: keep one")
        found.append(tuple(dict.fromkeys(area for area in given if area in every)) or every)
    if document.is_geography and document.derived and method and method.estimate != "gls":
        problems.add(("derived",), _WHOLE_NUMBERS.format(estimate=shown(method.estimate)))
    return tuple(found)
