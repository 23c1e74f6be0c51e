"""What `tabulae init` does and prints."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import typer

from ..errors import ReleaseError
from ..release.folder import require_parent, write_bytes
from ..release.progress import Progress
from ..sources.declared import DeclaredColumn, declared_columns
from ..sources.declared import peek as peek_values
from ..sources.source import RecordSource
from ..spec.draft import Draft, draft_of, source_of
from .output import emit, progress


def init(records: str, out: Path, peek: bool, table: str | None, json: bool) -> None:
    """Draft a spec for a file of records, a folder of them, or a table of a server."""
    if os.path.lexists(out):
        raise ReleaseError(f"{out} exists: name another file with --out")
    require_parent(out)
    source = source_of(records, table)
    columns = declared_columns(source)
    if peek:
        looked = [c for c in columns if c.can_be_counted and not c.has_domain]
        with progress() as say:
            say(Progress("reading the records"))
            columns = peek_values(source, columns)
        _warn(source, looked, out)
    drafted = draft_of(source, columns, out.parent, peeked=peek)
    lists = {out.parent / name: content for name, content in drafted.code_lists.items()}
    for place in lists:
        if os.path.lexists(place):
            raise ReleaseError(f"{place} exists, and a code list would be written there: move it")
    for place, content in lists.items():
        place.parent.mkdir(exist_ok=True)
        write_bytes(place, content.encode())
    write_bytes(out, drafted.text.encode())
    _print(drafted, out, json)


def _warn(source: RecordSource, looked: Sequence[DeclaredColumn], out: Path) -> None:
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


def _print(drafted: Draft, out: Path, json: bool) -> None:
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
