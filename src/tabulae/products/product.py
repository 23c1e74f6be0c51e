"""What every kind of release can do: the verbs that a run, a check and a query call, whichever kind it is.

A product is one folder of :mod:`tabulae.products`, found by the kind of its spec. :mod:`tabulae._run` owns the life of
a release and calls these verbs in order; nothing else knows which product it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from fractions import Fraction
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from ..errors import InvalidArgument, Problem, SpecError, Unsupported
from ..privacy import Charge, Disclosure, Ledger, change_words
from ..release.progress import Say
from ..release.read import Release
from ..release.staging import Writer
from ..release.write import Changes
from ..sources.coding import ColumnCoding
from ..sources.source import RecordSource
from ..sources.units import UnitRule
from ..spec import Spec, read_spec

MILLION = 10**6


@dataclass(frozen=True)
class ResourceEstimate:
    """What a run takes besides the engine that counts its records, about: known before any data.

    In bytes: on the disk stand ``measurements`` (at most) and ``tables`` with their pages, which are published, and
    until then ``work``, what estimates keep; in memory ``memory``. Where how much is measured depends on how many
    records there are, each million of them begun adds at most ``million`` to the measurements. In seconds of one core
    of the machine on which ``benchmarks/costs.py`` ran: ``seconds`` once there is a plan, and ``seconds_of_million``
    more for each million records. Work is counted, such as answers and rows, times what each takes: equal plans have
    equal needs.
    """

    measurements: int
    work: int = 0
    tables: int = 0
    memory: int = 0
    million: int = 0
    seconds: float = 0.0
    seconds_of_million: float = 0.0

    @property
    def disk(self) -> int:
        """All that is on the disk at once, besides what records decide."""
        return self.measurements + self.work + self.tables


@dataclass(frozen=True)
class Charged:
    """What the ledger says of a release that was measured: its entries, and what had been stated exactly before."""

    release_id: str
    entries: list[dict[str, Any]]
    earlier: Sequence[tuple[Charge, Disclosure]]

    @property
    def time(self) -> str:
        """The time that the release says it was made at.

        Privacy:
            A run dates its charge by when it began. When the folder was written depends on how long records were
            counted.
        """
        return next(str(entry["time"]) for entry in self.entries if entry["kind"] == "charge")


class DrawnMeasurements(Protocol):
    """Measurements of one charge, piece by piece as they are drawn; a small release is a stream of one."""

    @property
    def release_id(self) -> str | None:
        """The charge; None for a rehearsal."""
        ...

    def share(self, piece: Any) -> float:
        """Which share of all pieces one is; a function of the plan."""
        ...

    def __iter__(self) -> Iterator[Any]: ...


@dataclass(frozen=True)
class QuickMargins:
    """About the widest half-width of each table's intervals, long before there is a plan; none where nothing is known.

    ``bounds`` says that they are no wider than this.
    """

    widest: Mapping[str, float]
    bounds: bool = False


class Product(Protocol):
    """One kind of release, for one spec.

    Privacy:
        Confidential counts are what ``count`` yields and an argument of ``measure``, of nothing else.
    """

    spec: Spec
    estimates_on_engine: bool
    """Whether estimates run on the engine that counts, so that it is needed when nothing is counted any more."""
    rows_by_area: ClassVar[bool]
    """Whether the first column of a table says of which kind of area its rows are."""
    adds_up: ClassVar[bool]
    """Whether counts of areas are the sums of those within them."""
    words_beside: ClassVar[Mapping[str, tuple[str, ...]]]
    """Of a published table, the columns of words that follow from its key."""

    @staticmethod
    def quick_margins(spec: Spec, like: Any, seconds: float) -> QuickMargins:
        """Margins of a plan that is still to be made, within about so many seconds; public, as the plan is.

        ``like`` is the plan of a spec that differs in its budget alone; None where there is none.
        """
        ...

    @staticmethod
    def plan_like(spec: Spec, like: Any) -> Any:
        """The plan of a spec that differs from that of another plan in its budget alone."""
        ...

    def prepare(self, partial: Path, plan_file: str | PathLike[str] | None, say: Say) -> None:
        """Plan: from what an interrupted run left, from a saved plan, or anew."""

    def check(self, ledger: Ledger) -> None:
        """Refuse, before anything is charged, what could not be published or would promise nothing."""

    def resources(self) -> ResourceEstimate:
        """What the run takes."""
        ...

    def document(self) -> Mapping[str, Any]:
        """The plan as it is kept until the release is sealed."""
        ...

    def stays_disclosed(self) -> str:
        """What remains of a void charge besides what it spent, in words; empty where nothing does."""
        ...

    def disclosures(self) -> list[Disclosure]:
        """What the ledger is told of the counts that are read as they are."""
        ...

    def engine(self, memory: str | None) -> AbstractContextManager[None]:
        """What is held open from counting to estimating."""
        ...

    def count(self, unit: UnitRule | None, memory: str | None) -> AbstractContextManager[Any]:
        """The confidential counts; they live as long as the context."""
        ...

    def measure(self, counts: Any, ledger: Ledger, digest: bytes) -> DrawnMeasurements:
        """The boundary: charge the ledger, then read exact counts and draw noise, piece by piece."""
        ...

    def writer(self, partial: Path) -> Writer:
        """Stores the pieces as they come."""
        ...

    def publish(self, partial: Path, charged: Charged, say: Say) -> None:
        """Estimate from what is stored, and write all files but the report; public, and can be resumed."""

    def measurements(self, release: Release) -> Any:
        """The noisy counts of a release as they were drawn."""
        ...

    def faults(self, release: Release) -> list[str]:
        """What is wrong with the numbers of a release: all of them are made again from its measurements."""
        ...

    def text_faults(self, release: Release) -> list[str]:
        """What is wrong with the texts that only this kind publishes."""
        ...

    def query(self, release: Release, sql: str, areas: Sequence[str], codes: Sequence[str]) -> pa.Table:
        """Answer a statement about counts from the measurements."""
        ...

    def changes(self, earlier: Release, later: Release, table: str) -> Changes:
        """How the counts of a table changed from one release to another."""
        ...


def product_of(spec: Spec) -> Product:
    """The product of a spec, from the folder that bears the name of its kind."""
    return spec.product(spec)


def plan(spec: Spec | str | PathLike[str]) -> Any:
    """Plan a release and say how wrong its counts will be; no data is opened.

    Arguments:
        spec: a spec, or the path of its TOML document.

    Returns:
        For a spec of tables a :class:`~tabulae.products.tables.plan.Plan`, with the strategy chosen; for one with
        ``[detailed]`` a :class:`~tabulae.products.groups.plan.DetailedPlan`, with a budget for each level; for one with
        ``[geography]`` a :class:`~tabulae.products.areas.plan.GeographyPlan`, with the errors of each kind of area.

    Raises:
        SpecError: the document has mistakes; all are listed. Also where its invariants determine every table, or leave
            nobody whom "replace-within-invariants" would protect.
        Unsupported: the method cannot serve these tables, or asks for more noisy answers than can be kept.

    Privacy:
        Reads no record: a plan is a function of the public spec, and costs nothing.

    >>> import tabulae as tb
    >>> tb.plan("missing.toml")
    Traceback (most recent call last):
    tabulae.errors.SpecError: missing.toml: 1 mistake
      document: cannot be read: No such file or directory; check the path
    """
    spec = spec if isinstance(spec, Spec) else read_spec(spec)
    return spec.product.plan(spec)


def errors_table(rows: Iterable[tuple[str, str | None, float, float, float | None]]) -> pa.Table:
    """Expected errors as every plan states them, in counts: ``table, level, rmse, margin, bound``, row by row."""
    names, kinds = ("table", "level", "rmse", "margin", "bound"), (*[pa.string()] * 2, *[pa.float64()] * 3)
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    return pa.table(
        {name: pa.array(each, kind) for name, each, kind in zip(names, columns, kinds, strict=True)}
    )


def widest_margins(errors: pa.Table) -> dict[str, float]:
    """The widest margin of each table of such errors."""
    widest: dict[str, float] = {}
    for row in errors.to_pylist():
        widest[row["table"]] = max(row["margin"], widest.get(row["table"], 0.0))
    return widest


def promise_fact(spec: Spec) -> tuple[str, str]:
    """What notebooks say of a spec's promise."""
    return "promise", f"{spec.loss!r}, {change_words(spec.neighbours, spec.unit)}"


def nothing_to_save(section: str, path: str | PathLike[str]) -> Unsupported:
    """What is said where a plan that follows from a section is to be saved."""
    return Unsupported(
        f"the plan of a spec with [{section}] follows from the spec: {path} would add nothing to it"
    )


def no_saved_plan(section: str) -> InvalidArgument:
    """What is said where such a plan is to be read from a file."""
    return InvalidArgument(
        f"the plan of a spec with [{section}] follows from the spec: run it without --plan"
    )


def no_changes(kind: str) -> Unsupported:
    """What is said where releases of a kind are to be compared."""
    return Unsupported(
        f"changes between releases of {kind} are not computed. Take the difference of two numbers yourself: their "
        "noises are independent, so that its standard error is the root of the sum of the squares of theirs"
    )


def refuse_areas(release: Release, areas: Sequence[str], codes: Sequence[str]) -> None:
    """Refuse a question about areas, of a release that has none."""
    if areas or codes:
        raise InvalidArgument(
            f"{release.path} has no areas: its tables are of the whole; ask without areas and codes"
        )


def row_key(spec: Spec, ledger: Ledger) -> bytes:
    """The key that decides which rows of a unit are counted, where it has more than the spec allows.

    It is derived from the ledger's own secret and the spec's digest: whoever resumes the run with that ledger
    counts the same rows, and it is written nowhere.

    Privacy:
        The promise does not rest on the key: for every key, known or not, a unit changes at most
        ``rows_per_unit`` of the rows counted. Its secrecy keeps the choice out of anybody's hands.
    """
    return ledger.derive(b"rows of a unit\n" + bytes.fromhex(spec.digest()))


def unit_rule(spec: Spec, key: bytes) -> UnitRule | None:
    """Which rows of a unit are counted, where it has more than the spec allows; None where each row is a unit.

    Privacy:
        As :func:`row_key` says, for every key.
    """
    if spec.unit_id is None:
        return None
    told = None if spec.left_out is None else spec.left_out.at_most
    return UnitRule(spec.unit_id, spec.rows_per_unit, key, told)


def rules_of(spec: Spec) -> dict[str, ColumnCoding]:
    """Attribute -> the column that it is read from, as counting takes it."""
    decimal = spec.source.dialect.decimal
    return {
        name: ColumnCoding(
            c.name,
            c.unknown,
            c.null,
            decimal,
            made=c.made,
            clamp=c.clamp,
            fold=c.fold,
            from_records=c.from_records,
        )
        for name, c in spec.columns.items()
    }


@dataclass(frozen=True)
class RowBoundCost:
    """What another bound on the rows of one unit would cost: factors on what the plan states.

    ``noise`` is that of every standard error, at the same budget; ``budget`` that of the budget at which errors stay,
    None where it is no power of the first (approximate differential privacy).
    """

    rows: int
    noise: Fraction
    budget: Fraction | None


_POWER = {"pure": 1, "zcdp": 2}  # of the rows of a unit, in the budget for given noise
_BOUNDS = [m * 10**e for e in range(7) for m in (1, 2, 5)]


def row_bound_costs(spec: Spec) -> tuple[RowBoundCost, ...]:
    """What bounds near the spec's own cost, its own among them with factors 1; nothing without a ``unit_id``.

    k rows of one unit may stand in one cell, so that noise is k times as wide as for one: a bound of j in place of k
    multiplies standard errors by j / k, and the budget for the same errors by j / k (pure) or its square (zcdp). Where
    units are replaced that holds among bounds above 1 only, for a single row can only be exchanged: 1 is left out, and
    nothing is said where it is the spec's own. Where only some records are counted, it may also come or go.

    Privacy:
        A function of the public spec: nobody learns how many rows any unit has.
    """
    neighbours, own, fewest = spec.change
    least = 1 if neighbours == "add-remove" else 1 + fewest
    if spec.unit_id is None or own < least or spec.domain.seats is not None:
        return ()
    near = {least, own, *(bound for bound in _BOUNDS if own <= 10 * bound <= 100 * own and bound > least)}
    power = _POWER.get(spec.loss.definition)
    factors = [(rows, Fraction(rows, own)) for rows in sorted(near)]
    return tuple(RowBoundCost(rows, each, None if power is None else each**power) for rows, each in factors)


def records_of(spec: Spec) -> RecordSource:
    """Where the records of a spec are; a published copy names none, and is refused."""
    given = spec.source
    if given.path is None and given.url is None:
        problem = Problem(
            "source.path", "is missing: this is a published copy; say where the records are with --source"
        )
        raise SpecError([problem], str(spec.path or "spec"))
    return given
