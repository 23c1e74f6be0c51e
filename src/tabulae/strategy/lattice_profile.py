"""Profiles on the lattice route: which coefficients the noise of each block has in each answer of a table.

For a table with components in the set U the coefficients on block b are, with T = b's attributes within U,

    z = (1/v_b) sum_{S within T} lambda_S^-1 (x)_{i in S} beside_i (x)_{i in T - S} mean_i  x  numbers

that depend on the row and on the block's cell only through the *types* of both in each attribute: a 0/1 row counts a
number of cells, and a cell is counted or not. What is alike is computed once, with how often it occurs, so that a
marginal of a million cells has one column of at most 2^s coefficients a block, exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import Unsupported
from ..linalg import LinearOperator
from .information import Profile
from .lattice_axis import Axis, RowTypes

_LISTED = 2**24  # coefficients on one block that are listed
_STATISTICS = 2**27  # numbers that a profile may hold

Inverses = Callable[[int], np.ndarray]


@dataclass(frozen=True)
class Part:
    """One product of a table: its coefficient, a query for each attribute, and the set it has components in."""

    coefficient: int
    queries: tuple[LinearOperator, ...]
    mask: int


class TableTypes:
    """A table that is a sum of products, and the types of its rows in each attribute.

    Arguments:
        parts: the products, with equally many rows in each attribute.
        axes: the attributes.
        bit: attribute -> its bit in masks, for those that some block crosses.
        inverses: a set -> ``1 / lambda_S`` of its subsets, (2, ..., 2).
    """

    def __init__(
        self, parts: Sequence[Part], axes: Sequence[Axis], bit: Mapping[int, int], inverses: Inverses
    ) -> None:
        self._parts, self._axes, self._bit, self._inverses = parts, axes, bit, inverses
        self._union = 0
        for part in parts:
            self._union |= part.mask
        self._rows = [self._types(i) for i in range(len(axes))]

    def profile(self, masks: np.ndarray, weights: np.ndarray) -> Profile:
        """Statistics for blocks that cross the sets ``masks``, their coefficients times ``weights`` (blocks,).

        Raises :class:`~tabulae.errors.Unsupported` for more kinds of queries than statistics can be kept of.
        """
        columns = math.prod(len(types.times) for types in self._rows)
        if 5 * len(masks) * columns > _STATISTICS:
            raise Unsupported(
                f"intervals of a table with {columns:,} different kinds of queries would need the noise of "
                f"{len(masks):,} blocks in each: ask for fewer queries in a table, or for marginals, all of one kind"
            )
        stats = np.empty((5, len(masks), columns))
        tops = {int(within): self._top(int(within)) for within in np.unique(masks & self._union)}
        factors = self._beside(masks, weights * [tops[int(m)] for m in masks & self._union])
        exact = True
        for within in tops:
            blocks = np.flatnonzero((masks & self._union) == within)
            fits = self._listed(within) <= _LISTED
            base = self._statistics(within) if fits else self._bounds(within)
            stats[:, blocks] = base[:, None, :] * factors[:, blocks, None]
            exact = exact and fits
        return Profile(*stats, exact=exact, inverse=self._inverse())

    def _beside(self, masks: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """(5, blocks): what weights and attributes beside U multiply the statistics by."""
        out = np.stack([weights**2, weights**4, weights**6, np.abs(weights), np.ones(len(weights))])
        for i, bit in self._bit.items():
            if not self._union & bit:
                size = np.abs(self._axes[i].on_mean)
                powers = [(size**p).sum() for p in (2, 4, 6)]
                own = np.array([*powers, size.max(), np.count_nonzero(size)])
                out = np.where((masks & bit) != 0, out * own[:, None], out)
        return out

    def _top(self, within: int) -> float:
        """The largest ``1 / lambda_S`` of a set's subsets."""
        return float(self._inverses(within).max())

    def _shares(self, common: int, within: int) -> np.ndarray:
        """``1 / lambda_S`` in units of the largest within a set: no power of either can overflow."""
        return self._inverses(common) / self._top(within)

    def _types(self, i: int) -> RowTypes:
        queries = tuple(part.queries[i] for part in self._parts)
        if self._union & self._bit.get(i, 0):
            return self._axes[i].row_types(queries)
        means = np.stack([self._axes[i].through_mean(q) for q in queries], axis=1)  # m, L
        kinds, inverse = np.unique(means, axis=0, return_inverse=True)
        values = np.stack([kinds, np.zeros_like(kinds)], axis=2)[:, None]
        return RowTypes(values, np.ones((len(kinds), 1)), inverse.reshape(-1))

    def _inverse(self) -> np.ndarray | None:
        """The column of each query, None where every query has its own."""
        if all(np.array_equal(t.inverse, np.arange(len(t.times))) for t in self._rows):
            return None
        out = np.zeros(1, dtype=np.int64)
        for types in self._rows:
            out = np.add.outer(out * len(types.times), types.inverse).ravel()
        return out

    def _listed(self, within: int) -> float:
        """How many coefficients :meth:`_statistics` lists."""
        crossed = [bool(within & self._bit.get(i, 0)) for i in range(len(self._rows))]
        return math.prod(
            float(t.times.size if c else len(t.times)) for t, c in zip(self._rows, crossed, strict=True)
        )

    def _statistics(self, within: int) -> np.ndarray:
        """(5, columns): statistics of the coefficients on a block that crosses the set ``within`` of U."""
        z = sum(part.coefficient * self._coefficients(p, within) for p, part in enumerate(self._parts))
        size = np.abs(np.asarray(z))  # axes: types and classes of each crossed attribute, types of the others
        times = self._times(within)
        classes = tuple(axis for axis, is_class in enumerate(self._layout(within)) if is_class)
        size = np.where(times > 0, size, 0.0)
        square = size * size
        largest = size.max(axis=classes, keepdims=True)
        counted = size > 1e-12 * np.maximum(largest, 1e-300)
        powers = [(times * square**k).sum(axis=classes) for k in (1, 2, 3)]
        rows = [*powers, largest, (times * counted).sum(axis=classes)]
        return np.stack([np.asarray(row).ravel() for row in rows])

    def _layout(self, within: int) -> list[bool]:
        """For each axis of the coefficients whether it is one of classes."""
        out = []
        for i in range(len(self._rows)):
            out += [False, True] if within & self._bit.get(i, 0) else [False]
        return out

    def _times(self, within: int) -> np.ndarray:
        out = np.ones(())
        for i, types in enumerate(self._rows):
            if within & self._bit.get(i, 0):
                out = np.multiply.outer(out, types.times)
            else:
                out = np.multiply.outer(out, np.ones(len(types.times)))
        return out

    def _pieces(self, p: int, i: int, within: int) -> np.ndarray:
        """Coefficients of product p in attribute i: (2, types, classes) crossed, (types,) where it is summed."""
        values = self._rows[i].values[:, :, p]
        if within & self._bit.get(i, 0):
            return np.moveaxis(values, 2, 0)
        return self._through_mean(p, i)

    def _through_mean(self, p: int, i: int) -> np.ndarray:
        """W u for one row of each type."""
        first = np.unique(self._rows[i].inverse, return_index=True)[1]
        return self._axes[i].through_mean(self._parts[p].queries[i])[first]

    def _coefficients(self, p: int, within: int) -> np.ndarray:
        common = self._parts[p].mask & within
        out = self._shares(common, within)
        for i in range(len(self._rows)):
            piece = self._pieces(p, i, within)
            if common & self._bit.get(i, 0):
                out = np.tensordot(out, piece, axes=(0, 0))
            else:  # only the mean part
                out = np.multiply.outer(out, piece[0] if within & self._bit.get(i, 0) else piece)
        return out

    def _bounds(self, within: int) -> np.ndarray:
        """As :meth:`_statistics`: squares exactly, the rest bounded by Minkowski's inequality over products and S."""
        norms = np.zeros((5, math.prod(len(types.times) for types in self._rows)))
        for p, part in enumerate(self._parts):
            for q, other in enumerate(self._parts):
                lattice = self._shares(part.mask & other.mask & within, within) ** 2
                pieces = [self._inner(p, q, i, within) for i in range(len(self._rows))]
                common = part.mask & other.mask & within
                norms[0] += part.coefficient * other.coefficient * self._contracted(lattice, pieces, common)
            for row, power in ((1, 4), (2, 6), (3, 0)):
                pieces = [self._norms(p, i, within, power) for i in range(len(self._rows))]
                common = part.mask & within
                norms[row] += abs(part.coefficient) * self._contracted(
                    self._shares(common, within), pieces, common
                )
        norms[1] **= 4
        norms[2] **= 6
        norms[4] = math.prod(
            float(types.times.sum(axis=1).max())
            for i, types in enumerate(self._rows)
            if within & self._bit.get(i, 0)
        )
        return norms

    def _contracted(self, lattice: np.ndarray, pieces: Sequence[np.ndarray], common: int) -> np.ndarray:
        out = lattice
        for i, piece in enumerate(pieces):
            if common & self._bit.get(i, 0):
                out = np.tensordot(out, piece, axes=(0, 0))
            else:
                out = np.multiply.outer(out, piece[0])
        return out.ravel()

    def _inner(self, p: int, q: int, i: int, within: int) -> np.ndarray:
        """(2, types) or (1, types): inner products of two products' coefficients; mean parts are orthogonal to
        what is beside them.
        """
        one, other = self._pieces(p, i, within), self._pieces(q, i, within)
        if within & self._bit.get(i, 0):
            return (self._rows[i].times * one * other).sum(axis=2)
        return (one * other)[None]

    def _norms(self, p: int, i: int, within: int, power: int) -> np.ndarray:
        """(2, types) or (1, types): norms of a product's coefficients; power 0 is the largest."""
        size, times = np.abs(self._pieces(p, i, within)), self._rows[i].times
        if not within & self._bit.get(i, 0):
            return size[None]
        size = np.where(times > 0, size, 0.0)
        return size.max(axis=2) if power == 0 else (times * size**power).sum(axis=2) ** (1 / power)
