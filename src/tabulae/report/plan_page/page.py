"""From a plan to what its page shows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from os import PathLike
from pathlib import Path
from typing import Any

from ..._version import VERSION
from ...errors import LedgerError, ReleaseError, TabulaeError
from ...privacy import Ledger, decimal, rounded_up
from ...products.areas.plan import GeographyPlan
from ...products.groups.plan import DetailedPlan
from ...products.smallest import Smallest, with_amount
from ...products.tables.exactness import Exactness
from ...products.tables.plan import Plan, left_out_words
from ...release.folder import require_parent, write_bytes
from ...spec import Spec
from ..numbers import significant
from ..page import FALSE_ALARMS, detection_bound, environment, errors_figure, policy, script
from ..promise import MORE_DELTAS, Consequences, ExactView, consequences_of, promise_of
from ..strategy import StrategyPart, block_shares, parts_of
from . import view as live
from .errors import (
    area_errors_at,
    area_exact,
    area_shares,
    areas_of,
    group_errors_at,
    laws_at,
    level_shares,
    table_errors_at,
)
from .view import (
    AimView,
    AreasView,
    ErrorLine,
    ErrorTable,
    MethodRow,
    Methods,
    PlanView,
    Reach,
    ShareTable,
    Stop,
    TargetLine,
    amounts_around,
    kind_of,
)

AnyPlan = Plan | DetailedPlan | GeographyPlan


@dataclass(frozen=True)
class _Parts:
    """What depends on the kind of plan."""

    errors: ErrorTable
    shares: tuple[ShareTable, ...]
    methods: Methods | None
    areas: AreasView | None
    exact: tuple[ExactView, ...]
    consequences: Consequences | None
    remark: str = ""


def plan_view(plan: AnyPlan) -> PlanView:
    """What the page of a plan shows; computed from the public plan alone.

    >>> plan_view  # doctest: +ELLIPSIS
    <function plan_view at ...>
    """
    spec = plan.spec
    of_kind = _OF_KIND[spec.kind]
    stops = tuple(of_kind.stops(plan))
    parts = of_kind.parts(plan, stops)
    return PlanView(
        title=spec.title or "Release",
        promise=promise_of(spec, exact=parts.exact, consequences=parts.consequences),
        open_budget=spec.open_budget,
        level=plan.level,
        stops=stops,
        reaches=reaches_at(spec, stops),
        lines=tuple(tuple(_lines(stop)) for stop in stops),
        deltas=deltas_of(spec),
        alarms=FALSE_ALARMS,
        errors=parts.errors,
        shares=parts.shares,
        methods=parts.methods,
        aim=None if plan.smallest is None else _aim(plan.smallest, parts.errors, stops),
        areas=parts.areas,
        ledger=ledger_of(spec),
        remark=parts.remark,
        version=VERSION,
    )


def _parts_of_tables(plan: Plan, stops: tuple[Stop, ...]) -> _Parts:
    blocks = part_shares(plan)
    consequences = None
    if plan.exact is not None:
        consequences = consequences_of(plan.exact.document(), plan.spec.workload)
    errors, shares = table_errors_at(plan, stops), () if blocks is None else (blocks,)
    exact, remark = tuple(_exact(plan.exact)), left_out_words(plan)
    if remark:
        remark = f"At the plan’s own budget {remark}"
    return _Parts(errors, shares, methods_of(plan), None, exact, consequences, remark)


def _parts_of_groups(plan: DetailedPlan, stops: tuple[Stop, ...]) -> _Parts:
    errors, shares = group_errors_at(plan, stops), (level_shares(plan),)
    return _Parts(errors, shares, None, None, (), None, _implied(plan))


def _parts_of_areas(plan: GeographyPlan, stops: tuple[Stop, ...]) -> _Parts:
    errors, shares = area_errors_at(plan, stops), tuple(area_shares(plan))
    return _Parts(errors, shares, None, areas_of(plan), area_exact(plan), None)


def _implied(plan: DetailedPlan) -> str:
    """The epsilon at a delta that a pure promise implies at the plan's own budget."""
    if plan.loss.definition != "pure" or plan.epsilon is None or plan.spec.delta is None:
        return ""
    value, how = plan.epsilon
    return (
        f"At the plan’s own budget ε = {significant(rounded_up(value), 4)} is proven at "
        f"δ = {significant(float(plan.spec.delta))}, {how}."
    )


def _smallest(plan: AnyPlan) -> Fraction | None:
    found = plan.smallest
    return None if found is None or found.loss is None else found.loss.amount


def _budget_stops(plan: Plan | GeographyPlan, laws: Callable[[Any, Stop], object]) -> Iterator[Stop]:
    """The budgets that the slider stops at; those whose noise cannot be drawn are left out."""
    own, smallest = plan.spec.loss.amount, _smallest(plan)
    for amount in amounts_around(own, smallest):
        stop = Stop(with_amount(plan.spec.loss, amount), amount / own, (), kind_of(amount, own, smallest))
        if stop.kind or _drawn(plan, stop, laws):
            yield stop


def _drawn(plan: Plan | GeographyPlan, stop: Stop, laws: Callable[[Any, Stop], object]) -> bool:
    """Whether there is noise for a budget: 64 bits hold no draw of very small ones."""
    try:
        laws(plan, stop)
    except TabulaeError:
        return False
    return True


def _table_laws(plan: Plan, stop: Stop) -> object:
    spec = plan.spec.with_budget(stop.loss)
    return spec.table_laws(plan.strategy), spec.left_out_laws()


def _group_stops(plan: DetailedPlan) -> Iterator[Stop]:
    """Every level's budget times one factor; and the smallest of every level, where there are targets."""
    smallest = _smallest(plan)
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


def _lines(stop: Stop) -> Iterator[str]:
    """What to write into the spec: exact."""
    yield f'budget = "{decimal(stop.loss.amount)}"'
    for amount in stop.levels:
        yield f'budget = "{decimal(amount)}"'


def _aim(smallest: Smallest, errors: ErrorTable, stops: tuple[Stop, ...]) -> AimView:
    lines = tuple(
        TargetLine(", ".join(row.labels), row.target, _met_from(row, stops))
        for row in errors.rows
        if row.target
    )
    lower = None if smallest.lower is None else smallest.lower.amount
    best = None if smallest.best is None else smallest.best.loss.amount
    return AimView(smallest.loss, lower, best, lines, smallest.note)


def _met_from(row: ErrorLine, stops: tuple[Stop, ...]) -> Fraction | None:
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


_BEGINNING = 1 << 16
_MARK = b": plan of a release</title>"
_SCRIPT = "plan.js"
_PLAIN = ("1.000000000", "2.000000000", "5.000000000")


def plan_page(plan: AnyPlan) -> str:
    """A plan as one self-contained HTML page, the same text for the same plan.

    The page loads nothing; its one script moves the budget among those that were computed here, and without it the page
    shows the plan at its own. Every string of the plan is escaped.

    Returns:
        The page, ending in a newline.

    Privacy:
        Reads no record: a plan is a function of the public spec. Of the ledger it says what is left.
    """
    return render_plan(plan_view(plan))


def render_plan(view: PlanView) -> str:
    """The page of a view."""
    told = view.promise.consequences
    page = environment().get_template("plan.html")
    return (
        page.render(
            plan=view,
            promise=replace(view.promise, consequences=None if told is None else replace(told, warnings=())),
            warnings=() if told is None else told.warnings,
            live=live,
            now=live.texts(view, view.own),
            beside=_side_by_side(view),
            data=live.data(view),
            script=script(_SCRIPT),
            policy=policy(_SCRIPT),
        ).rstrip()
        + "\n"
    )


def check_target(path: str | PathLike[str]) -> Path:
    """A place where a page can be written, refused before anything is computed.

    The page of an earlier plan is replaced, no other file: a slip must cost nobody a spec, a ledger, or records.

    Raises:
        ReleaseError: it is a folder, lies in none, or is a file that is not a page of a plan.
    """
    where = Path(path)
    if where.is_dir():
        raise ReleaseError(f"{where} is a folder: name the file to write, {where / 'plan.html'}, say")
    require_parent(where)
    if where.exists() and not where.is_file():
        raise ReleaseError(f"{where} is not an ordinary file: name the file to write")
    if where.exists() and not _is_page(where):
        raise ReleaseError(
            f"{where} exists and is not a page of a plan, so it is not replaced: name another file"
        )
    return where


def _is_page(path: Path) -> bool:
    """Whether a file is a page of a plan, by its beginning, or empty."""
    with path.open("rb") as file:
        start = file.read(_BEGINNING)
    return not start or (start.startswith(b"<!doctype html>") and _MARK in start)


def write_plan_page(plan: AnyPlan, path: str | PathLike[str]) -> Path:
    """Write the page of a plan, whole or not at all; the page of an earlier plan is replaced.

    Raises:
        ReleaseError: the path is a folder, lies in none, or is a file that is not a page of a plan.

    Privacy:
        Reads no record: a plan is a function of the public spec.
    """
    where = check_target(path)
    real, page = where.resolve(), plan_page(plan).encode()
    try:
        write_bytes(real, page)
    except OSError:
        real.with_name(f".{real.name}.draft").unlink(missing_ok=True)
        raise
    return where


def _side_by_side(view: PlanView) -> list[int]:
    amounts = [stop.factor if view.of_levels else stop.loss.amount for stop in view.stops]
    digits = [f"{float(amount):.9e}".partition("e")[0] for amount in amounts]
    return [i for i, stop in enumerate(view.stops) if stop.kind or digits[i] in _PLAIN]


@dataclass(frozen=True)
class _OfKind:
    """How the page of one kind of plan is filled."""

    parts: Callable[[Any, tuple[Stop, ...]], _Parts]
    stops: Callable[[Any], Iterator[Stop]]


_OF_KIND = {
    "tables": _OfKind(_parts_of_tables, lambda plan: _budget_stops(plan, _table_laws)),
    "groups": _OfKind(_parts_of_groups, _group_stops),
    "areas": _OfKind(_parts_of_areas, lambda plan: _budget_stops(plan, laws_at)),
}


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
