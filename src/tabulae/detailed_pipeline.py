"""Adaptive tabulation as a fold of two rounds: the only place that joins counts of groups, noise and writers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ._measure_groups import measure_groups
from .adaptive import AdaptivePlan, GroupMeasurement, GroupMeasurements
from .counts.group_counts import GroupCounts
from .errors import LedgerError, ReleaseError, TabulaeError
from .privacy import Ledger, Source

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
    try:
        for piece in done:
            for sink in sinks:
                sink(piece)
    except BaseException as error:
        if ledger is not None and done.release_id is not None:
            raise _lost(ledger, done.release_id, error) from None
        raise
    return done


def _lost(ledger: Ledger, release_id: str, error: BaseException) -> BaseException:
    """The error to raise for noise that was paid for and is lost, once the charge is marked void."""
    try:
        ledger.settle(release_id, "void")
    except (LedgerError, OSError):
        mark = "could not be marked void in the ledger, but stays spent"
    else:
        mark = "is void and stays spent"
    if isinstance(error, TabulaeError | OSError):
        told = str(error) if isinstance(error, TabulaeError) else (error.strerror or str(error))
        return ReleaseError(f"{told}. Nothing was published; the charge {release_id} {mark}")
    return error
