"""Where the confidential records are: one file, of a kind that an engine reads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tabulae.errors import DataError, InvalidArgument

Kind = Literal["csv", "parquet", "duckdb"]

_KIND_OF_ENDING: dict[str, Kind] = {
    ".csv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".duckdb": "duckdb",
    ".ddb": "duckdb",
    ".db": "duckdb",
}
_KINDS = ("csv", "parquet", "duckdb")


@dataclass(frozen=True, init=False)
class Source:
    """One table of confidential records, one row a record.

    A CSV file is read as RFC 4180 has it, and nothing about it is guessed: fields divided by commas, double
    quotes around fields and doubled within them, UTF-8, and one line of column names.

    Args:
        path: the file.
        kind: "csv", "parquet" or "duckdb"; by the ending of the path where it is not given.
        table: for a DuckDB file, the table or view, as ``persons`` or ``schema.persons``.
        engine: what reads and counts the records; "duckdb".

    Raises:
        InvalidArgument: if the kind cannot be told, is unknown, or does not fit ``table``.

    Example:
        >>> Source("people.parquet").kind
        'parquet'
    """

    path: Path
    kind: Kind
    table: str | None = None
    engine: Literal["duckdb"] = "duckdb"

    def __init__(
        self,
        path: str | Path,
        kind: Kind | None = None,
        table: str | None = None,
        engine: Literal["duckdb"] = "duckdb",
    ) -> None:
        file = Path(path)
        told = kind or _KIND_OF_ENDING.get(file.suffix.lower())
        if told not in _KINDS:
            raise InvalidArgument(
                f"cannot tell what kind of file {file.name!r} is: end its name in .csv, .parquet or .duckdb, "
                'or say kind = "csv" (or "parquet", "duckdb")'
            )
        if engine != "duckdb":
            raise InvalidArgument(f'no engine {engine!r}: records are read with engine = "duckdb"')
        if told == "duckdb" and not table:
            raise InvalidArgument(
                f'{file.name} is a DuckDB file, which holds several tables: add table = "persons"'
            )
        if told != "duckdb" and table is not None:
            raise InvalidArgument(f"{file.name} is a {told} file, which holds one table: leave out table")
        object.__setattr__(self, "path", file)
        object.__setattr__(self, "kind", told)
        object.__setattr__(self, "table", table)
        object.__setattr__(self, "engine", engine)

    @property
    def name(self) -> str:
        """What messages call it: the file's name without its folder, and the table."""
        return self.path.name if self.table is None else f"{self.path.name}, table {self.table}"

    def check_exists(self) -> None:
        """Raise a `DataError` where there is no file, or nothing in it."""
        if self.path.is_dir():
            raise DataError(f"{self.path} is a folder: the source must be one file")
        if not self.path.exists():
            raise DataError(f"{self.path} does not exist: check [source] path, which is relative to the spec")
        if not self.path.is_file():
            raise DataError(f"{self.path} is not a regular file: copy the records into one")
        if self.path.stat().st_size == 0:
            raise DataError(f"{self.path.name} is empty: it has no header and no records")
