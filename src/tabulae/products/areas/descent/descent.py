"""Counts divided from the root down: one division by the solver that suits it, its totals, and all of a tree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Protocol

import numpy as np

from ....linalg import BlockAlgebra
from ..passes.two_pass import Upward
from ..passes.vectors import Vectors, WritableVectors
from ..spine_plan import SpinePieceValues, SpinePlan, estimation_variance
from .limits import FREE, NO_LIMIT, Division, NodeLimits


@dataclass(frozen=True, eq=False)
class Solved:
    """The counts of the children of one division, not yet whole.

    They are 0 or more, 0 where not allowed, and within the limits of each child; the children add up to the parent's
    counts within the solver's tolerance.

    Attributes:
        x: shape (n, k, N).
        iterations: steps taken.
        residual: persons for "admm"; the gap of the objective a child for "gradient".
        converged: whether the residual is small enough; if not, x is the last point.
        solver: "admm", "gradient", "direct" where zero limits nothing, or "copied" where nothing is to be chosen.
    """

    x: np.ndarray
    iterations: int
    residual: float
    converged: bool
    solver: str


def solve(division: Division, totals: np.ndarray | None = None) -> Solved:
    """Divide a parent's counts among its children.

    The root, which has no parent, is solved directly where the least under its exact sums breaks no limit, as it mostly
    does. Where nothing but the parent's counts is exact and H is not steep, limits of parts are first left aside: a
    projected gradient then takes a few steps, and its answer is the answer if it lies within the limits, as it mostly
    does in small areas. Else alternating directions take all limits together. The same division gives the same bits on
    every thread.

    Args:
        totals: shape (n,): the children's totals, if they are held at what an earlier pass found.

    >>> from tabulae.linalg import BlockAlgebra
    >>> algebra, none = BlockAlgebra((2,)), np.zeros((2, 1), np.int64)
    >>> division = Division(
    ...     algebra, total=np.array([[4, 2]]), precision=algebra.term(np.eye(1), 1)[None],
    ...     which=np.zeros(2, np.int64), linear=np.array([[[3.0, 4.0]], [[2.0, -1.0]]]),
    ...     allowed=np.ones((2, 1), bool), part=np.zeros(1, np.int64), lower=none, upper=none + NO_LIMIT,
    ...     group=none, exact=none + FREE)
    >>> solve(division).x.round(3).tolist()
    [[[2.5, 2.0]], [[1.5, 0.0]]]
    >>> solve(division, np.array([4.0, 2.0])).x.round(2).tolist()
    [[[2.0, 2.0]], [[2.0, 0.0]]]
    """
    if division.total is None and totals is None and (found := _least(division)) is not None:
        return Solved(found, 0, 0.0, converged=True, solver="direct")
    from . import admm, projected_gradient  # which load a compiler

    if division.total is not None:
        if not division.total.any():
            return Solved(np.zeros(division.linear.shape), 0, 0.0, converged=True, solver="copied")
        if division.children == 1:
            return Solved(division.total[None].astype(float), 0, 0.0, converged=True, solver="copied")
    allowed = division.allowed
    if division.total is not None:
        allowed = allowed & division.total.any(axis=1)
    if totals is None and division.total is not None and not division.is_exact:
        found = projected_gradient.projected_gradient(division, allowed)
        if found is not None and found[2] <= projected_gradient.GAP and _within(division, found[0]):
            return Solved(*found, converged=True, solver="gradient")
    return Solved(*admm.alternating_directions(division, allowed, totals), solver="admm")


def _least(division: Division) -> np.ndarray | None:
    """The counts of a unit without a parent that are nearest under exact sums alone, if they break no limit.

    With A the exact sums, x = H^-1 (b + A' l) and l such that A x is exact. Whoever has such a root, as most have, need
    not compile the solver for all limits.
    """
    algebra, inside = division.algebra, division.allowed[0]
    inverse = np.linalg.inv(division.precision[division.which[0]] + np.diag(1.0 - inside))

    def solved(b: np.ndarray) -> np.ndarray:
        return algebra.unrotate(algebra.apply(inverse, algebra.rotate(b * inside[:, None])))

    x, group = solved(division.linear[0]), division.group[0][division.part]
    exact = [g for g in np.flatnonzero(division.exact[0] != FREE) if inside[group == g].any()]
    if exact:
        sums = np.stack([np.repeat((inside & (group == g))[:, None], x.shape[1], axis=1) for g in exact])
        moves = np.stack([solved(each.astype(float)) for each in sums])
        missing = division.exact[0, exact] - (sums * x).sum(axis=(1, 2))
        x = x + np.tensordot(np.linalg.solve(np.tensordot(sums, moves, ((1, 2), (1, 2))), missing), moves, 1)
    return x[None] if (x >= 0).all() and _within(division, x[None]) else None


def _within(division: Division, x: np.ndarray) -> bool:
    """Whether the limits of parts hold, though they were not looked at."""
    if not division.is_limited:
        return True
    rows = x.sum(axis=2)
    sums = np.stack([rows[:, division.part == j].sum(axis=1) for j in range(division.lower.shape[1])], axis=1)
    return bool(((sums >= division.lower) & (sums <= division.upper)).all())


def _whole(division: Division, x: np.ndarray) -> np.ndarray:
    from .rounding import round_division  # which loads a compiler

    return round_division(division, x)


_RIDGE = (
    0.1  # of the least weight of a total: how strongly cells are drawn to a centre, whichever give a total
)
_STILL = 0.01  # people: totals that move no further are those that are drawn nowhere
_CENTRES = 20


def divide_totals(division: Division, measured: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Children's totals nearest to measured ones, such that the parent's cells can be divided with them.

        minimise  sum_v weight_v (T_v - measured_v)^2    over the totals T of the division's feasible points

    Which totals are feasible depends on how the parent's counts fall into the dense cells that each child allows and
    on the limits of parts, and on nothing else. So the problem is solved over sums: dense cells that all children
    allow or not alike and that no limit tells apart are one cell, and combinations of symmetric attributes are added
    up. The totals are rounded within that problem, whose whole points are those of the division.

    Many cells have the same total. A small ridge chooses among them, and where a limit is in the way of its centre it
    draws totals too. So the problem is solved again with the last solution as the centre, until totals stay: the
    proximal point method, whose limit is a solution without the ridge.

    Args:
        measured: shape (n,): the measured totals.
        weight: shape (n,): positive, the inverse of their variances.

    Returns:
        Shape (n,), int64, adding up to the parent's total.

    References: Abowd et al., "The 2020 Census Disclosure Avoidance System TopDown Algorithm", section 5 (multi-pass);
    Rockafellar, "Monotone Operators and the Proximal Point Algorithm" (1976).
    """
    reduced = reduce_to_sums(division, measured, weight)
    x = nearest_sums(reduced, measured, weight)
    return _whole(reduced, x).sum(axis=(1, 2))


def nearest_sums(reduced: Division, measured: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """A solution of the division of sums that its ridge draws nowhere: shape (n, k, 1)."""
    x, moved = solve(reduced).x, np.inf
    ridge, centres = _ridge(weight, x.shape[1]), 0
    while ridge and centres < _CENTRES and moved > _STILL:
        linear = ((weight * measured)[:, None, None] + ridge * x) * reduced.allowed[:, :, None]
        before, x = x, solve(replace(reduced, linear=linear)).x
        moved, centres = np.abs((x - before).sum(axis=(1, 2))).max(), centres + 1
    return x


def reduce_to_sums(division: Division, measured: np.ndarray, weight: np.ndarray) -> Division:
    """The division of sums, one a sort of dense cell: H_v = w_v 11' + ridge I, b_v = w_v y_v 1 + ridge c_v.

    The first centre c_v is the child's proportional share of the parent's cells, scaled to the measured total, so that
    it draws totals nowhere unless a limit is in the way.
    """
    assert division.total is not None
    cells, part = _sorts(division)
    first = np.unique(cells, return_index=True)[1]
    k = first.size
    total = np.zeros((k, 1), np.int64)
    np.add.at(total[:, 0], cells, division.total.sum(axis=1))
    allowed = division.allowed[:, first]
    told, which = np.unique(np.concatenate([weight[:, None], allowed], axis=1), axis=0, return_inverse=True)
    ridge, on = _ridge(weight, k), told[:, 1:]
    precision = ((told[:, :1, None] + ridge * np.eye(k)) * on[:, :, None] * on[:, None, :])[:, None]
    centre = _proportional(total[:, 0], allowed, measured)
    linear = ((weight * measured)[:, None] + ridge * centre) * allowed
    parts, renamed = np.unique(part[first], return_inverse=True)
    return replace(
        division,
        algebra=BlockAlgebra(()),
        total=total,
        precision=precision,
        which=which.reshape(-1),
        linear=linear[:, :, None],
        allowed=allowed,
        part=renamed.reshape(-1),
        lower=division.lower[:, parts],
        upper=division.upper[:, parts],
        group=division.group[:, parts],
    )


def _ridge(weight: np.ndarray, cells: int) -> float:
    """What is added to the weights of cells: nothing where there is one sort of cell."""
    return _RIDGE * float(weight.min()) if cells > 1 else 0.0


def _proportional(total: np.ndarray, allowed: np.ndarray, measured: np.ndarray) -> np.ndarray:
    """Shape (n, k): the parent's cells in proportion to measured totals, each child's scaled to its own."""
    share = allowed * np.maximum(measured, 0.0)[:, None]
    cells = share / np.maximum(share.sum(axis=0), 1.0) * total
    return cells * (measured / np.maximum(cells.sum(axis=1), 1.0))[:, None]


def _sorts(division: Division) -> tuple[np.ndarray, np.ndarray]:
    """Shape (k,), twice: which sort each dense cell is of, and the part that stands for the sort's."""
    parts = np.arange(division.lower.shape[1])
    limited = ((division.lower > 0) | (division.upper < NO_LIMIT)).any(axis=0)
    group = division.group if division.is_exact else np.zeros_like(division.group)
    keys = np.concatenate([np.where(limited, parts, -1)[None], group])
    _, first, same = np.unique(keys, axis=1, return_index=True, return_inverse=True)
    part = first[same.reshape(-1)][division.part]
    signs = np.concatenate([part[None], division.allowed])
    cells = np.unique(signs, axis=1, return_inverse=True)[1]
    return cells.reshape(-1), part


_CHUNK = 1 << 16  # about how many cells the children in one task have


class LinearTerms(Protocol):
    """Vectors of nodes, as a division takes them; see :class:`Vectors`."""

    def take_on(self, nodes: np.ndarray, cells: np.ndarray) -> np.ndarray: ...

    def release(self) -> None: ...


class DivisionWeights(Protocol):
    """The quadratic form of each unit: what is near to its measurements."""

    @property
    def linear(self) -> LinearTerms:
        """b of every node, in natural coordinates."""
        ...

    def precision(self, node: int) -> np.ndarray:
        """H of a node, shape (kinds, k, k) over its support."""
        ...

    def is_shared(self, nodes: np.ndarray) -> np.ndarray:
        """Shape (m,), boolean: which nodes have the H of their class."""
        ...


@dataclass(frozen=True, eq=False)
class OwnWeights:
    """What a unit's own measurements say alone, H = P and b = m: the weights of TopDown.

    Args:
        linear: m of every node.
    """

    plan: SpinePlan
    linear: Vectors

    def precision(self, node: int) -> np.ndarray:
        return self.plan.precisions[self.plan.classes[1][node]]

    def is_shared(self, nodes: np.ndarray) -> np.ndarray:
        return np.ones(nodes.size, bool)


@dataclass(frozen=True, eq=False)
class UpWeights:
    """What is measured at a unit and below it says: the weights of BlueDown.

    Args:
        upward: the pass up the tree.
    """

    plan: SpinePlan
    upward: Upward

    @property
    def linear(self) -> Vectors:
        return self.upward.linear

    def precision(self, node: int) -> np.ndarray:
        return self.upward.precision(node)

    def is_shared(self, nodes: np.ndarray) -> np.ndarray:
        return self.plan.children[nodes] == self.plan.children[nodes + 1]


@dataclass(frozen=True, eq=False)
class MeasuredElseUp:
    """The own weights of units that are measured; of others, what is measured below them says."""

    own: OwnWeights
    up: UpWeights

    @property
    def linear(self) -> MeasuredElseUp:
        return self

    def take_on(self, nodes: np.ndarray, cells: np.ndarray) -> np.ndarray:
        """b of some nodes."""
        measured = self.own.plan.is_measured[nodes][:, None, None]
        return np.where(measured, self.own.linear.take_on(nodes, cells), self.up.linear.take_on(nodes, cells))

    def release(self) -> None:
        self.own.linear.release()
        self.up.linear.release()

    def precision(self, node: int) -> np.ndarray:
        return (self.own if self.own.plan.is_measured[node] else self.up).precision(node)

    def is_shared(self, nodes: np.ndarray) -> np.ndarray:
        return self.own.plan.is_measured[nodes]


@dataclass(frozen=True, eq=False)
class MeasuredTotals:
    """The answers to the query of the total: shape (nodes,) each, variance NaN where a node does not answer it."""

    value: np.ndarray
    variance: np.ndarray

    @classmethod
    def none(cls, nodes: int) -> MeasuredTotals:
        return cls(np.zeros(nodes), np.full(nodes, np.nan))


def totals_of(plan: SpinePlan, given: SpinePieceValues) -> tuple[np.ndarray, float] | None:
    """A piece's answers to the query of the total, shape (m,), and their variance; None where it is not asked."""
    laws = plan.laws(int(plan.classes[1][given.piece.nodes[0]]))
    for query, law, values in zip(plan.queries, laws, given.values, strict=True):
        if query.size == 1 and law is not None and values is not None:
            return values[:, 0], estimation_variance(law)
    return None


@dataclass(frozen=True, eq=False)
class Divided:
    """The children's counts.

    Attributes:
        counts: shape (n, j, N), int64, over those dense cells where their parent counts anybody.
        support: shape (j,): positions of these in the layout.
        converged: whether the solver did; if not, the counts meet all constraints and are not quite the nearest.
    """

    counts: np.ndarray
    support: np.ndarray
    converged: bool = True


@dataclass(frozen=True, eq=False)
class _DenseCells:
    """Some dense cells of a parent, and what its children have over them.

    Attributes:
        support: shape (k,): positions in the layout.
        parts: shape (J,): the parts that they are of, and ``part`` (k,) which of these each cell is of.
        precisions: the H of children of one class, shape (1, kinds, k, k).
    """

    support: np.ndarray
    parts: np.ndarray
    part: np.ndarray
    precisions: dict[int, np.ndarray]


@dataclass(frozen=True, eq=False)
class Descent:
    """The problems of one tree, and how they are solved: by depth, all parents of a depth independent of each other.

    Args:
        weights: of the nodes that are made: of children, given their parent, or of the root.
        part: shape (D,): the part of each dense cell.
        limits: of every node.
        totals: measured totals, where totals are divided first.
    """

    plan: SpinePlan
    weights: DivisionWeights
    part: np.ndarray
    limits: NodeLimits
    totals: MeasuredTotals

    def divide_root(self) -> Divided:
        """The root's counts, of shape (1, k, N)."""
        every = np.ones(self.plan.dense_cells[self.plan.pattern[0]].size, bool)
        cells = self._cells(int(self.plan.pattern[0]), every)
        given = self._problem(slice(0, 1), cells, None)
        solved = solve(given)
        return Divided(_whole(given, solved.x), cells.support, solved.converged)

    def divide(self, parent: int, total: np.ndarray) -> Divided:
        """A parent's counts divided among its children.

        Args:
            total: its counts, shape (k, N) over its support, int64.
        """
        nodes = slice(*self.plan.children[parent : parent + 2].tolist())
        kept = np.asarray(total.any(axis=1))
        cells = self._cells(int(self.plan.pattern[parent]), kept)
        if not cells.support.size:
            return Divided(np.zeros((nodes.stop - nodes.start, 0, total.shape[1]), np.int64), cells.support)
        if nodes.stop - nodes.start == 1:
            return Divided(total[kept][None], cells.support)
        given = self._problem(nodes, cells, total[kept])
        solved = solve(given, self._totals(given, nodes))
        return Divided(_whole(given, solved.x), cells.support, solved.converged)

    def _totals(self, given: Division, nodes: slice) -> np.ndarray | None:
        """The children's totals, where they are divided first: all answer the query, and none is a leaf's."""
        variance = self.totals.variance[nodes]
        last = len(self.plan.spine.levels) - 1
        if np.isnan(variance).any() or (self.plan.tree.level[nodes] == last).any():
            return None
        return divide_totals(given, self.totals.value[nodes], 1 / variance).astype(float)

    @cached_property
    def _known_cells(self) -> dict[tuple[int, bytes], _DenseCells]:
        return {}

    def _cells(self, pattern: int, kept: np.ndarray) -> _DenseCells:
        """Some dense cells of a pattern; many parents have the same."""
        key = pattern, kept.tobytes()
        if (known := self._known_cells.get(key)) is None:
            support = self.plan.dense_cells[pattern][kept]
            parts, part = np.unique(self.part[support], return_inverse=True)
            known = self._known_cells[key] = _DenseCells(support, parts, part.reshape(-1), {})
        return known

    def _problem(self, nodes: slice, cells: _DenseCells, total: np.ndarray | None) -> Division:
        """Some nodes over some dense cells of their parent."""
        plan, limits = self.plan, self.limits
        precision, which = self._precisions(nodes, cells)
        lower, upper, group = limits.lower[nodes], limits.upper[nodes], limits.group[nodes]
        exact = limits.exact[nodes]
        if lower.shape[1] > 1:  # else every cell is of the one part
            lower, upper, group = (limit[:, cells.parts] for limit in (lower, upper, group))
            counted = (group[:, :, None] == np.arange(exact.shape[1])).any(axis=1)
            exact = np.where(counted, exact, FREE)
        return Division(
            plan.layout.algebra,
            total,
            precision,
            which,
            self.weights.linear.take_on(np.arange(nodes.start, nodes.stop), cells.support),
            plan.patterns[plan.pattern[nodes][:, None], cells.support],
            cells.part,
            lower,
            upper,
            group,
            exact,
        )

    def _precisions(self, nodes: slice, cells: _DenseCells) -> tuple[np.ndarray, np.ndarray]:
        """The distinct H over the parent's cells, and which of them each node has."""
        own = np.arange(nodes.start, nodes.stop)
        key = np.where(self.weights.is_shared(own), self.plan.classes[1][nodes], -1 - own)
        if key[0] >= 0 and (key == key[0]).all():  # as of most leaves
            kind = int(key[0])
            if kind not in cells.precisions:
                cells.precisions[kind] = self._over([nodes.start], cells.support)
            return cells.precisions[kind], np.zeros(own.size, np.int64)
        _, first, which = np.unique(key, return_index=True, return_inverse=True)
        return self._over(own[first].tolist(), cells.support), which.reshape(-1)

    def _over(self, nodes: list[int], support: np.ndarray) -> np.ndarray:
        """H of some nodes over some dense cells; 0 where a node cannot have them."""
        plan = self.plan
        found = np.zeros((len(nodes), plan.layout.algebra.kinds, support.size, support.size))
        place_of = np.full(plan.layout.size, -1)
        place_of[support] = np.arange(support.size)
        for row, node in zip(found, nodes, strict=True):
            at = place_of[plan.dense_cells[plan.pattern[node]]]
            inside, place = np.flatnonzero(at >= 0), at[at >= 0]
            row[:, place[:, None], place] = self.weights.precision(node)[:, inside[:, None], inside]
        return found


def no_limits(plan: SpinePlan) -> NodeLimits:
    """Of nodes that only their parent limits."""
    lower = np.zeros((plan.tree.size, 1), np.int64)
    return NodeLimits(lower, np.full_like(lower, NO_LIMIT), lower, np.full_like(lower, FREE))


def divide_into(descent: Descent, counts: WritableVectors, parent: int) -> bool:
    """Write the counts of a parent's children, where they are not 0; whether the solver converged."""
    plan = descent.plan
    nodes = np.arange(plan.children[parent], plan.children[parent + 1])
    if not nodes.size:
        return True
    found = descent.divide(parent, counts.take(np.array([parent]))[0])
    counts.put_on(nodes, found.support, found.counts)
    return found.converged


def runs_of_parents(plan: SpinePlan, depth: int) -> Iterator[range]:
    """The parents of a depth's nodes in runs whose children have some number of cells, or more by one parent's."""
    above = plan.depths[depth - 1]
    before = plan.offsets[plan.children[above.start : above.stop + 1]]
    run = (before[1:] - before[0]) // _CHUNK
    edges = [0, *(np.flatnonzero(np.diff(run)) + 1).tolist(), run.size]
    for first, last in pairwise(edges):
        yield range(above.start + first, above.start + last)
