"""What cannot be published must not be paid for: extreme budgets, weights, names and altered plans."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest
from tests.passages import changed
from tests.run.stops import kill

import tabulae as tb
from tabulae.errors import TabulaeError

PURE = """
[privacy]
definition = "pure"
budget = "1"
ledger = "pure.db"
neighbours = "{neighbours}"
"""


def _respec(village: Path, neighbours: str = "add-remove", budget: str = "1") -> None:
    text = village.read_text()
    start, end = text.index("[privacy]"), text.index("[[table]]")
    privacy = PURE.format(neighbours=neighbours).replace('budget = "1"', f'budget = "{budget}"')
    village.write_text(text[:start] + privacy + text[end:])
    tb.Ledger.create(village.parent / "pure.db", 1000, "pure", neighbours=neighbours)


def _published_or_unpaid(village: Path, ledger: str) -> None:
    """Either a verified release, or a refusal in words and nothing spent."""
    try:
        release = tb.run(village, village.parent / "out")
    except TabulaeError:
        assert tb.Ledger.open(village.parent / ledger).spent == 0
        assert not (village.parent / "out").exists()
    else:
        assert release.verify() == []


# the largest budget; then all of them together
SOME = [("workload", "900", "replace")]
ALL = product(
    ("auto", "union", "kron", "workload", "identity"), ("1/100", "50", "900"), ("add-remove", "replace")
)


@pytest.mark.parametrize(
    ("method", "budget", "neighbours"),
    [*SOME, *(pytest.param(*case, marks=pytest.mark.long) for case in ALL if case not in SOME)],
)
def test_pure_budgets_of_any_size(village: Path, method: str, budget: str, neighbours: str) -> None:
    _respec(village, neighbours, budget)
    text = village.read_text() + '\n[[table]]\nname = "everybody"\nattributes = []\n'
    village.write_text(text + f'\n[method]\nselect = "{method}"\n')
    _published_or_unpaid(village, "pure.db")


@pytest.mark.long
@pytest.mark.parametrize(
    ("method", "weight"),
    [
        *(("kron", "1e-6"), ("workload", "1e-3")),
        ("auto", "1e-6"),
        ("union", "1e-3"),
    ],
)
def test_weights_far_apart(village: Path, method: str, weight: str) -> None:
    text = village.read_text().replace('name = "ages"', f'name = "ages"\nweight = {weight}')
    village.write_text(text + f'\n[method]\nselect = "{method}"\n')
    _published_or_unpaid(village, "ledger.db")


def test_a_long_name_is_refused_when_the_spec_is_read(village: Path) -> None:
    changed(village, ('"ages"', f'"{"a" * 300}"'))
    with pytest.raises(TabulaeError, match="bytes"):
        tb.run(village, village.parent / "out")
    assert tb.Ledger.open(village.parent / "ledger.db").spent == 0


@pytest.mark.parametrize("edit", ["drop a block", "certificate", "kind", "scale"])
def test_an_altered_plan_costs_nothing(village: Path, edit: str) -> None:
    village.write_text(village.read_text() + '\n[method]\nselect = "workload"\n')
    path = village.parent / "plan.json"
    tb.plan(village).save(path)
    plan = json.loads(path.read_text())
    blocks = plan["strategy"]["blocks"]
    assert len(blocks) > 1
    if edit == "drop a block":
        plan["strategy"]["blocks"] = blocks[:1]
    elif edit == "certificate":
        plan["strategy"]["certificate"] = "excellent"
    elif edit == "kind":
        blocks[0]["query"]["kind"] = "magic"
    else:
        blocks[0]["relative_scale"] = "-1"
    path.write_text(json.dumps(plan))
    with pytest.raises(TabulaeError):
        tb.run(village, village.parent / "out", plan_file=path)
    assert tb.Ledger.open(village.parent / "ledger.db").spent == 0


def test_a_dangling_link_is_in_the_way(village: Path) -> None:
    (village.parent / "out").symlink_to(village.parent / "nowhere")
    with pytest.raises(TabulaeError, match="exists"):
        tb.run(village, village.parent / "out")


def test_resuming_one_run_leaves_anothers_charge_alone(village: Path) -> None:
    """Two releases of one spec: the resumed one must not call the other's charge void."""
    village.write_text(village.read_text() + '\n[method]\nselect = "identity"\n')
    one, two = village.parent / "one", village.parent / "two"
    kill("stored", village, one)
    kill("marked", village, two)
    tb.run(village, two, resume=True)
    ledger = tb.Ledger.open(village.parent / "ledger.db")
    assert sorted(c.state for c in ledger.charges()) == ["charged", "published"]
    assert tb.run(village, one, resume=True).verify() == []
    assert [c.state for c in ledger.charges()] == ["published", "published"]


def test_no_bound_exceeds_the_error_it_bounds(village: Path) -> None:
    """At large budgets discrete laws are narrower than the nominal ones that bounds are stated for."""
    for budget in ("1", "4", "8"):
        text = village.read_text().replace('budget = "1/2"', f'budget = "{budget}"')
        made = tb.plan(_copy(village, text, budget))
        assert made.bound is not None
        assert made.bound <= made.rmse * (1 + 1e-9)
        for row in made.table_errors:
            assert row.bound is None or row.bound <= row.rmse * (1 + 1e-9)


def _copy(village: Path, text: str, name: str) -> Path:
    path = village.parent / f"spec{name}.toml"
    path.write_text(text)
    return path
