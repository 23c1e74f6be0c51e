"""Plans: which queries a release will ask and how wrong its tables will be, before any data is opened."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ..errors import InvalidArgument, LedgerError, Problem, ReleaseError, SpecError, Unsupported
from ..estimation import smallest_budget
from ..privacy import Ledger, PrivacyLoss
from ..spec import Spec, read_spec
from ..strategy import (
    ExpectedError,
    Strategy,
    Targets,
    describe_strategy,
    has_neighbours,
    read_strategy,
    select,
)
from ..tables import Invariants
from ._exactness import WITHIN, Earlier, Exactness, exactness
from .table_errors import LEVEL, TableError, error_bound, left_to_measure, strategy_errors, table_errors

MOST_ANSWERS = 50_000_000
"""Noisy answers that one strategy may ask for: they are drawn, kept and published."""


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
        return tuple(table_errors(self.spec, self.strategy, self.expected, self.level))

    @cached_property
    def bound(self) -> float | None:
        """An RMSE over all tables together (weighted) that no strategy beats, where one is known."""
        return error_bound(self.spec, self.spec.workload)

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
        exact = [given.table for given in spec.invariants]
        return cls(spec, read_strategy(document, arrays, spec.domain, exact))


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
    exact = _invariants(spec)
    method = spec.method
    strategy = select(
        spec.workload,
        noise=method.noise,
        method=method.select,
        # Units of several rows may differ in how many rows they have: then the total is not public, columns count too.
        neighbours=spec.neighbours if spec.rows_per_unit == 1 else "add-remove",
        invariants=() if exact is None else exact.tables,
        objective=_targets_left(spec, exact) or method.objective,
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
