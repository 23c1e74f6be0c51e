"""Releases of groups: very many small groups, each with the table that it can afford, measured in two stages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from ...errors import Unsupported
from ...privacy import Disclosure, Ledger
from ...release.progress import Progress, Say
from ...release.read import Release
from ...release.staging import leave_measured
from ...release.write import Changes, write_documents
from ...sources.units import UnitRule
from ...spec import Spec
from ...spec.promise import POSTERIOR
from ..product import (
    Charged,
    QuickMargins,
    ResourceEstimate,
    no_changes,
    no_saved_plan,
    records_of,
    refuse_areas,
    rules_of,
)
from .count import GroupCounts, RecordShape, open_group_records
from .levels import AdaptivePlan, GroupMeasurement, GroupMeasurements
from .measure import measure_groups
from .plan import DetailedPlan, detailed_of, plan_detailed
from .publish import TOTALS, group_faults, write_groups
from .store import GroupMeasurementWriter, plan_document, read_group_measurements


class GroupsProduct:
    """A release of groups, of one spec: see :class:`tabulae.products.product.Product`."""

    estimates_on_engine = False
    _planned: DetailedPlan

    rows_by_area: ClassVar[bool] = True
    adds_up: ClassVar[bool] = False
    words_beside: ClassVar[Mapping[str, tuple[str, ...]]] = {TOTALS: ("label", "table")}

    def __init__(self, spec: Spec) -> None:
        self.spec = spec

    @staticmethod
    def plan(spec: Spec) -> DetailedPlan:
        made = plan_detailed(spec)
        if spec.method.estimate == POSTERIOR:
            from .posterior import (
                check_groups_drawn,
            )  # its sampler is compiled, and groups alone need no compiler

            check_groups_drawn(made.adaptive)
        return made

    @staticmethod
    def quick_margins(spec: Spec, like: DetailedPlan | None, seconds: float) -> QuickMargins:
        """None: the plan is as quick."""
        return QuickMargins({})

    @staticmethod
    def plan_like(spec: Spec, like: DetailedPlan) -> DetailedPlan:
        return GroupsProduct.plan(spec)

    @cached_property
    def adaptive(self) -> AdaptivePlan:
        """The levels of groups, with their stability and noise, as a published spec has them."""
        return detailed_of(self.spec).plan()

    def prepare(self, partial: Path, plan_file: str | PathLike[str] | None, say: Say) -> None:
        if plan_file is not None:
            raise no_saved_plan("detailed")
        say(Progress("proving how many groups one record can belong to"))
        self._planned = self.plan(self.spec)

    def check(self, ledger: Ledger) -> None:
        """Nothing more: whatever is measured can be published."""

    def resources(self) -> ResourceEstimate:
        return self._planned.needs

    def document(self) -> Mapping[str, Any]:
        return plan_document(self._planned.adaptive)

    def stays_disclosed(self) -> str:
        """Nothing: no count of a group is read as it is."""
        return ""

    def disclosures(self) -> list[Disclosure]:
        """None."""
        return []

    def engine(self, memory: str | None) -> AbstractContextManager[None]:
        """Nothing: estimates are made here."""
        return nullcontext()

    def count(self, unit: UnitRule | None, memory: str | None) -> AbstractContextManager[GroupCounts]:
        """The records by group, level by level as they are asked for."""
        spec, detailed = self.spec, detailed_of(self.spec)
        return open_group_records(
            records_of(spec),
            spec.domain.attributes,
            rules_of(spec),
            RecordShape(detailed.place, detailed.codes, detailed.cell),
            self._planned.adaptive,
            unit=unit,
            memory=memory,
        )

    def measure(self, counts: GroupCounts, ledger: Ledger, digest: bytes) -> GroupMeasurements:
        """Charge, then draw both stages of every level.

        Privacy:
            That of :func:`~tabulae.products.groups.measure.measure_groups`.
        """
        title = self.spec.title or "release"
        return measure_groups(counts, self._planned.adaptive, ledger=ledger, title=title, digest=digest)

    def writer(self, partial: Path) -> GroupMeasurementWriter:
        return GroupMeasurementWriter(partial, self._planned.adaptive)

    def publish(self, partial: Path, charged: Charged, say: Say) -> None:
        say(Progress("estimating and writing tables"))
        leave_measured(partial)
        write_documents(partial, self.spec, charged.entries)
        write_groups(partial, self.spec, self._planned.adaptive, charged, self._planned.level, say)

    def measurements(self, release: Release) -> Iterator[GroupMeasurement]:
        """The noisy counts as they were drawn, piece by piece, in the order of the levels."""
        return read_group_measurements(release.path, self.adaptive)

    def faults(self, release: Release) -> list[str]:
        return list(group_faults(release.path, self.spec, self.adaptive, release.level))

    def text_faults(self, release: Release) -> list[str]:
        """None beside those of every kind."""
        return []

    def query(self, release: Release, sql: str, areas: Sequence[str], codes: Sequence[str]) -> pa.Table:
        """Refused: each group has the table that it could afford."""
        refuse_areas(release, areas, codes)
        raise Unsupported(
            f"{release.path} tabulates groups, each in the table that it could afford, and answers no other counts: "
            f"read {release.path}/tables/totals.csv, or in Python tabulae.Release.read(...).tables"
        )

    def changes(self, earlier: Release, later: Release, table: str) -> Changes:
        raise no_changes("groups")


PRODUCT = GroupsProduct
