"""The tutorials run from the first cell to the last, in a kernel and a folder of their own, and show nothing local."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import nbformat
import pytest
from docs.tutorials.execute import HERE, bare, executed, notebooks
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode

TUTORIALS = [
    HERE / f"{name}.ipynb"
    for name in (
        "comparing-strategies",
        "first-release",
        "households",
        "income-by-region",
        "using-noisy-tables",
    )
]


def _texts(notebook: NotebookNode) -> list[str]:
    """Everything that a notebook shows."""
    found = []
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            found.append(output.get("text", ""))
            found += [text for kind, text in output.get("data", {}).items() if kind.startswith("text/")]
    return found


def test_the_tutorials_are_those() -> None:
    assert notebooks() == TUTORIALS


@pytest.mark.parametrize(
    ("path", "cells"),
    [(TUTORIALS[0], 5), *(pytest.param(path, None, marks=pytest.mark.long) for path in TUTORIALS)],
    ids=lambda value: getattr(value, "stem", "all" if value is None else "begins"),
)
def test_a_tutorial_runs_and_its_assertions_hold(path: Path, cells: int | None, tmp_path: Path) -> None:
    done = executed(path, tmp_path, cells)
    stored = nbformat.read(path, as_version=4)
    for cell, before in zip(done.cells, stored.cells[:cells], strict=True):
        assert cell.source == before.source
        kinds = [
            [(o.output_type, sorted(o.get("data", {}))) for o in c.get("outputs", [])] for c in (cell, before)
        ]
        assert kinds[0] == kinds[1], cell.source
    assert any("assert " in cell.source for cell in done.cells)


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_what_is_stored_is_whole_and_names_no_machine(path: Path) -> None:
    stored = nbformat.read(path, as_version=4)
    nbformat.validate(stored)
    shown = "\n".join(_texts(stored))
    assert len(shown) > 2000
    for place in (str(Path.home()), str(HERE.parents[1]), sys.prefix, "/tmp", "/home/", "site-packages"):
        assert place not in shown
    assert "\x1b" not in shown
    assert path.stat().st_size < 200_000
    for cell in stored.cells:
        for output in cell.get("outputs", []):
            assert output.get("name") != "stderr", output  # no warning, no progress
            assert output.output_type != "error"
    assert nbformat.writes(bare(stored)) == nbformat.writes(nbformat.read(path, as_version=4))


def test_a_failing_assertion_fails_the_run(tmp_path: Path) -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("assert 1 == 2")])
    nbformat.write(notebook, tmp_path / "wrong.ipynb")
    with pytest.raises(CellExecutionError, match="AssertionError"):
        executed(tmp_path / "wrong.ipynb", tmp_path)


def test_links_between_pages_lead_somewhere() -> None:
    for path in TUTORIALS:
        text = "\n".join(cell.source for cell in nbformat.read(path, as_version=4).cells)
        for target in re.findall(r"\]\(([^)#:]+)\)", text):
            assert (path.parent / target).exists(), target
