"""A release as a fold of rounds: the only place that joins records, noise and estimates."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .errors import Problem, SpecError
from .estimation import Estimate
from .estimation import least_squares as estimate
from .measurement import Measurement
from .privacy import (
    Ledger,
    PrivacyLoss,
    RandomBits,
)
from .products.tables.count import VECTOR_LIMIT, Counts, tabulate
from .products.tables.measure import measure
from .products.tables.plan import Plan
from .sources.coding import ColumnRule
from .sources.source import Source as Records
from .sources.units import UnitRule
from .spec import Spec
from .strategy import Strategy, strategy_digest

_PROGRAM, _VECTORS = 350 * 10**6, 6  # bytes of libraries; how many vectors are held at once


@dataclass(frozen=True)
class Round:
    """One step of measuring: from what is public so far, the strategy to ask next, and what it may cost."""

    choose: Callable[[tuple[Measurement, ...]], Strategy]
    loss: PrivacyLoss


def rounds(plan: Plan) -> tuple[Round, ...]:
    """The rounds of a plan: one, for a method that is fixed before data is seen."""
    return tuple(Round(lambda done: plan.strategy, loss) for loss in plan.budgets)


@dataclass(frozen=True, eq=False, repr=False)
class Prepared:
    """A plan whose records are counted: all that is left is to charge, measure and estimate.

    ``digest`` says what makes two runs the same release: spec, chosen strategy and data. It depends on the
    confidential counts and goes to the ledger only, which stores a keyed hash of it.
    """

    plan: Plan
    digest: bytes
    _counts: Counts

    def measure(self, ledger: Ledger | None, source: RandomBits | None = None) -> tuple[Measurement, ...]:
        """Run the rounds: each strategy is chosen from public measurements, charged, then measured.

        Without a ledger this is a rehearsal, which no release accepts.

        Privacy:
            Sequential composition of the rounds' losses, each charged to the ledger before its noise is drawn
            (see :func:`tabulae.measure`). The counts have at most ``rows_per_unit`` rows of any unit: by
            truncation where the spec has a ``unit_id``, else on the spec's word; the noise is for so many.
            Counts of the spec's invariants are read as they are, outside that guarantee, once the same entry of the
            ledger says which and why.
        """
        if ledger is not None:
            self.plan.spec.check_spendable()
        done: tuple[Measurement, ...] = ()
        for step in rounds(self.plan):
            done += (
                measure(
                    self._counts,
                    step.choose(done),
                    step.loss,
                    neighbours=self.plan.spec.neighbours,
                    ledger=ledger,
                    source=source,
                    unit=self.plan.spec.unit,
                    title=self.plan.spec.title or "release",
                    digest=self.digest,
                    stability=self.plan.spec.rows_per_unit,
                    reasons=[given.reason for given in self.plan.spec.invariants],
                ),
            )
        return done


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
    return None if spec.unit_id is None else UnitRule(spec.unit_id, spec.rows_per_unit, key)


def rules_of(spec: Spec) -> dict[str, ColumnRule]:
    """Attribute -> the column that it is read from, as counting takes it."""
    return {name: ColumnRule(c.name, c.unknown, c.null) for name, c in spec.columns.items()}


def prepare(plan: Plan, key: bytes | None = None, run: bytes = b"", memory: str | None = None) -> Prepared:
    """Count the spec's records by cell of its public domain, at most ``rows_per_unit`` of each unit.

    ``key`` (32 bytes, secret; see :func:`row_key`) decides which rows of a unit are counted where there are
    more; None draws a fresh one, so that another call counts other rows. It is used for specs with a ``unit_id``.
    ``run`` tells apart runs of the same spec over the same records, so that none resumes another's charge.
    ``memory`` is the most that an engine of our own takes, such as "4GB".

    Raises :class:`~tabulae.errors.DataError` where the records do not fit the domain.

    Privacy:
        The counts stay inside the result, which shows and saves nothing of them.
    """
    spec = plan.spec
    records = records_of(spec)
    unit = unit_rule(spec, key or os.urandom(32))
    counts = tabulate(records, spec.domain, rules_of(spec), unit, memory=memory)
    parts = (bytes.fromhex(spec.digest()), strategy_digest(plan.strategy), counts.fingerprint(), run)
    digest = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).digest()
    return Prepared(plan, digest, counts)


def vector_memory(plan: Plan) -> int:
    """About how many bytes a run over the domain's cells takes besides the engine that counts its records.

    Counts, answers and estimates are vectors of 8 bytes a cell or row, of which some are held together.
    """
    cells = min(plan.spec.domain.size, VECTOR_LIMIT)
    return _PROGRAM + 8 * _VECTORS * max(cells, plan.strategy.rows)


def records_of(spec: Spec) -> Records:
    """Where the records of a spec are; a published copy names none, and is refused."""
    given = spec.source
    if given.path is None and given.url is None:
        problem = Problem(
            "source.path", "is missing: this is a published copy; say where the records are with --source"
        )
        raise SpecError([problem], str(spec.path or "spec"))
    return Records(given.path, given.kind, given.table, given.engine, given.url)


def rehearse(plan: Plan) -> Estimate:
    """Estimates from made-up measurements: whether everything public can be computed, before it is paid.

    They contradict each other, as real ones do, so that a solver that takes steps has steps to take; the exact counts
    are those of made-up records, so that they do not.
    """
    strategy, spec = plan.strategy, plan.spec
    laws = strategy.laws(spec.loss, spec.neighbours, spec.rows_per_unit)
    values = np.zeros(strategy.rows, dtype=np.int64)
    values[::5], values[2::5] = 1, -1
    nobody = _made_up(plan)
    exact = tuple(nobody.answer(table.operator(spec.domain)) for table in strategy.invariants)
    done = Measurement(strategy, values, laws, spec.loss, spec.neighbours, rehearsal=True, exact=exact)
    return reconstruct(plan, (done,))


def _made_up(plan: Plan) -> Counts:
    """Counts of people who do not exist: every category of every attribute has some of them."""
    shape = plan.spec.domain.shape
    people = np.arange(2 * max(shape) + 1)
    return Counts.from_records(plan.spec.domain, np.stack([people % size for size in shape], axis=1))


def reconstruct(plan: Plan, done: tuple[Measurement, ...]) -> Estimate:
    """Estimates from the measurements: public, repeatable years later."""
    return estimate(done[0], method=plan.spec.method.estimate)
