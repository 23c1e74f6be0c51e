"""Operators over some dense cells and some symmetric attributes, as a few small matrices instead of a large one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod, sqrt

import numpy as np


@dataclass(frozen=True, eq=False)
class BlockAlgebra:
    """The symmetric operators that treat all categories of each symmetric attribute alike.

    A vector x has shape (k, N): k dense cells, and N = n_1 ... n_s combinations of symmetric attributes, in C order.
    A sum of terms ``G (x) E_1 (x) ... (x) E_s``, with G dense and each E the identity or the matrix of ones, maps each
    *kind* of contrast to itself: a kind is the set S of attributes along which a contrast is not constant. So the sum
    is one k x k matrix for each of the 2^s kinds, and adding, inverting and multiplying are done kind by kind:

        M[S] = sum over terms with E_a = I for all a in S of  (product of n_a over the other a with E_a = J) G

    ``rotate`` changes to orthonormal coordinates in which every coordinate belongs to one kind. Matrices have shape
    (..., 2^s, k, k); bit a of a kind is attribute a.

    Args:
        symmetric: the sizes n_a of the symmetric attributes; may be empty.

    >>> algebra = BlockAlgebra((2, 3))
    >>> algebra.cells, algebra.kinds, algebra.kind_sizes.tolist()
    (6, 4, [1, 1, 2, 2])
    >>> x = np.arange(12.0).reshape(2, 6)
    >>> bool(np.allclose(algebra.unrotate(algebra.rotate(x)), x))
    True
    """

    symmetric: tuple[int, ...]

    @cached_property
    def cells(self) -> int:
        """N: combinations of the symmetric attributes."""
        return prod(self.symmetric)

    @property
    def kinds(self) -> int:
        """2^s: kinds of contrast."""
        return 1 << len(self.symmetric)

    @cached_property
    def kind_sizes(self) -> np.ndarray:
        """Shape (kinds,): coordinates of each kind, the product of n_a - 1 over its attributes."""
        return np.array(
            [prod(n - 1 for a, n in enumerate(self.symmetric) if kind >> a & 1) for kind in range(self.kinds)]
        )

    @cached_property
    def starts(self) -> np.ndarray:
        """Shape (kinds + 1,): where the coordinates of each kind begin."""
        return np.concatenate([[0], np.cumsum(self.kind_sizes)])

    @cached_property
    def _order(self) -> np.ndarray:
        """For each rotated coordinate its place in C order."""
        kind = np.zeros(1, np.int64)
        for a, n in enumerate(self.symmetric):
            kind = (kind[:, None] + ((np.arange(n) > 0) << a)).ravel()
        return np.argsort(kind, kind="stable")

    @cached_property
    def _back(self) -> np.ndarray:
        return np.argsort(self._order)

    def rotate(self, x: np.ndarray) -> np.ndarray:
        """Vectors of shape (..., N), to coordinates sorted by kind. The first is the sum over sqrt(N)."""
        return self._reflect(x)[..., self._order]

    def unrotate(self, x: np.ndarray) -> np.ndarray:
        """The inverse of ``rotate``."""
        return self._reflect(x[..., self._back])

    def _reflect(self, x: np.ndarray) -> np.ndarray:
        """The Householder reflection along each attribute that takes the vector of ones to the first axis."""
        lead = x.shape[:-1]
        # in C order, so that sums are in one order, whatever x is a view of
        y = np.array(x, float, order="C").reshape(*lead, *self.symmetric)
        for a, n in enumerate(self.symmetric):
            if n == 1:
                continue
            axis = len(lead) + a
            root = sqrt(n)
            first = np.take(y, [0], axis)
            mean = y.sum(axis, keepdims=True) / root
            y -= (mean - first) / (root - 1)
            np.moveaxis(y, axis, 0)[0] = np.moveaxis(mean, axis, 0)[0]
        return y.reshape(x.shape)

    def term(self, dense: np.ndarray, kept: int) -> np.ndarray:
        """G (x) E_1 ... E_s as a matrix of each kind: shape (kinds, k, k).

        Args:
            dense: G, shape (k, k).
            kept: bits of the attributes whose E is the identity.
        """
        ones = prod(n for a, n in enumerate(self.symmetric) if not kept >> a & 1)
        told = [(kind & kept) == kind for kind in range(self.kinds)]
        return ones * np.multiply.outer(np.array(told, float), dense)

    def apply(self, matrix: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Matrices (..., kinds, j, k) on rotated vectors (..., k, N): shape (..., j, N)."""
        parts: list[np.ndarray] = []
        for kind in range(self.kinds):
            piece = x[..., self.starts[kind] : self.starts[kind + 1]]
            m = matrix[..., kind, :, :]
            parts.append(m * piece if m.shape[-2:] == (1, 1) else m @ piece)
        return np.concatenate(parts, axis=-1)

    def squares(self, sizes: Sequence[int | np.ndarray]) -> np.ndarray:
        """How much of an indicator lies in each kind: shape (..., kinds), summing to the number of its cells.

        The indicator is a product of sets of g_a of the n_a categories. With M = (V[S]) the variance of a vector, the
        variance of ``sum_d r_d sum_{c in set} x[d, c]`` is ``sum_S squares[S] r' V[S] r``.

        Args:
            sizes: g_a for each symmetric attribute, numbers or arrays of one shape.
        """
        shape = np.broadcast_shapes(*(np.shape(g) for g in sizes)) if sizes else ()
        found = np.ones((*shape, self.kinds))
        for a, (g, n) in enumerate(zip(sizes, self.symmetric, strict=True)):
            constant = np.asarray(g, float) ** 2 / n
            for kind in range(self.kinds):
                found[..., kind] *= (np.asarray(g) - constant) if kind >> a & 1 else constant
        return found
