"""A release from a PostgreSQL server by the command line: planned without it, and published without its place."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyarrow import csv
from tests.engines.conftest import on_server
from tests.engines.server import Server
from typer.testing import CliRunner, Result

import tabulae as tb
from tabulae.cli import app
from tabulae.errors import InvalidArgument
from tabulae.products.product import records_of, rules_of
from tabulae.products.tables.count import tabulate
from tabulae.spec import read_spec

RUNNER = CliRunner()
NOWHERE = "postgresql://clerk@vault.invalid:1/registry"


def call(*arguments: object) -> Result:
    return RUNNER.invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def served(postgresql: Server, village: Path) -> tuple[Path, str]:
    """A spec whose records are on a server that does not answer, and the url of one that has them."""
    table = f"village_{village.parent.name}"
    on_server(postgresql, table, csv.read_csv(village.parent / "people.csv"))
    (village.parent / "people.csv").unlink()
    text = village.read_text().replace('path = "people.csv"', f'url = "{NOWHERE}"\ntable = "{table}"')
    village.write_text(text)
    return village, postgresql.url()


def test_plan_run_and_check(served: tuple[Path, str]) -> None:
    spec, url = served
    out = spec.parent / "release"
    for command in (("check",), ("plan",), ("plan", "--save", spec.parent / "plan.json")):
        result = call(command[0], spec, *command[1:])
        assert result.exit_code == 0, result.output
    refused = call("run", spec, "--out", out)
    assert refused.exit_code == 1
    assert "check host and port in [source] url" in refused.stderr
    assert "vault" not in refused.output
    assert [entry["kind"] for entry in tb.Ledger.open(spec.parent / "ledger.db").entries()] == ["created"]
    result = call("run", spec, "--out", out, "--source", url, "--plan", spec.parent / "plan.json")
    assert result.exit_code == 0, result.output
    assert "every number follows" in call("check", out).stdout
    published = b"".join(path.read_bytes() for path in out.rglob("*") if path.is_file())
    assert b"vault" not in published
    assert b"/tmp/tabulae-pg-" not in published
    assert 'kind = "postgresql"' in (out / "spec.toml").read_text()
    assert read_spec(out / "spec.toml").digest() == read_spec(spec).digest()


def test_a_file_in_place_of_the_server(served: tuple[Path, str]) -> None:
    spec, url = served
    made = read_spec(spec)
    (spec.parent / "few.csv").write_text("SEX,AGE,RACE\nF,1,a\n")
    for place, people in ((spec.parent / "few.csv", 1), (url, 400)):
        other = made.with_source(place)
        assert tabulate(records_of(other), other.domain, rules_of(other)).total == people


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("mysql://h/d", "does not begin with s3:// or postgresql://"),
        ("postgresql://me:SECRET@h/d", "holds a password"),
        ("people", "cannot tell what kind of file"),
    ],
)
def test_other_places(served: tuple[Path, str], place: str, words: str) -> None:
    result = call("run", served[0], "--out", served[0].parent / "release", "--source", place)
    assert result.exit_code == 1
    assert words in result.stderr
    assert "SECRET" not in result.output


def test_a_table_must_be_named(village: Path) -> None:
    with pytest.raises(InvalidArgument, match="no table"):
        read_spec(village).with_source("postgresql://h/d")


def test_a_draft_needs_a_server_that_answers(tmp_path: Path) -> None:
    result = call("init", "postgresql://h/d", "--out", tmp_path / "spec.toml")
    assert result.exit_code == 1
    assert "PostgreSQL d: there is no connection to the server" in result.stderr
    assert not (tmp_path / "spec.toml").exists()


def test_the_audit_invents_its_records_here(served: tuple[Path, str]) -> None:
    result = call("audit", served[0], "--seconds", 0.1)
    assert result.exit_code == 0, result.output
