"""From targets to a budget: the least that a strategy needs so that every table is as right as it must be."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from scipy.special import ndtri

from ..domain import Workload
from ..errors import InvalidArgument
from ..privacy import (
    ZCDP,
    ApproxDP,
    NoiseLaw,
    PrivacyLoss,
    PureDP,
)
from ..strategy import LeftOpen, Strategy, Targets, error_under, law_variances
from ..strategy.information.routes import information
from .least_met import least_met
from .table_widths import table_half_widths

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
        neighbours, stability: as for :func:`tabulae.measure`.

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

    need = _Need(strategy, aimed, targets, loss, neighbours, stability)
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
    neighbours: str
    stability: int

    def laws(self, amount: Fraction) -> tuple[NoiseLaw, ...]:
        return self.strategy.laws(self.loss(amount), self.neighbours, self.stability)

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
