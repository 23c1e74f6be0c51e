"""Specs with [geography] that are wrong: every mistake is told, with its path and line, and in files with theirs."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.spec.conftest import Desk
from tests.spec.states import FACILITIES, SPINE, TEXT, State

OUTSIDE = 'outside = { place = "99" }\n'
SHARES = 'shares = { state = "1/4", county = "1/4", tract = "1/4", block = "1/4" }'

MISTAKES = {
    "an entity over unknown columns": (
        [('["place"]\n', '["plaec"]\n'), ("outside = { place", "outside = { plaec")],
        "geography.entities[0]", 'has no column "plaec"; did you mean "place"?',
    ),
    "a level without a column": ([('"tract", "block"]', '"bg", "block"]'), (SHARES, SHARES.replace("tract", "bg")),
        ('tract = "1/3", block = "1/4" }', 'bg = "1/3", block = "1/4" }'), ('{ tract = "1/3" }', '{ bg = "1/3" }'),
        ('tract = "1/3", block = "3/4" }', 'bg = "1/3", block = "3/4" }')],
        "geography.levels[2]", 'has no column "bg"'),
    "a level twice": ([('"tract", "block"]', '"county", "block"]')], "geography.levels", 'lists "county" twice'),
    "a level that is no file name": ([('["state", "county"', '["state", "../county"'),
        ('"county", "place"]', '"place"]')], "geography.levels[1]", "cannot name published files"),
    "levels that differ by capitals": ([('["state", "county", "tract"', '["state", "county", "County"')],
        "geography.levels", "differ by capitals only"),
    "a query called like another": ([("race = {", "total = {"), ('"age", "race"]', '"age", "total"]'),
        ('["race", "adult"]', '["adult"]'), ('attributes = ["group"]', 'attributes = ["total"]')],
        "geography.query[1].attributes", 'called "total", like those of geography.query[0]'),
    "exact counts of a level that is an attribute": ([("race = {", "county = {"),
        ('"age", "race"]', '"age", "county"]'), ('["race", "adult"]', '["adult"]'),
        ('level = "state"', 'level = "county"')],
        "invariant[0].level", "is the name of an attribute, too"),
    "an entity that is a level": ([('["place"]\n', '["tract"]\n'), (OUTSIDE, "")],
        "geography.entities[0]", "is a level"),
    "the outside of no entity": ([("outside = { place", "outside = { tribe")],
        "geography.outside.tribe", "not an entity"),
    "a file that is not there": ([('"spine.csv"', '"spin.csv"')], "geography.file", "No such file"),
    "unknown key": ([("column = ", "colum = "), ], "geography.column", "is missing"),
    "level of shares": ([("{ state = \"1/4\"", "{ nation = \"1/4\"")], "geography.shares.nation", "no level"),
    "shares that do not sum to 1": ([('tract = "1/4", block', 'tract = "1/5", block')],
        "geography.shares", "add up to 19/20, and not to 1"),
    "shares as floats": ([('tract = "1/4", block', 'tract = 0.25, block')],
        "geography.shares.tract", 'a number that decides privacy must be exact: write "0.25"'),
    "a negative share": ([('tract = "1/4", block', 'tract = "-1/4", block')], "geography.shares.tract", "from 0 to 1"),
    "nothing for leaves": ([('tract = "1/4", block = "1/4"', 'tract = "1/2", block = "0"'),
        ('tract = "1/3", block = "1/4" }', 'tract = "1/3" }'), (', block = "3/4"', "")],
        "geography.shares.block", "leaves need a share"),
    "query shares that do not sum to 1": ([('{ tract = "1/3" }', '{ tract = "1/4" }')],
        "geography.query", 'at level "tract" the shares of the queries add up to 11/12, and not to 1'),
    "queries of a level without a share": ([('{ state = "1/4", county = "1/4"', '{ state = "0", county = "1/2"')],
        "geography.query", 'level "state" has no share of the budget'),
    "a level without full rank": ([('tract = "1/3", block = "1/4" }', 'tract = "1/3", block = "1" }'),
        (', block = "3/4"', "")], "geography.query", "no query tells apart hhgq by age at level 'block'"),
    "an unknown attribute of a query": ([('attributes = ["group"]', 'attributes = ["grup"]')],
        "geography.query[1].attributes[0]", 'did you mean "group"?'),
    "two views of one attribute": ([('attributes = ["group"]', 'attributes = ["group", "hhgq"]')],
        "geography.query[1].attributes[1]", "views of one attribute"),
    "a query twice": ([('attributes = ["group"]', "attributes = []")], "geography.query[1]", "asks the same as"),
    "an unknown level of a query": ([('{ tract = "1/3" }', '{ tract = "1/3", bg = "1" }')],
        "geography.query[1].shares.bg", "no level"),
    "a split that does not parse": ([(OUTSIDE, OUTSIDE + 'split = "tribe = "\n')], "geography.split", "parse"),
    "a split over unknown columns": ([(OUTSIDE, OUTSIDE + "split = \"tribes = 'T'\"\n")],
        "geography.split", 'did you mean "tribe"?'),
    "a split that compares numbers": ([(OUTSIDE, OUTSIDE + 'split = "state = 1"\n')],
        "geography.split", "write '1' in single quotes"),
    "a split below no level": ([(OUTSIDE, OUTSIDE + "split = \"tribe = 'T'\"\nsplit_below = \"stat\"\n")],
        "geography.split_below", 'no level "stat"; did you mean "state"?'),
    "a split below every level": ([(OUTSIDE, OUTSIDE + "split = \"tribe = 'T'\"\nsplit_below = \"tract\"\n")],
        "geography.split_below", "nothing lies between level 'tract' and the leaves"),
    "a split that begins and is not": ([(OUTSIDE, OUTSIDE + "split_below = \"state\"\n")],
        "geography.split_below", "there is none"),
    "a split of nothing": ([(OUTSIDE, OUTSIDE + "split = \"tribe = 'X'\"\n")], "geography.split", "no leaf"),
    "a split of everything": ([(OUTSIDE, OUTSIDE + "split = \"state = '01'\"\n")], "geography.split", "every leaf"),
    "optimise of unknown entities": ([(OUTSIDE, OUTSIDE + 'optimise = { entities = ["town"] }\n')],
        "geography.optimise.entities[0]", 'has no column "town"'),
    "optimise of an unknown level": ([(OUTSIDE, OUTSIDE + 'optimise = { levels = ["bg"] }\n')],
        "geography.optimise.levels[0]", "no level"),
    "optimise of leaves": ([(OUTSIDE, OUTSIDE + 'optimise = { levels = ["block"] }\n')],
        "geography.optimise", "block"),
    "optimise of nothing": ([('entities = ["place"]\n', ""), (OUTSIDE, "optimise = { fanout_cutoff = 3 }\n"),
        (', "place"]', "]")], "geography.optimise", "no entities"),
    "a bound over an unknown attribute": ([('attributes = ["hhgq"]\nfile', 'attributes = ["hhqg"]\nfile')],
        "bound[0].attributes[0]", 'did you mean "hhgq"?'),
    "a bound over a column that is not there": ([('attributes = ["hhgq"]\nfile', 'attributes = ["age"]\nfile')],
        "bound[0].attributes", 'has no column "age"'),
    "a file of bounds that is not there": ([("facilities.csv", "facility.csv")], "bound[0].file", "No such file"),
    "bounds without limits": ([("facilities.csv", "spine.csv"),
        ('attributes = ["hhgq"]\nfile', "attributes = []\nfile")], "bound[0].file", "neither a column at_least nor"),
    "unlisted": ([('unlisted = "zero"', 'unlisted = "none"')], "bound[0].unlisted", '"zero" or "free"'),
    "a structural zero of everything": ([("where = \"hhgq = 'nursing' AND age < 2\"", 'where = "age >= 0"')],
        "structural_zero[0].where", "everything"),
    "a structural zero of nothing": ([("age < 2\"", 'age < 0"')], "structural_zero[0].where", "nothing: remove it"),
    "a structural zero that does not parse": ([("age < 2\"", 'age <"')], "structural_zero[0].where", "parse"),
    "a structural zero over an unknown value": ([("'nursing'", "'nurse'")],
        "structural_zero[0].where", "'nurse' is not a category of 'hhgq'"),
    "a structural zero over an unknown attribute": ([("age < 2\"", 'aeg < 2"')], "structural_zero[0].where", "'aeg'"),
    "an invariant without a level": ([('level = "state"\n', "")], "invariant[0].level", 'level = "state"'),
    "an invariant at an unknown level": ([('level = "state"', 'level = "nation"')], "invariant[0].level", "no level"),
    "an invariant with sql": ([('level = "state"', "level = \"state\"\nsql = 'SELECT COUNT(*) FROM p'")],
        "invariant[0].sql", "write attributes"),
    "an invariant with a name": ([('level = "state"', 'level = "state"\nname = "x"')],
        "invariant[0].name", "remove it"),
    "an invariant for areas": ([('level = "state"', 'level = "state"\nareas = ["place"]')],
        "invariant[0].areas", "write level"),
    "an invariant twice": ([("[[table]]", '[[invariant]]\nattributes = []\nlevel = "state"\nreason = "r"\n[[table]]')],
        "invariant[1]", "makes the same counts exact as invariant[0]"),
    "exact counts across bounds": ([("attributes = []\nlevel", 'attributes = ["adult"]\nlevel')],
        "invariant[0].attributes", "do not add up whole counts that bound[0] limits"),
    "a table with a weight": ([('name = "total"\n', 'name = "total"\nweight = 2\n')],
        "table[0].weight", "shares decide"),
    "a target of nothing": ([('name = "total"\n', 'name = "total"\ntarget = { }\n')],
        "table[0].target", "needs one of margin or rmse"),
    "a target for other areas": ([('"race", "adult"]\n',
        '"race", "adult"]\ntarget = { rmse = 2, areas = ["tract"] }\n')],
        "table[1].target.areas[0]", 'not published for "tract", but for "county", "place"'),
    "a second target for other areas": ([('"race", "adult"]\n',
        '"race", "adult"]\ntarget = [{ rmse = 2 }, { margin = 2, areas = ["place", "palce"] }]\n')],
        "table[1].target[1].areas[1]", 'did you mean "place"?'),
    "a target for areas twice": ([('name = "total"\n',
        'name = "total"\ntarget = { rmse = 2, areas = ["tract", "tract"] }\n')],
        "table[0].target.areas[1]", "twice"),
    "a target for no areas": ([('name = "total"\n', 'name = "total"\ntarget = { rmse = 2, areas = [] }\n')],
        "table[0].target.areas", "name at least one, or leave"),
    "a target out of all measure": ([('name = "total"\n', 'name = "total"\ntarget = { rmse = 1e200 }\n')],
        "table[0].target", "no error that counts can have"),
    "a target that is not a number": ([('name = "total"\n', 'name = "total"\ntarget = [{ rmse = "2" }]\n')],
        "table[0].target[0].rmse", "number"),
    "a table of sql": ([('name = "total"\nattributes = []', 'name = "total"\nsql = "SELECT COUNT(*) FROM p"')],
        "table[0].sql", "with [geography] a table is a marginal"),
    "a table of queries": ([('name = "total"\nattributes = []', 'name = "total"\nqueries = { age = "prefix" }')],
        "table[0].queries", "with recodes for ranges"),
    "a table for unknown areas": ([('["county", "place"]', '["county", "palce"]')], "table[1].areas[1]", '"place"?'),
    "a table for no areas": ([('["county", "place"]', "[]")], "table[1].areas", "name at least one, or leave"),
    "a table for areas twice": ([('["county", "place"]', '["county", "county"]')], "table[1].areas[1]", "twice"),
    "a table name twice": ([('"race by adult"', '"Total"')], "table[1].name", "table[0] is named"),
    "an attribute like a column": ([("race = {", "area = {"), ('"age", "race"]', '"age", "area"]'),
        ('["race", "adult"]', '["area", "adult"]')], "table[1].attributes[0]", "heads another column"),
    "too many rows": ([("[[table]]", "[release]\nmax_rows = 30\n[[table]]")], "release.max_rows", "max_rows = 41"),
    "neighbours within exact counts": ([('neighbours = "replace"', 'neighbours = "replace-within-invariants"')],
        "privacy.neighbours", '"add-remove" or "replace"'),
    "approx": ([('"zcdp"', '"approx"')], "privacy.definition", 'write "zcdp"'),
    "targets": ([('budget = "2"', 'budget = "targets"')], "privacy.budget", "no table has one"),
    "select": ([("[[table]]", '[method]\nselect = "hdmm"\n[[table]]')], "method.select", "chooses queries"),
    "tolerance": ([("[[table]]", "[method]\ntolerance = 0.1\n[[table]]")], "method.tolerance", "chooses queries"),
    "time_limit": ([("[[table]]", "[method]\ntime_limit = 3\n[[table]]")], "method.time_limit", "chooses queries"),
    "estimate": ([("[[table]]", '[method]\nestimate = "least-squares"\n[[table]]')],
        "method.estimate", 'known here: "bluedown", "topdown", "gls"'),
    "noise": ([("[[table]]", '[method]\nnoise = "laplace"\n[[table]]')], "method.noise", "does not keep the promise"),
    "microdata of gls": ([("[[table]]", '[method]\nestimate = "gls"\n[release]\nmicrodata = true\n[[table]]')],
        "release.microdata", "fractions"),
    "microdata with an attribute like a level": ([("race = {", "Tract = {"), ('"age", "race"]', '"age", "Tract"]'),
        ('["race", "adult"]', '["Tract", "adult"]'), ("[[table]]", "[release]\nmicrodata = true\n[[table]]")],
        "release.microdata", "two columns"),
    "no query": ([(TEXT[TEXT.index("[[geography.query]]") : TEXT.index("[[bound]]")], "")],
        "geography.query", "nothing is measured"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_one_mistake(state: State, name: str) -> None:
    passages, path, words = MISTAKES[name]
    problems = state.problems(*passages)
    told = {problem.path: problem for problem in problems}
    assert path in told, problems
    assert words in told[path].message, told[path]
    assert told[path].line is not None
    if name not in ("unknown key", "level of shares"):
        assert len(problems) == 1, problems


def test_mistakes_of_all_parts_are_told_at_once(state: State) -> None:
    problems = state.problems(
        ('tract = "1/4", block', 'tract = "1/5", block'),
        ('attributes = ["group"]', 'attributes = ["grup"]'),
        ("facilities.csv", "facility.csv"),
        ("'nursing'", "'nurse'"),
        ('["county", "place"]', '["county", "palce"]'),
        ('budget = "2"', "budget = 2"),
        ("[[table]]", '[method]\nestimate = "best"\n[[table]]'),
    )
    assert {problem.path for problem in problems} >= {
        "geography.shares",
        "geography.query[1].attributes[0]",
        "structural_zero[0].where",
        "table[1].areas[1]",
        "privacy.budget",
        "method.estimate",
    }


SPINES = {
    "a block in two tracts": (
        SPINE + "01,01003,01003A,0004,,\n",
        ['line 10: block "0004" lies in tract "01003A", and in "01001B" by line 5: a unit has one parent'],
    ),
    "a tract in two counties": (
        SPINE.replace("01,01003,01003B", "01,01001,01003B").replace(
            "01,01001,01001B,0004", "01,01001,01003B,0004"
        ),
        [],
    ),
    "a tract in two counties, and a block twice": (
        SPINE.replace("01,01003,01003B", "01,01003,01001B") + "01,01003,01003A,0007,20,\n",
        [
            'line 9: tract "01001B" lies in county "01003", and in "01001" by line 4',
            'line 10: block "0007" is already on line 8',
        ],
    ),
    "a leaf without a code": (SPINE + "01,01003,01003A,,,\n", ["line 10: block is empty"]),
    "a row too short": (SPINE + "01,01003,01003A\n", ["line 10: has 3 fields and the header has 6"]),
    "no row": (SPINE.splitlines()[0] + "\n", ["no row below its header"]),
    "nothing": ("", ["its first line is empty"]),
    "another encoding": (SPINE.encode().replace(b"01001A", b"\xff1001A"), ["invalid UTF8"]),
    "a column twice": (
        SPINE.replace("place,tribe", "place,place"),
        ['line 1: column "place" appears twice'],
    ),
}


@pytest.mark.parametrize("name", SPINES)
def test_mistakes_of_the_spine_file(state: State, name: str) -> None:
    content, words = SPINES[name]
    state.file("spine.csv", content)
    if not words:
        state.spec()
        return
    problems = state.problems()
    assert [problem.path for problem in problems] == ["geography.file"] * len(words)
    for problem, expected in zip(problems, words, strict=True):
        assert expected in problem.message
        assert problem.line == line_of(state.text, "file = ")


def line_of(text: str, start: str) -> int:
    return 1 + next(i for i, row in enumerate(text.splitlines()) if row.startswith(start))


def test_a_spine_with_one_leaf(state: State) -> None:
    state.file("spine.csv", "\n".join(SPINE.splitlines()[:2]) + "\n")
    state.file("facilities.csv", "\n".join(FACILITIES.splitlines()[:2]) + "\n")
    [problem] = state.problems()
    assert problem.path == "geography.levels"
    assert "one leaf" in problem.message


def test_a_universe_of_one_leaf(state: State) -> None:
    state.file("facilities.csv", "\n".join(FACILITIES.splitlines()[:2]) + "\n")
    [problem] = state.problems()
    assert "one leaf" in problem.message


BOUNDS = {
    "an unknown leaf": ("0099,jail,1,", 'line 11: no leaf of the geography has block "0099"'),
    "a leaf without zeros": ("8,jail,1,", 'has block "8"'),
    "an unknown value": (
        "0008,jial,1,",
        'line 11: there is no hhgq "jial"; there are "household", "nursing", "jail"',
    ),
    "an empty value": ("0008,,1,", "line 11: hhgq is empty"),
    "an empty leaf": (",jail,1,", "line 11: block is empty"),
    "a row twice": ("0003,jail,2,4", "line 11: is about the same leaf and values as line 6"),
    "at_least above at_most": ("0008,jail,5,4", "line 11: at_least is 5 and at_most is 4: no count is both"),
    "a negative limit": ("0008,jail,-1,4", 'line 11: at_least is "-1": write a whole number'),
    "a fraction": ("0008,jail,1.5,4", 'at_least is "1.5"'),
    "no number": ("0008,jail,1,many", 'at_most is "many"'),
    "a number too large": ("0008,jail,1,9999999999999", "write a whole number from 0 to"),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_mistakes_of_the_file_of_bounds(state: State, name: str) -> None:
    row, words = BOUNDS[name]
    state.file("facilities.csv", f"{FACILITIES}{row}\n")
    [problem] = state.problems()
    assert problem.path == "bound[0].file"
    assert words in problem.message


def test_only_a_few_mistakes_of_a_file_are_listed(state: State) -> None:
    state.file("facilities.csv", FACILITIES + "".join(f"{i},jail,1,\n" for i in range(100, 140)))
    problems = state.problems()
    assert len(problems) == 6
    assert "further mistakes are not listed" in problems[-1].message


def test_an_infeasible_bound_is_named(state: State) -> None:
    zero = "[[structural_zero]]\nwhere = \"hhgq = 'jail'\"\n[[structural_zero]]"
    [problem] = state.problems(("[[structural_zero]]", zero))
    assert problem.path == "bound[0]"
    assert 'block "0003" must have 1 hhgq jail or more' in problem.message


def test_bounds_that_leave_nothing_together(state: State) -> None:
    state.file("more.csv", "block,hhgq,at_most\n0001,nursing,1\n")
    more = '[[bound]]\nattributes = ["hhgq"]\nfile = "more.csv"\n[[structural_zero]]'
    [problem] = state.problems(("[[structural_zero]]", more))
    assert problem.path == "bound[1]"
    assert "0001" in problem.message
    assert "2 or more, and 1 or fewer" in problem.message


def test_limits_are_on_one_margin(state: State) -> None:
    state.file("more.csv", "block,group,at_most\n0001,institution,7\n")
    more = '[[bound]]\nattributes = ["group"]\nfile = "more.csv"\n[[structural_zero]]'
    [problem] = state.problems(("[[structural_zero]]", more))
    assert problem.path == "bound[1].attributes"
    assert "kept on one margin" in problem.message
    state.file("more.csv", "block,group,at_most\n0001,institution,7\n0004,home,0\n")
    gls = ("[[table]]", '[method]\nestimate = "gls"\n[[table]]')
    assert state.geography(("[[structural_zero]]", more), gls).dropped.tolist() == ["0004", "0008"]
    state.file(
        "more.csv", "block,group,at_most\n0004,home,0\n"
    )  # what cannot occur may be said on any margin
    assert state.geography(("[[structural_zero]]", more)).dropped.tolist() == ["0004", "0008"]


def test_crossing_exact_counts_are_for_gls_alone(state: State) -> None:
    text = state.text
    bound = text[text.index("[[bound]]") : text.index("[[structural_zero]]")]
    exact = '[[invariant]]\nattributes = ["{}"]\nlevel = "state"\nreason = "r"\n'
    crossing = ("[[table]]", f"{exact.format('adult')}{exact.format('group')}[[table]]")
    [problem] = state.problems((bound, ""), crossing)
    assert problem.path == "invariant"
    assert "cut across each other" in problem.message
    geography = state.geography((bound, ""), crossing, ("[[table]]", '[method]\nestimate = "gls"\n[[table]]'))
    assert geography.constraints is not None
    assert len(geography.constraints.exact) == 3


def test_exact_counts_of_units_that_are_cut(state: State) -> None:
    """They are the file's, and whole: nodes above their parts, or sums of the groups that took their place."""
    split = (OUTSIDE, OUTSIDE + "split = \"tribe = 'T'\"\n")
    counties = state.geography(split, ('level = "state"', 'level = "county"')).spine
    assert counties.areas("county").codes.tolist() == ["01001", "01003"]
    assert counties.codes["county"].tolist() == ["01001|in", "01001|out", "01003|in", "01003|out"]
    drawn = (OUTSIDE, OUTSIDE + "optimise = { fanout_cutoff = 0 }\n")
    tracts = state.geography(drawn, ('level = "state"', 'level = "tract"')).spine
    assert tracts.areas("tract").codes.tolist() == ["01001A", "01001B", "01003A"]
    [problem] = state.problems(split, drawn, ('level = "state"', 'level = "tract"'))
    assert problem.path == "invariant[0].level"
    assert "tract 01001A holds a part of county 01001|out, and lies outside it" in problem.message


def test_several_levels_without_full_rank_are_named_together(state: State) -> None:
    [problem] = state.problems(
        ('tract = "1/3", block = "1/4" }', 'tract = "2/3", block = "1" }'),
        (', tract = "1/3", block = "3/4"', ""),
    )
    assert "'tract' or 'block'" in problem.message


def test_floating_codes_have_lost_their_zeros(state: State) -> None:
    table = pa.table({"block": ["0001"], "hhgq": ["jail"], "at_least": [1.5]})
    pq.write_table(table, state.base / "facilities.parquet")
    [problem] = state.problems(("facilities.csv", "facilities.parquet"))
    assert 'column "at_least" has type double' in problem.message


def test_a_parquet_file_that_is_none(state: State) -> None:
    state.file("spine.parquet", SPINE)
    [problem] = state.problems(("spine.csv", "spine.parquet"))
    assert 'cannot read "spine.parquet" as a Parquet file' in problem.message


def test_a_file_too_large(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tabulae.spec.public_file.MOST_BYTES", 100)
    problems = state.problems()
    assert {problem.path for problem in problems} == {"geography.file"}
    assert "at most 100 are read" in problems[0].message


@pytest.mark.parametrize("section", ["bound", "structural_zero"])
def test_sections_that_need_a_geography(desk: Desk, section: str) -> None:
    [problem] = desk.problems(f"{desk.good}\n[[{section}]]\n")
    assert problem.path == section
    assert "there is no [geography]" in problem.message


@pytest.mark.parametrize(
    ("lines", "path"),
    [
        ('[[table]]\nname = "n"\nattributes = []\nareas = ["a"]', "table[2].areas"),
        ('[[invariant]]\nattributes = []\nreason = "r"\nlevel = "a"', "invariant[0].level"),
        ("[release]\nmicrodata = true", "release.microdata"),
        ('[method]\nestimate = "bluedown"', "method.estimate"),
    ],
)
def test_keys_that_need_a_geography(desk: Desk, lines: str, path: str) -> None:
    [problem] = desk.problems(f"{desk.good}\n{lines}\n")
    assert problem.path == path
    assert "there is no [geography]" in problem.message


def test_groups_and_areas_do_not_go_together(state: State, tmp_path: Path) -> None:
    problems = state.problems(("[geography]", '[detailed]\ngroups = "g.csv"\n[geography]'))
    told = {problem.path: problem.message for problem in problems}
    assert "its regions" in told["geography"]
