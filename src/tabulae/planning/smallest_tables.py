"""The smallest budget of a plan of tables: what the chosen strategy needs, and what no strategy does without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import sqrt

from ..domain import Table, Workload
from ..estimation import smallest_budget
from ..privacy import PrivacyLoss, calibrate
from ..privacy.conversions import round_digits
from ..spec import Spec
from ..strategy import Strategy, Targets
from ..strategy.objective import Minimax
from .smallest import (
    Smallest,
    TargetRow,
    with_amount,
)
from .table_errors import (
    TableError,
    discreteness,
    error_bound,
)

_DIGITS = 4
_STEPS = 50  # halvings of the ratio between two budgets


def budget_for(spec: Spec, strategy: Strategy, targets: Targets) -> PrivacyLoss:
    """The least budget of 4 digits at which a strategy meets targets: see :func:`~tabulae.smallest_budget`."""
    return smallest_budget(
        strategy,
        spec.workload,
        targets,
        definition=spec.loss.definition,  # type: ignore[arg-type]
        delta=spec.loss.parameters.get("delta"),
        neighbours=spec.neighbours,
        stability=spec.rows_per_unit,
    )


def smallest_of_tables(
    spec: Spec, strategy: Strategy, targets: Targets, rows: Sequence[TableError]
) -> Smallest:
    """What the targets of a plan of tables need.

    Arguments:
        spec: with the budget of the plan.
        strategy: chosen for the targets.
        targets: of the tables that are not exact.
        rows: the tables' errors at the plan's budget.
    """
    need = spec.loss if spec.open_budget else budget_for(spec, strategy, targets)
    judged = tuple(_judged(row) for row in rows if row.target is not None)
    lower = least_of_any(spec, strategy, targets, rows)
    note = "" if lower is not None else "No bound is known on what other strategies need: margins give none."
    return Smallest(need, None if spec.open_budget else spec.loss, judged, lower, note=note)


def _judged(row: TableError) -> TargetRow:
    kind, reached = ("rmse", row.rmse) if row.confidence is None else ("margin", row.reached)
    assert row.target is not None
    assert reached is not None
    return TargetRow(row.table, None, kind, row.target, row.confidence, reached, row.met)


def least_of_any(
    spec: Spec, strategy: Strategy, targets: Targets, rows: Sequence[TableError]
) -> PrivacyLoss | None:
    """A budget, rounded down at 4 digits, that no strategy meets the targets with less than; None where none is known.

    Let r be a squared error beside what is allowed, at noise of unit scale, that the largest of no strategy is below. A
    budget with noise of scale s is not enough while ``s r > 1``. The largest r known is taken, of

    * the strategy's own beside its certificate g, ``r / (1 + g)``, where all tables have targets of RMSE;
    * each table's bound alone, for the largest variance is not below the mean;
    * the bound of all tables together, each weighted by what it is allowed.

    The noise of whole numbers may lie a little below its nominal scale, which is allowed for. Only targets of RMSE
    count: half-widths of whole numbers may be much below those of the normal law, and no bound follows from margins.

    Arguments:
        spec, strategy, targets, rows: as of :func:`smallest_of_tables`.
    """
    aimed = {t: float(targets.rmse[t.name]) ** 2 for t in spec.workload.tables if t.name in targets.rmse}
    bounds = {row.table: row.bound for row in rows}
    known = [(bounds[t.name] or 0.0) ** 2 / allowed for t, allowed in aimed.items()]
    if len(aimed) > 1:
        known.append(_together(spec, aimed))
    found = max(known, default=0.0) / (_scale(spec, strategy) * discreteness(spec) ** 2)
    found = max(found, _certified(spec, strategy, targets))
    if not found:
        return None

    def missed(amount: Fraction) -> bool:
        other = replace(spec, loss=with_amount(spec.loss, amount))
        return _scale(other, strategy) * discreteness(other) ** 2 * found > 1

    low = high = Fraction(1)
    while missed(high):
        high *= 4
    while not missed(low):
        low /= 4
    for _ in range(_STEPS):
        middle = round_digits(Fraction(sqrt(float(low * high))), 17)
        low, high = (middle, high) if missed(middle) else (low, middle)
    return with_amount(spec.loss, round_digits(low, _DIGITS))


def _scale(spec: Spec, strategy: Strategy) -> float:
    """The noise that a budget asks of answers that one record moves by 1: a variance, or a squared scale."""
    scale = float(calibrate(spec.loss, strategy.noise, Fraction(1)))
    return scale if strategy.noise == "gaussian" else scale**2


def _together(spec: Spec, aimed: Mapping[Table, float]) -> float:
    """A mean, over tables, of squared errors beside what is allowed that no strategy is below."""
    weights = {t: sqrt(1 / (len(aimed) * allowed * t.rows(spec.domain))) for t, allowed in aimed.items()}
    largest = max(weights.values())
    tables = [Table.of_terms(t.name, t.terms, Fraction(w / largest)) for t, w in weights.items()]
    workload = Workload(spec.domain, tables)
    return (error_bound(spec, workload) or 0.0) ** 2 * workload.queries * largest**2


def _certified(spec: Spec, strategy: Strategy, targets: Targets) -> float:
    """What follows from the strategy's certificate; 0 without one that is about RMSEs of all tables."""
    whole = all(table.name in targets.rmse for table in spec.workload.tables)
    if strategy.certificate is None or not whole or spec.invariants:
        return 0.0
    neighbours = spec.neighbours if spec.rows_per_unit == 1 else "add-remove"
    ratio = Minimax(spec.workload, targets).judge(strategy, neighbours).value / (1 + strategy.certificate)
    return ratio * spec.rows_per_unit**2
