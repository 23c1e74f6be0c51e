"""The estimators as stages of tasks, level by level, with the parts of every level in the work folder."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np

from ..errors import InvalidArgument
from ..geography.constraints import AreaConstraints
from ..geography.spine_plan import SpinePlan
from .checkpoint import Checkpoint
from .covariances import Covariances
from .descent import (
    MeasuredTotals,
    no_limits,
    runs_of_parents,
)
from .estimate import (
    Method,
    Say,
    SpineEstimate,
)
from .fingerprint import estimate_digest
from .halves import (
    Halves,
    NodeRange,
    end_of_parents,
    largest_cell,
)
from .limits import NodeLimits
from .part_measured import PartedMeasured, Runner
from .part_tasks import (
    DivideTask,
    FallTask,
    Ranges,
    RiseTask,
    UpTask,
    children_of,
)
from .parts import Parts
from .store import Vectors
from .window import NodeWindow

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
    """The estimate of :func:`~tabulae.topdown.estimate.estimate_spine`, to the last bit, by tasks that run elsewhere.

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
