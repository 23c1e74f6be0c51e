"""The series that a release belongs to, and what its ledger had spent in all, as the page shows them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from markupsafe import Markup
from numpy.typing import NDArray

from ..domain import Figure, Workload
from ..errors import InvalidArgument
from ..privacy import Neighbours, PrivacyLoss
from ..products.areas.tables import AREA_COLUMNS, GLS_ESTIMATE
from ..release import Release
from ..release.folder import DERIVED, Rows
from ..release.series import Link, Standing, spent_over
from ..release.write import ESTIMATED, EXACT
from ..spec import Derived, ReliabilitySection, Spec
from ..spec.promise import POSTERIOR
from .drawn import PosteriorView
from .leading import fair_order
from .numbers import NOTHING, decimals_for, fixed, shortened


@dataclass(frozen=True)
class Amount:
    """A sum of losses: what adds up (epsilon or rho), delta, and the epsilon that it implies at another delta.

    ``delta`` belongs to ``"approx"``; ``epsilon`` and ``at`` to ``"zcdp"``, where the spec gives a delta.
    """

    value: Fraction
    delta: Fraction | None = None
    epsilon: float | None = None
    at: Fraction | None = None


@dataclass(frozen=True)
class SeriesRow:
    """One release of the chain; ``how`` it follows the one before, in words, empty for the first."""

    title: str
    release_id: str
    made: str
    how: str
    reason: str | None
    amount: Amount


@dataclass(frozen=True)
class StandingView:
    """What a ledger had spent when the release was charged, and the chain of releases that it ends.

    ``charges`` were made by then, the release among them, ``void`` of them for runs that were lost. ``rows`` are the
    chain, oldest first, and ``chain`` is what it spent; a release that follows none has neither. ``corrects`` says that
    the release stands in the place of the one before, ``corrected`` that some release of the chain does.
    ``rivals`` are sentences on other releases that follow the same one.
    """

    spent: Amount
    cap: Amount
    charges: int
    void: int
    rows: tuple[SeriesRow, ...] = ()
    chain: Amount | None = None
    corrects: bool = False
    corrected: bool = False
    rivals: tuple[str, ...] = ()

    @property
    def before(self) -> SeriesRow:
        return self.rows[-2]


_HOW = {"next": "next", "correction": "corrects the one before"}


def standing_view(release: Release) -> StandingView | None:
    """What the page shows of ledger and series; None for a release that was made before releases said so."""
    told = Standing.read(release.about)
    if told is None:
        return None
    at = release.spec.delta
    spent, cap = _amount(told.spent_loss, at), _amount(told.cap_loss, None)
    series = release.spec.series
    if series is None:
        return StandingView(spent, cap, told.charges, told.void)
    chain = release.series
    return StandingView(
        spent,
        cap,
        told.charges,
        told.void,
        rows=tuple(_row(link) for link in chain),
        chain=_amount(spent_over(chain), at),
        corrects=chain[-1].kind == "correction",
        corrected=any(link.kind == "correction" for link in chain),
        rivals=tuple(rival.sentence(series.kind) for rival in told.rivals),
    )


def _row(link: Link) -> SeriesRow:
    how = "" if link.kind is None else _HOW[link.kind]
    return SeriesRow(link.title, link.release_id, link.created, how, link.reason, _amount(link.spent, None))


def _amount(loss: PrivacyLoss, at: Fraction | None) -> Amount:
    if loss.definition != "zcdp" or at is None:
        return Amount(loss.amount, loss.parameters.get("delta"))
    return Amount(loss.amount, epsilon=loss.epsilon(at), at=at)


ROWS_SHOWN = 500
"""A table of the report shows at most so many rows; the release folder holds them all."""

MOST_SHOWN = 1500
"""A table of areas shows at most so many rows, where that makes types of area whole."""

Definition = Literal["pure", "approx", "zcdp"]


@dataclass(frozen=True)
class EpsilonStatement:
    """One statement of (epsilon, delta) that the promise implies."""

    delta: float
    epsilon: float


@dataclass(frozen=True)
class ExactView:
    """One set of counts published exactly, and why: the promise does not cover what these alone reveal.

    ``counts`` is how many there are and ``file`` where they stand, None for those of an earlier release.
    """

    what: str
    reason: str
    counts: int | None = None
    file: str | None = None


@dataclass(frozen=True)
class Consequences:
    """What follows from the counts that are exact, in this release and together with earlier ones of its ledger.

    ``stated`` counts are exact and ``independent`` of them say all that they say. ``published`` holds for each table
    with exact rows its name, how many they are, and how many rows it has. ``earlier`` were stated exactly by earlier
    releases; ``joint`` is how many independent counts are exact with those. ``unprotected`` are attributes that the
    promise leaves out where neighbours are bound by the exact counts. ``warnings`` are sentences to be read.
    """

    stated: int
    independent: int
    published: tuple[tuple[str, int, int], ...] = ()
    earlier: tuple[ExactView, ...] = ()
    joint: int | None = None
    unprotected: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class PromiseView:
    """The promise of a release.

    ``parameter`` is epsilon for ``"pure"`` and ``"approx"``, rho for ``"zcdp"``; ``delta`` belongs to
    ``"approx"``. ``statements`` are the (epsilon, delta) that follow, the one to quote first. ``unit`` is
    what one neighbour differs by; ``rows_per_unit`` how many records of each are counted at most, None where
    every record was taken for a unit by itself; ``where`` says which records are counted, None for all. ``exact``
    counts stand outside the promise; ``consequences`` says what follows from them. ``one_sided``: estimates are kept
    from falling below zero. ``left_out`` says how many records are in no table, where the release tells. ``earlier``
    are sentences on counts that equal those of an earlier release.
    """

    definition: Definition
    parameter: Fraction
    neighbours: Neighbours
    unit: str
    delta: Fraction | None = None
    statements: tuple[EpsilonStatement, ...] = ()
    exact: tuple[ExactView, ...] = ()
    consequences: Consequences | None = None
    rehearsal: bool = False
    rows_per_unit: int | None = None
    one_sided: bool = False
    where: str | None = None
    left_out: str = ""
    earlier: tuple[str, ...] = ()


def consequences_of(exact: Mapping[str, Any], workload: Workload) -> Consequences:
    """What follows from exact counts, of the document of :class:`~tabulae.products.tables.exactness.Exactness`."""
    rows = {table.name: table.rows(workload.domain) for table in workload.tables}
    return Consequences(
        exact["stated"],
        exact["independent"],
        tuple((name, count, rows[name]) for name, count in exact["published"].items()),
        tuple(ExactView(f"{e['name']} ({e['release']})", e["reason"]) for e in exact["earlier"]),
        exact["joint"],
        tuple(exact["unprotected"]),
        tuple(exact["warnings"]),
    )


MORE_DELTAS = (Fraction(1, 10**9), Fraction(1, 10**6))
"""Deltas at which a concentrated promise is stated beside the spec's own."""


def statements_of(spec: Spec) -> tuple[EpsilonStatement, ...]:
    """What a concentrated promise implies at the spec's delta, and at others; nothing without that."""
    if spec.loss.definition != "zcdp" or spec.delta is None:
        return ()
    deltas = dict.fromkeys((spec.delta, *MORE_DELTAS))
    return tuple(EpsilonStatement(float(delta), spec.loss.epsilon(delta)) for delta in deltas)


def promise_of(
    spec: Spec,
    loss: PrivacyLoss | None = None,
    *,
    statements: tuple[EpsilonStatement, ...] = (),
    exact: Iterable[ExactView] = (),
    consequences: Consequences | None = None,
    left_out: str = "",
) -> PromiseView:
    """The promise of a spec, with its own loss or another."""
    loss = spec.loss if loss is None else loss
    return PromiseView(
        loss.definition,  # type: ignore[arg-type]
        loss.amount,
        spec.neighbours,
        spec.unit,
        loss.parameters.get("delta"),
        statements,
        exact=tuple(exact),
        consequences=consequences,
        rows_per_unit=None if spec.unit_id is None else spec.rows_per_unit,
        one_sided=spec.method.estimate in ("non-negative", POSTERIOR),
        where=spec.source.where and spec.source.where.text,
        left_out=left_out,
        earlier=tuple(each.words for each in spec.earlier),
    )


@dataclass(frozen=True)
class LedgerLine:
    """One charge of this release, as its ledger recorded it; ``amount`` is in the unit of the promise."""

    when: str
    what: str
    amount: Fraction
    digest: str = ""


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
        return _reach(self.ci_low, self.about, self.ci_high)


def _reach(
    low: NDArray[np.float64], about: NDArray[np.float64], high: NDArray[np.float64]
) -> NDArray[np.float64]:
    """How far intervals reach from their centres: one that is cut on one side reaches as far on the other."""
    return np.maximum(high - about, about - low)


@dataclass(frozen=True, eq=False)
class MatrixPicture:
    """A matrix as an image: each pixel the entry of largest magnitude of a tile of the full ``shape``."""

    attribute: str
    pixels: NDArray[np.float64]
    shape: tuple[int, int]


@dataclass(frozen=True)
class BlockView:
    """One block of a strategy: what it asks, with which noise, and its factors as pictures.

    ``asked`` are the attributes that it does not sum over, ``compared`` those of them whose values it only compares
    with each other. ``share`` is what it would cost by itself, as a share of the budget; None where there is one block
    only. ``deviation`` is the size of its noise in counts, for a value that counts most.
    """

    name: str
    measures: str
    queries: int
    noise: str
    pictures: tuple[MatrixPicture, ...] = ()
    undrawn: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    compared: tuple[str, ...] = ()
    share: float | None = None
    deviation: float | None = None


@dataclass(frozen=True)
class StrategyView:
    """The strategy: the method that chose it, its blocks, and its proven relative gap to the best, if any.

    ``estimate`` says in words how the tables follow from the blocks' noisy answers.
    """

    method: str
    blocks: tuple[BlockView, ...]
    certificate: float | None = None
    estimate: str = "by least squares, so that all tables agree with each other"


@dataclass(frozen=True, eq=False, kw_only=True)
class PublishedView:
    """What the report of a release of any kind shows."""

    title: str
    promise: PromiseView
    ledger: tuple[LedgerLine, ...]
    release_id: str
    made: str
    version: str
    interval: float = 0.95
    reliability: ReliabilitySection = field(default_factory=ReliabilitySection)
    standing: StandingView | None = None
    derived: tuple[DerivedView, ...] = ()


def published_fields(release: Release) -> dict[str, Any]:
    """The fields of :class:`PublishedView` but the promise."""
    return {
        "title": release.spec.title or "Release",
        "ledger": ledger_lines(release.ledger),
        "release_id": str(release.about["release_id"]),
        "made": str(release.descriptor["created"]),
        "version": str(release.about["version"]),
        "interval": release.level,
        "reliability": release.spec.reliability,
        "standing": standing_view(release),
        "derived": derived_views(release),
    }


@dataclass(frozen=True, eq=False, kw_only=True)
class ReleaseView(PublishedView):
    """Everything that the report of tables shows; ``raised``: estimates are kept from falling below zero."""

    tables: tuple[TableView, ...]
    strategy: StrategyView
    raised: bool = False
    posterior: PosteriorView | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class StoredView(PublishedView):
    """What the report of a release of any length shows of its tables: first rows, and what the files say of all."""

    samples: tuple[TableView, ...]
    stored: tuple[StoredReliability, ...]


def stored_fields(
    release: Release,
    rows: Mapping[str, int],
    by: str,
    words: Callable[[str], str],
    left_out: Callable[[str], Sequence[str]] = lambda name: (),
) -> dict[str, Any]:
    """The fields of :class:`StoredView` but the promise.

    Arguments:
        rows: table -> how many rows it has.
        by: the column that says the type of area.
        words: what a row of a table is.
        left_out: columns of words that are not shown.
    """
    stored = {
        name: stored_reliability(release.path / f"tables/{name}.parquet", by, count, release.spec.reliability)
        for name, count in rows.items()
    }
    return {
        **published_fields(release),
        "samples": tuple(
            _sample(release, name, words(name), found, left_out(name)) for name, found in stored.items()
        ),
        "stored": tuple(stored.values()),
    }


def _sample(
    release: Release, name: str, what: str, stored: StoredReliability, left_out: Sequence[str]
) -> TableView:
    """Some rows of every kind of area, in the order of the file."""
    kinds = {kind: found.rows for kind, found in stored.kinds.items()}
    names = list(kinds)
    wanted = fair_order(list(kinds.values()), ROWS_SHOWN, MOST_SHOWN)
    place = np.array([stored.heads[names[kind]].places[row] for kind, row in wanted], dtype=np.int64)
    in_file = np.argsort(place)
    order = np.argsort(in_file)
    starts = np.cumsum([0, *(stored.heads[kind].rows.num_rows for kind in names)])
    every = pa.concat_tables([stored.heads[kind].rows for kind in names])
    at = np.array([starts[kind] + row for kind, row in wanted], dtype=np.int64)
    rows = every.take(pa.array(at[in_file])).combine_chunks()
    headings = [heading for heading in rows.column_names if heading not in (*_NUMBERS, *left_out)]
    return TableView.of(
        release,
        name,
        rows,
        {
            _HEADINGS.get(str(heading), str(heading)): rows[heading].take(pa.array(order)).to_pylist()
            for heading in headings
        },
        description=what,
        count=sum(kinds.values()),
        order=order,
        kinds=RowKinds(kinds, tuple(names[kind] for kind, _ in wanted)),
        centre=floats(rows, GLS_ESTIMATE) if GLS_ESTIMATE in rows.column_names else None,
    )


_NUMBERS = ("estimate", GLS_ESTIMATE, "std_error", "ci_low", "ci_high", "obs_status")
_HEADINGS: Mapping[str, str] = dict(zip(AREA_COLUMNS, ("type of area", "area"), strict=True))
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
    margin = _reach(floats(piece, "ci_low")[chosen], about, floats(piece, "ci_high")[chosen])
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


def _dot(estimate: float, low: float, high: float, scale: tuple[float, float]) -> Markup | None:
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


def _steps(
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


FIGURE_ROWS_SHOWN = 60
"""So many rows of a figure are printed; its files hold them all."""

FIGURES_SHOWN = 40
"""So many figures are printed."""

_SQL_LENGTH = 1000


@dataclass(frozen=True)
class DerivedRow:
    """One printed row, every number as text."""

    labels: tuple[str, ...]
    estimate: str
    std_error: str
    interval: str
    picture: Markup | None = None


@dataclass(frozen=True)
class DerivedView:
    """One figure: its first rows of ``count``, and how many of its intervals are wider than need be.

    Rows are drawn, if ``pictured``, on one scale: of means a dot and its interval, of quantiles a step for each share.
    """

    name: str
    title: str
    sql: str
    headings: tuple[str, ...]
    rows: tuple[DerivedRow, ...]
    count: int
    level: float
    quantiles: bool
    conservative: int
    pictured: bool = False

    @property
    def file(self) -> str:
        return f"derived/{self.name}.parquet"


def derived_views(release: Release) -> tuple[DerivedView, ...]:
    """The derived figures of a release, in the order of its spec."""
    return tuple(_view(release, derived) for derived in release.spec.derived[:FIGURES_SHOWN])


def _view(release: Release, derived: Derived) -> DerivedView:
    told, headings = int(release.about["derived"][derived.name]), tuple(derived.figure.headings)
    if derived.areas:
        shown = Rows.of_parquet(release.path / DERIVED / f"{derived.name}.parquet").take(FIGURE_ROWS_SHOWN)
        columns, count, conservative = (*AREA_COLUMNS, *headings), told, 0
        headings = (*_HEADINGS.values(), *headings)
    else:
        table = release.derived[derived.name]
        shown, columns = table.slice(0, FIGURE_ROWS_SHOWN), headings
        count, conservative = table.num_rows, told
    rows = _rows(shown, columns, derived.figure)
    if _share(derived) is not None:
        rows = _stepped(release, derived, rows)
    return DerivedView(
        derived.name,
        derived.title,
        shortened(" ".join(derived.figure.sql.split()), _SQL_LENGTH),
        headings,
        tuple(rows),
        count,
        release.level,
        bool(derived.figure.quantiles),
        conservative,
        any(row.picture for row in rows),
    )


def _share(derived: Derived) -> Fraction | None:
    """The share of a figure that is one quantile of a table without areas."""
    figure = derived.figure
    plain = len(figure.quantiles) == 1 and not (figure.ratios or figure.variances or figure.linear.table)
    return (
        figure.quantiles[0].share
        if plain and not derived.areas and figure.quantiles[0].coefficient == 1
        else None
    )


def _group(derived: Derived) -> str:
    """The table whose measure a quantile is, by its name; of any other figure its own name."""
    of = derived.figure.quantiles[0].attribute
    return derived.name.removesuffix(f"_{of}").rpartition("_q")[0] or derived.name


def _stepped(release: Release, derived: Derived, rows: Sequence[DerivedRow]) -> list[DerivedRow]:
    """The rows of a quantile with the steps of all quantiles of the same attribute in the same groups."""
    of, headings = derived.figure.quantiles[0].attribute, derived.figure.headings
    alike = {
        share: release.derived[each.name]
        for each in release.spec.derived
        if (share := _share(each)) is not None
        and (each.figure.quantiles[0].attribute, each.figure.headings) == (of, headings)
        and _group(each) == _group(derived)
    }
    shares = sorted(alike)
    every = np.array([[alike[s][n].to_numpy() for n in _ENDS] for s in shares], dtype=float)
    every = every[:, :, : len(rows)]
    if not np.isfinite(every).any():
        return list(rows)
    scale, own = (
        (float(np.nanmin(every)), float(np.nanmax(every))),
        shares.index(_share(derived) or shares[0]),
    )
    found = []
    for at, row in enumerate(rows):
        stairs = [(float(s), float(value)) for s, value in zip(shares, every[:, 0, at], strict=True)]
        ends = float(every[own, 1, at]), float(every[own, 2, at])
        found.append(replace(row, picture=_steps(stairs, float(shares[own]), ends, scale)))
    return found


def _is_mean(figure: Figure) -> bool:
    """Whether it is a mean of a measured value, of which the ends are known, its variance, or what clamping takes."""
    return bool(any(ratio.within for ratio in figure.ratios) or figure.variances or figure.brackets)


_ENDS = ("estimate", "ci_low", "ci_high")


def _rows(shown: pa.Table, columns: tuple[str, ...], figure: Figure) -> list[DerivedRow]:
    rows, quantiles = shown.to_pylist(), bool(figure.quantiles)
    places = decimals_for(row["std_error"] for row in rows if row["std_error"])
    if quantiles and all(float(row[name] or 0).is_integer() for row in rows for name in _ENDS):
        places = 0
    found = [
        _row_derived(row, tuple(shortened(str(row[column])) for column in columns), places) for row in rows
    ]
    if _is_mean(figure):
        at = np.array([[row[name] for name in _ENDS] for row in rows], dtype=float)
        ends = (float(np.nanmin(at)), float(np.nanmax(at))) if np.isfinite(at).any() else (0.0, 0.0)
        found = [replace(row, picture=_dot(*place, ends)) for row, place in zip(found, at, strict=True)]
    # The files have half the interval over z, which is 0 where one value is left: no error to be read as others are.
    return [replace(row, std_error=NOTHING) if quantiles else row for row in found]


def _row_derived(row: dict[str, object], labels: tuple[str, ...], places: int) -> DerivedRow:
    if row["obs_status"] == "Q":
        return DerivedRow(labels, NOTHING, NOTHING, "not estimable")
    estimate, error, low, high = (
        fixed(None if row[name] is None else float(str(row[name])), places)
        for name in ("estimate", "std_error", "ci_low", "ci_high")
    )
    return DerivedRow(labels, estimate, error, "exact" if row["obs_status"] == "E" else f"{low} to {high}")


def ledger_lines(entries: Sequence[Mapping[str, Any]]) -> tuple[LedgerLine, ...]:
    """The charges among the entries.

    >>> entry = {"kind": "charge", "time": "2026-01-01", "title": "x", "loss": {"rho": "1/2"}, "hash": "ab"}
    >>> ledger_lines([entry])[0].amount
    Fraction(1, 2)
    """
    return tuple(_line(entry) for entry in entries if entry["kind"] == "charge")


def _line(entry: Mapping[str, Any]) -> LedgerLine:
    amount = next(value for key, value in entry["loss"].items() if key != "delta")
    return LedgerLine(str(entry["time"]), str(entry["title"]), Fraction(amount), str(entry["hash"]))
