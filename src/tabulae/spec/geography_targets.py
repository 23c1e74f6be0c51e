"""``target`` in a ``[[table]]`` of a geography: what the counts of some kinds of area may be wrong by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, model_validator

from .problems import (
    Problems,
    listed,
    nearest,
    shown,
)
from .shape import TargetEntry, problem

_LEAST, _MOST = 1e-9, 1e15  # counts: what a target may ask


class AreaTargetEntry(TargetEntry):
    """``{ margin = 50, confidence = 0.95, areas = ["county"] }``; without areas, all that the table has."""

    areas: Annotated[list[str], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _of_counts(self) -> AreaTargetEntry:
        if not _LEAST <= (self.margin or self.rmse or 0) <= _MOST:
            raise problem(
                "is no error that counts can have: it is in counts, such as margin = 50 or rmse = 20"
            )
        return self


@dataclass(frozen=True)
class AreaTarget:
    """What the counts of a table may be wrong by in areas of some kinds, as ``gls`` estimates them.

    Attributes:
        areas: levels and types of entity: the target is one for each of them.
        rmse: over all counts of all areas of a kind but exact ones; None where a margin is asked for.
        margin: a half-width that no interval of a count may exceed; None where an RMSE is asked for.
        confidence: of the margin; None for an RMSE.
    """

    areas: tuple[str, ...]
    rmse: float | None
    margin: float | None
    confidence: float | None


def read_area_targets(
    tables: Sequence[Any], problems: Problems
) -> tuple[tuple[AreaTargetEntry | None, ...], ...]:
    """The targets of each table as written: one, or a list of them; None where one is wrong, which is recorded.

    Args:
        tables: the entries of ``[[table]]``, as parsed.
        problems: where mistakes are recorded.
    """
    found = []
    for at, table in enumerate(tables):
        given = table.get("target", []) if isinstance(table, dict) else []
        many = isinstance(given, list)
        found.append(
            tuple(
                problems.check(AreaTargetEntry, entry, ("table", at, "target", *([i] if many else [])))
                for i, entry in enumerate(given if many else [given])
            )
        )
    return tuple(found)


def area_targets(
    entries: Sequence[AreaTargetEntry | None], at: int, areas: Sequence[str], problems: Problems
) -> tuple[AreaTarget, ...]:
    """The targets of one table; an area that the table is not published for is a mistake.

    Args:
        entries: as read.
        at: the position of the table.
        areas: the levels and entities that the table is published for.
        problems: where mistakes are recorded.
    """
    found = []
    for i, entry in enumerate(entries):
        if entry is None:
            continue
        for j, name in enumerate(entry.areas or ()):
            path = ("table", at, "target", *([i] if len(entries) > 1 else []), "areas", j)
            if name not in areas:
                told = f"the table is not published for {shown(name)}, but for {listed(areas)}; {nearest(name, areas)}"
                problems.add(path, told)
            elif name in (entry.areas or ())[:j]:
                problems.add(path, f"{shown(name)} is there twice: keep one")
        level = None if entry.margin is None else entry.confidence or 0.95
        found.append(AreaTarget(tuple(entry.areas or areas), entry.rmse, entry.margin, level))
    return tuple(found)
