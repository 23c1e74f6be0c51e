"""The form shows every key of a document, and each of its controls changes that key as somebody would type it."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.village import SPEC

from tabulae.spec.problems import written
from tabulae.studio.change import _RIVALS, change
from tabulae.studio.form import _AS_TOML, _LISTS, _SINGLE, DOMAINS, NAMED, Control, Entry, Mistake, chapters
from tabulae.studio.server import _templates

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.toml"))


def entries(text: str, folder: Path = ROOT) -> list[Entry]:
    """All entries, opened."""
    names = [entry.at for chapter in chapters(text, (), folder) for entry in chapter.entries]
    return [entry for chapter in chapters(text, names, folder) for entry in chapter.entries]


def controls(text: str, folder: Path = ROOT) -> Iterator[Control]:
    """All controls, those of groups among them."""

    def flat(given: tuple[Control, ...]) -> Iterator[Control]:
        for control in given:
            yield from flat(control.parts) if control.kind == "group" else (control,)

    for entry in entries(text, folder):
        yield from flat((*entry.main, *entry.more))


def used(text: str, *steps: tuple[str, str, object]) -> str:
    """The text after some controls were used: operation, path with dots, and what the control holds."""
    for op, path, value in steps:
        parts = tuple(int(part) if part.isdigit() else part for part in path.split("."))
        text = change(text, op, parts, value)
    return text


def typed(value: str, kind: str = "text") -> dict[str, str]:
    return {"kind": kind, "value": value}


WHOLE = """# of a survey of households
title = "Survey" # its title

[source]
url = "postgresql://clerk@census.example/survey" # without a password
table = "persons"
unit = "household"
unit_id = "HH"
rows_per_unit = 6
where = "AGE >= 0"
units = { table = "households" }
left_out = { share = "1/50", at_most = 20 }

# what is counted
[attributes]
unknown = "refuse"
sex = { categories = ["F", "M"] } # of the register
tenure = { of = "unit", column = "TEN", categories = ["own", "rent"] }
elderly = { of = "unit", count = "age >= 65", most = 3 }
age = { range = [0, 114] }
born = { years = [1900, 2024] }

[values]
income = { column = "INCOME", range = [0, 200000], step = "1/2", outside = "clamp", null = 0, squares = true }
w = { column = "W", range = [0, 500] } # of the survey

[privacy]
definition = "zcdp"
budget = "1/2"
neighbours = "record-derived" # one record
ledger = "ledger.db"

[[table]] # the first
name = "incomes"
attributes = ["sex"]
measures = [
    "count", # of them
    { sum = "income", target = { margin = 5000 } },
    { mean = "income" },
    { variance = "income", near = 20000 },
    { quantiles = ["1/4", "1/2"], of = "age" },
]
totals = ["sex"]

[[table]]
name = "weighted"
attributes = ["sex"]
queries = { age = { width = 10 } }
survey_weight = "w"
sampling = { a = 0.5, b = 2500 }

[[table]]
name = "households"
counts = "units"
attributes = ["tenure", "elderly"]

[[earlier]]
release = "before"
table = "total"
attributes = []
level = "county"

[[derived]]
name = "quartile"
sql = "SELECT PERCENTILE_CONT(0.25) WITHIN GROUP (ORDER BY age) FROM people"

[method]
estimate = "posterior" # or "sparse"
"""
TEXTS = {path.stem: (path.read_text(encoding="utf-8"), path.parent) for path in EXAMPLES}
TEXTS["whole"] = WHOLE, ROOT
LARGE = ("dhc-households", "dhc-persons", "households", "phsafe")
"""Specs of hundreds of controls: of each kind that they have, the others have one."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name in LARGE)) for name in TEXTS]
)
def test_what_a_control_shows_is_what_it_would_write(name: str) -> None:
    text, folder = TEXTS[name]
    document = tomllib.loads(text)
    shown = list(controls(text, folder))
    for control in shown:
        if control.op == "member":
            assert list(control.value) == _at(document, control.path, [])
        elif control.op != "domain" and control.value:
            after = change(text, control.op, control.path, typed(control.value, control.kind))
            assert tomllib.loads(after) == document, control.path
    named = {control.path for control in shown}
    whole = {control.path for control in shown if control.kind == "toml"}
    assert all(
        any(path[: len(key)] == key for path in named) or any(key[: len(path)] == path for path in whole)
        for key in _keys(document)
    )
    opened = [entry.at for entry in entries(text)]
    page = (
        _templates().get_template("form.html").render(chapters=chapters(text, opened, folder), opened=opened)
    )
    assert all(
        f'id="f-{written(control.path).replace(" ", "_")}' in page
        for control in shown
        if "'" not in written(control.path) and '"' not in written(control.path)
    )


_HELD = {
    "flag": st.sampled_from(["on", ""]),
    "number": st.sampled_from(["7", "0.5", ""]),
    "numbers": st.sampled_from(["1, 2, 3", "5", ""]),
    "names": st.sampled_from(["a, b", "c", ""]),
    "lines": st.sampled_from(["a\nb", "1\n2", ""]),
    "toml": st.sampled_from(['["x", { y = 1 }]', "{ a = 1 }", "3", ""]),
}


@cache
def _set_by(name: str) -> list[Control]:
    return [control for control in controls(*TEXTS[name]) if control.op == "set" and control.kind != "todo"]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name in LARGE)) for name in TEXTS]
)
@settings(max_examples=20)
@given(data=st.data())
def test_a_control_changes_its_own_key_and_no_comment_of_others(name: str, data: st.DataObject) -> None:
    text, _ = TEXTS[name]
    control = data.draw(st.sampled_from(_set_by(name)))
    words = st.text("ab #'\"\\[]{}=,.é", max_size=6)
    value = data.draw(_HELD.get(control.kind, words))
    try:
        after = change(text, "set", control.path, typed(value, control.kind))
    except Mistake:
        return
    before, now = (_without(tomllib.loads(each), control.path) for each in (text, after))
    assert before == now
    if value.strip():
        inside = {line.strip() for line in str(control.value).splitlines()}
        lost = Counter(_comments(text)) - Counter(_comments(after))
        assert not any(line in text and line not in inside for line in lost)


def _comments(text: str) -> Iterator[str]:
    return (line.strip() for line in text.split("\n") if line.lstrip().startswith("#"))


def _without(document: Any, path: tuple[str | int, ...]) -> Any:
    """Without a key, without what is empty then, and without the empty list that an entry began with in its place."""
    around = _at(document, path[:-1], None)
    if isinstance(around, dict):
        around.pop(path[-1], None)
        for other in (key for keys in _RIVALS if path[-1] in keys for key in keys):
            if around.get(other) == []:
                del around[other]
    for end in range(len(path) - 1, 0, -1):
        if _at(document, path[:end], None) == {}:
            _at(document, path[: end - 1], None).pop(path[end - 1])
    return document


def _at(document: Any, path: tuple[str | int, ...], default: Any) -> Any:
    for part in path:
        try:
            document = document[part]
        except (KeyError, IndexError):
            return default
    return document


def _keys(document: dict[str, object]) -> Iterator[tuple[str | int, ...]]:
    """Keys of sections, and of entries of lists."""
    for key, value in document.items():
        inner = (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        )
        yield (key,)
        for name, each in inner:
            yield (key, name)
            if isinstance(each, dict) and key not in ("geography", "detailed"):
                asked = {"attributes": "queries"} if key == "table" else {}
                yield from ((key, name, asked.get(last, last)) for last in each)


ADULT = (ROOT / "examples/adult.toml").read_text(encoding="utf-8")
DESIGNED: list[tuple[str, str, object]] = [
    ("set", "title", typed("UCI Adult: age, education, hours and income")),
    ("set", "source.path", typed("adult.csv")),
    *(
        step
        for name, column, ends in [
            ("age", "", "0, 84"),
            ("education", "education-num", "0, 15"),
            ("sex", "", "0, 1"),
            ("hours", "hours-per-week", "0, 98"),
            ("income", "income>50K", "0, 1"),
        ]
        for step in [
            ("add", "attributes", {"name": name}),
            ("domain", f"attributes.{name}", typed("range", "choice")),
            ("set", f"attributes.{name}.range", typed(ends, "numbers")),
            *([("set", f"attributes.{name}.column", typed(column))] if column else []),
        ]
    ),
    ("set", "privacy.definition", typed("zcdp", "choice")),
    ("set", "privacy.budget", typed("1/2")),
    ("set", "privacy.delta", typed("1e-10")),
    ("set", "privacy.ledger", typed("adult-ledger.db")),
    *(
        step
        for at, (name, asked) in enumerate(
            [
                ("age_by_sex", {"age": "identity", "sex": "identity"}),
                (
                    "education_by_sex_by_income",
                    {"education": "identity", "sex": "identity", "income": "identity"},
                ),
                ("age_ranges", {"age": "ranges"}),
                ("hours_ranges", {"hours": "ranges"}),
            ]
        )
        for step in [
            ("add", "table", {"name": name}),
            *(("ask", f"table.{at}.queries.{each}", typed(query, "choice")) for each, query in asked.items()),
        ]
    ),
]


def test_a_spec_designed_from_nothing_is_the_one_written_by_hand() -> None:
    from tabulae.spec import Spec

    made = Spec.from_text(used("", *DESIGNED))
    by_hand = Spec.from_text(ADULT)
    assert made.published_text() == by_hand.published_text()
    assert made.digest() == by_hand.digest()


EVERY = """[source]
[attributes]
a = {}
[recodes]
r = {}
[values]
v = {}
[privacy]
[[table]]
name = "t"
[[invariant]]
[[earlier]]
[[derived]]
[geography]
levels = ["county"]
[geography.columns]
c = {}
[[geography.query]]
[[bound]]
[[structural_zero]]
"""
GROUPS = "[detailed]\nstage_one = '1/5'\n[[detailed.level]]\n"
_ELSEWHERE = {("table", "attributes"), ("table", "queries"), ("invariant", "queries"), ("detailed", "level")}
_ELSEWHERE |= {("geography", "columns"), ("geography", "query")}


@pytest.mark.parametrize(
    ("text", "models"), [(EVERY, (*_SINGLE, *NAMED, *_LISTS)), (GROUPS, (*_SINGLE, *_LISTS))]
)
def test_every_key_that_a_spec_may_have_has_a_control(text: str, models: tuple[tuple[str, ...], ...]) -> None:
    """Those that have none of their own are shown as TOML, and say so."""
    document, shown = tomllib.loads(text), list(controls(text))
    there = {tuple(part for part in control.path if part not in (0, "a", "r", "v", "c")) for control in shown}
    for path in models:
        if _at(document, path, None) is None and path not in _SINGLE:
            continue
        if path[0] not in document and path[0] in ("detailed", "geography"):
            continue
        model = (_SINGLE | NAMED | _LISTS)[path]
        keys = {key for key in model.model_fields if (path[-1], key) not in _ELSEWHERE}
        if path == ("attributes",):
            keys -= DOMAINS.keys()  # of which the one that is picked has a control
        assert all(any(each[: len(path) + 1] == (*path, key) for each in there) for key in keys), path
    assert all(control.hint for control in shown if control.kind == "toml")
    assert {control.at for control in shown if control.hint == _AS_TOML} <= TOML_ALONE


TOML_ALONE = {
    "source.header",
    "values.v.step",
    "values.v.null",
    "geography.outside",
    "geography.query[0].shares",
}
TOML_ALONE |= {"detailed.ladders"}
"""Keys without a control or an example of their own."""


def test_what_is_asked_beside_areas_and_what_is_not() -> None:
    target = {control.at for control in controls(EVERY) if control.at.startswith("table[0].target.")}
    assert target == {f"table[0].target.{key}" for key in ("margin", "rmse", "confidence", "areas")}
    assert "table[0].target.areas" not in {control.at for control in controls(SPEC)}
    alone = used(SPEC, ("add", "earlier", {}), ("set", "earlier.0.release", typed("before")))
    assert tomllib.loads(alone)["earlier"] == [{"release": "before", "table": "", "attributes": []}]
    assert "level" in tomllib.loads(used(EVERY, ("add", "earlier", {})))["earlier"][1]
    hints = {control.at: control.hint for control in controls(GROUPS)}
    assert "CSV" not in hints["detailed.codes"]
    assert "exact" not in hints["series.reason"]


def test_how_a_table_asks_is_written_as_keys() -> None:
    table = ("table.0.queries.age", "table.0.queries.sex")
    asked = used(SPEC, ("ask", table[0], typed("ranges", "choice")))
    assert tomllib.loads(asked)["table"][0] == {
        "name": "sex_by_age",
        "attributes": ["sex"],
        "queries": {"age": "ranges"},
    }
    alone = used(asked, ("ask", table[1], typed("", "choice")), ("ask", table[0], typed("", "choice")))
    assert tomllib.loads(alone)["table"][0] == {"name": "sex_by_age", "attributes": []}
    assert tomllib.loads(used(alone, ("ask", table[0], typed("{ width = 3 }", "choice"))))["table"][0][
        "queries"
    ] == {"age": {"width": 3}}


def test_targets_edges_and_names() -> None:
    aimed = used(SPEC, ("percent", "table.0.target.margin", {"share": "5", "count": "500"}))
    assert tomllib.loads(aimed)["table"][0]["target"] == {"margin": 25}
    assert (
        "target"
        not in tomllib.loads(used(aimed, ("set", "table.0.target.margin", typed("", "number"))))["table"][0]
    )
    drawn = used(
        SPEC, ("edge", "recodes.young.edges", {"at": "10"}), ("edge", "recodes.young.edges", {"at": "5"})
    )
    assert tomllib.loads(drawn)["recodes"]["young"]["edges"] == [10, 15]
    renamed = tomllib.loads(
        used(SPEC, ("rename", "attributes.age", typed("years")), ("rename", "recodes.young", typed("y")))
    )
    assert renamed["recodes"] == {"y": {"of": "years", "edges": [5, 15]}}
    assert [table.get("attributes") for table in renamed["table"][:2]] == [["sex", "years"], ["race", "y"]]
    assert renamed["table"][2]["queries"] == {"years": "ranges"}


def test_categories_are_numbers_where_all_lines_are_and_words_stay_words() -> None:
    lines = ("set", "attributes.sex.categories", typed("1\n2\n", "lines"))
    assert tomllib.loads(used(SPEC, lines))["attributes"]["sex"]["categories"] == ["1", "2"]
    fresh = used(
        SPEC,
        ("domain", "attributes.age", typed("categories", "choice")),
        ("set", "attributes.age.categories", typed("1\n2", "lines")),
    )
    assert tomllib.loads(fresh)["attributes"]["age"] == {"column": "AGE", "categories": [1, 2]}


@pytest.mark.parametrize(
    ("op", "path", "value"),
    [
        ("set", "table.0.weight", typed("much", "number")),
        ("set", "method.tolerance", typed("= 1", "toml")),
        ("add", "attributes", {"name": "age"}),
        ("add", "attributes", {"name": " "}),
        ("add", "table", {}),
        ("rename", "attributes.age", typed("sex")),
        ("percent", "table.0.target.margin", {"share": "", "count": "5"}),
        ("edge", "table.9.edges", {"at": "1"}),
        ("set", "table.9.name", None),
        ("erase", "table.0", None),
        ("set", "attributes.0", typed("a")),
        ("set", "title.0.a", typed("a")),
        ("edge", "recodes.young.edges", {"at": "x"}),
    ],
)
def test_what_cannot_be_taken_is_said(op: str, path: str, value: object) -> None:
    with pytest.raises(Mistake):
        used(SPEC, (op, path, value))
