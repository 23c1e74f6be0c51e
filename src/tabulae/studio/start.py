"""What a studio begins with: a spec, a new one, or a draft of what a file declares. No record is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ..errors import TabulaeError
from ..sources.declared import declared_columns, stored_tables
from ..sources.source import kind_of, kinds
from ..spec.draft import draft_of, source_of
from .document import Document

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
    open: Callable[[], Document]


def starts(place: Path) -> list[Start]:
    """What there is to begin with at a place: one thing, or those of a folder or a database to choose from.

    Raises:
        ReleaseError: there is nothing.
    """
    if place.is_dir():
        found = [start for file in sorted(place.iterdir()) if file.is_file() for start in _in_folder(file)]
        return [*found, Start("a new spec", partial(_new, _free(place / "spec.toml")))]
    if kind_of(str(place)) is not None and place.suffix != ".toml":
        return list(_of_records(place))
    if place.suffix == ".toml" and not place.exists() and place.resolve().parent.is_dir():
        return [Start(place.name, partial(_new, place))]
    return [Start(place.name, partial(Document, place))]


def _in_folder(file: Path) -> Iterator[Start]:
    if file.suffix == ".toml":
        yield Start(f"the spec {file.name}", partial(Document, file))
    elif kind_of(str(file)) is not None and not _is_ledger(file):
        try:
            yield from _of_records(file)
        except TabulaeError:
            return


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


def _drafted(file: Path, table: str | None) -> Document:
    """The draft that `tabulae init` makes, not saved yet.

    Privacy:
        Reads what :func:`~tabulae.sources.declared.declared_columns` reads, and no record.
    """
    source = source_of(file, table)
    drafted = draft_of(source, declared_columns(source), file.parent)
    name = file.stem if table is None else f"{file.stem}-{table.replace('.', '-')}"
    return Document(_free(file.with_name(f"{name}.toml")), drafted.text, drafted.code_lists)


def _new(path: Path) -> Document:
    return Document(path, _NEW)


def _free(path: Path) -> Path:
    """A path that no file has: this one, or one with a number."""
    number, found = 1, path
    while found.exists():
        number += 1
        found = path.with_stem(f"{path.stem}-{number}")
    return found
