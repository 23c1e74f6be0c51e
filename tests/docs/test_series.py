"""The commands of the page on series do what it shows."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest
from docs.walk import same_shape, walk
from tests.docs.test_walk import in_process

PAGE = (Path(__file__).parents[2] / "docs/guide/series.md").read_text(encoding="utf-8")


def test_the_page_shows_what_its_commands_print(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for command, printed in walk(PAGE, tmp_path, in_process):
        assert same_shape(command.printed, printed), "\n".join([command.line, *printed])
    monkeypatch.chdir(tmp_path)
    (python,) = re.findall(r"^```pycon\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    examples = doctest.DocTestParser().get_doctest(python, {}, "series.md", None, None)
    assert len(examples.examples) == 2
    assert doctest.DocTestRunner().run(examples).failed == 0
