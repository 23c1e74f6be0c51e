"""Real strategies onto an integer grid: what is measured is what was rounded, and nothing else.

A matrix A (r, n) with columns of norm at most 1 becomes ``M = round(2^k A)``. Noise lives on the same grid,
the sensitivity is recomputed exactly on M, and least squares inverts M, so that rounding costs a little
accuracy and never privacy. What it must not do is move the row space away from the workload: a matrix
without full column rank is first completed, ``A'A + t I``, with the t that costs least after rounding.

Stacks of partitions take small whole numbers instead of a fine grid. Where an attribute is only asked for by
categories, groups of categories and in total, the optimal ``X = A'A`` is (nearly) ``sum_j theta_j P_j'P_j`` for nested
partitions P_j: singletons, groups, the whole. Then ``A = [p_1 P_1; p_2 P_2; ...]`` with whole numbers p_j near
sqrt(theta_j) measures plain counts. Every category lies in exactly one class of each partition, so that all columns
have the same norm, and an error in the ratios of the p_j costs only its square: three or four bits do where a general
matrix needs ten.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import scipy.linalg

from ..errors import Unsupported
from ..linalg import Dense, Identity, LinearOperator, Partition, Scaled, Stack, Total

_ALIKE = 0.02  # entries of X this close, relative to its diagonal, are one level
_LARGEST = 256  # attributes with more categories are left to general matrices
_LEVELS = 6


def _nested(x: np.ndarray) -> list[tuple[float, LinearOperator]] | None:
    """X as theta_1 I + theta_2 P_2'P_2 + ...; None where that is not close to it."""
    from scipy.cluster import hierarchy  # heavy
    from scipy.spatial.distance import squareform

    n = len(x)
    size = float(x.diagonal().mean())
    distance = np.maximum(size - (x + x.T) / 2, 0.0)
    np.fill_diagonal(distance, 0.0)
    condensed = squareform(distance, checks=False)
    tree = hierarchy.average(condensed)
    heights = _levels(tree[:, 2], _ALIKE * size)
    if len(heights) > _LEVELS:
        return None
    parts: list[tuple[float, LinearOperator]] = [(float(heights[0]), Identity(n))]
    for height, above in zip(heights, [*heights[1:], size], strict=True):
        labels = hierarchy.fcluster(tree, height + _ALIKE * size / 2, criterion="distance") - 1
        if above > height:
            parts.append((float(above - height), _partition(labels, n)))
    rebuilt = sum(theta * np.asarray(part.gram().dense(), float) for theta, part in parts)
    close = np.abs(rebuilt - x).max() <= 4 * _ALIKE * size
    return [(theta, part) for theta, part in parts if theta > 0] if close and heights[0] > 0 else None


def _partition(labels: np.ndarray, n: int) -> LinearOperator:
    """Classes numbered by first appearance; the whole attribute is a Total."""
    if labels.max() == 0:
        return Total(n)
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    order = np.argsort(np.argsort(first))
    return Partition(order[inverse].astype(np.int64))


def _levels(heights: np.ndarray, width: float) -> list[float]:
    """Distinct merge heights, those closer than ``width`` taken as one (their mean)."""
    groups: list[list[float]] = []
    for height in np.sort(heights):
        if groups and height - groups[-1][0] <= width:
            groups[-1].append(float(height))
        else:
            groups.append([float(height)])
    return [float(np.mean(group)) for group in groups]


FINEST = 20
"""Bits of the finest grid: rounding to it costs about 1e-6 of the error."""

TOGETHER = 34
"""Bits of the grids of all factors of a product together: k + log2(count) < 63 leaves room for 2^28 records."""

_COARSEST = 3
_ROUNDED = 1e-6  # relative loss that may be rounding's
_NEGLIGIBLE = 1e-5  # relative loss at which finer grids no longer pay
_MULTIPLIER_BITS = 6
_RECIPROCAL = 1e-14
_INDEPENDENT = 1e-6  # distance of a unit row from the span of those before it
_SAFE = 1e-6  # squared, of a matrix that needs no completion
_COMPLETIONS = (1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)


@dataclass(frozen=True)
class Rounded:
    """``2^-exponent * matrix`` stands for the real matrix; ``loss`` is its squared error at unit noise."""

    matrix: LinearOperator
    exponent: int
    loss: float


def gram_inverse(matrix: np.ndarray) -> np.ndarray | None:
    """(A'A)^-1 for a matrix of safely full column rank; None for any other.

    Safe means that A'A has a reciprocal condition number above 1e-14 (estimated from its Cholesky factor).
    """
    return definite_inverse(matrix.T @ matrix, _RECIPROCAL)


def definite_inverse(gram: np.ndarray, least: float = 0.0) -> np.ndarray | None:
    """The inverse of a positive definite matrix, through Cholesky's factor; None for any other.

    Also None below ``least`` as reciprocal condition number.
    """
    try:
        factor = scipy.linalg.cho_factor(gram, lower=True)[0]
    except np.linalg.LinAlgError:
        return None
    pocon, potri = scipy.linalg.get_lapack_funcs(("pocon", "potri"), (gram,))
    if least and not pocon(factor, float(np.abs(gram).sum(axis=0).max()), uplo="L")[0] > least:
        return None
    inverse, _ = potri(factor, lower=True)
    return np.tril(inverse) + np.tril(inverse, -1).T


def unit_loss(matrix: np.ndarray, gram: np.ndarray, p: int) -> float:
    """``||A||_p^2 tr((A'A)^+ V)`` for a matrix of full column rank; infinite for any other."""
    matrix = np.asarray(matrix, dtype=float)
    inverse = gram_inverse(matrix)
    if inverse is None:
        return np.inf
    sensitivity = float((np.abs(matrix) ** p).sum(axis=0).max()) ** (2 / p)
    return sensitivity * float(np.vdot(inverse, gram))


def exact_form(matrix: np.ndarray) -> LinearOperator | None:
    """Identity or Total where the real matrix is a multiple of it: those need no grid."""
    rows, columns = matrix.shape
    scale = np.abs(matrix).max()
    if rows == 1 and np.allclose(matrix, matrix[0, 0], rtol=0, atol=1e-9 * scale):
        return Total(columns)
    if rows == columns and np.allclose(matrix, np.eye(columns) * matrix[0, 0], rtol=0, atol=1e-9 * scale):
        return Identity(columns)
    return None


def row_basis(grams: Sequence[np.ndarray]) -> np.ndarray | None:
    """k < n whole-number rows, (k, n), that span the queries behind Gram matrices V_l (n, n).

    None where these span every cell, or the V_l are not of whole numbers. Rows of V_l lie in the row space of its
    queries; those kept are far from dependent.

    >>> row_basis([np.outer([1, 0, 1], [1, 0, 1]) * 4.0]).tolist()
    [[1, 0, 1]]
    """
    if len(grams[0]) > _LARGEST or not all(_is_whole(V) for V in grams):
        return None
    rows = np.unique(np.concatenate([V[V.any(axis=1)] for V in grams]).astype(np.int64), axis=0)
    rows //= np.gcd.reduce(rows, axis=1, keepdims=True)
    directions = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    _, r, order = scipy.linalg.qr(directions.T, mode="economic", pivoting=True)  # pyright: ignore[reportAssignmentType]
    rank = int(np.count_nonzero(np.abs(np.diagonal(r)) > _INDEPENDENT))
    return rows[order[:rank]] if rank < rows.shape[1] else None


def _is_whole(matrix: np.ndarray) -> bool:
    return bool(np.abs(matrix).max() < 2**31 and np.array_equal(matrix, np.rint(matrix)))


def to_grid(
    matrix: np.ndarray, gram: np.ndarray, p: int, bits: int, basis: np.ndarray | None = None
) -> Rounded:
    """Round a real strategy for the workload Gram V to integer multiples of ``2^-bits``.

    matrix: (r, n) real, columns of L_p norm at most about 1; gram: V = W'W, (n, n); p: 1 or 2; basis: whole-number
    rows (k, n) that span the workload's, to which the result keeps (p = 2). The loss of the result is measured on the
    rounded matrix, not assumed.

    Raises :class:`~tabulae.errors.Unsupported` if no completion survives rounding at this many bits.
    """
    exact = exact_form(matrix)
    if isinstance(exact, Total):
        # V is a multiple of the all-ones matrix: its one query is measured itself
        return Rounded(exact, 0, float(gram.sum()) / gram.shape[0] ** 2)
    if isinstance(exact, Identity):
        return Rounded(exact, 0, float(np.trace(gram)))
    return _rounding(matrix, gram, p, basis)(bits)


def _rounding(
    matrix: np.ndarray, gram: np.ndarray, p: int, basis: np.ndarray | None
) -> Callable[[int], Rounded]:
    """A function of bits that rounds a real strategy as :func:`to_grid` says."""
    stacked = _best_stack(matrix, gram, p) if basis is None else None
    candidates = _candidates(matrix, p)

    def at(bits: int) -> Rounded:
        if basis is not None and (spanned := _in_row_space(matrix, gram, bits, basis)) is not None:
            return spanned
        best: tuple[float, np.ndarray] | None = None
        for candidate in candidates:
            rounded = np.rint(np.ldexp(candidate(), bits))
            tried = (rounded, _level(rounded, 2**bits)) if p == 1 else (rounded,)
            losses = [unit_loss(integers, gram, p) for integers in tried]
            least = int(np.argmin(losses))
            if best is not None and losses[least] > best[0] * (1 + _ROUNDED):
                break  # what is completed by more loses more
            if losses[least] < np.inf:
                best = losses[least], tried[least]
        if stacked is not None and (best is None or stacked.loss <= best[0] * (1 + _NEGLIGIBLE)):
            return stacked
        if best is None:
            raise Unsupported(
                f"a strategy of shape {matrix.shape} loses rank when rounded to a grid of 2^-{bits}; "
                "merge categories that no table tells apart, or measure fewer attributes with real-valued strategies"
            )
        integers = best[1].astype(np.int64)
        return Rounded(Dense(integers[np.any(integers != 0, axis=1)]), bits, best[0])

    return at


def _in_row_space(matrix: np.ndarray, gram: np.ndarray, bits: int, basis: np.ndarray) -> Rounded | None:
    """``A_L = round(2^bits B) L`` for the basis L (k, n): what A says of the workload, and no more.

    With X = A'A the matrix ``B'B = (L X^+ L')^-1`` (k, k) answers every query C L as precisely as A does, and
    L'B'B L <= X, so that no column grows. None where rounding leaves less than k rows. Columns have L2 norms.
    """
    k = len(basis)
    if k == 1:  # one query is measured itself
        lifted = basis / np.square(basis).sum()
        loss = float((lifted @ gram @ lifted.T).item())
        return Rounded(Dense(basis), 0, loss * float(np.square(basis).max()))
    r = np.linalg.qr((basis @ np.linalg.pinv(matrix)).T).R
    integers = np.rint(np.ldexp(scipy.linalg.solve_triangular(r.T, np.eye(k), lower=True), bits))
    inverse = gram_inverse(integers)
    if inverse is None:
        return None
    lifting = np.linalg.pinv(basis.astype(float))
    loss = float(np.vdot(inverse, lifting.T @ gram @ lifting))
    whole = integers.astype(np.int64) @ basis
    return Rounded(Dense(whole), bits, loss * float(np.square(whole.astype(float)).sum(axis=0).max()))


def _level(matrix: np.ndarray, norm: float) -> np.ndarray:
    """The matrix with the largest entry of each column changed so that the column has this L1 norm.

    On a coarse grid some columns would round up together, and all would pay for them.
    """
    out, size = matrix.copy(), np.abs(matrix)
    largest, columns = size.argmax(axis=0), np.arange(matrix.shape[1])
    entry = out[largest, columns]
    out[largest, columns] += np.where(entry < 0, -1.0, 1.0) * (norm - size.sum(axis=0))
    return out


def _best_stack(matrix: np.ndarray, gram: np.ndarray, p: int) -> Rounded | None:
    """The best stack of partitions near A (r, n), with small multipliers; None where there is none."""
    levels = _nested(matrix.T @ matrix) if 1 < matrix.shape[1] <= _LARGEST else None
    if levels is None:
        return None
    roots = np.sqrt([theta for theta, _ in levels])
    grams = np.array([part.gram().dense() for _, part in levels], dtype=float)
    best: tuple[float, tuple[int, ...]] | None = None
    steps = (np.rint(top * roots / roots.max()).astype(int).tolist() for top in range(1, 2**_MULTIPLIER_BITS))
    for multipliers in dict.fromkeys(map(tuple, steps)):
        if multipliers[0] == 0:  # without the singletons categories would no longer be told apart
            continue
        inverse = definite_inverse(np.tensordot(np.square(multipliers), grams, 1), _RECIPROCAL)
        if inverse is not None:
            loss = sum(q**p for q in multipliers) ** (2 / p) * float(np.vdot(inverse, gram))
            if best is None or loss < best[0] * (1 - _NEGLIGIBLE):
                best = loss, multipliers
    if best is None:
        return None
    parts = [
        part if q == 1 else Scaled(part, q) for q, (_, part) in zip(best[1], levels, strict=True) if q > 0
    ]
    return Rounded(levels[0][1] if len(parts) == 1 else Stack(parts), 0, best[0])


def share_bits(
    matrices: Sequence[np.ndarray],
    grams: Sequence[np.ndarray],
    p: int,
    bases: Sequence[np.ndarray | None] | None = None,
) -> list[Rounded]:
    """Round the factors of a Kronecker product, giving bits of grid to those that gain most by them.

    The grids of the factors multiply, so that their bits add up, and so do the logarithms of their losses: of all
    ways to share the bits the one of least loss is taken. No factor is given bits beyond what matters.

    matrices: the factors, (r_i, n_i) real; grams: the workload that each is judged by; p: 1 or 2; bases: of
    their row spaces, see :func:`to_grid`.

    Raises :class:`~tabulae.errors.Unsupported` where there are too few bits for all factors to keep their rank.
    """
    real = [i for i, matrix in enumerate(matrices) if exact_form(matrix) is None]
    bases = bases or [None] * len(matrices)
    if len(real) <= 1:
        return [to_grid(m, v, p, FINEST, b) for m, v, b in zip(matrices, grams, bases, strict=True)]
    shares: dict[int, tuple[float, tuple[Rounded, ...]]] = {0: (0.0, ())}
    for i in real:
        ladder = _ladder(matrices[i], grams[i], p, bases[i])
        further: dict[int, tuple[float, tuple[Rounded, ...]]] = {}
        for spent, (loss, chosen) in shares.items():
            for rounded in ladder:
                total = spent + rounded.exponent
                reached = loss + float(np.log(rounded.loss))
                if total <= TOGETHER and reached < further.get(total, (np.inf,))[0]:
                    further[total] = reached, (*chosen, rounded)
        shares = further
    if not shares:
        raise Unsupported(
            f"{len(real)} attributes need real-valued strategies, and a grid of 2^-{TOGETHER} is too coarse for their "
            'product: choose "union", "marginals" or "residual"'
        )
    _, chosen = min(shares.values(), key=lambda found: found[0])
    place = dict(zip(real, chosen, strict=True))
    return [
        place.get(i) or to_grid(m, v, p, FINEST) for i, (m, v) in enumerate(zip(matrices, grams, strict=True))
    ]


def _ladder(matrix: np.ndarray, gram: np.ndarray, p: int, basis: np.ndarray | None) -> list[Rounded]:
    """One factor on finer and finer grids, as far as that matters."""
    rounding = _rounding(matrix, gram, p, basis)
    target = rounding(FINEST).loss
    rungs: list[Rounded] = []
    for bits in range(_COARSEST, FINEST + 1):
        with contextlib.suppress(Unsupported):
            rungs.append(rounding(bits))
            if rungs[-1].loss <= target * (1 + _NEGLIGIBLE):
                break
    return rungs


def _candidates(matrix: np.ndarray, p: int) -> list[Callable[[], np.ndarray]]:
    """The matrix itself, and completions of it to full column rank, by more and more; each is made once, if at all."""
    itself = [lambda: matrix]
    if _well_conditioned(matrix):
        return itself
    values, vectors = np.linalg.eigh(matrix.T @ matrix)
    if values[0] > 1e-6 * values[-1]:
        return itself

    def completed(t: float) -> np.ndarray:
        if p == 1:  # a symmetric root would spread L1 norm: append the missing rows instead
            return np.vstack([matrix, np.sqrt(t) * np.eye(matrix.shape[1])])
        return (vectors * np.sqrt(np.maximum(values, 0.0) + t * values[-1])) @ vectors.T

    return itself + [cache(partial(completed, t)) for t in _COMPLETIONS]


def _well_conditioned(matrix: np.ndarray) -> bool:
    """Whether a triangular matrix is far from singular, which takes no decomposition to see; False for others."""
    rows, columns = matrix.shape
    if rows != columns or np.tril(matrix, -1).any():
        return False
    (trcon,) = scipy.linalg.get_lapack_funcs(("trcon",), (matrix,))
    reciprocal, _ = trcon(matrix)
    return bool(reciprocal**2 > _SAFE)
