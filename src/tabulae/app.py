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

from .errors import InvalidArgument, LedgerError, ReleaseError, TabulaeError, Unsupported
from .measurement import Measurement
from .pipeline import Prepared, prepare, reconstruct, rehearse, row_key
from .planning import Plan, check_joint_promise, exactness
from .planning import plan_tables as plan
from .privacy import Charge, Disclosure, Ledger
from .release import (
    Release,
    publish,
    publish_exact,
    read_measurement,
    write_contents,
    write_measurement,
)
from .release.folder import MEASUREMENT, REPORT, replace_listed, require_others, sync_folder, write_bytes
from .release.place import PLAN as _PLAN
from .release.place import disk as _disk
from .release.place import finished as _finished
from .release.place import put_in_place as _put_in_place
from .release.place import run_name as _run_name
from .release.place import void_lost
from .release.place import workplace as _workplace
from .release.verify_texts import same_version, text_faults
from .report import report_of, seal_with_report
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
    say: Say = _quiet,
) -> Release:
    """Make a release: count the records, spend the budget once, publish the tables.

    Arguments:
        spec: the release document, or its path.
        out: the folder to write; it must not exist.
        plan_file: a plan saved for this spec; its strategy is used as it is.
        source: another file to read the records from.
        resume: finish a run that was interrupted, without drawing noise a second time.
        say: called with a line of progress at each step.

    Raises:
        SpecError, DataError: the document or the records are wrong; nothing was spent.
        ReleaseError: ``out`` exists, cannot be written, or an unfinished run stands in the way.
        BudgetRefused, LedgerError: the ledger refuses, is missing or altered; nothing was published.

    Privacy:
        The published folder is the measurements (:func:`tabulae.measure`, charged to the ledger before
        noise is drawn) and post-processing of them; of the source only its kind is published.
    """
    made = _spec(spec, source)
    made.check_spendable()
    out = Path(out)
    if made.detailed is not None:
        if plan_file is not None:
            raise InvalidArgument(
                "the plan of a spec with [detailed] follows from the spec: run it without --plan"
            )
        from .detailed_app import run_detailed

        return run_detailed(made, out, resume=resume, say=say)
    if made.geography is not None:
        if plan_file is not None:
            raise InvalidArgument(
                "the plan of a spec with [geography] follows from the spec: run it without --plan"
            )
        from .spine_app import run_spine

        return run_spine(made, out, resume=resume, say=say)
    with _workplace(out, resume=resume) as partial:
        if (release := _finished(out, made, resume=resume)) is not None:
            return release
        if made.ledger is None:
            raise LedgerError('this spec names no ledger: add ledger = "ledger.db" under [privacy]')
        ledger = Ledger.open(made.ledger)
        ready = _plan(made, partial, plan_file, say)
        _check_publishable(ready)
        say("counting the records")
        prepared = prepare(ready, row_key(made, ledger), _run_name(out))
        done = _stored(partial, prepared, ledger) if resume else None
        if done is None:
            check_joint_promise(made, ledger.disclosures())
            say("charging the ledger and drawing noise")
            with _disk(partial, charged=False):
                _save_plan(ready, partial)
            done = _measured(partial, prepared, ledger)
            with _disk(partial):
                write_measurement(partial, done)
        del prepared
        say("estimating and writing tables")
        with _disk(partial):
            _write(partial, ready, done, ledger)
            _put_in_place(partial, out)
        ledger.settle(str(done.release_id), "published")
    return Release.read(out)


def write_report(release: Release) -> Path:
    """Rebuild a release's report from its folder alone, and the report's own checksum with it.

    Raises:
        ReleaseError: another file of the folder is not as it was published, all of them named, or it cannot be written.
    """
    with _disk(release.path):
        require_others(release.path, REPORT)
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
    tables = publish(rehearse(ready), ready.spec.workload, ready.level)
    numbers = [np.concatenate([t.estimate, t.std_error, t.half_width]) for t in tables]
    numbers += [np.array([v for v in row.values() if isinstance(v, float)]) for row in expected.values()]
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


def _write(partial: Path, ready: Plan, done: Measurement, ledger: Ledger) -> None:
    tables = publish(reconstruct(ready, (done,)), ready.spec.workload, ready.level) + publish_exact(done)
    expected = {row.table: asdict(row) for row in ready.table_errors}
    entries = ledger.entries(str(done.release_id))
    exact = exactness(ready.spec, _disclosed_before(ledger, str(done.release_id)))
    told = None if exact is None else exact.document()
    write_contents(partial, ready.spec, tables, expected, entries, str(done.release_id), ready.level, told)
    seal_with_report(partial)


def _disclosed_before(ledger: Ledger, release_id: str) -> list[tuple[Charge, Disclosure]]:
    """What other releases had stated exactly when this one was charged."""
    charged = next(charge.sequence for charge in ledger.charges() if charge.release_id == release_id)
    return [(charge, told) for charge, told in ledger.disclosures() if charge.sequence < charged]
