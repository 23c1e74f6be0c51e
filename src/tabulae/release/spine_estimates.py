"""What a release of areas publishes, made from its stored measurements alone: estimates, and rows of tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..geography.constraints import ExactMargin
from ..geography.spine_plan import SpinePlan
from ..spec import Spec, geography_of
from ..spec.geography import Geography
from ..topdown.areas import area_covariances
from ..topdown.estimate import (
    MEASURED,
    SpineEstimate,
    estimate_spine,
)
from ..topdown.intervals import area_half_widths
from ..topdown.measured import read_measured
from ..topdown.part_estimate import estimate_in_parts
from ..topdown.part_measured import Runner, read_in_parts
from .microdata import Microdata
from .spine_exact import read_exact
from .spine_measurements import StoredPieces, read_spine_measurements
from .spine_tables import (
    UNBIASED,
    AreaPublisher,
    Areas,
)

Say = Callable[[str], None]


def _quiet(line: str) -> None:
    """Progress that nobody watches."""


def exact_of(geography: Geography) -> tuple[ExactMargin, ...]:
    """The margins whose counts are published exactly."""
    return () if geography.constraints is None else geography.constraints.exact


def areas_of(geography: Geography) -> tuple[Areas, ...]:
    """All areas that some table is published for: the levels from the top down, then entities."""
    asked = {kind for table in geography.tables for kind in table.areas}
    return tuple(Areas(name, *geography.areas(name)) for name in geography.area_types if name in asked)


@dataclass(frozen=True, eq=False)
class GlsVariances:
    """Covariances of the generalised least-squares estimate, and intervals from them."""

    estimate: SpineEstimate

    def covariances(self, area: np.ndarray, areas: int) -> Iterator[np.ndarray]:
        """For each set of leaves, shape (kinds, D, D)."""
        return area_covariances(self.estimate.covariances, area, areas)

    def half_widths(self, variance: np.ndarray, level: float) -> np.ndarray:
        """Half the width of an interval for each variance."""
        return area_half_widths(variance, self.estimate.plan.all_laws, level)


@dataclass(frozen=True, eq=False)
class SpineRelease:
    """The estimates of a release of areas.

    Args:
        spec: with ``[geography]``.
        plan: what was measured.
        published: by the method of the spec.
        unbiased: by ``gls``; the same where that is the method.
        exact: the exact counts, one array a margin.
        level: of the intervals.
    """

    spec: Spec
    plan: SpinePlan
    published: SpineEstimate
    unbiased: SpineEstimate
    exact: tuple[np.ndarray, ...]
    level: float

    @classmethod
    def of(
        cls,
        folder: Path,
        spec: Spec,
        level: float,
        work: Path | None = None,
        say: Say = _quiet,
        run: Runner | None = None,
        method: str | None = None,
    ) -> SpineRelease:
        """Estimate from the measurements stored in a folder.

        Args:
            folder: of the release.
            spec: with ``[geography]``.
            level: of the intervals.
            work: where stages of the estimation are kept, so that a killed process goes on from the last of them.
            say: called with a line of progress at each stage.
            run: who runs the estimates' tasks, with a ``work`` folder that they share; this process where None.
            method: of ``published``; that of the spec where None.

        Raises:
            ReleaseError: the measurements are not those of the spec, or contradict themselves.
        """
        geography = geography_of(spec)
        plan = geography.plan()
        exact = read_exact(folder, plan, exact_of(geography))
        if run is None:
            estimate = _here(folder, plan, work, say)
        else:
            assert work is not None
            estimate = _by_tasks(folder, plan, work, say, run)
        known = {"constraints": geography.constraints, "exact_values": exact}
        unbiased = estimate(UNBIASED, **known)
        method = method or spec.method.estimate
        published = unbiased if method == UNBIASED else estimate(method, **known)
        return cls(spec, plan, published, unbiased, exact, level)

    @property
    def geography(self) -> Geography:
        """Of the spec."""
        return geography_of(self.spec)

    @cached_property
    def publisher(self) -> AreaPublisher:
        """Makes the rows of the tables."""
        return AreaPublisher(
            self.plan.layout,
            self.plan.support,
            self.published.method,
            self.published,
            self.unbiased,
            GlsVariances(self.unbiased),
            bool(self.exact),
            self.level,
        )

    @property
    def microdata(self) -> Microdata:
        """One row a person, of the published counts."""
        areas = {name: self.geography.areas(name) for name in self.geography.levels}
        return Microdata(self.plan.layout, areas, self.published)


def _here(folder: Path, plan: SpinePlan, work: Path | None, say: Say) -> Callable[..., SpineEstimate]:
    """Estimates by this process, from the measurements stored in a folder."""
    measured = read_measured(
        plan, read_spine_measurements(folder, plan), None if work is None else work / MEASURED, say
    )

    def estimate(method: Any, **known: Any) -> SpineEstimate:
        place = None if work is None else work / method
        return estimate_spine(plan, measured, method, work=place, say=_named(method, say), **known)

    return estimate


def _by_tasks(
    folder: Path, plan: SpinePlan, work: Path, say: Say, run: Runner
) -> Callable[..., SpineEstimate]:
    """Estimates by tasks that run elsewhere; they read the measurements themselves.

    Their folder is beside that of estimates by this process: a run may be resumed in either way.
    """
    place = work / "by_tasks"
    measured = read_in_parts(plan, StoredPieces(folder.resolve(), plan), run, place / MEASURED, say)

    def estimate(method: Any, **known: Any) -> SpineEstimate:
        return estimate_in_parts(
            plan, measured, method, run, work=place / method, say=_named(method, say), **known
        )

    return estimate


def _named(method: str, say: Say) -> Say:
    return lambda line: say(f"{method}: {line}")
