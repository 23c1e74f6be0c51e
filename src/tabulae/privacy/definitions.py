"""How much may be learnt: the privacy losses, as exact fractions.

A loss is a frozen value. Budgets are compared, split and added as fractions, so that a tenth taken
ten times is exactly one; floats appear only in statements made to people (``loss.epsilon(delta)``),
where they are rounded to the safe side.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from numbers import Integral, Rational
from typing import ClassVar, Literal, Self, cast, get_args

from ..errors import InvalidArgument

Exact = Fraction | int | str | float
"""What a caller may write where an exact number is meant."""

Neighbours = Literal["add-remove", "replace", "replace-within-invariants"]
"""What two data sets that must look alike differ by; see ``check_neighbours``."""

WITHIN: Neighbours = "replace-within-invariants"
"""Neighbours that agree on every count that is disclosed exactly."""

ABSURD = 10**30
_NUMBER = re.compile(r"[+-]?(\d+/\d+|(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?)")
_LONGEST = 1000


def exact(value: Exact, name: str = "value") -> Fraction:
    """Read a number exactly: a fraction, an integer, ``"542/339"``, ``"2.5562"`` or ``"1e-10"``.

    A float means its shortest decimal (0.1 is 1/10), because that is what its author wrote.

    Args:
        value: the number.
        name: what to call it in an error.

    Raises:
        InvalidArgument: not a number, or a boolean, NaN or infinite.

    Privacy: none is spent; exact budgets are what keeps a sum of losses from drifting past a cap.

    >>> exact("542/339"), exact(0.1), exact("1e-3")
    (Fraction(542, 339), Fraction(1, 10), Fraction(1, 1000))
    """
    if isinstance(value, bool):
        raise InvalidArgument(f'{name} is {value}, a boolean; write a number such as "1/2"')
    if isinstance(value, Integral):
        return Fraction(int(value))
    if isinstance(value, Rational):
        return Fraction(value.numerator, value.denominator)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidArgument(f"{name} is {float(value)!r}; it must be finite")
        return Fraction(float.__repr__(value))
    if isinstance(value, Decimal):
        value = str(value)
    if isinstance(value, str):
        return _read(value, name)
    raise InvalidArgument(f'{name} is a {type(value).__name__}; write a number such as "1/2" or 0.5')


def _read(text: str, name: str) -> Fraction:
    stripped = text.strip()
    if len(stripped) > _LONGEST or not _NUMBER.fullmatch(stripped):
        shown = stripped if len(stripped) <= 40 else stripped[:37] + "..."
        raise InvalidArgument(
            f"{name} is {shown!r}, which is not a finite number; write a fraction or a decimal "
            'such as "542/339" or "2.5562"'
        )
    try:
        return Fraction(stripped)
    except ZeroDivisionError as error:
        raise InvalidArgument(f"{name} is {stripped!r}, a division by zero") from error


def positive(value: Exact, name: str) -> Fraction:
    """Read a number that must be above 0 and below 10^30.

    Raises:
        InvalidArgument: not a number, not positive, or absurdly large.

    Privacy: refuses the zero, negative and infinite parameters for which no theorem holds.

    >>> positive("1/2", "rho")
    Fraction(1, 2)
    """
    number = exact(value, name)
    if number <= 0:
        raise InvalidArgument(f"{name} is {value}; it must be positive")
    if number >= ABSURD:
        raise InvalidArgument(f"{name} is 10^30 or more, which promises nothing; choose a number below")
    return number


def probability(value: Exact, name: str) -> Fraction:
    """Read a number that must lie strictly between 0 and 1.

    Raises:
        InvalidArgument: not a number, or outside (0, 1).

    Privacy: a delta of 0 is pure differential privacy and a delta of 1 is none: both are refused here.

    >>> probability("1e-10", "delta")
    Fraction(1, 10000000000)
    """
    number = exact(value, name)
    if not 0 < number < 1:
        raise InvalidArgument(f"{name} is {value}; it must lie strictly between 0 and 1")
    return number


def check_neighbours(name: str) -> Neighbours:
    """Accept the three neighbour relations of tabulae.

    ``add-remove``: one record more or less. ``replace``: one record exchanged for any other.
    ``replace-within-invariants``: one record exchanged for another such that every count disclosed exactly stays as
    it is; fewer pairs than ``replace`` has, so it promises less.

    Raises:
        InvalidArgument: any other name.

    Privacy: the relation decides the sensitivity of every query, so an unknown one is never guessed.

    Reference: the third is the relation of the 2020 Census TopDown algorithm.

    >>> check_neighbours("replace")
    'replace'
    """
    if name not in get_args(Neighbours):
        raise InvalidArgument(
            f'neighbours is {name!r}; it must be "add-remove", "replace" or "replace-within-invariants"'
        )
    return cast("Neighbours", name)


def float_up(value: Fraction) -> float:
    """The least float that is at least ``value``.

    Privacy: statements about a loss are rounded towards more loss.

    >>> float_up(Fraction(1, 3)) >= Fraction(1, 3)
    True
    """
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


class PrivacyLoss(ABC):
    """A bound on what one person's record can change; each definition is a subclass.

    ``amount`` is the parameter by which losses of one kind add up: epsilon, or rho.

    >>> import tabulae as tb
    >>> loss = tb.ZCDP("1/2")
    >>> isinstance(loss, tb.PrivacyLoss), loss.amount, round(loss.epsilon("1e-10"), 3)
    (True, Fraction(1, 2), 6.839)
    """

    definition: ClassVar[str]
    amount: Fraction

    @property
    @abstractmethod
    def parameters(self) -> dict[str, Fraction]:
        """The parameters by name, in the order in which they are written."""

    @abstractmethod
    def epsilon(self, delta: Exact) -> float:
        """The least epsilon proven to hold with this delta, rounded up."""

    @abstractmethod
    def scaled(self, factor: Exact) -> Self:
        """The loss with each of its parameters multiplied by an exact positive factor."""

    def split(self, fractions: Sequence[Exact]) -> tuple[Self, ...]:
        """The parts of this budget, whose sequential composition is the whole.

        Args:
            fractions: positive shares that sum to exactly 1.

        Raises:
            InvalidArgument: a share that is not positive, or a sum other than 1.

        Privacy: sequential composition; the parameters of pure, approximate and concentrated loss add.

        >>> ZCDP(1).split(["1/10", "9/10"])
        (ZCDP(rho='1/10'), ZCDP(rho='9/10'))
        """
        shares = [positive(share, "share of the budget") for share in fractions]
        total = sum(shares, Fraction(0))
        if total != 1:
            raise InvalidArgument(f"the shares of the budget sum to {total}, not 1; write them as fractions")
        return tuple(self.scaled(share) for share in shares)

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}='{value}'" for name, value in self.parameters.items())
        return f"{type(self).__name__}({inside})"


@dataclass(frozen=True, init=False, repr=False)
class PureDP(PrivacyLoss):
    """Pure differential privacy: no output's probability changes by more than a factor e^epsilon.

    Args:
        epsilon: positive; a fraction, an integer, a string, or a float meaning its shortest decimal.

    Raises:
        InvalidArgument: epsilon zero, negative, NaN or infinite.

    Privacy: the definition of Dwork, McSherry, Nissim and Smith (2006).

    >>> PureDP("1/2"), PureDP("1/2").amount
    (PureDP(epsilon='1/2'), Fraction(1, 2))
    """

    definition: ClassVar[str] = "pure"
    amount: Fraction

    def __init__(self, epsilon: Exact) -> None:
        object.__setattr__(self, "amount", positive(epsilon, "epsilon"))

    @property
    def parameters(self) -> dict[str, Fraction]:
        """``{"epsilon": ...}``."""
        return {"epsilon": self.amount}

    def epsilon(self, delta: Exact) -> float:
        """Its own epsilon, whatever the delta, rounded up to a float.

        Privacy: (epsilon, 0) implies (epsilon, delta) for every delta.

        >>> PureDP(1).epsilon("1e-10")
        1.0
        """
        probability(delta, "delta")
        return float_up(self.amount)

    def scaled(self, factor: Exact) -> PureDP:
        """PureDP(factor * epsilon)."""
        return PureDP(positive(factor, "factor") * self.amount)


@dataclass(frozen=True, init=False, repr=False)
class ApproxDP(PrivacyLoss):
    """Approximate differential privacy: P(S) <= e^epsilon Q(S) + delta for every event S.

    Args:
        epsilon: positive.
        delta: strictly between 0 and 1.

    Raises:
        InvalidArgument: a parameter outside its range.

    Privacy: the definition of Dwork, Kenthapadi, McSherry, Mironov and Naor (2006).

    >>> ApproxDP(1, "1e-6")
    ApproxDP(epsilon='1', delta='1/1000000')
    """

    definition: ClassVar[str] = "approx"
    amount: Fraction
    delta: Fraction

    def __init__(self, epsilon: Exact, delta: Exact) -> None:
        object.__setattr__(self, "amount", positive(epsilon, "epsilon"))
        object.__setattr__(self, "delta", probability(delta, "delta"))

    @property
    def parameters(self) -> dict[str, Fraction]:
        """``{"epsilon": ..., "delta": ...}``."""
        return {"epsilon": self.amount, "delta": self.delta}

    def epsilon(self, delta: Exact) -> float:
        """Its own epsilon, for a delta no smaller than its own.

        Raises:
            InvalidArgument: a smaller delta, for which the definition promises nothing.

        Privacy: (epsilon, delta) implies (epsilon, delta') for delta' >= delta and says nothing below.

        >>> ApproxDP(1, "1e-6").epsilon("1e-5")
        1.0
        """
        wanted = probability(delta, "delta")
        if wanted < self.delta:
            raise InvalidArgument(
                f"this loss has delta {float(self.delta):.3g} and promises nothing at the smaller "
                f"{float(wanted):.3g}; choose a larger delta, or a budget of another definition"
            )
        return float_up(self.amount)

    def scaled(self, factor: Exact) -> ApproxDP:
        """ApproxDP(factor * epsilon, factor * delta)."""
        share = positive(factor, "factor")
        return ApproxDP(share * self.amount, share * self.delta)


@dataclass(frozen=True, init=False, repr=False)
class ZCDP(PrivacyLoss):
    """Zero-concentrated privacy: the Renyi divergence of order a is at most a * rho, for every a > 1.

    Args:
        rho: positive.

    Raises:
        InvalidArgument: rho zero, negative, NaN or infinite.

    Privacy: the definition of Bun and Steinke (2016).

    >>> ZCDP("542/339").rho
    Fraction(542, 339)
    """

    definition: ClassVar[str] = "zcdp"
    amount: Fraction

    def __init__(self, rho: Exact) -> None:
        object.__setattr__(self, "amount", positive(rho, "rho"))

    @property
    def rho(self) -> Fraction:
        """The parameter rho."""
        return self.amount

    @property
    def parameters(self) -> dict[str, Fraction]:
        """``{"rho": ...}``."""
        return {"rho": self.amount}

    def epsilon(self, delta: Exact) -> float:
        """The least epsilon that rho-zCDP implies at ``delta`` by the best order, rounded up.

        Privacy: Canonne, Kamath and Steinke (2020), Proposition 12; see ``conversions.zcdp_epsilon``.

        >>> round(ZCDP("2.5562").epsilon("1e-10"), 3)
        17.143
        """
        from .conversions import zcdp_epsilon

        return zcdp_epsilon(self.amount, delta)

    def scaled(self, factor: Exact) -> ZCDP:
        """ZCDP(factor * rho)."""
        return ZCDP(positive(factor, "factor") * self.amount)
