"""Tables that ask different things of one attribute, from a spec to a published release."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.cli.test_cli import _call
from tests.village import write_village

import tabulae as tb
from tabulae.linalg import MatrixProduct


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = write_village(tmp_path_factory.mktemp("spaces"))
    spec.write_text(spec.read_text() + '\n[method]\nselect = "residual"\n')
    assert "Published" in _call("run", spec, "--out", spec.parent / "release").stdout
    return spec.parent


def test_each_set_has_matrices_of_its_own(made: Path) -> None:
    strategy = tb.Release.read(made / "release").measurements[0].strategy
    asked = {block.name: block.query for block in strategy.blocks}
    assert strategy.method == "residual"
    explicit = asked["sex*age"]
    assert isinstance(explicit, MatrixProduct)
    assert explicit.right.shape == (2 * 20, strategy.domain.size)


def test_what_is_published_follows_and_covers(made: Path) -> None:
    assert "every number follows" in _call("check", made / "release").stdout
    release = tb.Release.read(made / "release")
    records = np.loadtxt(made / "people.csv", dtype=str, delimiter=",", skiprows=1)
    ages = np.bincount(records[:, 1].astype(int), minlength=20)
    table = release.tables["sex_by_age"].to_pydict()
    for sex in "FM":
        truth = np.bincount(records[records[:, 0] == sex, 1].astype(int), minlength=20)
        rows = [k for k, s in enumerate(table["sex"]) if s == sex]
        error = np.array([table["estimate"][k] for k in rows]) - truth
        assert np.abs(error).max() < 8 * max(table["std_error"])
    low, high = (np.array(release.tables["ages"].to_pydict()[c]) for c in ("ci_low", "ci_high"))
    assert (low < high).all()
    assert ages.sum() == 400


def test_the_report_says_what_is_measured(made: Path) -> None:
    page = (made / "release" / "report.html").read_text()
    assert "residual planner" in page
