"""Cells on a grid that have their exact sums in whole numbers, and are not negative.

Cells u that meet ``C u = c`` are rounded to ``w = round(2^k u)``, and then ``C w = 2^k c`` is restored by whole moves.
There are such moves, for the true table x is a solution in whole numbers: ``2^k c - C w = C (2^k x - w)``.

**At most two tables that count each cell at most once** (after dropping tables that others contain). The rows of the
two tables are the nodes of a graph, every open cell is an edge between the rows that count it, and what is missing
flows along a spanning forest, from the leaves inwards: exact, and every flow is whole. The forest is that of the
largest cells. Zeros stay zero, and no cell becomes negative if each is 0 or at least n/2 steps, n being their number:
removing an edge of the forest cuts its tree in two; the cells inside either part count on both sides and cancel, so
that the flow over the edge is the sum of the rounding errors of the cells across the cut, with signs. Cells of 0 have
none, the others at most half a step each. So there is no flow where all cells across the cut are 0; else the edge is
the largest of them, at least n/2 steps, and the flow is not more. (What u misses the sums by in floating point adds to
the flow.)

**Other tables over at most 4,096 open cells**: an integer echelon form whose pivots are large cells.
**Others whose groups nest**: their corner coordinates (:class:`tabulae.domain.Invariants`), and moves that keep all
sums and empty the cells that must be 0 (:mod:`.rectangles`).

Whatever the route, the result is checked. Where a cell is negative, which takes cells of a few steps, or a pivot that
is 0, the cells are moved inside, away from 0 by more than that, and rounded again; the same where a limit is
overstepped. Where that does not end, the estimate is refused.

Moves on a grid of cells that keep every exact sum: what has come upon cells that must be 0 is moved elsewhere.

For values a, b of some attributes the move ``(x)_i (e_{a_i} - e_{b_i})`` adds 1 to half of the 2^s cells of a box and
takes 1 from the others. A table that sums over one of these attributes does not see it.

Cells that meet constraints and stay clear of their limits: a start for rounding, or a proof that there are none.

Tables that count each cell at most once are met by scaling, row by row and table after table (iterative proportional
fitting: cyclic projections in the Kullback-Leibler divergence, which converge to cells that meet all constraints where
positive ones do). Other tables take a linear programme, which also proves that nothing meets the constraints.

References: Deming, Stephan, On a least squares adjustment of a sampled frequency table (1940); Bregman, The relaxation
method of finding the common point of convex sets (1967).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse
from scipy.optimize import linprog
from scipy.sparse.csgraph import breadth_first_order, connected_components, minimum_spanning_tree

from ..domain import Domain, Invariants, Table
from ..domain.table import Term
from ..errors import InvalidArgument, Unsupported
from ..linalg import Dense, IntegerSystem, LinearOperator, Total, joint_classes
from .merged_cells import LimitedRows, Limits

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


def within(each: LimitedRows, counts: np.ndarray, margin: np.ndarray) -> np.ndarray:
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


EXPLICIT = 4096
"""Most cells of an integer echelon form."""

_FINEST = 40  # k; all sums of cells stay below 2^52 steps, so that they are exact in floating point, too
_ATTEMPTS = 12
_FLOORS = (0.25, 16.0, 1024.0)  # grid steps
_TIGHT = 1e-6  # a row no further from its limit, where it is as far as it can be, is at it


@dataclass(frozen=True, eq=False)
class FixedRows:
    """Rows whose counts are fixed: ``rows[used] u = values``; all other rows of the table are free."""

    rows: LimitedRows
    used: np.ndarray
    values: np.ndarray

    @cached_property
    def labels(self) -> np.ndarray | None:
        """The number among the used rows of the one that counts each cell, -1 for none; None where rows overlap."""
        if self.rows.labels is None:
            return None
        place = np.append(np.where(self.used, np.cumsum(self.used) - 1, -1), -1)
        return place[self.rows.labels]

    def missing(self, whole: np.ndarray, exponent: int) -> np.ndarray:
        """What the counts of whole cells lack, in grid steps."""
        return (self.values << exponent) - (self.rows.operator @ whole)[self.used]


class Rounding:
    """From non-negative cells near the constraints to whole ones that meet them.

    Raises :class:`~tabulae.errors.InvalidArgument` where nothing meets the constraints.
    """

    def __init__(self, limits: Limits, shape: tuple[int, ...]) -> None:
        self._limits = limits
        self._inside = inside(limits)
        fixed = [
            FixedRows(e, np.ones(len(v), dtype=bool), v)
            for e, v in zip(limits.exact, limits.values, strict=True)
        ]
        for each in limits.bounded:
            counts = each.operator @ self._inside
            low, high = counts - each.low < _TIGHT, each.high - counts < _TIGHT
            if (low | high).any():  # the other constraints leave these rows no choice
                values = np.where(low, each.low, each.high)[low | high]
                fixed.append(FixedRows(each, low | high, values.astype(np.int64)))
        self.sums = WholeCells(limits, shape, fixed)

    def __call__(self, cells: np.ndarray) -> tuple[np.ndarray, int] | None:
        """(whole cells, k) on the grid ``2^-k``; None where they were not found from these cells."""
        limits = self._limits
        size = max(float(cells.sum()), float(self._inside.sum()), 1.0)
        exponent = min(_FINEST, 51 - math.ceil(math.log2(size)))
        clearance = Clearance.none(limits)
        for _ in range(_ATTEMPTS):
            clear = self._clear(cells, clearance, math.ldexp(1.0, -exponent))
            if clear is None:
                return None
            whole = self.sums.settle(np.rint(np.ldexp(clear, exponent)).astype(np.int64), exponent)
            if not _raised(limits, clearance, whole, exponent):
                return whole, exponent
        return None

    def _clear(self, cells: np.ndarray, clearance: Clearance, step: float) -> np.ndarray | None:
        """Cells that meet the constraints but for a grid step, with the clearance."""
        for floor in (
            _FLOORS if self._limits.separate else ()
        ):  # what is missing in rows of zeros needs cells to fill
            raised = Clearance(np.maximum(clearance.cells, floor * step), clearance.rows)
            found = scaled(self._limits, cells, raised, step)
            if found is not None:
                return found
        return mixed(self._limits, cells, self._inside, clearance)


def _raised(limits: Limits, clearance: Clearance, whole: np.ndarray, exponent: int) -> bool:
    """Asks for more clearance where whole cells are negative or rows beyond their limits; whether any are."""
    step = math.ldexp(1.0, -exponent)
    below = whole < 0
    clearance.cells[below] = np.maximum(2 * clearance.cells, (4 - 2 * whole) * step)[below]
    found = bool(below.any())
    for each, margin in zip(limits.bounded, clearance.rows, strict=True):
        counts = each.operator @ whole
        beyond = np.zeros(len(margin), dtype=np.int64)
        for sign, limit in ((1, each.low), (-1, each.high)):
            known = np.isfinite(limit)
            grid = limit[known].astype(np.int64) << exponent
            beyond[known] = np.maximum(beyond[known], sign * (grid - counts[known]))
        past = beyond > 0
        margin[past] = np.maximum(2 * margin, (4 + 2 * beyond) * step)[past]
        found = found or bool(past.any())
    return found


class WholeCells:
    """Restores the sums of cells on a grid that are fixed."""

    def __init__(self, limits: Limits, shape: tuple[int, ...], fixed: Sequence[FixedRows]) -> None:
        self._limits, self._shape, self._fixed = limits, shape, tuple(fixed)

    @cached_property
    def route(self) -> str:
        """ "free", "forest", "echelon" or "corner"."""
        if not self._fixed:
            return "free"
        if self._sides is not None and len(self._sides) <= 2:
            return "forest"
        return "echelon" if int(self._limits.open.sum()) <= EXPLICIT else "corner"

    def settle(self, whole: np.ndarray, exponent: int) -> np.ndarray:
        """Whole cells (int64, on the grid ``2^-exponent``) moved so that the sums hold; some may be negative."""
        match self.route:
            case "free":
                return whole
            case "forest":
                return self._along_forest(whole, exponent)
            case "echelon":
                return self._by_echelon(whole, exponent)
            case _:
                return self._by_corners(whole, exponent)

    # two tables ---------------------------------------------------------------------------------------
    @cached_property
    def _sides(self) -> list[FixedRows] | None:
        """The tables that no other contains; None where one counts a cell twice."""
        every = [each.labels for each in self._fixed]
        labels = [rows[self._limits.open] for rows in every if rows is not None]
        if len(labels) < len(every):
            return None
        kept: list[FixedRows] = []
        for i, mine in enumerate(labels):
            rivals = [j for j, other in enumerate(labels) if j != i and _contains(other, mine)]
            if not any(j < i or not _contains(mine, labels[j]) for j in rivals):
                kept.append(self._fixed[i])
        return kept

    def _along_forest(self, whole: np.ndarray, exponent: int) -> np.ndarray:
        ends, missing, nodes = [], [np.zeros(1, dtype=np.int64)], 1  # node 0 is the outside
        for each in self._sides or ():
            assert each.labels is not None
            ends.append(np.where(each.labels >= 0, each.labels + nodes, 0))
            missing.append(each.missing(whole, exponent))
            nodes += len(each.values)
        residual = np.concatenate(missing)
        one, other = ends if len(ends) == 2 else (ends[0], np.zeros_like(ends[0]))
        low, high = np.minimum(one, other), np.maximum(one, other)
        cells = np.flatnonzero(self._limits.open & (high > 0))
        key = low[cells] * nodes + high[cells]
        order = np.lexsort((-whole[cells], key))
        first = order[np.unique(key[order], return_index=True)[1]]  # the largest cell between each two rows
        edge, key = cells[first], key[first]
        out = whole.copy()
        for node, parent in _inwards(low[edge], high[edge], whole[edge], nodes):
            flow = int(residual[node])
            if flow:
                between = min(node, parent) * nodes + max(node, parent)
                at = min(int(np.searchsorted(key, between)), len(key) - 1)
                if key[at] != between:
                    raise Unsupported(
                        "the exact counts leave no cells through which the rows could be made whole"
                    )
                out[edge[at]] += flow
                residual[parent] -= flow
        return out

    # others -------------------------------------------------------------------------------------------
    def _by_echelon(self, whole: np.ndarray, exponent: int) -> np.ndarray:
        index = np.flatnonzero(self._limits.open)
        rows = [each.rows.matrix[each.used][:, index] for each in self._fixed]
        system = IntegerSystem(scipy.sparse.vstack(rows, format="csr"), priority=-whole[index])
        out = whole.copy()
        out[index] = system.settle(whole[index], np.concatenate([e.values for e in self._fixed]) << exponent)
        return out

    def _by_corners(self, whole: np.ndarray, exponent: int) -> np.ndarray:
        """Over the values of each attribute that some open cell has; what lands on closed cells is moved on."""
        limits, axes = self._limits, range(len(self._shape))
        if len(self._fixed) > len(limits.exact):
            raise Unsupported(
                "the other constraints leave some rows of a bounded table no choice, among too many cells and tables "
                f"to make them exact (more than {EXPLICIT:,} cells and two tables): state those rows as equal"
            )
        seen = limits.open.reshape(self._shape)
        kept = [np.flatnonzero(seen.any(axis=tuple(b for b in axes if b != a))) for a in axes]
        grid = np.ix_(*kept)
        invariants = limits.merged if seen.all() else _over(limits.merged, kept)
        out = np.zeros(self._shape, dtype=np.int64)
        moved = invariants.settle_cells(whole.reshape(self._shape)[grid].ravel(), limits.values, exponent)
        out[grid] = moved.reshape([len(values) for values in kept])
        return emptied(limits.merged, out, seen).ravel()


def _over(invariants: Invariants, kept: Sequence[np.ndarray]) -> Invariants:
    """The same tables over some of the values of each attribute."""
    domain = Domain({name: len(values) for name, values in zip(invariants.domain.names, kept, strict=True)})
    values = dict(zip(domain.names, kept, strict=True))

    def part(name: str, factor: LinearOperator) -> LinearOperator:
        if isinstance(factor, Total) or len(values[name]) == factor.shape[1]:
            return factor if len(values[name]) == factor.shape[1] else Total(len(values[name]))
        return Dense(factor.columns(values[name]))

    tables = [
        Table.of_terms(
            t.name, [Term(e.coefficient, {n: part(n, f) for n, f in e.factors.items()}) for e in t.terms]
        )
        for t in invariants.tables
    ]
    return Invariants(domain, tables)


def _contains(fine: np.ndarray, coarse: np.ndarray) -> bool:
    """Whether every coarse row is a sum of fine rows."""
    if np.any((fine < 0) & (coarse >= 0)):
        return False
    return int(joint_classes([fine, coarse]).max()) == int(joint_classes([fine]).max())


def _inwards(low: np.ndarray, high: np.ndarray, size: np.ndarray, nodes: int) -> Iterator[tuple[int, int]]:
    """(node, parent) along the spanning forest of the largest edges, leaves first; node 0 is a root."""
    weight = (int(size.max(initial=0)) - size + 1).astype(float)
    graph = scipy.sparse.csr_array((weight, (low, high)), shape=(nodes, nodes))
    forest = minimum_spanning_tree(graph)
    _, part = connected_components(forest, directed=False)
    roots = np.unique(part, return_index=True)[1]
    others = roots[part[roots] != part[0]]
    joined = forest + scipy.sparse.csr_array(
        (np.ones(len(others)), (np.zeros(len(others), dtype=int), others)), shape=(nodes, nodes)
    )
    order, parents = breadth_first_order(joined, 0, directed=False)
    for node in order[:0:-1].tolist():
        yield node, int(parents[node])
