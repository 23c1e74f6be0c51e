"""How every command prints: progress, documents for machines, and the words for a promise."""

from __future__ import annotations

import json as json_module
import math
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from importlib import import_module
from types import ModuleType
from typing import Any

import typer
from rich.console import Console
from rich.measure import Measurement
from rich.progress import BarColumn, ProgressColumn, SpinnerColumn, Task, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.table import Column, Table
from rich.text import Text

from ..privacy import WITHIN, PrivacyLoss, change_words, decimal, rounded_up
from ..products.product import ResourceEstimate, row_bound_costs
from ..products.smallest import Smallest
from ..release import Release
from ..release.progress import Progress, Say, quiet
from ..sources.memory import size_words
from ..spec import Spec

_NARROW = 100
_LEAST_WORDS = 16  # characters that a column of words may shrink to
_SAID = 5_000  # bytes: smaller parts are left out


@contextmanager
def progress() -> Iterator[Say]:
    """On stderr the step that is under way, how much of the whole is done and how long the rest takes.

    Nothing where nobody watches. Asked of the stream itself: FORCE_COLOR, which notebooks set, is about colours, and a
    pipe stays a pipe.
    """
    console = Console(stderr=True)
    if not sys.stderr.isatty() or console.is_dumb_terminal:
        yield quiet
        return
    bar = BarColumn(bar_width=20)
    columns = (
        SpinnerColumn(),
        bar,
        _Share(),
        TextColumn("{task.description}", markup=False),
        TimeElapsedColumn(),
        _Left(),
    )
    with Bars(*columns, console=console, transient=True) as shown:
        task = shown.add_task("starting", total=None)

        def say(told: Progress) -> None:
            ends = None if told.left is None else time.monotonic() + told.left
            total = None if told.share is None else 1.0
            shown.update(task, description=told.step, ends=ends, total=total, completed=told.share)

        yield say


class _Share(ProgressColumn):
    """How much of the whole is done, where that is known."""

    def render(self, task: Task) -> Text:
        return Text("" if task.total is None else f"{task.completed:4.0%}")


class _Left(ProgressColumn):
    """How long the rest takes, counted down between two steps."""

    def render(self, task: Task) -> Text:
        ends = task.fields.get("ends")
        return Text("" if ends is None else f"about {duration(max(0.0, ends - time.monotonic()))} left")


def duration(seconds: float) -> str:
    """A length of time in words, to two digits at most.

    >>> [duration(s) for s in (0.2, 4.4, 75, 3700, 40_000)]
    ['1 s', '4 s', '75 s', '62 min', '11 h']
    """
    for unit, name in ((3600, "h"), (60, "min")):
        if seconds >= 1.5 * unit:
            return f"{round(seconds / unit)} {name}"
    return f"{max(1, round(seconds))} s"


def emit(document: Any) -> None:
    """Print a document for machines."""
    typer.echo(json_module.dumps(document, indent=1, ensure_ascii=False))


def open_console(filed: int = _NARROW) -> Console:
    """Where tables for people are printed: as wide as the terminal, and of one width into a file."""
    width = None if sys.stdout.isatty() else filed
    return Console(width=width, soft_wrap=False, highlight=False, markup=False, emoji=False)


def new_table(*headings: str, words: Sequence[str] = (), title: str | None = None) -> Table:
    """A table whose columns hold numbers, but for some of words."""
    table = Table(title=title or None, title_justify="left")
    for heading in headings:
        table.add_column(heading, justify="left" if heading in words else "right", overflow="fold")
    return table


def say(console: Console, *lines: str) -> None:
    """Print lines for people as they are; a terminal may break them."""
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)


def print_table(console: Console, table: Table) -> None:
    """Print a table; where numbers would not fit beside each other, row by row, each number with its heading.

    Columns at the right hold numbers, which are never broken; those at the left hold words. A terminal may break a
    long one. A file is as wide as its longest words need, so that each name can be found in it.
    """
    for column in table.columns:
        column.no_wrap = column.no_wrap or column.justify == "right"
        column.overflow = "fold"
    whole = [_least_width(console, column, math.inf) for column in table.columns]
    broken = [_least_width(console, column, _LEAST_WORDS) for column in table.columns]
    for widths in (whole, broken):
        width = sum(widths) + 3 * len(widths) + 1
        if width <= console.width or not sys.stdout.isatty():
            for column, least in zip(table.columns, widths, strict=True):
                column.min_width = least
            console.print(table, width=max(width, console.width), crop=False)
            return
    if table.title:
        console.print(table.title, markup=False, soft_wrap=True, style="italic")
    first, *others = table.columns
    before = ""
    for name, *cells in zip(*(column.cells for column in table.columns), strict=True):
        before = str(name) or before
        head = f"{first.header} {before}," if first.justify == "right" else f"{before}:"
        told = [f"{column.header} {cell}," for column, cell in zip(others, cells, strict=True) if str(cell)]
        for line in _filled([head, *told], console.width):
            console.print(line, markup=False, soft_wrap=True)


def _least_width(console: Console, column: Column, broken: float) -> int:
    """How narrow a column may be, if words may be broken that are longer than so many letters."""
    cells = [Measurement.get(console, console.options, Text(str(cell))) for cell in column.cells]
    heading = Measurement.get(console, console.options, Text(str(column.header))).minimum
    if column.no_wrap:
        return max([heading, *(cell.maximum for cell in cells)])
    return int(min(broken, max([heading, *(cell.minimum for cell in cells)])))


def _filled(parts: list[str], width: int) -> Iterator[str]:
    """Parts one after the other, in lines of at most a width unless one part is longer; later lines are set in."""
    line = parts[0]
    for part in parts[1:]:
        if len(line) + 1 + len(part) > width:
            yield line
            line = f"  {part}"
        else:
            line = f"{line} {part}"
    yield line.rstrip(",")


def number(value: float | None) -> str:
    """A count or an error in a table.

    >>> number(1234.56), number(0.5), number(None)
    ('1,234.6', '0.50', '-')
    """
    if value is None:
        return "-"
    return f"{value:,.1f}" if value >= 100 else f"{value:.2f}"


def loss_words(spec: Spec) -> str:
    """What a spec promises, in a line."""
    parts = ", ".join(f"{name} {value}" for name, value in spec.loss.parameters.items())
    words = f"{spec.loss.definition}: {parts}, {change_words(spec.neighbours, spec.unit)}"
    if spec.unit_id is not None:
        words += f", at most {spec.rows_per_unit} row{'s' if spec.rows_per_unit > 1 else ''} of each counted"
    return words + epsilon_words(spec.loss, spec.delta)


def epsilon_words(loss: PrivacyLoss, delta: Fraction | None) -> str:
    """The epsilon that a concentrated loss implies, of a release or of a sum of several; nothing for another loss.

    It is the definition's own conversion, so that it is the same wherever the same loss is told.

    >>> from tabulae.privacy import ZCDP
    >>> epsilon_words(ZCDP("1/2"), Fraction(1, 10**10)), epsilon_words(ZCDP("1/2"), None)
    (' (epsilon 6.84 at delta 1e-10)', '')
    """
    if loss.definition != "zcdp" or delta is None:
        return ""
    return f" (epsilon {rounded_up(loss.epsilon(delta)):.4g} at delta {delta_words(delta)})"


def delta_words(delta: Fraction) -> str:
    """A delta as people write it where that is exact, or else as a fraction.

    >>> delta_words(Fraction(1, 10**10)), delta_words(Fraction(1, 3 * 10**9))
    ('1e-10', '1/3000000000')
    """
    short = f"{float(delta):g}"
    return short if Fraction(short) == delta else str(delta)


def promise_document(spec: Spec) -> dict[str, Any]:
    """What a spec promises, for machines."""
    return {
        "definition": spec.loss.definition,
        **{name: str(value) for name, value in spec.loss.parameters.items()},
        "neighbours": spec.neighbours,
        "unit": spec.unit,
        "rows_per_unit": spec.rows_per_unit,
        **({} if spec.source.where is None else {"where": spec.source.where.text}),
        "found_from_targets": spec.open_budget,
    }


def row_bound_document(spec: Spec) -> list[dict[str, Any]]:
    """What bounds on the rows of a unit cost, for machines: factors as fractions."""
    return [
        {
            "rows": each.rows,
            "noise": str(each.noise),
            "budget": None if each.budget is None else str(each.budget),
        }
        for each in row_bound_costs(spec)
    ]


def needs_words(needs: ResourceEstimate) -> Iterator[str]:
    """What a run takes of a machine, in lines."""
    rest, more = (f"{n:.1f} s" if n < 10 else duration(n) for n in (needs.seconds, needs.seconds_of_million))
    yield f"Time      about as long as this plan, then {rest} of one core, and {more} for each million records"
    kept = {"measurements": needs.measurements, "work": needs.work, "tables and pages": needs.tables}
    parts = (f"{what} {size_words(size)}" for what, size in kept.items() if size >= _SAID)
    beside = f"; and at most {size_words(needs.million)} for each million records" if needs.million else ""
    yield f"Disk      about {size_words(needs.disk)}: {', '.join(parts)}{beside}"
    yield f"Memory    about {size_words(needs.memory)} and, with --memory SIZE, the rest of it for counting"


def print_row_bounds(console: Console, spec: Spec) -> None:
    """What bounds on the rows of a unit cost, for people."""
    costs = row_bound_costs(spec)
    if not costs:
        return
    say(
        console,
        f"Rows      {spec.rows_per_unit:,} of one {spec.unit} at most: more need more noise, fewer leave more rows out",
    )
    table = new_table("rows_per_unit", "errors at this budget", "budget for these errors")
    for each in costs:
        own = " (as written)" if each.rows == spec.rows_per_unit else ""
        budget = "-" if each.budget is None else f"x {float(each.budget):.3g}"
        table.add_row(f"{each.rows:,}{own}", f"x {float(each.noise):.3g}", budget)
    print_table(console, table)


def summary_head(release: Release) -> dict[str, Any]:
    """Where a release is and which, for machines."""
    return {
        "release": str(release.path),
        "release_id": release.about["release_id"],
        "title": release.spec.title,
        "report": str(release.path / "report.html"),
    }


def print_reach(console: Console, spec: Spec) -> None:
    """What the promise is about, where some records are counted, or some counts are exact."""
    if spec.source.where is not None:
        console.print(f"Counted   records for which {spec.source.where.text}", markup=False)
    if not spec.invariants:
        return
    words = "It covers what the exact counts leave open, and nothing that they determine."
    if spec.neighbours == WITHIN:
        words = f"It covers replacing one {spec.unit} by another only where every exact count stays as it is."
    console.print(f"          {words}", markup=False)


def words_of(kind: str) -> ModuleType:
    """The module of a kind of release, loaded when it is asked for: all three take a tenth of a second.

    Each has ``plan_document``, ``print_plan``, ``closing_words``, ``summary``, ``print_summary``, ``check_document``,
    ``check_words``, ``check_notes``, ``query_note``, and ``FOLLOWS_FROM``: the section that its plans follow from, or
    None where plans are saved.
    """
    return import_module(f".{kind}", __package__)


def print_smallest(console: Console, smallest: Smallest | None, whose: str, more: Iterable[str] = ()) -> None:
    """What the targets of a plan need; nothing without targets.

    Arguments:
        whose: what meets the targets, and "meets".
    """
    if smallest is not None:
        say(console, *smallest_words(smallest, whose, more))


def smallest_words(smallest: Smallest, whose: str, more: Iterable[str] = ()) -> Iterator[str]:
    """The same in lines."""
    yield from _judged(smallest)
    if smallest.loss is not None:
        name, amount = next(iter(smallest.loss.parameters)), decimal(smallest.loss.amount)
        yield f"Smallest  {name} {amount} is the smallest budget with which {whose} all targets."
        if smallest.lower is not None and smallest.best is None:
            yield f"          No strategy does with less than {name} {decimal(smallest.lower.amount)}."
    for level in smallest.levels:
        if level.smallest is not None and level.smallest.amount != level.budget.amount:
            needs = decimal(level.smallest.amount)
            yield f"            {level.level}: needs {needs}, and has {decimal(level.budget.amount)}"
    yield from more
    if smallest.note:
        yield f"          {smallest.note}"


def _judged(smallest: Smallest) -> Iterator[str]:
    if smallest.written is None:
        return
    met, told = sum(row.met is True for row in smallest.targets), len(smallest.targets)
    name, amount = next(iter(smallest.written.parameters)), decimal(smallest.written.amount)
    if any(row.met is None for row in smallest.targets):
        yield f"Targets   {name} {amount}: whether targets by the paper's formula are met is not told."
    else:
        yield f"Targets   {name} {amount} {_met_words(met, told)}."


def _met_words(met: int, told: int) -> str:
    """How many targets are met.

    >>> _met_words(1, 1), _met_words(0, 1), _met_words(3, 3), _met_words(1, 3)
    ('meets its one target', 'misses its one target', 'meets all 3 targets', 'meets 1 of 3 targets')
    """
    if told == 1:
        return "meets its one target" if met else "misses its one target"
    return f"meets {'all' if met == told else f'{met} of'} {told} targets"
