"""What ``tabulae studio`` does: serves one spec to a browser on this machine until it is interrupted."""

from __future__ import annotations

from pathlib import Path

import typer

from ..sources.source import is_url
from ..studio import Studio


def studio(place: str, port: int) -> None:
    """Print the address, and answer until Ctrl-C."""
    desk = Studio(place, port)
    try:
        if not is_url(place) and not Path(place).exists():
            typer.echo(f"{place} is not there: a new spec is begun, and Save makes the file.", err=True)
        typer.echo(f"Open {desk.url}")
        typer.echo("It is for you alone: the address holds a token. Ctrl-C stops the studio.", err=True)
        desk.serve()
    except KeyboardInterrupt:
        typer.echo("Stopped. A run that was under way goes on by itself.", err=True)
    finally:
        desk.close()
