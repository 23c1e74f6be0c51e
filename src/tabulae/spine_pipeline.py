"""Measuring a spine as a fold over its pieces: the only place that joins counts of areas, noise and writers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ._measure_spine import measure_spine
from .counts.spine_counts import SpineCounts
from .errors import DataError, InvalidArgument
from .geography.constraints import AreaConstraints, ExactMargin
from .geography.measured import SpineMeasurements
from .geography.spine_plan import SpinePieceValues, SpinePlan
from .privacy import Ledger, Source
from .release.charged import poured
from .topdown.limits import NodeLimits

Sink = Callable[[SpinePieceValues], None]


def tabulate_spine(
    counts: SpineCounts,
    plan: SpinePlan,
    exact: Sequence[ExactMargin],
    sinks: Sequence[Sink],
    *,
    ledger: Ledger | None,
    constraints: AreaConstraints | None = None,
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
        constraints: limits that estimates will meet beside the exact counts; None where the method keeps none.
        source, unit, title, digest: as in :func:`~tabulae._measure_spine.measure_spine`.

    Returns:
        The exact counts and the measurements' marks (release id, rehearsal); their stream is used up.

    Raises:
        DataError: exact counts contradict the limits, or each other; nothing was charged.
        BudgetRefused, LedgerError: nothing was drawn.
        ReleaseError: writing failed after the charge.

    Privacy:
        That of :func:`~tabulae._measure_spine.measure_spine`; the sinks do post-processing. Whether exact counts agree
        with ``constraints`` is seen before the charge. It depends on public limits and on the counts of ``exact``, all
        of which this release would disclose, and on no other count; only who holds the records learns of a refusal.
    """
    if constraints is not None:
        _check_exact(counts, plan, exact, constraints)
    done = measure_spine(
        counts, plan, exact, ledger=ledger, source=source, unit=unit, title=title, digest=digest
    )
    poured(done, done.release_id, sinks, ledger)
    return done


def _check_exact(
    counts: SpineCounts, plan: SpinePlan, exact: Sequence[ExactMargin], constraints: AreaConstraints
) -> None:
    """Refuse exact counts that limits contradict: no estimate could meet both, and the charge would be lost."""
    counts.check(plan)
    if not constraints.exact:
        return
    if [(e.level, e.margin.name) for e in constraints.exact] != [(e.level, e.margin.name) for e in exact]:
        raise InvalidArgument("the constraints are about other exact counts than those that are measured")
    try:
        NodeLimits.of(plan, constraints, [counts.exact(plan, margin) for margin in exact])
    except InvalidArgument as error:
        raise DataError(f"{error}. Nothing was charged") from None
