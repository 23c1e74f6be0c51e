"""What the page says of each table as a whole."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tabulae.report.view import TableView

RELIABILITY = (
    ("within 10 %", 0.1),
    ("10 to 30 %", 0.3),
    ("30 to 100 %", 1.0),
    ("over 100 %", np.inf),
)
"""Classes of a published count by its margin as a share of the count."""


def published_error(table: TableView) -> float | None:
    """Root mean square of the standard errors of the estimated rows, in counts; None where there are none."""
    errors = table.std_error[_estimated(table)]
    return float(np.sqrt(np.mean(errors**2))) if errors.size else None


@dataclass(frozen=True)
class Reliability:
    """How many of a table's counts fall into each class of ``RELIABILITY``."""

    counts: tuple[int, ...]

    @property
    def total(self) -> int:
        """How many counts are classed: the estimated ones."""
        return sum(self.counts)

    @property
    def shares(self) -> tuple[float, ...]:
        """The classes as shares, which sum to 1 (or are all 0)."""
        return tuple(count / max(1, self.total) for count in self.counts)


def reliability(table: TableView) -> Reliability:
    """Class the estimated rows by margin over count; a count of zero or less is in the last class."""
    chosen = _estimated(table)
    estimate, margin = table.estimate[chosen], table.margin[chosen]
    ratio = np.full(estimate.shape, np.inf)
    np.divide(margin, estimate, out=ratio, where=estimate > 0)
    classes = np.searchsorted([edge for _, edge in RELIABILITY[:-1]], ratio, side="left")
    return Reliability(tuple(int(n) for n in np.bincount(classes, minlength=len(RELIABILITY))))


def points(tables: tuple[TableView, ...]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Estimates and margins of every count that has both and noise, over all tables."""
    estimates, margins = [np.empty(0)], [np.empty(0)]
    for table in tables:
        chosen = _estimated(table) & (table.margin > 0)
        estimates.append(np.asarray(table.estimate[chosen], dtype=float))
        margins.append(table.margin[chosen])
    return np.concatenate(estimates), np.concatenate(margins)


def _estimated(table: TableView) -> NDArray[np.bool_]:
    status = np.asarray(table.obs_status, dtype=object) == "A"
    return status & np.isfinite(table.estimate) & np.isfinite(table.std_error) & np.isfinite(table.margin)
