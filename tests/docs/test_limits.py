"""The page of what cannot be done: each refusal that it lists is one."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.village import SPEC

import tabulae as tb
from tabulae.domain.figure_sql import figure_from_sql
from tabulae.errors import SpecError
from tabulae.spec import Spec

PAGE = (Path(__file__).parents[2] / "docs/guide/limits.md").read_text(encoding="utf-8")
DOMAIN = tb.Domain({"sex": ["F", "M"], "a": range(10), "name": ["ab", "bc"]})

REFUSED = {
    "SUM(weight)": "SELECT SUM(weight) FROM t",
    "SUM(income)": "SELECT SUM(income) FROM t",
    "JOIN": "SELECT COUNT(*) FROM t JOIN h ON t.id = h.id",
    "LIKE": "SELECT COUNT(*) FROM t WHERE name LIKE 'a%'",
    "COUNT(DISTINCT a)": "SELECT COUNT(DISTINCT a) FROM t",
    "MAX(a)": "SELECT MAX(a) FROM t",
    "MIN(a)": "SELECT MIN(a) FROM t",
    "STDDEV(a)": "SELECT STDDEV(a) FROM t",
    "VARIANCE(a)": "SELECT VARIANCE(a) FROM t",
    "HAVING": "SELECT sex, COUNT(*) FROM t GROUP BY sex HAVING COUNT(*) > 5",
    "ORDER BY": "SELECT sex, COUNT(*) FROM t GROUP BY sex ORDER BY 2",
    "LIMIT": "SELECT sex, COUNT(*) FROM t GROUP BY sex LIMIT 1",
    "a `SELECT` in `FROM`": "SELECT COUNT(*) FROM (SELECT * FROM t) AS s",
    "in a condition": "SELECT COUNT(*) FROM t WHERE a IN (SELECT a FROM h)",
}
INSTEAD = (
    "SUM(a)",
    "VAR_POP(a)",
    "AVG(a)",
    "MEDIAN(a)",
    "QUANTILE(a, 0.99)",
    "QUANTILE(a, 0.25)",
    "QUANTILE(a, 0.75)",
)


@pytest.mark.parametrize("what", REFUSED)
def test_a_statement_that_the_page_lists_is_refused(what: str) -> None:
    assert what in PAGE
    with pytest.raises(tb.TabulaeError):
        figure_from_sql(DOMAIN, "query", REFUSED[what])


@pytest.mark.parametrize("instead", INSTEAD)
def test_what_to_use_meanwhile_is_taken(instead: str) -> None:
    assert figure_from_sql(DOMAIN, "query", f"SELECT {instead} FROM t").name == "query"


@pytest.mark.parametrize(
    ("before", "after", "path"),
    [
        ('unit = "person"', 'unit = "person"\nweight = "W"', "source.weight"),
        ('path = "people.csv"', 'path = "people.duckdb"\ntable = ["people", "homes"]', "source.table"),
        ('definition = "zcdp"', 'definition = "local"', "privacy.definition"),
        ("range = [0, 19]", "range = [0.5, 19.5]", "attributes.age.range[0]"),
        (", range = [0, 19]", "", "attributes.age"),
    ],
)
def test_a_key_that_the_page_lists_is_refused(before: str, after: str, path: str) -> None:
    assert before in SPEC
    with pytest.raises(SpecError) as caught:
        Spec.from_text(SPEC.replace(before, after))
    assert path in {problem.path for problem in caught.value.problems}
