"""What a document with mistakes is told: every one, where it stands, and the remedy."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tabulae.errors import SpecError
from tabulae.spec import Spec, read_spec
from tabulae.spec.promise import METHODS

FIVE = """\
title = "Five mistakes"
[source]
pth = "people.csv"
path = "people.csv"

[attributes]
sex = { categories = ["F", "M", "F"] }
age = { range = [0, 114] }

[privacy]
definition = "zcdp"
budget = 0.5
ledger = "ledger.db"

[[table]]
name = "ages"
attributes = ["aeg"]

[method]
noise = "laplace"
"""


def test_five_mistakes_are_five_problems(desk) -> None:
    with pytest.raises(SpecError) as caught:
        Spec.from_text(FIVE, desk.base, "five.toml")
    assert str(caught.value).splitlines() == [
        "five.toml: 5 mistakes",
        '  source.pth (line 3): unknown key; did you mean "path"?',
        '  attributes.sex.categories (line 7): lists "F" twice',
        (
            "  privacy.budget (line 12): must be a string, because a number that decides privacy must be "
            'exact: write "0.5"'
        ),
        '  table[0].attributes[0] (line 17): there is no attribute or recode "aeg"; did you mean "age"?',
        (
            '  method.noise (line 20): "laplace" noise does not keep the promise of definition = "zcdp": '
            'write noise = "gaussian" or remove it, or write definition = "pure"'
        ),
    ]


def test_a_table_is_not_blamed_for_an_attribute_that_could_not_be_read(desk) -> None:
    text = desk.changed(("range = [0, 114]", "range = [114, 0]"))
    assert [problem.path for problem in desk.problems(text)] == ["attributes.age"]


# (what is replaced, by what, the path of the problem, a word of its message)
MISTAKES = {
    # keys and types
    "unknown section": ("[privacy]", "[privcy]\nx = 1\n[privacy]", "privcy", 'did you mean "privacy"'),
    "unknown key in a table": (
        "[[table]]",
        "[[table]]\nwieght = 2",
        "table[0].wieght",
        'did you mean "weight"',
    ),
    "missing name": ('name = "sex_by_age"\n', "", "table[0].name", "is missing"),
    "wrong type": ('unit = "person"', "unit = 3", "source.unit", "must be a string, not 3"),
    "empty title": ("Demo county, persons", " ", "title", "must be a string"),
    "a section that is a value": ("[privacy]", "method = 3\n[privacy]", "recodes.method", "table of keys"),
    "one bracket": ("[[table]]", "[table]", None, "not TOML"),
    # source
    "no path": ('path = "people.csv"\n', "", "source", "has no path"),
    "unknown ending": ("people.csv", "people.sas", "source", 'add kind = "csv"'),
    "duckdb without table": ("people.csv", "people.duckdb", "source", 'add table = "persons"'),
    "table of a csv": ('unit = "person"', 'table = "persons"', "source", "remove it"),
    "many rows": (
        'unit = "person"',
        "rows_per_unit = 2",
        "source.rows_per_unit",
        'add unit_id = "person_id"',
    ),
    "no rows": ('unit = "person"', "rows_per_unit = 0", "source.rows_per_unit", "must be 1 or more"),
    "half a row": (
        'unit = "person"',
        'unit_id = "id"\nrows_per_unit = 2.5',
        "source.rows_per_unit",
        "must be an integer, not 2.5",
    ),
    "rows as text": (
        'unit = "person"',
        'unit_id = "id"\nrows_per_unit = "2"',
        "source.rows_per_unit",
        'must be an integer, not "2"',
    ),
    "rows as truth": (
        'unit = "person"',
        "rows_per_unit = true",
        "source.rows_per_unit",
        "must be an integer",
    ),
    "no rows of a unit": (
        'unit = "person"',
        'unit_id = "id"\nrows_per_unit = 0',
        "source.rows_per_unit",
        "must be 1 or more",
    ),
    "too many rows": (
        'unit = "person"',
        'unit_id = "id"\nrows_per_unit = 1000001',
        "source.rows_per_unit",
        "at most 1,000,000",
    ),
    "unit_id": ('unit = "person"', "unit_id = 3", "source.unit_id", "must be a string, not 3"),
    "no unit_id": ('unit = "person"', 'unit_id = " "', "source.unit_id", "is empty"),
    "a wrong unit_id is one mistake": (
        'unit = "person"',
        "unit_id = 3\nrows_per_unit = 2",
        "source.unit_id",
        "must be a string, not 3",
    ),
    "engine": ('unit = "person"', 'engine = "flink"', "source.engine", "spark"),
    "engine of another kind": (
        'unit = "person"',
        'engine = "spark"',
        "source",
        "reads Parquet, and this is csv",
    ),
    "engine of a server": ('unit = "person"', 'engine = "postgresql"', "source", "this is a file"),
    "two places": ('unit = "person"', 'url = "postgresql://h/d"\ntable = "t"', "source", "keep one of them"),
    "a server without a table": ('path = "people.csv"', 'url = "postgresql://h/d"', "source", "no table"),
    "a server and an engine": (
        'path = "people.csv"',
        'url = "postgresql://h/d"\ntable = "t"\nengine = "spark"',
        "source",
        "remove kind and engine",
    ),
    "another server": (
        'path = "people.csv"',
        'url = "mysql://h/d"\ntable = "t"',
        "source.url",
        "postgresql://",
    ),
    "a url for a path": ('path = "people.csv"', 'path = "s3://b/p.csv"', "source", "a url for a path"),
    "no url": ('path = "people.csv"', 'url = "postgresql://[h/d"\ntable = "t"', "source.url", "is not a url"),
    "a server with a path": (
        'path = "people.csv"',
        'path = "people"\nkind = "postgresql"\ntable = "t"',
        "source",
        "has a url, url =",
    ),
    # attributes
    "two kinds": ('["F", "M"]', '["F", "M"], range = [0, 1]', "attributes.sex", "exactly one of"),
    "neither": ("range = [0, 114]", 'unknown = "other"', "attributes.age", "none of them"),
    "range of three": ("[0, 114]", "[0, 1, 2]", "attributes.age", "[lowest, highest]"),
    "huge range": ("[0, 114]", "[0, 9999999]", "attributes.age.range", "more than 1,000,000 values"),
    "mixed categories": (
        '["F", "M"]',
        '["F", 1]',
        "attributes.sex.categories",
        "all strings, or all integers",
    ),
    "no categories": ('["F", "M"]', "[]", "attributes.sex.categories", "must list"),
    "policy": (
        "range = [0, 114]",
        'range = [0, 114], null = "drop"',
        "attributes.age.null",
        '"refuse" or "other"',
    ),
    "section policy": ("sex = {", 'unknown = "drop"\nsex = {', "attributes.unknown", 'not "drop"'),
    "policy as attribute": (
        "sex = {",
        "null = { range = [0, 1] }\nsex = {",
        "attributes.null",
        "no attribute",
    ),
    "total label": ('["F", "M"]', '["F", "_T"]', "attributes.sex", "stands for the total"),
    "two others": ('["F", "M"] }', '["F", "other"], null = "other" }', "attributes.sex", "of its own"),
    "result column": (
        "sex = {",
        "estimate = { range = [0, 1] }\nsex = {",
        "attributes.estimate",
        "column of that",
    ),
    # recodes
    "edges outside": ("[5, 10, 15, 18]", "[5, 200]", "recodes.age5.edges", "must increase"),
    "edges below": ("[5, 10, 15, 18]", "[0, 5]", "recodes.age5.edges", "must increase"),
    "edges falling": ("[5, 10, 15, 18]", "[18, 5]", "recodes.age5.edges", "must increase"),
    "no edges": ("[5, 10, 15, 18]", "[]", "recodes.age5.edges", "no edges"),
    "edges of names": ('of = "age"', 'of = "sex"', "recodes.age5.edges", "no order"),
    "recode of nothing": ('of = "age"', 'of = "agee"', "recodes.age5.of", 'did you mean "age"'),
    "recode of a recode": ('of = "race"', 'of = "age5"', "recodes.major.of", "recodes are of attributes"),
    "recode named as attribute": ("major = {", "sex = {", "recodes.sex", "name of an attribute"),
    "edges and map": ("[5, 10, 15, 18]", '[5], map = "x.csv"', "recodes.age5", "exactly one of"),
    # privacy
    "definition": ('"zcdp"', '"zcpd"', "privacy.definition", "must be"),
    "float budget": ('"1/2"', "0.5", "privacy.budget", 'write "0.5"'),
    "integer budget": ('"1/2"', "1", "privacy.budget", 'write "1"'),
    "nan": ('"1/2"', "nan", "privacy.budget", "must be a string"),
    "no budget": ('budget = "1/2"\n', "", "privacy.budget", "is missing"),
    "no ledger": ('ledger = "ledger.db"\n', "", "privacy.ledger", "is missing"),
    "neighbours": (
        "[[table]]",
        'neighbours = "swap"\n[[table]]',
        "privacy.neighbours",
        '"replace-within-invariants", "record-free" or "record-derived"',
    ),
    "approx without delta": ('"zcdp"', '"approx"', "privacy.delta", "is missing"),
    "delta of pure": ('"zcdp"', '"pure"\ndelta = "1e-6"', "privacy.delta", "no meaning"),
    "float delta": ('"zcdp"', '"zcdp"\ndelta = 1e-6', "privacy.delta", 'write "1e-06"'),
    "delta of 1": ('"zcdp"', '"zcdp"\ndelta = "1"', "privacy.delta", "between 0 and 1"),
    "delta of 0": ('"zcdp"', '"approx"\ndelta = "0"', "privacy.delta", "between 0 and 1"),
    # tables
    "missing attribute": (
        '["sex", "age5"]',
        '["sex", "county"]',
        "table[0].attributes[1]",
        "no attribute or recode",
    ),
    "attribute and its recode": (
        '["sex", "age5"]',
        '["age", "age5"]',
        "table[0].attributes[1]",
        "views of one",
    ),
    "attribute twice": ('["sex", "age5"]', '["sex", "sex"]', "table[0].attributes[1]", "twice"),
    "nothing counted": ('attributes = ["sex", "age5"]\n', "", "table[0]", "counts nothing"),
    "sql and attributes": ("sql = ", 'attributes = ["sex"]\nsql = ', "table[1]", "remove attributes"),
    "weight 0": ('["sex", "age5"]', "[]\nweight = 0", "table[0].weight", "must be greater than 0"),
    "weight below 0": ('["sex", "age5"]', "[]\nweight = -1.5", "table[0].weight", "must be greater than 0"),
    "weight nan": ('["sex", "age5"]', "[]\nweight = nan", "table[0].weight", "must be"),
    "weight inf": ('["sex", "age5"]', "[]\nweight = inf", "table[0].weight", "finite"),
    "targets of nobody": ('"1/2"', '"targets"', "privacy.budget", "no table has one"),
    "empty target": ('["sex", "age5"]', "[]\ntarget = {}", "table[0].target", "one of margin or rmse"),
    "two targets": (
        '["sex", "age5"]',
        "[]\ntarget = { margin = 5, rmse = 2 }",
        "table[0].target",
        "one of margin or rmse",
    ),
    "confident rmse": (
        '["sex", "age5"]',
        "[]\ntarget = { rmse = 5, confidence = 0.9 }",
        "table[0].target",
        "confidence goes with margin",
    ),
    "target of nothing": (
        '["sex", "age5"]',
        "[]\ntarget = { margin = 0 }",
        "table[0].target.margin",
        "greater than 0",
    ),
    "too sure": (
        '["sex", "age5"]',
        "[]\ntarget = { margin = 9, confidence = 1 }",
        "table[0].target.confidence",
        "less than 1",
    ),
    "same name": ('"young_or_old"', '"Sex_by_age"', "table[1].name", "table[0] is named"),
    "a path as name": ('"young_or_old"', '"../x"', "table[1].name", "begin with a letter"),
    "unknown query": (
        '["sex", "age5"]',
        '[]\nqueries = { age = "cdf" }',
        "table[0].queries.age",
        "is not a query",
    ),
    "query form": ('["sex", "age5"]', "[]\nqueries = { age = 3 }", "table[0].queries.age", "is not a query"),
    "query key": (
        '["sex", "age5"]',
        "[]\nqueries = { age = { w = 3 } }",
        "table[0].queries.age.w",
        "unknown query",
    ),
    "wide": (
        '["sex", "age5"]',
        "[]\nqueries = { age = { width = 116 } }",
        "table[0].queries.age.width",
        "1 to 115",
    ),
    "true width": (
        '["sex", "age5"]',
        "[]\nqueries = { age = { width = true } }",
        "table[0].queries.age.width",
        "1 to",
    ),
    "no matrix": ('["sex", "age5"]', "[]\nqueries = { age = { matrix = 'w.npy' } }", None, "cannot read"),
    "sql column": ("age < 5 OR", "agee < 5 OR", "table[1].sql", "agee"),
    "sql that is not": ("SELECT sex, COUNT(*)", "DELETE", "table[1].sql", ""),
    "sql sum": ("COUNT(*)", "SUM(age)", "table[1].sql", ""),
    "always zero": ("age < 5 OR age > 80", "age > 200", "table[1].sql", "always 0"),
    # method and release
    "method": ("[[table]]", '[method]\nselect = "hdm"\n[[table]]', "method.select", 'did you mean "hdmm"'),
    "estimate": ("[[table]]", '[method]\nestimate = "ls"\n[[table]]', "method.estimate", '"least-squares"'),
    "noise": (
        "[[table]]",
        '[method]\nnoise = "normal"\n[[table]]',
        "method.noise",
        '"gaussian" or "laplace"',
    ),
    "time": ("[[table]]", "[method]\ntime_limit = 0\n[[table]]", "method.time_limit", "greater than 0"),
    "gap": ("[[table]]", "[method]\ntolerance = 0\n[[table]]", "method.tolerance", "greater than 0"),
    "seed": ("[[table]]", "[method]\nseed = -1\n[[table]]", "method.seed", "must be 0 or more"),
    "rows": ("[[table]]", "[release]\nmax_rows = 11\n[[table]]", "release.max_rows", "12 rows in all"),
    "no limit": ("[[table]]", "[release]\nmax_rows = 0\n[[table]]", "release.max_rows", "1 or more"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_each_mistake_is_one_problem_where_it_stands(desk, name: str) -> None:
    old, new, path, words = MISTAKES[name]
    text = desk.changed((old, new))
    [problem] = desk.problems(text)
    assert words in problem.message
    assert path is None or problem.path == path
    key = re.split(r"[.\[]", problem.path)[-1].rstrip("]")
    written = text.splitlines()[(problem.line or 1) - 1]
    if path and key in new and not key.isdigit():
        assert key in written, (problem, written)


@pytest.mark.parametrize(
    "value", ["0", "-1", "-1/2", "nan", "inf", "-inf", "", "half", "1/0", "1e400", "0.5.1"]
)
@pytest.mark.parametrize("definition", ["zcdp", "pure"])
def test_a_budget_that_promises_nothing(desk, value: str, definition: str) -> None:
    text = desk.changed(('"1/2"', f'"{value}"'), ('"zcdp"', f'"{definition}"'))
    [problem] = desk.problems(text)
    assert (problem.path, problem.line) == ("privacy.budget", 18)


@pytest.mark.parametrize("name", METHODS)
def test_names_of_this_version_are_accepted(desk, name: str) -> None:
    assert desk.read(f'{desk.good}\n[method]\nselect = "{name}"\n').method.select == name


def test_gaussian_noise_does_not_keep_a_pure_promise(desk) -> None:
    text = desk.changed(('"zcdp"', '"pure"')) + '[method]\nnoise = "gaussian"\n'
    [problem] = desk.problems(text)
    assert problem.path == "method.noise"
    assert 'noise = "laplace"' in problem.message
    assert 'definition = "approx"' in problem.message


def test_a_password_is_refused_without_being_repeated(desk) -> None:
    text = desk.changed(
        ('path = "people.csv"', 'url = "postgresql://clerk:hunter2@vault/db"\npassword = "hunter3"')
    )
    told = desk.problems(text)
    assert [problem.path for problem in told] == ["source.url", "source.password"]
    assert not re.search("hunter|vault|clerk", str(SpecError(told)))


def test_mistakes_of_one_section_do_not_hide_each_other(desk) -> None:
    text = desk.changed(
        ('definition = "zcdp"', 'definition = "pure"\nneighbors = "replace"\ndelta = "2"'),
        ('"1/2"', '"-1"'),
        ("[5, 10, 15, 18]", "[5, 200], off = 3"),
        ("[0, 114]", '[0, 114], null = "keep"'),
        ('name = "sex_by_age"', "name = 7"),
        ('"age5"]', '"hair"]\nwieght = 1'),
        ("age > 80", "agee > 80"),
    )
    assert sorted(problem.path for problem in desk.problems(text)) == [
        "attributes.age.null",
        "privacy.budget",
        "privacy.delta",
        "privacy.neighbors",
        "recodes.age5.edges",
        "recodes.age5.off",
        "table[0].attributes[1]",
        "table[0].name",
        "table[0].wieght",
        "table[1].sql",
    ]


def test_an_empty_document_is_told_what_it_needs(desk) -> None:
    assert {problem.path for problem in desk.problems("")} == {
        "source",
        "attributes",
        "privacy.definition",
        "privacy.budget",
        "privacy.ledger",
        "table",
    }


def test_tables_are_counted_together(desk) -> None:
    text = (
        desk.good + '\n[[table]]\nname = "many"\nqueries = { age = "ranges" }\n[release]\nmax_rows = 6000\n'
    )
    [problem] = desk.problems(text)
    assert '6,682 rows in all, 6,670 of them in "many"' in problem.message
    assert desk.read(text.replace("6000", "6682")).workload.queries == 6682


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("title = 'x'\nbudget = = 1\n", 2),
        ("a = [1,\n2", 2),
        ("a = 01", 1),
    ],
)
def test_what_is_not_toml_has_its_line(desk, text: str, line: int) -> None:
    desk.file("spec.toml", text)
    with pytest.raises(SpecError) as caught:
        read_spec(desk.base / "spec.toml")
    [problem] = caught.value.problems
    assert (problem.path, problem.line) == ("document", line)
    assert "(at " not in problem.message


BAD_MATRICES = {
    "three columns": (np.ones((2, 3)), "its shape is (2, 3)"),
    "a vector": (np.ones(115), "one matrix"),
    "nan": (np.full((1, 115), np.nan), "finite"),
    "zeros": (np.zeros((1, 115)), "row of zeros"),
    "words": (np.full((1, 115), "x"), "numbers"),
    "no rows": (np.ones((0, 115)), "needs rows"),
    "objects": (np.full((1, 115), None), "numbers"),
}


@pytest.mark.parametrize("name", BAD_MATRICES)
def test_a_matrix_that_is_none(desk, name: str) -> None:
    array, words = BAD_MATRICES[name]
    np.save(desk.base / "w.npy", array)
    [problem] = desk.problems(
        desk.changed(('["sex", "age5"]', "[]\nqueries = { age = { matrix = 'w.npy' } }"))
    )
    assert problem.path == "table[0].queries.age.matrix"
    assert words in problem.message


def test_several_matrices_in_one_file_are_refused(desk) -> None:
    np.savez(desk.base / "w.npz", a=np.ones((1, 115)))
    [problem] = desk.problems(
        desk.changed(('["sex", "age5"]', "[]\nqueries = { age = { matrix = 'w.npz' } }"))
    )
    assert "one matrix" in problem.message
