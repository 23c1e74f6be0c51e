"""What each command does and prints; the command line itself stays light and loads this on use."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import typer
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from . import app, commands_geography, commands_groups
from .audit import Audit
from .audit import audit as make_audit
from .commands_output import emit, loss_words, number, open_console, print_reach, progress, promise_document
from .demo import write_demo
from .errors import ReleaseError, Unsupported
from .planning import DetailedPlan, Exactness, GeographyPlan, Plan, TableError
from .planning import plan as make_plan
from .privacy import Ledger
from .release import Release
from .spec import read_spec

_ROWS_PRINTED = 40


def demo(out: Path, people: int, json: bool) -> None:
    """Write the built-in population and spec, create a ledger, run the release."""
    started = time.monotonic()
    if out.exists():
        raise ReleaseError(f"{out} exists: remove it, or choose another folder with --out")
    with progress() as say:
        say("inventing people")
        spec_path = write_demo(out, people)
        spec = read_spec(spec_path)
        assert spec.ledger is not None
        Ledger.create(spec.ledger, spec.loss, neighbours=spec.neighbours, unit=spec.unit)
        release = app.run(spec, out / "release", say=say)
    if json:
        emit({**_summary(release), "spec": str(spec_path), "seconds": round(time.monotonic() - started, 1)})
        return
    _print_summary(release)
    typer.echo(f"\nMade in {time.monotonic() - started:.0f} s. Look at:")
    typer.echo(f"  {release.path / 'report.html'}   the report, for a browser")
    typer.echo(f"  {release.path / 'tables'}/       the tables, as CSV and Parquet")
    typer.echo(f"  {spec_path}   the document that it was made from")
    typer.echo("Ask it something (costs no privacy budget):")
    typer.echo(
        f'  tabulae query {release.path} "SELECT sex, COUNT(*) FROM people WHERE age < 5 GROUP BY sex"'
    )


def plan(spec_path: Path, save: Path | None, json: bool) -> None:
    """Print the expected error of every table."""
    with progress() as say:
        spec = read_spec(spec_path)
        say("choosing the strategy")
        made = make_plan(spec)
        if not isinstance(made, Plan):
            _plan_of_sections(made, save, json)
            return
        say("computing expected errors")
        rows = made.table_errors
        if save is not None:
            made.save(save)
    if json:
        emit(_plan_document(made, save))
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
    console.print(f"Strategy  {_strategy_words(made)}", markup=False)
    console.print(table)
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
    if spec.open_budget:
        line = f'budget = "{float(made.spec.loss.amount):.4g}"'
        console.print(
            f"This is the smallest budget that meets the targets. To release, write {line}", markup=False
        )
    if save is not None:
        console.print(
            f"Saved to {save}; `tabulae run --plan {save}` asks exactly these queries.", markup=False
        )


def _plan_of_sections(made: DetailedPlan | GeographyPlan, save: Path | None, json: bool) -> None:
    """Print the plan of a spec with [detailed] or [geography]."""
    if save is not None:
        section = "detailed" if isinstance(made, DetailedPlan) else "geography"
        raise Unsupported(f"the plan of a spec with [{section}] follows from the spec: run it without {save}")
    if isinstance(made, DetailedPlan):
        if json:
            emit(commands_groups.plan_document(made))
        else:
            commands_groups.print_plan(open_console(), made, loss_words(made.spec))
    elif json:
        emit(commands_geography.plan_document(made))
    else:
        commands_geography.print_plan(open_console(), made, loss_words(made.spec))


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


def _strategy_words(made: Plan) -> str:
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
        "saved": None if save is None else str(save),
    }


def run(spec: Path, out: Path, plan_file: Path | None, source: Path | None, resume: bool, json: bool) -> None:
    """Make the release and print its summary."""
    with progress() as say:
        release = app.run(spec, out, plan_file=plan_file, source=source, resume=resume, say=say)
    if json:
        emit(_summary(release))
    else:
        _print_summary(release)


def _summary(release: Release) -> dict[str, Any]:
    if release.spec.detailed is not None:
        return commands_groups.summary(release)
    if release.spec.geography is not None:
        return commands_geography.summary(release)
    about = release.about
    return {
        "release": str(release.path),
        "release_id": about["release_id"],
        "title": release.spec.title,
        "report": str(release.path / "report.html"),
        "tables": [
            {"table": name, "rows": row["queries"], "rmse": row["rmse"], "margin": row["margin"]}
            for name, row in about["expected"].items()
        ],
        "exact": [given.table.name for given in release.spec.invariants],
    }


def _print_summary(release: Release) -> None:
    console = open_console()
    if release.spec.detailed is not None:
        commands_groups.print_summary(console, release, loss_words(release.spec))
        return
    if release.spec.geography is not None:
        commands_geography.print_summary(console, release, loss_words(release.spec))
        return
    console.print(f"Published {release.path}", markup=False)
    console.print(f"Promise   {loss_words(release.spec)}", markup=False)
    print_reach(console, release.spec)
    table = RichTable()
    for heading in ("table", "rows", "RMSE", f"{release.level:.0%} margin"):
        table.add_column(heading, justify="left" if heading == "table" else "right", overflow="fold")
    for name, row in release.about["expected"].items():
        table.add_row(name, f"{row['queries']:,}", number(row["rmse"]), number(row["margin"]))
    console.print(table)
    for given in release.spec.invariants:
        console.print(f"Exact, outside the promise: {given.table.name}. Why: {given.reason}", markup=False)


def report(folder: Path, json: bool) -> None:
    """Rebuild the report of a release."""
    path = app.write_report(Release.read(folder))
    if json:
        emit({"report": str(path)})
    else:
        typer.echo(f"Wrote {path}")


def check(path: Path, json: bool) -> None:
    """Validate a spec or verify a release."""
    if path.is_dir():
        release = Release.read(path)
        faults = app.check_release(release)
        if json:
            pages = app.pages_are_compared(release)
            emit({"release": str(path), "faults": faults, "pages_compared": pages})
            if faults:
                raise typer.Exit(1)
        elif faults:
            raise ReleaseError(
                "\n".join([f"{path} is not as it was published:", *(f"  {fault}" for fault in faults)])
            )
        else:
            words = "every number follows from the measurements"
            if release.spec.invariants or release.spec.geography:
                words += ", and every sum that is exact holds exactly"
            if not app.pages_are_compared(release):
                words += f"; pages are of tabulae {release.about['version']}, and were not made again to compare them"
            typer.echo(f"{path}: every file is as published, and {words}")
        return
    spec = read_spec(path)
    if spec.detailed is not None or spec.geography is not None:
        told = commands_geography if spec.detailed is None else commands_groups
        if json:
            emit(told.check_document(path, spec))
        else:
            typer.echo(f"{path}: no mistakes; {told.check_words(spec)}, {loss_words(spec)}")
        return
    tables, exact = len(spec.workload.tables), len(spec.invariants)
    if json:
        emit({"spec": str(path), "tables": tables, "invariants": exact, "cells": str(spec.domain.size)})
    else:
        told = f", {exact} {'set' if exact == 1 else 'sets'} of exact counts" if exact else ""
        typer.echo(
            f"{path}: no mistakes; {tables} tables over {spec.domain.size:,} cells{told}, {loss_words(spec)}"
        )


def query(folder: Path, sql: str, json: bool) -> None:
    """Answer a count from a release."""
    release = Release.read(folder)
    rows = release.query(sql)
    if json:
        emit(rows.to_pylist())
        return
    _print_rows(rows, release.level)


def _print_rows(rows: pa.Table, level: float) -> None:
    table = RichTable()
    labels = rows.column_names[:-5]
    for heading in (*labels, "estimate", "std. error", f"{level:.0%} interval"):
        table.add_column(heading, justify="left" if heading in labels else "right")
    for row in rows.slice(0, _ROWS_PRINTED).to_pylist():
        interval = f"{row['ci_low']:,.1f} to {row['ci_high']:,.1f}"
        if row["obs_status"] == "E":
            interval = "exact"
        table.add_row(
            *(row[name] for name in labels), f"{row['estimate']:,.1f}", f"{row['std_error']:,.1f}", interval
        )
    open_console().print(table)
    if rows.num_rows > _ROWS_PRINTED:
        typer.echo(f"... {rows.num_rows - _ROWS_PRINTED:,} more rows; --json prints all")


def audit(spec: Path, seconds: float, json: bool) -> None:
    """Print every check of an audit; exit with 1 where one failed."""
    with progress() as say:
        made = make_audit(spec, seconds=seconds, say=say)
    if json:
        checks = [vars(check) for check in made.checks]
        emit({"spec": str(spec), "passed": not made.failed, "failed": made.failed, "checks": checks})
    else:
        _print_audit(made)
    if made.failed:
        typer.echo(f"tabulae: the audit failed: {', '.join(made.failed)}", err=True)
        raise typer.Exit(1)


def _print_audit(made: Audit) -> None:
    console = open_console()
    console.print(f"Promise   {loss_words(made.plan.spec)}", markup=False)
    print_reach(console, made.plan.spec)
    console.print(f"Strategy  {_strategy_words(made.plan)}", markup=False)
    table = RichTable()
    for heading in ("check", "what is compared", "worst", "allowed", "passed"):
        table.add_column(
            heading, justify="right" if heading in ("worst", "allowed") else "left", overflow="fold"
        )
    for c in made.checks:
        worst = "-" if c.observed is None else f"{c.observed:.6g}"
        words = Text(c.what if not c.detail else f"{c.what} ({c.detail})")
        table.add_row(c.name, words, worst, f"{c.allowed:.6g}", "yes" if c.passed else "NO")
    console.print(table)
