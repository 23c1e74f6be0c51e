"""Files that are not ledgers, cannot be written, or are not as they were written."""

import contextlib
import os
import resource
import shutil
import signal
import sqlite3

import numpy as np
import pytest

from tabulae.errors import BudgetRefused, LedgerError
from tabulae.privacy import ZCDP, Ledger
from tabulae.privacy.ledger.store import ChainedEntry, link


@pytest.fixture(scope="module")
def pattern(tmp_path_factory):
    ledger = Ledger.create(tmp_path_factory.mktemp("pattern") / "ledger.db", 1, definition="zcdp")
    for i in range(4):
        ledger.charge(ZCDP("1/10"), "add-remove", "person", f"release {i}", bytes([i]) * 32)
    return ledger.path


@pytest.fixture
def path(pattern, tmp_path):
    return shutil.copy(pattern, tmp_path / "ledger.db")


def edit(path, *statements):
    with contextlib.closing(sqlite3.connect(path)) as connection:
        for name in ("entry_kept", "entry_fixed"):
            connection.execute(f"DROP TRIGGER IF EXISTS {name}")
        for statement in statements:
            connection.execute(*(statement if isinstance(statement, tuple) else (statement,)))
        connection.commit()


def refused(path, match="altered", **options):
    with pytest.raises(LedgerError, match=match) as error:
        Ledger.open(path, **options)
    assert error.value.exit_code == 1
    return str(error.value)


def test_the_file_itself_is_append_only(path):
    for statement in ("DELETE FROM entry", "UPDATE entry SET kind = 'void'"):
        with (
            contextlib.closing(sqlite3.connect(path)) as connection,
            pytest.raises(sqlite3.IntegrityError, match="append-only"),
        ):
            connection.execute(statement)


@pytest.mark.parametrize(
    "statements",
    [
        ["""UPDATE entry SET body = replace(body, '1/10', '1/99') WHERE sequence = 2"""],
        ["""UPDATE entry SET body = replace(body, '"rho":"1"', '"rho":"9"') WHERE sequence = 0"""],
        ["UPDATE entry SET kind = 'void' WHERE sequence = 3"],
        ["DELETE FROM entry WHERE sequence = 4"],
        ["DELETE FROM entry WHERE sequence = 2"],
        ["DELETE FROM entry WHERE sequence = 0"],
        ["DELETE FROM entry"],
        ["DELETE FROM seal"],
        ["UPDATE seal SET sequence = 3"],
        ["UPDATE secret SET key = zeroblob(32)"],
        ["DELETE FROM secret"],
        ["INSERT INTO secret VALUES (zeroblob(32))"],
        ["DROP TABLE seal"],
        ["DROP TABLE entry"],
        [
            "UPDATE entry SET sequence = 99 WHERE sequence = 2",
            "UPDATE entry SET sequence = 2 WHERE sequence = 3",
            "UPDATE entry SET sequence = 3 WHERE sequence = 99",
        ],
        [
            "DELETE FROM entry WHERE sequence = 4",
            "UPDATE seal SET sequence = 3, hash = (SELECT hash FROM entry WHERE sequence = 3)",
        ],
    ],
)
def test_edits_are_refused(path, statements):
    edit(path, *statements)
    refused(path)


def test_a_forged_history_with_a_correct_chain_is_refused(path):
    """Rewriting every later hash does not help: the end is sealed with the ledger's key."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        rows = [
            ChainedEntry(*r)
            for r in connection.execute("SELECT sequence, kind, body, previous, hash FROM entry")
        ]
    forged, previous = [], rows[1].hash
    for row in rows[2:]:
        content = row.content() | {"loss": {"rho": "1/1000000"}}
        forged.append(link(row.sequence, row.kind, content, previous))
        previous = forged[-1].hash
    update = "UPDATE entry SET body = ?, previous = ?, hash = ? WHERE sequence = ?"
    edit(path, *[(update, (r.body, r.previous, r.hash, r.sequence)) for r in forged])
    edit(path, ("UPDATE seal SET hash = ?", (previous,)))
    refused(path)


def test_an_open_ledger_notices_an_edit_before_it_spends(path):
    ledger = Ledger.open(path)
    edit(path, "DELETE FROM entry WHERE sequence = 4")
    for call in (
        lambda: ledger.charge(ZCDP("1/10"), "add-remove", "person", "late", bytes(32)),
        lambda: ledger.spent,
        ledger.entries,
        ledger.charges,
        lambda: ledger.find(bytes(32)),
        lambda: ledger.settle("0" * 32, "void"),
    ):
        with pytest.raises(LedgerError, match="altered"):
            call()


def test_rollback_behind_an_anchor_is_refused(path, tmp_path):
    copy = tmp_path / "copy.db"
    shutil.copy(path, copy)
    ledger = Ledger.open(path)
    older, _ = ledger.head, ledger.charge(ZCDP("1/10"), "add-remove", "person", "fifth", bytes(32))
    anchor = ledger.head
    assert Ledger.open(path, anchor=anchor).head == anchor
    assert Ledger.open(path, anchor=older).head == anchor, "an older head is part of the history"
    shutil.copy(copy, path)
    refused(path, match="older copy", anchor=anchor)
    with pytest.raises(LedgerError, match="altered"):
        ledger.charge(ZCDP("1/10"), "add-remove", "person", "sixth", bytes(32))
    assert Ledger.open(path).head == older, "without an anchor a rollback cannot be told: a stated limit"


def test_another_ledger_under_the_same_name_is_refused(path, tmp_path):
    anchor = Ledger.open(path).head
    Ledger.create(tmp_path / "other.db", 1, definition="zcdp").path.replace(path)
    refused(path, anchor=anchor)


@pytest.mark.parametrize("keep", [0, 1, 50, 100, 4096, 5000, 8192, 12288, -1])
def test_a_truncated_file_is_refused(path, keep):
    whole = path.read_bytes()
    path.write_bytes(whole[:keep])
    refused(path, match="altered|not a tabulae ledger|cannot be used")


def test_damaged_bytes_never_pass_for_a_ledger_with_more_left(path):
    """Any byte of the file replaced: either the ledger is refused, or nothing it says has changed."""
    whole, rng = path.read_bytes(), np.random.default_rng(4)
    said = Ledger.open(path).export_json()
    refusals = 0
    for place in rng.integers(0, len(whole), 150).tolist():
        damaged = bytearray(whole)
        damaged[place] ^= int(rng.integers(1, 256))
        path.write_bytes(damaged)
        try:
            assert Ledger.open(path).export_json() == said
        except LedgerError:
            refusals += 1
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
    assert refusals > 5


def test_what_is_not_a_ledger_is_refused(tmp_path):
    missing, text, empty, other = (tmp_path / name for name in ("missing", "text", "empty", "other"))
    text.write_text("a ledger, honestly\n" * 500)
    empty.touch()
    with contextlib.closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE entry (x)")
    message = refused(missing, match="no ledger at")
    assert "ledger init" in message
    assert not missing.exists(), "looking for a ledger does not make one"
    refused(tmp_path, match="no ledger at")
    for path in (text, empty, other):
        refused(path, match="not a tabulae ledger")


def test_a_newer_format_is_refused(path):
    edit(path, "PRAGMA user_version = 2")
    refused(path, match="newer")


def test_create_says_why_it_cannot(tmp_path):
    with pytest.raises(LedgerError, match="cannot create"):
        Ledger.create(tmp_path / "no" / "such" / "folder.db", 1, definition="zcdp")
    with pytest.raises(LedgerError, match="exists"):
        Ledger.create(tmp_path, 1, definition="zcdp")


def as_nobody(work):
    """Run ``work`` in a child without root's rights; return what it printed."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.getuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            os.write(write, work().encode())
        except BaseException as error:
            os.write(write, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return answer


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_ledger_on_a_read_only_disk(path):
    # however deep the runner's temporary folders are, nobody must be able to enter them
    mine = (folder for folder in path.parents if folder.stat().st_uid == os.getuid())
    folders = [folder for folder in mine if folder != folder.parent]
    modes = [folder.stat().st_mode for folder in folders]
    try:
        for folder, mode in zip(folders[1:], modes[1:], strict=True):
            folder.chmod(mode & 0o7777 | 0o755)
        path.chmod(0o444)
        path.parent.chmod(0o555)

        def work():
            try:
                ledger = Ledger.open(path)
                ledger.charge(ZCDP("1/10"), "add-remove", "person", "late", bytes(32))
            except LedgerError as error:
                return str(error)
            return "charged"

        def create():
            try:
                Ledger.create(path.parent / "new.db", 1, definition="zcdp")
            except LedgerError as error:
                return str(error)
            return "created"

        assert "must be writable" in as_nobody(work)
        assert "cannot create a ledger" in as_nobody(create)
    finally:
        for folder, mode in zip(folders, modes, strict=True):
            folder.chmod(mode)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_full_disk_charges_nothing(path):
    size = path.stat().st_size

    def work():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size // 8, size // 8))
        try:
            Ledger.open(path).charge(ZCDP("1/10"), "add-remove", "person", "late", bytes(32))
        except LedgerError as error:
            return f"refused: {error}"
        return "charged"

    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write, work().encode())
        except BaseException as error:
            os.write(write, repr(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    assert answer.startswith("refused"), answer
    ledger = Ledger.open(path)
    assert len(ledger.charges()) == 4
    ledger.charge(ZCDP("6/10"), "add-remove", "person", "after", bytes(32))
    with pytest.raises(BudgetRefused):
        ledger.charge(ZCDP("1/1000"), "add-remove", "person", "over", bytes(32))
