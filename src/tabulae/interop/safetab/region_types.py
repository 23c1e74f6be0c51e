"""The region types of the two runs, by the Bureau's names, in the order in which they are tabulated."""

from __future__ import annotations

US = ("USA", "STATE", "COUNTY", "TRACT", "PLACE", "AIANNH")
"""The run of the states and the District of Columbia."""

PUERTO_RICO = ("PR-STATE", "PR-COUNTY", "PR-TRACT", "PR-PLACE")
"""The run of Puerto Rico."""

WIDE = frozenset({"USA", "STATE", "PR-STATE"})
"""Nation and states: they take the groups that are detailed only, and none of their counts is suppressed."""

LEVELS = ("1", "2")
"""Levels of characteristic iterations: regional and detailed groups."""

PR_CODE = 72
"""The state code of Puerto Rico."""

STATES = frozenset(range(1, 57)) - {3, 7, 14, 43, 52}
"""State codes of the 50 states and the District of Columbia (FIPS 5-2, as published at census.gov)."""
