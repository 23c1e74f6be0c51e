"""From targets to a budget: the least that a strategy needs so that every table is as right as it must be."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Literal

from ..errors import InvalidArgument
from ..privacy import ZCDP, ApproxDP, PrivacyLoss, PureDP
from ..privacy.conversions import round_digits
from ..strategy import LeftOpen, Strategy, Targets, error_under, information, law_variances
from ..tables import Workload
from .table_widths import table_half_widths

_DIGITS = 4
_STEPS = 14  # halvings of the ratio between a budget that is enough and one that is not: to 1e-4 and below

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
    at the budget returned. Choose the strategy with ``select(..., objective=targets)``.

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

    def met(amount: Fraction) -> bool:
        return _met(strategy, aimed, targets, loss(amount), neighbours, stability)

    high = Fraction(1)
    while not met(high):
        high *= 4
    low = high
    while met(low):
        low, high = low / 4, low
    for _ in range(_STEPS):
        middle = round_digits(Fraction(math.sqrt(float(low * high))), 17)
        low, high = (low, middle) if met(middle) else (middle, high)
    return loss(round_digits(high, _DIGITS, up=True))


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


def _met(
    strategy: Strategy,
    workload: Workload,
    targets: Targets,
    loss: PrivacyLoss,
    neighbours: str,
    stability: int,
) -> bool:
    laws = strategy.laws(loss, neighbours, stability)
    variances = law_variances(strategy, laws)
    rmse = error_under(strategy, workload, variances).tables
    if any(error > float(targets.rmse[name]) for name, error in rmse.items() if name in targets.rmse):
        return False
    info = information(strategy, variances)
    for table in workload.tables:
        if table.name in targets.margin:
            widths = table_half_widths(strategy, info, laws, table, targets.level(table.name)).values
            if not within(widths.max(), float(targets.margin[table.name])):
                return False
    return True
