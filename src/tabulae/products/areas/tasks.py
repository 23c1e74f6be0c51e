"""The estimators as tasks, and who runs them: threads of this process, or processes of Python beside Spark's data.

Each task takes the vectors of one level that it needs, and makes those of some nodes. A task draws nothing, so that
one that is run again, or twice at once, makes the same numbers, wherever it runs.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from ...errors import InvalidArgument, ReleaseError, TabulaeError
from .descent.descent import (
    Descent,
    DivisionWeights,
    MeasuredElseUp,
    MeasuredTotals,
    OwnWeights,
    UpWeights,
    divide_into,
    totals_of,
)
from .descent.limits import NodeLimits
from .passes.covariances import Covariances
from .passes.two_pass import Passes, Upward
from .passes.vectors import Halves, Ranges, VectorStore, end_of_parents
from .spine_plan import Piece, SpinePieceValues, SpinePlan
from .stages import Fingerprint
from .turns import short_turns

if TYPE_CHECKING:
    from pyspark import Broadcast
    from pyspark.sql import SparkSession


class Task(Protocol):
    """A step that is cut into numbered tasks; can be pickled."""

    @property
    def makes(self) -> tuple[VectorStore, ...]:
        """Where it keeps what it makes: what is kept last is there when all is."""
        ...

    @property
    def frees_threads(self) -> bool:
        """Whether its time is spent in compiled code, which leaves other threads free to run."""
        ...

    def __call__(self, number: int) -> TaskResult:
        """Make what belongs to a number, unless it is there."""
        ...


@dataclass(frozen=True)
class TaskResult:
    """What a task tells beside what it makes.

    Attributes:
        number: of the task.
        missed: in how many divisions the solver stopped early.
        digest: of the measurements that were read.
        totals: those of them that are totals, int64, as bytes.
    """

    number: int
    missed: int = 0
    digest: str = ""
    totals: bytes = b""


Numbers = Callable[[range], list[TaskResult]]
"""Runs the tasks of some numbers, in any order and place, and gives what they tell in the order of numbers."""

Runner = Callable[[Task], AbstractContextManager[Numbers]]
"""Takes a task to where it is run, and away again."""


def in_threads(workers: int | None = None) -> Runner:
    """A runner of tasks in this process, in the order of their numbers.

    Args:
        workers: threads for tasks that leave them free to run; as many as there are cores where None.
    """

    @contextmanager
    def here(task: Task) -> Iterator[Numbers]:
        if not task.frees_threads:  # a thread of its own would hold memory of its own
            yield lambda numbers: [task(number) for number in numbers]
            return
        with short_turns(), ThreadPoolExecutor(workers or os.cpu_count() or 1) as pool:
            yield lambda numbers: list(pool.map(task, numbers))

    return here


@dataclass(frozen=True, eq=False)
class ReadTask:
    """m of a piece's nodes, from its measurements.

    Args:
        read: the measurements of the piece of a number, verified.
        information: m of the nodes that are measured.
        known: m is there: measurements are read to see which they are.
    """

    plan: SpinePlan
    read: Callable[[int], SpinePieceValues]
    information: VectorStore
    known: bool = False
    frees_threads = False

    @property
    def makes(self) -> tuple[VectorStore, ...]:
        return (self.information,)

    def __call__(self, number: int) -> TaskResult:
        """Read the piece; keep its m, or see that what is kept is of the same measurements.

        Raises:
            InvalidArgument: the measurements are of another plan.
            ReleaseError: they are not those of the plan, or others than those that were kept, or the folder is not
                seen here.
        """
        given = self.read(number)
        if not _same_piece(given.piece, self.plan.pieces[number]):
            raise InvalidArgument("these measurements are of another plan: their pieces are not this plan's")
        digest = Fingerprint().add([None if v is None else _narrow(v) for v in given.values]).hex()
        noted = self.information.noted(number)
        if noted is not None and noted.get("digest") != digest:
            raise of_other_measurements(self.information)
        if noted is None and not self.known:
            self.information.add(number, given.piece.nodes, self.plan.information(given), digest=digest)
        totals = totals_of(self.plan, given)
        found = b"" if totals is None else totals[0].astype(np.int64).tobytes()
        return TaskResult(number, digest=digest, totals=found)


def _narrow(values: np.ndarray) -> np.ndarray:
    """The same whole numbers in the fewest bytes that hold them all: a digest of noise mostly needs two of eight."""
    low, high = int(values.min(initial=0)), int(values.max(initial=0))
    return values.astype(np.min_scalar_type(min(low, -high - 1)))


def of_other_measurements(place: object) -> ReleaseError:
    """What is said of a work folder whose vectors were made of other measurements."""
    return ReleaseError(
        f"{place} holds the work of an estimate from other measurements: use another folder, or remove this one and "
        "begin anew"
    )


def _same_piece(one: Piece, other: Piece) -> bool:
    return np.array_equal(one.nodes, other.nodes) and all(
        getattr(one, name) == getattr(other, name) for name in ("level", "share", "pattern", "rows")
    )


@dataclass(frozen=True, eq=False)
class RiseTask:
    """mu and t of some parents: the pass of ``gls`` up the tree."""

    passes: Passes
    families: Ranges
    frees_threads = False

    @property
    def makes(self) -> tuple[VectorStore, ...]:
        return self.passes.mean, self.passes.told

    def __call__(self, number: int) -> TaskResult:
        passes, family = self.passes, self.families[number]
        if passes.told.noted(number) is not None:
            return TaskResult(number)
        below = children_of(passes.plan, family)
        work = replace(
            passes,
            information=passes.information.window((family, *leaves_in(passes.cov, below))),
            mean=passes.mean.window((below,), (family,)),
            told=passes.told.window((), (family,)),
        )
        work.rise_family(*family)
        work.information.release()
        nodes = parents_in(passes.cov, family)
        passes.mean.keep(number, nodes, work.mean)
        passes.told.keep(number, nodes, work.told)
        return TaskResult(number)


@dataclass(frozen=True, eq=False)
class FallTask:
    """x^ of the children of some parents, of those that have children, and what theirs get: the pass of ``gls`` down
    the tree. The task after the last is the root's.

    Args:
        passes, families: as of the pass up the tree.
    """

    passes: Passes
    families: Ranges
    frees_threads = False

    @property
    def makes(self) -> tuple[VectorStore, ...]:
        return self.passes.estimate, self.passes.passed

    def __call__(self, number: int) -> TaskResult:
        passes = self.passes
        if passes.passed.noted(number) is not None:
            return TaskResult(number)
        above, below = family_of(passes.plan, self.families, number)
        work = replace(
            passes,
            mean=passes.mean.window((below,)),
            told=passes.told.window((below,)),
            estimate=passes.estimate.window((), (below,)),
            passed=passes.passed.window((above,), (below,)),
        )
        nodes = parents_in(passes.cov, below)
        for group in passes.cov.kinds.pieces(nodes):
            work.descend_group(group)
        work.mean.release()
        work.told.release()
        passes.estimate.keep(number, nodes, work.estimate)
        passes.passed.keep(number, nodes, work.passed)
        return TaskResult(number)


@dataclass(frozen=True, eq=False)
class UpTask:
    """b of some parents: what is measured at them and below.

    Args:
        information: m.
        linear: b of the nodes before ``end_of_parents``.
    """

    cov: Covariances
    families: Ranges
    information: VectorStore
    linear: VectorStore
    frees_threads = False

    @property
    def makes(self) -> tuple[VectorStore, ...]:
        return (self.linear,)

    def __call__(self, number: int) -> TaskResult:
        if self.linear.noted(number) is not None:
            return TaskResult(number)
        plan, (first, last) = self.cov.plan, self.families[number]
        end = min(last, end_of_parents(plan))
        upward = self.upward((children_of(plan, (first, last)),), ((first, end),))
        m = self.information.window(((first, end),))
        upward.rise_family(m, first, last)
        m.release()
        self.linear.keep(number, np.arange(first, end), upward.linear.above)
        return TaskResult(number)

    def upward(self, read: Ranges, room: Ranges = ()) -> Upward:
        """H and b of nodes; b of those without children further on is their m."""
        end, size = end_of_parents(self.cov.plan), self.cov.plan.tree.size
        above = self.linear.window(_between(read, 0, end), room)
        return Upward(self.cov, Halves(above, self.information.window(_between(read, end, size))))


@dataclass(frozen=True, eq=False)
class DivideTask:
    """Whole counts of the children of some parents. The task after the last is the root's.

    Args:
        information: m: the weights of units that are weighted by their own measurements.
        up: the pass up the tree, where units are weighted by it.
        own: whether units that are measured are weighted by their own measurements alone.
        part: shape (D,): the part of each dense cell.
        limits: of every node.
        totals: measured totals, where totals are divided first.
    """

    plan: SpinePlan
    information: VectorStore
    up: UpTask | None
    own: bool
    part: np.ndarray
    limits: NodeLimits
    totals: MeasuredTotals
    families: Ranges
    counts: VectorStore
    frees_threads = True

    @property
    def makes(self) -> tuple[VectorStore, ...]:
        return (self.counts,)

    def __call__(self, number: int) -> TaskResult:
        if (noted := self.counts.noted(number)) is not None:
            return TaskResult(number, int(noted["missed"]))
        root = number == len(self.families)
        above, below = family_of(self.plan, self.families, number)
        weights = self._weights(below)
        descent = Descent(self.plan, weights, self.part, self.limits, self.totals)
        counts = self.counts.window((above,), (below,))
        if root:
            divided = descent.divide_root()
            counts.put(np.zeros(1, np.int64), divided.counts)
            missed = int(not divided.converged)
        else:
            counts.clear(*below)
            missed = sum(not divide_into(descent, counts, parent) for parent in range(*above))
        weights.linear.release()
        self.counts.keep(number, np.arange(*below), counts, missed=missed)
        return TaskResult(number, missed)

    def _weights(self, nodes: tuple[int, int]) -> DivisionWeights:
        own = OwnWeights(self.plan, self.information.window((nodes,)))
        if self.up is None or (self.own and self.plan.is_measured[slice(*nodes)].all()):
            return own
        up = UpWeights(self.plan, self.up.upward((nodes,)))
        return MeasuredElseUp(own, up) if self.own else up


def children_of(plan: SpinePlan, nodes: tuple[int, int]) -> tuple[int, int]:
    """The range of all children of a range of nodes of one depth."""
    return int(plan.children[nodes[0]]), int(plan.children[nodes[1]])


def family_of(plan: SpinePlan, families: Ranges, number: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """The parents of a task, and their children; after the last task no parent, and the root."""
    if number == len(families):
        return (0, 0), (0, 1)
    return families[number], children_of(plan, families[number])


def parents_in(cov: Covariances, nodes: tuple[int, int]) -> np.ndarray:
    """Those of a range of nodes that have children."""
    return nodes[0] + np.flatnonzero(~cov.kinds.is_leaf[nodes[0] : nodes[1]])


def leaves_in(cov: Covariances, nodes: tuple[int, int]) -> Ranges:
    """A range of nodes, if there are leaves among them."""
    return (nodes,) if cov.kinds.is_leaf[nodes[0] : nodes[1]].any() else ()


def _between(ranges: Ranges, low: int, high: int) -> Ranges:
    cut = ((max(first, low), min(last, high)) for first, last in ranges)
    return tuple((first, last) for first, last in cut if first < last)


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
