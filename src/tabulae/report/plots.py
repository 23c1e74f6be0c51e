"""Figures as SVG text: the same bytes for the same numbers, no global drawing state.

Every function returns one ``<svg>`` element fit to stand inside an HTML page: identifiers carry the
figure's name, so that figures do not collide; text stays text; a label says what the picture shows to
who cannot see it. matplotlib takes a second to import, so it is imported by the first figure.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from io import StringIO
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidArgument
from .numbers import shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

INK = "#23282f"
MUTED = "#6b7280"
RULE = "#d9d6cf"
ACCENT = "#1f5673"
WARM = "#b4552d"

_MARKERS: tuple[dict[str, Any], ...] = (
    {"marker": "o", "markersize": 7, "color": ACCENT},
    {"marker": "s", "markersize": 5.5, "markerfacecolor": "white", "color": WARM},
    {"marker": "D", "markersize": 5, "markerfacecolor": "white", "color": MUTED},
    {"marker": "^", "markersize": 5.5, "markerfacecolor": "white", "color": INK},
)
_BOUND: dict[str, Any] = {"marker": "|", "markersize": 11, "markeredgewidth": 1.8, "color": INK}

POINTS_DRAWN = 1500
TABLES_DRAWN = 40
_LABEL = 27  # characters of a name
_DIGIT = 0.085  # inches that a figure of a tick's label takes, in the widest of the fonts that a browser may choose

_STYLE: dict[Any, Any] = {
    "axes.edgecolor": RULE,
    "axes.labelcolor": INK,
    "axes.labelsize": 9,
    "axes.linewidth": 0.8,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "tabulae",
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": MUTED,
    "xtick.labelsize": 9,
    "ytick.color": MUTED,
    "ytick.labelsize": 9,
}


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
    names = names[:TABLES_DRAWN]
    with _figure(5.2, 0.75 + 0.27 * len(names)) as (figure, out):
        longest = max((len(shortened(name, _LABEL)) for name in names), default=0)
        values = np.array([[_positive(e) for e in errors[:TABLES_DRAWN]] for errors in series.values()])
        known = values[np.isfinite(values)]
        limits = (float(known.min()) / 1.3, float(known.max()) * 1.3) if known.size else (1.0, 10.0)
        left = max(0.8, 0.2 + 0.068 * longest)
        axes = _panel(figure, left=left, right=_room_at_right(5.2 - left, limits), bottom=0.42, top=0.3)
        _error_axes(axes, names, limits)
        places = np.arange(len(names))
        for place, column in zip(places, values.T, strict=True):
            known = column[np.isfinite(column)]
            if known.size:
                axes.plot([known.min(), known.max()], [place, place], color=RULE, linewidth=1.2, zorder=1)
        for i, (method, row) in enumerate(zip(series, values, strict=True)):
            marker = _BOUND if i == len(methods) else _MARKERS[i % len(_MARKERS)]
            axes.plot(row, places, linestyle="none", label=method, zorder=3, **marker)
        figure.legend(
            loc="upper left", ncols=len(series), handletextpad=0.1, columnspacing=1.4, borderaxespad=0
        )
        figure.savefig(out, format="svg", metadata=_NO_METADATA)
        return _inline(out.getvalue(), "errors", label)


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
    x, y = np.maximum(estimate[order], 1.0), margin[order]
    with _figure(5.2, 3.4) as (figure, out):
        right, low, high = x.max() * 1.6, y.min() / 2, y.max() * 2.5
        axes = _panel(figure, left=0.6, right=_room_at_right(5.2 - 0.6, (0.8, right)), bottom=0.46, top=0.16)
        edges = np.geomspace(0.8, right, 64)
        axes.fill_between(edges, edges, high, where=edges < high, color=WARM, alpha=0.07, linewidth=0)
        for ratio, text in ((1.0, "margin = the count"), (0.1, "10 % of it"), (0.01, "1 %")):
            axes.plot(edges, ratio * edges, color=RULE, linewidth=1, zorder=1)
            _along(axes, ratio, text, (edges[0], right), (low, high))
        axes.plot(
            x, y, linestyle="none", marker="o", markersize=3, color=ACCENT, alpha=0.45, markeredgewidth=0
        )
        axes.set(xscale="log", yscale="log", xlim=(0.8, right), ylim=(low, high))
        _plain_log_ticks(axes.xaxis, (0.8, right))
        _plain_log_ticks(axes.yaxis, (low, high))
        axes.set_xlabel("published count (below 1: at the left edge)")
        axes.set_ylabel("margin, counts")
        figure.savefig(out, format="svg", metadata=_NO_METADATA)
        return _inline(out.getvalue(), "noise", label)


def matrix(pixels: NDArray[np.float64], columns: str, label: str, name: str) -> str:
    """Draw a matrix as an image: a row a query, a column a value, darker where entries are larger.

    Args:
        pixels: the image, 2-D.

    >>> matrix(np.eye(3), "sex", "identity", "m1")[:4]
    '<svg'
    """
    from matplotlib.colors import LinearSegmentedColormap

    largest = float(np.abs(pixels).max(initial=0.0)) or 1.0
    colours = LinearSegmentedColormap.from_list("signed", [WARM, "#ffffff", ACCENT], N=511)
    rows, cells = pixels.shape
    # Small matrices stay small, so that an entry looks the same size everywhere; long ones are bent to fit.
    width, inset = float(np.clip(0.17 * cells, 0.5, 2.3)), 0.24
    height = float(np.clip(0.17 * rows, 0.17, 2.3 * np.clip(rows / cells, 0.3, 1.4)))
    with _figure(width + inset + 0.04, height + inset + 0.04) as (figure, out):
        axes = _panel(figure, left=inset, right=0.04, bottom=inset, top=0.04)
        axes.imshow(pixels, cmap=colours, vmin=-largest, vmax=largest, aspect="auto", interpolation="none")
        axes.set_xticks([])
        axes.set_yticks([])
        for spine in axes.spines.values():
            spine.set(visible=True, color=MUTED, linewidth=0.6)
        axes.set_xlabel(shortened(columns, _LABEL), labelpad=4, color=MUTED)
        axes.set_ylabel("queries", labelpad=4, color=MUTED)
        figure.savefig(out, format="svg", metadata=_NO_METADATA)
        return _inline(out.getvalue(), name, label)


_NO_METADATA = {"Creator": None, "Date": None, "Format": None, "Type": None}


@contextmanager
def _figure(width: float, height: float) -> Iterator[tuple[Figure, StringIO]]:
    """A figure of so many inches under the house style; the style is undone afterwards."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with rc_context(_STYLE), warnings.catch_warnings():
        # Labels may hold any script, and the page's own fonts draw them: a glyph missing here is no fault.
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        figure = Figure(figsize=(width, height))
        figure.patch.set_alpha(0)
        FigureCanvasSVG(figure)
        yield figure, StringIO()


def _panel(figure: Figure, *, left: float, right: float, bottom: float, top: float) -> Axes:
    """Axes with fixed margins in inches, so that nothing depends on how wide a label comes out."""
    width, height = figure.get_size_inches()
    axes = figure.add_axes(
        (left / width, bottom / height, 1 - (left + right) / width, 1 - (bottom + top) / height)
    )
    axes.patch.set_alpha(0)
    return axes


def _error_axes(axes: Axes, names: Sequence[str], limits: tuple[float, float]) -> None:
    """One line a table, an error axis between the limits."""
    axes.set_xscale("log")
    axes.set_xlim(limits)
    _plain_log_ticks(axes.xaxis, limits)
    axes.set_yticks(range(len(names)), [shortened(n, _LABEL) for n in names])
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlabel("expected error (RMSE), counts")
    axes.grid(axis="x", color=RULE, linewidth=0.5)
    axes.set_axisbelow(True)
    axes.spines["left"].set_visible(False)


def _plain_log_ticks(axis: Axis, limits: tuple[float, float]) -> None:
    """Ticks at 1, 2, 5 times powers of ten (powers only over long ranges), in plain figures."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axis.set_major_locator(FixedLocator(_log_ticks(*limits)))
    axis.set_major_formatter(FuncFormatter(lambda v, _: _tick_words(v)))
    axis.set_minor_locator(NullLocator())


def _log_ticks(low: float, high: float) -> list[float]:
    steps = (1, 2, 5) if high / low < 200 else (1,)
    exponents = range(int(np.floor(np.log10(low))) - 1, int(np.ceil(np.log10(high))) + 1)
    return [step * 10.0**e for e in exponents for step in steps]


def _tick_words(value: float) -> str:
    return f"{value:,.10g}" if value < 1e7 else f"{value:.0e}"


def _room_at_right(width: float, limits: tuple[float, float]) -> float:
    """The margin, in inches of a width that panel and margin share, within which the last label of an axis ends.

    A label stands in the middle under its tick, and a tick near the end of the axis leaves half of it outside.
    """
    low, high = limits
    last = max((tick for tick in _log_ticks(low, high) if low <= tick <= high), default=low)
    place = np.log(last / low) / np.log(high / low)  # of the panel
    half = _DIGIT / 2 * (len(_tick_words(last)) + 1)
    return max(0.1, float((half - width * (1 - place)) / max(place, 0.1)))


def _along(axes: Axes, ratio: float, text: str, x: tuple[float, float], y: tuple[float, float]) -> None:
    """Name a line ``y = ratio x`` where it leaves the panel, if it crosses it at all."""
    end = min(x[1], y[1] / ratio)
    if end * ratio > y[0] * 1.3 and end > x[0] * 1.3:
        at_top = end < x[1]
        axes.annotate(
            text,
            (end, end * ratio),
            xytext=(-4, -3 if at_top else 3),
            textcoords="offset points",
            ha="right",
            va="top" if at_top else "bottom",
            color=MUTED,
            fontsize=8.5,
        )


def _positive(value: float | None) -> float:
    return value if value is not None and np.isfinite(value) and value > 0 else float("nan")


def _inline(svg: str, name: str, label: str) -> str:
    """Reduce a drawn file to one labelled element, without prologue, metadata or foreign addresses."""
    svg = svg[svg.index("<svg") :].rstrip()
    svg = re.sub(r"\s*<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"\s*<defs>\s*<style.*?</style>\s*</defs>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r"url\(#", f"url(#{name}-", svg)
    svg = re.sub(r'xlink:href="#', f'href="#{name}-', svg).replace("xlink:href=", "href=")
    width, height = (float(x) for x in re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)[0])
    size = f'width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}"'
    opening = f'<svg {size} role="img" aria-label="{escape(label)}" stroke-linejoin="round">'
    return re.sub(r"<svg[^>]*>", lambda _: opening, svg, count=1)
