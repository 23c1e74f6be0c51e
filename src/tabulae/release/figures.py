"""Derived figures as they are published: estimates, errors and intervals from those of the counts behind them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ..domain.figure import Figure, Quantile
from ..errors import Unsupported
from ..estimation import Estimate
from ..estimation.local import LocalLeastSquares
from .figure_parts import Source
from .tables import (
    ESTIMATED,
    EXACT,
    NOT_ESTIMABLE,
    label_columns,
)


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
    source = Source(estimate, figure.rows)
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
