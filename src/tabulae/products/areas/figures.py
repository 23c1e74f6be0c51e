"""The summands of derived figures of areas: counts, ratios and quantiles, each with its error and interval."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ...domain import Domain, Figure, Ratio, Table
from ...domain.figure_sql import figure_from_sql
from ...errors import InvalidArgument
from ...estimation.figures import figure_numbers, linears_of
from ...estimation.statistics import RatioSet, fieller
from ...privacy import NoiseLaw
from ...release import folder as f
from ...release.folder import DERIVED, PublishedRows, TableWriter, plain
from ...release.write import ESTIMATED, EXACT, NOT_ESTIMABLE, resource_of, word_column
from ...spec import Spec
from ...spec.derived import Derived
from ...spec.problems import nearest, shown
from .layout import CellLayout
from .passes.forms import AreaForms
from .spec.section import Geography, check_figure, geography_of
from .spine_plan import area_half_widths, interval_factor
from .tables import AREA_COLUMNS, UNBIASED, Areas, SomeAreas, SpineRelease

_CANCELLED = 1e-9  # of the terms of a variance: below it, they cancel, and exact counts determine the form


@dataclass(frozen=True, eq=False)
class FigureForms:
    """The tables of a figure as linear forms: those of its counts and ratios together, and each quantile's."""

    tables: tuple[tuple[Table, ...], ...]
    every: tuple[AreaForms, ...]

    @classmethod
    def of(cls, layout: CellLayout, figure: Figure) -> FigureForms:
        """The forms of a figure over the cells of areas."""
        joint = tuple(dict.fromkeys(each.table for each in linears_of(figure) if each.table))
        tables = (*((joint,) if joint else ()), *((each.table,) for each in figure.quantiles))
        return cls(tables, tuple(AreaForms.of(layout, some) for some in tables))


@dataclass(frozen=True, eq=False)
class FormNumbers:
    """What is known of K linear forms in some areas, without their constants.

    Args:
        estimate: shape (K, areas, m).
        moments: their covariances, (K, K, areas, m), 0 where one is exact.
        exact: which are known without noise, (K, areas, m).
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
            counts: estimates, (areas, classes, inner).
            covariance: V, (areas, kinds, D, D).
            possible: which dense cells can occur in each area, (areas, D).
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
class KnownAreas:
    """What least squares knows of the tables of a figure for some areas: arrays are (areas, m).

    Args:
        numbers: of each of them.
        shape: areas and rows.
    """

    forms: FigureForms
    numbers: tuple[FormNumbers, ...]
    shape: tuple[int, int]
    other = None
    only_bounds = False

    @property
    def domain(self) -> Domain:
        return self.forms.every[0].margin.layout.domain

    @cached_property
    def _place(self) -> dict[Table, tuple[int, int]]:
        return {table: (i, k) for i, tables in enumerate(self.forms.tables) for k, table in enumerate(tables)}

    def estimate(self, table: Table) -> np.ndarray:
        i, k = self._place[table]
        return self.numbers[i].estimate[k]

    def exact(self, table: Table) -> np.ndarray:
        i, k = self._place[table]
        return self.numbers[i].exact[k]

    def covariance(self, one: Table, other: Table) -> np.ndarray:
        (i, k), (_, m) = self._place[one], self._place[other]
        return self.numbers[i].moments[k, m]

    def half_widths(self, table: Table, level: float) -> tuple[np.ndarray, np.ndarray]:
        wide = area_half_widths(self.covariance(table, table), self._laws, level)
        return wide, np.zeros(wide.shape, bool)

    @property
    def _laws(self) -> Sequence[NoiseLaw]:
        return self.numbers[0].laws

    def ratio_set(
        self,
        ratio: Ratio,
        estimates: tuple[np.ndarray, np.ndarray],
        moments: tuple[np.ndarray, np.ndarray, np.ndarray],
        level: float,
    ) -> tuple[RatioSet, np.ndarray]:
        factor = np.full(estimates[0].shape, interval_factor(level, self._laws))
        return fieller(*estimates, *moments, factor), np.zeros(self.shape, bool)


_NUMBERS = ("estimate", "std_error", "ci_low", "ci_high")
_HELD = 1 << 22  # about how many numbers are held at a time
_LOOSE = 1e-6  # relative: what two machines' sums may move the ends of an interval that is nearly unbounded


def figure_schema(derived: Derived) -> pa.Schema:
    """The columns of a figure of areas."""
    words = pa.dictionary(pa.int32(), pa.string())
    fields = [(name, words) for name in (*AREA_COLUMNS, *derived.figure.headings)]
    return pa.schema([*fields, *((name, pa.float64()) for name in _NUMBERS), ("obs_status", words)])


def figure_rows(
    made: SpineRelease, figures: Sequence[Derived], areas: Sequence[Areas]
) -> Iterator[tuple[str, pa.Table]]:
    """Pieces of figures with their names; each figure's in order: by type of area, area and group."""
    layout = made.plan.layout
    forms = {each.name: FigureForms.of(layout, each.figure) for each in figures}

    def step(asked: Sequence[Derived]) -> int:
        cost = max(form.cost for each in asked for form in forms[each.name].every)
        return max(1, _HELD // max(layout.algebra.kinds * layout.size**2, cost))

    for asked, part, possible, covariance in made.by_least_squares.pieces(figures, areas, step):
        for each in asked:
            yield each.name, _piece(made, each, forms[each.name], part, possible, covariance)


def _piece(
    made: SpineRelease,
    derived: Derived,
    forms: FigureForms,
    part: SomeAreas,
    possible: np.ndarray,
    covariance: np.ndarray,
) -> pa.Table:
    margins, laws = [each.margin for each in forms.every], made.plan.all_laws
    counts = made.by_least_squares.unbiased.margins(margins, part.owner, part.codes.size, part.leaves)
    found = tuple(
        FormNumbers.of(each, of_margin, covariance, possible, laws, has_exact=bool(made.exact))
        for each, of_margin in zip(forms.every, counts, strict=True)
    )
    known = KnownAreas(forms, found, (part.codes.size, derived.figure.rows))
    numbers = figure_numbers(derived.figure, known, made.level)
    columns = part.columns(derived.figure.headings)
    for name in _NUMBERS:
        columns[name] = pa.array(getattr(numbers, name).ravel(), pa.float64(), from_pandas=True)
    columns["obs_status"] = word_column(numbers.status.ravel(), [ESTIMATED, EXACT, NOT_ESTIMABLE])
    return pa.table(columns, schema=figure_schema(derived))


def figures_of(made: SpineRelease) -> Iterator[tuple[str, pa.Table]]:
    """The rows of all derived figures of a release of areas, in pieces."""
    geography, figures = made.geography, made.spec.derived
    asked = {kind for each in figures for kind in each.areas}
    areas = [Areas(name, *geography.areas(name)) for name in geography.area_types if name in asked]
    yield from figure_rows(made, figures, areas)


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
        spec: with ``[geography]``.
        sql: a statement that ``[[derived]]`` accepts.
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
        pieces = figure_rows(made, [asked], wanted)
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
            f"{error}\nareas are not attributes: leave {shown(named[0])} out of the statement, and ask with --areas "
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
    kept = np.flatnonzero(np.isin(areas.codes, list(codes)))
    place = np.full(areas.codes.size + 1, -1)
    place[kept] = np.arange(kept.size)
    return Areas(areas.kind, areas.codes[kept], place[areas.leaf])
