"""A run of the Bureau's files: a release of groups, whose folder has T1 and T2, and a page of words for a report."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from os import PathLike
from pathlib import Path

from ..._run import Life, Step, seal_without_report
from ...products.groups.count import GroupCounts
from ...products.groups.product import GroupsProduct
from ...products.groups.publish import write_groups
from ...products.product import Charged
from ...release.folder import LEDGER, write_bytes, write_json
from ...release.read import Release
from ...release.staging import OF, Say
from ...sources.units import UnitRule
from .documents import inputs_document, promise_document, readme
from .inputs import Inputs
from .tables import write_tables


class SafeTabProduct(GroupsProduct):
    """A release of groups, of the Bureau's folders: strict text in, T1 and T2 out."""

    def __init__(self, inputs: Inputs) -> None:
        super().__init__(inputs.plan.spec)
        self._inputs, self._planned = inputs, inputs.plan

    def prepare(self, partial: Path, plan_file: str | PathLike[str] | None, say: Say) -> None:
        """Nothing more: the inputs were read to the plan."""

    def count(self, unit: UnitRule | None, memory: str | None) -> AbstractContextManager[GroupCounts]:
        """The person records by group; every line is checked."""
        return self._inputs.records.counts(self._planned.adaptive, memory)

    def publish(self, partial: Path, charged: Charged, say: Say) -> None:
        say("estimating and writing tables")
        inputs, plan, spec = self._inputs, self._planned, self.spec
        write_groups(partial, spec, plan.adaptive, charged, plan.level, **{OF: spec.digest()})
        say("writing T1 and T2")
        write_tables(partial, plan, allow_negative=inputs.allow_negative)
        write_json(partial / LEDGER, charged.entries)
        write_json(partial / "privacy.json", promise_document(inputs))
        write_json(partial / "inputs.json", inputs_document(spec.files))
        write_bytes(partial / "README.txt", readme(inputs).encode())


def run(
    inputs: Inputs,
    out: Path,
    *,
    resume: bool = False,
    memory: str | None = None,
    say: Say,
    at: Callable[[Step], None] | None = None,
) -> Release:
    """Tabulate the persons of checked inputs into the folder ``out``; as :func:`tabulae.run`, of which it is one.

    Args:
        inputs: with the ledger that pays; person records are checked as they are counted.
        out: the folder to write; it must not exist.
        resume: finish a run that was interrupted, without drawing noise a second time.
        memory: the most that the run may take, such as "8GB".
        say: called with a line of progress at each step.
        at: called when a step is done; tests stop runs with it.

    Raises:
        InvalidArgument, Unsupported: ``memory`` is no amount, or too little; nothing was spent.
        SpecError: mistakes in the person records, all of them; nothing was spent.
        BudgetRefused, LedgerError: the ledger refuses, is missing or altered; nothing was spent.
        ReleaseError: ``out`` exists, cannot be written, or an unfinished run stands in the way.

    Privacy:
        That of :func:`tabulae.run`.
    """
    stops = {} if at is None else {"at": at}
    life = Life(SafeTabProduct(inputs), out, seal=seal_without_report, memory=memory, say=say, **stops)
    return life.release(resume=resume)
