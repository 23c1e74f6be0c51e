"""Least squares through contrasts over common classes: the ``classes`` route.

The strategy's pieces ``A_b = (B_b (x) (x)_{i in S_b} (s_i I - J)) K_b`` (:class:`~tabulae.linalg.Contrasts`) have
row spaces at right angles to each other, because functions constant on a class, contrasts within it and contrasts
within another class are. So ``A^+`` is the sum of the ``A_b^+``, and with D_b the numbers of cells of the
combinations of classes

    Z_b = A_b^+' q  =  (B_b D_b B_b')^-1 B_b t  (x)  (x)_{i in S_b} d_i / s_i        for a query q = (x)_i q_i,

where t holds the query's sums over classes, ``(x)_{i not in S_b} t_i``, and d_i what q_i has beyond its mean within
the class. Everything about the noise is a product over attributes of statistics of these. The same route serves a
strategy over a workload's own rows, which has the single piece S = {} with classes of one cell each.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import scipy.linalg as sl
import scipy.sparse as sp

from ...domain import Workload
from ...linalg import (
    Contrasts,
    Dense,
    Kron,
    LinearOperator,
    MatrixProduct,
    Partition,
    Sparse,
    Stack,
    representatives,
)
from ..block import products
from .protocol import (
    MeasuredStrategy,
    Profile,
    check_constant,
    coefficient_statistics,
    kron_vectors,
    merge_statistics,
    profile_of,
    refuse_not_estimable,
    scaled,
    sum_bounds,
    summed_variance,
)

_CHUNK = 2**24  # entries held at once
_MISSING = 1e-9  # share of a query's squared norm that may be missing from the row space, by rounding
_ROUNDING = 1e-12  # the same as a share of the terms whose sum the query is


def contrasts_of(strategy: MeasuredStrategy) -> tuple[Contrasts, ...] | None:
    """The pieces of a strategy of one block of contrasts over common classes; None for any other."""
    if len(strategy.blocks) != 1:
        return None
    query = strategy.blocks[0].query
    members = tuple(query.ops) if isinstance(query, Stack) else (query,)
    found = tuple(op for op in members if isinstance(op, Contrasts))
    if len(found) < len(members) or len({op.within for op in found}) < len(found):
        return None
    same = all((op.merges, op.classes) == (found[0].merges, found[0].classes) for op in found)
    return found if same else None


class ClassInformation:
    """P of a strategy of contrasts: a sum over pieces at right angles."""

    route = "classes"

    def __init__(self, strategy: MeasuredStrategy, variances: Sequence[float]) -> None:
        members = contrasts_of(strategy)
        assert members is not None
        self._merges, self._classes = members[0].merges, members[0].classes
        unit = 2.0 ** -strategy.blocks[0].exponent
        self._pieces = [_Piece(op, unit) for op in members]
        self._variance = variances[0]
        self._sides: dict[tuple[int, LinearOperator], _Side] = {}
        self._known: dict[LinearOperator, np.ndarray] = {}
        # A plan, its rehearsal and its release ask for the same.
        self._profiles: dict[LinearOperator, Profile] = {}
        self._last: tuple[np.ndarray, list[np.ndarray]] | None = None

    def answer(self, operator: LinearOperator, answers: Sequence[np.ndarray]) -> np.ndarray:
        self.variance(operator)  # refuses what is not determined
        out, terms = np.zeros(operator.shape[0]), self._terms(operator)
        for piece, inward in zip(self._pieces, self._inward(answers[0]), strict=True):
            for term in terms:
                parts = [s.matrix(c) for s, c in zip(term.sides, piece.within, strict=True)]
                if all(part.any() for part in parts):
                    out += term.coefficient * (Kron([Dense(part) for part in parts]) @ inward)
        return out

    def _inward(self, answers: np.ndarray) -> list[np.ndarray]:
        """Of each piece; of the answers that were asked of last it is known, as one release asks for every table."""
        if self._last is None or self._last[0] is not answers:
            ends = np.cumsum([piece.answers for piece in self._pieces])
            parts = np.split(np.asarray(answers, dtype=float), ends[:-1])
            inward = [piece.inward(part) for piece, part in zip(self._pieces, parts, strict=True)]
            self._last = answers, inward
        return self._last[1]

    def variance(self, operator: LinearOperator) -> np.ndarray:
        if operator not in self._known:
            terms = self._terms(operator)
            self._known[operator] = self._squares(terms) * self._variance
        return self._known[operator]

    def total(self, workload: Workload) -> float:
        return summed_variance(self.variance, workload)

    def profile(self, operator: LinearOperator) -> Profile:
        if operator not in self._profiles:
            self._profiles[operator] = self._profile(operator)
        return self._profiles[operator]

    def _profile(self, operator: LinearOperator) -> Profile:
        self.variance(operator)
        terms = self._terms(operator)
        if len(terms) == 1:
            return profile_of(self._statistics(terms[0]), inverse=terms[0].inverse)
        parts = [self._statistics(term)[:, term.inverse] for term in terms]
        squares = self.variance(operator) / self._variance
        return profile_of(sum_bounds(parts, squares, sum(s[4] for s in parts)), exact=False)

    def _terms(self, operator: LinearOperator) -> list[_Term]:
        return [
            _Term(c, tuple(self._side(i, factor) for i, factor in enumerate(factors)))
            for c, factors in products(operator)
        ]

    def _side(self, axis: int, factor: LinearOperator) -> _Side:
        if (axis, factor) not in self._sides:
            self._sides[axis, factor] = _Side(factor, self._merges[axis], self._classes[axis])
        return self._sides[axis, factor]

    def _squares(self, terms: Sequence[_Term]) -> np.ndarray:
        """Squared norm of each query's coefficients; refuses queries outside the row space.

        One product is looked at by kinds of rows, several by all rows, two at a time.
        """
        chosen = terms[0].kinds if len(terms) == 1 else terms[0].every
        shape = [len(c) for c in chosen]
        squares, captured, norms, sizes = np.zeros((4, *shape))
        pairs = [(a, b) for a in range(len(terms)) for b in range(a + 1)]
        for a, b in pairs:
            values = [(x.values[c] * y.values[c]).sum(axis=1) for x, y, c in _zip(terms[a], terms[b], chosen)]
            part = _times(terms, a, b) * reduce(np.multiply.outer, values)
            norms += part
            sizes += part * (a == b)
        for piece in self._pieces:
            inside = {pair: _inside(terms[pair[0]], terms[pair[1]], chosen, piece.within) for pair in pairs}
            telling = [pair for pair in pairs if all(i.any() for i in inside[pair])]
            if not telling:
                continue
            zz, yz = piece.inner_products([term.outside(chosen, piece.within) for term in terms], telling)
            for k, (a, b) in enumerate(telling):
                times = _times(terms, a, b)
                squares += times * _placed(zz[k], inside[a, b], piece.within, shape)
                captured += times * piece.picked**2 * _placed(yz[k], inside[a, b], piece.within, shape)
        if (np.abs(norms - captured) > _MISSING * norms + _ROUNDING * sizes).any():
            raise refuse_not_estimable()
        return squares.reshape(-1)[terms[0].inverse] if len(terms) == 1 else squares.reshape(-1)

    def _statistics(self, term: _Term) -> np.ndarray:
        """:func:`coefficient_statistics` of each kind of query, over all pieces: (5, kinds)."""
        shape = [len(k) for k in term.kinds]
        total = np.zeros((5, *shape))
        for piece in self._pieces:
            inside = [
                s.statistics(c)[:, k]
                for s, c, k in zip(term.sides, piece.within, term.kinds, strict=True)
                if c is not None
            ]
            if not all(stats[0].any() for stats in inside):
                continue
            own = piece.statistics(term.outside(term.kinds, piece.within))
            merge_statistics(
                total,
                np.stack([_placed(own[k], [i[k] for i in inside], piece.within, shape) for k in range(5)]),
            )
        return scaled(total.reshape(5, -1), abs(term.coefficient))


class _Piece:
    """One block of contrasts, its answers in counts."""

    def __init__(self, op: Contrasts, unit: float) -> None:
        self.within = op.within
        self._shape = (op.matrix.shape[0], *op.picked)
        self.answers = op.shape[0]
        self.picked = math.prod(op.picked)
        self._op, self._unit = op, unit
        sizes = kron_vectors(
            [p.sizes.astype(float) for p, c in zip(op.classes, op.within, strict=True) if c is None]
        )
        outer = _weighted_outer(op.matrix, sizes) * unit**2
        try:
            self._factor = sl.cho_factor(outer, check_finite=False)
        except sl.LinAlgError:  # rounding made rows dependent
            self._factor = None
            self._pseudo = np.linalg.pinv(outer, rcond=1e-12, hermitian=True)

    def _solve(self, y: np.ndarray) -> np.ndarray:
        return self._pseudo @ y if self._factor is None else sl.cho_solve(self._factor, y, check_finite=False)

    def inner_products(
        self, sums: Sequence[Sequence[np.ndarray]], pairs: Sequence[tuple[int, int]]
    ) -> tuple[np.ndarray, np.ndarray]:
        """``z_a'z_b`` and ``y_a'z_b`` with ``y = B t``, ``z = (B D B')^-1 y``, for pairs of terms: (pairs, rows)."""
        narrowed = [self._narrowed(s) for s in sums]
        parts = []
        for rows in _slices(sums[0], max(self._op.matrix.shape)):
            found = [self._coefficients(matrix, s, rows) for matrix, s in narrowed]
            parts.append(
                [
                    [(found[a][1] * found[b][1]).sum(axis=0) for a, b in pairs],
                    [(found[a][0] * found[b][1]).sum(axis=0) for a, b in pairs],
                ]
            )
        zz, yz = np.concatenate([np.asarray(part) for part in parts], axis=2)
        return zz, yz

    def statistics(self, sums: Sequence[np.ndarray]) -> np.ndarray:
        """Statistics of z for all combinations of rows of the sums t_i, (5, rows)."""
        matrix, sums = self._narrowed(sums)
        slices = _slices(sums, max(self._op.matrix.shape))
        parts = [coefficient_statistics(self._coefficients(matrix, sums, rows)[1].T) for rows in slices]
        return np.concatenate(parts, axis=1)

    def _narrowed(
        self, sums: Sequence[np.ndarray]
    ) -> tuple[LinearOperator | np.ndarray, Sequence[np.ndarray]]:
        """B and the sums; B after the sums of one row, with the others, where they have more rows than classes.

        Only where B after them can be held at once.
        """
        wide = [s for s in sums if len(s) > 1]
        width = math.prod(s.shape[1] for s in wide)
        if math.prod(len(s) for s in wide) <= width or width * self._op.matrix.shape[0] > _CHUNK:
            return self._op.matrix, sums
        classes = [s if len(s) == 1 else np.eye(s.shape[1]) for s in sums]
        slices = _slices(classes, self._op.matrix.shape[1])
        return np.concatenate([self._op.matrix @ _columns(classes, rows) for rows in slices], axis=1), wide

    def _coefficients(
        self, matrix: LinearOperator | np.ndarray, sums: Sequence[np.ndarray], rows: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        y = (matrix @ _columns(sums, rows)) * self._unit
        return y, self._solve(y)

    def inward(self, answers: np.ndarray) -> np.ndarray:
        """``B' (B D B')^-1`` on noisy answers, in the attributes' order: what products of sides are applied to."""
        z = self._solve(answers.reshape(self._shape[0], -1))
        u = (self._op.matrix.T @ z * self._unit).reshape(*self._op.widths, *self._shape[1:])
        outside = [i for i, c in enumerate(self.within) if c is None]
        inside = [i for i, c in enumerate(self.within) if c is not None]
        return u.transpose(np.argsort(outside + inside)).reshape(-1)


def _slices(sums: Sequence[np.ndarray], height: int) -> list[np.ndarray]:
    """The combinations of rows, by as many as may be held at once where each is a column of ``height``."""
    rows, step = math.prod(len(s) for s in sums), max(1, _CHUNK // height)
    return [np.arange(start, min(rows, start + step)) for start in range(0, rows, step)]


def _columns(sums: Sequence[np.ndarray], rows: np.ndarray) -> np.ndarray:
    """The chosen combinations of rows, multiplied out: one a column."""
    t = np.ones((1, len(rows)))
    indices = np.unravel_index(rows, [len(s) for s in sums]) if sums else ()
    for part, index in zip(sums, indices, strict=True):
        t = (t[:, None] * np.take(part.T, index, axis=1)).reshape(-1, len(rows))
    return t


class _Side:
    """One attribute's part of a table: its sums over classes, and what it has beyond them."""

    def __init__(self, factor: LinearOperator, merge: Partition, classes: Partition) -> None:
        check_constant(factor, merge.classes)
        self.values = np.asarray(factor.columns(representatives(merge.classes)), dtype=float)
        self._classes = classes
        self.sums = np.ascontiguousarray((classes @ self.values.T).T)
        large = [self.statistics(c).T for c in np.flatnonzero(classes.sizes > 1).tolist()]
        table = np.concatenate([self.sums, *large], axis=1)
        _, self.kinds, inverse = np.unique(table, axis=0, return_index=True, return_inverse=True)
        self.inverse = inverse.reshape(-1)

    def deviation(self, c: int) -> np.ndarray:
        """The values within class c less their mean, over the number of cells: (rows, s)."""
        part = self.values[:, self._classes.classes == c]
        return (part - part.mean(axis=1, keepdims=True)) / part.shape[1]

    def matrix(self, c: int | None) -> np.ndarray:
        """What the sides of a piece with class c within (None: outside) are multiplied by."""
        return self.sums if c is None else self.deviation(c)

    def statistics(self, c: int) -> np.ndarray:
        """Statistics of each row's deviation, the same to the last bit for the same numbers in another order."""
        return coefficient_statistics(np.sort(self.deviation(c), axis=1))


@dataclass(frozen=True)
class _Term:
    """``coefficient * (x)_i side_i``: a product that a table consists of."""

    coefficient: int
    sides: tuple[_Side, ...]

    @property
    def every(self) -> list[np.ndarray]:
        """All rows of each side."""
        return [np.arange(len(s.values)) for s in self.sides]

    @property
    def kinds(self) -> list[np.ndarray]:
        """One row of each kind of each side: rows with the same sums and the same deviations, in any order."""
        return [s.kinds for s in self.sides]

    @property
    def inverse(self) -> np.ndarray:
        """Which combination of kinds each combination of rows is."""
        index = np.zeros(1, dtype=np.int64)
        for side in self.sides:
            index = np.add.outer(index * len(side.kinds), side.inverse).reshape(-1)
        return index

    def outside(self, chosen: Sequence[np.ndarray], within: Sequence[int | None]) -> list[np.ndarray]:
        """The chosen rows' sums over classes, of the attributes outside S."""
        return [s.sums[k] for s, k, c in zip(self.sides, chosen, within, strict=True) if c is None]


def _zip(a: _Term, b: _Term, chosen: Sequence[np.ndarray]) -> Iterator[tuple[_Side, _Side, np.ndarray]]:
    return zip(a.sides, b.sides, chosen, strict=True)


def _times(terms: Sequence[_Term], a: int, b: int) -> int:
    return terms[a].coefficient * terms[b].coefficient * (1 if a == b else 2)


def _inside(
    a: _Term, b: _Term, chosen: Sequence[np.ndarray], within: Sequence[int | None]
) -> list[np.ndarray]:
    """Row-wise inner products of the deviations, of the attributes in S."""
    return [
        (x.deviation(c)[k] * y.deviation(c)[k]).sum(axis=1)
        for (x, y, k), c in zip(_zip(a, b, chosen), within, strict=True)
        if c is not None
    ]


def _placed(
    outside: np.ndarray, inside: Sequence[np.ndarray], within: Sequence[int | None], shape: Sequence[int]
) -> np.ndarray:
    """The product of a tensor over the attributes outside S and a vector for each in S, in the attributes' order."""
    out = outside.reshape([n if c is None else 1 for n, c in zip(shape, within, strict=True)])
    axes = [axis for axis, c in enumerate(within) if c is not None]
    for axis, vector in zip(axes, inside, strict=True):
        out = out * vector.reshape([len(vector) if i == axis else 1 for i in range(len(shape))])
    return out


def _weighted_outer(matrix: LinearOperator, sizes: np.ndarray) -> np.ndarray:
    """B diag(sizes) B'."""
    if isinstance(matrix, MatrixProduct) and isinstance(matrix.right, Sparse):
        rows = matrix.right.matrix.astype(float)
        left = np.asarray(matrix.left.dense(), dtype=float)
        return left @ (rows @ sp.diags_array(sizes) @ rows.T).toarray() @ left.T
    dense = np.asarray(matrix.dense(), dtype=float)
    return (dense * sizes) @ dense.T
