"""Derived figures as the report prints them: the statement, and each number with its interval."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from ..products.areas.tables import AREA_COLUMNS
from ..release import Release
from ..release.derived import FOLDER
from ..release.rows import Rows
from ..spec import Derived
from .numbers import (
    NOTHING,
    decimals_for,
    fixed,
)
from .rows import shortened

ROWS_SHOWN = 60
"""So many rows of a figure are printed; its files hold them all."""

FIGURES_SHOWN = 40
"""So many figures are printed."""

_SQL_LENGTH = 1000
_AREA_HEADINGS = ("type of area", "area")


@dataclass(frozen=True)
class DerivedRow:
    """One printed row, every number as text."""

    labels: tuple[str, ...]
    estimate: str
    std_error: str
    interval: str


@dataclass(frozen=True)
class DerivedView:
    """One figure: its first rows of ``count``, and how many of its intervals are wider than need be."""

    name: str
    title: str
    sql: str
    headings: tuple[str, ...]
    rows: tuple[DerivedRow, ...]
    count: int
    level: float
    quantiles: bool
    conservative: int

    @property
    def file(self) -> str:
        """Where the numbers stand."""
        return f"derived/{self.name}.parquet"


def derived_views(release: Release) -> tuple[DerivedView, ...]:
    """The derived figures of a release, in the order of its spec."""
    return tuple(_view(release, derived) for derived in release.spec.derived[:FIGURES_SHOWN])


def _view(release: Release, derived: Derived) -> DerivedView:
    told, headings = int(release.about["derived"][derived.name]), tuple(derived.figure.headings)
    if derived.areas:
        shown = Rows.of_parquet(release.path / FOLDER / f"{derived.name}.parquet").take(ROWS_SHOWN)
        columns, count, conservative = (*AREA_COLUMNS, *headings), told, 0
        headings = (*_AREA_HEADINGS, *headings)
    else:
        table = release.derived[derived.name]
        shown, columns = table.slice(0, ROWS_SHOWN), headings
        count, conservative = table.num_rows, told
    return DerivedView(
        derived.name,
        derived.title,
        shortened(" ".join(derived.figure.sql.split()), _SQL_LENGTH),
        headings,
        tuple(_rows(shown, columns)),
        count,
        release.level,
        bool(derived.figure.quantiles),
        conservative,
    )


def _rows(shown: pa.Table, columns: tuple[str, ...]) -> list[DerivedRow]:
    rows = shown.to_pylist()
    places = decimals_for(row["std_error"] for row in rows if row["std_error"])
    return [_row(row, tuple(shortened(str(row[column])) for column in columns), places) for row in rows]


def _row(row: dict[str, object], labels: tuple[str, ...], places: int) -> DerivedRow:
    if row["obs_status"] == "Q":
        return DerivedRow(labels, NOTHING, NOTHING, "not estimable")
    estimate, error, low, high = (
        fixed(None if row[name] is None else float(str(row[name])), places)
        for name in ("estimate", "std_error", "ci_low", "ci_high")
    )
    return DerivedRow(labels, estimate, error, "exact" if row["obs_status"] == "E" else f"{low} to {high}")
