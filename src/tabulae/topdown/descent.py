"""From the root to the leaves: every unit's counts are divided among those within it, in whole numbers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np

from ..geography.spine_plan import (
    SpinePieceValues,
    SpinePlan,
    estimation_variance,
)
from .division import (
    FREE,
    NO_LIMIT,
    Division,
)
from .limits import NodeLimits
from .rounding import round_division
from .solve import solve
from .store import Vectors, WritableVectors
from .totals import divide_totals
from .two_pass import Upward

_CHUNK = 1 << 16  # about how many cells the children in one task have


class Weights(Protocol):
    """The quadratic form of each unit: what is near to its measurements."""

    @property
    def linear(self) -> Vectors:
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
        plan: the plan.
        linear: m of every node.
    """

    plan: SpinePlan
    linear: Vectors

    def precision(self, node: int) -> np.ndarray:
        """P of a node's class."""
        return self.plan.precisions[self.plan.classes[1][node]]

    def is_shared(self, nodes: np.ndarray) -> np.ndarray:
        """All are."""
        return np.ones(nodes.size, bool)


@dataclass(frozen=True, eq=False)
class UpWeights:
    """What is measured at a unit and below it says: the weights of BlueDown.

    Args:
        plan: the plan.
        upward: the pass up the tree.
    """

    plan: SpinePlan
    upward: Upward

    @property
    def linear(self) -> Vectors:
        """b of every node."""
        return self.upward.linear

    def precision(self, node: int) -> np.ndarray:
        """S^-1 of a node; of a leaf its P."""
        return self.upward.precision(node)

    def is_shared(self, nodes: np.ndarray) -> np.ndarray:
        """Leaves are."""
        return self.plan.children[nodes] == self.plan.children[nodes + 1]


@dataclass(frozen=True, eq=False)
class MeasuredTotals:
    """The answers to the query of the total: shape (nodes,) each, variance NaN where a node does not answer it."""

    value: np.ndarray
    variance: np.ndarray

    @classmethod
    def none(cls, nodes: int) -> MeasuredTotals:
        """No node answers it."""
        return cls(np.zeros(nodes), np.full(nodes, np.nan))

    def take_in(self, plan: SpinePlan, given: SpinePieceValues) -> None:
        """Note the totals among a piece's answers."""
        if (found := totals_of(plan, given)) is not None:
            self.value[given.piece.nodes], self.variance[given.piece.nodes] = found


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
class Descent:
    """The problems of one tree, and how they are solved: by depth, all parents of a depth independent of each other.

    Args:
        plan: the plan.
        weights: of children, given their parent.
        root: of the root.
        part: shape (D,): the part of each dense cell.
        limits: of every node.
        totals: measured totals, where totals are divided first.
    """

    plan: SpinePlan
    weights: Weights
    root: Weights
    part: np.ndarray
    limits: NodeLimits
    totals: MeasuredTotals

    def divide_root(self) -> Divided:
        """The root's counts, of shape (1, k, N)."""
        plan, nodes = self.plan, np.zeros(1, np.int64)
        support = plan.dense_cells[plan.pattern[0]]
        given = self._problem(self.root, nodes, support, None)
        solved = solve(given)
        return Divided(round_division(given, solved.x), support, solved.converged)

    def divide(self, parent: int, total: np.ndarray) -> Divided:
        """A parent's counts divided among its children.

        Args:
            parent: a node.
            total: its counts, shape (k, N) over its support, int64.
        """
        plan = self.plan
        nodes = np.arange(plan.children[parent], plan.children[parent + 1])
        kept = total.any(axis=1)
        support = plan.dense_cells[plan.pattern[parent]][kept]
        if not support.size:
            return Divided(np.zeros((nodes.size, 0, total.shape[1]), np.int64), support)
        if nodes.size == 1:
            return Divided(total[kept][None], support)
        given = self._problem(self.weights, nodes, support, total[kept])
        solved = solve(given, self._totals(given, nodes))
        return Divided(round_division(given, solved.x), support, solved.converged)

    def _totals(self, given: Division, nodes: np.ndarray) -> np.ndarray | None:
        """The children's totals, where they are divided first: all answer the query, and none is a leaf's."""
        variance = self.totals.variance[nodes]
        last = len(self.plan.spine.levels) - 1
        if np.isnan(variance).any() or (self.plan.tree.level[nodes] == last).any():
            return None
        return divide_totals(given, self.totals.value[nodes], 1 / variance).astype(float)

    def _problem(
        self, weights: Weights, nodes: np.ndarray, support: np.ndarray, total: np.ndarray | None
    ) -> Division:
        """Some nodes over some dense cells of their parent (positions in the layout)."""
        plan = self.plan
        precision, which = self._precisions(weights, nodes, support)
        parts, part = np.unique(self.part[support], return_inverse=True)
        group = self.limits.group[nodes][:, parts]
        exact = self.limits.exact[nodes]
        counted = (group[:, :, None] == np.arange(exact.shape[1])).any(axis=1)
        return Division(
            plan.layout.algebra,
            total,
            precision,
            which,
            weights.linear.take_on(nodes, support),
            plan.patterns[plan.pattern[nodes]][:, support],
            part.reshape(-1),
            self.limits.lower[nodes][:, parts],
            self.limits.upper[nodes][:, parts],
            group,
            np.where(counted, exact, FREE),
        )

    def _precisions(
        self, weights: Weights, nodes: np.ndarray, support: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The distinct H over the parent's cells, and which of them each node has."""
        plan = self.plan
        key = np.where(weights.is_shared(nodes), plan.classes[1][nodes], -1 - nodes)
        _, first, which = np.unique(key, return_index=True, return_inverse=True)
        found = np.zeros((first.size, plan.layout.algebra.kinds, support.size, support.size))
        place_of = np.full(plan.layout.size, -1)
        place_of[support] = np.arange(support.size)
        for row, node in zip(found, nodes[first].tolist(), strict=True):
            cells = plan.dense_cells[plan.pattern[node]]
            at = place_of[cells]
            inside, place = np.flatnonzero(at >= 0), at[at >= 0]
            row[:, place[:, None], place] = weights.precision(node)[:, inside[:, None], inside]
        return found, which.reshape(-1)


def no_limits(plan: SpinePlan) -> NodeLimits:
    """Of nodes that only their parent limits."""
    lower = np.zeros((plan.tree.size, 1), np.int64)
    return NodeLimits(lower, np.full_like(lower, NO_LIMIT), lower, np.full_like(lower, FREE))


def descend(descent: Descent, counts: WritableVectors, depth: int, workers: int | None = None) -> int:
    """Fill in the counts of all nodes of a depth, given those of the depth above.

    Args:
        descent: the problems.
        counts: of whole numbers; nodes of the depth are written, whatever they held.
        depth: 0 for the root.
        workers: threads; as many as there are cores where None. The counts do not depend on it.

    Returns:
        For how many parents the solver did not converge.
    """
    if depth == 0:
        root = descent.divide_root()
        counts.put(np.zeros(1, np.int64), root.counts)
        return int(not root.converged)
    tasks = list(runs_of_parents(descent.plan, depth))

    def run(parents: range) -> int:
        missed = sum(not divide_into(descent, counts, parent) for parent in parents)
        counts.release()
        descent.weights.linear.release()
        return missed

    with ThreadPoolExecutor(min(workers or os.cpu_count() or 1, len(tasks))) as pool:
        return sum(pool.map(run, tasks))


def divide_into(descent: Descent, counts: WritableVectors, parent: int) -> bool:
    """Write the counts of a parent's children; whether the solver converged."""
    plan = descent.plan
    nodes = np.arange(plan.children[parent], plan.children[parent + 1])
    if not nodes.size:
        return True
    found = descent.divide(parent, counts.take(np.array([parent]))[0])
    counts.clear(int(nodes[0]), int(nodes[-1]) + 1)
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
