"""The life of a release, of every kind: plan, count, charge, measure, estimate, publish, and put in place in one step.

The folder appears under its name only when it is complete. Until then everything stands in a folder beside it,
``.NAME.partial``, which also says how far an interrupted run came:

===================  ==========================  =========================================
the partial folder   the ledger                  what ``resume`` does
===================  ==========================  =========================================
has the plan only    no charge for this release  runs on from there
has the plan only    charged                     marks the charge void: its noise is gone
has measurements     charged                     publishes them, without a second draw; the records are not needed
===================  ==========================  =========================================

A run of tables or groups can be resumed with another estimator: no noise depends on it.

What a release is of, its product knows (:mod:`tabulae.products.product`). Charges, voids, resuming and sealing are here
and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import Literal

from .errors import LedgerError, ReleaseError
from .privacy import mark_void
from .products.product import Charged, DrawnMeasurements, Product, product_of, row_key, unit_rule
from .release import Release, seal
from .release.agreement import same_version
from .release.folder import MEASUREMENT, REPORT, replace_listed, require_others
from .release.predecessor import check_affordable, check_followed, open_ledger
from .release.progress import Progress, Say, quiet, timed, within
from .release.series import record_standing, series_faults, standing_faults
from .release.staging import (
    check_space,
    disk,
    finished,
    mark,
    opened,
    put_in_place,
    run_digest,
    settle_published,
    stored_release,
    unmark,
    workplace,
    writing,
)
from .report import report_of, seal_with_report
from .sources.memory import engine_memory, read_memory
from .spec import Spec, read_spec

Step = Literal[
    "planned", "marked", "counted", "charged", "measured", "stored", "published", "sealed", "placed"
]
"""How far a run has come. From "charged" on a failure leaves a charge that is void, from "stored" on one to resume."""

_COUNTED, _MEASURED, _PUBLISHED = 0.2, 0.4, 0.9
"""About which shares of the time after planning are over when a run has counted, measured, and written its tables."""


def _go_on(step: Step) -> None:
    """A run that nobody stops."""


def run(
    spec: Spec | str | PathLike[str],
    out: str | PathLike[str],
    *,
    plan_file: str | PathLike[str] | None = None,
    source: str | PathLike[str] | None = None,
    resume: bool = False,
    memory: str | None = None,
    say: Say = quiet,
    at: Callable[[Step], None] = _go_on,
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
        say: called at each step with the :class:`~tabulae.release.progress.Progress`: what is done, how much of the
            whole, and how long the rest takes.
        at: called when a step is done; tests stop runs with it.

    Raises:
        SpecError, DataError: the document or the records are wrong; nothing was spent.
        Unsupported: ``memory`` is too little; nothing was spent.
        ReleaseError: ``out`` exists, cannot be written, or an unfinished run stands in the way.
        BudgetRefused, LedgerError: the ledger refuses, is missing or altered; nothing was published.

    Privacy:
        The published folder is the measurements (the product's ``measure``, which charges the ledger before noise is
        drawn) and post-processing of them and of public files (Dwork, Roth 2014, Proposition 2.1); of the source only
        its kind is published. Every time that the folder and the ledger say is the one at which the run began, before
        the records were opened: none tells how long they were counted.

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
    spec = spec if isinstance(spec, Spec) else read_spec(spec)
    spec = spec if source is None else spec.with_source(source)
    spec.check_spendable()
    life = Life(product_of(spec), Path(out), memory=memory, say=say, at=at)
    del spec
    return life.release(plan_file, resume=resume)


class Life:
    """One run of one product, from the plan to the folder in its place.

    Arguments:
        product: what is released.
        out: the folder to write.
        seal: closes the folder when all else is in it; None: with a report. See :func:`seal_without_report`.
        memory, say, at: as for :func:`run`.
    """

    def __init__(
        self,
        product: Product,
        out: Path,
        *,
        seal: Callable[[Path], Release] | None = None,
        memory: str | None = None,
        say: Say = quiet,
        at: Callable[[Step], None] = _go_on,
    ) -> None:
        self._product, self._out, self._seal, self._say, self._at = product, out, seal, timed(say), at
        self._memory = None if memory is None else read_memory(memory)

    def release(self, plan_file: str | PathLike[str] | None = None, *, resume: bool = False) -> Release:
        """Make the release, or finish it: see :func:`run`.

        Privacy:
            See :func:`run`.
        """
        out, spec = self._out, self._product.spec
        with workplace(out, resume=resume) as partial:
            if (release := finished(out, spec, resume=resume)) is not None:
                return release
            self._partial, self._ledger = partial, open_ledger(spec, datetime.now(UTC))
            self._digest = run_digest(spec.kind.encode(), spec, out)
            release_id = self._published(plan_file, resume=resume)
            # Sealing reads all of it back from the folder: a nation is not held twice.
            del spec, self._product
            self._say(Progress("writing the report", _PUBLISHED))
            with disk(partial):
                release = (self._seal or seal_with_report)(partial)
                self._at("sealed")
                put_in_place(partial, out, str(release.descriptor["created"]))
                self._at("placed")
            settle_published(self._ledger, release_id, out)
        return release.moved(out)

    def _published(self, plan_file: str | PathLike[str] | None, *, resume: bool) -> str:
        """Everything but the report; the id of the release.

        Privacy:
            See :func:`run`.
        """
        product, partial, ledger = self._product, self._partial, self._ledger
        followed = check_followed(product.spec, ledger)
        if not resume:  # what is resumed may be charged already
            check_affordable(product.spec, ledger)
        product.prepare(partial, plan_file, self._say)
        self._at("planned")
        stays = product.stays_disclosed()
        release_id = stored_release(partial, ledger, self._digest, stays) if resume else None
        needs = product.resources()
        counts_here = release_id is None or product.estimates_on_engine
        engine = engine_memory(self._memory if counts_here else None, needs.memory)
        with product.engine(engine):
            if release_id is None:
                product.check(ledger)
                release_id = self._measured(needs.disk, engine)
            self._at("stored")
            with disk(partial):
                product.publish(partial, self._charged(release_id), within(self._say, _MEASURED, _PUBLISHED))
                record_standing(partial, product.spec, ledger, release_id, followed)
        self._at("published")
        return release_id

    def _measured(self, space: int, memory: str | None) -> str:
        """Count, charge and measure into the folder; what fails leaves nothing behind to resume.

        Privacy:
            From the charge on, whatever fails before the measurement is complete loses its noise: the charge is marked
            void and stays spent.
        """
        product, ledger, partial = self._product, self._ledger, self._partial
        earlier: set[str] | None = None
        drawn: DrawnMeasurements | None = None
        try:
            with disk(partial, charged=False):
                check_space(partial, space)
                mark(partial, product.spec, product.document())
            self._at("marked")
            self._say(Progress("counting the records", 0.0))
            rule = unit_rule(product.spec, row_key(product.spec, ledger))
            with product.count(rule, memory) as counts, opened(product.writer(partial)) as writer:
                self._at("counted")
                drawing = "charging the ledger and drawing noise"
                self._say(Progress(drawing, _COUNTED))
                earlier = {charge.release_id for charge in ledger.find(self._digest)}
                drawn = product.measure(counts, ledger, self._digest)
                self._at("charged")
                done, say = 0.0, within(self._say, _COUNTED, _MEASURED)
                for piece in drawn:
                    with writing(partial):
                        writer(piece)
                    done += drawn.share(piece)
                    say(Progress(drawing, done))
                self._at("measured")
                with writing(partial):
                    writer.finish(drawn)
        except BaseException as error:
            if earlier is None or (partial / MEASUREMENT).exists():  # nothing was charged, or it is resumed
                unmark(partial)
                raise
            raise self._lost(earlier, drawn, error) from None
        return str(drawn.release_id)

    def _lost(
        self, earlier: set[str], drawn: DrawnMeasurements | None, error: BaseException
    ) -> BaseException:
        """The error to raise where noise is lost, or was refused: what was charged for it is void by then.

        Where the ledger cannot be read, the folder keeps its mark: resuming sees whether there was a charge.
        """
        if drawn is not None:
            error = mark_void(self._ledger, str(drawn.release_id), error)
        else:
            try:
                charges = self._ledger.find(self._digest)
            except LedgerError:
                return error
            for charge in charges:
                if charge.release_id not in earlier and charge.state == "charged":
                    error = mark_void(self._ledger, charge.release_id, error)
        unmark(self._partial)
        return error

    def _charged(self, release_id: str) -> Charged:
        ledger = self._ledger
        own = next(charge.sequence for charge in ledger.charges() if charge.release_id == release_id)
        earlier = [(charge, stated) for charge, stated in ledger.disclosures() if charge.sequence < own]
        return Charged(release_id, ledger.entries(release_id), earlier)


def seal_without_report(partial: Path) -> Release:
    """Seal a folder that has no report."""
    unmark(partial)
    seal(partial)
    return Release.read(partial)


def write_report(release: Release) -> Path:
    """Rebuild a release's report from its folder alone, and the report's own checksum with it.

    Raises:
        ReleaseError: another file of the folder is not as it was published, all of them named, or it cannot be written;
            or series, ledger entries and what the ledger had spent contradict each other.
    """
    with disk(release.path):
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
    if faults := release.text_faults():
        return faults
    if pages_are_compared(release) and (release.path / REPORT).read_bytes() != report_of(release).encode():
        return [
            f"{REPORT}: differs from the one that is made from this folder here; tabulae report makes it again"
        ]
    return []


def pages_are_compared(release: Release) -> bool:
    """Whether pages can be made again as they were: another version of tabulae may word them differently."""
    return same_version(release.descriptor)
