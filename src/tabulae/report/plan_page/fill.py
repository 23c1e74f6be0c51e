"""From a plan to what its page shows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from ..._version import VERSION
from ...errors import TabulaeError
from ...privacy import ApproxDP, PrivacyLoss, rounded_up
from ...products.areas.plan import GeographyPlan
from ...products.groups.plan import DetailedPlan
from ...products.smallest import Smallest
from ...products.tables.exactness import Exactness
from ...products.tables.plan import Plan
from ...spec import Spec
from ..numbers import decimal, significant
from ..view import (
    Consequences,
    ExactView,
    Promise,
)
from .areas import (
    area_errors_at,
    area_exact,
    area_shares,
    areas_of,
    laws_at,
)
from .groups import group_errors_at, level_shares
from .methods import methods_of, part_shares
from .reach import (
    ALARMS,
    deltas_of,
    ledger_of,
    reaches_at,
)
from .stops import amounts_around, kind_of
from .tables import table_errors_at
from .view import (
    Aim,
    Areas,
    ErrorRow,
    ErrorTable,
    Methods,
    PlanView,
    ShareTable,
    Stop,
    TargetLine,
)

AnyPlan = Plan | DetailedPlan | GeographyPlan


@dataclass(frozen=True)
class _Parts:
    """What depends on the kind of plan."""

    kind: str
    errors: ErrorTable
    shares: tuple[ShareTable, ...]
    methods: Methods | None
    areas: Areas | None
    exact: tuple[ExactView, ...]
    consequences: Consequences | None
    remark: str = ""


def plan_view(plan: AnyPlan) -> PlanView:
    """What the page of a plan shows; computed from the public plan alone.

    >>> plan_view  # doctest: +ELLIPSIS
    <function plan_view at ...>
    """
    spec = plan.spec
    stops = _stops(plan)
    parts = _parts(plan, stops)
    return PlanView(
        title=spec.title or "Release",
        kind=parts.kind,
        promise=_promise(spec, parts),
        open_budget=spec.open_budget,
        level=plan.level,
        stops=stops,
        reaches=reaches_at(spec, stops),
        lines=tuple(tuple(_lines(stop)) for stop in stops),
        deltas=deltas_of(spec),
        alarms=ALARMS,
        errors=parts.errors,
        shares=parts.shares,
        methods=parts.methods,
        aim=None if plan.smallest is None else _aim(plan.smallest, parts.errors, stops),
        areas=parts.areas,
        ledger=ledger_of(spec),
        remark=parts.remark,
        version=VERSION,
    )


def _promise(spec: Spec, parts: _Parts) -> Promise:
    return Promise(
        spec.loss.definition,  # type: ignore[arg-type]
        spec.loss.amount,
        spec.neighbours,
        spec.unit,
        spec.loss.parameters.get("delta"),
        exact=parts.exact,
        consequences=parts.consequences,
        rows_per_unit=None if spec.unit_id is None else spec.rows_per_unit,
        one_sided=spec.method.estimate == "non-negative",
    )


def _parts(plan: AnyPlan, stops: tuple[Stop, ...]) -> _Parts:
    if isinstance(plan, Plan):
        blocks = part_shares(plan)
        consequences = None if plan.exact is None else _consequences(plan, plan.exact)
        errors, shares = table_errors_at(plan, stops), () if blocks is None else (blocks,)
        return _Parts(
            "tables", errors, shares, methods_of(plan), None, tuple(_exact(plan.exact)), consequences
        )
    if isinstance(plan, DetailedPlan):
        return _Parts(
            "groups", group_errors_at(plan, stops), (level_shares(plan),), None, None, (), None, _proven(plan)
        )
    errors, shares = area_errors_at(plan, stops), tuple(area_shares(plan))
    return _Parts("areas", errors, shares, None, areas_of(plan), area_exact(plan), None)


def _proven(plan: DetailedPlan) -> str:
    """The tighter epsilon of the plan's own budget, which is not computed elsewhere."""
    if plan.epsilon is None or plan.spec.delta is None:
        return ""
    value, how = plan.epsilon
    return (
        f"At the plan’s own budget ε = {significant(rounded_up(value), 4)} is proven at "
        f"δ = {significant(float(plan.spec.delta))}, {how}; "
        "above stand the definition’s own conversions, which are larger or the same."
    )


def _smallest(plan: AnyPlan) -> Fraction | None:
    """The smallest budget that meets all targets; None without targets, and where no budget does."""
    found = plan.smallest
    return None if found is None or found.loss is None else found.loss.amount


def _stops(plan: AnyPlan) -> tuple[Stop, ...]:
    """The budgets that the slider stops at; those that the library refuses are left out."""
    smallest = _smallest(plan)
    if isinstance(plan, DetailedPlan):
        return tuple(_group_stops(plan, smallest))
    own = plan.spec.loss.amount
    found = []
    for amount in amounts_around(own, smallest):
        stop = Stop(with_amount(plan.spec.loss, amount), amount / own, (), kind_of(amount, own, smallest))
        if stop.kind or _drawn(plan, stop):
            found.append(stop)
    return tuple(found)


def _drawn(plan: Plan | GeographyPlan, stop: Stop) -> bool:
    """Whether there is noise for a budget: 64 bits hold no draw of very small ones."""
    try:
        if isinstance(plan, Plan):
            plan.strategy.laws(stop.loss, plan.spec.neighbours, plan.spec.rows_per_unit)
        else:
            laws_at(plan, stop)
    except TabulaeError:
        return False
    return True


def _group_stops(plan: DetailedPlan, smallest: Fraction | None) -> Iterator[Stop]:
    """Every level's budget times one factor; and the smallest of every level, where there are targets."""
    own, budgets = plan.loss.amount, tuple(budget.amount for budget in plan.budgets)
    needed = budgets
    if plan.smallest is not None:
        pairs = zip(plan.smallest.levels, budgets, strict=True)
        needed = tuple(amount if need.smallest is None else need.smallest.amount for need, amount in pairs)
    for amount in amounts_around(own, smallest, of_factors=True):
        kinds = kind_of(amount, own, smallest).split()
        loss, factor = with_amount(plan.loss, amount), amount / own
        if "smallest" in kinds and needed != budgets:
            yield Stop(loss, factor, needed, "smallest")
            kinds.remove("smallest")
        if kinds or amount != smallest:
            yield Stop(loss, factor, tuple(factor * budget for budget in budgets), " ".join(kinds))


def with_amount(loss: PrivacyLoss, amount: Fraction) -> PrivacyLoss:
    """A loss of the same kind and delta."""
    if isinstance(loss, ApproxDP):
        return ApproxDP(amount, loss.delta)
    return type(loss)(amount)  # type: ignore[call-arg]


def _lines(stop: Stop) -> Iterator[str]:
    """What to write into the spec: exact."""
    yield f'budget = "{decimal(stop.loss.amount)}"'
    for amount in stop.levels:
        yield f'budget = "{decimal(amount)}"'


def _aim(smallest: Smallest, errors: ErrorTable, stops: tuple[Stop, ...]) -> Aim:
    lines = tuple(
        TargetLine(", ".join(row.labels), row.target, _met_from(row, stops))
        for row in errors.rows
        if row.target
    )
    lower = None if smallest.lower is None else smallest.lower.amount
    best = None if smallest.best is None else smallest.best.loss.amount
    return Aim(smallest.loss, lower, best, lines, smallest.note)


def _met_from(row: ErrorRow, stops: tuple[Stop, ...]) -> Fraction | None:
    """The first stop from which on a target is met; None where there is none."""
    found = None
    for errors, stop in zip(reversed(row.errors), reversed(stops), strict=True):
        if not errors.met:
            break
        found = stop.loss.amount
    return found


def _exact(exact: Exactness | None) -> Iterator[ExactView]:
    for table in () if exact is None else exact.tables:
        yield ExactView(f"{table.name}: {table.what}", table.reason, table.counts)


def _consequences(plan: Plan, exact: Exactness) -> Consequences:
    rows = {table.name: table.rows(plan.spec.domain) for table in plan.spec.workload.tables}
    return Consequences(
        exact.stated,
        exact.independent,
        tuple((name, count, rows[name]) for name, count in exact.published.items()),
        tuple(ExactView(f"{told.name} ({told.release})", told.reason) for told in exact.earlier),
        exact.joint,
        exact.unprotected,
        exact.warnings,
    )
