"""Reconstruct: from public measurements to estimates, variances and intervals."""

from .budget import smallest_budget, within
from .coverage import HalfWidths, half_widths
from .estimate import Estimate, estimate

__all__ = ["Estimate", "HalfWidths", "estimate", "half_widths", "smallest_budget", "within"]
