"""Cells that meet constraints and stay clear of their limits: a start for rounding, or a proof that there are none.

Tables that count each cell at most once are met by scaling, row by row and table after table (iterative proportional
fitting: cyclic projections in the Kullback-Leibler divergence, which converge to cells that meet all constraints where
positive ones do). Other tables take a linear programme, which also proves that nothing meets the constraints.

References: Deming, Stephan, On a least squares adjustment of a sampled frequency table (1940); Bregman, The relaxation
method of finding the common point of convex sets (1967).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from scipy.optimize import linprog

from ..errors import InvalidArgument, Unsupported
from .limits import Limits, Rows

_SWEEPS, _PATIENCE, _STUCK = 1000, 16, 0.9  # scaling ends where 16 sweeps leave 0.9 of the largest gap
_ROUNDING = 1e-11  # of a count: what a sum of cells may lose; a 2^-54 a cell where there are many
_CLOSE = 1e-9  # counts
_ROUNDS = 6
_CELLS = 20_000  # most cells of a linear programme
_ZERO = 1e-6  # below it, a cell that a linear programme makes as large as it can be is 0
_ROOM = 0.25  # most that a bounded row is kept from its limits


@dataclass(frozen=True, eq=False)
class Clearance:
    """How far to keep from 0 and from the limits: one number a cell, one a row of each bounded table; in counts."""

    cells: np.ndarray
    rows: tuple[np.ndarray, ...]

    @classmethod
    def none(cls, limits: Limits) -> Clearance:
        """Touching is allowed."""
        return cls(np.zeros(limits.cells), tuple(np.zeros(len(each.low)) for each in limits.bounded))


def within(each: Rows, counts: np.ndarray, margin: np.ndarray) -> np.ndarray:
    """The nearest counts inside the limits of one table, kept from them by the margin where they leave room."""
    room = np.minimum(margin, np.where(np.isfinite(each.high - each.low), (each.high - each.low) / 4, np.inf))
    return np.clip(counts, each.low + room, each.high - room)


def scaled(limits: Limits, start: np.ndarray, clearance: Clearance, close: float) -> np.ndarray | None:
    """Positive cells near ``start`` that meet the constraints but for ``close``, by scaling; None where it is stuck."""
    cells = np.where(limits.open, np.maximum(start, clearance.cells), 0.0)
    margins = (*(np.zeros(len(each.low)) for each in limits.exact), *clearance.rows)
    rounding, mark = max(_ROUNDING, limits.cells * 2.0**-54), np.inf
    for sweep in range(_SWEEPS):
        worst = 0.0
        for each, margin in zip(limits.all, margins, strict=True):
            assert each.labels is not None
            counts = np.bincount(each.labels + 1, weights=cells, minlength=len(each.low) + 1)
            wanted = within(each, counts[1:], margin)
            if np.any((counts[1:] == 0) & (wanted > 0)):
                return None
            worst = max(worst, float((np.abs(wanted - counts[1:]) / (close + rounding * wanted)).max()))
            factor = np.ones(len(counts))
            np.divide(wanted, counts[1:], out=factor[1:], where=counts[1:] > 0)
            cells *= factor[each.labels + 1]
        if worst <= 1:
            return cells
        if sweep % _PATIENCE == _PATIENCE - 1:
            if worst > _STUCK * mark:
                return None
            mark = worst
    return None


def inside(limits: Limits) -> np.ndarray:
    """Cells that meet the constraints, with every one positive that can be; closes those that cannot.

    Raises :class:`~tabulae.errors.InvalidArgument` where nothing meets the constraints, naming the rows.
    """
    if limits.separate:
        margins = tuple(np.full(len(each.low), _ROOM) for each in limits.bounded)
        found = scaled(limits, np.ones(limits.cells), Clearance(np.ones(limits.cells), margins), _CLOSE)
        if found is not None:
            return found
    return _programme(limits)


def _programme(limits: Limits) -> np.ndarray:
    """The same by linear programmes: cells are made as large as 1/n, as many at once as can be, and averaged."""
    index = np.flatnonzero(limits.open)
    n = len(index)
    if n > _CELLS:
        raise Unsupported(
            f"no non-negative cells that meet the constraints were found by scaling, and {n:,} cells are too many for "
            f"the linear programme that would decide whether there are any (at most {_CELLS:,}): check the counts, or "
            "constrain fewer tables"
        )
    exact = [each.matrix[:, index] for each in limits.exact]
    bounded = [each.matrix[:, index] for each in limits.bounded]
    wide = sum(m.shape[0] for m in bounded)
    total, lacking, rounds = np.zeros(n), np.ones(n), 0
    short = np.ones(wide)
    while rounds < _ROUNDS and (lacking.any() or short.any()):
        result = linprog(
            np.concatenate(
                [np.zeros(n), -lacking * n, -short / _ROOM]
            ),  # u - s, s <= 1/n, and room in the rows
            **_equalities(limits, exact, n, wide),
            **_inequalities(limits, bounded, n),
            bounds=[(0, None)] * n + [(0, 1 / n)] * n + [(0, _ROOM)] * wide,
            method="highs",
        )
        if result.status == 2:
            raise InvalidArgument(_blame(limits, exact, bounded, n))
        if result.status != 0:
            raise Unsupported(f"the linear programme of the constraints was not solved: {result.message}")
        point = np.maximum(result.x[:n] + result.x[n : 2 * n], 0.0)
        reached, room = result.x[n : 2 * n] > _ZERO / n, result.x[2 * n :] > _ZERO
        total, rounds = total + point, rounds + 1
        left, still = lacking * ~reached, short * ~room
        if np.array_equal(left, lacking) and np.array_equal(still, short):
            break
        lacking, short = left, still
    limits.open[index[lacking > 0]] = False
    cells = np.zeros(limits.cells)
    cells[index] = np.where(lacking > 0, 0.0, total / rounds)
    return cells


def _stacked(parts: Sequence[scipy.sparse.csr_array]) -> scipy.sparse.csr_array:
    return scipy.sparse.csr_array(scipy.sparse.vstack([part.astype(float) for part in parts]))


def _beside(*parts: Any) -> Any:
    return scipy.sparse.csr_array(scipy.sparse.hstack(parts))


def _equalities(limits: Limits, exact: list[scipy.sparse.csr_array], n: int, wide: int) -> dict[str, object]:
    if not exact:
        return {}
    stacked = _stacked(exact)
    empty = scipy.sparse.csr_array((sum(len(each.low) for each in limits.exact), wide))
    return {
        "A_eq": _beside(stacked, stacked, empty),
        "b_eq": np.concatenate([each.low for each in limits.exact]),
    }


def _inequalities(limits: Limits, bounded: list[scipy.sparse.csr_array], n: int) -> dict[str, object]:
    if not bounded:
        return {}
    stacked = _stacked(bounded)
    room = scipy.sparse.eye_array(sum(len(each.low) for each in limits.bounded))
    low, high = (np.concatenate([getattr(e, side) for e in limits.bounded]) for side in ("low", "high"))
    above, below = np.isfinite(high), np.isfinite(low)
    upper = _beside(stacked, stacked, room)[above]
    lower = _beside(-stacked, -stacked, room)[below]
    return {"A_ub": scipy.sparse.vstack([upper, lower]), "b_ub": np.concatenate([high[above], -low[below]])}


def _blame(
    limits: Limits, exact: list[scipy.sparse.csr_array], bounded: list[scipy.sparse.csr_array], n: int
) -> str:
    """The rows of a contradiction, from the multipliers of the least total violation (Farkas)."""
    stacked = _stacked([*exact, *bounded])
    m = sum(len(each.low) for each in limits.all)
    low, high = (np.concatenate([getattr(e, side) for e in limits.all]) for side in ("low", "high"))
    give = scipy.sparse.eye_array(m)
    above, below = np.isfinite(high), np.isfinite(low)
    upper = _beside(stacked, -give)[above]
    lower = _beside(-stacked, -give)[below]
    result = linprog(
        np.concatenate([np.zeros(n), np.ones(m)]),
        A_ub=scipy.sparse.vstack([upper, lower]),
        b_ub=np.concatenate([high[above], -low[below]]),
        bounds=(0, None),
        method="highs",
    )
    multipliers = np.abs(result.ineqlin.marginals)
    weight = np.zeros(m)
    weight[above] += multipliers[: int(above.sum())]
    weight[below] += multipliers[int(above.sum()) :]
    blamed, names = np.flatnonzero(weight > _ZERO), []
    start = 0
    for each in limits.all:
        names += [limits.name(each, int(r - start)) for r in blamed if start <= r < start + len(each.low)]
        start += len(each.low)
    listed = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
    return (
        f"no non-negative counts meet the constraints: those on {listed} contradict each other "
        f"(together they miss by {result.fun:.6g})"
    )


def mixed(limits: Limits, cells: np.ndarray, clear: np.ndarray, clearance: Clearance) -> np.ndarray | None:
    """``(1 - t) cells + t clear`` with the smallest t that gives the clearance, as far as half of ``clear``'s own.

    ``cells`` is projected onto the equalities first; None where no t below 1 will do.
    """
    start = limits.nearest_open(cells)
    shares = [_share(start, clear, np.minimum(clearance.cells, clear / 2))]
    for each, margin in zip(limits.bounded, clearance.rows, strict=True):
        here, there = each.operator @ start, each.operator @ clear
        for sign, limit in ((1.0, each.low), (-1.0, each.high)):
            known = np.isfinite(limit)
            room = sign * (there - limit)[known]
            shares.append(_share(sign * (here - limit)[known], room, np.minimum(margin[known], room / 2)))
    share = max(shares)
    if share >= 1:
        return None
    return np.where(limits.open, np.maximum((1 - share) * start + share * clear, 0.0), 0.0)


def _share(here: np.ndarray, there: np.ndarray, wanted: np.ndarray) -> float:
    """The least t with ``(1 - t) here + t there >= wanted`` wherever ``there`` is above 0."""
    lacking = (there > 0) & (here < wanted)
    return float(((wanted - here)[lacking] / (there - here)[lacking]).max(initial=0.0))
