"""Small specs, one for every mechanism, whose records are invented by the audit; some of its checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.passages import changed

from tabulae.audit import Check
from tabulae.audit._audit import derived, epsilon_proven, replayed
from tabulae.products.tables.plan import Plan

DEFINITIONS = {
    "pure": 'definition = "pure"\nbudget = "1"',
    "approx gaussian": 'definition = "approx"\nbudget = "1"\ndelta = "1e-6"',
    "approx laplace": 'definition = "approx"\nbudget = "1"\ndelta = "1e-6"',
    "zcdp": 'definition = "zcdp"\nbudget = "1/2"\ndelta = "1e-10"',
}
METHODS = ("identity", "workload", "kron", "opt0", "union")
SOURCES = {
    "csv": 'path = "people.csv"',
    "parquet": 'path = "people.parquet"',
    "duckdb": 'path = "people.duckdb"\ntable = "census.people"',
}

_TEXT = """
[source]
{source}
unit = "person"
{units}

[attributes]
sex = {{ column = "SEX", categories = ["F", "M, or other"] }}
age = {{ column = "AGE", range = [0, 9] }}
race = {{ column = "RACE", categories = ["02", "b", "c d"], unknown = "other", null = "other" }}
visits = {{ range = [1, 2], unknown = "other" }}

[recodes]
young = {{ of = "age", edges = [3, 6] }}

[privacy]
{definition}
neighbours = "{neighbours}"
ledger = "absent.db"

[[table]]
name = "sex_by_age"
queries = {{ sex = "identity", age = "{queries}" }}

[[table]]
name = "race_by_young"
attributes = ["race", "young"]
weight = 1.5

[[table]]
name = "some"
sql = "SELECT sex, COUNT(*) FROM people WHERE age < 5 OR race = 'b' GROUP BY sex"

[method]
select = "{method}"
{noise}
"""


def write_spec(
    folder: Path,
    *,
    definition: str = "zcdp",
    method: str = "identity",
    neighbours: str = "add-remove",
    source: str = "csv",
    units: str = "",
    queries: str = "ranges",
) -> Path:
    """A spec in ``folder``; neither its records nor its ledger exist."""
    noise = f'noise = "{definition.split()[1]}"' if definition.startswith("approx") else ""
    text = _TEXT.format(
        source=SOURCES[source],
        units=units,
        definition=DEFINITIONS[definition],
        neighbours=neighbours,
        method=method,
        noise=noise,
        queries=queries,
    )
    path = folder / "spec.toml"
    path.write_text(text)
    return path


def told_of_rows_left_out(spec: Path) -> Path:
    """The same spec, with a third of its budget for how many rows are left out."""
    ledger = 'ledger = "absent.db"'
    changed(spec, (ledger, f'{ledger}\nleft_out = {{ share = "1/3", at_most = 2 }}'))
    return spec


def fails(plan: Plan, *names: str, passes: Sequence[str] = (), seconds: float = 0.02) -> Mapping[str, Check]:
    """These checks of an audit: those that are named must fail, or pass. All that are derived, where one is asked for.

    A whole audit counts fifteen inputs, and a fault is told by one or two. That it makes every check: `test_clean.py`.
    """
    with replayed(plan) as replay:
        counted = replay.checks()
        found = {name: check() for name, check in counted.items() if name in (*names, *passes)}
        if found.keys() < {*names, *passes} - {"epsilon"}:
            found |= {check.name: check for check in derived(replay)}
        if "epsilon" in names:
            found["epsilon"] = epsilon_proven(replay, seconds)
    assert not any(found[name].passed for name in names), found
    assert all(found[name].passed for name in passes), found
    return found
