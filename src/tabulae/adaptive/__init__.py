"""Adaptive tabulation of very many small groups: levels, plans and what they measured."""

from .level import (
    TOTAL,
    TOTAL_ONLY,
    PopulationLevel,
)
from .measured import GroupMeasurement, GroupMeasurements
from .plan import AdaptivePlan

__all__ = [
    "TOTAL",
    "TOTAL_ONLY",
    "AdaptivePlan",
    "GroupMeasurement",
    "GroupMeasurements",
    "PopulationLevel",
]
