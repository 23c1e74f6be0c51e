"""Runs of specs whose disk is full from one stage on: a program of its own, for what it does to itself.

``python -m tests.engines.disk FOLDER WRITE STAGES`` writes a release for each stage in ``STAGES`` (JSON: name -> the
function in which it begins) in ``FOLDER``/name, of the spec, records and ledger that ``WRITE`` makes (guild, duchy or
village). Where the stage begins this process may write no more into any file (RLIMIT_FSIZE, of which the system says
"file too large"); with ``FULL=disk`` the disk that ``FOLDER`` is on is filled instead. Then there is room again, and
the run is resumed. Prints what came of both as JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

import tabulae as tb
from tabulae.cli import app

_BALLAST = "ballast"


def main(folder: Path, write: str, stages: dict[str, str]) -> list[dict[str, Any]]:
    """What came of a run that is spoiled in each stage, and of its resumption."""
    module = importlib.import_module(f"tests.{write}")
    fill, relieve = (_fill, _relieve) if os.environ.get("FULL") == "disk" else (_forbid, _allow)
    rows = []
    for stage, target in stages.items():
        (folder / stage).mkdir()
        spec = getattr(module, f"write_{write}")(folder / stage)
        if write == "village":  # what is chosen does not matter here
            spec.write_text(spec.read_text() + '\n[method]\nselect = "identity"\n')
        tempfile.tempdir = str(folder)
        with _spoiled(target, lambda: fill(folder)) as reached:
            result = _run(spec)
        relieve(folder)
        first = _seen(spec, result)
        rows.append({"stage": stage, "reached": bool(reached), "first": first})
        rows[-1]["then"] = _seen(spec, _run(spec, "--resume"))
    return rows


def _run(spec: Path, *options: str) -> Result:
    return CliRunner().invoke(app, ["run", str(spec), "--out", str(spec.parent / "release"), *options])


def _seen(spec: Path, result: Result) -> dict[str, Any]:
    """What a run of the command line said, and what it left."""
    out = spec.parent / "release"
    measured = (out if out.exists() else spec.parent / ".release.partial") / "measurements"
    return {
        "code": result.exit_code,
        "output": result.output,
        "raised": None if result.exception is None else type(result.exception).__name__,
        "charges": [charge.state for charge in tb.Ledger.open(spec.parent / "ledger.db").charges()],
        "published": out.exists(),
        "faults": tb.Release.read(out).verify() if out.exists() else [],
        "left": sorted(path.name for path in spec.parent.iterdir() if path.name.startswith(".release")),
        "temporary": [path.name for path in spec.parents[1].iterdir() if path.name.startswith("tabulae-")],
        "measured": {path.name: path.read_bytes().hex() for path in sorted(measured.glob("*"))},
    }


@contextmanager
def _spoiled(target: str, spoil: Callable[[], None]) -> Iterator[list[str]]:
    """The function that the target names, spoiling everything before it does its work."""
    parts, reached = target.split("."), list[str]()
    owner: Any = importlib.import_module(parts[0])
    for i, name in enumerate(parts[1:-1], start=2):
        owner = getattr(owner, name, None) or importlib.import_module(".".join(parts[:i]))
    original = getattr(owner, parts[-1])

    def spoiled(*given: Any, **named: Any) -> Any:
        if not reached:
            reached.append(target)
            spoil()
        return original(*given, **named)

    setattr(owner, parts[-1], spoiled)
    try:
        yield reached
    finally:
        setattr(owner, parts[-1], original)


def _forbid(folder: Path) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))


def _allow(folder: Path) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def _fill(folder: Path) -> None:
    """Write until there is no room left, which a file that grows by less and less finds."""
    with (folder / _BALLAST).open("ab", buffering=0) as file:
        for size in (1 << 16, 1):
            try:
                while file.write(b"\0" * size):
                    pass
            except OSError:
                continue


def _relieve(folder: Path) -> None:
    (folder / _BALLAST).unlink(missing_ok=True)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]))))
