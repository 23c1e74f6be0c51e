"""[detailed]: what it means, and every mistake of it with its path and line."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.guild import GROUPS, MEMBERS, people
from tests.membership import groups_of
from tests.passages import changed, replaced

import tabulae as tb
from tabulae.errors import SpecError, Unsupported
from tabulae.privacy import ZCDP, PureDP
from tabulae.products.groups.spec import Detailed
from tabulae.spec import Spec, read_spec


def _detailed(spec: Spec) -> Detailed:
    assert spec.detailed is not None
    return spec.detailed


def _told(guild: Path, *changes: tuple[str, str]) -> list[str]:
    """Every mistake of the document with some passages changed."""
    text = replaced(guild.read_text(), *changes)
    with pytest.raises(SpecError) as caught:
        Spec.from_text(text, guild.parent)
    return [str(problem) for problem in caught.value.problems]


def test_every_part_of_the_section(guild: Path) -> None:
    spec = read_spec(guild)
    detailed = _detailed(spec)
    assert detailed.place == ("town",)
    assert detailed.cell == ("sex", "age")
    assert detailed.codes == {"code": ("first", "second")}
    assert {name: regions.ids for name, regions in detailed.regions.items()} == {
        "nation": ("nation",),
        "shire": ("A", "B"),
        "town": ("a1", "a2", "b1", "sea"),
    }
    assert detailed.regions["shire"].of_leaf.tolist() == [0, 0, 1, -1]
    assert [dict(rung.columns) for rung in detailed.rungs] == [
        {"sex": ("F", "M")},
        {"sex": ("F", "M"), "age2": ("0-4", "5-9")},
    ]
    assert detailed.groups.family["code"].codes == ("Bakers", "Cooks", "Tailors")
    assert [group.total_only for group in detailed.groups.groups] == [False] * 5 + [True]
    with pytest.raises(Unsupported, match="no \\[\\[table\\]\\]"):
        _ = spec.workload


def test_the_loss_is_the_largest_sum_over_places(guild: Path) -> None:
    """At sea, no shire counts anybody: 1 + 1 there, 1 + 1/2 + 1 elsewhere."""
    assert read_spec(guild).loss == ZCDP("5/2")
    pure = guild.read_text().replace('"zcdp"', '"pure"')
    assert Spec.from_text(pure, guild.parent).loss == PureDP("5/2")


def test_groups_are_those_of_the_file(guild: Path) -> None:
    groups = _detailed(read_spec(guild)).groups
    labels = dict(zip("123", ("Bakers", "Cooks", "Tailors"), strict=True))
    for _, _, _, first, second in people(60):
        codes = [code for code in (first, second) if code]
        expected = {
            g for g, (kind, m) in MEMBERS.items() if (all if kind == "alone" else any)(c in m for c in codes)
        }
        found = {
            group
            for level in "12"
            for group in groups_of(groups.at(level, "nation"), {"code": [labels[code] for code in codes]})
        }
        assert found == expected


def test_the_published_copy_reads_back_to_the_same_spec(guild: Path) -> None:
    text = guild.read_text().replace(
        "[[detailed.level]]", 'suppress = { chance = "0.999" }\n\n[[detailed.level]]', 1
    )
    spec = Spec.from_text(text, guild.parent)
    folder = guild.parent / "copy"
    for name, content in spec.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    copy = Spec.from_text(spec.published_text(), folder)
    assert copy.digest() == spec.digest()
    assert copy.published_text() == spec.published_text()
    assert copy.loss == spec.loss
    assert b"people.csv" not in spec.published_text().encode()
    assert _detailed(copy).suppress == _detailed(spec).suppress


def test_what_is_counted_is_in_the_digest(guild: Path) -> None:
    digest = read_spec(guild).digest()
    (guild.parent / "groups.csv").write_text(GROUPS.replace("Tailors only", "Only tailors"))
    assert read_spec(guild).digest() != digest


def test_a_parquet_file_of_groups_says_the_same(guild: Path) -> None:
    header, *rows = [line.split(",") for line in GROUPS.strip().split("\n")]
    columns = {name: pa.array([row[i] or None for row in rows]) for i, name in enumerate(header)}
    columns["total_only"] = pa.array([row[header.index("total_only")] == "true" for row in rows])
    pq.write_table(pa.table(columns), guild.parent / "groups.parquet")
    text = guild.read_text().replace("groups.csv", "groups.parquet")
    spec = Spec.from_text(text, guild.parent)
    assert _detailed(spec).groups.groups == _detailed(read_spec(guild)).groups.groups
    assert 'groups = "groups.parquet"' in spec.published_text()


def test_several_families_and_attributes_of_place(guild: Path) -> None:
    """Regions of two attributes: a leaf is a pair of their values."""
    text = guild.read_text().replace(
        'codes = ["first", "second"]', 'codes = { trade = ["first"], other = ["second"] }'
    )
    text = text.replace('"shire", "town"]', '"shire", "town", "sex"]')
    groups = GROUPS.replace("\n", ",trade\n").replace("total_only,trade", "total_only,family")
    (guild.parent / "groups.csv").write_text(groups)
    detailed = _detailed(Spec.from_text(text, guild.parent))
    assert detailed.place == ("town", "sex")
    assert detailed.regions["sex"].of_leaf.tolist() == [0, 1] * 4
    assert detailed.regions["town"].of_leaf.tolist() == np.repeat(np.arange(4), 2).tolist()


MISTAKES = {
    "unknown key": (("groups = ", "grops = "), 'detailed.grops (line 25): unknown key; did you mean "groups"?'),
    "budget as a number": (('budget = "1/2"', "budget = 0.5"), "must be a string, because a number that decides"),
    "no such region": (('region = "shire"', 'region = "shier"'), 'no region type "shier"; did you mean "shire"?'),
    "no such level": (("group_level = 1", "group_level = 3"), 'no group has level "3" in "nation"'),
    "a threshold short": (("[20, 100]", "[20]"), "has 1 for the 2 tables after the total"),
    "falling thresholds": (("[20, 100]", "[100, 20]"), "thresholds (line 35): must not fall: [100, 20]"),
    "cap too low": (('budget = "3"', 'budget = "2"'), 'cost 5/2 together: lower theirs, or write budget = "5/2"'),
    "approx": (('"zcdp"', '"approx"'), 'groups are tabulated under "pure" or "zcdp"'),
    "targets for nothing": (('budget = "3"', 'budget = "targets"'), "every level has its budget"),
    "stage one": (('codes = ["first"', 'stage_one = "2"\ncodes = ["first"'), "it must lie strictly between 0 and 1"),
    "no total": (('[["total"], ["sex"]', '[["sex"], ["sex"]'), "begins with the total"),
    "one table twice": (('["sex", "age2"]', '["sex"]'), "is by the same as detailed.tables[1]"),
    "two views of one": (('["sex", "age2"]', '["age", "age2"]'), 'the table has "age" twice'),
    "unknown attribute": (('["sex", "age2"]', '["sex", "age3"]'), 'no attribute or recode "age3"'),
    "unknown codes": (('"first", "second"', '"first", "thrid"'), 'there is no attribute "thrid"'),
    "codes of two lists": (('"first", "second"', '"first", "sex"'), '"sex" has other values than "first"'),
    "unknown codes counted": (('null = "other"', 'unknown = "other"'), "would be taken for no code"),
    "nowhere": (('["at sea"]', '["at see"]'), 'there is no "at see" in shire; did you mean "at sea"?'),
    "nowhere at all": (('["at sea"]', '["A", "B", "at sea"]'), "nowhere.shire (line 28): lists all 3 labels of shire"),
    "nowhere in the nation": (("nowhere = { shire", "nowhere = { nation"), "the nation has every record"),
    "nowhere of nothing": (("nowhere = { shire", "nowhere = { shrie"), "is not a region type of the section"),
    "neighbours": (('"zcdp"', '"zcdp"\nneighbours = "replace-within-invariants"'), "no count is exact"),
    "a table, too": (("[detailed]", '[[table]]\nname = "x"\nattributes = []\n\n[detailed]'), "in a spec of its own"),
    "a method": (("[detailed]", '[method]\nselect = "auto"\n\n[detailed]'), "of groups follow from [detailed]"),
    "two rows": (("[detailed]", "[release]\nmax_rows = 5\n\n[detailed]"), "26 totals, and at most 5"),
    "level twice": (('region = "town"', 'region = "shire"'), "detailed.level[1] has the same region and group_level"),
    "no budget": (('budget = "1/2"\n', ""), "has no budget: write budget"),
    "target, but a cap": (('budget = "1/2"', "target = { margin = 5 }"), "for `tabulae plan` to find it"),
    "suppression": (("nowhere =", 'suppress = { chance = "0.4" }\nnowhere ='), "must be over 1/2"),
    "no such file": (("groups.csv", "group.csv"), "No such file"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_is_told_with_its_remedy(guild: Path, mistake: str) -> None:
    change, words = MISTAKES[mistake]
    told = _told(guild, change)
    assert any(words in problem for problem in told), told


@pytest.mark.parametrize("thresholds", ["[20.5, 100]", '"20"'])
def test_thresholds_of_another_type_are_one_mistake(guild: Path, thresholds: str) -> None:
    (told,) = _told(guild, ('"1/2"\nthresholds = [20, 100]', f'"1/2"\nthresholds = {thresholds}'))
    assert "detailed.level[1].thresholds" in told
    assert "must be an" in told


def test_a_wrong_type_hides_no_other_mistake_of_its_level(guild: Path) -> None:
    level = 'region = "shier"\ngroup_level = 2\ntarget = { margin = 6.5 }\nthresholds = [100, 20]'
    old = 'region = "shire"\ngroup_level = 2\nbudget = "1/2"\nthresholds = [20, 100]'
    told = _told(guild, (old, level), ('budget = "3"', 'budget = "targets"'), ('["at sea"]', '["at see"]'))
    assert len(told) == 4
    for words in ("must be an integer, not 6.5", "must not fall", 'no region type "shier"', 'no "at see"'):
        assert any(words in problem for problem in told), told


@pytest.mark.parametrize("budget", ["target = 3", "target = { margin = 5.5 }", "budget = 1"])
def test_a_budget_of_another_type_is_not_also_missing(guild: Path, budget: str) -> None:
    told = _told(guild, ('budget = "1/2"', budget), ('budget = "3"', 'budget = "targets"'))
    assert not any("has no budget" in problem for problem in told), told


def test_all_mistakes_are_told_at_once(guild: Path) -> None:
    names = ("unknown attribute", "no such region", "nowhere", "no such level")
    told = _told(guild, *(MISTAKES[name][0] for name in names))
    assert len(told) == 4
    assert all("(line " in problem for problem in told)


ROWS = {
    "1,food,1,any,Food,\n": "1,food,1,any,Meals,\n",
    "2,cooks,2,any": "9,cooks,2,any",
    "3,tailors only,2,alone": "3,tailors only,2,alnoe",
    "1,bakers,2,any,Bakers,": "1,bakers,2,any,Bakers,perhaps",
    "3,tailors,2,any,Tailors,": "3,tailors,2,any",
    "1,food only,1": "1,,1",
}
TOLD = [
    'groups.csv, line 3: says of group "food" something else than line 2 does',
    'groups.csv, line 7: there is no value "9"',
    'groups.csv, line 9: kind is "alone" (all codes of the record are members) or "any", not "alnoe"',
    'groups.csv, line 6: total_only is true or false, not "perhaps"',
    "groups.csv, line 8: has 4 fields and the header has 6",
    'groups.csv, line 4: "group" is empty',
]


@pytest.mark.parametrize("at", range(len(TOLD)))
def test_mistakes_in_the_file_have_their_line(guild: Path, at: int) -> None:
    old, new = list(ROWS.items())[at]
    assert old in GROUPS
    (guild.parent / "groups.csv").write_text(GROUPS.replace(old, new))
    told = _told(guild)
    assert any(TOLD[at] in problem for problem in told), told


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("value,group,level\n1,a,1\n", 'line 1: the header has no column "kind"'),
        (GROUPS.replace("label", "lable", 1), 'line 1: unknown column "lable"; did you mean "label"?'),
        ("value,group,level,kind\n", "the file has no row below its header"),
        (GROUPS + "1,food,1,any,Food,\n", 'line 10: line 2 makes "1" a member of "food" already'),
        ("", "its first line is empty"),
    ],
)
def test_a_file_that_is_no_list_of_groups(guild: Path, content: str, words: str) -> None:
    (guild.parent / "groups.csv").write_text(content)
    assert words in "\n".join(_told(guild))


def test_targets_are_found_and_not_spent(guild: Path) -> None:
    text = guild.read_text().replace('budget = "3"', 'budget = "targets"')
    text = text.replace('budget = "1/2"', "target = { margin = 5 }")
    guild.write_text(text)
    plan = tb.plan(guild)
    budget = plan.budgets[1].amount
    assert plan.spec.loss == ZCDP(2 + budget)
    row = next(row for row in plan.table_errors if row.level == "shire, level 2" and row.table == "sex")
    assert (row.margin, row.met) == (5, True)
    less = text.replace("target = { margin = 5 }", f'budget = "{budget * Fraction(99, 100)}"')
    worse = tb.plan(Spec.from_text(less.replace('"targets"', '"9"'), guild.parent))
    assert next(r.margin for r in worse.table_errors if r.level == "shire, level 2") > 5
    with pytest.raises(SpecError, match="write the budgets that it finds"):
        tb.run(guild, guild.parent / "out")


def test_the_plan_says_how_wrong_each_table_is(guild: Path) -> None:
    assert tb.plan(guild).epsilon is None
    changed(guild, ('budget = "3"', 'budget = "3"\ndelta = "1e-10"'))
    plan = tb.plan(guild)
    errors = plan.errors
    assert errors.column_names == ["table", "level", "rmse", "margin", "bound"]
    assert errors["bound"].null_count == errors.num_rows == 3 + 4 + 4
    level = plan.adaptive.levels[0]
    assert errors["rmse"][0].as_py() == pytest.approx(level.second.variance_of_law**0.5)
    assert plan.epsilon[0] <= plan.loss.epsilon("1e-10")
    assert [row.shares[-1] > 0.999 for row in plan.rehearsal[0]][-1]
    with pytest.raises(Unsupported, match="follows from the spec"):
        plan.save(guild.parent / "plan.json")
