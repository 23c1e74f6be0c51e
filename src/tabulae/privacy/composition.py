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

from ..errors import InvalidArgument
from .conversions import (
    reals,
    to_real,
    upwards,
)
from .definitions import (
    ZCDP,
    ApproxDP,
    PureDP,
    check_neighbours,
)
from .rdp import (
    RDP,
    GroupCurve,
    LargestCurve,
)

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
        InvalidArgument: no loss, losses of several kinds, a degree below 1, or unknown neighbours.

    Privacy: SafeTab, Lemma 9 (pure), Lemma 10 (zero-concentrated), Lemma 12 (Renyi): z times, not z^2.

    >>> generalised_parallel([ZCDP("1/18")] * 1000, 9).loss
    ZCDP(rho='1/2')
    """
    kind = _kind(losses)
    if degree < 1:
        raise InvalidArgument(f"degree is {degree}; a record lies in at least one part")
    if check_neighbours(neighbours) != "add-remove":  # any replacement is a removal and an addition
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
