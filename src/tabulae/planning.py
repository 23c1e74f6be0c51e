"""Plans: which queries a release will ask and how wrong its tables will be, before any data is opened."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from .errors import InvalidArgument, NotEstimable, ReleaseError, Unsupported
from .estimation import half_widths, smallest_budget, within
from .privacy import PrivacyLoss, calibrate, law_type
from .spec import Spec, read_spec
from .strategy import (
    ExpectedError,
    Strategy,
    baseline,
    describe_strategy,
    error_under,
    information,
    law_variances,
    lower_bound,
    read_strategy,
    select,
)
from .tables import Table, Workload

LEVEL = 0.95
"""The level of published intervals and of planned margins."""

MOST_ANSWERS = 50_000_000
"""Noisy answers that one strategy may ask for: they are drawn, kept and published."""


@dataclass(frozen=True)
class TableError:
    """Expected error of one table, in counts.

    ``rmse`` over its queries; ``margin`` the widest half-width among its intervals; ``identity`` and
    ``workload`` the RMSE of measuring every cell, or the tables themselves, with the same budget;
    ``bound`` an RMSE of this table that no strategy beats. None: out of reach for this workload.
    ``target`` is what the spec allows the table, None where it has no target, and ``met`` whether the plan keeps to it:
    an RMSE, or (``confidence`` not None) the widest half-width at that confidence.
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


@dataclass(frozen=True, eq=False)
class Plan:
    """What a release will ask, what that costs and how wrong its tables will be; made without data."""

    spec: Spec
    strategy: Strategy
    level: float = LEVEL

    @property
    def budgets(self) -> tuple[PrivacyLoss, ...]:
        """The loss of each round of measuring."""
        return (self.spec.loss,)

    @cached_property
    def table_errors(self) -> tuple[TableError, ...]:
        """Expected error by table."""
        return tuple(_table_errors(self))

    @cached_property
    def bound(self) -> float | None:
        """An RMSE over all tables together (weighted) that no strategy beats, where one is known."""
        return _bound(self.spec, self.spec.workload)

    @property
    def rmse(self) -> float:
        """RMSE over all tables together, weighted as the spec weights them."""
        return self.expected.rmse

    @cached_property
    def expected(self) -> ExpectedError:
        """Expected error of the chosen strategy under the laws that will be drawn."""
        return _errors(self.strategy, self.spec)

    @property
    def errors(self) -> pa.Table:
        """Expected error by table: ``table, level, rmse, margin, bound``, in counts.

        ``level`` is the geographic level, null without geography; ``margin`` the half-width of the widest
        interval of the table; ``bound`` an RMSE of the table that no strategy beats.
        """
        rows = self.table_errors
        return pa.table(
            {
                "table": pa.array([r.table for r in rows]),
                "level": pa.array([None] * len(rows), pa.string()),
                "rmse": pa.array([r.rmse for r in rows], pa.float64()),
                "margin": pa.array([r.margin for r in rows], pa.float64()),
                "bound": pa.array([r.bound for r in rows], pa.float64()),
            }
        )

    def save(self, path: str | PathLike[str]) -> None:
        """Write the plan as JSON: a run with it asks exactly these queries."""
        document, arrays = describe_strategy(self.strategy)
        packed = {name: _pack(array) for name, array in arrays.items()}
        whole = {"tabulae_plan": 1, "spec": self.spec.digest(), "strategy": document, "arrays": packed}
        Path(path).write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | PathLike[str], spec: Spec) -> Plan:
        """Read a plan that :meth:`save` wrote for this spec.

        Raises :class:`~tabulae.errors.ReleaseError` if the file is not a plan, or was made for another spec.
        """
        try:
            whole = json.loads(Path(path).read_text(encoding="utf-8"))
            made_for, document = whole["spec"], whole["strategy"]
            arrays = {name: _unpack(entry) for name, entry in whole["arrays"].items()}
        except (OSError, ValueError, KeyError, TypeError, zlib.error) as error:
            raise ReleaseError(f"{path} is not a plan that `tabulae plan --save` wrote: {error}") from None
        if made_for != spec.digest():
            raise ReleaseError(f"{path} was made for another spec, or the spec was changed since; plan again")
        return cls(spec, read_strategy(document, arrays, spec.domain))


def _pack(array: np.ndarray) -> dict[str, Any]:
    data = base64.b64encode(zlib.compress(array.astype("<i8").tobytes())).decode()
    return {"shape": list(array.shape), "zlib_int64": data}


def _unpack(entry: Mapping[str, Any]) -> np.ndarray:
    data = zlib.decompress(base64.b64decode(entry["zlib_int64"]))
    return np.frombuffer(data, dtype="<i8").astype(np.int64).reshape(entry["shape"])


def plan(spec: Spec | str | PathLike[str]) -> Plan:
    """Choose the strategy for a spec and say how wrong every table will be; no data is opened.

    Arguments:
        spec: a spec, or the path of its TOML document.

    Raises:
        SpecError: the document has mistakes; all are listed.
        Unsupported: the method cannot serve these tables, or asks for more noisy answers than can be kept.

    Privacy:
        Reads no record: a plan is a function of the public spec, and costs nothing.

    >>> import tabulae as tb
    >>> tb.plan("missing.toml")
    Traceback (most recent call last):
    tabulae.errors.SpecError: missing.toml: 1 mistake
      document: cannot be read: No such file or directory
    """
    spec = spec if isinstance(spec, Spec) else read_spec(spec)
    method = spec.method
    strategy = select(
        spec.workload,
        noise=method.noise,
        method=method.select,
        # Units of several rows may differ in how many rows they have: then the total is not public, columns count too.
        neighbours=spec.neighbours if spec.rows_per_unit == 1 else "add-remove",
        objective=spec.targets or method.objective,
        time_limit=method.time_limit,
        seed=method.seed,
    )
    if strategy.rows > MOST_ANSWERS:
        raise Unsupported(
            f"strategy {strategy.method!r} asks for {strategy.rows:,} noisy answers, one for nearly every cell of the "
            f'domain; at most {MOST_ANSWERS:,} are drawn. Choose select = "kron" or "auto", which measure what the '
            "tables need, or declare fewer or coarser attributes"
        )
    if spec.open_budget:
        assert spec.targets is not None
        spec = spec.with_budget(_budget(spec, strategy))
    return Plan(spec, strategy)


def _budget(spec: Spec, strategy: Strategy) -> PrivacyLoss:
    """The smallest budget that meets the spec's targets."""
    assert spec.targets is not None
    return smallest_budget(
        strategy,
        spec.workload,
        spec.targets,
        definition=spec.loss.definition,  # type: ignore[arg-type]
        delta=spec.loss.parameters.get("delta"),
        neighbours=spec.neighbours,
        stability=spec.rows_per_unit,
    )


def _errors(strategy: Strategy, spec: Spec) -> ExpectedError:
    laws = strategy.laws(spec.loss, spec.neighbours, spec.rows_per_unit)
    return error_under(strategy, spec.workload, law_variances(strategy, laws))


def _table_errors(made: Plan) -> list[TableError]:
    spec = made.spec
    chosen = made.expected.tables
    others = {name: _alternative(name, spec) for name in ("identity", "workload")}
    margins = _margins(made)
    return [
        TableError(
            table.name,
            table.rows(spec.domain),
            chosen[table.name],
            margins[table.name],
            others["identity"].get(table.name),
            others["workload"].get(table.name),
            _bound(spec, Workload(spec.domain, [_unweighted(table)])),
            *_judged(made, table, chosen[table.name], margins),
        )
        for table in spec.workload.tables
    ]


def _alternative(method: str, spec: Spec) -> dict[str, float]:
    """Each table's RMSE under a comparison strategy; empty where it cannot be had."""
    try:
        other = baseline(spec.workload, method, spec.method.noise, spec.neighbours)
        return _errors(other, spec).tables
    except (Unsupported, NotEstimable):
        return {}


def _judged(
    made: Plan, table: Table, rmse: float, margins: Mapping[str, float]
) -> tuple[float | None, float | None, bool | None]:
    """The table's target, the confidence that it is for, and whether it is met."""
    targets = made.spec.targets
    if targets is None or targets.squared(table.name) is None:
        return None, None, None
    if table.name in targets.rmse:
        target = float(targets.rmse[table.name])
        return target, None, rmse <= target
    target, level = float(targets.margin[table.name]), targets.level(table.name)
    margin = margins[table.name] if level == made.level else _margins(made, level, [table])[table.name]
    return target, level, within(margin, target)


def _margins(
    made: Plan, level: float | None = None, tables: Sequence[Table] | None = None
) -> dict[str, float]:
    """The widest half-width of each table's intervals at a level."""
    spec, strategy = made.spec, made.strategy
    laws = strategy.laws(spec.loss, spec.neighbours, spec.rows_per_unit)
    info = information(strategy, law_variances(strategy, laws))
    steps = [2.0**-block.exponent for block in strategy.blocks]
    return {
        table.name: float(
            half_widths(
                info.profile(table.operator(spec.domain)), laws, steps, level or made.level
            ).values.max()
        )
        for table in tables or spec.workload.tables
    }


def _bound(spec: Spec, workload: Workload) -> float | None:
    """The better of the bounds that can be computed, at the spec's budget and for the law that is drawn."""
    best = None
    for kind in ("svd", "dual"):
        try:
            value = lower_bound(
                workload, spec.method.noise, budget=spec.loss, kind=kind, neighbours=spec.neighbours
            )
        except (Unsupported, InvalidArgument):
            continue
        # k rows of one unit may stand in one cell: no strategy needs less than k times the noise of one row.
        value *= spec.rows_per_unit * _discreteness(spec)
        best = value if best is None else max(best, value)
    return best


def _discreteness(spec: Spec) -> float:
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
