"""A run of a spec with [detailed]: count groups, charge, measure in two stages, publish in one step.

The folder appears under its name only when it is complete, as of :mod:`tabulae.app`, and an interrupted run is resumed
in the same way: measurements that were stored as a whole are published without a second draw, for which the records
are not needed; noise that was lost before it was stored makes its charge void, and that stays spent.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from .errors import LedgerError
from .pipeline import (
    records_of,
    row_key,
    rules_of,
    unit_rule,
)
from .privacy import Ledger
from .products.groups.count import RecordShape, open_group_records
from .products.groups.measure import tabulate_groups
from .products.groups.plan import (
    DetailedPlan,
    detailed_of,
    plan_detailed,
)
from .products.groups.publish import write_groups
from .products.groups.store import (
    GroupMeasurementWriter,
    most_bytes,
    plan_document,
)
from .release import Release
from .release.predecessor import check_followed
from .release.series import record_standing
from .release.staging import (
    PLAN,
    check_space,
    disk,
    finish,
    finished,
    mark,
    opened,
    put_in_place,
    run_digest,
    settle_published,
    stored_release,
    told,
    workplace,
)
from .report import seal_with_report
from .sources.memory import engine_memory
from .spec import Spec

Say = Callable[[str], None]

_PROGRAM = 600 * 10**6  # bytes: libraries, the plan, and the groups of one area


def run_detailed(spec: Spec, out: Path, *, resume: bool, say: Say, memory: int | None = None) -> Release:
    """Make a release of groups: count the records, spend the budget once, publish.

    Arguments:
        spec: a release document with ``[detailed]``.
        out: the folder to write; it must not exist.
        resume: finish a run that was interrupted, without drawing noise a second time.
        say: called with a line of progress at each step.
        memory: bytes that the run may take; None leaves it to the engine that counts.

    Raises:
        SpecError, DataError: the document or the records are wrong; nothing was spent.
        Unsupported: ``memory`` is too little; nothing was spent.
        ReleaseError: ``out`` exists, cannot be written, or an unfinished run stands in the way.
        BudgetRefused, LedgerError: the ledger refuses, is missing or altered; nothing was published.

    Privacy:
        The published folder is the measurements (:func:`tabulae.products.groups.measure.tabulate_groups`, charged to
        the ledger before noise is drawn) and post-processing of them; of the source only its kind is published.
    """
    spec.check_spendable()
    with workplace(out, resume=resume) as partial:
        if (release := finished(out, spec, resume=resume)) is not None:
            return release
        if spec.ledger is None:
            raise LedgerError('this spec names no ledger: add ledger = "ledger.db" under [privacy]')
        ledger = Ledger.open(spec.ledger)
        followed = check_followed(spec, ledger)
        say("proving how many groups one record can belong to")
        ready = plan_detailed(spec)
        digest = run_digest(b"groups", spec, out)
        release_id = stored_release(partial, ledger, digest) if resume else None
        if release_id is None:
            engine = engine_memory(memory, _PROGRAM)
            with disk(partial, charged=False):
                check_space(partial, most_bytes(ready.adaptive))
                mark(partial, spec, plan_document(ready.adaptive))
            release_id = _measured(ready, partial, ledger, digest, say, engine)
        say("estimating and writing tables")
        with disk(partial):
            entries = ledger.entries(release_id)
            write_groups(partial, spec, ready.adaptive, entries, release_id, ready.level)
            record_standing(partial, spec, ledger, release_id, followed)
            seal_with_report(partial)
            put_in_place(partial, out)
        settle_published(ledger, release_id, out)
    return Release.read(out)


def _measured(
    ready: DetailedPlan, partial: Path, ledger: Ledger, digest: bytes, say: Say, memory: str | None
) -> str:
    """Count, charge and measure into the folder; what fails leaves nothing behind to resume."""
    spec, detailed = ready.spec, detailed_of(ready.spec)
    try:
        say("reading the records")
        with (
            open_group_records(
                records_of(spec),
                spec.domain.attributes,
                rules_of(spec),
                RecordShape(detailed.place, detailed.codes, detailed.cell),
                ready.adaptive,
                unit=unit_rule(spec, row_key(spec, ledger)),
                memory=memory,
            ) as counts,
            opened(GroupMeasurementWriter(partial, ready.adaptive)) as writer,
        ):
            say("charging the ledger, counting groups and drawing noise")
            title = spec.title or "release"
            done = tabulate_groups(
                counts, ready.adaptive, [told(writer)], ledger=ledger, title=title, digest=digest
            )
            finish(writer, done, ledger)
    except BaseException:
        (partial / PLAN).unlink(missing_ok=True)  # nothing was charged, or the charge is void
        raise
    return str(done.release_id)
