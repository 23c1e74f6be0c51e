"""Moves on a grid of cells that keep every exact sum: what has come upon cells that must be 0 is moved elsewhere.

For values a, b of some attributes the move ``(x)_i (e_{a_i} - e_{b_i})`` adds 1 to half of the 2^s cells of a box and
takes 1 from the others. A table that sums over one of these attributes does not see it.
"""

from __future__ import annotations

import itertools

import numpy as np

from ..domain import Invariants
from ..errors import Unsupported
from ..linalg import LinearOperator, Total

_BOXES = 4096  # looked at for a cell


def emptied(invariants: Invariants, cells: np.ndarray, open_cells: np.ndarray) -> np.ndarray:
    """Whole cells with the same exact sums and 0 in all cells that are not open.

    A box may have other closed cells that are not 0 yet: what a row that must be empty has in one cell, others of it
    have with the opposite sign. Each move empties a closed cell and fills none, so that the moves end. Among boxes it
    takes one whose cells that become smaller are large.

    Raises :class:`~tabulae.errors.Unsupported` where there is no such box, or a table sums over no attribute.
    """
    out = cells.copy()
    usable = open_cells | (out != 0)
    wrong = np.argwhere(usable & ~open_cells)
    axes = _crossing(invariants) if len(wrong) else None
    for place in wrong:
        at = tuple(place)
        if out[at]:
            box = None if axes is None else _box(out, usable, place, axes)
            if box is None:
                raise Unsupported(
                    "exact counts of 0 close cells that have to be filled if the others are to be whole: leave "
                    "categories without records out of the domain, or fix fewer tables"
                )
            corners, signs = box
            out[tuple(corners.T)] -= signs * out[at]
        usable[at] = False
    return out


def _crossing(invariants: Invariants) -> tuple[int, ...] | None:
    """Fewest attributes of which every table sums over one."""
    shape = invariants.domain.shape
    summed = []
    for table in invariants.tables:
        products = [term.over(invariants.domain) for term in table.terms]
        summed.append({a for a, n in enumerate(shape) if n > 1 and all(_sums(p[a]) for p in products)})
    usable = [a for a, n in enumerate(shape) if n > 1]
    for count in range(1, len(usable) + 1):
        for axes in itertools.combinations(usable, count):
            if all(each & set(axes) for each in summed):
                return axes
    return None


def _sums(factor: LinearOperator) -> bool:
    return isinstance(factor, Total) or int(factor.column_classes().max()) == 0


def _box(
    cells: np.ndarray, usable: np.ndarray, place: np.ndarray, axes: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray] | None:
    """The corners of a box of usable cells (2^s x d) with ``place`` among them, and their signs, + at ``place``."""
    most = int(_BOXES ** (1 / len(axes)))
    sides = []
    for axis in axes:
        line = tuple(slice(None) if a == axis else v for a, v in enumerate(place))
        values = np.flatnonzero(usable[line])
        values = values[values != place[axis]]
        sides.append(values[np.argsort(-cells[line][values], kind="stable")[:most]])
    others = np.stack([side.ravel() for side in np.meshgrid(*sides, indexing="ij")], axis=1)
    least = np.full(len(others), np.iinfo(np.int64).max)
    possible = np.ones(len(others), dtype=bool)
    choices = np.array(list(itertools.product((0, 1), repeat=len(axes))))
    signs = 1 - 2 * (choices.sum(axis=1) % 2)
    corners = np.tile(place, (len(choices), len(others), 1))
    for axis, chosen, column in zip(axes, choices.T, others.T, strict=True):
        corners[chosen == 1, :, axis] = column
    for corner, sign in zip(corners[1:], signs[1:], strict=True):
        at = tuple(corner.T)
        possible &= usable[at]
        if sign * cells[tuple(place)] > 0:  # this corner loses what the closed cell has
            least = np.minimum(least, cells[at])
    if not possible.any():
        return None
    best = int(np.argmax(np.where(possible, least, np.iinfo(np.int64).min)))
    return corners[:, best], signs
