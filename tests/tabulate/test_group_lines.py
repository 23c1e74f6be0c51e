"""Counts of groups from delimited text: as by definition, whatever the order, and nothing is left behind."""

from __future__ import annotations

import tempfile
import traceback
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tabulae.interop.safetab.persons
import tabulae.products.groups.count
import tabulae.products.groups.engine
from tabulae.domain import CodeFamily, Group, GroupMap, Regions
from tabulae.errors import DataError, InvalidArgument, SpecError
from tabulae.interop.safetab.lines import (
    Code,
    Key,
    LineColumn,
    LineLayout,
    Listed,
    Unused,
    WholeNumber,
    check_lines,
)
from tabulae.interop.safetab.persons import open_group_lines
from tabulae.products.groups.levels import AdaptivePlan

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

LEAVES = [("A", "1"), ("A", "2"), ("B", "1"), ("C", "1")]
RACE, ETHNICITY = FAMILIES
COLUMNS = (
    LineColumn("AGE", WholeNumber("age", 0, 3)),
    LineColumn("SEX", Listed("sex", ("F", "M"))),
    LineColumn("NOTE", Unused()),
    LineColumn("COUNTY", Key()),
    LineColumn("BLOCK", Key()),
    LineColumn("RACE1", Code(RACE, pattern="[1-9][0-9]")),
    LineColumn("RACE2", Code(RACE, none="Null", pattern="[1-9][0-9]")),
    LineColumn("RACE3", Code(RACE, none="Null", pattern="[1-9][0-9]")),
    LineColumn("ETHNICITY", Code(ETHNICITY)),
)
LAYOUT = LineLayout(COLUMNS, LEAVES)
HEADER = "|".join(LAYOUT.names)


def line_of(person: Person) -> str:
    race = padded(person.codes["race"], 3, "Null")
    fields = [
        f"{person.age:03d}",
        "FM"[person.sex],
        'a "note',
        *LEAVES[person.leaf],
        *race,
        *person.codes["ethnicity"],
    ]
    return "|".join(map(str, fields))


def write(folder: Path, lines: list[str], end: str = "\n") -> Path:
    path = folder / "people.txt"
    path.write_bytes("".join(line + end for line in [HEADER, *lines]).encode())
    return path


def counted(path: Path, plan: AdaptivePlan, layout: LineLayout = LAYOUT) -> tuple[int, list[Entries]]:
    with open_group_lines(path, layout, plan) as counts:
        return counts.records, entries_of(counts, plan)


def small_plan(leaves: int = len(LEAVES)) -> AdaptivePlan:
    groups = (
        Group("A", "1", "race", "alone"),
        Group("B", "1", "race", "any"),
        Group("E", "1", "ethnicity", "any"),
    )
    members = [("A", "10"), ("A", "11"), ("B", "10"), ("B", "13"), ("E", "20")]
    county = Regions("county", ("A", "B", "C", "empty"), np.array([0, 0, 1, 2]))
    of = GroupMap(FAMILIES, groups, members)
    return AdaptivePlan((level(Regions.nation(leaves), of, "1", ladder()), level(county, of, "1", ladder())))


@settings(max_examples=25)
@given(data=st.data(), crowd=people(len(LEAVES)), end=st.sampled_from(["\n", "\r\n"]))
def test_counts_are_those_of_the_definition(data: st.DataObject, crowd: list[Person], end: str) -> None:
    plan = data.draw(plans(len(LEAVES)))
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder), [line_of(person) for person in crowd], end)
        assert counted(path, plan) == (len(crowd), by_definition(crowd, plan))


def test_many_chunks_and_many_parts_give_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(7)
    crowd = [
        Person(
            int(leaf),
            int(sex),
            int(age),
            {
                "race": tuple(RACE.codes[i] for i in codes[: 1 + leaf % 3]),
                "ethnicity": (ETHNICITY.codes[sex],),
            },
        )
        for leaf, sex, age, codes in zip(
            rng.integers(0, 4, 300),
            rng.integers(0, 2, 300),
            rng.integers(0, 4, 300),
            rng.integers(0, 4, (300, 3)),
            strict=True,
        )
    ]
    plan = small_plan()
    path = write(tmp_path, [line_of(person) for person in crowd])
    monkeypatch.setattr(tabulae.products.groups.count, "_PLACES", 3)
    monkeypatch.setattr(tabulae.products.groups.engine, "_RECORDS_AT_ONCE", 50)
    monkeypatch.setattr(tabulae.products.groups.engine, "_COMBOS_AT_ONCE", 3)
    with open_group_lines(path, LAYOUT, plan) as counts:
        assert len(list(counts.chunks(1))) == 4
        assert entries_of(counts, plan) == by_definition(crowd, plan)


def test_the_order_of_lines_changes_nothing_and_a_record_changes_the_fingerprint(tmp_path: Path) -> None:
    crowd = [
        Person(i % 4, i % 2, i % 3, {"race": ("10", "12")[: 1 + i % 2], "ethnicity": ("20",)})
        for i in range(9)
    ]
    lines = [line_of(person) for person in crowd]
    plan, found = small_plan(), []
    for listed in (lines, lines[::-1], lines[1:]):
        path = write(tmp_path, listed)
        with open_group_lines(path, LAYOUT, plan) as counts:
            found.append((entries_of(counts, plan), counts.fingerprint()))
    assert found[0] == found[1]
    assert found[0][1] != found[2][1]


def test_columns_that_are_not_read_are_checked_and_left_out(tmp_path: Path) -> None:
    race = CodeFamily("race", RACE.codes, most=1)
    columns = tuple(
        LineColumn(c.name, Code(race, c.rule.none, c.rule.pattern, read=c.name == "RACE1"))
        if isinstance(c.rule, Code) and c.rule.family is RACE
        else c
        for c in COLUMNS
    )
    layout = LineLayout(columns, LEAVES)
    of = GroupMap((race, ETHNICITY), (Group("A", "1", "race", "alone"),), [("A", "10")])
    plan = AdaptivePlan((level(Regions.nation(4), of, "1", ladder()),))
    path = write(tmp_path, ["0|F||A|1|10|13|Null|20"])
    assert counted(path, plan, layout) == (1, [{(0, 0, 0): 1}])
    path = write(tmp_path, ["0|F||A|1|10|99|Null|20"])
    with pytest.raises(SpecError, match=r"line 2, column RACE2\): is not a known code of 'race'"):
        counted(path, plan, layout)


def test_a_refusal_says_lines_and_keeps_values_to_the_holder(tmp_path: Path) -> None:
    path = write(tmp_path, ["0|F||A|1|10|Null|Null|20", "0|SECRET||A|1|10|Null|Null|20"])
    with pytest.raises(SpecError, match=r"line 3, column SEX\): must be one of 'F', 'M'") as caught:
        counted(path, small_plan())
    assert "SECRET" in str(caught.value.confidential)
    assert "SECRET" not in "".join(traceback.format_exception(caught.value))
    assert caught.value.__context__ is None


def test_lines_that_the_engine_cannot_read_are_told_by_the_check(tmp_path: Path) -> None:
    path = write(tmp_path, ["0|F||A|1|10|Null|Null|20", "0|SECRET"])
    with pytest.raises(SpecError, match=r"line 3\): must have 9 fields") as caught:
        counted(path, small_plan())
    assert caught.value.__context__ is None
    assert "SECRET" not in "".join(traceback.format_exception(caught.value))


def test_a_fault_of_the_engine_is_not_one_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, ["0|F||A|1|10|Null|Null|20"])
    monkeypatch.setattr(tabulae.interop.safetab.persons, "CODED", "SECRET.coded")
    with pytest.raises(DataError, match=r"people\.txt cannot be read: the engine's own words") as caught:
        counted(path, small_plan())
    assert "SECRET" in str(caught.value.confidential)


def test_a_file_that_changes_between_the_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, ["0|F||A|1|10|Null|Null|20"])
    monkeypatch.setattr(tabulae.interop.safetab.persons, "line_count", lambda *_: 3)
    with pytest.raises(DataError, match="changed while it was read"):
        counted(path, small_plan())


def test_more_memory_than_allowed_goes_to_disk_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    data = tmp_path / "data"
    data.mkdir()
    path = write(data, ["3|M||C|1|12|10|Null|21"] * 1000)
    with open_group_lines(path, LAYOUT, small_plan(), memory="100MB") as counts:
        assert [p.name for p in tmp_path.glob("tabulae-*/*")]
        assert all(b"Null" not in p.read_bytes() for p in tmp_path.glob("tabulae-*/*") if p.is_file())
        assert counts.records == 1000
    assert not list(tmp_path.glob("tabulae-*"))


def of_family(family: CodeFamily) -> tuple[LineColumn, ...]:
    """The columns, with another family in place of the races."""
    return tuple(
        LineColumn(c.name, Code(family, c.rule.none, c.rule.pattern, read=c.name == "RACE1"))
        if isinstance(c.rule, Code) and c.rule.family is RACE
        else c
        for c in COLUMNS
    )


@pytest.mark.parametrize(
    ("layout", "told"),
    [
        (
            LineLayout(of_family(CodeFamily("race", RACE.codes[::-1], RACE.most)), LEAVES),
            "differ in the family 'race'",
        ),
        (LineLayout(of_family(CodeFamily("race", RACE.codes, 1)), LEAVES), "differ in the family 'race'"),
        (LineLayout(COLUMNS, LEAVES[:3]), "3 leaves, and the plan has 4"),
        (LineLayout(COLUMNS[1:], LEAVES), "the ladders are over"),
        (LineLayout(COLUMNS[:-1], LEAVES), "no column of codes of 'ethnicity'"),
        (LineLayout(COLUMNS, [*LEAVES[:3], LEAVES[0]]), "a leaf twice"),
        (LineLayout(COLUMNS, [*LEAVES[:3], ("A",)]), "parts"),
    ],
)
def test_a_layout_that_does_not_fit_the_plan(tmp_path: Path, layout: LineLayout, told: str) -> None:
    path = write(tmp_path, ["0|F||A|1|10|Null|Null|20"])
    with pytest.raises(InvalidArgument, match=told):
        counted(path, small_plan(), layout)


MUTATIONS = [
    "",
    "|",
    "\r",
    "\n",
    "\n\n",
    "\r\n",
    "Null",
    "é",
    "\x00",
    "\x01",
    '"',
    " ",
    "-",
    "0",
    "00",
    "10",
    "#",
]


@given(
    crowd=people(len(LEAVES)),
    where=st.floats(0, 1),
    cut=st.integers(0, 4),
    put=st.sampled_from(MUTATIONS),
    end=st.sampled_from(["\n", "\r\n"]),
)
def test_the_engine_and_the_check_accept_the_same_files(
    crowd: list[Person], where: float, cut: int, put: str, end: str
) -> None:
    """The engine reads exactly the files in which the plain check finds nothing; otherwise it names its faults."""
    plan = small_plan()
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder), [line_of(person) for person in crowd], end)
        content = path.read_bytes()
        at = int(where * len(content))
        path.write_bytes(content[:at] + put.encode() + content[at + cut :])
        faults = check_lines(path, LAYOUT)
        if not faults:
            counted(path, plan)
            return
        with pytest.raises(SpecError, match="mistake"):
            counted(path, plan)
