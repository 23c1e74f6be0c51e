"""Gram matrices of workloads, and the cells that a workload does not tell apart.

A workload W with m queries over n cells enters the optimisers only through ``V = W'W``. Cells whose columns
of W are equal stay equal in V, and cells that no query counts are zero in V; a strategy for the distinct
cells alone, copied to their twins, is optimal for all of them under L1 and L2 sensitivity alike:
restricting any strategy to one cell of each class raises neither its sensitivity nor its error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import InvalidArgument


def checked_gram(gram: np.ndarray, what: str = "gram") -> np.ndarray:
    """``gram`` as a symmetric float64 array, or InvalidArgument; its spectrum is not looked at."""
    array = np.asarray(gram, dtype=np.float64)
    if array.ndim != 2 or array.shape[0] != array.shape[1] or array.shape[0] == 0:
        raise InvalidArgument(
            f"{what} has shape {array.shape}: give the n x n Gram matrix W'W of the workload."
        )
    if not np.isfinite(array).all():
        raise InvalidArgument(f"{what} has infinite or missing entries: rescale the weights of the workload.")
    size = np.abs(array).max()
    if np.abs(array - array.T).max() > 1e-9 * size:
        raise InvalidArgument(f"{what} is not symmetric: give the Gram matrix W'W, not W itself.")
    if array.diagonal().min() < -1e-9 * size:
        raise InvalidArgument(f"{what} has a negative diagonal entry, so it is no Gram matrix W'W.")
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
