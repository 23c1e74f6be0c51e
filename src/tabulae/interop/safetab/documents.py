"""What a run says about itself: its promise and its levels as a document, and a page for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..._version import VERSION
from ...privacy import NoiseLaw, rounded_up
from ...products.groups.levels import TOTAL, TOTAL_ONLY, AdaptivePlan, PopulationLevel
from ...release.folder import file_sha256
from .detail import CONFIDENCE
from .plan import SuppressionRule, Tabulation
from .tables import TABLE_OF_TOTAL, Published

_READING = """
Read it
  Python  import pandas; t1 = pandas.read_csv("t1/t1.csv", sep="|", dtype={"REGION_ID": str, "ITERATION_CODE": str})
          totals = pandas.read_parquet("detail/totals.parquet")
  R       t1 <- read.delim("t1/t1.csv", sep = "|", colClasses = c("character", "character", "character", "integer"))
          totals <- arrow::read_parquet("detail/totals.parquet")
  SQL     SELECT * FROM 'detail/totals.parquet' WHERE region_type = 'STATE' ORDER BY estimate DESC  -- DuckDB
"""
_DROPPED = """\
Below the state, small totals are left out (zero suppression): a group that is missing is small or empty."""
_NOT_DROPPED = "No total is left out: T1 has each group of each region, empty ones, too."


@dataclass(frozen=True)
class Epsilon:
    """An (epsilon, delta) statement about a run, and how it is proven."""

    epsilon: float
    delta: str
    how: str


class Summary:
    """Counts what was published, level by level: all of it public."""

    def __init__(self, plan: AdaptivePlan) -> None:
        self._plan = plan
        self.rows = [0] * len(plan.levels)
        self.tables = [dict.fromkeys(table_names(level), 0) for level in plan.levels]

    def add(self, published: Published) -> None:
        """One piece of the measurements."""
        i, level = published.measurement.level, published.level
        found = {rung: len(published.totals(rung)) for rung in (TOTAL_ONLY, TOTAL)}
        found |= {rung: len(places) for rung, (places, _) in published.measurement.cells.items()}
        for rung, count in found.items():
            name = TABLE_OF_TOTAL.get(rung) or level.ladder.rungs[rung - 1].name
            self.tables[i][name] += count
            self.rows[i] += count

    def document(self) -> list[dict[str, Any]]:
        """T1 rows and groups by table of each level."""
        return [
            {"level": level.name, "t1_rows": rows, "groups_by_table": tables}
            for level, rows, tables in zip(self._plan.levels, self.rows, self.tables, strict=True)
        ]


def table_names(level: PopulationLevel) -> list[str]:
    """What files call the rungs of a level, lowest first."""
    return [*TABLE_OF_TOTAL.values(), *(rung.name for rung in level.ladder.rungs)]


def promise_document(tabulation: Tabulation, epsilon: Epsilon) -> dict[str, Any]:
    """The loss of the whole run, exactly, and as epsilon at a delta."""
    plan = tabulation.plan
    return {
        "version": VERSION,
        "definition": plan.loss.definition,
        "loss": {name: str(value) for name, value in plan.loss.parameters.items()},
        "neighbours": plan.neighbours,
        "unit": plan.unit,
        "epsilon": epsilon.epsilon,
        "delta": epsilon.delta,
        "epsilon_is": epsilon.how,
        "levels": level_documents(tabulation),
    }


def level_documents(tabulation: Tabulation) -> list[dict[str, Any]]:
    """Each level: what it covers, its budget, stability, noise laws and suppression thresholds."""
    found = []
    for level, production, dropped in zip(
        tabulation.plan.levels, tabulation.production, tabulation.suppression, strict=True
    ):
        proven = level.proven
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
                "suppressed_up_to": {"total": dropped.total, "total only": dropped.whole},
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


def inputs_document(files: Sequence[Path]) -> list[dict[str, str]]:
    """The public inputs by name and SHA-256; person records are none of them."""
    return [{"file": path.name, "sha256": file_sha256(path)} for path in files]


def readme(tabulation: Tabulation, epsilon: Epsilon) -> str:
    """A page for whoever opens the folder."""
    plan = tabulation.plan
    loss = ", ".join(f"{name} {value}" for name, value in plan.loss.parameters.items())
    clamped = "" if tabulation.allow_negative else " Counts below 0 were raised to 0."
    drops = any(dropped != SuppressionRule(None, None) for dropped in tabulation.suppression)
    missing = _DROPPED if drops else _NOT_DROPPED
    over = " and before small totals are left out" if drops else ""
    page = f"""Detailed groups by region, tabulated under differential privacy by tabulae {VERSION}

Promise: {plan.loss.definition}, {loss}, {plan.neighbours} one {plan.unit};
epsilon {rounded_up(epsilon.epsilon):.4g} at delta {epsilon.delta}.
privacy.json has each level's share, noise and thresholds.

t1/t1.csv             the noisy total of each published group: REGION_ID|REGION_TYPE|ITERATION_CODE|COUNT
t2/t2.csv             sex by age of the groups that are large enough; AGESTART and AGEEND are "*" for all ages
detail/totals.*       each group of T1: table chosen, estimate, variance, {CONFIDENCE:.0%} interval, both noisy counts
detail/cells.*        each cell of T2, adjusted so that the cells of a group add up to its estimated total
ledger.json           the entry of this release in the ledger
inputs.json           SHA-256 of each public input
SHA256SUMS            check with: sha256sum -c SHA256SUMS

T1 and T2 hold whole numbers with noise: they may be negative, and parts need not add up to wholes.{clamped}
In T1 a group with a table has the sum of its cells.
{missing}
detail/ has the same groups with better estimates; prefer it for analysis.
An interval covers the true count with the stated probability, over the noise{over}.
Lines are sorted by region type, region and iteration.
"""
    return page + _READING
