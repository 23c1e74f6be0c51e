"""From a release folder to what the report shows: read, never computed anew."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pyarrow as pa

from ..domain import Table
from ..products.implicates import ABOUT
from ..products.tables.exactness import described
from ..products.tables.publish import left_out_words, value_words
from ..release import Release, seal
from ..release.folder import REPORT, read_json, replace_listed
from ..release.staging import unmark
from ..release.write import ESTIMATED
from ..spec.promise import POSTERIOR
from .areas import geography_report
from .groups import groups_report
from .page import render_report
from .promise import ExactView, consequences_of, promise_of, statements_of
from .rows import ROWS_SHOWN, ExpectedErrorView, TableView, range_order
from .strategy import strategy_view
from .view import PosteriorView, ReleaseView, posterior_view, published_fields


def report_of(release: Release) -> str:
    """The report of a release as one HTML page, from its folder alone.

    >>> report_of  # doctest: +ELLIPSIS
    <function report_of at ...>
    """
    return _PAGES[release.spec.kind](release)


def view_of(release: Release) -> ReleaseView:
    """What the report of a release shows."""
    spec, told, left_out = release.spec, release.about.get("exact"), release.about.get("left_out")
    return ReleaseView(
        **published_fields(release),
        promise=promise_of(
            spec,
            statements=statements_of(spec),
            exact=_exact(release),
            consequences=None if told is None else consequences_of(told, spec.workload),
            left_out="" if left_out is None else left_out_words(spec, left_out, release.level),
        ),
        tables=tuple(_table(release, table) for table in spec.published.tables),
        strategy=strategy_view(release),
        raised=spec.method.estimate != "least-squares",
        posterior=posterior_of(release),
    )


def posterior_of(release: Release) -> PosteriorView | None:
    """What ``posterior.json`` says, and a picture of some counts of the largest table; None where nothing is drawn."""
    if release.spec.method.estimate != POSTERIOR:
        return None
    told = read_json(release.path, ABOUT)
    enough = [table for table in release.spec.published.tables if told["credible"].get(table.name)]
    if not enough:
        return posterior_view(told, "cell")
    table = max(enough, key=lambda each: release.tables[each.name].num_rows)
    rows = release.tables[table.name]
    rows = rows.filter(pa.array([each == ESTIMATED for each in rows["obs_status"].to_pylist()])).drop_null()
    return posterior_view(told, "cell", rows, [*table.columns(release.domain)], f"table {table.name}")


def _exact(release: Release) -> Iterator[ExactView]:
    """The sets of counts that this release states exactly."""
    for told in release.about.get("exact", {}).get("tables", ()):
        name = told["name"]
        yield ExactView(f"{name}: {told['what']}", told["reason"], told["counts"], f"tables/{name}.csv")


def _table(release: Release, table: Table) -> TableView:
    rows, about = release.tables[table.name], release.about["expected"][table.name]
    order = range_order(table, release.domain, ROWS_SHOWN)
    printed = rows.slice(0, ROWS_SHOWN) if order is None else rows.take(pa.array(order))
    expected = {key: about[key] for key in ("rmse", "margin", "identity", "workload", "bound")}
    return TableView.of(
        release,
        table.name,
        rows,
        {h: printed[h].to_pylist() for h in table.columns(release.domain)},
        description=_described(table, release),
        expected=ExpectedErrorView(**expected),
        conservative=release.about["conservative_intervals"][table.name] > 0,
        order=order,
    )


def _described(table: Table, release: Release) -> str:
    """The table in words: its statement, or what is crossed with what, in how many rows."""
    if (statement := _statements(release.spec.text).get(table.name)) is not None:
        return statement
    spec = release.spec
    unit = f"{spec.units[table.name]}: {value_words(spec)}; " if table.name in spec.units else ""
    return unit + described(table, release.domain)


@lru_cache(maxsize=1)
def _statements(text: str) -> dict[str, str]:
    """The SQL of those tables that the published spec states in SQL."""
    return {entry["name"]: entry["sql"] for entry in tomllib.loads(text)["table"] if "sql" in entry}


def seal_with_report(partial: Path) -> Release:
    """Seal a folder, make its report from what is sealed, and seal that with it; the release, as it was read for it."""
    unmark(partial)
    seal(partial)
    release = Release.read(partial)
    replace_listed(partial, REPORT, report_of(release).encode())
    return release


_PAGES = {
    "tables": lambda release: render_report(view_of(release)),
    "groups": groups_report,
    "areas": geography_report,
}
