"""Tasks of an estimate on Spark: each number a row, mapped over by processes of Python beside the data."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ...errors import ReleaseError, TabulaeError
from .tasks import Numbers, Runner, Task, TaskResult

if TYPE_CHECKING:
    from pyspark import Broadcast
    from pyspark.sql import SparkSession

_TOLD = "number long, missed long, digest string, totals binary, fault string, code int"
_TASKS_A_CORE = 4  # so that a core that drew the larger tasks is not waited for


def on_spark(session: SparkSession) -> Runner:
    """A runner of tasks for :func:`~.estimate.estimate_spine`.

    A step goes to every process once, with its plan and matrices, by Spark's broadcast; what is mapped over are the
    numbers of its tasks. A task that is lost is run again where Spark is set to (``spark.task.maxFailures``); what a
    task itself refuses is not.

    Args:
        session: whose executors have tabulae installed, and see the work folder under the name that it has here.
    """
    return partial(_sent, session)


@dataclass(frozen=True, eq=False)
class _Packed:
    """A task, which becomes one string of bytes on its way and the task itself where it is taken out.

    With encryption on, PySpark cannot write the large arrays of a pickle as they come.
    """

    task: Task

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (pickle.dumps(self.task, pickle.HIGHEST_PROTOCOL),)


@contextmanager
def _sent(session: SparkSession, task: Task) -> Iterator[Numbers]:
    with _plainly():
        shared = session.sparkContext.broadcast(_Packed(task))
    try:
        yield partial(_mapped, session, shared)
    finally:
        with suppress(Exception):  # of a session that is gone, nothing is left to take back
            shared.destroy()


def _mapped(session: SparkSession, shared: Broadcast[Any], numbers: range) -> list[TaskResult]:
    """Run the tasks of some numbers.

    Raises:
        OSError: a task could not write, as it was raised there.
        ReleaseError: a task refused its input, or Spark lost a task for good.
    """
    if not numbers:
        return []
    with _plainly():
        pieces = min(len(numbers), _TASKS_A_CORE * session.sparkContext.defaultParallelism)
        rows = session.range(numbers.start, numbers.stop, 1, pieces)
        told = rows.mapInArrow(_each(shared), _TOLD).collect()
    for row in told:
        if row.code is not None:
            raise OSError(row.code, row.fault)
        if row.fault is not None:
            raise ReleaseError(row.fault)
    done = [TaskResult(row.number, row.missed, row.digest, bytes(row.totals)) for row in told]
    return sorted(done, key=lambda one: one.number)


@contextmanager
def _plainly() -> Iterator[None]:
    """Whatever Spark, its Java or the connection between them raises, in a line; what a process of Python said last.

    All that tasks work on is public.
    """
    from pyspark.errors import PythonException

    try:
        yield
    except PythonException as error:
        raise ReleaseError(
            f"Spark did not finish the estimates: {str(error).strip().splitlines()[-1]}"
        ) from None
    except Exception as error:
        raise ReleaseError(
            "Spark did not finish the estimates: an executor was lost too often, or Spark itself ended "
            f"({type(error).__name__})"
        ) from None


def _each(shared: Broadcast[Any]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What every process does with its numbers."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield pa.RecordBatch.from_pylist([_told(shared.value, number)], schema=_arrow())

    return run


def _told(task: Task, number: int) -> dict[str, Any]:
    """What a task tells, or why it refused: as a row, since Spark would only run it again."""
    try:
        done = task(number)
    except OSError as error:
        return {"number": number, "fault": error.strerror or str(error), "code": error.errno or 0}
    except TabulaeError as error:
        return {"number": number, "fault": str(error)}
    return vars(done)


def _arrow() -> pa.Schema:
    return pa.schema(
        [
            ("number", pa.int64()),
            ("missed", pa.int64()),
            ("digest", pa.string()),
            ("totals", pa.binary()),
            ("fault", pa.string()),
            ("code", pa.int32()),
        ]
    )
