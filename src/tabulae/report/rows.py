"""Tables as pages show them: their rows, how far each may be trusted, and the pictures of intervals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from markupsafe import Markup
from numpy.typing import NDArray

from ..domain import Domain, Table
from ..errors import InvalidArgument
from ..linalg import AllRange, LinearOperator
from ..products.areas.tables import AREA_COLUMNS, GLS_ESTIMATE
from ..release import Release
from ..release.folder import Rows
from ..release.write import ESTIMATED, EXACT
from ..spec import ReliabilitySection
from .numbers import NOTHING, decimals_for, fixed, shortened

ROWS_SHOWN = 500
"""A table of the report shows at most so many rows; the release folder holds them all."""

MOST_SHOWN = 1500
"""A table of areas shows at most so many rows, where that makes types of area whole."""


@dataclass(frozen=True)
class ExpectedErrorView:
    """What the plan said of a table before any record was read, in counts.

    ``rmse`` is the root mean squared error over the table's queries and ``margin`` half the width of its
    widest interval; ``identity`` and ``workload`` are the RMSE had every cell, or every query itself, been
    measured at the same budget; ``bound`` is an RMSE that no strategy can beat on this table.
    """

    rmse: float
    margin: float
    identity: float | None = None
    workload: float | None = None
    bound: float | None = None


@dataclass(frozen=True)
class RowKinds:
    """Types of area: how many rows the whole table has of each, and which each row is of that may be printed."""

    rows: Mapping[str, int]
    printed: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class TableView:
    """One published table.

    ``columns`` maps each attribute to the labels of the rows that may be printed, in the order in which room is given
    to them; ``ROWS_SHOWN`` labels are enough. The arrays have one entry a row. ``obs_status`` is ``"A"`` (estimated),
    ``"E"`` (exact) or ``"Q"`` (not estimable). ``conservative`` intervals cover more often than their ``level``.

    ``count`` is how many rows the table has where the arrays hold only some of them. ``centre`` is the unbiased
    estimate that errors and intervals are of, where what is published are whole numbers made from it.

    ``order`` names the rows that are printed, those first that stay where room is short; None: from the first on.
    ``kinds`` are those of its rows, where some of each are printed; they are then printed in the order of the file.
    """

    name: str
    description: str
    columns: Mapping[str, Sequence[str]]
    estimate: NDArray[np.float64]
    std_error: NDArray[np.float64]
    ci_low: NDArray[np.float64]
    ci_high: NDArray[np.float64]
    obs_status: Sequence[str]
    file: str
    expected: ExpectedErrorView = ExpectedErrorView(0.0, 0.0)
    level: float = 0.95
    conservative: bool = False
    count: int | None = None
    centre: NDArray[np.float64] | None = None
    order: NDArray[np.int64] | None = None
    kinds: RowKinds | None = None

    def __post_init__(self) -> None:
        rows = len(self.estimate)
        parts = {
            "std_error": self.std_error,
            "ci_low": self.ci_low,
            "ci_high": self.ci_high,
            "obs_status": self.obs_status,
        }
        for part, values in parts.items():
            if len(values) != rows:
                raise InvalidArgument(
                    f"table {self.name!r}: {part} has {len(values)} entries, estimate has {rows}; "
                    "give one a row"
                )
        for attribute, labels in self.columns.items():
            if len(labels) < min(rows, ROWS_SHOWN):
                raise InvalidArgument(
                    f"table {self.name!r}: column {attribute!r} has {len(labels)} labels for {rows} rows; "
                    f"give one a row, or at least the first {ROWS_SHOWN}"
                )

    @classmethod
    def of(
        cls, release: Release, name: str, rows: pa.Table, columns: Mapping[str, Sequence[str]], **about: Any
    ) -> TableView:
        """The rows of a stored table, its words in columns; ``about`` are further fields."""
        numbers = {each: floats(rows, each) for each in ("estimate", "std_error", "ci_low", "ci_high")}
        file, status = f"tables/{name}.parquet", rows["obs_status"].to_pylist()
        return cls(
            name, columns=columns, **numbers, obs_status=status, file=file, level=release.level, **about
        )

    @property
    def rows(self) -> int:
        """How many counts the table publishes."""
        return len(self.estimate) if self.count is None else self.count

    @property
    def bare(self) -> bool:
        """Whether estimates have no errors, so that no row has an interval."""
        status = np.asarray(self.obs_status, dtype=object)
        return bool(np.isnan(self.std_error[status == ESTIMATED]).any())

    @property
    def about(self) -> NDArray[np.float64]:
        """The estimates that standard errors and intervals are of."""
        return self.estimate if self.centre is None else self.centre

    @property
    def margin(self) -> NDArray[np.float64]:
        return reach(self.ci_low, self.about, self.ci_high)


def reach(
    low: NDArray[np.float64], about: NDArray[np.float64], high: NDArray[np.float64]
) -> NDArray[np.float64]:
    """How far intervals reach from their centres: one that is cut on one side reaches as far on the other."""
    return np.maximum(high - about, about - low)


STORED_NUMBERS = ("estimate", GLS_ESTIMATE, "std_error", "ci_low", "ci_high", "obs_status")
HEADINGS: Mapping[str, str] = dict(zip(AREA_COLUMNS, ("type of area", "area"), strict=True))
_ROWS = 1 << 19  # of a file, read at a time
_TONES, _LAST = (1, 2, 5, 6, 3), 4  # colours of the classes, and of the last
_POINTS = 20_000  # counts of a file that the picture of noise chooses from


@dataclass(frozen=True)
class ReliabilityClass:
    """One class as the page names it: its sign, its label, its coefficients of variation in words, and its colour."""

    sign: str
    label: str
    variation: str
    tone: int


def named_classes(section: ReliabilitySection) -> tuple[ReliabilityClass, ...]:
    """The classes, the most reliable first; the more filled circles, the more reliable.

    >>> [each.sign for each in named_classes(ReliabilitySection())]
    ['●●', '●○', '○○']
    """
    most = len(section.thresholds)
    tones = (*_TONES[:most], _LAST)
    return tuple(
        ReliabilityClass("●" * (most - i) + "○" * i, label, words, tones[i])
        for i, (label, words) in enumerate(zip(section.names, section.ranges, strict=True))
    )


@dataclass(frozen=True)
class Reliability:
    """How many of a table's counts are in each class, how many are exact, and how many cannot be estimated."""

    counts: tuple[int, ...]
    exact: int = 0
    missing: int = 0

    @property
    def total(self) -> int:
        return sum(self.counts)

    @property
    def rows(self) -> int:
        return self.total + self.exact + self.missing

    @property
    def shares(self) -> tuple[float, ...]:
        """The classes as shares, which sum to 1 (or are all 0)."""
        return tuple(count / max(1, self.total) for count in self.counts)


@dataclass(frozen=True)
class ReliabilityRow:
    """One row of the page's table: a published table, or its counts in areas of one type, ``kind``."""

    table: str
    reliability: Reliability
    kind: str | None = None
    anchor: str | None = None


def reliability_of(table: TableView, section: ReliabilitySection) -> Reliability:
    """Class the counts of a table that is in memory as a whole."""
    status = np.asarray(table.obs_status, dtype=object)
    return _counted(status, section.classes(table.about, table.std_error), len(section.names))


def _counted(status: NDArray[np.object_], classes: NDArray[np.int64], count: int) -> Reliability:
    chosen = status == ESTIMATED
    found = np.bincount(classes[chosen], minlength=count)
    exact = int((status == EXACT).sum())
    return Reliability(tuple(int(n) for n in found), exact, int(status.size - chosen.sum()) - exact)


@dataclass(frozen=True, eq=False)
class Head:
    """The first rows of one type of area, and where in the file they stand."""

    rows: pa.Table
    places: NDArray[np.int64]

    def and_then(self, piece: pa.Table, at: NDArray[np.int64], first: int) -> Head:
        """With these rows of a piece that begins at row ``first``, as far as any more are kept."""
        at = at[: MOST_SHOWN - len(self.places)]
        if not at.size:
            return self
        more = pa.concat_tables([self.rows, piece.take(pa.array(at))])
        return Head(more, np.concatenate([self.places, first + at]))


@dataclass(frozen=True, eq=False)
class StoredReliability:
    """What a stored table says, by type of area: classes of its counts, first rows, and some counts with margins."""

    kinds: dict[str, Reliability]
    heads: dict[str, Head]
    estimate: NDArray[np.float64]
    margin: NDArray[np.float64]

    def rows(self, table: str, anchor: str | None = None) -> Iterator[ReliabilityRow]:
        for kind, found in self.kinds.items():
            yield ReliabilityRow(table, found, kind, anchor)


def stored_reliability(path: Path, by: str, count: int, section: ReliabilitySection) -> StoredReliability:
    """Class the counts of a stored table of any length, some rows at a time.

    Args:
        count: how many rows the table has; an evenly spaced choice of 20,000 at most gives the points.
    """
    rows, width = Rows.of_parquet(path), len(section.names)
    found: dict[str, NDArray[np.int64]] = {}
    heads: dict[str, Head] = {}
    nothing = Head(rows.schema.empty_table(), np.empty(0, np.int64))
    points: list[NDArray[np.float64]] = [np.empty((2, 0))]
    step, first = max(1, -(-count // _POINTS)), 0
    while (piece := rows.take(_ROWS)).num_rows:
        status = piece["obs_status"].to_numpy(zero_copy_only=False)
        about = floats(piece, GLS_ESTIMATE if GLS_ESTIMATE in piece.column_names else "estimate")
        classes = section.classes(about, floats(piece, "std_error"))
        kinds = pa.chunked_array(piece[by]).combine_chunks().dictionary_encode()
        names, index = kinds.dictionary.to_pylist(), kinds.indices.to_numpy(zero_copy_only=False)
        for i, name in enumerate(names):
            here = index == i
            one = _counted(status[here], classes[here], width)
            numbers = np.array([*one.counts, one.exact, one.missing])
            found[name] = found.get(name, 0) + numbers
            heads[name] = heads.get(name, nothing).and_then(piece, np.flatnonzero(here), first)
        chosen = np.arange(-first % step, piece.num_rows, step)
        points.append(_points(piece, status, chosen))
        first += piece.num_rows
    kept = {name: Reliability(tuple(n[:-2].tolist()), int(n[-2]), int(n[-1])) for name, n in found.items()}
    estimate, margin = np.concatenate(points, axis=1)
    return StoredReliability(kept, heads, estimate, margin)


def _points(piece: pa.Table, status: NDArray[np.object_], chosen: NDArray[np.int64]) -> NDArray[np.float64]:
    """Estimates and margins, shape (2, n), of those of the chosen rows that are estimated with noise."""
    estimate = floats(piece, "estimate")[chosen]
    about = floats(piece, GLS_ESTIMATE if GLS_ESTIMATE in piece.column_names else "estimate")[chosen]
    margin = reach(floats(piece, "ci_low")[chosen], about, floats(piece, "ci_high")[chosen])
    noisy = (status[chosen] == ESTIMATED) & np.isfinite(estimate) & (margin > 0)
    return np.stack([estimate[noisy], margin[noisy]])


def floats(rows: pa.Table, name: str) -> NDArray[np.float64]:
    """A column of numbers."""
    return rows[name].to_numpy().astype(float)


_WIDTH, _HEIGHT = 150.0, 12.0


@dataclass(frozen=True)
class PrintedRow:
    """One printed row; ``rank`` orders rows by how far they may be trusted, those that are exact first.

    ``bare`` rows have no error, interval or class.
    """

    labels: tuple[str, ...]
    estimate: str
    margin: str
    interval: str
    picture: Markup
    sign: str
    trust: str
    rank: int
    bare: bool


def printed_rows(table: TableView, limit: int, section: ReliabilitySection) -> tuple[PrintedRow, ...]:
    """Print the leading rows of a table, all with the same decimals and on one scale of pictures."""
    at = np.arange(len(table.estimate)) if table.order is None else table.order
    at = at[:limit]
    decimals = decimals_for(table.std_error[at].tolist())
    scale = _scale(table, at)
    trust = _trust(table, at, section)
    return tuple(_row_rows(table, k, int(i), decimals, scale, trust[k]) for k, i in enumerate(at))


def _trust(
    table: TableView, at: NDArray[np.int64], section: ReliabilitySection
) -> list[tuple[str, str, int]]:
    """Sign, words and rank of each row."""
    named = named_classes(section)
    classes = section.classes(table.about[at], table.std_error[at]).tolist()
    other = {"E": ("", "exact", 0), "Q": ("", "not estimable", len(named) + 1)}
    return [
        other.get(str(table.obs_status[row])) or (named[i].sign, named[i].label, i + 1)
        for row, i in zip(at, classes, strict=True)
    ]


def _row_rows(
    table: TableView, k: int, i: int, decimals: int, scale: tuple[float, float], trust: tuple[str, str, int]
) -> PrintedRow:
    """The row whose labels stand at place k, and whose numbers at i."""
    status = str(table.obs_status[i])
    estimate, low, high = (float(a[i]) for a in (table.estimate, table.ci_low, table.ci_high))
    places = decimals if table.centre is None and not table.bare else 0
    if not np.isfinite(estimate) or status == "Q":
        interval = margin = NOTHING
        picture = Markup("")
    elif status == "E" or table.bare:
        interval, margin = NOTHING, "0"
        picture = interval_picture(estimate, None, scale)
    else:
        ends = 0 if low.is_integer() and high.is_integer() else decimals
        interval = f"{fixed(low, ends)} to {fixed(high, ends)}"
        margin = fixed(max(high - float(table.about[i]), float(table.about[i]) - low), decimals)
        picture = interval_picture(estimate, (low, high), scale)
    return PrintedRow(
        labels=tuple(shortened(str(column[k])) for column in table.columns.values()),
        estimate=fixed(None if status == "Q" else estimate, places),
        margin=margin,
        interval=interval,
        picture=picture,
        sign=trust[0],
        trust=trust[1],
        rank=trust[2],
        bare=table.bare,
    )


def _root(value: float) -> float:
    """The signed square root: a count of 20 stays visible beside one of 20,000, and so does its interval."""
    return math.copysign(math.sqrt(abs(value)), value)


def _scale(table: TableView, at: NDArray[np.int64]) -> tuple[float, float]:
    """The range that the pictures cover, as signed roots: zero and every finite end of an interval shown."""
    ends = np.concatenate([[0.0], table.estimate[at], table.ci_low[at], table.ci_high[at]])
    ends = ends[np.isfinite(ends)]
    low, high = _root(float(ends.min())), _root(float(ends.max()))
    return (low, high) if high > low else (low, low + 1.0)


def interval_picture(
    estimate: float, interval: tuple[float, float] | None, scale: tuple[float, float]
) -> Markup:
    """A bar from zero to the estimate and a whisker over the interval; the numbers beside it say the same."""

    def at(value: float) -> str:
        place = 2 + (_root(value) - scale[0]) / (scale[1] - scale[0]) * (_WIDTH - 4)
        return f"{place:.1f}".removesuffix(".0")

    zero, end = at(0.0), at(estimate)
    left, right = sorted((zero, end), key=float)
    bar = f'<path class="bar" d="M{left} 3H{right}V9H{left}Z"/>'
    axis = f'<path class="zero" d="M{zero} 0V12"/>'
    whisker = ""
    if interval is not None:
        low, high = at(interval[0]), at(interval[1])
        whisker = f'<path class="whisker" d="M{low} 3V9M{low} 6H{high}M{high} 3V9"/>'
    box = f"0 0 {_WIDTH:.0f} {_HEIGHT:.0f}"
    # Coordinates only, all made here: nothing of the release's text enters this markup.
    return Markup(f'<svg class="ci" viewBox="{box}" aria-hidden="true">{bar}{axis}{whisker}</svg>')  # noqa: S704


def dot_picture(estimate: float, low: float, high: float, scale: tuple[float, float]) -> Markup | None:
    """A dot at the estimate and a whisker over the interval; the numbers beside it say the same."""
    if not math.isfinite(estimate):
        return None

    def at(value: float) -> str:
        share = (value - scale[0]) / (scale[1] - scale[0]) if scale[1] > scale[0] else 0.5
        return f"{4 + share * (_WIDTH - 8):.1f}".removesuffix(".0")

    whisker = f'<path class="whisker" d="M{at(low)} 3V9M{at(low)} 6H{at(high)}M{at(high)} 3V9"/>'
    dot = f'<circle fill="currentColor" cx="{at(estimate)}" cy="6" r="3"/>'
    box = f"0 0 {_WIDTH:.0f} {_HEIGHT:.0f}"
    # Coordinates only, all made here: nothing of the release's text enters this markup.
    return Markup(f'<svg class="ci" viewBox="{box}" aria-hidden="true">{whisker}{dot}</svg>')  # noqa: S704


_STEPS = 40  # the height of a picture of quantiles


def step_pictures(
    stairs: Sequence[tuple[float, float]], share: float, ends: tuple[float, float], scale: tuple[float, float]
) -> Markup | None:
    """The share of records at or below a value, which rises by a step at each quantile; one's interval as a whisker.

    Args:
        stairs: (share, quantile), rising.
        share: of the one whose interval ``ends`` are.
    """
    if not all(math.isfinite(value) for value in (*ends, *(value for _, value in stairs))):
        return None

    def at(value: float) -> str:
        part = (value - scale[0]) / (scale[1] - scale[0]) if scale[1] > scale[0] else 0.5
        return f"{4 + part * (_WIDTH - 8):.1f}".removesuffix(".0")

    def up(part: float) -> str:
        return f"{_STEPS - 3 - part * (_STEPS - 6):.1f}".removesuffix(".0")

    line = f"M0 {up(0)}" + "".join(f"H{at(value)}V{up(part)}" for part, value in stairs) + f"H{_WIDTH:.0f}"
    y, (low, high) = up(share), (at(end) for end in ends)
    tick = "v-3v6v-3"
    whisker = f'<path class="whisker" d="M{low} {y}{tick}H{high}{tick}"/>'
    box = f"0 0 {_WIDTH:.0f} {_STEPS}"
    # Coordinates only, all made here: nothing of the release's text enters this markup.
    return Markup(  # noqa: S704
        f'<svg viewBox="{box}" width="88" height="23" aria-hidden="true"><path fill="none" stroke="currentColor" '
        f'd="{line}"/><g class="ci">{whisker}</g></svg>'
    )


_SOME = 16  # rows of every kind that come before all rows of any


def fair_order(kinds: Sequence[int], most: int, whole: int) -> list[tuple[int, int]]:
    """The rows to show of kinds of so many rows each, as (kind, row within it).

    Any first part of them is fair: some rows of every kind in turn, then all rows of the smallest kind, of the next,
    and so on. Rows of one kind come in their order.

    Arguments:
        most: rows of a kind that cannot be shown whole are added up to so many in all.
        whole: so many in all are never exceeded.

    >>> fair_order([1, 40, 2], 6, 6)
    [(0, 0), (1, 0), (2, 0), (1, 1), (2, 1), (1, 2)]
    >>> [len(fair_order([1, 40, 2], 30, whole)) for whole in (42, 43, 100)]
    [30, 43, 43]
    """
    some = sorted((row, kind) for kind, count in enumerate(kinds) for row in range(min(count, _SOME)))
    found = [(kind, row) for row, kind in some]
    for kind in sorted(range(len(kinds)), key=lambda kind: kinds[kind]):
        rest = [(kind, row) for row in range(_SOME, min(kinds[kind], whole + 1))]
        found += rest if len(found) + len(rest) <= whole else rest[: max(0, most - len(found))]
    return found[:whole]


def range_order(table: Table, domain: Domain, most: int) -> NDArray[np.int64] | None:
    """The rows to show of a table of all ranges, at most ``most``; None for one without.

    First the whole of each range attribute, its halves, quarters and so on down to single values, with all rows of the
    other attributes; then the widest of the other ranges.

    >>> from tabulae.linalg import AllRange
    >>> table, domain = Table("ages", {"age": AllRange(4)}), Domain({"age": 4})
    >>> [table.columns(domain)["age"][i] for i in range_order(table, domain, 8)]
    ['0-3', '0-1', '2-3', '0', '1', '2', '3', '0-2']
    """
    terms = table.over(domain).terms
    if len(terms) != 1 or not any(isinstance(factor, AllRange) for factor in terms[0].factors.values()):
        return None
    counts = table.row_counts(domain)
    depth = np.zeros(tuple(counts.values()), dtype=np.int64)
    for axis, name in enumerate(counts):
        own = _depths(terms[0].factors[name])
        depth = np.maximum(depth, own.reshape([-1 if i == axis else 1 for i in range(depth.ndim)]))
    flat = depth.ravel()
    if flat.size > most:
        kept = np.flatnonzero(flat <= np.partition(flat, most - 1)[most - 1])
        return kept[np.argsort(flat[kept], kind="stable")][:most]
    return np.argsort(flat, kind="stable")


def _depths(factor: LinearOperator) -> NDArray[np.int64]:
    """How early each row of a factor is shown: 0 first; of other factors all rows alike."""
    if not isinstance(factor, AllRange):
        return np.zeros(factor.shape[0], dtype=np.int64)
    n = factor.shape[1]
    low, high = np.triu_indices(n)
    deepest = max(1, (n - 1).bit_length())
    depths = deepest + 1 + n - (high + 1 - low)
    for depth in range(deepest, -1, -1):
        cuts = np.arange(2**depth + 1) * n >> depth
        starts, ends = cuts[:-1], cuts[1:]
        some = ends > starts
        starts, ends = starts[some], ends[some] - 1
        depths[starts * n - starts * (starts - 1) // 2 + ends - starts] = depth
    return depths


def share_words(shown: Mapping[str, int], rows: Mapping[str, int]) -> str:
    """Of which kinds all rows are shown, and how many of the others.

    >>> share_words({"state": 1, "tract": 16}, {"state": 1, "tract": 250})
    'all rows of state; 16 of 250 of tract'
    """
    whole = [kind for kind, count in rows.items() if shown.get(kind, 0) == count]
    parts = [f"all rows of {', '.join(whole)}"] if whole else []
    cut = [f"{shown.get(k, 0):,} of {count:,} of {k}" for k, count in rows.items() if k not in whole]
    return "; ".join([*parts, *cut])
