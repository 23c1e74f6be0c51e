"""Many processes on one ledger, and processes that are killed."""

import signal
import subprocess
import sys
import time
from fractions import Fraction
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

from tabulae.errors import BudgetRefused, LedgerError
from tabulae.privacy import ZCDP, Ledger
from tabulae.privacy.ledger import store

WORKERS = 8

CHARGING = """
import sys
from tabulae.privacy import ZCDP, Ledger
ledger = Ledger.open(sys.argv[1])
while True:
    charge = ledger.charge(ZCDP("1/100000"), "add-remove", "person", "killed", bytes(32))
    print(charge.release_id, flush=True)
"""


def work(path, worker, tries):
    ledger, ids, refusals = Ledger.open(path), [], 0
    for i in range(tries):
        try:
            ids.append(
                ledger.charge(ZCDP("1/1500"), "add-remove", "person", f"{worker}-{i}", bytes(32)).release_id
            )
        except BudgetRefused:
            refusals += 1
    return ids, refusals


@pytest.mark.parametrize("charges", [120, pytest.param(1500, marks=pytest.mark.long)])
def test_eight_processes_neither_overspend_nor_lose_a_charge(tmp_path, charges):
    path, tries = tmp_path / "ledger.db", charges // 6  # of each: a quarter of them all must be refused
    Ledger.create(path, Fraction(charges, 1500), definition="zcdp")
    forks = get_context("forkserver")  # of a process that has imported what they need
    forks.set_forkserver_preload(["pytest", "tabulae.privacy"])
    with forks.Pool(WORKERS) as pool:
        results = pool.starmap(work, [(str(path), w, tries) for w in range(WORKERS)])
    ledger = Ledger.open(path)
    told = [release for ids, _ in results for release in ids]
    assert ledger.spent == Fraction(charges, 1500)
    assert len(told) == charges
    assert sum(refusals for _, refusals in results) == WORKERS * tries - charges
    assert sorted(told) == sorted(c.release_id for c in ledger.charges())
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("kills", [2, pytest.param(12, marks=pytest.mark.long)])
def test_a_killed_process_loses_no_charge_that_it_was_told_of(tmp_path, kills):
    path, rng = tmp_path / "ledger.db", np.random.default_rng(0)
    Ledger.create(path, 1, definition="zcdp")
    told = set()
    for _ in range(kills):
        child = subprocess.Popen(
            [sys.executable, "-c", CHARGING, str(path)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        told.add(child.stdout.readline().strip())
        time.sleep(float(rng.random()) * 0.05)
        child.send_signal(signal.SIGKILL)
        rest, _ = child.communicate()
        told |= {line for line in rest.split("\n") if len(line) == 32}
        ledger = Ledger.open(path)
        kept = {c.release_id for c in ledger.charges()}
        assert told <= kept, "what was charged before noise is drawn stays charged"
        assert ledger.spent == Fraction(len(kept), 100000)
    assert len(kept) - len(told) <= kills, "at most one charge a kill was committed without being told"


def test_a_ledger_held_by_another_process(tmp_path, monkeypatch):
    ledger = Ledger.create(tmp_path / "ledger.db", 1, definition="zcdp")
    monkeypatch.setattr(store, "_PATIENCE", 0.05)
    with store.connect(ledger.path, write=True):
        with pytest.raises(LedgerError, match="held by another process"):
            ledger.charge(ZCDP("1/10"), "add-remove", "person", "late", bytes(32))
        assert ledger.spent == 0, "reading goes on beside a writer"
        monkeypatch.setattr(store, "_PATIENCE", 60.0)
        began = time.monotonic()
        with pytest.raises(LedgerError, match="let it finish or close it"):
            Ledger.open(ledger.path, write=True)
        assert time.monotonic() - began < 30, "a first look waits a second, and not a minute"
        assert Ledger.open(ledger.path).spent == 0
    ledger.charge(ZCDP("1/10"), "add-remove", "person", "now", bytes(32))


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="the system does not tell who holds a lock")
def test_who_holds_a_ledger_is_told(tmp_path):
    path = tmp_path / "ledger.db"
    Ledger.create(path, 1, definition="zcdp")
    hold = "held = sqlite3.connect(sys.argv[1]); held.execute('BEGIN IMMEDIATE')"
    code = [sys.executable, "-c", f"import sqlite3, sys; {hold}; print(1, flush=True); input()", str(path)]
    with subprocess.Popen(code, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(LedgerError, match=rf"\(number {holder.pid}\)"):
            Ledger.open(path, write=True)
        holder.kill()


def test_an_exception_inside_a_transaction_leaves_nothing(tmp_path):
    ledger = Ledger.create(tmp_path / "ledger.db", 1, definition="zcdp")

    def interrupted():
        with store.connect(ledger.path, write=True) as connection:
            connection.execute("DELETE FROM seal")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        interrupted()
    assert Ledger.open(ledger.path).spent == 0
