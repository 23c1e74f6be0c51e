"""The summands of derived figures of areas: counts, ratios and quantiles, each with its error and interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist

import numpy as np

from ..domain.figure import (
    Figure,
    Linear,
    Quantile,
    Ratio,
)
from ..estimation.fieller import RatioSet, ratio_variance
from ..estimation.woodruff import woodruff
from ..geography.layout import Layout
from ..privacy import NoiseLaw
from ..topdown.form_intervals import (
    area_ratios,
    extreme_pairs,
    form_half_widths,
)
from ..topdown.forms import AreaForms

_CANCELLED = 1e-9  # of the terms of a variance: below it, they cancel, and exact counts determine the form


@dataclass(frozen=True, eq=False)
class AreaPart:
    """One summand of a figure, shape (areas, m) each: NaN where it is not estimable."""

    estimate: np.ndarray
    std_error: np.ndarray
    low: np.ndarray
    high: np.ndarray
    exact: np.ndarray


@dataclass(frozen=True, eq=False)
class FigureForms:
    """A figure as linear forms: ``joint`` those of its counts and ratios, and one for each quantile."""

    figure: Figure
    joint: AreaForms | None
    quantiles: tuple[AreaForms, ...]

    @classmethod
    def of(cls, layout: Layout, figure: Figure) -> FigureForms:
        """The forms of a figure over the cells of areas.

        Raises:
            Unsupported: too many rows or cells to be written out.
        """
        tables = [each.table for each in linears_of(figure) if each.table]
        joint = AreaForms.of(layout, tables) if tables else None
        return cls(figure, joint, tuple(AreaForms.of(layout, [q.table]) for q in figure.quantiles))

    @property
    def every(self) -> tuple[AreaForms, ...]:
        """All of them."""
        return (*(() if self.joint is None else (self.joint,)), *self.quantiles)


def linears_of(figure: Figure) -> list[Linear]:
    """The linear functions that a figure is made from, in the order of its parts."""
    ends = [linear for ratio in figure.ratios for linear in (ratio.numerator, ratio.denominator)]
    return [*([figure.linear] if figure.linear.table else []), *ends]


@dataclass(frozen=True, eq=False)
class FormNumbers:
    """What is known of K linear forms in some areas, without their constants.

    Args:
        estimate: shape (K, areas, m).
        moments: their covariances, (K, K, areas, m), 0 where one is exact.
        exact: which are known without noise, (K, areas, m).
        laws: of the noise.
    """

    estimate: np.ndarray
    moments: np.ndarray
    exact: np.ndarray
    laws: Sequence[NoiseLaw]

    @classmethod
    def of(
        cls,
        forms: AreaForms,
        counts: np.ndarray,
        covariance: np.ndarray,
        possible: np.ndarray,
        laws: Sequence[NoiseLaw],
        *,
        has_exact: bool,
    ) -> FormNumbers:
        """From the counts of the forms' marginal and V of all cells.

        Args:
            forms: linear forms.
            counts: estimates, (areas, classes, inner).
            covariance: V, (areas, kinds, D, D).
            possible: which dense cells can occur in each area, (areas, D).
            laws: of the noise.
            has_exact: whether some counts are exact, so that others may follow from them.
        """
        moments, exact = forms.moments(covariance), forms.empty(possible)
        each = np.arange(len(exact))
        if has_exact:
            exact = exact | (moments[each, each] <= _CANCELLED * forms.terms(covariance))
        moments = np.where(exact[:, None] | exact[None], 0.0, moments)
        moments[each, each] = np.maximum(moments[each, each], 0.0)
        estimate = forms.estimates(counts)
        return cls(np.where(exact, np.rint(estimate), estimate), moments, exact, laws)


@dataclass(frozen=True, eq=False)
class AreaSource:
    """The parts of a figure for some areas, at a level for each.

    Args:
        forms: of the figure.
        joint: the numbers of its counts and ratios.
        quantiles: those of each quantile.
        shape: areas and rows.
        laws: of the noise.
    """

    forms: FigureForms
    joint: FormNumbers | None
    quantiles: tuple[FormNumbers, ...]
    shape: tuple[int, int]
    laws: Sequence[NoiseLaw]

    @cached_property
    def _place(self) -> list[int | None]:
        """For each linear function its form; None where it is a number."""
        found, at = [], 0
        for each in linears_of(self.forms.figure):
            found.append(at if each.table else None)
            at += each.table is not None
        return found

    def parts(self, level: float) -> list[AreaPart]:
        """All parts, the counts first, then ratios and quantiles."""
        figure = self.forms.figure
        start = int(figure.linear.table is not None)
        found = [self._linear(figure.linear, level)] if start else []
        found += [self._ratio(ratio, start + 2 * i, level) for i, ratio in enumerate(figure.ratios)]
        for forms, numbers, quantile in zip(
            self.forms.quantiles, self.quantiles, figure.quantiles, strict=True
        ):
            found.append(self._quantile(forms, numbers, quantile, level))
        return found

    def _value(self, at: int, linear: Linear) -> tuple[np.ndarray, np.ndarray]:
        """Estimates in units of the form, with the constant, and which are exact."""
        place = self._place[at]
        constant = float(linear.constant / linear.scale)
        if place is None or self.joint is None:
            return np.full(self.shape, constant), np.ones(self.shape, bool)
        return self.joint.estimate[place] + constant, self.joint.exact[place]

    def _moment(self, at: int, other: int) -> np.ndarray:
        """A covariance in units of the forms."""
        one, two = self._place[at], self._place[other]
        if one is None or two is None or self.joint is None:
            return np.zeros(self.shape)
        return self.joint.moments[one, two]

    def _cells(self, at: int) -> np.ndarray:
        """The coefficients of a linear function, shape (m, cells)."""
        joint, place = self.forms.joint, self._place[at]
        assert joint is not None
        found = joint.coefficients[0] * 0 if place is None else joint.coefficients[place]
        return found.reshape(len(found), -1)

    def _linear(self, linear: Linear, level: float) -> AreaPart:
        """Sums and differences of counts."""
        assert self.forms.joint is not None
        value, exact = self._value(0, linear)
        variance, scale = self._moment(0, 0), float(linear.scale)
        wide = abs(scale) * form_half_widths(variance, self.forms.joint.spread[0], self.laws, level)
        middle = scale * value
        return AreaPart(middle, abs(scale) * np.sqrt(variance), middle - wide, middle + wide, exact)

    def _ratio(self, ratio: Ratio, at: int, level: float) -> AreaPart:
        """A ratio of counts, with Fieller's interval."""
        a, sure = self._value(at, ratio.numerator)
        b, fixed = self._value(at + 1, ratio.denominator)
        moments = self._moment(at, at), self._moment(at + 1, at + 1), self._moment(at, at + 1)
        pairs = extreme_pairs(self._cells(at), self._cells(at + 1))
        scale = float(ratio.numerator.scale / ratio.denominator.scale)
        found = area_ratios((a, b), moments, pairs, self.laws, level)
        found = self._over_exact(found, ratio, at, a, b, fixed, level)
        point = np.divide(a, b, out=np.full(self.shape, np.nan), where=found.bounded)
        spread = np.sqrt(ratio_variance(np.where(found.bounded, point, 0.0), *moments))
        error = np.divide(spread, np.abs(b), out=np.full(self.shape, np.nan), where=found.bounded)
        low, high = (found.low, found.high) if scale > 0 else (found.high, found.low)
        return AreaPart(scale * point, abs(scale) * error, scale * low, scale * high, sure & fixed)

    def _over_exact(
        self,
        found: RatioSet,
        ratio: Ratio,
        at: int,
        a: np.ndarray,
        b: np.ndarray,
        fixed: np.ndarray,
        level: float,
    ) -> RatioSet:
        """Where the denominator is exact the ratio is linear, and has the interval of its numerator."""
        whole = fixed & (b != 0)
        if ratio.numerator.table is None or self.forms.joint is None or not whole.any():
            return found
        place = self._place[at]
        assert place is not None
        spread = self.forms.joint.spread[place]
        wide = form_half_widths(self._moment(at, at), spread, self.laws, level)
        safe = np.where(whole, b, 1.0)
        middle, half = a / safe, wide / np.abs(safe)
        return RatioSet(
            np.where(whole, middle - half, found.low),
            np.where(whole, middle + half, found.high),
            found.bounded | whole,
        )

    def _quantile(self, forms: AreaForms, numbers: FormNumbers, quantile: Quantile, level: float) -> AreaPart:
        """A quantile in each group, with Woodruff's interval; NaN where there may be nobody."""
        wide = form_half_widths(numbers.moments[0, 0], forms.spread[0], self.laws, level)
        t, half, sure = (
            _by_value(forms, quantile, each) for each in (numbers.estimate[0], wide, numbers.exact[0])
        )
        found, values = woodruff(t, half), np.array(quantile.values, dtype=float)
        some = t[:, -1] > half[:, -1]
        factor = float(quantile.coefficient)
        places = (
            (found.estimate, found.low, found.high) if factor > 0 else (found.estimate, found.high, found.low)
        )
        point, low, high = (
            np.where(some, factor * values[place], np.nan).reshape(self.shape) for place in places
        )
        error = (high - low) / (2 * NormalDist().inv_cdf((1 + level) / 2))
        return AreaPart(point, error, low, high, np.all(sure, axis=1).reshape(self.shape))

    def joint_error(self, parts: Sequence[AreaPart]) -> np.ndarray:
        """Standard errors of a sum by the delta method; for quantiles the sum of theirs, which bounds it."""
        figure = self.forms.figure
        if figure.quantiles or self.joint is None:
            return np.sum([part.std_error for part in parts], axis=0)
        slopes = [np.full(self.shape, float(figure.linear.scale))] if figure.linear.table else []
        start = len(slopes)
        for i, ratio in enumerate(figure.ratios):
            a, _ = self._value(start + 2 * i, ratio.numerator)
            b, _ = self._value(start + 2 * i + 1, ratio.denominator)
            scale = float(ratio.numerator.scale / ratio.denominator.scale)
            inverse = np.divide(scale, b, out=np.full(self.shape, np.nan), where=b != 0)
            slopes += [inverse, np.divide(-a * inverse, b, out=np.full(self.shape, np.nan), where=b != 0)]
        held = np.array(
            [slope for slope, place in zip(slopes, self._place, strict=True) if place is not None]
        )
        variance = np.einsum("iar,ijar,jar->ar", held, self.joint.moments, held)
        return np.sqrt(np.maximum(variance, 0.0))


def _by_value(forms: AreaForms, quantile: Quantile, numbers: np.ndarray) -> np.ndarray:
    """Numbers of a quantile's table, (areas, rows), as (areas x groups, values)."""
    counts = quantile.table.row_counts(forms.margin.layout.domain)
    axis = list(counts).index(quantile.attribute)
    shaped = numbers.reshape(len(numbers), *counts.values())
    return np.moveaxis(shaped, axis + 1, -1).reshape(-1, len(quantile.values))
