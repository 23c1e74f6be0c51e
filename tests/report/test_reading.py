"""What the page says of reading its files is true: the lines run as they stand, in the release folder."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

import tabulae as tb

_SNIPPET = re.compile(r"<h3>(Python|R|SQL \(DuckDB\))</h3>\s*<pre[^>]*><code>(.*?)</code></pre>", re.DOTALL)


def snippets(folder: Path) -> dict[str, str]:
    """Language -> its lines, as a reader copies them."""
    found = _SNIPPET.findall((folder / "report.html").read_text())
    return {language: html.unescape(code) for language, code in found}


@pytest.fixture(params=["tables", "groups", "areas"])
def folder(request: pytest.FixtureRequest) -> Path:
    if request.param == "areas":
        return request.getfixturevalue("duchy_release")
    spec = request.getfixturevalue("village" if request.param == "tables" else "guild")
    return tb.run(spec, spec.parent / "release").path


def test_python_and_sql_read_the_table(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = snippets(folder)
    assert set(found) == {"Python", "R", "SQL (DuckDB)"}
    monkeypatch.chdir(folder)
    name = re.search(r"tables/[^\"']+\.parquet", found["Python"])
    assert name is not None
    assert all(name[0] in code for code in found.values())
    stored = pq.read_table(name[0])
    scope: dict[str, object] = {}
    exec(found["Python"], scope)
    table = next(value for key, value in scope.items() if key in ("table", "totals", "rows"))
    assert list(table.columns) == stored.column_names  # type: ignore[attr-defined]
    assert 0 < len(table) <= stored.num_rows  # type: ignore[arg-type]
    rows = duckdb.execute(found["SQL (DuckDB)"]).fetchall()
    estimates = [row[stored.column_names.index("estimate")] for row in rows]
    assert rows
    assert estimates == sorted(estimates, reverse=True)


@pytest.mark.skipif(shutil.which("Rscript") is None, reason="needs R with the package arrow")
def test_r_reads_the_table(folder: Path) -> None:
    has = subprocess.run(["Rscript", "-e", 'stopifnot(requireNamespace("arrow"))'], check=False)
    if has.returncode:
        pytest.skip("needs R's package arrow")
    code = snippets(folder)["R"] + "\nstopifnot(nrow(get(ls()[1])) > 0)"
    subprocess.run(["Rscript", "-e", code], cwd=folder, check=True)
