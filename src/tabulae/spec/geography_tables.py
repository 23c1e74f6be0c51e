"""``[[table]]`` of a geography: marginals, each published for the areas of some levels and entities."""

from __future__ import annotations

from dataclasses import dataclass

from ..domain import Domain
from .geography import (
    AREA,
    AREA_TYPE,
    Geography,
)
from .geography_cells import Names
from .geography_targets import AreaTarget, area_targets
from .lines import KeyPath
from .problems import (
    Problems,
    Taken,
    nearest,
    shown,
    written,
)
from .schema import Schema
from .sections import Document

TAKEN = (AREA_TYPE, AREA, "gls_estimate")
"""What no attribute of a table may be named like: other columns of the published tables."""


@dataclass(frozen=True)
class AskedTable:
    """A table as the document asks for it: what it is by, the levels and entities it is published for, its targets."""

    name: str
    attributes: tuple[str, ...]
    areas: tuple[str, ...]
    targets: tuple[AreaTarget, ...]


def read_area_tables(
    document: Document, schema: Schema, domain: Domain, problems: Problems
) -> list[AskedTable] | None:
    """The tables that the document publishes; None, with the mistakes recorded, where one is wrong.

    Args:
        document: the sections as read.
        schema: the domain, and the names that could not be read.
        domain: of the schema.
        problems: where mistakes are recorded.
    """
    before = len(problems.found)
    names = Names(domain, schema, problems)
    section = document.geography
    every = (*(section.levels or ()), *section.entities) if section else ()
    known = section is not None and not any(
        problems.told(("geography", key)) for key in ("levels", "entities")
    )
    names_taken = Taken()
    found = []
    for at, entry in enumerate(document.tables):
        if entry is None:
            continue
        path: KeyPath = ("table", at)
        names.bases(entry.attributes or (), (*path, "attributes"))
        for i, name in enumerate(entry.attributes or ()):
            if name in TAKEN:
                told = f"{shown(name)} heads another column of the published tables: rename it"
                problems.add((*path, "attributes", i), told)
        for i, area in enumerate(entry.areas or ()):
            if known and area not in every:
                told = f"there is no level or entity {shown(area)}; {nearest(area, every)}"
                problems.add((*path, "areas", i), told)
            elif area in (entry.areas or ())[:i]:
                problems.add((*path, "areas", i), f"{shown(area)} is there twice: keep one")
        title = entry.name or written(path)
        if told := names_taken.by(title, path):
            problems.add((*path, "name"), told)
        areas = tuple(entry.areas or every)
        given = document.area_targets[at] if at < len(document.area_targets) else ()
        targets = area_targets(given, at, areas, problems) if known else ()
        found.append(AskedTable(title, tuple(entry.attributes or ()), areas, targets))
    return found if len(problems.found) == before else None


def check_people(geography: Geography, problems: Problems) -> None:
    """Refuse microdata in which a level and an attribute would head two columns of one name."""
    names = {name.casefold() for name in geography.levels}
    for name in geography.layout.domain.names if geography.microdata else ():
        if name.casefold() in names:
            told = (
                f"{shown(name)} is a level and an attribute, and would head two columns: rename the attribute"
            )
            problems.add(("release", "microdata"), told)


def check_size(document: Document, geography: Geography, problems: Problems) -> None:
    """Refuse to publish more rows than the limit."""
    rows = {table.name: sum(geography.rows(table).values()) for table in geography.tables}
    total = sum(rows.values())
    if document.release is None or total <= document.release.max_rows:
        return
    largest = max(rows, key=lambda name: rows[name])
    problems.add(
        ("release", "max_rows"),
        f"the tables have {total:,} rows in all, {rows[largest]:,} of them in {shown(largest)}, and at most "
        f"{document.release.max_rows:,} are published: give tables areas = [...] without "
        f"{shown(geography.levels[-1])}, or write max_rows = {total} under [release]",
    )
