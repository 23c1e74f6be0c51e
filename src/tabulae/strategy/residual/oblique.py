"""Integer queries for the space of each set of attributes: what :mod:`.spaces` finds, ready to be measured.

The cuts are fractions: ``a_i = p_i / sum p_i`` with whole numbers p_i, so that "annuls a_i" is an equation in whole
numbers. The matrix of a set is ``M = K L``: L are whole-number rows that annul the p_i and span what the tables ask of
the set, and K is rounded. So M annuls the p_i exactly however K is rounded, the sets stay independent, and rounding
costs a little accuracy as anywhere else (:mod:`..rounding`).

L of an attribute is a short basis of all whole vectors orthogonal to p_i (Lenstra, Lenstra and Lovasz), of a whole set
the product of these; where less is asked, independent rows among what the tables ask, times ``s I - p 1'``. Queries
that lean on subsets (:mod:`.leaning`) have the L of these below their own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce

import numpy as np
import scipy.linalg as sl

from ...domain import Workload
from ...errors import NotEstimable, Unsupported
from ...linalg import (
    Centring,
    Dense,
    Identity,
    Kron,
    LinearOperator,
    MatrixProduct,
    Partition,
    ShortKernel,
    Total,
)
from ..block import Block
from ..deadline import check_seconds
from ..gram import lifted
from ..information.residual_basis import Set, closure
from ..methods import Settings, register
from ..strategy import Strategy, unit_rmse
from .leaning import leaning
from .planner import TOGETHER, seconds, shared_strategy, split
from .search import LEAST, crossed_sets
from .spaces import Lean, Optimum, Part, SetKind, Solution, Spaces

_STEPS = (4, 8, 16, 32)  # whole numbers of a cut, to a cell
_AS_GOOD = 2e-5  # relative loss at which a coarser cut is as good
_COARSEST, _FINEST = 4, 34  # bits
_NEGLIGIBLE = 1e-5  # relative loss at which a finer grid no longer pays
_INDEPENDENT = 1e-9  # distance of a unit row from the span of those before it
_RANK = 1e-14  # reciprocal condition number of K'K


@dataclass(frozen=True)
class Measured:
    """``2^-exponent * matrix`` stands for a strategy: ``largest`` squared column norm, ``error`` at unit noise."""

    matrix: LinearOperator
    exponent: int
    largest: float
    error: float

    @property
    def loss(self) -> float:
        return self.largest * self.error


def oblique_strategy(
    workload: Workload, merges: Sequence[Partition], spaces: Spaces, settings: Settings
) -> Strategy:
    """The strategy of the spaces of a merged workload, on the cells of the workload itself, which ``merges`` join.

    Raises :class:`~tabulae.errors.Unsupported` where its matrices do not fit 62-bit integers.
    """
    cuts = _whole_cuts(spaces, spaces.search())
    a = [cut / cut.sum() for cut in cuts]
    ladders = _Ladders(spaces, cuts, a)
    blocks: dict[Set, tuple[Block, float, float]] = {}
    for sets, kind, solution in leaning(spaces, a, spaces.settings):
        if solution.is_nothing:
            continue
        measured = ladders.measured(kind, solution)
        for s in sets:
            blocks[s] = (
                _block(workload, merges, s, measured, whole=solution.whole),
                math.prod(m.error for m in measured) * solution.scale,
                math.prod(m.largest for m in measured),
            )
    sets = [s for s in spaces.sets if s in blocks]
    if not sets:
        raise Unsupported("nothing is asked that tells cells apart")
    error = np.array([blocks[s][1] for s in sets])
    largest = np.array([blocks[s][2] for s in sets])
    overlaps = spaces.overlaps() if settings.neighbours == "replace" else None
    scales = split(sets, np.maximum(error, LEAST * error.max()), largest, 2, overlaps)
    chosen = [
        replace(blocks[s][0], scale=scale / Fraction(4) ** blocks[s][0].exponent)
        for s, scale in zip(sets, scales, strict=True)
    ]
    return Strategy(workload.domain, tuple(chosen), "gaussian", "residual")


_MANY, _SECONDS_A_SET = 2**10, 1.6e-5  # sets that always fit; one attribute of one, chosen and scored
_TERMS = 2**12  # pairs of products that W'W may have for one basis to be shared by all sets


@register(
    "residual",
    "residual planner (for each set of attributes, what its tables ask beyond those of its subsets)",
    families=("auto",),
    turn=2,
    seconds=seconds,
    by_products=True,
)
def residual_strategy(workload: Workload, settings: Settings) -> Strategy:
    """The residual planner: the better of one basis an attribute and of a space of its own for each set.

    Spaces of their own are tried under Gaussian noise, where tables ask different things of an attribute or are no
    products; where all tables ask the same of each attribute both are one. One basis is not looked for where spaces are
    proven good enough.

    Raises :class:`~tabulae.errors.Unsupported` for tables that cross too many sets of attributes, or attributes of
    more distinguishable cells than a basis is searched for.
    """
    own, refused = None, None
    sets = len(closure(crossed_sets(workload)))
    if sets > _MANY:
        seconds = _SECONDS_A_SET * sets * len(workload.domain.attributes)
        check_seconds(settings.deadline, seconds, f"a group for each of {sets:,} sets of attributes")
    if settings.noise == "gaussian":
        try:
            merged, merges = workload.merge()
            spaces = Spaces(merged, settings)
            own = oblique_strategy(workload, merges, spaces, settings) if spaces.differ else None
        except Unsupported as caught:
            refused = caught
    if own is not None and sum(len(table.terms) ** 2 for table in workload.tables) > _TERMS + len(
        workload.tables
    ):
        return own
    if own is not None and settings.is_enough(_score(own, workload, settings) ** 2 * workload.queries):
        return own
    try:
        shared = shared_strategy(workload, settings)
    except Unsupported as caught:
        if own is None:
            raise (refused or caught) from None
        return own
    if own is None:
        return shared
    better = min((own, shared), key=lambda strategy: _score(strategy, workload, settings))
    return replace(better, lower=shared.lower)


def _score(strategy: Strategy, workload: Workload, settings: Settings) -> float:
    try:
        return unit_rmse(strategy, workload, settings.neighbours)
    except NotEstimable:  # a group that the invariants leave too little of to be measured
        return math.inf


def _whole_cuts(spaces: Spaces, a: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Whole numbers near multiples of a: the coarsest that lose nothing that matters."""
    tried = []
    for step in _STEPS:
        cuts = [_whole(step * len(cut) * cut) for cut in a]
        tried.append((spaces.value([cut / cut.sum() for cut in cuts])[0], cuts))
    least = min(value for value, _ in tried)
    return next(cuts for value, cuts in tried if value <= least * (1 + _AS_GOOD))


def _whole(real: np.ndarray) -> np.ndarray:
    cut = np.rint(real).astype(np.int64)
    return cut // max(1, np.gcd.reduce(cut))


def _block(
    workload: Workload, merges: Sequence[Partition], s: Set, measured: Sequence[Measured], *, whole: bool
) -> Block:
    names = workload.domain.names
    name = "*".join(names[i] for i in s) or "total"
    factors: list[LinearOperator] = [Total(n) for n in workload.domain.shape]
    for place, i in enumerate(s):
        matrix = Identity(merges[i].shape[0]) if whole and len(s) > 1 else measured[place].matrix
        factors[i] = lifted(matrix, merges[i])
    query: LinearOperator = Kron(factors)
    if whole and len(s) > 1:
        query = MatrixProduct(measured[0].matrix, query)
    return Block(name, query, sum(m.exponent for m in measured) if s else 0)


class _Ladders:
    """Every optimum on finer and finer grids, found once."""

    def __init__(self, spaces: Spaces, cuts: Sequence[np.ndarray], a: Sequence[np.ndarray]) -> None:
        self._spaces, self._cuts, self._a = spaces, cuts, a
        self._bases: dict[int, np.ndarray] = {}
        self._known: dict[int, _Ladder] = {}

    def measured(self, kind: SetKind, solution: Solution) -> list[Measured]:
        """What is measured of a set, an attribute at a time or as a whole, within the bits that a block may take."""
        if not kind.colours:
            return [Measured(Total(1), 0, 1.0, solution.root**2 / solution.scale)]
        if solution.whole:
            rank = len(solution.factors[0].rows)
            ladder = self._of(solution.factors[0], lambda: self._set_rows(kind, rank, solution.leans))
            return [ladder.at(min(ladder.bits, TOGETHER))]
        part = kind.parts[0]
        exact: dict[int, Measured] = {}
        ladders: dict[int, _Ladder] = {}
        for place, (q, optimum) in enumerate(zip(part.inside, solution.factors, strict=True)):
            colour, V = part.colours[q], part.form.grams
            assert V is not None
            if self._spaces.is_alike(colour):
                exact[place] = _centred(V[q])
            else:
                ladders[place] = self._of(optimum, lambda c=colour, v=V[q], o=optimum: self._rows(c, v, o))
        bits = {place: ladder.bits for place, ladder in ladders.items()}
        fixed = sum(math.log2(m.largest) / 2 for m in exact.values())
        while bits and sum(bits.values()) + fixed > TOGETHER:
            widest = max(bits, key=lambda place: bits[place])
            if bits[widest] <= _COARSEST:
                raise Unsupported(
                    f"a table crosses {len(kind.colours)} attributes whose real-valued queries do not fit 62-bit "
                    "integers together"
                )
            bits[widest] -= 1
        return [
            exact[place] if place in exact else ladders[place].at(bits[place])
            for place in range(len(kind.colours))
        ]

    def _of(self, optimum: Optimum, rows) -> _Ladder:
        if id(optimum) not in self._known:
            self._known[id(optimum)] = _Ladder(optimum, rows())
        return self._known[id(optimum)]

    def _basis(self, colour: int) -> np.ndarray:
        """A short basis of the whole vectors orthogonal to p, (n - 1, n)."""
        if colour not in self._bases:
            self._bases[colour] = ShortKernel(self._cuts[colour][None]).kernel
        return self._bases[colour]

    def _rows(self, colour: int, gram: np.ndarray, optimum: Optimum) -> np.ndarray:
        """Whole-number rows that span what one attribute is asked."""
        if len(optimum.rows) == len(self._cuts[colour]) - 1:
            return self._basis(colour)
        return _independent([_centred_rows(_integers(gram), 1, self._cuts[colour])], len(optimum.rows))

    def _set_rows(self, kind: SetKind, rank: int, leans: Sequence[Lean] = ()) -> np.ndarray:
        """The same of a set as a whole, and below them those of the subsets that it leans on."""
        if rank == math.prod(len(self._cuts[c]) - 1 for c in kind.colours):
            own = reduce(np.kron, [self._basis(c) for c in kind.colours], np.ones((1, 1), dtype=np.int64))
        else:
            own = _independent([self._part_rows(part) for part in kind.parts], rank)
        sizes = [len(self._cuts[c]) for c in kind.colours]
        rows = [own]
        for lean in leans:
            below = self._set_rows(self._spaces.kinds[lean.kind], lean.rank)
            shape = [n if q in lean.places else 1 for q, n in enumerate(sizes)]
            rows.append(
                np.broadcast_to(below.reshape(-1, *shape), (len(below), *sizes)).reshape(len(below), -1)
            )
        return np.concatenate(rows)

    def _part_rows(self, part: Part) -> np.ndarray:
        """What one table asks of the set, times whole numbers."""
        if part.form.grams is not None:
            sides = [
                _centred_rows(_integers(part.form.grams[q]), 1, self._cuts[part.colours[q]])
                for q in part.inside
            ]
            return reduce(np.kron, sides)
        assert part.form.rows is not None
        rows = _integers(part.form.rows)
        for q, place in reversed(list(enumerate(part.places))):
            cut = self._cuts[part.colours[q]]
            rows = (
                np.tensordot(rows, cut, axes=(q + 1, 0)) if place is None else _centred_rows(rows, q + 1, cut)
            )
        return rows.reshape(len(rows), -1)


def _integers(matrix: np.ndarray) -> np.ndarray:
    whole = np.rint(matrix).astype(np.int64)
    if not np.array_equal(whole, matrix):
        raise Unsupported("a table asks for real-valued combinations of counts")
    return whole


def _centred_rows(rows: np.ndarray, axis: int, cut: np.ndarray) -> np.ndarray:
    """``rows (s I - p 1')`` along one axis, s the sum of p; each row without a common divisor."""
    summed = np.expand_dims(np.tensordot(rows, cut, axes=(axis, 0)), axis)
    rows = rows * int(cut.sum()) - summed
    if np.abs(rows).max(initial=0) >= 2**40:
        raise Unsupported("what is asked of a set does not fit 62-bit integers")
    divisors = np.gcd.reduce(rows.reshape(len(rows), -1), axis=1)
    return rows // np.maximum(divisors, 1).reshape(-1, *[1] * (rows.ndim - 1))


def _independent(parts: Sequence[np.ndarray], rank: int) -> np.ndarray:
    """So many rows that are far from dependent, (rank, cells)."""
    rows = np.unique(np.concatenate(parts), axis=0)
    rows = rows[rows.any(axis=1)]
    directions = rows / np.linalg.norm(rows.astype(float), axis=1, keepdims=True)
    _, _, order = sl.qr(directions.T, mode="economic", pivoting=True)  # pyright: ignore[reportAssignmentType]
    return rows[order[:rank]]


def _centred(gram: np.ndarray) -> Measured:
    """The centring matrix, where all cells are asked alike."""
    n = len(gram)
    error = float(gram[0, 0] - (gram[0, 1] if n > 1 else 0.0)) * (n - 1) / n**2
    return Measured(Centring(n), 0, float(n * (n - 1)), error)


class _Ladder:
    """One optimum ``A = B L`` (r, n) of ``G = F'F`` as ``M = round(2^k R) L``, with ``R'R = B'B`` and R triangular.

    L has r rows, and below them those that A leans on, which what is asked does not depend on.
    """

    def __init__(self, optimum: Optimum, rows: np.ndarray) -> None:
        self._rows = rows
        scale = np.linalg.norm(rows.astype(float), axis=1)
        lifting = np.linalg.pinv(rows / scale[:, None]) / scale  # L^+
        self._asked = (optimum.rows @ lifting)[:, : len(optimum.rows)]
        self._real = np.linalg.qr(optimum.strategy @ lifting, mode="r")
        self._known: dict[int, Measured | None] = {}
        self.bits = _FINEST
        target = optimum.loss * (1 + _NEGLIGIBLE)
        for bits in range(_COARSEST, _FINEST + 1):
            found = self._rounded(bits)
            if found is not None and found.loss <= target:
                self.bits = bits
                break

    def at(self, bits: int) -> Measured:
        found = self._rounded(bits)
        if found is None:
            raise Unsupported(f"the queries of a set lose rank on a grid of 2^-{bits}")
        return found

    def _rounded(self, bits: int) -> Measured | None:
        if bits not in self._known:
            self._known[bits] = self._round(bits)
        return self._known[bits]

    def _round(self, bits: int) -> Measured | None:
        K = np.rint(np.ldexp(self._real, bits))
        if not np.abs(np.diagonal(K)).all():
            return None
        most = np.abs(K).max() * np.abs(self._rows).sum(axis=0).max()
        if most >= 2**62:
            return None
        exact = np.float64 if most < 2**53 else np.int64  # products in floating point are faster
        matrix = (K.astype(exact) @ self._rows.astype(exact)).astype(np.int64)
        largest = float(np.square(matrix.astype(float)).sum(axis=0).max())
        asked = sl.solve_triangular(K[:, : len(K)].T, self._asked.T, lower=True, check_finite=False)
        return Measured(Dense(matrix), bits, largest, float(np.square(asked).sum()))
