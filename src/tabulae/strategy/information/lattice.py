"""Least squares for marginals and generalised marginals in closed form: the ``lattice`` route.

Every block is a product of totals and, for each attribute that it crosses, of that attribute's one matrix A_i, the
identity or any other that determines all (merged) cells. With ``X_i = A_i'A_i``, ``u_i = X_i^-1 1`` and ``g_i = 1'u_i``

    X_i^(1/2)' E_i X_i^(1/2) = 1 1' / g_i,     E_i the projection on X_i^(-1/2) 1,

so that all blocks have ``(x)_{i in S} (I - E_i) (x)_{i not in S} E_i`` for eigenspaces between ``(x)_i X_i^(1/2)`` on
both sides, one for each set S of attributes that some block crosses, with the eigenvalues

    lambda_S = sum_{b crosses S} (1/v_b) prod_{i not crossed by b} g_i,

and a table W has the variance ``sum_S lambda_S^-1 prod_i`` of ``diag(W_i X_i^-1 W_i') - (W_i u_i)^2 / g_i`` in S, of
``(W_i u_i)^2 / g_i`` beside it. For marginals X_i = I, u_i = 1 and g_i = n_i. For a table with components in the set U
the coefficients of the noise on block b are, with T = b's attributes within U,

    z = (1/v_b) sum_{S within T} lambda_S^-1 (x)_{i in S} beside_i (x)_{i in T - S} mean_i  x  numbers

that depend on the row and on the block's cell only through the *types* of both in each attribute: a 0/1 row counts a
number of cells, and a cell is counted or not. What is alike is computed once, with how often it occurs, so that a
marginal of a million cells has one column of at most 2^s coefficients a block, exactly.

Sets are bit masks over the attributes that some block crosses, the first attribute the highest bit. Sums over
subsets are taken one attribute at a time: a table over s attributes costs 2^s numbers, whatever the number of blocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from ...domain import Workload
from ...errors import Unsupported
from ...linalg import Dense, Identity, Kron, LinearOperator, Total
from ..block import Block, products
from .lattice_axis import Axis, RowTypes
from .marginal_algebra import superset_sum
from .protocol import MeasuredStrategy, Profile, is_flat, one_matrix_each, pairs, refuse_not_estimable

_LISTED = 2**24  # coefficients on one block that are listed
_TOGETHER = 2**18  # numbers, listed or kept, of several noises at once
_STATISTICS = 2**27  # numbers that a profile may hold
_KEPT = 2**12  # how often coefficients occur is kept for the next budget up to so many

Inverses = Callable[[int], np.ndarray]


@dataclass(frozen=True)
class TablePart:
    """One product of a table: its coefficient, a query for each attribute, and the set it has components in."""

    coefficient: int
    queries: tuple[LinearOperator, ...]
    mask: int


class TableTypes:
    """A table that is a sum of products, and the types of its rows in each attribute: whatever the noise.

    Arguments:
        parts: the products, with equally many rows in each attribute.
        axes: the attributes.
        bit: attribute -> its bit in masks, for those that some block crosses.
    """

    def __init__(self, parts: Sequence[TablePart], axes: Sequence[Axis], bit: Mapping[int, int]) -> None:
        self._parts, self._axes, self._bit = parts, axes, bit
        self._union = 0
        for part in parts:
            self._union |= part.mask
        self._rows = [self._types(i) for i in range(len(axes))]
        self._known_factors: dict[tuple[int, int], list[tuple[bool, np.ndarray]]] = {}
        self._known_times: dict[int, np.ndarray] = {}

    def profiles(self, masks: np.ndarray, weights: np.ndarray, inverses: Sequence[Inverses]) -> list[Profile]:
        """Statistics for blocks that cross the sets ``masks``, under each of some noises.

        ``weights`` (noises, blocks): of the blocks' coefficients. ``inverses``, one a noise: a set -> ``1 / lambda_S``
        of its subsets, (2, ..., 2).

        Raises :class:`~tabulae.errors.Unsupported` for more kinds of queries than statistics can be kept of.
        """
        listed = [count for count in map(self._listed, self._crossed(masks)) if count <= _LISTED]
        kept = 5 * len(masks) * math.prod(len(types.times) for types in self._rows)
        together = max(1, int(_TOGETHER // max(kept, *listed, 1)))
        parts = (slice(k, k + together) for k in range(0, len(weights), together))
        return [each for part in parts for each in self._profiles(masks, weights[part], inverses[part])]

    def _crossed(self, masks: np.ndarray) -> list[int]:
        """What blocks cross of the table's set."""
        return np.unique(masks & self._union).tolist()

    def _profiles(
        self, masks: np.ndarray, weights: np.ndarray, inverses: Sequence[Inverses]
    ) -> list[Profile]:
        columns = math.prod(len(types.times) for types in self._rows)
        if 5 * len(masks) * columns > _STATISTICS:
            raise Unsupported(
                f"intervals of a table with {columns:,} different kinds of queries would need the noise of "
                f"{len(masks):,} blocks in each: ask for fewer queries in a table, or for marginals, all of one kind"
            )
        stats = np.empty((5, len(weights), len(masks), columns))
        tops = {
            within: np.array([inverse(within).max() for inverse in inverses])
            for within in self._crossed(masks)
        }
        factors = self._beside(masks, weights * np.stack([tops[int(m)] for m in masks & self._union], axis=1))
        exact = True
        for within, top in tops.items():
            blocks = np.flatnonzero((masks & self._union) == within)
            fits = self._listed(within) <= _LISTED

            def shares(common: int, top: np.ndarray = top) -> np.ndarray:
                """``1 / lambda_S`` in units of the largest within a set: no power of either can overflow."""
                return np.stack([inverse(common) / t for inverse, t in zip(inverses, top, strict=True)])

            base = self._statistics(within, shares) if fits else self._bounds(within, shares)
            stats[:, :, blocks] = base[:, :, None, :] * factors[:, :, blocks, None]
            exact = exact and fits
        inverse = self._inverse()
        return [Profile(*stats[:, k], exact=exact, inverse=inverse) for k in range(len(weights))]

    def _beside(self, masks: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """(5, noises, blocks): what weights and attributes beside U multiply the statistics by."""
        out = np.stack([weights**2, weights**4, weights**6, np.abs(weights), np.ones(weights.shape)])
        for i, bit in self._bit.items():
            if not self._union & bit:
                size = np.abs(self._axes[i].on_mean)
                powers = [(size**p).sum() for p in (2, 4, 6)]
                own = np.array([*powers, size.max(), np.count_nonzero(size)])
                out = np.where((masks & bit) != 0, out * own[:, None, None], out)
        return out

    def _types(self, i: int) -> RowTypes:
        queries = tuple(part.queries[i] for part in self._parts)
        if self._union & self._bit.get(i, 0):
            return self._axes[i].row_types(queries)
        return self._axes[i].summed_types(queries)

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

    def _statistics(self, within: int, shares: Inverses) -> np.ndarray:
        """(5, noises, columns): statistics of the coefficients on a block that crosses the set ``within`` of U."""
        z = sum(
            part.coefficient * self._coefficients(p, within, shares) for p, part in enumerate(self._parts)
        )
        # Axes: noises, types and classes of crossed attributes, types of the others.
        size = np.abs(np.asarray(z))
        times = self._times(within)
        classes = tuple(axis for axis, is_class in enumerate(self._layout(within), 1) if is_class)
        size = np.where(times > 0, size, 0.0)
        square = size * size
        largest = size.max(axis=classes, keepdims=True)
        counted = size > 1e-12 * np.maximum(largest, 1e-300)
        powers = [(times * square**k).sum(axis=classes) for k in (1, 2, 3)]
        rows = [*powers, largest, (times * counted).sum(axis=classes)]
        return np.stack([row.reshape(len(size), -1) for row in rows])

    def _layout(self, within: int) -> list[bool]:
        """For each axis of the coefficients whether it is one of classes."""
        out = []
        for i in range(len(self._rows)):
            out += [False, True] if within & self._bit.get(i, 0) else [False]
        return out

    def _times(self, within: int) -> np.ndarray:
        if within in self._known_times:
            return self._known_times[within]
        out = np.ones(())
        for i, types in enumerate(self._rows):
            if within & self._bit.get(i, 0):
                out = np.multiply.outer(out, types.times)
            else:
                out = np.multiply.outer(out, np.ones(len(types.times)))
        if out.size <= _KEPT:
            self._known_times[within] = out
        return out

    def _pieces(self, p: int, i: int, within: int) -> np.ndarray:
        """Coefficients of product p in attribute i: (2, types, classes) crossed, (types,) where it is summed."""
        values = self._rows[i].values[:, :, p]
        if within & self._bit.get(i, 0):
            return np.moveaxis(values, 2, 0)
        return self._through_mean(p, i)

    def _through_mean(self, p: int, i: int) -> np.ndarray:
        """W u for one row of each type."""
        return self._axes[i].through_mean(self._parts[p].queries[i])[self._rows[i].first]

    def _coefficients(self, p: int, within: int, shares: Inverses) -> np.ndarray:
        out = shares(self._parts[p].mask & within)
        for contracted, piece in self._factors(p, within):
            out = np.tensordot(out, piece, axes=(1, 0)) if contracted else np.multiply.outer(out, piece)
        return out

    def _factors(self, p: int, within: int) -> list[tuple[bool, np.ndarray]]:
        """What an attribute multiplies coefficients by, and whether it has both parts or the mean part only."""
        if (p, within) not in self._known_factors:
            found, common = [], self._parts[p].mask & within
            for i in range(len(self._rows)):
                piece, bit = self._pieces(p, i, within), self._bit.get(i, 0)
                mean = piece[0] if within & bit else piece
                found.append((True, piece) if common & bit else (False, mean))
            self._known_factors[p, within] = found
        return self._known_factors[p, within]

    def _bounds(self, within: int, shares: Inverses) -> np.ndarray:
        """As :meth:`_statistics`: squares exactly, the rest bounded by Minkowski's inequality over products and S."""
        columns = math.prod(len(types.times) for types in self._rows)
        norms = np.zeros((5, len(shares(0)), columns))
        for p, part in enumerate(self._parts):
            for q, other in enumerate(self._parts):
                lattice = shares(part.mask & other.mask & within) ** 2
                pieces = [self._inner(p, q, i, within) for i in range(len(self._rows))]
                common = part.mask & other.mask & within
                norms[0] += part.coefficient * other.coefficient * self._contracted(lattice, pieces, common)
            for row, power in ((1, 4), (2, 6), (3, 0)):
                pieces = [self._norms(p, i, within, power) for i in range(len(self._rows))]
                common = part.mask & within
                norms[row] += abs(part.coefficient) * self._contracted(shares(common), pieces, common)
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
                out = np.tensordot(out, piece, axes=(1, 0))
            else:
                out = np.multiply.outer(out, piece[0])
        return out.reshape(len(out), -1)

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


_SETS = 2**18  # subsets of crossed sets that are listed one by one
_ATTRIBUTES = 16  # attributes of which all sets are listed instead


@dataclass(frozen=True, eq=False)
class _Known:
    """The one matrix of each attribute, and what tables were found to ask of them: both serve every budget."""

    axes: tuple[Axis, ...]
    tables: dict[LinearOperator, TableTypes] = field(default_factory=dict)


@lru_cache(maxsize=4)
def _known(strategy: MeasuredStrategy) -> _Known | None:
    """None where blocks differ in more than what they sum over."""
    found = one_matrix_each(strategy)
    if found is None:
        return None
    return _Known(tuple(Axis(found[0].get(i, Identity(n))) for i, n in enumerate(strategy.domain.shape)))


def is_lattice(strategy: MeasuredStrategy) -> bool:
    """Whether every block is a (generalised) marginal, and the sets of attributes they cross can be listed."""
    known = _known(strategy)
    if known is None:
        return False
    crossed = [_crossed(block) for block in strategy.blocks]
    listed = len(set().union(*crossed)) <= _ATTRIBUTES or sum(2 ** len(c) for c in crossed) <= _SETS
    return listed and all(axis.determined for axis in known.axes)


def _crossed(block: Block) -> tuple[int, ...]:
    """The attributes that a block crosses; one of one category is crossed and summed at once: call it summed."""
    assert isinstance(block.query, Kron)
    return tuple(i for i, f in enumerate(block.query.ops) if not isinstance(f, Total) and f.shape != (1, 1))


class LatticeInformation:
    """P of a set of (generalised) marginals, diagonal on the lattice of attribute sets."""

    route = "lattice"

    def __init__(self, strategy: MeasuredStrategy, variances: Sequence[float]) -> None:
        known = _known(strategy)
        assert known is not None
        self._axes, self._tables = known.axes, known.tables
        crossed = [_crossed(block) for block in strategy.blocks]
        attributes = sorted(set().union(*crossed))
        self._bit = {i: 1 << (len(attributes) - 1 - p) for p, i in enumerate(attributes)}
        self._masks = [sum(self._bit[i] for i in sets) for sets in crossed]
        self._units = [2.0**block.exponent for block in strategy.blocks]
        # The blocks' matrices are whole numbers on a grid: their noise is measured on it.
        # Relative to the largest, for at absurd budgets the reciprocals would overflow.
        self._scale = max(variances)
        self._variances = [v / self._scale * unit**2 for v, unit in zip(variances, self._units, strict=True)]
        self._eigenvalues = self._spectrum()
        self._estimates: dict[int, np.ndarray] = {}
        self._of: tuple[np.ndarray, ...] = ()

    def _spectrum(self) -> dict[int, float]:
        """lambda_S of every set S that some block crosses."""
        uncrossed = math.prod(a.size for i, a in enumerate(self._axes) if i not in self._bit)
        weights: dict[int, float] = {}
        for mask, variance in zip(self._masks, self._variances, strict=True):
            summed = math.prod(self._axes[i].size for i, bit in self._bit.items() if not mask & bit)
            weights[mask] = weights.get(mask, 0.0) + uncrossed * summed / variance
        if len(self._bit) <= _ATTRIBUTES:
            by_set = np.zeros(1 << len(self._bit))
            by_set[list(weights)] = list(weights.values())
            sums = superset_sum(by_set)
            return {int(s): float(sums[s]) for s in np.flatnonzero(sums)}
        eigenvalues: dict[int, float] = {}
        for mask, weight in weights.items():
            for subset in _subsets(mask).tolist():
                eigenvalues[subset] = eigenvalues.get(subset, 0.0) + weight
        return eigenvalues

    def _inverse_eigenvalues(self, mask: int) -> np.ndarray:
        """1 / lambda_S of the subsets S of a set, (2, ..., 2): an axis for each attribute, in order."""
        return np.array([1 / self._eigenvalues[s] for s in _subsets(mask).tolist()]).reshape(
            (2,) * mask.bit_count()
        )

    def _parts(self, operator: LinearOperator) -> list[TablePart]:
        """Each product of a table with the set of attributes that it has components in."""
        parts = []
        for c, queries in products(operator):
            mask = 0
            for i, query in enumerate(queries):
                if not is_flat(query):
                    if i not in self._bit:
                        raise refuse_not_estimable()
                    mask |= self._bit[i]
            if mask not in self._eigenvalues:
                raise refuse_not_estimable()
            parts.append(TablePart(c, queries, mask))
        return parts

    def variance(self, operator: LinearOperator) -> np.ndarray:
        """diag(W P^+ W') by the lattice, (m,)."""
        parts = self._parts(operator)
        total = np.zeros(operator.shape[0])
        for times, left, right in pairs(parts):
            total += times * left.coefficient * right.coefficient * self._cross(left, right)
        return total * self._scale

    def _cross(self, left: TablePart, right: TablePart) -> np.ndarray:
        """sum_S lambda_S^-1 (x)_i of the rows' parts, (m,): rows alike in their parts are computed once."""
        common = left.mask & right.mask
        out = self._inverse_eigenvalues(common)
        places = []
        for i, axis in enumerate(self._axes):
            distinct, which = axis.distinct_parts(left.queries[i], right.queries[i])
            if common & self._bit.get(i, 0):
                out = np.tensordot(out, distinct, axes=(0, 0))
            else:
                out = np.multiply.outer(out, distinct[0])
            places.append(which)
        return out[np.ix_(*places)].ravel()

    def total(self, workload: Workload) -> float:
        """Total weighted variance, ``sum_S f_S / lambda_S`` with the tables' components f; nothing per query."""
        total = 0.0
        for table in workload.tables:
            parts = self._parts(table.operator(workload.domain))
            for times, left, right in pairs(parts):
                weight = float(table.weight) ** 2 * times * left.coefficient * right.coefficient
                total += weight * self._sum(left, right)
        return total * self._scale

    def _sum(self, left: TablePart, right: TablePart) -> float:
        common, outside = left.mask & right.mask, 1.0
        inside = np.ones(1)
        for i, axis in enumerate(self._axes):
            sums = axis.sums(left.queries[i], right.queries[i])
            if common & self._bit.get(i, 0):
                inside = np.multiply.outer(inside, sums).ravel()
            else:
                outside *= sums[0]
        return outside * float(inside @ self._inverse_eigenvalues(common).ravel())

    def answer(self, operator: LinearOperator, answers: Sequence[np.ndarray]) -> np.ndarray:
        """Least-squares answers from the blocks' noisy answers, (m,)."""
        self._take(answers)
        total = np.zeros(operator.shape[0])
        for part in self._parts(operator):
            factors = [
                axis.over(query)
                if part.mask & self._bit.get(i, 0)
                else Dense(axis.through_mean(query)[:, None])
                for i, (axis, query) in enumerate(zip(self._axes, part.queries, strict=True))
            ]
            total += part.coefficient * (Kron(factors) @ self._estimates[part.mask].ravel())
        return total

    def _take(self, answers: Sequence[np.ndarray]) -> None:
        """Estimates of all measured marginals from the blocks' answers; once for all tables.

        First every set S gets ``sum_{b crosses S} y_b / v_b``, of the mean part in the attributes beside S; then
        its own component; then every set the components of its subsets. Each is done attribute by attribute, so
        that a set is added to its neighbours only.
        """
        if len(answers) == len(self._of) and all(a is b for a, b in zip(answers, self._of, strict=True)):
            return
        sums: dict[int, np.ndarray] = {}
        for mask, variance, unit, y in zip(self._masks, self._variances, self._units, answers, strict=True):
            shape = [self._axes[i].matrix.shape[0] for i in self._within(mask)]
            part = np.asarray(y, dtype=float).reshape(shape) * (unit / variance)
            sums[mask] = sums[mask] + part if mask in sums else part
        for i, bit in self._bit.items():
            for mask in [s for s in self._eigenvalues if s & bit and s in sums]:
                part = self._axes[i].take_mean(sums[mask], self._position(mask, bit))
                sums[mask ^ bit] = sums[mask ^ bit] + part if mask ^ bit in sums else part
        for mask, eigenvalue in self._eigenvalues.items():
            component = sums[mask] / eigenvalue
            for position, i in enumerate(self._within(mask)):
                component = self._axes[i].take_beside(component, position)
            sums[mask] = component
        for i, bit in self._bit.items():
            for mask in [s for s in self._eigenvalues if s & bit]:
                sums[mask] = sums[mask] + self._axes[i].spread(sums[mask ^ bit], self._position(mask, bit))
        self._estimates, self._of = sums, tuple(answers)

    def _within(self, mask: int) -> list[int]:
        """The attributes of a set, in order."""
        return [i for i, bit in self._bit.items() if mask & bit]

    def _position(self, mask: int, bit: int) -> int:
        """The place of one attribute among those of a set."""
        return (mask & ~(2 * bit - 1)).bit_count()

    def profile(self, operator: LinearOperator) -> Profile:
        """Statistics of Z: exact where its distinct coefficients can be listed, Minkowski bounds otherwise."""
        return self.profiles([self], operator)[0]

    @staticmethod
    def profiles(under: Sequence[LatticeInformation], operator: LinearOperator) -> list[Profile]:
        """As :meth:`profile`, under each of several noises of one strategy."""
        one = under[0]
        masks = np.array(one._masks, dtype=_integers(one._masks))
        weights = np.array([np.array(each._units) / np.array(each._variances) for each in under])
        if operator not in one._tables:
            one._tables[operator] = TableTypes(one._parts(operator), one._axes, one._bit)
        return one._tables[operator].profiles(masks, weights, [each._inverse_eigenvalues for each in under])


def _integers(masks: Sequence[int]) -> type:
    """int64 where masks fit, Python integers beyond."""
    return np.int64 if max(masks).bit_length() < 63 else object


@lru_cache(maxsize=4096)
def _subsets(mask: int) -> np.ndarray:
    """The subsets of a set; position in binary says which of its attributes are in."""
    out = np.zeros(1, dtype=_integers([mask]))
    for position in reversed(range(mask.bit_length())):
        if mask >> position & 1:
            out = np.add.outer(out, np.array([0, 1 << position], dtype=out.dtype)).ravel()
    return out
