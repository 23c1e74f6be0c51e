"""Runs that are killed, each in a process of its own: forks of one that has imported everything already.

Run as a program it reads a job a line from its standard input, and answers each with what became of its process.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

ROOT = Path(__file__).parents[2]
_NOT_KILLED = 7
_LOADED = (
    *("tabulae._run", "tabulae.interop.safetab", "ibis.backends.duckdb"),
    *(f"tabulae.products.{kind}.product" for kind in ("tables", "groups", "areas")),
    "tabulae.products.areas.descent.algebra",
)
"""What releases load as they go, which takes longer than they do."""


def kill(where: str, spec: Path, out: Path, *, call: int = 1, **options: Any) -> None:
    """Run a release that SIGKILL ends at a step, or instead of a call of the function of that dotted name.

    Args:
        where: a step of :data:`tabulae._run.Step`, or the name of a function or method.
        spec, out, options: as for :func:`make`.
        call: which call of the function is not made.
    """
    job = {"where": where, "call": call, "spec": str(spec), "out": str(out), "options": options}
    nursery = _nursery()
    assert nursery.stdin is not None
    assert nursery.stdout is not None
    nursery.stdin.write(json.dumps(job) + "\n")
    nursery.stdin.flush()
    assert json.loads(nursery.stdout.readline()) == -signal.SIGKILL, where


@functools.cache
def _nursery() -> subprocess.Popen[str]:
    surroundings = {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "OPENBLAS_NUM_THREADS": "1"}
    started = subprocess.Popen(
        [sys.executable, "-m", "tests.run.stops"],
        cwd=ROOT,
        env=os.environ | surroundings,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def end() -> None:
        started.communicate()  # closes what it reads, at which it ends

    atexit.register(end)
    return started


def _attribute(name: str) -> tuple[Any, str]:
    """What a dotted name is an attribute of, and its own name."""
    parts = name.split(".")
    owner: Any = importlib.import_module(parts[0])
    for i, part in enumerate(parts[1:-1], start=2):
        owner = getattr(owner, part, None) or importlib.import_module(".".join(parts[:i]))
    return owner, parts[-1]


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _deadly(real: Callable[..., Any], call: int) -> Callable[..., Any]:
    left = [call]

    def replaced(*given: Any, **named: Any) -> Any:
        left[0] -= 1
        if not left[0]:
            _die()
        return real(*given, **named)

    return replaced


def make(spec: Path, out: Path, **options: Any) -> Any:
    """The release of a document, or of a folder with ``params``, ``data`` and a ledger in the Bureau's formats."""
    if not spec.is_dir():
        return importlib.import_module("tabulae").run(spec, out, **options)
    from tabulae.release.progress import quiet

    safetab = importlib.import_module("tabulae.interop.safetab")
    inputs = safetab.check(spec / "params", spec / "data", ledger=spec / "ledger.db", records=False)
    return safetab.run(inputs, out, **{"say": quiet, **options})


def _run(job: dict[str, Any]) -> None:
    from tabulae._run import Step

    where, spec, out = job["where"], Path(job["spec"]), Path(job["out"])
    if where in get_args(Step):
        make(spec, out, at=lambda step: _die() if step == where else None, **job["options"])
        return
    owner, name = _attribute(where)
    setattr(owner, name, _deadly(getattr(owner, name), job["call"]))
    make(spec, out, **job["options"])


def _made_before() -> None:
    """A release: what comes with the first one only, such as modules and templates, every fork of it has."""
    from tests.village import write_village

    with tempfile.TemporaryDirectory() as folder:
        spec = write_village(Path(folder))
        spec.write_text(spec.read_text() + '\n[method]\nselect = "identity"\n')
        make(spec, Path(folder) / "release")


def main() -> None:
    """Serve jobs until there are no more."""
    for name in _LOADED:
        importlib.import_module(name)
    _made_before()
    for line in sys.stdin:
        child = os.fork()
        if not child:
            try:
                _run(json.loads(line))
            except BaseException:
                traceback.print_exc()
            os._exit(_NOT_KILLED)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        sys.stdout.write(f"{code}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
