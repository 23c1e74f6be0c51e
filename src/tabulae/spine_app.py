"""A run of a spec with [geography]: count records by leaf, charge, measure every level, estimate, publish in one step.

The folder appears under its name only when it is complete, as of :mod:`tabulae.app`, and an interrupted run is resumed
in the same way: measurements that were stored as a whole are published without a second draw, for which the records
are not needed; noise that was lost before it was stored makes its charge void, and that stays spent. Estimation keeps
its finished stages in the partial folder, so that a killed run goes on from the last of them; they are removed before
the folder is sealed.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from .errors import LedgerError, Unsupported
from .pipeline import (
    records_of,
    row_key,
    rules_of,
    unit_rule,
)
from .privacy import Ledger
from .products.areas.constraints import ExactMargin
from .products.areas.count import LeafBound, LeafColumn, open_spine_records
from .products.areas.measure import tabulate_spine
from .products.areas.needs import needs_of
from .products.areas.plan import MOST_PEOPLE, largest_error
from .products.areas.publish import write_spine
from .products.areas.spark_tasks import on_spark
from .products.areas.spine_plan import SpinePlan
from .products.areas.store import SpineMeasurementWriter, plan_document
from .products.areas.tables import UNBIASED, SpineRelease, exact_of
from .products.areas.tasks import Runner
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
from .release.write import LEVEL
from .report import seal_with_report
from .sources.memory import engine_memory
from .sources.spark import spark_session
from .spec import Spec, geography_of

Say = Callable[[str], None]

WORK = "estimate"
"""The folder, within the partial one, of finished stages of estimation."""

_LEAST_VARIANCE = 1e-12


def run_spine(spec: Spec, out: Path, *, resume: bool, say: Say, memory: int | None = None) -> Release:
    """Make a release of areas: count the records, spend the budget once, publish.

    Arguments:
        spec: a release document with ``[geography]``.
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
        The published folder is the measurements (:func:`tabulae.products.areas.measure.tabulate_spine`, charged to the
        ledger before noise is drawn) and post-processing of them and of public files; of the source only its kind is
        published.
    """
    spec.check_spendable()
    with workplace(out, resume=resume) as partial, ExitStack() as engines:
        if (release := finished(out, spec, resume=resume)) is not None:
            return release
        if spec.ledger is None:
            raise LedgerError('this spec names no ledger: add ledger = "ledger.db" under [privacy]')
        ledger = Ledger.open(spec.ledger)
        followed = check_followed(spec, ledger)
        say("planning")
        geography = geography_of(spec)
        plan, exact = geography.plan(), exact_of(geography)
        _check_noise(plan)
        if geography.estimate != UNBIASED:
            _check_magnitude(plan)
        digest = run_digest(b"areas", spec, out)
        kept = (
            ", and its exact counts, which may have been read, stay in the ledger as disclosed"
            if exact
            else ""
        )
        release_id = stored_release(partial, ledger, digest, kept) if resume else None
        needs = needs_of(geography, in_parts=spec.source.engine == "spark")
        to_count = release_id is None or spec.source.engine == "spark"  # which makes estimates, too
        engine = engine_memory(memory if to_count else None, needs.memory)
        run = engines.enter_context(_tasks(spec.source.engine, engine))
        if release_id is None:
            with disk(partial, charged=False):
                check_space(partial, needs.disk)
                mark(partial, spec, plan_document(plan, exact))
            release_id = _measured(spec, plan, exact, partial, ledger, digest, say, engine)
        say("estimating")
        with disk(partial):
            made = SpineRelease.of(partial, spec, LEVEL, partial / WORK, say, run)
            say("writing tables")
            write_spine(partial, made, ledger.entries(release_id), release_id)
            del made
            say("writing the report")
            shutil.rmtree(partial / WORK)
            record_standing(partial, spec, ledger, release_id, followed)
            del spec, geography, plan, exact, followed  # sealing reads all of it back from the folder
            release = seal_with_report(partial)
            put_in_place(partial, out)
        settle_published(ledger, release_id, out)
    return release.moved(out)


@contextmanager
def _tasks(engine: str | None, memory: str | None) -> Iterator[Runner | None]:
    """Who runs the tasks of estimates: Spark where it also counts, in one session; None for this process."""
    if engine != "spark":
        yield None
        return
    with spark_session(memory) as session:
        yield on_spark(session)


def _check_noise(plan: SpinePlan) -> None:
    """Refuse, before anything is charged, noise that is so seldom drawn that its weight is beyond floating point."""
    if min(law.variance_of_law for law in plan.all_laws) < _LEAST_VARIANCE:
        raise Unsupported(
            "some answers of this plan would have next to no noise, so nothing was charged: the budget, or a share of "
            "it, is too large for estimates to be computed from it"
        )


def _check_magnitude(plan: SpinePlan) -> None:
    """Refuse, before anything is charged, noise so large that whole counts could be too large to be rounded."""
    if (error := largest_error(plan)) > MOST_PEOPLE:
        raise Unsupported(
            f"counts of this plan could be wrong by {error:.1g} people, more than {MOST_PEOPLE:,}, which cannot be "
            "rounded, so nothing was charged: give it a larger budget, or the levels with small shares larger ones; "
            f'or ask for estimate = "{UNBIASED}", which does not round'
        )


def _measured(
    spec: Spec,
    plan: SpinePlan,
    exact: tuple[ExactMargin, ...],
    partial: Path,
    ledger: Ledger,
    digest: bytes,
    say: Say,
    memory: str | None,
) -> str:
    """Count, charge and measure into the folder; what fails leaves nothing behind to resume."""
    geography = geography_of(spec)
    try:
        say("counting the records")
        counts = open_spine_records(
            records_of(spec),
            rules_of(spec),
            plan,
            LeafColumn(geography.column, geography.leaf_codes.tolist(), geography.dropped.tolist()),
            bounds=[
                LeafBound(f"[[bound]] {bound.file}", bound.margin.label, bound.upper[geography.kept] > 0)
                for bound in geography.bounds
            ],
            unit=unit_rule(spec, row_key(spec, ledger)),
            memory=memory,
        )
        with opened(SpineMeasurementWriter(partial, plan, exact)) as writer:
            say("charging the ledger and drawing noise")
            done = tabulate_spine(
                counts,
                plan,
                exact,
                [told(writer)],
                ledger=ledger,
                constraints=None if geography.estimate == UNBIASED else geography.constraints,
                unit=spec.unit,
                title=spec.title or "release",
                digest=digest,
            )
            finish(writer, done, ledger)
    except BaseException:
        (partial / PLAN).unlink(missing_ok=True)  # nothing was charged, or the charge is void
        raise
    return str(done.release_id)
