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
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse
from scipy.sparse.csgraph import breadth_first_order, connected_components, minimum_spanning_tree

from ..domain import Domain, Invariants, Table, Term
from ..errors import Unsupported
from ..linalg import Dense, IntegerSystem, LinearOperator, Total, joint_classes
from .interior import Clearance, inside, mixed, scaled
from .limits import Limits, Rows
from .rectangles import emptied

EXPLICIT = 4096
"""Most cells of an integer echelon form."""

_FINEST = 40  # k; all sums of cells stay below 2^52 steps, so that they are exact in floating point, too
_ATTEMPTS = 12
_FLOORS = (0.25, 16.0, 1024.0)  # grid steps
_TIGHT = 1e-6  # a row no further from its limit, where it is as far as it can be, is at it


@dataclass(frozen=True, eq=False)
class Fixed:
    """Rows whose counts are fixed: ``rows[used] u = values``; all other rows of the table are free."""

    rows: Rows
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
            Fixed(e, np.ones(len(v), dtype=bool), v) for e, v in zip(limits.exact, limits.values, strict=True)
        ]
        for each in limits.bounded:
            counts = each.operator @ self._inside
            low, high = counts - each.low < _TIGHT, each.high - counts < _TIGHT
            if (low | high).any():  # the other constraints leave these rows no choice
                values = np.where(low, each.low, each.high)[low | high]
                fixed.append(Fixed(each, low | high, values.astype(np.int64)))
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

    def __init__(self, limits: Limits, shape: tuple[int, ...], fixed: Sequence[Fixed]) -> None:
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
    def _sides(self) -> list[Fixed] | None:
        """The tables that no other contains; None where one counts a cell twice."""
        every = [each.labels for each in self._fixed]
        labels = [rows[self._limits.open] for rows in every if rows is not None]
        if len(labels) < len(every):
            return None
        kept: list[Fixed] = []
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
