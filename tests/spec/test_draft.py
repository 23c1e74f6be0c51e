"""The draft of a spec: one document for every file, which says of itself what is left to do."""

from __future__ import annotations

import itertools
import tomllib

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tabulae as tb
from tabulae.errors import SpecError
from tabulae.sources.declared import DeclaredColumn
from tabulae.spec import Spec
from tabulae.spec.draft import draft_spec

NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12) | st.sampled_from(
    ["unknown", "null", "estimate", "obs_status", 'a"b', "a\nb", "..", "a = 1 # b", "[table]", "\x7f", "Ünï"]
)
WORDS = st.text(st.characters(codec="utf-8", min_codepoint=32), min_size=1, max_size=6)
LISTS = st.lists(WORDS, min_size=1, max_size=4, unique=True).map(tuple)


def _columns(names: list[str], lists: list[tuple[str, ...]]) -> list[DeclaredColumn]:
    kinds = ("unknown", "text", "other", "key", "range", "numbers", "found", "empty")
    made = []
    for i, (name, words) in enumerate(zip(names, lists, strict=True)):
        kind = kinds[i % len(kinds)]
        column = {
            "unknown": DeclaredColumn(name, "", "unknown"),
            "text": DeclaredColumn(name, "enum", "text", words, by="ENUM"),
            "other": DeclaredColumn(name, f"STRUCT({name})", "other"),
            "key": DeclaredColumn(name, "INTEGER", "other", key=True),
            "range": DeclaredColumn(name, "INTEGER", "whole numbers", bounds=(-3, 9), by="CHECK"),
            "numbers": DeclaredColumn(name, "INTEGER", "whole numbers", (3, -1), by="CHECK"),
            "found": DeclaredColumn(name, "", "unknown", words, by="values of all records", found=True),
            "empty": DeclaredColumn(name, "", "unknown", by="values of all records"),
        }[kind]
        made.append(column)
    return made


@given(st.data(), st.lists(NAMES, min_size=1, max_size=9, unique=True), NAMES, st.booleans())
def test_any_name_is_written_as_it_is(data: st.DataObject, names: list[str], path: str, peeked: bool) -> None:
    """The draft is TOML, its columns are those of the file, and each has its own line."""
    lists = data.draw(st.lists(LISTS, min_size=len(names), max_size=len(names)))
    columns = _columns(names, lists)
    drafted = draft_spec(path, path, columns, table=path, peeked=peeked)
    raw = tomllib.loads(drafted.text)
    assert (raw["title"], raw["source"]["path"], raw["source"]["table"]) == (path, path, path)
    entries = {key: entry for key, entry in raw["attributes"].items() if isinstance(entry, dict)}
    counted = [column for column in columns if column.can_be_counted]
    assert [entry["column"] for entry in entries.values()] == [column.name for column in counted]
    assert [tuple(entry["categories"]) if "categories" in entry else None for entry in entries.values()] == [
        column.categories for column in counted
    ]
    unfinished = {name for name, entry in entries.items() if "todo" in entry}
    assert unfinished == {*drafted.todo, *drafted.found}
    assert set(raw["table"][0]["attributes"]) <= set(entries)


@given(st.data(), st.lists(NAMES, min_size=1, max_size=8, unique=True))
def test_reading_a_draft_names_each_line_that_is_left(data: st.DataObject, names: list[str]) -> None:
    """And no other attribute, unless a declared list cannot be published."""
    lists = data.draw(st.lists(LISTS, min_size=len(names), max_size=len(names)))
    drafted = draft_spec("t", "people.duckdb", _columns(names, lists), table="t")
    with pytest.raises(SpecError) as caught:
        Spec.from_text(drafted.text)
    told = [problem for problem in caught.value.problems if "is not finished" in problem.message]
    assert len(told) == len(drafted.todo) + len(drafted.found)
    lines = drafted.text.split("\n")
    assert all("todo = " in lines[problem.line - 1] for problem in told)


def test_a_finished_draft_is_a_spec() -> None:
    columns = [
        DeclaredColumn("SEX", "enum", "text", ("F", "M"), by="ENUM"),
        DeclaredColumn("unknown", "SMALLINT", "whole numbers", bounds=(0, 9), by="CHECK"),
        DeclaredColumn("estimate", "BOOLEAN", "truth values", ("false", "true"), by="the type"),
    ]
    drafted = draft_spec("People", "people.duckdb", columns, table="people")
    assert drafted.is_finished
    spec = Spec.from_text(drafted.text)
    assert spec.domain.names == ("SEX", "unknown_2", "estimate_2")
    assert [rule.name for rule in spec.columns.values()] == ["SEX", "unknown", "estimate"]
    assert spec.workload.queries == 20


def test_what_was_found_is_marked_line_by_line() -> None:
    column = DeclaredColumn("SEX", "", "unknown", ("F", "X"), by="the values of all records", found=True)
    drafted = draft_spec("People", "people.csv", [column], peeked=True)
    lines = drafted.text.split("\n")
    at = next(i for i, line in enumerate(lines) if line.startswith("SEX"))
    assert lines[at - 1].startswith("# FOUND IN THE RECORDS")
    assert "THE RECORDS WERE READ" in lines[0]
    with pytest.raises(SpecError, match="put public values in place of these"):
        Spec.from_text(drafted.text)


def test_a_file_of_keys_alone_is_a_total() -> None:
    drafted = draft_spec("t", "people.parquet", [DeclaredColumn("id", "int64", "other", key=True)])
    assert not drafted.is_finished
    with pytest.raises(SpecError, match="attributes"):
        Spec.from_text(drafted.text)


def test_drafted_names_are_what_sql_takes() -> None:
    names = ["marital-status", "marital status", "2nd job", "größe", "a/b"]
    columns = [DeclaredColumn(name, "enum", "text", ("x", "y"), by="ENUM") for name in names]
    drafted = draft_spec("t", "people.duckdb", columns, table="t")
    assert drafted.declared == ("marital_status", "marital_status_2", "_2nd_job", "größe", "a_b")
    spec = Spec.from_text(drafted.text)
    for name in drafted.declared:
        tb.Workload.from_sql(
            spec.domain, f"SELECT {name}, COUNT(*) FROM t WHERE {name} = 'x' GROUP BY {name}"
        )


SHAPES = (
    "SELECT {0}, COUNT(*) FROM t WHERE {0} = 'x' GROUP BY {0}",
    "SELECT other, {0}, COUNT(*) FROM t WHERE NOT {0} IN ('x', 'y') OR other = 'x' GROUP BY other, {0}",
    "SELECT COUNT(*) FILTER (WHERE {0} = other) FROM t",
)


def test_no_drafted_name_is_a_word_of_sql() -> None:
    """Every word that the engine knows, as a column: what SQL reserves gets another name, and the draft says so."""
    asked = "SELECT keyword_name, keyword_category FROM duckdb_keywords()"
    words = dict(duckdb.sql(asked).fetchall()) | dict.fromkeys(("Order", "GROUP", "current_date"), "reserved")
    columns = [DeclaredColumn(word, "enum", "text", ("x", "y"), by="ENUM") for word in (*words, "other")]
    drafted = draft_spec("t", "people.duckdb", columns, table="t")
    named = dict(zip(words, drafted.declared, strict=False))
    assert {named[word] for word in ("order", "group", "select")} == {"order_", "group_", "select_"}
    assert all(named[word].startswith(f"{word}_") for word, kind in words.items() if kind == "reserved")
    assert "; called order_, as SQL has a word order\norder_ = " in drafted.text
    domain = Spec.from_text(drafted.text).domain
    for name, shape in zip(drafted.declared[:-1], itertools.cycle(SHAPES), strict=False):
        assert tb.Workload.from_sql(domain, shape.format(name)).queries > 0


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("DATE", 'born = { column = "born", years = [first, last] }'),
        ("timestamp[us]", "years = [first, last] }"),
        ("DECIMAL(10,2)", "bins = [...] }"),
        ("double", "bins = [...] }"),
        ("TIMESTAMP WITH TIME ZONE", "code them in the records first"),
        ("timestamp[us, tz=UTC]", "code them in the records first"),
        ("STRUCT(date DATE)", "code them in the records first"),
    ],
)
def test_numbers_and_dates_stand_with_the_line_that_counts_them(kind: str, words: str) -> None:
    drafted = draft_spec("t", "people.duckdb", [DeclaredColumn("born", kind, "other")], table="t")
    (line,) = [line for line in drafted.text.split("\n") if line.startswith("# born")]
    assert line.endswith(words)
    assert "born" not in tomllib.loads(drafted.text)["attributes"]


def test_mistakes_that_are_all_alike_tell_their_remedy_once() -> None:
    drafted = draft_spec("t", "people.csv", [DeclaredColumn(f"c{i}", "", "text") for i in range(14)])
    with pytest.raises(SpecError) as caught:
        Spec.from_text(drafted.text)
    told = str(caught.value)
    assert len(caught.value.problems) == 14
    assert told.count("is not finished") == 1
    assert all(f"attributes.c{i} (line" in told for i in range(14))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT marital-status, COUNT(*) FROM t GROUP BY marital-status",
        "SELECT COUNT(*) FROM t WHERE marital-status = 'a'",
    ],
)
def test_sql_says_how_a_name_is_quoted(sql: str) -> None:
    domain = tb.Domain({"marital-status": ["a", "b"]})
    with pytest.raises(tb.TabulaeError, match=r'double quotes: .*"marital-status"'):
        tb.Workload.from_sql(domain, sql)
