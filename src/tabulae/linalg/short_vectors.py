"""Small whole numbers that solve equations: the kernel of an integer matrix by short vectors, row by row.

Floating point only chooses which whole multiples of one vector to take from another. Every such step keeps the lattice,
so what is returned is exact whatever was chosen; the choice makes it short.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from .exact import largest_abs
from .integers import (
    narrow,
    product,
    times,
)

_WEIGHT = 2**10  # of the value that is to vanish, against the length of a vector
_LOVASZ = 0.99
_STEPS = 60  # swaps allowed, times the square of the number of vectors


class ShortKernel:
    """Vectors ``v_1 .. v_m`` (rows of ``vectors``) that generate all whole vectors and bring H to steps.

    ``H v`` is zero for the last ``m - h`` vectors, the kernel, which are short. For the first h, row i of H is
    ``divisors[i] > 0`` on ``v_i``, and zero on every later vector: so ``H d = g`` is solved from the first row on.

    Arguments:
        H: (h, m) whole numbers of full row rank.

    Reference: Lenstra, Lenstra, Lovasz 1982 (reduction); Havas, Majewski, Matthews 1998 (Hermite form by reduction).

    >>> kernel = ShortKernel(np.array([[2, 3, 5]]))
    >>> kernel.divisors, kernel.solve(np.array([4])).tolist()
    ([1], [1, -1, 1])
    """

    def __init__(self, H: np.ndarray) -> None:
        self._H = H
        kernel = np.eye(H.shape[1], dtype=np.int64)
        steps = []
        self.divisors: list[int] = []
        for row in H:
            kernel, value = _vanishing(kernel, product(kernel, row))
            steps.append(kernel[-1])
            self.divisors.append(value)
            kernel = kernel[:-1]
        self._steps = np.array(steps)
        self._kernel = reduced(kernel) if len(kernel) else kernel

    def remainders(self, targets: np.ndarray) -> np.ndarray:
        """For each column g of (h, count) whether ``H d = g`` has a whole solution: the first row that fails, or -1."""
        failing = np.full(targets.shape[1], -1)
        if max(self.divisors) == 1:
            return failing
        left, images = targets.astype(object), product(self._steps, self._H.T)
        for i, divisor in enumerate(self.divisors):
            failing[(failing < 0) & (left[i] % divisor != 0)] = i
            left = left - np.multiply.outer(images[i], left[i] // divisor)
        return failing

    @cached_property
    def _planes(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Kernel and steps, the last step first, with their orthogonal factors: each head of it is a kernel of rows."""
        basis = np.concatenate([self._kernel, self._steps[::-1]])
        q, r = np.linalg.qr(basis.astype(np.float64).T)
        return basis, q, r

    def solve(self, target: np.ndarray) -> np.ndarray:
        """Whole d with ``H d = target``, made short; it must exist."""
        found, left = np.zeros(self._H.shape[1], dtype=np.int64), target
        for i, divisor in enumerate(self.divisors):
            count = int(left[i]) // divisor
            if count or i == len(self.divisors) - 1:
                found = narrow(found + times(self._steps[i], count))
                found = self._shortened(found, len(self._H) - i - 1)
                left = narrow(target.astype(object) - product(self._H, found))
        return found

    def _shortened(self, vector: np.ndarray, later: int) -> np.ndarray:
        """The vector less multiples of the kernel and the last ``later`` steps, plane by plane (Babai 1986)."""
        basis, q, r = self._planes
        count = len(self._kernel) + later
        for _ in range(3):  # again where the numbers were too large for one pass
            place = q[:, :count].T @ vector.astype(np.float64)
            multiples = np.zeros(count)
            for i in range(count - 1, -1, -1):
                multiples[i] = math.floor(place[i] / r[i, i] + 0.5)
                place[:i] -= multiples[i] * r[:i, i]
            if not multiples.any():
                break
            part = product(basis[:count].T, np.array([int(c) for c in multiples]))
            vector = narrow(vector.astype(object) - part)
        return vector


def _vanishing(vectors: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, int]:
    """Vectors of the same lattice with value zero but for the last, whose value is positive; and that value."""
    together = np.concatenate([vectors, values[:, None]], axis=1)
    together = reduced(together, weight=_WEIGHT)
    values = together[:, -1]
    if np.count_nonzero(values) > 1:
        together = together.astype(object)
    while np.count_nonzero(values) > 1:  # Euclid's steps, where reduction left some
        cells = np.flatnonzero(values)
        least = cells[np.argmin(np.abs(values[cells]))]
        others = cells[cells != least]
        counts = values[others] // values[least]
        together[others] = together[others] - np.multiply.outer(counts, together[least])
        values = together[:, -1]
    (last,) = np.flatnonzero(values)
    order = np.append(np.delete(np.arange(len(values)), last), last)
    value = int(values[last])
    vectors = together[order, :-1]
    if value < 0:
        vectors[-1] = -vectors[-1]
    return narrow(vectors), abs(value)


def reduced(vectors: np.ndarray, weight: int = 1) -> np.ndarray:
    """A reduced basis (Lenstra, Lenstra and Lovasz) of the lattice of independent rows; the last column is weighted."""
    basis = vectors.copy()
    scale = np.ones(basis.shape[1])
    scale[-1] = weight
    return narrow(_Reduction(basis, scale).run())


class _Reduction:
    """Gram-Schmidt coefficients of the rows of a basis, kept up to date while its rows change."""

    def __init__(self, basis: np.ndarray, scale: np.ndarray) -> None:
        self.basis = basis
        upper = np.linalg.qr((basis.astype(np.float64) * scale).T, mode="r")
        sizes = np.diag(upper)
        self.squares = sizes**2
        self.mu = np.tril((upper / sizes[:, None]).T, -1)

    def run(self) -> np.ndarray:
        """The basis, reduced."""
        count, k = len(self.basis), 1
        left = _STEPS * count**2
        while k < count and left:
            left -= 1
            self._subtract(k, k - 1)
            if self.squares[k] >= (_LOVASZ - self.mu[k, k - 1] ** 2) * self.squares[k - 1]:
                for j in range(k - 2, -1, -1):
                    self._subtract(k, j)
                k += 1
            else:
                self._swap(k)
                k = max(1, k - 1)
        return self.basis

    def _subtract(self, k: int, j: int) -> None:
        if abs(self.mu[k, j]) > 0.501:
            times = round(float(self.mu[k, j]))
            if self.basis.dtype != object and not self._fits(abs(times), k, j):
                self.basis = self.basis.astype(object)
            self.basis[k] -= times * self.basis[j]
            self.mu[k, :j] -= times * self.mu[j, :j]
            self.mu[k, j] -= times

    def _fits(self, times: int, k: int, j: int) -> bool:
        return times < 2**20 and max(largest_abs(self.basis[j]), largest_abs(self.basis[k])) < 2**40

    def _swap(self, k: int) -> None:
        mu, squares = self.mu, self.squares
        slope = mu[k, k - 1]
        joint = squares[k] + slope**2 * squares[k - 1]
        mu[k, k - 1] = slope * squares[k - 1] / joint
        squares[k] = squares[k - 1] * squares[k] / joint
        squares[k - 1] = joint
        self.basis[[k - 1, k]] = self.basis[[k, k - 1]]
        mu[[k - 1, k], : k - 1] = mu[[k, k - 1], : k - 1]
        below = mu[k + 1 :, k].copy()
        mu[k + 1 :, k] = mu[k + 1 :, k - 1] - slope * below
        mu[k + 1 :, k - 1] = below + mu[k, k - 1] * mu[k + 1 :, k]
