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

from ..domain import Invariants
from ..errors import (
    InvalidArgument,
    LedgerError,
    Problem,
    ReleaseError,
    SpecError,
    Unsupported,
)
from ..privacy import Ledger, PrivacyLoss
from ..release.folder import write_bytes
from ..release.tables import LEVEL
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
from ._exactness import (
    WITHIN,
    Earlier,
    Exactness,
    exactness,
)
from .smallest import Smallest
from .smallest_tables import budget_for, smallest_of_tables
from .table_errors import (
    TableError,
    error_bound,
    left_to_measure,
    strategy_errors,
    table_errors,
)

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

    @cached_property
    def table_errors(self) -> tuple[TableError, ...]:
        """Expected error by table."""
        return tuple(table_errors(self.spec, self.strategy, self.expected, self.level))

    @cached_property
    def bound(self) -> float | None:
        """An RMSE over all tables together (weighted) that no strategy beats, where one is known."""
        return error_bound(self.spec, self.spec.workload)

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

    def __repr__(self) -> str:
        return f"Plan({self.spec!r}, {self.strategy!r})"

    def _repr_html_(self) -> str:
        from ..notebook import Rows, card

        strategy = f"{self.strategy.method}, {self.strategy.rows:,} noisy answers"
        facts = [
            ("release", self.spec.title),
            ("promise", f"{self.spec.loss!r}, {self.spec.neighbours} one {self.spec.unit}"),
            ("strategy", strategy),
            ("RMSE, all tables", self.rmse),
            ("exact counts", None if self.exact is None else self.exact.stated),
        ]
        errors = ((r.table, r.queries, r.rmse, r.margin, r.bound) for r in self.table_errors)
        headings = ("table", "rows", "RMSE", f"{self.level:.0%} margin", "bound")
        return card("Plan", facts, Rows(headings, errors, len(self.table_errors)))

    def save(self, path: str | PathLike[str]) -> None:
        """Write the plan as JSON, whole or not at all: a run with it asks exactly these queries.

        Raises:
            ReleaseError: the path cannot be a saved plan's; see :func:`check_saved`.
        """
        where = check_saved(path)
        document, arrays = describe_strategy(self.strategy)
        packed = {name: _pack(array) for name, array in arrays.items()}
        whole = {"tabulae_plan": 1, "spec": self.spec.digest(), "strategy": document, "arrays": packed}
        write_bytes(where.resolve(), (json.dumps(whole, indent=1) + "\n").encode())

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
        ReleaseError: it is a folder, lies in none, or is a file that is no saved plan.
    """
    where = Path(path)
    if where.is_dir():
        raise ReleaseError(f"{where} is a folder: name the file to write, {where / 'plan.json'}, say")
    if not where.parent.is_dir():
        raise ReleaseError(f"{where}: there is no folder {where.parent}; make it first, or check the path")
    if where.exists():
        with where.open("rb") as file:
            start = file.read(len(_SAVED))
        if start not in (b"", _SAVED):
            raise ReleaseError(
                f"{where} exists and is no saved plan, so it is not replaced: name another file"
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
    _check_size(spec, strategy)
    if spec.open_budget:
        assert spec.targets is not None
        spec = spec.with_budget(budget_for(spec, strategy, spec.targets))
    return Plan(spec, strategy)


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
