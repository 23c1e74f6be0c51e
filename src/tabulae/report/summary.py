"""What the page says of each table as a whole."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .view import TableView


def published_error(table: TableView) -> float | None:
    """Root mean square of the standard errors of the estimated rows, in counts; None where there are none."""
    errors = table.std_error[_estimated(table)]
    return float(np.sqrt(np.mean(errors**2))) if errors.size else None


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
