"""Adaptive tabulation as a fold of two rounds: the only place that joins counts of groups, noise and writers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ._measure_groups import measure_groups
from .adaptive import (
    AdaptivePlan,
    GroupMeasurement,
    GroupMeasurements,
)
from .counts.group_counts import GroupCounts
from .privacy import Ledger, Source
from .release.charged import poured

Sink = Callable[[GroupMeasurement], None]


def tabulate_groups(
    counts: GroupCounts,
    plan: AdaptivePlan,
    sinks: Sequence[Sink],
    *,
    ledger: Ledger | None,
    source: Source | None = None,
    title: str = "detailed groups",
    digest: bytes | None = None,
) -> GroupMeasurements:
    """Charge, measure both rounds of every level, and hand each piece to every sink, in the plan's order.

    Where a sink fails, what it had written must not be published: the noise is gone, so the charge is marked void and
    stays spent.

    Arguments:
        counts: confidential counts made for the plan.
        plan: the levels.
        sinks: called with each :class:`~tabulae.adaptive.GroupMeasurement`; they see nothing confidential.
        ledger: where the loss is charged; None is a rehearsal.
        source, title, digest: as in :func:`~tabulae._measure_groups.measure_groups`.

    Returns:
        The measurements' marks (release id, rehearsal); their stream is used up.

    Raises:
        BudgetRefused, LedgerError: nothing was drawn.
        ReleaseError: writing failed after the charge.

    Privacy:
        That of :func:`~tabulae._measure_groups.measure_groups`; the sinks do post-processing.
    """
    done = measure_groups(counts, plan, ledger=ledger, source=source, title=title, digest=digest)
    poured(done, done.release_id, sinks, ledger)
    return done
