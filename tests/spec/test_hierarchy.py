"""Code lists in levels: what a document may ask of them, and every mistake in a list or a question."""

from __future__ import annotations

import numpy as np
import pytest
from tests.each import each
from tests.spec.conftest import Desk
from tests.spec.states import State

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
LEAVES = ["01.1", "01.4", "02", "36.0", "38"]
ALL = (
    "Farming", "Crops and animals", "Crops", "Animals", "Forestry", "Water and waste", "Water (36)", "Water (36.0)",
    "Waste",
)  # fmt: skip
DECLARED = (
    'race = { column = "RACE", codes = "codes/race.csv" }',
    'race = { codes = "nace.csv", hierarchy = true }',
)
MAJOR = ('major = { of = "race", map = "codes/major.csv" }', 'major = { of = "race", level = 1 }')
TABLE = 'attributes = ["sex", "age5"]'


def document(desk: Desk, table: str = TABLE, *more: tuple[str, str], nace: str = NACE) -> str:
    desk.file("nace.csv", nace)
    return desk.changed(DECLARED, MAJOR, (TABLE, table), *more)


def test_records_hold_leaves_and_recodes_are_levels(desk: Desk) -> None:
    spec = desk.read(document(desk))
    assert list(spec.domain["race"].values) == LEAVES
    major = spec.domain.recode("major")
    assert (major.labels, major.codes) == (("Farming", "Water and waste"), ("A", "E"))
    assert major.classes.tolist() == [0, 0, 0, 1, 1]


@pytest.mark.parametrize(
    ("query", "labels"),
    [
        ('"hierarchy"', ALL),
        ("{ levels = [1] }", ("Farming", "Water and waste")),
        ("{ levels = [3, 1] }", ("Farming", "Crops", "Animals", "Water and waste", "Water (36.0)")),
    ],
)
@pytest.mark.parametrize("totals", ["", "totals = true"])
def test_a_table_has_the_codes_that_it_asks_for(desk: Desk, query: str, labels: tuple, totals: str) -> None:
    spec = desk.read(document(desk, f"queries = {{ race = {query} }}\n{totals}"))
    table = spec.workload.tables[0]
    assert table.columns(spec.domain) == {"race": (*labels, "_T") if totals else labels}
    matrix = table.operator(spec.domain).dense().reshape(-1, 2 * 115, 5)[:, 0]
    below = {"Farming": [0, 1, 2], "Crops and animals": [0, 1], "Water and waste": [3, 4], "Water (36)": [3]}
    leaves = dict(
        zip(("Crops", "Animals", "Forestry", "Water (36.0)", "Waste"), ([k] for k in range(5)), strict=True)
    )
    for row, label in zip(matrix, table.columns(spec.domain)["race"], strict=True):
        members = {**below, **leaves, "_T": list(range(5))}[label]
        assert np.flatnonzero(row).tolist() == members


def test_values_that_are_not_listed_are_a_code_at_the_top(desk: Desk) -> None:
    text = document(
        desk,
        'queries = { race = "hierarchy" }\ntotals = ["race"]',
        ("hierarchy = true", 'hierarchy = true, unknown = "other"'),
    )
    spec = desk.read(text)
    assert spec.workload.tables[0].columns(spec.domain)["race"] == (*ALL, "other", "_T")
    assert spec.domain.recode("major").labels == ("Farming", "Water and waste", "other")


def test_the_published_copy_reads_back(desk: Desk) -> None:
    spec = desk.read(document(desk, 'queries = { race = "hierarchy" }'))
    for name, content in spec.files.items():
        desk.file(name, content)
    copy = desk.read(spec.published_text())
    assert copy.digest() == spec.digest()
    assert copy.workload.tables == spec.workload.tables
    assert b"36,Water (36),E" in spec.files["codes/race.csv"]


def test_a_list_with_different_labels_is_published_as_it_was_written(desk: Desk) -> None:
    content = "code,label,parent\r\nA,Farming, \r\n01,Crops,A\r\n"
    spec = desk.read(document(desk, 'queries = { race = "hierarchy" }', nace=content))
    assert spec.files["codes/race.csv"] == content.encode()


def test_hierarchy_false_is_a_list_as_any(desk: Desk) -> None:
    plain = desk.read(desk.good)
    said = desk.read(
        desk.changed(('codes = "codes/race.csv"', 'codes = "codes/race.csv", hierarchy = false'))
    )
    assert said.digest() == plain.digest()
    assert said.published_text() == plain.published_text()


BAD_LISTS = {
    "no column": ("code,label\nA,Farming\n", "line 1: hierarchy = true goes by a column parent"),
    "no row": ("code,label,parent\nA,Farming,Z\n", 'line 2: parent "Z" has no row of its own'),
    "circle": (
        "code,label,parent\nA,x,B\nB,y,A\nC,z,\n",
        "'A' in 'B' in 'A': a code cannot be part of itself",
    ),
    "itself": ("code,label,parent\nA,x,A\nC,z,\n", "'A' in 'A'"),
    "total": ("code,label,parent\nA,x,\n_T,all,\n", 'line 3: code "_T" stands for the total'),
    "total label": ("code,label,parent\nA,x,\nB,_T,A\n", "'_T' stands for the total"),
    "twice": ("code,label,parent\nA,x,\nA,y,\n", 'line 3: code "A" is already on line 2'),
}


@pytest.mark.parametrize("name", BAD_LISTS)
def test_a_list_with_mistakes(desk: Desk, name: str) -> None:
    content, said = BAD_LISTS[name]
    [problem] = desk.problems(document(desk, 'queries = { race = "hierarchy" }\ntotals = true', nace=content))
    assert problem.path == "attributes.race.codes"
    assert problem.message.startswith("nace.csv")
    assert said in problem.message


def test_a_plain_list_may_not_hold_the_total_either(desk: Desk) -> None:
    desk.file("codes/race.csv", "code,label\n01,White\n_T,Black\n03,Both\n")
    [problem] = desk.problems(desk.good)
    assert 'codes/race.csv, line 3: code "_T" stands for the total' in problem.message


@each(
    ("before", "after", "path", "said"),
    [
        (TABLE, 'queries = { sex = "hierarchy" }', "table[0].queries.sex", 'codes of "sex" have no levels'),
        (TABLE, 'queries = { major = "hierarchy" }', "table[0].queries.major", 'ask for levels of "race"'),
        (TABLE, "queries = { race = { levels = [] } }", "table[0].queries.race.levels", "which are 1 to 3"),
        (TABLE, "queries = { race = { levels = [4] } }", "table[0].queries.race.levels", "which are 1 to 3"),
        (
            TABLE,
            "queries = { race = { levels = [true] } }",
            "table[0].queries.race.levels",
            "which are 1 to 3",
        ),
        (TABLE, "queries = { race = { levels = 1 } }", "table[0].queries.race.levels", "which are 1 to 3"),
        (
            TABLE,
            "queries = { race = { levels = [1, 1] } }",
            "table[0].queries.race.levels",
            "names a level twice",
        ),
        ("level = 1", "level = 4", "recodes.major.level", "has levels 1 to 3"),
        ("level = 1", "level = 0", "recodes.major.level", "must be 1 or more"),
        ("level = 1", 'level = "1"', "recodes.major.level", "must be an integer"),
        ("level = 1", 'level = 1, map = "m.csv"', "recodes.major", "exactly one of edges, map or level"),
        ('of = "race", level', 'of = "sex", level', "recodes.major.level", 'codes of "sex" have no levels'),
        ('codes = "nace.csv", h', 'categories = ["a"], h', "attributes.race", "hierarchy goes with codes"),
    ],
)
def test_mistakes_are_told(desk: Desk, before: str, after: str, path: str, said: str) -> None:
    [problem] = desk.problems(document(desk).replace(before, after))
    assert problem.path == path
    assert said in problem.message


def test_the_extra_category_needs_its_name(desk: Desk) -> None:
    text = document(
        desk,
        TABLE,
        ("hierarchy = true", 'hierarchy = true, null = "other"'),
        nace=NACE.replace("\nE,", "\nother,").replace(",E", ",other"),
    )
    [problem] = desk.problems(text)
    assert problem.path == "attributes.race"
    assert 'has a category "other" of its own' in problem.message


def test_areas_have_levels_as_recodes(state: State) -> None:
    state.file("race.csv", "code,label,parent\nx,X,\na,A,x\nb,B,x\nc,C,\n")
    geography = state.geography(
        ('race = { categories = ["a", "b", "c"] }', 'race = { codes = "race.csv", hierarchy = true }'),
        (
            'adult = { of = "age", edges = [2] }',
            'adult = { of = "age", edges = [2] }\nkind = { of = "race", level = 1 }',
        ),
        ('attributes = ["race", "adult"]', 'attributes = ["kind", "adult"]'),
    )
    assert [table.name for table in geography.tables] == ["total", "race by adult"]
