"""`tabulae audit` as its users meet it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.audit.specs import write_spec
from tests.cli.schemas import fits
from typer.testing import CliRunner, Result

from tabulae.audit import Audit, audit
from tabulae.cli import app, commands
from tabulae.strategy import strategy


@pytest.fixture
def audited_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is printed in two ways was found once."""
    kept: list[Audit] = []

    def once(*arguments: Any, **options: Any) -> Audit:
        kept.append(kept[0] if kept else audit(*arguments, **options))
        return kept[0]

    monkeypatch.setattr(commands, "make_audit", once)


def _call(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["audit", *map(str, arguments)])


@pytest.mark.usefixtures("audited_once")
def test_a_clean_audit(tmp_path: Path) -> None:
    spec = write_spec(tmp_path)
    result = _call(spec, "--seconds", "0.05", "--json")
    assert result.exit_code == 0, result.output
    shown = json.loads(result.stdout)
    fits("audit", shown)
    assert shown["passed"] is True
    assert shown["failed"] == []
    assert {check["name"] for check in shown["checks"]} >= {"noise", "law", "epsilon", "remove one"}
    words = _call(spec, "--seconds", "0.05").stdout
    for word in ("Promise", "rho 1/2", "allowed", "row-order", "epsilon"):
        assert word in words
    assert "NO" not in words
    assert sorted(path.name for path in tmp_path.iterdir()) == ["spec.toml"]


@pytest.mark.usefixtures("audited_once")
def test_a_failed_audit_names_its_checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = strategy.calibrate
    monkeypatch.setattr(strategy, "calibrate", lambda b, n, s: real(b, n, s / 4))
    result = _call(write_spec(tmp_path), "--seconds", "0.01")
    assert result.exit_code == 1
    assert "the audit failed: law" in result.stderr
    assert "NO" in result.stdout
    document = json.loads(_call(tmp_path / "spec.toml", "--seconds", "0.01", "--json").stdout)
    assert document["passed"] is False
    assert "law" in document["failed"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["absent.toml"], 1),
        ([], 2),
        (["spec.toml", "--seconds", "0"], 1),
        (["spec.toml", "--seconds", "x"], 2),
    ],
)
def test_bad_usage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int) -> None:
    write_spec(tmp_path)
    monkeypatch.chdir(tmp_path)
    result = _call(*arguments)
    assert result.exit_code == code
    assert "Traceback" not in result.output
