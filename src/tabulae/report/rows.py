"""The rows of a table as the page prints them, each with its interval as a small picture."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from tabulae.report.numbers import NOTHING, decimals_for, fixed
from tabulae.report.view import TableView

_LABEL_LENGTH = 80
_WIDTH, _HEIGHT = 150.0, 12.0
_STATUS = {"A": "", "E": "exact", "Q": "not estimable"}


@dataclass(frozen=True)
class Row:
    """One printed row."""

    labels: tuple[str, ...]
    estimate: str
    margin: str
    interval: str
    picture: Markup
    status: str


def printed_rows(table: TableView, limit: int) -> tuple[Row, ...]:
    """Print the first rows of a table, all with the same decimals and on one scale of pictures.

    Args:
        table: the table.
        limit: how many rows at most.
    """
    count = min(table.rows, limit)
    decimals = decimals_for(table.std_error[:count].tolist())
    scale = _scale(table, count)
    return tuple(_row(table, i, decimals, scale) for i in range(count))


def _row(table: TableView, i: int, decimals: int, scale: tuple[float, float]) -> Row:
    status = str(table.obs_status[i])
    estimate, low, high = (float(a[i]) for a in (table.estimate, table.ci_low, table.ci_high))
    if not np.isfinite(estimate) or status == "Q":
        interval = margin = NOTHING
        picture = Markup("")
    elif status == "E":
        interval, margin = NOTHING, "0"
        picture = _picture(estimate, None, scale)
    else:
        interval = f"{fixed(low, decimals)} to {fixed(high, decimals)}"
        margin = fixed((high - low) / 2, decimals)
        picture = _picture(estimate, (low, high), scale)
    return Row(
        labels=tuple(_shortened(str(column[i])) for column in table.columns.values()),
        estimate=fixed(None if status == "Q" else estimate, decimals),
        margin=margin,
        interval=interval,
        picture=picture,
        status=_STATUS.get(status, status),
    )


def _root(value: float) -> float:
    """The signed square root: a count of 20 stays visible beside one of 20,000, and so does its interval."""
    return math.copysign(math.sqrt(abs(value)), value)


def _scale(table: TableView, count: int) -> tuple[float, float]:
    """The range that the pictures cover, as signed roots: zero and every finite end of an interval shown."""
    ends = np.concatenate([[0.0], table.estimate[:count], table.ci_low[:count], table.ci_high[:count]])
    ends = ends[np.isfinite(ends)]
    low, high = _root(float(ends.min())), _root(float(ends.max()))
    return (low, high) if high > low else (low, low + 1.0)


def _picture(estimate: float, interval: tuple[float, float] | None, scale: tuple[float, float]) -> Markup:
    """A bar from zero to the estimate and a whisker over the interval; the numbers beside it say the same."""

    def at(value: float) -> str:
        return f"{2 + (_root(value) - scale[0]) / (scale[1] - scale[0]) * (_WIDTH - 4):.1f}"

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


def _shortened(label: str) -> str:
    return label if len(label) <= _LABEL_LENGTH else label[: _LABEL_LENGTH - 1] + "…"
