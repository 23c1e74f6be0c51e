"""A lower bound for tables over any number of attributes: the dual, with multipliers that are a product.

With ``mu = (x)_i mu_i``, each summing to 1, D = diag(mu) and any Q of spectral norm at most 1 (the shape of W),

    loss >= ||W D^1/2||_*^2 >= <W D^1/2, Q>^2.

Q is put together from the attributes. Let ``t_i = D_i^1/2 1``, a unit vector, and for each table A and attribute i
that it crosses ``M = W_Ai D_i^1/2``. A partial isometry P of M's shape whose row space holds t_i splits into
``P (I - t t')`` and ``P t t'``, and has

    b = <M, P (I - t t')>,    g = <M, P t t'>.

Take ``Q_A = sum_{S within A} c_AS (x)_{i in S} P (I - tt') (x)_{i in A-S} P tt' (x)_{i not in A} t'``. For two
different sets an attribute that is in one alone makes the parts orthogonal, so that ``Q'Q <= sum_S (sum_A c_AS^2)``
times projections on orthogonal spaces, and ``sum_A c_AS^2 = 1`` for each S keeps the norm at 1. The best such c give

    loss >= (sum_S sqrt(v_S))^2,    v_S = sum_A w_A^2 prod_{i in S} b_Ai^2 prod_{i in A-S} g_Ai^2,

the residual planner's own objective with b^2 for beta and g^2 for gamma (:mod:`.residual_search`). Any mu_i and P will
do; those here come from ascending that objective attribute by attribute: with slopes a, k of it by b and g, the best
P is the polar factor of ``M (a (I - t t') + k t t')``, whose singular values add up to ``a b + k g``.

For marginals and for one product it is the optimum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from scipy.optimize import minimize

from .residual_search import (
    ROOT,
    Asked,
    loss_of,
)

_SWEEPS, _ITERATIONS = 4, 40
_SETTLED = 1e-4  # relative gain of a sweep at which the ascent ends
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


def product_bound(asked: Asked) -> float:
    """Lower bound on the loss of any strategy for tables of one product each, at non-negative coefficients.

    ``asked`` is W'W over merged cells, as the residual planner sees it.

    Raises nothing: every choice of multipliers bounds, and the best one visited is taken.

    >>> import tabulae as tb
    >>> from tabulae.strategy.residual import asked_for
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
    for _ in range(_SWEEPS):
        before = best
        for i, grams in enumerate(asked.grams):
            if grams is None:
                continue
            slopes = _by_size(asked.slopes(pairs, root)[i], pairs[i])
            scales[i], pairs[i] = _ascend(grams, scales[i], slopes)
        best = max(best, loss_of(asked.values(pairs), root))
        if best <= before * (1 + _SETTLED):
            break
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
    if beside > _BESIDE:  # the total is no combination of these queries
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
        options={"maxiter": _ITERATIONS, "maxcor": 20, "ftol": 1e-9},
    )  # fmt: skip
    s = found.x / np.linalg.norm(found.x)
    return s, _pairs(_polars(grams, s, scaled))
