"""Areas as sums of few nodes: those wholly inside an area whose parents are not."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ..geography.spine_plan import SpinePlan


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
