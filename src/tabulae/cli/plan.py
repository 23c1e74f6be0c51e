"""What ``tabulae plan`` prints: every table's expected error, beside what other choices would give."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table as RichTable

from ..errors import ReleaseError, Unsupported
from ..products.areas.plan import GeographyPlan
from ..products.groups.plan import DetailedPlan
from ..products.product import plan as make_plan
from ..products.tables.exactness import Exactness
from ..products.tables.plan import Plan, TableError, check_saved
from ..report.plan_page import check_target, write_plan_page
from ..spec import read_spec
from . import areas as commands_geography
from . import groups as commands_groups
from . import series as commands_series
from . import smallest as commands_smallest
from .output import (
    emit,
    loss_words,
    number,
    open_console,
    print_reach,
    print_table,
    progress,
    promise_document,
)


def plan(spec_path: Path, save: Path | None, json: bool, page: Path | None = None) -> None:
    """Print the expected error of every table, and write its page where one is asked for."""
    with progress() as say:
        _check_outputs(save, page)
        spec = read_spec(spec_path)
        say("choosing the strategy")
        made = make_plan(spec)
        if not isinstance(made, Plan):
            _check_save(made, save)
            _write_page(made, page, say)
            _plan_of_sections(made, json, page)
            return
        say("computing expected errors")
        rows = made.table_errors
        _write_page(made, page, say)
        if save is not None:
            made.save(save)
    if json:
        emit({**_plan_document(made, save), **_page_document(page)})
        return
    table = RichTable(title=spec.title or None, title_justify="left", caption_justify="left")
    aimed = spec.targets is not None
    headings = ("table", "rows", "RMSE", f"{made.level:.0%} margin", "identity", "workload", "bound")
    for heading in (*headings, "target") if aimed else headings:
        table.add_column(heading, justify="left" if heading == "table" else "right", overflow="fold")
    for r in rows:
        cells = (r.rmse, r.margin, r.identity, r.workload, r.bound)
        table.add_row(r.table, f"{r.queries:,}", *map(number, cells), *([_target_words(r)] if aimed else []))
    console = open_console()
    if made.exact is not None:
        _print_exact(console, made.exact)
    console.print(f"Promise   {loss_words(made.spec)}", markup=False)
    print_reach(console, made.spec)
    console.print(f"Strategy  {strategy_words(made)}", markup=False)
    print_table(console, table)
    console.print(
        "RMSE and margin are in counts, for this plan; identity and workload are the RMSE of counting\n"
        "every cell and of asking the tables themselves, at the same budget; bound is an RMSE of the\n"
        "table that no strategy beats.",
        markup=False,
        soft_wrap=True,
    )
    together = f"All tables together: RMSE {number(made.rmse)}"
    console.print(
        together + (f"; no strategy beats {number(made.bound)}" if made.bound else ""), markup=False
    )
    commands_smallest.print_smallest(console, made)
    commands_series.print_plan(console, made.spec)
    if spec.open_budget:
        line = f'budget = "{float(made.spec.loss.amount):.4g}"'
        console.print(
            f"This is the smallest budget that meets the targets. To release, write {line}", markup=False
        )
    if save is not None:
        console.print(
            f"Saved to {save}; `tabulae run --plan {save}` asks exactly these queries.", markup=False
        )
    _print_page(page)


def _check_save(made: DetailedPlan | GeographyPlan, save: Path | None) -> None:
    """Plans of these sections are not saved."""
    if save is not None:
        section = "detailed" if isinstance(made, DetailedPlan) else "geography"
        raise Unsupported(f"the plan of a spec with [{section}] follows from the spec: run it without {save}")


def _check_outputs(save: Path | None, page: Path | None) -> None:
    """What is asked for can be written, and is two files."""
    if page is not None:
        check_target(page)
    if save is not None:
        check_saved(save)
        if page is not None and save.resolve() == page.resolve():
            raise ReleaseError(f"--save and --html both name {save}: name two files")


def _write_page(
    made: Plan | DetailedPlan | GeographyPlan, page: Path | None, say: Callable[[str], None]
) -> None:
    if page is not None:
        say("computing other budgets")
        write_plan_page(made, page)


def _page_document(page: Path | None) -> dict[str, str | None]:
    """Where the page was written, for machines."""
    return {"html": None if page is None else str(page)}


def _print_page(page: Path | None) -> None:
    if page is not None:
        typer.echo(f"Wrote {page}, a page for a browser on which the budget can be moved.")


def _common_document(made: DetailedPlan | GeographyPlan, page: Path | None) -> dict[str, Any]:
    """What plans of groups and of areas end with, for machines."""
    return {**commands_series.plan_document(made.spec), **_page_document(page)}


def _plan_of_sections(made: DetailedPlan | GeographyPlan, json: bool, page: Path | None) -> None:
    """Print the plan of a spec with [detailed] or [geography]."""
    if isinstance(made, DetailedPlan):
        if json:
            emit({**commands_groups.plan_document(made), **_common_document(made, page)})
        else:
            commands_groups.print_plan(open_console(), made, loss_words(made.spec))
    elif json:
        emit({**commands_geography.plan_document(made), **_common_document(made, page)})
    else:
        commands_geography.print_plan(open_console(), made, loss_words(made.spec))
    if not json:
        commands_series.print_plan(open_console(), made.spec)
        _print_page(page)


def _print_exact(console: Console, exact: Exactness) -> None:
    """What is published without noise, before anything else is said."""
    for line in [*_own_exact(exact), *_earlier_exact(exact)]:
        console.print(line, markup=False, soft_wrap=True)
    for warning in exact.warnings:
        console.print(f"Warning   {warning}", markup=False, soft_wrap=True)


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


def strategy_words(made: Plan) -> str:
    """The strategy of a plan, and what is proven of it, in a line."""
    strategy = made.strategy
    words = f"{strategy.method}, {strategy.rows:,} noisy answers"
    if strategy.certificate is not None:
        times = (1 + strategy.certificate) ** 0.5
        near = f"within {times - 1:.2%} of" if times < 2 else f"at most {times:.1f} times"
        aim = "targets" if made.spec.targets is not None else made.spec.method.objective
        words += f"; {_AIMS[aim]} is proven {near} the best possible"
    return words


def _plan_document(made: Plan, save: Path | None) -> dict[str, Any]:
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
        "saved": None if save is None else str(save),
        **commands_series.plan_document(spec),
    }
