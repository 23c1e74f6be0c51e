"""[detailed] with two ladders over the same groups: a level each, whose budgets add up."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tests.guild import counted, people, write_guild
from tests.passages import replaced

import tabulae as tb
from tabulae.errors import SpecError
from tabulae.products.groups.plan import plan_detailed
from tabulae.spec import Spec

ONE = 'tables = [["total"], ["sex"], ["sex", "age2"]]'
TWO = 'ladders = { sexes = [["total"], ["sex"]], ages = [["total"], ["age2"], ["age"]] }'
LEVEL = '[[detailed.level]]\nregion = "{}"\ngroup_level = {}\nladder = "{}"\nbudget = "{}"\nthresholds = {}\n'
LEVELS = [
    ("nation", 1, "sexes", "1", [20]),
    ("nation", 1, "ages", "1/4", [20, 200]),
    ("shire", 2, "ages", "1/2", [20, 100]),
]
LOSS = "7/4"


def _two(guild: Path, *changes: tuple[str, str]) -> str:
    text = guild.read_text().split("[[detailed.level]]")[0].replace(ONE, TWO)
    text += "\n".join(LEVEL.format(*level) for level in LEVELS)
    return replaced(text, *changes)


def test_the_budgets_of_both_ladders_add_up(guild: Path) -> None:
    """A record in a shire meets all three levels; each has the noise that its own budget pays for."""
    spec = Spec.from_text(_two(guild), guild.parent)
    plan = plan_detailed(spec)
    assert str(plan.loss.amount) == LOSS
    sexes, ages, _ = plan.adaptive.levels
    assert (sexes.name, ages.name) == ("nation, level 1, sexes", "nation, level 1, ages")
    assert sexes.second.parameter * 4 == ages.second.parameter
    assert [rung.name for rung in plan.spec.detailed.rungs] == ["sex", "age2", "age"]


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> tb.Release:
    """A release with next to no noise."""
    spec = write_guild(tmp_path_factory.mktemp("ladders"))
    large = [('budget = "1"', 'budget = "1000000"'), ('"1/4"', '"1000000"'), ('"1/2"', '"1000000"')]
    spec.write_text(_two(spec, *large, ('budget = "3"', 'budget = "3000000"'), ("ledger.db", "large.db")))
    tb.Ledger.create(spec.parent / "large.db", 10**7, "zcdp")
    return tb.run(spec, spec.parent / "release")


def test_without_noise_both_ladders_have_the_counts(release: tb.Release) -> None:
    truth = counted(people(400))
    totals = release.tables["totals"].to_pylist()
    found = {(row["ladder"], row["region_type"], row["region"], row["group"]): row for row in totals}
    assert len(found) == len(totals) == 2 * 2 + 4 * 2
    for (_, *place), row in found.items():
        assert row["estimate"] == pytest.approx(truth[tuple(place)])
        tables = {"sexes": (20,), "ages": (20, 200 if place[0] == "nation" else 100)}[row["ladder"]]
        names = ["total", *{"sexes": ("sex",), "ages": ("age2", "age")}[row["ladder"]]]
        expected = names[sum(truth[tuple(place)] >= step for step in tables)]
        assert row["table"] == ("total only" if place[2] == "tailors only" else expected)
    cells: Counter[tuple[str, str, str]] = Counter()
    for name in ("age2", "age"):
        for row in release.tables[name].to_pylist():
            cells[row["region_type"], row["region"], row["group"]] += row["estimate"]
    for place, total in cells.items():
        assert total == pytest.approx(truth[place])
    assert release.verify() == []


def test_the_published_copy_of_two_ladders_reads_back(guild: Path) -> None:
    spec = Spec.from_text(_two(guild), guild.parent)
    copy = guild.parent / "copy"
    for name, content in spec.files.items():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_bytes(content)
    assert Spec.from_text(spec.published_text(), copy).digest() == spec.digest()


MISTAKES = {
    "no ladder": (('ladder = "sexes"\n', ""), 'detailed.level[0].ladder (line 31): is missing: say which'),
    "unknown": (('ladder = "sexes"', 'ladder = "sexs"'), 'there is no ladder "sexs"; did you mean "sexes"?'),
    "no text": (('ladder = "sexes"', "ladder = 3"), "detailed.level[0].ladder"),
    "twice": (('ladder = "sexes"', 'ladder = "ages"'), "detailed.level[0] has the same region, group_level and ladder"),
    "thresholds": (("[20, 200]", "[20]"), "has 1 for the 2 tables after the total"),
    "one table in two": (('["age2"]', '["sex"]'), "is by the same as detailed.ladders.sexes[1]: keep one"),
    "no total": (('sexes = [["total"]', 'sexes = [["age"]'), "begins with the total"),
    "empty": ((TWO, "ladders = {}"), "names no ladder"),
    "a list": ((TWO, 'ladders = [["total"]]'), "detailed.ladders"),
    "empty name": (("sexes = [[", '"" = [['), "detailed.ladders"),
    "both": ((TWO, f"{TWO}\n{ONE}"), "stands beside tables"),
    "neither": ((TWO, ""), "detailed.tables (line 24): is missing"),
    "of no level": (("ladders = { ", 'ladders = { third = [["total"]], '), "no level is of this ladder"),
    "a ladder of one": ((TWO, ONE), "tables is the only one, without a name: remove it"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_of_ladders_is_told(guild: Path, mistake: str) -> None:
    change, words = MISTAKES[mistake]
    text = _two(guild, change)
    with pytest.raises(SpecError) as caught:
        Spec.from_text(text, guild.parent)
    told = "\n".join(str(problem) for problem in caught.value.problems)
    assert words in told, told
