"""``plan --tolerance``: how near to the least error the search goes, in place of what the spec says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.cli.test_cli import _call, _fails


def _certificate(spec: Path, tolerance: str) -> float:
    saved = spec.parent / f"{tolerance}.json"
    assert _call("plan", spec, "--save", saved, "--tolerance", tolerance).exit_code == 0
    return float(json.loads(saved.read_text())["strategy"]["certificate"])


def test_the_search_goes_on_where_less_is_tolerated(village: Path) -> None:
    assert _certificate(village, "0.5") > 1e-3
    assert _certificate(village, "1e-5") < 2e-5  # rounding to a grid included


def test_a_saved_plan_runs_with_the_spec_as_it_is(village: Path) -> None:
    saved, out = village.parent / "plan.json", village.parent / "out"
    assert _call("plan", village, "--tolerance", "0.5", "--save", saved).exit_code == 0
    assert _call("run", village, "--plan", saved, "--out", out).exit_code == 0
    assert "tolerance" not in (out / "spec.toml").read_text()


def test_what_a_longer_search_would_take_is_told() -> None:
    """Adult's plan is proven within 0.7 %, and the optimum takes opt0 two seconds."""
    told = _call("plan", Path(__file__).parents[2] / "examples/adult.toml").stdout
    assert re.search(r"--tolerance 0\.001: opt0 as well, about \d(\.\d)? s more", told)


@pytest.mark.parametrize("wrong", ["0", "-1", "nan", "inf"])
def test_no_tolerance(village: Path, wrong: str) -> None:
    _fails(_call("plan", village, "--tolerance", wrong), 1, "--tolerance is", "above 0")
