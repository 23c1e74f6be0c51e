"""What --json prints is what the schemas in docs/schemas say, for every command: no key more, none less."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from jsonschema import Draft202012Validator
from tests.cli.schemas import NAMES, SCHEMAS, fits, schema, validator
from tests.cli.test_cli import _call
from tests.each import each
from tests.passages import changed
from tests.run.exact import ADULTS, TOTAL, hamlet, text
from tests.safetab.world import World, config

import tabulae as tb
from tabulae.cli import app

OF_COMMAND = {
    "audit": "audit",
    "changes": "changes",
    "check": "check",
    "convert": "convert",
    "demo": "demo",
    "detailed check": "detailed-check",
    "detailed run": "detailed-run",
    "init": "init",
    "ledger init": "ledger",
    "ledger show": "ledger",
    "plan": "plan",
    "query": "query",
    "report": "report",
    "run": "run",
}  # fmt: skip


def _told(name: str, *arguments: object, code: int = 0) -> Any:
    """The document that a command prints, which is all of stdout and fits its schema."""
    result = _call(*arguments, "--json")
    assert result.exit_code == code, result.output
    document = json.loads(result.stdout)
    fits(name, document)
    return document


def _objects(schema: object) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        if schema.get("type") in ("object", ["object", "null"]):
            yield schema
        for value in schema.values():
            yield from _objects(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _objects(value)


# the schemas themselves ------------------------------------------------------------------------------


@each("name", NAMES)
def test_a_schema_is_one_and_leaves_no_object_open(name: str) -> None:
    Draft202012Validator.check_schema(schema(name))
    assert schema(name)["title"]
    for part in _objects(schema(name)):
        assert "additionalProperties" in part, part


def test_every_command_has_a_schema_and_every_schema_a_command() -> None:
    found = set()

    def walk(group: Any, before: str) -> None:
        for name, command in group.commands.items():
            whole = f"{before} {name}".strip()
            if hasattr(command, "commands"):
                walk(command, whole)
            elif whole != "studio":  # it serves a page until it is interrupted: there is no result to print
                assert any("--json" in parameter.opts for parameter in command.params), whole
                found.add(whole)

    walk(typer.main.get_command(app), "")
    assert found == set(OF_COMMAND)
    assert set(OF_COMMAND.values()) | {"error", "parts"} == set(NAMES)


def test_the_page_names_every_schema() -> None:
    page = (SCHEMAS.parent / "terminal.md").read_text()
    for name in NAMES:
        assert f"(schemas/{name}.json)" in page


def test_a_schema_refuses_a_key_that_it_does_not_know() -> None:
    document = {"report": "release/report.html"}
    assert validator("report").is_valid(document)
    assert not validator("report").is_valid({**document, "new": 1})
    assert not validator("report").is_valid({})


@pytest.fixture
def hill(village: Path) -> Path:
    """The village, planned by one quick method."""
    village.write_text(village.read_text() + '\n[method]\nselect = "union"\n')
    return village


# every command ----------------------------------------------------------------------------------------


def test_tables(hill: Path) -> None:
    folder, out = hill.parent, hill.parent / "release"
    _told("check", "check", hill)
    _told("plan", "plan", hill, "--save", folder / "plan.json", "--html", folder / "plan.html")
    _told("ledger", "ledger", "show", folder / "ledger.db")
    _told("run", "run", hill, "--out", out)
    _told("check", "check", out)
    _told("report", "report", out)
    _told("query", "query", out, "SELECT sex, COUNT(*) FROM t WHERE age < 5 GROUP BY sex")
    _told("query", "query", out, "SELECT COUNT(*) FROM t")
    _told("ledger", "ledger", "show", folder / "ledger.db")
    for form in ("csv", "sdmx-csv", "json-stat", "xlsx"):
        _told("convert", "convert", out, "--to", form)
    (out / "report.html").write_text("altered")
    assert _told("check", "check", out, code=1)["faults"]


def test_tables_with_targets(hill: Path) -> None:
    text = hill.read_text().replace('budget = "1/2"', 'budget = "targets"')
    aimed = text.replace(
        'attributes = ["sex", "age"]', 'attributes = ["sex", "age"]\ntarget = { rmse = 3.0 }'
    )
    assert aimed != text
    hill.write_text(aimed.replace('"union"', '"identity"'))
    document = _told("plan", "plan", hill)
    assert document["promise"]["found_from_targets"]
    assert document["smallest"] is not None


def test_figures_and_series(hill: Path) -> None:
    """What else a spec may hold: derived figures, and a release that follows another."""
    folder, first, second = hill.parent, hill.parent / "release", hill.parent / "second"
    figure = "SELECT COUNT(*) FILTER (WHERE sex = 'F') / COUNT(*) FROM t"
    hill.write_text(hill.read_text() + f'\n[[derived]]\nname = "women"\nsql = "{figure}"\n')
    _told("plan", "plan", hill)
    _told("run", "run", hill, "--out", first)
    for sql in (figure, "SELECT sex, AVG(age) FROM t GROUP BY sex", "SELECT MEDIAN(age) FROM t"):
        _told("query", "query", first, sql)
    _told("convert", "convert", first, "--to", "csv")
    hill.write_text(hill.read_text() + '\n[series]\nfollows = "release"\nkind = "next"\n')
    _told("check", "check", hill)
    assert _told("plan", "plan", hill)["series"]["kind"] == "next"
    _told("run", "run", hill, "--out", second)
    assert len(_told("check", "check", second)["series"]) == 2
    assert _told("changes", "changes", first, second)["tables"]
    kinds = {entry["kind"] for entry in _told("ledger", "ledger", "show", folder / "ledger.db")["entries"]}
    assert "follows" in kinds


def test_a_figure_that_is_not_known_is_null() -> None:
    fits("query", [{"estimate": None, "std_error": None, "ci_low": None, "ci_high": None, "obs_status": "Q"}])
    assert not validator("query").is_valid([{"estimate": None}])


@pytest.mark.parametrize("definition", ["pure", "approx"])
def test_other_promises(village: Path, definition: str) -> None:
    promised = f'definition = "{definition}"' + ('\ndelta = "1e-9"' if definition == "approx" else "")
    text = village.read_text().replace('delta = "1e-10"\n', "").replace('definition = "zcdp"', promised)
    if definition == "pure":
        text += '\n[method]\nnoise = "laplace"\nselect = "workload"\n'
    village.write_text(text)
    told = _told("plan", "plan", village)
    assert told["promise"]["definition"] == definition
    arguments = ("--budget", "2", "--definition", definition)
    more = ("--delta", "1e-6") if definition == "approx" else ()
    _told("ledger", "ledger", "init", village.parent / "other.db", *arguments, *more)


@pytest.mark.parametrize("kind", ["guild", "duchy"])
def test_groups_and_areas(kind: str, request: pytest.FixtureRequest) -> None:
    spec = request.getfixturevalue(kind)
    out = spec.parent / "release"
    _told("check", "check", spec)
    _told("plan", "plan", spec)
    _told("run", "run", spec, "--out", out)
    _told("check", "check", out)
    _told("report", "report", out)


def test_exact_counts(tmp_path: Path) -> None:
    spec = hamlet(tmp_path, text(TOTAL, ADULTS).replace('"kron"', '"identity"'))
    assert _told("plan", "plan", spec)["exact"]["tables"]
    assert _told("run", "run", spec, "--out", tmp_path / "release")["exact"]
    ledger = tb.plan(spec).spec.ledger
    assert any(
        entry["kind"] == "disclosure" for entry in _told("ledger", "ledger", "show", ledger)["entries"]
    )


def test_detailed(tmp_path: Path) -> None:
    only = {key: 0 for key in config() if key.startswith("privacy_budget_p_level") and "county" not in key}
    params, data = World(config(**only)).write(tmp_path)
    _told("detailed-check", "detailed", "check", params, data)
    _told("ledger", "ledger", "init", tmp_path / "ledger.db", "--budget", 20, "--definition", "zcdp")
    _told(
        "detailed-run",
        "detailed",
        "run",
        params,
        data,
        "--out",
        tmp_path / "out",
        "--ledger",
        tmp_path / "ledger.db",
    )


@pytest.mark.long
def test_audit(hill: Path) -> None:
    _told("audit", "audit", hill, "--seconds", 0.2)


def test_init(village: Path) -> None:
    for more in ((), ("--peek",)):
        _told(
            "init",
            "init",
            village.parent / "people.csv",
            "--out",
            village.parent / f"new{len(more)}.toml",
            *more,
        )


# trouble -----------------------------------------------------------------------------------------------


def test_errors(hill: Path) -> None:
    folder = hill.parent
    assert str(folder / "absent.toml") in _told("error", "check", folder / "absent.toml", code=1)["error"]
    changed(hill, ('title = "Village"', 'titel = "Village"'))
    document = _told("error", "plan", hill, code=1)
    assert document["problems"][0]["path"].endswith("titel")
    _told("error", "query", folder, "SELECT COUNT(*) FROM t", code=1)
    _told("error", "ledger", "init", folder / "ledger.db", "--budget", "1", "--definition", "zcdp", code=1)


def test_a_refused_budget(hill: Path) -> None:
    for name in ("one", "two"):
        assert _call("run", hill, "--out", hill.parent / name).exit_code == 0
    document = _told("error", "run", hill, "--out", hill.parent / "three", code=3)
    assert document["exit_code"] == 3
