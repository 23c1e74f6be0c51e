"""H2: counts of intervals in a binary tree, from the whole attribute down to single cells.

A range is the sum of few nodes, two a level at most. All nodes are asked with the same noise; least squares makes them
consistent.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ...domain import Workload
from ...errors import InvalidArgument
from ...linalg import (
    Identity,
    LinearOperator,
    Partition,
    Stack,
    Total,
)
from ...linalg.numbers import check_size
from ..strategy import Strategy
from .per_attribute import per_attribute

if TYPE_CHECKING:
    from ..settings import Settings

Node = tuple[int, int]
"""An interval of cells: the first, and the one after the last."""


def hierarchical_strategy(workload: Workload, settings: Settings) -> Strategy:
    """Every node of a binary tree over each attribute, root and leaves included.

    For several attributes the Kronecker product of the trees. The strategy depends on the workload only through the
    categories that it tells apart, and is the same for both kinds of noise.

    Reference: Hay, Rastogi, Miklau, Suciu, "Boosting the Accuracy of Differentially Private Histograms Through
    Consistency", section 4.

    >>> from tabulae.linalg import AllRange
    >>> from tabulae.strategy.settings import Settings
    >>> H2 = hierarchical_strategy(Workload.of(AllRange(4)), Settings("laplace"))
    >>> H2.blocks[0].query.dense().tolist()
    [[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    """
    return per_attribute(workload, settings, "hierarchical", lambda n: level_counts(tree(n, 2), n))


def tree(n: int, branching: int) -> list[list[Node]]:
    """The nodes of a tree over n cells, level by level from the root, in order of their cells.

    A node of more than one cell is cut into ``branching`` parts whose sizes differ by at most 1 (into single cells
    where it has no more than ``branching``). Every node is listed once: a cell that is alone on one level is not
    repeated below.

    Raises :class:`~tabulae.errors.InvalidArgument` for fewer than one cell or fewer than two parts.

    >>> tree(5, 2)
    [[(0, 5)], [(0, 2), (2, 5)], [(0, 1), (1, 2), (2, 3), (3, 5)], [(3, 4), (4, 5)]]
    """
    n = check_size(n, "tree: n")
    if branching < 2:
        raise InvalidArgument(f"branching is {branching}: a node needs at least 2 parts")
    levels = [[(0, n)]]
    while below := [part for node in levels[-1] for part in parts(node, branching)]:
        levels.append(below)
    return levels


def parts(node: Node, branching: int) -> list[Node]:
    """The children of a node; none for a single cell."""
    first, end = node
    size = end - first
    if size == 1:
        return []
    count = min(branching, size)
    return list(pairwise(first + size * k // count for k in range(count + 1)))


def level_counts(levels: Sequence[Sequence[Node]], n: int) -> LinearOperator:
    """One row a node: a stack of partitions of n cells, one for each level."""
    members = [_level(nodes, n) for nodes in levels]
    return members[0] if len(members) == 1 else Stack(members)


def _level(nodes: Sequence[Node], n: int) -> LinearOperator:
    if len(nodes) == n:
        return Identity(n)
    if nodes[0] == (0, n):
        return Total(n)
    classes = np.full(n, -1)  # cells that were alone on a level above are in no class
    for row, (first, end) in enumerate(nodes):
        classes[first:end] = row
    return Partition(classes)
