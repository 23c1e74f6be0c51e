"""Least squares for marginals in closed form: the ``lattice`` route.

When every factor of every block is an Identity or a Total, P lies in the span of Kronecker products of I and J,
which commute: with ``C_i = I - J/n_i`` the projections ``E_S = (x)_{i in S} C_i (x)_{i not in S} J/n_i`` are its
eigenspaces, one for each set S of attributes that some block crosses, and

    P^+ = sum_S lambda_S^-1 E_S,   lambda_S = sum_{b crosses S} (1/v_b) prod_{i not crossed by b} n_i.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from ..linalg import Dense, Identity, Kron, LinearOperator, Total
from ..tables import Workload
from .explicit_information import row_dots
from .information import Profile, coefficient_statistics, kron_vectors, refuse_not_estimable
from .strategy import Block, Strategy, products

_EXPAND = 2**24  # coefficients of one table on one block that are written out for exact statistics
_SETS = 2**16

Set = frozenset[int]


def is_lattice(strategy: Strategy) -> bool:
    """Whether every block is a marginal, and the sets of attributes they cross can be listed."""
    crossed = [_crossed(block) for block in strategy.blocks]
    return all(c is not None for c in crossed) and sum(2 ** len(c) for c in crossed if c is not None) <= _SETS


def _crossed(block: Block) -> Set | None:
    """The attributes that a marginal crosses; None for anything else."""
    if not isinstance(block.query, Kron):
        return None
    plain = all(isinstance(f, (Identity, Total)) for f in block.query.ops)
    # An attribute of one category is crossed and summed at once: call it summed.
    return (
        frozenset(i for i, f in enumerate(block.query.ops) if isinstance(f, Identity) and f.n > 1)
        if plain
        else None
    )


def _subsets(members: Set) -> Iterator[Set]:
    ordered = sorted(members)
    for size in range(len(ordered) + 1):
        yield from map(frozenset, itertools.combinations(ordered, size))


class LatticeInformation:
    """P of a set of marginals, diagonal on the lattice of attribute sets."""

    route = "lattice"

    def __init__(self, strategy: Strategy, variances: Sequence[float]) -> None:
        self._sizes = strategy.domain.shape
        self._blocks = [
            (_crossed(b) or frozenset(), v, b) for b, v in zip(strategy.blocks, variances, strict=True)
        ]
        self._eigenvalues: dict[Set, float] = {}
        for crossed, variance, _ in self._blocks:
            weight = math.prod(n for i, n in enumerate(self._sizes) if i not in crossed) / variance
            for subset in _subsets(crossed):
                self._eigenvalues[subset] = self._eigenvalues.get(subset, 0.0) + weight

    def _parts(self, operator: LinearOperator) -> list[tuple[int, tuple[LinearOperator, ...], list[Set]]]:
        """Each product of a table with the sets S that it has a component in."""
        parts = []
        for c, queries in products(operator):
            support = frozenset(i for i, q in enumerate(queries) if not _constant_rows(q))
            sets = list(_subsets(support))
            if not all(s in self._eigenvalues for s in sets):
                raise refuse_not_estimable()
            parts.append((c, queries, sets))
        return parts

    def variance(self, operator: LinearOperator) -> np.ndarray:
        """diag(W P^+ W') by the lattice, (m,)."""
        parts = self._parts(operator)
        total = np.zeros(operator.shape[0])
        for c, left, left_sets in parts:
            for d, right, right_sets in parts:
                for subset in set(left_sets) & set(right_sets):
                    pieces = [
                        _diagonal(p, q, centred=i in subset)
                        for i, (p, q) in enumerate(zip(left, right, strict=True))
                    ]
                    total += c * d / self._eigenvalues[subset] * kron_vectors(pieces)
        return total

    def total(self, workload: Workload) -> float:
        """Total weighted variance, the tables' variances summed."""
        variances = ((t, self.variance(t.operator(workload.domain))) for t in workload.tables)
        return sum(float(t.weight) ** 2 * float(v.sum()) for t, v in variances)

    def answer(self, operator: LinearOperator, answers: Sequence[np.ndarray]) -> np.ndarray:
        """Least-squares answers from the blocks' noisy answers, (m,)."""
        total = np.zeros(operator.shape[0])
        for (crossed, variance, _), y in zip(self._blocks, answers, strict=True):
            for weight, factors in self._coefficients(operator, crossed, variance):
                total += weight * (Kron([Dense(f) for f in factors]) @ np.asarray(y, dtype=float))
        return total

    def _coefficients(
        self, operator: LinearOperator, crossed: Set, variance: float
    ) -> Iterator[tuple[float, list[np.ndarray]]]:
        """Z on one block as a sum of Kronecker products of dense factors."""
        for c, queries, sets in self._parts(operator):
            for subset in sets:
                if subset <= crossed:
                    factors = [
                        _carried(q, centred=i in subset, crossed=i in crossed) for i, q in enumerate(queries)
                    ]
                    yield c / (self._eigenvalues[subset] * variance), factors

    def profile(self, operator: LinearOperator) -> Profile:
        """Statistics of Z: exact where Z can be written out, bounds by Minkowski's inequality otherwise."""
        rows = operator.shape[0]
        stats = np.zeros((5, len(self._blocks), rows))
        exact = True
        for b, (crossed, variance, block) in enumerate(self._blocks):
            terms = list(self._coefficients(operator, crossed, variance))
            if rows * block.rows <= _EXPAND:
                z = sum((w * _kron_matrices(f) for w, f in terms), np.zeros((rows, block.rows)))
                stats[:, b] = coefficient_statistics(z)
                continue
            exact = False
            for k, p in enumerate((2, 4, 6)):
                norms = sum(
                    abs(w) * kron_vectors([(np.abs(f) ** p).sum(axis=1) for f in fs]) ** (1 / p)
                    for w, fs in terms
                )
                stats[k, b] = np.asarray(norms) ** p
            stats[3, b] = sum(abs(w) * kron_vectors([np.abs(f).max(axis=1) for f in fs]) for w, fs in terms)
            stats[4, b] = block.rows
        return Profile(*stats, exact=exact)


def _kron_matrices(factors: Sequence[np.ndarray]) -> np.ndarray:
    out = np.ones((1, 1))
    for factor in factors:
        out = np.kron(out, factor)
    return out


@lru_cache(maxsize=1024)
def _constant_rows(query: LinearOperator) -> bool:
    """Whether each row of the query is a multiple of the total."""
    return query.shape[1] == 1 or int(query.column_classes().max()) == 0


@lru_cache(maxsize=1024)
def _row_sums(query: LinearOperator) -> np.ndarray:
    return np.asarray(query @ np.ones(query.shape[1]), dtype=float)


@lru_cache(maxsize=4096)
def _diagonal(left: LinearOperator, right: LinearOperator, *, centred: bool) -> np.ndarray:
    """diag(P C Q') if centred, else diag(P J/n Q')."""
    mean = _row_sums(left) * _row_sums(right) / left.shape[1]
    return row_dots(left, right) - mean if centred else mean


def _carried(query: LinearOperator, *, centred: bool, crossed: bool) -> np.ndarray:
    """W_i E_i A_i' for E_i = C or J/n and A_i = I (crossed) or the total."""
    sums = _row_sums(query)[:, None]
    if centred:
        return np.asarray(query.dense(), dtype=float) - sums / query.shape[1]
    return np.repeat(sums / query.shape[1], query.shape[1], axis=1) if crossed else sums
