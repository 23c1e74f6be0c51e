"""The first pass of TopDown: children's totals alone, in whole numbers, before their cells."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..linalg.block_algebra import BlockAlgebra
from .division import (
    FREE,
    NO_LIMIT,
    Division,
)
from .rounding import round_division
from .solve import solve

_RIDGE = (
    0.1  # of the least weight of a total: how strongly cells are drawn to a centre, whichever give a total
)
_STILL = 0.01  # people: totals that move no further are those that are drawn nowhere
_CENTRES = 20


def divide_totals(
    division: Division, measured: np.ndarray, weight: np.ndarray, *, compiled: bool = True
) -> np.ndarray:
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
        division: with a total.
        measured: shape (n,): the measured totals.
        weight: shape (n,): positive, the inverse of their variances.
        compiled: as for ``solve``.

    Returns:
        Shape (n,), int64, adding up to the parent's total.

    References: Abowd et al., "The 2020 Census Disclosure Avoidance System TopDown Algorithm", section 5 (multi-pass);
    Rockafellar, "Monotone Operators and the Proximal Point Algorithm" (1976).
    """
    reduced = reduce_to_sums(division, measured, weight)
    x = nearest_sums(reduced, measured, weight, compiled=compiled)
    return round_division(reduced, x, compiled=compiled).sum(axis=(1, 2))


def nearest_sums(
    reduced: Division, measured: np.ndarray, weight: np.ndarray, *, compiled: bool = True
) -> np.ndarray:
    """A solution of the division of sums that its ridge draws nowhere: shape (n, k, 1)."""
    x, moved = solve(reduced, compiled=compiled).x, np.inf
    ridge, centres = _ridge(weight, x.shape[1]), 0
    while ridge and centres < _CENTRES and moved > _STILL:
        linear = ((weight * measured)[:, None, None] + ridge * x) * reduced.allowed[:, :, None]
        before, x = x, solve(replace(reduced, linear=linear), compiled=compiled).x
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
    group = division.group if (division.exact != FREE).any() else np.zeros_like(division.group)
    keys = np.concatenate([np.where(limited, parts, -1)[None], group])
    _, first, same = np.unique(keys, axis=1, return_index=True, return_inverse=True)
    part = first[same.reshape(-1)][division.part]
    signs = np.concatenate([part[None], division.allowed])
    cells = np.unique(signs, axis=1, return_inverse=True)[1]
    return cells.reshape(-1), part
