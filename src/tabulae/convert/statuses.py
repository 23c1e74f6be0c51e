"""What the statuses of a release are in the code list of SDMX for the status of observations."""

from __future__ import annotations

from dataclasses import dataclass

from ..release.tables import (
    ESTIMATED,
    EXACT,
    NOT_ESTIMABLE,
)


@dataclass(frozen=True)
class Status:
    """A status of the release.

    Args:
        meaning: in words.
        sdmx: its code in CL_OBS_STATUS, version 2.2.
    """

    meaning: str
    sdmx: str


STATUSES = {
    ESTIMATED: Status("estimated from measurements with noise; the standard error says how well", "A"),
    EXACT: Status("exact, without noise: published as it is, or determined by what is", "A"),
    NOT_ESTIMABLE: Status("not estimable from what was measured", "O"),
}
"""Statuses of a release. SDMX has no code for "exact": its E is an estimated value, so both kinds of number are A."""

SDMX_STATUSES = {"A": "Normal value", "O": "Missing value"}
"""The codes of CL_OBS_STATUS that are used, and their names there."""
