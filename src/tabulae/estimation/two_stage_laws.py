"""Two measurements of one total, of which the first was selected: the setting, and the laws behind it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ..errors import InvalidArgument
from ..privacy import (
    DiscreteGaussian,
    DiscreteLaplace,
    NoiseLaw,
)

_SURE = 1e-9  # the chance with which noise of stage one exceeds `reach`
_WEIGHT = (
    1_000  # above, or below its inverse, one of the two measurements says next to nothing beside the other
)


@dataclass(frozen=True)
class TwoStages:
    """``y = N + e`` with the law ``first``, and ``S = N + e_1 + ... + e_cells`` with ``second``, all independent.

    y is seen only where it falls in an interval; S is drawn in any case.

    Raises:
        InvalidArgument: laws that are not both discrete Gaussian or both discrete Laplace.
    """

    first: NoiseLaw
    second: NoiseLaw
    cells: int

    def __post_init__(self) -> None:
        kinds = {type(self.first), type(self.second)}
        if kinds not in ({DiscreteGaussian}, {DiscreteLaplace}):
            raise InvalidArgument("both stages have discrete Gaussian noise, or both discrete Laplace noise")

    @property
    def gaussian(self) -> bool:
        """Whether the noise is Gaussian."""
        return isinstance(self.first, DiscreteGaussian)

    @property
    def ratio(self) -> Fraction:
        """Var(S) / Var(y), from the parameters: the weight of y in the best combination, for a weight 1 of S."""
        quotient = self.second.parameter / self.first.parameter
        return self.cells * (quotient if self.gaussian else quotient**2)

    @property
    def plain_variance(self) -> float:
        """Var(S)."""
        return self.cells * self.second.variance_of_law

    @property
    def share(self) -> float:
        """The weight of y in ``z = (1 - share) S + share y``."""
        return float(self.ratio / (1 + self.ratio))

    @property
    def combined_variance(self) -> float:
        """Var(z), without selection."""
        return self.share**2 * self.first.variance_of_law + (1 - self.share) ** 2 * self.plain_variance

    @property
    def weights(self) -> tuple[int, int]:
        """Small integers (a, b) with a / b near ``ratio``: ``a y + b S`` is as good as z for intervals."""
        near = min(self.ratio, Fraction(_WEIGHT)).limit_denominator(_WEIGHT)
        return near.numerator, near.denominator

    @property
    def reach(self) -> int:
        """What the noise of stage one exceeds with a chance of at most 1e-9."""
        return self.first.margin(1 - Fraction(_SURE))

    def shrunk(self, factor: float) -> TwoStages:
        """The same setting in units of ``factor`` counts."""
        power = Fraction(factor) ** (2 if self.gaussian else 1)
        kind = type(self.first)
        return TwoStages(kind(self.first.parameter / power), kind(self.second.parameter / power), self.cells)

    def log_weight(self, k: np.ndarray) -> np.ndarray:
        """log P(e = k) of stage one, but for a constant."""
        parameter = float(self.first.parameter)
        return -(k * k) / (2 * parameter) if self.gaussian else -np.abs(k) / parameter


def sum_law(law: NoiseLaw, count: int) -> np.ndarray:
    """P(e_1 + ... + e_count = k) for k = -M..M, within 1e-14: Fourier coefficients of the characteristic function.

    What lies beyond M, 40 standard deviations of the sum or more, is below 1e-15.

    >>> round(float(sum_law(DiscreteGaussian(1), 2).max()), 6)
    0.282124
    """
    deviation = math.sqrt(law.variance_of_law * count)
    length = 2 ** max(8, math.ceil(math.log2(80 * deviation + 64)))
    points = 2 * np.pi * np.arange(length // 2 + 1) / length
    half = np.fft.irfft(law.characteristic(points) ** count, length)[: length // 2]
    return np.maximum(np.concatenate([half[:0:-1], half]), 0.0)
