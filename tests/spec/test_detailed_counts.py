"""[detailed] whose tables public counts choose: no first stage, the whole budget in one count a cell."""

from __future__ import annotations

import shutil
from collections import Counter
from fractions import Fraction
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from tests.guild import counted, people
from tests.passages import changed

import tabulae as tb
from tabulae.errors import SpecError
from tabulae.products.groups.plan import plan_detailed
from tabulae.spec import Spec

ROWS = [
    ("nation", "nation", "food", "150"),
    ("nation", "nation", "food only", "19.9"),
    ("shire", "A", "cooks", "20"),
    ("shire", "B", "tailors only", "1000"),
    ("town", "sea", "bakers", "-3"),
    ("town", "a1", "food", "7"),  # of a level that towns do not have
]
TABLES = ["sex_by_age2", "total", "sex", "total only", "total"]
LISTED = 5
HEADER = "region_type,region,group,estimate,std_error"


def _text(rows: list[tuple[str, ...]] = ROWS, header: str = HEADER) -> str:
    return "\n".join([header, *(",".join((*row, "")) for row in rows)]) + "\n"


def _with_counts(guild: Path, *, content: str | None = None, exact: bool = False) -> Spec:
    if content is not None:
        (guild.parent / "before.csv").write_text(content)
    text = guild.read_text().replace('groups = "groups.csv"', 'groups = "groups.csv"\ncounts = "before.csv"')
    if exact:
        text = text.replace('"1/2"', '"1000000"').replace('budget = "1"', 'budget = "1000000"')
        text = text.replace('budget = "3"', 'budget = "3000000"')
    guild.write_text(text)
    return Spec.from_text(text, guild.parent)


def _told(guild: Path, content: str, *changes: tuple[str, str]) -> str:
    for old, new in changes:
        changed(guild, (old, new))
    with pytest.raises(SpecError) as caught:
        _with_counts(guild, content=content)
    return "\n".join(str(problem) for problem in caught.value.problems)


def test_the_whole_budget_is_in_one_count(guild: Path) -> None:
    """Variance s / (2 rho), with no share taken off; the loss is that of the levels, as with two stages."""
    plain = plan_detailed(guild)
    plan = plan_detailed(_with_counts(guild, content=_text()))
    assert plan.loss == plain.loss
    for level, before in zip(plan.adaptive.levels, plain.adaptive.levels, strict=True):
        assert level.first is None
        assert level.second.parameter == level.whole.parameter == before.whole.parameter
        assert level.second.parameter == Fraction(level.groups_of_a_record) / (2 * level.budget.amount)
    assert sum(level.places for level in plan.adaptive.levels) == LISTED


def test_epsilon_has_no_first_stage(guild: Path) -> None:
    """Fewer draws a record than two stages have, hence no more epsilon, at the same rho."""
    from tabulae.products.groups.levels import epsilon_of

    plain = epsilon_of(plan_detailed(guild).adaptive, "1e-6")[0]
    plan = plan_detailed(_with_counts(guild, content=_text())).adaptive
    assert epsilon_of(plan, "1e-6")[0] <= plain <= plan.loss.epsilon("1e-6")


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release with next to no noise."""
    from tests.guild import write_guild

    spec = write_guild(tmp_path_factory.mktemp("counts"))
    _with_counts(spec, content=_text(), exact=True)
    tb.Ledger.create(spec.parent / "large.db", 10**7, "zcdp")
    changed(spec, ("ledger.db", "large.db"))
    tb.run(spec, spec.parent / "release")
    return spec.parent / "release"


def test_without_noise_the_listed_groups_have_their_tables(release: Path) -> None:
    people_of = people(400)
    truth = counted(people_of)
    totals = tb.Release.read(release).tables["totals"].to_pylist()
    assert [(r["region_type"], r["region"], r["group"]) for r in totals] == [row[:3] for row in ROWS[:LISTED]]
    assert [r["table"] for r in totals] == TABLES
    for row in totals:
        assert row["estimate"] == truth[row["region_type"], row["region"], row["group"]]
    sexes: Counter[str] = Counter()
    for town, sex, _, first, second in people_of:
        if town in ("a1", "a2") and "2" in (first, second):
            sexes[sex] += 1
    cells = tb.Release.read(release).tables["sex"].to_pylist()
    assert {row["sex"]: row["estimate"] for row in cells} == sexes
    by_age = tb.Release.read(release).tables["sex_by_age2"].to_pylist()
    assert sum(row["estimate"] for row in by_age) == totals[0]["estimate"]


def test_the_release_names_the_counts(release: Path) -> None:
    import hashlib
    import json

    digest = hashlib.sha256((release / "counts.csv").read_bytes()).hexdigest()
    levels = json.loads((release / "measurements/measurement.json").read_text())["levels"]
    assert {level["chosen_by"]["sha256"] for level in levels} == {digest}
    assert all("first" not in level["laws"] for level in levels)
    page = (release / "report.html").read_text()
    assert "The choice reads no record, and costs nothing." in page
    assert digest in page.replace("<wbr>", "")
    assert tb.Release.read(release).verify() == []


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [("counts.csv", ",150,", ",50,"), ("counts.csv", "shire,A,cooks,20,\n", "")],
)
def test_other_counts_are_found(release: Path, tmp_path: Path, file: str, old: str, new: str) -> None:
    from tabulae.release.folder import write_sums

    copy = shutil.copytree(release, tmp_path / "copy")
    text = (copy / file).read_text()
    assert old in text
    (copy / file).write_text(text.replace(old, new))
    write_sums(copy)
    assert tb.Release.read(copy).verify()


def test_a_table_that_the_counts_did_not_choose_is_found(release: Path, tmp_path: Path) -> None:
    from tabulae.release.folder import write_sums

    copy = shutil.copytree(release, tmp_path / "copy")
    path = copy / "measurements/01-nation-1.parquet"
    table = pq.read_table(path)
    rungs = pa.array([0] * table.num_rows, pa.int8())
    pq.write_table(table.set_column(table.column_names.index("rung"), "rung", rungs), path)
    write_sums(copy)
    assert any("its public count chooses" in fault for fault in tb.Release.read(copy).verify())


def test_the_totals_of_an_earlier_release_are_such_a_file(guild: Path, guild_release: Path) -> None:
    for end in ("csv", "parquet"):
        folder = guild.parent / end
        folder.mkdir()
        shutil.copy(guild_release / f"tables/totals.{end}", folder / f"before.{end}")
        for name in ("groups.csv", "trades.csv", "shires.csv"):
            shutil.copy(guild.parent / name, folder / name)
        text = guild.read_text().replace(
            'groups = "groups.csv"', f'groups = "groups.csv"\ncounts = "before.{end}"'
        )
        levels = plan_detailed(Spec.from_text(text, folder)).adaptive.levels
        assert (
            sum(level.places for level in levels) == tb.Release.read(guild_release).tables["totals"].num_rows
        )


MISTAKES = {
    "region type": (_text([("contry", "nation", "food", "1")]), 'line 2: there is no region type "contry"'),
    "region": (_text([("shire", "at sea", "food", "1")]), 'line 2: there is no region of shire "at sea"'),
    "group": (_text([("nation", "nation", "foot", "1")]), 'there is no group "foot"; did you mean "food"?'),
    "empty": (_text([("nation", "nation", "", "1")]), "line 2: group is empty"),
    "no number": (_text([("nation", "nation", "food", "many")]), 'line 2: estimate is a number, not "many"'),
    "infinite": (_text([("nation", "nation", "food", "inf")]), 'estimate is a number, not "inf"'),
    "nothing": (_text([("nation", "nation", "food", "")]), 'estimate is a number, not ""'),
    "twice": (_text([*ROWS, ROWS[2]]), "line 8: line 4 is of the same group in the same region: keep one"),
    "no column": (_text(header="region_type,region,group,count,x"), 'needs a column "estimate"'),
    "another column": (_text(header="region_type,area,group,estimate,x"), 'has no column "region"'),
    "no row": (_text([]), "no row below its header"),
    "no level": (_text([("town", "a1", "food", "1")]), "lists no group that a level counts in its regions"),
    "NULL byte": ("region_type,region,group,estimate\nnation,nation,fo\0od,1\n", "holds"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_of_the_file_is_told(guild: Path, mistake: str) -> None:
    content, words = MISTAKES[mistake]
    assert words in _told(guild, content)


def test_stage_one_beside_counts_is_refused(guild: Path) -> None:
    told = _told(guild, _text(), ("codes = [", 'stage_one = "1/5"\ncodes = ['))
    assert "keep one of the two" in told


@pytest.mark.parametrize("value", ["3", '""', "[]", '"none.csv"'])
def test_counts_is_a_file(guild: Path, value: str) -> None:
    text = guild.read_text().replace("groups = ", f"counts = {value}\ngroups = ")
    with pytest.raises(SpecError) as caught:
        Spec.from_text(text, guild.parent)
    assert all("detailed.counts" in str(problem) for problem in caught.value.problems)


def test_the_published_copy_reads_back(guild: Path) -> None:
    spec = _with_counts(guild, content=_text())
    folder = guild.parent / "copy"
    for name, content in spec.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / "people.csv").write_text("")
    again = Spec.from_text(spec.published_text(), folder)
    assert again.digest() == spec.digest()
    (guild.parent / "before.csv").write_text(_text([("nation", "nation", "food", "151"), *ROWS[1:]]))
    assert Spec.from_text(guild.read_text(), guild.parent).digest() != spec.digest()


def test_a_target_is_of_the_whole_budget(guild: Path) -> None:
    """Without a first stage the same target needs 9/10 of the budget."""
    text = guild.read_text().replace('budget = "3"', 'budget = "targets"')
    text = text.replace('budget = "1/2"', "target = { margin = 6 }")
    guild.write_text(text)
    staged = plan_detailed(Spec.from_text(text, guild.parent))
    plan = plan_detailed(_with_counts(guild, content=_text()))
    found, before = (made.adaptive.levels[1].budget.amount for made in (plan, staged))
    assert abs(float(found / before) - 0.9) < 1e-6
    assert plan.rehearsal[0][0].shares == (1.0, 0.0, 0.0)
    assert [sum(row.shares) for row in chain(*plan.rehearsal)] == pytest.approx([1.0] * 24)
