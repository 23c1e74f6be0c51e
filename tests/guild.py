"""A small release of groups: its records, its file of groups, its spec and its ledger."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import tabulae as tb

SPEC = """
title = "Guilds"

[source]
path = "people.csv"
unit = "person"

[attributes]
town = { column = "TOWN", categories = ["a1", "a2", "b1", "sea"] }
sex = { column = "SEX", categories = ["F", "M"] }
age = { column = "AGE", range = [0, 9] }
first = { column = "ONE", codes = "trades.csv" }
second = { column = "TWO", codes = "trades.csv", null = "other" }

[recodes]
shire = { of = "town", map = "shires.csv" }
age2 = { of = "age", edges = [5] }

[privacy]
definition = "zcdp"
budget = "3"
ledger = "ledger.db"

[detailed]
groups = "groups.csv"
codes = ["first", "second"]
regions = ["nation", "shire", "town"]
nowhere = { shire = ["at sea"] }
tables = [["total"], ["sex"], ["sex", "age2"]]

[[detailed.level]]
region = "nation"
group_level = 1
budget = "1"
thresholds = [20, 100]

[[detailed.level]]
region = "shire"
group_level = 2
budget = "1/2"
thresholds = [20, 100]

[[detailed.level]]
region = "town"
group_level = 2
budget = "1"
thresholds = [20, 100]
"""
TRADES = "code,label\n1,Bakers\n2,Cooks\n3,Tailors\n"
SHIRES = "code,class,label\na1,a,A\na2,a,A\nb1,b,B\nsea,s,at sea\n"
GROUPS = """value,group,level,kind,label,total_only
1,food,1,any,Food,
2,food,1,any,Food,
1,food only,1,alone,Food only,
2,food only,1,alone,Food only,
1,bakers,2,any,Bakers,
2,cooks,2,any,Cooks,
3,tailors,2,any,Tailors,
3,tailors only,2,alone,Tailors only,true
"""
MEMBERS = {
    "food": ("any", "12"),
    "food only": ("alone", "12"),
    "bakers": ("any", "1"),
    "cooks": ("any", "2"),
    "tailors": ("any", "3"),
    "tailors only": ("alone", "3"),
}
Row = tuple[str, str, int, str, str]


def people(count: int, seed: int = 3) -> list[Row]:
    """Town, sex, age and one or two trades of invented people."""
    rng = np.random.default_rng(seed)
    return [
        (
            ("a1", "a2", "b1", "sea")[rng.choice(4, p=[0.5, 0.2, 0.2, 0.1])],
            "FM"[rng.integers(2)],
            int(rng.integers(10)),
            "123"[rng.choice(3, p=[0.7, 0.25, 0.05])],
            "123"[rng.integers(3)] if rng.random() < 0.2 else "",
        )
        for _ in range(count)
    ]


def counted(rows: list[Row]) -> Counter[tuple[str, str, str]]:
    """People by (region type, region, group), record by record: what every release is about."""
    found: Counter[tuple[str, str, str]] = Counter()
    for town, _, _, first, second in rows:
        codes = [code for code in (first, second) if code]
        shire = {"a1": "A", "a2": "A", "b1": "B"}.get(town)
        places = [("nation", "nation"), *([("shire", shire)] if shire else []), ("town", town)]
        for group, (kind, members) in MEMBERS.items():
            if (all if kind == "alone" else any)(code in members for code in codes):
                found.update((place, region, group) for place, region in places)
    return found


def write_guild(folder: Path) -> Path:
    """Write records, public files, spec.toml and a ledger with budget for two releases; returns the spec."""
    lines = [",".join(map(str, row)) for row in people(400)]
    (folder / "people.csv").write_text("TOWN,SEX,AGE,ONE,TWO\n" + "\n".join(lines) + "\n")
    for name, content in (("trades", TRADES), ("shires", SHIRES), ("groups", GROUPS)):
        (folder / f"{name}.csv").write_text(content)
    (folder / "spec.toml").write_text(SPEC)
    tb.Ledger.create(folder / "ledger.db", 5, "zcdp")
    return folder / "spec.toml"


@pytest.fixture
def guild(tmp_path: Path) -> Path:
    """A folder with records, public files, spec.toml and a ledger with budget for two releases; returns the spec."""
    return write_guild(tmp_path)


@pytest.fixture(scope="session")
def guild_release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one release of a guild, to be looked at and never changed."""
    spec = write_guild(tmp_path_factory.mktemp("guild"))
    tb.run(spec, spec.parent / "release")
    return spec.parent / "release"
