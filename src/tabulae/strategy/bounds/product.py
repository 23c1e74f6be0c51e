"""The product bound: what no strategy beats for tables over any number of attributes.

It is the dual with multipliers that are a product. With ``mu = (x)_i mu_i``, each summing to 1, D = diag(mu) and any
Q of spectral norm at most 1 (the shape of W),

    loss >= ||W D^1/2||_*^2 >= <W D^1/2, Q>^2.

Q is put together from the attributes. Let ``t_i = D_i^1/2 1``, a unit vector, and for each table A and attribute i
that it crosses ``M = W_Ai D_i^1/2``. A partial isometry P of M's shape whose row space holds t_i splits into
``P (I - t t')`` and ``P t t'``, and has

    b = <M, P (I - t t')>,    g = <M, P t t'>.

Take ``Q_A = sum_{S within A} c_AS (x)_{i in S} P (I - tt') (x)_{i in A-S} P tt' (x)_{i not in A} t'``. For two
different sets an attribute that is in one alone makes the parts orthogonal, so that ``Q'Q <= sum_S (sum_A c_AS^2)``
times projections on orthogonal spaces, and ``sum_A c_AS^2 = 1`` for each S keeps the norm at 1. The best such c give

    loss >= (sum_S sqrt(v_S))^2,    v_S = sum_A w_A^2 prod_{i in S} b_Ai^2 prod_{i in A-S} g_Ai^2,

the residual planner's own objective with b^2 for beta and g^2 for gamma. Any mu_i and P will do; those here come from
ascending that objective attribute by attribute: with slopes a, k of it by b and g, the best P is the polar factor of
``M (a (I - t t') + k t t')``, whose singular values add up to ``a b + k g``. For marginals and for one product it is
the optimum.

**Directions.** One direction t an attribute is too few where tables ask more than cells and totals. With Z (n x m)
orthonormal, t its first column, ``H = P'M`` and ``h = tr H - tr Z'HZ`` for every matrix, put

    Q = sum_R (x)_{i in R} P (I - ZZ') (x)_{i in A-R} P Z . U_R,

U_R the polar factor of the stack, over the tables A that hold R, of

    N_RA = w_A prod_{i in R} h_Ai  (x)_{i in A-R} Z'H_Ai Z  (x)_{i not in A} (Z't)'.

P is an isometry, so that what belongs to different R is orthogonal on both sides and Q has norm 1 at most:

    loss >= (sum_R ||N_R||_*)^2.

With m = 1 that is the bound above at ``P M`` the polar factor; with m = n it is the nuclear norm itself. Z spans the
first of the Krylov vectors ``H .. H t``. While Q is held, ``<W D^1/2, Q>`` is linear in each ``D_i^1/2 1``; a few
rounds along its slopes improve the multipliers first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product

import numpy as np
import scipy.linalg
from scipy.optimize import minimize

from ...domain import Workload
from ...errors import Unsupported
from ..deadline import check_time, now
from ..information.residual_basis import Set, subsets
from ..residual.search import ROOT, WorkloadGram, asked_for, loss_of
from .dual import lowered_trace

MOST_DIRECTIONS = 6
"""Directions of each attribute that are taken together unless the caller names another number."""

_PRODUCT_SWEEPS, _PRODUCT_ITERATIONS = 4, 40
_PRODUCT_SETTLED = 1e-4  # relative gain of a sweep at which the ascent ends
_DEPENDENT = 1e-11  # eigenvalues below this share of the largest count as zero
_BESIDE = 1e-7  # of t outside the row space, at which its part is given up
_SMALLEST = 1e-9  # root of a multiplier, relative to the others
_ROUNDING = 1e-9  # share taken off for the sums


@dataclass(frozen=True)
class _Polar:
    """P for one matrix: b and g, their deflation for rounding, the nuclear norm and ``G = W'P`` (n x n)."""

    b: float
    g: float
    lost: float
    nuclear: float
    G: np.ndarray


def product_bound(
    asked: WorkloadGram, directions: int = MOST_DIRECTIONS, deadline: float = math.inf
) -> float:
    """Lower bound on the loss of any strategy for tables of one product each, at non-negative coefficients.

    Every choice of multipliers bounds, and the best one visited is taken; the search for them ends at the
    ``deadline``. ``directions`` of each attribute are taken together, fewer where their spectrum would be too large.

    >>> import tabulae as tb
    >>> domain = tb.Domain({"a": 3, "b": 4})
    >>> workload = tb.Workload(domain, [tb.Table("t", {"a": tb.Prefix(3)}), tb.Table("u", {"b": tb.Identity(4)})])
    >>> best = tb.select(workload, method="opt0")
    >>> loss = best.error(workload, tb.ZCDP("1/2")).tse  # at unit noise
    >>> 0.98 * loss < product_bound(asked_for(workload)) < loss
    True
    """
    return max(_bounds(asked, (directions,), deadline))


def product_bounds(
    workload: Workload, directions: Sequence[int] = (MOST_DIRECTIONS,), deadline: float = math.inf
) -> Iterator[float]:
    """:func:`product_bound` of a workload for one number of directions after another; nothing where no table is one
    product.

    Multipliers are searched for once. Tables that are sums are left out: what is asked besides never lowers the loss.
    """
    products = [table for table in workload.tables if len(table.terms) == 1]
    if products:
        yield from _bounds(asked_for(Workload(workload.domain, products)), directions, deadline)


def _bounds(asked: WorkloadGram, directions: Sequence[int], deadline: float) -> Iterator[float]:
    """The best bound so far after each number of directions."""
    scales, best = _one_direction(asked, deadline)
    ascended = None
    one_is_all = all(grams is None for grams in asked.grams)  # cells of every attribute are asked alike
    for most in directions:
        if most > 1 and not one_is_all:
            if ascended is None:
                ascended = _ascended(asked, scales, deadline)
            best = max(best, *(_refined(asked, at, most, deadline) for at in (scales, ascended)))
        yield best * (1 - _ROUNDING)


def _one_direction(asked: WorkloadGram, deadline: float) -> tuple[list[np.ndarray | None], float]:
    """Multipliers (their roots) by ascent, attribute by attribute, and what they bound with one direction of each."""
    root = ROOT[2]
    scales = [None if g is None else np.full(g.shape[1], g.shape[1] ** -0.5) for g in asked.grams]
    pairs = [
        closed if grams is None or s is None else _pairs(_polars(grams, s, np.ones((len(grams), 2))))
        for closed, grams, s in zip(asked.closed, asked.grams, scales, strict=True)
    ]
    best = loss_of(asked.values(pairs), root)
    for _ in range(_PRODUCT_SWEEPS):
        before = best
        for i, grams in enumerate(asked.grams):
            if grams is None:
                continue
            slopes = _by_size(asked.slopes(pairs, root)[i], pairs[i])
            scales[i], pairs[i] = _ascend(grams, scales[i], slopes, deadline)
        best = max(best, loss_of(asked.values(pairs), root))
        if best <= before * (1 + _PRODUCT_SETTLED) or now() >= deadline:
            break
    return scales, best


def _by_size(slopes: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Slopes by (b, g) from those by (b^2, g^2)."""
    return slopes * 2 * np.sqrt(pairs)


def _pairs(polars: Sequence[_Polar | None]) -> np.ndarray:
    """(b^2, g^2) of each matrix, rounded down; zeros where it is not asked for."""
    kept = [(0.0, 0.0) if p is None else (max(p.b - p.lost, 0.0), max(p.g - p.lost, 0.0)) for p in polars]
    return np.square(np.array(kept))


def _polars(grams: np.ndarray, s: np.ndarray, slopes: np.ndarray) -> list[_Polar | None]:
    return [_polar(V, s, a, k) if a > 0 else None for V, (a, k) in zip(grams, slopes, strict=True)]


def _polar(V: np.ndarray, s: np.ndarray, a: float, k: float) -> _Polar:
    """The polar factor of ``W D^1/2 (a (I - tt') + k tt')`` from V = W'W, with D^1/2 = diag(s) and t = s."""
    C = a * np.diag(s) + (k - a) * np.outer(s * s, s)
    values, vectors = scipy.linalg.eigh(C.T @ V @ C)
    kept = values > _DEPENDENT * values[-1]
    singular, U = np.sqrt(values[kept]), vectors[:, kept]
    beside = float(np.linalg.norm(s - U @ (U.T @ s))) if k > 0 else 0.0
    if beside > _BESIDE:  # the total is not a combination of these queries
        return _polar(V, s, a, 0.0)
    H = C @ (U / singular)
    wrong = float(np.linalg.norm(H.T @ V @ H - np.eye(len(singular)))) + 4 * beside
    G = V @ H @ U.T
    whole, g = float(s @ np.diag(G)), float((s * s) @ G @ s)
    lost = (wrong + 8 * len(s) * np.finfo(float).eps) * abs(whole)
    return _Polar(whole - g, g, lost, float(singular.sum()), G)


def _ascend(
    grams: np.ndarray, start: np.ndarray | None, slopes: np.ndarray, deadline: float
) -> tuple[np.ndarray, np.ndarray]:
    """Multipliers (their roots, a unit vector) that raise ``sum a b + k g``, and the pairs that they give."""
    assert start is not None
    size = float(slopes.max())
    scaled = slopes / size

    def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
        length = float(np.linalg.norm(x))
        s = x / length
        value, gradient = 0.0, np.zeros(x.shape)
        for polar, (a, k) in zip(_polars(grams, s, scaled), scaled, strict=True):
            if polar is not None:
                value += polar.nuclear
                G = polar.G
                gradient += a * np.diag(G) + (k - a) * (2 * s * (G @ s) + G.T @ (s * s))
        return -value, -(gradient - (gradient @ s) * s) / length

    def stop_in_time(_: np.ndarray) -> None:
        if now() >= deadline:
            raise StopIteration

    found = minimize(
        objective, start, jac=True, method="L-BFGS-B", bounds=[(_SMALLEST, None)] * len(start), callback=stop_in_time,
        options={"maxiter": _PRODUCT_ITERATIONS, "maxcor": 20, "ftol": 1e-9},
    )  # fmt: skip
    s = found.x / np.linalg.norm(found.x)
    return s, _pairs(_polars(grams, s, scaled))


_COLUMNS = 2000  # most columns of a stack whose spectrum is taken
_TRUST = 1e-7  # of a trace: what rounding may do to ``P'M``, up to 1,024 cells and at ``_DEPENDENT``


@dataclass(frozen=True)
class Directions:
    """One matrix of an attribute at its multipliers: ``h``, rounded down, and ``K = Z'HZ`` (m x m).

    K is wrong by ``error`` at most (Frobenius), and P is longer than an isometry by ``wrong``.
    """

    h: float
    K: np.ndarray
    error: float
    wrong: float
    H: np.ndarray
    Z: np.ndarray


Matrix = tuple[int, int]
"""A matrix that tables ask for: its attribute, and its position among that attribute's."""


@dataclass(frozen=True)
class _Part:
    """The tables that ask the same outside of a set R: their squared weights with h, and K of what is not in R.

    ``matrices`` are attributes and positions of K; ``raised`` are derivatives of the weight by h of the matrices in R.
    """

    weight: float
    matrices: tuple[Matrix, ...]
    asked: tuple[Directions, ...]
    raised: Mapping[Matrix, float]

    @property
    def K(self) -> np.ndarray:
        return reduce(np.kron, [d.K for d in self.asked], np.ones((1, 1)))

    @property
    def error(self) -> float:
        """By how much errors of K may raise the nuclear norm."""
        sizes = [max(float(np.linalg.norm(d.K)), d.error) for d in self.asked]
        shares = sum(d.error / size for d, size in zip(self.asked, sizes, strict=True) if size > 0)
        return (
            2 * shares * math.prod(sizes) * math.sqrt(self.weight * math.prod(len(d.K) for d in self.asked))
        )

    def levels(self) -> Iterator[tuple[tuple[int, int], ...]]:
        """The direction of each attribute that a column of K stands for, where it is not the first."""
        for at in product(*(range(len(d.K)) for d in self.asked)):
            yield tuple((i, a) for (i, _), a in zip(self.matrices, at, strict=True) if a)


Found = Sequence[list[Directions] | None]
"""For each attribute its matrices in directions; None where cells are asked alike."""

Level = tuple[tuple[int, int], ...]
"""A column of a stack: the attributes and directions where it has not the first."""


def _refined(
    asked: WorkloadGram, scales: Sequence[np.ndarray | None], most: int, deadline: float = math.inf
) -> float:
    """The bound of up to ``most`` directions at given multipliers, rounded down; 0 where there is no room or time."""
    found = _fitting(asked, scales, most)
    if found is None:
        return 0.0
    try:
        check_time(deadline, _columns(asked, found))
    except Unsupported:
        return 0.0
    total = sum(_nuclear(parts) for _, parts in _stacks(asked, found))
    wrong = max((d.wrong for f in found if f is not None for d in f), default=0.0)
    longest = max(len(mention) for mention in asked.sums.mentions)
    return (total / (1 + wrong) ** (longest / 2)) ** 2


def _fitting(asked: WorkloadGram, scales: Sequence[np.ndarray | None], most: int) -> Found | None:
    """As many directions as leave no stack too large; None where two are too many."""
    for m in range(most, 1, -1):
        found = [
            None if grams is None or s is None else in_directions(grams, s, m)
            for grams, s in zip(asked.grams, scales, strict=True)
        ]
        if _columns(asked, found) <= _COLUMNS:
            return found
    return None


def _columns(asked: WorkloadGram, found: Found) -> int:
    """Columns of the widest stack, that of R empty."""
    more = [0 if f is None else len(f[0].K) - 1 for f in found]
    return sum(math.prod(more[i] for i in q) for q in asked.sums.sets)


def _stacks(asked: WorkloadGram, found: Found) -> Iterator[tuple[set[int], list[_Part]]]:
    """Each set R with N_R, where that is not zero."""
    holders: dict[Set, list[int]] = {}
    for term, mention in enumerate(asked.sums.mentions):
        for R in subsets(mention):
            holders.setdefault(R, []).append(term)
    for R, terms in holders.items():
        if parts := _stack(asked, found, set(R), terms):
            yield set(R), parts


def _stack(asked: WorkloadGram, found: Found, inside: set[int], terms: Sequence[int]) -> list[_Part]:
    """N_R for one set of attributes: a part for all tables that ask the same beside it."""
    weights: dict[tuple[Matrix, ...], float] = {}
    raised: dict[tuple[Matrix, ...], dict[Matrix, float]] = {}
    for term in terms:
        weight, beside, within = float(asked.coefficients[term]), [], []
        for i in asked.sums.mentions[term]:
            k, own = int(asked.index[term, i]), found[i]
            if own is None:
                weight *= float(asked.closed[i][k, 0 if i in inside else 1])
            elif i in inside:
                weight *= own[k].h ** 2
                within.append((i, k))
            else:
                beside.append((i, k))
        if weight > 0:
            key = tuple(beside)
            weights[key] = weights.get(key, 0.0) + weight
            by = raised.setdefault(key, {})
            for i, k in within:
                by[i, k] = by.get((i, k), 0.0) + 2 * weight / found[i][k].h
    return [
        _Part(weight, key, tuple(found[i][k] for i, k in key), raised[key])  # type: ignore[index]
        for key, weight in weights.items()
    ]


def _nuclear(parts: Sequence[_Part]) -> float:
    """The nuclear norm of a stack, rounded down: from its Gram matrix over the columns that any part has."""
    gram, _, placed = _gram(parts)
    terms = len(parts) + max(len(places) for places in placed)
    return max(lowered_trace(gram, terms) - sum(part.error for part in parts), 0.0)


def _gram(parts: Sequence[_Part]) -> tuple[np.ndarray, dict[Level, int], list[list[int]]]:
    """The Gram matrix of a stack, the positions of its columns, and those of each part."""
    columns: dict[Level, int] = {}
    placed = [[columns.setdefault(level, len(columns)) for level in part.levels()] for part in parts]
    gram = np.zeros((len(columns), len(columns)))
    for part, places in zip(parts, placed, strict=True):
        K = part.K
        gram[np.ix_(places, places)] += part.weight * (K @ K)
    return gram, columns, placed


_ASCENT, _STEEP = 8, 3  # rounds of the ascent, and its directions
_GAIN = 2e-4  # relative gain of a round at which it ends
_LOOKED_UP = 600_000  # columns that all rounds may look up: a second or two


def _ascended(
    asked: WorkloadGram, scales: Sequence[np.ndarray | None], deadline: float
) -> list[np.ndarray | None]:
    """Multipliers (their roots) at which a few directions bound more.

    With Q held, ``<W D^1/2, Q>`` is linear in each ``s_i = D_i^1/2 1``, so that it is largest along its slope there.
    """
    at = list(scales)
    best, reached = 0.0, at
    left = float(_LOOKED_UP)
    for _ in range(_ASCENT):
        found = _fitting(asked, at, _STEEP)
        left -= 0.0 if found is None else _looked_up(asked, found)
        if found is None or left < 0 or now() >= deadline:
            break
        slopes = _Slopes.at(found)
        value = sum(slopes.add(parts, inside) for inside, parts in _stacks(asked, found))
        if value <= best * (1 + _GAIN):
            reached = at if value > best else reached
            break
        best, reached = value, at
        at = [None if s is None else slopes.along(i, s) for i, s in enumerate(at)]
    return reached


def _looked_up(asked: WorkloadGram, found: Found) -> float:
    """How many columns :meth:`_Slopes.add` looks up for the stack of all tables."""
    sizes = [0 if f is None else len(f[0].K) for f in found]
    levels = sum(math.prod(sizes[i] or 1 for i in mention) for mention in set(asked.sums.mentions))
    return levels * float(sum(sizes))


@dataclass
class _Slopes:
    """Derivatives of ``sum_R <N_R, U_R>`` at fixed U_R: by h and K of each matrix, and by ``Z't`` of each attribute."""

    found: Found
    by_h: dict[Matrix, float]
    by_k: dict[Matrix, np.ndarray]
    by_t: list[np.ndarray]

    @classmethod
    def at(cls, found: Found) -> _Slopes:
        """All zero."""
        return cls(found, {}, {}, [np.zeros(0 if f is None else len(f[0].K)) for f in found])

    def add(self, parts: Sequence[_Part], inside: set[int]) -> float:
        """Count one stack in, and return its nuclear norm."""
        gram, columns, placed = _gram(parts)
        values, vectors = scipy.linalg.eigh(gram)
        kept = values > _DEPENDENT * values[-1]
        inverse = (vectors[:, kept] / np.sqrt(values[kept])) @ vectors[:, kept].T
        for part, places in zip(parts, placed, strict=True):
            K = part.K
            U = part.weight * (K @ inverse[places])
            inner = float(np.vdot(K, U[:, places]))
            for matrix, raised in part.raised.items():
                self.by_h[matrix] = self.by_h.get(matrix, 0.0) + inner / (2 * part.weight) * raised
            self._by_matrices(part, U[:, places])
            self._by_others(part, K, U, inner, columns, inside)
        return float(np.sqrt(values[kept]).sum())

    def _by_matrices(self, part: _Part, U: np.ndarray) -> None:
        count = len(part.asked)
        sizes = [len(d.K) for d in part.asked]
        whole = U.reshape(sizes + sizes)
        for p, matrix in enumerate(part.matrices):
            slope, axes = whole, list(range(2 * count))
            for q, d in enumerate(part.asked):
                if q != p:
                    slope = np.tensordot(slope, d.K, ([axes.index(q), axes.index(count + q)], [0, 1]))
                    axes = [a for a in axes if a not in (q, count + q)]
            self.by_k[matrix] = self.by_k.get(matrix, np.zeros((1, 1))) + slope

    def _by_others(
        self,
        part: _Part,
        K: np.ndarray,
        U: np.ndarray,
        inner: float,
        columns: dict[Level, int],
        inside: set[int],
    ) -> None:
        """By ``Z't`` of the attributes that the tables do not ask about: its first entry is 1, the others 0."""
        own = inside.union(i for i, _ in part.matrices)
        levels = list(part.levels())
        for i, slope in enumerate(self.by_t):
            if i in own or not len(slope):
                continue
            slope[0] += inner
            for a in range(1, len(slope)):
                places = [columns.get(tuple(sorted((*level, (i, a)))), -1) for level in levels]
                there = [c for c, place in enumerate(places) if place >= 0]
                slope[a] += float(np.vdot(K[:, there], U[:, [places[c] for c in there]]))

    def by_root(self, i: int, s: np.ndarray) -> np.ndarray:
        """The slope by ``s_i = D_i^1/2 1``, with each ``M = W_Ai diag(s_i)``."""
        own = self.found[i]
        assert own is not None
        Z = own[0].Z
        slope = Z @ self.by_t[i]
        for k, d in enumerate(own):
            HZ = d.H @ Z
            beside = np.diag(d.H) - np.einsum("ja,ja->j", Z, HZ)
            inward = np.einsum("ja,ab,jb->j", HZ, self.by_k.get((i, k), np.zeros((Z.shape[1],) * 2)), Z)
            slope += (self.by_h.get((i, k), 0.0) * beside + inward) / s
        return slope

    def along(self, i: int, s: np.ndarray) -> np.ndarray:
        """A unit vector somewhat beyond the slope, which alone would halve the way at each round."""
        slope = self.by_root(i, s)
        beyond = np.maximum(slope, _SMALLEST * slope.max()) ** 1.5 / np.sqrt(s)
        return beyond / np.linalg.norm(beyond)


def in_directions(grams: np.ndarray, s: np.ndarray, m: int) -> list[Directions]:
    """Every matrix of an attribute in up to m directions Z, s the first, of the Krylov spaces of their roots.

    Where these end and several matrices are asked for, they go on from what is largest beside them.
    """
    roots = [_root(V * s * s[:, None]) for V in grams]
    whole, found, last = sum((H for H, _ in roots), np.zeros((len(s), len(s)))), [s], [s]
    size = np.linalg.norm(whole)
    while len(found) < m:
        reached = [H @ z / size for z in last for H, _ in roots]
        if not last and len(roots) > 1:
            reached = [_largest_beside(whole, np.array(found))]
        last = []
        for z in reached:
            for _ in range(2):
                z = z - sum((q * (q @ z) for q in found), np.zeros(len(s)))
            if len(found) < m and np.linalg.norm(z) > _BESIDE:
                last.append(z / np.linalg.norm(z))
                found.append(last[-1])
        if not last and len(reached) <= 1:
            break
    Z = np.array(found).T
    return [_one_in_directions(H, Z, wrong) for H, wrong in roots]


def _largest_beside(H: np.ndarray, found: np.ndarray) -> np.ndarray:
    """The leading eigenvector of H on the complement of orthonormal rows."""
    beside = np.eye(len(H)) - found.T @ found
    return scipy.linalg.eigh(beside @ H @ beside, subset_by_index=[len(H) - 1, len(H) - 1])[1][:, 0]


def _one_in_directions(H: np.ndarray, Z: np.ndarray, wrong: float) -> Directions:
    K, trace = Z.T @ H @ Z, float(np.trace(H))
    error = _TRUST * trace
    return Directions(max(trace - float(np.trace(K)) - 2 * error, 0.0), (K + K.T) / 2, error, wrong, H, Z)


def _root(V: np.ndarray) -> tuple[np.ndarray, float]:
    """``H = P'M`` of the polar factor P of M, V = M'M, and by how much P, as it was worked out, may be too long."""
    values, vectors = scipy.linalg.eigh(V)
    kept = values > _DEPENDENT * values[-1]
    half = vectors[:, kept] / np.sqrt(values[kept])
    wrong = float(np.linalg.norm(half.T @ V @ half - np.eye(half.shape[1])))
    H = vectors[:, kept] @ (half.T @ V)
    return (H + H.T) / 2, wrong
