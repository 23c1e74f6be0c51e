"""What ``tabulae plan`` does and prints: the expected error of every table, before any data is opened."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import typer

from ..errors import InvalidArgument, ReleaseError, Unsupported
from ..products.product import plan as make_plan
from ..products.tables.plan import check_saved
from ..release.progress import Progress
from ..spec import Spec, read_spec
from . import series as commands_series
from .kinds import WORDS
from .output import emit, loss_words, open_console, print_row_bounds, progress, row_bound_document


def plan(
    spec_path: Path, save: Path | None, json: bool, page: Path | None = None, tolerance: float | None = None
) -> None:
    """Print the expected error of every table, and write its page where one is asked for."""
    with progress() as say:
        _check_outputs(save, page)
        spec = read_spec(spec_path)
        words = WORDS[spec.kind]
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
