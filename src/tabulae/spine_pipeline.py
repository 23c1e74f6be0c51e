"""Measuring a spine as a fold over its pieces: the only place that joins counts of areas, noise and writers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ._measure_spine import measure_spine
from .counts.spine_counts import SpineCounts
from .geography.constraints import ExactMargin
from .geography.measured import SpineMeasurements
from .geography.spine_plan import SpinePieceValues, SpinePlan
from .privacy import Ledger, Source
from .release.lost import poured

Sink = Callable[[SpinePieceValues], None]


def tabulate_spine(
    counts: SpineCounts,
    plan: SpinePlan,
    exact: Sequence[ExactMargin],
    sinks: Sequence[Sink],
    *,
    ledger: Ledger | None,
    source: Source | None = None,
    unit: str | None = None,
    title: str = "areas",
    digest: bytes | None = None,
) -> SpineMeasurements:
    """Charge, measure every unit of every level, and hand each piece to every sink, in the plan's order.

    Where a sink fails, what it had written must not be published: the noise is gone, so the charge is marked void and
    stays spent.

    Arguments:
        counts: confidential counts made for the plan.
        plan: the spine and its queries.
        exact: margins whose counts are read as they are.
        sinks: called with each :class:`~tabulae.geography.spine_plan.SpinePieceValues`; they see nothing confidential.
        ledger: where the loss is charged; None is a rehearsal.
        source, unit, title, digest: as in :func:`~tabulae._measure_spine.measure_spine`.

    Returns:
        The exact counts and the measurements' marks (release id, rehearsal); their stream is used up.

    Raises:
        BudgetRefused, LedgerError: nothing was drawn.
        ReleaseError: writing failed after the charge.

    Privacy:
        That of :func:`~tabulae._measure_spine.measure_spine`; the sinks do post-processing.
    """
    done = measure_spine(
        counts, plan, exact, ledger=ledger, source=source, unit=unit, title=title, digest=digest
    )
    poured(done, done.release_id, sinks, ledger)
    return done
