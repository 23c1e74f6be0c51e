"""Full least squares over many overlapping groups by conjugate gradients: the ``iterative`` route.

Least squares replaces the answers y of all blocks by their fit ``y^ = A x^``, the closest answers that some vector of
cells could give, and any block that determines a table then answers it alike: ``W x^ = W A_g^+ y^_g``. With the
blocks whitened, ``B = S^-1/2 A``, the fit is the projection of ``S^-1/2 y`` on the range of B. It is found without a
vector of cells: conjugate gradients on ``min ||y - B H^1/2 z||`` (CGLS; H positive definite, so that the range is the
same) keep every direction as ``H^1/2 B' t`` with t over the measured rows, and need one product by ``K = B H B'`` a
step. K consists of Kronecker products between pairs of blocks; the domain may have any size. H is a product over
attributes, ``H_i = (mean Gram of the attribute's matrices + 1 1')^+``: with it the number of steps hardly depends on
sizes. The fit's variances are out of reach where there are many tables; by the theorem of Gauss and Markov the local
ones bound them, query by query.

Local least squares, as OPT_+ was published: each table from the one block that answers it best. Block g alone answers
a table by ``W A_g^+ y_g``, with covariance ``v_g W (A_g'A_g)^+ W'``. A sum of products (a disjunction) that no block
determines whole is answered product by product. The answers are unbiased, their variances exact, but tables answered
from different blocks need not agree where they overlap.

Reference: Hestenes and Stiefel, Methods of conjugate gradients (1952), section 10; HDMM, section 10.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
import scipy.linalg

from ...domain import Workload
from ...errors import NotEstimable, Unsupported
from ...linalg import Centring, Dense, Identity, Kron, LinearOperator, MatrixProduct, Sum
from ..block import products
from .explicit import ReducedRows, merges, reduce_rows
from .protocol import (
    Blocks,
    Information,
    MeasuredStrategy,
    Profile,
    VarianceBound,
    is_flat,
    refuse_not_estimable,
    summed_variance,
)

Solve = Callable[[MeasuredStrategy, tuple[float, ...]], Information]
"""Least squares from blocks and their variances, by whatever structure they have."""

Term = tuple[int, tuple[LinearOperator, ...]]


@dataclass(frozen=True)
class _Part:
    """What one block contributes to a table: a matrix over the cells that it determines."""

    block: int
    query: LinearOperator


class LocalInformation:
    """Least squares within single blocks, the least variable that determines each table.

    ``solve`` is least squares from one block alone.

    Raises :class:`~tabulae.errors.NotEstimable` for a table that no single block determines.
    """

    route = "local"

    def __init__(self, strategy: MeasuredStrategy, variances: Sequence[float], solve: Solve) -> None:
        self._solve = solve
        self.strategy = strategy
        self._variances = tuple(variances)
        self._told = [_told_apart(block.terms) for block in strategy.blocks]
        self._alone: dict[int, Information] = {}
        self._parts: dict[LinearOperator, list[_Part]] = {}

    def _of(self, block: int) -> Information:
        """Least squares from one block alone."""
        if block not in self._alone:
            whole = self.strategy
            single = Blocks(whole.domain, (whole.blocks[block],), whole.exact, whole.method)
            self._alone[block] = self._solve(single, (self._variances[block],))
        return self._alone[block]

    def _best(self, query: LinearOperator) -> int | None:
        """The block that determines a query with least total variance, or None."""
        needed = _told_apart(products(query))
        best: tuple[float, int] | None = None
        for b, told in enumerate(self._told):
            if not needed <= told:
                continue
            try:
                total = float(self._of(b).variance(query).sum())
            except (NotEstimable, Unsupported):
                continue
            if best is None or total < best[0]:
                best = total, b
        return None if best is None else best[1]

    def _split(self, operator: LinearOperator) -> list[_Part]:
        if operator not in self._parts:
            self._parts[operator] = list(self._assigned(operator))
        return self._parts[operator]

    def _assigned(self, operator: LinearOperator) -> Iterator[_Part]:
        whole = self._best(operator)
        if whole is not None:
            yield _Part(whole, operator)
            return
        by_block: dict[int, list[tuple[int, LinearOperator]]] = {}
        terms: list[Term] = products(operator)
        for coefficient, factors in terms if len(terms) > 1 else ():
            query = Kron(factors)
            block = self._best(query)
            if block is None:
                raise _refuse_local()
            by_block.setdefault(block, []).append((coefficient, query))
        if not by_block:
            raise _refuse_local()
        for block, queries in by_block.items():
            yield _Part(block, Sum(queries))

    def answer(self, operator: LinearOperator, answers: Sequence[np.ndarray]) -> np.ndarray:
        """``sum_g W_g A_g^+ y_g`` from the blocks' noisy answers, (m,)."""
        total = np.zeros(operator.shape[0])
        for part in self._split(operator):
            total += self._of(part.block).answer(part.query, [answers[part.block]])
        return total

    def variance(self, operator: LinearOperator) -> np.ndarray:
        """Variance of the local answers, (m,): the blocks' noises are independent, so parts add."""
        total = np.zeros(operator.shape[0])
        for part in self._split(operator):
            total += self._of(part.block).variance(part.query)
        return total

    def total(self, workload: Workload) -> float:
        return summed_variance(self.variance, workload)

    def profile(self, operator: LinearOperator) -> Profile:
        """Statistics of the coefficients, on the blocks that take part."""
        parts = self._split(operator)
        alone = [p for part in parts if isinstance(p := self._of(part.block).profile(part.query), Profile)]
        assert len(alone) == len(parts)  # one block's coefficients are always known
        every = slice(None)
        columns = [every if p.inverse is None else p.inverse for p in alone]
        fields = ("power2", "power4", "power6", "largest", "count")
        stats = (
            np.concatenate([getattr(p, name)[:, c] for p, c in zip(alone, columns, strict=True)])
            for name in fields
        )
        exact, blocks = all(p.exact for p in alone), tuple(part.block for part in parts)
        return Profile(*stats, exact=exact, blocks=blocks)


def _told_apart(terms: Sequence[Term]) -> frozenset[int]:
    """The attributes whose values some product tells apart."""
    return frozenset(i for _, factors in terms for i, factor in enumerate(factors) if not is_flat(factor))


def _refuse_local() -> NotEstimable:
    return NotEstimable(
        f"{refuse_not_estimable()}; more exactly, no single group of measured queries determines it, and groups are "
        "not combined to answer a table here"
    )


WIDEST = 8192
"""Most merged cells of one attribute: its factors are dense matrices."""

_TOLERANCE = 1e-11  # of the gradient, against where it started
_ROUNDING = 1e-14  # of ||K|| ||rest||^2: below it the gradient's squared norm is lost in rounding
_STEPS = 5000
_SMALL = 256  # up to here an identity less its mean is multiplied as a dense matrix


class IterativeInformation(LocalInformation):
    """Least squares over all blocks, its variances bounded by those of the best block for each table.

    Raises :class:`~tabulae.errors.NotEstimable` for a table that no single block determines.
    """

    route = "iterative"

    def __init__(self, strategy: MeasuredStrategy, variances: Sequence[float], solve: Solve) -> None:
        super().__init__(strategy, variances, solve)
        if any(isinstance(block.query, MatrixProduct) for block in strategy.blocks):
            raise Unsupported("explicit matrices over merged cells are not fitted iteratively")
        widest = max(p.shape[0] for p in merges(strategy))
        if widest > WIDEST:
            raise Unsupported(f"an attribute of {widest:,} merged cells is too wide: at most {WIDEST:,}")
        self._fitted: tuple[list[np.ndarray], list[np.ndarray]] | None = None

    @cached_property
    def _cross(self) -> _CrossGram:
        return _CrossGram(self.strategy, self._variances)

    def fit(self, answers: Sequence[np.ndarray]) -> list[np.ndarray]:
        """``A x^`` block by block, in counts, from the blocks' noisy answers."""
        given = [np.asarray(y, dtype=float) for y in answers]
        if self._fitted is None or not all(map(np.array_equal, self._fitted[0], given)):
            self._fitted = given, self._cross.fit(given)
        return self._fitted[1]

    def answer(self, operator: LinearOperator, answers: Sequence[np.ndarray]) -> np.ndarray:
        """Least-squares answers ``W x^`` from all blocks' noisy answers, (m,)."""
        self._split(operator)  # refuse before the long computation
        return super().answer(operator, self.fit(answers))

    def profile(self, operator: LinearOperator) -> VarianceBound:
        """The local variance, which bounds that of the fit (Gauss, Markov); its coefficients are not known."""
        return VarianceBound(self.variance(operator))


class _CrossGram:
    """K = B H B' over the blocks' reduced rows, as Kronecker products between pairs of blocks."""

    def __init__(self, strategy: MeasuredStrategy, variances: Sequence[float]) -> None:
        weights = [2.0**-b.exponent / math.sqrt(v) for b, v in zip(strategy.blocks, variances, strict=True)]
        self._noise = [math.sqrt(v) for v in variances]
        self._groups = [reduce_rows(b.terms, w) for b, w in zip(strategy.blocks, weights, strict=True)]
        ends = np.cumsum([group.count for group in self._groups])
        self._place = [slice(int(e) - g.count, int(e)) for e, g in zip(ends, self._groups, strict=True)]
        axes = [_Axis(p, list(fs)) for p, fs in zip(merges(strategy), self._factors(), strict=True)]
        self._pairs = [
            (to, source, _between(a, b, axes))
            for a, to in zip(self._groups, self._place, strict=True)
            for b, source in zip(self._groups, self._place, strict=True)
        ]

    def _factors(self):
        """The groups' factors, attribute by attribute."""
        return zip(*(factors for group in self._groups for _, factors in group.rows), strict=True)

    def __matmul__(self, t: np.ndarray) -> np.ndarray:
        out = np.zeros(t.shape)
        for to, source, terms in self._pairs:
            for weight, operator in terms:
                out[to] += weight * (operator @ t[source])
        return out

    def fit(self, answers: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The projection of the blocks' answers on what cells can give, in counts."""
        whitened = [y / s for y, s in zip(answers, self._noise, strict=True)]
        reduced = np.concatenate([g.carry.T @ y for g, y in zip(self._groups, whitened, strict=True)])
        fitted = reduced - self._residual(reduced)
        return [
            s * (g.carry @ fitted[place])
            for g, place, s in zip(self._groups, self._place, self._noise, strict=True)
        ]

    def _residual(self, target: np.ndarray) -> np.ndarray:
        """What remains of the target beside its projection: CGLS, with x = H B' t never formed."""
        rest = target.copy()
        gradient = self @ rest
        size = first = float(rest @ gradient)  # the squared norm of H^1/2 B' rest
        step = gradient.copy()
        largest = 0.0  # a lower bound on the norm of K
        for _ in range(_STEPS):
            norm2 = float(rest @ rest)
            largest = max(largest, math.sqrt(float(gradient @ gradient) / norm2)) if norm2 > 0 else largest
            if size <= max(_TOLERANCE**2 * first, _ROUNDING * largest * norm2):
                return rest
            rest -= size / float(step @ step) * step
            gradient = self @ rest
            size, before = float(rest @ gradient), size
            step = gradient + size / before * step
        raise Unsupported(
            f"least squares over these {len(self._groups)} groups of queries did not converge in {_STEPS:,} "
            'steps; choose a strategy of one Kronecker product ("kron", "identity"), or estimate by '
            '"local-least-squares"'
        )


class _Axis:
    """One attribute: its matrices over merged cells, and the metric H_i."""

    def __init__(self, merge: LinearOperator, factors: Sequence[LinearOperator]) -> None:
        _, self._first = np.unique(merge.column_classes(), return_index=True)
        self._known: dict[LinearOperator, np.ndarray] = {}
        self._pairs: dict[tuple[LinearOperator, LinearOperator], LinearOperator] = {}
        n = len(self._first)
        varying = [m for m in map(self._matrix, dict.fromkeys(factors)) if np.ptp(m, axis=1).any()]
        self._plain = all(_is_identity(m) for m in varying)
        self._n = n
        if not self._plain:
            mean = sum((m.T @ m) * (n / np.square(m).sum()) for m in varying) / len(varying)
            self._metric = scipy.linalg.pinvh(mean + 1.0)

    def _matrix(self, factor: LinearOperator) -> np.ndarray:
        """The factor with one column for each merged cell."""
        if factor not in self._known:
            self._known[factor] = np.asarray(factor.columns(self._first), dtype=float)
        return self._known[factor]

    def pair(self, left: LinearOperator, right: LinearOperator) -> LinearOperator:
        """``A_i H_i A_j'``, kept from one pair of blocks to the next."""
        if (left, right) not in self._pairs:
            self._pairs[left, right] = self._product(self._matrix(left), self._matrix(right))
        return self._pairs[left, right]

    def _product(self, left: np.ndarray, right: np.ndarray) -> LinearOperator:
        if not self._plain:
            return Dense(left @ self._metric @ right.T)
        # All matrices are identities, or constant in each row: H = (I + 1 1')^-1 = I - 1 1' / (n + 1)
        if self._n > _SMALL and _is_identity(left) and _is_identity(right):
            share = Fraction(1, self._n + 1)
            return Sum([(share, Identity(self._n)), (share, Centring(self._n))])
        return Dense(left @ right.T - np.outer(left.sum(axis=1), right.sum(axis=1)) / (self._n + 1))


def _is_identity(matrix: np.ndarray) -> bool:
    return matrix.shape[0] == matrix.shape[1] and np.array_equal(matrix, np.eye(len(matrix)))


def _between(a: ReducedRows, b: ReducedRows, axes: Sequence[_Axis]) -> list[tuple[float, LinearOperator]]:
    """``R_a H R_b'`` for the reduced rows of two blocks, as weighted Kronecker products."""
    products = []
    for c, left in a.rows:
        for d, right in b.rows:
            weight = c * d * a.weight * b.weight
            factors = [axis.pair(p, q) for axis, p, q in zip(axes, left, right, strict=True)]
            numbers = [f.dense().item() for f in factors if f.shape == (1, 1)]
            kept = [f for f in factors if f.shape != (1, 1)]
            products.append((weight * math.prod(numbers), Kron(kept or [Identity(1)])))
    return products
