"""What a run says about itself: its promise and its levels as a document, and a page for people."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from ..._version import VERSION
from ...privacy import NoiseLaw, rounded_up
from ...release.write import LEVEL
from .geography import GRF
from .inputs import Inputs

_READING = """
Read it
  Python  import pandas; t1 = pandas.read_csv("t1/t1.csv", sep="|", dtype={"REGION_ID": str, "ITERATION_CODE": str})
          totals = pandas.read_parquet("tables/totals.parquet")
  R       t1 <- read.delim("t1/t1.csv", sep = "|", colClasses = c("character", "character", "character", "integer"))
          totals <- arrow::read_parquet("tables/totals.parquet")
  SQL     SELECT * FROM 'tables/totals.parquet' WHERE region_type = 'STATE' ORDER BY estimate DESC  -- DuckDB
"""
_DROPPED = """\
Below the state, small totals are left out (zero suppression): a group that is missing is small or empty."""
_NOT_DROPPED = "No total is left out: T1 has each group of each region, empty ones, too."


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
                "noise": {
                    "stage_one": _law(level.first),
                    "stage_two": _law(level.second),
                    "total_only": _law(level.whole),
                },
                "suppressed_up_to": dict(zip(("total", "total only"), floors, strict=True)),
            }
        )
    return found


def _law(law: NoiseLaw) -> dict[str, Any]:
    return {
        "law": law.name,
        law.word: str(law.parameter),
        "sd": law.variance_of_law**0.5,
        "margin_95": law.margin("0.95"),
    }


def inputs_document(files: Mapping[str, bytes]) -> list[dict[str, str]]:
    """The public inputs by name and SHA-256; person records are none of them."""
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    return [{"file": name, "sha256": told} for name, told in (digests | {GRF: files[GRF].decode()}).items()]


def readme(inputs: Inputs) -> str:
    """A page for whoever opens the folder."""
    plan, epsilon = inputs.plan.adaptive, inputs.epsilon[0]
    loss = ", ".join(f"{name} {value}" for name, value in plan.loss.parameters.items())
    clamped = "" if inputs.allow_negative else " Counts below 0 were raised to 0."
    drops = any(inputs.plan.left_out(level) for level in plan.levels)
    missing = _DROPPED if drops else _NOT_DROPPED
    over = " and before small totals are left out" if drops else ""
    page = f"""Detailed groups by region, tabulated under differential privacy by tabulae {VERSION}

Promise: {plan.loss.definition}, {loss}, {plan.neighbours} one {plan.unit};
epsilon {rounded_up(epsilon):.4g} at delta {inputs.delta}.
privacy.json has each level's share, noise and thresholds.

t1/t1.csv             the noisy total of each published group: REGION_ID|REGION_TYPE|ITERATION_CODE|COUNT
t2/t2.csv             sex by age of the groups that are large enough; AGESTART and AGEEND are "*" for all ages
tables/totals.*       each group of T1: table chosen, estimate, standard error, {LEVEL:.0%} interval
tables/sex*age*.*     each cell of T2, adjusted so that the cells of a group add up to its estimated total
measurements/         every noisy count as it was drawn, of both stages; measurement.json says with which noise
datapackage.json      the columns of all tables; of each level how many groups got which table
ledger.json           the entry of this release in the ledger
inputs.json           SHA-256 of each public input
SHA256SUMS            check with: sha256sum -c SHA256SUMS

T1 and T2 hold whole numbers with noise: they may be negative, and parts need not add up to wholes.{clamped}
In T1 a group with a table has the sum of its cells.
{missing}
tables/ has the same groups with better estimates; prefer it for analysis.
An interval covers the true count with the stated probability, over the noise{over}.
Lines are sorted by region type, region and iteration.
"""
    return page + _READING
