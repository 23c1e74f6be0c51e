"""Releases of tables: counts of the cells of a domain, measured once by a strategy that is chosen before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from math import sqrt
from os import PathLike, urandom
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
import pyarrow as pa

from ...domain import Invariants, Workload, describe_row_space
from ...errors import InvalidArgument, NotEstimable, Problem, SpecError, TabulaeError, Unsupported
from ...estimation import Estimate, estimate
from ...estimation._estimate import NonNegative
from ...measurement import Measurement
from ...privacy import Disclosure, Ledger, RandomBits
from ...release import folder as f
from ...release.agreement import csv_faults
from ...release.progress import Progress, Say
from ...release.read import Release
from ...release.staging import PLAN, leave_measured
from ...release.write import Changes
from ...sources.units import UnitRule
from ...spec import Spec
from ...spec.promise import POSTERIOR
from ...strategy import law_variances
from ..product import Charged, QuickMargins, ResourceEstimate, records_of, refuse_areas, rules_of, unit_rule
from .changes import comparable, table_changes
from .count import Counts, tabulate
from .draws import check_drawn, draws_faults, read_draws, write_draws
from .exactness import check_joint_promise, exactness
from .figures import derived_faults, publish_derived, publish_figure, write_derived
from .measure import measure
from .plan import Plan, check_derived, plan_tables
from .publish import (
    contradictions,
    descriptor_faults,
    false_numbers,
    measurement_faults,
    meets,
    publish,
    publish_exact,
    together,
    write_contents,
)
from .store import MeasurementWriter, read_measurement

if TYPE_CHECKING:
    from ...estimation.whole_tables import Posterior


@dataclass(frozen=True)
class MeasuredOnce:
    """A measurement as a stream of one piece."""

    whole: Measurement

    @property
    def release_id(self) -> str | None:
        return self.whole.release_id

    def share(self, piece: Measurement) -> float:
        """All of it."""
        return 1.0

    def __iter__(self) -> Iterator[Measurement]:
        yield self.whole


@dataclass(frozen=True, eq=False, repr=False)
class Prepared:
    """A plan whose records are counted: all that is left is to charge and measure."""

    plan: Plan
    _counts: Counts

    def measure(
        self, ledger: Ledger | None, source: RandomBits | None = None, digest: bytes | None = None
    ) -> Measurement:
        """Charge the ledger, then draw. Without a ledger this is a rehearsal, which no release accepts.

        Privacy:
            That of :func:`tabulae.measure`. The counts have at most ``rows_per_unit`` rows of any unit: by
            truncation where the spec has a ``unit_id``, else on the spec's word; the noise is for so many.
            Counts of the spec's invariants are read as they are, outside that guarantee, once the same entry of the
            ledger says which and why.
        """
        spec = self.plan.spec
        neighbours, stability, fewest = spec.change
        if ledger is not None:
            spec.check_spendable()
        return measure(
            self._counts,
            self.plan.strategy,
            spec.loss,
            neighbours=neighbours,
            ledger=ledger,
            source=source,
            unit=spec.unit,
            title=spec.title or "release",
            digest=digest,
            stability=stability,
            fewest=fewest,
            reasons=[given.reason for given in spec.invariants],
            left_out=spec.left_out,
        )


class TablesProduct:
    """A release of tables, of one spec: see :class:`tabulae.products.product.Product`."""

    estimates_on_engine = False
    _planned: Plan

    rows_by_area = False
    adds_up = False
    words_beside: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self._read: dict[Path, Measurement] = {}
        self._estimates: dict[Path, Estimate] = {}
        self._answers: dict[Path, Posterior] = {}

    @staticmethod
    def plan(spec: Spec) -> Plan:
        made = plan_tables(spec)
        check_derived(made)
        check_earlier(made)
        if spec.method.estimate == POSTERIOR:
            rehearse(made)
        return made

    @staticmethod
    def quick_margins(spec: Spec, like: Plan | None, seconds: float) -> QuickMargins:
        if like is not None:
            scale = sqrt(_variance(Plan(spec, like.strategy)) / _variance(like))
            return QuickMargins({name: scale * margin for name, margin in like.margins.items()})
        with suppress(TabulaeError):  # what ails it is said of the plan itself
            quick = replace(spec.method, tolerance=None, time_limit=seconds)
            return QuickMargins(TablesProduct.plan(replace(spec, method=quick)).rough_margins)
        return QuickMargins({})

    @staticmethod
    def plan_like(spec: Spec, like: Plan) -> Plan:
        """With the same strategy: but for one within targets, no choice of a strategy looks at the budget."""
        return TablesProduct.plan(spec) if spec.targets else Plan(spec, like.strategy)

    def prepare(self, partial: Path, plan_file: str | PathLike[str] | None, say: Say) -> None:
        if (partial / f.MEASUREMENT).exists():
            # The plan beside it may be of another estimator, or be removed.
            self._planned = Plan(self.spec, self._stored(partial).strategy)
        elif (partial / PLAN).exists():
            self._planned = Plan.load(partial / PLAN, self.spec)
        elif plan_file is not None:
            self._planned = Plan.load(plan_file, self.spec)
        else:
            say(Progress("choosing the strategy"))
            self._planned = plan_tables(self.spec)

    def check(self, ledger: Ledger) -> None:
        """Compute all that will be published once, on made-up answers: what cannot be computed must not be paid for.

        Raises:
            Unsupported: errors or intervals are not finite.
            SpecError: with what other releases of the ledger state exactly, the promise would be empty.
        """
        plan = self._planned
        _ = plan.exact, plan.left_out
        check_derived(plan)
        check_earlier(plan)
        rehearsed = rehearse(plan)
        tables = publish(rehearsed, self.spec.published, plan.level, self.spec.sampling)
        numbers = [np.concatenate([t.estimate, t.std_error, t.ci_low, t.ci_high]) for t in tables]
        rows = [asdict(row).values() for row in plan.table_errors]
        numbers += [np.array([value for value in row if isinstance(value, float)]) for row in rows]
        publish_derived(rehearsed, self.spec, plan.level)
        if not all(np.isfinite(part).all() for part in numbers):
            raise Unsupported(
                "some errors or intervals of this plan are not finite, so nothing was charged: the budget or the "
                "weights are too extreme for the noise that they ask for"
            )
        check_joint_promise(self.spec, ledger.disclosures())

    def resources(self) -> ResourceEstimate:
        return self._planned.needs

    def document(self) -> Mapping[str, Any]:
        return self._planned.document()

    def stays_disclosed(self) -> str:
        if not self.spec.invariants:
            return ""
        return ", and its exact counts, which may have been read, stay in the ledger as disclosed"

    def disclosures(self) -> list[Disclosure]:
        return [
            Disclosure(given.table.name, given.reason, describe_row_space(given.table, self.spec.domain))
            for given in self.spec.invariants
        ]

    def engine(self, memory: str | None) -> AbstractContextManager[None]:
        return nullcontext()

    def count(self, unit: UnitRule | None, memory: str | None) -> AbstractContextManager[Prepared]:
        return nullcontext(_counted(self._planned, unit, memory))

    def measure(self, counts: Prepared, ledger: Ledger, digest: bytes) -> MeasuredOnce:
        """Charge, and draw all noise at once.

        Privacy:
            That of :meth:`Prepared.measure`.
        """
        return MeasuredOnce(counts.measure(ledger, digest=digest))

    def writer(self, partial: Path) -> MeasurementWriter:
        return MeasurementWriter(partial)

    def publish(self, partial: Path, charged: Charged, say: Say) -> None:
        say(Progress("estimating and writing tables"))
        leave_measured(partial)
        plan, spec, measured = self._planned, self.spec, self._stored(partial)
        try:
            estimated = reconstruct(plan, measured)
            tables = publish(estimated, spec.published, plan.level, spec.sampling) + publish_exact(measured)
        except Unsupported as error:
            raise Unsupported(
                f"{error}. The noisy counts are stored and paid for: write another estimate under [method], and "
                "--resume publishes them without a second charge"
            ) from None
        expected = {row.table: asdict(row) for row in plan.table_errors}
        exact = exactness(spec, charged.earlier)
        stated = None if exact is None else exact.document()
        told = measured.left_out
        write_contents(partial, spec, tables, expected, charged, plan.level, stated, told)
        if spec.method.estimate == POSTERIOR:
            write_draws(partial, cast("Posterior", estimated))
        write_derived(partial, spec, publish_derived(estimated, spec, plan.level))

    def measurements(self, release: Release) -> tuple[Measurement, ...]:
        """The one measurement, with its strategy and laws, as it was drawn; it is read once."""
        if release.path not in self._read:
            self._read[release.path] = self._stored(release.path)
        return (self._read[release.path],)

    def faults(self, release: Release) -> list[str]:
        (measurement,), estimated = release.measurements, self._estimate(release)
        exact, spec = estimated.exact, self.spec
        if exact is not None and (faults := contradictions(exact, measurement.exact)):
            return faults
        release_id = str(release.about["release_id"])
        faults = list(measurement_faults(release.path, spec, measurement, release_id))
        tables = publish(estimated, spec.published, release.level, spec.sampling) + publish_exact(measurement)
        faults += descriptor_faults(spec, release.descriptor, tables, measurement.left_out)
        workload = {table.name: table for table in spec.published.tables}
        held = Invariants(spec.domain, [e.held.table for e in spec.earlier]) if spec.earlier else None
        before = [e.held.at_least for e in spec.earlier]
        for fresh in tables:
            if fresh.name not in release.tables:
                faults.append(f"{f.DESCRIPTOR}: table {fresh.name!r} is not in it")
                continue
            stored = release.tables[fresh.name]
            faults += csv_faults(release.path, fresh.name, stored)
            faults += false_numbers(fresh, stored, estimated.precision, spec.reliability)
            if fresh.name in workload and not stored["estimate"].null_count:
                estimates = stored["estimate"].to_numpy()
                if exact is not None and not meets(exact, workload[fresh.name], estimates, measurement.exact):
                    faults.append(
                        f"tables/{fresh.name}: its sums are not the exact counts of {f.INVARIANTS}/"
                    )
                if held is not None and not meets(held, workload[fresh.name], estimates, before):
                    faults.append(f"tables/{fresh.name}: its sums are not the counts published before")
        if spec.method.estimate == POSTERIOR:
            faults += draws_faults(release.path, cast("Posterior", estimated))
        return [*faults, *derived_faults(release.path, spec, release.derived, estimated, release.level)]

    def text_faults(self, release: Release) -> list[str]:
        return []

    def query(self, release: Release, sql: str, areas: Sequence[str], codes: Sequence[str]) -> pa.Table:
        refuse_areas(release, areas, codes)
        f.require_sources(release.path)
        from ...domain.figure_sql import figure_from_sql  # what reads SQL takes long to load

        figure = figure_from_sql(release.domain, "query", sql)
        try:
            estimated = self._answering(release)
            if figure.count is None:
                return publish_figure(estimated, figure, release.level).arrow()
            return publish(estimated, Workload(release.domain, [figure.count]), release.level)[0].arrow()
        except NotEstimable as error:
            told = together(release.measurements[0].strategy, figure.attributes)
            raise NotEstimable(f"{error}\n{told}") from None

    def changes(self, earlier: Release, later: Release, table: str) -> Changes:
        notes = comparable(earlier, later)
        before = TablesProduct(earlier.spec)
        return table_changes(earlier, later, (before._estimate(earlier), self._estimate(later)), table, notes)

    def _stored(self, folder: Path) -> Measurement:
        return read_measurement(folder, self.spec.domain, [given.table for given in self.spec.invariants])

    def _answering(self, release: Release) -> Estimate:
        """Estimates that answer questions: from stored draws, where there are some."""
        if self.spec.method.estimate != POSTERIOR:
            return self._estimate(release)
        if release.path not in self._answers:
            made = _drawn(self.spec, release.measurements[0])
            self._answers[release.path] = replace(made, stored=read_draws(release.path, made))
        return self._answers[release.path]

    def _estimate(self, release: Release) -> Estimate:
        if release.path not in self._estimates:
            (measured,) = release.measurements
            self._estimates[release.path] = reconstruct(Plan(self.spec, measured.strategy), measured)
        return self._estimates[release.path]


def prepare(plan: Plan, key: bytes | None = None, memory: str | None = None) -> Prepared:
    """Count the spec's records by cell of its public domain, at most ``rows_per_unit`` of each unit.

    ``key`` (32 bytes, secret; see :func:`~tabulae.products.product.row_key`) decides which rows of a unit are counted
    where there are more; None draws a fresh one, so that another call counts other rows. It is used for specs with a
    ``unit_id``. ``memory`` is the most that an engine of our own takes, such as "4GB".

    Raises :class:`~tabulae.errors.DataError` where the records do not fit the domain.

    Privacy:
        The counts stay inside the result, which shows and saves nothing of them.
    """
    return _counted(plan, unit_rule(plan.spec, key or urandom(32)), memory)


def _counted(plan: Plan, unit: UnitRule | None, memory: str | None) -> Prepared:
    spec = plan.spec
    return Prepared(plan, tabulate(records_of(spec), spec.domain, rules_of(spec), unit, memory=memory))


def rehearse(plan: Plan) -> Estimate:
    """Estimates from made-up measurements: whether everything public can be computed, before it is paid.

    They contradict each other, as real ones do, so that a solver that takes steps has steps to take; the exact counts
    are those of made-up records, so that they do not.
    """
    strategy, spec = plan.strategy, plan.spec
    laws = spec.table_laws(strategy)
    values = np.zeros(strategy.rows, dtype=np.int64)
    values[::5], values[2::5] = 1, -1
    nobody = _made_up(plan)
    exact = tuple(nobody.records(table.operator(spec.domain)) for table in strategy.invariants)
    made = Measurement(strategy, values, laws, spec.loss, spec.neighbours, rehearsal=True, exact=exact)
    if spec.method.estimate != POSTERIOR:
        return reconstruct(plan, made)
    check_drawn(_drawn(spec, made))  # which has no draws yet
    return estimate(made)


def check_earlier(plan: Plan) -> None:
    """Refuse published counts that no tables have: counts that contradict each other.

    Privacy:
        Reads no record: a function of the public spec.
    """
    strategy, spec = plan.strategy, plan.spec
    if not spec.earlier:
        return
    none = np.zeros(strategy.rows, dtype=np.int64)
    laws = spec.table_laws(strategy)
    made = reconstruct(plan, Measurement(strategy, none, laws, spec.loss, spec.neighbours, rehearsal=True))
    assert isinstance(made, NonNegative)
    try:
        made.solution  # noqa: B018  (made here to learn whether there is one)
    except (InvalidArgument, Unsupported) as error:
        raise SpecError([Problem("earlier", str(error))], str(spec.path or "spec")) from None


def _variance(plan: Plan) -> float:
    """Of the noise of the first block: that of all grows alike with the budget, nearly."""
    return law_variances(plan.strategy, plan.spec.table_laws(plan.strategy))[0]


def _made_up(plan: Plan) -> Counts:
    """Counts of people who do not exist: every category of every attribute has some of them."""
    # Of a measured value the ends, or all that is between them where that is little.
    codes = [(a.codes, 1) if a.codes < 1000 else (2, a.steps) for a in plan.spec.domain.attributes]
    people = np.arange(2 * max(count for count, _ in codes) + 1)
    made = [people % count * step for count, step in codes]
    return Counts.from_records(plan.spec.domain, np.stack(made, axis=1))


def reconstruct(plan: Plan, measured: Measurement) -> Estimate:
    """Estimates from the measurement: public, repeatable years later."""
    held = [each.held for each in plan.spec.earlier]
    if plan.spec.method.estimate == POSTERIOR:
        return _drawn(plan.spec, measured)
    return estimate(measured, method=plan.spec.method.estimate, held=held)


def _drawn(spec: Spec, measured: Measurement) -> Posterior:
    from ...estimation.whole_tables import Posterior  # its sampler is compiled: only who draws needs it

    return Posterior(measured, spec.published, spec.method.seed)


PRODUCT = TablesProduct
