"""The plain mechanics of a release folder: names, JSON, checksums, and getting bytes onto the disk."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from ..errors import ReleaseError

DESCRIPTOR = "datapackage.json"
REPORT = "report.html"
_RESULTS = ("tables/", "derived/", REPORT)
SUMS = "SHA256SUMS"
SPEC = "spec.toml"
LEDGER = "ledger.json"
STRATEGY = "strategy/strategy.json"
MEASUREMENT = "measurements/measurement.json"
MICRODATA = "microdata.parquet"
INVARIANTS = "invariants"


def require_parent(path: Path, then: str = "") -> None:
    """Refuse a path to write at that has no folder to stand in.

    Raises:
        ReleaseError: it has none; ``then`` ends the sentence.
    """
    file = next((part for part in path.parents if part.exists() and not part.is_dir()), None)
    if file is not None:
        raise ReleaseError(
            f"{path} cannot be written: {file} is a file and not a folder; name another place{then}"
        )
    if not path.parent.is_dir():
        raise ReleaseError(
            f"{path} cannot be written: the folder {path.parent} does not exist: make it first{then}"
        )


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file and see it onto the disk; under its name there is never a part of it."""
    with drafted(path) as file:
        file.write(content)


@contextmanager
def drafted(path: Path) -> Iterator[BinaryIO]:
    """A file to write to that gets its name once it is complete and on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = _draft(path)
    with draft.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def _draft(path: Path) -> Path:
    return path.with_name(f".{path.name}.draft")


def write_json(path: Path, document: Any) -> None:
    """Write JSON, keys in the order given, readable by people."""
    write_bytes(path, (json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode())


def read_json(folder: Path, name: str) -> Any:
    """Read a JSON file of a release."""
    try:
        return json.loads((folder / name).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ReleaseError(f"{folder} is not a complete release: {name} is missing") from None
    except (OSError, ValueError) as error:
        raise ReleaseError(
            f"{folder / name} cannot be read: {error}. Copy the release again from where it was published"
        ) from None


def sync_folder(folder: Path) -> None:
    """See a folder's own entries onto the disk, so that a rename in it survives a crash."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def contents(folder: Path) -> list[str]:
    """The files of a release, relative and sorted, without the checksums themselves."""
    names = (p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
    return sorted(name for name in names if name != SUMS)


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _sums_of(folder: Path, names: Sequence[str]) -> dict[str, str]:
    """The sum of each file, several at a time: hashing leaves other threads free to run."""
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        return dict(zip(names, threads.map(lambda name: file_sha256(folder / name), names), strict=True))


def write_sums(folder: Path) -> None:
    """Write SHA256SUMS in the form that ``sha256sum -c`` reads."""
    for draft in folder.rglob(_draft(Path("*")).name):  # of a process that was killed here
        draft.unlink()
    lines = [f"{digest}  {name}\n" for name, digest in _sums_of(folder, contents(folder)).items()]
    write_bytes(folder / SUMS, "".join(lines).encode())


def require_others(folder: Path, name: str) -> None:
    """See that every file but one is as SHA256SUMS lists it.

    Raises:
        ReleaseError: some are not, all of them named.
    """
    for path in (folder / name, folder / SUMS):
        _draft(path).unlink(missing_ok=True)  # of a process that was killed here
    if faults := check_sums(folder, but=name):
        told = "\n".join(f"  {fault}" for fault in faults)
        raise ReleaseError(f"{folder} is not as it was published, and nothing was written:\n{told}")


def require_sources(folder: Path) -> None:
    """See that the files that new answers come from are as SHA256SUMS lists them: all but tables, figures and pages.

    Raises:
        ReleaseError: some are not, all of them named.
    """
    expected = read_sums(folder)
    needed = [name for name in expected if not name.startswith(_RESULTS)]
    found = _sums_of(folder, [name for name in needed if (folder / name).is_file()])
    wrong = [name for name in needed if found.get(name) != expected[name]]
    if wrong:
        told = "\n".join(f"  {name} was altered, or is missing" for name in wrong)
        raise ReleaseError(f"{folder} is not as it was published, and answers nothing:\n{told}")


def replace_listed(folder: Path, name: str, content: bytes) -> None:
    """Write one file anew, and its line of SHA256SUMS; the others' lines stay."""
    write_bytes(folder / name, content)
    sums = {**read_sums(folder), name: file_sha256(folder / name)}
    write_bytes(folder / SUMS, "".join(f"{sums[each]}  {each}\n" for each in sorted(sums)).encode())
    sync_folder(folder)


def read_sums(folder: Path) -> dict[str, str]:
    """File -> its sum, as SHA256SUMS lists them."""
    try:
        lines = [line for line in (folder / SUMS).read_text(encoding="utf-8").splitlines() if line]
        return {name: digest for digest, name in (line.split("  ", 1) for line in lines)}
    except FileNotFoundError:
        raise ReleaseError(f"{folder} is not a complete release: {SUMS} is missing") from None
    except (OSError, ValueError) as error:
        raise ReleaseError(f"{folder / SUMS} cannot be read: {error}") from None


def check_sums(folder: Path, but: str | None = None) -> list[str]:
    """What does not agree with SHA256SUMS: altered, missing and unlisted files, one sentence each.

    ``but`` is the name of one file that is not looked at.
    """
    expected, present = read_sums(folder), set(contents(folder))
    expected.pop(but or "", None)
    present.discard(but or "")
    faults = [f"{name} is missing" for name in sorted(expected.keys() - present)]
    faults += [f"{name} is not listed in {SUMS}" for name in sorted(present - expected.keys())]
    found = _sums_of(folder, sorted(expected.keys() & present))
    return faults + [f"{name} was altered" for name, digest in found.items() if digest != expected[name]]


class Rows:
    """A stored table, read from its first row on.

    Raises:
        ReleaseError: the file cannot be read.
    """

    def __init__(self, path: Path, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> None:
        self.path = path
        self.schema = schema
        self._batches = batches
        self._left: pa.Table = schema.empty_table()

    @classmethod
    def of_parquet(cls, path: Path) -> Rows:
        """The rows of a Parquet file, words as plain strings."""
        try:
            file = pq.ParquetFile(path)
            schema = pa.schema([_plain(field) for field in file.schema_arrow])
            return cls(path, file.iter_batches(), schema)
        except FileNotFoundError:
            raise ReleaseError(f"{path} is missing") from None
        except (OSError, pa.ArrowException) as error:
            raise ReleaseError(f"{path} cannot be read: {error}") from None

    @classmethod
    def of_csv(cls, path: Path, schema: pa.Schema) -> Rows:
        """The rows of a CSV file, as the types of ``schema``."""
        try:
            options = pyarrow.csv.ConvertOptions(column_types=schema, strings_can_be_null=False)
            file = pyarrow.csv.open_csv(path, convert_options=options)
            return cls(path, iter(file), schema)
        except FileNotFoundError:
            raise ReleaseError(f"{path} is missing") from None
        except (OSError, pa.ArrowException) as error:
            raise ReleaseError(f"{path} cannot be read: {error}") from None

    def take(self, count: int) -> pa.Table:
        """The next rows: ``count`` of them, or as many as are left."""
        while self._left.num_rows < count and (more := self._next()) is not None:
            self._left = pa.concat_tables([self._left, more])
        taken, self._left = self._left.slice(0, count), self._left.slice(count)
        return taken.combine_chunks()

    def _next(self) -> pa.Table | None:
        try:
            batch = next(self._batches, None)
            return None if batch is None else pa.Table.from_batches([batch]).cast(self.schema)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise ReleaseError(f"{self.path} cannot be read: {error}") from None


def open_parquet(path: Path, schema: pa.Schema) -> pq.ParquetFile:
    """A Parquet file with exactly these columns, words by dictionary where the schema has them so.

    Whether a file says that its columns have no missing values is not compared.

    Raises:
        ReleaseError: it is missing, cannot be read, or has other columns.
    """
    words = [field.name for field in schema if pa.types.is_dictionary(field.type)]
    try:
        file = pq.ParquetFile(path, read_dictionary=words)
    except FileNotFoundError:
        raise ReleaseError(f"{path} is missing") from None
    except (OSError, pa.ArrowException) as error:
        raise ReleaseError(f"{path} cannot be read: {error}") from None
    if [(each.name, each.type) for each in file.schema_arrow] != [(each.name, each.type) for each in schema]:
        file.close()
        raise ReleaseError(f"{path} does not have the columns {', '.join(schema.names)} as they are written")
    return file


def close_all(writers: Iterable[pq.ParquetWriter | pyarrow.csv.CSVWriter], *, failed: bool) -> None:
    """Close every file; what goes wrong is raised, unless something failed before and is on its way to be told.

    Raises:
        OSError: a file could not be written to its end.
    """
    first: OSError | None = None
    for writer in writers:
        try:
            writer.close()
        except OSError as error:
            first = first or error
            if isinstance(writer, pq.ParquetWriter):
                writer.is_open = False  # or it would try, and complain, once more when it is forgotten
    if first is not None and not failed:
        raise first


def _plain(field: pa.Field) -> pa.Field:
    """A column of words without the dictionary that it is stored by."""
    return pa.field(field.name, field.type.value_type) if pa.types.is_dictionary(field.type) else field


_ROUNDING = 1e-5  # share of a standard error by which two machines' sums may differ


def plain(schema: pa.Schema) -> pa.Schema:
    """The schema with words as plain strings."""
    return pa.schema(
        [
            pa.field(field.name, pa.string() if pa.types.is_dictionary(field.type) else field.type)
            for field in schema
        ]
    )


def sync_file(path: Path) -> None:
    """See a file onto the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


class TableWriter:
    """Tables as Parquet and as CSV, a piece at a time; each exists, be it without a row."""

    def __init__(self, folder: Path, schemas: dict[str, pa.Schema]) -> None:
        self.folder = folder
        self.schemas = schemas
        self.rows = Counter(dict.fromkeys(schemas, 0))
        self._open: dict[str, tuple[pq.ParquetWriter, pyarrow.csv.CSVWriter]] = {}

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        for name, schema in self.schemas.items():
            parquet = pq.ParquetWriter(self.folder / f"{name}.parquet", schema, compression="zstd")
            self._open[name] = parquet, pyarrow.csv.CSVWriter(self.folder / f"{name}.csv", plain(schema))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        close_all((writer for pair in self._open.values() for writer in pair), failed=kind is not None)
        for name in self._open if kind is None else ():
            for ending in ("parquet", "csv"):
                sync_file(self.folder / f"{name}.{ending}")

    def write(self, name: str, rows: pa.Table) -> None:
        """Append rows to a table."""
        parquet, csv = self._open[name]
        parquet.write_table(rows)
        csv.write_table(rows.cast(plain(rows.schema)))
        self.rows[name] += rows.num_rows


class PublishedRows:
    """One published table, both of its files, compared from the first row on.

    Words and whole numbers are compared exactly, other numbers within a small share of their standard error, and of
    themselves where ``loose`` says so and they have an error. ``within`` is what the folder is called in faults.
    """

    def __init__(
        self, folder: Path, name: str, schema: pa.Schema, *, within: str = "tables", loose: float = 0.0
    ) -> None:
        self.name = f"{within}/{name}"
        self._loose = loose
        self.faults: list[str] = []
        self._parquet = Rows.of_parquet(folder / f"{name}.parquet")
        self._csv = Rows.of_csv(folder / f"{name}.csv", schema)
        self._schema = schema

    def compare(self, fresh: pa.Table) -> None:
        """The next rows are these, in both files."""
        if self.faults:
            return
        stored, same = self._parquet.take(fresh.num_rows), self._csv.take(fresh.num_rows)
        fresh = fresh.cast(self._schema)
        if stored.schema != self._schema or stored.num_rows != fresh.num_rows:
            self.faults.append(f"{self.name}.parquet: does not have the rows that were measured")
        elif not same.equals(stored):
            self.faults.append(f"{self.name}.csv: does not say what {self.name}.parquet says")
        elif wrong := [
            column for column in self._schema.names if not _agree(column, stored, fresh, self._loose)
        ]:
            told = f"{', '.join(wrong)} {'is' if len(wrong) == 1 else 'are'} not what the measurements say"
            self.faults.append(f"{self.name}.parquet: {told}")

    def end(self) -> None:
        """Nothing is left in either file."""
        if not self.faults and (self._parquet.take(1).num_rows or self._csv.take(1).num_rows):
            self.faults.append(f"{self.name}: has more rows than were measured")


_WHOLE_ENDS = ("ci_low", "ci_high")


def _agree(column: str, stored: pa.Table, fresh: pa.Table, loose: float) -> bool:
    """Whether a column says the same in both; numbers are empty in whole rows."""
    if not pa.types.is_floating(fresh.schema.field(column).type):
        return stored[column].combine_chunks().equals(fresh[column].combine_chunks())
    if not stored[column].is_null().equals(fresh[column].is_null()):
        return False
    error, values, found = (
        table[name].drop_null().to_numpy()
        for table, name in ((fresh, "std_error"), (fresh, column), (stored, column))
    )
    slack = _ROUNDING * error + np.where(error > 0, loose * np.abs(values), 0.0)
    apart = np.abs(found - values)
    if column in _WHOLE_ENDS and (values == np.rint(values)).all() and (found == np.rint(found)).all():
        # An end within rounding of a whole number may have been put on either side of it, in a row of 10,000.
        beside = apart == 1
        return bool((beside | (apart == 0)).all() and beside.sum() <= 1 + 1e-4 * apart.size)
    return bool((apart <= slack).all())


DERIVED = "derived"


def is_derived(resource: Mapping[str, Any]) -> bool:
    """Whether an entry of the descriptor is of a derived figure."""
    return str(resource["path"]).startswith(f"{DERIVED}/")
