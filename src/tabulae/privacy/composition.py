"""How losses combine. Each function states its theorem, and whether its answer can be improved.

Losses are of one kind: pure, approximate, zero-concentrated or Renyi. They are stated for adding or
removing one record of the part of the data that their mechanism sees. Replacing a record takes one
away and puts one in: two parts may each change by one record, or one part by two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import Generic, TypeVar, cast

from tabulae.errors import InvalidArgument
from tabulae.privacy.definitions import ZCDP, ApproxDP, PureDP, check_neighbours
from tabulae.privacy.rdp import RDP, GroupCurve, LargestCurve

Loss = TypeVar("Loss", PureDP, ApproxDP, ZCDP, RDP)


@dataclass(frozen=True)
class Composed(Generic[Loss]):
    """A loss, whether it is the least that holds for all mechanisms of the given losses, and why it holds.

    ``is_exact`` is false for an upper bound that may be improved.
    """

    loss: Loss
    is_exact: bool
    theorem: str


def sequential(losses: Sequence[Loss]) -> Composed[Loss]:
    """Mechanisms on the same data, each chosen after seeing the results before: losses add.

    Args:
        losses: at least one, all of one kind.

    Raises:
        InvalidArgument: no loss, or losses of several kinds.

    Privacy: Dwork et al. (2006) for pure and approximate loss; Bun and Steinke (2016), Lemma 1.7;
    Mironov (2017), Proposition 1. Least possible for pure, concentrated and Renyi loss.

    >>> sequential([ZCDP("1/3"), ZCDP("1/6")]).loss
    ZCDP(rho='1/2')
    """
    kind = _kind(losses)
    return Composed(reduce(_add, losses), kind is not ApproxDP, "sequential composition")


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
    """Mechanisms with independent noise on overlapping parts; a record lies in at most ``degree`` of them.

    Adding or removing a record changes at most ``degree`` parts by one record each: the sum of the
    largest ``degree`` losses. Replacing one changes every part by at most two records and so costs, part for
    part, at most ``group(loss, 2)``; a part changed by one costs no more than half of that.

    Args:
        losses: of each part, for adding or removing one of its records.
        degree: positive.
        neighbours: of the whole.

    Raises:
        InvalidArgument: no loss, losses of several kinds, a degree below 1, or unknown neighbours.

    Privacy: SafeTab, Lemma 9 (pure), Lemma 10 (zero-concentrated), Lemma 12 (Renyi): z times, not z^2.

    >>> generalised_parallel([ZCDP("1/18")] * 1000, 9).loss
    ZCDP(rho='1/2')
    """
    kind = _kind(losses)
    if degree < 1:
        raise InvalidArgument(f"degree is {degree}; a record lies in at least one part")
    if check_neighbours(neighbours) == "replace":
        doubled = [group(loss, 2).loss for loss in losses]
        whole = generalised_parallel(doubled, degree)
        return Composed(whole.loss, False, "generalised parallel composition over a removal and an addition")
    exact = kind is not ApproxDP and (kind is not RDP or len(set(losses)) == 1)
    return Composed(_largest(losses, degree), exact, "generalised parallel composition")


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
        return Composed(loss, True, "the loss itself")
    if isinstance(loss, PureDP):
        return cast("Composed[Loss]", Composed(loss.scaled(size), True, "group privacy"))
    if isinstance(loss, ZCDP):
        return cast("Composed[Loss]", Composed(loss.scaled(size * size), True, "group privacy"))
    if isinstance(loss, ApproxDP):
        return cast("Composed[Loss]", Composed(_approximate_group(loss, size), False, "group privacy"))
    grown = RDP(((Fraction(1), GroupCurve(loss, size)),))
    return cast("Composed[Loss]", Composed(grown, False, "Renyi group privacy"))


def _kind(losses: Sequence[Loss]) -> type:
    kinds = {type(loss) for loss in losses}
    if len(kinds) != 1:
        shown = ", ".join(sorted(kind.__name__ for kind in kinds)) or "none"
        raise InvalidArgument(f"losses of one kind compose, these are: {shown}; convert them first (RDP.of)")
    (kind,) = kinds
    return kind


def _add(one: Loss, other: Loss) -> Loss:
    if isinstance(one, RDP) and isinstance(other, RDP):
        return one + other
    if isinstance(one, ApproxDP) and isinstance(other, ApproxDP):
        return ApproxDP(one.amount + other.amount, one.delta + other.delta)
    kind = type(one)
    return kind(one.amount + other.amount)


def _largest(losses: Sequence[Loss], count: int) -> Loss:
    """The sum of the ``count`` largest; for curves and pairs an upper bound on it."""
    if isinstance(losses[0], RDP):
        options = tuple(dict.fromkeys(cast("Sequence[RDP]", losses)))
        used = min(count, len(losses))
        worst = options[0] if len(options) == 1 else RDP(((Fraction(1), LargestCurve(options)),))
        return cast("Loss", worst.scaled(used))
    chosen = sorted((loss.amount for loss in losses), reverse=True)[:count]
    if isinstance(losses[0], ApproxDP):
        deltas = sorted((loss.delta for loss in cast("Sequence[ApproxDP]", losses)), reverse=True)[:count]
        return cast("Loss", ApproxDP(sum(chosen, Fraction(0)), sum(deltas, Fraction(0))))
    return type(losses[0])(sum(chosen, Fraction(0)))


def _approximate_group(loss: ApproxDP, size: int) -> ApproxDP:
    """(size epsilon, delta (1 + e^eps + ... + e^{(size-1) eps})), the factor rounded up."""
    from tabulae.privacy.conversions import reals, to_real, upwards

    factor = sum(reals().exp(to_real(loss.amount * i)) for i in range(size))
    return ApproxDP(loss.amount * size, loss.delta * Fraction(upwards(factor)))
