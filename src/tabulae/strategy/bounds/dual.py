"""Lower bounds on the error of every strategy: what no choice of queries can beat.

All bounds are on ``loss = ||A||^2 ||W A^+||_F^2``, the total squared error of the workload W at unit noise
and unit sensitivity. They are proven for L2 sensitivity (Gaussian noise) and hold for L1 sensitivity
(Laplace noise) too, because no column's L1 norm is below its L2 norm. For any ``mu >= 0``, D = diag(mu),

    loss >= (tr (D^1/2 V D^1/2)^1/2)^2 / tr D,        V = W'W,

the dual of the convex problem ``min tr[X^-1 V], diag X <= 1``; equal multipliers give the SVD bound. Every
number returned has had its rounding errors taken off, so it is a bound in floating point as well.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.linalg as sl
from scipy.optimize import minimize

from ...domain import Workload
from ...errors import InvalidArgument, Unsupported
from ..deadline import check_time, now
from ..gram import (
    DistinctCells,
    asked_gram,
    check_tolerance,
    checked_gram,
    dense_grams,
    gram_root,
    many_products,
)

_EPS = float(np.finfo(np.float64).eps)
_LATTICE_ATTRIBUTES = 20
_WRITTEN = 1024  # cells of an attribute whose matrices are written out to be looked at

Terms = Sequence[tuple[float, Sequence[np.ndarray]]]
"""``W'W = sum_l c_l V_l1 (x) ... (x) V_ld``: coefficients and per-attribute Gram matrices (n_i x n_i)."""


def dual_bound(gram: np.ndarray, multipliers: np.ndarray) -> float:
    """Lower bound on the loss of any strategy for V = ``gram``, certified by dual ``multipliers`` (n,), rounded down.

    ``(tr (D^1/2 V D^1/2)^1/2)^2 / tr D`` with D = diag(multipliers), which are non-negative and not all zero.

    >>> round(dual_bound(np.ones((3, 3)), np.ones(3)), 9)  # the total alone: one query of variance 1
    1.0
    """
    V, mu = checked_gram(gram), np.asarray(multipliers, dtype=np.float64)
    if mu.shape != (V.shape[0],) or not (np.isfinite(mu).all() and (mu >= 0).all() and mu.any()):
        raise InvalidArgument(f"multipliers must be {V.shape[0]} non-negative numbers, not all zero.")
    root = np.sqrt(mu / mu.max())
    n = V.shape[0]
    return lowered_trace(V * root * root[:, None]) ** 2 / float(root @ root) * (1 - (4 * n + 8) * _EPS)


def lowered_trace(matrix: np.ndarray, terms: int = 0) -> float:
    """Lower bound on ``tr M^1/2`` for a positive semi-definite M (n x n) known up to rounding.

    Each eigenvalue is lowered by ``(n + terms + 4) eps ||M||_F``: the eigensolver's backward error, and that of sums
    of ``terms`` numbers in the entries of M.
    """
    return lowered_roots(sl.eigvalsh(matrix, overwrite_a=True, check_finite=False), terms)


def lowered_roots(values: np.ndarray, terms: int = 0) -> float:
    """:func:`lowered_trace` of a matrix whose eigenvalues (n,) have been computed."""
    margin = (len(values) + terms + 4) * _EPS * float(np.linalg.norm(values))
    return float(np.sqrt(np.maximum(values - margin, 0.0)).sum())


def svd_bound(gram: np.ndarray) -> float:
    """The SVD bound ``(sum of singular values of W)^2 / n`` of an explicit workload (HDMM, Theorem 5)."""
    return dual_bound(gram, np.ones(np.shape(gram)[0]))


def svd_bound_kron(terms: Terms, deadline: float = np.inf) -> float:
    """The SVD bound of a workload made of Kronecker products, where it has a closed form.

    One product: the product of its factors' bounds. Several products whose factors are all of the form
    ``a I + b J`` (marginals, at any weights): the spectrum lies on the lattice of attribute subsets S, with

        kappa_S = sum_l c_l prod_{i in S} a_li prod_{i not in S} (a_li + n_i b_li)

    of multiplicity ``prod_{i in S} (n_i - 1)``, found in O(2^d (d + 1)) steps for marginals. The sum is a Gram matrix;
    single coefficients may be negative.

    Raises :class:`~tabulae.errors.InvalidArgument` for terms that do not fit together,
    :class:`~tabulae.errors.Unsupported` for a union that is not of marginals, or of more than 20 attributes, and for
    factors whose spectra would take longer than to the ``deadline``.

    Reference: HDMM, Theorems 5 and 12.

    >>> ones, eye = np.ones((3, 3)), np.eye(3)
    >>> round(svd_bound_kron([(1.0, [eye, ones]), (1.0, [ones, eye])]), 9)  # both one-way marginals
    9.771236166
    """
    sizes = kron_sizes(terms)
    if len(terms) == 1:
        coefficient, factors = terms[0]
        check_time(deadline, *(len(V) for V in factors))
        return float(coefficient * (1 - 4 * len(sizes) * _EPS) * np.prod([svd_bound(V) for V in factors]))
    lowered, multiplicity = lattice_spectrum(terms)
    rounding = (multiplicity.size + 4 * len(sizes)) * _EPS
    return float(multiplicity @ np.sqrt(lowered)) ** 2 / float(np.prod(sizes)) * (1 - rounding)


def lattice_spectrum(terms: Terms) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues of a union of marginals, rounded down, and their multiplicities; both (2^d,).

    Position S in binary, first attribute first, is the set of attributes whose categories are contrasted.
    """
    sizes = kron_sizes(terms)
    if len(sizes) > _LATTICE_ATTRIBUTES:
        raise Unsupported(
            f"the SVD bound of a union of marginals lists all subsets of its {len(sizes)} attributes; "
            f"it is computed up to {_LATTICE_ATTRIBUTES}."
        )
    shared = {id(V): V for _, factors in terms for V in factors}
    pairs = {key: identity_and_ones(V) for key, V in shared.items()}
    if None in pairs.values():
        raise Unsupported(
            "the SVD bound of a union of products is known in closed form for marginals only (every factor "
            "a I + b J); for other unions take the bound of W'W as one matrix, svd_bound, where it fits."
        )
    parts = np.array([[pairs[id(V)] for V in factors] for _, factors in terms], dtype=np.float64)
    return _lattice(np.array([c for c, _ in terms]), parts, np.array(sizes, dtype=np.float64))


def kron_sizes(terms: Terms) -> tuple[int, ...]:
    """The attribute sizes (n_1, ..., n_d) that all terms share; InvalidArgument where they do not fit."""
    if not terms:
        raise InvalidArgument("terms is empty: a workload has at least one Kronecker product.")
    sizes = tuple(V.shape[0] for V in terms[0][1])
    checked: set[int] = set()
    for position, (coefficient, factors) in enumerate(terms):
        if not np.isfinite(coefficient) or tuple(V.shape[0] for V in factors) != sizes or not sizes:
            raise InvalidArgument(
                f"terms[{position}] needs a finite coefficient and one Gram matrix per attribute: {sizes}."
            )
        for i, V in enumerate(factors):
            if id(V) not in checked:  # factors are shared between hundreds of terms
                checked.add(id(V))
                _check_factor(V, f"terms[{position}], attribute {i}")
    if len(terms) == 1 and terms[0][0] <= 0:
        raise InvalidArgument(f"the only product has coefficient {terms[0][0]}: it must be positive.")
    return sizes


def _check_factor(V: np.ndarray, what: str) -> None:
    if V.ndim != 2 or V.shape[0] != V.shape[1] or V.shape[0] == 0 or not np.isfinite(V).all():
        raise InvalidArgument(f"{what}: needs a finite square matrix, got shape {V.shape}.")


def identity_and_ones(V: np.ndarray) -> tuple[float, float, float] | None:
    """Eigenvalues of V = a I + b J on the ones vector and beside it, or None for any other matrix.

    The third number is the size of what was added up for the first, to judge its rounding error by.
    """
    n, diagonal = V.shape[0], float(V[0, 0])
    if n == 1:
        return diagonal, 0.0, abs(diagonal)
    b = float(V[0, 1])
    pattern = np.full((n, n), b)
    np.fill_diagonal(pattern, diagonal)
    if not np.array_equal(V, pattern):
        return None
    return diagonal + (n - 1) * b, diagonal - b, abs(diagonal) + (n - 1) * abs(b)


def asks_cells_and_totals(merged: Workload) -> bool:
    """Whether all factors of W'W are seen to be of the form a I + b J, as those of marginals are."""
    if many_products(merged) or max(merged.domain.shape) > _WRITTEN:
        return False
    try:
        terms = dense_grams(merged)
    except Unsupported:
        return False
    factors = {id(V): V for _, factors in terms for V in factors}
    return all(identity_and_ones(V) is not None for V in factors.values())


def _lattice(coefficients: np.ndarray, parts: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Theorem 12 with rounding margin; ``parts`` (k, d, 3) holds each factor's eigenvalues.

    Attributes are folded in from the last: terms that agree on all earlier ones are added up first, so a
    fold never holds more than 2^d numbers for marginals. Row 0 carries the sums, row 1 those of absolutes.
    """
    k, d = parts.shape[:2]
    kappa: dict[bytes, np.ndarray] = {}
    for c, part in zip(coefficients, parts, strict=True):
        kappa[part.tobytes()] = kappa.get(part.tobytes(), 0.0) + np.array([[c], [abs(c)]])
    width = parts[0, 0].nbytes
    for _ in range(d):
        folded: dict[bytes, np.ndarray] = {}
        for key, values in kappa.items():
            on_ones, beside, size = np.frombuffer(key[-width:])
            both = np.concatenate([values * [[on_ones], [size]], values * [[beside], [abs(beside)]]], axis=1)
            earlier = folded.get(key[:-width])
            folded[key[:-width]] = both if earlier is None else earlier + both
        kappa = folded
    multiplicity = np.ones(1)
    for n in sizes[::-1]:
        multiplicity = np.concatenate([multiplicity, multiplicity * (n - 1)])
    signed, absolute = kappa[b""]
    return np.maximum(signed - (k + 4 * d) * _EPS * absolute, 0.0), multiplicity


_EPS = float(np.finfo(np.float64).eps)
_STEPS = 2**25  # numbers that the weights of sets of attributes may pass through while they are improved


def grounded(gram: np.ndarray, origin: int) -> np.ndarray:
    """``D V D'`` for D (n-1 x n) with rows ``e_j - e_o``: the workload's Gram matrix when the total is known."""
    V = np.delete(np.delete(gram, origin, axis=0), origin, axis=1)
    border = np.delete(gram[origin], origin)
    return V - border - border[:, None] + gram[origin, origin]


def pair_bound(gram: np.ndarray, weights: np.ndarray) -> float:
    """Lower bound on the loss of any strategy under replace-one neighbours, certified by weights of pairs.

    ``(tr (L^1/2 V L^1/2)^1/2)^2 / sum mu`` for the Laplacian L of ``weights``, rounded down: the roots are taken
    of ``G' D V D' G`` with ``D' G G' D = L`` up to an error that is paid for in ``sum mu``, and each eigenvalue is
    lowered by what rounding may have added to it. A share of 1e-9 of equal weights is mixed in, so that G exists.

    ``weights`` (n, n) are symmetric, non-negative, not all zero beside the diagonal, which does not matter.

    >>> round(pair_bound(np.eye(3), np.ones((3, 3))), 6)  # three cells that add up to a public total
    4.0
    """
    V, n = checked_gram(gram), np.shape(gram)[0]
    mu = np.array(weights, dtype=np.float64)
    if mu.shape != (n, n) or not (np.isfinite(mu).all() and (mu >= 0).all() and np.array_equal(mu, mu.T)):
        raise InvalidArgument(f"weights must be a symmetric {n} x {n} matrix of non-negative numbers.")
    np.fill_diagonal(mu, 0.0)
    if not mu.any():
        raise InvalidArgument("weights are all zero: weigh at least one pair of cells.")
    mu = mu / mu.max() + 1e-9 * mu.mean() / mu.max()
    np.fill_diagonal(mu, 0.0)
    L = (np.diag(mu.sum(axis=0)) - mu)[:-1, :-1]
    G = sl.cholesky(L, lower=True, check_finite=False)
    inner = grounded(V, n - 1)
    size = float(np.abs(V).max())
    exact = size < 2.0**50 and np.array_equal(V, np.rint(V))
    error = np.abs(G).T @ (np.abs(inner) + (0.0 if exact else 4 * size / n)) @ np.abs(G)
    S = G.T @ inner @ G
    margin = (n + 4) * _EPS * (float(np.linalg.norm(S)) + float(np.linalg.norm(error)))
    values = sl.eigvalsh((S + S.T) / 2, overwrite_a=True, check_finite=False)
    trace = float(np.sqrt(np.maximum(values - margin, 0.0)).sum())
    total = float(mu.sum()) / 2 * (1 + 2 * (n + 2) ** 2 * _EPS)
    return trace**2 / total * (1 - (4 * n + 8) * _EPS)


def pair_svd_bound(gram: np.ndarray) -> float:
    """The SVD bound of an explicit workload under replace-one neighbours: all pairs weigh the same.

    ``2 / (n - 1) (sum of singular values of W (I - J/n))^2``.
    """
    n = np.shape(gram)[0]
    return pair_bound(gram, np.ones((n, n))) if n > 1 else 0.0


def product_pair_bound(columns: Sequence[float], pairs: Sequence[float]) -> float:
    """Lower bound for one Kronecker product from bounds on its factors, under add-remove and under replace.

    Weigh only pairs that differ in attribute i and agree in all others, by ``mu_i`` of the pair times the
    multipliers of the cells they agree in: L is the Kronecker product of L_i and diagonal matrices, and the
    bound is the product of the others' bounds for add-remove (``columns``) and the i-th's for replace (``pairs``).
    """
    return max(
        pair * math.prod(other for j, other in enumerate(columns) if j != i) * (1 - 4 * len(columns) * _EPS)
        for i, pair in enumerate(pairs)
    )


def product_pair_svd_bound(factors: Sequence[np.ndarray]) -> float:
    """SVD bound under replace for one Kronecker product with Gram matrices V_i (n_i x n_i).

    The larger of :func:`product_pair_bound` of the factors' SVD bounds, and of equal weights for all pairs:
    ``W (I - J/N)`` has all but the largest of W's singular values or larger ones (they interlace).
    """
    columns = [svd_bound(V) for V in factors]
    single = product_pair_bound(columns, [pair_svd_bound(V) for V in factors])
    nuclear = math.prod(math.sqrt(b * len(V)) for b, V in zip(columns, factors, strict=True))
    largest = math.prod(
        math.sqrt(float(np.linalg.eigvalsh(V)[-1]) + (len(V) + 4) * _EPS * float(np.linalg.norm(V)))
        for V in factors
    )
    cells = math.prod(len(V) for V in factors)
    if cells == 1:
        return 0.0
    rest = max(0.0, nuclear * (1 - 8 * len(factors) * _EPS) - largest * (1 + 8 * len(factors) * _EPS))
    return max(single, 2.0 / (cells - 1) * rest**2 * (1 - 8 * _EPS))


def lattice_pair_bound(terms: Terms) -> float:
    """The best dual bound of a union of marginals under replace-one neighbours, in closed form.

    Pairs weigh by the set D of attributes in which they differ. With N cells and ``nu_D >= 0``, ``sum nu = 1``, the
    Laplacian has the eigenspaces of the marginals, S again a set of attributes, and the eigenvalues

        (2/N) h_S,      h_S = sum_D nu_D (1 - prod_{i in D and S} -1/(n_i - 1)),

    so that ``loss >= (sum_S m_S sqrt(2/N kappa_S h_S))^2``, with kappa and m as in HDMM, Theorem 12. The right hand
    side is concave in nu; a step of its maximisation takes O(d 2^d). Relabelling categories changes
    neither workload nor neighbours, so no other weights of pairs do better: the maximum is the least loss of
    any strategy under Gaussian noise.

    Raises :class:`~tabulae.errors.Unsupported` for a union that is not of marginals, or of more than 20 attributes.

    >>> round(lattice_pair_bound([(1.0, [np.eye(3), np.eye(4)])]), 6)
    22.0
    """
    sizes = kron_sizes(terms)
    kappa, multiplicity = lattice_spectrum(terms)
    shape = (2,) * len(sizes)
    keep = tuple(slice(None) if n > 1 else 0 for n in sizes)  # one category has nothing to contrast
    spread = [n for n in sizes if n > 1]
    if not spread:
        return 0.0
    kappa, multiplicity = kappa.reshape(shape)[keep], multiplicity.reshape(shape)[keep]
    roots = multiplicity * np.sqrt(kappa * (2.0 / math.prod(sizes)))
    roots.flat[0] = 0.0  # the total is public
    if not roots.any():
        return 0.0
    best, margin = 0.0, (8 * len(spread) + 8) * _EPS

    def objective(w: np.ndarray) -> tuple[float, np.ndarray]:
        """``-log (sum_S roots sqrt h_S)^2`` at nu = w^2 / sum w^2, and its gradient in w."""
        nonlocal best
        w = w.reshape(roots.shape)
        total = float(np.vdot(w, w))
        h = np.maximum(1.0 - _alternating(w * w / total, spread), margin)
        best = max(best, float((roots * np.sqrt(h - margin)).sum()))
        slope, value = roots / np.sqrt(h), float((roots * np.sqrt(h)).sum())
        ratio = (slope.sum() - _alternating(slope, spread)) / value
        return -2 * math.log(value), (2 * w * (1 - ratio) / total).ravel()

    start = np.ones(roots.shape)
    start.flat[0] = 0.0  # a cell is not a neighbour of itself
    minimize(
        objective, start.ravel(), jac=True, method="L-BFGS-B",
        options={"maxiter": min(400, max(10, _STEPS // (roots.size * len(spread)))), "ftol": 1e-13, "gtol": 1e-9},
    )  # fmt: skip
    return best**2 * (1 - (8 * roots.size + 16) * _EPS)


def _alternating(values: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """Along every axis i multiply by ``[[1, 1], [1, -1/(n_i - 1)]]``."""
    for i, n in enumerate(sizes):
        first, second = np.take(values, 0, axis=i), np.take(values, 1, axis=i)
        values = np.stack([first + second, first - second / (n - 1)], axis=i)
    return values


def pair_rows_bound(gram: np.ndarray, sums: np.ndarray, cells: int) -> float:
    """The SVD bound under replace from independent rows R of the workload, W'W = R'R; cells are never listed.

    ``gram`` is R R' (r x r) and ``sums`` R 1 (r,), over ``cells`` cells. The singular values of ``R (I - J/N)`` are the
    roots of the eigenvalues of ``R R' - (R 1)(R 1)'/N``.
    """
    if cells == 1:
        return 0.0
    centred = gram - np.outer(sums, sums) / cells
    values = np.linalg.eigvalsh(centred)
    rounding = (len(gram) + 4) * _EPS * (float(np.linalg.norm(gram)) + float(sums @ sums) / cells)
    nuclear = float(np.sqrt(np.maximum(values - rounding, 0.0)).sum())
    return 2.0 / (cells - 1) * nuclear**2 * (1 - (4 * len(gram) + 8) * _EPS)


_FLOOR = 1e-13  # smallest multiplier, relative to the largest
_MULTIPLICATIVE, _ITERATIONS, _ROUNDS = 3, 150, 4


class _Reached(Exception):
    """The gap is within tolerance, or time is up."""


class DualSearch(ABC):
    """Keeps the best lower and upper bound that were met on the way; a subclass evaluates a point.

    ``tolerance`` is the relative gap at which the search stops, ``most`` limits the number of evaluations. ``evaluate``
    may leave the eigenvalues it met in ``spectrum``; those of the best lower bound are kept. ``power`` is a.
    The search ends while there is time for ``after`` more evaluations: one, and what is then made of the multipliers.
    """

    def __init__(
        self, tolerance: float, deadline: float, most: int | None = None, power: int = 1, after: float = 2.0
    ) -> None:
        self.tolerance = tolerance
        self._power = power
        self._deadline = deadline
        self._most = most
        self._after, self._began = after, now()
        self.evaluations = 0
        self.lower, self.upper = 0.0, np.inf
        self.multipliers = np.ones(0)
        self.spectrum: np.ndarray | None = None
        self.best_spectrum: np.ndarray | None = None

    @abstractmethod
    def evaluate(self, mu: np.ndarray) -> tuple[float, np.ndarray]:
        """t(mu) and the diagonal of X(mu) (its columns' norms); lowers ``upper`` where X(mu), made feasible, does."""

    def price(self, mu: np.ndarray) -> float:
        """What the multipliers add up to."""
        return float(mu.sum())

    @property
    def gap(self) -> float:
        """How far the best strategy met may be from the optimum."""
        return self.upper / self.lower - 1.0 if self.lower else np.inf

    def run(self, mu: np.ndarray) -> None:
        """Search from ``mu`` until the gap is reached, time is up, or nothing improves."""
        try:
            for _ in range(_ROUNDS):
                before = self.gap
                for _ in range(_MULTIPLICATIVE):
                    mu = self._multiply(mu)
                result = minimize(
                    self._objective, np.sqrt(mu), jac=True, method="L-BFGS-B",
                    options={"maxiter": _ITERATIONS, "maxcor": 20, "ftol": 1e-15, "gtol": 1e-12},
                )  # fmt: skip
                mu = result.x**2
                if self.gap > 0.9 * before:
                    break
        except _Reached:
            pass

    def _multiply(self, mu: np.ndarray) -> np.ndarray:
        """One multiplicative step ``mu <- mu * X_jj^2``: towards unit diagonals."""
        mu = np.maximum(mu / mu.max(), _FLOOR)
        _, diagonal = self._visit(mu)
        excess = diagonal * mu.sum() / (diagonal @ mu)
        return mu * np.maximum(excess, 0.01) ** 2

    def _objective(self, w: np.ndarray) -> tuple[float, np.ndarray]:
        """``-log(t^(1+a) / (sum mu)^a)`` at mu = w^2, and its gradient in w."""
        mu = np.maximum(w * w, _FLOOR * np.square(w).max())
        trace, diagonal = self._visit(mu)
        a = self._power
        value = a * np.log(mu.sum()) - (1 + a) * np.log(trace)
        return value, -2 * a * w * (diagonal / trace - 1 / mu.sum())

    def _visit(self, mu: np.ndarray) -> tuple[float, np.ndarray]:
        trace, diagonal = self.evaluate(mu)
        self.evaluations += 1
        lower = trace * (trace / self.price(mu)) ** self._power
        if lower > self.lower:
            self.lower, self.multipliers, self.best_spectrum = lower, mu, self.spectrum
        if self.gap <= self.tolerance or self._is_late or self.evaluations == self._most:
            raise _Reached
        return trace, diagonal

    @property
    def _is_late(self) -> bool:
        if self._deadline == np.inf:
            return False
        time = now()
        return time + self._after * (time - self._began) / self.evaluations > self._deadline


@dataclass(frozen=True)
class Certified:
    """``loss`` is the total squared error that was reached at unit noise; no strategy has less than ``lower``."""

    loss: float
    lower: float
    evaluations: int

    @property
    def gap(self) -> float:
        """The relative gap between the two."""
        return self.loss / self.lower - 1.0


@dataclass(frozen=True)
class GaussianOptimum(Certified):
    """A strategy A (r x n) for Gaussian noise with largest column norm, or distance of columns, at most 1.

    ``lower`` is proven by ``multipliers`` through :func:`dual_bound` (n,), or :func:`pair_bound` (n, n).
    """

    strategy: np.ndarray
    multipliers: np.ndarray


PAIR_CELLS = 2048
"""Most distinct cells whose pairs are weighed one by one."""

_FILL = 1e-5  # share of the identity mixed into a singular Y
_TOTAL = 1e-7  # share of the error that the noise of the total may add
_LARGEST_TOTAL = 1024.0  # rows beyond would no longer fit into 64 bits once squared on the finest grid
_PAIR_STEPS, _PAIR_ITERATIONS, _PAIR_ROUNDS = 6, 60, 8
_KEPT = 1e-6  # pairs of less weight than this, relative to the largest, leave the search ...
_NEAR = 1e-3  # ... unless their distance comes so near to the largest
_SMALL, _FINE = 512, 1e-5  # up to this many cells the search goes on to this gap


def opt0_pairs(gram: np.ndarray, *, tolerance: float = 1e-3, deadline: float = np.inf) -> GaussianOptimum:
    """The strategy of least total squared error under Gaussian noise and replace-one neighbours.

    Minimises ``tr[(A'A)^+ V]``, V = ``gram`` of any rank, over all A whose columns are at most 1 apart in L2 norm; the
    last row of A is a multiple of the total. The search stops at a gap of ``tolerance`` (up to 512 distinct cells: of
    1e-5, if that is less), when it cannot improve, or the ``deadline`` has passed; the gap reported is true in each
    case.

    Raises:
        InvalidArgument: ``gram`` is no Gram matrix or is zero.
        Unsupported: the workload asks for nothing but the total, or has more than 2,048 distinct cells.

    Reference: HDMM, Definition 12, with the pair constraint of replace-one neighbours.

    >>> best = opt0_pairs(np.eye(3), tolerance=1e-6)  # three cells that add up to a public total
    >>> round(best.loss, 5), best.gap < 1e-5
    (4.0, True)
    """
    V = asked_gram(gram)
    check_tolerance(tolerance)
    cells = distinct_cells(V)
    if cells.count == 1:
        raise Unsupported(
            "under 'replace' no neighbour changes these answers (the number of records is public then), so "
            'there is nothing to protect by noise: choose neighbours = "add-remove", or ask for more than the total'
        )
    if cells.count > PAIR_CELLS:
        raise Unsupported(
            f"{cells.count:,} distinct cells; pairs are weighed one by one up to {PAIR_CELLS:,}"
        )
    merged = cells.merge(V)
    aim = min(tolerance, _FINE) if cells.count <= _SMALL else tolerance
    search = _PairSearch(merged, aim, deadline)
    search.run(search.multipliers)
    A, loss = search.strategy()
    lower = pair_bound(merged, search.weights)
    return GaussianOptimum(loss, lower, search.evaluations, cells.lift(A), search.weights)


def distinct_cells(gram: np.ndarray) -> DistinctCells:
    """Cells that the workload tells apart; those that it does not count are one class among them.

    A record may be replaced by one that no query counts, so that class takes part in pairs.
    """
    return DistinctCells.of([gram, np.ones_like(gram)])


class _PairSearch(DualSearch):
    """The dual over pair weights (n, n), symmetric; cells are in an order with the origin last."""

    def __init__(self, gram: np.ndarray, tolerance: float, deadline: float) -> None:
        super().__init__(tolerance, deadline)
        n = gram.shape[0]
        self.gram, self.origin = gram, int(np.argmin(gram.diagonal()))
        self._order = np.append(np.delete(np.arange(n), self.origin), self.origin)
        inner = grounded(gram, self.origin)
        self.root = gram_root(inner / (float(np.trace(inner)) / n))
        self.fill = min(_FILL, max(tolerance / 10, 1e-9)) if self.root.shape[0] < n - 1 else 0.0
        self._best = self.multipliers = np.ones((n, n)) - np.eye(n)

    @property
    def weights(self) -> np.ndarray:
        """The best pair weights, cells in the order of ``gram``."""
        back = np.argsort(self._order)
        return self.multipliers[np.ix_(back, back)]

    def price(self, mu: np.ndarray) -> float:
        return float(mu.sum()) / 2

    def run(self, mu: np.ndarray) -> None:
        """Search until the gap is small enough, time is up, or rounds gain little."""
        try:
            for _ in range(_PAIR_STEPS):
                mu = mu * np.maximum(self._excess(mu)[1], 0.01) ** 3
                mu /= mu.max()
            excess = self._excess(mu)[1]
            for _ in range(_PAIR_ROUNDS):
                before = self.gap
                mu, excess = self._descend(mu, excess)
                if self.gap > 0.9 * before:
                    break
        except _Reached:
            pass

    def _excess(self, mu: np.ndarray) -> tuple[float, np.ndarray]:
        """t(mu), and all pair distances of Y(mu) relative to their mean under mu, (n, n)."""
        trace, distances = self._visit(mu)
        return trace, distances * (self.price(mu) / trace)

    def _descend(self, weights: np.ndarray, excess: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """L-BFGS over the pairs that matter; the weights reached and their pairs' relative distances."""
        rows, columns = np.triu_indices(weights.shape[0], 1)
        active = (weights[rows, columns] > _KEPT * weights.max()) | (excess[rows, columns] > 1 - _NEAR)
        rows, columns = rows[active], columns[active]
        last = weights, excess

        def objective(w: np.ndarray) -> tuple[float, np.ndarray]:
            """``-log(t^2 / sum mu)`` at mu = w^2, and its gradient in w."""
            nonlocal last
            pairs = np.zeros_like(weights)
            pairs[rows, columns] = w * w
            pairs += pairs.T
            trace, excess = self._excess(pairs)
            last = pairs, excess
            total = float(w @ w)
            return np.log(total) - 2 * np.log(trace), 2 * w * (1 - excess[rows, columns]) / total

        start = np.sqrt(np.maximum(weights[rows, columns] / weights.max(), 1e-4))
        minimize(
            objective, start, jac=True, method="L-BFGS-B",
            options={"maxiter": _PAIR_ITERATIONS, "maxcor": 10, "ftol": 1e-15, "gtol": 1e-12},
        )  # fmt: skip
        return last

    def evaluate(self, mu: np.ndarray) -> tuple[float, np.ndarray]:
        """t(mu), and the squared distances of all pairs of columns."""
        laplacian = np.diag(mu.sum(axis=0)) - mu
        values, vectors = sl.eigh(
            self.root @ laplacian[:-1, :-1] @ self.root.T, check_finite=False, overwrite_a=True
        )
        values = np.maximum(values, values[-1] * 1e-15)
        half = (vectors / values**0.25).T @ self.root
        trace, distances = float(np.sqrt(values).sum()), _distances(half.T @ half)
        largest = float(distances.max())
        if trace * largest / (1 - self.fill) < self.upper:
            self.upper, self._best = trace * largest / (1 - self.fill), half / np.sqrt(largest)
        return trace, distances

    def strategy(self) -> tuple[np.ndarray, float]:
        """The best strategy found, A over all cells with its last row the total, and its loss.

        Y = R'R with R triangular stands on the cells other than the origin, whose column is zero.
        """
        n = self.gram.shape[0]
        Y = (1 - self.fill) * (self._best.T @ self._best)
        Y += self.fill / 2 * (np.eye(n - 1) + 1)  # the identity seen from the origin, pairs at most 1 apart
        R = sl.cholesky(Y, check_finite=False)
        R /= np.sqrt(_distances(R.T @ R).max())
        inner = grounded(self.gram, self.origin)
        loss = float(np.trace(sl.cho_solve((R, False), inner, check_finite=False)))
        at_origin = float(self.gram[self.origin, self.origin])
        total = min(max(1.0, np.sqrt(at_origin / (_TOTAL * loss))), _LARGEST_TOTAL)
        A = np.zeros((n, n))
        A[:-1, self._order[:-1]] = R
        A[-1] = total
        return A, float(loss + at_origin / total**2)


def _distances(Y: np.ndarray) -> np.ndarray:
    """Squared distances of all pairs of cells from their Gram matrix around the origin, which comes last."""
    around = np.zeros((len(Y) + 1, len(Y) + 1))
    around[:-1, :-1] = Y
    size = around.diagonal()
    return size[:, None] + size - 2 * around
