"""Least squares of all measurements under exact counts that are known besides: by one decomposition.

Over merged cells u with blocks ``B`` (whitened) and exact tables ``C u = c``: with Z an orthonormal basis of null(C)
and u_c any solution,

    u^ = u_c + Z (B Z)^+ (y - B u_c),      W u^ has covariance ``W Z (Z'B'B Z)^+ Z'W'``.

It has the least variance among linear unbiased estimates that use both, and mixes the exact counts into what it says
of null(C): see :func:`.restriction.restricted_strategy` for what that costs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import scipy.linalg

from ..domain import Invariants
from ..errors import Unsupported
from ..linalg import (
    Dense,
    LinearOperator,
    Product,
)
from .explicit_information import (
    DenseInformation,
    joint_merges,
    representatives_of,
    whitening,
)
from .information import EXPLICIT, refuse_not_estimable
from .restriction import over_merged
from .strategy import Strategy

_DEPENDENT = 1e-12  # singular values below this share of the largest count as zero
_BESIDE = 1e-9  # share of a table's norm that may lie outside the row space, by rounding


class ConstrainedInformation(DenseInformation):
    """Least squares under exact values, over at most 4,096 merged cells.

    Raises :class:`~tabulae.errors.Unsupported` beyond.
    """

    route = "constrained"

    def __init__(
        self,
        strategy: Strategy,
        variances: Sequence[float],
        invariants: Invariants,
        values: Sequence[np.ndarray],
    ) -> None:
        super(DenseInformation, self).__init__()
        self._merges = joint_merges(strategy, invariants)
        cells = math.prod(p.shape[0] for p in self._merges)
        if cells > EXPLICIT:
            raise Unsupported(
                f"measurements and exact tables together tell {cells:,} cells apart; least squares under exact counts "
                f"that were not given to select goes up to {EXPLICIT:,}. Name them there: select(..., invariants=...)"
            )
        self._chosen = [representatives_of(p) for p in self._merges]
        exact = np.vstack([over_merged(t.operator(strategy.domain), self._merges) for t in invariants.tables])
        self._solution = np.linalg.lstsq(
            exact.astype(float), np.concatenate(values).astype(float), rcond=None
        )[0]
        self._null = scipy.linalg.null_space(exact.astype(float), rcond=1e-11)
        split = [self._split(block) for block in strategy.blocks]
        unit, shares = whitening(variances)
        whole = np.vstack([rows * share for (_, rows), share in zip(split, shares, strict=True)])
        left, singular, right = np.linalg.svd(whole @ self._null, full_matrices=False)
        kept = int(np.count_nonzero(singular > _DEPENDENT * max(singular[0], np.linalg.norm(whole, 2))))
        self._right = right[:kept].T
        self._space = self._null @ self._right
        self._pseudo = self._space / singular[:kept]
        self._root = math.sqrt(unit) * self._pseudo
        parts = np.split(left[:, :kept], np.cumsum([len(rows) for _, rows in split])[:-1])
        self._inward: list[LinearOperator] = [
            Product(carry, Dense(u * share))
            for (carry, _), u, share in zip(split, parts, shares, strict=True)
        ]
        self._place = [slice(0, kept)] * len(split)
        self._expected = [carry @ (rows @ self._solution) for carry, rows in split]

    def answer(self, operator: LinearOperator, answers: Sequence[np.ndarray]) -> np.ndarray:
        """Least-squares answers under the exact values, (m,)."""
        table = self._table(operator)
        apart = [np.asarray(y, dtype=float) - e for y, e in zip(answers, self._expected, strict=True)]
        return table.carry @ (table.small @ self._solution) + super().answer(operator, apart)

    def _check_space(self, small: np.ndarray) -> None:
        free = small @ self._null
        beside = free - (free @ self._right) @ self._right.T
        if np.linalg.norm(beside) > _BESIDE * max(np.linalg.norm(small), 1.0):
            raise refuse_not_estimable()
