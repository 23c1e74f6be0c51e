"""What `tabulae ledger init` and `tabulae ledger show` do and print."""

from __future__ import annotations

from pathlib import Path

import typer
from rich.table import Table as RichTable
from rich.text import Text

from ..privacy import WITHIN, Ledger, change_words
from .output import open_console, print_table


def init(
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


def show(path: Path, *, json: bool) -> None:
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
