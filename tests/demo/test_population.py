"""The built-in population: the same everywhere, and like people."""

from __future__ import annotations

import csv
import hashlib
import tomllib
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.each import each

from tabulae.demo import people as shares
from tabulae.demo import population, write_demo, write_population
from tabulae.domain import Domain
from tabulae.errors import InvalidArgument, ReleaseError
from tabulae.products.tables.count import tabulate
from tabulae.sources.coding import ColumnCoding
from tabulae.sources.source import RecordSource
from tabulae.spec import read_spec

NAMES = ["county", "age", "sex", "race", "ethnicity", "relationship", "quarters"]


People = dict[str, np.ndarray]


def columns_of(table: pa.Table) -> People:
    """Each column as an array of its values."""
    plain = {name: pa.int16() if name == "age" else pa.string() for name in table.column_names}
    return {name: np.asarray(table.column(name).cast(plain[name])).astype(object) for name in plain}


@pytest.fixture(scope="module")
def people() -> People:
    return columns_of(population())


def test_the_same_people_on_every_machine(people: People) -> None:
    """The digest was computed once; a change of it changes every published figure of the demo."""
    assert list(people) == NAMES
    digest = hashlib.sha256()
    for column in people.values():
        assert column.shape == (200_000,)
        digest.update("\n".join(map(str, column)).encode())
    assert digest.hexdigest() == "78667b232f625e3980f6e00539684576112f174a3f0690ab1d8937718742be00"


@each("number", [0, 1, 2, 35, 36, 37, 999])
@each("seed", [0, 1])
def test_any_number_of_people(number: int, seed: int) -> None:
    assert population(number, seed).num_rows == number


def test_numbers_that_make_no_sense() -> None:
    for arguments in ((-1, 0), (1, -1)):
        with pytest.raises(InvalidArgument, match="at least 0"):
            population(*arguments)


def test_every_category_occurs_and_no_other(people: People) -> None:
    declared = {
        "county": shares.COUNTIES,
        "age": range(shares.OLDEST + 1),
        "sex": shares.SEXES,
        "race": shares.RACES,
        "ethnicity": shares.ETHNICITIES,
        "relationship": shares.RELATIONSHIPS,
        "quarters": shares.QUARTERS,
    }
    for name, categories in declared.items():
        assert set(people[name]) == set(categories), name


def test_counties_and_races_are_skewed_down_to_small_groups(people: People) -> None:
    counties = Counter(people["county"])
    assert max(counties.values()) > 60_000
    assert min(counties.values()) < 500
    races = Counter(people["race"])
    assert 0.6 < races["1"] / 200_000 < 0.75
    assert races["5"] < 600
    # and the mix differs from county to county
    county, race = people["county"], people["race"]
    assert (race[county == "017"] == "3").mean() > 0.4
    assert (race[county != "017"] == "3").mean() < 0.01


def test_the_age_pyramid(people: People) -> None:
    age, sex = people["age"].astype(int), people["sex"]
    assert 0.18 < (age < 18).mean() < 0.26
    assert 0.14 < (age >= 65).mean() < 0.20
    by_decade = np.bincount(age // 10, minlength=10)
    assert (np.diff(by_decade[6:]) < 0).all(), "numbers fall with age"
    by_year = np.bincount(age)
    assert by_year[:75].min() > 0.4 * by_year.max(), "no year of birth is missing"
    assert 0.48 < (sex == "F").mean() < 0.52
    assert (sex[age >= 80] == "F").mean() > 0.54


def test_households(people: People) -> None:
    age, relationship, quarters = people["age"], people["relationship"], people["quarters"]
    assert ((relationship == "group quarters") == (quarters != "household")).all()
    in_households = (quarters == "household").sum()
    assert 2.2 < in_households / (relationship == "householder").sum() < 2.8
    for role in ("householder", "spouse", "partner", "nonrelative"):
        assert age[relationship == role].min() >= 18, role
    assert (relationship == "spouse").sum() < (relationship == "householder").sum()
    assert np.median(age[relationship == "child"].astype(int)) < 18
    ages = {kind: age[quarters == kind] for kind in shares.QUARTERS}
    assert ages["student"].max() <= 25
    assert ages["nursing"].min() >= 62
    assert 18 <= ages["military"].min() <= ages["military"].max() <= 42
    women = {kind: (people["sex"][quarters == kind] == "F").mean() for kind in shares.QUARTERS}
    assert women["correctional"] < 0.15 < 0.6 < women["nursing"]


def test_written_as_csv_and_parquet_they_count_alike(tmp_path: Path) -> None:
    domain = Domain({name: sorted(set(column)) for name, column in columns_of(population(5000)).items()})
    rules = {name: ColumnCoding(name) for name in NAMES}
    fingerprints = set()
    for ending in ("csv", "parquet"):
        path = write_population(tmp_path / f"people.{ending}", 5000)
        fingerprints.add(tabulate(RecordSource(path), domain, rules).fingerprint())
    assert len(fingerprints) == 1
    with pytest.raises(ReleaseError, match="exists"):
        write_population(tmp_path / "people.csv", 5)
    with pytest.raises(InvalidArgument, match=r"\.csv or \.parquet"):
        write_population(tmp_path / "people.txt", 5)


def test_the_spec_and_its_code_lists_agree_with_the_population(tmp_path: Path, people: People) -> None:
    path = write_demo(tmp_path / "new", people=1000)
    spec = tomllib.loads(path.read_text())
    assert len(spec["table"]) >= 9
    assert sum(" OR " in table.get("sql", "") for table in spec["table"]) == 1
    attributes = {name: entry for name, entry in spec["attributes"].items() if isinstance(entry, dict)}
    assert list(attributes) == NAMES
    size = 1
    for name, entry in attributes.items():
        if "codes" in entry:
            with (path.parent / entry["codes"]).open() as file:
                categories: list[object] = [row["code"] for row in csv.DictReader(file)]
        elif "range" in entry:
            categories = list(range(entry["range"][0], entry["range"][1] + 1))
        else:
            categories = entry["categories"]
        assert set(categories) == set(people[name]), name
        size *= len(categories)
    assert size == 1_209_600
    assert parquet.read_table(path.parent / spec["source"]["path"]).num_rows == 1000
    with pytest.raises(ReleaseError, match="exists"):
        write_demo(tmp_path / "new", people=1)


def test_the_spec_has_no_mistake(tmp_path: Path) -> None:
    spec = read_spec(write_demo(tmp_path, people=5000))
    assert spec.domain.size == 1_209_600
    source = RecordSource(spec.source.path, spec.source.kind, spec.source.table)
    rules = {name: ColumnCoding(rule.name, rule.unknown, rule.null) for name, rule in spec.columns.items()}
    assert tabulate(source, spec.domain, rules).total == 5000
