"""What a budget asks of the noise, derived a second time."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from ..errors import InvalidArgument
from ..measurement import Measurement
from ..privacy import ZCDP, ApproxDP, DiscreteGaussian, DiscreteLaplace, PrivacyLoss, PureDP, RoundedGaussian

_DIGITS = 60
_WASTE = 1 - Fraction(1, 10**9)  # a variance this much smaller must break the promise, or noise is wasted


def law_of(loss: PrivacyLoss, noise: str) -> type:
    """The law that a budget and a kind of noise stand for.

    >>> law_of(ZCDP(1), "gaussian").__name__
    'DiscreteGaussian'
    """
    wanted = {
        ("pure", "laplace"): DiscreteLaplace,
        ("approx", "laplace"): DiscreteLaplace,
        ("approx", "gaussian"): RoundedGaussian,
        ("zcdp", "gaussian"): DiscreteGaussian,
    }.get((loss.definition, noise))
    if wanted is None:
        raise InvalidArgument(f"no theorem gives {loss.definition} from {noise} noise")
    return wanted


def units_drawn(measurement: Measurement) -> list[Fraction]:
    """Per block, the parameter drawn for one unit of relative scale, in counts: equal where all is well."""
    return [
        law.parameter / (block.scale * Fraction(2) ** (law.power * block.exponent))
        for law, block in zip(measurement.laws, measurement.strategy.blocks, strict=True)
    ]


def spent(loss: PrivacyLoss, noise: str, power: Fraction, unit: Fraction) -> tuple[Fraction, Fraction]:
    """What a change of this weighted power costs under noise of this unit, and what it may cost.

    zCDP: rho = Delta^2 / (2 sigma^2). Laplace: epsilon = Delta / b. Approximate with Gaussian noise: the delta
    of the analytic Gaussian mechanism at the budget's epsilon.

    >>> from tabulae.privacy import ZCDP
    >>> spent(ZCDP("1/2"), "gaussian", Fraction(3), Fraction(3))
    (Fraction(1, 2), Fraction(1, 2))
    """
    if isinstance(loss, ZCDP):
        return power / (2 * unit), loss.amount
    if noise == "laplace" and isinstance(loss, PureDP | ApproxDP):
        return power / unit, loss.amount
    if isinstance(loss, ApproxDP):
        return gaussian_delta(loss.amount, unit / power), loss.delta
    raise InvalidArgument(f"no theorem gives {loss.definition} from {noise} noise")


def wasteful(loss: PrivacyLoss, noise: str, power: Fraction, unit: Fraction) -> bool:
    """Whether clearly less noise would have done for a change of exactly this power."""
    if noise == "gaussian" and isinstance(loss, ApproxDP):
        return gaussian_delta(loss.amount, unit * _WASTE / power) <= loss.delta
    cost, allowed = spent(loss, noise, power, unit)
    return cost < allowed


def gaussian_delta(epsilon: Fraction, variance: Fraction) -> Fraction:
    """The least delta of normal noise of this variance on a query of sensitivity 1, to 50 digits.

    ``Phi(1/(2s) - epsilon s) - e^epsilon Phi(-1/(2s) - epsilon s)``, by the error function.

    Reference: Balle and Wang (2018), Theorem 8.

    >>> round(float(gaussian_delta(Fraction(1), Fraction(1))), 6)
    0.126937
    """
    from mpmath.ctx_mp import MPContext

    mp: Any = MPContext()
    mp.dps = _DIGITS + len(str(int(epsilon)))
    e = mp.mpf(epsilon.numerator) / epsilon.denominator
    s = mp.sqrt(mp.mpf(variance.numerator) / variance.denominator)

    def below(x: Any) -> Any:
        return mp.erfc(-x / mp.sqrt(2)) / 2

    value = below(1 / (2 * s) - e * s) - mp.exp(e) * below(-1 / (2 * s) - e * s)
    return Fraction(int(mp.floor(value * mp.mpf(10) ** 50))) / 10**50


def total_of(losses: Sequence[PrivacyLoss]) -> Fraction:
    """What rounds cost together: the amounts of one definition add.

    >>> total_of([ZCDP("1/3"), ZCDP("1/6")])
    Fraction(1, 2)
    """
    return sum((loss.amount for loss in losses), Fraction(0))
