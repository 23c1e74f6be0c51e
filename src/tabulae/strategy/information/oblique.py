"""Least squares where each set of attributes is measured by queries of its own: the ``oblique`` route.

With the independent spaces of :mod:`.oblique_spaces` a table W over the attributes T is

    W x_T = sum_{S in T} W (P_S (x) a_{T-S}) x_S,      x_S = M_S^+ y_S

with coefficients ``Z_S = W (P_S (x) a_{T-S}) M_S^+`` on block S. Least squares for one set knows of no other, and no
vector over the domain is formed.

Where matrices lean, answers y are those of matrices that do not, ``y_S - sum_R B_SR y_R`` from the smallest sets on;
and coefficients Z of those are ``Z_R - sum_S Z_S B_SR`` on what is measured, from the largest sets on.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from functools import lru_cache, reduce
from operator import iadd
from typing import Any

import numpy as np
import scipy.linalg

from ...domain import Workload
from ...errors import Unsupported
from ...linalg import LinearOperator, Total
from ..block import products
from .kron import range_variance
from .oblique_spaces import ObliqueAxis, Space, structure_of
from .protocol import (
    MeasuredStrategy,
    Profile,
    coefficient_statistics,
    is_flat,
    kron_vectors,
    refuse_not_estimable,
    scaled,
)
from .residual_basis import Set, subsets

_RANK = 1e-9  # singular values below this share of the largest are rounding
_NOTHING = 1e-18  # of a table's squared norm: a part that is only rounding
_CHUNK = 2**24  # numbers held at once
_WRITTEN = 2**26  # entries of a table that is no product, over the cells that it crosses


class ObliqueInformation:
    """P of blocks whose row spaces are independent: block-diagonal over the sets of attributes."""

    route = "oblique"

    def __init__(self, strategy: MeasuredStrategy, variances: Sequence[float]) -> None:
        structure = structure_of(strategy)
        assert structure is not None
        self._axes = structure.axes
        self._block = {s: b for b, s in enumerate(structure.sets)}
        self._spaces = structure.spaces
        self._leans = structure.leans
        self._units = np.array([2.0**-block.exponent for block in strategy.blocks])
        self._variance = np.array(variances) / self._units**2  # of answers in steps of the grid
        self._known: dict[Hashable, Any] = {}

    def answer(self, operator: LinearOperator, answers: Sequence[np.ndarray]) -> np.ndarray:
        """Least-squares answers, (m,): of the marginal that the table is of."""
        table = _Table(operator, self._axes)
        self._needed(table)
        marginal = np.zeros([len(self._axes[i].cut) for i in table.crossed])
        own: dict[Set, np.ndarray] = {}
        for s in sorted(subsets(table.crossed), key=len):
            if s not in self._block:
                continue
            b = self._block[s]
            own[s] = np.asarray(answers[b], dtype=float) / self._units[b]
            for r, B in self._leans[b].items():
                own[s] = own[s] - B @ own[r]
            part = self._spaces[b].marginal(own[s])
            at = part.reshape([len(self._axes[i].cut) if i in s else 1 for i in table.crossed])
            for place, i in enumerate(table.crossed):
                if i not in s:
                    shape = [1] * at.ndim
                    shape[place] = -1
                    at = at * self._axes[i].cut.reshape(shape)
            marginal += at
        return table.over(marginal)

    def variance(self, operator: LinearOperator) -> np.ndarray:
        """diag(W P^+ W'), (m,)."""
        table = _Table(operator, self._axes)
        total = np.zeros(operator.shape[0])
        for s in self._needed(table):
            b = self._block[s]
            total += self._variance[b] * self._statistics(table, s, squares=True)[0]
        return total

    def total(self, workload: Workload) -> float:
        """Total weighted variance; of products through their Gram matrices, so that nothing is done per query."""
        total = 0.0
        for table in workload.tables:
            view = _Table(table.operator(workload.domain), self._axes)
            for s in self._needed(view):
                total += float(table.weight) ** 2 * self._variance[self._block[s]] * self._sum(view, s)
        return total

    def profile(self, operator: LinearOperator) -> Profile:
        """Statistics of the coefficients on the blocks that take part."""
        table = _Table(operator, self._axes)
        sets = self._needed(table)
        blocks = tuple(self._block[s] for s in sets)
        stats = (
            np.stack([self._statistics(table, s) for s in sets], axis=1)
            if sets
            else np.zeros((5, 0, table.m))
        )
        return Profile(*scaled(stats, 1 / self._units[list(blocks)]), blocks=blocks)

    def _needed(self, table: _Table) -> list[Set]:
        """The sets that a table has a part in; NotEstimable where one is not measured, or not all that is asked."""
        needed: set[Set] = set()
        for s in subsets(table.crossed):
            space = self._spaces[self._block[s]] if s in self._block else None
            key = "needed", table.key, self._places(table, s), -1 if space is None else space.number
            if key not in self._known:
                self._known[key] = self._has_part(table, s, space)
            if self._known[key]:
                needed |= {s, *self._leans[self._block[s]]}
        return sorted(needed)

    @staticmethod
    def _has_part(table: _Table, s: Set, space: Space | None) -> bool:
        if table.size(s) <= _NOTHING * table.size(None):
            return False
        if space is None or not (space.complete or table.spanned(s, space)):
            raise refuse_not_estimable()
        return True

    def _places(self, table: _Table, s: Set) -> Hashable:
        """Where a table has a set, and how its attributes are cut."""
        places = tuple(table.crossed.index(i) for i in s)
        return places, tuple(self._axes[i].number for i in table.crossed)

    def _view(self, table: _Table, s: Set) -> Hashable:
        """Which spaces a set of a table and those that lean on it are measured by: equal ones, equal coefficients."""
        above = ((r, self._block[r]) for r in subsets(table.crossed) if r in self._block and set(s) < set(r))
        leaning = tuple(self._view(table, r) for r, b in above if s in self._leans[b])
        return self._places(table, s), self._spaces[self._block[s]].number, leaning

    def _statistics(self, table: _Table, s: Set, *, squares: bool = False) -> np.ndarray:
        """Moments of the coefficients on set S, (5, m); of ``squares`` alone the first."""
        space = self._spaces[self._block[s]]
        key = "moments", table.key, self._view(table, s), squares
        if key not in self._known:
            if self._leant_on(table, s):
                found = np.concatenate(
                    [coefficient_statistics(z) for z in self._coefficients(table, s)], axis=1
                )
            elif len(table.terms) == 1 and not space.whole:
                found = table.product_moments(s, space, squares=squares)
            else:
                found = table.moments(s, space)
            if found.size > _CHUNK:
                return found
            self._known[key] = found
        return self._known[key]

    def _sum(self, table: _Table, s: Set) -> float:
        """``sum z^2`` over all rows and coefficients on set S."""
        space = self._spaces[self._block[s]]
        key = "sum", table.key, self._view(table, s)
        if key not in self._known:
            if self._leant_on(table, s):
                found = sum(
                    float(np.square(z).sum())
                    for z in self._coefficients(table, s, root=len(table.terms) == 1)
                )
            else:
                found = table.squared(s, space)
            self._known[key] = found
        return self._known[key]

    def _leant_on(self, table: _Table, s: Set) -> bool:
        return any(s in self._leans[b] for b in self._above(table, s))

    def _above(self, table: _Table, s: Set) -> list[int]:
        """The blocks of larger sets of the table."""
        return [self._block[r] for r in subsets(table.crossed) if r in self._block and set(s) < set(r)]

    def _coefficients(self, table: _Table, s: Set, *, root: bool = False) -> Iterator[np.ndarray]:
        """Z on what is measured of a set, some rows of the table at a time; with ``root`` as of :meth:`_Table.rows`."""
        sets = [r for r in subsets(table.crossed) if r in self._block and set(s) <= set(r)]
        sets.sort(key=len, reverse=True)
        spaces = {r: self._spaces[self._block[r]] for r in sets}
        cells = max(math.prod(space.shape) for space in spaces.values())
        for some in [slice(None)] if root else table.pieces(cells):
            Z: dict[Set, np.ndarray] = {}
            for r in sets:
                own = spaces[r].coefficients(table.rows(r, some, root=root))
                for above, z in Z.items():
                    if (B := self._leans[self._block[above]].get(r)) is not None:
                        own = own - z @ B
                Z[r] = own
            yield Z[s]


class _Table:
    """A matrix over the domain as a sum of products over merged cells; equal ``key``, equal up to the attributes."""

    def __init__(self, operator: LinearOperator, axes: Sequence[ObliqueAxis]) -> None:
        self.terms = products(operator)
        self.m = operator.shape[0]
        self.axes = axes
        summed = [all(isinstance(f[i], Total) for _, f in self.terms) for i in range(len(axes))]
        self.crossed: Set = tuple(
            i for i, plain in enumerate(summed) if not plain and not all(is_flat(f[i]) for _, f in self.terms)
        )
        asked = tuple((c, tuple(f[i] for i in self.crossed)) for c, f in self.terms)
        self.key: Hashable = asked if len(axes) == sum(summed) + len(self.crossed) else (operator,)

    def _totals(self, i: int, query: LinearOperator) -> np.ndarray:
        return np.ones(1) if isinstance(query, Total) else self.axes[i].totals(query)

    def _others(self, factors: Sequence[LinearOperator]) -> float:
        """Squared entries of flat queries, summed."""
        out = 1.0
        for i, query in enumerate(factors):
            if i not in self.crossed and not isinstance(query, Total):
                out *= float(np.square(self._totals(i, query)).sum())
        return out

    def over(self, marginal: np.ndarray) -> np.ndarray:
        """The answers from a marginal of the crossed attributes, (m,)."""
        total = np.zeros(self.m)
        for c, factors in self.terms:
            values = marginal.reshape(1, -1)
            for i, query in enumerate(factors):
                if i in self.crossed:
                    axis = self.axes[i]
                    values = values.reshape(len(values), len(axis.cut), -1)
                    values = axis.cells(query).along(values)
                    values = values.reshape(-1, values.shape[2])
                elif not isinstance(query, Total):
                    values = (values[:, None, :] * self._totals(i, query)[:, None]).reshape(
                        -1, values.shape[1]
                    )
            total += c * values.reshape(-1)
        return total

    # one product ------------------------------------------------------------------------------------------
    def product_moments(self, s: Set, space: Space, *, squares: bool) -> np.ndarray:
        """Of a product on a product: products of each attribute's."""
        ((c, factors),) = self.terms
        sides = []
        for i, query in enumerate(factors):
            if i in s:
                place = s.index(i)
                rows = self.axes[i].cells(query)
                known = range_variance(rows, space.covariances[place]) if squares else None
                if known is None:
                    side = coefficient_statistics(np.asarray(rows @ space.inverses[place], dtype=float))
                else:
                    side = np.zeros((5, len(known)))
                    side[0] = known
                sides.append(side)
            elif not isinstance(query, Total):
                sides.append(coefficient_statistics(self._totals(i, query)[:, None]))
        out = np.stack([kron_vectors([side[k] for side in sides]) for k in range(1 if squares else 5)])
        return scaled(_padded(out), abs(c))[:, 0]

    def squared(self, s: Set, space: Space) -> float:
        """``sum z^2`` over all rows on a set."""
        if len(self.terms) > 1:
            return float(np.square(space.coefficients(self.rows(s))).sum())
        ((c, factors),) = self.terms
        out = float(c) ** 2 * self._others(factors)
        for i in self.crossed:
            if i not in s:
                out *= float(np.square(self._totals(i, factors[i])).sum())
        grams = [self._gram(i, factors[i]) for i in s]
        if not space.whole:
            return out * math.prod(
                float(np.vdot(K, V)) for K, V in zip(space.covariances, grams, strict=True)
            )
        Q = space.inverses[0].reshape(*space.shape, -1)
        moved = Q
        for place, V in enumerate(grams):
            moved = np.moveaxis(np.tensordot(V, moved, axes=(1, place)), 0, place)
        return out * float(np.vdot(Q, moved))

    def _gram(self, i: int, query: LinearOperator) -> np.ndarray:
        return _dense_gram(self.axes[i].cells(query))

    # any sum of products ----------------------------------------------------------------------------------
    def moments(self, s: Set, space: Space) -> np.ndarray:
        """Of coefficients that are written out, a few rows at a time."""
        if len(self.terms) > 1:
            return coefficient_statistics(space.coefficients(self.rows(s)))
        ((c, factors),) = self.terms
        sides = [np.asarray(self.axes[i].cells(factors[i]).dense(), dtype=float) for i in s]
        inner = _product_statistics(sides, space).reshape(5, *(len(side) for side in sides))
        at: list[np.ndarray] = []
        shape = []
        for i, query in enumerate(factors):
            if i in s:
                shape.append(inner.shape[1 + s.index(i)])
                continue
            vector = coefficient_statistics(self._totals(i, query)[:, None])
            shape.append(vector.shape[1])
            if not isinstance(query, Total):
                at.append(vector.reshape(5, *[-1 if j == i else 1 for j in range(len(factors))]))
        out = inner.reshape(5, *[n if i in s else 1 for i, n in enumerate(shape)])
        for vector in at:
            out = out * vector
        return scaled(out.reshape(5, 1, -1), abs(c))[:, 0]

    def pieces(self, cells: int) -> list[slice]:
        """Rows of the first crossed attribute's queries to work out at a time; all where there are several terms."""
        if len(self.terms) > 1 or not self.crossed:
            return [slice(None)]
        first = self.terms[0][1][self.crossed[0]].shape[0]
        step = max(1, _CHUNK * first // max(1, self.m * cells))
        return [slice(at, at + step) for at in range(0, first, step)]

    def rows(self, s: Set, some: slice = slice(None), *, root: bool = False) -> np.ndarray:
        """``W (P_S (x) a)`` of a sum of products, (m, cells of S); of ``some`` rows of the first crossed attribute.

        With ``root`` other rows with the same Gram matrix, of one product.
        """
        cells = math.prod(len(self.axes[i].cut) for i in s)
        if some == slice(None) and not root and self.m * cells > _WRITTEN:
            raise Unsupported(
                f"a table of {self.m:,} rows is no product of the attributes, and its coefficients over {cells:,} "
                "combinations of cells are too many: ask for fewer rows in one table"
            )
        # a joint table has many terms: their sum is kept, not each of them
        return reduce(iadd, (self._term_rows(c, factors, s, some, root=root) for c, factors in self.terms))

    def _term_rows(
        self, c: int, factors: Sequence[LinearOperator], s: Set, some: slice, *, root: bool
    ) -> np.ndarray:
        """Those of one product, in an array of its own."""
        part = np.full((1, 1), float(c))
        for i, query in enumerate(factors):
            if i not in s and isinstance(query, Total):
                continue
            if i not in self.crossed:
                side = self._totals(i, query)[:, None]
                part = np.kron(part, np.full((1, 1), np.linalg.norm(side)) if root else side)
                continue
            cut = self.axes[i].cut
            side = np.asarray(self.axes[i].cells(query).dense(), dtype=float)
            side = (
                _gram_root(self._gram(i, query))
                if root
                else side[some if i == self.crossed[0] else slice(None)]
            )
            onto = (side @ cut)[:, None]
            part = np.kron(part, side - onto if i in s else onto)
        return part

    # what must be measured ----------------------------------------------------------------------------------
    def size(self, s: Set | None) -> float:
        """The squared norm of the part on a set; of the terms on their cells where none is given."""
        if s is not None and len(self.terms) > 1:
            return float(np.square(self.rows(s)).sum())
        total = 0.0
        for c, factors in self.terms:
            out = float(c) ** 2 * self._others(factors)
            for i in self.crossed:
                if s is None:
                    out *= float(np.trace(self._gram(i, factors[i])))
                elif i in s:
                    out *= float(np.trace(_centred_gram(self._gram(i, factors[i]), self.axes[i].cut)))
                else:
                    out *= float(np.square(self._totals(i, factors[i])).sum())
            total += out
        return total

    def spanned(self, s: Set, space: Space) -> bool:
        """Whether the part on a set is a combination of what is measured of it."""
        if len(self.terms) > 1:
            rows = self.rows(s)
        else:  # rows of the Gram matrix span those of the table
            ((_, factors),) = self.terms
            sides = []
            for i in s:
                V, cut = self._gram(i, factors[i]), self.axes[i].cut
                sides.append(V - np.outer(V @ cut, np.ones(len(cut))))
            if not space.whole:
                return all(
                    Space((axis,), (rows,), 0).spans(side)
                    for axis, rows, side in zip(space.axes, space.rows, sides, strict=True)
                )
            rows = reduce(np.kron, sides)
        return space.spans(rows)


@lru_cache(maxsize=1024)
def _dense_gram(query: LinearOperator) -> np.ndarray:
    return np.asarray(query.gram().dense(), dtype=float)


def _gram_root(V: np.ndarray) -> np.ndarray:
    """R with ``R'R = V``, as many rows as the rank."""
    values, vectors = scipy.linalg.eigh(V, check_finite=False)
    kept = values > _RANK**2 * values[-1]
    return (vectors[:, kept] * np.sqrt(values[kept])).T


def _centred_gram(V: np.ndarray, cut: np.ndarray) -> np.ndarray:
    """``P'VP``."""
    half = V - np.outer(V @ cut, np.ones(len(cut)))
    return half - np.outer(np.ones(len(cut)), cut @ half)


def _padded(moments: np.ndarray) -> np.ndarray:
    out = np.zeros((5, 1, moments.shape[1]))
    out[: len(moments), 0] = moments
    return out


def _product_statistics(sides: Sequence[np.ndarray], space: Space) -> np.ndarray:
    """Moments of the coefficients of ``(x)_i sides_i``, (5, rows), a few rows of the first at a time."""
    first, rest = sides[0], reduce(np.kron, sides[1:], np.ones((1, 1)))
    step = max(1, _CHUNK // max(1, len(rest) * first.shape[1] * rest.shape[1]))
    found = [
        coefficient_statistics(space.coefficients(np.kron(first[k : k + step], rest)))
        for k in range(0, len(first), step)
    ]
    return np.concatenate(found, axis=1)
