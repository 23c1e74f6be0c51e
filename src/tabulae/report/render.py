"""From a release's view to one HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from .. import plots
from ..spec import ReliabilitySection
from .detection import detection_bound
from .page import (
    environment,
    policy,
    script,
)
from .printed import (
    PAGE_BYTES,
    PrintedTable,
    printed_tables,
    unprinted,
)
from .reliability import (
    ReliabilityRow,
    StoredReliability,
    named_classes,
    reliability_of,
)
from .strategy_view import strategy_context
from .summary import points, published_error
from .view import ReleaseView, TableView

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

    Args:
        release: what to show.

    Returns:
        The page, ending in a newline.
    """
    shown = release.tables[:TABLES_SHOWN]
    places = [printed.anchor for printed in unprinted(shown)]
    return render_page(
        "report.html",
        shown,
        release.reliability,
        release=release,
        promise=release.promise,
        sections=tuple(
            _Section(anchor, table, published_error(table))
            for anchor, table in zip(places, shown, strict=True)
        ),
        reliability_rows=tuple(
            ReliabilityRow(table.name, reliability_of(table, release.reliability), None, anchor)
            for anchor, table in zip(places, shown, strict=True)
        ),
        counts=sum(table.rows for table in release.tables),
        detection=[(a, detection_bound(release.promise, a)) for a in FALSE_ALARMS],
        spent=sum((line.amount for line in release.ledger), start=release.promise.parameter * 0),
        errors_figure=_errors_figure(shown),
        noise_figure=noise_figure(*points(release.tables)),
        first=release.tables[0] if release.tables else None,
        **strategy_context(release.strategy),
    )


def render_page(name: str, tables: tuple[TableView, ...], section: ReliabilitySection, **context: Any) -> str:
    """A page with as many rows of its tables as its size allows.

    Args:
        name: the template.
        tables: the published tables that it shows.
        section: the classes of reliability.
        **context: what else the template shows.
    """
    template = environment().get_template(name)
    context |= {"classes": named_classes(section), "customary": section.customary}
    context |= {"script": script(), "policy": policy()}

    def page(printed: tuple[PrintedTable, ...]) -> str:
        return template.render(printed=printed, **context).rstrip() + "\n"

    bare = page(unprinted(tables))
    return page(printed_tables(tables, PAGE_BYTES - len(bare.encode()), section))


def stored_context(tables: Sequence[TableView], stored: Sequence[StoredReliability]) -> dict[str, Any]:
    """What stored tables of any length, of which the page has the first rows, say as a whole."""
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
    return markup(plots.errors_by_method([t.name for t in tables], known, known_bound, label))


def markup(svg: str) -> Markup:
    """A figure of ``tabulae.plots``, which escapes the names that it shows; tests feed it hostile ones."""
    return Markup(svg)  # noqa: S704
