"""A page's commands, run in order in a folder of their own: for the test of the page, and to refresh what it shows.

A ``console`` block holds commands behind ``$ `` and what they print. A block with a title writes its text to the file
of that name; a title that ends in ``, added`` puts it at the end of that file. ``...`` stands for lines left out.

``python docs/walk.py PAGE`` runs a page and writes into it what its commands print now.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"^```(?P<head>[^\n`]*)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE)
_TITLE = re.compile(r'title="(?P<file>[^",]+)(?P<added>, added)?"')
_LEFT_OUT = "..."
_WIDTH = "88"


@dataclass(frozen=True)
class Command:
    """One command of a console block, with what the page says it prints."""

    line: str
    printed: tuple[str, ...]


@dataclass(frozen=True)
class Text:
    """A file that the reader writes, or a part added to it."""

    file: str
    body: str
    added: bool


def steps(page: str) -> Iterator[Command | Text]:
    """What a reader does, from top to bottom."""
    for fence in _FENCE.finditer(page):
        title = _TITLE.search(fence["head"])
        if fence["head"].startswith("console"):
            yield from _commands(fence["body"])
        elif title is not None:
            yield Text(title["file"], fence["body"], title["added"] is not None)


def _commands(body: str) -> Iterator[Command]:
    """The commands of one block; a line that ends in a backslash goes on in the next one."""
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        lines = part.rstrip("\n").split("\n")
        end = next(i for i, line in enumerate(lines) if not line.endswith("\\")) + 1
        yield Command("\n".join(lines[:end]), tuple(lines[end:]))


def in_shell(line: str, folder: Path, environment: dict[str, str]) -> tuple[int, str, str]:
    """The exit code of a command, and what it printed on both streams."""
    done = subprocess.run(
        ["bash", "-c", line], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


Run = Callable[[str, Path, dict[str, str]], tuple[int, str, str]]


def walk(page: str, folder: Path, run: Run = in_shell) -> Iterator[tuple[Command, tuple[str, ...]]]:
    """Each command with the lines that it prints in ``folder``.

    Raises:
        RuntimeError: A command failed.
    """
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": _WIDTH, "NO_COLOR": "1", "TERM": "dumb"}
    for step in steps(page):
        if isinstance(step, Text):
            with (folder / step.file).open("a" if step.added else "w", encoding="utf-8") as file:
                file.write(step.body)
            continue
        code, printed, said = run(step.line, folder, environment)
        if code:
            raise RuntimeError(f"$ {step.line}\nended with {code}: {said}")
        yield step, tuple(line.rstrip() for line in printed.rstrip("\n").split("\n") if printed)


def masked(line: str) -> str:
    """A line without what changes from run to run: numbers, identifiers, times, and the widths that follow them."""
    line = re.sub(r"\b(?=[0-9a-f]*\d)[0-9a-f]{8,}\b", "#", line)
    line = re.sub(r"[-−]?\d+(?:[.,:]\d+)*(?:e-?\d+)?", "#", line)
    line = re.sub(r"[─━═-]{2,}", "-", line)
    return re.sub(r"\s+", " ", line).strip()


def same_shape(shown: tuple[str, ...], printed: tuple[str, ...]) -> bool:
    """Whether a page shows what was printed, up to numbers; three dots stand for any lines."""
    pattern = r"\n".join("(?:.*)" if line == _LEFT_OUT else re.escape(masked(line)) for line in shown)
    return re.fullmatch(pattern, "\n".join(map(masked, printed)), re.DOTALL) is not None


def refreshed(page: str, folder: Path) -> str:
    """The page with what its commands print now; a block that leaves lines out keeps as many at its ends."""
    done = walk(page, folder)

    def block(fence: re.Match[str]) -> str:
        if not fence["head"].startswith("console"):
            return fence[0]
        lines: list[str] = []
        for _, (command, printed) in zip(_commands(fence["body"]), done, strict=False):
            lines += ["$ " + command.line, *_cut(command.printed, printed)]
        return "\n".join([f"```{fence['head']}", *lines, "```"])

    return _FENCE.sub(block, page)


def _cut(shown: tuple[str, ...], printed: tuple[str, ...]) -> tuple[str, ...]:
    if _LEFT_OUT not in shown:
        return printed
    head = shown.index(_LEFT_OUT)
    tail = len(shown) - head - 1
    return (*printed[:head], _LEFT_OUT, *printed[len(printed) - tail :])


def main(name: str) -> None:
    """Refresh one page, once all of its commands have succeeded."""
    page = Path(name)
    folder = Path(tempfile.mkdtemp())
    try:
        text = refreshed(page.read_text(encoding="utf-8"), folder)
    finally:
        shutil.rmtree(folder)
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
