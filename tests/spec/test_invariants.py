"""``[[invariant]]``: what it means, what is published of it, and what it is told when it is wrong."""

from __future__ import annotations

import tomllib

import numpy as np
import pytest

from tabulae.errors import SpecError
from tabulae.products.tables.spec import Invariant
from tabulae.spec import Spec

EXACT = """
[[invariant]]
attributes = []
reason = "the register publishes it"

[[invariant]]
attributes = ["sex", "age5"]
reason = "apportionment"

[[invariant]]
queries = { major = "identity", age = { width = 100 } }
reason = "agreed"

[[invariant]]
name = "adults"
sql = "SELECT sex, COUNT(*) FROM people WHERE age >= 18 OR race = '01' GROUP BY sex"
reason = "the electoral roll"
"""


def invariant(*lines: str) -> str:
    return "\n[[invariant]]\n" + "\n".join(lines) + "\n"


def published_again(desk, spec: Spec) -> Spec:
    """The published copy, read beside the files that it names."""
    for name, content in spec.files.items():
        desk.file(name, content)
    return desk.read(spec.published_text())


def test_what_invariants_mean(desk) -> None:
    spec = desk.read(desk.good + EXACT)
    assert all(isinstance(one, Invariant) for one in spec.invariants)
    assert [(one.table.name, one.reason) for one in spec.invariants] == [
        ("exact total", "the register publishes it"),
        ("exact sex by age5", "apportionment"),
        ("exact major by age", "agreed"),
        ("adults", "the electoral roll"),
    ]
    counts = np.arange(2 * 115 * 3).reshape(2, 115, 3)
    found = [one.table.operator(spec.domain) @ counts.ravel() for one in spec.invariants]
    classes = np.add.reduceat(counts.sum(axis=2), [0, 5, 10, 15, 18], axis=1)
    windows = [counts.sum(axis=0)[i : i + 100] for i in range(16)]
    alone = [[window[:, :2].sum(), window[:, 2].sum()] for window in windows]
    adults = counts[:, 18:].sum(axis=(1, 2)) + counts[:, :18, 0].sum(axis=1)
    for got, wanted in zip(found, (counts.sum(), classes, alone, adults), strict=True):
        np.testing.assert_array_equal(got, np.ravel(wanted))
    assert [table.name for table in spec.workload.tables] == ["sex_by_age", "young_or_old"]
    assert spec.invariants[1].table.columns(spec.domain)["age5"] == ("0-4", "5-9", "10-14", "15-17", "18-114")


def test_a_spec_without_invariants_is_published_as_before(desk) -> None:
    spec = desk.read(desk.good)
    assert spec.invariants == ()
    assert "invariant" not in spec.published_text()


def test_the_published_copy_reads_back_to_the_same(desk) -> None:
    text = (
        desk.good
        + EXACT
        + invariant("name = 'w'", "queries = { age = { matrix = 'secret/w.npy' } }", "reason = 'x'")
    )
    (desk.base / "secret").mkdir()
    np.save(desk.base / "secret/w.npy", np.ones((1, 115)) * [[2 if age < 7 else 0 for age in range(115)]])
    spec = desk.read(text)
    published = spec.published_text()
    assert "secret" not in published
    again = published_again(desk, spec)
    assert again.invariants == spec.invariants
    assert again.digest() == spec.digest()
    assert again.published_text() == published
    written = tomllib.loads(published)["invariant"]
    assert written[0] == {"attributes": [], "reason": "the register publishes it", "name": "exact total"}
    assert written[4]["queries"] == {"age": {"matrix": "queries/w/age.npy"}}


def test_a_name_is_worth_what_its_default_is(desk) -> None:
    plain, named = (
        desk.good + invariant("attributes = ['sex']", "reason = 'law'", *extra)
        for extra in ((), ("name = 'exact sex'",))
    )
    assert desk.read(plain).digest() == desk.read(named).digest()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("apportionment", "whim"),
        ('["sex", "age5"]', '["sex"]'),
        ('"adults"', '"grown"'),
        ("age >= 18", "age >= 19"),
        ('[[invariant]]\nattributes = []\nreason = "the register publishes it"\n', ""),
    ],
)
def test_the_digest_tells_invariants_apart(desk, old: str, new: str) -> None:
    text = desk.good + EXACT
    assert old in text
    assert desk.read(text).digest() != desk.read(text.replace(old, new)).digest()


def test_a_name_that_no_file_could_have_is_mended(desk) -> None:
    text = desk.changed(
        ("sex = {", '"sex (m, f)" = {'), ('["sex", "age5"]', '["age5"]'), ("SELECT sex,", "SELECT")
    )
    text = text.replace(" GROUP BY sex", "") + invariant("attributes = ['sex (m, f)']", "reason = 'law'")
    spec = desk.read(text)
    assert spec.invariants[0].table.name == "exact sex _m_ f_"
    assert published_again(desk, spec).digest() == spec.digest()


REASON = 'reason = "law"'

# the line of the problem below the header, the lines there, the path of the problem, words of its message
MISTAKES = {
    "unknown attribute": (
        1,
        ['attributes = ["aeg"]', REASON],
        "invariant[0].attributes[0]",
        'did you mean "age"',
    ),
    "unknown attribute of a query": (
        1,
        ['queries = { aeg = "prefix" }', REASON],
        "invariant[0].queries.aeg",
        'did you mean "age"',
    ),
    "unknown category": (
        2,
        ['name = "x"', "sql = \"SELECT COUNT(*) FROM p WHERE sex = 'X'\"", REASON],
        "invariant[0].sql",
        "'X'",
    ),
    "unknown column": (
        2,
        ['name = "x"', 'sql = "SELECT COUNT(*) FROM p WHERE agee = 3"', REASON],
        "invariant[0].sql",
        "agee",
    ),
    "nobody": (
        2,
        ['name = "x"', 'sql = "SELECT COUNT(*) FROM p WHERE age > 200"', REASON],
        "invariant[0].sql",
        "always 0",
    ),
    "nothing counted": (0, [REASON], "invariant[0]", "attributes = [] is the total"),
    "two forms": (
        0,
        ['name = "x"', "attributes = []", 'sql = "SELECT COUNT(*) FROM p"', REASON],
        "invariant[0]",
        "or the sql",
    ),
    "no reason": (0, ["attributes = []"], "invariant[0].reason", 'reason = "fixed by law"'),
    "empty reason": (2, ["attributes = []", 'reason = " "'], "invariant[0].reason", "is empty"),
    "no name for sql": (
        0,
        ['sql = "SELECT COUNT(*) FROM p WHERE age < 5"', REASON],
        "invariant[0].name",
        "name =",
    ),
    "weight": (2, ["attributes = []", "weight = 2", REASON], "invariant[0].weight", "exact count has none"),
    "target": (
        2,
        ["attributes = []", "target = { rmse = 2 }", REASON],
        "invariant[0].target",
        "exact count is not",
    ),
    "level": (
        2,
        ["attributes = []", 'level = "state"', REASON],
        "invariant[0].level",
        "there is no [geography]",
    ),
    "unknown key": (
        2,
        ["attributes = []", 'raeson = "law"', REASON],
        "invariant[0].raeson",
        'did you mean "reason"',
    ),
    "the name of a table": (
        2,
        ["attributes = []", 'name = "Sex_by_age"', REASON],
        "invariant[0].name",
        "table[0] is named",
    ),
    "a path as name": (
        2,
        ["attributes = []", 'name = "../x"', REASON],
        "invariant[0].name",
        "begin with a letter",
    ),
    "views of one attribute": (
        1,
        ['attributes = ["age", "age5"]', REASON],
        "invariant[0].attributes[1]",
        "views of one",
    ),
    "width": (
        1,
        ["queries = { age = { width = 116 } }", REASON],
        "invariant[0].queries.age.width",
        "1 to 115",
    ),
    "half counts": (
        1,
        ["queries = { age = { matrix = 'half.npy' } }", REASON],
        "invariant[0].queries",
        "not whole numbers",
    ),
    "too large": (
        1,
        ["queries = { big = { width = 9 } }", REASON],
        "invariant[0].queries",
        "too large to be written",
    ),
    "rows": (
        4,
        ["queries = { age = 'ranges' }", REASON, "[release]", "max_rows = 600"],
        "release.max_rows",
        "6,682 rows",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_each_mistake_is_one_problem_where_it_stands(desk, name: str) -> None:
    line, lines, path, words = MISTAKES[name]
    np.save(desk.base / "half.npy", np.full((1, 115), 0.5))
    good = desk.changed(("race = {", "big = { range = [1, 3000] }\nrace = {"))
    text = good + invariant(*lines)
    [problem] = desk.problems(text)
    assert (problem.path, words in problem.message) == (path, True), problem
    assert problem.line == text[: text.index("[[invariant]]")].count("\n") + 1 + line


def test_the_lines_of_several_mistakes(desk) -> None:
    text = desk.good + invariant("attributes = ['sx']", "weight = 1", "level = 'state'")
    start = desk.good.count("\n") + 2
    with pytest.raises(SpecError) as caught:
        Spec.from_text(text, desk.base, "exact.toml")
    assert str(caught.value).splitlines() == [
        "exact.toml: 4 mistakes",
        (
            f"  invariant[0].reason (line {start}): is missing: the report prints why these counts may be exact: "
            'reason = "fixed by law"'
        ),
        f'  invariant[0].attributes[0] (line {start + 1}): there is no attribute or recode "sx"; did you mean "sex"?',
        (
            f"  invariant[0].weight (line {start + 2}): is of tables, whose errors it weighs: an exact count has none, "
            "so remove it"
        ),
        (
            f"  invariant[0].level (line {start + 3}): is of a geography, and there is no [geography]: remove it"
        ),
    ]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (["attributes = ['sex']"], ["attributes = ['sex']"]),
        (["attributes = ['sex', 'age5']"], ["attributes = ['age5', 'sex']", "name = 'other'"]),
        (["queries = { age = 'prefix' }"], ["attributes = ['age']"]),
        (["queries = { age = 'prefix' }"], ["attributes = ['age']", "name = 'b'"]),
        (["attributes = []"], ["queries = { race = 'total' }", "name = 'b'"]),
        (
            ["sql = 'SELECT COUNT(*) FROM p WHERE age < 18'", "name = 'a'"],
            ["sql = 'SELECT COUNT(*) FROM q WHERE NOT age >= 18'", "name = 'b'"],
        ),
    ],
)
def test_an_invariant_given_twice(desk, first: list[str], second: list[str]) -> None:
    text = desk.good + invariant(*first, REASON) + invariant(*second, "reason = 'another'")
    [problem] = desk.problems(text)
    assert problem.path == "invariant[1]"
    assert problem.message == "makes the same counts exact as invariant[0]: keep one"
    assert text.splitlines()[problem.line - 1] == "[[invariant]]"


def test_two_invariants_of_one_name(desk) -> None:
    text = (
        desk.good
        + invariant("attributes = ['sex']", REASON)
        + invariant("attributes = []", "name = 'Exact sex'", REASON)
    )
    [problem] = desk.problems(text)
    assert (problem.path, problem.message) == (
        "invariant[0].name",
        'invariant[1] is named "Exact sex", and names must differ in more than capitals: rename one',
    )


def test_a_default_name_that_is_taken(desk) -> None:
    half = invariant("queries = { age = { width = 9 } }", REASON)
    [problem] = desk.problems(desk.good + half + invariant("attributes = ['age']", REASON))
    assert (problem.path, problem.message) == (
        "invariant[1].name",
        'invariant[0] is named "exact age" too: rename one',
    )
    taken = desk.changed(('"young_or_old"', '"Exact age"'))
    [problem] = desk.problems(taken + half)
    assert (problem.path, problem.message) == (
        "invariant[0].name",
        'table[1] is named "Exact age", and names must differ in more than capitals: rename one',
    )


def test_invariants_that_overlap_are_a_document(desk) -> None:
    text = desk.good + "".join(
        invariant(f"attributes = {a}", REASON) for a in ([], ["sex"], ["sex", "age5"], ["age"])
    )
    assert len(desk.read(text).invariants) == 4


@pytest.mark.parametrize("form", ["[invariant]\nattributes = []\nreason = 'law'", "invariant = 3"])
def test_invariants_are_sections_of_an_array(desk, form: str) -> None:
    text = f"{form}\n{desk.good}" if "=" in form.split("\n")[0] else f"{desk.good}\n{form}\n"
    [problem] = desk.problems(text)
    assert problem.path == "invariant"
    assert "[[invariant]]" in problem.message


def test_an_invariant_is_not_blamed_for_an_attribute_that_could_not_be_read(desk) -> None:
    text = desk.changed(("range = [0, 114]", "range = [114, 0]")) + EXACT
    assert [problem.path for problem in desk.problems(text)] == ["attributes.age"]


WITHIN = ('definition = "zcdp"', 'definition = "zcdp"\nneighbours = "replace-within-invariants"')


def test_neighbours_within_invariants(desk) -> None:
    spec = desk.read(desk.changed(WITHIN) + EXACT)
    assert spec.neighbours == "replace-within-invariants"
    assert published_again(desk, spec).neighbours == spec.neighbours


def test_neighbours_within_invariants_need_one(desk) -> None:
    [problem] = desk.problems(desk.changed(WITHIN))
    assert (problem.path, problem.line) == ("privacy.neighbours", 18)
    assert "protects one record against any other that leaves every exact count as it is" in problem.message
    assert "add an [[invariant]]" in problem.message


def test_neighbours_within_invariants_are_of_single_records(desk) -> None:
    rows = ('unit = "person"', 'unit = "person"\nunit_id = "id"\nrows_per_unit = 2')
    [problem] = desk.problems(desk.changed(WITHIN, rows) + EXACT)
    assert problem.path == "privacy.neighbours"
    assert "may change together without each of them keeping the exact counts" in problem.message
    one = ('unit = "person"', 'unit = "person"\nunit_id = "id"\nrows_per_unit = 1')
    assert desk.read(desk.changed(WITHIN, one) + EXACT).rows_per_unit == 1
    assert desk.read(desk.changed(rows) + EXACT).rows_per_unit == 2


def test_a_graphical_model_cannot_keep_counts_exact(desk) -> None:
    text = desk.good + '[method]\nestimate = "pgm"\n'
    assert desk.read(text).method.estimate == "pgm"
    [problem] = desk.problems(text + EXACT)
    assert problem.path == "method.estimate"
    assert '"least-squares" or "non-negative"' in problem.message
