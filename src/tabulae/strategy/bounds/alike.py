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

Where pairs are products of so many cells that the blocks are too large, m directions Z of an attribute take the
place of its cells (:mod:`.product`): ``Z'HZ`` are the queries of N_R over what is not in R, ``t = Z e_1`` stands for
the sum over an attribute, and the attributes beside R are alike again:

    loss >= (||N_0||_* + d ||N_1||_* + d (d - 1)/2 N_2)^2.

There mu is a product of powers of two: those of the optimum of one attribute's queries, with the total and beside it.
"""

from __future__ import annotations

import math
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
from ..deadline import check_time, now
from ..residual.spaces import EXPLICIT, Ask, asks_of, solved
from .product import in_directions

_EPS = float(np.finfo(np.float64).eps)
_DEPENDENT = 1e-11  # rows whose squared size is below this share of the largest are left out, which is safe
_NOISE = 1e-14  # eigenvalues below this share of the largest of all blocks are rounding
_WORK, _MOST = 1.5e10, 40  # cubes of the order that a search may take, and evaluations
_SETTLED, _SMALLEST = 1e-7, 1e-9  # of a search; of a multiplier, beside the mean
_ROUNDING = 1e-12  # share taken off for the sums of roots and of mu
_DIRECTIONS = 8  # of an attribute: more prove no more than 1e-5 of the error of prefixes and ranges
_POWERS, _TRIED = (0.4, 0.3), 50  # of the multipliers, at which a search of few steps begins


@dataclass(frozen=True)
class Alike:
    """Queries of d attributes: ``own`` (p, n), ``even`` (q, n, n), ``odd`` (r, n, n); ``total`` is a squared weight."""

    d: int
    total: float
    own: np.ndarray
    even: np.ndarray
    odd: np.ndarray

    @classmethod
    def of(cls, asked: Tables) -> Alike:
        """From all queries over all cells."""
        n = asked.n
        both = np.concatenate([_rows(ask) for ask in asked.pair]).reshape(-1, n, n)
        return cls.parted(
            asked.d, asked.total, np.concatenate([np.zeros((0, n)), *map(_rows, asked.own)]), both
        )

    @classmethod
    def parted(cls, d: int, total: float, own: np.ndarray, both: np.ndarray) -> Alike:
        """With queries ``both`` (m, n, n) of a pair taken apart into even and odd ones."""
        n = own.shape[1]
        turned = both.transpose(0, 2, 1)
        even, odd = (
            _independent(rows.reshape(-1, n * n)).reshape(-1, n, n)
            for rows in ((both + turned) / 2, (both - turned) / 2)
        )
        return cls(d, total, _independent(own), even, odd)

    @property
    def order(self) -> int:
        """Rows of the largest block."""
        return 1 + len(self.own) + len(self.even) + len(self.odd)

    def nuclear(self, onto: np.ndarray, weights: np.ndarray) -> float:
        """``tr (W D W')^1/2``, rounded down: a cell counts ``weights`` (n,), and ``onto`` (n,) where it is summed over.

        Both are mu for queries over cells.
        """
        sums = _Sums.of(self, onto, weights)
        return sum(
            times * _lowered(block, sums.error(self, once=times == 1)) for times, block in sums.blocks(self)
        )

    def slope(self, mu: np.ndarray) -> tuple[float, np.ndarray]:
        """The same, not rounded, and its slope by mu."""
        sums, value, inverses = _Sums.of(self, mu, mu), 0.0, []
        spectra = [(times, *sl.eigh(block, check_finite=False)) for times, block in sums.blocks(self)]
        noise = _NOISE * max(float(values.max(initial=0.0)) for _, values, _ in spectra)
        for times, values, vectors in spectra:
            kept = values > max(_DEPENDENT * float(values.max(initial=0.0)), noise)
            roots = np.sqrt(values[kept])
            value += times * float(roots.sum())
            inverses.append(times / 2 * (vectors[:, kept] / roots) @ vectors[:, kept].T)
        return value, sums.slope(self, mu, inverses)


@dataclass(frozen=True)
class Tables:
    """What d attributes of n cells, all alike, are asked: one by one and two by two; ``total`` is a squared weight."""

    d: int
    n: int
    total: float
    own: list[Ask]
    pair: list[Ask]

    @classmethod
    def of(cls, merged: Workload) -> Tables | None:
        """Those of a workload over merged cells; None where its attributes are not alike, or tables cross three."""
        sizes = {n for n in merged.domain.shape if n > 1}
        axes = [i for i, n in enumerate(merged.domain.shape) if n > 1]
        d = len(axes)
        if len(sizes) != 1 or d < 3:
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
        total = sum(ask.weight for ask in asked.get((), []))
        return cls(d, sizes.pop(), total, asked.get((axes[0],), []), asked[axes[0], axes[1]])

    def own_multipliers(self, deadline: float) -> np.ndarray:
        """Logarithms (2, n): for the optimum of what one attribute is asked, with the total and beside it."""
        others = [float(ask.form.grams[0].mean()) for ask in self.pair]  # type: ignore[index]
        shares = [ask.weight for ask in self.own]
        shares += [(self.d - 1) * mean * ask.weight for mean, ask in zip(others, self.pair, strict=True)]
        F = np.concatenate([
            math.sqrt(share) * ask.form.roots[0] for share, ask in zip(shares, (*self.own, *self.pair), strict=True)
        ])  # fmt: skip
        centred = F - F.mean(axis=1, keepdims=True)
        found = [solved(rows, _SETTLED, deadline, None).mu for rows in (F, centred)]
        return np.log(np.maximum(found, _SMALLEST / self.n))

    def searched(self, deadline: float) -> float:
        """The best of :meth:`along` at products of powers of these multipliers."""
        logs, best = self.own_multipliers(deadline), 0.0

        def objective(powers: np.ndarray) -> float:
            nonlocal best
            if best and now() >= deadline:
                raise StopIteration
            mu = np.exp(powers @ logs)
            found = self.along(mu / mu.sum())
            best = max(best, found)
            return -found

        with suppress(StopIteration):
            minimize(
                objective,
                _POWERS,
                method="Nelder-Mead",
                options={"maxfev": _TRIED, "fatol": 0, "xatol": 1e-3},
            )
        return best

    def along(self, mu: np.ndarray) -> float:
        """The bound of few directions at mu (n,), for pairs that are products, rounded down."""
        d = self.d
        grams = np.array([ask.form.grams[0] for ask in (*self.own, *self.pair)])  # type: ignore[index]
        found = in_directions(grams, np.sqrt(mu), _DIRECTIONS)
        own = [(math.sqrt(ask.weight), at) for ask, at in zip(self.own, found, strict=False)]
        pair = [
            (math.sqrt(ask.weight), at) for ask, at in zip(self.pair, found[len(self.own) :], strict=True)
        ]
        m = len(found[0].K)
        first, ones, nothing = np.eye(m)[0], np.ones(m), np.zeros((0, m))

        single = np.concatenate([nothing, *(w * at.K for w, at in own)])
        both = np.concatenate([w * np.kron(at.K, at.K) for w, at in pair]).reshape(-1, m, m)
        empty = Alike.parted(d, self.total, single, both).nuclear(first, ones)
        beside = np.concatenate([w * at.h * at.K for w, at in pair])
        alone = Alike.parted(d - 1, sum((w * at.h) ** 2 for w, at in own), beside, np.zeros((0, m, m)))
        crossed = math.sqrt(sum((w * at.h**2) ** 2 for w, at in pair))

        # what errors of K may add to the norms: (Frobenius) on m columns, or m^2 of a pair
        lost = 2 * d * math.sqrt(m) * sum(w * at.error for w, at in own)
        lost += (
            2
            * d
            * (d - 1)
            * sum(
                w * at.error * (m * max(float(np.linalg.norm(at.K)), at.error) + math.sqrt(m) * at.h)
                for w, at in pair
            )
        )
        norm = empty + d * alone.nuclear(first, ones) + d * (d - 1) / 2 * crossed - lost
        return (max(norm, 0.0) / (1 + max(at.wrong for at in found))) ** 2


def _rows(ask: Ask) -> np.ndarray:
    """The table's queries times its weight, (m, cells), or others with the same Gram matrix."""
    form = ask.form
    if form.grams is not None:
        return math.sqrt(ask.weight) * reduce(np.kron, form.roots)
    return math.sqrt(ask.weight) * form.root.reshape(len(form.root), -1)


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
    def of(cls, asked: Alike, onto: np.ndarray, weights: np.ndarray) -> _Sums:
        shared = np.concatenate([asked.even, asked.odd]) @ onto
        square = np.outer(weights, weights).ravel()
        even, odd = (rows.reshape(len(rows), len(square)) for rows in (asked.even, asked.odd))
        return cls(
            asked.own @ onto, shared[: len(even)] @ onto, shared,
            (asked.own * weights) @ asked.own.T, (asked.own * weights) @ shared.T, (shared * weights) @ shared.T,
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

    The logarithms of mu are free; every mu that is visited bounds, and the best one is taken. Of directions they are
    powers of the optimum's beside the total.

    Raises :class:`~tabulae.errors.Unsupported` where one evaluation would last beyond the ``deadline``, or a block is
    too large for any.
    """
    tables = Tables.of(merged)
    if tables is None:
        return None
    if tables.n**2 > EXPLICIT and all(ask.form.grams is not None for ask in (*tables.own, *tables.pair)):
        check_time(deadline, tables.n, steps=20 + 2 * _TRIED * (len(tables.own) + len(tables.pair)))
        return tables.searched(deadline) * (1 - _ROUNDING)
    if tables.n**2 > 4 * EXPLICIT:
        return None
    asked = Alike.of(tables)
    if asked.order > EXPLICIT:
        raise Unsupported(f"{asked.order:,} queries of one pair are too many for one block")
    check_time(deadline, asked.order, steps=8)

    n = asked.even.shape[1]
    best, at = 0.0, np.full(n, 1 / n)

    def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal best, at
        if best and now() >= deadline:
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
    return asked.nuclear(at, at) ** 2 * (1 - _ROUNDING)
