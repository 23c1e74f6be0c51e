"""A run as its user means it: count, charge, measure, publish, and put the release in place in one step.

The folder appears under its name only when it is complete. Until then everything stands in a folder beside
it, ``.NAME.partial``, which also says how far an interrupted run came:

===================  ==========================  =========================================
the partial folder   the ledger                  what ``resume`` does
===================  ==========================  =========================================
has the plan only    no charge for this release  runs on from there
has the plan only    charged                     marks the charge void: its noise is gone
has measurements     charged                     publishes them, without a second draw
===================  ==========================  =========================================
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from os import PathLike
from pathlib import Path

import numpy as np

from .errors import (
    InvalidArgument,
    LedgerError,
    ReleaseError,
    TabulaeError,
    Unsupported,
)
from .measurement import Measurement
from .pipeline import (
    Prepared,
    prepare,
    reconstruct,
    rehearse,
    row_key,
    vector_memory,
)
from .privacy import (
    Charge,
    Disclosure,
    Ledger,
    mark_void,
)
from .products.tables.exactness import check_joint_promise, exactness
from .products.tables.figures import publish_derived, write_derived
from .products.tables.plan import Plan, check_derived
from .products.tables.plan import plan_tables as plan
from .release import (
    Release,
    publish,
    publish_exact,
    read_measurement,
    write_contents,
    write_measurement,
)
from .release.folder import (
    MEASUREMENT,
    REPORT,
    replace_listed,
    require_others,
    sync_folder,
    write_bytes,
)
from .release.predecessor import check_followed
from .release.series import Followed, record_standing, series_faults, standing_faults
from .release.staging import PLAN as _PLAN
from .release.staging import disk as _disk
from .release.staging import disk_reason, settle_published, void_lost
from .release.staging import finished as _finished
from .release.staging import put_in_place as _put_in_place
from .release.staging import run_name as _run_name
from .release.staging import workplace as _workplace
from .release.verify_texts import same_version, text_faults
from .report import report_of, seal_with_report
from .sources.memory import engine_memory, read_memory
from .spec import Spec, read_spec

Say = Callable[[str], None]


def _quiet(message: str) -> None:
    """Progress that nobody watches."""


def run(
    spec: Spec | str | PathLike[str],
    out: str | PathLike[str],
    *,
    plan_file: str | PathLike[str] | None = None,
    source: str | PathLike[str] | None = None,
    resume: bool = False,
    memory: str | None = None,
    say: Say = _quiet,
) -> Release:
    """Make a release: count the records, spend the budget once, publish the tables.

    Arguments:
        spec: the release document, or its path.
        out: the folder to write; it must not exist.
        plan_file: a plan saved for this spec; its strategy is used as it is.
        source: another place to read the records from: a file, or the url of a PostgreSQL database.
        resume: finish a run that was interrupted, without drawing noise a second time.
        memory: the most that the run may take, such as "8GB": the engine that counts gets what the rest leaves. It
            changes no number.
        say: called with a line of progress at each step.

    Raises:
        SpecError, DataError: the document or the records are wrong; nothing was spent.
        Unsupported: ``memory`` is too little; nothing was spent.
        ReleaseError: ``out`` exists, cannot be written, or an unfinished run stands in the way.
        BudgetRefused, LedgerError: the ledger refuses, is missing or altered; nothing was published.

    Privacy:
        The published folder is the measurements (:func:`tabulae.measure`, charged to the ledger before
        noise is drawn) and post-processing of them; of the source only its kind is published.

    >>> import pathlib, shutil, tempfile
    >>> import tabulae as tb
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "spec.toml").write_text('''
    ... title = "Sexes"
    ... source = { path = "people.csv" }
    ... attributes = { sex = { column = "sex", categories = ["F", "M"] } }
    ... privacy = { definition = "zcdp", budget = "1/2", neighbours = "add-remove", ledger = "ledger.db" }
    ... table = [{ name = "sexes", attributes = ["sex"] }]
    ... ''')
    >>> _ = (folder / "people.csv").write_text("sex\\nF\\nM\\nF\\n")
    >>> _ = tb.Ledger.create(folder / "ledger.db", tb.ZCDP("1"))
    >>> release = tb.run(folder / "spec.toml", folder / "release")
    >>> release.tables["sexes"].column_names
    ['sex', 'estimate', 'std_error', 'ci_low', 'ci_high', 'obs_status']
    >>> shutil.rmtree(folder)
    """
    made = _spec(spec, source)
    made.check_spendable()
    out, bound = Path(out), None if memory is None else read_memory(memory)
    if made.detailed is not None:
        if plan_file is not None:
            raise InvalidArgument(
                "the plan of a spec with [detailed] follows from the spec: run it without --plan"
            )
        from .detailed_app import run_detailed

        return run_detailed(made, out, resume=resume, say=say, memory=bound)
    if made.geography is not None:
        if plan_file is not None:
            raise InvalidArgument(
                "the plan of a spec with [geography] follows from the spec: run it without --plan"
            )
        from .spine_app import run_spine

        handed = [made]
        del made, spec  # a run lets go of its areas before it reads them back; its caller must not hold them
        return run_spine(handed.pop(), out, resume=resume, say=say, memory=bound)
    with _workplace(out, resume=resume) as partial:
        if (release := _finished(out, made, resume=resume)) is not None:
            return release
        if made.ledger is None:
            raise LedgerError('this spec names no ledger: add ledger = "ledger.db" under [privacy]')
        ledger = Ledger.open(made.ledger)
        followed = check_followed(made, ledger)
        ready = _plan(made, partial, plan_file, say)
        _check_publishable(ready)
        say("counting the records")
        engine = engine_memory(bound, vector_memory(ready))
        prepared = prepare(ready, row_key(made, ledger), _run_name(out), engine)
        done = _stored(partial, prepared, ledger) if resume else None
        if done is None:
            check_joint_promise(made, ledger.disclosures())
            say("charging the ledger and drawing noise")
            with _disk(partial, charged=False):
                _save_plan(ready, partial)
            done = _measured(partial, prepared, ledger)
            with _disk(partial):
                _store(partial, done, ledger)
        del prepared
        say("estimating and writing tables")
        with _disk(partial):
            _write(partial, ready, done, ledger, followed)
            _put_in_place(partial, out)
        settle_published(ledger, str(done.release_id), out)
    return Release.read(out)


def write_report(release: Release) -> Path:
    """Rebuild a release's report from its folder alone, and the report's own checksum with it.

    Raises:
        ReleaseError: another file of the folder is not as it was published, all of them named, or it cannot be written;
            or series, ledger entries and what the ledger had spent contradict each other.
    """
    with _disk(release.path):
        require_others(release.path, REPORT)
        faults = list(series_faults(release.spec, release.descriptor, release.ledger))
        if faults := faults or list(standing_faults(release.spec, release.about)):
            raise ReleaseError("\n".join(f"{release.path}: {fault}" for fault in faults))
        replace_listed(release.path, REPORT, report_of(release).encode())
    return release.path / REPORT


def check_release(release: Release) -> list[str]:
    """What is wrong with a release: one sentence a fault, none if it is as it was published.

    Beside all that :meth:`Release.verify` checks, texts are made again and compared: titles, and those of the report
    and of other pages where this version of tabulae wrote them (:func:`pages_are_compared`).

    Raises:
        ReleaseError: the folder cannot be read.
    """
    if faults := release.verify():
        return faults
    if faults := list(text_faults(release.path, release.spec, release.descriptor)):
        return faults
    if pages_are_compared(release) and (release.path / REPORT).read_bytes() != report_of(release).encode():
        return [
            f"{REPORT}: differs from the one that is made from this folder here; tabulae report makes it again"
        ]
    return []


def pages_are_compared(release: Release) -> bool:
    """Whether pages can be made again as they were: another version of tabulae may word them differently."""
    return same_version(release.descriptor)


def _spec(spec: Spec | str | PathLike[str], source: str | PathLike[str] | None) -> Spec:
    made = spec if isinstance(spec, Spec) else read_spec(spec)
    return made if source is None else made.with_source(source)


def _plan(spec: Spec, partial: Path, plan_file: str | PathLike[str] | None, say: Say) -> Plan:
    saved = partial / _PLAN
    if saved.exists():
        return Plan.load(saved, spec)
    if (partial / MEASUREMENT).exists():  # the plan is removed before the folder is sealed
        return Plan(spec, _measurement(partial, spec).strategy)
    if plan_file is not None:
        return Plan.load(plan_file, spec)
    say("choosing the strategy")
    return plan(spec)


def _measurement(partial: Path, spec: Spec) -> Measurement:
    """What an interrupted run had stored."""
    return read_measurement(partial, spec.domain, [given.table for given in spec.invariants])


def _check_publishable(ready: Plan) -> None:
    """Compute all that will be published once, on made-up answers: what cannot be computed must not be paid for."""
    _ = ready.exact
    expected = {row.table: asdict(row) for row in ready.table_errors}
    check_derived(ready)
    rehearsed = rehearse(ready)
    tables = publish(rehearsed, ready.spec.workload, ready.level)
    numbers = [np.concatenate([t.estimate, t.std_error, t.half_width]) for t in tables]
    numbers += [np.array([v for v in row.values() if isinstance(v, float)]) for row in expected.values()]
    publish_derived(rehearsed, ready.spec, ready.level)
    if not all(np.isfinite(part).all() for part in numbers):
        raise Unsupported(
            "some errors or intervals of this plan are not finite, so nothing was charged: the budget or the weights "
            "are too extreme for the noise that they ask for"
        )


def _save_plan(ready: Plan, partial: Path) -> None:
    """Write the plan, whole or not at all, before anything is charged for it."""
    draft = partial / f"{_PLAN}.draft"
    ready.save(draft)
    write_bytes(partial / _PLAN, draft.read_bytes())
    draft.unlink()
    sync_folder(partial)


def _measured(partial: Path, prepared: Prepared, ledger: Ledger) -> Measurement:
    """Charge and measure; a refusal that charged nothing leaves nothing behind to resume."""
    try:
        return prepared.measure(ledger)[0]
    except TabulaeError:
        if not any(charge.state == "charged" for charge in ledger.find(prepared.digest)):
            (partial / _PLAN).unlink(missing_ok=True)
        raise


def _store(partial: Path, done: Measurement, ledger: Ledger) -> None:
    """Write the measurement; where that fails its noise is lost, and its charge is void."""
    try:
        write_measurement(partial, done)
    except OSError as error:
        if (partial / MEASUREMENT).exists():  # it is complete: to be resumed
            raise
        (partial / _PLAN).unlink(missing_ok=True)
        told = ReleaseError(f"cannot write in {partial}: {disk_reason(error)}")
        raise mark_void(ledger, str(done.release_id), told) from None


def _stored(partial: Path, prepared: Prepared, ledger: Ledger) -> Measurement | None:
    """Measurements of an interrupted run, if they were stored; a charge without them becomes void."""
    if (partial / MEASUREMENT).exists():
        stored = _measurement(partial, prepared.plan.spec)
        if stored.release_id not in {charge.release_id for charge in ledger.find(prepared.digest)}:
            raise ReleaseError(
                f"the measurements in {partial} were not charged to this ledger for this spec and these records; "
                "resume with the same records, spec and ledger"
            )
        return stored
    void_lost(partial, ledger, prepared.digest, _still_told(prepared.plan))
    return None


def _still_told(plan: Plan) -> str:
    """What remains of a void charge besides what it spent."""
    if not plan.spec.invariants:
        return ""
    return ", and its exact counts, which may have been read, stay in the ledger as disclosed"


def _write(partial: Path, ready: Plan, done: Measurement, ledger: Ledger, followed: Followed | None) -> None:
    estimated = reconstruct(ready, (done,))
    tables = publish(estimated, ready.spec.workload, ready.level) + publish_exact(done)
    expected = {row.table: asdict(row) for row in ready.table_errors}
    entries = ledger.entries(str(done.release_id))
    exact = exactness(ready.spec, _disclosed_before(ledger, str(done.release_id)))
    told = None if exact is None else exact.document()
    write_contents(partial, ready.spec, tables, expected, entries, str(done.release_id), ready.level, told)
    write_derived(partial, ready.spec, publish_derived(estimated, ready.spec, ready.level))
    record_standing(partial, ready.spec, ledger, str(done.release_id), followed)
    seal_with_report(partial)


def _disclosed_before(ledger: Ledger, release_id: str) -> list[tuple[Charge, Disclosure]]:
    """What other releases had stated exactly when this one was charged."""
    charged = next(charge.sequence for charge in ledger.charges() if charge.release_id == release_id)
    return [(charge, told) for charge, told in ledger.disclosures() if charge.sequence < charged]
