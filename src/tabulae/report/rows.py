"""The rows of a table as the page prints them: numbers, the interval as a small picture, and how far to trust it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from ..spec import ReliabilitySection
from .numbers import (
    NOTHING,
    decimals_for,
    fixed,
)
from .reliability import named_classes
from .view import TableView

_LABEL_LENGTH = 80
_WIDTH, _HEIGHT = 150.0, 12.0


@dataclass(frozen=True)
class Row:
    """One printed row; ``rank`` orders rows by how far they may be trusted, those that are exact first."""

    labels: tuple[str, ...]
    estimate: str
    margin: str
    interval: str
    picture: Markup
    sign: str
    trust: str
    rank: int


def printed_rows(table: TableView, limit: int, section: ReliabilitySection) -> tuple[Row, ...]:
    """Print the first rows of a table, all with the same decimals and on one scale of pictures.

    Args:
        table: the table.
        limit: how many rows at most.
        section: the classes of reliability.
    """
    count = min(len(table.estimate), limit)
    decimals = decimals_for(table.std_error[:count].tolist())
    scale = _scale(table, count)
    trust = _trust(table, count, section)
    return tuple(_row(table, i, decimals, scale, trust[i]) for i in range(count))


def _trust(table: TableView, count: int, section: ReliabilitySection) -> list[tuple[str, str, int]]:
    """Sign, words and rank of each row."""
    named = named_classes(section)
    classes = section.classes(table.about[:count], table.std_error[:count]).tolist()
    other = {"E": ("", "exact", 0), "Q": ("", "not estimable", len(named) + 1)}
    return [
        other.get(status) or (named[i].sign, named[i].label, i + 1)
        for status, i in zip(table.obs_status, classes, strict=False)
    ]


def _row(
    table: TableView, i: int, decimals: int, scale: tuple[float, float], trust: tuple[str, str, int]
) -> Row:
    status = str(table.obs_status[i])
    estimate, low, high = (float(a[i]) for a in (table.estimate, table.ci_low, table.ci_high))
    places = decimals if table.centre is None else 0
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
        labels=tuple(shortened(str(column[i])) for column in table.columns.values()),
        estimate=fixed(None if status == "Q" else estimate, places),
        margin=margin,
        interval=interval,
        picture=picture,
        sign=trust[0],
        trust=trust[1],
        rank=trust[2],
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


def shortened(label: str, length: int = _LABEL_LENGTH) -> str:
    """A label that is cut where it is long, with a sign that it is.

    >>> shortened("a long label", 7)
    'a long…'
    """
    return label if len(label) <= length else label[: length - 1] + "…"
