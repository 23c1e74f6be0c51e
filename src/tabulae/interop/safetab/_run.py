"""A run of the Bureau's files: check, charge the ledger once, measure, write a folder, put it in place in one step."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import BudgetRefused, DataError, LedgerError, Problem, ReleaseError, TabulaeError
from ...privacy import Ledger
from ...products.groups.levels import AdaptivePlan, GroupMeasurement, epsilon_of
from ...products.groups.measure import tabulate_groups
from ...release.folder import contents, sync_folder, write_bytes, write_json, write_sums
from ...release.staging import disk_reason, partial_folder, run_name, workplace
from ...sources.memory import engine_memory, read_memory
from ._check import Inputs, check_persons, check_public, source
from .detail import Detail
from .documents import Epsilon, Summary, inputs_document, promise_document, readme
from .faults import Faults
from .persons import open_group_lines
from .plan import StabilityRule
from .tables import Published, Tables

Say = Callable[[str], None]
_TITLE = "detailed groups (T1 and T2)"
_REST = 2_400 * 10**6  # bytes: what sorting the tables takes, and the program


@dataclass(frozen=True, eq=False)
class Done:
    """A folder that was published."""

    path: Path
    release_id: str
    inputs: Inputs
    epsilon: Epsilon
    summary: Summary


def run(
    params: Path,
    data: Path,
    out: Path,
    ledger: Path,
    *,
    rule: StabilityRule,
    delta: str,
    say: Say,
    warn: Callable[[Problem], None],
    memory: str | None = None,
) -> Done:
    """Tabulate the persons of ``data`` by the maps and budgets of ``params`` into the folder ``out``.

    Args:
        params: the folder with config.json and the four maps.
        data: the folder with person-records.txt and GRF-C.txt.
        out: the folder to write; it must not exist.
        ledger: where the loss is charged, once.
        rule: which stability the noise is sized for.
        delta: at which epsilon is stated.
        say: called with a line of progress at each step.
        warn: called at once with what the user must hear of even if the run fails: a charge that an earlier run lost.
        memory: the most that the run may take, such as "8GB".

    Raises:
        InvalidArgument, Unsupported: ``memory`` is no amount, or too little; nothing was spent.
        SpecError: mistakes in the inputs, all of them; nothing was spent.
        BudgetRefused, LedgerError: the ledger refuses, is missing or altered; nothing was spent.
        ReleaseError: ``out`` exists or cannot be written; where the ledger was charged, that charge is void.

    Privacy:
        The folder is the measurements (:func:`~tabulae.products.groups.measure.measure_groups`, charged before noise is
        drawn) and post-processing of them and of public files.
    """
    _check_out(out)
    engine = engine_memory(None if memory is None else read_memory(memory), _REST)
    say("checking the inputs")
    faults = Faults()
    inputs = check_public(params, data, rule, faults, persons=False)
    faults.stop(source(params, data))
    assert inputs is not None
    plan = inputs.tabulation.plan
    opened = Ledger.open(ledger)
    check_ledger(opened, plan)
    stated = epsilon_at(plan, delta)
    about = _about(inputs, stated)
    summary = Summary(plan)
    cut_off = partial_folder(out).exists()
    with workplace(out, resume=False) as partial:
        digest = _digest(out)
        if cut_off:  # else a charge that is not settled may be that of a folder which is published
            _void_lost(opened, digest, out, warn)
        try:
            with _void_on_failure(opened) as paid:
                _tabulate(partial, inputs, opened, digest, paid, summary, say, engine)
                _describe(partial, about, summary, opened, paid.release_id)
                _rename(partial, out)
        except DataError:
            check_persons(inputs.persons, inputs.layout, faults)
            faults.stop(source(params, data))
            raise
    _settle(opened, paid.release_id, out)
    return Done(out, paid.release_id, inputs, stated, summary)


def _settle(ledger: Ledger, release_id: str, out: Path) -> None:
    """Record that the folder is in its place: what fails from here on takes nothing back."""
    try:
        ledger.settle(release_id, "published")
        sync_folder(out.parent)
    except (LedgerError, OSError) as error:
        reason = disk_reason(error) if isinstance(error, OSError) else str(error)
        raise ReleaseError(
            f"{out} is published and complete, but what comes after failed: {reason}. The ledger may call release "
            f"{release_id} charged, and not published; what it spent is the same"
        ) from None


@dataclass
class _Paid:
    """The charge of a run, once it is made."""

    release_id: str = ""


def _digest(out: Path) -> bytes:
    """What tells runs apart: where they publish. Goes to a keyed hash only."""
    return hashlib.sha256(b"T1 and T2\n" + run_name(out)).digest()


def _void_lost(ledger: Ledger, digest: bytes, out: Path, warn: Callable[[Problem], None]) -> None:
    """Settle what a killed run had charged for this place, whose noise is gone, and tell it."""
    for charge in ledger.find(digest):
        if charge.state == "charged":
            ledger.settle(charge.release_id, "void")
            paid = ", ".join(f"{name} {value}" for name, value in charge.loss.parameters.items())
            words = (
                f"an earlier run for {out} was cut off after its charge of {paid} ({charge.release_id}): the charge "
                "stays spent and is void from now on, and this run is charged anew"
            )
            warn(Problem(str(ledger.path), words))


def _tabulate(
    partial: Path,
    inputs: Inputs,
    ledger: Ledger,
    digest: bytes,
    paid: _Paid,
    summary: Summary,
    say: Say,
    memory: str | None,
) -> None:
    """Charge, measure and write the tables."""
    plan = inputs.tabulation.plan
    with (
        Tables(partial, allow_negative=inputs.tabulation.allow_negative) as tables,
        Detail(partial) as detail,
    ):
        say("counting the records")
        with open_group_lines(inputs.persons, inputs.layout, plan, memory=memory) as counts:
            sink = _sink(inputs, tables, detail, summary, say)
            done = tabulate_groups(counts, plan, [sink], ledger=ledger, title=_TITLE, digest=digest)
            paid.release_id = str(done.release_id)
        say("writing the tables")
        tables.finish()
        detail.finish()


def _check_out(out: Path) -> None:
    """Refuse a place that cannot take the folder, before the inputs are read."""
    if os.path.lexists(out):
        raise ReleaseError(f"{out} exists: a release is written once; name another folder with --out")
    if not out.parent.is_dir():
        raise ReleaseError(f"{out.parent} is not a folder: make it first, or name another one with --out")
    if not os.access(out.parent, os.W_OK | os.X_OK):
        raise ReleaseError(f"this user may not write in {out.parent}: name another folder with --out")


def epsilon_at(plan: AdaptivePlan, delta: str) -> Epsilon:
    """The tightest proven epsilon of a plan at delta."""
    epsilon, how = epsilon_of(plan, delta)
    return Epsilon(epsilon, delta, how)


def check_ledger(ledger: Ledger, plan: AdaptivePlan) -> None:
    """Refuse a ledger of another kind, or with too little left, before the records are counted.

    Raises:
        BudgetRefused: with the command that makes a fitting one.

    Privacy:
        Nothing is spent; the charge itself checks again.
    """
    wanted = (plan.loss.definition, plan.neighbours, plan.unit)
    found = (ledger.definition, ledger.neighbours, ledger.unit)
    amount = str(plan.loss.amount)
    make = (
        f"tabulae ledger init NEW --budget {amount} --definition {wanted[0]} --neighbours {wanted[1]} "
        f"--unit {wanted[2]}"
    )
    if wanted != found:
        raise BudgetRefused(
            f"the ledger {ledger.path} is of kind {', '.join(found)}, and this run is {', '.join(wanted)}; "
            f"use a ledger of that kind: {make}"
        )
    if plan.loss.amount > ledger.remaining:
        raise BudgetRefused(
            f"this run costs {amount} and {ledger.remaining} of {ledger.budget.amount} is left in {ledger.path}; "
            "lower the budgets in config.json, or have the budget decided anew and start another ledger"
        )


def _sink(
    inputs: Inputs, tables: Tables, detail: Detail, summary: Summary, say: Say
) -> Callable[[GroupMeasurement], None]:
    """What takes each piece of the measurements."""

    def sink(measurement: GroupMeasurement) -> None:
        published = Published(inputs.tabulation, measurement)
        regions, last = published.level.regions, measurement.first + measurement.regions
        say(f"measuring {published.level.name}: {last:,} of {regions.size:,} regions")
        for writer in (tables, detail, summary):
            writer.add(published)

    return sink


def _about(inputs: Inputs, stated: Epsilon) -> dict[str, Any]:
    """What the run is, in words and documents, made before it is paid for."""
    return {
        "README.txt": readme(inputs.tabulation, stated),
        "privacy.json": promise_document(inputs.tabulation, stated),
        "inputs.json": inputs_document(inputs.files),
    }


def _describe(
    partial: Path, about: dict[str, Any], summary: Summary, ledger: Ledger, release_id: str
) -> None:
    """Everything that is no table, and the checksums over all."""
    for name, content in about.items():
        if isinstance(content, str):
            write_bytes(partial / name, content.encode())
        else:
            write_json(partial / name, content)
    write_json(partial / "summary.json", summary.document())
    write_json(partial / "ledger.json", ledger.entries(release_id))
    write_sums(partial)
    for name in contents(partial):
        with (partial / name).open("rb") as file:
            os.fsync(file.fileno())
    sync_folder(partial)


@contextlib.contextmanager
def _void_on_failure(ledger: Ledger) -> Iterator[_Paid]:
    """Where anything fails after the charge, mark it void, and say so."""
    paid = _Paid()
    try:
        yield paid
    except BaseException as error:
        if not paid.release_id:
            raise
        try:
            ledger.settle(paid.release_id, "void")
        except (LedgerError, OSError):
            mark = "could not be marked void in the ledger, but stays spent"
        else:
            mark = "is void and stays spent"
        if not isinstance(error, Exception):
            raise
        told = str(error)
        if not isinstance(error, TabulaeError):
            reason = disk_reason(error) if isinstance(error, OSError) else type(error).__name__
            told = f"the tables could not be written: {reason}"
        words = f"{told}. Nothing was published; the charge {paid.release_id} {mark}"
        raise ReleaseError(words) from None


def _rename(partial: Path, out: Path) -> None:
    try:
        partial.rename(out)
    except OSError as error:
        raise ReleaseError(f"{out} appeared while the release was made: {error.strerror or error}") from None
