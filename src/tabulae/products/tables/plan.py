"""Expected errors of a release's tables, beside what other choices would have given."""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import sqrt
from os import PathLike
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pyarrow as pa

from ...domain import Invariants, Table, Workload
from ...errors import (
    InvalidArgument,
    LedgerError,
    NotEstimable,
    Problem,
    ReleaseError,
    SpecError,
    Unsupported,
)
from ...estimation import smallest_budget, table_half_widths, within
from ...privacy import WITHIN, Ledger, PrivacyLoss, calibrate, law_for, law_type, round_digits
from ...release.folder import require_parent, write_bytes
from ...release.write import LEVEL
from ...spec import Spec, read_spec
from ...strategy import (
    ExpectedError,
    LeftOpen,
    Strategy,
    Targets,
    baseline,
    describe_strategy,
    error_under,
    has_neighbours,
    law_variances,
    lower_bound,
    read_strategy,
    restrict,
    select,
)
from ...strategy.bounds.lower import rmse_at
from ...strategy.deadline import now
from ...strategy.information.routes import information
from ...strategy.objective import Minimax
from ..product import ResourceEstimate, errors_table, promise_fact
from ..smallest import Smallest, TargetRow, with_amount
from .exactness import Earlier, Exactness, exactness
from .needs import needs_of
from .publish import together
from .targets import strategy_within


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


@dataclass(frozen=True)
class LeftOutError:
    """Expected error of a count of what is left out, ``"units"`` or ``"rows"``: of each unit ``at_most`` rows count.

    ``margin`` is half the width of its interval.
    """

    count: str
    at_most: int
    std_error: float
    margin: int


def strategy_errors(strategy: Strategy, spec: Spec) -> ExpectedError:
    """Expected error of a strategy at the spec's budget, under the laws that will be drawn."""
    variances = law_variances(strategy, spec.table_laws(strategy))
    if not all(variances):
        raise Unsupported(
            "at this budget floating point cannot tell the noise of some answers from none: write a smaller one"
        )
    return error_under(strategy, spec.workload, variances)


def table_errors(
    spec: Spec, strategy: Strategy, chosen: ExpectedError, margins: Mapping[str, float], level: float
) -> list[TableError]:
    """Every table's expected error under a strategy, and under the alternatives; its margins are known."""
    others = {name: _alternative(name, spec, strategy.exact) for name in ("identity", "workload")}
    return [
        TableError(
            table.name,
            table.rows(spec.domain),
            chosen.tables[table.name],
            margins[table.name],
            others["identity"].get(table.name),
            others["workload"].get(table.name),
            error_bound(
                spec, Workload(spec.domain, [Table.of_terms(table.name, table.terms, 1, table.labels)])
            ),
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
    laws = spec.table_laws(strategy)
    info = information(strategy, law_variances(strategy, laws))
    return {
        table.name: float(table_half_widths(strategy, info, laws, table, level).values.max())
        for table in tables or spec.workload.tables
    }


def error_bound(spec: Spec, workload: Workload) -> float | None:
    """The better of the bounds that can be computed, at what the tables may cost and for the law that is drawn.

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
                workload, spec.method.noise, budget=spec.tables_loss, kind=kind, neighbours=spec.neighbours
            )
        except (Unsupported, InvalidArgument):
            continue
        # k rows of one unit may stand in one cell: no strategy needs less than k times the noise of one row.
        value *= share * spec.rows_counted * discreteness(spec)
        best = value if best is None else max(best, value)
    return best


def discreteness(spec: Spec) -> float:
    """How far the deviation of the discrete law may lie below the nominal one, at most 1.

    Answers are integers on their grid and some record moves them by 1 or more, so that a law on it has at least
    the parameter that the budget asks for unit sensitivity; the ratio grows with the parameter.
    """
    power = law_type(spec.tables_loss, spec.method.noise).power
    law = law_for(
        spec.tables_loss, spec.method.noise, Fraction(spec.rows_counted * spec.domain.parts) ** power
    )
    return min(1.0, (law.variance_of_law / law.nominal_variance) ** 0.5)


def left_out_words(plan: Plan) -> str:
    """What a plan says of the counts of what is left out, in a sentence; empty where nothing is told."""
    rule, spec = plan.spec.left_out, plan.spec
    if rule is None:
        return ""
    units, rows = (f"{error.margin:,}" for error in plan.left_out)
    more = f"{spec.rows_per_unit} record{'s' if spec.rows_per_unit > 1 else ''}"
    return (
        f"{rule.share} of the budget says how much is left out: how many units ({spec.unit}) have more than {more}, to "
        f"within {units} ({plan.level:.0%}), and how many of their records are in no table, at most {rule.at_most:,} "
        f"of each counted, to within {rows}."
    )


_SHORTEST = 0.05  # of the time limit is left to each choice of a strategy
_NEAR = 0.02  # relative gap in squared error up to which a certificate's bound is near enough
_DIGITS = 4
_STEPS = 50  # halvings of the ratio between two budgets


def budget_for(spec: Spec, strategy: Strategy, targets: Targets) -> PrivacyLoss:
    """The budget of which the tables get the least of 4 digits at which a strategy meets their targets.

    See :func:`~tabulae.smallest_budget`. Where they get less than the whole, that is a fraction: a larger one may miss.
    """
    neighbours, stability, fewest = spec.change
    need = smallest_budget(
        strategy,
        spec.workload,
        targets,
        definition=spec.loss.definition,  # type: ignore[arg-type]
        delta=spec.tables_loss.parameters.get("delta"),
        neighbours=neighbours,
        stability=stability,
        fewest=fewest,
    )
    return need if spec.left_out is None else spec.left_out.whole(need)


def smallest_of_tables(
    spec: Spec, strategy: Strategy, targets: Targets, rows: Sequence[TableError]
) -> Smallest:
    """What the targets of a plan of tables need.

    Arguments:
        targets: of the tables that are not exact.
    """
    need = spec.loss if spec.open_budget else budget_for(spec, strategy, targets)
    judged = tuple(_judged_smallest_tables(row) for row in rows if row.target is not None)
    lower = least_of_any(spec, strategy, targets, rows)
    note = "" if lower is not None else "No bound is known on what other strategies need: margins give none."
    return Smallest(need, None if spec.open_budget else spec.loss, judged, lower, note=note)


def _judged_smallest_tables(row: TableError) -> TargetRow:
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
    """
    aimed = {t: float(targets.rmse[t.name]) ** 2 for t in spec.workload.tables if t.name in targets.rmse}
    bounds = {row.table: row.bound for row in rows}
    known = [(bounds[t.name] or 0.0) ** 2 / allowed for t, allowed in aimed.items()]
    if len(aimed) > 1:
        known.append(_together(spec, aimed))
    found = max(known, default=0.0) / (_scale(spec, strategy) * discreteness(spec) ** 2)
    aimed = spec.open_budget or any(row.met is False for row in rows)  # else it is of least error
    found = max(found, _certified(spec, strategy, targets, aimed=aimed))
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
    scale = float(calibrate(spec.tables_loss, strategy.noise, Fraction(1)))
    return scale if strategy.noise == "gaussian" else scale**2


def _together(spec: Spec, aimed: Mapping[Table, float]) -> float:
    """A mean, over tables, of squared errors beside what is allowed that no strategy is below."""
    weights = {t: sqrt(1 / (len(aimed) * allowed * t.rows(spec.domain))) for t, allowed in aimed.items()}
    largest = max(weights.values())
    tables = [Table.of_terms(t.name, t.terms, Fraction(w / largest)) for t, w in weights.items()]
    workload = Workload(spec.domain, tables)
    return (error_bound(spec, workload) or 0.0) ** 2 * workload.queries * largest**2


def _certified(spec: Spec, strategy: Strategy, targets: Targets, *, aimed: bool) -> float:
    """What follows from the strategy's certificate; 0 without one that is about RMSEs of all tables.

    ``aimed`` says that the strategy, and so its certificate, is the one for the smallest budget.
    """
    whole = all(table.name in targets.rmse for table in spec.workload.tables)
    if strategy.certificate is None or not whole or spec.invariants or not aimed:
        return 0.0
    ratio = Minimax(spec.workload, targets).judge(strategy, spec.chosen_for).value / (
        1 + strategy.certificate
    )
    return ratio * spec.rows_counted**2


_SAVED = b'{\n "tabulae_plan": '

MOST_ANSWERS = 50_000_000
"""Noisy answers that one strategy may ask for: they are drawn, kept and published."""

MOST_OF_PRODUCT = 1_250_000_000
"""The same for one product of matrices, which is measured and solved in place: 10 GB, and as much for estimates."""


@dataclass(frozen=True, eq=False)
class Plan:
    """What a release will ask, what that costs and how wrong its tables will be; made without data.

    >>> import pathlib, shutil, tempfile
    >>> import tabulae as tb
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "spec.toml").write_text('''
    ... title = "Sexes"
    ... source = { path = "people.csv" }
    ... attributes = { sex = { column = "sex", categories = ["F", "M"] } }
    ... privacy = { definition = "zcdp", budget = "1/2", neighbours = "add-remove", ledger = "ledger.db" }
    ... table = [{ name = "sexes", attributes = ["sex"] }]
    ... ''')
    >>> plan = tb.plan(folder / "spec.toml")
    >>> plan.strategy.rows, round(plan.errors["rmse"][0].as_py(), 3)
    (2, 1.0)
    >>> shutil.rmtree(folder)
    """

    spec: Spec
    strategy: Strategy
    level: float = LEVEL

    @property
    def budgets(self) -> tuple[PrivacyLoss, ...]:
        """The loss of each round of measuring."""
        return (self.spec.loss,)

    @property
    def aim(self) -> str:
        """What the strategy is the best for, and its certificate is about: the objective, or "targets".

        Beside a budget that is given, targets are limits, unless they are not met with it.
        """
        missed = any(row.met is False for row in self.table_errors)
        return "targets" if missed or self.spec.open_budget else self.spec.method.objective

    @cached_property
    def margins(self) -> dict[str, float]:
        """The widest half-width of each table's intervals, without what else :attr:`table_errors` says."""
        return _margins(self.spec, self.strategy, self.level)

    @property
    def rough_margins(self) -> dict[str, float]:
        """About the half-width of each table's intervals: that of normal noise with the table's RMSE.

        But for invariants nothing is done query by query, as for :attr:`margins`, which are those of the widest cells.
        """
        wide = NormalDist().inv_cdf((1 + self.level) / 2)
        if self.spec.invariants:
            return {name: wide * error for name, error in self.expected.tables.items()}
        spec, strategy = self.spec, self.strategy
        info = information(strategy, law_variances(strategy, spec.table_laws(strategy)))
        alone = [(table, Workload(spec.domain, [table])) for table in spec.workload.tables]
        return {
            table.name: wide * sqrt(info.total(one) / one.queries) / float(table.weight)
            for table, one in alone
        }

    @cached_property
    def table_errors(self) -> tuple[TableError, ...]:
        return tuple(table_errors(self.spec, self.strategy, self.expected, self.margins, self.level))

    @cached_property
    def left_out(self) -> tuple[LeftOutError, ...]:
        """Expected errors of what is told of rows left out; empty where nothing is."""
        rule, laws = self.spec.left_out, self.spec.left_out_laws()
        if rule is None:
            return ()
        told = zip(rule.COUNTS, laws, strict=True)
        return tuple(
            LeftOutError(name, rule.at_most, sqrt(law.variance_of_law), law.margin(self.level))
            for name, law in told
        )

    @cached_property
    def bound(self) -> float | None:
        """An RMSE over all tables together (weighted) that no strategy beats, where one is known.

        The one behind the strategy's certificate where that is near and about the same sum; else the best known.
        """
        spec, lower, gap = self.spec, self.strategy.lower, self.strategy.certificate
        same = spec.method.objective == "total" and not spec.targets and not spec.invariants
        if lower is None or gap is None or gap > _NEAR or not same or spec.rows_counted > 1:
            return error_bound(spec, spec.workload)
        return rmse_at(spec.tables_loss, spec.method.noise, lower / spec.workload.queries) * discreteness(
            spec
        )

    @cached_property
    def smallest(self) -> Smallest | None:
        """The smallest budget that meets all targets; None where no table that noise is added to has one."""
        targets = _targets_left(self.spec, _invariants(self.spec))
        return targets and smallest_of_tables(self.spec, self.strategy, targets, self.table_errors)

    @property
    def rmse(self) -> float:
        """RMSE over all tables together, weighted as the spec weights them."""
        return self.expected.rmse

    @cached_property
    def expected(self) -> ExpectedError:
        """Expected error of the chosen strategy under the laws that will be drawn."""
        return strategy_errors(self.strategy, self.spec)

    @cached_property
    def exact(self) -> Exactness | None:
        """What the invariants give away, alone and with earlier releases of the ledger; None if nothing is exact.

        The ledger is read if it exists; a plan can be made without it.
        """
        return exactness(self.spec, _disclosed_before(self.spec))

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a curator should know before publishing these exact counts; empty if nothing is exact."""
        return () if self.exact is None else self.exact.warnings

    @property
    def errors(self) -> pa.Table:
        """Expected error by table: ``table, level, rmse, margin, bound``, in counts.

        ``level`` is the geographic level, null without geography; ``margin`` the half-width of the widest
        interval of the table; ``bound`` an RMSE of the table that no strategy beats.
        """
        return errors_table((r.table, None, r.rmse, r.margin, r.bound) for r in self.table_errors)

    @property
    def needs(self) -> ResourceEstimate:
        """What a run takes of a machine."""
        return needs_of(self.spec, self.strategy)

    def __repr__(self) -> str:
        return f"Plan({self.spec!r}, {self.strategy!r})"

    def _repr_html_(self) -> str:
        from ...notebook import CardRows, card

        strategy = f"{self.strategy.method}, {self.strategy.rows:,} noisy answers"
        facts = [
            ("release", self.spec.title),
            promise_fact(self.spec),
            ("strategy", strategy),
            ("RMSE, all tables", self.rmse),
            ("exact counts", None if self.exact is None else self.exact.stated),
        ]
        errors = ((r.table, r.queries, r.rmse, r.margin, r.bound) for r in self.table_errors)
        headings = ("table", "rows", "RMSE", f"{self.level:.0%} margin", "bound")
        return card("Plan", facts, CardRows(headings, errors, len(self.table_errors)))

    def save(self, path: str | PathLike[str]) -> None:
        """Write the plan as JSON, whole or not at all: a run with it asks exactly these queries.

        Raises:
            ReleaseError: the path cannot be a saved plan's; see :func:`check_saved`.
        """
        where = check_saved(path)
        write_bytes(where.resolve(), (json.dumps(self.document(), indent=1) + "\n").encode())

    def document(self) -> dict[str, Any]:
        """The plan as :meth:`save` writes it: the spec's digest, and the strategy with its matrices packed."""
        document, arrays = describe_strategy(self.strategy)
        packed = {name: _pack(array) for name, array in arrays.items()}
        return {"tabulae_plan": 1, "spec": self.spec.digest(), "strategy": document, "arrays": packed}

    @classmethod
    def load(cls, path: str | PathLike[str], spec: Spec) -> Plan:
        """Read a plan that :meth:`save` wrote for this spec.

        Raises :class:`~tabulae.errors.ReleaseError` if the file is not a plan, or was made for another spec.
        """
        try:
            whole = json.loads(Path(path).read_text(encoding="utf-8"))
            made_for, document = whole["spec"], whole["strategy"]
            arrays = {name: _unpack(entry) for name, entry in whole["arrays"].items()}
        except OSError as error:
            raise ReleaseError(
                f"{path} cannot be read: {error.strerror}; name a file that `tabulae plan --save` wrote"
            ) from None
        except (ValueError, KeyError, TypeError, zlib.error) as error:
            raise ReleaseError(f"{path} is not a plan that `tabulae plan --save` wrote: {error}") from None
        if made_for != spec.digest():
            raise ReleaseError(f"{path} was made for another spec, or the spec was changed since; plan again")
        exact = [given.table for given in spec.invariants]
        return cls(spec, read_strategy(document, arrays, spec.domain, exact))


def check_saved(path: str | PathLike[str]) -> Path:
    """A place where a plan can be saved: an earlier one is replaced, no other file.

    Raises:
        ReleaseError: it is a folder, lies in none, or is a file that is not a saved plan.
    """
    where = Path(path)
    if where.is_dir():
        raise ReleaseError(f"{where} is a folder: name the file to write, {where / 'plan.json'}, say")
    require_parent(where)
    if where.exists():
        with where.open("rb") as file:
            start = file.read(len(_SAVED))
        if start not in (b"", _SAVED):
            raise ReleaseError(
                f"{where} exists and is not a saved plan, so it is not replaced: name another file"
            )
    return where


def _pack(array: np.ndarray) -> dict[str, Any]:
    data = base64.b64encode(zlib.compress(array.astype("<i8").tobytes())).decode()
    return {"shape": list(array.shape), "zlib_int64": data}


def _unpack(entry: Mapping[str, Any]) -> np.ndarray:
    data = zlib.decompress(base64.b64decode(entry["zlib_int64"]))
    return np.frombuffer(data, dtype="<i8").astype(np.int64).reshape(entry["shape"])


def plan_tables(spec: Spec | str | PathLike[str]) -> Plan:
    """Choose the strategy for a spec of tables and say how wrong every table will be; no data is opened.

    Arguments, errors: as of :func:`tabulae.plan`. Also Unsupported: the spec tabulates groups.

    Privacy:
        Reads no record: a plan is a function of the public spec, and costs nothing.
    """
    spec = spec if isinstance(spec, Spec) else read_spec(spec)
    strategy = _strategy(spec, _invariants(spec))
    _check_size(spec, strategy)
    if spec.open_budget:
        assert spec.targets is not None
        spec = spec.with_budget(budget_for(spec, strategy, spec.targets))
    return Plan(spec, strategy)


def _strategy(spec: Spec, exact: Invariants | None) -> Strategy:
    """The strategy that serves a spec best: with a budget, among those that meet its targets."""
    method, targets, started = spec.method, _targets_left(spec, exact), now()

    def choose(workload: Workload, aims: Targets | None) -> Strategy:
        limit = method.time_limit
        strategy = select(
            workload,
            noise=method.noise,
            method=method.select,
            neighbours=spec.chosen_for,
            invariants=() if exact is None else exact.tables,
            objective=aims or method.objective,
            time_limit=None if limit is None else max(limit - round(now() - started, 1), _SHORTEST * limit),
            seed=method.seed,
            tolerance=method.tolerance,
        )
        return _with_gap_of_units(strategy, spec)

    if targets is None or spec.open_budget:
        return choose(spec.workload, targets)

    def cost(strategy: Strategy) -> float:
        return strategy_errors(strategy, spec).tse

    def ratios(strategy: Strategy) -> dict[str, float]:
        return _target_ratios(spec, strategy, targets)

    return strategy_within(spec.workload, targets, choose, ratios, cost, method.time_limit)


def _with_gap_of_units(strategy: Strategy, spec: Spec) -> Strategy:
    """The strategy with a certificate that is about the spec's neighbours.

    Where units are replaced that may differ in how many rows of them are counted, it was chosen for rows that come and
    go, and no strategy does better than the best for these. Its own noise may have to be larger than for these.
    """
    if strategy.certificate is None or spec.neighbours != "replace" or spec.has_public_total:
        return strategy
    needed = strategy.sensitivity(*spec.change).power
    ratio = needed / strategy.sensitivity("add-remove", spec.rows_counted).power
    return replace(strategy, certificate=(1 + strategy.certificate) * float(ratio) - 1)


def _target_ratios(spec: Spec, strategy: Strategy, targets: Targets) -> dict[str, float]:
    """For each table with a target its squared error over what is allowed, at the spec's budget; at most 1 is met."""
    errors, found = strategy_errors(strategy, spec).tables, {}
    for table in spec.workload.tables:
        if (rmse := targets.rmse.get(table.name)) is not None:
            found[table.name] = _ratio(errors[table.name], float(rmse), met=errors[table.name] <= float(rmse))
        elif (margin := targets.margin.get(table.name)) is not None:
            reached = _margins(spec, strategy, targets.level(table.name), [table])[table.name]
            found[table.name] = _ratio(reached, float(margin), met=within(reached, float(margin)))
    return found


def _ratio(reached: float, allowed: float, *, met: bool) -> float:
    """A squared error over what is allowed, at most 1 just where the target is called met."""
    ratio = (reached / allowed) ** 2
    return min(ratio, 1.0) if met else max(ratio, math.nextafter(1.0, 2.0))


def _check_size(spec: Spec, strategy: Strategy) -> None:
    """Refuse more answers than are drawn; one product of matrices that least squares solves may ask for more."""
    terms = [block.terms for block in strategy.blocks]
    product = len(terms) == len(terms[0]) == 1 and not strategy.invariants
    most = MOST_OF_PRODUCT if product and spec.method.estimate == "least-squares" else MOST_ANSWERS
    if strategy.rows > most:
        raise Unsupported(
            f"strategy {strategy.method!r} asks for {strategy.rows:,} noisy answers, one for nearly every cell of the "
            f'domain; at most {most:,} are drawn. Choose select = "auto" or "residual", which measure what the '
            "tables need, or declare fewer or coarser attributes"
        )


def _invariants(spec: Spec) -> Invariants | None:
    """The spec's invariants; refused where they leave nothing to release under a guarantee."""
    if not spec.invariants:
        return None
    try:
        exact = Invariants(spec.domain, [given.table for given in spec.invariants])
    except InvalidArgument as error:
        raise _mistake(spec, "invariant", str(error)) from None
    if not left_to_measure(spec.workload, exact):
        raise _mistake(
            spec,
            "invariant",
            "the exact counts determine every table: nothing would be left to protect by noise, and nothing would be "
            "released under a guarantee. Make fewer counts exact, or ask for more detailed tables",
        )
    if spec.neighbours == WITHIN and has_neighbours(exact) is False:
        raise _mistake(
            spec,
            "privacy.neighbours",
            f'under "{WITHIN}" nobody would be protected: the exact counts tell any two different records apart, so '
            'that none can be replaced by another within them. Write neighbours = "replace" or "add-remove", or make '
            "fewer counts exact",
        )
    return exact


def _mistake(spec: Spec, path: str, message: str) -> SpecError:
    return SpecError([Problem(path, message)], str(spec.path or "spec"))


def _targets_left(spec: Spec, exact: Invariants | None) -> Targets | None:
    """The targets of tables that are not exact, whose targets are met by any strategy; None without any."""
    targets = spec.targets
    if targets is None or exact is None:
        return targets
    left = {table.name for table in left_to_measure(spec.workload, exact)}
    rmse = {name: target for name, target in targets.rmse.items() if name in left}
    margin = {name: target for name, target in targets.margin.items() if name in left}
    if rmse or margin:
        return Targets(rmse, margin, targets.confidence)
    if spec.open_budget:
        raise _mistake(
            spec,
            "privacy.budget",
            "cannot be found from targets: every table that has one is exact already. Write the budget",
        )
    return None


def _disclosed_before(spec: Spec) -> Earlier:
    """What the spec's ledger says that other releases stated exactly; nothing where there is no ledger to read."""
    if spec.ledger is None or not spec.ledger.exists():
        return ()
    try:
        return Ledger.open(spec.ledger).disclosures()
    except LedgerError:  # a run will say what is wrong with it, and charges nothing
        return ()


def check_derived(plan: Plan) -> None:
    """Refuse derived figures of counts that the plan does not measure, all of them named.

    Privacy:
        Reads no record: a function of the public spec and strategy.
    """
    strategy, spec = plan.strategy, plan.spec
    if not spec.derived:
        return
    info = information(strategy, tuple(1.0 for _ in strategy.blocks))
    problems = []
    of_measures = sum(
        derived.name in spec.units for derived in spec.derived
    )  # they come first, and name no entry
    for at, derived in enumerate(spec.derived, start=-of_measures):
        try:
            for table in derived.figure.tables:
                LeftOpen.of(strategy, table).variance(info)
        except NotEstimable as error:
            told = together(strategy, derived.figure.attributes)
            remedy = "Add a [[table]] that counts them so, or leave the figure out"
            words = " ".join(filter(None, (f"{error}.", told, remedy)))
            problems.append(Problem(f"derived[{at}].sql" if at >= 0 else derived.name, words))
    if problems:
        raise SpecError(problems, str(spec.path or "spec"))
