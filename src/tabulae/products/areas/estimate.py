"""What all measurements say of each node of a spine, read once for every estimate that is made from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from scipy import sparse

from ...errors import InvalidArgument, ReleaseError
from .constraints import AreaConstraints
from .descent.descent import (
    Descent,
    DivisionWeights,
    MeasuredTotals,
    OwnWeights,
    UpWeights,
    descend,
    no_limits,
)
from .descent.limits import NodeLimits
from .layout import Margin
from .passes.covariances import Covariances
from .passes.two_pass import Passes, TwoPassEstimate, Upward, gls, up_pass
from .passes.vectors import Halves, NodeRange, NodeVectors, Vectors, end_of_parents, largest_cell
from .spine_plan import Piece, SpinePieceValues, SpinePlan
from .stages import Checkpoint, Fingerprint, estimate_digest, plan_digest

Say = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Measured:
    """Measurements as estimates take them.

    Attributes:
        information: m = sum Q'y / variance of every node, in natural coordinates.
        totals: the answers to the query of the total.
        digest: of all answers.
    """

    information: NodeVectors
    totals: MeasuredTotals
    digest: str


def read_measured(
    plan: SpinePlan,
    stream: Iterable[SpinePieceValues],
    work: Path | None = None,
    say: Say = lambda line: None,
) -> Measured:
    """Read measurements to their end; in any case, to see which they are.

    Args:
        plan: what was measured.
        stream: the measurements, all of ``plan.pieces`` in their order.
        work: a folder for m, which is found there again; in memory where None.
        say: called with a line of progress.

    Raises:
        InvalidArgument: the measurements do not fit the plan.
        ReleaseError: the work folder is of other measurements.
    """
    say("reading the measurements")
    checkpoint = Checkpoint(work, plan_digest(plan))
    stored = checkpoint.found("information")
    found = stored_vectors(plan, checkpoint, "information", made=stored is not None)
    totals, which, seen = MeasuredTotals.none(plan.tree.size), Fingerprint(), 0
    for given in stream:
        if seen == len(plan.pieces) or not _same_piece(given.piece, plan.pieces[seen]):
            raise InvalidArgument("these measurements are of another plan: their pieces are not this plan's")
        seen += 1
        which.add(given.values)
        totals.take_in(plan, given)
        if stored is None:
            found.put(given.piece.nodes, plan.information(given))
            found.release()
    if seen < len(plan.pieces):
        raise InvalidArgument(f"the measurements end after {seen} of {len(plan.pieces)} pieces")
    if stored is None:
        found.flush()
        checkpoint.finish("information", measurements=np.array(which.hex()))
    elif stored["measurements"] != np.array(which.hex()):
        raise ReleaseError(
            f"{checkpoint.folder} holds the work of an estimate from other measurements: use another folder, or remove "
            "this one"
        )
    return Measured(found, totals, which.hex())


def stored_vectors(plan: SpinePlan, checkpoint: Checkpoint, name: str, *, made: bool) -> NodeVectors:
    """New vectors of all nodes, or those that a finished stage has made.

    Raises:
        ReleaseError: their file is missing or cut short.
    """
    path = checkpoint.place(f"{name}.npy")
    if path is None or not made:
        return NodeVectors.zeros(plan, np.float64, path)
    with checkpoint.reading(path):
        return NodeVectors.open(plan, path)


def _same_piece(one: Piece, other: Piece) -> bool:
    return np.array_equal(one.nodes, other.nodes) and all(
        getattr(one, name) == getattr(other, name) for name in ("level", "share", "pattern", "rows")
    )


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
        plan: of the spine.
        held: as :func:`leaves_held` has it.
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


def leaf_cells(
    plan: SpinePlan, vectors: Vectors, first: int, last: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cells of leaves first to last - 1 that are not 0.

    Args:
        plan: of the spine.
        vectors: of its nodes.
        first, last: a range of leaves.

    Returns:
        Shape (m,) each: the leaf, rising; the cell as ``dense cell * N + combination``, rising within a leaf; and what
        it holds.
    """
    inner, nodes = plan.layout.algebra.cells, plan.tree.leaf[first:last]
    order = np.argsort(nodes, kind="stable")
    pattern = plan.pattern[nodes[order]]
    found = [(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, vectors.dtype))]
    for one in np.unique(pattern).tolist():
        here = order[pattern == one]
        x = vectors.take(nodes[here])
        row, dense, combination = np.nonzero(x)
        place = plan.dense_cells[one][dense] * inner + combination
        found.append((first + here[row], place, x[row, dense, combination]))
    vectors.release()
    leaf, place, held = (np.concatenate(columns) for columns in zip(*found, strict=True))
    rising = np.argsort(leaf * plan.layout.cell.size + place)
    return leaf[rising], place[rising], held[rising]


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
        plan: what was measured.
        method: "gls", "topdown" or "bluedown".
        vectors: the counts of every node, float64 for "gls", int64 otherwise.
        constraints: what the estimate took as known besides the measurements.
        unconverged: in how many divisions the solver stopped early: their counts meet every constraint, and others may
            be nearer to the measurements.
    """

    plan: SpinePlan
    method: Method
    vectors: Vectors
    constraints: AreaConstraints | None = None
    unconverged: int = 0

    @cached_property
    def covariances(self) -> Covariances:
        """The covariances of "gls".

        Raises:
            InvalidArgument: the estimate is another, whose errors have no known law.
        """
        if self.method != "gls":
            raise InvalidArgument(f"the errors of {self.method!r} have no known law: use those of 'gls'")
        if isinstance(self.vectors, TwoPassEstimate):
            return self.vectors.cov
        return Covariances.of(self.plan, () if self.constraints is None else self.constraints.exact)

    def margin(self, margin: Margin, area: np.ndarray, areas: int) -> np.ndarray:
        """A marginal table of any areas that are sums of leaves, and do not overlap.

        Args:
            margin: over the plan's layout.
            area: shape (leaves,): the area of each leaf, -1 where it is in none.
            areas: their number.

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
            margins: over the plan's layout.
            area: shape (m,): the area of each of the leaves.
            areas: their number.
            leaves: shape (m,): those that lie in some area.

        Returns:
            For each margin shape (areas, margin.classes, margin.inner).
        """
        node, owner = covers(self.plan, self._held, leaves, area)
        found = [np.zeros((areas, each.classes, each.inner), self.vectors.dtype) for each in margins]
        pattern = self.plan.pattern[node]
        for one in np.unique(pattern).tolist():
            support = self.plan.dense_cells[one]
            here = np.flatnonzero(pattern == one)
            step = max(1, _CELLS // (support.size * self.plan.layout.algebra.cells))
            for first in range(0, here.size, step):
                some = here[first : first + step]
                x = self.vectors.take(node[some])
                rows, place = np.unique(owner[some], return_inverse=True)
                ones = sparse.csr_array((np.ones(some.size, x.dtype), (place, np.arange(some.size))))
                for margin, total in zip(margins, found, strict=True):
                    present = margin.present(support)
                    sums = ones @ margin.add_up(x, support).reshape(some.size, -1)
                    total[rows[:, None], present] += sums.reshape(rows.size, present.size, margin.inner)
                self.vectors.release()
        return found

    @cached_property
    def _held(self) -> np.ndarray:
        return leaves_held(self.plan)

    def leaf_cells(self, first: int, last: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The cells of leaves first to last - 1 that are not 0: leaf, place in the layout, and count, as
        :func:`~.leaf_cells.leaf_cells` has them.
        """
        return leaf_cells(self.plan, self.vectors, first, last)

    def leaf_counts(self, first: int, last: int) -> np.ndarray:
        """The cells of leaves first to last - 1: shape (last - first, D, N), 0 where a cell cannot occur."""
        nodes = self.plan.tree.leaf[first:last]
        found = self.vectors.take_on(nodes, np.arange(self.plan.layout.size))
        self.vectors.release()
        return found


def estimate_spine(
    plan: SpinePlan,
    stream: Iterable[SpinePieceValues] | Measured,
    method: Method = "bluedown",
    *,
    constraints: AreaConstraints | None = None,
    exact_values: Sequence[np.ndarray] = (),
    work: Path | None = None,
    workers: int | None = None,
    say: Say = lambda line: None,
) -> SpineEstimate:
    """Estimate the counts of every unit from all measurements.

    "gls" is generalised least squares in two passes over the tree. "topdown" divides the root's estimate among its
    children, theirs among their children and so on, each time by non-negative least squares on the children's own
    measurements, their totals first, and controlled rounding. "bluedown" does the same in one step a unit, with all
    that is measured below a child as its weights.

    Args:
        plan: what was measured.
        stream: the measurements, all of ``plan.pieces`` in their order; or what :func:`read_measured` made of them.
        method: "gls", "topdown" or "bluedown".
        constraints: limits and exact margins; "gls" uses the exact margins alone.
        exact_values: for each exact margin of the constraints shape (units of its level, classes), int64.
        work: a folder for arrays and finished stages: an estimate that was interrupted goes on from the last of them.
            Everything stays in memory where None.
        workers: threads; as many as there are cores where None. The estimate does not depend on it.
        say: called with a line of progress at each stage.

    Raises:
        InvalidArgument: an unknown method, constraints that cannot be met, or measurements of another plan.
        ReleaseError: the work folder is of another estimate.

    References: Abowd et al., "The 2020 Census Disclosure Avoidance System TopDown Algorithm" (2022); Cumings-Menon,
    "Full-Information Estimation for Hierarchical Data" (arXiv 2404.13164) and "BlueDown" (arXiv 2603.10099).

    >>> from fractions import Fraction
    >>> from tabulae import Domain, Spine, ZCDP
    >>> from tabulae.products.areas.layout import Layout
    >>> spine = Spine.from_codes({"block": ["a", "b"]}, levels=["block"]).with_shares({"root": "1/2", "block": "1/2"})
    >>> layout = Layout.of(Domain({"age": 2}))
    >>> shares = dict.fromkeys(spine.levels, (Fraction(1),))
    >>> plan = SpinePlan(spine, layout, (layout.margin(["age"]),), shares, ZCDP(1), np.ones((2, 1), bool))
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
        if isinstance(stream, Measured)
        else read_measured(plan, stream, None if work is None else work / MEASURED, say)
    )
    checkpoint = Checkpoint(work, estimate_digest(plan, method, constraints, exact_values, measured.digest))
    if method == "gls":
        vectors = _least_squares(plan, measured, constraints, exact_values, checkpoint, say)
        return SpineEstimate(plan, method, vectors, constraints)
    limits = no_limits(plan) if constraints is None else NodeLimits.of(plan, constraints, exact_values)
    part = np.zeros(plan.layout.size, np.int64) if constraints is None else constraints.part
    weights, root = _weights(plan, measured.information, method, checkpoint, say)
    totals = MeasuredTotals.none(plan.tree.size) if method == "bluedown" else measured.totals
    descent = Descent(plan, weights, root, part, limits, totals)
    counts, unconverged = _descended(descent, workers, checkpoint, say)
    return SpineEstimate(plan, method, counts, constraints, unconverged)


def _descended(descent: Descent, workers: int | None, checkpoint: Checkpoint, say: Say) -> tuple[Halves, int]:
    """The counts of all nodes, and in how many divisions the solver stopped early.

    No cell of a node has more people than the same cell of its parent: the largest cell of a depth says how many bytes
    are enough for the leaves below it.
    """
    plan, end = descent.plan, end_of_parents(descent.plan)
    above = _above(plan, np.int64, checkpoint, "counts", made=checkpoint.found("down-00") is not None)
    counts, unconverged = Halves(above, NodeRange.between(plan, end, end)), 0
    for depth, nodes in enumerate(plan.depths):
        if nodes.stop > end >= nodes.start:  # leaves begin here that no node with children follows
            kind = np.min_scalar_type(largest_cell(above, plan.depths[depth - 1]))
            made = checkpoint.found(f"down-{depth:02}") is not None
            counts = Halves(above, _range(plan, end, plan.tree.size, kind, checkpoint, "leaves", made=made))
        unconverged += _divided(descent, counts, depth, workers, checkpoint, say)
    return counts, unconverged


def _divided(
    descent: Descent, counts: Halves, depth: int, workers: int | None, checkpoint: Checkpoint, say: Say
) -> int:
    """Divide counts among the units of a depth, as one stage: in how many divisions the solver stopped early."""
    stage, nodes = f"down-{depth:02}", descent.plan.depths[depth]
    if (stored := checkpoint.found(stage)) is not None:
        return int(stored["missed"])
    say(f"dividing counts among {nodes.stop - nodes.start:,} units of depth {depth}")
    if missed := descend(descent, counts, depth, workers):
        say(f"{missed} divisions stopped early: all limits are met, by counts that may not be the nearest")
    counts.flush()
    checkpoint.finish(stage, missed=np.array(missed))
    return missed


def _least_squares(
    plan: SpinePlan,
    measured: Measured,
    constraints: AreaConstraints | None,
    exact_values: Sequence[np.ndarray],
    checkpoint: Checkpoint,
    say: Say,
) -> TwoPassEstimate:
    """The two passes, as one stage."""
    made = checkpoint.found("gls") is not None
    found, told = (_above(plan, np.float64, checkpoint, name, made=made) for name in ("estimate", "told"))
    exact = () if constraints is None else constraints.exact
    cov = Covariances.of(plan, exact)
    if made:
        return TwoPassEstimate(Passes(plan, cov, measured.information, found, told, exact_values))
    say("least squares, up the spine and down")
    done = gls(plan, measured.information, cov, exact_values, found=found, told=told)
    found.flush()
    told.flush()
    checkpoint.finish("gls")
    return done


def _weights(
    plan: SpinePlan, information: NodeVectors, method: Method, checkpoint: Checkpoint, say: Say
) -> tuple[DivisionWeights, DivisionWeights]:
    """Of children given their parent, and of the root: a root that is not measured is estimated from below."""
    own = OwnWeights(plan, information)
    root_measured = any(plan.laws(int(plan.classes[1][0])))
    if method == "topdown" and root_measured:
        return own, own
    made = checkpoint.found("up") is not None
    above, covariances = _above(plan, np.float64, checkpoint, "linear", made=made), Covariances.of(plan)
    upward = Upward(covariances, Halves(above, information))
    if not made:
        say("least squares up the spine")
        upward = up_pass(plan, information, covariances, into=above)
        above.flush()
        checkpoint.finish("up")
    up = UpWeights(plan, upward)
    return (own if method == "topdown" else up), up


def _above(plan: SpinePlan, dtype: Any, checkpoint: Checkpoint, name: str, *, made: bool) -> NodeRange:
    """Vectors of the nodes that may have children."""
    return _range(plan, 0, end_of_parents(plan), dtype, checkpoint, name, made=made)


def _range(
    plan: SpinePlan, first: int, last: int, dtype: Any, checkpoint: Checkpoint, name: str, *, made: bool
) -> NodeRange:
    """New vectors of some nodes, or those that a finished stage has made.

    Raises:
        ReleaseError: their file is missing or cut short.
    """
    path = checkpoint.place(f"{name}.npy")
    if path is None or not made:
        return NodeRange.between(plan, first, last, dtype, path)
    with checkpoint.reading(path):
        return NodeRange.stored(plan, first, last, path)
