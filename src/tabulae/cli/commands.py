"""Answers to ``tabulae query`` as a table on the terminal: decimals as many as the errors give a meaning to."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import typer
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from .. import _run as life
from ..audit import Audit
from ..audit import audit as make_audit
from ..demo import write_demo
from ..domain.figure_sql import figure_from_sql
from ..errors import InvalidArgument, ReleaseError, Unsupported
from ..export import convert_release, write_answer
from ..privacy import Ledger
from ..release import Release
from ..release.progress import Progress
from ..release.write import PARTS, Changes
from ..spec import read_spec
from . import series as commands_series
from .output import (
    emit,
    loss_words,
    new_table,
    open_console,
    print_reach,
    print_table,
    progress,
    say,
    words_of,
)
from .tables import strategy_words

_ROWS_PRINTED = 40
_MOST_DECIMALS = 6
_RESULTS = 5  # columns that follow the labels
_CHANGE_COLUMNS = 5  # of each part of a change


def print_answer(rows: pa.Table, level: float, *, quantiles: bool) -> None:
    """Print the first rows; what is not estimable says so, and what is exact has no interval.

    Arguments:
        quantiles: whether medians or others are among the summands: their error is their interval alone.
    """
    shown = rows.slice(0, _ROWS_PRINTED).to_pylist()
    labels = rows.column_names[:-_RESULTS]
    table = RichTable()
    for heading in (*labels, "estimate", "std. error", f"{level:.0%} interval"):
        table.add_column(heading, justify="left" if heading in labels else "right")
    places = 0 if quantiles and _are_whole(shown) else _decimals((row["std_error"] for row in shown), 1)
    for row in shown:
        estimate, error, interval = _cells(row, places)
        table.add_row(*(row[name] for name in labels), estimate, "-" if quantiles else error, interval)
    print_table(open_console(), table)
    if rows.num_rows > _ROWS_PRINTED:
        typer.echo(f"... {rows.num_rows - _ROWS_PRINTED:,} more rows; --out FILE.csv writes all")
    if quantiles:
        typer.echo(
            "A median or another quantile has no standard error: its interval says how far off it may be."
        )


def _cells(row: dict[str, Any], places: int) -> tuple[str, str, str]:
    """Estimate, standard error and interval of one row."""
    if row["obs_status"] == "Q":
        return "-", "-", "not estimable"
    whole = all(row[name] is not None and float(row[name]).is_integer() for name in ("ci_low", "ci_high"))
    decimals = {"estimate": places, "std_error": places, "ci_low": 0 if whole else places}
    decimals["ci_high"] = decimals["ci_low"]
    estimate, error, low, high = (
        "-" if row[name] is None else f"{row[name]:z,.{width}f}" for name, width in decimals.items()
    )
    return estimate, error, "exact" if row["obs_status"] == "E" else f"{low} to {high}"


def _are_whole(rows: Iterable[dict[str, Any]]) -> bool:
    values = (row[name] for row in rows for name in ("estimate", "ci_low", "ci_high"))
    return all(value is None or float(value).is_integer() for value in values)


def _decimals(errors: Iterable[float | None], without: int) -> int:
    """Two significant digits of the smallest standard error, at least one decimal and at most six.

    Args:
        without: the decimals where no number has an error.
    """
    smallest = min((error for error in errors if error), default=None)
    return without if smallest is None else min(_MOST_DECIMALS, max(1, 1 - math.floor(math.log10(smallest))))


def demo(out: Path, people: int, json: bool) -> None:
    """Write the built-in population and spec, create a ledger, run the release."""
    started = time.monotonic()
    if out.exists():
        raise ReleaseError(f"{out} exists: remove it, or choose another folder with --out")
    with progress() as say:
        say(Progress("inventing people"))
        spec_path = write_demo(out, people)
        spec = read_spec(spec_path)
        assert spec.ledger is not None
        Ledger.create(spec.ledger, spec.loss, neighbours=spec.neighbours, unit=spec.unit)
        release = life.run(spec, out / "release", say=say)
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


def run(
    spec: Path,
    out: Path,
    plan_file: Path | None,
    source: str | None,
    resume: bool,
    memory: str | None,
    json: bool,
) -> None:
    """Make the release and print its summary."""
    with progress() as say:
        release = life.run(
            spec, out, plan_file=plan_file, source=source, resume=resume, memory=memory, say=say
        )
    if json:
        emit(_summary(release))
    else:
        _print_summary(release)
        commands_series.print_release(open_console(), release, ())


def _summary(release: Release) -> dict[str, Any]:
    return words_of(release.spec.kind).summary(release)


def _print_summary(release: Release) -> None:
    words_of(release.spec.kind).print_summary(open_console(), release, loss_words(release.spec))


def report(folder: Path, json: bool) -> None:
    """Rebuild the report of a release."""
    path = life.write_report(Release.read(folder))
    if json:
        emit({"report": str(path)})
    else:
        typer.echo(f"Wrote {path}")


def check(path: Path, json: bool) -> None:
    """Validate a spec or verify a release."""
    if path.is_dir():
        _check_release(path, json=json)
    else:
        _check_spec(path, json=json)


def _check_release(path: Path, *, json: bool) -> None:
    release = Release.read(path)
    faults = life.check_release(release)
    found = None if faults else commands_series.found_beside(release)
    faults += [each.fault for each in found or () if each.fault is not None]
    if json:
        pages = life.pages_are_compared(release)
        told = commands_series.release_document(release, found)
        emit({"release": str(path), "faults": faults, "pages_compared": pages, **told})
        if faults:
            raise typer.Exit(1)
    elif faults:
        raise ReleaseError(
            "\n".join([f"{path} is not as it was published:", *(f"  {fault}" for fault in faults)])
        )
    else:
        words = "every number follows from the measurements"
        if release.product.disclosures() or release.product.adds_up:
            words += ", and every sum that is exact holds exactly"
        if not life.pages_are_compared(release):
            words += (
                f"; pages are of tabulae {release.about['version']}, and were not made again to compare them"
            )
        typer.echo(f"{path}: every file is as published, and {words}")
        commands_series.print_release(open_console(), release, found or ())


def _check_spec(path: Path, *, json: bool) -> None:
    spec = read_spec(path)
    words = words_of(spec.kind)
    if json:
        emit(words.check_document(path, spec))
    else:
        follows = commands_series.check_words(spec)
        typer.echo(f"{path}: no mistakes; {words.check_words(spec)}, {loss_words(spec)}{follows}")
        for line in (*words.check_notes(spec), *commands_series.ledger_words(spec)):
            typer.echo(line)


def query(folder: Path, sql: str, areas: list[str], codes: list[str], out: Path | None, json: bool) -> None:
    """Answer a statement about counts from a release."""
    release = Release.read(folder)
    rows = release.query(sql, areas=areas, codes=codes)
    if out is not None:
        write_answer(release, sql, rows, out)
    if json:
        emit(rows.to_pylist())
        return
    if out is not None:
        typer.echo(f"Wrote {out}: {rows.num_rows:,} rows")
        return
    quantiles = bool(figure_from_sql(release.domain, "query", sql).quantiles)
    print_answer(rows, release.level, quantiles=quantiles)
    if note := words_of(release.spec.kind).query_note(release):
        typer.echo(note)


def changes(earlier: Path, later: Path, table: str | None, out: Path | None, json: bool) -> None:
    """Compare one table of two releases, or all that both publish."""
    before, now = Release.read(earlier), Release.read(later)
    names = [table] if table is not None else [name for name in now.tables if name in before.tables]
    if not names:
        raise InvalidArgument(f"{earlier} and {later} publish no table of the same name")
    if out is not None and len(names) > 1:
        raise InvalidArgument(
            f"{out} holds one table: name it with --table; both releases have {', '.join(names)}"
        )
    if out is not None and out.resolve().is_relative_to(earlier.resolve()):
        raise InvalidArgument(
            f"{out} lies in a release, which stays as it was published: name a file outside it"
        )
    made, left = _all_changes(before, now, names)
    if out is not None:
        statement = (
            f"Changes of {names[0]} since {before.descriptor['title']}, release {before.about['release_id']}"
        )
        write_answer(now, statement, made[0].rows, out)
    if json:
        tables = [_changes_document(each) for each in made]
        emit({"earlier": str(earlier), "later": str(later), "tables": tables, "left_out": left})
        return
    console, notes = open_console(), [*_change_notes(made), *(f"Left out  {why}" for why in left)]
    if out is not None:
        say(console, *notes, f"Wrote {out}: {made[0].rows.num_rows:,} rows")
        return
    for each in made:
        _print_changes(console, each)
    say(console, *notes)


def _all_changes(before: Release, now: Release, names: Sequence[str]) -> tuple[list[Changes], list[str]]:
    """The changes of tables, and why others cannot be compared; where none can, the first reason is raised."""
    made: list[Changes] = []
    refused: list[InvalidArgument | Unsupported] = []
    for name in names:
        try:
            made.append(now.changes_since(before, name))
        except (InvalidArgument, Unsupported) as error:
            refused.append(error)
    if not made:
        raise refused[0]
    return made, [str(error) for error in refused]


def _changes_document(made: Changes) -> dict[str, Any]:
    rows = made.rows.to_pylist()
    return {
        "table": made.table,
        "level": made.level,
        "conservative_intervals": made.conservative,
        "notes": list(made.notes),
        "rows": rows,
    }


def _change_notes(made: Sequence[Changes]) -> Iterator[str]:
    """What differs between the releases, once each; that of one table with its name."""
    notes = list(dict.fromkeys(note for each in made for note in each.notes))
    for note in notes:
        of = [each.table for each in made if note in each.notes]
        yield f"Note      {note}" if len(of) == len(made) else f"Note      {', '.join(of)}: {note}"


def _print_changes(console: Console, made: Changes) -> None:
    """The first rows: both estimates, and the change in counts and in per cent, each with its interval."""
    rows = made.rows.slice(0, _ROWS_PRINTED).to_pylist()
    labels = made.rows.column_names[: -_CHANGE_COLUMNS * len(PARTS)]
    interval = f"{made.level:.0%} interval"
    table = new_table(
        *labels, "before", "now", "change", interval, "in %", interval, words=labels, title=made.table
    )
    places = {part: _decimals((row[f"{part}_std_error"] for row in rows), 0) for part in PARTS}
    for row in rows:
        cells = [_number(row[part], places[part]) for part in PARTS[:2]]
        for part in PARTS[2:]:
            cells += [_number(row[part], places[part]), _interval(row, part, places[part])]
        table.add_row(*(row[label] for label in labels), *cells)
    print_table(console, table)
    if made.rows.num_rows > _ROWS_PRINTED:
        say(console, f"... {made.rows.num_rows - _ROWS_PRINTED:,} more rows; --out FILE.csv writes all")


def _interval(row: Mapping[str, Any], part: str, places: int) -> str:
    if row[f"{part}_status"] == "E":
        return "exact"
    if row[f"{part}_status"] == "Q":
        return "not estimable"
    return " to ".join(_number(row[f"{part}_ci_{end}"], places) for end in ("low", "high"))


def _number(value: float | None, places: int) -> str:
    return "-" if value is None else f"{value:z,.{places}f}"


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
    console.print(f"Strategy  {strategy_words(made.plan)}", markup=False)
    table = RichTable()
    for heading in ("check", "what is compared", "worst", "allowed", "passed"):
        table.add_column(
            heading, justify="right" if heading in ("worst", "allowed") else "left", overflow="fold"
        )
    for c in made.checks:
        worst = "-" if c.observed is None else f"{c.observed:.6g}"
        words = Text(c.what if not c.detail else f"{c.what} ({c.detail})")
        table.add_row(c.name, words, worst, f"{c.allowed:.6g}", "yes" if c.passed else "NO")
    print_table(console, table)


def convert(folder: Path, to: str, out: Path | None, json: bool) -> None:
    """Write a release in another format."""
    release = Release.read(folder)
    whole = folder.resolve()
    with progress() as say:
        say(Progress("converting the tables"))
        written = convert_release(release, to, out or whole.with_name(f"{whole.name}-{to}"))
    files = sorted(path.relative_to(written).as_posix() for path in written.rglob("*") if path.is_file())
    if json:
        emit({"release": str(folder), "format": to, "folder": str(written), "files": files})
        return
    typer.echo(f"Wrote {written}: {len(files)} files")
    for name in files:
        if "/" not in name and name != "SHA256SUMS":
            typer.echo(f"  {name}")
