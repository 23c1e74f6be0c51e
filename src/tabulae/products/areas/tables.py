"""Published counts of areas: from estimates for the leaves of a spine to rows with intervals, some areas at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, pairwise
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ...errors import Unsupported
from ...estimation.intervals import Interval
from ...release import folder as f
from ...release.progress import Progress, Say, quiet, within
from ...release.write import ESTIMATED, EXACT, label_columns, word_column
from ...spec import Spec
from ...spec.promise import SPARSE
from .constraints import NO_LIMIT, AreaConstraints, EarlierMargin, ExactMargin
from .descent.limits import FREE
from .estimate import MEASURED, SpineEstimate, estimate_spine, read_measured
from .layout import CellLayout, Margin, Supports, united
from .microdata import Microdata
from .passes.area_variances import margin_variance
from .sparse.store import SparseEstimate
from .spec.section import AREA, AREA_TYPE, AreaTable, Geography, geography_of
from .spine_plan import SpinePlan
from .store import StoredPieces, files_digest, read_exact, read_spine_measurements
from .tasks import Runner
from .turns import ahead

if TYPE_CHECKING:
    from .posterior import AreaPosterior

AREA_COLUMNS = (AREA_TYPE, AREA)
CREDIBLE = ("credible_low", "credible_high")
GLS_ESTIMATE = "gls_estimate"
POSTERIOR = "posterior"
"""The method whose tables carry credible intervals, too, and whose releases have implicates."""
UNBIASED = "gls"
"""The method whose estimates have variances; the others' tables carry its estimates and intervals beside their own."""

_INTERVAL = ("std_error", "ci_low", "ci_high")
_ROWS = 1 << 18  # about how many rows are made at a time
_VARIANCES = 1 << 22  # and how many numbers of covariances
_UNBIASED_FIRST = 0.2  # of the time of all estimates: that of "gls", which every release has
_START = 0.1  # of the time that is left: that of the counts from which tables are drawn
_CANCELLED = 1e-9  # of the terms of a variance: below it, they cancel


@dataclass(frozen=True, eq=False)
class Areas:
    """All areas of one type.

    Args:
        leaf: shape (leaves,): the area of each leaf of the spine; -1 where it lies in none. An area without a leaf is
            outside the universe: nobody can be there.
    """

    kind: str
    codes: np.ndarray
    leaf: np.ndarray

    def parts(self, step: int) -> Iterator[SomeAreas]:
        """All areas in their order, so many at a time."""
        leaves = np.argsort(self.leaf, kind="stable")
        firsts = range(0, self.codes.size, step)
        edges = np.searchsorted(self.leaf[leaves], [*firsts, self.codes.size])
        for first, (low, high) in zip(firsts, pairwise(edges.tolist()), strict=True):
            inside = np.sort(leaves[low:high])
            yield SomeAreas(self.kind, self.codes[first : first + step], inside, self.leaf[inside] - first)


def table_schemas(tables: Sequence[AreaTable], method: str) -> dict[str, pa.Schema]:
    """Columns of each published table."""
    return {table.name: _schema(table, method) for table in tables}


def _schema(table: AreaTable, method: str) -> pa.Schema:
    words, number = pa.dictionary(pa.int32(), pa.string()), pa.float64()
    numbers = [("estimate", number if method == UNBIASED else pa.int64())]
    if method not in (UNBIASED, SPARSE):
        numbers += [(GLS_ESTIMATE, number)]
    fields = [(name, words) for name in (*AREA_COLUMNS, *table.margin.names)]
    fields += [*numbers, *((name, number) for name in _INTERVAL)]
    if method == POSTERIOR:
        fields += [(name, pa.int64()) for name in CREDIBLE]
    return pa.schema([*fields, ("obs_status", words)])


@dataclass(frozen=True, eq=False)
class AreaPublisher:
    """Makes the rows of all tables, from estimates that know nothing of tables.

    Args:
        support: which dense cells can occur in each leaf.
        method: how ``published`` was estimated.
        published: the estimates of the tables.
        unbiased: those of ``gls``; the same object where that is the method.
        known: limits and exact counts, where there are some; others may follow from exact counts.
        posterior: draws that credible intervals are made of, where that is the method.
    """

    layout: CellLayout
    support: Supports
    method: str
    published: SpineEstimate
    unbiased: SpineEstimate
    known: KnownLimits | None
    level: float
    posterior: AreaPosterior | None = None

    def rows(self, tables: Sequence[AreaTable], areas: Sequence[Areas]) -> Iterator[tuple[str, pa.Table]]:
        """Pieces of tables with the names of the tables; each table's in order: by type of area, area and cell."""
        with ahead(self.pieces(tables, areas, self._step, _kinds)) as pieces:
            for asked, part, possible, covariance in pieces:
                middle, published = self._margins([table.margin for table in asked], part)
                where = part.leaves, part.owner, part.codes.size
                known = [] if self.known is None else list(self.known.of_areas(*where))
                credible = self._credible([table.margin for table in asked], part)
                for table, ends, *numbers in zip(asked, credible, middle, published, strict=True):
                    limits = margin_limits(known, table.margin)
                    yield table.name, self._table(table, part, possible, covariance, limits, ends, *numbers)

    def pieces(
        self,
        wanted: Sequence[Any],
        areas: Sequence[Areas],
        step: Callable[[Sequence[Any]], int],
        kinds: Callable[[Sequence[Any]], int] | None = None,
    ) -> Iterator[tuple[Sequence[Any], SomeAreas, np.ndarray, np.ndarray]]:
        """Some areas at a time, as many as ``step`` says of what is asked of their type (``areas`` of the wanted).

        Each with which dense cells can occur, shape (areas, D), and V of "gls", (areas, kinds, D, D): of as many kinds
        as ``kinds`` says of what is asked, or of all.
        """
        for each in areas:
            asked = [one for one in wanted if each.kind in one.areas]
            if not asked:
                continue
            every = self.unbiased.area_covariances(each.leaf, each.codes.size, kinds and kinds(asked))
            for part in each.parts(step(asked)):
                yield (
                    asked,
                    part,
                    part.possible(self.support.patterns, self.support),
                    np.stack([*islice(every, part.codes.size)]),
                )

    def _step(self, asked: Sequence[AreaTable]) -> int:
        cells = max(table.margin.size for table in asked)
        matrix = _kinds(asked) * self.layout.size**2
        return max(1, min(_ROWS // cells, _VARIANCES // matrix))

    def _margins(
        self, margins: Sequence[Margin], part: SomeAreas
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """The unbiased and the published counts of tables, for some areas."""
        where = part.owner, part.codes.size, part.leaves
        middle = self.unbiased.margins(margins, *where)
        return middle, middle if self.method == UNBIASED else self.published.margins(margins, *where)

    def _credible(self, margins: Sequence[Margin], part: SomeAreas) -> Iterator[_Ends | None]:
        if self.posterior is None:
            return iter([None] * len(margins))
        where = part.owner, part.codes.size, part.leaves
        return self.posterior.ends(margins, part.kind, *where, self.level)

    def _table(
        self,
        table: AreaTable,
        part: SomeAreas,
        possible: np.ndarray,
        covariance: np.ndarray,
        limits: _Ends | tuple[float, float],
        credible: _Ends | None,
        middle: np.ndarray,
        published: np.ndarray,
    ) -> pa.Table:
        """The rows of some areas: numbers of shape (areas, classes, inner), put in the table's own order."""
        margin, count = table.margin, part.codes.size
        classes = np.arange(margin.classes)[:, None] == margin.label
        empty = ~(possible @ classes.T)[:, :, None]
        variance = margin_variance(self.layout, covariance, margin)
        exact = np.broadcast_to(empty, variance.shape)
        if self.known is not None and self.known.exact:
            terms = margin_variance(self.layout, np.abs(covariance), margin)
            exact = exact | (variance <= _CANCELLED * terms)
        variance = np.where(exact, 0.0, np.maximum(variance, 0.0))
        middle = np.where(empty, 0.0, middle)
        middle = np.where(exact, np.rint(middle), middle)
        half = self.unbiased.half_widths(variance, self.level)
        interval = Interval(middle - half, middle + half, *limits, whole=True).known(exact, middle)
        numbers = [middle, np.sqrt(variance), *interval.ends()]
        estimate = middle
        if self.method != UNBIASED:
            estimate = np.where(empty, 0, published)
        place = np.argsort(margin.order.ravel())
        if credible is not None:  # the published count is always within
            credible = np.minimum(credible[0], published), np.maximum(credible[1], published)
        estimate, middle, deviation, low, high, exact, *ends = (
            array.reshape(count, -1)[:, place].ravel()
            for array in (estimate, *numbers, exact, *(credible or ()))
        )
        told: dict[str, Any] = {} if self.method == UNBIASED else {GLS_ESTIMATE: middle}
        told |= {"std_error": deviation, "ci_low": low, "ci_high": high}
        if self.method == POSTERIOR:
            told |= dict(zip(CREDIBLE, ends or [pa.nulls(low.size, pa.int64())] * 2, strict=True))
        return _rows(table, self.method, part, estimate, told, exact)


def _kinds(asked: Sequence[AreaTable]) -> int:
    """How many kinds of contrast some tables read."""
    return max(table.margin.kinds for table in asked)


def _rows(
    table: AreaTable,
    method: str,
    part: SomeAreas,
    estimate: np.ndarray,
    numbers: Mapping[str, Any],
    exact: np.ndarray,
) -> pa.Table:
    """The rows of some areas, from columns in the table's own order."""
    schema, domain = _schema(table, method), table.margin.layout.domain
    columns = part.columns({name: tuple(domain.resolve(name).labels) for name in table.margin.names})
    columns["estimate"] = pa.array(estimate, schema.field("estimate").type)
    columns |= numbers
    columns["obs_status"] = word_column(exact, [ESTIMATED, EXACT])
    return pa.table(columns, schema=schema)


@dataclass(frozen=True, eq=False)
class SparsePublisher:
    """Makes the rows of all tables from whole counts of which no error is known: intervals are empty.

    Only where nobody can be is a count known, as 0.

    Args:
        support: as of :class:`AreaPublisher`.
    """

    support: Supports
    published: SparseEstimate

    def rows(self, tables: Sequence[AreaTable], areas: Sequence[Areas]) -> Iterator[tuple[str, pa.Table]]:
        """As :meth:`AreaPublisher.rows`."""
        for each in areas:
            asked = [table for table in tables if each.kind in table.areas]
            step = max(1, _ROWS // max((table.margin.size for table in asked), default=1))
            for part in each.parts(step) if asked else ():
                margins = [table.margin for table in asked]
                counts = self.published.margins(margins, part.owner, part.codes.size, part.leaves)
                for table, count in zip(asked, counts, strict=True):
                    yield table.name, self._table(table, part, count)

    def _table(self, table: AreaTable, part: SomeAreas, counts: np.ndarray) -> pa.Table:
        margin, areas = table.margin, part.codes.size
        empty = ~part.possible(self.support.classes(margin.label, margin.classes), self.support)
        exact = np.broadcast_to(empty[:, :, None], counts.shape)
        place = np.argsort(margin.order.ravel())
        estimate, exact = (array.reshape(areas, -1)[:, place].ravel() for array in (counts, exact))
        numbers = {name: pa.array(np.zeros(estimate.size), mask=~exact) for name in _INTERVAL}
        return _rows(table, SPARSE, part, estimate, numbers, exact)


_Ends = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True, eq=False)
class SomeAreas:
    """Some areas of one type, side by side.

    Args:
        leaves: shape (m,), rising: the leaves that lie in one of them.
        owner: shape (m,): the area of each, counted from the first.
    """

    kind: str
    codes: np.ndarray
    leaves: np.ndarray
    owner: np.ndarray

    def columns(self, headings: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
        """The words of one row for each area and each combination of labels."""
        labels, count = label_columns(dict(headings)), self.codes.size
        rows = prod(map(len, headings.values()))
        found = {
            AREA_TYPE: word_column(np.zeros(count * rows), [self.kind]),
            AREA: word_column(np.repeat(np.arange(count), rows), self.codes.tolist()),
        }
        for name, column in labels.items():
            places = np.tile(column.indices.to_numpy(), count)
            found[name] = pa.DictionaryArray.from_arrays(places, column.dictionary)
        return found

    def possible(self, rows: np.ndarray, support: Supports) -> np.ndarray:
        """Shape (areas, columns): the union of the row of each area's leaves, of which each kind of leaf has one."""
        return united(rows, support.pattern[self.leaves], self.owner, self.codes.size)


def exact_of(geography: Geography) -> tuple[ExactMargin, ...]:
    """The margins whose counts are published exactly."""
    return () if geography.constraints is None else geography.constraints.exact


def earlier_of(geography: Geography) -> tuple[EarlierMargin, ...]:
    """The margins whose counts are those of an earlier release."""
    if geography.sparse is not None:
        return geography.sparse.earlier
    return () if geography.constraints is None else geography.constraints.earlier


def areas_of(geography: Geography) -> tuple[Areas, ...]:
    """All areas that some table is published for: the levels from the top down, then entities."""
    asked = {kind for table in geography.tables for kind in table.areas}
    return tuple(Areas(name, *geography.areas(name)) for name in geography.area_types if name in asked)


@dataclass(frozen=True, eq=False)
class SpineRelease:
    """The estimates of a release of areas.

    Args:
        published: by the method of the spec.
        unbiased: by ``gls``; the same where that is the method, None where counts are sparse.
        exact: the exact counts, one array a margin.
        posterior: the draws, where that is the method.
    """

    spec: Spec
    plan: SpinePlan
    published: SpineEstimate | SparseEstimate
    unbiased: SpineEstimate | None
    exact: tuple[np.ndarray, ...]
    level: float
    posterior: AreaPosterior | None = None

    @classmethod
    def of(
        cls,
        folder: Path,
        spec: Spec,
        level: float,
        work: Path | None = None,
        say: Say = quiet,
        run: Runner | None = None,
        method: str | None = None,
    ) -> SpineRelease:
        """Estimate from the measurements stored in a folder; sparse counts were made with these, and are read.

        Args:
            spec: with ``[geography]``.
            work: where stages of the estimation are kept, so that a killed process goes on from the last of them.
            run: who runs the estimates' tasks, with a ``work`` folder that they share; this process where None.
            method: of ``published``; that of the spec where None.

        Raises:
            ReleaseError: the measurements are not those of the spec, or contradict themselves.
        """
        geography = geography_of(spec)
        plan = geography.plan()
        if geography.sparse is not None:
            stopped = int(f.read_json(folder, f.MEASUREMENT)["unconverged"])
            counts = SparseEstimate.read(folder, plan, stopped, geography.constraints)
            return cls(spec, plan, counts, None, (), level)
        exact = read_exact(folder, plan, exact_of(geography))
        method = method or spec.method.estimate
        first = 1.0 if method == UNBIASED else _UNBIASED_FIRST
        estimate = _estimator(folder, plan, work, say, run)
        known = {"constraints": geography.constraints, "exact_values": exact}
        unbiased = estimate(UNBIASED, within(say, 0, first), **known)
        rest = within(say, first, 1)
        if method == POSTERIOR:
            start = estimate("bluedown", within(rest, 0, _START), **known)
            rest(Progress("posterior: drawing whole tables", _START))
            drawn = _posterior(folder, spec, start)
            published = SpineEstimate(plan, POSTERIOR, drawn.table(), start.constraints, start.unconverged)
            return cls(spec, plan, published, unbiased, exact, level, drawn)
        published = unbiased if method == UNBIASED else estimate(method, rest, **known)
        return cls(spec, plan, published, unbiased, exact, level)

    @property
    def geography(self) -> Geography:
        return geography_of(self.spec)

    @cached_property
    def publisher(self) -> AreaPublisher | SparsePublisher:
        if isinstance(self.published, SparseEstimate):
            return SparsePublisher(self.plan.support, self.published)
        return self.by_least_squares

    @cached_property
    def by_least_squares(self) -> AreaPublisher:
        """What publishes counts that have intervals.

        Raises:
            Unsupported: there are none.
        """
        if self.unbiased is None or isinstance(self.published, SparseEstimate):
            raise Unsupported(NO_INTERVALS)
        return AreaPublisher(
            self.plan.layout,
            self.plan.support,
            self.published.method,
            self.published,
            self.unbiased,
            self._known,
            self.level,
            self.posterior,
        )

    @property
    def _known(self) -> KnownLimits | None:
        constraints = self.geography.constraints
        if constraints is None:
            return None
        units = {margin.level: self.plan.spine.areas(margin.level).unit for margin in constraints.exact}
        return KnownLimits(units, constraints, self.exact)

    @property
    def microdata(self) -> Microdata:
        areas = {name: self.geography.areas(name) for name in self.geography.levels}
        return Microdata(self.plan.layout, areas, self.published)


def _posterior(folder: Path, spec: Spec, start: SpineEstimate) -> AreaPosterior:
    """Draws given the measurements stored in a folder."""
    geography = geography_of(spec)
    areas = {each.kind: each.leaf for each in areas_of(geography)}
    leaves = geography.levels[-1], geography.leaf_codes
    pieces = read_spine_measurements(folder, start.plan)
    from .posterior import AreaPosterior  # its sampler is compiled, and tables alone need no compiler

    return AreaPosterior.of(start, pieces, areas, leaves, spec.method.seed)


NO_INTERVALS = (
    'counts of estimate = "sparse" have no known error, so that no answer could have an interval: of the noisy answers '
    "only those that the counts were made of were drawn. Add up published counts instead, those of tables/ or those of "
    "every leaf and cell in counts.parquet"
)


def _estimator(
    folder: Path, plan: SpinePlan, work: Path | None, say: Say, run: Runner | None
) -> Callable[..., SpineEstimate]:
    """Estimates from the measurements stored in a folder, read once; tasks that run elsewhere read them themselves.

    The folder of such tasks is beside that of estimates by this process: a run may be resumed in either way.
    """
    pieces = read_spine_measurements(folder, plan) if run is None else StoredPieces(folder.resolve(), plan)
    place = work if run is None or work is None else work / "by_tasks"
    files = "" if place is None else files_digest(folder, plan)
    measured = read_measured(plan, pieces, None if place is None else place / MEASURED, say, run, files)

    def estimate(method: Any, say: Say, **known: Any) -> SpineEstimate:
        own = None if place is None else place / method

        def told(progress: Progress) -> None:
            say(replace(progress, step=f"{method}: {progress.step}"))

        return estimate_spine(plan, measured, method, work=own, run=run, say=told, **known)

    return estimate


_ENDLESS = 1e18  # an upper limit that is none, as floating point adds it up


@dataclass(frozen=True, eq=False)
class CountLimits:
    """Lower and upper limits of some areas, (areas, J) each, on groups of dense cells; ``label`` (D,) is the group."""

    label: np.ndarray
    lower: np.ndarray
    upper: np.ndarray

    def of_margin(self, margin: Margin) -> tuple[np.ndarray, np.ndarray]:
        """Limits of a margin's dense classes, (areas, classes): of groups within a class, and of those that it touches.

        Any part of what a group counts is at least 0, and at most all of it.
        """
        shared = np.zeros((self.lower.shape[1], margin.classes))
        np.add.at(shared, (self.label, margin.label), 1)
        whole = shared == shared.sum(axis=1, keepdims=True)
        least, most = self.lower @ (whole & (shared > 0)), self.upper @ (shared > 0)
        least = least if margin.inner == 1 else np.zeros_like(least)
        return least, np.where(most >= _ENDLESS, np.inf, most)


@dataclass(frozen=True, eq=False)
class KnownLimits:
    """Limits on leaves, from public files, and exact counts of units: valid for the true counts of every area.

    Args:
        units: for each level with exact counts the unit of each leaf, -1 where it is in none.
        exact: the exact counts, one array (units, groups) a margin of the constraints; ``FREE`` where one is not.
    """

    units: Mapping[str, np.ndarray]
    constraints: AreaConstraints
    exact: Sequence[np.ndarray]

    @cached_property
    def _limited(self) -> bool:
        return bool(self.constraints.lower.any() or (self.constraints.upper < NO_LIMIT).any())

    @cached_property
    def _leaves(self) -> tuple[np.ndarray, ...]:
        """How many leaves each unit has, a margin each."""
        every = (self.units[margin.level] for margin in self.constraints.exact)
        return tuple(np.bincount(unit[unit >= 0], minlength=1) for unit in every)

    def of_areas(self, leaves: np.ndarray, owner: np.ndarray, areas: int) -> Iterator[CountLimits]:
        """Limits of areas that do not overlap; leaf ``leaves[i]`` is in area ``owner[i]``.

        An area has no fewer people than the units that lie in it, and no more than those that it touches.
        """
        known = self.constraints
        if self._limited:
            lower, upper = known.lower[leaves].astype(float), known.upper[leaves]
            upper = np.where(upper < NO_LIMIT, upper, _ENDLESS)
            yield CountLimits(known.part, _added(lower, owner, areas), _added(upper, owner, areas))
        for margin, counts, size in zip(known.exact, self.exact, self._leaves, strict=True):
            unit = self.units[margin.level][leaves]
            beyond = np.zeros(areas, bool)
            beyond[owner[unit < 0]] = True  # who is in no unit is counted by none
            owner_of, unit = owner[unit >= 0], unit[unit >= 0]
            pairs, shared = np.unique(owner_of * np.int64(size.size) + unit, return_counts=True)
            area, unit = np.divmod(pairs, size.size)
            within, values = (shared == size[unit])[:, None], counts[unit]
            lower = _added(np.where(within & (values != FREE), values, 0.0), area, areas)
            upper = _added(np.where(values != FREE, values, _ENDLESS), area, areas)
            yield CountLimits(margin.margin.label, lower, np.where(beyond[:, None], _ENDLESS, upper))


def _added(numbers: np.ndarray, owner: np.ndarray, areas: int) -> np.ndarray:
    found = np.zeros((areas, numbers.shape[1]))
    np.add.at(found, owner, numbers)
    return found


def margin_limits(
    known: Sequence[CountLimits], margin: Margin
) -> tuple[np.ndarray, np.ndarray] | tuple[float, float]:
    """The tightest of these limits on a margin, (areas, classes, 1) each; from 0 on where there is none.

    Where limits and exact counts contradict each other, which "gls" takes, one of them is false: none is used.
    """
    if not known:
        return 0.0, np.inf
    lower, upper = zip(*(each.of_margin(margin) for each in known), strict=True)
    least, most = np.maximum.reduce(lower), np.minimum.reduce(upper)
    false = least > most
    return np.where(false, 0.0, least)[:, :, None], np.where(false, np.inf, most)[:, :, None]
