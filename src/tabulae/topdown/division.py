"""One area's counts, to be divided among the areas within it: the problem that is solved again and again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..geography.constraints import NO_LIMIT
from ..linalg.block_algebra import BlockAlgebra

FREE = -1
"""In place of an exact count: the sum is not exact."""


@dataclass(frozen=True, eq=False)
class Division:
    """Divide a parent's counts among n children: convex, with limits on sums.

        minimise    sum_v  x_v' H_v x_v / 2 - b_v' x_v          x_v of shape (k, N), in people
        subject to  sum_v x_v = total                           where total is given (the root has none, and n = 1)
                    x_v >= 0,  x_v[d] = 0 where not allowed[v, d]
                    lower[v, j] <= sum of x_v over the dense cells d with part[d] = j <= upper[v, j]
                    sum of x_v over the parts j with group[v, j] = g  =  exact[v, g]       where exact[v, g] is not FREE

    k are the parent's dense cells, N = algebra.cells. H_v lies in the block algebra and is positive definite on the
    allowed cells. Every part lies in one group, so that the sums nest: cell, dense cell, part, group, all. The
    parent's counts satisfy their own limits, and a division in whole numbers exists.

    Attributes:
        algebra: over the symmetric attributes.
        total: shape (k, N), int64, or None.
        precision: shape (m, kinds, k, k): the distinct H; rows and columns of cells that are not allowed are 0.
        which: shape (n,): the H of each child.
        linear: shape (n, k, N): b, in natural (not rotated) coordinates; 0 where not allowed.
        allowed: shape (n, k), boolean.
        part: shape (k,): 0 .. J-1.
        lower, upper: shape (n, J), int64; ``NO_LIMIT`` where there is none.
        group: shape (n, J): 0 .. G-1, for each child.
        exact: shape (n, G), int64; ``FREE`` where a sum is not exact.
    """

    algebra: BlockAlgebra
    total: np.ndarray | None
    precision: np.ndarray
    which: np.ndarray
    linear: np.ndarray
    allowed: np.ndarray
    part: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    group: np.ndarray
    exact: np.ndarray

    @property
    def children(self) -> int:
        """n."""
        return self.which.size

    @property
    def is_plain(self) -> bool:
        """Whether nothing but the parent's counts, zero and the support limits the children."""
        return (
            self.total is not None
            and not (self.lower > 0).any()
            and not (self.upper < NO_LIMIT).any()
            and not (self.exact != FREE).any()
        )

    def objective(self, x: np.ndarray) -> float:
        """sum_v x_v' H_v x_v / 2 - b_v' x_v, for x of shape (n, k, N)."""
        rotated = self.algebra.rotate(x)
        quadratic = (rotated * self.algebra.apply(self.precision[self.which], rotated)).sum() / 2
        return float(quadratic - (self.linear * x).sum())
