"""The summands of derived figures of areas: counts, ratios and quantiles, each with its error and interval."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pyarrow as pa

from ...domain import Figure, Linear, Quantile, Ratio
from ...domain.figure_sql import figure_from_sql
from ...errors import InvalidArgument
from ...estimation.statistics import RatioSet, delta_error, ratio_variance, woodruff
from ...privacy import NoiseLaw
from ...release import folder as f
from ...release.folder import DERIVED, PublishedRows, TableWriter, plain
from ...release.write import ESTIMATED, EXACT, NOT_ESTIMABLE, label_columns, resource_of
from ...spec import Spec
from ...spec.derived import Derived
from ...spec.problems import nearest, shown
from .layout import Layout
from .passes.forms import AreaForms, area_ratios, extreme_pairs, form_half_widths
from .spec.section import Geography, check_figure, geography_of
from .tables import AREA_COLUMNS, UNBIASED, AreaPublisher, Areas, SomeAreas, SpineRelease, words_of

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
        found = found.scaled(scale)
        return AreaPart(scale * point, abs(scale) * error, found.low, found.high, sure & fixed)

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
        return found.over_exact(whole, middle - half, middle + half)

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
        return delta_error(held, self.joint.moments)


def _by_value(forms: AreaForms, quantile: Quantile, numbers: np.ndarray) -> np.ndarray:
    """Numbers of a quantile's table, (areas, rows), as (areas x groups, values)."""
    counts = quantile.table.row_counts(forms.margin.layout.domain)
    axis = list(counts).index(quantile.attribute)
    shaped = numbers.reshape(len(numbers), *counts.values())
    return np.moveaxis(shaped, axis + 1, -1).reshape(-1, len(quantile.values))


_NUMBERS = ("estimate", "std_error", "ci_low", "ci_high")
_HELD = 1 << 22  # about how many numbers are held at a time
_LOOSE = 1e-6  # relative: what two machines' sums may move the ends of an interval that is nearly unbounded


def figure_schema(derived: Derived) -> pa.Schema:
    """The columns of a figure of areas."""
    words = pa.dictionary(pa.int32(), pa.string())
    fields = [(name, words) for name in (*AREA_COLUMNS, *derived.figure.headings)]
    return pa.schema([*fields, *((name, pa.float64()) for name in _NUMBERS), ("obs_status", words)])


@dataclass(frozen=True, eq=False)
class AreaFigures:
    """Makes the rows of all figures of a release, from its least-squares estimate.

    Args:
        publisher: of its tables.
        laws: of the noise.
    """

    publisher: AreaPublisher
    laws: Sequence[NoiseLaw]

    def rows(self, figures: Sequence[Derived], areas: Sequence[Areas]) -> Iterator[tuple[str, pa.Table]]:
        """Pieces of figures with their names; each figure's in order: by type of area, area and group."""
        forms = {each.name: FigureForms.of(self.publisher.layout, each.figure) for each in figures}
        for kind in areas:
            asked = [each for each in figures if kind.kind in each.areas]
            if not asked:
                continue
            every = self.publisher.variances.covariances(kind.leaf, kind.codes.size)
            for part in kind.parts(self._step([forms[each.name] for each in asked])):
                covariance = np.stack([*islice(every, part.codes.size)])
                for each in asked:
                    yield each.name, self._piece(each, forms[each.name], part, covariance)

    def _step(self, asked: Sequence[FigureForms]) -> int:
        """How many areas are looked at together."""
        layout = self.publisher.layout
        cost = max(form.cost for forms in asked for form in forms.every)
        return max(1, _HELD // max(layout.algebra.kinds * layout.size**2, cost))

    def _piece(
        self, derived: Derived, forms: FigureForms, part: SomeAreas, covariance: np.ndarray
    ) -> pa.Table:
        possible, figure = part.possible(self.publisher.support), derived.figure
        margins = [each.margin for each in forms.every]
        counts = self.publisher.unbiased.margins(margins, part.owner, part.codes.size, part.leaves)
        found = [
            FormNumbers.of(
                each,
                of_margin,
                covariance,
                possible,
                self.laws,
                has_exact=self.publisher.has_exact,
            )
            for each, of_margin in zip(forms.every, counts, strict=True)
        ]
        split = len(found) - len(forms.quantiles)
        joint = found[0] if split else None
        source = AreaSource(forms, joint, tuple(found[split:]), (part.codes.size, figure.rows), self.laws)
        return _arrow(derived, part, *_numbers(source, self.publisher.level))


def _numbers(source: AreaSource, level: float) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The number columns of a figure, and its statuses by position among A, E and Q: shape (areas, m) each."""
    figure = source.forms.figure
    linear = figure.linear.table is not None
    count = linear + len(figure.ratios) + len(figure.quantiles)
    parts = source.parts(1 - (1 - level) / count)
    shift = float(figure.linear.constant) * (not linear)
    exact = np.all([part.exact for part in parts], axis=0)
    total = np.sum([part.estimate for part in parts], axis=0) + shift
    error = parts[0].std_error if count == 1 else source.joint_error(parts)
    low, high = (np.sum([getattr(part, end) for part in parts], axis=0) + shift for end in ("low", "high"))
    known = np.isfinite(total) & np.isfinite(low) & np.isfinite(high)
    columns = {
        "estimate": total,
        "std_error": np.where(exact, 0.0, error),
        "ci_low": np.where(exact, total, low),
        "ci_high": np.where(exact, total, high),
    }
    status = np.where(known, np.where(exact, 1, 0), 2)
    return {name: np.where(known, values, np.nan) for name, values in columns.items()}, status


def _arrow(derived: Derived, part: SomeAreas, numbers: dict[str, np.ndarray], status: np.ndarray) -> pa.Table:
    count, rows = status.shape
    kind, code = AREA_COLUMNS
    columns: dict[str, Any] = {
        kind: words_of(np.zeros(count * rows, np.int32), [part.kind]),
        code: words_of(np.repeat(np.arange(count, dtype=np.int32), rows), part.codes.tolist()),
    }
    for name, column in label_columns(derived.figure.headings).items():
        labels = np.tile(column.indices.to_numpy(), count)
        columns[name] = pa.DictionaryArray.from_arrays(labels, column.dictionary)
    for name, values in numbers.items():
        columns[name] = pa.array(values.ravel(), pa.float64(), from_pandas=True)
    columns["obs_status"] = words_of(status.ravel().astype(np.int32), [ESTIMATED, EXACT, NOT_ESTIMABLE])
    return pa.table(columns, schema=figure_schema(derived))


def figures_of(made: SpineRelease) -> Iterator[tuple[str, pa.Table]]:
    """The rows of all derived figures of a release of areas, in pieces."""
    geography, figures = made.geography, made.spec.derived
    asked = {kind for each in figures for kind in each.areas}
    areas = [Areas(name, *geography.areas(name)) for name in geography.area_types if name in asked]
    yield from AreaFigures(made.publisher, made.plan.all_laws).rows(figures, areas)


def write_area_figures(folder: Path, made: SpineRelease) -> None:
    """Write the files of derived figures.

    Privacy:
        Post-processing of published estimates (Dwork, Roth 2014, Proposition 2.1): nothing of the records enters.
    """
    if not made.spec.derived:
        return
    schemas = {each.name: figure_schema(each) for each in made.spec.derived}
    with TableWriter(folder / DERIVED, schemas) as writer:
        for name, rows in figures_of(made):
            writer.write(name, rows)
    f.sync_folder(folder / DERIVED)


def area_figure_faults(folder: Path, made: SpineRelease) -> Iterator[str]:
    """What is wrong with the stored figures, which are made anew: one sentence a fault."""
    files = {
        each.name: PublishedRows(
            folder / DERIVED, each.name, plain(figure_schema(each)), within=DERIVED, loose=_LOOSE
        )
        for each in made.spec.derived
    }
    for name, rows in figures_of(made) if files else ():
        files[name].compare(rows)
    for file in files.values():
        file.end()
        yield from file.faults


def figure_resource(derived: Derived) -> dict[str, Any]:
    """The entry of a figure in the descriptor."""
    headings = [*AREA_COLUMNS, *derived.figure.headings]
    resource = resource_of(DERIVED, derived.name, headings, derived.figure.sql)
    return resource | {"title": derived.title}


def figure_counts(spec: Spec) -> dict[str, int]:
    """How many rows each derived figure of a release of areas has."""
    geography = spec.geography
    assert geography is not None
    return {
        each.name: each.figure.rows * sum(geography.areas(kind)[0].size for kind in each.areas)
        for each in spec.derived
    }


_NAME = "query"


def query_areas(
    folder: Path, spec: Spec, level: float, sql: str, areas: Sequence[str], codes: Sequence[str]
) -> pa.Table:
    """The rows of a figure, estimated by least squares from the measurements of a release.

    Arguments:
        folder: of the release.
        spec: with ``[geography]``.
        level: of the intervals.
        sql: a statement that ``[[derived]]`` accepts.
        areas: levels and entities; the first level where there are none.
        codes: of the areas that are wanted; all of those types where there are none.

    Raises:
        InvalidArgument: the statement, a type of area or a code cannot be answered; or the answer has more rows than
            the release may publish of its figures.
        Unsupported: the figure takes too many numbers to be written out over the cells of an area.
        ReleaseError: the measurements are not those of the spec.
    """
    geography = geography_of(spec)
    if codes and not areas:
        first = geography.area_types[0]
        raise InvalidArgument(
            f"codes are of areas of some type: name it, as in --areas {first} (in Python areas=[{first!r}])"
        )
    wanted = _areas(geography, areas or geography.levels[:1], codes)
    figure = _figure(spec, geography, sql)
    check_figure(figure, geography)
    rows = figure.rows * sum(each.codes.size for each in wanted)
    if rows > spec.max_rows:
        raise InvalidArgument(
            f"the answer has {rows:,} rows, and a release of this spec at most {spec.max_rows:,} (max_rows under "
            "[release]): ask for fewer areas, by their codes, or group by less"
        )
    asked = Derived(figure, _NAME, tuple(each.kind for each in wanted))
    with tempfile.TemporaryDirectory(prefix="tabulae-") as work:
        made = SpineRelease.of(folder, spec, level, Path(work), method=UNBIASED)
        pieces = AreaFigures(made.publisher, made.plan.all_laws).rows([asked], wanted)
        return pa.concat_tables([figure_schema(asked).empty_table(), *(piece for _, piece in pieces)])


def _figure(spec: Spec, geography: Geography, sql: str) -> Figure:
    """The statement, over the attributes of the spec; a statement about areas is told how to ask for them."""
    try:
        return figure_from_sql(spec.domain, _NAME, sql)
    except InvalidArgument as error:
        said = str(error).casefold()
        named = [kind for kind in geography.area_types if f"no attribute {kind!r}".casefold() in said]
        if not named:
            raise
        raise InvalidArgument(
            f"{error}\nareas are no attributes: leave {shown(named[0])} out of the statement, and ask with --areas "
            f"{named[0]} (in Python areas=[{named[0]!r}])"
        ) from None


def _areas(geography: Geography, kinds: Sequence[str], codes: Sequence[str]) -> list[Areas]:
    """The areas asked for: those of some types, or the ones among them that have the codes."""
    for kind in kinds:
        if kind not in geography.area_types:
            told = nearest(kind, geography.area_types)
            raise InvalidArgument(f"there is no level or entity {shown(kind)}; {told}")
    every = [Areas(kind, *geography.areas(kind)) for kind in dict.fromkeys(kinds)]
    if not codes:
        return every
    for code in codes:
        if not any((each.codes == code).any() for each in every):
            raise InvalidArgument(f"no area of {' or '.join(map(shown, kinds))} has the code {shown(code)}")
    return [only for each in every if (only := _only(each, codes)).codes.size]


def _only(areas: Areas, codes: Sequence[str]) -> Areas:
    """Those with some codes, in the order of all."""
    kept = np.flatnonzero(np.isin(areas.codes, list(codes)))
    place = np.full(areas.codes.size + 1, -1)
    place[kept] = np.arange(kept.size)
    return Areas(areas.kind, areas.codes[kept], place[areas.leaf])
