"""Targets of tables of areas: the errors that they are about, before any data, and how these change with precision."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import sqrt

import numpy as np
from scipy.special import ndtri

from ..estimation import within
from ..geography.layout import Margin
from ..geography.spine_plan import SpinePlan
from ..privacy import NoiseLaw
from ..release.tables import LEVEL
from ..spec import AreaTable, Geography
from ..spec.geography_targets import AreaTarget
from ..topdown.areas import margin_variance
from ..topdown.covariances import Covariances
from ..topdown.intervals import HALF_STEP, area_half_widths
from ..topdown.sensitivities import Sensitivities
from .area_errors import AreaErrors

_POWER = 200.0  # of the norm that stands for the largest of many variances while shares are looked for


@dataclass(frozen=True, eq=False)
class Aim:
    """One target of one table for one kind of area."""

    table: AreaTable
    kind: str
    target: AreaTarget

    def reached(self, variance: float, laws: Sequence[NoiseLaw]) -> float:
        """The error that is judged: the RMSE, or the half-width under the noise that would be drawn."""
        if self.target.confidence is None:
            return sqrt(variance)
        return float(area_half_widths(np.array([variance]), laws, self.target.confidence)[0])

    @property
    def allowed(self) -> float:
        """The RMSE or the margin."""
        given = self.target.rmse if self.target.margin is None else self.target.margin
        assert given is not None
        return given

    def met(self, variance: float, laws: Sequence[NoiseLaw]) -> bool:
        """Whether the error that is judged keeps to the target."""
        reached = self.reached(variance, laws)
        return reached <= self.allowed if self.target.confidence is None else within(reached, self.allowed)

    def normal_variance(self, step: float = HALF_STEP) -> float:
        """The variance that it allows by the normal law, with what whole numbers cost a margin."""
        if self.target.confidence is None:
            return self.allowed**2
        room = self.allowed - step if self.allowed > step else self.allowed
        return (room / float(ndtri((1 + self.target.confidence) / 2))) ** 2


@dataclass(frozen=True, eq=False)
class AimSlope:
    """One aim's error at some precisions, and its change.

    Attributes:
        log: of a variance: the mean, or a norm of the counts' variances close to their largest.
        slope: minus the derivative of ``log`` by the weight of each class and query: shape (classes, queries), 0 or
            more.
        least: a number c with ``slope @ w >= c / v`` for all weights w with which no variance is above v (the mean is
            not, for an RMSE); the variance is convex in w, and of degree -1.
    """

    log: float
    slope: np.ndarray
    least: float


@dataclass(frozen=True, eq=False)
class AreaAims:
    """All targets of a geography.

    Args:
        geography: the section.
    """

    geography: Geography

    @cached_property
    def aims(self) -> tuple[Aim, ...]:
        """In the order of the tables, of their targets, and of the kinds of area that these are for."""
        return tuple(
            Aim(table, kind, target)
            for table in self.geography.tables
            for target in table.targets
            for kind in target.areas
        )

    def covariances(self, plan: SpinePlan, weights: np.ndarray | None = None) -> Covariances:
        """Variances under a plan, or with other weights than its own."""
        limits = self.geography.constraints
        return Covariances.of(plan, () if limits is None else limits.exact, weights)

    def variances(self, cov: Covariances) -> np.ndarray:
        """For each aim the variance that it is about: the mean of its counts, or the largest. 0: all are exact."""
        found = np.zeros(len(self.aims))
        for kind, places in self._by_kind.items():
            for place, value, counts in self._counts(cov, kind, places):
                found[place] = (
                    value.max(initial=0) if self._is_margin(place) else value.sum() / max(counts, 1)
                )
        return found

    def slopes(self, cov: Covariances, chosen: np.ndarray) -> dict[int, AimSlope]:
        """Errors and their changes, for some aims by position; those that are exact are left out.

        Args:
            cov: at the precisions.
            chosen: shape (aims,), boolean.
        """
        found = {}
        for kind, places in self._by_kind.items():
            wanted = [place for place in places if chosen[place]]
            for place, value, counts in self._counts(cov, kind, wanted) if wanted else ():
                if value.any():
                    found[place] = self._slope(cov, place, value, counts)
        return found

    def _slope(self, cov: Covariances, place: int, value: np.ndarray, counts: float) -> AimSlope:
        if self._is_margin(place):
            largest = float(value.max())
            powers = (value / largest) ** (_POWER - 1)
            norm = float((powers * value).sum()) / largest
            share = powers / (norm * largest)
            log, least = np.log(largest) + np.log(norm) / _POWER, 1 / float(share.sum())
        else:
            total = float(value.sum())
            share = np.broadcast_to(value.any(axis=(1, 2), keepdims=True) / total, value.shape)
            log, least = np.log(total / counts), total / counts
        aim, squares = self.aims[place], self.aims[place].table.margin.squares
        weights = _weights(aim.table.margin, share @ squares)
        sensitivities = Sensitivities.zeros(cov)
        sensitivities.add(AreaErrors(self.geography, cov, 0.95).placed(aim.kind)[0], weights)
        return AimSlope(float(log), np.maximum(sensitivities.by_class(), 0), least)

    def _is_margin(self, place: int) -> bool:
        return self.aims[place].target.confidence is not None

    @cached_property
    def _by_kind(self) -> dict[str, list[int]]:
        """For each kind of area, the positions of its aims."""
        found: dict[str, list[int]] = {}
        for place, aim in enumerate(self.aims):
            found.setdefault(aim.kind, []).append(place)
        return found

    def _counts(
        self, cov: Covariances, kind: str, places: list[int]
    ) -> Iterator[tuple[int, np.ndarray, float]]:
        """For each aim of a kind of area: the variances, shape (areas, classes, inner), 0 in areas where all is exact.

        And the number of counts in the other areas.
        """
        errors = AreaErrors(self.geography, cov, LEVEL)
        asked = [self.aims[place].table for place in places]
        parts: list[list[np.ndarray]] = [[] for _ in places]
        for variances, _ in errors.batches(kind):
            for out, table in zip(parts, asked, strict=True):
                out.append(np.maximum(margin_variance(cov.plan.layout, variances, table.margin), 0))
        for place, (total, cells), out in zip(places, errors.of_areas(kind, asked), parts, strict=True):
            if out:
                yield place, np.concatenate(out) * (total > 0)[:, None, None], float(cells[total > 0].sum())


def _weights(margin: Margin, parts: np.ndarray) -> np.ndarray:
    """G of areas, shape (areas, kinds, D, D), from the weight of each class and kind, (areas, classes, kinds)."""
    return parts.swapaxes(1, 2)[..., margin.label][..., None] * margin.dense_gram(
        np.arange(margin.layout.size)
    )
