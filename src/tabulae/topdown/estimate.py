"""Counts of every unit of a spine from its noisy measurements: three estimators behind one function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from scipy import sparse

from ..errors import InvalidArgument, ReleaseError
from ..geography.constraints import AreaConstraints
from ..geography.layout import Margin
from ..geography.spine_plan import Piece, SpinePieceValues, SpinePlan
from .checkpoint import Checkpoint
from .covariances import Covariances
from .descent import Descent, MeasuredTotals, OwnWeights, UpWeights, Weights, descend, no_limits
from .fingerprint import Fingerprint, estimate_digest
from .limits import NodeLimits
from .store import NodeVectors
from .two_pass import Upward, gls, up_pass

Method = Literal["gls", "topdown", "bluedown"]
Say = Callable[[str], None]

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
    vectors: NodeVectors
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
        return Covariances.of(self.plan, () if self.constraints is None else self.constraints.exact)

    def margin(self, margin: Margin, area: np.ndarray, areas: int) -> np.ndarray:
        """A marginal table of any areas, sums of leaves.

        Args:
            margin: over the plan's layout.
            area: shape (leaves,): the area of each leaf, -1 where it is in none.
            areas: their number.

        Returns:
            Shape (areas, margin.classes, margin.inner).
        """
        inside = np.flatnonzero(area >= 0)
        node = self.plan.tree.leaf[inside]
        found = np.zeros((areas, margin.classes, margin.inner), self.vectors.flat.dtype)
        pattern = self.plan.pattern[node]
        for one in np.unique(pattern).tolist():
            support = self.plan.dense_cells[one]
            present = margin.present(support)
            here = np.flatnonzero(pattern == one)
            here = here[np.argsort(node[here], kind="stable")]
            step = max(1, _CELLS // (support.size * self.plan.layout.algebra.cells))
            for first in range(0, here.size, step):
                some = here[first : first + step]
                x = margin.add_up(self.vectors.take(node[some]), support).reshape(some.size, -1)
                rows, place = np.unique(area[inside[some]], return_inverse=True)
                sums = sparse.csr_array((np.ones(some.size, x.dtype), (place, np.arange(some.size)))) @ x
                found[rows[:, None], present] += sums.reshape(rows.size, present.size, margin.inner)
        return found

    def leaf_counts(self, first: int, last: int) -> np.ndarray:
        """The cells of leaves first to last - 1: shape (last - first, D, N), 0 where a cell cannot occur."""
        nodes = self.plan.tree.leaf[first:last]
        return self.vectors.take_on(nodes, np.arange(self.plan.layout.size))


def estimate_spine(
    plan: SpinePlan,
    stream: Iterable[SpinePieceValues],
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
        stream: the measurements, all of ``plan.pieces`` in their order.
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
    >>> from tabulae.geography.layout import Layout
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
    checkpoint = Checkpoint(work, estimate_digest(plan, method, constraints, exact_values))
    measured, totals = _information(plan, stream, checkpoint, say)
    if method == "gls":
        vectors = _least_squares(plan, measured, constraints, exact_values, checkpoint, say)
        return SpineEstimate(plan, method, vectors, constraints)
    limits = no_limits(plan) if constraints is None else NodeLimits.of(plan, constraints, exact_values)
    part = np.zeros(plan.layout.size, np.int64) if constraints is None else constraints.part
    weights, root = _weights(plan, measured, method, checkpoint, say)
    if method == "bluedown":
        totals = MeasuredTotals.none(plan.tree.size)
    descent = Descent(plan, weights, root, part, limits, totals)
    counts = _vectors(plan, np.int64, checkpoint, "counts", made=checkpoint.found("down-00") is not None)
    unconverged = sum(
        _divided(descent, counts, depth, workers, checkpoint, say) for depth in range(len(plan.depths))
    )
    return SpineEstimate(plan, method, counts, constraints, unconverged)


def _divided(
    descent: Descent, counts: NodeVectors, depth: int, workers: int | None, checkpoint: Checkpoint, say: Say
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


def _same_piece(one: Piece, other: Piece) -> bool:
    return np.array_equal(one.nodes, other.nodes) and all(
        getattr(one, name) == getattr(other, name) for name in ("level", "share", "pattern", "rows")
    )


def _least_squares(
    plan: SpinePlan,
    information: NodeVectors,
    constraints: AreaConstraints | None,
    exact_values: Sequence[np.ndarray],
    checkpoint: Checkpoint,
    say: Say,
) -> NodeVectors:
    """The two passes, as one stage."""
    made = checkpoint.found("gls") is not None
    found = _vectors(plan, np.float64, checkpoint, "estimate", made=made)
    if not made:
        say("least squares, up the spine and down")
        exact = () if constraints is None else constraints.exact
        gls(plan, information, Covariances.of(plan, exact), exact_values, into=found)
        found.flush()
        checkpoint.finish("gls")
    return found


def _weights(
    plan: SpinePlan, information: NodeVectors, method: Method, checkpoint: Checkpoint, say: Say
) -> tuple[Weights, Weights]:
    """Of children given their parent, and of the root: a root that is not measured is estimated from below."""
    own = OwnWeights(plan, information)
    root_measured = any(plan.laws(int(plan.classes[1][0])))
    if method == "topdown" and root_measured:
        return own, own
    made = checkpoint.found("up") is not None
    linear, covariances = _vectors(plan, np.float64, checkpoint, "linear", made=made), Covariances.of(plan)
    if not made:
        say("least squares up the spine")
        up_pass(plan, information, covariances, into=linear)
        linear.flush()
        checkpoint.finish("up")
    up = UpWeights(plan, Upward(covariances, linear))
    return (own if method == "topdown" else up), up


def _vectors(plan: SpinePlan, dtype: type, checkpoint: Checkpoint, name: str, *, made: bool) -> NodeVectors:
    """New vectors, or those that a finished stage has made.

    Raises:
        ReleaseError: their file is missing or cut short.
    """
    path = checkpoint.place(f"{name}.npy")
    if path is None or not made:
        return NodeVectors.zeros(plan, dtype, path)
    try:
        NodeVectors.open(plan, path)  # where it is too short, opening it for writing would make it longer
        return NodeVectors.open(plan, path, write=True)
    except (OSError, ValueError) as error:
        raise ReleaseError(
            f"{path} cannot be read: {error}. Remove {checkpoint.folder} and begin anew"
        ) from None


def _information(
    plan: SpinePlan, stream: Iterable[SpinePieceValues], checkpoint: Checkpoint, say: Say
) -> tuple[NodeVectors, MeasuredTotals]:
    """m of every node and the measured totals. Measurements are read to their end in any case, to see which they are.

    Raises:
        InvalidArgument: the measurements do not fit the plan.
        ReleaseError: the finished stages are of other measurements.
    """
    say("reading the measurements")
    stored = checkpoint.found("information")
    found = _vectors(plan, np.float64, checkpoint, "information", made=stored is not None)
    totals, which, seen = MeasuredTotals.none(plan.tree.size), Fingerprint(), 0
    for given in stream:
        if seen == len(plan.pieces) or not _same_piece(given.piece, plan.pieces[seen]):
            raise InvalidArgument("these measurements are of another plan: their pieces are not this plan's")
        seen += 1
        which.add(given.values)
        totals.take_in(plan, given)
        if stored is None:
            found.put(given.piece.nodes, plan.information(given))
    if seen < len(plan.pieces):
        raise InvalidArgument(f"the measurements end after {seen} of {len(plan.pieces)} pieces")
    digest = np.array(which.hex())
    if stored is None:
        found.flush()
        checkpoint.finish("information", measurements=digest)
    elif stored["measurements"] != digest:
        raise ReleaseError(
            f"{checkpoint.folder} holds the work of an estimate from other measurements: use another folder, or remove "
            "this one"
        )
    return found, totals
