"""The bound with multipliers that are a product, for tables that are no products.

As in :mod:`.product`, with a table over the attributes A whose queries M, scaled by the roots of the multipliers, are
any matrix over their cells. With P its polar factor, ``H = P'M`` and Z_i (n_i, m_i) orthonormal with ``t_i`` first,

    Q = sum_R P ((x)_{i in R} (I - Z_i Z_i') (x)_{i in A - R} Z_i) . (I (x) U_R)

is a contraction for contractions U_R, because the spaces of two different R are orthogonal on both sides. So

    loss >= (sum_R || stack over tables A >= R of  w_A K_AR (x)_{i not in A} (Z_i't_i)' ||_*)^2,

    K_AR = tr_R [ ((x)_R (I - ZZ') (x)_{A-R} Z)' H ((x)_R (I - ZZ') (x)_{A-R} Z) ],

the trace taken over the attributes of R alone; for a product it is ``prod_R h (x) Z'HZ``. Where R is one
attribute and there is room, nothing is traced, which is no lower. No multipliers are searched for: tried are equal
ones, those of the optimum of what each attribute alone is asked, and some between. Where to decompose each table would
take long, attributes of one size share multipliers and directions, so that equal tables are decomposed once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product

import numpy as np
import scipy.linalg as sl

from ...domain import Table, Workload
from ..deadline import SECONDS_A_CUBE, check_seconds
from ..information.residual_basis import Set, subsets
from ..residual.spaces import Ask, TableForm, asks_of, solved
from .dual import lowered_trace

_CELLS = 2**13  # of a table that is no product; others are left out, which lowers the bound
_TABLES, _SECONDS = 2048, 3e-3  # most tables, and what one takes of a core
_COLUMNS, _MOST = 2000, 100  # columns of a stack, and directions of an attribute
_DEPENDENT, _TRUST = (
    1e-9,
    1e-7,
)  # eigenvalues that count as zero; share of a trace that rounding may take from H
_KRYLOV = 2  # directions along the roots, before those where they are largest
_BESIDE = 1e-7
_ROUNDING = 1e-9
_POWERS = (0.0, 0.5, 1.0)  # between equal multipliers and those of the attributes' own spaces
_LONG = 2.0  # seconds of decompositions beyond which attributes of one size share multipliers


def joint_bound(merged: Workload, deadline: float = math.inf) -> float | None:
    """Lower bound on the loss of any strategy for a workload over merged cells; None where all tables are products.

    Raises :class:`~tabulae.errors.Unsupported` where it would last beyond the ``deadline``, or sets are too many.
    """
    kept = _kept(merged)
    if not kept:
        return None
    check_seconds(deadline, joint_seconds(merged), "a bound of these tables together")
    sizes = merged.domain.shape
    asks = asks_of(Workload(merged.domain, kept))
    groups = range(len(sizes))
    if _decomposing(asks, groups) > _LONG:
        groups = [sizes.index(n) for n in sizes]
    check_seconds(deadline, _decomposing(asks, groups), "to decompose what tables ask together")
    own = [_own_multipliers(asks, i, n, deadline) for i, n in enumerate(sizes)]
    shared = {
        g: np.mean([m for m, other in zip(own, groups, strict=True) if other == g], axis=0) for g in groups
    }
    roots = ({g: m ** (power / 2) for g, m in shared.items()} for power in _POWERS)
    bounds = (_bound(asks, groups, {g: s / np.linalg.norm(s) for g, s in at.items()}) for at in roots)
    return max(bounds) * (1 - _ROUNDING)


def _decomposing(asks: Sequence[Ask], groups: Sequence[int]) -> float:
    """What the decompositions of all different tables take of a core, in seconds."""
    work = 0.0
    for form, _ in {_key(ask, groups) for ask in asks}:
        if form.rows is not None:
            rows = form.most_rank
            work += 1.5 * rows**3 + rows**2 * math.prod(form.rows.shape[1:]) / 4
    return len(_POWERS) * SECONDS_A_CUBE * work


def _key(ask: Ask, groups: Sequence[int]) -> tuple[TableForm, Set]:
    """Equal for tables that are decomposed alike: what is asked, of attributes of which groups."""
    return ask.form, tuple(groups[i] for i in ask.crossed)


def joint_seconds(merged: Workload) -> float:
    """What :func:`joint_bound` takes of a core, from sizes alone: the spectrum of the widest stack, and all tables."""
    kept = _kept(merged)
    if not kept:
        return 0.0
    sets = {R for table in kept for R in subsets(table.crossed(merged.domain))}
    sizes = merged.domain.shape
    columns = _columns(sets, sizes, _most_directions(sets, sizes))
    return len(_POWERS) * (_SECONDS * len(kept) + SECONDS_A_CUBE / 4 * float(columns) ** 3)


def _kept(merged: Workload) -> list[Table]:
    """The tables that the bound reads: none where all are products, or they are too many."""
    if all(len(table.terms) == 1 for table in merged.tables):
        return []
    sizes = merged.domain.shape
    kept = [
        table for table in merged.tables
        if len(table.terms) == 1 or math.prod(sizes[i] for i in table.crossed(merged.domain)) <= _CELLS
    ]  # fmt: skip
    return kept if len(kept) <= _TABLES else []


def _own_multipliers(asks: Sequence[Ask], i: int, n: int, deadline: float) -> np.ndarray:
    """Those of the optimum for what the tables ask of one attribute alone, the others' cells taken alike."""
    rows = [np.zeros((0, n))]
    for ask in asks:
        if i not in ask.crossed:
            continue
        q, form = ask.crossed.index(i), ask.form
        if form.grams is not None:
            others = math.prod(float(V.mean()) for p, V in enumerate(form.grams) if p != q)
            rows.append(math.sqrt(ask.weight * max(others, 0.0)) * form.roots[q])
        else:
            axes = tuple(p + 1 for p in range(len(ask.crossed)) if p != q)
            rows.append(math.sqrt(ask.weight) * form.root.mean(axis=axes))
    F = np.concatenate(rows)
    F = F - F.mean(axis=1, keepdims=True)
    if np.abs(F).max(initial=0.0) <= _BESIDE:
        return np.full(n, 1 / n)
    return solved(F, 1e-2, deadline, None).mu


@dataclass(frozen=True)
class _Root:
    """``H = F'F`` of one matrix over its attributes' cells, F (r, n_1, .., n_k), and by how much P is too long."""

    F: np.ndarray
    wrong: float


def _roots(form: TableForm, at: Sequence[np.ndarray]) -> list[_Root]:
    """The matrices of a table with roots ``at`` of its attributes: one an attribute for a product, else one."""
    if form.grams is not None:
        return [_of_gram(V * s * s[:, None], (len(V),)) for V, s in zip(form.grams, at, strict=True)]
    scale = reduce(np.multiply.outer, at)
    M = (form.root * scale).reshape(len(form.root), -1)
    shape = form.root.shape[1:]
    if len(M) == M.shape[1]:
        return [_of_gram(M.T @ M, shape)]
    values, vectors = sl.eigh(M @ M.T, check_finite=False)
    kept = values > _DEPENDENT * values[-1]
    half = vectors[:, kept] / np.sqrt(values[kept])
    wrong = float(np.linalg.norm(half.T @ (M @ M.T) @ half - np.eye(half.shape[1])))
    F = (vectors[:, kept] / values[kept] ** 0.25).T @ M
    return [_Root(F.reshape(-1, *shape), wrong)]


def _of_gram(V: np.ndarray, shape: tuple[int, ...]) -> _Root:
    values, vectors = sl.eigh(V, check_finite=False)
    kept = values > _DEPENDENT * values[-1]
    half = vectors[:, kept] / np.sqrt(values[kept])
    wrong = float(np.linalg.norm(half.T @ V @ half - np.eye(half.shape[1])))
    return _Root((vectors[:, kept] * values[kept] ** 0.25).T.reshape(-1, *shape), wrong)


@dataclass(frozen=True)
class _Pieces:
    """``K_R`` of one matrix for every set R of places of its attributes, (m, m) over the directions of the others.

    ``whole`` is the same for one attribute in R, not traced: over what is beside its directions, and the others'.
    """

    traced: Mapping[Set, np.ndarray]
    whole: Mapping[Set, np.ndarray]
    error: float
    wrong: float

    @classmethod
    def of(cls, root: _Root, spaces: Sequence[_Space]) -> _Pieces:
        trace = float(np.square(root.F).sum())
        traced: dict[Set, np.ndarray] = {}
        whole: dict[Set, np.ndarray] = {}
        places = tuple(range(len(spaces)))
        for R in subsets(places):
            X = root.F
            for q, space in enumerate(spaces):
                side = space.beside if q in R else space.Z
                X = np.moveaxis(np.tensordot(X, side, axes=(q + 1, 0)), -1, q + 1)
            last = [q + 1 for q in places if q not in R]
            summed = [q + 1 for q in R]
            order = (math.prod(X.shape[a] for a in group) for group in ((0, *summed), last))
            flat = X.transpose(0, *summed, *last).reshape(*order)
            traced[R] = flat.T @ flat
            if len(R) == 1:
                flat = X.reshape(len(X), math.prod(X.shape[1:]))
                whole[R] = flat.T @ flat if flat.shape[1] <= _COLUMNS else np.zeros((0, 0))
        error = _TRUST * trace
        traced[places] = np.maximum(traced[places] - 2 * error, 0.0)
        return cls(traced, whole, error, root.wrong)


@dataclass(frozen=True)
class _Space:
    """Directions Z (n, m) of an attribute, t first, and the columns that complete them, (n, n - m)."""

    Z: np.ndarray
    beside: np.ndarray


_Held = tuple[Ask, list[tuple[Set, _Pieces]]]
"""A table, and of each of its matrices the attributes and the pieces."""


@dataclass(frozen=True)
class _Part:
    """Tables that ask the same outside of R: K over the directions of ``axes``, times the root of ``weight``."""

    weight: float
    axes: Set
    K: np.ndarray
    error: float

    def columns(self, levels: Mapping[int, range]) -> Iterator[tuple[tuple[int, int], ...]]:
        """The attributes and directions, where not the first, that each column of K stands for."""
        for at in product(*(levels[i] for i in self.axes)):
            yield tuple((i, a) for i, a in zip(self.axes, at, strict=True) if a)


def _bound(asks: Sequence[Ask], groups: Sequence[int], at: Mapping[int, np.ndarray]) -> float:
    """The bound at given multipliers, their roots unit vectors, one a group of attributes."""
    keys = [_key(ask, groups) for ask in asks]
    roots = {key: _roots(key[0], [at[g] for g in key[1]]) for key in dict.fromkeys(keys)}
    most = _most_directions({R for ask in asks for R in subsets(ask.crossed)}, [len(at[g]) for g in groups])
    by_group = _spaces(roots, at, most)
    spaces = [by_group[g] for g in groups]
    pieces = {
        key: [
            _Pieces.of(root, [by_group[g] for g in own])
            for own, root in zip(_split(*key), found, strict=True)
        ]
        for key, found in roots.items()
    }
    holders: dict[Set, list[_Held]] = {}
    for ask, key in zip(asks, keys, strict=True):
        for R in subsets(ask.crossed):
            matrices = list(zip(_split(ask.form, ask.crossed), pieces[key], strict=True))
            holders.setdefault(R, []).append((ask, matrices))
    total = sum(_nuclear(R, held, spaces) for R, held in holders.items())
    wrong = max((p.wrong for matrices in pieces.values() for p in matrices), default=0.0)
    longest = max(len(matrices) for matrices in pieces.values())
    return (total / (1 + wrong) ** (longest / 2)) ** 2


def _split(form: TableForm, attributes: Set) -> list[Set]:
    """Which of a table's attributes each of its matrices is over."""
    return [(i,) for i in attributes] if form.grams is not None else [attributes]


def _nuclear(R: Set, held: Sequence[_Held], spaces: Sequence[_Space]) -> float:
    """The nuclear norm of a stack, rounded down, from its Gram matrix over the columns that any part has.

    Of one attribute it is not traced where there is room.
    """
    levels = {i: range(space.Z.shape[1]) for i, space in enumerate(spaces)}
    more = {i for ask, _ in held for i in ask.crossed if i not in R}
    width = spaces[R[0]].beside.shape[1] if len(R) == 1 else 0
    whole = len(held) > 1 and 0 < width * (1 + sum(len(levels[i]) - 1 for i in more)) <= _COLUMNS
    whole = whole and all(len(ask.crossed) <= 2 for ask, _ in held)
    if whole:
        levels[R[0]] = range(1, 1 + width)
    parts = [_part(ask, matrices, set(R), spaces, whole=whole) for ask, matrices in held]
    columns: dict[tuple[tuple[int, int], ...], int] = {}
    placed = [[columns.setdefault(level, len(columns)) for level in part.columns(levels)] for part in parts]
    gram = np.zeros((len(columns), len(columns)))
    for part, places in zip(parts, placed, strict=True):
        gram[np.ix_(places, places)] += part.weight * (part.K @ part.K)
    terms = len(parts) + max(len(places) for places in placed)
    return max(lowered_trace(gram, terms) - sum(part.error for part in parts), 0.0)


def _part(
    ask: Ask, matrices: Sequence[tuple[Set, _Pieces]], R: set[int], spaces: Sequence[_Space], *, whole: bool
) -> _Part:
    K, axes, relative, size = np.ones((1, 1)), [], 0.0, 1.0
    for own, pieces in matrices:
        inside = tuple(q for q, i in enumerate(own) if i in R)
        kept = whole and bool(inside)
        piece = pieces.whole[inside] if kept else pieces.traced[inside]
        K = np.kron(K, piece)
        axes += [i for i in own if kept or i not in R]
        if kept or len(inside) < len(own):  # what is traced over all attributes is lowered already
            spread = 1 if kept else math.prod(spaces[own[q]].beside.shape[1] for q in inside)
            error = pieces.error * math.sqrt(spread)
            norm = max(float(np.linalg.norm(piece)), error)
            relative += error / norm if norm else 0.0
            size *= norm
        else:
            size *= float(piece[0, 0])
    error = 2 * relative * size * math.sqrt(ask.weight * len(K))
    return _Part(ask.weight, tuple(axes), K, error)


def _spaces(
    tables: Mapping[tuple[TableForm, Set], list[_Root]], at: Mapping[int, np.ndarray], most: int
) -> dict[int, _Space]:
    """``most`` directions of the attributes of each group: t, and where roots are largest beside."""
    sizes = {g: (len(s), len(s)) for g, s in at.items()}
    onto, own = ({g: np.zeros(n) for g, n in sizes.items()} for _ in range(2))
    for key, found in tables.items():
        for attributes, root in zip(_split(*key), found, strict=True):
            for axis, g in enumerate(attributes, 1):
                X = np.moveaxis(root.F, axis, -1).reshape(-1, root.F.shape[axis])
                own[g] += X.T @ X
                X = root.F
                for other in reversed([a for a in range(1, X.ndim) if a != axis]):
                    X = np.tensordot(X, at[attributes[other - 1]], axes=(other, 0))
                onto[g] += X.T @ X
    return {g: _space(own[g], onto[g], s, most) for g, s in at.items()}


def _space(H: np.ndarray, t_side: np.ndarray, s: np.ndarray, most: int) -> _Space:
    first = s[:, None]
    for _ in range(min(_KRYLOV, len(s) - 1)):
        past = np.linalg.qr(first, mode="complete").Q[:, first.shape[1] :]
        along = past.T @ (t_side @ first[:, -1])
        if np.linalg.norm(along) <= _BESIDE * np.linalg.norm(t_side):
            break
        first = np.column_stack([first, past @ (along / np.linalg.norm(along))])
    past = np.linalg.qr(first, mode="complete").Q[:, first.shape[1] :]
    rest = past @ sl.eigh(past.T @ H @ past)[1][:, ::-1] if past.size else past
    B = np.column_stack([first[:, 1:], rest])
    return _Space(np.column_stack([s, B[:, : most - 1]]), B[:, most - 1 :])


def _most_directions(sets: set[Set], sizes: Sequence[int]) -> int:
    """As many directions of each attribute as leave no stack too large."""
    return next((m for m in range(_MOST, 1, -1) if _columns(sets, sizes, m) <= _COLUMNS), 1)


def _columns(sets: set[Set], sizes: Sequence[int], most: int) -> int:
    """Columns of the widest stack, that of R empty."""
    return sum(math.prod(min(most, sizes[i]) - 1 for i in R) for R in sets)
