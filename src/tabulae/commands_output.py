"""How every command prints: progress, documents for machines, and the words for a promise."""

from __future__ import annotations

import json as json_module
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console

from .privacy import WITHIN
from .privacy.conversions import rounded_up
from .spec import Spec

_NARROW = 100


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """A line on stderr while a step lasts; nothing where nobody watches."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda message: None
        return
    with console.status("starting") as status:
        yield lambda message: status.update(message)


def emit(document: Any) -> None:
    """Print a document for machines."""
    typer.echo(json_module.dumps(document, indent=1, ensure_ascii=False))


def open_console() -> Console:
    """Where tables for people are printed: as wide as the terminal, and of one width into a file."""
    width = None if sys.stdout.isatty() else _NARROW
    return Console(width=width, soft_wrap=False, highlight=False)


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
    words = f"{spec.loss.definition}: {parts}, {spec.neighbours} one {spec.unit}"
    if spec.unit_id is not None:
        words += f", at most {spec.rows_per_unit} row{'s' if spec.rows_per_unit > 1 else ''} of each counted"
    if spec.loss.definition == "zcdp" and spec.delta is not None and spec.detailed is None:
        words += f" (epsilon {rounded_up(spec.loss.epsilon(spec.delta)):.4g} at delta {spec.delta})"
    return words


def promise_document(spec: Spec) -> dict[str, Any]:
    """What a spec promises, for machines."""
    return {
        "definition": spec.loss.definition,
        **{name: str(value) for name, value in spec.loss.parameters.items()},
        "neighbours": spec.neighbours,
        "unit": spec.unit,
        "rows_per_unit": spec.rows_per_unit,
        "found_from_targets": spec.open_budget,
    }


def print_reach(console: Console, spec: Spec) -> None:
    """What the promise is about, where some counts are exact."""
    if not spec.invariants:
        return
    words = "It covers what the exact counts leave open, and nothing that they determine."
    if spec.neighbours == WITHIN:
        words = f"It covers replacing one {spec.unit} by another only where every exact count stays as it is."
    console.print(f"          {words}", markup=False)
