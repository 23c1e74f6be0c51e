"""The Python of the README runs as it stands."""

from __future__ import annotations

import re
from contextlib import chdir
from pathlib import Path

import tabulae as tb

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def test_the_snippet_runs_as_it_stands(tmp_path: Path) -> None:
    snippets = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(snippets) == 1
    names: dict[str, object] = {}
    with chdir(tmp_path):
        exec(compile(snippets[0], "README.md", "exec"), names)
    assert len(names["low"]) == len(names["high"]) == 5050  # type: ignore[arg-type]
    assert tb.Ledger.open(tmp_path / "ledger.db").remaining == tb.ZCDP("1/2").amount
