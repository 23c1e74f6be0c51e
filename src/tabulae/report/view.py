"""What the report of a release shows: data, no markup."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from markupsafe import Markup
from numpy.typing import NDArray

from ..domain import Figure
from ..products.areas.tables import AREA_COLUMNS, GLS_ESTIMATE
from ..release import Release
from ..release.folder import DERIVED, Rows
from ..spec import Derived, ReliabilitySection
from .numbers import NOTHING, decimals_for, fixed, shortened
from .plots import two_intervals
from .promise import LedgerLine, PromiseView, StandingView, ledger_lines, standing_view
from .rows import (
    HEADINGS,
    MOST_SHOWN,
    ROWS_SHOWN,
    STORED_NUMBERS,
    RowKinds,
    StoredReliability,
    TableView,
    dot_picture,
    fair_order,
    floats,
    step_pictures,
    stored_reliability,
)


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
    headings = [heading for heading in rows.column_names if heading not in (*STORED_NUMBERS, *left_out)]
    return TableView.of(
        release,
        name,
        rows,
        {
            HEADINGS.get(str(heading), str(heading)): rows[heading].take(pa.array(order)).to_pylist()
            for heading in headings
        },
        description=what,
        count=sum(kinds.values()),
        order=order,
        kinds=RowKinds(kinds, tuple(names[kind] for kind, _ in wanted)),
        centre=floats(rows, GLS_ESTIMATE) if GLS_ESTIMATE in rows.column_names else None,
    )


_OTHER = {"group": "ci, of both stages"}
_SHOWN = 14  # counts in the picture of two intervals


@dataclass(frozen=True)
class PosteriorView:
    """What draws of a release tell beside its intervals.

    Attributes:
        draws: how many implicates there are.
        of: what intervals are right on average over: an "area", a "group" or a "cell".
        worth: for each type of area or table how many independent draws they are worth for totals and for cells, and
            whether that is enough for credible intervals.
        picture: intervals beside each other of some counts; "" without one.
        shown: which counts.
    """

    draws: int
    of: str
    worth: tuple[tuple[str, float, float, bool], ...]
    picture: str = ""
    shown: str = ""


def posterior_view(
    told: Mapping[str, Any], of: str, rows: pa.Table | None = None, words: Sequence[str] = (), shown: str = ""
) -> PosteriorView:
    """What ``posterior.json`` says, and a picture of some of the rows of a table, from the smallest to the largest."""
    worth = tuple(
        (name, each["totals"], each["cells"], told["credible"][name])
        for name, each in told["effective_draws"].items()
    )
    if rows is None or not rows.num_rows:
        return PosteriorView(told["implicates"], of, worth)
    order = np.argsort(rows["estimate"].to_numpy(), kind="stable")
    some = rows.take(np.unique(order[np.linspace(0, order.size - 1, _SHOWN).astype(np.int64)]))
    names = [
        " ".join(map(str, each)) for each in zip(*(some[name].to_pylist() for name in words), strict=True)
    ]
    ends = {
        called: np.stack(
            [some[f"{column}_{end}"].to_numpy().astype(float) for end in ("low", "high")], axis=1
        )
        for called, column in ((_OTHER.get(of, "ci, of gls"), "ci"), ("credible", "credible"))
    }
    counts = some["estimate"].to_numpy().astype(float)
    picture = two_intervals(names, counts, ends, f"Two intervals of {len(names)} counts of {shown}")
    return PosteriorView(told["implicates"], of, worth, picture, shown)


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
        headings = (*HEADINGS.values(), *headings)
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
    """The rows of a quantile with the steps of all quantiles of the same attribute in the same groups, if several."""
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
    if len(shares) == 1 or not np.isfinite(every).any():
        return list(rows)
    scale, own = (
        (float(np.nanmin(every)), float(np.nanmax(every))),
        shares.index(_share(derived) or shares[0]),
    )
    found = []
    for at, row in enumerate(rows):
        stairs = [(float(s), float(value)) for s, value in zip(shares, every[:, 0, at], strict=True)]
        ends = float(every[own, 1, at]), float(every[own, 2, at])
        found.append(replace(row, picture=step_pictures(stairs, float(shares[own]), ends, scale)))
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
        found = [
            replace(row, picture=dot_picture(*place, ends)) for row, place in zip(found, at, strict=True)
        ]
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
