"""``[geography]``, ``[[bound]]`` and ``[[structural_zero]]``: which keys they have, and of what type.

What joins them with each other, with their files and with the domain is checked in `geography_read`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from ..errors import InvalidArgument
from ..privacy import exact
from .problems import Problems, listed, nearest, shown
from .shape import Filled, Name, StrictSection, TargetEntry, exact_text, problem


def _part(value: str) -> str:
    try:
        part = exact(value, "the share")
    except InvalidArgument as error:
        raise problem(str(error)) from None
    if not 0 <= part <= 1:
        raise problem(f'is {value}: a share is from 0 to 1, such as "1440/4099"')
    return value


AUTO = "auto"
"""The shares of a geography that are to be chosen for its tables."""

Part = Annotated[str, BeforeValidator(exact_text), AfterValidator(_part)]
"""An exact share of a whole, 0 and 1 included."""


class OptimiseEntry(StrictSection):
    """``optimise = { ... }``: groups of leaves drawn anew, so that entities come closer to the spine."""

    fanout_cutoff: Annotated[int, Field(ge=0)] = 12
    entities: Annotated[list[str], Field(min_length=1)] | None = None
    levels: Annotated[list[str], Field(min_length=1)] | None = None
    rule: Literal["paper", "production"] = "paper"


class ColumnEntry(StrictSection):
    """One of ``[geography.columns]``: a column that is made of others, or of what can occur."""

    join: Annotated[list[str], Field(min_length=1)] | None = None
    where: Filled | None = None
    then: Filled | None = None
    otherwise: Filled | None = None
    occurs: Filled | None = None
    but: list[str] = Field(default_factory=list)

    @model_validator(mode="after")
    def _one_form(self) -> ColumnEntry:
        forms = [
            self.join is not None,
            self.where is not None and self.then is not None,
            self.occurs is not None,
        ]
        stray = (
            (self.where is None and (self.then is not None or self.otherwise is not None))
            or (self.where is not None and self.then is None)
            or (self.occurs is None and bool(self.but))
        )
        if sum(forms) != 1 or stray:
            raise problem(
                'is made in one of three ways: { join = ["tract", "place"] }, { where = "place IS NULL", '
                'then = "town", otherwise = "place" } or { occurs = "hhgq", but = ["household"] }'
            )
        return self

    @property
    def sources(self) -> tuple[str, ...]:
        """The columns that it is made of, but for those that its condition is about."""
        return (*(self.join or ()), *(name for name in (self.then, self.otherwise) if name))


class GeographySection(StrictSection):
    """``[geography]``: the areas in which records are counted, and the budget's shares of their levels."""

    column: Filled | None = Field(
        description='the column of the records with the leaf code: column = "block"'
    )
    file: Filled | None = Field(description='the public file with one row a leaf: file = "spine.csv"')
    levels: list[Name] | None = Field(
        description='the columns of the file that are levels, the leaf last: levels = ["county", "tract", "block"]'
    )
    split: Filled | None = None
    split_below: Filled | None = None
    optimise: OptimiseEntry | None = None
    bypass: Literal["exact", "paper", "off"] = "exact"
    entities: list[str] = Field(default_factory=list)
    outside: dict[str, Filled] = Field(default_factory=dict)
    columns: dict[Name, ColumnEntry] = Field(default_factory=dict)
    shares: dict[str, Part] | None = Field(
        description='the budget\'s share of each level, summing to 1: shares = { county = "1/3", block = "2/3" }, '
        'or shares = "auto", which chooses them'
    )

    @field_validator("levels")
    @classmethod
    def _distinct_levels(cls, value: list[str] | None) -> list[str] | None:
        if value is not None and not value:
            raise problem('names no level: write levels = ["county", "tract", "block"]')
        folded = [name.casefold() for name in value or ()]
        if len(set(folded)) < len(set(value or ())):
            raise problem("has names that differ by capitals only, and levels name files: rename one")
        return _distinct(value)

    @field_validator("entities")
    @classmethod
    def _distinct_entities(cls, value: list[str]) -> list[str] | None:
        return _distinct(value)


def _distinct(names: list[str] | None) -> list[str] | None:
    repeated = [name for i, name in enumerate(names or ()) if name in (names or ())[:i]]
    if repeated:
        raise problem(f"lists {shown(repeated[0])} twice")
    return names


class QueryEntry(StrictSection):
    """One ``[[geography.query]]``: a marginal that areas are asked, and its share at each level."""

    attributes: list[str] | None = Field(
        description='what is asked for: attributes = [] is the total, attributes = ["sex", "age"] a marginal'
    )
    shares: dict[str, Part] | None = Field(
        description='its share of each level that asks it: shares = { county = "1/2", block = "1/10" }'
    )
    in_pass: Annotated[int, Field(ge=1, le=16)] | None = None


class BoundEntry(StrictSection):
    """One ``[[bound]]``: limits on counts of leaves, from a public file."""

    attributes: list[str] | None = Field(description='what is bounded: attributes = ["hhgq"]')
    file: Filled | None = Field(description='the public file of limits: file = "facilities.csv"')
    unlisted: Literal["zero", "free"] = "free"


class EarlierEntry(StrictSection):
    """One ``[[earlier]]``: counts that equal those which an earlier release published."""

    release: Any = Field(description='the folder of the earlier release: release = "release-h1"')
    table: Filled | None = Field(description='the table that it published these counts in: table = "units"')
    attributes: list[str] | None = Field(
        description='which counts of this document: attributes = [] is the total, attributes = ["tenure"] a marginal'
    )
    level: Filled | None = None
    columns: dict[str, Filled] = Field(default_factory=dict)
    rows: dict[str, Annotated[list[str], Field(min_length=1)]] = Field(default_factory=dict)
    file: Filled | None = None


class EarlierOfAreas(EarlierEntry):
    """The same of areas."""

    level: Filled | None = Field(description='the areas, by the same name in both: level = "block"')


class ZeroEntry(StrictSection):
    """One ``[[structural_zero]]``: combinations that cannot occur anywhere."""

    where: Filled | None = Field(
        description="the condition of what cannot occur: where = \"hhgq = 'nursing' AND age = 'minor'\""
    )


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
    """The targets of each table as written: one, or a list of them; None where one is wrong, which is recorded."""
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
    """The targets of one table; an area that the table is not published for is a mistake."""
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
