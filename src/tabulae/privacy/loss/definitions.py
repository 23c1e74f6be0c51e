"""How much may be learnt: the privacy losses, as exact fractions.

A loss is a frozen value. Budgets are compared, split and added as fractions, so that a tenth taken
ten times is exactly one; floats appear only in statements made to people (``loss.epsilon(delta)``),
where they are rounded to the safe side.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Literal, Self, cast, get_args

from ...errors import InvalidArgument
from .conversions import zcdp_epsilon
from .exact_numbers import Exact, float_up, positive, probability

Neighbours = Literal["add-remove", "replace", "replace-within-invariants", "record-free", "record-derived"]
"""What two data sets that must look alike differ by; see ``check_neighbours``."""

WITHIN: Neighbours = "replace-within-invariants"
"""Neighbours that agree on every count that is disclosed exactly."""

RECORD_DERIVED: Neighbours = "record-derived"
RECORDS: tuple[Neighbours, ...] = ("record-free", RECORD_DERIVED)
"""Neighbours that differ by one record of a unit."""


def check_neighbours(name: str) -> Neighbours:
    """Accept the neighbour relations of tabulae.

    ``add-remove``: one record more or less. ``replace``: one record exchanged for any other.
    ``replace-within-invariants``: one record exchanged for another such that every count disclosed exactly stays as
    it is; fewer pairs than ``replace`` has, so it promises less. Where units are counted with their records, as
    households with their persons, the first three are about a whole unit, and two are about one of its records, and
    promise less: ``record-free``, one record more or less, and whatever its unit says may change with it;
    ``record-derived``, where of that only what is made of the unit's records may change.

    Raises:
        InvalidArgument: any other name.

    Privacy: the relation decides the sensitivity of every query, so an unknown one is never guessed.

    Reference: the third is the relation of the 2020 Census TopDown algorithm.

    >>> check_neighbours("replace")
    'replace'
    """
    if name not in get_args(Neighbours):
        told = ", ".join(f'"{each}"' for each in get_args(Neighbours))
        raise InvalidArgument(f"neighbours is {name!r}; it must be one of {told}")
    return cast("Neighbours", name)


def change_words(neighbours: str, unit: str) -> str:
    """What two data sets that must look alike differ by, in a line.

    Privacy: none is spent.

    >>> change_words("replace", "person"), change_words("record-derived", "household")
    ('replace one person', 'record-derived: one record of a household')
    """
    return f"{neighbours}: one record of a {unit}" if neighbours in RECORDS else f"{neighbours} one {unit}"


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

    def scaled(self, factor: Exact) -> Self:
        """The loss with each of its parameters multiplied by an exact positive factor."""
        share = positive(factor, "factor")
        return type(self)(**{name: share * value for name, value in self.parameters.items()})

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
        return zcdp_epsilon(self.amount, delta)
