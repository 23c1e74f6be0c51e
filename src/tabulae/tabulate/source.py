"""Where the confidential records are: one file or one table of a server, of a kind that an engine reads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args
from urllib.parse import urlsplit

from ..domain.server import url_mistake
from ..errors import DataError, InvalidArgument

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
class Source:
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
        >>> Source("people.parquet").kind
        'parquet'
        >>> Source(url="postgresql://census.example/people", table="persons").engine
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
