"""What a ledger says of which release follows which: chained like all it says, and free."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from tabulae.errors import InvalidArgument, LedgerError
from tabulae.privacy import ZCDP, Charge, Ledger


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "l.db", 1, "zcdp")


def _published(ledger: Ledger, title: str) -> Charge:
    charge = _charged(ledger, title)
    ledger.settle(charge.release_id, "published")
    return charge


def _charged(ledger: Ledger, title: str) -> Charge:
    return ledger.charge(ZCDP("1/10"), "add-remove", "person", title, bytes(32))


def test_what_follows_what_is_kept_and_costs_nothing(ledger: Ledger) -> None:
    first, second = _published(ledger, "a"), _charged(ledger, "b")
    spent, head = ledger.spent, ledger.head
    ledger.follow(second.release_id, first.release_id, "correction")
    assert ledger.spent == spent
    assert ledger.head != head
    again = Ledger.open(ledger.path, anchor=head)
    assert [(c.follows, c.relation) for c in again.charges()] == [
        (None, None),
        (first.release_id, "correction"),
    ]
    again.settle(second.release_id, "published")
    assert again.charges()[1].follows == first.release_id
    assert [e["kind"] for e in again.entries(second.release_id)] == ["charge", "follows", "published"]


def test_it_is_said_once(ledger: Ledger) -> None:
    first, second, third = _published(ledger, "a"), _published(ledger, "b"), _charged(ledger, "c")
    ledger.follow(third.release_id, first.release_id, "next")
    head = ledger.head
    ledger.follow(third.release_id, first.release_id, "next")
    assert ledger.head == head
    for follows, relation in ((second, "next"), (first, "correction")):
        with pytest.raises(LedgerError, match=r"is the next of .* already"):
            ledger.follow(third.release_id, follows.release_id, relation)
    for release_id, follows in ((first.release_id, "f" * 32), ("f" * 32, first.release_id)):
        with pytest.raises(LedgerError, match="has no release f"):
            ledger.follow(release_id, follows, "next")
    assert ledger.head == head


def test_it_cannot_be_edited(ledger: Ledger) -> None:
    first, second = _published(ledger, "a"), _charged(ledger, "b")
    ledger.follow(second.release_id, first.release_id, "next")
    with sqlite3.connect(ledger.path) as connection:
        connection.execute("DROP TRIGGER entry_fixed")
        connection.execute(
            "UPDATE entry SET body = replace(body, 'next', 'correction') WHERE kind = 'follows'"
        )
    with pytest.raises(LedgerError, match="altered"):
        Ledger.open(ledger.path)


def test_only_what_was_published_before_is_followed(ledger: Ledger) -> None:
    first, second, third = _published(ledger, "a"), _charged(ledger, "b"), _charged(ledger, "c")
    with pytest.raises(InvalidArgument, match="relation"):
        ledger.follow(third.release_id, first.release_id, "sequel")
    for release, follows in ((third, third), (third, second), (second, third), (first, first)):
        with pytest.raises(LedgerError, match=r"cannot"):
            ledger.follow(release.release_id, follows.release_id, "next")
