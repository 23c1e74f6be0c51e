"""Errors of a plan of tables at every stop: exact, as a plan made anew with the same strategy would have them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from ...domain import Table, Workload
from ...estimation import within
from ...estimation.coverage import EXACT, half_widths
from ...privacy import NoiseLaw
from ...products.tables.plan import Plan
from ...strategy import (
    Information,
    LeftOpen,
    Profile,
    VarianceBound,
    error_under,
    information,
    law_variances,
)
from ..render import TABLES_SHOWN
from .live import target_words
from .stops import kept, knots
from .view import (
    OWN,
    ErrorRow,
    Errors,
    ErrorTable,
    Stop,
)

_ALIKE = 1e-6  # block variances that scale alike: what least squares makes of the answers is then the same
_KNOTS = 32


def table_errors_at(plan: Plan, stops: Sequence[Stop]) -> ErrorTable:
    """RMSE and margin of every table at every stop, and whether its target is met there.

    With block variances v(b) at budget b: where ``v(b) = c v(b0)`` least squares is the same at both budgets, so that
    every RMSE is ``sqrt(c)`` times that of b0 and the coefficients of every error are the same; the half-widths are
    then taken anew from the laws that b pays for. Elsewhere (noise of few steps) both are computed anew.
    """
    rows = {row.table: row for row in plan.table_errors}
    every = plan.spec.workload.tables
    tables = [every[i] for i in kept([rows[table.name].target is not None for table in every], TABLES_SHOWN)]
    moments = _Moments(plan, tuple(tables), stops)
    errors = []
    for i, table in enumerate(tables):
        row = rows[table.name]
        rmse = [moments.rmse[s][i] for s in range(len(stops))]
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
            ErrorRow((table.name,), (f"{row.queries:,}", _exact(row.exact, row.queries)), target, found)
        )
    return ErrorTable(("Table",), ("Counts", "Exact"), ("RMSE", "Margin"), tuple(errors), "", len(every))


def _exact(exact: int, queries: int) -> str:
    return "all" if exact == queries else f"{exact:,}" if exact else ""


@dataclass(frozen=True, eq=False)
class _Moments:
    """What noise at each stop makes of the tables."""

    plan: Plan
    tables: tuple[Table, ...]
    stops: Sequence[Stop]

    @cached_property
    def laws(self) -> list[tuple[NoiseLaw, ...]]:
        """The laws of the blocks, at each stop."""
        spec, strategy = self.plan.spec, self.plan.strategy
        return [strategy.laws(stop.loss, spec.neighbours, spec.rows_per_unit) for stop in self.stops]

    @cached_property
    def variances(self) -> list[tuple[float, ...]]:
        """Of the blocks, at each stop, in squared counts."""
        return [law_variances(self.plan.strategy, laws) for laws in self.laws]

    @cached_property
    def ratios(self) -> list[float | None]:
        """For each stop c with variances c times the plan's own; None where the blocks' ratios differ."""
        spec, strategy = self.plan.spec, self.plan.strategy
        own = law_variances(strategy, strategy.laws(spec.loss, spec.neighbours, spec.rows_per_unit))
        found = []
        for variances in self.variances:
            ratio = np.array(variances) / np.array(own)
            found.append(float(ratio.mean()) if np.ptp(ratio) <= _ALIKE * ratio.min() else None)
        return found

    @cached_property
    def rmse(self) -> list[list[float]]:
        """Shape (stops, tables)."""
        own = [self.plan.expected.tables[table.name] for table in self.tables]
        shown = Workload(self.plan.spec.domain, self.tables)
        rows = []
        for ratio, variances in zip(self.ratios, self.variances, strict=True):
            if ratio is None:
                tables = error_under(self.plan.strategy, shown, variances).tables
                rows.append([tables[table.name] for table in self.tables])
            else:
                rows.append([math.sqrt(ratio) * rmse for rmse in own])
        return rows

    def margins(self, i: int, level: float) -> list[float]:
        """The widest half-width of a table at each stop.

        Between two knots whose widest interval is a multiple of the standard deviation, the same at both, nothing is
        computed: only noise of few steps makes margins jump.
        """
        found: dict[int, tuple[float, bool]] = {}

        def at(s: int) -> tuple[float, bool]:
            if s not in found:
                found[s] = self._margin(i, s, level)
            return found[s]

        own = next(s for s, stop in enumerate(self.stops) if OWN in stop.kind)
        places = knots(len(self.stops), [own], _KNOTS)
        for low, high in pairwise(places):
            self._between(at, found, low, high)
        return [at(s)[0] for s in range(len(self.stops))]

    def _between(
        self,
        at: Callable[[int], tuple[float, bool]],
        found: dict[int, tuple[float, bool]],
        low: int,
        high: int,
    ) -> None:
        """Fill the stops between two knots where a margin grows with the standard deviation alone."""
        (first, smooth), (last, also) = at(low), at(high)
        scales = self.ratios[low : high + 1]
        if not (smooth and also) or any(scale is None for scale in scales):
            return
        size = [math.sqrt(scale) for scale in scales if scale is not None]
        if abs(first / size[0] - last / size[-1]) > 1e-9 * first / size[0]:
            return
        found.update({low + k: (first * size[k] / size[0], True) for k in range(1, high - low)})

    def _margin(self, i: int, s: int, level: float) -> tuple[float, bool]:
        """The widest half-width, and whether no interval there follows the steps of the noise."""
        strategy, ratio = self.plan.strategy, self.ratios[s]
        left = LeftOpen.of(strategy, self.tables[i])
        if ratio is None:
            profile = _distinct(left.profile(information(strategy, self.variances[s])), left.exact)
        else:
            profile = self._own_profiles[i]
            if isinstance(profile, VarianceBound):
                profile = VarianceBound(profile.variance * ratio)
        if profile is None:
            return 0.0, True
        steps = [2.0**-block.exponent for block in strategy.blocks]
        widths = half_widths(profile, self.laws[s], steps, level)
        return float(widths.values.max() / left.divisor), not (widths.ways == EXACT).any()

    @cached_property
    def _own_profiles(self) -> list[Profile | VarianceBound | None]:
        """At the plan's own budget, of the rows that are not exact."""
        strategy, spec = self.plan.strategy, self.plan.spec
        laws = strategy.laws(spec.loss, spec.neighbours, spec.rows_per_unit)
        info: Information = information(strategy, law_variances(strategy, laws))
        opened = (LeftOpen.of(strategy, table) for table in self.tables)
        return [_distinct(left.profile(info), left.exact) for left in opened]


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
    _, first = np.unique(np.ldexp(mantissa.round(12), exponent), axis=1, return_index=True)
    kept = used[np.sort(first)]
    return replace(profile, **{name: getattr(profile, name)[:, kept] for name in names}, inverse=None)
