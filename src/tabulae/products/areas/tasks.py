"""The estimators as tasks: each takes the parts of one level that it needs, and makes one part.

A task computes with the functions of the single machine, on windows of the vectors that those take whole. It draws
nothing, so that a task that is run again, or twice at once, makes the same part. A part that is there is not made
again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, get_args

import numpy as np

from ...errors import InvalidArgument, ReleaseError
from .constraints import AreaConstraints
from .descent.descent import (
    Descent,
    DivisionWeights,
    MeasuredTotals,
    OwnWeights,
    UpWeights,
    divide_into,
    no_limits,
    runs_of_parents,
    totals_of,
)
from .descent.limits import NodeLimits
from .estimate import Method, Say, SpineEstimate
from .passes.covariances import Covariances
from .passes.two_pass import Passes, Upward, up_family
from .passes.vectors import (
    Halves,
    NodeRange,
    NodeWindow,
    Parts,
    Vectors,
    end_of_parents,
    largest_cell,
    lists_of,
)
from .spine_plan import SpinePieceValues, SpinePlan, estimation_variance
from .stages import Checkpoint, Fingerprint, estimate_digest, plan_digest

Ranges = tuple[tuple[int, int], ...]
"""Nodes from first to last - 1 of one depth: the parents of each task."""


class Task(Protocol):
    """A step that is cut into numbered tasks; can be pickled."""

    def __call__(self, number: int) -> TaskResult:
        """Make the part of a number, unless it is there."""
        ...


@dataclass(frozen=True)
class TaskResult:
    """What a task tells beside its part.

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


@dataclass(frozen=True, eq=False)
class RiseTask:
    """mu and t of some parents: the pass of ``gls`` up the tree.

    Args:
        cov: the matrices.
        exact: the exact counts.
        families: the parents of each task.
        information: m.
        parts: of mu and t of the nodes with children, columns ``mean`` and ``told``.
    """

    cov: Covariances
    exact: Sequence[np.ndarray]
    families: Ranges
    information: Parts
    parts: Parts

    def __call__(self, number: int) -> TaskResult:
        """The parents of one family."""
        if self.parts.noted(number) is not None:
            return TaskResult(number)
        plan, family = self.cov.plan, self.families[number]
        below = children_of(plan, family)
        m = NodeWindow.over(plan, (family, below))
        self.information.read(m, *family, "cells")
        _read_leaves(self.cov, self.information, m, below)
        found, told = NodeWindow.over(plan, (family, below)), NodeWindow.over(plan, (family,))
        self.parts.read(found, *below, "mean")
        Passes(plan, self.cov, m, found, told, self.exact).rise_family(*family)
        nodes = _parents(self.cov, family)
        columns = {
            "mean": lists_of(plan, nodes, found.cells_of(nodes)),
            "told": lists_of(plan, nodes, told.cells_of(nodes)),
        }
        self.parts.write(number, nodes, columns)
        return TaskResult(number)


@dataclass(frozen=True, eq=False)
class FallTask:
    """x^ of the children of some parents: the pass of ``gls`` down the tree. The task after the last is the root's.

    Args:
        rise: the pass up the tree, whose families are this one's too.
        parts: of x^ of all nodes, column ``cells``, and of what the children of those with children get, ``told``.
    """

    rise: RiseTask
    parts: Parts

    def __call__(self, number: int) -> TaskResult:
        """The children of one family."""
        if self.parts.noted(number) is not None:
            return TaskResult(number)
        cov, rise = self.rise.cov, self.rise
        plan, root = cov.plan, number == len(rise.families)
        above = (0, 0) if root else rise.families[number]
        below = (0, 1) if root else children_of(plan, above)
        m, found = NodeWindow.over(plan, (below,)), NodeWindow.over(plan, (below,))
        told = NodeWindow.over(plan, (above, below))
        _read_leaves(cov, rise.information, m, below)
        rise.parts.read(found, *below, "mean")
        rise.parts.read(told, *below, "told")
        self.parts.read(told, *above, "told")
        passes = Passes(plan, cov, m, found, told, rise.exact)
        for group in cov.kinds.pieces(np.arange(*below)):
            if group.leaf:
                found.put(group.nodes, passes.leaf_estimates(group))
            else:
                passes.descend_group(group)
        nodes, inner = np.arange(*below), _parents(cov, below)
        columns = {
            "cells": lists_of(plan, nodes, found.flat),
            "told": lists_of(plan, nodes, told.cells_of(inner), ~cov.kinds.is_leaf[nodes]),
        }
        self.parts.write(number, nodes, columns)
        return TaskResult(number)


@dataclass(frozen=True, eq=False)
class UpTask:
    """b of some parents: what is measured at them and below.

    Args:
        cov: the matrices, without exact margins.
        families: the parents of each task.
        information: m.
        parts: of b of the nodes with children, column ``cells``.
    """

    cov: Covariances
    families: Ranges
    information: Parts
    parts: Parts

    def __call__(self, number: int) -> TaskResult:
        """The parents of one family."""
        if self.parts.noted(number) is not None:
            return TaskResult(number)
        plan, family = self.cov.plan, self.families[number]
        below = children_of(plan, family)
        linear = NodeWindow.over(plan, (family, below))
        self.information.read(linear, *family, "cells")
        self.read(linear, below)
        up_family(Upward(self.cov, linear), *family)
        nodes = _parents(self.cov, family)
        self.parts.write(number, nodes, {"cells": lists_of(plan, nodes, linear.cells_of(nodes))})
        return TaskResult(number)

    def read(self, linear: NodeWindow, nodes: tuple[int, int]) -> None:
        """b of nodes for which it was made, and of leaves, whose b is m."""
        _read_leaves(self.cov, self.information, linear, nodes)
        self.parts.read(linear, *nodes, "cells")


@dataclass(frozen=True, eq=False)
class DivideTask:
    """Whole counts of the children of some parents. The task after the last is the root's.

    Args:
        plan: what was measured.
        information: m: the weights of units that are weighted by their own measurements.
        up: the pass up the tree, where units are weighted by it.
        root_only: whether the root alone is.
        part: shape (D,): the part of each dense cell.
        limits: of every node.
        totals: measured totals, where totals are divided first.
        runs: the parents of each task.
        parts: of the counts of all nodes, column ``cells``.
    """

    plan: SpinePlan
    information: Parts
    up: UpTask | None
    root_only: bool
    part: np.ndarray
    limits: NodeLimits
    totals: MeasuredTotals
    runs: Ranges
    parts: Parts

    def __call__(self, number: int) -> TaskResult:
        """The children of one run of parents."""
        if (noted := self.parts.noted(number)) is not None:
            return TaskResult(number, int(noted["missed"]))
        plan, root = self.plan, number == len(self.runs)
        above = (0, 0) if root else self.runs[number]
        below = (0, 1) if root else children_of(plan, above)
        weights = self._weights(below, root=root)
        descent = Descent(plan, weights, weights, self.part, self.limits, self.totals)
        counts = NodeWindow.over(plan, (above, below), np.int64)
        self.parts.read(counts, *above, "cells")
        if root:
            divided = descent.divide_root()
            counts.put(np.zeros(1, np.int64), divided.counts)
            missed = int(not divided.converged)
        else:
            missed = sum(not divide_into(descent, counts, parent) for parent in range(*above))
        nodes = np.arange(*below)
        self.parts.write(
            number, nodes, {"cells": lists_of(plan, nodes, counts.cells_of(nodes))}, missed=missed
        )
        return TaskResult(number, missed)

    def _weights(self, nodes: tuple[int, int], *, root: bool) -> DivisionWeights:
        linear = NodeWindow.over(self.plan, (nodes,))
        if self.up is None or (self.root_only and not root):
            self.information.read(linear, *nodes, "cells")
            return OwnWeights(self.plan, linear)
        self.up.read(linear, nodes)
        return UpWeights(self.plan, Upward(self.up.cov, linear))


def children_of(plan: SpinePlan, nodes: tuple[int, int]) -> tuple[int, int]:
    """The range of all children of a range of nodes of one depth."""
    return int(plan.children[nodes[0]]), int(plan.children[nodes[1]])


def _parents(cov: Covariances, nodes: tuple[int, int]) -> np.ndarray:
    """Those of a range of nodes that have children."""
    return nodes[0] + np.flatnonzero(~cov.kinds.is_leaf[nodes[0] : nodes[1]])


def _read_leaves(cov: Covariances, information: Parts, window: NodeWindow, nodes: tuple[int, int]) -> None:
    """m of a range of nodes, if there are leaves among them."""
    if cov.kinds.is_leaf[nodes[0] : nodes[1]].any():
        information.read(window, *nodes, "cells")


Numbers = Callable[[range], list[TaskResult]]
"""Runs the tasks of some numbers, in any order and place, and gives what they tell in the order of numbers."""

Runner = Callable[[Task], AbstractContextManager[Numbers]]
"""Takes a task to where it is run, and away again."""


@dataclass(frozen=True, eq=False)
class PartedMeasured:
    """What :class:`~.measured.Measured` is, with m in parts.

    Attributes:
        information: m of every node that is measured, column ``cells``.
        totals: the answers to the query of the total.
        digest: of all answers.
    """

    information: Parts
    totals: MeasuredTotals
    digest: str


@dataclass(frozen=True, eq=False)
class ReadTask:
    """m of a piece's nodes, from its stored measurements.

    Args:
        plan: what was measured.
        read: the measurements of the piece of a number, verified.
        parts: of m, column ``cells``.
    """

    plan: SpinePlan
    read: Callable[[int], SpinePieceValues]
    parts: Parts

    def __call__(self, number: int) -> TaskResult:
        """Read the piece; write its part, or see that the part is of the same measurements.

        Raises:
            ReleaseError: the measurements are not those of the plan, or others than the part's, or the folder is not
                seen here.
        """
        self.parts.check_seen()
        given = self.read(number)
        digest = Fingerprint().add(given.values).hex()
        noted = self.parts.noted(number)
        if noted is None:
            nodes = given.piece.nodes
            m = lists_of(self.plan, nodes, self.plan.information(given).reshape(-1))
            self.parts.write(number, nodes, {"cells": m}, digest=digest)
        elif noted.get("digest") != digest:
            raise ReleaseError(
                f"{self.parts.folder} holds the work of an estimate from other measurements: remove it and begin anew"
            )
        totals = totals_of(self.plan, given)
        return TaskResult(
            number, digest=digest, totals=b"" if totals is None else totals[0].astype(np.int64).tobytes()
        )


def read_in_parts(
    plan: SpinePlan,
    read: Callable[[int], SpinePieceValues],
    run: Runner,
    work: Path,
    say: Say = lambda line: None,
) -> PartedMeasured:
    """Read stored measurements by tasks; all of them in any case, to see which they are.

    Args:
        plan: what was measured.
        read: the measurements of the piece of a number; goes to the tasks, which call it.
        run: who runs tasks.
        work: a folder for m, which is found there again, and which all tasks and this process share.
        say: called with a line of progress.

    Raises:
        ReleaseError: the measurements are not those of the plan, or the work folder is of others, or is not shared.
    """
    say("reading the measurements")
    Checkpoint(work, f"{plan_digest(plan)} in parts")
    of = np.full(plan.tree.size, -1, np.int32)
    for number, piece in enumerate(plan.pieces):
        of[piece.nodes] = number
    parts = Parts.under(work, "information", of)
    with run(ReadTask(plan, read, parts)) as tasks:
        done = tasks(range(len(plan.pieces)))
    parts.check_there(one.number for one in done)
    digest = Fingerprint().add([one.digest for one in done]).hex()
    return PartedMeasured(parts, _totals(plan, done), digest)


def _totals(plan: SpinePlan, done: list[TaskResult]) -> MeasuredTotals:
    """The measured totals that were read."""
    found = MeasuredTotals.none(plan.tree.size)
    for piece, one in zip(plan.pieces, done, strict=True):
        if one.totals:
            laws = plan.laws(int(plan.classes[1][piece.nodes[0]]))
            law = next(law for query, law in zip(plan.queries, laws, strict=True) if query.size == 1 and law)
            found.value[piece.nodes] = np.frombuffer(one.totals, np.int64)
            found.variance[piece.nodes] = estimation_variance(law)
    return found


_PARTS = "parts"
_GATHERED = "gathered"


def estimate_in_parts(
    plan: SpinePlan,
    measured: PartedMeasured,
    method: Method,
    run: Runner,
    *,
    work: Path,
    constraints: AreaConstraints | None = None,
    exact_values: Sequence[np.ndarray] = (),
    say: Say = lambda line: None,
) -> SpineEstimate:
    """The estimate of :func:`~.estimate.estimate_spine`, to the last bit, by tasks that run elsewhere.

    Tasks are over runs of parents, one level after the other. Each takes the parts of the levels beside its own from
    the work folder and leaves one there, which is not made again: not by a task that was lost and runs once more, and
    not by an estimate that was interrupted and goes on.

    Args:
        plan: what was measured.
        measured: the measurements, in parts.
        method: "gls", "topdown" or "bluedown".
        run: who runs tasks.
        work: a folder that all tasks and this process share; nothing in it is confidential.
        constraints, exact_values, say: as for ``estimate_spine``.

    Raises:
        InvalidArgument: an unknown method, or constraints that cannot be met.
        ReleaseError: the work folder is of another estimate, or tasks do not share it.
    """
    if method not in get_args(Method):
        raise InvalidArgument(f"method is {method!r}; it must be one of {', '.join(get_args(Method))}")
    if constraints is not None:
        constraints.check(plan, method)
    digest = estimate_digest(plan, method, constraints, exact_values, measured.digest)
    checkpoint = Checkpoint(work, f"{digest} in parts")
    stored = checkpoint.found(_GATHERED)
    gathered = _Gathered(plan, work, checkpoint)
    if stored is not None:
        return SpineEstimate(plan, method, gathered.vectors(method), constraints, int(stored["missed"]))
    (work / _PARTS).mkdir(exist_ok=True)
    steps = _Steps(plan, measured, checkpoint, work / _PARTS, run, say)
    if method == "gls":
        parts, missed = steps.least_squares(constraints, exact_values), 0
    else:
        parts, missed = steps.divided(method, constraints, exact_values)
    say("gathering the estimates")
    vectors = gathered.vectors(method, parts)
    checkpoint.finish(_GATHERED, missed=np.array(missed))
    shutil.rmtree(work / _PARTS, ignore_errors=True)  # the whole folder goes in the end
    return SpineEstimate(plan, method, vectors, constraints, missed)


@dataclass(frozen=True, eq=False)
class _Steps:
    """One estimate at work.

    Args:
        plan: what was measured.
        measured: the measurements, in parts.
        checkpoint: finished stages.
        folder: of parts.
        run: who runs tasks.
        say: called with a line of progress at each stage.
    """

    plan: SpinePlan
    measured: PartedMeasured
    checkpoint: Checkpoint
    folder: Path
    run: Runner
    say: Say

    def least_squares(self, constraints: AreaConstraints | None, exact_values: Sequence[np.ndarray]) -> Parts:
        """x^ of all nodes."""
        cov = Covariances.of(self.plan, () if constraints is None else constraints.exact)
        families = _families(cov)
        up = RiseTask(
            cov, tuple(exact_values), families, self.measured.information, self._parts("rise", families)
        )
        self._up(up, "least squares up the spine, to depth {}")
        down = FallTask(up, self._parts("fall", self._below(families)))
        self._down(down, families, "least squares down the spine, to depth {}")
        return down.parts

    def divided(
        self, method: Method, constraints: AreaConstraints | None, exact_values: Sequence[np.ndarray]
    ) -> tuple[Parts, int]:
        """Whole counts of all nodes, and in how many divisions the solver stopped early."""
        plan, topdown = self.plan, method == "topdown"
        limits = no_limits(plan) if constraints is None else NodeLimits.of(plan, constraints, exact_values)
        part = np.zeros(plan.layout.size, np.int64) if constraints is None else constraints.part
        totals = self.measured.totals if topdown else MeasuredTotals.none(plan.tree.size)
        up = None
        if not (topdown and any(plan.laws(int(plan.classes[1][0])))):
            cov = Covariances.of(plan)
            families = _families(cov)
            _ = cov.inverses  # made here once, and not by every process that runs tasks
            up = UpTask(cov, families, self.measured.information, self._parts("up", families))
            self._up(up, "least squares up the spine, to depth {}")
        runs = tuple(
            (parents.start, parents.stop)
            for depth in range(1, len(plan.depths))
            for parents in runs_of_parents(plan, depth)
        )
        counts = self._parts("counts", self._below(runs))
        down = DivideTask(plan, self.measured.information, up, topdown, part, limits, totals, runs, counts)
        return counts, self._down(down, runs, "dividing counts among the units of depth {}")

    def _up(self, task: RiseTask | UpTask, told: str) -> None:
        """All families, the deepest first."""
        depths = reversed(range(len(self.plan.depths) - 1))
        self._stages(task, [(depth, _numbers(self.plan, task.families, depth)) for depth in depths], told)

    def _down(self, task: FallTask | DivideTask, parents: Ranges, told: str) -> int:
        """The root, then the children of all parents, the first depth first: in how many divisions solvers stopped."""
        root = (0, range(len(parents), len(parents) + 1))
        depths = range(len(self.plan.depths) - 1)
        below = [(depth + 1, _numbers(self.plan, parents, depth)) for depth in depths]
        return self._stages(task, [root, *below], told)

    def _stages(
        self, task: RiseTask | UpTask | FallTask | DivideTask, stages: Sequence[tuple[int, range]], told: str
    ) -> int:
        """Each a depth and the numbers of its tasks, in this order: in how many divisions solvers stopped early."""
        missed = 0
        with self.run(task) as tasks:
            for depth, numbers in stages:
                stage = f"{task.parts.folder.name}-{depth:02}"
                if (stored := self.checkpoint.found(stage)) is None:
                    self.say(told.format(depth))
                    done = tasks(numbers)
                    task.parts.check_there(one.number for one in done)
                    stored = {"missed": np.array(sum(one.missed for one in done))}
                    self.checkpoint.finish(stage, **stored)
                missed += int(stored["missed"])
        return missed

    def _below(self, parents: Ranges) -> Ranges:
        """What each task makes whose parents are these: their children, and the root last."""
        return (*(children_of(self.plan, family) for family in parents), (0, 1))

    def _parts(self, name: str, ranges: Ranges) -> Parts:
        """Parts of ranges of nodes."""
        of = np.full(self.plan.tree.size, -1, np.int32)
        for number, (first, last) in enumerate(ranges):
            of[first:last] = number
        return Parts.under(self.folder, name, of)


@dataclass(frozen=True, eq=False)
class _Gathered:
    """The vectors of all nodes, in files of the work folder as the single machine has them.

    Args:
        plan: what was measured.
        work: the work folder.
        checkpoint: of the estimate.
    """

    plan: SpinePlan
    work: Path
    checkpoint: Checkpoint

    def vectors(self, method: Method, parts: Parts | None = None) -> Vectors:
        """Estimates of "gls", or whole counts, from their parts where they are not made."""
        plan, end = self.plan, end_of_parents(self.plan)
        if method == "gls":
            return self._range(0, plan.tree.size, np.float64, "estimate", parts)
        above = self._range(0, end, np.int64, "counts", parts)
        kind = np.min_scalar_type(largest_cell(above, plan.depths[int(plan.depth[end]) - 1]))
        return Halves(above, self._range(end, plan.tree.size, kind, "leaves", parts))

    def _range(self, first: int, last: int, dtype: Any, name: str, parts: Parts | None) -> NodeRange:
        path = self.work / f"{name}.npy"
        if parts is None:
            with self.checkpoint.reading(path):
                return NodeRange.stored(self.plan, first, last, path)
        found = NodeRange.between(self.plan, first, last, dtype, path)
        parts.read(NodeWindow(self.plan, found.flat, ((first, last),)), first, last, "cells")
        found.flush()
        return found


def _families(cov: Covariances) -> Ranges:
    """The parents of each task, as the single machine takes them."""
    plan = cov.plan

    def found() -> Iterator[tuple[int, int]]:
        for depth in range(len(plan.depths) - 1):
            yield from cov.kinds.families(depth, plan.layout.size * plan.layout.algebra.cells)

    return tuple((int(first), int(last)) for first, last in found())


def _numbers(plan: SpinePlan, parents: Ranges, depth: int) -> range:
    """The tasks whose parents are of a depth; parents rise with their numbers."""
    nodes, starts = plan.depths[depth], [first for first, _ in parents]
    return range(*np.searchsorted(starts, [nodes.start, nodes.stop]).tolist())
