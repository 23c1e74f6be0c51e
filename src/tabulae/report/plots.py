"""Figures as SVG text, written here: the same bytes for the same numbers.

Every function returns one ``<svg>`` element fit to stand inside an HTML page: text stays text, and a label says what
the picture shows to who cannot see it. Lengths are points, of which an inch has 72; y grows downwards.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidArgument
from .numbers import shortened

INK = "#23282f"
MUTED = "#6b7280"
RULE = "#d9d6cf"
ACCENT = "#1f5673"
WARM = "#b4552d"

POINTS_DRAWN = 1500
TABLES_DRAWN = 40
WIDTH = 374.4
_TEXT = 9.0  # the size of letters
_LABEL = 27  # characters of a name
_LETTER = 5.2  # of a name, on average
_DIGIT = 6.1  # that a figure of a tick's label takes, in the widest of the fonts that a browser may choose
_TICK = 3.5


def errors_by_method(
    names: Sequence[str],
    methods: Mapping[str, Sequence[float | None]],
    bound: Sequence[float | None] | None,
    label: str,
) -> str:
    """Draw the expected error of each table under several methods, on one logarithmic axis.

    Args:
        names: the tables, from top to bottom; at most ``TABLES_DRAWN`` are drawn.
        methods: for each method, its RMSE in counts per table, None where it has none; the first is the
            chosen one.
        bound: an RMSE per table that no method can beat, None where none is known.

    >>> errors_by_method(["P1"], {"chosen": [2.0], "identity": [5.0]}, [1.9], "errors of one table")[:4]
    '<svg'
    """
    series = dict(methods) if bound is None else {**methods, "bound": bound}
    for method, errors in series.items():
        if len(errors) != len(names):
            raise InvalidArgument(
                f"method {method!r} has {len(errors)} errors for {len(names)} tables; give one a table"
            )
    names = [shortened(name, _LABEL) for name in names[:TABLES_DRAWN]]
    values = np.array([[_positive(e) for e in errors[:TABLES_DRAWN]] for errors in series.values()])
    known = values[np.isfinite(values)]
    limits = (float(known.min()) / 1.3, float(known.max()) * 1.3) if known.size else (1.0, 10.0)
    height, top = 54 + 19.4 * len(names), 21.6
    left = _right_of(names)
    x = _Axis.along(limits, left, WIDTH - left)
    bottom = height - 30.2
    places = top + (np.arange(len(names)) + 0.6) * (bottom - top) / (len(names) + 0.2)
    drawn = [_line(at, top, at, bottom, RULE, 0.5) for at in x.places]
    drawn += [_line(x.start, bottom, x.end, bottom, RULE, 0.8), *_ticks_below(x, bottom)]
    drawn += [
        _text(x.start - _TICK, y + 3.2, name, "end", INK) for name, y in zip(names, places, strict=True)
    ]
    drawn.append(_text((x.start + x.end) / 2, height - 4, "expected error (RMSE), counts", "middle", INK))
    for y, column in zip(places, values.T, strict=True):
        if np.isfinite(column).any():
            drawn.append(_line(x(np.nanmin(column)), y, x(np.nanmax(column)), y, RULE, 1.2))
    at = 4.0
    for i, (method, row) in enumerate(zip(series, values, strict=True)):
        marker = _bound if i == len(methods) else _MARKERS[i % len(_MARKERS)]
        drawn += [marker(x(e), y) for e, y in zip(row, places, strict=True) if np.isfinite(e)]
        drawn += [marker(at, 7.5), _text(at + 8, 10.7, method, "start", INK)]
        at += 24 + _LETTER * len(method)
    return _svg(WIDTH, height, label, drawn)


def noise_against_size(estimate: NDArray[np.float64], margin: NDArray[np.float64], label: str) -> str:
    """Draw the margin of each published count against its size, both on logarithmic axes.

    Counts below 1 (negative ones too) stand at the left edge. Of more than ``POINTS_DRAWN`` counts, an evenly
    spaced choice in order of size is drawn.

    >>> noise_against_size(np.array([-2.0, 10.0, 500.0]), np.array([8.0, 8.0, 8.0]), "noise")[:4]
    '<svg'
    """
    order = np.argsort(estimate, kind="stable")
    if order.size > POINTS_DRAWN:
        order = order[np.linspace(0, order.size - 1, POINTS_DRAWN).round().astype(int)]
    sizes, margins = np.maximum(estimate[order], 1.0), margin[order]
    height, top = 244.8, 11.5
    right, low, high = sizes.max() * 1.6, margins.min() / 2, margins.max() * 2.5
    y = _Axis((low, high), height - 33.1, top)
    left = 24 + _DIGIT * max(3, *(len(_tick_words(tick)) for tick in y.ticks), 0)
    x = _Axis.along((0.8, right), left, WIDTH - left)
    end = min(right, high)  # where the margin is the count, at most
    begin = min(max(low, 0.8), end)
    corners = (
        (0.8, high),
        (end, high),
        (end, max(end, low)),
        (begin, max(begin, low)),
        (0.8, max(begin, low)),
    )
    region = " ".join(f"{_number(x(a))},{_number(y(b))}" for a, b in corners)
    drawn = [f'<polygon points="{region}" fill="{WARM}" fill-opacity="0.07"/>']
    for ratio, text in ((1.0, "margin = the count"), (0.1, "10 % of it"), (0.01, "1 %")):
        first, last = max(0.8, low / ratio), min(right, high / ratio)
        if first < last:
            drawn.append(_line(x(first), y(ratio * first), x(last), y(ratio * last), RULE, 1))
        if last * ratio > low * 1.3 and last > 0.8 * 1.3:  # below the line where it leaves by the top
            down = 9.5 if last < right else -4.5
            drawn.append(_text(x(last) - 4, y(last * ratio) + down, text, "end", MUTED))
    dots = "".join(
        f'<circle cx="{_number(x(a))}" cy="{_number(y(b))}" r="1.5"/>'
        for a, b in zip(sizes, margins, strict=True)
    )
    drawn.append(f'<g fill="{ACCENT}" fill-opacity="0.45">{dots}</g>')
    drawn += [_line(x.start, y.start, x.end, y.start, RULE, 0.8), *_ticks_below(x, y.start)]
    drawn.append(_line(x.start, y.start, x.start, y.end, RULE, 0.8))
    for value, at in zip(y.ticks, y.places, strict=True):
        drawn.append(_line(x.start - _TICK, at, x.start, at, MUTED, 0.8))
        drawn.append(_text(x.start - 2 * _TICK, at + 3.2, _tick_words(value), "end", MUTED))
    below = "published count (below 1: at the left edge)"
    drawn.append(_text((x.start + x.end) / 2, height - 4, below, "middle", INK))
    drawn.append(_upright(8.5, (y.start + y.end) / 2, "margin, counts", INK))
    return _svg(WIDTH, height, label, drawn)


def _right_of(names: Sequence[str]) -> float:
    """Where a plot begins whose rows have names; figures, as of codes, are wider than letters."""
    widths = (sum(_DIGIT if letter.isdigit() else _LETTER for letter in name) for name in names)
    return max(57.6, 14.4 + max(widths, default=0.0))


def two_intervals(
    names: Sequence[str], counts: NDArray[np.float64], ends: Mapping[str, NDArray[np.float64]], label: str
) -> str:
    """Draw two intervals of each count about it, one above the other, on one linear axis of differences from the count.

    Args:
        names: of the counts, from top to bottom.
        ends: for each kind of interval shape (counts, 2); two kinds, the first in grey.

    >>> two_intervals(["A"], np.array([5.0]), {"ci": np.array([[0, 9.0]]), "credible": np.array([[4, 6.0]])}, "x")[:4]
    '<svg'
    """
    names = [shortened(name, _LABEL) for name in names]
    apart = {kind: each - counts[:, None] for kind, each in ends.items()}
    low, high = (
        min(float(each.min()) for each in apart.values()),
        max(float(each.max()) for each in apart.values()),
    )
    low, high = min(low, -1.0), max(high, 1.0)
    left = _right_of(names)
    top, height = 21.6, 54 + 15.0 * len(names)
    bottom, end = height - 30.2, WIDTH - 14.4

    def x(value: float) -> float:
        return left + (end - left) * (value - low) / (high - low)

    drawn = [_line(x(0), top, x(0), bottom, MUTED, 0.8), _line(left, bottom, end, bottom, RULE, 0.8)]
    for value in sorted({round(low), 0, round(high)}):
        drawn.append(_line(x(value), bottom, x(value), bottom + _TICK, MUTED, 0.8))
        drawn.append(_text(x(value), bottom + 14, f"{value:+,}" if value else "0", "middle", MUTED))
    step = (bottom - top) / max(len(names), 1)
    for i, name in enumerate(names):
        y = top + (i + 0.5) * step
        drawn.append(_text(left - _TICK, y + 3.2, name, "end", INK))
        for each, colour, shift, width in zip(
            apart.values(), (MUTED, WARM), (-2.6, 2.6), (1.4, 2.6), strict=True
        ):
            drawn.append(_line(x(each[i, 0]), y + shift, x(each[i, 1]), y + shift, colour, width))
    for kind, colour, at in zip(apart, (MUTED, WARM), (left, left + 120.0), strict=True):
        drawn += [_line(at, 8, at + 18, 8, colour, 2), _text(at + 22, 11, kind, "start", INK)]
    drawn.append(_text((left + end) / 2, height - 4, "people more or fewer than published", "middle", INK))
    return _svg(WIDTH, height, label, drawn)


def matrix(pixels: NDArray[np.float64], columns: str, label: str) -> str:
    """Draw a matrix as an image: a row a query, a column a value, darker where entries are larger.

    Args:
        pixels: the image, 2-D.

    >>> matrix(np.eye(3), "sex", "identity")[:4]
    '<svg'
    """
    largest = float(np.abs(pixels).max(initial=0.0)) or 1.0
    rows, cells = pixels.shape
    # Small matrices stay small, so that an entry looks the same size everywhere; long ones are bent to fit.
    wide = 72 * float(np.clip(0.17 * cells, 0.5, 2.3))
    high = 72 * float(np.clip(0.17 * rows, 0.17, 2.3 * np.clip(rows / cells, 0.3, 1.4)))
    left, top = 17.3, 2.9
    place = (
        f'x="{left}" y="{top}" width="{_number(wide)}" height="{_number(high)}" fill="none" stroke="{MUTED}"'
    )
    shown = base64.b64encode(_png(np.rint(pixels / largest * 127).astype(int) + 127)).decode("ascii")
    drawn = [
        f'<image {place} preserveAspectRatio="none" image-rendering="pixelated" href="data:image/png;base64,{shown}"/>',
        f'<rect {place} stroke-width="0.6"/>',
        _text(left + wide / 2, top + high + 12, shortened(columns, _LABEL), "middle", MUTED),
        _upright(11, top + high / 2, "queries", MUTED),
    ]
    return _svg(wide + left + top, high + left + top, label, drawn)


def _png(shades: NDArray[np.int64]) -> bytes:
    """An image file of a palette: 0 is `WARM`, 127 white, and 254 `ACCENT`."""
    rows, cells = shades.shape
    ends = [[int(colour[i : i + 2], 16) for i in (1, 3, 5)] for colour in (WARM, "#ffffff", ACCENT)]
    palette = np.stack(
        [np.interp(np.arange(255), (0, 127, 254), channel) for channel in zip(*ends, strict=True)]
    )
    lines = np.hstack([np.zeros((rows, 1), int), shades]).astype(
        np.uint8
    )  # each after the number of its filter
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", cells, rows, 8, 3, 0, 0, 0)),
        (b"PLTE", palette.T.round().astype(np.uint8).tobytes()),
        (
            b"IDAT",
            zlib.compress(lines.tobytes(), 0),
        ),  # not made smaller: each zlib would do so in its own way
        (b"IEND", b""),
    )
    framed = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(framed)


@dataclass(frozen=True)
class _Axis:
    """A logarithmic axis: where values between two limits stand, from ``start`` to ``end``."""

    limits: tuple[float, float]
    start: float
    end: float

    @classmethod
    def along(cls, limits: tuple[float, float], left: float, width: float) -> _Axis:
        """A horizontal axis, and at its right the room within which its last label ends."""
        return cls(limits, left, left + width - _room_at_right(width, limits))

    def __call__(self, value: float) -> float:
        low, high = self.limits
        return self.start + (self.end - self.start) * float(np.log(value / low) / np.log(high / low))

    @property
    def ticks(self) -> list[float]:
        low, high = self.limits
        return [tick for tick in _log_ticks(low, high) if low <= tick <= high]

    @property
    def places(self) -> list[float]:
        return [self(tick) for tick in self.ticks]


def _log_ticks(low: float, high: float) -> list[float]:
    steps = (1, 2, 5) if high / low < 200 else (1,)
    exponents = range(int(np.floor(np.log10(low))) - 1, int(np.ceil(np.log10(high))) + 1)
    return [step * 10.0**e for e in exponents for step in steps]


def _tick_words(value: float) -> str:
    return f"{value:,.10g}" if value < 1e7 else f"{value:.0e}"


def _room_at_right(width: float, limits: tuple[float, float]) -> float:
    """The margin, of a width that panel and margin share, within which the last label of an axis ends.

    A label stands in the middle under its tick, and a tick near the end of the axis leaves half of it outside.
    """
    low, high = limits
    last = max((tick for tick in _log_ticks(low, high) if low <= tick <= high), default=low)
    place = np.log(last / low) / np.log(high / low)  # of the panel
    half = _DIGIT / 2 * (len(_tick_words(last)) + 1)
    return max(7.2, float((half - width * (1 - place)) / max(place, 0.1)))


def _positive(value: float | None) -> float:
    return value if value is not None and np.isfinite(value) and value > 0 else float("nan")


# elements ----------------------------------------------------------------------------------------------
def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _line(x0: float, y0: float, x1: float, y1: float, colour: str, width: float) -> str:
    ends = f'x1="{_number(x0)}" y1="{_number(y0)}" x2="{_number(x1)}" y2="{_number(y1)}"'
    return f'<line {ends} stroke="{colour}" stroke-width="{width}"/>'


def _text(x: float, y: float, words: str, anchor: str, colour: str) -> str:
    """Words on the baseline y, of which x is the start, the middle or the end."""
    return f'<text x="{_number(x)}" y="{_number(y)}" text-anchor="{anchor}" fill="{colour}">{escape(words)}</text>'


def _upright(x: float, y: float, words: str, colour: str) -> str:
    """Words from below to above, with their middle at y."""
    at = f"translate({_number(x)} {_number(y)}) rotate(-90)"
    return f'<text transform="{at}" text-anchor="middle" fill="{colour}">{escape(words)}</text>'


def _ticks_below(x: _Axis, y: float) -> Iterable[str]:
    for value, at in zip(x.ticks, x.places, strict=True):
        yield _line(at, y, at, y + _TICK, MUTED, 0.8)
        yield _text(at, y + 14, _tick_words(value), "middle", MUTED)


def _circle(x: float, y: float) -> str:
    return f'<circle cx="{_number(x)}" cy="{_number(y)}" r="4" fill="{ACCENT}"/>'


def _square(x: float, y: float) -> str:
    return _outline(x, y, "M-2.75 -2.75h5.5v5.5h-5.5z", WARM)


def _diamond(x: float, y: float) -> str:
    return _outline(x, y, "M0 -3.5L3.5 0L0 3.5L-3.5 0z", MUTED)


def _triangle(x: float, y: float) -> str:
    return _outline(x, y, "M0 -2.75L2.75 2.75H-2.75z", INK)


def _outline(x: float, y: float, path: str, colour: str) -> str:
    at = f"translate({_number(x)} {_number(y)})"
    return f'<path transform="{at}" d="{path}" fill="white" stroke="{colour}"/>'


def _bound(x: float, y: float) -> str:
    return _line(x, y - 5.5, x, y + 5.5, INK, 1.8)


_MARKERS = (_circle, _square, _diamond, _triangle)


def _svg(width: float, height: float, label: str, drawn: Iterable[str]) -> str:
    size = f'width="{_number(width)}" height="{_number(height)}" viewBox="0 0 {_number(width)} {_number(height)}"'
    look = f'font-family="DejaVu Sans, sans-serif" font-size="{_TEXT:g}" stroke-linejoin="round"'
    body = "\n".join(drawn)
    return f'<svg {size} role="img" aria-label="{escape(label)}" {look}>\n{body}\n</svg>'
