"""Where records are, and what counts them there.

No record leaves the engine: it groups and counts, and only the counts are fetched. Each engine is one class, in a file
of its own in `sources/engines/`, with what it must do so that equal records count equally; the expressions over the
table are the same for all.
"""

from __future__ import annotations

import pkgutil
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple
from urllib.parse import unquote, urlsplit

from ..errors import DataError, InvalidArgument
from . import engines as _room
from .condition import Condition, bad_values
from .dialect import RFC4180, Dialect, check_delimiter
from .failures import redacted

if TYPE_CHECKING:
    import ibis.expr.types as ir
    import pyarrow as pa


@dataclass(frozen=True)
class Kind:
    """A kind of place for records.

    Args:
        name: as ``[source] kind`` has it.
        title: as messages have it.
        endings: of its files, in small letters.
        schemes: of its urls, the usual one first; none for files.
        many: whether one place holds several tables, so that one must be named.
        passwords: how a server is given one, which a url never holds.
        form: how its urls are written.
    """

    name: str
    title: str
    endings: tuple[str, ...] = ()
    schemes: tuple[str, ...] = ()
    many: bool = False
    passwords: str = ""
    form: str = ""


class WantedTable(NamedTuple):
    """A table of records, and the columns of it that are read."""

    source: RecordSource
    columns: Sequence[WantedColumn]


CSV = Kind("csv", "CSV", (".csv",))
PARQUET = Kind("parquet", "Parquet", (".parquet", ".pq"))


class Engine(ABC):
    """What reads and counts records. A file of `sources/engines/` holds one, as ``ENGINE``, and nothing else names it.

    Attributes:
        name: as ``[source] engine`` has it.
        backend: what Ibis calls it.
        kinds: what it reads.
        on_request: whether it counts only where a spec names it, because another counts such files by default.
    """

    name: ClassVar[str]
    backend: ClassVar[str]
    kinds: ClassVar[tuple[Kind, ...]]
    on_request: ClassVar[bool] = False

    @abstractmethod
    def open(
        self, asked: Sequence[WantedTable], *, memory: str | None, scratch: bool
    ) -> AbstractContextManager[list[ir.Table]]:
        """The wanted columns of some tables under their aliases, so that they can be joined: see `open_records`."""

    def part_count(self, rows: int, memory: str | None) -> int:
        """In how many parts records are grouped, one after the other: one where it sees to its memory."""
        return 1

    def batches(self, counted: ir.Table) -> Iterator[pa.RecordBatch]:
        """The rows of a table of whole numbers, some at a time, in no order."""
        return iter(counted.to_pyarrow_batches(chunk_size=ROWS_AT_ONCE))

    def copied(self, records: ir.Table, table: pa.Table) -> ir.Table:
        """A small table from here, to be joined with records in their engine.

        Args:
            records: any table of that engine.
            table: of 32 or 64 bit integers, 64 bit floats and text, without NULL.

        Privacy:
            The table is sent as data; no value of it becomes part of a statement, which engines keep and log.
        """
        import ibis

        return ibis.memtable(table)

    def computed_once(self, table: Any) -> Any:
        """The same table, for an engine that would work it out again for every use of a column."""
        return table

    def sha256(self, text: Any) -> Any:
        """SHA-256 of text in UTF-8: its octets, or their hexadecimal digits, which have the same order."""
        return text.hexdigest("sha256")


ROWS_AT_ONCE = 1 << 17


@cache
def engines() -> Mapping[str, Engine]:
    """All engines by name: one for each file of `sources/engines/`."""
    found = [
        import_module(f"{_room.__name__}.{file.name}").ENGINE for file in pkgutil.iter_modules(_room.__path__)
    ]
    return {engine.name: engine for engine in found}


def engine_of(table: Any) -> Engine:
    """The engine that a table is in."""
    backend = table.get_backend().name
    return next(engine for engine in engines().values() if engine.backend == backend)


@cache
def kinds() -> Mapping[str, Kind]:
    """All kinds of places for records, by name."""
    return {kind.name: kind for engine in engines().values() for kind in engine.kinds}


def kind_of(path: str) -> str | None:
    """The kind of a file by the ending of its path, None where the ending says nothing.

    >>> kind_of("people.parquet")
    'parquet'
    """
    ending = Path(path).suffix.lower()
    return next((kind.name for kind in kinds().values() if ending in kind.endings), None)


def is_url(text: str) -> bool:
    """Whether a place of records is written as an address and not as a path.

    >>> is_url("postgresql://census.example/people"), is_url("people.csv")
    (True, False)
    """
    return "://" in text


def server_of(url: str) -> Kind | None:
    """The kind of server that an address, or what is left of it in a path, is of."""
    scheme = url.partition(":")[0]
    return next((kind for kind in kinds().values() if scheme in kind.schemes), None)


_SECRETS = {"password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key"}


def url_mistake(url: str) -> str | None:
    """What is wrong with the address of a database, in words that repeat no part of it; None for nothing.

    It holds no password: documents are shown, kept and published, and what stands in a command is seen by all who list
    processes.

    >>> url_mistake("postgresql://clerk@census.example/people?sslmode=verify-full")
    >>> url_mistake("postgresql://clerk:secret@census.example/people")
    'holds a password: remove it, and set PGPASSWORD or use a password file (PGPASSFILE)'
    """
    served = [kind for kind in kinds().values() if kind.schemes]
    try:
        urlsplit(url)
    except ValueError:
        return f"is not a url: write it as {' or '.join(kind.form for kind in served)}"
    kind, rest = server_of(url) if is_url(url) else None, url.partition("://")[2]
    if kind is None:
        usual = " or ".join(f"{kind.schemes[0]}://" for kind in served)
        return f"does not begin with {usual}: other servers are not read"
    # As libpq divides it, which knows no fragments: "#" is a letter like others, and "?" may stand in a password.
    as_read = re.match("[^/@]*@", rest)
    # As it is meant by one who does not write the "/" in a password as %2F.
    as_meant = rest.partition("?")[0].rpartition("@")[0]
    options = {unquote(part.partition("=")[0]).strip().lower() for part in re.split("[?&;]", rest)}
    if ":" in as_meant or (as_read and ":" in as_read[0]) or options & _SECRETS:
        return f"holds a password: remove it, and {kind.passwords}"
    if not kind.many and not re.fullmatch(r"[a-z0-9][a-z0-9.-]*/[^?]*\.(parquet|pq)", rest):
        return (
            f"does not name one Parquet file in a bucket: write it as {kind.form}; region and endpoint come from "
            "AWS_REGION and AWS_ENDPOINT_URL"
        )
    return None


def place_mistake(
    path: str | None, kind: str | None, table: str | None, engine: str | None, url: str | None
) -> str | None:
    """What is wrong with how ``[source]`` says where records are, None for nothing; `url_mistake` reads the url itself.

    A published copy says its kind alone.
    """
    if url is not None and path is not None:
        return "has a path and a url: keep one of them"
    if path is not None and is_url(path):
        form = (server_of(path) or kinds()["postgresql"]).form
        return f'has a url for a path: write url = "{form}", or name a file'
    if path is None and url is None and kind is None:
        return 'has no path: write path = "people.csv" (csv, parquet or duckdb), or url = "postgresql://host/database"'
    found = server_of(url) if url is not None else kinds().get(kind or kind_of(path or "") or "")
    if found is None:
        return 'the ending of the path does not say its kind: add kind = "csv" ("parquet", "duckdb")'
    if found.schemes:
        return _server_mistake(found, path, kind, table, engine, url)
    if engine is not None and found not in engines()[engine].kinds:
        reads = engines()[engine].kinds
        if any(other.schemes for other in reads):
            return f'engine = "{engine}" counts tables of its own server, and this is a file: remove it'
        titles = " or ".join(other.title for other in reads)
        return (
            f'engine = "{engine}" reads {titles}, and this is {found.name}: convert the records, or remove it'
        )
    if found.many and path is not None and table is None:
        return f'a {found.title} file holds several tables: add table = "persons"'
    if not found.many and table is not None:
        many = (other for other in kinds().values() if other.many)
        several = " and ".join(f"{other.title}{'' if other.schemes else ' files'}" for other in many)
        return f"table is for {several}, and this is {found.name}: remove it"
    return None


def _server_mistake(
    found: Kind, path: str | None, kind: str | None, table: str | None, engine: str | None, url: str | None
) -> str | None:
    if path is not None:
        return f'kind = "{found.name}" has a url, url = "{found.form}", and no path'
    if kind not in (None, found.name) or (engine is not None and found not in engines()[engine].kinds):
        counts = "whose own server counts" if found.many else "which DuckDB reads"
        return f"has a url of {found.title}, {counts}: remove kind and engine"
    if url is not None and found.many and table is None:
        return 'has a url and no table: add table = "persons"'
    if not found.many and table is not None:
        return "has the url of one file and a table: remove table"
    return None


@dataclass(frozen=True, init=False)
class RecordSource:
    """One table of confidential records, one row a record.

    Nothing about a CSV file is guessed: it is read as its dialect says, by default as RFC 4180 has it, with fields
    divided by commas, double quotes around fields and doubled within them, UTF-8, and one line of column names.

    Args:
        path: the file, or a folder of Parquet files; None for a server.
        kind: "csv", "parquet", "duckdb", "postgresql" or "s3"; by the ending of the path, or the url, where not given.
        table: for a DuckDB file or a server the table or view, as ``persons`` or ``schema.persons``.
        engine: what reads and counts the records: "duckdb" or "spark" for files, "postgresql" for its own tables;
            None is "duckdb" or "postgresql".
        dialect: how a CSV file is written.
        url: of a PostgreSQL database, as ``postgresql://user@host:5432/database``, without a password: that comes
            from the environment (PGPASSWORD, PGPASSFILE, PGSERVICE) as libpq reads it. Or of one Parquet file on an
            object store, as ``s3://bucket/people.parquet``.
        where: which records are counted; None for all of them.
        units: where each unit of these records has one row, in the same engine; None where it has none.

    A published copy of a spec says the kind alone: ``path`` and ``url`` are None, and there are no records to open.

    Example:
        >>> RecordSource("people.parquet").kind
        'parquet'
        >>> RecordSource(url="postgresql://census.example/people", table="persons").engine
        'postgresql'
    """

    path: Path | None
    kind: str
    table: str | None = None
    engine: str = "duckdb"
    url: str | None = None
    dialect: Dialect = RFC4180
    where: Condition | None = None
    units: RecordSource | None = None

    def __init__(
        self,
        path: str | Path | None = None,
        kind: str | None = None,
        table: str | None = None,
        engine: str | None = None,
        url: str | None = None,
        dialect: Dialect = RFC4180,
        where: Condition | None = None,
        units: RecordSource | None = None,
    ) -> None:
        for name, known, what in ((kind, kinds(), "kind"), (engine, engines(), "engine")):
            if name is not None and name not in known:
                raise InvalidArgument(f"there is no {what} {name!r} of records: known are {', '.join(known)}")
        if url is not None and (mistake := url_mistake(url)):
            raise InvalidArgument(f"the url of the records {mistake}")
        if mistake := place_mistake(None if path is None else str(path), kind, table, engine, url):
            raise InvalidArgument(f"{path or 'the source'}: {mistake}")
        server = None if url is None else server_of(url)
        told = server.name if server else kind or kind_of(str(path)) or ""
        reads = (
            each.name for each in engines().values() if kinds()[told] in each.kinds and not each.on_request
        )
        object.__setattr__(self, "path", None if path is None else Path(path))
        object.__setattr__(self, "kind", told)
        object.__setattr__(self, "table", table)
        object.__setattr__(self, "engine", engine or next(reads))
        object.__setattr__(self, "url", url)
        object.__setattr__(self, "dialect", dialect)
        object.__setattr__(self, "where", where)
        object.__setattr__(self, "units", units)

    @property
    def file(self) -> Path:
        """The path of a source that is a file."""
        if self.path is None:
            raise InvalidArgument(f"{self.name} is on a server, and a file is needed here")
        return self.path

    @property
    def name(self) -> str:
        """What messages call it: the name of file or database without folder and host, and the table if known."""
        if self.path is None:
            kind, place = kinds()[self.kind], urlsplit(str(self.url)).path.strip("/")
            if not kind.many:
                return place.rpartition("/")[2] or kind.title
            name = f"{kind.title} {place or 'database'}"
        else:
            name = self.path.name
        return f"{name}, table {self.table}" if self.table else name

    def check_exists(self) -> None:
        """Raise a `DataError` where there is no file, or nothing in it. A server is asked when it is opened."""
        if self.path is None:
            return
        if self.path.is_dir():
            if self.kind == PARQUET.name:
                return
            raise DataError(
                f"{self.path} is a folder: the source must be one file, or a folder of Parquet files"
            )
        if not self.path.exists():
            raise DataError(f"{self.path} does not exist: check [source] path, which is relative to the spec")
        if not self.path.is_file():
            raise DataError(f"{self.path} is not a regular file: copy the records into one")
        if self.path.stat().st_size == 0:
            raise DataError(f"{self.path.name} is empty: it has no header and no records")


@contextmanager
def open_records(
    source: RecordSource,
    wanted: Sequence[tuple[str, str]],
    unit: str | None = None,
    leaf: str | None = None,
    *,
    memory: str | None = None,
    scratch: bool = False,
) -> Iterator[ir.Table]:
    """The wanted columns of ``source``, as an Ibis table with columns c0, c1, ... in the order wanted.

    Where the source has a condition, these are the records that meet it, and there are no others.

    Args:
        source: where the records are, and what reads them.
        wanted: pairs (attribute, column).
        unit: the column that names the unit of each record, which becomes the column ``unit``.
        leaf: the column that names the area of each record, which becomes the column ``leaf``.
        memory: the most that an engine of our own takes, such as "4GB"; None is its default.
        scratch: whether DuckDB has a database for tables on disk; see `tabulae.sources.engines.duckdb.connected`.

    Raises:
        DataError: if the records cannot be read, do not have the columns, or hold what the condition cannot compare.
            The message quotes nothing.
        MissingDependency: without Ibis or the engine.

    Privacy:
        Whether a record is among them follows from that record alone: see `tabulae.sources.condition`.
    """
    if source.path is None and source.url is None:
        raise InvalidArgument("this is a published copy, which names no records: say where they are")
    asked = [_wanted_table(source, wanted, unit, leaf)]
    with engines()[source.engine].open(asked, memory=memory, scratch=scratch) as (records,), _unmerged():
        yield records if source.where is None else _that_meet(source, source.where, records)


@contextmanager
def open_units(
    source: RecordSource,
    wanted: Sequence[tuple[str, str]],
    of_units: Sequence[tuple[str, str]],
    unit: str,
    *,
    memory: str | None = None,
) -> Iterator[tuple[ir.Table, ir.Table | None]]:
    """The wanted columns of records and of their units, as tables of one engine that can be joined.

    Each has columns c0, c1, ... in the order wanted, and the column ``unit``; see :func:`open_records`. The second is
    None where units have no table of their own.
    """
    if source.path is None and source.url is None:
        raise InvalidArgument("this is a published copy, which names no records: say where they are")
    asked = [_wanted_table(source, wanted, unit)]
    if source.units is not None:
        if source.units.path is None and source.units.url is None:
            raise InvalidArgument("this is a published copy, which does not say where units have their rows")
        asked.append(_wanted_table(source.units, of_units, unit))
    with engines()[source.engine].open(asked, memory=memory, scratch=False) as opened, _unmerged():
        records, *units = opened
        if source.where is not None:
            records = _that_meet(source, source.where, records)
        yield records, units[0] if units else None


def _wanted_table(
    source: RecordSource, wanted: Sequence[tuple[str, str]], unit: str | None, leaf: str | None = None
) -> WantedTable:
    """The columns of a table under the names that they are counted by."""
    columns = [WantedColumn(name, f"attribute {a!r}", f"c{i}") for i, (a, name) in enumerate(wanted)]
    beside = ((unit, "unit_id", ID), (leaf, "[geography] column", LEAF))
    columns += [WantedColumn(name, purpose, alias) for name, purpose, alias in beside if name is not None]
    compared = () if source.where is None else source.where.columns
    columns += [WantedColumn(name, "[source] where", f"w{i}") for i, name in enumerate(compared)]
    return WantedTable(source, columns)


@contextmanager
def _unmerged() -> Iterator[None]:
    """Ibis writes each step as a statement of its own: engines merge them as well, and faster."""
    import ibis

    merged = ibis.options.sql.fuse_selects
    ibis.options.sql.fuse_selects = False
    try:
        yield
    finally:
        ibis.options.sql.fuse_selects = merged


def _that_meet(source: RecordSource, condition: Condition, records: ir.Table) -> ir.Table:
    """The records that meet a condition, without the columns that only it is about."""
    aliases = {name: f"w{i}" for i, name in enumerate(condition.columns)}
    found = condition.over(records, aliases, source.dialect.decimal)
    if faults := found.faults:
        asked = {f"bad{i}": found.table.count(where=bad) for i, bad in enumerate(faults.values())}
        numbers = redacted(source.name, lambda: found.table.aggregate(**asked).to_pyarrow().to_pylist()[0])
        if error := bad_values(source.name, {key: numbers[f"bad{i}"] for i, key in enumerate(faults)}):
            raise error
    return found.records


def batches(counted: ir.Table) -> Iterator[pa.RecordBatch]:
    """The rows of a table of whole numbers, some at a time, in no order, as its engine streams them best."""
    return engine_of(counted).batches(counted)


ID = "unit"
"""What every engine calls the column that names the unit of each record."""

LEAF = "leaf"
"""What every engine calls the column that names the area of each record."""


def positions(
    where: str, names: tuple[str, ...], wanted: Iterable[tuple[str, str]], dialect: Dialect = RFC4180
) -> dict[str, int]:
    """The position of each wanted column among ``names``.

    Args:
        where: what to call the source.
        names: the columns of the source, in order.
        wanted: pairs (column, what it is for).
        dialect: of the source, if it is a CSV file.

    Returns:
        column -> position.

    Raises:
        DataError: if columns are missing or ambiguous, or the file has another delimiter. The names that
            the source does have are confidential, because the first line of a file without a header is a
            record.
    """
    wanted = list(wanted)
    check_delimiter(where, names, {column for column, _ in wanted}, dialect)
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


@dataclass(frozen=True)
class WantedColumn:
    """One column of the records that is read: its name there, what it is for in messages, and what it becomes."""

    name: str
    purpose: str
    alias: str
