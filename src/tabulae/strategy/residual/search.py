"""Bases and weights of the residual planner.

With residual groups of variance s_S^2 (Gaussian) or scale b_S (Laplace) and a basis B_i of column norm 1 for each
attribute, a budget of 1 buys the total squared error

    Gaussian   (sum_S v_S^(1/2))^2        s_S^2 proportional to v_S^(-1/2)
    Laplace    (sum_S v_S^(1/3))^3        b_S proportional to v_S^(-1/3)

with v_S as in :mod:`..information.residual_basis`. Both are concave in every v_S, so with slopes ``a_k, b_k`` of the
objective by beta_k and gamma_k of attribute i, lowering

    f(B) = sum_k a_k tr(Q' V_k Q) + b_k q' V_k q,       [q, Q] = [1'; B]^-1,

lowers the objective at least as much: one small descent for each attribute, in turn. B need not be orthogonal to the
total: the search is over all (n-1) x n matrices with columns of norm 1. It starts at the optimum of the explicit
workload ``sum_k a_k V_k``: with X its strategy's Gram matrix and c the largest number such that ``X - c 1 1'`` is
positive semi-definite, B is a root of ``X - c 1 1'``. That is the end of the search too where there is but one
attribute, or one product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from scipy.optimize import minimize

from ...domain import Workload
from ...errors import InvalidArgument, Unsupported
from ...linalg import Identity, LinearOperator, MatrixProduct, Total
from ..bounds.dual import identity_and_ones
from ..gram import check_written
from ..hdmm.opt0 import nonsingular_optimum
from ..information.protocol import is_flat
from ..information.residual_basis import Set, SetSums, closure
from ..methods import Settings

WIDEST = 1024
"""Most cells of an attribute whose basis is searched for (merged; unlimited where cells are asked alike)."""

ROOT = {2: 1 / 2, 1: 1 / 3}
"""The power of v_S that the least error at unit budget sums, by the norm that the noise pays for."""

LEAST = 1e-24
"""Of the largest v_S: a group that nothing asks for is measured with as much noise."""

_RIDGE = 1e-7  # share of the identity added to what is asked, so that a basis never loses rank
_SINGULAR = 1e100  # in place of an infinite loss
_INDEFINITE = 1e-9  # share of the largest eigenvalue by which rounding may make the least one negative
_SECOND = 0.1  # of a second half that is taken from the first
_STEPS = 8.0  # eigendecompositions' worth of the shortest search, with what follows it
_SWEEPS, _ITERATIONS = 12, {2: 200, 1: 100}  # rounds; steps of one descent, by norm: the L1 norm has corners
_SMALL = 300  # cells up to which a descent goes on to the last digits that matter
_SETTLED = {2: 1e-6, 1: 1e-2}  # relative gain of a sweep at which the search ends


@dataclass(frozen=True)
class WorkloadGram:
    """W'W over merged cells: ``sum_l c_l (x)_i V_i,index[l, i]``.

    ``grams[i]`` (k, n, n) holds the matrices of an attribute that a basis is searched for, symmetric parts; None
    where cells are asked alike or not at all, and beta, gamma are ``closed[i]`` (k, 2), whatever the search does.
    ``total_free`` says that the group of the total costs nothing, as under replace-one neighbours.
    """

    coefficients: np.ndarray
    index: np.ndarray
    grams: tuple[np.ndarray | None, ...]
    closed: tuple[np.ndarray, ...]
    sums: SetSums
    total_free: bool = False

    def values(self, traces: Sequence[np.ndarray]) -> np.ndarray:
        """v_S from (beta, gamma) of each matrix of each attribute, never quite zero but for a group that is free."""
        v = self.sums.values(self.coefficients, *self._spread(traces))
        v = np.maximum(v, LEAST * v.max())
        if self.total_free:
            v[self.sums.sets.index(())] = 0.0
        return v

    def _spread(self, traces: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        pairs = np.stack([t[self.index[:, i]] for i, t in enumerate(traces)], axis=1)
        return pairs[:, :, 0], pairs[:, :, 1]

    def slopes(self, traces: Sequence[np.ndarray], root: float) -> list[np.ndarray]:
        """Derivatives of ``(sum v^root)^(1/root)`` by beta and gamma of every matrix, (k, 2) an attribute."""
        v = self.values(traces)
        outer = (v**root).sum() ** (1 / root - 1) * np.where(v > 0, v, np.inf) ** (root - 1)
        by_beta, by_gamma = self.sums.gradient(outer, self.coefficients, *self._spread(traces))
        return [
            np.stack(
                [
                    np.bincount(self.index[:, i], weights=by[:, i], minlength=len(t))
                    for by in (by_beta, by_gamma)
                ],
                axis=1,
            )
            for i, t in enumerate(traces)
        ]


def loss_of(v: np.ndarray, root: float) -> float:
    """The least total squared error at unit budget."""
    return float((v**root).sum() ** (1 / root))


def search(asked: WorkloadGram, settings: Settings) -> list[np.ndarray | None]:
    """A basis (n-1, n) of column norm 1 for each attribute that needs one, by descent in turn."""
    wide = max((g.shape[1] for g in asked.grams if g is not None), default=0)
    if wide > WIDEST:
        raise Unsupported(
            f"residual searches for a basis of {wide:,} distinguishable cells of one attribute; it goes up to "
            f"{WIDEST:,}, "
            'and is not limited where every cell is asked alike. Choose "kron", or recode the attribute'
        )
    root, p = ROOT[settings.norm], settings.norm
    searched = [i for i, g in enumerate(asked.grams) if g is not None]
    settings.check_time(*(len(_grams(asked, i)[0]) for i in searched), steps=_STEPS)
    bases: list[np.ndarray | None] = [None] * len(asked.grams)
    traces = list(asked.closed)
    for i in searched:
        traces[i] = _centred_traces(_grams(asked, i), p)
    start = asked.slopes(traces, root)
    for i in searched:
        bases[i] = _start(_grams(asked, i), start[i], p)
        traces[i] = basis_traces(bases[i], _grams(asked, i))
    before = loss_of(asked.values(traces), root)
    for _ in range(_SWEEPS if searched else 0):
        for i in searched:
            slopes = asked.slopes(traces, root)[i]
            bases[i] = _descend(bases[i], _grams(asked, i), slopes, settings)
            traces[i] = basis_traces(bases[i], _grams(asked, i))
        after = loss_of(asked.values(traces), root)
        if after > before * (1 - _SETTLED[p]) or settings.late:
            break
        before = after
    return bases


def _grams(asked: WorkloadGram, i: int) -> np.ndarray:
    grams = asked.grams[i]
    assert grams is not None
    return grams


def basis_traces(basis: np.ndarray | None, grams: np.ndarray) -> np.ndarray:
    """(beta, gamma) of every matrix under a real basis, (k, 2)."""
    assert basis is not None
    inverse = np.linalg.inv(np.vstack([np.ones(basis.shape[1]), basis]))
    q, rest = inverse[:, 0], inverse[:, 1:]
    covariance = rest @ rest.T
    return np.array([[np.vdot(covariance, V), q @ V @ q] for V in grams])


def _centred_traces(grams: np.ndarray, p: int) -> np.ndarray:
    """(beta, gamma) under the centring matrix with columns of norm 1."""
    n = grams.shape[1]
    size2 = n * (n - 1) if p == 2 else 4 * (n - 1) ** 2
    whole = grams.sum(axis=(1, 2))
    return np.stack([(np.trace(grams, axis1=1, axis2=2) - whole / n) * size2 / n**2, whole / n**2], axis=1)


def mixtures(grams: np.ndarray, slopes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``sum a_k V_k`` and ``sum b_k V_k``, what f sums beside the total and on it.

    Residuals see no more of the former than is orthogonal to the total; what is left is positive semi-definite also
    where single terms of a signed sum are not.
    """
    beside, total = (np.tensordot(slopes[:, c], grams, axes=1) for c in (0, 1))
    values = np.linalg.eigvalsh(beside)
    if values[0] < -_INDEFINITE * values[-1]:
        beside = beside - beside.mean(axis=0)
        beside = beside - beside.mean(axis=1, keepdims=True)
    return beside, total


def _scaled(beside: np.ndarray, total: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both divided by the mean diagonal of the former, which gets a ridge."""
    n = len(beside)
    size = float(np.trace(beside)) / n
    if size <= 0:  # tables that count nobody: any basis will do
        return np.eye(n), np.zeros((n, n))
    return beside / size + _RIDGE * np.eye(n), total / size


def _start(grams: np.ndarray, slopes: np.ndarray, p: int) -> np.ndarray:
    """A root of what the optimal strategy of the attribute alone has beside the total; for the L1 norm, halves.

    The L1 norm depends on the root, and none of those that come easily is any good.
    """
    if p == 1:
        return _halves(grams.shape[1])
    beside, _ = _scaled(*mixtures(grams, slopes))
    A = nonsingular_optimum(beside, tolerance=1e-4).strategy
    ones = np.ones(len(beside))
    share = 1 / float(ones @ scipy.linalg.solve(A.T @ A, ones, assume_a="pos"))
    values, vectors = np.linalg.eigh(A.T @ A - share)
    basis = (vectors * np.sqrt(np.maximum(values, _RIDGE * values[-1]))).T[1:]
    return basis / _norms(basis, p)


def _halves(n: int) -> np.ndarray:
    """The first half of the cells less a little of the second, the same for each half, and so on, (n-1, n)."""
    rows = []
    pieces = [(0, n)]
    for first, stop in pieces:  # grows while it is read
        if stop - first > 1:
            middle = (first + stop) // 2
            row = np.zeros(n)
            row[first:middle], row[middle:stop] = 1.0, -_SECOND
            rows.append(row)
            pieces += [(first, middle), (middle, stop)]
    basis = np.array(rows)
    return basis / _norms(basis, 1)


def _norms(matrix: np.ndarray, p: int) -> np.ndarray:
    return np.abs(matrix).sum(axis=0) if p == 1 else np.sqrt(np.square(matrix).sum(axis=0))


def _descend(
    basis: np.ndarray | None, grams: np.ndarray, slopes: np.ndarray, settings: Settings
) -> np.ndarray:
    """Lower ``f(B)`` by L-BFGS over matrices whose columns are divided by their norms."""
    assert basis is not None
    beside, total = _scaled(*mixtures(grams, slopes))
    shape, p = basis.shape, settings.norm
    scale: list[float] = []

    def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
        matrix = x.reshape(shape)
        size = _norms(matrix, p)
        B = matrix / size
        try:
            Q = np.linalg.inv(np.vstack([np.ones(shape[1]), B]))
        except np.linalg.LinAlgError:  # a step too far
            return _SINGULAR, np.zeros(x.shape)
        H = beside @ Q
        H[:, 0] = total @ Q[:, 0]
        value = float(np.vdot(Q, H))
        if not scale:  # the total's part is known but for a constant, and may be negative
            scale.append(float(np.vdot(Q[:, 1:], H[:, 1:])))
        G = -2 * (Q.T @ H @ Q.T)[1:]
        along = np.sign(B) if p == 1 else B
        gradient = (G - along * (G * B).sum(axis=0)) / size
        return value / scale[0], gradient.ravel() / scale[0]

    def stop_in_time(_: np.ndarray) -> None:
        if settings.late:
            raise StopIteration

    small = shape[1] <= _SMALL
    found = minimize(
        objective, basis.ravel(), jac=True, method="L-BFGS-B", callback=stop_in_time,
        options={
            "maxiter": _ITERATIONS[p], "maxcor": 20 if small else 5, "ftol": 1e-9 if small else 1e-7, "gtol": 1e-9
        },
    )  # fmt: skip
    better = found.x.reshape(shape)
    return better / _norms(better, p)


def asked_for(workload: Workload) -> WorkloadGram:
    """What a workload asks of each attribute under Gaussian noise, its cells merged and its closure listed."""
    return asked_of(workload.merge()[0], closure(crossed_sets(workload)), Settings("gaussian"))


def asked_of(merged: Workload, sets: tuple[Set, ...], settings: Settings) -> WorkloadGram:
    """What a workload over merged cells asks of each attribute, term by term of W'W."""
    terms = merged.gram_terms()
    coefficients = np.array([c for c, _ in terms])
    index = np.empty((len(terms), len(merged.domain.shape)), dtype=np.int64)
    crossed = np.empty(index.shape, dtype=bool)
    grams, closed = [], []
    for i, n in enumerate(merged.domain.shape):
        place: dict[LinearOperator, int] = {}
        index[:, i] = [place.setdefault(factors[i], len(place)) for _, factors in terms]
        pattern = [alike(gram) for gram in place]
        levels = np.array([a[0] if a is not None and a[0] == a[1] else np.nan for a in pattern])
        crossed[:, i] = np.isnan(levels)[index[:, i]]
        coefficients *= np.nan_to_num(levels, nan=1.0)[index[:, i]]
        pairs = [_centred(n, *a, settings.norm) for a in pattern if a is not None]
        closed.append(np.array(pairs) if len(pairs) == len(place) else np.zeros((len(place), 2)))
        grams.append(None if len(pairs) == len(place) else _symmetric(list(place)))
    mentions = tuple(tuple(np.flatnonzero(row).tolist()) for row in crossed)
    sums = SetSums(sets, mentions)
    asked = WorkloadGram(
        coefficients, index, tuple(grams), tuple(closed), sums, settings.neighbours == "replace"
    )
    if not np.any(coefficients):
        raise InvalidArgument("the tables count no cell: leave out tables of nothing")
    return asked


def crossed_sets(workload: Workload) -> list[Set]:
    """The attributes that each product of each table tells cells apart by."""
    flat: dict[LinearOperator, bool] = {}
    found = []
    for term in (term for table in workload.tables for term in table.terms):
        for factor in term.factors.values():
            if factor not in flat:
                flat[factor] = is_flat(factor)
        told = [name for name, factor in term.factors.items() if not flat[factor]]
        found.append(tuple(sorted(workload.domain.axis(name) for name in told)))
    return found


def _symmetric(grams: Sequence[LinearOperator]) -> np.ndarray:
    """Symmetric parts, (k, n, n)."""
    check_written(grams)
    dense = np.array([np.asarray(gram.dense(), dtype=float) for gram in grams])
    return (dense + dense.transpose(0, 2, 1)) / 2


def alike(gram: LinearOperator) -> tuple[float, float] | None:
    """(diagonal, beside it) of a Gram matrix a I + b J; None for any other."""
    if isinstance(gram, Identity):
        return (1.0, 0.0) if gram.n > 1 else (1.0, 1.0)
    if isinstance(gram, MatrixProduct) and isinstance(gram.right, Total) and gram.left == gram.right.T:
        return 1.0, 1.0
    matrix = np.asarray(gram.dense(), dtype=float)
    return None if identity_and_ones(matrix) is None else (float(matrix[0, 0]), float(matrix[0, -1]))


def _centred(n: int, diagonal: float, beside: float, p: int) -> tuple[float, float]:
    """(beta, gamma) of such a Gram matrix under the centring matrix, its columns' norm made 1."""
    size2 = n * (n - 1) if p == 2 else 4 * (n - 1) ** 2
    return (diagonal - beside) * (n - 1) * size2 / n**2, (diagonal + (n - 1) * beside) / n
