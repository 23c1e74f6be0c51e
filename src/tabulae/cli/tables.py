"""What commands print of specs of tables: plans, releases and checked specs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from ..domain import Table
from ..privacy import decimal
from ..products.tables.exactness import Exactness
from ..products.tables.plan import Plan, TableError, left_out_words
from ..products.tables.publish import left_out_words as published_left_out_words
from ..release import Release
from ..spec import Spec
from .output import (
    needs_words,
    new_table,
    number,
    print_reach,
    print_smallest,
    print_table,
    promise_document,
    say,
    summary_head,
)

FOLLOWS_FROM = None


def print_plan(console: Console, made: Plan, promise: str) -> None:
    """A plan for people."""
    spec, aimed = made.spec, made.spec.targets is not None
    headings = ("table", "rows", "RMSE", f"{made.level:.0%} margin", "identity", "workload", "bound")
    more = ["target"] if aimed else []
    table = new_table(*headings, *more, words=("table",), title=spec.title)
    for r in made.table_errors:
        cells = (r.rmse, r.margin, r.identity, r.workload, r.bound)
        table.add_row(r.table, f"{r.queries:,}", *map(number, cells), *([_target_words(r)] if aimed else []))
    if made.exact is not None:
        _print_exact(console, made.exact)
    say(console, *(f"Earlier   {each.words}" for each in spec.earlier))
    console.print(f"Promise   {promise}", markup=False)
    print_reach(console, spec)
    console.print(f"Strategy  {strategy_words(made)}", markup=False)
    for words in _further_words(made):
        console.print(f"          {words}", markup=False)
    say(console, *needs_words(made.needs))
    print_table(console, table)
    if spec.left_out is not None:
        say(console, f"Left out  {left_out_words(made)}")
    say(
        console,
        "RMSE and margin are in counts, for this plan; identity and workload are the RMSE of counting\n"
        "every cell and of asking the tables themselves, at the same budget; bound is an RMSE of the\n"
        "table that no strategy beats.",
        *(f"{name} is in other units: {unit}." for name, unit in spec.units.items()),
    )
    together = f"All tables together: RMSE {number(made.rmse)}"
    console.print(
        together + (f"; no strategy beats {number(made.bound)}" if made.bound else ""), markup=False
    )
    print_smallest(console, made.smallest, "this strategy meets")


def closing_words(made: Plan) -> str | None:
    """What to write for a release, where the budget was found from targets."""
    if not made.spec.open_budget:
        return None
    line = f'budget = "{decimal(made.spec.loss.amount)}"'
    return f"This is the smallest budget that meets the targets. To release, write {line}"


def summary(release: Release) -> dict[str, Any]:
    """What a run made, for machines."""
    about = release.about
    return {
        **summary_head(release),
        "tables": [
            {"table": name, "rows": row["queries"], "rmse": row["rmse"], "margin": row["margin"]}
            for name, row in about["expected"].items()
        ],
        "exact": [given.table.name for given in release.spec.invariants],
        **({"left_out": about["left_out"]} if "left_out" in about else {}),
    }


def print_summary(console: Console, release: Release, promise: str) -> None:
    """What a run made, for people."""
    console.print(f"Published {release.path}", markup=False)
    console.print(f"Promise   {promise}", markup=False)
    print_reach(console, release.spec)
    table = new_table("table", "rows", "RMSE", f"{release.level:.0%} margin", words=("table",))
    for name, row in release.about["expected"].items():
        table.add_row(name, f"{row['queries']:,}", number(row["rmse"]), number(row["margin"]))
    print_table(console, table)
    for given in release.spec.invariants:
        console.print(f"Exact, outside the promise: {given.table.name}. Why: {given.reason}", markup=False)
    for each in release.spec.earlier:
        console.print(f"Published before: {each.words}", markup=False)
    if (told := release.about.get("left_out")) is not None:
        say(console, f"Left out  {published_left_out_words(release.spec, told, release.level)}")


def check_document(path: Path, spec: Spec) -> dict[str, Any]:
    """What a spec that has no mistake is about, for machines."""
    tables, exact = len(spec.published.tables), len(spec.invariants)
    return {"spec": str(path), "tables": tables, "invariants": exact, "cells": str(spec.domain.size)}


def check_words(spec: Spec) -> str:
    """The same, for people."""
    tables, exact, figures = len(spec.published.tables), len(spec.invariants), len(spec.derived)
    more = f", {exact} {'set' if exact == 1 else 'sets'} of exact counts" if exact else ""
    if figures:
        more += f", {figures} derived {'figure' if figures == 1 else 'figures'}"
    return f"{tables} {'table' if tables == 1 else 'tables'} over {spec.domain.size:,} cells{more}"


def check_notes(spec: Spec) -> Iterator[str]:
    """What a plan may find besides: figures over attributes that no table has together, of which a strategy decides."""
    published = (*spec.workload.tables, *(given.table for given in spec.invariants))
    counted = [table.over(spec.domain) for table in published]
    for derived in spec.derived:
        for table in derived.figure.tables:
            if any(_may_hold(each, table.over(spec.domain)) for each in counted):
                continue
            named = ", ".join(map(repr, table.attributes))
            together = any(set(table.attributes) <= set(each.attributes) for each in counted)
            how = (
                "in more detail than any table counts them" if together else "together, which no table counts"
            )
            yield (
                f"Warning   derived figure {derived.name!r} needs {named} {how}: `plan` says whether it follows; a "
                "table of them makes sure of it"
            )
            break


def _may_hold(counted: Table, asked: Table) -> bool:
    """Whether rows of one table may be sums of rows of another: it tells all categories apart that they tell apart."""
    for name in asked.attributes:
        told = [term.factors[name].column_classes() for term in counted.terms if name in term.factors]
        asks = [term.factors[name].column_classes() for term in asked.terms if name in term.factors]
        if not told or _kinds([*told, *asks]) > _kinds(told):
            return False
    return True


def _kinds(labels: Sequence[np.ndarray]) -> int:
    """How many categories differ in some of the labels."""
    return np.unique(np.stack(labels), axis=1).shape[1]


def _print_exact(console: Console, exact: Exactness) -> None:
    """What is published without noise, before anything else is said."""
    say(console, *[*_own_exact(exact), *_earlier_exact(exact)])
    for warning in exact.warnings:
        say(console, f"Warning   {warning}")


def _own_exact(exact: Exactness) -> Iterator[str]:
    if not exact.tables:
        return
    counts = "1 count is" if exact.stated == 1 else f"{exact.stated:,} counts are"
    yield f"Exact     {counts} published without noise; no promise covers what they say, alone or together:"
    for table in exact.tables:
        yield f"            {table.name}: {table.what}. Why: {table.reason}"
    if others := exact.stated - exact.independent:
        follow = "the other follows" if others == 1 else f"the other {others:,} follow"
        named = (
            f" ({'; '.join(exact.following[:3])}{'; ...' if others > 3 else ''})" if exact.following else ""
        )
        yield f"          {exact.independent:,} of them are independent; {follow} from these{named}."
    for name, rows in exact.published.items():
        yield f"          In table {name} {_rows_exact(rows)} therefore."


def _earlier_exact(exact: Exactness) -> Iterator[str]:
    if not exact.earlier:
        return
    yield "Earlier   releases of this ledger have stated exactly:"
    for told in exact.earlier:
        yield f"            {told.name} ({told.release}). Why: {told.reason}"
    if exact.joint is not None:
        counts = (
            "1 independent exact count" if exact.joint == 1 else f"{exact.joint:,} independent exact counts"
        )
        yield f"          Together with this release that makes {counts}."


def _rows_exact(rows: int) -> str:
    return "1 count is exact" if rows == 1 else f"{rows:,} counts are exact"


def _target_words(row: TableError) -> str:
    if row.target is None:
        return ""
    kind = "RMSE" if row.confidence is None else f"{row.confidence:.0%} margin"
    return f"{kind} {number(row.target)}: {'met' if row.met else 'missed'}"


_AIMS = {
    "total": "its RMSE",
    "relative": "its RMSE over queries scaled to norm 1",
    "max": "its largest standard error",
    "targets": "its largest error beside a target",
}


def _further_words(made: Plan) -> Iterator[str]:
    """What it would take to look for less error, where that is a second or more."""
    for candidate in made.strategy.candidates:
        if candidate.further is not None and candidate.further[1] >= 1:
            tolerance, seconds = candidate.further
            yield f"--tolerance {tolerance:g}: {candidate.method} as well, about {seconds:.2g} s more"
            return


def strategy_words(made: Plan) -> str:
    """The strategy of a plan, and what is proven of it, in a line."""
    strategy = made.strategy
    words = f"{strategy.method}, {strategy.rows:,} noisy answers"
    if strategy.certificate is not None:
        times = (1 + strategy.certificate) ** 0.5
        near = f"within {times - 1:.2%} of" if times < 2 else f"at most {times:.1f} times"
        words += f"; {_AIMS[made.aim]} is proven {near} the best possible"
    return words


def plan_document(made: Plan) -> dict[str, Any]:
    """A plan for machines."""
    spec = made.spec
    return {
        "title": spec.title,
        "promise": promise_document(spec),
        "strategy": {
            "method": made.strategy.method,
            "noise": made.strategy.noise,
            "answers": made.strategy.rows,
            "certificate": made.strategy.certificate,
            "candidates": [
                {"method": c.method, "unit_rmse": c.rmse, "seconds": round(c.seconds, 3), "note": c.note}
                for c in made.strategy.candidates
            ],
        },
        "exact": None if made.exact is None else made.exact.document(),
        "warnings": list(made.warnings),
        "level": made.level,
        "rmse": made.rmse,
        "bound": made.bound,
        "tables": [vars(row) for row in made.table_errors],
        "smallest": None if made.smallest is None else made.smallest.document(),
        **({"left_out": [vars(each) for each in made.left_out]} if made.left_out else {}),
        **({"earlier": [each.document for each in spec.earlier]} if spec.earlier else {}),
    }


def query_note(release: Release) -> None:
    """Nothing: answers are of the estimator of the tables."""
