"""Whether targets of areas are met at a stop: yes, no, or not told where variances are only known between limits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import pairwise

import numpy as np

from ...domain import Table
from ...estimation import within
from ...estimation.coverage import EXACT, half_widths
from ...privacy import NoiseLaw
from ...products.areas.passes.covariances import Covariances
from ...products.areas.plan import GeographyPlan
from ...products.areas.spine_plan import area_half_widths, estimation_variance, interval_factor
from ...products.areas.tables import earlier_of
from ...products.areas.targets import AreaErrors, AreaTableError
from ...products.groups.levels import AdaptivePlan
from ...products.groups.plan import DetailedPlan
from ...products.smallest import TargetRow
from ...products.tables.plan import Plan
from ...strategy import Information, LeftOpen, Profile, VarianceBound, law_variances
from ...strategy.information.routes import information
from ..page import TABLES_SHOWN
from ..promise import ExactView
from .view import (
    OWN,
    SMALLEST,
    AreasView,
    ErrorLine,
    Errors,
    ErrorTable,
    ShareTable,
    Stop,
    kept,
    knots,
    target_words,
)


def met_at(
    target: TargetRow, own: Sequence[NoiseLaw], laws: Sequence[NoiseLaw], growth: tuple[float, float]
) -> bool | None:
    """Whether a target is met by other noise than that which its ``reached`` is for.

    Arguments:
        growth: the least and the largest ratio of a variance to that at the plan's own budget.
    """
    if target.confidence is None:
        low, high = (math.sqrt(ratio) * target.reached for ratio in growth)
    else:
        squares = np.array(growth) * (target.reached / interval_factor(target.confidence, own)) ** 2
        low, high = area_half_widths(squares, laws, target.confidence).tolist()
    allowed = target.target * (1 + 1e-9)
    if high <= allowed:
        return True
    return False if low > allowed else None


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
    if plan.geography.sparse is not None:
        about = (
            'Counts of estimate = "sparse" have no errors that are known, before the run or after it, and will be '
            "published without intervals."
        )
        return ErrorTable(("Table", "Areas of"), (), (), (), about, 0)
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
        f"is the one with the largest RMSE, and the margin is that of the count with the widest interval.{unbiased}",
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
        return next(i for i, stop in enumerate(self.stops) if OWN in stop.kind)

    @cached_property
    def targets(self) -> tuple[TargetRow, ...]:
        return () if self.plan.smallest is None else self.plan.smallest.targets

    @cached_property
    def off(self) -> set[str]:
        """Kinds of area of which some are added up from several units."""
        return {d.entity_type for d in self.plan.distances if d.largest > 1}

    @cached_property
    def laws(self) -> list[tuple[NoiseLaw, ...]]:
        return [laws_at(self.plan, stop) for stop in self.stops]

    @cached_property
    def variances(self) -> list[np.ndarray]:
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

    def row(self, i: int, own: AreaTableError) -> ErrorLine:
        """A table of one kind of area at every stop."""
        off = " (off the spine)" if own.area_type in self.off else ""
        targets = [t for t in self.targets if (t.table, t.of) == (own.table, own.area_type)]
        found = []
        for s, (base, growth, rough) in enumerate(self.steps):
            exact = self.exact[base][i]
            rmse, largest, worst = (
                math.sqrt(growth) * error for error in (exact.rmse, exact.largest, exact.worst)
            )
            margin = exact.margin if base == s else self._margin(worst, self.laws[s])
            found.append(Errors((rmse, largest, margin), self._met(targets, s), rough))
        words = "; ".join(target_words(target.target, target.confidence) for target in targets)
        return ErrorLine((own.table, own.area_type + off), (f"{own.areas:,}",), words, tuple(found))

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

    def _margin(self, worst: float, laws: Sequence[NoiseLaw]) -> float:
        return float(area_half_widths(worst**2, laws, self.plan.level))


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


def areas_of(plan: GeographyPlan) -> AreasView:
    """Distances of areas off the spine, and the estimator."""
    distances = tuple(
        (d.entity_type, d.entities, d.conventional_mean, d.conventional_largest, d.mean, d.largest)
        for d in plan.distances
    )
    earlier = tuple(each.words for each in earlier_of(plan.geography))
    return AreasView(distances, plan.geography.estimate, earlier)


def area_exact(plan: GeographyPlan) -> tuple[ExactView, ...]:
    """The margins that are exact, and why."""
    limits = plan.geography.constraints
    return tuple(
        ExactView(f"{margin.margin.name}, of each {margin.level}", margin.reason)
        for margin in (() if limits is None else limits.exact)
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
        rows.append(ErrorLine((row.level, row.table), (f"{row.cells:,}",), target, found))
    return ErrorTable(
        ("Level", "Table"),
        ("Cells",),
        ("RMSE", "Margin"),
        tuple(rows),
        "Numbers are of each single count as it is drawn. Public counts choose the tables, whatever the budget."
        if plan.chosen_by_counts
        else "Numbers are of each single count of the second stage as it is drawn. What is published joins both "
        "stages, mostly with smaller errors. Which table a group gets depends on the budget, too: tabulae plan says "
        "how often, at the plan’s own.",
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


_NEARLY = (
    2e-4  # by which share ratios of block variances may differ where one stop lends another its coefficients
)
_ON_CURVE = 1e-6  # how far the middle of a curve may lie beside it, as a share
_NOISY = 1e-2  # the least mean variance on a curve: noise that is nearly always 0 has steps of its own
_KNOTS_OF_TABLES, _LEAST_CURVE = 26, 6


def table_errors_at(plan: Plan, stops: Sequence[Stop]) -> ErrorTable:
    """RMSE and margin of every table at every stop, and whether its target is met there.

    With block variances v(b) at budget b: where ``v(b) = c v(b0)`` least squares is the same at both budgets. Where the
    ratios of the blocks differ by a share d, coefficients of b0 lose at most d^2 / 4 of a variance (Kantorovich), and
    the shape of an interval's noise changes as d. They serve up to ``d = _NEARLY``, where half-widths are still those
    of the laws that b pays for. An error is ``f sqrt(c)`` with f smooth in ``1 / sqrt c``, the noise's step in standard
    deviations: between five stops the polynomial through them stands if the middle one is on that through the others.
    Where noise is of few steps every stop is computed. Of 41,600 numbers of 200 tables 99 % are those of every stop
    computed by itself to 2e-5, and all to 3e-4, less than a page shows.
    """
    rows = {row.table: row for row in plan.table_errors}
    every = plan.spec.workload.tables
    tables = [every[i] for i in kept([rows[table.name].target is not None for table in every], TABLES_SHOWN)]
    moments = _Moments(plan, tuple(tables), stops)
    errors = []
    for i, table in enumerate(tables):
        row = rows[table.name]
        rmse = moments.rmse[i]
        margin = moments.margins(i, plan.level)
        judged = margin
        if row.confidence is not None and row.confidence != plan.level:
            judged = moments.margins(i, row.confidence)
        met = [
            None
            if row.target is None
            else r <= row.target
            if row.confidence is None
            else within(w, row.target)
            for r, w in zip(rmse, judged, strict=True)
        ]
        found = tuple(Errors((r, w), m) for r, w, m in zip(rmse, margin, met, strict=True))
        target = "" if row.target is None else target_words(row.target, row.confidence)
        errors.append(
            ErrorLine((table.name,), (f"{row.queries:,}", _exact(row.exact, row.queries)), target, found)
        )
    about = " ".join(f"{name} is in other units: {unit}." for name, unit in plan.spec.units.items())
    return ErrorTable(("Table",), ("Counts", "Exact"), ("RMSE", "Margin"), tuple(errors), about, len(every))


def _exact(exact: int, queries: int) -> str:
    return "all" if exact == queries else f"{exact:,}" if exact else ""


@dataclass(frozen=True, eq=False)
class _Moments:
    """What noise at each stop makes of the tables."""

    plan: Plan
    tables: tuple[Table, ...]
    stops: Sequence[Stop]
    _profiles: dict[tuple[int, int], Profile | VarianceBound | None] = field(default_factory=dict)

    @cached_property
    def laws(self) -> list[tuple[NoiseLaw, ...]]:
        spec, strategy = self.plan.spec, self.plan.strategy
        return [spec.with_budget(stop.loss).table_laws(strategy) for stop in self.stops]

    @cached_property
    def variances(self) -> list[tuple[float, ...]]:
        """Of the blocks, at each stop, in squared counts."""
        return [law_variances(self.plan.strategy, laws) for laws in self.laws]

    def _apart(self, one: int, other: int) -> float:
        """By which share the blocks' ratios of variances differ between two stops; infinite beyond what floats hold."""
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            ratios = np.array(self.variances[other]) / self.variances[one]
            apart = float(np.ptp(ratios) / ratios.min())
        return apart if math.isfinite(apart) else math.inf

    @cached_property
    def _own(self) -> int:
        return next(s for s, stop in enumerate(self.stops) if OWN in stop.kind)

    @cached_property
    def _bases(self) -> dict[int, int]:
        """For each stop that whose coefficients will do there: the plan's own, or the last before it that is needed."""
        found = {self._own: self._own}
        for way in (range(self._own - 1, -1, -1), range(self._own + 1, len(self.stops))):
            base = self._own
            for s in way:
                base = base if self._apart(base, s) <= _NEARLY else s
                found[s] = base
        return found

    @cached_property
    def rmse(self) -> list[list[float]]:
        """Shape (tables, stops)."""

        def rmse(left: LeftOpen, s: int) -> float:
            return math.sqrt(left.variance(self._information(s)).mean())

        return [
            self._along(lambda stops, left=left: [(rmse(left, s), "") for s in stops]) for left in self._open
        ]

    def margins(self, i: int, level: float) -> list[float]:
        """The widest half-width of a table at each stop."""

        def computed(stops: Sequence[int]) -> list[tuple[float, str]]:
            self._know(i, [self._bases[s] for s in stops])
            return [self._margin(i, s, level) for s in stops]

        return self._along(computed)

    def _along(self, computed: Callable[[Sequence[int]], list[tuple[float, str]]]) -> list[float]:
        """Errors of all stops: computed at some, and between them where what is computed lies on curves.

        Args:
            computed: some stops -> the error at each, and how it is known.
        """
        found: dict[int, tuple[float, str]] = {}
        scale = np.array(self.variances).mean(axis=1)
        special = [s for s, stop in enumerate(self.stops) if stop.kind]
        spans = list(pairwise(knots(len(self.stops), special, _KNOTS_OF_TABLES)))
        while spans:
            every = [_nodes(low, high) for low, high in spans]
            new = sorted({s for nodes in every for s in nodes}.difference(found))
            found.update(zip(new, computed(new), strict=True))
            between, spans = spans, []
            for (low, high), nodes in zip(between, every, strict=True):
                if high - low < _LEAST_CURVE:
                    continue
                errors, ways = zip(*(found[s] for s in nodes), strict=True)
                curve = None if EXACT in ways else _curve(nodes, errors, scale)
                if curve is None:
                    spans += [(low, nodes[2]), (nodes[2], high)]
                else:
                    found.update({s: (float(curve[s - low]), "") for s in range(low, high) if s not in found})
        return [found[s][0] for s in range(len(self.stops))]

    def _margin(self, i: int, s: int, level: float) -> tuple[float, str]:
        """The widest half-width, and how it is known: by the steps of the noise where any interval is."""
        base = self._bases[s]
        profile = self._profile(i, base)
        if isinstance(profile, VarianceBound) and self._apart(base, s) > _ALIKE:
            profile = self._profile(i, s)
        elif isinstance(profile, VarianceBound):
            profile = VarianceBound(profile.variance * self.variances[s][0] / self.variances[base][0])
        if profile is None:
            return 0.0, ""
        widths = half_widths(profile, self.laws[s], self._steps, level)
        by_steps = (widths.ways == EXACT).any()
        if by_steps and self._apart(base, s) > _ALIKE:  # coefficients may be equal at one stop alone
            profile = self._profile(i, s)
            assert profile is not None
            widths = half_widths(profile, self.laws[s], self._steps, level)
        return float(widths.values.max() / self._open[i].divisor), EXACT if by_steps else ""

    def _profile(self, i: int, s: int) -> Profile | VarianceBound | None:
        """What noise at a stop makes of the rows of a table that are not exact."""
        self._know(i, [s])
        return self._profiles[i, s]

    def _know(self, i: int, stops: Sequence[int]) -> None:
        """Profiles of a table under the noise of some stops, together."""
        left, new = self._open[i], sorted({s for s in stops if (i, s) not in self._profiles})
        if new:
            found = left.profiles([self._information(s) for s in new])
            distinct = (_distinct(profile, left.exact) for profile in found)
            self._profiles.update(zip([(i, s) for s in new], distinct, strict=True))

    @cached_property
    def _information(self) -> Callable[[int], Information]:
        return cache(lambda s: information(self.plan.strategy, self.variances[s]))

    @cached_property
    def _steps(self) -> tuple[float, ...]:
        return self.plan.strategy.steps

    @cached_property
    def _open(self) -> list[LeftOpen]:
        return [LeftOpen.of(self.plan.strategy, table) for table in self.tables]


def _nodes(low: int, high: int) -> list[int]:
    """Five stops from one to another; all of them where they are few."""
    return (
        list(range(low, high + 1))
        if high - low < _LEAST_CURVE
        else [low + k * (high - low) // 4 for k in range(5)]
    )


def _curve(nodes: Sequence[int], errors: Sequence[float], scale: np.ndarray) -> np.ndarray | None:
    """Errors at the stops from the first of five nodes to the last, by the polynomial through what the nodes have.

    ``f sqrt(c)`` at scales c with f a polynomial in ``1 / sqrt c``. None where the middle node is not on the cubic
    through the others, and for noise that is nearly always 0.
    """
    if scale[nodes].min() < _NOISY:
        return None
    some = np.sqrt(scale[nodes])
    place, f = some[-1] / some, np.array(errors) / some
    beside = [0, 1, 3, 4]
    if not abs(_through(place[beside], f[beside], place[2]) - f[2]) <= _ON_CURVE * f[2]:
        return None
    between = np.sqrt(scale[nodes[0] : nodes[-1] + 1])
    return between * _through(place, f, some[-1] / between)


def _through(places: np.ndarray, values: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The polynomial through some values, at other places (Lagrange)."""
    apart = places[:, None] - places
    np.fill_diagonal(apart, 1.0)
    away = np.subtract.outer(at, places)
    others = [away[..., [j for j in range(len(places)) if j != k]].prod(axis=-1) for k in range(len(places))]
    return np.stack(others, axis=-1) @ (values / apart.prod(axis=1))


def _distinct(profile: Profile | VarianceBound | None, exact: np.ndarray) -> Profile | VarianceBound | None:
    """A profile with one column of each kind, exact counts left out: the widest of its intervals is the same."""
    if profile is None or exact.all():
        return None
    if isinstance(profile, VarianceBound):
        return VarianceBound(np.atleast_1d(profile.variance[~exact].max()))
    rows = np.arange(exact.size) if profile.inverse is None else profile.inverse
    used = np.unique(rows[~exact])
    names = ("power2", "power4", "power6", "largest", "count")
    mantissa, exponent = np.frexp(
        np.concatenate([getattr(profile, name)[:, used] for name in names]).astype(float)
    )
    columns = np.ldexp(mantissa.round(12) + 0.0, exponent).T
    first: dict[bytes, int] = {}
    for column, row in zip(columns, used.tolist(), strict=True):
        first.setdefault(column.tobytes(), row)
    kept = list(first.values())
    return replace(profile, **{name: getattr(profile, name)[:, kept] for name in names}, inverse=None)
