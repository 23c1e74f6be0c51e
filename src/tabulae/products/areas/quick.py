"""Margins of a plan of areas at once: bounds from what each area itself is asked, without a pass over the spine."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from ...release.write import LEVEL
from ...spec.areas import AreaTarget
from .passes.area_variances import margin_variance
from .spec.section import AreaTable, Geography
from .spine.shares import distinct_rows
from .spine_plan import SpinePlan, area_half_widths


def quick_margins(geography: Geography, level: float = LEVEL) -> dict[str, float]:
    """For each table a bound on the half-width of its widest interval, over all its kinds of area; inf where unknown.

    An area is the union of the highest measured units that lie in it. Their own answers alone estimate its counts
    without bias, with the sum of the units' variances P^-1. Generalised least squares uses these answers and all
    others, and is the best of all linear unbiased estimates, so that its variances are no larger; exact counts make
    them smaller still. An area with a leaf that is in no measured unit of it has no such bound.

    Privacy:
        A function of the public spec.
    """
    worst, laws = _variances(geography), geography.plan().all_laws
    found = dict.fromkeys((table.name for table in geography.tables), 0.0)
    for (name, _), variance in worst.items():
        found[name] = max(found[name], variance)
    return {name: float(area_half_widths(each, laws, level)) for name, each in found.items()}


def margins_at_targets(geography: Geography, level: float = LEVEL) -> dict[str, float]:
    """About those margins at the budget that meets all targets of the tables, where it is still to be found.

    With the budget all variances change alike, nearly: until the bound of the target that asks most is what it allows.
    What other answers tell of an area is left out, as by :func:`quick_margins`, so that the budget would be too large.

    Privacy:
        A function of the public spec.
    """
    worst = _variances(geography)
    allowed = [
        (_allowed(target), worst[table.name, kind])
        for table in geography.tables
        for target in table.targets
        for kind in target.areas
    ]
    ratio = min((most / variance for most, variance in allowed if variance), default=np.inf)
    normal, found = float(ndtri((1 + level) / 2)), dict.fromkeys((name for name, _ in worst), 0.0)
    for (name, _), variance in worst.items():
        found[name] = max(found[name], normal * float(np.sqrt(variance * ratio)) if variance else 0.0)
    return found


def _allowed(target: AreaTarget) -> float:
    """The variance that a target allows under normal noise; of an RMSE its square."""
    if target.margin is None or target.confidence is None:
        return (target.rmse or 0.0) ** 2
    return (target.margin / float(ndtri((1 + target.confidence) / 2))) ** 2


def _variances(geography: Geography) -> dict[tuple[str, str], float]:
    """The largest bound on the variance of a count of each table in each kind of area."""
    plan = geography.plan()
    own = [_own_covariance(plan, kind) for kind in range(len(plan.classes[0]))]
    by_kind = {kind: _parts(geography, kind) for table in geography.tables for kind in table.areas}
    found: dict[tuple[str, str], float] = {}
    for table in geography.tables:
        variances = np.stack([_of_table(plan, table, each) for each in own])
        for kind in table.areas:
            parts, whole = by_kind[kind]
            found[table.name, kind] = float((parts @ variances).max(initial=0.0)) if whole else np.inf
    return found


def _own_covariance(plan: SpinePlan, kind: int) -> np.ndarray:
    """P^-1 of the own answers of nodes of a class over all dense cells; zero where they are asked nothing."""
    precision, cells = plan.precisions[kind], plan.dense_cells[plan.classes[0][kind][2]]
    found = np.zeros((len(precision), plan.layout.size, plan.layout.size))
    if precision.any():
        found[:, cells[:, None], cells] = np.linalg.inv(precision)
    return found


def _of_table(plan: SpinePlan, table: AreaTable, covariance: np.ndarray) -> np.ndarray:
    """The variances of the cells of a table, in one row."""
    return margin_variance(plan.layout, covariance, table.margin).ravel()


def _parts(geography: Geography, kind: str) -> tuple[np.ndarray, bool]:
    """Of how many units of each class areas are made: the distinct rows; and whether all leaves are in such units."""
    plan, tree = geography.plan(), geography.plan().tree
    codes, area = geography.areas(kind)
    low, high = np.full(tree.size, codes.size), np.full(tree.size, -1)
    np.minimum.at(low, tree.leaf, area)
    np.maximum.at(high, tree.leaf, area)
    for nodes in reversed(tree.depths[1:]):
        np.minimum.at(low, tree.parent[nodes], low[nodes])
        np.maximum.at(high, tree.parent[nodes], high[nodes])
    within = np.where(low == high, low, -1)  # the area that all leaves of a node are in
    held = (within >= 0) & plan.is_measured
    above = np.zeros(tree.size, bool)  # whether a node is in a unit that is taken already
    for nodes in tree.depths[1:]:
        parent = tree.parent[nodes]
        above[nodes] = above[parent] | held[parent]
    whole = bool((above | held)[tree.leaf][area >= 0].all())
    taken = np.flatnonzero(held & ~above)
    key = within[taken] * len(plan.classes[0]) + plan.classes[1][taken]
    pairs, number = np.unique(key, return_counts=True)
    parts = np.zeros((codes.size, len(plan.classes[0])), np.int32)
    parts[pairs // parts.shape[1], pairs % parts.shape[1]] = number
    return distinct_rows(parts)[0], whole
