"""How losses combine. Each function states its theorem, and whether its answer can be improved.

Losses are of one kind: pure, approximate, zero-concentrated or Renyi. They are stated for adding or
removing one record of the part of the data that their mechanism sees. Replacing a record takes one
away and puts one in: two parts may each change by one record, or one part by two.

Renyi loss is a curve over the orders a > 1. The curves of tabulae's mechanisms have closed forms:

    Gaussian noise paid for by rho      a rho                                        (also any rho-zCDP)
    pure epsilon, geometric noise       ln[(e^{a eps} + e^{(1-a) eps}) / (1 + e^eps)] / (a - 1)

The second is randomised response, which is the worst of all epsilon-DP mechanisms, and geometric noise
of scale 1/epsilon on a count attains it: the likelihood ratio of neighbours is e^epsilon on one side of
the count and e^-epsilon on the other. (SafeTab's Lemma 8 integrates that mass function over the reals;
its result is too small, and no bound.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import Any, ClassVar, Generic, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidArgument
from .conversions import reals, to_real, upwards
from .definitions import RECORDS, ZCDP, ApproxDP, PureDP, check_neighbours
from .exact_numbers import Exact, positive, probability

_LOG_ORDERS = np.linspace(-12.0, 60.0, 1441)  # of a - 1: from 6e-6 to 1e26
_REFINEMENTS = 120


class Curve(Protocol):
    """An upper bound on the Renyi divergence at every order above 1."""

    def floats(self, excess: NDArray[np.float64]) -> NDArray[np.float64]:
        """The bound at orders 1 + excess, in floats, for searching."""
        ...

    def real(self, order: Any) -> Any:
        """The bound at an order, to 40 digits."""
        ...


@dataclass(frozen=True)
class LinearCurve:
    """a rho: zero-concentrated privacy."""

    rho: Fraction

    def floats(self, excess: NDArray[np.float64]) -> NDArray[np.float64]:
        return (1 + excess) * float(self.rho)

    def real(self, order: Any) -> Any:
        return order * to_real(self.rho)


@dataclass(frozen=True)
class GeometricCurve:
    """Randomised response, and geometric noise of scale 1/epsilon on a count."""

    epsilon: Fraction

    def floats(self, excess: NDArray[np.float64]) -> NDArray[np.float64]:
        """The closed form, arranged so that no exponential overflows."""
        e = float(self.epsilon)
        bulk = excess * e - math.log1p(math.exp(-e)) + np.log1p(np.exp(-(2 * excess + 1) * e))
        return bulk / excess

    def real(self, order: Any) -> Any:
        """The closed form to 40 digits."""
        mp, e = reals(), to_real(self.epsilon)
        bulk = (order - 1) * e - mp.log1p(mp.exp(-e)) + mp.log1p(mp.exp(-(2 * order - 1) * e))
        return bulk / (order - 1)


@dataclass(frozen=True)
class LargestCurve:
    """The largest of several losses at each order: whichever of them a record meets."""

    options: tuple[RDP, ...]

    def floats(self, excess: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.max([option.floats(excess) for option in self.options], axis=0)

    def real(self, order: Any) -> Any:
        return max(option.real(order) for option in self.options)


@dataclass(frozen=True)
class GroupCurve:
    """A loss under a change of up to ``size`` records: 3^c times its value at 2^c times the order.

    c is the least for which 2^c reaches the size (Mironov 2017, Proposition 2). The proposition
    starts at order 2; below it the value there is a bound, since divergences grow with the order.
    """

    loss: RDP
    size: int

    def floats(self, excess: NDArray[np.float64]) -> NDArray[np.float64]:
        doublings = (self.size - 1).bit_length()
        return 3.0**doublings * self.loss.floats(2.0**doublings * (1 + np.maximum(excess, 1.0)) - 1)

    def real(self, order: Any) -> Any:
        doublings = (self.size - 1).bit_length()
        return 3**doublings * self.loss.real(2**doublings * max(order, reals().mpf(2)))


@dataclass(frozen=True)
class RDP:
    """A sum of curves: at every order a > 1, a bound on the Renyi divergence between neighbours.

    Args:
        parts: pairs of a positive multiplicity and a curve.

    Privacy: Mironov (2017), Definition 4, at all orders at once.

    Reference: https://arxiv.org/abs/1702.07476

    >>> loss = RDP.of(PureDP(1)) + RDP.of(ZCDP("1/8"))
    >>> round(loss.at(2), 4), round(loss.epsilon("1e-6"), 3)
    (0.9853, 3.386)
    """

    definition: ClassVar[str] = "rdp"
    parts: tuple[tuple[Fraction, Curve], ...]

    @classmethod
    def of(cls, loss: PureDP | ZCDP) -> RDP:
        """The tightest curve that follows from a pure or a zero-concentrated loss.

        Raises:
            InvalidArgument: an approximate loss, from which no Renyi bound follows.

        Privacy: randomised response dominates every epsilon-DP mechanism (Kairouz, Oh and Viswanath
        2015); zCDP is a linear curve by definition.
        """
        if isinstance(loss, PureDP):
            return cls(((Fraction(1), GeometricCurve(loss.amount)),))
        if isinstance(loss, ZCDP):
            return cls(((Fraction(1), LinearCurve(loss.amount)),))
        raise InvalidArgument(f"no Renyi bound follows from {loss!r}; start from PureDP or ZCDP")

    def floats(self, excess: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.sum([float(count) * curve.floats(excess) for count, curve in self.parts], axis=0)

    def real(self, order: Any) -> Any:
        return sum(to_real(count) * curve.real(order) for count, curve in self.parts)

    def at(self, order: Exact) -> float:
        """The bound at one order, rounded up.

        Raises:
            InvalidArgument: an order that is not above 1.

        Privacy: the bound itself.
        """
        value = positive(order, "order")
        if value <= 1:
            raise InvalidArgument(f"order is {order}; Renyi privacy is defined here for orders above 1")
        return upwards(self.real(to_real(value)))

    def __add__(self, other: RDP) -> RDP:
        """Sequential composition (Mironov 2017, Proposition 1): curves add."""
        return RDP(self.parts + other.parts)

    def scaled(self, factor: Exact) -> RDP:
        """The curve multiplied by a positive factor: that many independent uses of it."""
        share = positive(factor, "factor")
        return RDP(tuple((share * count, curve) for count, curve in self.parts))

    def epsilon(self, delta: Exact) -> float:
        """The least epsilon over all orders that the curve implies at delta, rounded up.

        Privacy: Canonne, Kamath and Steinke (2020), Proposition 12; every order gives a valid bound,
        so the search decides tightness only.
        """
        d = to_real(probability(delta, "delta"))
        log_delta = float(reals().ln(d))

        def bound(excess: NDArray[np.float64]) -> NDArray[np.float64]:
            order = 1 + excess
            return self.floats(excess) + np.log(excess / order) - (log_delta + np.log(order)) / excess

        order = 1 + to_real(Fraction(_least(bound)))
        mp = reals()
        exact = self.real(order) + mp.ln(1 - 1 / order) - mp.ln(order * d) / (order - 1)
        return upwards(exact) if exact > 0 else 0.0

    def delta(self, epsilon: Exact) -> float:
        """The least delta over all orders that the curve implies at epsilon, rounded up.

        Privacy: Canonne, Kamath and Steinke (2020), Proposition 12.
        """
        e = positive(epsilon, "epsilon")

        def bound(excess: NDArray[np.float64]) -> NDArray[np.float64]:
            order = 1 + excess
            return excess * (self.floats(excess) - float(e)) - np.log(excess) + order * np.log(excess / order)

        mp, order = reals(), 1 + to_real(Fraction(_least(bound)))
        log = (order - 1) * (self.real(order) - to_real(e)) - mp.ln(order - 1) + order * mp.ln(1 - 1 / order)
        return min(1.0, upwards(mp.exp(log)))


def _least(bound: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> float:
    """The excess a - 1 where the bound is least: a scan over its logarithm, then golden sections."""
    values = bound(np.exp(_LOG_ORDERS))
    best = int(np.nanargmin(values))
    low = _LOG_ORDERS[max(best - 1, 0)]
    high = _LOG_ORDERS[min(best + 1, len(_LOG_ORDERS) - 1)]
    golden = (math.sqrt(5) - 1) / 2
    for _ in range(_REFINEMENTS):
        one, two = high - golden * (high - low), low + golden * (high - low)
        first, second = bound(np.exp(np.array([one, two])))
        low, high = (low, two) if first < second else (one, high)
    return math.exp((low + high) / 2)


Loss = TypeVar("Loss", PureDP, ApproxDP, ZCDP, RDP)


@dataclass(frozen=True)
class Composed(Generic[Loss]):
    """A loss, why it holds, and whether it is the least that holds for all mechanisms of the given losses.

    ``is_exact`` is false for an upper bound that may be improved.
    """

    loss: Loss
    theorem: str
    is_exact: bool


def sequential(losses: Sequence[Loss]) -> Composed[Loss]:
    """Mechanisms on the same data, each chosen after seeing the results before: losses add.

    Args:
        losses: at least one, all of one kind.

    Raises:
        InvalidArgument: no loss, or losses of several kinds.

    Privacy: Dwork et al. (2006) for pure and approximate loss; Bun and Steinke (2016), Lemma 1.7;
    Mironov (2017), Proposition 1. The sum is the least possible except for (epsilon, delta).

    >>> sequential([ZCDP("1/3"), ZCDP("1/6")]).loss
    ZCDP(rho='1/2')
    """
    kind = _kind(losses)
    return Composed(_sum(losses), "sequential composition", is_exact=kind is not ApproxDP)


def parallel(losses: Sequence[Loss], neighbours: str = "add-remove") -> Composed[Loss]:
    """Mechanisms on disjoint parts of the data: the worst part decides.

    Args:
        losses: of each part, for adding or removing one of its records.
        neighbours: of the whole.

    Raises:
        InvalidArgument: no loss, losses of several kinds, or unknown neighbours.

    Privacy: generalised parallel composition with degree 1 (SafeTab, Lemmas 9, 10 and 12).

    >>> parallel([PureDP(1), PureDP(2)]).loss, parallel([PureDP(1), PureDP(2)], "replace").loss
    (PureDP(epsilon='2'), PureDP(epsilon='4'))
    """
    return generalised_parallel(losses, 1, neighbours)


def generalised_parallel(
    losses: Sequence[Loss], degree: int, neighbours: str = "add-remove"
) -> Composed[Loss]:
    """Mechanisms with independent noise on overlapping parts, a record lying in at most ``degree`` of them.

    Adding or removing a record changes at most ``degree`` parts by one record each: the largest
    ``degree`` losses add. Replacing one changes a part that holds both its old and its new form by two
    records, at ``group(loss, 2)``; a part that holds one of them costs at most half of that, and there
    are then twice as many: so the largest ``degree`` of the losses for two records are a bound.

    Args:
        losses: of each part, for adding or removing one of its records.
        degree: positive.
        neighbours: of the whole.

    Raises:
        InvalidArgument: no loss, losses of several kinds, a degree below 1, or neighbours that are unknown or
            differ by one record of a unit: what else its unit counts in changes with it.

    Privacy: SafeTab, Lemma 9 (pure), Lemma 10 (zero-concentrated), Lemma 12 (Renyi): z times, not z^2.

    >>> generalised_parallel([ZCDP("1/18")] * 1000, 9).loss
    ZCDP(rho='1/2')
    """
    kind = _kind(losses)
    if degree < 1:
        raise InvalidArgument(f"degree is {degree}; a record lies in at least one part")
    if check_neighbours(neighbours) in RECORDS:
        raise InvalidArgument(
            f'parallel composition has no bound under neighbours of "{neighbours}": one record may change what all '
            "records of its unit count in. Compose sequentially"
        )
    if neighbours != "add-remove":  # any replacement is a removal and an addition
        doubled = [group(loss, 2).loss for loss in losses]
        theorem = "generalised parallel composition of a removal and an addition"
        return Composed(_largest(doubled, degree), theorem, is_exact=False)
    exact = kind in (PureDP, ZCDP) or (kind is RDP and len(set(losses)) == 1)
    return Composed(_largest(losses, degree), "generalised parallel composition", is_exact=exact)


def group(loss: Loss, size: int) -> Composed[Loss]:
    """One mechanism whose data change by up to ``size`` records: stability, or group privacy.

    Pure loss costs ``size`` times, zero-concentrated loss ``size`` squared. Several separate
    measurements of which a person touches ``size`` cost less: see ``generalised_parallel``. Where the
    query is known, its largest norm is better than either.

    Args:
        loss: for one record.
        size: positive.

    Raises:
        InvalidArgument: a size below 1.

    Privacy: Dwork and Roth (2014), Theorem 2.2, and its (epsilon, delta) form; Bun and Steinke (2016),
    Proposition 1.9; Mironov (2017), Proposition 2.

    >>> group(PureDP(1), 3).loss, group(ZCDP(1), 3).loss
    (PureDP(epsilon='3'), ZCDP(rho='9'))
    """
    if size < 1:
        raise InvalidArgument(f"size is {size}; a group has at least one record")
    if size == 1:
        return Composed(loss, "the loss itself", is_exact=True)
    if isinstance(loss, (PureDP, ZCDP)):
        grown = loss.scaled(size if isinstance(loss, PureDP) else size * size)
        return Composed(cast("Loss", grown), "group privacy", is_exact=True)
    if isinstance(loss, ApproxDP):
        return Composed(cast("Loss", _approximate_group(loss, size)), "group privacy", is_exact=False)
    curve = RDP(((Fraction(1), GroupCurve(loss, size)),))
    return Composed(cast("Loss", curve), "Renyi group privacy", is_exact=False)


def _kind(losses: Sequence[object]) -> type:
    kinds = {type(loss) for loss in losses}
    if len(kinds) != 1 or not kinds <= {PureDP, ApproxDP, ZCDP, RDP}:
        shown = ", ".join(sorted(kind.__name__ for kind in kinds)) or "none"
        raise InvalidArgument(f"losses of one kind compose, these are: {shown}; convert them first (RDP.of)")
    (kind,) = kinds
    return kind


def _sum(losses: Sequence[Loss]) -> Loss:
    first = losses[0]
    if isinstance(first, RDP):
        return cast("Loss", reduce(RDP.__add__, cast("Sequence[RDP]", losses)))
    totals = [sum(values, Fraction(0)) for values in zip(*(_amounts(loss) for loss in losses), strict=True)]
    return cast("Loss", type(first)(*totals))


def _largest(losses: Sequence[Loss], count: int) -> Loss:
    """The sum of the ``count`` largest; for curves and pairs an upper bound on it."""
    first, used = losses[0], min(count, len(losses))
    if isinstance(first, RDP):
        options = tuple(dict.fromkeys(cast("Sequence[RDP]", losses)))
        worst = options[0] if len(options) == 1 else RDP(((Fraction(1), LargestCurve(options)),))
        return cast("Loss", worst.scaled(used))
    columns = zip(*(_amounts(loss) for loss in losses), strict=True)
    totals = [sum(sorted(column, reverse=True)[:used], Fraction(0)) for column in columns]
    return cast("Loss", type(first)(*totals))


def _amounts(loss: PureDP | ApproxDP | ZCDP | RDP) -> tuple[Fraction, ...]:
    return () if isinstance(loss, RDP) else tuple(loss.parameters.values())


def _approximate_group(loss: ApproxDP, size: int) -> ApproxDP:
    """(size epsilon, delta (1 + e^eps + ... + e^{(size-1) eps})), the factor rounded up."""
    factor = sum(reals().exp(to_real(loss.amount * i)) for i in range(size))
    return ApproxDP(loss.amount * size, loss.delta * Fraction(upwards(factor)))
