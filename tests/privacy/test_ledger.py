"""What a ledger accepts, refuses, remembers and shows."""

import json
import re
import stat
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tabulae.errors import BudgetRefused, InvalidArgument, LedgerError
from tabulae.privacy import ZCDP, ApproxDP, Insecure, Ledger, PureDP, noise

DIGEST = bytes(range(32))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.db"


@pytest.fixture
def ledger(path):
    return Ledger.create(path, 1, definition="zcdp", neighbours="replace", unit="household")


def spend(ledger, loss, title="tables", digest=DIGEST):
    return ledger.charge(loss, ledger.neighbours, ledger.unit, title, digest)


def test_a_new_ledger(path, ledger):
    again = Ledger.open(path)
    for one in (ledger, again):
        assert one.budget == ZCDP(1)
        assert (one.definition, one.neighbours, one.unit) == ("zcdp", "replace", "household")
        assert (one.spent, one.remaining, one.spent_delta, one.remaining_delta) == (0, 1, 0, 0)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path], "no log or draft stays behind"


@pytest.mark.parametrize(
    ("budget", "options", "meant"),
    [
        ("1/3", {"definition": "pure"}, PureDP("1/3")),
        (0.1, {"definition": "zcdp"}, ZCDP("1/10")),
        (2, {"definition": "approx", "delta": "1e-9"}, ApproxDP(2, "1e-9")),
        (ApproxDP(2, "1e-9"), {}, ApproxDP(2, "1e-9")),
        (PureDP(2), {"definition": "pure"}, PureDP(2)),
    ],
)
def test_budgets_are_kept_exactly(path, budget, options, meant):
    Ledger.create(path, budget, **options)
    assert Ledger.open(path).budget == meant


@pytest.mark.parametrize(
    ("budget", "options"),
    [
        (1, {}),
        (1, {"definition": "renyi"}),
        (1, {"definition": "approx"}),
        (1, {"definition": "approx", "delta": 0}),
        (1, {"definition": "zcdp", "delta": "1e-6"}),
        (PureDP(1), {"definition": "zcdp"}),
        (0, {"definition": "zcdp"}),
        (float("nan"), {"definition": "zcdp"}),
        (1, {"definition": "zcdp", "neighbours": "both"}),
        (1, {"definition": "zcdp", "unit": " "}),
    ],
)
def test_bad_caps_leave_no_file(path, budget, options):
    with pytest.raises(InvalidArgument):
        Ledger.create(path, budget, **options)
    assert not list(path.parent.iterdir())


def test_ten_tenths_fill_a_budget_of_one_exactly(path):
    ledger = Ledger.create(path, 1, definition="pure")
    for i in range(10):
        spend(ledger, PureDP(0.1))
        assert ledger.spent == Fraction(i + 1, 10)
    assert ledger.remaining == 0
    with pytest.raises(BudgetRefused) as refusal:
        spend(ledger, PureDP("1e-30"))
    assert refusal.value.exit_code == 3
    assert "0 of 1 is left" in str(refusal.value)
    assert len(ledger.charges()) == 10, "a refusal leaves no entry"


@settings(max_examples=12)
@given(st.lists(st.fractions("1/1000", 1), min_size=1, max_size=6), st.fractions("1/2", 2))
def test_the_sum_never_exceeds_the_cap(tmp_path_factory, losses, cap):
    ledger, total = Ledger.create(tmp_path_factory.mktemp("l") / "l.db", cap, definition="zcdp"), Fraction(0)
    for loss in losses:
        if total + loss <= cap:
            spend(ledger, ZCDP(loss))
            total += loss
        else:
            with pytest.raises(BudgetRefused):
                spend(ledger, ZCDP(loss))
        assert (ledger.spent, ledger.remaining) == (total, cap - total)


def test_epsilon_and_delta_are_both_capped(path):
    ledger = Ledger.create(path, 1, definition="approx", delta="1e-6")
    spend(ledger, ApproxDP("1/10", "9e-7"))
    with pytest.raises(BudgetRefused, match="delta"):
        spend(ledger, ApproxDP("1/10", "2e-7"))
    spend(ledger, ApproxDP("9/10", "1e-7"))
    assert (ledger.remaining, ledger.remaining_delta) == (0, 0)
    with pytest.raises(BudgetRefused, match="epsilon"):
        spend(ledger, ApproxDP("1/10", "1e-20"))


@pytest.mark.parametrize(
    ("loss", "neighbours", "unit", "word"),
    [
        (PureDP("1/10"), "replace", "household", "definition"),
        (ZCDP("1/10"), "add-remove", "household", "neighbours"),
        (ZCDP("1/10"), "replace", "person", "unit"),
    ],
)
def test_a_release_of_another_kind_is_refused(ledger, loss, neighbours, unit, word):
    with pytest.raises(BudgetRefused, match=word) as refusal:
        ledger.charge(loss, neighbours, unit, "tables", DIGEST)
    assert refusal.value.exit_code == 3
    assert ledger.spent == 0


@pytest.mark.parametrize("digest", [b"", b"short", "0" * 32, bytes(33), None])
def test_a_digest_has_32_bytes(ledger, digest):
    with pytest.raises(InvalidArgument):
        spend(ledger, ZCDP("1/10"), digest=digest)


def test_a_charge_is_found_again_by_its_digest(path, ledger):
    first = spend(ledger, ZCDP("1/10"), "first")
    other = spend(ledger, ZCDP("1/10"), "other", digest=bytes(32))
    again = spend(ledger, ZCDP("1/10"), "again")
    reopened = Ledger.open(path)
    assert [c.release_id for c in reopened.find(DIGEST)] == [first.release_id, again.release_id]
    assert reopened.find(bytes(32)) == [other]
    assert reopened.find(b"\1" * 32) == []
    assert reopened.charges() == [first, other, again]
    assert (first.loss, first.title, first.sequence, first.state) == (ZCDP("1/10"), "first", 1, "charged")
    assert re.fullmatch(r"[0-9a-f]{32}", first.release_id)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", first.time)


def test_ids_cannot_be_guessed_from_the_digest(tmp_path):
    """Same digest, different ledgers or charges: different ids; the digest itself is not kept."""
    ledgers = [Ledger.create(tmp_path / name, 1, definition="zcdp") for name in ("a", "b")]
    ids = {spend(ledger, ZCDP("1/10")).release_id for ledger in ledgers for _ in range(3)}
    assert len(ids) == 6
    assert DIGEST not in (tmp_path / "a").read_bytes()
    assert DIGEST.hex().encode() not in (tmp_path / "a").read_bytes()


def test_settling(path, ledger):
    one, two = spend(ledger, ZCDP("1/10")), spend(ledger, ZCDP("1/10"))
    ledger.settle(one.release_id, "published")
    ledger.settle(two.release_id, "void")
    ledger.settle(two.release_id, "void")
    reopened = Ledger.open(path)
    assert [c.state for c in reopened.charges()] == ["published", "void"]
    assert [reopened.state(c.release_id) for c in (one, two)] == ["published", "void"]
    assert [c.state for c in reopened.find(DIGEST)] == ["published", "void"]
    assert reopened.spent == Fraction(1, 5), "a void release keeps what it spent"
    assert [e["kind"] for e in reopened.entries()] == ["created", "charge", "charge", "published", "void"]
    with pytest.raises(LedgerError, match="published"):
        ledger.settle(one.release_id, "void")
    with pytest.raises(InvalidArgument):
        ledger.settle(one.release_id, "charged")
    for call in (lambda: ledger.settle("0" * 32, "void"), lambda: ledger.state("0" * 32)):
        with pytest.raises(LedgerError, match="no release"):
            call()


def test_the_export_is_readable_and_keeps_the_key(path, ledger):
    charge = spend(ledger, ZCDP("1/10"), "Ünïcode | tables")
    other = spend(ledger, ZCDP("1/10"), "another")
    export = json.loads(ledger.export_json())
    assert export["budget"] == {"rho": "1"}
    assert export["spent"] == {"rho": "1/5"}
    assert export["head"] == ledger.head == export["entries"][-1]["hash"]
    assert [e["previous"] for e in export["entries"][1:]] == [e["hash"] for e in export["entries"][:-1]]
    assert export["entries"][1]["title"] == "Ünïcode | tables"
    part = json.loads(ledger.export_json(charge.release_id))
    assert {e["release_id"] for e in part["entries"]} == {charge.release_id} != {other.release_id}
    import sqlite3

    (key,) = sqlite3.connect(path).execute("SELECT key FROM secret").fetchone()
    assert len(key) == 32
    assert key.hex() not in ledger.export_json()


def test_two_objects_see_each_other(path, ledger):
    other = Ledger.open(path)
    spend(ledger, ZCDP("9/10"))
    assert other.remaining == Fraction(1, 10)
    with pytest.raises(BudgetRefused):
        spend(other, ZCDP("2/10"))
    spend(other, ZCDP("1/10"))
    assert ledger.remaining == 0
    assert ledger.head == other.head


def test_a_ledger_is_created_once(path, ledger):
    spend(ledger, ZCDP("1/10"))
    with pytest.raises(LedgerError, match="exists"):
        Ledger.create(path, 5, definition="zcdp")
    assert Ledger.open(path).remaining == Fraction(9, 10)


def test_charging_draws_nothing_from_a_seeded_source(ledger):
    """Ids and nonces are the system's, whatever source the noise comes from."""
    source = Insecure(1)
    expected = noise.discrete_laplace(5, scale=100, source=Insecure(1)).tolist()
    spend(ledger, ZCDP("1/10"))
    assert noise.discrete_laplace(5, scale=100, source=source).tolist() == expected
