"""Changes from one release to another: differences and ratios of counts whose noises are independent.

A change is ``S_1 - S_0`` beyond the truth, with S_1 and S_0 linear in the noise of two releases. So it is itself a sum
of independent noise variables, those of both, and half-widths follow by the rule for any such sum
(:func:`tabulae.estimation.coverage.half_widths`) over the blocks of both strategies.

A change in per cent is a ratio less 1. Fieller's set needs ``Var(a - R b) = Var a + R^2 Var b`` and a factor for the
same sum of noise variables, as every other ratio here does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from ..domain import Domain, Figure, Linear, Ratio, Table
from ..privacy import NoiseLaw
from ..strategy import Profile, VarianceBound
from .coverage import CONSERVATIVE, EXACT, HalfWidths, half_widths, uniform_factor
from .figures import FigureNumbers, figure_numbers
from .intervals import non_negative_rows
from .least_squares import Estimate, OneSided
from .statistics import WIDEST, PairProfile, RatioSet, profile_by_block, ratio_set

_NOW, _BEFORE, _CHANGE = (Table(name, {}) for name in ("now", "before", "change"))
_ONE, _ALL = Fraction(1), Fraction(100)


@dataclass(frozen=True, eq=False)
class CountsOfRelease:
    """Some rows of one table of one release; arrays are (m,).

    Arguments:
        estimate: of all counts of the release.
        table: among them.
        rows: which rows of the table.
        published: the estimates as they were published.
        std_error: of least squares, 0 where ``exact``.
        exact: which are known without noise.
    """

    estimate: Estimate
    table: Table
    rows: np.ndarray
    published: np.ndarray
    std_error: np.ndarray
    exact: np.ndarray

    @property
    def laws(self) -> tuple[NoiseLaw, ...]:
        return tuple(self.estimate.measurement.laws)

    @property
    def steps(self) -> tuple[float, ...]:
        return self.estimate.measurement.strategy.steps

    @property
    def one_sided(self) -> bool:
        """Whether what is published is not the least-squares estimate."""
        return isinstance(self.estimate, OneSided)

    @property
    def unbiased(self) -> np.ndarray:
        """The least-squares estimates, about which the noise is symmetric."""
        if not isinstance(self.estimate, OneSided):
            return self.published
        linear = self.estimate.linear.answer_of(self.table)[self.rows]
        return np.where(self.exact, self.published, linear)

    def half_widths(self, level: float) -> HalfWidths:
        """Of intervals about the least-squares estimates."""
        kept = self.estimate.linear if isinstance(self.estimate, OneSided) else self.estimate
        found = kept.half_widths_of(self.table, level)
        return HalfWidths(np.where(self.exact, 0.0, found.values[self.rows]), found.ways[self.rows])

    def profile(self) -> Profile | None:
        """Coefficients of the noise, (blocks, m) each; None where only the variance is bounded."""
        kept = self.estimate.linear if isinstance(self.estimate, OneSided) else self.estimate
        found = profile_by_block(kept, self.table)
        if found is None:
            return None
        free = np.where(self.exact, 0.0, 1.0)
        arrays = (found.power2, found.power4, found.power6, found.largest, found.count)
        return Profile(*(each[:, self.rows] * free for each in arrays), exact=found.exact)

    def never_negative(self) -> np.ndarray:
        return non_negative_rows(self.estimate.operator_of(self.table))[self.rows]


class ChangeNumbers(NamedTuple):
    """Changes in counts and in per cent, row by row."""

    change: FigureNumbers
    percent: FigureNumbers


def changes(before: CountsOfRelease, now: CountsOfRelease, level: float) -> ChangeNumbers:
    """Changes ``now - before`` and ``100 now / before - 100`` with standard errors and intervals.

    Arguments:
        before, now: the same rows of two releases whose noises were drawn apart, (m,).
        level: each interval covers the change of the true counts with at least this probability.

    Reference: Fieller, "Some problems in interval estimation", JRSS B 16 (1954).

    Privacy:
        Post-processing of public measurements: costs nothing.
    """
    known = _TwoReleases(before, now)
    change = Figure("change", "", {}, Linear(_CHANGE, _ONE, Fraction(0)), (), ())
    ratio = Ratio(Linear(_NOW, _ALL, Fraction(0)), Linear(_BEFORE, _ONE, Fraction(0)))
    percent = Figure("percent", "", {}, Linear(None, _ONE, -_ALL), (ratio,), ())
    return ChangeNumbers(figure_numbers(change, known, level), figure_numbers(percent, known, level))


@dataclass(frozen=True, eq=False)
class _TwoReleases:
    """What least squares knows of both releases: see :class:`tabulae.estimation.figures.KnownCounts`."""

    before: CountsOfRelease
    now: CountsOfRelease

    @property
    def domain(self) -> Domain:
        return self.now.estimate.domain

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.now.rows),)

    @property
    def only_bounds(self) -> bool:
        return False  # there is no covariance to be known

    @property
    def other(self) -> _PublishedChanges | None:
        return _PublishedChanges(self) if self.now.one_sided or self.before.one_sided else None

    def estimate(self, table: Table) -> np.ndarray:
        if table is _CHANGE:
            return self.now.unbiased - self.before.unbiased
        return self._of(table).unbiased

    def exact(self, table: Table) -> np.ndarray:
        return self.now.exact & self.before.exact if table is _CHANGE else self._of(table).exact

    def covariance(self, one: Table, other: Table) -> np.ndarray:
        if one is not other:
            return np.zeros(self.shape)
        if one is _CHANGE:
            return self.now.std_error**2 + self.before.std_error**2
        return self._of(one).std_error ** 2

    def half_widths(self, table: Table, level: float) -> tuple[np.ndarray, np.ndarray]:
        found = self._change_widths(level) if table is _CHANGE else self._of(table).half_widths(level)
        return np.where(self.exact(table), 0.0, found.values), found.ways == CONSERVATIVE

    def ratio_set(
        self,
        ratio: Ratio,
        estimates: tuple[np.ndarray, np.ndarray],
        moments: tuple[np.ndarray, np.ndarray, np.ndarray],
        level: float,
    ) -> tuple[RatioSet, np.ndarray] | None:
        noisy = self._noisy
        laws = tuple(law for each in noisy for law in each.laws)
        if not laws or _mixed(laws) or uniform_factor(laws, level) > WIDEST:
            return None
        above, below = self.now.profile(), self.before.profile()
        profile = None
        if len(noisy) == 2 and above is not None and below is not None:
            steps = np.array([*self.now.steps, *self.before.steps])
            profile = PairProfile(
                _stacked(above, _none_of(below)),
                _stacked(_none_of(above), below),
                _stacked(above, below),
                (*self.now.laws, *self.before.laws),
                steps,
            )
        found, ways = ratio_set(estimates, moments, profile, laws, level)
        return found, ways == CONSERVATIVE

    @property
    def _noisy(self) -> list[CountsOfRelease]:
        return [each for each in (self.now, self.before) if not each.exact.all()]

    def _of(self, table: Table) -> CountsOfRelease:
        return self.now if table is _NOW else self.before

    def _change_widths(self, level: float) -> HalfWidths:
        """Half-widths of ``now - before`` about least squares."""
        noisy = self._noisy
        if not noisy:
            return HalfWidths(np.zeros(self.shape), np.full(self.shape, EXACT, dtype="<U12"))
        laws = [law for each in noisy for law in each.laws]
        if _mixed(
            laws
        ):  # each holds except with half of what may be missed; where one is exact there is one only
            halves = (
                self.now.half_widths((1 + level) / 2).values + self.before.half_widths((1 + level) / 2).values
            )
            return HalfWidths(halves, np.full(self.shape, CONSERVATIVE, dtype="<U12"))
        profiles = [each.profile() for each in noisy]
        told = [profile for profile in profiles if profile is not None]
        steps = [step for each in noisy for step in each.steps]
        if len(told) < len(noisy):
            variance = self.covariance(_CHANGE, _CHANGE)
            return half_widths(VarianceBound(variance), laws, steps, level)
        return half_widths(_stacked(*told), laws, steps, level)


@dataclass(frozen=True, eq=False)
class _PublishedChanges:
    """Estimates other than least squares: intervals of least squares, lengthened to hold them."""

    both: _TwoReleases

    def estimate(self, table: Table) -> np.ndarray:
        if table is _CHANGE:
            return self.both.now.published - self.both.before.published
        return self.both._of(table).published

    def half_widths(self, table: Table, level: float) -> np.ndarray:
        return self.both.half_widths(table, level)[0] + np.abs(
            self.estimate(table) - self.both.estimate(table)
        )

    def never_negative(self, linear: Linear) -> np.ndarray:
        assert linear.table is not None
        return self.both._of(linear.table).never_negative()


def _mixed(laws: Sequence[NoiseLaw]) -> bool:
    return len({law.kind for law in laws}) > 1


_ARRAYS = ("power2", "power4", "power6", "largest", "count")


def _stacked(*profiles: Profile) -> Profile:
    """The blocks of several profiles below each other."""
    arrays = (np.concatenate([getattr(each, name) for each in profiles]) for name in _ARRAYS)
    return Profile(*arrays, exact=all(each.exact for each in profiles))


def _none_of(profile: Profile) -> Profile:
    return Profile(*(np.zeros_like(getattr(profile, name)) for name in _ARRAYS), exact=True)
