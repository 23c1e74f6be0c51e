"""``tabulae ledger show`` says what was stated exactly, and only where something was."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tabulae.cli import app
from tabulae.domain import Domain, Table
from tabulae.domain.row_space import describe_row_space
from tabulae.privacy import ZCDP, Disclosure, Ledger


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "l.db", 1, "zcdp", neighbours="replace-within-invariants")


def shown(ledger: Ledger, *options: str) -> str:
    result = CliRunner().invoke(app, ["ledger", "show", str(ledger.path), *options])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_exact_counts_are_shown_with_their_reason(ledger: Ledger) -> None:
    assert "Stated exactly" not in shown(ledger)
    domain = Domain({"sex": ["F", "M"], "age": range(3)})
    tables = [Table("all", {}), Table("by sex", {"sex": domain.resolve("sex").operator})]
    told = [Disclosure(t.name, "law [4] of 1900", describe_row_space(t, domain)) for t in tables]
    ledger.charge(ZCDP("1/10"), ledger.neighbours, "person", "a [red] title", bytes(32), told)
    text = shown(ledger)
    assert "replace-within-invariants one person" in text
    assert "Stated exactly, outside the promise" in text
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if "law" in line]
    assert rows == [["1", "all", "all records", "law [4] of 1900"], ["1", "by sex", "sex", "law [4] of 1900"]]
    assert "replaced such that none of these counts changes" in " ".join(text.split())
    assert "[red]" in text, "what was written is not taken for a style"
    document = json.loads(shown(ledger, "--json"))
    assert [entry["rows"] for entry in document["entries"] if entry["kind"] == "disclosure"] == [
        one.rows for one in told
    ]
