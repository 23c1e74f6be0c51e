"""The summands of derived figures: sums of counts, ratios and quantiles, each with its error and interval."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pyarrow as pa

from ...domain import Table
from ...domain.figure import Figure, Linear, Quantile, Ratio
from ...errors import Unsupported
from ...estimation import Estimate
from ...estimation.coverage import CONSERVATIVE
from ...estimation.least_squares import LeastSquares, LocalLeastSquares, OneSided, non_negative_rows
from ...estimation.statistics import (
    PairProfile,
    RatioSet,
    box_ratios,
    covariances,
    crossing,
    delta_error,
    ratio_set,
    ratio_variance,
    uniform_factor,
    woodruff,
)
from ...release import folder as f
from ...release.agreement import csv_faults
from ...release.folder import DERIVED
from ...release.write import (
    ESTIMATED,
    EXACT,
    NOT_ESTIMABLE,
    label_columns,
    named_apart,
    parquet_bytes,
    plain_csv,
    resource_of,
)
from ...spec import Spec
from ...strategy import IterativeInformation
from .publish import empty_rows

_WIDEST = 50.0  # standard deviations: beyond, the factor of a test is of no use


@dataclass(frozen=True, eq=False)
class Part:
    """One summand of a figure, (m,) each: NaN where it is not estimable."""

    estimate: np.ndarray
    std_error: np.ndarray
    low: np.ndarray
    high: np.ndarray
    exact: np.ndarray
    conservative: np.ndarray

    def times(self, factor: float) -> Part:
        """A multiple of it."""
        ends = (self.low, self.high) if factor > 0 else (self.high, self.low)
        low, high = (factor * end for end in ends)
        return Part(
            factor * self.estimate, abs(factor) * self.std_error, low, high, self.exact, self.conservative
        )


@dataclass(frozen=True, eq=False)
class FigureNumbers:
    """The numbers that a figure of so many rows is made from.

    Errors and intervals are those of least squares, whatever method gives the estimate: ``linear_estimate``.
    """

    estimate: Estimate
    rows: int
    _exact: dict[Table, np.ndarray] = field(default_factory=dict)
    _variances: dict[Table, np.ndarray] = field(default_factory=dict)

    @cached_property
    def linear_estimate(self) -> LeastSquares:
        """Least squares from the same measurements."""
        found = self.estimate.linear if isinstance(self.estimate, OneSided) else self.estimate
        assert isinstance(found, LeastSquares)
        return found

    @property
    def bounded(self) -> bool:
        """Whether no more is known of variances than upper bounds."""
        return isinstance(self.linear_estimate.information, IterativeInformation)

    def variance(self, table: Table) -> np.ndarray:
        """Variances of least squares, (m,), each computed once."""
        if table not in self._variances:
            self._variances[table] = self.linear_estimate.variance_of(table)
        return self._variances[table]

    def exact(self, linear: Linear) -> np.ndarray:
        """Rows that are known without noise."""
        if linear.table is None:
            return np.ones(self.rows, dtype=bool)
        if linear.table not in self._exact:
            empty = empty_rows(linear.table, self.estimate.domain)
            self._exact[linear.table] = empty | self.estimate.exact_of(linear.table)
        return self._exact[linear.table]

    def value(self, linear: Linear, estimate: Estimate) -> np.ndarray:
        """Estimates, (m,)."""
        if linear.table is None:
            return np.full(self.rows, float(linear.constant))
        answer = estimate.answer_of(linear.table)
        answer = np.where(empty_rows(linear.table, self.estimate.domain), 0.0, answer)
        return float(linear.scale) * answer + float(linear.constant)

    def linear(self, linear: Linear, level: float) -> Part:
        """Sums and differences of counts: as tables are published."""
        assert linear.table is not None
        exact, middle = self.exact(linear), self.value(linear, self.estimate)
        scale = abs(float(linear.scale))
        deviation = scale * np.sqrt(self.estimate.variance_of(linear.table))
        widths = self.estimate.half_widths_of(linear.table, level)
        wide = np.where(exact, 0.0, scale * widths.values)
        error = np.where(exact, 0.0, deviation)
        return Part(middle, error, middle - wide, middle + wide, exact, widths.ways == CONSERVATIVE)

    def ratio(self, ratio: Ratio, level: float) -> Part:
        """A ratio of counts, with Fieller's interval; NaN where no bounded set of ratios is left."""
        fixed = self.exact(ratio.denominator)
        exact = fixed & self.exact(ratio.numerator)
        a, b = (self.value(each, self.linear_estimate) for each in (ratio.numerator, ratio.denominator))
        found, error, wide = self._interval(ratio, a, b, level)
        if ratio.numerator.table is not None and fixed.any():
            alone = self.linear(ratio.numerator, level) if self.estimate is self.linear_estimate else None
            found, wide = _over_exact(found, wide, alone, b, fixed)
        bounded = found.bounded & (b != 0)
        low, high = np.where(bounded, found.low, np.nan), np.where(bounded, found.high, np.nan)
        if self.estimate is self.linear_estimate:
            point = np.divide(a, b, out=np.full(self.rows, np.nan), where=bounded)
            return Part(point, error, low, high, exact, wide)
        above, below = (self.value(each, self.estimate) for each in (ratio.numerator, ratio.denominator))
        point = np.divide(above, below, out=np.full(self.rows, np.nan), where=bounded & (below != 0))
        low, high = _within_known(self, ratio, low, high)
        return Part(point, error, np.minimum(low, point), np.maximum(high, point), exact, np.ones_like(exact))

    def _interval(
        self, ratio: Ratio, a: np.ndarray, b: np.ndarray, level: float
    ) -> tuple[RatioSet, np.ndarray, np.ndarray]:
        """The set of ratios, the standard errors by the delta method, and which sets are wider than need be."""
        laws = self.estimate.measurement.laws
        scales = float(ratio.numerator.scale), float(ratio.denominator.scale)
        moments = self.moments(ratio)
        at = np.divide(a, b, out=np.zeros(self.rows), where=b != 0)
        if self.bounded or uniform_factor(laws, level) > _WIDEST:
            widths = [self.half_width(each, (1 + level) / 2) for each in (ratio.numerator, ratio.denominator)]
            found, ways = box_ratios(a, b, *widths), np.full(self.rows, CONSERVATIVE)
            spread = np.sqrt(moments[0]) + np.abs(at) * np.sqrt(moments[1])
        else:
            profile, tables = None, (ratio.numerator.table, ratio.denominator.table)
            plain = ratio.numerator.constant == ratio.denominator.constant == 0
            if tables[0] is not None and tables[1] is not None and plain:
                profile = PairProfile.of(self.linear_estimate, tables[0], tables[1])
            above, below = scales if profile else (1.0, 1.0)
            unscaled = moments[0] / above**2, moments[1] / below**2, moments[2] / (above * below)
            found, ways = ratio_set((a / above, b / below), unscaled, profile, laws, level)
            found = found.scaled(above / below)
            spread = np.sqrt(ratio_variance(at, *moments))
        error = np.divide(spread, np.abs(b), out=np.full(self.rows, np.nan), where=b != 0)
        return found, error, ways == CONSERVATIVE

    def moments(self, ratio: Ratio) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Variances of numerator and denominator and their covariance, (m,)."""
        linears = (ratio.numerator, ratio.denominator)
        out = np.zeros((2, 2, self.rows))
        held = [k for k, each in enumerate(linears) if each.table is not None]
        found = covariances(self.variance, [table for each in linears if (table := each.table)])
        scale = np.array([float(each.scale) for each in linears])
        sure = np.array([self.exact(each) for each in linears])
        for i, k in enumerate(held):
            for j, other in enumerate(held):
                free = ~(sure[k] | sure[other])
                out[k, other] = np.where(free, scale[k] * scale[other] * found[i, j], 0.0)
        return out[0, 0], out[1, 1], out[0, 1]

    def half_width(self, linear: Linear, level: float) -> np.ndarray:
        """Half-widths of least squares, (m,)."""
        if linear.table is None:
            return np.zeros(self.rows)
        widths = self.linear_estimate.half_widths_of(linear.table, level).values
        return np.where(self.exact(linear), 0.0, abs(float(linear.scale)) * widths)

    def quantile(self, quantile: Quantile, level: float) -> Part:
        """A quantile in each group, with Woodruff's interval; NaN where there may be nobody."""
        t = self.by_value(quantile, self.linear_estimate.answer_of(quantile.table))
        wide = self.linear_estimate.half_widths_of(quantile.table, level)
        half = self.by_value(quantile, wide.values)
        sure = empty_rows(quantile.table, self.estimate.domain) | self.estimate.exact_of(quantile.table)
        sure = self.by_value(quantile, sure)
        half = np.where(sure, 0.0, half)
        some = t[:, -1] > half[:, -1]
        found, values = woodruff(t, half), np.array(quantile.values, dtype=float)
        place = found.estimate
        if self.estimate is not self.linear_estimate:
            place = crossing(self.by_value(quantile, self.estimate.answer_of(quantile.table)))
        numbers = [
            np.where(some, values[at], np.nan)
            for at in (place, np.minimum(found.low, place), np.maximum(found.high, place))
        ]
        error = (numbers[2] - numbers[1]) / (2 * NormalDist().inv_cdf((1 + level) / 2))
        ways = np.any(self.by_value(quantile, wide.ways == CONSERVATIVE) & ~sure, axis=1)
        ways = ways | (self.estimate is not self.linear_estimate)
        return Part(numbers[0], error, numbers[1], numbers[2], np.all(sure, axis=1), ways)

    def by_value(self, quantile: Quantile, answers: np.ndarray) -> np.ndarray:
        """Answers of a quantile's table as (groups, values)."""
        counts = quantile.table.row_counts(self.estimate.domain)
        axis = list(counts).index(quantile.attribute)
        shaped = np.moveaxis(answers.reshape(tuple(counts.values())), axis, -1)
        return shaped.reshape(self.rows, len(quantile.values))

    def joint_error(self, figure: Figure, parts: list[Part]) -> np.ndarray:
        """Standard errors of a sum of parts by the delta method; for quantiles the sum of theirs, which bounds it."""
        if figure.quantiles or self.bounded:
            return np.sum([part.std_error for part in parts], axis=0)
        weighted: list[tuple[Linear, np.ndarray]] = []
        if figure.linear.table is not None:
            weighted.append((figure.linear, np.ones(self.rows)))
        for ratio in figure.ratios:
            a, b = (self.value(e, self.linear_estimate) for e in (ratio.numerator, ratio.denominator))
            inverse = np.divide(1.0, b, out=np.full(self.rows, np.nan), where=b != 0)
            weighted += [(ratio.numerator, inverse), (ratio.denominator, -a * inverse**2)]
        held = [(each, weight) for each, weight in weighted if each.table is not None]
        found = covariances(self.variance, [table for each, _ in held if (table := each.table)])
        slopes = np.array([np.where(self.exact(e), 0.0, w * float(e.scale)) for e, w in held])
        return delta_error(slopes, found)


def _over_exact(
    found: RatioSet, wide: np.ndarray, alone: Part | None, b: np.ndarray, fixed: np.ndarray
) -> tuple[RatioSet, np.ndarray]:
    """Where the denominator is exact the ratio is linear, and has the interval of its numerator."""
    if alone is None:
        return found, wide
    whole = fixed & (b != 0)
    safe = np.where(whole, b, 1.0)
    ratios = found.over_exact(whole, alone.low / safe, alone.high / safe)
    return ratios, np.where(whole, alone.conservative, wide)


def _within_known(
    source: FigureNumbers, ratio: Ratio, low: np.ndarray, high: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Ends cut at 0 where no record counts negatively, above or below."""
    cut = np.ones(source.rows, dtype=bool)
    for linear in (ratio.numerator, ratio.denominator):
        cut &= linear.constant >= 0 < linear.scale
        if linear.table is not None:
            cut &= non_negative_rows(linear.table.operator(source.estimate.domain))
    return np.where(cut, np.maximum(low, 0.0), low), np.where(cut, np.maximum(high, 0.0), high)


@dataclass(frozen=True, eq=False)
class PublishedFigure:
    """One derived figure as it is published; arrays have one entry a row.

    Where ``status`` is Q the numbers are NaN here, and empty in the files. ``conservative`` says how many of the
    intervals are wider than need be; ``grain`` is how far apart the values are that quantiles choose from.
    """

    name: str
    columns: dict[str, tuple[str, ...]]
    estimate: np.ndarray
    std_error: np.ndarray
    ci_low: np.ndarray
    ci_high: np.ndarray
    status: np.ndarray
    conservative: int
    grain: float = 0.0

    def arrow(self) -> pa.Table:
        """The figure as it stands in the release's Parquet and CSV files."""
        labels: dict[str, Any] = {n: c.cast(pa.string()) for n, c in label_columns(self.columns).items()}
        numbers = {
            name: pa.array(getattr(self, name), pa.float64(), from_pandas=True)
            for name in ("estimate", "std_error", "ci_low", "ci_high")
        }
        return pa.table({**labels, **numbers, "obs_status": pa.array(self.status, pa.string())})


def publish_figure(estimate: Estimate, figure: Figure, level: float) -> PublishedFigure:
    """A figure with standard errors and intervals, from the estimates of the counts that it is made from.

    A sum of J ratios, quantiles and counts has the sums of their intervals at level ``1 - (1 - level) / J``.

    Arguments:
        estimate: of the counts, by any method.
        figure: what is asked for.
        level: of the intervals: each covers the true figure with at least this probability.

    Raises:
        NotEstimable: the measurements do not determine a count that it takes.
        Unsupported: each table is estimated from its own measurements, so that errors of two have no covariance here.

    Privacy:
        Post-processing of public estimates: costs nothing.
    """
    if isinstance(estimate, LocalLeastSquares):
        raise Unsupported('figures need estimates that agree with each other: estimate by "least-squares"')
    source = FigureNumbers(estimate, figure.rows)
    linear = [figure.linear] if figure.linear.table else []
    count = len(linear) + len(figure.ratios) + len(figure.quantiles)
    level = 1 - (1 - level) / count
    parts = [source.linear(each, level) for each in linear]
    parts += [source.ratio(each, level) for each in figure.ratios]
    parts += [source.quantile(each, level).times(float(each.coefficient)) for each in figure.quantiles]
    shift = 0.0 if linear else float(figure.linear.constant)
    exact = np.all([part.exact for part in parts], axis=0)
    total = np.sum([part.estimate for part in parts], axis=0) + shift
    error = parts[0].std_error if count == 1 else source.joint_error(figure, parts)
    low, high = (np.sum([getattr(p, end) for p in parts], axis=0) + shift for end in ("low", "high"))
    known = np.isfinite(total) & np.isfinite(low) & np.isfinite(high)
    wide = np.any([part.conservative for part in parts], axis=0) | (count > 1)
    total, error, low, high = (
        np.where(known, each, np.nan)
        for each in (
            total,
            np.where(exact, 0.0, error),
            np.where(exact, total, low),
            np.where(exact, total, high),
        )
    )
    return PublishedFigure(
        figure.name,
        figure.headings,
        total,
        error,
        low,
        high,
        np.where(known, np.where(exact, EXACT, ESTIMATED), NOT_ESTIMABLE),
        int((wide & known & ~exact).sum()),
        sum(_grain(quantile) for quantile in figure.quantiles),
    )


def _grain(quantile: Quantile) -> float:
    return abs(float(quantile.coefficient)) * float(np.diff(quantile.values).max(initial=0))


_ROUNDING = 1e-5  # share of a standard error by which two machines' sums may differ
_NUMBERS = ("estimate", "std_error", "ci_low", "ci_high")


def publish_derived(estimate: Estimate, spec: Spec, level: float) -> list[PublishedFigure]:
    """The derived figures of a spec, in its order.

    Raises:
        NotEstimable: the measurements do not determine a count that one of them takes.
    """
    return [publish_figure(estimate, derived.figure, level) for derived in spec.derived]


def write_derived(folder: Path, spec: Spec, figures: Sequence[PublishedFigure]) -> None:
    """Write the files of derived figures, and name them in the descriptor.

    Privacy:
        Post-processing of published estimates (Dwork, Roth 2014, Proposition 2.1): nothing of the records enters.
    """
    if not figures:
        return
    for figure in figures:
        rows = figure.arrow()
        f.write_bytes(folder / DERIVED / f"{figure.name}.parquet", parquet_bytes(rows))
        f.write_bytes(folder / DERIVED / f"{figure.name}.csv", plain_csv(rows))
    descriptor = f.read_json(folder, f.DESCRIPTOR)
    told = {derived.name: derived for derived in spec.derived}
    for figure in figures:
        resource = resource_of(DERIVED, figure.name, list(figure.columns), told[figure.name].figure.sql)
        descriptor["resources"].append(resource | {"title": told[figure.name].title})
    descriptor["resources"] = named_apart(descriptor["resources"])
    descriptor["tabulae"]["derived"] = {figure.name: figure.conservative for figure in figures}
    f.write_json(folder / f.DESCRIPTOR, descriptor)


def derived_faults(
    folder: Path, spec: Spec, stored: Mapping[str, pa.Table], estimate: Estimate, level: float
) -> Iterator[str]:
    """What is wrong with the stored figures: one sentence a fault. They are computed afresh from the measurements."""
    if set(stored) != {derived.name for derived in spec.derived}:
        yield f"{f.DESCRIPTOR}: its derived figures are not those of {f.SPEC}"
        return
    for fresh in publish_derived(estimate, spec, level):
        yield from csv_faults(folder, fresh.name, stored[fresh.name], DERIVED)
        yield from _false_numbers(fresh, stored[fresh.name], estimate.precision)


def _false_numbers(fresh: PublishedFigure, stored: pa.Table, precision: float) -> Iterator[str]:
    """Columns of a stored figure that differ from what the measurements say."""
    made = fresh.arrow()
    if stored.schema.names != made.schema.names or stored.num_rows != made.num_rows:
        yield f"{DERIVED}/{fresh.name}: does not have the rows and columns of its statement"
        return
    for name in (*fresh.columns, "obs_status"):
        if stored[name].to_pylist() != made[name].to_pylist():
            yield f"{DERIVED}/{fresh.name}: {name} does not follow from the measurements"
    known = fresh.status != NOT_ESTIMABLE
    error = np.where(known, fresh.std_error, 0.0)
    loose = max(precision, _ROUNDING) * error + (fresh.grain if precision else 0.0)
    for name in _NUMBERS:
        values = np.where(known, getattr(fresh, name), 0.0)
        allowed = 1e-6 * np.abs(values) + np.where(fresh.status == EXACT, 0.0, loose) + 1e-9
        found = stored[name].to_numpy().astype(float)
        if (np.isfinite(found) != known).any() or (
            np.abs(np.where(known, found, 0.0) - values) > allowed
        ).any():
            yield f"{DERIVED}/{fresh.name}: {name} does not follow from the measurements"
