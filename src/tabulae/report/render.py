"""From a release's view to one HTML page."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import jinja2
from markupsafe import Markup, escape

from tabulae import plots
from tabulae.privacy.conversions import rounded_up
from tabulae.report import numbers
from tabulae.report.detection import detection_bound
from tabulae.report.rows import Row, printed_rows
from tabulae.report.summary import RELIABILITY, Reliability, points, published_error, reliability
from tabulae.report.view import ROWS_SHOWN, BlockView, MatrixPicture, ReleaseView, TableView

TABLES_SHOWN = 200
_ROWS_IN_ALL = 1500
_BLOCKS_SHOWN = 12
_PICTURES_SHOWN = 12
FALSE_ALARMS = (0.01, 0.05, 0.1)


@dataclass(frozen=True)
class _Section:
    """One table with what the page computes for it."""

    anchor: str
    table: TableView
    published: float | None
    reliability: Reliability
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class _Drawn:
    picture: MatrixPicture
    svg: Markup


def render_report(release: ReleaseView) -> str:
    """Render a release as one self-contained HTML page.

    The page loads nothing, runs nothing, and is the same text for the same release. Every string of the
    release is escaped. It stays under two million bytes: long tables and long lists of tables are cut with a
    note that names the file.

    Args:
        release: what to show.

    Returns:
        The page, ending in a newline.
    """
    shown = release.tables[:TABLES_SHOWN]
    rows_each = min(ROWS_SHOWN, max(3, _ROWS_IN_ALL // max(1, len(shown))))
    sections = tuple(_section(i, table, rows_each) for i, table in enumerate(shown))
    page = environment().get_template("report.html")
    text = page.render(
        release=release,
        promise=release.promise,
        sections=sections,
        counts=sum(table.rows for table in release.tables),
        classes=[label for label, _ in RELIABILITY],
        detection=[(a, detection_bound(release.promise, a)) for a in FALSE_ALARMS],
        spent=sum((line.amount for line in release.ledger), start=release.promise.parameter * 0),
        errors_figure=_errors_figure(shown),
        noise_figure=_noise_figure(release.tables),
        blocks=_blocks(release.strategy.blocks),
        first=release.tables[0] if release.tables else None,
    )
    return text.rstrip() + "\n"


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
        decimal=numbers.decimal,
        share=numbers.share,
        moment=numbers.moment,
        rounded_up=rounded_up,
        exp=lambda value: math.exp(min(float(value), 700.0)),
    )
    return environment


def _section(index: int, table: TableView, limit: int) -> _Section:
    return _Section(
        f"table-{index + 1}", table, published_error(table), reliability(table), printed_rows(table, limit)
    )


def _errors_figure(tables: tuple[TableView, ...]) -> Markup | None:
    if not tables:
        return None
    expected = [table.expected for table in tables]
    methods = {
        "this release": [e.rmse for e in expected],
        "every cell": [e.identity for e in expected],
        "every query": [e.workload for e in expected],
    }
    known = {method: errors for method, errors in methods.items() if any(e is not None for e in errors)}
    bound = [e.bound for e in expected]
    label = "Expected error of each table, here and under the alternatives; the table below has the numbers."
    known_bound = bound if any(b is not None for b in bound) else None
    return _markup(plots.errors_by_method([t.name for t in tables], known, known_bound, label))


def _noise_figure(tables: tuple[TableView, ...]) -> Markup | None:
    estimate, margin = points(tables)
    if not estimate.size:
        return None
    label = "Margin of each published count against its size; the table below classes them by their ratio."
    return _markup(plots.noise_against_size(estimate, margin, label))


def _blocks(blocks: tuple[BlockView, ...]) -> list[tuple[BlockView, list[_Drawn]]]:
    """The blocks shown, each with its pictures drawn, until enough pictures stand on the page."""
    shown, left = [], _PICTURES_SHOWN
    for i, block in enumerate(blocks[:_BLOCKS_SHOWN]):
        drawn = [_draw(picture, f"m{i}-{j}") for j, picture in enumerate(block.pictures[:left])]
        left -= len(drawn)
        shown.append((block, drawn))
    return shown


def _draw(picture: MatrixPicture, name: str) -> _Drawn:
    rows, columns = picture.shape
    label = f"Strategy on {picture.attribute}: a matrix of {rows} queries by {columns} values."
    return _Drawn(picture, _markup(plots.matrix(picture.pixels, picture.attribute, label, name)))


def _markup(svg: str) -> Markup:
    # matplotlib escapes text nodes and the figures escape their labels; tests feed both hostile names.
    return Markup(svg)  # noqa: S704
