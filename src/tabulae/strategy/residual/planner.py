"""The residual planner: every set of attributes that a table crosses is measured by what its subsets leave open.

For each attribute the tables decide a basis ``[1'; B_i]`` (:mod:`.search`); for each set S of attributes that
some table crosses the group ``(x)_{i in S} B_i (x)_{i not in S} 1'`` is measured; and every table is a sum over its own
subsets (:mod:`..information.residual`), so that nothing of the size of the domain is formed. Where every cell is asked
alike, as in marginals, B_i is the centring matrix and the result is the optimum: its loss meets the SVD bound (HDMM,
Theorem 12).

How much noise each group takes. Group S costs a record ``x_S`` (``c_S / s_S^2``, or ``c_S / b_S`` for Laplace noise,
with c_S the norm of its largest column) and brings the tables the error ``u_S / x_S^t``, with ``u_S = v_S c_S^t`` and
t = 1 (Gaussian) or 2 (Laplace).

add-remove   every record meets every group: ``sum_S x_S <= 1``, and x_S is proportional to ``u_S^(1/(t+1))``.
replace      two records that differ in the attributes D are ``2 sum_S x_S (1 - prod_{i in S and D} r_i)`` apart, with
             r_i the least inner product of two columns of B_i as a share of the largest norm (``-1/(n-1)`` for the
             centring matrix); for the L1 distance, what two columns have in common. The problem is convex with one
             constraint for each D; those that matter are found one by one. The group of the total is free: its noise
             is made small, and never zero.

What is measured is what was rounded: a basis B (n-1, n) with columns of norm 1 becomes ``M = round(2^k B)``. Privacy
pays for its largest column, so single entries are moved by one step where that brings a column's norm back to ``2^k``:
the loss is then of second order in the step, and few bits do. The bits of the attributes that a group crosses add up;
where they would be too many the finest grids become coarser.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from ...domain import Workload
from ...errors import Unsupported
from ...linalg import Centring, Dense, LinearOperator
from ..block import Block, crossing, short_scale
from ..bounds.lower import unit_bound
from ..deadline import SECONDS_A_CUBE
from ..gram import dense_grams, lifted, product_factors
from ..hdmm.opt0 import opt0_gaussian
from ..information.residual import set_shares
from ..information.residual_basis import Basis, Set, basis_of, closure
from ..methods import Settings
from ..strategy import Strategy
from .search import (
    LEAST,
    ROOT,
    WIDEST,
    WorkloadGram,
    alike,
    asked_of,
    basis_traces,
    crossed_sets,
    mixtures,
    search,
)

_FREE = 1e-6  # share of the error that the group of the total may bring where it costs nothing
_CUTS, _STEPS = 60, 500
_LISTED, _STARTS = 16, 3  # attributes whose subsets are all compared; constraints from which a search starts
_CLOSE = 1e-5  # by which a cost may exceed the budget before the answer is scaled to it


def split(
    sets: Sequence[Set], error: np.ndarray, columns: np.ndarray, norm: int, overlaps: np.ndarray | None
) -> list[Fraction]:
    """The relative variance (norm 2) or Laplace scale (norm 1) of each group, on the grid of its integer matrix.

    ``error`` is v_S, ``columns`` the power sum c_S of the largest column; ``overlaps`` (attributes,) are the r_i under
    replace-one neighbours, None under add-remove.

    >>> [round(float(s), 5) for s in split([(), (0,)], np.array([1.0, 4.0]), np.ones(2), 2, None)]
    [3.0, 1.5]
    """
    t = 3 - norm
    shares = error * columns**t
    if overlaps is None:
        cost = shares ** (1 / (t + 1))
        cost = cost / cost.sum()
    else:
        cost = _under_replace(sets, shares, t, overlaps)
    return [short_scale(float(x / c)) for x, c in zip(cost, columns, strict=True)]


def _under_replace(sets: Sequence[Set], shares: np.ndarray, t: int, overlaps: np.ndarray) -> np.ndarray:
    """Least ``sum u_S / x_S^t`` such that no two records are further apart than 1."""
    charged = np.array([bool(s) for s in sets])
    if not charged.any():
        raise Unsupported('no table changes when one record is replaced by another: choose "identity"')
    members = np.zeros((len(sets), len(overlaps)), dtype=bool)
    for row, s in zip(members, sets, strict=True):
        row[list(s)] = True
    members, some = members[charged], shares[charged]
    apart = np.ones((1, len(overlaps)), dtype=bool)
    prices = np.ones(1)
    for _ in range(_CUTS):
        distances = _distances(members, apart, overlaps)
        cost, prices = _priced(some, t, distances, prices)
        furthest = _furthest(members, cost, overlaps, apart)
        if (_distances(members, furthest[None], overlaps) @ cost)[0] <= 1 + _CLOSE:
            break
        apart, prices = np.vstack([apart, furthest]), np.append(prices, prices.mean())
    out = np.empty(len(sets))
    out[charged] = cost
    rest = float((some / cost**t).sum())
    out[~charged] = np.maximum((shares[~charged] / (_FREE * rest)) ** (1 / t), cost.max())
    return out


def _distances(members: np.ndarray, apart: np.ndarray, overlaps: np.ndarray) -> np.ndarray:
    """``2 (1 - prod_{i in S and D} r_i)`` for each D (rows) and S (columns)."""
    return np.array([2 - 2 * np.where(members & d, overlaps, 1.0).prod(axis=1) for d in apart])


def _priced(
    shares: np.ndarray, t: int, distances: np.ndarray, prices: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The optimum under the constraints so far, by multiplicative steps on their prices."""
    for _ in range(_STEPS):
        price = prices @ distances
        cost = (shares / np.maximum(price, 1e-12 * price.max())) ** (1 / (t + 1))
        reached = distances @ cost
        cost = cost / reached.max()
        prices = prices * reached / reached.max()
        prices = np.maximum(prices / prices.max(), 1e-12)
        # at the optimum all that is paid for is reached
        if (prices @ reached) / (prices.sum() * reached.max()) > 1 - _CLOSE:
            break
    return cost, prices


def _furthest(members: np.ndarray, cost: np.ndarray, overlaps: np.ndarray, known: np.ndarray) -> np.ndarray:
    """The D of the largest distance; beyond ``_LISTED`` attributes the largest that flipping one at a time finds."""
    named = np.flatnonzero(members.any(axis=0))
    if len(named) <= _LISTED:
        code = int(_all_distances(members[:, named], cost, overlaps[named]).argmax())
        apart = np.zeros(len(overlaps), dtype=bool)
        apart[named] = [code >> (len(named) - 1 - k) & 1 for k in range(len(named))]
        return apart
    ends = [_climbed(members, cost, overlaps, start) for start in known[-_STARTS:]]
    return max(ends, key=lambda end: end[0])[1]


def _all_distances(members: np.ndarray, cost: np.ndarray, overlaps: np.ndarray) -> np.ndarray:
    """Half the distances for all D, (2^d,): one attribute at a time, in O(d 2^d)."""
    d = len(overlaps)
    total = np.bincount(members @ (1 << np.arange(d)[::-1]), weights=cost, minlength=2**d).reshape([2] * d)
    for axis, r in enumerate(overlaps):
        out, inside = np.take(total, 0, axis=axis), np.take(total, 1, axis=axis)
        total = np.stack([out + inside, out + r * inside], axis=axis)
    return cost.sum() - total.ravel()


def _climbed(
    members: np.ndarray, cost: np.ndarray, overlaps: np.ndarray, start: np.ndarray
) -> tuple[float, np.ndarray]:
    """A distance that no flip of one attribute enlarges, and its D."""
    here, value = start, float((_distances(members, start[None], overlaps) @ cost)[0])
    while True:
        flipped = here ^ np.eye(len(here), dtype=bool)
        values = _distances(members, flipped, overlaps) @ cost
        if values.max() <= value * (1 + 1e-12):
            return value, here
        here, value = flipped[values.argmax()], float(values.max())


TOGETHER = 34
"""Bits that the entries of one group's matrix may take: 62 leave room for 2^28 records."""

_COARSEST, _FIRST, _FINEST = 2, 12, 20
_NEGLIGIBLE = 2e-6  # relative loss of one attribute at which finer grids no longer pay
_REPAIRS = 6
_CONDITION = 1e6  # of [1'; B], for each cell, beyond which its rank counts as lost


@dataclass(frozen=True)
class SetWeights:
    """What the tables make of an attribute: ``sum_k a_k beta_k + b_k gamma_k`` by two matrices (n, n)."""

    beside: np.ndarray
    total: np.ndarray


@dataclass(frozen=True)
class ScaledBasis:
    """``2^-exponent * matrix`` stands for the real basis."""

    matrix: np.ndarray
    exponent: int
    loss: float


def loss_on(matrix: np.ndarray, weights: SetWeights, p: int) -> float:
    """What the tables' error comes to under an integer basis, its largest column made 1; infinite without full rank."""
    size = float((np.abs(matrix) ** p).sum(axis=0).max()) ** (1 / p)
    if not size:
        return np.inf
    whole = np.vstack([np.ones(matrix.shape[1]), matrix / size])
    try:
        inverse = np.linalg.inv(whole)
    except np.linalg.LinAlgError:
        return np.inf
    if np.linalg.norm(inverse) * np.linalg.norm(whole) > _CONDITION * len(whole):
        return np.inf
    return sum(_parts(inverse, weights))


def _parts(inverse: np.ndarray, weights: SetWeights) -> tuple[float, float]:
    """The errors from the residuals and from the total."""
    q, rest = inverse[:, 0], inverse[:, 1:]
    return float(np.vdot(rest, weights.beside @ rest)), float(q @ weights.total @ q)


def to_grid(basis: np.ndarray, bits: int, p: int) -> np.ndarray:
    """Integers near ``2^bits * basis`` whose columns' norms are near ``2^bits``."""
    exact = np.ldexp(basis, bits)
    matrix = np.rint(exact)
    target = float(2**bits) ** p
    columns = np.arange(matrix.shape[1])
    for _ in range(_REPAIRS):
        excess = (np.abs(matrix) ** p).sum(axis=0) - target
        moved = matrix[None] + np.array([1.0, -1.0])[:, None, None]
        after = np.abs(excess + np.abs(moved) ** p - np.abs(matrix) ** p)
        after[np.abs(moved - exact) > 1.5] = np.inf
        best = after.reshape(-1, matrix.shape[1]).argmin(axis=0)
        step, row = np.divmod(best, matrix.shape[0])
        gain = after[step, row, columns] < np.abs(excess)
        matrix[row[gain], columns[gain]] = moved[step[gain], row[gain], columns[gain]]
    return matrix


def share_grids(
    bases: Sequence[np.ndarray | None],
    weights: Sequence[SetWeights | None],
    sets: Iterable[Set],
    sizes: Sequence[int],
    p: int,
) -> list[ScaledBasis | None]:
    """Each basis on the coarsest grid that loses nothing that matters, within the bits that a group may take.

    ``sizes`` are the largest entries of the attributes whose basis is no grid's matter.
    """
    ladders = [
        None if b is None or w is None else _Ladder(b, w, p) for b, w in zip(bases, weights, strict=True)
    ]
    fixed = [
        0.0 if ladder is not None else float(np.log2(max(n, 1)))
        for ladder, n in zip(ladders, sizes, strict=True)
    ]
    for s in sorted(sets, key=len, reverse=True):
        real = [ladder for i in s if (ladder := ladders[i]) is not None]
        while real and sum(r.bits for r in real) + sum(fixed[i] for i in s) > TOGETHER:
            widest = max(real, key=lambda r: r.bits)
            if widest.bits <= _COARSEST or not widest.coarser():
                raise Unsupported(
                    f"a table crosses {len(s)} attributes whose real-valued queries do not fit 62-bit integers "
                    'together: cross fewer attributes that are asked for ranges or groups, or choose "kron" or "union"'
                )
    return [None if ladder is None else ladder.grid() for ladder in ladders]


class _Ladder:
    """One basis on finer and finer grids."""

    def __init__(self, basis: np.ndarray, weights: SetWeights, p: int) -> None:
        self._basis, self._weights, self._p = basis, weights, p
        self._known: dict[int, ScaledBasis] = {}
        beside, total = _parts(np.linalg.inv(np.vstack([np.ones(basis.shape[1]), basis])), weights)
        target = total + beside * (1 + _NEGLIGIBLE)  # the total's part is known but for a constant
        self.bits = _FIRST
        while self.bits < _FINEST and self._at(self.bits).loss > target:
            self.bits += 1
        while self.bits > _COARSEST and self._at(self.bits - 1).loss <= target:
            self.bits -= 1

    def _at(self, bits: int) -> ScaledBasis:
        if bits not in self._known:
            matrix = to_grid(self._basis, bits, self._p)
            self._known[bits] = ScaledBasis(
                matrix.astype(np.int64), bits, loss_on(matrix, self._weights, self._p)
            )
        return self._known[bits]

    def coarser(self) -> bool:
        """Give up one bit; False where the basis would lose rank."""
        self.bits -= 1
        return bool(np.isfinite(self._at(self.bits).loss))

    def grid(self) -> ScaledBasis:
        return self._at(self.bits)


_BOUND = 1e-6  # relative gap to which the bound is computed
_LAPLACE_STEPS = 600  # eigendecompositions' worth of a search under Laplace noise
_EXACT = 1e-13  # share of the error of a group that is only there by rounding


def seconds(workload: Workload, settings: Settings) -> float:
    """What the search takes under Laplace noise, where it is long; under Gaussian noise it comes first."""
    if settings.noise == "gaussian":
        return 0.0
    merged, _ = workload.merge()
    asked = zip(
        merged.domain.shape, zip(*(factors for _, factors in merged.gram_terms()), strict=True), strict=True
    )
    wide = [n for n, grams in asked if n <= WIDEST and any(alike(gram) is None for gram in set(grams))]
    return _LAPLACE_STEPS * SECONDS_A_CUBE * sum(float(n) ** 3 for n in wide)


def shared_strategy(workload: Workload, settings: Settings) -> Strategy:
    """One basis an attribute for all sets: total squared error ``(sum_S sqrt(v_S))^2`` at unit budget.

    Exact for marginals, for one attribute and for one product; near the optimum for tables that ask the same of each
    attribute (prefix marginals), and an upper bound of it for tables that ask different things of one attribute.

    Raises :class:`~tabulae.errors.Unsupported` for tables that cross too many sets of attributes, or attributes of
    more distinguishable cells than a basis is searched for.
    """
    sets = closure(crossed_sets(workload))
    merged, merges = workload.merge()
    asked = asked_of(merged, sets, settings)
    reals = search(asked, settings)
    grids = share_grids(reals, _weights(asked, reals, settings), sets, merged.domain.shape, settings.norm)
    factors: list[LinearOperator] = [
        lifted(Centring(merge.shape[0]) if grid is None else Dense(grid.matrix), merge)
        for grid, merge in zip(grids, merges, strict=True)
    ]
    exponents = [0 if grid is None else grid.exponent for grid in grids]
    names = workload.domain.names
    blocks = [crossing(names, s, factors, sum(exponents[i] for i in s)) for s in sets]
    bases = [basis_of(f) if m.shape[0] > 1 else None for f, m in zip(factors, merges, strict=True)]
    blocks = _split_over(blocks, sets, bases, workload, settings)
    return Strategy(
        workload.domain, blocks, settings.noise, "residual", lower=_lower(merged, asked, settings)
    )


def _weights(
    asked: WorkloadGram, reals: Sequence[np.ndarray | None], settings: Settings
) -> list[SetWeights | None]:
    """What rounding each basis is judged by: the slopes of the whole error at the real bases."""
    traces = [
        asked.closed[i] if basis is None else basis_traces(basis, asked.grams[i])  # type: ignore[arg-type]
        for i, basis in enumerate(reals)
    ]
    slopes = asked.slopes(traces, ROOT[settings.norm])
    return [
        None if grams is None else SetWeights(*mixtures(grams, slope))
        for slope, grams in zip(slopes, asked.grams, strict=True)
    ]


def _split_over(
    blocks: Sequence[Block],
    sets: Sequence[Set],
    bases: Sequence[Basis | None],
    workload: Workload,
    settings: Settings,
) -> tuple[Block, ...]:
    """The blocks with the scales that are best for their integer matrices."""
    error = set_shares(workload, bases, sets)
    if settings.invariants:  # what they fix is asked by no table, and its group is left out
        asked = error > _EXACT * error.max()
        sets = [s for s, is_asked in zip(sets, asked, strict=True) if is_asked]
        blocks = [b for b, is_asked in zip(blocks, asked, strict=True) if is_asked]
        error = error[asked]
    error = np.maximum(error, LEAST * error.max())
    p = settings.norm
    largest = [1.0 if b is None else float(b.operator.column_norms(p).max()) for b in bases]
    columns = np.array([math.prod(largest[i] for i in s) for s in sets])
    overlaps = None
    if settings.neighbours == "replace":
        overlaps = np.array([1.0 if b is None else b.overlap(p) for b in bases])
    scales = split(sets, error, columns, p, overlaps)
    return tuple(
        replace(block, scale=scale / Fraction(2) ** (p * block.exponent))
        for block, scale in zip(blocks, scales, strict=True)
    )


def _lower(merged: Workload, asked: WorkloadGram, settings: Settings) -> float | None:
    """The dual bound where residual groups meet it: one attribute, or tables that are one product together.

    Marginals need none: the SVD bound is theirs; others have one with multipliers that are a product.
    """
    searched = [g.shape[1] for g in asked.grams if g is not None]
    if settings.noise != "gaussian" or settings.neighbours != "add-remove" or not searched:
        return None
    if sum(n > 1 for n in merged.domain.shape) == 1:
        return unit_bound(merged, "dual", deadline=settings.deadline)
    factors = product_factors(dense_grams(merged)) if max(merged.domain.shape) <= WIDEST else None
    if factors is None:
        return None
    return math.prod(opt0_gaussian(V, tolerance=_BOUND, deadline=settings.deadline).lower for V in factors)
