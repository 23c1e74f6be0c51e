"""From targets to a budget: the least that a strategy needs so that every table is as right as it must be."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal

from scipy.special import ndtri

from ..domain import Workload
from ..errors import InvalidArgument
from ..privacy import ZCDP, ApproxDP, NoiseLaw, PrivacyLoss, PureDP, round_digits
from ..strategy import LeftOpen, Strategy, Targets, error_under, law_variances
from ..strategy.information.routes import information
from .least_squares import table_half_widths

_DIGITS = 4
_PARTS = 48  # steps of the grid from a power of ten to the next: 4.9 % each
_GALLOP = 29  # steps: about a factor of 4


def least_met(
    possible: Callable[[Fraction], bool],
    met: Callable[[Fraction], bool],
    *,
    fewest: int = -12,
    most: int = 8,
) -> Fraction | None:
    """The least budget of 4 digits that meets targets, as a grid of budgets tells; None where none of them does.

    Noise of whole numbers does not grow smaller evenly: once it is about one count, half-widths may rise where the
    budget does. So nothing follows from one budget for another, and budgets are tried in order: the grid is
    ``10^(k / 48)``, rounded up at 4 digits, the same for all targets. The interval between the first of its budgets
    that meets them and the one before is halved, down to two neighbours of 4 digits: the larger meets the targets,
    the smaller does not. A larger budget may miss them again.

    Arguments:
        possible: of an amount: False where it cannot be enough, and then for every smaller one. For speed.

    >>> least_met(lambda amount: True, lambda amount: 2 <= amount < 3 or amount >= 5)
    Fraction(2, 1)
    >>> least_met(lambda amount: True, lambda amount: False) is None
    True
    """
    first, last = fewest * _PARTS, most * _PARTS
    start = _first_possible(possible, first, last)
    for k in range(start, last + 1):
        if met(grid_budget(k)):
            return grid_budget(k) if k == first else _between(grid_budget(k - 1), grid_budget(k), met)
    return None


@lru_cache(maxsize=1024)
def grid_budget(k: int) -> Fraction:
    """``10^(k / 48)``, rounded up at 4 digits.

    >>> [float(grid_budget(k)) for k in (-48, 0, 1, 2, 48)]
    [0.1, 1.0, 1.05, 1.101, 10.0]
    """
    power, part = divmod(k, _PARTS)
    return Fraction(10) ** power * round_digits(Fraction(10.0 ** (part / _PARTS)), _DIGITS, up=True)


def next_up(amount: Fraction) -> Fraction:
    """The least number of 4 digits that is not below an amount."""
    return round_digits(amount, _DIGITS, up=True)


def _first_possible(possible: Callable[[Fraction], bool], first: int, last: int) -> int:
    """The first k whose budget is possible, ``last + 1`` where none is: from 1 by large steps, and then by halving."""
    low = high = 0
    if possible(grid_budget(0)):
        while low >= first and possible(grid_budget(low)):
            low, high = low - _GALLOP, low
    else:
        while high <= last and not possible(grid_budget(high)):
            low, high = high, high + _GALLOP
    low, high = max(low, first - 1), min(high, last + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if possible(grid_budget(middle)) else (middle, high)
    return high


def _between(low: Fraction, high: Fraction, met: Callable[[Fraction], bool]) -> Fraction:
    """By halving the ratio of a budget that is not enough and one that is."""
    while (below := _next_down(high)) > low:
        middle = min(next_up(Fraction(float(low * high) ** 0.5)), below)
        low, high = (low, middle) if met(middle) else (middle, high)
    return high


def _next_down(amount: Fraction) -> Fraction:
    """The next number of 4 digits below one of 4 digits."""
    return round_digits(amount * (1 - Fraction(1, 10**6)), _DIGITS)


_FEWEST = -30  # power of ten: a smaller budget is not looked for
_FAR = 2.0  # a margin is not looked at where the normal half-width is more than so many margins, and a count

Definition = Literal["zcdp", "pure", "approx"]


def smallest_budget(
    strategy: Strategy,
    workload: Workload,
    targets: Targets,
    *,
    definition: Definition = "zcdp",
    delta: Fraction | str | float | None = None,
    neighbours: str = "add-remove",
    stability: int = 1,
    fewest: int = 1,
) -> PrivacyLoss:
    """The least budget, rounded up at 4 digits, at which a strategy meets every target.

    An RMSE is met if ``sqrt(mean_q Var(q))`` over the table's queries, under the law drawn, is at most the target; a
    margin if no half-width of the table's intervals at the targets' confidence exceeds it. Both are checked
    at the budget returned. RMSEs fall where the budget grows; half-widths need not, where noise is about one count. So
    the least is meant as follows: no budget ``10^(k / 48)``, in steps of 4.9 %, below it meets the targets, down to one
    whose normal half-width is more than twice a margin and a count; and a larger budget may miss again.
    Choose the strategy with ``select(..., objective=targets)``.

    Arguments:
        strategy: what will be measured.
        workload: the tables, over the strategy's domain.
        targets: what each table may be wrong by, in counts.
        definition: "zcdp" and "approx" (Gaussian noise), "pure" or "approx" (Laplace noise).
        delta: for "approx" only.
        neighbours, stability, fewest: as for :func:`tabulae.measure`.

    Raises:
        InvalidArgument: a definition that does not fit the noise, a target for a table that is not there, or none for a
            table that the invariants leave open: then no budget is the least.
            Or no budget up to 10^8 is enough.
        NotEstimable: the strategy does not determine a table with a target.

    Privacy:
        Reads no record: a function of public things. What is spent is what the caller then charges.

    >>> import tabulae as tb
    >>> workload, targets = tb.Workload.of(tb.Prefix(8)), tb.Targets(rmse={"x": 2})
    >>> strategy = tb.select(workload, objective=targets)
    >>> budget = smallest_budget(strategy, workload, targets)
    >>> bool(strategy.error(workload, budget).rmse <= 2), budget.amount < 1
    (True, True)
    """
    targets.check(workload)
    loss = _losses(strategy, definition, delta)
    tables = [
        t
        for t in workload.tables
        if targets.squared(t.name) is not None and not LeftOpen.of(strategy, t).exact.all()
    ]
    if not tables:
        raise InvalidArgument("every table that has a target is exact by the invariants: any budget will do")
    aimed = Workload(workload.domain, tables)

    need = _Need(strategy, aimed, targets, loss, (neighbours, stability, fewest))
    amount = least_met(need.possible, need.met, fewest=_FEWEST)
    if amount is None:
        raise InvalidArgument("no budget up to 10^8 meets these targets: allow more")
    return loss(amount)


def within(width: float, margin: float) -> bool:
    """Whether a half-width keeps to a margin: half-widths are widened by 1e-9 against rounding, margins are not.

    >>> within(3.000000003, 3), within(3.01, 3)
    (True, False)
    """
    return width <= margin * (1 + 2e-9)


def _losses(strategy: Strategy, definition: str, delta: object) -> Callable[[Fraction], PrivacyLoss]:
    """The budget of a given amount, for a definition that the strategy's noise can keep."""
    fitting = ("zcdp", "approx") if strategy.noise == "gaussian" else ("pure", "approx")
    if definition not in fitting:
        raise InvalidArgument(
            f"definition must be {' or '.join(map(repr, fitting))} for {strategy.noise} noise, not {definition!r}"
        )
    if (delta is None) == (definition == "approx"):
        raise InvalidArgument("delta belongs to definition 'approx', and to no other")
    if definition == "approx":
        return lambda amount: ApproxDP(amount, delta)  # type: ignore[arg-type]
    return ZCDP if definition == "zcdp" else PureDP


@dataclass(frozen=True, eq=False)
class _Need:
    """Whether budgets are enough for a strategy's targets."""

    strategy: Strategy
    workload: Workload
    targets: Targets
    loss: Callable[[Fraction], PrivacyLoss]
    change: tuple[str, int, int]

    def laws(self, amount: Fraction) -> tuple[NoiseLaw, ...]:
        return self.strategy.laws(self.loss(amount), *self.change)

    def possible(self, amount: Fraction) -> bool:
        """Whether RMSEs are met, and no standard error is too large for its margin to be looked at.

        Variances fall where the budget grows, so that what is not possible is so for no smaller budget.
        """
        variances = law_variances(self.strategy, self.laws(amount))
        rmse = error_under(self.strategy, self.workload, variances).tables
        if any(error > float(self.targets.rmse[t]) for t, error in rmse.items() if t in self.targets.rmse):
            return False
        for table in self.workload.tables:
            if table.name in self.targets.margin:
                alone = Workload(self.workload.domain, [table])
                largest = math.sqrt(error_under(self.strategy, alone, variances).max_variance)
                quantile = float(ndtri((1 + self.targets.level(table.name)) / 2))
                if quantile * largest > _FAR * float(self.targets.margin[table.name]) + 1:
                    return False
        return True

    def met(self, amount: Fraction) -> bool:
        """Whether every margin is met, of a budget that meets the RMSEs."""
        laws = self.laws(amount)
        info = information(self.strategy, law_variances(self.strategy, laws))
        for table in self.workload.tables:
            name = table.name
            if name in self.targets.margin:
                level = self.targets.level(name)
                widths = table_half_widths(self.strategy, info, laws, table, level).values
                if not within(widths.max(), float(self.targets.margin[name])):
                    return False
        return self.possible(amount)
