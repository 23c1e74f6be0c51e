"""``[[derived]]``: what it says, every mistake with its path, and that the published copy keeps it."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from tests.duchy import SPEC as AREAS

from tabulae.errors import Problem, SpecError
from tabulae.spec import Spec

SPEC = """
[source]
path = "people.csv"
[attributes]
age = { range = [0, 9] }
sex = { categories = ["F", "M"] }
[privacy]
definition = "zcdp"
budget = "1/2"
ledger = "ledger.db"
[[table]]
name = "ages"
attributes = ["age", "sex"]
[[invariant]]
attributes = []
reason = "law"
"""
SQL = "SELECT sex, COUNT(*) FILTER (WHERE age < 3) / COUNT(*) FROM t GROUP BY sex"
SHARE = f'[[derived]]\nname = "share"\nsql = "{SQL}"\n'


def problems(more: str, text: str = SPEC) -> list[Problem]:
    with pytest.raises(SpecError) as caught:
        Spec.from_text(text + more)
    return caught.value.problems


def test_a_figure_is_read_and_published_as_it_stands() -> None:
    spec = Spec.from_text(SPEC + SHARE + 'title = "Under 3"\n')
    (derived,) = spec.derived
    assert (derived.name, derived.title, derived.figure.rows) == ("share", "Under 3", 2)
    again = Spec.from_text(spec.published_text())
    assert again.digest() == spec.digest()
    assert again.derived[0].title == "Under 3"
    assert tomllib.loads(spec.published_text())["derived"][0]["sql"] == derived.figure.sql
    assert Spec.from_text(SPEC).digest() != spec.digest()
    assert "derived" not in tomllib.loads(Spec.from_text(SPEC).published_text())
    assert Spec.from_text(SPEC + SHARE).derived[0].title == "share"


def test_every_mistake_is_told_at_once() -> None:
    entries = [
        '[[derived]]\nsql = "SELECT AVG(age) FROM t"\n',
        '[[derived]]\nname = "b"\n',
        '[[derived]]\nname = "c"\nsql = "SELECT AVG(sex) FROM t"\nweight = 3\n',
        '[[derived]]\nname = "Ages"\nsql = "SELECT COUNT(*) / 0 FROM t"\n',
        '[[derived]]\nname = "exact total"\nsql = "SELECT AVG(age) FROM t"\n',
        '[[derived]]\nname = "x"\nsql = "SELECT AVG(age) FROM t"\n',
        '[[derived]]\nname = "X"\nsql = "SELECT"\n',
    ]
    found = {problem.path: problem.message for problem in problems("".join(entries))}
    assert sorted(found) == [
        "derived[0].name",
        "derived[1].sql",
        "derived[2].sql",
        "derived[2].weight",
        "derived[3].name",
        "derived[3].sql",
        "derived[4].name",
        "derived[6].name",
        "derived[6].sql",
    ]
    assert "are not numbers" in found["derived[2].sql"]
    assert "divides by 0" in found["derived[3].sql"]
    assert 'table[0] is named "ages", and names must differ' in found["derived[3].name"]
    assert "invariant[0]" in found["derived[4].name"]
    assert "derived[5] is named" in found["derived[6].name"]


def test_a_figure_of_an_attribute_that_cannot_be_read_is_not_blamed() -> None:
    broken = SPEC.replace("[0, 9]", "[9, 0]")
    assert {p.path for p in problems(SHARE, broken)} == {"attributes.age"}


def test_a_single_section_and_too_many_rows_are_mistakes() -> None:
    assert [p.path for p in problems(SHARE.replace("[[derived]]", "[derived]"))] == ["derived"]
    assert [p.path for p in problems("[release]\nmax_rows = 1\n" + SHARE)] == ["release.max_rows"] * 2


def test_groups_and_whole_numbers_of_areas_have_none(tmp_path: Path) -> None:
    (found,) = [p for p in problems(SHARE + "[detailed]\n") if p.path == "derived"]
    assert "of [[table]]s" in found.message
    told = [p for p in problems(SHARE, AREAS) if p.path == "derived"]
    assert len(told) == 1
    assert "whole numbers, whose errors have no known law" in told[0].message
