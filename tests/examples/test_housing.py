"""The runs of 2020 about housing units: production's budgets and shares, and releases that break no constraint."""

from __future__ import annotations

import csv
import shutil
import tomllib
from collections import Counter
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as parquet
import pytest
from benchmarks.units import FOLDERS, RESULTS, RUNS, constraints
from examples.housing.units import CATEGORIES, VACANT, Housing, can_be
from examples.redistricting.state import State

import tabulae as tb
from tabulae.errors import SpecError
from tabulae.spec import read_spec

ROOT = Path(__file__).parents[2]


def spec_of(name: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / f"examples/{name}.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The examples with a small state, and a ledger."""
    folder = tmp_path_factory.mktemp("examples")
    for name in ("redistricting", "housing"):
        shutil.copytree(ROOT / "examples" / name, folder / name)
    State.make(2_000, 100, 2, 8).write(folder / "redistricting")
    Housing.make(folder / "redistricting", 3).write(folder / "housing")
    for name in RUNS:
        shutil.copy(ROOT / f"examples/{name}.toml", folder)
    tb.Ledger.create(folder / "housing.db", 8, "zcdp", neighbours="replace", unit="unit")
    return folder


def test_housing_units_have_the_budget_and_shares_of_the_2020_census() -> None:
    spec = spec_of("housing-units")
    assert Fraction(spec["privacy"]["budget"]) == Fraction(3379, 12343) ** 2
    shares = {"nation": "1/205", "state": "1/205", "county": "7/82", "tract": "364/1025", "block_group": "1759/4100",
              "block": "99/820"}  # fmt: skip
    assert spec["geography"]["shares"] == shares
    assert sum(map(Fraction, shares.values())) == 1
    assert [query["attributes"] for query in spec["geography"]["query"]] == [["h1"]]


def test_the_three_files_are_about_the_same_units(examples: Path) -> None:
    housing, units, households = (
        parquet.read_table(examples / f"housing/{name}.parquet").to_pydict()
        for name in ("housing", "units", "households")
    )
    occupied = Counter(block for block, h1 in zip(*housing.values(), strict=True) if h1 == "Occupied")
    assert occupied == Counter(households["block"])
    kept = [
        (block, min(int(kind), 2)) for block, kind in zip(*units.values(), strict=True) if int(kind) < VACANT
    ]
    tenure = [CATEGORIES["hhtenshort_3lev"].index(label) for label in households["hhtenshort_3lev"]]
    assert Counter(kept) == Counter(zip(households["block"], tenure, strict=True))
    vacant = Counter(block for block, h1 in zip(*housing.values(), strict=True) if h1 == "Vacant")
    assert vacant == Counter(b for b, kind in zip(*units.values(), strict=True) if VACANT <= int(kind) < 11)
    coded = [
        [CATEGORIES[name].index(label) for label in households[name]] for name in ("sex", "hhage", "elderly")
    ]
    assert can_be()[*map(np.array, coded), np.array(households["hhtype"], int)].all()
    for name, labels in CATEGORIES.items():
        assert spec_of("dhc-households")["attributes"][name]["categories"] == list(labels)
        assert set(households[name]) <= set(labels)


def test_the_two_releases_of_dhc_have_the_budget_of_the_2020_census() -> None:
    """Each of the eight levels has the rho of production in both together."""
    specs = [spec_of(name) for name in ("dhc-units", "dhc-households")]
    budgets = [Fraction(spec["privacy"]["budget"]) for spec in specs]
    assert sum(budgets) == Fraction(15401, 2000)
    rho = {
        "nation": "4834",
        "state": "17012",
        "county": "14454",
        "prim": "9712",
        "tract_subset_group": "9712",
        "tract_subset": "16861",
        "group": "4260",
        "block": "160",
    }
    assert all(spec["geography"]["levels"] == list(rho) for spec in specs)
    for level, share in rho.items():
        spent = [
            b * Fraction(spec["geography"]["shares"][level]) for b, spec in zip(budgets, specs, strict=True)
        ]
        assert sum(spent) == Fraction(15401, 2000) * Fraction(share) / 77005
        for spec in specs:
            assert sum(Fraction(query["shares"][level]) for query in spec["geography"]["query"]) == 1


def test_the_recodes_of_units_are_those_of_production() -> None:
    """Housing units or one of 24 types; occupied or vacant; tenures as households have them."""
    maps = {}
    for name in ("tenvacgq", "kind", "occupancy", "tenure"):
        with (ROOT / f"examples/housing/{name}.csv").open(encoding="utf-8", newline="") as file:
            maps[name] = {row["code"]: row["label"] for row in csv.DictReader(file)}
    codes = [f"{i:02d}" for i in range(35)]
    assert all(list(given) == codes for given in maps.values())
    assert [maps["kind"][c] for c in codes] == ["Housing unit"] * 11 + [
        maps["tenvacgq"][c] for c in codes[11:]
    ]
    assert [maps["occupancy"][c] for c in codes[:11]] == ["Occupied"] * 4 + ["Vacant"] * 7
    kept = [*CATEGORIES["hhtenshort_3lev"], "Rented"]
    assert [maps["tenure"][c] for c in codes] == kept + ["Vacant"] * 7 + ["Group quarters"] * 24


def test_types_of_household_are_those_of_production() -> None:
    """522 of them, recodes of as many classes, and its 22 structural zeros: 466,956 of 1,578,528 cells."""
    spec, con = spec_of("dhc-households"), duckdb.connect()
    for name, recode in spec["recodes"].items():
        file = ROOT / f"examples/{recode['map']}"
        con.execute(f"create view {name}_of as from read_csv('{file}', all_varchar = true)")
    classes = {"multig": 2, "coupled": 5, "partner": 12, "couple_by_size": 183}
    for name, count in classes.items():
        found = con.execute(
            f"select count(*), count(distinct class), count(distinct label) from {name}_of"
        ).fetchone()
        assert found == (522, count, count)
    for name in ("sex", "hhage", "elderly"):
        con.execute(f"create table {name}s as select unnest({list(CATEGORIES[name])}) as {name}, "
                    f"unnest(range({len(CATEGORIES[name])})) as {name}_at")  # fmt: skip
    never = " or ".join(f"({zero['where']})" for zero in spec["structural_zero"])
    found = con.execute(f"""select {never} from sexs, hhages, elderlys,
        (select code, elders_of.label elders, partner_of.label partner from elders_of join partner_of using (code))
        order by sex_at, hhage_at, elderly_at, code""").fetchnumpy()
    never_so = np.asarray(next(iter(found.values())))
    assert np.array_equal(never_so, ~can_be().ravel())
    assert never_so.sum() * 2 * 7 * 3 == 466_956
    assert never_so.size * 2 * 7 * 3 == 1_578_528


def test_the_page_has_the_results_of_the_benchmark() -> None:
    page = (ROOT / "docs/methods/topdown.md").read_text(encoding="utf-8")
    with RESULTS.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["run"] for row in rows] == list(FOLDERS)
    for row in rows:
        assert row["violated"] == "0"
        sizes = (f"{int(row[name]):,}" for name in ("cells", "areas", "cpu_seconds"))
        found = (f"{int(row['megabytes'])}", f"{int(row['constraints']):,}", row["violated"])
        errors = (row[f"error_{level}"] for level in ("nation", "county", "tract", "block_group", "block"))
        assert f"| `{row['run']}` | {' | '.join((*sizes, *found, *errors))} |" in page


VACANT_OR_NOT = "vacant and occupied units of a block are those of H1"
TENURES = "households of a block and tenure are the units of that tenure"


@pytest.mark.parametrize(
    ("count", "altered", "table", "rule"),
    [
        pytest.param(2, "h1", "h1", VACANT_OR_NOT, id="two"),
        pytest.param(3, "units", "tenure", TENURES, marks=pytest.mark.long, id="three"),
    ],
)
def test_releases_break_no_constraint(
    examples: Path, tmp_path: Path, count: int, altered: str, table: str, rule: str
) -> None:
    """Each held to the ones before, counted by SQL; and a count that is altered is found."""
    folder, runs = tmp_path / "examples", dict(islice(RUNS.items(), count))
    shutil.copytree(examples, folder)
    for name, made in runs.items():
        release = tb.run(folder / f"{name}.toml", folder / made)
        assert count == 3 or release.verify() == []  # those of three are counted by SQL alone
        found = constraints(folder, name)
        assert {rule: broken for rule, (_, broken) in found.items() if broken} == {}
        assert all(counted for counted, _ in found.values())
    path, last = folder / altered / f"tables/{table}.parquet", [*runs][-1]
    rows = parquet.read_table(path)
    more = pc.call_function("add", [rows["estimate"], pa.scalar(1)])
    parquet.write_table(rows.set_column(rows.column_names.index("estimate"), "estimate", more), path)
    counted, broken = constraints(folder, last)[rule]
    assert broken == counted > 150
    with pytest.raises(SpecError, match=rf"tables/{table}\.parquet was altered"):
        read_spec(folder / f"{last}.toml")
