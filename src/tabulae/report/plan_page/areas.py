"""Errors of a plan of areas at every stop, and where its budget goes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ...privacy import NoiseLaw
from ...products.areas.passes.covariances import Covariances
from ...products.areas.passes.forms import area_half_widths
from ...products.areas.plan import GeographyPlan
from ...products.areas.spine_plan import estimation_variance
from ...products.areas.targets import AreaErrors, AreaTableError
from ...products.smallest import TargetRow
from ..view import ExactView
from .area_targets import met_at
from .live import target_words
from .stops import kept, knots
from .view import (
    OWN,
    SMALLEST,
    Areas,
    ErrorRow,
    Errors,
    ErrorTable,
    ShareTable,
    Stop,
)

_ALIKE = 1e-6  # variances that scale alike: then least squares is the same at both budgets
_KNOTS = 4
_ROWS_SHOWN = 300


def area_errors_at(plan: GeographyPlan, stops: Sequence[Stop]) -> ErrorTable:
    """Errors of every table and kind of area at every stop.

    With law variances v_i(b), a variance of least squares grows with each of them, so that between two budgets

        min_i v_i(b) / v_i(a)  <=  V(b) / V(a)  <=  max_i v_i(b) / v_i(a)

    From the plan's own budget the two sides are equal as long as no noise is of few steps: the errors are then those of
    an exact plan. Elsewhere plans are made anew at some stops, and between them stands the upper side, labelled.
    """
    spaced = _Spaced(plan, stops)
    unbiased = (
        ""
        if plan.geography.estimate == "gls"
        else (
            f" Errors of {plan.geography.estimate}, which gives whole numbers that are not negative, depend on the "
            "counts and are not known beforehand: mostly smaller ones, biased upwards where counts are small."
        )
    )
    aimed = [
        any((t.table, t.of) == (row.table, row.area_type) for t in spaced.targets)
        for row in plan.table_errors
    ]
    rows = tuple(spaced.row(i, plan.table_errors[i]) for i in kept(aimed, _ROWS_SHOWN))
    return ErrorTable(
        ("Table", "Areas of"),
        ("Areas",),
        ("RMSE", "Worst area", "Margin"),
        rows,
        "Numbers are of generalised least squares (gls), over all counts of all areas but exact ones; the worst area "
        f"is the one with the largest RMSE, and the margin is of a count with the RMSE of its row.{unbiased}",
        len(plan.table_errors),
    )


def laws_at(plan: GeographyPlan, stop: Stop) -> tuple[NoiseLaw, ...]:
    """The distinct laws of the noise at a stop, in the order of those at the plan's own budget.

    A variance, or a Laplace scale, is a constant divided by the budget.
    """
    growth = plan.spec.loss.amount / stop.loss.amount
    return tuple(type(law)(law.parameter * growth) for law in plan.spine_plan.all_laws)


@dataclass(frozen=True, eq=False)
class _Spaced:
    """Exact errors at some stops, and the factor by which variances grow from there to the others."""

    plan: GeographyPlan
    stops: Sequence[Stop]

    @cached_property
    def own(self) -> int:
        """The position of the plan's own budget."""
        return next(i for i, stop in enumerate(self.stops) if OWN in stop.kind)

    @cached_property
    def targets(self) -> tuple[TargetRow, ...]:
        """All targets, with what the plan's own budget reaches."""
        return () if self.plan.smallest is None else self.plan.smallest.targets

    @cached_property
    def off(self) -> set[str]:
        """Kinds of area of which some are added up from several units."""
        return {d.entity_type for d in self.plan.distances if d.largest > 1}

    @cached_property
    def laws(self) -> list[tuple[NoiseLaw, ...]]:
        """The distinct laws, at each stop."""
        return [laws_at(self.plan, stop) for stop in self.stops]

    @cached_property
    def variances(self) -> list[np.ndarray]:
        """Of these laws, at each stop."""
        return [np.array([estimation_variance(law) for law in laws]) for laws in self.laws]

    @cached_property
    def steps(self) -> list[tuple[int, float, bool]]:
        """For each stop a stop with exact errors, at most so many times whose variances it has; False: exactly."""
        own = self.own
        special = [i for i, stop in enumerate(self.stops) if stop.kind]
        places, found = knots(len(self.stops), special, _KNOTS), []
        for i in range(len(self.stops)):
            nearest = max(place for place in places if place <= i)
            candidates = [(own, *self._growth(own, i)), (nearest, *self._growth(nearest, i))]
            base, low, high = candidates[0]
            if high - low > _ALIKE * low:
                base, low, high = candidates[1]
            found.append((base, high, high - low > _ALIKE * low))
        return found

    def _growth(self, base: int, to: int) -> tuple[float, float]:
        ratio = self.variances[to] / self.variances[base]
        return float(ratio.min()), float(ratio.max())

    @cached_property
    def exact(self) -> dict[int, tuple[AreaTableError, ...]]:
        """Errors of plans made at some stops."""
        limits = self.plan.geography.constraints
        known = () if limits is None else limits.exact
        made = {}
        for base in sorted({base for base, _, _ in self.steps}):
            spine = replace(self.plan.spine_plan, budget=self.stops[base].loss)
            made[base] = AreaErrors(self.plan.geography, Covariances.of(spine, known), self.plan.level).rows()
        return made

    def row(self, i: int, own: AreaTableError) -> ErrorRow:
        """A table of one kind of area at every stop."""
        off = " (off the spine)" if own.area_type in self.off else ""
        targets = [t for t in self.targets if (t.table, t.of) == (own.table, own.area_type)]
        found = []
        for s, (base, growth, rough) in enumerate(self.steps):
            exact = self.exact[base][i]
            rmse, largest = (math.sqrt(growth) * error for error in (exact.rmse, exact.largest))
            margin = exact.margin if base == s else self._margin(rmse, self.laws[s])
            found.append(Errors((rmse, largest, margin), self._met(targets, s), rough))
        words = "; ".join(target_words(target.target, target.confidence) for target in targets)
        return ErrorRow((own.table, own.area_type + off), (f"{own.areas:,}",), words, tuple(found))

    def _met(self, targets: Sequence[TargetRow], s: int) -> bool | None:
        """Whether all targets of a row are met at a stop; None without any, and where that cannot be told."""
        if not targets:
            return None
        if SMALLEST in self.stops[s].kind:
            return True
        if s == self.own:
            answers = [target.met for target in targets]
        else:
            laws, growth = self.laws[s], self._growth(self.own, s)
            answers = [met_at(target, self.laws[self.own], laws, growth) for target in targets]
        return False if False in answers else None if None in answers else True

    def _margin(self, rmse: float, laws: Sequence[NoiseLaw]) -> float:
        return float(area_half_widths(np.array([rmse**2]), laws, self.plan.level)[0])


def area_shares(plan: GeographyPlan) -> Iterator[ShareTable]:
    """Shares of the budget by level, and within each level by query."""
    rows = tuple((row.level, (float(row.share),)) for row in plan.levels)
    yield ShareTable(
        "Level",
        "Share of the budget by level",
        ("Share",),
        rows,
        "Of a unit with the share of its level. Units that the spine leaves out pass their share on to those below.",
    )
    spine = plan.spine_plan
    levels = [level for level in spine.spine.levels if level in spine.query_shares]
    by_query = tuple(
        (query.name, tuple(float(spine.query_shares[level][q]) for level in levels))
        for q, query in enumerate(spine.queries)
    )
    yield ShareTable(
        "Query",
        "Share of each level’s budget by query",
        tuple(levels),
        by_query,
        "Each column adds up to all of its level.",
    )


def areas_of(plan: GeographyPlan) -> Areas:
    """Distances of areas off the spine, and the estimator."""
    distances = tuple(
        (d.entity_type, d.entities, d.conventional_mean, d.conventional_largest, d.mean, d.largest)
        for d in plan.distances
    )
    return Areas(distances, plan.geography.estimate)


def area_exact(plan: GeographyPlan) -> tuple[ExactView, ...]:
    """The margins that are exact, and why."""
    limits = plan.geography.constraints
    return tuple(
        ExactView(f"{margin.margin.name}, of each {margin.level}", margin.reason)
        for margin in (() if limits is None else limits.exact)
    )
