"""Bases onto integer grids: what is measured is what was rounded.

A basis B (n-1, n) with columns of norm 1 becomes ``M = round(2^k B)``. Its largest column is what privacy pays for, so
after rounding single entries are moved by one step where that brings a column's norm back to ``2^k``: the loss is
then of second order in the step, and few bits do. The grids of the attributes that a residual group crosses multiply,
so that their bits add up; where they would be too many the finest become coarser.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import Unsupported
from .residual_sets import Set

TOGETHER = 34
"""Bits that the entries of one group's matrix may take: 62 leave room for 2^28 records."""

_COARSEST, _FIRST, _FINEST = 2, 12, 20
_NEGLIGIBLE = 2e-6  # relative loss of one attribute at which finer grids no longer pay
_REPAIRS = 6
_CONDITION = 1e6  # of [1'; B], for each cell, beyond which its rank counts as lost


@dataclass(frozen=True)
class Weights:
    """What the tables make of an attribute: ``sum_k a_k beta_k + b_k gamma_k`` by two matrices (n, n)."""

    beside: np.ndarray
    total: np.ndarray


@dataclass(frozen=True)
class Grid:
    """``2^-exponent * matrix`` stands for the real basis."""

    matrix: np.ndarray
    exponent: int
    loss: float


def loss_on(matrix: np.ndarray, weights: Weights, p: int) -> float:
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


def _parts(inverse: np.ndarray, weights: Weights) -> tuple[float, float]:
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
    weights: Sequence[Weights | None],
    sets: Iterable[Set],
    sizes: Sequence[int],
    p: int,
) -> list[Grid | None]:
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

    def __init__(self, basis: np.ndarray, weights: Weights, p: int) -> None:
        self._basis, self._weights, self._p = basis, weights, p
        self._known: dict[int, Grid] = {}
        beside, total = _parts(np.linalg.inv(np.vstack([np.ones(basis.shape[1]), basis])), weights)
        target = total + beside * (1 + _NEGLIGIBLE)  # the total's part is known but for a constant
        self.bits = _FIRST
        while self.bits < _FINEST and self._at(self.bits).loss > target:
            self.bits += 1
        while self.bits > _COARSEST and self._at(self.bits - 1).loss <= target:
            self.bits -= 1

    def _at(self, bits: int) -> Grid:
        if bits not in self._known:
            matrix = to_grid(self._basis, bits, self._p)
            self._known[bits] = Grid(matrix.astype(np.int64), bits, loss_on(matrix, self._weights, self._p))
        return self._known[bits]

    def coarser(self) -> bool:
        """Give up one bit; False where the basis would lose rank."""
        self.bits -= 1
        return bool(np.isfinite(self._at(self.bits).loss))

    def grid(self) -> Grid:
        return self._at(self.bits)
