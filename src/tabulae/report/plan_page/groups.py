"""Errors of a plan of groups at every stop: from the laws of each level, exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...products.groups.levels import AdaptivePlan
from ...products.groups.plan import DetailedPlan
from .live import target_words
from .stops import kept
from .view import (
    ErrorRow,
    Errors,
    ErrorTable,
    ShareTable,
    Stop,
)

_ROWS_SHOWN = 300


def plan_at(plan: DetailedPlan, stop: Stop) -> DetailedPlan:
    """The plan with the budgets that its levels have at a stop."""
    levels = tuple(
        replace(level, budget=type(level.budget)(amount))
        for level, amount in zip(plan.adaptive.levels, stop.levels, strict=True)
    )
    return replace(plan, adaptive=AdaptivePlan(levels, plan.adaptive.unit))


def group_errors_at(plan: DetailedPlan, stops: Sequence[Stop]) -> ErrorTable:
    """RMSE and margin of every count of stage two, and whether its target is met, at every stop."""
    made = [plan_at(plan, stop).table_errors for stop in stops]
    rows = []
    for i in kept([row.target is not None for row in plan.table_errors], _ROWS_SHOWN):
        row = plan.table_errors[i]
        target = "" if row.target is None else target_words(row.target, row.confidence)
        found = tuple(Errors((at[i].rmse, float(at[i].margin)), at[i].met) for at in made)
        rows.append(ErrorRow((row.level, row.table), (f"{row.cells:,}",), target, found))
    return ErrorTable(
        ("Level", "Table"),
        ("Cells",),
        ("RMSE", "Margin"),
        tuple(rows),
        "Numbers are of each single count of the second stage as it is drawn. What is published joins both stages, "
        "mostly with smaller errors. Which table a group gets depends on the budget, too: tabulae plan says how often, "
        "at the plan’s own.",
        len(plan.table_errors),
    )


def level_shares(plan: DetailedPlan) -> ShareTable:
    """Each level's part of what the release costs."""
    levels, whole = plan.adaptive.levels, plan.loss.amount
    rows = tuple((level.name, (float(level.budget.amount / whole),)) for level in levels)
    together = sum((level.budget.amount for level in levels), start=whole * 0)
    note = (
        "All levels count the same records, so that their budgets add up."
        if together == whole
        else "Levels that share no record do not add up: the release costs the largest sum that one record meets."
    )
    return ShareTable("Level", "Share of the budget by level of groups", ("Share",), rows, note)
