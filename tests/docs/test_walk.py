"""The commands of Getting started do what the page shows, from the first to the last."""

from __future__ import annotations

import shlex
from contextlib import chdir
from itertools import islice
from pathlib import Path

import pytest
from docs.walk import Command, Text, in_shell, masked, same_shape, steps, walk
from tests.site_pages import BUILT
from typer.testing import CliRunner

from tabulae.cli import app

PAGE = (Path(__file__).parents[2] / "docs/getting-started.md").read_text(encoding="utf-8")


def in_process(line: str, folder: Path, environment: dict[str, str]) -> tuple[int, str, str]:
    """As in a shell; commands of tabulae alone run here, where it is imported already."""
    if not line.startswith("tabulae ") or set("|<>;&") & set(line):
        return in_shell(line, folder, environment)
    with chdir(folder):
        words = shlex.split(line.replace("\\\n", ""))  # a line that goes on
        done = CliRunner().invoke(app, words[1:], env=environment)
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("commands", "made"),
    [
        pytest.param(4, "demo/release", marks=[] if BUILT else pytest.mark.long),
        pytest.param(None, "release", marks=pytest.mark.long),
    ],
)
def test_the_page_shows_what_its_commands_print(tmp_path: Path, commands: int | None, made: str) -> None:
    """The demo's release, asked and checked, where the site is built; and the whole page, which takes a minute."""
    for command, printed in islice(walk(PAGE, tmp_path, in_process), commands):
        assert same_shape(command.printed, printed), "\n".join([command.line, *printed])
    assert (tmp_path / made / "report.html").is_file()


def test_a_walk_goes_from_a_release_over_a_changed_table_to_a_question() -> None:
    lines = [step.line if isinstance(step, Command) else f"write {step.file}" for step in steps(PAGE)]
    wanted = [
        "tabulae demo",
        "write people.toml",
        "tabulae plan",
        "write people.toml",
        "tabulae plan",
        "tabulae run",
    ]
    rest = iter(lines)
    assert all(any(line.startswith(one) for line in rest) for one in [*wanted, "tabulae query"])


def test_files_are_written_and_added_to() -> None:
    page = '```toml title="a.toml"\nx = 1\n```\n\n```toml title="a.toml, added"\ny = 2\n```\n\n```toml\nz = 3\n```\n'
    assert list(steps(page)) == [Text("a.toml", "x = 1\n", False), Text("a.toml", "y = 2\n", True)]


def test_a_command_may_go_on_in_the_next_line() -> None:
    page = "```console\n$ echo a \\\n    b\na b\n$ true\n```\n"
    assert list(steps(page)) == [Command("echo a \\\n    b", ("a b",)), Command("true", ())]


def test_a_command_that_fails_ends_the_walk(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="ended with 3"):
        list(walk("```console\n$ exit 3\n```\n", tmp_path))


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        (("│ F   │ 5,216.9 │", "└─────┘"), ("│ F │ 12.5 │", "└──┘"), True),
        (("head 5e3349e8aff1bc22",), ("head 0123abcd99",), True),
        (("a", "...", "z"), ("a", "b", "c", "z"), True),
        (("a", "...", "z"), ("a", "b", "c"), False),
        (("RMSE 3.2",), ("rmse 3.2",), False),
        ((), ("more",), False),
        (("less",), (), False),
    ],
)
def test_shapes(shown: tuple[str, ...], printed: tuple[str, ...], same: bool) -> None:
    assert same_shape(shown, printed) is same


def test_masks_keep_words() -> None:
    assert masked("spent 1/8, remaining 7/8 of person-years") == "spent #/#, remaining #/# of person-years"
