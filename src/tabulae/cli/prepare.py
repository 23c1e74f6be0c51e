"""What is done before records are counted: a draft (``init``), the plan, and the ledger."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.table import Table as RichTable
from rich.text import Text

from ..errors import InvalidArgument, ReleaseError, Unsupported
from ..privacy import WITHIN, Ledger, change_words
from ..products.product import plan as make_plan
from ..products.tables.plan import check_saved
from ..release.folder import require_parent, write_bytes
from ..release.progress import Progress
from ..spec import Spec, read_spec
from . import series as commands_series
from .output import (
    emit,
    loss_words,
    open_console,
    print_row_bounds,
    print_table,
    progress,
    row_bound_document,
    words_of,
)

if TYPE_CHECKING:
    from ..sources.declared import DeclaredColumn
    from ..sources.source import RecordSource
    from ..spec.draft import Draft


def init(records: str, out: Path, peek: bool, table: str | None, json: bool) -> None:
    """Draft a spec for a file of records, a folder of them, or a table of a server."""
    if os.path.lexists(out):
        raise ReleaseError(f"{out} exists: name another file with --out")
    require_parent(out)
    from ..sources.declared import declared_columns  # reads SQL, which takes long to load
    from ..sources.declared import peek as peek_values
    from ..spec.draft import draft_of, source_of

    source = source_of(records, table)
    columns = declared_columns(source)
    if peek:
        looked = [c for c in columns if c.can_be_counted and not c.has_domain]
        with progress() as say:
            say(Progress("reading the records"))
            columns = peek_values(source, columns)
        _warn_of_peek(source, looked, out)
    drafted = draft_of(source, columns, out.parent, peeked=peek)
    lists = {out.parent / name: content for name, content in drafted.code_lists.items()}
    for place in lists:
        if os.path.lexists(place):
            raise ReleaseError(f"{place} exists, and a code list would be written there: move it")
    for place, content in lists.items():
        place.parent.mkdir(exist_ok=True)
        write_bytes(place, content.encode())
    write_bytes(out, drafted.text.encode())
    _print_draft(drafted, out, json)


def _warn_of_peek(source: RecordSource, looked: Sequence[DeclaredColumn], out: Path) -> None:
    """Say on stderr what was looked at."""
    if not looked:
        typer.echo(f"--peek: nothing to look at: {source.name} declares every domain", err=True)
        return
    typer.echo(
        f"--peek: read every record of {source.name}, in the columns without a declared domain:", err=True
    )
    for column in looked:
        typer.echo(f"  {column.name!r}", err=True)
    typer.echo(
        f"What was found stands in {out}, which is confidential until public domains have replaced it.",
        err=True,
    )


def _print_draft(drafted: Draft, out: Path, json: bool) -> None:
    counts = {
        "columns": drafted.columns,
        "declared": len(drafted.declared),
        "found": len(drafted.found),
        "labelled": len(drafted.labelled),
        "todo": len(drafted.todo),
        "left_out": drafted.left_out,
    }
    if json:
        emit({"spec": str(out), **counts, "finished": drafted.is_finished})
        return
    typer.echo(f"Drafted {out} from {counts['columns']} columns:")
    told = {
        "declared": "with a domain that the file declares",
        "found": "with values found in the records, to be replaced by public ones",
        "labelled": "with value labels of the file (codes/), to be confirmed as public",
        "todo": "whose values are to be listed, or which are to be deleted",
        "left_out": "that cannot be counted as they are",
    }
    for key, words in told.items():
        if counts[key]:
            typer.echo(f"  {counts[key]:>4} {words}")
    typer.echo(f"Next: edit it, then\n  tabulae check {out}\n  tabulae plan {out}")


def plan(
    spec_path: Path, save: Path | None, json: bool, page: Path | None = None, tolerance: float | None = None
) -> None:
    """Print the expected error of every table, and write its page where one is asked for."""
    with progress() as say:
        _check_outputs(save, page)
        spec = read_spec(spec_path)
        words = words_of(spec.kind)
        if save is not None:
            _check_saved_plans(words.FOLLOWS_FROM, save)
        if tolerance is not None:
            spec = _within(spec, words.FOLLOWS_FROM, tolerance)
        say(Progress("choosing the strategy"))
        made = make_plan(spec)
        say(Progress("computing expected errors"))
        document = words.plan_document(made) if json else None
        if page is not None:
            say(Progress("computing other budgets"))
            from ..report.plan_page import write_plan_page  # pages take a quarter of a second to load

            write_plan_page(made, page)
        if save is not None:
            made.save(save)
    if document is not None:
        saved = {} if words.FOLLOWS_FROM else {"saved": None if save is None else str(save)}
        html = {"html": None if page is None else str(page)}
        bounds = row_bound_document(made.spec)
        rows = {"row_bounds": bounds} if bounds else {}
        document |= {"needs": asdict(made.needs)}
        emit({**document, **saved, **rows, **commands_series.plan_document(made.spec), **html})
        return
    console = open_console()
    words.print_plan(console, made, loss_words(made.spec))
    print_row_bounds(console, made.spec)
    commands_series.print_plan(console, made.spec)
    if line := words.closing_words(made):
        console.print(line, markup=False)
    if save is not None:
        console.print(
            f"Saved to {save}; `tabulae run --plan {save}` asks exactly these queries.", markup=False
        )
    if page is not None:
        typer.echo(f"Wrote {page}, a page for a browser on which the budget can be moved.")


def _within(spec: Spec, section: str | None, tolerance: float) -> Spec:
    """The spec with another tolerance: it decides how long a strategy is looked for, and nothing that is promised."""
    if section is not None:
        raise Unsupported(
            f"--tolerance: a spec with [{section}] writes its queries down, so none are looked for: leave it out"
        )
    if not 0 < tolerance < math.inf:
        raise InvalidArgument(
            f"--tolerance is {tolerance:g}: give a number above 0, such as 0.001 for 0.1 % of squared error"
        )
    return replace(spec, method=replace(spec.method, tolerance=tolerance))


def _check_saved_plans(section: str | None, save: Path) -> None:
    if section is not None:
        raise Unsupported(f"the plan of a spec with [{section}] follows from the spec: run it without {save}")


def _check_outputs(save: Path | None, page: Path | None) -> None:
    if page is not None:
        from ..report.plan_page import check_target

        check_target(page)
    if save is not None:
        check_saved(save)
        if page is not None and save.resolve() == page.resolve():
            raise ReleaseError(f"--save and --html both name {save}: name two files")


def ledger_init(
    path: Path, budget: str, definition: str, neighbours: str, unit: str, delta: str | None, *, json: bool
) -> None:
    """Create a ledger."""
    ledger = Ledger.create(path, budget, definition, neighbours=neighbours, unit=unit, delta=delta)
    if json:
        typer.echo(ledger.export_json())
    else:
        typer.echo(
            f"Created {path}: {ledger.budget!r}, {change_words(ledger.neighbours, ledger.unit)}; nothing spent yet"
        )


def ledger_show(path: Path, *, json: bool) -> None:
    """Show a ledger."""
    ledger = Ledger.open(path)
    if json:
        typer.echo(ledger.export_json())
        return
    console = open_console()
    console.print(f"{path}: {ledger.budget!r}, {change_words(ledger.neighbours, ledger.unit)}", markup=False)
    console.print(f"spent {ledger.spent}, remaining {ledger.remaining}", markup=False)
    table = RichTable()
    for heading in ("#", "time (UTC)", "title", "loss", "state", "release id"):
        table.add_column(heading, overflow="fold", no_wrap=heading in ("#", "time (UTC)", "loss"))
    charges = ledger.charges()
    for c in charges:
        losses = ", ".join(str(v) for v in c.loss.parameters.values())
        table.add_row(str(c.sequence), c.time, Text(c.title), losses, c.state, c.release_id)
    print_table(console, table)
    places = {c.release_id: c.sequence for c in charges}
    for c in charges:
        if c.follows is not None:
            told = "corrects" if c.relation == "correction" else "follows"
            console.print(f"Release {c.sequence} {told} release {places[c.follows]}", markup=False)
    if disclosures := ledger.disclosures():
        exact = RichTable(title="Stated exactly, outside the promise", title_justify="left")
        for heading in ("#", "counts", "of", "reason"):
            exact.add_column(heading, overflow="fold")
        for charge, told in disclosures:
            words = (told.table, " by ".join(told.attributes) or "all records", told.reason)
            exact.add_row(str(charge.sequence), *map(Text, words))
        print_table(console, exact)
        words = "Together they may determine more than any one of them says."
        if ledger.neighbours == WITHIN:
            words += f" The losses are for one {ledger.unit} replaced such that none of these counts changes."
        console.print(words, markup=False)
    console.print(f"head {ledger.head}", markup=False, soft_wrap=True)
