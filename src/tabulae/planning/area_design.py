"""Which budgets of levels and queries give which noise on a spine: the variables of the search for shares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from ..geography.spine import Spine
from ..geography.spine_plan import SpinePlan
from ..privacy import ZCDP
from ..spec import Geography

_BASE = 1_000  # more than the levels of any spine


@dataclass(frozen=True, eq=False)
class Design:
    """Budgets y of levels and queries under Gaussian noise, and the budgets x of units that follow from them.

    Units of one level have one share, but where the bypass left out an only child and gave its share to the unit
    above: there shares are added, and the queries have the shares of the unit's own level. So units are of few *cells*,
    each of a level l and a set J of levels whose shares it has, with the budgets

        x[cell, q] = y[l, q] sum_{j in J} Y[j] / Y[l],  Y[j] = sum over queries of y[j, q]

    and an answer of a unit has the weight (1 over its variance) ``unit x``. What is possible for y is so for x, where
    the budgets on each path from the root to a leaf add up to the budget; there the problem is convex.

    Args:
        plan: the same units under shares that tell the sets of levels apart.
        levels: names of the levels that have a share.
        level: shape (cells,): which of these each cell is of.
        joined: shape (cells, levels), boolean: J.
        paths: shape (paths, cells), boolean: the cells on each path from the root to a leaf.
        cell: shape (classes of the plan,): the cell of each, -1 where nothing is measured.
        unit: what one rho of a unit's budget gives to a weight.
    """

    plan: SpinePlan
    levels: tuple[str, ...]
    level: np.ndarray
    joined: np.ndarray
    paths: np.ndarray
    cell: np.ndarray
    unit: float

    @classmethod
    def of(cls, geography: Geography) -> Design:
        """The design of a geography with Gaussian noise, whose bypass depends on no amount."""
        plan, given = geography.plan(), geography.shares.levels
        names = tuple(name for name in geography.spine.levels if given.get(name, 0))
        total = sum(_BASE**i for i in range(len(names)))
        digits = {name: Fraction(_BASE**i, total) for i, name in enumerate(names)}
        marked = replace(plan, spine=shared(geography, digits))
        shares = marked.spine.shares
        assert shares is not None
        units = marked.spine.hierarchy.units
        rows = np.stack([index[unit] for index, unit in zip(shares.index, units, strict=True)])
        sums = [int(value * total) for value in shares.values]
        held = np.array([[value // _BASE**i % _BASE > 0 for i in range(len(names))] for value in sums])
        paths = np.unique(rows, axis=1).T
        cells = sorted({(at, i) for path in paths.tolist() for at, i in enumerate(path) if held[i].any()})
        place = {cell: i for i, cell in enumerate(cells)}
        on_path = np.zeros((len(paths), len(cells)), bool)
        for row, path in zip(on_path, paths.tolist(), strict=True):
            row[[place[at, i] for at, i in enumerate(path) if (at, i) in place]] = True
        return cls(
            marked,
            names,
            np.array([names.index(marked.spine.levels[at]) for at, _ in cells]),
            held[[i for _, i in cells]],
            on_path,
            np.array([place.get((at, i), -1) for at, i, _ in marked.classes[0].tolist()]),
            (1.0 if plan.neighbours == "replace" else 2.0) / plan.rows_per_unit**2,
        )

    def budgets(self, y: np.ndarray) -> np.ndarray:
        """x, shape (cells, queries), of y, shape (levels, queries)."""
        whole = y.sum(axis=1)
        return y[self.level] * (self.joined @ whole / whole[self.level])[:, None]

    def weights(self, x: np.ndarray) -> np.ndarray:
        """The weights of each class and query of the plan, shape (classes, queries)."""
        return self.unit * np.where(self.cell[:, None] >= 0, x[self.cell], 0.0)

    def slope(self, by_class: np.ndarray) -> np.ndarray:
        """A derivative by the weights as one by x: shape (cells, queries)."""
        found = np.zeros((len(self.level), by_class.shape[1]))
        np.add.at(found, self.cell[self.cell >= 0], self.unit * by_class[self.cell >= 0])
        return found

    def back(self, slope: np.ndarray, y: np.ndarray) -> np.ndarray:
        """A derivative by x as one by y."""
        whole = y.sum(axis=1)
        sums = self.joined @ whole
        found = np.zeros_like(y)
        np.add.at(found, self.level, slope * (sums / whole[self.level])[:, None])
        along = (slope * y[self.level]).sum(axis=1) / whole[self.level]
        by_whole = self.joined.T @ along
        np.subtract.at(by_whole, self.level, along * sums / whole[self.level])
        return found + by_whole[:, None]


def shared(geography: Geography, shares: Mapping[str, Fraction]) -> Spine:
    """The units of a geography with other shares of the levels, units of no use left out as the section says.

    For Gaussian noise alone.
    """
    every = {name: shares.get(name, Fraction(0)) for name in geography.spine.levels}
    if geography.rule == "off":
        return geography.spine.with_shares(every)
    return geography.spine.bypass(every, "gaussian", geography.rule)


def is_gaussian(geography: Geography) -> bool:
    """Whether the noise is Gaussian: its weights are linear in the budget, and the problem is convex."""
    return isinstance(geography.plan().budget, ZCDP)
