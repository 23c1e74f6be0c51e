"""What `tabulae convert` does and prints."""

from __future__ import annotations

from pathlib import Path

import typer

from .commands_output import emit, progress
from .convert import convert_release
from .release import Release


def convert(folder: Path, to: str, out: Path | None, json: bool) -> None:
    """Write a release in another format."""
    release = Release.read(folder)
    whole = folder.resolve()
    with progress() as say:
        say("converting the tables")
        written = convert_release(release, to, out or whole.with_name(f"{whole.name}-{to}"))
    files = sorted(path.relative_to(written).as_posix() for path in written.rglob("*") if path.is_file())
    if json:
        emit({"release": str(folder), "format": to, "folder": str(written), "files": files})
        return
    typer.echo(f"Wrote {written}: {len(files)} files")
    for name in files:
        if "/" not in name and name != "SHA256SUMS":
            typer.echo(f"  {name}")
