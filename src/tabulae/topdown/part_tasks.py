"""The estimators as tasks: each takes the parts of one level that it needs, and makes one part.

A task computes with the functions of the single machine, on windows of the vectors that those take whole. It draws
nothing, so that a task that is run again, or twice at once, makes the same part. A part that is there is not made
again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ..geography.spine_plan import SpinePlan
from .covariances import Covariances
from .descent import (
    Descent,
    MeasuredTotals,
    OwnWeights,
    UpWeights,
    Weights,
    divide_into,
)
from .limits import NodeLimits
from .parts import Parts, lists_of
from .two_pass import (
    Passes,
    Upward,
    up_family,
)
from .window import NodeWindow

Ranges = tuple[tuple[int, int], ...]
"""Nodes from first to last - 1 of one depth: the parents of each task."""


class Task(Protocol):
    """A step that is cut into numbered tasks; can be pickled."""

    def __call__(self, number: int) -> Done:
        """Make the part of a number, unless it is there."""
        ...


@dataclass(frozen=True)
class Done:
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

    def __call__(self, number: int) -> Done:
        """The parents of one family."""
        if self.parts.noted(number) is not None:
            return Done(number)
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
        return Done(number)


@dataclass(frozen=True, eq=False)
class FallTask:
    """x^ of the children of some parents: the pass of ``gls`` down the tree. The task after the last is the root's.

    Args:
        rise: the pass up the tree, whose families are this one's too.
        parts: of x^ of all nodes, column ``cells``, and of what the children of those with children get, ``told``.
    """

    rise: RiseTask
    parts: Parts

    def __call__(self, number: int) -> Done:
        """The children of one family."""
        if self.parts.noted(number) is not None:
            return Done(number)
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
        return Done(number)


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

    def __call__(self, number: int) -> Done:
        """The parents of one family."""
        if self.parts.noted(number) is not None:
            return Done(number)
        plan, family = self.cov.plan, self.families[number]
        below = children_of(plan, family)
        linear = NodeWindow.over(plan, (family, below))
        self.information.read(linear, *family, "cells")
        self.read(linear, below)
        up_family(Upward(self.cov, linear), *family)
        nodes = _parents(self.cov, family)
        self.parts.write(number, nodes, {"cells": lists_of(plan, nodes, linear.cells_of(nodes))})
        return Done(number)

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

    def __call__(self, number: int) -> Done:
        """The children of one run of parents."""
        if (noted := self.parts.noted(number)) is not None:
            return Done(number, int(noted["missed"]))
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
        return Done(number, missed)

    def _weights(self, nodes: tuple[int, int], *, root: bool) -> Weights:
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
