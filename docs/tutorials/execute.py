"""Runs the tutorials, each in a kernel and an empty folder of its own, and stores what they show.

``python docs/tutorials/execute.py`` runs every notebook of this folder and writes its outputs into it, without the
times, counters and paths of the machine; ``python docs/tutorials/execute.py FILE ...`` runs some of them.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

HERE = Path(__file__).parent
_SECONDS = 120
_STYLES = re.compile(r"\x1b\[[0-9;]*m")
_KEPT = {"data", "ename", "evalue", "name", "output_type", "text", "traceback"}


def notebooks() -> list[Path]:
    """The tutorials."""
    return sorted(HERE.glob("*.ipynb"))


def executed(path: Path, folder: Path, cells: int | None = None) -> NotebookNode:
    """A notebook, or its first cells, with the outputs of a run in ``folder``.

    A cell that fails raises CellExecutionError.
    """
    notebook = nbformat.read(path, as_version=4)
    notebook.cells = notebook.cells[:cells]
    client = NotebookClient(
        notebook,
        kernel_name="python3",
        timeout=_SECONDS,
        coalesce_streams=True,
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute(env=_environment())
    return bare(notebook)


def _environment() -> dict[str, str]:
    """Shell cells find the command of this interpreter's installation first."""
    here = str(Path(sys.executable).parent)
    path = os.pathsep.join([here, os.environ.get("PATH", "")])
    return {**os.environ, "PATH": path, "PYDEVD_DISABLE_FILE_VALIDATION": "1"}


def bare(notebook: NotebookNode) -> NotebookNode:
    """The notebook without what differs from run to run for no reason of its contents."""
    notebook.metadata = NotebookNode(
        kernelspec={"display_name": "Python 3", "language": "python", "name": "python3"},
        language_info={"name": "python"},
    )
    for number, cell in enumerate(notebook.cells, 1):
        cell.id, cell.metadata = f"cell-{number}", NotebookNode()
        if cell.cell_type == "code":
            cell.execution_count = None
            cell.outputs = [_bare_output(output) for output in cell.outputs]
    return notebook


def _bare_output(output: NotebookNode) -> NotebookNode:
    kept = NotebookNode({name: value for name, value in output.items() if name in _KEPT})
    if output.output_type == "stream":
        kept.text = _STYLES.sub("", output.text)
    if output.output_type in ("execute_result", "display_data"):
        kept.metadata = NotebookNode()
    if output.output_type == "execute_result":
        kept.execution_count = None
    return kept


def main(paths: list[Path]) -> None:
    """Run notebooks, and write them with their outputs once all of one ran through."""
    for path in paths or notebooks():
        print(f"running {path.name}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            nbformat.write(executed(path, Path(folder)), path)


if __name__ == "__main__":
    main([Path(argument) for argument in sys.argv[1:]])
