"""Counts that are exact at some nodes, as a step of least squares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..errors import InvalidArgument
from ..geography.constraints import ExactMargin
from ..geography.spine_plan import SpinePlan

_NOTHING = 1e-8  # of what a projector may leave: below it, 0


@dataclass(frozen=True, eq=False)
class EqualityStep:
    """Some nodes before and after their sums are made exact: matrices of the constant kind alone.

    With x of variance S, of which Pi is the projector onto what is not known exactly already, and sums Q x = c:

        R = (Q Pi)^+,  U = R Q Pi,  Phi = (U S U)^+
        x' = x + S Phi R (c - Q x),  S' = S - S Phi S,  Pi' = Pi - U

    Args:
        before: shape (..., k, k): S.
        weight: shape (..., k, k): Phi.
        pull: shape (..., k, rows): R.
        sums: shape (rows, k): Q, on rotated coordinates of the constant kind.
    """

    before: np.ndarray
    weight: np.ndarray
    pull: np.ndarray
    sums: np.ndarray

    @classmethod
    def of(
        cls, variance: np.ndarray, free: np.ndarray, sums: np.ndarray
    ) -> tuple[EqualityStep, np.ndarray, np.ndarray]:
        """The step, and S' and Pi' after it."""
        told = sums @ free
        left, sizes, right = np.linalg.svd(told, full_matrices=False)
        sizes = np.divide(1, sizes, out=np.zeros_like(sizes), where=sizes > _NOTHING * np.abs(sums).max())
        pull = right.swapaxes(-1, -2) * sizes[..., None, :] @ left.swapaxes(-1, -2)
        taken = _symmetric(pull @ told)
        scale = np.maximum(np.trace(variance, axis1=-2, axis2=-1), np.finfo(float).tiny)[..., None, None]
        rest = (np.eye(sums.shape[1]) - taken) * scale
        weight = taken @ np.linalg.inv(_symmetric(taken @ variance @ taken) + rest) @ taken
        free = _symmetric(free - taken)
        left = free @ (variance - variance @ weight @ variance) @ free
        return cls(variance.copy(), _symmetric(weight), pull, sums), _symmetric(left), free

    def move(self, x: np.ndarray, exact: np.ndarray) -> np.ndarray:
        """Phi R (c - Q x): what is missing, weighted. x of shape (m, k), exact (m, rows)."""
        # node by node, so that none's numbers depend on which others there are
        missing = exact[..., None] - self.sums @ x[..., None]
        return (self.weight @ (self.pull @ missing))[..., 0]

    def at(self, rows: np.ndarray) -> EqualityStep:
        """The step of some of the nodes."""
        if self.before.ndim == 2:
            return self
        return EqualityStep(self.before[rows], self.weight[rows], self.pull[rows], self.sums)


@dataclass(frozen=True, eq=False)
class Equalities:
    """Exact margins of a spine, and the nodes where they hold.

    Args:
        plan: the spine.
        margins: exact for all units of their levels.

    Raises:
        InvalidArgument: a margin over symmetric attributes, an unknown level, or a unit that is no node of the tree.
    """

    plan: SpinePlan
    margins: tuple[ExactMargin, ...]

    def __post_init__(self) -> None:
        for one in self.margins:
            if one.level not in self.plan.spine.levels:
                raise InvalidArgument(
                    f"{one.level!r} is no level of this spine: {', '.join(self.plan.spine.levels)}"
                )
            if one.margin.inner > 1:
                raise InvalidArgument(
                    f"{one.margin.name!r} is exact and has attributes that the layout holds symmetric: make them dense"
                )
            missing = np.flatnonzero(nodes_of_level(self.plan, one.level) < 0)
            if missing.size:
                code = self.plan.spine.codes[one.level][missing[0]]
                raise InvalidArgument(
                    f"{one.margin.name!r} is exact for level {one.level!r}, and {code!r} is not measured as a whole: "
                    'give the level a share of the budget, and set bypass = "off" if the bypass takes it away'
                )

    @cached_property
    def unit(self) -> np.ndarray:
        """Shape (margins, nodes): the unit of the margin's level that each node is; -1 for none."""
        found = np.full((len(self.margins), self.plan.tree.size), -1)
        for row, one in zip(found, self.margins, strict=True):
            nodes = nodes_of_level(self.plan, one.level)
            row[nodes] = np.arange(nodes.size)
        return found

    @property
    def sets(self) -> np.ndarray:
        """Shape (nodes,): a bit for each margin that is exact there."""
        bits = np.int64(1) << np.arange(len(self.margins), dtype=np.int64)
        return bits @ (self.unit >= 0) if len(self.margins) else np.zeros(self.plan.tree.size, np.int64)

    def sums(self, margins: int, cells: np.ndarray) -> np.ndarray:
        """Q of a set of margins on dense cells, in rotated coordinates: shape (rows, k)."""
        root = np.sqrt(self.plan.layout.algebra.cells)
        rows = [
            np.arange(one.margin.classes)[:, None] == one.margin.label[cells] for one in self._chosen(margins)
        ]
        return root * np.concatenate(rows).astype(float)

    def values(self, margins: int, nodes: np.ndarray, exact: Sequence[np.ndarray]) -> np.ndarray:
        """The exact counts of nodes: shape (m, rows). ``exact`` has (units, classes) for each margin."""
        if len(exact) != len(self.margins):
            raise InvalidArgument(
                f"{len(self.margins)} margins are exact, and values are given for {len(exact)}"
            )
        rows = [values[self.unit[i, nodes]] for i, values in enumerate(exact) if margins >> i & 1]
        return np.concatenate(rows, axis=1).astype(float)

    def _chosen(self, margins: int) -> list[ExactMargin]:
        return [one for i, one in enumerate(self.margins) if margins >> i & 1]


def nodes_of_level(plan: SpinePlan, level: str) -> np.ndarray:
    """Shape (units of the level,): the node that has the leaves of each unit; -1 where none does."""
    tree, at = plan.tree, plan.spine.levels.index(level)
    unit = plan.spine.units[level]
    leaves = np.bincount(unit, minlength=len(plan.spine.codes[level]))
    held = np.bincount(tree.leaf, minlength=tree.size)
    for nodes in reversed(plan.depths[1:]):
        np.add.at(held, tree.parent[nodes], held[nodes])
    found = np.empty(leaves.size, np.int64)
    found[unit] = tree.leaf
    for _ in plan.depths:
        low = held[found] < leaves
        found[low] = tree.parent[found[low]]
    found[held[found] != leaves] = -1
    own = np.flatnonzero(tree.level == at)
    found[tree.unit[own]] = own
    return found


def free_parts(mean: np.ndarray) -> np.ndarray:
    """The projector onto the range of a mean of projectors, shape (..., k, k)."""
    values, vectors = np.linalg.eigh(mean)
    kept = vectors * (values > _NOTHING)[..., None, :]
    return kept @ vectors.swapaxes(-1, -2)


def _symmetric(x: np.ndarray) -> np.ndarray:
    return (x + x.swapaxes(-1, -2)) / 2
