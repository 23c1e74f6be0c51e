"""A change of a text at one place changes that value alone, and leaves every comment where it was."""

from __future__ import annotations

import copy
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.spec.test_lines import paths

from tabulae.studio.document import put, remove, rename

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.toml"))
STYLES = """# the opening

title = 'Town'  # literal
source.path = "a.csv"       # dotted
source.unit = "person"
privacy = { definition = "zcdp", budget = "1/2" } # inline

# of the attributes
[attributes]
sex = { categories = ["F", "M"], column = "S" }  # short
"a b" = { categories = [
    "x",   # first
    # alone
    "y",
    "z"    # last
] }
empty = {}
none = [ ]
[geography.columns]
prim = { join = ["a"] }

# the first table
[[table]]
name = "one"
attributes = [ # begins
    "sex", # why
    "a b",
]
# the second
[[table]]
name = "two"
[table.target]
margin = 5
# the end
"""
TEXTS = {"styles": STYLES, "empty": "", "comment": "# alone", "pair": "a = 1"}
TEXTS |= {path.stem: path.read_text(encoding="utf-8") for path in EXAMPLES}
VALUES = st.recursive(
    st.integers() | st.booleans() | st.text("ab #'\"\\\n[]{}=,.", max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b c"]), inner, max_size=2)
    ),
    max_leaves=5,
)


def at(document: Any, path: tuple[str | int, ...]) -> Any:
    for part in path:
        document = document[part]
    return document


def changed(document: Any, path: tuple[str | int, ...], value: Any) -> Any:
    whole = copy.deepcopy(document)
    around = at(whole, path[:-1])
    if isinstance(path[-1], int) and path[-1] == len(around):
        around.append(value)
    else:
        around[path[-1]] = value
    return whole


@pytest.mark.parametrize("name", TEXTS)
@given(data=st.data())
def test_put_changes_one_value_and_keeps_comments(name: str, data: st.DataObject) -> None:
    text = TEXTS[name]
    document = tomllib.loads(text)
    known = [path for path in paths(document) if not isinstance(at(document, path), str | int | float)]
    around = data.draw(st.sampled_from(known))
    inside = at(document, around)
    keys = list(range(len(inside) + 1)) if isinstance(inside, list) else [*inside, "new", "n w"]
    path = (*around, data.draw(st.sampled_from(keys)))
    exists = path in paths(document)
    value = data.draw(VALUES)
    if exists and isinstance(at(document, path), list) and data.draw(st.booleans()):
        value = data.draw(st.permutations([*at(document, path), "more"]))[:3]
    if isinstance(around[-1:] and inside, list) and inside and isinstance(inside[0], dict):
        value = {"name": value}  # an entry of sections is a table
    if (
        exists
        and isinstance(at(document, path), dict | list)
        and not isinstance(value, type(at(document, path)))
    ):
        return  # a section does not become a number
    if exists and isinstance(at(document, path), dict):
        expected = changed(document, path, at(document, path) | value)
        after = text
        for key, each in value.items():
            after = put(after, (*path, key), each)
    elif (
        exists
        and isinstance(at(document, path), list)
        and at(document, path)
        and isinstance(at(document, path)[0], dict)
    ):
        return
    else:
        expected, after = changed(document, path, value), put(text, path, value)
    assert tomllib.loads(after) == expected
    if not exists:
        left = iter(after.split("\n"))
        assert all(
            any(line.strip() in other for other in left)
            for line in text.split("\n")
            if line.lstrip().startswith("#")
        )


@pytest.mark.parametrize("name", TEXTS)
@given(data=st.data())
def test_remove_takes_one_value_away(name: str, data: st.DataObject) -> None:
    text = TEXTS[name]
    document = tomllib.loads(text)
    if not (found := paths(document)[1:]):
        return
    path = data.draw(st.sampled_from(found))
    expected = copy.deepcopy(document)
    around = at(expected, path[:-1])
    del around[path[-1]]
    after = tomllib.loads(remove(text, path))
    while path and after != expected:  # what held it alone and has no place of its own goes with it
        path = path[:-1]
        assert not at(expected, path)
        del at(expected, path[:-1])[path[-1]]
    assert after == expected


def test_members_of_an_array_come_and_go_and_comments_stay() -> None:
    after = put(STYLES, ("attributes", "a b", "categories"), ["x", "new", "z"])
    assert tomllib.loads(after)["attributes"]["a b"]["categories"] == ["x", "new", "z"]
    assert all(words in after for words in ("# first", "# alone", "# last"))
    after = put(STYLES, ("table", 0, "attributes"), ["a b"])
    assert "# begins" in after
    assert "# why" not in after


def test_new_sections_stand_where_a_document_has_them() -> None:
    after = put(
        "title = 'A'\n\n[privacy]\nbudget = '1'\n\n# tables\n[[table]]\nname = 'a'\n",
        ("recodes", "r"),
        {"of": "x"},
    )
    assert [line for line in after.split("\n") if line.startswith("[")] == [
        "[recodes]",
        "[privacy]",
        "[[table]]",
    ]
    after = put(after, ("table", 1), {"name": "b"})
    after = put(after, ("invariant", 0), {"attributes": []})
    assert [line for line in after.split("\n") if line.startswith("[")][-3:] == [
        "[[table]]",
        "[[table]]",
        "[[invariant]]",
    ]
    assert "\n\n\n" not in after


def test_a_removed_table_leaves_the_comments_of_others() -> None:
    after = remove(STYLES, ("table", 0))
    assert "# the first table" not in after
    assert "# the second" in after
    assert tomllib.loads(after)["table"] == [{"name": "two", "target": {"margin": 5}}]


def test_a_removed_attribute_takes_the_comment_above_it_along() -> None:
    text = """# the opening
title = "A"
[attributes]
# as registered,
# of two
sex = { categories = ["F", "M"] }
# in years
age = { range = [0, 99] } # top-coded

# where people live
town = { categories = ["a"] }
street = { categories = ["b"] }
"""
    after = remove(remove(text, ("attributes", "age")), ("attributes", "sex"))
    assert after == text.split("# as", maxsplit=1)[0] + "\n" + text.split("\n\n", maxsplit=1)[1]
    both = remove(text, ("attributes", "town"))  # what heads two stays for the other
    assert both == text.replace('town = { categories = ["a"] }\n', "")
    assert "where people live" not in remove(both, ("attributes", "street"))
    assert remove(text, ("title",)).startswith("# the opening\n[attributes]")


def test_a_key_is_renamed_in_its_place() -> None:
    after = rename(STYLES, ("attributes", "sex"), "gender")
    assert after == STYLES.replace("\nsex = ", "\ngender = ")
