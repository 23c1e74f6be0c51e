"""The bound of tables over d attributes that are all alike: the same queries of each, and the same of every two.

The dual at multipliers that are a product of one and the same mu, D = diag(mu (x) .. (x) mu), is

    loss >= (tr (W D W')^1/2)^2.

W D W' commutes with permutations of the attributes. Queries O of one attribute (p, n) and pairs of attributes fall
apart by how these act on them (the Johnson scheme). A table of pairs that changing places leaves as it is has its Gram
matrix from rows E that are even, ``E(a, b) = E(b, a)``, and rows F that are odd, ``F(a, b) = -F(b, a)``. With ``E mu``
the rows summed over one attribute, and for unit vectors v of d numbers that add up to 0,

    O  v_i,     E  (v_i + v_j) / (d - 2)^1/2,     F  (v_i - v_j) / d^1/2

one block of p + q + r rows is there d - 1 times; one of the total, O and E once; one of E alone d (d - 3) / 2 times;
one of F alone (d - 1)(d - 2) / 2 times. So no matrix is larger than one attribute's and one pair's queries together,
however large d is, and the norm is exact at mu, which is searched for along its slope.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Hashable
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce

import numpy as np
import scipy.linalg as sl
from scipy.optimize import minimize

from ...domain import Workload
from ...errors import Unsupported
from ..deadline import check_time
from ..residual.spaces import EXPLICIT, Ask, asks_of

_EPS = float(np.finfo(np.float64).eps)
_DEPENDENT = 1e-11  # rows whose squared size is below this share of the largest are left out, which is safe
_NOISE = 1e-14  # eigenvalues below this share of the largest of all blocks are rounding
_WORK, _MOST = 1.5e10, 40  # cubes of the order that a search may take, and evaluations
_SETTLED = 1e-7
_ROUNDING = 1e-12  # share taken off for the sums of roots and of mu


@dataclass(frozen=True)
class Alike:
    """Queries of d attributes: ``own`` (p, n), ``even`` (q, n, n), ``odd`` (r, n, n); ``total`` is a squared weight."""

    d: int
    total: float
    own: np.ndarray
    even: np.ndarray
    odd: np.ndarray

    @classmethod
    def of(cls, merged: Workload) -> Alike | None:
        """What a workload over merged cells asks; None where its attributes are not alike, or tables cross three."""
        sizes = {n for n in merged.domain.shape if n > 1}
        axes = [i for i, n in enumerate(merged.domain.shape) if n > 1]
        d = len(axes)
        if len(sizes) != 1 or d < 3 or sizes.pop() ** 2 > 4 * EXPLICIT:
            return None
        asked: dict[tuple[int, ...], list[Ask]] = {}
        for ask in asks_of(merged):
            asked.setdefault(ask.crossed, []).append(ask)
        pairs = d * (d - 1) // 2
        counts = Counter(len(crossed) for crossed in asked)
        if max(counts) > 2 or counts[1] not in (0, d) or counts[2] != pairs:
            return None
        kinds: dict[int, set[Hashable]] = {}
        for crossed, asks in asked.items():
            same: dict[Hashable, float] = {}
            for ask in asks:
                if len(set(ask.form.roles)) > 1:  # the two attributes may not change places
                    return None
                same[ask.form] = same.get(ask.form, 0.0) + ask.weight
            kinds.setdefault(len(crossed), set()).add(frozenset(same.items()))
        if any(len(kind) > 1 for kind in kinds.values()):
            return None
        n = merged.domain.shape[axes[0]]
        own = [_rows(ask) for ask in asked.get((axes[0],), [])]
        both = np.concatenate([_rows(ask) for ask in asked[axes[0], axes[1]]]).reshape(-1, n, n)
        turned = both.transpose(0, 2, 1)
        return cls(
            d,
            sum(ask.weight for ask in asked.get((), [])),
            _independent(np.concatenate([np.zeros((0, n)), *own])),
            _independent(((both + turned) / 2).reshape(-1, n * n)).reshape(-1, n, n),
            _independent(((both - turned) / 2).reshape(-1, n * n)).reshape(-1, n, n),
        )

    @property
    def order(self) -> int:
        """Rows of the largest block."""
        return 1 + len(self.own) + len(self.even) + len(self.odd)

    def nuclear(self, mu: np.ndarray) -> float:
        """``tr (W D W')^1/2`` for mu (n,), rounded down."""
        sums = _Sums.of(self, mu)
        return sum(
            times * _lowered(block, sums.error(self, once=times == 1)) for times, block in sums.blocks(self)
        )

    def slope(self, mu: np.ndarray) -> tuple[float, np.ndarray]:
        """The same, not rounded, and its slope by mu."""
        sums, value, inverses = _Sums.of(self, mu), 0.0, []
        spectra = [(times, *sl.eigh(block, check_finite=False)) for times, block in sums.blocks(self)]
        noise = _NOISE * max(float(values.max(initial=0.0)) for _, values, _ in spectra)
        for times, values, vectors in spectra:
            kept = values > max(_DEPENDENT * float(values.max(initial=0.0)), noise)
            roots = np.sqrt(values[kept])
            value += times * float(roots.sum())
            inverses.append(times / 2 * (vectors[:, kept] / roots) @ vectors[:, kept].T)
        return value, sums.slope(self, mu, inverses)


def _rows(ask: Ask) -> np.ndarray:
    """The table's queries times its weight, (m, cells), or others with the same Gram matrix."""
    form = ask.form
    if form.grams is not None:
        return math.sqrt(ask.weight) * reduce(np.kron, form.roots)
    assert form.rows is not None
    return math.sqrt(ask.weight) * form.rows.reshape(len(form.rows), -1)


def _independent(rows: np.ndarray) -> np.ndarray:
    """Fewest rows with the same Gram matrix."""
    if not rows.any():
        return rows[:0]
    values, vectors = sl.eigh(rows @ rows.T, check_finite=False)
    return vectors[:, values > _DEPENDENT * values[-1]].T @ rows


def _lowered(block: np.ndarray, error: float) -> float:
    values = np.linalg.eigvalsh(block)
    return float(
        np.sqrt(np.maximum(values - error - 4 * len(block) * _EPS * np.abs(values).max(initial=0), 0)).sum()
    )


@dataclass(frozen=True)
class _Sums:
    """The products of rows over the cells that two tables share, at multipliers mu.

    ``one`` (p,) and ``none`` (q,) are sums over all cells; ``shared`` (q + r, n) those of pairs over one attribute.
    """

    one: np.ndarray
    none: np.ndarray
    shared: np.ndarray
    same: np.ndarray
    beside: np.ndarray
    touching: np.ndarray
    even: np.ndarray
    odd: np.ndarray

    @classmethod
    def of(cls, asked: Alike, mu: np.ndarray) -> _Sums:
        shared = np.concatenate([asked.even, asked.odd]) @ mu
        square = np.outer(mu, mu).ravel()
        even, odd = (rows.reshape(len(rows), len(square)) for rows in (asked.even, asked.odd))
        return cls(
            asked.own @ mu, shared[: len(even)] @ mu, shared,
            (asked.own * mu) @ asked.own.T, (asked.own * mu) @ shared.T, (shared * mu) @ shared.T,
            (even * square) @ even.T, (odd * square) @ odd.T,
        )  # fmt: skip

    def blocks(self, asked: Alike) -> list[tuple[int, np.ndarray]]:
        """How often each block is there, and the block."""
        d, q = asked.d, len(self.none)
        one, none, ee, eo, oo = (
            self.one, self.none, self.touching[:q, :q], self.touching[:q, q:], self.touching[q:, q:],
        )  # fmt: skip
        across = np.outer(one, none)
        t = math.sqrt(asked.total)
        once = _symmetric([
            [np.full((1, 1), asked.total), t * math.sqrt(d) * one[None], t * math.sqrt(d * (d - 1) / 2) * none[None]],
            [
                self.same + (d - 1) * np.outer(one, one),
                math.sqrt((d - 1) / 2) * (2 * self.beside[:, :q] + (d - 2) * across),
            ],
            [self.even + 2 * (d - 2) * ee + (d - 2) * (d - 3) / 2 * np.outer(none, none)],
        ])  # fmt: skip
        standard = _symmetric([
            [
                self.same - np.outer(one, one),
                math.sqrt(d - 2) * (self.beside[:, :q] - across),
                math.sqrt(d) * self.beside[:, q:],
            ],
            [self.even + (d - 4) * ee - (d - 3) * np.outer(none, none), math.sqrt(d * (d - 2)) * eo],
            [self.odd + (d - 2) * oo],
        ])  # fmt: skip
        return [
            (1, once),
            (d - 1, standard),
            (d * (d - 3) // 2, self.even - 2 * ee + np.outer(none, none)),
            ((d - 1) * (d - 2) // 2, self.odd - 2 * oo),
        ]

    def error(self, asked: Alike, *, once: bool) -> float:
        """By how much rounding may move an eigenvalue of a block: of sums over n n cells, each times a count."""
        d = asked.d
        one, none = float(self.one @ self.one), float(self.none @ self.none)
        pairs = sum(float(np.trace(m)) for m in (self.even, self.odd))
        size = float(np.trace(self.same)) + pairs + d * float(np.trace(self.touching))
        size += asked.total + d * one + d * d / 2 * none if once else one + d * none
        return 4 * (asked.own.shape[1] ** 2 + asked.order + 8) * _EPS * size

    def slope(self, asked: Alike, mu: np.ndarray, inverses: list[np.ndarray]) -> np.ndarray:
        """``sum <inverse, d block>`` by mu, from the blocks back to the sums."""
        d, p, q = asked.d, len(self.one), len(self.none)
        A, B, C, F = inverses
        t = math.sqrt(asked.total)
        own, even, odd = slice(1, 1 + p), slice(1 + p, None), slice(p + q, None)
        mixed = 2 * math.sqrt((d - 1) / 2) * (d - 2) * A[own, even] - 2 * math.sqrt(d - 2) * B[:p, p : p + q]
        by_one = 2 * ((d - 1) * A[own, own] - B[:p, :p]) @ self.one + mixed @ self.none
        by_one += 2 * t * math.sqrt(d) * A[0, own]
        flat = (d - 2) * (d - 3) / 2 * A[even, even] - (d - 3) * B[p : p + q, p : p + q] + C
        by_none = 2 * flat @ self.none + mixed.T @ self.one + 2 * t * math.sqrt(d * (d - 1) / 2) * A[0, even]
        by_beside = np.concatenate([
            4 * math.sqrt((d - 1) / 2) * A[own, even] + 2 * math.sqrt(d - 2) * B[:p, p : p + q],
            2 * math.sqrt(d) * B[:p, odd],
        ], axis=1)  # fmt: skip
        cross = math.sqrt(d * (d - 2)) * B[p : p + q, odd]
        by_touching = np.block([
            [2 * (d - 2) * A[even, even] + (d - 4) * B[p : p + q, p : p + q] - 2 * C, cross],
            [cross.T, (d - 2) * B[odd, odd] - 2 * F],
        ])  # fmt: skip
        by_even, by_odd = A[even, even] + B[p : p + q, p : p + q] + C, B[odd, odd] + F
        by_shared = by_beside.T @ (asked.own * mu) + 2 * by_touching @ (self.shared * mu)
        by_shared[:q] += np.outer(by_none, mu)
        pairs = np.concatenate([asked.even, asked.odd])
        slope = _along(asked.own, (A[own, own] + B[:p, :p]) @ asked.own) + asked.own.T @ by_one
        slope += _along(asked.own, by_beside @ self.shared) + _along(self.shared, by_touching @ self.shared)
        slope += self.shared[:q].T @ by_none + np.tensordot(by_shared, pairs, ([0, 1], [0, 1]))
        for rows, by in ((asked.even, by_even), (asked.odd, by_odd)):
            flat_rows = rows.reshape(len(rows), len(mu) ** 2)
            cells = _along(flat_rows, by @ flat_rows).reshape(len(mu), len(mu))
            slope += cells @ mu + cells.T @ mu
        return slope


def _along(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return np.einsum("ij,ij->j", left, right)


def _symmetric(upper: list[list[np.ndarray]]) -> np.ndarray:
    """The whole matrix from the blocks on and above its diagonal."""
    k = len(upper)
    return np.block([[upper[i][j - i] if j >= i else upper[j][i - j].T for j in range(k)] for i in range(k)])


def alike_bound(merged: Workload, deadline: float = math.inf) -> float | None:
    """Lower bound on the loss of any strategy for tables over attributes that are alike; None for others.

    The logarithms of mu are free; every mu that is visited bounds, and the best one is taken.

    Raises :class:`~tabulae.errors.Unsupported` where one evaluation would last beyond the ``deadline``, or a block is
    too large for any.
    """
    asked = Alike.of(merged)
    if asked is None:
        return None
    if asked.order > EXPLICIT:
        raise Unsupported(f"{asked.order:,} queries of one pair are too many for one block")
    check_time(deadline, asked.order, steps=8)

    n = asked.even.shape[1]
    best, at = 0.0, np.full(n, 1 / n)

    def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal best, at
        if best and time.monotonic() >= deadline:
            raise StopIteration
        mu = np.exp(x - x.max())
        mu /= mu.sum()
        value, slope = asked.slope(mu)
        if value > best:
            best, at = value, mu
        return -math.log(value), -mu * (slope - slope @ mu) / value

    with suppress(StopIteration):
        minimize(
            objective, np.zeros(n), jac=True, method="L-BFGS-B",
            options={"maxfun": int(np.clip(_WORK / asked.order**3, 4, _MOST)), "ftol": _SETTLED},
        )  # fmt: skip
    return asked.nuclear(at) ** 2 * (1 - _ROUNDING)
