"""The columns of a source: which there are, and where those that the spec names stand among them."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args
from urllib.parse import unquote, urlsplit

from ..errors import DataError, InvalidArgument

_LONGEST_NAME = 100_000
_OTHER_DELIMITERS = {";": "semicolons", "\t": "tabs", "|": "vertical bars"}


def csv_header(path: Path) -> tuple[str, ...]:
    """The names in the first line of a CSV file (RFC 4180: commas, double quotes, UTF-8).

    It is read here, and not by the engine, because engines guess: a file without a header, or with another
    delimiter, would get names made up from its records.
    """
    with path.open(encoding="utf-8-sig", newline="") as file:
        header = next(csv.reader(file, strict=True), [])
    # The reader has a limit of its own, which anything else in the process may have changed.
    if max(map(len, header), default=0) > _LONGEST_NAME:
        raise DataError(
            f"{path.name}: its first line is not a header: it has a field of over {_LONGEST_NAME:,} letters"
        )
    if not any(name.strip() for name in header):
        raise DataError(f"{path.name}: the first line is empty; it must name the columns")
    return tuple(header)


def positions(where: str, names: tuple[str, ...], wanted: Iterable[tuple[str, str]]) -> dict[str, int]:
    """The position of each wanted column among ``names``.

    Args:
        where: what to call the source.
        names: the columns of the source, in order.
        wanted: pairs (column, what it is for).

    Returns:
        column -> position.

    Raises:
        DataError: if columns are missing or ambiguous, or the file has another delimiter. The names that
            the source does have are confidential, because the first line of a file without a header is a
            record.
    """
    wanted = list(wanted)
    _check_delimiter(where, names, {column for column, _ in wanted})
    faults = []
    for column, what in wanted:
        found = names.count(column)
        if found == 0:
            faults.append(f"no column {column!r} ({what}){_near(column, names)}")
        elif found > 1:
            faults.append(f"several columns named {column!r} ({what}): rename all but one")
    if faults:
        raise DataError(
            "\n".join(
                [f"{where} does not have the columns that the spec names:", *(f"  {f}" for f in faults)]
            ),
            confidential=f"the columns of the source are {', '.join(map(repr, names))}",
        )
    return {column: names.index(column) for column, _ in wanted}


def _near(column: str, names: tuple[str, ...]) -> str:
    # Names that are equal but for case and blanks tell nothing that the spec does not say already.
    for name in names:
        if name.strip().casefold() == column.strip().casefold():
            return f", but one that is written {name!r}: names must match exactly"
    return ""


def _check_delimiter(where: str, names: tuple[str, ...], wanted: set[str]) -> None:
    if len(names) != 1 or names[0] in wanted:
        return
    for sign, word in _OTHER_DELIMITERS.items():
        if sign in names[0]:
            raise DataError(
                f"{where}: the fields seem to be divided by {word}, and CSV is read with commas: save it "
                "again with commas, or as Parquet",
                confidential=f"the first line is {names[0]!r}",
            )


SCHEMES = ("postgresql", "postgres")
_SECRETS = {"password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key"}


def is_url(text: str) -> bool:
    """Whether a place of records is written as an address and not as a path.

    >>> is_url("postgresql://census.example/people"), is_url("people.csv")
    (True, False)
    """
    return "://" in text


def url_mistake(url: str) -> str | None:
    """What is wrong with the address of a PostgreSQL database, in words that repeat no part of it; None for nothing.

    It holds no password: documents are shown, kept and published, and what stands in a command is seen by all who list
    processes.

    >>> url_mistake("postgresql://clerk@census.example/people?sslmode=verify-full")
    >>> url_mistake("postgresql://clerk:secret@census.example/people")
    'holds a password: remove it, and set PGPASSWORD or use a password file (PGPASSFILE)'
    """
    try:
        urlsplit(url)
    except ValueError:
        return "is not a url: write it as postgresql://user@host:5432/database"
    scheme, sign, rest = url.partition("://")
    if not sign or scheme not in SCHEMES:
        return "does not begin with postgresql://: other servers are not read"
    # As libpq divides it, which knows no fragments: "#" is a letter like others, and "?" may stand in a password.
    as_read = re.match("[^/@]*@", rest)
    # As it is meant by one who does not write the "/" in a password as %2F.
    as_meant = rest.partition("?")[0].rpartition("@")[0]
    options = {unquote(part.partition("=")[0]).strip().lower() for part in re.split("[?&;]", rest)}
    if ":" in as_meant or (as_read and ":" in as_read[0]) or options & _SECRETS:
        return "holds a password: remove it, and set PGPASSWORD or use a password file (PGPASSFILE)"
    return None


Kind = Literal["csv", "parquet", "duckdb", "postgresql"]
Engine = Literal["duckdb", "postgresql", "spark"]

_KIND_OF_ENDING: dict[str, Kind] = {
    ".csv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".duckdb": "duckdb",
    ".ddb": "duckdb",
    ".db": "duckdb",
}


@dataclass(frozen=True)
class WantedColumn:
    """One column of the records that is read: its name there, what it is for in messages, and what it becomes."""

    name: str
    purpose: str
    alias: str


@dataclass(frozen=True, init=False)
class RecordSource:
    """One table of confidential records, one row a record.

    A CSV file is read as RFC 4180 has it, and nothing about it is guessed: fields divided by commas, double
    quotes around fields and doubled within them, UTF-8, and one line of column names.

    Args:
        path: the file, or for Spark also a folder of Parquet files; None for a server.
        kind: "csv", "parquet", "duckdb" or "postgresql"; by the ending of the path, or the url, where not given.
        table: for a DuckDB file or a server the table or view, as ``persons`` or ``schema.persons``.
        engine: what reads and counts the records: "duckdb" or "spark" for files, "postgresql" for its own tables;
            None is "duckdb" or "postgresql".
        url: of a PostgreSQL database, as ``postgresql://user@host:5432/database``, without a password: that comes
            from the environment (PGPASSWORD, PGPASSFILE, PGSERVICE) as libpq reads it.

    Raises:
        InvalidArgument: if the kind cannot be told, is unknown, or does not fit the rest.

    Example:
        >>> RecordSource("people.parquet").kind
        'parquet'
        >>> RecordSource(url="postgresql://census.example/people", table="persons").engine
        'postgresql'
    """

    path: Path | None
    kind: Kind
    table: str | None = None
    engine: Engine = "duckdb"
    url: str | None = None

    def __init__(
        self,
        path: str | Path | None = None,
        kind: Kind | None = None,
        table: str | None = None,
        engine: Engine | None = None,
        url: str | None = None,
    ) -> None:
        if (path is None) == (url is None):
            raise InvalidArgument("records are in a file or on a server: give a path or a url")
        file = None if path is None else Path(path)
        told = _kind(file, kind, url)
        reads = engine or ("postgresql" if told == "postgresql" else "duckdb")
        _check_engine(told, reads)
        if told in ("duckdb", "postgresql") and not table:
            where = "a PostgreSQL database" if file is None else f"{file.name} is a DuckDB file, which"
            raise InvalidArgument(f'{where} holds several tables: add table = "persons"')
        if told in ("csv", "parquet") and table is not None:
            assert file is not None
            raise InvalidArgument(f"{file.name} is a {told} file, which holds one table: leave out table")
        object.__setattr__(self, "path", file)
        object.__setattr__(self, "kind", told)
        object.__setattr__(self, "table", table)
        object.__setattr__(self, "engine", reads)
        object.__setattr__(self, "url", url)

    @property
    def file(self) -> Path:
        """The path of a source that is a file.

        Raises:
            InvalidArgument: it is on a server.
        """
        if self.path is None:
            raise InvalidArgument(f"{self.name} is on a server, and a file is needed here")
        return self.path

    @property
    def name(self) -> str:
        """What messages call it: the file's or database's name without folder and host, and the table."""
        if self.path is None:
            database = urlsplit(str(self.url)).path.strip("/") or "database"
            return f"PostgreSQL {database}, table {self.table}"
        return self.path.name if self.table is None else f"{self.path.name}, table {self.table}"

    def check_exists(self) -> None:
        """Raise a `DataError` where there is no file, or nothing in it. A server is asked when it is opened."""
        if self.path is None:
            return
        if self.path.is_dir():
            if self.engine == "spark":
                return
            raise DataError(f"{self.path} is a folder: the source must be one file")
        if not self.path.exists():
            raise DataError(f"{self.path} does not exist: check [source] path, which is relative to the spec")
        if not self.path.is_file():
            raise DataError(f"{self.path} is not a regular file: copy the records into one")
        if self.path.stat().st_size == 0:
            raise DataError(f"{self.path.name} is empty: it has no header and no records")


def _kind(file: Path | None, kind: Kind | None, url: str | None) -> Kind:
    if file is None:
        if mistake := url_mistake(str(url)):
            raise InvalidArgument(f"the url of the records {mistake}")
        if kind not in (None, "postgresql"):
            raise InvalidArgument(f'a url is of a PostgreSQL database: leave out kind = "{kind}"')
        return "postgresql"
    told = kind or _KIND_OF_ENDING.get(file.suffix.lower())
    if told is None or told not in get_args(Kind) or told == "postgresql":
        raise InvalidArgument(
            f"cannot tell what kind of file {file.name!r} is: end its name in .csv, .parquet or .duckdb, "
            'or say kind = "csv" (or "parquet", "duckdb")'
        )
    return told


def _check_engine(kind: Kind, engine: str) -> None:
    if engine not in get_args(Engine):
        raise InvalidArgument(f'no engine {engine!r}: files are read with engine = "duckdb" or "spark"')
    if (kind == "postgresql") != (engine == "postgresql"):
        raise InvalidArgument(
            "tables of PostgreSQL are counted by their own server, and files by DuckDB or Spark: leave out engine"
        )
    if engine == "spark" and kind != "parquet":
        raise InvalidArgument(
            f"Spark reads Parquet here, and this is {kind}: its own readers guess at lines that are not well formed. "
            'Convert the records, or use engine = "duckdb"'
        )
