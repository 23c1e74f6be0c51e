"""Drafts for tables of a PostgreSQL server: what its catalogue declares, and nothing of its records."""

from __future__ import annotations

import itertools
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from tests.cli.test_cli import _call, _fails
from tests.engines.server import Server

import tabulae as tb
from tabulae.errors import DataError, InvalidArgument
from tabulae.sources.declared import declared_columns, only_table, stored_tables
from tabulae.sources.source import RecordSource
from tabulae.studio.start import starts

SECRET = "Zebra"
TABLES = """
CREATE TYPE sexes AS ENUM ('F', 'M', 'X');
CREATE DOMAIN years AS integer CHECK (VALUE >= 0) CHECK (VALUE <= 114);
CREATE DOMAIN adult AS years CHECK (VALUE >= 18);
CREATE TABLE persons (
    id bigint PRIMARY KEY,
    sex sexes NOT NULL,
    age years,
    grown adult,
    "Status" varchar(20) CHECK ("Status" IN ('never', 'now', 'once')),
    status text CHECK (status = 'x' OR status = 'y'),
    rooms smallint CHECK (rooms BETWEEN -1 AND 9),
    kind char(1) CHECK (kind IN ('a', 'b')),
    size bigint CHECK (size = ANY (ARRAY[1, 2, 5])),
    born timestamp,
    income double precision,
    owner boolean,
    loose integer,
    name text UNIQUE,
    town text CHECK (length(town) > 1)
);
INSERT INTO persons SELECT i, (ARRAY['F', 'M', 'X'])[1 + i % 3]::sexes, i, 20, 'now', 'x', 1, 'a', 5, now(), i, true, i,
    'Zebra' || i, 'Zebra' FROM generate_series(0, 99) AS t(i);
ALTER TABLE persons ADD CONSTRAINT later CHECK (loose BETWEEN 0 AND 9) NOT VALID;
ANALYZE persons;
CREATE SCHEMA other;
CREATE VIEW other.seen AS SELECT sex FROM persons;
"""


@pytest.fixture(scope="module")
def url(postgresql: Server) -> str:
    name = sql.Identifier(f"drafts{next(_NUMBERS)}")
    with psycopg.connect(postgresql.url(), autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(name))
    made = postgresql.url(name.as_string().strip('"'))
    with psycopg.connect(made, autocommit=True) as connection:
        connection.execute(TABLES.encode())
    return made


_NUMBERS = itertools.count()


def test_the_catalogue_tells_names_types_and_domains(url: str) -> None:
    found = {column.name: column for column in declared_columns(RecordSource(url=url, table="persons"))}
    told = {name: column.categories or column.bounds for name, column in found.items()}
    assert told == {
        "id": None,
        "sex": ("F", "M", "X"),
        "age": (0, 114),
        "grown": (18, 114),
        "Status": None,  # two columns that differ in case alone: what is said of which is not told apart
        "status": None,
        "rooms": (-1, 9),
        "kind": ("a", "b"),
        "size": (1, 2, 5),
        "born": None,
        "income": None,
        "owner": ("false", "true"),
        "loose": None,
        "name": None,
        "town": None,
    }
    assert [name for name, column in found.items() if column.key] == ["id", "name"]
    assert found["age"].type == "public.years"
    assert found["born"].type == "timestamp"
    (seen,) = declared_columns(RecordSource(url=url, table="other.seen"))
    assert seen.categories == ("F", "M", "X")


def test_tables_that_may_be_read_are_listed(url: str) -> None:
    assert stored_tables(url) == ["other.seen", "persons"]
    with pytest.raises(
        InvalidArgument, match=r"several tables: name one with --table \(other\.seen, persons\)"
    ):
        only_table(url)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE ROLE reader LOGIN; GRANT SELECT ON persons TO reader")
    assert stored_tables(url.replace("tabulae@", "reader@")) == ["persons"]
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP OWNED BY reader; DROP ROLE reader")


def test_a_release_is_drafted_finished_and_run(
    url: str, postgresql: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    logged = len(postgresql.log)
    told = _call("init", url, "--table", "persons")
    assert told.exit_code == 0, told.output
    assert "Drafted spec.toml from 15 columns" in told.output
    text = Path("spec.toml").read_text()
    assert f'url = "{url}"' in text
    assert 'table = "persons"' in text
    assert SECRET not in text
    statements = postgresql.log[logged:]
    assert "persons" not in "".join(line for line in statements.splitlines() if "FROM persons" in line)
    kept = [line for line in text.splitlines() if "todo =" not in line]
    Path("spec.toml").write_text("\n".join(kept).replace('["sex", "age"]', '["sex", "rooms"]'))
    _call("ledger", "init", "ledger.db", "--budget", "1", "--definition", "zcdp")
    tb.run("spec.toml", "release")
    assert tb.Release.read("release").tables["first_table"].num_rows == 33
    assert url not in "".join(path.read_text() for path in Path("release").rglob("*.toml"))


def test_the_studio_begins_with_a_table(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert [start.words for start in starts(url)] == ["the table other.seen", "the table persons"]
    document = starts(url)[1].open()
    assert document.path == tmp_path / "persons.toml"
    assert 'sex = { column = "sex", categories = ["F", "M", "X"] }' in document.text
    assert SECRET not in document.text


def test_a_password_is_refused_and_not_repeated(url: str, tmp_path: Path) -> None:
    given = url.replace("tabulae@", f"tabulae:{SECRET}@")
    with pytest.raises(InvalidArgument, match="holds a password") as refused:
        starts(given)
    assert SECRET not in str(refused.value)
    for command in (("init", given, "--out", tmp_path / "spec.toml"), ("studio", given)):
        told = _call(*command)
        _fails(told, told.exit_code or 1, "holds a password")
        assert SECRET not in told.output
    assert not list(tmp_path.iterdir())
    with pytest.raises(DataError, match="no connection"):
        starts("postgresql://nobody@/none?host=/nowhere")
