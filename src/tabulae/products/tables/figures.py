"""The summands of derived figures: sums of counts, ratios and quantiles, each with its error and interval."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pyarrow as pa

from ...domain import Attribute, Domain, Figure, Linear, Quantile, Ratio, Table
from ...errors import InvalidArgument, Unsupported
from ...estimation import Estimate
from ...estimation.coverage import CONSERVATIVE, uniform_factor
from ...estimation.figures import Sampling, figure_numbers
from ...estimation.intervals import non_negative_rows
from ...estimation.least_squares import LeastSquares, LocalLeastSquares, OneSided
from ...estimation.statistics import WIDEST, PairProfile, RatioSet, covariance_of, ratio_set
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
from .publish import beside, empty_rows

_STATUS = np.array([ESTIMATED, EXACT, NOT_ESTIMABLE])


@dataclass(frozen=True, eq=False)
class EstimatedCounts:
    """What least squares knows of the tables of a figure of so many rows, each number computed once."""

    linear: LeastSquares
    rows: int
    other: NonNegativeCounts | None = None
    _exact: dict[Table, np.ndarray] = field(default_factory=dict)
    _variances: dict[Table, np.ndarray] = field(default_factory=dict)

    @classmethod
    def of(cls, estimate: Estimate, rows: int) -> EstimatedCounts:
        if isinstance(estimate, OneSided):
            return cls(estimate.linear, rows, NonNegativeCounts(estimate))
        assert isinstance(estimate, LeastSquares)
        return cls(estimate, rows)

    @property
    def domain(self) -> Domain:
        return self.linear.domain

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.rows,)

    @property
    def only_bounds(self) -> bool:
        return isinstance(self.linear.information, IterativeInformation)

    def exact(self, table: Table) -> np.ndarray:
        if table not in self._exact:
            self._exact[table] = empty_rows(table, self.domain) | self.linear.exact_of(table)
        return self._exact[table]

    def estimate(self, table: Table) -> np.ndarray:
        return np.where(empty_rows(table, self.domain), 0.0, self.linear.answer_of(table))

    def covariance(self, one: Table, other: Table) -> np.ndarray:
        free = ~(self.exact(one) | self.exact(other))
        return np.where(free, covariance_of(self._variance, one, other), 0.0)

    def _variance(self, table: Table) -> np.ndarray:
        if table not in self._variances:
            self._variances[table] = self.linear.variance_of(table)
        return self._variances[table]

    def half_widths(self, table: Table, level: float) -> tuple[np.ndarray, np.ndarray]:
        widths = self.linear.half_widths_of(table, level)
        return np.where(self.exact(table), 0.0, widths.values), widths.ways == CONSERVATIVE

    def ratio_set(
        self,
        ratio: Ratio,
        estimates: tuple[np.ndarray, np.ndarray],
        moments: tuple[np.ndarray, np.ndarray, np.ndarray],
        level: float,
    ) -> tuple[RatioSet, np.ndarray] | None:
        laws = self.linear.measurement.laws
        if self.only_bounds or uniform_factor(laws, level) > WIDEST:
            return None
        profile, (above, below) = None, (ratio.numerator, ratio.denominator)
        if above.table is not None and below.table is not None and above.constant == below.constant == 0:
            profile = PairProfile.of(self.linear, above.table, below.table)
        found, ways = ratio_set(estimates, moments, profile, laws, level)
        return found, ways == CONSERVATIVE


@dataclass(frozen=True, eq=False)
class NonNegativeCounts:
    """Estimates that are kept non-negative, with intervals of least squares that contain them."""

    kept: OneSided

    def estimate(self, table: Table) -> np.ndarray:
        return np.where(empty_rows(table, self.kept.domain), 0.0, self.kept.answer_of(table))

    def half_widths(self, table: Table, level: float) -> np.ndarray:
        return self.kept.half_widths_of(table, level).values

    def never_negative(self, linear: Linear) -> np.ndarray:
        sure = np.array(linear.constant >= 0 < linear.scale)
        return sure if linear.table is None else sure & non_negative_rows(self.kept.operator_of(linear.table))


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
        labels: dict[str, Any] = {n: c.cast(pa.string()) for n, c in label_columns(self.columns).items()}
        numbers = {
            name: pa.array(getattr(self, name), pa.float64(), from_pandas=True)
            for name in ("estimate", "std_error", "ci_low", "ci_high")
        }
        return pa.table({**labels, **numbers, "obs_status": pa.array(self.status, pa.string())})


def publish_figure(estimate: Estimate, figure: Figure, level: float) -> PublishedFigure:
    """A figure with standard errors and intervals, from the estimates of the counts that it is made from.

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
    found = figure_numbers(figure, EstimatedCounts.of(estimate, figure.rows), level)
    return PublishedFigure(
        figure.name,
        figure.headings,
        found.estimate,
        found.std_error,
        found.ci_low,
        found.ci_high,
        _STATUS[found.status],
        found.conservative,
        sum(_grain(quantile) for quantile in figure.quantiles),
    )


def means(estimate: Estimate, table: Table, value: Attribute, level: float = 0.95) -> pa.Table:
    """Means of a measured value over the records that each row of a table counts, with errors and intervals.

    The mean is ``S / n`` of one set of measurements. Its interval is ``{R : |S - R n| <= h(R)}``, with h a half-width
    of the noise of ``S - R n``; nothing is linearised, so that it holds for small groups as well.

    Arguments:
        estimate: of measurements that determine counts and sums of the table.
        table: of counts.
        value: a measured value of the domain.
        level: each interval covers the true mean with at least this probability.

    Returns:
        The table's columns, then ``estimate``, ``std_error``, ``ci_low``, ``ci_high`` and ``obs_status``: "Q" where the
        group may be empty, so that no interval is bounded.

    Raises :class:`~tabulae.errors.NotEstimable` where the measurements do not determine a count or a sum.

    Reference: Fieller, "Some problems in interval estimation", JRSS B 16 (1954).

    Privacy:
        Post-processing of public estimates: costs nothing.

    >>> import tabulae as tb
    >>> income = tb.Attribute.measured("income", 0, 100, 10)
    >>> domain, total = tb.Domain({"sex": 2, "income": income}), tb.Table("people", {})
    >>> workload = tb.Workload(domain, [total, tb.Table.sum("pay", {}, income, near=40)])
    >>> counts = tb.Counts.from_records(domain, [[k % 2, 3 + k % 3] for k in range(300)])
    >>> found = tb.means(tb.estimate(tb.measure(counts, tb.select(workload), tb.ZCDP(100))), total, income)
    >>> round(found["estimate"][0].as_py()), found.column_names[:2]
    (40, ['estimate', 'std_error'])
    """
    if value not in estimate.domain.measured:
        raise InvalidArgument(
            f"{value!r} is no measured value of the domain: give one, as in domain['income']"
        )
    return publish_figure(estimate, Figure.mean(table.name, estimate.domain, table, value), level).arrow()


def _grain(quantile: Quantile) -> float:
    return abs(float(quantile.coefficient)) * float(np.diff(quantile.values).max(initial=0))


_ROUNDING = 1e-5  # share of a standard error by which two machines' sums may differ
_NUMBERS = ("estimate", "std_error", "ci_low", "ci_high")


def publish_derived(estimate: Estimate, spec: Spec, level: float) -> list[PublishedFigure]:
    """The derived figures of a spec, in its order."""
    found = [publish_figure(estimate, derived.figure, level) for derived in spec.derived]
    return [
        _with_sampling(figure, estimate, spec.sampling[figure.name], level)
        if figure.name in spec.sampling
        else figure
        for figure in found
    ]


def _with_sampling(
    figure: PublishedFigure, estimate: Estimate, sampling: Sampling, level: float
) -> PublishedFigure:
    """A mean with sampling in its error and its interval."""
    known = EstimatedCounts.of(estimate, len(figure.estimate))
    spread = np.sqrt(sampling.variance(figure.estimate, (known.other or known).estimate))
    there = np.isfinite(spread) & (figure.status != NOT_ESTIMABLE)
    spread = np.where(there, spread, np.nan)
    wide = NormalDist().inv_cdf((1 + level) / 2) * spread
    low, high = beside(figure.estimate, (figure.ci_low, figure.ci_high), wide)
    return replace(
        figure,
        estimate=np.where(there, figure.estimate, np.nan),
        std_error=np.hypot(figure.std_error, spread),
        ci_low=low,
        ci_high=high,
        status=np.where(there, np.where(spread > 0, ESTIMATED, figure.status), NOT_ESTIMABLE),
    )


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
