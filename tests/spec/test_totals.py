"""Totals in a table: which rows a document asks for, as a matrix, and every way to ask wrongly."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from tests.each import each
from tests.spec.conftest import Desk
from tests.spec.states import State

TABLE = 'attributes = ["sex", "age5"]'
STATEMENT = ("age < 5 OR age > 80", "race = '01'")


def told(desk: Desk, *passages: tuple[str, str]) -> list[tuple[str, str]]:
    return [(problem.path, problem.message) for problem in desk.problems(desk.changed(*passages))]


def expected_rows(desk: Desk, text: str) -> tuple[dict[str, tuple[str, ...]], np.ndarray]:
    """The columns of the document's first table, and its matrix over the cells, dense."""
    spec = desk.read(text)
    table = spec.workload.tables[0]
    return table.columns(spec.domain), table.operator(spec.domain).dense()


@pytest.mark.parametrize("totals", ['["sex", "age5"]', '["age5"]', '["sex"]', "true"])
def test_rows_are_categories_and_then_their_total(desk: Desk, totals: str) -> None:
    plain, counted = expected_rows(desk, desk.good)
    columns, matrix = expected_rows(desk, desk.changed((TABLE, f"{TABLE}\ntotals = {totals}")))
    named = [name for name in plain if name in totals or totals == "true"]
    assert columns == {name: (*rows, "_T") if name in named else rows for name, rows in plain.items()}
    by_key = dict(zip(itertools.product(*plain.values()), counted, strict=True))
    for key, row in zip(itertools.product(*columns.values()), matrix, strict=True):
        members = [[word] if word != "_T" else plain[name] for name, word in zip(plain, key, strict=True)]
        assert (row == sum(by_key[each] for each in itertools.product(*members))).all()


@pytest.mark.parametrize(
    ("queries", "rows"),
    [
        ("age = { width = 100 }", ["0-99", "1-100"]),
        ("age5 = { width = 4 }", ["0-17", "5-114"]),
        ('race = { matrix = "w.npy" }', ["White|Black", "row 2"]),
    ],
)
def test_queries_have_a_total_behind_their_rows(desk: Desk, queries: str, rows: list[str]) -> None:
    np.save(desk.base / "w.npy", np.array([[1, 1, 0], [1, 0, -1]]))
    text = desk.changed((TABLE, f"queries = {{ {queries} }}\ntotals = true"))
    ((labels,), matrix) = (
        each.values() if isinstance(each, dict) else each for each in expected_rows(desk, text)
    )
    assert list(labels[:2]) == rows
    assert labels[-1] == "_T"
    assert (matrix[-1] == 1).all()
    assert len(matrix) == len(labels)


def test_the_extra_category_is_in_the_total_and_in_no_run(desk: Desk) -> None:
    aged = ("range = [0, 114] }", 'range = [0, 114], unknown = "other" }')
    for queries, named, last in (
        ('age = "prefix"', "age", "0-114"),
        ('age5 = "prefix"', "age5", "0-114"),
        ('age5 = "ranges"', "age5", "18-114"),
    ):
        text = desk.changed((TABLE, f'queries = {{ {queries} }}\ntotals = ["{named}"]'), aged, STATEMENT)
        columns, matrix = expected_rows(desk, text)
        assert list(columns) == [named]
        if named == "age5":
            assert columns[named][-3:] == (last, "other", "_T")
        assert (matrix[-1] == 1).all()
        people = matrix.reshape(len(matrix), 2, 116, 3)[:, 0, :, 0].sum(axis=1)
        assert people[-2:].tolist() == [1, 116]


def test_all_of_them_leaves_a_query_that_has_a_total_as_it_is(desk: Desk) -> None:
    text = desk.changed((TABLE, 'attributes = ["sex"]\nqueries = { age = "prefix" }\ntotals = true'))
    columns, _ = expected_rows(desk, text)
    assert columns["sex"] == ("F", "M", "_T")
    assert columns["age"][-1] == "0-114"


def test_the_published_copy_keeps_them(desk: Desk) -> None:
    for totals in ("true", '["age5"]'):
        spec = desk.read(desk.changed((TABLE, f"{TABLE}\ntotals = {totals}")))
        for name, content in spec.files.items():
            desk.file(name, content)
        copy = desk.read(spec.published_text())
        assert copy.workload.tables == spec.workload.tables
        assert copy.digest() == spec.digest() != desk.read(desk.good).digest()
    assert (
        desk.read(desk.changed((TABLE, f"{TABLE}\ntotals = false"))).digest() == desk.read(desk.good).digest()
    )


@each(
    ("lines", "path", "said"),
    [
        (f'{TABLE}\ntotals = ["race"]', ".totals[0]", 'the table has no "race"; known here: "sex", "age5"'),
        (f'{TABLE}\ntotals = ["age"]', ".totals[0]", 'the table has no "age"; did you mean "age5"?'),
        (f'{TABLE}\ntotals = ["sex", "sex"]', ".totals[1]", 'names "sex" twice: keep one'),
        (f"{TABLE}\ntotals = []", ".totals", "must name attributes"),
        (f'{TABLE}\ntotals = "sex"', ".totals", "must name attributes"),
        (f'{TABLE}\ntotals = ["sex", 3]', ".totals", "must name attributes"),
        (f'{TABLE}\ntotals = [["sex"]]', ".totals", "must name attributes"),
        (f"{TABLE}\ntotals = 1", ".totals", "must name attributes"),
        ("attributes = []\ntotals = true", ".totals", "is the total itself"),
        ('attributes = []\ntotals = ["sex"]', ".totals", "is the total itself"),
        ('queries = { sex = "total" }\ntotals = ["sex"]', ".totals[0]", "counts everything already"),
        ('queries = { age = "ranges" }\ntotals = ["age"]', ".totals[0]", "counts everything already"),
        ('queries = { age5 = "prefix" }\ntotals = ["age5"]', ".totals[0]", "counts everything already"),
        ("queries = { age5 = { width = 5 } }\ntotals = ['age5']", ".totals[0]", "counts everything already"),
        (
            'queries = { race = { matrix = "w.npy" } }\ntotals = ["race"]',
            ".totals[0]",
            "counts everything already",
        ),
        ('sql = "SELECT COUNT(*) FROM t"\ntotals = true', "", "totals goes with attributes and queries"),
    ],
)
def test_mistakes_are_told(desk: Desk, lines: str, path: str, said: str) -> None:
    np.save(desk.base / "w.npy", np.array([[1, 1, 1], [1, 0, 0]]))
    [(where, message)] = told(desk, (TABLE, lines))
    assert where == f"table[0]{path}"
    assert said in message


def test_an_exact_count_has_none(desk: Desk) -> None:
    text = desk.good + '[[invariant]]\nattributes = ["sex"]\nreason = "law"\ntotals = true\n'
    [problem] = desk.problems(text)
    assert problem.path == "invariant[0].totals"
    assert "in a [[table]] of the same attributes with totals these are exact, too" in problem.message


def test_areas_have_none(state: State) -> None:
    [problem] = state.problems(
        ('attributes = ["race", "adult"]', 'attributes = ["race", "adult"]\ntotals = true')
    )
    assert problem.path == "table[1].totals"
    assert "with [geography] a table is one marginal" in problem.message


def test_rows_are_counted_against_the_limit(desk: Desk) -> None:
    limit = "\n[release]\nmax_rows = 12\n"  # 2 x 5, and 2 of the statement
    desk.read(desk.good + limit)
    [problem] = desk.problems(desk.changed((TABLE, f"{TABLE}\ntotals = true")) + limit)
    assert "20 rows in all, 18 of them" in problem.message
