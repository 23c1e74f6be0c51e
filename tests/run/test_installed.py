"""What an installation without extras can do, and what it says of what it cannot: large packages are hidden."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.duchy import write_duchy

import tabulae as tb

HIDDEN = ("matplotlib", "numba", "llvmlite", "pandas", "psycopg", "pyspark", "pyreadstat", "mbi")
PROGRAM = f"""
import json, sys
from importlib.abc import MetaPathFinder

class Hidden(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in {HIDDEN}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hidden())
import tabulae as tb
from tabulae.sources.source import RecordSource, open_records

def refused(action):
    try:
        action()
    except tb.errors.MissingDependency as error:
        return str(error)

def on_server():
    with open_records(RecordSource(url="postgresql://127.0.0.1:1/people", table="t"), [("sex", "SEX")]):
        pass

village, duchy, out = sys.argv[1:]
found = [
    tb.run(village, out).verify(),
    refused(lambda: tb.plan(duchy)),
    refused(lambda: tb.run(duchy, out + "-areas")),
    refused(on_server),
    [name for name in {HIDDEN} if name in sys.modules],
]
print(json.dumps(found))
"""


def test_tables_need_no_extra_and_others_say_which_they_need(village: Path, tmp_path: Path) -> None:
    """Nothing is charged for a release that needs what is missing."""
    (tmp_path / "areas").mkdir()
    village.write_text(village.read_text() + '\n[method]\nselect = "identity"\n')
    duchy = write_duchy(tmp_path / "areas")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, village, duchy, tmp_path / "release"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    faults, planned, run, served, loaded = json.loads(done.stdout)
    assert (faults, loaded) == ([], [])
    words = (
        "a release by area needs the package 'numba', which is not installed: pip install 'tabulae[areas]'"
    )
    assert planned == run == words
    assert served == (
        "counting on PostgreSQL needs the package 'psycopg', which is not installed: "
        "pip install 'tabulae[postgresql]'"
    )
    assert tb.Ledger.open(duchy.parent / "ledger.db").charges() == []
    assert not list(tmp_path.glob("*release-areas*"))
