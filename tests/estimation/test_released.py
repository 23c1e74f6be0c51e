"""Non-negative estimators end to end: run, verify, query and report from the folder alone."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import tabulae as tb


@pytest.mark.parametrize(
    "method",
    [
        "non-negative",
        pytest.param(
            "pgm",
            marks=pytest.mark.skipif(
                importlib.util.find_spec("mbi") is None,
                reason="needs the extra [pgm]: pip install 'tabulae[pgm]'",
            ),
        ),
    ],
)
def test_a_release_of_non_negative_tables(village: Path, method: str) -> None:
    text = village.read_text().replace(
        "[[table]]", f'[method]\nestimate = "{method}"\nselect = "kron"\n\n[[table]]', 1
    )
    village.write_text(text)
    release = tb.run(village, village.parent / "release")
    assert release.verify() == []
    for table in release.tables.values():
        estimate, low, high = (table[name].to_numpy() for name in ("estimate", "ci_low", "ci_high"))
        assert (estimate >= -1e-9).all()
        assert (low <= estimate + 1e-9).all()
        assert (estimate <= high + 1e-9).all()
        assert np.isfinite(table["std_error"].to_numpy()).all()
    answer = release.query("SELECT COUNT(*) FROM people WHERE age < 5")
    assert answer["estimate"][0].as_py() >= 0
    words = {"non-negative": "nowhere below zero", "pgm": "graphical model"}
    assert words[method] in (release.path / "report.html").read_text()


@pytest.mark.long
def test_a_release_from_a_union_over_many_cells(tmp_path: Path) -> None:
    """91,125 cells, three overlapping groups: planned, run and verified through conjugate gradients."""
    rng = np.random.default_rng(3)
    people = "\n".join(",".join(map(str, row)) for row in rng.integers(0, 45, (500, 3)))
    (tmp_path / "people.csv").write_text(f"a,b,c\n{people}\n")
    tables = {
        "one": '{ a = "prefix", b = "prefix" }',
        "two": '{ b = "identity", c = "prefix" }',
        "three": '{ a = "identity", c = "identity" }',
    }
    written = "".join(f'[[table]]\nname = "{name}"\nqueries = {asked}\n\n' for name, asked in tables.items())
    columns = "\n".join(f'{name} = {{ column = "{name}", range = [0, 44] }}' for name in "abc")
    (tmp_path / "spec.toml").write_text(
        f'title = "Union"\n[source]\npath = "people.csv"\nunit = "person"\n[attributes]\n{columns}\n[privacy]\n'
        'definition = "zcdp"\nbudget = "1/2"\ndelta = "1e-10"\nledger = "ledger.db"\n\n[method]\nselect = "union"\n\n'
        + written
    )
    tb.Ledger.create(
        tmp_path / "ledger.db", tb.ZCDP("1/2"), definition="zcdp", neighbours="add-remove", unit="person"
    )
    release = tb.run(tmp_path / "spec.toml", tmp_path / "release")
    assert tb.estimate(*release.measurements).information.route == "iterative"
    assert release.verify() == []
    one, three = (release.tables[name]["estimate"].to_numpy().reshape(45, 45) for name in ("one", "three"))
    assert one[:, -1] == pytest.approx(np.cumsum(three.sum(axis=1)), abs=1e-4)
