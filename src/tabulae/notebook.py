"""How objects look in a notebook: a heading, facts and short tables as HTML that follows the page's own colours.

Everything is escaped, styled in place and cut to a bounded size, so that a domain of 2^60 cells or a workload of
100,000 tables costs no more to show than a small one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from html import escape
from itertools import islice

_ROWS, _CHARACTERS = 12, 72
_LONG = 10**15
_OUTER = "color:inherit;background:none;max-width:60em;overflow-x:auto"
_TABLE = (
    "border-collapse:collapse;color:inherit;background:none;margin:.4em 0;font-variant-numeric:tabular-nums"
)
_CELL = "padding:.15em .8em .15em 0;border:0;vertical-align:top;background:none;color:inherit"
_HEAD = f"{_CELL};font-weight:600;border-bottom:1px solid currentColor"


@dataclass(frozen=True)
class CardRows:
    """A table in a card: its headings, its rows as far as they are needed, and how many there are in all."""

    headings: tuple[str, ...]
    rows: Iterable[Sequence[object]]
    total: int


def card(title: str, facts: Iterable[tuple[str, object]], *tables: CardRows) -> str:
    """The HTML of an object: its kind, what is to say of it in words or numbers, and tables, each cut after 12 rows.

    Arguments:
        title: the kind of object.
        facts: (what, value) pairs; those whose value is None are left out.
        tables: shown below the facts.

    >>> rows = CardRows(("attribute",), (["a<b"] for _ in range(10**6)), 10**6)
    >>> card("Domain", [("cells", 2**60)], rows).count("a&lt;b")
    12
    """
    told = "".join(
        f'<tr style="background:none"><th scope="row" style="{_CELL};text-align:left;font-weight:400;opacity:.75">'
        f'{_text(name)}</th><td style="{_CELL};text-align:left">{_text(value)}</td></tr>'
        for name, value in facts
        if value is not None
    )
    about = f'<table style="{_TABLE}"><tbody>{told}</tbody></table>' if told else ""
    parts = "".join(_table(table) for table in tables)
    return f'<div style="{_OUTER}"><strong>{_text(title)}</strong>{about}{parts}</div>'


def _table(table: CardRows) -> str:
    rows = list(islice(table.rows, _ROWS))
    right = [
        any(isinstance(row[i], int | float) and not isinstance(row[i], bool) for row in rows)
        for i in range(len(table.headings))
    ]
    heads = "".join(
        f'<th scope="col" style="{_HEAD};text-align:{_side(at_right)}">{_text(heading)}</th>'
        for heading, at_right in zip(table.headings, right, strict=True)
    )
    body = "".join(
        '<tr style="background:none">'
        + "".join(
            f'<td style="{_CELL};text-align:{_side(at_right)}">{_text(value)}</td>'
            for value, at_right in zip(row, right, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    left_out = table.total - len(rows)
    more = f'<div style="opacity:.75">… {written(left_out)} more</div>' if left_out > 0 else ""
    return f'<table style="{_TABLE}"><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>{more}'


def _side(at_right: bool) -> str:  # noqa: FBT001
    return "right" if at_right else "left"


def _text(value: object) -> str:
    return escape(shortened(written(value)))


def written(value: object) -> str:
    """A value as words: whole numbers grouped or as a power of ten, others to two decimals or three digits.

    >>> written(14720), written(115**40), written(0.123456), written(1e-7), written(True), written(None)
    ('14,720', '≈ 2.7 × 10^82', '0.12', '1e-07', 'yes', '–')
    """
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        if abs(value) < _LONG:
            return f"{value:,}"
        power = math.floor(math.log10(abs(value)))
        return f"≈ {float(Fraction(value, 10**power)):.1f} × 10^{power}"
    if isinstance(value, float):
        if 100 <= abs(value) < _LONG:
            return f"{value:,.1f}"
        return f"{value:.2f}" if value == 0 or 0.01 <= abs(value) < 100 else f"{value:.3g}"
    return str(value)


def shortened(text: str, most: int = _CHARACTERS) -> str:
    """A text that fits a cell.

    >>> shortened("counties of the whole country", 12)
    'counties of…'
    """
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"


def listed(names: Sequence[object], few: int = 4) -> str:
    """The first of some names, and the last.

    >>> listed(("F", "M")), listed(range(115))
    ('F, M', '0, 1, 2, … 114')
    """
    if len(names) <= few:
        return ", ".join(shortened(str(name), 24) for name in names)
    shown = ", ".join(shortened(str(name), 24) for name in names[: few - 1])
    return f"{shown}, … {shortened(str(names[-1]), 24)}"
