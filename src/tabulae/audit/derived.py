"""Checks by derivation: sensitivities and parameters found a second way, from columns written out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from ..measurement import Measurement
from ..products.tables.plan import Plan
from .check import Check, guarded
from .columns import norm_of
from .largest import Largest
from .promise import law_of, spent, total_of, units_drawn, wasteful

_SENSITIVITY = "the largest change found by writing columns out: over the declared sensitivity"
_LAW = "cost of the largest change under the laws drawn: over the budget"
_ROUNDS = "what the rounds may cost together: over the spec's budget"


def derived_checks(plan: Plan, done: Sequence[Measurement], worst: Largest) -> Iterator[Check]:
    """Sensitivity, law and total budget of what was measured.

    Arguments:
        plan: what is audited.
        done: the measurements that a run of it made, by strategy of the plan.
        worst: the largest change of that strategy, for one record.
    """
    yield guarded("sensitivity", _SENSITIVITY, lambda: _sensitivity(plan, worst))
    yield guarded("law", _LAW, lambda: _law(plan, done, worst))
    yield guarded("budget", _ROUNDS, lambda: _budget(plan, done))


def of_unit(plan: Plan, worst: Largest) -> Fraction:
    """The power of the change by a unit with as many such records as may be counted."""
    return Fraction(plan.spec.rows_per_unit) ** norm_of(plan.strategy) * worst.power


def _sensitivity(plan: Plan, worst: Largest) -> Check:
    declared = plan.strategy.sensitivity(plan.spec.neighbours, plan.spec.rows_per_unit)
    found = of_unit(plan, worst)
    exact = worst.exhaustive and declared.is_exact
    passed = found == declared.power if exact else found <= declared.power
    share = float(found / declared.power)
    return Check("sensitivity", _SENSITIVITY, share, 1.0, passed, _looked_at(worst, exact=exact))


def _looked_at(worst: Largest, *, exact: bool) -> str:
    kind = "columns" if len(worst.cells) == 1 else "pairs of columns"
    words = f"{worst.seen:,} {kind}" + (", which stand for all" if worst.exhaustive else " of a search")
    return words + ("; equal, exactly" if exact else "; an upper bound is declared")


def _law(plan: Plan, done: Sequence[Measurement], worst: Largest) -> Check:
    spec = plan.spec
    power, shares, wrong = of_unit(plan, worst), [Fraction(0)], []
    exact = worst.exhaustive and plan.strategy.sensitivity(spec.neighbours, spec.rows_per_unit).is_exact
    for m in done:
        if any(type(law) is not law_of(m.budget, m.strategy.noise) for law in m.laws):
            wrong.append("another law than the budget's definition calls for")
        units = units_drawn(m)
        if len(set(units)) > 1:
            wrong.append("blocks whose parameters are not in the proportion of their scales")
        cost, allowed = spent(m.budget, m.strategy.noise, power, min(units))
        shares.append(cost / allowed)
        if exact and wasteful(m.budget, m.strategy.noise, power, max(units)):
            wrong.append("more noise than the budget asks for")
    share = max(shares)
    detail = "; ".join(wrong) or f"{sum(len(m.laws) for m in done)} parameters, as fractions"
    return Check("law", _LAW, float(share), 1.0, share <= 1 and not wrong, detail)


def _budget(plan: Plan, done: Sequence[Measurement]) -> Check:
    share = total_of([m.budget for m in done]) / plan.spec.loss.amount
    deltas = [m.budget.parameters.get("delta", Fraction(0)) for m in done]
    passed = share <= 1 and sum(deltas) <= plan.spec.loss.parameters.get("delta", Fraction(0))
    passed = passed and all(m.budget.definition == plan.spec.loss.definition for m in done)
    return Check("budget", _ROUNDS, float(share), 1.0, passed, f"rounds: {len(done)}")
