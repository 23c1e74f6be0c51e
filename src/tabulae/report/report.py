"""From a release folder to what the report shows: read, never computed anew."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from ..domain import Table
from ..products.tables.exactness import described
from ..release import Release, seal
from ..release.folder import REPORT, write_bytes
from ..release.staging import unmark
from .areas import geography_report
from .groups import groups_report
from .page import render_report
from .strategy import strategy_view
from .view import (
    ROWS_SHOWN,
    Consequences,
    EpsilonStatement,
    ExactView,
    ExpectedErrorView,
    PromiseView,
    ReleaseView,
    TableView,
    derived_views,
    ledger_lines,
    standing_view,
)

_MORE_DELTAS = (Fraction(1, 10**9), Fraction(1, 10**6))


def report_of(release: Release) -> str:
    """The report of a release as one HTML page, from its folder alone.

    >>> report_of  # doctest: +ELLIPSIS
    <function report_of at ...>
    """
    return _PAGES[release.spec.kind](release)


def view_of(release: Release) -> ReleaseView:
    """What the report of a release shows."""
    return ReleaseView(
        title=release.spec.title or "Release",
        promise=_promise(release),
        ledger=ledger_lines(release.ledger),
        standing=standing_view(release),
        tables=tuple(_table(release, table) for table in release.spec.workload.tables),
        strategy=strategy_view(release),
        reliability=release.spec.reliability,
        raised=release.spec.method.estimate != "least-squares",
        derived=derived_views(release),
        release_id=str(release.about["release_id"]),
        made=str(release.descriptor["created"]),
        version=str(release.about["version"]),
    )


def _promise(release: Release) -> PromiseView:
    spec = release.spec
    delta = spec.loss.parameters.get("delta")
    statements = ()
    if spec.loss.definition == "zcdp" and spec.delta is not None:
        deltas = dict.fromkeys((spec.delta, *_MORE_DELTAS))
        statements = tuple(EpsilonStatement(float(d), spec.loss.epsilon(d)) for d in deltas)
    return PromiseView(
        spec.loss.definition,  # type: ignore[arg-type]
        spec.loss.amount,
        spec.neighbours,
        spec.unit,
        delta,
        statements,
        exact=tuple(_exact(release)),
        consequences=_consequences(release),
        rows_per_unit=None if spec.unit_id is None else spec.rows_per_unit,
        one_sided=spec.method.estimate == "non-negative",
    )


def _exact(release: Release) -> Iterator[ExactView]:
    """The sets of counts that this release states exactly."""
    for told in release.about.get("exact", {}).get("tables", ()):
        name = told["name"]
        yield ExactView(f"{name}: {told['what']}", told["reason"], told["counts"], f"tables/{name}.csv")


def _consequences(release: Release) -> Consequences | None:
    told = release.about.get("exact")
    if told is None:
        return None
    rows = {table.name: table.rows(release.domain) for table in release.spec.workload.tables}
    return Consequences(
        told["stated"],
        told["independent"],
        tuple((name, exact, rows[name]) for name, exact in told["published"].items()),
        tuple(ExactView(f"{e['name']} ({e['release']})", e["reason"]) for e in told["earlier"]),
        told["joint"],
        tuple(told["unprotected"]),
        tuple(told["warnings"]),
    )


def _table(release: Release, table: Table) -> TableView:
    rows = release.tables[table.name]
    headings = list(table.columns(release.domain))
    about = release.about["expected"][table.name]
    return TableView(
        name=table.name,
        description=_described(table, release),
        columns={h: rows[h].slice(0, ROWS_SHOWN).to_pylist() for h in headings},
        estimate=_floats(rows, "estimate"),
        std_error=_floats(rows, "std_error"),
        ci_low=_floats(rows, "ci_low"),
        ci_high=_floats(rows, "ci_high"),
        obs_status=rows["obs_status"].to_pylist(),
        expected=ExpectedErrorView(
            **{k: about[k] for k in ("rmse", "margin", "identity", "workload", "bound")}
        ),
        file=f"tables/{table.name}.parquet",
        level=release.level,
        conservative=release.about["conservative_intervals"][table.name] > 0,
    )


def _floats(rows: pa.Table, name: str) -> np.ndarray:
    return rows[name].to_numpy().astype(float)


def _described(table: Table, release: Release) -> str:
    """The table in words: its statement, or what is crossed with what, in how many rows."""
    if (statement := _statements(release.spec.text).get(table.name)) is not None:
        return statement
    return described(table, release.domain)


@lru_cache(maxsize=1)
def _statements(text: str) -> dict[str, str]:
    """The SQL of those tables that the published spec states in SQL."""
    return {entry["name"]: entry["sql"] for entry in tomllib.loads(text)["table"] if "sql" in entry}


def seal_with_report(partial: Path) -> Release:
    """Seal a folder, make its report from what is sealed, and seal that with it; the release, as it was read for it."""
    unmark(partial)
    seal(partial)
    release = Release.read(partial)
    write_bytes(partial / REPORT, report_of(release).encode())
    seal(partial)
    return release


def _tables_page(release: Release) -> str:
    return render_report(view_of(release))


_PAGES = {"tables": _tables_page, "groups": groups_report, "areas": geography_report}
