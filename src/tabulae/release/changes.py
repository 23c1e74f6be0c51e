"""Changes from one release to a later one, as they are handed out."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

PARTS = ("before", "now", "change", "percent")
"""The numbers of each row: the estimates of both releases, their difference, and it in per cent of the earlier one."""


@dataclass(frozen=True)
class Changes:
    """How the counts of one table changed from a release to a later one.

    ``rows`` has the table's labels, and for each of :data:`PARTS` the columns ``PART``, ``PART_std_error``,
    ``PART_ci_low``, ``PART_ci_high`` and ``PART_status``: A for an estimate, E where it is exact, Q with empty numbers
    where it is not estimable. ``level`` is that of every interval. ``conservative`` says how many intervals of
    changes, in counts and in per cent, are wider than need be. ``notes`` are sentences: what else differs.
    """

    table: str
    level: float
    rows: pa.Table
    conservative: int
    notes: tuple[str, ...]
