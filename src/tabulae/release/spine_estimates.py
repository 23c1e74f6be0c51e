"""What a release of areas publishes, made from its stored measurements alone: estimates, and rows of tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from ..geography.constraints import ExactMargin
from ..geography.spine_plan import SpinePlan
from ..spec import Spec, geography_of
from ..spec.geography import Geography
from ..topdown.areas import area_covariances
from ..topdown.estimate import SpineEstimate, estimate_spine
from ..topdown.intervals import area_half_widths
from .microdata import Microdata
from .spine_exact import read_exact
from .spine_measurements import read_spine_measurements
from .spine_tables import UNBIASED, AreaPublisher, Areas

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
        cls, folder: Path, spec: Spec, level: float, work: Path | None = None, say: Say = _quiet
    ) -> SpineRelease:
        """Estimate from the measurements stored in a folder.

        Args:
            folder: of the release.
            spec: with ``[geography]``.
            level: of the intervals.
            work: where stages of the estimation are kept, so that a killed process goes on from the last of them.
            say: called with a line of progress at each stage.

        Raises:
            ReleaseError: the measurements are not those of the spec, or contradict themselves.
        """
        geography = geography_of(spec)
        plan = geography.plan()
        exact = read_exact(folder, plan, exact_of(geography))

        def estimate(method: str) -> SpineEstimate:
            return estimate_spine(
                plan,
                read_spine_measurements(folder, plan),
                method,  # type: ignore[arg-type]
                constraints=geography.constraints,
                exact_values=exact,
                work=None if work is None else work / method,
                say=lambda line: say(f"{method}: {line}"),
            )

        unbiased = estimate(UNBIASED)
        method = spec.method.estimate
        published = unbiased if method == UNBIASED else estimate(method)
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
        codes = {}
        for name in self.geography.levels:
            units, index = self.geography.areas(name)
            codes[name] = np.append(units, "")[index]  # -1, no unit of this level: the last
        return Microdata(self.plan.layout, codes, self.published)
