"""The terminal: progress only where somebody watches, tables that fit, completion, and messages that name the cure."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import pytest
import shellingham
from rich.table import Table
from tests.cli.schemas import fits
from tests.cli.test_cli import RUNNER, _call

import tabulae as tb
from tabulae.cli import app, main
from tabulae.cli.output import new_table, open_console, print_table

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_PLAIN = {
    k: v for k, v in os.environ.items() if k not in ("FORCE_COLOR", "CLICOLOR_FORCE", "NO_COLOR", "COLUMNS")
}


def _at_a_terminal(folder: Path, *arguments: object, columns: int = 100, **more: str) -> tuple[int, str]:
    """Exit code and everything that a command writes to a terminal of so many columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    with subprocess.Popen(
        [sys.executable, "-m", "tabulae.cli", *map(str, arguments)],
        cwd=folder,
        env={**_PLAIN, "TERM": "xterm-256color", **more},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    ) as command:
        os.close(theirs)
        seen = b"".join(_parts(ours))
    os.close(ours)
    return command.returncode, seen.decode()


def _parts(stream: int) -> Iterator[bytes]:
    """What comes from a terminal until nobody writes to it any more."""
    with suppress(OSError):  # Linux says so with an error
        while part := os.read(stream, 65536):
            yield part


@pytest.fixture
def quick(village: Path) -> Path:
    """The village, planned by one quick method."""
    village.write_text(village.read_text() + '\n[method]\nselect = "union"\n')
    return village


# progress ---------------------------------------------------------------------------------------------


def test_progress_is_shown_at_a_terminal_and_a_narrow_one_cuts_no_number(quick: Path) -> None:
    rows = json.loads(_call("plan", quick, "--json").stdout)["tables"]
    code, seen = _at_a_terminal(quick.parent, "plan", "spec.toml", columns=60, NO_COLOR="1")
    assert code == 0
    assert "choosing the strategy" in seen
    assert re.search(r"0:00:\d\d", seen)  # how long the step has taken
    assert not re.search(r"\x1b\[(3|4|9)\d", seen)  # no colour
    shown = _ESCAPE.sub("", seen[seen.rindex("Promise") :])
    assert "choosing" not in shown  # the line is taken away again
    for row in rows:
        assert f"{row['rmse']:.2f}" in shown
        assert f"{row['margin']:.2f}" in shown


_STEPS = """
from tabulae.cli.output import progress
from tabulae.release.progress import Progress
with progress() as say:
    say(Progress('a step', 0.5, 7.0))
print('done')
"""


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({}, id="plain", marks=pytest.mark.long),
        pytest.param({"FORCE_COLOR": "1"}, id="as in a notebook"),
    ],
)
def test_nothing_but_the_result_is_written_to_a_pipe(more: dict[str, str]) -> None:
    command = [sys.executable, "-c", _STEPS]
    done = subprocess.run(command, env={**_PLAIN, **more}, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("done\n", "")


# width ------------------------------------------------------------------------------------------------

_NUMBERS = [("ab" * 20, "1,234,567.8", "-12.50", "1,000.0 to 2,000.0"), ("c", "3", "0.01", "exact")]


def _printed(width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    table = Table(title="numbers")
    table.add_column("name")
    for heading in ("estimate", "error", "interval"):
        table.add_column(heading, justify="right", overflow="fold")
    for row in _NUMBERS:
        table.add_row(*row)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    print_table(open_console(), table)
    return capsys.readouterr().out


@pytest.mark.parametrize("width", [20, 30, 40, 50, 60, 70, 80, 100])
def test_no_number_is_cut_at_any_width(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = _ESCAPE.sub("", _printed(width, monkeypatch, capsys))
    for row in _NUMBERS:
        for cell in row[1:]:
            assert cell in shown
    boxed = "┃" in shown
    assert boxed == (width >= 70)
    if boxed:
        assert max(map(len, shown.splitlines())) <= width


def test_a_name_is_whole_in_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    name = "resident_population_by_sex_and_age_in_completed_years"
    table = new_table("table", "of", *"abcdef", words=("table", "of"))
    table.add_row(name, "all that live here " * 3, *["1,234,567.89"] * 6)
    print_table(open_console(), table)
    lines = capsys.readouterr().out.splitlines()
    assert any(name in line and "1,234,567.89" in line for line in lines)
    assert len({len(line) for line in lines}) == 1  # a box, and not row by row
    assert sum("live" in line for line in lines) > 1  # words may stand below each other, unbroken


def test_labels_are_printed_as_they_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = Table()
    table.add_column("label")
    table.add_row("[bold]x[/bold] [/y] :smile:")
    print_table(open_console(), table)
    assert "[bold]x[/bold] [/y] :smile:" in capsys.readouterr().out


@pytest.mark.long
def test_a_ledger_in_a_narrow_terminal(village: Path) -> None:
    code, seen = _at_a_terminal(village.parent, "ledger", "show", "ledger.db", columns=40, NO_COLOR="1")
    assert code == 0
    head = json.loads(tb.Ledger.open(village.parent / "ledger.db").export_json())["head"]
    assert f"head {head}" in seen


# completion -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        pytest.param("tabulae pl", {"plan"}, marks=pytest.mark.long),
        pytest.param("tabulae ledger ", {"init", "show"}, marks=pytest.mark.long),
        ("tabulae plan spec.toml --j", {"--json"}),
        pytest.param("tabulae convert release --to s", {"sdmx-csv"}, marks=pytest.mark.long),
        ("tabulae ledger init l.db --definition ", {"pure", "approx", "zcdp"}),
    ],
)
def test_completion(line: str, offered: set[str], tmp_path: Path) -> None:
    words = line.split(" ")
    told = {"_TABULAE_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    code = "from tabulae.cli import main; main([])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**_PLAIN, **told},
        capture_output=True,
        text=True,
        check=False,
    )
    assert set(done.stdout.split()) == offered, done.stderr


@pytest.mark.parametrize(
    ("shell", "words"),
    [("bash", "complete -o default"), ("zsh", "#compdef tabulae"), ("fish", "complete --command tabulae")],
)
def test_the_script_of_a_shell_is_shown(shell: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its name, and by finding it."""
    monkeypatch.setattr(shellingham, "detect_shell", lambda: (shell, f"/bin/{shell}"))
    for told in (
        {"args": ["--show-completion"]},
        {"args": [], "env": {"_TABULAE_COMPLETE": f"source_{shell}"}},
    ):
        shown = RUNNER.invoke(app, prog_name="tabulae", **told)
        assert shown.exit_code == 0
        assert words in shown.stdout
        assert "_TABULAE_COMPLETE" in shown.stdout


@pytest.mark.parametrize("option", ["--show-completion", "--install-completion"])
def test_without_a_shell_completion_says_how_to_name_one(
    option: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails() -> NoReturn:
        raise shellingham.ShellDetectionFailure

    monkeypatch.setattr(shellingham, "detect_shell", fails)
    with pytest.raises(SystemExit) as ended:
        main([option])
    assert ended.value.code == 1
    assert "_TABULAE_COMPLETE=source_bash tabulae" in capsys.readouterr().err


# messages ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one of everything that is not what was asked for, and a release and its spec besides."""
    from tests.village import SPEC

    folder = tmp_path_factory.mktemp("places")
    (folder / "spec.toml").write_text(SPEC + '\n[method]\nselect = "union"\n')
    (folder / "people.csv").write_text("SEX,AGE,RACE\n" + "F,3,a\nM,4,b\n" * 50)
    tb.Ledger.create(folder / "ledger.db", 1, "zcdp")
    tb.run(folder / "spec.toml", folder / "release")
    (folder / "empty").touch()
    (folder / "folder").mkdir()
    (folder / "text.txt").write_text("hello\n")
    (folder / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    for name, descriptor in (("bare", {"tabulae": {}}), ("list", []), ("number", 3)):
        shutil.copytree(folder / "release", folder / name)
        (folder / name / "datapackage.json").write_text(json.dumps(descriptor))
    newer = shutil.copytree(folder / "release", folder / "newer")
    told = json.loads((newer / "datapackage.json").read_text())
    told["tabulae"]["version"] = "99.0.0"
    (newer / "datapackage.json").write_text(json.dumps(told))
    (newer / "spec.toml").write_text((newer / "spec.toml").read_text() + "\n[warp]\nspeed = 9\n")
    return folder


_COUNT = "SELECT COUNT(*) FROM t"
_MESSAGES = [  # what is called, then what the message names: the thing, and what to do about it
    ("plan absent.toml", "absent.toml", "check the path"),
    ("plan folder", "folder", "name the document in it"),
    ("plan empty", "add a [[table]]", "budget = "),
    ("plan bytes.toml", "UTF-8", "save it so"),
    ("plan text.txt", "text.txt", "is not TOML"),
    ("plan spec.toml --save no/such/plan.json", "no/such/plan.json", "make it first"),
    ("plan spec.toml --html no/such/plan.html", "no/such", "make it first"),
    ("check absent", "absent", "check the path"),
    ("check folder", "datapackage.json", "not a complete release"),
    ("run spec.toml --out release", "release exists", "name another folder"),
    ("run spec.toml --out no/such", "no does not exist", "make it first"),
    ("run spec.toml --out new --plan absent.json", "absent.json", "tabulae plan --save"),
    ("run spec.toml --out new --plan text.txt", "text.txt", "tabulae plan --save"),
    ("run spec.toml --out new --plan folder", "folder", "tabulae plan --save"),
    ("run spec.toml --out new --source absent.csv", "absent.csv", "check"),
    ("run spec.toml --out new --source folder", "folder", "must be one file"),
    ("run spec.toml --out new --resume", "new", "run without --resume"),
    ("report absent", "absent", "tabulae run --out"),
    ("report spec.toml", "spec.toml", "tabulae run --out"),
    ("query bare QUERY", "bare", "copy it again"),
    ("query list QUERY", "list", "copy it again"),
    ("query number QUERY", "number", "copy it again"),
    ("query newer QUERY", "made by tabulae 99.0.0", "read it with that version"),
    ("convert release --to pdf", "'pdf'", "sdmx-csv"),
    ("convert release --to csv --out folder", "folder exists", "--out"),
    ("init absent.csv --out new.toml", "absent.csv", "check the path"),
    ("init folder --out new.toml", "folder", "name a file in it"),
    ("init text.txt --out new.toml", "text.txt", ".csv, .parquet or .duckdb"),
    ("init people.csv --out spec.toml", "spec.toml exists", "--out"),
    ("ledger show absent.db", "absent.db", "tabulae ledger init absent.db"),
    ("ledger show folder", "folder", "name the ledger's file in it"),
    ("ledger show text.txt", "text.txt", "check the path"),
    ("ledger init ledger.db --budget 1 --definition zcdp", "ledger.db exists", "choose another path"),
    ("ledger init no/l.db --budget 1 --definition zcdp", "no", "name a folder that exists"),
    ("ledger init l.db --budget 1 --definition foo", "'foo'", '"zcdp"'),
    ("ledger init l.db --budget 0 --definition zcdp", "rho is 0", "must be positive"),
    ("demo --out folder", "folder exists", "--out"),
    ("demo --people 5 --out text.txt/x", "text.txt", "name a folder"),
    ("detailed check folder folder", "config.json", "there is no such file in folder"),
    ("audit absent.toml", "absent.toml", "check the path"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "thing", "cure"), _MESSAGES, ids=[line for line, *_ in _MESSAGES])
def test_messages_say_what_where_and_what_to_do(
    line: str, thing: str, cure: str, places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(places)
    before = sorted(path.relative_to(places) for path in places.rglob("*"))
    arguments = [_COUNT if word == "QUERY" else word for word in line.split()]
    done = _call(*arguments)
    assert done.exit_code == 1, done.output
    assert done.exception is None or isinstance(done.exception, SystemExit)
    assert done.stdout == ""
    assert thing in done.stderr
    assert cure in done.stderr
    told = _call(*arguments, "--json")
    fits("error", json.loads(told.stdout))
    assert thing in json.loads(told.stdout)["error"]
    assert sorted(path.relative_to(places) for path in places.rglob("*")) == before  # nothing half-written
    assert tb.Ledger.open("ledger.db").spent == tb.ZCDP("1/2").amount


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")
def test_what_may_not_be_read_or_written(places: Path, tmp_path: Path) -> None:
    spec = tmp_path / "spec.toml"
    spec.write_text((places / "spec.toml").read_text())
    spec.chmod(0)
    done = _call("plan", spec)
    assert done.exit_code == 1
    assert "Permission denied" in done.stderr
