"""The file under a ledger: entries chained by hashes, in SQLite with a write-ahead log, synced at every commit.

Each entry's hash covers its number, kind and body and the hash of the entry before, so that none can be
edited, dropped, added or moved without changing every hash after it. The last hash, the head, stands
for the whole history; kept elsewhere, it also betrays a file that was rolled back.

A connection lives for one operation, so nothing is shared between threads or across a fork, and the
log is folded back into the file when the last user leaves. Writers queue for an immediate lock: what a
writer has read cannot change before it commits.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ...errors import LedgerError

START = "0" * 64


@dataclass(frozen=True)
class ChainedEntry:
    """One entry: what happened, as canonical JSON, and where it stands in the chain."""

    sequence: int
    kind: str
    body: str
    previous: str
    hash: str

    def content(self) -> dict[str, Any]:
        return json.loads(self.body)


def link(sequence: int, kind: str, content: Mapping[str, Any], previous: str) -> ChainedEntry:
    """The row that follows the one with hash ``previous``.

    Privacy: none is spent; SHA-256 binds the row to all before it.

    >>> link(0, "created", {"unit": "person"}, START).body
    '{"unit":"person"}'
    """
    body = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return ChainedEntry(sequence, kind, body, previous, _hash(sequence, kind, body, previous))


def _hash(sequence: int, kind: str, body: str, previous: str) -> str:
    message = "\n".join((previous, str(sequence), kind, body))
    return hashlib.sha256(message.encode()).hexdigest()


def verify(rows: Iterable[ChainedEntry], sequence: int, previous: str, where: str) -> None:
    """Check that rows continue the chain at ``sequence`` after the hash ``previous``.

    Raises:
        LedgerError: a row that is missing, out of place or altered.

    Privacy: an altered ledger could allow a budget to be spent twice, so it is refused whole.

    >>> verify([link(0, "created", {}, START)], 0, START, "ledger.db")
    """
    for row in rows:
        intact = row.sequence == sequence and row.previous == previous
        if not intact or row.hash != _hash(row.sequence, row.kind, row.body, row.previous):
            raise altered(where, f"entry {sequence} does not follow from the one before it")
        sequence, previous = sequence + 1, row.hash


def altered(where: str, finding: str) -> LedgerError:
    """The error for a ledger that is not as it was written.

    Privacy: names the entry, never its content.

    >>> altered("ledger.db", "entry 3 is missing").exit_code
    1
    """
    return LedgerError(
        f"{where} was altered: {finding}. It is refused, because its budget can no longer be trusted; "
        "restore the latest copy, or start a new ledger and treat the whole budget as spent"
    )


FORMAT = 1
_APPLICATION = 0x7461624C  # "tabL"
_PATIENCE = 60.0  # seconds to wait for another writer
AT_ONCE = 1.0  # seconds that a first look waits, when nothing would be lost yet
_SCHEMA = f"""
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {FORMAT};
CREATE TABLE entry (
    sequence INTEGER PRIMARY KEY, kind TEXT NOT NULL, body TEXT NOT NULL,
    previous TEXT NOT NULL, hash TEXT NOT NULL UNIQUE
) STRICT;
CREATE TABLE secret (key BLOB NOT NULL) STRICT;
CREATE TABLE seal (sequence INTEGER NOT NULL, hash TEXT NOT NULL, mark TEXT NOT NULL) STRICT;
CREATE TRIGGER entry_kept BEFORE DELETE ON entry BEGIN SELECT RAISE(ABORT, 'entries are append-only'); END;
CREATE TRIGGER entry_fixed BEFORE UPDATE ON entry BEGIN SELECT RAISE(ABORT, 'entries are append-only'); END;
"""


def create(path: Path, key: bytes, first: ChainedEntry) -> None:
    """Write a new ledger file with its first row, all or nothing, readable by its owner only.

    Raises:
        LedgerError: the path exists, or cannot be written.

    Privacy: the key is what keeps release ids from being guessed; it stays in this file.

    >>> from tabulae.privacy.ledger.store import START, link
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     create(Path(folder) / "ledger.db", bytes(32), link(0, "created", {}, START))
    """
    if _look(path, Path.exists):
        raise LedgerError(f"{path} exists already; a ledger is created once: open it, or choose another path")
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        os.close(handle)
    except OSError as error:
        raise LedgerError(
            f"cannot create a ledger at {path}: {error.strerror}; name a folder that exists and can be written"
        ) from error
    draft = Path(name)
    try:
        with contextlib.closing(sqlite3.connect(draft, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = FULL")
            connection.executescript(_SCHEMA)
            connection.execute("INSERT INTO secret VALUES (?)", (key,))
            append(connection, key, [first])
            connection.execute("PRAGMA journal_mode = WAL")
        _publish(draft, path)
    except sqlite3.Error as error:
        raise LedgerError(f"cannot create a ledger at {path}: {error}") from error
    finally:
        for suffix in ("", "-wal", "-shm", "-journal"):
            Path(name + suffix).unlink(missing_ok=True)


def _look(path: Path, question: Callable[[Path], bool]) -> bool:
    """Ask the file system about a path; a folder that may not be entered is a ledger that cannot be used."""
    try:
        return question(path)
    except OSError as error:
        raise LedgerError(
            f"{path} cannot be looked up: {error.strerror}; see to the folder's permissions"
        ) from error


def _publish(draft: Path, path: Path) -> None:
    """Give the finished draft its name, never over an existing file."""
    try:
        os.link(draft, path)
    except FileExistsError as error:
        raise LedgerError(f"{path} exists already; a ledger is created once") from error
    except OSError:  # a file system without hard links
        draft.rename(path)
    with contextlib.suppress(OSError):  # not every system lets a folder be synced
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@contextlib.contextmanager
def connect(path: Path, *, write: bool, patience: float | None = None) -> Iterator[sqlite3.Connection]:
    """One transaction on a ledger file: committed at the end of the block, undone by any exception.

    Args:
        path: the file.
        write: whether it may change the file.
        patience: seconds to wait for others; None for as long as a charge is worth.

    Raises:
        LedgerError: no such file, not a ledger, of a newer format, read-only, full, damaged or busy.

    Privacy: none is spent; a writer holds the lock from its first read to its commit.
    """
    if _look(path, Path.is_dir):
        raise LedgerError(f"there is no ledger at {path}, which is a folder: name the ledger's file in it")
    if not _look(path, Path.is_file):
        raise LedgerError(
            f"there is no ledger at {path}; create one with Ledger.create or `tabulae ledger init {path}`"
        )
    try:
        uri = f"file:{quote(str(path.absolute()))}?mode=rw"
        wait = _PATIENCE if patience is None else patience
        with contextlib.closing(
            sqlite3.connect(uri, uri=True, timeout=wait, isolation_level=None)
        ) as connection:
            connection.execute("PRAGMA synchronous = FULL")
            _recognise(connection, path)
            connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            try:
                yield connection
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise _explain(error, path) from error
    except UnicodeDecodeError as error:  # sqlite quotes damaged text in its own messages
        raise altered(str(path), "the file is damaged") from error


def _recognise(connection: sqlite3.Connection, path: Path) -> None:
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    if application != _APPLICATION:
        raise LedgerError(f"{path} is not a tabulae ledger; check the path")
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > FORMAT:
        raise LedgerError(
            f"{path} has the ledger format {version}, newer than {FORMAT} which this version reads; "
            "upgrade tabulae"
        )


def _explain(error: sqlite3.Error, path: Path) -> LedgerError:
    text = str(error)
    if "not a database" in text:
        return LedgerError(f"{path} is not a tabulae ledger; check the path")
    if "malformed" in text or "no such table" in text:
        return altered(str(path), "the file is damaged")
    if "locked" in text or "busy" in text:
        return LedgerError(
            f"{path} is held by {_holder(path)}; nothing was charged: let it finish or close it, and try again"
        )
    if "readonly" in text or "unable to open" in text:
        return LedgerError(f"{path} cannot be written: a ledger and its folder must be writable to be used")
    if "full" in text:
        return LedgerError(f"the disk of {path} is full; nothing was charged: free some space and try again")
    return LedgerError(f"{path} cannot be used: {text}; see to the disk, then `tabulae ledger show`")


def _holder(path: Path) -> str:
    """Which process has locked a ledger, where the system tells it: Linux does, in a line for each lock."""
    try:
        beside = (path, path.with_name(f"{path.name}-shm"))
        files = {each.stat().st_ino for each in beside if each.exists()}
        for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
            fields = line.split()  # as in: 1: POSIX ADVISORY WRITE 4711 fe:00:2156277 120 120
            if len(fields) == 8 and fields[3] == "WRITE" and int(fields[5].rpartition(":")[2]) in files:
                name = Path(f"/proc/{fields[4]}/comm").read_text(encoding="utf-8", errors="replace").strip()
                return f"another process, {name} (number {fields[4]})"
    except (OSError, ValueError):
        pass
    return "another process"


def key_of(connection: sqlite3.Connection, path: Path) -> bytes:
    """The ledger's own key. Privacy: used to make release ids, never written anywhere else."""
    rows = connection.execute("SELECT key FROM secret").fetchall()
    if len(rows) != 1:
        raise altered(str(path), "its key is missing")
    return rows[0][0]


def rows_from(connection: sqlite3.Connection, sequence: int) -> list[ChainedEntry]:
    """The rows with this number and above, in order. Privacy: none is spent."""
    query = "SELECT sequence, kind, body, previous, hash FROM entry WHERE sequence >= ? ORDER BY sequence"
    return [ChainedEntry(*found) for found in connection.execute(query, (sequence,))]


def append(connection: sqlite3.Connection, key: bytes, rows: Sequence[ChainedEntry]) -> None:
    """Add rows and seal the new end.

    Privacy: the seal is keyed, so rows cannot be cut off the end by deleting them alone.
    """
    connection.executemany(
        "INSERT INTO entry VALUES (?, ?, ?, ?, ?)",
        [(row.sequence, row.kind, row.body, row.previous, row.hash) for row in rows],
    )
    last = rows[-1]
    connection.execute("DELETE FROM seal")
    connection.execute("INSERT INTO seal VALUES (?, ?, ?)", (last.sequence, last.hash, _mark(key, last)))


def check_seal(connection: sqlite3.Connection, key: bytes, last: ChainedEntry, path: Path) -> None:
    """Check that the chain ends where it was last sealed.

    Raises:
        LedgerError: rows were cut off, or the seal was altered.

    Privacy: a shortened ledger would allow its budget to be spent again.
    """
    seals = connection.execute("SELECT sequence, hash, mark FROM seal").fetchall()
    if seals != [(last.sequence, last.hash, _mark(key, last))]:
        raise altered(str(path), "entries are missing from its end")


def _mark(key: bytes, last: ChainedEntry) -> str:
    return hmac.new(key, f"seal {last.sequence} {last.hash}".encode(), hashlib.sha256).hexdigest()
