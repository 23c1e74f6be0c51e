"""Expected errors of a release's tables, beside what other choices would have given."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from ..domain import (
    Invariants,
    Table,
    Workload,
)
from ..errors import (
    InvalidArgument,
    NotEstimable,
    Unsupported,
)
from ..estimation import table_half_widths, within
from ..privacy import (
    WITHIN,
    calibrate,
    law_type,
)
from ..spec import Spec
from ..strategy import (
    ExpectedError,
    Strategy,
    baseline,
    error_under,
    information,
    law_variances,
    lower_bound,
    restrict,
)


@dataclass(frozen=True)
class TableError:
    """Expected error of one table, in counts.

    ``rmse`` over its queries, those that are exact with 0; ``margin`` the widest half-width among its intervals;
    ``identity`` and ``workload`` the RMSE of measuring every cell, or the tables themselves, with the same budget;
    ``bound`` an RMSE of this table that no strategy beats. None: out of reach for this workload.
    ``target`` is what the spec allows the table, None where it has no target, and ``met`` whether the plan keeps to it:
    an RMSE, or (``confidence`` not None) the widest half-width at that confidence; ``reached`` is the plan's own.
    ``exact`` is how many of its queries the invariants determine.
    """

    table: str
    queries: int
    rmse: float
    margin: float
    identity: float | None
    workload: float | None
    bound: float | None
    target: float | None = None
    confidence: float | None = None
    met: bool | None = None
    reached: float | None = None
    exact: int = 0


def strategy_errors(strategy: Strategy, spec: Spec) -> ExpectedError:
    """Expected error of a strategy at the spec's budget, under the laws that will be drawn."""
    laws = strategy.laws(spec.loss, spec.neighbours, spec.rows_per_unit)
    return error_under(strategy, spec.workload, law_variances(strategy, laws))


def table_errors(spec: Spec, strategy: Strategy, chosen: ExpectedError, level: float) -> list[TableError]:
    """Every table's expected error under a strategy, and under the alternatives."""
    others = {name: _alternative(name, spec, strategy.exact) for name in ("identity", "workload")}
    margins = _margins(spec, strategy, level)
    return [
        TableError(
            table.name,
            table.rows(spec.domain),
            chosen.tables[table.name],
            margins[table.name],
            others["identity"].get(table.name),
            others["workload"].get(table.name),
            error_bound(spec, Workload(spec.domain, [_unweighted(table)])),
            *_judged(spec, strategy, table, chosen.tables[table.name], margins, level),
            exact=0 if strategy.exact is None else int(strategy.exact.determined(table).sum()),
        )
        for table in spec.workload.tables
    ]


def left_to_measure(workload: Workload, invariants: Invariants | None) -> list[Table]:
    """The tables that invariants do not determine as a whole."""
    if invariants is None:
        return list(workload.tables)
    return [table for table in workload.tables if not invariants.determined(table).all()]


def _alternative(method: str, spec: Spec, invariants: Invariants | None) -> dict[str, float]:
    """Each table's RMSE under a comparison strategy, projected where there are invariants; empty if out of reach."""
    try:
        left = Workload(spec.domain, left_to_measure(spec.workload, invariants))
        plain = baseline(left, method, spec.method.noise, spec.neighbours)
        other = plain if invariants is None else replace(plain, invariants=invariants.tables)
        return strategy_errors(other, spec).tables
    except (Unsupported, NotEstimable):
        return {}


def _judged(
    spec: Spec, strategy: Strategy, table: Table, rmse: float, margins: Mapping[str, float], at: float
) -> tuple[float | None, float | None, bool | None, float | None]:
    """The table's target, the confidence that it is for, whether it is met, and the error that was judged."""
    targets = spec.targets
    if targets is None or targets.squared(table.name) is None:
        return None, None, None, None
    if table.name in targets.rmse:
        target = float(targets.rmse[table.name])
        return target, None, rmse <= target, rmse
    target, level = float(targets.margin[table.name]), targets.level(table.name)
    margin = margins[table.name] if level == at else _margins(spec, strategy, level, [table])[table.name]
    return target, level, within(margin, target), margin


def _margins(
    spec: Spec, strategy: Strategy, level: float, tables: Sequence[Table] | None = None
) -> dict[str, float]:
    """The widest half-width of each table's intervals at a level."""
    laws = strategy.laws(spec.loss, spec.neighbours, spec.rows_per_unit)
    info = information(strategy, law_variances(strategy, laws))
    return {
        table.name: float(table_half_widths(strategy, info, laws, table, level).values.max())
        for table in tables or spec.workload.tables
    }


def error_bound(spec: Spec, workload: Workload) -> float | None:
    """The better of the bounds that can be computed, at the spec's budget and for the law that is drawn.

    Under invariants of the workload restricted to what they leave open (Gao, Gong, Yu, Corollary 3.10), over all
    queries, exact ones included; None where neighbours are bound by them, for the bounds are about all neighbours.
    """
    share = 1.0
    if spec.invariants:
        invariants = Invariants(spec.domain, [given.table for given in spec.invariants])
        if not left_to_measure(workload, invariants):
            return 0.0
        if spec.neighbours == WITHIN:
            return None
        restricted = restrict(workload, invariants.tables).workload
        share = math.sqrt(restricted.queries / workload.queries)
        workload = restricted
    best = None
    for kind in ("svd", "dual"):
        try:
            value = lower_bound(
                workload, spec.method.noise, budget=spec.loss, kind=kind, neighbours=spec.neighbours
            )
        except (Unsupported, InvalidArgument):
            continue
        # k rows of one unit may stand in one cell: no strategy needs less than k times the noise of one row.
        value *= share * spec.rows_per_unit * discreteness(spec)
        best = value if best is None else max(best, value)
    return best


def discreteness(spec: Spec) -> float:
    """How far the deviation of the discrete law may lie below the nominal one, at most 1.

    Answers are integers on their grid and some record moves them by 1 or more, so that a law on it has at least
    the parameter that the budget asks for unit sensitivity; the ratio grows with the parameter.
    """
    power = Fraction(spec.rows_per_unit) ** (2 if _gaussian(spec) else 1)
    unit = calibrate(spec.loss, spec.method.noise, power)
    nominal = float(unit) if _gaussian(spec) else 2 * float(unit) ** 2
    return min(1.0, (law_type(spec.loss, spec.method.noise)(unit).variance_of_law / nominal) ** 0.5)


def _gaussian(spec: Spec) -> bool:
    """Whether the spec's noise is Gaussian."""
    return spec.method.noise == "gaussian"


def _unweighted(table: Table) -> Table:
    return Table.of_terms(table.name, table.terms, 1, table.labels)
