"""Releases of a classification: every code is the sum of those below it, and formats keep what is part of what."""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from pysdmx.io import read_sdmx

import tabulae as tb
from tabulae.export import convert_release

NACE = """\
code,label,parent
A,Farming,
01,Crops and animals,A
01.1,Crops,01
01.4,Animals,01
02,Forestry,A
E,Water and waste,
36,Water,E
36.0,Water,36
38,Waste,E
"""
LEAVES = ("01.1", "01.4", "02", "36.0", "38")
SPEC = """
title = "Workers"
[source]
path = "workers.csv"
[attributes]
sex = { categories = ["F", "M"] }
industry = { codes = "nace.csv", hierarchy = true }
[recodes]
section = { of = "industry", level = 1 }
[privacy]
definition = "zcdp"
budget = "1/2"
ledger = "ledger.db"
[method]
select = "residual"
[[table]]
name = "industries"
attributes = ["sex"]
queries = { industry = "hierarchy" }
totals = ["industry"]
[[table]]
name = "sections"
attributes = ["section"]
totals = true
[[derived]]
name = "share"
sql = "SELECT section, COUNT(*) FILTER (WHERE sex = 'F') / COUNT(*) FROM workers GROUP BY section"
"""
EXACT = """
[[invariant]]
name = "known"
queries = { industry = { levels = [1] } }
reason = "the register's"
"""


@pytest.fixture(
    scope="module", params=["", EXACT, EXACT + "non-negative"], ids=["noisy", "exact", "non-negative"]
)
def release(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tb.Release:
    folder = tmp_path_factory.mktemp("workers")
    draw = np.random.default_rng(5)
    rows = [
        f"{'FM'[draw.integers(2)]},{LEAVES[draw.choice(5, p=[0.5, 0.3, 0.1, 0.1, 0])]}" for _ in range(900)
    ]
    (folder / "workers.csv").write_text("\n".join(["sex,industry", *rows]) + "\n")
    (folder / "nace.csv").write_text(NACE)
    exact, one_sided, _ = request.param.partition("non-negative")
    method = 'select = "residual"\n' + ('estimate = "non-negative"\n' if one_sided else "")
    (folder / "spec.toml").write_text(SPEC.replace('select = "residual"\n', method) + exact)
    tb.Ledger.create(folder / "ledger.db", 1, "zcdp")
    return tb.run(folder / "spec.toml", out=folder / "release")


def by_code(release: tb.Release) -> dict[str, dict[str, dict]]:
    """Sex -> code -> row of the table."""
    with (Path(release.path) / "codes/industry.csv").open(newline="") as file:
        codes = {line["label"]: line["code"] for line in csv.DictReader(file)}
    found: dict[str, dict[str, dict]] = defaultdict(dict)
    for row in release.tables["industries"].to_pylist():
        found[row["sex"]][codes.get(row["industry"], row["industry"])] = row
    return found


def test_every_code_is_the_sum_of_those_below(release: tb.Release) -> None:
    below = {"01": ["01.1", "01.4"], "A": ["01", "02"], "E": ["36", "38"], "36": ["36.0"], "_T": ["A", "E"]}
    for rows in by_code(release).values():
        assert list(rows) == category_codes()
        for code, parts in below.items():
            total = sum(rows[part]["estimate"] for part in parts)
            assert rows[code]["estimate"] == pytest.approx(total, abs=1e-6)
            assert rows[code]["ci_low"] <= rows[code]["estimate"] <= rows[code]["ci_high"]


def test_codes_that_are_exact_say_so(release: tb.Release) -> None:
    exact = bool(release.spec.invariants)
    for row in release.tables["sections"].to_pylist():
        assert (row["obs_status"] == "E") == exact
    if exact:
        table = release.tables["known"].to_pydict()
        assert table["industry"] == ["Farming", "Water and waste"]
        assert table["estimate"] == release.tables["sections"]["estimate"].to_pylist()[:2]


def test_what_is_published_follows_from_the_measurements(release: tb.Release) -> None:
    assert release.verify() == []


def test_a_level_is_asked_for_by_its_recode(release: tb.Release) -> None:
    asked = release.query("SELECT section, COUNT(*) FROM workers GROUP BY section").to_pylist()
    published = release.tables["sections"].to_pylist()
    for answer, row in zip(asked, published[:-1], strict=True):
        assert answer["section"] == row["section"]
        assert answer["estimate"] == pytest.approx(row["estimate"], abs=1e-6)
    assert release.derived["share"]["section"].to_pylist() == ["Farming", "Water and waste"]


PARENTS = {
    "A": None, "01": "A", "01_1": "01", "01_4": "01", "02": "A",
    "E": None, "36": "E", "36_0": "36", "38": "E", "_T": None,
}  # fmt: skip


def test_formats_keep_what_is_part_of_what(release: tb.Release, tmp_path: Path) -> None:
    out = convert_release(release, "sdmx-csv", tmp_path / "sdmx")
    lists = {item.id: item for item in read_sdmx(out / "structure.json", validate=True).get_codelists()}
    written = json.loads((out / "structure.json").read_text())["data"]["codelists"]
    codes = next(each for each in written if each["id"] == "CL_INDUSTRY")["codes"]
    assert {code["id"]: code.get("parent") for code in codes} == PARENTS
    assert [code.id for code in lists["CL_INDUSTRY"].items] == list(PARENTS)
    assert [code.id for code in lists["CL_SECTION"].items] == ["A", "E", "_T"]

    out = convert_release(release, "json-stat", tmp_path / "json")
    category = json.loads((out / "tables/industries.json").read_text())["dimension"]["industry"]["category"]
    assert category["child"] == {"A": ["01", "02"], "01": ["01.1", "01.4"], "E": ["36", "38"], "36": ["36.0"]}
    assert category["index"] == category_codes()
    category = json.loads((out / "tables/sections.json").read_text())["dimension"]["section"]["category"]
    assert "child" not in category

    out = convert_release(release, "csv", tmp_path / "csv")
    with (out / "tables/industries.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["industry_code"] for row in rows[:10]] == category_codes()
    assert (out / "codes/industry.csv").read_text().count("\n") == NACE.count("\n")


def category_codes() -> list[str]:
    return [*(line.split(",")[0] for line in NACE.splitlines()[1:]), "_T"]
