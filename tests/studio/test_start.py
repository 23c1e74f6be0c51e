"""What a studio begins with, and that no value of a record is told."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.studio.test_server import asked

from tabulae.errors import TabulaeError
from tabulae.spec import read_spec
from tabulae.studio import Studio
from tabulae.studio.start import starts

RECORDS = "SEX,AGE,TOWN\nXVALUEX,34567,YVALUEY\n"


def test_a_draft_is_begun_and_made_by_the_first_save(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text(RECORDS)
    (tmp_path / "people.toml").write_text("# another\n")
    (start,) = starts(tmp_path / "people.csv")
    document = start.open()
    assert document.path == tmp_path / "people-2.toml"
    assert document.unsaved
    assert not document.changed
    assert all(name in document.text for name in ("SEX", "AGE", "TOWN"))
    assert "VALUE" not in document.text
    assert not document.path.exists()
    assert document.save()
    assert document.path.read_text() == document.text
    assert not document.unsaved


def test_a_folder_offers_its_specs_its_records_and_the_tables_of_databases(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text(RECORDS)
    (tmp_path / "one.toml").write_text("")
    (tmp_path / "notes.txt").write_text("")
    with duckdb.connect(str(tmp_path / "town.duckdb")) as connection:
        connection.execute("CREATE TABLE a (sex TEXT CHECK (sex IN ('F', 'M')))")
        connection.execute("CREATE TABLE b (n INTEGER)")
    words = [start.words for start in starts(tmp_path)]
    assert words == [
        "the spec one.toml",
        "the records people.csv",
        "the table a of town.duckdb",
        "the table b of town.duckdb",
        "a new spec",
    ]
    assert 'categories = ["F", "M"]' in starts(tmp_path)[2].open().text
    assert [start.words for start in starts(tmp_path / "town.duckdb")] == words[2:4]


def test_a_folder_of_parquet_files_is_one_table(tmp_path: Path) -> None:
    (folder := tmp_path / "people").mkdir()
    for name, sex in (("a.parquet", "XVALUEX"), ("b.parquet", "YVALUEY")):
        parquet.write_table(pa.table({"sex": [sex], "young": [True], "age": [34567]}), folder / name)
    assert [start.words for start in starts(tmp_path)] == [
        "the records in the 2 files of the folder people",
        "a new spec",
    ]
    whole, new = starts(folder)
    assert new.open().path == tmp_path / "spec.toml"  # a folder of records holds nothing else
    document = whole.open()
    assert document.path == tmp_path / "people.toml"
    assert not any(value in document.text for value in ("VALUE", "34567"))
    source = tomllib.loads(document.text)["source"]
    assert (source["path"], source["kind"]) == ("people", "parquet")
    document.save()
    finished = document.text.replace('todo = "list the values that it may hold"', "categories = [1]", 1)
    finished = "\n".join(line for line in finished.splitlines() if "todo =" not in line)
    document.path.write_text(finished)
    spec = read_spec(document.path)
    assert spec.source.file.resolve() == folder.resolve()


def test_a_new_spec_is_begun_where_there_is_none(tmp_path: Path) -> None:
    (start,) = starts(tmp_path / "new.toml")
    assert start.open().unsaved
    for name in ("no/new.toml", "absent", "people.csv"):
        with pytest.raises(TabulaeError):
            starts(tmp_path / name)[0].open()


def test_the_page_of_a_folder_asks_and_no_page_tells_a_value(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text(RECORDS)
    (tmp_path / "broken.csv").write_text("1,2\n3,4\n")
    studio = Studio(tmp_path)
    try:
        _serve(studio)
        status, page, _ = asked(studio, "GET", "/")
        assert status == 200
        assert "the records people.csv" in page
        assert asked(studio, "GET", "/text")[0] == 409
        told, words, _ = asked(studio, "POST", "/start", json.dumps({"choice": 0}).encode())
        assert told == 422
        assert "name the columns" in words
        assert asked(studio, "POST", "/start", json.dumps({"choice": 1}).encode())[0] == 200
        for path in ("/", "/form?open=attributes.AGE&open=attributes.SEX", "/text", "/state", "/plan"):
            status, page, _ = asked(studio, "GET", path)
            assert status == 200
            assert "VALUE" not in page
            assert "34567" not in page
    finally:
        studio.stop()
        studio.close()


def _serve(studio: Studio) -> None:
    import threading

    threading.Thread(target=studio.serve).start()
