"""What is PostgreSQL's own: its tables and types, one snapshot, nothing left behind, and how it refuses."""

from __future__ import annotations

import itertools
import traceback
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql
from tests.engines.server import GUARDED, Server
from tests.tabulate.test_units import KEY, vector

from tabulae.domain import Domain
from tabulae.errors import DataError
from tabulae.products.tables.count import tabulate
from tabulae.sources.coding import ColumnCoding
from tabulae.sources.source import RecordSource, open_records
from tabulae.sources.units import UnitRule

SECRET = "SECRET-7781"
DOMAIN = Domain({"sex": ["F", "M", "f"]})
RULES = {"sex": ColumnCoding("sex")}
PEOPLE = (
    "CREATE TABLE people (id text, sex text); INSERT INTO people VALUES ('a', 'F'), ('a', 'M'), ('b', 'M')"
)


@pytest.fixture
def database(postgresql: Server) -> str:
    """A new database, of the test's own."""
    name = f"d{next(_NUMBERS)}"
    with psycopg.connect(postgresql.url(), autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    return name


_NUMBERS = itertools.count()


@pytest.fixture
def url(postgresql: Server, database: str) -> str:
    """Of a new database with three people."""
    made = postgresql.url(database)
    do(made, PEOPLE)
    return made


@pytest.fixture
def clerk(url: str) -> Iterator[str]:
    """A user without rights in the database."""
    do(url, "CREATE ROLE clerk LOGIN")
    yield "clerk"
    do(url, "DROP OWNED BY clerk; DROP ROLE clerk")


def do(url: str, statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statements.encode())


def counted(url: str, table: str = "people", column: str = "sex") -> list[int]:
    return vector(
        tabulate(RecordSource(url=url, table=table), DOMAIN, {"sex": ColumnCoding(column)})
    ).tolist()


def refused(url: str, table: str = "people", column: str = "sex") -> str:
    with pytest.raises(DataError) as caught:
        counted(url, table, column)
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    return str(caught.value)


# where records are ------------------------------------------------------------------------------


def test_schemas_views_partitions_and_odd_names(url: str) -> None:
    do(
        url,
        """CREATE SCHEMA s; CREATE TABLE s.people AS SELECT 'f' AS sex;
        CREATE VIEW seen AS SELECT * FROM people WHERE sex = 'M';
        CREATE MATERIALIZED VIEW kept AS SELECT * FROM people WHERE sex = 'F';
        CREATE TABLE parts (sex text) PARTITION BY LIST (sex);
        CREATE TABLE part1 PARTITION OF parts FOR VALUES IN ('F'); CREATE TABLE part2 PARTITION OF parts DEFAULT;
        INSERT INTO parts SELECT sex FROM people;
        CREATE TABLE "My ""Table"" %s" ("the ""sex"" %s" text, "THE ""sex"" %s" text, gone int, sex text);
        ALTER TABLE "My ""Table"" %s" DROP COLUMN gone; INSERT INTO "My ""Table"" %s" VALUES ('M', 'F', 'f')""",
    )
    assert counted(url, "s.people") == [0, 0, 1]
    assert counted(url, "public.people") == counted(url) == counted(url, "parts") == [1, 2, 0]
    assert counted(url, "seen") == [0, 2, 0]
    assert counted(url, "kept") == [1, 0, 0]
    assert counted(url, 'My "Table" %s', 'the "sex" %s') == [0, 1, 0]
    assert counted(url, 'My "Table" %s', 'THE "sex" %s') == [1, 0, 0]
    assert "there is no such table or view" in refused(url, "nowhere")
    assert "there is no such table or view" in refused(url, "pg_catalog.pg_class")


@pytest.mark.parametrize(
    "declared",
    [
        "char(5)",
        "varchar(9)",
        "name",
        'text COLLATE "blind"',
        "citext",
        "mood",
        "letter",
        "letter_of_letter",
    ],
)
def test_types_of_text(url: str, declared: str) -> None:
    """Letters are compared as they are, whatever the type; a collation that ignores case changes nothing."""
    do(
        url,
        f"""CREATE EXTENSION citext; CREATE TYPE mood AS ENUM ('M', 'f');
        CREATE DOMAIN letter AS varchar(3); CREATE DOMAIN letter_of_letter AS letter;
        CREATE COLLATION blind (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
        CREATE TABLE t (sex {declared}, id {declared}); INSERT INTO t VALUES ('f', 'f'), ('M', 'M'), ('f', 'f')""",
    )
    assert counted(url, "t") == [0, 1, 2]
    by_unit = tabulate(RecordSource(url=url, table="t"), DOMAIN, RULES, UnitRule("id", 1, KEY))
    assert vector(by_unit).tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("declared", "value", "words"),
    [
        ("numeric", "'NaN'", "'n' (attribute 'sex'): NULL values"),
        ("numeric(9, 2)", "'NaN'", "'n' (attribute 'sex'): NULL values"),
        ("numeric", "'Infinity'", "'n' (attribute 'sex'): values outside"),
        ("numeric", "1e100", "'n' (attribute 'sex'): values outside"),
        ("money", "1", "type money, which is not read"),
        ("text[]", "'{a}'", "type text[], which is not read"),
        ("point", "'(1, 2)'", "type point, which is not read"),
        ("people", "ROW('a', 'b')", "type public.people, which is not read"),
        ("uuid", "gen_random_uuid()", "type uuid: the values of an attribute"),
    ],
)
def test_types_that_are_numbers_or_nothing(url: str, declared: str, value: str, words: str) -> None:
    do(url, f"CREATE TABLE t (n {declared}); INSERT INTO t VALUES ({value})")
    assert words in refused(url, "t", "n")


def test_numbers_of_any_length_and_ids_that_are_uuids(url: str) -> None:
    do(
        url,
        """CREATE DOMAIN percent AS numeric(5, 2); CREATE TABLE t (n percent, m numeric, id uuid);
        INSERT INTO t SELECT 1, 1.000, '00000000-0000-0000-0000-000000000001' FROM generate_series(1, 3)""",
    )
    source, domain = RecordSource(url=url, table="t"), Domain({"sex": range(2)})
    for column in ("n", "m"):
        assert vector(tabulate(source, domain, {"sex": ColumnCoding(column)})).tolist() == [0, 3]
    found = tabulate(source, domain, {"sex": ColumnCoding("n")}, UnitRule("id", 2, KEY))
    assert vector(found).tolist() == [0, 2]


# locked down ------------------------------------------------------------------------------------


def test_one_snapshot(url: str) -> None:
    """What others write while the records are counted is not counted, in no table."""
    with open_records(RecordSource(url=url, table="people"), [("sex", "sex")]) as records:
        before = records.count().to_pyarrow().as_py()
        do(url, "INSERT INTO people VALUES ('c', 'F'); DELETE FROM people WHERE sex = 'M'")
        assert records.count().to_pyarrow().as_py() == before == 3
        assert records.filter(records.c0 == "M").count().to_pyarrow().as_py() == 2
    assert counted(url) == [2, 0, 0]


def test_nothing_is_left_behind_and_nobody_waits(url: str) -> None:
    def everything() -> list[tuple[object, ...]]:
        with psycopg.connect(url) as connection:
            return connection.execute("SELECT oid, relname FROM pg_class ORDER BY oid").fetchall()

    before = everything()
    with open_records(RecordSource(url=url, table="people"), [("sex", "sex")], "id") as records:
        records.count().to_pyarrow()
        do(
            url, "SET lock_timeout = '5s'; UPDATE people SET sex = 'f'"
        )  # readers do not stand in a writer's way
    assert everything() == before
    with psycopg.connect(url) as connection:
        assert connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE state ~ 'in trans'"
        ).fetchone() == (0,)


def test_functions_of_the_database_are_not_called(database: str, url: str) -> None:
    """One who may write functions or operators there cannot have theirs run in place of the server's own."""
    names = {"btrim": "text, text", "sha256": "bytea", "convert_to": "text, name", "encode": "bytea, text"}
    made = "".join(
        f"CREATE FUNCTION evil.{name}({kinds}) RETURNS {'bytea' if name in ('sha256', 'convert_to') else 'text'} "
        f"LANGUAGE sql AS 'SELECT NULL::{'bytea' if name in ('sha256', 'convert_to') else 'text'}';"
        for name, kinds in names.items()
    )
    do(
        url,
        f"CREATE SCHEMA evil; {made} CREATE FUNCTION evil.differ(name, name) RETURNS boolean LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'called'; END $$;"
        "CREATE OPERATOR evil.<> (LEFTARG = name, RIGHTARG = name, FUNCTION = evil.differ);"
        f"ALTER DATABASE {database} SET search_path = evil, pg_catalog, public;"
        f"ALTER DATABASE {database} SET standard_conforming_strings = off",
    )
    found = tabulate(RecordSource(url=url, table="people"), DOMAIN, RULES, UnitRule("id", 1, KEY))
    assert found.total == 2


def test_no_key_and_no_value_in_a_statement(postgresql: Server, url: str) -> None:
    """The server logs every statement here; keys are sent to it as data."""
    do(url, "CREATE TABLE t (id text, sex text); INSERT INTO t SELECT 'u', 'M' FROM generate_series(1, 9)")
    before = len(postgresql.log)
    tabulate(RecordSource(url=url, table="t"), DOMAIN, RULES, UnitRule("id", 2, KEY))
    with pytest.raises(DataError):
        tabulate(RecordSource(url=url, table="t"), Domain({"sex": ["label-of-nobody"]}), RULES)
    logged = postgresql.log[before:]
    assert "COPY" in logged
    assert KEY.hex() not in logged
    assert "label-of-nobody" not in logged
    assert "COMMIT" not in logged
    assert "ISOLATION LEVEL REPEATABLE READ" in logged


# who may read -----------------------------------------------------------------------------------


def test_rights(postgresql: Server, database: str, url: str, clerk: str) -> None:
    theirs = postgresql.url(database, clerk)
    assert "this user may not read it" in refused(theirs)
    do(url, f"GRANT SELECT ON people TO {clerk}")
    assert counted(theirs) == [1, 2, 0]
    do(theirs, f"ALTER ROLE {clerk} SET default_transaction_read_only = on")
    assert counted(theirs) == [1, 2, 0]
    do(url, "ALTER TABLE people ENABLE ROW LEVEL SECURITY; CREATE POLICY own ON people USING (id = 'a')")
    assert "may see some of its records only" in refused(theirs)
    do(
        url,
        f"ALTER TABLE people DISABLE ROW LEVEL SECURITY; REVOKE TEMPORARY ON DATABASE {database} FROM PUBLIC",
    )
    assert "GRANT TEMPORARY ON DATABASE" in refused(theirs)


def test_passwords_come_from_the_environment(
    postgresql: Server, database: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    do(url, f"CREATE ROLE {GUARDED} LOGIN PASSWORD '{SECRET}'; GRANT SELECT ON people TO {GUARDED}")
    theirs = postgresql.url(database, GUARDED)
    assert "set PGPASSWORD" in refused(theirs)
    monkeypatch.setenv("PGPASSWORD", "wrong")
    assert "set PGPASSWORD" in refused(theirs)
    monkeypatch.setenv("PGPASSWORD", SECRET)
    assert counted(theirs) == [1, 2, 0]
    do(url, f"DROP OWNED BY {GUARDED}; DROP ROLE {GUARDED}")


# bad input --------------------------------------------------------------------------------------


def test_what_the_server_says_of_values_is_not_repeated(url: str, capfd: pytest.CaptureFixture[str]) -> None:
    do(
        url,
        f"UPDATE people SET sex = '{SECRET}'; CREATE VIEW v AS SELECT CAST(sex AS integer) AS sex FROM people",
    )
    assert "the engine's own words may quote records" in refused(url, "v")
    do(
        url,
        """CREATE FUNCTION told(value text) RETURNS text LANGUAGE plpgsql AS
        $$ BEGIN RAISE NOTICE 'it is %', value; RAISE WARNING 'it is %', value; RETURN 'F'; END $$;
        CREATE VIEW w AS SELECT told(sex) AS sex FROM people""",
    )
    assert counted(url, "w") == [3, 0, 0]
    assert SECRET not in "".join(capfd.readouterr())


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("postgresql://127.0.0.1:1/d", "check host and port"),
        ("postgresql://nobody.invalid/d", "check host and port"),
        ("postgresql:///d?host=/nowhere", "check host and port"),
        ("postgresql://127.0.0.1:1/d?colour=red", "not one that libpq reads"),
    ],
)
def test_servers_that_do_not_answer(place: str, words: str) -> None:
    assert words in refused(place)


def test_a_server_that_does_not_know_one(postgresql: Server, url: str) -> None:
    assert "check the database" in refused(postgresql.url("nowhere"))
    assert "check the user" in refused(postgresql.url(user="nobody"))
    assert "does not have the columns" in refused(url, column="SEX")


def test_other_encodings(postgresql: Server) -> None:
    do(postgresql.url(), "CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    do(postgresql.url("latin"), PEOPLE)
    assert "has the encoding LATIN1, and UTF8 is read" in refused(postgresql.url("latin"))
