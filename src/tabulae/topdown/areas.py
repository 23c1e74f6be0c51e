"""Variances of least-squares estimates of any areas: units of the spine, and sets of leaves that cut across it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..errors import InvalidArgument
from ..geography.layout import Layout, Margin
from .area_climb import AreaPairs, Climb
from .covariances import Covariances
from .equalities import nodes_of_level

_NUMBERS = 8_000_000
"""About how many numbers of matrices are held at a time."""


def margin_variance(layout: Layout, variance: np.ndarray, margin: Margin) -> np.ndarray:
    """The variance of each cell of a marginal table.

    With r the indicator of a class of dense cells and q the squares of a set of symmetric cells by kind
    (:meth:`BlockAlgebra.squares`): ``sum_S q[S] r' V[S] r``.

    Args:
        layout: of the cells.
        variance: V of the cells' estimates, shape (..., kinds, D, D); zero rows for cells that cannot occur.
        margin: the table.

    Returns:
        Shape (..., classes, inner).
    """
    every = np.arange(layout.size)
    return _by_kind(variance, margin, every) @ margin.squares.T


def _by_kind(variance: np.ndarray, margin: Margin, cells: np.ndarray) -> np.ndarray:
    """r' V[S] r for each class and kind, V over some dense cells: shape (..., classes, kinds)."""
    rows = (np.arange(margin.classes)[:, None] == margin.label[cells]).astype(float)
    return ((rows @ variance) * rows).sum(axis=-1).swapaxes(-1, -2)


@dataclass(frozen=True, eq=False)
class UnitVariances:
    """Variances of one table's cells for all units of a level: few distinct ones, and which of them each unit has.

    Args:
        margin: the table.
        kinds: shape (distinct, classes, kinds): the part of each kind of contrast.
        which: shape (units,).
    """

    margin: Margin
    kinds: np.ndarray
    which: np.ndarray

    def of(self, units: np.ndarray) -> np.ndarray:
        """Of some units: shape (m, classes, inner)."""
        return self._cells(self.kinds[self.which[units]])

    def mean(self) -> np.ndarray:
        """The mean over all units, shape (classes, inner). Cells that cannot occur in a unit have variance 0."""
        count = np.bincount(self.which, minlength=len(self.kinds))
        return self._cells(np.tensordot(count / count.sum(), self.kinds, axes=1))

    def _cells(self, kinds: np.ndarray) -> np.ndarray:
        return kinds @ self.margin.squares.T


def unit_variances(cov: Covariances, level: str, margin: Margin) -> UnitVariances:
    """The variance of a table's cells for every unit of a level.

    Units that are nodes of the tree are looked up, leaves of one kind and one parent together; others (a bypass gave
    their share to their children) are sets of leaves.

    Args:
        cov: the matrices.
        level: name of a level of the spine.
        margin: the table.

    Raises:
        InvalidArgument: an unknown level.
    """
    spine, layout = cov.plan.spine, cov.plan.layout
    if level not in spine.levels:
        raise InvalidArgument(f"{level!r} is no level of this spine: {', '.join(spine.levels)}")
    nodes = nodes_of_level(cov.plan, level)
    units = np.flatnonzero(nodes >= 0)
    units = units[np.argsort(nodes[units], kind="stable")]
    which, parts, made = (
        np.empty(nodes.size, np.int64),
        [np.zeros((0, margin.classes, layout.algebra.kinds))],
        0,
    )
    for group in cov.kinds.groups(nodes[units]):
        variance, index = cov.variances_of(group)
        parts.append(_by_kind(variance, margin, group.cells))
        which[units[np.searchsorted(nodes[units], group.nodes)]] = made + index
        made += len(variance)
    others = np.flatnonzero(nodes < 0)
    if others.size:
        place = np.full(nodes.size, -1)
        place[others] = np.arange(others.size)
        found = area_covariances(cov, place[spine.units[level]], others.size)
        parts += [_by_kind(variance, margin, np.arange(layout.size))[None] for variance in found]
        which[others] = made + np.arange(others.size)
    return UnitVariances(margin, np.concatenate(parts), which)


def unit_covariance(cov: Covariances, leaves: np.ndarray) -> np.ndarray:
    """The variance of the sum of a set of leaves: shape (kinds, D, D).

    Args:
        cov: the matrices.
        leaves: a mask of shape (leaves,), or positions of leaves.

    >>> from tabulae import Domain, Spine, ZCDP
    >>> from tabulae.geography.layout import Layout
    >>> from tabulae.geography.spine_plan import SpinePlan
    >>> spine = Spine.from_codes({"county": list("AAA"), "block": list("abc")}, levels=["county", "block"])
    >>> spine, layout = spine.with_shares({"county": "1/2", "block": "1/2"}), Layout.of(Domain({"sex": 1}))
    >>> shares = {level: (1,) for level in spine.levels}
    >>> plan = SpinePlan(spine, layout, (layout.margin(["sex"]),), shares, ZCDP(1), np.ones((3, 1), bool))
    >>> cov = Covariances.of(plan)  # counties and blocks are measured with variance 2
    >>> [round(float(unit_covariance(cov, np.arange(n))[0, 0, 0]), 3) for n in (1, 2, 3)]
    [1.5, 2.0, 1.5]
    """
    area = np.full(cov.plan.spine.leaves, -1)
    area[leaves] = 0
    return next(area_covariances(cov, area, 1))


def area_covariances(cov: Covariances, area: np.ndarray, areas: int) -> Iterator[np.ndarray]:
    """The variance of the estimates of many areas that do not overlap, one after the other.

    An area a is followed up the tree, from units wholly inside it, through units partly inside. With C_u the
    covariance of a's part within u and x_u, and N_u the variance of that part, given what is measured at u and below:

        inside  C = N = S_u
        partly  C~ = sum of the children's C,  C = C~ A_u,  N = sum of the children's N - C~ M_u C~'

    and for the lowest unit that holds all of a, ``Var = N - C Lambda_u C'``, with the matrices of
    :class:`Covariances`. Units outside a, and below a unit wholly inside it, are not looked at.

    Args:
        cov: the matrices.
        area: shape (leaves,): the area of each leaf, -1 where it is in none.
        areas: their number.

    Yields:
        For each area in turn shape (kinds, D, D), over all dense cells.
    """
    algebra, size = cov.plan.layout.algebra, cov.plan.layout.size
    if not areas:
        return
    pairs = AreaPairs.of(cov, np.asarray(area), areas)
    cost = (pairs.partly() + 1) * algebra.kinds * size * size
    first = 0
    ends = np.cumsum(cost)
    while first < areas:
        before = ends[first - 1] if first else 0
        last = max(int(np.searchsorted(ends, before + _NUMBERS, side="right")), first + 1)
        yield from Climb.of(cov, pairs, first, last).variances()
        first = last
