"""How much a bound on the rows of each unit leaves out: two noisy counts, for a share of the budget."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from ..errors import InvalidArgument
from .loss import PrivacyLoss
from .noise.laws import NoiseLaw, law_for, law_type


@dataclass(frozen=True)
class LeftOut:
    """How much a bound of k rows a unit leaves out, and the share of the budget that says so.

    For units with n_i rows each, two counts::

        units = #{i : n_i > k}        rows = sum_i min(max(n_i - k, 0), at_most)

    Args:
        share: of the whole budget, strictly between 0 and 1; half of it pays for either count.
        at_most: the most rows of one unit that ``rows`` counts, 1 or more.

    Raises:
        InvalidArgument: an argument outside its range.

    Privacy:
        A unit is one term of either sum. So one unit more or less, or one in place of another, changes ``units`` by at
        most 1 and ``rows`` by at most ``at_most``, whatever rows it has. Noise for these sensitivities costs the
        two halves of the share, the tables cost the rest, and all three together the whole budget by sequential
        composition, under each definition: rho adds up (Bun and Steinke 2016, Lemma 1.7), and so do epsilon and delta
        (Dwork and Roth 2014, Theorem 3.16).

    >>> from tabulae.privacy import ZCDP
    >>> rule = LeftOut(Fraction(1, 50), at_most=20)
    >>> rule.of_tables(ZCDP("1/2")), rule.laws(ZCDP("1/2"), "gaussian")
    (ZCDP(rho='49/100'), (DiscreteGaussian(variance='100'), DiscreteGaussian(variance='40000')))
    """

    COUNTS: ClassVar[tuple[str, str]] = ("units", "rows")

    share: Fraction
    at_most: int

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise InvalidArgument(f"the share is {self.share}; it must lie strictly between 0 and 1")
        if self.at_most < 1:
            raise InvalidArgument(f"at_most is {self.at_most}; it must be 1 or more")

    @property
    def sensitivities(self) -> tuple[int, int]:
        """The most that one unit changes each count by, under every kind of neighbours."""
        return 1, self.at_most

    def of_tables(self, budget: PrivacyLoss) -> PrivacyLoss:
        """What of a whole budget is left for the tables: exact.

        Privacy:
            The rest of the budget, in each of its parameters.
        """
        return budget.split([1 - self.share, self.share])[0]

    def whole(self, of_tables: PrivacyLoss) -> PrivacyLoss:
        """The whole budget of which the tables have so much: exact.

        Privacy:
            None is spent: the inverse of :meth:`of_tables`.
        """
        return of_tables.scaled(1 / (1 - self.share))

    def laws(self, budget: PrivacyLoss, noise: str) -> tuple[NoiseLaw, ...]:
        """The noise of both counts, of a kind, under the whole budget.

        Raises:
            InvalidArgument: the noise would be so large that 64 bits may not hold a draw.

        Privacy:
            Each law spends half of the share at the sensitivity of its count.
        """
        own = budget.split([1 - self.share, self.share])[1]
        halves = own.split([Fraction(1, 2)] * 2)
        power = law_type(own, noise).power
        return tuple(
            law_for(half, noise, Fraction(most) ** power)
            for half, most in zip(halves, self.sensitivities, strict=True)
        )
