"""Estimates of every unit of a spine: measurements read once, passes and divisions level by level, resumed at a level.

The same stages and tasks run in this process, on vectors in memory or mapped files, and on Spark, on parts in Parquet.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from scipy import sparse

from ...errors import InvalidArgument
from ...release.progress import Progress, Say, quiet, within
from .constraints import AreaConstraints
from .descent.descent import MeasuredTotals, no_limits, runs_of_parents
from .descent.limits import NodeLimits
from .layout import Margin
from .passes.area_variances import area_covariances
from .passes.covariances import Covariances
from .passes.two_pass import Passes, TwoPassEstimate
from .passes.vectors import (
    Halves,
    NodeVectors,
    Parts,
    Ranges,
    Vectors,
    VectorStore,
    end_of_parents,
    largest_cell,
)
from .spine_plan import SpinePieceValues, SpinePlan, area_half_widths, estimation_variance
from .stages import Checkpoint, Fingerprint, estimate_digest, plan_digest
from .tasks import (
    DivideTask,
    FallTask,
    Numbers,
    ReadTask,
    RiseTask,
    Runner,
    TaskResult,
    UpTask,
    children_of,
    in_threads,
    of_other_measurements,
    parents_in,
)


@dataclass(frozen=True, eq=False)
class MeasuredNodes:
    """Measurements as estimates take them.

    Attributes:
        information: m = sum Q'y / variance of every node, in natural coordinates.
        totals: the answers to the query of the total.
        digest: of all answers.
    """

    information: VectorStore
    totals: MeasuredTotals
    digest: str


def read_measured(
    plan: SpinePlan,
    pieces: Iterable[SpinePieceValues] | Callable[[int], SpinePieceValues],
    work: Path | None = None,
    say: Say = quiet,
    run: Runner | None = None,
    files: str = "",
) -> MeasuredNodes:
    """Read measurements to their end, to see which they are; not again where the same files were read before.

    Args:
        pieces: the measurements, all of ``plan.pieces`` in their order; or what gives the piece of a number, and goes
            to the tasks.
        work: a folder for m, which is found there again; in memory where None.
        run: who runs tasks, on processes that share the work folder; this process where None.
        files: digest of the files that the pieces come from.

    Raises:
        InvalidArgument: the measurements do not fit the plan.
        ReleaseError: the work folder is of other measurements, or is not shared.
    """
    count = len(plan.pieces)
    place = _place(plan, work, plan_digest(plan), run, 1)
    stored, information = place.checkpoint.found(_READ), _information(plan, place)
    if stored is not None and files and stored["files"] == np.array(files):
        return MeasuredNodes(information, _totals(plan, stored["totals"]), str(stored["measurements"]))
    say(Progress("reading the measurements"))
    stream = iter(()) if callable(pieces) else iter(pieces)
    read = pieces if callable(pieces) else _in_order(stream, count)
    with place.run(ReadTask(plan, read, information, known=stored is not None)) as tasks:
        done = tasks(range(count))
    if next(stream, None) is not None:
        raise InvalidArgument("these measurements are of another plan: their pieces are not this plan's")
    if stored is None:
        return _finished(plan, place, information, done, files)
    if stored["measurements"] != np.array(_digest(done)):
        raise of_other_measurements(place.checkpoint.folder)
    return MeasuredNodes(information, _totals(plan, stored["totals"]), _digest(done))


_READ = "information"
"""The stage of measurements that were read."""


def _information(plan: SpinePlan, place: Here | Elsewhere) -> Any:
    return place.vectors(_READ, _READ, (piece.nodes for piece in plan.pieces), every=True)


def _digest(done: Sequence[TaskResult]) -> str:
    return Fingerprint().add([one.digest for one in done]).hex()


def _finished(
    plan: SpinePlan, place: Here | Elsewhere, information: Any, done: Sequence[TaskResult], files: str
) -> MeasuredNodes:
    """What was read, once it is on the disk where it has to be."""
    information.sync(one.number for one in done)
    values, digest = _values(plan, done), _digest(done)
    place.checkpoint.finish(_READ, measurements=np.array(digest), totals=values, files=np.array(files))
    return MeasuredNodes(information, _totals(plan, values), digest)


class Intake:
    """Takes measurements in while they are stored, as :func:`read_measured` does afterwards: they are not read again.

    What a full disk or memory ends is given up, and read afterwards: noise that was paid for is stored all the same.

    Args:
        work: of :func:`read_measured`; what is there is removed.
    """

    def __init__(self, plan: SpinePlan, work: Path) -> None:
        self.plan, self.work = plan, work
        self._place: Here | None = None
        self._information: Any = None
        self._done: list[TaskResult] = []

    def begin(self) -> None:
        """Take room for what will come."""
        with self._or_none():
            shutil.rmtree(self.work, ignore_errors=True)
            self._done = []
            self._place = Here(self.plan, Checkpoint(self.work, plan_digest(self.plan)), in_threads(1))
            self._information = _information(self.plan, self._place)

    def __call__(self, given: SpinePieceValues) -> None:
        """Take the next piece."""
        with self._or_none():
            if self._place is not None:
                read = ReadTask(self.plan, lambda number: given, self._information)
                self._done.append(read(len(self._done)))

    def finish(self, files: str) -> None:
        """Say that all is there, of the files with this digest."""
        with self._or_none():
            if self._place is not None:
                _finished(self.plan, self._place, self._information, self._done, files)

    @contextmanager
    def _or_none(self) -> Iterator[None]:
        try:
            yield
        except (OSError, MemoryError):
            self._place = self._information = None
            shutil.rmtree(self.work, ignore_errors=True)


def _in_order(pieces: Iterator[SpinePieceValues], count: int) -> Callable[[int], SpinePieceValues]:
    """The next piece, whatever its number: for tasks that run in the order of numbers."""

    def read(number: int) -> SpinePieceValues:
        given = next(pieces, None)
        if given is None:
            raise InvalidArgument(f"the measurements end after {number} of {count} pieces")
        return given

    return read


def _values(plan: SpinePlan, done: Sequence[TaskResult]) -> np.ndarray:
    """Shape (nodes,), int64: the answers to the query of the total; 0 where a node does not answer it."""
    found = np.zeros(plan.tree.size, np.int64)
    for piece, one in zip(plan.pieces, done, strict=True):
        if one.totals:
            found[piece.nodes] = np.frombuffer(one.totals, np.int64)
    return found


def _totals(plan: SpinePlan, values: np.ndarray) -> MeasuredTotals:
    """The answers with their variances, of which every node of a class has the same."""
    total = next((i for i, query in enumerate(plan.queries) if query.size == 1), None)
    if total is None:
        return MeasuredTotals.none(plan.tree.size)
    laws = [plan.laws(kind)[total] for kind in range(len(plan.classes[0]))]
    variances = np.array([np.nan if law is None else estimation_variance(law) for law in laws])
    return MeasuredTotals(values.astype(float), variances[plan.classes[1]])


def leaves_held(plan: SpinePlan) -> np.ndarray:
    """Shape (nodes,): how many leaves lie in each node."""
    held = np.bincount(plan.tree.leaf, minlength=plan.tree.size)
    for above, below in reversed([*pairwise(plan.depths)]):
        so_far = np.concatenate([[0], np.cumsum(held[below])])
        held[above] += np.diff(so_far[plan.children[above.start : above.stop + 1] - below.start])
    return held


def covers(
    plan: SpinePlan, held: np.ndarray, leaves: np.ndarray, area: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The fewest nodes that areas are sums of, as areas do not overlap.

    From the deepest nodes up: those of one parent give way to it where they are all of its leaves, and of one area.

    Args:
        leaves: shape (m,): the leaves that lie in some area.
        area: shape (m,): in which.

    Returns:
        Nodes, rising, and the area of each.
    """
    node = plan.tree.leaf[leaves]
    order = np.argsort(node, kind="stable")
    rows = np.stack([node[order], area[order], np.ones(leaves.size, np.int64)])
    raised, found = rows[:, :0], []
    for nodes in reversed(plan.depths):
        first = int(np.searchsorted(rows[0], nodes.start))
        here = np.concatenate([rows[:, first:], raised], axis=1)
        here, rows = here[:, np.argsort(here[0], kind="stable")], rows[:, :first]
        stays, raised = _raised(plan, held, here) if nodes.start else (here, here[:, :0])
        found.append(stays[:2])
    nodes, owner = np.concatenate(found[::-1], axis=1)
    return nodes, owner


def _raised(plan: SpinePlan, held: np.ndarray, here: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Nodes of one depth that stay, and the parents that the others give way to: rows of node, area and leaves."""
    if not here.shape[1]:
        return here, here
    parent = plan.tree.parent[here[0]]
    starts = np.flatnonzero(np.diff(parent, prepend=-1))
    low, high = np.minimum.reduceat(here[1], starts), np.maximum.reduceat(here[1], starts)
    sums = np.add.reduceat(here[2], starts)
    whole = (low == high) & (sums == held[parent[starts]])
    stays = ~np.repeat(whole, np.diff(np.append(starts, parent.size)))
    return here[:, stays], np.stack([parent[starts], low, sums])[:, whole]


Method = Literal["gls", "topdown", "bluedown"]

MEASURED = "measured"
"""The folder, within that of an estimate, of what is read of the measurements."""

_CELLS = 1 << 21  # about how many cells of leaves are added up at a time


@dataclass(frozen=True, eq=False)
class SpineEstimate:
    """Estimated counts of every unit of a spine.

    Those of "gls" are unbiased, real numbers that may be negative, with exact variances. Those of "topdown" and
    "bluedown" are whole, 0 or more, meet every constraint, and are biased for that; the variances of "gls" do not hold
    for them.

    Attributes:
        method: "gls", "topdown", "bluedown" or "posterior"; the last is not made here.
        vectors: the counts of every node, float64 for "gls", int64 otherwise.
        constraints: what the estimate took as known besides the measurements.
        unconverged: in how many divisions the solver stopped early: their counts meet every constraint, and others may
            be nearer to the measurements.
    """

    plan: SpinePlan
    method: Method | Literal["posterior"]
    vectors: Vectors
    constraints: AreaConstraints | None = None
    unconverged: int = 0

    @cached_property
    def covariances(self) -> Covariances:
        """The covariances of "gls"."""
        if self.method != "gls":
            raise InvalidArgument(f"the errors of {self.method!r} have no known law: use those of 'gls'")
        if isinstance(self.vectors, TwoPassEstimate):
            return self.vectors.cov
        return Covariances.of(self.plan, () if self.constraints is None else self.constraints.exact)

    def area_covariances(
        self, area: np.ndarray, areas: int, kinds: int | None = None
    ) -> Iterator[np.ndarray]:
        """V of "gls" for each set of leaves, (kinds, D, D); 0 for dense cells that cannot occur in it.

        Args:
            kinds: of how many kinds, from the first on; all where None.
        """
        return area_covariances(self.covariances, area, areas, kinds)

    def half_widths(self, variance: np.ndarray, level: float) -> np.ndarray:
        """Half the width of an interval for each variance."""
        return area_half_widths(variance, self.plan.all_laws, level)

    def margin(self, margin: Margin, area: np.ndarray, areas: int) -> np.ndarray:
        """A marginal table of any areas that are sums of leaves, and do not overlap.

        Args:
            area: shape (leaves,): the area of each leaf, -1 where it is in none.

        Returns:
            Shape (areas, margin.classes, margin.inner).
        """
        inside = np.flatnonzero(area >= 0)
        return self.margins([margin], area[inside], areas, inside)[0]

    def margins(
        self, margins: Sequence[Margin], area: np.ndarray, areas: int, leaves: np.ndarray
    ) -> list[np.ndarray]:
        """Several marginal tables of the same areas: the leaves are looked at once.

        Args:
            area: shape (m,): the area of each of the leaves.
            leaves: shape (m,): those that lie in some area.

        Returns:
            For each margin shape (areas, margin.classes, margin.inner).
        """
        node, owner = covers(self.plan, self._held, leaves, area)
        found = [np.zeros((areas, each.classes, each.inner), self.vectors.dtype) for each in margins]
        take = self.vectors.take
        if isinstance(self.vectors, TwoPassEstimate) and all(each.kinds == 1 for each in margins):
            take = self.vectors.sums
        for some in self._parts(node):
            support, x = self.plan.dense_cells[self.plan.pattern[node[some[0]]]], take(node[some])
            rows, place = np.unique(owner[some], return_inverse=True)
            several = rows.size < some.size
            if several:
                ones = sparse.csr_array((np.ones(some.size, x.dtype), (place, np.arange(some.size))))
            for margin, total in zip(margins, found, strict=True):
                present, sums = margin.present(support), margin.add_up(x, support)
                if several:
                    sums = (ones @ sums.reshape(some.size, -1)).reshape(rows.size, present.size, margin.inner)
                total[(rows if several else owner[some])[:, None], present] += sums
        return found

    def _parts(self, nodes: np.ndarray) -> Iterator[np.ndarray]:
        """Positions of nodes (rising) of one support, not too many cells at a time; the next are read meanwhile."""
        ends = np.cumsum(self.plan.offsets[nodes + 1] - self.plan.offsets[nodes])
        cuts = np.searchsorted(ends, np.arange(_CELLS, ends[-1], _CELLS)) if nodes.size else []
        parts = [each for each in np.split(np.arange(nodes.size), cuts) if each.size]
        none = np.zeros(0, np.int64)  # before the first, which is asked for, too
        for some, following in zip([none, *parts], [*parts, none], strict=True):
            self.vectors.fetch(nodes[following])
            pattern = self.plan.pattern[nodes[some]]
            for one in np.unique(pattern).tolist():
                yield some[pattern == one]
            self.vectors.release()

    @cached_property
    def _held(self) -> np.ndarray:
        return leaves_held(self.plan)

    def leaf_cells(self, first: int, last: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Cells of leaves first to last - 1 that are not 0.

        Returns:
            Shape (m,) each: the leaf, rising; the cell as ``dense cell * N + combination``, rising within a leaf; and
            what it holds.
        """
        plan = self.plan
        inner, nodes = plan.layout.algebra.cells, plan.tree.leaf[first:last]
        order = np.argsort(nodes, kind="stable")
        pattern = plan.pattern[nodes[order]]
        self.vectors.fetch(np.sort(nodes))
        found = [(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, self.vectors.dtype))]
        for one in np.unique(pattern).tolist():
            here = order[pattern == one]
            x = self.vectors.take(nodes[here])
            row, dense, combination = np.nonzero(x)
            place = plan.dense_cells[one][dense] * inner + combination
            found.append((first + here[row], place, x[row, dense, combination]))
        self.vectors.release()
        leaf, place, held = (np.concatenate(columns) for columns in zip(*found, strict=True))
        rising = np.argsort(leaf * plan.layout.cell.size + place)
        return leaf[rising], place[rising], held[rising]

    def leaf_counts(self, first: int, last: int) -> np.ndarray:
        """The cells of leaves first to last - 1: shape (last - first, D, N), 0 where a cell cannot occur."""
        nodes = self.plan.tree.leaf[first:last]
        found = self.vectors.take_on(nodes, np.arange(self.plan.layout.size))
        self.vectors.release()
        return found


def estimate_spine(
    plan: SpinePlan,
    stream: Iterable[SpinePieceValues] | MeasuredNodes,
    method: Method = "bluedown",
    *,
    constraints: AreaConstraints | None = None,
    exact_values: Sequence[np.ndarray] = (),
    work: Path | None = None,
    workers: int | None = None,
    run: Runner | None = None,
    say: Say = quiet,
) -> SpineEstimate:
    """Estimate the counts of every unit from all measurements.

    "gls" is generalised least squares in two passes over the tree. "topdown" divides the root's estimate among its
    children, theirs among their children and so on, each time by non-negative least squares on the children's own
    measurements, their totals first, and controlled rounding. "bluedown" does the same in one step a unit, with all
    that is measured below a child as its weights.

    Args:
        stream: the measurements, all of ``plan.pieces`` in their order; or what :func:`read_measured` made of them.
        method: "gls", "topdown" or "bluedown".
        constraints: limits and exact margins; "gls" uses the exact margins alone.
        exact_values: for each exact margin of the constraints shape (units of its level, classes), int64.
        work: a folder for arrays and finished stages: an estimate that was interrupted goes on from the last of them.
            Everything stays in memory where None.
        workers: threads; as many as there are cores where None. The estimate does not depend on it.
        run: who runs tasks, on processes that share the work folder; this process where None. The estimate does not
            depend on it.

    Raises:
        InvalidArgument: an unknown method, constraints that cannot be met, or measurements of another plan.
        ReleaseError: the work folder is of another estimate.

    References: Abowd et al., "The 2020 Census Disclosure Avoidance System TopDown Algorithm" (2022); Cumings-Menon,
    "Full-Information Estimation for Hierarchical Data" (arXiv 2404.13164) and "BlueDown" (arXiv 2603.10099).

    >>> from fractions import Fraction
    >>> from tabulae import Domain, Spine, ZCDP
    >>> from tabulae.products.areas.layout import CellLayout, Supports
    >>> spine = Spine.from_codes({"block": ["a", "b"]}, levels=["block"]).with_shares({"root": "1/2", "block": "1/2"})
    >>> layout = CellLayout.of(Domain({"age": 2}))
    >>> shares = dict.fromkeys(spine.levels, (Fraction(1),))
    >>> plan = SpinePlan(spine, layout, (layout.margin(["age"]),), shares, ZCDP(1), Supports.of(np.ones((2, 1), bool)))
    >>> measured = [np.array([[9, 4]]), np.array([[4, -2], [5, 3]])]
    >>> stream = [SpinePieceValues(piece, (values,)) for piece, values in zip(plan.pieces, measured)]
    >>> estimate_spine(plan, stream, "bluedown").leaf_counts(0, 2).reshape(2, 2).tolist()
    [[4, 0], [5, 3]]
    """
    if method not in get_args(Method):
        raise InvalidArgument(f"method is {method!r}; it must be one of {', '.join(get_args(Method))}")
    if constraints is not None:
        constraints.check(plan, method)
    measured = (
        stream
        if isinstance(stream, MeasuredNodes)
        else read_measured(plan, stream, None if work is None else work / MEASURED, say, run)
    )
    digest = estimate_digest(plan, method, constraints, exact_values, measured.digest)
    estimation = Estimation(plan, measured, _place(plan, work, digest, run, workers), say)
    if method == "gls":
        cov = Covariances.of(plan, () if constraints is None else constraints.exact)
        found = estimation.least_squares(cov, exact_values)
        return SpineEstimate(plan, method, found, constraints)
    counts, unconverged = estimation.divided(method, constraints, exact_values)
    return SpineEstimate(plan, method, counts, constraints, unconverged)


@dataclass(frozen=True, eq=False)
class Estimation:
    """One estimate at work: steps of stages, a stage for each level, a task for each run of neighbouring parents.

    Args:
        place: where vectors are, and who runs tasks.
        say: called with the progress at each stage.
    """

    plan: SpinePlan
    measured: MeasuredNodes
    place: Here | Elsewhere
    say: Say = quiet

    def least_squares(self, cov: Covariances, exact_values: Sequence[np.ndarray] = ()) -> TwoPassEstimate:
        """x^ of all nodes, with the margins of ``cov`` exact."""
        plan, place = self.plan, self.place
        families = _families(cov)

        def vectors(name: str, step: str, made: Ranges) -> VectorStore:
            return place.vectors(name, step, (parents_in(cov, nodes) for nodes in made))

        mean, told = (vectors(name, "rise", families) for name in ("mean", "told"))
        estimate, passed = mean, told
        if place.checkpoint.folder is not None:  # where it can be resumed, no pass overwrites what it reads
            below = _below(plan, families)
            estimate, passed = (vectors(name, "fall", below) for name in ("estimate", "passed"))
        passes = Passes(cov, tuple(exact_values), self.measured.information, mean, told, estimate, passed)
        passes.check_exact()
        self._up("rise", RiseTask(passes, families), within(self.say, 0, _UP))
        down, told = within(self.say, _UP, 1), "least squares down the spine, to depth {}"
        self._down("fall", FallTask(passes, families), down, told, leaves=False)
        information = place.gathered(self.measured.information, "information", every=True)
        estimate, passed = place.gathered(estimate, "estimate"), place.gathered(passed, "passed")
        place.clear()
        return TwoPassEstimate(replace(passes, information=information, mean=estimate, told=passed,
                                       estimate=estimate, passed=passed))  # fmt: skip

    def upward(self) -> UpTask:
        """b of the nodes before ``end_of_parents``: what is measured at them and below."""
        cov = Covariances.of(self.plan)
        families = _families(cov)
        _ = cov.inverses  # made here once, and not by every thread or process that runs tasks
        end = end_of_parents(self.plan)
        made = (np.arange(first, min(last, end)) for first, last in families)
        linear = self.place.vectors("linear", "up", made)
        task = UpTask(cov, families, self.measured.information, linear)
        self._up("up", task, within(self.say, 0, _UP))
        return task

    def divided(
        self,
        method: Method,
        constraints: AreaConstraints | None = None,
        exact_values: Sequence[np.ndarray] = (),
    ) -> tuple[Halves, int]:
        """Whole counts of all nodes, and in how many divisions the solver stopped early.

        A root that is not measured is estimated from below, and so are areas that are held without being measured.
        """
        plan, topdown = self.plan, method == "topdown"
        limits = no_limits(plan) if constraints is None else NodeLimits.of(plan, constraints, exact_values)
        part = np.zeros(plan.layout.size, np.int64) if constraints is None else constraints.part
        totals = self.measured.totals if topdown else MeasuredTotals.none(plan.tree.size)
        up = None if topdown and plan.is_measured.all() else self.upward()
        families = tuple(
            (parents.start, parents.stop)
            for depth in range(1, len(plan.depths))
            for parents in runs_of_parents(plan, depth)
        )
        counts = self.place.counts(np.arange(*nodes) for nodes in _below(plan, families))
        task = DivideTask(
            plan, self.measured.information, up, topdown, part, limits, totals, families, counts
        )
        down = within(self.say, 0.0 if up is None else _UP, 1)
        missed = self._down("counts", task, down, "dividing counts among the units of depth {}")
        found = self.place.gathered_counts(counts)
        self.place.clear()
        return found, missed

    def _up(self, step: str, task: RiseTask | UpTask, say: Say) -> None:
        depths = reversed(range(len(self.plan.depths) - 1))
        stages = ((depth, _numbers(self.plan, task.families, depth)) for depth in depths)
        self._stages(step, task, stages, say, "least squares up the spine, to depth {}")

    def _down(
        self, step: str, task: FallTask | DivideTask, say: Say, told: str, *, leaves: bool = True
    ) -> int:
        """The root, then the children of all parents, the first depth first: in how many divisions solvers stopped."""

        def stages() -> Iterator[tuple[int, range]]:
            yield 0, range(len(task.families), len(task.families) + 1)
            for depth in range(1, len(self.plan.depths) - (not leaves)):
                if leaves and depth == leaf_depth(self.plan):
                    self.place.begin_leaves(task.makes[0])
                yield depth, _numbers(self.plan, task.families, depth - 1)

        return self._stages(step, task, stages(), say, told)

    def _stages(
        self,
        step: str,
        task: RiseTask | UpTask | FallTask | DivideTask,
        stages: Iterable[tuple[int, range]],
        say: Say,
        told: str,
    ) -> int:
        """Each a depth and the numbers of its tasks, in this order: in how many divisions solvers stopped early.

        A depth of many tasks is finished part by part: what a killed process makes again is one part.
        """
        missed, checkpoint = 0, self.place.checkpoint
        finished, every = 0, len(task.families) + 1
        with ExitStack() as open_to:
            tasks: Numbers | None = None
            for depth, numbers in stages:
                for part, some in enumerate(_cut(numbers)):
                    stage = f"{step}-{depth:02}-{part}"
                    if (stored := checkpoint.found(stage)) is None:
                        say(Progress(told.format(depth), finished / every))
                        tasks = tasks or open_to.enter_context(self.place.run(task))
                        done = tasks(some)
                        for store in task.makes:
                            store.sync(one.number for one in done)
                        stored = {"missed": np.array(sum(one.missed for one in done))}
                        checkpoint.finish(stage, **stored)
                    missed += int(stored["missed"])
                    finished += len(some)
        if missed:
            line = (
                f"{missed} divisions stopped early: all limits are met, by counts that may not be the nearest"
            )
            say(Progress(line, 1.0))
        return missed


def _families(cov: Covariances) -> Ranges:
    plan = cov.plan
    width = plan.layout.size * plan.layout.algebra.cells
    depths = range(len(plan.depths) - 1)
    return tuple((int(a), int(b)) for depth in depths for a, b in cov.kinds.families(depth, width))


_UP = 0.2
"""Of the time of both passes: that of the way up the tree."""

_TASKS, _PARTS_OF_A_DEPTH = 16, 8
"""Tasks of a part at least, so that no core waits long at its end; and parts of a depth at most."""


def _cut(numbers: range) -> Iterator[range]:
    """The tasks of a depth, in parts."""
    size = max(_TASKS, -(-len(numbers) // _PARTS_OF_A_DEPTH))
    return (numbers[first : first + size] for first in range(0, len(numbers), size))


def _below(plan: SpinePlan, families: Ranges) -> Ranges:
    """The nodes that each task makes whose parents are these: their children, and the root last."""
    return (*(children_of(plan, family) for family in families), (0, 1))


def _numbers(plan: SpinePlan, parents: Ranges, depth: int) -> range:
    """The tasks whose parents are of a depth; parents rise with their numbers."""
    nodes, starts = plan.depths[depth], [first for first, _ in parents]
    return range(*np.searchsorted(starts, [nodes.start, nodes.stop]).tolist())


def leaf_depth(plan: SpinePlan) -> int:
    """The first depth with nodes that no node with children follows."""
    return int(plan.depth[end_of_parents(plan)])


def _place(
    plan: SpinePlan, work: Path | None, digest: str, run: Runner | None, workers: int | None
) -> Here | Elsewhere:
    if run is None:
        return Here(plan, Checkpoint(work, digest), in_threads(workers))
    if work is None:
        raise InvalidArgument("tasks that run elsewhere need a work folder that they share")
    return Elsewhere(plan, Checkpoint(work, f"{digest} in parts"), run)


@dataclass(frozen=True, eq=False)
class Here:
    """Vectors in memory, or in mapped files of a work folder; tasks run in this process."""

    plan: SpinePlan
    checkpoint: Checkpoint
    run: Runner

    def vectors(
        self,
        name: str,
        step: str,
        makes: Iterable[np.ndarray],
        *,
        every: bool = False,
        dtype: Any = np.float64,
    ) -> NodeVectors:
        """New vectors of the nodes before ``end_of_parents``, or of every node; or those that a stage has made."""
        made = self.checkpoint.begun(step) or self.checkpoint.found(step) is not None
        return self._file(name, None if every else ((0, end_of_parents(self.plan)),), dtype, made=made)

    def _file(self, name: str, ranges: Ranges | None, dtype: Any, *, made: bool) -> NodeVectors:
        path = self.checkpoint.place(f"{name}.npy")
        if path is None or not made:
            return NodeVectors.zeros(self.plan, dtype, path, ranges)
        with self.checkpoint.reading(path):
            return NodeVectors.stored(self.plan, path, ranges)

    def counts(self, makes: Iterable[np.ndarray]) -> Halves:
        above = self.vectors("counts", "counts", makes, dtype=np.int64)
        end = end_of_parents(self.plan)
        return Halves(above, NodeVectors.zeros(self.plan, np.uint8, ranges=((end, end),)))

    def begin_leaves(self, counts: Any) -> None:
        """Make room for the leaves.

        No cell of a node has more people than the same cell of its parent: the largest cell of a depth says how many
        bytes are enough for the leaves below it.
        """
        end, depth = end_of_parents(self.plan), leaf_depth(self.plan)
        kind = np.min_scalar_type(largest_cell(counts.above, self.plan.depths[depth - 1]))
        made = self.checkpoint.begun(f"counts-{depth:02}")
        counts.below = self._file("leaves", ((end, self.plan.tree.size),), kind, made=made)

    def gathered(self, store: Any, name: str, *, every: bool = False) -> NodeVectors:
        return store

    def gathered_counts(self, store: Any) -> Halves:
        return store

    def clear(self) -> None:
        """Nothing is there twice."""


@dataclass(frozen=True, eq=False)
class Elsewhere:
    """Vectors in parts of a work folder that all tasks and this process share; tasks run where the runner takes them.

    In the end vectors are gathered into mapped files, as they are where all is done here.
    """

    plan: SpinePlan
    checkpoint: Checkpoint
    run: Runner

    @property
    def _work(self) -> Path:
        assert self.checkpoint.folder is not None
        return self.checkpoint.folder

    def vectors(
        self,
        name: str,
        step: str,
        makes: Iterable[np.ndarray],
        *,
        every: bool = False,
        dtype: Any = np.float64,
    ) -> Parts:
        """A folder of parts; those of every node are kept."""
        return Parts.under(self.plan, self._work if every else self._work / _PARTS, name, makes, dtype)

    def counts(self, makes: Iterable[np.ndarray]) -> Parts:
        return self.vectors("counts", "counts", makes, dtype=np.int64)

    def begin_leaves(self, counts: Any) -> None:
        """There is room in parts."""

    def gathered(self, store: Any, name: str, *, every: bool = False) -> NodeVectors:
        """The vectors of the nodes before ``end_of_parents``, or of every node, from their parts."""
        return self._gathered(
            store, name, (0, self.plan.tree.size if every else end_of_parents(self.plan)), store.dtype
        )

    def gathered_counts(self, store: Any) -> Halves:
        """The counts of all nodes, leaves in as few bytes as are enough."""
        above, end = self.gathered(store, "counts"), end_of_parents(self.plan)
        kind = np.min_scalar_type(largest_cell(above, self.plan.depths[leaf_depth(self.plan) - 1]))
        return Halves(above, self._gathered(store, "leaves", (end, self.plan.tree.size), kind))

    def _gathered(self, store: Parts, name: str, nodes: tuple[int, int], dtype: Any) -> NodeVectors:
        path, stage = self._work / f"{name}.npy", f"gathered-{name}"
        if self.checkpoint.found(stage) is not None:
            with self.checkpoint.reading(path):
                return NodeVectors.stored(self.plan, path, (nodes,))
        found = NodeVectors.zeros(self.plan, dtype, path, (nodes,))
        store.read(found, *nodes)
        found.flush()
        self.checkpoint.finish(stage)
        return found

    def clear(self) -> None:
        """Remove parts that were gathered; the whole folder goes in the end."""
        shutil.rmtree(self._work / _PARTS, ignore_errors=True)


_PARTS = "parts"
