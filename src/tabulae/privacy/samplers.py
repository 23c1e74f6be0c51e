"""Which route draws which law, and the filling of arrays in chunks.

The route depends on the law alone, so that a seeded source gives the same draws whatever was drawn
before. Tables are kept by parameter.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import prod
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidArgument
from .digit_sampler import DigitSampler
from .enclosure import GaussianWeights, GeometricWeights
from .filtered_sampler import FilteredSampler
from .source import Source, SystemSource
from .table_sampler import TableSampler

CHUNK = 1 << 17
_TABLES = 64
_COMPANY = 64  # at least so many are drawn at once and the rest thrown away, so that time tells little of one
_LARGEST_TABLE_VARIANCE, _LARGEST_TABLE_SCALE = Fraction(1 << 20), Fraction(1 << 8)
_BLOCKS = 128  # a filtered sampler has a standard deviation of [128, 256) blocks
_TOP_GROUP = 32  # the highest group of bits has a scale in [32, 64)


class Sampler(Protocol):
    """Fills arrays with exact draws."""

    def fill(self, out: NDArray[np.int64], source: Source) -> None:
        """Fill a contiguous one-dimensional array."""
        ...


@lru_cache(maxsize=_TABLES)
def discrete_gaussian_sampler(variance: Fraction) -> Sampler:
    """The sampler of P(k) proportional to e^{-k^2 / (2 variance)}.

    Privacy: exact; see ``TableSampler`` and ``FilteredSampler``.

    >>> type(discrete_gaussian_sampler(Fraction(100))).__name__
    'TableSampler'
    """
    if variance <= _LARGEST_TABLE_VARIANCE:
        return TableSampler(GaussianWeights(variance), two_sided=True)
    shift = _shift(variance, _BLOCKS**2, 4)
    return FilteredSampler(variance / Fraction(4) ** shift, shift, rounded=False)


@lru_cache(maxsize=_TABLES)
def discrete_laplace_sampler(scale: Fraction) -> Sampler:
    """The sampler of P(k) proportional to e^{-|k| / scale}.

    Privacy: exact; see ``TableSampler`` and ``DigitSampler``.

    >>> type(discrete_laplace_sampler(Fraction(10**6))).__name__
    'DigitSampler'
    """
    if scale <= _LARGEST_TABLE_SCALE:
        return TableSampler(GeometricWeights(scale), two_sided=True)
    shift = _shift(scale, _TOP_GROUP, 2)
    return DigitSampler(scale, shift)


@lru_cache(maxsize=_TABLES)
def rounded_gaussian_sampler(variance: Fraction) -> Sampler:
    """The sampler of a normal variable of this variance, rounded to the nearest integer.

    Privacy: exact; see ``FilteredSampler``.

    >>> type(rounded_gaussian_sampler(Fraction(1))).__name__
    'FilteredSampler'
    """
    shift = _shift(variance, _BLOCKS**2, 4)
    return FilteredSampler(variance / Fraction(4) ** shift, shift, rounded=True)


def _shift(parameter: Fraction, least: int, base: int) -> int:
    """The power of ``base`` that brings the parameter into [least, least * base)."""
    shift = 0
    while parameter >= least * base:
        parameter, shift = parameter / base, shift + 1
    while parameter < least:
        parameter, shift = parameter * base, shift - 1
    return shift


@lru_cache(maxsize=1)
def _system_source() -> SystemSource:
    return SystemSource()


def draw(sampler: Sampler, size: int | tuple[int, ...], source: Source | None) -> NDArray[np.int64]:
    """An int64 array of independent draws, filled a chunk at a time.

    Args:
        sampler: what to draw.
        size: the number of draws, or a shape.
        source: where the bits come from; the operating system's where None.

    Raises:
        InvalidArgument: a size that is not made of non-negative integers.

    Privacy: each draw uses fresh bits.

    >>> draw(discrete_laplace_sampler(Fraction(1)), (2, 3), None).shape
    (2, 3)
    """
    shape = (size,) if isinstance(size, (int, np.integer)) else size
    if not isinstance(shape, tuple) or any(
        isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 0 for n in shape
    ):
        raise InvalidArgument(f"size is {size!r}; give a non-negative integer or a tuple of them")
    count = prod(int(n) for n in shape)
    out = np.empty(max(count, _COMPANY) if count else 0, np.int64)
    bits = _system_source() if source is None else source
    for start in range(0, out.size, CHUNK):
        sampler.fill(out[start : start + CHUNK], bits)
    return (out if out.size == count else out[:count].copy()).reshape(shape)
