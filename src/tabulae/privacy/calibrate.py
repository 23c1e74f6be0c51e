"""From a budget to the law of the noise."""

from __future__ import annotations

from fractions import Fraction

from ..errors import InvalidArgument
from .definitions import (
    ZCDP,
    ApproxDP,
    PrivacyLoss,
    PureDP,
    positive,
)
from .gaussian import analytic_gaussian_variance
from .laws import (
    DiscreteGaussian,
    DiscreteLaplace,
    NoiseLaw,
    RoundedGaussian,
)


def law_type(budget: PrivacyLoss, noise: str) -> type[NoiseLaw]:
    """The law that a budget pays for.

    Args:
        budget: ``PureDP``, ``ApproxDP`` or ``ZCDP``.
        noise: ``"gaussian"`` or ``"laplace"``.

    Raises:
        InvalidArgument: Gaussian noise under pure privacy, Laplace noise under zero-concentrated
            privacy, or an unknown name.

    Privacy: none is spent; a pair for which no theorem is used here is refused.

    >>> law_type(ZCDP(1), "gaussian").__name__
    'DiscreteGaussian'
    """
    if noise not in ("gaussian", "laplace"):
        raise InvalidArgument(f'noise is {noise!r}; it must be "gaussian" or "laplace"')
    if isinstance(budget, PureDP):
        if noise == "gaussian":
            raise InvalidArgument(
                "Gaussian noise never gives pure differential privacy: "
                'use noise "laplace", or a budget of ZCDP or ApproxDP'
            )
        return DiscreteLaplace
    if isinstance(budget, ZCDP):
        if noise == "laplace":
            raise InvalidArgument(
                'a ZCDP budget is spent on Gaussian noise: use noise "gaussian", '
                "or a budget of PureDP or ApproxDP"
            )
        return DiscreteGaussian
    if isinstance(budget, ApproxDP):
        return RoundedGaussian if noise == "gaussian" else DiscreteLaplace
    raise InvalidArgument(f"a budget of {type(budget).__name__} draws no noise; use PureDP, ApproxDP or ZCDP")


def calibrate(budget: PrivacyLoss, noise: str, sensitivity_power: Fraction) -> Fraction:
    """The parameter of the law that spends a budget on queries of the given sensitivity.

    ZCDP: variance = D / (2 rho). ApproxDP, Gaussian: variance = D c, with c the analytic Gaussian
    variance. Laplace: scale = D / epsilon. D is the squared L2 sensitivity for Gaussian noise and the
    L1 sensitivity for Laplace noise, exact or an upper bound.

    Args:
        budget: what is spent.
        noise: ``"gaussian"`` or ``"laplace"``.
        sensitivity_power: D, positive.

    Raises:
        InvalidArgument: a pair refused by ``law_type``, or a sensitivity that is not positive.

    Privacy: Canonne, Kamath and Steinke (2020), Corollary 16; Balle and Wang (2018), Theorem 8;
    Ghosh, Roughgarden and Sundararajan (2009). Exact, or rounded towards more noise.

    >>> calibrate(ZCDP("1/2"), "gaussian", Fraction(3))
    Fraction(3, 1)
    """
    law = law_type(budget, noise)
    power = positive(sensitivity_power, "sensitivity")
    if law is DiscreteLaplace:
        return power / budget.amount
    if law is DiscreteGaussian:
        return power / (2 * budget.amount)
    assert isinstance(budget, ApproxDP)
    return power * analytic_gaussian_variance(budget.amount, budget.delta)
