"""Counts of groups on a small cluster of Spark's on this machine, parts of which are killed while it counts.

A program of its own, for what it does to its session: ``python -m tests.engines.cluster PARQUET`` counts while a Python
process of an executor is killed ("worker"), while the Java process of one is ("executor"), and while Spark's process on
this machine is ("driver"). Prints what came of each as JSON: the fingerprint of the counts, or the error.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.engines.test_groups import counted

from tabulae.errors import TabulaeError
from tabulae.sources.engines import spark as group_transfer
from tabulae.sources.engines.spark import spark_session
from tabulae.sources.source import RecordSource

_EXECUTOR = "CoarseGrainedExecutorBackend"


def main(records: Path) -> dict[str, Any]:
    """What came of each count, in one session."""
    with spark_session(), tempfile.TemporaryDirectory() as folder:
        return {
            "worker": _counted(records, None, Path(folder) / "killed"),
            "executor": _counted(records, _kill_an_executor, None),
            "driver": _counted(records, _kill_driver, None),
        }


def _counted(records: Path, strike: Callable[[], int] | None, marker: Path | None) -> dict[str, Any]:
    """Count, and kill when the first counts arrive: the others are still to come."""
    done: list[int] = []
    with _watched(strike, marker, done):
        try:
            people, _, fingerprint = counted(RecordSource(records, engine="spark"))
        except TabulaeError as error:
            return {"error": str(error), "code": error.exit_code, "killed": done}
    if marker is not None and marker.exists():
        done.append(int(marker.read_text()))
    return {"people": people, "fingerprint": fingerprint.decode(), "killed": done}


@contextmanager
def _watched(strike: Callable[[], int] | None, marker: Path | None, done: list[int]) -> Iterator[None]:
    """Stand between Spark and what takes its counts."""
    original = group_transfer._of_parts

    def watched(frame: Any) -> Iterator[pa.RecordBatch]:
        if marker is not None:
            frame = frame.mapInArrow(_dying_once(str(marker)), frame.schema)
        for batch in original(frame):
            yield batch
            if strike is not None and not done:
                done.append(strike())

    group_transfer._of_parts = watched
    try:
        yield
    finally:
        group_transfer._of_parts = original


def _dying_once(marker: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def dying(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            with Path(marker).open("x") as file:
                file.write(str(os.getpid()))
        except FileExistsError:
            yield from batches
        else:
            os.kill(os.getpid(), signal.SIGKILL)

    return dying


def _kill_an_executor() -> int:
    """One of the two executors, which has made some of the counts that are still to come."""
    for path in sorted(Path("/proc").glob("[0-9]*/cmdline")):
        number = int(path.parent.name)
        if _EXECUTOR in _read(path) and _is_of(number, os.getpid()):
            os.kill(number, signal.SIGKILL)
            return number
    raise AssertionError("no executor runs")


def _kill_driver() -> int:
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    number = int(gateway.proc.pid)
    os.kill(number, signal.SIGKILL)
    return number


def _is_of(number: int, ancestor: int) -> bool:
    """Whether a process comes of another."""
    while number > 1:
        if number == ancestor:
            return True
        fields = _read(Path(f"/proc/{number}/stat")).rpartition(")")[2].split()
        number = int(fields[1]) if fields else 0
    return False


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:  # it has ended
        return ""


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]))))
