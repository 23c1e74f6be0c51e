"""Plans of [detailed]: what each level of groups costs and how wrong its tables will be, before any data is opened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from math import sqrt
from os import PathLike

import pyarrow as pa

from ..adaptive import AdaptivePlan, PopulationLevel
from ..adaptive.accounting import epsilon_of
from ..adaptive.rehearsal import SizeRow, rehearse
from ..adaptive.targets import level_budget
from ..domain.group_stability import group_stability
from ..errors import Unsupported
from ..privacy import NoiseLaw, PrivacyLoss
from ..release.tables import LEVEL
from ..spec import (
    Detailed,
    LevelRule,
    Spec,
    read_spec,
)
from .smallest import (
    LevelNeed,
    Smallest,
    TargetRow,
    with_amount,
)

TOTAL_ONLY_TABLE = "total only"
"""What the groups of a level that get one count at the full budget have instead of a table."""


@dataclass(frozen=True)
class GroupTableError:
    """Error of the counts of one table of one level, as drawn: ``margin`` at 95 %, both in people.

    ``target`` is what the spec allows the counts of stage two, at ``confidence``; None for what it says nothing of.
    """

    level: str
    table: str
    cells: int
    rmse: float
    margin: int
    target: int | None = None
    confidence: float | None = None
    met: bool | None = None


@dataclass(frozen=True, eq=False)
class DetailedPlan:
    """What a release of groups will count, what that costs, and how wrong its counts will be; made without data.

    Attributes:
        spec: the spec, its loss that of the levels with the budgets that were found.
        adaptive: the levels with their budgets.
        found: the positions of the levels whose budget was found from their target.
        level: of the intervals and of the margins.
    """

    spec: Spec
    adaptive: AdaptivePlan
    found: frozenset[int] = field(default_factory=frozenset)
    level: float = LEVEL

    @property
    def budgets(self) -> tuple[PrivacyLoss, ...]:
        """The loss of each level, in the order of the spec."""
        return tuple(level.budget for level in self.adaptive.levels)

    @property
    def loss(self) -> PrivacyLoss:
        """The loss of the release: the largest sum of the budgets of levels that count one record."""
        return self.adaptive.loss

    @cached_property
    def table_errors(self) -> tuple[GroupTableError, ...]:
        """One row for each level and table: the total, the tables of the ladder, groups that are total only."""
        rows = zip(detailed_of(self.spec).levels, self.adaptive.levels, strict=True)
        return tuple(row for rule, level in rows for row in _errors_of(rule, level, self.level))

    @property
    def errors(self) -> pa.Table:
        """Expected error by level and table: ``table, level, rmse, margin, bound``, in counts.

        ``rmse`` and ``margin`` (95 %) are of each single count as drawn; published estimates join both stages, mostly
        with smaller errors.
        ``bound`` is null: no bound from below is known for a table that is chosen by noisy counts.
        """
        rows = self.table_errors
        return pa.table(
            {
                "table": pa.array([r.table for r in rows], pa.string()),
                "level": pa.array([r.level for r in rows], pa.string()),
                "rmse": pa.array([r.rmse for r in rows], pa.float64()),
                "margin": pa.array([float(r.margin) for r in rows], pa.float64()),
                "bound": pa.array([None] * len(rows), pa.float64()),
            }
        )

    @cached_property
    def epsilon(self) -> tuple[float, str] | None:
        """The epsilon proven at the spec's delta, and how; None where the spec gives no delta."""
        return None if self.spec.delta is None else epsilon_of(self.adaptive, self.spec.delta)

    @cached_property
    def smallest(self) -> Smallest | None:
        """The smallest budget, by level and in all, that meets the targets of all levels; None where none has one.

        Each level's own is the least of eight digits, and the loss in all grows with each: none smaller is enough.
        Levels without a target keep their budgets.
        """
        return _smallest(self)

    @cached_property
    def rehearsal(self) -> tuple[tuple[SizeRow, ...], ...]:
        """For each level, by size of the group: how often it gets each table, and how wrong that is. Needs no data."""
        return tuple(tuple(rehearse(level, suppress=self._left_out(level))) for level in self.adaptive.levels)

    def _left_out(self, level: PopulationLevel) -> tuple[int, int] | None:
        """The largest totals of a level that are left out, of two stages and of one count; None where none is."""
        suppress = detailed_of(self.spec).suppress
        if suppress is None or level.regions.name not in suppress.regions:
            return None
        return suppress.floor(level.second), suppress.floor(level.whole)

    def __repr__(self) -> str:
        return f"DetailedPlan({self.spec!r}, {len(self.adaptive.levels)} levels)"

    def _repr_html_(self) -> str:
        from ..notebook import Rows, card

        facts = [
            ("release", self.spec.title),
            ("promise", f"{self.spec.loss!r}, {self.spec.neighbours} one {self.spec.unit}"),
        ]
        levels = self.adaptive.levels
        budgets = ((a.name, a.regions.size, len(a.groups), str(a.budget.amount)) for a in levels)
        errors = ((r.level, r.table, r.cells, r.rmse, r.margin) for r in self.table_errors)
        headings = ("level", "table", "cells", "RMSE", f"{self.level:.0%} margin")
        return card(
            "Plan of groups",
            facts,
            Rows(("level", "regions", "groups", "budget"), budgets, len(levels)),
            Rows(headings, errors, len(self.table_errors)),
        )

    def save(self, path: str | PathLike[str]) -> None:
        """There is nothing to save.

        Raises:
            Unsupported: always; the plan of groups follows from the spec.
        """
        raise Unsupported(
            f"the plan of a spec with [detailed] follows from the spec: {path} would add nothing to it"
        )


def plan_detailed(spec: Spec | str | PathLike[str]) -> DetailedPlan:
    """The plan of a spec that has ``[detailed]``, with a budget for every level that has a target instead.

    Arguments:
        spec: a spec, or the path of its TOML document.

    Raises:
        SpecError: the document has mistakes; all are listed.
        Unsupported: the spec publishes tables instead of groups.

    Reference: Haney et al., Table 4 (targets to budgets).

    Privacy:
        Reads no record: a plan is a function of the public spec, and costs nothing.
    """
    spec = spec if isinstance(spec, Spec) else read_spec(spec)
    detailed = detailed_of(spec)
    found = {i: found_budget(detailed, rule) for i, rule in enumerate(detailed.levels) if rule.budget is None}
    adaptive = detailed.plan(found)
    return DetailedPlan(spec.with_budget(adaptive.loss), adaptive, frozenset(found))


def detailed_of(spec: Spec) -> Detailed:
    """The section of a spec.

    Raises:
        Unsupported: the spec publishes tables instead.
    """
    if spec.detailed is None:
        raise Unsupported("this spec publishes tables: it has no [detailed]")
    return spec.detailed


def found_budget(detailed: Detailed, rule: LevelRule) -> Fraction:
    """The smallest budget, of eight digits, with which the counts of stage two keep to the level's target."""
    target = rule.target
    assert target is not None
    assert target.margin is not None
    groups = detailed.groups.at(rule.group_level, rule.region)
    budget = level_budget(
        target.margin,
        Fraction(str(target.confidence)),
        detailed.stage_one,
        max(1, group_stability(groups).value),
        "pure" if detailed.pure else "zcdp",
        target.formula,
        neighbours=detailed.neighbours,
        rows_per_unit=detailed.rows_per_unit,
    )
    return budget.amount


def _smallest(plan: DetailedPlan) -> Smallest | None:
    """What the targets of levels need, in all and by level."""
    detailed = detailed_of(plan.spec)
    found = {i: found_budget(detailed, rule) for i, rule in enumerate(detailed.levels) if rule.target}
    if not found:
        return None
    every = {i: budget.amount for i, budget in enumerate(plan.budgets)} | found
    least = replace(detailed, levels=tuple(replace(rule, budget=None) for rule in detailed.levels)).plan(
        every
    )
    levels = tuple(
        LevelNeed(level.name, level.budget, with_amount(level.budget, found[i]) if i in found else None)
        for i, level in enumerate(plan.adaptive.levels)
    )
    rows = [
        _target_row(rule, level)
        for rule, level in zip(detailed.levels, plan.adaptive.levels, strict=True)
        if rule.target is not None
    ]
    return Smallest(least.loss, None if plan.spec.open_budget else plan.loss, tuple(rows), levels=levels)


def _target_row(rule: LevelRule, level: PopulationLevel) -> TargetRow:
    """The target of a level, with the margin of one count of its second stage."""
    target = rule.target
    assert target is not None
    assert target.margin is not None
    reached = level.second.margin(Fraction(str(target.confidence)))
    met = None if target.formula == "paper" else reached <= target.margin
    return TargetRow("", level.name, "margin", target.margin, target.confidence, reached, met)


def _errors_of(rule: LevelRule, level: PopulationLevel, at: float) -> Sequence[GroupTableError]:
    """The rows of one level."""

    def row(table: str, cells: int, law: NoiseLaw, *, aimed: bool) -> GroupTableError:
        rmse, margin = sqrt(law.variance_of_law), law.margin(Fraction(str(at)))
        if not aimed or rule.target is None or rule.target.margin is None:
            return GroupTableError(level.name, table, cells, rmse, margin)
        reached = law.margin(Fraction(str(rule.target.confidence)))
        target = rule.target
        met = None if target.formula == "paper" else reached <= rule.target.margin
        return GroupTableError(level.name, table, cells, rmse, margin, target.margin, target.confidence, met)

    rows = [row(rung.name, rung.cells, level.second, aimed=True) for rung in level.ladder.rungs]
    if not level.groups.total_only.all():
        rows.insert(0, row("total", 1, level.second, aimed=True))
    else:
        rows = []
    if level.groups.total_only.any():
        rows.append(row(TOTAL_ONLY_TABLE, 1, level.whole, aimed=False))
    return rows
