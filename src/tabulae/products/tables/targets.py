"""A strategy for tables with targets at a budget that is given: the targets are met, and the rest errs least."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from math import inf, isinf, sqrt

from ...domain import Table, Workload
from ...errors import Unsupported
from ...strategy import Strategy, Targets
from ...strategy.deadline import now

Choose = Callable[[Workload, Targets | None], Strategy]
"""The strategy of least error for a workload; or the one that serves targets at the smallest budget."""

_ROUNDS = 16
_CLOSE = 0.99  # of what is allowed: a target that is met so nearly could not give much to the others
_GROWTH = 3.0  # of a multiplier, at least, until one is known that is enough


def strategy_within(
    workload: Workload,
    targets: Targets,
    choose: Choose,
    ratios: Callable[[Strategy], Mapping[str, float]],
    cost: Callable[[Strategy], float],
    time_limit: float | None,
) -> Strategy:
    """The strategy of least error among those that meet all targets, as far as weights of tables find it.

    With E_t a table's squared error and c_t what its target allows, the least of ``sum_t E_t`` subject to
    ``E_t <= c_t`` is, at the right multipliers ``m_t >= 1``, the least of ``sum_t m_t E_t``: 1 where the target
    does not bind. So each table that misses its target gains weight, and one that has more than it needs loses it.

    Args:
        workload: the tables.
        targets: of some of them.
        choose: makes a strategy for a workload.
        ratios: of squared errors to what is allowed, under the noise that is drawn, for each table with a target.
        cost: the error to be least.
        time_limit: seconds of a core after which no other weights are tried; None is no limit.

    Returns:
        The strategy without targets where that meets them; where none does, the one that comes nearest: its largest
        ratio is the least. Else it has no certificate, which would be about other weights or about the smallest budget.
    """
    ends = None if time_limit is None else now() + time_limit
    strategy = choose(workload, None)
    found = ratios(strategy)
    if max(found.values()) <= 1:
        return strategy
    nearest = choose(workload, targets)
    if max(ratios(nearest).values()) > 1:
        return nearest
    best, least = nearest, cost(nearest)
    multipliers = {t: _Multiplier() for t in found}
    for _ in range(_ROUNDS):
        if ends is not None and now() >= ends:
            break
        for t, multiplier in multipliers.items():
            multiplier.move(found[t])
        try:
            strategy = choose(_weighted(workload, {t: m.value for t, m in multipliers.items()}), None)
        except Unsupported:  # weights that no method can serve; those before were served
            break
        found = ratios(strategy)
        if max(found.values()) <= 1:
            if (error := cost(strategy)) < least:
                best, least = strategy, error
            if all(found[t] >= _CLOSE or m.value == 1 for t, m in multipliers.items()):
                break
    return replace(best, certificate=None, lower=None)


@dataclass
class _Multiplier:
    """The weight of a table's squared error, between one too little for its target and one that was enough."""

    value: float = 1.0
    little: float = 1.0
    enough: float = inf

    def move(self, ratio: float) -> None:
        """Go on from the ratio that the last value gave."""
        if ratio > 1:
            self.little = self.value
            if self.enough <= self.value:  # other tables gained weight since
                self.enough = inf
        else:
            self.enough = self.value
            if self.little >= self.value:  # other tables lost weight since
                self.little = 1.0
        growing = self.value * max(ratio**2, _GROWTH)
        self.value = growing if isinf(self.enough) else sqrt(self.little * self.enough)


def _weighted(workload: Workload, multipliers: Mapping[str, float]) -> Workload:
    """The workload with squared weights times multipliers."""
    tables = [
        Table.of_terms(t.name, t.terms, t.weight * Fraction(sqrt(multipliers[t.name])), t.labels)
        if t.name in multipliers
        else t
        for t in workload.tables
    ]
    return Workload(workload.domain, tables)
