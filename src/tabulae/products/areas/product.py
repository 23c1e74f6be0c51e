"""Releases of areas: counts of every area of a spine, from the nation to the block, that add up."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import cached_property
from math import isfinite
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from ...errors import Unsupported
from ...privacy import Disclosure, Ledger
from ...release import folder as f
from ...release.progress import Progress, Say, within
from ...release.read import Release
from ...release.write import LEVEL, Changes
from ...sources.engines.spark import spark_session
from ...sources.units import UnitRule
from ...spec import Spec
from ..product import Charged, QuickMargins, ResourceEstimate, no_changes, no_saved_plan, records_of, rules_of
from .allocation import with_found_shares
from .constraints import ExactMargin, disclosure_of
from .count import LeafBound, LeafColumn, SpineCounts, open_spine_records
from .estimate import MEASURED, Intake
from .figures import query_areas
from .measure import measure_spine, measure_supported, refuse_contradictions, refuse_too_many
from .needs import largest_sparse_total, resources_of
from .plan import MOST_PEOPLE, GeographyPlan, largest_error, margins_at_targets, plan_geography, quick_margins
from .publish import spine_faults, spine_text_faults, write_spine
from .sparse.descend import SupportedMeasurements
from .sparse.store import StoredAnswers, SupportedMeasurementWriter
from .spec.section import Geography, geography_of
from .spine_plan import SpineMeasurements, SpinePieceValues, SpinePlan
from .store import SpineMeasurementWriter, plan_document, read_spine_measurements
from .tables import NO_INTERVALS, UNBIASED, SpineRelease, exact_of
from .tasks import Runner, on_spark

WORK = "estimate"
"""The folder, within the partial one, of finished stages of estimation: a killed run goes on from the last of them."""

_OVER = f".{WORK}.over"
"""What that folder is called once all files that follow from it are written: it is removed."""

_LEAST_VARIANCE = 1e-12
_ESTIMATED = 0.6  # of the time from measurements to tables: the estimates


class AreasProduct:
    """A release of areas, of one spec: see :class:`tabulae.products.product.Product`."""

    rows_by_area = True
    adds_up = True
    words_beside: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    def __init__(self, spec: Spec) -> None:
        self.spec, _ = with_found_shares(spec)
        sparse = geography_of(self.spec).sparse is not None
        self.estimates_on_engine = spec.source.engine == "spark" and not sparse
        self._runner: Runner | None = None
        self._folder: Path | None = None  # that is written in; None before a run begins

    @staticmethod
    def plan(spec: Spec) -> GeographyPlan:
        return plan_geography(spec)

    @staticmethod
    def quick_margins(spec: Spec, like: GeographyPlan | None, seconds: float) -> QuickMargins:
        """Bounds, or what they are about where budget or shares are still to be found."""
        geography = geography_of(spec)
        if geography.sparse is not None:
            return QuickMargins({})
        found = margins_at_targets(geography) if spec.open_budget else quick_margins(geography)
        known = {name: bound for name, bound in found.items() if isfinite(bound)}
        return QuickMargins(known, bounds=not (spec.open_budget or geography.open_shares))

    @staticmethod
    def plan_like(spec: Spec, like: GeographyPlan) -> GeographyPlan:
        return plan_geography(spec)

    @property
    def geography(self) -> Geography:
        return geography_of(self.spec)

    @cached_property
    def spine_plan(self) -> SpinePlan:
        return self.geography.plan()

    @property
    def exact(self) -> tuple[ExactMargin, ...]:
        return exact_of(self.geography)

    def prepare(self, partial: Path, plan_file: str | PathLike[str] | None, say: Say) -> None:
        if plan_file is not None:
            raise no_saved_plan("geography")
        say(Progress("planning"))
        _ = self.spine_plan
        pa.default_memory_pool().release_unused()  # what reading the spec took and Arrow keeps
        self._folder = partial

    def check(self, ledger: Ledger) -> None:
        """Refuse noise too small for floating point, and noise too large for whole numbers.

        Raises:
            Unsupported: a weight is beyond floating point, or counts could be too large to be rounded.
        """
        plan = self.spine_plan
        if min(law.variance_of_law for law in plan.all_laws) < _LEAST_VARIANCE:
            raise Unsupported(
                "some answers of this plan would have next to no noise, so nothing was charged: the budget, or a share "
                "of it, is too large for estimates to be computed from it"
            )
        sparse = self.geography.sparse
        if sparse is not None and (total := largest_sparse_total(plan, sparse)) > MOST_PEOPLE:
            raise Unsupported(
                f"an area of this plan could have {total:.1g} people, more than {MOST_PEOPLE:,}, which cannot be "
                "rounded, so nothing was charged: give it a larger budget, or hold fewer people"
            )
        if sparse is not None:
            return
        if self.geography.estimate != UNBIASED and (error := largest_error(plan)) > MOST_PEOPLE:
            raise Unsupported(
                f"counts of this plan could be wrong by {error:.1g} people, more than {MOST_PEOPLE:,}, which cannot be "
                "rounded, so nothing was charged: give it a larger budget, or the levels with small shares larger "
                f'ones; or ask for estimate = "{UNBIASED}", which does not round'
            )

    def resources(self) -> ResourceEstimate:
        return resources_of(self.geography, in_parts=self.estimates_on_engine)

    def document(self) -> Mapping[str, Any]:
        sparse = self.geography.sparse
        return plan_document(self.spine_plan, self.exact, None if sparse is None else sparse.cells)

    def stays_disclosed(self) -> str:
        if not self.exact:
            return ""
        return ", and its exact counts, which may have been read, stay in the ledger as disclosed"

    def disclosures(self) -> list[Disclosure]:
        return [disclosure_of(self.spine_plan, each) for each in self.exact]

    @contextmanager
    def engine(self, memory: str | None) -> Iterator[None]:
        """Spark, where it counts and makes estimates, in one session."""
        if not self.estimates_on_engine:
            yield
            return
        with spark_session(memory) as session:
            self._runner = on_spark(session)
            yield

    def count(self, unit: UnitRule | None, memory: str | None) -> nullcontext[SpineCounts]:
        geography, spec = self.geography, self.spec
        counts = open_spine_records(
            records_of(spec),
            rules_of(spec),
            self.spine_plan,
            LeafColumn(geography.column, geography.leaf_codes.tolist(), geography.dropped.tolist()),
            bounds=[
                LeafBound(f"[[bound]] {bound.file}", bound.margin.label, bound.occurs)
                for bound in geography.bounds
            ],
            unit=unit,
            memory=memory,
        )
        return nullcontext(counts)

    def measure(
        self, counts: SpineCounts, ledger: Ledger, digest: bytes
    ) -> SpineMeasurements | SupportedMeasurements:
        """Charge, read exact counts, and draw the noise of every level; where counts are sparse, what divisions read.

        Raises:
            DataError: exact counts contradict the limits, or each other; nothing was charged.
            ReleaseError: answers about so many records may not fit on the disk; nothing was charged.

        Privacy:
            That of :func:`~tabulae.products.areas.measure.measure_spine`, or of
            :func:`~tabulae.products.areas.measure.measure_supported`. Whether exact counts agree with the limits
            is seen before the charge. It depends on public limits and on exact counts, all of which this release would
            disclose, and on no other count; only who holds the records learns of a refusal, as of one for want of disk,
            which depends on how many millions of records there are.
        """
        spec, geography = self.spec, self.geography
        paid = {"ledger": ledger, "unit": spec.unit, "title": spec.title or "release", "digest": digest}
        if geography.sparse is not None:
            if self._folder is not None:
                refuse_too_many(counts, self.resources(), self._folder)
            return measure_supported(counts, self.spine_plan, geography.sparse.cells, **paid)
        if geography.estimate != UNBIASED and geography.constraints is not None:
            refuse_contradictions(counts, self.spine_plan, self.exact, geography.constraints)
        return measure_spine(counts, self.spine_plan, self.exact, **paid)

    def writer(self, partial: Path) -> SpineMeasurementWriter | SupportedMeasurementWriter:
        if self.geography.sparse is not None:
            return SupportedMeasurementWriter(partial, self.spine_plan, self.geography.sparse.cells)
        here = None if self.estimates_on_engine else Intake(self.spine_plan, partial / WORK / MEASURED)
        return SpineMeasurementWriter(partial, self.spine_plan, self.exact, here)

    def publish(self, partial: Path, charged: Charged, say: Say) -> None:
        work, over = partial / WORK, partial / _OVER
        if work.exists() or not (partial / f.DESCRIPTOR).exists():  # else a killed run has written everything
            say(Progress("estimating"))
            work.mkdir(exist_ok=True)
            made = SpineRelease.of(partial, self.spec, LEVEL, work, within(say, 0, _ESTIMATED), self._runner)
            write_spine(partial, made, charged, within(say, _ESTIMATED, 1))
            work.rename(over)  # whole, so that no part of it is ever taken for the work of an unfinished run
            f.sync_folder(partial)
        shutil.rmtree(over, ignore_errors=True)

    def measurements(self, release: Release) -> Iterator[SpinePieceValues] | Iterator[pa.Table]:
        """The noisy counts as they were drawn, piece by piece, from the root's level down; sparse ones as tables."""
        if self.geography.sparse is not None:
            return self._answers(release)
        return read_spine_measurements(release.path, self.spine_plan)

    def _answers(self, release: Release) -> Iterator[pa.Table]:
        with StoredAnswers(release.path, self.spine_plan) as stored:
            yield from stored.rows()

    def faults(self, release: Release) -> list[str]:
        return list(spine_faults(release.path, self.spec, release.level))

    def text_faults(self, release: Release) -> list[str]:
        return list(spine_text_faults(release.path, self.spec, release.descriptor))

    def query(self, release: Release, sql: str, areas: Sequence[str], codes: Sequence[str]) -> pa.Table:
        """See :meth:`Product.query`; answers are least-squares estimates, whatever method the tables have."""
        if self.geography.sparse is not None:
            raise Unsupported(f"{release.path}: {NO_INTERVALS}")
        f.require_sources(release.path)
        return query_areas(release.path, self.spec, release.level, sql, areas, codes)

    def changes(self, earlier: Release, later: Release, table: str) -> Changes:
        raise no_changes("areas")


PRODUCT = AreasProduct
