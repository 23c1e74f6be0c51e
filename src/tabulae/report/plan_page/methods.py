"""Methods side by side: what was tried, what else could be done, and what is proven of the one chosen."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

from ...errors import LedgerError
from ...privacy import Ledger
from ...products.tables.plan import Plan
from ...spec import Spec
from ..page import FALSE_ALARMS, detection_bound, errors_figure
from ..strategy import StrategyPart, block_shares, parts_of
from ..view import MORE_DELTAS, promise_of
from .view import MethodRow, Methods, Reach, ShareTable, Stop

_PARTS_COMPARED, _PARTS_SHOWN = 400, 40
_TABLES_DRAWN = 60
_AIMS = {
    "total": "weighted RMSE over all tables",
    "relative": "RMSE over queries scaled to norm 1",
    "max": "largest standard error",
    "targets": "largest error beside a target",
}


def methods_of(plan: Plan) -> Methods:
    """Every method that was tried, scaled to the plan's budget, with counting every cell and asking the tables."""
    aim = plan.aim
    rows = tuple(sorted(_rows(plan, aim), key=lambda row: (row.rmse is None, row.rmse or 0.0, row.name)))
    shown = plan.table_errors[:_TABLES_DRAWN]
    label = "Expected error of each table under this plan and the alternatives, at the budget of the spec."
    figure = errors_figure([row.table for row in shown], shown, "this plan", label)
    return Methods(rows, plan.bound, _proven(plan, aim), figure, _AIMS[aim])


def _rows(plan: Plan, aim: str) -> Iterator[MethodRow]:
    """The candidates of the search: their measure is its aim, the chosen one's put at the plan's RMSE."""
    strategy = plan.strategy
    tried = {candidate.method: candidate for candidate in strategy.candidates}
    known = [c.rmse for c in tried.values() if c.rmse is not None]
    least = min(known, default=None)
    scale = plan.rmse / least if least else 1.0
    yield MethodRow(strategy.method, plan.rmse, "", chosen=True)
    for candidate in tried.values():
        if candidate.rmse is None:
            yield MethodRow(candidate.method, None, candidate.note)
        elif candidate.method.removesuffix(", projected") != strategy.method:
            yield MethodRow(candidate.method, scale * candidate.rmse, candidate.note)
    if aim == "total":
        for name, which in (("identity", "identity"), ("workload", "workload")):
            rmse = _together(plan, [getattr(row, which) for row in plan.table_errors])
            if rmse is not None and name not in tried and name != strategy.method:
                yield MethodRow(name, rmse, "")


def _together(plan: Plan, errors: list[float | None]) -> float | None:
    """The RMSE over all tables, weighted as the spec weights them; None where one is not known."""
    tables = plan.spec.workload.tables
    known = [
        (t, row, e) for t, row, e in zip(tables, plan.table_errors, errors, strict=True) if e is not None
    ]
    if len(known) < len(tables):
        return None
    total = sum((float(t.weight) * e) ** 2 * row.queries for t, row, e in known)
    return math.sqrt(total / sum(row.queries for _, row, _ in known))


def _proven(plan: Plan, aim: str) -> str:
    gap = plan.strategy.certificate
    if gap is None:
        return "How far from the best possible it is, is not proven."
    times = (1 + gap) ** 0.5
    near = f"within {times - 1:.2%} of" if times < 2 else f"at most {times:.1f} times"
    if times - 1 < 1e-4:
        near = "less than 0.01% above"
    return f"Its {_AIMS[aim]} is proven {near} the least that any strategy for this noise can have."


def part_shares(plan: Plan) -> ShareTable | None:
    """What each part of the strategy (answers about the same attributes) costs by itself; None for too many parts."""
    strategy, spec = plan.strategy, plan.spec
    parts = [part for block in strategy.blocks for part in parts_of(block, spec.domain)]
    if not 1 <= len(parts) <= _PARTS_COMPARED:
        return None
    shares = block_shares(strategy, [part.block for part in parts], *spec.change)
    rows = [(_asked(part), share) for part, share in zip(parts, shares, strict=True)]
    rows.sort(key=lambda row: -row[1])
    caption, column = "Share of the budget by what is asked", "Share"
    note = "Every record meets every part alike: the shares add up to the budget."
    if len(rows) == 1:
        note = "The strategy is one part, which answers everything that is asked together."
    elif abs(sum(share for _, share in rows) - 1) >= 1e-6:
        caption, column = "What each part would cost alone, beside the budget of all together", "Alone"
        note = (
            "No record meets every part in full, so that together the parts cost less than one by one: these shares "
            "do not add up to the budget."
        )
    if spec.left_out is not None:
        note += f" The budget is that of the tables here, {1 - spec.left_out.share} of the whole."
    shown = tuple((name, (share,)) for name, share in rows[:_PARTS_SHOWN])
    return ShareTable("Asked about", caption, (column,), shown, note, len(rows) - len(shown))


def _asked(part: StrategyPart) -> str:
    """What a part asks about, in words."""
    names = (f"differences in {name}" if name in part.compared else name for name in part.asked)
    return " by ".join(names) or "the total"


def deltas_of(spec: Spec) -> tuple[Fraction, ...]:
    """The deltas at which a concentrated promise is stated, the spec's own first; none for other promises."""
    if spec.loss.definition != "zcdp":
        return ()
    own = () if spec.delta is None else (spec.delta,)
    return tuple(dict.fromkeys((*own, *MORE_DELTAS)))


def reaches_at(spec: Spec, stops: Sequence[Stop]) -> tuple[Reach, ...]:
    """What each stop promises, and leaves."""
    left = ledger_of(spec)
    return tuple(
        Reach(
            tuple(stop.loss.epsilon(delta) for delta in deltas_of(spec)),
            tuple(detection_bound(promise_of(spec, stop.loss), alarm) for alarm in FALSE_ALARMS),
            None if left is None else left[0] - stop.loss.amount,
        )
        for stop in stops
    )


def ledger_of(spec: Spec) -> tuple[Fraction, Fraction] | None:
    """What is left in the spec's ledger, and its cap; None where there is none to read, or of another promise.

    Privacy:
        The amounts of earlier releases alone, which are public.
    """
    if spec.ledger is None or not spec.ledger.exists():
        return None
    try:
        ledger = Ledger.open(spec.ledger)
        if ledger.definition != spec.loss.definition or ledger.neighbours != spec.neighbours:
            return None
        return ledger.remaining, ledger.budget.amount
    except LedgerError:  # a run will say what is wrong with it, and charges nothing
        return None
