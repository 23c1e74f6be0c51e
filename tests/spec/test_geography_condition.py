"""Conditions of split against DuckDB's own answer, empty cells and all."""

from __future__ import annotations

import duckdb
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.each import each

from tabulae.domain.codes import numbered
from tabulae.errors import InvalidArgument
from tabulae.products.areas.spec.condition import LeafCondition

CELLS = [None, "1", "01", "x'y"]
TABLE = {
    "a": numbered(np.array([a for a in CELLS for _ in CELLS], object)),
    "b": numbered(np.array([b for _ in CELLS for b in CELLS], object)),
}


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


columns = st.sampled_from(["a", "b", '"a"'])
texts = st.sampled_from(["1", "01", "x'y", "none"]).map(quoted)
lists = st.lists(texts, min_size=1).map(", ".join)
tests = st.one_of(
    st.builds("{} {} {}".format, columns, st.sampled_from(["=", "<>", "!="]), texts),
    st.builds("{} {} {}".format, texts, st.sampled_from(["=", "<>"]), columns),
    st.builds("{} {} ({})".format, columns, st.sampled_from(["IN", "NOT IN"]), lists),
    st.builds("{} {}".format, columns, st.sampled_from(["IS NULL", "IS NOT NULL"])),
)
conditions = st.recursive(
    tests,
    lambda inner: st.one_of(
        st.builds("({}) {} ({})".format, inner, st.sampled_from(["AND", "OR"]), inner),
        st.builds("{} {} {}".format, inner, st.sampled_from(["AND", "OR"]), inner),
        st.builds("NOT ({})".format, inner),
    ),
    max_leaves=6,
)


@given(conditions)
def test_a_condition_means_what_it_means_in_sql(text: str) -> None:
    connection = duckdb.connect()
    rows = list(zip(TABLE["a"].texts.tolist(), TABLE["b"].texts.tolist(), strict=True))
    connection.execute("CREATE TABLE t (i INTEGER, a VARCHAR, b VARCHAR)")
    connection.executemany("INSERT INTO t VALUES (?, ?, ?)", [(i, *row) for i, row in enumerate(rows)])
    expected = connection.execute(f"SELECT i FROM t WHERE {text}").fetchall()
    connection.close()
    condition = LeafCondition.parse(text)
    assert set(condition.columns) <= {"a", "b"}
    assert np.flatnonzero(condition.holds(TABLE)).tolist() == sorted(i for (i,) in expected)


@each(
    ("text", "words"),
    [
        ("", "does not parse"),
        ("a = '1' AND", "does not parse"),
        ("a", "not a comparison"),
        ("1 = 1", "write '1' in single quotes"),
        ("a = 01", "write '01' in single quotes"),
        ("a = b", "not with another column"),
        ('a = "1"', "text takes single quotes"),
        ("a = ''", "write IS NULL"),
        ("a = NULL", "NULL is not text"),
        ("a IN (SELECT b FROM t)", "IN takes a list"),
        ("t.a = '1'", "plain name of a column"),
        ("upper(a) = '1'", "plain name of a column"),
        ("a LIKE '1%'", "not a comparison"),
        ("a < '1'", "not a comparison"),
        ("a = '1'; DROP TABLE t", "not a comparison"),
        ("SELECT 1", "not a comparison"),
        ("NOT " * 3000 + "a = '1'", "nested too deeply"),
    ],
)
def test_what_is_no_condition(text: str, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words.replace("(", r"\(")):
        LeafCondition.parse(text)
