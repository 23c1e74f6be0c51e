"""Templates of all pages: their filters, the one script, and what keeps any other from running."""

from __future__ import annotations

import base64
import hashlib
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import Any

import jinja2
import numpy as np
from markupsafe import Markup, escape
from numpy.typing import NDArray

from ..errors import InvalidArgument
from ..privacy import decimal, rounded_up
from ..products.tables.plan import TableError
from ..spec import ReliabilitySection
from . import numbers, plots
from .numbers import shortened
from .promise import PromiseView
from .rows import (
    ROWS_SHOWN,
    ExpectedErrorView,
    ReliabilityRow,
    TableView,
    named_classes,
    printed_rows,
    reliability_of,
    share_words,
)
from .view import BlockView, MatrixPicture, PublishedView, ReleaseView, StoredView, StrategyView

_DESCRIPTION = 400  # characters of a table in words; SQL may be longer


@cache
def environment() -> jinja2.Environment:
    """Templates and filters of all pages."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("tabulae.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        lstrip_blocks=True,
    )
    environment.filters.update(
        fixed=numbers.fixed,
        significant=numbers.significant,
        breakable=lambda name: escape(name).replace("_", Markup("_<wbr>")),
        fraction=numbers.fraction,
        decimal=decimal,
        share=numbers.share,
        moment=numbers.moment,
        rounded_up=rounded_up,
        shortened=lambda text: shortened(text, _DESCRIPTION),
        exp=lambda value: math.exp(min(float(value), 700.0)),
    )
    return environment


@cache
def script(name: str = "tables.js") -> Markup:
    """The one script of a page: a file of this project, put into the page as it stands."""
    loader = environment().loader
    assert loader is not None
    text, _, _ = loader.get_source(environment(), name)
    return Markup(text)  # noqa: S704


@cache
def policy(name: str = "tables.js") -> str:
    """A content security policy that allows this one script, by its hash, and nothing from anywhere else."""
    digest = base64.b64encode(hashlib.sha256(script(name).encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


PAGE_BYTES = 1_900_000
"""What a page aims at; it is under two million bytes however long its tables are."""

_LEAST_ROW = 300  # bytes that hardly any row is shorter than
_ROUND = 50  # tables that are cut have a multiple of so many rows, where they have more


@dataclass(frozen=True)
class PrintedTable:
    """One table as the page shows it: its leading rows as markup; ``anchor`` is where it stands.

    ``share`` says how many rows of each kind these are, where they are of several and not all; empty otherwise.
    """

    anchor: str
    table: TableView
    headings: tuple[str, ...]
    rows: tuple[Markup, ...]
    share: str = ""

    @classmethod
    def of(cls, anchor: str, table: TableView, rows: tuple[Markup, ...]) -> PrintedTable:
        """Of the rows that there is room for; those of several kinds in the order of the file."""
        headings = tuple(shortened(column) for column in table.columns)
        if table.kinds is None or table.order is None or len(rows) == table.rows:
            order = None if table.kinds is None else table.order
            return cls(anchor, table, headings, rows if order is None else _in_order(rows, order))
        shown = Counter(table.kinds.printed[: len(rows)])
        return cls(
            anchor, table, headings, _in_order(rows, table.order), share_words(shown, table.kinds.rows)
        )

    @property
    def whole(self) -> bool:
        return len(self.rows) == self.table.rows

    @cached_property
    def body(self) -> Markup:
        return Markup("\n").join(self.rows)


def printed_tables(
    tables: Sequence[TableView], room: int, section: ReliabilitySection
) -> tuple[PrintedTable, ...]:
    """Print the first rows of each table, as many as fit.

    All tables that are cut for want of room have the same number of rows, and those that have fewer show all that they
    may: the most rows for which everything fits.
    """
    sizes = [min(len(t.estimate), ROWS_SHOWN) if t.order is None else len(t.order) for t in tables]
    level = _level([np.arange(1 + size) * _LEAST_ROW for size in sizes], room)
    row = environment().get_template("counts.html").module.row  # type: ignore[attr-defined]
    rows = [tuple(row(each) for each in printed_rows(table, level, section)) for table in tables]
    level = _level([np.cumsum([0, *(len(text.encode()) + 1 for text in lines)]) for lines in rows], room)
    if _ROUND < level < max((len(lines) for lines in rows), default=0):
        level -= level % _ROUND
    return tuple(
        PrintedTable.of(f"table-{i}", table, lines[:level])
        for i, (table, lines) in enumerate(zip(tables, rows, strict=True), start=1)
    )


def unprinted(tables: Sequence[TableView]) -> tuple[PrintedTable, ...]:
    """The same tables without their rows: what the rest of the page takes is measured with them."""
    return tuple(PrintedTable.of(f"table-{i}", table, ()) for i, table in enumerate(tables, start=1))


def _in_order(rows: tuple[Markup, ...], places: NDArray[np.int64]) -> tuple[Markup, ...]:
    return tuple(rows[i] for i in np.argsort(places[: len(rows)]))


def _level(taken: Sequence[NDArray[np.int64]], room: int) -> int:
    """The largest k for which the first k rows of every table fit; ``taken[t][k]`` is what those of one table take."""
    low, high = 0, max((len(each) - 1 for each in taken), default=0)
    while low < high:
        middle = (low + high + 1) // 2
        fits = sum(int(each[min(middle, len(each) - 1)]) for each in taken) <= room
        low, high = (middle, high) if fits else (low, middle - 1)
    return low


def published_error(table: TableView) -> float | None:
    """Root mean square of the standard errors of the estimated rows, in counts; None where there are none."""
    errors = table.std_error[_estimated(table)]
    return float(np.sqrt(np.mean(errors**2))) if errors.size else None


def points(tables: tuple[TableView, ...]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Estimates and margins of every count that has both and noise, over all tables."""
    estimates, margins = [np.empty(0)], [np.empty(0)]
    for table in tables:
        chosen = _estimated(table) & (table.margin > 0)
        estimates.append(np.asarray(table.estimate[chosen], dtype=float))
        margins.append(table.margin[chosen])
    return np.concatenate(estimates), np.concatenate(margins)


def _estimated(table: TableView) -> NDArray[np.bool_]:
    status = np.asarray(table.obs_status, dtype=object) == "A"
    return status & np.isfinite(table.estimate) & np.isfinite(table.std_error) & np.isfinite(table.margin)


BLOCKS_SHOWN = 60
"""The page shows at most so many blocks, or parts of them."""

_PICTURES_SHOWN = 12
_MOST_ATTRIBUTES = 16  # columns of circles that a page is wide enough for


@dataclass(frozen=True)
class Drawn:
    """A matrix of one attribute, drawn, and how many blocks ask with it."""

    picture: MatrixPicture
    svg: Markup
    blocks: int


def strategy_context(strategy: StrategyView) -> dict[str, Any]:
    """What the template of the strategy shows beside the strategy itself."""
    shown = strategy.blocks[:BLOCKS_SHOWN]
    asked = tuple(dict.fromkeys(name for block in strategy.blocks for name in block.asked))
    pictures = _distinct(strategy.blocks)
    return {
        "blocks": shown,
        "asked": asked if len(asked) <= _MOST_ATTRIBUTES else (),
        "laplace": any("Laplace" in block.noise for block in strategy.blocks),
        "compared": any(block.compared for block in shown),
        "largest_share": max((block.share or 0.0 for block in shown), default=0.0),
        "shares_in_all": sum(block.share or 0.0 for block in strategy.blocks),
        "drawn": tuple(_draw(picture, count) for picture, count in pictures[:_PICTURES_SHOWN]),
        "reduced": any(each.shape != each.pixels.shape for each, _ in pictures),
        "pictures": len(pictures),
        "undrawn": tuple(dict.fromkeys(name for block in strategy.blocks for name in block.undrawn)),
    }


def _distinct(blocks: tuple[BlockView, ...]) -> list[tuple[MatrixPicture, int]]:
    """Each matrix that some block asks an attribute with, and how many do."""
    found: dict[tuple[Any, ...], list[MatrixPicture]] = {}
    for picture in (picture for block in blocks for picture in block.pictures):
        key = (picture.attribute, picture.shape, picture.pixels.shape, picture.pixels.tobytes())
        found.setdefault(key, []).append(picture)
    return [(same[0], len(same)) for same in found.values()]


def _draw(picture: MatrixPicture, blocks: int) -> Drawn:
    rows, columns = picture.shape
    label = f"Strategy on {picture.attribute}: a matrix of {rows} queries by {columns} values."
    return Drawn(picture, markup(plots.matrix(picture.pixels, picture.attribute, label)), blocks)


_ORDERS = 1.0 + np.geomspace(1e-3, 1e4, 400)


def detection_bound(promise: PromiseView, false_alarm: float) -> float:
    """Return the largest share of members that any test can detect at a given share of false alarms.

    A test looks at the release and says "in" or "out". With a false alarm in a share ``a`` of the cases where
    the person is out, it is right in at most a share ``b`` of the cases where the person is in:

    * (epsilon, delta): ``b <= min(e^eps a + delta, 1 - e^-eps (1 - delta - a))``;
    * rho-zCDP: the largest ``b`` for which the Bernoulli laws of ``a`` and ``b`` have Rényi divergences
      ``D_r(b || a)`` and ``D_r(a || b)`` of at most ``rho r`` at every order ``r > 1`` (data processing); a
      finite set of orders gives an upper bound.

    Args:
        false_alarm: the share ``a``, strictly between 0 and 1.

    Reference:
        Wasserman and Zhou (2010), "A statistical framework for differential privacy", Theorem 2.4;
        Bun and Steinke (2016), "Concentrated differential privacy", Lemma 15.

    >>> from fractions import Fraction
    >>> loss = PromiseView("pure", Fraction(1), "add-remove", "person")
    >>> round(detection_bound(loss, 0.05), 4)
    0.1359
    """
    if not 0 < false_alarm < 1:
        raise InvalidArgument(f"false_alarm is {false_alarm!r}; give a share strictly between 0 and 1")
    if promise.definition == "zcdp":
        return _zcdp_bound(float(promise.parameter), false_alarm)
    return _approx_bound(float(promise.parameter), float(promise.delta or 0), false_alarm)


def _approx_bound(epsilon: float, delta: float, false_alarm: float) -> float:
    gained = math.exp(min(epsilon, 700.0)) * false_alarm + delta
    spared = 1 - math.exp(-epsilon) * max(0.0, 1 - delta - false_alarm)
    return min(1.0, gained, spared)


@lru_cache(maxsize=1 << 10)  # a page states the same promise in many places
def _zcdp_bound(rho: float, false_alarm: float) -> float:
    low, high = false_alarm, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if middle >= 1.0:
            break
        allowed = np.all(_renyi(middle, false_alarm) <= rho * _ORDERS) and np.all(
            _renyi(false_alarm, middle) <= rho * _ORDERS
        )
        low, high = (middle, high) if allowed else (low, middle)
    return high


def _renyi(p: float, q: float) -> NDArray[np.float64]:
    """Rényi divergence of Bernoulli(p) from Bernoulli(q) at every order."""
    yes = _ORDERS * math.log(p) + (1 - _ORDERS) * math.log(q)
    no = _ORDERS * math.log1p(-p) + (1 - _ORDERS) * math.log1p(-q)
    return np.logaddexp(yes, no) / (_ORDERS - 1)


TABLES_SHOWN = 200
FALSE_ALARMS = (0.01, 0.05, 0.1)


@dataclass(frozen=True)
class _Section:
    """One line of the summary: a table, where it stands, and its published error."""

    anchor: str
    table: TableView
    published: float | None


def render_report(release: ReleaseView) -> str:
    """Render a release as one self-contained HTML page.

    The page loads nothing and is the same text for the same release. Its one script sorts and filters tables; without
    it nothing is missing. Every string of the release is escaped. The page stays under two million bytes: long tables
    and long lists of tables are cut with a note that names the file.

    Returns:
        The page, ending in a newline.
    """
    shown = release.tables[:TABLES_SHOWN]
    places = [printed.anchor for printed in unprinted(shown)]
    return render_page(
        "report.html",
        release,
        shown,
        sections=tuple(
            _Section(anchor, table, published_error(table))
            for anchor, table in zip(places, shown, strict=True)
        ),
        reliability_rows=tuple(
            ReliabilityRow(table.name, reliability_of(table, release.reliability), None, anchor)
            for anchor, table in zip(places, shown, strict=True)
        ),
        counts=sum(table.rows for table in release.tables),
        errors_figure=errors_figure(
            [table.name for table in shown],
            [table.expected for table in shown],
            "this release",
            "Expected error of each table, here and under the alternatives; the table below has the numbers.",
        ),
        noise_figure=noise_figure(*points(release.tables)),
        first=release.tables[0] if release.tables else None,
        **strategy_context(release.strategy),
    )


def render_page(name: str, release: PublishedView, tables: tuple[TableView, ...], **context: Any) -> str:
    """A page with as many rows of its tables as its size allows; every string of the release is escaped."""
    template = environment().get_template(name)
    section, promise = release.reliability, release.promise
    context |= {"release": release, "promise": promise, "script": script(), "policy": policy()}
    context |= {"classes": named_classes(section), "customary": section.customary}
    context["detection"] = [(a, detection_bound(promise, a)) for a in FALSE_ALARMS]
    context["spent"] = sum((line.amount for line in release.ledger), start=promise.parameter * 0)

    def page(printed: tuple[PrintedTable, ...]) -> str:
        return template.render(printed=printed, **context).rstrip() + "\n"

    bare = page(unprinted(tables))
    return page(printed_tables(tables, PAGE_BYTES - len(bare.encode()), section))


def stored_context(release: StoredView) -> dict[str, Any]:
    """What stored tables of any length, of which the page has the first rows, say as a whole."""
    tables, stored = release.samples, release.stored
    anchors = [printed.anchor for printed in unprinted(tables)]
    rows = [
        row
        for table, found, anchor in zip(tables, stored, anchors, strict=True)
        for row in found.rows(table.name, anchor)
    ]
    estimate, margin = (
        np.concatenate([np.empty(0), *(getattr(found, part) for found in stored)])
        for part in ("estimate", "margin")
    )
    return {"reliability_rows": rows, "noise_figure": noise_figure(estimate, margin)}


def noise_figure(estimate: NDArray[np.float64], margin: NDArray[np.float64]) -> Markup | None:
    """Margins of published counts against their size; None without any."""
    if not estimate.size:
        return None
    label = "Margin of published counts against their size; the table of reliability classes has the numbers."
    return markup(plots.noise_against_size(estimate, margin, label))


def errors_figure(
    names: Sequence[str], errors: Sequence[ExpectedErrorView | TableError], own: str, label: str
) -> Markup | None:
    """Expected errors of tables, by the method chosen (``own``) and by the alternatives; None without any."""
    if not errors:
        return None
    series = {name: [getattr(e, of) for e in errors] for name, of in ((own, "rmse"), *_ALTERNATIVES)}
    known = {method: each for method, each in series.items() if any(e is not None for e in each)}
    bound = [e.bound for e in errors]
    known_bound = bound if any(b is not None for b in bound) else None
    return markup(plots.errors_by_method(names, known, known_bound, label))


_ALTERNATIVES = (("every cell", "identity"), ("every query", "workload"))


def markup(svg: str) -> Markup:
    """A figure of ``tabulae.report.plots``, which escapes the names that it shows; tests feed it hostile ones."""
    return Markup(svg)  # noqa: S704
