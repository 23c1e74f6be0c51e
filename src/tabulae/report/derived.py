"""Derived statistics as pages show them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
from markupsafe import Markup

from ..domain import Figure
from ..products.areas.tables import AREA_COLUMNS
from ..release import Release
from ..release.folder import DERIVED, Rows
from ..spec import Derived
from .numbers import NOTHING, decimals_for, fixed, shortened
from .rows import HEADINGS, dot_picture, step_pictures

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
