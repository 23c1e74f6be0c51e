"""Maps from codes to groups: the definition, the published cases, refusals."""

import pytest
from tests.domain.toy_maps import TOY, needs_maps, read_map
from tests.membership import groups_of

from tabulae.domain.groups import CodeFamily, Group, GroupMap
from tabulae.errors import InvalidArgument

GOLDEN = [
    ("1010", "1010", "2001,3001,1130,1140", "2001,3001,1130,1140"),
    ("1010,1020,1021", "2000", "2001,1130,1140,1150", "2001,1130,1140,1810"),
    ("1011,1012,1021", "1010", "2001,1130,1140,1150", "2001,1130,1140,1810"),
    ("1012,1020", "2010", "2001,1130,1140,1150,3010", "2001,1130,1140,1810,3010"),
    ("1001,1031", "1010", "2001,1130", "2001,1130,1810"),
    ("1021,1021,1020", "1010", "2001,4001,1130,1150", "2001,7000,1130,1810"),
    ("1021", "2040", "2001,4001,1130,1150,3042", "2001,7000,1130,1810,3040"),
    ("1020,3166,1021", "1000", "1150,1130,3060", "1130,1810,3060"),
    ("1010,3105,7030", "2020", *["1130,1140,1820,1850,2930,2940,3010,3011"] * 2),
]
RACE = CodeFamily("race", ("1", "2", "3"), most=2)
SEX = CodeFamily("sex", ("1", "2"))


@needs_maps
@pytest.mark.parametrize(("race", "ethnicity", "detailed", "coarse"), GOLDEN)
def test_the_published_cases(race, ethnicity, detailed, coarse):
    groups = read_map(TOY, 3)
    carried = {"race": race.split(","), "ethnicity": [ethnicity]}
    for region, expected in (("nation", detailed), ("county", coarse)):
        found = [groups_of(groups.at(level, region), carried) for level in ("1", "2")]
        assert found[0] | found[1] == set(expected.split(","))
        assert not found[0] & found[1]


def small(**changes):
    arguments = {
        "families": (RACE, SEX),
        "groups": (
            Group("a", "1", "race", "alone"),
            Group("b", "1", "race", "any", regions=frozenset({"state"})),
            Group("c", "2", "sex", "any", total_only=True),
        ),
        "members": [("a", "1"), ("a", "2"), ("b", "1"), ("c", "2")],
    }
    return GroupMap(**(arguments | changes))


def test_alone_is_all_and_any_is_one():
    selection = small().at("1", "state")
    assert groups_of(selection, {"race": ["1"]}) == {"a", "b"}
    assert groups_of(selection, {"race": ["1", "2"]}) == {"a", "b"}
    assert groups_of(selection, {"race": ["2"]}) == {"a"}
    assert groups_of(selection, {"race": ["1", "3"]}) == {"b"}, "a code in no group still counts for alone"
    assert groups_of(selection, {"race": []}) == groups_of(selection, {}) == set()


def test_a_selection_is_of_one_level_and_region_type():
    groups = small()
    assert [group.code for group in groups.at("1", "state").groups] == ["a", "b"]
    assert [group.code for group in groups.at("1", "county").groups] == ["a"]
    assert [group.code for group in groups.at("1", None).groups] == ["a", "b"]
    assert groups.at("2", "state").total_only.tolist() == [True]
    assert len(groups.at("3", "state")) == 0


def test_the_matrix_holds_one_family_at_a_time():
    families = zip("abc", ("race", "race", "sex"), strict=True)
    selection = small(groups=tuple(Group(code, "1", family, "any") for code, family in families))
    member = selection.at("1", "state").member
    assert member["race"].toarray().tolist() == [[True, True, False], [True, False, False], [False] * 3]
    assert member["sex"].toarray().tolist() == [[False] * 3, [False, False, True]]
    assert selection.at("1", "state").columns("race", "any").tolist() == [0, 1]


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"families": (RACE, CodeFamily("race", ("1",)))}, "named twice"),
        ({"groups": (Group("a", "1", "race", "any"),) * 2}, "named twice"),
        ({"groups": (Group("a", "1", "age", "any"),)}, "not declared"),
        ({"groups": (Group("a", "1", "race", "some"),)}, "alone"),
        ({"members": [("z", "1")]}, "not declared"),
        ({"members": [("a", "9")]}, "not a known code"),
        ({"members": [("c", "3")]}, "not a known code"),
    ],
)
def test_what_does_not_fit_is_refused(changes, word):
    with pytest.raises(InvalidArgument, match=word):
        small(**changes)


def test_families_are_checked():
    with pytest.raises(InvalidArgument, match="twice"):
        CodeFamily("race", ("1", "1"))
    with pytest.raises(InvalidArgument, match="1 or more"):
        CodeFamily("race", ("1",), most=0)
