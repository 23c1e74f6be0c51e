"""Reconstruct: from public measurements to estimates, variances and intervals."""

from .budget import smallest_budget, within
from .coverage import HalfWidths
from .estimate import Estimate, estimate
from .table_widths import table_half_widths

__all__ = [
    "Estimate",
    "HalfWidths",
    "estimate",
    "smallest_budget",
    "table_half_widths",
    "within",
]
