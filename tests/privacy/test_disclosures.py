"""What a ledger keeps of counts that are stated exactly, and when it keeps it."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from fractions import Fraction
from multiprocessing import get_context

import numpy as np
import pytest

from tabulae.errors import BudgetRefused, InvalidArgument, LedgerError
from tabulae.privacy import ZCDP, Disclosure, Ledger
from tabulae.privacy.ledger.store import ChainedEntry, link

TOTAL = Disclosure(
    "exact total", "apportionment", {"attributes": {}, "terms": [{"coefficient": 1, "factors": {}}]}
)
SEX = Disclosure(
    "exact sex",
    "the register [public] is so",
    {
        "attributes": {"sex": ["F [x]", "M"]},
        "terms": [{"coefficient": 1, "factors": {"sex": {"classes": [0, 1], "count": 2}}}],
    },
)
DIGEST = bytes(range(32))


def spend(ledger: Ledger, *disclosures: Disclosure, loss: str = "1/10", title: str = "tables"):
    return ledger.charge(ZCDP(loss), ledger.neighbours, ledger.unit, title, DIGEST, disclosures)


def edit(path, *statements) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        for name in ("entry_kept", "entry_fixed"):
            connection.execute(f"DROP TRIGGER IF EXISTS {name}")
        for statement in statements:
            connection.execute(*(statement if isinstance(statement, tuple) else (statement,)))
        connection.commit()


@pytest.fixture
def ledger(tmp_path) -> Ledger:
    return Ledger.create(tmp_path / "ledger.db", 1, definition="zcdp", neighbours="replace")


def test_disclosures_stand_with_their_charge(ledger) -> None:
    first = spend(ledger, TOTAL, SEX)
    spend(ledger)
    third = spend(ledger, SEX, title="later")
    found = Ledger.open(ledger.path).disclosures()
    assert [(charge.release_id, told) for charge, told in found] == [
        (first.release_id, TOTAL),
        (first.release_id, SEX),
        (third.release_id, SEX),
    ]
    kinds = ["created", "charge", "disclosure", "disclosure", "charge", "charge", "disclosure"]
    assert [entry["kind"] for entry in ledger.entries()] == kinds
    assert [entry["kind"] for entry in ledger.entries(first.release_id)] == [
        "charge",
        "disclosure",
        "disclosure",
    ]
    assert ledger.entries(first.release_id)[1]["promise"] == "exact, outside the guarantee"
    assert ledger.spent == Fraction(3, 10), "an exact count has no loss that could be added"


def test_disclosures_of_a_void_release_count_as_made(ledger) -> None:
    charge = spend(ledger, SEX)
    ledger.settle(charge.release_id, "void")
    assert [(one.state, told) for one, told in ledger.disclosures()] == [("void", SEX)]


def test_the_export_shows_them_readably_and_loses_nothing(ledger) -> None:
    spend(ledger, SEX)
    text = ledger.export_json()
    assert '"classes": [0, 1]' in text, "a long list stands on one line"
    export = json.loads(text)
    assert export["entries"] == ledger.entries()
    assert export["entries"][-1]["rows"] == SEX.rows
    assert export["entries"][-1]["reason"] == SEX.reason


def test_a_refused_charge_leaves_no_disclosure(ledger) -> None:
    with pytest.raises(BudgetRefused):
        spend(ledger, TOTAL, loss="2")
    assert ledger.disclosures() == []
    assert len(ledger.entries()) == 1


@pytest.mark.parametrize("sequence", [1, 2, 3])
def test_a_failure_between_charge_and_disclosures_leaves_neither(ledger, sequence: int) -> None:
    """The disk refuses the charge itself, the first disclosure or the last."""
    refuse = f"""CREATE TRIGGER full BEFORE INSERT ON entry WHEN NEW.sequence = {sequence}
        BEGIN SELECT RAISE(ABORT, 'disk full'); END"""
    edit(ledger.path, refuse)
    with pytest.raises(LedgerError, match="nothing was charged"):
        spend(ledger, TOTAL, SEX)
    edit(ledger.path, "DROP TRIGGER full")
    again = Ledger.open(ledger.path)
    assert (again.spent, again.charges(), again.disclosures(), len(again.entries())) == (0, [], [], 1)
    spend(ledger, TOTAL, SEX)
    assert len(again.disclosures()) == 2


STATING = """
import json, sys
from tabulae.privacy import ZCDP, Disclosure, Ledger
ledger = Ledger.open(sys.argv[1])
told = [Disclosure(**one) for one in json.loads(sys.argv[2])] * 4
while True:
    charge = ledger.charge(ZCDP("1/100000"), "replace", "person", "killed", bytes(32), told)
    print(charge.release_id, flush=True)
"""


@pytest.mark.parametrize("kills", [3, pytest.param(8, marks=pytest.mark.long)])
def test_killed_processes_leave_charges_with_all_their_disclosures_or_none(ledger, kills: int) -> None:
    rng = np.random.default_rng(7)
    told = json.dumps([vars(TOTAL), vars(SEX)])
    for _ in range(kills):
        child = subprocess.Popen(
            [sys.executable, "-c", STATING, str(ledger.path), told], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(float(rng.random()) * 0.05)
        child.send_signal(signal.SIGKILL)
        child.communicate()
        again = Ledger.open(ledger.path)
        found = [charge.release_id for charge, _ in again.disclosures()]
        assert found == [charge.release_id for charge in again.charges() for _ in range(8)]
    assert len(again.charges()) >= kills


def work(path: str, worker: int) -> list[str]:
    ledger, ids = Ledger.open(path), []
    for _ in range(40):
        with contextlib.suppress(BudgetRefused):
            ids.append(spend(ledger, TOTAL, SEX, loss="1/50", title=str(worker)).release_id)
    return ids


def test_two_processes_keep_each_charge_with_its_disclosures(ledger) -> None:
    with get_context("spawn").Pool(2) as pool:
        made = [one for ids in pool.starmap(work, [(str(ledger.path), w) for w in range(2)]) for one in ids]
    again = Ledger.open(ledger.path)
    assert (len(made), again.spent) == (50, 1)
    assert sorted(charge.release_id for charge, _ in again.disclosures()) == sorted(made * 2)
    kinds = [entry["kind"] for entry in again.entries()[1:]]
    assert kinds == ["charge", "disclosure", "disclosure"] * 50


@pytest.fixture
def pattern(ledger, tmp_path):
    spend(ledger, TOTAL, SEX)
    spend(ledger)
    return shutil.copy(ledger.path, tmp_path / "copy.db")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entry SET body = replace(body, '\"M\"', '\"N\"') WHERE sequence = 3",
        "UPDATE entry SET body = replace(body, 'apportionment', 'whim') WHERE sequence = 2",
        "UPDATE entry SET body = replace(body, '[0,1]', '[0,0]') WHERE sequence = 3",
        "UPDATE entry SET kind = 'note' WHERE sequence = 3",
        "DELETE FROM entry WHERE sequence = 2",
        "DELETE FROM entry WHERE kind = 'disclosure'",
    ],
)
def test_a_disclosure_that_was_tampered_with_is_refused(pattern, statement: str) -> None:
    assert len(Ledger.open(pattern).disclosures()) == 2
    ledger = Ledger.open(pattern)
    edit(pattern, statement)
    with pytest.raises(LedgerError, match="altered"):
        Ledger.open(pattern)
    with pytest.raises(LedgerError, match="altered"):
        ledger.disclosures()


def test_a_disclosure_dropped_from_a_rewritten_chain_is_refused(pattern) -> None:
    """Every later hash made to fit: the end is sealed with a key that the forger lacks."""
    with contextlib.closing(sqlite3.connect(pattern)) as connection:
        rows = [
            ChainedEntry(*r)
            for r in connection.execute("SELECT sequence, kind, body, previous, hash FROM entry")
        ]
    kept = [row for row in rows if row.sequence != 3]
    forged = [kept[0]]
    for row in kept[1:]:
        forged.append(link(forged[-1].sequence + 1, row.kind, row.content(), forged[-1].hash))
    insert = "INSERT INTO entry VALUES (?, ?, ?, ?, ?)"
    edit(
        pattern,
        "DELETE FROM entry",
        *[(insert, (r.sequence, r.kind, r.body, r.previous, r.hash)) for r in forged],
        ("UPDATE seal SET hash = ?, sequence = ?", (forged[-1].hash, forged[-1].sequence)),
    )
    with pytest.raises(LedgerError, match="altered"):
        Ledger.open(pattern)


def test_neighbours_within_invariants_need_invariants(tmp_path) -> None:
    ledger = Ledger.create(tmp_path / "w.db", 1, definition="zcdp", neighbours="replace-within-invariants")
    assert Ledger.open(ledger.path).neighbours == "replace-within-invariants"
    with pytest.raises(InvalidArgument, match="this release has none"):
        spend(ledger)
    assert ledger.spent == 0
    spend(ledger, SEX)
    with pytest.raises(BudgetRefused, match="neighbours"):
        ledger.charge(ZCDP("1/10"), "replace", "person", "t", DIGEST, [SEX])


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (("", "why", TOTAL.rows), "needs a table"),
        (("t", " ", TOTAL.rows), "needs a reason"),
        (("t", None, TOTAL.rows), "needs a reason"),
        (("t", "why", {}), "attributes and terms"),
        (("t", "why", {"attributes": {}, "terms": []}), "attributes and terms"),
        (("t", "why", {"attributes": {}, "terms": [np.int64(1)]}), "plain JSON"),
        (("t", "why", {"attributes": {}, "terms": [float("nan")]}), "plain JSON"),
        (("t", "why", "everything"), "attributes and terms"),
    ],
)
def test_bad_disclosures(fields, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        Disclosure(*fields)


def test_a_disclosure_is_a_value_of_its_own() -> None:
    rows = json.loads(json.dumps(SEX.rows))
    told = Disclosure(SEX.table, SEX.reason, rows)
    rows["attributes"]["sex"][0] = "changed"
    assert told == SEX
    assert str(told) == "exact sex (sex): the register [public] is so"
    assert str(TOTAL) == "exact total (one count of all records): apportionment"


def test_something_else_is_no_disclosure(ledger) -> None:
    with pytest.raises(InvalidArgument, match="holds a str"):
        ledger.charge(ZCDP("1/10"), "replace", "person", "t", DIGEST, ["total"])
    assert ledger.spent == 0
