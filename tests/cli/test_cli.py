"""The command line as its users meet it: results, exit codes, messages."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cli.schemas import fits
from tests.passages import changed
from tests.village import write_village
from typer.testing import CliRunner, Result

import tabulae as tb
from tabulae.cli import app

RUNNER = CliRunner()


def _call(*arguments: object) -> Result:
    return RUNNER.invoke(app, [str(a) for a in arguments])


def _json(result: Result) -> object:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def _fails(result: Result, code: int, *words: str) -> None:
    assert result.exit_code == code, (result.exit_code, result.output)
    assert "Traceback" not in result.output
    for word in words:
        assert word in result.stderr, (word, result.stderr)


# the whole path ------------------------------------------------------------------------------


def test_plan_run_check_query_report_ledger(village: Path) -> None:
    folder, out = village.parent, village.parent / "release"
    plan = _json(_call("plan", village, "--save", folder / "plan.json", "--json"))
    assert [t["table"] for t in plan["tables"]] == ["sex_by_age", "race_by_young", "ages", "some"]
    for row in plan["tables"]:
        assert row["bound"] <= row["rmse"] * (1 + 1e-9)
        assert row["margin"] > row["rmse"]
    summary = _json(_call("run", village, "--out", out, "--plan", folder / "plan.json", "--json"))
    assert summary["release"] == str(out)
    assert {t["table"]: t["rmse"] for t in summary["tables"]} == {
        t["table"]: t["rmse"] for t in plan["tables"]
    }
    assert "every number follows" in _call("check", out).stdout
    rows = _json(
        _call(
            "query",
            out,
            "SELECT sex, COUNT(*) FROM people WHERE age < 5 OR race = 'b' GROUP BY sex",
            "--json",
        )
    )
    stored = tb.Release.read(out).tables["some"].to_pylist()
    assert [r["estimate"] for r in rows] == pytest.approx([r["estimate"] for r in stored])
    assert _call("report", out).exit_code == 0
    shown = _json(_call("ledger", "show", folder / "ledger.db", "--json"))
    assert shown["spent"] == {"rho": "1/2"}


def test_words_for_people(village: Path) -> None:
    out = village.parent / "release"
    plan = _call("plan", village).stdout
    for word in (
        "RMSE",
        "95% margin",
        "identity",
        "workload",
        "bound",
        "no strategy beats",
        "rho 1/2",
        "epsilon",
    ):
        assert word in plan
    assert "Published" in _call("run", village, "--out", out).stdout
    assert "95% interval" in _call("query", out, "SELECT COUNT(*) FROM t").stdout
    assert "spent 1/2" in _call("ledger", "show", village.parent / "ledger.db").stdout
    assert "no mistakes" in _call("check", village).stdout


def test_planning_opens_no_data(village: Path) -> None:
    (village.parent / "people.csv").unlink()
    assert _call("plan", village).exit_code == 0


@pytest.mark.long
def test_demo_makes_a_release(tmp_path: Path) -> None:
    """In words it does so on the page of Getting started, which is followed in `docs/test_walk.py`."""
    summary = _json(_call("demo", "--out", tmp_path / "demo", "--people", 3000, "--json"))
    fits("demo", summary)
    release = tb.Release.read(summary["release"])
    assert release.verify() == []
    assert len(release.tables) >= 8


def test_demo_overwrites_nothing(tmp_path: Path) -> None:
    _fails(_call("demo", "--out", tmp_path), 1, "exists")
    assert not list(tmp_path.iterdir())


# published against true, over rehearsals ----------------------------------------------------


def test_published_errors_are_those_that_the_plan_states(village: Path) -> None:
    """Mean squared standardised error over 200 rehearsals is 1, and RMSE is the plan's; false alarm < 1e-6.

    The mean of 200 x 250 correlated squares has a standard error of about 1 % here; 6 % is over five of them.
    """
    from tabulae.products.tables.product import prepare, reconstruct

    made = tb.plan(village)
    prepared, wl = prepare(made), made.spec.workload
    truth = _true_tables(village, wl)
    errors = {name: [] for name in truth}
    for seed in range(200):
        estimate = reconstruct(made, prepared.measure(None, tb.noise.Insecure(seed)))
        for name, values in estimate.answer(wl).items():
            errors[name].append(values - truth[name])
    variance = estimate.variance(wl)
    standardised = np.concatenate([(np.array(e) ** 2 / variance[name]).ravel() for name, e in errors.items()])
    assert standardised.mean() == pytest.approx(1, abs=0.06)
    for row in made.table_errors:
        assert np.sqrt(np.mean(np.square(errors[row.table]))) == pytest.approx(row.rmse, rel=0.08)
    # the test has power: noise scaled by 0.9 or 1.1 would be noticed
    for factor in (0.9, 1.1):
        assert abs(factor**2 * standardised.mean() - 1) > 0.06


def _true_tables(spec: Path, workload: tb.Workload) -> dict[str, np.ndarray]:
    rows = [line.split(",") for line in (spec.parent / "people.csv").read_text().split()[1:]]
    x = np.zeros(workload.domain.shape)
    for sex, age, race in rows:
        x["FM".index(sex), int(age), "abc".index(race)] += 1
    return {t.name: t.operator(workload.domain) @ x.ravel() for t in workload.tables}


# bad input --------------------------------------------------------------------------------------


def test_a_spec_with_five_mistakes_reports_five(village: Path) -> None:
    text = village.read_text()
    text = text.replace('budget = "1/2"', 'budget = "0"').replace("range = [0, 19]", "range = [19, 0]")
    text = text.replace('attributes = ["race", "young"]', 'attributes = ["race", "yung"]')
    text = text.replace('title = "Village"', 'titel = "Village"')
    village.write_text(text.replace('name = "ages"', 'name = "sex_by_age"'))
    for command in (["check"], ["plan"], ["run", "--out", village.parent / "out"]):
        result = _call(command[0], village, *command[1:])
        _fails(result, 1, "privacy.budget", "titel", "yung", "age", "sex_by_age")
        assert len(re.findall(r"\(line \d+\)", result.stderr)) >= 5


@pytest.mark.parametrize("budget", ["0", "-1", "nan", "inf", "1e30", "abc", "1/0"])
def test_impossible_budgets(village: Path, budget: str) -> None:
    changed(village, ('budget = "1/2"', f'budget = "{budget}"'))
    _fails(_call("run", village, "--out", village.parent / "out"), 1, "privacy.budget")
    _fails(_call("ledger", "init", village.parent / "new.db", "--budget", budget, "--definition", "zcdp"), 1)
    assert not (village.parent / "new.db").exists()


def _edit_people(village: Path, edit: str) -> None:
    path = village.parent / "people.csv"
    text = path.read_text()
    if edit == "missing column":
        text = text.replace("RACE", "ETHNIC", 1)
    elif edit == "unknown category":
        text += "F,3,SECRET-7781\n"
    elif edit == "null":
        text += "F,,a\n"
    elif edit == "empty":
        text = ""
    elif edit == "header only":
        text = "SEX,AGE,RACE\n"
    elif edit == "delimiter":
        text = text.replace(",", ";")
    elif edit == "ragged":
        text += "F,3\n"
    path.write_text(text)


@pytest.mark.parametrize(
    ("edit", "word"),
    [
        ("missing column", "RACE"),
        ("unknown category", "RACE"),
        ("null", "AGE"),
        ("empty", "people.csv"),
        ("header only", "no records"),
        ("delimiter", "semicolons"),
        ("ragged", "people.csv"),
    ],
)
def test_records_that_do_not_fit(village: Path, edit: str, word: str) -> None:
    _edit_people(village, edit)
    out = village.parent / "out"
    result = _call("run", village, "--out", out)
    _fails(result, 1, word)
    assert "SECRET-7781" not in result.output
    assert not out.exists()
    assert tb.Ledger.open(village.parent / "ledger.db").spent == 0
    if edit == "unknown category":
        shown = _call("run", village, "--out", out, "--show-confidential")
        assert "SECRET-7781" in shown.stderr
        assert "SECRET-7781" not in shown.stdout


def test_the_same_release_from_every_source(village: Path) -> None:
    import duckdb

    folder = village.parent
    rows = [line.split(",") for line in (folder / "people.csv").read_text().split()[1:]]
    sex, age, race = zip(*rows, strict=True)
    table = pa.table({"SEX": sex, "AGE": [int(a) for a in age], "RACE": pa.array(race).dictionary_encode()})
    pq.write_table(table, folder / "people.parquet")
    with duckdb.connect(str(folder / "people.duckdb")) as connection:
        connection.execute("CREATE TABLE persons AS SELECT * FROM read_csv(?)", [str(folder / "people.csv")])
    from tabulae.products.tables.plan import Plan
    from tabulae.products.tables.product import prepare

    made = tb.plan(village)
    digests = {prepare(made)._counts.fingerprint()}
    for name, kind in (("people.parquet", None), ("people.duckdb", "persons")):
        spec = made.spec.with_source(folder / name, kind)
        digests.add(prepare(Plan(spec, made.strategy))._counts.fingerprint())
    assert len(digests) == 1


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["run"], 2),
        (["plan", "--colour"], 2),
        (["frobnicate"], 2),
        (["plan", "absent.toml"], 1),
        (["check", "absent"], 1),
        (["query", "absent", "SELECT COUNT(*) FROM t"], 1),
        (["report", "absent"], 1),
        (["ledger", "show", "absent.db"], 1),
    ],
)
def test_usage_and_absent_files(arguments: list[str], code: int) -> None:
    result = _call(*arguments)
    assert result.exit_code == code
    assert "Traceback" not in result.output


def test_ledgers(village: Path) -> None:
    folder, out = village.parent, village.parent / "out"
    text = village.read_text()
    ledger = folder / "ledger.db"
    _fails(_call("ledger", "init", ledger, "--budget", "1", "--definition", "zcdp"), 1, "ledger.db")
    other = folder / "other.db"
    assert _call("ledger", "init", other, "--budget", "1", "--definition", "pure").exit_code == 0
    village.write_text(text.replace("ledger.db", "other.db"))
    _fails(_call("run", village, "--out", out), 3, "definition")
    village.write_text(text.replace("ledger.db", "absent.db"))
    _fails(_call("run", village, "--out", out), 1, "absent.db")
    village.write_text(text)
    for name in ("one", "two"):
        assert _call("run", village, "--out", folder / name).exit_code == 0
    _fails(_call("run", village, "--out", folder / "three"), 3, "0 of 1 is left")
    assert not (folder / "three").exists()
    content = bytearray(ledger.read_bytes())
    at = content.find(b"Village")
    content[at : at + 7] = b"Pillage"
    ledger.write_bytes(content)
    _fails(_call("ledger", "show", ledger), 1, "ledger.db")


def test_an_existing_or_unwritable_place(village: Path) -> None:
    (village.parent / "out").mkdir()
    _fails(_call("run", village, "--out", village.parent / "out"), 1, "exists")
    _fails(_call("run", village, "--out", village.parent / "no" / "such" / "place"), 1, "does not exist")
    assert tb.Ledger.open(village.parent / "ledger.db").spent == 0


def test_a_domain_too_large_for_a_vector(village: Path) -> None:
    """10^12 cells: identity needs a number for each, and says so before anything is spent; auto does not."""
    text = village.read_text()
    wide = "".join(f'x{i} = {{ column = "AGE", range = [0, 99] }}\n' for i in range(5))
    text = text.replace("[recodes]", wide + "[recodes]")
    village.write_text(text + '\n[method]\nselect = "identity"\n')
    _fails(_call("plan", village), 1, "cell", 'select = "auto"')
    _fails(_call("run", village, "--out", village.parent / "out"), 1, "cell")
    village.write_text(text)
    assert _call("run", village, "--out", village.parent / "out").exit_code == 0


def test_too_many_published_rows(village: Path) -> None:
    village.write_text(village.read_text() + "\n[release]\nmax_rows = 100\n")
    _fails(_call("plan", village), 1, "100", "ages")


@pytest.fixture(scope="module")
def as_asked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release that measures its tables as they stand, and not all that its domain could answer; only to be asked."""
    spec = write_village(tmp_path_factory.mktemp("asked"))
    spec.write_text(spec.read_text() + '\n[method]\nselect = "workload"\n')
    return tb.run(spec, spec.parent / "release").path


@pytest.mark.parametrize(
    ("sql", "word"),
    [
        ("SELECT MAX(age) FROM t", "MAX"),
        ("SELECT COUNT(*) FROM t WHERE agee < 5", "age"),
        ("SELECT COUNT(*) FROM t WHERE race = 'bb'", "bb"),
        ("SELECT COUNT(*) FROM t WHERE age < (SELECT 3)", "SELECT 3"),
        ("SELEC COUNT(*)", "SELEC"),
        ("SELECT age, race, COUNT(*) FROM t GROUP BY age, race", "detail asked for: age, race"),
    ],
)
def test_queries_that_cannot_be_answered(as_asked: Path, sql: str, word: str) -> None:
    _fails(_call("query", as_asked, sql), 1, word)


def test_attributes_that_were_never_measured_together_are_named(village: Path) -> None:
    text = village.read_text()
    start = text.index('[[table]]\nname = "some"')
    village.write_text(text[:start] + '[method]\nselect = "union"\n')
    tb.run(village, village.parent / "release")
    sql = "SELECT sex, race, COUNT(*) FROM t GROUP BY sex, race"
    _fails(_call("query", village.parent / "release", sql), 1, "Not measured together: sex with race")


def test_help_is_light() -> None:
    """The command line answers --help without numpy or any engine: that is what keeps it fast."""
    heavy = ("numpy", "scipy", "ibis", "matplotlib", "pyarrow")
    code = f"import sys, tabulae.cli; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    for command in ("", "plan", "run", "report", "check", "query", "ledger", "demo"):
        assert _call(*command.split(), "--help").exit_code == 0


def test_version() -> None:
    assert _call("--version").stdout.split() == ["tabulae", tb.__version__]


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "spec.toml", "--out", "file/x"),
        ("run", "spec.toml", "--out", "file/deeper/x"),
        ("plan", "spec.toml", "--save", "file/x"),
        ("plan", "spec.toml", "--html", "file/x"),
        ("init", "people.csv", "--out", "file/x"),
    ],
)
def test_a_file_is_no_folder_to_write_in(
    village: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.chdir(village.parent)
    Path("file").touch()
    _fails(_call(*arguments), 1, "cannot be written: file is a file and not a folder; name another place")
    assert tb.Ledger.open("ledger.db").spent == 0


def test_a_table_that_is_not_there(village: Path) -> None:
    out = village.parent / "release"
    assert _call("run", village, "--out", out).exit_code == 0
    tables = tb.Release.read(out).tables
    with pytest.raises(KeyError) as caught:
        tables["sexbyage"]
    assert isinstance(caught.value, tb.TabulaeError)
    assert str(caught.value) == f"{out} has no table 'sexbyage'; did you mean \"sex_by_age\"?"
    assert tables.get("nope") is None
    with pytest.raises(KeyError, match='known here: "sex_by_age", "race_by_young", "ages", "some"'):
        tables["nope"]
