"""Oracles written apart from the package: mass functions by mpmath, and sources that follow a script."""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar

import mpmath
import numpy as np
import pytest

DIGITS = 70


class Oracle:
    """The laws by their definitions, with mpmath."""

    def __init__(self) -> None:
        self.mp = mpmath.mp.clone()
        self.mp.dps = DIGITS

    def real(self, value):
        value = Fraction(value)
        return self.mp.mpf(value.numerator) / value.denominator

    def laplace_cdf(self, scale, k):
        """P(X <= k), P(k) proportional to e^{-|k|/scale}: by the geometric series."""
        q = self.mp.exp(-1 / self.real(scale))
        return q**-k / (1 + q) if k < 0 else 1 - q ** (k + 1) / (1 + q)

    def gaussian_masses(self, variance, last):
        """Unnormalised masses at 0..last, and the normaliser by Jacobi's theta function."""
        v = self.real(variance)
        norm = self.mp.jtheta(3, 0, self.mp.exp(-1 / (2 * v))) if v < 50 else self.mp.sqrt(2 * self.mp.pi * v)
        return [self.mp.exp(-k * k / (2 * v)) for k in range(last + 1)], norm

    def tail(self, kind, parameter, k):
        """P(|X| > k)."""
        if kind == "laplace":
            q = self.mp.exp(-1 / self.real(parameter))
            return 2 * q ** (k + 1) / (1 + q)
        if kind == "rounded":
            return self.mp.erfc(self.mp.mpf(2 * k + 1) / self.mp.sqrt(8 * self.real(parameter)))
        v = self.real(parameter)
        masses, norm = self.gaussian_masses(parameter, k + int(40 * self.mp.sqrt(v)) + 40)
        return 2 * self.mp.fsum(masses[k + 1 :]) / norm


class Scripted:
    """Gives out the words that it was told to, then the bits that it was told to."""

    secure: ClassVar[bool] = False

    def __init__(self, words=(), bits=()):
        self.words = [np.atleast_1d(np.array(batch, np.uint64)) for batch in words]
        self.further = list(bits)

    def u64(self, n):
        batch = self.words.pop(0)
        assert batch.size == n
        return batch.copy()

    def bits(self, k):
        value = self.further.pop(0)
        assert 0 <= value < 1 << k
        return value


@pytest.fixture(scope="session")
def oracle():
    return Oracle()


@pytest.fixture
def scripted():
    return Scripted
