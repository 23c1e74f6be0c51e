"""The two columns of weighted rows that are farthest apart: all pairs, or branch and bound over the attributes.

Of the rows ``s_r (x)_i A_i[r_i]``, s_r >= 0, two columns j and k are apart by

    D(j, k) = sum_r s_r (a_rj - a_rk)^2,        a_rj = prod_i A_i[r_i, j_i].

With the cells of the first attributes chosen, the sum over their rows leaves three weights for each row r of the
rest: S_r and T_r of the two columns' squares, and C_r of their product. What is left is

    sum_r S_r a_rj^2 + T_r a_rk^2 - 2 C_r a_rj a_rk.

A row that is constant over the rest adds a constant. Elsewhere -2 c a b <= |c| (a^2 + b^2), and <= 0 where c >= 0 and
the row has one sign. So with N_r = |C_r|, or max(-C_r, 0), the sum is at most

    constants + max_j sum_r (S_r + N_r) a_rj^2 + max_k sum_r (T_r + N_r) a_rk^2,

two maxima over columns, not pairs. With all attributes chosen it is the distance itself.

All pairs are compared where that is quick: C stays the same where two cells of an attribute change places, so it is
made of unordered pairs of each attribute's cells; of the last one's pairs nothing is looked at but the least C, unless
that, beside the largest norms, could be farther apart than a pair already found.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

CLOSE = 1.1  # a bound over a distance that is found: 5 % of the norm
_CHUNK = 2**20  # numbers held at once
TERMS = 2  # products that weights are taken for
_PASSES = 32  # what one look at every number costs beside a multiplication, times
_LOOK, _CHILD = 2**20, 2**14  # what a step of the search costs, and each choice that it keeps
_STARTS = 8  # steps of the walk to a far pair


_LISTED = 2**24  # inner products held at once
_BLOCK = 2**6  # rows of them that are looked at together
_SMALL = 2.0**-40  # of the largest product there could be: norms below are not computed in single precision


def all_pairs(
    columns: Sequence[np.ndarray], squares: np.ndarray, norms: np.ndarray, kind: Any = np.float64
) -> Fraction | None:
    """An upper bound of the largest distance from all pairs in floating point; None where it is too coarse for them.

    Args:
        columns: of each factor, shape (cells, rows), integers.
        squares: the weights s, integers of shape (rows of the first factor, ..., of the last).
        norms: ``sum_r s_r a_rj^2`` of every column, whole numbers, shape (cells of the first factor, ...).
        kind: numpy's type of the products: in single precision they take a third of the time.

    Privacy:
        At least the largest distance. Each term of an inner product has at most m + 8 roundings for each attribute of m
        rows and 8 more, and the sizes of all terms add up to at most the largest norm: what so many roundings make,
        and at least 1e-9 of the norm, is added.
    """
    order = sorted(range(len(columns)), key=lambda i: -columns[i].shape[1])  # what comes last costs most
    bits = [int(np.abs(columns[i]).max()).bit_length() for i in order]  # to no number above 1
    last = int(squares.max()).bit_length()
    every = 2 * sum(bits) + last
    size = np.ldexp(np.transpose(norms.astype(float), order), -every)
    if size.max() < _SMALL and kind is not np.float64:
        return None
    cells = [np.ldexp(columns[i].astype(float), -b) for i, b in zip(order, bits, strict=True)]
    weights = np.ldexp(np.transpose(squares.astype(float), order), -last)
    if len(cells) == 1:
        cells, weights, size = [*cells, np.ones((1, 1))], weights[:, None], size[:, None]
    best = _Search(tuple(cells), weights).far_pair()
    few, given = [c.astype(kind) for c in cells], weights.astype(kind)
    ends = [np.triu_indices(len(c)) for c in few[1:]]
    products = [c[j] * c[k] for c, (j, k) in zip(few[1:], ends, strict=True)]
    step = max(1, _LISTED // math.prod(map(len, products)))
    for one in range(len(few[0])):
        for start in range(one, len(few[0]), step):
            others = np.arange(start, min(start + step, len(few[0])))
            inner = np.tensordot(few[0][one] * few[0][others], given, axes=1)
            for pairs in products:
                inner = np.tensordot(inner, pairs, axes=(1, 1))
            best = _farther(inner, size, one, others, ends, best)
    terms = sum(c.shape[1] + 8 for c in cells) + 8
    slack = Fraction(3 * terms) * Fraction(float(np.finfo(kind).eps)) / 2
    return Fraction(best) * (1 << every) + max(slack, Fraction(1, 10**9)) * int(norms.max())


def _farther(
    inner: np.ndarray,
    size: np.ndarray,
    one: int,
    others: np.ndarray,
    ends: Sequence[tuple[np.ndarray, np.ndarray]],
    best: float,
) -> float:
    """The largest distance of some pairs, or ``best`` where that is larger.

    Args:
        inner: inner products of the first attribute's cell ``one`` with ``others``, and of pairs of the other ones.
        size: norms of all cells.
        ends: the two cells of each pair, attribute by attribute.
    """
    longest, reach = size.max(axis=-1), np.full(inner.shape[:-1], -np.inf)
    for here, there in _swapped(ends[:-1]):
        both = longest[others][np.ix_(np.arange(others.size), *there)] + longest[one][np.ix_(*here)]
        np.maximum(reach, both, out=reach)
    reach -= 2 * inner.min(axis=-1).astype(float)
    left = np.argwhere(reach > best)
    left = left[np.argsort(-reach[tuple(left.T)], kind="stable")]
    for first in range(0, len(left), _BLOCK):
        rows = tuple(left[first : first + _BLOCK].T)
        if reach[rows].max() <= best:
            break
        shared, row = 2 * inner[rows].astype(float), [r[:, None] for r in rows]
        for here, there in _swapped(ends):
            mine = [*(h[r] for h, r in zip(here, row[1:], strict=False)), here[-1]]
            theirs = [*(t[r] for t, r in zip(there, row[1:], strict=False)), there[-1]]
            both = size[(one, *mine)] + size[(others[row[0]], *theirs)]
            best = max(best, float((both - shared).max()))
    return best


def _swapped(ends: Sequence[tuple[np.ndarray, np.ndarray]]) -> Iterator[tuple[list[np.ndarray], ...]]:
    """The first and the second cells of pairs, with those of some attributes changed, in every way."""
    for swap in product((False, True), repeat=len(ends)):
        yield tuple([pair[one != s] for pair, s in zip(ends, swap, strict=True)] for one in (False, True))


WORK, MORE = 2.0**34, 2.0**36  # multiplications before the bound is looked at, and after which it is taken


def farthest(
    columns: Sequence[np.ndarray], squares: np.ndarray, work: float = WORK, more: float = MORE
) -> Fraction | None:
    """An upper bound of the largest distance; None where there are too many cells or rows, or too large ones.

    Args:
        columns: of each factor, shape (cells, rows), integers.
        squares: the weights s, integers of shape (rows of the first factor, ..., of the last).
        work: multiplications until the bound is looked at; where it is within ``CLOSE`` of a distance it is taken.
        more: multiplications after which it is taken as it is.

    Returns:
        The bound: of the largest distance itself, but for rounding, where that is proven within ``work``.

    Privacy:
        At least the largest distance. No number that is added up here is larger than 8 (2 TERMS + 2)^d max s G, with
        G = prod_i sum_r max_j A_i[r, j]^2 and d attributes, and none has more roundings than 4 for each row and cell of
        the factors and 256 more. What so many roundings of so large a number make is added.
    """
    most = int(squares.max()) * math.prod(
        int((np.abs(c).astype(object).max(axis=0) ** 2).sum()) or 1 for c in columns
    )
    most *= 8 * (2 * TERMS + 2) ** len(columns)
    first = max(columns, key=lambda c: c.size)
    rest = squares.size // first.shape[1]
    looked = len(first) ** 2 * rest * (first.shape[1] + 8 * max(map(len, columns)) + 4 * TERMS * _PASSES)
    if len(columns) < 2 or most > 2**900 or looked > more:
        return None
    roundings = 4 * sum(sum(c.shape) for c in columns) + 256
    return Fraction(_searched(columns, squares, work, more)) + Fraction(roundings * most, 2**52)


def _searched(columns: Sequence[np.ndarray], squares: np.ndarray, work: float, more: float) -> float:
    """The bound, in floating point."""
    order = sorted(range(len(columns)), key=lambda i: -columns[i].size)
    search = _Search(
        tuple(columns[i].astype(float) for i in order), np.transpose(squares.astype(float), order)
    )
    best = search.far_pair()
    left: list[tuple[float, int, tuple[tuple[int, int], ...]]] = []
    paths, number = [()], 0
    while True:
        for path in paths:
            for bound, longer in search.children(path, best):
                if len(longer) == len(columns):
                    best = max(best, bound)
                else:
                    heapq.heappush(left, (-bound, number := number + 1, longer))
        if not left or -left[0][0] <= best:
            return best
        close = -left[0][0] <= CLOSE * best
        if search.done > more or (close and search.done > work):
            return -left[0][0]
        paths = [heapq.heappop(left)[2]]


@dataclass(eq=False)
class _Search:
    """The factors' columns, largest first, the weights of rows, and how many multiplications were made."""

    columns: tuple[np.ndarray, ...]
    squares: np.ndarray
    done: float = 0.0

    @cached_property
    def rest(self) -> list[tuple[list[np.ndarray], np.ndarray, np.ndarray]]:
        """After each number of attributes: the squares of the others' columns; which rows have one sign; constants."""
        found, one_sign, constant = [([], np.ones(1, bool), np.ones(1))], np.ones(1, bool), np.ones(1)
        for c in reversed(self.columns):
            alike = np.where(np.ptp(c, axis=0) == 0, c[0] ** 2, np.nan)
            constant = np.multiply.outer(alike, constant).ravel()
            one_sign = np.logical_and.outer((c >= 0).all(axis=0) | (c <= 0).all(axis=0), one_sign).ravel()
            found.append(([c**2, *found[-1][0]], one_sign, constant))
        return found[::-1]

    @cached_property
    def products(self) -> list[np.ndarray]:
        """Of each attribute the products of two columns, each pair once: shape (pairs, rows)."""
        ends = [np.triu_indices(len(c)) for c in self.columns]
        return [c[j] * c[k] for c, (j, k) in zip(self.columns, ends, strict=True)]

    def far_pair(self) -> float:
        """The distance of a pair that is far apart: from a long column to the farthest from it, and on from there."""
        norms = self._sums(self.squares[None], [c**2 for c in self.columns])[0]
        here, best = int(np.argmax(norms)), 0.0
        for _ in range(_STARTS):
            cell = np.unravel_index(here, [len(c) for c in self.columns])
            weights = self.squares
            for axis, (c, i) in enumerate(zip(self.columns, cell, strict=True)):
                weights = weights * c[i].reshape([-1 if a == axis else 1 for a in range(weights.ndim)])
            apart = norms[here] + norms - 2 * self._sums(weights[None], self.columns)[0]
            here = int(np.argmax(apart))
            if apart[here] <= best:
                break
            best = float(apart[here])
        return best

    def children(
        self, path: tuple[tuple[int, int], ...], best: float
    ) -> Iterator[tuple[float, tuple[tuple[int, int], ...]]]:
        """Bounds above ``best`` with the cells of one more attribute chosen."""
        own, below = self.columns[len(path)], self.rest[len(path) + 1]
        s, t, c = (weights.reshape(own.shape[1], -1) for weights in self._weights(path))
        ones, others = own**2 @ s, own**2 @ t
        self.done += _LOOK + 2 * ones.size * own.shape[1]
        mirrored = all(j == k for j, k in path)
        step = max(1, _CHUNK // ones.size)
        for first in range(0, len(own), step):
            j = np.arange(first, min(first + step, len(own)))
            pairs = (own[j, None, :] * own).reshape(-1, own.shape[1])
            self.done += pairs.size * ones.shape[1]
            one, other = np.repeat(j, len(own)), np.tile(np.arange(len(own)), j.size)
            kept = np.flatnonzero((other >= one) | (not mirrored))
            bounds = self._bounds(ones[one[kept]], others[other[kept]], pairs[kept] @ c, below)
            above = np.flatnonzero(bounds > best)
            self.done += _CHILD * above.size
            for at in above.tolist():
                yield float(bounds[at]), (*path, (int(one[kept[at]]), int(other[kept[at]])))

    def _weights(self, path: tuple[tuple[int, int], ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """S, T and C of the rows of the attributes that are not chosen."""
        s = t = c = self.squares
        for own, (j, k) in zip(self.columns, path, strict=False):
            self.done += 3 * s.size
            s, t, c = (
                np.tensordot(own[a] * own[b], each, axes=1)
                for a, b, each in ((j, j, s), (k, k, t), (j, k, c))
            )
        return s, t, c

    def _bounds(
        self,
        s: np.ndarray,
        t: np.ndarray,
        c: np.ndarray,
        below: tuple[list[np.ndarray], np.ndarray, np.ndarray],
    ) -> np.ndarray:
        """The bounds of some choices, from weights of shape (choices, rows of the rest)."""
        squares, one_sign, constant = below
        fixed = ~np.isnan(constant)
        found = (s[:, fixed] + t[:, fixed] - 2 * c[:, fixed]) @ constant[fixed]
        if fixed.all():
            return found
        self.done += _PASSES * s.size
        beside = np.where(one_sign, np.maximum(-c, 0), np.abs(c))
        for each in (s, t):
            weights = np.where(fixed, 0.0, each + beside).reshape(-1, *(q.shape[1] for q in squares))
            found = found + self._sums(weights, squares).max(axis=1)
        if len(squares) < 2:
            return found
        ends = (self._sums(each.reshape(weights.shape), squares).max(axis=1) for each in (s, t))
        return np.minimum(found, sum(ends) - 2 * self._range(c.reshape(weights.shape))[0])

    def _range(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Bounds from below and above on ``sum_r w_r a_rj a_rk`` over the last attributes' pairs, for some weights w.

        Weights are taken for a few products of a vector over the first attribute and weights over the others, by
        crosses through their largest entries; what is left is at most the largest sum of its sizes with squares.
        """
        axis = len(self.columns) - (weights.ndim - 1)
        products = self.products[axis]
        self.done += TERMS * (2 * len(weights) * products.size + _PASSES * weights.size)
        if weights.ndim == 2:
            values = weights @ products.T
            return values.min(axis=1), values.max(axis=1)
        x = np.arange(len(weights))
        left = weights.reshape(*weights.shape[:2], -1)
        low, high = np.zeros(x.size), np.zeros(x.size)
        for _ in range(TERMS):
            row, column = np.divmod(np.abs(left).reshape(x.size, -1).argmax(axis=1), left.shape[2])
            pivot = left[x, row, column]
            ours = left[x, :, column] / np.where(pivot == 0, 1.0, pivot)[:, None]
            theirs = left[x, row]
            left = left - ours[:, :, None] * theirs[:, None, :]
            mine = ours @ products.T
            ends = [mine.min(axis=1), mine.max(axis=1)]
            others = self._range(theirs.reshape(x.size, *weights.shape[2:]))
            every = np.stack([end * other for end in ends for other in others])
            low, high = low + every.min(axis=0), high + every.max(axis=0)
        most = self._sums(np.abs(left).reshape(weights.shape), self.rest[axis][0]).max(axis=1)
        return low - most, high + most

    def _sums(self, weights: np.ndarray, matrices: Sequence[np.ndarray]) -> np.ndarray:
        """``(x)_i M_i w`` for some vectors w of shape (rows, ..., rows): shape (vectors, cells)."""
        for matrix in matrices:
            self.done += 2 * weights.size * len(matrix)
            weights = np.tensordot(weights, matrix, axes=(1, 1))
        return weights.reshape(len(weights), math.prod(len(m) for m in matrices))
