"""CSV files as they are written in Europe: each dialect gives the counts of the same records in UTF-8 with commas."""

from __future__ import annotations

import csv
import io
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tabulae as tb
from tabulae.errors import DataError, InvalidArgument, SpecError
from tabulae.products.tables.count import tabulate
from tabulae.sources.coding import ColumnCoding
from tabulae.sources.dialect import Dialect, csv_header, find_dialect, in_utf8
from tabulae.sources.source import RecordSource
from tabulae.spec import read_spec

PLACES = ["Köln", "Zürich; Altstadt", 'Montréal, d\'en "haut"|bas', "Łódź", "Paris €"]
ENCODINGS = {
    "utf-8": 6,
    "utf-8-sig": 6,
    "utf-16": 6,
    "utf-16-le": 6,
    "utf-16-be": 6,
    "windows-1252": 3,
    "latin-1": 3,
}


def written(path: Path, records: list[tuple[str, int]], dialect: Dialect, codec: str) -> RecordSource:
    """The records in a file, ages with decimals of nothing."""
    text = io.StringIO(newline="")
    out = csv.writer(text, delimiter=dialect.delimiter, quotechar=dialect.quote, lineterminator="\r\n")
    if dialect.header is None:
        out.writerow(["Ort", "Alter"])
    out.writerows((place, f"{age}{dialect.decimal}0") for place, age in records)
    path.write_bytes(text.getvalue().encode(codec))
    return RecordSource(path, dialect=dialect)


def counted(source: RecordSource, places: list[str]) -> list[int]:
    domain = tb.Domain({"place": places, "age": range(4)})
    rules = {
        "place": ColumnCoding("Ort"),
        "age": ColumnCoding("Alter", decimal=source.dialect.decimal),
    }
    return tabulate(source, domain, rules).answer(tb.Identity(domain.size)).tolist()


@pytest.mark.parametrize("codec", ENCODINGS)
@pytest.mark.parametrize(
    "signs",
    [
        {"delimiter": ";", "decimal": ","},
        {"delimiter": "\t", "quote": "'"},
        {"delimiter": "|", "header": ("Ort", "Alter")},
    ],
    ids=["semicolons", "tabs", "bars"],
)
def test_every_dialect_gives_the_same_counts(tmp_path: Path, codec: str, signs: dict) -> None:
    places = PLACES[: ENCODINGS[codec]]
    records = [(places[(i * i) % len(places)], i % 4) for i in range(300)]
    expected = [records.count((place, age)) for place in places for age in range(4)]
    dialect = Dialect(encoding="utf-8" if codec == "utf-8-sig" else codec, **signs)
    source = written(tmp_path / "people.csv", records, dialect, codec)
    assert counted(source, places) == expected
    if dialect.header is None:
        assert csv_header(source.file, dialect) == ("Ort", "Alter")


@given(text=st.text(st.characters(codec="cp1252"), max_size=200), size=st.integers(0, 200_000))
def test_a_pipe_holds_the_text_of_the_file(
    tmp_path_factory: pytest.TempPathFactory, text: str, size: int
) -> None:
    """Of any size, more than a pipe holds at once among them."""
    path = tmp_path_factory.mktemp("pipe") / "people.csv"
    whole = text + "ä" * size
    path.write_bytes(whole.encode("cp1252"))
    with in_utf8(path, Dialect(encoding="cp1252")) as place:
        assert place != path
        assert place.read_bytes().decode() == whole


def test_a_pipe_that_nobody_reads_to_its_end_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_bytes(b"\xe4" * 10**6)
    before = threading.active_count()
    for read in (0, 10):
        with in_utf8(path, Dialect(encoding="latin-1")) as place:
            if read:
                with place.open("rb") as file:
                    file.read(read)
        assert not place.exists()
    assert threading.active_count() == before


@pytest.mark.parametrize(
    ("content", "encoding"),
    [
        (b"Ort;Alter\nK\xf6ln;1\n", "utf-8"),
        (b"K\xf6ln;Alter\nA;1\n", "utf-8"),
        (b"Ort;Alter\nK\x81ln;1\n", "windows-1252"),
        (b"Ort;Alter\nA;1\n", "utf-16"),
        (b"Ort;Alter\n" + b"A;1\n" * 10**5 + b"\x81;1\n", "windows-1252"),
    ],
)
def test_another_encoding_is_told_and_no_value(tmp_path: Path, content: bytes, encoding: str) -> None:
    path = tmp_path / "people.csv"
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"(?i)not {encoding} text: name its encoding under") as caught:
        counted(RecordSource(path, dialect=Dialect(";", encoding)), ["A"])
    assert "ln" not in str(caught.value).replace("people.csv", "")
    assert caught.value.__context__ is None


def test_faults_in_another_encoding_are_those_of_the_engine(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_bytes("Ort;Alter\nKöln;1\nKöln\n".encode("cp1252") + b"A;1\n" * 10**5)
    with pytest.raises(DataError, match="some lines have more or fewer fields"):
        counted(RecordSource(path, dialect=Dialect(";", "windows-1252")), ["Köln"])


@pytest.mark.parametrize(
    ("signs", "words"),
    [
        ({"delimiter": ";;"}, "delimiter is one sign"),
        ({"delimiter": "a"}, "delimiter is one sign"),
        ({"delimiter": ""}, "delimiter is one sign"),
        ({"delimiter": "\n"}, "no end of a line"),
        ({"delimiter": '"'}, "two different signs"),
        ({"quote": "''"}, "quote is one sign"),
        ({"decimal": ";"}, "decimal is"),
        ({"encoding": "klingon"}, "no encoding 'klingon'"),
        ({"encoding": "rot13"}, "no encoding"),
        ({"encoding": "base64"}, "no encoding"),
        ({"encoding": "idna"}, "no encoding"),
        ({"header": ()}, "names every column"),
        ({"header": ("a", " ")}, "names every column"),
    ],
)
def test_what_is_no_dialect(signs: dict, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        Dialect(**signs)


@pytest.mark.parametrize(
    ("codec", "sign", "found"),
    [
        ("utf-8", ",", Dialect()),
        ("utf-8-sig", ";", Dialect(";", decimal=",")),
        ("cp1252", ";", Dialect(";", "windows-1252", ",")),
        ("utf-16", "\t", Dialect("\t", "utf-16")),
        ("cp1252", "|", Dialect("|", "windows-1252")),
    ],
)
def test_a_draft_finds_the_dialect(tmp_path: Path, codec: str, sign: str, found: Dialect) -> None:
    path = tmp_path / "people.csv"
    path.write_bytes(
        f"Ort, Land{sign}Alter{sign}x{sign}y\nKöln{sign}3{sign}{sign}\n".replace(", ", " ").encode(codec)
    )
    assert find_dialect(path) == found


SPEC = """title = "t"
[source]
path = "people.{ending}"
{said}
[attributes]
place = {{ column = "Ort", categories = ["Köln", "Zürich"] }}
age = {{ column = "Alter", range = [0, 3] }}
[privacy]
definition = "zcdp"
budget = "1/2"
delta = "1e-10"
ledger = "ledger.db"
[[table]]
name = "cells"
attributes = ["place", "age"]
"""


@pytest.mark.parametrize(
    ("ending", "said", "words"),
    [
        (
            "parquet",
            'delimiter = ";"\nencoding = "latin-1"',
            "delimiter, encoding: only a CSV file has this",
        ),
        ("csv", "header = false", 'as in header = \\["sex", "age"\\]'),
        ("csv", 'delimiter = ";;"', "delimiter is one sign"),
        ("csv", "encoding = 7", "must be a string"),
        ("csv", 'decimal = "."\nquotes = "x"', 'did you mean "quote"'),
    ],
)
def test_mistakes_of_a_document(tmp_path: Path, ending: str, said: str, words: str) -> None:
    (tmp_path / "spec.toml").write_text(SPEC.format(ending=ending, said=said))
    with pytest.raises(SpecError, match=words):
        read_spec(tmp_path / "spec.toml")


def test_a_release_from_a_file_of_an_office(tmp_path: Path) -> None:
    """From the document on; the published copy says nothing of the file."""
    dialect = Dialect(";", "windows-1252", ",")
    records = [(("Köln", "Zürich")[i % 2], i % 4) for i in range(400)]
    written(tmp_path / "people.csv", records, dialect, "cp1252")
    said = 'delimiter = ";"\nencoding = "windows-1252"\ndecimal = ","'
    (tmp_path / "spec.toml").write_text(SPEC.format(ending="csv", said=said))
    tb.Ledger.create(
        tmp_path / "ledger.db", tb.ZCDP("1/2"), definition="zcdp", neighbours="add-remove", unit="person"
    )
    release = tb.run(tmp_path / "spec.toml", tmp_path / "release")
    cells = release.tables["cells"]["estimate"].to_numpy()
    assert cells.tolist() == pytest.approx([100, 0, 100, 0, 0, 100, 0, 100], abs=12)  # 12 sigma
    assert "windows" not in (release.path / "spec.toml").read_text()


def test_no_pipe_is_left_in_the_folder_for_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    source = written(tmp_path / "people.csv", [("Köln", 1)], Dialect(encoding="latin-1"), "latin-1")
    assert counted(source, ["Köln"]) == [0, 1, 0, 0]
    assert list(temporary.iterdir()) == []
