"""What commands print of specs and releases with [detailed]."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable

from ..privacy import decimal, rounded_up
from ..products.groups.levels import PopulationLevel
from ..products.groups.plan import DetailedPlan, GroupTableError, SizeRow, detailed_of
from ..products.groups.publish import rung_name
from ..release import Release
from ..spec import Spec
from .output import (
    delta_words,
    needs_words,
    new_table,
    print_smallest,
    print_table,
    promise_document,
    say,
    summary_head,
)

_NEARLY_NONE = 0.0005
_TEXT = ("level", "table", "thresholds")

FOLLOWS_FROM = "detailed"


def plan_document(made: DetailedPlan) -> dict[str, Any]:
    """A plan for machines."""
    spec = made.spec
    return {
        "title": spec.title,
        "promise": promise_document(spec),
        "epsilon": _epsilon_document(made),
        "level": made.level,
        "levels": [_level_document(made, i, level) for i, level in enumerate(made.adaptive.levels)],
        "tables": [vars(row) for row in made.table_errors],
        "smallest": None if made.smallest is None else made.smallest.document(),
    }


def _epsilon_document(made: DetailedPlan) -> dict[str, Any] | None:
    if made.epsilon is None:
        return None
    value, how = made.epsilon
    return {"epsilon": value, "delta": str(made.spec.delta), "how": how}


def _level_document(made: DetailedPlan, i: int, level: PopulationLevel) -> dict[str, Any]:
    return {
        "level": level.name,
        "region": level.regions.name,
        "group_level": level.group_level,
        "regions": level.regions.size,
        "groups": len(level.groups),
        "budget": str(level.budget.amount),
        "found_from_target": i in made.found,
        "thresholds": list(level.thresholds),
        "stability": {
            "used": level.groups_of_a_record,
            "proven": level.proven.value,
            "is_exact": level.proven.is_exact,
            "record": {family: list(codes) for family, codes in level.proven.witness.items()},
        },
        "laws": {
            stage: {"name": law.name, law.word: str(law.parameter)}
            for stage, law in (("first", level.first), ("second", level.second), ("whole", level.whole))
            if law is not None
        },
        "rehearsal": [_decade_document(row) for row in made.rehearsal[i]],
    }


def print_plan(console: Console, made: DetailedPlan, promise: str) -> None:
    """A plan for people."""
    say(console, f"Promise   {promise}", *_epsilon_words(made), *_noted(made))
    print_table(console, _levels_table(made))
    say(console, *_stability_words(made))
    print_table(console, _errors_table(made))
    say(
        console,
        "RMSE and margin are in counts, of each count as it is drawn: public counts choose the tables."
        if made.chosen_by_counts
        else "RMSE and margin are in counts, of each count of the second stage as it is drawn; what is published\n"
        "joins both stages, with smaller errors for most groups.",
    )
    print_table(console, _rehearsal_table(made))
    say(
        console,
        f"Which table a group of {'a public count of ' * made.chosen_by_counts}so many gets, before any data is "
        "opened. A line is the average over the sizes of its\n"
        "decade, spread evenly on a logarithmic scale: as many groups of 1,000 to 2,000 as of 2,000 to 4,000.",
    )
    print_smallest(console, made.smallest, "these levels meet")
    say(console, *_budget_lines(made))


def _epsilon_words(made: DetailedPlan) -> Iterator[str]:
    if made.loss.definition == "pure" and made.epsilon is not None and made.spec.delta is not None:
        value, how = made.epsilon
        yield f"          epsilon {rounded_up(value):.4g} at delta {delta_words(made.spec.delta)}, {how}"


def _noted(made: DetailedPlan) -> Iterator[str]:
    places = sum(level.places for level in made.adaptive.levels)
    yield f"Groups    {places:,} counts of groups in regions, in {len(made.adaptive.levels)} levels"
    yield from needs_words(made.needs)
    if (counts := detailed_of(made.spec).counts) is not None:
        yield f"Tables    chosen by {counts.name}, public counts (SHA-256 {counts.sha256}), at no cost"


def _levels_table(made: DetailedPlan) -> RichTable:
    headings = ("level", "regions", "groups", "budget", "groups a record", "thresholds")
    table = new_table(*headings, words=_TEXT, title=made.spec.title)
    for level in made.adaptive.levels:
        table.add_row(
            level.name,
            f"{level.regions.size:,}",
            f"{len(level.groups):,}",
            decimal(level.budget.amount),
            f"{'' if level.proven.is_exact else 'at most '}{level.groups_of_a_record}",
            ", ".join(map(str, level.thresholds)),
        )
    return table


def _stability_words(made: DetailedPlan) -> Iterator[str]:
    """For each stability a record that attains it."""
    seen = {}
    for level in made.adaptive.levels:
        seen.setdefault((level.proven.value, level.proven.is_exact, str(level.proven.witness)), []).append(
            level
        )
    for levels in seen.values():
        proven, names = levels[0].proven, "; ".join(level.name for level in levels)
        record = ", ".join(f"{family} {' and '.join(codes)}" for family, codes in proven.witness.items())
        groups = "1 group" if proven.value == 1 else f"{proven.value} groups"
        if proven.is_exact:
            yield f"{names}: no record belongs to more than {groups}; one with {record} does."
        else:
            yield f"{names}: proven that no record belongs to more than {groups}."


def _errors_table(made: DetailedPlan) -> RichTable:
    aimed = any(row.target is not None for row in made.table_errors)
    headings = ("level", "table", "cells", "RMSE", f"{made.level:.0%} margin")
    table = new_table(*headings, *(["target"] if aimed else []), words=_TEXT)
    before = None
    for row in made.table_errors:
        name = "" if row.level == before else row.level
        before = row.level
        numbers = (f"{row.cells:,}", f"{row.rmse:,.2f}", f"{row.margin:,}")
        table.add_row(name, row.table, *numbers, *([_target_words(row)] if aimed else []))
    return table


def _target_words(row: GroupTableError) -> str:
    if row.target is None:
        return ""
    words = f"{row.confidence:.0%} margin {row.target:,}"
    return words if row.met is None else f"{words}: {'met' if row.met else 'missed'}"


def _decade_document(row: SizeRow) -> dict[str, Any]:
    document = {"low": row.low, "high": row.high, "shares": list(row.shares)}
    if row.published is not None or row.total_only_published is not None:
        document |= {"published": row.published, "total_only_published": row.total_only_published}
    return document


def _rehearsal_table(made: DetailedPlan) -> RichTable:
    """Shares of groups by table, for each decade of size until nearly all get the last table."""
    names = ["total", *(rung.name for rung in detailed_of(made.spec).rungs)]
    table = new_table("level", "size of the group", *names, words=("level",))
    for level, rows in zip(made.adaptive.levels, made.rehearsal, strict=True):
        name = level.name
        for row in rows:
            share = dict(zip((rung_name(level, r) for r in range(len(row.shares))), row.shares, strict=True))
            shares = (f"{share[n]:.1%}" if share.get(n, 0) >= _NEARLY_NONE else "" for n in names)
            table.add_row(name, f"{row.low:,} to {row.high:,}", *shares)
            name = ""
            if row.shares[-1] > 1 - _NEARLY_NONE:
                break
    return table


def _budget_lines(made: DetailedPlan) -> Iterator[str]:
    if not made.found:
        return
    yield "These are the smallest budgets that meet the targets. To release, write under [privacy]"
    yield f'  budget = "{decimal(made.loss.amount)}"'
    rules = detailed_of(made.spec).levels
    for i in sorted(made.found):
        amount = decimal(made.adaptive.levels[i].budget.amount)
        yield f'and in detailed.level[{i}] ({rules[i].region}, {rules[i].group_level})\n  budget = "{amount}"'


def closing_words(made: DetailedPlan) -> None:
    """Nothing: budgets that are found stand with the levels."""


def summary(release: Release) -> dict[str, Any]:
    """What a run made, for machines."""
    about = release.about
    return {
        **summary_head(release),
        "tables": [{"table": name, "rows": rows} for name, rows in about["rows"].items()],
        "levels": about["levels"],
    }


def print_summary(console: Console, release: Release, promise: str) -> None:
    """What a run made, for people."""
    console.print(f"Published {release.path}", markup=False)
    say(console, f"Promise   {promise}")
    known = ("total only", "total", *(rung.name for rung in detailed_of(release.spec).rungs))
    names = [
        name for name in known if any(name in told["groups_by_table"] for told in release.about["levels"])
    ]
    title = "Groups in regions, by the table that each got"
    table = new_table("level", *names, words=("level",), title=title)
    for told in release.about["levels"]:
        table.add_row(told["level"], *(f"{told['groups_by_table'].get(name, 0):,}" for name in names))
    print_table(console, table)
    for name, rows in release.about["rows"].items():
        console.print(f"  tables/{name}.csv   {rows:,} rows", markup=False)


def check_document(path: Path, spec: Spec) -> dict[str, Any]:
    """What a spec that has no mistake is about, for machines."""
    detailed = detailed_of(spec)
    groups = len(detailed.groups.groups)
    return {
        "spec": str(path),
        "levels": len(detailed.levels),
        "groups": groups,
        "tables": len(detailed.rungs),
    }


def check_words(spec: Spec) -> str:
    """The same, for people."""
    told = check_document(Path(), spec)
    return f"{told['groups']:,} groups in {told['levels']} levels, {told['tables']} tables beside the total"


def check_notes(spec: Spec) -> tuple[str, ...]:
    """Nothing: every derived statistic follows from the tables that are counted."""
    return ()


def query_note(release: Release) -> None:
    """Nothing: groups answer no queries."""
