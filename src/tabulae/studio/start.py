"""What a studio begins with: a spec, a new one, or a draft of what records declare. No record is read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ..errors import InvalidArgument, TabulaeError
from ..release.folder import write_bytes
from ..sources.declared import declared_columns, stored_tables
from ..sources.parquet_files import parquet_files
from ..sources.source import PARQUET, RecordSource, is_url, kind_of, kinds, url_mistake
from ..spec.draft import draft_of, source_of
from .document import SpecText

_NEW = """title = "Untitled release"

[source]                          # where the records are
unit = "person"                   # what the promise protects

[privacy]                         # what is promised
definition = "zcdp"
budget = "1/2"                    # rho
delta = "1e-10"                   # for the statement in (epsilon, delta)
ledger = "ledger.db"              # the account of what is spent
"""


@dataclass(frozen=True)
class Start:
    """Something to begin with: what it is called, and what opens it."""

    words: str
    open: Callable[[], SpecText]


def starts(place: str | Path) -> list[Start]:
    """What there is to begin with at a place: one thing, or those of a folder or a database to choose from.

    Args:
        place: a spec; records, as a file, a folder of Parquet files or the url of a database; or a folder of any.

    Raises:
        ReleaseError, DataError: there is nothing.
        InvalidArgument: the url cannot be one, or holds a password.
    """
    if isinstance(place, str) and is_url(place):
        if mistake := url_mistake(place):
            raise InvalidArgument(f"the address of the records {mistake}")
        return [
            Start(f"the table {table}", partial(_drafted, place, table)) for table in stored_tables(place)
        ]
    place = Path(place)
    if place.is_dir():
        return _in_place(place.resolve())
    if kind_of(str(place)) is not None and place.suffix != ".toml":
        return list(_of_records(place))
    if place.suffix == ".toml" and not place.exists() and place.resolve().parent.is_dir():
        return [Start(place.name, partial(_new, place))]
    return [Start(place.name, partial(SpecText, place))]


def _in_place(folder: Path) -> list[Start]:
    """What a folder has, and a new spec; where it holds Parquet files and nothing else, that stands beside it."""
    if whole := _parts(folder):
        found = [Start(f"the records in the {whole} files of {folder.name}", partial(_drafted, folder, None))]
        beside = folder.parent
    else:
        found = [start for file in sorted(folder.iterdir()) for start in _in_folder(file)]
        beside = folder
    return [*found, Start("a new spec", partial(_new, _free(beside / "spec.toml")))]


def _in_folder(file: Path) -> Iterator[Start]:
    if file.is_dir():
        if whole := _parts(file):
            told = f"the records in the {whole} files of the folder {file.name}"
            yield Start(told, partial(_drafted, file, None))
    elif file.suffix == ".toml":
        yield Start(f"the spec {file.name}", partial(SpecText, file))
    elif kind_of(str(file)) is not None and file.is_file() and not _is_ledger(file):
        try:
            yield from _of_records(file)
        except TabulaeError:
            return


def _parts(folder: Path) -> int:
    """How many Parquet files a folder of records holds; 0 for a folder of anything else."""
    try:
        return len(parquet_files(RecordSource(folder, PARQUET.name)))
    except (TabulaeError, OSError):
        return 0


def _is_ledger(file: Path) -> bool:
    """Whether a database is one of SQLite, as ledgers are, and no table of records."""
    with file.open("rb") as opened:
        return opened.read(15) == b"SQLite format 3"


def _of_records(file: Path) -> Iterator[Start]:
    """One draft for a file, or one for each table of a database."""
    kind = kind_of(str(file))
    if kind is None or not kinds()[kind].many or not file.is_file():
        yield Start(f"the records {file.name}", partial(_drafted, file, None))
        return
    for table in stored_tables(file):
        yield Start(f"the table {table} of {file.name}", partial(_drafted, file, table))


def _drafted(place: str | Path, table: str | None) -> SpecText:
    """The draft that `tabulae init` makes, not saved yet; that of a folder or a server's table stands outside it.

    Code lists of labels that records declare are public files, which a plan reads: they are written at once.

    Privacy:
        Reads what :func:`~tabulae.sources.declared.declared_columns` reads, and no record.
    """
    source = source_of(place, table)
    folder = Path.cwd() if isinstance(place, str) else place.resolve().parent
    names = [place.stem] if isinstance(place, Path) else []
    names += [table.replace(".", "-")] if table else []
    drafted = draft_of(source, declared_columns(source), folder)
    name = re.sub(r"[^\w.-]", "_", "-".join(names))
    for file, content in drafted.code_lists.items():
        place = folder / file
        if not place.exists():
            with suppress(OSError):  # the spec then has a mistake, which names the file
                place.parent.mkdir(exist_ok=True)
                write_bytes(place, content.encode())
    return SpecText(_free(folder / f"{name}.toml"), drafted.text)


def _new(path: Path) -> SpecText:
    return SpecText(path, _NEW)


def _free(path: Path) -> Path:
    """A path that no file has: this one, or one with a number."""
    number, found = 1, path
    while found.exists():
        number += 1
        found = path.with_stem(f"{path.stem}-{number}")
    return found
