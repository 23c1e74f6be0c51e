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
first of the Krylov vectors ``H .. H t``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product

import numpy as np
import scipy.linalg
from scipy.optimize import minimize

from ...domain import Workload
from ..residual.search import ROOT, Asked, asked_for, loss_of
from .dual import lowered_trace

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


def product_bound(asked: Asked, directions: int = 6) -> float:
    """Lower bound on the loss of any strategy for tables of one product each, at non-negative coefficients.

    Every choice of multipliers bounds, and the best one visited is taken. ``directions`` of each attribute are taken
    together, fewer where their spectrum would be too large.

    >>> import tabulae as tb
    >>> domain = tb.Domain({"a": 3, "b": 4})
    >>> workload = tb.Workload(domain, [tb.Table("t", {"a": tb.Prefix(3)}), tb.Table("u", {"b": tb.Identity(4)})])
    >>> best = tb.select(workload, method="opt0")
    >>> loss = best.error(workload, tb.ZCDP("1/2")).tse  # at unit noise
    >>> 0.98 * loss < product_bound(asked_for(workload)) < loss
    True
    """
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
            scales[i], pairs[i] = _ascend(grams, scales[i], slopes)
        best = max(best, loss_of(asked.values(pairs), root))
        if best <= before * (1 + _PRODUCT_SETTLED):
            break
    if directions > 1:
        best = max(best, _refined(asked, scales, directions))
    return best * (1 - _ROUNDING)


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


def _ascend(grams: np.ndarray, start: np.ndarray | None, slopes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
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

    found = minimize(
        objective, start, jac=True, method="L-BFGS-B", bounds=[(_SMALLEST, None)] * len(start),
        options={"maxiter": _PRODUCT_ITERATIONS, "maxcor": 20, "ftol": 1e-9},
    )  # fmt: skip
    s = found.x / np.linalg.norm(found.x)
    return s, _pairs(_polars(grams, s, scaled))


def planner_bound(workload: Workload) -> float | None:
    """The bound of :func:`product_bound`, None where no table is one product.

    Tables that are sums are left out: what is asked besides never lowers the loss.
    """
    products = [table for table in workload.tables if len(table.terms) == 1]
    return product_bound(asked_for(Workload(workload.domain, products))) if products else None


_COLUMNS = 2000  # most columns of a stack whose spectrum is taken
_TRUST = 1e-7  # of a trace: what rounding may do to ``P'M``, up to 1,024 cells and at ``_DEPENDENT``


@dataclass(frozen=True)
class _Directions:
    """One matrix of an attribute at its multipliers: ``h``, rounded down, and ``K = Z'HZ`` (m x m).

    K is wrong by ``error`` at most (Frobenius), and P is longer than an isometry by ``wrong``.
    """

    h: float
    K: np.ndarray
    error: float
    wrong: float


@dataclass(frozen=True)
class _Part:
    """The tables that ask the same outside of a set R: their squared weights with h, and K of what is not in R."""

    weight: float
    attributes: tuple[int, ...]
    asked: tuple[_Directions, ...]

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
            yield tuple((i, a) for i, a in zip(self.attributes, at, strict=True) if a)


def _refined(asked: Asked, scales: Sequence[np.ndarray | None], most: int) -> float:
    """The bound of up to ``most`` directions at given multipliers, rounded down; 0 where even two are too many."""
    for m in range(most, 1, -1):
        found = [
            None if grams is None or s is None else _directions(grams, s, m)
            for grams, s in zip(asked.grams, scales, strict=True)
        ]
        more = [0 if f is None else len(f[0].K) - 1 for f in found]
        if sum(math.prod(more[i] for i in q) for q in asked.sums.sets) <= _COLUMNS:
            break
    else:
        return 0.0
    total = sum(_nuclear(_stack(asked, found, set(R))) for R in asked.sums.sets)
    wrong = max((d.wrong for f in found if f is not None for d in f), default=0.0)
    longest = max(len(mention) for mention in asked.sums.mentions)
    return (total / (1 + wrong) ** (longest / 2)) ** 2


def _stack(asked: Asked, found: Sequence[list[_Directions] | None], inside: set[int]) -> list[_Part]:
    """N_R for one set of attributes: a part for all tables that ask the same beside it."""
    weights: dict[tuple[tuple[int, int], ...], float] = {}
    for term, mention in enumerate(asked.sums.mentions):
        if not inside.issubset(mention):
            continue
        weight, beside = float(asked.coefficients[term]), []
        for i in mention:
            k, own = int(asked.index[term, i]), found[i]
            if own is None:
                weight *= float(asked.closed[i][k, 0 if i in inside else 1])
            elif i in inside:
                weight *= own[k].h ** 2
            else:
                beside.append((i, k))
        if weight > 0:
            weights[tuple(beside)] = weights.get(tuple(beside), 0.0) + weight
    return [
        _Part(weight, tuple(i for i, _ in key), tuple(found[i][k] for i, k in key))  # type: ignore[index]
        for key, weight in weights.items()
    ]


def _nuclear(parts: Sequence[_Part]) -> float:
    """The nuclear norm of a stack, rounded down: from its Gram matrix over the columns that any part has."""
    columns: dict[tuple[tuple[int, int], ...], int] = {}
    placed = [[columns.setdefault(level, len(columns)) for level in part.levels()] for part in parts]
    gram = np.zeros((len(columns), len(columns)))
    for part, places in zip(parts, placed, strict=True):
        K = part.K
        gram[np.ix_(places, places)] += part.weight * (K @ K)
    terms = len(parts) + max((len(places) for places in placed), default=0)
    return max(lowered_trace(gram, terms) - sum(part.error for part in parts), 0.0) if parts else 0.0


def _directions(grams: np.ndarray, s: np.ndarray, m: int) -> list[_Directions]:
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
    return [_in_directions(H, Z, wrong) for H, wrong in roots]


def _largest_beside(H: np.ndarray, found: np.ndarray) -> np.ndarray:
    """The leading eigenvector of H on the complement of orthonormal rows."""
    beside = np.eye(len(H)) - found.T @ found
    return scipy.linalg.eigh(beside @ H @ beside, subset_by_index=[len(H) - 1, len(H) - 1])[1][:, 0]


def _in_directions(H: np.ndarray, Z: np.ndarray, wrong: float) -> _Directions:
    K, trace = Z.T @ H @ Z, float(np.trace(H))
    error = _TRUST * trace
    return _Directions(max(trace - float(np.trace(K)) - 2 * error, 0.0), (K + K.T) / 2, error, wrong)


def _root(V: np.ndarray) -> tuple[np.ndarray, float]:
    """``H = P'M`` of the polar factor P of M, V = M'M, and by how much P, as it was worked out, may be too long."""
    values, vectors = scipy.linalg.eigh(V)
    kept = values > _DEPENDENT * values[-1]
    half = vectors[:, kept] / np.sqrt(values[kept])
    wrong = float(np.linalg.norm(half.T @ V @ half - np.eye(half.shape[1])))
    H = vectors[:, kept] @ (half.T @ V)
    return (H + H.T) / 2, wrong
