"""``[detailed]``: which keys it has, and of what type. What joins it with other sections is checked in `detailed`."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from ..privacy import exact
from .problems import shown
from .shape import TARGETS, Budget, Filled, Share, StrictSection, problem

NATION = "nation"
"""The region type that is all records together; no attribute needs to say it."""

TOTAL = "total"
"""What the first table of the ladder is called: everybody in the group, by nothing."""


def _level_budget(value: str) -> str:
    if value == TARGETS:
        raise problem("give the level a target instead: target = { margin = 6, confidence = 0.95 }")
    return value


def _group_level(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


class LevelTarget(StrictSection):
    """What the cells of a level may be wrong by: ``{ margin = 6, confidence = 0.95 }``."""

    margin: Annotated[int, Field(ge=1)] | None = Field(
        description="the widest half-width, a whole number: margin = 6"
    )
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95
    formula: Literal["exact", "paper"] = "exact"


def _likely(value: str) -> str:
    if exact(value) <= Fraction(1, 2):
        raise problem("must be over 1/2: it says how likely it is that noise alone makes no such count")
    return value


class SuppressEntry(StrictSection):
    """Which totals are left out because noise alone may have made them."""

    chance: Annotated[Share, AfterValidator(_likely)] | None = Field(
        description='how sure it must be that a count is not of nobody: chance = "0.9999"'
    )
    regions: list[str] | None = None


class LevelEntry(StrictSection):
    """One ``[[detailed.level]]``: one region type crossed with one level of groups, and its budget."""

    region: Filled | None = Field(description='the region type in which groups are counted: region = "state"')
    group_level: Annotated[Filled, BeforeValidator(_group_level)] | None = Field(
        description="the level of the groups that are counted, as the file of groups has it: group_level = 1"
    )
    budget: Annotated[Budget, AfterValidator(_level_budget)] | None = None
    target: LevelTarget | None = None
    thresholds: list[int] | None = None
    ladder: Filled | None = None

    @field_validator("thresholds")
    @classmethod
    def _rising(cls, value: list[int] | None) -> list[int] | None:
        if any(a > b for a, b in pairwise(value or [])):
            raise problem(f"must not fall: {shown(value)}")
        return value


class DetailedSection(StrictSection):
    """``[detailed]``: groups of records, each tabulated in as much detail as it can afford."""

    groups: Filled | None = Field(
        description='the file that says which values are members of which group: groups = "groups.csv"'
    )
    codes: dict[str, list[str]] | None = Field(
        description='the attributes that say what groups a record belongs to: codes = ["origin1", "origin2"]'
    )
    regions: list[str] | None = Field(description='where groups are counted: regions = ["nation", "county"]')
    nowhere: dict[str, list[str]] | None = None
    tables: list[list[str]] | None = None
    ladders: dict[Filled, list[list[str]]] | None = None
    stage_one: Share = "1/10"
    counts: Filled | None = None
    suppress: SuppressEntry | None = None

    @field_validator("codes", mode="before")
    @classmethod
    def _one_family(cls, value: Any) -> Any:
        return {"code": value} if isinstance(value, list) else value

    @field_validator("codes")
    @classmethod
    def _carried(cls, value: dict[str, list[str]] | None) -> dict[str, list[str]] | None:
        if value is not None and not (value and all(value.values())):
            raise problem('names no attribute: write codes = ["origin1", "origin2"]')
        return value

    @property
    def tables_of(self) -> dict[str, list[list[str]]]:
        """The tables of each ladder by its name, which is "" for the only one."""
        return (self.ladders or {}) if self.tables is None else {"": self.tables}

    @field_validator("tables")
    @classmethod
    def _total_first(cls, value: list[list[str]] | None) -> list[list[str]] | None:
        if value is not None and (not value or value[0] != [TOTAL]):
            raise problem('begins with the total, which every group gets at least: [["total"], ...]')
        if value is not None and any(not table or TOTAL in table for table in value[1:]):
            raise problem("after the total, each table names the attributes that it is by")
        return value

    @field_validator("ladders")
    @classmethod
    def _each_a_ladder(cls, value: dict[str, list[list[str]]] | None) -> dict[str, list[list[str]]] | None:
        if value is not None and not value:
            raise problem('names no ladder: write ladders = { housing = [["total"], ["tenure"]] }')
        for tables in (value or {}).values():
            cls._total_first(tables)
        return value

    @model_validator(mode="after")
    def _one_choice(self) -> DetailedSection:
        if self.counts is not None and "stage_one" in self.model_fields_set:
            raise problem(
                "has stage_one and counts: public counts choose the tables and cost nothing, so that there is no first "
                "stage; keep one of the two"
            )
        return self

    @field_validator("regions")
    @classmethod
    def _some_regions(cls, value: list[str] | None) -> list[str] | None:
        if value is not None and not value:
            raise problem('names no region: write regions = ["nation"]')
        return value
