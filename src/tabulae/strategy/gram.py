"""Gram matrices of workloads, the cells that a workload does not tell apart, and strategies over the others.

A workload W with m queries over n cells enters the optimisers only through ``V = W'W``. Cells whose columns
of W are equal stay equal in V, and cells that no query counts are zero in V; a strategy for the distinct
cells alone, copied to their twins, is optimal for all of them under L1 and L2 sensitivity alike:
restricting any strategy to one cell of each class raises neither its sensitivity nor its error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache

import numpy as np
import scipy.linalg as sl
from threadpoolctl import ThreadpoolController

from ..domain import Workload
from ..errors import InvalidArgument, Unsupported
from ..linalg import Identity, Kron, LinearOperator, MatrixProduct, Partition, Total
from .block import Block, kron_sum
from .methods import Settings
from .rounding import FINEST, Rounded, to_grid
from .strategy import Strategy
from .symmetry import WIDEST

_SMALL = 512  # widest attribute whose matrices are best multiplied on one thread


def threads_for(workload: Workload) -> AbstractContextManager[object]:
    """One BLAS thread where matrices are small: thousands of short products lose far more by waiting for each other.

    On a machine whose cores are busy the difference is a hundredfold.
    """
    return _blas().limit(limits=None if max(workload.domain.shape) > _SMALL else 1)


@cache
def _blas() -> ThreadpoolController:
    """The libraries of NumPy and SciPy that multiply matrices: to look for them takes longer than a small bound."""
    return ThreadpoolController().select(user_api="blas")


def asked_gram(gram: np.ndarray) -> np.ndarray:
    """As :func:`checked_gram`, of a workload that asks something."""
    V = checked_gram(gram)
    if not V.any():
        raise InvalidArgument("gram is zero: the workload counts no cell. Leave out tables of weight zero.")
    return V


def check_tolerance(tolerance: float) -> None:
    """Refuse a gap that cannot be reached."""
    if not tolerance > 0:
        raise InvalidArgument(f"tolerance is {tolerance}: the gap cannot be asked to reach zero; try 1e-6.")


def checked_gram(gram: np.ndarray) -> np.ndarray:
    """``gram`` as a symmetric float64 array, or InvalidArgument; its spectrum is not looked at."""
    array = np.asarray(gram, dtype=np.float64)
    if array.ndim != 2 or array.shape[0] != array.shape[1] or array.shape[0] == 0:
        raise InvalidArgument(
            f"gram has shape {array.shape}: give the n x n Gram matrix W'W of the workload."
        )
    if not np.isfinite(array).all():
        raise InvalidArgument("gram has infinite or missing entries: rescale the weights of the workload.")
    size = np.abs(array).max()
    if np.abs(array - array.T).max() > 1e-9 * size:
        raise InvalidArgument("gram is not symmetric: give the Gram matrix W'W, not W itself.")
    if array.diagonal().min() < -1e-9 * size:
        raise InvalidArgument("gram has a negative diagonal entry, so it is no Gram matrix W'W.")
    return array


def is_definite(gram: np.ndarray) -> bool:
    """Whether a symmetric matrix other than 0 is, up to rounding, positive semi-definite."""
    if not gram.any():
        return False
    try:
        np.linalg.cholesky(gram + 1e-10 * np.abs(gram).max() * np.eye(len(gram)))
    except np.linalg.LinAlgError:
        return False
    return True


def singular_share(n: int) -> float:
    """Eigenvalues below this share of the largest cannot be told from zero."""
    return 1e-13 * max(10, n)


def gram_spectrum(gram: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The non-zero eigenvalues of V, ascending, and their vectors; InvalidArgument where it is not semi-definite."""
    values, vectors = sl.eigh(gram, check_finite=False)
    if values[0] < -1e-7 * values[-1]:
        raise InvalidArgument(
            f"gram is not positive semi-definite (eigenvalues {values[0]:.3g} to {values[-1]:.3g}), "
            "so it is no Gram matrix W'W."
        )
    kept = values > values[-1] * singular_share(values.size)
    return values[kept], vectors[:, kept]


def gram_root(gram: np.ndarray) -> np.ndarray:
    """F (r x n) of full row rank with F'F = V."""
    values, vectors = gram_spectrum(gram)
    return (vectors * np.sqrt(values)).T


@dataclass(frozen=True)
class DistinctCells:
    """The c distinct non-zero cells among n: ``classes[j]`` is the class of cell j, -1 where all is zero.

    >>> cells = DistinctCells.of([np.array([[4., 4., 0.], [4., 4., 0.], [0., 0., 0.]])])
    >>> cells.classes.tolist(), cells.count
    ([0, 0, -1], 1)
    """

    classes: np.ndarray
    first: np.ndarray

    @classmethod
    def of(cls, grams: Sequence[np.ndarray]) -> DistinctCells:
        """The cells that some of ``grams`` (n x n each) tells apart, classes numbered by first appearance.

        Rows are compared bit by bit: a class is formed only where equality is certain.
        """
        n = grams[0].shape[0]
        label = np.zeros(n, dtype=np.int64)
        for gram in grams:
            rows = np.ascontiguousarray(gram + 0.0)  # -0.0 and 0.0 are one number
            _, row_label = np.unique(rows.view(np.dtype((np.void, rows.itemsize * n))), return_inverse=True)
            _, label = np.unique(np.stack([label, row_label.ravel()]), axis=1, return_inverse=True)
        counted = np.flatnonzero(np.any([gram.diagonal() > 0 for gram in grams], axis=0))
        _, first, inverse = np.unique(label[counted], return_index=True, return_inverse=True)
        by_appearance = np.argsort(first)
        rank = np.empty(first.size, dtype=np.int64)
        rank[by_appearance] = np.arange(first.size)
        classes = np.full(n, -1, dtype=np.int64)
        classes[counted] = rank[inverse]
        return cls(classes, counted[first[by_appearance]])

    @property
    def count(self) -> int:
        """How many classes there are."""
        return self.first.size

    @property
    def sizes(self) -> np.ndarray:
        """How many cells each class holds, (c,)."""
        return np.bincount(self.classes[self.classes >= 0], minlength=self.count)

    def merge(self, gram: np.ndarray) -> np.ndarray:
        """The c x c Gram matrix over one cell of each class."""
        return gram if self.count == self.classes.size else gram[np.ix_(self.first, self.first)]

    def lift(self, strategy: np.ndarray) -> np.ndarray:
        """A strategy over the classes (r x c) as one over the cells (r x n), zero on uncounted cells."""
        counted = self.classes >= 0
        lifted = np.zeros((strategy.shape[0], self.classes.size))
        lifted[:, counted] = strategy[:, self.classes[counted]]
        return lifted

    def share(self, masses: np.ndarray) -> np.ndarray:
        """Masses of the classes (c,) spread evenly over their cells (n,)."""
        counted = self.classes >= 0
        shared = np.zeros(self.classes.size)
        shared[counted] = (masses / self.sizes)[self.classes[counted]]
        return shared


EXPLICIT_CELLS = 2048
"""Largest merged domain of several attributes that OPT_0 treats as one explicit matrix."""

DENSE_CELLS = 4096
"""Largest merged domain of several attributes whose strategy may be one explicit matrix: least squares solves it."""

GramTerms = list[tuple[float, list[np.ndarray]]]


def dense_grams(workload: Workload) -> GramTerms:
    """``W'W = sum_l c_l (x)_i V_li`` with dense V_li, equal matrices shared between terms."""
    terms = workload.gram_terms()
    factors = dict.fromkeys(factor for _, factors in terms for factor in factors)
    check_written(factors)
    shared = {factor: np.asarray(factor.dense(), dtype=float) for factor in factors}
    return [(float(coefficient), [shared[f] for f in factors]) for coefficient, factors in terms]


_PRODUCTS = 2**16


def many_products(workload: Workload) -> bool:
    """Whether W'W, t^2 products of a table that is a sum of t, has so many that comparing them takes long."""
    return sum(len(table.terms) ** 2 for table in workload.tables) > _PRODUCTS


_MOST_NUMBERS = 2**27  # of the matrices of many terms together: 1 GiB
_MANY = 1024


def check_written(factors: Collection[LinearOperator]) -> None:
    """Refuse to write out the matrices of W'W where they are many and large.

    A table over several attributes together is a sum of t products, and W'W has t^2 terms of it.
    """
    numbers = sum(math.prod(factor.shape) for factor in factors)
    if len(factors) > _MANY and numbers > _MOST_NUMBERS:
        raise Unsupported(
            f"the tables are sums of products that meet in {len(factors):,} ways, and this method would write out "
            f'{numbers:,} numbers: choose "identity", "workload" or "marginals", or ask for joint tables of fewer '
            "categories"
        )


MIXTURES = np.geomspace(1.0, 0.003, 80)
"""Shares of the cells in strategies of cells and total that are tried."""


def mixture_traces(grams: Sequence[np.ndarray], shares: np.ndarray, norm: int) -> np.ndarray:
    """``tr[(A'A)^-1 V]`` of A = [a I; b 1'], sensitivity 1, for shares of the cells: (shares, matrices).

    ``(A'A)^-1 = (I - b2 / (a2 + n b2) J) / a2``.
    """
    n, a2, b2 = len(grams[0]), shares ** (2 / norm), (1 - shares) ** (2 / norm)
    return np.stack([(np.trace(V) - b2 / (a2 + n * b2) * V.sum()) / a2 for V in grams], axis=1)


def strategy_traces(strategy: np.ndarray, grams: Sequence[np.ndarray]) -> np.ndarray:
    """``tr[(A'A)^-1 V]`` of each matrix, for A of full column rank."""
    inverse = sl.cho_solve(sl.cho_factor(strategy.T @ strategy), np.eye(strategy.shape[1]))
    return np.array([np.vdot(inverse, V) for V in grams])


def surrogate_gram(terms: GramTerms, axis: int) -> np.ndarray:
    """What a workload asks of one attribute: ``sum_l c_l (prod_{j != i} tr V_lj) V_li``, (n_i, n_i), symmetric.

    Each product counts as much as it costs when the other attributes are counted category by category.

    Reference: HDMM, equation 5, with the identity for the other attributes.
    """
    total = np.zeros(terms[0][1][axis].shape)
    for c, grams in terms:
        total += c * math.prod(float(np.trace(V)) for j, V in enumerate(grams) if j != axis) * grams[axis]
    return (total + total.T) / 2


def product_factors(terms: GramTerms) -> list[np.ndarray] | None:
    """The factors of W'W where it is one Kronecker product; None elsewhere.

    A sum over all combinations of some matrices, one an attribute, is a product of sums where its coefficients are
    a product: so are all marginals.

    >>> V = np.eye(2)
    >>> product_factors([(3.0, [V, V])])[0].tolist(), product_factors([(1.0, [V, 2 * V]), (1.0, [2 * V, V])])
    ([[3.0, 0.0], [0.0, 3.0]], None)
    """
    shape = range(len(terms[0][1]))
    distinct = [list({id(grams[i]): grams[i] for _, grams in terms}.values()) for i in shape]
    place = [{id(V): k for k, V in enumerate(some)} for some in distinct]
    if math.prod(map(len, distinct)) > len(terms):
        return None
    weights = np.zeros([len(some) for some in distinct])
    for c, grams in terms:
        weights[tuple(place[i][id(V)] for i, V in enumerate(grams))] += c
    if not (weights > 0).all():
        return None
    margins = [weights.sum(axis=tuple(j for j in shape if j != i)) / weights.sum() for i in shape]
    product = np.array(weights.sum())
    for margin in margins:
        product = np.multiply.outer(product, margin)
    if not np.allclose(product, weights, rtol=1e-12, atol=0):
        return None
    factors = [
        sum(m * V for m, V in zip(ms, some, strict=True)) for ms, some in zip(margins, distinct, strict=True)
    ]
    return [np.asarray(V) * (weights.sum() if i == 0 else 1.0) for i, V in enumerate(factors)]


def explicit_gram(workload: Workload) -> np.ndarray:
    """V = W'W over all cells of a (merged) domain as one dense matrix."""
    return kron_sum(dense_grams(workload))


def explicit_query(rounded: Rounded, merges: Sequence[Partition]) -> LinearOperator:
    """What is measured of the cells themselves, for a matrix on a grid over merged cells."""
    if len(merges) == 1:
        return Kron([lifted(rounded.matrix, merges[0])])
    if isinstance(rounded.matrix, Identity):
        return Kron([lifted(Identity(m.shape[0]), m) for m in merges])
    if isinstance(rounded.matrix, Total):
        return Kron([Total(m.shape[1]) for m in merges])
    return MatrixProduct(rounded.matrix, Kron([lifted(Identity(m.shape[0]), m) for m in merges]))


def lifted(matrix: LinearOperator, merge: Partition) -> LinearOperator:
    """A strategy on merged cells as a matrix on the cells themselves: matrix @ merge, in its plainest form."""
    if merge.shape[0] == merge.shape[1]:
        return matrix
    if isinstance(matrix, Total):
        return Total(merge.shape[1])
    if isinstance(matrix, Identity):
        return merge
    return MatrixProduct(matrix, merge)


def explicit_strategy(
    workload: Workload, settings: Settings, name: str, matrix_of: Callable[[np.ndarray], np.ndarray]
) -> Strategy:
    """The strategy of a method that makes a real A (r, n) from the Gram matrix V = W'W (n, n) of merged cells.

    Raises :class:`~tabulae.errors.Unsupported` beyond 4,096 merged cells (8,192 of one attribute).
    """
    merged, merges = workload.merge()
    several = sum(n > 1 for n in merged.domain.shape) > 1
    most = DENSE_CELLS if several else WIDEST
    if merged.domain.size > most:
        instead = (
            'Choose "residual", "kron" or "hdmm", which work attribute by attribute'
            if several
            else "Give the attribute fewer categories (a recode), or write it as two attributes"
        )
        raise Unsupported(
            f"{name} makes one explicit matrix over the {merged.domain.size:,} cells that the tables tell apart, and "
            f"goes up to {most:,}. {instead}"
        )
    gram = explicit_gram(merged)
    rounded = to_grid(matrix_of(gram), gram, settings.norm, FINEST)
    block = Block(name, explicit_query(rounded, merges), rounded.exponent)
    return Strategy(workload.domain, (block,), settings.noise, name)
