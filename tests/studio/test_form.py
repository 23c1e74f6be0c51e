"""The form shows every key of a document, and each of its controls changes that key as somebody would type it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.village import SPEC

from tabulae.spec.problems import written
from tabulae.studio.form import Control, Entry, Mistake, change, chapters
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


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_what_a_control_shows_is_what_it_would_write(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    document = tomllib.loads(text)
    shown = list(controls(text, path.parent))
    for control in shown:
        if control.op == "member":
            assert list(control.value) == _at(document, control.path, [])
        elif control.op != "domain" and control.value:
            after = change(text, control.op, control.path, typed(control.value, control.kind))
            assert tomllib.loads(after) == document, control.path
    named = {control.path for control in shown}
    assert all(any(control[: len(key)] == key for control in named) for key in _keys(document))
    opened = [entry.at for entry in entries(text)]
    page = (
        _templates()
        .get_template("form.html")
        .render(chapters=chapters(text, opened, path.parent), opened=opened)
    )
    assert all(
        f'id="f-{written(control.path).replace(" ", "_")}' in page
        for control in shown
        if "'" not in written(control.path) and '"' not in written(control.path)
    )


def _at(document: object, path: tuple[str | int, ...], default: object) -> object:
    for part in path:
        try:
            document = document[part]  # type: ignore[index]
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
