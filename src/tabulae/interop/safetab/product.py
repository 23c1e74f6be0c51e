"""A run of the Bureau's files: a release of groups whose folder has a program's tables, and what they are."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from os import PathLike
from pathlib import Path
from typing import Any

from ..._run import Life, Step, seal_without_report
from ..._version import VERSION
from ...privacy import NoiseLaw, rounded_up
from ...products.groups.count import GroupCounts
from ...products.groups.levels import PopulationLevel
from ...products.groups.product import GroupsProduct
from ...products.groups.publish import write_groups
from ...products.product import Charged
from ...release.folder import LEDGER, write_bytes, write_json
from ...release.progress import Progress, Say, within
from ...release.read import Release
from ...release.staging import OF
from ...release.write import LEVEL
from ...sources.units import UnitRule
from .geography import GRF, TOTALS
from .inputs import Inputs
from .tables import write_tables

_TABULATED = 0.5  # of the time that all files take: the tables of every kind of release
_READING = """
Read it
  Python  import pandas; rows = pandas.read_csv("FILE", sep="|", dtype={"REGION_ID": str, "ITERATION_CODE": str})
          totals = pandas.read_parquet("tables/totals.parquet")
  R       rows <- read.delim("FILE", sep = "|", colClasses = c(REGION_ID = "character", ITERATION_CODE = "character"))
          totals <- arrow::read_parquet("tables/totals.parquet")
  SQL     SELECT * FROM 'tables/totals.parquet' WHERE region_type = 'STATE' ORDER BY estimate DESC  -- DuckDB
"""
_DROPPED = """\
Below the state, small totals are left out (zero suppression): a group that is missing is small or empty."""
_NOT_DROPPED = "No total is left out: T1 has each group of each region, empty ones, too."
_LISTED = f"A group that {TOTALS} does not list in a region has no row there."


def promise_document(inputs: Inputs) -> dict[str, Any]:
    """The loss of the whole run, exactly, and as epsilon at a delta; and each level's."""
    plan = inputs.plan.adaptive
    epsilon, how = inputs.epsilon
    return {
        "version": VERSION,
        "definition": plan.loss.definition,
        "loss": {name: str(value) for name, value in plan.loss.parameters.items()},
        "neighbours": plan.neighbours,
        "unit": plan.unit,
        "epsilon": epsilon,
        "delta": inputs.delta,
        "epsilon_is": how,
        "levels": level_documents(inputs),
    }


def level_documents(inputs: Inputs) -> list[dict[str, Any]]:
    """Each level: what it covers, its budget, stability, noise laws and suppression thresholds."""
    found = []
    for level, production in zip(inputs.plan.adaptive.levels, inputs.production, strict=True):
        proven, floors = level.proven, inputs.plan.left_out(level) or (None, None)
        found.append(
            {
                "level": level.name,
                "region_type": level.regions.name,
                "iteration_level": level.group_level,
                "regions": level.regions.size,
                "groups": len(level.groups),
                "total_only_groups": int(level.groups.total_only.sum()),
                "budget": str(level.budget.amount),
                "stage_one_share": str(level.stage_one),
                "thresholds": list(level.thresholds),
                "stability": {
                    "used": level.groups_of_a_record,
                    "proven": proven.value,
                    "exact": proven.is_exact,
                    "production": production,
                },
                "noise": {name: _law(law) for name, law in _laws(level).items() if law is not None},
                "suppressed_up_to": dict(zip(("total", "total only"), floors, strict=True)),
            }
        )
    return found


def _laws(level: PopulationLevel) -> dict[str, NoiseLaw | None]:
    return {"stage_one": level.first, "stage_two": level.second, "total_only": level.whole}


def _law(law: NoiseLaw) -> dict[str, Any]:
    return {
        "law": law.name,
        law.word: str(law.parameter),
        "sd": law.variance_of_law**0.5,
        "margin_95": law.margin("0.95"),
    }


def inputs_document(files: Mapping[str, bytes]) -> list[dict[str, str]]:
    """The public inputs by name and SHA-256; the records are none of them."""
    hashed = (GRF, TOTALS)
    digests = {
        name: content.decode() if name in hashed else hashlib.sha256(content).hexdigest()
        for name, content in files.items()
    }
    return [{"file": name, "sha256": told} for name, told in digests.items()]


def readme(inputs: Inputs) -> str:
    """A page for whoever opens the folder."""
    program, plan, epsilon = inputs.program, inputs.plan.adaptive, inputs.epsilon[0]
    loss = ", ".join(f"{name} {value}" for name, value in plan.loss.parameters.items())
    clamped = "" if inputs.allow_negative else " Counts below 0 were raised to 0."
    drops = any(inputs.plan.left_out(level) for level in plan.levels)
    missing = _DROPPED if drops else _NOT_DROPPED if program.two_stages else _LISTED
    over = " and before small totals are left out" if drops else ""
    stages = "both stages" if program.two_stages else "totals and cells"
    about = {
        **program.about,
        "tables/totals.*": f"each published group: table chosen, estimate, standard error, {LEVEL:.0%} interval",
        "measurements/": f"every noisy count as it was drawn, of {stages}; measurement.json says with which noise",
        "datapackage.json": "the columns of all tables; of each level how many groups got which table",
        "ledger.json": "the entry of this release in the ledger",
        "inputs.json": "SHA-256 of each public input",
        "SHA256SUMS": "check with: sha256sum -c SHA256SUMS",
    }
    wide = 2 + max(map(len, about))
    files = "\n".join(f"{file:<{wide}}{what}" for file, what in about.items())
    page = f"""Detailed groups by region, tabulated under differential privacy by tabulae {VERSION}

Promise: {plan.loss.definition}, {loss}, {plan.neighbours} one {plan.unit};
epsilon {rounded_up(epsilon):.4g} at delta {inputs.delta}.
privacy.json has each level's share, noise and thresholds.

{files}

{program.tables} hold whole numbers with noise: they may be negative, and parts need not add up to wholes.{clamped}
A group with a table has the sum of its cells as its total.
{missing}
tables/ has the same groups with better estimates; prefer it for analysis.
An interval covers the true count with the stated probability, over the noise{over}.
Lines are sorted by region type, region and iteration.
"""
    return page + _READING.replace("FILE", f"{program.files[0].path}.csv")


class SafeTabProduct(GroupsProduct):
    """A release of groups, of the Bureau's folders: strict text in, T1 and T2 or T3 and T4 out."""

    def __init__(self, inputs: Inputs) -> None:
        super().__init__(inputs.plan.spec)
        self._inputs, self._planned = inputs, inputs.plan

    def prepare(self, partial: Path, plan_file: str | PathLike[str] | None, say: Say) -> None:
        """Nothing more: the inputs were read to the plan."""

    def count(self, unit: UnitRule | None, memory: str | None) -> AbstractContextManager[GroupCounts]:
        """The records by group; every line is checked."""
        return self._inputs.records.counts(self._planned.adaptive, memory)

    def publish(self, partial: Path, charged: Charged, say: Say) -> None:
        say(Progress("estimating and writing tables"))
        inputs, plan, spec = self._inputs, self._planned, self.spec
        write_groups(
            partial,
            spec,
            plan.adaptive,
            charged,
            plan.level,
            within(say, 0, _TABULATED),
            **{OF: spec.digest()},
        )
        say(Progress(f"writing {inputs.program.tables}", _TABULATED))
        write_tables(partial, plan, inputs.program, allow_negative=inputs.allow_negative)
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
    """Tabulate the records of checked inputs into the folder ``out``; as :func:`tabulae.run`, of which it is one.

    Args:
        inputs: with the ledger that pays; records are checked as they are counted.
        out: the folder to write; it must not exist.
        resume: finish a run that was interrupted, without drawing noise a second time.
        memory: the most that the run may take, such as "8GB".
        say: called with the progress at each step.
        at: called when a step is done; tests stop runs with it.

    Raises:
        InvalidArgument, Unsupported: ``memory`` is no amount, or too little; nothing was spent.
        SpecError: mistakes in the records, all of them; nothing was spent.
        BudgetRefused, LedgerError: the ledger refuses, is missing or altered; nothing was spent.
        ReleaseError: ``out`` exists, cannot be written, or an unfinished run stands in the way.

    Privacy:
        That of :func:`tabulae.run`.
    """
    stops = {} if at is None else {"at": at}
    life = Life(SafeTabProduct(inputs), out, seal=seal_without_report, memory=memory, say=say, **stops)
    return life.release(resume=resume)
