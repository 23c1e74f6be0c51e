"""Which groups a run publishes, and how their places read in words. Public from public."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pyarrow as pa

from ...products.groups.levels import TOTAL, TOTAL_ONLY, GroupMeasurement, PopulationLevel
from .plan import Suppression, Tabulation

TABLE_OF_TOTAL = {TOTAL_ONLY: "total only", TOTAL: "total"}
"""What files call the two rungs without a table."""


class Published:
    """The places of one measurement that T1 and T2 show: all with a table, and the totals that are not suppressed.

    Args:
        tabulation: the run.
        measurement: a piece of it.
    """

    def __init__(self, tabulation: Tabulation, measurement: GroupMeasurement) -> None:
        self.measurement = measurement
        self.level: PopulationLevel = tabulation.plan.levels[measurement.level]
        self._suppression: Suppression = tabulation.suppression[measurement.level]

    def totals(self, rung: int) -> np.ndarray:
        """The published places of one rung without a table, rising."""
        threshold = self._suppression.whole if rung == TOTAL_ONLY else self._suppression.total
        kept = self.measurement.rung == rung
        if threshold is not None:
            kept &= self.measurement.totals > threshold
        return np.flatnonzero(kept)

    def named(self, places: np.ndarray) -> dict[str, pa.Array]:
        """Region type, region and iteration of each place, under production's headings."""
        groups = len(self.level.groups)
        region, group = np.divmod(places, groups)
        kind = pa.DictionaryArray.from_arrays(
            pa.array(np.zeros(len(places), np.int32)), pa.array([self.level.regions.name])
        )
        first, last = self.measurement.first, self.measurement.first + self.measurement.regions
        ids = pa.array(self.level.regions.ids[first:last], pa.string())
        return {
            "REGION_ID": pa.DictionaryArray.from_arrays(pa.array(region.astype(np.int32)), ids),
            "REGION_TYPE": kind,
            "ITERATION_CODE": pa.DictionaryArray.from_arrays(pa.array(group.astype(np.int32)), self._codes),
        }

    @cached_property
    def _codes(self) -> pa.Array:
        return pa.array([group.code for group in self.level.groups.groups], pa.string())
