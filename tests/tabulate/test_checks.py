"""Domains declared by CHECK: what is read from a constraint is what DuckDB enforces by it."""

from __future__ import annotations

import duckdb
from hypothesis import given
from hypothesis import strategies as st
from tests.each import each

from tabulae.sources.declared import Checked, domains_by_checks

NUMBERS = range(-4, 12)
WORDS = ("a", "b", "it's", "_T", "")


def _compared(column: str) -> st.SearchStrategy[str]:
    number = st.sampled_from([*range(-3, 10)])
    operator = st.sampled_from(["<", "<=", ">", ">=", "="])
    ways = st.tuples(operator, number, st.booleans()).map(
        lambda x: f"{x[1]} {x[0]} {column}" if x[2] else f"{column} {x[0]} {x[1]}"
    )
    between = st.tuples(number, number).map(lambda x: f"{column} BETWEEN {x[0]} AND {x[1]}")
    listed = st.lists(number, min_size=1, max_size=4, unique=True).map(
        lambda x: f"{column} IN ({', '.join(map(str, x))})"
    )
    either = st.lists(number, min_size=2, max_size=3, unique=True).map(
        lambda x: "(" + " OR ".join(f"{column} = {n}" for n in x) + ")"
    )
    return ways | between | listed | either


@given(st.lists(_compared("n"), min_size=1, max_size=3))
def test_no_number_that_the_database_takes_is_left_out(conditions: list[str]) -> None:
    """What is declared covers what the constraint lets in: of lists and of bounds, and of both together."""
    text = " AND ".join(conditions)
    rows = ", ".join(f"({n})" for n in NUMBERS)
    taken = {row[0] for row in duckdb.sql(f"SELECT n FROM (VALUES {rows}) AS t(n) WHERE {text}").fetchall()}
    said = domains_by_checks([text]).get("n", Checked())
    allowed = [
        n
        for n in NUMBERS
        if (said.values is None or n in said.values)
        and (said.low is None or n >= said.low)
        and (said.high is None or n <= said.high)
    ]
    assert set(allowed) == taken


def test_words_of_a_list() -> None:
    listed = ", ".join("'" + word.replace("'", "''") + "'" for word in WORDS)
    assert domains_by_checks([f'("Of" IN ({listed}))'])["of"].values == WORDS


@each(
    "text",
    [
        "length(n) > 3",
        "n > m",
        "n IS NOT NULL",
        "n IN ('a', 3)",
        "n IN ('a', 'a')",
        "n = 1 OR m = 2",
        "n = 1 OR n > 5",
        "NOT n = 1",
        "n <> 3",
        "n < 2.5",
        "n + 1 < 7",
        "n LIKE 'a%'",
        "n BETWEEN 1 AND m",
        "CASE WHEN n = 1 THEN true ELSE false END",
        "this is no SQL (",
    ],
)
def test_anything_else_says_nothing(text: str) -> None:
    assert domains_by_checks([text]) == {}


def test_constraints_of_one_column_are_taken_together() -> None:
    found = domains_by_checks(["n >= 0", "n < 10", "n IN (1, 2, 30)", "n IN (2, 30, 4)"])
    assert found == {"n": Checked((2, 30), 0, 9)}
