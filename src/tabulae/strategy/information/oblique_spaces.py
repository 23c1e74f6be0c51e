"""The spaces that blocks measure, one for each set of attributes, recognised from the blocks alone.

Every block asks about a set S of attributes of its own, by a matrix M_S over the combinations of their cells (a
Kronecker product or an explicit one), and for every attribute i some a_i with ``1'a_i = 1`` is annulled by all of them:
``M_S (a_i (x) .) = 0``. So no combination of what is asked is a multiple of the total, and the row spaces of the blocks
are independent. The blocks of :mod:`.residual` are those with the same matrices for all sets.

The matrix of several attributes may also *lean* on their subsets, ``M_S (a_i (x) .)`` not zero, as long as its own part
``M_S P_S`` has full row rank (``P_i = I - a_i 1'``), so that row spaces stay independent:

    M_S x_S = M_S P_S x_S + sum_{R in S} B_SR M_R P_R x_R,      B_SR = M_S (P_R (x) a_{S-R}) (M_R P_R)^+.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, reduce

import numpy as np
import scipy.linalg

from ...domain import merged_factor
from ...linalg import Identity, Kron, LinearOperator, MatrixProduct, Partition, Total, merge_columns
from .protocol import EXPLICIT, MeasuredStrategy, check_constant
from .residual_basis import Set

_RANK = 1e-9  # singular values below this share of the largest are rounding
_ANNULLED = 1e-7  # of a unit row times a_i, before it counts as no zero
_SAME = 1e-11  # of a's largest entry: a difference that is only rounding
_APART = 1e-6  # share of the total that must lie beside what is asked
_NOTHING = 1e-18  # of a matrix's squared norm: a part that is only rounding
_OUTSIDE = 1e-10  # of a part's squared norm that may lie outside what is measured, by rounding


@dataclass(frozen=True, eq=False)
class ObliqueAxis:
    """One attribute: the cells that the blocks tell apart, and a over them. Equal ones have one ``number``."""

    partition: Partition
    cut: np.ndarray
    number: int = 0

    def cells(self, query: LinearOperator) -> LinearOperator:
        """A query over the merged cells; NotEstimable where it tells more apart."""
        return _over_cells(query, self.partition)

    def totals(self, query: LinearOperator) -> np.ndarray:
        """``W a``, (m,)."""
        return np.asarray(self.cells(query) @ self.cut, dtype=float)

    def centred(self, columns: np.ndarray, place: int) -> np.ndarray:
        """P along one axis of an array."""
        summed = np.expand_dims(columns.sum(axis=place), place)
        shape = [1] * columns.ndim
        shape[place] = len(self.cut)
        return columns - self.cut.reshape(shape) * summed


@lru_cache(maxsize=256)
def _over_cells(query: LinearOperator, partition: Partition) -> LinearOperator:
    check_constant(query, partition.classes)
    return merged_factor(query, partition)


@dataclass(frozen=True, eq=False)
class Space:
    """What is measured of one set: ``inverses`` are ``P_i M_i^+`` (cells, rows) an attribute, or one for the whole set.

    ``rows`` are the measured matrices in the same form; ``complete`` says that they ask all that there is to ask.
    """

    axes: tuple[ObliqueAxis, ...]
    rows: tuple[np.ndarray, ...]
    number: int

    @property
    def whole(self) -> bool:
        """Whether one matrix is over the combinations of several attributes' cells."""
        return len(self.rows) < len(self.axes)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(axis.cut) for axis in self.axes)

    @cached_property
    def _inverted(self) -> tuple[tuple[np.ndarray, int], ...]:
        return tuple(_pseudo_inverse(rows) for rows in self.rows)

    @cached_property
    def inverses(self) -> tuple[np.ndarray, ...]:
        if not self.whole:
            return tuple(
                axis.centred(inverse, 0) for axis, (inverse, _) in zip(self.axes, self._inverted, strict=True)
            )
        inverse = self._inverted[0][0].reshape(*self.shape, -1)
        for place, axis in enumerate(self.axes):
            inverse = axis.centred(inverse, place)
        return (inverse.reshape(-1, inverse.shape[-1]),)

    @cached_property
    def covariances(self) -> tuple[np.ndarray, ...]:
        """``Q Q'`` of the inverses Q."""
        return tuple(Q @ Q.T for Q in self.inverses)

    @cached_property
    def complete(self) -> bool:
        if self.whole:
            return self._inverted[0][1] == math.prod(n - 1 for n in self.shape)
        return all(rank == n - 1 for (_, rank), n in zip(self._inverted, self.shape, strict=True))

    def marginal(self, answers: np.ndarray) -> np.ndarray:
        """What the answers say of the cells of S: ``P_S M_S^+ y``, with an axis for each attribute."""
        if self.whole:
            return (self.inverses[0] @ answers).reshape(self.shape)
        values = answers.reshape([Q.shape[1] for Q in self.inverses])
        for place, Q in enumerate(self.inverses):
            values = np.moveaxis(np.tensordot(Q, values, axes=(1, place)), 0, place)
        return values

    def coefficients(self, rows: np.ndarray) -> np.ndarray:
        """Z of rows (m, cells of S), (m, rows of the block)."""
        if self.whole:
            return rows @ self.inverses[0]
        values = rows.reshape(len(rows), *self.shape)
        for place, Q in enumerate(self.inverses):
            values = np.moveaxis(np.tensordot(values, Q, axes=(place + 1, 0)), -1, place + 1)
        return values.reshape(len(rows), -1)

    def lost(self, rows: np.ndarray) -> np.ndarray:
        """What is left of rows (m, cells of S) beside what is measured."""
        found = self.coefficients(rows)
        if self.whole:
            return rows - found @ self.rows[0]
        values = found.reshape(len(rows), *(len(r) for r in self.rows))
        for place, r in enumerate(self.rows):
            values = np.moveaxis(np.tensordot(values, r, axes=(place + 1, 0)), -1, place + 1)
        return rows - values.reshape(len(rows), -1)

    def spans(self, rows: np.ndarray) -> bool:
        """Whether rows (m, cells of S) are combinations of what is measured, but for rounding."""
        return float(np.square(self.lost(rows)).sum()) <= _OUTSIDE * float(np.square(rows).sum())


def _pseudo_inverse(rows: np.ndarray) -> tuple[np.ndarray, int]:
    """M^+ and the rank of M; rows of very different size are brought to one."""
    left, values, right = scipy.linalg.svd(rows, full_matrices=False, check_finite=False)
    rank = int((values > _RANK * values[0]).sum())
    return (right[:rank].T / values[:rank]) @ left[:, :rank].T, rank


@dataclass(frozen=True)
class ObliqueStructure:
    """Every attribute's axis, and the space of each set by the block that measures it.

    ``leans`` are the matrices B_SR of each block that leans, by R.
    """

    axes: tuple[ObliqueAxis, ...]
    sets: tuple[Set, ...]
    spaces: tuple[Space, ...]
    leans: tuple[Mapping[Set, np.ndarray], ...]


def structure_of(strategy: MeasuredStrategy) -> ObliqueStructure | None:
    """The spaces that the blocks measure, recognised from the blocks alone; None for anything else."""
    return _structure(strategy.domain.shape, tuple(block.query for block in strategy.blocks))


@lru_cache(maxsize=8)
def _structure(shape: tuple[int, ...], queries: tuple[LinearOperator, ...]) -> ObliqueStructure | None:
    asked = [_factors(query, len(shape)) for query in queries]
    if len(queries) < 2 or any(found is None for found in asked):
        return None
    blocks = [found for found in asked if found is not None]
    sets = [tuple(i for i, f in enumerate(factors) if not isinstance(f, Total)) for _, factors in blocks]
    if len(set(sets)) < len(sets):
        return None
    merges = [
        merge_columns(list(dict.fromkeys(column))) for column in zip(*(f for _, f in blocks), strict=True)
    ]
    if max(merge.shape[0] for merge in merges) > EXPLICIT:
        return None
    written = _Written(merges)
    rows = [written.rows(left, factors, s) for (left, factors), s in zip(blocks, sets, strict=True)]
    axes = _axes(merges, sets, rows)
    if axes is not None:
        return _without_leans(axes, sets, rows)
    held = [k for k, s in enumerate(sets) if len(rows[k]) == len(s) or any(set(s) < set(r) for r in sets)]
    axes = _axes(merges, [sets[k] for k in held], [rows[k] for k in held])
    return None if axes is None else _with_leans(axes, sets, rows)


Rows = tuple[np.ndarray, ...]


def _without_leans(
    axes: tuple[ObliqueAxis, ...], sets: Sequence[Set], rows: Sequence[Rows]
) -> ObliqueStructure:
    numbers: dict[Hashable, int] = {}
    spaces: dict[int, Space] = {}  # of one number once, so that what is computed of one serves all
    out = []
    for s, matrices in zip(sets, rows, strict=True):
        key = tuple(map(id, matrices)), tuple(axes[i].number for i in s)
        number = numbers.setdefault(key, len(numbers))
        out.append(spaces.setdefault(number, Space(tuple(axes[i] for i in s), matrices, number)))
    return ObliqueStructure(axes, tuple(sets), tuple(out), tuple({} for _ in sets))


def _with_leans(
    axes: tuple[ObliqueAxis, ...], sets: Sequence[Set], rows: Sequence[Rows]
) -> ObliqueStructure | None:
    """The same where explicit matrices lean; None where one leans on what is not measured, or has dependent rows."""
    own: dict[Hashable, Rows] = {}
    apart = []
    for s, matrices in zip(sets, rows, strict=True):
        key = tuple(map(id, matrices)), tuple(axes[i].number for i in s)
        if key not in own:
            own[key] = matrices
            if len(matrices) < len(s):
                own[key] = (_cut_along(matrices[0], [axes[i] for i in s], range(len(s))),)
                if np.linalg.matrix_rank(own[key][0], tol=_RANK * np.linalg.norm(own[key][0], 2)) < len(
                    matrices[0]
                ):
                    return None
        apart.append(own[key])
    structure = _without_leans(axes, sets, apart)
    at = dict(zip(sets, structure.spaces, strict=True))
    known: dict[Hashable, Mapping[Set, np.ndarray] | None] = {}
    leans: list[Mapping[Set, np.ndarray]] = []
    for s, matrices in zip(sets, rows, strict=True):
        if len(matrices) == len(s):
            leans.append({})
            continue
        below = [tuple(q for q in range(len(s)) if mask >> q & 1) for mask in range(2 ** len(s) - 1)]
        spaces = [at.get(tuple(s[q] for q in places)) for places in below]
        key = (
            id(matrices[0]),
            tuple(axes[i].number for i in s),
            tuple(-1 if r is None else r.number for r in spaces),
        )
        if key not in known:
            known[key] = _leans(matrices[0], [axes[i] for i in s], below, spaces)
        found = known[key]
        if found is None:
            return None
        leans.append({tuple(s[q] for q in places): B for places, B in found.items()})
    return replace(structure, leans=tuple(leans))


def _leans(
    matrix: np.ndarray,
    axes: Sequence[ObliqueAxis],
    below: Sequence[tuple[int, ...]],
    spaces: Sequence[Space | None],
) -> Mapping[Set, np.ndarray] | None:
    """B of one matrix by the places of R; None where what it leans on is not measured."""
    size = float(np.square(matrix).sum())
    out = {}
    for places, space in zip(below, spaces, strict=True):
        part = _cut_along(matrix, axes, places)
        if float(np.square(part).sum()) <= _NOTHING * size:
            continue
        if space is None or not space.spans(part):
            return None
        out[places] = space.coefficients(part)
    return out


def _cut_along(matrix: np.ndarray, axes: Sequence[ObliqueAxis], places: Sequence[int]) -> np.ndarray:
    """``M (P_R (x) a)``, R at some places, (m, cells of R)."""
    rows = matrix.reshape(-1, *(len(axis.cut) for axis in axes))
    for q in range(len(axes))[::-1]:
        summed = np.tensordot(rows, axes[q].cut, axes=(q + 1, 0))
        rows = rows - np.expand_dims(summed, q + 1) if q in places else summed
    return rows.reshape(len(matrix), -1)


def _factors(
    query: LinearOperator, d: int
) -> tuple[LinearOperator | None, tuple[LinearOperator, ...]] | None:
    """An explicit matrix or None, and one factor an attribute; None for queries of another form."""
    left, right = (query.left, query.right) if isinstance(query, MatrixProduct) else (None, query)
    if not isinstance(right, Kron) or len(right.ops) != d:
        return None
    if left is not None and not all(_adds_up(f) for f in right.ops):
        return None
    return left, tuple(right.ops)


def _adds_up(factor: LinearOperator) -> bool:
    if isinstance(factor, Partition):
        return bool(factor.classes.min() >= 0 and factor.sizes.min() > 0)
    return isinstance(factor, (Identity, Total))


class _Written:
    """Measured matrices over merged cells, equal ones once."""

    def __init__(self, merges: Sequence[Partition]) -> None:
        self._merges = merges
        self._known: dict[Hashable, np.ndarray] = {}

    def rows(
        self, left: LinearOperator | None, factors: Sequence[LinearOperator], s: Set
    ) -> tuple[np.ndarray, ...]:
        """One matrix an attribute of S, or one over all combinations of their cells."""
        if left is None:
            return tuple(self._matrix(factors[i], self._merges[i]) for i in s)
        key = left, tuple((factors[i], self._merges[i]) for i in s)
        if key not in self._known:
            carry = [np.asarray(merged_factor(factors[i], self._merges[i]).dense(), float) for i in s]
            matrix = np.asarray(left.dense(), dtype=float)
            same = all(c.shape[0] == c.shape[1] and np.array_equal(c, np.eye(len(c))) for c in carry)
            self._known[key] = matrix if same else matrix @ reduce(np.kron, carry)
        return (self._known[key],)

    def _matrix(self, factor: LinearOperator, merge: Partition) -> np.ndarray:
        key = factor, merge
        if key not in self._known:
            self._known[key] = np.asarray(merged_factor(factor, merge).dense(), dtype=float)
        return self._known[key]


def _axes(
    merges: Sequence[Partition], sets: Sequence[Set], rows: Sequence[tuple[np.ndarray, ...]]
) -> tuple[ObliqueAxis, ...] | None:
    """a of every attribute; None where for one of them what is asked includes the total."""
    asked: list[dict[Hashable, np.ndarray]] = [{} for _ in merges]
    along: dict[Hashable, np.ndarray] = {}
    for s, matrices in zip(sets, rows, strict=True):
        sizes = [merges[i].shape[0] for i in s]
        for place, i in enumerate(s):
            if len(matrices) == len(s):
                asked[i].setdefault(id(matrices[place]), matrices[place])
            else:
                key = id(matrices[0]), place
                if key not in along:
                    along[key] = _along(matrices[0], sizes, place)
                asked[i][key] = along[key]
    axes, numbers = [], {}
    cuts: dict[Hashable, np.ndarray | None] = {}
    for merge, some in zip(merges, asked, strict=True):
        key = merge.shape[0], frozenset(some)
        if key not in cuts:
            cut = _cut(merge.shape[0], list(some.values()))
            # Attributes whose blocks differ may yet have one a: what is computed of one then serves all.
            cuts[key] = next((c for c in cuts.values() if cut is not None and _is_same(c, cut)), cut)
        cut = cuts[key]
        if cut is None:
            return None
        axes.append(ObliqueAxis(merge, cut, numbers.setdefault((id(cut), merge), len(numbers))))
    return tuple(axes)


def _is_same(known: np.ndarray | None, cut: np.ndarray) -> bool:
    return (
        known is not None
        and known.shape == cut.shape
        and float(np.abs(known - cut).max()) <= _SAME * float(np.abs(cut).max())
    )


def _along(matrix: np.ndarray, sizes: Sequence[int], place: int) -> np.ndarray:
    """The rows of one attribute's row space in an explicit matrix, as few as it has cells."""
    turned = np.moveaxis(matrix.reshape(-1, *sizes), place + 1, -1).reshape(-1, sizes[place])
    return scipy.linalg.qr(turned, mode="r", check_finite=False)[0] if len(turned) > sizes[place] else turned  # pyright: ignore[reportReturnType]


def _cut(n: int, asked: Sequence[np.ndarray]) -> np.ndarray | None:
    """The shortest a with ``1'a = 1`` that all rows annul, (n,)."""
    rows = [m / np.sqrt(np.square(m).sum(axis=0).max()) for m in asked if m.any()]
    if not rows:
        return np.full(n, 1 / n)
    stacked = np.concatenate(rows)
    if len(stacked) > n:
        stacked = scipy.linalg.qr(stacked, mode="r", check_finite=False)[0][:n]
    _, values, right = scipy.linalg.svd(stacked, check_finite=False)
    rank = int((values > _RANK * values[0]).sum())
    beside = right[rank:].sum(axis=1) @ right[rank:]
    share = float(beside.sum())
    if share < _APART:
        return None
    cut = beside / share
    largest = max(float(np.abs(m @ cut).max()) / float(np.abs(m).max()) for m in rows)
    return cut if largest < _ANNULLED * float(np.abs(cut).max()) else None
