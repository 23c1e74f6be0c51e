"""What commands print of specs with [geography]: plans, releases and checked specs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import tomli_w
from rich.console import Console
from rich.table import Table as RichTable

from ..privacy import decimal
from ..products.areas.allocation import FoundShares
from ..products.areas.plan import GeographyPlan
from ..products.areas.spec.section import Geography, geography_of
from ..products.areas.tables import earlier_of
from ..products.smallest import BestShares, Smallest
from ..release import Release
from ..spec import Spec
from ..spec.promise import SPARSE
from .output import (
    needs_words,
    new_table,
    number,
    print_smallest,
    print_table,
    promise_document,
    say,
    summary_head,
)

FOLLOWS_FROM = "geography"
_TEXT = ("level", "query", "table", "areas of", "off the spine")
_DRAWN = (
    "Counts of the posterior are whole and not negative, and mostly nearer: by how much depends on the counts, and\n"
    "its credible intervals say it once they are drawn. Whole tables are drawn from the measurements, at no cost."
)
_UNKNOWN = (
    "Errors of topdown and bluedown depend on the counts and are not known beforehand: both give whole\n"
    "numbers that are not negative, mostly with smaller errors than these, and are biased upwards where\n"
    "counts are small."
)


def plan_document(made: GeographyPlan) -> dict[str, Any]:
    """A plan for machines."""
    spec, geography = made.spec, made.geography
    limits = geography.constraints
    return {
        "title": spec.title,
        "promise": promise_document(spec),
        "epsilon": None if made.epsilon is None else {"epsilon": made.epsilon, "delta": str(spec.delta)},
        "estimate": geography.estimate,
        "noise": spec.method.noise,
        "leaves": int(geography.leaf_codes.size),
        "dropped_leaves": int(geography.dropped.size),
        "cells": {
            "possible": int(geography.layout.cell.size),
            "dense": list(geography.layout.dense),
            "symmetric": list(geography.layout.symmetric),
        },
        "exact": [
            {"counts": margin.margin.name, "level": margin.level, "reason": margin.reason}
            for margin in (() if limits is None else limits.exact)
        ],
        "earlier": [each.document for each in earlier_of(geography)],
        "levels": [{**vars(row), "share": str(row.share)} for row in made.levels],
        "errors_of": None if geography.sparse is not None else "gls",
        "level": made.level,
        "tables": [vars(row) for row in made.table_errors],
        "distances": [vars(row) for row in made.distances],
        "smallest": None if made.smallest is None else made.smallest.document(),
        "found_shares": None if made.found_shares is None else _found_document(made, made.found_shares),
    }


def _found_document(made: GeographyPlan, found: FoundShares) -> dict[str, Any]:
    """Shares that were chosen, for machines."""
    queries = found.shares.queries
    return {
        "levels": {level: str(share) for level, share in found.shares.levels.items()},
        "queries": [
            {
                "attributes": list(query.names),
                "shares": {level: str(given[i]) for level, given in queries.items() if given[i]},
            }
            for i, query in enumerate(made.geography.queries)
        ],
        "rmse": found.rmse,
        "equal_rmse": found.equal,
        "lower_rmse": found.lower,
        "missed_targets": found.missed,
        "toml": "\n".join(shares_toml(made.geography, found.shares.levels, queries)),
    }


def _found_words(made: GeographyPlan, found: FoundShares) -> Iterator[str]:
    """How well the shares that were chosen serve the tables."""
    yield f"Shares    chosen for the tables: RMSE {number(found.rmse)} over all tables and kinds of area, by weight"
    others = [f"equal ones have {number(found.equal)}"] if found.equal is not None else []
    others += [f"none have less than {number(found.lower)}"] if found.lower is not None else []
    if others:
        yield f"          {', '.join(others)}"
    if found.missed:
        met = "one target" if found.missed == 1 else f"{found.missed} targets"
        yield f"          They miss {met}, as the table of targets shows; none were found that come nearer."


def print_plan(console: Console, made: GeographyPlan, promise: str) -> None:
    """A plan for people."""
    say(console, f"Promise   {promise}", *_reach(made), *_noted(made))
    print_table(console, _levels_table(made))
    print_table(console, _noise_table(made))
    say(
        console,
        "Standard deviation of one answer as it is drawn, in a unit with the share of its level.",
    )
    if made.geography.sparse is not None:
        say(console, _NO_ERRORS)
    else:
        _print_errors(console, made)
    if made.smallest is not None:
        print_table(console, targets_table(made.smallest))
        whose = "the shares as they are written" if made.found_shares is None else "these shares"
        print_smallest(console, made.smallest, f"{whose} meet", _shares_words(made, made.smallest))
    if made.found_shares is not None:
        found = made.found_shares.shares
        say(
            console,
            "Shares that were chosen. To fix them, write them under [geography] in place of its queries:",
            "",
        )
        say(console, *shares_toml(made.geography, found.levels, found.queries), "")
    if made.distances:
        print_table(console, _distances_table(made))
        say(
            console,
            "How many units are added and subtracted to get one area: on the spine as the file has it, and as it\n"
            "is measured.",
        )


def _print_errors(console: Console, made: GeographyPlan) -> None:
    """Expected errors by table and kind of area."""
    print_table(console, _errors_table(made))
    say(
        console,
        "RMSE and margin are in counts, of generalised least squares (gls), whose errors are known before any\n"
        "data: over all counts of all areas but exact ones, and the largest RMSE of one area."
        + _method_words(made),
    )


def _shares_words(made: GeographyPlan, smallest: Smallest) -> Iterator[str]:
    """The shares with which the targets cost least, and what to write without them."""
    if smallest.best is not None:
        yield from best_words(made.geography, smallest.best)
    if smallest.loss is not None and smallest.written is None:
        whose = (
            "the shares as they are written" if made.found_shares is None else "the shares that were chosen"
        )
        yield f'To release with {whose}, write budget = "{decimal(smallest.loss.amount)}"'


_NO_ERRORS = (
    "Errors of sparse counts are not known, before the run or after it: they are whole numbers that are not negative,\n"
    "without intervals. The noise above says how far off single answers are that they are made of."
)


def _method_words(made: GeographyPlan) -> str:
    estimate = made.geography.estimate
    if estimate == "gls":
        return " It is the estimator of this release."
    return "\n" + (_DRAWN if estimate == "posterior" else _UNKNOWN)


def _reach(made: GeographyPlan) -> Iterator[str]:
    """What the promise is about, where some counts are exact."""
    limits = made.geography.constraints
    if limits is None or not limits.exact:
        return
    yield "          It covers what the exact counts leave open, and nothing that they determine."
    for margin in limits.exact:
        yield f"Exact     {margin.margin.name}, of each {margin.level}: {margin.reason}"


def _noted(made: GeographyPlan) -> Iterator[str]:
    geography = made.geography
    yield from (f"Earlier   {each.words}" for each in earlier_of(geography))
    outside = f", and {geography.dropped.size:,} where nothing can occur" if geography.dropped.size else ""
    yield f"Areas     {geography.leaf_codes.size:,} of level {geography.levels[-1]}{outside}"
    if made.found_shares is not None:
        yield from _found_words(made, made.found_shares)
    names = geography.layout.domain.names
    yield f"Cells     {geography.layout.cell.size:,} in each at most, by {', '.join(names)}"
    yield f"Estimate  {geography.estimate}, from discrete {made.spec.method.noise.capitalize()} noise"
    yield from needs_words(made.needs)


def _levels_table(made: GeographyPlan) -> RichTable:
    table = new_table("level", "units", "measured", "share of the budget", words=_TEXT, title=made.spec.title)
    for row in made.levels:
        table.add_row(
            row.level, f"{row.units:,}", f"{row.measured:,}", decimal(row.share) if row.share else "0"
        )
    return table


def _noise_table(made: GeographyPlan) -> RichTable:
    table = new_table("query", *(row.level for row in made.levels), words=_TEXT)
    for query in made.geography.queries:
        cells = (number(row.noise[query.name]) if query.name in row.noise else "" for row in made.levels)
        table.add_row(query.name, *cells)
    return table


def _errors_table(made: GeographyPlan) -> RichTable:
    margin = f"{made.level:.0%} margin"
    table = new_table("table", "areas of", "areas", "cells", "RMSE", "largest RMSE", margin, words=_TEXT)
    before = None
    for row in made.table_errors:
        name = "" if row.table == before else row.table
        before = row.table
        numbers = ["exact"] * 3 if not row.largest else map(number, (row.rmse, row.largest, row.margin))
        table.add_row(name, row.area_type, f"{row.areas:,}", f"{row.cells:,}", *numbers)
    return table


def _distances_table(made: GeographyPlan) -> RichTable:
    headings = ("off the spine", "areas", "mean, file", "largest, file", "mean", "largest")
    table = new_table(*headings, words=_TEXT)
    for row in made.distances:
        table.add_row(
            row.entity_type,
            f"{row.entities:,}",
            number(row.conventional_mean),
            f"{row.conventional_largest:,}",
            number(row.mean),
            f"{row.largest:,}",
        )
    return table


def closing_words(made: GeographyPlan) -> None:
    """Nothing: budgets that are found stand with the targets."""


def summary(release: Release) -> dict[str, Any]:
    """What a run made, for machines."""
    about = release.about
    return {
        **summary_head(release),
        "estimate": about["method"],
        "areas": about["areas"],
        "tables": [{"table": name, "rows": rows} for name, rows in about["rows"].items()],
        "microdata": about["microdata"],
        "exact": _exact(release.spec),
    }


def _exact(spec: Spec) -> list[str]:
    limits = geography_of(spec).constraints
    return [f"{each.margin.name} of each {each.level}" for each in (() if limits is None else limits.exact)]


def print_summary(console: Console, release: Release, promise: str) -> None:
    """What a run made, for people."""
    about = release.about
    console.print(f"Published {release.path}", markup=False)
    say(console, f"Promise   {promise}")
    words = "unbiased, with intervals"
    if about["method"] == SPARSE:
        words = "whole numbers of 0 or more; their errors are not known, and intervals are empty"
    elif about["method"] != "gls":
        words = "whole numbers of 0 or more; intervals are those of gls, beside it"
    if about["method"] == "posterior":
        words = "whole numbers of 0 or more, with credible intervals; implicates.parquet has whole tables"
    say(console, f"Estimate  {about['method']}: {words}")
    table = new_table("table", "areas of", "rows", words=_TEXT)
    for each in geography_of(release.spec).tables:
        table.add_row(each.name, ", ".join(each.areas), f"{about['rows'][each.name]:,}")
    print_table(console, table)
    if about["microdata"] is not None:
        console.print(f"  microdata.parquet   {about['microdata']:,} rows, one a person", markup=False)
    for what in _exact(release.spec):
        console.print(f"Exact, outside the promise: {what}", markup=False)
    for each in earlier_of(geography_of(release.spec)):
        console.print(f"Published before: {each.words}", markup=False)


def check_document(path: Path, spec: Spec) -> dict[str, Any]:
    """What a spec that has no mistake is about, for machines."""
    geography = geography_of(spec)
    return {
        "spec": str(path),
        "levels": len(geography.spine.levels),
        "leaves": len(geography.leaf_codes),
        "cells": int(geography.layout.cell.size),
        "tables": len(geography.tables),
        "invariants": len(_exact(spec)),
    }


def check_words(spec: Spec) -> str:
    """The same, for people."""
    told = check_document(Path(), spec)
    figures = len(spec.derived)
    more = f", {figures} derived {'figure' if figures == 1 else 'figures'}" if figures else ""
    return f"{told['tables']} tables of areas{more}, {told['cells']:,} cells in each of {told['leaves']:,} leaves"


def check_notes(spec: Spec) -> tuple[str, ...]:
    """Nothing: every derived statistic follows from the tables that are counted."""
    return ()


def query_note(release: Release) -> str | None:
    """Where the answers of a query are of another estimator than the tables."""
    method = release.spec.method.estimate
    if method == "gls":
        return None
    return f"Estimated by gls, which has intervals; the whole numbers of tables/ are of {method}."


def targets_table(smallest: Smallest) -> RichTable:
    """Each target beside what is reached."""
    headings = ("table", "areas of", "target", "reached", "")
    table = new_table(*headings, words=("table", "areas of", "target", ""), title="Targets")
    for row in smallest.targets:
        kind = "RMSE" if row.confidence is None else f"{row.confidence:.0%} margin"
        aim = f"{kind} {number(row.target)}"
        table.add_row(row.table, row.of, aim, number(row.reached), "met" if row.met else "missed")
    return table


def best_words(geography: Geography, best: BestShares) -> Iterator[str]:
    """The shares with which the targets cost least, as lines of a spec."""
    name, lower = next(iter(best.loss.parameters)), decimal(best.lower.amount)
    if all(best.levels.get(level, 0) == share for level, share in geography.shares.levels.items()):
        yield f"          No better shares were found; none do with less than {name} {lower}."
        return
    amount = decimal(best.loss.amount)
    yield f"Shares    With the shares below {name} {amount} meets all targets; none do with less than {name} {lower}."
    yield "          They serve the targets alone; tables without one are as wrong as these leave them."
    yield "          Write them under [geography], in place of its shares and queries:"
    levels = {level: best.levels.get(level, Fraction(0)) for level in geography.spine.levels}
    yield from ("", *shares_toml(geography, levels, best.queries), "")


def shares_toml(
    geography: Geography, levels: Mapping[str, Fraction], queries: Mapping[str, Sequence[Fraction]]
) -> Iterator[str]:
    """Shares of levels, and of the queries of each, as the lines of a spec that have them."""
    yield f"shares = {{ {', '.join(f'{_key(level)} = {_text(share)}' for level, share in levels.items())} }}"
    for i, query in enumerate(geography.queries):
        given = ((level, each[i]) for level, each in queries.items() if each[i])
        shares = ", ".join(f"{_key(level)} = {_text(share)}" for level, share in given)
        names = ", ".join(tomli_w.dumps({"k": name})[4:-1] for name in query.names)
        yield f"\n[[geography.query]]\nattributes = [{names}]\nshares = {{ {shares} }}"


def _key(name: str) -> str:
    return tomli_w.dumps({name: 0}).removesuffix(" = 0\n")


def _text(share: Fraction) -> str:
    return f'"{decimal(share)}"'
