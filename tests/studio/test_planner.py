"""Plans of the studio: quick margins first, a strategy kept while the budget alone changes, and what a table costs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.planning.test_quick_margins import _county
from tests.village import SPEC

import tabulae as tb
from tabulae.studio.planner import Plans

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_a_change_of_budget_needs_no_new_strategy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plans = Plans()
    quick, certified, page = plans.plan(SPEC, tmp_path)
    assert all(margin.startswith("about ±") for margin in quick.margins.values())
    assert not any(answer.last or answer.page for answer in (quick, certified))
    assert page.last
    assert page.page
    monkeypatch.setattr(
        "tabulae.products.tables.plan.select", lambda *_, **__: pytest.fail("a strategy was searched for")
    )
    richer = SPEC.replace('budget = "1/2"', 'budget = "2"')
    scaled, margins, page = plans.plan(richer, tmp_path)
    monkeypatch.undo()
    for name, words in scaled.margins.items():
        half = float(certified.margins[name].lstrip("±")) / 2  # of four times the budget
        assert float(words.lstrip("about ±")) == pytest.approx(half, rel=0.05)
    (tmp_path / "richer.toml").write_text(richer)
    anew = tb.plan(tmp_path / "richer.toml").errors.to_pylist()
    for row in anew:
        assert float(margins.margins[row["table"]].lstrip("±")) == pytest.approx(row["margin"], rel=0.05)
    assert page.margins == margins.margins


def test_areas_have_bounds_before_their_errors(tmp_path: Path) -> None:
    spec = _county(tmp_path, "block", "1/5", "3/5")
    quick, exact, page = Plans().plan(spec.text, tmp_path)
    assert quick.margins.keys() == exact.margins.keys() == page.margins.keys()
    assert all(words.startswith("at most ±") for words in quick.margins.values())
    for name, words in exact.margins.items():
        assert float(words.lstrip("±")) <= float(quick.margins[name].removeprefix("at most ±"))
    shared = re.sub(r"(?m)^(shares = ).*", "", spec.text).replace('["place"]', '["place"]\nshares = "auto"')
    first = next(iter(Plans().plan(shared, tmp_path)))
    assert all(words.startswith("about ±") for words in first.margins.values())


def test_areas_with_a_budget_to_be_found_have_margins_at_once(tmp_path: Path) -> None:
    text = _county(tmp_path, "block", "1/5", "3/5").text.replace('budget = "1/2"', 'budget = "targets"')
    text = text.replace('areas = ["block"]', 'areas = ["block"]\ntarget = { margin = 30 }')
    quick = next(iter(Plans().plan(text, tmp_path)))
    assert not quick.last
    assert quick.margins["ages"] == "about ±30"
    assert quick.margins.keys() == {"total", "ages"}


@pytest.mark.long
def test_tables_of_very_many_cells_have_margins_before_their_intervals_are_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those of each cell of PHSafe's tables take some twenty seconds."""
    monkeypatch.setattr("tabulae.products.tables.plan._margins", lambda *_: pytest.fail("cell by cell"))
    text = (EXAMPLES / "phsafe.toml").read_text()
    quick = next(iter(Plans().plan(text, EXAMPLES)))
    assert len(quick.margins) == 30
    assert all(words.startswith("about ±") for words in quick.margins.values())


def test_rough_margins_are_about_the_widest(tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text(SPEC.replace('name = "ages"', 'name = "ages"\nweight = 3'))
    made = tb.plan(tmp_path / "spec.toml")
    assert made.rough_margins.keys() == made.margins.keys()
    for name, margin in made.margins.items():
        assert margin / 1.5 < made.rough_margins[name] < 1.1 * margin
        assert made.rough_margins[name] == pytest.approx(1.96 * made.expected.tables[name], rel=1e-3)


def test_with_targets_the_budget_decides_the_strategy(tmp_path: Path) -> None:
    aimed = SPEC.replace('name = "ages"', 'name = "ages"\ntarget = { rmse = 5 }')
    plans = Plans()
    first = list(plans.plan(aimed, tmp_path))
    assert len(first) == len(list(plans.plan(aimed, tmp_path))) == 3


def test_what_a_table_costs_the_others_is_the_error_that_they_have_without_it(tmp_path: Path) -> None:
    (answer,) = Plans().cost(SPEC, tmp_path, 2)
    assert answer.cost is not None
    position, words = answer.cost
    assert position == 2
    found = re.search(r"RMSE of (\w+): ([\d.]+), and ([\d.]+) without", words)
    assert found is not None
    for text, told in (
        (SPEC, found[2]),
        (SPEC.replace('name = "ages"\nqueries = { age = "ranges" }', ""), found[3]),
    ):
        (tmp_path / "spec.toml").write_text(re.sub(r"\[\[table\]\]\s*\n(?=\[\[|$)", "", text))
        errors = {row["table"]: row["rmse"] for row in tb.plan(tmp_path / "spec.toml").errors.to_pylist()}
        assert errors[found[1]] == pytest.approx(float(told), rel=0.05)


def test_mistakes_are_the_last_answer(tmp_path: Path) -> None:
    (answer,) = Plans().plan("title = 1", tmp_path)
    assert answer.problems
    (answer,) = Plans().cost(SPEC.replace('["sex", "age"]', "[1]"), tmp_path, 0)
    assert answer.problems
