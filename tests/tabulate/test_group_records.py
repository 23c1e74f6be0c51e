"""Counts of groups from records of any source: as by definition, whatever the kind, the order, and what is missing."""

from __future__ import annotations

import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.each import each
from tests.laws import dear

from tabulae.domain import Attribute
from tabulae.domain.groups import Group, GroupMap, Regions
from tabulae.errors import DataError, InvalidArgument
from tabulae.products.groups.count import RecordShape, open_group_records
from tabulae.products.groups.levels import AdaptivePlan
from tabulae.sources.coding import ColumnCoding
from tabulae.sources.source import RecordSource
from tabulae.sources.units import UnitRule

from .group_oracle import (
    FAMILIES,
    Entries,
    Person,
    by_definition,
    entries_of,
    ladder,
    level,
    padded,
    people,
    plans,
)

Writer = Callable[..., RecordSource]

RACE, ETHNICITY = FAMILIES
LEAVES = 6
CODES = [Attribute.of(f"race{i}", [*RACE.codes, "other"]) for i in (1, 2, 3)]
ATTRIBUTES = [
    Attribute.of("county", ["A", "B"]),
    Attribute.of("block", 3),
    Attribute.of("sex", ["F", "M"]),
    Attribute.of("age", 4),
    *CODES,
    Attribute.of("ethnicity", [*ETHNICITY.codes, "other"]),
    Attribute.of("unread", 3),
]
RULES = {
    a.name: ColumnCoding(a.name.upper(), null="other" if a.labels[-1] == "other" else "refuse")
    for a in ATTRIBUTES
}
SHAPE = RecordShape(
    ("county", "block"), {"race": ("race1", "race2", "race3"), "ethnicity": ("ethnicity",)}, ("sex", "age")
)


def columns_of(crowd: list[Person]) -> dict[str, list[Any]]:
    race = [padded(person.codes["race"], 3, None) for person in crowd]
    return {
        "NAME": [f"n{i % 3}" for i in range(len(crowd))],
        "AGE": [person.age for person in crowd],
        "BLOCK": [person.leaf % 3 for person in crowd],
        "COUNTY": ["AB"[person.leaf // 3] for person in crowd],
        "SEX": ["FM"[person.sex] for person in crowd],
        **{f"RACE{i + 1}": [codes[i] for codes in race] for i in range(3)},
        "ETHNICITY": [padded(person.codes["ethnicity"], 1, None)[0] for person in crowd],
    }


def counted(source: RecordSource, plan: AdaptivePlan, **options: Any) -> tuple[int, list[Entries]]:
    given = {"domain_attributes": ATTRIBUTES, "rules": RULES, "shape": SHAPE} | options
    with open_group_records(source, plan=plan, **given) as counts:
        return counts.records, entries_of(counts, plan)


def small_plan() -> AdaptivePlan:
    groups = (
        Group("A", "1", "race", "alone"),
        Group("B", "1", "race", "any"),
        Group("E", "1", "ethnicity", "any"),
    )
    of = GroupMap(FAMILIES, groups, [("A", "10"), ("B", "10"), ("B", "13"), ("E", "20")])
    county = Regions("county", ("A", "B"), np.array([0, 0, 0, 1, 1, -1]))
    return AdaptivePlan((level(Regions.nation(LEAVES), of, "1", ladder()), level(county, of, "1", ladder())))


CROWD = [
    Person(
        i % LEAVES,
        i % 2,
        i % 4,
        {"race": RACE.codes[i % 3 : 1 + i % 4], "ethnicity": ETHNICITY.codes[: i % 2]},
    )
    for i in range(20)
]


def test_every_kind_of_source_gives_the_same(write: Writer, kind: str) -> None:
    assert counted(write(kind, columns_of(CROWD)), small_plan()) == (20, by_definition(CROWD, small_plan()))


@dear()
@given(data=st.data(), crowd=people(LEAVES, least=0))
def test_counts_are_those_of_the_definition(
    data: st.DataObject, crowd: list[Person], write_source: Writer
) -> None:
    plan = data.draw(plans(LEAVES))
    with tempfile.TemporaryDirectory() as folder:
        source = write_source(Path(folder), "csv", columns_of(crowd))
        assert counted(source, plan) == (len(crowd), by_definition(crowd, plan))


def test_missing_codes_may_stand_anywhere(write: Writer) -> None:
    columns = columns_of([Person(0, 0, 0, {"race": ("10", "12"), "ethnicity": ()})])
    columns |= {"RACE1": [None], "RACE2": ["12"], "RACE3": ["10"]}
    plan = small_plan()
    expected = by_definition([Person(0, 0, 0, {"race": ("12", "10"), "ethnicity": ()})], plan)
    assert counted(write("csv", columns), plan) == (1, expected)


@each("rows, expected", [(1, 3), (4, 9)], long=[(2, 6)])
def test_a_unit_is_counted_up_to_its_bound(write: Writer, rows: int, expected: int) -> None:
    plan = small_plan()
    crowd = [Person(0, 0, 0, {"race": ("10",), "ethnicity": ()})] * 9
    rule = UnitRule("NAME", rows, bytes(32))
    records, (nation, _) = counted(write("csv", columns_of(crowd)), plan, unit=rule)
    assert records == expected
    assert nation == {(0, 0, 0): expected, (0, 1, 0): expected}


@pytest.mark.parametrize(
    ("column", "value", "told"),
    [
        ("SEX", "SECRET", "column 'SEX' (attribute 'sex'): values outside the declared categories"),
        ("SEX", None, "column 'SEX' (attribute 'sex'): NULL values"),
        ("RACE2", "SECRET", "column 'RACE2' (attribute 'race2'): values outside the declared categories"),
        ("COUNTY", "SECRET", "column 'COUNTY' (attribute 'county'): values outside the declared categories"),
    ],
)
def test_what_the_rules_refuse(write: Writer, column: str, value: str | None, told: str) -> None:
    columns = columns_of(CROWD)
    columns[column][3] = value
    with pytest.raises(DataError) as caught:
        counted(write("parquet", columns), small_plan())
    assert told in str(caught.value)
    assert "SECRET" not in "".join(traceback.format_exception(caught.value))
    assert "in 1 records" in str(caught.value.confidential)


def test_records_without_a_unit_are_refused(write: Writer) -> None:
    columns = columns_of(CROWD)
    columns["NAME"][5] = None
    with pytest.raises(DataError, match="every record needs the id of its unit"):
        counted(write("parquet", columns), small_plan(), unit=UnitRule("NAME", 1, bytes(32)))


def test_no_records(write: Writer) -> None:
    with pytest.raises(DataError, match="no records"):
        counted(write("csv", {name: [] for name in columns_of(CROWD)}), small_plan())


def test_nothing_is_left_in_the_temporary_folder(
    write: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write("csv", columns_of(CROWD))
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    plan = small_plan()
    with open_group_records(source, ATTRIBUTES, RULES, SHAPE, plan, memory="100MB") as counts:
        list(counts.chunks(0))
        assert list(folder.iterdir())
    assert not list(folder.iterdir())


def without_null(name: str) -> dict[str, ColumnCoding]:
    return RULES | {name: ColumnCoding(name.upper(), unknown="other")}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            {"shape": RecordShape(("county",), SHAPE.codes, SHAPE.cells)},
            "2 combinations, and the plan has 6 leaves",
        ),
        ({"shape": RecordShape(SHAPE.regions, SHAPE.codes, ("age", "sex"))}, "the ladders are over"),
        (
            {"shape": RecordShape(SHAPE.regions, {"race": ("race1",)}, SHAPE.cells)},
            "'ethnicity', of which records hold",
        ),
        (
            {"shape": RecordShape(SHAPE.regions, {"tribe": ("race1",)}, SHAPE.cells)},
            "no family of codes 'tribe'",
        ),
        (
            {"shape": RecordShape(SHAPE.regions, {"race": ("sex",)}, SHAPE.cells)},
            "'F' of attribute 'sex' is not a code",
        ),
        (
            {"shape": RecordShape(("county", "town"), SHAPE.codes, SHAPE.cells)},
            "'town' is named by the shape",
        ),
        ({"rules": without_null("race2")}, "'other' of attribute 'race2' is not a code of 'race'"),
        (
            {"rules": RULES | {"race2": ColumnCoding("RACE2", "other", "other")}},
            "would take unknown codes for no code",
        ),
        (
            {"shape": RecordShape(SHAPE.regions, SHAPE.codes | {"race": ("race1",) * 4}, SHAPE.cells)},
            "up to 3 codes",
        ),
    ],
)
def test_a_shape_that_does_not_fit(write: Writer, options: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidArgument, match=told):
        counted(write("csv", columns_of(CROWD)), small_plan(), **options)
