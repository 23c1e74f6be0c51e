"""Least squares for marginals and generalised marginals in closed form: the ``lattice`` route.

Every block is a product of totals and, for each attribute that it crosses, of that attribute's one matrix A_i, the
identity or any other that determines all (merged) cells. With ``X_i = A_i'A_i``, ``u_i = X_i^-1 1`` and ``g_i = 1'u_i``

    X_i^(1/2)' E_i X_i^(1/2) = 1 1' / g_i,     E_i the projection on X_i^(-1/2) 1,

so that all blocks have ``(x)_{i in S} (I - E_i) (x)_{i not in S} E_i`` for eigenspaces between ``(x)_i X_i^(1/2)`` on
both sides, one for each set S of attributes that some block crosses, with the eigenvalues

    lambda_S = sum_{b crosses S} (1/v_b) prod_{i not crossed by b} g_i,

and a table W has the variance ``sum_S lambda_S^-1 prod_i`` of ``diag(W_i X_i^-1 W_i') - (W_i u_i)^2 / g_i`` in S, of
``(W_i u_i)^2 / g_i`` beside it. For marginals X_i = I, u_i = 1 and g_i = n_i.

Sets are bit masks over the attributes that some block crosses, the first attribute the highest bit. Sums over
subsets are taken one attribute at a time: a table over s attributes costs 2^s numbers, whatever the number of blocks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from ..domain import Workload
from ..linalg import (
    Dense,
    Identity,
    Kron,
    LinearOperator,
    Total,
)
from .information import Profile, refuse_not_estimable
from .lattice_axis import Axis
from .lattice_profile import Part, TableTypes
from .marginal_algebra import superset_sum
from .strategy import (
    Block,
    Strategy,
    products,
)

_SETS = 2**18  # subsets of crossed sets that are listed one by one
_ATTRIBUTES = 16  # attributes of which all sets are listed instead


def _axes(strategy: Strategy) -> tuple[Axis, ...] | None:
    """The one matrix of each attribute; None where blocks differ in more than what they sum over."""
    matrices: dict[int, LinearOperator] = {}
    for block in strategy.blocks:
        if not isinstance(block.query, Kron) or len(block.query.ops) != len(strategy.domain.shape):
            return None
        for i, factor in enumerate(block.query.ops):
            if not isinstance(factor, Total) and matrices.setdefault(i, factor) != factor:
                return None
    return tuple(Axis(matrices.get(i, Identity(n))) for i, n in enumerate(strategy.domain.shape))


def is_lattice(strategy: Strategy) -> bool:
    """Whether every block is a (generalised) marginal, and the sets of attributes they cross can be listed."""
    axes = _axes(strategy)
    if axes is None:
        return False
    crossed = [_crossed(block) for block in strategy.blocks]
    listed = len(set().union(*crossed)) <= _ATTRIBUTES or sum(2 ** len(c) for c in crossed) <= _SETS
    return listed and all(axis.determined for axis in axes)


def _crossed(block: Block) -> tuple[int, ...]:
    """The attributes that a block crosses; one of one category is crossed and summed at once: call it summed."""
    assert isinstance(block.query, Kron)
    return tuple(i for i, f in enumerate(block.query.ops) if not isinstance(f, Total) and f.shape != (1, 1))


class LatticeInformation:
    """P of a set of (generalised) marginals, diagonal on the lattice of attribute sets."""

    route = "lattice"

    def __init__(self, strategy: Strategy, variances: Sequence[float]) -> None:
        axes = _axes(strategy)
        assert axes is not None
        self._axes = axes
        crossed = [_crossed(block) for block in strategy.blocks]
        attributes = sorted(set().union(*crossed))
        self._bit = {i: 1 << (len(attributes) - 1 - p) for p, i in enumerate(attributes)}
        self._masks = [sum(self._bit[i] for i in sets) for sets in crossed]
        self._units = [2.0**block.exponent for block in strategy.blocks]
        # The blocks' matrices are whole numbers on a grid: their noise is measured on it.
        # Relative to the largest, for at absurd budgets the reciprocals would overflow.
        self._scale = max(variances)
        self._variances = [v / self._scale * unit**2 for v, unit in zip(variances, self._units, strict=True)]
        self._eigenvalues = self._spectrum()
        self._estimates: dict[int, np.ndarray] = {}
        self._of: tuple[np.ndarray, ...] = ()

    def _spectrum(self) -> dict[int, float]:
        """lambda_S of every set S that some block crosses."""
        uncrossed = math.prod(a.size for i, a in enumerate(self._axes) if i not in self._bit)
        weights: dict[int, float] = {}
        for mask, variance in zip(self._masks, self._variances, strict=True):
            summed = math.prod(self._axes[i].size for i, bit in self._bit.items() if not mask & bit)
            weights[mask] = weights.get(mask, 0.0) + uncrossed * summed / variance
        if len(self._bit) <= _ATTRIBUTES:
            by_set = np.zeros(1 << len(self._bit))
            by_set[list(weights)] = list(weights.values())
            sums = superset_sum(by_set)
            return {int(s): float(sums[s]) for s in np.flatnonzero(sums)}
        eigenvalues: dict[int, float] = {}
        for mask, weight in weights.items():
            for subset in _subsets(mask).tolist():
                eigenvalues[subset] = eigenvalues.get(subset, 0.0) + weight
        return eigenvalues

    def _inverse_eigenvalues(self, mask: int) -> np.ndarray:
        """1 / lambda_S of the subsets S of a set, (2, ..., 2): an axis for each attribute, in order."""
        return np.array([1 / self._eigenvalues[s] for s in _subsets(mask).tolist()]).reshape(
            (2,) * mask.bit_count()
        )

    def _parts(self, operator: LinearOperator) -> list[Part]:
        """Each product of a table with the set of attributes that it has components in."""
        parts = []
        for c, queries in products(operator):
            mask = 0
            for i, (axis, query) in enumerate(zip(self._axes, queries, strict=True)):
                if axis.varies(query):
                    if i not in self._bit:
                        raise refuse_not_estimable()
                    mask |= self._bit[i]
            if mask not in self._eigenvalues:
                raise refuse_not_estimable()
            parts.append(Part(c, queries, mask))
        return parts

    def variance(self, operator: LinearOperator) -> np.ndarray:
        """diag(W P^+ W') by the lattice, (m,)."""
        parts = self._parts(operator)
        total = np.zeros(operator.shape[0])
        for a, left in enumerate(parts):
            for right in parts[: a + 1]:
                twice = 1 if right is left else 2
                total += twice * left.coefficient * right.coefficient * self._cross(left, right)
        return total * self._scale

    def _cross(self, left: Part, right: Part) -> np.ndarray:
        """sum_S lambda_S^-1 (x)_i of the rows' parts, (m,): rows alike in their parts are computed once."""
        common = left.mask & right.mask
        out = self._inverse_eigenvalues(common)
        places = []
        for i, axis in enumerate(self._axes):
            distinct, which = axis.distinct_parts(left.queries[i], right.queries[i])
            if common & self._bit.get(i, 0):
                out = np.tensordot(out, distinct, axes=(0, 0))
            else:
                out = np.multiply.outer(out, distinct[0])
            places.append(which)
        return out[np.ix_(*places)].ravel()

    def total(self, workload: Workload) -> float:
        """Total weighted variance, ``sum_S f_S / lambda_S`` with the tables' components f; nothing per query."""
        total = 0.0
        for table in workload.tables:
            parts = self._parts(table.operator(workload.domain))
            for a, left in enumerate(parts):
                for right in parts[: a + 1]:
                    twice = 1 if right is left else 2
                    weight = float(table.weight) ** 2 * twice * left.coefficient * right.coefficient
                    total += weight * self._sum(left, right)
        return total * self._scale

    def _sum(self, left: Part, right: Part) -> float:
        common, outside = left.mask & right.mask, 1.0
        inside = np.ones(1)
        for i, axis in enumerate(self._axes):
            sums = axis.sums(left.queries[i], right.queries[i])
            if common & self._bit.get(i, 0):
                inside = np.multiply.outer(inside, sums).ravel()
            else:
                outside *= sums[0]
        return outside * float(inside @ self._inverse_eigenvalues(common).ravel())

    def answer(self, operator: LinearOperator, answers: Sequence[np.ndarray]) -> np.ndarray:
        """Least-squares answers from the blocks' noisy answers, (m,)."""
        self._take(answers)
        total = np.zeros(operator.shape[0])
        for part in self._parts(operator):
            factors = [
                axis.over(query)
                if part.mask & self._bit.get(i, 0)
                else Dense(axis.through_mean(query)[:, None])
                for i, (axis, query) in enumerate(zip(self._axes, part.queries, strict=True))
            ]
            total += part.coefficient * (Kron(factors) @ self._estimates[part.mask].ravel())
        return total

    def _take(self, answers: Sequence[np.ndarray]) -> None:
        """Estimates of all measured marginals from the blocks' answers; once for all tables.

        First every set S gets ``sum_{b crosses S} y_b / v_b``, of the mean part in the attributes beside S; then
        its own component; then every set the components of its subsets. Each is done attribute by attribute, so
        that a set is added to its neighbours only.
        """
        if len(answers) == len(self._of) and all(a is b for a, b in zip(answers, self._of, strict=True)):
            return
        sums: dict[int, np.ndarray] = {}
        for mask, variance, unit, y in zip(self._masks, self._variances, self._units, answers, strict=True):
            shape = [self._axes[i].matrix.shape[0] for i in self._within(mask)]
            part = np.asarray(y, dtype=float).reshape(shape) * (unit / variance)
            sums[mask] = sums[mask] + part if mask in sums else part
        for i, bit in self._bit.items():
            for mask in [s for s in self._eigenvalues if s & bit and s in sums]:
                part = self._axes[i].take_mean(sums[mask], self._position(mask, bit))
                sums[mask ^ bit] = sums[mask ^ bit] + part if mask ^ bit in sums else part
        for mask, eigenvalue in self._eigenvalues.items():
            component = sums[mask] / eigenvalue
            for position, i in enumerate(self._within(mask)):
                component = self._axes[i].take_beside(component, position)
            sums[mask] = component
        for i, bit in self._bit.items():
            for mask in [s for s in self._eigenvalues if s & bit]:
                sums[mask] = sums[mask] + self._axes[i].spread(sums[mask ^ bit], self._position(mask, bit))
        self._estimates, self._of = sums, tuple(answers)

    def _within(self, mask: int) -> list[int]:
        """The attributes of a set, in order."""
        return [i for i, bit in self._bit.items() if mask & bit]

    def _position(self, mask: int, bit: int) -> int:
        """The place of one attribute among those of a set."""
        return (mask & ~(2 * bit - 1)).bit_count()

    def profile(self, operator: LinearOperator) -> Profile:
        """Statistics of Z: exact where its distinct coefficients can be listed, Minkowski bounds otherwise."""
        masks = np.array(self._masks, dtype=_integers(self._masks))
        weights = np.array(self._units) / np.array(self._variances)
        table = TableTypes(self._parts(operator), self._axes, self._bit, self._inverse_eigenvalues)
        return table.profile(masks, weights)


def _integers(masks: Sequence[int]) -> type:
    """int64 where masks fit, Python integers beyond."""
    return np.int64 if max(masks).bit_length() < 63 else object


@lru_cache(maxsize=4096)
def _subsets(mask: int) -> np.ndarray:
    """The subsets of a set; position in binary says which of its attributes are in."""
    out = np.zeros(1, dtype=_integers([mask]))
    for position in reversed(range(mask.bit_length())):
        if mask >> position & 1:
            out = np.add.outer(out, np.array([0, 1 << position], dtype=out.dtype)).ravel()
    return out
