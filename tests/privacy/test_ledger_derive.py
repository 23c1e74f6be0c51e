"""Keys derived from a ledger's own secret."""

from __future__ import annotations

import hashlib
import hmac
import sqlite3
from pathlib import Path

import pytest

import tabulae as tb
from tabulae.errors import LedgerError


def test_a_derived_key_is_stable_apart_and_kept_nowhere(tmp_path: Path) -> None:
    ledger = tb.Ledger.create(tmp_path / "a.db", 1, "zcdp")
    key = ledger.derive(b"rows")
    assert len(key) == 32
    ledger.charge(tb.ZCDP("1/2"), "add-remove", "person", "demo", bytes(32))
    assert tb.Ledger.open(tmp_path / "a.db").derive(b"rows") == key
    others = {ledger.derive(purpose) for purpose in (b"", b"row", b"rowss", b"rows\n")}
    assert len(others | {key}) == 5
    assert tb.Ledger.create(tmp_path / "b.db", 1, "zcdp").derive(b"rows") != key
    assert key not in (tmp_path / "a.db").read_bytes()
    assert key.hex() not in ledger.export_json()


def test_it_is_hmac_of_the_secret_and_no_release_id(tmp_path: Path) -> None:
    """A purpose cannot be chosen so that the key is one that release ids or the seal are made with."""
    ledger = tb.Ledger.create(tmp_path / "a.db", 1, "zcdp")
    with sqlite3.connect(tmp_path / "a.db") as connection:
        secret = connection.execute("SELECT key FROM secret").fetchone()[0]
    connection.close()
    assert ledger.derive(b"x") == hmac.new(secret, b"derivex", hashlib.sha256).digest()
    assert not any(
        b"derive".startswith(start) or start.startswith(b"derive") for start in (b"release", b"seal")
    )


def test_an_altered_ledger_derives_nothing(tmp_path: Path) -> None:
    ledger = tb.Ledger.create(tmp_path / "a.db", 1, "zcdp")
    with sqlite3.connect(tmp_path / "a.db") as connection:
        connection.execute("DELETE FROM seal")
    connection.close()
    with pytest.raises(LedgerError, match="altered"):
        ledger.derive(b"rows")
