"""Reconstruct: from public measurements to estimates, variances and intervals."""

from ._estimate import estimate
from .budget import smallest_budget, within
from .coverage import HalfWidths
from .least_squares import Estimate, table_half_widths

__all__ = [
    "Estimate",
    "HalfWidths",
    "estimate",
    "smallest_budget",
    "table_half_widths",
    "within",
]
